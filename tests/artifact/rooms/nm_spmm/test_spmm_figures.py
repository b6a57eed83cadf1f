"""The tables behind the chapter's figures, and that each is drawn."""

import re

import numpy as np
import pandas as pd
import pytest

from artifact.book import figures as book
from artifact.drawing import style
from artifact.measure.records import geomean
from artifact.measure.run import start
from artifact.rooms.nm_spmm import model, tables
from artifact.rooms.nm_spmm.study import CONTENDERS, Spmm, crossing_of, pattern
from kernels import nm_spmm as room
from kernels.nm_spmm import analysis

SPECS = book.specs("nm_spmm")


@pytest.fixture(scope="module")
def study() -> Spmm:
    return Spmm(start("nm_spmm", "recorded"))


@pytest.fixture(scope="module")
def made(study) -> dict[str, pd.DataFrame]:
    df = {name: study.measure(name) for name in CONTENDERS}
    points = tables.llama_points(study, df["llama"])
    return {
        "footprint": tables.footprint(model.random_patterns(k=512, n=1024, seed=0)),
        "transition": tables.transition(study, 0.7),
        "steps": tables.stepwise(study, df["stepwise"]),
        "stepwise": tables.stepwise(study, df["stepwise"]),
        "sizes": tables.sizes(study, df["sizes"]),
        "llama-means": tables.llama_means(points),
        "llama": tables.llama_points(study, df["llama"], "A100"),
        "llama-gpus": points,
        "anchors": tables.anchors(study, df["anchors"]),
        "trials": tables.trial_points(study.trials),
        "few-tiles": tables.few_tiles_gain(df["anchors"], study.here.sm_count),
        "roofline": tables.roofline(study, study.counted),
        "vectors": tables.vectors(study, df["vectors"]),
        "tensor": tables.tensor(study.tensor()),
    }


@pytest.mark.parametrize("name", [name for name, spec in SPECS.items() if "kind" in spec])
def test_every_chart_is_drawn_and_told(made, name):
    style.apply()
    rows = book.drawn_rows(SPECS[name], made[name])
    assert book.draw(SPECS[name], rows, tables.ORDER).get_axes()
    assert re.search(r"\d", book.alt(SPECS[name], rows))


def test_contenders_have_their_looks():
    named = {v for spec in SPECS.values() for v in spec.get("where", {}).get("variant", ())}
    assert {v for v in named if not v.startswith(style.BASELINES)} <= {*tables.ORDER, "ideal, M/N"}
    assert set(tables.ORDER) <= set(room.VARIANTS)


@pytest.mark.parametrize("dtype", ["float32", "tf32", "bfloat16"])
@pytest.mark.parametrize("window,length", [(32, 32), (32, 8), (16, 32), (4, 128), (8, 1)])
def test_pattern_reads_the_labels_of_the_room(dtype, window, length):
    problem = room.problem(32, 256, 64, 0.5, group=window, vector=length, dtype=dtype)
    assert pattern(problem.label) == (window, length)


def test_stepwise_is_of_the_ceiling_and_over_v1(study, made):
    df = made["stepwise"]
    v3 = df[(df["variant"] == "v3") & (df["source"] == "measured")].set_index("density")
    us = study.measure("stepwise").set_index(["variant", "density"])["median_us"]
    assert v3["over_base"][0.5] == pytest.approx(us["v1", 0.5] / us["v3", 0.5])
    assert v3["per_cent"][0.5] == pytest.approx(100 * 4096**3 / us["v3", 0.5] / 1e6 / study.fma)
    stated = df[df["source"] == "stated"].set_index(["variant", "density"])["per_cent"]
    assert stated["v3", 0.5] == pytest.approx(96) and stated["nmsparse_vw32", 0.25] == pytest.approx(49)
    dense = df[df["variant"] == "cublas"]["tflops"]
    assert dense.max() / dense.min() < 1.1  # the dense product at every sparsity


def test_llama_has_every_point_and_the_published_series(made):
    counts = made["llama-gpus"].groupby(["source", "panel"]).size()
    assert (counts["stated"] == 3 * 400).all() and counts["measured"].to_list() == [1600]
    assert set(made["llama"]["panel"]) == set(made["llama-gpus"]["panel"]) - {"A100", "RTX 3090", "RTX 4090"}
    mine = made["llama-gpus"].query("line == 'auto' and density == 0.5")["speedup"]
    means = made["llama-means"].query("contender == 'auto' and density == 0.5").iloc[0]
    assert (means["mean"], means["least"], means["points"]) == pytest.approx((geomean(mine), mine.min(), 100))


def test_anchors_have_their_means(made):
    df = made["anchors"].query("contender == 'auto' and density == 0.5")
    mean = df[df["shape"] == "geometric mean"].iloc[0]
    shapes = df[df["shape"] != "geometric mean"]["speedup"]
    assert mean["speedup"] == pytest.approx(geomean(shapes)) and mean["points"] == len(shapes) == 9
    assert set(made["anchors"].query("source == 'stated'")["contender"]) == {"nm_spmm", "nmsparse"}


def test_the_roofline_has_intensities_of_what_was_counted(study, made):
    df = made["roofline"]
    v3 = df.query("variant == 'v3' and density == 0.5 and source == 'measured'").set_index("memory")
    assert v3["intensity"]["DRAM, counted"] == pytest.approx(v3["useful_flops"].iloc[0] / v3["dram_bytes"].iloc[0])
    assert v3["intensity"]["by Eq. 3"] == model.by_eq3(study)["v3", 0.5]
    assert len(df.query("variant == 'cublas'").drop_duplicates("density")) == 1


@pytest.mark.parametrize(
    "speedups,crossing",
    [((0.5, 0.7, 0.9), np.nan), ((1.1, 1.2, 1.3), 0.0), ((0.5, 1.0, 2.0), 0.5), ((2.0, 0.5, 2.0), 1 - 0.5 / 2**0.5)],
)
def test_the_last_crossing_counts(speedups, crossing):
    found = crossing_of(np.array([1.0, 0.5, 0.25]), np.array(speedups))
    assert found == pytest.approx(crossing, nan_ok=True)


def test_the_transition_is_that_of_the_analysis(study, made):
    df = made["transition"].drop_duplicates(["gpu", "kind"]).set_index(["kind", "gpu"])["crossing"]
    block = model.BLOCK.rows, model.BLOCK.columns
    for device in model.devices(study.here):
        assert df["staged whole", device.name] == pytest.approx(analysis.transition(device, *block), abs=0.005)
