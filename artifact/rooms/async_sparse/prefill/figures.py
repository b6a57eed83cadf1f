"""Charts of the prefill from its records; every function returns (fig, data), as in `artifact.drawing.style`."""

from __future__ import annotations

import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from artifact.drawing import plot
from artifact.drawing.style import BASELINE, CLAIM, MARKER, WIDTH
from artifact.rooms.async_sparse.arithmetic import STATED, speedups
from artifact.rooms.async_sparse.prefill.configurations import (
    CONFIGURATIONS,
    DENSE,
    LAYERS,
    PARTS,
)

SHORT = 4096  #: up to here the source calls sequences short


def stated(text: pd.DataFrame) -> pd.DataFrame:
    """What the source states of Fig. 8: variant (ours of that name), n, low, high."""
    ours = {c.stated: name for name, c in CONFIGURATIONS.items() if c.stated}
    rows = text[text["quantity"] == "end_to_end"]
    return pd.DataFrame(
        {"variant": rows["variant"].map(ours), "n": rows["size"].astype(int)}
        | {end: rows[end].astype(float) for end in ("low", "high")}
    ).reset_index(drop=True)


def fig8(df: pd.DataFrame, text: pd.DataFrame):
    """Fig. 8: speedup over the dense model by the number of tokens, a panel for each share of blocks; hollow, in the
    first, what the source states for 90%."""
    data = speedups(df, [v for v in CONFIGURATIONS if v != DENSE], DENSE)
    data = data[["variant", "n", "density", "speedup"]]
    said = stated(text)
    densities = sorted(set(data["density"]), reverse=True)
    fig, axes = plt.subplots(1, len(densities), figsize=(WIDTH, 3.9), sharey=True, squeeze=False)
    for ax, density in zip(axes[0], densities, strict=True):
        here = data[data["density"] == density]
        for variant, own in here.groupby("variant", sort=False):
            c, own = CONFIGURATIONS[variant], own.sort_values("n")
            ax.plot(
                own["n"],
                own["speedup"],
                color=c.colour,
                marker=c.marker,
                linestyle=c.line,
                markersize=MARKER,
            )
        ax.axhline(1, color=BASELINE, linewidth=1.3)
        plot.sizes(ax, here["n"])
        ax.set(xlabel="tokens", title=f"{1 - density:.0%} of the FFN's blocks left out")
        if density == densities[0]:
            _said(ax, said)
    plot.ratio(axes[0][0], [*data["speedup"], *said["low"], *said["high"]])
    axes[0][0].set_ylabel("speedup over the dense model")
    plot.legend(
        fig,
        {
            CONFIGURATIONS[v].called: Line2D(
                [],
                [],
                color=CONFIGURATIONS[v].colour,
                marker=CONFIGURATIONS[v].marker,
                linestyle=CONFIGURATIONS[v].line,
                markersize=MARKER,
            )
            for v in dict.fromkeys(data["variant"])
        }
        | {STATED: Line2D([], [], **plot.hollow())},
        3,
    )
    return fig, plot.behind(data, said.rename(columns={"low": "speedup", "high": "to"}))


def _said(ax, said: pd.DataFrame) -> None:
    for row in said.itertuples():
        marker = plot.hollow(CONFIGURATIONS[row.variant].marker)
        if row.low == row.high:
            ax.plot(row.n, row.low, **marker)
        else:  # of several lengths
            ax.fill_between([row.n, SHORT], row.low, row.high, color=CLAIM, alpha=0.25, linewidth=0)
            ax.plot([row.n, SHORT], [row.high, row.low], **marker)


