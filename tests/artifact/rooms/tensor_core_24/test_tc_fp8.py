"""FP8 in the chapter: its experiment, the exact problems of its command, sentences and verdicts."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace

import judging
import numpy as np
import pandas as pd
import pytest
import synthetic

from artifact import registry
from artifact.baselines import cusparselt
from artifact.measure import check, records
from artifact.rooms.tensor_core_24 import facts, fp8, tables
from artifact.verdicts import load
from artifact.verdicts.measures import NOT_MEASURED, NOT_REPRODUCED, PARTLY, REPRODUCED
from kernels.formats import eight, two_four_eight
from kernels.tensor_core_24 import fp8_family
from kernels.tensor_core_24.sweeps import FEW

ROOM = "tensor_core_24"
CLAIMS = [claim for claim in load.claims() if claim.room == ROOM and claim.experiment == ("fp8",)]
verdicts = partial(judging.verdicts, CLAIMS)
SHAPES = ((512, 512, 512), (4096, 4096, 4096), (8192, 8192, 8192), (8192, 64, 8192))


def frame(speedups, dense: float = 1.7) -> pd.DataFrame:
    """Records of FP8, `fp8_auto` so much faster than cuSPARSELt's best at each of `SHAPES`."""
    row = synthetic.experiment("wide").iloc[0].to_dict()
    rows = []
    for (m, n, k), speedup in zip(SHAPES, speedups, strict=True):
        rates = {"fp8_auto": 1000.0 * speedup, "cusparselt": 1000.0, "cusparselt_default": 950.0}
        rates |= {"cublaslt_eight": 1000.0 * speedup / dense, "fp8_persistent": 900.0}
        for variant, rate in rates.items():
            flops, least = 2.0 * m * n * k, 1.1 * m * k + n * k + 2.0 * m * n
            us = flops / rate / 1e6
            rows.append(
                row
                | {
                    "room": ROOM,
                    "experiment": "fp8",
                    "variant": variant,
                    "label": "e4m3",
                    "density": 0.5,
                }
                | {
                    "m": m,
                    "n": n,
                    "k": k,
                    "useful_flops": flops,
                    "tflops": rate,
                    "least_bytes": least,
                }
                | {"median_us": us, "q25_us": us, "q75_us": us, "gbps": least / us / 1e3}
                | {"rel_err": 5e-3, "max_err": 2e-2}
            )
    return pd.DataFrame(rows)


def folder(root, *arguments):
    gpu = root / "nvidia-h200"
    records.write(gpu / ROOM / "fp8.csv", frame(*arguments))
    records.write_machine(gpu / ROOM, synthetic.machine())
    return gpu


# ---------------------------------------------------------------- verdicts


def test_there_is_a_claim_for_every_aim():
    assert {claim.id for claim in CLAIMS} == {
        "tc-fp8-library",
        "tc-fp8-nowhere-behind",
        "tc-fp8-dense",
    }


def test_without_records_nothing_is_measured(tmp_path):
    assert set(verdicts(tmp_path)) == {NOT_MEASURED}


@pytest.mark.parametrize(
    ("speedups", "dense", "mean", "least", "over_dense"),
    [
        ((1.1, 1.06, 1.05, 1.04), 1.95, REPRODUCED, REPRODUCED, REPRODUCED),
        ((1.2, 1.2, 1.2, 0.94), 1.6, REPRODUCED, PARTLY, PARTLY),
        ((1.0, 1.02, 1.01, 0.99), 1.2, PARTLY, REPRODUCED, NOT_REPRODUCED),
        ((0.8, 0.9, 0.9, 0.9), 1.92, NOT_REPRODUCED, NOT_REPRODUCED, REPRODUCED),
    ],
)
def test_the_aims_turn_at_their_numbers(tmp_path, speedups, dense, mean, least, over_dense):
    got = verdicts(folder(tmp_path, speedups, dense))
    assert got["tc-fp8-library"] == mean
    assert got["tc-fp8-nowhere-behind"] == least
    assert got["tc-fp8-dense"] == over_dense


def test_errors_of_eight_bits_are_recorded_for_eight_bits_alone(tmp_path):
    df = frame((1, 1, 1, 1))
    records.write(tmp_path / "fp8.csv", df)
    with pytest.raises(ValueError, match="'rel_err': 0.005 is over its limit, so it is wrong"):
        records.write(tmp_path / "square.csv", df.assign(label="", experiment="square"))
    with pytest.raises(ValueError, match="'rel_err': 0.05 is over its limit, so it is wrong"):
        records.write(tmp_path / "fp8.csv", df.assign(rel_err=0.05))


