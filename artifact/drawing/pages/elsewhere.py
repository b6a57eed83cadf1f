"""The page that holds two GPUs' records, or two measurements on one, against each other: the picture of `make compare`."""

import importlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from artifact import paths, registry
from artifact.book import charts, text
from artifact.book.facts import Fact, flat
from artifact.drawing import provenance, style
from artifact.measure import records
from artifact.verdicts import compare, judge, measures
from kernels import jit
from kernels.library import routes

LEDGER = "ledger.html"
#: Ceilings whose ratio the figure has as a line, if it is further from 1 than APART.
LINES = {"copy": "memory", "l2_read": "L2"}
APART = 0.05
#: What each panel shows: column of the data -> its title.
PANELS = {"faster": "speed", "gain": "speedup over the library"}


# ---------------------------------------------------------------- what runs on which


def multiplied() -> pd.DataFrame:
    """Return a row for each format and dtype of B, a column for all families of GPUs that get the same in every row."""
    rows = routes.table()
    columns: dict[tuple[str, ...], list[str]] = {}
    for family in routes.FAMILIES:
        columns.setdefault(tuple(row[family.name] for row in rows.values()), []).append(family.name)
    return pd.DataFrame(list(rows), columns=["A", "B"]).assign(
        **{"; ".join(names): list(cells) for cells, names in columns.items()}
    )


def tried(root: Path = paths.RECORDED) -> pd.DataFrame:
    """Return a row for each family.

    Its GPUs, compute capability, what is compiled for it, and the GPUs of which there are records in a folder.
    """
    machines = [records.read_machine(root / gpu / records.systems(root / gpu)[0]) for gpu in records.list_gpus(root)]
    rows = []
    for family in routes.FAMILIES:
        capability = ".".join(map(str, family.compute_capability))
        here = text.listed(m["gpu"] for m in machines if str(m.get("compute_capability")) == capability)
        rows.append(
            (
                family.name,
                capability,
                f"`{jit.arch_of(family)}`",
                f"measured: {here}" if here else "compiled, never run",
            )
        )
    return pd.DataFrame(rows, columns=["GPUs", "compute capability", "target", "kernels"])


# ---------------------------------------------------------------- two GPUs against each other


def comparisons(found: Mapping[str, Path]) -> dict[str, compare.Comparison | str]:
    """Return name of each further GPU -> the first's records held against its own.

    A sentence where they have too little in common. found: `provenance.sides`.
    """
    made: dict[str, compare.Comparison | str] = {}
    for other, folder in list(found.items())[1:]:
        try:
            made[other] = compare.compare(next(iter(found.values())), folder)
        except ValueError as error:
            made[other] = str(error)
    return made


def start(found: Mapping[str, Path], made: Mapping[str, compare.Comparison | str]) -> Iterator[Fact]:
    """Yield the GPUs, and how many verdicts change between the first and any other."""
    whole = [c.verdicts for c in made.values() if isinstance(c, compare.Comparison)]
    return flat(
        {
            "gpus": text.listed(found),
            "changes": len({claim for df in whole for claim in df.loc[~df["agrees"], "id"]}),
            "large": provenance.LARGE,
        }
    )


def facts(c: compare.Comparison) -> Iterator[Fact]:
    """Yield what the figure shows, and what `make compare` ends with.

    What the two sides are called, how many points and verdicts they have in common.
    """
    df, sides = marks(c), dict(zip(compare.SIDES, titles(c), strict=True))
    n, counted = compare.counted(c.verdicts), compare.counted(judge.counted(c.verdicts))
    speeds = df.groupby("room", sort=False)["faster"].agg(median="median", low="min", high="max")
    gain, near = df["gain"].dropna(), compare.SPEEDUP_TOLERANCE
    missing = c.verdicts[list(sides)].isin(measures.OPEN)
    alone = {sides["fresh"]: missing["shipped"], sides["shipped"]: missing["fresh"]}
    return flat(
        {
            "first": sides["fresh"],
            "second": sides["shipped"],
            "covered": c.covered,
            "total": c.total,
            "contenders": len(c.summary),
            "off": int((~c.summary["agrees"]).sum()),
            "faster": {registry.find()[system].name: speed for system, speed in speeds.iterrows()},
            "gains": {"count": len(gain), "near": int((np.abs(gain - 1) <= near).sum()), "tolerance": near},
            "ceilings": {called: c.ceilings[name] for name, called in LINES.items() if name in c.ceilings},
            "rows": len(c.verdicts),
            "counted": {"count": counted["own"], "changed": counted["own"] - counted["kept"]},
            "own": {"count": n["own"], "kept": n["kept"], "share": n["kept"] / max(1, n["own"])},
            "no_gpu": n["no_gpu"],
            "two_kinds": text.part("links", n["two_kinds"], LEDGER) if n["two_kinds"] else "",
            "neither": int(missing.all(axis=1).sum()),
            "alone": {gpu: int((lacks & ~missing.all(axis=1)).sum()) for gpu, lacks in alone.items()},
            "changed": int((~c.verdicts["agrees"]).sum()),
        }
    )


