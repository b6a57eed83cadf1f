"""The chapter's experiments: measured on the GPU that is here, or read from records, as `run` says.

Records are DataFrames in `records.COLUMNS`; sizes are M = N = K where a table has one number for them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pandas as pd

from artifact import registry
from artifact.measure import bench, records
from artifact.measure import ceilings as ceilings_
from artifact.measure import run as harness
from artifact.measure.run import Run, Timer
from artifact.rooms.tensor_core_24 import epilogue as epilogue_
from artifact.rooms.tensor_core_24 import prepare, variants
from kernels import tensor_core_24 as room

ROOM = "tensor_core_24"
KEYS = ["m", "n", "k"]


def stated(part: str) -> pd.DataFrame:
    """What the source states: of its "benchmarks", or of its "design"."""
    return records.published(registry.published(ROOM, part))


def measure(
    run: Run,
    experiment: str,
    names: Iterable[str] = variants.MAIN,
    shapes: Sequence[dict] | None = None,
    timer: Timer = bench.time,
) -> pd.DataFrame:
    """One row per shape (default: the experiment's sweep) and contender, in the order of `names`."""
    shapes = room.sweeps(run.preset)[experiment] if shapes is None else shapes
    every = run.variants() | run.baselines()
    problems = [partial(room.problem, **shape, seed=run.seed) for shape in shapes]
    return run.measure(experiment, problems, {name: every[name] for name in names}, timer)


def studies(run: Run) -> pd.DataFrame:
    """The side studies that fit this GPU, beside the published kernel and the library."""
    shapes = room.sweeps(run.preset)["studies"]
    fitting = [v for v in variants.STUDIES if variants.takes_all(run.machine, v, shapes)]
    names = _known(run, fitting, "studies")
    return measure(run, "studies", ["mma_sp", *names, "cusparselt"])


def _known(run: Run, variants: Iterable[str], *experiments: str) -> list[str]:
    """Of some variants those that a run has: all where it measures, else those of which there is a row, since a record
    may be from before there was a variant."""
    if run.mode == "measure":
        return list(variants)
    paths = [run.folder / f"{name}.csv" for name in experiments]
    recorded = {v for path in paths if path.is_file() for v in records.read(path)["variant"]}
    return [v for v in variants if v in recorded]


def pruning(run: Run) -> pd.DataFrame | None:
    """How long pruning and compressing take, as `prepare.measure` gives it."""
    return prepare.measure(run)


def epilogue(run: Run) -> epilogue_.Tried | None:
    """C = alpha·A·B + beta·C + bias, tried where there is a GPU."""
    return epilogue_.tried(run)


#: Who shows what rows of B at odd multiples of 16 bytes cost, and what helps; and with whom they are compared.
ROWS = ("wgmma_lean", "wgmma_lean_tall", "wgmma_clusters", "auto", "cusparselt", "cublaslt")
#: Who multiplies products of microseconds.
SMALL = ("wgmma_cp_async", "auto", "cusparselt", "cublaslt")


def rows(run: Run) -> pd.DataFrame | None:
    """`ROWS` by where rows of B begin; None where no record has it, or the GPU has none of the kernels."""
    return _on_hopper(run, "rows", ROWS)


def chosen_of_rows(run: Run, rows: pd.DataFrame | None) -> dict[tuple, variants.Chosen]:
    """What the tuner chose for the shapes of `rows`, by shape."""
    return variants.chosen(run, wide(rows, "tflops").index) if rows is not None else {}


def small(run: Run) -> pd.DataFrame | None:
    """`SMALL` where there are few tiles; None where no record has it, or the GPU has none of the kernels."""
    return _on_hopper(run, "small", SMALL)


#: With whom the layout of a linear layer is compared. The sparse library takes tokens in multiples of 8 only.
LINEAR = ("auto", "cusparselt", "cublaslt")
TOKENS = 8


def with_layers(run: Run) -> Run:
    """The run; where it only reads, and has no records of linear layers, that of a GPU that has."""
    if run.mode == "measure" or (run.folder / "linear.csv").is_file():
        return run
    root = run.folder.parent.parent
    for path in sorted(root.glob(f"*/{ROOM}/linear.csv")):
        return harness.start(ROOM, "recorded", path.parent.parent.name, run.preset, run.seed, root)
    return run


def linear(run: Run) -> pd.DataFrame | None:
    """`LINEAR` in the layout of a linear layer; None where no record has it, or the GPU has none of the kernels."""
    return _on_hopper(run, "linear", LINEAR)


def decoding(run: Run) -> pd.DataFrame | None:
    """The same with few tokens."""
    shapes = room.sweeps(run.preset)["decoding"]
    whole = [s for s in shapes if s["n"] % TOKENS == 0]
    parts = (LINEAR, whole), (("auto", "cublaslt"), [s for s in shapes if s not in whole])
    found = [_on_hopper(run, "decoding", names, some) for names, some in parts]
    if any(df is None for df in found):
        return None
    if run.mode == "measure":
        leave_out_library(run, found[1])
    return together(*found).sort_values(["m", "n"], kind="stable", ignore_index=True)


def leave_out_library(run: Run, odd: pd.DataFrame) -> None:
    """Write down that cuSPARSELt has no rows at the points of `odd`, and why."""
    why = f"cuSPARSELt takes tokens in multiples of {TOKENS} only"
    for point in odd[list(records.POINT)].drop_duplicates().itertuples(index=False, name=None):
        records.leave_out(run.folder / "decoding.csv", ("cusparselt", *point), why)


def _on_hopper(
    run: Run, experiment: str, names: Sequence[str], shapes: Sequence[dict] | None = None
) -> pd.DataFrame | None:
    """An experiment of Hopper's kernels; None where the GPU does not take them, or no record has it."""
    shapes = room.sweeps(run.preset)[experiment] if shapes is None else shapes
    rungs = [v for v in names if v in room.RUNGS]
    if not (variants.is_hopper(run.machine) and all(variants.takes_all(run.machine, v, shapes) for v in rungs)):
        return None
    if run.mode != "measure" and not (run.folder / f"{experiment}.csv").is_file():
        return None
    return measure(run, experiment, names, shapes)


#: Who is measured at any size.
RAGGED = ("mma_sp", "auto", "cublaslt")
#: `auto` over cuSPARSELt's best should be at `AIM`, from the work of 4096³ on.
AIM = 1.10
LARGE = 2 * 4096**3  # FLOP

#: Who is measured alone, how long, and how often at most.
ALONE = ("wgmma_keep", "auto", "cusparselt")
ALONE_S, ALONE_SAMPLES = 0.5, 400


def alone(run: Run) -> pd.DataFrame | None:
    """`ALONE` where power decides, each without the others for `ALONE_S` seconds; None where no record has it.

    Elsewhere contenders take turns of milliseconds, so that the clock, which power lowers, is nearly one for all.
    """
    if run.mode != "measure" and not (run.folder / "alone.csv").is_file():
        return None
    return measure(run, "alone", ALONE, timer=one_by_one)


def one_by_one(bounds: Mapping, device, *, budget_s: float, verify=None) -> dict[str, bench.Timing]:
    """A timer as `bench.time`, for one contender after the other and `ALONE_S` seconds each."""
    found = {}
    for name, bound in bounds.items():
        found |= bench.time({name: bound}, device, budget_s=ALONE_S, max_samples=ALONE_SAMPLES, verify=verify)
    return found


def together(*frames: pd.DataFrame) -> pd.DataFrame:
    """Records of several experiments as one table."""
    return pd.concat(frames, ignore_index=True)


def by_size(df: pd.DataFrame, variant: str, column: str = "tflops") -> pd.Series:
    return df[df["variant"] == variant].set_index("m")[column]


def over(df: pd.DataFrame, variant: str, baseline: str) -> pd.Series:
    """Speedup by size."""
    return by_size(df, baseline, "median_us") / by_size(df, variant, "median_us")


def wide(df: pd.DataFrame, column: str) -> pd.DataFrame:
    """(m, n, k) in the order of the records, by contender."""
    values = df.set_index([*KEYS, "variant"])[column]
    # Not `unstack(sort=False)`, with which pandas 3.0 gives rows the names of others.
    found = values.unstack("variant")
    return found.loc[values.index.droplevel("variant").unique(), values.index.unique("variant")]


# ---------------------------------------------------------------- the ladder


@dataclass(frozen=True)
class Ladder:
    """The rungs that this GPU runs, at every size of the sweep that they take."""

    frame: pd.DataFrame
    rungs: dict[str, variants.Rung]
    climbed: list[int]  #: the largest sizes that every rung takes, at most two
    has_gaps: bool  #: at one size there are fewer tiles than a rung needs

    @property
    def sizes(self) -> list[int]:
        return sorted(set(self.frame["m"]))

    @property
    def drawn(self) -> pd.DataFrame:
        """Records of the sizes that every rung takes."""
        return self.frame[self.frame["m"].isin(self.climbed)]

    @property
    def predictions(self) -> dict[str, str]:
        return {name: variants.prediction(name) for name in ("mma_sp", *self.rungs, "auto")}

    @property
    def before(self) -> dict[str, str]:
        """Rung -> the kernel that it builds on."""
        return {name: rung.before for name, rung in self.rungs.items()}

    def rate(self, variant: str, size: int) -> float:
        """TFLOP/s; NaN where it was not measured."""
        return by_size(self.frame, variant).get(size, np.nan)

    def gain(self, variant: str, size: int) -> float:
        """Factor over the kernel that a rung builds on."""
        return self.rate(variant, size) / self.rate(self.rungs[variant].before, size)


def ladder(run: Run) -> Ladder:
    """Every rung at every size that it takes; sizes that one of them does not take are a record of their own."""
    sweep = room.sweeps(run.preset)["ladder"]
    rungs = variants.rungs()
    taken = [v for v in rungs if any(variants.takes_all(run.machine, v, [s]) for s in sweep)]
    here = {v: rungs[v] for v in _known(run, taken, "ladder", "ladder_small")}
    whole = [s for s in sweep if all(variants.takes_all(run.machine, name, [s]) for name in here)]
    part = [s for s in sweep if s not in whole]
    frames = []
    for experiment, shapes in (("ladder", whole), ("ladder_small", part)):
        names = [name for name in here if variants.takes_all(run.machine, name, shapes)]
        if shapes:
            names = ["mma_sp", *names, "auto", "cusparselt", "cublaslt"]
            frames.append(measure(run, experiment, names, shapes))
    climbed = sorted({shape["m"] for shape in whole})[-2:]
    return Ladder(together(*frames), here, climbed, bool(part))


# ---------------------------------------------------------------- ceilings


@dataclass(frozen=True)
class Ceilings:
    """What loops of nothing but one instruction sustain, TFLOP/s and MHz by microbenchmark; dense-equivalent."""

    peak: Mapping[str, float]
    sm_mhz: Mapping[str, float]
    #: What figures and sentences call them.
    CALLED = {"mma_sp": "mma.sp", "wgmma": "wgmma (dense)", "wgmma_sp_ra": "wgmma.sp"}

    @property
    def best_sparse(self) -> str | None:
        """The fastest loop of the best sparse instruction that the GPU has; None where none was measured. With A in
        registers or in shared memory is one instruction, and which is faster differs between GPUs."""
        known = [v for v in ("wgmma_sp_ra", "wgmma_sp") if v in self.peak]
        if known:
            return max(known, key=self.peak.get)
        return "mma_sp" if "mma_sp" in self.peak else None

    @property
    def called(self) -> str:
        """The instruction of `best_sparse`."""
        return self.CALLED["mma_sp" if self.best_sparse == "mma_sp" else "wgmma_sp_ra"]

    @property
    def two_instructions(self) -> bool:
        """Whether the GPU has a sparse instruction besides the published kernel's."""
        return "mma_sp" in self.peak and self.best_sparse != "mma_sp"

    @property
    def lines(self) -> dict[str, float]:
        """For a figure."""
        found = {name: self.peak[v] for v, name in self.CALLED.items() if v in self.peak}
        return found | ({self.called: self.peak[self.best_sparse]} if self.best_sparse else {})

    @property
    def of_contenders(self) -> dict[str, tuple[str, float]]:
        """The ceiling of the instruction that each contender is held against, for a figure."""
        found = {"mma_sp": (self.CALLED["mma_sp"], self.peak["mma_sp"])}
        if self.two_instructions:
            best = self.CALLED["wgmma_sp_ra"], self.peak[self.best_sparse]
            found |= {"auto": best, "cusparselt": best}
            found["cublaslt"] = self.CALLED["wgmma"], self.peak["wgmma"]
        return found


def ceilings(ceiling_run: Run, machine: variants.Machine) -> Ceilings:
    """ceiling_run: the run of the room "ceilings"; machine: of the chapter's run."""
    measured = ceilings_.measure(ceiling_run)
    peaks = ceilings_.tensor_cores(measured, machine).set_index("variant")["measured"].to_dict()
    return Ceilings(peaks, measured.set_index("variant")["sm_mhz"].to_dict())


# ---------------------------------------------------------------- counters

TENSOR = "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed"
SHARED = "l1tex__data_pipe_lsu_wavefronts.avg.pct_of_peak_sustained_elapsed"
TO_SM = "l1tex__m_xbar2l1tex_read_bytes.sum"
AT_L2 = "lts__t_bytes.sum"
FROM_DRAM = "dram__bytes_read.sum"
INSTRUCTIONS = "smsp__inst_executed.sum"
REQUESTS = "lts__t_requests_srcunit_tex.sum"
SECTORS = "lts__t_sectors_srcunit_tex.sum"
TIME = "gpu__time_duration.sum"
CLOCK = "sm__cycles_elapsed.avg.per_second"
CONFLICTS = "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum"
WAVES = "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum"
#: What a contender must have to be in the table of the profile.
NEEDED = (TENSOR, SHARED, TO_SM, TIME)


@dataclass(frozen=True)
class Counters:
    """Nsight Compute's counters: (variant, size, metric) -> value; empty where none were recorded."""

    values: Mapping[tuple[str, int, str], float]

    def get(self, variant: str, size: int, metric: str) -> float:
        """NaN where it was not counted."""
        return self.values.get((variant, size, metric), np.nan)

    def has(self, *variants: str, size: int, metrics: Iterable[str]) -> bool:
        return all((v, size, metric) in self.values for v in variants for metric in metrics)

    def ratio(self, variant: str, baseline: str, size: int, metric: str) -> float:
        return self.get(variant, size, metric) / self.get(baseline, size, metric)


def counters(run: Run, part: str = "") -> Counters:
    """Of the room's cubes, or of those of a part of it that was profiled beside it."""
    df = _counted(run, part)
    return Counters(_values(df[(df["m"] == df["n"]) & (df["n"] == df["k"])], "m"))


def counters_of_rows(run: Run) -> Counters:
    """Of products of 4096 rows and k = 4096, by the number of their columns as the size."""
    df = _counted(run)
    return Counters(_values(df[(df["m"] == 4096) & (df["k"] == 4096)], "n"))


def _counted(run: Run, part: str = "") -> pd.DataFrame:
    path = run.folder / part / "counters.csv"
    columns = ["variant", *KEYS, "metric", "value"]
    return records.read_counters(path) if path.exists() else pd.DataFrame(columns=columns)


def _values(df: pd.DataFrame, size: str) -> dict[tuple[str, int, str], float]:
    return df.set_index(["variant", size, "metric"])["value"].to_dict()


@dataclass(frozen=True)
class Profile:
    """Who was profiled, and at which of the ladder's sizes all of them were."""

    counters: Counters
    contenders: list[str]
    sizes: list[int]

    def holds(self, *variants: str) -> bool:
        """Whether these were profiled, all at one size."""
        return bool(self.sizes) and set(variants) <= set(self.contenders)


def profile(counters: Counters, climbed: Ladder) -> Profile:
    wanted = ("mma_sp", *climbed.rungs, "auto", "cusparselt", "cublaslt")
    found = [v for v in wanted if counters.has(v, size=4096, metrics=NEEDED)]
    sizes = [s for s in climbed.climbed if found and counters.has(*found, size=s, metrics=NEEDED)]
    return Profile(counters, found, sizes)
