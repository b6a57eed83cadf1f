"""Charts of the second half from its records; as in `async_sparse.figures`, every function returns (fig, data).

What was measured apart, on other matrices, is a hollow square; what the source states, a hollow diamond. TF32 and
float32 have panels of their own, whose titles say which they are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil, floor, log10

import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedFormatter, FixedLocator, NullFormatter

from artifact.drawing import plot
from artifact.drawing.style import BASELINE, BOUND, INK, RUNGS, WIDTH
from artifact.measure import records
from artifact.rooms.async_sparse import contenders
from artifact.rooms.async_sparse.contenders import (
    AUTO_FP32,
    AUTO_TF32,
    BELL,
    BSR,
    CSR,
    EXACT,
    KEPT,
    PARTS,
    TRITON,
    UNION,
    WCSR,
    WHOLE,
    WINDOWS,
    name,
)
from artifact.rooms.async_sparse.figures import STATED, boxes, log_x, present, speedups
from artifact.rooms.async_sparse.spmm.experiments import Map
from artifact.rooms.async_sparse.spmm.rule import Split, split
from kernels.async_sparse import union

#: Row of Table I -> our contender.
ROWS = {"WCSR": WCSR, "BCSR": KEPT, "TorchAO": TRITON, "cuSPARSE": BELL}
#: Rows of Table I and of what was measured apart that nobody measured here.
ELSEWHERE = ("AccSpMM", "FlashSparse", "DTC-SpMM", "TC-GNN", "Voltrix")
SHOWN = (WCSR, WHOLE, WINDOWS, AUTO_TF32, KEPT, TRITON, BELL, BSR, CSR)
APART = "measured apart, other matrices"
_SQUARE = {
    "marker": "s",
    "markersize": 7,
    "markerfacecolor": "none",
    "markeredgecolor": BOUND,
    "markeredgewidth": 1.5,
    "linestyle": "none",
    "zorder": 4,
}


def called(variant: str) -> str:
    """How this half calls a contender: its kernel for blocks is the source's BCSR."""
    return f"BCSR ({KEPT})" if variant == KEPT else name(variant)


def over_bell(table1: pd.DataFrame, n: int, density: float = 0) -> pd.Series:
    """Rates of Table I over that of Blocked-ELL at one N, by row."""
    rates = table1[(table1["quantity"] == "tflops") & (table1["n"] == n) & (table1["density"] == density)]
    rates = rates.set_index("kernel")["low"]
    return rates / rates["cuSPARSE"]


def fig5(df: pd.DataFrame, table1: pd.DataFrame, apart: pd.DataFrame):
    """Fig. 5: speedup over cuSPARSE's Blocked-ELL, as the source has it, and beside it over the fastest of its
    algorithms for CSR; a row of panels for each N. Below a line: what was not measured here."""
    bases = [base for base in (BELL, CSR) if base in set(df["variant"])]
    if not bases:
        raise ValueError("The records have neither Blocked-ELL nor an algorithm for CSR.")
    data = {base: speedups(df, [v for v in SHOWN if v != base], base) for base in bases}
    sizes = sorted(set(df["n"]))
    order = {base: present(data[base], SHOWN) for base in bases}
    known = {BELL: set(table1["kernel"]), CSR: set(apart["kernel"])}
    more = {base: [kernel for kernel in ELSEWHERE if kernel in known[base]] for base in bases}
    rows = max(len(order[base]) + len(more[base]) for base in bases)
    fig, axes = plt.subplots(
        len(sizes),
        len(bases),
        figsize=(WIDTH, 0.9 + len(sizes) * (0.5 + 0.19 * rows)),
        sharex="col",
        squeeze=False,
    )
    fig.get_layout_engine().set(w_pad=0.09)  # a panel's means stand beside the next one's names
    said = []
    for line, n in zip(axes, sizes, strict=True):
        for ax, base in zip(line, bases, strict=True):
            here = data[base][data[base]["n"] == n]
            boxes(ax, here, order[base], more=more[base], call=called)
            ax.axhline(len(order[base]) - 0.5, color=INK, alpha=0.4, linewidth=0.8)
            ax.set_title(f"N = {plot.number(n)}, over {called(base)}{' in FP32' * (base == CSR)}")
            place = {v: y for y, v in enumerate((*order[base], *more[base]))}
            said += _elsewhere(ax, place, base, n, table1, apart)
    for ax, base in zip(axes[-1], bases, strict=True):
        stated = [row["speedup"] for row in said if row["over"] == base]
        log_x(ax, [*data[base]["speedup"], *stated], fine=False)
        ax.set_xlabel("speedup in TF32; right: geometric means")
    plot.legend(
        fig,
        {
            "geometric mean": Line2D([], [], color=INK, marker="D", linestyle="none", markersize=5),
            STATED: Line2D([], [], **plot.hollow("D")),
            APART: Line2D([], [], **_SQUARE),
        },
    )
    measured = pd.concat([part.assign(over=base) for base, part in data.items()])
    return fig, pd.concat([measured.assign(source="measured"), pd.DataFrame(said)])


