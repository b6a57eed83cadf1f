"""From candidates to a choice.

Each is made ready, checked, and timed as the harness times, cold caches and in turns; what fails is skipped, and
named.
"""

import os
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Generic

import numpy as np

from .. import jit
from ..contract import Launch, PreparedKernel, Problem
from ..timing import Stopwatch
from . import probe
from .choices import Choice, Choices, Config, digest, knobs, look_up, own_file, write


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
        write(choices, file or own_file(choices, device), key, made)
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

    prepare: makes one ready on a problem, this one or one of the same sizes and pattern with other numbers; all write
    to the problem's own output. references: simple kernels; the first one that runs says what is right. jobs: (source,
    entry) to compile at once, on as many threads as there are processors.

    A candidate that cannot be made ready or launched, or whose output is wrong, is skipped with a warning that
    names it and the reason; the winner is checked once more after all its launches, and on operands whose product is
    exact (`probe`), where nothing but the reference's bits are right. Raises ValueError where
    no candidate takes the problem, RuntimeError where all fail or no reference runs. A launch that breaks the
    GPU's context (an address out of bounds) breaks it for all that come after it, too.
    """
    trial = _Trial(problem, device, device.create_stream())
    with _compiling([*jobs, *probe.jobs(problem)], jit.arch_of(device)):
        begin = time.perf_counter()
        trial.expect(references)  # which compiles its own
        spent = time.perf_counter() - begin
    begin = time.perf_counter() - spent
    bounds: dict[Config, PreparedKernel] = {}
    for config in configs:
        # Checked before the next one is made ready: what candidates share holds no other's result yet.
        bound = trial.attempt(config, partial(prepare, problem))
        if bound is not None and trial.attempt(config, lambda _, bound=bound: trial.compare(bound, *trial.drawn)):
            bounds[config] = bound
    while bounds:
        times = _heats(bounds, device, rounds)
        for config in sorted(times, key=times.__getitem__):
            bound = bounds.pop(config)
            if trial.attempt(
                config,
                lambda config, bound=bound: trial.compare(bound, *trial.drawn) and trial.is_exact(config, prepare),
            ):
                spent = (time.perf_counter() - begin) * 1e3
                return Winner(config, times[config], bound, spent)
    reasons = "; ".join(f"{knobs(config)}: {_reason(error)}" for config, error in trial.failed)
    refused = all(isinstance(error, ValueError) for _, error in trial.failed)
    raise (ValueError if refused else RuntimeError)(f"all {len(configs)} candidates failed: {reasons}")


@dataclass
class _Trial:
    problem: Problem
    device: object
    stream: object
    failed: list = field(default_factory=list)  #: (configuration, exception)

    def attempt(self, config, step: Callable):
        """step(config), or None where it fails, with a warning that names the candidate."""
        try:
            return step(config)
        except Exception as error:
            self.failed.append((config, error))
            warnings.warn(f"the tuner skips {knobs(config)}: {_reason(error)}", stacklevel=4)
            return None

    def expect(self, references) -> None:
        """Let the first reference that runs say what is right, and what its rounding errors grow with."""
        reasons, p, unsigned = [], self.problem, probe.magnitudes(self.problem)
        for reference in references:
            try:
                bound = reference(p)
                right, self.judge, self.reference = self._output(bound), bound.name, reference
                dtype = probe.dtype_of(right)
                may = probe.allowed(p.limit or dtype, dtype, min(p.k, p.nnz), outputs=2)
                self.drawn = right, "", self._output(reference(unsigned)), may
                return
            except Exception as error:
                reasons.append(_reason(error))
        raise RuntimeError(f"no candidate can be checked, since no reference runs: {'; '.join(reasons)}")

    def is_exact(self, config, prepare) -> bool:
        """Whether a candidate gives the reference's bits where no sum is rounded; True, too, where memory is short."""
        try:
            exact, right = self._probed
            return self.compare(prepare(exact, config), right, " on whole numbers")
        except MemoryError as error:
            warnings.warn(f"the tuner tries no whole numbers: {_reason(error)}", stacklevel=5)
            return True

    def compare(self, bound, right, where: str, *limits) -> bool:
        """Return True; raise ArithmeticError, one sentence, where a candidate's output is wrong."""
        wrong = probe.difference(probe.run(bound, self.device, self.stream), right, *limits)
        if wrong:
            raise ArithmeticError(f"its output is not that of {self.judge}{where}: {wrong}")
        return True

    @cached_property
    def _probed(self) -> tuple[Problem, object]:
        """The problem whose product is exact, and the reference's output on it."""
        exact = probe.exact(self.problem)
        return exact, self._output(self.reference(exact))

    def _output(self, bound):
        return probe.copy(probe.run(bound, self.device, self.stream))


def _reason(error: Exception) -> str:
    """Return the first line: a compiler's log has hundreds."""
    return (str(error).splitlines() or [type(error).__name__])[0]


def race(bounds: Mapping[Config, PreparedKernel], device, rounds: int, hot_s: float = 0.0) -> dict[Config, float]:
    """name -> median of `rounds` launches in microseconds, cold L2.

    Events around a launch, with an L2 that was overwritten before, all bounds in a new random order
    in every round. The first round is not counted, nor are further ones until `hot_s` seconds are over.
    device: a current `cuda.core.Device`.
    """
    names, order, samples = list(bounds), np.random.default_rng(0), list[dict[Config, float]]()
    with closing(Stopwatch(device, len(names))) as stopwatch:
        counts, until = False, time.perf_counter() + hot_s
        while len(samples) < rounds:
            turn = [names[i] for i in order.permutation(len(names))]
            stopwatch.enqueue([bounds[name].launch for name in turn])
            samples += [dict(zip(turn, stopwatch.read(len(turn)), strict=True))] * counts
            counts = counts or time.perf_counter() >= until
    return {name: float(np.median([us[name] for us in samples])) for name in names}


def _heats(bounds: dict[Config, PreparedKernel], device, rounds: Rounds) -> dict[Config, float]:
    """config -> median microseconds of the best few, timed again after a heat of all."""
    times = race(bounds, device, rounds.first)
    short = min(times.values()) < rounds.short_us
    if short:
        times = race(bounds, device, rounds.factor * rounds.first)
    best = {c: bounds[c] for c in sorted(bounds, key=times.__getitem__)[: rounds.factor * rounds.finalists]}
    again, hot_s = (rounds.factor**2, 0.0) if short else (1, rounds.hot_s)
    return race(best, device, again * rounds.final, hot_s)


@contextmanager
def _compiling(jobs: Iterable[tuple[Path, str]], arch: str) -> Iterator[None]:
    """All at once, beside what the block does: NVRTC works without the lock. Waits for their end.

    What does not compile is said when it is bound.
    """
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for job in jobs:
            pool.submit(jit.compile_cubin, *job, arch)
        yield
