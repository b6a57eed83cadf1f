"""What figures of the book have in common: palette, names and looks of contenders, Matplotlib's style.

Figures are drawn for a light page, on a transparent background. In the dark the style sheet of the book turns their
lightness over and keeps their hue; colours have a contrast of at least 3:1 on white and 4:1 there.
"""

from collections.abc import Sequence
from typing import Any

import matplotlib

from artifact import registry
from artifact.verdicts import measures

WIDTH = 8.3  # inches; shown about 800 px wide, which makes 9 pt text 12 px

# Okabe and Ito's palette, with what was too light for white or too dark for near-black moved
# towards the middle. The first four and CLAIM stay apart under protanopia, deuteranopia and
# tritanopia; rungs are also told apart by marker.
PUBLISHED = "#D55E00"  # the source's own kernel
BASELINE = "#0072B2"  # the vendor's library
BEST = "#1B9E4B"  # the last rung of our ladder
BOUND = "#6E6E6E"  # measured ceilings and the roofline
CLAIM = "#945CF8"  # what the source states
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
    **{f"rung {i}": colour for i, colour in enumerate(RUNGS)},
}
#: Verdict -> its colour and marker.
VERDICTS = {
    measures.REPRODUCED: (BASELINE, "o"),
    measures.EXCEEDED: (BEST, "^"),
    measures.PARTLY: (RUNGS[3], "D"),
    measures.NOT_REPRODUCED: (PUBLISHED, "X"),
    measures.NOT_CARRIED: (RUNGS[0], "P"),
    measures.UNDECIDED: (CLAIM, "s"),
    measures.NOT_MEASURED: (BOUND, "*"),
}
# Rows or lanes in a picture of a format.
ROWS = (PUBLISHED, BASELINE, BEST, RUNGS[1], CLAIM, RUNGS[0], RUNGS[3])

#: Text, axes and outlines.
INK = "#010203"

#: Prefixes of what systems are compared with; of those, what one system alone is compared with.
BASELINES = registry.PREFIXES
OWN_BASELINES = tuple(name for name, module in registry.modules().items() if module.startswith(registry.PACKAGE))
#: How contenders are called in figures; the others as they are.
NAMES = {
    "cusparse_best": "cuSPARSE, best algorithm",
    "cusparse_default": "cuSPARSE, default",
    "cusparse_alg1": "cuSPARSE, algorithm 1",
    "cusparse_alg2": "cuSPARSE, algorithm 2",
    "cusparse_alg3": "cuSPARSE, algorithm 3",
    "cusparselt": "cuSPARSELt, best algorithm",
    "cusparselt_default": "cuSPARSELt, default",
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
} | {key: name for system in registry.find().values() for key, name in system.names.items()}
#: A library's contender, or the last word of it -> marker and dashes. cuSPARSELt and cuBLASLt look as their elders do,
#: what multiplies blocks as cuBLAS and the CPU: no figure shows them beside each other.
LOOKS = {
    "best": ("s", ()),
    "default": ("P", (6, 2)),
    "alg1": ("<", (1, 1)),
    "alg2": (">", (5, 1, 1, 1)),
    "cublas": (HOURGLASS, ()),
    "cusparselt": ("s", ()),
    "b": ("<", (1, 1)),
    "cublaslt": (HOURGLASS, ()),
    "eight": (CORNER, ()),
    "tf32": ("h", (4, 2)),
    "bf16": ("8", (5, 1, 1, 1)),
    "handle": (tuple((y, x) for x, y in HOURGLASS), (4, 2)),
    "transfers": (CORNER, (5, 1, 1, 1)),
    "allocation": (tuple((-x, -y) for x, y in CORNER), (1, 1)),
    "loop": (CHEVRON, (1, 1)),
    "scipy": (tuple((x, -y) for x, y in CHEVRON), (6, 2)),
    "blas": (tuple((y, x) for x, y in CHEVRON), (3, 1, 1, 1)),
    "bell": (CORNER, (5, 1, 1, 1)),
    "cusparse_bsr": (tuple((-x, -y) for x, y in CORNER), (1, 1)),
    "triton_bsr": (CHEVRON, (1, 1)),
    "tuned": (tuple((y, x) for x, y in CHEVRON), (3, 1, 1, 1)),
    "dense": (HOURGLASS, ()),
    "cublas_dense_default": (tuple((y, x) for x, y in HOURGLASS), (4, 2)),
}
#: Lines of rungs, in turn.
DASHES = ((4, 2), (5, 1, 1, 1), (4, 1, 1, 1, 1, 1))


# ---------------------------------------------------------------- looks


def name(variant: str) -> str:
    """How a contender is called in a figure."""
    return NAMES.get(variant, variant)


def look(variant: str, variants: Sequence[str]) -> dict[str, Any]:
    """Colour, marker and dashes of `variant`, the same in every figure of a system.

    `variants` are the system's own in ladder order: the first is the published kernel, the last our best. Baselines are
    known by their prefix and need not be in it.
    """
    rungs = [(RUNGS[i % 9], MARKERS[i % 9], DASHES[i % 3]) for i in range(len(variants) - 2)]
    if variant in VERDICTS:
        found: tuple[Any, ...] = (*VERDICTS[variant], ())
    elif variant.startswith(OWN_BASELINES):
        found = (BASELINE, "8", (1, 1))
    elif variant.startswith(BASELINES):
        found = (BASELINE, *(LOOKS.get(variant) or LOOKS.get(variant.split("_")[-1], ("h", (4, 2)))))
    else:
        found = [(PUBLISHED, "o", ()), *rungs, (BEST, "D", ())][list(variants).index(variant)]
    return dict(zip(("color", "marker", "dashes"), found, strict=True))


#: Matplotlib's settings for the book. DejaVu Sans is for the layout: it is wider than what browsers show. Text in a
#: figure stays text, which can be read out and searched.
SETTINGS: dict[Any, Any] = dict.fromkeys(
    ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color", "grid.color"), INK
) | {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
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
    "svg.fonttype": "none",
}


def apply() -> None:
    """Set Matplotlib up for the book; notebooks call it once, before drawing."""
    matplotlib.rcParams.update(SETTINGS)
