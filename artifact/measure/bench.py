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
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from artifact.measure.device import NOT_THROTTLED, Sample, first_line, sample
from kernels.contract import require
from kernels.gpu import succeeded
from kernels.lazy import driver
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


#: Launches the named contenders in that order: each launch's microseconds, and what was sampled meanwhile.
Launches = Callable[[Sequence[str]], tuple[list[float], list[Sample]]]


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

    contenders: name -> PreparedKernel (`kernels.contract`), checked before. device: `cuda.core.Device`,
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
    graphs: dict[str, Graph] = {}
    launch: dict[str, Callable[[Any], None]] = {name: bound.launch for name, bound in contenders.items()}

    def run(names: Sequence[str]) -> tuple[list[float], list[Sample]]:
        stopwatch.enqueue([launch[name] for name in names])
        seen = watch(lambda: sample(device), lambda: stopwatch.events[len(names) - 1][1].is_done)
        return stopwatch.read(len(names)), seen

    try:
        flush_us = stopwatch.flush_us(HOST_PROBES)
        for name in [name for name in contenders if host_us(launch[name], stopwatch) > HOST_SHARE * flush_us]:
            graphs[name] = capture(name, contenders[name], stopwatch.stream)
            launch[name] = graphs[name].launch
        timed = measure(list(contenders), run, flush_us, budget_s, min_samples, max_samples, graphs)
        if verify is not None:
            for name in contenders:
                verify(name, partial(run, [name]))
        return timed
    finally:
        stopwatch.stream.sync()
        for graph in graphs.values():
            graph.close()
        stopwatch.close()


def measure(
    names: Sequence[str],
    run: Launches,
    flush_us: float,
    budget_s: float = BUDGET_S,
    min_samples: int = MIN_SAMPLES,
    max_samples: int = MAX_SAMPLES,
    graphs: Collection[str] = (),
) -> dict[str, Timing]:
    """Warm up, plan, sample, summarise. flush_us: what a flush of L2 takes; graphs: those that run from one."""
    estimate_us = warm_up(names, run, budget_s)
    order = schedule(
        {name: sample_count(us, flush_us, budget_s, min_samples, max_samples) for name, us in estimate_us.items()}
    )
    taken: dict[str, list[float]] = {name: [] for name in names}
    seen: list[Sample] = []
    for batch in (order[i : i + BATCH] for i in range(0, len(order), BATCH)):
        times, samples = run(batch)
        seen += samples
        for name, us in zip(batch, times, strict=True):
            taken[name].append(us)
    return timings(taken, seen, {name: len(times) for name, times in taken.items()}, graphs)


def host_us(launch: Callable[[Any], None], stopwatch: Stopwatch) -> float:
    """Return the microseconds for which a launch keeps the host.

    The median of some, after one that loads the code and sets the stream of a library's handle.
    """
    began = host_clock.perf_counter()
    launch(stopwatch.stream)
    stopwatch.stream.sync()
    quick = host_clock.perf_counter() - began < HOST_PROBE_MAX_S
    costs = []
    for _ in range(HOST_PROBES if quick else 1):
        # Behind a flush, so that a launch which waits for the GPU shows it.
        stopwatch.flush()
        before = host_clock.perf_counter()
        launch(stopwatch.stream)
        costs.append((host_clock.perf_counter() - before) * 1e6)
        stopwatch.stream.sync()
    return statistics.median(costs)


def warm_up(names: Sequence[str], run: Launches, budget_s: float) -> dict[str, float]:
    """Launch the contenders, interleaved, until each one's median (µs, returned) stands still."""
    times, _ = run(list(names))
    median = dict(zip(names, times, strict=True))
    spent_us = dict(median)
    # One launch says nothing about stability, unless it already took all the time there is.
    unsettled = [name for name in names if spent_us[name] < budget_s * 1e6]
    for _ in range(WARMUP_STEPS):
        if not unsettled:
            break
        times, _ = run(unsettled * WARMUP_BATCH)
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
    """Return samples that a budget (s) pays for, when each costs a flush and a launch (µs)."""
    return int(min(max(budget_s * 1e6 / max(launch_us + flush_us, 1e-3), min_samples), max_samples))


