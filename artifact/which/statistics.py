"""What of a sparse matrix decides how fast it can be multiplied: a few numbers of its pattern, values not looked at.

    python -m artifact.which.statistics --room ROOM     writes the room's statistics.csv from $SPARSITY_MATRICES

The book is built from that file; the matrices are needed to make it, and not afterwards.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import numpy as np
import pandas as pd

from artifact import command, registry
from artifact.measure import matrices, records
from kernels.formats import csr, reorder
from kernels.formats.csr import Csr

WINDOWS = (8, 16, 32, 64)  #: rows of a window
BLOCKS = (16, 32, 64)  #: rows and columns of a block
#: Orders of rows and columns: as the matrix comes, and SciPy's reverse Cuthill-McKee, for square ones.
GIVEN, RCM = "given", "rcm"


@dataclass(frozen=True)
class Statistics:
    """A pattern, repeated entries counted once."""

    m: int
    k: int
    nnz: int
    row_mean: float  #: non-zeros a row
    row_variation: float  #: their standard deviation over their mean
    row_most: int
    empty_rows: int
    bandwidth: int  #: the largest distance of a column from its row's place on the diagonal
    spread: float  #: mean of that distance, over k
    windows_8: float  #: non-zeros that a column of a window has: nnz over the sizes of the windows' unions of columns
    windows_16: float
    windows_32: float
    windows_64: float
    similar_8: float  #: the same where rows with common columns lie side by side (`reorder.similar`)
    similar_16: float
    similar_32: float
    similar_64: float
    blocks_16: float  #: share of blocks' elements that are non-zeros, of the blocks that have any
    blocks_32: float
    blocks_64: float

    @property
    def density(self) -> float:
        return self.nnz / (self.m * self.k) if self.m and self.k else 0.0


COLUMNS = ("name", "order", *(field.name for field in fields(Statistics)))


def of(a: Csr) -> Statistics:
    """The statistics of a matrix on the host."""
    place = csr.distinct(csr.rows(a) * a.k + a.col_idx)
    row, column = place // max(a.k, 1), place % max(a.k, 1)
    lengths = np.bincount(row, minlength=max(a.m, 1))
    mean = float(lengths.mean())
    similar = np.argsort(reorder.similar(a))  # place of each row in the order of similar ones
    away = np.abs(column - row * (a.k / max(a.m, 1)))
    return Statistics(
        a.m,
        a.k,
        place.size,
        mean,
        float(lengths.std() / max(mean, 1e-300)),
        int(lengths.max()),
        a.m - int(np.count_nonzero(lengths)),
        int(away.max(initial=0)),
        float(away.sum() / max(place.size, 1) / max(a.k, 1)),
        **{f"windows_{height}": _shared(row // height * a.k + column) for height in WINDOWS},
        **{f"similar_{height}": _shared(similar[row] // height * a.k + column) for height in WINDOWS},
        **{f"blocks_{side}": _shared(row // side * a.k + column // side) / side**2 for side in BLOCKS},
    )


def _shared(owner: np.ndarray) -> float:
    """Non-zeros that an owner of any has, on average; owner: int64, of each non-zero."""
    return owner.size / int(np.count_nonzero(csr.changes(np.sort(owner)))) if owner.size else 0.0


def ordered(a: Csr, order: str) -> Csr:
    """A in that order; a matrix that is not square keeps its own."""
    if order == GIVEN or a.m != a.k:
        return a
    return reorder.permuted(a, reorder.rcm(a)[0])


def table(names: Iterable[str], where: Path) -> pd.DataFrame:
    """COLUMNS of the named matrices in a folder, a row for each order."""
    found = []
    for name in names:
        a = matrices.load(name, where)
        found += [{"name": name, "order": order} | asdict(of(ordered(a, order))) for order in (GIVEN, RCM)]
        print(name, flush=True)
    df = pd.DataFrame(found, columns=list(COLUMNS))
    return df.apply(lambda c: c.map(lambda x: float(f"{x:.6g}")) if c.dtype.kind == "f" else c)


def read(path: Path) -> dict[tuple[str, str], Statistics]:
    """(name, order) -> statistics, of a file as `table` has it. Raises FileNotFoundError, or ValueError that names the
    missing column."""
    if not path.is_file():
        raise FileNotFoundError(f"{path}: there are no statistics; python -m artifact.which.statistics makes them.")
    df = pd.read_csv(path, comment="#", keep_default_na=False)
    for column in (name for name in COLUMNS if name not in df):
        raise ValueError(f"{path}: row 1, column {column!r}: the column is missing.")
    return {(row.pop("name"), row.pop("order")): Statistics(**row) for row in df.to_dict("records")}


def write(room: str) -> Path:
    """Make a room's statistics.csv of those of its listed matrices that are in the folder of matrices."""
    where = matrices.folder()
    if where is None:
        raise FileNotFoundError(f"{matrices.VARIABLE} is not set: let it name a folder.")
    df = table(matrices.present(matrices.listed(registry.FOLDER / room / registry.MATRICES), where)["name"], where)
    head = (
        f"# Statistics of the room's real matrices as they come and in reverse Cuthill-McKee order, made by\n"
        f"# SPARSITY_MATRICES=… python -m artifact.which.statistics --room {room}\n"
    )
    return records.write_text(
        registry.FOLDER / room / registry.STATISTICS, head + df.to_csv(index=False, lineterminator="\n")
    )


@command.program(
    "artifact.which.statistics", __doc__, command.option("--room", required=True, help="whose list of matrices")
)
def main(options: command.Options) -> None:
    """Write a room's statistics."""
    print(write(options.room))


if __name__ == "__main__":
    sys.exit(main())
