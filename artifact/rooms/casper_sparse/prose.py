"""The chapter's sentences that hold numbers, as Markdown."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from artifact.drawing.cells import NO_COUNTERS
from artifact.measure import again, matrices, records
from artifact.measure.records import geomean
from artifact.rooms.casper_sparse import experiments, tables
from artifact.rooms.casper_sparse.experiments import BEST, POINT, Ceilings, Counters, mean, ratios
from kernels import casper_sparse as room

PUBLISHED = "warp_per_row"


def compiled(report: pd.DataFrame) -> str:
    df = tables.distinct(report)
    spilling = int(df["spills"].astype(bool).sum())
    return (
        f"{df['entry'].nunique()} instantiations for {', '.join(dict.fromkeys(report['target']))}: {len(df)} compilations, "
        f"{spilling or 'none'} of which spill. Below, the ones that N = {tables.N} takes: registers a thread on each target, static "
        "shared memory a block (the driver's own 1 KiB on sm_90a and later included), and what the disassembly for sm_90a holds."
    )


# ---------------------------------------------------------------- the three sweeps


def points(everything: pd.DataFrame) -> str:
    """How many there are, and which algorithm of the library is the baseline."""
    winners = everything.loc[everything["variant"] == BEST, "best_of"].value_counts()
    counts = ", ".join(f"`{v.removeprefix('cusparse_')}` at {n} points" for v, n in winners.items())
    return (
        f"{len(everything.drop_duplicates(POINT))} points, {len(room.VARIANTS)} variants of ours. The fastest algorithm of cuSPARSE "
        f"was {counts}."
    )


def in_cache(everything: pd.DataFrame, machine: Mapping) -> str:
    """At how many points B fits the L2 of the GPU: sizes that are ours, not the source's, decide that."""
    points = everything.drop_duplicates(POINT)
    fits = 4 * points["k"] * points["n"] <= machine["l2_bytes"]
    return (
        f"At {fits.sum()} of them, {fits.mean():.0%}, B fits the {machine['l2_bytes'] / 2**20:.0f} MiB of this GPU's L2, so that "
        "DRAM need not be busy. A claim on DRAM throughput is judged at sizes that are ours, and says so."
    )


def _told(everything: pd.DataFrame, experiment: str) -> str:
    r = ratios(everything, PUBLISHED, experiment)
    return f"{r.min():.2f}× to {r.max():.2f}×, geometric mean {geomean(r):.2f}×"


def wide(everything: pd.DataFrame) -> str:
    r = ratios(everything, PUBLISHED, "wide")
    n = r.index.get_level_values("n")
    first, last = (geomean(r[n == size]) for size in (n.min(), n.max()))
    if first > 1 > last:
        trend = (
            "It is *ahead* at small N and falls behind as N grows: the trend that the source describes is there, and stronger, "
            "its range only in part."
        )
    elif first > last:
        trend = "It falls as N grows, as the source says."
    else:
        trend = "It does not fall as N grows."
    return (
        f"**Measured:** the published kernel reaches {_told(everything, 'wide')} of cuSPARSE: {first:.2f}× at N = {n.min()} and "
        f"{last:.2f}× at N = {n.max()}. {trend}"
    )


def square(everything: pd.DataFrame) -> str:
    worse = mean(everything, PUBLISHED, "square") < mean(everything, PUBLISHED, "wide")
    which = (
        "On this GPU square is the *worse* of the two shapes, at both of its ends: the smallest has too few rows to fill the GPU "
        "with one warp each, the largest have a B that L2 cannot hold."
        if worse
        else "Square is the better of the two shapes, as stated."
    )
    return (
        f"**Measured:** {_told(everything, 'square')} for the published kernel, against {_told(everything, 'wide')} in the wide "
        f"sweep. {which}"
    )


def tall(everything: pd.DataFrame) -> str:
    ahead = (ratios(everything, PUBLISHED, "tall") > 1).mean()
    return (
        f"**Measured:** {_told(everything, 'tall')}. Here B is only {4 * 2048 * 256 / 2**20:.0f} MiB and never leaves L2, and the "
        f"published kernel beats the library at {ahead:.0%} of the points."
    )


# ---------------------------------------------------------------- what limits it


