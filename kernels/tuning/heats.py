"""Launches timed as the harness times them: cold caches, contenders in turns."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ..contract import Bound
from ..timing import Stopwatch
from .choices import Config


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


def race(bounds: Mapping[Config, Bound], device, rounds: int, hot_s: float = 0.0) -> dict[Config, float]:
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
