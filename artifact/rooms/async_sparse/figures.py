"""Charts of the room `async_sparse` from records, each beside what the source states.

Every function returns `(fig, data)`, as in `artifact.drawing.style`. `df` is a record; `table2`, `table3` and `text`
are the source's published tables. What the source states was measured on an H100 and, where matrices are real, on
others: hollow, in the colour of claims. Functions raise ValueError where the records hold nothing to draw.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from artifact.drawing import plot, sketch
from artifact.drawing.style import BASELINE, BOUND, CLAIM, INK, MARKER, RUNGS, WIDTH
from artifact.measure import records
from artifact.rooms.async_sparse import arithmetic, contenders
from artifact.rooms.async_sparse.contenders import BELL, KEPT, STEPS, TORCH, colour, name

STATED = plot.stated("H100")
_ACROSS = {"va": "center", "ha": "right", "fontsize": 8}


def speedups(df: pd.DataFrame, variants: Sequence[str], baseline: str) -> pd.DataFrame:
    """variant, POINT, speedup over the baseline of those that were measured beside it."""
    frames = []
    for variant in variants:
        if {variant, baseline} <= set(df["variant"]):
            s = records.speedup(df, variant, baseline).reset_index().assign(variant=variant)
            frames.append(s[["variant", *records.POINT, "speedup"]])
    if not frames:
        raise ValueError(f"The records have nothing beside {baseline!r} of {', '.join(variants)}.")
    return pd.concat(frames, ignore_index=True)


def means(df: pd.DataFrame, variants: Sequence[str], baseline: str) -> dict[str, float]:
    """Variant -> geometric mean of its speedup over the points that the baseline has as well; of those measured."""
    there = set(df["variant"])
    known = [v for v in variants if {v, baseline} <= there]
    return {v: records.geomean(speedups(df, [v], baseline)["speedup"]) for v in known}


def present(df: pd.DataFrame, wanted: Sequence[str]) -> list[str]:
    return [variant for variant in wanted if (df["variant"] == variant).any()]


def box(ax, y: float, values: pd.Series, tint: str, scatter: np.random.Generator) -> float:
    """A box of values along x with a dot for each and their geometric mean, which is returned."""
    drawn = ax.boxplot(
        [values],
        positions=[y],
        widths=0.6,
        showfliers=False,
        patch_artist=True,
        manage_ticks=False,
        orientation="horizontal",
        medianprops={"color": INK},
        whiskerprops={"color": tint},
        capprops={"color": tint},
    )
    drawn["boxes"][0].set(facecolor=tint, alpha=0.35, edgecolor=tint)
    at = y + scatter.uniform(-0.22, 0.22, len(values))
    ax.plot(values, at, "o", color=tint, markersize=2.2, markeredgewidth=0, alpha=0.6)
    mean = records.geomean(values)
    ax.plot(mean, y, "D", color=INK, markersize=5)
    return mean


def boxes(
    ax,
    data: pd.DataFrame,
    order: Sequence[str],
    column: str = "speedup",
    more: Sequence[str] = (),
    call: Callable[[str], str] = name,
) -> None:
    """A row for each contender, labelled by `call`, its `box` and geometric mean, and empty rows `more` below them."""
    scatter = np.random.default_rng(0)
    for y, variant in enumerate(order):
        values = data.loc[data["variant"] == variant, column]
        plot.right(ax, y, 34, f"{box(ax, y, values, colour(variant), scatter):.2f}×")
    ax.axvline(1, color=BASELINE, linewidth=1.3, linestyle=(0, (5, 3)))
    labels = [*map(call, order), *more]
    ax.set_yticks(range(len(labels)), labels)
    ax.set(ylim=(len(labels) - 0.5, -0.6), xscale="log")
    ax.tick_params(axis="y", length=0)
    ax.grid(axis="y", visible=False)


def log_x(ax, values: Sequence[float], fine: bool = True) -> None:
    """A log x axis around ratios, with 1 inside."""
    ax.set(xscale="log", xlim=(min(*values, 0.9) / 1.25, max(*values, 1.1) * 1.25))
    plot.log(ax.xaxis, fine=fine)


def _log_y(ax, values: Sequence[float]) -> None:
    """A log axis for ratios over several decades, with 1 inside."""
    low, high = min(*values, 0.9), max(*values, 1.1)
    ax.set(yscale="log", ylim=(low / 1.25, high * 1.25))
    plot.log(ax.yaxis, fine=True)


# ---------------------------------------------------------------- Fig. 6 and Table II


def ablation(df: pd.DataFrame, table2: pd.DataFrame, baseline: str = BELL):
    """Fig. 6: the speedup of each step over cuSPARSE Blocked-ELL, a box and a dot for each matrix, with the geometric
    mean and, hollow, the stated one. Libraries and ours stand below a line."""
    beside = (contenders.CSR, contenders.BSR, contenders.TRITON, *contenders.OURS)
    data = speedups(df, (*STEPS, *contenders.BRANCHES, *beside), baseline)
    order = present(data, (*STEPS, *contenders.BRANCHES, *beside))
    stated = arithmetic.table2_speedups(table2)
    fig, ax = plt.subplots(figsize=(WIDTH, 1.2 + 0.3 * len(order)))
    boxes(ax, data, order)
    for y, variant in enumerate(order):
        if variant in stated.index:
            ax.plot(stated[variant], y, **plot.hollow("D"))
            plot.right(ax, y, 72, f"{stated[variant]:.2f}×", color=CLAIM)
    own = sum(v in (*STEPS, *contenders.BRANCHES) for v in order)
    if 0 < own < len(order):
        ax.axhline(own - 0.5, color=INK, alpha=0.4, linewidth=0.8)
    log_x(ax, [*data["speedup"], *stated.reindex(order).dropna()])
    ax.set_xlabel(f"speedup over {contenders.NAMES[baseline]}; right: geometric means")
    plot.legend(
        fig,
        {
            "geometric mean": Line2D([], [], color=INK, marker="D", linestyle="none", markersize=5),
            STATED: Line2D([], [], **plot.hollow("D")),
            f"{contenders.NAMES[baseline]} = 1": Line2D([], [], color=BASELINE, linestyle=(0, (5, 3))),
        },
    )
    said = stated.reindex(order).dropna().rename("speedup").rename_axis("variant").reset_index()
    return fig, plot.behind(data, said)


def shares(df: pd.DataFrame, table2: pd.DataFrame, baseline: str = BELL):
    """What each step adds from opt0 to opt4, as a share of the whole: by difference of speedups, as the source counts,
    and by factor; stated and measured."""
    data = speedups(df, STEPS[:-1], baseline)
    here = data.groupby("variant")["speedup"].agg(records.geomean)
    found = {"stated": arithmetic.table2_speedups(table2), "measured": here}
    fig, ax = plt.subplots(figsize=(WIDTH, 2.5))
    rows, labels = [], []
    tints = dict(zip(STEPS[1:], (RUNGS[3], RUNGS[1], RUNGS[0], BOUND), strict=False))
    for kind in ("by difference", "by factor"):
        for source, series in found.items():
            y, ends = (
                len(labels),
                {True: 0.0, False: 0.0},
            )  # what gains to the right, what loses to the left
            labels.append(f"{source}, {kind}")
            for step, row in arithmetic.shares(series).iterrows():
                share = row[kind]
                left = ends[share > 0]
                ax.barh(
                    y,
                    share,
                    left=left,
                    height=0.7,
                    color=tints[step],
                    alpha=0.75 if source == "measured" else 0.4,
                )
                if abs(share) > 0.03:
                    sketch.put(ax, left + share / 2, y, f"{share:.0%}", fontsize=8)
                ends[share > 0] += share
                rows.append({"source": source, "counted": kind, "step": step, "share": share})
    ax.set_yticks(range(len(labels)), labels)
    right = max(p.get_x() + p.get_width() for p in ax.patches)
    left = min(p.get_x() + p.get_width() for p in ax.patches)
    ax.set(xlim=(min(0, left) - 0.01, right + 0.01), ylim=(len(labels) - 0.5, -0.5))
    ax.axvline(0, color=BOUND, linewidth=0.8)
    ax.xaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:.0%}"))
    ax.set_xlabel("share of what is gained from opt0 to opt4")
    ax.grid(axis="y", visible=False)
    plot.legend(fig, {name(step): Patch(color=tint, alpha=0.75) for step, tint in tints.items()}, columns=4)
    return fig, pd.DataFrame(rows)


# ---------------------------------------------------------------- Fig. 7


def tiles(df: pd.DataFrame, text: pd.DataFrame, n: int = arithmetic.N):
    """Fig. 7: throughput over WGMMA_N, geometric mean and quartiles over the matrices, with stated values hollow and
    the source's choice marked; below it the columns that are computed in vain."""
    frames = [df[df["variant"] == contenders.tile(w)].assign(width=w) for w in contenders.WIDTHS]
    rows = pd.concat(frames)
    if rows.empty:
        raise ValueError("The records have no width of the WGMMA tile.")
    by = rows.groupby("width")["tflops"]
    data = pd.DataFrame({"tflops": by.agg(records.geomean), "low": by.quantile(0.25), "high": by.quantile(0.75)})
    data["extra"] = [arithmetic.extra(w, n) for w in data.index]
    stated = text[(text["quantity"] == "tflops") & text["size"].notna()]
    fig, (ax, pad) = plt.subplots(2, 1, figsize=(WIDTH, 4.6), sharex=True, height_ratios=(3, 1))
    tint = colour(KEPT)
    ax.fill_between(data.index, data["low"], data["high"], color=tint, alpha=0.2, linewidth=0)
    ax.plot(data.index, data["tflops"], "o-", color=tint, markersize=MARKER - 1, markeredgewidth=0)
    ax.plot(stated["size"], stated["low"], **plot.hollow("D"))
    chosen, best = arithmetic.chosen(n), int(data["tflops"].idxmax())
    for axes in (ax, pad):
        axes.axvline(chosen, color=CLAIM, linewidth=1.1, linestyle=(0, (4, 3)))
    ax.plot(best, data["tflops"][best], "*", color=colour("auto"), markersize=13, markeredgewidth=0)
    ax.set(yscale="log", ylabel="useful TFLOP/s")
    plot.log(ax.yaxis, fine=True)
    waste = data["extra"]
    pad.bar(data.index, 100 * waste, width=5, color=BOUND, alpha=0.7)
    pad.set(
        ylabel="work beyond N (%)",
        xlabel="WGMMA_N, columns of a consumer; a block has twice as many",
        xlim=(2, 262),
    )
    pad.xaxis.set_major_locator(FixedLocator(range(0, 257, 32)))
    plot.legend(
        fig,
        {
            "geometric mean, quartiles": Line2D([], [], color=tint, marker="o"),
            STATED: Line2D([], [], **plot.hollow("D")),
            f"the source's rule: {chosen}": Line2D([], [], color=CLAIM, linestyle=(0, (4, 3))),
            f"best here: {best}": Line2D([], [], color=colour("auto"), marker="*", linestyle="none", markersize=11),
        },
    )
    said = stated.rename(columns={"size": "width", "low": "tflops"})[["width", "tflops"]]
    return fig, plot.behind(data.reset_index(), said)


