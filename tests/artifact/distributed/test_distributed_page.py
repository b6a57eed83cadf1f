"""The chapter on several GPUs: what it says and claims from records, and what it says without any."""

import matplotlib
import pandas as pd
import pytest
from matplotlib import pyplot as plt
from scaled import rows

from artifact import paths
from artifact.book import charts, figures, text
from artifact.distributed import page, scaling
from artifact.distributed.scaling import OURS
from artifact.measure import records
from kernels.distributed import generate

matplotlib.use("Agg")
SHIPPED = page.RECORDED / "nvidia-h200"
FAST = rows(nvlink=1e6)


@pytest.fixture(scope="module")
def shipped():
    return page.load(SHIPPED)


def changed(df, factor: float, **at):
    """Records of ours whose times are so many times as long where columns have these values."""
    mine = df["contender"] == OURS
    for column, value in at.items():
        mine &= df[column] == value
    slow = df.assign(median_ms=df["median_ms"].where(~mine, factor * df["median_ms"]))
    return slow.assign(tflops=2 * slow["nnz"] * slow["n"] / slow["median_ms"] / 1e9)


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
    assert page.beyond(tmp_path).empty and page.schedules(tmp_path, df).empty and page.agrees(tmp_path) is None
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
    assert (1e9 * page.beyond(SHIPPED)["csr_bytes"]).min() == pytest.approx(known["beyond.csr_bytes.low"])


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
NO, YES, NOT_YET = "does not hold", "holds", "not measured yet"


@pytest.mark.parametrize(
    ("df", "verdicts"),
    [
        (FAST, [YES] * 4),
        (changed(FAST, 1.1, gpus=4), [YES] * 4),
        (changed(FAST, 1.25, gpus=4), [YES, NO, NO, YES]),
        (changed(FAST, 3, gpus=4), [NO] * 3 + [YES]),
        (FAST.assign(sent_bytes=2 * FAST["sent_bytes"]), [YES] * 3 + [NO]),
        (FAST[(FAST["case"] != "graph") | (FAST["nnz"] < 1e9)], [NOT_YET] + [YES] * 3),
        (PAIR, [NOT_YET] * 3 + [YES]),
        (changed(PAIR, 1.5, gpus=2), [f"{NOT_YET}, missed on fewer"] * 3 + [YES]),
    ],
    ids=str,
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


def test_every_table_and_figure_is_drawn_as_specified(shipped):
    df, known = shipped, figures.specs("distributed")
    drawn = {"scaling": page.efficiencies(df), "volumes": page.volumes(), "predictions": page.predictions(df)}
    assert {*known} == {*drawn, "parts"}
    for name, data in drawn.items():
        rows = figures.drawn_rows(known[name], data)
        assert len(figures.draw(known[name], rows).axes) == 2 and figures.alt(known[name], rows)
    plt.close("all")
    shown = {"times": page.times(df), "rates": page.rates(df), "fits": page.fits(df), "claims": page.claims(df)}
    shown |= {"beyond": page.beyond(SHIPPED), "schedules": page.schedules(SHIPPED, df)}
    shown |= {"agreement": page.agreement_table(page.agrees(SHIPPED))}
    for name, data in shown.items():
        spec = figures.specs("distributed", "tables")[name]
        assert "nan" not in figures.styled(data, spec).to_html()
        assert all(column["of"] in data for column in spec.get("columns", ()))
