"""Sentences on the tuned family: against the libraries, at any size, in FP16, and the chapter in short."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
import pandas as pd

from artifact import baselines
from artifact.drawing.words import cube, listed, shape
from artifact.measure.ceilings import TENSOR_FLOP_PER_CLOCK
from artifact.measure.records import geomean
from artifact.rooms.tensor_core_24 import epilogue as epilogue_
from artifact.rooms.tensor_core_24 import variants
from artifact.rooms.tensor_core_24.experiments import (
    CLOCK,
    REQUESTS,
    SECTORS,
    SHARED,
    TENSOR,
    TIME,
    TO_SM,
    Ceilings,
    Counters,
    Ladder,
    Profile,
    by_size,
    wide,
)
from artifact.rooms.tensor_core_24.prose.published_kernel import Clocks, Share
from artifact.rooms.tensor_core_24.sass import Published
from kernels.tensor_core_24 import family

#: Over cuSPARSELt's best, from the work of 4096³ on.
AIM = 1.10
LARGE = 2 * 4096**3  # FLOP

# ---------------------------------------------------------------- against the libraries


@dataclass(frozen=True)
class Speedups:
    """Of `auto`, by (m, n, k): over cuSPARSELt's best algorithm and its default, and over dense cuBLASLt."""

    best: pd.Series
    default: pd.Series
    dense: pd.Series

    @property
    def large(self) -> pd.Series:
        """Over the best, from the work of 4096³ on."""
        return self.best[self._flop >= LARGE]

    @property
    def small(self) -> pd.Series:
        return self.best[self._flop < LARGE]

    @property
    def below_aim(self) -> pd.Series:
        return self.large[self.large < AIM]

    @property
    def _flop(self) -> pd.Series:
        return pd.Series({key: 2.0 * np.prod(key) for key in self.best.index})


def speedups(both: pd.DataFrame) -> Speedups:
    """both: records of squares and layers."""
    us = wide(both, "median_us")
    return Speedups(*(us[v] / us["auto"] for v in ("cusparselt", "cusparselt_default", "cublaslt")))


def against_libraries(over: Speedups) -> str:
    best, large, aim = over.best, over.large, over.below_aim
    ahead = best.min() >= 1
    weak = {key: ratio for key, ratio in over.dense.items() if max(key) <= 1024 or key[1] <= 128}
    under = best[best < 0.95]
    small = f" The {len(over.small)} smaller ones: {geomean(over.small):.2f}×." if len(over.small) else ""
    return f"""
Over all {len(best)} shapes, `auto` is at {geomean(best):.2f}× cuSPARSELt's best algorithm (geometric mean), {geomean(over.default):.2f}× its default and {geomean(over.dense):.2f}× dense cuBLASLt. *Predicted: {variants.prediction("auto")}* Against the best:

- It is {"nowhere behind" if ahead else f"behind at {(best < 1).sum()} of {len(best)}"}; the {"narrowest" if ahead else "worst"} shape is {shape(best.idxmin())}, {best.min():.2f}×, the best {shape(best.idxmax())}, {best.max():.2f}×.
  {"None is under 0.95×." if under.empty else f"Under 0.95×: {listed(map(shape, under.index))}."}
- From the work of 4096³ on, {len(large)} of the shapes, it is at {geomean(large):.2f}×. {_aim(len(large) - len(aim), aim)}{small}
- Where sizes are small or N is, dense cuBLASLt is the one to beat: {listed(f"{shape(key)} {ratio:.2f}×" for key, ratio in weak.items())} of it{_behind(weak)}.
"""


def _behind(weak: Mapping[tuple, float]) -> str:
    """At which of some shapes `auto` is slower than dense, as half-sentences; what is within 1% is level."""
    level = [shape(key) for key, ratio in weak.items() if 0.99 <= ratio <= 1.01]
    behind = [shape(key) for key, ratio in weak.items() if ratio < 0.99]
    text = f", so behind at {listed(behind)}" if behind else ""
    return text + (f", and level with it at {listed(level)}" if level else "")


