"""Tables, figures and facts of the chapter, on the shipped records and on others that are made up."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from drawn import legible, overlaps

from artifact.measure import records
from artifact.measure import run as harness
from artifact.profiling import ncu
from artifact.rooms.casper_sparse import experiments, facts, figures, tables
from artifact.rooms.casper_sparse.experiments import BEST, Counters
from kernels import casper_sparse as room


@pytest.fixture(scope="module")
def run():
    return harness.start("casper_sparse", mode="recorded")


@pytest.fixture(scope="module")
def everything(run):
    return records.best_of(experiments.all_sweeps(run))


@pytest.fixture(scope="module")
def ceilings():
    return experiments.ceilings(harness.start("ceilings", mode="recorded"))


@pytest.fixture(scope="module")
def counters(run):
    return experiments.counters(run)


@pytest.fixture(scope="module")
def report():
    """A made-up compile report: every instantiation that N takes, on two targets, `in_flight` with 20 registers."""
    rows = [
        {
            "variant": name,
            "entry": entry,
            "target": target,
            "registers": 20 if name == "in_flight" else 40,
            "shared_bytes": 1024,
            "stack_bytes": 0,
            "spills": False,
            "instructions": 500,
            "LDG.128": 8,
            "FFMA": 64,
        }
        for name, entry in tables.used().items()
        for target in ("sm_80", "sm_90a")
    ]
    return pd.DataFrame(rows)


def slower(df: pd.DataFrame, variant: str, factor, where=None) -> pd.DataFrame:
    """Records in which a contender takes `factor` times as long."""
    df = df.copy()
    rows = df["variant"] == variant
    df.loc[rows if where is None else rows & where, "median_us"] *= factor
    return df


# ---------------------------------------------------------------- machine code


def test_compiled(report):
    entries = len(set(tables.used().values()))
    found = dict(facts.compiled(report.assign(spills=report["target"] == "sm_80")))
    assert (found["compiled.entries"], found["compiled.count"]) == (entries, 2 * entries)
    assert found["compiled.spilling"] == entries and found["registers.in_flight"] == 20
    table = tables.compiled(report).data
    assert list(table.columns) == ["entry", "registers", "shared [B]", "LDG.128", "FFMA"]
    assert f"All {2 * entries} compilations" in tables.all_compilations(report)


# ---------------------------------------------------------------- the three sweeps


def test_panels_have_the_data_of_their_sweep(everything, ceilings):
    for experiment in figures.SWEEPS:
        (answer, behind) = figures.panels(everything, experiment, ceilings)
        for (fig, data), named, below in (answer, behind):
            assert set(data["experiment"].dropna()) == {experiment} and named.startswith(experiment)
            assert below["caption"].startswith(f"The {experiment} sweep")
            assert not overlaps(fig)
        assert "fold" in behind[2] and "fold" not in answer[2]
        assert "speedup" in answer[0][0].get_axes()[0].get_ylabel()


def test_memories_are_drawn_beside_their_ceilings(everything, ceilings, counters):
    fig, data = figures.asked(everything, ceilings)
    legible(fig)
    rows = everything[(everything["variant"] == "warp_per_row") & (everything["experiment"] == "tall")]
    drawn = data[(data["variant"] == "warp_per_row") & (data["group"] == "tall")]
    rates = rows["requested_bytes"] / rows["median_us"] / 1e6
    assert drawn["most"].iloc[0] == pytest.approx(rates.max())
    fig, data = figures.counted(counters, ceilings)
    legible(fig)
    assert [ax.get_title() for ax in fig.get_axes()] == list(experiments.MEMORIES)
    assert (data["most"] < 1.05 * data["ceiling"]).all()  # no memory delivers more than it can
    assert figures.counted(None, ceilings) is None


def test_traffic_is_bytes_over_time(counters):
    one = counters.tidy.query("variant == 'shared_tiles' and m == 1048576 and density == 0.05")
    value = one.set_index("metric")["value"]
    moved = value["dram__bytes_read.sum"] + value["dram__bytes_write.sum"]
    row = counters.traffic.query("variant == 'shared_tiles' and m == 1048576 and density == 0.05")
    assert row["DRAM"].item() == pytest.approx(moved / value["gpu__time_duration.sum"] / 1e3)
    assert row["group"].item() == "tall"
    other = {usual: other for usual, other in ncu.OTHER_NAMES.items()}
    tidy = counters.tidy.assign(metric=counters.tidy["metric"].replace(other))
    pd.testing.assert_frame_equal(Counters(tidy).traffic, counters.traffic)


def test_alternative_texts_of_a_sweep_tell_its_ends(everything, ceilings):
    ones = everything.assign(median_us=1.0)
    for named in figures.SWEEPS:
        answer, behind = figures.panels(ones, named, ceilings)
        text = answer[2]["alt"](answer[0][1])
        assert "warp_per_row goes from 1.00 to 1.00 times" in text and "cuSPARSE's best" in text
        assert "takes 1 to 1 µs" in behind[2]["alt"](behind[0][1])


def test_whether_b_fits_a_cache_is_counted(everything):
    sizes = everything.drop_duplicates(["experiment", "m", "n", "k", "density"])
    largest = int((4 * sizes["k"] * sizes["n"]).max())
    fit = [dict(facts.sweeps(everything, {"l2_bytes": size}))["points.fit_l2"] for size in (largest, 2**20)]
    assert fit == [len(sizes), 0]


def test_gather_divides_bytes_by_time(everything, ceilings):
    df = everything.assign(requested_bytes=3e12, median_us=1e6)  # 3 TB in a second
    found = dict(facts.gather(df, ceilings))
    assert [found[f"drawn.{sweep}"] for sweep in figures.SWEEPS] == [3.0] * 3


# ---------------------------------------------------------------- counters


def test_three_limits(counters):
    assert not any(value != value for _, value in facts.limits(counters))
    assert tables.counters(counters).data["variant"].nunique() == 5


def test_counters_that_are_not_there(run, counters, tmp_path):
    assert experiments.counters(replace(run, folder=tmp_path)) is None
    assert not list(facts.limits(None)) and tables.counters(None) is None
    part = dict(facts.limits(Counters(counters.tidy[counters.tidy["m"] < 16384])))
    assert not any("16384" in name for name in part)


# ---------------------------------------------------------------- the ladder


def test_a_rung_is_compared_with_the_one_that_it_changes(everything):
    ones = everything.assign(median_us=1.0)
    found = dict(facts.ladder(slower(ones, "column_tiles", 4), {"sm_count": 132}))
    assert {found[f"ladder.column_tiles.{sweep}"] for sweep in figures.SWEEPS} == {0.25}
    assert found["ladder.l2_panels.wide"] == pytest.approx(4)
    found = dict(facts.ladder(slower(ones, "auto", 1.5), {"sm_count": 132}))
    assert found["regret.median"] == found["regret.most"] == 0.5


def test_last_rung(everything, ceilings):
    ones = everything.assign(median_us=1e3, least_bytes=ceilings.copy_gbps * 1e6, useful_flops=0.0)
    table = tables.last_rung(ones, ceilings)
    assert table["sweep"].tolist() == list(room.sweeps("full"))
    assert np.allclose(table["share of roofline, median"], 1)
    assert np.allclose(table["geometric mean"], 1)
    assert tables.rounded(table).to_html()


def test_preprocessing_is_even_after_what_it_costs(everything):
    df = everything.assign(median_us=100.0, prepare_ms=1.0, prepare_bytes=2.0**21)
    ahead = df["variant"].isin(["auto"])
    df.loc[ahead, ["median_us", "prepare_ms"]] = 50.0, 2.0  # 1000 µs more, 50 µs less each time
    df.loc[df["variant"] == "split_rows", "prepare_ms"] = 9.0  # and never faster
    even = tables.preprocessing(df).set_index("variant")["multiplications until even, median"]
    assert even["auto"] == 20 and even["split_rows"] == np.inf and even["in_flight"] == 0
    assert (tables.preprocessing(df)["memory, largest [MiB]"] == 2).all()


# ---------------------------------------------------------------- any N, real matrices, accuracy, repetition


def test_ragged(run):
    table = tables.ragged(experiments.ragged(run))
    assert table["N"].tolist() == list(experiments.RAGGED["full"])
    one = dict(facts.ragged(table.assign(auto=np.where(table["N"] == 33, 0.5, 1.5))))
    assert (one["ragged.behind"], one["ragged.where"], one["ragged.least.ratio"]) == (1, "33", 0.5)


def test_real_matrices(run, tmp_path):
    table = tables.real(experiments.real(run))
    assert list(table.columns)[:4] == ["matrix", "domain", "rows", "nnz"]
    least = dict(facts.real(table.assign(auto=np.where(table.index == 2, 0.25, 2.0))))
    assert (least["real.behind"], least["real.least.matrix"]) == (1, table["matrix"][2])
    fig, drawn = figures.real(table)
    rows = drawn[drawn["variant"] == "auto"]["row"].tolist()
    assert sorted(rows) == sorted(table["matrix"]) and not overlaps(fig)
    few = experiments.real(replace(run, preset="kick"))
    assert few["label"].nunique() == 3
    missing = tables.real(experiments.real(replace(run, folder=tmp_path)))
    assert missing is None and figures.real(missing) is None


def test_accuracy(everything):
    table = tables.errors(everything)
    assert BEST not in table.index and "warp_per_row" in table.index
    assert "e-0" in tables.errors_rounded(everything).to_html()
    alike = everything.assign(rel_err=1e-7)
    assert dict(facts.accuracy(alike))["error.better"] == 0
    better = alike.assign(rel_err=np.where(alike["variant"] == "cusparse_alg3", 1e-8, 1e-7))
    assert dict(facts.accuracy(better))["error.who"] == "`alg3`"


def test_repetition(run, everything, tmp_path):
    second = experiments.again(harness.start("casper_sparse", mode="recorded", repeat=True))
    assert dict(facts.repeats(everything, second))["again.median"] < 0.1
    half_more = dict(facts.repeats(everything, everything.assign(median_us=everything["median_us"] * 1.5)))
    assert half_more["again.median"] == pytest.approx(0.5) == half_more["again.most"]
    none = experiments.again(replace(run, folder=tmp_path))
    assert none is None and figures.spread(everything, none) is None
    assert not list(facts.repeats(everything, none))
