"""The room's operands: their bits, their memory order, what a problem counts and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from artifact.measure import check
from kernels import splitmix
from kernels.async_sparse import operands, problem, problem_from_csr
from kernels.formats import bcsr, csr, half
from kernels.formats.half import Half

INT32, FLOAT32 = np.int32, np.float32
DTYPES = operands.DTYPES
#: m, n, k, density, block: whole; one element; ragged; without and with all blocks; 16 x 128.
SIZES = [
    (256, 64, 192, 0.4, 64),
    (1, 1, 1, 1, 64),
    (301, 37, 130, 0.3, 32),
    (64, 8, 64, 0, 16),
    (100, 70, 65, 1, 128),
    (90, 33, 300, 0.5, (16, 128)),
]


def pattern(m: int = 200, k: int = 200, seed: int = 0) -> csr.Csr:
    """About 3% of the entries, in any order and some of them twice."""
    rng = np.random.default_rng(seed)
    row = np.sort(rng.integers(0, m, m * k // 32))
    row_ptr = np.searchsorted(row, np.arange(m + 1)).astype(INT32)
    return csr.Csr(m, k, row_ptr, rng.integers(0, k, row.size).astype(INT32), np.ones(row.size, FLOAT32))


def array_of(x):
    return x.bits if isinstance(x, Half) else x


# --------------------------------------------------------------------------- bits and memory


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("m", "n", "k", "density", "block"), SIZES)
def test_a_problem_counts_what_its_operands_have(m, n, k, density, block, dtype):
    made = problem(m, n, k, density, 7, block=block, dtype=dtype)
    a, b = made.host().a, made.host().b
    bcsr.validate(a)
    b_row, b_col = bcsr.sides(block)
    assert (a.m, a.k, a.block) == (m, k, (b_row, b_col))
    assert a.blocks == round(density * -(-m // b_row) * -(-k // b_col))
    assert made.nnz == a.nnz == bcsr.to_csr(a).nnz
    assert (made.m, made.n, made.k, made.density, made.seed) == (m, n, k, density, 7)
    assert made.useful_flops == 2 * made.nnz * n and made.flops_def == "2·nnz·N"
    size = 4 if dtype == "tf32" else 2
    assert made.least_bytes == a.nbytes + b.nbytes + size * m * n
    assert made.limit == ("tf32" if dtype == "tf32" else "")
    # The source's kernel: 512 columns at once, all rows of B that a block meets.
    tiles = -(-n // 512)
    assert made.requested_bytes == tiles * a.nbytes + size * n * (a.blocks * b_col + m)
    assert tuple(b.shape) == (k, n)
    values = half.to_dense(b) if isinstance(b, Half) else b
    assert (values != 0).all() and np.abs(values).max() <= 1
    if dtype == "tf32":
        assert b.dtype == FLOAT32 and not (np.ascontiguousarray(b).view(np.uint32) & 0x1FFF).any()
    else:
        assert b.dtype == a.dtype == dtype


def test_numbers_come_from_their_position():
    """Element i of B's memory is number i of the third stream, so any part can be made alone."""
    made = problem(64, 300, 500, 1, 3).host().b
    i = np.arange(300 * 500, dtype=np.uint64)
    x = splitmix.symmetric(splitmix.random_u32(splitmix.key(3, 2), i))
    assert np.array_equal(made.bits.T.ravel(), half.to_bits(x, "bfloat16"))
    assert -1 < x.min() < -0.999 and 0.999 < x.max() < 1 and abs(x.mean()) < 0.01
    assert len({splitmix.key(3, stream) for stream in range(3)}) == 3


