"""Two protocols of timing: `time`, ours, on `kernels.timing`, and `time_calls`, which others publish with.

    flush L2  event  launch A  event  flush L2  event  launch B  event  flush L2  event ...
              └─── a sample of A ──┘            └─── a sample of B ──┘

- CUDA events around each launch, on one stream. Everything is enqueued ahead of the GPU, so the
  host's own time is hidden behind the flush; a contender whose launch costs the host too much runs
  from a captured CUDA graph.
- The flush overwrites more than the L2 holds, so every sample starts from the same cold cache.
- Contenders are interleaved, so that drifting clocks meet all of them alike.
- Each contender is warmed up until two successive medians agree, then gets as many samples as its
  share of the time budget pays for. Median and quartiles are kept.
- When all samples are there, each contender can be checked once more, launched as it was timed.

`time_calls` times loops of calls instead: caches stay warm, and the host's time counts.

The method page of the book quotes the constants below, and those of `kernels.timing`.
"""

import math
import statistics
import time as host_clock
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from artifact.measure.device import NOT_THROTTLED, Sample, first_line, sample
from artifact.measure.lazy import driver
from kernels.contract import require
from kernels.timing import FLUSH_BYTES_MIN, FLUSH_FACTOR, Stopwatch, flush_bytes, uncollected

__all__ = ["FLUSH_BYTES_MIN", "FLUSH_FACTOR", "flush_bytes"]

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
#: A sample of `time_calls` is a loop of this many calls, after so many that only warm up ...
CALLS = 20
WARMUP_CALLS = 5
#: ... and there are this many of them. A call too long for that within its budget gets fewer.
CALL_SAMPLES = 7
#: A first call over this many seconds is not repeated to find out how long a call takes: what only
#: a first call does, such as loading code, is little beside it.
LONG_CALL_S = 1.0

#: What a timer does with each contender after the samples: its name, and a function that launches it
#: once more just as it was timed, from its graph say, and waits for the end.
Verify = Callable[[str, Callable[[], Any]], Any]


@dataclass(frozen=True)
class Timing:
    """One contender at one point. Times in microseconds, over `samples` launches or calls."""

    median_us: float
    q25_us: float
    q75_us: float
    samples: int
    sm_mhz: float  #: median SM clock of the point, all contenders; NaN where NVML is silent
    power_w: float  #: median board power, likewise; NaN from `time_calls`
    throttle: str  #: every throttle reason that was seen, likewise; `NOT_THROTTLED` if none was
    graph: bool  #: whether the launches were replayed from a CUDA graph


class Engine(NamedTuple):
    """What measuring needs from the machine, so that the plan can be tested without one."""

    #: Launches the contenders in that order; each launch's time in microseconds, and what was sampled meanwhile.
    run: Callable[[Sequence[str]], tuple[list[float], list[Sample]]]
    flush_us: float  #: cost of a flush of L2
    host_us: Mapping[str, float]  #: cost of enqueuing each contender
    replay: Callable[[str], None]  #: switches one to a CUDA graph


def time(
    contenders: Mapping[str, Any],
    device,
    *,
    budget_s: float = BUDGET_S,
    min_samples: int = MIN_SAMPLES,
    max_samples: int = MAX_SAMPLES,
    verify: Verify | None = None,
) -> dict[str, Timing]:
    """Time every contender, interleaved, and return name -> Timing in the same order.

    contenders: name -> Bound (`kernels.contract`), checked before. device: `cuda.core.Device`,
    current. budget_s: device time per contender, in seconds. verify: called for each after the last
    sample; what it raises ends the measurement. Raises ValueError for a contender that
    `needs_host_clock`, and RuntimeError, one sentence, where a launch that needs a CUDA graph cannot
    be captured.
    """
    for name, bound in contenders.items():
        # Its launch would be captured as a graph of what little of it the GPU does.
        require(
            not getattr(bound, "needs_host_clock", False),
            f"{name} works on the host as well, which this timer hides: use time_calls",
        )
    stopwatch = Stopwatch(device, max(BATCH, WARMUP_BATCH * len(contenders)))
    graphs: list[Graph] = []
    try:
        engine = _engine(contenders, device, stopwatch, graphs)
        timed = measure(list(contenders), engine, budget_s, min_samples, max_samples)
        if verify is not None:
            for name in contenders:
                verify(name, partial(engine.run, [name]))
        return timed
    finally:
        stopwatch.stream.sync()
        for graph in graphs:
            graph.close()
        stopwatch.close()


