"""The page on which kernel for which matrix, and the map on the front page: tables, and the facts of the text."""

import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse
from matplotlib import pyplot as plt
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from artifact.book import charts, text
from artifact.book.facts import Fact, flat
from artifact.drawing import plot, provenance, sketch, style
from artifact.measure import records
from artifact.recommend import landscape, model
from artifact.recommend.landscape import PRECISIONS, Pool
from kernels.formats import csr

#: Of all points, how many the advice should be good at.
BAR = 0.9
COLOURS = {
    "non-zeros anywhere": style.PUBLISHED,
    "blocks": style.BEST,
    "N of M vectors": style.BASELINE,
    "2 of 4 elements": style.CLAIM,
}
MARKS = dict(zip(COLOURS, ("o", "s", "D", "^"), strict=True))
FORMATS = {"CSR": style.PUBLISHED, "windows": style.RUNGS[1], "blocks": style.BEST}
#: Blocks of the text that say what the map shows.
MAP = ("map", "map_lone", "map_real")


def points(origin: provenance.Origin) -> pd.DataFrame:
    """Return `landscape.points` of a page's records that can be compared with dense; empty without any."""
    if origin.folder is None:
        return pd.DataFrame(columns=list(landscape.COLUMNS))
    return landscape.points(origin.folder).dropna(subset="speedup")


def pools(origin: provenance.Origin) -> list[Pool]:
    """Return the pools of a page's records."""
    return [] if origin.folder is None else landscape.pools(origin.folder)


def drawn(df: pd.DataFrame) -> tuple[Any, pd.DataFrame] | None:
    """Draw the map: speedup over dense by density, a panel for each precision.

    Lines are geometric means over sizes, bands their range; dots are real matrices, in the colour of their fastest
    format; hollow is over an estimate. (fig, data)

    df: `points`. None where nothing can be compared with dense.
    """
    df = df.dropna(subset="speedup")
    shown = [p for p in PRECISIONS if (df["precision"] == p).any()]
    if not shown:
        return None
    fig, axes = plt.subplots(1, len(shown), figsize=(style.WIDTH, 4.4), sharey=True, squeeze=False)
    handles: dict[str, object] = {}
    left = 10 ** np.floor(np.log10(df["density"].min()))
    ends, ideal = (df["speedup"].min() / 1.4, df["speedup"].max() * 1.4), np.array([left, 1.0])
    for ax, precision in zip(axes[0], shown, strict=True):
        ax.set(xscale="log", yscale="log", xlim=(left, 1.3), ylim=ends, title=precision, xlabel="share of non-zeros")
        dashed: dict[str, Any] = {"color": style.BOUND, "linestyle": (0, (5, 3)), "linewidth": 1.1}
        (handles["as fast as dense on what is left"],) = ax.plot(ideal, 1 / ideal, **dashed)
        ax.axhline(1, color=style.INK, linewidth=1)
        here = df[df["precision"] == precision]
        real = here["pattern"] == landscape.REAL
        for what, dots in here[real].groupby("format", sort=False):
            looks = {
                "color": FORMATS.get(what, style.BOUND),
                "markerfacecolor": "none",
                "markersize": 3.6,
                "alpha": 0.7,
            }
            (handles[f"real matrix, {what} fastest"],) = ax.plot(dots["density"], dots["speedup"], "o", **looks)
        for pattern, rows in here[~real].groupby("pattern", sort=False):
            handles[pattern] = _line(ax, pattern, rows)
        ax.xaxis.set_major_locator(FixedLocator([1e-5, 1e-3, 1e-1]))
        ax.xaxis.set_minor_locator(NullLocator())
        ax.xaxis.set_major_formatter(FuncFormatter(lambda share, _: plot.percent(share)))
    plot.log(axes[0, 0].yaxis)
    axes[0, 0].set_ylabel("speedup over dense, same precision")
    plot.legend(fig, {name: handles[name] for name in (*COLOURS, *handles) if name in handles}, columns=3)
    return fig, df


def _line(ax: Any, pattern: str, rows: pd.DataFrame) -> Line2D:
    """Draw the line of a pattern: a band from the slowest to the fastest size, a mark at each density."""
    colour, by = COLOURS[pattern], rows.groupby("density")["speedup"]
    mean, least, most = by.agg(records.geomean), by.min(), by.max()
    if len(mean) > 1:
        ax.fill_between(mean.index, least, most, color=colour, alpha=0.15, linewidth=0)
    else:
        ax.vlines(mean.index, least, most, color=colour, alpha=0.5, linewidth=2.5)
    ax.plot(mean.index, mean, color=colour, linewidth=1.5)
    hollow = rows.groupby("density")["dense"].agg(lambda names: (names == "").all())
    for at, looks in ((~hollow, {"markeredgewidth": 0}), (hollow, {"markerfacecolor": "none"})):
        ax.plot(mean.index[at], mean[at], MARKS[pattern], color=colour, markersize=5, **looks)
    crossing = landscape.crossing(mean)
    if 0 < crossing < 1:
        sketch.put(
            ax,
            crossing / 1.3,
            0.72,
            f"{crossing:.0%}" if crossing >= 0.1 else f"{crossing:.1%}",
            fontsize=8.5,
            color=colour,
            ha="right",
            weight="bold",
        )
        ax.plot([crossing], [1], "x", color=colour, markersize=6)
    return Line2D([], [], color=colour, marker=MARKS[pattern], markersize=5)