# ---------------------------------------------------------------- Table III, and where blocks begin to pay


def gate(
    df: pd.DataFrame,
    table3: pd.DataFrame,
    copy_gbps: float | None = None,
    baseline: str = TORCH,
    shown: Sequence[str] = (KEPT, contenders.TRITON, "auto"),
):
    """Table III: speedup over dense cuBLAS over the share of blocks that is kept, a panel for each N, the stated ones
    hollow. The limit is the dense rate for the blocks that are left, or with copy_gbps, a measured ceiling, each
    operand moved once, whichever takes longer."""
    data = speedups(df, shown, baseline)
    sizes = sorted(set(data["n"]))
    limit = limits(df, copy_gbps, baseline)
    stated = table3[table3["quantity"] == "speedup_cublas"]
    fig, axes = plt.subplots(1, len(sizes), figsize=(WIDTH, 3.6), sharey=True, squeeze=False)
    handles: dict[str, object] = {}
    for ax, n in zip(axes[0], sizes, strict=True):
        for variant in present(data, shown):
            line = data[(data["variant"] == variant) & (data["n"] == n)].sort_values("density")
            handles[name(variant)] = ax.plot(
                line["density"],
                line["speedup"],
                **contenders.look(variant),
                markersize=MARKER,
                markeredgewidth=0,
            )[0]
        top = limit[limit["n"] == n].sort_values("density")
        handles["limit"] = ax.plot(top["density"], top["limit"], color=BOUND, linestyle=(0, (5, 3)), linewidth=1.2)[0]
        said = stated[stated["n"] == n]
        ax.plot(said["density"], said["low"], **plot.hollow())
        ax.axhline(1, color=BASELINE, linewidth=1.2)
        ax.set_title(f"N = {plot.number(n)}")
        _kept(ax, data["density"])
    _log_y(axes[0, 0], [*data["speedup"], *limit["limit"], *stated["low"]])
    axes[0, 0].set_ylabel(f"speedup over {contenders.NAMES[baseline]}")
    fig.supxlabel("blocks that are kept (%)", fontsize=9)
    handles[STATED] = Line2D([], [], **plot.hollow())
    plot.legend(fig, handles, columns=5)
    said = stated.rename(columns={"low": "speedup"})[["variant", "n", "density", "speedup"]]
    return fig, plot.behind(data.merge(limit, on=["n", "density"], how="left"), said)


