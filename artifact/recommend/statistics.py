"""What of a sparse matrix decides how fast it can be multiplied: a few numbers of its pattern, values not looked at.

    python -m artifact.recommend.statistics --room SYSTEM     writes the system's statistics.csv from $SPARSITY_MATRICES

The book is built from that file; the matrices are needed to make it, and not afterwards.
"""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd

from artifact import command, registry
from artifact.measure import matrices, records
from kernels.formats import csr, reorder

WINDOWS = (8, 16, 32, 64)  #: rows of a window
BLOCKS = (16, 32, 64)  #: rows and columns of a block
#: Orders of rows and columns: as the matrix comes, and SciPy's reverse Cuthill-McKee, for square ones.
GIVEN, RCM = "given", "rcm"


#: Of a pattern, repeated entries counted once: column → what it is.
FIELDS = {
    "m": "rows",
    "k": "columns",
    "nnz": "non-zeros",
    "row_mean": "non-zeros a row",
    "row_variation": "their standard deviation over their mean",
    "row_most": "the longest row's",
    "empty_rows": "how many",
    "bandwidth": "the largest distance of a column from its row's place on the diagonal",
    "spread": "mean of that distance, over k",
    **{f"windows_{h}": f"nnz over the sizes of the unions of columns of windows of {h} rows" for h in WINDOWS},
    **{f"similar_{h}": "the same where rows with common columns lie side by side" for h in WINDOWS},
    **{f"blocks_{b}": f"share of non-zeros in the blocks of {b} × {b} that have any" for b in BLOCKS},
}
COLUMNS = ("name", "order", *FIELDS)


class Statistics(SimpleNamespace):
    """FIELDS of a pattern."""

    @property
    def density(self) -> float:
        """Return the share of non-zeros; 0 for a matrix without elements."""
        return self.nnz / (self.m * self.k) if self.m and self.k else 0.0


def of(a: csr.Csr) -> Statistics:
    """Return the statistics of a matrix on the host."""
    place = csr.distinct(csr.rows(a) * a.k + a.col_idx)
    row, column = place // max(a.k, 1), place % max(a.k, 1)
    lengths = np.bincount(row, minlength=max(a.m, 1))
    mean = float(lengths.mean())
    similar = np.argsort(reorder.similar(a))  # place of each row in the order of similar ones
    away = np.abs(column - row * (a.k / max(a.m, 1)))
    return Statistics(
        m=a.m,
        k=a.k,
        nnz=place.size,
        row_mean=mean,
        row_variation=float(lengths.std() / max(mean, 1e-300)),
        row_most=int(lengths.max()),
        empty_rows=a.m - int(np.count_nonzero(lengths)),
        bandwidth=int(away.max(initial=0)),
        spread=float(away.sum() / max(place.size, 1) / max(a.k, 1)),
        **{f"windows_{height}": _shared(row // height * a.k + column) for height in WINDOWS},
        **{f"similar_{height}": _shared(similar[row] // height * a.k + column) for height in WINDOWS},
        **{f"blocks_{side}": _shared(row // side * a.k + column // side) / side**2 for side in BLOCKS},
    )


def _shared(owner: np.ndarray) -> float:
    """Non-zeros that an owner of any has, on average; owner: int64, of each non-zero."""
    return owner.size / int(np.count_nonzero(csr.changes(np.sort(owner)))) if owner.size else 0.0


def ordered(a: csr.Csr, order: str) -> csr.Csr:
    """Return A in that order; a matrix that is not square keeps its own."""
    return a if order == GIVEN or a.m != a.k else reorder.permuted(a, reorder.rcm(a)[0])


def read(path: Path) -> dict[tuple[str, str], Statistics]:
    """(name, order) -> statistics, of a file as `write` makes it.

    Raises FileNotFoundError, or ValueError that names the missing column.
    """
    if not path.is_file():
        raise FileNotFoundError(f"{path}: there are no statistics; python -m artifact.recommend.statistics makes them.")
    df = pd.read_csv(path, comment="#", keep_default_na=False)
    for column in (name for name in COLUMNS if name not in df):
        raise ValueError(f"{path}: row 1, column {column!r}: the column is missing.")
    return {(row.pop("name"), row.pop("order")): Statistics(**row) for row in df.to_dict("records")}


def write(system: str) -> Path:
    """Make a system's statistics.csv of those of its listed matrices that are in the folder, a row for each order."""
    where = matrices.folder()
    if where is None:
        raise FileNotFoundError(f"{matrices.VARIABLE} is not set: let it name a folder.")
    found = []
    for name in matrices.present(matrices.listed(registry.FOLDER / system / registry.MATRICES), where)["name"]:
        a = matrices.load(name, where)
        found += [{"name": name, "order": order} | vars(of(ordered(a, order))) for order in (GIVEN, RCM)]
        print(name, flush=True)
    df = pd.DataFrame(found, columns=list(COLUMNS)).apply(
        lambda c: c.map(lambda x: float(f"{x:.6g}")) if c.dtype.kind == "f" else c
    )
    head = (
        f"# Statistics of the system's real matrices as they come and in reverse Cuthill-McKee order, made by\n"
        f"# SPARSITY_MATRICES=… python -m artifact.recommend.statistics --room {system}\n"
    )
    return records.write_text(
        registry.FOLDER / system / registry.STATISTICS, head + df.to_csv(index=False, lineterminator="\n")
    )


@command.program(
    "artifact.recommend.statistics", __doc__, command.option("--room", required=True, help="whose list of matrices")
)
def main(options: command.Options) -> None:
    """Write a system's statistics."""
    print(write(options.room))


if __name__ == "__main__":
    raise SystemExit(main())
