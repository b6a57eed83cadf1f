"""The chapter's facts, by the part of it that they stand in; those of the whole model, a page of its own, are in
`prefill.facts`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from itertools import chain
from typing import Any

import numpy as np
import pandas as pd

from artifact.book.facts import Fact, part, summary
from artifact.book.study import Counters, Study, given, ratio, where
from artifact.drawing.compiled import HOPPER
from artifact.drawing.words import listed
from artifact.measure import apart, records
from artifact.measure.run import Run
from artifact.rooms.async_sparse import arithmetic, contenders, experiments, fit, plans, rule, tasks_of_a_warp
from artifact.rooms.async_sparse.arithmetic import CONSUMERS, N, break_even, means, present, side, speedups, value
from artifact.rooms.async_sparse.contenders import (
    AUTO_FP32,
    AUTO_HALF,
    AUTO_TF32,
    BELL,
    BRANCHES,
    BSR,
    CSR,
    DENSE,
    EXACT,
    KEPT,
    LADDER,
    STEPS,
    TILES,
    TORCH,
    TRITON,
    TUNED,
    UNION,
    WCSR,
    WHOLE,
    WINDOWS,
    called,
    told,
)
from artifact.rooms.async_sparse.prefill import facts as prefill
from kernels.async_sparse import any_csr, model, union
from kernels.async_sparse.operands import WINDOW

#: The steps that the source adds up to most of the gain.
THREE = ["opt1", "opt2", "opt3"]
RIVALS = (KEPT, TRITON, TUNED, TORCH)  #: what our last rung is held against
FASTER = 1.1  #: times: what heat and chance do not explain
SLOW = 0.95  #: times as fast as cuSPARSE: below, a point counts as slower
NEAR = 1.1  #: times the best time: so near, a proposal is good
Facts = Mapping[str, Any]

#: Counter -> column of `profile`.
COUNTED = {
    "gpu__time_duration.sum": "ns",
    "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed": "the tensor pipe",
    "lts__throughput.avg.pct_of_peak_sustained_elapsed": "L2",
    "dram__throughput.avg.pct_of_peak_sustained_elapsed": "DRAM",
    "lts__t_bytes.sum": "bytes",
    "sm__cycles_active.avg": "cycles",
    "sm__cycles_active.max": "most_cycles",
}
UNITS = ["the tensor pipe", "L2", "DRAM"]  #: what may be busy
STALLED = (
    r"^smsp__average_warps_issue_stalled_(?!selected)(\w+)_per_issue_active\.ratio$"  #: one that issues does not wait
)


def of(run: Run) -> Iterator[Fact]:
    """Yield every fact that records hold."""
    study, get = Study(run), partial(experiments.get, run)
    table1, table2, table3, text = map(arithmetic.stated, ("table1", "table2", "table3", "text"))
    df, layer, ladder, tf32, float32 = map(get, ("ablation", "gate_proj", "ladder", "spmm_tf32", "spmm"))
    return chain(
        claimed(table1, table2, table3, text),
        own_arithmetic(table1, table2, table3, text),
        formats(experiments.conversions(run)),
        traced(experiments.trace(run)),
        matrices(df),
        ablation(df, table2),
        left_out(run, "ablation", df),
        counted(profile(study.counters), study),
        tiles(get("tile_n")),
        gate(layer),
        ours(ladder, both_layouts(layer, ladder)),
        blocks(get("blocks")),
        left_out(run, "spmm_tf32", tf32),
        windows_of(tf32),
        over_csr(tf32),
        parts(get("wcsr_parts")),
        voltrix(arithmetic.apart()),
        goal(AUTO_FP32, float32),
        goal(AUTO_TF32, tf32),
        goal(AUTO_HALF, get("spmm_half")),
        waits(),
        tasks(),
        mesh(),
        proposals(),
        short_of(tf32),
        winners(rule.maps(float32, tf32)),
        accuracy("float32", float32),
        accuracy("tf32", tf32),
        reordered(gains(float32, get("spmm_rcm"))),
        prefill.of(run, text),
    )


def over(df: pd.DataFrame, variant: str, baselines: Iterable[str]) -> Facts:
    """Return the geometric-mean speedup of a contender over each of these."""
    return {base: means(df, [variant], base).get(variant) for base in baselines}


def first(df: pd.DataFrame) -> Facts:
    """Return the first row of a table as facts; none of an empty one."""
    return dict(*df.head(1).to_dict("records"))


# ---------------------------------------------------------------- the source, by its own numbers


@part
def claimed(table1: pd.DataFrame, table2: pd.DataFrame, table3: pd.DataFrame, text: pd.DataFrame) -> Facts:
    """What the source states of BCSR, and of WCSR at its widest N; told.VARIANT: how a sentence calls a contender."""
    over = where(table1, quantity="wcsr_speedup", n=N, density=0).set_index("kernel")["low"]
    layer = where(table3, quantity="speedup_range").itertuples()
    matrices = table2.drop_duplicates("variant").set_index("variant")["matrices"]
    return {
        "told": {v: told(v) for v in (*contenders.NAMES, *contenders.CSR_ALGORITHMS)},
        "stated.over_bell": arithmetic.over_bell(table2),
        "stated.gain": {v: value(text, "gain", variant=v) for v in ("opt1", "opt2", "opt3", "opt4", "opt6", "opt7")},
        "stated.share_of_gain": value(text, "share_of_gain"),
        "stated.layer": {round(100 * (1 - row.density)): {"low": row.low, "high": row.high} for row in layer},
        "stated.matrices": {v: int(matrices[v]) for v in (KEPT, "opt7")},
        "stated.wcsr_over": over,
        "stated.wcsr_tflops": value(table1, "tflops", kernel="WCSR", n=N, density=0.01),
    }


@part
def own_arithmetic(table1: pd.DataFrame, table2: pd.DataFrame, table3: pd.DataFrame, text: pd.DataFrame) -> Facts:
    """What the source's numbers say of each other."""
    implied = arithmetic.implied(table2)
    ladder = implied[[*THREE, "opt4", KEPT, "opt6"]]
    steps = arithmetic.shares(arithmetic.over_bell(table2))
    registers, stage = arithmetic.WARPGROUP * sum(arithmetic.REGISTERS), arithmetic.STAGE
    in_stage, wide = sum(stage.values()), arithmetic.padded(248)
    # TFLOP/s of BCSR by the share of blocks, as section IV defines them.
    latency = where(table3, quantity="latency", variant=KEPT, n=65536).set_index("density")["low"].sort_index()
    rates = 2.0 * 18944 * 3584 * 65536 * latency.index / latency / 1e9
    few = rates.index[0]
    df = arithmetic.recomputed(table1)
    row, off = where(df, kernel="cuSPARSE", n=N, density=0).iloc[0], df[~df["agrees"]]
    both = {v: value(text, "end_to_end", variant=v, size=65536) for v in (KEPT, "minference", "both")}
    return {
        "implied": {"low": ladder.min(), "high": ladder.max(), "torchao": implied[TRITON]},
        "implied.row": value(table2, "tflops", variant=BELL, matrices=414),
        "stated.share": {"difference": steps["by difference"], "factor": steps["by factor"]},
        "block": {
            **{"registers": registers, "stage_kib": in_stage // 1024},
            "by_registers": arithmetic.SM_REGISTERS // registers,
            "by_shared": arithmetic.SM_SHARED // (arithmetic.STAGES * in_stage + arithmetic.RESERVED),
        },
        "sm.registers": arithmetic.SM_REGISTERS,
        "stage": {"a_kib": stage["A"] // 1024, "b_kib": stage["B"] // 1024},
        "multicast.saves": 1 - (stage["A"] / 2 + stage["B"]) / in_stage,  # A read once for two blocks
        "stated.tflops.fig7": value(text, "tflops", variant="opt5_n256"),
        "stated.tflops.table2": value(table2, "tflops", variant=KEPT),
        "waste": {"padded": wide, "extra": wide / N - 1, "wasted": 1 - N / wide},
        "stated.useful": {"most": rates.iloc[-1], "least": rates.iloc[0], "density": few},
        "stated.useful.time": 1 / value(table3, "speedup_cublas", n=65536, density=few),
        "headline": {"stated": row["stated"], "ratio": row["ratio"], "speedups": len(df), "off": len(off)},
        "headline.over": listed(dict.fromkeys(off["kernel"])),
        "stated.end_to_end": both,
        # Of savings in disjoint parts of one run time.
        "stated.end_to_end.together": 1 / (1 / both[KEPT] + 1 / both["minference"] - 1),
    }


@part
def compiled(report: pd.DataFrame, text: pd.DataFrame) -> Facts:
    """Of the compile report: registers that TMA frees and that are moved."""
    here = where(report, target=HOPPER)
    most = here.groupby("variant")["registers"].max().astype(int)
    stated = where(text, quantity="registers_freed").iloc[0]
    threads = (1 + CONSUMERS) * arithmetic.WARPGROUP
    return {
        "compiled.spilling": listed(dict.fromkeys(here.loc[here["spills"].astype(bool), "variant"])),
        "registers": most[THREE],
        "freed": {"here": most["opt1"] - most["opt2"], "low": stated["low"], "high": stated["high"]},
        "sm.registers": arithmetic.SM_REGISTERS,
        "start": {"threads": threads, "registers": threads * most["opt3"]},
    }


# ---------------------------------------------------------------- real matrices


@part
def formats(df: pd.DataFrame) -> Facts:
    """What `experiments.conversions` measured: medians."""
    middle = df.filter(regex="_ms$|_fill$|_fill_rcm$").median()
    return {"format": middle, "format.matrices": len(df)}


@part
def matrices(df: pd.DataFrame) -> Facts:
    """How large the matrices are."""
    one = df.drop_duplicates("label")
    share = one["nnz"] / (one["m"].astype(float) * one["k"])
    return {
        "real": {"matrices": len(one), "bell": where(df, variant=BELL)["label"].nunique()},
        "real.nnz": {"low": one["nnz"].min(), "high": one["nnz"].max()},
        "real.share": {"low": share.min(), "high": share.max()},
    }


@part
def ablation(df: pd.DataFrame, table2: pd.DataFrame) -> Facts:
    """What each step, each branch and each library is worth, beside what is stated."""
    over_bell, branches = means(df, STEPS, BELL), means(df, BRANCHES, KEPT)
    shares = {"here": arithmetic.shares(over_bell), "stated": arithmetic.shares(arithmetic.over_bell(table2))}
    here, ahead = shares["here"], ratio(df, CSR, KEPT, list(records.POINT)) > 1
    hows = ("difference", "factor")
    return {
        "over_bell": over_bell,
        "step": {v: {who: steps["factor"][v] for who, steps in shares.items()} for v in here.index},
        "share": {how: here[f"by {how}"] for how in hows},
        "share.three": {who: steps["by difference"].reindex(THREE).sum() for who, steps in shares.items()},
        "share.largest": {how: told(v) for how in hows for v in here[f"by {how}"].nlargest(1).index},
        "branch": branches,
        "branches.best": branches.max(),
        "kept_over": over(df, KEPT, (BELL, BSR, CSR, TRITON)),
        "csr": {"ahead": ahead.sum(), "matrices": len(ahead)},
    }


@part
def left_out(run: Run, experiment: str, df: pd.DataFrame) -> Facts:
    """Who has no number at how many matrices, and the first reason."""
    absent = sorted(records.read_absent(run.folder).get(experiment, {}).items())
    rows = pd.DataFrame([(*key[:2], why) for key, why in absent], columns=["who", "matrix", "why"])
    rows = rows.drop_duplicates(["who", "matrix"], keep="last")
    return {
        f"left_out.{experiment}": {"contenders": rows["who"].nunique(), "matrices": df["label"].nunique()},
        f"left_out.{experiment}.on": rows.groupby("who").size(),
        f"left_out.{experiment}.first": first(rows.assign(who=rows["who"].map(told))),
    }


# ---------------------------------------------------------------- counters and clocks


def profile(counters: Counters) -> pd.DataFrame | None:
    """Return what was counted at the point of the ladder, by contender, those of the ladder in its order first; None
    where nothing was counted.

    The columns of `COUNTED`, and of them gbps, what passes L2's slices, reads and writes; balance, the mean over SMs of
    the cycles in which one works over those of the busiest; reason, why most warps that did not issue waited, and
    waiting, how many did for each instruction."""
    if not counters:
        return None
    df = counters.wide(COUNTED).set_index("variant").reindex(columns=list(COUNTED.values()))
    rows = counters.rows.assign(reason=counters.rows["metric"].str.extract(STALLED, expand=False))
    worst = rows.dropna(subset="reason").sort_values("value").groupby("variant").last()
    order = dict.fromkeys([*present(df.reset_index(), LADDER), *df.index])
    rates = {"gbps": df["bytes"] / df["ns"], "balance": df["cycles"] / df["most_cycles"]}
    return df.assign(**rates, reason=worst["reason"], waiting=worst["value"]).loc[list(order)]


@part
def counted(df: pd.DataFrame, study: Study) -> Facts:
    """Why each step is faster, by the profile of gate_proj, and how near our last rung is to what L2 can move."""
    steps = df[df.index.isin(STEPS)]
    known = df.reindex([KEPT])[UNITS].iloc[0].dropna().nlargest(1)  # the busiest unit
    reasons, moved = steps.groupby("reason", sort=False), df["gbps"].get("auto", np.nan)
    return {
        "busy": steps["the tensor pipe"],
        "waits": {reason: listed(rows.index) for reason, rows in reasons},
        "busiest": first(known.rename_axis("unit").reset_index(name="share")),
        "l2": {"tbps": moved / 1e3, "share": moved / study.ceiling("l2_read", "gbps")},
    }


@part
def traced(frame: pd.DataFrame) -> Facts:
    """The share of the time in which a thread block multiplies that it also loads, its thread blocks together: 0 where
    the two take turns."""
    return {"overlap": {variant: overlap(rows) for variant, rows in frame.groupby("variant", sort=False)}}


def overlap(frame: pd.DataFrame) -> float:
    """Return the share of the time in which thread blocks of a kernel multiply that they also load."""
    both = whole = 0.0
    for _, block in frame.groupby("block"):
        loads, products = (union_of(where(block, role=role)) for role in ("load", "multiply"))
        whole += sum(end - begin for begin, end in products)
        both += sum(max(0.0, min(a[1], b[1]) - max(a[0], b[0])) for a in loads for b in products)
    return both / whole if whole else np.nan


def union_of(rows: pd.DataFrame) -> list[tuple[float, float]]:
    """Return the intervals that lie apart, of those of the rows."""
    rows = rows.sort_values(["begin_ns", "end_ns"])
    apart = rows["begin_ns"] > rows["end_ns"].cummax().shift()
    of = rows.groupby(apart.cumsum())
    return list(zip(of["begin_ns"].min(), of["end_ns"].max(), strict=True))


# ---------------------------------------------------------------- tiles and layers


@part
def tiles(df: pd.DataFrame) -> Facts:
    """The best width, and what the source's rule costs or gains."""
    rule = f"opt5_n{arithmetic.RULE}"
    rates = df.groupby("variant")["tflops"].agg(records.geomean)
    each = df.pivot_table(index="label", columns="variant", values="tflops")
    return {
        "tile": {
            **{"rule": arithmetic.RULE, "n": N, "best": TILES[rates.idxmax()]},
            "best_over_rule": rates.max() / rates[rule],
            "own_over_rule": records.geomean((each.max(axis=1) / each[rule]).dropna()),
            "widths": each.idxmax(axis=1).nunique(),
        }
    }


@part
def gate(df: pd.DataFrame) -> Facts:
    """Speedups over dense cuBLAS on gate_proj, and from which sparsity on there are any."""
    found = speedups(df, (KEPT, TRITON, TUNED, "auto"), TORCH)
    kept = where(found, variant=KEPT).groupby("density", sort=False)["speedup"]
    each = found.groupby("variant", sort=False)
    lines = {v: rows.groupby("density")["speedup"].agg(records.geomean) for v, rows in each}
    even = (1 - pd.Series({v: break_even(line) for v, line in lines.items()}, dtype=float)).dropna()
    return {
        "gate": {round(100 * (1 - density)): {"low": s.min(), "high": s.max()} for density, s in kept},
        "dense": means(df, [DENSE], TORCH),
        "pays.densest": {v: line.iloc[-1] for v, line in lines.items()},
        "pays.sparsity": 1 - found["density"].max(),
        "pays.crossing": len(even),
        "pays.even": even,
        "auto_layer": summary(where(found, variant="auto")["speedup"]),
        "auto_layer.over": over(df, "auto", RIVALS),
    }


@given
def both_layouts(linear: pd.DataFrame, source: pd.DataFrame) -> pd.DataFrame:
    """Return the time with C in the order that a linear layer wants over that with C row-major, as the source writes
    it, at the points of both records of gate_proj."""
    at = ["variant", "m", "n", "k", "density"]
    both = where(linear, variant=(KEPT, "auto", TORCH)).merge(source, on=at, suffixes=("_linear", "_source"))
    both["ratio"] = both["median_us_linear"] / both["median_us_source"]
    return both[[*at, "median_us_linear", "median_us_source", "ratio"]]


@part
def ours(ladder: pd.DataFrame, both: pd.DataFrame) -> Facts:
    """How far our last rung is ahead at the point of the ladder, and what the output costs in the order that a linear
    layer wants; both: of `both_layouts`."""
    ratios = both.groupby("variant", sort=False)["ratio"].agg(records.geomean)
    return {"layout": ratios, "auto_over": over(ladder, "auto", RIVALS)}


@part
def blocks(df: pd.DataFrame) -> Facts:
    """Our last rung over Triton's kernel by the side of a block."""
    found = speedups(df, ["auto"], TRITON)
    return {"side": found.set_index(found["label"].map(side))["speedup"]}


# ---------------------------------------------------------------- windows and rows


@part
def windows_of(df: pd.DataFrame) -> Facts:
    """How many non-zeros a column of a window has, and what share of what a window stores is zeros."""
    shared = rule.statistics(df).drop_duplicates("label")["shared"]
    return {
        "window": {"matrices": len(shared), "median": shared.median(), "low": shared.min(), "high": shared.max()},
        "window.zeros": 1 - (shared / WINDOW).median(),
        "window.denser": denser(df, 0.01)["label"].nunique(),
    }


def denser(df: pd.DataFrame, than: float) -> pd.DataFrame:
    """Return the rows of matrices that are denser than this share of non-zeros."""
    return df[df["nnz"] / (df["m"].astype(float) * df["k"]) > than]


@part
def over_csr(df: pd.DataFrame) -> Facts:
    """What of the speedup over cuSPARSE remains when cuSPARSE may use CSR."""
    wide = where(df, n=df["n"].max())
    found = speedups(wide, [WCSR], CSR)["speedup"]
    return {
        "wcsr": {**summary(found), "n": wide["n"].max(), "ahead": (found > 1).sum()},
        "at_widest.over_bell": means(wide, [WCSR, CSR], BELL),
    }


@part
def parts(df: pd.DataFrame) -> Facts:
    """What cutting windows, their heights and the tasks' lengths are worth."""
    lengths = where(df, variant=("wcsr_c256", WCSR, "wcsr_c1024", "wcsr_c2048"))
    rates = lengths.groupby("variant")["tflops"].agg(records.geomean)
    return {
        "cutting": means(df, [WCSR], WHOLE),
        "height": means(df, ("windows_64", "windows_32", WINDOWS, "windows_8"), WCSR),
        "length": {"best": called(rates.idxmax()), "over_worst": rates.max() / rates.min()},
    }


@part
def voltrix(found: pd.DataFrame) -> Facts:
    """What Voltrix reached, apart from this harness."""
    return {"voltrix.over_csr": value(found, "speedup_csr", kernel="Voltrix", n=N)}


@part
def goal(variant: str, df: pd.DataFrame) -> Facts:
    """How far a tuned kernel of ours is ahead of cuSPARSE's CSR, and where it is not."""
    found = speedups(df, [variant], CSR)
    least = found.nsmallest(1, "speedup").rename(columns={"speedup": "least", "label": "matrix"})
    return {
        f"goal.{variant}.at": found.groupby("n")["speedup"].agg(records.geomean),
        f"goal.{variant}": {
            "slow": (found["speedup"] < SLOW).sum(),
            "points": len(found),
            **first(least[["least", "matrix"]]),
        },
    }


# ---------------------------------------------------------------- how kernels are chosen


@part
def waits() -> Facts:
    """What groups of rows gain where the parts of a cut one share a block, of the same launches before and after."""
    before, after = map(apart.read, (fit.IN_ROW_ORDER, fit.EIGHT_TASKS))
    both = before.merge(after, on=["matrix", "n", "config"], suffixes=("_before", "_after"))
    both["gain"] = both["us_before"] / both["us_after"]
    gain = both.groupby("matrix")["gain"].max()
    gaining, best = gain[gain > FASTER].sort_values(ascending=False), both.loc[both["gain"].idxmax()]
    return {
        "in_blocks": {"gaining": len(gaining), "matrices": len(gain), "first": listed(gaining.index[:4])},
        "in_blocks.best": {"gain": best["gain"], "before": best["us_before"], "after": best["us_after"]},
        "in_blocks.best.matrix": best["matrix"],
        "in_blocks.best.n": best["n"],
    }


@part
def tasks() -> Facts:
    """What it is worth that a warp has as many tasks as load so many bytes of B, of launches with 1, 2, 4 and 8."""
    df = tasks_of_a_warp.ruled(apart.read(tasks_of_a_warp.FILE))
    ends = {"best": df.loc[df["gain"].idxmax()], "worst": df.loc[df["gain"].idxmin()]}
    middle = df["loaded"].median()
    one = {"light": df[df["loaded"] < middle], "heavy": df[df["loaded"] >= middle]}
    return {
        "tasks": {"kib": union.WORK // 1024, "launches": len(df), "matrices": df["matrix"].nunique()},
        "tasks.mean": records.geomean(df["gain"]),
        **{f"tasks.{end}": {"gain": row["gain"], "matrix": row["matrix"]} for end, row in ends.items()},
        "one_task": {"above_kib": middle / 1024, "most": df["gain_1"].max()},
        **{f"one_task.{name}": records.geomean(part["gain_1"]) for name, part in one.items()},
    }


@part
def mesh() -> Facts:
    """What DRAM's bytes say of it, on meshes of several sides."""
    df = pd.read_csv(tasks_of_a_warp.NEIGHBOURS)
    many, one = (where(df, tasks=count).set_index("side") for count in tasks_of_a_warp.COUNTED_TASKS)
    gain = many["ms"] / one["ms"]
    ends, read = {"most": gain.idxmax(), "least": gain.idxmin()}, {"many_gb": many, "one_gb": one}
    each = {
        f"mesh.{end}": {"side": at, "gain": gain[at], **{k: v["dram_read_bytes"][at] / 1e9 for k, v in read.items()}}
        for end, at in ends.items()
    }
    return {**each, "mesh.points": (ends["least"] / ends["most"]) ** 3}


@part
def proposals() -> Facts:
    """How good the model's proposals are for matrices that its weights were not fitted to; see `fit`."""
    measured = fit.read()
    found = {v: fit.held_out(measured, values, any_csr.MOST) for v, values in any_csr.ACCURACIES.items()}
    return {
        "plans.origin": apart.origin(plans.FILE),
        "model": {"matrices": len(measured.of), "tried": any_csr.MOST, "launches": any_csr.LAUNCHES},
        "proposals": {
            v: {
                "pool": len(model.POOLS[any_csr.ACCURACIES[v]]),
                **{"first": (df["first"] <= NEAR).mean(), "best": (df["regret"] <= NEAR).mean()},
            }
            for v, df in found.items()
        },
    }


@part
def short_of(tf32: pd.DataFrame) -> Facts:
    """How far our kernel gets on dense matrices, and how little work they are."""
    here = where(tf32, variant=AUTO_TF32, n=N)
    here = here[here["density"] > 0.01]
    rate = 2 * here["nnz"] * here["n"] / here["median_us"] / 1e6
    return {
        "dense_ones": {
            **{"matrices": len(here) or None, "rows": here["m"].median(), "us": here["median_us"].median()},
            **{"mean": summary(rate).get("mean"), "most": rate.max()},
            **first(here.loc[rate.nlargest(1).index, ["label"]].rename(columns={"label": "best"})),
        },
        "launch.us": model.weights()["union_rows_1_1_8"][0],
    }


# ---------------------------------------------------------------- who is ahead where


@part
def winners(maps: Mapping[str, pd.DataFrame]) -> Facts:
    """Who is ahead how often, and how good the rule of one threshold is on matrices that were left out."""
    rules = {values: points for values, points in maps.items() if points["label"].nunique() >= 3}
    return {
        "ahead": {
            values: {"n": points["n"].max(), "matrices": len(points), "on": points["winner"].value_counts(sort=False)}
            for values, points in maps.items()
        },
        "rule": {values: {**rule.split(points), **rule.leave_out(points)} for values, points in rules.items()},
    }


#: Whose errors the page tells of.
ACCURATE = {
    "float32": (UNION, EXACT, AUTO_FP32, CSR),
    "tf32": (WCSR, WINDOWS, KEPT, BELL, BSR, TRITON, CSR),
}


@part
def accuracy(values: str, df: pd.DataFrame) -> Facts:
    """Median relative errors against float64: error.VALUES.VARIANT."""
    errors = df.groupby("variant")["rel_err"].median()
    return {f"error.{values}": {called(v): errors[v] for v in present(df, ACCURATE[values])}}


@given
def gains(as_given: pd.DataFrame, rcm: pd.DataFrame) -> pd.DataFrame:
    """Return variant, label, n and gain, time in the given order over time reordered, where both were measured."""
    at = ["variant", "label", "n"]
    both = where(as_given, variant=(AUTO_FP32, UNION, EXACT, CSR)).merge(rcm, on=at, suffixes=("_given", "_rcm"))
    return both.assign(gain=both["median_us_given"] / both["median_us_rcm"])[[*at, "gain"]]


@part
def reordered(gained: pd.DataFrame) -> Facts:
    """What reverse Cuthill-McKee brings; gained: of `gains`."""
    of = gained.groupby("variant", sort=False)["gain"]
    return {
        f"reordered.{v}": {
            **{"mean": records.geomean(gain), "matrices": len(gain)},
            **{"helps": (gain > 1.02).sum(), "hurts": (gain < 0.98).sum()},
        }
        for v, gain in of
    }
