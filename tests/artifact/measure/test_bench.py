import math
import types

import pytest
from hypothesis import given
from hypothesis import strategies as st

from artifact.measure import bench
from artifact.measure.device import Sample


class FakeGpu:
    """Launch times by contender, a warm-up that decays, and a log of what was run."""

    def __init__(self, times_us, warm_after=0, flush_us=90.0, host_us=None, throttle="none"):
        self.times_us = times_us
        self.warm_after = warm_after
        self.launches = dict.fromkeys(times_us, 0)
        self.log = []
        self.replayed = []
        self.throttle = throttle
        host = host_us or dict.fromkeys(times_us, 5.0)
        self.engine = bench.Engine(self.run, flush_us, host, self.replayed.append)

    def run(self, names):
        self.log.append(list(names))
        times = []
        for name in names:
            cold = 0.5 ** self.launches[name] if self.launches[name] < self.warm_after else 0.0
            times.append(self.times_us[name] * (1 + cold))
            self.launches[name] += 1
        return times, [Sample(1980.0, 500.0, self.throttle)]


def test_every_contender_gets_its_own_time():
    gpu = FakeGpu({"a": 100.0, "b": 250.0})
    result = bench.measure(["a", "b"], gpu.engine)
    assert list(result) == ["a", "b"]
    assert result["a"].median_us == 100 and result["b"].median_us == 250
    assert result["a"].samples == bench.MAX_SAMPLES
    assert result["a"].sm_mhz == 1980 and result["a"].power_w == 500
    assert result["a"].throttle == "none" and not result["a"].graph


def test_warm_up_launches_are_not_samples():
    gpu = FakeGpu({"a": 100.0}, warm_after=6)
    result = bench.measure(["a"], gpu.engine)["a"]
    assert result.median_us == result.q75_us == 100
    assert gpu.launches["a"] > bench.MAX_SAMPLES + bench.WARMUP_BATCH


@pytest.mark.parametrize("budget_s", [1.0, 1e9])
def test_warm_up_ends_with_its_budget_or_after_its_steps(budget_s):
    """Times that halve and double for ever, 0.1 s each: what was spent counts, step by step."""
    made = []

    def run(names):
        made.extend(names)
        return [1e5 * 2.0 ** (len(made) % 2) for _ in names], []

    bench.warm_up(["a"], bench.Engine(run, 90.0, {"a": 1.0}, lambda name: None), budget_s)
    steps = 2 if budget_s == 1 else bench.WARMUP_STEPS
    assert len(made) == 1 + steps * bench.WARMUP_BATCH


@pytest.mark.parametrize(("after", "still"), [(102.9, True), (97.1, True), (103.1, False), (96.9, False)])
def test_a_median_may_fall_no_further_than_it_may_rise(after, still):
    assert bench.stable(100, after) == still


def test_a_timing_has_the_quartiles_of_its_samples():
    timing = bench.timings({"a": [5, 1, 3, 2, 4]}, [], {"a": 5}, {"a": False})["a"]
    assert (timing.q25_us, timing.median_us, timing.q75_us, timing.samples) == (2, 3, 4, 5)


@given(st.floats(0.5, 1e6), st.floats(10.0, 500.0), st.floats(1e-3, 10.0), st.integers(1, 30))
def test_sample_count_stays_in_its_range_and_in_the_budget(launch, flush, budget, least):
    most = least + 20
    count = bench.sample_count(launch, flush, budget, least, most)
    assert least <= count <= most
    assert count == least or count * (launch + flush) <= budget * 1e6 * (1 + 1e-9)


@given(st.dictionaries(st.sampled_from("abcdef"), st.integers(1, 40), min_size=1))
def test_schedule_gives_each_its_count(counts):
    order = bench.schedule(counts)
    assert {name: order.count(name) for name in counts} == counts


def test_schedule_spreads_the_few_evenly_among_the_many():
    assert bench.schedule({"fast": 6, "slow": 2}) == [
        "fast",
        "fast",
        "slow",
        "fast",
        "fast",
        "fast",
        "slow",
        "fast",
    ]
    assert bench.schedule({"a": 1, "b": 3}) == ["b", "a", "b", "b"]
    assert bench.schedule({"a": 2, "b": 2}) == ["a", "b", "a", "b"]