def gather(everything: pd.DataFrame, ceilings: Ceilings) -> str:
    """What a gather could do at most, and what the published kernel draws."""
    df = everything[everything["variant"] == PUBLISHED]
    drawn = (df["requested_bytes"] / df["median_us"] / 1e6).groupby(df["experiment"], sort=False)
    most = ", ".join(f"{value:.1f} TB/s ({name})" for name, value in drawn.max().items())
    return (
        f"For every non-zero a gather reads 4 bytes of B for each 2 FLOP. From L2, which delivers {ceilings.l2_gbps / 1e3:.1f} TB/s "
        f"here, that caps any kernel without reuse closer to the cores at **{ceilings.l2_gbps / 2e3:.1f} TFLOP/s**; from shared "
        f"memory ({ceilings.shared_gbps / 1e3:.1f} TB/s) the cap would be {ceilings.shared_gbps / 2e3:.1f}. The published kernel "
        f"draws at most {most}."
    )


#: Variants and shapes (M, N) that `three_limits` names besides the widest one.
LARGEST = 16384
NAMED = ((PUBLISHED, LARGEST, LARGEST), ("cusparse_alg3", LARGEST, LARGEST))


def three_limits(counters: Counters | None) -> str:
    """Which memory is full; one sentence where its counters were not recorded."""
    if counters is None:
        return NO_COUNTERS
    dense, table = counters.most_dense, counters.table
    wide_n = dense.loc[dense["m"] == 4096, "n"].max()
    if not counters.has([*NAMED, (PUBLISHED, 4096, wide_n), ("l2_panels", 4096, wide_n)]):
        return "Of the shapes that this section is about, only some have hardware counters; `make profile` writes them."

    def at(variant: str, m: int, n: int, column: str) -> str:
        return f"{counters.at(variant, m, n, column):.0f}%"

    ordered = dense[dense["variant"].isin(["l2_panels", "in_flight", "cusparse_alg2"])]
    tiles = dense[dense["variant"] == "shared_tiles"]
    few = table[(table["m"] == 1024) & (table["variant"] == PUBLISHED)]["occupancy"].max()
    return f"""
The hardware counters tell three limits apart (Nsight Compute, S = {100 * table["density"].max():g} %, caches flushed; per cent of each
unit's peak, or of the accesses):

- **L2.** The ordered gathers (`l2_panels`, `in_flight` and cuSPARSE's `alg2`) keep it at {ordered["L2"].min():.0f} to {ordered["L2"].max():.0f}% with DRAM at
  {ordered["DRAM"].max():.0f}% or less. `shared_tiles` leaves it at {tiles["L2"].max():.0f}% or less and fills L1 and shared memory to {tiles["L1 and shared"].min():.0f} to
  {tiles["L1 and shared"].max():.0f}%.
- **DRAM, for rows of B that L2 has lost.** At N = {wide_n} only {at(PUBLISHED, 4096, wide_n, "L2 hits")} of the published kernel's L2 accesses hit, where
  {at("l2_panels", 4096, wide_n, "L2 hits")} of those of `l2_panels` do, and DRAM runs at {at(PUBLISHED, 4096, wide_n, "DRAM")} instead of {at("l2_panels", 4096, wide_n, "DRAM")}. In the largest square
  the same happens to the published kernel ({at(PUBLISHED, LARGEST, LARGEST, "DRAM")}) and to cuSPARSE's `alg3` ({at("cusparse_alg3", LARGEST, LARGEST, "DRAM")}).
- **Too few warps.** With M = 1024 the published kernel fills {few:.0f}% of the GPU's warp slots.
"""


# ---------------------------------------------------------------- the ladder


