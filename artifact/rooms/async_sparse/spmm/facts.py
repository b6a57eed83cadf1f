"""The facts of the second half of the chapter."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pandas as pd

from artifact.book.facts import Fact, each, spread, under
from artifact.drawing.words import listed
from artifact.measure import records
from artifact.measure.run import Run
from artifact.rooms.async_sparse import arithmetic, conversions, fit, tasks_of_a_warp
from artifact.rooms.async_sparse import neighbours as neighbouring
from artifact.rooms.async_sparse.contenders import (
    AUTO_FP32,
    AUTO_HALF,
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
from artifact.rooms.async_sparse.figures import means, present, speedups
from artifact.rooms.async_sparse.spmm import experiments, figures, tables
from artifact.rooms.async_sparse.spmm.experiments import Map
from artifact.rooms.async_sparse.spmm.figures import called
from artifact.rooms.async_sparse.spmm.rule import leave_out, split
from kernels.async_sparse import any_csr, model, union

WIDE = experiments.WIDE
FASTER = 1.1  #: times: what heat and chance do not explain
SLOW = 0.95  #: times as fast as cuSPARSE: below, a point counts as slower
NEAR = 1.1  #: times the best time: so near, a proposal is good
LENGTHS = ("wcsr_c256", WCSR, "wcsr_c1024", "wcsr_c2048")
AXES = {"shared": "non-zeros for each column of a window", "per_row": "non-zeros a row"}


def of(run: Run, table1: pd.DataFrame) -> Iterator[Fact]:
    """Yield every fact that records hold."""
    tf32, float32 = experiments.tf32(run), experiments.exact(run)
    made = conversions.conversions(run)
    yield from claimed(table1)
    yield from windows_of(tf32)
    yield from over_csr(tf32)
    yield from parts(experiments.parts(run))
    yield from apart(arithmetic.apart())
    yield from goal(AUTO_FP32, float32)
    yield from goal(AUTO_TF32, tf32)
    yield from goal(AUTO_HALF, experiments.half(run))
    yield from waits()
    yield from tasks()
    yield from mesh()
    yield from proposals()
    yield from short_of(tf32)
    yield from winners(experiments.maps(float32, tf32))
    yield from accuracy(float32, tf32)
    yield from reordering(figures.gains(float32, experiments.reordered(run)), made)


def claimed(table1: pd.DataFrame) -> Iterator[Fact]:
    """What the source states of WCSR at its widest N."""
    over = table1[(table1["quantity"] == "wcsr_speedup") & (table1["n"] == WIDE) & (table1["density"] == 0)]
    yield from each("stated.wcsr_over", over.set_index("kernel")["low"])
    yield "stated.wcsr_tflops", arithmetic.value(table1, "tflops", kernel="WCSR", n=WIDE, density=0.01)


def windows_of(df: pd.DataFrame | None) -> Iterator[Fact]:
    """How many non-zeros a column of a window has, and what share of what a window stores is zeros."""
    if df is None:
        return
    one = experiments.statistics(df).drop_duplicates("label")
    shared = one["shared"]
    yield from under("window", matrices=len(one), median=shared.median(), low=shared.min(), high=shared.max())
    yield "window.zeros", 1 - (shared / experiments.WINDOW).median()
    yield "window.denser", tables.denser(df, 0.01)["label"].nunique()


def over_csr(df: pd.DataFrame | None) -> Iterator[Fact]:
    """What of the speedup over cuSPARSE remains when cuSPARSE may use CSR."""
    if df is None or not {WCSR, CSR} <= set(df["variant"]):
        return
    wide = df[df["n"] == df["n"].max()]
    over = speedups(wide, [WCSR], CSR)["speedup"]
    yield from spread("wcsr", over)
    yield from under("wcsr", n=int(wide["n"].iloc[0]), ahead=(over > 1).sum())
    yield from each("at_widest.over_bell", means(wide, [WCSR, CSR], BELL))


def parts(df: pd.DataFrame | None) -> Iterator[Fact]:
    """What cutting windows, their heights and the tasks' lengths are worth."""
    if df is None or WCSR not in set(df["variant"]):
        return
    yield from each("cutting", means(df, [WCSR], WHOLE))
    yield from each("height", means(df, ("windows_64", "windows_32", WINDOWS, "windows_8"), WCSR))
    rates = df[df["variant"].isin(LENGTHS)].groupby("variant")["tflops"].agg(records.geomean)
    yield from under("length", best=called(rates.idxmax()), over_worst=rates.max() / rates.min())


