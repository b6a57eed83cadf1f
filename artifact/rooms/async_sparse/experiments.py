"""The chapter's experiments: measured on the GPU that is here, or read from records, as `run` says.

Where nothing was recorded, a run or a record is None, and the page says so. Records are DataFrames in
`records.COLUMNS`; those of real matrices have the rows of "cusparse_csr", the fastest of cuSPARSE's algorithms for CSR.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import ModuleType

import numpy as np
import pandas as pd

from artifact import paths, registry
from artifact.drawing import compiled, words
from artifact.measure import check, matrices, records
from artifact.measure import run as harness
from artifact.measure.run import Run
from artifact.rooms.async_sparse import arithmetic, contenders, timeline
from artifact.rooms.async_sparse.arithmetic import BLOCK, ROOM, N
from artifact.rooms.async_sparse.contenders import BELL, BSR, DENSE, KEPT, TORCH, TRITON, TUNED
from kernels.contract import Operands, timed
from kernels.formats import bcsr
from kernels.formats.csr import Csr
from kernels.formats.half import array_module

#: Experiment -> contenders; those that a GPU or an installation does not offer are left out.
ABLATION = (
    *contenders.LADDER,
    BELL,
    BSR,
    *contenders.CSR_ALGORITHMS,
    TRITON,
)
TILES = tuple(map(contenders.tile, contenders.WIDTHS))
LAYER = (KEPT, "auto", TORCH, DENSE, TRITON)
LADDER = (*contenders.LADDER, TORCH, DENSE, TRITON, TUNED)
TRIED = ("unit_ring", *contenders.TRIED)
BLOCKS = ("auto", TRITON, TUNED, BSR)
RAGGED = HALF = ("auto", DENSE)
KICK_MATRICES = 3
_LIBRARIES = ("cusparse", "cublas", TRITON)  # how their contenders' names begin
#: Of a matrix in BCSR; with more, one pass over an experiment takes longer than all the others together.
MOST_BYTES = 2**32
#: Share of the GPU's memory that a padded copy of a matrix may take.
MOST_PADDED = 0.25
#: Of a float32 matrix for PyTorch's Triton kernel, which then sums in float64: with more, it takes most of the time.
MOST_SUMMED = 2**15


def start(mode: str, gpu: str, preset: str, seed: int, folder: str = "", room: str = ROOM) -> Run | None:
    """As `run.start`; None where the room has no records of that GPU yet and nothing is measured here."""
    try:
        return harness.start(room, mode, gpu, preset, seed, folder)
    except FileNotFoundError:
        return None


def kernels() -> ModuleType:
    """The room's kernels, imported when first asked for: what its trial says does not need them."""
    return importlib.import_module(f"kernels.{ROOM}")


def predictions() -> dict[str, str]:
    """What each kernel should gain, written down before it was measured, in the order of the ladder."""
    offered = kernels().VARIANTS
    return {v: words.times(offered[v].prediction) for v in contenders.LADDER if v in offered}


def trials() -> dict[str, str]:
    """Configuration that became no rung -> what it changes."""
    family = importlib.import_module(f"kernels.{ROOM}.family")
    return {name: said for name, (_, said) in family.TRIALS.items()}


# ---------------------------------------------------------------- generated matrices


def sweep(run: Run | None, experiment: str, names: Iterable[str]) -> pd.DataFrame | None:
    """One of the sweeps of the room's kernels; None where it was not recorded, or none of them runs on the GPU."""
    if run is None or not (run.mode == "measure" or (run.folder / f"{experiment}.csv").is_file()):
        return None
    shapes = kernels().sweeps(run.preset)[experiment]
    problems = [partial(kernels().problem, **shape, seed=run.seed) for shape in shapes]
    here = offered(run, experiment, names)
    if not set(here) & set(contenders.LADDER):
        return None
    return run.measure(experiment, problems, here)


