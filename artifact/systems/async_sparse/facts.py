"""The chapter's facts, by the part of it that they stand in, and the tables that they come from.

Those of the whole model, a page of its own, are in `prefill.facts`.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import cache, partial
from itertools import chain
from typing import Any

import numpy as np
import pandas as pd

from artifact.book.facts import Fact, Facts, part, summary
from artifact.book.study import Counters, Study, given, ratio, where
from artifact.book.text import listed
from artifact.drawing.compiled import HOPPER
from artifact.measure import apart, records
from artifact.measure.families import FAMILIES
from artifact.measure.run import Run
from artifact.systems.async_sparse import experiments, scripts
from artifact.systems.async_sparse.experiments import (
    AUTO_FP32,
    AUTO_HALF,
    AUTO_TF32,
    BELL,
    BRANCHES,
    BSR,
    CONSUMERS,
    CSR,
    DENSE,
    EXACT,
    KEPT,
    LADDER,
    SIZES,
    STEPS,
    TILES,
    TORCH,
    TRITON,
    TUNED,
    UNION,
    WCSR,
    WHOLE,
    WINDOWS,
    N,
    break_even,
    called,
    filled,
    means,
    over,
    side,
    sized,
    speedups,
    told,
    value,
)
from artifact.systems.async_sparse.prefill import facts as prefill
from artifact.verdicts import sets
from kernels.async_sparse import any_csr, operands
from kernels.async_sparse.windows import WORK

#: The steps that the source adds up to most of the gain.
THREE = ["opt1", "opt2", "opt3"]
RIVALS = (KEPT, TRITON, TUNED, TORCH)  #: what our last rung is held against
LAYER = (KEPT, TRITON, "auto")  #: what is held against the dense library
FASTER = 1.1  #: times: what heat and chance do not explain
SLOW = 0.95  #: times as fast as cuSPARSE: below, a point counts as slower
MILLION = 10**6  #: non-zeros: the least of the source's matrices
NEAR = 1.1  #: times the best time: so near, a proposal is good
SHORT_US = 10  #: a launch that takes less is mostly latency
ODD_GOAL = 1.15  #: times as long as with columns rounded up to four, at most: what an odd number of them was to cost
GOAL = {"us": 400, "paid": 25}  #: what a plan without trials was to take, and the multiplications to have paid after

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
#: Values -> who multiplies in them, or as accurately, without a choice between them.
KINDS: Mapping[str, Mapping[str, Sequence[str]]] = {
    "float32": {"CUDA cores": (UNION,), "tensor cores, 3×TF32": (EXACT,), "cuSPARSE CSR": (CSR,)},
    "TF32": {"windows, TF32": (WINDOWS, WCSR, WHOLE), "blocks, TF32": (KEPT, BELL), "cuSPARSE CSR": (CSR,)},
}
#: Column of `statistics` -> how a sentence calls it.
STATISTICS = {"shared": "non-zeros for each column of a window", "per_row": "non-zeros a row"}
#: Whose errors the page tells of.
ACCURATE = {
    "float32": (UNION, EXACT, AUTO_FP32, CSR),
    "tf32": (WCSR, WINDOWS, KEPT, BELL, BSR, TRITON, CSR),
}


def of(run: Run) -> Iterator[Fact]:
    """Yield every fact that records hold; where `run` measures, what is not there is measured first."""
    study, get = Study(run), partial(experiments.get, run)
    sources = list(map(study.published, ("table1", "table2", "table3", "text")))
    df, tf32, float32 = map(get, ("ablation", "spmm_tf32", "spmm"))
    return chain(
        stated(*sources),
        formats(experiments.conversions(run)),
        traced(experiments.trace(run)),
        ablation(df, sources[1]),
        warm("warm", df, study.read(f"ablation{experiments.WARM}"), LADDER),
        warm("warm_tf32", tf32, study.read(f"spmm_tf32{experiments.WARM}"), (WCSR, KEPT)),
        left_out(run, "ablation", df),
        counted(profile(study.counters), study),
        tiles(get("tile_n")),
        layer(get("gate_proj"), get("ladder"), get("blocks")),
        left_out(run, "spmm_tf32", tf32),
        windows(tf32),
        parts(get("wcsr_parts")),
        goal(AUTO_FP32, float32),
        goal(AUTO_TF32, tf32),
        goal(AUTO_HALF, get("spmm_half")),
        in_half(),
        few(),
        goal(AUTO_FP32, get("spmv"), "spmv"),
        odd(get("spmm_odd")),
        goal(AUTO_FP32, get("spmm_few"), "few"),
        short(get("spmm_few")),
        tasks(),
        proposals(),
        short_of(tf32),
        winners(maps(float32, tf32)),
        accuracy("float32", float32),
        accuracy("tf32", tf32),
        reordered(gains(float32, get("spmm_rcm"))),
        prefill.of(run, sources[3]),
    )


def first(df: pd.DataFrame) -> Facts:
    """Return the first row of a table as facts; none of an empty one."""
    return dict(*df.head(1).to_dict("records"))


# ---------------------------------------------------------------- the source, by its own numbers


@part
def stated(table1: pd.DataFrame, table2: pd.DataFrame, table3: pd.DataFrame, text: pd.DataFrame) -> Facts:
    """Return what the source states, and what its numbers say of each other; told.VARIANT.

    How a sentence calls a contender.
    """
    over_bell, implied = experiments.over_bell(table2), experiments.implied(table2)
    ladder, steps = implied[[*THREE, "opt4", KEPT, "opt6"]], experiments.shares(over_bell)
    registers, stage = experiments.WARPGROUP * sum(experiments.REGISTERS), experiments.STAGE
    in_stage, wide = sum(stage.values()), experiments.padded(248)
    # TFLOP/s of BCSR by the share of blocks, as section IV defines them.
    latency = where(table3, quantity="latency", variant=KEPT, n=65536).set_index("density")["low"].sort_index()
    rates = 2.0 * 18944 * 3584 * 65536 * latency.index / latency / 1e9
    of_wcsr = experiments.recomputed(table1)
    widest, off = where(of_wcsr, n=N, density=0).set_index("kernel"), of_wcsr[~of_wcsr["agrees"]]
    both = {v: value(text, "end_to_end", variant=v, size=65536) for v in (KEPT, "minference", "both")}
    return {
        "told": {v: told(v) for v in (*experiments.NAMES, *experiments.CSR_ALGORITHMS)},
        "stated.over_bell": over_bell,
        "stated.gain": where(text, quantity="gain").set_index("variant")["low"],
        "stated.share_of_gain": value(text, "share_of_gain"),
        "stated.layer": where(table3, quantity="speedup_range")
        .set_index("density")[["low", "high"]]
        .rename(lambda density: round(100 * (1 - density))),
        "stated.matrices": table2.drop_duplicates("variant").set_index("variant")["matrices"][[KEPT, "opt7"]],
        "stated.wcsr_over": widest["stated"],
        "stated.wcsr_tflops": value(table1, "tflops", kernel="WCSR", n=N, density=0.01),
        "implied": {"low": ladder.min(), "high": ladder.max(), "torchao": implied[TRITON]},
        "implied.row": value(table2, "tflops", variant=BELL, matrices=414),
        "stated.share": {"difference": steps["by difference"], "factor": steps["by factor"]},
        "block": {
            **{"registers": registers, "stage_kib": in_stage // 1024},
            "by_registers": experiments.SM_REGISTERS // registers,
            "by_shared": experiments.SM_SHARED // (experiments.STAGES * in_stage + experiments.RESERVED),
        },
        "sm.registers": experiments.SM_REGISTERS,
        "stage": {"a_kib": stage["A"] // 1024, "b_kib": stage["B"] // 1024},
        "multicast.saves": 1 - (stage["A"] / 2 + stage["B"]) / in_stage,  # A read once for two blocks
        "stated.tflops.fig7": value(text, "tflops", variant="opt5_n256"),
        "stated.tflops.table2": value(table2, "tflops", variant=KEPT),
        "waste": {"padded": wide, "extra": wide / N - 1, "wasted": 1 - N / wide},
        "stated.useful": {"most": rates.iloc[-1], "least": rates.iloc[0], "density": rates.index[0]},
        "stated.useful.time": 1 / value(table3, "speedup_cublas", n=65536, density=rates.index[0]),
        "headline": widest.loc["cuSPARSE", ["stated", "ratio"]],
        **{"headline.speedups": len(of_wcsr), "headline.off": len(off)},
        "headline.over": listed(dict.fromkeys(off["kernel"])),
        "stated.end_to_end": both,
        # Of savings in disjoint parts of one run time.
        "stated.end_to_end.together": 1 / (1 / both[KEPT] + 1 / both["minference"] - 1),
    }


@part
def compiled(report: pd.DataFrame, text: pd.DataFrame) -> Facts:
    """Of the compile report: registers that TMA frees and that are moved."""
    here, said = where(report, target=HOPPER), where(text, quantity="registers_freed").iloc[0]
    most = here.groupby("variant")["registers"].max().astype(int)
    threads = (1 + CONSUMERS) * experiments.WARPGROUP
    return {
        "compiled.spilling": listed(dict.fromkeys(here.loc[here["spills"].astype(bool), "variant"])),
        "registers": most[THREE],
        "freed": {"here": most["opt1"] - most["opt2"], "low": said["low"], "high": said["high"]},
        "sm.registers": experiments.SM_REGISTERS,
        "start": {"threads": threads, "registers": threads * most["opt3"]},
    }


# ---------------------------------------------------------------- real matrices


@part
def formats(df: pd.DataFrame) -> Facts:
    """Return what `experiments.conversions` measured: medians."""
    return {"format": df.filter(regex="_ms$|_fill$|_fill_rcm$").median(), "format.matrices": len(df)}


@part
def ablation(df: pd.DataFrame, table2: pd.DataFrame) -> Facts:
    """How large and of which origin the matrices are, and what each step, each branch and each library is worth.

    Beside what is stated.
    """
    one, ahead = df.drop_duplicates("label"), ratio(df, CSR, KEPT, list(records.POINT)) > 1
    over_bell, branches = means(df, STEPS, BELL), means(df, BRANCHES, KEPT)
    shares = {"here": experiments.shares(over_bell), "stated": experiments.shares(experiments.over_bell(table2))}
    here, hows = shares["here"], ("difference", "factor")
    return {
        "real": {"matrices": len(one), "bell": where(df, variant=BELL)["label"].nunique()},
        "real.nnz": one["nnz"].agg(low="min", high="max"),
        "real.share": filled(one).agg(low="min", high="max"),
        "over_bell": over_bell,
        "step": {v: {who: steps["factor"][v] for who, steps in shares.items()} for v in here.index},
        "share": {how: here[f"by {how}"] for how in hows},
        "share.three": {who: steps["by difference"].reindex(THREE).sum() for who, steps in shares.items()},
        "share.largest": {how: told(v) for how in hows for v in here[f"by {how}"].nlargest(1).index},
        "special": sized(df, ["opt3"], "opt2").groupby("size", observed=True)["speedup"].agg(records.geomean),
        "branch": branches,
        "branches.best": branches.max(),
        "launched": where(df, variant="opt7")["label"].nunique(),
        "kept_over": {base: over(df, KEPT, base) for base in (BELL, BSR, CSR, TRITON)},
        "csr": {"ahead": ahead.sum(), "matrices": len(ahead)},
        "sizes": {
            "matrices": len(one),
            "million": (one["nnz"] >= MILLION).sum(),
            "made": one["label"].isin(FAMILIES).sum(),
            "of_the_source": one["label"].isin(sets.source(experiments.SYSTEM)).sum(),
        },
    }


@part
def warm(name: str, cold: pd.DataFrame, df: pd.DataFrame, variants: Sequence[str]) -> Facts:
    """How the source's protocol and this book's differ, on the matrices that have both; variants: whose speedups."""
    at = ["variant", *records.POINT]
    both = df.merge(cold[[*at, "median_us"]], on=at, suffixes=("", "_cold"))
    here, there = (means(x[x["label"].isin(df["label"])], variants, BELL) for x in (cold, df))
    return {
        name: {
            "matrices": both["label"].nunique(),
            "of_cold": records.geomean(both["median_us"] / both["median_us_cold"]),
            "off": (there / here - 1).abs().max(),
        }
    }


@part
def left_out(run: Run, experiment: str, df: pd.DataFrame) -> Facts:
    """Who has no number at how many matrices, and the first reason."""
    names = ["who", "matrix", "why"]
    rows = pd.DataFrame(
        [(*key[:2], why) for key, why in sorted(records.read_absent(run.folder).get(experiment, {}).items())],
        columns=names,
    ).drop_duplicates(names[:2], keep="last")
    return {
        f"left_out.{experiment}": {"contenders": rows["who"].nunique(), "matrices": df["label"].nunique()},
        f"left_out.{experiment}.on": rows.groupby("who").size(),
        f"left_out.{experiment}.first": first(rows.assign(who=rows["who"].map(told))),
    }


# ---------------------------------------------------------------- counters and clocks


def profile(counters: Counters) -> pd.DataFrame | None:
    """Return what was counted at the point of the ladder, by contender, those of the ladder in its order first.

    None where nothing was counted.

    The columns of `COUNTED`, and of them us; tbps, what passes L2's slices, reads and writes; busy, the mean over SMs
    of the cycles in which one works in per cent of those of the busiest; reason, why most warps that did not issue
    waited; and waits, with how many did for each instruction.
    """
    if not counters:
        return None
    df = counters.wide(COUNTED).set_index("variant").reindex(columns=list(COUNTED.values()))
    worst = (
        counters.rows.assign(reason=counters.rows["metric"].str.extract(STALLED, expand=False))
        .dropna(subset="reason")
        .sort_values("value")
        .groupby("variant")
        .last()
    )
    return df.assign(
        us=df["ns"] / 1e3,
        tbps=df["bytes"] / df["ns"] / 1e3,
        busy=100 * df["cycles"] / df["most_cycles"],
        reason=worst["reason"],
        waits=worst["reason"].str.replace("_", " ") + worst["value"].map(" {:.1f}".format),
        kernel=df.index.map(experiments.name),
    ).sort_index(key=lambda names: names.map({v: i for i, v in enumerate(LADDER)}), kind="stable")


@part
def counted(df: pd.DataFrame, study: Study) -> Facts:
    """Why each step is faster, by the profile of gate_proj, and how near our last rung is to what L2 can move."""
    steps, moved = df[df.index.isin(STEPS)], df["tbps"].get("auto", np.nan)
    return {
        "busy": steps["the tensor pipe"],
        "waits": {reason: listed(rows.index) for reason, rows in steps.groupby("reason", sort=False)},
        "busiest": first(
            df.reindex([KEPT])[UNITS].iloc[0].dropna().nlargest(1).rename_axis("unit").reset_index(name="share")
        ),
        "l2": {"tbps": moved, "share": 1e3 * moved / study.ceiling("l2_read", "gbps")},
    }


@part
def traced(frame: pd.DataFrame) -> Facts:
    """Return the share of its multiplying time in which a thread block also loads.

    All thread blocks count together: 0 where the two take turns.
    """
    return {"overlap": {variant: overlap(rows) for variant, rows in frame.groupby("variant", sort=False)}}


def overlap(frame: pd.DataFrame) -> float:
    """Return the share of the time in which thread blocks of a kernel multiply that they also load."""
    load, multiply, either = (
        sum(covered(rows) for _, rows in where(frame, role=roles).groupby("block"))
        for roles in ("load", "multiply", ("load", "multiply"))
    )
    return (load + multiply - either) / multiply


def covered(rows: pd.DataFrame) -> float:
    """Return the time, in ns, in which any of the rows' intervals runs."""
    rows = rows.sort_values("begin_ns")
    return (rows["end_ns"] - np.fmax(rows["begin_ns"], rows["end_ns"].cummax().shift())).clip(lower=0).sum()


