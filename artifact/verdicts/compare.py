"""Fresh records against the shipped ones: do they agree, and what still holds on another GPU?

Absolute times move by a few per cent from machine to machine, so the speedups over the library,
taken in one run, are held to the narrower tolerance. On a GPU of another kind times say nothing
about each other: there the speedups are shown side by side and the claims decide. Where the two have
too little in common to say that they agree, that is bad input.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd

from artifact.measure import records
from artifact.verdicts import causes, evidence, judge, load, measures

SPEEDUP_TOLERANCE = 0.05  #: median difference of the speedups of a variant in an experiment
TIME_TOLERANCE = 0.10  #: the same of its times
#: Share of the shipped rows, and on another GPU of the shipped verdicts, that the fresh side must have.
COVERAGE = 0.5
#: Prefixes of what speedups are over: the first that was measured.
BASELINES = ("cusparse", "cublas")
AGREE, DIFFER, BAD_INPUT = 0, 1, 2  #: exit codes
SIDES = ("fresh", "shipped")
_POINT = ["room", "experiment", *records.POINT]

#: basis: what the two verdicts rest on, one of BASES where both are given; lacks: what the records of one side do not
#: have where it gives none and the other does. cause and told: what moved where a verdict changes (`causes`), else "".
VERDICT_COLUMNS = (
    *("id", "room", "says", "fresh", "shipped", "fresh_measured", "shipped_measured", "agrees", "why"),
    *("basis", "lacks", "cause", "told"),
)
OWN, NO_GPU, TWO_KINDS = "own records", "no GPU", "two kinds of evidence"
BASES = (OWN, NO_GPU, TWO_KINDS)


@dataclass(frozen=True)
class Comparison:
    """fresh and shipped are the GPUs' names. Ratios are fresh over shipped.

    points: experiment, variant, POINT, median_us_fresh, median_us_shipped, time_ratio, and, where
    there is a baseline, speedup_fresh, speedup_shipped and speedup_ratio. summary: one row per
    experiment and variant with the medians of these ratios and `agrees`. verdicts: `VERDICT_COLUMNS`,
    one row per claim. covered: of the `total` points (shapes and densities) of the shipped records,
    those that the fresh ones have too. ceilings: of each that both have, the ratio of its rates.
    """

    fresh: str
    shipped: str
    points: pd.DataFrame
    summary: pd.DataFrame
    verdicts: pd.DataFrame
    covered: int
    total: int
    ceilings: Mapping[str, float] = field(default_factory=dict)

    @property
    def same_gpu(self) -> bool:
        return self.fresh == self.shipped

    @property
    def agrees(self) -> bool:
        """On the same GPU: every experiment and variant within tolerance. On another: every verdict
        the same that both could give, which are enough."""
        return bool(self.summary["agrees"].all() if self.same_gpu else self.verdicts["agrees"].all())

    @property
    def exit_code(self) -> int:
        return AGREE if self.agrees else DIFFER


def compare(
    fresh: str | Path,
    shipped: str | Path,
    room: str | None = None,
    speedup_tolerance: float = SPEEDUP_TOLERANCE,
    time_tolerance: float = TIME_TOLERANCE,
) -> Comparison:
    """Compare two GPUs' folders, all rooms that both have or just `room`.

    Raises FileNotFoundError or ValueError, one sentence, if a folder has no records, a record is
    not valid or not complete, or the two have too little in common (COVERAGE).
    """
    sides = fresh, shipped = Path(fresh), Path(shipped)
    tolerances = {"time": time_tolerance, "speedup": speedup_tolerance}
    for tolerance in tolerances.values():
        if not tolerance > 0:
            raise ValueError(f"A tolerance must be a positive number, not {tolerance}.")
    for folder in sides:
        if not records.rooms(folder):
            raise FileNotFoundError(f"{folder}: there are no records of any room; `make measure` makes them.")
    common = [name for name in records.rooms(fresh) if name in records.rooms(shipped) and name != evidence.CEILINGS]
    rooms = [name for name in common if room in (None, name)]
    if not rooms:
        which, known = f"The room {room!r} has no" if room else "No room has", ", ".join(common) or "none"
        raise ValueError(f"{which} records on both sides; those that have: {known}.")
    gpus = [[records.read_machine(side / name) for name in rooms][0]["gpu"] for side in sides]
    points, rows = _points(fresh, shipped, rooms), _rows(shipped, rooms)
    shared = int((~points["variant"].isin([f"{name}_best" for name in BASELINES])).sum())
    _enough(shared, len(rows), f"{fresh} has", f"rows of {', '.join(rooms)} in {shipped}", "`make measure` measures")
    verdicts = _verdicts([claim for claim in load.claims() if claim.room in rooms], sides)
    if gpus[0] != gpus[1]:
        known = verdicts[verdicts["shipped"] != measures.NOT_MEASURED]
        given, how = int((known["fresh"] != measures.NOT_MEASURED).sum()), "`make measure` and `make profile` measure"
        _enough(given, len(known), f"{fresh} gives", f"verdicts that {shipped} gives", how)
    every = rows if room else _rows(shipped, [name for name in records.rooms(shipped) if name != evidence.CEILINGS])
    ours, theirs = map(evidence.ceilings, sides)
    return Comparison(
        fresh=gpus[0],
        shipped=gpus[1],
        points=points,
        summary=_summary(points, tolerances, gpus[0] == gpus[1]),
        verdicts=verdicts,
        covered=len(points[_POINT].drop_duplicates()),
        total=len(every[_POINT].drop_duplicates()),
        ceilings={
            name: ours[name][unit] / theirs[name][unit]
            for name in ours
            for unit in ("tflops", "gbps")
            if theirs.get(name, {}).get(unit) and ours[name][unit]
        },
    )


def _enough(have: int, of: int, who: str, what: str, how: str) -> None:
    """Raise ValueError if fresh records have too few of what the shipped ones have."""
    if have < COVERAGE * of:
        raise ValueError(f"{who} only {have} of the {of} {what}, too few to say whether they agree; {how} the rest.")


def _rows(folder: Path, rooms: Iterable[str]) -> pd.DataFrame:
    """Return every row of these rooms."""
    paths = (folder / name / f"{experiment}.csv" for name in rooms for experiment in records.experiments(folder / name))
    empty = pd.DataFrame(columns=["variant", *_POINT])
    return pd.concat([empty, *(records.read(path)[["variant", *_POINT]] for path in paths)])


def _points(fresh: Path, shipped: Path, rooms: Iterable[str]) -> pd.DataFrame:
    """Return what both have, with the ratios of times and of speedups over the library."""
    key = ["room", "experiment", *records.KEY]
    empty = pd.DataFrame(columns=[*key, *(f"{what}_{side}" for what in ("median_us", "speedup") for side in SIDES)])
    found = [empty]
    for name in rooms:
        for experiment in sorted({*records.experiments(fresh / name)} & {*records.experiments(shipped / name)}):
            one, other = (
                _timed(side / name / f"{experiment}.csv")[[*key, "median_us", "speedup"]] for side in (fresh, shipped)
            )
            found.append(one.merge(other, on=key, suffixes=[f"_{side}" for side in SIDES]))
    both = pd.concat([df for df in found if len(df)] or found, ignore_index=True)
    ratios = {
        what: both[f"{of}_fresh"] / both[f"{of}_shipped"]
        for what, of in (("time", "median_us"), ("speedup", "speedup"))
    }
    return both.assign(**{f"{what}_ratio": ratio for what, ratio in ratios.items()})


def _timed(path: Path) -> pd.DataFrame:
    """Return a record with the speedup of each row over the library's fastest, NaN where there is none."""
    df = records.complete(records.read(path), path)
    library = next((b for b in BASELINES if df["variant"].str.startswith(b).any()), "")
    df = records.best_of(df, library, f"{library}_best") if library else df
    best = df[df["variant"] == f"{library}_best"].set_index(list(records.POINT))["median_us"]
    at = pd.MultiIndex.from_frame(df[list(records.POINT)])
    return df.assign(speedup=best.reindex(at).to_numpy() / df["median_us"].to_numpy())