def apart(found: pd.DataFrame) -> Iterator[Fact]:
    """What Voltrix reached, apart from this harness."""
    over = found[found["quantity"] == "speedup_csr"].set_index(["kernel", "n"])["low"]
    yield "voltrix.over_csr", over["Voltrix", WIDE]


def goal(variant: str, df: pd.DataFrame | None) -> Iterator[Fact]:
    """How far a tuned kernel of ours is ahead of cuSPARSE's CSR, and where it is not."""
    if df is None or not {variant, CSR} <= set(df["variant"]):
        return
    over = speedups(df, [variant], CSR)
    least = over.loc[over["speedup"].idxmin()]
    yield from each(f"goal.{variant}.at", {str(n): records.geomean(s) for n, s in over.groupby("n")["speedup"]})
    yield from under(f"goal.{variant}", slow=(over["speedup"] < SLOW).sum(), points=len(over))
    yield from under(f"goal.{variant}", least=least["speedup"], matrix=least["label"])


# ---------------------------------------------------------------- how kernels are chosen


def waits() -> Iterator[Fact]:
    """What groups of rows gain where the parts of a cut one share a block, of the same launches before and after."""
    before, after = (pd.read_csv(p, comment="#") for p in (fit.IN_ROW_ORDER, fit.EIGHT_TASKS))
    both = before.merge(after, on=["matrix", "n", "config"], suffixes=("_before", "_after"))
    ratio = both["us_before"] / both["us_after"]
    gain = ratio.groupby(both["matrix"]).max()
    gain = gain[gain > FASTER].sort_values(ascending=False)
    best = both.loc[ratio.idxmax()]
    yield from under("in_blocks", gaining=len(gain), matrices=both["matrix"].nunique(), first=listed(gain.index[:4]))
    yield from under("in_blocks.best", gain=ratio.max(), before=best["us_before"], after=best["us_after"])
    yield from under("in_blocks.best", matrix=best["matrix"], n=best["n"])