def below_map(df: pd.DataFrame) -> dict[str, str]:
    """Return alternative text and caption of the map."""
    made = text.page("which")
    made.add(map_facts(df))
    said = (line[2:] for line in "\n".join(map(made, MAP)).splitlines() if line.startswith("- "))
    return {"alt": made("alt", [("said", " ".join(said))]), "caption": made("caption")}


def map_facts(df: pd.DataFrame) -> Iterator[Fact]:
    """Yield for each pattern the density below which sparse pays (inf: at all, 0: at none).

    Where it has one density only, its speedup there; for real matrices, at how many points sparse pays.
    """
    table = landscape.crossings(df).rename(columns={"density": "below", "from": "least", "to": "most"})
    table = table[table["columns"] == 0].drop(columns=["columns", "estimated"])
    yield from flat({"map": table.set_index(table["pattern"] + " " + table["precision"])})
    for (precision, pattern), some in df.groupby(["precision", "pattern"], sort=False):
        if pattern != landscape.REAL and some["density"].nunique() == 1:
            at = {"density": some["density"].iloc[0], "mean": records.geomean(some["speedup"])}
            yield from flat({f"lone.{pattern} {precision}": {"pattern": pattern, "precision": precision} | at})
    yield from _real(df)


def _real(df: pd.DataFrame) -> Iterator[Fact]:
    return flat(
        {
            "real": df[df["pattern"] == landscape.REAL]
            .groupby("precision", sort=False)["speedup"]
            .agg(faster=lambda speedup: (speedup > 1).sum(), points="size")
        }
    )


def of_system(gpu_folder: Path, system: str) -> str:
    """Say when the format of a system is worth using, by its records in `gpu_folder`.

    At which densities it is ahead of a dense multiplication and by how much, after how many multiplications that has
    paid for its preparation, and how real matrices fare.
    """
    df = landscape.points(gpu_folder).query("room == @system").dropna(subset="speedup")
    made = text.page("which")
    made.add(_real(df))
    pays = landscape.against_dense(df).groupby(["precision", "pattern"])["multiplications"].agg(["min", "max"])
    for (precision, pattern), some in df[df["pattern"] != landscape.REAL].groupby(["precision", "pattern"], sort=False):
        means = some.groupby("density")["speedup"].agg(records.geomean).sort_index()
        told = {
            "pattern": pattern,
            "precision": precision,
            "guessed": (some["dense"] == "").any(),
            "ahead": (some["speedup"] > 1).sum(),
            "points": len(some),
            "means": text.at({plot.percent(density): speed for density, speed in means.items()}),
            "paid": pays.loc[(precision, pattern)].clip(lower=1).rename({"min": "least", "max": "most"}),
            "below": landscape.crossing(means) if len(means) > 1 else None,
            "least": means.index[0],
            "most": means.index[-1],
            "behind": (some["speedup"] < 1).sum(),
        }
        made.add(flat({"here": {f"{pattern} {precision}": told}}))
    return made("here")


# ---------------------------------------------------------------- tables


def crossing_table(df: pd.DataFrame) -> pd.DataFrame | None:
    """Return where sparse begins to pay, by pattern and N; None where there is nothing to say."""
    if (table := landscape.crossings(df)).empty:
        return None
    table = table[table["columns"] > 0]
    every = table["behind"].gt(0).map({True: "at all, on the mean", False: "at all"})
    below = "below " + (100 * table["density"]).map("{:.3g} %".format)
    return (
        table.assign(
            measured=[
                f"{100 * low:g}–{plot.percent(high)}" for low, high in zip(table["from"], table["to"], strict=True)
            ],
            pays=below.mask(table["density"] == 0, "at none").mask(np.isinf(table["density"]), every),
            dense=table["estimated"].map({True: "partly estimated", False: "measured"}),
        )
        .groupby(["precision", "pattern", "measured", "pays", "dense"], sort=False)["columns"]
        .agg(lambda n: ", ".join(map(plot.number, n)))
        .reset_index()
    )


