"""Conversions and layouts by kernels are what NumPy makes, to the bit, run on the host and on a GPU."""

import os
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import twins
from alike import alike
from refused import said
from scipy.sparse import csr_array

from kernels import formats
from kernels.async_sparse import family
from kernels.formats import bcsr, compress, csr, half, layout, nm, two_four, wcsr
from kernels.formats.half import Half
from kernels.library import operands
from kernels.tensor_core_24 import mma_sp, wgmma
from kernels.tensor_core_24.family import MmaSp

DTYPES = ("float32", "bfloat16", "float16")
SIZES = [(1, 1), (16, 16), (37, 150), (130, 64), (5, 700)]


@pytest.fixture
def rng():
    return np.random.default_rng(int(os.environ["SPARSITY_TEST_SEED"]))


same = partial(alike, there=True)  # and on the GPU


def dense(rng, m: int, k: int, kind: str) -> np.ndarray:
    x = rng.standard_normal((m, k)).astype(np.float32)
    if kind == "sparse":
        x[rng.random(x.shape) < 0.97] = 0
        x[rng.random(x.shape) < 0.1] = -0.0
    elif kind == "ties":
        x = np.sign(x) * rng.integers(0, 2, x.shape).astype(np.float32)
    elif kind == "odd":
        strange = [np.nan, np.inf, -np.inf, 1e-45, 3e38, 6e-8, 0]
        at = rng.random(x.shape) < 0.02
        x[at] = rng.choice(np.float32(strange), int(at.sum()))
    elif kind == "nothing":
        x[...] = 0
    return x


KINDS = ("full", "sparse", "ties", "odd", "nothing")


# ---------------------------------------------------------------- numbers


def numbers(rng, dtype: str) -> np.ndarray:
    """Any bits, and every other row small ones."""
    kind = np.dtype(dtype)
    x = np.frombuffer(rng.bytes(210 * kind.itemsize), f"u{kind.itemsize}").reshape(7, 30).copy()
    x[::2] %= 100
    return x % 2 == 1 if dtype == "bool" else x.view(kind)


@pytest.mark.parametrize("check", [False, True])
@pytest.mark.parametrize(
    "dtype",
    ["float64", "float32", "float16", "bool"] + [f"{u}int{bits}" for u in ("", "u") for bits in (8, 16, 32, 64)],
)
def test_numbers_become_float32(there, rng, dtype, check):
    x = numbers(rng, dtype)
    for given in (
        x,
        x.T,
        x[::2, 1::3],
        x[::-1, ::-2],
        np.asfortranarray(x),
        x[None, 2:5],
        x.reshape(7, 5, 6),
        x[:0],
        x[3],
    ):
        with np.errstate(over="ignore"):
            right = np.ascontiguousarray(given.astype(np.float32))
        made, at = compress.float32(there(given), check)
        same(made, right)
        wide = check and given.dtype.itemsize >= 4
        assert at == (operands.first_not_same(right, given) if wide else None)


@pytest.mark.parametrize(
    "value", [2.0**-30 + 2.0**-60, 1e300, 2**53 + 1, 2**24 + 1, 2**63 - 1, -(2**31) + 1, 2**64 - 1]
)
def test_what_float32_does_not_hold_is_named_as_on_the_host(there, value):
    dtype = np.float64 if isinstance(value, float) else np.uint64 if value >= 2**63 else np.int64
    x = np.ones((3, 5), dtype)
    x[1, 3] = value
    for given in (x, x.T):
        here, gpu = (said(lambda x=x: operands.float32(x, None)) for x in (given, there(given)))
        assert here == gpu and "float32 does not hold" in here
        same(operands.float32(there(given), "fp32"), operands.float32(given, "fp32"))


@pytest.mark.parametrize("kind", KINDS)
def test_counts_and_bits(there, rng, kind):
    x = dense(rng, 300, 41, kind)
    bits = half.to_bits(x, "bfloat16")
    assert compress.filled(there(x)) == np.count_nonzero(x)
    assert compress.filled(there(bits)) == np.count_nonzero(bits & 0x7FFF)
    assert compress.has_bits(there(x), 0x1FFF) == bool((x.view(np.uint32) & 0x1FFF).any())


