"""What a notebook does with the harness: start, measure (or read).

run = start(system, mode, gpu, preset, seed, records)
df = run.measure("wide", problems, contenders)   # measures what is missing, or reads the records

Where there are several GPUs, points are dealt out by Dask's scheduler to workers, one a GPU, of a host or of a cluster:
`distributed.farm` starts them, and names the scheduler in the environment of the process that goes through a chapter.
That one hands in all points that are missing (`each`), and alone appends what comes back, point by point. A point is
never split: its contenders stay on one GPU. That of a worker that died goes to another. Without a scheduler the points
are measured here, in their order.
"""

import contextlib
import csv
import hashlib
import importlib
import json
import os
import pickle
import re
import socket
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import pandas as pd

from artifact import paths, registry
from artifact.measure import bench, device, records, verification
from kernels import jit
from kernels.autotune import probe
from kernels.contract import PreparedKernel, Problem, require
from kernels.lazy import cupy

MODES = ("auto", "measure", "recorded")
#: preset -> device time per contender and point, in seconds.
BUDGETS_S = {"full": bench.BUDGET_S, "kick": bench.BUDGET_S / 3}
#: What must be the same for two rows to lie in one file; a commit that changes none of it changes
#: no number.
SAME = ("gpu", "sources", "driver", "cuda", "cublas", "cusparse", "cusparselt", "cpu", "cpu_cores", "packages")
SEEDS = 2**32 - 1  #: the largest seed that every generator of operands takes
#: SASS opcodes that tell kernels of these systems apart; for loads and stores the width of one access
#: counts as well.
MEMORY_OPS = ("LDG", "STG", "LDS", "STS", "LDGSTS", "LDL", "STL")
OTHER_OPS = (
    "FFMA",
    "FFMA2",
    "SHFL",
    "ATOMG",
    "ATOMS",
    "RED",
    "REDG",
    "BAR",
    "HMMA",
    "HMMA.SP",
    "HGMMA",
    "HGMMA.SP",
    "UTMALDG",
)
#: Set to the address of Dask's scheduler in the process that deals points out.
SCHEDULER = "SPARSITY_SCHEDULER"
#: Beside the records: for each experiment, which GPU measured which point.
DEALT = ".dealt"
#: Added to the name of a record that was measured with other code or on another machine.
SET_ASIDE = ".stale"

_say = partial(print, flush=True)

Contender = Callable[[Problem], PreparedKernel]
Result = TypeVar("Result")
Point = TypeVar("Point")
#: (name -> PreparedKernel, `cuda.core.Device`, budget_s=, verify=) -> name -> Timing; `bench` has two.
Timer = Callable[..., dict[str, bench.Timing]]


class Prepared(NamedTuple):
    """What is kept of a contender without its memory: its preprocessing's milliseconds, and bytes of device memory."""

    prepare_ms: float
    prepare_bytes: int


