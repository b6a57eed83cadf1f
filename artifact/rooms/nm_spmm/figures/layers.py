"""Fig. 9: the layers of Llama, beside the published series of three GPUs."""

from collections.abc import Mapping, Sequence

import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.lines import Line2D

from artifact.drawing import plot
from artifact.drawing.style import BASELINE, CLAIM, INK, WIDTH, name
from artifact.measure import records
from artifact.rooms.nm_spmm.figures.common import (
    IDEAL,
    LLAMA,
    SERIES,
    as_sparsity,
    categories,
    densities_of,
    ideal_lines,
    lanes_of,
    look,
    of_series,
    present_of,
    speed_axis,
    speedups_of,
)


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


def _placed(df: pd.DataFrame, wanted: Sequence[str], label: str, places: Mapping[tuple, int]) -> pd.DataFrame:
    """Speedups over cuBLAS at the points that have a place, with it; ValueError where none has."""
    rows = speedups_of(df, wanted, "cublas", label)
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
        stated = of_series(published).rename(columns={"point": "place"})
        stated = stated[stated["gpu"] == gpu]
        if stated.empty:
            raise ValueError(f"The published series have no GPU {gpu!r}.")
    densities = densities_of(rows["density"])
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
        for variant in reversed(present_of(here, shown)):
            how = look(variant) | {"linewidth": 0.8, "markersize": 4.2, "markeredgewidth": 0}
            line = _in_runs(ax, here[here["variant"] == variant], "speedup", **how)
            handles[name(variant)] = line
        handles = {name(v): handles[name(v)] for v in shown if name(v) in handles} | handles | lines
        handles["ideal, M/N"] = ideal_lines(ax, density)
        speed_axis(ax, [*here["speedup"], *theirs["speedup"], 1 / density])
        ax.set_title(f"{as_sparsity(density)} sparsity", loc="left")
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
    stated = of_series(published).rename(columns={"point": "place"})
    places = _places(published, published)
    columns = [(gpu, gpu) for gpu in dict.fromkeys(stated["gpu"])]
    rows = None
    if df is not None:
        rows = _placed(df, [best], label, places)
        columns = [(measured_on, None), *columns]
    densities = densities_of(stated["density"], [] if rows is None else rows["density"])
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
            handles["ideal, M/N"] = ideal_lines(ax, density)
            _regions(ax, places, named=down == len(densities) - 1)
            ax.tick_params(axis="x", labelsize=8)
            if not down:
                ax.set_title(called)
        speed_axis(axes[down, 0], [*theirs["speedup"], *ours["speedup"], 1 / density])
        axes[down, 0].set_ylabel(f"{as_sparsity(density)} sparsity")
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
    rows = speedups_of(df, shown, "cublas", label).assign(gpu=measured_on)
    rows = rows.rename(columns={"variant": "contender"})
    stated = of_series(published).rename(columns={"library": "contender"})
    columns = ["gpu", "contender", "density", "speedup"]
    parts = [rows[columns].assign(source="measured"), stated[columns].assign(source="stated")]
    grouped = pd.concat(parts).groupby(["source", *columns[:3]], sort=False)["speedup"]
    data = grouped.agg(["count", "min", "max", records.geomean]).reset_index()
    data = data.rename(columns={"count": "points", "min": "least", "max": "most", "geomean": "mean"})
    # The ideal of a density that only one of the two has is drawn as well.
    densities = densities_of(data["density"])
    gpus = [measured_on, *dict.fromkeys(stated["gpu"])]
    fig, axes = plt.subplots(1, len(gpus), figsize=(WIDTH, 4.0), sharey=True, squeeze=False)
    handles: dict[str, object] = {}
    for ax, gpu in zip(axes[0], gpus, strict=True):
        here = data[data["gpu"] == gpu]
        present = [c for c in (*shown, *SERIES) if (here["contender"] == c).any()]
        for contender, offset in zip(present, lanes_of(len(present), 0.5), strict=True):
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
        categories(ax, densities)
        ax.tick_params(axis="x", labelsize=8)
        ax.set_title(gpu)
    speed_axis(axes[0, 0], [*data["least"], *data["most"], *(1 / d for d in densities)])
    axes[0, 0].set_ylabel("speedup over cuBLAS")
    handles["cuBLAS SGEMM"] = Line2D([], [], color=BASELINE, linewidth=1.2)
    order = [*(name(v) for v in shown), *(SERIES[s][0] for s in SERIES), "ideal, M/N"]
    order = [key for key in [*order, "cuBLAS SGEMM"] if key in handles]
    plot.legend(fig, {key: handles[key] for key in order})
    return fig, data
