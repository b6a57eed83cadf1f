"""The chapter's sentences that hold numbers, as Markdown; each says "not measured" where there are none."""

from __future__ import annotations

import pandas as pd

from artifact.drawing.cells import NO_COUNTERS
from artifact.drawing.compiled import HOPPER
from artifact.drawing.words import listed
from artifact.measure import records
from artifact.rooms.async_sparse import arithmetic, contenders, experiments, figures, timeline
from artifact.rooms.async_sparse.contenders import (
    BELL,
    BSR,
    CSR,
    DENSE,
    KEPT,
    TORCH,
    TRITON,
    TUNED,
    told,
)
from artifact.rooms.async_sparse.experiments import Counters

HERE = "Not measured on this GPU yet"
NOT_MEASURED = f"{HERE}: the kernels are compiled, and `make measure` on a machine with a GPU fills this page."
#: The steps that the source adds up, and which one is nothing by its own word.
THREE = ("opt1", "opt2", "opt3")


def mean(df: pd.DataFrame, variant: str, baseline: str) -> float | None:
    """The geometric mean of a speedup over the points that both have; None where there are none."""
    if not {variant, baseline} <= set(df["variant"]):
        return None
    return records.geomean(figures.speedups(df, [variant], baseline)["speedup"])


def _x(value: float | None) -> str:
    return "not measured" if value is None else f"{value:.2f}×"


# ---------------------------------------------------------------- the source, by its own numbers


def claimed(table2: pd.DataFrame, table3: pd.DataFrame, text: pd.DataFrame) -> str:
    """What the source claims of BCSR."""
    over = arithmetic.table2_speedups(table2)
    at = table3[(table3["quantity"] == "speedup_range") & (table3["density"] == 0.1)].iloc[0]
    share = arithmetic.value(text, "share_of_gain")
    gains = ", ".join(f"{told(v)} {arithmetic.value(text, 'gain', variant=v):+.2f}" for v in (*THREE, "opt4"))
    losses = listed(f"{told(v)} {arithmetic.value(text, 'gain', variant=v):+.2f}" for v in ("opt6", "opt7"))
    return (
        f"Over cuSPARSE's Blocked-ELL the kernel goes from {over['opt0']:.2f} to {over[KEPT]:.2f}: {gains}. Three features make {share:.0%} of "
        f"the gain, so the source. What dense kernels profit from costs here: {losses}. On a pruned layer of Qwen2.5-7B, 90% of its "
        f"blocks gone, it is {at['low']:.2f} to {at['high']:.2f} times as fast as dense cuBLAS."
    )


