"""From candidates to a choice: who is timed, who is skipped and why, and what is written down."""

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import racing
from emulated import by_the_host  # noqa: F401

from kernels import jit, tuning
from kernels.tuning import Choices, Rounds, choices, outputs, probe, trials

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
class Room:
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
        for module in (outputs, probe):
            self.monkeypatch.setattr(module, "jobs", lambda problem, module=module: [(module, "check")])

    def bound(self, problem, launched=None):
        """Writes a problem's product to the output that all share, or does what `launched` says."""
        launched = launched or partial(np.copyto, src=PRODUCTS[problem.numbers])
        return SimpleNamespace(
            name="simple", prepare_ms=1.0, launch=lambda stream: launched(self.output), result=lambda: self.output
        )

    def bind(self, problem, config):
        if config.number in self.refused:
            raise self.refused[config.number]
        return self.bound(problem, (self.inexact if problem.numbers == "whole" else self.odd).get(config.number))

    def tune(self, references=(), **more):
        configs = [Knobs(number) for number in range(self.count)]
        return trials.tune(PROBLEM, configs, self.bind, references or [self.bound], DEVICE, ROUNDS, **more)

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
def room(monkeypatch, by_the_host):  # noqa: F811
    return Room(monkeypatch, by_the_host(np.zeros_like(RIGHT)))


# ------------------------------------------------------------------------------------------- heats


def test_the_best_few_are_timed_again_and_that_decides(room):
    room.count, room.us = 20, lambda number, rounds: 90.0 if (number, rounds) == (15, 9) else 200.0 - number
    winner = room.tune()
    assert (winner.config, winner.median_us) == (Knobs(15), 90.0)
    assert [rounds for _, rounds in room.track.heats] == [4, 9]
    assert room.raced == [[*range(20)], [19, 18, 17, 16, 15, 14]], "finalists times factor"
    assert winner.bound.result() is room.output and winner.spent_ms > 0


@pytest.mark.parametrize(
    ("us", "hot", "heats"),
    [(40.0, [0.0, ROUNDS.hot_s], [(5, 4), (5, 9)]), (39.9, [0.0] * 3, [(5, 4), (5, 12), (5, 81)])],
)
def test_short_launches_are_timed_more_often_and_long_ones_hot(room, us, hot, heats):
    """Below 40 us, which candidate is ahead is a matter of the clock's noise; of equal ones it is the first."""
    room.us = lambda number, rounds: us
    assert room.told() == (0, {})
    assert room.track.hot == hot and [(len(configs), rounds) for configs, rounds in room.track.heats] == heats


def test_what_is_known_to_be_compiled_is_compiled_at_once(room, monkeypatch):
    """And what does not compile is said where it is bound, with the candidate's name."""
    jobs, error = [(Path("a.cu"), "a<1>"), (Path("b.cu"), "b<2>")], jit.CompileError("a<1> does not compile\nline 1")
    room.tune(jobs=jobs)
    checks = [(outputs, "check"), (probe, "check")]
    assert set(room.track.compiled) == {(*job, "sm_90a") for job in (*jobs, *checks)}

    def broken(*job):
        raise error

    monkeypatch.setattr(jit, "compile_cubin", broken)
    room.refused[0] = error
    assert room.told(jobs=jobs) == (1, {"0": "a<1> does not compile"})


# ---------------------------------------------------------------------------------- wrong results


def off(output):
    np.copyto(output, RIGHT)
    output[1, 1] *= np.float32(1.01)


def leaves_a_row(output):
    output[:2] = RIGHT[:2]


def adds(output):
    output += RIGHT


@pytest.mark.parametrize("wrong", [off, leaves_a_row, adds, lambda output: None])
def test_a_wrong_candidate_is_never_timed_however_fast_it_is(room, wrong):
    room.odd[0] = wrong
    winner, said = room.told()
    assert winner == 1 and said.keys() == {"0"} and all(0 not in raced for raced in room.raced)
    assert said["0"].startswith("its output is not that of simple: ") and "of 12 elements differ" in said["0"]


def test_a_candidate_that_is_wrong_after_its_launches_is_not_chosen(room):
    """Its first launch is right: flags that are not reset show in later ones."""
    factors = iter((1, 2))
    room.odd[0] = lambda output: np.copyto(output, next(factors) * RIGHT)
    winner, said = room.told()
    assert winner == 1 and said["0"].startswith("its output is not that of") and not [*factors]
    room.odd, room.us = {0: leaves_a_row, 1: leaves_a_row}, lambda number, rounds: 100.0 - number
    assert room.told()[0] == 4


def test_an_element_is_held_to_the_magnitudes_of_its_own_products(room):
    """Signs cancel in the seventh: sums in another order are far off there, and nowhere else."""
    limit = outputs.allowed("float32", "float32", 4, outputs=2).limit

    def off_by(column, share):
        def launched(output):
            np.copyto(output, RIGHT)
            output[1, column] += np.float32(share * limit * PRODUCTS["unsigned"][1, column])

        return launched

    room.odd = {0: off_by(2, 2), 1: off_by(3, 2), 2: off_by(2, 0.8), 3: off_by(3, 0.8)}
    winner, said = room.told()
    assert winner == 2 and said.keys() == {"0", "1"}


