"""What the chapter computes, on made-up records whose answers are known, and the measures that only its claims need."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from refused import refused

from artifact.book.study import Study
from artifact.measure import run
from artifact.systems.nm_cuda_core import experiments, facts
from artifact.systems.nm_cuda_core.experiments import VARIANTS, measure
from kernels import nm_cuda_core as system

SIZES = [2**p for p in range(6, 14)]


@pytest.fixture(scope="module")
def study() -> Study:
    return Study(run.start("nm_cuda_core", "recorded"))


# ---------------------------------------------------------------- experiments


def test_what_was_not_measured_is_said(study, tmp_path):
    found = Study(replace(study.run, folder=tmp_path / "nvidia-h200" / "nm_cuda_core"))
    assert experiments.on_cpu(found) is None and not found.counters
    refused("no records of nm_cuda_core/patterns", measure, found, "patterns", kind=FileNotFoundError)


# ---------------------------------------------------------------- which index, machine code


@pytest.mark.gpu
def test_the_kernel_gathers_one_index(device, tmp_path):
    found = dict(facts.which_index(run.start("nm_cuda_core", mode="measure", preset="kick", records=tmp_path)))
    assert found["run_here.from_right"] > 0.1 and found["run_here.from_gathered"] < 1e-5


def test_the_letter_in_experiments(study):
    report, same = study.run.compile_report("sm_90a"), experiments.prefetch(["sm_90a"])
    found = dict(facts.compiled(report, same))
    assert found["compiled.count"] == found["compiled.entries"] == len(report.drop_duplicates("entry"))
    assert {f"registers.{v}" for v in VARIANTS} <= set(found)
    assert (found["code.verbatim.stores"], found["code.baseline.stores"]) == (16, 4)
    assert found["code.verbatim_double_buffer.generic_loads"] == 128
    assert found["code.double_buffer.generic_loads"] == found["code.prefetch.targets_that_differ"] == 0
    # To the letter, too, nothing is left of the prefetch but the loads that there were.
    assert found["code.verbatim_prefetch.global_loads"] == found["code.verbatim.global_loads"] > 0
    (row,) = same.to_dict("records")
    assert row["same"] == "yes" and row["loads_prefetch_kept"] == 2 * row["loads_baseline"] > 0


def test_experiments_that_came_out_otherwise_once_is_compiled_anew(monkeypatch):
    """As NVRTC does it: the one that the cache holds has two instructions in another order."""
    kept = {"baseline": ["LDG ;", "MOV ;"], "prefetch": ["MOV ;", "LDG ;"], "other": ["LDG ;"]}
    fresh, made = kept | {"prefetch": kept["baseline"]}, []

    def instructions(variant, target, anew=False):
        made.append(anew)
        return (fresh if anew else kept)[variant]

    monkeypatch.setattr(experiments, "instructions", instructions)
    assert experiments.the_same("baseline", "prefetch", "sm_80")
    assert made == [False] * 2 + [True] * 2
    assert not experiments.the_same("baseline", "other", "sm_80")
    assert made[4:] == [False] * 2 + [True] * 2 * experiments.AGAIN


def test_own_problem_is_compiled():
    own = system.problem(m=64, n=64, k=100, density=0.25, group=8, seed=7)
    table = experiments.own(own, "sm_90a")
    assert list(table["variant"]) == VARIANTS and (table["FFMA"] > 0).all() and (table["useful"] < 1).all()
    assert "2, 8" in " ".join(table["kernel"])


# ---------------------------------------------------------------- readings of a cuBLAS call


def seconds(constant: float, square: float, cube: float) -> pd.Series:
    n = np.array(SIZES, float)
    return pd.Series(constant + square * n**2 + cube * n**3, SIZES)


@pytest.mark.parametrize("terms", [(5e-4, 0, 0), (0, 1e-9, 0), (0, 0, 2e-13), (5e-4, 0, 2e-13), (1e-5, 1e-9, 1e-13)])
def test_a_fit_finds_what_a_curve_is_made_of(terms):
    fit = experiments.fit(seconds(*terms))
    found = fit.weights * (1, 1e6, 1e9)  # at a size of 1000
    np.testing.assert_allclose(found, np.array(terms) * (1, 1e6, 1e9), rtol=1e-6, atol=1e-15)
    assert np.abs(fit.residuals).max() < 1e-9
    np.testing.assert_allclose(fit.terms(SIZES).sum(axis=1), 1e3 * seconds(*terms))
    assert np.isnan(experiments.Fit(np.array([1, 0, 0]), fit.residuals).rates["gbps"])
