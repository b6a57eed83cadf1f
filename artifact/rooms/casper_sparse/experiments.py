"""The chapter's experiments: measured on the GPU that is here, or read from records, as `run` says.

Records are DataFrames in `records.COLUMNS`; `sweeps` adds the rows of "cusparse_best", the fastest algorithm
of cuSPARSE at each point.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pandas as pd

from artifact.measure import ceilings as ceilings_
from artifact.measure import matrices, records
from artifact.measure.run import Run
from artifact.profiling import ncu
from kernels import casper_sparse as room

NAMES = tuple(room.VARIANTS)
BEST = "cusparse_best"
POINT = ["experiment", *records.POINT]
#: Odd numbers of columns, M = K = 4096, 1%.
RAGGED = {"full": (1, 3, 5, 17, 33, 65, 129, 257, 1001), "kick": (3, 65, 257)}
NEED_FOUR = ("warp_per_row", "no_staging", "shared_tiles")  #: take multiples of four columns only
REAL_N = 256  #: columns of B for real matrices


def contenders(run: Run, variants: Iterable[str] = NAMES) -> dict:
    return run.variants(variants) | run.baselines()


def sweep(run: Run, experiment: str) -> pd.DataFrame:
    """One of the source's three sweeps, all contenders."""
    shapes = room.sweeps(run.preset)[experiment]
    problems = [partial(room.problem, **shape, seed=run.seed) for shape in shapes]
    return run.measure(experiment, problems, contenders(run))


def all_sweeps(run: Run) -> pd.DataFrame:
    frames = [sweep(run, experiment) for experiment in room.sweeps(run.preset)]
    return pd.concat(frames, ignore_index=True)


def again(run: Run) -> pd.DataFrame | None:
    """The sweeps a second time; run: started with repeat=True. None where no second run was recorded."""
    if run.mode == "measure" or (run.folder / "wide.csv").exists():
        return all_sweeps(run)
    return None


def ragged(run: Run) -> pd.DataFrame:
    """Odd numbers of columns, for the variants that take any."""
    sizes = {"m": 4096, "k": 4096, "density": 0.01, "seed": run.seed}
    problems = [partial(room.problem, n=n, **sizes) for n in RAGGED[run.preset]]
    takes_any = [v for v in NAMES if v not in NEED_FOUR]
    return records.best_of(run.measure("ragged", problems, contenders(run, takes_any)))


def real(run: Run) -> pd.DataFrame | None:
    """Real matrices, from the folder that the user names; None where there are no records of them."""
    names = list_of_matrices(run.preset)["name"]
    where = matrices.folder() if run.mode == "measure" else None
    if where is not None:
        problems = [partial(_real_problem, name, where, run.seed) for name in names]
        run.measure("real", problems, contenders(run))
    path = run.folder / "real.csv"
    if not path.exists():
        return None
    df = records.best_of(records.read(path))
    return df[df["label"].isin(names)]


def list_of_matrices(preset: str) -> pd.DataFrame:
    listed = matrices.listed()
    return listed.head(3) if preset == "kick" else listed


def _real_problem(name: str, where, seed: int):
    return room.problem_from_csr(matrices.load(name, where), REAL_N, seed, name)


# ---------------------------------------------------------------- what sentences ask of records


def of(df: pd.DataFrame, experiment: str) -> pd.DataFrame:
    return df[df["experiment"] == experiment]


def ratios(df: pd.DataFrame, variant: str, experiment: str, baseline: str = BEST) -> pd.Series:
    """Speedups of a variant at the points of a sweep."""
    return records.speedup(of(df, experiment), variant, baseline)


def mean(df: pd.DataFrame, variant: str, experiment: str, baseline: str = BEST) -> float:
    """Their geometric mean."""
    return records.geomean(ratios(df, variant, experiment, baseline))


def by_sweep(df: pd.DataFrame, variant: str, baseline: str = BEST) -> dict[str, pd.Series]:
    """`ratios` of every sweep that the records have."""
    return {e: ratios(df, variant, e, baseline) for e in dict.fromkeys(df["experiment"])}


# ---------------------------------------------------------------- ceilings and counters


@dataclass(frozen=True)
class Ceilings:
    """What the machine does at most: GB/s of a copy, of L2 and of shared memory, TFLOP/s of FMAs."""

    copy_gbps: float
    l2_gbps: float
    shared_gbps: float
    fma_tflops: float


