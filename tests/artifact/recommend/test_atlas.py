"""The map: what is compared with what, where sparse begins to pay, what preparation costs, and the figure."""

import re
import shutil

import numpy as np
import pandas as pd
import pytest
import synthetic
import worlds
from refused import refused

from artifact import paths, registry
from artifact.measure import records
from artifact.recommend import landscape, statistics

RECORDED = paths.RECORDED / "nvidia-h200"


@pytest.mark.parametrize(
    ("speedups", "density"),
    [
        ({0.01: 10, 0.1: 2, 0.5: 1.1}, np.inf),
        ({0.01: 0.9, 0.1: 0.2}, 0),
        ({0.01: 10, 0.1: 0.1}, np.sqrt(0.001)),
        ({0.01: 4, 0.16: 0.25}, 0.04),
        ({0.01: 0.5, 0.02: 2, 0.08: 0.5}, 0.04),
        ({0.1: 1, 0.2: 0.5}, 0.1),
        ({0.1: 2, 0.2: 1}, np.inf),
    ],
)
def test_where_it_begins_to_pay(speedups, density):
    assert landscape.crossing(pd.Series(speedups)) == pytest.approx(density)


RATES = pd.DataFrame(
    [("FP32", s, s, s, rate) for s, rate in ((512, 10.0), (1024, 20.0), (2048, 30.0), (4096, 40.0), (8192, 50.0))],
    columns=["precision", "m", "n", "k", "tflops"],
)
#: As fast as no GPU is, so that what is left is to move the operands.
RATES = pd.concat([RATES, *(RATES.assign(precision=p, tflops=1e9) for p in ("TF32", "BF16"))])


@pytest.mark.parametrize(
    "how,us",
    [
        (("FP32", 2048, 2048, 2048), 2.0 * 2048**3 / 30e6),
        (("FP32", 2**16, 2**16, 2**16), 2.0 * 2**48 / 40e6),
        (("FP8", 64, 64, 64), np.nan),
        (("TF32", 64, 64, 64, 1.0), 3 * 64**2 * 4 / 1e3),
        (("BF16", 64, 64, 64, 1.0), 3 * 64**2 * 2 / 1e3),
        (("FP32", 2**14, 1, 2**14, 4000.0), 4 * (2**28 + 2**15) / 4e6),  # reading A takes longer than multiplying
    ],
)
def test_dense_time_is_estimated_from_the_nearest_rates(how, us):
    assert landscape.dense_us(RATES, *how) == pytest.approx(us, nan_ok=True)


def sweep(folder, **more):
    """A GPU's records of the synthetic sweep "wide", which the map of the system calls blocks in BF16."""
    with (folder / "casper_sparse" / "map.toml").open("a") as file:
        file.writelines(f"{key} = {value}\n" for key, value in more.items())
    gpu = world(folder)
    records.write(gpu / "casper_sparse" / "wide.csv", synthetic.experiment("wide"))
    return gpu


def test_points_of_a_sweep_are_the_fastest_sparse_over_the_fastest_dense(folder):
    df = landscape.points(sweep(folder, contenders='["warp_*", "rows_*"]', dense='["cusparse_*"]'), folder)
    df = df[df["experiment"] == "wide"]
    assert len(df) == 21 and set(df["sparse"]) == {"rows_per_warp"}
    assert set(df["dense"]) == {"cusparse_alg2"} and np.allclose(df["speedup"], 1 / 0.8)
    assert set(df["columns"]) == {n for _, n, _ in synthetic.SHAPES["wide"]}
    table = landscape.crossings(df)
    assert (table["density"] == np.inf).all() and len(table) == 8 and not table["estimated"].any()
    ends = table[["from", "to", "behind"]].drop_duplicates().to_numpy().tolist()
    assert ends == [[min(synthetic.DENSITIES), max(synthetic.DENSITIES), 0]]


def test_where_sparse_is_behind_is_counted_and_precisions_keep_their_order():
    points = {"precision": ["TF32"] * 2 + ["FP32"] * 2, "density": [0.01, 0.1] * 2, "speedup": [2.0, 0.5, 0.9, 0.2]}
    table = landscape.crossings(pd.DataFrame(points | {"pattern": "blocks", "columns": 64, "dense": ""}))
    assert table[["precision", "behind"]].to_numpy().tolist() == [["TF32", 1]] * 2 + [["FP32", 2]] * 2


