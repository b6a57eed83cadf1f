"""The chapter's experiments: contenders, sizes and protocol of each."""

from __future__ import annotations

from functools import partial

import pandas as pd

from artifact.baselines import cpu, cublas
from artifact.book.study import Study
from artifact.measure import bench
from kernels import nm_cuda_core as room

VARIANTS = list(room.VARIANTS)
#: The report's kernels, as we would write them, and to the letter in the same order.
PUBLISHED = ["baseline", "prefetch", "double_buffer"]
LETTER = ["verbatim", "verbatim_prefetch", "verbatim_double_buffer"]
PATTERN_KERNELS = ["baseline", "double_buffer", "zigzag", "element_wise"]
ON_CPU = ["cpu_loop", "cpu_scipy", "cpu_blas"]
CONTENDERS = {
    "scaling": [*VARIANTS, "cublas"],
    "published": [*PUBLISHED, *LETTER, *cublas.READINGS],
    "cpu": [*PUBLISHED, *LETTER, "cublas", "cublas_handle", *ON_CPU],
    "element_wise": ["element_wise", "cublas"],
    "patterns": [*PATTERN_KERNELS, "cublas"],
}
#: Under the published protocol: a loop of calls, time over count.
AS_PUBLISHED = ("published", "cpu")
#: (M, density) of the patterns that are compared, all at one size, by preset.
PATTERNS = {
    "full": [(4, 0.25), (4, 0.5), (8, 0.5), (32, 0.25), (32, 0.375), (32, 0.5)],
    "kick": [(4, 0.25), (4, 0.5)],
}
PATTERN_SIZE = dict.fromkeys(("m", "n", "k"), 4096)
#: The sequential loop takes a minute at 2048 and grows with the cube; the report stops there, too.
LARGEST_ON_CPU = {"full": 2048, "kick": 512}


def shapes(experiment: str, preset: str) -> list[dict]:
    """Return the arguments of `room.problem` for each point of an experiment."""
    cubes = room.sweeps(preset)["scaling"]
    others = {
        "cpu": [cube for cube in cubes if cube["m"] <= LARGEST_ON_CPU[preset]],
        "element_wise": [cube | {"vector": 1} for cube in cubes],
        "patterns": [PATTERN_SIZE | {"group": group, "density": density} for group, density in PATTERNS[preset]],
    }
    return others.get(experiment, cubes)


def measure(study: Study, experiment: str) -> pd.DataFrame:
    """Measure an experiment here, or read its records. Raises FileNotFoundError, one sentence, without any."""
    run = study.run
    every = run.variants() | cublas.readings(run.device) | run.baselines(["cpu"])
    problems = [partial(room.problem, **shape, seed=run.seed) for shape in shapes(experiment, run.preset)]
    timer = bench.time_calls if experiment in AS_PUBLISHED else bench.time
    return run.measure(experiment, problems, {name: every[name] for name in CONTENDERS[experiment]}, timer)


def on_cpu(study: Study) -> pd.DataFrame | None:
    """Return the experiment with the sequential CPU; None where there is neither a record nor a C compiler."""
    can = study.run.mode == "measure" and "cpu_loop" in cpu.available()
    return measure(study, "cpu") if can or study.read("cpu") is not None else None


def second(study: Study) -> pd.DataFrame | None:
    """Return the scaling sweep measured again; None where it was not."""
    again = study.again
    return measure(again, "scaling") if again.run.mode == "measure" else again.read("scaling")
