"""Sentences of the second half that hold numbers, as Markdown; each says "not measured" where there are none."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from artifact.drawing.words import listed
from artifact.measure import records
from artifact.rooms.async_sparse import arithmetic, fit, tasks_of_a_warp
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
from artifact.rooms.async_sparse.figures import present, speedups
from artifact.rooms.async_sparse.prose import HERE, mean
from artifact.rooms.async_sparse.spmm import experiments, tables
from artifact.rooms.async_sparse.spmm.experiments import Map
from artifact.rooms.async_sparse.spmm.figures import called
from artifact.rooms.async_sparse.spmm.rule import leave_out, split
from kernels.async_sparse import any_csr, model, union

WIDE = experiments.WIDE
FASTER = 1.1  #: times: what heat and chance do not explain
NOTHING = f"{HERE}: real matrices need the folder that `SPARSITY_MATRICES` names."


def waits() -> str:
    """What groups of rows gain where the parts of a cut one share a block, of the same launches before and after."""
    before, after = (pd.read_csv(p, comment="#") for p in (fit.IN_ROW_ORDER, fit.EIGHT_TASKS))
    both = before.merge(after, on=["matrix", "n", "config"], suffixes=("_before", "_after"))
    gain = (both["us_before"] / both["us_after"]).groupby(both["matrix"]).max()
    gain = gain[gain > FASTER].sort_values(ascending=False)
    best = both.loc[(both["us_before"] / both["us_after"]).idxmax()]
    return (
        f"A part of a cut group adds to what the first part has stored, and waits for it. With tasks in the order of rows, a block "
        f"whose first tasks belong to the last group of the block before waits for that block's end, the next one for it, and so on: "
        f"a chain wherever heavy rows lie side by side, and similar rows do. "
        f"Parts of a group now share a block, or begin with one (`tasks.in_blocks`; the machine code is the same): some launch "
        f"gains over {FASTER - 1:.0%} on {len(gain)} of {both['matrix'].nunique()} matrices, {listed(list(gain.index[:4]))} first, and at most "
        f"{best['us_before'] / best['us_after']:.1f} times: {best['us_before']:.0f} µs became {best['us_after']:.0f} on {best['matrix']} at "
        f"N = {best['n']}."
    )


def neighbours() -> str:
    """What it is worth that a warp has as many tasks as load so many bytes of B, of launches with 1, 2, 4 and 8."""
    of = tasks_of_a_warp.ruled(tasks_of_a_warp.read())
    best, worst = of.loc[of["gain"].idxmax()], of.loc[of["gain"].idxmin()]
    return (
        f"How many tasks should a warp of `union_rows` have? With few, blocks that run side by side lie close together in A, "
        f"and rows of B that one has fetched are still in L2 when the next names them; with too few, blocks begin more often than they multiply. "
        f"What decides is how much a task loads, so a warp has as many tasks as load {union.WORK // 1024} KiB of B. Over eight, whatever they load, that is "
        f"{records.geomean(of['gain']):.2f} times as fast on average over {len(of)} launches on the {of['matrix'].nunique()} largest matrices and made ones, "
        f"{best['gain']:.2f} times on {best['matrix']}, {worst['gain']:.2f} times on {worst['matrix']} at worst. "
        f"[Beyond one GPU](distributed) tells how that came to light."
    )


def counted() -> str:
    """What DRAM's bytes say of it, on meshes of several sides."""
    of = neighbouring.read()
    many, one = (of[of["tasks"] == tasks].set_index("side") for tasks in neighbouring.TASKS)
    gain = many["ms"] / one["ms"]
    side, least = gain.idxmax(), gain.idxmin()
    before, after = (x["dram_read_bytes"] / 1e9 for x in (many, one))
    return (
        f"The counters of one launch on a mesh: with eight tasks a warp, {side}³ points read {before[side]:.0f} GB, and {least}³, "
        f"{(least / side) ** 3:.1f} times as many, {before[least]:.0f}. With one task the first read {after[side]:.0f} GB and are "
        f"multiplied {gain[side]:.2f} times as fast; the second gain {gain[least] - 1:.0%}."
    )


def neighbours_drawn(of: pd.DataFrame) -> str:
    """The finding of `figures.tasks`, in words."""
    light = of["loaded"] < of["loaded"].median()
    few, many = (records.geomean(of.loc[part, "gain_1"]) for part in (light, ~light))
    return (
        f"The more a task loads of B, the more fewer tasks a warp gain: with one instead of eight {many:.2f} times as fast above "
        f"{of['loaded'].median() / 1024:.0f} KiB, at most {of['gain_1'].max():.2f} times, {few:.2f} times below."
    )


