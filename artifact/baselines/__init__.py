"""What the rooms are compared with, one module for a library, for the CPU or for
another room's kernel.

Each module offers `contenders(device)` -> name in the records -> callable(problem) -> Bound. A room
names the modules that multiply its operands in its BASELINES.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable
from pathlib import Path

from kernels.contract import Bound, Problem


def contenders(names: Iterable[str], device) -> dict[str, Callable[[Problem], Bound]]:
    """The contenders of the named modules, in that order.

    device: `cuda.core.Device`; None where only the contenders' names are wanted. Raises ValueError
    for a name that is not a module of this package.
    """
    known = sorted(p.stem for p in Path(__file__).parent.glob("*.py") if p.stem != "__init__")
    makers: dict[str, Callable[[Problem], Bound]] = {}
    for name in names:
        if name not in known:
            raise ValueError(f"There is no baseline {name!r}; known: {', '.join(known)}.")
        makers |= importlib.import_module(f"{__name__}.{name}").contenders(device)
    return makers