def own_arithmetic(table1: pd.DataFrame, table2: pd.DataFrame, table3: pd.DataFrame, text: pd.DataFrame) -> str:
    """What the source's own numbers say of each other, before anything is measured."""
    implied = arithmetic.implied(table2)
    ladder = implied[[*THREE, "opt4", KEPT, "opt6"]]
    bell = arithmetic.value(table2, "tflops", variant=BELL, matrices=414)
    steps = arithmetic.shares(arithmetic.table2_speedups(table2))
    first = recomputed_headline(table1)
    both = {v: arithmetic.value(text, "end_to_end", variant=v, size=65536) for v in (KEPT, "minference", "both")}
    together = arithmetic.side_by_side(both[KEPT], both["minference"])
    rates = arithmetic.useful_tflops(table3).loc[65536]
    wide = arithmetic.value(text, "tflops", variant=contenders.tile(256))
    kept = arithmetic.value(table2, "tflops", variant=KEPT)
    return f"""
- **Table II has three rates of cuSPARSE.** Over one set of matrices a ratio of geometric means is the geometric mean of the ratios. The
  speedups of the ladder are over {ladder.min():.2f} to {ladder.max():.2f} TFLOP/s, that of TorchAO over {implied[TRITON]:.2f}, and the row itself says {bell:.2f}.
- **Multicast is not compared.** Its {arithmetic.table2_speedups(table2)["opt7"]:.2f} is over {len_of(table2, "opt7")} matrices, on the others it does not launch; the {arithmetic.table2_speedups(table2)[KEPT]:.2f} that it is
  to regress from is over {len_of(table2, KEPT)}.
- **What is the largest step depends on the sum.** By difference warp specialisation is {steps["by difference"]["opt3"]:.0%} of the gain; by factor, where what comes first is
  not made small by what comes after, WGMMA is {steps["by factor"]["opt1"]:.0%} and warp specialisation {steps["by factor"]["opt3"]:.0%}.
- **One block fits an SM with `setmaxnreg` as well.** {listed(arithmetic.REGISTERS)} registers for {arithmetic.WARPGROUP} threads each are {arithmetic.WARPGROUP * sum(arithmetic.REGISTERS):,} of {arithmetic.SM_REGISTERS:,}, and {arithmetic.STAGES} stages of
  {sum(arithmetic.stage_bytes(256).values()) // 1024} KiB fill the shared memory: {arithmetic.blocks_by_registers()} and {arithmetic.blocks_by_shared(256)} blocks. The source moves registers to have more than one.
- **Multicast can save little.** A stage is {arithmetic.stage_bytes(256)["A"] // 1024} KiB of A and {arithmetic.stage_bytes(256)["B"] // 1024} KiB of B; to read A once for two blocks saves {1 - arithmetic.multicast_share(256):.1%} of what L2 delivers.
- **The same kernel has two rates.** With the tile that the text selects Fig. 7 has {wide:.2f} TFLOP/s and Table II {kept:.2f}.
- **Waste is counted two ways.** With WGMMA_N = 248 a row of {arithmetic.N} columns becomes {arithmetic.padded(248)}: {arithmetic.extra(248):.0%} more work, {arithmetic.wasted(248):.0%} of it in vain. The text says that the first
  number is the second.
- **Throughput does not improve with sparsity.** By Table III it falls from {rates.iloc[0]:.0f} to {rates.iloc[-1]:.0f} TFLOP/s at N = {rates.name:,}: {rates.index[-1]:.0%} of the blocks take
  {1 / arithmetic.value(table3, "speedup_cublas", n=rates.name, density=rates.index[-1]):.0%} of the dense product's time.
- **The headline is over another rate.** {first}
- **Two savings do not stack to more than both.** {both["minference"]:.2f}× and {both[KEPT]:.2f}× alone, in parts of the model that do not overlap, give {together:.2f}×
  together; the abstract says {both["both"]:.2f}×.
"""


def recomputed_headline(table1: pd.DataFrame) -> str:
    """The abstract's speedup of WCSR over cuSPARSE, by the rates of the same table."""
    df = arithmetic.recomputed(table1)
    row = df[(df["kernel"] == "cuSPARSE") & (df["n"] == arithmetic.N) & (df["density"] == 0)].iloc[0]
    off = df[~df["agrees"]]
    return (
        f"WCSR over cuSPARSE is {row['stated']:.2f}× in the abstract and {row['ratio']:.2f}× by the rates of Table I; of its {len(df)} speedups {len(off)} are "
        f"none of what its rounded rates allow, all over {listed(dict.fromkeys(off['kernel']))}."
    )


def len_of(table2: pd.DataFrame, variant: str) -> int:
    return int(table2.loc[table2["variant"] == variant, "matrices"].iloc[0])


def compiled(report: pd.DataFrame, text: pd.DataFrame) -> str:
    """Registers that TMA frees and that are moved, by what compiles here; report: the room's compile report."""
    here = report[report["target"] == HOPPER]
    most = here.groupby("variant")["registers"].max()
    stated = text[text["quantity"] == "registers_freed"].iloc[0]
    spilling = listed(dict.fromkeys(here.loc[here["spills"], "variant"]))
    return (
        f"{'Nothing spills' if not spilling else f'**Spilling: {spilling}**'}. `opt1` takes {most['opt1']} registers a thread and `opt2` {most['opt2']}: letting TMA compute the "
        f"addresses frees {most['opt1'] - most['opt2']} (the paper's background: {stated['low']:.0f} to {stated['high']:.0f}). From `opt3` on a block starts with {most['opt3']} for each of its "
        f"{3 * arithmetic.WARPGROUP} threads, {3 * arithmetic.WARPGROUP * most['opt3']:,} of an SM's {arithmetic.SM_REGISTERS:,}, before any are moved."
    )


# ---------------------------------------------------------------- the matrices


