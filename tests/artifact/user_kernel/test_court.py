"""A trial: what is recorded, who is left out, how the contender stands, and its figure."""

from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import synthetic
from contenders import OnCpu, product
from refused import refused

from artifact import paths
from artifact.measure import bench, device, records, run, verification
from artifact.user_kernel import benchmark
from artifact.user_kernel.benchmark import Contender
from kernels import casper_sparse
from kernels.contract import Operands

INFO = device.DeviceInfo("NVIDIA H200", "nvidia-h200", 2**37)
TIMES = {"mine": 8.0, "warp_per_row": 20.0, "auto": 10.0, "cusparse_alg2": 16.0}


def refuse(name):
    def prepare(problem):
        raise ValueError(f"it takes no n of {problem.n}")

    return prepare


@pytest.fixture
def gpu(monkeypatch, tmp_path):
    """A machine that seems to have a GPU: times are those of TIMES, and a contender named in `wrong` is wrong."""
    wrong = set()

    def point(problem, contenders, opened, budget_s, timer=None):
        for name, prepare in contenders.items():
            prepare(problem)
            if name in wrong:
                raise verification.WrongResult(f"{name} at {verification.describe(problem)} is wrong: see row 0")
        return {
            name: (
                run.Prepared(0.5, 512),
                verification.Errors(1e-7, 1e-6),
                bench.Timing(t, 0.99 * t, 1.01 * t, 25, 1980.0, 500.0, "none", False),
            )
            for name, t in ((n, TIMES[n] * problem.n / 64) for n in contenders)
        }

    for where, name, what in (
        (device.DeviceInfo, "open", lambda self: "a device"),
        (device, "require", lambda: INFO),
        (device, "describe", lambda opened: synthetic.machine()),
        (device, "sources", lambda system: "0123456789ab"),
        (run, "measure_point", point),
        (paths, "BUILD", tmp_path / "build"),
    ):
        monkeypatch.setattr(where, name, what)
    return SimpleNamespace(wrong=wrong, root=tmp_path / "build" / "trials")


def contender(prepare=lambda problem, device: None) -> Contender:
    return Contender("mine", Path("mine.cu"), "0123", prepare)


@pytest.fixture
def begin(gpu):
    return lambda mine=None: benchmark.start(mine or contender(), "casper_sparse", "kick", 0)


def problems():
    return [casper_sparse.problem(m=64, n=n, k=64, density=0.1) for n in (64, 128)]


def others(*names):
    return dict.fromkeys(names or ("warp_per_row", "auto", "cusparse_alg2"), lambda problem: None)


def test_a_trial_is_recorded_beside_the_others_and_says_whose_source_it_was(gpu, begin):
    begun = begin()
    df = benchmark.measure(begun, contender(), problems(), others())
    assert list(df["variant"].unique()) == list(TIMES) and len(df) == 8
    assert list(benchmark.recorded(gpu.root)) == [("mine", "nvidia-h200", "casper_sparse")]
    assert records.read_machine(begun.folder)["contender"] == "mine.cu 0123"
    table = benchmark.standings(df, "mine")
    assert table["best"].tolist() == ["auto", "auto"] and table["verdict"].tolist() == ["faster"] * 2
    assert table["over_library"].tolist() == [2.0, 2.0]
    assert benchmark.verdict(table, "mine") == (
        "mine against the best at each of 2 points (auto): 1.25×, faster at 2. "
        "Over the fastest library (cusparse_alg2): 2.00×."
    )


def test_a_trial_that_begins_anew_knows_nothing_of_who_was_left_out_before(gpu, begin):
    """Nor how many points there were to be: both speak of a record that is set aside."""
    begun = begin()
    benchmark.measure(begun, contender(), problems(), others() | {"auto": refuse("auto")}, lambda _: None)
    spoken = [begun.folder / name for name in (records.PLAN, records.ABSENT)]
    assert all(path.is_file() for path in spoken)
    begin()
    assert not any(path.exists() for path in spoken)


