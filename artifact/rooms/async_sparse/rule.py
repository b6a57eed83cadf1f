"""Who is ahead at each matrix, and the rule that such a map suggests: how good it is on matrices that it has not
seen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from artifact.book.study import given, where
from artifact.measure import records
from artifact.rooms.async_sparse.arithmetic import SIZES
from artifact.rooms.async_sparse.contenders import BELL, CSR, EXACT, KEPT, UNION, WCSR, WHOLE, WINDOWS
from kernels.async_sparse.operands import WINDOW, WINDOW_TILE

#: Values -> who multiplies in them, or as accurately, without a choice between them.
KINDS: Mapping[str, Mapping[str, Sequence[str]]] = {
    "float32": {"CUDA cores": (UNION,), "tensor cores, 3×TF32": (EXACT,), "cuSPARSE CSR": (CSR,)},
    "TF32": {"windows, TF32": (WINDOWS, WCSR, WHOLE), "blocks, TF32": (KEPT, BELL), "cuSPARSE CSR": (CSR,)},
}
#: Column of `statistics` -> how a sentence calls it.
STATISTICS = {"shared": "non-zeros for each column of a window", "per_row": "non-zeros a row"}


@given
def maps(float32: pd.DataFrame, tf32: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Return the maps that two records allow, values -> `fastest`, at the widest N of each, of those `KINDS` that were
    measured; a map has two."""
    here = {values: where(df, n=df["n"].max()) for values, df in {"float32": float32, "TF32": tf32}.items()}
    groups = {
        values: {kind: names for kind, names in KINDS[values].items() if df["variant"].isin(names).any()}
        for values, df in here.items()
    }
    return {values: fastest(df, groups[values]) for values, df in here.items() if len(groups[values]) > 1}


def statistics(df: pd.DataFrame) -> pd.DataFrame:
    """Return a record's rows with what decides: `per_row`, non-zeros a row, and `shared`, non-zeros for each column of
    a window's union, windows of 64 rows.

    Both follow from the record: the bytes that the source's kernel asks for (`requested_bytes`) count the columns of
    all windows. 1 is a matrix whose rows share no column, 64 one whose windows are dense.
    """
    m, n, size = df["m"].astype(float), df["n"].astype(float), SIZES["tf32"]
    each = -(-df["n"] // WINDOW_TILE) * (WINDOW * size + 4) + n * size
    columns = (df["requested_bytes"] - size * m * n) / each
    return df.assign(per_row=df["nnz"] / m, shared=df["nnz"] / columns)


def fastest(df: pd.DataFrame, groups: Mapping[str, Sequence[str]]) -> pd.DataFrame:
    """Return a row for each point that all groups have: its statistics, for each group the time of its fastest
    contender in µs (its name is the column), and `winner`, the group that is ahead, one of the categories. groups: name
    -> contenders."""
    at = list(records.POINT)
    known = statistics(df).drop_duplicates(at).set_index(at)[["per_row", "shared"]]
    times = {kind: where(df, variant=names).groupby(at)["median_us"].min() for kind, names in groups.items()}
    table = known.join(pd.DataFrame(times).dropna(), how="inner")
    winner = pd.Categorical(table[list(groups)].idxmin(axis=1), list(groups))
    return table.assign(winner=winner).reset_index()


def split(points: pd.DataFrame) -> dict[str, Any]:
    """Return the split of one statistic that loses the least time: choose `below` where `statistic` is less than `at`,
    `above` elsewhere. points: two or more, of `fastest`."""
    groups = list(points["winner"].cat.categories)
    logs = np.log(points[groups].to_numpy(float))
    one = groups[logs.sum(axis=0).argmin()]
    best, found = np.inf, ("shared", 0.0, one, one)
    for statistic in STATISTICS:
        order = np.argsort(points[statistic].to_numpy(float), kind="stable")
        x, before = points[statistic].to_numpy(float)[order], np.cumsum(logs[order], axis=0)
        after = before[-1] - before
        lost = before.min(axis=1) + after.min(axis=1)
        for i in np.flatnonzero(np.diff(x)):
            if lost[i] < best:
                best, at = lost[i], float(np.sqrt(x[i] * x[i + 1]))
                found = statistic, at, groups[before[i].argmin()], groups[after[i].argmin()]
    statistic, at, below, above = found
    return {"statistic": statistic, "axis": STATISTICS[statistic], "at": at, "below": below, "above": above}


def leave_out(points: pd.DataFrame) -> dict[str, float | str]:
    """Make the rule without each matrix in turn, all of its N, and apply it there; points: of three matrices or more.

    Returns right: the share of points at which it chose the fastest; lost and worst: the time that its choices lose,
    as a share of the fastest's, the geometric mean and the most; fixed: who is the best without a choice, and
    fixed_lost, what that loses.
    """
    groups = list(points["winner"].cat.categories)
    chosen = pd.Series("", points.index)
    for label, rows in points.groupby("label"):
        rule = split(points[points["label"] != label])
        chosen[rows.index] = np.where(rows[rule["statistic"]] < rule["at"], rule["below"], rule["above"])
    best = points[groups].min(axis=1)
    lost = pd.Series([points.at[i, kind] for i, kind in chosen.items()], points.index) / best
    one = np.log(points[groups]).mean().idxmin()
    return {
        "right": (chosen == points["winner"]).mean(),
        **{"lost": records.geomean(lost) - 1, "worst": lost.max() - 1},
        **{"fixed": one, "fixed_lost": records.geomean(points[one] / best) - 1},
    }
