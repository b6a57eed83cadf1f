"""Fresh records against the shipped ones: do they agree, and what still holds on another GPU?

Absolute times move by a few per cent from machine to machine, so the speedups over the library,
taken in one run, are held to the narrower tolerance. On a GPU of another kind times say nothing
about each other: there the speedups are shown side by side and the claims decide. Where the two have
too little in common to say that they agree, that is bad input.

Beside a verdict that is not the same on both stand both values, the ratio of the times of each contender that the claim
names, and the ratios of all ceilings.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from artifact.measure import records
from artifact.verdicts import evidence, judge, load, measures
from kernels.contract import require

SPEEDUP_TOLERANCE = 0.05  #: median difference of the speedups of a variant in an experiment
TIME_TOLERANCE = 0.10  #: the same of its times
#: Share of the shipped rows, and on another GPU of the shipped verdicts, that the fresh side must have.
COVERAGE = 0.5
#: Prefixes of what speedups are over: the first that was measured.
BASELINES = ("cusparse", "cublas")
AGREE, DIFFER, BAD_INPUT = 0, 1, 2  #: exit codes
SIDES = ("fresh", "shipped")
_POINT = ["room", "experiment", *records.POINT]

#: What two verdicts rest on.
OWN, NO_GPU, TWO_KINDS = "own records", "no GPU", "two kinds of evidence"


@dataclass(frozen=True)
class Comparison:
    """fresh and shipped are the GPUs' names. Ratios are fresh over shipped.

    points: experiment, variant, POINT, median_us_fresh, median_us_shipped, time_ratio, and, where
    there is a baseline, speedup_fresh, speedup_shipped and speedup_ratio. summary: one row per
    experiment and variant with the medians of these ratios and `agrees`. verdicts: one row per claim: id, system, says,
    aside, of each side its verdict, `_measured` and `_value`, agrees; basis: what the two rest on, OWN, NO_GPU or
    TWO_KINDS where both are given; times: name -> ratio of the times of each contender that the claim names. covered:
    of the `total` points (shapes and densities) of the shipped records, those that the fresh ones have too. ceilings:
    of each that both have, the ratio of its rates. same_gpu: both sides are of one kind of GPU. agrees: on the same GPU
    every experiment and variant is within tolerance; on another every verdict is the same that both could give, which
    are enough.
    """

    fresh: str
    shipped: str
    points: pd.DataFrame
    summary: pd.DataFrame
    verdicts: pd.DataFrame
    covered: int
    total: int
    same_gpu: bool
    agrees: bool
    ceilings: Mapping[str, float] = field(default_factory=dict)


def compare(
    fresh: str | Path,
    shipped: str | Path,
    system: str | None = None,
    speedup_tolerance: float = SPEEDUP_TOLERANCE,
    time_tolerance: float = TIME_TOLERANCE,
) -> Comparison:
    """Compare two GPUs' folders, all systems that both have or just `room`.

    Raises FileNotFoundError or ValueError, one sentence, if a folder has no records, a record is
    not valid or not complete, or the two have too little in common (COVERAGE).
    """
    sides = fresh, shipped = Path(fresh), Path(shipped)
    tolerances = {"time": time_tolerance, "speedup": speedup_tolerance}
    for tolerance in tolerances.values():
        require(tolerance > 0, f"A tolerance must be a positive number, not {tolerance}.")
    for folder in sides:
        none = f"{folder}: there are no records of any system; `make measure` makes them."
        require(records.systems(folder), none, FileNotFoundError)
    both = [name for name in records.systems(fresh) if name in records.systems(shipped) and name != evidence.CEILINGS]
    systems = [name for name in both if system in (None, name)]
    which, known = f"The system {system!r} has no" if system else "No system has", ", ".join(both) or "none"
    require(systems, f"{which} records on both sides; those that have: {known}.")
    gpus = [[records.read_machine(side / name) for name in systems][0]["gpu"] for side in sides]
    every = [system] if system else [name for name in records.systems(shipped) if name != evidence.CEILINGS]
    total = _rows(shipped, [(name, experiment) for name in every for experiment in records.experiments(shipped / name)])
    rows, key = total[total["room"].isin(systems)], ["variant", *_POINT]
    common = [
        (name, e)
        for name in systems
        for e in sorted({*records.experiments(fresh / name)} & {*records.experiments(shipped / name)})
    ]
    one, other = (_rows(side, common, _timed)[[*key, "median_us", "speedup"]] for side in sides)
    points = one.merge(other, on=key, suffixes=[f"_{side}" for side in SIDES])
    points["time_ratio"] = points["median_us_fresh"] / points["median_us_shipped"]
    points["speedup_ratio"] = points["speedup_fresh"] / points["speedup_shipped"]
    shared = int((~points["variant"].isin([f"{name}_best" for name in BASELINES])).sum())
    _enough(shared, len(rows), f"{fresh} has", f"rows of {', '.join(systems)} in {shipped}", "`make measure` measures")
    mine = [claim for claim in load.claims() if claim.room in systems]
    each = dict(zip(SIDES, (judge.kept(mine, side) for side in sides), strict=True))
    names = {"verdict": "{}", "measured": "{}_measured", "value": "{}_value"}
    of_sides = {name.format(side): own[key] for side, own in each.items() for key, name in names.items()}
    verdicts = each["fresh"][["id", "room", "says", "aside"]].assign(**of_sides)
    verdicts = verdicts.assign(
        agrees=agreeing(verdicts),
        basis=list(map(_basis, each["fresh"]["rests"], each["shipped"]["rests"])),
        times=[_times(claim, points) for claim in mine],
    )
    same_gpu = gpus[0] == gpus[1]
    if not same_gpu:
        known = verdicts[~verdicts["shipped"].isin(measures.OPEN)]
        given, how = int((~known["fresh"].isin(measures.OPEN)).sum()), "`make measure` and `make profile` measure"
        _enough(given, len(known), f"{fresh} gives", f"verdicts that {shipped} gives", how)
    (ours, theirs), summary = map(records.ceilings, sides), _summary(points, tolerances, same_gpu)
    return Comparison(
        fresh=gpus[0],
        shipped=gpus[1],
        points=points,
        summary=summary,
        verdicts=verdicts,
        covered=len(points[_POINT].drop_duplicates()),
        total=len(total[_POINT].drop_duplicates()),
        same_gpu=same_gpu,
        agrees=bool((summary if same_gpu else verdicts)["agrees"].all()),
        ceilings={
            name: ours[name][unit] / theirs[name][unit]
            for name in ours
            for unit in ("gbps", "tflops")  # of what has both, its arithmetic
            if theirs.get(name, {}).get(unit) and ours[name][unit]
        },
    )


def _enough(have: int, of: int, who: str, what: str, how: str) -> None:
    """Raise ValueError if fresh records have too few of what the shipped ones have."""
    said = f"{who} only {have} of the {of} {what}, too few to say whether they agree; {how} the rest."
    require(have >= COVERAGE * of, said)


def _rows(folder: Path, places: Iterable[tuple[str, str]], read: Callable = records.read) -> pd.DataFrame:
    """Return every row of these experiments, (system, name) each, as `read` gives them."""
    made = [read(folder / system / f"{experiment}.csv") for system, experiment in places]
    return pd.concat(made or [pd.DataFrame(columns=["variant", *_POINT, "median_us", "speedup"])], ignore_index=True)


def _timed(path: Path) -> pd.DataFrame:
    """Return a record with the speedup of each row over the library's fastest, NaN where there is none."""
    df = records.complete(records.read(path), path)
    library = next((b for b in BASELINES if df["variant"].str.startswith(b).any()), "")
    df = records.best_of(df, library, f"{library}_best") if library else df
    best = df[df["variant"] == f"{library}_best"].set_index(list(records.POINT))["median_us"]
    return df.assign(
        speedup=best.reindex(pd.MultiIndex.from_frame(df[list(records.POINT)])).to_numpy() / df["median_us"].to_numpy()
    )