@pytest.mark.parametrize("odd", [False, True])
def test_a_contender_is_tried_on_whole_numbers_before_anybody_is_measured(monkeypatch, odd, by_the_host):
    monkeypatch.setattr(verification, "oracle", partial(verification.oracle, on="cpu"))
    monkeypatch.setattr(run, "_free_memory", lambda: None)
    stream = SimpleNamespace(sync=lambda: None, close=lambda: None)
    opened = SimpleNamespace(create_stream=lambda: stream)
    (problem, _), bound = problems(), []
    host = problem.host()
    problem.make_device = lambda: Operands(*map(by_the_host, (host.a, host.b)))

    def prepare(p, device):
        """Of another problem than the first one it is off in one element, if `odd`."""
        bound.append(p)
        off = (np.arange(64 * 64).reshape(64, 64) == 3 * 64 + 4) * (odd and p is not problem)
        return OnCpu(p, lambda a, b: np.float32(product(a, b) + off), "mine")

    wrong = pytest.raises(verification.WrongResult, match="mine on whole numbers at .* row 3, column 4")
    with wrong if odd else nullcontext():
        benchmark.check_first(contender(prepare), problem, opened)
    assert len(bound) == (1 if odd else 2)


def test_who_does_not_take_a_problem_is_left_out_and_said(gpu, begin):
    begun, said = begin(), []
    gpu.wrong.add("cusparse_alg2")
    df = benchmark.measure(begun, contender(), problems()[:1], others() | {"auto": refuse("auto")}, said.append)
    assert list(df["variant"]) == ["mine", "warp_per_row"]
    assert said[0] == "left out: auto: it takes no n of 64" and "cusparse_alg2 at m=64" in said[1]
    (absent,) = records.read_absent(begun.folder).values()
    assert {key[0] for key in absent} == {"auto", "cusparse_alg2"}


@pytest.mark.parametrize("name", ["mine", "auto"])
def test_a_wrong_contender_gets_no_number_nor_does_a_wrong_kernel_of_ours(gpu, begin, name):
    gpu.wrong.add(name)
    begun = begin()
    refused(
        f"{name} at m=64", benchmark.measure, begun, contender(), problems(), others(), kind=verification.WrongResult
    )
    assert not (begun.folder / "trial.csv").exists()


def test_a_contender_that_does_not_take_the_problem_says_so(gpu, begin):
    mine = contender(lambda problem, device: refuse("mine")(problem))
    refused("it takes no n of 64", benchmark.measure, begin(mine), mine, problems(), others())


@pytest.mark.parametrize("name,taken", [("mine", False), ("auto", True), ("cusparse_mine", True)])
def test_names_that_are_taken(name, taken):
    with pytest.raises(ValueError, match=f"'{name}' already: .* --name") if taken else nullcontext():
        benchmark.refuse_name(replace(contender(), name=name), casper_sparse.VARIANTS)


@pytest.mark.parametrize(
    "low,median,high,verdict",
    [
        (0.891, 0.9, 0.909, "faster"),
        (1.005, 1.015, 1.025, "level"),
        (1.089, 1.1, 1.111, "slower"),
        # A median outside of the other's quartiles, of 0.99 to 1.01, is level while its own overlap.
        (0.90, 0.97, 1.0, "level"),
        (0.995, 1.03, 1.1, "level"),
        (0.97, 0.98, 0.99, "level"),  # quartiles that touch
        (1.01, 1.02, 1.03, "level"),
    ],
)
def test_level_is_whose_quartiles_overlap(low, median, high, verdict):
    """The contender stands for the published kernel of the synthetic records."""
    df = synthetic.experiment("wide", room="casper_sparse", experiment="trial")
    df = df.replace({"variant": {"warp_per_row": "mine"}}).set_index(list(records.POINT))
    best, mine = df["variant"] == "rows_per_warp", df["variant"] == "mine"
    for column, scale, ours in (("q25_us", 0.99, low), ("q75_us", 1.01, high), ("median_us", 1.0, median)):
        df.loc[mine, column] = df.loc[best, "median_us"].loc[df.index[mine]].to_numpy() * ours
        df.loc[best, column] = df.loc[best, "median_us"] * scale
    table = benchmark.standings(df.reset_index(), "mine")
    assert set(table["verdict"]) == {verdict} and np.allclose(table["over_best"], 1 / median)