# ---------------------------------------------------------------- the page


def test_facts_take_their_numbers_from_the_records(post):
    us = post.by_shape("fp8", "median_us")
    over = (us["cusparselt"] / us["fp8_auto"]).dropna()
    got = dict(facts.eight(post))
    assert got["eight.best.mean"] == pytest.approx(records.geomean(over)) and got["eight.best.count"] == len(over)
    cube = (8192, 8192, 8192)
    assert got["eight.dense.at.8192³"] == us["cublaslt_eight"][cube] / us["fp8_auto"][cube]
    assert got["eight.left.unloaded"] < 1 and got["eight.outputs.time.e4m3 to e4m3"] > 0.9


def test_counters_tell_what_holds_ours_back():
    """cuSPARSELt, and ours with 1.25 times its clocks at 1.1 times its rate."""
    theirs = {
        "size": 4096,
        "us": 100.0,
        "clocks": 150.0,
        "ghz": 1.5,
        "tensor": 105.0,
        "port": 1.0,
        "slices": 1.0,
        "dram": 1.0,
    }
    ours = theirs | {"us": 100 * 1.25 / 1.1, "clocks": 150 * 1.25, "ghz": 1.5 * 1.1}
    rows = pd.DataFrame([ours | {"variant": "fp8_auto"}, theirs | {"variant": "cusparselt"}])
    got = dict(facts._beside(rows, 1980))
    assert (got["beside.clocks.last"], got["beside.ghz.last"]) == pytest.approx((1.25, 1.1))
    assert (got["beside.busy.ours"], got["beside.busy.theirs"]) == pytest.approx((0.56, 0.7))
    assert got["beside.us.last"] == pytest.approx(1.25 / 1.1)
    assert not list(facts._beside(rows[:0], 1980))


def test_the_tables_have_every_rung_and_every_trial(post):
    rungs = tables.eight_rungs(post)
    assert list(rungs["rung"]) == list(fp8_family.RUNGS) and {"4096³", "8192³"} < set(rungs)
    for part in ("bounds", "fp8"):
        tried = tables.tried(post, part)
        assert len(tried) == post.tried(part)["trial"].nunique() and not tried.isna().any(axis=None)
    assert tried["came"]["halves"].endswith("in clocks; kept, in all kernels")


# ---------------------------------------------------------------- the experiment


def run_of(mode: str, folder, capability: str = "9.0"):
    return SimpleNamespace(
        mode=mode,
        folder=folder,
        preset="full",
        seed=0,
        device=None,
        machine={"compute_capability": capability},
    )


@pytest.mark.parametrize("preset", ["full", "kick"])
def test_every_shape_is_one_that_the_libraries_take(tmp_path, preset):
    run = run_of("recorded", tmp_path)
    run.preset = preset
    shapes = [(p.m, p.n, p.k) for p in (make() for make in fp8.problems(run))]
    assert all(size % cusparselt.MULTIPLE_EIGHT == 0 for shape in shapes for size in shape)
    assert len(set(shapes)) == len(shapes) >= 3 and set(FEW[preset]) <= set(shapes)


@pytest.mark.parametrize("preset", ["full", "kick"])
def test_no_point_of_the_outputs_is_measured_twice(tmp_path, preset):
    made = []
    run = run_of("measure", tmp_path)
    run.preset, run.measure = preset, lambda name, problems, contenders: made.extend(problems)
    fp8.outputs(run)
    points = [(p.label, p.m, p.n, p.k) for p in (make() for make in made)]
    assert len(set(points)) == len(points) >= 5 and len({label for label, *_ in points}) == 4


def test_without_wgmma_there_is_nothing(ada):
    assert ada["fp8"].empty and ada["fp8_outputs"].empty and not list(facts.eight(ada))


def test_the_contenders_are_ours_and_the_libraries():
    names = registry.contenders(fp8.fp8.BASELINES, None)
    assert set(fp8.CONTENDERS) == set(fp8.fp8.VARIANTS) | set(names)


