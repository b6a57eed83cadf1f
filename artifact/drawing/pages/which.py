"""The page on which kernel for which matrix, and the map on the front page: tables, and the facts of the text."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse

from artifact.book import text
from artifact.book.facts import Fact, each, flat, under
from artifact.drawing import plot, prose, style
from artifact.measure import records
from artifact.which import advice, atlas, model
from artifact.which import pool as pools_
from artifact.which.pool import Pool
from kernels.formats import csr

#: Of all points, how many the advice should be good at.
BAR = 0.9
#: Blocks of the text that say what the map shows.
MAP = ("map", "map_lone", "map_real")


def points(origin: prose.Origin) -> pd.DataFrame:
    """Return `atlas.points` of a page's records that can be compared with dense; empty without any."""
    if origin.folder is None:
        return pd.DataFrame(columns=list(atlas.COLUMNS))
    return atlas.points(origin.folder).dropna(subset="speedup")


def pools(origin: prose.Origin) -> list[Pool]:
    """Return the pools of a page's records."""
    return [] if origin.folder is None else pools_.pools(origin.folder)


def drawn(df: pd.DataFrame) -> tuple | None:
    """Draw the map, or None where there is nothing to draw."""
    return atlas.figure(df) if len(df) else None


def below_map(df: pd.DataFrame) -> dict[str, str]:
    """Return alternative text and caption of the map."""
    made = text.page("which")
    made.add(map_facts(df))
    said = " ".join(line[2:] for line in "\n".join(map(made, MAP)).splitlines() if line.startswith("- "))
    return {"alt": made("alt", [("said", said)]), "caption": made("caption")}


def map_facts(df: pd.DataFrame) -> Iterator[Fact]:
    """Yield of each pattern below which density sparse pays (inf: at all, 0: at none), or its speedup at the only density
    that it has; of real matrices at how many points it does."""
    table = atlas.crossings(df)
    for row in table[table["columns"] == 0].to_dict("records"):
        named = {key: row[key] for key in ("pattern", "precision", "behind")}
        ends = {"below": row["density"], "least": row["from"], "most": row["to"]}
        yield from each(f"map.{row['pattern']} {row['precision']}", named | ends)
    lone = df[df["pattern"] != atlas.REAL].groupby(["precision", "pattern"], sort=False)
    for (precision, pattern), some in lone:
        if some["density"].nunique() == 1:
            at = {"density": some["density"].iloc[0], "mean": records.geomean(some["speedup"])}
            yield from each(f"lone.{pattern} {precision}", {"pattern": pattern, "precision": precision} | at)
    yield from _real(df)


def _real(df: pd.DataFrame) -> Iterator[Fact]:
    for precision, some in df[df["pattern"] == atlas.REAL].groupby("precision", sort=False):
        yield from under(f"real.{precision}", faster=int((some["speedup"] > 1).sum()), points=len(some))


def of_room(gpu_folder: Path, room: str) -> str:
    """Say when the format of a room is worth using, by its records in `gpu_folder`: at which densities it is ahead of a
    dense multiplication and by how much, after how many multiplications that has paid for its preparation, and how real
    matrices fare."""
    df = atlas.points(gpu_folder)
    df = df[df["room"] == room].dropna(subset="speedup")
    made = text.page("which")
    made.add(_real(df))
    pays = atlas.against_dense(df).groupby(["precision", "pattern"])["multiplications"].agg(["min", "max"])
    made_here = df[df["pattern"] != atlas.REAL].groupby(["precision", "pattern"], sort=False)
    for (precision, pattern), some in made_here:
        means = some.groupby("density")["speedup"].agg(records.geomean).sort_index()
        low, high = (max(1, end) for end in pays.loc[(precision, pattern)])
        told: dict[str, Any] = {
            "pattern": pattern,
            "precision": precision,
            "guessed": (some["dense"] == "").any(),
            "ahead": (some["speedup"] > 1).sum(),
            "points": len(some),
            "means": text.at({plot.percent(density): speed for density, speed in means.items()}),
        }
        several = {
            "below": atlas.crossing(means) if len(means) > 1 else None,
            "least": means.index[0],
            "most": means.index[-1],
            "behind": (some["speedup"] < 1).sum(),
        }
        after = {"least": low, "most": high} if pays.loc[(precision, pattern)].notna().all() else {}
        made.add(flat({"here": {f"{pattern} {precision}": told | {"paid": after} | several}}))
    return made("here") if len(df) else made("nothing")


# ---------------------------------------------------------------- tables