@dataclass
class Run:
    """One system, measured here or read from records. Made by `start`."""

    room: str
    mode: str  #: "measure" or "recorded": what it does, not what it was asked for
    asked: str  #: the mode that it was asked for
    gpu: str  #: slug of the GPU whose numbers these are
    preset: str
    seed: int
    folder: Path  #: of this system's records of this GPU
    machine: dict[str, Any]  #: content of machine.json
    device: Any = field(default=None, repr=False)  #: `cuda.core.Device`; None when recorded

    def variants(self, names: Iterable[str] | None = None) -> dict[str, Contender]:
        """Return the system's variants (all, or those named) as contenders of a measurement."""
        module = importlib.import_module(f"kernels.{self.room}")
        chosen = list(module.VARIANTS if names is None else names)
        return {name: partial(module.prepare, name, device=self.device) for name in chosen}

    def baselines(self, names: Iterable[str] | None = None) -> dict[str, Contender]:
        """Return the system's baselines as contenders of a measurement.

        names: modules of `artifact.baselines`; by default the system's BASELINES.
        """
        usual = getattr(importlib.import_module(f"kernels.{self.room}"), "BASELINES", ())
        return registry.contenders(usual if names is None else names, self.device)

    def measure(
        self,
        experiment: str,
        problems: Iterable[Problem | Callable[[], Problem]],
        contenders: Mapping[str, Contender] | Iterable[str],
        timer: Timer = bench.time,
    ) -> pd.DataFrame:
        """One row per (problem, contender), in that order, with the columns of `records.COLUMNS`.

        Measuring: points that the fresh record already holds are kept, the others are checked,
        timed and appended one by one. A wrong result raises `verification.WrongResult`, and nothing of its
        point is recorded. Recorded: reads; raises FileNotFoundError or ValueError, one sentence,
        where the record or a point of it is missing.

        contenders: name -> callable(problem) -> PreparedKernel, which may run on the CPU; in recorded mode
        the names suffice. timer: `bench.time`, or `bench.time_calls` for an experiment of its own.
        """
        asked = [p() if callable(p) else p for p in problems]
        names, path = list(contenders), self.folder / f"{experiment}.csv"
        if self.mode == "measure":
            if not isinstance(contenders, Mapping):
                raise ValueError(f"{experiment} needs callables to measure, but got only names: pass a dict")
            self._measure(path, experiment, asked, contenders, timer)
        elif not path.exists():
            known = ", ".join(records.experiments(self.folder)) or "none"
            raise FileNotFoundError(
                f"there are no records of {self.room}/{experiment} on {self.gpu} "
                f"(recorded: {known}): measure it on a GPU, or choose one of these"
            )
        if not asked or not names:
            return pd.DataFrame(columns=list(records.COLUMNS))
        return select(records.read(path), asked, names, f"{self.room}/{experiment} on {self.gpu}")

    def _measure(
        self,
        path: Path,
        experiment: str,
        problems: list[Problem],
        contenders: Mapping[str, Contender],
        timer: Timer,
    ) -> None:
        known = {_key(x.variant, x) for x in records.read(path).itertuples()} if path.exists() else set()
        todo = [p for p in problems if any(_key(name, p) not in known for name in contenders)]
        if problems and contenders:
            records.plan(path, (_key(name, p)[:-1] for p in problems for name in contenders))
        if done := len(problems) - len(todo):
            _say(f"{self.room}/{experiment}: {done} of {len(problems)} points are already there")
        began = time.perf_counter()

        def work(problem: Problem) -> dict:
            return measure_point(problem, contenders, self.device, BUDGETS_S[self.preset], timer)

        for number, (problem, who, timed) in enumerate(each(work, todo), done + 1):
            said = {"gpu": self.machine["gpu"], "when": datetime.now(UTC).isoformat(timespec="seconds")}
            rows = [row(problem, name, experiment, *result, **said) for name, result in timed.items()]
            records.append(path, rows)
            mark(self.folder, experiment, f"{experiment} {point_name(problem)}", who)
            best = min(rows, key=lambda r: r["median_us"])
            took, began = time.perf_counter() - began, time.perf_counter()
            _say(
                f"{self.room}/{experiment} {number}/{len(problems)}: {point_name(problem)}: "
                f"{len(rows)} contenders, fastest {best['variant']} {best['median_us']:.1f} µs ({took:.1f} s)"
            )

    def compile_report(self, target: str | None = None, first: bool = False) -> pd.DataFrame:
        """`compile_report` of this system."""
        return compile_report(self.room, target=target, first=first)


def start(
    system: str,
    mode: str = "auto",
    gpu: str = "nvidia-h200",
    preset: str = "full",
    seed: int = 0,
    records: str | Path = "",
    *,
    repeat: bool = False,
) -> Run:
    """Decide what a notebook does, and make it ready.

    The parameters are those of a notebook's parameters cell.

    mode: "measure" (needs a GPU), "recorded", or "auto", which measures where there is a GPU. gpu:
    whose records to read; a measurement is of the GPU that is here. records: folder of records, by
    default the fresh ones in build/ when measuring and the shipped ones otherwise. repeat: the
    second measurement, kept beside the first. Raises `device.NoGpu` where measuring was asked for
    in vain, ValueError for an unknown value.
    """
    validate(mode, preset, seed)
    require(
        bool(re.fullmatch(r"[a-z0-9_]+", system)),
        f"system is {system!r}, but must be the name of a folder under kernels/",
    )
    begin = _measuring if mode == "measure" or (mode == "auto" and device.find()) else _recorded
    return begin(system, mode, gpu, preset, seed, Path(records) if records else None, repeat)


def validate(mode: object, preset: object, seed: object) -> None:
    """Raise ValueError, one sentence, for a mode, preset or seed that `start` does not take."""
    for name, value, known in (("mode", mode, MODES), ("preset", preset, tuple(BUDGETS_S))):
        require(value in known, f"{name} is {value!r}, but must be one of {', '.join(known)}")
    require(
        isinstance(seed, int) and not isinstance(seed, bool) and 0 <= seed <= SEEDS,
        f"seed is {seed!r}, but must be a whole number from 0 to {SEEDS}",
    )


