import gc
import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from artifact import paths
from artifact.drawing import prose
from artifact.measure import bench, check, device, records, run
from kernels.contract import Operands, Problem
from kernels.formats import csr

MACHINE = {
    "gpu": "NVIDIA H200",
    "slug": "nvidia-h200",
    "date": "2026-11-21T10:00:00+00:00",
    "commit": "abc1234",
    "driver": "580.1",
    "cuda": "13.0",
    "cusparse": "12.7.2",
    "python": "3.12.3",
    "packages": {"numpy": "2.4.6"},
}
INFO = device.DeviceInfo("NVIDIA H200", "nvidia-h200", 2**37)


def make_problem(n=4, m=8, k=6, seed=0, label="") -> Problem:
    nnz = 12
    return Problem(
        room="casper_sparse",
        label=label,
        m=m,
        n=n,
        k=k,
        nnz=nnz,
        density=0.25,
        seed=seed,
        useful_flops=2 * nnz * n,
        flops_def="2·nnz·N",
        least_bytes=1000,
        requested_bytes=2000,
        make_host=lambda: pytest.fail("nothing here multiplies"),
        make_device=lambda: pytest.fail("there is no GPU"),
    )


CONTENDERS = {"warp_per_row": None, "cusparse_alg2": None}
SHAPES = (4, 8, 16)


def problems(**changes):
    return [lambda n=n: make_problem(n, **changes) for n in SHAPES]


class FakeTimer:
    """Takes the place of `run.measure_point`: no GPU, times that count up, trouble on request."""

    def __init__(self, fail_at=None, error=None):
        self.calls, self.fail_at, self.error = [], fail_at, error

    def __call__(self, problem, contenders, opened, budget_s, timer=None):
        self.timer = timer
        if self.fail_at == len(self.calls):
            raise self.error
        self.calls.append(problem.n)
        time_us = 10.0 * len(self.calls)
        timing = bench.Timing(time_us, time_us * 0.99, time_us * 1.01, 25, 1980.0, 500.0, "none", False)
        return {name: (run.Prepared(0.5, 512), check.Errors(1e-7, 1e-6), timing) for name in contenders}


@pytest.fixture
def gpu(monkeypatch, tmp_path):
    """A machine that seems to have a GPU: the fake timer, in fresh folders."""
    timer = FakeTimer()
    machine = dict(MACHINE)
    monkeypatch.setattr(device.DeviceInfo, "open", lambda self: "a device")
    monkeypatch.setattr(device, "find", lambda: INFO)
    monkeypatch.setattr(device, "require", lambda: INFO)
    monkeypatch.setattr(device, "describe", lambda opened: dict(machine))
    monkeypatch.setattr(device, "sources", lambda room: "0123456789ab")
    monkeypatch.setattr(run, "measure_point", lambda *a: timer(*a))
    monkeypatch.setattr(paths, "RECORDS", tmp_path / "records")
    state = SimpleNamespace(machine=machine, folder=tmp_path / "records/nvidia-h200/casper_sparse")

    def use(new_timer):
        nonlocal timer
        timer = new_timer
        return new_timer

    state.use = use
    return state


@pytest.fixture
def no_gpu(monkeypatch, tmp_path):
    """A machine without a GPU, and shipped records of one experiment."""
    monkeypatch.setattr(device, "find", lambda: None)
    monkeypatch.setattr(paths, "RECORDED", tmp_path / "recorded")
    folder = tmp_path / "recorded/nvidia-h200/casper_sparse"
    records.write_machine(folder, MACHINE)
    timer = FakeTimer()
    rows = [
        run.row(p, name, "wide", *result, gpu="NVIDIA H200", when="2026-11-21T10:00:00+00:00")
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
        ({"seed": 0.5}, "seed is 0.5"),
        ({"room": "../etc"}, "room is '../etc'"),
        ({"gpu": "nvidia-h2000", "mode": "recorded"}, "no records of a GPU 'nvidia-h2000'"),
        ({"room": "attic", "mode": "recorded"}, "no records of room 'attic' on nvidia-h200"),
    ],
)
def test_an_unknown_parameter_is_named(no_gpu, parameter, message):
    with pytest.raises((ValueError, FileNotFoundError), match=message) as caught:
        run.start(**{"room": "casper_sparse"} | parameter)
    assert "\n" not in str(caught.value)


def test_nothing_is_measured_with_a_hang_trap(gpu, monkeypatch):
    monkeypatch.setenv("SPARSITY_HANG_TRAP", "1")
    with pytest.raises(ValueError, match="a hang trap, .* as SPARSITY_HANG_TRAP is set: unset it"):
        run.start("casper_sparse", mode="measure")
    assert not gpu.folder.exists()