def titles(c: compare.Comparison) -> tuple[str, str]:
    """Return what the two sides are called."""
    return (f"{c.fresh}, first", f"{c.shipped}, second") if c.same_gpu else (c.fresh, c.shipped)


def changes(c: compare.Comparison) -> pd.DataFrame | None:
    """Return the claims whose verdict changes, with what was measured on both GPUs.

    The ratios of the values and of the times of the contenders that they name are the first GPU's over the second's;
    None where there is none.
    """
    rows = [
        (
            text.part("worded", row.id, row.says, LEDGER),
            *(
                text.part("outcome", verdict, row.aside, measured)
                for verdict, measured in ((row.fresh, row.fresh_measured), (row.shipped, row.shipped_measured))
            ),
            row.fresh_value / row.shipped_value if row.shipped_value else np.nan,
            ", ".join(f"{style.name(name)} {ratio:.2f}×" for name, ratio in row.times.items()),
        )
        for row in c.verdicts[~c.verdicts["agrees"]].itertuples()
    ]
    return pd.DataFrame(rows, columns=["claim", *titles(c), "value", "times"]) if rows else None


def ceilings(c: compare.Comparison) -> pd.DataFrame:
    """Return the ratio of each ceiling that was measured on both, the first GPU's over the second's."""
    return pd.DataFrame(c.ceilings.items(), columns=["ceiling", "ratio"])


# ---------------------------------------------------------------- the figure


def figure(c: compare.Comparison) -> tuple[Any, pd.DataFrame] | None:
    """Draw a row for each system, a mark for each contender of each experiment.

    How many times as fast it is on the first GPU as on the second, and the same of its speedup over the library, where
    there is one. (fig, data).
    """
    if (df := marks(c)).empty:
        return None
    systems = df["room"].map({name: system.name for name, system in registry.find().items()})
    panels = [df.assign(system=systems, panel=panel, ratio=df[of], source="measured") for of, panel in PANELS.items()]
    lines = {called: c.ceilings[name] for name, called in LINES.items() if abs(c.ceilings.get(name, 1) - 1) > APART}
    tops = pd.DataFrame(
        [(charts.CEILING, called, panel, ratio) for called, ratio in lines.items() for panel in PANELS.values()],
        columns=["source", "system", "panel", "ratio"],
    )
    first, second = records.short_gpus(titles(c)).values()
    return charts.dots(
        pd.concat([*panels, *([tops] if len(tops) else [])]).dropna(subset="ratio"),
        charts.About({"ratio": f"{first} over {second}"}, col="panel"),
        x="ratio",
        y="system",
        hue="whose",
        scale="fine",
        reference=1,
        height=0.6,
    ), df


def marks(c: compare.Comparison) -> pd.DataFrame:
    """Return the data of `figure`.

    System, experiment, variant, whose, points, faster and gain, medians over the points.
    """
    df = c.summary[~c.summary["variant"].isin([f"{name}_best" for name in compare.BASELINES])]
    theirs = {
        (system, name)
        for system in df["room"].unique()
        for name, kernel in importlib.import_module(f"kernels.{system}").VARIANTS.items()
        if kernel.published
    }
    published = pd.Series(list(zip(df["room"], df["variant"], strict=True)), df.index).isin(theirs)
    kinds = {"libraries": df["variant"].str.startswith(registry.PREFIXES), "the source's kernels, rebuilt": published}
    return df.assign(
        whose=np.select([*kinds.values()], [*kinds], "ours"), faster=1 / df["time_ratio"], gain=df["speedup_ratio"]
    )[["room", "experiment", "variant", "whose", "points", *PANELS]].reset_index(drop=True)
