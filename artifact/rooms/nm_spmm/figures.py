"""Charts of the room `nm_spmm` from its records, beside what its source states: Fig. 7 to 10, and what
goes beyond them. Its pictures, Fig. 1 to 6, are in `artifact.rooms.nm_spmm.pictures`.

Every function returns `(fig, data)`, as in `artifact.drawing.style`, whose palette and style they share.
Common arguments:

    df         records; where two experiments have the same contender at the same point, the first
               one counts. Only rows with `label` count ("": float32, vectors of 32, groups of 32)
    shown      contenders in the order in which they are drawn; those without records are left out
    published  what the source states, or None: artifact/published/nm_spmm_fig9.csv for Fig. 9, in
               dense-equivalent TFLOP/s, and nm_spmm_text.csv for the others
    fma        measured FMA ceiling, TFLOP/s

TFLOP/s are those of useful work, 2·M·N·W; cuBLAS multiplies the dense matrix, so its are 2·M·N·K, and
where a figure has it at no sparsity but 0, that is why. Sparsity is 1 − density. What the source
states was measured on other GPUs: it is drawn hollow or dashed, in the colour of claims.
"""

import re
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from artifact.drawing import plot, sketch, style
from artifact.drawing.charts import along
from artifact.drawing.style import (
    BASELINE,
    BEST,
    BOUND,
    CLAIM,
    INK,
    MARKER,
    MARKERS,
    PUBLISHED,
    ROWS,
    RUNGS,
    WIDTH,
    name,
)
from artifact.measure import records
from artifact.profiling import ncu
from artifact.rooms.nm_spmm.pictures import MARKS

STEPWISE = ("v1", "v2", "v3", "wide", "banks", "bulk", "turned", "auto", "nm_baseline", "cublas")
SIZES = ("small", "medium", "large", "auto", "cublas")
LLAMA = ("auto", "v3", "nm_baseline")
PROFILED = ("auto", "v3", "nm_baseline", "cublas")
_DASHES = ("--", "-.", (0, (4, 1, 1, 1, 1, 1)))
#: Colour and marker of the room's contenders; the published kernel is V3, our best the tuner's choice.
LOOKS = {
    "v3": (PUBLISHED, "o", "-"),
    "auto": (BEST, "D", "-"),
    "v1": (RUNGS[0], "^", "--"),
    "v2": (RUNGS[1], "v", "-."),
    "wide": (RUNGS[3], "p", "--"),
    "banks": (RUNGS[4], MARKERS[2], "-."),
    "bulk": (RUNGS[2], "d", "-."),
    "ahead": (RUNGS[8], MARKERS[7], _DASHES[2]),
    "stream": (RUNGS[6], (4, 1, 0), "--"),
    "rolled": (RUNGS[7], "<", _DASHES[2]),
    "turned": (RUNGS[8], ">", _DASHES[2]),
    "cluster": (RUNGS[6], "*", _DASHES[2]),
    "v3_split_k": (RUNGS[7], (4, 1, 0), "--"),
    "v3_packed": (RUNGS[3], ">", "--"),
    "v3_unpacked": (RUNGS[4], "<", "-."),
    "small": (RUNGS[0], "^", "--"),
    "medium": (RUNGS[3], "p", "-."),
    "large": (RUNGS[4], "v", _DASHES[2]),
    "tf32": (RUNGS[1], "s", "-"),
    "bf16": (RUNGS[3], "p", "-"),
    "nm_baseline": (RUNGS[5], "X", ":"),
}
#: The series of Fig. 9: what they are called, their marker (that of our contender) and line.
SERIES = {
    "nm_spmm": ("NM-SpMM", "o", "-"),
    "nmsparse": ("nmSPARSE", "X", (0, (5, 2))),
    "sputnik": ("Sputnik", "s", (0, (1, 1.2))),
}
#: Of the published libraries: our contender of the same idea, at whose place they are drawn.
OURS = {"nm_spmm": "v3", "nmsparse": "nm_baseline"}
IDEAL = {"color": INK, "linewidth": 1.1, "linestyle": (0, (6, 2, 1, 2)), "alpha": 0.75}
POINT = ["m", "n", "k", "density"]


# ---------------------------------------------------------------- what several figures need


def look(variant: str) -> dict:
    """Colour, marker and line of a contender; ValueError for one that has none."""
    if variant in LOOKS:
        return dict(zip(("color", "marker", "linestyle"), LOOKS[variant], strict=True))
    return style.look(variant, list(LOOKS))


def pattern(label: str) -> tuple[int, int]:
    """Group M and vector length L of a record's label, which names them where they are not 32."""
    group = re.search(r"\d+:(\d+)", label)
    vector = re.search(r"vectors of (\d+)", label)
    length = 1 if "element-wise" in label else int(vector[1]) if vector else 32
    return int(group[1]) if group else 32, length


def _line(ax, x, y, variant: str, **more):
    return ax.plot(x, y, **({"markeredgewidth": 0, "markersize": MARKER} | look(variant) | more))[0]


def _rows(df: pd.DataFrame, wanted: Sequence[str], label: str | None = "") -> pd.DataFrame:
    """Rows of the contenders `wanted`, one a point, in their order, with `useful` in TFLOP/s.

    label None takes them all. Raises ValueError where there are none.
    """
    rows = df[df["variant"].isin(wanted)]
    if label is not None:
        rows = rows[rows["label"] == label]
    if rows.empty:
        where = "" if label is None else f" with label {label!r}"
        raise ValueError(f"The records have none of {', '.join(wanted)}{where}.")
    rows = rows.drop_duplicates(["variant", "label", *POINT])
    place = rows["variant"].map({variant: i for i, variant in enumerate(wanted)})
    rows = rows.iloc[place.argsort(kind="stable")].reset_index(drop=True)
    dense = rows["variant"].str.startswith("cublas")
    flops = np.where(dense, 2.0 * rows["m"] * rows["n"] * rows["k"], rows["useful_flops"])
    return rows.assign(useful=flops / rows["median_us"] / 1e6)


def _speedups(
    df: pd.DataFrame, wanted: Sequence[str], baseline: str, label: str | None = ""
) -> pd.DataFrame:
    """Time of the baseline over that of each contender: variant, label, POINT, speedup.

    Raises ValueError where no contender shares a point with the baseline.
    """
    rows = _rows(df, [*wanted, baseline], label)
    base = rows[rows["variant"] == baseline].set_index(["label", *POINT])["median_us"]
    rows = rows[rows["variant"].isin(wanted)].merge(
        base.rename("base").reset_index(), on=["label", *POINT]
    )
    if rows.empty:
        raise ValueError(f"The records have no point of {baseline!r} and one of {list(wanted)}.")
    return rows.assign(speedup=rows["base"] / rows["median_us"])[
        ["experiment", "variant", "label", *POINT, "median_us", "speedup"]
    ]


