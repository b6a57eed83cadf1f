"""What the sources claim, and what our records say about it.

`claims.toml` holds the claims. Each names one of the MEASURES below and its parameters, so the
whole rule behind a verdict is the measure's docstring plus the numbers in the TOML; no text from a
file is evaluated. Every measure states when it gives "reproduced", "partly" and "not reproduced". A
claim whose records are missing is "not measured on this GPU", with the reason. Shares and quantiles
count the points (shape x density) of the experiments that the claim names, or of those among them
that `where` keeps: every rule may hold one, column = value or a list of values. With `repeats = true`,
which every rule may hold too, the experiments are runs of one measurement: their times and rates
count by the geometric mean over the runs that have a point, and the verdict of each run is given
beside it.

An experiment "fig9@A100" is none of ours: it is the series for the A100 that a source published,
`artifact/published/<room>_fig9.csv`. A claim about it says whether a source's text is borne out by
its own data, whatever GPU the records are of.
"""

import contextlib
import itertools
import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from artifact.measure import records
from artifact.verdicts.evidence import BEST, DEFAULT, Evidence, NotMeasured

REPRODUCED = "reproduced"
PARTLY = "partly"
NOT_REPRODUCED = "not reproduced"
NOT_MEASURED = "not measured on this GPU"
VERDICTS = (REPRODUCED, PARTLY, NOT_REPRODUCED, NOT_MEASURED)
# A baseline that may choose its algorithm -> the name of its library, and the one that does not.
DEFAULTS = {BEST: ("cuSPARSE", DEFAULT), "cusparselt": ("cuSPARSELt", "cusparselt_default")}
# Why warps do not issue, as Nsight Compute counts it; but one that issues is no stall.
STALL = re.compile(
    r"smsp__average_warps_issue_stalled_(?!selected_)(\w+)_per_issue_active\.(?:ratio|pct)"
)


@dataclass(frozen=True)
class Outcome:
    verdict: str
    measured: str  # value with its unit
    why: str


def _rows(e: Evidence, experiments: Iterable[str], *variants: str) -> pd.DataFrame:
    """The records of `variants`; NotMeasured if one of them has none."""
    df = e.frame(experiments)
    for name in variants:
        if not (df["variant"] == name).any():
            raise NotMeasured(f"The variant {name!r} was not measured in {', '.join(experiments)}.")
    return df[df["variant"].isin(variants)]


def _speedup(e: Evidence, experiments: Iterable[str], variant: str, baseline: str) -> pd.Series:
    try:
        return records.speedup(_rows(e, experiments, variant, baseline), variant, baseline)
    except ValueError as error:
        raise NotMeasured(str(error)) from None


def _library(baseline: str) -> str:
    return "cuSPARSE" if baseline in (BEST, DEFAULT) else DEFAULTS.get(baseline, [baseline])[0]


def _over(baseline: str) -> str:
    """What a speedup is over, where that is not cuSPARSE, whose algorithm `_outcome` names."""
    return "" if baseline in (BEST, DEFAULT) else f" over {_library(baseline)}"


def _of(variant: str, baseline: str) -> str:
    return _over(baseline) and f" of {variant}{_over(baseline)}"


def _density(fraction: float) -> str:
    return f"density {fraction * 100:g} %"


def _near(
    values: pd.Series, low: float, high: float, reproduced: float, partly: float
) -> tuple[str, float]:
    """The verdict on values that are stated to lie in [low, high], and their worst distance.

    A distance is the factor by which a value lies outside, 1 inside. Reproduced if nine in ten are
    within the factor `reproduced`, partly within `partly`.
    """
    with np.errstate(divide="ignore"):
        off = np.maximum(1.0, np.maximum(low / values, values / high)) * (1 - 1e-9)
    within = {limit: (off <= limit).mean() >= 0.9 for limit in (reproduced, partly)}
    verdict = REPRODUCED if within[reproduced] else PARTLY if within[partly] else NOT_REPRODUCED
    return verdict, float(off.max())


def _digits(values: Iterable[float]) -> str:
    """The range of values: three significant digits, or all before the point."""
    values = np.asarray(list(values), dtype=float)
    pair = (f"{v:.3g}" if v < 1000 else f"{v:.0f}" for v in (values.min(), values.max()))
    return "–".join(dict.fromkeys(pair))


def stated(low: float, high: float) -> str:
    """Numbers of a source as text, with the digits that it gives."""
    if math.isinf(high):
        return f"at least {low:.10g}"
    pair = [f"{v:.2f}" if 0 < v < 1 and v == round(v, 2) else f"{v:.10g}" for v in (low, high)]
    return "–".join(dict.fromkeys(pair))


def _grade(value: float, reproduced: float, partly: float) -> str:
    """Larger is better; `partly` is the weaker threshold."""
    return REPRODUCED if value >= reproduced else PARTLY if value >= partly else NOT_REPRODUCED


def _all_of(verdicts: Sequence[str]) -> str:
    """The verdict on a claim about several things at once."""
    return verdicts[0] if len(set(verdicts)) == 1 else PARTLY


def _range(values: Iterable[float], unit: str = "", digits: int = 2) -> str:
    values = np.asarray(list(values), dtype=float)
    low, high = (f"{v:.{digits}f}" for v in (values.min(), values.max()))
    return f"{low}{unit}" if low == high else f"{low}–{high}{unit}"


def _per_experiment(s: pd.Series) -> str:
    groups = s.groupby("experiment", sort=False)
    return ", ".join(f"{name} {records.geomean(v):.2f}×" for name, v in groups)


def _points(count: int) -> str:
    return f"{count} point" + ("s" if count != 1 else "")


