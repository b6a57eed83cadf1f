"""The choice for a matrix in CSR: what is counted of it, what is proposed, tried, kept and found again."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import random_array

from artifact.measure import check
from artifact.rooms.async_sparse import scripts
from kernels import tuning
from kernels.async_sparse import any_csr, family, model, operands, tasks, union, windows
from kernels.async_sparse.statistics import HEIGHTS, Statistics, fingerprint, statistics
from kernels.async_sparse.union import Union
from kernels.formats import csr


def scattered(m: int, k: int, density: float, seed: int, heavy: int = 0) -> csr.Csr:
    """Random entries, and as many in the first row."""
    made = random_array((m, k), density=density, rng=seed, dtype=np.float32).tolil()
    made[0, :heavy] = 1
    return csr.from_scipy(made.tocsr())


@given(m=st.integers(1, 200), k=st.integers(1, 90), density=st.floats(0, 0.3), seed=st.integers(0, 99))
@settings(max_examples=40, deadline=None)
def test_statistics_are_counts(m, k, density, seed):
    a = scattered(m, k, density, seed)
    found = statistics(a)
    assert (found.m, found.k, found.nnz) == (m, k, a.nnz)
    for how in tasks.ORDERS:
        there = csr.to_dense(tasks.ordered(a, how)[1]) != 0
        assert found.longest == there.sum(1).max()
        for height in HEIGHTS:
            parts = range(0, m, height)
            union_ = sum(int(there[i : i + height].any(0).sum()) for i in parts)
            assert found.union(height, how) == union_, (how, height)
    assert found.shared(1) == (1 if a.nnz else 0)


def test_a_fingerprint_tells_patterns_apart_and_no_values():
    a = scattered(60, 50, 0.1, 1)
    other = csr.Csr(a.m, a.k, a.row_ptr, a.col_idx, a.val + 1)
    assert fingerprint(a) == fingerprint(other)
    moved = a.col_idx.copy()
    moved[0] = (moved[0] + 1) % 50
    rows = a.row_ptr.copy()
    rows[5] += 1
    swapped = a.col_idx.copy()
    swapped[[0, -1]] = swapped[[-1, 0]] if swapped[0] != swapped[-1] else [1, 2]
    found = {
        fingerprint(x)
        for x in (
            a,
            csr.Csr(a.m, a.k, a.row_ptr, moved, a.val),
            csr.Csr(a.m, a.k, rows, a.col_idx, a.val),
            csr.Csr(a.m, a.k, a.row_ptr, swapped, a.val),
        )
    }
    assert len(found) == 4 and all(len(x) == 16 for x in found)


def test_the_weights_are_what_the_measured_candidates_say():
    measured = scripts.read()
    fitted = scripts.fit(measured)
    shipped = model.weights()
    assert set(shipped) == {model.kernel(c) for c in model.POOLS["tf32"]}
    for kernel, weights in fitted.items():
        assert np.allclose(weights, shipped[kernel], rtol=2e-3, atol=2e-3), kernel


@pytest.mark.parametrize("accuracy", ("fp32", "tf32"))
def test_proposals_for_matrices_that_the_weights_do_not_know(accuracy):
    found = scripts.held_out(scripts.read(), accuracy, any_csr.MOST)
    assert len(found) == 2 * 74
    assert (found["regret"] <= 1.1).mean() >= 0.98
    assert (found["first"] <= 1.1).mean() >= 0.8


def test_proposals_follow_the_matrix():
    def first(a, n=512):
        return model.candidates("tf32", statistics(a), n, 1)[0]

    lonely = scattered(5000, 5000, 0.001, 0)
    assert isinstance(first(lonely), Union)
    # 64 rows that are the same: a window of them names each column once.
    same = csr.from_scipy(
        random_array((40, 4000), density=0.03, rng=0, dtype=np.float32).tocsr()[np.repeat(np.arange(40), 64)]
    )
    assert isinstance(first(same), windows.Windows)
    assert first(same).window >= 16
    with pytest.raises(ValueError, match="^accuracy is 'fp8', but must be one of fp32, tf32, half$"):
        model.candidates("fp8", statistics(lonely), 8, 1)


def test_choosing_takes_thirty_launches_at_most():
    rounds, most = any_csr.ROUNDS, any_csr.MOST
    assert rounds.factor == 1 and rounds.finalists == 1
    assert 1 + most + most * (1 + rounds.first) + (1 + rounds.final) + 1 <= 30


def test_what_is_proposed_can_be_made():
    for config in model.POOLS["half"]:
        source, entry = any_csr.entry_of(config, 6, "float16")
        assert source == union.HALF_SOURCE and entry.startswith("union_half<F16, ")
    for config in model.POOLS["tf32"]:
        source, entry = any_csr.entry_of(config, 6)
        assert source in (union.SOURCE, windows.SOURCE)
        assert entry.startswith(("union_rows<", "windows<"))
    assert union.entry(union.fitted(Union(), 6)).startswith("union_rows<4, 2,")


# ------------------------------------------------------------------------------------ on a GPU


@pytest.mark.gpu
@pytest.mark.parametrize("name", any_csr.ACCURACIES)
@pytest.mark.parametrize(
    ("m", "k", "density", "heavy", "n"),
    [
        (700, 500, 0.02, 0, 64),
        (3000, 900, 0.004, 800, 129),
        (64, 4000, 0.2, 0, 256),
        (5, 5, 0, 0, 8),
    ],
)
def test_a_choice_is_right_kept_and_found_again(device, tmp_path, monkeypatch, name, m, k, density, heavy, n):
    if name == "auto_tf32" and not any_csr.fits(windows.Windows(), device):
        pytest.skip("this GPU has no wgmma")
    dtype = {"auto_tf32": "tf32", "auto_half": "bfloat16"}.get(name, "float32")
    a = scattered(m, k, density, 5, heavy)
    p = operands.problem_from_csr(a, n, 3, format="csr", dtype=dtype, reorder="")
    file = tmp_path / "choices.csv"
    bound = any_csr.bind(name, p, device, file=file)
    stream = device.create_stream()
    check.check(bound, p, check.oracle(p), stream)
    assert len(file.read_text().splitlines()) == 2

    def never(*_, **__):
        raise AssertionError("tried once more")

    monkeypatch.setattr(tuning, "tune", never)
    again = any_csr.bind(name, p, device, file=file)
    assert again.prepare_ms < bound.prepare_ms
    found = tuning.choices.read(any_csr.CHOICES, file)[any_csr.key(p, any_csr.ACCURACIES[name])]
    assert found.config in model.POOLS[any_csr.ACCURACIES[name]]


@pytest.mark.gpu
def test_statistics_on_the_gpu_are_those_of_the_host(device):
    a = scattered(900, 700, 0.02, 7, heavy=300)
    there = csr.to_device(a)
    found, expected = statistics(there), statistics(a)
    assert (found.m, found.k, found.nnz, found.longest) == (a.m, a.k, a.nnz, expected.longest)
    for (
        order,
        columns,
    ) in expected.columns.items():  # of full windows a part of the columns is looked at
        np.testing.assert_allclose(found.columns[order], columns, rtol=0.05)
    assert fingerprint(there) == fingerprint(a)


@pytest.mark.gpu
def test_a_gpu_without_wgmma_gets_groups_of_rows(device, monkeypatch):
    monkeypatch.setattr(family, "TARGETS", ())
    a = scattered(640, 400, 0.05, 9)
    p = operands.problem_from_csr(a, 32, 0, format="csr", dtype="float32", reorder="")
    assert isinstance(any_csr.tune(p, device, "fp32").config, Union)


@pytest.mark.parametrize("accuracy", model.POOLS)
@pytest.mark.parametrize("orders", [("",), ("", "similar")])
def test_all_at_once_predictions_are_those_of_one_by_one(accuracy, orders):
    dtype = "bfloat16" if accuracy == "half" else "tf32"
    for seed in range(50):
        rng = np.random.default_rng(seed)
        nnz = int(rng.integers(1, 10**7))
        columns = {how: tuple(map(int, -np.sort(-rng.integers(1, nnz + 1, 7)))) for how in orders}
        of = Statistics(*map(int, rng.integers(1, 10**6, 2)), nnz, int(rng.integers(1, 5000)), columns)
        n = int(rng.integers(1, 1200))
        table = model._table(accuracy, orders)
        expected = [model.predict(config, of, n, dtype) for config in (row.config for row in table)]
        np.testing.assert_allclose(model.predictions(table, of, n, dtype), expected, rtol=1e-12)