def crossing_table(df: pd.DataFrame) -> pd.DataFrame | None:
    """Return where sparse begins to pay, by pattern and N; None where there is nothing to say."""
    table = atlas.crossings(df)
    if table.empty:
        return None
    table = table[table["columns"] > 0]
    every = table["behind"].gt(0).map({True: "at all, on the mean", False: "at all"})
    below = "below " + (100 * table["density"]).map("{:.3g} %".format)
    told = table.assign(
        measured=[f"{100 * low:g}–{plot.percent(high)}" for low, high in zip(table["from"], table["to"], strict=True)],
        pays=below.mask(table["density"] == 0, "at none").mask(np.isinf(table["density"]), every),
        dense=table["estimated"].map({True: "partly estimated", False: "measured"}),
    )
    key = ["precision", "pattern", "measured", "pays", "dense"]
    return told.groupby(key, sort=False)["columns"].agg(lambda n: ", ".join(map(plot.number, n))).reset_index()


def payoff_table(origin: prose.Origin) -> pd.DataFrame | None:
    """Return what preparation costs and after how many multiplications it has paid; None where nothing was recorded."""
    df = pd.DataFrame() if origin.folder is None else atlas.payoffs(origin.folder)
    if df.empty:
        return None
    where = df["precision"] + ", " + df["matrices"].astype(str)
    return df.assign(where=where, pays=df["pays"].map("{:.0%} of the points".format), multiplications=_count(df))


def dense_table(df: pd.DataFrame) -> pd.DataFrame | None:
    """Return after how many multiplications preparation has paid against dense, by pattern; None where there is
    nothing."""
    if df.empty:
        return None
    table = atlas.against_dense(df)
    pays = [f"{share:.0%} of {points} points" for share, points in zip(table["pays"], table["points"], strict=True)]
    return table.assign(density=table["density"].map(plot.percent), pays=pays, multiplications=_count(table))


def _count(df: pd.DataFrame) -> pd.Series:
    return df["multiplications"].clip(lower=1).round()


# ---------------------------------------------------------------- the advice


def advice_facts(found: list[tuple[Pool, pd.DataFrame]]) -> Iterator[Fact]:
    """Yield how good the advice from each pool is, beside the one contender that is always taken, and whether that
    reaches the bar. found: pools with `model.evaluate` of them."""
    yield from [("bar", BAR), ("within", model.GOOD - 1)]
    yield "good", "; ".join(f"{pool.about.precision} {model.good(df):.0%}" for pool, df in found)
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
            "widths": "/".join(map(str, sorted(set(df["n"])))),
            "verdict": "reaches" if good >= BAR else "misses",
            "always": dict([model.always(pool)]),
            "off": {"low": low, "high": high},
        }
        yield from each(f"advice.{about.room}/{about.experiment}", told)


def evaluated(origin: prose.Origin) -> list[tuple[Pool, pd.DataFrame]]:
    """Return every pool with `model.evaluate` of it."""
    return [(pool, model.evaluate(pool)) for pool in pools(origin)]


def weights(found: list[tuple[Pool, pd.DataFrame]]) -> pd.DataFrame | None:
    """Return what the expected time of the kernel that is advised most often is made of: µs for a unit of each term."""
    columns = {}
    for pool, evaluated in found:
        fitted, most = model.fit(pool), evaluated["advised"].mode().iloc[0]
        mine = fitted.weights[fitted.variants.index(most)]
        cells = [f"{weight:.3g}" if weight > 0 else "" for weight in mine]
        columns[f"{style.name(most)}, {pool.about.precision}: µs"] = cells
    return pd.DataFrame({"for": list(model.TERMS.values()), **columns}) if columns else None


def mesh(side: int) -> csr.Csr:
    """Make a matrix that everybody can make: the five-point stencil on a grid of side × side."""
    one = scipy.sparse.diags_array([1.0, 1, 1], offsets=[-1, 0, 1], shape=(side, side), format="csr")
    eye = scipy.sparse.eye_array(side, format="csr")
    return csr.from_scipy(scipy.sparse.csr_array(scipy.sparse.kron(one, eye) + scipy.sparse.kron(eye, one)))


def example(origin: prose.Origin, n: int, side: int = 150) -> str:
    """Return what the command prints of `mesh`, as a block of text in Markdown; nothing without records."""
    if not pools(origin):
        return ""
    answer = advice.advise(mesh(side), n, origin.folder, pools(origin)[0].about.precision, "mesh")
    lines = advice.lines(answer, origin.folder.name)
    folded = "\n".join(textwrap.fill(line, 100) if len(line) > 100 else line for line in lines)
    return f"```text\n{folded}\n```"
