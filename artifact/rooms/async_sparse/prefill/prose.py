"""Sentences of the prefill that hold numbers, as Markdown; each says "not measured" where there are none."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from artifact.drawing import plot
from artifact.drawing.words import listed
from artifact.measure import records
from artifact.rooms.async_sparse.figures import speedups
from artifact.rooms.async_sparse.prefill import experiments
from artifact.rooms.async_sparse.prefill.configurations import (
    BOTH,
    BOTH_OURS,
    CONFIGURATIONS,
    DENSE,
    DENSITIES,
    FFN_OURS,
    PARTS,
)
from artifact.rooms.async_sparse.prefill.figures import stated

HERE = "Not measured on this GPU yet"
NOT_YET = f"{HERE}: `make measure` on a GPU of compute capability 9.0 with the `llm` extra fills this page."
NO_LIBRARIES = "PyTorch, transformers or CuPy are not installed here, so nothing was measured for this page."


def origin(run, df: pd.DataFrame | None) -> str:
    """What the page can do here."""
    said = [NO_LIBRARIES] if run and run.mode == "measure" and not experiments.installed() else []
    return " ".join([*said, *([NOT_YET] if df is None else [])])


def claimed(text: pd.DataFrame) -> str:
    """What the source says of Fig. 8."""
    parts = [
        f"{_span(row.low, row.high)} {'up to 4,096' if row.low != row.high else f'at {row.n:,}'} tokens with "
        f"{CONFIGURATIONS[row.variant].called.removesuffix(', as published')}"
        for row in stated(text).itertuples()
    ]
    return f"At 90% block sparsity the source's model is {listed(parts)}: times as fast as the dense one, on an H100."


def _span(low: float, high: float) -> str:
    return f"{low:.2f}" if low == high else f"{low:.2f} to {high:.2f}"


def finding(df: pd.DataFrame | None, text: pd.DataFrame) -> str:
    """What of it was found, configuration by configuration."""
    if df is None:
        return f"{HERE}."
    own = df[df["density"] == DENSITIES[0]]
    over = _over(own)
    said = stated(text)
    points = []
    for row in said.itertuples():
        here = over.get((row.variant, row.n))
        if here is not None:
            points.append(
                f"{CONFIGURATIONS[row.variant].called} at {plot.number(row.n)} tokens: {here:.2f}×, "
                f"{_span(row.low, row.high)}× stated"
            )
    n = max(own["n"])
    ours = [f"{CONFIGURATIONS[v].called} {over[v, n]:.2f}×" for v in (FFN_OURS, BOTH_OURS) if (v, n) in over]
    if ours:
        points.append(f"past the source, at {plot.number(n)} tokens: {listed(ours)}")
    return "\n".join(f"- {point}." for point in points)


def _over(df: pd.DataFrame) -> dict[tuple[str, int], float]:
    wanted = [v for v in CONFIGURATIONS if v != DENSE]
    if DENSE not in set(df["variant"]) or not set(wanted) & set(df["variant"]):
        return {}
    found = speedups(df, wanted, DENSE)
    return {(r.variant, int(r.n)): r.speedup for r in found.itertuples()}


def below(df: pd.DataFrame | None) -> str:
    """Which configurations are slower than the dense model at which lengths, and why that can be."""
    if df is None:
        return ""
    over = _over(df[df["density"] == DENSITIES[0]])
    slow: dict[str, dict[int, float]] = {}
    for (v, n), x in over.items():
        if x < 1:
            slow.setdefault(v, {})[n] = x
    if not slow:
        return "No configuration is slower than the dense model at any length."
    each = listed(
        f"{CONFIGURATIONS[v].called} at {listed(plot.number(n) for n in sorted(at))} tokens ({_span(min(at.values()), max(at.values()))}×)"
        for v, at in slow.items()
    )
    return (
        f"Slower than the dense model: {each}. Sparse attention as the source has it is sparse at every length. As long as its "
        "patterns keep most of the blocks it pays for choosing them and for a generated kernel, which is behind SDPA's best; ours "
        "leaves attention dense there."
    )


def beside(of: Mapping[str, pd.DataFrame]) -> str:
    """How the gain of each configuration differs between GPUs, by geometric means over the lengths that all measured;
    of: name of a GPU -> record of the whole model. Nothing for fewer than two."""
    each = {gpu: _over(df[df["density"] == DENSITIES[0]]) for gpu, df in of.items()}
    shared = set.intersection(*map(set, each.values())) if len(each) > 1 else set()
    if not shared:
        return ""
    first, *others = each
    means = {
        gpu: {v: records.geomean([over[p] for p in shared if p[0] == v]) for v in {v for v, _ in shared}}
        for gpu, over in each.items()
    }
    texts = []
    for gpu in others:
        parts = [
            f"{CONFIGURATIONS[v].called} {means[gpu][v]:.2f}× ({means[gpu][v] / means[first][v] - 1:+.0%})".replace(
                "(-", "(−"
            )
            for v in CONFIGURATIONS
            if v in means[gpu]
        ]
        texts.append(f"On the {gpu}, over its own dense model and beside the {first}: {listed(parts)}.")
    return " ".join([*texts, "Geometric means over the lengths."])


def patterns(attention: pd.DataFrame | None) -> str:
    """What the table of the patterns means for a model with weights of its own."""
    if attention is None:
        return ""
    if attention["vertical_share"].max() > 0:
        return "Which pattern a head takes is a matter of its weights, and so is what sparse attention gains."
    return (
        "No head takes vertical-slash: with random weights no column of its attention stands out. With real weights some do, so what "
        "sparse attention gains there, alone and beside sparse FFNs, may be another number than on this page."
    )


def why(parts: pd.DataFrame | None) -> str:
    """Which parts take most of the time, dense, and of ours, at the shortest and the longest sequence."""
    if parts is None:
        return f"{HERE}."
    texts = []
    for n in dict.fromkeys((min(parts["n"]), max(parts["n"]))):
        for name in (DENSE, BOTH_OURS):
            own = parts[(parts["n"] == n) & (parts["configuration"] == name)]
            own = own.drop_duplicates("part", keep="last").set_index("part")["us"]
            if own.sum() > 0:
                top = (own / own.sum()).nlargest(3)
                shares = listed(f"{PARTS[p][0]} {x:.0%}" for p, x in top.items())
                texts.append(f"{CONFIGURATIONS[name].called} at {plot.number(n)} tokens: {shares}")
    if not texts:
        return f"{HERE}."
    there = {*zip(parts["n"], parts["configuration"], strict=True)}
    none = [
        f"{c.called} at {plot.number(n)} tokens"
        for n in dict.fromkeys(parts["n"])
        for name, c in CONFIGURATIONS.items()
        if (n, name) not in there
    ]
    said = "Of the time on the GPU, " + "; ".join(texts) + "."
    if none:
        said += (
            f" Not shown: {listed(none)}. The profiled pass, which the host launches and no graph, took over "
            f"{experiments.APART:.0%} longer there than the timed one."
        )
    return said


def faster(parts: pd.DataFrame | None, tokens: int, times: Mapping[str, float]) -> str:
    """How much faster the dense model would be if parts, as figures call them, were so many times as fast: by the
    profiled times of its parts, and beside it what was measured with our FFN. Raises ValueError for an unknown part."""
    if parts is None:
        return f"{HERE}."
    own = parts[parts["configuration"] == DENSE].drop_duplicates(["n", "part"], keep="last")
    here = own[own["n"] == tokens].set_index("part")["us"]
    if here.empty:
        known = listed(plot.number(n) for n in sorted(set(own["n"])))
        return f"Parts were not profiled at {tokens} tokens; at {known} they were."
    called = {PARTS[part][0]: part for part in here.index}
    if unknown := [name for name in times if name not in called]:
        raise ValueError(f"{unknown[0]!r} is no part of the model, which has {', '.join(called)}.")
    after = here.copy()
    for name, factor in times.items():
        after[called[name]] /= factor
    each = listed(
        f"{name} ({here[called[name]] / here.sum():.0%} of the time) {factor:g} times as fast"
        for name, factor in times.items()
    )
    return (
        f"At {plot.number(tokens)} tokens, with {each}, the model is {here.sum() / after.sum():.2f} times as fast; "
        f"what is left is mostly {PARTS[after.idxmax()][0]}, {after.max() / after.sum():.0%}."
    )


def checked(df: pd.DataFrame | None) -> str:
    """How far the last hidden state is from that of the masked dense model in float32."""
    if df is None:
        return f"The last hidden state of the whole model: {HERE[:1].lower()}{HERE[1:]}."
    df = df.drop_duplicates("configuration", keep="last")
    each = listed(f"{CONFIGURATIONS[r.configuration].called} {r.rel_diff:.1e}" for r in df.itertuples())
    return (
        f"At {plot.number(experiments.CHECK_LENGTH)} tokens the last hidden state differs from float32's, with the same weights masked, "
        f"by (relative to its norm): {each}. The masked model in BF16, dense, differs by {df['noise'].iloc[-1]:.1e}: that is what "
        "rounding adds up to over the layers."
    )


def in_short(df: pd.DataFrame | None) -> str:
    """The chapter in a sentence or two."""
    if df is None:
        return f"{HERE}."
    own = df[df["density"] == DENSITIES[0]]
    over, n = _over(own), max(own["n"])
    if not {(BOTH, n), (BOTH_OURS, n)} <= set(over):
        return f"{HERE}."
    return (
        f"At {plot.number(n)} tokens and a tenth of the FFN's blocks the model is {over[BOTH, n]:.2f} times as fast as the dense one "
        f"with both parts sparse as published, and {over[BOTH_OURS, n]:.2f} times with our FFN."
    )


def told_parts(data: pd.DataFrame) -> str:
    """The alternative text of the figure of the parts, from the data behind it: totals, and the largest part of each."""
    shares = data.set_index(["n", "configuration"])
    told = []
    for n, own in shares.groupby(level="n", sort=False):
        bars = [
            f"{CONFIGURATIONS[name].called} {row.sum():.0%}, most of it {row.idxmax()}"
            for (_, name), row in own.iterrows()
        ]
        told.append(f"at {plot.number(n)} tokens {'; '.join(bars)}")
    return f"Stacked bars, time on the GPU over that of the dense model: {'. '.join(told)}."
