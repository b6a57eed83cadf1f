"""What the formats cost before the first multiplication: fill ratios, reordering, and conversion on the GPU.

A table of its own beside the records, `traces/formats.csv`, a row for each real matrix:

    matrix, m, k, nnz
    bcsr_fill, wcsr_fill            non-zeros over stored values, as it comes: blocks of 64 x 64, windows of 64
    bcsr_fill_rcm, wcsr_fill_rcm    the same after reverse Cuthill-McKee, as the source has its matrices
    rcm_ms                          SciPy's reordering on the host
    bcsr_ms, wcsr_ms                conversion from CSR on the GPU, of the reordered matrix, in BF16
    bcsr_bytes, wcsr_bytes          what it leaves in the GPU's memory
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from artifact import registry
from artifact.measure import matrices
from artifact.measure.run import Run
from artifact.rooms.async_sparse.arithmetic import BLOCK, ROOM, SIZES
from artifact.rooms.async_sparse.experiments import MOST_BYTES
from kernels.async_sparse import operands
from kernels.formats import bcsr, csr, wcsr

TABLE = Path("traces", "formats.csv")
COLUMNS = (
    "matrix",
    "m",
    "k",
    "nnz",
    "bcsr_fill",
    "wcsr_fill",
    "bcsr_fill_rcm",
    "wcsr_fill_rcm",
    "rcm_ms",
    "bcsr_ms",
    "wcsr_ms",
    "bcsr_bytes",
    "wcsr_bytes",
)
DTYPE = "bfloat16"


def conversions(run: Run | None) -> pd.DataFrame | None:
    """The table: measured where there are a GPU and matrices, else what lies beside the records; None without."""
    if run is None:
        return None
    path = run.folder / TABLE
    where = matrices.folder() if run.mode == "measure" else None
    if where is not None and not path.is_file():
        rows = [
            row
            for name in matrices.present(matrices.listed(registry.matrices(ROOM)), where)["name"]
            if (row := _row(name, where)) is not None
        ]
        path.parent.mkdir(parents=True, exist_ok=True)
        pd.DataFrame(rows, columns=list(COLUMNS)).to_csv(path, index=False)
    return read(path) if path.is_file() else None


def read(path: Path) -> pd.DataFrame:
    """The table of a file. Raises ValueError, one sentence, where a column is missing."""
    df = pd.read_csv(path)
    missing = [column for column in COLUMNS if column not in df]
    if missing:
        raise ValueError(f"{path}: the column {missing[0]!r} is missing, so these are no conversions.")
    return df[list(COLUMNS)]


def fills(a: csr.Csr) -> tuple[float, float]:
    """Fill ratios of A in blocks of 64 x 64, counted without storing any, and in windows of 64 rows."""
    blocks = bcsr.count_blocks(a, (64, 64))
    return a.nnz / max(1, blocks * 64 * 64), wcsr.from_csr(a, dtype=DTYPE).fill_ratio


def _row(name: str, where: Path) -> dict | None:
    from kernels.contract import timed

    given = operands.with_values(matrices.load(name, where), 0, DTYPE)
    if bcsr.count_blocks(given) * BLOCK**2 * SIZES[DTYPE] > MOST_BYTES:
        return None
    a, rcm_ms = operands.reordered(given, "rcm")
    device = csr.to_device(a)
    blocks, bcsr_ms = timed(lambda: bcsr.from_csr(device, dtype=DTYPE))
    windows, wcsr_ms = timed(lambda: wcsr.from_csr(device, dtype=DTYPE))
    fill, fill_rcm = fills(given), fills(a)
    return {
        "matrix": name,
        "m": a.m,
        "k": a.k,
        "nnz": a.nnz,
        "bcsr_fill": fill[0],
        "wcsr_fill": fill[1],
        "bcsr_fill_rcm": fill_rcm[0],
        "wcsr_fill_rcm": fill_rcm[1],
        "rcm_ms": rcm_ms,
        "bcsr_ms": bcsr_ms,
        "wcsr_ms": wcsr_ms,
        "bcsr_bytes": blocks.nbytes,
        "wcsr_bytes": windows.nbytes,
    }
