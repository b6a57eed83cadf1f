"""The model: bytes are those of matrices, a fit finds the rates behind records, predictions say how far they go."""

import functools

import numpy as np
import pytest
from scaled import rows

from artifact.distributed import page
from kernels.distributed import generate, partition
from kernels.distributed.generate import Rmat, Stencil
from kernels.formats import bcsr


@functools.cache
def matrix(case: str):
    """(size, rows of B that an entry names, a matrix of the case)."""
    if case == "block":
        return 2048, 64, bcsr.random(2048, 16384, 0.1, 3)
    size, made = {"graph": (11, Rmat(11, 64, 3)), "mesh": (16, Stencil(16))}[case]
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
    width = (table["high_ms"] / table["low_ms"]).groupby(table["gpus"]).mean()
    assert width.is_monotonic_increasing
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