def limits(df: pd.DataFrame, copy_gbps: float | None, baseline: str = TORCH) -> pd.DataFrame:
    """n, density and the speedup over the dense product that no kernel exceeds at its rate: see `gate`."""
    dense = df[df["variant"] == baseline]
    moved = dense["least_bytes"] / copy_gbps / 1e3 if copy_gbps else 0.0
    least = np.maximum(dense["median_us"] * dense["density"], moved)
    return dense[["n", "density"]].assign(limit=dense["median_us"] / least).reset_index(drop=True)


def pays(
    df: pd.DataFrame,
    baseline: str = TORCH,
    shown: Sequence[str] = (KEPT, contenders.TRITON, "auto"),
):
    """Where block sparsity begins to pay: speedup over dense cuBLAS from the most blocks to the fewest, the geometric
    mean over N with the range, and the share of blocks below which the mean is above 1."""
    data = speedups(df, shown, baseline)
    fig, ax = plt.subplots(figsize=(WIDTH, 3.8))
    handles: dict[str, object] = {}
    rows = []
    for variant in present(data, shown):
        by = data[data["variant"] == variant].groupby("density")["speedup"]
        line = pd.DataFrame({"speedup": by.agg(records.geomean), "least": by.min(), "most": by.max()})
        look = contenders.look(variant)
        ax.fill_between(line.index, line["least"], line["most"], color=look["color"], alpha=0.15, linewidth=0)
        even = break_even(line["speedup"])
        said = name(variant) + (f": from {even:.0%} on" if even else "")
        handles[said] = ax.plot(line.index, line["speedup"], **look, markersize=MARKER, markeredgewidth=0)[0]
        if even:
            ax.plot(even, 1, "x", color=look["color"], markersize=9, markeredgewidth=2)
        rows.append(line.reset_index().assign(variant=variant, pays_from=even or np.nan))
    ax.axhline(1, color=BASELINE, linewidth=1.2)
    _kept(ax, data["density"])
    _log_y(ax, data["speedup"])
    ax.set(xlabel="blocks that are kept (%)", ylabel=f"speedup over {contenders.NAMES[baseline]}")
    plot.legend(fig, handles, columns=3)
    return fig, pd.concat(rows, ignore_index=True)


