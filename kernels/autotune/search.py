"""From candidates to a choice.

Each is made ready, checked, and timed as the harness times, cold caches and in turns; what fails is skipped, and
named.
"""

import os
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Generic

import numpy as np

from .. import jit
from ..contract import Launch, PreparedKernel, Problem
from ..timing import Stopwatch
from . import outputs, probe
from .choices import Choice, Choices, Config, digest, knobs, look_up, own_folder, slug, write


@dataclass(frozen=True)
class Rounds:
    """How many launches of a candidate stand behind a choice.

    A first heat of all, a second of the `factor · finalists` best. Where the fastest takes less than `short_us`,
    candidates lie within the clock's noise: the first heat is run again, `factor` times as long, and the second is
    `factor`² times as long. Longer launches draw power, and after some tenths of a second the GPU lowers its clock, for
    one kernel more than for another: their second heat begins with `hot_s` seconds that are not counted.
    """

    first: int = 5  #: launches of each candidate in the first heat
    final: int = 9  #: of each of the best in the second
    finalists: int = 4  #: times `factor` come to the second heat
    short_us: float = 40.0
    factor: int = 3
    hot_s: float = 0.5


@dataclass(frozen=True)
class Winner(Generic[Config]):
    """The fastest right candidate."""

    config: Config
    median_us: float
    bound: PreparedKernel  #: ready to run
    spent_ms: float  #: preparation of all candidates, checks and heats; not what `jobs` compile


def choose(
    choices: Choices[Config],
    key: tuple,
    device,
    *,
    fits: Callable[[Config], bool],
    make: Callable[[], Winner[Config]],
    file: Path | None = None,
    near: bool = False,
) -> tuple[Config, float]:
    """Return (configuration, milliseconds that trials took): the choice that is kept for a problem's key.

    Where there is none that holds (see `look_up`), `make`, a call of `tune`, makes one, which is added to the
    user's own file. file: where to look and to write, instead of the usual places. near: as of `look_up`.
    """
    found = look_up(choices, key, device, fits, file, near=near)
    if found is not None:
        return found.config, 0.0
    winner = make()
    if jit.hang_trap():  # no times to go by later
        return winner.config, winner.spent_ms
    made = Choice(winner.config, winner.median_us, digest(choices.sources(winner.config)))
    try:
        write(choices, file or own_folder(choices.room) / f"{slug(device)}.csv", key, made)
    except OSError as error:  # a folder that is not ours to write: the choice still serves
        warnings.warn(f"the tuner's choice is not kept: {error}", stacklevel=3)
    return winner.config, winner.spent_ms


def prepare_choice(name: str, of: Any, p, device, *, file: Path | None = None, **extra) -> Launch:
    """Return what a system's "auto" is: the choice for a problem (`choose`), made ready; tunes where there is none yet.

    of: a system's `Family` with choices. file: where to look and to write, instead of the usual places. extra: for
    `of.prepare`. `prepare_ms` holds the trials, too, where there were any. Raises ValueError where nothing takes `p`.
    """
    config, spent_ms = choose(
        of.choices,
        of.key(p),
        device,
        fits=lambda config: of.fits(config, p, device),
        make=lambda: of.tune(p, device),
        file=file,
    )
    bound = of.prepare(name, p, device, config, **extra)
    bound.prepare_ms += spent_ms
    return bound


def tune(
    problem: Problem,
    configs: Sequence[Config],
    prepare: Callable[[Problem, Config], PreparedKernel],
    references: Iterable[Callable[[Problem], PreparedKernel]],
    device,
    rounds: Rounds,
    jobs: Iterable[tuple[Path, str]] = (),
) -> Winner[Config]:
    """Return the fastest of `configs` whose output is right, on a current `cuda.core.Device`.

    bind: makes one ready on a problem, this one or one of the same sizes and pattern with other numbers; all write to
    the problem's own output. references: simple kernels; the first one that runs says what is right. jobs: (source,
    entry) to compile at once, on as many threads as there are processors.

    A candidate that cannot be made ready or launched, or whose output is wrong, is skipped with a warning that
    names it and the reason; the winner is checked once more after all its launches, and on operands whose product is
    exact (`probe`), where nothing but the reference's bits are right. Raises ValueError where
    no candidate takes the problem, RuntimeError where all fail or no reference runs. A launch that breaks the
    GPU's context (an address out of bounds) breaks it for all that come after it, too.
    """
    trial = _Trial(problem, device, device.create_stream())
    with _compiling([*jobs, *outputs.jobs(problem), *probe.jobs(problem)], jit.arch_of(device)):
        begin = time.perf_counter()
        trial.expect(references)  # which compiles its own
        spent = time.perf_counter() - begin
    begin = time.perf_counter() - spent
    bounds: dict[Config, PreparedKernel] = {}
    for config in configs:
        # Checked before the next one is made ready: what candidates share holds no other's result yet.
        bound = trial.attempt(config, lambda config: prepare(problem, config))
        if bound is not None and trial.agrees(config, bound):
            bounds[config] = bound
    while bounds:
        times = _heats(bounds, device, rounds)
        for config in sorted(times, key=times.__getitem__):
            if trial.agrees(config, bounds[config]) and trial.is_exact(config, prepare):
                spent = (time.perf_counter() - begin) * 1e3
                return Winner(config, times[config], bounds[config], spent)
            del bounds[config]
    reasons = "; ".join(f"{knobs(config)}: {_reason(error)}" for config, error in trial.failed)
    refused = all(isinstance(error, ValueError) for _, error in trial.failed)
    raise (ValueError if refused else RuntimeError)(f"all {len(configs)} candidates failed: {reasons}")