def _summary(points: pd.DataFrame, tolerances: Mapping[str, float], same_gpu: bool) -> pd.DataFrame:
    """Return the medians of the ratios of each contender of each experiment, and whether they are within tolerance."""
    # The median of the differences, not the difference of the medians: errors of both signs do not cancel.
    off = points.assign(**{what: (points[f"{what}_ratio"] - 1).abs() for what in tolerances})
    medians, means = ("time_ratio", "speedup_ratio", *tolerances), [f"speedup_{side}" for side in SIDES]
    table = off.groupby(["room", "experiment", "variant"], sort=False).agg(
        points=("variant", "size"),
        **{column: (column, "median") for column in medians},
        **{column: (column, lambda v: np.exp(np.log(v.astype(float)).mean())) for column in means},
    )
    apart = table[list(tolerances)] > pd.Series(tolerances)
    return (
        table.drop(columns=list(tolerances))
        .assign(agrees=~(apart["speedup"] | (apart["time"] & same_gpu)))
        .reset_index()
    )


def _basis(here: tuple[str, ...], there: tuple[str, ...]) -> str:
    """Return what two verdicts rest on: no record of a GPU, as the source's own series or a program."""
    if all(evidence.SERIES in name for name in (*here, *there)):
        return NO_GPU
    return TWO_KINDS if (records.COUNTERS in here) != (records.COUNTERS in there) else OWN


