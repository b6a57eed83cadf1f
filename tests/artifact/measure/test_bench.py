"""Both protocols of timing, on a machine without a GPU that says what it did, and on a GPU."""

import gc
import math
from functools import partial
from types import SimpleNamespace

import pytest
from hypothesis import given, strategies as st
from refused import refused

from artifact.measure import bench
from artifact.measure.device import Sample

FLUSH_MS = 0.1


class Machine:
    """A `cuda.core.Device`, and the host's `time`: what is enqueued takes the GPU's time, which the host waits for in
    `sync`. log: what was done, in its order."""

    properties = SimpleNamespace(l2_cache_size=50 * 2**20)

    def __init__(self):
        self.log, self.gpu_ms, self.waited_ms, self.host_us = [], 0.0, 0.0, 0.0

    def did(self, what, ms=0.0, us=0.0):
        self.log.append(what)
        self.gpu_ms += ms
        self.host_us += us

    def sync(self):
        self.did("sync", us=(self.gpu_ms - self.waited_ms) * 1e3)
        self.waited_ms = self.gpu_ms

    def record(self, event):
        self.did("event")
        event.ms = self.gpu_ms

    def create_stream(self):
        return SimpleNamespace(record=self.record, sync=self.sync, close=lambda: self.did("close"))

    def create_event(self, options):
        assert options.timing_enabled
        return Event()

    def allocate(self, size, *, stream):
        self.did(size)
        flush = lambda value, *, stream: self.did("flush", FLUSH_MS)  # noqa: E731
        return SimpleNamespace(fill=flush, close=lambda stream: self.did("free"))

    def perf_counter(self):
        return self.host_us / 1e6

    def sleep(self, seconds):
        pass

    def contender(self, name, ms, us=0.0, **more):
        """ms: of the GPU, us: of the host, each for every launch, or for launches in turn, the last one for ever."""
        costs = [[*x] if isinstance(x, (list, tuple)) else [x] for x in (ms, us)]
        take = lambda x: x.pop(0) if len(x) > 1 else x[0]  # noqa: E731
        return SimpleNamespace(name=name, launch=lambda stream: self.did(name, *map(take, costs)), **more)


class Event:
    ms, is_done = 0.0, True

    def __sub__(self, other):
        return self.ms - other.ms


@pytest.fixture
def machine(monkeypatch):
    made = Machine()
    monkeypatch.setattr(bench, "host_clock", made)
    monkeypatch.setattr(bench, "sample", lambda device: Sample(1980.0, 500.0, "none"))
    return made


# ---------------------------------------------------------------- single launches


def test_only_the_launch_lies_between_the_events(machine):
    result = bench.time({"a": machine.contender("a", 0.25), "b": machine.contender("b", 0.5)}, machine)
    assert {name: t.median_us for name, t in result.items()} == pytest.approx({"a": 250, "b": 500})
    assert result["a"] == bench.Timing(*[pytest.approx(250)] * 3, bench.MAX_SAMPLES, 1980, 500, "none", False)
    text = " ".join(map(str, machine.log))
    assert text.startswith(f"{256 * 2**20} sync ") and text.endswith(" sync free close")
    assert "flush flush event a event flush event b event" in text, "a head start, then samples"


def test_warm_up_launches_are_not_samples(machine):
    probes = [1.0] * (1 + bench.HOST_PROBES)
    result = bench.time({"a": machine.contender("a", [*probes, *(0.1 * (1 + 0.5**i) for i in range(6)), 0.1])}, machine)
    assert result["a"].q75_us == pytest.approx(100)
    assert machine.log.count("a") > len(probes) + bench.MAX_SAMPLES + bench.WARMUP_BATCH


