"""Which records the map and the advice are made of: the rooms say it in their map.toml.

A `[[real]]` entry is an experiment over real matrices, a `[[generated]]` one a sweep over a pattern of non-zeros. What
no GPU has measured yet is left out without a word, so that an entry may wait for its records.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

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


@dataclass(frozen=True)
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


@dataclass(frozen=True)
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
        measured = list(dict.fromkeys(self.df["variant"]))
        chosen = [v for v in measured if not self.about.races(v)]
        at = ["label", "n"]
        best = self.df.groupby(at)["median_us"].min()
        theirs = self.df[self.df["variant"].isin(chosen)].groupby(at)["median_us"].min()
        as_good = theirs.reindex(best.index) <= GOOD * best
        return chosen if as_good.mean() >= NEARLY_ALL else measured


def maps(folder: Path = registry.FOLDER) -> tuple[list[Real], list[Generated]]:
    """What all rooms say, in their order. Raises ValueError that names file and key where one is not whole."""
    real, generated = [], []
    for room in registry.find(folder):
        path = folder / room / registry.MAP
        if not path.is_file():
            continue
        table = registry.toml(path)
        for key, kind, found in (("real", Real, real), ("generated", Generated, generated)):
            found += [_entry(path, room, kind, entry) for entry in table.pop(key, [])]
        if table:
            raise ValueError(f"{path}: there is no {next(iter(table))!r}, but real and generated.")
    return real, generated


def pools(gpu_folder: Path, folder: Path = registry.FOLDER) -> list[Pool]:
    """The pools of a GPU's records, those with the most points first. Of records without statistics nothing is used."""
    known = {}
    for room in registry.find(folder):
        if registry.statistics(room, folder).is_file():
            known = statistics.read(registry.statistics(room, folder)) | known
    found = []
    for about in maps(folder)[0]:
        path = gpu_folder / about.room / f"{about.experiment}.csv"
        if not path.is_file():
            continue
        df = records.read(path)
        df = df[[(label, about.order) in known for label in df["label"]]].reset_index(drop=True)
        if df["label"].nunique() >= LEAST_MATRICES:
            names = dict.fromkeys(df["label"])
            found.append(Pool(about, df, {name: known[name, about.order] for name in names}))
    return sorted(found, key=lambda pool: -len(pool.df[["label", "n"]].drop_duplicates()))


def pool(gpu_folder: Path, precision: str = "FP32", folder: Path = registry.FOLDER) -> Pool:
    """The largest pool of a precision. Raises ValueError, one sentence, where there is none."""
    found = pools(gpu_folder, folder)
    chosen = [p for p in found if p.about.precision == precision]
    if not chosen:
        known = ", ".join(dict.fromkeys(p.about.precision for p in found)) or "none"
        raise ValueError(
            f"There are no records of real matrices in {precision} on {gpu_folder.name}; recorded: {known}."
        )
    return chosen[0]


def _entry(path: Path, room: str, kind, entry: Mapping):
    known = {f.name: f for f in fields(kind)[1:]}
    for key in entry:
        if key not in known:
            raise ValueError(f"{path}: the key {key!r} is none of {', '.join(known)}.")
    for key, f in known.items():
        if key not in entry and f.default is MISSING and f.default_factory is MISSING:
            raise ValueError(f"{path}: the key {key!r} is missing.")
    made = kind(room, **entry)
    allowed = {
        "precision": PRECISIONS,
        "order": (statistics.GIVEN, statistics.RCM),
        "pattern": registry.PATTERNS,
        "free": ("n", "m"),
    }
    for key, values in allowed.items():
        if getattr(made, key, values[0]) not in values:
            raise ValueError(f"{path}: {key} is {entry[key]!r}, but must be one of {', '.join(values)}.")
    return made


def fits(name: str, patterns: list[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)
