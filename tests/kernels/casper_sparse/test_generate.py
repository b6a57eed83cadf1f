"""The source's operands: their distribution, their bits, and what sizes are refused."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels import casper_sparse as room
from kernels.casper_sparse import generate
from kernels.formats import csr

#: A statistic beyond this quantile happens once in 10^5 seeds; the seeds below are fixed.
CONFIDENCE = 1 - 1e-5


def uniform(counts: np.ndarray) -> bool:
    """Chi-square test that draws fall into equally likely bins `counts`."""
    expected = counts.sum() / counts.size
    statistic = ((counts - expected) ** 2 / expected).sum()
    return statistic < scipy.stats.chi2.ppf(CONFIDENCE, counts.size - 1)


def uncorrelated(x: np.ndarray, y: np.ndarray) -> bool:
    return abs(np.corrcoef(x, y)[0, 1]) < 5 / math.sqrt(x.size)


# --------------------------------------------------------------------------- the generator's bits


def random_u32(seed: int, stream: int, index: int) -> int:
    """generate.cu in Python's unbounded integers, one number at a time."""

    def lcg(x):
        return (x * 1664525 + 1013904223) % 2**32

    x = lcg(index ^ ((seed * 0x9E3779B9 + stream * 0x85EBCA6B) % 2**32))
    x = lcg(x ^ (x >> 16))
    x = lcg(x ^ (x >> 15))
    return x ^ (x >> 16)


@given(
    seed=st.integers(0, 2**32 - 1),
    stream=st.integers(0, 3),
    index=st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=8),
    bound=st.integers(1, 2**31),
)
@settings(deadline=None)
def test_numpy_makes_the_bits_of_the_kernel(seed, stream, index, bound):
    exact = [random_u32(seed, stream, i) for i in index]
    made = generate._random(seed, stream, np.array(index, np.uint32))
    assert made.dtype == np.uint32 and made.tolist() == exact
    assert generate._below(made, bound).tolist() == [x * bound >> 32 for x in exact]
    unit = generate._unit(seed, stream, np.array(index, np.uint32))
    # Exact in float32, or the GPU and NumPy might round differently.
    assert unit.dtype == np.float32
    assert [Fraction(float(u)) for u in unit] == [Fraction(2 * (x >> 9) + 1, 2**24) for x in exact]


def test_values_never_reach_zero_or_one(monkeypatch):
    for word in (0, 2**32 - 1):
        monkeypatch.setattr(generate, "_random", lambda s, t, i, w=word: np.array([w], np.uint32))
        (value,) = generate._unit(0, 0, None)
        assert 0 < value < 1


def test_the_bits_never_change():
    """The shipped records name a seed; another generator would make them of other matrices."""
    ops = generate.host_operands(4, 3, 100, 0.04, 7)
    assert ops.a.row_ptr.tolist() == GOLDEN_ROW_PTR
    assert ops.a.col_idx.tolist() == GOLDEN_COL_IDX
    assert (ops.a.val[:3] * 2**24).tolist() == GOLDEN_VAL
    assert (ops.b[99] * 2**24).tolist() == GOLDEN_B


GOLDEN_ROW_PTR = [0, 2, 6, 10, 13]
GOLDEN_COL_IDX = [75, 92, 13, 78, 30, 67, 74, 42, 79, 53, 87, 21, 24]
GOLDEN_VAL = [5153881, 15328747, 5413795]
GOLDEN_B = [3716105, 211, 15132885]


# ------------------------------------------------------------------------------- row counts


