"""From candidates to a choice: who is timed, who is skipped and why, and what is written down."""

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import numpy as np
import pytest
import racing

from kernels import autotune, jit
from kernels.autotune import Choices, Rounds, choices, probe, search

DEVICE = racing.H200
ROUNDS = Rounds(first=4, final=9, finalists=2, short_us=40, factor=3)
RIGHT = np.arange(1, 13, dtype=np.float32).reshape(3, 4)
PROBLEM = SimpleNamespace(numbers="drawn", k=4, nnz=12_000, limit="")
#: numbers of a problem -> its product. Signs cancel in one element.
PRODUCTS = {"drawn": RIGHT, "unsigned": RIGHT + 1000 * (RIGHT == 7), "whole": 100 * RIGHT}


@dataclass(frozen=True)
class Knobs:
    number: int = 0


@dataclass
class System:
    """Candidates 0 to 4, of which one takes 100 us, and each of the next 10 more; `odd` ones do otherwise."""

    monkeypatch: pytest.MonkeyPatch
    output: np.ndarray
    odd: dict[int, Callable] = field(default_factory=dict)
    inexact: dict[int, Callable] = field(default_factory=dict)  #: what odd ones do with whole numbers
    refused: dict[int, Exception] = field(default_factory=dict)
    us: Callable = lambda number, rounds: 100.0 + 10 * number
    count: int = 5

    def __post_init__(self):
        self.track = racing.track(self.monkeypatch, lambda c, rounds: self.us(c.number, rounds), launch=True)
        for name, numbers in (("magnitudes", "unsigned"), ("exact", "whole")):
            made = SimpleNamespace(**vars(PROBLEM) | {"numbers": numbers})
            self.monkeypatch.setattr(probe, name, lambda problem, made=made: made)
        self.monkeypatch.setattr(probe, "jobs", lambda problem: [(probe, "check")])

    def bound(self, problem, launched=None):
        """Writes a problem's product to the output that all share, or does what `launched` says."""
        launched = launched or partial(np.copyto, src=PRODUCTS[problem.numbers])
        return SimpleNamespace(
            name="simple", prepare_ms=1.0, launch=lambda stream: launched(self.output), result=lambda: self.output
        )

    def prepare(self, problem, config):
        if config.number in self.refused:
            raise self.refused[config.number]
        return self.bound(problem, (self.inexact if problem.numbers == "whole" else self.odd).get(config.number))

    def tune(self, references=(), **more):
        configs = [Knobs(number) for number in range(self.count)]
        return search.tune(PROBLEM, configs, self.prepare, references or [self.bound], DEVICE, ROUNDS, **more)

    def told(self, **more):
        """(the winner's number, or the error; what is said of candidates that are skipped, by their number)"""
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                found = self.tune(**more).config.number
            except (ValueError, RuntimeError) as error:
                found = error
        said = [str(w.message).removeprefix("the tuner skips number=") for w in caught]
        return found, dict(x.split(": ", 1) for x in said)

    @property
    def raced(self) -> list[list[int]]:
        return [[config.number for config in configs] for configs, _ in self.track.heats]


@pytest.fixture
def system(monkeypatch, by_the_host):
    return System(monkeypatch, by_the_host(np.zeros_like(RIGHT)))


# ------------------------------------------------------------------------------------------- heats


def test_the_best_few_are_timed_again_and_that_decides(system):
    system.count, system.us = 20, lambda number, rounds: 90.0 if (number, rounds) == (15, 9) else 200.0 - number
    winner = system.tune()
    assert (winner.config, winner.median_us) == (Knobs(15), 90.0)
    assert [rounds for _, rounds in system.track.heats] == [4, 9]
    assert system.raced == [[*range(20)], [19, 18, 17, 16, 15, 14]], "finalists times factor"
    assert winner.bound.result() is system.output and winner.spent_ms > 0


