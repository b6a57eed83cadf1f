"""Tables and sentences of the chapter, on the shipped records and on what other GPUs or parts of them would give."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from drawn import legible, overlaps

from artifact.drawing.cells import NO_COUNTERS
from artifact.measure import records
from artifact.measure import run as harness
from artifact.profiling import ncu
from artifact.rooms.casper_sparse import experiments, figures, prose, tables
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
    text = prose.compiled(report)
    entries = len(set(tables.used().values()))
    assert text.startswith(f"{entries} instantiations for sm_80, sm_90a: {2 * entries} compilations, none")
    spilled = report.assign(spills=report["target"] == "sm_80")
    assert f"{entries} of which spill" in prose.compiled(spilled)
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


def test_points_name_the_best_algorithms(everything):
    text = prose.points(everything)
    assert f", {len(room.VARIANTS)} variants of ours" in text
    assert "`alg2` at" in text


def test_whether_b_fits_a_cache_is_counted(everything):
    sizes = everything.drop_duplicates(["experiment", "m", "n", "k", "density"])
    largest = int((4 * sizes["k"] * sizes["n"]).max())
    assert f"At {len(sizes)} of them, 100%" in prose.in_cache(everything, {"l2_bytes": largest})
    assert "At 0 of them, 0%" in prose.in_cache(everything, {"l2_bytes": 2**20})


def test_wide_tells_the_trend(everything):
    ones = everything.assign(median_us=1.0)
    n = ones["n"]
    wide = ones["experiment"] == "wide"
    assert "does not fall" in prose.wide(ones)
    falls = slower(ones, "warp_per_row", 2 * n[wide] / n[wide].min(), wide)
    assert "It falls as N grows, as the source says." in prose.wide(falls)
    crosses = slower(ones, "warp_per_row", n[wide] / n[wide].min() / 2, wide)
    assert "2.00× at N = 512" in prose.wide(crosses) and "*ahead* at small N" in prose.wide(crosses)


def test_square_is_held_against_wide(everything):
    ones = everything.assign(median_us=1.0)
    square = ones["experiment"] == "square"
    assert "better of the two" in prose.square(ones)
    assert "*worse* of the two" in prose.square(slower(ones, "warp_per_row", 2, square))


def test_tall_counts_the_points_ahead(everything):
    ones = everything.assign(median_us=1.0)
    assert "at 0% of the points" in prose.tall(ones)
    assert "at 100% of the points" in prose.tall(slower(ones, "warp_per_row", 0.5))


def test_gather_divides_bytes_by_time(everything, ceilings):
    df = everything.assign(requested_bytes=3e12, median_us=1e6)  # 3 TB in a second
    text = prose.gather(df, ceilings)
    assert "at most 3.0 TB/s (wide), 3.0 TB/s (square), 3.0 TB/s (tall)." in text
    assert f"**{ceilings.l2_gbps / 2e3:.1f} TFLOP/s**" in text


# ---------------------------------------------------------------- counters


def test_three_limits(counters):
    text = prose.three_limits(counters)
    assert text.count("\n- **") == 3 and "nan" not in text
    assert tables.counters(counters).data["variant"].nunique() == 5


def test_counters_that_are_not_there(run, counters, tmp_path):
    assert experiments.counters(replace(run, folder=tmp_path)) is None
    assert prose.three_limits(None) == NO_COUNTERS
    assert tables.counters(None) is None
    part = Counters(counters.tidy[counters.tidy["m"] < 16384])
    assert "only some have hardware counters" in prose.three_limits(part)


# ---------------------------------------------------------------- the ladder


def test_ideas(everything, report, counters):
    text = prose.ideas(everything, report, counters, 132)
    assert text.count("\n- **`") == len(room.VARIANTS) - 1  # of all but the published one
    assert "20 registers, where `l2_panels` takes 40" in text
    assert "about 31 rows of a panel" in text
    assert "times the bytes of `in_flight` from DRAM" in text
    without = prose.ideas(everything, report, None, 132)
    assert "(many of the reads hit L1)" in without and "far more from DRAM" in without


def test_ideas_compare_with_the_rung_that_they_change(everything, report):
    ones = everything.assign(median_us=1.0)
    text = prose.ideas(slower(ones, "column_tiles", 4), report, None, 132)
    assert "**`column_tiles`**: 0.25× in the wide sweep, 0.25× and 0.25×" in text
    assert "**`l2_panels`**: 4.00× over that" in text
    text = prose.ideas(slower(ones, "scalar", 2), report, None, 132)
    assert "**`scalar`** (4-byte loads): 0.50×, 0.50×\n  and 0.50×" in text
    text = prose.ideas(slower(ones, "auto", 1.5), report, None, 132)
    assert "50.0% behind the best of them at the median, 50% at worst" in text


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
    assert "`auto` is" in prose.ragged(table)
    assert "ahead at all of them" in prose.ragged(table.assign(auto=1.5))
    one = table.assign(auto=np.where(table["N"] == 33, 0.5, 1.5))
    assert "at 1 of 9 (N = 33), most at N = 33 with 0.50×" in prose.ragged(one)


def test_real_matrices(run, tmp_path):
    table = tables.real(experiments.real(run))
    assert list(table.columns)[:4] == ["matrix", "domain", "rows", "nnz"]
    assert f"{len(table)} matrices of the SuiteSparse" in prose.real(table)
    least = table.assign(auto=np.where(table.index == 2, 0.25, 2.0))
    assert f"behind the library on 1 of them (least: {table['matrix'][2]}, 0.25×)" in prose.real(least)
    fig, drawn = figures.real(table)
    rows = drawn[drawn["variant"] == "auto"]["row"].tolist()
    assert sorted(rows) == sorted(table["matrix"]) and not overlaps(fig)
    few = experiments.real(replace(run, preset="kick"))
    assert few["label"].nunique() == 3
    missing = tables.real(experiments.real(replace(run, folder=tmp_path)))
    assert missing is None and figures.real(missing) is None
    text = prose.real(missing)
    assert "Set `SPARSITY_MATRICES`" in text and "`artifact/measure/matrices.csv`" in text


def test_accuracy(everything):
    table = tables.errors(everything)
    assert BEST not in table.index and "warp_per_row" in table.index
    assert "e-0" in tables.errors_rounded(everything).to_html()
    alike = everything.assign(rel_err=1e-7)
    assert prose.accuracy(alike) == "All stay below 1.1e-07. "
    better = alike.assign(rel_err=np.where(alike["variant"] == "cusparse_alg3", 1e-8, 1e-7))
    assert "cuSPARSE's `alg3` lose" in prose.accuracy(better)


def test_repetition(run, everything, tmp_path):
    second = experiments.again(harness.start("casper_sparse", mode="recorded", repeat=True))
    assert "measurements the second run differs" in prose.repeats(everything, second)
    half_more = everything.assign(median_us=everything["median_us"] * 1.5)
    assert "by 50.0% at the median, 50.0% at the ninetieth percentile and 50%" in prose.repeats(everything, half_more)
    none = experiments.again(replace(run, folder=tmp_path))
    assert none is None and figures.spread(everything, none) is None
    assert prose.repeats(everything, none) == "There is no second run of these records."


def test_abstract_or_section(everything):
    verdicts = {"abstract-speedup": "partly", "summary-cusparse-faster": "not reproduced"}
    ones = everything.assign(median_us=1.0)
    text = prose.abstract_or_section(slower(ones, "cusparse_default", 2), verdicts)
    assert "is *partly*, section V's" in text and "is *not reproduced*" in text
    assert "ahead at\n0% of the points of this GPU" in text
    assert "ahead at 100% of the points (geometric mean\n2.00×" in text
