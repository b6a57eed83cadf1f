"""The paper's figures: step by step, packing, sizes, the layers of Llama, and the authors' own kernels."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from artifact.drawing.words import change, listed
from artifact.measure import records
from artifact.measure.device import slug
from artifact.rooms.nm_spmm import results
from artifact.rooms.nm_spmm.points import at, by_density, has, mean, over
from artifact.rooms.nm_spmm.results import AIM, AIM_SHARE, Bars
from artifact.rooms.nm_spmm.trial import BIG, Trial, text
from artifact.rooms.nm_spmm.words import at_each, point_of, sparsity
from kernels.nm_spmm import analysis

#: How far from the speed of what it rebuilds a rebuilding may be to count as near it.
SAME = 0.05
#: What we rebuilt -> whose kernel it stands beside.
REBUILT = {"nmsparse_vw32": "nmSPARSE's own", "v3_searched": "the best of NM-SpMM's own"}


def steps_at_high(stepwise: pd.DataFrame) -> tuple[float, float] | None:
    """What packing and what the pipelines gain at high sparsity, geometric means; None where none was measured."""
    gains = [by_density(over(stepwise, *pair)) for pair in (("v2", "v1"), ("v3", "v2"))]
    sparse = results.high(gains[1].index)
    return tuple(records.geomean(gain[sparse]) for gain in gains) if sparse else None


#: Shares of the ceiling that differ by no more are about the same.
LEVEL = 0.08


def _held(share: pd.Series) -> str:
    """A share by density, from the most to the least: where it is about level, and where it falls to from there."""
    falling = share.sort_index(ascending=False)
    level = [d for d in falling.index if falling[d] >= falling.max() - LEVEL]
    if list(falling.index[: len(level)]) != level or len(level) in (0, 1, len(falling)):
        return at_each(share, "{:.0%}")
    about = records.geomean(falling[level])
    return f"about {about:.0%} up to {sparsity(level[-1])} sparsity, and falls to {falling.iloc[-1]:.0%} at {sparsity(falling.index[-1])}"


def stepwise(df: pd.DataFrame, fma: float) -> str:
    """V1 to V3 at each sparsity. fma: the FMA ceiling, TFLOP/s."""
    share = results.rates(df)["v3"] / fma
    lines = [f"V3 holds {_held(share)} of the FMA ceiling of {fma:.1f} TFLOP/s."]
    if 1.0 in share.index:
        g = by_density(over(df, "v3", "cublas"))[1.0]
        lines.append(
            f"At 0% sparsity, where every index is a detour to what is needed anyway, it is at {g:.2f}× cuBLAS: "
            + ("the detour is hidden." if g > 0.95 else "the detour, or the tile, costs that.")
        )
    v2, v3 = by_density(over(df, "v2", "v1")), by_density(over(df, "v3", "v2"))
    sparse = results.high(share.index)
    moderate = [d for d in share.index if d < 1 and d not in sparse]
    for kept, where in ((moderate, "moderate"), (sparse, "high")):
        if kept:
            lines.append(f"At {where} sparsity V2 is at {at_each(v2[kept])} of V1, V3 at {at_each(v3[kept])} of V2.")
    if gains := steps_at_high(df):
        lines.append(
            f"The paper finds both steps significant at high sparsity. Here packing by itself, in V2, where the extra load of an "
            f"index is waited for, is {change(gains[0])} on average, the pipelines {change(gains[1])}."
        )
    return " ".join(lines)


def packing(packed: pd.DataFrame) -> str:
    """Where packing pays, and whether the rule of 70% is right."""
    won = results.won_by_packing(packed)
    pays = won[won > 1.0]
    where = listed(f"at {sparsity(d)}" for d in pays.index)
    text = (
        f"Under the pipelines of V3, which hide that load, packing pays {where}. "
        if len(pays)
        else "Packing pays at no sparsity here. "
    )
    text += f"The rule of 70% is right at {len(results.rule_is_right(won))} of {len(won)} sparsities."
    if len(pays) < len(results.high(won.index)):
        text += (
            " What it saves are reads of L2; what it costs is a load that must arrive before the next can be issued. "
            "Where L2 is not what a kernel waits for, only the cost is left."
        )
    return text


def classes_of_table_2(by_size: pd.DataFrame) -> str:
    """At how many points the best of the three is the one that Table II names. by_size: of its sizes."""
    best = results.by_class(by_size)[results.CLASSES].idxmin(axis=1)
    expected = {size: name for name, size in analysis.TABLE_2.values()}
    hits = sum(name == expected[key[1:4]] for key, name in best.items())
    return (
        "The best of the three, at each size and sparsity. It is the one of Table II at "
        f"{hits} of {len(best)} points." + (" The paper's “consistently” holds." if hits == len(best) else "")
    )


def fig8(stated: pd.DataFrame) -> str:
    """What the authors' series of Fig. 8 is of, and how much of it is split-K."""
    own = stated[stated["library"].isin(results.CLASSES)]
    gain = own["tflops"] / own["tflops_one_pass"]
    (gpu,) = set(own["gpu"])
    return (
        f"The authors published what their program printed for Fig. 8, on an {gpu}. Both that figure and Fig. 9 show the best of split-K 1, 2, 4 "
        "and 8 at each point, which the paper does not say: one pass is the best at "
        f"{(own['split_k'] == 1).sum()} of {len(own)} points of its three kernels, and cutting K brings {mean(gain):.2f}× on the mean and "
        f"{gain.max():.2f}× at most. V3 and the three classes here make one pass, as the paper's listings do; `auto` may cut K. "
        "Below, each kernel over the best of the three, here and there."
    )


