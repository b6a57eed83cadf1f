"""What a notebook does with the harness: start, measure what is missing, or read; and what is done with a point."""

import gc
import math
import sys
import types
import weakref
from functools import partial
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import synthetic
from contenders import OnCpu, problem, product
from refused import refused

from artifact import paths
from artifact.measure import bench, device, records, run, verification
from kernels.contract import Kernel, Operands
from kernels.formats import csr

MACHINE = synthetic.machine() | {"cusparse": "12.7.2"}
WHEN, SYSTEM = MACHINE["date"], "casper_sparse"
CONTENDERS, SHAPES = dict.fromkeys(("warp_per_row", "cusparse_alg2")), (4, 8, 16)


def make_problem(n, m=8, k=6, **what):
    return problem(m, n, k, room=SYSTEM, **what)


def problems(**what):
    return [partial(make_problem, n, **what) for n in SHAPES]


class FakeTimer:
    """Takes the place of `run.measure_point`: no GPU, times that count up, trouble on request."""

    def __init__(self, fail_at=None):
        self.calls, self.fail_at = [], fail_at

    def __call__(self, problem, contenders, opened, budget_s, timer=None):
        self.timer = timer
        if self.fail_at == len(self.calls):
            raise KeyboardInterrupt
        self.calls.append(problem.n)
        us = 10.0 * len(self.calls)
        timing = bench.Timing(us, us * 0.99, us * 1.01, 25, 1980.0, 500.0, "none", False)
        return {name: (run.Prepared(0.5, 512), verification.Errors(1e-7, 1e-6), timing) for name in contenders}


@pytest.fixture
def gpu(monkeypatch, tmp_path):
    """A machine that seems to have a GPU: `use` puts a new fake timer in place."""
    info = device.DeviceInfo("NVIDIA H200", "nvidia-h200", 2**37)
    state = SimpleNamespace(machine=dict(MACHINE), folder=tmp_path / "records" / "nvidia-h200" / SYSTEM)

    def use(**how):
        timer = FakeTimer(**how)
        monkeypatch.setattr(run, "measure_point", timer)
        return timer

    state.use, state.timer = use, use()
    monkeypatch.setattr(device.DeviceInfo, "open", lambda self: "a device")
    for name, what in {
        "find": lambda: info,
        "require": lambda: info,
        "describe": lambda opened: dict(state.machine),
        "sources": lambda system: "0123456789ab",
    }.items():
        monkeypatch.setattr(device, name, what)
    monkeypatch.setattr(paths, "RECORDS", tmp_path / "records")
    return state


def measured(experiment="wide", contenders=CONTENDERS, seed=0, repeat=False, **more):
    made = run.start(SYSTEM, mode="measure", seed=seed, repeat=repeat)
    return made.measure(experiment, problems(seed=seed), contenders, **more)


@pytest.fixture
def no_gpu(monkeypatch, tmp_path):
    """A machine without a GPU, and shipped records of one experiment."""
    monkeypatch.setattr(device, "find", lambda: None)
    monkeypatch.setattr(paths, "RECORDED", tmp_path / "recorded")
    folder, timer = tmp_path / "recorded" / "nvidia-h200" / SYSTEM, FakeTimer()
    records.write_machine(folder, MACHINE)
    rows = [
        run.row(p, name, "wide", *result, gpu="NVIDIA H200", when=WHEN)
        for p in (make_problem(n) for n in SHAPES)
        for name, result in timer(p, CONTENDERS, None, 1).items()
    ]
    records.append(folder / "wide.csv", rows)
    return folder


# ---------------------------------------------------------------- start


@pytest.mark.parametrize(
    ("parameter", "message"),
    [
        ({"mode": "fake"}, "mode is 'fake', but must be one of auto, measure, recorded"),
        ({"preset": "huge"}, "preset is 'huge', but must be one of full, kick"),
        ({"seed": -1}, "seed is -1"),
        ({"seed": 2**32}, "seed is 4294967296"),
        ({"seed": 0.5}, "seed is 0.5"),
        ({"system": "../etc"}, "system is '../etc'"),
        ({"gpu": "nvidia-h2000", "mode": "recorded"}, "no records of a GPU 'nvidia-h2000'"),
        ({"system": "attic", "mode": "recorded"}, "no records of system 'attic' on nvidia-h200"),
    ],
)
def test_an_unknown_parameter_is_named(no_gpu, parameter, message):
    refused(message, run.start, **{"system": SYSTEM} | parameter, kind=(ValueError, FileNotFoundError))


