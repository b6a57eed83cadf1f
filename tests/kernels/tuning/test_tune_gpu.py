"""The tuner on a GPU: a matrix with long rows has right candidates, and one lost product in them makes a wrong one."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import pytest
from scipy import sparse

from kernels import casper_sparse, tuning
from kernels.async_sparse import any_csr, operands, union
from kernels.async_sparse.union import Union
from kernels.contract import Operands, Problem
from kernels.formats import csr
from kernels.formats.csr import Csr
from kernels.tuning import Rounds

pytestmark = pytest.mark.gpu
SHORT, LONG = 7, 11  # rows of five entries, and of twenty thousand
QUICK = Rounds(first=1, final=1, finalists=1, short_us=0, factor=1)


def circuit(rows: int = 30_000, long: int = 6, length: int = 20_000, seed: int = 0) -> Csr:
    """Five non-zeros a row, but some rows with more than all others: a circuit's supply lines. Normal values, and a
    diagonal that is larger than the rest of its row."""
    rng = np.random.default_rng(seed)
    row = np.repeat(np.arange(rows), 4)
    col = rng.integers(0, rows, row.size)
    for i in range(long):
        there = rng.choice(rows, length, replace=False)
        row, col = np.append(row, np.full(length, LONG + 1000 * i)), np.append(col, there)
    a = sparse.coo_array((rng.normal(size=row.size), (row, col)), shape=(rows, rows)).tocsr()
    a = a + sparse.diags_array(1 + abs(a).sum(axis=1))
    a.sort_indices()
    return csr.from_scipy(a.astype(np.float32))


def made(a: Csr, n: int, dtype: str) -> Problem:
    """A problem with A's own values, in float32 as the library has them."""
    p = operands.problem_from_csr(a, n, 3, format="csr", dtype=dtype, reorder="")
    held = a if dtype == "float32" else p.host().a

    def on_device(drawn=p.make_device):
        ops = drawn()
        return Operands(csr.to_device(held), ops.b, ops.c)

    return replace(p, make_device=on_device, _device=None)


@pytest.mark.parametrize("n", [96, 512])
@pytest.mark.parametrize(
    ("accuracy", "dtype"),
    [("fp32", "float32"), ("tf32", "tf32"), ("half", "bfloat16"), ("half", "float16")],
)
def test_every_candidate_is_right_on_a_matrix_with_long_rows(device, accuracy, dtype, n):
    p = made(circuit(seed=n), n, dtype)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a candidate that is skipped is one
        winner = any_csr.tune(p, device, accuracy)
    assert winner.median_us > 0


def test_every_candidate_of_casper_is_right_on_it(device):
    p = casper_sparse.problem_from_csr(circuit(seed=5), 128)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert casper_sparse.bind("auto", p, device).prepare_ms > 0


def losing(p: Problem, entry: int) -> Problem:
    """The problem without one product in each column of C, whatever its numbers are."""
    ops = p.device()
    val = ops.a.val.copy()
    val[entry : entry + 1] = 0
    other = Operands(replace(ops.a, val=val), ops.b, ops.c)
    return replace(p, make_device=lambda: other, _device=None)


def entry_of(p: Problem, row: int, which) -> int:
    """Of a row, the entry with the largest or the smallest value."""
    a = csr.to_host(p.device().a)
    begin, end = int(a.row_ptr[row]), int(a.row_ptr[row + 1])
    return begin + int(which(np.abs(a.val[begin:end])))


def tried(p: Problem, device, wrong) -> list[str]:
    """What is said of a candidate beside a right one. wrong: binds it, on any problem."""

    def bind(p, name):
        return wrong(p) if name == "wrong" else union.bind(name, p, device, Union(2))

    def tune(*names):
        rows = [lambda p: union.bind("rows", p, device, Union(1))]
        return tuning.tune(p, names, bind, rows, device, QUICK)

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with pytest.raises(RuntimeError, match="all 1 candidates failed"):  # a winner, where not wrong before
            tune("wrong")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert tune("right").config == "right"
    return [str(w.message) for w in caught]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_a_product_that_is_lost_in_a_long_row_is_found_on_whole_numbers(device, dtype):
    p = made(circuit(seed=4), 64, dtype)
    entry = entry_of(p, LONG, np.argmin)  # far below what rounding explains
    (said,) = tried(p, device, lambda p: union.bind("lost", losing(p, entry), device, Union(2)))
    assert "on whole numbers: " in said and f"the first at row {LONG}, column" in said
