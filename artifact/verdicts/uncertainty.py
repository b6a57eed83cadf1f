"""How sure verdicts are: every claim judged again on resampled inputs and on another run, and by other tolerances.

    python -m artifact.verdicts.uncertainty        writes artifact/recorded/<gpu>/stability.csv and two tables above it

A resample draws as many inputs as a claim was judged on, with replacement and within each experiment: matrices, where
values are of several named ones; the lines of a course; else shapes with their densities. All contenders of an input
are drawn together, and claims on the same inputs draw the same, so that their verdicts change together. Half of the
resamples take the first run and half another one. That is the second run (`repeat/`) where there is one; else the first
with the scatter of the system's second runs (of all systems', where it has none): the ratios of both runs at a point of
about the same time, in either direction. Counters, ceilings, formats and a source's own series are taken as they are,
since nothing was read twice.

What this does not hold is the choice of the inputs themselves: it tells how a verdict depends on which of like inputs
were drawn, not what others would give. An extreme of few points moves less among resamples than among new points.
"""

import contextlib
import itertools
import re
import zlib
from collections.abc import Container, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd

from artifact import command, paths, registry
from artifact.measure import records
from artifact.verdicts import evidence, judge, load, measures
from artifact.verdicts.evidence import Evidence, NotMeasured, Values, need

#: Resamples of a claim; of one whose reducer or expectation looks at more than numbers, which takes milliseconds each.
RESAMPLES, FEWER = 1000, 100
RUNS = 4  #: other runs that are drawn from, half of them in either direction of the scatter
NEAREST = 10  #: points of second runs, by their time, one of which lends a point its scatter
ENDS = (2.5, 97.5)  #: of an interval, in per cent
#: Expectations that look at `values` alone.
PLAIN = (measures.at_least, measures.at_most, measures.near, measures.spans, measures.within)
COLUMNS = (
    *("claim", "verdict", "probability", "next", "next_probability"),
    *("value", "low", "high", "inputs", "runs", "resamples"),
)
TALLY, SCALED = "tally.csv", "tolerances.csv"  #: beside the folders of the GPUs' records
FACTORS = (0.5, 0.8, 1.25, 2.0)  #: by which all tolerances are scaled
#: What the runs of a claim's resamples are.
ONE, SECOND = "each as recorded", "half with a second run"
SCATTER = "half with the scatter of other second runs"


# ---------------------------------------------------------------- another run


@cache
def scatter(folder: Path, system: str) -> pd.DataFrame:
    """Return the rows of second runs of a system, of all where it has none: those of a point together.

    point, count: which, and its rows; time: logarithm of its first; ratio: of the second time over the first.
    """
    again = sorted(folder.glob(f"{system}/{records.REPEAT}")) or sorted(folder.glob(f"*/{records.REPEAT}"))
    names = [(place, f"{name}.csv") for place in again for name in records.experiments(place)]
    pairs = [(records.read(place.parent / name), records.read(place / name)) for place, name in names]
    both = [a.merge(b, on=list(records.KEY), suffixes=("", "_again")) for a, b in pairs]
    df = pd.concat(both, ignore_index=True) if both else pd.DataFrame(columns=[*records.COLUMNS, "median_us_again"])
    of = df.groupby(["room", "experiment", *records.POINT], sort=False)["median_us"]
    more = {"point": of.ngroup(), "count": of.transform("size"), "time": np.log(of.transform("mean").astype(float))}
    return df.assign(ratio=df["median_us_again"] / df["median_us"], **more).sort_values(
        "point", kind="stable", ignore_index=True
    )


def another(e: Evidence, name: str, run: int) -> pd.DataFrame:
    """Return the record of an experiment with the times and rates of another run; run: its number, from 1."""
    df, path = e.frame([name]), evidence.place(name, e.folder, e.room)
    if evidence.SERIES in name:
        return df
    df, pool = df[~df["variant"].isin([evidence.BEST, evidence.ROOM_BEST])], scatter(e.folder, e.room)
    rng, factor = np.random.default_rng(zlib.crc32(f"{e.room} {name} {run}".encode())), np.ones(len(df))
    if len(pool):
        of = df.groupby(list(records.POINT), sort=False)["median_us"]
        first = np.flatnonzero(~pool["point"].duplicated())
        apart = np.abs(pool["time"].to_numpy()[first] - np.log(of.mean()).to_numpy()[:, None])
        chosen = first[rng.permuted(apart.argsort(axis=1)[:, :NEAREST], axis=1)[:, 0]][of.ngroup()]
        row = chosen + (rng.random(len(df)) * pool["count"].to_numpy()[chosen]).astype(int)
        factor = pool["ratio"].to_numpy()[row] ** (1 if run % 2 else -1)
    if (second := path.parent / records.REPEAT / path.name).is_file():
        again = df[list(records.KEY)].merge(records.read(second), "left", list(records.KEY))["median_us"].to_numpy()
        factor = np.where(np.isnan(again), factor, again / df["median_us"])
    made = df.assign(median_us=df["median_us"] * factor, **{c: df[c] / factor for c in evidence.RATES if c in df})
    return evidence.with_best(made.drop(columns="best_of")) if "best_of" in df else made


