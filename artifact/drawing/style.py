"""What figures of the book have in common: palette, names and looks of contenders, Matplotlib's style, and `show`.

Every function that draws returns `(fig, data)`: the figure and the table behind it. `show` saves both and
returns something that a notebook displays as inline SVG. Text, axes and grid are drawn in
currentColor on a transparent background, so a figure follows the page into dark mode; data colours
have a contrast of at least 3:1 on white and on near-black.
"""

from __future__ import annotations

import html
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib
import pandas as pd
from matplotlib import pyplot as plt

from artifact import paths, registry
from artifact.measure import records

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
#: Of those with less than 4.5:1 on the book's dark background: what they become there. The page's style sheet has them
#: as variables; elsewhere a figure has the colours above.
DARK = {
    BASELINE: "#30A6E8",
    BOUND: "#828282",
    CLAIM: "#AE5CF8",
    RUNGS[0]: "#9D7E51",
    RUNGS[7]: "#FF1547",
    RUNGS[8]: "#BA5EBF",
}
# Rows or lanes in a picture of a format.
ROWS = (PUBLISHED, BASELINE, BEST, RUNGS[1], CLAIM, RUNGS[0], RUNGS[3])

#: Stands for currentColor while Matplotlib draws; `svg` replaces it. No data colour may look like it.
INK = "#010203"

SIZE = "M = N = K"  # label of an axis
MARKER = 6  # points; markers that tell lines of one colour apart must be seen

#: Prefixes of what rooms are compared with; of those, what one room alone is compared with.
BASELINES = registry.PREFIXES
OWN_BASELINES = tuple(name for room in registry.find() for name in registry.baselines(room))
#: How contenders are called in figures; the others as they are.
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
    "cublaslt_eight": "cuBLASLt, dense FP8",
    "cublas_tf32": "cuBLAS TF32",
    "cublas_bf16": "cuBLAS BF16",
    "cusparse_bell": "cuSPARSE, Blocked-ELL",
    "cusparse_bsr": "cuSPARSE, BSR",
    "triton_bsr": "PyTorch's Triton kernel",
    "triton_bsr_tuned": "PyTorch's Triton kernel, tuned",
    "cublas_dense": "cuBLAS, dense",
    "cublas_dense_default": "cuBLAS, dense, default",
    "cublas_handle": "cuBLAS, handle per call",
    "cublas_transfers": "cuBLAS with transfers",
    "cublas_allocation": "cuBLAS with allocation",
    "cpu_loop": "CPU, one thread",
    "cpu_scipy": "CPU, SciPy",
    "cpu_blas": "CPU, BLAS on all cores",
} | registry.names()
#: A library's contender, or the last word of it -> marker and line. cuSPARSELt and cuBLASLt look as their elders do,
#: what multiplies blocks as cuBLAS and the CPU: no figure shows them beside each other.
LOOKS = {
    "best": ("s", "-"),
    "default": ("P", (0, (6, 2))),
    "alg1": ("<", ":"),
    "alg2": (">", "-."),
    "cublas": (HOURGLASS, "-"),
    "cusparselt": ("s", "-"),
    "b": ("<", ":"),
    "cublaslt": (HOURGLASS, "-"),
    "eight": (CORNER, "-"),
    "tf32": ("h", "--"),
    "bf16": ("8", "-."),
    "handle": (tuple((y, x) for x, y in HOURGLASS), "--"),
    "transfers": (CORNER, "-."),
    "allocation": (tuple((-x, -y) for x, y in CORNER), ":"),
    "loop": (CHEVRON, (0, (1, 1))),
    "scipy": (tuple((x, -y) for x, y in CHEVRON), (0, (6, 2))),
    "blas": (tuple((y, x) for x, y in CHEVRON), (0, (3, 1, 1, 1))),
    "bell": (CORNER, "-."),
    "cusparse_bsr": (tuple((-x, -y) for x, y in CORNER), ":"),
    "triton_bsr": (CHEVRON, (0, (1, 1))),
    "tuned": (tuple((y, x) for x, y in CHEVRON), (0, (3, 1, 1, 1))),
    "dense": (HOURGLASS, "-"),
    "cublas_dense_default": (tuple((y, x) for x, y in HOURGLASS), "--"),
}
#: Lines of rungs, in turn.
DASHES = ("--", "-.", (0, (4, 1, 1, 1, 1, 1)))