# ---------------------------------------------------------------- measuring


def test_every_point_is_measured_and_recorded(gpu, capsys):
    timer = gpu.use(FakeTimer())
    df = run.start("casper_sparse", mode="measure").measure("wide", problems(), CONTENDERS)
    assert timer.calls == list(SHAPES)
    assert list(df.columns) == list(records.COLUMNS)
    assert list(zip(df["n"], df["variant"], strict=True)) == [(n, name) for n in SHAPES for name in CONTENDERS]
    pd.testing.assert_frame_equal(df, records.read(gpu.folder / "wide.csv"))
    first = df.iloc[0]
    assert first["tflops"] == pytest.approx(2 * 12 * 4 / 10e-6 / 1e12)
    assert first["gbps"] == pytest.approx(1000 / 10e-6 / 1e9)
    assert first["prepare_bytes"] == 512 and first["experiment"] == "wide"
    lines = capsys.readouterr().out.splitlines()[1:]
    assert [line.split(":")[0] for line in lines] == [f"casper_sparse/wide {i}/3" for i in (1, 2, 3)]
    assert "m=8, n=4, k=6, density=0.25: 2 contenders, fastest warp_per_row 10.0 µs" in lines[0]


def test_the_timer_is_ours_unless_another_is_asked_for(gpu):
    timer = gpu.use(FakeTimer())
    made = run.start("casper_sparse", mode="measure")
    made.measure("wide", problems(), CONTENDERS)
    assert timer.timer is bench.time
    made.measure("calls", problems(), CONTENDERS, timer=bench.time_calls)
    assert timer.timer is bench.time_calls and timer.calls == [*SHAPES, *SHAPES]


def test_the_baselines_of_a_room_are_its_contenders(gpu, no_gpu):
    measuring = run.start("casper_sparse", mode="measure")
    assert list(measuring.baselines())[0] == "cusparse_default"
    assert list(measuring.baselines(["cublas", "cpu"]))[:2] == ["cublas", "cpu_loop"]
    recorded = run.start("casper_sparse", mode="recorded")
    assert list(recorded.baselines()) == list(measuring.baselines()), "the names suffice"
    with pytest.raises(ValueError, match="no baseline 'mkl'; known: cpu, cublas"):
        measuring.baselines(["mkl"])


