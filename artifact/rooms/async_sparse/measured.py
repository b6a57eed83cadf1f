"""What scripts of this room share: real matrices, problems of them, and files that they measure anew."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pandas as pd

from artifact.measure import apart, matrices
from artifact.measure import device as gpu
from artifact.rooms.async_sparse import experiments
from kernels.async_sparse import operands
from kernels.contract import Problem
from kernels.formats.csr import Csr

N, SEED, MATRICES = 256, 5, 74


def real(listed: bool = True) -> Iterator[tuple[str, Csr]]:
    """Yield (name, matrix) of the first of the room's list that are in the folder of matrices, or of all that lie
    there; SystemExit, one sentence, where no folder is named."""
    where = matrices.folder()
    if where is None:
        raise SystemExit(f"{matrices.VARIABLE} names no folder of matrices: set it")
    every = sorted(path.stem for path in where.glob("*.npz"))
    for name in experiments.present(where, MATRICES) if listed else every:
        yield name, matrices.load(name, where)


@contextmanager
def problem(a: Csr, n: int, name: str, dtype: str, seed: int = SEED) -> Iterator[Problem]:
    """Make a problem of a matrix in CSR as it comes, and give its memory back."""
    made = operands.problem_from_csr(a, n, seed, name, format="csr", dtype=dtype, reorder="")
    yield made
    apart.release(made)


def script(
    said: str,
    file: Path,
    columns: Sequence[str],
    rows: Callable[[Any], Iterable[tuple]],
    report: Callable[[pd.DataFrame], pd.DataFrame] = pd.DataFrame.describe,
) -> None:
    """Run a script: measure `file`, or the one that its command names, anew on the GPU that is here, and print a report
    of it. said: what it says of itself; rows: of a `cuda.core.Device`, which are printed as they come."""
    parser = argparse.ArgumentParser(description=said.splitlines()[0])
    parser.add_argument("file", nargs="?", type=Path, default=file)
    path, device, found = parser.parse_args().file, gpu.require().open(), []
    for row in rows(device):
        print(*row, flush=True)
        found.append(row)
    apart.write(path, f"{file.stem}.py", device, columns, found)
    print(report(apart.read(path)).to_string())
