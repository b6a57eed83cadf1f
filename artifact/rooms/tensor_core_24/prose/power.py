"""Sentences on energy: what the records tell of it, how good the model is, what it says of a larger tile."""

from __future__ import annotations

import numpy as np
import pandas as pd

from artifact.drawing.cells import NO_COUNTERS
from artifact.drawing.words import cube, listed
from artifact.measure import ceilings as ceilings_
from artifact.rooms.tensor_core_24 import energy, variants
from artifact.rooms.tensor_core_24.energy import View
from artifact.rooms.tensor_core_24.experiments import ALONE_S, ALONE_SAMPLES, Ceilings, Ladder, over
from kernels.tensor_core_24 import family


def measured(view: View, machine: variants.Machine) -> str:
    """What NVML's power tells, and of which points."""
    told, limit = view.joules, machine.get("power_limit_w")
    if told.empty:
        return (
            "NVML's power tells of no point here what a multiplication costs: it is averaged over a second, and came near the "
            "limit nowhere."
        )
    points = sorted({(r.m, r.experiment) for r in told.itertuples()})
    auto = told[told["variant"] == "auto"].sort_values("m")
    costs = [
        f"{r.low_j:.3g} to {r.high_j:.3g} J at {cube(r.m)} ({r.low_pj:.3f} to {r.high_pj:.3f} pJ/FLOP)"
        for r in auto.drop_duplicates("m", keep="last").itertuples()
    ]
    return f"""
**What NVML can tell.** Its power is the board's, averaged over a second, and contenders take turns of milliseconds. So it says something only where the load lasted until the
average came near the limit of {limit:.0f} W, within {1 - energy.NEAR_LIMIT:.0%}: {listed(f"{cube(m)} ({experiment})" for m, experiment in points)}. There a launch costs at most the limit times its time, and at least
the average times its time, if every contender drew what the board drew; that it did is assumed, not measured. {f"`auto`: {listed(costs)}." if costs else ""} Of shorter points the records cannot say what
a multiplication costs: {_short(view)}.
"""


def _short(view: View) -> str:
    """How long the points lasted that tell nothing, the shortest and the longest."""
    known = {(r.m, r.experiment) for r in view.joules.itertuples()}
    rest = view.asked[[(m, e) not in known for m, e in zip(view.asked["m"], view.asked["experiment"], strict=True)]]
    if rest.empty:
        return "here there are none"
    ends = rest.sort_values("ms").iloc[[0, -1]].drop_duplicates()
    return listed(
        f"{cube(r.m)} ({r.experiment}) took {r.ms:.3g} ms of launches, in which NVML was asked about {r.times} time{'s' if r.times > 1 else ''}"
        for r in ends.itertuples()
    )


def model(view: View) -> str:
    """The model, and how far it is off for contenders that it never saw."""
    if view.model is None:
        return NO_COUNTERS
    judged, errors = view.judged, view.judged["error"].abs()
    missed = judged[errors > energy.BAR]
    across = energy.other_size(view.rows)
    beyond = across[across["error"].abs() > energy.BAR]
    named = [f"`{r.variant}` at {cube(r.size)} ({r.error:+.1%})" for r in missed.itertuples()]
    text = f"""
**A model of the clock.** The clock inside a profiled launch tells contenders apart: {view.rows["ghz"].min():.2f} to {view.rows["ghz"].max():.2f} GHz. Five weights, none negative, explain it: energy for every clock, for every clock of
the tensor cores, and for each byte in L2's slices, on the way from L2 to the SMs, and of DRAM; dynamic power goes with the square of the clock, since the voltage
follows it. Each contender is predicted by a model fitted on the others, from its counted clocks and bytes: the time of {len(judged)} launches comes out within {errors.max():.1%}, {np.sqrt((errors**2).mean()):.1%} root mean square.
{f"Beyond {energy.BAR:.0%}: {listed(named)}." if named else f"None is beyond {energy.BAR:.0%}."}"""
    if len(across):
        text += (
            f" Fitted on one size and asked for the other, it is off by up to {across['error'].abs().max():.1%}, and beyond "
            f"{energy.BAR:.0%} for {len(beyond)} of {len(across)}."
        )
    return text + ""