def parts(df: pd.DataFrame):
    """Where the time goes: a bar for each configuration at each length, in parts, over the dense model's time."""
    wide = df.pivot_table(index=["n", "configuration"], columns="part", values="us", aggfunc="last")
    wide = wide[[p for p in PARTS if p in wide]]
    lengths = sorted({n for n, _ in wide.index if (n, DENSE) in wide.index})
    if not lengths:
        raise ValueError("The parts have no dense model to be compared with.")
    rows = [(n, c) for n in lengths for c in CONFIGURATIONS if (n, c) in wide.index]
    shares = pd.DataFrame({row: wide.loc[row] / wide.loc[row[0], DENSE].sum() for row in rows}).T
    fig, axes = plt.subplots(
        len(lengths),
        1,
        figsize=(WIDTH, 0.9 + 0.24 * len(rows) + 0.35 * len(lengths)),
        sharex=True,
        squeeze=False,
        gridspec_kw={"height_ratios": [sum(r[0] == n for r in rows) for n in lengths]},
    )
    for ax, n in zip(axes[:, 0], lengths, strict=True):
        own = shares.loc[[row for row in rows if row[0] == n]]
        left = pd.Series(0.0, own.index)
        for part in own:
            ax.barh(range(len(own)), own[part], left=left, color=PARTS[part][1], height=0.75)
            left = left + own[part]
        for y, total in enumerate(left):
            plot.right(ax, y, 34, f"{total:.0%}")
        ax.set_yticks(range(len(own)), [CONFIGURATIONS[c].called for _, c in own.index])
        ax.set(ylim=(len(own) - 0.4, -0.6))
        ax.set_title(f"{plot.number(n)} tokens", fontsize=9, loc="left")
        ax.tick_params(axis="y", length=0)
        ax.grid(axis="y", visible=False)
    axes[-1, 0].set_xlabel("time on the GPU over the dense model's; right: all parts")
    plot.legend(fig, {PARTS[p][0]: Patch(color=PARTS[p][1]) for p in wide})
    data = shares.rename_axis(["n", "configuration"]).reset_index()
    return fig, data.fillna(0.0)


def layer(df: pd.DataFrame):
    """The FFN alone: its speedup over the dense FFN, by tokens, a panel for each share of blocks."""
    data = speedups(df, [v for v in LAYERS if v != "ffn_dense"], "ffn_dense")
    data = data[["variant", "n", "density", "speedup"]]
    densities, lengths = sorted(set(data["density"]), reverse=True), sorted(set(data["n"]))
    shown = [v for v in LAYERS if v in set(data["variant"])]
    tints = dict(
        zip(
            shown,
            (CONFIGURATIONS[c].colour for c in ("ffn", "both_ours", "ffn_ours")),
            strict=False,
        )
    )
    fig, axes = plt.subplots(1, len(densities), figsize=(WIDTH, 3.1), sharey=True, squeeze=False)
    width = 0.8 / len(shown)
    for ax, density in zip(axes[0], densities, strict=True):
        for i, variant in enumerate(shown):
            own = data[(data["variant"] == variant) & (data["density"] == density)].set_index("n")["speedup"]
            at = [lengths.index(n) - 0.4 + (i + 0.5) * width for n in own.index]
            ax.bar(at, own, width=0.92 * width, color=tints[variant])
            for x, y in zip(at, own, strict=True):
                ax.text(x, y, f"{y:.1f}", ha="center", va="bottom", fontsize=8)
        ax.axhline(1, color=BASELINE, linewidth=1.3)
        ax.set_xticks(range(len(lengths)), [plot.number(n) for n in lengths])
        ax.set(xlabel="tokens", title=f"{1 - density:.0%} of the blocks left out")
        ax.grid(axis="x", visible=False)
    axes[0][0].set_ylabel("speedup over the dense FFN")
    plot.legend(fig, {LAYERS[v]: Patch(color=tints[v]) for v in shown})
    return fig, data


def told_parts(data: pd.DataFrame) -> str:
    """The alternative text of `parts`, from the data behind it: totals, and the largest part of each."""
    shares = data.set_index(["n", "configuration"])
    told = []
    for n, own in shares.groupby(level="n", sort=False):
        bars = [
            f"{CONFIGURATIONS[name].called} {row.sum():.0%}, most of it {row.idxmax()}"
            for (_, name), row in own.iterrows()
        ]
        told.append(f"at {plot.number(n)} tokens {'; '.join(bars)}")
    return f"Stacked bars, time on the GPU over that of the dense model: {'. '.join(told)}."
