"""The chapter on several GPUs: what it draws and claims from records, and what it says without any."""

from __future__ import annotations

from dataclasses import replace

import matplotlib
import nbformat
import pandas as pd
import pytest
from matplotlib import pyplot as plt
from scaled import rows

from artifact import paths
from artifact.book import text
from artifact.distributed import page, scaling
from artifact.distributed.scaling import OURS
from artifact.measure import records
from artifact.paths import ROOT
from kernels.distributed import generate

matplotlib.use("Agg")


@pytest.fixture(autouse=True)
def closed():
    yield
    plt.close("all")


def test_without_records_there_is_nothing(tmp_path):
    assert page.load(tmp_path) == [] == list(page.facts([], tmp_path))
    assert page.drawn_scaling([]) is page.drawn_predictions([]) is None
    assert page.scaling_table([]) is page.fits_table([]) is page.times_table([]) is None
    assert set(page.claims_table([])["verdict"]) == {"not measured yet"}


def test_matrices_that_no_gpu_holds(tmp_path):
    assert page.beyond_table(tmp_path) is None
    shipped = page.RECORDED / "nvidia-h200"
    table = page.beyond_table(shipped)
    assert set(table["matrix"]) == {page.CASES["graph"], page.CASES["mesh"]}
    has = records.read_machine(shipped)["memory_bytes"]
    assert (table["A, GB"].astype(float) * 1e9 > has).all() and (table["GPUs"] >= 2).all()
    assert all(row.error < 2e-6 for row in scaling.read(shipped / page.BEYOND))
    known = dict(page.facts([], shipped))
    assert known["memory_bytes"] == has < known["beyond.csr_bytes.low"] <= known["beyond.csr_bytes.high"]
    assert len([name for name in known if name.startswith("beyond.of.") and name.endswith(".ms")]) == len(table)


def test_facts_are_of_the_most_gpus_and_of_the_largest_matrix():
    shipped = page.RECORDED / "nvidia-h200"
    found = page.load(shipped)
    known, of = dict(page.facts(found, shipped)), page.strong(found)
    most = of["gpus"].max()
    assert known["strong.gpus"] == most
    for case in set(of["case"]):
        own = of[(of["case"] == case) & (of["gpus"] == most)]
        assert known[f"strong.of.{case}.efficiency"] == own.loc[own["nnz"].idxmax(), "efficiency"]
    fastest = {  # beside ours, on the block-sparse weight: dense, not the slowest of the libraries
        row.contender: row.median_ms
        for row in found
        if (row.case, row.gpus) == ("block", most) and row.n == of[of["case"] == "block"]["n"].max()
    }
    assert known["baseline.block.times"] == pytest.approx(fastest["dtensor_dense"] / fastest[OURS])
    assert known["baseline.block.contender"] == page.NAMES["dtensor_dense"]


def test_the_text_names_what_is_known():
    shipped, made = page.RECORDED / "nvidia-h200", text.page("distributed")
    made.add(page.facts(page.load(shipped), shipped))
    assert not any("not measured on" in made(block) or "does not hold" in made(block) for block in made.blocks)
    few = text.page("distributed")
    few.add(page.facts(rows(), shipped.parent))
    assert "`beyond`" in few("short_beyond") and "on 4 GPUs" in few("short_scaling")


def test_parts_of_a_matrix_of_your_own():
    table = page.own_parts(generate.Stencil(6, 1), 3)
    assert len(table) == 3 and table["rows"].sum() == 6**3
    assert (table["rows of B received"] <= table["rows that others have"]).all()
    assert table["received, over its own"].str.endswith("×").all()


def test_one_gpu_alone_is_no_scaling():
    alone = [row for row in rows() if row.gpus == 1]
    assert page.drawn_scaling(alone) is page.drawn_predictions(alone) is None
    assert len(page.scaling_table(alone)) == len(alone)
    assert set(page.claims_table(alone)["verdict"]) == {"not measured yet"}


def test_fresh_records_come_before_shipped_ones(tmp_path, monkeypatch):
    monkeypatch.setattr(paths, "BUILD", tmp_path)
    assert page.folder() == page.RECORDED / "nvidia-h200"
    fresh = tmp_path / "distributed" / "nvidia-h200"
    scaling.write(fresh / page.SCALING, rows())
    assert page.folder() == fresh and page.folder("recorded") == page.RECORDED / "nvidia-h200"
    found = page.load(fresh)
    assert len(found) == len(rows())
    known = dict(page.facts(found, fresh))
    assert (known["measured.day"], known["measured.gpus"]) == ("2026-01-01", "1, 2, 4")
    assert known["measured.commit"] == ""


def test_efficiency_is_of_one_matrix_or_of_one_that_grows():
    strong, weak = page.strong(rows()), page.weak(rows())
    for table in (strong, weak):
        assert set(table["case"]) == set(page.CASES) and set(table["gpus"]) == {1, 2, 4}
        assert (table[table["gpus"] == 1]["efficiency"] == 1).all()
    of = strong[(strong["case"] == "graph") & (strong["nnz"] >= 1e9)].set_index("gpus")
    assert of.loc[4, "efficiency"] == pytest.approx(of.loc[1, "ms"] / 4 / of.loc[4, "ms"])
    grown = weak[weak["case"] == "graph"].set_index("gpus")["nnz"]
    assert grown[4] == 4 * grown[1]
    graph = next(r for r in rows() if r.case == "graph" and r.gpus == 2 and r.contender == OURS)
    larger = replace(graph, size=99, nnz=4 * graph.nnz)  # one that no GPU has alone, nor half of it
    assert len(page.weak([*rows(), larger])) == len(weak)
    assert len(page.strong([*rows(), larger])) == len(strong)
    fig, data = page.drawn_scaling(rows())
    assert len(fig.axes) == 2 and set(data["scaling"]) == {"strong", "weak"}