def _summary(points: pd.DataFrame, tolerances: Mapping[str, float], same_gpu: bool) -> pd.DataFrame:
    """Return the medians of the ratios of each contender of each experiment, and whether they are within tolerance."""
    groups = points.groupby(["room", "experiment", "variant"], sort=False)
    ratios = groups[[f"{what}_ratio" for what in tolerances]].median()
    # The median of the differences, not the difference of the medians: errors of both signs do not cancel.
    off = points.assign(**{what: (points[f"{what}_ratio"] - 1).abs() for what in tolerances})
    apart = off.groupby(["room", "experiment", "variant"], sort=False)[list(tolerances)].median() > pd.Series(
        tolerances
    )
    logs = points.assign(**{f"speedup_{side}": np.log(points[f"speedup_{side}"].astype(float)) for side in SIDES})
    means = np.exp(
        logs.groupby(["room", "experiment", "variant"], sort=False)[[f"speedup_{side}" for side in SIDES]].mean()
    )
    agrees = ~(apart["speedup"] | (apart["time"] & same_gpu))
    return pd.concat([groups.size().rename("points"), ratios, means, agrees.rename("agrees")], axis=1).reset_index()


def _verdicts(judged: list[load.Claim], folders: tuple[Path, Path]) -> pd.DataFrame:
    here, there = (judge.judge(judged, folder) for folder in folders)
    columns = {"fresh": here["verdict"], "shipped": there["verdict"]}
    columns |= {"fresh_measured": here["measured"], "shipped_measured": there["measured"]}
    df = here[["id", "room", "says"]].assign(**columns)
    pairs = list(zip(judged, here.iloc, there.iloc, strict=True))
    df = df.assign(
        agrees=agreeing(df),
        why=[_why(*pair) for _, *pair in pairs],
        basis=[_basis(*(row["rests"] for row in pair)) for _, *pair in pairs],
        lacks=[_lacks(claim, pair, folders) for claim, *pair in pairs],
    )
    names = _apart(folders) if len(judged) else []

    def moved(claim: load.Claim, *pair: pd.Series) -> tuple[str, str]:
        sides = [causes.side(name, folder, claim.room) for name, folder in zip(names, folders, strict=True)]
        return causes.of(claim, sides, [row["rests"] for row in pair])

    told = [("", "") if agrees else moved(*pair) for agrees, pair in zip(df["agrees"], pairs, strict=True)]
    return df.assign(cause=[cause for cause, _ in told], told=[text for _, text in told])[list(VERDICT_COLUMNS)]