def test_an_expensive_launch_runs_from_a_graph():
    gpu = FakeGpu({"a": 10.0, "b": 10.0}, flush_us=90.0, host_us={"a": 5.0, "b": 80.0})
    result = bench.measure(["a", "b"], gpu.engine)
    assert gpu.replayed == ["b"]
    assert not result["a"].graph and result["b"].graph


def test_machine_samples_are_summarised():
    seen = [
        Sample(1900.0, 400.0, "none"),
        Sample(math.nan, 600.0, "idle"),
        Sample(1980.0, math.nan, "software power cap"),
        Sample(1950.0, 500.0, "software power cap + power brake"),
    ]
    summary = bench.summarise_samples(seen)
    assert summary.sm_mhz == 1950 and summary.power_w == 500
    assert summary.throttle == "power brake + software power cap"
    assert bench.summarise_samples([Sample(1.0, 1.0, "idle")]).throttle == "none"


def test_the_machine_is_watched_until_the_gpu_is_done():
    polls = iter([False, False, True])
    seen = bench.watch(lambda: Sample(1.0, 1.0, "none"), lambda: next(polls))
    assert len(seen) == 1, "three quick polls are one look"


def test_a_contender_whose_time_is_the_hosts_is_refused():
    bounds = {"cpu_loop": types.SimpleNamespace(needs_host_clock=True)}
    with pytest.raises(ValueError, match="cpu_loop works on the host as well.*time_calls"):
        bench.time(bounds, device=None)


class FakeDevice:
    """A `cuda.core.Device` without a GPU: every operation of a stream goes into a log, with a clock."""

    def __init__(self, flush_ms=0.1):
        self.log, self.now_ms, self.flush_ms = [], 0.0, flush_ms
        self.properties = types.SimpleNamespace(l2_cache_size=50 * 2**20)

    def create_stream(self):
        def record(event):
            self.log.append("event")
            event.time = self.now_ms

        return types.SimpleNamespace(
            record=record,
            sync=lambda: self.log.append("sync"),
            close=lambda: self.log.append("close"),
        )

    def create_event(self, options):
        assert options.timing_enabled
        return FakeEvent()

    def allocate(self, size, *, stream):
        self.log.append(("allocate", size))

        def fill(value, *, stream):
            self.log.append("flush")
            self.now_ms += self.flush_ms

        return types.SimpleNamespace(fill=fill, close=lambda stream: self.log.append("free"))

    def sync(self):
        self.log.append("device sync")


class FakeEvent:
    time = 0.0
    is_done = True

    def __sub__(self, other):
        return self.time - other.time


def takes(device, name, ms):
    def launch(stream):
        device.log.append(name)
        device.now_ms += ms

    return types.SimpleNamespace(name=name, launch=launch)


def test_only_the_launch_lies_between_the_events(monkeypatch):
    monkeypatch.setattr(bench, "sample", lambda device: Sample(1980.0, 500.0, "none"))
    device = FakeDevice(flush_ms=10_000.0)  # long, so that no host is too slow for it
    contenders = {"a": takes(device, "a", 0.25), "b": takes(device, "b", 0.5)}
    result = bench.time(contenders, device)
    assert result["a"].median_us == pytest.approx(250)
    assert result["b"].median_us == pytest.approx(500)
    assert device.log[0] == ("allocate", 256 * 2**20)
    text = " ".join(map(str, device.log))
    assert "flush flush event a event flush event b event" in text, "a head start, then samples"
    assert device.log[-3:] == ["sync", "free", "close"]


class HostClock:
    """`time` of a host on which only launches take time, each as many microseconds as it says."""

    now_us = 0.0

    def perf_counter(self):
        return self.now_us / 1e6

    def sleep(self, seconds):
        pass


