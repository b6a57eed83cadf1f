"""Figures of the book: one palette, one style, and a few ready-made plots.

Every plot function returns `(fig, data)`: the figure and the table behind it. `show` saves both and
returns something that a notebook displays as inline SVG. Text, axes and grid are drawn in
currentColor on a transparent background, so a figure follows the page into dark mode; data colours
have a contrast of at least 3:1 on white and on near-black.
"""

import html
import io
import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib
import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.patches import FancyArrowPatch, Rectangle
from matplotlib.ticker import (
    FixedFormatter,
    FixedLocator,
    FuncFormatter,
    NullFormatter,
    NullLocator,
)

from artifact import paths, records

WIDTH = 8.3  # inches; shown about 800 px wide, which makes 9 pt text 12 px
FONTS = "system-ui, -apple-system, 'Segoe UI', 'Helvetica Neue', Arial, 'DejaVu Sans', sans-serif"
CSV_URL = "../figures"  # from a page of the built book to the copy of <BUILD>/figures beside it

# Okabe and Ito's palette, with what was too light for white or too dark for near-black moved
# towards the middle. The first four and CLAIM stay apart under protanopia, deuteranopia and
# tritanopia; rungs are also told apart by marker.
PUBLISHED = "#D55E00"  # the source's own kernel
BASELINE = "#0072B2"  # the vendor's library
BEST = "#1B9E4B"  # the last rung of our ladder
BOUND = "#6E6E6E"  # measured ceilings and the roofline
CLAIM = "#9A45E6"  # what the source states
RUNGS = (
    "#8A6A3B",
    "#009C9C",
    "#BD7BA4",
    "#5F8DE0",
    "#D0607A",
    "#7D8C1E",
    "#F020B0",
    "#F01040",
    "#9040A0",
)
# One for each rung, none of which is the first's, the last's or a baseline's: two triangles, a bar,
# a star of four points, a pentagon, a thin diamond, a star of five points, an upright bar, a cross.
FLAT = ((-1, -0.4), (1, -0.4), (1, 0.4), (-1, 0.4))
MARKERS = ("^", "v", FLAT, (4, 1, 0), "p", "d", "*", tuple((y, x) for x, y in FLAT), "X")
# Of baselines, closed so that they can be drawn hollow: also turned, each is another marker.
HOURGLASS = ((-1, -1), (1, -1), (-1, 1), (1, 1), (-1, -1))
CORNER = ((-1, -1), (1, -1), (-1, 1), (-1, -1))
CHEVRON = ((-1, -1), (0, -0.3), (1, -1), (1, 0.2), (0, 1), (-1, 0.2), (-1, -1))
PALETTE = {
    "published": PUBLISHED,
    "baseline": BASELINE,
    "best": BEST,
    "bound": BOUND,
    "claim": CLAIM,
}
PALETTE |= {f"rung {i}": colour for i, colour in enumerate(RUNGS)}
ROWS = (
    PUBLISHED,
    BASELINE,
    BEST,
    RUNGS[1],
    CLAIM,
    RUNGS[0],
    RUNGS[3],
)  # rows or lanes in a picture of a format

# Stands for currentColor while Matplotlib draws; `svg` replaces it. No data colour may look like
# it.
INK = "#010203"

SIZE = "M = N = K"
MARKER = 6  # points; markers that tell lines of one colour apart must be seen

SUPERSCRIPTS = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")
BASELINES = records.LIBRARIES
NAMES = {
    "cusparse_best": "cuSPARSE, best algorithm",
    "cusparse_default": "cuSPARSE, default",
    "cusparse_alg1": "cuSPARSE, algorithm 1",
    "cusparse_alg2": "cuSPARSE, algorithm 2",
    "cusparse_alg3": "cuSPARSE, algorithm 3",
    "cusparselt": "cuSPARSELt, best algorithm",
    "cusparselt_default": "cuSPARSELt, default",
    "cusparselt_colmajor_b": "cuSPARSELt, B column-major",
    "cublas": "cuBLAS SGEMM",
    "cublaslt": "cuBLASLt, dense",
    "cublas_tf32": "cuBLAS TF32",
    "cublas_bf16": "cuBLAS BF16",
    "cublas_handle": "cuBLAS, handle per call",
    "cublas_transfers": "cuBLAS with transfers",
    "cublas_allocation": "cuBLAS with allocation",
    "cpu_loop": "CPU, one thread",
    "cpu_scipy": "CPU, SciPy",
    "cpu_blas": "CPU, BLAS on all cores",
    "nm_baseline": "nmSPARSE-style kernel",
}


# ---------------------------------------------------------------- style


def name(variant: str) -> str:
    """How a contender is called in a figure."""
    return NAMES.get(variant, variant)


