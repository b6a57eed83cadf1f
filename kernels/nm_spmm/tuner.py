"""The room's autotuner: tries the ladder's kernels on a problem and keeps its choice in a readable file.

A choice is a row of choices/<gpu>.csv: sizes, pattern, compiler, and the knobs of `ladder.Config`. See
`kernels.tuning` for how trials are timed and where choices are kept.
"""

from __future__ import annotations

import csv
import os
import re
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from math import ceil
from pathlib import Path

from kernels import jit, tuning
from kernels.contract import Launch, Problem, require
from kernels.nm_spmm import ladder
from kernels.nm_spmm.ladder import Config

ROOM = "nm_spmm"
SHIPPED = Path(__file__).with_name("choices")
#: Rounds of one launch each behind a choice, in each of the two heats, and who comes to the second.
ROUNDS, FINAL_ROUNDS, FINALISTS = 5, 9, 3
#: Below this many microseconds the clock's noise is a per cent or more: that many times the rounds.
SHORT_US, SHORT_FACTOR = 60, 4
#: Of the candidates, those within this factor of the least predicted time are tried, the best few of them;
#: more where the product takes SHORT_CYCLES at most, where predictions are worse and trials cheaper.
WITHIN, MOST, MOST_SHORT = 1.7, 8, 24
SHORT_CYCLES = 400_000
#: Cycles until the first step of a block has come from DRAM, and until a cluster's blocks have met twice.
FILL, MEET = 2500, 2500
#: Cycles of a step in which nothing is multiplied: its barrier, its first indices, its first fragment.
STEP = 150

#: Tiles as (bm, bn, tm, tn, blocks an SM), and the share of multiply-adds in the issue slots that they reach.
TILES = {
    (128, 256, 8, 16, 1): 0.84, (128, 256, 16, 8, 1): 0.83, (128, 128, 8, 8, 2): 0.77, (64, 256, 8, 8, 2): 0.77,
    (64, 128, 8, 8, 4): 0.74, (64, 64, 8, 8, 4): 0.70, (64, 128, 4, 8, 2): 0.66, (64, 64, 4, 8, 4): 0.66,
    (32, 64, 4, 8, 8): 0.64, (32, 32, 4, 8, 16): 0.60,
}  # fmt: skip
SPLITS = (1, 2, 4, 8)
DEPTHS = (32, 64, 96, 128)
#: Rows of the loop's body in a tile that fills an SM alone: more of its rows than 12 no instruction cache holds.
BODIES = (8, 12)
#: Rows of a step up to which smaller tiles' steps are unrolled whole.
MOST_ROWS = 48
#: Without TMA: copies by cp.async.
WIDE = tuple(
    Config("wide", bm, bn, tm, depth=depth, blocks=blocks, ahead=False)
    for bm, bn, tm, blocks in ((128, 128, 16, 2), (128, 128, 8, 2), (64, 64, 8, 4))
    for depth in DEPTHS[:2]
)


@dataclass(frozen=True)
class Choice:
    """A configuration, the time that made it the choice, and the compiler whose code took that time.

    Where accumulators lie decides what the register file delivers, and compilers differ in that: a
    choice that was made with another one is made again.
    """

    config: Config
    median_us: float
    nvrtc: str = field(default_factory=jit.nvrtc_version)


def bind(name: str, problem: Problem, device, *, file: Path | None = None) -> Launch:
    """The chosen configuration, ready to run; tunes first where there is no choice yet.

    file: where to look and to write, instead of the usual places. `prepare_ms` is the layout of B, and
    the trials where there were any. Raises ValueError where no configuration takes the problem.
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
    bound = ladder.bind_config(name, problem, device, choice.config)
    bound.prepare_ms += spent_ms
    return bound


def family(keep: int, group: int) -> list[Config]:
    """Every configuration of the copy engine's kernels that the tuner knows for a pattern."""
    found = []
    for bm, bn, tm, tn, blocks in TILES:
        for depth in DEPTHS:
            c = Config("bulk", bm, bn, tm, tn, depth=depth, blocks=blocks, ahead=False)
            rows = ladder.rows(c, keep, group)
            if blocks == 1:  # one block an SM, whose steps are evened out, or two that share a tile
                for body in BODIES:
                    c = replace(c, unroll=ladder.unrolled(replace(c, unroll=body), keep, group))
                    found += [replace(c, kernel="stream"), replace(c, kernel="cluster", split=2)]
            elif rows <= MOST_ROWS or depth == DEPTHS[0]:
                stages = (3, 4) if tm == 4 else (3,)
                for split in SPLITS:
                    kernel = "cluster" if split > 1 else "bulk"
                    found += [replace(c, kernel=kernel, split=split, stages=s) for s in stages]
    return list(dict.fromkeys(found))


