"""Tensor maps: what TMA, Hopper's copy engine, has to know of a matrix in device memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

#: Bytes of a swizzled row in shared memory -> cuda.core's name for it; 0 leaves rows as they are.
SWIZZLES = {0: "NONE", 32: "SWIZZLE_32B", 64: "SWIZZLE_64B", 128: "SWIZZLE_128B"}


@dataclass(frozen=True)
class Mapped:
    """What a tensor map says of a matrix, so that it can be said again of one at another address."""

    address: int
    shape: tuple[int, int]
    strides: tuple[int, int]  #: bytes
    typestr: str  #: of an element, as NumPy writes it: "<u2"
    box: tuple[int, int]
    swizzle: int

    @property
    def data(self) -> SimpleNamespace:
        """As a CuPy array says where it is."""
        return SimpleNamespace(ptr=self.address)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {
            "version": 3,
            "shape": self.shape,
            "strides": self.strides,
            "typestr": self.typestr,
            "data": (self.address, False),
        }


_recording: ContextVar[dict | None] = ContextVar("recording", default=None)


@contextmanager
def recorded() -> Iterator[dict[int, tuple[Any, Mapped]]]:
    """id of a descriptor -> (descriptor, what it says), of all that `tensor_map` makes meanwhile in this thread."""
    made: dict[int, tuple[Any, Mapped]] = {}
    token = _recording.set(made)
    try:
        yield made
    finally:
        _recording.reset(token)


def tensor_map(array, box: tuple[int, int], swizzle: int = 0):
    """A `cuda.core.TensorMapDescriptor` of a row-major CuPy matrix, or a `Mapped`, an argument of `cuda.core.launch`.

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
    descriptor = view.as_tensor_map(box, swizzle=swizzles[SWIZZLES[swizzle]])
    made = _recording.get()
    if made is not None:
        said = Mapped(
            array.data.ptr, tuple(array.shape), tuple(array.strides), array.dtype.str, box, swizzle
        )
        made[id(descriptor)] = descriptor, said
    return descriptor