def matrices(df: pd.DataFrame | None, table2: pd.DataFrame) -> str:
    """Which set the means are over."""
    if df is None:
        return f"{HERE}: real matrices need the folder that `SPARSITY_MATRICES` names."
    one = df.drop_duplicates("label")
    share = one["nnz"] / (one["m"].astype(float) * one["k"])
    least = (df[df["variant"] == BELL]["label"]).nunique()
    return (
        f"**{len(one)} matrices**, {one['nnz'].min():,} to {one['nnz'].max():,} non-zeros, {share.min():.3%} to {share.max():.1%} of all elements, reordered by "
        f"reverse Cuthill-McKee as in the source; Blocked-ELL fits the memory for {least} of them. The source's are {len_of(table2, KEPT)} of SuiteSparse, "
        "another set: ratios between kernels can be held against its own, means of TFLOP/s cannot. Who has them gets them here, by "
        "`python -m artifact matrices --room async_sparse --download` and `make measure`."
    )


# ---------------------------------------------------------------- the ablation


def ablation(df: pd.DataFrame | None, table2: pd.DataFrame) -> str:
    """What each step brought here, beside what is stated."""
    if df is None or not {"opt0", "opt4", BELL} <= set(df["variant"]):
        return f"{HERE}."
    speedups = figures.speedups(df, contenders.STEPS, BELL).groupby("variant")["speedup"]
    here, stated = speedups.agg(records.geomean), arithmetic.table2_speedups(table2)
    ours, theirs = arithmetic.shares(here), arithmetic.shares(stated)
    three = [s["by difference"].reindex(THREE).sum() for s in (theirs, ours)]
    largest = {kind: ours[kind].idxmax() for kind in ("by difference", "by factor")}
    factors = "; ".join(f"{told(v)} {ours['factor'][v]:.2f}× (stated {theirs['factor'][v]:.2f}×)" for v in ours.index)
    lost = ours["by difference"].reindex(THREE).loc[lambda share: share < 0]
    losing = "".join(f", though {told(v)} takes {-share:.0%} away" for v, share in lost.items())
    return (
        f"Step by step: {factors}. The three features make {three[1]:.0%} of the gain from opt0 to opt4 (stated {three[0]:.0%}){losing}. The "
        f"largest step is {told(largest['by difference'])} by difference and {told(largest['by factor'])} by factor."
    )


def branches(df: pd.DataFrame | None) -> str:
    """What persistence, dynamic schedules and multicast cost or bring here, on real matrices."""
    if df is None:
        return f"{HERE}."
    found = {v: m for v in contenders.BRANCHES if (m := mean(df, v, KEPT)) is not None}
    if not found:
        return f"{HERE}."
    ahead = [told(v) for v, m in found.items() if m > 1]
    end = f"Ahead of it: {listed(ahead)}." if ahead else "None is ahead of it, as the source says."
    each = listed(f"{told(v)} {m:.2f}×" for v, m in found.items())
    return f"Over {told(KEPT)}, geometric means on the same matrices: {each}. {end}"


#: What a warp waits for, by the profiler's name.
WAITS = {
    "barrier": "a barrier of the thread block",
    "long_scoreboard": "data from L2 or DRAM (long scoreboard)",
    "mio_throttle": "room in the queue for shared memory (mio throttle)",
}


def counted(counters: Counters | None) -> str:
    """Why each step is faster, by the profile of gate_proj."""
    if counters is None or not {"opt1", "opt2", KEPT} <= set(counters.variants):
        return NO_COUNTERS
    steps = [v for v in contenders.STEPS if v in counters.variants]
    busy = listed(f"{counters.get(v, experiments.TENSOR):.0f}% in {v}" for v in steps)
    waits: dict[str, list[str]] = {}  # reason -> steps whose warps wait for it most
    for v in steps:
        if reason := counters.stall(v)[0]:
            waits.setdefault(reason, []).append(v)
    why = "; ".join(f"in {listed(of)} for {WAITS.get(r, r)}" for r, of in waits.items())
    why = why and f" Warps wait most {why}."
    bound = {
        "the tensor cores": counters.get(KEPT, experiments.TENSOR),
        "L2": counters.get(KEPT, experiments.L2),
        "DRAM": counters.get(KEPT, experiments.DRAM),
    }
    known = {unit: value for unit, value in bound.items() if value == value}
    most = max(known, key=known.get, default="")
    end = (
        f" Of the units, {most} {'are' if most.endswith('s') else 'is'} busiest under {KEPT}, {known[most]:.0f}%."
        if most
        else ""
    )
    return f"On gate_proj, a tenth of its blocks, the tensor cores are busy {busy} of the time.{why}{end}"


