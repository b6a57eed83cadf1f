"""The paper's numbers: that they have their source, and what their own arithmetic says."""

import async_records as made
import pandas as pd
import pytest

from artifact import registry
from artifact.measure import records
from artifact.rooms.async_sparse import contenders, facts

TABLE1, TABLE2, TABLE3, TEXT = map(records.published, made.TABLES.values())


@pytest.mark.parametrize("name", made.TABLES)
def test_every_number_has_its_source(name):
    df = records.published(made.TABLES[name])
    assert df.attrs["source"].startswith("AsyncSparse: Accelerating Sparse Matrix-Matrix")
    assert "H100 with 96 GB" in df.attrs["source"] and "2604.17834" in df.attrs["source"]
    assert df["where"].notna().all() and not (df["low"] > df["high"]).any()
    if "quote" in df:
        assert df["quote"].str.len().gt(20).all()


def test_claims_refer_to_these_numbers():
    claims = registry.toml(registry.FOLDER / made.ROOM / registry.CLAIMS)["claim"]
    used = {(c["published"]["figure"], c["published"]["quantity"]) for c in claims if isinstance(c["published"], dict)}
    held = {(name, q) for name in made.TABLES for q in records.published(made.TABLES[name])["quantity"]}
    # Latencies are judged as speedups; gains and paddings, stages, registers and the
    # size of a cluster follow from what is judged, or are facts of the kernel.
    left = {q for _, q in held - used} - {q for _, q in used}
    assert left == {
        "latency",
        "speedup_cublas",
        "gain",
        "gain_of_three",
        "padding",
        "stages",
        "blocks_per_sm",
        "cluster_size",
        "cluster_launch_fails",
    }


def test_what_was_measured_apart_says_where_and_how():
    apart = contenders.apart()
    assert "One NVIDIA H200" in apart.attrs["source"] and "cold L2" in apart.attrs["source"]
    over = apart[apart["quantity"] == "speedup_csr"].set_index(["kernel", "n"])["low"]
    assert over["Voltrix", 256] == 0.72


# ---------------------------------------------------------------- Table I


def test_table_1_is_whole():
    rates = TABLE1[TABLE1["quantity"] == "tflops"]
    count = rates.groupby(["kernel", "n"]).size()
    assert len(rates) == 8 * 3 * 4 - 4 and set(count) == {4}  # DTC-SpMM does not run at 1024
    assert ("DTC-SpMM", 1024) not in count.index and count["WCSR"].sum() == 12


def test_speedups_of_table_1_over_three_kernels_are_not_those_of_its_rates():
    df = contenders.recomputed(TABLE1)
    assert len(df) == 80
    off = df[~df["agrees"]]
    assert set(off["kernel"]) == {"TC-GNN", "TorchAO", "cuSPARSE"}
    assert (df["ratio"] / df["stated"] - 1).abs().max() == pytest.approx(0.08, abs=0.005)
    headline = df[(df["kernel"] == "cuSPARSE") & (df["n"] == 1024) & (df["density"] == 0)]
    assert headline["stated"].item() == 6.24  # the abstract's
    assert headline["ratio"].item() == pytest.approx(5.74, abs=0.005)


def test_ratios_that_the_text_takes_from_table_1():
    rate = TABLE1[TABLE1["quantity"] == "tflops"].set_index(["kernel", "n", "density"])["low"]
    at = lambda kernel, d: rate[kernel, 1024, d] / rate["cuSPARSE", 1024, d]  # noqa: E731
    assert at("TC-GNN", 0.005) == pytest.approx(0.55, abs=0.005)
    assert at("TorchAO", 0.005) == pytest.approx(0.80, abs=0.005)
    assert at("AccSpMM", 0) == pytest.approx(3.90, abs=0.01)  # the text: 5.58
    assert at("AccSpMM", 0.01) == pytest.approx(1.65, abs=0.01)  # the text: 1.68


# ---------------------------------------------------------------- Table II


