"""Vector-wise N:M: what is stored, how it is chosen and drawn, and what is refused."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
import scipy.stats
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from refused import says

from kernels.formats import nm

INT32, FLOAT32 = np.int32, np.float32
#: A statistic beyond this quantile happens once in 10^5 seeds; the seeds below are fixed.
CONFIDENCE = 1 - 1e-5


def choose(dense: np.ndarray, keep: int, group: int, vector: int) -> nm.Nm:
    """Pruned by magnitude, one vector at a time and with Python's sort."""
    k, n = dense.shape
    columns, rows = [], []
    for left in range(0, n, vector):
        kept = []
        for top in range(0, k, group):
            here = range(top, min(top + group, k))
            size = {row: sum(abs(float(x)) for x in dense[row, left : left + vector]) for row in here}
            best = sorted(here, key=lambda row, size=size: (-size[row], row))[:keep]
            kept += [(row, True) for row in sorted(best)]
            kept += [(k - 1, False)] * (keep - len(best))
        rows.append([row for row, _ in kept])
        for j in range(left, min(left + vector, n)):
            columns.append([dense[row, j] if real else 0 for row, real in kept])
    return nm.Nm(
        k,
        n,
        keep,
        group,
        vector,
        np.array(columns, FLOAT32).T.copy(),
        np.array(rows, INT32).T.copy(),
    )