def _measuring(system: str, asked: str, gpu: str, preset: str, seed: int, root: Path | None, repeat: bool) -> Run:
    require(
        not jit.hang_trap(),
        f"kernels are compiled with a hang trap, which costs time, as {jit.HANG_TRAP} is set: unset it to measure",
    )
    info = device.require()
    opened = info.open()
    folder = (root or paths.RECORDS) / info.slug / system / (records.REPEAT if repeat else "")
    machine = device.describe(opened) | {"sources": device.sources(system)}
    for name in set_aside(folder, machine, seed):
        _say(
            f"{system}: {name} comes from other code or another machine, or has another seed: kept as {name}{SET_ASIDE}"
        )
    # Before the first row, so that no row ever lies there without its machine.
    records.write_machine(folder, machine)
    # Reading takes no time that a line would have to explain, and `banner` says it on the page.
    _say(f"{system}: measuring on {info.gpu} (mode={asked}, preset={preset}, seed={seed})")
    return Run(system, "measure", asked, info.slug, preset, seed, folder, machine, opened)


def _recorded(system: str, asked: str, gpu: str, preset: str, seed: int, root: Path | None, repeat: bool) -> Run:
    known = records.resolve(gpu, root or paths.RECORDED)
    folder = known / system / (records.REPEAT if repeat else "")
    # A repetition on the same machine needs no second description of it.
    described = folder if (folder / records.MACHINE).exists() else known / system
    if not described.is_dir():
        raise FileNotFoundError(
            f"there are no records of system {system!r} on {known.name} "
            f"(recorded: {', '.join(records.systems(known)) or 'none'}): measure it on a GPU"
        )
    return Run(system, "recorded", asked, known.name, preset, seed, folder, records.read_machine(described))


def set_aside(folder: Path, machine: Mapping[str, Any], seed: int) -> list[str]:
    """Rename the records in `folder` of another machine or other code, or with another seed; returns their names.

    They agree with `machine` if everything in `SAME` does. A record without a readable machine.json
    agrees with none.
    """
    old: dict[str, Any] = {}
    with contextlib.suppress(FileNotFoundError, ValueError):
        old = records.read_machine(folder)
    same = bool(old) and all(old.get(key) == machine.get(key) for key in SAME)
    every = {*folder.glob("*.csv")} - {folder / f"{records.PROVENANCE}.csv"}
    aside = [path for path in sorted(every) if not same or _seed(path) not in (None, seed)]
    for path in aside:
        os.replace(path, path.with_name(path.name + SET_ASIDE))
        path.with_suffix(".json").unlink(missing_ok=True)  # as the plan, it speaks of them
        (folder / records.PLAN).unlink(missing_ok=True)
    return [path.name for path in aside]


def _seed(path: Path) -> int | None:
    """Return that of a record's first row, which is that of all.

    None of a file that is no record, which is left as it is.
    """
    with path.open(encoding="utf-8", errors="replace", newline="") as file:
        first = next(csv.DictReader(file), {})
    return int(first["seed"]) if str(first.get("seed")).isdecimal() else None


def measure_point(
    problem: Problem,
    contenders: Mapping[str, Contender],
    opened,
    budget_s: float,
    timer: Timer = bench.time,
) -> dict[str, tuple[Prepared, verification.Errors, bench.Timing]]:
    """Bind, check and time every contender on one problem; the operands are freed afterwards.

    opened: `cuda.core.Device`, current. Raises `verification.WrongResult` for the first contender that is
    wrong, on whole numbers, before its timed launches or after them, and ValueError, from its `prepare`,
    for one that does not take the problem.
    """
    reference: Any = None
    bounds: Any = None
    try:
        # First, so that a contender which changes the operands is wrong, and not the reference.
        reference = verification.oracle(problem)
        _free_memory()  # of its temporaries, which CuPy would keep from others
        check_exactly(problem, contenders, opened)
        bounds = {name: prepare(problem) for name, prepare in contenders.items()}
        errors, timings = check_and_time(bounds, problem, reference, opened, partial(timer, budget_s=budget_s))
        costs = {name: Prepared(float(b.prepare_ms), int(b.prepare_bytes)) for name, b in bounds.items()}
        return {name: (costs[name], errors[name], timings[name]) for name in costs}
    finally:
        # The next point may need all the memory there is; `PreparedKernel`s hold on to operands, so they go
        # first.
        bounds = reference = None
        problem.release()
        _free_memory()