def test_nothing_is_measured_with_a_hang_trap(gpu, monkeypatch):
    monkeypatch.setenv("SPARSITY_HANG_TRAP", "1")
    refused("a hang trap, .* as SPARSITY_HANG_TRAP is set: unset it", measured)
    assert not gpu.folder.exists()


# ---------------------------------------------------------------- measuring


def test_every_point_is_measured_and_recorded(gpu, capsys):
    df = measured()
    assert gpu.timer.calls == list(SHAPES) and gpu.timer.timer is bench.time
    assert list(zip(df["n"], df["variant"], strict=True)) == [(n, name) for n in SHAPES for name in CONTENDERS]
    pd.testing.assert_frame_equal(df, records.read(gpu.folder / "wide.csv"))
    lines = capsys.readouterr().out.splitlines()[1:]
    assert [line.split(":")[0] for line in lines] == [f"casper_sparse/wide {i}/3" for i in (1, 2, 3)]
    assert "m=8, n=4, k=6, density=0.25: 2 contenders, fastest warp_per_row 10.0 µs" in lines[0]
    measured("calls", timer=bench.time_calls)
    assert gpu.timer.timer is bench.time_calls and gpu.timer.calls == [*SHAPES, *SHAPES]


def test_the_baselines_of_a_system_are_its_contenders(gpu, no_gpu):
    measuring, recorded = (run.start(SYSTEM, mode=mode) for mode in ("measure", "recorded"))
    assert list(measuring.baselines())[0] == "cusparse_default"
    assert list(measuring.baselines(["cublas", "cpu"]))[:2] == ["cublas", "cpu_loop"]
    assert list(recorded.baselines()) == list(measuring.baselines()), "the names suffice"


def test_an_interrupted_measurement_goes_on_where_it_stopped(gpu, capsys):
    gpu.use(fail_at=2)
    refused("", measured, kind=KeyboardInterrupt)
    path = gpu.folder / "wide.csv"
    refused("wide was interrupted after 2 of 3 points: make measure", records.complete, records.read(path), path)
    gpu.machine["date"] = "2026-11-22T10:00:00+00:00"
    timer = gpu.use()
    assert len(records.complete(measured(), path)) == 6 and timer.calls == [16]
    assert "2 of 3 points are already there" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("change", "machine", "rows", "stale"),
    [
        ({"seed": 1}, {}, 6, True),
        ({"contenders": CONTENDERS | {"any_n": None}}, {}, 9, False),  # interleaved, or it would be no comparison
        ({"repeat": True}, {}, 6, False),
        ({}, {"driver": "590.0"}, 6, True),
    ],
)
def test_what_is_another_measurement_is_made_anew(gpu, capsys, change, machine, rows, stale):
    measured()
    gpu.machine |= machine
    timer = gpu.use()
    assert len(measured(**change)) == rows and timer.calls == list(SHAPES)
    folder = gpu.folder / ("repeat" if "repeat" in change else "")
    assert len(records.read(folder / "wide.csv")) == rows == records.read_plan(folder)["wide"]["rows"]
    assert (gpu.folder / "wide.csv.stale").exists() == stale
    assert ("wide.csv comes from other code or another machine" in capsys.readouterr().out) == stale
    root = gpu.folder.parents[1]
    assert records.list_gpus(root) == ["nvidia-h200"] and records.systems(root / "nvidia-h200") == [SYSTEM]
    read = run.start(SYSTEM, mode="recorded", records=root, repeat="repeat" in change)
    assert len(read.measure("wide", problems(seed=change.get("seed", 0)), CONTENDERS)) == 6


@pytest.mark.parametrize("name", [*run.SAME, "date", "commit", "python"])
def test_a_machine_is_the_same_if_nothing_that_changes_a_number_differs(tmp_path, name):
    (tmp_path / "wide.csv").write_text("kept or set aside, never read")
    records.write_machine(tmp_path, MACHINE)
    (tmp_path / records.PLAN).write_text("{}")
    aside = run.set_aside(tmp_path, MACHINE | {name: "another"}, 0)
    assert aside == ([] if name in ("date", "commit", "python") else ["wide.csv"])
    assert (tmp_path / records.PLAN).exists() == (not aside)  # which speaks of what is aside
    assert {"driver", "packages", "sources", "cpu", "cusparselt"} < {*run.SAME}


