"""What all formats share: arrays of NumPy or CuPy, all on one side, which go to the other together; and checks.

A matrix on the host is checked by NumPy, which names the first fault. One on a GPU is looked at by a kernel of
`checks.cu`, in one launch and one short copy; where that finds a fault, it is checked on the host.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ..contract import require
from ..lazy import cupy
from ..workspace import On

CHECKS = Path(__file__).with_name("checks.cu")
#: dtype of indices, and of stored values, -> what the source calls it.
INDEX = {"int32": "int", "int64": "long long"}
BITS = {"float32": "unsigned", "uint16": "u16"}
CHECKS_ENTRIES = (
    *(f"compressed<{x}, {y}>" for x in INDEX.values() for y in INDEX.values()),
    *(f"within<{x}>" for x in INDEX.values()),
    *(f"{name}<{bits}>" for name in ("bcsr", "wcsr") for bits in BITS.values()),
    "two_four",
    "nm",
)
_KINDS, _NONE = 8, 2**64 - 1


class Arrays:
    """A frozen dataclass whose arrays, its fields with dimensions, are all NumPy's or all CuPy's."""

    @property
    def arrays(self) -> dict[str, Any]:
        """Field -> array."""
        return {name: x for name, x in vars(self).items() if getattr(x, "ndim", 0)}

    @property
    def xp(self):
        """The library of its arrays."""
        return array_module(next(iter(self.arrays.values())))

    @property
    def nbytes(self) -> int:
        """Return the bytes of all arrays."""
        return sum(x.nbytes for x in self.arrays.values())


def array_module(array):
    """CuPy for what lives on a GPU, NumPy for the rest."""
    return cupy if hasattr(array, "__cuda_array_interface__") else np


def to_device(x):
    """Copy to the current GPU: arrays that live there already are shared, and `x` itself where all do."""

    def moved(array):
        there = isinstance(array, cupy.ndarray) and array.device.id == cupy.cuda.Device().id
        return array if there else cupy.asarray(array)

    return _moved(x, moved)


def to_host(x):
    """Copy from the GPU; `x` itself where it is on the host already."""
    return _moved(x, lambda array: array if isinstance(array, np.ndarray) else array.get())


def _moved(x, move: Callable):
    made = {name: move(array) for name, array in x.arrays.items()}
    return x if all(made[name] is array for name, array in x.arrays.items()) else replace(x, **made)


def require_arrays(kind: str, x, wanted: dict[str, tuple[Any, tuple]], where: str = "") -> None:
    """Raise ValueError, one sentence, unless a format's arrays are as they must be, without gaps and on one side.

    wanted: field -> (dtype, shape), in which a word stands for any length. where: what asks for these.
    """
    sides = {}
    for name in wanted:
        array = getattr(x, name)
        on_gpu = hasattr(array, "__cuda_array_interface__") and not isinstance(array, np.ndarray)
        require(
            isinstance(array, np.ndarray) or (on_gpu and hasattr(array, "flags")),
            f"{kind} {name} is {type(array).__module__}.{type(array).__qualname__}, but must be an array of NumPy or "
            "CuPy",
        )
        sides[f"GPU {array.device.id}" if on_gpu else "the host"] = name
    require(
        len(sides) == 1,
        f"{kind} has {' and '.join(f'{name} on {side}' for side, name in sides.items())}: copy all to one of them",
    )
    for name, (kind_of, shape) in wanted.items():
        array, dtype = getattr(x, name), np.dtype(kind_of)
        fits = len(shape) == array.ndim and all(n in (size, str(n)) for n, size in zip(shape, array.shape, strict=True))
        require(
            array.dtype == dtype and fits,
            f"{kind} {name} is {array.ndim}-dimensional {array.dtype} {tuple(array.shape)}, but must be {dtype} "
            f"({', '.join(map(str, shape))}){where}",
        )
        require(array.flags.c_contiguous, f"{kind} {name} is not row-major contiguous, as kernels read it: copy it")


def first_fault(entry: str, threads: int, *arguments) -> tuple[int, int] | None:
    """Return what a kernel of checks.cu finds, on CuPy's current device and stream: None, where all is right.

    Else (kind, place) of the gravest fault, the first of its kind, as the source numbers kinds: while pointers are
    wrong, what they point to is not looked at.
    """
    found = cupy.empty(_KINDS, cupy.uint64)
    found.data.memset_async(0xFF, found.nbytes)
    with On(CHECKS) as on:
        on.on(entry, threads or 1, *arguments, found)
    return next((fault for fault in enumerate(found.get().tolist()) if fault[1] != _NONE), None)


def checked(a, look: tuple | None, check: Callable[[Any], None]):
    """Return a format, or raise the ValueError of `check`, which takes it on the host.

    look: of `first_fault`, which decides whether a matrix on a GPU has to be checked there; None: it has.
    """
    fault = first_fault(*look) if look and a.xp is not np else None
    if fault or look is None or a.xp is np:
        check(to_host(a))
    require_both(fault)
    return a


def require_both(fault) -> None:
    """Raise ValueError where a kernel found a fault and the host none."""
    require(not fault, f"arrays have a fault on the GPU, {fault}, but none on the host: bring some that nobody writes")


def require_none(wrong, said: Callable[[int], str]) -> None:
    """Raise ValueError with what is `said` of the place of the first flag that is set, if any is; on the host."""
    if wrong.any():
        raise ValueError(said(int(wrong.argmax())))


def require_share(what: str, density) -> float:
    """Return a density as Python's number; ValueError where it is no share."""
    require(
        isinstance(density, (float, int, np.floating, np.integer)) and 0 <= density <= 1,
        f"{what} is {density!r}, but must be a share from 0 to 1",
    )
    return float(density)


def require_known(what: str, value, known: Iterable) -> None:
    """Raise ValueError, one sentence, for what is none of `known`."""
    require(value in known, f"{what} is {value!r}, but must be one of {', '.join(map(str, known))}")
