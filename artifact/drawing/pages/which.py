"""The page on which kernel for which matrix, and the map on the front page: tables, and the facts of the text."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse
from matplotlib import pyplot as plt
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

from artifact.book import text
from artifact.book.facts import Fact, each, under
from artifact.drawing import plot, prose, sketch, style
from artifact.drawing.prose import captioned
from artifact.drawing.words import listed
from artifact.measure import records
from artifact.which import advice, atlas, model
from artifact.which import pool as pools_
from artifact.which.pool import PRECISIONS, Pool
from kernels.formats import csr

#: Of all points, how many the advice should be good at.
BAR = 0.9
#: What the front page says in place of the map.
NOTHING = "There are no records yet from which a map could be drawn."
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


def points(origin: prose.Origin) -> pd.DataFrame:
    """`atlas.points` of a page's records that can be compared with dense; empty without any."""
    if origin.folder is None:
        return pd.DataFrame(columns=list(atlas.COLUMNS))
    return atlas.points(origin.folder).dropna(subset="speedup")


def pools(origin: prose.Origin) -> list[Pool]:
    return [] if origin.folder is None else pools_.pools(origin.folder)


def drawn(df: pd.DataFrame) -> tuple[Any, pd.DataFrame] | None:
    """The map: speedup over dense by density, a panel for each precision. Lines are geometric means over sizes, bands
    their range; dots are real matrices, in the colour of their fastest format; hollow is over an estimate. (fig, data)

    df: `points`. None where nothing can be compared with dense.
    """
    df = df.dropna(subset="speedup")
    shown = [p for p in PRECISIONS if (df["precision"] == p).any()]
    if not shown:
        return None
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
        real = here[here["pattern"] == atlas.REAL]
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
        for pattern, rows in here[here["pattern"] != atlas.REAL].groupby("pattern", sort=False):
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
    at = atlas.crossing(mean)
    if 0 < at < 1:
        text = f"{at:.0%}" if at >= 0.1 else f"{at:.1%}"
        sketch.put(ax, at / 1.3, 0.72, text, fontsize=8.5, color=colour, ha="right", weight="bold")
        ax.plot([at], [1], "x", color=colour, markersize=6)
    return Line2D([], [], color=colour, marker=MARKS[pattern], markersize=5)


def below_map(df: pd.DataFrame) -> dict[str, str]:
    """Alternative text and caption of the map."""
    made = text.page("which")
    made.add(map_facts(df))
    told = "\n".join(map(made, MAP)).splitlines()
    said = " ".join(line.removeprefix("- ") for line in told if line.startswith("- "))
    return {
        "alt": f"Speedup of the fastest sparse kernel over dense, by share of non-zeros, for each precision. {said}",
        "caption": "Speedup of the fastest sparse kernel, ours or a library's, over a dense multiplication of the same sizes and "
        "precision. Lines are geometric means over sizes, bands their range, crosses where sparse begins to pay. Hollow: the "
        "dense time is estimated from measured rates, as dense was not measured beside. Preparation is not in these times.",
    }


def map_facts(df: pd.DataFrame) -> Iterator[Fact]:
    """Yield of each pattern below which density sparse pays (inf: at all, 0: at none), or its speedup at the only density
    that it has; of real matrices at how many points it does."""
    table = atlas.crossings(df)
    for row in table[table["columns"] == 0].to_dict("records"):
        name = f"map.{row['pattern']} {row['precision']}"
        yield from under(name, pattern=row["pattern"], precision=row["precision"], behind=row["behind"])
        yield from under(name, below=row["density"], least=row["from"], most=row["to"])
    lone = df[df["pattern"] != atlas.REAL].groupby(["precision", "pattern"], sort=False)
    for (precision, pattern), some in lone:
        if some["density"].nunique() == 1:
            density, mean = some["density"].iloc[0], records.geomean(some["speedup"])
            yield from under(
                f"lone.{pattern} {precision}", pattern=pattern, precision=precision, density=density, mean=mean
            )
    for precision, some in df[df["pattern"] == atlas.REAL].groupby("precision", sort=False):
        yield from under(f"real.{precision}", faster=int((some["speedup"] > 1).sum()), points=len(some))