def fig10(stated: Mapping[str, pd.DataFrame]) -> str:
    """What the authors' own profiles say of the shares of the peak that their text gives."""
    peak = text(stated, "peak")["low"]
    said = stated["text"].query("quantity == 'peak_share'").set_index(["variant", "density"])["low"]
    profiled = stated["fig10"].set_index(["library", "density"])
    shares = profiled["tflops"] * profiled.index.get_level_values("density") / peak
    named = {"nmsparse": "nmSPARSE", "nm_spmm": "NM-SpMM"}
    off = [key for key in shares.index if abs(shares[key] - said[key]) > 0.05]
    told = listed(
        f"{shares[key]:.0%} for {named[key[0]]} at {sparsity(key[1])}, where the text has {said[key]:.0%}"
        for key in off
    )
    return (
        f"The authors published profiles behind Fig. 10; {len(shares)} of them are at hand. "
        + (f"By these it is {told}: the text has two of them exchanged. " if off else "")
        + f"The other {len(shares) - len(off)} are what the text says."
    )


def auto_over_classes(by_size: pd.DataFrame) -> str:
    us = results.by_class(by_size)
    gap = (us[results.CLASSES].min(axis=1) / us["auto"]).dropna()
    return (
        f"`auto`, which may take other tiles and cut K, is at {mean(gap):.2f}× of the best of the three, "
        f"{gap.min():.2f} to {gap.max():.2f}×" + (f"; most at {point_of(gap.idxmax())}." if len(gap) else ".")
    )


def llama(df: pd.DataFrame, stated: Mapping[str, pd.DataFrame]) -> str:
    """The layers of Llama in short: over nmSPARSE's kernel, rebuilt and in our style, of the ideal, behind cuBLAS."""
    dense, ideal = over(df, "auto", "cublas"), results.of_ideal(df)
    kernels = {
        "nmsparse_vw32": "nmSPARSE's kernel, rebuilt",
        "nm_baseline": "our kernel in its style",
    }
    measured = {name: [mean(over(df, v, name)) for v in ("v3", "auto")] for name in kernels if has(df, name)}
    claimed = text(stated, "speedup_nmsparse", "abstract")["low"]
    each, behind = len(at(dense, by_density(dense).index[0])), int((dense < 1).sum())
    return (
        f"Geometric means over {each} points a sparsity; speedups over cuBLAS. The paper has V3 at {claimed:g}× nmSPARSE; "
        "here, over all, V3 and `auto` are at "
        + "; at ".join(f"{v3:.2f}× and {auto:.2f}× {kernels[name]}" for name, (v3, auto) in measured.items())
        + f". On average `auto` gets {mean(ideal):.0%} of the ideal M/N: from {ideal.min():.0%}, at "
        f"{point_of(ideal.idxmin())}, to {ideal.max():.0%}, at {point_of(ideal.idxmax())}"
        + (
            ", which is more than the work that sparsity saves: there cuBLAS leaves some of its own. "
            if ideal.max() > 1
            else ". "
        )
        + (f"It is behind cuBLAS at {behind} of {len(ideal)} points." if behind else "It is nowhere behind cuBLAS.")
    )


