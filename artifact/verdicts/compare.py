"""Fresh records against the shipped ones: do they agree, and what still holds on another GPU?

Absolute times move by a few per cent from machine to machine, so the speedups over the library,
taken in one run, are held to the narrower tolerance. On a GPU of another kind times say nothing
about each other: there the speedups are shown side by side and the claims decide. Where the two have
too little in common to say that they agree, that is bad input.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd

from artifact.measure import records
from artifact.verdicts import causes, evidence, judge, load, measures

SPEEDUP_TOLERANCE = 0.05  # median difference of the speedups of a variant in an experiment
TIME_TOLERANCE = 0.10  # the same of its times
#: Share of the shipped rows, and on another GPU of the shipped verdicts, that the fresh side must have.
COVERAGE = 0.5
BASELINES = (
    "cusparse",
    "cublas",
)  # prefixes of what speedups are over: the first that was measured

AGREE, DIFFER, BAD_INPUT = 0, 1, 2  # exit codes

_POINT = ["room", "experiment", *records.POINT]

#: basis: what the two verdicts rest on, one of BASES where both are given; lacks: what the records of one side do not
#: have where it gives none and the other does. cause and told: why a verdict changes (`causes`), else empty.
VERDICT_COLUMNS = (
    "id",
    "room",
    "says",
    "fresh",
    "shipped",
    "fresh_measured",
    "shipped_measured",
    "agrees",
    "why",
    "basis",
    "lacks",
    "cause",
    "told",
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
    fresh, shipped = Path(fresh), Path(shipped)
    for tolerance in (speedup_tolerance, time_tolerance):
        if not tolerance > 0:
            raise ValueError(f"A tolerance must be a positive number, not {tolerance}.")
    for folder in (fresh, shipped):
        if not records.rooms(folder):
            raise FileNotFoundError(f"{folder}: there are no records of any room; `make measure` makes them.")
    common = [name for name in records.rooms(fresh) if name in records.rooms(shipped) and name != evidence.CEILINGS]
    rooms = common if room is None else [room]
    for name in rooms:
        if name not in common:
            raise ValueError(f"The room {name!r} has no records on both sides; those that have: {_list(common)}.")
    machines = [[records.read_machine(side / name) for name in rooms] for side in (fresh, shipped)]
    points = [
        _points(fresh / name / f"{experiment}.csv", shipped / name / f"{experiment}.csv")
        for name in rooms
        for experiment in records.experiments(fresh / name)
        if experiment in records.experiments(shipped / name)
    ]
    points = pd.concat(points, ignore_index=True) if points else pd.DataFrame()
    if points.empty:
        raise ValueError(f"{fresh} and {shipped} have no point of any experiment in common.")
    rows = _shipped(shipped, rooms)
    common = int((~points["variant"].isin([f"{name}_best" for name in BASELINES])).sum())
    if common < COVERAGE * len(rows):
        raise ValueError(
            f"{fresh} has only {common} of the {len(rows)} rows of {', '.join(rooms)} in {shipped}, too few "
            "to say whether they agree; `make measure` measures the rest."
        )
    gpus = [described[0]["gpu"] for described in machines]
    verdicts = _verdicts([claim for claim in load.claims() if claim.room in rooms], fresh, shipped)
    if gpus[0] != gpus[1]:
        _enough(verdicts, fresh, shipped)
    every = rows if room else _shipped(shipped, set(records.rooms(shipped)) - {evidence.CEILINGS})
    return Comparison(
        *gpus,
        points,
        _summary(points, speedup_tolerance, time_tolerance, same_gpu=gpus[0] == gpus[1]),
        verdicts,
        covered=len(points[_POINT].drop_duplicates()),
        total=len(every[_POINT].drop_duplicates()),
        ceilings=_ceilings(fresh, shipped),
    )


def _ceilings(fresh: Path, shipped: Path) -> dict[str, float]:
    try:
        ours, theirs = records.ceilings(fresh), records.ceilings(shipped)
    except FileNotFoundError:
        return {}
    ratios = {}
    for name in ours:
        unit = "tflops" if ours[name]["tflops"] else "gbps"
        if name in theirs and theirs[name][unit]:
            ratios[name] = ours[name][unit] / theirs[name][unit]
    return ratios


def _shipped(folder: Path, rooms: Iterable[str]) -> pd.DataFrame:
    """Every row of these rooms."""
    paths = (folder / name / f"{experiment}.csv" for name in rooms for experiment in records.experiments(folder / name))
    return pd.concat([records.read(path)[["variant", *_POINT]] for path in paths])


def _enough(verdicts: pd.DataFrame, fresh: Path, shipped: Path) -> None:
    """Raises ValueError if the fresh records decide too few of the claims that the shipped ones do."""
    known = verdicts[verdicts["shipped"] != measures.NOT_MEASURED]
    given = int((known["fresh"] != measures.NOT_MEASURED).sum())
    if given < COVERAGE * len(known):
        raise ValueError(
            f"{fresh} gives only {given} of the {len(known)} verdicts that {shipped} gives, too few to say "
            "whether they agree; `make measure` and `make profile` measure the rest."
        )


def _points(fresh: Path, shipped: Path) -> pd.DataFrame:
    key = ["room", "experiment", *records.KEY]
    sides = []
    for path in (fresh, shipped):
        df = records.complete(records.read(path), path)
        library = next((b for b in BASELINES if df["variant"].str.startswith(b).any()), None)
        if library:
            df = records.best_of(df, library, f"{library}_best")
            best = df[df["variant"] == f"{library}_best"].set_index(list(records.POINT))["median_us"]
            at = pd.MultiIndex.from_frame(df[list(records.POINT)])
            df["speedup"] = best.reindex(at).to_numpy() / df["median_us"].to_numpy()
        sides.append(df[[*key, "median_us", *(["speedup"] if "speedup" in df else [])]])
    both = sides[0].merge(sides[1], on=key, suffixes=("_fresh", "_shipped"))
    both["time_ratio"] = both["median_us_fresh"] / both["median_us_shipped"]
    if {"speedup_fresh", "speedup_shipped"} <= set(both.columns):
        both["speedup_ratio"] = both["speedup_fresh"] / both["speedup_shipped"]
    return both


def _summary(points: pd.DataFrame, speedup_tolerance: float, time_tolerance: float, same_gpu: bool) -> pd.DataFrame:
    rows = []
    for (room, experiment, variant), group in points.groupby(["room", "experiment", "variant"], sort=False):
        row = {"room": room, "experiment": experiment, "variant": variant, "points": len(group)}
        off = {}
        for what, tolerance in (("time", time_tolerance), ("speedup", speedup_tolerance)):
            ratio = group.get(f"{what}_ratio", pd.Series(dtype=float)).dropna()
            row[f"{what}_ratio"] = ratio.median()
            # The median of the differences, not the difference of the medians: errors of both signs
            # do not cancel.
            off[what] = not ratio.empty and (ratio - 1).abs().median() > tolerance
        for side in ("fresh", "shipped"):
            speedups = group.get(f"speedup_{side}", pd.Series(dtype=float)).dropna()
            row[f"speedup_{side}"] = records.geomean(speedups) if len(speedups) else float("nan")
        row["agrees"] = not (off["time"] or off["speedup"]) if same_gpu else not off["speedup"]
        rows.append(row)
    return pd.DataFrame(rows)


def _verdicts(judged: list[load.Claim], fresh: Path, shipped: Path) -> pd.DataFrame:
    here, there = judge.judge(judged, fresh), judge.judge(judged, shipped)
    df = pd.DataFrame(
        {
            "id": here["id"],
            "room": [claim.room for claim in judged],
            "says": here["says"],
            "fresh": here["verdict"],
            "shipped": there["verdict"],
            "fresh_measured": here["measured"],
            "shipped_measured": there["measured"],
        }
    )
    pairs = list(zip(here.iloc, there.iloc, strict=True))
    df = df.assign(agrees=agreeing(df), why=[_why(*pair) for pair in pairs])
    df["basis"] = [_basis(*(row["rests"] for row in pair)) for pair in pairs]
    df["lacks"] = [_lacks(claim, pair, (fresh, shipped)) for claim, pair in zip(judged, pairs, strict=True)]
    found = _causes(judged, df, pairs, (fresh, shipped))
    named = [(c.name, c.told) for c in (found.get(i, causes.Cause("", "")) for i in df["id"])]
    df[["cause", "told"]] = named or pd.DataFrame(columns=["cause", "told"])
    return df[list(VERDICT_COLUMNS)]


def _basis(here: tuple[str, ...], there: tuple[str, ...]) -> str:
    """What two verdicts rest on: no record of a GPU, as the source's own series or a program; one of BASES."""
    own = [[name for name in rests if evidence.SERIES not in name] for rests in (here, there)]
    if not any(own):
        return NO_GPU
    return TWO_KINDS if (records.COUNTERS in here) != (records.COUNTERS in there) else OWN