def check_exactly(problem: Problem, contenders: Mapping[str, Contender], opened) -> None:
    """Launch every contender once on operands whose product is exact, of the problem's sizes and pattern.

    Each is prepared for it anew, one after the other, since what `prepare` makes of A holds its numbers; so this comes
    before the contenders are bound to the problem itself. Raises `verification.WrongResult` for the first one that is
    wrong, and what its `prepare` raises.
    """
    exact = probe.exact(problem)
    product: Any = None
    try:
        product = verification.oracle(exact, sizes=False)
        with a_stream(opened) as stream:
            for prepare in contenders.values():
                verification.exactly(prepare(exact), exact, product, stream)
                _free_memory()
    finally:
        product = None
        exact.release()
        _free_memory()


def check_and_time(
    bounds: Mapping[str, PreparedKernel],
    problem: Problem,
    reference: verification.Reference,
    opened,
    timer: Timer = bench.time,
) -> tuple[dict[str, verification.Errors], dict[str, bench.Timing]]:
    """Check every contender, time them, and check each again, launched as it was timed.

    reference: `verification.oracle(problem)`, made before the contenders were bound. opened:
    `cuda.core.Device`, current. timer: (bounds, opened, verify=) -> name -> Timing. Raises
    `verification.WrongResult` for the first contender that is wrong.
    """

    def again(name: str, launch: Callable[[], Any]) -> None:
        verification.check(bounds[name], problem, reference, launch=launch, when="after timing")

    with a_stream(opened) as stream:
        errors = {name: verification.check(bound, problem, reference, stream) for name, bound in bounds.items()}
        return errors, timer(bounds, opened, verify=again)


def measure_alone(
    run: Run,
    problem: Problem,
    experiment: str,
    bound: PreparedKernel,
    verify: bench.Verify,
    budget_s: float = bench.BUDGET_S,
) -> dict[str, Any]:
    """Return the row of what multiplies no operands: checked by `verify`, timed, and checked once more.

    verify: as `bench.time` calls it; problem: what the row says it is of.
    """
    run.device.sync()
    with a_stream(run.device) as stream:

        def once() -> None:
            bound.launch(stream)
            stream.sync()

        errors = verify(bound.name, once)
        timing = bench.time({bound.name: bound}, run.device, budget_s=budget_s, verify=verify)[bound.name]
    of = {"gpu": run.machine["gpu"], "when": datetime.now(UTC).isoformat(timespec="seconds")}
    return row(problem, bound.name, experiment, bound, errors, timing, **of)


def row(
    problem: Problem,
    variant: str,
    experiment: str,
    bound: PreparedKernel | Prepared,
    errors: verification.Errors,
    timing: bench.Timing,
    *,
    gpu: str,
    when: str,
) -> dict[str, Any]:
    """One row of a record: the problem, the time, the rates that follow from it, the errors."""
    made = {
        **{name: getattr(problem, name) for name in ("room", *records.POINT, "seed", *records.PROBLEM)},
        "experiment": experiment,
        "variant": variant,
        **asdict(timing),
        **errors._asdict(),
        **{rate: getattr(problem, of) / timing.median_us / unit for rate, (of, unit) in records.RATES.items()},
        "prepare_ms": bound.prepare_ms,
        "prepare_bytes": bound.prepare_bytes,
        "gpu": gpu,
        "when": when,
    }
    return {name: made[name] for name in records.COLUMNS}


def select(df: pd.DataFrame, problems: list[Problem], names: list[str], what: str) -> pd.DataFrame:
    """Return the rows of `df` for these problems and contenders, in their order.

    Raises ValueError, one sentence, that names the first point that is not there and how many more
    are missing.
    """
    have = {_key(row.variant, row): i for i, row in enumerate(df.itertuples())}
    wanted = [(name, problem) for problem in problems for name in names]
    if missing := [pair for pair in wanted if _key(*pair) not in have]:
        name, problem = missing[0]
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise ValueError(
            f"the records of {what} have no {name} at {point_name(problem)}, "
            f"seed={problem.seed}{more}: ask for recorded points, or measure on a GPU"
        )
    return df.iloc[[have[_key(*pair)] for pair in wanted]].reset_index(drop=True)


