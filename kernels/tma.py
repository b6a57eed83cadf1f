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
    ahead: int = 0

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


#: Bytes that L2 fetches at a time of what it does not have -> cuda.core's name for it; 0: what is asked for.
AHEAD = {0: "NONE", 128: "L2_128B", 256: "L2_256B"}

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


def tensor_map(array, box: tuple[int, int], swizzle: int = 0, ahead: int = 0):
    """A `cuda.core.TensorMapDescriptor` of a row-major CuPy matrix, or a `Mapped`, an argument of `cuda.core.launch`.

    box: rows and columns of one copy, at most 256 each. swizzle: 0, 32, 64 or 128, which the bytes of a
    box's row must not exceed. ahead: bytes that L2 fetches at a time of what it does not have, 0 (what is
    asked for), 128 or 256. What a box reads beyond the matrix is zero, and is not written.
    Raises ValueError where rows do not begin at multiples of 16 bytes, and for another swizzle or `ahead`.
    """
    if swizzle not in SWIZZLES:
        raise ValueError(f"swizzle is {swizzle!r} bytes, but must be one of {list(SWIZZLES)}")
    if ahead not in AHEAD:
        raise ValueError(f"L2 is to fetch {ahead!r} bytes ahead, but must be one of {list(AHEAD)}")
    if array.data.ptr % 16 or array.strides[0] % 16:
        raise ValueError(
            f"TMA copies rows that begin at multiples of 16 bytes, but these begin at "
            f"{array.data.ptr % 16} and are {array.strides[0]} apart: pad them"
        )
    from cuda.core import TensorMapDescriptorOptions
    from cuda.core.utils import StridedMemoryView

    # The enumeration of swizzles has no public name of its own; its members are what the options take.
    usual = TensorMapDescriptorOptions(box)
    named = {"swizzle": type(usual.swizzle)[SWIZZLES[swizzle]]}
    if ahead:
        named["l2_promotion"] = type(usual.l2_promotion)[AHEAD[ahead]]
    view = StridedMemoryView.from_any_interface(array, stream_ptr=-1)
    descriptor = view.as_tensor_map(box, **named)
    made = _recording.get()
    if made is not None:
        said = Mapped(
            array.data.ptr,
            tuple(array.shape),
            tuple(array.strides),
            array.dtype.str,
            box,
            swizzle,
            ahead,
        )
        made[id(descriptor)] = descriptor, said
    return descriptor


def mapped(address: int, shape: tuple[int, int], box: tuple[int, int], kind: str, swizzle: int = 0, ahead: int = 0):
    """`tensor_map` of a row-major matrix without gaps at an address; kind: of its elements, as NumPy writes it."""
    size = int(kind[-1])
    return tensor_map(Mapped(address, shape, (shape[1] * size, size), kind, box, swizzle, ahead), box, swizzle, ahead)


MOST_KEPT = 1024  #: tensor maps of a launcher: a model's layers, each with its own weights, inputs and outputs


def remember(maps: dict, key: tuple, found):
    """`found`, which `maps` has from now on; where it has a great many, it forgets them first."""
    if len(maps) >= MOST_KEPT:
        maps.clear()
    maps[key] = found
    return found
