"""The autotuner: tries its GPU's family on a problem and keeps its choices in a readable file.

The family is `HOPPER` where there is wgmma, else `mma_sp.FAMILY`.

A choice is a row of choices/<gpu>.csv: the shape, the dtype, and the knobs of `mma_sp.Config` or
`wgmma.Config`. The room ships the choices that were made on the GPUs that it was measured on. A shape
that is not there is tuned when it is first bound, and added to a file of the same form in the user's
own folder, which comes first (`kernels.tuning`).
"""

from __future__ import annotations

import csv
import os
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from math import ceil
from pathlib import Path

from kernels import jit, tuning
from kernels.contract import Launch, Problem, require
from kernels.tensor_core_24 import mma_sp, wgmma
from kernels.tensor_core_24.operands import LABELS
from kernels.tensor_core_24.wgmma import Config

SHIPPED = Path(__file__).with_name("choices")
#: Rounds of one launch each behind a choice, in each of the two heats: the second is for the best few.
ROUNDS, FINAL_ROUNDS, FINALISTS = 4, 9, 4
#: Below this many microseconds candidates lie within the clock's noise: that many times the rounds and finalists.
SHORT_US, SHORT_FACTOR = 40, 3

#: The Hopper family: tiles by their share of waves and of bytes, with the orders that L2 likes.
HOPPER: tuple[Config, ...] = (
    *(Config("persistent", 2, 1, 256, 4, 2, band=band, keep="a") for band in (8, 16, 22, 32)),
    *(Config("persistent", 2, 1, 256, 5, 1, band=16, keep=keep) for keep in ("a", "b")),
    Config("persistent", 2, 1, 256, 4, 2, band=16, keep="b"),
    *(Config("persistent", 2, 2, 192, 4, 2, band=band, keep="a") for band in (4, 8, 11, 16)),
    *(Config("packed", 2, 2, 192, 4, 2, band=band, keep="a") for band in (4, 8, 11, 16)),
    *(Config("packed", 2, 1, 256, 4, 2, band=band, keep="a") for band in (16, 22)),
    Config("multicast", 2, 2, 192, 4, 2, band=4, keep="a"),
    *(Config("persistent", 2, 2, 128, 5, 2, band=8, keep=keep) for keep in ("a", "b")),
    *(Config("persistent", 2, 1, 192, 5, 2, band=16, keep=keep) for keep in ("", "a")),
    *(Config("persistent", 1, 2, 128, 6, 2, keep=keep) for keep in ("", "b")),
    *(Config("persistent", 2, 1, 128, 6, 1, keep=keep) for keep in ("", "b")),
    Config("persistent", 1, 1, 128, 8, 2),
    Config("persistent", 1, 1, 128, 8, 2, keep="b"),
    Config("persistent", 1, 1, 64, 8, 1),
    Config("persistent", 1, 1, 64, 10, 1),
    Config("persistent", 2, 1, 64, 8, 1),
    Config("persistent", 1, 2, 64, 8, 1),
    *(Config("ring", 1, 1, 64, stages, 1) for stages in (3, 4, 5, 6, 8)),
    *(Config("ring", 1, 1, 128, stages, 1) for stages in (4, 5)),
    *(Config("ring", 1, 2, 64, stages, 1) for stages in (4, 5)),
    *(Config("split_k", 1, 2, 128, 6, 1, 2, keep=keep) for keep in ("", "b")),
    *(Config("split_k", 2, 1, 128, 6, 1, 2, keep=keep) for keep in ("", "b")),
    *(Config("split_k", 2, 2, 128, 5, 1, splits, keep="b") for splits in (2, 3)),
    Config("split_k", 1, 1, 64, 6, 1, 2),
    Config("split_k", 1, 1, 128, 6, 1, 2),
)
#: Of the candidates, those within this factor of the least predicted time are tried.
WITHIN = 1.5


