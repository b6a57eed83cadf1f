"""The map: how much faster than a dense multiplication the fastest sparse one is, by pattern, density, N and precision.

Which records it and the advice are made of, the systems say in their map.toml: a `[[real]]` entry is an experiment over
real matrices, a `[[generated]]` one a sweep over a pattern of non-zeros. What no GPU has measured yet is left out
without a word, so that an entry may wait for its records. Where nothing dense was measured beside, its time is
estimated (`dense_us`): from the rates of the dense multiplications that were.
"""

import functools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args

import numpy as np
import pandas as pd
from pydantic import with_config

from artifact import registry
from artifact.measure import records
from artifact.recommend import statistics

Precision = Literal["FP32", "TF32", "BF16"]
PRECISIONS: tuple[str, ...] = get_args(Precision)
#: A time over the best one's that is still good, and a share of points that is nearly all.
GOOD, NEARLY_ALL = 1.1, 0.9
#: An experiment with fewer matrices says nothing of one that is left out.
LEAST_MATRICES = 8
#: A point of real matrices.
AT = ["label", "n"]
#: What real matrices are called beside the generated patterns, by the format of their fastest kernel.
REAL = "real matrices"
#: What a record's columns are called here.
SPARSE = {"variant": "sparse", "median_us": "sparse_us"}
#: Bytes of an element of a dense operand.
BYTES = {"FP32": 4, "TF32": 4, "BF16": 2}
#: Measured dense multiplications, nearest in size, whose median rate is an estimate.
NEAREST = 3
COLUMNS = (
    "room experiment pattern precision label m n k columns density sparse format sparse_us dense dense_us speedup "
    "prepare_ms"
).split()


@with_config(registry.STRICT)
@dataclass(frozen=True, eq=False)
class Real:
    """Real matrices: an experiment whose rows' labels are their names."""

    room: str
    experiment: str
    precision: Precision
    order: Literal["given", "rcm"]  #: of rows and columns: a key of the statistics
    formats: dict[str, str]  #: pattern of contenders' names -> what A is stored as; the first that fits
    raced: list[str] = field(default_factory=list)  #: patterns of those that try others on the GPU
    problem: dict[str, Any] = field(default_factory=dict)  #: arguments of the system's problem_from_csr

    def format(self, variant: str) -> str:
        """Return what A is stored in for a variant, "" where nothing says so."""
        return next((what for p, what in self.formats.items() if fnmatchcase(variant, p)), "")


@with_config(registry.STRICT)
@dataclass(frozen=True, eq=False)
class Generated:
    """A sweep over generated matrices of a pattern."""

    room: str
    experiment: str
    pattern: registry.Pattern
    precision: Precision
    #: Patterns of the sparse contenders' names, and of the dense ones: of these none, and their time is estimated.
    contenders: list[str] = field(default_factory=lambda: ["*"])
    dense: list[str] = field(default_factory=list)
    free: Literal["n", "m"] = "n"  #: the size that the sparse operand has not: "m" where that is B


#: What a map.toml holds.
FILE = registry.keys({}, dict.fromkeys(("real", "generated"), list[dict]))
About = TypeVar("About", Real, Generated)


@dataclass(frozen=True)
class Pool:
    """The records of a `Real` experiment of a GPU, with the statistics of its matrices."""

    about: Real
    df: pd.DataFrame  #: rows of a record whose matrices have statistics
    matrices: Mapping[str, statistics.Statistics]

    @functools.cached_property
    def advisable(self) -> list[str]:
        """Contenders that can be advised.

        All that do not try others on the GPU, if one of these is as good at nearly all points; else everybody.
        """
        chosen = self.df[~self.df["variant"].map(lambda v: fits(v, self.about.raced))]
        best, theirs = (df.groupby(AT)["median_us"].min() for df in (self.df, chosen))
        as_good = theirs.reindex(best.index) <= GOOD * best
        return list((chosen if as_good.mean() >= NEARLY_ALL else self.df)["variant"].unique())


def maps(folder: Path = registry.FOLDER) -> tuple[list[Real], list[Generated]]:
    """Return what all systems say, in their order. Raises ValueError that names file and key where one is not whole."""
    found: dict[str, list] = {"real": [], "generated": []}
    for path in filter(Path.is_file, [folder / system / registry.MAP for system in registry.find(folder)]):
        for key, entries in registry.checked(FILE, registry.toml(path), path).items():
            kind = {"real": Real, "generated": Generated}[key]
            found[key] += [registry.checked(kind, {"room": path.parent.name} | entry, path) for entry in entries]
    return found["real"], found["generated"]