def harness(view: View, ladder: Ladder) -> str:
    """After the table: the clock under the harness's load; nothing where the largest size was not measured."""
    if view.model is None:
        return ""
    at = ladder.frame[ladder.frame["m"] == view.size].set_index("variant")
    here = (view.largest["clocks"] * 1e3 / at["median_us"]).dropna()
    if here.empty:
        return ""
    low, high = here.quantile([0.25, 0.75])
    inside = view.largest["ghz"]
    return (
        f"*J*: as above, where the point tells; it is time times one power for all, and ranks as time does. *Clock, harness*: counted clocks over the harness's median, as if a launch "
        f"took as many there: {here.min():.2f} to {here.max():.2f} GHz, the middle half {low:.2f} to {high:.2f}, where the profile has {inside.min():.2f} to {inside.max():.2f}, "
        f"the middle half {inside.quantile(0.25):.2f} to {inside.quantile(0.75):.2f}. NVML, which samples the flushes between launches, too, had {at['sm_mhz'].iloc[0] / 1e3:.2f} GHz. *Model*: fitted without the contender. The harness loads the "
        "GPU for longer than a profile, hence the lower clock."
    )


def alone(told: pd.DataFrame | None, square: pd.DataFrame) -> str:
    """`auto` over the library where each runs alone, beside the sweep's turns; nothing where that was not measured.

    Judged by the sizes at which power lowered the clock in both records.
    """
    if told is None:
        return ""
    capped = [set(df["m"][df["throttle"].str.contains("power")]) for df in (told, square)]
    by_itself, in_turns = (over(df, "auto", "cusparselt") for df in (told, square))
    both = pd.DataFrame({"alone": by_itself, "turns": in_turns}).dropna()
    if both.empty:
        return ""
    each = [f"{r.alone:.2f}× at {cube(m)}, in turns {r.turns:.2f}×" for m, r in both.iterrows()]
    text = f"""
**Each alone.** In the sweep contenders take turns, and if the limiter answered to the whole turn, what one saves would be the others' gain, too. So here only one runs, for {ALONE_S:g} s or {ALONE_SAMPLES} launches with flushes
between them, then the next. `auto` over cuSPARSELt's best: {listed(each)}."""
    judged = both[[m in capped[0] & capped[1] for m in both.index]]
    if judged.empty:
        return text + " At none of these sizes did power lower the clock in both.\n"
    ratios = judged["alone"] / judged["turns"] - 1
    spread = ((told["q75_us"] - told["q25_us"]) / told["median_us"])[told["m"].isin(judged.index)].max()
    mean = float(np.expm1(np.log1p(ratios).mean()))
    verdict = (
        f"Alone, the thriftier kernel gains {mean:.1%}"
        if mean > spread / 2
        else "That is no difference which these records can tell"
    )
    return (
        f"{text} Where power lowered the clock in both ({listed(map(cube, judged.index))}), alone is {mean:+.1%} on average, {ratios.min():+.1%} to {ratios.max():+.1%}; "
        f"quartiles are up to {spread:.0%} apart. {verdict}.\n"
    )


def clocks(view: View) -> str:
    """The tuner's model of clocks beside what was counted; nothing where no rung that streams was profiled."""
    found = energy.clocks(view.rows, view.sms)
    if found.empty:
        return ""
    missed = found[found["error"].abs() > energy.BAR]
    named = [f"`{r.variant}` at {cube(r.size)} ({r.error:+.0%})" for r in missed.itertuples()]
    return (
        f"**A model of clocks** is the tuner's own: what bounds a step (tensor cores, {family.SHARED_REACHED:.0%} of 128 bytes a clock of shared memory, or 64 through the "
        f"port from L2) times steps times waves. For the {found['variant'].nunique()} rungs that hide what they wait for it is within "
        f"{energy.BAR:.0%} of the counted clocks at {len(found) - len(missed)} of {len(found)} points"
        f"{f'; it misses {listed(named)}. It knows nothing of clusters whose blocks wait for each other, nor of how waves begin and end, which counts where there are few' if named else ''}."
    ) + _together(view)