def _lacks(claim: load.Claim, pair: tuple, folders: tuple[Path, Path]) -> str:
    """Where one of a pair of verdicts is given and the other is not: what the records of the other lack."""
    unknown = [row["verdict"] == measures.NOT_MEASURED for row in pair]
    if unknown[0] == unknown[1]:
        return ""
    at = unknown.index(True)
    places = [
        [evidence.place(name, folder, claim.room) for name in claim.experiment]
        for folder in (folders[at], folders[1 - at])
    ]
    for name, here, there in zip(claim.experiment, *places, strict=True):
        if name.startswith(evidence.OTHERS):
            return "a run of the code of others"
        if not here.is_file() and there.is_file():
            return f"counters of {claim.room}" if name == records.COUNTERS else f"{claim.room}/{name}"
    return "some of the rows or counters that decide"


def _causes(
    judged: list[load.Claim], df: pd.DataFrame, pairs: list, folders: tuple[Path, Path]
) -> dict[str, causes.Cause]:
    """id -> why its verdict changes, of those whose verdicts do."""
    names = _apart(folders)
    sides = {
        room: [causes.side(name, folder, room) for name, folder in zip(names, folders, strict=True)]
        for room in set(df.loc[~df["agrees"], "room"])
    }
    return {
        claim.id: causes.of(claim, sides[claim.room], [row["rests"] for row in pair])
        for claim, pair, agrees in zip(judged, pairs, df["agrees"], strict=True)
        if not agrees
    }