def l2_bound(counters: Counters | None, roofs: dict | None) -> str:
    """How near our last rung is to what L2 can move."""
    if counters is None or not roofs or "auto" not in counters.variants:
        return NO_COUNTERS
    moved, most = counters.l2_gbps("auto"), roofs["l2_read"]["gbps"]
    return (
        f"At the point of the ladder {moved / 1e3:.1f} TB/s pass L2 under `auto`, by the counters, {moved / most:.0%} of the most that a loop of reads "
        "reached. So what is left is to move fewer bytes. Reading A once for two blocks of a cluster, by multicast, does "
        "not pay: it should save a twentieth of the bytes, but the two wait for each other, and tiles must be dealt "
        "out beforehand instead of claimed."
    )


def traced(frame: pd.DataFrame | None) -> str:
    """What the clocks of the kernels say of loading and multiplying at once."""
    if frame is None:
        return f"No kernel wrote a timeline on this GPU yet (`{timeline.TRACE}` beside the records)."
    shares = timeline.overlap(frame)
    each = listed(f"{share:.0%} in {told(v)}" for v, share in shares.items())
    return f"Of the time in which a thread block multiplies it also loads: {each}."


# ---------------------------------------------------------------- tiles


def tiles(df: pd.DataFrame | None) -> str:
    """The best width, and what the source's rule costs or gains."""
    if df is None:
        return f"{HERE}."
    mean_of = df.groupby("variant")["tflops"].agg(records.geomean)
    mean_of = mean_of.reindex([t for t in map(contenders.tile, contenders.WIDTHS) if t in mean_of.index])
    if contenders.tile(arithmetic.chosen()) not in mean_of.index:
        return f"{HERE} with the width that the rule chooses."
    rule = arithmetic.chosen()
    best = int(mean_of.idxmax().removeprefix("opt5_n"))
    each = df[df["variant"].isin(mean_of.index)].pivot_table(index="label", columns="variant", values="tflops")
    lost = records.geomean((each.max(axis=1) / each[contenders.tile(rule)]).dropna())
    winners = each.idxmax(axis=1).value_counts()
    beside = (
        "which is the best mean as well"
        if best == rule
        else f"the best mean is at {best}, {mean_of.max() / mean_of[contenders.tile(rule)]:.2f}× of it"
    )
    own = f"{len(winners)} different widths" if len(winners) > 1 else "the same width"
    return (
        f"The rule chooses WGMMA_N = {rule} for N = {arithmetic.N}, {beside}. Matrix by matrix the best is {own}; with each one's own "
        f"the geometric mean would be {lost:.2f}× of the rule's."
    )


# ---------------------------------------------------------------- gate_proj


def gate(df: pd.DataFrame | None, table3: pd.DataFrame) -> str:
    """Speedups over dense cuBLAS beside those of Table III."""
    if df is None or not {KEPT, TORCH} <= set(df["variant"]):
        return f"{HERE}."
    stated = table3[table3["quantity"] == "speedup_range"].set_index("density")
    ours = figures.speedups(df, [KEPT], TORCH)
    parts = []
    for d in (0.2, 0.1, 0.05, 0.01):
        here = ours.loc[ours["density"] == d, "speedup"]
        if len(here):
            parts.append(
                f"at {1 - d:.0%} sparsity {here.min():.2f} to {here.max():.2f} (stated {stated['low'][d]:.2f} to {stated['high'][d]:.2f})"
            )
    other = mean(df, DENSE, TORCH)
    best = f" cuBLASLt's best algorithm is {other:.2f}× of what torch.mm gets." if other else ""
    return f"The kernel that the source keeps, over dense cuBLAS: {'; '.join(parts)}.{best}"


def pays(df: pd.DataFrame | None) -> str:
    """From which share of blocks on sparse is faster than dense."""
    if df is None or TORCH not in set(df["variant"]):
        return f"{HERE}."
    parts = []
    for v in (KEPT, TRITON, TUNED, "auto"):
        if v not in set(df["variant"]):
            continue
        line = figures.speedups(df, [v], TORCH).groupby("density")["speedup"].agg(records.geomean)
        even = figures.break_even(line)
        if even:
            parts.append(f"{told(v)} from {1 - even:.0%} sparsity on")
        elif line.iloc[-1] > 1:
            parts.append(f"{told(v)} already at {1 - line.index.max():.0%}, {line.iloc[-1]:.2f}×")
        else:
            parts.append(f"{told(v)} at none of them")
    return f"Sparse is faster than dense, on the geometric mean over N: {'; '.join(parts)}." if parts else f"{HERE}."