def break_even(speedup: pd.Series) -> float | None:
    """The density at which a speedup by density crosses 1, between two points on log axes; None where it is on one
    side of it throughout."""
    s = np.log(speedup.sort_index())
    for (dense, above), (sparse, below) in zip(list(s.items())[1:], list(s.items())[:-1], strict=True):
        if above <= 0 < below:
            at = below / (below - above)
            return float(np.exp(np.log(sparse) + at * (np.log(dense) - np.log(sparse))))
    return None


def _kept(ax, densities) -> None:
    """A log x axis of densities in per cent, the most on the left."""
    ticks = sorted(set(densities))
    ax.set_xscale("log")
    ax.set_xlim(max(ticks) * 1.25, min(ticks) / 1.25)
    labelled: list[float] = []  # those that have room
    for tick in reversed(ticks):
        if not labelled or labelled[-1] / tick > 1.7:
            labelled.append(tick)
    ax.xaxis.set_major_locator(FixedLocator(labelled))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.xaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{100 * v:g}"))


# ---------------------------------------------------------------- our ladder, block sizes


def ladder(df: pd.DataFrame, predictions: Mapping[str, str], baseline: str = TORCH, table3: pd.DataFrame | None = None):
    """Speedup over dense cuBLAS of every kernel at one point, as bars, with its gain over the kernel that it builds on
    and what was predicted before it was measured. predictions: variant -> text, in order. table3: what the source
    states of the kernel that it keeps, hollow where it does at that point."""
    data = speedups(df, list(predictions), baseline)
    mean = data.groupby("variant")["speedup"].agg(records.geomean)
    order = present(data, list(predictions))
    texts = [sketch.wrap(predictions[v], 44) for v in order]
    heights = [max(0.3, 0.16 * (t.count("\n") + 1) + 0.14) for t in texts]
    tops = np.cumsum([0, *heights])
    fig, ax = plt.subplots(figsize=(WIDTH, tops[-1] + 1.0))
    across = ax.get_yaxis_transform()
    rows = []
    for i, variant in enumerate(order):
        middle = tops[i] + heights[i] / 2
        over = before(variant, order)
        gain = mean[variant] / mean[over] if over else np.nan
        ax.barh(middle, mean[variant], 0.2, color=colour(variant))
        ax.text(0.83, middle, f"{mean[variant]:.2f}×", transform=across, **_ACROSS)
        ax.text(0.99, middle, f"{gain:.2f}×" if over else "", transform=across, **_ACROSS)
        ax.text(1.02, middle, texts[i], transform=across, va="center", fontsize=8)
        if i:
            ax.axhline(tops[i], color=INK, alpha=0.15, linewidth=0.6)
        rows.append(
            {"variant": variant, "speedup": mean[variant], "over": over, "gain": gain}
            | {"prediction": predictions[variant]}
        )
    ax.axvline(1, color=BASELINE, linewidth=1.3)
    found = pd.DataFrame(rows)
    said = None if table3 is None or KEPT not in order else _said(table3, df)
    if said is not None:
        i = order.index(KEPT)
        ax.plot(said, tops[i] + heights[i] / 2 + 0.16, **plot.hollow())  # below the bar
        plot.legend(fig, {STATED: Line2D([], [], **plot.hollow())})
        found["stated"] = np.where(found["variant"] == KEPT, said, np.nan)
    ax.set(xlim=(0, 1.45 * mean.max()), ylim=(tops[-1], 0))
    ax.set_yticks(tops[:-1] + np.array(heights) / 2, [name(v) for v in order])
    ax.tick_params(axis="y", length=0)
    ax.grid(axis="y", visible=False)
    ax.set_xlabel(f"speedup over {contenders.NAMES[baseline]}; gain over what it builds on")
    ax.text(
        1.02,
        -0.06,
        "predicted before measuring",
        transform=across,
        va="bottom",
        fontweight="bold",
        fontsize=8.5,
    )
    return fig, found