def _present(df: pd.DataFrame, wanted: Sequence[str]) -> list[str]:
    return [variant for variant in wanted if (df["variant"] == variant).any()]


def _sparsity(density: float) -> str:
    return plot.percent(1 - density)


def _peak_share(published: pd.DataFrame | None, shown: Sequence[str]) -> pd.DataFrame:
    """What the source's text states of the share of its peak: library, variant (ours of the same idea),
    density, stated (0 to 1)."""
    if published is None:
        return pd.DataFrame(columns=["library", "variant", "density", "stated"])
    rows = published[published["quantity"] == "peak_share"].rename(columns={"variant": "library"})
    rows = rows.assign(variant=rows["library"].map(OURS), stated=rows["low"])
    rows = rows[rows["variant"].isin(shown) & rows["density"].notna()]
    return rows[["library", "variant", "density", "stated"]]


def _of_series(published: pd.DataFrame) -> pd.DataFrame:
    """Fig. 9 as speedups over cuBLAS on the same GPU: gpu, library, density, point, m, n, k, speedup."""
    df, key = published, ["gpu", "point", "m", "n", "k"]
    dense = df[df["library"] == "cublas"].drop_duplicates(key).set_index(key)["tflops"]
    rows = df[df["library"].isin(SERIES)].merge(dense.rename("dense").reset_index(), on=key)
    if rows.empty:
        raise ValueError("The published series have no library beside cuBLAS on the same GPU.")
    rows = rows.assign(speedup=rows["tflops"] / rows["dense"])
    return rows[["gpu", "library", "density", "point", "m", "n", "k", "speedup"]]


def _densities(*columns) -> list[float]:
    return sorted({float(value) for column in columns for value in column}, reverse=True)


def _steps(axis) -> None:
    """Ticks of a log axis, final in its limits, that spans a decade or little more."""
    low, high = sorted(axis.get_view_interval())
    steps = (1, 2, 5) if high / low > 12 else (1, 1.5, 2, 3, 4, 5, 6, 8)
    ticks = [step * 10.0**power for power in range(-2, 4) for step in steps]
    axis.set_major_locator(FixedLocator([t for t in ticks if low <= t <= high]))
    axis.set_major_formatter(FuncFormatter(plot.number))
    axis.set_minor_locator(NullLocator())


def _speed_axis(ax, values: Sequence[float]) -> None:
    """A log y axis of speedups, with 1 inside."""
    low, high = min([*values, 0.95]) / 1.12, max([*values, 1.05]) * 1.12
    ax.set(yscale="log", ylim=(low, high))
    _steps(ax.yaxis)


# ---------------------------------------------------------------- step by step (Fig. 7)


def _categories(ax, densities: Sequence[float]) -> None:
    ax.set_xticks(range(len(densities)), [_sparsity(d) for d in densities])
    ax.set_xlim(-0.5, len(densities) - 0.5)
    ax.set_xlabel("sparsity")
    ax.tick_params(axis="x", length=0)
    ax.grid(axis="x", visible=False)
    for edge in range(1, len(densities)):
        ax.axvline(edge - 0.5, color=INK, alpha=0.15, linewidth=0.6)


def _lanes(count: int, width: float = 0.6) -> np.ndarray:
    """Offsets that keep `count` markers of a category apart."""
    return np.linspace(-width / 2, width / 2, count) if count > 1 else np.zeros(1)


def stepwise(
    df: pd.DataFrame,
    fma: float,
    published: pd.DataFrame | None = None,
    shown: Sequence[str] = STEPWISE,
    base: str = "v1",
    label: str = "",
):
    """Fig. 7: useful TFLOP/s, and per cent of the FMA ceiling, at each sparsity (above), and speed over
    that of `base` (below); cuBLAS at 0 % only.

    df: one size. Published quantity: "peak_share", of the source's own peak, drawn on the right
    scale at our contender of the same idea. Raises ValueError for records of several sizes, or
    without `base`.
    """
    rows = _rows(df, shown, label)
    sizes = rows[["m", "n", "k"]].drop_duplicates()
    if len(sizes) > 1:
        raise ValueError(f"The figure is of one size, and the records have {len(sizes)}.")
    rows = rows[~rows["variant"].str.startswith("cublas") | (rows["density"] == 1)]
    present, densities = _present(rows, shown), _densities(rows["density"])
    offsets = dict(zip(present, _lanes(len(present), 0.7), strict=True))
    fig, (ax, side) = plt.subplots(2, 1, figsize=(WIDTH, 6.2), sharex=True, height_ratios=(1.6, 1))
    place = {density: i for i, density in enumerate(densities)}
    handles: dict[str, object] = {}
    rates = rows.pivot(index="density", columns="variant", values="useful").loc[densities]
    if base not in rates:
        raise ValueError(f"The records lack {base!r}, which the others are compared to.")
    ratios = rates.div(rates[base], axis=0)
    for variant in present:
        for each, table in ((ax, rates), (side, ratios)):
            if variant not in table or (each is side and variant == base):
                continue
            values = table[variant].dropna()
            x = [place[d] + offsets[variant] for d in values.index]
            line = _line(each, x, values, variant, markersize=MARKER + 1, linewidth=0.9)
            line.set_linestyle("none")
            each.vlines(
                x, 0 if each is ax else 1, values, color=look(variant)["color"], lw=2.2, alpha=0.45
            )
            if each is ax:
                handles[name(variant)] = line
    stated = _peak_share(published, present)
    for row in stated.itertuples():
        if row.density in place:
            x = place[row.density] + offsets[row.variant]
            ax.plot(x, row.stated * fma, **plot.hollow(look(row.variant)["marker"]))
    if len(stated):
        handles["stated by the source, % of its peak"] = Line2D([], [], **plot.hollow())
    ax.axhline(fma, color=BOUND, linewidth=1.3, linestyle=(0, (5, 3)))
    sketch.put(
        ax,
        len(densities) - 0.52,
        fma * 1.01,
        f"FMA ceiling {fma:.1f} TFLOP/s",
        ha="right",
        va="bottom",
        fontsize=8,
    )
    ax.set(ylabel="useful work (TFLOP/s)", ylim=(0, 1.09 * max(fma, rows["useful"].max())))
    share = ax.secondary_yaxis(
        "right", functions=(lambda t: 100 * t / fma, lambda p: p * fma / 100)
    )
    share.set_ylabel("% of the FMA ceiling")
    share.set_yticks(range(0, 101, 20))
    side.axhline(1, color=look(base)["color"], linewidth=1.3)
    plot.ratio(side, [*ratios.stack()])
    side.set_ylabel(f"speed over {name(base)}")
    for each in (ax, side):
        _categories(each, densities)
    ax.set_xlabel("")
    plot.legend(fig, handles)
    data = rows[["experiment", "variant", *POINT, "median_us", "useful"]].assign(
        per_cent=100 * rows["useful"] / fma
    )
    over = ratios.stack().rename("over_base").reset_index()
    data = data.merge(over, on=["variant", "density"], how="left")
    return fig, plot.behind(data.rename(columns={"useful": "tflops"}), stated)