# ---------------------------------------------------------------- measures


def share_of_points(
    e: Evidence, experiment, variant: str, faster: str, reproduced=1.0, partly=0.5, baseline=BEST
) -> Outcome:
    """Who is faster, point by point. `faster` is "variant" or "baseline".

    Reproduced if that one is faster at a share of at least `reproduced` of the points, partly at
    `partly`.
    """
    if faster not in ("variant", "baseline"):
        raise ValueError(f"`faster` is {faster!r}; it must be 'variant' or 'baseline'.")
    s = _speedup(e, experiment, variant, baseline)
    wins = s > 1 if faster == "variant" else s < 1
    names = {"variant": variant, "baseline": _library(baseline)}
    return Outcome(
        _grade(wins.mean(), reproduced, partly),
        f"{names[faster]} faster at {wins.sum()} of {_points(len(s))}",
        f"Speedup{_of(variant, baseline)} {_range(s, '×')}; geometric means: {_per_experiment(s)}.",
    )


def speedup_range(
    e: Evidence, experiment, variant: str, low: float, high: float, tolerance: float, baseline=BEST
) -> Outcome:
    """Where the speedups lie. Reproduced if 90% of the points lie in [low, high] widened by
    `tolerance` on each side, partly if half of them or their geometric mean do."""
    s = _speedup(e, experiment, variant, baseline)
    inside = s.between(low - tolerance, high + tolerance).mean()
    mean = records.geomean(s)
    verdict = _grade(inside, 0.9, 0.5)
    if verdict == NOT_REPRODUCED and low - tolerance <= mean <= high + tolerance:
        verdict = PARTLY
    return Outcome(
        verdict,
        f"{_range(s, '×')}{_over(baseline)}, geometric mean {mean:.2f}×",
        f"{inside:.0%} of {_points(len(s))} lie in {low:g}–{high:g} ± {tolerance:g}.",
    )


def speedup_mean(
    e: Evidence,
    experiment,
    variant: str,
    reproduced: float,
    partly: float,
    each=False,
    baseline=BEST,
) -> Outcome:
    """How fast on average. Reproduced if the geometric mean of the speedup is at least
    `reproduced`, partly at `partly`; with `each`, in every experiment (partly: in some). Where
    `reproduced` < `partly` the claim is that it is slow, and the mean must be at most that."""
    s = _speedup(e, experiment, variant, baseline)
    sign = 1 if reproduced >= partly else -1
    groups = [v for _, v in s.groupby("experiment", sort=False)] if each else [s]
    grades = [_grade(sign * records.geomean(v), sign * reproduced, sign * partly) for v in groups]
    limit = "at least" if sign > 0 else "at most"
    return Outcome(
        _all_of(grades),
        f"geometric mean {records.geomean(s):.2f}×{_over(baseline)}",
        f"Asked: {limit} {reproduced:g}×. {_per_experiment(s)}; range {_range(s, '×')}.",
    )


def speedup_near(
    e: Evidence,
    experiment,
    variants: Sequence[str],
    low: float,
    high: float,
    reproduced: float,
    partly: float,
    mean="",
    baseline=BEST,
) -> Outcome:
    """Whether the speedup of each variant is the stated one, [low, high], up to a factor.

    Reproduced if nine in ten of the points of all variants are within the factor `reproduced` of
    the range, partly if they are within the factor `partly`. With `mean` geometric means count
    instead of points, of a variant over "all" of them or at each "density" of each experiment.
    """
    if mean not in ("", "all", "density"):
        raise ValueError(f"`mean` is {mean!r}; it must be 'all' or 'density', or not be given.")
    each = {v: _speedup(e, experiment, v, baseline) for v in variants}
    if mean:
        points = sum(map(len, each.values()))
        ranges = ", ".join(f"{v} {_digits(s)}×" for v, s in each.items())
        by = ["experiment", "density"]
        each = {
            v: s.groupby(by, sort=False).apply(records.geomean)
            if mean == "density"
            else pd.Series([records.geomean(s)])
            for v, s in each.items()
        }
        verdict, off = _near(pd.concat(each), low, high, reproduced, partly)
        which = "geometric mean" if mean == "all" else "geometric means"
        return Outcome(
            verdict,
            ", ".join(f"{v} {which} {_range(s, '×')}" for v, s in each.items()) + _over(baseline),
            f"Asked: {stated(low, high)}×, within a factor of {reproduced:g}; off by a factor of "
            f"{off:.3g}. Over {_points(points)}: {ranges}.",
        )
    verdict, off = _near(pd.concat(each), low, high, reproduced, partly)
    return Outcome(
        verdict,
        ", ".join(f"{v} {_digits(s)}×" for v, s in each.items()) + _over(baseline),
        f"Asked: {stated(low, high)}×, within a factor of {reproduced:g}. The farthest of "
        f"{_points(sum(map(len, each.values())))} is off by a factor of {off:.3g}.",
    )


def share_of_ideal(
    e: Evidence, experiment, variant: str, reproduced: float, partly: float, baseline=BEST
) -> Outcome:
    """How much of the work that sparsity saves is saved in time: the speedup over a dense baseline
    as a share of 1 / density, geometric mean. Reproduced from `reproduced` on, partly from `partly`
    on."""
    s = _speedup(e, experiment, variant, baseline)
    shares = s * s.index.get_level_values("density")
    each = ", ".join(
        f"{_density(d)} {records.geomean(v):.0%}" for d, v in shares.groupby("density", sort=False)
    )
    mean = records.geomean(shares)
    return Outcome(
        _grade(mean, reproduced, partly),
        f"geometric mean {mean:.0%} of the ideal speedup{_over(baseline)}",
        f"Ideal is 1 / density; asked: at least {reproduced:.0%}. {each}.",
    )