def _elsewhere(
    ax, place: Mapping[str, int], base: str, n: int, table1: pd.DataFrame, apart: pd.DataFrame
) -> list[dict]:
    """Draw what the source states over Blocked-ELL, or what was measured apart over CSR; the rows behind it."""
    if base == BELL:
        found, look, source = over_bell(table1, n), plot.hollow("D"), "stated"
    else:
        rows = apart[(apart["quantity"] == "speedup_csr") & (apart["n"] == n)]
        found, look, source = rows.set_index("kernel")["low"], _SQUARE, "measured apart"
    drawn = []
    for kernel, value in found.items():
        y = place.get(ROWS.get(kernel, kernel))
        if y is not None:
            ax.plot(value, y, **look)
            drawn.append({"variant": kernel, "n": n, "speedup": value, "over": base})
    return [row | {"source": source} for row in drawn]


def parts(df: pd.DataFrame):
    """What each part of the kernels for windows is worth: speedup over the published kernel, in TF32."""
    data = speedups(df, [part for part in PARTS if part != WCSR], WCSR)
    order = present(data, PARTS)
    fig, ax = plt.subplots(figsize=(WIDTH, 1.0 + 0.26 * len(order)))
    boxes(ax, data, order)
    log_x(ax, data["speedup"])
    own = sum(part.startswith(WCSR) for part in order)
    if 0 < own < len(order):
        ax.axhline(own - 0.5, color=INK, alpha=0.4, linewidth=0.8)
    n = ", ".join(plot.number(size) for size in sorted(set(data["n"])))
    ax.set_xlabel(f"speedup over WCSR as published, TF32, N = {n}; right: geometric means")
    return fig, data


# ---------------------------------------------------------------- who is ahead where

_KIND_LOOKS = {
    "CUDA cores": (RUNGS[4], "X"),
    "tensor cores, 3×TF32": (RUNGS[3], "p"),
    "windows, TF32": (RUNGS[1], "^"),
    "blocks, TF32": (RUNGS[0], "s"),
    "cuSPARSE CSR": (BASELINE, "8"),
}


