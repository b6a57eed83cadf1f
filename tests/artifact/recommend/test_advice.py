"""The advice in words: it names a kernel, a time, a reason, what it costs, and how far it can be trusted."""

import re
from dataclasses import replace
from unittest.mock import Mock

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import worlds
from refused import refused

from artifact import cli, paths
from artifact.measure import bench, run, verification
from artifact.recommend import landscape, model, statistics
from kernels.formats import csr

RECORDED = paths.RECORDED / "nvidia-h200"


def matrix(n=2000, density=0.003, seed=5):
    return csr.from_scipy(scipy.sparse.random(n, n, density, "csr", rng=np.random.default_rng(seed)))


@pytest.fixture(scope="module")
def advise():
    made = worlds.pool(40)

    def advised(a=None, n=256, name="mine"):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(landscape, "pool", lambda *_: made)
            return model.advise(a or matrix(), n, RECORDED, name=name)

    return advised


@pytest.fixture(scope="module")
def answer(advise):
    return advise()


@pytest.mark.parametrize("times", [1e-6, 0.9, 1.5, 1e6, float("nan")])
def test_it_names_a_kernel_a_time_a_reason_and_what_dense_takes(answer, times):
    best = answer.guess.table.iloc[0]
    text = "\n".join(model.lines(replace(answer, dense_us=times * best["expected_us"]), "nvidia-h200"))
    assert f"Advice: {best['variant']}, A as CSR" in text and f"{model.short(best['expected_us'])} µs" in text
    assert f"{model.good(answer.evaluated):.0%} of 80 points" in text
    assert f"within {round(100 * model.GOOD) - 100}% of the best" in text
    assert all(f"\n{said} " in text for said in model.WORDS.values()) and "this very matrix" not in text
    assert ("would take some" in text, "make A dense" in text) == (times > 1, times < 1)


def test_where_the_model_is_no_better_than_one_for_all_that_one_is_advised(advise, answer, monkeypatch):
    last = answer.guess.table["variant"].iloc[-1]
    for share in (0.0, 1.0):
        monkeypatch.setattr(model, "always", lambda _, share=share: (last, share))
        found = advise()
        assert (
            (found.guess.variant == last) == ("so it is advised" in "\n".join(model.lines(found, "x"))) == bool(share)
        )
        assert found.guess.table["slower"].iloc[0] == 1


@pytest.mark.parametrize(("times", "worth"), [(0.5, True), (0.94, True), (0.96, False), (1.0, False), (2.0, False)])
def test_reordering_is_named_where_it_gains_a_twentieth(answer, times, worth):
    us = times * answer.guess.table["expected_us"].iloc[0]
    again = answer.reordered[0], replace(answer.guess, table=answer.guess.table.assign(expected_us=us))
    text = "\n".join(model.lines(replace(answer, reordered=again), "x"))
    assert (f"would take {model.short(us)} µs" in text) == worth


def test_what_is_not_square_is_not_reordered_and_nothing_is_no_matrix(advise):
    wide = csr.from_scipy(scipy.sparse.random(300, 500, 0.01, "csr", rng=np.random.default_rng(1)))
    assert advise(wide, 64).reordered is None and advise(matrix(200, 0.05), 64).reordered is not None
    refused("nothing has no non-zeros", advise, csr.from_scipy(scipy.sparse.csr_array((4, 4))), name="nothing")
    for about in landscape.maps()[0]:  # nor what a system would reorder by itself
        assert model.problem(about, matrix(64, 0.1), 32, 0, "mine").nnz == matrix(64, 0.1).nnz


def test_a_library_that_is_not_installed_refuses_by_its_name():
    refused("needs nvmath", model._installed, Mock(side_effect=ModuleNotFoundError(name="nvmath")), None)


def test_the_time_is_about_what_the_world_says(answer):
    truth = worlds.laws(statistics.of(matrix()), 256)
    assert answer.guess.variant in sorted(truth, key=truth.get)[:2]
    low, high = model.off(answer.evaluated)
    assert low / 2 < min(truth.values()) / answer.guess.table["expected_us"].iloc[0] < high * 2


def test_a_recorded_matrix_is_judged_by_its_record_which_the_model_does_not_see(advise):
    answer = advise(n=512, name="m4")
    df = answer.pool.df
    times = df[(df["label"] == "m4") & (df["n"] == 512)].set_index("variant")["median_us"]
    assert "m4" not in {label for label, _ in answer.guess.neighbours} and len(times) == 5
    assert model.lines(answer, "x")[-1] == (
        f"Recorded of this very matrix: {times.idxmin()} {model.short(times.min())} µs, "
        f"the advised {answer.guess.variant} {model.short(times[answer.guess.variant])} µs."
    )


