"""Tables of the second half: a function each, records in, a DataFrame of cells out; None where nothing was measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from artifact.drawing import plot, prose
from artifact.drawing.prose import captioned
from artifact.drawing.words import listed, times
from artifact.measure import records
from artifact.rooms.async_sparse import in_order, neighbours, plans
from artifact.rooms.async_sparse.contenders import (
    AUTO_FP32,
    AUTO_TF32,
    BELL,
    BSR,
    CSR,
    EXACT,
    KEPT,
    TRITON,
    UNION,
    WCSR,
    WHOLE,
    WINDOWS,
)
from artifact.rooms.async_sparse.figures import present, speedups
from artifact.rooms.async_sparse.spmm.figures import ROWS, SHOWN, called

NONE = "–"
DENSITIES = (0, 0.001, 0.005, 0.01)  #: Table I's: matrices that are denser than each
#: Of a table in TF32: who computes otherwise.
OTHERWISE = {CSR: ", in FP32", TRITON: ", summed in FP64"}
#: Preprocessing is compared of these, in either record.
PREPARED = (WCSR, WINDOWS, AUTO_TF32, UNION, EXACT, AUTO_FP32)


@captioned("Kernels for a matrix in CSR: idea, prediction, and what came over cuSPARSE's CSR.")
def kernels(
    said: Mapping[str, tuple[str, str]], float32: pd.DataFrame | None, tf32: pd.DataFrame | None
) -> pd.DataFrame:
    """Every kernel for a matrix in CSR: idea, prediction, and what came of it over cuSPARSE's CSR, in TF32 and in
    float32 apart. said: of `experiments.said`."""
    return pd.DataFrame(
        {
            "kernel": f"<code>{v}</code>",
            "idea": prose.inline_code(idea),
            "predicted": prose.inline_code(times(prediction)) or NONE,
            "TF32, over CSR in FP32": _times(_mean(tf32, v)),
            "FP32, over CSR in FP32": _times(_mean(float32, v)),
        }
        for v, (idea, prediction) in said.items()
    )


def _mean(df: pd.DataFrame | None, variant: str, baseline: str = CSR) -> float | None:
    if df is None or not {variant, baseline} <= set(df["variant"]):
        return None
    return records.geomean(speedups(df, [variant], baseline)["speedup"])


def denser(df: pd.DataFrame, than: float) -> pd.DataFrame:
    """The rows of matrices that are denser than this share of non-zeros."""
    return df[df["nnz"] / (df["m"].astype(float) * df["k"]) > than]


@captioned(
    lambda df, stated, n: (
        f"The paper's Table I at N = {n}: TFLOP/s in TF32 over matrices denser than a share, here and below it as "
        "stated; in brackets, how many times as fast WCSR is."
    )
)
def table1(df: pd.DataFrame | None, stated: pd.DataFrame, n: int) -> pd.DataFrame:
    """Table I at one N: geometric-mean TFLOP/s in TF32 over the matrices denser than a share, here and below it as
    stated, and in brackets the speedup of WCSR over that kernel."""
    said = stated[stated["n"] == n].set_index(["quantity", "kernel", "density"])["low"]
    here = df[df["n"] == n] if df is not None else None
    names = {ours: row for row, ours in ROWS.items()}
    measured = present(here, SHOWN) if here is not None else []
    others = [k for k in dict.fromkeys(stated["kernel"]) if ROWS.get(k) not in measured]
    rows = []
    for shown, variant, row in [
        *((called(v) + OTHERWISE.get(v, ""), v, names.get(v)) for v in measured),
        *((k, None, k) for k in others),
    ]:
        ours = [_here(denser(here, d), variant) or NONE if variant else "" for d in DENSITIES]
        theirs = [_stated(said, row, d) for d in DENSITIES]
        said_too = ("<br>" if variant else " ") + "<small>stated</small>" if any(theirs) else ""
        cells = {"kernel": shown + said_too}
        for d, *both in zip(DENSITIES, ours, theirs, strict=True):
            cells[_over(d)] = "<br>".join(filter(None, both)) or NONE
        rows.append(cells)
    return pd.DataFrame(rows)


def _over(density: float) -> str:
    return f"> {plot.percent(density)}" if density else "all"


def _here(df: pd.DataFrame, variant: str) -> str:
    own = df.loc[df["variant"] == variant, "tflops"]
    return _cell(records.geomean(own), _mean(df, WCSR, variant)) if len(own) else ""


def _stated(said: pd.Series, row: str | None, density: float) -> str:
    rate = said.get(("tflops", row, density)) if row else None
    over = said.get(("wcsr_speedup", row, density))
    return "" if rate is None else f"<small>{_cell(rate, over)}</small>"


def _cell(rate: float, over: float | None) -> str:
    return f"{rate:.2f}" + (f" ({over:.2f}×)" if over is not None else "")


@captioned("How many matrices stand behind each row of Table I.")
def matrices(df: pd.DataFrame | None) -> pd.DataFrame | None:
    """How many matrices stand behind each threshold of Table I, and behind Blocked-ELL, which not all fit."""
    if df is None:
        return None
    rows = []
    for d in DENSITIES:
        part = denser(df, d)
        rows.append(
            {"density": _over(d), "matrices": part["label"].nunique()}
            | {
                f"with {called(v)}": part.loc[part["variant"] == v, "label"].nunique()
                for v in (BELL, TRITON, BSR)
                if v in set(df["variant"])
            }
        )
    return pd.DataFrame(rows)


@captioned(
    lambda df, variants, baseline=CSR, values="FP32": (
        f"{listed(called(v) for v in variants)} over {called(baseline)} in {values}, matrix by matrix."
    )
)
def bars(
    df: pd.DataFrame | None, variants: Sequence[str], baseline: str = CSR, values: str = "FP32"
) -> pd.DataFrame | None:
    """Each contender over a baseline, matrix by matrix, at each N: geometric mean, least, and how often slower.

    values: that the baseline multiplies."""
    if df is None or baseline not in set(df["variant"]) or not present(df, variants):
        return None
    data = speedups(df, present(df, variants), baseline)
    rows = []
    for (variant, n), part in data.groupby(["variant", "n"], sort=False):
        s = part["speedup"]
        least = part.loc[s.idxmin()]
        rows.append(
            {
                "kernel": called(variant),
                "N": plot.number(n),
                f"over {called(baseline)} in {values}": _times(records.geomean(s)),
                "least": f"{_times(s.min())}<br><small>{least['label']}</small>",
                "most": _times(s.max()),
                "below 0.95×": f"{(s < 0.95).sum()} of {len(s)}",
            }
        )
    return pd.DataFrame(rows)


# ---------------------------------------------------------------- preparing


def multiplications(df: pd.DataFrame, variant: str, baseline: str = CSR) -> pd.DataFrame:
    """label, n, ms and count: what a contender's preparation costs beyond the baseline's, and after how many
    multiplications it has paid for that; infinite where it is not faster, 0 where it is and costs no more."""
    at = list(records.POINT)
    ours, theirs = (df[df["variant"] == v].set_index(at)[["median_us", "prepare_ms"]] for v in (variant, baseline))
    both = ours.join(theirs.add_suffix("_base"), how="inner")
    saved = (both["median_us_base"] - both["median_us"]) / 1e3
    cost = (both["prepare_ms"] - both["prepare_ms_base"]).clip(lower=0)
    with np.errstate(divide="ignore"):
        count = np.where(saved > 0, cost / saved.where(saved > 0, np.nan), np.inf)
    return pd.DataFrame({"ms": both["prepare_ms"], "count": count}).reset_index()


@captioned("After how many multiplications preparing a matrix has paid, over cuSPARSE's CSR.")
def pays_off(float32: pd.DataFrame | None, tf32: pd.DataFrame | None) -> pd.DataFrame | None:
    """After how many multiplications preparing a matrix has paid, over cuSPARSE's CSR with its own preparation: the
    median of the matrices on which it does, and on how many it never does, by N."""
    rows = []
    for values, df in (("TF32", tf32), ("float32", float32)):
        if df is None or CSR not in set(df["variant"]):
            continue
        for v in present(df, PREPARED):
            found = multiplications(df, v)
            row = {"kernel": called(v), "values": values}
            row["preparing [ms], median"] = f"{found['ms'].median():.2f}"
            for n, part in found.groupby("n"):
                often = part.loc[part["count"] < np.inf, "count"]
                never = len(part) - len(often)
                row[f"N = {n}"] = _count(often.median()) + (
                    f"<br><small>{never} of {len(part)} never</small>" * (never > 0)
                )
            rows.append(row)
    return pd.DataFrame(rows).fillna(NONE) if rows else None


def _count(value: float) -> str:
    return NONE if np.isnan(value) else f"{np.ceil(value):,.0f}"


def costs(float32: pd.DataFrame | None, tf32: pd.DataFrame | None) -> tuple[pd.DataFrame | None, ...]:
    """What preparing costs by the records; what a plan does, and one order of additions, by what was measured apart."""
    return pays_off(float32, tf32), plans.table(), in_order.table()


# ---------------------------------------------------------------- measured apart


@captioned("What was measured apart, over cuSPARSE's CSR of the same run.")
def apart(found: pd.DataFrame) -> pd.DataFrame:
    """What was measured apart, over cuSPARSE's CSR of the same run."""
    over = found[found["quantity"] == "speedup_csr"]
    rows = []
    for kernel, part in over.groupby("kernel", sort=False):
        row = {"kernel": kernel, "matrices": int(part["matrices"].iloc[0])}
        rows.append(row | {f"N = {n}": _times(x) for n, x in zip(part["n"], part["low"], strict=True)})
    return pd.DataFrame(rows)