def offered(run: Run, experiment: str, names: Iterable[str]) -> Mapping:
    """Those of the contenders that are here, or in the record, in their order."""
    if run.mode != "measure":
        known = set(records.read(run.folder / f"{experiment}.csv")["variant"])
        return dict.fromkeys(name for name in names if name in known)
    bindable = [n for n in names if n in {*TILES, *contenders.TRIED, *_window_trials()}]  # and no variants
    every = run.variants() | run.variants(bindable) | run.baselines()
    return {n: every[n] for n in names if n in every and _installed(n) and _runs(run, n)}


def _window_trials() -> Iterable[str]:
    modules = (importlib.import_module(f"kernels.{ROOM}.{part}") for part in ("wcsr", "windows"))
    return [name for module in modules for name in module.TRIALS]


def _installed(name: str) -> bool:
    return not name.startswith(TRITON) or importlib.util.find_spec("torch") is not None


def _runs(run: Run, name: str) -> bool:
    """Whether a kernel is made for the GPU: most need Hopper's wgmma. A library is taken to be."""
    offered = kernels().VARIANTS
    kernel = offered.get(name) or offered.get(name.split("_")[0])  # of a trial
    hopper = str(run.machine.get("compute_capability")) == "9.0"
    return kernel is None or hopper or set(kernel.targets) != {compiled.HOPPER}


# ---------------------------------------------------------------- timelines


def trace(run: Run | None) -> pd.DataFrame | None:
    """What thread blocks of the kernels that keep clocks did, at the point of the ladder: written where `run`
    measures and the GPU has their instructions, and read; None where there is none."""
    if run is None:
        return None
    if run.mode == "measure" and _runs(run, KEPT):
        clocks = importlib.import_module(f"kernels.{ROOM}.timeline")
        problem = kernels().problem(**kernels().sweeps(run.preset)["ladder"][0], seed=run.seed)
        try:
            timeline.write(run.folder, pd.DataFrame(clocks.timeline(problem, run.device)))
        finally:
            problem.release()
    return timeline.read(run.folder)


# ---------------------------------------------------------------- real matrices


def ablation(run: Run | None) -> pd.DataFrame | None:
    """Every step on every real matrix, BF16, N = 1024."""
    return real(run, "ablation", ABLATION, (N,))


def tiles(run: Run | None) -> pd.DataFrame | None:
    """The sweep over WGMMA_N, 32 kernels, on every third real matrix."""
    return real(run, "tile_n", TILES, (N,), every_nth=3)


def real(
    run: Run | None,
    experiment: str,
    names: Iterable[str],
    sizes: Iterable[int],
    *,
    every_nth: int = 1,
    order: str = "rcm",
    **how,
) -> pd.DataFrame | None:
    """The matrices of the room's list that the user's folder has, at these N; None where there is no record of them.
    every_nth: of the matrices, where all would take too long; order: of rows and columns, of `operands.REORDERS`;
    how: arguments of `problem_from_csr`."""
    if run is None:
        return None
    path = run.folder / f"{experiment}.csv"
    where = matrices.folder() if run.mode == "measure" else None
    if where is not None:
        there = matrices.present(matrices.listed(registry.matrices(ROOM)), where)
        few = KICK_MATRICES if run.preset == "kick" else None
        chosen = there["name"].iloc[::every_nth].head(few)
        _measure_real(run, experiment, tuple(names), tuple(sizes), where, chosen, order, how)
    return with_csr(records.read(path)) if path.is_file() else None


def _measure_real(
    run: Run,
    experiment: str,
    names: tuple,
    sizes: tuple,
    where: Path,
    chosen,
    order: str,
    how: Mapping,
) -> None:
    path = run.folder / f"{experiment}.csv"
    every = offered(run, experiment, names)
    if all(name.startswith(_LIBRARIES) for name in every):
        return
    operands = importlib.import_module(f"kernels.{ROOM}.operands")
    memory = run.machine.get("memory_bytes", np.inf)
    as_csr = how.get("format") == "csr"
    for name in chosen:
        if _is_there(path, name, sizes, every):
            continue  # without reading and reordering it once more
        a = matrix(name, where, order)
        left = too_large(a, every, how.get("dtype", "bfloat16"), memory)
        if not as_csr and set(left) - {BELL, TRITON}:
            continue  # the matrix itself is in blocks
        problems = [operands.problem_from_csr(a, n, run.seed, name, reorder="", **how) for n in sizes]
        for contender, why in left.items():
            _leave_out(path, contender, problems, why)
        here = {n: bind for n, bind in every.items() if n not in left}
        if as_csr and KEPT in here:
            here[KEPT] = in_source_layout(here[KEPT])
        _measure_without_failures(run, experiment, problems, here)