# ---------------------------------------------------------------- looks


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
        own = variant.startswith(OWN_BASELINES)
        known = LOOKS.get(variant) or LOOKS.get(variant.split("_")[-1], ("h", "--"))
        marker, line = ("8", ":") if own else known
        return {"color": BASELINE, "marker": marker, "linestyle": line}
    if variant not in variants:
        raise ValueError(f"There is no variant {variant!r} to draw; the room has {', '.join(variants) or 'none'}.")
    position = list(variants).index(variant)
    if position == 0:
        return {"color": PUBLISHED, "marker": "o", "linestyle": "-"}
    if position == len(variants) - 1:
        return {"color": BEST, "marker": "D", "linestyle": "-"}
    return {
        "color": RUNGS[(position - 1) % len(RUNGS)],
        "marker": MARKERS[(position - 1) % len(MARKERS)],
        "linestyle": DASHES[(position - 1) % len(DASHES)],
    }


def apply() -> None:
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


def themed(markup: str) -> str:
    """The figure with the colours of `DARK` as variables of a style sheet: "var(--sot-0072b2, #0072b2)"."""
    for colour in map(str.lower, DARK):
        markup = re.sub(colour, f"var(--sot-{colour[1:]}, {colour})", markup, flags=re.IGNORECASE)
    return markup


def show(fig, room: str, name: str, data: pd.DataFrame, alt: str, caption: str, narrow=None) -> Shown:
    """Save `fig` as <figures>/<room>/<name>.svg and `data` as .csv beside it, both whole or not at
    all, and close it.

    `alt` says in a sentence what the figure shows, for those who do not see it. narrow: the same
    figure for a page of a phone's width, which the book's style sheet shows there in place of `fig`.
    Raises ValueError without data or alt, and for a name that is not made of lower-case letters,
    digits, hyphens and underscores.
    """
    for what in (room, name):
        if not re.fullmatch(r"[a-z0-9][a-z0-9_-]*", what):
            raise ValueError(f"A figure cannot be called {what!r}: use lower-case letters, digits, '-' and '_'.")
    if data.empty:
        raise ValueError(f"The figure {name!r} has no data behind it.")
    if not alt.strip():
        raise ValueError(f"The figure {name!r} has no alternative text.")
    prefix = f"{room}-{name}".replace("_", "-")
    markup = svg(fig, prefix, alt)
    plt.close(fig)
    folder = Path(paths.FIGURES) / room
    csv_path = records.write_text(folder / f"{name}.csv", data.to_csv(index=False, lineterminator="\n"))
    alone = markup.replace("<svg ", '<svg color="#24292f" ', 1)  # for readers of the file itself
    svg_path = records.write_text(folder / f"{name}.svg", alone + "\n")
    if narrow is not None:
        small = svg(narrow, f"{prefix}-narrow", alt)
        plt.close(narrow)
        markup = markup.replace("<svg ", '<svg class="wide" ', 1)
        # Hidden where there is no style sheet of the book.
        markup += "\n" + small.replace('<svg role="img" ', '<svg class="narrow" role="img" ', 1).replace(
            'style="', 'style="display:none;', 1
        )
    link = f'<a href="{CSV_URL}/{room}/{name}.csv" download="">data (CSV)</a>'
    return Shown(
        svg_path,
        csv_path,
        f'<figure id="{prefix}" style="margin:1em 0;color:inherit">\n{themed(markup)}\n'
        f"<figcaption>{html.escape(caption, quote=False)} {link}</figcaption>\n</figure>",
    )
