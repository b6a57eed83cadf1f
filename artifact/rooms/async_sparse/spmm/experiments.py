"""Experiments on real matrices in CSR. As in `async_sparse.experiments`, what was not recorded is None.

TF32 and float32 are experiments apart: values differ (TF32's hold 11 bits, so that no contender rounds an
operand), the limit of the error does, and nothing here divides a time of one by a time of the other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pandas as pd

from artifact.measure import records
from artifact.measure.run import Run
from artifact.rooms.async_sparse import contenders
from artifact.rooms.async_sparse.contenders import (
    AUTO_FP32,
    AUTO_HALF,
    AUTO_TF32,
    BELL,
    BSR,
    CSR,
    CSR_ALGORITHMS,
    EXACT,
    KEPT,
    PARTS,
    TRITON,
    UNION,
    UNION_HALF,
    WCSR,
    WHOLE,
    WINDOWS,
)
from artifact.rooms.async_sparse.experiments import kernels, real
from kernels.async_sparse.operands import WINDOW, WINDOW_TILE

#: cuSPARSE's first algorithm for CSR is in `exact`, where it is never the fastest and takes most of the time.
TABLE1 = (WCSR, WINDOWS, AUTO_TF32, KEPT, BELL, BSR, TRITON, *CSR_ALGORITHMS[1:])
EXACTLY = (UNION, EXACT, AUTO_FP32, *CSR_ALGORITHMS)
REORDERED = (AUTO_FP32, *CSR_ALGORITHMS)
#: Of cuSPARSE's algorithms for CSR the third alone is right in bfloat16: the others add heavy rows up in it.
HALF = (WCSR, UNION_HALF, AUTO_HALF, CSR_ALGORITHMS[2])
SIZES = {"full": (256, 512, 1024), "kick": (256,)}
WIDE, PART_SIZE = 1024, 512  #: N of what reordering is worth, and of the parts
SECOND, THIRD, FIFTH = 2, 3, 5  #: of the matrices: every so many of the list
BYTES = 4  #: of a value, of float32 as of TF32


def tf32(run: Run | None) -> pd.DataFrame | None:
    """Table I and Fig. 5: every kernel and library on every matrix in TF32, reordered as in the source."""
    return real(run, "spmm_tf32", TABLE1, _sizes(run), dtype="tf32", format="csr")


def exact(run: Run | None) -> pd.DataFrame | None:
    """The same matrices in the order in which they come, in float32: what is as accurate as cuSPARSE's CSR."""
    return real(run, "spmm", EXACTLY, _sizes(run), order="", dtype="float32", format="csr")


def reordered(run: Run | None) -> pd.DataFrame | None:
    """`exact` after reverse Cuthill-McKee on every third matrix at one N: what reordering is worth."""
    wide = _sizes(run)[-1:]
    return real(run, "spmm_rcm", REORDERED, wide, every_nth=THIRD, dtype="float32", format="csr")


def half(run: Run | None) -> pd.DataFrame | None:
    """`exact` with B and C in bfloat16, and A's values rounded to it, on every second matrix."""
    sizes = _sizes(run)
    return real(run, "spmm_half", HALF, sizes, every_nth=SECOND, order="", dtype="bfloat16", format="csr")


def parts(run: Run | None) -> pd.DataFrame | None:
    """Both kernels for windows taken apart, in TF32, on every fifth matrix, reordered."""
    sizes = (PART_SIZE,) if run and run.preset == "full" else _sizes(run)
    return real(run, "wcsr_parts", PARTS, sizes, every_nth=FIFTH, dtype="tf32", format="csr")


def _sizes(run: Run | None) -> tuple[int, ...]:
    return SIZES[run.preset] if run else ()


def said() -> Mapping[str, tuple[str, str]]:
    """Kernel for a matrix in CSR -> (its idea, what was predicted of it), of those that there are."""
    offered = kernels().VARIANTS
    return {v: (offered[v].idea, offered[v].prediction) for v in contenders.ROWS if v in offered}


# ---------------------------------------------------------------- who is ahead where

#: Who multiplies in float32, or as accurately, without a choice between them.
KINDS = {
    "CUDA cores": (UNION,),
    "tensor cores, 3×TF32": (EXACT,),
    "cuSPARSE CSR": (CSR,),
}
KINDS_TF32 = {
    "windows, TF32": (WINDOWS, WCSR, WHOLE),
    "blocks, TF32": (KEPT, BELL),
    "cuSPARSE CSR": (CSR,),
}


@dataclass(frozen=True)
class Map:
    """Who is ahead at each matrix, at one N and in one kind of values."""

    values: str  #: "float32" or "TF32"
    n: int
    points: pd.DataFrame  #: of `fastest`
    groups: tuple[str, ...]


def maps(float32: pd.DataFrame | None, tf32: pd.DataFrame | None) -> list[Map]:
    """The maps that two records allow, at the widest N of each, of those kinds that were measured; a map has two."""
    made = []
    for values, df, kinds in (("float32", float32, KINDS), ("TF32", tf32, KINDS_TF32)):
        if df is None:
            continue
        n = int(df["n"].max())
        here = df[df["n"] == n]
        groups = {kind: names for kind, names in kinds.items() if here["variant"].isin(names).any()}
        if len(groups) > 1:
            made.append(Map(values, n, fastest(here, groups), tuple(groups)))
    return made


def statistics(df: pd.DataFrame) -> pd.DataFrame:
    """A record's rows with what decides: `per_row`, non-zeros a row, and `shared`, non-zeros for each column of a
    window's union, windows of 64 rows.

    Both follow from the record: the bytes that the source's kernel asks for (`requested_bytes`) count the columns of
    all windows. 1 is a matrix whose rows share no column, 64 one whose windows are dense.
    """
    m, n = df["m"].astype(float), df["n"].astype(float)
    each = -(-df["n"] // WINDOW_TILE) * (WINDOW * BYTES + 4) + n * BYTES
    columns = (df["requested_bytes"] - BYTES * m * n) / each
    return df.assign(per_row=df["nnz"] / m, shared=df["nnz"] / columns)


def fastest(df: pd.DataFrame, groups: Mapping[str, tuple[str, ...]]) -> pd.DataFrame:
    """A row for each point: its statistics, for each group the time of its fastest contender in µs (its name is the
    column), and `winner`, the group that is ahead. Points at which a group has no contender are left out.

    groups: name -> contenders. Raises ValueError where no point has all groups.
    """
    at = list(records.POINT)
    known = statistics(df).drop_duplicates(at).set_index(at)[["per_row", "shared"]]
    times = {group: df[df["variant"].isin(names)].groupby(at)["median_us"].min() for group, names in groups.items()}
    table = known.join(pd.DataFrame(times).dropna(), how="inner")
    if table.empty:
        raise ValueError(f"No point of the records has all of {', '.join(groups)}.")
    return table.assign(winner=table[list(groups)].idxmin(axis=1)).reset_index()
