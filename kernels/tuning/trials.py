"""From candidates to a choice: each is made ready, checked and timed; what fails is skipped, and named."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable, Hashable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from .. import jit
from ..contract import Bound, Launch
from . import heats, outputs
from .choices import Choice, Choices, digest, knobs, look_up, own_folder, slug, write
from .heats import Rounds


@dataclass(frozen=True)
class Winner:
    """The fastest right candidate."""

    config: Hashable
    median_us: float
    bound: Bound  #: ready to run
    spent_ms: float  #: preparation of all candidates, checks and heats; not what `jobs` compile


def choose(
    choices: Choices,
    key: tuple,
    device,
    *,
    fits: Callable[[Hashable], bool],
    make: Callable[[], Winner],
    file: Path | None = None,
) -> tuple[Hashable, float]:
    """(configuration, milliseconds that trials took): the choice that is kept for a problem's key.

    Where there is none that holds (see `look_up`), `make`, a call of `tune`, makes one, which is added to the
    user's own file. file: where to look and to write, instead of the usual places.
    """
    found = look_up(choices, key, device, fits, file)
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


def bind_choice(
    choices: Choices,
    key: tuple,
    device,
    *,
    fits: Callable[[Hashable], bool],
    make: Callable[[], Winner],
    bind: Callable[[Hashable], Launch],
    file: Path | None = None,
) -> Launch:
    """What a room's "auto" is: the choice for a problem's key (`choose`), made ready by `bind`.

    Its `prepare_ms` holds the trials, too, where there were any.
    """
    config, spent_ms = choose(choices, key, device, fits=fits, make=make, file=file)
    bound = bind(config)
    bound.prepare_ms += spent_ms
    return bound


def tune(
    configs: Sequence[Hashable],
    bind: Callable[[Hashable], Bound],
    references: Iterable[Callable[[], Bound]],
    device,
    rounds: Rounds,
    jobs: Iterable[tuple[Path, str]] = (),
) -> Winner:
    """The fastest of `configs` whose output is right, on a current `cuda.core.Device`.

    bind: makes one ready; all write to the problem's own output. references: simple kernels on the same
    problem; the first one that runs says what is right. jobs: (source, entry) to compile at once, on as many
    threads as there are processors.

    A candidate that cannot be made ready or launched, or whose output is wrong, is skipped with a warning that
    names it and the reason; the winner is checked once more after all its launches. Raises ValueError where
    no candidate takes the problem, RuntimeError where all fail or no reference runs. A launch that breaks the
    GPU's context (an address out of bounds) breaks it for all that come after it, too.
    """
    _compile(jobs, jit.arch_of(device))
    begin = time.perf_counter()
    trial = _Trial(device, device.create_stream())
    trial.expect(references)
    bounds = {}
    for config in configs:
        # Checked before the next one is made ready: what candidates share holds no other's result yet.
        bound = trial.attempt(config, bind)
        if bound is not None and trial.agrees(config, bound):
            bounds[config] = bound
    while bounds:
        times = _heats(bounds, device, rounds)
        for config in sorted(times, key=times.get):
            if trial.agrees(config, bounds[config]):
                spent = (time.perf_counter() - begin) * 1e3
                return Winner(config, times[config], bounds[config], spent)
            del bounds[config]
    reasons = "; ".join(f"{knobs(config)}: {_reason(error)}" for config, error in trial.failed)
    refused = all(isinstance(error, ValueError) for _, error in trial.failed)
    raise (ValueError if refused else RuntimeError)(
        f"all {len(configs)} candidates failed: {reasons}"
    )


@dataclass
class _Trial:
    device: object
    stream: object
    failed: list = field(default_factory=list)  #: (configuration, exception)
    right: object = None  #: the output of a reference
    judge: str = ""  #: its name

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
        for reference in references:
            try:
                bound = reference()
                self.right = outputs.copy(outputs.run(bound, self.device, self.stream))
                self.judge = bound.name
                return
            except Exception as error:
                reasons.append(_reason(error))
        raise RuntimeError(
            f"no candidate can be checked, since no reference runs: {'; '.join(reasons)}"
        )

    def agrees(self, config, bound) -> bool:
        def check(_):
            found = outputs.run(bound, self.device, self.stream)
            wrong = outputs.difference(found, self.right)
            if wrong:
                raise ArithmeticError(f"its output is not that of {self.judge}: {wrong}")
            return True

        return bool(self.attempt(config, check))


def _reason(error: Exception) -> str:
    """The first line: a compiler's log has hundreds."""
    return (str(error).splitlines() or [type(error).__name__])[0]


def _heats(bounds: dict, device, rounds: Rounds) -> dict:
    """config -> median microseconds of the best few, timed again after a heat of all."""
    times = heats.race(bounds, device, rounds.first)
    factor = rounds.factor if min(times.values()) < rounds.short_us else 1
    if factor > 1:
        times = heats.race(bounds, device, factor * rounds.first)
    best = sorted(bounds, key=times.get)[: factor * rounds.finalists]
    return heats.race({c: bounds[c] for c in best}, device, factor**2 * rounds.final)


def _compile(jobs: Iterable[tuple[Path, str]], arch: str) -> None:
    """All at once: NVRTC works without the lock. What does not compile is said when it is bound."""

    def compile_one(job) -> None:
        try:
            jit.compile_cubin(*job, arch)
        except (jit.CompileError, FileNotFoundError):
            pass

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(compile_one, jobs))