@pytest.mark.parametrize(("budget_s", "steps"), [(1.0, 2), (1e9, bench.WARMUP_STEPS)])
def test_warm_up_ends_with_its_budget_or_after_its_steps(budget_s, steps):
    """Times that halve and double for ever, 0.1 s each: what was spent counts, step by step."""
    made = []

    def run(names):
        made.extend(names)
        return [1e5 * 2.0 ** (len(made) % 2) for _ in names], []

    bench.warm_up(["a"], run, budget_s)
    assert len(made) == 1 + steps * bench.WARMUP_BATCH


@pytest.mark.parametrize(("after", "still"), [(102.9, True), (97.1, True), (103.1, False), (96.9, False)])
def test_a_median_may_fall_no_further_than_it_may_rise(after, still):
    assert bench.stable(100, after) == still


def test_a_timing_has_the_quartiles_of_its_samples():
    timing = bench.timings({"a": [5, 1, 3, 2, 4]}, [], {"a": 5})["a"]
    assert (timing.q25_us, timing.median_us, timing.q75_us, timing.samples) == (2, 3, 4, 5)


@given(st.floats(0.5, 1e6), st.floats(10.0, 500.0), st.floats(1e-3, 10.0), st.integers(1, 30))
def test_sample_count_stays_in_its_range_and_in_the_budget(launch, flush, budget, least):
    count = bench.sample_count(launch, flush, budget, least, least + 20)
    assert least <= count <= least + 20
    assert count == least or count * (launch + flush) <= budget * 1e6 * (1 + 1e-9)
    assert count == least + 20 or (count + 1) * (launch + flush) > budget * 1e6 * (1 - 1e-9)


@given(st.dictionaries(st.sampled_from("abcdef"), st.integers(1, 40), min_size=1))
def test_schedule_spreads_the_few_evenly_among_the_many(counts):
    order = bench.schedule(counts)
    assert {name: order.count(name) for name in counts} == counts
    most = max(counts, key=counts.get)
    rounds = [i for i, name in enumerate(order) if name == most]
    for name, count in counts.items():
        at = [sum(i < place for i in rounds) for place, x in enumerate(order) if x == name]
        between = [b - a for a, b in zip(at, at[1:], strict=False)]
        assert not between or max(between) - min(between) <= 2 and max(between) <= counts[most] / count + 2


def test_of_few_launches_one_is_central():
    assert "".join(bench.schedule({"f": 6, "s": 2})) == "ffsfffsf"
    assert "".join(bench.schedule({"a": 1, "b": 3})) == "babb" and "".join(bench.schedule({"a": 2, "b": 2})) == "abab"


def test_a_launch_that_costs_the_host_much_is_timed_and_verified_from_its_graph(machine, monkeypatch):
    """Over half a flush, which takes 100 µs; of the costs the median counts, the first not."""
    closed, verified = [], []

    def capture(name, bound, stream):
        graph = machine.contender(f"graph of {name}", 0.125)
        return SimpleNamespace(launch=graph.launch, close=lambda: closed.append(name))

    def verify(name, launch):
        begin = len(machine.log)
        launch()
        verified.append(" ".join(machine.log[begin:]))

    monkeypatch.setattr(bench, "capture", capture)
    costs = {"a": [9000, 10, 60, 20, 700, 49, 0], "b": [0, 60, 10, 700, 51, 20, 0]}
    assert all(len(us) == 2 + bench.HOST_PROBES for us in costs.values())
    contenders = {name: machine.contender(name, 0.25, us) for name, us in costs.items()}
    result = bench.time(contenders, machine, verify=verify)
    assert [t.graph for t in result.values()] == [False, True]
    assert [t.median_us for t in result.values()] == pytest.approx([250, 125])
    assert verified == ["flush flush event a event sync", "flush flush event graph of b event sync"], "as timed"
    assert closed == ["b"]
    refused(
        "division by zero",  # ends the measurement
        bench.time,
        contenders,
        machine,
        verify=lambda name, launch: 1 / 0,
        kind=ZeroDivisionError,
    )
    assert machine.log[-3:] == ["sync", "free", "close"]


