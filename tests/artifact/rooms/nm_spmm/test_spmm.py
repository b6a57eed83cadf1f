"""What the chapter computes, what its pictures are drawn from, and the measures that only its claims need."""

import shutil

import numpy as np
import pandas as pd
import pytest
import synthetic
from judging import ALL, evidence, frames, outcome

from artifact import paths
from artifact.drawing import style
from artifact.measure.run import start
from artifact.rooms.nm_spmm import facts, model, pictures, tables
from artifact.rooms.nm_spmm.study import (
    SPARSITIES,
    TRIALS,
    Spmm,
    crossing_of,
    pattern,
)
from artifact.verdicts.evidence import NotMeasured
from artifact.verdicts.measures import NOT_REPRODUCED, PARTLY, REPRODUCED
from kernels import jit
from kernels import nm_spmm as room
from kernels.formats import nm
from kernels.nm_spmm import packing

SHIPPED = paths.RECORDED / "nvidia-h200"
LOOP = """
.L_x_1:
        /*0010*/                   FFMA R1, R2.reuse, R4, R1 ;
        /*0020*/                   FFMA R3, R2, R5, R4 ;
        /*0030*/                   LDS.128 R4, [R8] ;
        /*0040*/                   FFMA R6, R3, R5, R6 ;
        /*0050*/                   BRA `(.L_x_1) ;
"""


@pytest.fixture(scope="module")
def study() -> Spmm:
    return Spmm(start("nm_spmm", "recorded"))


# ---------------------------------------------------------------- the study


def test_a_missing_record_is_one_sentence(tmp_path):
    shutil.copytree(SHIPPED / "ceilings", tmp_path / "nvidia-h200" / "ceilings")
    folder = tmp_path / "nvidia-h200" / "nm_spmm"
    folder.mkdir()
    for name in ("machine.json", "stepwise.csv"):
        shutil.copy(SHIPPED / "nm_spmm" / name, folder)
    found = Spmm(start("nm_spmm", "recorded", records=tmp_path))
    with pytest.raises(FileNotFoundError, match=r"no records of nm_spmm/llama .*measure it on a GPU"):
        found.measure("llama")
    assert found.counted.empty and tables.counters(found.counted).empty
    assert set(facts.counted(found, found.measure("stepwise"))) == {"few_tiles"}


@pytest.mark.parametrize("arch,able", [("sm_90a", True), ("sm_80", False)])
def test_a_gpu_takes_what_is_compiled_for_it(study, arch, able):
    here = Spmm(study.run)
    here.arch = arch
    assert here.takes("v3") and here.takes("auto") and here.takes("cublas")
    assert {here.takes(v) for v in ("bulk", "tf32", next(iter(TRIALS)))} == {able}
    assert (here.tensor() is not None) == (here.measure("tried") is not None) == able
    assert (len(here.trials) if able else here.trials) == (len(TRIALS) * len(SPARSITIES) if able else None)
    assert (facts.tensor(here.tensor()) is not None) == (facts.trials(here.trials) is not None) == able


@pytest.mark.parametrize("arch,target", [("sm_80", "sm_80"), ("sm_86", "sm_80"), ("sm_100", "sm_90a")])
def test_the_target_is_the_nearest_below(study, arch, target):
    here = Spmm(study.run)
    here.arch = arch
    assert target in jit.TARGETS and here.target == target


# ---------------------------------------------------------------- predictions, machine code


def test_compiled():
    rows = [
        ("v3", "v3<1>", "sm_90a", 96, 100, False, 30, 100, 0),
        ("v3", "v3<2>", "sm_90a", 128, 200, True, 60, 100, 0),
        ("tf32", "tf32<1>", "sm_90a", 64, 0, False, 0, 100, 8),
    ]
    columns = ["variant", "entry", "target", "registers", "shared_bytes", "spills", "FFMA", "instructions", "HGMMA"]
    found = model.compiled(pd.DataFrame(rows, columns=columns)).set_index("variant")
    v3, tf32 = found.loc["v3"], found.loc["tf32"]
    assert (v3["kernels"], v3["registers"], v3["spilling"], v3["shared"]) == (2, "96 to 128", 1, 200)
    assert (v3["FFMA"], v3["useful"], tf32["spilling"], tf32["tensor"]) == (60, 0.6, "none", 8)
    assert np.isnan(tf32["useful"]) and np.isnan(v3["tensor"])