def _apart(folders: tuple[Path, Path]) -> list[str]:
    """What the GPUs of two folders are called in a sentence, the second measurement on one apart from the first."""
    names = [str(records.read_machine(f / records.rooms(f)[0])["gpu"]) for f in folders]
    if names[0] == names[1]:
        return [f"{names[0]}, first", f"{names[1]}, second"]
    return list(records.short_gpus(names).values())


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
    """The comparison as plain text for a terminal."""
    c = comparison
    lines = [
        f"fresh: {c.fresh}    shipped: {c.shipped}    "
        f"the fresh records cover {c.covered} of the {c.total} shipped points",
        "",
    ]
    table = c.summary.copy()
    table["agrees"] = table["agrees"].map({True: "yes", False: "NO"})
    if not c.same_gpu:
        lines += ["Different GPUs: times are not held against each other, the claims decide.", ""]
        table = table.drop(columns=["time_ratio", "agrees"])
    lines += [table.to_string(index=False, float_format="{:.3f}".format, na_rep="-"), ""]
    if len(c.verdicts):
        n = counted(c.verdicts)
        lines.append(
            f"Claims: of {n.own} that the records of both decide {n.kept} have the same verdict, and "
            f"{n.no_gpu} that no GPU decides."
        )
        for row in c.verdicts[c.verdicts["fresh"] != c.verdicts["shipped"]].to_dict("records"):
            lines.append(f"  {row['id']}: shipped {row['shipped']} ({row['shipped_measured']}),")
            lines.append(f"    fresh {row['fresh']} ({row['fresh_measured']})")
            if row["cause"]:
                lines.append(f"    {row['cause']}: {row['told']}")
        if c.same_gpu and not c.verdicts["agrees"].all():
            lines.append("The GPU is the same: the tolerances decide, not the verdicts.")
    lines += ["", "The records agree." if c.agrees else "The records DIFFER."]
    return "\n".join(lines)


def _list(names: list[str]) -> str:
    return ", ".join(names) or "none"