def test_machine_samples_are_summarised():
    seen = [
        Sample(1900.0, 400.0, "none"),
        Sample(math.nan, 600.0, "idle"),
        Sample(1980.0, math.nan, "software power cap"),
        Sample(1950.0, 500.0, "software power cap + power brake"),
    ]
    for samples, found in (
        (seen, (1950, 500, "power brake + software power cap")),
        ([Sample(1.0, 1.0, "idle")], (1, 1, "none")),
        ([], (pytest.approx(math.nan, nan_ok=True), pytest.approx(math.nan, nan_ok=True), "")),
    ):
        timing = bench.timings({"a": [1.0]}, samples, {"a": 1})["a"]
        assert (timing.sm_mhz, timing.power_w, timing.throttle) == found


def test_the_machine_is_watched_until_the_gpu_is_done():
    polls = iter([False, False, True])
    seen = bench.watch(lambda: Sample(1.0, 1.0, "none"), lambda: next(polls))
    assert len(seen) == 1, "three quick polls are one look"


def test_a_contender_whose_time_is_the_hosts_is_refused():
    refused(
        "cpu_loop works on the host as well.*time_calls",
        bench.time,
        {"cpu_loop": SimpleNamespace(needs_host_clock=True)},
        device=None,
    )


@pytest.mark.parametrize(("timer", "end"), [(bench.time, "sync free close"), (bench.time_calls, "sync close")])
def test_all_is_freed_where_a_launch_fails_and_the_collector_rests_while_it_runs(machine, timer, end):
    seen = []

    def broken(stream):
        seen.append(gc.isenabled())
        if len(seen) == 20:
            raise RuntimeError("CUDA_ERROR_LAUNCH_FAILED")

    refused("LAUNCH_FAILED", timer, {"broken": SimpleNamespace(launch=broken)}, machine, kind=RuntimeError)
    assert " ".join(map(str, machine.log)).endswith(end) and gc.isenabled() and not all(seen)


# ---------------------------------------------------------------- loops of calls


def test_a_sample_is_a_loop_of_calls_after_its_warm_up(machine):
    """By the host's clock, from the first call to the end of the last; nothing is flushed."""
    contenders = {"a": machine.contender("a", [0.4, 0.25]), "b": machine.contender("b", 0.2, 300, on_cpu=True)}
    result = bench.time_calls(contenders, machine, warmup=1, calls=2, samples=3)
    assert {name: (t.median_us, t.q75_us, t.samples) for name, t in result.items()} == {
        "a": (pytest.approx(250), pytest.approx(250), 6),
        "b": (pytest.approx(500), pytest.approx(500), 6),
    }
    assert all(t.sm_mhz == 1980 and math.isnan(t.power_w) and not t.graph for t in result.values())
    loop = "a sync a a sync b sync b b sync"
    first = " ".join(["sync", *["sync", "a", "sync"] * 2, *["sync", "b", "sync"] * 2])
    assert " ".join(machine.log) == f"{first} {' '.join([loop] * 3)} sync close", "interleaved by sample"


def test_a_call_of_many_seconds_is_made_once_and_not_verified(machine):
    verified = []
    contenders = {"loop": machine.contender("loop", 20e3, on_cpu=True), "gpu": machine.contender("gpu", 0.01)}

    def verify(name, launch):
        before = machine.log.count(name)
        launch()
        verified.append((name, machine.log.count(name) - before))

    result = bench.time_calls(contenders, machine, verify=verify)
    assert machine.log.count("loop") == result["loop"].samples == 1 and verified == [("gpu", 1)]
    assert result["loop"].q25_us == result["loop"].q75_us == pytest.approx(20e6)
    assert result["gpu"].samples == bench.CALLS * bench.CALL_SAMPLES
    assert result["loop"].sm_mhz == 1980, "of the point, as in `time`"


