"""The map: how much faster than a dense multiplication the fastest sparse one is, by pattern, density, N and precision.

Every recorded point of the sweeps that the rooms name (`pool.maps`), and of real matrices. Where nothing dense was
measured beside, its time is estimated (`dense_us`): from the rates of the dense multiplications that were.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

from artifact import registry
from artifact.drawing import plot, sketch, style
from artifact.measure import records
from artifact.which import model
from artifact.which.pool import PRECISIONS, Generated, Pool, fits, maps, pools

#: What real matrices are called beside the generated patterns, by the format of their fastest kernel.
REAL = "real matrices"
#: Bytes of an element of a dense operand.
BYTES = {"FP32": 4, "TF32": 4, "BF16": 2}
#: Measured dense multiplications, nearest in size, whose median rate is an estimate.
NEAREST = 3
COLUMNS = (
    "room",
    "experiment",
    "pattern",
    "precision",
    "label",
    "m",
    "n",
    "k",
    "columns",
    "density",
    "sparse",
    "format",
    "sparse_us",
    "dense",
    "dense_us",
    "speedup",
    "prepare_ms",
)
COLOURS = {
    "non-zeros anywhere": style.PUBLISHED,
    "blocks": style.BEST,
    "N of M vectors": style.BASELINE,
    "2 of 4 elements": style.CLAIM,
}
MARKS = dict(zip(COLOURS, ("o", "s", "D", "^"), strict=True))
FORMATS = {"CSR": style.PUBLISHED, "windows": style.RUNGS[1], "blocks": style.BEST}


def points(gpu_folder: Path, folder: Path = registry.FOLDER) -> pd.DataFrame:
    """COLUMNS, a row for each point: the fastest sparse contender, and the dense one, measured or estimated (dense is
    ""); columns: the size that the sparse operand has not; speedup: of sparse over dense, NaN where there is no dense.
    """
    rates, copy = dense_rates(gpu_folder, folder), copy_gbps(gpu_folder)
    found = [_generated(about, df) for about, df in _records(gpu_folder, folder)]
    found += [_real(pool) for pool in pools(gpu_folder, folder)]
    if not found:
        return pd.DataFrame(columns=list(COLUMNS))
    df = pd.concat(found, ignore_index=True)
    guessed = [dense_us(rates, row.precision, row.m, row.n, row.k, copy) for row in df.itertuples(index=False)]
    df["dense_us"] = df["dense_us"].fillna(pd.Series(guessed, df.index, float))
    df["speedup"] = df["dense_us"] / df["sparse_us"]
    return df[list(COLUMNS)]


def dense_rates(gpu_folder: Path, folder: Path = registry.FOLDER) -> pd.DataFrame:
    """precision, m, n, k, tflops of every dense multiplication beside a sweep, the fastest at each size."""
    rows = []
    for about, df in _records(gpu_folder, folder):
        dense = df[[fits(v, about.dense) for v in df["variant"]]]
        for (m, n, k), at in dense.groupby(["m", "n", "k"]):
            rate = 2.0 * m * n * k / at["median_us"].min() / 1e6
            rows.append({"precision": about.precision, "m": m, "n": n, "k": k, "tflops": rate})
    return pd.DataFrame(rows, columns=["precision", "m", "n", "k", "tflops"])


def dense_us(rates: pd.DataFrame, precision: str, m: int, n: int, k: int, copy_gbps: float = np.inf) -> float:
    """How long a dense multiplication takes: at the median rate of the nearest ones measured, and no less than it takes
    to move its operands. NaN where none of that precision was measured."""
    known = rates[rates["precision"] == precision]
    if known.empty:
        return float("nan")
    away = np.abs(np.log2(known[["m", "n", "k"]].to_numpy(float) / (m, n, k))).sum(axis=1)
    rate = np.median(known["tflops"].to_numpy()[np.argsort(away, kind="stable")[:NEAREST]])
    moved = BYTES[precision] * (m * k + k * n + m * n)
    return float(max(2.0 * m * n * k / rate / 1e6, moved / copy_gbps / 1e3))


def crossings(df: pd.DataFrame) -> pd.DataFrame:
    """precision, pattern, columns, density at which sparse begins to pay, and what is known of it, for each N of which
    several densities were measured, and for all of them together (columns is 0); df: `points`.

    The density is where the geometric mean of the speedups, interpolated between logarithms, passes 1; infinite
    where sparse is faster at all that were measured, 0 where at none. behind: points at which sparse is slower.
    """
    rows = []
    df = df.dropna(subset="speedup")
    for (precision, pattern), all_n in df[df["pattern"] != REAL].groupby(["precision", "pattern"], sort=False):
        for columns, some in [(0, all_n), *all_n.groupby("columns")]:
            means = some.groupby("density")["speedup"].agg(records.geomean).sort_index()
            if len(means) < 2:
                continue
            rows.append(
                {
                    "precision": precision,
                    "pattern": pattern,
                    "columns": columns,
                    "density": crossing(means),
                    "from": means.index[0],
                    "to": means.index[-1],
                    "estimated": bool((some["dense"] == "").any()),
                    "behind": int((some["speedup"] < 1).sum()),
                }
            )
    names = ["precision", "pattern", "columns", "density", "from", "to", "estimated", "behind"]
    return pd.DataFrame(rows, columns=names)


def crossing(means: pd.Series) -> float:
    """Where a speedup, by density ascending, falls below 1, the last such place. inf: it never does; 0: it is."""
    x, y = np.log(means.index.to_numpy(float)), np.log(means.to_numpy(float))
    if y[-1] >= 0:
        return float("inf")
    above = np.flatnonzero(y >= 0)
    if not above.size:
        return 0.0
    i = above[-1]
    return float(np.exp(x[i] + (x[i + 1] - x[i]) * y[i] / (y[i] - y[i + 1])))


def figure(df: pd.DataFrame):
    """The map: speedup over dense by density, a panel for each precision. Lines are geometric means over sizes, bands
    their range; dots are real matrices, in the colour of their fastest format; hollow is over an estimate. (fig, data)

    df: `points`. Raises ValueError where nothing can be compared with dense.
    """
    df = df.dropna(subset="speedup")
    shown = [p for p in PRECISIONS if (df["precision"] == p).any()]
    if not shown:
        raise ValueError("The records have nothing that can be compared with a dense multiplication.")
    fig, axes = plt.subplots(1, len(shown), figsize=(style.WIDTH, 4.4), sharey=True, squeeze=False)
    handles: dict[str, object] = {}
    low, high = df["speedup"].min() / 1.4, df["speedup"].max() * 1.4
    left = 10 ** np.floor(np.log10(df["density"].min()))
    for ax, precision in zip(axes[0], shown, strict=True):
        here = df[df["precision"] == precision]
        ax.set(xscale="log", yscale="log", xlim=(left, 1.3), ylim=(low, high), title=precision)
        ideal = np.array([left, 1.0])
        (handles["as fast as dense on what is left"],) = ax.plot(
            ideal, 1 / ideal, color=style.BOUND, linestyle=(0, (5, 3)), linewidth=1.1
        )
        ax.axhline(1, color=style.INK, linewidth=1)
        real = here[here["pattern"] == REAL]
        for what, dots in real.groupby("format", sort=False):
            tint = FORMATS.get(what, style.BOUND)
            (handles[f"real matrix, {what} fastest"],) = ax.plot(
                dots["density"],
                dots["speedup"],
                "o",
                color=tint,
                markersize=3.6,
                markerfacecolor="none",
                alpha=0.7,
            )
        for pattern, rows in here[here["pattern"] != REAL].groupby("pattern", sort=False):
            handles[pattern] = _line(ax, pattern, rows)
        ax.xaxis.set_major_locator(FixedLocator([1e-5, 1e-3, 1e-1]))
        ax.xaxis.set_minor_locator(NullLocator())
        ax.xaxis.set_major_formatter(FuncFormatter(lambda share, _: plot.percent(share)))
        ax.set_xlabel("share of non-zeros")
    plot.log(axes[0, 0].yaxis)
    axes[0, 0].set_ylabel("speedup over dense, same precision")
    order = [*COLOURS, *(name for name in handles if name not in COLOURS)]
    plot.legend(fig, {name: handles[name] for name in order if name in handles}, columns=3)
    return fig, df


def _line(ax, pattern: str, rows: pd.DataFrame):
    """The line of a pattern: a band from the slowest to the fastest size, a mark at each density."""
    colour = COLOURS[pattern]
    by = rows.groupby("density")["speedup"]
    mean, least, most = by.agg(records.geomean), by.min(), by.max()
    if len(mean) > 1:
        ax.fill_between(mean.index, least, most, color=colour, alpha=0.15, linewidth=0)
    else:
        ax.vlines(mean.index, least, most, color=colour, alpha=0.5, linewidth=2.5)
    ax.plot(mean.index, mean, color=colour, linewidth=1.5)
    hollow = rows.groupby("density")["dense"].agg(lambda names: (names == "").all()).to_numpy()
    for empty in (False, True):
        ax.plot(
            mean.index[hollow == empty],
            mean[hollow == empty],
            MARKS[pattern],
            color=colour,
            markersize=5,
            **({"markerfacecolor": "none"} if empty else {"markeredgewidth": 0}),
        )
    at = crossing(mean)
    if 0 < at < 1:
        text = f"{at:.0%}" if at >= 0.1 else f"{at:.1%}"
        sketch.put(ax, at / 1.3, 0.72, text, fontsize=8.5, color=colour, ha="right", weight="bold")
        ax.plot([at], [1], "x", color=colour, markersize=6)
    return Line2D([], [], color=colour, marker=MARKS[pattern], markersize=5)


def left_out(found: Sequence[tuple[Pool, pd.DataFrame]]):
    """How good the advice is: its time over the best one's at every point, sorted, a panel for each pool. (fig, data)

    found: pools with `model.evaluate` of them. Raises ValueError for none.
    """
    if not found:
        raise ValueError("There is no pool of real matrices to leave one out of.")
    across = len(found) if len(found) < 4 else 2  # titles of four would meet
    rows = -(-len(found) // across)
    fig, axes = plt.subplots(rows, across, figsize=(style.WIDTH, 0.3 + 2.6 * rows), sharey=True, squeeze=False)
    for ax in axes.flat[len(found) :]:
        ax.set_visible(False)
    handles, worst = {}, max(df["ratio"].max() for _, df in found)
    for ax, (pool, df) in zip(axes.flat, found, strict=False):
        df = df.sort_values("ratio", ignore_index=True)
        good = df["ratio"] <= model.GOOD
        for what, chosen, tint in (
            ("good advice", good, style.BEST),
            ("not the best", ~good, style.PUBLISHED),
        ):
            (handles[what],) = ax.plot(
                df.index[chosen] + 1,
                df["ratio"][chosen],
                "o",
                color=tint,
                markersize=4,
                markeredgewidth=0,
            )
        handles[f"{model.GOOD:g}× the best"] = ax.axhline(
            model.GOOD, color=style.BOUND, linestyle=(0, (5, 3)), linewidth=1.1
        )
        said = f"{pool.about.precision}, {pool.df['label'].nunique()} matrices"
        ax.set_title(f"{said}: {model.good(df):.0%} of {len(df)}")
        ax.set(xlabel="points, sorted", ylim=(0.98, max(1.25, 1.05 * worst)))
        ax.set_xlim(0, 1.04 * len(df))
        ax.xaxis.set_major_locator(MaxNLocator(4, integer=True, prune="upper"))
    for ax in axes[:, 0]:
        ax.set_ylabel("time over the best one's")
    plot.legend(fig, handles)
    data = [df.assign(precision=pool.about.precision) for pool, df in found]
    return fig, pd.concat(data, ignore_index=True)


def payoffs(gpu_folder: Path, folder: Path = registry.FOLDER) -> pd.DataFrame:
    """What preparation costs and when it pays: precision, experiment, variant, format, matrices (how many), prepare_ms
    (median), multiplications (median over the matrices at which it is faster), pays (share of them).

    Against who is ready first at each matrix and N: the contender with the least preparation, and of several the
    fastest. Contenders that usually have no more than that are not listed.
    """
    rows = []
    for pool in pools(gpu_folder, folder):
        at = ["label", "n"]
        ready = pool.df.sort_values(["prepare_ms", "median_us"]).groupby(at).first()
        key = pd.MultiIndex.from_frame(pool.df[at])
        df = pool.df.assign(
            gain=ready["median_us"].loc[key].to_numpy() - pool.df["median_us"].to_numpy(),
            more=1e3 * (pool.df["prepare_ms"].to_numpy() - ready["prepare_ms"].loc[key].to_numpy()),
        )
        for variant, mine in df.groupby("variant", sort=False):
            if mine["more"].median() <= 0:
                continue
            paying = mine[mine["gain"] > 0]
            rows.append(
                {
                    "precision": pool.about.precision,
                    "experiment": pool.about.experiment,
                    "variant": variant,
                    "format": pool.about.format(variant),
                    "matrices": mine["label"].nunique(),
                    "prepare_ms": mine["prepare_ms"].median(),
                    "multiplications": float((paying["more"] / paying["gain"]).median()) if len(paying) else np.nan,
                    "pays": len(paying) / len(mine),
                }
            )
    names = [
        "precision",
        "experiment",
        "variant",
        "format",
        "matrices",
        "prepare_ms",
        "multiplications",
        "pays",
    ]
    return pd.DataFrame(rows, columns=names)


def against_dense(df: pd.DataFrame) -> pd.DataFrame:
    """After how many multiplications a generated pattern's fastest kernel has paid for its preparation, against dense:
    precision, pattern, density, points, prepare_ms and multiplications (medians over the points where it is faster),
    pays (share of these points); df: `points`."""
    df = df[df["pattern"] != REAL].dropna(subset="speedup")
    gain = (df["dense_us"] - df["sparse_us"]).where(df["speedup"] > 1)
    df = df.assign(
        multiplications=1e3 * df["prepare_ms"] / gain,
        prepare_ms=df["prepare_ms"].where(gain > 0),
        pays=gain > 0,
    )
    by = df.groupby(["precision", "pattern", "density"], sort=False)
    table = by.agg(
        points=("pays", "size"),
        prepare_ms=("prepare_ms", "median"),
        multiplications=("multiplications", "median"),
        pays=("pays", "mean"),
    ).reset_index()
    order = {"precision": PRECISIONS, "pattern": registry.PATTERNS}
    return table.sort_values(
        ["precision", "pattern", "density"],
        ignore_index=True,
        key=lambda c: c.map(order[c.name].index) if c.name in order else c,
    )


def _records(gpu_folder: Path, folder: Path) -> list[tuple[Generated, pd.DataFrame]]:
    found = []
    for about in maps(folder)[1]:
        path = gpu_folder / about.room / f"{about.experiment}.csv"
        if path.is_file():
            found.append((about, records.read(path)))
    return found


def _generated(about: Generated, df: pd.DataFrame) -> pd.DataFrame:
    """A row of `points` for each point of a sweep; dense_us is NaN where nothing dense was measured."""
    rows = []
    for _, at in df.groupby(list(records.POINT), sort=False, dropna=False):
        dense = at[[fits(v, about.dense) for v in at["variant"]]]
        sparse = at[[fits(v, about.contenders) and not fits(v, about.dense) for v in at["variant"]]]
        # A matrix without a zero is none that anybody would store as a sparse one.
        if sparse.empty or at["density"].iloc[0] >= 1:
            continue
        rows.append(
            _row(about, about.pattern, sparse, about.pattern, about.free)
            | {
                "dense": "" if dense.empty else dense.loc[dense["median_us"].idxmin(), "variant"],
                "dense_us": dense["median_us"].min() if len(dense) else np.nan,
            }
        )
    return pd.DataFrame(rows)


def _real(pool: Pool) -> pd.DataFrame:
    rows = []
    for _, at in pool.df.groupby(["label", "n"], sort=False):
        fastest = at.loc[at["median_us"].idxmin(), "variant"]
        row = _row(pool.about, REAL, at, pool.about.format(fastest))
        rows.append(row | {"dense": "", "dense_us": np.nan})
    return pd.DataFrame(rows)


def _row(about, pattern: str, sparse: pd.DataFrame, form: str, free: str = "n") -> dict:
    best = sparse.loc[sparse["median_us"].idxmin()]
    stored = best["m"] * best["k"] if free == "n" else best["k"] * best["n"]
    # As the source states it, but for a real matrix, which has no nominal density.
    density = best["nnz"] / stored if pattern == REAL else best["density"]
    return {
        "room": about.room,
        "experiment": about.experiment,
        "pattern": pattern,
        "precision": about.precision,
        "label": best["label"],
        "m": best["m"],
        "n": best["n"],
        "k": best["k"],
        "columns": best[free],
        "density": float(density),
        "sparse": best["variant"],
        "format": form,
        "sparse_us": best["median_us"],
        "prepare_ms": best["prepare_ms"],
    }


def copy_gbps(gpu_folder: Path) -> float:
    """The measured rate of a copy; infinite where it was not measured."""
    try:
        return records.ceilings(gpu_folder)["copy"]["gbps"]
    except (FileNotFoundError, KeyError):
        return float("inf")


def patterns(df: pd.DataFrame) -> Sequence[str]:
    """The patterns that are on the map, in the order of `registry.PATTERNS`."""
    return [p for p in (*registry.PATTERNS, REAL) if (df["pattern"] == p).any()]