def measure(
    names: Sequence[str],
    engine: Engine,
    budget_s: float = BUDGET_S,
    min_samples: int = MIN_SAMPLES,
    max_samples: int = MAX_SAMPLES,
) -> dict[str, Timing]:
    """The whole protocol on an engine: choose graphs, warm up, plan, sample, summarise."""
    graph = {name: engine.host_us[name] > HOST_SHARE * engine.flush_us for name in names}
    for name in (name for name in names if graph[name]):
        engine.replay(name)

    estimate_us = warm_up(names, engine, budget_s)
    counts = {
        name: sample_count(us, engine.flush_us, budget_s, min_samples, max_samples) for name, us in estimate_us.items()
    }
    taken: dict[str, list[float]] = {name: [] for name in names}
    seen: list[Sample] = []
    order = schedule(counts)
    for batch in (order[i : i + BATCH] for i in range(0, len(order), BATCH)):
        times, samples = engine.run(batch)
        seen += samples
        for name, us in zip(batch, times, strict=True):
            taken[name].append(us)

    return timings(taken, seen, {name: len(times) for name, times in taken.items()}, graph)


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
        times, _ = engine.run(unsettled * WARMUP_BATCH)
        own = {name: times[i :: len(unsettled)] for i, name in enumerate(unsettled)}
        before, median = median, median | {name: statistics.median(own[name]) for name in unsettled}
        spent_us |= {name: spent_us[name] + sum(own[name]) for name in unsettled}
        moved = [name for name in unsettled if not stable(before[name], median[name])]
        unsettled = [name for name in moved if spent_us[name] < budget_s * 1e6]
    return median


def stable(before_us: float, after_us: float) -> bool:
    """Whether two successive medians of a warm-up agree."""
    return abs(after_us - before_us) <= WARMUP_TOLERANCE * before_us


def sample_count(launch_us: float, flush_us: float, budget_s: float, min_samples: int, max_samples: int) -> int:
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


def timings(
    taken: Mapping[str, Sequence[float]],
    seen: Sequence[Sample],
    samples: Mapping[str, int],
    graph: Mapping[str, bool],
) -> dict[str, Timing]:
    """The times of every contender (µs) and what was seen of the machine, summed up per contender."""
    machine = summarise_samples(seen)._asdict()
    found = {name: [float(x) for x in np.quantile(times, (0.5, 0.25, 0.75))] for name, times in taken.items()}
    return {
        name: Timing(median, q25, q75, samples[name], graph=graph[name], **machine)
        for name, (median, q25, q75) in found.items()
    }


def summarise_samples(samples: Sequence[Sample]) -> Sample:
    """Median clock and power, and every throttle reason that any of the samples saw."""

    def median(values: list[float]) -> float:
        return statistics.median([v for v in values if not math.isnan(v)] or [math.nan])

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
    seen, next_look = [look()], host_clock.perf_counter() + SAMPLE_EVERY_S
    while not done():
        host_clock.sleep(2e-4)  # short, so that the GPU hardly ever waits for the next batch
        if host_clock.perf_counter() >= next_look:
            seen.append(look())
            next_look = host_clock.perf_counter() + SAMPLE_EVERY_S
    return seen


# ---------------------------------------------------------------- loops of calls


class Plan(NamedTuple):
    """How `time_calls` times one contender."""

    warmup: int  #: calls before each sample
    calls: int  #: in a sample
    samples: int