@dataclass(frozen=True)
class Choice:
    """A configuration of either family, and the time that made it the choice."""

    config: Config | mma_sp.Config
    median_us: float

    @property
    def family(self) -> str:
        return "wgmma" if isinstance(self.config, Config) else "mma_sp"


def bind(name: str, problem: Problem, device, *, file: Path | None = None, **extra) -> Launch:
    """The chosen configuration, ready to run; tunes first where there is no choice yet.

    file: where to look and to write, instead of the usual places. `prepare_ms` is the preparation of A,
    and the trials where there were any. extra: alpha, beta, c, bias.
    """
    begin = time.perf_counter()
    choice = look_up(problem, device, file)
    spent_ms = 0.0
    if choice is None:
        choice = tune(problem, device)
        try:
            write(file or _own(device), problem, choice)
        except OSError as error:  # a folder that is not ours to write: the choice still serves
            warnings.warn(f"the tuner's choice is not kept: {error}", stacklevel=2)
        spent_ms = (time.perf_counter() - begin) * 1e3
    config = choice.config
    if set(extra) - {"alpha"} and choice.family == "wgmma" and config.kernel not in wgmma.COMPLETE:
        config = replace(config, kernel="persistent")  # the same tile, with beta·C and bias
    bound = _ready(name, problem, device, config, **extra)
    bound.prepare_ms += spent_ms
    return bound


def candidates(problem: Problem, device) -> list[Config | mma_sp.Config]:
    """What takes the problem on this GPU, without what a prediction rules out."""
    properties = device.properties
    sms, most = properties.multiprocessor_count, properties.max_shared_memory_per_block_optin
    m, n, k = problem.m, problem.n, problem.k
    if jit.arch_of(device) in wgmma.TARGETS:
        taken = []
        for config in HOPPER:
            try:
                wgmma.check(config, m, n, k, sms, most)
            except ValueError:
                continue
            taken.append(config)
        predicted = [predict(config, m, n, k, sms) for config in taken]
        least = min(predicted, default=0.0)
        return [c for c, t in zip(taken, predicted, strict=True) if t <= WITHIN * least]
    return [c for c in mma_sp.FAMILY if mma_sp.fits(c, device)]


def predict(config: Config, m: int, n: int, k: int, sms: int) -> float:
    """Cycles of a Hopper configuration, to rank them: what bounds a step, times steps, times waves.

    A step of 64 columns takes the tensor cores BLOCKS·GROUPS·N cycles, shared memory (128 bytes a
    cycle) what it reads for them, and the SM's port of L2 (about 64 bytes a cycle) what it copies.
    """
    c = config
    rows = c.groups * c.blocks  # of 64
    math = rows * c.n
    shared = rows * (128 * c.n + 4096) / 128
    copied = (c.m * 72 + c.n * 128) / 64
    high, wide = wgmma.tiles(c, m, n)
    steps = ceil(ceil(k / wgmma.K) / c.splits)
    waves = ceil(high * wide * c.splits / sms)
    fill, store = 2000, 1500 + c.m * c.n / 64
    return waves * steps * max(math, shared, copied) + fill + waves * store


def tune(problem: Problem, device) -> Choice:
    """Try all candidates, then the best few again; the outputs are those of the problem."""
    configs = candidates(problem, device)
    require(
        bool(configs),
        f"no configuration takes m={problem.m}, n={problem.n}, k={problem.k} on this GPU: see "
        "tuner.HOPPER and mma_sp.FAMILY",
    )
    _compile(configs, problem, device)
    times = _time(configs, problem, device, ROUNDS)
    factor = SHORT_FACTOR if min(times.values()) < SHORT_US else 1
    if factor > 1:
        times = _time(configs, problem, device, factor * ROUNDS)
    best = sorted(configs, key=times.get)[: factor * FINALISTS]
    times = _time(best, problem, device, factor**2 * FINAL_ROUNDS)
    config = min(best, key=times.get)
    return Choice(config, times[config])