def fastest_of(
    e: Evidence,
    experiment,
    variant: str,
    among: Sequence[str],
    tolerance=0.0,
    reproduced=1.0,
    partly=0.5,
) -> Outcome:
    """Whether one is the fastest of several, point by point: no other takes less time by more than
    the relative `tolerance`. Reproduced if so at a share of at least `reproduced` of the points,
    partly at `partly`."""
    each = {v: _speedup(e, experiment, variant, v) for v in among}
    least = pd.DataFrame(each).dropna().min(axis=1)
    if least.empty:
        raise NotMeasured(f"{variant}, {', '.join(among)} were not measured at any common point.")
    wins = least * (1 + tolerance) >= 1
    over = ", ".join(f"{v} {records.geomean(s):.2f}×" for v, s in each.items())
    return Outcome(
        _grade(wins.mean(), reproduced, partly),
        f"{variant} the fastest at {wins.sum()} of {_points(len(wins))}",
        f"Speedup of {variant} over {over} (geometric means); at worst {least.min():.2f}× over the "
        f"fastest other. A difference within {tolerance:.0%} counts as none.",
    )


def rate_near(
    e: Evidence,
    experiment,
    variants: Sequence[str],
    low: float,
    high: float,
    reproduced: float,
    partly: float,
    dense=False,
) -> Outcome:
    """Whether the TFLOP/s of each variant are the stated ones, [low, high], up to a factor.

    Records give every contender the useful FLOPs of the sparse product. With `dense` those of the
    dense product count, useful FLOPs over density, as a source counts them for a dense library.
    Reproduced if nine in ten of the points of all variants are within the factor `reproduced` of
    the range, partly if they are within the factor `partly`.
    """
    rows = _rows(e, experiment, *variants)
    rates = rows["tflops"] / rows["density"] if dense else rows["tflops"]
    verdict, off = _near(rates, low, high, reproduced, partly)
    each = (f"{v} {_digits(rates[rows['variant'] == v])} TFLOP/s" for v in variants)
    return Outcome(
        verdict,
        ", ".join(each),
        f"Asked: {stated(low, high)} TFLOP/s, within a factor of {reproduced:g}"
        f"{'; every FLOP of the dense product counts' if dense else ''}. The farthest of "
        f"{_points(len(rows))} is off by a factor of {off:.3g}.",
    )


def levels_off(
    e: Evidence,
    experiment,
    variants: Sequence[str],
    along: str,
    low: float,
    high: float,
    flat: float,
) -> Outcome:
    """Where throughput stops rising along a size ("m", "n"): at the smallest size at which it is
    within the share `flat` of its largest value, per variant, experiment and density.

    Reproduced if that size lies in [low, high] for every line, partly if for some, or if some are
    no further than a factor of two outside. Counting useful or dense FLOPs changes nothing here.
    """
    rows = _rows(e, experiment, *variants)
    verdicts, texts = [], []
    for (variant, _, _), line in rows.groupby(["variant", "experiment", "density"], sort=False):
        rate = line.groupby(along)["tflops"].max()
        if len(rate) < 3:
            continue
        knee = rate.index[rate >= (1 - flat) * rate.max()].min()
        verdicts.append(_near(pd.Series([float(knee)]), low, high, 1.0, 2.0)[0])
        texts.append(f"{variant} from {along.upper()} = {knee} on")
    if not verdicts:
        raise NotMeasured("No sweep has three sizes.")
    return Outcome(
        _all_of(verdicts),
        f"level: {', '.join(texts)}",
        f"Within {flat:.0%} of the largest throughput of the sweep; "
        f"asked: {stated(low, high)}, a factor of two off counts as partly.",
    )


def somewhere_faster(e: Evidence, experiment, variant: str, baseline=BEST) -> Outcome:
    """Whether there is a scenario (experiment and density) in which the variant is faster.
    Reproduced if the geometric mean of one scenario is over 1, partly if only single points are."""
    s = _speedup(e, experiment, variant, baseline)
    means = s.groupby(["experiment", "density"], sort=False).apply(records.geomean)
    (where, density), best = means.idxmax(), means.max()
    verdict = REPRODUCED if best > 1 else PARTLY if s.max() > 1 else NOT_REPRODUCED
    return Outcome(
        verdict,
        f"best scenario {best:.2f}×{_over(baseline)} ({where}, {_density(density)})",
        f"Faster in {(means > 1).sum()} of {len(means)} scenarios "
        f"and at {(s > 1).sum()} of {_points(len(s))}.",
    )