def test_more_than_all_of_a_gpus_rate_is_said_and_drawn(tmp_path):
    def above(found):
        made = text.page("distributed")
        made.add(page.facts(found, tmp_path))
        return made("above")

    assert above(rows(nvlink=1e6)) == ""
    half = min(r.nnz for r in rows() if r.case == "mesh")
    slow = [
        replace(r, median_ms=2 * r.median_ms) if (r.case, r.gpus, r.nnz, r.contender) == ("mesh", 1, half, OURS) else r
        for r in rows(nvlink=1e6)
    ]
    known = dict(page.facts(slow, tmp_path))
    assert known["weak.mesh.efficiency"] > 1.5 and known["weak.graph.efficiency"] < 1.05
    assert known["weak.mesh.smaller.nnz"] == half < known["weak.mesh.larger.nnz"]
    assert "the mesh reaches" in above(slow) and "the power-law" not in above(slow)
    fig, data = page.drawn_scaling(slow)
    assert data["efficiency"].max() > 1.5
    assert all(ax.get_ylim()[1] > 100 * data["efficiency"].max() for ax in fig.axes)


def test_claims_are_judged_by_their_bars():
    def verdicts(table):
        return [claim.verdict for claim in page.claims(table)]

    fast = rows(nvlink=1e6)
    assert verdicts(fast) == ["holds"] * 4
    slow = [
        replace(row, median_ms=3 * row.median_ms) if row.gpus == 4 and row.contender == OURS else row for row in fast
    ]
    assert verdicts(slow) == ["does not hold"] * 3 + ["holds"]
    wasteful = [replace(row, sent_bytes=2 * row.sent_bytes) for row in fast]
    assert verdicts(wasteful)[-1] == "does not hold"
    small = [row for row in fast if row.case != "graph" or row.nnz < 1e9]
    assert verdicts(small)[0] == "not measured yet"
    assert page.claims_table(slow)["measured"].str.contains("%|×").all()


def test_what_fewer_gpus_reach_is_said_and_not_judged():
    pair = [row for row in rows(nvlink=1e6) if row.gpus < 4]
    table = page.claims_table(pair)
    assert table["measured"][:3].str.fullmatch(r"\d+% at 2 GPUs").all()
    assert set(table["verdict"][:3]) == {"not measured yet"}
    slow = [replace(row, median_ms=1.5 * row.median_ms) if row.gpus == 2 else row for row in pair]
    assert set(page.claims_table(slow)["verdict"][:3]) == {"not measured yet, missed on fewer"}


def test_schedules_are_compared_where_both_were_measured(tmp_path):
    assert page.schedules_table(tmp_path, rows()) is None
    pair = [r for r in rows() if (r.case, r.contender, r.gpus) == ("mesh", OURS, 2)]
    before = [replace(r, median_ms=2 * r.median_ms) for r in pair]
    gone = replace(before[0], size=7)
    scaling.write(tmp_path / page.TRIED, [*before, gone])
    table = page.schedules_table(tmp_path, rows())
    assert len(table) == 2 * len(before)
    slow, fast = table["all"].astype(float)[::2], table["all"].astype(float)[1::2]
    assert slow.to_numpy() == pytest.approx(2 * fast.to_numpy(), rel=0.01)


def test_tables_say_who_and_how_much():
    table = page.scaling_table(rows())
    assert isinstance(table, pd.DataFrame) and len(table) == len(rows())
    ours = table[table["contender"] == "ours"]
    assert (ours["multipli\u00adcation, ms"] != "").all()
    assert set(ours["of the least"]) == {"", "1.00×"}
    assert (table[table["contender"] != "ours"]["multipli\u00adcation, ms"] == "").all()
    times = page.times_table(rows())
    assert len(times) == len({(r.case, r.size, r.gpus) for r in rows()})
    assert times["all-gather, cuSPARSE"].str.endswith("(2.00×)").all()
    assert len(page.fits_table(rows())) == 3


def test_predictions_are_called_so():
    fig, data = page.drawn_predictions(rows())
    assert all(ax.get_title().startswith("prediction") for ax in fig.axes)
    assert set(data["gpus"]) >= {8, 1024}


def test_pictures_are_of_what_travels():
    fig, data = page.drawn_parts()
    assert len(fig.axes) == 2 and len(data) == 8
    assert (data["rows of B received"] <= data["rows that others have"]).all()
    received = data.groupby("case")["rows of B received"].sum()
    assert received["mesh"] < received["graph"] * 3
    fig, table = page.drawn_volumes()
    assert (table["by rows"] <= table["all of B"]).all()
    assert len(fig.axes) == 2


def test_claims_are_in_no_ledger():
    from artifact.verdicts import load

    assert not any("distributed" in claim.id for claim in load.claims())


def test_the_chapter_shows_what_the_page_has():
    notebook = nbformat.read(ROOT / "notebooks" / "distributed.ipynb", as_version=4)
    code = "\n".join(c.source for c in notebook.cells if c.cell_type == "code")
    for name in (
        "facts",
        "drawn_parts",
        "drawn_volumes",
        "drawn_scaling",
        "scaling_table",
        "times_table",
        "claims_table",
        "fits_table",
        "drawn_predictions",
    ):
        assert f"page.{name}(" in code