def time_calls(
    contenders: Mapping[str, Any],
    device,
    *,
    warmup: int = WARMUP_CALLS,
    calls: int = CALLS,
    samples: int = CALL_SAMPLES,
    budget_s: float = BUDGET_S,
    verify: Verify | None = None,
) -> dict[str, Timing]:
    """Time loops of calls, as papers often do, and return name -> Timing in the same order.

    A sample is the time of `calls` calls in a row, after `warmup` that are not timed, over `calls`.
    Nothing is flushed, so a call finds what the one before left in the caches, and whatever `launch`
    does on the host counts where the GPU waits for it. Contenders are interleaved by sample.

    contenders: name -> Bound (`kernels.contract`), checked before, on the GPU or the CPU. device:
    `cuda.core.Device`, current. budget_s: time per contender, in seconds; a call that is too long
    for all of that gets a smaller `plan_calls`, and one call at least. Timing.samples counts the
    timed calls. verify: as in `time`, but not for calls over `LONG_CALL_S`: one more would cost as
    much as the measurement.

    The clock is the host's, from before the first call until the stream is done after the last. Two
    events around the loop, as in Zeng's "GPU Accelerated Structured Sparsity Matrix Multiplication",
    hold the same: the host's time counts there too, as soon as the GPU waits for the next call. But
    events do not see a call that runs on the CPU, and the host's clock compares both alike. It adds
    the way to the GPU and back once in a loop: some microseconds over `calls`.
    """
    stream = device.create_stream()

    def run(name: str, warmup: int, calls: int) -> float:
        launch = contenders[name].launch
        for _ in range(warmup):
            launch(stream)
        stream.sync()
        with uncollected():
            began = host_clock.perf_counter()
            for _ in range(calls):
                launch(stream)
            stream.sync()
            return (host_clock.perf_counter() - began) * 1e6

    def look(name: str) -> list[Sample]:
        # Asking during a loop would count as host time. Right after it the clock is still the
        # loop's; the power is not, which NVML averages over more time than most loops take. After
        # work on the CPU the GPU has idled.
        on_cpu = getattr(contenders[name], "on_cpu", False)
        return [] if on_cpu else [sample(device)._replace(power_w=math.nan)]

    try:
        device.sync()  # operands were made on other streams
        timed = measure_calls(list(contenders), run, look, warmup, calls, samples, budget_s)
        if verify is not None:
            for name in (x for x in contenders if timed[x].median_us < LONG_CALL_S * 1e6):
                verify(name, partial(run, name, 0, 1))
        return timed
    finally:
        stream.sync()
        stream.close()


def measure_calls(
    names: Sequence[str],
    run: Callable[[str, int, int], float],
    look: Callable[[str], list[Sample]],
    warmup: int = WARMUP_CALLS,
    calls: int = CALLS,
    samples: int = CALL_SAMPLES,
    budget_s: float = BUDGET_S,
) -> dict[str, Timing]:
    """The whole protocol of `time_calls`: estimate, plan, sample, summarise.

    run(name, warmup, calls) gives the time of the loop of `calls` calls in microseconds; look(name)
    gives what can be sampled right after it.
    """
    taken: dict[str, list[float]] = {}
    plans: dict[str, Plan] = {}
    seen: list[Sample] = []
    for name in names:
        us = run(name, 0, 1)
        if us < LONG_CALL_S * 1e6:
            us = run(name, 0, 1)
        plans[name] = plan_calls(us, warmup, calls, samples, budget_s)
        # Where a plan has a single call, that was it.
        taken[name] = [us] if plans[name] == Plan(0, 1, 1) else []
        seen += look(name) if taken[name] else []
    for name in schedule({n: plan.samples for n, plan in plans.items() if not taken[n]}):
        plan = plans[name]
        taken[name].append(run(name, plan.warmup, plan.calls) / plan.calls)
        seen += look(name)

    calls_of = {name: plan.calls * plan.samples for name, plan in plans.items()}
    return timings(taken, seen, calls_of, dict.fromkeys(names, False))