def speedup_trend(
    e: Evidence,
    experiment,
    variant: str,
    along: str,
    direction: str,
    change: float,
    each_step=False,
    baseline=BEST,
) -> Outcome:
    """How the speedup moves along a size ("m", "n" or "useful_flops"), in each experiment and
    density on its own.

    A line follows the claim if the speedup at the largest size differs from that at the smallest by
    more than `change` in that direction and the rank correlation has that sign. With `each_step` a
    line that follows counts half if it does not move in that direction from every size to the next.
    Reproduced if every line follows, partly if half do.
    """
    if direction not in ("rises", "falls"):
        raise ValueError(f"`direction` is {direction!r}; it must be 'rises' or 'falls'.")
    s = _speedup(e, experiment, variant, baseline)
    df = e.frame(experiment)
    rows = df[df["variant"] == variant]
    size = rows.set_index(["experiment", *records.POINT], drop=False)[along]
    both = pd.DataFrame({"speedup": s, "size": size.loc[s.index]})
    sign = 1 if direction == "rises" else -1
    lines = []
    for (name, density), line in both.groupby(["experiment", "density"], sort=False):
        line = line.sort_values("size")
        if len(line) < 2:
            continue
        factor = line["speedup"].iloc[-1] / line["speedup"].iloc[0]
        ranks = line.rank().corr().iloc[0, 1]  # Spearman's; NaN if all speedups are equal
        follows = float(sign * (factor - 1) > change and sign * ranks > 0)
        text = f"{name}, {_density(density)}: {factor:.2f}×"
        if each_step:
            text += f" ({', '.join(f'{v:.3g}' for v in line['speedup'])})"
            if (sign * np.diff(line["speedup"]) <= 0).any():
                follows /= 2
        lines.append((follows, text))
    if not lines:
        raise NotMeasured("No sweep has two sizes.")
    share = np.mean([follows for follows, _ in lines])
    steps = f", at every step in {sum(f == 1 for f, _ in lines)}" if each_step else ""
    return Outcome(
        _grade(share, 1.0, 0.5),
        f"{direction} in {sum(f > 0 for f, _ in lines)} of {len(lines)} sweeps{steps}",
        f"Speedup{_of(variant, baseline)} at the largest size over that at the smallest: "
        + "; ".join(text for _, text in lines)
        + ".",
    )


def faster_scenario(
    e: Evidence,
    experiment,
    variant: str,
    larger: Sequence[str],
    smaller: Sequence[str],
    tolerance: float,
    baseline=BEST,
) -> Outcome:
    """Whether the speedup is better in some experiments than in others, by geometric means.

    Reproduced if the mean over `larger` exceeds that of each of `smaller` by more than the relative
    `tolerance`; partly if it does so for some, or if none differs by more than the tolerance.
    """
    best = records.geomean(_speedup(e, larger, variant, baseline))
    means = {name: records.geomean(_speedup(e, [name], variant, baseline)) for name in smaller}
    above = [best > (1 + tolerance) * mean for mean in means.values()]
    even = [abs(best / mean - 1) <= tolerance for mean in means.values()]
    verdict = REPRODUCED if all(above) else PARTLY if any(above) or all(even) else NOT_REPRODUCED
    others = ", ".join(f"{name} {mean:.2f}×" for name, mean in means.items())
    return Outcome(
        verdict,
        f"{' and '.join(larger)} {best:.2f}×, against {others}",
        f"Geometric means of the speedup{_over(baseline)}; "
        f"a difference within {tolerance:.0%} counts as none.",
    )


def label_trend(
    e: Evidence, experiment, variant: str, labels: Sequence[str], change: float
) -> Outcome:
    """Whether throughput rises along labels, in each size and density on its own: from the first of
    `labels` that was measured there to the last by more than the relative `change`. Reproduced if
    it does in every one, partly if in half."""
    rows = _rows(e, experiment, variant)
    lines = []
    for (m, n, k, density), line in rows.groupby(["m", "n", "k", "density"], sort=False):
        rates = line.groupby("label")["tflops"].max().reindex(labels).dropna()
        if len(rates) > 1:
            factor = rates.iloc[-1] / rates.iloc[0]
            steps = ", ".join(f"{rate:.3g}" for rate in rates)
            text = f"{m} × {n} × {k}, {_density(density)}: {factor:.2f}× ({steps} TFLOP/s)"
            lines.append((factor > 1 + change, text))
    if not lines:
        raise NotMeasured(f"No size of {variant} was measured with two of these labels.")
    rises = [follows for follows, _ in lines]
    return Outcome(
        _grade(np.mean(rises), 1.0, 0.5),
        f"rises in {sum(rises)} of {len(lines)} sweeps",
        f"From {labels[0] or 'the usual pattern'} to {labels[-1] or 'the usual pattern'}: "
        + "; ".join(text for _, text in lines)
        + ".",
    )


def power_law(
    e: Evidence,
    experiment,
    variants: Sequence[str],
    along: str,
    low: float,
    high: float,
    tolerance: float,
    scatter: float,
) -> Outcome:
    """Time as a power of a size, fitted on log axes per variant and density.

    Reproduced if every exponent lies in [low, high] widened by `tolerance` and no point is further
    than the factor `scatter` from its fit, partly if that holds for half of the fits.
    """
    df = _rows(e, experiment, *variants)
    fits, exponents, worst = [], [], 1.0
    for variant in variants:
        for _, line in df[df["variant"] == variant].groupby("density"):
            if line[along].nunique() < 3:
                continue
            x, y = np.log(line[along].to_numpy(float)), np.log(line["median_us"].to_numpy())
            slope, offset = np.polyfit(x, y, 1)
            off = float(np.exp(np.abs(y - slope * x - offset).max()))
            fits.append(low - tolerance <= slope <= high + tolerance and off <= scatter)
            exponents.append(slope)
            worst = max(worst, off)
    if not fits:
        raise NotMeasured("No sweep has three sizes.")
    return Outcome(
        _grade(np.mean(fits), 1.0, 0.5),
        f"exponent {_range(exponents)}, points within {worst:.2f}× of the fit",
        f"{sum(fits)} of {len(fits)} fits of time against {along} have an exponent in "
        f"{low:g}–{high:g} ± {tolerance:g} and points within {scatter:g}×.",
    )


