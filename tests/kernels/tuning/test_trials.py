"""From candidates to a choice: who is timed, who is skipped and why, and what is written down."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
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
PROBLEM = SimpleNamespace(numbers="drawn", k=4, nnz=12, limit="")
#: numbers of a problem -> its product. Signs cancel in one element.
PRODUCTS = {"drawn": RIGHT, "unsigned": RIGHT + 1000 * (RIGHT == 7), "whole": 100 * RIGHT}


@dataclass(frozen=True)
class Knobs:
    number: int = 0


class Bound:
    """Writes a problem's product to the output that all share, or does what `launched` says."""

    prepare_ms = 1.0

    def __init__(self, output, problem, launched: Callable | None = None, name: str = "simple"):
        self.output, self.name = output, name
        self.launched = launched or (lambda output: np.copyto(output, PRODUCTS[problem.numbers]))

    def launch(self, stream):
        self.launched(self.output)

    def result(self):
        return self.output


class Room:
    """Candidates 0 to 4, of which one takes 100 us, and each of the next 10 more; `odd` ones do otherwise."""

    def __init__(self, monkeypatch, there):
        self.output = there(np.zeros_like(RIGHT))
        self.odd: dict[int, Callable] = {}
        self.refused: dict[int, Exception] = {}
        self.us = lambda config, rounds: 100.0 + 10 * config.number
        self.track = racing.track(monkeypatch, lambda *asked: self.us(*asked), launch=True)
        self.configs = [Knobs(i) for i in range(5)]
        self.inexact: dict[int, Callable] = {}  #: what odd ones do with whole numbers
        for name, numbers in (("magnitudes", "unsigned"), ("exact", "whole")):
            made = SimpleNamespace(**vars(PROBLEM) | {"numbers": numbers})
            monkeypatch.setattr(probe, name, lambda problem, made=made: made)
        for module in (outputs, probe):
            monkeypatch.setattr(module, "jobs", lambda problem, module=module: [(module, "check")])

    def bind(self, problem, config):
        if config.number in self.refused:
            raise self.refused[config.number]
        odd = self.inexact if problem.numbers == "whole" else self.odd
        return Bound(self.output, problem, odd.get(config.number), "trial")

    def simple(self, problem):
        return Bound(self.output, problem)

    def tune(self, references=None, **more):
        references = references or [self.simple]
        return trials.tune(PROBLEM, self.configs, self.bind, references, DEVICE, ROUNDS, **more)

    @property
    def raced(self) -> list[list[int]]:
        return [[config.number for config in configs] for configs, _ in self.track.heats]


@pytest.fixture
def room(monkeypatch, by_the_host):  # noqa: F811
    return Room(monkeypatch, by_the_host)


# ------------------------------------------------------------------------------------------- heats


def test_the_best_few_are_timed_again_and_that_decides(room):
    room.us = lambda config, rounds: 90.0 if config.number == 1 and rounds == 9 else 100.0 + 10 * config.number
    winner = room.tune()
    assert (winner.config, winner.median_us) == (Knobs(1), 90.0)
    assert room.raced == [[0, 1, 2, 3, 4]] * 2 and [r for _, r in room.track.heats] == [4, 9]
    assert winner.bound.result() is room.output and winner.spent_ms > 0


def test_of_many_some_come_to_the_second_heat(room):
    room.configs = [Knobs(number) for number in range(20)]
    room.us = lambda config, rounds: 200.0 - config.number
    assert room.tune().config == Knobs(19)
    assert room.raced[1] == [19, 18, 17, 16, 15, 14], "finalists times factor"


@pytest.mark.parametrize(
    ("us", "hot", "heats"),
    [(40.0, [0.0, ROUNDS.hot_s], [(5, 4), (5, 9)]), (39.9, [0.0] * 3, [(5, 4), (5, 12), (5, 81)])],
)
def test_short_launches_are_timed_more_often_and_long_ones_hot(room, us, hot, heats):
    """Below 40 us, which candidate is ahead is a matter of the clock's noise; of equal ones it is the first."""
    room.us = lambda config, rounds: us
    assert room.tune().config == Knobs(0)
    assert room.track.hot == hot and [(len(configs), rounds) for configs, rounds in room.track.heats] == heats