def _said(table3: pd.DataFrame, df: pd.DataFrame) -> float | None:
    """The speedup over cuBLAS that Table III has at the one N and density of `df`; None where it has none."""
    rows = table3[(table3["quantity"] == "speedup_cublas") & table3["n"].isin(df["n"])]
    rows = rows[np.isclose(rows["density"], df["density"].median(), rtol=0.05)]
    return float(rows["low"].iloc[0]) if len(rows) == 1 else None


def before(variant: str, known: Sequence[str]) -> str | None:
    """The kernel that one builds on: a step on the one before, a branch and ours on the one that the source keeps; None
    for the first and for a library."""
    if variant not in contenders.LADDER or variant == STEPS[0]:
        return None
    wanted = STEPS[STEPS.index(variant) - 1] if variant in STEPS else KEPT
    if variant == contenders.OURS[-1]:
        wanted = contenders.OURS[0]
    return wanted if wanted in known else None


def blocks(df: pd.DataFrame, shown: Sequence[str] = ("auto", contenders.TRITON, contenders.BSR)):
    """Useful TFLOP/s over the side of a block, the same share of blocks kept."""
    rows = df[df["variant"].isin(shown)].assign(side=lambda d: d["label"].map(side))
    if rows.empty:
        raise ValueError(f"The records have none of {', '.join(shown)}.")
    fig, ax = plt.subplots(figsize=(WIDTH, 3.4))
    handles = {}
    for variant in present(rows, shown):
        line = rows[rows["variant"] == variant].sort_values("side")
        handles[name(variant)] = ax.plot(
            line["side"],
            line["tflops"],
            **contenders.look(variant),
            markersize=MARKER,
            markeredgewidth=0,
        )[0]
    plot.sizes(ax, rows["side"].tolist())
    ax.set(yscale="log", xlabel="rows and columns of a block", ylabel="useful TFLOP/s")
    plot.log(ax.yaxis, fine=True)
    plot.legend(fig, handles)
    return fig, rows[["variant", "side", "m", "n", "k", "density", "median_us", "tflops"]]