# ---------------------------------------------------------------- points over GPUs


def each(work: Callable[[Point], Any], points: Iterable[Point]) -> Iterator[tuple[Point, dict[str, str], Any]]:
    """Yield each point as it is done, who did it, and what `work` made of it.

    Who: ("gpu" and "host"; nothing where nobody dealt). Raises what `work` raises.
    """
    if SCHEDULER not in os.environ:
        yield from ((point, {}, work(point)) for point in points)
        return
    import cloudpickle
    from distributed import Client, as_completed

    with Client(os.environ[SCHEDULER]) as client:
        # Unpickled by the thread that measures, in which the GPU is current.
        futures = {client.submit(_there, cloudpickle.dumps((work, point)), pure=False): point for point in points}
        for future, (who, made) in as_completed(list(futures), with_results=True):
            yield futures[future], who, made


def _there(task: bytes) -> tuple[dict[str, str], Any]:
    if gpu := device.find():
        gpu.open()
    work, point = pickle.loads(task)
    host = hashlib.sha256(socket.gethostname().encode()).hexdigest()[:8]
    return {"gpu": os.environ.get("CUDA_VISIBLE_DEVICES", "0"), "host": host}, work(point)


def mark(folder: Path, experiment: str, name: str, who: dict[str, str]) -> None:
    """Write down which GPU measured a point, where points are dealt out."""
    if who:
        (folder / DEALT).mkdir(parents=True, exist_ok=True)
        line = {"point": name, **who, "when": datetime.now(UTC).isoformat(timespec="seconds")}
        with (folder / DEALT / f"{experiment}.jsonl").open("a", encoding="utf-8") as file:
            print(json.dumps(line), file=file)


def marks(folder: Path, experiment: str) -> dict[str, str]:
    """Point -> "host gpu" that measured it; the host by a checksum of its name."""
    path = folder / DEALT / f"{experiment}.jsonl"
    lines = map(json.loads, path.read_text(encoding="utf-8").splitlines() if path.is_file() else ())
    return {line["point"]: f"{line['host']} {line['gpu']}" for line in lines}


# ---------------------------------------------------------------- with whoever takes the problem


class Refused(ValueError):
    """A contender does not take a problem; `name` says which, as the message does."""

    def __init__(self, name: str, why: str):
        super().__init__(name, why)  # as they came: so it travels between processes
        self.name, self.why = name, why

    def __str__(self) -> str:
        return self.why if self.name in self.why else f"{self.name}: {self.why}"


def willing(
    contenders: Mapping[str, Contender],
    work: Callable[[Mapping[str, Contender]], Result],
    left_out: Callable[[str, str], Any],
    must: Collection[str] = (),
) -> Result:
    """Return what `work` makes of the contenders, without those that refuse, or are a library that is wrong.

    work: measures all that it is given, and raises what their binding and their check raise. left_out: hears each
    name, and why. must: those that are not left out. Raises `verification.WrongResult` for a wrong contender that is
    no library, ValueError as those of `must` do, and Refused by the last one where nobody is left.
    """

    def refusing(name: str, prepare: Contender, problem: Problem) -> PreparedKernel:
        try:
            return prepare(problem)
        except ValueError as error:
            raise Refused(name, str(error)) from error

    here = {name: prepare if name in must else partial(refusing, name, prepare) for name, prepare in contenders.items()}
    while True:
        try:
            return work(here)
        except (Refused, verification.WrongResult) as error:
            name = getattr(error, "name", str(error).split(" ", 1)[0])
            library = isinstance(error, Refused) or name.startswith(registry.PREFIXES)
            if here.pop(name if library else "", None) is None or not here:
                raise
            left_out(name, str(error))


def measure_willing(
    run: Run,
    experiment: str,
    problems: Sequence[Problem],
    contenders: Mapping[str, Contender],
    must: Collection[str] = (),
    timer: Timer = bench.time,
) -> None:
    """Measure problems with the contenders that take them: see `willing`. timer: as `Run.measure` has it.

    Who is left out has no row of any of these problems, which is said and written down (`records.read_absent`).
    """

    def left_out(name: str, why: str) -> None:
        _say(f"{run.room}/{experiment} goes on without it: {why}")
        leave_out(run.folder / f"{experiment}.csv", name, problems, why)

    willing(contenders, partial(run.measure, experiment, problems, timer=timer), left_out, must)


