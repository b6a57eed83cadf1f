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


def test_without_records_the_page_says_so(tmp_path):
    assert page.load(tmp_path) == []
    assert page.banner([], tmp_path).startswith("This is not measured yet")
    assert page.drawn_scaling([]) is page.drawn_predictions([]) is None
    assert page.scaling_table([]) is page.fits_table([]) is page.times_table([]) is None
    assert set(page.claims_table([])["verdict"]) == {"not measured yet"}


def test_matrices_that_no_gpu_holds(tmp_path):
    assert page.beyond_table(tmp_path) is None
    assert "--beyond" in page.beyond(tmp_path)
    shipped = page.RECORDED / "nvidia-h200"
    table = page.beyond_table(shipped)
    assert set(table["matrix"]) == {page.CASES["graph"], page.CASES["mesh"]}
    has = records.read_machine(shipped)["memory_bytes"]
    assert (table["A, GB"].astype(float) * 1e9 > has).all() and (table["GPUs"] >= 2).all()
    assert all(row.error < 2e-6 for row in scaling.read(shipped / page.BEYOND))
    assert f"{has / 1e9:.0f} GB" in page.beyond(shipped)


def test_in_short_has_what_was_measured():
    assert page.in_short([], page.RECORDED) == page.MISSING
    shipped = page.RECORDED / "nvidia-h200"
    found = page.load(shipped)
    said = page.in_short(found, shipped)
    of = page.strong(found)
    most = of["gpus"].max()
    assert f"One matrix on {most} GPUs" in said and f"Of more than {most} GPUs" in said
    for case in set(of["case"]):
        own = of[(of["case"] == case) & (of["gpus"] == most)]
        assert f"{own.loc[own['nnz'].idxmax(), 'efficiency']:.0%} for the {page.CASES[case]}" in said
    assert "more than one of these GPUs holds" in said
    fastest = {  # beside ours, on the block-sparse weight: dense, not the slowest of the libraries
        row.contender: row.median_ms
        for row in found
        if (row.case, row.gpus) == ("block", most) and row.n == of[of["case"] == "block"]["n"].max()
    }
    ratio = fastest["dtensor_dense"] / fastest[OURS]
    assert f"{ratio:.2f} times as long for the block-sparse weight (PyTorch's" in said
    assert "of these GPUs" not in page.in_short(rows(), shipped.parent)


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
    assert page.banner(found, fresh) == "From records of NVIDIA H200, 2026-01-01: on 1, 2, 4 GPUs of one host."


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


def test_more_than_all_of_a_gpus_rate_is_explained_and_drawn():
    assert page.above(rows(nvlink=1e6)) == ""
    half = min(r.nnz for r in rows() if r.case == "mesh")
    slow = [
        replace(r, median_ms=2 * r.median_ms) if (r.case, r.gpus, r.nnz, r.contender) == ("mesh", 1, half, OURS) else r
        for r in rows(nvlink=1e6)
    ]
    assert "the mesh reaches" in page.above(slow) and "the power-law" not in page.above(slow)
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
        "banner",
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
