"""Everything that a chapter asks of one GPU: records, second runs, counters, ceilings, published numbers, verdicts.

study = Study(run)                       run: `artifact.measure.run.start`
study.read("llm")                        a table beside the records; None where it was not measured
study.counters.get("auto", TIME, m=4096) what Nsight Compute counted; NaN where it was not
study.ceiling("fma", "tflops")           what a microbenchmark reached; NaN where it was not measured
study.stated("fig4", "speedup")          what the source says
"""

from collections.abc import Callable, Collection, Hashable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, wraps
from typing import Any

import numpy as np
import pandas as pd

from artifact import registry
from artifact.measure import ceilings, records, run as harness
from artifact.profiling import ncu
from artifact.verdicts import judge, load

#: Memory → the microbenchmark of what it delivers at most.
MEMORIES = {"DRAM": "copy", "L2": "l2_read", "shared memory": "shared_read"}


@dataclass(frozen=True)
class Counters:
    """Hardware counters, tidy: a row for each contender, point and metric; empty where none were recorded."""

    rows: pd.DataFrame  #: `records.COUNTER_COLUMNS`
    _known: dict[tuple[str, ...], dict[tuple[Hashable, ...], float]] = field(default_factory=dict, init=False)

    def __bool__(self) -> bool:
        return not self.rows.empty

    def where(self, **at: Any) -> "Counters":
        """Keep rows at these values of the columns, each a value or a collection of them."""
        return Counters(where(self.rows, **at))

    def get(self, variant: str, metric: str, **at: Any) -> float:
        """Return a counter at a point, of which only the columns that differ need be given.

        NaN where it was not counted.
        """
        if (key := tuple(at)) not in self._known:
            self._known[key] = self.rows.set_index(["variant", "metric", *key])["value"].to_dict()
        return self._known[key].get((variant, metric, *at.values()), np.nan)

    def wide(self, metrics: Mapping[str, str], *point: str) -> pd.DataFrame:
        """Return a row for each contender and point, a column for each metric that was counted.

        metrics: metric → column, in the order of the columns. point: columns that tell points apart.
        """
        table = (
            self.rows[self.rows["metric"].isin(metrics)]
            .replace({"metric": dict(metrics)})
            .pivot_table(index=[*point, "variant"], columns="metric", values="value", sort=False)
        )
        return table[[c for c in metrics.values() if c in table]].reset_index()


@dataclass(frozen=True)
class Study:
    """A system on one GPU."""

    run: harness.Run

    @property
    def machine(self) -> Mapping[str, Any]:
        """The machine that its records are of."""
        return self.run.machine

    def read(self, name: str) -> pd.DataFrame | None:
        """Return a table of records by its name, "part/name" of a part; None where it was not measured."""
        path = self.run.folder / f"{name}.csv"
        return records.read(path) if path.exists() else None

    def table(self, name: str) -> pd.DataFrame | None:
        """Return a table beside the records that has columns of its own; None where it was not measured."""
        path = self.run.folder / f"{name}.csv"
        return pd.read_csv(path) if path.exists() else None

    @cached_property
    def again(self) -> "Study":
        """The second run of the same measurement."""
        return Study(self._open(self.run.room, repeat=True))

    @cached_property
    def counters(self) -> Counters:
        """The counters of the system."""
        return self.counters_of("")

    def counters_of(self, part: str) -> Counters:
        """Return the counters of a part of the system that was profiled beside it."""
        path = self.run.folder / part / "counters.csv"
        rows = records.read_counters(path) if path.exists() else pd.DataFrame(columns=list(records.COUNTER_COLUMNS))
        return Counters(rows.replace({"metric": {other: usual for usual, other in ncu.OTHER_NAMES.items()}}))

    @cached_property
    def ceilings(self) -> pd.DataFrame:
        """What microbenchmarks reached on the GPU, by their names; measured where the system is measured."""
        return ceilings.measure(self._open("ceilings")).set_index("variant")

    def ceiling(self, name: str, column: str) -> float:
        """Return what a microbenchmark reached, "gbps" or "tflops"; NaN where it was not measured."""
        return self.ceilings[column].get(name, np.nan)

    def published(self, figure: str) -> pd.DataFrame:
        """Return the numbers of one of the source's figures or tables."""
        return records.published(registry.published(self.run.room, figure))

    def stated(self, figure: str, quantity: str, **at: Any) -> pd.DataFrame:
        """Return the rows of a quantity in one of the source's figures that give a number, with their `value`.

        The geometric middle of a range, or the only bound.
        """
        rows = where(self.published(figure), quantity=quantity, **at).dropna(subset=["low", "high"], how="all")
        low, high = rows["low"].fillna(rows["high"]), rows["high"].fillna(rows["low"])
        return rows.assign(value=np.where(low == high, low, np.sqrt(low.astype(float) * high.astype(float))))

    @cached_property
    def verdicts(self) -> pd.DataFrame:
        """The verdict on each claim of the source, as `judge.judge` gives it."""
        return judge.kept([claim for claim in load.claims() if claim.room == self.run.room], self.run.folder.parent)

    def _open(self, system: str, repeat: bool = False) -> harness.Run:
        how = (self.run.mode, self.run.gpu, self.run.preset, self.run.seed, self.run.folder.parent.parent)
        return harness.start(system, *how, repeat=repeat)