# ---------------------------------------------------------------- tiles and layers


@part
def tiles(df: pd.DataFrame) -> Facts:
    """Return the best width, and what the source's rule costs or gains."""
    rule = f"opt5_n{experiments.RULE}"
    rates = df.groupby("variant")["tflops"].agg(records.geomean)
    each = df.pivot_table(index="label", columns="variant", values="tflops")
    return {
        "tile": {
            **{"rule": experiments.RULE, "n": N, "best": TILES[rates.idxmax()]},
            "best_over_rule": rates.max() / rates[rule],
            "own_over_rule": records.geomean((each.max(axis=1) / each[rule]).dropna()),
            "widths": each.idxmax(axis=1).nunique(),
        }
    }


@given
def pays(df: pd.DataFrame) -> pd.DataFrame:
    """Return the speedup over dense cuBLAS by the share of blocks, and where it begins to pay.

    Geometric mean over N with the range; the share below which the mean is above 1.
    """
    data = (
        speedups(df, LAYER, TORCH)
        .groupby(["variant", "density"], sort=False)["speedup"]
        .agg(speedup=records.geomean, least="min", most="max")
        .reset_index()
    )
    return data.assign(
        pays_from=data["variant"].map(data.set_index("density").groupby("variant")["speedup"].agg(break_even)),
        kept=100 * data["density"],
    )