def tasks() -> Iterator[Fact]:
    """What it is worth that a warp has as many tasks as load so many bytes of B, of launches with 1, 2, 4 and 8."""
    df = tasks_of_a_warp.ruled(tasks_of_a_warp.read())
    best, worst = df.loc[df["gain"].idxmax()], df.loc[df["gain"].idxmin()]
    yield from under("tasks", kib=union.WORK // 1024, launches=len(df), matrices=df["matrix"].nunique())
    yield "tasks.mean", records.geomean(df["gain"])
    yield from under("tasks.best", gain=best["gain"], matrix=best["matrix"])
    yield from under("tasks.worst", gain=worst["gain"], matrix=worst["matrix"])
    middle = df["loaded"].median()
    light = df["loaded"] < middle
    yield from under("one_task", above_kib=middle / 1024, most=df["gain_1"].max())
    for name, part in (("light", light), ("heavy", ~light)):
        yield f"one_task.{name}", records.geomean(df.loc[part, "gain_1"])


def mesh() -> Iterator[Fact]:
    """What DRAM's bytes say of it, on meshes of several sides."""
    df = neighbouring.read()
    many, one = (df[df["tasks"] == count].set_index("side") for count in neighbouring.TASKS)
    gain = many["ms"] / one["ms"]
    for name, side in (("most", gain.idxmax()), ("least", gain.idxmin())):
        yield from under(f"mesh.{name}", side=side, gain=gain[side])
        for which, rows in (("many", many), ("one", one)):
            yield f"mesh.{name}.{which}_gb", rows["dram_read_bytes"][side] / 1e9
    yield "mesh.points", (gain.idxmin() / gain.idxmax()) ** 3


def proposals() -> Iterator[Fact]:
    """How good the model's proposals are for matrices that its weights were not fitted to; see `fit`."""
    measured = fit.read()
    yield from under("model", matrices=len(measured.of), tried=any_csr.MOST, launches=any_csr.LAUNCHES)
    for variant, values in any_csr.ACCURACIES.items():
        found = fit.held_out(measured, values, any_csr.MOST)
        first, best = ((found[column] <= NEAR).mean() for column in ("first", "regret"))
        yield from under(f"proposals.{variant}", pool=len(model.POOLS[values]), first=first, best=best)


def short_of(tf32: pd.DataFrame | None) -> Iterator[Fact]:
    """How far our kernel gets on dense matrices, and how little work they are."""
    if tf32 is None:
        return
    here = tf32[(tf32["variant"] == AUTO_TF32) & (tf32["n"] == WIDE) & (tf32["density"] > 0.01)]
    if here.empty:  # as after `make kick`, which measures narrower
        return
    rate = 2 * here["nnz"] * here["n"] / here["median_us"] / 1e6
    yield from under("dense_ones", matrices=len(here), rows=here["m"].median(), us=here["median_us"].median())
    yield from under("dense_ones", mean=records.geomean(rate), most=rate.max(), best=here.loc[rate.idxmax(), "label"])
    yield "launch.us", model.weights()["union_rows_1_1_8"][0]


# ---------------------------------------------------------------- who is ahead where


def winners(maps: Sequence[Map]) -> Iterator[Fact]:
    """Who is ahead how often, and how good the rule of one threshold is on matrices that were left out."""
    for here in maps:
        name, points, groups = f"ahead.{here.values}", here.points, list(here.groups)
        yield from under(name, n=here.n, matrices=len(points))
        yield from each(f"{name}.on", points["winner"].value_counts().reindex(groups, fill_value=0))
        if points["label"].nunique() >= 3:
            rule, found = split(points, groups), leave_out(points, groups)
            name = f"rule.{here.values}"
            yield from under(name, above=rule.above, below=rule.below, at=rule.at, axis=AXES[rule.statistic])
            yield from under(name, right=found.right, lost=found.lost - 1, worst=found.worst - 1)
            yield from under(name, fixed=found.fixed, fixed_lost=found.fixed_lost - 1)


def accuracy(float32: pd.DataFrame | None, tf32: pd.DataFrame | None) -> Iterator[Fact]:
    """Median relative errors against float64: error.VALUES.VARIANT."""
    shown = {
        "float32": (float32, (UNION, EXACT, AUTO_FP32, CSR)),
        "tf32": (tf32, (WCSR, WINDOWS, KEPT, BELL, BSR, TRITON, CSR)),
    }
    for name, (df, variants) in shown.items():
        if df is not None:
            of_variant = df.groupby("variant")["rel_err"].median()
            yield from each(f"error.{name}", {called(v): of_variant[v] for v in present(df, variants)})


def reordering(gained: pd.DataFrame | None, made: pd.DataFrame | None) -> Iterator[Fact]:
    """What reverse Cuthill-McKee brings, and what it costs; gained: of `figures.gains`."""
    if gained is not None:
        for v, gain in gained.groupby("variant", sort=False)["gain"]:
            yield from under(f"reordered.{v}", mean=records.geomean(gain), matrices=len(gain))
            yield from under(f"reordered.{v}", helps=(gain > 1.02).sum(), hurts=(gain < 0.98).sum())
    if made is not None:
        yield "reordering.ms", made["rcm_ms"].median()