def largest(
    e: Evidence,
    experiment,
    variant: str | Sequence[str],
    column: str,
    reproduced: float,
    partly: float,
) -> Outcome:
    """The largest value of a column, over one variant or several. Reproduced up to `reproduced`,
    partly up to `partly`."""
    rows = _rows(e, experiment, *([variant] if isinstance(variant, str) else variant))
    worst = rows.loc[rows[column].idxmax()]
    return Outcome(
        _grade(-worst[column], -reproduced, -partly),
        f"{column} at most {worst[column]:.1e}",
        f"Over {_points(len(rows))}; the largest is at "
        f"m = {worst['m']}, n = {worst['n']}, k = {worst['k']}, "
        f"{_density(worst['density'])}. Limit {reproduced:.0e}.",
    )


def true_density(e: Evidence, experiment, variant: str, tolerance: float) -> Outcome:
    """Whether the generated matrices have the density they are labelled with: nnz / (m k) over the
    nominal one.

    Reproduced if the mean ratio is within `tolerance` of 1, partly within five times that.
    """
    rows = e.frame(experiment)
    rows = rows[(rows["variant"] == variant) & (rows["label"] == "")]
    if rows.empty:
        raise NotMeasured("No generated matrix was measured.")
    ratio = rows["nnz"] / (rows["m"].astype(float) * rows["k"]) / rows["density"]
    off = abs(ratio.mean() - 1)
    return Outcome(
        _grade(-off, -tolerance, -5 * tolerance),
        f"{ratio.mean():.3f} of the target",
        f"True density over nominal density, {_range(ratio, digits=3)} over {_points(len(rows))}.",
    )


def share_of_ceiling(
    e: Evidence,
    experiment,
    variants: Sequence[str],
    ceiling: str,
    unit: str,
    reproduced: float,
    partly: float,
) -> Outcome:
    """How near a rate comes to its measured ceiling. `unit` is the column: "tflops" or "gbps".

    Reproduced if the largest share is at most `reproduced`, partly up to `partly`. Where
    `reproduced` > `partly` it must come near: the smallest share must be at least that.
    """
    top = e.ceiling(ceiling, unit)
    rows = e.frame(experiment)
    shares = rows[rows["variant"].isin(variants)][unit] / top
    if shares.empty:
        raise NotMeasured(f"{', '.join(variants)} was not measured in {', '.join(experiment)}.")
    verdict, limit, worst = _share(shares, reproduced, partly)
    return Outcome(
        verdict,
        f"{limit} {worst:.0%} of the {ceiling} ceiling, median {shares.median():.0%}",
        f"Ceiling measured here: {top:.3g} {'TFLOP/s' if unit == 'tflops' else 'GB/s'}.",
    )


def _share(shares: pd.Series, reproduced: float, partly: float) -> tuple[str, str, float]:
    """The verdict on shares that must all be small, or large where `reproduced` > `partly`; which
    of the two as text, and the share that decides."""
    if reproduced > partly:
        return _grade(shares.min(), reproduced, partly), "at least", float(shares.min())
    return _grade(-shares.max(), -reproduced, -partly), "at most", float(shares.max())


def roofline_transition(
    e: Evidence,
    experiment,
    rows: int,
    columns: int,
    low: float,
    high: float,
    reproduced: float,
    partly: float,
) -> Outcome:
    """The sparsity at which NM-SpMM's Eq. 3, for blocks of rows x columns that stage all of A,
    falls under the ridge of the roofline: the FMA ceiling over that of copies in DRAM.

    Reproduced if it is no further than `reproduced` (a share, as the sparsity is) from [low, high],
    partly no further than `partly`. What the bandwidth of the L2 would give is said beside it.
    """
    from kernels.nm_spmm import analysis  # no other room's claims need it

    peak = e.ceiling("fma", "tflops")

    def at(ceiling: str) -> tuple[float, float]:
        device = analysis.Device("", 0, 0.0, peak, e.ceiling(ceiling, "gbps"), 0, 0)
        return analysis.transition(device, rows, columns), device.ridge

    sparsity, ridge = at("copy")
    off = max(low - sparsity, sparsity - high, 0.0)
    beside = ""
    with contextlib.suppress(NotMeasured):
        beside = f" Against the bandwidth of the L2: {at('l2_read')[0]:.0%}."
    return Outcome(
        _grade(-off, -reproduced, -partly),
        f"{sparsity:.0%} sparsity",
        f"Blocks of {rows} × {columns}; ridge at {ridge:.1f} FLOP/B, the FMA ceiling of {peak:.3g} "
        f"TFLOP/s over the copy ceiling.{beside}",
    )


def ceiling_ratio(
    e: Evidence,
    experiment,
    ceiling: str,
    over: str,
    unit: str,
    low: float,
    high: float,
    reproduced: float,
    partly: float,
) -> Outcome:
    """Whether one measured ceiling is the stated multiple of another, [low, high], up to a factor.
    `unit` is the column: "tflops" or "gbps".

    Reproduced within the factor `reproduced` of the range, partly within `partly`.
    """
    ours, theirs = e.ceiling(ceiling, unit), e.ceiling(over, unit)
    verdict, _ = _near(pd.Series([ours / theirs]), low, high, reproduced, partly)
    rate = "TFLOP/s" if unit == "tflops" else "GB/s"
    return Outcome(
        verdict,
        f"{ours / theirs:.2f}× over {over}",
        f"Ceilings measured here: {ceiling} {ours:.4g} {rate}, {over} {theirs:.4g} {rate}; asked: "
        f"{stated(low, high)}×, within a factor of {reproduced:g}.",
    )