# ---------------------------------------------------------------- sizes (Fig. 8)


def sizes(
    df: pd.DataFrame,
    shapes: Mapping[str, tuple[int, int, int]],
    fma: float,
    shown: Sequence[str] = SIZES,
    label: str = "",
):
    """Fig. 8: efficiency in per cent of the FMA ceiling, in a region per sparsity the sizes of
    `shapes` (label -> (m, n, k), Table II) in their order; cuBLAS at 0 % only."""
    rows = _rows(df, shown, label)
    at = {shape: i for i, shape in enumerate(shapes.values())}
    shape = list(zip(rows["m"], rows["n"], rows["k"], strict=True))
    rows = rows.assign(place=[at.get(s, -1) for s in shape], per_cent=100 * rows["useful"] / fma)
    rows = rows[(rows["place"] >= 0)]
    rows = rows[~rows["variant"].str.startswith("cublas") | (rows["density"] == 1)]
    if rows.empty:
        raise ValueError(f"The records have none of the sizes {', '.join(shapes)}.")
    densities, wide = _densities(rows["density"]), len(shapes) + 1
    fig, ax = plt.subplots(figsize=(WIDTH, 4.2))
    handles: dict[str, object] = {}
    for variant in _present(rows, shown):
        for region, density in enumerate(densities):
            here = rows[(rows["variant"] == variant) & (rows["density"] == density)]
            here = here.sort_values("place")
            x = here["place"] + region * wide
            if len(here):
                handles[name(variant)] = _line(ax, x, here["per_cent"], variant, linewidth=1.2)
    top = 1.13 * max(rows["per_cent"].max(), 100)
    for region, density in enumerate(densities):
        middle = region * wide + (len(shapes) - 1) / 2
        sketch.put(ax, middle, 0.965 * top, f"{_sparsity(density)} sparsity", fontsize=8.5)
        if region:
            ax.axvline(region * wide - 1, color=INK, alpha=0.3, linewidth=0.8)
    ax.axhline(100, color=BOUND, linewidth=1.3, linestyle=(0, (5, 3)))
    ticks = [(r * wide + i, s) for r in range(len(densities)) for i, s in enumerate(shapes)]
    ax.set_xticks([x for x, _ in ticks], [s for _, s in ticks])
    ax.set(xlim=(-1, len(densities) * wide - 1), ylim=(0, top))
    ax.set_yticks(range(0, 101, 20))
    ax.grid(axis="x", visible=False)
    said = "; ".join(
        f"{s}: " + " × ".join(map(plot.number, map(int, size))) for s, size in shapes.items()
    )
    half = said.find("; ", len(said) // 2 - 8)
    said = said if half < 0 else said[: half + 1] + "\n" + said[half + 2 :]
    ax.set(xlabel=f"m × n × k of {said}", ylabel="efficiency (% of the FMA ceiling)")
    plot.legend(fig, handles, columns=5)
    keep = ["experiment", "variant", *POINT, "median_us", "useful", "per_cent"]
    names = dict(zip(at.values(), shapes, strict=True))
    data = rows[keep].rename(columns={"useful": "tflops"}).assign(size=rows["place"].map(names))
    return fig, data.reset_index(drop=True)


# ---------------------------------------------------------------- Llama's layers (Fig. 9)


def _in_runs(ax, rows: pd.DataFrame, value: str, **how):
    """A line over `place` that is broken where m changes."""
    rows = rows.sort_values("place")
    for _, run in rows.groupby("m"):
        (line,) = ax.plot(run["place"], run[value], **how)
    return line


def _places(df: pd.DataFrame, published: pd.DataFrame | None) -> dict[tuple, int]:
    """(m, n, k) -> place: as published, else in the order of the records."""
    key = ["m", "n", "k"]
    if published is not None:
        points = published.drop_duplicates("point")
        return {tuple(p): int(i) for *p, i in points[[*key, "point"]].itertuples(index=False)}
    points = df[key].drop_duplicates()
    return {tuple(p): i for i, p in enumerate(points.itertuples(index=False, name=None))}


def _placed(
    df: pd.DataFrame, wanted: Sequence[str], label: str, places: Mapping[tuple, int]
) -> pd.DataFrame:
    """Speedups over cuBLAS at the points that have a place, with it; ValueError where none has."""
    rows = _speedups(df, wanted, "cublas", label)
    shapes = zip(rows["m"], rows["n"], rows["k"], strict=True)
    rows = rows.assign(place=[places.get(shape, -1) for shape in shapes])
    rows = rows[rows["place"] >= 0].reset_index(drop=True)
    if rows.empty:
        raise ValueError("The records have no point of the published series.")
    return rows


def _regions(ax, places: Mapping[tuple, int], named: bool) -> None:
    """Where m changes: thin lines, and the m of each region at the bottom."""
    spans: dict[int, list[int]] = {}
    for (m, _, _), place in places.items():
        spans.setdefault(m, []).append(place)
    starts = sorted(min(span) for span in spans.values())
    for start in starts[1:]:
        ax.axvline(start - 0.5, color=INK, alpha=0.3, linewidth=0.8)
    middles = [((min(span) + max(span)) / 2, m) for m, span in spans.items()]
    ax.set_xticks([x for x, _ in middles], [plot.number(m) if named else "" for _, m in middles])
    ax.tick_params(axis="x", length=0)
    ax.grid(axis="x", visible=False)
    ax.set_xlim(-1, max(places.values()) + 1)


def _series(ax, rows: pd.DataFrame, **more) -> dict[str, object]:
    """Published series as lines in the colour of claims; their entries of a legend."""
    handles = {}
    for library, (called, _, dashes) in SERIES.items():
        here = rows[rows["library"] == library]
        if len(here):
            how = {"color": CLAIM, "linestyle": dashes, "linewidth": 1.3} | more
            handles[called] = _in_runs(ax, here, "speedup", **how)
    return handles


def _ideal(ax, density: float) -> object:
    """The ideal speedup M/N, and cuBLAS at 1."""
    ax.axhline(1, color=BASELINE, linewidth=1.2)
    return ax.axhline(1 / density, **IDEAL)


def llama(
    df: pd.DataFrame,
    published: pd.DataFrame | None = None,
    gpu: str = "A100",
    shown: Sequence[str] = LLAMA,
    label: str = "",
):
    """Fig. 9: speedup over cuBLAS at the points of the Llama models, a panel per sparsity, with the
    published series of one GPU beside it, the ideal speedup M/N and cuBLAS at 1.

    Points that are measured have markers, published ones are lines without. Published series are in
    the order of their `point`, and so is the x axis. Raises ValueError for a GPU without a series.
    """
    places = _places(df, published)
    rows = _placed(df, shown, label, places)
    stated = pd.DataFrame(columns=["gpu", "library", "density", "place", "m", "speedup"])
    if published is not None:
        stated = _of_series(published).rename(columns={"point": "place"})
        stated = stated[stated["gpu"] == gpu]
        if stated.empty:
            raise ValueError(f"The published series have no GPU {gpu!r}.")
    densities = _densities(rows["density"])
    fig, axes = plt.subplots(
        len(densities),
        1,
        figsize=(WIDTH, 0.9 + 2.15 * len(densities)),
        sharex=True,
        squeeze=False,
    )
    handles: dict[str, object] = {}
    for ax, density in zip(axes[:, 0], densities, strict=True):
        here, theirs = rows[rows["density"] == density], stated[stated["density"] == density]
        lines = {f"{k}, {gpu}": v for k, v in _series(ax, theirs).items()}
        for variant in reversed(_present(here, shown)):
            how = look(variant) | {"linewidth": 0.8, "markersize": 4.2, "markeredgewidth": 0}
            line = _in_runs(ax, here[here["variant"] == variant], "speedup", **how)
            handles[name(variant)] = line
        handles = {name(v): handles[name(v)] for v in shown if name(v) in handles} | handles | lines
        handles["ideal, M/N"] = _ideal(ax, density)
        _speed_axis(ax, [*here["speedup"], *theirs["speedup"], 1 / density])
        ax.set_title(f"{_sparsity(density)} sparsity", loc="left")
        ax.set_ylabel("speedup over cuBLAS")
        _regions(ax, places, named=ax is axes[-1, 0])
    axes[-1, 0].set_xlabel("m, and in each region the (n, k) of Llama's linear layers")
    handles["cuBLAS SGEMM"] = Line2D([], [], color=BASELINE, linewidth=1.2)
    plot.legend(fig, handles)
    return fig, plot.behind(rows, stated)


def llama_gpus(
    published: pd.DataFrame,
    df: pd.DataFrame | None = None,
    best: str = "auto",
    measured_on: str = "measured",
    label: str = "",
):
    """Fig. 9 of every published GPU, a column each and a row per sparsity; with records, `best` on the
    GPU of this book in a first column of its own.

    measured_on: what that column is called. All panels of a row have one scale.
    """
    stated = _of_series(published).rename(columns={"point": "place"})
    places = _places(published, published)
    columns = [(gpu, gpu) for gpu in dict.fromkeys(stated["gpu"])]
    rows = None
    if df is not None:
        rows = _placed(df, [best], label, places)
        columns = [(measured_on, None), *columns]
    densities = _densities(stated["density"], [] if rows is None else rows["density"])
    fig, axes = plt.subplots(
        len(densities),
        len(columns),
        figsize=(WIDTH, 1.1 + 1.6 * len(densities)),
        sharex=True,
        sharey="row",
        squeeze=False,
    )
    handles: dict[str, object] = {}
    for down, density in enumerate(densities):
        theirs = stated[stated["density"] == density]
        ours = theirs.iloc[:0] if rows is None else rows[rows["density"] == density]
        for across, (called, gpu) in enumerate(columns):
            ax = axes[down, across]
            if gpu is None and len(ours):
                how = look(best) | {"linewidth": 1.2, "marker": ""}
                handles[name(best)] = _in_runs(ax, ours, "speedup", **how)
            elif gpu is not None:
                handles |= _series(ax, theirs[theirs["gpu"] == gpu], linewidth=1.2)
            handles["ideal, M/N"] = _ideal(ax, density)
            _regions(ax, places, named=down == len(densities) - 1)
            ax.tick_params(axis="x", labelsize=7)
            if not down:
                ax.set_title(called)
        _speed_axis(axes[down, 0], [*theirs["speedup"], *ours["speedup"], 1 / density])
        axes[down, 0].set_ylabel(f"{_sparsity(density)} sparsity")
    fig.supxlabel("m, and in each region the (n, k) of Llama's linear layers", fontsize=9)
    fig.supylabel("speedup over cuBLAS on the same GPU", fontsize=9)
    handles["cuBLAS SGEMM"] = Line2D([], [], color=BASELINE, linewidth=1.2)
    plot.legend(fig, handles, columns=6)
    return fig, stated if rows is None else plot.behind(rows, stated)


def llama_means(
    df: pd.DataFrame,
    published: pd.DataFrame,
    shown: Sequence[str] = LLAMA,
    measured_on: str = "measured",
    label: str = "",
):
    """Fig. 9 in short: geometric mean of the speedups over cuBLAS (marker) and their range (line) at
    each sparsity, a panel per GPU, with the ideal speedup M/N."""
    rows = _speedups(df, shown, "cublas", label).assign(gpu=measured_on)
    rows = rows.rename(columns={"variant": "contender"})
    stated = _of_series(published).rename(columns={"library": "contender"})
    columns = ["gpu", "contender", "density", "speedup"]
    parts = [rows[columns].assign(source="measured"), stated[columns].assign(source="stated")]
    grouped = pd.concat(parts).groupby(["source", *columns[:3]], sort=False)["speedup"]
    data = grouped.agg(["count", "min", "max", records.geomean]).reset_index()
    data = data.rename(
        columns={"count": "points", "min": "least", "max": "most", "geomean": "mean"}
    )
    # The ideal of a density that only one of the two has is drawn as well.
    densities = _densities(data["density"])
    gpus = [measured_on, *dict.fromkeys(stated["gpu"])]
    fig, axes = plt.subplots(1, len(gpus), figsize=(WIDTH, 4.0), sharey=True, squeeze=False)
    handles: dict[str, object] = {}
    for ax, gpu in zip(axes[0], gpus, strict=True):
        here = data[data["gpu"] == gpu]
        present = [c for c in (*shown, *SERIES) if (here["contender"] == c).any()]
        for contender, offset in zip(present, _lanes(len(present), 0.5), strict=True):
            one = here[here["contender"] == contender]
            x = [densities.index(d) + offset for d in one["density"]]
            own = contender not in SERIES
            how = look(contender) if own else plot.hollow(SERIES[contender][1])
            how |= {"linestyle": "none", "markersize": 7} | ({"markeredgewidth": 0} if own else {})
            colour = how["color"] if own else CLAIM
            ax.vlines(x, one["least"], one["most"], color=colour, linewidth=2, alpha=0.45)
            (line,) = ax.plot(x, one["mean"], **how)
            handles[name(contender) if own else SERIES[contender][0]] = line
        for place, density in enumerate(densities):
            (line,) = ax.plot([place - 0.45, place + 0.45], [1 / density] * 2, **IDEAL)
        handles["ideal, M/N"] = line
        ax.axhline(1, color=BASELINE, linewidth=1.2)
        _categories(ax, densities)
        ax.tick_params(axis="x", labelsize=7.5)
        ax.set_title(gpu)
    _speed_axis(axes[0, 0], [*data["least"], *data["most"], *(1 / d for d in densities)])
    axes[0, 0].set_ylabel("speedup over cuBLAS")
    handles["cuBLAS SGEMM"] = Line2D([], [], color=BASELINE, linewidth=1.2)
    order = [*(name(v) for v in shown), *(SERIES[s][0] for s in SERIES), "ideal, M/N"]
    order = [key for key in [*order, "cuBLAS SGEMM"] if key in handles]
    plot.legend(fig, {key: handles[key] for key in order})
    return fig, data


# ---------------------------------------------------------------- roofline (Fig. 10)


def counted(counters: pd.DataFrame, shown: Sequence[str] = PROFILED) -> pd.DataFrame:
    """What the counters say of each contender: variant, POINT, useful FLOPs, time_us, useful TFLOP/s,
    and bytes of DRAM, of reads of L2 (32 B a sector) and of shared memory (128 B a wavefront).

    counters: as `records.read_counters` has them. Of cuBLAS, which multiplies the dense matrix at
    every density, only the densest row. Raises ValueError without the time of any of `shown`.
    """
    rows = counters[counters["variant"].isin(shown)]
    table = rows.pivot_table(index=["variant", *POINT], columns="metric", values="value")
    table = table.reset_index()
    if ncu.TIME not in table:
        raise ValueError(f"There are no counters of {', '.join(shown)} with {ncu.TIME}.")

    def of(metric: str) -> pd.Series:
        for known in (metric, ncu.OTHER_NAMES.get(metric)):
            if known in table:
                return table[known]
        return pd.Series(np.nan, table.index)

    dense = table["variant"].str.startswith("cublas")
    share = np.where(dense, 1.0, table["density"])
    flops = 2.0 * table["m"] * table["n"] * table["k"] * share
    out = table[["variant", *POINT]].assign(
        useful_flops=flops,
        time_us=table[ncu.TIME] / 1e3,
        tflops=flops / table[ncu.TIME] / 1e3,
        dram_bytes=of("dram__bytes_read.sum") + of("dram__bytes_write.sum"),
        l2_bytes=32
        * (of("lts__t_sectors_op_read.sum") + of("lts__t_sectors_op_red.sum").fillna(0)),
        shared_bytes=128 * of("l1tex__data_pipe_lsu_wavefronts_mem_shared.sum"),
    )
    out = out.sort_values("density", ascending=False, kind="stable")
    again = out["variant"].str.startswith("cublas") & out.duplicated(["variant", "m", "n", "k"])
    place = {variant: i for i, variant in enumerate(shown)}
    order = out.loc[~again, "variant"].map(place).argsort(kind="stable")
    return out[~again].iloc[order].reset_index(drop=True)


def roofline(
    counters: pd.DataFrame,
    intensity: Mapping[tuple[str, float], float],
    ceilings: Mapping[str, float],
    published: pd.DataFrame | None = None,
    shown: Sequence[str] = PROFILED,
):
    """Fig. 10: useful TFLOP/s over FLOP per byte, by Eq. 3 and by what Nsight Compute counted of DRAM,
    L2 and shared memory, a panel each, under the measured ceilings.

    counters: of one size (`records.read_counters`); intensity: (variant, density) -> FLOP per byte by
    Eq. 3, of those that have one; ceilings: "FMA" in TFLOP/s, "DRAM", "L2" and "shared memory" in
    GB/s. Markers grow with the sparsity. Published quantity: "peak_share", of the source's peak,
    drawn hollow at our intensity under our ceiling. Raises ValueError for a missing ceiling, or
    counters of several sizes.
    """
    needed = ("FMA", "DRAM", "L2", "shared memory")
    if missing := [what for what in needed if what not in ceilings]:
        raise ValueError(f"The roofline needs the ceilings {', '.join(missing)}.")
    data = counted(counters, shown)
    if len(data[["m", "n", "k"]].drop_duplicates()) > 1:
        raise ValueError("The roofline is of one size, and the counters are of several.")
    key = zip(data["variant"], data["density"], strict=True)
    data["eq3"] = [intensity.get(pair, np.nan) for pair in key]
    for what in ("dram", "l2", "shared"):
        data[what] = data["useful_flops"] / data[f"{what}_bytes"].where(data[f"{what}_bytes"] > 0)
    densities = _densities(data.loc[~data["variant"].str.startswith("cublas"), "density"])
    grow = dict(zip(densities, np.linspace(6, 12, max(len(densities), 2)), strict=False))
    panels = {
        "eq3": ("by Eq. 3", ("DRAM", "L2")),
        "dram": ("bytes of DRAM, counted", ("DRAM",)),
        "l2": ("bytes read from L2, counted", ("L2",)),
        "shared": ("bytes of shared memory, counted", ("shared memory",)),
    }
    roof = ceilings["FMA"]
    bottom, top = min(data["tflops"].min(), roof / 3) / 1.5, roof * 1.5
    fig, axes = plt.subplots(2, 2, figsize=(WIDTH, 6.8), sharey=True)
    handles: dict[str, object] = {}
    stated = _peak_share(published, shown)
    labels = []
    for ax, (column, (title, memories)) in zip(axes.flat, panels.items(), strict=True):
        slopes = {what: ceilings[what] / 1000 for what in memories}
        ridges = [roof / slope for slope in slopes.values()]
        known = data[column].dropna()
        # The slopes come up from the bottom.
        left = min([*(ridge * bottom / roof for ridge in ridges), *(known / 1.5)])
        right = max([*ridges, *known]) * 1.8
        ax.set(xscale="log", yscale="log", xlim=(left, right), ylim=(bottom, top), title=title)
        ax.plot([min(ridges), right], [roof, roof], color=BOUND, linewidth=1.3)
        for what, slope in slopes.items():
            ends = (left, left * slope), (roof / slope, roof)
            ax.plot(*zip(*ends, strict=True), color=BOUND, linewidth=1.3, linestyle=(0, (5, 2)))
            labels.append((ax, what, slope, max(left, bottom / slope)))
        for variant in _present(data, shown):
            rows = data[(data["variant"] == variant) & data[column].notna()]
            how = look(variant)
            ax.plot(rows[column], rows["tflops"], color=how["color"], linewidth=0.8, alpha=0.6)
            for row in rows.itertuples():
                size = grow.get(row.density, 7.0) if not variant.startswith("cublas") else 7.0
                more = {"linestyle": "none", "markersize": size}
                x = getattr(row, column)
                handles[name(variant)] = _line(ax, x, row.tflops, variant, **more)
        plot.log(ax.xaxis, fine=True)
        _steps(ax.yaxis)
        if ax in axes[1]:
            ax.set_xlabel("useful FLOP per byte")
    said = []
    for row in stated.itertuples():
        x = intensity.get((row.variant, row.density))
        if x is not None:
            how = plot.hollow(look(row.variant)["marker"])
            how["markersize"] = grow.get(row.density, 7.0)
            axes[0, 0].plot(x, row.stated * roof, **how)
            said.append((row.variant, row.density, x, row.stated * roof))
    fig.canvas.draw()  # the layout must be settled before a label can be turned along a slope
    for ax, what, slope, start in labels:
        middle = start**0.55 * (roof / slope) ** 0.45
        ends = (start, start * slope), (roof / slope, roof)
        text = f"{what} {slope:.1f} TB/s"
        along(ax, text, (middle, middle * slope), ends, gap=4, size=8)
    for ax in axes.flat:
        how = {"xytext": (-2, 4), "textcoords": "offset points", "ha": "right", "fontsize": 8}
        ax.annotate(f"FMA {roof:.1f} TFLOP/s", (ax.get_xlim()[1], roof), **how)
    for ax in axes[:, 0]:
        ax.set_ylabel("useful TFLOP/s")
    handles = {name(v): handles[name(v)] for v in shown if name(v) in handles}
    for density in densities:
        dot = {"color": BOUND, "marker": "o", "linestyle": "none", "markersize": grow[density]}
        handles[f"{_sparsity(density)} sparsity"] = Line2D([], [], markeredgewidth=0, **dot)
    if said:
        handles["stated, % of its peak"] = Line2D([], [], **plot.hollow())
    plot.legend(fig, handles)
    theirs = pd.DataFrame(said, columns=["variant", "density", "eq3", "tflops"])
    return fig, plot.behind(data, theirs)


# ---------------------------------------------------------------- against the authors' kernels


def anchors(
    df: pd.DataFrame,
    theirs: pd.DataFrame,
    shown: Sequence[str] = ("auto", "v3", "nm_baseline"),
    best: str = "auto",
    label: str = "",
):
    """Speedup over cuBLAS at each shape of the anchors, a panel per sparsity: ours, what the authors'
    kernels reach on a GPU of the same type (hollow), and the ideal M/N; on the right `best` over the
    authors' NM-SpMM, and below the geometric means.

    theirs: m, n, k, density, library ("nm_spmm" or "nmsparse"), speedup over cuBLAS. Means are of the shapes that
    all contenders of a panel have. Raises ValueError where the two share no shape.
    """
    ours = _speedups(df, shown, "cublas", label).rename(columns={"variant": "contender"})
    theirs = theirs.rename(columns={"library": "contender"})
    theirs = theirs[theirs["contender"].isin(SERIES)]
    key = [*POINT, "contender", "speedup"]
    data = pd.concat(
        [ours[key].assign(source="measured"), theirs[key].assign(source="stated")],
        ignore_index=True,
    )
    shape = list(zip(data["m"], data["n"], data["k"], strict=True))
    shapes = list(
        dict.fromkeys(s for s, of in zip(shape, data["source"], strict=True) if of == "stated")
    )
    shapes = [s for s in shapes if (s, "measured") in set(zip(shape, data["source"], strict=True))]
    if not shapes:
        raise ValueError("The records and the anchors have no shape in common.")
    data["place"] = [shapes.index(s) if s in shapes else -1 for s in shape]
    data = data[data["place"] >= 0]
    contenders = [c for c in (*shown, *SERIES) if (data["contender"] == c).any()]
    densities = [d for d in _densities(ours["density"]) if (theirs["density"] == d).any()]
    data = data[data["density"].isin(densities)]
    down = -(-len(densities) // 2)
    fig, axes = plt.subplots(
        down,
        2 if len(densities) > 1 else 1,
        figsize=(WIDTH, 1.0 + down * (0.95 + 0.31 * (len(shapes) + 1))),
        sharey=True,
        squeeze=False,
    )
    handles: dict[str, object] = {}
    means = []
    for number, (ax, density) in enumerate(zip(axes.flat, densities, strict=False)):
        table = data[data["density"] == density].pivot_table(
            index="place", columns="contender", values="speedup"
        )
        whole = table.dropna()
        if len(whole):
            table.loc[len(shapes)] = np.exp(np.log(whole).mean())
            means += [
                {"contender": c, "density": density, "speedup": v, "points": len(whole)}
                for c, v in table.loc[len(shapes)].items()
            ]
        lanes = [c for c in contenders if c in table]
        for contender, offset in zip(lanes, _lanes(len(lanes), 0.56), strict=True):
            own = contender not in SERIES
            how = look(contender) if own else plot.hollow(SERIES[contender][1])
            how |= {"linestyle": "none", "markersize": 6.5}
            how |= {"markeredgewidth": 0} if own else {}
            values = table[contender].dropna()
            (line,) = ax.plot(values, values.index + offset, **how)
            called = name(contender) if own else f"{SERIES[contender][0]}, authors' kernel"
            handles[called] = line
        for place, values in table.iterrows():
            ax.plot([values.min(), values.max()], [place] * 2, color=INK, alpha=0.18, linewidth=1)
            if {best, "nm_spmm"} <= set(lanes) and values[[best, "nm_spmm"]].notna().all():
                plot.right(ax, place, 34, f"{values[best] / values['nm_spmm']:.2f}×")
        ax.axvline(1, color=BASELINE, linewidth=1.2)
        handles["ideal, M/N"] = ax.axvline(1 / density, **IDEAL)
        ax.axhline(len(shapes) - 0.5, color=INK, linewidth=0.8)
        low, high = table.min().min(), max(table.max().max(), 1 / density)
        ax.set(xscale="log", xlim=(min(low, 0.95) / 1.1, high * 1.1))
        _steps(ax.xaxis)
        ax.set_title(f"{_sparsity(density)} sparsity", loc="left")
        plot.right(ax, -0.75, 34, f"{name(best)} / NM-SpMM", fontsize=8)
        ax.grid(axis="y", visible=False)
        ax.tick_params(axis="y", length=0)
        if number // 2 == down - 1:
            ax.set_xlabel("speedup over cuBLAS")
    for ax in axes.flat[len(densities) :]:
        ax.axis("off")
    said = [" × ".join(map(plot.number, map(int, s))) for s in shapes]
    for ax in axes[:, 0]:
        ax.set_yticks(range(len(shapes) + 1), [*said, "geometric mean"])
        ax.set(ylim=(len(shapes) + 0.6, -0.6), ylabel="m × n × k")
    handles["cuBLAS SGEMM"] = Line2D([], [], color=BASELINE, linewidth=1.2)
    plot.legend(fig, handles)
    sources = data.drop_duplicates("contender").set_index("contender")["source"]
    means = pd.DataFrame(means, columns=["contender", "density", "speedup", "points"])
    means = means.assign(source=means["contender"].map(sources))
    columns = ["source", "contender", *POINT, "speedup", "points"]
    return fig, pd.concat([data, means], ignore_index=True).reindex(columns=columns)


# ---------------------------------------------------------------- tensor cores

#: Label -> variant, library, how the type is called.
TENSOR = {"tf32": ("tf32", "cublas_tf32", "TF32"), "bfloat16": ("bf16", "cublas_bf16", "BF16")}
LENGTHS = (
    BEST,
    RUNGS[4],
    RUNGS[1],
    RUNGS[0],
)  # colours of vector lengths, none of them a library's


def _crossing(density: np.ndarray, speedup: np.ndarray) -> float:
    """The sparsity from which on a contender wins, densities falling: where the line between two
    points passes 1 for good, both logarithmic. NaN where the last point does not win; the first
    point's sparsity where all do."""
    wins = speedup >= 1
    if not wins[-1]:
        return np.nan
    losses = np.flatnonzero(~wins)
    if not losses.size:
        return 1 - float(density[0])
    i = int(losses[-1])
    (d0, d1), (s0, s1) = np.log(density[i : i + 2]), np.log(speedup[i : i + 2])
    return 1 - float(np.exp(d0 - s0 * (d1 - d0) / (s1 - s0)))


def tensor(df: pd.DataFrame):
    """Speedup of the tensor-core variants over dense cuBLAS of the same type against sparsity, a panel
    for TF32 and BF16, a line per size and vector length; below, from which sparsity on each wins.

    df: labels "tf32" and "bfloat16", also with ", vectors of L". The x axis is logarithmic in the
    density, so that the ideal M/N is straight. The data behind it has the crossing of its line, NaN
    where it never wins. Raises ValueError without any of them beside its library.
    """
    parts = []
    for dtype, (variant, library, _) in TENSOR.items():
        here = df[df["label"].str.startswith(dtype)]
        if {variant, library} <= set(here["variant"]):
            parts.append(_speedups(here, [variant], library, None).assign(dtype=dtype))
    if not parts:
        raise ValueError("The records have no tf32 or bf16 beside cuBLAS of the same type.")
    data = pd.concat(parts, ignore_index=True)
    data["vector"] = [pattern(label)[1] for label in data["label"]]
    data = data.sort_values("density", ascending=False, kind="stable")
    lines = list(data.groupby(["vector", "m", "n", "k"]).groups)
    if len(lines) > len(MARKS):
        raise ValueError(f"The figure has room for {len(MARKS)} lines, not {len(lines)}.")
    vectors = sorted({vector for vector, *_ in lines})
    shapes = sorted({tuple(shape) for _, *shape in lines})
    densities = _densities(data["density"])
    fig, axes = plt.subplots(
        2,
        len(parts),
        figsize=(WIDTH, 4.3 + 0.24 * len(lines)),
        sharex=True,
        sharey="row",
        squeeze=False,
        height_ratios=(3.4, 0.5 + 0.27 * len(lines)),
    )
    handles: dict[str, object] = {}
    data["crossing"] = np.nan
    for (ax, side), part in zip(axes.T, parts, strict=True):
        dtype = part["dtype"].iloc[0]
        for place, (vector, *shape) in enumerate(lines):
            chosen = (data["dtype"] == dtype) & (data["vector"] == vector)
            for column, size in zip(("m", "n", "k"), shape, strict=True):
                chosen &= data[column] == size
            rows = data[chosen]
            if rows.empty:
                continue
            how = {
                "color": LENGTHS[vectors.index(vector) % len(LENGTHS)],
                "marker": MARKS[place],
                "linestyle": ("-", "--", ":")[shapes.index(tuple(shape)) % 3],
                "markeredgewidth": 0,
                "markersize": MARKER + 1,
            }
            (line,) = ax.plot(1 / rows["density"], rows["speedup"], **how)
            size = (
                f"{plot.number(shape[0])}³"
                if len(set(shape)) == 1
                else " × ".join(map(plot.number, shape))
            )
            handles[f"L = {vector}, {size}"] = line
            at = _crossing(rows["density"].to_numpy(), rows["speedup"].to_numpy())
            data.loc[chosen, "crossing"] = at
            never = np.isnan(at)
            if not never:
                first = at == 1 - rows["density"].iloc[0]
                side.plot(1 / (1 - at), place, **(how | {"linestyle": "none"}))
                end = 1 / rows["density"].min()
                side.plot(
                    [1 / (1 - at), end], [place] * 2, color=how["color"], linewidth=2.4, alpha=0.45
                )
            text = "never" if never else f"{'' if first else '≥ '}{100 * at:.0f} %"
            plot.right(side, place, 36, text)
        ax.plot([1, 1 / min(densities)], [1, 1 / min(densities)], **IDEAL)
        ax.axhline(1, color=BASELINE, linewidth=1.3)
        ax.set_xscale("log", base=2)
        side.set_xticks([1 / d for d in densities], [_sparsity(d) for d in densities])
        side.xaxis.set_minor_locator(NullLocator())
        side.set(ylim=(len(lines) - 0.4, -0.6), xlabel="sparsity")
        side.set_yticks([])
        side.set_xlim(0.93 / max(densities), 1.08 / min(densities))
        ax.set_title(f"{TENSOR[dtype][2]}, over cuBLAS {TENSOR[dtype][2]}")
    _speed_axis(axes[0, 0], [*data["speedup"], 1 / min(densities)])
    axes[0, 0].set_ylabel("speedup over dense cuBLAS")
    axes[1, 0].set_ylabel("wins from")
    order = [f"L = {v}" for v in vectors]
    handles = dict(sorted(handles.items(), key=lambda h: order.index(h[0].split(",")[0])))
    handles["ideal, M/N"] = Line2D([], [], **IDEAL)
    handles["cuBLAS"] = Line2D([], [], color=BASELINE, linewidth=1.3)
    plot.legend(fig, handles, columns=3)
    columns = [
        "experiment",
        "variant",
        "label",
        *POINT,
        "vector",
        "median_us",
        "speedup",
        "crossing",
    ]
    return fig, data[columns].reset_index(drop=True)


# ---------------------------------------------------------------- vector length and window


def vectors(df: pd.DataFrame, fma: float | None = None, shown: Sequence[str] = ("auto", "v3")):
    """Useful TFLOP/s against the vector length L, a line per window M, a panel per sparsity.

    df: one size, patterns by their labels (see `pattern`). The first of `shown` is drawn full, the
    second hollow and dashed. fma: with it, the ceiling as a line. Raises ValueError for records of
    several sizes, or over two of `shown`.
    """
    if not 1 <= len(shown) <= 2:
        raise ValueError(
            f"The figure draws one contender or two, not {', '.join(shown) or 'none'}."
        )
    rows = _rows(df, shown, None)
    if len(rows[["m", "n", "k"]].drop_duplicates()) > 1:
        raise ValueError("The figure is of one size, and the records are of several.")
    found = [pattern(label) for label in rows["label"]]
    rows = rows.assign(window=[m for m, _ in found], vector=[length for _, length in found])
    windows, densities = sorted(set(rows["window"])), _densities(rows["density"])
    lengths = sorted(set(rows["vector"]))
    if len(windows) > len(MARKS):
        raise ValueError(f"The figure has room for {len(MARKS)} windows, not {len(windows)}.")
    fig, axes = plt.subplots(1, len(densities), figsize=(WIDTH, 4.0), sharey=True, squeeze=False)
    handles: dict[str, object] = {}
    for ax, density in zip(axes[0], densities, strict=True):
        for place, window in enumerate(windows):
            for number, variant in enumerate(shown):
                here = rows[(rows["variant"] == variant) & (rows["density"] == density)]
                here = here[here["window"] == window].sort_values("vector")
                how = {"color": ROWS[place], "marker": MARKS[place], "markersize": MARKER + 1}
                how |= (
                    {"markeredgewidth": 0}
                    if not number
                    else {
                        "linestyle": "--",
                        "markerfacecolor": "none",
                        "markeredgewidth": 1.3,
                        "linewidth": 1.1,
                    }
                )
                ax.plot(here["vector"], here["useful"], **how)
            how = {"color": ROWS[place], "marker": MARKS[place], "markeredgewidth": 0}
            handles[f"M = {window}"] = Line2D([], [], markersize=MARKER + 1, **how)
        if fma:
            handles["FMA ceiling"] = ax.axhline(
                fma, color=BOUND, linewidth=1.3, linestyle=(0, (5, 3))
            )
        ax.set_xscale("log", base=2)
        ax.set_xticks(lengths, [f"{length}" for length in lengths])
        ax.xaxis.set_minor_locator(NullLocator())
        ax.set(title=f"{_sparsity(density)} sparsity", xlabel="vector length L (columns)")
    ends = {"": {}, "hollow": {"linestyle": "--", "markerfacecolor": "none"}}
    for variant, more in zip(shown, ends.values(), strict=False):
        handles[name(variant)] = Line2D([], [], **({"color": INK, "marker": "o"} | more))
    axes[0, 0].set_ylim(0, 1.06 * max(rows["useful"].max(), fma or 0))
    axes[0, 0].set_ylabel("useful work (TFLOP/s)")
    plot.legend(fig, handles, columns=7)
    columns = ["experiment", "variant", "label", *POINT, "window", "vector", "median_us", "useful"]
    return fig, rows[columns].rename(columns={"useful": "tflops"})


# ---------------------------------------------------------------- where the bottleneck shifts


def transition(df: pd.DataFrame, stated: float | None = 0.7):
    """Arithmetic intensity by Eq. 3 against sparsity, a panel per GPU, under its ridge, with the sparsity
    at which each line falls below it.

    df: gpu, kind (what a line is of: such as "packed"), sparsity (0 to 1), intensity and ridge (both
    FLOP per byte; one ridge a GPU), any number of points per line. stated: the source's transition.
    The data behind it has the crossing of its line: 0 where it is below throughout, NaN where never.
    Raises ValueError for a GPU with several ridges, or over four kinds.
    """
    if (df.groupby("gpu")["ridge"].nunique() > 1).any():
        raise ValueError("A GPU has one ridge, and the table has several of one.")
    gpus, kinds = list(dict.fromkeys(df["gpu"])), list(dict.fromkeys(df["kind"]))
    if len(kinds) > 4:
        raise ValueError(f"The figure has room for four kinds of lines, not {len(kinds)}.")
    across = min(len(gpus), 2)
    down = -(-len(gpus) // across)
    fig, axes = plt.subplots(
        down, across, figsize=(WIDTH, 0.9 + 2.75 * down), sharex=True, sharey=True, squeeze=False
    )
    handles: dict[str, object] = {}
    data = df.assign(crossing=np.nan)
    for ax, gpu in zip(axes.flat, gpus, strict=False):
        ridge, said = float(df.loc[df["gpu"] == gpu, "ridge"].iloc[0]), []
        for place, kind in enumerate(kinds):
            chosen = (df["gpu"] == gpu) & (df["kind"] == kind)
            rows = df[chosen].sort_values("sparsity")
            if rows.empty:
                continue
            how = {
                "color": ROWS[place],
                "linestyle": ("-", "--", "-.", ":")[place],
                "linewidth": 1.8,
            }
            (handles[kind],) = ax.plot(100 * rows["sparsity"], rows["intensity"], **how)
            at = _falls_below(rows["sparsity"].to_numpy(), rows["intensity"].to_numpy(), ridge)
            data.loc[chosen, "crossing"] = at
            text = f"{kind}: " + (
                "never" if np.isnan(at) else f"{100 * at:.0f} %" if at else "always"
            )
            said.append(text)
            if at > 0:
                ax.plot(100 * at, ridge, MARKS[place], color=ROWS[place], markersize=8, mew=0)
        ax.axhline(ridge, color=BOUND, linewidth=1.4, linestyle=(0, (5, 2)))
        if stated is not None:
            line = {"color": CLAIM, "linewidth": 1.2, "linestyle": (0, (2, 2))}
            handles[f"stated transition: {100 * stated:g} %"] = ax.axvline(100 * stated, **line)
        ax.set_yscale("log")
        ax.set_title(f"{gpu}: ridge at {ridge:.3g} FLOP/B")
        text = "memory-bound from\n" + "\n".join(said)
        ax.text(0.02, 0.03, text, transform=ax.transAxes, va="bottom", fontsize=8)
    values = [*df["intensity"], *df["ridge"]]
    # Room below for what is said of each panel.
    axes[0, 0].set_ylim(min(values) / (max(values) / min(values)) ** 0.45, max(values) * 1.3)
    plot.log(axes[0, 0].yaxis, fine=True)
    axes[0, 0].set_xlim(0, 100)
    for ax in axes.flat[len(gpus) :]:
        ax.axis("off")
    for ax in axes[-1]:
        ax.set_xlabel("sparsity (%)")
    for ax in axes[:, 0]:
        ax.set_ylabel("intensity (FLOP/B)")
    handles["ridge: FMA over bandwidth"] = Line2D([], [], color=BOUND, linestyle=(0, (5, 2)))
    plot.legend(fig, handles, columns=3)
    return fig, data


def _falls_below(sparsity: np.ndarray, intensity: np.ndarray, ridge: float) -> float:
    """Where a line falls under the ridge and stays there: 0 if it begins below, NaN if it ends above."""
    above = intensity >= ridge
    if above[-1]:
        return np.nan
    if not above.any():
        return 0.0
    i = int(np.flatnonzero(above)[-1])
    share = (intensity[i] - ridge) / (intensity[i] - intensity[i + 1])
    return float(sparsity[i] + share * (sparsity[i + 1] - sparsity[i]))
