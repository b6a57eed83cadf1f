"""What rooms are compared with: one module for a library, or for the CPU.

Each module offers `contenders(device)` -> name in the records -> callable(problem) -> Bound; the names begin with
the module's. A room names the modules that multiply its operands in its BASELINES. What only one room is
compared with, another room's kernel say, is such a module in its own `artifact/rooms/<room>/baselines/`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable
from pathlib import Path

from artifact import rooms
from kernels.contract import Bound, Problem


def modules() -> dict[str, str]:
    """Name of a baseline -> its module: those of this package, and the rooms' own."""
    here = {p.stem: f"{__name__}.{p.stem}" for p in sorted(Path(__file__).parent.glob("[!_]*.py"))}
    own = {
        name: f"{rooms.__name__}.{room}.{rooms.BASELINES}.{name}"
        for room in rooms.find()
        for name in rooms.baselines(room)
    }
    return here | own


#: What a contender is called where it stands for its library, which may choose its algorithm or not.
LIBRARIES = {
    "cusparse_best": "cuSPARSE",
    "cusparse_default": "cuSPARSE's default algorithm",
    "cusparselt": "cuSPARSELt",
    "cusparselt_default": "cuSPARSELt's default algorithm",
    "cusparse_bell": "cuSPARSE's Blocked-ELL",
    "cusparse_bsr": "cuSPARSE's BSR",
    "cublas_dense": "dense cuBLAS",
    "cublaslt_eight": "dense cuBLASLt in FP8",
    "triton_bsr": "PyTorch's Triton kernel",
    "triton_bsr_tuned": "PyTorch's Triton kernel, tuned",
}


def library(contender: str) -> str:
    """The name of the library that a contender stands for, else its own."""
    return LIBRARIES.get(contender, contender)


#: Prefixes of the contenders that are no variant of a room.
PREFIXES = tuple(modules())


def contenders(names: Iterable[str], device) -> dict[str, Callable[[Problem], Bound]]:
    """The contenders of the named modules, in that order.

    device: `cuda.core.Device`; None where only the contenders' names are wanted. Raises ValueError
    for a name that is no baseline.
    """
    known = modules()
    makers: dict[str, Callable[[Problem], Bound]] = {}
    for name in names:
        if name not in known:
            raise ValueError(f"There is no baseline {name!r}; known: {', '.join(known)}.")
        makers |= importlib.import_module(known[name]).contenders(device)
    return makers