def test_a_dense_multiplication_that_was_measured_is_estimated_as_it_was(folder):
    rates, size = landscape.dense_rates(sweep(folder, dense='["cusparse_*"]'), folder), (4096, 512, 4096)
    dense = synthetic.experiment("wide").query("n == 512 and variant == 'cusparse_alg2'")["median_us"].min()
    assert len(rates) == 7 and landscape.dense_us(rates[rates["n"] == 512], "BF16", *size) == pytest.approx(dense)


def test_real_matrices_are_points_by_their_fastest_format_and_dense_is_estimated(folder):
    df = landscape.points(sweep(folder, dense='["cusparse_*"]'), folder)
    real = df[df["pattern"] == landscape.REAL]
    assert len(real) == 24 and set(real["format"]) == {"CSR", "windows"} or set(real["format"]) == {"CSR"}
    assert real["dense_us"].isna().all(), "FP32, and the dense ones are BF16"
    assert (real["density"] < 0.2).all() and set(real["dense"]) == {""}


@pytest.mark.parametrize("more", [0.0, 1.5])
def test_preparation_pays_after_what_it_costs_over_what_it_gains(folder, monkeypatch, more):
    """Windows cost 2 ms more than plain CSR, from which they must gain it; what all need alike changes nothing."""
    made = worlds.pool(12, sizes=(128,))
    made.df["prepare_ms"] += more
    monkeypatch.setattr(landscape, "pools", lambda *_: [made])
    table = landscape.payoffs(folder, folder).set_index("variant")
    assert set(table.index) == {"cut", "win", "auto"}
    df = made.df.pivot_table(index="label", columns="variant", values="median_us")
    simple = df[["plain", "cusparse_alg2"]].min(axis=1)
    gain = (simple - df["win"])[df["win"] < simple]
    assert table.loc["win", "multiplications"] == pytest.approx((2000 / gain).median())
    assert table.loc["win", "pays"] == pytest.approx(len(gain) / len(df))
    assert table.loc["win", ["format", "prepare_ms"]].tolist() == ["windows", 2.0 + more]


@pytest.mark.parametrize("unit", [1.0, 1e-3])
def test_against_dense_only_points_that_are_faster_pay(unit):
    """However short the times are."""
    df = pd.DataFrame(
        {
            "precision": "FP32",
            "pattern": "blocks",
            "density": 0.1,
            "speedup": [2.0, 0.5, 4.0, 1.0],
            "dense_us": [20.0, 20.0, 40.0, 30.0],
            "sparse_us": [10.0, 40.0, 10.0, 30.0],
            "prepare_ms": [1.0, 50.0, 6.0, 9.0],
        }
    )
    df[["dense_us", "sparse_us", "prepare_ms"]] *= unit
    (row,) = landscape.against_dense(df).itertuples(index=False)
    assert (row.points, row.pays) == (4, pytest.approx(2 / 4))
    assert row.prepare_ms == 3.5 * unit and row.multiplications == pytest.approx((100 + 200) / 2)
    (never,) = landscape.against_dense(df.iloc[1:2]).itertuples(index=False)
    assert never.pays == 0 and np.isnan(never.multiplications)


def test_the_fastest_of_each_point_come_in_the_order_of_the_points():
    df = pd.DataFrame({"m": [8, 8, 2, 2, 4], "median_us": [3.0, 1.0, 5.0, 6.0, 2.0]})
    assert landscape._best(df, ["m"]).to_numpy().tolist() == [[8, 1], [2, 5], [4, 2]]


# ---------------------------------------------------------------- what systems say, and which records become a pool


TOML = """
[[real]]
experiment = "real"
precision = "FP32"
order = "given"
formats = { "win*" = "windows", "*" = "CSR" }

[[generated]]
experiment = "wide"
pattern = "blocks"
precision = "BF16"
"""