def test_speedups_of_table_2_are_over_three_rates_of_one_library():
    implied = contenders.implied(TABLE2)
    ladder = implied[["opt1", "opt2", "opt3", "opt4", "opt5", "opt6"]]
    assert ladder.between(1.49, 1.53).all()
    assert implied["opt7"] == pytest.approx(2.45, abs=0.01)  # of its 300 matrices
    assert implied["triton_bsr"] == pytest.approx(1.65, abs=0.01)
    assert contenders.value(TABLE2, "tflops", variant="cusparse_bell", matrices=414) == 1.60


def test_gains_of_the_text_are_those_of_table_2():
    over = contenders.over_bell(TABLE2)
    stated = TEXT[TEXT["quantity"] == "gain"].set_index("variant")["low"]
    steps = contenders.shares(over)
    assert steps["gain"].to_dict() == pytest.approx(stated[["opt1", "opt2", "opt3", "opt4"]].to_dict(), abs=0.005)
    for variant in ("opt6", "opt7"):
        assert over[variant] - over["opt5"] == pytest.approx(stated[variant], abs=0.005)


def test_98_per_cent_and_what_it_is_by_factors():
    steps = contenders.shares(contenders.over_bell(TABLE2))
    three = steps.loc[["opt1", "opt2", "opt3"]]
    assert three["gain"].sum() == pytest.approx(4.23)  # the text: 4.31, which is the speedup itself
    assert contenders.value(TEXT, "gain_of_three") == 4.31
    assert three["by difference"].sum() == pytest.approx(0.98, abs=0.005)
    assert three["gain"]["opt3"] / three["gain"].sum() == pytest.approx(0.65, abs=0.005)
    assert three["by difference"].idxmax() == "opt3" and three["by factor"].idxmax() == "opt1"
    assert three["by factor"]["opt1"] == pytest.approx(0.41, abs=0.01)
    assert three["by factor"]["opt3"] == pytest.approx(0.25, abs=0.01)
    assert steps["by factor"].sum() == pytest.approx(1) == steps["by difference"].sum()


# ---------------------------------------------------------------- tiles and resources


def test_padding_of_the_tiles_and_what_fits_an_sm():
    assert (contenders.padded(176), contenders.padded(248)) == (1056, 1488)
    assert [w for w in made.WIDTHS if contenders.padded(w) == 1024] == [8, 16, 32, 64, 128, 256]
    assert contenders.RULE == 256 and contenders.STAGE == {"A": 8192, "B": 65536}
    said = dict(facts.stated(TABLE1, TABLE2, TABLE3, TEXT))
    assert said["waste.extra"] == pytest.approx(0.453, abs=0.001)  # the text: 45% of the computation
    assert said["waste.wasted"] == pytest.approx(0.312, abs=0.001)  # what that is of the computation
    assert said["block.registers"] == 64512 and said["block.by_registers"] == 1 == said["block.by_shared"]
    assert said["multicast.saves"] == pytest.approx(0.056, abs=0.001)
    assert (
        said["stated.end_to_end.together"] == pytest.approx(1.98, abs=0.01) and said["stated.end_to_end.both"] == 2.66
    )
    assert (round(said["stated.useful.most"]), round(said["stated.useful.least"])) == (219, 21)


# ---------------------------------------------------------------- Table III and Fig. 8


def test_speedups_of_table_3_are_those_of_its_latencies():
    keyed = TABLE3[TABLE3["n"].notna()].set_index(["quantity", "variant", "n", "density"])["low"]
    speedups = keyed["speedup_cublas"]["opt5"]
    for at, stated in speedups.items():
        dense, ours = keyed["latency"]["cublas_dense_default"][at], keyed["latency"]["opt5"][at]
        assert (dense - 0.005) / (ours + 0.005) - 0.005 < stated < (dense + 0.005) / (ours - 0.005) + 0.005, at
    ends = TABLE3[TABLE3["quantity"] == "speedup_range"].set_index("density")[["low", "high"]]
    by = speedups.groupby(level="density")
    pd.testing.assert_frame_equal(by.agg(low="min", high="max"), ends.sort_index(), check_names=False)
