"""What several charts of the room need: looks of its contenders, rows of records, axes."""

import re
from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from artifact.drawing import plot, style
from artifact.drawing.style import BASELINE, BEST, INK, MARKER, MARKERS, PUBLISHED, RUNGS
from artifact.rooms.nm_spmm.contenders import NMSPARSE

STEPWISE = ("v1", "v2", "v3", "wide", "banks", "bulk", "turned", "auto", "nmsparse_vw32", "cublas")
SIZES = ("small", "medium", "large", "auto", "cublas")
LLAMA = ("auto", "v3", "nmsparse_vw32", "nm_baseline")
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
    "nmsparse_vw32": (RUNGS[5], "P", "--"),
    "v3_searched": (PUBLISHED, "h", "--"),
    "square": (RUNGS[6], "s", "--"),
}
#: The series of Fig. 9: what they are called, their marker (that of our contender) and line.
SERIES = {
    "nm_spmm": ("NM-SpMM", "o", "-"),
    "nmsparse": ("nmSPARSE", "X", (0, (5, 2))),
    "sputnik": ("Sputnik", "s", (0, (1, 1.2))),
}
#: Of the published libraries: our contenders of the same idea, to the letter first; they are drawn at the place of the
#: first that is shown.
OURS = {"nm_spmm": ("v3",), "nmsparse": tuple(NMSPARSE)}
IDEAL = {"color": INK, "linewidth": 1.1, "linestyle": (0, (6, 2, 1, 2)), "alpha": 0.75}
POINT = ["m", "n", "k", "density"]


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


def draw_line(ax, x, y, variant: str, **more):
    return ax.plot(x, y, **({"markeredgewidth": 0, "markersize": MARKER} | look(variant) | more))[0]


def rows_of(df: pd.DataFrame, wanted: Sequence[str], label: str | None = "") -> pd.DataFrame:
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


def speedups_of(df: pd.DataFrame, wanted: Sequence[str], baseline: str, label: str | None = "") -> pd.DataFrame:
    """Time of the baseline over that of each contender: variant, label, POINT, speedup.

    Raises ValueError where no contender shares a point with the baseline.
    """
    rows = rows_of(df, [*wanted, baseline], label)
    base = rows[rows["variant"] == baseline].set_index(["label", *POINT])["median_us"]
    rows = rows[rows["variant"].isin(wanted)].merge(base.rename("base").reset_index(), on=["label", *POINT])
    if rows.empty:
        raise ValueError(f"The records have no point of {baseline!r} and one of {list(wanted)}.")
    return rows.assign(speedup=rows["base"] / rows["median_us"])[
        ["experiment", "variant", "label", *POINT, "median_us", "speedup"]
    ]


def present_of(df: pd.DataFrame, wanted: Sequence[str]) -> list[str]:
    return [variant for variant in wanted if (df["variant"] == variant).any()]


def as_sparsity(density: float) -> str:
    return plot.percent(1 - density)


def peak_share(published: pd.DataFrame | None, shown: Sequence[str]) -> pd.DataFrame:
    """What the source's text states of the share of its peak: library, variant (ours of the same idea),
    density, stated (0 to 1)."""
    if published is None:
        return pd.DataFrame(columns=["library", "variant", "density", "stated"])
    rows = published[published["quantity"] == "peak_share"].rename(columns={"variant": "library"})
    shown_of = {lib: next((v for v in ours if v in shown), None) for lib, ours in OURS.items()}
    rows = rows.assign(variant=rows["library"].map(shown_of), stated=rows["low"])
    rows = rows[rows["variant"].isin(shown) & rows["density"].notna()]
    return rows[["library", "variant", "density", "stated"]]


def of_series(published: pd.DataFrame) -> pd.DataFrame:
    """Fig. 9 as speedups over cuBLAS on the same GPU: gpu, library, density, point, m, n, k, speedup."""
    df, key = published, ["gpu", "point", "m", "n", "k"]
    dense = df[df["library"] == "cublas"].drop_duplicates(key).set_index(key)["tflops"]
    rows = df[df["library"].isin(SERIES)].merge(dense.rename("dense").reset_index(), on=key)
    if rows.empty:
        raise ValueError("The published series have no library beside cuBLAS on the same GPU.")
    rows = rows.assign(speedup=rows["tflops"] / rows["dense"])
    return rows[["gpu", "library", "density", "point", "m", "n", "k", "speedup"]]


def densities_of(*columns) -> list[float]:
    return sorted({float(value) for column in columns for value in column}, reverse=True)


def step_ticks(axis) -> None:
    """Ticks of a log axis, final in its limits, that spans a decade or little more."""
    low, high = sorted(axis.get_view_interval())
    steps = (1, 2, 5) if high / low > 12 else (1, 1.5, 2, 3, 4, 5, 6, 8)
    ticks = [step * 10.0**power for power in range(-2, 4) for step in steps]
    axis.set_major_locator(FixedLocator([t for t in ticks if low <= t <= high]))
    axis.set_major_formatter(FuncFormatter(plot.number))
    axis.set_minor_locator(NullLocator())


def speed_axis(ax, values: Sequence[float]) -> None:
    """A log y axis of speedups, with 1 inside."""
    low, high = min([*values, 0.95]) / 1.12, max([*values, 1.05]) * 1.12
    ax.set(yscale="log", ylim=(low, high))
    step_ticks(ax.yaxis)


def categories(ax, densities: Sequence[float]) -> None:
    ax.set_xticks(range(len(densities)), [as_sparsity(d) for d in densities])
    ax.set_xlim(-0.5, len(densities) - 0.5)
    ax.set_xlabel("sparsity")
    ax.tick_params(axis="x", length=0)
    ax.grid(axis="x", visible=False)
    for edge in range(1, len(densities)):
        ax.axvline(edge - 0.5, color=INK, alpha=0.15, linewidth=0.6)


def lanes_of(count: int, width: float = 0.6) -> np.ndarray:
    """Offsets that keep `count` markers of a category apart."""
    return np.linspace(-width / 2, width / 2, count) if count > 1 else np.zeros(1)


def ideal_lines(ax, density: float) -> object:
    """The ideal speedup M/N, and cuBLAS at 1."""
    ax.axhline(1, color=BASELINE, linewidth=1.2)
    return ax.axhline(1 / density, **IDEAL)