@given
def both_layouts(linear: pd.DataFrame, source: pd.DataFrame) -> pd.DataFrame:
    """Return the time with C in a linear layer's order over that with C row-major.

    As the source writes it, at the points of both records of gate_proj.
    """
    at, us = ["variant", "m", "n", "k", "density"], ["median_us_linear", "median_us_source"]
    return (
        where(linear, variant=(KEPT, "auto", TORCH))
        .merge(source, on=at, suffixes=("_linear", "_source"))[[*at, *us]]
        .assign(ratio=lambda both: both[us[0]] / both[us[1]])
    )


@part
def layer(df: pd.DataFrame, ladder: pd.DataFrame, sides: pd.DataFrame) -> Facts:
    """Speedups over dense cuBLAS on gate_proj, and from which sparsity on there are any.

    How far our last rung is ahead there and at the point of the ladder, what the output costs in the order that a
    linear layer wants, and our last rung over Triton's kernel by the side of a block.
    """
    found, lines, of_blocks = speedups(df, LAYER, TORCH), pays(df), speedups(sides, ["auto"], TRITON)
    densest = where(lines, density=found["density"].max()).set_index("variant")
    even = (1 - densest["pays_from"]).dropna()
    return {
        "gate": where(found, variant=KEPT)
        .groupby("density", sort=False)["speedup"]
        .agg(low="min", high="max")
        .rename(lambda density: round(100 * (1 - density))),
        "dense": means(df, [DENSE], TORCH),
        "pays.densest": densest["speedup"],
        "pays.sparsity": 1 - found["density"].max(),
        "pays.crossing": len(even),
        "pays.even": even,
        "auto_layer": summary(where(found, variant="auto")["speedup"]),
        "auto_layer.over": {base: over(df, "auto", base) for base in RIVALS},
        "layout": both_layouts(df, ladder).groupby("variant", sort=False)["ratio"].agg(records.geomean),
        "auto_over": {base: over(ladder, "auto", base) for base in RIVALS},
        "side": of_blocks.set_index(side(of_blocks["label"]))["speedup"],
    }


