"""The room's operands: their bits, their distribution, what a problem counts and what is refused."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from fractions import Fraction

import compiled
import numpy as np
import pytest
import scipy.stats
from refused import says

from artifact.measure import check
from kernels import splitmix
from kernels.formats import half, nm
from kernels.nm_spmm import operands

DTYPES = tuple(operands.MASKS)
#: Significant bits of a value, the leading one included.
BITS = {"float32": 24, "tf32": 11, "bfloat16": 8}
#: A statistic beyond this quantile happens once in 10^5 seeds; the seeds below are fixed.
CONFIDENCE = 1 - 1e-5
#: m, n, k, keep, group, vector: whole; one element; ragged; a last window with fewer rows than N;
#: one vector for all columns; element-wise; groups that are no power of two.
SIZES = [
    (8, 64, 64, 16, 32, 32),
    (1, 1, 1, 1, 32, 32),
    (5, 70, 75, 8, 32, 32),
    (3, 33, 37, 12, 32, 8),
    (2, 40, 50, 4, 8, 128),
    (4, 9, 11, 2, 4, 1),
    (6, 10, 20, 3, 7, 4),
    (2, 130, 33, 32, 32, 128),
]


def uniform(counts: np.ndarray) -> bool:
    """Chi-square test that draws fall into equally likely bins `counts`."""
    expected = counts.sum() / counts.size
    statistic = ((counts - expected) ** 2 / expected).sum()
    return statistic < scipy.stats.chi2.ppf(CONFIDENCE, counts.size - 1)


def uncorrelated(x: np.ndarray, y: np.ndarray) -> bool:
    return abs(np.corrcoef(x.ravel(), y.ravel())[0, 1]) < 5 / math.sqrt(x.size)


def bits_of(ops) -> tuple[np.ndarray, ...]:
    """A, val and index as arrays whose equality is that of the bits."""
    a = ops.a.bits if isinstance(ops.a, half.Half) else ops.a.view(np.uint32)
    return a, ops.b.val.view(np.uint32), ops.b.index


def same(one, two) -> bool:
    pairs = zip(bits_of(one), bits_of(two), strict=True)
    return all(x.dtype == y.dtype and np.array_equal(x, y) for x, y in pairs)


def dense_a(ops) -> np.ndarray:
    return half.to_dense(ops.a) if isinstance(ops.a, half.Half) else ops.a


def host(sizes, seed: int = 0, dtype: str = "float32"):
    return operands.host_operands(*sizes, seed, dtype)


# --------------------------------------------------------------------------- the generator's bits


def mix(x: int) -> int:
    """SplitMix64's finalizer in Python's unbounded integers."""
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 % 2**64
    x = (x ^ x >> 27) * 0x94D049BB133111EB % 2**64
    return x ^ x >> 31


def random_u32(seed: int, stream: int, index: int) -> int:
    key = mix((3 * seed + stream + 1) * 0x9E3779B97F4A7C15 % 2**64)
    return mix((key + (index + 1) * 0x9E3779B97F4A7C15) % 2**64) >> 32


def value(seed: int, stream: int, index: int, dtype: str) -> Fraction:
    """One value of a stream: uniform, exactly, then cut towards 0 to the dtype's bits."""
    step = random_u32(seed, stream, index) >> 8
    if dtype == "float32":
        return Fraction(step + 1, 2**24)
    odd = 2 * step + 1 - 2**24  # of 2^24ths; 24 bits at most
    unit = 1 << max(0, abs(odd).bit_length() - BITS[dtype])
    return Fraction(int(math.copysign(abs(odd) // unit * unit, odd)), 2**24)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("seed", [0, 2**32 - 1])
def test_every_element_is_the_one_of_its_position(sizes, seed, dtype):
    """As generate.cu makes them, one at a time."""
    m, n, k, keep, group, vector = sizes
    made = host(sizes, seed, dtype)
    a = dense_a(made)
    assert a.shape == (m, k)
    for i, j in np.ndindex(m, k):
        assert Fraction(float(a[i, j])) == value(seed, 0, j * m + i, dtype)

    w, q = made.b.val.shape[0], made.b.index.shape[1]
    index = np.full((w, q), k - 1)
    for g, v in np.ndindex(-(-k // group), q):
        rows = min(group, k - g * group)
        kept = []
        for row in range(rows):
            draw = random_u32(seed, 2, (g * q + v) * group + row) * (rows - row) >> 32
            if draw < min(keep, rows) - len(kept):
                kept.append(g * group + row)
        index[g * keep : g * keep + len(kept), v] = kept
    assert np.array_equal(made.b.index, index)
    surplus = max(0, keep - (k - (k - 1) // group * group))
    for i, j in np.ndindex(w, n):
        expected = 0 if i >= w - surplus else value(seed, 1, i * n + j, dtype)
        assert Fraction(float(made.b.val[i, j])) == expected


def test_the_bits_never_change():
    """The shipped records name a seed; another generator would make them of other matrices."""
    made = operands.problem(2, 3, 6, 0.5, 7, group=4, vector=2).host()
    assert made.a.view(np.uint32).ravel(order="F")[:4].tolist() == GOLDEN_A
    assert made.b.val.view(np.uint32)[1].tolist() == GOLDEN_VAL
    assert made.b.index.tolist() == GOLDEN_INDEX


GOLDEN_A = [1056396152, 1065263923, 1056445466, 1063772140]
GOLDEN_VAL = [1065314858, 1058285824, 1064068190]
GOLDEN_INDEX = [[1, 1], [2, 3], [4, 4], [5, 5]]


# --------------------------------------------------------------------------- the matrices


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("sizes", SIZES)
def test_operands_are_well_formed(sizes, dtype):
    m, n, k, keep, group, vector = sizes
    p = operands.problem(m, n, k, keep / group, 5, group=group, vector=vector, dtype=dtype)
    made = p.host()
    b = nm.validate(made.b)
    assert (b.k, b.n, b.keep, b.group, b.vector) == (k, n, keep, group, vector)
    assert made.c is None
    stored = made.a.bits if dtype == "bfloat16" else made.a
    assert stored.shape == (m, k) and stored.flags.f_contiguous
    assert stored.dtype == (np.uint16 if dtype == "bfloat16" else np.float32)
    # Whole windows keep N rows of every column; a short one, min(N, its rows).
    kept = k // group * keep + min(keep, k % group)
    assert (nm.to_dense(b) != 0).sum(axis=0).tolist() == [kept] * n


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("seed", [0, 1, 2**32 - 1])
def test_values_are_uniform_and_fit_the_dtype(seed, dtype):
    made = host((300, 256, 512, 16, 32, 32), seed, dtype)
    for x in (dense_a(made), made.b.val):
        fraction = np.frexp(x.astype(np.float64))[0] * 2.0 ** BITS[dtype]
        assert np.array_equal(fraction, np.rint(fraction)), "not exactly representable"
        least, most = (0, 1) if dtype == "float32" else (-1, 1)
        assert np.all(x != 0) and least <= x.min() and x.max() <= most
        assert dtype == "float32" or np.abs(x).max() < 1
        # Powers of two as edges, which cutting bits moves nothing across.
        edges = np.array([-1, -0.5, -0.25, 0, 0.25, 0.5, 1])
        counts = np.histogram(x, edges)[0] / np.diff(edges)
        used = counts[-3:] if dtype == "float32" else counts
        assert uniform(used * (edges[-1] - edges[0]) / 8)
        assert uncorrelated(x[1:], x[:-1]) and uncorrelated(x[:, 1:], x[:, :-1])
    if dtype == "bfloat16":
        assert np.array_equal(half.from_bits(half.to_bits(made.b.val, dtype), dtype), made.b.val)


def test_the_smallest_and_the_largest_draws_stay_within_bounds():
    ends = np.array([0, 2**32 - 1, 2**31, 2**31 - 1], np.uint64)
    assert operands._value(ends, "float32")[:2].tolist() == [2.0**-24, 1.0]
    for dtype in ("tf32", "bfloat16"):
        most = 1 - 2.0 ** -BITS[dtype]
        assert operands._value(ends, dtype).tolist() == [-most, most, 2.0**-24, -(2.0**-24)]


@pytest.mark.parametrize("seed", [0, 3])
def test_every_choice_of_rows_is_equally_likely(seed):
    index = host((1, 4000, 4 * 30 + 3, 2, 4, 2), seed).b.index
    for rows, choices in (
        (index[:-2].reshape(30, 2, -1) % 4, list(itertools.combinations(range(4), 2))),
        (index[-2:].reshape(1, 2, -1) - 120, list(itertools.combinations(range(3), 2))),
    ):
        pairs = rows.transpose(0, 2, 1).reshape(-1, 2)
        found, counts = np.unique(pairs, axis=0, return_counts=True)
        assert [tuple(x) for x in found.tolist()] == choices and uniform(counts)


@pytest.mark.parametrize("keep", [4, 16])
def test_windows_and_vectors_choose_independently(keep):
    b = host((1, 32 * 200, 32 * 60, keep, 32, 32)).b
    kept = np.zeros((60, 32, 200))
    np.put_along_axis(kept, b.index.reshape(60, keep, 200) % 32, 1, axis=1)
    assert np.all(kept.sum(axis=1) == keep)
    rows = kept.sum(axis=(0, 2))
    assert np.all(np.abs(rows / (60 * 200) - keep / 32) < 5 * math.sqrt(0.25 / (60 * 200)))
    # Without windows' common sum, which is a constant, chance overlaps are all that there is.
    assert uncorrelated(kept[:, :, 1:], kept[:, :, :-1])
    assert uncorrelated(kept[1:], kept[:-1])


def test_streams_and_seeds_are_independent():
    place = np.arange(50_000, dtype=np.uint64)
    draws = [
        splitmix.random_u32(splitmix.key(seed, stream), place).astype(np.float64)
        for seed in (0, 1, 2**31, 2**32 - 1)
        for stream in range(3)
    ]
    for one, two in itertools.combinations(draws, 2):
        assert uncorrelated(one, two)
        # Nor is one of them another one shifted, as two places of one sequence would be.
        assert np.isin(one[:1000], two).mean() < 0.01


def test_the_same_seed_makes_the_same_bits():
    one, two = (operands.problem(20, 64, 96, seed=11).host() for _ in range(2))
    other = operands.problem(20, 64, 96, seed=12).host()
    assert same(one, two)
    for x, y in zip(bits_of(one), bits_of(other), strict=True):
        assert np.mean(x == y) < 0.5  # at 16:32 a row of B is the same one now and then


@pytest.mark.parametrize("panel", [1, 7, 100])
@pytest.mark.parametrize("sizes", SIZES[1:])
def test_panels_leave_no_seam(monkeypatch, sizes, panel):
    whole = host(sizes, 3, "tf32")
    monkeypatch.setattr(operands, "_PANEL", panel)
    assert same(host(sizes, 3, "tf32"), whole)


@pytest.mark.parametrize("seed", [0, 9])
def test_column_major_half_survives_the_check(seed):
    """A and C of "bfloat16" are `Half` with bits in Fortran order: filled, multiplied, compared."""
    p = operands.problem(33, 40, 70, 0.25, seed, dtype="bfloat16")
    made = p.host()
    reference = check.oracle(p, on="cpu")
    exact = half.to_dense(made.a).astype(np.float64) @ nm.to_dense(made.b).astype(np.float64)
    assert np.allclose(reference.values, exact, rtol=1e-12)
    c = half.Half("bfloat16", np.zeros((33, 40), np.uint16, order="F"))

    class Multiplied:
        name = "multiplied"

        def launch(self, stream):
            assert np.isnan(half.to_dense(c)).all()
            c.bits[...] = half.to_bits(exact.astype(np.float32), "bfloat16")

        def result(self):
            return c

    assert 1e-4 < check.check(Multiplied(), p, reference).rel_err < 4e-3
    assert c.bits.flags.f_contiguous
    c.bits[32, 39] ^= 0x8000
    with pytest.raises(check.WrongResult):
        check.compare(c, reference)
    c.bits[5, 7] = 0x7FFF
    with pytest.raises(check.WrongResult, match="row 5, column 7"):
        check.compare(c, reference)


# --------------------------------------------------------------------------- problems


@pytest.mark.parametrize(("dtype", "size"), [("float32", 4), ("tf32", 4), ("bfloat16", 2)])
def test_a_problem_counts_its_work(dtype, size):
    p = operands.problem(m=100, n=260, k=330, density=0.375, seed=4, dtype=dtype)
    a, b = p.host().a, p.host().b
    assert (p.room, p.m, p.n, p.k, p.density, p.seed) == ("nm_spmm", 100, 260, 330, 0.375, 4)
    assert b.w == 11 * 12 and b.q == 9
    assert p.nnz == b.nnz == b.val.size and p.flops_def == "2·M·N·W"
    assert p.useful_flops == 2 * 100 * 260 * 132
    # As bind converts them: values of B in two bytes where A's and C's are.
    assert a.nbytes == size * 100 * 330
    stored_b, c = size * 132 * 260 + b.index.nbytes, size * 100 * 260
    assert p.least_bytes == a.nbytes + stored_b + c
    # 64 x 128 tiles: A is read for each of three columns of tiles, B for each of two rows.
    assert p.requested_bytes == 3 * a.nbytes + 2 * stored_b + c


def test_a_vector_of_several_blocks_is_asked_for_by_each():
    p = operands.problem(64, 512, 64, 0.5, vector=512)
    a, val, c = 4 * 64 * 64, 4 * 32 * 512, 4 * 64 * 512
    assert p.requested_bytes == 4 * a + val + 4 * 4 * 32 + c
    assert p.least_bytes == a + val + 4 * 32 + c


@pytest.mark.parametrize(
    ("given", "label"),
    [
        ({}, ""),
        ({"density": 0.125}, ""),
        ({"vector": 8}, "vectors of 8"),
        ({"vector": 1}, "element-wise"),
        ({"group": 16}, "8:16"),
        ({"group": 4, "density": 0.25, "vector": 128}, "1:4 vectors of 128"),
        ({"dtype": "tf32"}, "tf32"),
        ({"dtype": "bfloat16", "vector": 128}, "bfloat16, vectors of 128"),
        ({"dtype": "tf32", "group": 4, "vector": 1}, "tf32, 2:4 element-wise"),
    ],
)
def test_the_label_says_what_is_unusual(given, label):
    p = operands.problem(4, 8, 64, **given)
    assert p.label == label
    assert operands.problem_from_nm(p.host().b, 4, dtype=given.get("dtype", "float32")).label == label


def test_a_problem_of_a_given_matrix():
    generated = operands.problem(20, 70, 75, 0.25, 6, vector=16, dtype="bfloat16")
    b = generated.host().b
    p = operands.problem_from_nm(b, 20, 6, label="some weight", dtype="bfloat16")
    assert p.label == "some weight" and p.host().b is b and same(p.host(), generated.host())
    for name in "m n k nnz density seed useful_flops least_bytes requested_bytes".split():
        assert getattr(p, name) == getattr(generated, name) > 0, name
    other = operands.problem_from_nm(b, 20, 7, dtype="bfloat16").host()
    assert not np.array_equal(other.a.bits, p.host().a.bits)


B = operands.problem(4, 40, 64, 0.5, vector=8).host().b


@pytest.mark.parametrize(
    ("b", "given", "words"),
    [
        (B, {"dtype": "tf32"}, ["tf32 does not hold"]),
        (operands.problem(4, 40, 64, dtype="tf32").host().b, {"dtype": "bfloat16"}, ["bfloat16"]),
        (B, {"dtype": "float16"}, ["dtype is 'float16'", "float32, tf32, bfloat16"]),
        (replace(B, index=B.index + 64), {}, ["index[0, 0]"]),
        (B, {"m": 0}, ["m is 0"]),
        (B, {"seed": -1}, ["seed is -1"]),
    ],
)
def test_matrices_that_make_no_problem_get_one_sentence(b, given, words):
    says(words, lambda: operands.problem_from_nm(b, **({"m": 4} | given)))


@pytest.mark.parametrize("integer", [np.int32, np.int64])
def test_sizes_may_be_numpy_integers(integer):
    """A table of shapes read by pandas has int64 columns, and products of sizes pass 2^31."""
    sizes = {"m": 8192, "n": 22016, "k": 8192, "seed": 3, "group": 32, "vector": 64}
    plain = operands.problem(**sizes)
    made = operands.problem(**{name: integer(size) for name, size in sizes.items()})
    for name in ("nnz", "useful_flops", "least_bytes", "requested_bytes", "seed"):
        assert getattr(plain, name) == getattr(made, name) > 0, name


GOOD = {"m": 10, "n": 4, "k": 100, "density": 0.5, "seed": 0}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        *(({size: float("nan")}, [f"{size} is nan"]) for size in "mnk"),
        *(({size: 0}, [f"{size} is 0"]) for size in "mnk"),
        *(({size: 4.0}, [f"{size} is 4.0", "whole number"]) for size in "mnk"),
        *(({size: "8"}, [f"{size} is '8'"]) for size in "mnk"),
        *(({size: 2**31}, [f"{size} is 2147483648"]) for size in "mnk"),
        *(({"density": x}, [f"density {x}", "0.28125 (9:32)"]) for x in (0.3,)),
        *(({"density": x}, [f"density is {x!r}"]) for x in (1.5, float("nan"), "0.5")),
        *(({"group": x}, [f"group is {x!r}"]) for x in (0, 4.0)),
        *(({"vector": x}, [f"vector is {x!r}"]) for x in (0, 32.0)),
        *(({"dtype": x}, [f"dtype is {x!r}", "bfloat16"]) for x in ("float16", "bf16", None)),
        *(({"seed": x}, [f"seed is {x!r}"]) for x in (-1, 2**32, 0.5, None)),
    ],
)
def test_what_makes_no_problem_gets_one_sentence(change, words):
    says(words, lambda: operands.problem(**(GOOD | change)))


# --------------------------------------------------------------------------- the kernels


def test_the_generator_compiles_without_spills():
    """All of its entries for one target, one for all."""
    made = compiled.cubins([(operands.SOURCE, entry) for entry in operands.ENTRIES], ["sm_90a"])
    made |= compiled.cubins([(operands.SOURCE, operands.ENTRIES[-1])])
    for (entry, arch), (used, _) in compiled.reports(made).items():
        assert not used.spills, f"{entry} on {arch}: {used}"


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("seed", [0, 2**32 - 1])
def test_the_gpu_makes_the_same_bits(device, seed, dtype):
    for sizes in (*SIZES, (129, 1001, 517, 12, 32, 32)):
        try_bits(sizes, seed, dtype)


def try_bits(sizes, seed: int, dtype: str) -> None:
    m, n, k, keep, group, vector = sizes
    p = operands.problem(m, n, k, keep / group, seed, group=group, vector=vector, dtype=dtype)
    there = p.device()
    nm.validate(there.b)
    for dense, shape in ((there.a, (m, k)), (there.c, (m, n))):
        assert dense.shape == shape
        stored = dense
        if dtype == "bfloat16":
            assert dense.dtype == "bfloat16" and dense.bits.dtype == np.uint16
            stored = dense.bits
        else:
            assert dense.dtype == np.float32
        assert stored.flags.f_contiguous
    a = half.to_host(there.a) if dtype == "bfloat16" else there.a.get()
    assert same(p.host(), replace(there, a=a, b=nm.to_host(there.b))), sizes


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_given_matrix_goes_to_the_gpu_and_back(device, dtype):
    generated = operands.problem(20, 70, 75, 0.25, 6, dtype=dtype)
    p = operands.problem_from_nm(generated.host().b, 20, 6, dtype=dtype)
    there = p.device()
    assert there.c.shape == (20, 70)
    again = operands.problem_from_nm(there.b, 20, 6, dtype=dtype)  # from the device
    assert again.device().b.val.data.ptr == there.b.val.data.ptr
    assert same(again.host(), generated.host())


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", DTYPES)
def test_the_oracle_and_the_check_take_what_the_gpu_has(device, dtype):
    """A and C in Fortran order, above the work that the CPU's oracle does."""
    p = operands.problem(300, 320, 310, 0.25, 1, dtype=dtype)
    there = p.device()
    reference = check.oracle(p, on="gpu")
    exact = dense_a(p.host()).astype(np.float64) @ nm.to_dense(p.host().b).astype(np.float64)
    assert np.allclose(reference.values.get(), exact, rtol=1e-12, atol=1e-12)

    class Multiplied:
        name = "multiplied"

        def launch(self, stream):
            product = reference.values.astype(np.float32)
            if dtype == "bfloat16":
                there.c.bits[...] = half.to_bits(product, dtype)
            else:
                there.c[...] = product

        def result(self):
            return there.c

    assert check.check(Multiplied(), p, reference).rel_err < 4e-3


@pytest.mark.gpu
@pytest.mark.alone
def test_large_operands_take_milliseconds(device):
    import cupy

    p = operands.problem(4096, 8192, 22016, seed=1)
    times = []
    for _ in range(3):
        p.release()
        start, end = cupy.cuda.Event(), cupy.cuda.Event()
        cupy.cuda.get_current_stream().synchronize()
        start.record()
        there = p.device()
        end.record()
        end.synchronize()
        times.append(cupy.cuda.get_elapsed_time(start, end))
    assert min(times) < 50, times
    nm.validate(there.b)
    last = np.arange(8192 * 11008 - 1000, 8192 * 11008, dtype=np.uint64)
    draw = operands._value(splitmix.random_u32(splitmix.key(1, 1), last), "float32")
    assert np.array_equal(there.b.val.ravel()[-1000:].get(), draw)
    p.release()
