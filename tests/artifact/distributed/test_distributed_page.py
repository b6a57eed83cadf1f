"""The chapter on several GPUs: what it says and claims from records, and what it says without any."""

from __future__ import annotations

import matplotlib
import pandas as pd
import pytest
from matplotlib import pyplot as plt
from scaled import rows

from artifact import paths
from artifact.book import charts, figures, tables, text
from artifact.distributed import page, scaling
from artifact.distributed.scaling import OURS
from artifact.measure import records
from kernels.distributed import generate

matplotlib.use("Agg")
SHIPPED = page.RECORDED / "nvidia-h200"


@pytest.fixture(autouse=True)
def closed():
    yield
    plt.close("all")


def changed(df, factor: float, **at):
    """Records of ours whose times are so many times as long where columns have these values."""
    mine = df["contender"] == OURS
    for column, value in at.items():
        mine &= df[column] == value
    return df.assign(median_ms=df["median_ms"].where(~mine, factor * df["median_ms"]))


def test_without_records_there_is_nothing(tmp_path):
    df = page.load(tmp_path)
    assert df.empty and list(page.facts(df, tmp_path)) == []
    for make in (page.efficiencies, page.predictions, page.rates, page.fits, page.times):
        assert make(df).empty
    assert page.beyond(tmp_path).empty and page.schedules(tmp_path, df).empty and page.agrees(tmp_path) is None
    known = figures.specs("distributed")
    for name, data in {"scaling": page.efficiencies(df), "predictions": page.predictions(df)}.items():
        assert charts.parts(figures.drawn_rows(known[name], data))[0].empty  # so nothing is shown
    assert set(page.claims(df)["verdict"]) == {"not measured yet"}


def test_one_gpu_alone_is_no_scaling():
    alone = rows(gpus=(1,))
    assert page.efficiencies(alone).empty and page.predictions(alone).empty
    assert len(page.rates(alone)) == len(alone)
    assert set(page.claims(alone)["verdict"]) == {"not measured yet"}


def test_matrices_that_no_gpu_holds():
    table, has = page.beyond(SHIPPED), records.read_machine(SHIPPED)["memory_bytes"]
    assert (1e9 * table["csr_bytes"] > has).all() and (table["gpus"] >= 2).all() and (table["error"] < 2e-6).all()
    known = dict(page.facts(page.load(SHIPPED), SHIPPED))
    assert known["memory_bytes"] == has < known["beyond.csr_bytes.low"] <= known["beyond.csr_bytes.high"]


def test_facts_are_of_the_most_gpus_and_of_the_largest_matrix():
    found = page.load(SHIPPED)
    known, of = dict(page.facts(found, SHIPPED)), page.strong(found)
    most = of["gpus"].max()
    assert known["strong.gpus"] == most
    for case in set(of["case"]):
        own = of[(of["case"] == case) & (of["gpus"] == most)]
        assert known[f"strong.of.{case}.efficiency"] == own.loc[own["nnz"].idxmax(), "efficiency"]
    # Beside ours on the block-sparse weight: dense, not the slowest of the libraries.
    assert known["baseline.block.contender"] == page.NAMES["dtensor_dense"]


def test_the_text_names_what_is_known():
    made = text.page("distributed")
    made.add(page.facts(page.load(SHIPPED), SHIPPED))
    assert not any("not measured on" in made(block) or "does not hold" in made(block) for block in made.blocks)
    few = text.page("distributed")
    few.add(page.facts(rows(), SHIPPED.parent))
    assert "`beyond`" in few("short_beyond") and "on 4 GPUs" in few("short_scaling")


def test_fresh_records_come_before_shipped_ones(tmp_path, monkeypatch):
    monkeypatch.setattr(paths, "BUILD", tmp_path)
    assert page.folder() == SHIPPED
    fresh = tmp_path / "distributed" / "nvidia-h200"
    scaling.write(fresh / page.SCALING, rows()[[*scaling.COLUMNS]])
    assert page.folder() == fresh and page.folder("recorded") == SHIPPED
    known = dict(page.facts(page.load(fresh), fresh))
    assert (known["measured.day"], known["measured.gpus"], known["measured.commit"]) == ("2026-01-01", "1, 2, 4", "")


def test_efficiency_is_of_one_matrix_or_of_one_that_grows():
    df = rows()
    strong, weak = page.strong(df), page.weak(df)
    for table in (strong, weak):
        assert set(table["case"]) == set(page.CASES) and set(table["gpus"]) == {1, 2, 4}
        assert (table[table["gpus"] == 1]["efficiency"] == 1).all()
    of = strong[(strong["case"] == "graph") & (strong["nnz"] >= 1e9)].set_index("gpus")
    assert of.loc[4, "efficiency"] == pytest.approx(of.loc[1, "ms"] / 4 / of.loc[4, "ms"])
    grown = weak[weak["case"] == "graph"].set_index("gpus")["nnz"]
    assert grown[4] == 4 * grown[1]