def test_points_that_differ_little_are_two(gpu):
    """Densities of 0.5 and 1 % are, like 24.9 and 25 %, not one point."""
    near = [partial(make_problem, 4, density=d) for d in (0.249, 0.25, 0.2501)]
    made = run.start(SYSTEM, mode="measure")
    made.measure("wide", near[:1], CONTENDERS)
    df = made.measure("wide", near, CONTENDERS)
    assert gpu.timer.calls == [4, 4, 4] and list(df["density"]) == [0.249] * 2 + [0.25] * 2 + [0.2501] * 2
    read = run.start(SYSTEM, mode="recorded", records=gpu.folder.parent.parent)
    refused("no warp_per_row", read.measure, "wide", [make_problem(4, density=0.2499)], ["warp_per_row"])


# ---------------------------------------------------------------- recorded


def test_recorded_rows_are_those_that_were_asked_for_in_their_order(no_gpu):
    made = run.start(SYSTEM, mode="recorded", preset="kick")
    df = made.measure("wide", [make_problem(16), make_problem(4)], ["cusparse_alg2"])
    assert list(df["n"]) == [16, 4] and set(df["variant"]) == {"cusparse_alg2"} and list(df.index) == [0, 1]
    for asked in (([], CONTENDERS), (problems(), [])):
        assert list(made.measure("wide", *asked)) == list(records.COLUMNS)
    refused(
        "no records of casper_sparse/tall on nvidia-h200 .recorded: wide",
        made.measure,
        "tall",
        problems(),
        CONTENDERS,
        kind=FileNotFoundError,
    )


@pytest.mark.parametrize(
    ("asked", "names", "message"),
    [
        (make_problem(5), ["warp_per_row"], "warp_per_row at m=8, n=5, k=6, density=0.25, seed=0"),
        (make_problem(4, seed=7), ["warp_per_row"], "seed=7"),
        (make_problem(4, label="cage4"), ["warp_per_row"], "at cage4, m=8"),
        (make_problem(4), ["warp_per_row", "no_such", "nor_this"], "no_such at .* and 1 more"),
    ],
)
def test_a_point_that_was_not_recorded_is_named(no_gpu, asked, names, message):
    refused(
        f"casper_sparse/wide on nvidia-h200 have no .*{message}",
        run.start(SYSTEM, mode="recorded").measure,
        "wide",
        [asked],
        names,
    )


# ---------------------------------------------------------------- one point


@pytest.fixture
def point(monkeypatch, by_the_host):
    """A real check on the CPU under `run.measure_point`; only the timer is fake. measure(**contenders): binds one; log:
    what was done."""
    row_ptr, columns = np.array([0, 2, 2, 4], np.int32), np.array([3, 1, 0, 0], np.int32)
    a = csr.Csr(3, 4, row_ptr, columns, np.array([1, 2, 3, 4], np.float32))
    made = make_problem(2, m=3, k=4, nnz=4, operands=Operands(a, np.arange(1, 9, dtype=np.float32).reshape(4, 2)))
    made.make_device = lambda: Operands(*map(by_the_host, (a, made.host().b)))
    log, original = [], verification.oracle
    monkeypatch.setattr(verification, "oracle", lambda p, **more: original(p, on="cpu", **more))
    monkeypatch.setattr(run, "_free_memory", lambda: log.append("freed"))
    stream = SimpleNamespace(sync=lambda: None, close=lambda: log.append("closed"))

    def timer(bounds, opened, *, budget_s, verify):
        log.append((list(bounds), budget_s))
        for name, bound in bounds.items():
            verify(name, bound.launch)
        return {n: bench.Timing(5.0, 4.0, 6.0, 7, math.nan, math.nan, "", False) for n in bounds}

    def measure(**contenders):
        return run.measure_point(made, contenders, SimpleNamespace(create_stream=lambda: stream), 0.1, timer)

    return SimpleNamespace(problem=made, log=log, measure=measure)


def right(p):
    return OnCpu(p, name="right")


def test_a_point_is_checked_then_timed_then_freed(point):
    result = point.measure(a=right, b=right)
    # Its reference; each of two, and all, on whole numbers; the heats; everything.
    assert point.log == ["freed"] * 3 + ["closed", "freed", (["a", "b"], 0.1), "closed", "freed"]
    prepared, errors, timing = result["a"]
    assert prepared == run.Prepared(1.5, 64) and timing.median_us == 5 and errors.rel_err < 1e-6
    assert 0 <= errors.bound <= 1 and point.problem._host is None


