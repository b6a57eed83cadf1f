"""What scripts of a room measure apart: CSV beside them, below a line that says on which GPU and when."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Sequence
from pathlib import Path

import pandas as pd

from kernels.contract import Problem


def read(path: Path) -> pd.DataFrame:
    return pd.read_csv(path, comment="#")


def origin(path: Path) -> str:
    """The GPU and the day that a file says it is of."""
    return path.read_text(encoding="utf-8").splitlines()[0].removeprefix("# ").partition(":")[0]


def write(path: Path, script: str, device, columns: Sequence[str], rows: Iterable[Sequence]) -> None:
    """script: the name of the file that measured; device: a `cuda.core.Device`."""
    table = pd.DataFrame(rows, columns=list(columns)).to_csv(index=False, lineterminator="\n")
    said = f"# {device.name}, {datetime.date.today()}: see {Path(script).name}\n"
    path.write_text(said + table, encoding="utf-8")


def release(problem: Problem) -> None:
    """Forget a problem's operands, and give their memory back."""
    import cupy

    problem.release()
    cupy.get_default_memory_pool().free_all_blocks()