def costs_the_host(device, clock, name, costs_us, ms=0.25):
    """A contender whose launches cost the host `costs_us` in turn, the last one for ever."""
    bound = takes(device, name, ms)
    launch, costs = bound.launch, list(costs_us)

    def slow(stream):
        clock.now_us += costs.pop(0) if len(costs) > 1 else costs[0]
        launch(stream)

    bound.launch = slow
    return bound


def test_the_costs_that_decide_about_a_graph(monkeypatch):
    """A flush is one flush; of a launch's costs on the host the median counts, the first not."""
    device, clock = FakeDevice(flush_ms=0.1), HostClock()
    monkeypatch.setattr(bench, "host_clock", clock)
    costs = [9000, 10, 60, 20, 700, 40]
    assert len(costs) == 1 + bench.HOST_PROBES
    bound = costs_the_host(device, clock, "a", costs)
    engine = bench._engine({"a": bound}, device, bench.Stopwatch(device, 1), [])
    assert engine.flush_us == pytest.approx(100)
    assert engine.host_us == {"a": pytest.approx(40)}


class FakeGraph:
    """What `capture` gives, in half the time of the launch that it captured."""

    def __init__(self, name, bound, stream):
        self.bound, self.closed = takes(bound.device, f"graph of {name}", 0.125), False

    def launch(self, stream):
        self.bound.launch(stream)

    def close(self):
        self.closed = True


def test_a_launch_that_costs_the_host_much_is_timed_and_verified_from_its_graph(monkeypatch):
    monkeypatch.setattr(bench, "sample", lambda device: Sample(1980.0, 500.0, "none"))
    device, clock, graphs = FakeDevice(flush_ms=0.1), HostClock(), []
    monkeypatch.setattr(bench, "host_clock", clock)

    def capture(*arguments):
        graphs.append(FakeGraph(*arguments))
        return graphs[-1]

    monkeypatch.setattr(bench, "capture", capture)
    contenders = {name: costs_the_host(device, clock, name, [us]) for name, us in (("a", 49), ("b", 51))}
    for bound in contenders.values():
        bound.device = device
    verified = []

    def verify(name, launch):
        begin = len(device.log)
        launch()
        verified.append((name, " ".join(map(str, device.log[begin:]))))

    result = bench.time(contenders, device, verify=verify)
    assert not result["a"].graph and result["a"].median_us == pytest.approx(250)
    assert result["b"].graph and result["b"].median_us == pytest.approx(125)
    assert verified == [
        ("a", "flush flush event a event sync"),
        ("b", "flush flush event graph of b event sync"),
    ], "as they were timed"
    (graph,) = graphs
    assert graph.closed
    # Nothing of it is a sample, and what it raises ends the measurement.
    with pytest.raises(ArithmeticError):
        bench.time(contenders, device, verify=lambda name, launch: [][0] if launch is None else 1 / 0)
    assert device.log[-3:] == ["sync", "free", "close"] and graphs[-1].closed


@pytest.mark.parametrize(
    ("timer", "end"), [(bench.time, ["sync", "free", "close"]), (bench.time_calls, ["sync", "close"])]
)
def test_all_is_freed_where_a_launch_fails(timer, end):
    device = FakeDevice()

    def broken(stream):
        raise RuntimeError("CUDA_ERROR_LAUNCH_FAILED")

    with pytest.raises(RuntimeError, match="LAUNCH_FAILED"):
        timer({"broken": types.SimpleNamespace(launch=broken)}, device)
    assert device.log[-len(end) :] == end


# ---------------------------------------------------------------- loops of calls


class FakeCalls:
    """Call times by contender, of which the first call may be slower, and a log of what was run."""

    def __init__(self, times_us, first=1.0, idle=()):
        self.times_us, self.first, self.idle = times_us, first, idle
        self.log, self.made = [], dict.fromkeys(times_us, 0)

    def run(self, name, warmup, calls):
        self.log.append((name, warmup, calls))
        slower = self.first if not self.made[name] else 1.0
        self.made[name] += warmup + calls
        return self.times_us[name] * (calls + slower - 1 if not warmup else calls)

    def look(self, name):
        return [] if name in self.idle else [Sample(1980.0, math.nan, "none")]