def test_more_than_all_of_a_gpus_rate_is_said(tmp_path):
    def above(found):
        made = text.page("distributed")
        made.add(page.facts(found, tmp_path))
        return made("above")

    fast = rows(nvlink=1e6)
    assert above(fast) == ""
    half = fast.loc[fast["case"] == "mesh", "nnz"].min()
    slow = changed(fast, 2, case="mesh", gpus=1, nnz=half)
    slow["tflops"] = 2 * slow["nnz"] * slow["n"] / slow["median_ms"] / 1e9
    known = dict(page.facts(slow, tmp_path))
    assert known["weak.mesh.efficiency"] > 1.5 and known["weak.graph.efficiency"] < 1.05
    assert known["weak.mesh.smaller.nnz"] == half < known["weak.mesh.larger.nnz"]
    assert "the mesh reaches" in above(slow) and "the power-law" not in above(slow)


def test_claims_are_judged_by_their_bars():
    fast = rows(nvlink=1e6)
    assert page.claims(fast)["verdict"].tolist() == ["holds"] * 4
    slow = page.claims(changed(fast, 3, gpus=4))
    assert slow["verdict"].tolist() == ["does not hold"] * 3 + ["holds"]
    assert slow["measured"].str.contains("%|×").all()
    wasteful = page.claims(fast.assign(sent_bytes=2 * fast["sent_bytes"]))
    assert wasteful["verdict"].iloc[-1] == "does not hold"
    small = fast[(fast["case"] != "graph") | (fast["nnz"] < 1e9)]
    assert page.claims(small)["verdict"].iloc[0] == "not measured yet"


def test_what_fewer_gpus_reach_is_said_and_not_judged():
    pair = rows(nvlink=1e6, gpus=(1, 2))
    table = page.claims(pair)
    assert table["measured"][:3].str.fullmatch(r"\d+% at 2 GPUs").all()
    assert set(table["verdict"][:3]) == {"not measured yet"}
    slow = page.claims(changed(pair, 1.5, gpus=2))
    assert set(slow["verdict"][:3]) == {"not measured yet, missed on fewer"}


def test_schedules_are_compared_where_both_were_measured(tmp_path):
    df = rows()[[*scaling.COLUMNS]]
    pair = df[(df["case"] == "mesh") & (df["contender"] == OURS) & (df["gpus"] == 2)]
    gone = pair[:1].assign(size=7)
    scaling.write(tmp_path / page.TRIED, pd.concat([pair.assign(median_ms=2 * pair["median_ms"]), gone]))
    table = page.schedules(tmp_path, df)
    assert len(table) == 2 * len(pair)
    slow, fast = table["median_ms"][::2], table["median_ms"][1::2]
    assert slow.to_numpy() == pytest.approx(2 * fast.to_numpy(), rel=0.01)


def test_what_travels():
    _, data = page.drawn_parts()
    assert len(data) == 8 and (data["rows of B received"] <= data["rows that others have"]).all()
    table = page.received(generate.Stencil(6, 1), 3)
    assert len(table) == 3 and table["rows"].sum() == 6**3
    ways = page.volumes()
    assert (ways["by rows"] <= ways["all of B"]).all() and set(ways["way"]) < set(ways.columns)


def test_every_table_and_figure_is_drawn_as_specified():
    df = page.load(SHIPPED)
    drawn = {"scaling": page.efficiencies(df), "volumes": page.volumes(), "predictions": page.predictions(df)}
    known = figures.specs("distributed")
    assert {*known} == {*drawn, "parts"}
    for name, data in drawn.items():
        rows = figures.drawn_rows(known[name], data)
        assert len(figures.draw(known[name], rows).axes) == 2 and figures.alt(known[name], rows)
    shown = {"times": page.times(df), "rates": page.rates(df), "fits": page.fits(df), "claims": page.claims(df)}
    shown |= {"beyond": page.beyond(SHIPPED), "schedules": page.schedules(SHIPPED, df)}
    shown |= {"agreement": page.agreement_table(page.agrees(SHIPPED))}
    for name, data in shown.items():
        spec = tables.specs("distributed")[name]
        assert "nan" not in tables.styled(data, spec).to_html()
        assert all(column["of"] in data for column in spec.get("columns", ()))


def test_a_rate_counts_a_multiplication_and_an_addition(tmp_path):
    """10⁹ non-zeros by 500 columns in a second."""
    one = rows()[[*scaling.COLUMNS]][:1].assign(nnz=10**9, n=500, median_ms=1000.0)
    scaling.write(tmp_path / page.SCALING, one)
    assert page.load(tmp_path)["tflops"].tolist() == pytest.approx([1.0])