def test_on_whole_numbers_each_is_made_ready_when_the_one_before_is_gone(point):
    """Bound anew, since what a bind makes of A holds its numbers; and before it is bound to the problem itself."""
    made = []

    def prepare(p):
        gc.collect(0)
        alive = [one() for one in made if one() is not None]
        assert all(one.problem is point.problem for one in alive) if p is point.problem else not alive
        assert p is point.problem or not (p.host().a.val == point.problem.host().a.val).all()
        bound = OnCpu(p)
        made.append(weakref.ref(bound))
        return bound

    point.measure(a=prepare, b=prepare)
    assert len(made) == 4


@pytest.mark.parametrize("off", [1, 2**-20])
def test_what_is_wrong_on_whole_numbers_only_is_wrong(point, off):
    """Where random ones hide it: a product that is lost in rounding, TF32 in place of float32."""

    def prepare(p):
        def work(a, b):
            out = product(a, b)
            out[2, 1] += 0 if p is point.problem else np.float32(off) * abs(out[2, 1] or 1)
            return out

        return OnCpu(p, work, "rounds")

    says = "^rounds on whole numbers at m=3, n=2, k=4, 4 non-zeros is wrong: 1 of 6 elements .*at row 2, column 1, is "
    refused(says, point.measure, rounds=prepare, kind=verification.WrongResult)
    assert point.log[-1] == "freed" and "closed" in point.log and point.problem._host is None


def test_a_contender_that_is_wrong_only_after_its_first_launch_is_caught(point):
    """What it leaves behind, flags or sums say, spoils the launches that are timed."""

    def late(p):
        bound = OnCpu(p, lambda a, b: product(a, b) * np.float32(1 + bound.launches / 100), "late")
        return bound

    refused(
        "late after timing at .*m=3, n=2.* is wrong",
        point.measure,
        right=right,
        late=late,
        kind=verification.WrongResult,
    )
    assert [x for x in point.log if x != "freed"] == ["closed", (["right", "late"], 0.1), "closed"]


@pytest.mark.parametrize("operand", ["a", "b"])
def test_a_prepare_that_changes_the_operands_does_not_reach_the_reference(point, operand):
    def spoil(p):
        if p is point.problem:
            (p.host().a.val if operand == "a" else p.host().b)[1] *= 2
        return OnCpu(p, name="spoils")

    refused("spoils at .* is wrong", point.measure, spoils=spoil, kind=verification.WrongResult)


def test_a_row_has_every_number_in_its_place():
    of = make_problem(8, m=5, seed=3, label="cage4", least_bytes=300, requested_bytes=700)
    timing, errors = (
        bench.Timing(2.0, 1.5, 3.0, 9, 1980.0, 420.0, "power brake", True),
        verification.Errors(1e-7, 2e-6, 0.25),
    )
    row = run.row(of, "any_n", "wide", run.Prepared(0.25, 512), errors, timing, gpu="NVIDIA H200", when=WHEN)
    assert list(row) == list(records.COLUMNS)
    assert list(row.values()) == [
        *(SYSTEM, "wide", "any_n", "cage4", 5, 8, 6, 0.25, 12, 3, 2.0, 1.5, 3.0, 9),
        *("2·nnz·N", 192, 192 / 2e-6 / 1e12, 300, 700, 300 / 2e-6 / 1e9, 1e-7, 2e-6, 0.25, 0.25, 512, True),
        *(1980.0, 420.0, "power brake", "NVIDIA H200", WHEN),
    ]


# ---------------------------------------------------------------- on a GPU


