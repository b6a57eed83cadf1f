"""The only timer.

    flush L2  event  launch A  event  flush L2  event  launch B  event  flush L2  event ...
              └─── a sample of A ──┘            └─── a sample of B ──┘

- CUDA events around each launch, on one stream. Everything is enqueued ahead of the GPU, so the
  host's own time is hidden behind the flush; a contender whose launch costs the host too much runs
  from a captured CUDA graph.
- The flush overwrites more than the L2 holds, so every sample starts from the same cold cache.
- Contenders are interleaved, so that drifting clocks meet all of them alike.
- Each contender is warmed up until two successive medians agree, then gets as many samples as its
  share of the time budget pays for. Median and quartiles are kept.

The method page of the book quotes the constants below from here.
"""

from __future__ import annotations

import gc
import math
import statistics
import time as host_clock
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from artifact.device import NOT_THROTTLED, Sample, first_line, sample

#: The flush writes this many times the L2's size before every launch. The lines that it leaves
#: there are dirty, so the launch also waits for write-backs: alike for all, at most one L2 full ...
FLUSH_FACTOR = 4
#: ... and at least this many bytes: the flush also is the time in which the host runs ahead.
FLUSH_BYTES_MIN = 256 * 2**20
#: Launches of a contender whose median makes one step of the warm-up.
WARMUP_BATCH = 3
#: The warm-up of a contender ends when two successive medians differ by at most this fraction,
WARMUP_TOLERANCE = 0.03
#: or after this many medians, or when the contender has used up its time budget.
WARMUP_STEPS = 8
#: Fewest and most samples behind a median. Seven still have quartiles that are not the extremes.
MIN_SAMPLES = 7
MAX_SAMPLES = 25
#: Device time that one contender may take at one point, in seconds; `MIN_SAMPLES` overrules it.
BUDGET_S = 0.15
#: A launch that costs the host more than this share of a flush is replayed from a CUDA graph.
HOST_SHARE = 0.5
#: Launches whose host time is measured for that decision; one of a launch over 10 ms, to save time.
HOST_PROBES = 5
HOST_PROBE_MAX_S = 0.01
#: Launches that are enqueued before the host waits for the GPU; the driver's queue holds about a
#: thousand commands.
BATCH = 64
#: While the GPU works through a batch, NVML is asked for clock, power and throttling this often, in
#: seconds.
SAMPLE_EVERY_S = 0.05


@dataclass(frozen=True)
class Timing:
    """One contender at one point. Times in microseconds, over `samples` launches."""

    median_us: float
    q25_us: float
    q75_us: float
    samples: int
    sm_mhz: float  #: median SM clock of the point, all contenders; NaN where NVML is silent
    power_w: float  #: median board power, likewise
    throttle: str  #: every throttle reason that was seen, likewise; `NOT_THROTTLED` if none was
    graph: bool  #: whether the launches were replayed from a CUDA graph


@dataclass(frozen=True)
class Engine:
    """What measuring needs from the machine, so that the plan can be tested without one.

    run(names) launches the contenders in that order and returns each launch's time in microseconds
    and what was sampled meanwhile; flush_us and host_us[name] are costs in microseconds;
    replay(name) switches to a CUDA graph.
    """

    run: Callable[[Sequence[str]], tuple[list[float], list[Sample]]]
    flush_us: float
    host_us: Mapping[str, float]
    replay: Callable[[str], None]


def time(
    contenders: Mapping[str, Any],
    device,
    *,
    budget_s: float = BUDGET_S,
    min_samples: int = MIN_SAMPLES,
    max_samples: int = MAX_SAMPLES,
) -> dict[str, Timing]:
    """Time every contender, interleaved, and return name -> Timing in the same order.

    contenders: name -> Bound (`kernels.contract`), checked before. device: `cuda.core.Device`,
    current. budget_s: device time per contender, in seconds. Raises ValueError for an empty or
    impossible plan, and RuntimeError, one sentence, where a launch that needs a CUDA graph cannot
    be captured.
    """
    if not contenders:
        raise ValueError("there is nothing to time: name at least one contender")
    stream = device.create_stream()
    flush = device.allocate(flush_bytes(device.properties.l2_cache_size), stream=stream)
    graphs: list[Graph] = []
    try:
        engine = _engine(contenders, device, stream, flush, graphs)
        return measure(list(contenders), engine, budget_s, min_samples, max_samples)
    finally:
        # Sync before closing: a failed launch must surface as itself, and nothing may be freed
        # while it runs.
        stream.sync()
        for graph in graphs:
            graph.close()
        flush.close(stream)
        stream.close()


def flush_bytes(l2_bytes: int) -> int:
    """Bytes that the flush overwrites on a GPU with this much L2."""
    return max(FLUSH_FACTOR * l2_bytes, FLUSH_BYTES_MIN)