def test_an_interrupted_measurement_goes_on_where_it_stopped(gpu, capsys):
    gpu.use(FakeTimer(fail_at=2, error=KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        run.start("casper_sparse", mode="measure").measure("wide", problems(), CONTENDERS)
    path = gpu.folder / "wide.csv"
    assert sorted(set(records.read(path)["n"])) == [4, 8]
    with pytest.raises(ValueError, match="wide was interrupted after 2 of 3 points: make measure"):
        records.complete(records.read(path), path)

    gpu.machine["date"] = "2026-11-22T10:00:00+00:00"
    timer = gpu.use(FakeTimer())
    df = run.start("casper_sparse", mode="measure").measure("wide", problems(), CONTENDERS)
    assert timer.calls == [16] and len(records.complete(df, path)) == 6
    assert "2 of 3 points are already there" in capsys.readouterr().out


def test_another_seed_is_measured_anew_and_replaces_the_old(gpu):
    run.start("casper_sparse", mode="measure").measure("wide", problems(), CONTENDERS)
    timer = gpu.use(FakeTimer())
    made = run.start("casper_sparse", mode="measure", seed=1)
    df = made.measure("wide", problems(seed=1), CONTENDERS)
    assert timer.calls == list(SHAPES) and set(df["seed"]) == {1} and len(df) == 6


def test_a_new_contender_measures_the_whole_point_again(gpu):
    run.start("casper_sparse", mode="measure").measure("wide", problems(), CONTENDERS)
    timer = gpu.use(FakeTimer())
    more = CONTENDERS | {"any_n": None}
    df = run.start("casper_sparse", mode="measure").measure("wide", problems(), more)
    assert timer.calls == list(SHAPES), "interleaved, or it would not be a comparison"
    assert len(df) == len(records.read(gpu.folder / "wide.csv")) == 9


def test_records_of_another_machine_are_set_aside(gpu, capsys):
    run.start("casper_sparse", mode="measure").measure("wide", problems(), CONTENDERS)
    gpu.machine["driver"] = "590.0"
    timer = gpu.use(FakeTimer())
    made = run.start("casper_sparse", mode="measure")
    assert "wide.csv comes from other code or another machine" in capsys.readouterr().out
    assert not (gpu.folder / "wide.csv").exists() and not records.read_plan(gpu.folder)
    assert len((gpu.folder / "wide.csv.stale").read_text().splitlines()) == 1 + 6
    made.measure("wide", problems(), CONTENDERS)
    assert timer.calls == list(SHAPES)


def test_a_machine_is_the_same_if_nothing_that_changes_a_number_differs(tmp_path):
    (tmp_path / "wide.csv").write_text("kept or set aside, never read")
    records.write_machine(tmp_path, MACHINE)
    assert not run.set_aside(tmp_path, MACHINE | {"date": "2027", "commit": "f", "python": "4"}, 0)
    for name in (
        "gpu",
        "sources",
        "driver",
        "cuda",
        "cublas",
        "cusparse",
        "cusparselt",
        "cpu",
        "cpu_cores",
        "packages",
    ):
        assert run.set_aside(tmp_path, MACHINE | {name: "another"}, 0) == ["wide.csv"], name
        (tmp_path / "wide.csv.stale").rename(tmp_path / "wide.csv")


def test_points_that_differ_little_are_two(gpu):
    """Densities of 0.5 and 1 % are, like 24.9 and 25 %, not one point."""
    near = [lambda d=d: replace(make_problem(4), density=d) for d in (0.249, 0.25, 0.2501)]
    timer = gpu.use(FakeTimer())
    made = run.start("casper_sparse", mode="measure")
    made.measure("wide", near[:1], CONTENDERS)
    df = made.measure("wide", near, CONTENDERS)
    assert timer.calls == [4, 4, 4] and list(df["density"]) == [0.249] * 2 + [0.25] * 2 + [0.2501] * 2
    read = run.start("casper_sparse", mode="recorded", records=gpu.folder.parent.parent)
    with pytest.raises(ValueError, match="no warp_per_row"):
        read.measure("wide", [replace(make_problem(4), density=0.2499)], ["warp_per_row"])


def test_the_second_measurement_lies_beside_the_first(gpu):
    run.start("casper_sparse", mode="measure").measure("wide", problems(), CONTENDERS)
    timer = gpu.use(FakeTimer())
    again = run.start("casper_sparse", mode="measure", repeat=True)
    again.measure("wide", problems(), CONTENDERS)
    assert timer.calls == list(SHAPES)
    assert again.folder == gpu.folder / "repeat" and (again.folder / "wide.csv").exists()
    root = gpu.folder.parent.parent
    assert records.list_gpus(root) == ["nvidia-h200"]
    assert records.rooms(root / "nvidia-h200") == ["casper_sparse"]
    read = run.start("casper_sparse", mode="recorded", records=root, repeat=True)
    assert len(read.measure("wide", problems(), CONTENDERS)) == 6


# ---------------------------------------------------------------- recorded


def test_recorded_rows_are_those_that_were_asked_for_in_their_order(no_gpu):
    made = run.start("casper_sparse", mode="recorded", preset="kick")
    df = made.measure("wide", [make_problem(16), make_problem(4)], ["cusparse_alg2"])
    assert list(df["n"]) == [16, 4] and set(df["variant"]) == {"cusparse_alg2"}
    assert list(df.index) == [0, 1]


@pytest.mark.parametrize(
    ("problem", "names", "message"),
    [
        (
            make_problem(5),
            ["warp_per_row"],
            "no warp_per_row at m=8, n=5, k=6, density=0.25, seed=0",
        ),
        (make_problem(4, seed=7), ["warp_per_row"], "seed=7"),
        (make_problem(4, label="cage4"), ["warp_per_row"], "at cage4, m=8"),
        (make_problem(4), ["warp_per_row", "no_such", "nor_this"], "no no_such at .* and 1 more"),
    ],
)
def test_a_point_that_was_not_recorded_is_named(no_gpu, problem, names, message):
    made = run.start("casper_sparse", mode="recorded")
    with pytest.raises(ValueError, match=message) as caught:
        made.measure("wide", [problem], names)
    assert "casper_sparse/wide on nvidia-h200" in str(caught.value)


# ---------------------------------------------------------------- one point


class Contender:
    """A contender on the CPU, right up to a factor, from the given launch on."""

    prepare_ms, prepare_bytes = 1.5, 64

    def __init__(self, name, problem, factor=1.0, wrong_from=0):
        self.name, self.problem, self.factor, self.wrong_from = name, problem, factor, wrong_from
        self.launches = 0
        self.output = np.zeros((problem.m, problem.n), np.float32)

    def launch(self, stream):
        operands = self.problem.host()
        factor = self.factor if self.launches >= self.wrong_from else 1
        self.output[...] = factor * (csr.to_dense(operands.a) @ operands.b)
        self.launches += 1

    def result(self):
        return self.output


@pytest.fixture
def one_point(monkeypatch):
    """A real check on the CPU under `run.measure_point`; only the timer is fake."""
    a = csr.Csr(
        3,
        4,
        np.array([0, 2, 2, 4], np.int32),
        np.array([3, 1, 0, 0], np.int32),
        np.array([1, 2, 3, 4], np.float32),
    )
    operands = Operands(a, np.arange(1, 9, dtype=np.float32).reshape(4, 2))
    problem = replace(make_problem(2, 3, 4), nnz=4, useful_flops=16, make_host=lambda: operands)
    log = []

    original = check.oracle
    monkeypatch.setattr(check, "oracle", lambda p, **more: original(p, on="cpu", **more))
    monkeypatch.setattr(run, "_free_memory", lambda: log.append("freed"))
    stream = SimpleNamespace(sync=lambda: None, close=lambda: log.append("closed"))

    def timer(bounds, opened, *, budget_s, verify):
        log.append((list(bounds), budget_s))
        for name, bound in bounds.items():
            verify(name, lambda bound=bound: bound.launch(None))
        return {n: bench.Timing(5.0, 4.0, 6.0, 7, math.nan, math.nan, "", False) for n in bounds}

    return problem, SimpleNamespace(create_stream=lambda: stream), log, timer


def test_a_point_is_checked_then_timed_then_freed(one_point):
    problem, opened, log, timer = one_point
    right = {name: lambda p, name=name: Contender(name, p) for name in ("a", "b")}
    result = run.measure_point(problem, right, opened, 0.1, timer)
    # Its reference; each of two, and all, on whole numbers; the heats; everything.
    assert log == [
        "freed",
        "freed",
        "freed",
        "closed",
        "freed",
        (["a", "b"], 0.1),
        "closed",
        "freed",
    ]
    assert problem._host is None
    prepared, errors, timing = result["a"]
    assert prepared == run.Prepared(1.5, 64) and timing.median_us == 5 and errors.rel_err < 1e-6
    assert 0 <= errors.bound <= 1


def test_on_whole_numbers_each_is_made_ready_when_the_one_before_is_gone(one_point):
    """Bound anew, since what a bind makes of A holds its numbers; and before it is bound to the problem itself."""
    import weakref

    problem, opened, log, timer = one_point
    made = []

    def bind(p):
        gc.collect()
        alive = [one for one in made if one() is not None]
        if p is problem:
            assert all(one().problem is problem for one in alive)
        else:
            assert not alive and p.nnz == problem.nnz
            assert not (p.host().a.val == problem.host().a.val).all()
        bound = Contender("a", p)
        made.append(weakref.ref(bound))
        return bound

    run.measure_point(problem, {"a": bind, "b": bind}, opened, 0.1, timer)
    assert len(made) == 4


@pytest.mark.parametrize("off", [1, 2**-20])
def test_what_is_wrong_on_whole_numbers_only_is_wrong(one_point, off):
    """Where random ones hide it: a product that is lost in rounding, TF32 in place of float32."""
    problem, opened, log, timer = one_point

    class Rounds(Contender):
        def launch(self, stream):
            super().launch(stream)
            if self.problem is not problem:
                self.output[2, 1] += np.float32(off) * abs(self.output[2, 1] or 1)

    with pytest.raises(check.WrongResult) as caught:
        run.measure_point(problem, {"rounds": lambda p: Rounds("rounds", p)}, opened, 0.1, timer)
    assert str(caught.value).startswith(
        "rounds on whole numbers at m=3, n=2, k=4, 4 non-zeros is wrong: 1 of 6 elements are not the product, "
        "which is exact there; the first one, at row 2, column 1, is "
    )
    assert log[-1] == "freed" and "closed" in log and problem._host is None


def test_a_row_has_every_number_in_its_place():
    problem = replace(make_problem(8, 5, 6, seed=3, label="cage4"), least_bytes=300, requested_bytes=700)
    timing = bench.Timing(2.0, 1.5, 3.0, 9, 1980.0, 420.0, "power brake", True)
    row = run.row(
        problem,
        "any_n",
        "wide",
        run.Prepared(0.25, 512),
        check.Errors(1e-7, 2e-6, 0.25),
        timing,
        gpu="NVIDIA H200",
        when=MACHINE["date"],
    )
    assert list(row.items()) == [
        ("room", "casper_sparse"),
        ("experiment", "wide"),
        ("variant", "any_n"),
        ("label", "cage4"),
        ("m", 5),
        ("n", 8),
        ("k", 6),
        ("density", 0.25),
        ("nnz", 12),
        ("seed", 3),
        ("median_us", 2.0),
        ("q25_us", 1.5),
        ("q75_us", 3.0),
        ("samples", 9),
        ("flops_def", "2·nnz·N"),
        ("useful_flops", 192),
        ("tflops", 192 / 2e-6 / 1e12),
        ("least_bytes", 300),
        ("requested_bytes", 700),
        ("gbps", 300 / 2e-6 / 1e9),
        ("rel_err", 1e-7),
        ("max_err", 2e-6),
        ("bound", 0.25),
        ("prepare_ms", 0.25),
        ("prepare_bytes", 512),
        ("graph", True),
        ("sm_mhz", 1980.0),
        ("power_w", 420.0),
        ("throttle", "power brake"),
        ("gpu", "NVIDIA H200"),
        ("when", "2026-11-21T10:00:00+00:00"),
    ]
    assert list(row) == list(records.COLUMNS)


def test_a_contender_that_is_wrong_only_after_its_first_launch_is_caught(one_point):
    """What it leaves behind, flags or sums say, spoils the launches that are timed."""
    problem, opened, log, timer = one_point
    contenders = {
        "right": lambda p: Contender("right", p),
        "late": lambda p: Contender("late", p, 1.01, wrong_from=1),
    }
    with pytest.raises(check.WrongResult, match="late after timing at m=3, n=2.* is wrong"):
        run.measure_point(problem, contenders, opened, 0.1, timer)
    assert [entry for entry in log if entry != "freed"] == [
        "closed",
        (["right", "late"], 0.1),
        "closed",
    ]


@pytest.mark.parametrize("operand", ["a", "b"])
def test_a_bind_that_changes_the_operands_does_not_reach_the_reference(one_point, operand):
    problem, opened, _, timer = one_point

    def spoil(p):
        if p is not problem:
            return Contender("spoils", p)
        (p.host().a.val if operand == "a" else p.host().b)[1] *= 2
        return Contender("spoils", p)

    with pytest.raises(check.WrongResult, match="spoils at .* is wrong"):
        run.measure_point(problem, {"spoils": spoil}, opened, 0.1, timer)


# ---------------------------------------------------------------- banner


def test_the_banner_says_what_was_done_where_and_when(no_gpu):
    text = prose.banner(run.start("casper_sparse"))
    assert "Recorded on an NVIDIA H200, 2026-11-21, commit abc1234." in text
    assert "This machine has no GPU" in text and 'class="admonition note"' in text
    asked = prose.banner(run.start("casper_sparse", mode="recorded"))
    assert "no GPU" not in asked and "asked for" in asked


def test_the_banner_says_what_was_added_by_another_commit(no_gpu):
    found = run.start("casper_sparse")
    assert "Added" not in prose.banner(found)
    part = {
        "experiments": ["wide", "tall"],
        "date": "2026-12-01T00:00",
        "commit": "def",
        "sources": "0",
    }
    found.machine = found.machine | {"later": [part]}
    assert "read from records. Added on 2026-12-01 by commit def: wide, tall.<" in prose.banner(found)


# ---------------------------------------------------------------- on a GPU


@pytest.mark.gpu
@pytest.mark.alone
def test_a_small_measurement_from_beginning_to_end(tmp_path, capsys):
    """Measure two points, go on after an interruption, and read them back as shipped records."""
    from artifact.baselines import cusparse
    from kernels import casper_sparse as room

    made = run.start("casper_sparse", "measure", preset="kick", seed=5, records=tmp_path)
    shapes = [{"m": 1000, "n": n, "k": 512, "density": 0.05} for n in (64, 128)]
    points = [lambda s=s: room.problem(**s, seed=5) for s in shapes]
    contenders = made.variants() | cusparse.contenders(made.device)
    first = made.measure("wide", points[:1], contenders)
    assert len(first) == len(room.VARIANTS) + len(cusparse.ALGORITHMS)
    assert (first["rel_err"] < check.LIMITS["float32"].rel_err).all()
    assert (first["median_us"] > 1).all() and (first["samples"] >= bench.MIN_SAMPLES).all()
    assert (first["sm_mhz"] > 100).all()

    both = made.measure("wide", points, contenders)
    pd.testing.assert_frame_equal(both.iloc[: len(first)], first)
    assert "1 of 2 points are already there" in capsys.readouterr().out

    read = run.start("casper_sparse", "recorded", made.gpu, "kick", 5, tmp_path)
    pd.testing.assert_frame_equal(read.measure("wide", points, list(contenders)), both)