def look_up(problem: Problem, device, file: Path | None = None) -> Choice | None:
    """The choice for the problem's sizes and dtype on this GPU, or None."""
    for path in [file] if file else [_own(device), SHIPPED / f"{tuning.slug(device)}.csv"]:
        if path.is_file():
            found = read(path).get(_key(problem))
            if found is not None and _fits(found.config, problem, device):
                return found
    return None


def _fits(config, problem: Problem, device) -> bool:
    """Whether the GPU takes a choice: one made elsewhere, or for other kernels, is made again."""
    if not isinstance(config, Config):
        return mma_sp.fits(config, device)
    properties = device.properties
    limits = properties.multiprocessor_count, properties.max_shared_memory_per_block_optin
    try:
        wgmma.check(config, problem.m, problem.n, problem.k, *limits)
    except ValueError:
        return False
    return jit.arch_of(device) in wgmma.TARGETS


COLUMNS = ("m", "n", "k", "dtype", "median_us", "family", "knobs")


def read(path: Path) -> dict[tuple, Choice]:
    """(m, n, k, dtype) -> Choice. Raises ValueError that names file and row where one cannot be read."""
    choices = {}
    with path.open(newline="") as file:
        for number, row in enumerate(csv.DictReader(file), 2):
            try:
                make = {"wgmma": Config, "mma_sp": mma_sp.Config}[row["family"]]
                config = tuning.parse_knobs(row["knobs"], make)
                key = (int(row["m"]), int(row["n"]), int(row["k"]), row["dtype"])
                choices[key] = Choice(config, float(row["median_us"]))
            except (KeyError, TypeError, ValueError, AttributeError) as error:
                raise ValueError(
                    f"{path.name}, row {number} is no choice of the tuner ({error}): delete the row"
                ) from error
    return choices


def write(path: Path, problem: Problem, choice: Choice) -> None:
    """Add a choice to a file, or replace the one that is there; the file is written aside and renamed."""
    choices = (read(path) if path.is_file() else {}) | {_key(problem): choice}
    rows = []
    for key in sorted(choices):
        c = choices[key]
        knobs = " ".join(f"{f}={v}" for f, v in asdict(c.config).items())
        rows.append((*key, f"{c.median_us:.2f}", c.family, knobs))
    tuning.write_rows(path, COLUMNS, rows)


def _ready(name: str, problem: Problem, device, config, **extra) -> Launch:
    family = wgmma if isinstance(config, Config) else mma_sp
    return family.bind(name, problem, device, config, **extra)


def _compile(configs, problem: Problem, device) -> None:
    """All at once, on as many threads as there are processors: NVRTC works without the lock."""
    arch, dtype = jit.arch_of(device), problem.device().a.dtype
    jobs = [
        (wgmma.source(c), wgmma.entry(c, dtype)) for c in configs if isinstance(c, Config)
    ]  # bind compiles mma_sp's: which instantiation depends on alignment
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(lambda job: jit.compile_cubin(*job, arch), jobs))


def _time(configs, problem: Problem, device, rounds: int) -> dict:
    """config -> median of `rounds` launches in microseconds, see `tuning.race`."""
    share = {}
    if any(isinstance(c, Config) for c in configs):
        share = {"metadata": wgmma.ring_metadata(problem.device().a, 256), "cache": {}}
    bounds = {
        c: _ready("trial", problem, device, c, **(share if isinstance(c, Config) else {}))
        for c in configs
    }
    return tuning.race(bounds, device, rounds)


def _key(problem: Problem) -> tuple[int, int, int, str]:
    # The room's own labels tell the dtype, so that looking a choice up makes no operands.
    dtypes = {label: dtype for dtype, label in LABELS.items()}
    dtype = dtypes.get(problem.label) or problem.device().a.dtype
    return problem.m, problem.n, problem.k, dtype


def _own(device) -> Path:
    return tuning.own_folder() / f"{tuning.slug(device)}.csv"