def leave_out(path: Path, contender: str, problems: Iterable[Problem], why: str) -> None:
    """Write down that a record has no row of a contender at these problems."""
    for problem in problems:
        records.leave_out(path, (contender, *(getattr(problem, name) for name in records.POINT)), why)


# ---------------------------------------------------------------- what the compiler made


def compile_report(
    system: str, variants: Collection[str] | None = None, target: str | None = None, first: bool = False
) -> pd.DataFrame:
    """Every entry of every variant of a system, or of some, compiled for all of its targets, or one; no GPU is needed.

    first: only the first entry of each variant, as the chapter of 2:4 shows them.

    Columns: variant, entry, target, registers (per thread), shared_bytes (per block, static),
    stack_bytes, spills, instructions (in all), and static counts such as "LDG.128" (bits of one
    access), "FFMA" or "HMMA.SP", where any kernel has them.
    """
    jobs = [
        (kernel, entry, made)
        for kernel in importlib.import_module(f"kernels.{system}").VARIANTS.values()
        for entry in kernel.entries[: 1 if first else None]
        for made in kernel.targets
        if (variants is None or kernel.name in variants) and target in (None, made)
    ]

    # The compiler lets go of Python's lock, so threads suffice.
    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        cubins = list(pool.map(lambda job: jit.compile_cubin(job[0].source, *job[1:]), jobs))
    rows = [
        {
            "variant": kernel.name,
            "entry": entry,
            "target": made,
            "registers": used.registers,
            "shared_bytes": used.shared_bytes,
            "stack_bytes": used.stack_bytes,
            "spills": used.spills,
            "instructions": sum(mix.values()),
            **count_instructions(mix),
        }
        for (kernel, entry, made), (used, mix) in zip(jobs, jit.reports(cubins), strict=True)
    ]
    df = pd.DataFrame(rows)
    known = [*(f"{op}.{bits}" for op in MEMORY_OPS for bits in (8, 16, 32, 64, 128)), *OTHER_OPS]
    counts = [name for name in known if name in df]
    return df[[*df.columns[:8], *counts]].fillna(dict.fromkeys(counts, 0)).astype(dict.fromkeys(counts, "int64"))


def count_instructions(mix: Mapping[str, int]) -> dict[str, int]:
    """Sum a SASS instruction mix into the columns of the compile report.

    {"LDG.E.128.CONSTANT": 4, "LDG.E": 1} -> {"LDG.128": 4, "LDG.32": 1}
    """
    counts: Counter[str] = Counter()
    for instruction, count in mix.items():
        op, *modifiers = instruction.split(".")
        if op in MEMORY_OPS:
            # Bytes and halves are U8, S8, U16 or S16; an access without a width is of one 32-bit
            # register.
            width = next((m.lstrip("US") for m in modifiers if re.fullmatch(r"[US]?(8|16|64|128)", m)), "32")
            counts[f"{op}.{width}"] += count
        elif op in OTHER_OPS:
            # On sparse tensor cores: another instruction, at another rate.
            counts[f"{op}.SP" if modifiers[:1] == ["SP"] else op] += count
    return counts


# ---------------------------------------------------------------- small things


def _key(variant: str, point: Any) -> tuple:
    """Return what tells rows of a record apart; point: a problem, or a row."""
    # Densities are decimal fractions that went through text: nine digits tell any two of them apart.
    return variant, point.label, point.m, point.n, point.k, round(point.density, 9), point.seed


def point_name(problem: Problem) -> str:
    """Return what a line of progress and the dealing out of points call a point; a record's row has the same fields."""
    sizes = f"m={problem.m}, n={problem.n}, k={problem.k}, density={problem.density:.3g}"
    return f"{problem.label}, {sizes}" if problem.label else sizes


@contextlib.contextmanager
def a_stream(opened) -> Iterator[Any]:
    """Give a new stream of a `cuda.core.Device`.

    After a launch that failed nothing works any more, closing it neither, and the sentence on that is what counts.
    """
    stream = opened.create_stream()
    try:
        yield stream
    finally:
        with contextlib.suppress(Exception):
            stream.close()


def _free_memory() -> None:
    """Give back what CuPy keeps, where the GPU still answers: see `a_stream`."""
    with contextlib.suppress(Exception):
        cupy.cuda.Device().synchronize()
        cupy.get_default_memory_pool().free_all_blocks()