# ---------------------------------------------------------------- against the authors' kernels


def first_bar(bars: Bars) -> str:
    """How much faster than the authors' kernels `auto` is, and where it gains less than was aimed at."""
    ours, below, parts = bars.ours, bars.below, []
    shapes = len(ours.groupby(level=["m", "n", "k"]))
    if len(bars.at_step):
        parts.append(f"at **{bars.at_step.min():.2f} to {bars.at_step.max():.2f}×** at {BIG}³")
    if len(bars.over_shapes):
        means = f"**{bars.over_shapes.min():.2f} to {bars.over_shapes.max():.2f}×**"
        parts.append(f"at {means} in the geometric mean over all {shapes} shapes, by sparsity")
    largest = max((key[0] for key in below.index), default=0)
    few = f"{len(below)} of {len(ours)} points gain less than {AIM - 1:.0%}, with m of at most {largest:,}."
    missed = listed(f"at {w}, {sparsity(d)} ({v:.2f}×)" for (w, d), v in bars.missed.items())
    return (
        f"Over the authors' kernels `auto` is {listed(parts)}.\n"
        f"Point by point `auto` is at {mean(ours):.2f}× their speedups, {ours.min():.2f}× at {point_of(ours.idxmin())} "
        f"and {ours.max():.2f}× at {point_of(ours.idxmax())}.\n"
        + (f"That is below the {AIM:.2f}× that were the aim {missed}. " if missed else "")
        + (few if len(below) else f"None of the {len(ours)} points gains less than {AIM - 1:.0%}.")
    )


def second_bar(trial: Trial, bars: Bars, stepwise: pd.DataFrame) -> str:
    """How near `auto` comes to the FMA ceiling, what held it back, and what it sustains in the run of Fig. 7."""
    auto = results.rates(stepwise)["auto"]
    auto = auto[[d for d in auto.index if 0.25 <= d <= 0.5]]
    return (
        f"Of the FMA ceiling it has, at {sparsity(0.5)} to {sparsity(0.25)}, {BIG}³ and above, "
        f"{_of_ceiling(bars)}.\n{_clock(trial, bars)}"
        f"At {BIG}³ `auto` sustains {at_each(auto, '{:.1f} TFLOP/s')} in the run of Fig. 7, "
        f"{(auto / trial.fma).min():.0%} to {(auto / trial.fma).max():.0%} of it."
    )


def _of_ceiling(bars: Bars) -> str:
    reached, short = bars.reached, bars.short
    if reached.empty:
        return "not measured"
    share = f"**{reached.min():.1%} to {reached.max():.1%}**"
    if short.empty:
        return f"{share}, so at least {AIM_SHARE:.0%} at all {len(reached)} points"
    return f"{share}. {len(short)} of {len(reached)} points stay below {AIM_SHARE:.0%}"


def _clock(trial: Trial, bars: Bars) -> str:
    """What the clock had to do with points that are short; nothing where it was not held down."""
    if not bars.capped:
        return ""
    where, machine = bars.short.index, trial.run.machine
    clock, share = bars.clock[where], bars.at_clock[where]
    return (
        f"Where it stays below, the GPU had lowered its clock to {clock.min():.0f} to {clock.max():.0f} MHz to stay "
        f"within its {machine['power_limit_w']:.0f} W (the driver's word for it: "
        f"{listed(sorted(set(bars.throttle[where])))}); the ceiling was measured at {machine['sm_mhz_max']:.0f} MHz. "
        f"Of what the ceiling is at the clock of the point, `auto` has {share.min():.0%} to {share.max():.0%} there.\n"
    )