def measure(
    names: Sequence[str],
    engine: Engine,
    budget_s: float = BUDGET_S,
    min_samples: int = MIN_SAMPLES,
    max_samples: int = MAX_SAMPLES,
) -> dict[str, Timing]:
    """The whole protocol on an engine: choose graphs, warm up, plan, sample, summarise."""
    if not 0 < min_samples <= max_samples:
        raise ValueError(
            f"{min_samples} to {max_samples} samples are no range: min_samples must be 1 or more"
        )
    if not budget_s > 0:
        raise ValueError(f"budget_s is {budget_s}, but a time budget in seconds must be positive")
    graph = {name: engine.host_us[name] > HOST_SHARE * engine.flush_us for name in names}
    for name in names:
        if graph[name]:
            engine.replay(name)

    estimate_us = warm_up(names, engine, budget_s)
    counts = {
        name: sample_count(us, engine.flush_us, budget_s, min_samples, max_samples)
        for name, us in estimate_us.items()
    }
    taken: dict[str, list[float]] = {name: [] for name in names}
    seen: list[Sample] = []
    for batch in batches(schedule(counts)):
        times, samples = engine.run(batch)
        seen += samples
        for name, us in zip(batch, times, strict=True):
            taken[name].append(us)

    machine = summarise_samples(seen)
    result = {}
    for name in names:
        q25, median, q75 = quartiles(taken[name])
        result[name] = Timing(
            median_us=median,
            q25_us=q25,
            q75_us=q75,
            samples=len(taken[name]),
            sm_mhz=machine.sm_mhz,
            power_w=machine.power_w,
            throttle=machine.throttle,
            graph=graph[name],
        )
    return result


def warm_up(names: Sequence[str], engine: Engine, budget_s: float) -> dict[str, float]:
    """Launch the contenders, interleaved, until each one's median (µs, returned) stands still."""
    times, _ = engine.run(list(names))
    median = dict(zip(names, times, strict=True))
    spent_us = dict(median)
    # One launch says nothing about stability, unless it already took all the time there is.
    unsettled = [name for name in names if spent_us[name] < budget_s * 1e6]
    for _ in range(WARMUP_STEPS):
        if not unsettled:
            break
        order = unsettled * WARMUP_BATCH
        times, _ = engine.run(order)
        still = []
        for name in unsettled:
            own = [us for n, us in zip(order, times, strict=True) if n == name]
            before, median[name] = median[name], statistics.median(own)
            spent_us[name] += sum(own)
            if not stable(before, median[name]) and spent_us[name] < budget_s * 1e6:
                still.append(name)
        unsettled = still
    return median


def stable(before_us: float, after_us: float) -> bool:
    """Whether two successive medians of a warm-up agree."""
    return abs(after_us - before_us) <= WARMUP_TOLERANCE * before_us


def sample_count(
    launch_us: float, flush_us: float, budget_s: float, min_samples: int, max_samples: int
) -> int:
    """Samples that a budget (s) pays for, when each costs a flush and a launch (µs)."""
    affordable = budget_s * 1e6 / max(launch_us + flush_us, 1e-3)
    return int(min(max(affordable, min_samples), max_samples))


def schedule(counts: Mapping[str, int]) -> list[str]:
    """The order of all launches: rounds of A B C; fewer samples are spread over all rounds."""
    rounds = max(counts.values(), default=0)
    return [
        name
        for r in range(rounds)
        for name, count in counts.items()
        # A step of the rounded line r -> r * count / rounds; rounded, so that one launch is central.
        if (2 * (r + 1) * count + rounds) // (2 * rounds) > (2 * r * count + rounds) // (2 * rounds)
    ]


def batches(order: Sequence[str], size: int = BATCH) -> list[list[str]]:
    """The order cut into pieces, each enqueued at once."""
    return [list(order[i : i + size]) for i in range(0, len(order), size)]


def quartiles(values: Sequence[float]) -> tuple[float, float, float]:
    """First quartile, median and third quartile, interpolated between the samples as NumPy does."""
    ordered = sorted(values)
    if not ordered:
        raise ValueError("there are no samples to take quartiles of")

    def at(fraction: float) -> float:
        position = fraction * (len(ordered) - 1)
        low = math.floor(position)
        high = min(low + 1, len(ordered) - 1)
        return ordered[low] + (position - low) * (ordered[high] - ordered[low])

    return at(0.25), at(0.5), at(0.75)


def summarise_samples(samples: Sequence[Sample]) -> Sample:
    """Median clock and power, and every throttle reason that any of the samples saw."""

    def median(values: list[float]) -> float:
        known = [v for v in values if not math.isnan(v)]
        return statistics.median(known) if known else math.nan

    reasons = [reason for s in samples for reason in s.throttle.split(" + ") if reason]
    # Between two batches the GPU may report "idle", which is no throttling.
    words = sorted(set(reasons) - {NOT_THROTTLED, "idle"})
    return Sample(
        sm_mhz=median([s.sm_mhz for s in samples]),
        power_w=median([s.power_w for s in samples]),
        throttle=" + ".join(words) if words else (NOT_THROTTLED if reasons else ""),
    )


def watch(look: Callable[[], Sample], done: Callable[[], bool]) -> list[Sample]:
    """What `look` sees at once, and then every `SAMPLE_EVERY_S` until `done`."""
    seen = [look()]
    next_look = host_clock.perf_counter() + SAMPLE_EVERY_S
    while not done():
        host_clock.sleep(2e-4)  # short, so that the GPU hardly ever waits for the next batch
        if host_clock.perf_counter() >= next_look:
            seen.append(look())
            next_look = host_clock.perf_counter() + SAMPLE_EVERY_S
    return seen


