"""What the chapter asks of one GPU: its experiments and who is in each, ceilings, what its source and others gave."""

from __future__ import annotations

import re
from functools import cached_property, partial

import pandas as pd

from artifact.book import study
from artifact.book.study import Study
from artifact.drawing.words import shape
from artifact.measure import bench, others, records
from artifact.measure import run as harness
from kernels import jit
from kernels import nm_spmm as room
from kernels.nm_spmm import analysis, family, ladder

ROOM = "nm_spmm"
GROUP = VECTOR = 32  #: the paper's window and vector
SPARSITIES = (0.5, 0.375, 0.25, 0.125)  #: of the paper, as shares that are kept
DENSITIES = HALF, SPARSE = (0.5, 0.125)  #: that tables of counters show
BIG = 4096  #: the size at which single kernels are compared
#: What tells one point of a record from another; of what others measured, which has no labels.
POINT, PLACE = ["label", "m", "n", "k", "density"], ["m", "n", "k", "density"]
#: Ceilings by what they are of -> the microbenchmark.
BANDWIDTHS = {"DRAM": "copy", "L2": "l2_read", "shared memory": "shared_read"}
#: Our rungs in their order: name -> configuration, idea, prediction; those tried and not kept likewise.
RUNGS, TRIALS = family.RUNGS, family.TRIALS
FOR_FEW = [v for v, (config, *_) in RUNGS.items() if config.split > 1]  #: rungs that cut K, for few tiles
ABOUT_C = [v for v in RUNGS if v not in FOR_FEW]
#: Who stands for nmSPARSE: rebuilt to the letter, and in its style.
NMSPARSE = ("nmsparse_vw32", "nm_baseline")
#: Type -> its kernel and library, of the tensor cores.
DTYPES = {"tf32": ["tf32", "cublas_tf32"], "bfloat16": ["bf16", "cublas_bf16"]}
LIBRARIES = ["auto", "cublas", "nm_baseline", "nmsparse_vw32"]
#: Experiment -> contenders; it is of GPUs that take the first of them.
CONTENDERS = {
    "stepwise": ["v1", "v2", "v3", *ABOUT_C, *LIBRARIES],
    "sizes": ["small", "medium", "large", "square", "auto", "cublas"],
    "llama": ["v3", *LIBRARIES],
    "anchors": ["v3", "v3_split_k", "v3_searched", "ahead", ABOUT_C[-1], *FOR_FEW, *LIBRARIES],
    "packing": ["v3_packed", "v3_unpacked"],
    "tried": ["bulk", "rolled", "turned", *TRIALS],
    "vectors": ["v3", "auto"],
    "ragged": ["v3", "auto", "cublas"],
    "unstructured": ["v3", "auto", "nm_baseline", "nmsparse_vw32", "cublas"],
} | {f"tensor_{dtype}": names for dtype, names in DTYPES.items()}
PROFILED = ["v1", "v2", "v3", *RUNGS, "auto", "nm_baseline", "nmsparse_vw32", "cublas"]
IN_ROOFLINE = ["auto", "v3", "nmsparse_vw32", "cublas"]


def brief(contenders, device, *, budget_s, verify=None):
    """`bench.time` with a third of the time."""
    return bench.time(contenders, device, budget_s=budget_s / 3, verify=verify)


#: Experiments of hundreds of points that are looked at together: a third of the time for each.
TIMERS = {"llama": brief, "tried": brief}