def pools(gpu_folder: Path, folder: Path = registry.FOLDER) -> list[Pool]:
    """Return the pools of a GPU's records, those with the most points first.

    Of records without statistics nothing is used.
    """
    files = [folder / system / registry.STATISTICS for system in registry.find(folder)]
    known = {key: s for path in reversed(files) if path.is_file() for key, s in statistics.read(path).items()}
    found = []
    for about, df in recorded(gpu_folder, maps(folder)[0]):
        df = df[[(label, about.order) in known for label in df["label"]]].reset_index(drop=True)
        if df["label"].nunique() >= LEAST_MATRICES:
            found.append(Pool(about, df, {name: known[name, about.order] for name in df["label"].unique()}))
    return sorted(found, key=lambda pool: -len(pool.df[AT].drop_duplicates()))


def recorded(gpu_folder: Path, abouts: Iterable[About]) -> list[tuple[About, pd.DataFrame]]:
    """Each of what systems say with its record, where a GPU has it."""
    paths = {about: gpu_folder / about.room / f"{about.experiment}.csv" for about in abouts}
    return [(about, records.read(path)) for about, path in paths.items() if path.is_file()]


def pool(gpu_folder: Path, precision: str = "FP32", folder: Path = registry.FOLDER, n: int | None = None) -> Pool:
    """Return the largest pool of a precision; n: of those whose columns are nearest to it.

    Raises ValueError, one sentence, where there is none.
    """
    every = pools(gpu_folder, folder)
    found = [made for made in every if made.about.precision == precision]
    if not found:
        raise ValueError(
            f"There are no records of real matrices in {precision} on {gpu_folder.name}; recorded: "
            f"{', '.join(dict.fromkeys(made.about.precision for made in every)) or 'none'}."
        )
    return found[0] if n is None else min(found, key=lambda made: np.abs(np.log2(made.df["n"] / n)).min())


def fits(name: str, patterns: list[str]) -> bool:
    """Tell whether a name matches any of the patterns."""
    return any(fnmatchcase(name, pattern) for pattern in patterns)


# ---------------------------------------------------------------- the map


def points(gpu_folder: Path, folder: Path = registry.FOLDER) -> pd.DataFrame:
    """COLUMNS, a row for each point.

    The fastest sparse contender, and the dense one, measured or estimated (dense is ""); columns: the size that the
    sparse operand has not; speedup: of sparse over dense, NaN where there is no dense.
    """
    rates, copy = dense_rates(gpu_folder, folder), copy_gbps(gpu_folder)
    found = [
        *(_generated(about, df) for about, df in recorded(gpu_folder, maps(folder)[1])),
        *map(_real, pools(gpu_folder, folder)),
    ]
    df = pd.concat(found or [pd.DataFrame(columns=COLUMNS)], ignore_index=True).reindex(columns=COLUMNS)
    guessed = [dense_us(rates, row.precision, row.m, row.n, row.k, copy) for row in df.itertuples(index=False)]
    df["dense_us"] = df["dense_us"].astype(float).fillna(pd.Series(guessed, df.index, float))
    return df.assign(dense=df["dense"].fillna(""), speedup=df["dense_us"] / df["sparse_us"])


def dense_rates(gpu_folder: Path, folder: Path = registry.FOLDER) -> pd.DataFrame:
    """precision, m, n, k, tflops of every dense multiplication beside a sweep, the fastest at each size."""
    found = []
    for about, df in recorded(gpu_folder, maps(folder)[1]):
        best = (
            df[[fits(v, about.dense) for v in df["variant"]]]
            .groupby(["m", "n", "k"], as_index=False)["median_us"]
            .min()
        )
        rate = 2.0 * best["m"] * best["n"] * best["k"] / best["median_us"] / 1e6
        found.append(best[["m", "n", "k"]].assign(precision=about.precision, tflops=rate))
    return pd.concat(found or [pd.DataFrame(columns=["precision", "m", "n", "k", "tflops"])], ignore_index=True)


def dense_us(rates: pd.DataFrame, precision: str, m: int, n: int, k: int, copy_gbps: float = np.inf) -> float:
    """How long a dense multiplication takes.

    At the median rate of the nearest ones measured, and no less than it takes to move its operands. NaN where none of
    that precision was measured.
    """
    known = rates[rates["precision"] == precision]
    away = np.abs(np.log2(known[["m", "n", "k"]].to_numpy(float) / (m, n, k))).sum(axis=1)
    rate = known["tflops"].iloc[np.argsort(away, kind="stable")[:NEAREST]].median()
    moved = BYTES.get(precision, np.nan) * (m * k + k * n + m * n)
    return float(np.maximum(2.0 * m * n * k / rate / 1e6, moved / copy_gbps / 1e3))


def crossings(df: pd.DataFrame) -> pd.DataFrame:
    """Return the density at which sparse begins to pay, by precision, pattern and columns.

    With what is known of it, for each N of which several densities were measured, and for all of them together
    (columns is 0). df: `points`.

    The density is where the geometric mean of the speedups, interpolated between logarithms, passes 1; infinite
    where sparse is faster at all that were measured, 0 where at none. behind: points at which sparse is slower.
    """
    rows = []
    df = df[df["pattern"] != REAL].dropna(subset="speedup")
    for (precision, pattern), every in df.groupby(["precision", "pattern"], sort=False):
        for columns, some in [(0, every), *every.groupby("columns")]:
            means = some.groupby("density")["speedup"].agg(records.geomean)
            if len(means) > 1:
                known = bool((some["dense"] == "").any()), int((some["speedup"] < 1).sum())
                rows.append((precision, pattern, columns, crossing(means), means.index[0], means.index[-1], *known))
    return pd.DataFrame(rows, columns="precision pattern columns density from to estimated behind".split())


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


