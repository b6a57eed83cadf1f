"""What the examples share: the library, a matrix by its file or name, times of GPU work, and a table."""

import argparse
import csv
import datetime
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

import numpy as np
import scipy.sparse as sp

try:
    import sparsity_on_trial as trial
except ModuleNotFoundError:  # in a checkout the package is the folder `kernels`
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    import kernels as trial

__all__ = [
    "Row",
    "graph",
    "matrix",
    "optional",
    "parser",
    "report",
    "run",
    "timed",
    "trial",
    "write",
]
WARM, ROUNDS, CALLS = 3, 10, 10
COLUMNS = ("example", "problem", "contender", "us", "error", "note", "gpu", "when")


@dataclass(frozen=True)
class Row:
    """A contender: its time, and how far its result is from float64's."""

    name: str
    us: float  #: median microseconds; NaN where it did not run
    error: float  #: relative
    note: str = ""


def parser(text: str) -> argparse.ArgumentParser:
    """Return the parser of an example: its text, and the seed."""
    made = argparse.ArgumentParser(description=text.partition("\n")[0])
    made.add_argument("--seed", type=int, default=0, help="of random numbers")
    made.add_argument("--record", type=Path, help="a .csv file to append the table to")
    return made


def matrix(name: str | None, rows: int, seed: int) -> tuple[sp.csr_array, str]:
    """Return (a square matrix, what it is).

    Of a .mtx or .npz file, or of a name in the folder of SPARSITY_MATRICES, or made.

    Raises FileNotFoundError, one sentence, where there is no such file, ValueError for a matrix that is not square or a
    file that holds none.
    """
    if name is None:
        return graph(rows, seed), f"a generated graph of {rows} nodes"
    folder = os.environ.get("SPARSITY_MATRICES")
    places = [Path(name)]
    if folder:
        places += [
            Path(folder, f"{name}.npz"),
            Path(folder, f"{name}.mtx"),
            Path(folder, name, f"{name}.mtx"),
        ]
    found = next((place for place in places if place.is_file()), None)
    if found is None:
        raise FileNotFoundError(
            f"there is no matrix {name!r}: give a .mtx or .npz file, or a name in the folder of SPARSITY_MATRICES"
        )
    formats = f"{trial.__name__}.formats"
    read = import_module(f"{formats}.matrix_market").read if found.suffix != ".npz" else sp.load_npz
    try:
        a = sp.csr_array(import_module(f"{formats}.foreign").checked(read(found), everything=True))
    except Exception as error:  # readers of archives and arrays raise many kinds
        raise ValueError(f"{found.name} holds no sparse matrix: {error}") from error
    if a.shape[0] != a.shape[1]:
        raise ValueError(f"{found.name} is {a.shape[0]} x {a.shape[1]}, but must be square")
    return a, found.stem


def graph(nodes: int, seed: int, neighbours: int = 16) -> sp.csr_array:
    """Return an undirected graph in which few nodes have many neighbours, as social networks do.

    Weights 1, no loops.
    """
    rng = np.random.default_rng(seed)
    edges = nodes * neighbours // 2
    # Node i is chosen with a probability that falls as 1 / sqrt(i + 1).
    ends = (rng.random((2, edges)) ** 2 * nodes).astype(np.int64)
    ends = rng.permutation(nodes)[ends]
    ends = ends[:, ends[0] != ends[1]]
    half = sp.coo_array((np.ones(ends.shape[1], np.float32), (ends[0], ends[1])), (nodes, nodes))
    both = sp.csr_array(half + half.T)
    both.data[:] = 1
    return both


def optional(name: str):
    """Return a module that need not be installed, or None."""
    try:
        return import_module(name)
    except ModuleNotFoundError:
        return None


def timed(work: Callable[[], object]) -> float:
    """Median microseconds of a call, of several that follow each other between events on the default stream.

    What a program sees that does not wait for each, so that the host counts only where it takes longer than the GPU.
    """
    import cupy

    for _ in range(WARM):
        work()
    times = []
    for _ in range(ROUNDS):
        begin, end = cupy.cuda.Event(), cupy.cuda.Event()
        begin.record()
        for _ in range(CALLS):
            work()
        end.record()
        end.synchronize()
        times.append(cupy.cuda.get_elapsed_time(begin, end) * 1e3 / CALLS)
    return float(np.median(times))


def report(problem: str, rows: list[Row], record: Path | None = None) -> None:
    """Print contenders, the first one ours, with how many times as long as ours each takes; record: append them."""
    if record is not None:
        write(record, Path(sys.argv[0]).stem, problem, rows)
    print(problem)
    wide = max(len(row.name) for row in rows)
    print(f"{'':{wide}}  {'us':>10}  {'of ours':>8}  {'error':>8}")
    for row in rows:
        if np.isnan(row.us):
            print(f"{row.name:{wide}}  {row.note}")
            continue
        share = row.us / rows[0].us
        print(f"{row.name:{wide}}  {row.us:10.1f}  {share:7.2f}x  {row.error:8.1e}  {row.note}".rstrip())


def write(path: Path, example: str, problem: str, rows: list[Row]) -> None:
    """Append contenders to a table; `COLUMNS` says how. Those without a time have only a note."""
    new = not path.is_file()
    path.parent.mkdir(parents=True, exist_ok=True)
    gpu, day = trial.open_device().name, datetime.date.today().isoformat()
    with path.open("a", newline="", encoding="utf-8") as file:
        table = csv.writer(file, lineterminator="\n")
        if new:
            table.writerow(COLUMNS)
        for row in rows:
            numbers = ("", "") if np.isnan(row.us) else (f"{row.us:.2f}", f"{row.error:.3e}")
            table.writerow((example, problem, row.name, *numbers, row.note, gpu, day))


def run(main: Callable[[list[str]], None]) -> None:
    """Run the script: what is missing (a GPU, a library, a file) is one sentence on stderr and exit code 2."""
    try:
        main(sys.argv[1:])
    except (trial.NoGpu, FileNotFoundError, ModuleNotFoundError, ValueError) as error:
        print(error, file=sys.stderr)
        raise SystemExit(2) from None