def test_what_is_known_to_be_compiled_is_compiled_at_once(room, monkeypatch):
    """And what does not compile is said where it is bound, with the candidate's name."""
    jobs = [(Path("a.cu"), "a<1>"), (Path("b.cu"), "b<2>")]
    room.tune(jobs=jobs)
    checks = [(outputs, "check", "sm_90a"), (probe, "check", "sm_90a")]
    assert set(room.track.compiled) == {*((*job, "sm_90a") for job in jobs), *checks}

    def broken(*job):
        raise jit.CompileError("a.cu: a<1> does not compile\nline 1\nline 2")

    monkeypatch.setattr(jit, "compile_cubin", broken)
    room.refused[0] = jit.CompileError("a.cu: a<1> does not compile\nline 1\nline 2")
    with pytest.warns(UserWarning) as caught:
        assert room.tune(jobs=jobs).config == Knobs(1)
    assert [str(w.message) for w in caught] == ["the tuner skips number=0: a.cu: a<1> does not compile"]


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
    with pytest.warns(UserWarning) as caught:
        assert room.tune().config == Knobs(1)
    assert all(0 not in raced for raced in room.raced)
    (said,) = (str(w.message) for w in caught)
    assert said.startswith("the tuner skips number=0: its output is not that of simple: ")
    assert "of 12 elements differ" in said and "\n" not in said


def test_a_candidate_that_is_wrong_after_its_launches_is_not_chosen(room):
    """Its first launch is right: flags that are not reset show in later ones."""
    launches = []

    def once(output):
        launches.append(1)
        np.copyto(output, RIGHT if len(launches) == 1 else 2 * RIGHT)

    room.odd[0] = once
    with pytest.warns(UserWarning, match="^the tuner skips number=0: its output is not that of"):
        winner = room.tune()
    assert (winner.config, winner.median_us) == (Knobs(1), 110.0) and len(launches) == 2
    room.odd = {0: leaves_a_row, 1: leaves_a_row}
    room.us = lambda config, rounds: 100.0 - config.number
    with pytest.warns(UserWarning):
        assert room.tune().config == Knobs(4)


def test_an_element_is_held_to_the_magnitudes_of_its_own_products(room):
    """Signs cancel in the seventh: sums in another order are far off there, and nowhere else."""
    limit = outputs.allowed("float32", "float32", 4, outputs=2).limit

    def off_by(column, share):
        def launched(output):
            np.copyto(output, RIGHT)
            output[1, column] += np.float32(share * limit * PRODUCTS["unsigned"][1, column])

        return launched

    assert limit * PRODUCTS["unsigned"][1, 2] > 5 * limit * PRODUCTS["unsigned"].mean()
    room.odd = {0: off_by(2, 2), 1: off_by(3, 2), 2: off_by(2, 0.8), 3: off_by(3, 0.8)}
    with pytest.warns(UserWarning) as caught:
        assert room.tune().config == Knobs(2)
    assert [str(w.message).split(" output")[0] for w in caught] == [f"the tuner skips number={i}: its" for i in (0, 1)]


def test_what_no_limit_shows_shows_on_whole_numbers(room):
    """The fastest rounds as TF32 does: its errors are within the limit, and its bits are others."""

    def nearly(output):
        np.copyto(output, PRODUCTS["whole"])
        output[2, 3] = np.nextafter(output[2, 3], np.float32(math.inf))

    room.inexact[0] = nearly
    with pytest.warns(UserWarning) as caught:
        assert room.tune().config == Knobs(1)
    assert [str(w.message) for w in caught] == [
        "the tuner skips number=0: its output is not that of simple on whole numbers: 1 of 12 elements "
        "differ, the first at row 2, column 3"
    ]
    room.inexact = dict.fromkeys(range(5), nearly)
    with pytest.warns(UserWarning), pytest.raises(RuntimeError, match="on whole numbers: 1 of 12"):
        room.tune()


def test_only_the_winner_is_tried_on_whole_numbers(room):
    launched = []
    room.inexact = {i: lambda output, i=i: (launched.append(i), np.copyto(output, PRODUCTS["whole"])) for i in range(5)}
    assert room.tune().config == Knobs(0) and launched == [0]