def payoffs(gpu_folder: Path, folder: Path = registry.FOLDER) -> pd.DataFrame:
    """Return what preparation costs and when it pays.

    Precision, experiment, variant, format, matrices (how many), prepare_ms (median), multiplications (median over the
    matrices at which it is faster), pays (share of them).

    Against who is ready first at each matrix and N: the contender with the least preparation, and of several the
    fastest. Contenders that usually have no more than that are not listed.
    """
    found = []
    for pool in pools(gpu_folder, folder):
        first = pool.df.sort_values(["prepare_ms", "median_us"]).groupby(AT)[["median_us", "prepare_ms"]].first()
        df = pool.df.join(first.add_prefix("ready_"), on=AT)
        gain = (df["ready_median_us"] - df["median_us"]).where(lambda gain: gain > 0)
        more = 1e3 * (df["prepare_ms"] - df["ready_prepare_ms"])
        df = df.assign(gain=gain, more=more, multiplications=more / gain)
        table = df.groupby("variant", sort=False, as_index=False).agg(
            matrices=("label", "nunique"),
            prepare_ms=("prepare_ms", "median"),
            multiplications=("multiplications", "median"),
            pays=("gain", lambda gain: gain.notna().mean()),
            more=("more", "median"),
        )
        found.append(
            table[table["more"] > 0].assign(
                format=table["variant"].map(pool.about.format),
                precision=pool.about.precision,
                experiment=pool.about.experiment,
            )
        )
    names = "precision experiment variant format matrices prepare_ms multiplications pays".split()
    return pd.concat(found or [pd.DataFrame(columns=names)], ignore_index=True)[names]


def against_dense(df: pd.DataFrame) -> pd.DataFrame:
    """Return after how many multiplications a pattern's fastest kernel has paid for its preparation.

    Against dense: precision, pattern, density, points, prepare_ms and multiplications (medians over the points where
    it is faster), pays (share of these points). df: `points`.
    """
    df = df[df["pattern"] != REAL].dropna(subset="speedup")
    gain = (df["dense_us"] - df["sparse_us"]).where(df["speedup"] > 1)
    df = df.assign(
        multiplications=1e3 * df["prepare_ms"] / gain,
        prepare_ms=df["prepare_ms"].where(gain > 0),
        pays=gain > 0,
    )
    table = df.groupby(["precision", "pattern", "density"], as_index=False).agg(
        points=("pays", "size"),
        prepare_ms=("prepare_ms", "median"),
        multiplications=("multiplications", "median"),
        pays=("pays", "mean"),
    )
    order = {name: i for names in (PRECISIONS, registry.PATTERNS) for i, name in enumerate(names)}
    return table.sort_values(
        ["precision", "pattern", "density"], ignore_index=True, key=lambda c: c if c.name == "density" else c.map(order)
    )


def _generated(about: Generated, df: pd.DataFrame) -> pd.DataFrame:
    """Return a row of `points` for each point of a sweep.

    Dense and dense_us are NaN where nothing dense was measured.
    """
    dense = df["variant"].map(lambda v: fits(v, about.dense))
    # A matrix without a zero is none that anybody would store as a sparse one.
    sparse = df["variant"].map(lambda v: fits(v, about.contenders)) & ~dense & (df["density"] < 1)
    best = _best(df[sparse], list(records.POINT))
    beside = _best(df[dense], list(records.POINT)).rename(columns={"variant": "dense", "median_us": "dense_us"})
    made = best.assign(pattern=about.pattern, precision=about.precision, format=about.pattern, columns=best[about.free])
    return made.merge(beside[[*records.POINT, "dense", "dense_us"]], "left", list(records.POINT)).rename(columns=SPARSE)


def _real(pool: Pool) -> pd.DataFrame:
    best = _best(pool.df, AT)
    return best.assign(
        **{"pattern": REAL, "precision": pool.about.precision, "columns": best["n"], "dense": "", "dense_us": np.nan},
        density=best["nnz"] / (best["m"] * best["k"]),  # a real matrix has no nominal one
        format=best["variant"].map(pool.about.format),
    ).rename(columns=SPARSE)


def _best(df: pd.DataFrame, at: list[str]) -> pd.DataFrame:
    """Return the row of the fastest contender at each point, in their order."""
    return df.loc[df.groupby(at, sort=False, dropna=False)["median_us"].idxmin()]


def copy_gbps(gpu_folder: Path) -> float:
    """Return the measured rate of a copy; infinite where it was not measured."""
    return records.ceilings(gpu_folder).get("copy", {}).get("gbps", float("inf"))