# ---------------------------------------------------------------- windows and rows


def statistics(df: pd.DataFrame) -> pd.DataFrame:
    """Return a record's rows with what decides.

    `per_row`, non-zeros a row, and `shared`, non-zeros for each column of a window's union, windows of 64 rows.

    Both follow from the record: the bytes that the source's kernel asks for (`requested_bytes`) count the columns of
    all windows. 1 is a matrix whose rows share no column, 64 one whose windows are dense.
    """
    m, n, size = df["m"].astype(float), df["n"].astype(float), SIZES["tf32"]
    each = -(-df["n"] // operands.WINDOW_TILE) * (operands.WINDOW * size + 4) + n * size
    return df.assign(per_row=df["nnz"] / m, shared=df["nnz"] / ((df["requested_bytes"] - size * m * n) / each))


@part
def windows(df: pd.DataFrame) -> Facts:
    """How many non-zeros a column of a window has, what share of what a window stores is zeros.

    And what of the speedup over cuSPARSE remains when cuSPARSE may use CSR.
    """
    shared, wide = statistics(df).drop_duplicates("label")["shared"], where(df, n=df["n"].max())
    found = speedups(wide, [WCSR], CSR)["speedup"]
    return {
        "window": {"matrices": len(shared), "median": shared.median(), "low": shared.min(), "high": shared.max()},
        "window.zeros": 1 - (shared / operands.WINDOW).median(),
        "window.denser": df[filled(df) > 0.01]["label"].nunique(),
        "wcsr": {**summary(found), "n": wide["n"].max(), "ahead": (found > 1).sum()},
        "at_widest.over_bell": means(wide, [WCSR, CSR], BELL),
    }


@part
def parts(df: pd.DataFrame) -> Facts:
    """Return what cutting windows, their heights and the tasks' lengths are worth."""
    rates = (
        where(df, variant=("wcsr_c256", WCSR, "wcsr_c1024", "wcsr_c2048"))
        .groupby("variant")["tflops"]
        .agg(records.geomean)
    )
    return {
        "cutting": means(df, [WCSR], WHOLE),
        "height": means(df, ("windows_64", "windows_32", WINDOWS, "windows_8"), WCSR),
        "length": {"best": called(rates.idxmax()), "over_worst": rates.max() / rates.min()},
    }


@part
def goal(variant: str, df: pd.DataFrame, name: str = "") -> Facts:
    """How far a tuned kernel of ours is ahead of cuSPARSE's CSR, and where it is not.

    name: of the facts, in place of the variant's.
    """
    found = speedups(df, [variant], CSR)
    least = found.nsmallest(1, "speedup").rename(columns={"speedup": "least", "label": "matrix"})[["least", "matrix"]]
    return {
        f"goal.{name or variant}.at": found.groupby("n")["speedup"].agg(records.geomean),
        f"goal.{name or variant}": {"slow": (found["speedup"] < SLOW).sum(), "points": len(found), **first(least)},
    }


# ---------------------------------------------------------------- few columns, and odd numbers of them


@cache
def foreseen(accuracy: str = "fp32") -> pd.DataFrame:
    """Return `scripts.held_out` for an accuracy."""
    return scripts.held_out(accuracy)


def proposed() -> pd.DataFrame:
    """Return `foreseen` for few columns."""
    return foreseen().query(f"n <= {any_csr.FEW}")


@part
def in_half() -> Facts:
    """Return where windows on tensor cores are the fastest in 16 bits, and what they gain there."""
    df, at = scripts.read().query("dtype != 'tf32' and n >= @any_csr.MANY"), ["n", "matrix"]
    ours = df[~df["config"].str.startswith("cusparse")]
    tensor = ours["kernel"].str.contains("windows")
    us, before = (part.groupby(at)["us"].min() for part in (ours[tensor], ours[~tensor]))
    gain = (before / us).rename("gain")
    best = pd.concat([gain, us.rename("us"), before.rename("before")], axis=1).reset_index().nlargest(1, "gain")
    return {
        "half.wins": (gain > 1).groupby("n").sum(),
        "half": {"origin": apart.origin(scripts.HALF), "matrices": ours["matrix"].nunique(), **first(best)},
    }


@part
def few() -> Facts:
    """How far the best of the proposals is ahead of cuSPARSE's fastest for each N, and how good they are."""
    df = proposed()
    least = df.nsmallest(1, "speedup")[["n", "matrix", "speedup"]].rename(columns={"speedup": "least"})
    return {
        "few.at": df.groupby("n")["speedup"].agg(records.geomean),
        "few": {
            **{"origin": apart.origin(scripts.FEW), "matrices": df["matrix"].nunique(), "points": len(df)},
            **{"first": (df["first"] <= NEAR).mean(), "best": (df["regret"] <= NEAR).mean()},
            **{"slow": (df["speedup"] < SLOW).sum(), **first(least)},
        },
    }


@part
def short(df: pd.DataFrame) -> Facts:
    """Return how far few columns are ahead of cuSPARSE's fastest where it takes less than `SHORT_US`, and elsewhere."""
    ours, theirs = (where(df, variant=v).set_index(["label", "n"]) for v in (AUTO_FP32, CSR))
    brief = theirs["median_us"].reindex(ours.index) < SHORT_US
    ahead = (theirs["median_us"] / ours["median_us"]).groupby(np.where(brief, "brief", "others")).agg(records.geomean)
    spread = ((ours["q75_us"] - ours["q25_us"]) / ours["median_us"])[brief].median()
    return {"short": {"us": SHORT_US, "points": brief.sum(), "spread": spread, **ahead}}


def rounded_up(df: pd.DataFrame) -> pd.DataFrame:
    """Return label, n and over of odd numbers of columns: the time over that with columns up to a multiple of four."""
    us = where(df, variant=AUTO_FP32).assign(up=lambda x: -(-x["n"] // 4) * 4)
    both = us[us["n"] % 4 != 0].merge(us, left_on=["label", "up"], right_on=["label", "n"], suffixes=("", "_up"))
    return both.assign(over=both["median_us"] / both["median_us_up"])[["label", "n", "over"]]


@part
def odd(df: pd.DataFrame) -> Facts:
    """Return what an odd number of columns costs, and how far it is ahead of cuSPARSE."""
    over, ahead = rounded_up(df), speedups(df[df["n"] % 4 != 0], [AUTO_FP32], CSR)
    return {
        "odd.over": over.groupby("n")["over"].agg(records.geomean),
        "odd.ahead": ahead.groupby("n")["speedup"].agg(records.geomean),
        "odd": {
            **{"matrices": over["label"].nunique(), "goal": ODD_GOAL},
            **first(over.nlargest(1, "over").rename(columns={"over": "most", "label": "matrix"})),
        },
    }


# ---------------------------------------------------------------- how kernels are chosen


@part
def tasks() -> Facts:
    """Return what cutting rows into tasks is worth.

    What groups gain where the parts of a cut one share a block, of the same launches before and after; what it is
    worth that a warp has as many tasks as load so many bytes of B, of launches with 1, 2, 4 and 8; what DRAM's bytes
    say of it, on meshes of several sides.
    """
    before, after = map(apart.read, (scripts.IN_ROW_ORDER, scripts.EIGHT_TASKS))
    both = (
        before.merge(after, on=["matrix", "n", "config"], suffixes=("_before", "_after"))
        .assign(gain=lambda both: both["us_before"] / both["us_after"])
        .sort_values("gain", ascending=False, kind="stable")
    )
    gain, best = both.groupby("matrix", sort=False)["gain"].first(), both.iloc[0]
    gaining = gain[gain > FASTER]
    df = scripts.ruled(apart.read(scripts.TASKS))
    middle, ends = df["loaded"].median(), {"best": df["gain"].idxmax(), "worst": df["gain"].idxmin()}
    heavy = df["loaded"] >= middle
    counted = apart.read(scripts.NEIGHBOURS).pivot(index="side", columns="tasks")
    ms, (many, one) = counted["ms"], scripts.COUNTED_TASKS
    mesh = pd.DataFrame({"gain": ms[many] / ms[one]}).join(
        (counted["dram_read_bytes"] / 1e9).rename(columns={many: "many_gb", one: "one_gb"})[["many_gb", "one_gb"]]
    )
    most, least = mesh["gain"].idxmax(), mesh["gain"].idxmin()
    return {
        "in_blocks": {"gaining": len(gaining), "matrices": len(gain), "first": listed(gaining.index[:4])},
        "in_blocks.best": {"gain": best["gain"], "before": best["us_before"], "after": best["us_after"]},
        "in_blocks.best.matrix": best["matrix"],
        "in_blocks.best.n": best["n"],
        **{"in_blocks.origin": apart.origin(scripts.EIGHT_TASKS), "tasks.origin": apart.origin(scripts.TASKS)},
        "tasks": {"kib": WORK // 1024, "launches": len(df), "matrices": df["matrix"].nunique()},
        "tasks.mean": records.geomean(df["gain"]),
        **{f"tasks.{end}": df.loc[at, ["gain", "matrix"]] for end, at in ends.items()},
        "one_task": {"above_kib": middle / 1024, "most": df["gain_1"].max()},
        "one_task.light": records.geomean(df["gain_1"][~heavy]),
        "one_task.heavy": records.geomean(df["gain_1"][heavy]),
        "mesh.most": {"side": most, **mesh.loc[most]},
        "mesh.least": {"side": least, **mesh.loc[least]},
        "mesh.points": (least / most) ** 3,
    }


@part
def proposals() -> Facts:
    """Return what a plan without trials costs, and when it has paid.

    How good the model's proposals are for matrices that its weights were not fitted to, see `scripts.held_out`.
    """
    measured, df = scripts.read().query("n > @any_csr.FEW"), scripts.paid(apart.read(scripts.PLANS))
    middle, parts = df[["plan_us", "saved_us", "cost_us"]].median(), apart.read(scripts.PLAN_PARTS)
    paid = df.groupby(pd.cut(df["nnz"], [0, 100_000, 1_000_000, np.inf], right=False, labels=["few", "many", "most"]))
    return {
        "plans": {"origin": apart.origin(scripts.PLANS), "matrices": len(df), **middle},
        "plans.goal": GOAL,
        "plans.paid": {"all": np.ceil(df["count"].median()), **np.ceil(paid["count"].median())},
        "plans.needed_us": GOAL["paid"] * middle["saved_us"] + middle["plan_us"] - middle["cost_us"],
        "plans.parts": parts.set_index("what")["value"],
        "model.origin": apart.origin(scripts.CANDIDATES),
        "foreseen": {
            f"{whose}.{end}": foreseen()[whose].quantile(share)
            for whose in ("expected", "library")
            for end, share in (("low", 0.1), ("high", 0.9))
        },
        "model": {"matrices": measured["matrix"].nunique(), "tried": any_csr.MOST, "launches": any_csr.LAUNCHES},
        "proposals": {
            v: {
                "pool": sum(any_csr.takes_part(c, N) for c in any_csr.POOLS[values]),
                **{"first": (df["first"] <= NEAR).mean(), "best": (df["regret"] <= NEAR).mean()},
            }
            for v, values in any_csr.ACCURACIES.items()
            for df in [foreseen(values).query(f"n > {any_csr.FEW}")]
        },
    }


@part
def short_of(tf32: pd.DataFrame) -> Facts:
    """How far our kernel gets on dense matrices, and how little work they are."""
    here = where(tf32, variant=AUTO_TF32, n=N).query("density > 0.01")
    rate = 2 * here["nnz"] * here["n"] / here["median_us"] / 1e6
    return {
        "dense_ones": {
            **{"matrices": len(here) or None, "rows": here["m"].median(), "us": here["median_us"].median()},
            **{"mean": summary(rate).get("mean"), "most": rate.max()},
            **first(here.loc[rate.nlargest(1).index, ["label"]].rename(columns={"label": "best"})),
        },
        "launch.us": any_csr.weights()["union_rows_1_1_8"][0],
    }


# ---------------------------------------------------------------- who is ahead where, and the rule that this suggests


@given
def maps(float32: pd.DataFrame, tf32: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Return the maps that two records allow, values -> `fastest`, at the widest N of each.

    A map has two of the `KINDS`.
    """
    of = {"float32": float32, "TF32": tf32}
    found = {values: fastest(where(df, n=df["n"].max()), KINDS[values]) for values, df in of.items()}
    return {values: points for values, points in found.items() if len(points["winner"].cat.categories) > 1}


def fastest(df: pd.DataFrame, groups: Mapping[str, Sequence[str]]) -> pd.DataFrame:
    """Return a row for each point that all groups with a record have.

    Its statistics, for each group the time of its fastest contender in µs (its name is the column), and `winner`, the
    group that is ahead, one of the categories. groups: name -> contenders.
    """
    at = list(records.POINT)
    times = (
        pd.DataFrame({kind: where(df, variant=names).groupby(at)["median_us"].min() for kind, names in groups.items()})
        .dropna(axis=1, how="all")
        .dropna()
        .assign(winner=lambda times: pd.Categorical(times.idxmin(axis=1), list(times)))
    )
    return (
        statistics(df).drop_duplicates(at).set_index(at)[["per_row", "shared"]].join(times, how="inner").reset_index()
    )


def split(points: pd.DataFrame) -> dict[str, Any]:
    """Return the split of one statistic that loses the least time.

    Choose `below` where `statistic` is less than `at`, `above` elsewhere. points: two or more, of `fastest`.
    """
    groups, found = list(points["winner"].cat.categories), []
    for statistic, axis in STATISTICS.items():
        rows = points.sort_values(statistic, kind="stable")
        x, before = rows[statistic].to_numpy(float), np.log(rows[groups].to_numpy(float)).cumsum(axis=0)
        after = before[-1] - before
        for i in np.flatnonzero(np.diff(x)):
            below, above = (groups[logs[i].argmin()] for logs in (before, after))
            at = float(np.sqrt(x[i] * x[i + 1]))
            found.append((before[i].min() + after[i].min(), statistic, axis, at, below, above))
    one = groups[before[-1].argmin()]
    best = min(found, key=lambda lost: lost[0], default=(0.0, "shared", STATISTICS["shared"], 0.0, one, one))
    return dict(zip(("statistic", "axis", "at", "below", "above"), best[1:], strict=True))


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
    best, one = points[groups].min(axis=1), np.log(points[groups]).mean().idxmin()
    lost = pd.Series([points.at[i, kind] for i, kind in chosen.items()], points.index) / best
    return {
        "right": (chosen == points["winner"]).mean(),
        **{"lost": records.geomean(lost) - 1, "worst": lost.max() - 1},
        **{"fixed": one, "fixed_lost": records.geomean(points[one] / best) - 1},
    }


@part
def winners(found: Mapping[str, pd.DataFrame]) -> Facts:
    """Who is ahead how often, and how good the rule of one threshold is on matrices that were left out.

    found: of `maps`.
    """
    return {
        "ahead": {
            values: {"n": points["n"].max(), "matrices": len(points), "on": points["winner"].value_counts(sort=False)}
            for values, points in found.items()
        },
        "rule": {
            values: {**split(points), **leave_out(points)}
            for values, points in found.items()
            if points["label"].nunique() >= 3
        },
    }


@part
def accuracy(values: str, df: pd.DataFrame) -> Facts:
    """Median relative errors against float64: error.VALUES.VARIANT."""
    return {f"error.{values}": df.groupby("variant")["rel_err"].median().reindex(ACCURATE[values]).rename(called)}


@given
def gains(as_given: pd.DataFrame, rcm: pd.DataFrame) -> pd.DataFrame:
    """Return variant, label, n and gain, time in the given order over time reordered, where both were measured."""
    at = ["variant", "label", "n"]
    return (
        where(as_given, variant=(AUTO_FP32, UNION, EXACT, CSR))
        .merge(rcm, on=at, suffixes=("_given", "_rcm"))
        .assign(gain=lambda both: both["median_us_given"] / both["median_us_rcm"])[[*at, "gain"]]
    )


@part
def reordered(gained: pd.DataFrame) -> Facts:
    """Return what reverse Cuthill-McKee brings; gained: of `gains`."""
    return {
        "reordered": gained.groupby("variant", sort=False)["gain"].agg(
            mean=records.geomean,
            matrices="size",
            **{"helps": lambda gain: (gain > 1.02).sum(), "hurts": lambda gain: (gain < 0.98).sum()},
        )
    }