def test_clashes_of_a_loop():
    """Of three multiply-adds in five instructions, two read two registers of one bank."""
    found = model.clashes({"a": LOOP}).loc["a"]
    assert found["useful"] == 0.6 and found["left"] == pytest.approx(0.6 / (1 + 0.6 * found["clash"]))


@pytest.mark.parametrize("dtype", ["float32", "tf32", "bfloat16"])
@pytest.mark.parametrize("window,length", [(32, 32), (32, 8), (16, 32), (4, 128), (8, 1)])
def test_pattern_reads_the_labels_of_the_room(dtype, window, length):
    problem = room.problem(32, 256, 64, 0.5, group=window, vector=length, dtype=dtype)
    assert pattern(problem.label) == (window, length)


@pytest.mark.parametrize(
    "speedups,crossing",
    [
        ((0.5, 0.7, 0.9), np.nan),
        ((1.1, 1.2, 1.3), 0.0),
        ((0.5, 1.0, 2.0), 0.5),
        ((0.5, 0.5, 1.0), 0.75),
        ((2.0, 0.5, 2.0), 1 - 0.5 / 2**0.5),
    ],
)
def test_the_last_crossing_counts(speedups, crossing):
    found = crossing_of(np.array([1.0, 0.5, 0.25]), np.array(speedups))
    assert found == pytest.approx(crossing, nan_ok=True)


MODERATE, HIGH = (nm.random(128, 256, keep, 32, 32, 0) for keep in (16, 4))
CASES = {"moderate": MODERATE, "high": HIGH}
SMALL = nm.random(32, 16, 2, 8, 4, 1)
TIMES = {"load": 180.0, "index": 15.0, "fragments": 0.0, "compute": 420.0}


@pytest.fixture(autouse=True)
def look():
    style.apply()


def test_what_a_block_needs_is_what_packing_stages():
    for b in CASES.values():
        assert model.needed(b, 1) == pytest.approx(b.keep / b.group)
        ready = packing.prepare(b, 128, 1, packed=True, slot=32)
        assert model.needed(b, 4) == pytest.approx(ready.count.sum() / (ready.blocks * ready.steps * ready.depth))


# ---------------------------------------------------------------- schedules


def ends(bars: pd.DataFrame, what: str) -> pd.DataFrame:
    """Start and end of what a step does, by step."""
    return bars[bars["what"] == what].groupby("step").agg({"start": "min", "end": "max"})


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("more", [{}, {"col_info": 40.0}, {"fragments": 100.0, "col_info": 700.0}])
@pytest.mark.parametrize("compute", [60.0, 420.0])
def test_schedule_waits_for_what_it_needs(overlap, more, compute):
    durations = TIMES | {"compute": compute} | more
    bars = pictures.schedule(durations, 6, overlap)
    for what, duration in durations.items():
        here = bars[bars["what"] == what]
        total = (here["end"] - here["start"]).groupby(here["step"]).sum()
        np.testing.assert_allclose(total, duration)  # whatever it does takes its time in every step
        assert total.index.tolist() == (list(range(6)) if duration else [])
    for _, lane in bars.groupby("lane"):  # a lane does one thing at a time
        lane = lane.sort_values("start")
        assert (lane["start"].to_numpy()[1:] >= lane["end"].to_numpy()[:-1] - 1e-9).all()
    load, compute = ends(bars, "load"), ends(bars, "compute")
    assert (compute["start"] >= load["end"]).all() and (ends(bars, "index")["start"] >= load["end"]).all()
    # Of two buffers, the one that is loaded is no longer read.
    assert (load["start"].to_numpy()[2:] >= compute["end"].to_numpy()[:-2]).all()
    if "col_info" in more:
        assert (load["start"] >= ends(bars, "col_info")["end"]).all()
    if not overlap:
        assert bars["end"].max() == pytest.approx(6 * sum(durations.values()))


def test_schedule_hides_the_shorter_of_the_two():
    def period(durations: dict[str, float], overlap: bool) -> float:
        return pictures.period_of(pictures.schedule(durations, 6, overlap))

    assert period(TIMES, True) == pytest.approx(420 + 15)  # the loads are hidden
    assert period(TIMES, False) == pytest.approx(615)
    high = {"col_info": 40, "load": 260, "compute": 130}
    assert period(high, True) == pytest.approx(300)  # the multiplications are hidden
    # All slices but the first are read behind the multiplications of the one before.
    assert period(TIMES | {"fragments": 200.0}, True) == pytest.approx(420 + 15 + 200 / pictures.SLICES)