def look(variant: str, variants: Sequence[str]) -> dict:
    """Colour, marker and line of `variant`, the same in every figure of a room.

    `variants` are the room's own in ladder order: the first is the published kernel, the last our
    best. Baselines are known by their prefix and need not be in it. Raises ValueError for a variant
    that is neither.
    """
    if variant.startswith(BASELINES):
        looks = {
            "best": ("s", "-"),
            "default": ("P", (0, (6, 2))),
            "alg1": ("<", ":"),
            "alg2": (">", "-."),
            "cublas": (HOURGLASS, "-"),
            # cuSPARSELt and cuBLASLt look as their elders do, which no figure shows beside them.
            "cusparselt": ("s", "-"),
            "b": ("<", ":"),
            "cublaslt": (HOURGLASS, "-"),
            "tf32": ("h", "--"),
            "bf16": ("8", "-."),
            "baseline": ("8", ":"),
            "handle": (tuple((y, x) for x, y in HOURGLASS), "--"),
            "transfers": (CORNER, "-."),
            "allocation": (tuple((-x, -y) for x, y in CORNER), ":"),
            "loop": (CHEVRON, (0, (1, 1))),
            "scipy": (tuple((x, -y) for x, y in CHEVRON), (0, (6, 2))),
            "blas": (tuple((y, x) for x, y in CHEVRON), (0, (3, 1, 1, 1))),
        }
        marker, line = looks.get(variant.split("_")[-1], ("h", "--"))
        return {"color": BASELINE, "marker": marker, "linestyle": line}
    if variant not in variants:
        raise ValueError(
            f"There is no variant {variant!r} to draw; "
            f"the room has {', '.join(variants) or 'none'}."
        )
    position = list(variants).index(variant)
    if position == 0:
        return {"color": PUBLISHED, "marker": "o", "linestyle": "-"}
    if position == len(variants) - 1:
        return {"color": BEST, "marker": "D", "linestyle": "-"}
    lines = ("--", "-.", (0, (4, 1, 1, 1, 1, 1)))
    return {
        "color": RUNGS[(position - 1) % len(RUNGS)],
        "marker": MARKERS[(position - 1) % len(MARKERS)],
        "linestyle": lines[(position - 1) % len(lines)],
    }


def style() -> None:
    """Set Matplotlib up for the book; notebooks call it once, before drawing."""
    matplotlib.rcParams.update(
        {
            "font.family": "sans-serif",
            "font.sans-serif": ["DejaVu Sans"],  # for the layout; wider than what browsers show
            "font.size": 9,
            "axes.titlesize": 9.5,
            "axes.labelsize": 9,
            "xtick.labelsize": 8.5,
            "ytick.labelsize": 8.5,
            "legend.fontsize": 8.5,
            "legend.frameon": False,
            "lines.linewidth": 1.6,
            "lines.markersize": 4.5,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.linewidth": 0.8,
            "axes.grid": True,
            "axes.axisbelow": True,
            "grid.linewidth": 0.6,
            "grid.alpha": 0.18,
            "figure.facecolor": "none",
            "axes.facecolor": "none",
            "savefig.facecolor": "none",
            "figure.constrained_layout.use": True,
            "mathtext.default": "regular",
            "svg.fonttype": "none",  # text stays text: it can be read out and searched
        }
        | dict.fromkeys(
            (
                "text.color",
                "axes.labelcolor",
                "axes.edgecolor",
                "xtick.color",
                "ytick.color",
                "grid.color",
            ),
            INK,
        )
    )


# ---------------------------------------------------------------- saving and showing


@dataclass(frozen=True)
class Shown:
    """A saved figure; a notebook displays it inline, with its caption and a link to its data."""

    svg_path: Path
    csv_path: Path
    markup: str

    def _repr_html_(self) -> str:
        return self.markup

    def __repr__(self) -> str:
        return f"Shown({self.svg_path.name}, {self.csv_path.name})"


def svg(fig, prefix: str, alt: str) -> str:
    """`fig` as an SVG element that can stand in a page beside others: every id starts with
    `prefix`, no global style, no metadata, no reference to another host, ink in currentColor."""
    out = io.StringIO()
    nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": prefix}):
        fig.savefig(out, format="svg", transparent=True, metadata=nothing)
    text = out.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"\s*<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    # Matplotlib's <style>*{…}</style> would apply to the whole page; the same two properties
    # inherit from the root.
    text = re.sub(r"\s*<style[^>]*>.*?</style>", "", text, flags=re.DOTALL)
    text = re.sub(r'\bid="([^"]*)"', rf'id="{prefix}-\1"', text)
    text = re.sub(r'\bxlink:href="#([^"]*)"', rf'href="#{prefix}-\1"', text)
    text = re.sub(r"url\(#([^)]*)\)", rf"url(#{prefix}-\1)", text)
    text = re.sub(r' xmlns:xlink="[^"]*"', "", text)
    text = re.sub(r"font-family: 'DejaVu Sans'(, sans-serif)?", f"font-family: {FONTS}", text)
    text = re.sub(re.escape(INK), "currentColor", text, flags=re.IGNORECASE)
    width, height = (round(inches * 96) for inches in fig.get_size_inches())
    root = (
        f'<svg role="img" aria-label="{html.escape(alt)}" width="{width}" height="{height}" '
        'style="max-width:100%;height:auto" stroke-linejoin="round" stroke-linecap="butt" '
    )
    return re.sub(
        r'<svg (?:width|height)="[^"]*" (?:width|height)="[^"]*"|<svg ',
        lambda _: root,
        text,
        count=1,
    ).strip()