def candidates(problem: Problem, device) -> list[Config]:
    """What takes the problem on this GPU, without what a prediction rules out, the best first."""
    b = problem.device().b
    properties = device.properties
    most, slot = properties.max_shared_memory_per_block_optin, ladder.slot_of(b)
    hopper = jit.arch_of(device) in ladder.HOPPER
    taken = []
    for config in family(b.keep, b.group) if hopper else WIDE:
        try:
            ladder.check(config, b.keep, b.group, slot, most)
        except ValueError:
            continue
        taken.append(config)
    sms, memory = properties.multiprocessor_count, properties.max_shared_memory_per_multiprocessor
    cycles = {c: predict(c, problem.m, problem.n, b, slot, sms, memory) for c in taken}
    least = min(cycles.values(), default=0.0)
    likely = [c for c in sorted(taken, key=cycles.get) if cycles[c] <= WITHIN * least]
    return likely[: MOST_SHORT if least < SHORT_CYCLES else MOST]


def predict(config: Config, m: int, n: int, b, slot: int, sms: int, memory: int) -> float:
    """Cycles of a configuration, to rank them: what bounds a step, times steps, times waves.

    b: the N:M matrix (its sizes are looked at, not its values); memory: bytes of shared memory of an
    SM. An SM multiplies 128 pairs a cycle, times the tile's share of issue slots, and copies about
    40 bytes a cycle from L2.
    """
    c = config
    rows = ladder.rows(c, b.keep, b.group)
    shared = ladder.shared_bytes(c, b.keep, b.group, slot) + ladder.RESERVED
    resident = max(1, min(c.blocks, memory // shared))
    steps = ceil(b.w / (ladder.windows(c, b.group) * b.keep))
    share = TILES.get((c.bm, c.bn, c.tm, c.tn, c.blocks), 0.7)
    math = rows * c.bm * c.bn / 128 / share
    depth = ladder.windows(c, b.group) * b.group
    copied = (depth * c.bm + rows * c.bn) * 4 / 40
    alone = rows * (c.tm * c.tn / 0.7 + 15)  # a warp that has its scheduler for itself
    tiles, store = ceil(m / c.bm) * ceil(n / c.bn), c.bm * c.bn / 32

    def block(steps: float, together: int) -> float:
        """Of a block, where so many share an SM."""
        return steps * (max(together * math, together * copied, alone) + STEP) + together * store

    if c.kernel == "stream":
        # Sums of tiles that are not whole pass through L2. With less than a tile for each block all of
        # them do, and at the end, where nothing else is left to do meanwhile.
        share = tiles / sms / resident
        extra = (share + (4 if share >= 1 else 24)) * store
        return FILL + block(ceil(share * steps), resident) + extra * resident
    meet = 0.0
    if c.split > 1:
        # Partial sums pass through shared memory, and every block reads its part of all its cluster's.
        steps = ceil(steps / c.split)
        meet = MEET + 9 * store
    full, rest = divmod(tiles * c.split, sms * resident)
    last = block(steps, ceil(rest / sms)) + meet + FILL if rest else 0.0
    return full * (block(steps, resident) + meet + FILL) + last


def tune(problem: Problem, device) -> Choice:
    """Try all candidates, then the best few again; the outputs are those of the problem."""
    configs = candidates(problem, device)
    b = problem.device().b
    require(
        bool(configs),
        f"no configuration takes {b.keep}:{b.group} on this GPU: a step of whole windows is too large "
        "for shared memory, see tuner.TILES",
    )
    slot, arch = ladder.slot_of(b), jit.arch_of(device)

    def compile_one(config: Config) -> None:
        name = ladder.entry(config, b.keep, b.group, slot, problem.m % 4 == 0)
        jit.compile_cubin(ladder.source(config), name, arch)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(compile_one, configs))
    bounds = {c: ladder.bind_config("trial", problem, device, c) for c in configs}
    times = tuning.race(bounds, device, ROUNDS)
    factor = SHORT_FACTOR if min(times.values()) < SHORT_US else 1
    best = sorted(configs, key=times.get)[: FINALISTS + factor - 1]
    times = tuning.race({c: bounds[c] for c in best}, device, factor * FINAL_ROUNDS)
    config = min(best, key=times.get)
    return Choice(config, times[config])


def look_up(problem: Problem, device, file: Path | None = None) -> Choice | None:
    """The choice for the problem's sizes and pattern on this GPU, or None."""
    shipped = SHIPPED / f"{tuning.slug(device)}.csv"
    for path in [file] if file else [_own(device), shipped]:
        if path.is_file():
            found = read(path).get(_key(problem))
            if found is not None and _fits(found, problem, device):
                return found
    return None


def _fits(choice: Choice, problem: Problem, device) -> bool:
    """Whether the GPU takes a choice: one made elsewhere, or for other kernels, is made again."""
    config = choice.config
    if config.kernel not in ("wide", "bulk", "stream", "cluster"):
        return False
    if choice.nvrtc != jit.nvrtc_version():
        return False
    b = problem.device().b
    most = device.properties.max_shared_memory_per_block_optin
    try:
        ladder.check(config, b.keep, b.group, ladder.slot_of(b), most)
    except ValueError:
        return False
    return config.kernel == "wide" or jit.arch_of(device) in ladder.HOPPER


KEY = ("m", "n", "k", "keep", "group", "vector")
COLUMNS = (*KEY, "nvrtc", "median_us", "knobs")
_read: dict[Path, tuple[int, dict[tuple, Choice]]] = {}


def read(path: Path) -> dict[tuple, Choice]:
    """(m, n, k, keep, group, vector) -> Choice. Raises ValueError that names file and row where one
    cannot be read."""
    stamp = path.stat().st_mtime_ns
    if path in _read and _read[path][0] == stamp:  # hundreds of rows, asked for at every bind
        return _read[path][1]
    choices = {}
    with path.open(newline="") as file:
        for number, row in enumerate(csv.DictReader(file), 2):
            try:
                config = tuning.parse_knobs(row["knobs"], Config)
                compiler = re.fullmatch(r"\d+\.\d+", row["nvrtc"])[0]
                choices[tuple(int(row[name]) for name in KEY)] = Choice(
                    config, float(row["median_us"]), compiler
                )
            except (KeyError, TypeError, ValueError, AttributeError) as error:
                raise ValueError(
                    f"{path.name}, row {number} is no choice of the tuner ({error}): delete the row"
                ) from error
    _read[path] = stamp, choices
    return choices


def write(path: Path, problem: Problem, choice: Choice) -> None:
    """Add a choice to a file, or replace the one that is there; the file is written aside and renamed."""
    choices = (read(path) if path.is_file() else {}) | {_key(problem): choice}
    rows = []
    for key in sorted(choices):
        c = choices[key]
        knobs = " ".join(f"{name}={value}" for name, value in asdict(c.config).items())
        rows.append((*key, c.nvrtc, f"{c.median_us:.2f}", knobs))
    tuning.write_rows(path, COLUMNS, rows)
    _read.pop(path, None)


def _key(problem: Problem) -> tuple[int, ...]:
    b = problem.device().b
    return problem.m, problem.n, problem.k, b.keep, b.group, b.vector


def _own(device) -> Path:
    return tuning.own_folder(ROOM) / f"{tuning.slug(device)}.csv"