def test_without_room_for_a_second_problem_the_winner_is_taken_as_it_is(room, monkeypatch):
    def full(problem):
        raise MemoryError("out of memory allocating 8 bytes")

    monkeypatch.setattr(probe, "exact", full)
    with pytest.warns(UserWarning) as caught:
        assert room.tune().config == Knobs(0)
    assert [str(w.message) for w in caught] == ["the tuner tries no whole numbers: out of memory allocating 8 bytes"]


# ------------------------------------------------------------------------------------- failures


def test_a_candidate_that_fails_is_skipped_and_named(room):
    def crash(output):
        raise RuntimeError("CUDA_ERROR_INVALID_VALUE")

    room.refused[0] = ValueError("number is 0, but must be more")
    room.odd[1] = crash
    room.refused[2] = MemoryError()
    with pytest.warns(UserWarning) as caught:
        assert room.tune().config == Knobs(3)
    assert [str(w.message) for w in caught] == [
        "the tuner skips number=0: number is 0, but must be more",
        "the tuner skips number=1: CUDA_ERROR_INVALID_VALUE",
        "the tuner skips number=2: MemoryError",
    ]
    assert room.raced[0] == [3, 4]


@pytest.mark.parametrize(("kind", "raised"), [(ValueError, ValueError), (jit.CompileError, RuntimeError)])
def test_only_where_all_fail_it_is_an_error_with_every_reason(room, kind, raised):
    """A ValueError is what `bind` raises where a problem is not taken; anything else is a fault."""
    room.refused = {i: ValueError(f"no {i}") for i in range(4)} | {4: kind("no 4")}
    with pytest.warns(UserWarning), pytest.raises(raised) as caught:
        room.tune()
    assert str(caught.value) == "all 5 candidates failed: " + "; ".join(f"number={i}: no {i}" for i in range(5))
    assert not room.track.heats


def test_the_first_reference_that_runs_says_what_is_right(room):
    def refuses(problem):
        raise ValueError("n is too large for the simple kernel")

    winner = room.tune([refuses, room.simple])
    assert winner.config == Knobs(0)
    with pytest.raises(RuntimeError) as caught:
        room.tune([refuses, refuses])
    said = "n is too large for the simple kernel"
    assert str(caught.value) == (f"no candidate can be checked, since no reference runs: {said}; {said}")


# -------------------------------------------------------------------------------- choices are kept

KEY = (512, "bfloat16")


@pytest.fixture
def kept(tmp_path, monkeypatch):
    """A room's choices: folders of their own, one kernel."""
    monkeypatch.setenv("SPARSITY_CHOICES", str(tmp_path / "own"))
    source = tmp_path / "kernel.cu"
    source.write_text("__global__ void kernel() {}\n")
    return Choices("room", tmp_path / "shipped", {"m": int, "dtype": str}, {"fp32": Knobs}, lambda _: [source])


def choose(kept, room, **more):
    return tuning.choose(kept, KEY, DEVICE, fits=lambda config: True, make=room.tune, **more)


def test_what_was_chosen_once_is_not_tried_again(kept, room, tmp_path):
    config, spent_ms = choose(kept, room)
    assert config == Knobs(0) and spent_ms > 0 and len(room.raced) == 2
    assert choose(kept, room) == (Knobs(0), 0.0) and len(room.raced) == 2
    path = tmp_path / "own" / "room" / "nvidia-h200.csv"
    (row,) = choices.read(kept, path).items()
    digest = choices.digest(kept.sources(None))
    assert row == (KEY, choices.Choice(Knobs(0), 100.0, digest, jit.nvrtc_version()))
    assert not kept.shipped.exists()
    # A named file is the only one that is looked at, and the one that is written.
    choose(kept, room, file=tmp_path / "deep" / "other.csv")
    assert len(room.raced) == 4 and (tmp_path / "deep" / "other.csv").is_file()


def test_a_choice_that_cannot_be_kept_still_serves(kept, room, tmp_path):
    (tmp_path / "a file").write_text("in the way of a folder")
    with pytest.warns(UserWarning, match="^the tuner's choice is not kept: "):
        config, _ = choose(kept, room, file=tmp_path / "a file" / "choices.csv")
    assert config == Knobs(0)


def test_times_of_kernels_with_a_hang_trap_are_not_kept(kept, room, tmp_path, monkeypatch):
    monkeypatch.setenv(jit.HANG_TRAP, "1")
    assert choose(kept, room)[0] == Knobs(0)
    assert not list(tmp_path.rglob("*.csv"))
