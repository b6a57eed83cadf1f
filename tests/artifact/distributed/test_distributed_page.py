"""The chapter on several GPUs: what it says and claims from records, and what it says without any."""

import functools

import matplotlib
import numpy as np
import pandas as pd
import pytest
from matplotlib import pyplot as plt
from scaled import rows

from artifact import paths
from artifact.book import charts, figures, study, text
from artifact.distributed import page, scaling
from artifact.distributed.scaling import OURS
from artifact.measure import records
from kernels.distributed import generate, partition
from kernels.formats import bcsr

matplotlib.use("Agg")
SHIPPED = page.RECORDED / "nvidia-h200"
FAST = rows(nvlink=1e6)


@pytest.fixture(scope="module")
def shipped():
    return page.load(SHIPPED)


def changed(df, factor: float, **at):
    """Records of ours whose times are so many times as long where columns have these values."""
    mine = study.where(df, contender=OURS, **at).index
    return page.derived(df.assign(median_ms=df["median_ms"].where(~df.index.isin(mine), factor * df["median_ms"])))


def written(path, df) -> None:
    scaling.write(path, df[[*scaling.COLUMNS]])


def said(facts, *blocks: str) -> list[str]:
    made = text.page("distributed")
    made.add(facts)
    return [made(block) for block in blocks or made.blocks]


def test_without_records_there_is_nothing(tmp_path):
    df = page.load(tmp_path)
    assert df.empty and list(page.facts(df, tmp_path)) == []
    for make in (page.efficiencies, page.predictions, page.rates, page.fits, page.times):
        assert make(df).empty
    assert (
        page.load(tmp_path, page.BEYOND).empty and page.schedules(tmp_path, df).empty and page.agrees(tmp_path) is None
    )
    known = figures.specs("distributed")
    for name, data in {"scaling": page.efficiencies(df), "predictions": page.predictions(df)}.items():
        assert charts.parts(figures.drawn_rows(known[name], data))[0].empty  # so nothing is shown
    alone = rows(gpus=(1,))
    assert page.efficiencies(alone).empty and page.predictions(alone).empty and len(page.rates(alone)) == len(alone)
    assert set(page.claims(df)["verdict"]) == set(page.claims(alone)["verdict"]) == {"not measured yet"}


def test_facts_are_of_the_most_gpus_and_of_the_largest_matrix(shipped):
    known, of = dict(page.facts(shipped, SHIPPED)), page.strong(shipped)
    most = of["gpus"].max()
    assert known["strong.gpus"] == most
    for case, own in of[of["gpus"] == most].groupby("case"):
        assert known[f"strong.of.{case}.efficiency"] == own.loc[own["nnz"].idxmax(), "efficiency"]
    # Beside ours on the block-sparse weight: dense, not the slowest of the libraries.
    assert known["baseline.block.contender"] == page.NAMES["dtensor_dense"]
    has = records.read_machine(SHIPPED)["memory_bytes"]
    assert known["memory_bytes"] == has < known["beyond.csr_bytes.low"] <= known["beyond.csr_bytes.high"]
    assert page.load(SHIPPED, page.BEYOND)["csr_bytes"].min() == known["beyond.csr_bytes.low"]


def test_the_text_names_what_is_known(shipped):
    every = said(page.facts(shipped, SHIPPED))
    assert not any("not measured on" in block or "does not hold" in block for block in every)
    beyond, scaled = said(page.facts(rows(), SHIPPED.parent), "short_beyond", "short_scaling")
    assert "`beyond`" in beyond and "on 4 GPUs" in scaled


def test_fresh_records_come_before_shipped_ones(tmp_path, monkeypatch):
    """A rate counts a multiplication and an addition."""
    monkeypatch.setattr(paths, "BUILD", tmp_path)
    assert page.folder() == SHIPPED
    fresh = tmp_path / "distributed" / "nvidia-h200"
    written(fresh / page.SCALING, rows())
    assert page.folder() == fresh and page.folder("recorded") == SHIPPED
    known = dict(page.facts(page.load(fresh), fresh))
    assert (known["measured.day"], known["measured.gpus"], known["measured.commit"]) == ("2026-01-01", "1, 2, 4", "")
    written(fresh / page.SCALING, rows()[:1].assign(nnz=10**9, n=500, median_ms=1000.0))
    assert page.load(fresh)["tflops"].tolist() == pytest.approx([1.0])


