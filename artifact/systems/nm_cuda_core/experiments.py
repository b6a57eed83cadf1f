"""What the chapter measures, by whose protocol; what the report's cuBLAS time contains, by fits of a run time.

And what the compiler leaves of a kernel.
"""

from collections.abc import Iterable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy.optimize import nnls

from artifact.baselines import cpu, cublas
from artifact.book.study import Study, pivot, where
from artifact.drawing import compiled
from artifact.measure import bench
from kernels import nm_cuda_core as system
from kernels.contract import Problem

VARIANTS = list(system.VARIANTS)
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
#: (M, density) of the patterns that are compared, all at 4096³, by preset.
PATTERNS = {
    "full": [(4, 0.25), (4, 0.5), (8, 0.5), (32, 0.25), (32, 0.375), (32, 0.5)],
    "kick": [(4, 0.25), (4, 0.5)],
}
#: The sequential loop takes a minute at 2048 and grows with the cube; the report stops there, too.
LARGEST_ON_CPU = {"full": 2048, "kick": 512}
#: How often two kernels are compiled anew before they count as different.
AGAIN = 4


def measure(study: Study, experiment: str) -> pd.DataFrame:
    """Measure an experiment here, or read its records.

    "published" and "cpu" under the published protocol, a loop of calls, time over count. Raises FileNotFoundError, one
    sentence, without any.
    """
    run = study.run
    every, cubes = (
        run.variants() | cublas.readings(run.device) | run.baselines(["cpu"]),
        system.sweeps(run.preset)["scaling"],
    )
    shapes = {
        "cpu": [cube for cube in cubes if cube["m"] <= LARGEST_ON_CPU[run.preset]],
        "element_wise": [cube | {"vector": 1} for cube in cubes],
        "patterns": [dict(m=4096, n=4096, k=4096, group=group, density=d) for group, d in PATTERNS[run.preset]],
    }
    return run.measure(
        experiment,
        [partial(system.problem, **shape, seed=run.seed) for shape in shapes.get(experiment, cubes)],
        {name: every[name] for name in CONTENDERS[experiment]},
        bench.time_calls if experiment in ("published", "cpu") else bench.time,
    )


def on_cpu(study: Study) -> pd.DataFrame | None:
    """Return the experiment with the sequential CPU; None where there is neither a record nor a C compiler."""
    if study.read("cpu") is None and (study.run.mode != "measure" or cpu.compiler() is None):
        return None
    return measure(study, "cpu")


def second(study: Study) -> pd.DataFrame | None:
    """Return the scaling sweep measured again; None where it was not."""
    again = study.again
    return measure(again, "scaling") if again.run.mode == "measure" else again.read("scaling")


# ---------------------------------------------------------------- readings of a cuBLAS call


class Fit(NamedTuple):
    """A run time as constant + square·n² + cube·n³, in seconds; residuals: model over time, − 1."""

    weights: np.ndarray  #: constant, square, cube
    residuals: np.ndarray

    def terms(self, sizes: Sequence[int] | pd.Index) -> pd.DataFrame:
        """Return what each of the terms takes at each size, ms."""
        return 1e3 * pd.DataFrame(
            self.weights * np.asarray(sizes, float)[:, None] ** (0, 2, 3),
            pd.Index(sizes, dtype=int),
            ["constant_ms", "square_ms", "cube_ms"],
        )

    @property
    def rates(self) -> dict[str, float]:
        """The constant, µs.

        The rates at which three float32 matrices would move in the time of the n² term, GB/s, and of 2·n³ FLOP in that
        of the n³ term, TFLOP/s; NaN without one.
        """
        constant, square, cube = self.weights.tolist()
        return {
            **{"constant_us": 1e6 * constant, "gbps": 12 / (square or np.nan) / 1e9},
            "tflops": 2 / (cube or np.nan) / 1e12,
        }


def fit(times: pd.Series) -> Fit:
    """Fit t = a + b·n² + c·n³ to `times`, seconds by size, in relative error, so that every size counts alike.

    The three terms, none negative, are what a timed cuBLAS call may contain: a cost per call (launch, handle,
    allocation), per element of a matrix (transfers) and per multiplication (the kernel).
    """
    return Fit(*_nearest(times.index.to_numpy(float)[:, None] ** (0, 2, 3), times))