# ---------------------------------------------------------------- the machine


@dataclass
class _Events:
    """Pairs of timing events, created once and used by every batch."""

    device: Any
    pairs: list[tuple[Any, Any]] = field(default_factory=list)

    def take(self, count: int) -> list[tuple[Any, Any]]:
        from cuda.core import EventOptions

        options = EventOptions(timing_enabled=True)
        while len(self.pairs) < count:
            self.pairs.append(
                (self.device.create_event(options), self.device.create_event(options))
            )
        return self.pairs[:count]


def _engine(contenders: Mapping[str, Any], device, stream, flush, graphs: list[Graph]) -> Engine:
    """The engine on a GPU; `graphs` receives what has to be closed afterwards."""
    events = _Events(device)
    launch: dict[str, Callable[[Any], None]] = {
        name: bound.launch for name, bound in contenders.items()
    }
    device.sync()  # operands were made on other streams

    def run(names: Sequence[str]) -> tuple[list[float], list[Sample]]:
        pairs = events.take(len(names))
        collecting = gc.isenabled()
        gc.disable()  # a collection in the middle would let the GPU catch up with the host
        try:
            flush.fill(0, stream=stream)  # a head start for the host
            for name, (begin, end) in zip(names, pairs, strict=True):
                flush.fill(0, stream=stream)
                stream.record(begin)
                launch[name](stream)
                stream.record(end)
        finally:
            if collecting:
                gc.enable()
        seen = watch(lambda: sample(device), lambda: pairs[-1][1].is_done)
        stream.sync()
        return [(end - begin) * 1e3 for begin, end in pairs], seen

    def flush_us() -> float:
        # Back to back between two events, so that no gap between flushes counts as flushing.
        ((begin, end),) = events.take(1)
        flush.fill(0, stream=stream)
        stream.record(begin)
        for _ in range(HOST_PROBES):
            flush.fill(0, stream=stream)
        stream.record(end)
        stream.sync()
        return (end - begin) * 1e3 / HOST_PROBES

    def host_us(name: str) -> float:
        bound = contenders[name]
        began = host_clock.perf_counter()
        bound.launch(stream)  # loads the code, sets the stream of a library's handle
        stream.sync()
        quick = host_clock.perf_counter() - began < HOST_PROBE_MAX_S
        costs = []
        for _ in range(HOST_PROBES if quick else 1):
            # Behind a flush, so that a launch which waits for the GPU shows it.
            flush.fill(0, stream=stream)
            before = host_clock.perf_counter()
            bound.launch(stream)
            costs.append((host_clock.perf_counter() - before) * 1e6)
            stream.sync()
        return statistics.median(costs)

    def replay(name: str) -> None:
        graph = capture(name, contenders[name], stream)
        graphs.append(graph)
        launch[name] = graph.launch

    return Engine(run, flush_us(), {name: host_us(name) for name in contenders}, replay)


@dataclass(frozen=True)
class Graph:
    """An executable CUDA graph."""

    executable: Any  #: `cuda.bindings.driver.CUgraphExec`

    def launch(self, stream) -> None:
        from cuda.bindings import driver

        _succeed("cuGraphLaunch", *driver.cuGraphLaunch(self.executable, stream.handle))

    def close(self) -> None:
        from cuda.bindings import driver

        _succeed("cuGraphExecDestroy", *driver.cuGraphExecDestroy(self.executable))


def capture(name: str, bound, stream) -> Graph:
    """What `bound` launches, as a graph; RuntimeError, one sentence, where CUDA refuses that.

    With the driver's own calls, because after a refusal the stream must be usable again.
    """
    from cuda.bindings import driver

    # Relaxed, because a library may ask the runtime something on the side.
    relaxed = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
    _succeed("cuStreamBeginCapture", *driver.cuStreamBeginCapture(stream.handle, relaxed))
    reason = None
    try:
        bound.launch(stream)
    except Exception as error:
        reason = error
    ended, graph = driver.cuStreamEndCapture(stream.handle)
    if ended == driver.CUresult.CUDA_SUCCESS:
        executable = None
        if reason is None:
            ended, executable = driver.cuGraphInstantiate(graph, 0)
        driver.cuGraphDestroy(graph)
        if executable is not None and ended == driver.CUresult.CUDA_SUCCESS:
            _succeed("cuGraphUpload", *driver.cuGraphUpload(executable, stream.handle))
            return Graph(executable)
    why = first_line(reason) if reason else ended.name
    raise RuntimeError(
        f"{name} costs the host more than the flush hides, and its launch cannot be captured as a "
        f"CUDA graph ({why}): make launch() only enqueue work"
    ) from reason


def _succeed(call: str, error, *_) -> None:
    from cuda.bindings import driver

    if error != driver.CUresult.CUDA_SUCCESS:
        raise RuntimeError(f"{call} failed with {error.name}")