def claimed(table1: pd.DataFrame) -> str:
    """What the source claims of WCSR."""
    over = table1[(table1["quantity"] == "wcsr_speedup") & (table1["n"] == WIDE)]
    over = over.set_index(["kernel", "density"])["low"]
    rate = arithmetic.value(table1, "tflops", kernel="WCSR", n=WIDE, density=0.01)
    return (
        f"Over 414 SuiteSparse matrices at N = {WIDE} in TF32, WCSR is {over['AccSpMM', 0]:.2f} times as fast as AccSpMM, "
        f"{over['FlashSparse', 0]:.2f} times as FlashSparse, {over['BCSR', 0]:.2f} times as the paper's own BCSR and "
        f"{over['cuSPARSE', 0]:.2f} times as cuSPARSE, by which it means Blocked-ELL. On matrices denser than 1% it reaches {rate:.2f} TFLOP/s."
    )


def finding(df: pd.DataFrame | None, table1: pd.DataFrame) -> str:
    """What of the speedup over cuSPARSE remains when cuSPARSE may use CSR: in front of everything else."""
    stated = arithmetic.value(table1, "wcsr_speedup", kernel="cuSPARSE", n=WIDE, density=0)
    asked = f"**The abstract's {stated:.2f}× over cuSPARSE is over Blocked-ELL**, which pads every row of blocks to the longest."
    if df is None or not {WCSR, CSR} <= set(df["variant"]):
        return f"{asked} What of it remains over cuSPARSE's CSR: {HERE[:1].lower()}{HERE[1:]}."
    wide = df[df["n"] == max(df["n"])]
    n = int(wide["n"].iloc[0])
    over = speedups(wide, [WCSR], CSR)["speedup"]
    bell = mean(wide, WCSR, BELL)
    there = f"WCSR is {bell:.2f}× of Blocked-ELL and " if bell is not None else "WCSR is "
    faster = (over > 1).sum()
    ahead = mean(wide, CSR, BELL)
    own = f" CSR itself is {ahead:.2f}× of Blocked-ELL." if ahead is not None else ""
    return (
        f"{asked} cuSPARSE multiplies CSR as well, in full float32. On the matrices at hand, N = {n}, {there}"
        f"**{records.geomean(over):.2f}× of the fastest of cuSPARSE's algorithms for CSR**, {over.min():.2f}× to {over.max():.2f}× by matrix, ahead on {faster} of "
        f"{len(over)}.{own} WCSR computes in TF32, CSR in float32."
    )


def parts(df: pd.DataFrame | None) -> str:
    """What cutting windows, their heights and the tasks' lengths are worth."""
    if df is None or WCSR not in set(df["variant"]):
        return f"{HERE}."
    said = []
    whole = mean(df, WCSR, WHOLE)
    if whole is not None:
        said.append(f"Cutting large windows into tasks is {whole:.2f}× of leaving them whole.")
    heights = {
        v: m
        for v in present(df, ("windows_64", "windows_32", WINDOWS, "windows_8"))
        if (m := mean(df, v, WCSR)) is not None
    }
    if heights:
        each = listed(f"{m:.2f}× with {called(v)}" for v, m in heights.items())
        said.append(f"Roles exchanged and a ring, over WCSR: {each}.")
    chunks = present(df, ("wcsr_c256", WCSR, "wcsr_c1024", "wcsr_c2048"))
    if len(chunks) > 1:
        means = {v: records.geomean(df.loc[df["variant"] == v, "tflops"]) for v in chunks}
        best = max(means, key=means.get)
        said.append(
            f"Of the lengths of a task {called(best)} is the best, {means[best] / min(means.values()):.2f}× of the worst."
        )
    return " ".join(said)


def table1(df: pd.DataFrame | None) -> str:
    """Which matrices, and what cuts across kernels in the table."""
    if df is None or WCSR not in set(df["variant"]):
        return NOTHING
    share = tables.denser(df, 0.01)["label"].nunique()
    text = (
        f"**{df['label'].nunique()} matrices**, {share} of them denser than 1%, reordered as in the source; its 414 are another set, and rates over "
        "sets differ, so ratios are what can be compared. All values are ones that TF32 holds."
    )
    if TRITON in set(df["variant"]):
        text += (
            " TorchAO's row is PyTorch's Triton kernel, and of float32 operands PyTorch forbids it TF32 and sums in float64: the tensor cores that the "
            "other rows use stand still there."
        )
    return text