def test_efficiency_is_of_one_matrix_or_of_one_that_grows():
    strong, weak = page.strong(rows()), page.weak(rows())
    for table in (strong, weak):
        assert set(table["case"]) == set(page.CASES) and set(table["gpus"]) == {1, 2, 4}
        assert (table[table["gpus"] == 1]["efficiency"] == 1).all()
    of = strong[(strong["case"] == "graph") & (strong["nnz"] >= 1e9)].set_index("gpus")
    assert of.loc[4, "efficiency"] == pytest.approx(of.loc[1, "ms"] / 4 / of.loc[4, "ms"])
    grown = weak[weak["case"] == "graph"].set_index("gpus")["nnz"]
    assert grown[4] == 4 * grown[1]


def test_more_than_all_of_a_gpus_rate_is_said(tmp_path):
    assert said(page.facts(FAST, tmp_path), "above") == [""]
    half = FAST.loc[FAST["case"] == "mesh", "nnz"].min()
    known = dict(page.facts(changed(FAST, 2, case="mesh", gpus=1, nnz=half), tmp_path))
    assert known["weak.mesh.efficiency"] > 1.5 and known["weak.graph.efficiency"] < 1.05
    assert known["weak.mesh.smaller.nnz"] == half < known["weak.mesh.larger.nnz"]
    (above,) = said(known.items(), "above")
    assert "the mesh reaches" in above and "the power-law" not in above


PAIR = rows(nvlink=1e6, gpus=(1, 2))
#: A mesh that takes as long on any number of GPUs, of which nothing is claimed.
SMALLER = FAST[(FAST["case"] == "mesh") & (FAST["size"] == 256)].assign(size=100, nnz=10**6, median_ms=1.0)
NO, YES, NOT_YET = "does not hold", "holds", "not measured yet"


@pytest.mark.parametrize(
    ("df", "verdicts"),
    [
        (FAST, [YES] * 4),
        (changed(FAST, 1.1, gpus=4), [YES] * 4),
        (pd.concat([FAST, SMALLER], ignore_index=True), [YES] * 4),
        (changed(FAST, 1.25, gpus=4), [YES, NO, NO, YES]),
        (changed(FAST, 3, gpus=4), [NO] * 3 + [YES]),
        (page.derived(FAST.assign(sent_bytes=2 * FAST["sent_bytes"])), [YES] * 3 + [NO]),
        (FAST[(FAST["case"] != "graph") | (FAST["nnz"] < 1e9)], [NOT_YET] + [YES] * 3),
        (PAIR, [NOT_YET] * 3 + [YES]),
        (changed(PAIR, 1.5, gpus=2), [f"{NOT_YET}, missed on fewer"] * 3 + [YES]),
    ],
)
def test_claims_are_judged_by_their_bars_and_what_fewer_gpus_reach_is_said(df, verdicts):
    table = page.claims(df)
    assert table["verdict"].tolist() == verdicts
    for measured, verdict in zip(table["measured"][:3], verdicts, strict=False):
        assert verdict not in (YES, NO) or measured.endswith("%")
    if df is PAIR:
        assert table["measured"][:3].str.fullmatch(r"\d+% at 2 GPUs").all()


def test_schedules_are_compared_where_both_were_measured(tmp_path):
    df = rows()
    pair = df[(df["case"] == "mesh") & (df["contender"] == OURS) & (df["gpus"] == 2)]
    written(tmp_path / page.TRIED, pd.concat([changed(pair, 2), pair[:1].assign(size=7)]))
    table = page.schedules(tmp_path, df)
    assert len(table) == 2 * len(pair)
    slow, fast = table["median_ms"][::2], table["median_ms"][1::2]
    assert slow.to_numpy() == pytest.approx(2 * fast.to_numpy(), rel=0.01)


def test_what_travels():
    _, data = page.drawn_parts()
    plt.close("all")
    assert len(data) == 8 and (data["rows of B received"] <= data["rows that others have"]).all()
    table = page.received(generate.Stencil(6, 1), 3)
    assert len(table) == 3 and table["rows"].sum() == 6**3
    ways = page.volumes()
    assert (ways["by rows"] <= ways["all of B"]).all() and set(ways["way"]) < set(ways.columns)