def schedule(counts: Mapping[str, int]) -> list[str]:
    """Return the order of all launches: rounds of A B C; fewer samples are spread over all rounds."""
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
    graphs: Collection[str] = (),
) -> dict[str, Timing]:
    """Sum up the times of every contender (µs), and what was seen of the machine.

    That is median clock and power, and every throttle reason that any of the samples saw. graphs: names of those that
    ran from one.
    """
    clock, power = (
        statistics.median([x for x in values if not math.isnan(x)] or [math.nan])
        for values in ([s.sm_mhz for s in seen], [s.power_w for s in seen])
    )
    reasons = [reason for s in seen for reason in s.throttle.split(" + ") if reason]
    # Between two batches the GPU may report "idle", which is no throttling.
    words = sorted(set(reasons) - {NOT_THROTTLED, "idle"})
    machine = Sample(clock, power, " + ".join(words) if words else (NOT_THROTTLED if reasons else ""))._asdict()
    found = {name: [float(x) for x in np.quantile(times, (0.5, 0.25, 0.75))] for name, times in taken.items()}
    return {
        name: Timing(median, q25, q75, samples[name], graph=name in graphs, **machine)
        for name, (median, q25, q75) in found.items()
    }


def watch(look: Callable[[], Sample], done: Callable[[], bool]) -> list[Sample]:
    """Return what `look` sees at once, and then every `SAMPLE_EVERY_S` until `done`."""
    seen, next_look = [look()], host_clock.perf_counter() + SAMPLE_EVERY_S
    while not done():
        host_clock.sleep(2e-4)  # short, so that the GPU hardly ever waits for the next batch
        if host_clock.perf_counter() >= next_look:
            seen.append(look())
            next_look = host_clock.perf_counter() + SAMPLE_EVERY_S
    return seen


# ---------------------------------------------------------------- loops of calls


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

    contenders: name -> PreparedKernel (`kernels.contract`), checked before, on the GPU or the CPU. device:
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

    taken: dict[str, list[float]] = {}
    plans: dict[str, tuple[int, int, int]] = {}
    seen: list[Sample] = []

    def take(name: str, us: float) -> None:
        taken[name].append(us)
        # Asking during a loop would count as host time. Right after it the clock is still the
        # loop's; the power is not, which NVML averages over more time than most loops take. After
        # work on the CPU the GPU has idled.
        if not getattr(contenders[name], "on_cpu", False):
            seen.append(sample(device)._replace(power_w=math.nan))

    try:
        device.sync()  # operands were made on other streams
        for name in contenders:
            us = run(name, 0, 1)
            if us < LONG_CALL_S * 1e6:
                us = run(name, 0, 1)
            plans[name], taken[name] = plan_calls(us, warmup, calls, samples, budget_s), []
            if plans[name] == (0, 1, 1):  # that was it
                take(name, us)
        for name in schedule({name: many for name, (_, _, many) in plans.items() if not taken[name]}):
            before, count, _ = plans[name]
            take(name, run(name, before, count) / count)
        timed = timings(taken, seen, {name: count * many for name, (_, count, many) in plans.items()})
        if verify is not None:
            for name in (x for x in contenders if timed[x].median_us < LONG_CALL_S * 1e6):
                verify(name, partial(run, name, 0, 1))
        return timed
    finally:
        stream.sync()
        stream.close()


def plan_calls(call_us: float, warmup: int, calls: int, samples: int, budget_s: float) -> tuple[int, int, int]:
    """Return what of a plan a budget (s) pays for, when a call takes `call_us` (µs); one call at least.

    That is calls before each sample, calls in a sample, samples.

    First the loops and their warm-up get shorter, then there are fewer of them.
    """
    affordable = budget_s * 1e6 / max(call_us, 1e-3)
    if affordable >= samples * (warmup + calls):
        return warmup, calls, samples
    each = int(affordable / samples)  # calls for a sample and its warm-up
    if each == 0:
        return 0, 1, max(1, int(affordable))
    timed = max(1, each * calls // (warmup + calls))
    return min(warmup, each - timed), timed, samples


# ---------------------------------------------------------------- the machine


@dataclass(frozen=True)
class Graph:
    """An executable CUDA graph."""

    executable: Any  #: `cuda.bindings.driver.CUgraphExec`

    def launch(self, stream) -> None:
        succeeded(driver.cuGraphLaunch(self.executable, stream.handle), "cuGraphLaunch failed with {}")

    def close(self) -> None:
        succeeded(driver.cuGraphExecDestroy(self.executable), "cuGraphExecDestroy failed with {}")


def capture(name: str, bound, stream) -> Graph:
    """Return what `bound` launches, as a graph; RuntimeError, one sentence, where CUDA refuses that.

    With the driver's own calls, because after a refusal the stream must be usable again.
    """
    # Relaxed, because a library may ask the runtime something on the side.
    relaxed = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
    succeeded(driver.cuStreamBeginCapture(stream.handle, relaxed), "cuStreamBeginCapture failed with {}")
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
        succeeded(driver.cuGraphUpload(executable, stream.handle), "cuGraphUpload failed with {}")
        return Graph(executable)
    raise RuntimeError(
        f"{name} costs the host more than the flush hides, and its launch cannot be captured as a "
        f"CUDA graph ({first_line(reason) if reason else ended.name}): make launch() only enqueue work"
    ) from reason