@pytest.mark.parametrize(
    ("us", "hot", "heats"),
    [(40.0, [0.0, ROUNDS.hot_s], [(5, 4), (5, 9)]), (39.9, [0.0] * 3, [(5, 4), (5, 12), (5, 81)])],
)
def test_short_launches_are_timed_more_often_and_long_ones_hot(system, us, hot, heats):
    """Below 40 us, which candidate is ahead is a matter of the clock's noise; of equal ones it is the first."""
    system.us = lambda number, rounds: us
    assert system.told() == (0, {})
    assert system.track.hot == hot and [(len(configs), rounds) for configs, rounds in system.track.heats] == heats


def test_what_is_known_to_be_compiled_is_compiled_at_once(system, monkeypatch):
    """And what does not compile is said where it is bound, with the candidate's name."""
    jobs, error = [(Path("a.cu"), "a<1>"), (Path("b.cu"), "b<2>")], jit.CompileError("a<1> does not compile\nline 1")
    system.tune(jobs=jobs)
    assert set(system.track.compiled) == {(*job, "sm_90a") for job in (*jobs, (probe, "check"))}

    monkeypatch.setattr(jit, "compile_cubin", Mock(side_effect=error))
    system.refused[0] = error
    assert system.told(jobs=jobs) == (1, {"0": "a<1> does not compile"})


# ---------------------------------------------------------------------------------- wrong results


LEAVES_A_ROW = lambda output: np.copyto(output[:2], RIGHT[:2])  # noqa: E731
WRONG = {
    "off": lambda output: np.copyto(output, RIGHT * np.where(RIGHT == 6, np.float32(1.01), np.float32(1))),
    "leaves a row": LEAVES_A_ROW,
    "adds": lambda output: np.add(output, RIGHT, out=output),
    "nothing": lambda output: None,
}


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
def test_a_wrong_candidate_is_never_timed_however_fast_it_is(system, wrong):
    system.odd[0] = wrong
    winner, said = system.told()
    assert winner == 1 and said.keys() == {"0"} and all(0 not in raced for raced in system.raced)
    assert said["0"].startswith("its output is not that of simple: ") and "of 12 elements differ" in said["0"]


def test_a_candidate_that_is_wrong_after_its_launches_is_not_chosen(system):
    """Its first launch is right: flags that are not reset show in later ones."""
    factors = iter((1, 2))
    system.odd[0] = lambda output: np.copyto(output, next(factors) * RIGHT)
    winner, said = system.told()
    assert winner == 1 and said["0"].startswith("its output is not that of") and not [*factors]
    system.odd, system.us = {0: LEAVES_A_ROW, 1: LEAVES_A_ROW}, lambda number, rounds: 100.0 - number
    assert system.told()[0] == 4


def test_an_element_is_held_to_the_magnitudes_of_its_own_products(system):
    """Signs cancel in the seventh: sums in another order are far off there, and nowhere else."""
    limit = probe.allowed("float32", "float32", 4, outputs=2).limit

    def off_by(column, share):
        def launched(output):
            np.copyto(output, RIGHT)
            output[1, column] += np.float32(share * limit * PRODUCTS["unsigned"][1, column])

        return launched

    system.odd = {0: off_by(2, 2), 1: off_by(3, 2), 2: off_by(2, 0.8), 3: off_by(3, 0.8)}
    winner, said = system.told()
    assert winner == 2 and said.keys() == {"0", "1"}


def test_what_no_limit_shows_shows_on_whole_numbers(system):
    """The fastest rounds as TF32 does: its errors are within the limit, and its bits are others. Only who wins is tried
    so."""
    launched = []

    def nearly(number, output):
        launched.append(number)
        np.copyto(output, PRODUCTS["whole"])
        output[2, 3] = np.nextafter(output[2, 3], np.float32(math.inf))

    system.inexact[0] = partial(nearly, 0)
    said = "its output is not that of simple on whole numbers: 1 of 12 elements differ, the first at row 2, column 3"
    assert system.told() == (1, {"0": said}) and launched == [0]
    system.inexact = {number: partial(nearly, number) for number in range(5)}
    error, _ = system.told()
    assert isinstance(error, RuntimeError) and f"number=4: {said}" in str(error)