def goals(float32: pd.DataFrame | None, tf32: pd.DataFrame | None) -> str:
    """How far our tuned kernels are ahead of cuSPARSE's CSR, and where they are not."""
    said = []
    for values, df, v in (("float32", float32, AUTO_FP32), ("TF32", tf32, AUTO_TF32)):
        if df is None or not {v, CSR} <= set(df["variant"]):
            said.append(f"`{v}` over cuSPARSE's CSR: {HERE[:1].lower()}{HERE[1:]}.")
            continue
        over = speedups(df, [v], CSR)
        each = listed(f"{records.geomean(part['speedup']):.2f}× at N = {n}" for n, part in over.groupby("n"))
        slow = over[over["speedup"] < 0.95]
        where = (
            f"below 0.95× at {len(slow)} of {len(over)} points, least {over['speedup'].min():.2f}×"
            f" ({over.loc[over['speedup'].idxmin(), 'label']})"
            if len(slow)
            else f"nowhere below 0.95×, least {over['speedup'].min():.2f}×"
        )
        said.append(f"`{v}` in {values} over the fastest of cuSPARSE's algorithms for CSR in FP32: {each}; {where}.")
    return " ".join(said)


def halves(df: pd.DataFrame | None) -> str:
    """What half of the bytes is worth."""
    if df is None or not {AUTO_HALF, CSR} <= set(df["variant"]):
        return f"B and C in bfloat16 halve what L2 has to deliver. What that is worth: {HERE[:1].lower()}{HERE[1:]}."
    over = speedups(df, [AUTO_HALF], CSR)
    each = listed(f"{records.geomean(part['speedup']):.2f}× at N = {n}" for n, part in over.groupby("n"))
    return (
        f"B and C in bfloat16 halve what L2 has to deliver. Over the one of cuSPARSE's algorithms for CSR that is right in bfloat16, its third, "
        f"`{AUTO_HALF}` is {each}, least {over['speedup'].min():.2f}×."
    )


def proposals() -> str:
    """How good the model's proposals are for matrices that its weights were not fitted to; see `fit`."""
    measured, said = fit.read(), []
    for accuracy, v in ((a, v) for v, a in any_csr.ACCURACIES.items()):
        found = fit.held_out(measured, accuracy, any_csr.MOST)
        first, best = ((found[column] <= 1.1).mean() for column in ("first", "regret"))
        said.append(
            f"for `{v}` the first proposal is within 10% of the best of {len(model.POOLS[accuracy])} on {first:.0%} of the points, "
            f"the best of {any_csr.MOST} on {best:.0%}"
        )
    return (
        f"Fitted without a tenth of the {len(measured.of)} matrices at a time and applied to it: {'; '.join(said)}. "
        f"So {any_csr.MOST} are tried, in {any_csr.LAUNCHES} launches; the choice is kept under the pattern's fingerprint, and the second time nothing is tried."
    )


def short_of(tf32: pd.DataFrame | None, table1: pd.DataFrame) -> str:
    """Where the source's rate on dense matrices is not reached, and why."""
    if tf32 is None or AUTO_TF32 not in set(tf32["variant"]):
        return NOTHING
    stated = arithmetic.value(table1, "tflops", kernel="WCSR", n=WIDE, density=0.01)
    here = tf32[(tf32["variant"] == AUTO_TF32) & (tf32["n"] == WIDE) & (tf32["density"] > 0.01)]
    if here.empty:  # as after `make kick`, which measures narrower
        return NOTHING
    rate = 2 * here["nnz"] * here["n"] / here["median_us"] / 1e6
    best = here.loc[rate.idxmax()]
    launch = model.weights()["union_rows_1_1_8"][0]
    return (
        f"Above 1% the source states {stated:.2f} TFLOP/s for WCSR at N = {WIDE}; `{AUTO_TF32}` reaches {records.geomean(rate):.1f} on the {len(here)} matrices "
        f"at hand, and {rate.max():.1f} on {best['label']}. Half of them have at most {here['m'].median():.0f} rows and take {here['median_us'].median():.0f} µs, "
        f"of which a launch that finds its caches cold takes {launch:.1f} µs whatever it multiplies: too little work to fill a GPU."
    )