def ideas(everything: pd.DataFrame, report: pd.DataFrame, counters: Counters | None, sms: int) -> str:
    """What came of each rung. report: the room's compile report."""

    def x(variant: str, baseline: str, experiment: str) -> str:
        return f"{mean(everything, variant, experiment, baseline):.2f}×"

    def of_published(variant: str) -> str:
        """Wide, square and tall."""
        a, b, c = (1 / mean(everything, PUBLISHED, e, variant) for e in ("wide", "square", "tall"))
        return f"{a:.2f}×, {b:.2f}×\n  and {c:.2f}×"

    entries = tables.used()
    registers = tables.on_hopper(report)["registers"]
    hits, more = _second_cost(counters)
    median, most = _regret(everything)
    return f"""
What came of each idea, against the rung that it changes (the predictions stand in the figure):

- **`scalar`** (4-byte loads): {of_published("scalar")} of the published kernel (wide, square, tall). `float4` is what the source got most from: as many
  loads in flight carry four times the bytes.
- **`no_staging`** (no shared memory): {of_published("no_staging")} of the published kernel. Staging pays where rows are long; where a row fits one chunk, L1
  serves the one address that all lanes read just as well.
- **`any_n`**: {x("any_n", PUBLISHED, "square")}; what it adds is every N (below).
- **`column_tiles`**: {x("column_tiles", "any_n", "wide")} in the wide sweep, {x("column_tiles", "any_n", "square")} and {x("column_tiles", "any_n", "tall")} in the others. Two
  tiles a warp do give more loads in flight, but neighbouring blocks now cover *different* columns of the same rows, so the
  blocks in flight touch all of B at once.
- **`l2_panels`**: {x("l2_panels", "column_tiles", "wide")} over that from the order of the blocks alone, {_at_widest(everything):.2f}× over the published kernel at the
  largest N.
- **`rows_per_warp`**: {x("rows_per_warp", "l2_panels", "wide")} over `l2_panels` (wide), {x("rows_per_warp", "l2_panels", "tall")} (tall). With M = 4096 the
  prediction counted capacity and forgot reuse: an SM sees about {4096 // sms} rows of a panel before it is done, too few to meet the same row
  of B again. In the tall sweep the reuse is there ({hits} of the reads hit L1), and another cost with it: every narrow panel
  reads A again, {more} from DRAM, and four rows of different length wait for each other in one warp.
- **`in_flight`**: {x("in_flight", "rows_per_warp", "square")} over `rows_per_warp` (square), {x("in_flight", "rows_per_warp", "tall")} (tall). A whole warp to a row at
  {registers[entries["in_flight"]]:.0f} registers, where `l2_panels` takes {registers[entries["l2_panels"]]:.0f}: more warps fit, and the gather runs at what L2 can deliver.
- **`split_rows`**: {x("split_rows", "in_flight", "square")} on these matrices; its time comes with real ones.
- **`shared_tiles`**: {_at_densest(everything):.2f}× over `in_flight` at the largest S. The gather leaves L2 for shared memory, and then the
  shared-memory pipe itself is what is full (counters above), with eight non-zeros a row and tile rounded up and rows of a warp
  waiting for the longest. At small S the staging of tiles that few rows use eats the gain. A first version lost to the gather
  that it should beat: a C++ struct copy had turned each 16-byte load from shared memory into four 4-byte ones, which the
  disassembly shows and the source does not.
- **`auto`** tries {len(room.TRIED)} of the others on the matrix at hand and keeps the fastest: {abs(median):.1%} behind the best of them at the median, {most:.0%} at worst.
  In these records it timed them with warm caches; the room's tuner times as the harness does, with cold ones.
"""


def _at_widest(everything: pd.DataFrame) -> float:
    df = experiments.of(everything, "wide")
    return geomean(records.speedup(df[df["n"] == df["n"].max()], "l2_panels", PUBLISHED))


def _at_densest(everything: pd.DataFrame) -> float:
    dense = everything[everything["density"] == everything["density"].max()]
    return geomean(records.speedup(dense, "shared_tiles", "in_flight"))


def _regret(everything: pd.DataFrame) -> tuple[float, float]:
    """How far `auto` is behind the best of what it tries, at the median and at most."""
    by_point = everything[everything["variant"].isin(room.TRIED)].groupby(POINT)["median_us"].min()
    chosen = everything[everything["variant"] == "auto"].set_index(POINT)["median_us"]
    regret = chosen / by_point - 1
    return regret.median(), regret.max()