@pytest.fixture
def folder(tmp_path):
    """A folder with one system, that has a map."""
    records.write_text(tmp_path / "casper_sparse" / "map.toml", TOML)
    shutil.copy(registry.FOLDER / "casper_sparse" / "system.toml", tmp_path / "casper_sparse")
    return tmp_path


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('order = "given"\n', "", "the key 'order' is missing"),
        ('"FP32"', '"FP4"', "'precision' is 'FP4', but must be 'FP32'"),
        ('"blocks"', '"stripes"', "'pattern' is 'stripes', but must be 'non-zeros"),
        (
            'order = "given"',
            'order = "given"\ncolour = 1',
            "'colour' is none of experiment",
        ),
        ("[[generated]]", "[[made]]", "'made' is none of real, generated"),
    ],
)
def test_a_map_that_is_not_whole_is_refused(folder, old, new, says):
    assert old in TOML
    (folder / "casper_sparse" / "map.toml").write_text(TOML.replace(old, new, 1))
    refused(f"casper_sparse/map.toml.*{re.escape(says)}", landscape.maps, folder)


def world(folder, matrices=12):
    """Records and statistics of a synthetic pool below `folder`, which has the system's map."""
    made = worlds.pool(matrices)
    gpu = folder / "records" / "nvidia-h200"
    records.write_machine(gpu / "casper_sparse", synthetic.machine())
    records.write(gpu / "casper_sparse" / "real.csv", made.df)
    rows = "".join(
        ",".join([name, "given", *(str(getattr(s, c)) for c in statistics.COLUMNS[2:])]) + "\n"
        for name, s in made.matrices.items()
    )
    (folder / "casper_sparse" / "statistics.csv").write_text(",".join(statistics.COLUMNS) + "\n" + rows)
    return gpu


def test_a_pool_has_the_rows_whose_matrices_have_statistics(folder):
    gpu = world(folder)
    (found,) = landscape.pools(gpu, folder)
    assert len(found.matrices) == 12 and set(found.df["label"]) == set(found.matrices)
    path = folder / "casper_sparse" / "statistics.csv"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:-1]))
    (found,) = landscape.pools(gpu, folder)
    assert "m11" not in found.matrices and "m11" not in set(found.df["label"])
    path.write_text("".join(lines[: landscape.LEAST_MATRICES]))
    assert landscape.pools(gpu, folder) == [], "too few say nothing"


def test_a_precision_that_was_not_recorded_is_a_sentence(folder):
    gpu = world(folder)
    assert landscape.pool(gpu, "FP32", folder).about.experiment == "real"
    refused("no records of real matrices in TF32 on nvidia-h200; recorded: FP32", landscape.pool, gpu, "TF32", folder)


def test_of_several_pools_the_one_with_the_nearest_columns_is_asked(tmp_path, monkeypatch):
    wide, narrow = worlds.pool(12, sizes=(256, 512)), worlds.pool(8, sizes=(2, 8))
    monkeypatch.setattr(landscape, "pools", lambda *_: [wide, narrow])
    asked = [landscape.pool(tmp_path, n=n) is narrow for n in (None, 1, 8, 300)]
    assert asked == [False, True, True, False]


def test_what_races_on_the_gpu_is_advised_only_where_the_others_are_not_as_good():
    made = worlds.pool(8)
    assert made.advisable == ["plain", "cut", "win", "cusparse_alg2"]
    assert landscape.Pool(made.about, made.df[made.df["variant"] == "auto"], made.matrices).advisable == ["auto"]
    df = made.df.copy()
    df.loc[df["variant"] == "auto", "median_us"] /= 2
    assert landscape.Pool(made.about, df, made.matrices).advisable == ["plain", "cut", "win", "cusparse_alg2", "auto"]


def test_a_point_that_only_those_take_which_race_counts_against_the_others():
    """At one in five nobody else was measured: they are as good at the rest, but that is not nearly all."""
    made = worlds.pool(10)
    left = made.df["label"].isin(["m0", "m1"]) & (made.df["variant"] != "auto")
    holes = landscape.Pool(made.about, made.df[~left], made.matrices)
    assert "auto" in holes.advisable and "auto" not in made.advisable