def plan_calls(call_us: float, warmup: int, calls: int, samples: int, budget_s: float) -> Plan:
    """What of a plan a budget (s) pays for, when a call takes `call_us` (µs); one call at least.

    First the loops and their warm-up get shorter, then there are fewer of them.
    """
    affordable = budget_s * 1e6 / max(call_us, 1e-3)
    if affordable >= samples * (warmup + calls):
        return Plan(warmup, calls, samples)
    each = int(affordable / samples)  # calls for a sample and its warm-up
    if each == 0:
        return Plan(0, 1, max(1, int(affordable)))
    timed = max(1, each * calls // (warmup + calls))
    return Plan(min(warmup, each - timed), timed, samples)


# ---------------------------------------------------------------- the machine


@dataclass(frozen=True)
class Graph:
    """An executable CUDA graph."""

    executable: Any  #: `cuda.bindings.driver.CUgraphExec`

    def launch(self, stream) -> None:
        _succeed("cuGraphLaunch", *driver.cuGraphLaunch(self.executable, stream.handle))

    def close(self) -> None:
        _succeed("cuGraphExecDestroy", *driver.cuGraphExecDestroy(self.executable))


def _engine(contenders: Mapping[str, Any], device, stopwatch: Stopwatch, graphs: list[Graph]) -> Engine:
    """The engine on a GPU; `graphs` receives what has to be closed afterwards."""
    launch: dict[str, Callable[[Any], None]] = {name: bound.launch for name, bound in contenders.items()}
    stream = stopwatch.stream

    def run(names: Sequence[str]) -> tuple[list[float], list[Sample]]:
        stopwatch.enqueue([launch[name] for name in names])
        seen = watch(lambda: sample(device), lambda: stopwatch.events[len(names) - 1][1].is_done)
        return stopwatch.read(len(names)), seen

    flush_us = stopwatch.flush_us(HOST_PROBES)

    def host_us(name: str) -> float:
        bound = contenders[name]
        began = host_clock.perf_counter()
        bound.launch(stream)  # loads the code, sets the stream of a library's handle
        stream.sync()
        quick = host_clock.perf_counter() - began < HOST_PROBE_MAX_S
        costs = []
        for _ in range(HOST_PROBES if quick else 1):
            # Behind a flush, so that a launch which waits for the GPU shows it.
            stopwatch.flush()
            before = host_clock.perf_counter()
            bound.launch(stream)
            costs.append((host_clock.perf_counter() - before) * 1e6)
            stream.sync()
        return statistics.median(costs)

    def replay(name: str) -> None:
        graph = capture(name, contenders[name], stream)
        graphs.append(graph)
        launch[name] = graph.launch

    return Engine(run, flush_us, {name: host_us(name) for name in contenders}, replay)


def capture(name: str, bound, stream) -> Graph:
    """What `bound` launches, as a graph; RuntimeError, one sentence, where CUDA refuses that.

    With the driver's own calls, because after a refusal the stream must be usable again.
    """
    # Relaxed, because a library may ask the runtime something on the side.
    relaxed = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
    _succeed("cuStreamBeginCapture", *driver.cuStreamBeginCapture(stream.handle, relaxed))
    reason, executable = None, None
    try:
        bound.launch(stream)
    except Exception as error:
        reason = error
    ended, graph = driver.cuStreamEndCapture(stream.handle)
    if ended == driver.CUresult.CUDA_SUCCESS:
        if reason is None:
            ended, executable = driver.cuGraphInstantiate(graph, 0)
        driver.cuGraphDestroy(graph)
    if executable is not None and ended == driver.CUresult.CUDA_SUCCESS:
        _succeed("cuGraphUpload", *driver.cuGraphUpload(executable, stream.handle))
        return Graph(executable)
    raise RuntimeError(
        f"{name} costs the host more than the flush hides, and its launch cannot be captured as a "
        f"CUDA graph ({first_line(reason) if reason else ended.name}): make launch() only enqueue work"
    ) from reason


def _succeed(call: str, error, *_) -> None:
    if error != driver.CUresult.CUDA_SUCCESS:
        raise RuntimeError(f"{call} failed with {error.name}")