@given(st.floats(0.5, 1e8), st.integers(0, 20), st.integers(1, 200), st.integers(1, 9), st.floats(1e-3, 10.0))
def test_a_plan_of_calls_stays_in_what_was_asked_and_in_the_budget(us, warmup, calls, samples, s):
    plan = before, count, many = bench.plan_calls(us, warmup, calls, samples, s)
    assert 0 <= before <= warmup and 1 <= count <= calls and 1 <= many <= samples
    assert plan == (0, 1, 1) or many * (before + count) * us <= s * 1e6 * (1 + 1e-9)
    if samples * (warmup + calls) * us <= s * 1e6 * (1 - 1e-9):
        assert plan == (warmup, calls, samples)


@pytest.mark.parametrize(
    ("affordable", "plan"),
    [(175, (5, 20, 7)), (174, (5, 19, 7)), (70, (2, 8, 7)), (13, (0, 1, 7)), (6, (0, 1, 6)), (0.5, (0, 1, 1))],
)
def test_first_the_loops_get_shorter_then_there_are_fewer(affordable, plan):
    assert bench.plan_calls(1e6 / affordable, 5, 20, 7, budget_s=1.0) == plan


# ---------------------------------------------------------------- on a GPU


class Empty:
    """Launches a kernel that does nothing, after `host_s` seconds of host time."""

    name = "empty"

    def __init__(self, host_s=0.0):
        from cuda.core import Device, LaunchConfig, Program, ProgramOptions

        arch = "sm_{}{}".format(*Device().compute_capability)
        self.module = Program('extern "C" __global__ void k() {}', "c++", ProgramOptions(arch=arch)).compile("cubin")
        self.kernel = self.module.get_kernel("k")
        self.config = LaunchConfig(grid=1, block=32)
        self.host_s = host_s

    def launch(self, stream):
        import time

        from cuda.core import launch

        end = time.perf_counter() + self.host_s
        while time.perf_counter() < end:
            pass
        launch(stream, self.config, self.kernel)


@pytest.mark.gpu
@pytest.mark.alone
@pytest.mark.parametrize("host_s", [0, 1e-3])  # a millisecond of host time is more than any flush hides
def test_an_empty_kernel_reads_under_5_us_also_from_a_graph(device, host_s):
    timing = bench.time({"empty": Empty(host_s)}, device)["empty"]
    assert timing.graph == bool(host_s) and 0 < timing.median_us < 5, timing


SIZES = {"small": 2**28, "large": 2**30}  # bytes


@pytest.mark.gpu
@pytest.mark.alone
def test_the_time_follows_the_work(device):
    buffers = {name: device.allocate(size, stream=device.default_stream) for name, size in SIZES.items()}
    fills = {name: partial(buffer.fill, 1) for name, buffer in buffers.items()}
    contenders = {name: SimpleNamespace(launch=lambda s, fill=fill: fill(stream=s)) for name, fill in fills.items()}
    timings = bench.time(contenders, device)
    assert 3 < timings["large"].median_us / timings["small"].median_us < 5, timings
    assert timings["small"].sm_mhz > 100


@pytest.mark.gpu
@pytest.mark.alone
def test_a_launch_that_waits_for_the_gpu_is_refused_in_one_sentence(device):
    class Waits(Empty):
        def launch(self, stream):
            super().launch(stream)
            stream.sync()

    refused("waits.*cannot be captured", bench.time, {"waits": Waits()}, device, kind=RuntimeError)
    timing = bench.time({"empty": Empty()}, device)["empty"]
    assert timing.median_us < 5, "the refusal must not spoil the next measurement"


@pytest.mark.gpu
@pytest.mark.alone
def test_calls_of_an_empty_kernel_cost_what_the_host_needs_to_enqueue_them(device):
    timings = bench.time_calls({"empty": Empty(), "slow": Empty(host_s=1e-3)}, device)
    assert 0 < timings["empty"].median_us < 50, timings
    assert 1000 < timings["slow"].median_us < 1100, "host time counts here"
    assert timings["empty"].samples == bench.CALLS * bench.CALL_SAMPLES
    assert not timings["slow"].graph and timings["empty"].sm_mhz > 100