def winners(maps: Sequence[Map]):
    """A map: non-zeros a row over non-zeros for each column of a window's union, and who is ahead at each matrix, a
    panel each for float32 and TF32; dashed, the rule of one threshold. maps: of `experiments.maps`."""
    if not maps:
        raise ValueError("No record has two kinds of kernels to compare.")
    fig, axes = plt.subplots(1, len(maps), figsize=(WIDTH, 4.0), squeeze=False)
    handles = {}
    for ax, here in zip(axes[0], maps, strict=True):
        for group in here.groups:
            ahead = here.points[here.points["winner"] == group]
            tint, marker = _KIND_LOOKS[group]
            handles[group] = ax.plot(
                ahead["per_row"],
                ahead["shared"],
                color=tint,
                marker=marker,
                markersize=6.5,
                markeredgewidth=0,
                linestyle="none",
                alpha=0.85,
            )[0]
        if len(here.points) > 1:
            _rule(ax, split(here.points, here.groups))
        ax.set(xscale="log", yscale="log", title=f"{here.values}, N = {plot.number(here.n)}")
        ax.set_xlabel("non-zeros a row")
        for axis, column in (("x", "per_row"), ("y", "shared")):
            values = here.points[column]
            ax.set(**{f"{axis}lim": (values.min() / 1.3, values.max() * 1.3)})
            plot.log(getattr(ax, f"{axis}axis"))
    axes[0, 0].set_ylabel("non-zeros for each column of a window of 64")
    plot.legend(fig, handles)
    return fig, pd.concat([here.points.assign(values=here.values) for here in maps])


def _rule(ax, rule: Split) -> None:
    line = ax.axhline if rule.statistic == "shared" else ax.axvline
    if rule.below != rule.above:
        line(rule.at, color=INK, alpha=0.6, linewidth=1.1, linestyle=(0, (5, 3)))


def tasks(df: pd.DataFrame):
    """Speed with at most 1, 2 and 4 tasks a warp over that with 8, by what a task loads of B; where the rule changes
    from one to the next. df: of `tasks_of_a_warp.gains`."""
    fig, ax = plt.subplots(figsize=(WIDTH, 3.4))
    handles = {}
    looks = {1: ("o", RUNGS[0]), 2: ("s", BASELINE), 4: ("^", RUNGS[2])}
    for most, (marker, tint) in looks.items():
        handles[f"at most {most}"] = ax.plot(
            df["loaded"] / 1024,
            df[f"gain_{most}"],
            color=tint,
            marker=marker,
            markersize=4.5,
            markeredgewidth=0,
            linestyle="none",
            alpha=0.85,
        )[0]
        ax.axvline(union.WORK / 1024 / most, color=tint, linewidth=1.0, linestyle=(0, (5, 3)))
    ax.axhline(1, color=INK, linewidth=0.8)
    ax.set(xscale="log", yscale="log", xlabel="B that a task loads, KiB")
    ax.set_ylabel("times as fast as with 8 tasks a warp")
    plot.log(ax.xaxis)
    plot.ratio(ax, [df[f"gain_{most}"].min() for most in (1, 2, 4)] + [df["gain_1"].max()])
    plot.legend(fig, handles)
    return fig, df


# ---------------------------------------------------------------- accuracy, reordering


#: Markers of `accuracy` that are not near to another's there: WCSR and cuSPARSE's CSR are round.
APART_HERE = {KEPT: "<", BSR: "*"}