def _nearest(columns: np.ndarray, times: pd.Series) -> tuple[np.ndarray, np.ndarray]:
    """Return the non-negative weights of `columns` nearest to `times` in relative error.

    columns: points × terms. With it the model over the times, minus 1.
    """
    rows = columns / times.to_numpy()[:, None]
    lengths = np.linalg.norm(rows, axis=0)  # n³ is 10¹¹ times the constant: solve in equal lengths
    weights = nnls(rows / lengths, np.ones(len(rows)))[0] / lengths
    return weights, rows @ weights - 1


def stated(study: Study) -> pd.Series:
    """Return the report's run time of cuBLAS in seconds, by size, from its TFLOP/s (2·n³ over the time)."""
    rate = (
        study.stated("fig2", "tflops", variant="cublas").astype({"size": int}).set_index("size")["value"].sort_index()
    )
    return 2.0 * rate.index.to_numpy(float) ** 3 / (rate * 1e12)


def measured(published: pd.DataFrame) -> pd.DataFrame:
    """Return the ms of each reading of cuBLAS by size, under the published protocol."""
    return pivot(where(published, variant=cublas.READINGS), "median_us") / 1e3


def compare(published: pd.DataFrame, theirs: pd.Series) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Tell how near each reading of cuBLAS comes to the report's times, `theirs`, seconds by size.

    The report measured on another machine, whose GPU and host are slower by factors that we do not know. So a reading
    is compared in shape: its kernel (what "cublas" takes) and what it adds to that are each scaled by one factor of
    their own, which brings them nearest to the report's times at the sizes that both have. Additions of the same shape
    come equally near – a handle and an allocation both cost so much a call –, and then the factor must tell which of
    them another machine explains.

    Returns a row for each reading, and one for the report's own times: those factors, kernel_scale and extra_scale;
    rms_error of the model over the times, minus 1; worst_factor between the two, either way round; `rates` of the
    reading's own fit. And the models, ms by size, a column for each reading.
    """
    times, own = measured(published) / 1e3, fit(theirs)
    both, rows, models = times.index.intersection(theirs.index), {}, {}
    for reading in cublas.READINGS:
        extra = (times[reading] - times["cublas"]).clip(lower=0)  # a small one drowns in noise
        parts = pd.DataFrame({"kernel_scale": times["cublas"], "extra_scale": extra}).loc[both, lambda df: df.any()]
        scales, residuals = _nearest(parts.to_numpy(), theirs[both])
        models[reading] = 1e3 * (parts @ scales)
        rows[reading] = dict(zip(parts, scales, strict=True)) | _nearness(residuals) | fit(times[reading]).rates
    rows["published"] = _nearness(own.residuals) | own.rates
    return pd.DataFrame(rows.values(), list(rows)), pd.DataFrame(models)


def _nearness(residuals: np.ndarray) -> dict[str, float]:
    over = 1 + residuals
    return {"rms_error": np.sqrt(np.mean(residuals**2)), "worst_factor": max(over.max(), 1 / over.min())}


# ---------------------------------------------------------------- machine code


def instructions(variant: str, target: str, anew: bool = False) -> list[str]:
    """Return the SASS without addresses and labels' names. anew: of another compilation than the one that is kept."""
    return compiled.instructions(system.VARIANTS[variant], target, anew)


def the_same(one: str, two: str, target: str) -> bool:
    """Tell whether the compiler makes the same of two variants, instruction by instruction.

    Of one source, too, a compilation now and then comes out otherwise (see `jit.compile_cubin`). Two variants whose
    instructions differ are therefore compiled anew, and are the same where any of one are those of the other.
    """
    made: dict[str, set[tuple[str, ...]]] = {one: set(), two: set()}
    for compilation in range(1 + AGAIN):
        for variant, known in made.items():
            known.add(tuple(instructions(variant, target, anew=compilation > 0)))
        if made[one] & made[two]:
            return True
    return False


def prefetch(targets: Iterable[str]) -> pd.DataFrame:
    """Compare `prefetch` with the baseline on each target, instruction by instruction.

    With the loads from global memory of both.
    """
    return pd.DataFrame(
        {"target": target, "same": "yes" if the_same("baseline", "prefetch", target) else "no"}
        | {v: len(instructions(v, target)) for v in ("baseline", "prefetch")}
        | {
            f"loads_{v}": sum("LDG." in line for line in instructions(v, target))
            for v in ("baseline", "prefetch", "prefetch_kept")
        }
        for target in targets
    )


def own(problem: Problem, target: str) -> pd.DataFrame:
    """List every variant as it is compiled for a reader's own pattern: see `compiled.own`."""
    b = problem.host().b
    return compiled.own(
        {v: (kernel.source, system.entry(v, b.keep, b.group)) for v, kernel in system.VARIANTS.items()}, target
    )