def rebuilt(bars: Bars) -> str:
    """How good our rebuildings of the compared kernels are."""
    ported, rebuilt_ = bars.ported, bars.nmsparse
    large = [key[0] >= BIG // 2 for key in ported.index]
    big, small = ported[large], ported[[not x for x in large]]
    how = (
        "with the best of their tiles and numbers of shares of k at each point, as they time it,"
        if bars.searched
        else "with split-K where that is better,"
    )
    why = (
        ""
        if bars.searched
        else "Theirs is at each point the best of four tiles, one of which, 64 × 64, Table I does not have, and of 1, 2 "
        "and 4 shares of k, added to a C that nobody clears; ours has the tile of its class in Table I, and clears C. "
    )
    apart = " ".join(
        _apart(who, factor, bars.us[variant])
        for who, variant, factor in (
            ("V3 so searched", "v3_searched", bars.searched_alone),
            ("nmSPARSE", "nmsparse_vw32", rebuilt_),
        )
        if len(factor)
    )
    style = f"Our kernel in the style of nmSPARSE is at {mean(bars.nm_baseline):.2f}× of nmSPARSE's"
    own = (
        f", and what we rebuilt of nmSPARSE's own at {mean(rebuilt_):.2f}×, {rebuilt_.min():.2f} to {rebuilt_.max():.2f}×."
        if len(rebuilt_)
        else ": ratios over it have to be read with that in mind."
    )
    there = f"; {mean(big):.2f}× from m = {BIG // 2:,} on, {mean(small):.2f}× below" if len(big) and len(small) else ""
    return (
        f"**And V3?** Our rebuilding of it, {how} is at {mean(ported):.2f}× of the authors' own kernels, "
        f"{ported.min():.2f} to {ported.max():.2f}×{there}. {why}{style}{own}" + (f"\n\n{apart}" if apart else "")
    )


def _apart(who: str, factor: pd.Series, us: pd.Series, most: float = 0.05, short: float = 100) -> str:
    """Where a rebuilding is more than `most` from what it rebuilds, and how long it takes there. us: its own times."""
    off = factor[(factor - 1).abs() > most]
    if off.empty:
        return f"{who} is within {most:.0%} at all {len(factor)} points."
    time = us[off.index]
    brief, rest = off[time < short], off[time >= short]
    parts = []
    if len(brief):
        gap = (us[brief.index] * (brief - 1).abs()).max()
        parts.append(
            f"{len(brief)} where it takes less than {short:g} µs, so that microseconds of a launch, or of cuBLAS in the "
            f"other run, count (by {gap:.1f} µs at most)"
        )
    if len(rest):
        parts.append(
            f"{len(rest)} where it takes longer, {rest.min():.2f} to {rest.max():.2f}×, for which the records have no reason"
        )
    return f"{who} is off by more than {most:.0%} at {len(off)} of {len(factor)} points: {'; '.join(parts)}."


def authors_elsewhere(trial: Trial) -> str:
    """Where the authors' kernels ran, if that is another GPU than this page's."""
    gpu = trial.authors.gpu
    if slug(gpu) == trial.run.gpu:
        return ""
    return f"*The authors' kernels ran on an {gpu}; against this GPU they are no comparison.*"


def side_by_side(beside: pd.DataFrame, elsewhere: Mapping[str, pd.DataFrame] | None = None) -> str:
    """How near our rebuildings come to what they rebuild where both ran in one run.

    beside: others/<gpu>/rebuilt.csv; elsewhere: the same of other GPUs, by their names.
    """
    told = []
    for variant, speeds in results.rebuilt(beside).items():
        near = ((speeds - 1).abs() <= SAME).sum()
        low, high = speeds.idxmin(), speeds.idxmax()
        told.append(
            f"`{variant}` is {mean(speeds):.2f}× as fast as {REBUILT[variant]}, {speeds.min():.2f}× at {point_of(low)} to "
            f"{speeds.max():.2f}× at {point_of(high)}, and at {near} of {len(speeds)} points within {SAME:.0%}"
        )
    return (
        "Those ratios are of two runs. In one run, both in turns on one GPU (`rebuilt.csv` in the room's `others/`; [the appendix](reviewers) "
        f"says how), {'; '.join(told)}. There theirs had up to four shares of k to choose from, ours up to eight, as their program has for Fig. 8."
        + "".join(f" On an {gpu} {_means(other)}." for gpu, other in (elsewhere or {}).items())
    )


def _means(beside: pd.DataFrame) -> str:
    """beside: as `side_by_side`."""
    return listed(
        f"`{variant}` is at {mean(speeds):.2f}×, {speeds.min():.2f} to {speeds.max():.2f}×"
        for variant, speeds in results.rebuilt(beside).items()
    )
