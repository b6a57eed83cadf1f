"""What the chapter computes, what its pictures are drawn from, and the measures that only its claims need."""

import numpy as np
import pandas as pd
import pytest

from artifact.book.study import Counters
from artifact.measure.run import start
from artifact.systems.nm_spmm import facts, model, pictures, tables
from artifact.systems.nm_spmm.model import (
    SPARSITIES,
    TRIALS,
    Spmm,
    crossing_of,
    pattern,
)
from kernels import jit, nm_spmm as system

LOOP = """
.L_x_1:
        /*0010*/                   FFMA R1, R2.reuse, R4, R1 ;
        /*0020*/                   FFMA R3, R2, R5, R4 ;
        /*0030*/                   LDS.128 R4, [R8] ;
        /*0040*/                   FFMA R6, R3, R5, R6 ;
        /*0050*/                   BRA `(.L_x_1) ;
"""


def on(arch: str) -> Spmm:
    """The study on a GPU of another generation."""
    here = Spmm(start("nm_spmm", "recorded"))
    here.__dict__["arch"] = arch
    return here


# ---------------------------------------------------------------- the study


def test_what_was_not_counted_is_no_fact():
    found = on("sm_90a")
    found.__dict__["counters"] = Counters(found.counters.rows[:0])
    assert found.counted.empty and tables.counters(found.counted).empty
    assert set(facts.counted(found, found.measure("stepwise"))) == {"few_tiles"}


@pytest.mark.parametrize("arch,able", [("sm_90a", True), ("sm_80", False)])
def test_a_gpu_takes_what_is_compiled_for_it(arch, able):
    here = on(arch)
    assert here.takes("v3") and here.takes("auto") and here.takes("cublas")
    assert {here.takes(v) for v in ("bulk", "tf32", next(iter(TRIALS)))} == {able}
    assert (here.tensor() is not None) == (here.measure("tried") is not None) == able
    assert (len(here.trials) if able else here.trials) == (len(TRIALS) * len(SPARSITIES) if able else None)
    assert (facts.tensor(here.tensor()) is not None) == (facts.trials(here.trials) is not None) == able


@pytest.mark.parametrize("arch,target", [("sm_80", "sm_80"), ("sm_86", "sm_80"), ("sm_100", "sm_90a")])
def test_the_target_is_the_nearest_below(arch, target):
    assert target in jit.TARGETS and on(arch).target == target


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
def test_pattern_reads_the_labels_of_the_system(dtype, window, length):
    problem = system.problem(32, 256, 64, 0.5, group=window, vector=length, dtype=dtype)
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
    assert crossing_of(np.array([1.0, 0.5, 0.25]), np.array(speedups)) == pytest.approx(crossing, nan_ok=True)


TIMES = {"load": 180.0, "index": 15.0, "fragments": 0.0, "compute": 420.0}


# ---------------------------------------------------------------- schedules


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("more", [{}, {"col_info": 40.0}, {"fragments": 100.0, "col_info": 700.0}])
@pytest.mark.parametrize("compute", [60.0, 420.0])
def test_schedule_waits_for_what_it_needs(overlap, more, compute):
    durations = TIMES | {"compute": compute} | more
    bars = pictures.schedule(durations, 6, overlap)
    total = bars.assign(took=bars["end"] - bars["start"]).pivot_table("took", "step", "what", aggfunc="sum")
    taken = {what: duration for what, duration in durations.items() if duration}
    assert total[[*taken]].to_numpy() == pytest.approx(np.tile([*taken.values()], (6, 1)))  # in every step
    lanes = bars.sort_values(["lane", "start"])  # a lane does one thing at a time
    assert (lanes["start"] >= lanes.groupby("lane")["end"].shift(fill_value=0.0) - 1e-9).all()
    start, end = (bars.pivot_table(when, "step", "what", aggfunc=of) for when, of in (("start", "min"), ("end", "max")))
    assert start[["compute", "index"]].ge(end["load"], axis=0).all(axis=None)
    # Of two buffers, the one that is loaded is no longer read.
    assert (start["load"].to_numpy()[2:] >= end["compute"].to_numpy()[:-2]).all()
    assert "col_info" not in more or (start["load"] >= end["col_info"]).all()
    assert overlap or bars["end"].max() == pytest.approx(6 * sum(durations.values()))


@pytest.mark.parametrize(
    ("durations", "overlap", "period"),
    [
        (TIMES, True, 420 + 15),  # the loads are hidden
        (TIMES, False, 615),
        ({"col_info": 40, "load": 260, "compute": 130}, True, 300),  # the multiplications are hidden
        # All slices but the first are read behind the multiplications of the one before.
        (TIMES | {"fragments": 200.0}, True, 420 + 15 + 200 / pictures.SLICES),
    ],
)
def test_schedule_hides_the_shorter_of_the_two(durations, overlap, period):
    assert pictures.period_of(pictures.schedule(durations, 6, overlap)) == pytest.approx(period)


@pytest.mark.parametrize("tiles,steps,blocks", [((32, 16), 64, 132), ((3, 2), 5, 7), ((4, 4), 8, 16)])
def test_shares_are_all_steps_of_all_tiles_and_are_even(tiles, steps, blocks):
    _, data = pictures.shares(tiles, steps, blocks)
    length = data["end"] - data["start"]
    assert (length > 0).all() and set(data["what"]) <= set(pictures.PARTS)
    done = length.groupby([data["schedule"], data["tile"]]).sum()
    assert done.eq(steps).all() and len(done) == 2 * tiles[0] * tiles[1]
    assert data["start"].eq(data.groupby(["schedule", "block"])["end"].shift(fill_value=0)).all()
    last = data.groupby(["schedule", "block"])["end"].max()
    assert last["stream-K"].max() <= last["waves"].max() and np.ptp(last["stream-K"]) <= 1