@pytest.mark.parametrize(
    ("times", "prepare", "after", "ready"),
    [
        ((10.0, 30.0), (2.0, 0.0), 100, "b"),
        ((10.0, 30.0), (0.0, 1.0), 0, "a"),
        ((10.0, 10.0), (1.0, 1.0), 0, "a"),
        ((10.0, 10.0), (2.0, 0.0), 0, "b"),
    ],
)
def test_preparation_pays_off_after_so_many(times, prepare, after, ready):
    table = pd.DataFrame({"variant": ["a", "b"], "expected_us": times, "prepare_ms": prepare})
    assert model.payoff(table) == (pytest.approx(after), ready)


def test_measured_it_says_whether_the_advice_was_good(answer, monkeypatch):
    """The systems' kernels bind, the GPU is a fake."""
    times = {"warp_per_row": 10.0, "scalar": 10.5, "cusparse_alg2": 30.0}
    names = dict(zip(("plain", "cut", "cusparse_alg2"), times, strict=True))
    renamed = [df.assign(variant=df["variant"].replace(names)) for df in (answer.pool.df, answer.guess.table)]
    answer = replace(answer, pool=replace(answer.pool, df=renamed[0]), guess=replace(answer.guess, table=renamed[1]))

    def point(problem, contenders, opened, budget_s):
        assert problem.label == "mine" and problem.n == 256
        timing = {n: bench.Timing(t, t, t, 9, 1.0, 1.0, "none", False) for n, t in times.items()}
        return {n: (run.Prepared(0.0, 0), verification.Errors(0.0, 0.0), timing[n]) for n in contenders if n in times}

    monkeypatch.setattr(run, "measure_point", point)
    found = model.measure(answer, matrix(), None)
    assert found["variant"].tolist() == list(times) and found["over_best"].tolist() == [1.0, 1.05, 3.0]
    for advised, said in {
        "scalar": "The advice was good: scalar takes 1.05×",
        "cusparse_alg2": "was not the best: cusparse_alg2 takes 3.00×",
        "win": "does not take this matrix here; the fastest is warp_per_row",
    }.items():
        assert said in model.judged(found, advised)


def test_the_shipped_records_answer_for_every_precision_that_they_have(answer, monkeypatch):
    """How good the answers are, each pool is asked for itself."""
    monkeypatch.setattr(model, "evaluate", lambda _: answer.evaluated)
    for precision in {p.about.precision for p in landscape.pools(RECORDED)}:
        answer = model.advise(matrix(), 512, RECORDED, precision)
        assert answer.pool.about.precision == precision and np.isfinite(answer.dense_us)
        assert re.search(r"Advice: \w+, A as (CSR|windows|blocks) ", "\n".join(model.lines(answer, "nvidia-h200")))
    assert landscape.dense_rates(RECORDED)["precision"].nunique() == len(landscape.PRECISIONS)


@pytest.mark.parametrize(
    ("value", "digits", "text"),
    [
        (12.345, 3, "12.3"),
        (12345.6, 3, "12346"),
        (0.0123, 3, "0.0123"),
        (270.4, 2, "270"),
        (61770, 4, "61770"),
    ],
)
def test_large_numbers_have_no_exponent(value, digits, text):
    assert model.short(value, digits) == text


# ---------------------------------------------------------------- on a GPU


PRECISIONS = sorted({p.about.precision for p in landscape.pools(paths.RECORDED / "nvidia-h200")})


@pytest.mark.gpu
@pytest.mark.alone
@pytest.mark.parametrize("precision", PRECISIONS)
def test_the_advice_is_measured_and_judged(precision, tmp_path, capsys):
    rng = np.random.default_rng(2)
    scipy.sparse.save_npz(tmp_path / "mine.npz", scipy.sparse.random(3000, 2944, 0.004, "csr", rng=rng))
    command = ["which", f"{tmp_path}/mine.npz", "-n", "256", "--precision", precision.lower()]
    assert cli.main([*command, "--gpu", "nvidia-h200"]) == 0
    out = capsys.readouterr().out
    assert "Advice: " in out and "Measured on " in out
    assert "The advice was " in out.splitlines()[-1] or "does not take this matrix here" in out
