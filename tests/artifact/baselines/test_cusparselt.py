"""cuSPARSELt: compression, and which of its algorithms, ways to split and searches wins."""

from types import SimpleNamespace

import pytest
from fake_libraries import (
    DEVICE,
    STREAM,
    SplitKMode,
    Timer,
    two_four_problem,
)

from artifact.baselines import cusparselt
from artifact.measure import bench, verification
from kernels.tensor_core_24 import operands

runtime = pytest.importorskip("cuda.bindings.runtime")

M, N, K = 16, 24, 32
#: What a bound contender holds: a handle, three matrices, their product, a selection and a plan.
HELD = 7


@pytest.fixture
def library(libraries):
    return libraries.sparse_lt


@pytest.fixture
def problem(library):
    return two_four_problem(M, N, K)


def number(choice: str) -> int:
    return int(choice.split()[1].rstrip(","))


# ---------------------------------------------------------------- what is computed


def test_the_library_compresses_and_the_second_time_counts(monkeypatch, library, problem):
    clock = iter((10.0, 10.25))  # the first time is not looked at
    monkeypatch.setattr("kernels.contract.time.perf_counter", lambda: next(clock))
    bound = cusparselt.prepare("best", problem, DEVICE)
    assert len(library.calls("compress")) == 2
    assert bound.prepare_ms == 250
    assert bound.prepare_bytes == 2 * M * K, "compressed A; algorithm 0 needs no workspace"


# ---------------------------------------------------------------- which algorithm


def test_the_default_is_algorithm_0_and_nothing_is_timed(monkeypatch, library, problem):
    timer = Timer(monkeypatch, lambda name, turn: 1.0)
    bound = cusparselt.prepare("default", problem, DEVICE)
    assert bound.name == "cusparselt_default" and bound.choice.startswith("algorithm 0, split-K 1")
    assert not timer.seen and not library.launched


def test_the_fastest_is_kept_whatever_the_search_finds(monkeypatch, library, problem):
    timer = Timer(monkeypatch, lambda name, turn: {0: 3.0, 1: 2.0, 4: 1.0}[number(name)])
    bound = cusparselt.prepare("best", problem, DEVICE)
    # 2 cannot be planned, 3 not launched, 5 is none.
    assert {number(name) for name in timer.seen[0]} == {0, 1, 4}
    assert bound.name == "cusparselt" and bound.choice == "algorithm 4, split-K 1, HEURISTIC"
    bound.launch(SimpleNamespace(handle=11))
    assert library.launched[-1] == (4, SplitKMode.HEURISTIC, 11)


def test_what_the_search_finds_is_a_candidate(monkeypatch, library, problem):
    Timer(monkeypatch, lambda name, turn: 1.0 if "search" in name else 2.0)
    bound = cusparselt.prepare("best", problem, DEVICE)
    assert bound.choice == "algorithm 1, split-K 1, HEURISTIC, as the library's search left it"
    bound.launch(SimpleNamespace(handle=11))
    assert library.launched[-1][0] == 1


def test_a_search_that_ends_at_a_larger_workspace_gets_it(monkeypatch, library, problem):
    library.searches = 4
    Timer(monkeypatch, lambda name, turn: 1.0 if "search" in name else 2.0)
    bound = cusparselt.prepare("best", problem, DEVICE)
    assert bound.prepare_bytes == 2 * M * K + 64
    verification.check(bound, problem, verification.oracle(problem, on="cpu"), STREAM)


def test_a_search_that_fails_leaves_the_others(monkeypatch, library, problem):
    library.refuse = "search"
    timer = Timer(monkeypatch, lambda name, turn: float(number(name)))
    bound = cusparselt.prepare("best", problem, DEVICE)
    assert number(bound.choice) == 0 and len(timer.seen[0]) == 3
    assert len(library.alive) == HELD


def test_ways_to_split_k_are_tried_on_the_fastest(monkeypatch, library, problem):
    us = {0: 3.0, 1: 2.0, 4: 9.0}
    timer = Timer(
        monkeypatch,
        lambda name, turn: 1.0 if "0, split-K -1, STREAMK" in name else us[number(name)],
    )
    bound = cusparselt.prepare("best", problem, DEVICE)
    assert bound.choice == "algorithm 0, split-K -1, STREAMK"
    assert not any("STREAMK" in name for name in timer.seen[0])
    # Of the three that lead, two are algorithm 1. Each of both has seven more ways on Hopper.
    assert len(timer.seen[2]) == 3 + 2 * 7
    bound.launch(STREAM)
    assert library.launched[-1][1] == SplitKMode.STREAMK


def test_only_those_that_lead_are_timed_again_and_then_that_counts(monkeypatch):
    rough = dict(zip("abcde", (5, 1, 2, 3, 4), strict=True))
    timer = Timer(monkeypatch, lambda name, turn: rough[name] if turn == 0 else -rough[name])
    contenders = {name: SimpleNamespace(launch=lambda stream: None) for name in rough}
    assert cusparselt.fastest(contenders, DEVICE) == ["d", "c", "b"]
    assert [sorted(seen) for seen in timer.seen] == [list("abcde"), list("bcd")]


# ---------------------------------------------------------------- on a GPU


@pytest.mark.gpu
@pytest.mark.alone
def test_the_best_is_not_slower_than_the_default(device):
    problem = operands.problem(2048, 2048, 2048)
    bounds = {name: make(problem) for name, make in cusparselt.contenders(device).items()}
    times = {name: t.median_us for name, t in bench.time(bounds, device).items()}
    assert times["cusparselt"] < 1.05 * times["cusparselt_default"], times
