"""Measure a GPU's ceilings with the microbenchmarks of `kernels.ceilings`, checked like everything else."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pandas as pd

from artifact.measure import records, verification
from artifact.measure.run import Run, measure_alone
from kernels import ceilings
from kernels.contract import Problem, require

#: Dense BF16 FLOP that the tensor cores of an SM do in a clock, float32 sums, where one number holds
#: for all products of a compute capability (NVIDIA's A100 and H100 architecture white papers);
#: of sparse ones they do twice as many.
TENSOR_FLOP_PER_CLOCK: dict[tuple[int, ...], int] = {(8, 0): 2048, (9, 0): 4096}
#: Microbenchmark of tensor cores -> the dense one whose rate it should double, "" for a dense one.
DENSE = {"mma": "", "mma_sp": "mma", "wgmma": "", "wgmma_sp": "wgmma", "wgmma_sp_ra": "wgmma"}


def measure(run: Run) -> pd.DataFrame:
    """One row per microbenchmark, in `records.COLUMNS`: measured where `run` measures, else read.

    A GPU without the instructions of a microbenchmark has no row of it, nor has a record from
    before there was one. Raises `verification.WrongResult` if a microbenchmark did not compute what it must.
    """
    path = run.folder / f"{records.CEILINGS}.csv"
    if run.mode == "recorded" or path.exists():
        return records.read(path)
    df = pd.DataFrame([_measure(run, name) for name in ceilings.VARIANTS if ceilings.supports(name, run.device)])
    records.plan(path, df[list(records.KEY)].itertuples(index=False, name=None))
    records.write(path, df)
    return records.read(path)


def tensor_cores(df: pd.DataFrame, machine: Mapping[str, Any]) -> pd.DataFrame:
    """Return the measured ceilings of tensor cores beside what the machine's description promises.

    df: the record. Columns: variant, idea, measured and promised (TFLOP/s, dense-equivalent
    for the sparse ones), share (of the promise), over_dense (ratio to the dense one of the same
    family), of_best (share of the fastest dense one), sm_mhz (what NVML sampled meanwhile, from
    outside the launch: what the promise is made with), least_mhz (what the rate itself needs). The
    clock inside the loop is at least `least_mhz`; nothing recorded says that it was `sm_mhz`. NaN
    where there is nothing to divide by; no rows where none of them was measured.
    """
    have = df[df["variant"].isin(DENSE)].set_index("variant").reindex([x for x in DENSE if x in {*df["variant"]}])
    names, rate, clock = list(have.index), have["tflops"], have["sm_mhz"]
    per_clock = pd.Series([_per_clock(name, machine) for name in names], names, float)
    promised = per_clock * clock.where(clock > 0).fillna(machine.get("sm_mhz_max") or np.nan) / 1e6
    columns = {
        "idea": [ceilings.VARIANTS[name].idea for name in names],
        "measured": rate,
        "promised": promised,
        "share": rate / promised,
        "over_dense": rate / rate.reindex([DENSE[name] for name in names]).to_numpy(),
        "of_best": rate / rate[[name for name in names if not DENSE[name]]].max(),
        "sm_mhz": clock,
        "least_mhz": [least_mhz(name, rate[name], machine) for name in names],
    }
    return pd.DataFrame(columns, index=have.index).reset_index()


def least_mhz(name: str, tflops: float, machine: Mapping[str, Any]) -> float:
    """Return the lowest SM clock, MHz, at which the tensor cores can do a microbenchmark's rate.

    NaN where nothing is published of what they do in a clock.
    """
    return tflops / (_per_clock(name, machine) / 1e6)


def _per_clock(name: str, machine: Mapping[str, Any]) -> float:
    """Return a microbenchmark's FLOP in a clock of the tensor cores of all SMs; NaN where nothing is published."""
    capability = tuple(map(int, str(machine.get("compute_capability", 0)).split(".")))
    flop = TENSOR_FLOP_PER_CLOCK.get(capability, np.nan) * (machine.get("sm_count") or np.nan)
    return (2 if DENSE[name] else 1) * flop


def _measure(run: Run, name: str) -> dict:
    ceiling = ceilings.prepare(name, run.device, run.seed)
    out = ceiling.bound.result()

    def verify(_: str, launch: Callable[[], Any]) -> verification.Errors:
        out.fill(float("nan"))
        run.device.sync()
        launch()
        return _errors(name, out, ceiling.expected, ceiling.tolerance)

    def nothing():
        raise NotImplementedError(f"microbenchmark {name} has no operands")

    # The columns speak of multiplications; only the work of a launch means something here.
    problem = Problem(
        room=records.CEILINGS,
        label=name,
        m=1,
        n=1,
        k=1,
        nnz=1,
        density=1.0,
        seed=run.seed,
        useful_flops=ceiling.flops,
        flops_def=ceiling.flops_def,
        least_bytes=ceiling.bytes,
        requested_bytes=ceiling.bytes,
        make_host=nothing,
        make_device=nothing,
    )
    return measure_alone(run, problem, records.CEILINGS, ceiling.bound, verify)


def _errors(name: str, out, expected, tolerance: float = ceilings.TOLERANCE) -> verification.Errors:
    # Not `verification.compare`: its limits are for products, and these sum one product many times.
    off = abs(out.astype("float64") - expected) / abs(expected).mean()
    worst = float(off.max())
    require(
        worst <= tolerance,  # NaN, an element left unwritten, fails as well
        f"microbenchmark {name} is off by {worst:.1e}, above {tolerance:.0e}: its rate means nothing",
        verification.WrongResult,
    )
    return verification.Errors(float((off**2).mean() ** 0.5), worst)