def _aim(reached: int, below: pd.Series) -> str:
    if below.empty:
        return f"All of them reach {AIM:.2f}×."
    return (
        f"{reached or 'None'} of them reach{'es' * (reached == 1)} {AIM:.2f}×, the others are at {below.min():.2f} to "
        f"{below.max():.2f}×."
    )


def version(machine: variants.Machine, others: Mapping[str, pd.DataFrame] = MappingProxyType({})) -> str:
    """Which cuSPARSELt it is, and what is known of that version. others: records of other versions, by version."""
    version = machine.get("cusparselt")
    text = f"The library is cuSPARSELt {version or 'of an unknown version'}. "
    if version != "0.8.0":
        return text
    return text + (
        "That is a version to name: its own release notes say of 0.8.1 that it fixes performance regressions on H100 which "
        "0.8.0 introduced. They do not say of which kernels."
        + (
            ""
            if others
            else " Ratios against a later version may be lower, and a rerun with one is the way to know: `SPARSITY_CUSPARSELT` names "
            "its file."
        )
    )


def chosen(table: pd.DataFrame, ceilings: Ceilings, gpu: str) -> str:
    """Before the table of choices, or instead of it; gpu: slug."""
    if table.empty:
        return f"There is no shipped file of choices for this GPU (`kernels/tensor_core_24/choices/{gpu}.csv`)."
    best, ceiling = ceilings.best_sparse, ""
    if best:
        ceiling = f"*Ceiling*: the loop of `{ceilings.called}`, {ceilings.peak[best]:.0f} TFLOP/s. "
    split = table["shape"][table["splits"] > 1]
    shared = f"Few tiles are shared along K by a cluster: {listed(split)}." if len(split) else ""
    return (
        f"{len(table)} shapes, {table.groupby(['kernel', 'tile']).ngroups} combinations of kernel (`wgmma_…`) and tile. *Keeps*: the "
        f"operand that L2 is asked to keep. *Over lib.*: over cuSPARSELt's best. {ceiling}{shared}"
    )


def what_is_left(profile: Profile, square: pd.DataFrame, over: Speedups, ceilings: Ceilings) -> str:
    """How near `auto` and the library come to their bounds; nothing where they were not profiled."""
    if not profile.holds("auto", "cusparselt") or not ceilings.best_sparse:
        return ""
    size, get = profile.sizes[-1], profile.counters.get
    mine, other = ({m: get(v, size, m) for m in (TENSOR, SHARED, CLOCK, TIME)} for v in ("auto", "cusparselt"))
    clocks = mine[TIME] * mine[CLOCK] / (other[TIME] * other[CLOCK])
    swept = by_size(square, "cusparselt", "median_us")[size] / by_size(square, "auto", "median_us")[size]
    best = variants.rungs()["wgmma_keep"]
    port = best.m * best.n * best.l2_bytes / variants.PORT_BYTES  # clocks for a step, as family.predict has it
    math = 2 * best.m * best.n * variants.STEP_K / (2 * TENSOR_FLOP_PER_CLOCK[9, 0])
    return f"""
**{"What is missing" if len(over.below_aim) else "What is left"}.** In the profile at {cube(size)} `auto` takes {clocks:.2f}× of the clocks of cuSPARSELt's best at {mine[CLOCK] / other[CLOCK]:.2f}× of its clock rate, so it is at {other[TIME] / mine[TIME]:.2f}×;
in the sweep, which loads the GPU for longer, at {swept:.2f}×. Its tensor cores are busy {mine[TENSOR]:.0f}% of the time and the pipe of shared memory {mine[SHARED]:.0f}%, cuSPARSELt's {other[TENSOR]:.0f}% and {other[SHARED]:.0f}%. For a tile of
{best.m} × {best.n} the port from L2 leaves at most {math / port:.0%} to the tensor cores, shared memory {family.SHARED_REACHED / (1 + 32 / best.n):.0%} as the tuner's model has it{"; so what is missing is not to be had from this tile" if mine[TENSOR] > 95 * math / port and len(over.below_aim) else ""}.
"""


# ---------------------------------------------------------------- products of microseconds