@pytest.mark.parametrize(("scale", "out"), fp8.KINDS)
def test_exact_problems_are_exact_in_thirteen_bits(scale, out):
    problem, expected = fp8.exact(77, 136, 1000, scale, out, seed=4)
    host = problem.host()
    whole = two_four_eight.to_dense_bits(host.a), host.b.bits
    a, b = (eight.from_bits(bits, "e4m3").astype(np.float64) for bits in whole)
    assert set(np.unique(a)) == {-1, 0, 1} and set(np.unique(b)) == {-2, -1, 0, 1, 2}
    assert (np.abs(a) @ np.abs(b)).max() < 2**13
    exact = check.oracle(problem, on="cpu").values
    assert np.abs(expected - exact).max() <= 2.0 ** (-4 if out == "e4m3" else -9) * np.abs(exact).max()
    assert np.array_equal(np.log2(host.a.scale) % 1, np.zeros_like(host.a.scale))


# ---------------------------------------------------------------- the command goes on


@pytest.fixture
def nothing_left_out(monkeypatch):
    monkeypatch.setattr(fp8_family, "LEFT_OUT", set())


def test_what_was_wrong_is_left_out_of_the_next_process_too(tmp_path, nothing_left_out):
    config = fp8_family.RUNGS["fp8_direct"][0]
    assert fp8.read_left_out(tmp_path) == set()
    fp8.leave_out(tmp_path, config, None)
    assert fp8_family.LEFT_OUT == {config} == fp8.read_left_out(tmp_path)


@pytest.mark.parametrize("error", [fp8.Hangs("no end"), type("CUDAError", (Exception,), {})("lost")])
def test_a_lost_gpu_ends_the_process_which_begins_again(tmp_path, monkeypatch, nothing_left_out, error):
    ended = []
    monkeypatch.setattr(fp8.os, "_exit", ended.append)
    fp8.leave_out(tmp_path, fp8_family.FAMILY[0], error)
    assert ended == [fp8.AGAIN] and fp8.read_left_out(tmp_path) == {fp8_family.FAMILY[0]}
    statuses = [fp8.AGAIN, fp8.AGAIN, 0]
    run = lambda command, check: SimpleNamespace(returncode=statuses.pop(0))  # noqa: E731
    monkeypatch.setattr(fp8.subprocess, "run", run)
    fp8.main(["--records", str(tmp_path), "--part", "check"])
    assert not statuses
    statuses += [1]
    with pytest.raises(SystemExit, match="1"):
        fp8.main(["--records", str(tmp_path), "--part", "check"])


def test_a_library_that_refuses_a_shape_and_a_rung_that_is_wrong_have_no_row(tmp_path, monkeypatch, nothing_left_out):
    """As on a GPU, but that binding is all that is done."""
    rung = "fp8_direct"
    fp8_family.LEFT_OUT.add(fp8_family.RUNGS[rung][0])

    def refuses(problem):
        if problem.m == 512:
            raise RuntimeError("out of resources")

    binds = dict.fromkeys(fp8.CONTENDERS, lambda problem: None) | {"cusparselt": refuses}
    monkeypatch.setattr(fp8, "contenders", lambda run: binds)
    measured = {}

    def point(experiment, shapes, here):
        (problem,) = shapes
        for bind in here.values():
            bind(problem)
        measured[problem.m, problem.n, problem.k] = set(here)

    run = run_of("measure", tmp_path)
    run.preset, run.measure = "kick", point
    path = tmp_path / "fp8.csv"
    shapes = [make() for make in fp8.problems(run)]
    assert [fp8._measure_point(run, path, p, fp8.contenders(run)) for p in shapes] == [""] * len(shapes)
    everybody = set(fp8.CONTENDERS) - {rung}
    assert measured.pop((512, 512, 512)) == everybody - {"cusparselt"}
    assert all(names == everybody for names in measured.values()) and measured
    absent = records.read_absent(tmp_path)["fp8"]
    assert {(variant, m) for variant, _, m, *_ in absent} >= {("cusparselt", 512), (rung, 2048)}
    assert any("out of resources" in why for why in absent.values())


def test_a_shape_that_fails_does_not_end_the_others(tmp_path, monkeypatch, nothing_left_out):
    def point(experiment, shapes, here):
        raise MemoryError("too much")

    run = run_of("measure", tmp_path)
    run.preset, run.measure = "kick", point
    monkeypatch.setattr(fp8, "contenders", lambda run: {"fp8_auto": None})
    count = len(fp8.problems(run))
    with pytest.raises(RuntimeError, match=f"{count} shapes could not be measured; .*too much"):
        fp8.measure(run)