@captioned("Relative errors against float64.")
def errors(float32: pd.DataFrame | None, tf32: pd.DataFrame | None) -> pd.DataFrame | None:
    """The relative error of every contender against float64, and its largest, with what the values were."""
    rows = []
    shown = (*SHOWN, WHOLE, KEPT, UNION, EXACT, AUTO_FP32)
    for values, df in (("TF32", tf32), ("float32", float32)):
        for v in present(df, dict.fromkeys(shown)) if df is not None else ():
            own = df.loc[df["variant"] == v, ["rel_err", "max_err"]]
            rows.append(
                {"contender": called(v), "values": values}
                | {"relative error, median": f"{own['rel_err'].median():.1e}"}
                | {"most": f"{own['rel_err'].max():.1e}"}
                | {"of an element, most": f"{own['max_err'].max():.1e}"}
            )
    return pd.DataFrame(rows) if rows else None


def _times(value: float | None) -> str:
    return NONE if value is None or value != value else f"{value:.2f}×"


@captioned("Counters of one launch with eight tasks a warp and with one, on meshes of several sides.")
def counted() -> pd.DataFrame:
    """What `neighbours.csv` beside the room has: time, DRAM's bytes, hits in L2."""
    return pd.DataFrame(
        {
            "mesh": f"{row.side}³",
            "tasks of a warp": row.tasks,
            "ms": f"{row.ms:.2f}",
            "read from DRAM, GB": f"{row.dram_read_bytes / 1e9:.1f}",
            "of B": f"{row.dram_read_bytes / (4 * row.n * row.side**3):.1f}×",
            "hits in L2": f"{row.l2_hit:.0%}",
        }
        for row in neighbours.read().itertuples()
    )