def test_without_room_for_a_second_problem_the_winner_is_taken_as_it_is(system, monkeypatch):
    monkeypatch.setattr(probe, "exact", Mock(side_effect=MemoryError("out of memory allocating 8 bytes")))
    with pytest.warns(UserWarning, match="^the tuner tries no whole numbers: out of memory allocating 8 bytes$"):
        assert system.tune().config == Knobs(0)


# ------------------------------------------------------------------------------------- failures


def test_a_candidate_that_fails_is_skipped_and_named(system):
    system.refused = {0: ValueError("number is 0, but must be more"), 2: MemoryError()}
    system.odd[1] = Mock(side_effect=RuntimeError("CUDA_ERROR_INVALID_VALUE"))
    assert system.told() == (
        3,
        {"0": "number is 0, but must be more", "1": "CUDA_ERROR_INVALID_VALUE", "2": "MemoryError"},
    )
    assert system.raced[0] == [3, 4]


@pytest.mark.parametrize(("kind", "raised"), [(ValueError, ValueError), (jit.CompileError, RuntimeError)])
def test_only_where_all_fail_it_is_an_error_with_every_reason(system, kind, raised):
    """A ValueError is what `prepare` raises where a problem is not taken; anything else is a fault."""
    system.refused = {i: ValueError(f"no {i}") for i in range(4)} | {4: kind("no 4")}
    error, _ = system.told()
    assert type(error) is raised and not system.track.heats
    assert str(error) == "all 5 candidates failed: " + "; ".join(f"number={i}: no {i}" for i in range(5))


def test_the_first_reference_that_runs_says_what_is_right(system):
    refuses = Mock(side_effect=ValueError("n is too large"))
    assert system.told(references=[refuses, system.bound]) == (0, {})
    error, _ = system.told(references=[refuses, refuses])
    assert str(error).endswith("since no reference runs: n is too large; n is too large")


# -------------------------------------------------------------------------------- choices are kept


@pytest.fixture
def choose(system, tmp_path, monkeypatch):
    """`autotune.choose` of a system's choices, in folders of their own, one kernel."""
    monkeypatch.setenv("SPARSITY_CHOICES", str(tmp_path / "own"))
    (tmp_path / "kernel.cu").write_text("__global__ void kernel() {}\n")
    kinds = {"m": int, "dtype": str}, {"fp32": Knobs}, lambda _: [tmp_path / "kernel.cu"]
    kept = Choices("room", tmp_path / "shipped", *kinds)
    return partial(autotune.choose, kept, (512, "bfloat16"), DEVICE, fits=lambda config: True, make=system.tune)


def test_what_was_chosen_once_is_not_tried_again(choose, system, tmp_path):
    config, spent_ms = choose()
    assert config == Knobs(0) and spent_ms > 0 and len(system.raced) == 2
    assert choose() == (Knobs(0), 0.0) and len(system.raced) == 2
    kept, key, _ = choose.args
    found = choices.read(kept, tmp_path / "own" / "room" / "nvidia-h200.csv")
    assert found == {key: choices.Choice(Knobs(0), 100.0, choices.digest(kept.sources(None)), jit.nvrtc_version())}
    # A named file is the only one that is looked at, and the one that is written.
    choose(file=tmp_path / "deep" / "other.csv")
    assert len(system.raced) == 4 and (tmp_path / "deep" / "other.csv").is_file() and not kept.shipped.exists()


def test_a_choice_that_cannot_be_kept_still_serves(choose, tmp_path):
    with pytest.warns(UserWarning, match="^the tuner's choice is not kept: "):
        assert choose(file=tmp_path / "kernel.cu" / "choices.csv")[0] == Knobs(0)


def test_times_of_kernels_with_a_hang_trap_are_not_kept(choose, tmp_path, monkeypatch):
    monkeypatch.setenv(jit.HANG_TRAP, "1")
    assert choose()[0] == Knobs(0) and not list(tmp_path.rglob("*.csv"))