def of_room(gpu_folder: Path, room: str) -> str:
    """When the format of a room is worth using, by its records in `gpu_folder`, in a paragraph of Markdown: at which
    densities it is ahead of a dense multiplication and by how much, after how many multiplications that has paid for
    its preparation, and how real matrices fare."""
    df = atlas.points(gpu_folder)
    df = df[df["room"] == room].dropna(subset="speedup")
    if df.empty:
        return "Where it is ahead of a dense multiplication is not measured yet."
    pays = atlas.against_dense(df).set_index(["precision", "pattern"])["multiplications"].dropna()
    told = []
    made = df[df["pattern"] != atlas.REAL]
    for (precision, pattern), some in made.groupby(["precision", "pattern"], sort=False):
        means = some.groupby("density")["speedup"].agg(records.geomean).sort_index()
        each = listed(f"{speed:.2f}× at {plot.percent(d)}" for d, speed in means.items())
        ahead = f"{(some['speedup'] > 1).sum()} of {len(some)} points"
        guessed = " (partly an estimate)" if (some["dense"] == "").any() else ""
        text = (
            f"*{pattern}* in {precision}: the fastest sparse contender is ahead of a dense multiplication{guessed} "
            f"at {ahead}; its speed over dense is {each}, in the geometric mean"
        )
        if len(means) > 1:
            behind = int((some["speedup"] < 1).sum())
            text += f", so that {_pays(atlas.crossing(means), means.index[0], means.index[-1], behind)}"
        if (precision, pattern) in pays.index:
            counts = pays.loc[[(precision, pattern)]]
            low, high = (f"{v:.0f}" for v in (max(1, counts.min()), max(1, counts.max())))
            after = low if low == high else f"{low} to {high}"
            text += f". Where it is ahead, preparing the operand has paid after {after} multiplications (medians)"
        told.append(f"{text}.")
    for precision, some in df[df["pattern"] == atlas.REAL].groupby("precision", sort=False):
        told.append(
            f"Real matrices in {precision}: {(some['speedup'] > 1).sum()} of {len(some)} points are ahead of what a dense "
            "multiplication would take."
        )
    return "\n".join(f"- {text}" for text in told)


def _pays(density: float, least: float, most: float, behind: int) -> str:
    if density == np.inf:
        pays = f"sparse pays at every density that was measured, up to {plot.percent(most)}"
        return f"on the mean {pays}" if behind else pays
    if density == 0:
        return f"sparse does not pay at any density that was measured, from {plot.percent(least)} on"
    return f"sparse pays below {100 * density:.3g} %"


@captioned("From which share of non-zeros on sparse pays, by pattern and N.")
def crossing_table(df: pd.DataFrame) -> pd.DataFrame | None:
    """Where sparse begins to pay, by pattern and N; None where there is nothing to say."""
    table = atlas.crossings(df)
    if table.empty:
        return None
    rows: dict[tuple, list[str]] = {}
    for row in table[table["columns"] > 0].itertuples(index=False):
        every = "at all, on the mean" if row.behind else "at all"
        pays = {np.inf: every, 0.0: "at none"}.get(row.density, f"below {100 * row.density:.3g} %")
        measured = f"{100 * row._4:g}–{plot.percent(row.to)}"
        dense = "partly estimated" if row.estimated else "measured"
        key = (row.precision, row.pattern, measured, pays, dense)
        rows.setdefault(key, []).append(plot.number(row.columns))
    return pd.DataFrame(
        {
            "precision": precision,
            "pattern": pattern,
            "N": ", ".join(n),
            "measured": measured,
            "sparse pays": pays,
            "dense": dense,
        }
        for (precision, pattern, measured, pays, dense), n in rows.items()
    )


@captioned("What preparing costs, and after how many multiplications it has paid.")
def payoff_table(origin: prose.Origin) -> pd.DataFrame | None:
    """What preparation costs and after how many multiplications it has paid; None where nothing was recorded."""
    df = pd.DataFrame() if origin.folder is None else atlas.payoffs(origin.folder)
    if df.empty:
        return None
    return pd.DataFrame(
        {
            "precision, matrices": f"{row.precision}, {row.matrices}",
            "contender": style.name(row.variant),
            "A as": row.format,
            "preparation (ms, median)": f"{row.prepare_ms:.3g}",
            "pays at": f"{row.pays:.0%} of the points",
            "after multiplications (median)": _count(row.multiplications),
        }
        for row in df.itertuples(index=False)
    )