def _is_there(path: Path, label: str, sizes: Iterable[int], names: Iterable[str]) -> bool:
    """Whether a record has a matrix at these N with all contenders that were not left out there."""
    if not path.is_file():
        return False
    df = records.read(path).query("label == @label")
    have = {*zip(df["variant"], df["n"], strict=True)}
    absent = records.read_absent(path.parent).get(path.stem, {})
    have |= {(variant, n) for variant, of, _, n, *_ in absent if of == label}
    return have >= {(name, n) for name in names for n in sizes}


def too_large(a: Csr, names: Iterable[str], dtype: str, memory: float) -> dict[str, str]:
    """Of these contenders those for which blocks of a matrix are too many -> why. memory: of the GPU, in bytes."""
    blocked = {*contenders.LADDER, *TILES, BELL, BSR, TRITON} & set(names)
    if not blocked:
        return {}
    rows = bcsr.blocks_by_row(a, BLOCK)
    blocks, size = int(rows.sum()), arithmetic.SIZES[dtype] * BLOCK**2
    if blocks * size > MOST_BYTES:
        return {n: f"blocks take {blocks * size} bytes" for n in names if n in blocked}
    found = {}
    padded = len(rows) * int(rows.max(initial=0)) * size
    if padded > MOST_PADDED * memory:
        found[BELL] = f"its padding takes {padded} bytes"
    if size // BLOCK**2 == 4 and blocks > MOST_SUMMED:
        found[TRITON] = f"it sums {blocks} blocks in float64, which takes too long"
    return {n: found[n] for n in names if n in found}


def in_source_layout(bind):
    """A contender that gets B column-major, as the source's kernel for blocks reads it: a copy, which is part of
    what preparing costs."""

    def bound(problem):
        given = problem.device()
        xp = array_module(given.b)
        b, ms = timed(lambda: xp.asfortranarray(given.b))
        made = Operands(given.a, b, given.c)
        found = bind(replace(problem, make_device=lambda: made, _device=None))
        found.prepare_ms += ms
        found.prepare_bytes += b.nbytes
        return found

    return bound


def _measure_without_failures(run: Run, experiment: str, problems: list, here: dict) -> None:
    """As `run.measure`, without a library that refuses a matrix or multiplies it wrongly, which is said on stderr
    and beside the record, for all sizes of the matrix.

    Ours must not fail: then the measurement ends, as everywhere.
    """
    libraries = {name for name in here if name.startswith(_LIBRARIES)}
    here = {n: _named(n, bind) if n in libraries else bind for n, bind in here.items()}
    while True:
        try:
            run.measure(experiment, problems, here)
            return
        except (check.WrongResult, ValueError) as error:
            failed = str(error).split(" ", 1)[0].rstrip(":")
            if failed not in libraries & set(here):
                raise
            print(f"{ROOM}/{experiment} goes on without it: {error}", file=sys.stderr, flush=True)
            del here[failed]
            _leave_out(run.folder / f"{experiment}.csv", failed, problems, str(error))


def _leave_out(path: Path, contender: str, problems: list, why: str) -> None:
    """Write down that a record has no row of a contender at these problems."""
    for problem in problems:
        point = (getattr(problem, name) for name in records.POINT)
        records.leave_out(path, (contender, *point), why)


def left_out(run: Run | None, experiment: str) -> dict[tuple, str]:
    """Row that an experiment's record does not have -> why."""
    return records.read_absent(run.folder).get(experiment, {}) if run else {}


def _named(name: str, bind):
    """A contender whose refusals begin with its name."""

    def bound(problem):
        try:
            return bind(problem)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from error

    return bound


