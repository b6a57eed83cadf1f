"""The end of the chapter: what is not reproduced, what falls short, and all of it in short."""

from __future__ import annotations

import pandas as pd

from artifact.drawing.words import change, listed
from artifact.rooms.nm_spmm import results
from artifact.rooms.nm_spmm.counters import Counters
from artifact.rooms.nm_spmm.points import has, mean, over
from artifact.rooms.nm_spmm.prose.beyond import LINE, spread
from artifact.rooms.nm_spmm.prose.paper import steps_at_high
from artifact.rooms.nm_spmm.results import AIM, AIM_SHARE, Bars
from artifact.rooms.nm_spmm.trial import BIG, Trial
from artifact.rooms.nm_spmm.words import at_each, named, point_of, sparsity


def failed(claims: pd.DataFrame) -> str:
    """What stands above the table of claims that are not reproduced."""
    if len(claims):
        return "**What is not reproduced, and why**"
    return "Every claim is reproduced at least partly, or was not measured on this GPU."


def falls_short(
    trial: Trial,
    bars: Bars,
    outcome: pd.DataFrame,
    compared: pd.DataFrame | None,
    counted: Counters,
) -> str:
    """A list of what is missed, slower, or was not measured. compared: the data behind the tensor cores' figure."""
    measure = trial.measure
    lines = [
        _authors(bars),
        _ceiling(bars),
        _behind_cublas(over(measure("llama"), "auto", "cublas")),
        _behind_nmsparse(measure("anchors"), measure("llama")),
        _odd_sizes(results.of_ideal(measure("llama"))),
        _predictions(outcome),
        _tensor_cores(compared),
        _patterns(spread(measure("vectors"))["auto"]),
        "Patterns are random. What a trained network's pattern leaves to packing was not measured, nor its accuracy.",
        "" if counted.profiled else "Hardware counters were not recorded.",
    ]
    return "\n".join(f"- {line}" for line in lines if line)


def _authors(bars: Bars) -> str:
    if len(bars.missed):
        by = (f"at {where}, {sparsity(d)} ({v:.2f}×)" for (where, d), v in bars.missed.items())
        return f"`auto` is below {AIM:.2f}× of the authors' speedups {listed(by)}."
    if bars.below.empty:
        return ""
    return (
        f"{len(bars.below)} of {len(bars.ours)} points gain less than {AIM - 1:.0%} over the authors' kernels, the "
        f"least {bars.below.min():.2f}× at {point_of(bars.below.idxmin())}."
    )


def _ceiling(bars: Bars) -> str:
    if bars.short.empty:
        return ""
    points = listed(f"{v:.1%} at {point_of(key)}" for key, v in bars.short.items())
    why = ", all while the power limit held the clock down" if bars.capped else ""
    return f"`auto` stays below {AIM_SHARE:.0%} of the FMA ceiling, at {points}{why}."


def _behind_cublas(dense: pd.Series) -> str:
    behind = dense[dense < 1]
    if behind.empty:
        return ""
    return (
        f"`auto` is behind dense cuBLAS at {len(behind)} of {len(dense)} points of Fig. 9, {behind.min():.2f}× at "
        f"{point_of(behind.idxmin())}."
    )


def _behind_nmsparse(anchored: pd.DataFrame, llama: pd.DataFrame) -> str:
    kernels = {
        "nmsparse_vw32": "nmSPARSE's kernel, rebuilt,",
        "nm_baseline": "the nmSPARSE-style kernel",
    }
    said = []
    for other, called in kernels.items():
        ratios = [over(df, "auto", other) for df in (anchored, llama) if has(df, other)]
        slower = [(key, v) for ratio in ratios for key, v in ratio[ratio < 1].items()]
        points = listed(f"{point_of(key)} ({v:.2f}×)" for key, v in slower)
        said += [f"`auto` is behind {called} at {points}."] if points else []
    return " ".join(said)


def _odd_sizes(ideal: pd.Series) -> str:
    low = ideal[ideal < 0.8]
    sizes = listed(str(m) for m in sorted(set(low.index.get_level_values("m"))))
    if low.empty:
        return ""
    return f"{len(low)} of these points get less than 80% of the ideal; their m: {sizes}."


def _predictions(outcome: pd.DataFrame) -> str:
    judged = outcome[outcome["predicted"].notna()]
    wrong = judged[(judged["came"] / judged["predicted"] - 1).abs() >= 0.05]
    return f"Our predictions for {named(wrong['rung'])} were off by more than 5%." if len(wrong) else ""


def _tensor_cores(compared: pd.DataFrame | None) -> str:
    if compared is None or compared["crossing"].notna().all():
        return ""
    lines = compared.drop_duplicates(LINE)
    return f"On tensor cores {int(lines['crossing'].isna().sum())} of {len(lines)} lines never beat the dense library."


def _patterns(least: float) -> str:
    if not least < 0.8:
        return ""
    return f"Patterns are not alike: the slowest of one sparsity has {least:.0%} of the fastest one's rate."


def _short(bars: Bars) -> str:
    """At how many of how many the aims over the authors, and those under the FMA ceiling, are missed."""
    missed = f"{len(bars.missed)} of {len(bars.over_shapes) + len(bars.at_step)} gain less than {AIM - 1:.0%}"
    return f"{missed}, and {len(bars.short)} of {len(bars.reached)} stay below {AIM_SHARE:.0%} of the FMA ceiling"


def in_short(trial: Trial, bars: Bars, counted: Counters) -> str:
    """The chapter's four findings."""
    stepwise, llama = trial.measure("stepwise"), trial.measure("llama")
    dense = {v: mean(over(llama, v, "cublas")) for v in ("auto", "v3")}
    ported, won = mean(bars.ported), results.won_by_packing(trial.measure("packing"))
    fair = "" if abs(ported - 1) < 0.1 else " only with that factor in mind"
    gains = steps_at_high(stepwise)
    pack, pipe = map(change, gains) if gains else ("not measured", "not measured")
    shares = {v: results.rates(stepwise)[v] / trial.fma for v in ("v3", "auto")}
    v3, auto = (at_each(s[[d for d in s.index if d < 1]], "{:.0%}") for s in shares.values())
    known = {"v3", "auto"} <= set(counted.profiled) and max(counted.memory().values()) < 60
    bounded = "not memory: the FMA pipes are kept from issuing" if known else "in the counters above"
    met = bars.missed.empty and bars.short.empty
    verdict = f"in the mean no sparsity gains less than {AIM - 1:.0%}" if met else _short(bars)
    return f"""
- Rebuilt here, NM-SpMM's V3 is at {dense["v3"]:.2f}× cuBLAS over the points of Fig. 9 and at {ported:.2f}× of the
  authors' own kernels, which makes it a fair stand-in{fair}.
- Its steps: at high sparsity packing is {pack}, the pipelines {pipe}; the 70% rule is right at
  {len(results.rule_is_right(won))} of {len(won)} sparsities.
- What bounds it at {BIG}³ is {bounded}; V3 reaches {v3} of the ceiling, `auto` {auto}.
- `auto` is at {dense["auto"]:.2f}× cuBLAS and {dense["auto"] / dense["v3"]:.2f}× V3 over these points, and at
  {mean(bars.ours):.2f}× the authors' kernels on the anchors; {verdict}.
"""