@captioned("After how many multiplications preparing has paid against the dense product.")
def dense_table(df: pd.DataFrame) -> pd.DataFrame | None:
    """After how many multiplications preparation has paid against dense, by pattern; None where there is nothing."""
    if df.empty:
        return None
    return pd.DataFrame(
        {
            "precision": row.precision,
            "pattern": row.pattern,
            "density": plot.percent(row.density),
            "sparse is faster at": f"{row.pays:.0%} of {row.points} points",
            "preparation (ms, median)": "" if np.isnan(row.prepare_ms) else f"{row.prepare_ms:.3g}",
            "after multiplications (median)": _count(row.multiplications),
        }
        for row in atlas.against_dense(df).itertuples(index=False)
    )


def _count(multiplications: float) -> str:
    return "" if np.isnan(multiplications) else plot.number(round(max(multiplications, 1)))


# ---------------------------------------------------------------- the advice


def advice_facts(found: list[tuple[Pool, pd.DataFrame]]) -> Iterator[Fact]:
    """Yield how good the advice from each pool is, beside the one contender that is always taken, and whether that
    reaches the bar. found: pools with `model.evaluate` of them."""
    yield from [("bar", BAR), ("within", model.GOOD - 1)]
    for pool, df in found:
        about, good, (low, high) = pool.about, model.good(df), model.off(df)
        name = f"advice.{about.room}/{about.experiment}"
        yield from under(name, precision=about.precision, room=about.room, experiment=about.experiment)
        yield from under(name, matrices=df["label"].nunique(), points=len(df), good=good, worst=df["ratio"].max())
        yield from under(name, widths="/".join(map(str, sorted(set(df["n"])))))
        yield from under(name, verdict="reaches" if good >= BAR else "misses")
        yield from each(f"{name}.always", dict([model.always(pool)]))
        yield from under(f"{name}.off", low=low, high=high)


def evaluated(origin: prose.Origin) -> list[tuple[Pool, pd.DataFrame]]:
    """Every pool with `model.evaluate` of it."""
    return [(pool, model.evaluate(pool)) for pool in pools(origin)]


def left_out(found: Sequence[tuple[Pool, pd.DataFrame]]):
    """How good the advice is: its time over the best one's at every point, sorted, a panel for each pool. (fig, data)

    found: pools with `model.evaluate` of them.
    """
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


def below_left_out(found: list[tuple[Pool, pd.DataFrame]]) -> dict[str, str]:
    shares = "; ".join(f"{p.about.precision} {model.good(e):.0%}" for p, e in found)
    return {
        "alt": f"Time of the advised kernel over the best one's, each matrix left out in turn. Good advice: {shares}.",
        "caption": "Time of the advised kernel over that of the fastest of all, with each matrix left out in turn, in the order of "
        "that ratio. Below the dashed line the advice counts as good.",
    }


@captioned("What the expected time of a kernel is made of: microseconds for a unit of each term.")
def weights(found: list[tuple[Pool, pd.DataFrame]]) -> pd.DataFrame | None:
    """What the expected time of the kernel that is advised most often is made of: µs for a unit of each term."""
    columns = {}
    for pool, evaluated in found:
        fitted, most = model.fit(pool), evaluated["advised"].mode().iloc[0]
        mine = fitted.weights[fitted.variants.index(most)]
        cells = [f"{weight:.3g}" if weight > 0 else "" for weight in mine]
        columns[f"{style.name(most)}, {pool.about.precision}: µs"] = cells
    if not columns:
        return None
    return pd.DataFrame({"for": list(model.TERMS.values()), **columns})


def mesh(side: int) -> csr.Csr:
    """A matrix that everybody can make: the five-point stencil on a grid of side × side."""
    one = scipy.sparse.diags_array([1.0, 1, 1], offsets=[-1, 0, 1], shape=(side, side), format="csr")
    eye = scipy.sparse.eye_array(side, format="csr")
    return csr.from_scipy(scipy.sparse.csr_array(scipy.sparse.kron(one, eye) + scipy.sparse.kron(eye, one)))


def example(origin: prose.Origin, n: int, side: int = 150) -> str:
    """What the command prints of `mesh`, as a block of text in Markdown; nothing without records."""
    if not pools(origin):
        return ""
    answer = advice.advise(mesh(side), n, origin.folder, pools(origin)[0].about.precision, "mesh")
    lines = advice.lines(answer, origin.folder.name)
    folded = "\n".join(textwrap.fill(line, 100) if len(line) > 100 else line for line in lines)
    return f"```text\n{folded}\n```"