# ---------------------------------------------------------------- the model of more GPUs


@functools.cache
def matrix(case: str):
    """(size, rows of B that an entry names, a matrix of the case)."""
    if case == "block":
        return 2048, 64, bcsr.random(2048, 16384, 0.1, 3)
    size, made = {"graph": (11, generate.Rmat(11, 64, 3)), "mesh": (16, generate.Stencil(16))}[case]
    return size, 1, generate.host_part(made, np.array([0, made.m]), 0).a


@pytest.mark.parametrize(("parts", "domain"), [(1, 1), (2, 1), (8, 1), (8, 2), (32, 1), (32, 8)])
@pytest.mark.parametrize("case", ["graph", "mesh", "block"])
def test_needed_rows_are_those_of_a_matrix(case, parts, domain):
    size, unit, a = matrix(case)
    edges = partition.by_nonzeros(a.row_ptr, parts)
    columns = edges if unit == 1 else partition.even(16384 // unit, parts)
    table = partition.volumes(a.row_ptr, a.col_idx, edges[::domain], columns[::domain])
    assert page.needed(case, size, parts, domain) == pytest.approx(table.sum() * unit, rel=0.08)


def test_a_fit_finds_the_rates_behind_the_records():
    of = page.fit(rows(rate=4.0, nvlink=250.0, slower=1.1), "graph")
    assert of.rate == pytest.approx(4.0) and of.nvlink == pytest.approx(250, rel=0.01)
    assert of.slower == pytest.approx(1.1) and of.error < 0.02 and of.measured == 4


def test_without_one_or_several_gpus_there_is_no_fit():
    df = rows()
    assert page.fit(df[df["gpus"] == 1], "graph") is page.fit(df[df["gpus"] > 1], "graph") is None
    assert page.predictions(df[:0]).empty


@pytest.mark.parametrize(
    ("given", "ms"),
    [((0, 8, 4, 0), 8), ((4, 8, 1, 0), 12), ((4, 8, 4, 0), 9), ((4, 8, 1, 0.5), 8), ((16, 8, 4, 0), 18)],
)
def test_chunks_hide_what_travels(given, ms):
    assert page.together(*given) == ms


def test_predictions_grow_uncertain_and_hierarchical_exchange_saves_infiniband():
    table = page.predictions(rows())
    assert set(table["gpus"]) == set(page.GPUS) and set(table["case"]) == set(page.CASES)
    assert (table["low_ms"] < table["ms"]).all() and (table["ms"] < table["high_ms"]).all()
    assert (table["high_ms"] / table["low_ms"]).groupby(table["gpus"]).mean().is_monotonic_increasing
    wide = table[(table["gpus"] == 64) & (table["domain"] == 8) & (table["case"] == "graph")]
    by_way = wide.set_index("way")["infiniband_bytes"]
    assert by_way["hierarchical"] < by_way["flat"]
    inside = table[(table["gpus"] <= table["domain"])]
    assert (inside["infiniband_bytes"] == 0).all() and (table["nvlink_bytes"] >= 0).all()


def test_a_prediction_is_off_by_two_sigma_and_sends_each_byte_over_one_link():
    """Of a power-law graph: what leaves a domain is not counted within it, where rows cross one by one."""
    df = rows()
    of = page.fit(df, "graph")._replace(error=0.1)
    assert of.off(of.measured) == pytest.approx(np.exp(0.2)) and of.off(2 * of.measured) > 1.04 * np.exp(0.2)
    like = next(df[(df["case"] == "graph") & (df["gpus"] == 4)].itertuples())
    flat, once = (page.predict(of, like, 100.0, 64, 8, way) for way in page.WAYS)
    moved = page.needed("graph", like.size, 64) * like.n * 4 / 64
    assert flat["nvlink_bytes"] + flat["infiniband_bytes"] == pytest.approx(moved)
    assert once["nvlink_bytes"] == pytest.approx(moved) and once["infiniband_bytes"] < flat["infiniband_bytes"]