def dram_share(
    e: Evidence,
    experiment,
    variants: Sequence[str],
    metric: Sequence[str],
    often: float,
    reproduced: float,
    partly: float,
) -> Outcome:
    """Share of the DRAM bandwidth in use, as the profiler counts it: the value that the share
    `often` of the points reach (0: the largest, 0.5: the median). Reproduced if it is at least
    `reproduced`, partly at `partly`; several variants must agree, else partly.

    Without hardware counters the share lies between two bounds: least bytes over the copy ceiling
    (all reuse in caches) and requested bytes over it (none). Where both bounds give one verdict,
    that stands; else the claim is not measured.
    """
    verdicts, texts, how = [], [], "Hardware counters"
    for variant in variants:
        try:
            low = high = e.counter(variant, metric, experiment) / 100
        except NotMeasured as missing:
            how = (
                "No hardware counters; bounds from least and requested bytes over the copy ceiling"
            )
            low, high = _dram_bounds(e, experiment, variant)
            pair = {_grade(float(b.quantile(1 - often)), reproduced, partly) for b in (low, high)}
            if len(pair) > 1:
                a, b = (float(s.quantile(1 - often)) for s in (low, high))
                raise NotMeasured(
                    f"{missing} Without counters the DRAM share of {variant} is only known to lie "
                    f"between {a:.0%} and {b:.0%}."
                ) from None
        a, b = (float(s.quantile(1 - often)) for s in (low, high))
        verdicts.append(_grade(a, reproduced, partly))
        texts.append(f"{variant} {a:.0%}" if a == b else f"{variant} {a:.0%}–{b:.0%}")
    which = {0: "largest", 0.5: "median", 1: "smallest"}.get(
        often, f"reached by {often:.0%} of points"
    )
    return Outcome(
        _all_of(verdicts), ", ".join(texts), f"{how}; {which}; asked: at least {reproduced:.0%}."
    )


def _dram_bounds(e: Evidence, experiment, variant: str) -> tuple[pd.Series, pd.Series]:
    copy = e.ceiling("copy", "gbps")
    rows = _rows(e, experiment, variant)
    bounds = (rows[c] / rows["median_us"] / 1e3 / copy for c in ("least_bytes", "requested_bytes"))
    low, high = (b.clip(upper=1.0) for b in bounds)
    return low, high


def memory_bound(
    e: Evidence,
    experiment,
    variant: str,
    memory: Sequence[str],
    busy: float,
    share: float,
) -> Outcome:
    """Whether memory limits the kernel rather than arithmetic: some memory (DRAM, L2 or L1) is used
    at `busy` or more of its peak, and more than the FMA units.

    Reproduced if both hold at a share `share` of the points, partly if only "more" does. Memory is
    the largest of the counters `memory`; without hardware counters, the larger of least bytes over
    the copy ceiling and requested bytes over the L2 ceiling. Arithmetic is useful FLOPs over the
    FMA ceiling.
    """
    rows = _rows(e, experiment, variant).set_index(["experiment", "m", "n", "k", "density"])
    arithmetic = rows["tflops"] / e.ceiling("fma", "tflops")
    profiled = []
    for metric in memory:
        with contextlib.suppress(NotMeasured):  # not every GPU has every counter
            profiled.append(e.counter(variant, [metric], experiment) / 100)
    if profiled:
        used = pd.concat(profiled, axis=1).max(axis=1)
        arithmetic = arithmetic.loc[used.index]
        how = f"the largest of {', '.join(str(s.name) for s in profiled)}"
    else:
        per_us = rows["median_us"] * 1e3
        dram = rows["least_bytes"] / per_us / e.ceiling("copy", "gbps")
        l2 = rows["requested_bytes"] / per_us / e.ceiling("l2_read", "gbps")
        used = np.maximum(dram, l2).clip(upper=1.0)
        how = "no hardware counters: rates over the measured copy and L2 ceilings"
    more = (used > arithmetic).mean()
    both = ((used > arithmetic) & (used >= busy)).mean()
    return Outcome(
        REPRODUCED if both >= share else PARTLY if more >= share else NOT_REPRODUCED,
        f"memory {used.median():.0%}, FMA units {arithmetic.median():.0%} of peak (medians)",
        f"Memory over {busy:.0%} and over arithmetic at {both:.0%} of {_points(len(used))}; {how}.",
    )


def counter_limit(
    e: Evidence,
    experiment,
    variants: Sequence[str],
    metric: Sequence[str],
    often: float,
    reproduced: float,
    partly: float,
) -> Outcome:
    """One hardware counter: the value that the share `often` of the points reach. Reproduced from
    `reproduced` on, partly from `partly` on; where `reproduced` < `partly` the counter must be
    small, and these are upper limits."""
    sign = 1 if reproduced >= partly else -1
    verdicts, texts = [], []
    for variant in variants:
        values = e.counter(variant, metric, experiment)
        value = float(values.quantile(1 - often if sign > 0 else often))
        verdicts.append(_grade(sign * value, sign * reproduced, sign * partly))
        texts.append(f"{variant} {value:.4g}")
    limit = "at least" if sign > 0 else "at most"
    return Outcome(
        _all_of(verdicts),
        ", ".join(texts),
        f"Counter {values.name}, {_points(len(values))}; asked: {limit} {reproduced:g}.",
    )


def counter_share(
    e: Evidence,
    experiment,
    variants: Sequence[str],
    metric: Sequence[str],
    of: str,
    reproduced: float,
    partly: float,
    plus: Sequence[str] = (),
) -> Outcome:
    """One hardware counter, or its sum with all of `plus`, as a share of another. Reproduced if no
    share is over `reproduced`, partly if none is over `partly`; where `reproduced` > `partly` no
    share may be under them."""
    verdicts, texts = [], []
    for variant in variants:
        part, whole = (e.counter(variant, m, experiment) for m in (metric, [of]))
        part = sum((e.counter(variant, [m], experiment) for m in plus), start=part).dropna()
        part, whole = part.align(whole, join="inner")
        if part.empty or (whole <= 0).any():
            raise NotMeasured(
                f"The counter {of} has no positive values where {metric[0]} was read."
            )
        share = part / whole
        verdict, limit, worst = _share(share, reproduced, partly)
        verdicts.append(verdict)
        texts.append(f"{variant} {limit} {worst:.1%}, median {share.median():.1%}")
    return Outcome(
        _all_of(verdicts),
        ", ".join(texts),
        f"Counter {' + '.join([metric[0], *plus])} over {of}, {_points(len(share))}; "
        f"asked: {limit} {reproduced:.0%}.",
    )