class Spmm(Study):
    """NM-SpMM on one GPU."""

    @cached_property
    def sweeps(self) -> dict[str, list[dict]]:
        """Experiment -> shapes, as keyword arguments of `kernels.nm_spmm.problem`."""
        found = room.sweeps(self.run.preset)
        return found | {f"tensor_{d}": [s for s in found["tensor"] if s["dtype"] == d] for d in DTYPES}

    def takes(self, name: str) -> bool:
        """Tell whether a contender is for this GPU: libraries are, and kernels compiled for it or for all."""
        own = room.VARIANTS[name].targets if name in room.VARIANTS else jit.TARGETS
        targets = set(family.HOPPER if name in TRIALS else own)
        return name == "auto" or self.arch in targets or targets == set(jit.TARGETS)  # `auto` tries what the GPU has

    def measure(self, experiment: str) -> pd.DataFrame | None:
        """Measure an experiment's contenders that this GPU takes, or read them from records; None where it does not
        take the first. Raises FileNotFoundError, one sentence, without records."""
        names = CONTENDERS[experiment]
        if not self.takes(names[0]):
            return None
        tried = {v: partial(ladder.bind, v, device=self.run.device) for v in TRIALS}
        every = self.run.variants() | self.run.baselines() | tried
        csr = [v for v in every if v.startswith("cusparse") and experiment == "unstructured"]
        problems = [partial(room.problem, **at, seed=self.run.seed) for at in self.sweeps[experiment]]
        contenders = {v: every[v] for v in (*names, *csr) if self.takes(v)}
        return self.run.measure(experiment, problems, contenders, TIMERS.get(experiment, bench.time))

    def tensor(self) -> pd.DataFrame | None:
        """Measure the tensor cores' experiments of both types; None where the GPU takes neither."""
        parts = [self.measure(f"tensor_{dtype}") for dtype in DTYPES]
        known = [df for df in parts if df is not None]
        return pd.concat(known, ignore_index=True) if known else None

    def others(self, name: str) -> others.Others:
        """Return what the code of others gave, "anchors" or "rebuilt": on this GPU, or on the nearest thing to it."""
        return others.nearest(ROOM, name, self.run.gpu)

    def elsewhere(self) -> dict[str, pd.DataFrame]:
        """Return our rebuildings beside what they rebuild on other GPUs, by their names."""
        found = {m.gpu: m for m in others.find(ROOM, name="rebuilt")}
        short, own = records.short_gpus(found), self.others("rebuilt").gpu
        return {short[gpu]: m.numbers() for gpu, m in found.items() if gpu != own}

    @cached_property
    def gbps(self) -> dict[str, float]:
        """GB/s of DRAM, L2 and shared memory, measured."""
        return {what: self.ceiling(name, "gbps") for what, name in BANDWIDTHS.items()}

    @cached_property
    def here(self) -> analysis.Device:
        """The GPU, with its measured ceilings."""
        of, peak = self.machine, self.ceiling("fma", "tflops")
        memory = of["shared_bytes_per_sm"], of["l2_bytes"]
        return analysis.Device(of["gpu"], of["sm_count"], of["sm_mhz_max"], peak, self.gbps["DRAM"], *memory)

    @property
    def fma(self) -> float:
        """The measured FMA ceiling, TFLOP/s."""
        return self.here.peak_tflops

    @cached_property
    def arch(self) -> str:
        """The GPU's generation as compilers name it, "sm_90a"."""
        capability = self.machine["compute_capability"]
        return f"sm_{capability.replace('.', '')}{'a' if capability == '9.0' else ''}"

    @cached_property
    def target(self) -> str:
        """Of those compiled here, the nearest to the GPU of this page."""
        generation = {t: int(re.sub(r"\D", "", t)) for t in (*jit.TARGETS, self.arch)}
        able = [t for t in jit.TARGETS if generation[t] <= generation[self.arch]]
        return self.arch if self.arch in able else able[-1]

    @cached_property
    def report(self) -> pd.DataFrame:
        """Every entry, compiled here for the page's target."""
        return self.run.compile_report(self.target)

    @property
    def rungs(self) -> list[str]:
        """Our rungs that this GPU takes."""
        return [v for v in RUNGS if self.takes(v)]


def start(mode: str = "auto", gpu: str = "nvidia-h200", preset: str = "full", seed: int = 0, folder: str = "") -> Spmm:
    """Decide what the chapter does, as `artifact.measure.run.start`."""
    return Spmm(harness.start(ROOM, mode, gpu, preset, seed, folder))


# ---------------------------------------------------------------- series of records, and words for their points

#: A column of a contender's rows, and the speedup of a contender over another, by `POINT`.
by, over = partial(study.by, key=POINT), partial(study.ratio, key=POINT)


def by_density(values: pd.Series) -> pd.Series:
    """Return the geometric mean for each density, the densest first."""
    return values.groupby(level="density").agg(records.geomean).sort_index(ascending=False)


def rates(df: pd.DataFrame) -> pd.DataFrame:
    """Return TFLOP/s of useful work, a row for each density, the densest first, and a column for each contender."""
    how = {"index": "density", "columns": "variant", "values": "tflops", "sort": False}
    return df.pivot_table(**how, aggfunc=records.geomean).sort_index(ascending=False)


def sparsity(density: float) -> str:
    """Write a density as its sparsity: 0.375 is "62.5%"."""
    return f"{100 * (1 - density):g}%"


def point_of(key: tuple) -> str:
    """Write a point, with its label or without: "4096³ and 75%"."""
    *_, m, n, k, density = key
    return f"{shape((m, n, k))} and {sparsity(density)}"