def test_what_no_limit_shows_shows_on_whole_numbers(room):
    """The fastest rounds as TF32 does: its errors are within the limit, and its bits are others. Only who wins is tried
    so."""
    launched = []

    def nearly(number, output):
        launched.append(number)
        np.copyto(output, PRODUCTS["whole"])
        output[2, 3] = np.nextafter(output[2, 3], np.float32(math.inf))

    room.inexact[0] = partial(nearly, 0)
    said = "its output is not that of simple on whole numbers: 1 of 12 elements differ, the first at row 2, column 3"
    assert room.told() == (1, {"0": said}) and launched == [0]
    room.inexact = {number: partial(nearly, number) for number in range(5)}
    error, _ = room.told()
    assert isinstance(error, RuntimeError) and f"number=4: {said}" in str(error)


def test_without_room_for_a_second_problem_the_winner_is_taken_as_it_is(room, monkeypatch):
    def full(problem):
        raise MemoryError("out of memory allocating 8 bytes")

    monkeypatch.setattr(probe, "exact", full)
    with pytest.warns(UserWarning, match="^the tuner tries no whole numbers: out of memory allocating 8 bytes$"):
        assert room.tune().config == Knobs(0)


# ------------------------------------------------------------------------------------- failures


def test_a_candidate_that_fails_is_skipped_and_named(room):
    def crash(output):
        raise RuntimeError("CUDA_ERROR_INVALID_VALUE")

    room.refused, room.odd[1] = {0: ValueError("number is 0, but must be more"), 2: MemoryError()}, crash
    assert room.told() == (
        3,
        {"0": "number is 0, but must be more", "1": "CUDA_ERROR_INVALID_VALUE", "2": "MemoryError"},
    )
    assert room.raced[0] == [3, 4]


@pytest.mark.parametrize(("kind", "raised"), [(ValueError, ValueError), (jit.CompileError, RuntimeError)])
def test_only_where_all_fail_it_is_an_error_with_every_reason(room, kind, raised):
    """A ValueError is what `bind` raises where a problem is not taken; anything else is a fault."""
    room.refused = {i: ValueError(f"no {i}") for i in range(4)} | {4: kind("no 4")}
    error, _ = room.told()
    assert type(error) is raised and not room.track.heats
    assert str(error) == "all 5 candidates failed: " + "; ".join(f"number={i}: no {i}" for i in range(5))


def test_the_first_reference_that_runs_says_what_is_right(room):
    def refuses(problem):
        raise ValueError("n is too large")

    assert room.told(references=[refuses, room.bound]) == (0, {})
    error, _ = room.told(references=[refuses, refuses])
    assert str(error).endswith("since no reference runs: n is too large; n is too large")


# -------------------------------------------------------------------------------- choices are kept


@pytest.fixture
def choose(room, tmp_path, monkeypatch):
    """`tuning.choose` of a room's choices, in folders of their own, one kernel."""
    monkeypatch.setenv("SPARSITY_CHOICES", str(tmp_path / "own"))
    (tmp_path / "kernel.cu").write_text("__global__ void kernel() {}\n")
    kinds = {"m": int, "dtype": str}, {"fp32": Knobs}, lambda _: [tmp_path / "kernel.cu"]
    kept = Choices("room", tmp_path / "shipped", *kinds)
    return partial(tuning.choose, kept, (512, "bfloat16"), DEVICE, fits=lambda config: True, make=room.tune)


def test_what_was_chosen_once_is_not_tried_again(choose, room, tmp_path):
    config, spent_ms = choose()
    assert config == Knobs(0) and spent_ms > 0 and len(room.raced) == 2
    assert choose() == (Knobs(0), 0.0) and len(room.raced) == 2
    kept, key, _ = choose.args
    found = choices.read(kept, tmp_path / "own" / "room" / "nvidia-h200.csv")
    assert found == {key: choices.Choice(Knobs(0), 100.0, choices.digest(kept.sources(None)), jit.nvrtc_version())}
    # A named file is the only one that is looked at, and the one that is written.
    choose(file=tmp_path / "deep" / "other.csv")
    assert len(room.raced) == 4 and (tmp_path / "deep" / "other.csv").is_file() and not kept.shipped.exists()


def test_a_choice_that_cannot_be_kept_still_serves(choose, tmp_path):
    with pytest.warns(UserWarning, match="^the tuner's choice is not kept: "):
        assert choose(file=tmp_path / "kernel.cu" / "choices.csv")[0] == Knobs(0)


def test_times_of_kernels_with_a_hang_trap_are_not_kept(choose, tmp_path, monkeypatch):
    monkeypatch.setenv(jit.HANG_TRAP, "1")
    assert choose()[0] == Knobs(0) and not list(tmp_path.rglob("*.csv"))