def payoff_table(origin: provenance.Origin) -> pd.DataFrame | None:
    """Return what preparation costs and after how many multiplications it has paid; None where nothing was recorded."""
    df = pd.DataFrame() if origin.folder is None else landscape.payoffs(origin.folder)
    if df.empty:
        return None
    return df.assign(
        where=df["precision"] + ", " + df["matrices"].astype(str),
        pays=df["pays"].map("{:.0%} of the points".format),
        multiplications=_count(df),
    )


def dense_table(df: pd.DataFrame) -> pd.DataFrame | None:
    """Return after how many multiplications preparation has paid against dense, by pattern.

    None where there is nothing.
    """
    if df.empty:
        return None
    table = landscape.against_dense(df)
    pays = list(map("{:.0%} of {} points".format, table["pays"], table["points"]))
    return table.assign(density=table["density"].map(plot.percent), pays=pays, multiplications=_count(table))


def _count(df: pd.DataFrame) -> pd.Series:
    return df["multiplications"].clip(lower=1).round()


# ---------------------------------------------------------------- the advice


def advice_facts(found: list[tuple[Pool, pd.DataFrame]]) -> Iterator[Fact]:
    """Yield how good the advice from each pool is, and whether that reaches the bar.

    Beside it stands the one contender that is always taken. found: pools with `model.evaluate` of them.
    """
    yield from flat(
        {
            "bar": BAR,
            "within": model.GOOD - 1,
            "good": "; ".join(f"{pool.about.precision} {model.good(df):.0%}" for pool, df in found),
        }
    )
    for pool, df in found:
        about, good, (low, high) = pool.about, model.good(df), model.off(df)
        told = {
            "precision": about.precision,
            "room": about.room,
            "experiment": about.experiment,
            "matrices": df["label"].nunique(),
            "points": len(df),
            "good": good,
            "worst": df["ratio"].max(),
            "speed": records.geomean(1 / df["ratio"]),
            "widths": "/".join(map(str, sorted(set(df["n"])))),
            "verdict": "reaches" if good >= BAR else "misses",
            "always": dict([model.always(pool)]),
            "off": {"low": low, "high": high},
        }
        yield from flat({f"advice.{about.room}/{about.experiment}": told})


def evaluated(origin: provenance.Origin) -> list[tuple[Pool, pd.DataFrame]]:
    """Return every pool with `model.evaluate` of it."""
    return [(pool, model.evaluate(pool)) for pool in pools(origin)]


def left_out(found: Sequence[tuple[Pool, pd.DataFrame]]) -> tuple[Any, pd.DataFrame] | None:
    """Draw how good the advice is: its time over the best one's at every point, a row for each pool. (fig, data)

    found: pools with `model.evaluate` of them; None without any.
    """
    if not found:
        return None
    data = pd.concat(
        [
            df.assign(
                precision=pool.about.precision,
                advice=f"{pool.about.precision}, {df['label'].nunique()} matrices: {model.good(df):.0%} of {len(df)}",
            )
            for pool, df in found
        ],
        ignore_index=True,
    )
    return charts.boxes(
        data,
        charts.About({"ratio": "time over the best one's"}),
        x="ratio",
        y="advice",
        scale="ratio",
        reference=model.GOOD,
        height=0.8,
    ), data.drop(columns="advice")


def weights(found: list[tuple[Pool, pd.DataFrame]]) -> pd.DataFrame | None:
    """Return what the expected time of the kernel that is advised most often is made of: µs for a unit of each term."""
    table = pd.DataFrame({"for": list(model.TERMS.values())})
    for pool, evaluated in found:
        fitted, most = model.fit(pool), evaluated["advised"].mode().iloc[0]
        table[f"{style.name(most)}, {pool.about.precision}: µs"] = [
            f"{weight:.3g}" if weight > 0 else "" for weight in fitted.weights[fitted.variants.index(most)]
        ]
    return table if found else None


def mesh(side: int) -> csr.Csr:
    """Make a matrix that everybody can make: the five-point stencil on a grid of side × side."""
    one = scipy.sparse.diags_array([1.0, 1, 1], offsets=[-1, 0, 1], shape=(side, side), format="csr")
    eye = scipy.sparse.eye_array(side, format="csr")
    return csr.from_scipy(scipy.sparse.csr_array(scipy.sparse.kron(one, eye) + scipy.sparse.kron(eye, one)))


def example(origin: provenance.Origin, n: int, side: int = 150) -> str:
    """Return what the command prints of `mesh`, as a block of text in Markdown; nothing without records."""
    if origin.folder is None or not pools(origin):
        return ""
    answer = model.advise(mesh(side), n, origin.folder, pools(origin)[0].about.precision, "mesh")
    lines = model.lines(answer, origin.folder.name)
    folded = "\n".join(textwrap.fill(line, 100) if len(line) > 100 else line for line in lines)
    return f"```text\n{folded}\n```"
