"""The room's measurement as its chapter sees it: records or a GPU, the FMA ceiling, what the report states."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path

import pandas as pd

from artifact import registry
from artifact.baselines import cpu, cublas
from artifact.measure import bench, ceilings, records, run
from kernels import nm_cuda_core as room
from kernels.nm_cuda_core import launch

ROOM = "nm_cuda_core"
VARIANTS = list(room.VARIANTS)
PUBLISHED = [
    "baseline",
    "prefetch",
    "double_buffer",
]  #: the report's kernels, as we would write them
LETTER = [
    "verbatim",
    "verbatim_prefetch",
    "verbatim_double_buffer",
]  #: and to the letter, in the same order
READINGS = list(cublas.READINGS)
ON_CPU = ["cpu_loop", "cpu_scipy", "cpu_blas"]
PATTERN_KERNELS = ["baseline", "double_buffer", "zigzag", "element_wise"]
PATTERN_SIZE = 4096
#: (M, density) of the patterns that are compared, by preset.
PATTERNS = {
    "full": [(4, 0.25), (4, 0.5), (8, 0.5), (32, 0.25), (32, 0.375), (32, 0.5)],
    "kick": [(4, 0.25), (4, 0.5)],
}
#: The sequential loop takes a minute at 2048 and grows with the cube; the report stops there, too.
LARGEST_ON_CPU = {"full": 2048, "kick": 512}
STATED = ("fig2", "fig3", "fig4", "table1")
#: Experiment -> contenders, and whether under the published protocol: a loop of calls, time over count. What is to the
#: letter is left out where a record does not have it.
EXPERIMENTS = {
    "scaling": ([*VARIANTS, "cublas"], False),
    "published": ([*PUBLISHED, *LETTER, *READINGS], True),
    "cpu": ([*PUBLISHED, *LETTER, "cublas", "cublas_handle", *ON_CPU], True),
    "element_wise": (["element_wise", "cublas"], False),
    "patterns": ([*PATTERN_KERNELS, "cublas"], False),
}


@dataclass
class Trial:
    """What `start` found: the run, and what its numbers are held against."""

    run: run.Run
    open_run: Callable[..., run.Run]  #: `run.start` with the chapter's parameters
    stated: dict[str, pd.DataFrame]  #: the report's numbers, by figure
    fma: float  #: measured FMA ceiling, TFLOP/s
    frames: dict[str, pd.DataFrame] = field(default_factory=dict, repr=False)

    @cached_property
    def report(self) -> pd.DataFrame:
        """Every entry, compiled here for every target."""
        return self.run.compile_report()

    @property
    def sizes(self) -> list[int]:
        """M = N = K of the scaling sweep, the largest last."""
        return [shape["m"] for shape in room.sweeps(self.run.preset)["scaling"]]

    def measure(self, experiment: str) -> pd.DataFrame:
        """Measured here, or read from records; what a cell has asked for once is kept. Raises
        FileNotFoundError, one sentence, without records."""
        if experiment not in self.frames:
            self.frames[experiment] = self._measure(self.run, experiment)
        return self.frames[experiment]

    def on_cpu(self) -> pd.DataFrame | None:
        """The experiment with the sequential CPU; None where there is neither a record nor a C compiler."""
        can = self.run.mode == "measure" and "cpu_loop" in cpu.available()
        recorded = (self.run.folder / "cpu.csv").exists()
        return self.measure("cpu") if can or recorded else None

    def second(self) -> pd.DataFrame | None:
        """The scaling sweep measured again; None where it was not."""
        again = self.open_run(ROOM, repeat=True)
        there = again.mode == "measure" or (again.folder / "scaling.csv").exists()
        return self._measure(again, "scaling") if there else None

    def shapes(self, experiment: str) -> list[dict]:
        """Arguments of `room.problem` for each point of an experiment."""
        preset = self.run.preset
        if experiment == "patterns":
            cube = dict.fromkeys(("m", "n", "k"), PATTERN_SIZE)
            return [cube | {"group": group, "density": d} for group, d in PATTERNS[preset]]
        shapes = room.sweeps(preset)["scaling"]
        if experiment == "cpu":
            return [shape for shape in shapes if shape["m"] <= self._largest_on_cpu]
        return [s | {"vector": 1} for s in shapes] if experiment == "element_wise" else shapes

    @property
    def _largest_on_cpu(self) -> int:
        """Of what is read, the largest size in it: a measurement may have ended before the loop at the last one."""
        path, most = self.run.folder / "cpu.csv", LARGEST_ON_CPU[self.run.preset]
        if self.run.mode == "measure" or not path.exists():
            return most
        return min(most, int(records.read(path)["m"].max()))

    def _measure(self, this: run.Run, experiment: str) -> pd.DataFrame:
        names, published = EXPERIMENTS[experiment]
        path = this.folder / f"{experiment}.csv"
        if this.mode != "measure" and path.exists():
            known = set(records.read(path)["variant"])
            names = [v for v in names if v in known or v not in launch.VERBATIM]
        every = this.variants() | cublas.readings(this.device) | this.baselines(["cpu"])
        problems = [partial(room.problem, **s, seed=this.seed) for s in self.shapes(experiment)]
        timer = bench.time_calls if published else bench.time
        return this.measure(experiment, problems, {name: every[name] for name in names}, timer)


def start(
    mode: str = "auto",
    gpu: str = "nvidia-h200",
    preset: str = "full",
    seed: int = 0,
    folder: str | Path = "",
) -> Trial:
    """Decide what the chapter does, as `artifact.measure.run.start`, and read the ceilings of its GPU."""
    open_run = partial(run.start, mode=mode, gpu=gpu, preset=preset, seed=seed, records=folder)
    found = open_run(ROOM)
    ceiling = ceilings.measure(open_run("ceilings")).set_index("variant")
    stated = {part: records.published(registry.published(ROOM, part)) for part in STATED}
    return Trial(found, open_run, stated, float(ceiling["tflops"]["fma"]))


def ratios(df: pd.DataFrame, variant: str, baseline: str) -> pd.Series:
    """Speedup of a contender over another, by size."""
    found = records.speedup(df, variant, baseline)
    return pd.Series(found.to_numpy(), index=found.index.get_level_values("m"))


def as_published(df: pd.DataFrame, name: str) -> str:
    """The variant that is to the letter of a kernel of the report; ours of the same idea where a record lacks it."""
    letter = LETTER[PUBLISHED.index(name)]
    return letter if letter in set(df["variant"]) else name


def of(df: pd.DataFrame, variant: str, column: str = "median_us") -> pd.Series:
    """A column of a contender's rows, by size."""
    return df[df["variant"] == variant].set_index("m")[column]


def of_size(df: pd.DataFrame, size: int) -> pd.DataFrame:
    """The rows of M = N = K = size."""
    return df[df["m"] == size]
