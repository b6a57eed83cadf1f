"""Which records the map and the advice are made of: the rooms say it in their map.toml.

A `[[real]]` entry is an experiment over real matrices, a `[[generated]]` one a sweep over a pattern of non-zeros. What
no GPU has measured yet is left out without a word, so that an entry may wait for its records.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, TypeVar

import pandas as pd

from artifact import registry
from artifact.measure import records
from artifact.which import statistics
from artifact.which.statistics import Statistics

PRECISIONS = ("FP32", "TF32", "BF16")
#: A time over the best one's that is still good, and a share of points that is nearly all.
GOOD, NEARLY_ALL = 1.1, 0.9
#: An experiment with fewer matrices says nothing of one that is left out.
LEAST_MATRICES = 8
#: A point of real matrices.
AT = ["label", "n"]


@dataclass(frozen=True, eq=False)
class Real:
    """Real matrices: an experiment whose rows' labels are their names."""

    room: str
    experiment: str
    precision: str  #: one of PRECISIONS
    order: str  #: of rows and columns: a key of the statistics
    formats: dict[str, str]  #: pattern of contenders' names -> what A is stored as; the first that fits
    raced: list[str] = field(default_factory=list)  #: patterns of those that try others on the GPU
    problem: dict[str, Any] = field(default_factory=dict)  #: arguments of the room's problem_from_csr

    def format(self, variant: str) -> str:
        return next((what for p, what in self.formats.items() if fnmatchcase(variant, p)), "")

    def races(self, variant: str) -> bool:
        return fits(variant, self.raced)


@dataclass(frozen=True, eq=False)
class Generated:
    """A sweep over generated matrices of a pattern."""

    room: str
    experiment: str
    pattern: str  #: one of `registry.PATTERNS`
    precision: str
    #: Patterns of the sparse contenders' names, and of the dense ones: of these none, and their time is estimated.
    contenders: list[str] = field(default_factory=lambda: ["*"])
    dense: list[str] = field(default_factory=list)
    free: str = "n"  #: the size that the sparse operand has not: "m" where that is B


About = TypeVar("About", Real, Generated)


@dataclass(frozen=True)
class Pool:
    """The records of a `Real` experiment of a GPU, with the statistics of its matrices."""

    about: Real
    df: pd.DataFrame  #: rows of a record whose matrices have statistics
    matrices: Mapping[str, Statistics]

    @functools.cached_property
    def advisable(self) -> list[str]:
        """Contenders that can be advised: all that do not try others on the GPU, if one of these is as good at nearly
        all points; else everybody."""
        chosen = self.df[~self.df["variant"].map(self.about.races)]
        best, theirs = (df.groupby(AT)["median_us"].min() for df in (self.df, chosen))
        as_good = theirs.reindex(best.index) <= GOOD * best
        return list((chosen if as_good.mean() >= NEARLY_ALL else self.df)["variant"].unique())


#: Key of an entry -> what it may be.
ALLOWED = {
    "precision": PRECISIONS,
    "order": (statistics.GIVEN, statistics.RCM),
    "pattern": registry.PATTERNS,
    "free": ("n", "m"),
}


def maps(folder: Path = registry.FOLDER) -> tuple[list[Real], list[Generated]]:
    """What all rooms say, in their order. Raises ValueError that names file and key where one is not whole."""
    found: dict[str, list] = {"real": [], "generated": []}
    kinds = {"real": Real, "generated": Generated}
    for path in (folder / room / registry.MAP for room in registry.find(folder)):
        for key, entries in registry.toml(path).items() if path.is_file() else ():
            if key not in kinds:
                raise ValueError(f"{path}: there is no {key!r}, but real and generated.")
            found[key] += [_entry(path, kinds[key], entry) for entry in entries]
    return found["real"], found["generated"]


def _entry(path: Path, kind: type, entry: Mapping[str, Any]) -> Real | Generated:
    for key, value in entry.items():
        if value not in ALLOWED.get(key, [value]):
            raise ValueError(f"{path}: {key} is {value!r}, but must be one of {', '.join(ALLOWED[key])}.")
    return registry.made(path, kind, entry, path.parent.name)


def pools(gpu_folder: Path, folder: Path = registry.FOLDER) -> list[Pool]:
    """The pools of a GPU's records, those with the most points first. Of records without statistics nothing is used."""
    files = [folder / room / registry.STATISTICS for room in registry.find(folder)]
    known = {key: s for path in reversed(files) if path.is_file() for key, s in statistics.read(path).items()}
    found = []
    for about, df in recorded(gpu_folder, maps(folder)[0]):
        df = df[[(label, about.order) in known for label in df["label"]]].reset_index(drop=True)
        if df["label"].nunique() >= LEAST_MATRICES:
            found.append(Pool(about, df, {name: known[name, about.order] for name in df["label"].unique()}))
    return sorted(found, key=lambda pool: -len(pool.df[AT].drop_duplicates()))


def recorded(gpu_folder: Path, abouts: Iterable[About]) -> list[tuple[About, pd.DataFrame]]:
    """Each of what rooms say with its record, where a GPU has it."""
    paths = {about: gpu_folder / about.room / f"{about.experiment}.csv" for about in abouts}
    return [(about, records.read(path)) for about, path in paths.items() if path.is_file()]


def pool(gpu_folder: Path, precision: str = "FP32", folder: Path = registry.FOLDER) -> Pool:
    """The largest pool of a precision. Raises ValueError, one sentence, where there is none."""
    found = pools(gpu_folder, folder)
    known = list(dict.fromkeys(p.about.precision for p in found))
    if precision not in known:
        raise ValueError(
            f"There are no records of real matrices in {precision} on {gpu_folder.name}; recorded: "
            f"{', '.join(known) or 'none'}."
        )
    return found[[p.about.precision for p in found].index(precision)]


def fits(name: str, patterns: list[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)
