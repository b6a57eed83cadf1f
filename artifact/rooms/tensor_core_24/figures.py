"""Figures of the room `tensor_core_24`: the pictures of its source from real arrays, and its charts
from records, beside what the source states.

Every function returns `(fig, data)`, as in `artifact.drawing.style`, whose palette and style they share.
Common arguments:

    df         records; where two experiments have the same contender at the same point, the first
               one counts. Only rows with `label` count ("": bfloat16)
    published  what the source states (the tables in the room's published/), or None
    order      variants for their looks (see `style.look`): the first is the published kernel, the
               last our best

TFLOP/s count 2·M·N·K for every contender, sparse or dense. What the source states was measured on
another GPU, so only its ratios are drawn, hollow and in the colour of claims.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from artifact.drawing import plot, sketch
from artifact.drawing.style import (
    BASELINE,
    BASELINES,
    BEST,
    BOUND,
    CLAIM,
    INK,
    MARKER,
    ROWS,
    SIZE,
    WIDTH,
    look,
    name,
)

STATED = plot.stated("RTX 4070")

SHOWN = ("mma_sp", "auto", "cusparselt_default", "cusparselt", "cublaslt")
#: Of sizes, in a figure whose lines are no contenders.
MARKS = "osD^vP"
SIZE_HATCHES = ("", "////", "....")
#: Of a library in the ladder, by its place, and of a size.
LINES = (("-", (0, (6, 2)), (0, (3, 3))), ("-.", ":", (0, (1, 3))))


# ---------------------------------------------------------------- what several figures need


def _rows(df: pd.DataFrame, wanted: Sequence[str], label: str, square: bool) -> pd.DataFrame:
    """Rows of the contenders `wanted`, one a point, in their order; with `square` at M = N = K, with
    their `size`. ValueError where there are none."""
    rows = df[df["variant"].isin(wanted) & (df["label"] == label)]
    if square:
        rows = rows[(rows["m"] == rows["n"]) & (rows["n"] == rows["k"])]
    if rows.empty:
        where = f" at {SIZE}" if square else ""
        raise ValueError(f"The records have none of {', '.join(wanted)}{where} with label {label!r}.")
    rows = rows.drop_duplicates(["variant", "m", "n", "k"])
    place = {variant: i for i, variant in enumerate(wanted)}
    rows = rows.assign(place=rows["variant"].map(place), size=rows["m"])
    rows = rows.sort_values(["place", "m"] if square else "place", kind="stable")
    return rows.drop(columns="place").reset_index(drop=True)


def _line(ax, x, y, variant: str, order: Sequence[str], **more):
    return plot.line(ax, x, y, variant, order, **({"markersize": MARKER} | more))


def _stated(ax, rows: pd.DataFrame, order: Sequence[str]) -> dict[str, Line2D]:
    """Draw published values at their sizes, hollow, and give their entry of the legend."""
    for row in rows.itertuples():
        ax.plot(row.size, row.value, **plot.hollow(look(row.variant, order)["marker"]))
    return {STATED: Line2D([], [], **plot.hollow())} if len(rows) else {}


def _published(published: pd.DataFrame | None, quantity: str, shown: Sequence[str]) -> pd.DataFrame:
    """Single values of a quantity at a size, of contenders that are drawn: variant, size, value."""
    if published is None:
        return pd.DataFrame(columns=["variant", "size", "value"])
    rows = published[(published["quantity"] == quantity) & published["variant"].isin(shown)]
    rows = rows[rows["size"].notna() & (rows["low"] == rows["high"])]
    return rows.assign(size=rows["size"].astype(int), value=rows["low"])[["variant", "size", "value"]]


def _from_zero(ax, top: float) -> None:
    """A y axis from 0 to `top`, without ticks outside."""
    ax.set_ylim(0, top)
    ax.set_yticks([tick for tick in ax.get_yticks() if 0 <= tick <= top])


def _present(df: pd.DataFrame, wanted: Sequence[str]) -> list[str]:
    return [variant for variant in wanted if (df["variant"] == variant).any()]


# ---------------------------------------------------------------- over the size


def throughput(
    df: pd.DataFrame,
    ceilings: Mapping[str, float],
    order: Sequence[str],
    shown: Sequence[str] = SHOWN,
    label: str = "",
):
    """TFLOP/s over M = N = K, with the measured ceilings as lines.

    ceilings: what they are called -> TFLOP/s, sparse ones and dense ones. Contenders of `shown`
    without records are left out. Raises ValueError without any.
    """
    points = _rows(df, shown, label, square=True)
    fig, ax = plt.subplots(figsize=(WIDTH, 4.2))
    handles: dict[str, object] = {}
    for variant in _present(points, shown):
        rows = points[points["variant"] == variant]
        handles[name(variant)] = _line(ax, rows["size"], rows["tflops"], variant, order)
    top = 1.06 * max([points["tflops"].max(), *ceilings.values()])
    plot.sizes(ax, points["size"].tolist(), most=9)
    ax.set(ylabel="throughput, 2·M·N·K (TFLOP/s)", xlabel=SIZE)
    _from_zero(ax, top)
    _ceilings(ax, ceilings, top)
    if ceilings:
        handles["measured ceilings"] = Line2D([], [], color=BOUND, linestyle=(0, (5, 3)))
    plot.legend(fig, handles)
    columns = ["experiment", "variant", "size", "label", "median_us", "q25_us", "q75_us", "tflops"]
    data = points[columns].assign(source="measured")
    roofs = pd.DataFrame({"variant": list(ceilings), "tflops": list(ceilings.values()), "source": "ceiling"})
    return fig, pd.concat([data, roofs], ignore_index=True) if len(roofs) else data


def _ceilings(ax, ceilings: Mapping[str, float], top: float) -> None:
    """Dashed lines with their names in the right margin, moved apart where they would overlap."""
    points = 72 * ax.figure.get_size_inches()[1] * 0.72  # height of the axes, nearly
    last = -np.inf
    for what, value in sorted(ceilings.items(), key=lambda item: item[1]):
        ax.axhline(value, color=BOUND, linestyle=(0, (5, 3)), linewidth=1.2)
        at = max(value / top * points, last + 21)
        last = at
        ax.annotate(
            f"{what}\n{plot.number(round(value))}",
            (1, value),
            xycoords=("axes fraction", "data"),
            xytext=(5, at - value / top * points),
            textcoords="offset points",
            va="center",
            fontsize=8,
            annotation_clip=False,
        )


def per_cent_of(
    df: pd.DataFrame,
    published: pd.DataFrame | None,
    order: Sequence[str],
    baseline: str = "cusparselt",
    shown: Sequence[str] = SHOWN,
    label: str = "",
):
    """Throughput of each contender in per cent of the baseline's, over M = N = K.

    Published quantity: "speedup_cusparselt" of `benchmarks.csv`, at its sizes. Raises
    ValueError where the baseline, or everything beside it, has no records.
    """
    points = _rows(df, [*shown, baseline], label, square=True)
    times = points.pivot(index="size", columns="variant", values="median_us")
    others = [v for v in _present(points, shown) if v != baseline]
    if baseline not in times or not others:
        raise ValueError(f"The records lack {baseline!r} or anything that it is compared with.")
    fig, ax = plt.subplots(figsize=(WIDTH, 4.0))
    handles: dict[str, object] = {}
    rows = []
    for variant in others:
        share = (100 * times[baseline] / times[variant]).dropna()
        handles[name(variant)] = _line(ax, share.index, share, variant, order)
        rows += [{"variant": variant, "size": s, "per_cent": v} for s, v in share.items()]
    handles[f"{name(baseline)} = 100 %"] = ax.axhline(100, color=BASELINE, linewidth=1.4)
    stated = _published(published, "speedup_cusparselt", shown).assign(value=lambda r: 100 * r["value"])
    handles |= _stated(ax, stated, order)
    data = pd.DataFrame(rows)
    plot.sizes(ax, data["size"].tolist(), most=9)
    high = 1.06 * max([data["per_cent"].max(), 100, *stated["value"]])
    ax.set(xlabel=SIZE, ylabel=f"throughput (% of {name(baseline).split(',')[0]})")
    _from_zero(ax, high)
    plot.legend(fig, handles, columns=3)
    return fig, plot.behind(data, stated.rename(columns={"value": "per_cent"}))


def share_of_peak(
    df: pd.DataFrame,
    peaks: Mapping[str, tuple[str, float]],
    published: pd.DataFrame | None,
    order: Sequence[str],
    label: str = "",
):
    """Throughput of each contender in per cent of a measured ceiling of its own, over M = N = K.

    peaks: contender -> (what the ceiling is called, TFLOP/s), in the order in which they are drawn.
    A contender may be there once; to hold one against two instructions, draw two figures. Published
    quantities: "tflops", over "peak" of mma_sp, both of `benchmarks.csv`. Raises
    ValueError for a peak that is not positive.
    """
    for variant, (what, peak) in peaks.items():
        if not peak > 0:
            raise ValueError(f"The ceiling {what!r} of {variant!r} is {peak}, and must be positive.")
    points = _rows(df, list(peaks), label, square=True)
    fig, ax = plt.subplots(figsize=(WIDTH, 4.0))
    handles: dict[str, object] = {}
    rows = []
    for variant in _present(points, list(peaks)):
        what, peak = peaks[variant]
        here = points[points["variant"] == variant]
        share = 100 * here["tflops"] / peak
        handles[f"{name(variant)}: of {what}"] = _line(ax, here["size"], share, variant, order)
        rows += [
            {
                "variant": variant,
                "size": s,
                "tflops": t,
                "ceiling": what,
                "peak": peak,
                "per_cent": v,
            }
            for s, t, v in zip(here["size"], here["tflops"], share, strict=True)
        ]
    stated = _published(published, "tflops", list(peaks))
    if published is not None and len(stated):
        of = published[(published["quantity"] == "peak") & (published["variant"] == "mma_sp")]
        peak = float(of["low"].iloc[0])
        stated = stated.assign(tflops=stated["value"], peak=peak, ceiling="mma_sp")
        stated["value"] = 100 * stated["tflops"] / peak
    handles |= _stated(ax, stated, order)
    ax.axhline(100, color=BOUND, linewidth=1.3, linestyle=(0, (5, 3)))
    data = pd.DataFrame(rows)
    plot.sizes(ax, data["size"].tolist(), most=9)
    high = 1.06 * max([data["per_cent"].max(), 100, *stated["value"]])
    ax.set(xlabel=SIZE, ylabel="throughput (% of the measured ceiling)")
    _from_zero(ax, high)
    plot.legend(fig, handles, columns=2)
    return fig, plot.behind(data, stated.rename(columns={"value": "per_cent"}))


# ---------------------------------------------------------------- shapes of language models

#: Contenders that a row of dots can tell apart.
MOST = 7


def llm(
    df: pd.DataFrame,
    order: Sequence[str],
    best: str = "auto",
    baseline: str = "cusparselt",
    shown: Sequence[str] = SHOWN,
    label: str = "",
):
    """TFLOP/s of every contender at each shape (M, N, K), a row of dots per shape, in the order of
    the records; on the right, `best` in per cent of `baseline` where both were measured. Of many contenders, those of
    `order` between its first and `best` are grey bars: a table names them."""
    points = _rows(df, shown, label, square=False)
    shapes = list(dict.fromkeys(zip(df["m"], df["n"], df["k"], strict=True)))
    at = list(zip(points["m"], points["n"], points["k"], strict=True))
    shapes = [shape for shape in shapes if shape in set(at)]
    points["place"] = [shapes.index(shape) for shape in at]
    present = _present(points, shown)
    between = [v for v in present if v in order[1:] and v != best] if len(present) > MOST else []
    present = [v for v in present if v not in between]
    fig, ax = plt.subplots(figsize=(WIDTH, 1.4 + (0.43 if between else 0.52) * len(shapes)))
    handles: dict[str, object] = {}
    if between:
        rows = points[points["variant"].isin(between)]
        grey = {"color": BOUND, "linestyle": "none", "markersize": 8, "alpha": 0.8}
        (handles["the other rungs"],) = ax.plot(rows["tflops"], rows["place"], "|", **grey)
    for lane, variant in enumerate(present):
        rows = points[points["variant"] == variant]
        y = rows["place"] + 0.12 * (lane - (len(present) - 1) / 2)
        more = {"linestyle": "none", "markersize": 7}
        handles[name(variant)] = _line(ax, rows["tflops"], y, variant, order, **more)
    times = points.pivot(index="place", columns="variant", values="median_us")
    for place in range(len(shapes)):
        rates = points.loc[points["place"] == place, "tflops"]
        ax.plot([rates.min(), rates.max()], [place] * 2, color=INK, alpha=0.18, linewidth=1)
        if {best, baseline} <= set(times) and times.loc[place, [best, baseline]].notna().all():
            text = f"{100 * times.loc[place, baseline] / times.loc[place, best]:.0f} %"
            plot.right(ax, place, 42, text)
        if place:
            ax.axhline(place - 0.5, color=INK, alpha=0.15, linewidth=0.6)
    head = f"{name(best)} of {name(baseline).split(',')[0]}"
    plot.right(ax, -0.62, 42, head, va="bottom")
    ax.set_yticks(range(len(shapes)), [" × ".join(plot.number(size) for size in shape) for shape in shapes])
    ax.set(ylim=(len(shapes) - 0.5, -0.5), xlabel="throughput, 2·M·N·K (TFLOP/s)")
    ax.set_ylabel("M × N × K")
    ax.set_xlim(0, 1.05 * points["tflops"].max())
    ax.tick_params(axis="y", length=0)
    ax.grid(axis="y", visible=False)
    plot.legend(fig, handles, columns=3)
    columns = ["experiment", "variant", "m", "n", "k", "label", "median_us", "tflops"]
    over = [times.loc[r.place, baseline] / r.median_us if baseline in times else np.nan for r in points.itertuples()]
    return fig, points[columns].assign(**{f"over_{baseline}": over})


# ---------------------------------------------------------------- the ladder


def ladder(
    df: pd.DataFrame,
    rungs: Mapping[str, str],
    lines: Sequence[str] = ("cusparselt", "cublaslt"),
    label: str = "",
    wrap: int = 40,
    over: Mapping[str, str] | None = None,
    published: pd.DataFrame | None = None,
):
    """TFLOP/s of every rung as horizontal bars, one per size M = N = K, with its gain over the rung
    that it builds on and what was predicted before it was measured; hollow, where the share of the first of `lines`
    that the source states would be here ("speedup_cusparselt" of `benchmarks.csv`).

    rungs: variant -> prediction, in ladder order; an empty one is drawn as "–". lines: contenders
    that are drawn across all rungs. over: variant -> the one that it builds on, none for a variant
    that is not in it; by default the row before. Rungs and lines without records are left out;
    ValueError without any rung.
    """
    points = _rows(df, list(rungs), label, square=True)
    present = _present(points, list(rungs))
    sizes = sorted(set(points["size"]))
    if len(sizes) > len(SIZE_HATCHES) or len(lines) > len(LINES):
        raise ValueError(
            f"The ladder is drawn at up to {len(SIZE_HATCHES)} sizes, with up to {len(LINES)} "
            f"libraries; there are {', '.join(map(str, [*sizes, *lines]))}."
        )
    rates = points.pivot(index="variant", columns="size", values="tflops")
    texts = [sketch.wrap(rungs[variant], wrap) for variant in present]
    heights = [max(0.2 * len(sizes), 0.16 * (t.count("\n") + 1)) + 0.2 for t in texts]
    tops = np.cumsum([0, *heights])
    fig, ax = plt.subplots(figsize=(WIDTH, tops[-1] + 1.3))
    handles: dict[str, object] = {}
    lines = list(lines)
    for place, size in enumerate(sizes):
        how = {"facecolor": BOUND, "edgecolor": INK, "linewidth": 0.6}
        handles[f"{SIZE} = {plot.number(size)}"] = Patch(hatch=SIZE_HATCHES[place], **how)
    most = float(rates.max().max())
    rows = []
    across = ax.get_yaxis_transform()
    for i, variant in enumerate(present):
        # One hue, the best at the largest size in colour: rows have names, and a look for each would say nothing more.
        colour = BEST if variant == rates[sizes[-1]].idxmax() else BOUND
        middle = tops[i] + heights[i] / 2
        if i:
            ax.axhline(tops[i], color=INK, alpha=0.15, linewidth=0.6)
        for place, size in enumerate(sizes):
            rate = rates.loc[variant, size]
            if np.isnan(rate):
                continue
            before = [r["tflops"] for r in rows if r["size"] == size]
            if over is not None:
                before = rates[size].reindex([over.get(variant)]).dropna().tolist()
            gain = rate / before[-1] - 1 if before else np.nan
            y = middle + 0.2 * (place - (len(sizes) - 1) / 2)
            more = {"hatch": SIZE_HATCHES[place], "edgecolor": INK, "linewidth": 0.5}
            ax.barh(y, rate, 0.17, facecolor=colour, **more)
            gained = round(100 * gain) if before else 0
            said = (
                (0.84, plot.number(round(rate))),
                (0.99, (f"{gained:+d} %" if gained else "0 %") if before else ""),
            )
            for x, text in said:
                how = {"transform": across, "va": "center", "ha": "right", "fontsize": 8}
                ax.text(x, y, text, **how)
            rows.append({"variant": variant, "size": size, "tflops": rate, "gain": gain})
        ax.text(1.02, middle, texts[i], transform=across, va="center", fontsize=8)
    data = pd.DataFrame(rows).assign(prediction=lambda d: d["variant"].map(rungs))
    others = df[df["variant"].isin(lines)]
    if not others.empty:
        others = _rows(df, list(lines), label, square=True)
        others = others[others["size"].isin(sizes)]
    for row in others.itertuples():
        dashes = LINES[lines.index(row.variant)][sizes.index(row.size)]
        style = {"color": BASELINE, "linewidth": 1.3, "linestyle": dashes}
        ax.axvline(row.tflops, **style)
        handles[f"{name(row.variant)}, {plot.number(row.size)}"] = Line2D([], [], **style)
    stated = _published(published, "speedup_cusparselt", present)
    library = {r.size: r.tflops for r in others.itertuples() if r.variant == lines[0]}
    for row in stated[stated["size"].isin(list(library))].itertuples():
        i, place = present.index(row.variant), sizes.index(row.size)
        y = tops[i] + heights[i] / 2 + 0.2 * (place - (len(sizes) - 1) / 2)
        ax.plot(row.value * library[row.size], y, **plot.hollow())
        handles[f"share of {name(lines[0]).split(',')[0]}, {STATED}"] = Line2D([], [], **plot.hollow())
        chosen = (data["variant"] == row.variant) & (data["size"] == row.size)
        data.loc[chosen, "stated"] = row.value * library[row.size]
    most = max([most, *others["tflops"]]) if len(others) else most
    ax.set(xlim=(0, 1.35 * most), ylim=(tops[-1], 0))  # the numbers have the last quarter
    ax.set_yticks(tops[:-1] + np.array(heights) / 2, present)
    ax.tick_params(axis="y", length=0)
    ax.grid(axis="y", visible=False)
    built_on = "the rung before" if over is None else "what it builds on"
    ax.set_xlabel(f"throughput, 2·M·N·K (TFLOP/s); gain over {built_on}")
    ax.text(
        1.02,
        -0.06,
        "predicted before measuring",
        transform=across,
        va="bottom",
        fontweight="bold",
        fontsize=8.5,
    )
    plot.legend(fig, handles, columns=2)
    compared = others[["variant", "size", "tflops"]] if len(others) else data.iloc[:0]
    return fig, pd.concat([data, compared], ignore_index=True) if len(compared) else data


# ---------------------------------------------------------------- energy


def energy(parts: pd.DataFrame, called: Mapping[str, str], size: int, reference: str = "auto"):
    """Energy of a multiplication by term, over all of it for `reference`, stacked bars, one per contender.

    parts: (contender, term) energy, in the order in which they are drawn; called: term -> its name, in the order
    in which they are stacked; size: M = N = K. Raises ValueError where the reference is not among the contenders.
    """
    if reference not in parts.index:
        raise ValueError(f"The energy of {reference!r} is not known, and all are drawn over it.")
    share = parts[list(called)] / parts.loc[reference, list(called)].sum()
    fig, ax = plt.subplots(figsize=(WIDTH, 1.3 + 0.24 * len(share)))
    left = np.zeros(len(share))
    handles: dict[str, object] = {}
    colours = (ROWS[2], ROWS[3], ROWS[1], ROWS[0], BOUND)
    hatches = ("", "////", "....", "xxxx", "")
    for (term, said), colour, hatch in zip(called.items(), colours, hatches, strict=True):
        how = {"facecolor": colour, "edgecolor": INK, "linewidth": 0.5, "hatch": hatch}
        ax.barh(range(len(share)), share[term], 0.66, left=left, **how)
        handles[said] = Patch(**how)
        left = left + share[term].to_numpy()
    for place, total in enumerate(left):
        plot.right(ax, place, 6, f"{total:.2f}")
    ax.set_yticks(range(len(share)), [name(v) for v in share.index])
    ax.tick_params(axis="y", length=0)
    ax.grid(axis="y", visible=False)
    ax.set(
        ylim=(len(share) - 0.4, -0.6),
        xlabel=f"energy at one voltage, {reference} = 1, {SIZE} = {plot.number(size)}",
    )
    plot.legend(fig, handles, columns=5)
    data = share.rename_axis("variant").reset_index().melt("variant", var_name="term", value_name="share")
    return fig, data.assign(size=size)


# ---------------------------------------------------------------- whole models

PRECISIONS = {"bf16": ("BF16", ROWS[3], "o"), "e4m3": ("FP8", BEST, "s")}


def models(df: pd.DataFrame | None):
    """How many times as fast a step of a model is with 2:4 weights as with dense ones, a row for each step, a panel for
    each model; df: `model.numbers`. None without it."""
    if df is None:
        return None
    df = df[df["weight"] == "2:4"]
    steps = df[["phase", "tokens"]].drop_duplicates().itertuples(index=False, name=None)
    steps = {step: place for place, step in enumerate(steps)}
    parts = df.groupby("model", sort=False)
    fig, axes = plt.subplots(1, parts.ngroups, figsize=(WIDTH, 1.3 + 0.42 * len(steps)), sharey=True, squeeze=False)
    handles: dict[str, object] = {}
    for ax, (model, part) in zip(axes[0], parts, strict=True):
        for i, (precision, (said, colour, marker)) in enumerate(PRECISIONS.items()):
            rows = part[part["precision"] == precision]
            y = [steps[step] + 0.2 * (i - 0.5) for step in zip(rows["phase"], rows["tokens"], strict=True)]
            how = {"color": colour, "marker": marker, "linestyle": "none", "markersize": 7, "markeredgewidth": 0}
            (handles[f"{said} over dense {said}"],) = ax.plot(rows["speedup"], y, **how)
            ax.hlines(y, 1, rows["speedup"], color=colour, linewidth=1.2, alpha=0.6)
        ax.axvline(1, color=BASELINE, linewidth=1.4)
        ax.set(title=model, xlim=(min(0.95, df["speedup"].min() - 0.05), df["speedup"].max() + 0.1))
        ax.set(ylim=(len(steps) - 0.5, -0.5), xlabel="speedup of a step")
        ax.tick_params(axis="y", length=0)
        ax.grid(axis="y", visible=False)
    named = {"prefill": "{:,} tokens", "decode": "{} of decoding"}
    axes[0, 0].set_yticks(list(steps.values()), [named[phase].format(tokens) for phase, tokens in steps])
    axes[0, 0].set_ylabel("tokens of a step")
    plot.legend(fig, handles, columns=2)
    return fig, df.reset_index(drop=True)


# ---------------------------------------------------------------- side studies


def studies(
    df: pd.DataFrame,
    names: Mapping[str, str],
    published: pd.DataFrame | None,
    baseline: str = "mma_sp",
    label: str = "",
):
    """Throughput of every side study in per cent of the published kernel's, a row each, a marker per
    size M = N = K; the numbers on the right.

    names: variant -> what it changes, in the order in which they are drawn; those without records
    are left out. Published quantity: "speedup_mma_sp" of `design.csv`: a value is
    drawn hollow, an upper bound as an arrow to the left. Raises ValueError without the baseline or
    without any study.
    """
    points = _rows(df, [baseline, *names], label, square=True)
    times = points.pivot(index="variant", columns="size", values="median_us")
    present = [v for v in _present(points, list(names)) if v != baseline]
    if baseline not in times.index or not present:
        raise ValueError(f"The records lack {baseline!r} or any variant that is compared with it.")
    share = 100 * times.loc[baseline] / times.loc[present]
    sizes = [size for size in share.columns if share[size].notna().any()]
    if len(sizes) > len(MARKS):
        raise ValueError(f"The studies are drawn at up to {len(MARKS)} sizes, not {sizes}.")
    fig, ax = plt.subplots(figsize=(WIDTH, 1.5 + 0.46 * len(present)))
    handles: dict[str, object] = {}
    stated = _stated_studies(published, present)
    rows = []
    for place, variant in enumerate(present):
        colour = BASELINE if variant.startswith(BASELINES) else ROWS[3]
        for i, size in enumerate(sizes):
            value = share.loc[variant, size]
            if np.isnan(value):
                continue
            y = place + 0.17 * (i - (len(sizes) - 1) / 2)
            ax.plot([100, value], [y, y], color=colour, linewidth=1.2, alpha=0.6)
            ax.plot(value, y, MARKS[i], color=colour, markersize=6.5, markeredgewidth=0)
            rows.append({"variant": variant, "size": size, "per_cent": value})
        for i, size in enumerate(sizes):
            value = share.loc[variant, size]
            text = "–" if np.isnan(value) else f"{value:.1f}"
            plot.right(ax, place, 38 * (i + 1), text)
        if place:
            ax.axhline(place - 0.5, color=INK, alpha=0.15, linewidth=0.6)
    for row in stated.itertuples():
        y = present.index(row.variant) - 0.36
        if np.isnan(row.low):
            arrow = {"arrowstyle": "-|>", "color": CLAIM, "shrinkA": 0, "shrinkB": 0}
            ax.annotate("", (100 * row.high - 4, y), (100 * row.high, y), arrowprops=arrow)
            handles["stated by the source: slower"] = Line2D([], [], color=CLAIM, marker="<")
        else:
            ax.plot(100 * row.low, y, **plot.hollow("*"))
            handles[STATED] = Line2D([], [], **plot.hollow("*"))
    sized = {
        f"{SIZE} = {plot.number(size)}": Line2D([], [], color=ROWS[3], marker=MARKS[i], linestyle="")
        for i, size in enumerate(sizes)
    }
    ax.axvline(100, color=look(baseline, [baseline])["color"], linewidth=1.4)
    ax.set_yticks(range(len(present)), [names[v] or name(v) for v in present])
    ax.tick_params(axis="y", length=0)
    ax.grid(axis="y", visible=False)
    values = [*(r["per_cent"] for r in rows), 100.0, *(100 * stated["low"].dropna())]
    if stated["low"].isna().any():
        values.append(95.0)
    pad = max(0.06 * (max(values) - min(values)), 1.0)
    ax.set(xlim=(min(values) - pad, max(values) + pad), ylim=(len(present) - 0.4, -0.65))
    ax.set_xlabel(f"throughput (% of {name(baseline)})")
    for i, size in enumerate(sizes):
        plot.right(ax, -0.68, 38 * (i + 1), plot.number(size), va="bottom", fontweight="bold")
    plot.legend(fig, sized | handles, columns=3)
    said = stated.assign(low=100 * stated["low"], high=100 * stated["high"])
    return fig, plot.behind(pd.DataFrame(rows), said)


def _stated_studies(published: pd.DataFrame | None, present: Sequence[str]) -> pd.DataFrame:
    """What is stated of the studies that are drawn: variant, low, high; without words alone."""
    if published is None:
        return pd.DataFrame(columns=["variant", "low", "high"], dtype=float)
    rows = published[(published["quantity"] == "speedup_mma_sp") & published["variant"].isin(present)]
    return rows.dropna(subset=["low", "high"], how="all")[["variant", "low", "high"]]