@pytest.mark.parametrize("tiles,steps,blocks", [((32, 16), 64, 132), ((3, 2), 5, 7), ((4, 4), 8, 16)])
def test_shares_are_all_steps_of_all_tiles_and_are_even(tiles, steps, blocks):
    _, data = pictures.shares(tiles, steps, blocks)
    length = data["end"] - data["start"]
    assert (length > 0).all() and set(data["what"]) <= set(pictures.PARTS)
    for name, df in data.groupby("schedule"):
        assert length[df.index].groupby(df["tile"]).sum().eq(steps).all(), name
        assert df["tile"].nunique() == tiles[0] * tiles[1]
        for _, mine in df.groupby("block"):
            assert (mine["start"].iloc[1:].array == mine["end"].iloc[:-1].array).all() and mine["start"].iloc[0] == 0
    last = {name: df.groupby("block")["end"].max() for name, df in data.groupby("schedule")}
    assert last["stream-K"].max() <= last["waves"].max()
    assert last["stream-K"].max() - last["stream-K"].min() <= 1


ROOM = "nm_spmm"


@pytest.mark.parametrize(
    "speedup,expected",
    [
        (lambda m, n, k, d: 0.9 / d, REPRODUCED),
        (lambda m, n, k, d: 0.7 / d, PARTLY),
        (lambda m, n, k, d: 0.3 / d, NOT_REPRODUCED),
        (1.0, NOT_REPRODUCED),  # of 20 to 200
    ],
)
def test_the_share_of_the_ideal_speedup(speedup, expected):
    quantity = {"share_of_ideal": "warp_per_row", "over": "cusparse_best"}
    expect = {"at_least": 0.85, "partly": 0.6}
    got = outcome(evidence(frames(speedup)), quantity, "geometric mean", expect, room=ROOM)
    assert got.verdict == expected and "of the ideal speedup over cusparse_best" in got.measured


DOWN = sorted(synthetic.DENSITIES, reverse=True)


@pytest.mark.parametrize(
    "counts,change,expected",
    [
        # FLOPs are as the density, 1 : 2 : 10 (0.005, 0.01, 0.05).
        ((1, 2, 10), 0.01, NOT_REPRODUCED),  # the same for each
        ((1, 1.8, 8), 0.05, REPRODUCED),  # read from the highest density down
        ((1, 1.8, 8), 0.2, PARTLY),  # 25% over all
        ((1, 2.1, 8), 0.05, PARTLY),
        ((1, 2.1, 11), 0.05, NOT_REPRODUCED),
    ],
)
def test_flops_per_count_along_densities(counts, change, expected):
    table = synthetic.counters({"warp_per_row": {"c": 1.0}})
    table["value"] = table["density"].map(dict(zip(synthetic.DENSITIES, counts, strict=True)))
    quantity = {"flops_per_count": "c", "of": "warp_per_row"}
    expect = {"falls_at_each_step": change}
    got = outcome(evidence(counters=table), quantity, {"steps": DOWN}, expect, room=ROOM)
    assert got.verdict == expected and "of 2 steps fall" in got.measured


@pytest.mark.parametrize("value,expected", [(9, REPRODUCED), (11, NOT_REPRODUCED)])
def test_flops_per_count_along_contenders(value, expected):
    table = synthetic.counters({"warp_per_row": {"c": value}, "any_n": {"c": 10}})
    e = evidence(counters=table).only({"density": 0.01})
    quantity = {"flops_per_count": "c", "of": ["warp_per_row", "any_n"]}
    got = outcome(e, quantity, "steps", {"falls_at_each_step": 0.05}, room=ROOM)
    assert got.verdict == expected


