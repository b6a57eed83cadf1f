"""The room's measurement as its chapter sees it: records or a GPU, ceilings, what the source states."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path

import pandas as pd

from artifact import registry
from artifact.measure import bench, ceilings, others, records, run
from artifact.rooms.nm_spmm.contenders import (
    AS_RUN,
    CONTENDERS,
    DTYPES,
    LADDER,
    takes,
    trials,
)
from kernels import jit
from kernels import nm_spmm as room
from kernels.nm_spmm import analysis

ROOM = "nm_spmm"
GROUP = VECTOR = 32  #: the paper's window and vector
SPARSITIES = (0.5, 0.375, 0.25, 0.125)  #: of the paper, as shares that are kept
BIG = 4096  #: the size at which single kernels are compared
STATED = ("fig8", "fig9", "fig10", "text")
#: What the authors' own code gave, in others/: over cuBLAS, and beside our rebuildings in the same run.
ANCHORS, REBUILT = "anchors", "rebuilt"
#: Ceilings by what they are of -> the microbenchmark.
BANDWIDTHS = {"DRAM": "copy", "L2": "l2_read", "shared memory": "shared_read"}
#: Experiments of hundreds of points that are looked at together: a third of the time for each.
BRIEF = ("llama", "tried")


@dataclass
class Trial:
    """What `start` found: the run, and what its numbers are held against."""

    run: run.Run
    stated: dict[str, pd.DataFrame]  #: the source's numbers, by file, and what its authors' code gave here
    here: analysis.Device  #: the GPU of the records, with its measured ceilings
    gbps: dict[str, float]  #: GB/s of DRAM, L2 and shared memory, measured
    frames: dict[str, pd.DataFrame] = field(default_factory=dict, repr=False)

    @property
    def fma(self) -> float:
        """Measured FMA ceiling, TFLOP/s."""
        return self.here.peak_tflops

    @property
    def arch(self) -> str:
        capability = self.run.machine["compute_capability"]
        return "sm_" + capability.replace(".", "") + ("a" if capability == "9.0" else "")

    @cached_property
    def report(self) -> pd.DataFrame:
        """Every entry, compiled here for the page's target."""
        return self.run.compile_report(self.target)

    @property
    def target(self) -> str:
        """Of those compiled here, the nearest to the GPU of this page."""
        generation = {t: int(re.search(r"\d+", t)[0]) for t in (*jit.TARGETS, self.arch)}
        able = [t for t in jit.TARGETS if generation[t] <= generation[self.arch]]
        return self.arch if self.arch in jit.TARGETS else able[-1]

    @property
    def authors(self) -> others.Others:
        """The run of the authors' own code that `stated` has: on this GPU, or on the nearest thing to it."""
        return others.nearest(ROOM, ANCHORS, self.run.gpu)

    @property
    def rebuilt_elsewhere(self) -> dict[str, pd.DataFrame]:
        """Name of another GPU -> our rebuildings beside what they rebuild there."""
        every = {m.gpu: m for m in others.find(ROOM, name=REBUILT)}
        short = records.short_gpus(every)
        own = others.nearest(ROOM, REBUILT, self.run.gpu).gpu
        return {short[gpu]: m.numbers() for gpu, m in every.items() if gpu != own}

    @property
    def rungs(self) -> list[str]:
        """Our rungs that this GPU takes."""
        return [v for v in LADDER if takes(v, self.arch)]

    @property
    def sweeps(self) -> dict[str, list[dict]]:
        return room.sweeps(self.run.preset)

    def has(self, experiment: str) -> bool:
        """Whether it can be shown: it is measured here, or recorded."""
        measured_here = self.run.mode == "measure"
        return measured_here or (self.run.folder / f"{experiment}.csv").exists()

    def measure(self, experiment: str) -> pd.DataFrame:
        """Measured here, or read from records: the experiment's contenders that this GPU takes, in their
        order. What a cell has asked for once is kept. Raises FileNotFoundError, one sentence, without records.
        """
        if experiment not in self.frames:
            names = CONTENDERS[experiment]
            names = names + list(self._cusparse) if experiment == "unstructured" else names
            self.frames[experiment] = self._measure(experiment, self.sweeps[experiment], names)
        return self.frames[experiment]

    def tensor(self) -> pd.DataFrame | None:
        """The tensor cores' experiments, a record for each type; None where the GPU takes neither."""
        for dtype, names in DTYPES.items():
            shapes = [shape for shape in self.sweeps["tensor"] if shape.get("dtype") == dtype]
            part = f"tensor_{dtype}"
            if part not in self.frames and shapes and takes(names[0], self.arch):
                self.frames[part] = self._measure(part, shapes, names)
        parts = [frame for part, frame in self.frames.items() if part.startswith("tensor_")]
        return pd.concat(parts, ignore_index=True) if parts else None

    @property
    def _cusparse(self) -> dict:
        return self.run.baselines(["cusparse"])

    def _measure(self, experiment: str, shapes: list[dict], names: list[str]) -> pd.DataFrame:
        every = self.run.variants() | self.run.baselines() | trials(self.run.device)
        names = [v for v in names if takes(v, self.arch)]
        path = self.run.folder / f"{experiment}.csv"
        if self.run.mode != "measure" and path.exists():
            known = set(records.read(path)["variant"])
            names = [v for v in names if v in known or v not in (*LADDER, *AS_RUN)]
        problems = [partial(room.problem, **shape, seed=self.run.seed) for shape in shapes]
        timer = brief if experiment in BRIEF else bench.time
        return self.run.measure(experiment, problems, {name: every[name] for name in names}, timer)


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
    gbps = {what: float(ceiling["gbps"][name]) for what, name in BANDWIDTHS.items()}
    machine = found.machine
    here = analysis.Device(
        machine["gpu"],
        machine["sm_count"],
        machine["sm_mhz_max"],
        float(ceiling["tflops"]["fma"]),
        gbps["DRAM"],
        machine["shared_bytes_per_sm"],
        machine["l2_bytes"],
    )
    return Trial(found, stated(found.gpu), here, gbps)


def stated(gpu: str) -> dict[str, pd.DataFrame]:
    """What the source states, by file, and what its authors' code gave on a GPU, or on the nearest thing to it."""
    found = {part: records.published(registry.published(ROOM, part)) for part in STATED}
    return found | {part: others.nearest(ROOM, part, gpu).numbers() for part in (ANCHORS, REBUILT)}


def text(found: dict[str, pd.DataFrame], quantity: str, where: str | None = None) -> pd.Series:
    """The first row of a quantity that the source's text states: low, high, and what it is of."""
    rows = found["text"][found["text"]["quantity"] == quantity]
    return (rows if where is None else rows[rows["where"] == where]).iloc[0]


def brief(contenders, device, *, budget_s, verify=None):
    """`bench.time` with a third of the time."""
    return bench.time(contenders, device, budget_s=budget_s / 3, verify=verify)
