"""Launches timed as the harness times them: cold caches, contenders in turns."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ..contract import Bound
from . import outputs
from .choices import Config

#: Bytes that are overwritten before each launch, and how many times the L2 at least.
FLUSH_BYTES, FLUSH_FACTOR = 2**28, 4


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
    import cupy

    names = list(bounds)
    stream = device.create_stream()
    flush = cupy.empty(max(FLUSH_FACTOR * device.properties.l2_cache_size, FLUSH_BYTES), cupy.uint8)
    device.sync()
    samples: dict[Config, list[float]] = {name: [] for name in names}
    order = np.random.default_rng(0)
    with cupy.cuda.Stream.from_external(stream) as on:
        number, until = 0, time.perf_counter() + hot_s
        while number <= rounds:
            events = {}
            for i in order.permutation(len(names)):
                outputs.set_bytes(flush, number % 2, stream)
                begin, end = cupy.cuda.Event(), cupy.cuda.Event()
                begin.record(on)
                bounds[names[i]].launch(stream)
                end.record(on)
                events[names[i]] = begin, end
            stream.sync()
            for name, pair in events.items() if number else ():
                samples[name].append(cupy.cuda.get_elapsed_time(*pair) * 1e3)
            if number or time.perf_counter() >= until:
                number += 1
    return {name: float(np.median(us)) for name, us in samples.items()}