def _times(claim: load.Claim, points: pd.DataFrame) -> dict[str, float]:
    """Return the ratio of the times of each contender that a claim names.

    It is the geometric mean over the points of its experiments.
    """
    df = points[(points["room"] == claim.room) & points["experiment"].isin(claim.experiment)]
    found = df[df["variant"].isin(claim.rule.named)].groupby("variant")["time_ratio"].agg(records.geomean)
    return {name: float(found[name]) for name in claim.rule.named if name in found}


def agreeing(verdicts: pd.DataFrame) -> pd.Series:
    """Whether the columns fresh and shipped say the same, or one of them cannot say."""
    return (verdicts["fresh"] == verdicts["shipped"]) | verdicts[[*SIDES]].isin(measures.OPEN).any(axis=1)


def counted(verdicts: pd.DataFrame) -> dict[str, Any]:
    """Count the verdicts that are given on both sides, apart by what they rest on.

    own: on records of both GPUs; kept: of these, the same; no_gpu: on no record of a GPU, which cannot differ;
    two_kinds: ids of those of `own` that are judged by counters on one side alone.
    """
    given = verdicts[~verdicts[["fresh", "shipped"]].isin(measures.OPEN).any(axis=1)]
    own = given[given["basis"] != NO_GPU]
    return {
        "own": len(own),
        "kept": int(own["agrees"].sum()),
        "no_gpu": len(given) - len(own),
        "two_kinds": tuple(own.loc[own["basis"] == TWO_KINDS, "id"]),
    }


def report(comparison: Comparison) -> str:
    """Return the comparison as plain text for a terminal."""
    c, n = comparison, counted(comparison.verdicts)
    table = c.summary.assign(agrees=c.summary["agrees"].map({True: "yes", False: "NO"}))
    shown = table if c.same_gpu else table.drop(columns=["time_ratio", "agrees"])
    changes = [
        f"  {row.id}: shipped {row.shipped} ({row.shipped_measured}),\n    fresh {row.fresh} ({row.fresh_measured})"
        + "\n    times fresh over shipped: " * bool(row.times)
        + ", ".join(f"{name} {ratio:.2f}×" for name, ratio in row.times.items())
        for row in c.verdicts[c.verdicts["fresh"] != c.verdicts["shipped"]].itertuples()
    ]
    parts = {
        f"fresh: {c.fresh}    shipped: {c.shipped}    "
        f"the fresh records cover {c.covered} of the {c.total} shipped points\n": True,
        "Different GPUs: times are not held against each other, the claims decide.\n": not c.same_gpu,
        shown.to_string(index=False, float_format="{:.3f}".format, na_rep="-") + "\n": True,
        f"Claims: of {n['own']} that the records of both decide {n['kept']} have the same verdict, and "
        f"{n['no_gpu']} that no GPU decides.": len(c.verdicts),
        "\n".join(changes): changes,
        "The GPU is the same: the tolerances decide, not the verdicts.": c.same_gpu and not c.verdicts["agrees"].all(),
        "\nThe records agree." if c.agrees else "\nThe records DIFFER.": True,
    }
    return "\n".join(text for text, holds in parts.items() if holds)