def _together(view: View) -> str:
    """Both models in one, which is what a kernel that does not exist has to be predicted with."""
    if view.model is None:
        return ""
    found = energy.both(view.rows, view.sms)
    good = (found["error"].abs() <= energy.BAR).sum()
    return (
        f" Both models together, with only the bytes in L2's slices and of DRAM and the work of the tensor cores as counted, give these launches' times within {energy.BAR:.0%} at "
        f"{good} of {len(found)} points, and are off by up to {found['error'].abs().max():.0%}."
    )


def larger(view: View) -> str:
    """What both models say of a tile of three warpgroups, from the other contenders, and what came of it."""
    if view.model is None:
        return ""
    tile, size = energy.THREE_GROUPS, view.size
    found = energy.larger_tile(view.rows, size, view.sms)
    if found.empty:
        return ""
    now = view.largest["port"]["auto"]
    cases = [
        f"{r.over_auto:.2f}× of `auto` ({r.clocks:.2f} million clocks at {r.ghz:.2f} GHz) if they are as far off for it as for `{r.anchor}`, "
        f"which {energy.ANCHORS[r.anchor]} bounds"
        for r in found.itertuples()
    ]
    title = "Fewer bytes" if found["port_gb"].iloc[0] < now else "Another tile"
    text = f"""
**{title}.** A tile of {tile.m} × {tile.n}, three warpgroups of 64 × {tile.n}, brings {found["port_gb"].iloc[0]:.1f} GB from L2 to the SMs at {cube(size)}, where `auto` brings {now:.1f}. Both models together, which
do not know it, say {"; ".join(cases)}. """
    if energy.LARGER not in view.largest.index:
        return text + "Here nobody has profiled it.\n"
    came = view.largest.loc[energy.LARGER]
    ratio = view.largest["us"]["auto"] / came.us
    nearest = min(found.itertuples(), key=lambda r: abs(r.over_auto - ratio)).anchor
    return (
        f"{text}`{energy.LARGER}` came to {ratio:.2f}× in the profile, with {came.clocks:.2f} million clocks at {came.ghz:.2f} GHz, which is nearest to the case of "
        f"`{nearest}`.\n"
    )


def peaks(view: View, ceilings: Ceilings, machine: variants.Machine) -> str:
    """What a share of a peak compares; nothing where the peak or the profile is missing."""
    best = ceilings.best_sparse
    if best is None or view.model is None or "auto" not in view.largest.index:
        return ""
    least = ceilings_.least_mhz(best, ceilings.peak[best], machine) / 1e3
    if np.isnan(least):
        return ""
    row = view.largest.loc["auto"]
    rate = 2e-6 * view.size**3 / row.us  # TFLOP/s
    share = rate / ceilings.peak[best]
    apart = least / row.ghz - 1
    levels = (
        f"At the loop's clock the same kernel would be at {share * (1 + apart):.0%} or more"
        if apart > 0
        else "Which of the two ran faster the records do not say"
    )
    return f"""
**Peaks have clocks, too.** The loop of `{ceilings.called}` sustained {ceilings.peak[best]:.0f} TFLOP/s. NVML sampled {ceilings.sm_mhz[best] / 1e3:.2f} GHz meanwhile, from outside; inside, no counter was recorded, and the rate itself needs {least:.2f} at least. In the
profile `auto` does {rate:.0f} TFLOP/s at {cube(view.size)}, {share:.0%} of that, at {row.ghz:.2f} GHz, with tensor cores that are busy {row.tensor / row.clocks:.0%} of the time. {levels}. Shares in tables and figures are the harness's, whose clock is lower still.
"""
