"""The chapter's facts, by the part of it that they stand in; those of its second half are in
`spmm.facts`, those of the whole model, a page of its own, in `prefill.facts`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pandas as pd

from artifact.book.facts import Fact, each, spread, under
from artifact.drawing.compiled import HOPPER
from artifact.drawing.words import listed
from artifact.measure import records
from artifact.measure.run import Run
from artifact.rooms.async_sparse import arithmetic, contenders, conversions, experiments, figures, spmm, timeline
from artifact.rooms.async_sparse.contenders import BELL, BRANCHES, BSR, CSR, DENSE, KEPT, TORCH, TRITON, TUNED, told
from artifact.rooms.async_sparse.experiments import Counters
from artifact.rooms.async_sparse.prefill import facts as prefill

#: The steps that the source adds up to most of the gain.
THREE = ["opt1", "opt2", "opt3"]
LIBRARIES = (KEPT, TRITON, TUNED, TORCH)  #: what our last rung is held against
#: Units whose counters tell what is busy.
UNITS = {"the tensor pipe": experiments.TENSOR, "L2": experiments.L2, "DRAM": experiments.DRAM}


def of(run: Run) -> Iterator[Fact]:
    """Yield every fact that records hold."""
    table1, table2, table3, text = map(arithmetic.stated, ("table1", "table2", "table3", "text"))
    yield from names()
    yield from claimed(table2, table3, text)
    yield from own_arithmetic(table1, table2, table3, text)
    yield from formats(conversions.conversions(run))
    yield from traced(experiments.trace(run))
    df = experiments.ablation(run)
    yield from matrices(df)
    yield from ablation(df, table2)
    yield from left_out("ablation", experiments.left_out(run, "ablation"), df)
    counters = experiments.counters(run)
    yield from counted(counters)
    yield from l2_bound(counters, experiments.ceilings(run.gpu))
    yield from tiles(experiments.tiles(run))
    layer = experiments.sweep(run, "gate_proj", experiments.LAYER)
    ladder = experiments.sweep(run, "ladder", experiments.LADDER)
    yield from gate(layer)
    yield from layout(figures.both_layouts(layer, ladder))
    yield from ours(ladder)
    yield from blocks(experiments.sweep(run, "blocks", experiments.BLOCKS))
    tf32 = spmm.experiments.tf32(run)
    yield from left_out("spmm_tf32", experiments.left_out(run, "spmm_tf32"), tf32)
    yield from spmm.facts.of(run, table1)
    yield from prefill.of(run, text)


def names() -> Iterator[Fact]:
    """told.VARIANT: how a sentence calls a contender."""
    return each("told", {v: told(v) for v in (*contenders.NAMES, *contenders.CSR_ALGORITHMS)})


# ---------------------------------------------------------------- the source, by its own numbers


def claimed(table2: pd.DataFrame, table3: pd.DataFrame, text: pd.DataFrame) -> Iterator[Fact]:
    """What the source states of BCSR."""
    yield from each("stated.over_bell", arithmetic.table2_speedups(table2))
    gains = ("opt1", "opt2", "opt3", "opt4", "opt6", "opt7")
    yield from each("stated.gain", {v: arithmetic.value(text, "gain", variant=v) for v in gains})
    yield "stated.share_of_gain", arithmetic.value(text, "share_of_gain")
    layer = table3[table3["quantity"] == "speedup_range"].set_index("density")
    for density, row in layer.iterrows():
        yield from under(f"stated.layer.{sparsity(density)}", low=row["low"], high=row["high"])
    matrices = table2.drop_duplicates("variant").set_index("variant")["matrices"]
    yield from each("stated.matrices", {v: int(matrices[v]) for v in (KEPT, "opt7")})


def sparsity(density: float) -> int:
    """Per cent of the blocks that are left out."""
    return round(100 * (1 - density))


def own_arithmetic(
    table1: pd.DataFrame, table2: pd.DataFrame, table3: pd.DataFrame, text: pd.DataFrame
) -> Iterator[Fact]:
    """What the source's numbers say of each other."""
    implied = arithmetic.implied(table2)
    ladder = implied[[*THREE, "opt4", KEPT, "opt6"]]
    yield from under("implied", low=ladder.min(), high=ladder.max(), torchao=implied[TRITON])
    yield "implied.row", arithmetic.value(table2, "tflops", variant=BELL, matrices=414)
    steps = arithmetic.shares(arithmetic.table2_speedups(table2))
    yield from each("stated.share.difference", steps["by difference"])
    yield from each("stated.share.factor", steps["by factor"])
    registers, stage = arithmetic.WARPGROUP * sum(arithmetic.REGISTERS), arithmetic.stage_bytes(256)
    yield from under("block", registers=registers, stage_kib=sum(stage.values()) // 1024)
    yield from under("block", by_registers=arithmetic.blocks_by_registers(), by_shared=arithmetic.blocks_by_shared(256))
    yield "sm.registers", arithmetic.SM_REGISTERS
    yield from under("stage", a_kib=stage["A"] // 1024, b_kib=stage["B"] // 1024)
    yield "multicast.saves", 1 - arithmetic.multicast_share(256)
    yield from under(
        "stated.tflops",
        fig7=arithmetic.value(text, "tflops", variant=contenders.tile(256)),
        table2=arithmetic.value(table2, "tflops", variant=KEPT),
    )
    yield from under("waste", padded=arithmetic.padded(248), extra=arithmetic.extra(248), wasted=arithmetic.wasted(248))
    rates = arithmetic.useful_tflops(table3).loc[65536]
    few = rates.index[-1]
    yield from under("stated.useful", most=rates.iloc[0], least=rates.iloc[-1], density=few)
    yield "stated.useful.time", 1 / arithmetic.value(table3, "speedup_cublas", n=rates.name, density=few)
    df = arithmetic.recomputed(table1)
    row = df[(df["kernel"] == "cuSPARSE") & (df["n"] == arithmetic.N) & (df["density"] == 0)].iloc[0]
    off = df[~df["agrees"]]
    yield from under("headline", stated=row["stated"], ratio=row["ratio"], speedups=len(df), off=len(off))
    yield "headline.over", listed(dict.fromkeys(off["kernel"]))
    both = {v: arithmetic.value(text, "end_to_end", variant=v, size=65536) for v in (KEPT, "minference", "both")}
    yield from each("stated.end_to_end", both)
    yield "stated.end_to_end.together", arithmetic.side_by_side(both[KEPT], both["minference"])


def compiled(report: pd.DataFrame, text: pd.DataFrame) -> Iterator[Fact]:
    """Of the compile report: registers that TMA frees and that are moved."""
    here = report[report["target"] == HOPPER]
    most = here.groupby("variant")["registers"].max()
    yield "compiled.spilling", listed(dict.fromkeys(here.loc[here["spills"].astype(bool), "variant"]))
    yield from each("registers", {v: int(most[v]) for v in THREE})
    stated = text[text["quantity"] == "registers_freed"].iloc[0]
    yield from under("freed", here=int(most["opt1"] - most["opt2"]), low=stated["low"], high=stated["high"])
    yield from under("sm", registers=arithmetic.SM_REGISTERS)
    threads = 3 * arithmetic.WARPGROUP
    yield from under("start", threads=threads, registers=int(threads * most["opt3"]))


# ---------------------------------------------------------------- real matrices


def formats(df: pd.DataFrame | None) -> Iterator[Fact]:
    """What `conversions` measured: medians."""
    if df is None:
        return
    middle = df.median(numeric_only=True)
    columns = [c for c in df if c.endswith(("_ms", "_fill", "_fill_rcm"))]
    yield from each("format", {c: middle[c] for c in columns} | {"matrices": len(df)})


def matrices(df: pd.DataFrame | None) -> Iterator[Fact]:
    if df is None:
        return
    one = df.drop_duplicates("label")
    share = one["nnz"] / (one["m"].astype(float) * one["k"])
    yield from under("real", matrices=len(one), bell=df.loc[df["variant"] == BELL, "label"].nunique())
    yield from under("real.nnz", low=one["nnz"].min(), high=one["nnz"].max())
    yield from under("real.share", low=share.min(), high=share.max())


def ablation(df: pd.DataFrame | None, table2: pd.DataFrame) -> Iterator[Fact]:
    """What each step, each branch and each library is worth, beside what is stated."""
    if df is None:
        return
    over_bell = figures.means(df, contenders.STEPS, BELL)
    yield from each("over_bell", over_bell)
    theirs = arithmetic.shares(arithmetic.table2_speedups(table2))
    ours_ = arithmetic.shares(pd.Series(over_bell, dtype=float))
    for v in ours_.index:
        yield from under(f"step.{v}", here=ours_["factor"][v], stated=theirs["factor"][v])
    yield from each("share.difference", ours_["by difference"])
    yield from each("share.factor", ours_["by factor"])
    for name, shares in (("here", ours_), ("stated", theirs)):
        yield f"share.three.{name}", shares["by difference"].reindex(THREE).sum()
    for how in ("difference", "factor"):
        if len(ours_):
            yield f"share.largest.{how}", told(ours_[f"by {how}"].idxmax())
    branches = figures.means(df, BRANCHES, KEPT)
    yield from each("branch", branches)
    if branches:
        yield "branches.best", max(branches.values())
    libraries = (BELL, BSR, CSR, TRITON)
    yield from each("kept_over", {v: m for v in libraries for m in figures.means(df, [KEPT], v).values()})
    if {CSR, KEPT} <= set(df["variant"]):
        ahead = figures.speedups(df, [CSR], KEPT)["speedup"]
        yield from under("csr", ahead=(ahead > 1).sum(), matrices=len(ahead))


def left_out(experiment: str, absent: Mapping[tuple, str], df: pd.DataFrame | None) -> Iterator[Fact]:
    """Who has no number at how many matrices, and the first reason; absent: of `records.read_absent`."""
    if df is None:
        return
    by_variant: dict[str, dict[str, str]] = {}
    for (variant, label, *_), why in sorted(absent.items()):
        by_variant.setdefault(variant, {})[label] = why
    yield from under(f"left_out.{experiment}", contenders=len(by_variant), matrices=df["label"].nunique())
    yield from each(f"left_out.{experiment}.on", {variant: len(reasons) for variant, reasons in by_variant.items()})
    for variant, reasons in list(by_variant.items())[:1]:
        label, why = next(iter(reasons.items()))
        yield from under(f"left_out.{experiment}.first", who=told(variant), matrix=label, why=why)


# ---------------------------------------------------------------- counters and clocks


def counted(counters: Counters | None) -> Iterator[Fact]:
    """Why each step is faster, by the profile of gate_proj."""
    if counters is None:
        return
    steps = [v for v in contenders.STEPS if v in counters.variants]
    yield from each("busy", {v: counters.get(v, experiments.TENSOR) for v in steps})
    waits: dict[str, list[str]] = {}  # reason -> steps whose warps wait for it most
    for v in steps:
        waits.setdefault(counters.stall(v)[0], []).append(v)
    yield from each("waits", {reason: listed(of) for reason, of in waits.items() if reason})
    known = pd.Series({unit: counters.get(KEPT, metric) for unit, metric in UNITS.items()}).dropna()
    if len(known):
        yield from under("busiest", unit=known.idxmax(), share=known.max())


def l2_bound(counters: Counters | None, roofs: Mapping | None) -> Iterator[Fact]:
    """How near our last rung is to what L2 can move."""
    if counters is None or not roofs or "auto" not in counters.variants:
        return
    moved = counters.l2_gbps("auto")
    yield from under("l2", tbps=moved / 1e3, share=moved / roofs["l2_read"]["gbps"])


def traced(frame: pd.DataFrame | None) -> Iterator[Fact]:
    """The share of the time in which a thread block multiplies that it also loads."""
    if frame is not None:
        yield from each("overlap", timeline.overlap(frame))


# ---------------------------------------------------------------- tiles and layers


def tiles(df: pd.DataFrame | None) -> Iterator[Fact]:
    """The best width, and what the source's rule costs or gains."""
    if df is None:
        return
    rule = contenders.tile(arithmetic.chosen())
    of_width = df.groupby("variant")["tflops"].agg(records.geomean)
    each_ = df.pivot_table(index="label", columns="variant", values="tflops")
    if rule not in of_width:
        return
    best = of_width.idxmax()
    yield from under("tile", rule=arithmetic.chosen(), n=arithmetic.N, best=int(best.removeprefix("opt5_n")))
    yield from under("tile", best_over_rule=of_width[best] / of_width[rule])
    yield "tile.own_over_rule", records.geomean((each_.max(axis=1) / each_[rule]).dropna())
    yield "tile.widths", each_.idxmax(axis=1).nunique()


def gate(df: pd.DataFrame | None) -> Iterator[Fact]:
    """Speedups over dense cuBLAS on gate_proj, and from which sparsity on there are any."""
    if df is None or TORCH not in set(df["variant"]):
        return
    if KEPT in set(df["variant"]):
        over = figures.speedups(df, [KEPT], TORCH)
        for density, here in over.groupby("density", sort=False)["speedup"]:
            yield from under(f"gate.{sparsity(density)}", low=here.min(), high=here.max())
    yield from each("dense", figures.means(df, [DENSE], TORCH))
    crossing = {}
    for v in figures.present(df, (KEPT, TRITON, TUNED, "auto")):
        line = figures.speedups(df, [v], TORCH).groupby("density")["speedup"].agg(records.geomean)
        yield f"pays.densest.{v}", line.iloc[-1]
        yield "pays.sparsity", 1 - line.index.max()
        if even := figures.break_even(line):
            crossing[v] = 1 - even
    yield "pays.crossing", len(crossing)
    yield from each("pays.even", crossing)
    if "auto" in set(df["variant"]):
        yield from spread("auto_layer", figures.speedups(df, ["auto"], TORCH)["speedup"])
    each_over = {v: m for v in LIBRARIES for m in figures.means(df, ["auto"], v).values()}
    yield from each("auto_layer.over", each_over)


def layout(both: pd.DataFrame | None) -> Iterator[Fact]:
    """What the output costs in the order that a linear layer wants; both: of `figures.both_layouts`."""
    if both is not None:
        yield from each("layout", both.groupby("variant", sort=False)["ratio"].agg(records.geomean))


def ours(ladder: pd.DataFrame | None) -> Iterator[Fact]:
    """How far our last rung is ahead at the point of the ladder."""
    if ladder is not None:
        yield from each("auto_over", {v: m for v in LIBRARIES for m in figures.means(ladder, ["auto"], v).values()})


def blocks(df: pd.DataFrame | None) -> Iterator[Fact]:
    """Our last rung over Triton's kernel by the side of a block."""
    if df is None or not {"auto", TRITON} <= set(df["variant"]):
        return
    over = figures.speedups(df, ["auto"], TRITON)
    yield from each("side", {str(figures.side(x)): s for x, s in zip(over["label"], over["speedup"], strict=True)})
