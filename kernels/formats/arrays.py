"""What all formats share: arrays of NumPy or CuPy, all on one side, which go to the other together."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from ..contract import require
from ..lazy import cupy


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
    if not hasattr(array, "__cuda_array_interface__"):
        return np
    return cupy


def on_device(array) -> bool:
    """Whether an array is CuPy's."""
    return hasattr(array, "__cuda_array_interface__") and not isinstance(array, np.ndarray)


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


def require_one_side(kind: str, arrays: dict[str, Any]) -> None:
    """Raise ValueError, one sentence, unless all of a format's arrays are NumPy's, or CuPy's on one GPU."""
    sides = {}
    for name, x in arrays.items():
        require(
            isinstance(x, np.ndarray) or (on_device(x) and hasattr(x, "flags")),
            f"{kind} {name} is {type(x).__module__}.{type(x).__qualname__}, but must be an array of NumPy or CuPy",
        )
        sides[f"GPU {x.device.id}" if on_device(x) else "the host"] = name
    require(
        len(sides) == 1,
        f"{kind} has {' and '.join(f'{name} on {side}' for side, name in sides.items())}: copy all to one of them",
    )


def require_arrays(kind: str, x, wanted: dict[str, tuple[Any, tuple]], where: str = "") -> None:
    """Raise ValueError, one sentence, unless a format's arrays are as they must be, without gaps and on one side.

    wanted: field -> (dtype, shape), in which a word stands for any length. where: what asks for these.
    """
    require_one_side(kind, {name: getattr(x, name) for name in wanted})
    for name, (kind_of, shape) in wanted.items():
        array, dtype = getattr(x, name), np.dtype(kind_of)
        fits = len(shape) == array.ndim and all(n in (size, str(n)) for n, size in zip(shape, array.shape, strict=True))
        require(
            array.dtype == dtype and fits,
            f"{kind} {name} is {array.ndim}-dimensional {array.dtype} {tuple(array.shape)}, but must be {dtype} "
            f"({', '.join(map(str, shape))}){where}",
        )
        require(array.flags.c_contiguous, f"{kind} {name} is not row-major contiguous, as kernels read it: copy it")


def gravest(checks: Iterable[tuple[int, Any]]) -> tuple[int, int] | None:
    """(kind, place) of the first fault of the gravest kind, or None.

    checks: of each kind, the gravest first, the place of the first flag and flags of what is wrong; made one after
    the other, so that pointers are right where indices are looked at.
    """
    for kind, (first, wrong) in enumerate(checks):
        if wrong.any():
            return kind, first + int(wrong.argmax())
    return None


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