def test_a_sample_is_a_loop_of_calls_after_its_warm_up():
    fake = FakeCalls({"a": 10.0, "b": 25.0}, first=40.0)
    result = bench.measure_calls(["a", "b"], fake.run, fake.look)
    assert result["a"].median_us == result["a"].q75_us == 10 and result["b"].median_us == 25
    assert result["a"].samples == bench.CALLS * bench.CALL_SAMPLES, "calls are what was timed"
    assert not result["a"].graph and result["a"].sm_mhz == 1980 and math.isnan(result["a"].power_w)
    loop = bench.WARMUP_CALLS, bench.CALLS
    assert (
        fake.log
        == [("a", 0, 1)] * 2
        + [("b", 0, 1)] * 2
        + [
            ("a", *loop),
            ("b", *loop),
        ]
        * bench.CALL_SAMPLES
    ), "interleaved by sample"


def test_a_call_of_many_seconds_is_made_once():
    fake = FakeCalls({"loop": 20e6, "gpu": 10.0}, idle=("loop",))
    result = bench.measure_calls(["loop", "gpu"], fake.run, fake.look)
    assert [entry for entry in fake.log if entry[0] == "loop"] == [("loop", 0, 1)]
    timing = result["loop"]
    assert timing.samples == 1 and timing.q25_us == timing.median_us == timing.q75_us == 20e6
    assert result["gpu"].samples == bench.CALLS * bench.CALL_SAMPLES
    assert timing.sm_mhz == 1980, "of the point, as in `time`"


@given(
    st.floats(0.5, 1e8),
    st.integers(0, 20),
    st.integers(1, 200),
    st.integers(1, 9),
    st.floats(1e-3, 10.0),
)
def test_a_plan_of_calls_stays_in_what_was_asked_and_in_the_budget(us, warmup, calls, samples, s):
    plan = bench.plan_calls(us, warmup, calls, samples, s)
    assert 0 <= plan.warmup <= warmup and 1 <= plan.calls <= calls and 1 <= plan.samples <= samples
    made = plan.samples * (plan.warmup + plan.calls)
    assert plan == bench.Plan(0, 1, 1) or made * us <= s * 1e6 * (1 + 1e-9)
    if samples * (warmup + calls) * us <= s * 1e6 * (1 - 1e-9):
        assert plan == bench.Plan(warmup, calls, samples)


@pytest.mark.parametrize(
    ("affordable", "plan"),
    [
        (175, bench.Plan(5, 20, 7)),
        (174, bench.Plan(5, 19, 7)),
        (70, bench.Plan(2, 8, 7)),
        (13, bench.Plan(0, 1, 7)),
        (6, bench.Plan(0, 1, 6)),
        (0.5, bench.Plan(0, 1, 1)),
    ],
)
def test_first_the_loops_get_shorter_then_there_are_fewer(affordable, plan):
    assert bench.plan_calls(1e6 / affordable, 5, 20, 7, budget_s=1.0) == plan


class Clock:
    """`time.perf_counter` of a machine in which only launches take time."""

    def __init__(self, device):
        self.device = device

    def perf_counter(self):
        self.device.log.append("clock")
        return self.device.now_ms / 1e3


def test_the_clock_runs_from_the_first_call_to_the_end_of_the_last(monkeypatch):
    monkeypatch.setattr(bench, "sample", lambda device: Sample(1980.0, 500.0, "none"))
    device = FakeDevice()
    monkeypatch.setattr(bench, "host_clock", Clock(device))
    contenders = {"gpu": takes(device, "gpu", 0.25), "cpu": takes(device, "cpu", 0.5)}
    contenders["cpu"].on_cpu = True
    result = bench.time_calls(contenders, device, warmup=1, calls=2, samples=3)
    assert result["gpu"].median_us == pytest.approx(250) and result["gpu"].samples == 6
    assert result["cpu"].median_us == pytest.approx(500)
    assert result["cpu"].sm_mhz == 1980 and math.isnan(result["cpu"].power_w)
    text = " ".join(map(str, device.log))
    assert "gpu sync clock gpu gpu sync clock cpu sync clock cpu cpu sync clock" in text
    assert "flush" not in text and "event" not in text
    assert device.log[0] == "device sync" and device.log[-2:] == ["sync", "close"]