def start(
    system: str, mode: str = "auto", gpu: str = "nvidia-h200", preset: str = "full", seed: int = 0, folder: str = ""
) -> Study:
    """Open a system by the parameters of a notebook; see `artifact.measure.run.start`."""
    return Study(harness.start(system, mode, gpu, preset, seed, folder))


def given(make: Callable[..., Any]) -> Callable[..., Any]:
    """Have a function of tables return None where one of them is None: it was not measured."""

    @wraps(make)
    def made(*tables: Any) -> Any:
        return None if any(table is None for table in tables) else make(*tables)

    return made


# ---------------------------------------------------------------- arithmetic on records


def where(df: pd.DataFrame, **at: Any) -> pd.DataFrame:
    """Return the rows at these values of the columns, each a value or a collection of them."""
    keep = np.ones(len(df), bool)
    for column, value in at.items():
        several = isinstance(value, Collection) and not isinstance(value, str)
        keep &= df[column].isin(list(value)) if several else df[column] == value
    return df[keep]


def has(df: pd.DataFrame | None, *variants: str) -> bool:
    """Tell whether records have all these contenders."""
    return df is not None and set(variants) <= set(df["variant"])


def by(df: pd.DataFrame, variant: str, column: str = "median_us", key: str | list[str] = "m") -> pd.Series:
    """Return a column of a contender's rows by one of the other columns, or by several."""
    return df[df["variant"] == variant].set_index(key)[column]


def ratio(df: pd.DataFrame, variant: str, baseline: str, key: str | list[str] = "m") -> pd.Series:
    """Return the speedup of a contender over another where both are, by a column or by several."""
    return (by(df, baseline, key=key) / by(df, variant, key=key)).dropna()


def mean(df: pd.DataFrame, variant: str, baseline: str, **at: Any) -> float:
    """Return the geometric mean of one contender's speedup over another.

    It is over the points at these values that both have.
    """
    return records.geomean(records.speedup(where(df, **at), variant, baseline))


def rungs(df: pd.DataFrame, variants: Mapping[str, str], baseline: str) -> pd.DataFrame:
    """Return the mean and the range of each contender's speedup over another by experiment, and its prediction.

    variants: contender → what was predicted of it, in their order.
    """
    return (
        pd.concat(records.speedup(df, v, baseline).to_frame().assign(variant=v) for v in variants)
        .groupby(["variant", "experiment"], sort=False)["speedup"]
        .agg(speedup=records.geomean, least="min", most="max", points="count")
        .reset_index()
        .assign(prediction=lambda table: table["variant"].map(variants))
    )


@given
def repeated(first: pd.DataFrame, second: pd.DataFrame) -> pd.DataFrame:
    """Return the time of each point in two runs of a measurement, and the second over the first.

    The ratio is given in per cent off as well.
    """
    key = ["experiment", *records.KEY]
    both = first.merge(second, on=key, suffixes=("_first", "_second"))
    ratio = both["median_us_second"] / both["median_us_first"]
    return both[[*key, "median_us_first", "median_us_second"]].assign(ratio=ratio, percent=100 * (ratio - 1))


def pivot(df: pd.DataFrame, column: str, key: str | list[str] = "m") -> pd.DataFrame:
    """Return a column of records with a row for each value of `key` and a column for each contender.

    Both are in the order of the records.
    """
    values = df.set_index([*([key] if isinstance(key, str) else key), "variant"])[column]
    # Not `unstack(sort=False)`, with which pandas 3.0 gives rows the names of others.
    return values.unstack("variant").loc[values.index.droplevel("variant").unique(), values.index.unique("variant")]