@pytest.mark.parametrize("layout", operands.LAYOUTS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_memory_order_is_the_layout_s(layout, dtype):
    b = array_of(problem(64, 30, 50, 1, layout=layout, dtype=dtype).host().b)
    assert b.flags.f_contiguous == (layout != "row") and b.flags.c_contiguous == (layout == "row")


def test_seeds_give_other_operands():
    one, two = (problem(256, 20, 256, 0.5, seed).host() for seed in (0, 1))
    assert not np.array_equal(one.a.col_idx, two.a.col_idx)
    assert not np.array_equal(one.a.val, two.a.val)
    assert not np.array_equal(one.b.bits, two.b.bits)


def test_the_label_says_what_is_unusual():
    assert problem(64, 1, 64).label == ""
    assert problem(64, 1, 64, dtype="float16").label == "float16"
    assert problem(64, 1, 64, block=32).label == "blocks of 32"
    assert problem(64, 1, 64, block=(64, 16)).label == "blocks of 64 x 16"
    unusual = problem(64, 1, 64, block=128, layout="linear", dtype="tf32")
    assert unusual.label == "tf32, blocks of 128, linear"
    assert problem_from_csr(pattern(), 3, label="net", layout="row").label == "net"


# --------------------------------------------------------------------------- real matrices


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("reorder", operands.REORDERS)
def test_a_real_pattern_keeps_its_places(dtype, reorder):
    given = pattern()
    made = problem_from_csr(given, 9, 4, "real", block=16, dtype=dtype, reorder=reorder)
    a = bcsr.validate(made.host().a)
    expected = csr.to_dense(given) != 0
    order, ms = operands.reordered(given, reorder)
    assert (ms > 0) == (reorder == "rcm")
    if reorder:
        expected = csr.to_dense(order) != 0
        assert not np.array_equal(expected, csr.to_dense(given) != 0)
    assert np.array_equal(bcsr.to_dense(a) != 0, expected)
    assert made.nnz == a.nnz == expected.sum() and made.density == expected.mean()
    assert made.least_bytes == a.nbytes + made.host().b.nbytes + (200 * 9) * (4 if dtype == "tf32" else 2)
    assert made.seed == 4 and made.useful_flops == 2 * made.nnz * 9


def test_values_follow_rows_and_columns():
    made = operands.with_values(pattern(30, 70), 5, "bfloat16")
    dense = csr.to_dense(made)
    there = dense[dense != 0]
    bits = splitmix.uniform(splitmix.key(5, 1), there.size, "bfloat16")
    assert np.array_equal(there, half.from_bits(bits, "bfloat16"))


def test_a_matrix_that_is_not_square_keeps_its_order():
    given = pattern(50, 90)
    made = problem_from_csr(given, 4)
    assert np.array_equal(bcsr.to_dense(made.host().a) != 0, csr.to_dense(given) != 0)


def test_a_matrix_without_entries_makes_a_problem():
    nothing = csr.Csr(5, 5, np.zeros(6, INT32), np.zeros(0, INT32), np.zeros(0, FLOAT32))
    made = problem_from_csr(nothing, 4)
    assert made.nnz == made.density == made.host().a.blocks == 0
    assert not check.oracle(made, on="cpu").values.any()


# --------------------------------------------------------------------------- the oracle


@pytest.mark.parametrize("layout", operands.LAYOUTS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("few", [0, 10**9])
def test_the_oracle_multiplies_them(monkeypatch, layout, dtype, few):
    """As CSR and as a dense matrix."""
    monkeypatch.setattr(check, "CSR_BELOW", few)
    made = problem(130, 40, 100, 0.4, block=32, dtype=dtype, layout=layout)
    a, b = bcsr.to_dense(made.host().a).astype(float), made.host().b
    b = (half.to_dense(b) if isinstance(b, Half) else b).astype(float)
    np.testing.assert_allclose(check.oracle(made, on="cpu").values, a @ b, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("dtype", half.DTYPES)
def test_an_output_rounded_once_is_right_in_either_order(dtype):
    made = problem(130, 40, 300, 0.5, dtype=dtype, layout="linear")
    reference = check.oracle(made, on="cpu")
    for order in "CF":
        out = Half(dtype, np.array(half.to_bits(reference.values.astype(FLOAT32), dtype), order=order))
        errors = check.compare(out, reference)
        assert 1e-5 < errors.rel_err < (2e-3 if dtype == "bfloat16" else 3e-4)
        out.bits[77, 11] ^= 0x0100
        with pytest.raises(check.WrongResult):
            check.compare(out, reference)
        out.fill(np.nan)
        with pytest.raises(check.WrongResult, match="5200 of 5200"):
            check.compare(out, reference)


# --------------------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"m": 0}, "m is 0"),
        ({"n": 2**31}, "n is 2147483648"),
        ({"k": 1.5}, "k is 1.5"),
        ({"density": 1.1}, "density is 1.1"),
        ({"density": "0.1"}, "density is '0.1'"),
        ({"seed": -1}, "seed is -1"),
        ({"block": 8}, "block is 8"),
        ({"block": (64, 65)}, "65"),
        ({"dtype": "float32"}, "dtype is 'float32'"),
        ({"layout": "column"}, "layout is 'column'"),
        ({"m": 2**31 - 1, "k": 2**31 - 1}, "from 1125899906842624 blocks"),
    ],
)
def test_what_makes_no_problem_gets_one_sentence(changes, word):
    with pytest.raises(ValueError) as error:
        problem(**{"m": 64, "n": 8, "k": 64} | changes)
    assert word in str(error.value) and "\n" not in str(error.value)


def test_what_makes_no_problem_of_a_matrix_gets_one_sentence():
    with pytest.raises(ValueError, match="reorder is 'amd'"):
        problem_from_csr(pattern(), 4, reorder="amd")
    with pytest.raises(ValueError, match="n is 0"):
        problem_from_csr(pattern(), 0)
    with pytest.raises(ValueError, match="k is 0"):
        problem_from_csr(csr.Csr(2, 0, np.zeros(3, INT32), np.zeros(0, INT32), np.zeros(0, FLOAT32)), 4)
    with pytest.raises(ValueError, match="CSR row_ptr"):
        problem_from_csr(csr.Csr(2, 2, np.zeros(2, INT32), np.zeros(0, INT32), np.zeros(0, FLOAT32)), 4)


# --------------------------------------------------------------------------- on a GPU


def agree(made, dtype: str, layout: str) -> None:
    import cupy

    here, there = made.host(), made.device()
    bcsr.validate(there.a)
    assert isinstance(there.a.val, cupy.ndarray)
    for name in ("m", "k", "dtype", "nnz"):
        assert getattr(here.a, name) == getattr(there.a, name)
    for name in ("row_ptr", "col_idx", "val"):
        assert np.array_equal(getattr(here.a, name), getattr(there.a, name).get()), name
    here_b, there_b = array_of(here.b), array_of(there.b)
    assert here_b.dtype == there_b.dtype and np.array_equal(here_b, there_b.get())
    b, c = (x == "F" for x in operands.LAYOUTS[layout])
    assert there_b.flags.f_contiguous or not b
    out = array_of(there.c)
    assert out.shape == (made.m, made.n) and out.dtype == there_b.dtype
    assert out.flags.f_contiguous if c else out.flags.c_contiguous
    assert (there.c.dtype == dtype) if dtype != "tf32" else out.dtype == FLOAT32


@pytest.mark.gpu
@pytest.mark.parametrize("layout", operands.LAYOUTS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("m", "n", "k", "density", "block"), SIZES)
def test_host_and_device_make_the_same_bits(device, m, n, k, density, block, dtype, layout):
    agree(problem(m, n, k, density, 3, block=block, dtype=dtype, layout=layout), dtype, layout)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", DTYPES)
def test_host_and_device_convert_a_real_pattern_alike(device, dtype):
    agree(problem_from_csr(pattern(), 33, 2, "real", block=16, dtype=dtype), dtype, "source")


@pytest.mark.gpu
def test_device_operands_are_made_in_parts_with_the_same_bits(device, monkeypatch):
    made = problem(640, 900, 500, 0.5, 1, layout="linear")
    monkeypatch.setattr(splitmix, "_CACHED", 333)
    agree(made, "bfloat16", "linear")


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("density", [0.002, 0.5])
def test_the_gpu_s_oracle_agrees_with_the_cpu_s(device, monkeypatch, dtype, density):
    """As CSR at the lower density, dense at the other; both without SciPy's small case."""
    made = problem(2000, 40, 700, density, block=16, dtype=dtype, layout="linear")
    exact = check.oracle(made, on="cpu").values
    monkeypatch.setattr(check, "CPU_WORK", 0)
    monkeypatch.setattr(check, "PANEL_ELEMENTS", 20000)
    found = check.oracle(made, on="gpu").values
    np.testing.assert_allclose(found.get(), exact, rtol=1e-12, atol=1e-11)


@pytest.mark.gpu
@pytest.mark.alone
def test_the_largest_b_is_made_in_a_moment(device):
    """65536 columns of gate_proj's input, after CuPy has compiled what it needs."""
    import time

    import cupy

    for columns in (64, 65536):
        begin = time.perf_counter()
        operands.dense(cupy, 3584, columns, 0, "bfloat16", "F")
        cupy.cuda.get_current_stream().synchronize()
        took = time.perf_counter() - begin
    assert took < 1