@given(k=st.integers(1, 2**31 - 1), percent_thousandths=st.integers(0, 100_000))
@settings(deadline=None, max_examples=300)
def test_the_range_of_row_counts_is_exact(k, percent_thousandths):
    """[floor(K·S/200), floor(K·S/100)] for S as it is written, not as a binary fraction of it."""
    density = percent_thousandths / 100_000
    exact = (k * percent_thousandths // 200_000, k * percent_thousandths // 100_000)
    assert generate.row_count_range(k, density) == exact


@pytest.mark.parametrize(
    ("k", "density", "expected"),
    [
        (1000, 0.05, (25, 50)),
        (4096, 0.005, (10, 20)),
        (4096, 0.01, (20, 40)),
        (4096, 0.05, (102, 204)),
        (2048, 0.005, (5, 10)),
        (100, 0, (0, 0)),
        (100, 0.0, (0, 0)),
        (100, 1, (50, 100)),
        (7, 1.0, (3, 7)),
        (1, 1.0, (0, 1)),
        (1, 0.5, (0, 0)),
        (10, 0.05, (0, 0)),
        (3, 1 / 3, (0, 1)),
        (10, 0.3, (1, 3)),
        (10, 0.7, (3, 7)),
    ],
)
def test_row_counts_at_the_edges(k, density, expected):
    assert generate.row_count_range(k, density) == expected
    counts = generate.row_counts(500, k, density, 3)
    assert counts.dtype == np.int32 and counts.shape == (500,)
    assert (counts.min(), counts.max()) == expected or k == 4096


@given(m=st.integers(1, 300), k=st.integers(1, 400), density=st.floats(0, 1), seed=st.integers(0, 99))
@settings(deadline=None)
def test_row_counts_stay_in_the_sources_range(m, k, density, seed):
    counts = generate.row_counts(m, k, density, seed)
    s = 100 * density
    assert counts.min() >= math.floor(k * s / 200 - 1e-6)
    assert counts.max() <= k * s / 100 + 1e-5


@pytest.mark.parametrize("seed", [0, 1, 12345, 2**32 - 1])
@pytest.mark.parametrize(("k", "density"), [(1000, 0.05), (2048, 0.005), (100, 1.0)])
def test_row_counts_are_uniform(k, density, seed):
    low, high = generate.row_count_range(k, density)
    counts = generate.row_counts(20_000, k, density, seed)
    assert uniform(np.bincount(counts - low, minlength=high - low + 1))
    assert uncorrelated(counts[1:], counts[:-1]), "neighbouring rows"


# ------------------------------------------------------------------------------- entries


@given(
    m=st.integers(1, 60),
    n=st.integers(1, 40),
    k=st.integers(1, 90),
    density=st.floats(0, 1),
    seed=st.integers(0, 2**32 - 1),
)
@settings(deadline=None)
def test_operands_are_well_formed(m, n, k, density, seed):
    ops = generate.host_operands(m, n, k, density, seed)
    a = csr.validate(ops.a)
    assert (a.m, a.k) == (m, k) and ops.b.shape == (k, n) and ops.b.dtype == np.float32
    assert ops.b.flags.c_contiguous and ops.c is None
    # The prefix sum: offsets are the running total of the counts.
    assert np.array_equal(np.diff(a.row_ptr), generate.row_counts(m, k, density, seed))
    assert a.nnz == room.problem(m, n, k, density, seed).nnz
    for values in (a.val, ops.b):
        assert np.all((values > 0) & (values < 1)), "the open interval, and never zeros"


@pytest.mark.parametrize("seed", [0, 1, 2**31])
@pytest.mark.parametrize("k", [1000, 1024, 16384])
def test_columns_and_values_are_uniform(k, seed):
    a = generate.host_operands(2000, 1, k, 32 / k, seed).a
    assert a.nnz > 40_000
    assert uniform(np.bincount(a.col_idx.astype(np.int64) * 64 // k, minlength=64))
    assert uniform(np.bincount((a.val * 64).astype(int), minlength=64))
    for x in (a.col_idx, a.val):
        assert uncorrelated(x[1:], x[:-1]), "neighbouring entries"
        assert uncorrelated(x[2:], x[:-2])


@pytest.mark.parametrize("seed", [0, 5])
def test_b_is_uniform(seed):
    b = generate.host_dense(300, 256, seed)
    assert uniform(np.bincount((b.ravel() * 256).astype(int), minlength=256))
    assert uncorrelated(b[1:].ravel(), b[:-1].ravel()), "neighbouring rows"
    assert uncorrelated(b[:, 1:].ravel(), b[:, :-1].ravel()), "neighbouring columns"


def test_the_streams_are_independent():
    index = np.arange(50_000, dtype=np.uint32)
    streams = [generate._unit(9, stream, index) for stream in range(4)]
    for i in range(4):
        for j in range(i):
            assert uncorrelated(streams[i], streams[j])
            assert not np.any(streams[i][:1000] == streams[j][:1000])
    # Nor is one of them another one shifted, as two places of one sequence would be.
    found = np.isin(streams[0][:1000], streams[1]).mean()
    assert found < 5 * index.size / 2**23 + 0.01


def test_seeds_are_independent():
    seeds = [generate.host_dense(100, 100, seed).ravel() for seed in (0, 1, 2, 2**31, 2**32 - 1)]
    for i in range(len(seeds)):
        for j in range(i):
            assert uncorrelated(seeds[i], seeds[j])


def test_the_same_seed_makes_the_same_bits():
    one, two = (generate.host_operands(50, 30, 200, 0.1, 11) for _ in range(2))
    other = generate.host_operands(50, 30, 200, 0.1, 12)
    for x in ("row_ptr", "col_idx", "val"):
        assert np.array_equal(getattr(one.a, x), getattr(two.a, x))
    assert np.array_equal(one.b, two.b)
    assert not np.array_equal(one.a.row_ptr, other.a.row_ptr)
    assert not np.any(one.b[0] == other.b[0])


@given(k=st.integers(1, 12), n=st.integers(1, 12), panel=st.integers(1, 40))
@settings(deadline=None)
def test_panels_of_the_dense_matrix_leave_no_seam(k, n, panel):
    whole = generate.host_dense(k, n, 3)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(generate, "_PANEL", panel)
        assert np.array_equal(generate.host_dense(k, n, 3), whole)


def test_too_many_non_zeros_for_32_bits_are_refused(monkeypatch):
    monkeypatch.setattr(csr, "INT32_MAX", 1000)
    with pytest.raises(ValueError, match=r"\d+ non-zeros do not fit 32-bit row offsets"):
        generate.host_operands(100, 1, 100, 0.5, 0)


# ------------------------------------------------------------------------------- problems


def test_a_problem_counts_its_work():
    p = room.problem(m=100, n=260, k=300, density=0.1, seed=4)
    ops = p.host()
    assert (p.room, p.label, p.m, p.n, p.k) == ("casper_sparse", "", 100, 260, 300)
    assert (p.density, p.seed, p.nnz) == (0.1, 4, ops.a.nnz)
    assert p.useful_flops == 2 * p.nnz * 260 and p.flops_def == "2·nnz·N"
    assert p.least_bytes == ops.a.nbytes + ops.b.nbytes + 4 * 100 * 260
    # The published kernel reads A again for each of its three column tiles, B for every non-zero.
    once = 4 * p.nnz * 260 + 4 * 100 * 260 + 8 * 100
    assert p.requested_bytes == once + 3 * 8 * p.nnz


def test_a_problem_of_a_given_matrix():
    a = generate.host_operands(20, 1, 30, 0.3, 1).a
    p = room.problem_from_csr(a, 6, seed=2, label="some matrix")
    assert p.host().a is a and p.label == "some matrix"
    assert np.array_equal(p.host().b, generate.host_dense(30, 6, 2))
    assert (p.m, p.n, p.k, p.nnz, p.seed) == (20, 6, 30, a.nnz, 2)
    assert p.density == pytest.approx(a.nnz / 600)


@pytest.mark.parametrize(("m", "k"), [(0, 5), (5, 0), (0, 0), (3, 4)])
def test_a_problem_of_an_empty_matrix(m, k):
    zeros = np.zeros(0, np.int32)
    a = csr.Csr(m, k, np.zeros(m + 1, np.int32), zeros, zeros.astype(np.float32))
    p = room.problem_from_csr(a, 4)
    assert p.nnz == p.useful_flops == 0 and p.host().b.shape == (k, 4)


def test_repeated_entries_may_outnumber_the_elements():
    a = csr.Csr(1, 1, np.array([0, 3], np.int32), np.zeros(3, np.int32), np.ones(3, np.float32))
    assert room.problem_from_csr(a, 4).nnz == 3


def test_a_malformed_matrix_makes_no_problem():
    a = generate.host_operands(20, 1, 30, 0.3, 1).a
    a.col_idx[5] = 30
    with pytest.raises(ValueError, match=r"col_idx\[5\] is 30"):
        room.problem_from_csr(a, 4)


def test_more_non_zeros_than_32_bits_make_no_problem():
    """Said before the GPU's 32-bit prefix sum would wrap around."""
    with pytest.raises(ValueError, match="non-zeros do not fit 32-bit row offsets"):
        room.problem(m=2**20, n=1, k=2**13, density=0.5)


@pytest.mark.parametrize("integer", [np.int32, np.int64])
def test_sizes_may_be_numpy_integers(integer):
    """A table of shapes read by pandas has int64 columns, and products of sizes pass 2^31."""
    sizes = {"m": 4096, "n": 32768, "k": 4096, "seed": 3}
    plain = room.problem(**sizes, density=0.05)
    made = room.problem(**{name: integer(size) for name, size in sizes.items()}, density=0.05)
    for name in ("nnz", "useful_flops", "least_bytes", "requested_bytes"):
        assert getattr(plain, name) == getattr(made, name) > 0, name


GOOD = {"m": 10, "n": 4, "k": 100, "density": 0.1, "seed": 0}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        *(({size: float("nan")}, [f"size {size}", "nan"]) for size in "mnk"),
        *(({size: 0}, [f"size {size}", "is 0"]) for size in "mnk"),
        *(({size: -4}, [f"size {size}", "-4"]) for size in "mnk"),
        *(({size: 4.0}, [f"size {size}", "4.0", "integer"]) for size in "mnk"),
        *(({size: "8"}, [f"size {size}", "'8'"]) for size in "mnk"),
        *(({size: 2**31}, [f"size {size}", "2147483648"]) for size in "mnk"),
        ({"density": float("nan")}, ["density", "nan"]),
        ({"density": -0.1}, ["density", "-0.1"]),
        ({"density": 1.5}, ["density", "1.5"]),
        ({"density": 5}, ["density", "is 5", "share from 0 to 1"]),
        ({"density": float("inf")}, ["density", "inf"]),
        ({"density": "dense"}, ["density", "'dense'"]),
        ({"seed": -1}, ["seed", "-1"]),
        ({"seed": 2**32}, ["seed", "4294967296"]),
        ({"seed": 0.5}, ["seed", "0.5"]),
        ({"seed": None}, ["seed", "None"]),
    ],
)
def test_a_size_that_makes_no_problem_gets_one_sentence(change, words):
    with pytest.raises(ValueError) as caught:
        room.problem(**(GOOD | change))
    message = str(caught.value)
    assert "\n" not in message and ". " not in message
    for word in words:
        assert word in message, f"{word!r} is not in: {message}"


# ------------------------------------------------------------------------------- on a GPU


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("m", "n", "k", "density", "seed"),
    [
        (1, 1, 1, 1.0, 0),
        (1, 5, 4000, 0.5, 1),
        (255, 3, 53, 1.0, 2),
        (257, 260, 1817, 0.05, 3),
        (1025, 129, 1363, 0.3, 2**32 - 1),
        (20_000, 8, 2048, 0.005, 2**31),
        (100, 4, 10, 0.05, 6),  # without non-zeros
    ],
)
def test_the_gpu_makes_the_same_bits(device, m, n, k, density, seed):
    p = room.problem(m=m, n=n, k=k, density=density, seed=seed)
    here, there = p.host(), p.device()
    assert (there.a.m, there.a.k, there.a.nnz) == (m, k, p.nnz)
    for name in ("row_ptr", "col_idx", "val"):
        ours, theirs = getattr(here.a, name), getattr(there.a, name).get()
        assert ours.dtype == theirs.dtype and np.array_equal(ours, theirs), name
    assert np.array_equal(here.b, there.b.get())
    assert there.c.shape == (m, n) and there.c.dtype == np.float32 and there.c.flags.c_contiguous
    csr.validate(there.a)


@pytest.mark.gpu
@pytest.mark.alone
def test_the_gpu_continues_past_32_bits_of_elements(device):
    """17 GiB of B: the index of an element wraps at 2^32, on the GPU as in NumPy."""
    import cupy

    k, n = 2**17 + 2, 2**15
    if cupy.cuda.runtime.memGetInfo()[0] < 24 * 2**30:
        pytest.skip("needs 24 GiB of free GPU memory")
    b = generate.device_dense(k, n, 5)
    try:
        assert np.array_equal(b[2**17 : 2**17 + 2].get(), b[:2].get())
        last = np.arange(k * n - 8, k * n, dtype=np.uint64).astype(np.uint32)
        assert np.array_equal(b.ravel()[-8:].get(), generate._unit(5, 3, last))
    finally:
        del b
        cupy.get_default_memory_pool().free_all_blocks()