def flops_per_count(
    e: Evidence,
    experiment,
    metric: Sequence[str],
    variants: Sequence[str],
    densities: Sequence[float],
    tolerance: float,
) -> Outcome:
    """Useful FLOPs for each unit of a hardware counter, an intensity where that counts bytes or
    loads: along several variants at one density, or several densities of one variant, from the most
    to the least; geometric means over the points.

    Reproduced if each is less than the one before it by more than the relative `tolerance`, partly
    if the last is less than the first by more than that.
    """
    length = max(len(variants), len(densities))
    rates, texts = [], []
    for variant, density in zip(
        list(variants) * (length // len(variants)),
        list(densities) * (length // len(densities)),
        strict=True,
    ):
        here = e.only({**e.where, "density": density}, e.repeats)
        counts = here.counter(variant, metric, experiment)
        flops = here.frame(experiment)
        flops = flops[flops["variant"] == variant].set_index(list(counts.index.names))
        rate = flops["useful_flops"].groupby(level=counts.index.names).first() / counts
        if not np.isfinite(rate.dropna()).all():
            raise NotMeasured(f"The counter {counts.name} of {variant} has a value of 0.")
        rates.append(records.geomean(rate.dropna()))
        texts.append(f"{variant} at {_density(density)} {rates[-1]:.4g}")
    falls = [after * (1 + tolerance) < before for before, after in itertools.pairwise(rates)]
    overall = rates[-1] * (1 + tolerance) < rates[0]
    return Outcome(
        REPRODUCED if all(falls) else PARTLY if overall else NOT_REPRODUCED,
        f"{sum(falls)} of {len(falls)} steps fall, {rates[0] / rates[-1]:.2f}× over all",
        f"FLOPs for each of {counts.name}: {', '.join(texts)}.",
    )


def counter_trend(
    e: Evidence, experiment, variant: str, metric: Sequence[str], along: str, change: float
) -> Outcome:
    """Whether one hardware counter rises along a size ("m" or "n"), in each experiment and
    density on its own: from the smallest to the largest profiled size by more than the relative
    `change`. Reproduced if it does in every one, partly if in half."""
    values = e.counter(variant, metric, experiment)
    lines = []
    for (name, density), line in values.groupby(level=["experiment", "density"], sort=False):
        sizes = line.index.get_level_values(along)
        if len(line) > 1 and sizes.min() < sizes.max():
            first, last = (float(line[sizes == end].mean()) for end in (sizes.min(), sizes.max()))
            lines.append((last > (1 + change) * first, f"{name}, {_density(density)}", first, last))
    if not lines:
        raise NotMeasured(f"The counter {metric[0]} was profiled at no two sizes of a sweep.")
    share = np.mean([rises for rises, *_ in lines])
    return Outcome(
        _grade(share, 1.0, 0.5),
        f"rises in {sum(rises for rises, *_ in lines)} of {len(lines)} sweeps",
        f"Counter {values.name} at the smallest and the largest {along.upper()} that were profiled: "
        + "; ".join(f"{name}: {first:.3g} to {last:.3g}" for _, name, first, last in lines)
        + ".",
    )


def counter_ratio(
    e: Evidence,
    experiment,
    variant: str,
    metric: Sequence[str],
    reproduced: float,
    partly: float,
    baseline=BEST,
) -> Outcome:
    """One hardware counter of a variant over that of a baseline, geometric mean over the points.

    Reproduced from `reproduced` on, partly from `partly` on; where `reproduced` < `partly` the
    counter must be the smaller one, and these are upper limits.
    """
    sign = 1 if reproduced >= partly else -1
    ours, theirs = (e.counter(v, metric, experiment) for v in (variant, baseline))
    ours, theirs = ours.align(theirs, join="inner")
    if ours.empty or (ours <= 0).any() or (theirs <= 0).any():
        raise NotMeasured(f"The counter {metric[0]} has no positive values at common points.")
    ratio = records.geomean(ours / theirs)
    return Outcome(
        _grade(sign * ratio, sign * reproduced, sign * partly),
        f"{ratio:.2f}×",
        f"Counter {ours.name} of {variant} over {baseline}, {_points(len(ours))}; "
        f"asked: {'at least' if sign > 0 else 'at most'} {reproduced:g}×.",
    )


def counter_near(
    e: Evidence,
    experiment,
    variants: Sequence[str],
    metric: Sequence[str],
    low: float,
    high: float,
    reproduced: float,
    partly: float,
    baseline="",
    per=1.0,
) -> Outcome:
    """Whether one hardware counter of each variant, in units of `per`, is the stated one, [low,
    high], up to a factor; with a `baseline`, the same of the counter over that of the baseline.

    Reproduced if nine in ten of the points of all variants are within the factor `reproduced` of
    the range, partly if they are within the factor `partly`.
    """
    each = {}
    for variant in variants:
        values = e.counter(variant, metric, experiment)
        if baseline:
            values, theirs = values.align(e.counter(baseline, metric, experiment), join="inner")
            if values.empty or (theirs <= 0).any():
                raise NotMeasured(
                    f"The counter {metric[0]} of {baseline} has no positive values to divide by."
                )
            values = values / theirs
        each[variant] = values / per
    verdict, off = _near(pd.concat(each), low, high, reproduced, partly)
    unit, scale = ("×" if baseline else ""), (f" in units of {per:g}" if per != 1 else "")
    over = f" over {baseline}" if baseline else ""
    return Outcome(
        verdict,
        ", ".join(f"{v} {_digits(values)}{unit}" for v, values in each.items()) + over,
        f"Counter {values.name or metric[0]}{scale}, {_points(sum(map(len, each.values())))}; asked: "
        f"{stated(low, high)}{unit}, within a factor of {reproduced:g}; off by {off:.3g}.",
    )


def dominant_stall(e: Evidence, experiment, variants: Sequence[str], reason: str) -> Outcome:
    """Whether `reason` is why most warps that do not issue wait: its stall counter is the largest
    of all that were profiled ("selected" is a warp that issues, and no stall).

    Reproduced if it is at every point of every variant, partly if at half of them.
    """
    counters = {
        found[1]: name for name in e.counters["metric"].unique() if (found := STALL.fullmatch(name))
    }
    wins, texts = [], []
    for variant in variants:
        stalls = {}
        for other, metric in counters.items():
            with contextlib.suppress(NotMeasured):
                per = 100 if metric.endswith(".pct") else 1
                stalls[other] = e.counter(variant, [metric], experiment) / per
        if reason not in stalls or len(stalls) < 2:
            raise NotMeasured(f"The stalls of {variant} were not profiled, {reason} among others.")
        table = pd.DataFrame(stalls)
        wins.extend(table.drop(columns=reason).max(axis=1) < table[reason])
        most = table.mean().nlargest(3)
        texts.append(f"{variant} " + ", ".join(f"{name} {v:.3g}" for name, v in most.items()))
    return Outcome(
        _grade(np.mean(wins), 1.0, 0.5),
        f"{reason} the largest at {sum(wins)} of {_points(len(wins))}",
        f"Warps that wait, for each instruction issued; the largest means: {'; '.join(texts)}.",
    )


def counter_scenario(
    e: Evidence,
    experiment,
    variant: str,
    metric: Sequence[str],
    larger: str,
    smaller: str,
    tolerance: float,
) -> Outcome:
    """One hardware counter in two experiments, by medians. Reproduced if it is larger in `larger`
    by more than the relative `tolerance`, partly if the two are within it."""
    a, b = (float(e.counter(variant, metric, [name]).median()) for name in (larger, smaller))
    return Outcome(
        _grade(a / b - 1 if b else math.inf, tolerance, -tolerance),
        f"{larger} {a:.4g}, {smaller} {b:.4g}",
        f"Medians of {metric[0]}; a difference within {tolerance:.0%} counts as none.",
    )


def added_memory(
    e: Evidence,
    experiment,
    variant: str,
    baseline: str,
    low: float,
    high: float,
    reproduced: float,
    partly: float,
) -> Outcome:
    """Device memory that the preprocessing of a variant adds to that of another one, over that of
    the sparse operand's values, 4 bytes each.

    Reproduced if nine in ten of the points are within the factor `reproduced` of [low, high],
    partly if they are within the factor `partly`.
    """
    rows = _rows(e, experiment, variant, baseline)
    index = ["experiment", *records.POINT]
    ours, theirs = (rows[rows["variant"] == name].set_index(index) for name in (variant, baseline))
    added = (ours["prepare_bytes"] - theirs["prepare_bytes"]) / (4 * ours["nnz"])
    added = added.dropna()
    if added.empty:
        raise NotMeasured(f"{variant} and {baseline} were not measured at any common point.")
    verdict, off = _near(added.clip(lower=0), low, high, reproduced, partly)
    return Outcome(
        verdict,
        f"{_range(added * 100, digits=1)} % over {baseline}",
        f"Asked: {low:.0%}–{high:.0%} of the values of the sparse operand; {_points(len(added))}, "
        f"off by a factor of {off:.3g}.",
    )


def prepare_cost(
    e: Evidence, experiment, variant: str, reproduced: float, partly: float
) -> Outcome:
    """Preprocessing in units of launches: prepare time over the time of one launch, median over the
    points.

    Reproduced up to `reproduced` launches, partly up to `partly`.
    """
    rows = e.frame(experiment)
    rows = rows[rows["variant"] == variant]
    if rows.empty:
        raise NotMeasured(f"The variant {variant!r} was not measured.")
    launches = rows["prepare_ms"] * 1e3 / rows["median_us"]
    return Outcome(
        _grade(-launches.median(), -reproduced, -partly),
        f"median {launches.median():.3g} launches, {launches.min():.3g}–{launches.max():.3g}",
        f"Median preprocessing {rows['prepare_ms'].median():.3g} ms over {_points(len(rows))}; "
        f"asked: at most {reproduced:g} launches.",
    )


MEASURES: dict[str, Callable[..., Outcome]] = {
    f.__name__: f
    for f in (
        share_of_points,
        speedup_range,
        speedup_mean,
        speedup_near,
        share_of_ideal,
        fastest_of,
        rate_near,
        levels_off,
        somewhere_faster,
        speedup_trend,
        faster_scenario,
        label_trend,
        power_law,
        largest,
        true_density,
        share_of_ceiling,
        roofline_transition,
        ceiling_ratio,
        dram_share,
        memory_bound,
        counter_limit,
        counter_share,
        flops_per_count,
        counter_trend,
        counter_ratio,
        counter_near,
        dominant_stall,
        counter_scenario,
        added_memory,
        prepare_cost,
    )
}