def small(df: pd.DataFrame | None, tried: pd.DataFrame | None) -> str:
    """How few tiles are multiplied, and what the trials at such products say of why; nothing where not measured.

    tried: as `trials.read` gives it.
    """
    if df is None:
        return ""
    us = wide(df, "median_us")
    over, dense = us["cusparselt"] / us["auto"], us["cublaslt"] / us["auto"]
    behind = [f"{shape(key)} ({gain:.2f}×)" for key, gain in dense.items() if gain < 1]
    text = (
        f"Over these {len(us)} shapes `auto` is at {geomean(over):.2f}× cuSPARSELt's best, {over.min():.2f}× at its worst, and at "
        f"{geomean(dense):.2f}× dense cuBLASLt"
        f"{f', behind it at {listed(behind)}' if behind else f', {dense.min():.2f}× at its worst'}."
    )
    return f"{text} {_copies(tried)}".strip()


def _copies(tried: pd.DataFrame | None) -> str:
    """What the copy engine costs a small product, with cold and with warm L2."""
    names = ("copy_engine", "copy_engine_warm", "empty")
    if tried is None or not set(names) <= set(tried["trial"]):
        return ""
    least = tried[tried["trial"].isin(names)].groupby("trial").first()
    cold, warm, empty = (least.loc[name] for name in names)
    size = shape((int(cold["m"]), int(cold["n"]), int(cold["k"])))
    more, then = (x["value"] - x["beside_value"] for x in (cold, warm))
    where = (
        "so it is not its trip to DRAM for the tensor map that costs, as was expected, but how it begins"
        if then >= more
        else "so part of it is the trip to DRAM for the tensor map"
    )
    return (
        f"At {size} an empty kernel takes {empty['value']:.1f} µs of the {empty['beside_value']:.1f}. On tiles of 64 × 64 the copy engine takes "
        f"{more:.2f} µs more than threads that copy; with operands that the launch before left in L2, {then:.2f} µs more: {where}."
    )


# ---------------------------------------------------------------- any size, and what else was left open


def one_off(ragged: pd.DataFrame, square: pd.DataFrame) -> str:
    """What one size off 4096³ costs; nothing where no such size was measured."""
    rate = wide(ragged, "tflops")
    near = [key for key in rate.index if key != (4096,) * 3 and all(abs(size - 4096) < 64 for size in key)]
    if not near:
        return ""
    aligned, odd = ([key for key in near if bool(key[1] % 8) == is_odd] for is_odd in (False, True))

    def cost(variant: str, keys) -> str:
        whole = (4096,) * 3  # of the same run, where it is there
        base = rate.loc[whole, variant] if whole in rate.index else by_size(square, variant)[4096]
        return f"{1 - np.mean([rate.loc[key, variant] / base for key in keys]):.0%}"

    ahead = all(rate.loc[key, "auto"] > rate.loc[key, "cublaslt"] for key in near)
    behind = [
        f"{shape(key)} ({rate.loc[key, 'auto'] / rate.loc[key, 'cublaslt']:.2f}×)"
        for key in rate.index
        if rate.loc[key, "auto"] < rate.loc[key, "cublaslt"]
    ]
    where = f"{'ahead' if ahead else 'not everywhere ahead'} of dense cuBLASLt near 4096³"
    where += f", and of all sizes here behind it at {listed(behind)}" if behind else ""
    return (
        f"One size off 4096³: `auto` loses {cost('auto', aligned)} on average where N is a multiple of 8 and {cost('auto', odd)} where "
        f"it is not and B and C are copied; `mma_sp` {cost('mma_sp', aligned)} and {cost('mma_sp', odd)}, cuBLASLt "
        f"{cost('cublaslt', aligned)} and {cost('cublaslt', odd)}. `auto` is {where}."
    )