def ceilings(run: Run) -> Ceilings:
    """run: of the room "ceilings"."""
    df = ceilings_.measure(run).set_index("variant")
    gbps = (df.loc[name, "gbps"] for name in ("copy", "l2_read", "shared_read"))
    return Ceilings(*gbps, df.loc["fma", "tflops"])


#: Metric -> the column of a table.
METRICS = {
    "dram__throughput.avg.pct_of_peak_sustained_elapsed": "DRAM",
    "lts__throughput.avg.pct_of_peak_sustained_elapsed": "L2",
    "l1tex__throughput.avg.pct_of_peak_sustained_active": "L1 and shared",
    "lts__t_sector_hit_rate.pct": "L2 hits",
    "l1tex__t_sector_hit_rate.pct": "L1 hits",
    "sm__warps_active.avg.pct_of_peak_sustained_active": "occupancy",
}
FROM_DRAM = "dram__bytes_read.sum"
#: The memories whose traffic is counted, the farthest from the cores first.
MEMORIES = ("DRAM", "L2", "shared memory")
COUNTED = (
    ncu.TIME,
    FROM_DRAM,
    "dram__bytes_write.sum",
    "lts__t_sectors_op_read.sum",
    "lts__t_sectors_op_red.sum",
    "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum",
)
#: Bytes of a sector of L2, and of a wavefront of shared memory.
SECTOR, WAVEFRONT = 32, 128


@dataclass(frozen=True)
class Counters:
    """Nsight Compute's counters, tidy, as `records.read_counters` gives them."""

    tidy: pd.DataFrame

    @property
    def table(self) -> pd.DataFrame:
        """m, n, k, density, variant, and a column for each of METRICS that was counted."""
        df = self.tidy[self.tidy["metric"].isin(METRICS)]
        df = df.assign(metric=df["metric"].map(METRICS))
        point = ["m", "n", "k", "density", "variant"]
        wide = df.pivot_table(index=point, columns="metric", values="value", sort=False)
        return wide[[c for c in METRICS.values() if c in wide]].reset_index()

    @property
    def traffic(self) -> pd.DataFrame:
        """m, n, k, density, variant, group (the sweep that a shape is of) and a column of TB/s for each of MEMORIES."""
        point = ["m", "n", "k", "density", "variant"]
        wide = self.tidy.pivot_table(index=point, columns="metric", values="value", sort=False)
        wide = wide.rename(columns={other: usual for usual, other in ncu.OTHER_NAMES.items()})
        wide = wide.reindex(columns=[*wide, *(c for c in COUNTED if c not in wide)])
        sectors = wide["lts__t_sectors_op_read.sum"] + wide["lts__t_sectors_op_red.sum"].fillna(0)
        moved = {
            "DRAM": wide[FROM_DRAM] + wide["dram__bytes_write.sum"],
            "L2": SECTOR * sectors,
            "shared memory": WAVEFRONT * wide["l1tex__data_pipe_lsu_wavefronts_mem_shared.sum"],
        }
        rates = {m: counted / wide[ncu.TIME] / 1e3 for m, counted in moved.items()}
        out = pd.DataFrame(rates).reset_index()
        square, tall = (out["m"] == out["n"]) & (out["n"] == out["k"]), out["m"] > out["k"]
        return out.assign(group=np.select([square, tall], ["square", "tall"], "wide"))

    @property
    def most_dense(self) -> pd.DataFrame:
        """Of `table`, the largest density of the shapes that fill the GPU."""
        table = self.table
        return table[(table["density"] == table["density"].max()) & (table["m"] > 1024)]

    def at(self, variant: str, m: int, n: int, column: str) -> float:
        """A cell of `most_dense`. Raises KeyError where it was not counted."""
        return self.most_dense.set_index(["variant", "m", "n"]).loc[(variant, m, n), column]

    def has(self, points: Sequence[tuple[str, int, int]]) -> bool:
        """Whether `at` has all of (variant, m, n)."""
        return set(points) <= set(self.most_dense.set_index(["variant", "m", "n"]).index)

    def read_from_dram(self, variant: str, m: int) -> float:
        """Bytes, at the largest density. Raises KeyError where they were not counted."""
        df = self.tidy[self.tidy["metric"] == FROM_DRAM]
        values = df.set_index(["variant", "m", "density"])["value"]
        return values[(variant, m, self.most_dense["density"].iloc[0])]


def counters(run: Run) -> Counters | None:
    """None where none were recorded."""
    path = run.folder / "counters.csv"
    return Counters(records.read_counters(path)) if path.exists() else None