def test_calls_are_verified_unless_one_more_costs_too_much(monkeypatch):
    monkeypatch.setattr(bench, "sample", lambda device: Sample(1980.0, 500.0, "none"))
    device, verified = FakeDevice(), []
    monkeypatch.setattr(bench, "host_clock", Clock(device))
    contenders = {"gpu": takes(device, "gpu", 0.25), "loop": takes(device, "loop", 1001.0)}

    def verify(name, launch):
        before = device.log.count(name)
        launch()
        verified.append((name, device.log.count(name) - before))

    result = bench.time_calls(contenders, device, verify=verify)
    assert verified == [("gpu", 1)] and result["loop"].samples == 1


def test_the_collector_rests_while_the_clock_runs():
    import gc

    device = FakeDevice()
    seen = []
    bound = types.SimpleNamespace(launch=lambda stream: seen.append(gc.isenabled()), on_cpu=True)
    bench.time_calls({"a": bound}, device, warmup=0, calls=2, samples=1)
    assert seen and not any(seen) and gc.isenabled()


# ---------------------------------------------------------------- on a GPU


@pytest.fixture(scope="module")
def gpu(device):
    return device


class Empty:
    """Launches a kernel that does nothing, after `host_s` seconds of host time."""

    name = "empty"
    prepare_ms = 0.0
    prepare_bytes = 0

    def __init__(self, host_s=0.0):
        from cuda.core import Device, LaunchConfig, Program, ProgramOptions

        arch = "sm_{}{}".format(*Device().compute_capability)
        program = Program('extern "C" __global__ void k() {}', "c++", ProgramOptions(arch=arch))
        self.module = program.compile("cubin")
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
def test_an_empty_kernel_reads_under_5_us_also_from_a_graph(gpu, host_s):
    timing = bench.time({"empty": Empty(host_s)}, gpu)["empty"]
    assert timing.graph == bool(host_s) and 0 < timing.median_us < 5, timing


class Fill:
    """Overwrites `size` bytes of device memory."""

    name = "fill"
    prepare_ms = 0.0
    prepare_bytes = 0

    def __init__(self, device, size):
        self.buffer = device.allocate(size, stream=device.default_stream)
        device.sync()

    def launch(self, stream):
        self.buffer.fill(1, stream=stream)


@pytest.mark.gpu
@pytest.mark.alone
def test_the_time_follows_the_work(gpu):
    small, large = Fill(gpu, 2**28), Fill(gpu, 2**30)
    timings = bench.time({"small": small, "large": large}, gpu)
    assert 3 < timings["large"].median_us / timings["small"].median_us < 5, timings
    assert timings["small"].sm_mhz > 100


@pytest.mark.gpu
@pytest.mark.alone
def test_a_launch_that_waits_for_the_gpu_is_refused_in_one_sentence(gpu):
    class Waits(Empty):
        def launch(self, stream):
            super().launch(stream)
            stream.sync()

    with pytest.raises(RuntimeError, match="waits.*cannot be captured") as caught:
        bench.time({"waits": Waits()}, gpu)
    assert "\n" not in str(caught.value)
    timing = bench.time({"empty": Empty()}, gpu)["empty"]
    assert timing.median_us < 5, "the refusal must not spoil the next measurement"


@pytest.mark.gpu
@pytest.mark.alone
def test_calls_of_an_empty_kernel_cost_what_the_host_needs_to_enqueue_them(gpu):
    timings = bench.time_calls({"empty": Empty(), "slow": Empty(host_s=1e-3)}, gpu)
    assert 0 < timings["empty"].median_us < 50, timings
    assert 1000 < timings["slow"].median_us < 1100, "host time counts here"
    assert timings["empty"].samples == bench.CALLS * bench.CALL_SAMPLES
    assert not timings["slow"].graph and timings["empty"].sm_mhz > 100