def rows(df: pd.DataFrame | None, counters: Counters, choices: Mapping[tuple, variants.Chosen]) -> str:
    """What rows of B that begin at odd multiples of 16 bytes cost; nothing where it was not measured.

    counters: of `experiments.counters_of_rows`; choices: of the tuner, by shape.
    """
    if df is None:
        return ""
    rate = wide(df, "tflops")
    over = rate["auto"] / rate["cusparselt"]
    odd = [key for key in rate.index if variants.begin_at(key[1]) == 16]
    took = [f"{_way(choices[key])} at {shape(key)}" for key in odd if key in choices]
    return " ".join(
        filter(
            None,
            [
                _eight_columns_more(wide(df, "median_us"), counters),
                "A's values are ours to arrange, so `bind` pads their rows to whole steps of 64 columns, in memory and once.",
                f"For B, the tuner took {listed(took)}." if took else "",
                f"Over the {len(odd)} shapes with such rows `auto` is at {geomean(over[odd]):.2f}× cuSPARSELt's best, "
                f"{over[odd].min():.2f}× at its worst.",
            ],
        )
    )


#: As many tiles in both, 17 of 256 columns: rows that begin at odd multiples of 16 bytes, and at whole lines.
_ODD, _WHOLE = (4096, 4104, 4096), (4096, 4160, 4096)


def _eight_columns_more(us: pd.DataFrame, counters: Counters) -> str:
    """What `_ODD` costs against `_WHOLE`; nothing where either was not measured. us: by shape and contender."""
    if not {_ODD, _WHOLE} <= set(us.index):
        return ""
    more_time = us.loc[_ODD] / us.loc[_WHOLE] - 1
    pairs = {key: us.loc[key, "wgmma_lean"] / us.loc[key, "wgmma_clusters"] for key in (_ODD, _WHOLE)}
    text = (
        "**Eight columns more.** N = 4104 is a multiple of 8, so TMA takes the rows of B as they are. But every other one begins at an odd multiple "
        f"of 16 bytes, and against N = 4160, which is as many tiles, `wgmma_lean` takes {more_time['wgmma_lean']:+.0%} of time; cuSPARSELt's best {more_time['cusparselt']:+.0%}, "
        f"dense cuBLASLt {more_time['cublaslt']:+.0%}, `auto` {more_time['auto']:+.0%}. "
    )
    metrics = (REQUESTS, SECTORS, TO_SM)
    if all(counters.has("wgmma_lean", size=n, metrics=metrics) for n in (4096, 4104)):
        grown = [counters.get("wgmma_lean", 4104, m) / counters.get("wgmma_lean", 4096, m) for m in metrics]
        text += (
            f"From N = 4096 to 4104, 16 to 17 columns of tiles, L2 counts {grown[0]:.1f}× of the requests of `wgmma_lean` and {grown[1]:.1f}× of the sectors, for {grown[2]:.2f}× of the bytes that "
            "arrive at the SMs. A copy engine that moves 32 bytes at a time, which then lie in two sectors, would make such requests, and neighbours' reads may no longer merge; documented is neither. "
        )
    return text + (
        f"\n\n**What helps.** A taller tile asks for fewer rows of B: `wgmma_lean_tall` takes {more_time['wgmma_lean_tall']:+.0%}. Blocks of a cluster can ask for each other: `wgmma_clusters` is at "
        f"{pairs[_ODD]:.2f}× of `wgmma_lean` here, and at {pairs[_WHOLE]:.2f}× where rows begin at whole lines. Or a launch copies B first, to such rows."
    )


def _way(c: variants.Chosen) -> str:
    return f"`{c.kernel}` of {c.m} × {c.n}{' after a copy' * c.copied}"


def epilogue(tried: epilogue_.Tried | None) -> str:
    """Nothing where it was not tried."""
    if tried is None:
        return ""
    return (
        f"Tried here: {shape(tuple(epilogue_.CHECKED.values()))} is {tried.rel_err:.1e} from the float64 result. At 4096³ all of it takes "
        f"{tried.all_us:.0f} µs, the plain product {tried.plain_us:.0f} µs."
    )


def float16(halves: pd.DataFrame, square: pd.DataFrame) -> str:
    fp, bf = (df.set_index("variant") for df in (halves, square[square["m"] == 4096]))
    fp_over, bf_over = (df["tflops"]["auto"] / df["tflops"]["cusparselt"] for df in (fp, bf))
    return (
        f"**FP16** is a template argument. At 4096³ `auto` is at {fp_over:.2f}× cuSPARSELt's best, in BF16 at {bf_over:.2f}×. Three "
        "more bits of mantissa should make the error of the result 8 times smaller; it is "
        f"{bf['rel_err']['auto'] / fp['rel_err']['auto']:.1f} times."
    )


