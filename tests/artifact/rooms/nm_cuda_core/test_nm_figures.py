"""The pictures of nm_cuda_core, and the tables behind its figures."""

import numpy as np
import pytest
from drawn import legible, words

from artifact.book import figures as book
from artifact.book.study import Study, rungs
from artifact.measure import run
from artifact.rooms.nm_cuda_core import pictures, tables
from artifact.rooms.nm_cuda_core.experiments import LETTER, VARIANTS, measure, on_cpu
from kernels.formats import nm


@pytest.fixture(scope="module")
def study() -> Study:
    return Study(run.start("nm_cuda_core", "recorded"))


def test_nm_picture_shows_the_matrix_and_its_arrays():
    b = nm.random(8, 8, 2, 4, 1, 3)
    fig, data = pictures.nm_picture(b)
    rebuilt = np.zeros((8, 8))
    np.add.at(rebuilt, (data["row"], data["column"]), data["value"])
    np.testing.assert_array_equal(rebuilt, nm.to_dense(b))
    assert (data["row"] // 4 == data["group"]).all()
    legible(fig)
    assert {"B: 8 × 8, 2:4 along K", "values: 4 × 8"} <= set(words(fig))


def test_gather_picture_marks_the_wrong_columns():
    needs = [1, 1, 0, 2, 1, 0, 0, 2]
    index = np.array([needs, [3] * 8], np.int32)
    b = nm.validate(nm.Nm(4, 8, 2, 4, 1, np.ones(index.shape, np.float32), index))
    fig, data = pictures.gather_picture(b, 8)
    assert data["needs"].tolist() == needs and data["gets"].tolist() == [1] * 8
    assert data["right"].tolist() == [need == 1 for need in needs]
    said = words(fig)
    assert said.count("≠") == 5 and said.count("=") == 3  # by more than colour
    assert "5 of 8 columns are multiplied with the wrong column of A" in said
    legible(fig)


def test_a_library_does_the_dense_work(study):
    published = measure(study, "published")
    table = tables.scaling(study, published, None).query("source == 'measured' and size == 4096").set_index("variant")
    for variant, flops in (("cublas", 2 * 4096**3), ("verbatim", 4096**3)):
        assert table.loc[variant, "tflops"] == pytest.approx(flops / table.loc[variant, "time_ms"] / 1e9)


def test_speedups_are_over_three_things(study):
    cpu, published = on_cpu(study), measure(study, "published")
    table = tables.speedups(study, cpu, published).set_index(["variant", "size", "over"])
    us = cpu[cpu["m"] == 512].set_index("variant")["median_us"]
    for over, column in tables.OVER.items():
        assert table.loc[("verbatim", 512, over), column] == us[over] / us["verbatim"]


def test_the_parts_of_a_call_add_up(study):
    table = tables.contains(study, measure(study, "published"))
    assert table.groupby("row")["share"].sum().to_numpy() == pytest.approx(100)
    fitted = table[table["source"] == "stated"]
    assert fitted["whole_ms"].to_numpy() == pytest.approx(fitted["fitted_ms"].to_numpy())


def test_the_fastest_are_those_within_two_per_cent(study):
    scaling = measure(study, "scaling").query("variant in @VARIANTS")
    table = tables.variants(scaling, "baseline").set_index(["size", "variant"])
    assert table["fastest"].groupby(level="size").any().all()
    assert (table.xs("baseline", level="variant")["over_baseline"] == 1).all()
    stated = tables.as_published(study, measure(study, "published")).query("source == 'stated'")
    assert set(stated["kernel"]) <= set(LETTER)


def test_stalls_are_all_there(study):
    table = tables.stalls(study).set_index(["variant", "size"])
    reasons = (
        study.counters.where(m=2048, variant="zigzag").rows.set_index("metric")["value"].filter(like="issue_stalled")
    )
    issued = reasons.filter(like="stalled_selected").sum()
    assert table.loc[("zigzag", 2048), "warps_stalled_per_issue"].sum() == pytest.approx(reasons.sum() - issued)


def test_every_figure_is_drawn_from_the_shipped_records(study):
    scaling, published, cpu = measure(study, "scaling"), measure(study, "published"), on_cpu(study)
    drawn = {
        "fig2a": tables.scaling(study, published, cpu),
        "fig2b": tables.speedups(study, cpu, published),
        "readings": tables.contains(study, published),
        "fig4": tables.as_published(study, published),
        "ladder": rungs(scaling, dict.fromkeys(VARIANTS, "faster"), "cublas"),
        "stalls": tables.stalls(study),
        "element-wise": tables.element_wise(scaling, measure(study, "element_wise")),
    }
    specs = book.specs("nm_cuda_core")
    for name, table in drawn.items():
        rows = book.drawn_rows(specs[name], table)
        legible(book.draw(specs[name], rows, tuple(VARIANTS)))
        assert len(book.alt(specs[name], rows)) > len(specs[name]["alt"])
    assert set(specs) == {*drawn, "format", "gather", "variants", "spread"}