def test_flops_per_count_divides_by_no_zero():
    e = evidence(counters=synthetic.counters({"any_n": {"c": 0}}))
    quantity, expect = {"flops_per_count": "c", "of": "any_n"}, {"falls_at_each_step": 0.0}
    with pytest.raises(NotMeasured, match="a value of 0"):
        outcome(e, quantity, {"steps": [0.01, 0.05]}, expect, room=ROOM)
    e = evidence(counters=synthetic.counters({"any_n": {"c": 1}}))
    with pytest.raises(NotMeasured, match="nothing was measured of any_n at density 70 %"):
        outcome(e, quantity, {"steps": [0.01, 0.7]}, expect, room=ROOM)


@pytest.mark.parametrize(
    "low,high,expected",
    [
        (0.5, 0.6, REPRODUCED),
        (0.6, 0.6, REPRODUCED),
        (0.7, 0.7, PARTLY),
        (0.4, 0.4, PARTLY),
        (0.8, 0.8, NOT_REPRODUCED),
    ],
)
def test_the_transition_of_the_roofline(low, high, expected):
    """The ridge of the model is at 15 FLOP/B: 1 - 15 / (64 - 2 * 15) of the large block."""
    expect = {"within": [low, high], "tolerance": 0.05, "partly": 0.2}
    quantity = {"roofline_transition": [64, 128]}
    got = outcome(evidence(), quantity, "each point", expect, ["ceilings"], ROOM)
    assert got.verdict == expected and got.measured == "56% sparsity"
    assert "ridge at 15.0 FLOP/B" in got.why and "L2: 85%" in got.why


@pytest.mark.parametrize(
    "factors,expected",
    [
        ((1.2, 1.2, 1.2), REPRODUCED),
        ((1.2, 1.2, 1.0), PARTLY),
        ((1.2, 1.0, 0.9), NOT_REPRODUCED),
        ((1.04, 1.04, 1.04), NOT_REPRODUCED),  # within 5%
    ],
)
def test_the_trend_of_labels(factors, expected):
    """factors: of the rate from the first label to the last, at each density."""
    first = synthetic.experiment("wide", label="vectors of 4")
    last = synthetic.experiment("wide")
    last["tflops"] *= last["density"].map(dict(zip(synthetic.DENSITIES, factors, strict=True)))
    e = evidence({"wide": pd.concat([first, last], ignore_index=True)})

    def got(*labels):
        reduce = {"trend_of_labels": list(labels)}
        return outcome(e, {"tflops": "warp_per_row"}, reduce, {"rises": 0.05}, ["wide"], ROOM)

    assert got("vectors of 2", "vectors of 4", "").verdict == expected
    with pytest.raises(NotMeasured, match="two of these labels"):
        got("", "other")


@pytest.mark.parametrize(
    "share,expected",
    [
        (0.05, REPRODUCED),
        (0.11, REPRODUCED),
        (0.15, PARTLY),
        (0.3, NOT_REPRODUCED),
        (0.0, NOT_REPRODUCED),
        (-0.05, NOT_REPRODUCED),
    ],
)
def test_added_memory(share, expected):
    made = frames()
    for df in made.values():
        df["prepare_bytes"] = 1e9
        df.loc[df["variant"] == "any_n", "prepare_bytes"] += share * 4 * df["nnz"]
    quantity = {"added_memory": "any_n", "over": "warp_per_row"}
    expect = {"near": [0.01, 0.1], "factor": 1.2, "partly": 2.0}
    got = outcome(evidence(made), quantity, "each point", expect, ALL, ROOM)
    assert got.verdict == expected


@pytest.mark.parametrize("sign,expected", [(1.0, REPRODUCED), (-1.0, NOT_REPRODUCED)], ids=["alike", "opposite"])
def test_the_rank_correlation_with_another_experiment(sign, expected):
    speedups = {
        "wide": lambda m, n, k, d: n**0.1 + d,
        "square": lambda m, n, k, d: (n**0.1 + d) ** (3 * sign),
    }
    made = {name: synthetic.experiment("wide", of).assign(experiment=name) for name, of in speedups.items()}
    quantity = {"speedup": ["warp_per_row"], "over": "cusparse_best"}

    def got(*names):
        expect = {"at_least": 0.9, "partly": 0.7}
        reduce = {"rank_correlation": "wide"}
        return outcome(evidence(made), quantity, reduce, expect, names, ROOM)

    found = got("wide", "square")
    assert found.verdict == expected and f"warp_per_row square {sign:.2f}" in found.why
    with pytest.raises(NotMeasured, match="nothing to hold against wide"):
        got("square")