def errors(every: pd.DataFrame, both: pd.DataFrame) -> str:
    """The largest error of ours, and what preparing A costs; every: all BF16 records; both: squares and layers."""
    ours = every[~every["variant"].str.startswith(baselines.PREFIXES)]
    worst = every.loc[ours["rel_err"].idxmax()]
    # The error of rounding to 8 significant bits, root mean square: uniform within half a unit, numbers spread
    # evenly in their logarithm.
    rounding = 2**-8 / np.sqrt(3) / np.sqrt(3 / (2 * np.log(2)))
    cost = wide(both, "prepare_ms")
    last = max(cost.index, key=lambda key: key[0] * key[2])
    where = shape((worst["m"], worst["n"], worst["k"]))
    return (
        f"The largest relative error of any kernel of ours on any BF16 shape of this page is {worst['rel_err']:.1e} "
        f"(`{worst['variant']}`, {where}), with float64 as the reference; rounding C once to 8 bits makes {rounding:.1e} of it. What "
        f"is done to A beforehand and is not in these times: {cost.loc[last, 'auto']:.1f} ms for `auto` at {shape(last)} (metadata, and "
        "for `wgmma_packed` values, put in order; where the tuner had to try, its trials too), "
        f"{cost.loc[last, 'cusparselt']:.1f} ms for cuSPARSELt (compression)."
    )


# ---------------------------------------------------------------- in short


def in_short(
    code: Published,
    share: Share,
    clocks: Clocks | None,
    ceilings: Ceilings,
    mean: Mapping[str, float],
    ladder: Ladder,
    over: Speedups,
) -> str:
    """The chapter in five points. mean: of the side studies."""
    worth = {v: 1 - mean.get(f"mma_sp_{v}", np.nan) for v in ("ca", "one_selector", "x2")}
    swizzle = worth["one_selector"]
    swizzle = "makes no measurable difference" if abs(swizzle) < 0.02 else f"is worth {swizzle:.0%}"
    past = ", copies past L1" if code.past_l1 else ""
    because = ""
    if ceilings.two_instructions and not share.carries_over:
        ratio = ceilings.peak["mma_sp"] / ceilings.peak[ceilings.best_sparse]
        because = f", because `mma.sp` sustains {ratio:.0%} of what `wgmma.sp` does"
        if clocks.level:
            because += ", and shared memory needs about as long for a step as the tensor cores"
    least, most = over.large.min(), over.large.max()
    return f"""
- The format, the lanes and the swizzle are as the post says, and its kernel is what it claims to be: {sum(code.selectors.values())} `mma.sp` a step with both selectors{past}.
- Its share of the library is a number of its GPU. Here it is {share.measured[4096]:.0%} at 4096³ instead of {share.claimed[4096]:.0%}{because}.
- Of the choices that it explains, on this GPU `.cg` is worth {worth["ca"]:.0%}, the swizzle with both selectors {swizzle}, and `ldmatrix.x2` changes {abs(worth["x2"]):.0%}.{_climb(ladder)}
- `auto` is at {geomean(over.best):.2f}× cuSPARSELt's best over {len(over.best)} shapes, {over.best.min():.2f}× at its worst, {geomean(over.large):.2f}× from the work of 4096³ on ({least:.2f} to {most:.2f}×).
"""


def _climb(ladder: Ladder) -> str:
    """From the published kernel to the top; nothing where the GPU runs no rung."""
    if not ladder.rungs:
        return ""
    top = max(ladder.rungs, key=lambda v: ladder.rate(v, 4096))
    names = list(variants.rungs())
    chain = [v for v in ladder.rungs if v in names[: names.index("wgmma_keep") + 1]]
    steps = sorted(chain, key=lambda v: -ladder.gain(v, 4096))[:3]
    return (
        f"\n- The ladder goes from {ladder.rate('mma_sp', 4096):.0f} to {ladder.rate(top, 4096):.0f} TFLOP/s at 4096³ (`{top}`). "
        f"Its largest steps: {listed(f'`{v}` {ladder.gain(v, 4096):.2f}×' for v in steps)}."
    )
