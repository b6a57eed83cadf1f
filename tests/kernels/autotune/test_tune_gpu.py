"""The tuner on a GPU: a matrix with long rows has right candidates, and one lost product in them makes a wrong one;
launches are timed in turns."""

import time
import warnings
from dataclasses import replace

import numpy as np
import pytest
from scipy import sparse

from kernels import autotune, casper_sparse
from kernels.async_sparse import any_csr, operands
from kernels.async_sparse.windows import Union
from kernels.autotune import Rounds, search
from kernels.contract import Operands, Problem
from kernels.formats import csr
from kernels.formats.csr import Csr
from kernels.lazy import cupy

pytestmark = pytest.mark.gpu
LONG = 11  # rows of twenty thousand entries
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
        assert casper_sparse.prepare("auto", p, device).prepare_ms > 0


def losing(p: Problem) -> Problem:
    """The problem without the product of a long row's least number in each column of C, whatever its numbers are."""
    ops = p.device()
    begin, end = csr.to_host(ops.a).row_ptr[LONG : LONG + 2].tolist()
    val = ops.a.val.copy()
    val[begin + int(abs(val[begin:end]).argmin())] = 0
    other = Operands(replace(ops.a, val=val), ops.b, ops.c)
    return replace(p, make_device=lambda: other, _device=None)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_a_product_that_is_lost_in_a_long_row_is_found_on_whole_numbers(device, dtype):
    """It is far below what rounding explains."""
    p = made(circuit(seed=4), 64, dtype)

    def tune(name):
        prepare = lambda p, name: Union(2).prepare(name, losing(p) if name == "wrong" else p, device)  # noqa: E731
        return autotune.tune(p, [name], prepare, [lambda p: Union(1).prepare("rows", p, device)], device, QUICK)

    with pytest.warns(UserWarning, match=f"on whole numbers: .*the first at row {LONG}, column"):
        with pytest.raises(RuntimeError, match="all 1 candidates failed"):  # a winner, where not wrong before
            tune("wrong")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert tune("right").config == "right"


class Work:
    """A bound whose launch overwrites so many bytes; it notes that it was launched."""

    def __init__(self, megabytes: int):
        self.buffer, self.launches = cupy.empty(megabytes << 20, cupy.uint8), 0

    def launch(self, stream):
        self.launches += 1
        with cupy.cuda.Stream.from_external(stream):
            self.buffer.fill(self.launches % 2)


def test_a_race_is_of_one_uncounted_and_so_many_counted_launches(device):
    bounds = {"much": Work(1024), "little": Work(64)}
    times = search.race(bounds, device, 5)
    assert [bound.launches for bound in bounds.values()] == [6, 6]
    assert times.keys() == bounds.keys() and times["much"] > 4 * times["little"] > 0


def test_a_hot_race_launches_for_so_long_before_it_counts(device):
    begun, works = time.perf_counter(), {"much": Work(256), "little": Work(64)}
    search.race(works, device, 3, hot_s=0.1)
    assert time.perf_counter() - begun >= 0.1
    much, little = (work.launches for work in works.values())
    assert much == little > 4