# ---------------------------------------------------------------- one claim


def inputs(rule: measures.Rule, v: Values, lines: int) -> tuple[np.ndarray, pd.Series, str]:
    """Return the input of each row of values, input -> stratum within which it is drawn, and what inputs are.

    lines: how many of them the rule judges, 0 for points.
    """
    at, words = v.all.index.to_frame(index=False).astype(str), rule.reduce.keywords
    shape = at[[c for c in evidence.SHAPE if c in at]].agg(" ".join, axis=1)
    labels = at.get("label", pd.Series("", at.index))
    matrices = labels[labels != ""].nunique() > 1 and words.get("along") != "label"
    groups = ["experiment", *([] if matrices else measures.GROUPS.get(str(words.get("of", "all")), []))]
    strata = at[[c for c in dict.fromkeys(groups) if c in at]].agg(" ".join, axis=1)
    code, names = pd.factorize(labels.where(labels != "", shape) if matrices else shape, sort=True)
    kind = "matrices" if matrices else "lines" if lines else "points"
    return code, strata.groupby(code).first().set_axis(names), kind


def resampled(claim: load.Claim, runs: Sequence[Values]) -> tuple[list[str], list[float], str]:
    """Return what the claim's rule says of each resample: verdicts, the numbers that are judged, and what was drawn.

    runs: its quantity in the first run and in RUNS others.
    """
    rule, v, base, every = claim.rule, runs[0].all, claim.rule.reduce(runs[0]), np.arange(len(runs[0].all))
    # Another run may have another fastest algorithm, whose counters were not read.
    table = [run.all if run.all.index.equals(v.index) else run.all.reindex(v.index).fillna(v) for run in runs]
    values = np.array(table, dtype=float)
    lines = (len(base.course) or len(base.values)) if base.lines else 0
    code, strata, kind = inputs(rule, runs[0], lines)
    lines *= kind == "lines"
    plain = rule.expect.func in PLAIN and base.groups is not None
    count, rng = RESAMPLES if plain else FEWER, np.random.default_rng(zlib.crc32(repr(list(strata.index)).encode()))
    _, of, size = np.unique(np.zeros(lines) if lines else strata.to_numpy(str), return_inverse=True, return_counts=True)
    first, once = (np.cumsum(size) - size)[of], len(of) == 1 and (values == values[0]).all()
    count = 1 if once else count  # nothing can be drawn
    drawn = np.argsort(of, kind="stable")[(first + rng.random((count, len(of))) * size[of]).astype(int)]
    # 0: the first run; else another one, of those of one direction for each input its own.
    other, direction = rng.integers(2, size=(2, count, 1))
    chosen = other * (1 + direction + 2 * rng.integers(RUNS // 2, size=(count, len(strata))))
    found: list[tuple[str, float]] = []
    for units, run in zip(drawn, chosen, strict=True):
        here, often = values[run[code], every], np.bincount(units, minlength=len(of))
        rows = every if lines else np.repeat(every, often[code])
        with contextlib.suppress(NotMeasured, ValueError):  # nothing was drawn of what the rule needs
            if plain:
                parts = [here[rows][base.groups[rows] == g] for g in range(base.groups.max() + 1)]
                need(all(map(len, parts)), "Nothing was drawn of a contender.")
                r = replace(base, values=np.hstack([base.again(part) for part in parts]))
            else:
                r = again(rule, runs[0], rows, here, units if lines else None)
            found.append((rule.expect(r).verdict, measures.middle(measures.numbers(r))))
    return [verdict for verdict, _ in found], [number for _, number in found], f"{len(of)} {kind}"


def again(
    rule: measures.Rule, v: Values, rows: np.ndarray, here: np.ndarray, lines: np.ndarray | None
) -> measures.Reduced:
    """Return what the reducer makes of these rows of values, which are `here`, or of these of its lines."""
    ends = itertools.pairwise(np.cumsum([0, *map(len, v.by.values())]))
    mine = {name: rows[(rows >= low) & (rows < high)] for name, (low, high) in zip(v.by, ends, strict=True)}
    r = rule.reduce(replace(v, by={name: pd.Series(here[i], v.all.index[i].droplevel(0)) for name, i in mine.items()}))
    if lines is None:
        return r
    values = r.values.iloc[lines] if len(r.values) == len(lines) else r.values
    return replace(r, values=values, course=[r.course[i] for i in lines] if r.course else ())


def stated(claim: load.Claim) -> float | None:
    """Return the number that the source states of what is judged, the middle of a range; None where it gives a word.

    The range of the claim's expectation, if the claim says a number, or the speedup that is all it says.
    """
    ends = [end for end in claim.rule.expect.keywords.get("between", ()) if end > 0]
    alone = re.fullmatch(r"(?:over |under )?(\d[\d.]*)×[^×]*", claim.published)
    if ends and re.search(r"\d", claim.published):
        return records.geomean(ends)
    return float(alone[1]) if alone and not ends and float(alone[1]) != 1 else None


# ---------------------------------------------------------------- all claims of a GPU


def stability(folder: Path, only: Container[str] = ()) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return COLUMNS of the claims that the records in `folder` decide, and their verdicts in each resample.

    only: ids of claims, without all.

    No probability where nothing can be drawn, as of a counter that was read once at one point, nor where the verdict is
    that these inputs do not decide.
    """
    claims = [claim for claim in load.claims() if not only or claim.id in only]
    judged, rows, draws = judge.kept(claims, folder).set_index("id"), [], {}
    of = cache(lambda room, run: Evidence(folder, room))
    for claim in (claim for claim in claims if judged["verdict"][claim.id] != measures.NOT_MEASURED):
        (first, *others), sweeps = (of(claim.room, run) for run in range(RUNS + 1)), evidence.sweeps(claim.experiment)
        for (run, e), name in itertools.product(enumerate(others, 1), sweeps):
            e.read[name] = e.read[name] if name in e.read else another(first, name, run)
        runs = [claim.rule.quantity(judge.inputs(claim, e)[0], claim.experiment) for e in (first, *others)]
        (said, numbers, what), verdict = resampled(claim, runs), judged["verdict"][claim.id]
        if not said:
            continue
        final = pd.Series([judge.carried(claim, verdict if verdict in measures.OPEN else v, folder.name) for v in said])
        share = final.value_counts(normalize=True)
        once = all(run.all.equals(runs[0].all) for run in runs)
        second = all((folder / claim.room / records.REPEAT / f"{name}.csv").is_file() for name in sweeps)
        fixed = verdict in measures.OPEN or (once and what.startswith("1 "))
        known = np.nan if fixed else share.get(verdict, 0.0)
        next_one = next(iter(share.drop(verdict, errors="ignore").items()), ("", 0.0))
        spread = (judged["value"][claim.id], *np.percentile(numbers, ENDS))
        how = ONE if once else SECOND if second else SCATTER
        rows.append((claim.id, verdict, known, *next_one, *spread, what, how, len(final)))
        draws[claim.id] = final.to_numpy()[np.arange(RESAMPLES) % len(final)]
    return pd.DataFrame(rows, columns=COLUMNS), pd.DataFrame(draws)


def tally(judged: Mapping[str, pd.DataFrame], draws: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Return how many facts have which verdict, by the GPUs that decide, and the interval among resamples.

    judged, draws: GPU -> verdicts on all claims, and verdicts in each resample.
    """
    df = judge.deciding(judged).set_index("id", drop=False)
    gpu = {system: judge.decider(judged, system) for system in df["room"].unique()}
    drawn = {i: draws[gpu[system]].get(i, df["verdict"][i]) for i, system in df["room"].items()}
    every = (df["verdict"], *pd.DataFrame(drawn, index=range(RESAMPLES)).to_numpy())
    count = pd.DataFrame([judge.counts(df.assign(verdict=verdicts)) for verdicts in every]).fillna(0)
    low, high = np.percentile(count[1:], ENDS, axis=0)
    return pd.DataFrame({"verdict": count.columns, "count": count.iloc[0], "low": low, "high": high})


def scaled(judged: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Return factor, claim, verdict, otherwise and way, of the verdicts that change where all tolerances are scaled."""
    now, found = judge.deciding(judged).set_index("id"), []
    for factor in FACTORS:
        otherwise = judge.by_decider(load.read(registry.FOLDER, factor), judged).set_index("id")["verdict"]
        found.append(now[["verdict"]].assign(factor=factor, otherwise=otherwise))
    df = pd.concat(found).rename_axis("claim").reset_index()
    ranks = df[["verdict", "otherwise"]].map(measures.VERDICTS.index)
    df = df.assign(way=np.where(ranks["otherwise"] < ranks["verdict"], "up", "down"))
    return df.loc[df["verdict"] != df["otherwise"], ["factor", "claim", "verdict", "otherwise", "way"]]


def write(path: Path, df: pd.DataFrame) -> None:
    """Write a table."""
    records.write_text(path, df.to_csv(index=False, float_format="%.4g", lineterminator="\n"))


@command.program("artifact.verdicts.uncertainty", __doc__)
def main(_: command.Options) -> None:
    """Write the tables of all shipped records, those of a GPU beside its records."""
    judged = judge.shipped()
    with ProcessPoolExecutor() as pool:
        made = dict(zip(judged, pool.map(stability, [paths.RECORDED / gpu for gpu in judged]), strict=True))
    for gpu, (table, _) in made.items():
        write(paths.RECORDED / gpu / judge.STABILITY, table)
    write(paths.RECORDED / TALLY, tally(judged, {gpu: draws for gpu, (_, draws) in made.items()}))
    write(paths.RECORDED / SCALED, scaled(judged))


if __name__ == "__main__":
    raise SystemExit(main())
