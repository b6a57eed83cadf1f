"""FP8 in the chapter: its experiments, sentences and verdicts."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace

import judging
import pandas as pd
import pytest
import synthetic

from artifact import registry
from artifact.baselines import cusparselt
from artifact.measure import records
from artifact.rooms.tensor_core_24 import experiments, facts, tables
from artifact.verdicts import load
from artifact.verdicts.measures import NOT_MEASURED, NOT_REPRODUCED, PARTLY, REPRODUCED
from kernels.tensor_core_24 import fp8, fp8_family
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
    shapes = [(p.m, p.n, p.k) for p in experiments.in_eight(run)["fp8"]]
    assert all(size % cusparselt.MULTIPLE_EIGHT == 0 for shape in shapes for size in shape)
    assert len(set(shapes)) == len(shapes) >= 3 and set(FEW[preset]) <= set(shapes)


@pytest.mark.parametrize("preset", ["full", "kick"])
def test_no_point_of_the_outputs_is_measured_twice(tmp_path, preset):
    run = run_of("measure", tmp_path)
    run.preset = preset
    points = [(p.label, p.m, p.n, p.k) for p in experiments.in_eight(run)["fp8_outputs"]]
    assert len(set(points)) == len(points) >= 5 and len({label for label, *_ in points}) == 4


def test_without_wgmma_there_is_nothing(ada):
    assert ada["fp8"].empty and ada["fp8_outputs"].empty and not list(facts.eight(ada))


def test_the_contenders_are_ours_and_the_libraries():
    names = registry.contenders(fp8.BASELINES, None)
    assert set(experiments.CONTENDERS["fp8"]) == set(fp8.VARIANTS) | set(names)


# ---------------------------------------------------------------- who refuses a shape


def test_a_library_that_refuses_a_shape_has_no_row_there(tmp_path):
    """As on a GPU, but that binding is all that is done."""

    def refuses(problem):
        if problem.m == 512:
            raise ValueError("out of resources")

    binds = dict.fromkeys(experiments.CONTENDERS["fp8"], lambda problem: None) | {"cusparselt": refuses}
    measured: dict[tuple, list[set]] = {}

    def point(experiment, shapes, here):
        (problem,) = shapes
        for bind in here.values():
            bind(problem)
        measured.setdefault((problem.m, problem.n, problem.k), []).append(set(here))

    records.write(tmp_path / "fp8.csv", frame((1, 1, 1, 1)))
    run = run_of("measure", tmp_path)
    run.preset, run.measure = "kick", point
    problems = experiments.in_eight(run)["fp8"]
    for _ in range(2):  # what refused is not asked again
        found = experiments.of_the_willing(run, "fp8", problems, binds)
    assert measured.pop((512, 512, 512)) == [{*binds} - {"cusparselt"}] * 2
    assert measured and all(names == [{*binds}] * 2 for names in measured.values())
    ((key, why),) = records.read_absent(tmp_path)["fp8"].items()
    assert key[:3] == ("cusparselt", "e4m3", 512) and "out of resources" in why
    shapes = [(p.m, p.n, p.k) for p in problems]
    assert [*dict.fromkeys(zip(found["m"], found["n"], found["k"], strict=True))] == [s for s in shapes if s in SHAPES]