def layout(both: pd.DataFrame | None) -> str:
    """What the output costs in the order that a linear layer wants; both: of `figures.both_layouts`."""
    if both is None:
        return f"{HERE} in both layouts."
    text = listed(f"{told(v)} {records.geomean(rows['ratio']):.2f}×" for v, rows in both.groupby("variant", sort=False))
    return (
        "The source writes C row-major, features × tokens; the next layer reads tokens × features. Time in the layer's order over that in the "
        f"source's: {text}."
    )


# ---------------------------------------------------------------- baselines, ours


def left_out(absent: dict[tuple, str], df: pd.DataFrame | None) -> str:
    """Who has no number at which matrix, and why; absent: of `records.read_absent`."""
    if df is None or not absent:
        return ""
    matrices = df["label"].nunique()
    by_variant: dict[str, dict[str, str]] = {}
    for (variant, label, *_), why in sorted(absent.items()):
        by_variant.setdefault(variant, {})[label] = why
    text = listed(f"{told(variant)} on {len(reasons)} of {matrices}" for variant, reasons in by_variant.items())
    variant, reasons = next(iter(by_variant.items()))
    label, why = next(iter(reasons.items()))
    return (
        "Left out, because the product is wrong, the library refuses, or blocks are too many: "
        f"{text}. The first, {told(variant)} on {label}: {why}."
    )


def baselines(df: pd.DataFrame | None) -> str:
    """What the source left out: cuSPARSE's CSR and BSR on the same matrices."""
    if df is None or KEPT not in set(df["variant"]):
        return f"{HERE}."
    parts = [f"{told(v)} {_x(mean(df, KEPT, v))}" for v in (BELL, BSR, CSR, TRITON)]
    text = f"{told(KEPT)} over each, geometric means on the same matrices: {', '.join(parts)}."
    if CSR in set(df["variant"]):
        ahead = figures.speedups(df, [CSR], KEPT)["speedup"]
        text += f" CSR, which multiplies non-zeros alone, is ahead on {(ahead > 1).sum()} of {len(ahead)} matrices."
    return text


def ours(ladder: pd.DataFrame | None, gate: pd.DataFrame | None) -> str:
    """How far our last rung is ahead."""
    if ladder is None or "auto" not in set(ladder["variant"]):
        return f"{HERE}."
    parts = [
        f"{_x(mean(ladder, 'auto', v))} over {told(v)}"
        for v in (KEPT, TRITON, TUNED, TORCH)
        if v in set(ladder["variant"])
    ]
    text = f"`auto` at the point of the ladder: {listed(parts)}."
    if gate is not None and {"auto", TORCH} <= set(gate["variant"]):
        over = figures.speedups(gate, ["auto"], TORCH)["speedup"]
        text += f" Over all of gate_proj it is {over.min():.2f}× to {over.max():.2f}× of dense cuBLAS."
    return text


def blocks(df: pd.DataFrame | None) -> str:
    """Other sides of a block."""
    if df is None or not {"auto", TRITON} <= set(df["variant"]):
        return f"{HERE}."
    over = figures.speedups(df, ["auto"], TRITON)
    each = listed(
        f"{s:.2f}× with blocks of {figures.side(x)}" for x, s in zip(over["label"], over["speedup"], strict=True)
    )
    return f"`auto` over Triton's kernel: {each}."


def in_short(
    df: pd.DataFrame | None,
    tile: pd.DataFrame | None,
    gate: pd.DataFrame | None,
    table2: pd.DataFrame,
) -> str:
    """The chapter in a few lines."""
    if all(x is None for x in (df, tile, gate)):
        return NOT_MEASURED
    points = []
    if df is not None and {KEPT, BELL} <= set(df["variant"]):
        stated = arithmetic.table2_speedups(table2)[KEPT]
        points.append(
            f"The source's kernel is {_x(mean(df, KEPT, BELL))} over Blocked-ELL on the matrices at hand, {stated:.2f}× stated on its own."
        )
        points.append(branches(df))
    if tile is not None:
        points.append(tiles(tile))
    if gate is not None:
        points.append(pays(gate))
        points.append(ours(gate, None).replace("at the point of the ladder", "over gate_proj, geometric means"))
    return "\n".join(f"- {point}" for point in points)