def side(label: str) -> int:
    """Rows of a block from the label of its problem: "blocks of 32, linear"; 64 where it says nothing."""
    found = label.partition("blocks of ")[2].split(",")[0].split(" ")[0]
    return int(found) if found else arithmetic.BLOCK


def layers(
    df: pd.DataFrame,
    baseline: str = TORCH,
    shown: Sequence[str] = (KEPT, contenders.TRITON, "auto"),
):
    """Speedup over dense cuBLAS at each shape and density, a row each, a dot for each contender."""
    data = speedups(df, shown, baseline)
    at = ["m", "n", "k", "density"]
    places = {key: i for i, key in enumerate(dict.fromkeys(map(tuple, data[at].values.tolist())))}
    fig, ax = plt.subplots(figsize=(WIDTH, 1.3 + 0.3 * len(places)))
    handles = {}
    for variant in present(data, shown):
        line = data[data["variant"] == variant]
        look = contenders.look(variant) | {"linestyle": "none"}
        y = [places[tuple(key)] for key in line[at].values.tolist()]
        handles[name(variant)] = ax.plot(line["speedup"], y, **look, markersize=MARKER, markeredgewidth=0)[0]
    ax.axvline(1, color=BASELINE, linewidth=1.3)
    words = [f"{m:.0f} × {n:.0f} × {k:.0f}, {100 * d:g} %" for m, n, k, d in places]
    ax.set_yticks(range(len(places)), words)
    ax.set(
        xscale="log",
        ylim=(len(places) - 0.5, -0.5),
        xlabel=f"speedup over {contenders.NAMES[baseline]}",
    )
    ax.set_ylabel("M × N × K, blocks kept")
    plot.log(ax.xaxis, fine=True)
    plot.legend(fig, handles)
    return fig, data


def both_layouts(
    linear: pd.DataFrame | None,
    source: pd.DataFrame | None,
    shown: Sequence[str] = (KEPT, "auto", TORCH),
) -> pd.DataFrame | None:
    """Time with C in the order that a linear layer wants over that with C row-major, as the source writes it, at the
    points of both records of gate_proj; None where there are none."""
    if linear is None or source is None:
        return None
    at = ["variant", "m", "n", "k", "density"]
    linear = linear[linear["variant"].isin(shown)]
    both = linear.merge(source, on=at, suffixes=("_linear", "_source"))
    if both.empty:
        return None
    both["ratio"] = both["median_us_linear"] / both["median_us_source"]
    return both[[*at, "median_us_linear", "median_us_source", "ratio"]]


def layout_cost(both: pd.DataFrame):
    """`both_layouts` of each contender."""
    order = list(dict.fromkeys(both["variant"]))
    fig, ax = plt.subplots(figsize=(WIDTH, 1.2 + 0.4 * len(order)))
    for y, variant in enumerate(order):
        values = both.loc[both["variant"] == variant, "ratio"]
        ax.plot([1, values.mean()], [y, y], color=colour(variant), linewidth=1.4)
        look = contenders.look(variant) | {"linestyle": "none"}
        ax.plot(values, [y] * len(values), **look, markersize=7)
        plot.right(ax, y, 40, f"{records.geomean(values):.2f}×")
    ax.axvline(1, color=INK, linewidth=1)
    ax.set_yticks(range(len(order)), [name(v) for v in order])
    ax.set_ylim(len(order) - 0.5, -0.5)
    ax.set_xlabel("time as a linear layer has C, over that in the source's layout")
    pad = max(0.05, 0.15 * float(both["ratio"].max() - both["ratio"].min()))
    ax.set_xlim(min(1, both["ratio"].min()) - pad, max(1, both["ratio"].max()) + pad)
    return fig, both