# ---------------------------------------------------------------- blocks


@pytest.mark.parametrize(
    ("dtype", "block", "density"),
    [
        *((dtype, 16, 0.3) for dtype in DTYPES),
        ("float16", 16, None),
        ("bfloat16", 64, 0.3),
        ("float32", (32, 128), 1.0),
    ],
)
@pytest.mark.parametrize("kind", KINDS)
def test_blocks_of_a_dense_matrix(there, rng, kind, dtype, block, density):
    for m, k in SIZES:
        x = dense(rng, m, k, kind)
        asked = {"block": block, "dtype": dtype, "density": density}
        right = bcsr.from_dense(x, **asked)
        same(bcsr.from_dense(there(x), **asked), right, f"{m} x {k}")
        same(bcsr.from_dense(there(np.asfortranarray(x)), **asked), right)
        bcsr.validate(right)
        if dtype in half.DTYPES:  # bits are kept as they are
            x = half.from_dense(x, dtype)
            same(bcsr.from_dense(Half(dtype, there(x.bits)), block=block), bcsr.from_dense(x, block=block))


def blocks(rng, m: int, k: int, block, dtype: str) -> bcsr.Bcsr:
    x = dense(rng, m, k, "sparse")
    x[: m // 3] = 0
    return bcsr.from_dense(x, block=block, dtype=dtype)


@pytest.mark.parametrize("repeated", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
def test_blocks_in_any_order_are_put_in_order(there, rng, dtype, repeated):
    for m, k in SIZES:
        a = blocks(rng, m, k, (16, 32), dtype)
        row = bcsr.block_rows_of(a)
        take = rng.integers(0, a.blocks, 2 * a.blocks) if repeated else rng.permutation(a.blocks)
        take = take[np.argsort(row[take], kind="stable")]
        row_ptr = np.searchsorted(row[take], np.arange(a.block_rows + 1)).astype(np.int32)
        mixed = replace(a, row_ptr=row_ptr, col_idx=a.col_idx[take], val=a.val[take])
        right = bcsr.in_order(mixed)
        same(bcsr.in_order(there(mixed)), right)
        if not repeated:
            same(there(right), a)


@pytest.mark.parametrize(
    ("dtype", "block", "longest_first"),
    [
        ("float32", (16, 16), False),
        ("float16", (16, 16), True),
        ("float32", (32, 64), True),
        ("float16", (64, 32), False),
        ("float16", (128, 16), True),
    ],
)
def test_blocks_as_kernels_read_them(there, rng, dtype, block, longest_first):
    for m, k in [*SIZES, (300, 200)]:
        a = blocks(rng, m, k, block, dtype)
        found = family.stacked(there(a), True)[0]
        assert found.block == (max(64, block[0]), block[1])
        same(bcsr.to_csr(found), bcsr.to_csr(a), f"{m} x {k}")
        if block[0] < 64:
            same((found.col_idx, found.val), twins.stacked(a, 64 // block[0]))
        table = twins.ordered_rows(formats.to_host(found.row_ptr), longest_first)
        same(layout.ordered_rows(found.row_ptr, longest_first), table)


# ---------------------------------------------------------------- CSR of every format


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_format_as_csr(there, rng, dtype):
    for m, k in SIZES[::2]:
        for kind in ("sparse", "odd", "nothing"):
            x = dense(rng, m, k, kind)
            a = csr.from_scipy(csr_array(x))
            made = [
                bcsr.from_dense(x, block=(16, 32), dtype=dtype),
                bcsr.from_dense(x, block=(128, 16), dtype=dtype),
                wcsr.from_csr(a, window=16, pad=4, dtype=dtype),
                wcsr.from_csr(a, window=1, pad=1, dtype=dtype),
                nm.compress(x.T, 2, 4, 1, prune=True),
                nm.compress(x.T, 3, 8, 5, prune=True),
            ]
            if dtype != "float32":
                made.append(two_four.compress(x, dtype, prune=True))
            for one in made:
                same(
                    operands.as_csr(there(one)),
                    operands.as_csr(one),
                    f"{type(one).__name__} {m} x {k} {kind}",
                )


# ---------------------------------------------------------------- N:M


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "keep, group, vector",
    [(2, 4, 1), (8, 32, 32), (1, 8, 4), (3, 7, 5), (5, 16, 128), (4, 32, 100), (32, 32, 2), (1, 200, 8), (6, 8, 64)],
)
def test_nm(there, rng, monkeypatch, keep, group, vector, kind):
    monkeypatch.setattr(compress, "_MOST_SCORES", 1000)  # several parts
    for k, n in SIZES:
        x = dense(rng, k, n, kind)
        wide = np.zeros((2 * k, n + 3), np.float32)
        wide[::2, 2:-1] = x
        for given in (x, np.asfortranarray(x), wide[::2, 2:-1]):
            same(
                nm.compress(there(given), keep, group, vector, prune=True),
                nm.compress(x, keep, group, vector, prune=True),
            )


@pytest.mark.parametrize("keep, group, vector", [(2, 4, 1), (3, 8, 3), (8, 32, 32)])
def test_nm_without_pruning_says_what_does_not_fit(there, rng, keep, group, vector):
    for k, n in SIZES:
        x = formats.to_dense(nm.compress(dense(rng, k, n, "full"), keep, group, vector, prune=True))
        same(nm.compress(there(x), keep, group, vector), nm.compress(x, keep, group, vector))
        x[rng.integers(k)] = x[-1] = 1
        here, gpu = (said(lambda x=x: nm.compress(x, keep, group, vector)) for x in (x, there(x)))
        assert here == gpu


PATTERNS = [
    (40, 70, 2, 4, 1),
    (96, 256, 8, 32, 32),
    (100, 300, 4, 32, 64),
    (33, 17, 3, 8, 100),
    (65, 130, 5, 7, 4),
]


@pytest.mark.parametrize("tiled", [False, True])
@pytest.mark.parametrize("pattern", PATTERNS)
def test_nm_in_steps(there, pattern, tiled):
    b = nm.random(*pattern, 1)
    for columns in (16, 64, 128, 256):
        slot = next(s for s in (32, 4, 1) if columns % s == 0 and (b.vector % s == 0 or b.vector >= b.n))
        for windows in (1, 2, 5):
            for more in (0, 3):
                asked = columns, windows, slot, (windows * b.keep + more) if tiled else windows * b.keep, tiled
                same(layout.vector_steps(there(b), *asked), twins.vector_steps(b, *asked))


@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("pattern", PATTERNS)
def test_nm_in_tiles_for_tensor_cores(there, pattern, size):
    b = nm.random(*pattern, 2)
    b.val[:2] = np.nan
    same(layout.vector_tiles(there(b), size), twins.vector_tiles(b, size))


# ---------------------------------------------------------------- 2:4


@pytest.mark.parametrize("m, k", [(1, 1), (64, 64), (65, 200), (130, 16), (300, 1000)])
def test_two_of_four_as_kernels_read_it(there, m, k):
    a = two_four.random(m, k, "bfloat16", 3)
    x = there(a)
    for rows, columns in ((64, 64), (192, 256), (256, 128)):
        same(two_four.swizzle(x.meta, rows, columns), two_four.swizzle(a.meta, rows, columns))
        same(wgmma.ring_metadata(x, rows, columns), wgmma.ring_metadata(a, rows, columns))
    for rows in (64, 256):
        same(wgmma.pack_values(x, rows, columns), wgmma.pack_values(a, rows, columns))
    for config in (MmaSp(), MmaSp(bm=64, bk=128, wm=32)):
        same(mma_sp.convert(x, config), mma_sp.convert(a, config))


# ---------------------------------------------------------------- the compiler