def _basis(here: tuple[str, ...], there: tuple[str, ...]) -> str:
    """Return what two verdicts rest on: no record of a GPU, as the source's own series or a program; one of BASES."""
    if not any(evidence.SERIES not in name for name in (*here, *there)):
        return NO_GPU
    return TWO_KINDS if (records.COUNTERS in here) != (records.COUNTERS in there) else OWN


def _lacks(claim: load.Claim, pair: Sequence[pd.Series], folders: tuple[Path, Path]) -> str:
    """Return, where one of a pair of verdicts is given and the other is not, what the records of the other lack."""
    unknown = [row["verdict"] == measures.NOT_MEASURED for row in pair]
    if unknown[0] == unknown[1]:
        return ""
    lacking, having = folders if unknown[0] else folders[::-1]
    for name in claim.experiment:
        there = [evidence.place(name, side, claim.room).is_file() for side in (lacking, having)]
        if name.startswith(evidence.OTHERS):
            return "a run of the code of others"
        if there == [False, True]:
            counters = name == records.COUNTERS
            return f"hardware counters of {claim.source}" if counters else f"the experiment `{name}` of {claim.source}"
    return "some of the rows or counters that decide"


def _apart(folders: tuple[Path, Path]) -> list[str]:
    """Return what the GPUs of two folders are called in a sentence, the second measurement on one apart from the
    first."""
    names = [str(records.read_machine(f / records.rooms(f)[0])["gpu"]) for f in folders]
    again = [f"{name}, {which}" for name, which in zip(names, ("first", "second"), strict=True)]
    return again if names[0] == names[1] else list(records.short_gpus(names).values())


def _why(here: pd.Series, there: pd.Series) -> str:
    """Of two verdicts on a claim: the reason of the one that is farther from what is claimed, and what lies close to a
    threshold."""
    worse = max((here, there), key=lambda row: measures.VERDICTS.index(row["verdict"]))
    close = dict.fromkeys(row["close"] for row in (here, there))
    return " ".join(filter(None, (worse["reason"], *close)))


def agreeing(verdicts: pd.DataFrame) -> pd.Series:
    """Whether the columns fresh and shipped say the same, or one of them cannot say."""
    unknown = (verdicts[["fresh", "shipped"]] == measures.NOT_MEASURED).any(axis=1)
    return (verdicts["fresh"] == verdicts["shipped"]) | unknown


@dataclass(frozen=True)
class Counted:
    """How many verdicts are given on both sides, apart by what they rest on."""

    own: int  #: by records of both GPUs
    kept: int  #: of these, the same
    no_gpu: int  #: by no record of a GPU, which cannot differ
    two_kinds: tuple[str, ...]  #: ids of those of `own` that are judged by counters on one side alone


def counted(verdicts: pd.DataFrame) -> Counted:
    given = verdicts[(verdicts[["fresh", "shipped"]] != measures.NOT_MEASURED).all(axis=1)]
    own = given[given["basis"] != NO_GPU]
    kinds = tuple(own.loc[own["basis"] == TWO_KINDS, "id"])
    return Counted(len(own), int(own["agrees"].sum()), len(given) - len(own), kinds)


def report(comparison: Comparison) -> str:
    """Return the comparison as plain text for a terminal."""
    c, n = comparison, counted(comparison.verdicts)
    table = c.summary.assign(agrees=c.summary["agrees"].map({True: "yes", False: "NO"}))
    shown = table if c.same_gpu else table.drop(columns=["time_ratio", "agrees"])
    changes = [
        f"  {row.id}: shipped {row.shipped} ({row.shipped_measured}),\n    fresh {row.fresh} ({row.fresh_measured})"
        + f"\n    {row.cause}: {row.told}" * bool(row.cause)
        for row in c.verdicts[c.verdicts["fresh"] != c.verdicts["shipped"]].itertuples()
    ]
    others = "Different GPUs: times are not held against each other, the claims decide.\n"
    parts = {
        f"fresh: {c.fresh}    shipped: {c.shipped}    "
        f"the fresh records cover {c.covered} of the {c.total} shipped points\n": True,
        others: not c.same_gpu,
        shown.to_string(index=False, float_format="{:.3f}".format, na_rep="-") + "\n": True,
        f"Claims: of {n.own} that the records of both decide {n.kept} have the same verdict, and "
        f"{n.no_gpu} that no GPU decides.": len(c.verdicts),
        "\n".join(changes): changes,
        "The GPU is the same: the tolerances decide, not the verdicts.": c.same_gpu and not c.verdicts["agrees"].all(),
        "\nThe records agree." if c.agrees else "\nThe records DIFFER.": True,
    }
    return "\n".join(text for text, holds in parts.items() if holds)
