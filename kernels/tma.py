"""Tensor maps: what TMA, Hopper's copy engine, has to know of a matrix in device memory."""

from __future__ import annotations

#: Bytes of a swizzled row in shared memory -> cuda.core's name for it; 0 leaves rows as they are.
SWIZZLES = {0: "NONE", 32: "SWIZZLE_32B", 64: "SWIZZLE_64B", 128: "SWIZZLE_128B"}


def tensor_map(array, box: tuple[int, int], swizzle: int = 0):
    """A `cuda.core.TensorMapDescriptor` of a row-major CuPy matrix, an argument of `cuda.core.launch`.

    box: rows and columns of one copy, at most 256 each. swizzle: 0, 32, 64 or 128, which the bytes of a
    box's row must not exceed. What a box reads beyond the matrix is zero, and is not written.
    Raises ValueError where rows do not begin at multiples of 16 bytes, and for another swizzle.
    """
    if swizzle not in SWIZZLES:
        raise ValueError(f"swizzle is {swizzle!r} bytes, but must be one of {list(SWIZZLES)}")
    if array.data.ptr % 16 or array.strides[0] % 16:
        raise ValueError(
            f"TMA copies rows that begin at multiples of 16 bytes, but these begin at "
            f"{array.data.ptr % 16} and are {array.strides[0]} apart: pad them"
        )
    from cuda.core import TensorMapDescriptorOptions
    from cuda.core.utils import StridedMemoryView

    # The enumeration of swizzles has no public name of its own; its members are what the options take.
    swizzles = type(TensorMapDescriptorOptions(box).swizzle)
    view = StridedMemoryView.from_any_interface(array, stream_ptr=-1)
    return view.as_tensor_map(box, swizzle=swizzles[SWIZZLES[swizzle]])