def accuracy(float32: pd.DataFrame | None, tf32: pd.DataFrame | None, baseline: str = CSR):
    """Error against float64 and speed of each method: geometric means over matrices and N with quartiles, speed over
    cuSPARSE's CSR in the same experiment. TF32's values hold 11 bits, so rounding operands is in no error."""
    methods = {
        "float32 values": (float32, (UNION, EXACT, AUTO_FP32, CSR)),
        "values that TF32 holds": (tf32, (WCSR, WINDOWS, AUTO_TF32, KEPT, BELL, BSR, TRITON, CSR)),
    }
    panels = {t: (df, shown) for t, (df, shown) in methods.items() if df is not None}
    if not panels:
        raise ValueError("There are no records to take errors from.")
    fig, axes = plt.subplots(1, len(panels), figsize=(WIDTH, 3.8), sharey=True, squeeze=False)
    handles, rows = {}, []
    for ax, (title, (df, shown)) in zip(axes[0], panels.items(), strict=True):
        own = [_method(df, variant, baseline) for variant in present(df, shown)]
        for row in own:
            look = contenders.look(row["variant"]) | {"linestyle": "none"}
            look |= {"marker": APART_HERE.get(row["variant"], look["marker"])}
            handles[called(row["variant"])] = ax.plot(
                row["rel_err"], row["speedup"], **look, markersize=8, markeredgewidth=0
            )[0]
            ends = {"color": look["color"], "linewidth": 1.2, "alpha": 0.6}
            ax.plot([row["err_low"], row["err_high"]], [row["speedup"]] * 2, **ends)
            ax.plot([row["rel_err"]] * 2, [row["speedup_low"], row["speedup_high"]], **ends)
        ax.set(title=title, xlabel="relative error against float64")
        _powers(ax, [row[key] for row in own for key in ("err_low", "err_high")])
        ax.axhline(1, color=BASELINE, linewidth=1.2, linestyle=(0, (5, 3)))
        rows += [row | {"values": title} for row in own]
    ends = [row[key] for row in rows for key in ("speedup_low", "speedup_high")]
    axes[0, 0].set(ylim=(min(*ends, 0.9) / 1.2, max(*ends, 1.1) * 1.2), yscale="log")
    plot.log(axes[0, 0].yaxis, fine=True)
    axes[0, 0].set_ylabel(f"speedup over {contenders.NAMES[baseline]}")
    plot.legend(fig, handles)
    return fig, pd.DataFrame(rows)


def _powers(ax, values: Sequence[float]) -> None:
    """A log x axis from a power of ten below all values to one above them."""
    low, high = floor(log10(min(values) / 1.2)), ceil(log10(max(values) * 1.2))
    powers = range(low, high + 1)
    ax.set(xlim=(10.0**low, 10.0**high), xscale="log")
    ax.xaxis.set_major_locator(FixedLocator([10.0**p for p in powers]))
    ax.xaxis.set_major_formatter(FixedFormatter([f"10{str(p).translate(plot.SUPERSCRIPTS)}" for p in powers]))
    ax.xaxis.set_minor_formatter(NullFormatter())


def _method(df: pd.DataFrame, variant: str, baseline: str) -> dict:
    errors = df.loc[df["variant"] == variant, "rel_err"].clip(lower=1e-12)
    over = pd.Series([1.0])
    if variant != baseline:
        over = speedups(df, [variant], baseline)["speedup"]
    return {
        "variant": variant,
        "rel_err": records.geomean(errors),
        "err_low": errors.quantile(0.25),
        "err_high": errors.quantile(0.75),
        "speedup": records.geomean(over),
        "speedup_low": over.quantile(0.25),
        "speedup_high": over.quantile(0.75),
    }


def gains(given: pd.DataFrame | None, rcm: pd.DataFrame | None) -> pd.DataFrame | None:
    """variant, label, n, gain: time in the given order over time reordered, where both were measured; else None."""
    if given is None or rcm is None:
        return None
    at = ["variant", "label", "n"]
    both = given.merge(rcm, on=at, suffixes=("_given", "_rcm"))
    both = both[both["variant"].isin((AUTO_FP32, UNION, EXACT, CSR))]
    if both.empty:
        return None
    return both.assign(gain=both["median_us_given"] / both["median_us_rcm"])[[*at, "gain"]]


def reordering(gained: pd.DataFrame, order: Sequence[str] = (AUTO_FP32, UNION, EXACT, CSR)):
    """What reverse Cuthill-McKee is worth: `gains` of each contender, a dot for each matrix; float32."""
    shown = present(gained, order)
    fig, ax = plt.subplots(figsize=(WIDTH, 1.1 + 0.4 * len(shown)))
    boxes(ax, gained, shown, "gain")
    log_x(ax, gained["gain"])
    ax.set_xlabel("time as the matrix comes over time reordered, float32; right: geometric means")
    return fig, gained