def _second_cost(counters: Counters | None) -> tuple[str, str]:
    """Of rows_per_warp in the tall sweep: L1's hits, and what it reads of A from DRAM; words without counters."""
    if counters is None:
        return "many", "far more"
    m = counters.most_dense["m"].max()
    if not counters.has([("rows_per_warp", m, 256), ("in_flight", m, 256)]):
        return "many", "far more"
    ratio = counters.read_from_dram("rows_per_warp", m) / counters.read_from_dram("in_flight", m)
    hits = counters.at("rows_per_warp", m, 256, "L1 hits")
    return f"{hits:.0f}%", f"{ratio:.1f} times the bytes of `in_flight`"


# ---------------------------------------------------------------- any N, real matrices, accuracy, repetition


def ragged(table: pd.DataFrame) -> str:
    """table: `tables.ragged`."""
    behind = table.loc[table["auto"] < 1, "N"].tolist()
    came = "`auto` is ahead at all of them."
    if behind:
        least = table.loc[table["auto"].idxmin()]
        came = (
            f"`auto` is behind the library at {len(behind)} of {len(table)} (N = {', '.join(map(str, behind))}), most at N = "
            f"{least['N']:.0f} with {least['auto']:.2f}×: no row of B but every fourth starts where a vector load may, so every load "
            "is 4 bytes wide, and no rung of ours is made for that."
        )
    return f"Speedup over the fastest cuSPARSE algorithm at odd N, M = K = 4096, S = 1 %. {came}"


def real(table: pd.DataFrame | None) -> str:
    """table: `tables.real`; None says how to measure them."""
    if table is None:
        return (
            f"Real matrices were not measured here. Set `{matrices.VARIABLE}` to a folder that holds the matrices that "
            f"`artifact/measure/{matrices.LIST.name}` lists, and measure again."
        )
    means = {v: geomean(table[v]) for v in (PUBLISHED, "split_rows", "auto")}
    least = table.loc[table["auto"].idxmin()]
    return (
        f"{len(table)} matrices of the SuiteSparse collection with random values, N = {experiments.REAL_N}: speedup over the "
        f"fastest cuSPARSE algorithm. Geometric mean {means[PUBLISHED]:.2f}× for the published kernel, {means['split_rows']:.2f}× "
        f"once long rows are split, {means['auto']:.2f}× for `auto`, which is behind the library on {(table['auto'] < 1).sum()} of "
        f"them (least: {least['matrix']}, {least['auto']:.2f}×)."
    )


def accuracy(everything: pd.DataFrame) -> str:
    error = tables.errors(everything)["relative error"]
    ours = error[[v for v in error.index if v in room.VARIANTS]].max()
    library = [v for v in error.index if v not in room.VARIANTS]
    better = [f"`{v.removeprefix('cusparse_')}`" for v in library if error[v] < ours / 2]
    text = f"All stay below {error.max() * 1.05:.1e}. "
    if not better:
        return text
    return f"{text}cuSPARSE's {', '.join(better)} lose several times less than one accumulator a column does."


def repeats(everything: pd.DataFrame, second: pd.DataFrame | None) -> str:
    """How far a second run is off; a sentence where there is none."""
    if second is None:
        return "There is no second run of these records."
    off = again.apart(everything, second)
    return (
        f"Over all {len(off)} measurements the second run differs from the first by {off.median():.1%} at the median, "
        f"{off.quantile(0.9):.1%} at the ninetieth percentile and {off.max():.0%} at most."
    )


def abstract_or_section(everything: pd.DataFrame, verdicts: Mapping[str, str]) -> str:
    """verdicts: of the room's claims, by id."""
    ahead = pd.concat(list(experiments.by_sweep(everything, PUBLISHED).values()))
    default = pd.concat(list(experiments.by_sweep(everything, PUBLISHED, "cusparse_default").values()))
    return f"""
**Abstract or section V?** The abstract's “consistently achieves speedups” is *{verdicts["abstract-speedup"]}*, section V's “cuSPARSE
is consistently faster in all tested scenarios” is *{verdicts["summary-cusparse-faster"]}*: the published kernel is ahead at
{(ahead > 1).mean():.0%} of the points of this GPU, most of all for tall matrices, and behind at the others. The source does not say which
algorithm of cuSPARSE it ran; against the default one the kernel is ahead at {(default > 1).mean():.0%} of the points (geometric mean
{geomean(default):.2f}×, against the fastest {geomean(ahead):.2f}×). What decides is the number of rows, the non-zeros in them, and whether L2 holds B.
"""