@functools.cache
def matrix(name: str, where: Path, order: str = "rcm") -> Csr:
    """A real matrix as experiments have it: with whole blocks of columns, reordered as in the source, or not ("")."""
    operands = importlib.import_module(f"kernels.{ROOM}.operands")
    return padded_columns(operands.reordered(matrices.load(name, where), order)[0])


def padded_columns(a: Csr, block: int = BLOCK) -> Csr:
    """A with empty columns up to a whole block: B then has lines that the copy engine takes, as the source's has.

    Otherwise a launch would begin with a copy of B, which whoever allocates B for these kernels spares.
    """
    return replace(a, k=-(-a.k // block) * block)


def with_csr(df: pd.DataFrame) -> pd.DataFrame:
    """A record with the rows of "cusparse_csr", where an algorithm for CSR was measured."""
    algorithms = df[df["variant"].str.startswith("cusparse_alg")]
    if algorithms.empty:
        return df
    best = algorithms.loc[algorithms.groupby(list(records.POINT), sort=False)["median_us"].idxmin()]
    return pd.concat([df, best.assign(variant=contenders.CSR)], ignore_index=True)


# ---------------------------------------------------------------- what was measured beside


def ceilings(gpu: str) -> dict[str, dict[str, float]] | None:
    """Microbenchmark -> rates of a GPU, fresh ones before the shipped; None where they were not measured."""
    for root in (paths.RECORDS, paths.RECORDED):
        try:
            return records.ceilings(records.resolve(gpu, root))
        except (FileNotFoundError, ValueError):
            continue
    return None


TENSOR = "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed"
L2 = "lts__throughput.avg.pct_of_peak_sustained_elapsed"
DRAM = "dram__throughput.avg.pct_of_peak_sustained_elapsed"
L2_BYTES = "lts__t_bytes.sum"
TIME = "gpu__time_duration.sum"
ACTIVE = ("sm__cycles_active.avg", "sm__cycles_active.max")
STALL = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"


@dataclass(frozen=True)
class Counters:
    """Nsight Compute's counters at the point of the ladder: (variant, metric) -> value."""

    values: Mapping[tuple[str, str], float]

    def get(self, variant: str, metric: str) -> float:
        """NaN where it was not counted."""
        return self.values.get((variant, metric), np.nan)

    @property
    def variants(self) -> list[str]:
        """Those that were profiled, ours and the source's in the order of the ladder, then the libraries."""
        known = dict.fromkeys(variant for variant, _ in self.values)
        ours = [v for v in contenders.LADDER if v in known]
        return [*ours, *(v for v in known if v not in ours)]

    def stall(self, variant: str) -> tuple[str, float]:
        """Why most warps that did not issue waited, and how many did for each instruction; ("", NaN) without."""
        head, tail = STALL.split("{}")
        found = {
            metric.removeprefix(head).removesuffix(tail): value
            for (v, metric), value in self.values.items()
            if v == variant and metric.startswith(head) and metric.endswith(tail)
        }
        found.pop("selected", None)  # one that issues does not wait
        return max(found.items(), key=lambda item: item[1], default=("", np.nan))

    def l2_gbps(self, variant: str) -> float:
        """What passes L2's slices, reads and writes, in GB/s."""
        return self.get(variant, L2_BYTES) / self.get(variant, TIME)

    def balance(self, variant: str) -> float:
        """The mean over SMs of the cycles in which one works, over those of the busiest."""
        mean, most = (self.get(variant, metric) for metric in ACTIVE)
        return mean / most


def counters(run: Run | None) -> Counters | None:
    """None where none were recorded."""
    path = run.folder / f"{records.COUNTERS}.csv" if run else None
    if path is None or not path.is_file():
        return None
    plan = registry.profiles()[ROOM]
    point = plan["shapes"][0] | {"density": plan["densities"][0]}
    df = records.read_counters(path)
    for key, value in point.items():
        df = df[np.isclose(df[key], value)]
    return Counters(df.set_index(["variant", "metric"])["value"].to_dict())