def show(fig, room: str, name: str, data: pd.DataFrame, alt: str, caption: str) -> Shown:
    """Save `fig` as <figures>/<room>/<name>.svg and `data` as .csv beside it, both whole or not at
    all, and close it.

    `alt` says in a sentence what the figure shows, for those who do not see it. Raises ValueError
    without data or alt, and for a name that is not made of lower-case letters, digits, hyphens and
    underscores.
    """
    for what in (room, name):
        if not re.fullmatch(r"[a-z0-9][a-z0-9_-]*", what):
            raise ValueError(
                f"A figure cannot be called {what!r}: use lower-case letters, digits, '-' and '_'."
            )
    if data.empty:
        raise ValueError(f"The figure {name!r} has no data behind it.")
    if not alt.strip():
        raise ValueError(f"The figure {name!r} has no alternative text.")
    prefix = f"{room}-{name}".replace("_", "-")
    markup = svg(fig, prefix, alt)
    plt.close(fig)
    folder = Path(paths.FIGURES) / room
    csv_path = records.write_text(
        folder / f"{name}.csv", data.to_csv(index=False, lineterminator="\n")
    )
    alone = markup.replace("<svg ", '<svg color="#24292f" ', 1)  # for readers of the file itself
    svg_path = records.write_text(folder / f"{name}.svg", alone + "\n")
    link = f'<a href="{CSV_URL}/{room}/{name}.csv" download="">data (CSV)</a>'
    return Shown(
        svg_path,
        csv_path,
        f'<figure id="{prefix}" style="margin:1em 0;color:inherit">\n{markup}\n'
        f"<figcaption>{html.escape(caption, quote=False)} {link}</figcaption>\n</figure>",
    )


# ---------------------------------------------------------------- helpers for axes


def _number(value: float, _=None) -> str:
    """1000 -> 1 000, without an exponent."""
    if value >= 1e6:
        return f"{value / 1e6:g}M"
    return f"{value:,.0f}".replace(",", "\u202f") if value >= 1000 else f"{value:g}"


def _size_labels(ticks: Sequence[float]) -> list[str]:
    """Labels for sizes, one notation for the whole axis: 2ⁿ if all are powers of two and the
    largest is at least 2¹⁵, else digits in groups of three."""
    powers = [round(np.log2(tick)) for tick in ticks]
    if max(ticks) >= 2**15 and all(t == 2**p for t, p in zip(ticks, powers, strict=True)):
        return ["2" + f"{p}".translate(SUPERSCRIPTS) for p in powers]
    return [f"{tick:,.0f}".replace(",", "\u202f") for tick in ticks]


def _log(axis, fine: bool = False) -> None:
    """A log axis labelled at 1, 10, 100 … (also at 2 and 5 if `fine` or if it spans little)."""
    low, high = sorted(axis.get_view_interval())
    decades = np.log10(high / low)
    steps = (1, 2, 5) if fine or decades < 1.6 else (1,)
    if decades < 0.45:
        steps = (1, 1.5, 2, 3, 4, 5, 6, 7, 8, 9)
    powers = range(int(np.floor(np.log10(low))), int(np.ceil(np.log10(high))) + 1)
    ticks = [step * 10.0**power for power in powers for step in steps]
    axis.set_major_locator(FixedLocator([t for t in ticks if low * 0.999 <= t <= high * 1.001]))
    axis.set_major_formatter(FuncFormatter(_number))
    axis.set_minor_locator(NullLocator())