def expand(b: nm.Nm) -> np.ndarray:
    """What a matrix means, value by value."""
    out = np.zeros((b.k, b.n))
    for row in range(b.w):
        for column in range(b.n):
            out[b.index[row, column // b.vector], column] += b.val[row, column]
    return out


def same(a: nm.Nm, b: nm.Nm) -> bool:
    """Equal to the bit, dtypes included."""
    sizes = ("k", "n", "keep", "group", "vector")
    return all(getattr(a, x) == getattr(b, x) for x in sizes) and all(
        x.dtype == y.dtype and x.shape == y.shape and x.tobytes() == y.tobytes()
        for x, y in ((a.val, b.val), (a.index, b.index))
    )


@st.composite
def patterns(draw) -> tuple[int, int, int]:
    """keep, group, vector: all of the rooms, and the odd ones between."""
    group = draw(st.sampled_from([1, 2, 3, 4, 5, 8, 16, 32]))
    return draw(st.integers(1, group)), group, draw(st.sampled_from([1, 2, 3, 4, 5, 7, 32, 128, nm.INT32_MAX]))


@st.composite
def shapes(draw) -> tuple[int, int, int, int, int]:
    """k, n, keep, group, vector: multiples of group and vector, and ragged ones."""
    keep, group, vector = draw(patterns())
    return draw(st.integers(1, 3 * group + 2)), draw(st.integers(1, 12)), keep, group, vector


@st.composite
def cases(draw):
    """A dense matrix with many zeros and many equal magnitudes, and a pattern for it."""
    k, n, *pattern = draw(shapes())
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    span = draw(st.sampled_from([1, 2, 64]))
    return rng.integers(-span, span + 1, (k, n)).astype(FLOAT32), *pattern


# ---------------------------------------------------------------------------- what is stored

a, b_, c, d, f, g, h, i, r, s, t, u = (float(x) for x in range(1, 13))
PICTURE = np.array([[a, b_, 0, 0], [0, 0, f, g], [c, d, h, i], [0] * 4, [r, s, t, u]], FLOAT32)


def test_the_picture_of_the_format():
    b = nm.compress(PICTURE, 2, 4, 2)
    assert (b.w, b.q, b.nnz, b.nbytes) == (4, 2, 16, 4 * 16 + 4 * 8)
    assert b.val.tolist() == [[a, b_, f, g], [c, d, h, i], [r, s, t, u], [0] * 4]
    assert b.index.tolist() == [[0, 1], [2, 2], [4, 4], [4, 4]]
    assert np.array_equal(nm.to_dense(b), PICTURE)


@given(case=cases())
@settings(deadline=None, max_examples=300)
def test_pruning_keeps_the_largest_rows_of_every_vector(case):
    dense, keep, group, vector = case
    made = nm.validate(nm.compress(dense, keep, group, vector, prune=True))
    assert same(made, choose(dense, keep, group, vector))


@given(case=cases())
@settings(deadline=None, max_examples=200)
def test_dense_and_back_changes_nothing(case):
    made = nm.compress(*case, prune=True)
    dense = nm.to_dense(made)
    assert dense.dtype == FLOAT32 and dense.shape == (made.k, made.n) and dense.flags.c_contiguous
    assert np.array_equal(dense, expand(made))
    # A matrix that fits the pattern is the same with and without pruning. (The zero rows that fill
    # a vector up may be others than the ones that the first pruning found there.)
    again = nm.compress(dense, *case[1:])
    assert same(again, nm.compress(dense, *case[1:], prune=True))
    assert np.array_equal(nm.to_dense(nm.validate(again)), dense)


@given(shape=shapes(), seed=st.integers(0, 2**32 - 1))
@settings(deadline=None, max_examples=200)
def test_a_random_matrix_survives_the_way_through_a_dense_one(shape, seed):
    b = nm.validate(nm.random(*shape, seed))
    assert same(nm.compress(nm.to_dense(b), *shape[2:]), b)
    assert same(nm.compress(nm.to_dense(b), *shape[2:], prune=True), b)


@given(shape=shapes(), seed=st.integers(0, 99))
@settings(deadline=None, max_examples=100)
def test_sizes_and_the_index_of_every_column(shape, seed):
    k, n, keep, group, vector = shape
    b = nm.random(*shape, seed)
    assert b.w == -(-k // group) * keep and b.q == -(-n // vector)
    assert b.val.shape == (b.w, n) and b.index.shape == (b.w, b.q)
    assert b.nnz == b.w * n and b.nbytes == 4 * b.w * (n + b.q)
    index = nm.per_column_index(b)
    assert index.dtype == INT32 and index.shape == (b.w, n) and index.flags.c_contiguous
    assert all(np.array_equal(index[:, j], b.index[:, j // vector]) for j in range(n))


@pytest.mark.parametrize("keep", [3, 260, 300])
def test_a_group_of_more_rows_than_a_byte_counts(keep):
    b = nm.validate(nm.random(700, 3, keep, 300, 2, 0))
    assert same(nm.compress(nm.to_dense(b), keep, 300, 2, prune=True), b)
    dense = np.random.default_rng(0).integers(-99, 99, (700, 3)).astype(FLOAT32)
    assert same(nm.compress(dense, keep, 300, 2, prune=True), choose(dense, keep, 300, 2))


def test_pruning_equal_and_extreme_magnitudes():
    column = np.array([[1], [-2], [2], [1]], FLOAT32)
    assert nm.compress(column, 1, 4, 1, prune=True).index.tolist() == [[1]]
    assert nm.compress(column, 3, 4, 1, prune=True).index.tolist() == [[0], [1], [2]]
    huge = np.array([[3e38, 3e38], [3e38, 3.1e38], [0, 0], [0, 0]], FLOAT32)
    assert nm.compress(huge, 1, 4, 2, prune=True).index.tolist() == [[1]], "sums are wider"
    tiny = np.array([[0], [0], [1e-45], [0]], FLOAT32)
    assert nm.compress(tiny, 1, 4, 1, prune=True).index.tolist() == [[2]]
    bad = np.array([[5], [np.nan], [9], [-np.inf]], FLOAT32)
    kept = nm.compress(bad, 2, 4, 1, prune=True)
    assert kept.index.tolist() == [[1], [3]] and np.isnan(kept.val[0, 0])


@pytest.mark.parametrize("dtype", [np.float64, np.float16, np.int8, np.uint32, np.int64, bool])
def test_other_dtypes_are_rounded_first(dtype):
    dense = PICTURE.astype(dtype)
    b = nm.compress(dense, 2, 4, 2)
    assert b.val.dtype == FLOAT32
    assert same(b, nm.compress(dense.astype(FLOAT32), 2, 4, 2))


def test_any_memory_order_and_a_list_are_taken():
    b = nm.compress(PICTURE, 2, 4, 2)
    twice = np.repeat(np.repeat(PICTURE, 2, axis=0), 3, axis=1)
    for other in (np.asfortranarray(PICTURE), twice[::2, ::3], PICTURE.tolist()):
        assert same(nm.validate(nm.compress(other, 2, 4, 2)), b)


# ------------------------------------------------------------------------- memory and time


@pytest.mark.parametrize("chunk", [1, 50, 333])
@pytest.mark.parametrize(("keep", "group", "vector"), [(2, 4, 3), (1, 4, 1), (5, 8, 32), (4, 4, 2)])
def test_the_chunks_leave_no_seam(monkeypatch, chunk, keep, group, vector):
    dense = np.random.default_rng(7).standard_normal((39, 10)).astype(FLOAT32)
    whole = nm.compress(dense, keep, group, vector, prune=True)
    monkeypatch.setattr(nm, "_CHUNK", chunk)
    assert same(nm.compress(dense, keep, group, vector, prune=True), whole)
    assert same(nm.compress(nm.to_dense(whole), keep, group, vector), whole)
    assert np.array_equal(nm.to_dense(whole), expand(whole).astype(FLOAT32))
    drawn = nm.validate(nm.random(39, 10, keep, group, vector, 7))
    assert same(nm.compress(expand(drawn), keep, group, vector), drawn)


# ---------------------------------------------------------------------------------- random


def uniform(counts) -> bool:
    """Chi-square test that draws fall into equally likely bins `counts`."""
    counts = np.asarray(counts)
    expected = counts.sum() / counts.size
    statistic = ((counts - expected) ** 2 / expected).sum()
    return statistic < scipy.stats.chi2.ppf(CONFIDENCE, counts.size - 1)


def drawn(b: nm.Nm) -> np.ndarray:
    """bool (groups, q, group): which rows every vector keeps; only for whole groups."""
    kept = np.zeros((b.q, b.k), bool)
    np.put_along_axis(kept, b.index.T, True, axis=1)
    return kept.reshape(b.q, -1, b.group).transpose(1, 0, 2)


def codes(kept: np.ndarray) -> np.ndarray:
    """One integer for every set of rows."""
    return kept @ (1 << np.arange(kept.shape[-1]))


@pytest.mark.parametrize("vector", [1, 5, 32])
@pytest.mark.parametrize(("keep", "group"), [(1, 2), (1, 4), (2, 4), (3, 4), (2, 5), (4, 8), (7, 8)])
def test_every_choice_of_rows_is_equally_likely(keep, group, vector):
    b = nm.random(400 * group, 100 * vector, keep, group, vector, 1)
    values, counts = np.unique(codes(drawn(b)), return_counts=True)
    choices = [sum(1 << x for x in rows) for rows in itertools.combinations(range(group), keep)]
    assert values.tolist() == sorted(choices), "every choice occurs, and no other"
    assert counts.sum() == 400 * 100 and uniform(counts)


@pytest.mark.parametrize(("rows", "keep"), [(3, 2), (5, 1), (6, 5)])
def test_a_short_last_group_is_uniform_too(rows, keep):
    b = nm.random(8 + rows, 30_000, keep, 8, 1, 3)
    kept = np.zeros((b.n, rows), bool)
    np.put_along_axis(kept, b.index[keep:].T - 8, True, axis=1)
    counts = np.unique(codes(kept), return_counts=True)[1]
    assert counts.size == math.comb(rows, keep) and uniform(counts)


def test_values_are_uniform_between_zero_and_one():
    b = nm.random(1002, 999, 3, 4, 32, 6)
    stored, surplus = b.val[:-1], b.val[-1:]  # two rows are left for the last group, three kept
    assert not surplus.any()
    assert b.val.dtype == FLOAT32 and stored.min() > 0 and stored.max() <= 1
    assert scipy.stats.kstest(stored.ravel(), "uniform").pvalue > 1 - CONFIDENCE


def test_zero_never_occurs_among_the_values_and_one_may(monkeypatch):
    class Edge:
        """A generator whose values are all the least that float32 in [0, 1) can be."""

        def __init__(self, key):
            self.real = np.random.Generator(np.random.PCG64(key))
            self.integers = self.real.integers

        def random(self, shape, dtype):
            return np.zeros(shape, dtype)

    monkeypatch.setattr(np.random, "default_rng", Edge)
    assert (nm.random(8, 4, 2, 4, 1, 0).val == 1).all()


def test_the_arguments_decide_and_nothing_else():
    arguments = dict(k=64, n=64, keep=2, group=4, vector=1, seed=0)
    b = nm.random(**arguments)
    np.random.default_rng(0).random(10)
    assert same(nm.random(**arguments), b)
    assert same(nm.random(**{x: np.int32(y) for x, y in arguments.items()}), b)
    other = nm.random(**arguments | {"seed": 1})
    assert not np.array_equal(other.index, b.index) and not np.array_equal(other.val, b.val)
    # Nor do two shapes that take equally many draws share them.
    tall, wide = (nm.random(**arguments | change) for change in ({"k": 128}, {"n": 128}))
    assert not np.array_equal(tall.val.ravel(), wide.val.ravel())


# ------------------------------------------------------------------------------- densities


@pytest.mark.parametrize("group", [1, 2, 3, 4, 7, 8, 10, 16, 32, 128])
def test_every_pattern_is_found_by_its_density(group):
    for keep in range(1, group + 1):
        assert nm.keep_of(keep / group, group) == keep
        assert nm.keep_of(1 - (group - keep) / group, group) == keep, "a sparsity, taken from 1"
        assert nm.keep_of(np.float32(keep / group), np.int32(group)) == keep
    assert nm.keep_of(1, group) == group


@pytest.mark.parametrize(
    ("density", "group", "words"),
    [
        (0.3, 4, ["density 0.3", "N/4", "0.25 (1:4)", "0.5 (2:4)"]),
        (0.55, 32, ["0.55", "0.53125 (17:32)", "0.5625 (18:32)"]),
        (0.9, 8, ["0.9", "0.875 (7:8)", "1.0 (8:8)"]),
        (0.1, 4, ["0.1", "choose 0.25 (1:4)"]),
        (0, 8, ["density 0 ", "choose 0.125 (1:8)"]),
        (0.5, 1, ["0.5", "choose 1.0 (1:1)"]),
        (1.5, 4, ["density", "1.5", "0 to 1"]),
        (-0.25, 4, ["density", "-0.25", "0 to 1"]),
        (50, 4, ["density", "50", "0 to 1"]),
        (float("nan"), 4, ["density", "nan", "0 to 1"]),
        ("0.5", 4, ["density", "'0.5'"]),
        (None, 4, ["density", "None"]),
        (0.5, 0, ["group", "0", "integer from 1"]),
        (0.5, 4.0, ["group", "4.0", "integer"]),
    ],
)
def test_another_density_gets_the_nearest_ones(density, group, words):
    says(words, lambda: nm.keep_of(density, group))


# -------------------------------------------------------------------------------- refusals


def test_a_matrix_that_does_not_fit_names_group_vector_and_count():
    dense = np.zeros((10, 7), FLOAT32)
    dense[[4, 5, 7], 3] = 1
    words = ["group 1 (rows 4 to 7)", "3 non-zero", "vector 1 (columns 2 to 3)", "2:4 keeps 2"]
    says(words, lambda: nm.compress(dense, 2, 4, 2))
    assert nm.compress(dense, 2, 4, 2, prune=True).index[2:4, 1].tolist() == [4, 5]
    # Two columns that fit one by one, but do not share their rows; both in ragged corners.
    dense = np.zeros((7, 7), FLOAT32)
    dense[[4, 5], 5], dense[[5, 6], 6] = 1, 1
    nm.compress(dense, 2, 4, 1)
    words = ["group 1 (rows 4 to 6)", "3 non-zero", "vector 1 (columns 4 to 6)"]
    says(words, lambda: nm.compress(dense, 2, 4, 4))


@given(shape=shapes(), seed=st.integers(0, 99), data=st.data())
@settings(deadline=None, max_examples=100)
def test_one_non_zero_too_many_is_found_wherever_it_is(shape, seed, data):
    _, _, keep, group, vector = shape
    dense = nm.to_dense(nm.random(*shape, seed))
    zeros = np.argwhere(dense == 0)
    assume(len(zeros))
    row, column = zeros[data.draw(st.integers(0, len(zeros) - 1))].tolist()
    dense[row, column] = data.draw(st.sampled_from([1.0, -1.0, 1e-45, np.nan, -np.inf]))
    words = [
        f"group {row // group} (rows {row // group * group} to ",
        f"has {keep + 1} non-zero rows in vector {column // vector} (columns ",
        f"{keep}:{group}",
    ]
    says(words, lambda: nm.compress(dense, keep, group, vector))


def test_the_first_misfit_is_named_beyond_the_first_chunk(monkeypatch):
    monkeypatch.setattr(nm, "_CHUNK", 1)
    dense = np.zeros((30, 6), FLOAT32)
    dense[20:24, 5] = 1
    dense[24:27, 0] = 1
    words = ["group 5 (rows 20 to 23)", "4 non-zero", "vector 2 (columns 4 to 5)"]
    says(words, lambda: nm.compress(dense, 2, 4, 2))


@pytest.mark.parametrize(
    ("dense", "words"),
    [
        (np.ones(4, FLOAT32), ["2-dimensional", "1-dimensional float32"]),
        (np.ones((2, 2, 2)), ["2-dimensional", "3-dimensional float64"]),
        (np.ones((4, 4), np.complex64), ["real", "complex64"]),
        (np.array([["a"]]), ["real", "<U1"]),
        (np.ones((0, 4), FLOAT32), ["k is 0", "integer from 1"]),
        (np.ones((4, 0), FLOAT32), ["n is 0", "integer from 1"]),
    ],
)
def test_what_is_no_real_matrix_is_refused(dense, words):
    says(words, lambda: nm.compress(dense, 2, 4, 1))


SIZES = dict(k=8, n=8, keep=2, group=4, vector=4)
BAD_SIZES = [
    ("k", 0),
    ("k", -4),
    ("k", 8.0),
    ("k", 2**31),
    ("k", None),
    ("n", 0),
    ("n", "8"),
    ("n", float("nan")),
    ("group", 0),
    ("group", 4.5),
    ("keep", 0),
    ("keep", -1),
    ("keep", 5),
    ("keep", 2.0),
    ("vector", 0),
    ("vector", 1.5),
    ("vector", 2**31),
]


@pytest.mark.parametrize(("name", "value"), BAD_SIZES)
def test_sizes_that_make_no_matrix_are_refused_everywhere(name, value):
    words = [
        f"N:M {name} is {value!r}",
        "integer from 1 to",
        "4" if name == "keep" else "2147483647",
    ]
    says(words, lambda: nm.random(**SIZES | {name: value}, seed=0))
    says(words, lambda: nm.validate(replace(nm.random(**SIZES, seed=0), **{name: value})))
    if name not in ("k", "n"):
        pattern = {x: SIZES[x] for x in ("keep", "group", "vector")} | {name: value}
        says(words, lambda: nm.compress(np.zeros((8, 8), FLOAT32), **pattern))


@pytest.mark.parametrize("seed", [-1, 2**32, 0.5, None])
def test_a_seed_that_is_none_is_refused(seed):
    says([f"seed is {seed!r}", "integer from 0 to 4294967295"], lambda: nm.random(**SIZES, seed=seed))


GOOD = nm.compress(np.arange(1.0, 19).reshape(9, 2), 2, 4, 1, prune=True)  # rows 2 3 6 7 8 (8)


def changed(name: str, place: tuple[int, int], value) -> dict:
    array = getattr(GOOD, name).copy()
    array[place] = value
    return {name: array}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        # dtypes and shapes
        ({"val": GOOD.val.astype(np.float64)}, ["val", "float64", "float32"]),
        ({"val": GOOD.val[:5].copy()}, ["val", "(5, 2)", "(6, 2)", "k = 9", "2:4"]),
        ({"val": GOOD.val.ravel()}, ["val", "(12,)", "(6, 2)"]),
        ({"index": GOOD.index.astype(np.int64)}, ["index", "int64", "int32"]),
        ({"index": GOOD.index.astype(np.uint32)}, ["index", "uint32", "int32"]),
        ({"index": GOOD.index[:, :1].copy()}, ["index", "(6, 1)", "(6, 2)", "vectors of 1"]),
        ({"vector": 2}, ["index", "(6, 2)", "(6, 1)", "vectors of 2"]),
        ({"k": 8}, ["val", "(6, 2)", "(4, 2)", "k = 8"]),
        ({"n": 3}, ["val", "(6, 2)", "(6, 3)", "n = 3"]),
        ({"keep": 1}, ["val", "(6, 2)", "(3, 2)", "1:4"]),
        # memory order
        ({"val": np.asfortranarray(GOOD.val)}, ["val", "row-major"]),
        ({"index": np.repeat(GOOD.index, 2, axis=1)[:, ::2]}, ["index", "row-major"]),
        # rows
        (changed("index", (3, 1), 8), ["index[3, 1]", "is 8", "rows 4 to 7", "group 1"]),
        (changed("index", (2, 0), 3), ["index[2, 0]", "is 3", "rows 4 to 7", "group 1"]),
        (changed("index", (0, 0), -1), ["index[0, 0]", "is -1", "rows 0 to 3", "group 0"]),
        (changed("index", (4, 1), 9), ["index[4, 1]", "is 9", "rows 8 to 8", "group 2"]),
        (changed("index", (5, 1), 2**31 - 1), ["index[5, 1]", "2147483647", "rows 8 to 8"]),
        # order
        (changed("index", (1, 1), 2), ["from 2 to 2", "[1, 1]", "ascend", "group 0"]),
        (changed("index", (2, 0), 7), ["from 7 to 7", "[3, 0]", "ascend", "group 1"]),
        (changed("index", (3, 1), 5), ["from 6 to 5", "[3, 1]", "ascend", "group 1"]),
        # surplus
        (changed("val", (5, 1), 2), ["val[5, 1]", "is 2.0", "surplus", "must be 0"]),
        (changed("val", (5, 0), np.nan), ["val[5, 0]", "is nan", "surplus", "must be 0"]),
    ],
)
def test_a_malformed_matrix_gets_one_sentence(change, words):
    says(["N:M ", *words], lambda: nm.validate(replace(GOOD, **change)))
