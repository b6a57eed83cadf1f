"""Tensor maps: what TMA, Hopper's copy engine, has to know of a matrix in device memory."""

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from .lazy import core

#: Bytes of a swizzled row in shared memory -> cuda.core's name for it; 0 leaves rows as they are.
SWIZZLES = {0: "NONE", 32: "SWIZZLE_32B", 64: "SWIZZLE_64B", 128: "SWIZZLE_128B"}
#: Bytes that L2 fetches at a time of what it does not have -> cuda.core's name for it; 0: what is asked for.
AHEAD = {0: "NONE", 128: "L2_128B", 256: "L2_256B"}


@dataclass(frozen=True)
class Mapped:
    """What a tensor map says of a row-major matrix, an argument of a `Launch`.

    Raises ValueError where rows do not begin at multiples of 16 bytes, and for another swizzle or `ahead`.
    """

    address: int
    shape: tuple[int, int]
    strides: tuple[int, int]  #: bytes
    typestr: str  #: of an element, as NumPy writes it: "<u2"
    box: tuple[int, int]  #: rows and columns of one copy, at most 256 each
    swizzle: int = 0  #: 0, 32, 64 or 128, which the bytes of a box's row must not exceed
    ahead: int = 0  #: bytes that L2 fetches at a time of what it does not have: 0 (what is asked for), 128 or 256

    def __post_init__(self):
        if self.swizzle not in SWIZZLES:
            raise ValueError(f"swizzle is {self.swizzle!r} bytes, but must be one of {list(SWIZZLES)}")
        if self.ahead not in AHEAD:
            raise ValueError(f"L2 is to fetch {self.ahead!r} bytes ahead, but must be one of {list(AHEAD)}")
        if self.address % 16 or self.strides[0] % 16:
            raise ValueError(
                f"TMA copies rows that begin at multiples of 16 bytes, but these begin at "
                f"{self.address % 16} and are {self.strides[0]} apart: pad them"
            )

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


def tensor_map(array, box: tuple[int, int], swizzle: int = 0, ahead: int = 0) -> Mapped:
    """Return what a tensor map says of a row-major CuPy matrix.

    What a box reads beyond it is zero, and is not written.
    """
    return Mapped(array.data.ptr, tuple(array.shape), tuple(array.strides), array.dtype.str, box, swizzle, ahead)


def encoded(said: Mapped):
    """Return the `cuda.core.TensorMapDescriptor`, an argument of `cuda.core.launch`."""
    # The enumeration of swizzles has no public name of its own; its members are what the options take.
    usual = core.TensorMapDescriptorOptions(said.box)
    named = {"swizzle": type(usual.swizzle)[SWIZZLES[said.swizzle]]}
    if said.ahead:
        named["l2_promotion"] = type(usual.l2_promotion)[AHEAD[said.ahead]]
    return core.utils.StridedMemoryView.from_any_interface(said, stream_ptr=-1).as_tensor_map(said.box, **named)


def mapped(address: int, shape: tuple[int, int], box: tuple[int, int], kind: str, swizzle: int = 0, ahead: int = 0):
    """Return `encoded` of a row-major matrix without gaps at an address; kind: of its elements, as NumPy writes it."""
    size = int(kind[-1])
    return encoded(Mapped(address, shape, (shape[1] * size, size), kind, box, swizzle, ahead))


MOST_KEPT = 1024  #: tensor maps of a launcher: a model's layers, each with its own weights, inputs and outputs


def remember(maps: dict, key: tuple, found):
    """`found`, which `maps` has from now on; where it has a great many, it forgets them first."""
    if len(maps) >= MOST_KEPT:
        maps.clear()
    maps[key] = found
    return found