@pytest.mark.gpu
@pytest.mark.alone
def test_a_small_measurement_from_beginning_to_end(tmp_path, capsys):
    """Measure two points, go on after an interruption, and read them back as shipped records."""
    from artifact.baselines import cusparse
    from kernels import casper_sparse as system

    made = run.start("casper_sparse", "measure", preset="kick", seed=5, records=tmp_path)
    shapes = [{"m": 1000, "n": n, "k": 512, "density": 0.05} for n in (64, 128)]
    points = [lambda s=s: system.problem(**s, seed=5) for s in shapes]
    contenders = made.variants() | cusparse.contenders(made.device)
    first = made.measure("wide", points[:1], contenders)
    assert len(first) == len(system.VARIANTS) + len(cusparse.ALGORITHMS)
    assert (first["rel_err"] < verification.LIMITS["float32"].rel_err).all()
    assert (first["median_us"] > 1).all() and (first["samples"] >= bench.MIN_SAMPLES).all()
    assert (first["sm_mhz"] > 100).all()

    both = made.measure("wide", points, contenders)
    pd.testing.assert_frame_equal(both.iloc[: len(first)], first)
    assert "1 of 2 points are already there" in capsys.readouterr().out

    read = run.start("casper_sparse", "recorded", made.gpu, "kick", 5, tmp_path)
    pd.testing.assert_frame_equal(read.measure("wide", points, list(contenders)), both)


# ---------------------------------------------------------------- the compile report


@pytest.mark.parametrize(
    ("mix", "counts"),
    [
        ({"LDG.E.128.CONSTANT": 4, "LDG.E.128": 1, "LDG.E": 2}, {"LDG.128": 5, "LDG.32": 2}),
        ({"LDG.E.U8": 1, "LDS.S16": 1, "STS.64": 3}, {"LDG.8": 1, "LDS.16": 1, "STS.64": 3}),
        ({"LDGSTS.E.BYPASS.128": 2, "SHFL.IDX": 1}, {"LDGSTS.128": 2, "SHFL": 1}),
        ({"FFMA": 7, "FFMA.FTZ": 1, "IMAD.WIDE": 9, "BRA": 1}, {"FFMA": 8}),
        ({"STL.128": 1, "LDL": 2, "RED.E.ADD.F32.FTZ.RN.STRONG.GPU": 1}, {"STL.128": 1, "LDL.32": 2, "RED": 1}),
        (
            {"HMMA.16816.F32.BF16": 2, "HMMA.SP.16832.F32.BF16": 64, "HGMMA.SP.64": 3, "HGMMA.64": 1},
            {"HMMA": 2, "HMMA.SP": 64, "HGMMA.SP": 3, "HGMMA": 1},
        ),
    ],
)
def test_instructions_are_counted_by_width(mix, counts):
    assert run.count_instructions(mix) == counts


def test_the_compile_report_covers_every_target_of_a_kernel_without_a_gpu(monkeypatch, tmp_path):
    jit = pytest.importorskip("kernels.jit")
    source = tmp_path / "copy.cu"
    source.write_text(
        "template <int N> __global__ void copy(const float4* __restrict__ a, float4* b) {\n"
        "  b[threadIdx.x] = a[threadIdx.x * N];\n}\n"
    )
    targets = ("sm_80", "sm_90a")
    kernel = Kernel("copy", source, "", entries=("copy<1>", "copy<2>"), targets=targets)
    one = Kernel("one_gpu", source, "", entries=("copy<4>",), targets=("sm_90a",))
    module = types.ModuleType("kernels.tiny_room")
    module.VARIANTS = {"copy": kernel, "one_gpu": one}
    monkeypatch.setitem(sys.modules, "kernels.tiny_room", module)
    df = run.compile_report("tiny_room")
    assert list(df["target"]) == [*targets, *targets, "sm_90a"] and set(targets) <= set(jit.TARGETS)
    named = {name: df[name].unique().tolist() for name in ("variant", "entry")}
    assert named == {"variant": ["copy", "one_gpu"], "entry": ["copy<1>", "copy<2>", "copy<4>"]}
    assert list(run.compile_report("tiny_room", first=True)["entry"].unique()) == ["copy<1>", "copy<4>"]
    assert (df[["LDG.128", "STG.128"]] == 1).all(axis=None) and not df["spills"].any() and (df["registers"] > 0).all()
    assert "LDL.32" not in df.columns, "a column of zeros says nothing"
    asked = []
    compile_cubin = jit.compile_cubin
    monkeypatch.setattr(jit, "compile_cubin", lambda *of: asked.append(of[1:]) or compile_cubin(*of))
    few = run.compile_report("tiny_room", ["copy"], "sm_90a")
    assert list(few["entry"]) == ["copy<1>", "copy<2>"] and set(few["target"]) == {"sm_90a"}
    assert sorted(asked) == [("copy<1>", "sm_90a"), ("copy<2>", "sm_90a")], "nothing else is compiled"