def _sizes(ax, values: Sequence[float], most: int = 4) -> None:
    """Log x axis with ticks at the sizes measured, every second or third one labelled if there are
    many."""
    values = sorted(set(values))
    every = -(-len(values) // most)
    ax.set_xscale("log", base=2)
    ticks = values[::-1][::every][::-1]
    ax.xaxis.set_major_locator(FixedLocator(ticks))
    ax.xaxis.set_minor_locator(FixedLocator(values))
    ax.xaxis.set_major_formatter(FixedFormatter(_size_labels(ticks)))
    ax.xaxis.set_minor_formatter(NullFormatter())


def _ratio(ax, values: Sequence[float]) -> None:
    """Log y axis for ratios, from `values` and with 1 inside."""
    low, high = min(min(values), 0.9), max(max(values), 1.12)
    ax.set_yscale("log")
    ax.set_ylim(low / 1.08, high * 1.08)
    ticks = [0.1, 0.2, 0.3, 0.5, 0.7, 1, 1.5, 2, 3, 5, 7, 10]
    if high / low > 8:
        ticks = [0.1, 0.2, 0.5, 1, 2, 5, 10]
    elif high / low < 3:
        ticks = [0.4, 0.5, 0.6, 0.7, 0.8, 1, 1.2, 1.4, 1.6, 2, 2.5]
    ax.yaxis.set_major_locator(FixedLocator([t for t in ticks if low / 1.08 <= t <= high * 1.08]))
    ax.yaxis.set_major_formatter(FuncFormatter(_number))
    ax.yaxis.set_minor_locator(NullLocator())


def _percent(density: float) -> str:
    return f"{density * 100:g} %"


def _line(ax, x, y, variant: str, variants: Sequence[str], **more):
    return ax.plot(x, y, **({"markeredgewidth": 0} | look(variant, variants) | more))[0]


def _legend(fig, handles: Mapping[str, object], columns: int = 4) -> None:
    """A legend above the axes, outside all of them, so that it can cover nothing."""
    fig.legend(
        list(handles.values()),
        list(handles),
        loc="outside upper left",
        ncols=min(columns, len(handles)),
        handlelength=2.6,
        columnspacing=1.6,
        borderaxespad=0.2,
    )


def _hollow(marker="o") -> dict:
    """How a value that a source states is drawn."""
    return {
        "marker": marker,
        "markersize": 9 if marker == "+" else 7,
        "markerfacecolor": "none",
        "markeredgecolor": CLAIM,
        "markeredgewidth": 1.4,
        "linestyle": "none",
        "zorder": 4,
    }


def _behind(data: pd.DataFrame, *stated: pd.DataFrame) -> pd.DataFrame:
    """The table behind a figure: what was measured, and below it what was stated."""
    parts = [data.assign(source="measured")]
    parts += [rows.assign(source="stated") for rows in stated if len(rows)]
    columns = list(dict.fromkeys(c for part in parts for c in part.columns if c != "source"))
    return pd.concat(parts, ignore_index=True)[["source", *columns]]


def _right(ax, y: float, points: float, text: str, **how) -> None:
    """Right-aligned text in the margin, so many points right of the axes: a width that the layout
    knows, where a share of the axes would change with it."""
    ax.annotate(
        text,
        (1, y),
        xycoords=("axes fraction", "data"),
        xytext=(points, 0),
        textcoords="offset points",
        annotation_clip=False,
        **({"va": "center", "ha": "right", "fontsize": 8.5} | how),
    )


# ---------------------------------------------------------------- plots over records


def sweep_panel(
    df: pd.DataFrame,
    x: str,
    variants: Sequence[str],
    show_variants: Sequence[str] | None = None,
    baseline: str = "cusparse_best",
    claim: tuple[float, float] | None = None,
    copy_gbps: float | None = None,
    xlabel: str = "",
    claim_share: tuple[float, float] | None = None,
):
    """Three rows (time, memory throughput, speedup over `baseline`) by one column per density.

    df: one experiment's records, with `baseline` among its variants (see `records.best_of`). x: the
    size that is swept, "m" or "n". variants: the room's ladder, for the colours; show_variants:
    those to draw (default: first and last). claim: the source's range of the speedup; a lower
    bound of NaN or 0 is none. copy_gbps:
    measured copy ceiling, GB/s. claim_share: the source's range of the memory throughput, as shares
    of the peak, which the copy ceiling stands for.
    """
    shown = list(show_variants or dict.fromkeys((variants[0], variants[-1])))
    drawn = [*shown, baseline]
    data = df[df["variant"].isin(drawn)].copy()
    ratio = pd.concat(
        [records.speedup(df, v, baseline).to_frame().assign(variant=v) for v in drawn]
    )
    data = data.merge(ratio.reset_index(), on=["experiment", "variant", *records.POINT], how="left")
    data = data.sort_values(["density", "variant", x])
    densities = sorted(data["density"].unique())
    fig, axes = plt.subplots(
        3,
        len(densities),
        figsize=(WIDTH, 6.6),
        sharex=True,
        sharey="row",
        squeeze=False,
        height_ratios=(1.15, 1, 1),
    )
    handles: dict[str, object] = {}
    for column, density in enumerate(densities):
        here = data[data["density"] == density]
        for variant in drawn:
            rows = here[here["variant"] == variant].sort_values(x)
            quantities = ["median_us", "gbps"] + (["speedup"] if variant != baseline else [])
            for ax, quantity in zip(axes[:, column], quantities, strict=False):
                handles[name(variant)] = _line(ax, rows[x], rows[quantity], variant, variants)
        time, rate, speed = axes[:, column]
        time.set_title(f"S = {_percent(density)}")
        time.set_yscale("log")
        rate.set_yscale("log")
        if copy_gbps:
            handles["measured copy (bound)"] = rate.axhline(
                copy_gbps, color=BOUND, linestyle=(0, (5, 3)), linewidth=1.2
            )
        if claim_share and copy_gbps:
            low, high = (share * copy_gbps for share in claim_share)
            stated = rate.axhspan(low, high, facecolor=CLAIM, alpha=0.35, linewidth=0)
            text = "–".join(dict.fromkeys(f"{share:.0%}" for share in claim_share))
            handles[f"stated: {text} of peak"] = stated
        if claim:
            low, high = claim
            open_below = not low > 0
            if open_below:  # the source gives no lower bound: the band begins below the points
                low = min(0.8 * high, 0.95 * float(ratio["speedup"].min()))
            band = speed.axhspan(low, high, facecolor=CLAIM, alpha=0.2, linewidth=0)
            for edge in (high,) if open_below else (low, high):
                speed.axhline(edge, color=CLAIM, linewidth=0.9, linestyle=(0, (2, 2)))
            limits = f"below {high:g}" if open_below else f"{low:.2f}–{high:.2f}"
            handles[f"stated by the source: {limits}×"] = band
        speed.axhline(1, color=BASELINE, linewidth=1.2)
        speed.set_xlabel(xlabel or x.upper())
    _ratio(axes[2, 0], [*ratio["speedup"], *(edge for edge in claim or () if edge > 0)])
    _sizes(axes[0, 0], data[x].tolist())
    for ax in axes[:2, 0]:
        _log(ax.yaxis)
    axes[0, 0].set_ylabel("execution time (µs)")
    axes[1, 0].set_ylabel("memory throughput,\nleast bytes (GB/s)")
    axes[2, 0].set_ylabel("speedup over\n" + name(baseline).replace(" algorithm", ""))
    _legend(fig, handles, columns=3)
    columns = [
        "experiment",
        "variant",
        *records.POINT,
        "nnz",
        "median_us",
        "q25_us",
        "q75_us",
        "gbps",
        "speedup",
    ]
    return fig, data[[*columns, *(["best_of"] if "best_of" in data else [])]]


def along(ax, text: str, at, ends, gap: float, size: float) -> None:
    """Write `text` along the line between two points `ends`, `gap` points above the point `at` of it.

    All three in data coordinates; the axes' limits and scales must be final, since the angle on the
    page follows from them.
    """
    a, b = ax.transData.transform(ends)
    angle = np.degrees(np.arctan2(b[1] - a[1], b[0] - a[0]))
    ax.annotate(
        text,
        at,
        xytext=(-gap * np.sin(np.radians(angle)), gap * np.cos(np.radians(angle))),
        textcoords="offset points",
        rotation=angle,
        rotation_mode="anchor",
        ha="center",
        fontsize=size,
    )


def roofline(
    df: pd.DataFrame,
    ceilings: Mapping[str, float],
    variants: Sequence[str],
    traffic: str = "least_bytes",
    baseline: str = "cusparse_best",
    strong: Sequence[str] = ("in_flight", "shared_tiles"),
):
    """Useful TFLOP/s over useful FLOP per byte of `traffic`, one panel per experiment, every
    variant on it.

    The first and the last of `variants`, `baseline` and those of `strong` that were measured have
    their own marker; the rest are small grey dots, "other rungs", so that these can be seen.

    ceilings: name -> GB/s for memories, and "FMA" -> TFLOP/s; the memories are drawn as slopes up
    to the FMA roof. traffic: "least_bytes" (what DRAM must deliver) or "requested_bytes" (what the
    caches must).
    """
    if "FMA" not in ceilings:
        raise ValueError(
            f"The roofline needs the ceiling 'FMA'; there are {', '.join(ceilings) or 'none'}."
        )
    drawn = [v for v in [*variants, baseline] if (df["variant"] == v).any()]
    data = df[df["variant"].isin(drawn)].copy()
    data["intensity"] = data["useful_flops"] / data[traffic]
    experiments = list(dict.fromkeys(data["experiment"]))
    fig, axes = plt.subplots(
        1, len(experiments), figsize=(WIDTH, 4.1), sharex=True, sharey=True, squeeze=False
    )
    roof = ceilings["FMA"]
    slopes = {what: gbps / 1000 for what, gbps in ceilings.items() if what != "FMA"}
    ridges = {what: roof / slope for what, slope in slopes.items()}
    left = min([data["intensity"].min(), *ridges.values()]) / 1.3
    right = max([data["intensity"].max(), *ridges.values()]) * 1.5
    bottom, top = data["tflops"].min() / 1.4, roof * 1.6
    marked = [v for v in drawn if v in (variants[0], variants[-1], baseline, *strong)]
    others = [v for v in drawn if v not in marked]
    others_name = "other rungs" if len(others) > 1 else "".join(map(name, others))
    handles: dict[str, object] = {}
    for ax, experiment in zip(axes[0], experiments, strict=True):
        ax.set(
            xscale="log",
            yscale="log",
            xlim=(left, right),
            ylim=(bottom, top),
            title=experiment,
        )
        ax.plot(
            [min(ridges.values(), default=left), right],
            [roof, roof],
            color=BOUND,
            linewidth=1.3,
        )
        for slope in slopes.values():
            ax.plot(
                [left, roof / slope],
                [left * slope, roof],
                color=BOUND,
                linewidth=1.3,
                linestyle=(0, (5, 2)),
            )
        here = data[data["experiment"] == experiment]
        if others:
            rows = here[here["variant"].isin(others)]
            (handles[others_name],) = ax.plot(
                rows["intensity"],
                rows["tflops"],
                "o",
                color=BOUND,
                markersize=2.6,
                markeredgewidth=0,
                alpha=0.5,
            )
        # The last rung is hollow and lies below those it may have been chosen from.
        last = [v for v in marked if v == variants[-1]]
        order = [baseline, *last, *(v for v in marked if v not in (baseline, *last))]
        for variant in [v for v in order if v in marked]:
            rows = here[here["variant"] == variant]
            hollow = {"markersize": 8, "markerfacecolor": "none", "markeredgewidth": 1.3}
            handles[name(variant)] = _line(
                ax,
                rows["intensity"],
                rows["tflops"],
                variant,
                variants,
                **({"linestyle": "none", "markersize": 6} | (hollow if variant in last else {})),
            )
        ax.set_xlabel("useful FLOP per byte")
        _log(ax.xaxis)
        _log(ax.yaxis)
    fig.canvas.draw()  # the layout must be settled before a label can be turned along a slope
    for ax in axes[0]:
        ax.annotate(
            f"FMA {roof:.0f} TFLOP/s",
            (right, roof),
            xytext=(-2, 4),
            textcoords="offset points",
            ha="right",
            fontsize=8,
        )
        for what, slope in slopes.items():
            start = max(left, bottom / slope)
            middle = start**0.4 * (roof / slope) ** 0.6
            ends = (start, start * slope), (roof / slope, roof)
            along(ax, f"{what} {slope:.1f} TB/s", (middle, middle * slope), ends, gap=4, size=8)
    axes[0, 0].set_ylabel("useful TFLOP/s")
    order = [*map(name, marked), *([others_name] if others else [])]
    _legend(fig, {label: handles[label] for label in order})
    columns = [
        "experiment",
        "variant",
        *records.POINT,
        "useful_flops",
        traffic,
        "intensity",
        "tflops",
    ]
    return fig, data[columns]


def ladder(
    df: pd.DataFrame,
    variants: Mapping[str, str],
    baseline: str = "cusparse_best",
    names: Mapping[str, str] | None = None,
):
    """Geometric-mean speedup over `baseline` per experiment, one row per rung, with its prediction
    beside it.

    variants: rung -> what was predicted before it was measured, in ladder order; an empty one is
    drawn as "–". Rungs without records are left out.
    """
    present = [v for v in variants if (df["variant"] == v).any()]
    if not present:
        raise ValueError(f"None of the rungs {', '.join(variants)} has a record.")
    rows = []
    for variant in present:
        for experiment, values in records.speedup(df, variant, baseline).groupby(
            "experiment", sort=False
        ):
            rows.append(
                {
                    "variant": variant,
                    "experiment": experiment,
                    "speedup": records.geomean(values),
                    "least": values.min(),
                    "most": values.max(),
                    "points": len(values),
                    "prediction": variants[variant],
                }
            )
    data = pd.DataFrame(rows)
    experiments = list(dict.fromkeys(data["experiment"]))
    wrapped = [_wrap(variants[v], 50) for v in present]
    heights = [
        max(0.24 * len(experiments), 0.17 * (text.count("\n") + 1)) + 0.16 for text in wrapped
    ]
    tops = np.cumsum([0, *heights])
    fig, ax = plt.subplots(figsize=(WIDTH, tops[-1] + 1.0))
    markers = dict(zip(experiments, "osD^vP", strict=False))
    across = ax.get_yaxis_transform()
    for row, variant in enumerate(present):
        colour = look(variant, list(variants))["color"]
        centre = tops[row] + heights[row] / 2
        if row:
            ax.axhline(tops[row], color=INK, alpha=0.15, linewidth=0.6)
        for place, experiment in zip(
            centre + 0.22 * (np.arange(len(experiments)) - (len(experiments) - 1) / 2),
            experiments,
            strict=True,
        ):
            one = data[(data["variant"] == variant) & (data["experiment"] == experiment)]
            if one.empty:
                continue
            one = one.iloc[0]
            ax.plot(
                [one["least"], one["most"]], [place] * 2, color=colour, linewidth=1.1, alpha=0.6
            )
            ax.plot(
                one["speedup"],
                place,
                markers[experiment],
                color=colour,
                markersize=6.5,
                markeredgewidth=0,
            )
            ax.text(0.8, place, experiment, transform=across, va="center", ha="right", fontsize=8)
            ax.text(
                0.92,
                place,
                f"{one['speedup']:.2f}×",
                transform=across,
                va="center",
                ha="right",
                fontsize=8,
            )
        ax.text(1.0, centre, wrapped[row], transform=across, va="center", fontsize=8.5)
    ax.axvline(1, color=BASELINE, linewidth=1.3)
    ax.set_xscale("log")
    low, high = min(data["least"].min(), 0.9), max(data["most"].max(), 1.1)
    ax.set(
        xlim=(low / 1.08, high * (high / low) ** 0.5), ylim=(tops[-1], 0)
    )  # room for the numbers on the right
    ticks = [
        t for t in (0.1, 0.2, 0.3, 0.5, 0.7, 1, 1.5, 2, 3, 5, 10) if low / 1.08 <= t <= high * 1.04
    ]
    ax.xaxis.set_major_locator(FixedLocator(ticks))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.xaxis.set_major_formatter(FuncFormatter(_number))
    ax.set_yticks(tops[:-1] + np.array(heights) / 2, [(names or {}).get(v, v) for v in present])
    ax.tick_params(axis="y", length=0)
    ax.grid(axis="y", visible=False)
    ax.set_xlabel(f"speedup over {name(baseline)}: geometric mean, and range over the sweep")
    for place, header in ((0.92, "geomean"), (1.0, "predicted before measuring")):
        side = "left" if place == 1 else "right"
        ax.text(
            place,
            -0.06,
            header,
            transform=across,
            va="bottom",
            ha=side,
            fontweight="bold",
            fontsize=8.5,
        )
    one = "cuSPARSE = 1" if baseline.startswith("cusparse") else f"{name(baseline)} = 1"
    ax.text(1, -0.06, one, color=BASELINE, ha="center", va="bottom", fontsize=8.5)
    return fig, data


def spread(
    first: pd.DataFrame, second: pd.DataFrame, variants: Sequence[str], tolerance: float = 0.03
):
    """Second run over first run of the same measurement, per point, against the time of the first.

    Raises ValueError if the two share no point.
    """
    key = ["experiment", *records.KEY]
    data = first.merge(second, on=key, suffixes=("_first", "_second"))
    if data.empty:
        raise ValueError("The two runs share no point.")
    data = data[[*key, "median_us_first", "median_us_second"]]
    data["ratio"] = data["median_us_second"] / data["median_us_first"]
    fig, (ax, side) = plt.subplots(1, 2, figsize=(WIDTH, 3.6), sharey=True, width_ratios=(3.4, 1))
    handles: dict[str, object] = {}
    for variant in dict.fromkeys(data["variant"]):
        rows = data[data["variant"] == variant]
        more = {"linestyle": "none", "alpha": 0.85}
        percent = 100 * (rows["ratio"] - 1)
        handles[name(variant)] = _line(
            ax, rows["median_us_first"], percent, variant, variants, **more
        )
    percent = 100 * (data["ratio"] - 1)
    limit = max(float(percent.abs().max()) * 1.15, 100 * tolerance * 1.3)
    side.hist(percent, bins=np.linspace(-limit, limit, 31), orientation="horizontal", color=BOUND)
    for each in (ax, side):
        each.axhspan(-100 * tolerance, 100 * tolerance, facecolor=BOUND, alpha=0.13, linewidth=0)
        each.axhline(0, color=INK, linewidth=0.8)
    ax.set(xscale="log", ylim=(-limit, limit), xlabel="execution time of the first run (µs)")
    ax.set_ylabel("second run against first (%)")
    side.set_xlabel("points")
    ax.annotate(
        f"±{100 * tolerance:g} %",
        (1, 100 * tolerance),
        xycoords=("axes fraction", "data"),
        xytext=(-2, 3),
        textcoords="offset points",
        ha="right",
        fontsize=8,
    )
    _log(ax.xaxis)
    _legend(fig, handles)
    return fig, data


# ---------------------------------------------------------------- pictures of formats


def csr_picture(csr):
    """A small matrix and its three CSR arrays, one colour per row. csr: has m, k, row_ptr, col_idx
    and val.

    Raises ValueError over 12 rows, 16 columns or 24 nonzeros, where the picture could no longer be
    read.
    """

    def short(value: float) -> str:
        return f"{value:.2f}".replace("0.", ".", 1) if abs(value) < 1 else f"{value:.2g}"

    m, k, count = int(csr.m), int(csr.k), len(csr.val)
    if not (1 <= m <= 12 and 1 <= k <= 16 and 1 <= count <= 24):
        raise ValueError(
            f"A matrix of {m} x {k} with {count} nonzeros is too large or too empty to draw."
        )
    pointers = [int(p) for p in csr.row_ptr]
    owner = np.repeat(np.arange(m), np.diff(pointers))
    left = k + 4.4
    width = left + max(count, m + 1) + 0.6
    height = max(m + 1.7, 7.6)
    fig, ax = plt.subplots(figsize=(WIDTH, WIDTH * height / width))
    for row in range(m):
        for column in range(k):
            ax.add_patch(
                Rectangle(
                    (column + 1, row + 1),
                    1,
                    1,
                    fill=False,
                    edgecolor=INK,
                    linewidth=0.5,
                    alpha=0.35,
                )
            )
        _put(ax, 0.75, row + 1.5, f"{row}", ha="right")
    for column in range(k):
        _put(ax, column + 1.5, 0.75, f"{column}", va="bottom")
    _put(ax, k / 2 + 1, m + 1.6, f"A: {m} × {k}")
    rows = []
    for at in range(count):
        row, column, value = int(owner[at]), int(csr.col_idx[at]), float(csr.val[at])
        # Repeated entries share a cell of the matrix, though not a place in the arrays.
        times = int(np.sum((owner == row) & (np.asarray(csr.col_idx) == column)))
        if times == 1 or column not in csr.col_idx[pointers[row] : at]:
            text = short(value) if times == 1 else f"{times}×"
            _box(ax, column + 1, row + 1, text, ROWS[row % len(ROWS)])
        _box(ax, left + at, 4.3, f"{column}", ROWS[row % len(ROWS)])
        _box(ax, left + at, 6.3, short(value), ROWS[row % len(ROWS)])
        _put(ax, left + at + 0.5, 7.65, f"{at}", alpha=0.7)
        rows.append({"position": at, "row": row, "column": column, "value": value})
    for row in range(m + 1):
        _box(ax, left + row, 1, f"{pointers[row]}", ROWS[row % len(ROWS)] if row < m else BOUND)
        # An arrow from a row's pointer to its first nonzero; an empty row has none.
        if row < m and pointers[row] < pointers[row + 1]:
            arrow = ((left + row + 0.5, 2.02), (left + pointers[row] + 0.5, 4.26))
            ax.add_patch(
                FancyArrowPatch(
                    *arrow,
                    arrowstyle="-|>",
                    mutation_scale=7,
                    color=ROWS[row % len(ROWS)],
                    linewidth=1,
                )
            )
    for y, text in ((1.5, "row_ptr"), (4.8, "col_idx"), (6.8, "val")):
        _put(ax, left - 0.3, y, text, ha="right", family="monospace")
    ax.set(xlim=(0, width), ylim=(height + 0.4, 0))
    ax.set_aspect("equal")
    ax.axis("off")
    return fig, pd.DataFrame(rows)


def warp_picture(csr, n: int, row: int | None = None, tile: int = 0):
    """How one warp computes one row of C: chunks of 32 nonzeros, each lane four columns of B and of
    C.

    csr: a CSR matrix; n: columns of B, divisible by 4; row: which row (default: the first whose
    nonzeros need two chunks, else the longest); tile: which group of 128 columns. Raises ValueError
    if these do not exist.
    """
    counts = np.diff(np.asarray(csr.row_ptr, dtype=np.int64))
    if n < 4 or n % 4:
        raise ValueError(f"The published kernel needs a number of columns divisible by 4, not {n}.")
    if not 0 <= tile < -(-n // 128):
        raise ValueError(f"B has {-(-n // 128)} tiles of 128 columns, there is no tile {tile}.")
    if row is None:
        long = np.flatnonzero((counts > 32) & (counts <= 64))
        row = int(long[0]) if long.size else int(counts.argmax())
    if not 0 <= row < csr.m or not counts[row]:
        raise ValueError(f"Row {row} does not exist or is empty.")
    start, count = int(csr.row_ptr[row]), int(counts[row])
    columns = [int(c) for c in csr.col_idx[start : start + count]]
    values = [float(v) for v in csr.val[start : start + count]]
    lanes = min(32, n // 4 - 32 * tile)

    fig, ax = plt.subplots(figsize=(WIDTH, 5.4))
    step = 0.96
    chunks = [range(c, min(c + 32, count)) for c in range(0, min(count, 64), 32)]
    y = 1.0
    _put(
        ax,
        0,
        y - 0.45,
        f"row {row} of A: {count} nonzeros, read in chunks of 32, lane i reads nonzero i",
        ha="left",
    )
    for number, chunk in enumerate(chunks):
        for at in chunk:
            _box(ax, (at % 32) * step, y, "", ROWS[number], height=0.8, width=step * 0.92)
        _put(
            ax,
            32 * step + 0.3,
            y + 0.42,
            f"chunk {number}",
            ha="left",
            color=ROWS[number],
            weight="bold",
        )
        y += 1.0
    if count > 64:
        _put(ax, 0, y + 0.15, f"… and {count - 64} more", ha="left")
        y += 0.6
    y += 0.75
    _put(
        ax,
        0,
        y - 0.45,
        "shared memory of this warp: column and value of the current chunk (chunk 0)",
        ha="left",
    )
    for at in chunks[0]:
        _box(
            ax, at * step, y, f"{columns[at]}", ROWS[0], width=step * 0.92, height=1.7, rotation=90
        )
    _put(ax, 32 * step + 0.3, y + 0.85, "sh_col", ha="left", family="monospace")
    y += 1.8
    for at in chunks[0]:
        _box(
            ax,
            at * step,
            y,
            f"{values[at]:.2g}",
            ROWS[0],
            width=step * 0.92,
            height=1.7,
            rotation=90,
        )
    _put(ax, 32 * step + 0.3, y + 0.85, "sh_val", ha="left", family="monospace")
    middle = (16 * step, y + 1.75)
    y += 3.6
    first = columns[0]
    head = (
        "every lane, for each nonzero j:  acc += sh_val[j] · B[sh_col[j]][its four columns]"
        f"   (j = 0: row {first} of B)"
    )
    _put(ax, 0, y - 0.85, head, ha="left")
    ax.add_patch(
        FancyArrowPatch(
            middle,
            (middle[0], y - 1.2),
            arrowstyle="-|>",
            mutation_scale=9,
            color=INK,
            linewidth=0.9,
        )
    )
    low = 128 * tile
    for lane in range(lanes):
        colour = BEST if lane % 2 else RUNGS[1]
        _box(ax, lane * step, y, f"{lane}", colour, width=step * 0.92, size=7)
        for part in range(1, 4):
            x = lane * step + part * step * 0.92 / 4
            ax.plot([x, x], [y + 0.72, y + 1], color=INK, linewidth=0.5, alpha=0.6)
        _box(ax, lane * step, y + 2.1, "", colour, width=step * 0.92, height=0.8)
        ax.plot([lane * step + step * 0.46] * 2, [y + 1.12, y + 1.98], color=colour, linewidth=0.8)
    _put(ax, 32 * step + 0.3, y + 0.5, "lane; one float4 of B", ha="left")
    _put(ax, 32 * step + 0.3, y + 2.5, f"one float4 of C, row {row}", ha="left")
    _put(ax, 0, y + 3.35, f"column {low}", ha="left")
    _put(ax, lanes * step, y + 3.35, f"column {low + 4 * lanes - 1}", ha="right")
    idle = 32 - lanes
    if idle:
        _put(ax, (lanes + 0.3) * step, y + 0.5, f"{idle} lanes idle", ha="left")
    ax.set(xlim=(-0.3, 40.5), ylim=(y + 3.8, 0))
    ax.axis("off")
    data = pd.DataFrame({"nonzero": range(count), "column": columns, "value": values})
    data["chunk"], data["lane"] = data["nonzero"] // 32, data["nonzero"] % 32
    return fig, data


def _put(ax, x: float, y: float, text: str, **how) -> None:
    ax.text(x, y, text, **({"ha": "center", "va": "center", "fontsize": 8.5} | how))


def _box(ax, x, y, text, colour, width=1.0, height=1.0, size=7.5, rotation=0) -> None:
    """A cell, tinted so that text in the page's own colour reads on it in both modes."""
    ax.add_patch(Rectangle((x, y), width, height, facecolor=colour, alpha=0.28, linewidth=0))
    ax.add_patch(Rectangle((x, y), width, height, fill=False, edgecolor=colour, linewidth=1))
    if text:
        _put(ax, x + width / 2, y + height / 2, text, fontsize=size, rotation=rotation)


def _rule(ax, x, y, thick: bool) -> None:
    more = {"linewidth": 1.8} if thick else {"linewidth": 0.5, "alpha": 0.35}
    ax.plot(x, y, color=INK, solid_capstyle="projecting", **more)


def _arrow(ax, start, end, colour, **how) -> None:
    more = {"arrowstyle": "-|>", "mutation_scale": 7, "linewidth": 0.9, "color": colour} | how
    ax.add_patch(FancyArrowPatch(start, end, shrinkA=0, shrinkB=0, **more))


def _short(value: float) -> str:
    """Two digits, since a cell has no room for more: .53, 1.2."""
    if value == 0:
        return "0"
    return f"{value:.2f}".replace("0.", ".", 1) if abs(value) < 0.995 else f"{value:.1f}"


def _wrap(text: str, width: int) -> str:
    return "\n".join(textwrap.wrap(text, width)) or "–"