@dataclass
class _Trial:
    problem: Problem
    device: object
    stream: object
    failed: list = field(default_factory=list)  #: (configuration, exception)
    right: object = None  #: the output of a reference
    magnitudes: object = None  #: and what its rounding errors grow with
    may: object = None  #: `outputs.Allowed`
    judge: str = ""  #: the reference's name
    reference: Callable[[Problem], PreparedKernel] = field(init=False)  #: from `expect` on

    def attempt(self, config, step: Callable):
        """step(config), or None where it fails, with a warning that names the candidate."""
        try:
            return step(config)
        except Exception as error:
            self.failed.append((config, error))
            warnings.warn(f"the tuner skips {knobs(config)}: {_reason(error)}", stacklevel=4)
            return None

    def expect(self, references) -> None:
        reasons = []
        unsigned = probe.magnitudes(self.problem)
        for reference in references:
            try:
                bound = reference(self.problem)
                self.right = self._output(bound)
                self.magnitudes = self._output(reference(unsigned))
                self.judge, self.reference = bound.name, reference
                break
            except Exception as error:
                reasons.append(_reason(error))
        else:
            raise RuntimeError(f"no candidate can be checked, since no reference runs: {'; '.join(reasons)}")
        p = self.problem
        dtype, longest = outputs.dtype_of(self.right), min(p.k, p.nnz)
        self.may = outputs.allowed(p.limit or dtype, dtype, longest, outputs=2)

    def agrees(self, config, bound) -> bool:
        return bool(self.attempt(config, lambda _: self.compare(bound, self.right, "", self.magnitudes, self.may)))

    def is_exact(self, config, prepare) -> bool:
        """Whether a candidate gives the reference's bits where no sum is rounded; True, too, where memory is short."""

        def check(_):
            try:
                exact, right = self.probed
                return self.compare(prepare(exact, config), right, " on whole numbers")
            except MemoryError as error:
                warnings.warn(f"the tuner tries no whole numbers: {_reason(error)}", stacklevel=5)
                return True

        return bool(self.attempt(config, check))

    def compare(self, bound, right, where: str, *limits) -> bool:
        """Return True; raise ArithmeticError, one sentence, where a candidate's output is wrong."""
        wrong = outputs.difference(outputs.run(bound, self.device, self.stream), right, *limits)
        if wrong:
            raise ArithmeticError(f"its output is not that of {self.judge}{where}: {wrong}")
        return True

    @cached_property
    def probed(self) -> tuple[Problem, object]:
        """The problem whose product is exact, and the reference's output on it."""
        exact = probe.exact(self.problem)
        return exact, self._output(self.reference(exact))

    def _output(self, bound):
        return outputs.copy(outputs.run(bound, self.device, self.stream))


def _reason(error: Exception) -> str:
    """Return the first line: a compiler's log has hundreds."""
    return (str(error).splitlines() or [type(error).__name__])[0]


def race(bounds: Mapping[Config, PreparedKernel], device, rounds: int, hot_s: float = 0.0) -> dict[Config, float]:
    """name -> median of `rounds` launches in microseconds, cold L2.

    Events around a launch, with an L2 that was overwritten before, all bounds in a new random order
    in every round. The first round is not counted, nor are further ones until `hot_s` seconds are over.
    device: a current `cuda.core.Device`.
    """
    names, order = list(bounds), np.random.default_rng(0)
    samples: dict[Config, list[float]] = {name: [] for name in names}
    stopwatch = Stopwatch(device, len(names))
    try:
        number, until = 0, time.perf_counter() + hot_s
        while number <= rounds:
            turn = [names[i] for i in order.permutation(len(names))]
            stopwatch.enqueue([bounds[name].launch for name in turn])
            for name, us in zip(turn, stopwatch.read(len(turn)), strict=True):
                samples[name] += [us] * bool(number)
            if number or time.perf_counter() >= until:
                number += 1
    finally:
        stopwatch.close()
    return {name: float(np.median(us)) for name, us in samples.items()}


def _heats(bounds: dict[Config, PreparedKernel], device, rounds: Rounds) -> dict[Config, float]:
    """config -> median microseconds of the best few, timed again after a heat of all."""
    times = race(bounds, device, rounds.first)
    short = min(times.values()) < rounds.short_us
    if short:
        times = race(bounds, device, rounds.factor * rounds.first)
    best = {c: bounds[c] for c in sorted(bounds, key=times.__getitem__)[: rounds.factor * rounds.finalists]}
    if short:
        return race(best, device, rounds.factor**2 * rounds.final)
    return race(best, device, rounds.final, rounds.hot_s)


@contextmanager
def _compiling(jobs: Iterable[tuple[Path, str]], arch: str) -> Iterator[None]:
    """All at once, beside what the block does: NVRTC works without the lock. Waits for their end.

    What does not compile is said when it is bound.
    """

    def compile_one(job: tuple[Path, str]) -> None:
        with suppress(jit.CompileError, FileNotFoundError):
            jit.compile_cubin(*job, arch)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        made = [pool.submit(compile_one, job) for job in jobs]
        yield
        for each in made:
            each.result()