def winners(maps: Sequence[Map]) -> str:
    """Who is ahead how often, and how good the rule of one threshold is on matrices that were left out."""
    return "\n\n".join(map(_rule, maps)) if maps else f"{HERE}."


def _rule(here: Map) -> str:
    points, groups = here.points, list(here.groups)
    count = points["winner"].value_counts()
    ahead = listed(f"{group} on {count.get(group, 0)}" for group in groups)
    text = f"In {here.values} at N = {here.n}, of {len(points)} matrices: {ahead}."
    if points["label"].nunique() < 3:
        return text
    rule, found = split(points, groups), leave_out(points, groups)
    if rule.below == rule.above:
        words = f"always {rule.above}"
    else:
        axis = {"shared": "non-zeros for each column of a window", "per_row": "non-zeros a row"}
        words = f"{rule.above} from {rule.at:.2f} {axis[rule.statistic]} on, else {rule.below}"
    return (
        f"{text} The best rule of one threshold: **{words}**. Made without a matrix and applied to it, it chooses the fastest on "
        f"{found.right:.0%} and costs {found.lost - 1:.1%} of time (at most {found.worst - 1:.0%}); always to take {found.fixed} costs {found.fixed_lost - 1:.1%}."
    )


def accuracy(float32: pd.DataFrame | None, tf32: pd.DataFrame | None) -> str:
    """Errors against float64, and what the two experiments leave out."""
    said = []
    if float32 is not None:
        each = listed(_error(float32, v) for v in present(float32, (UNION, EXACT, AUTO_FP32, CSR)))
        said.append(f"Of float32 values the relative errors are {each} (medians).")
    if tf32 is not None:
        shown = present(tf32, (WCSR, WINDOWS, KEPT, BELL, BSR, TRITON, CSR))
        each = listed(_error(tf32, v) for v in shown)
        said.append(
            f"Of values that TF32 holds they are {each}: only sums round there. Who has float32 values rounds them first, each by up to 2⁻¹¹ of it, "
            "which is in none of these errors."
        )
    return " ".join(said) if said else f"{HERE}."


def _error(df: pd.DataFrame, variant: str) -> str:
    return f"{df.loc[df['variant'] == variant, 'rel_err'].median():.1e} for {called(variant)}"


def reordering(gained: pd.DataFrame | None, conversions: pd.DataFrame | None) -> str:
    """What reverse Cuthill-McKee brings, and what it costs; gained: of `figures.gains`."""
    if gained is None:
        return f"{HERE}."
    each = listed(
        f"{called(v)} {records.geomean(part['gain']):.2f}× (helps on {(part['gain'] > 1.02).sum()}, hurts on {(part['gain'] < 0.98).sum()} of {len(part)})"
        for v, part in gained.groupby("variant", sort=False)
    )
    text = f"Reordered by reverse Cuthill-McKee over the order in which matrices come: {each}."
    if conversions is not None and len(conversions):
        text += f" It takes {conversions['rcm_ms'].median():.1f} ms on the host (median)."
    return text


def apart(found: pd.DataFrame) -> str:
    """What Voltrix reached on an H200, apart from this harness."""
    over = found[found["quantity"] == "speedup_csr"].set_index(["kernel", "n"])["low"]
    return (
        f"Voltrix was measured apart, beside cuSPARSE's CSR on matrices of its own: at N = {WIDE} it reaches {over['Voltrix', WIDE]:.2f}× of it. Acc-SpMM, FlashSparse "
        "and DTC-SpMM were not measured; what the source states of them is over Blocked-ELL."
    )


def in_short(df: pd.DataFrame | None, float32: pd.DataFrame | None, text1: pd.DataFrame) -> str:
    """The second half in two lines."""
    return "\n".join(f"- {line}" for line in (finding(df, text1), goals(float32, df)))


def windows_of(df: pd.DataFrame | None) -> str:
    """How much of what a window of 64 stores is zeros, and how that differs by matrix."""
    if df is None:
        return f"{HERE}."
    one = experiments.statistics(df).drop_duplicates("label")
    fill = one["shared"] / experiments.WINDOW
    return (
        f"Over {len(one)} real matrices, reordered, a column of a window of {experiments.WINDOW} has {one['shared'].median():.1f} non-zeros (median; "
        f"{one['shared'].min():.1f} to {one['shared'].max():.1f}): {1 - fill.median():.0%} of what the source's windows store and multiply is zeros."
    )
