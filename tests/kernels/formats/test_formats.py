"""What holds of every format: dense and back, CSR and back, the same on either side, and nothing malformed passes."""

import re
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from alike import alike
from hypothesis import given, settings, strategies as st
from refused import said, says
from scipy.sparse import csr_array

from kernels import formats
from kernels.formats import bcsr, csr, half, nm, two_four, wcsr
from kernels.library import operands

#: Of a dense matrix (m, k) of float32 that may be pruned; N:M is a matrix of the other side, so of its transpose.
DENSE = {
    "BCSR of float32": lambda x: bcsr.from_dense(x, block=(16, 32), dtype="float32"),
    "BCSR of bfloat16": lambda x: bcsr.from_dense(x, block=16),
    "N:M": lambda x: nm.compress(x.T, 3, 8, 5, prune=True),
    "1:4": lambda x: nm.compress(x.T, 1, 4, 1, prune=True),
    "2:4 of float16": lambda x: two_four.compress(x, "float16", prune=True),
    "2:4 of bfloat16": lambda x: two_four.compress(x, "bfloat16", prune=True),
    "2:4 of e4m3": lambda x: two_four.compress(x, "e4m3", prune=True, scale="rows"),
    "2:4 of int8": lambda x: two_four.compress(x, "int8", prune=True),
    "float16": lambda x: half.from_dense(x, "float16"),
    "e4m3": lambda x: half.from_dense(x, "e4m3", "rows"),
    "int8": lambda x: half.from_dense(x, "int8", "columns"),
}
#: Of a `Csr`.
COMPRESSED = {
    "CSR": lambda a: a,
    "BCSR": lambda a: bcsr.from_csr(a, block=(16, 32), dtype="float32"),
    "BCSR of float16": lambda a: bcsr.from_csr(a, block=32, dtype="float16"),
    "WCSR": lambda a: wcsr.from_csr(a, window=8, pad=4, dtype="float32"),
    "WCSR of bfloat16": lambda a: wcsr.from_csr(a, window=64, pad=8),
}
MAKERS = DENSE | COMPRESSED


def dense(m: int, k: int, seed: int) -> np.ndarray:
    """Few non-zeros, some alike, some -0."""
    rng = np.random.default_rng(seed)
    x = np.round(rng.standard_normal((m, k)), 1).astype(np.float32)
    x[rng.random(x.shape) < rng.choice([0.3, 0.95])] *= -0.0
    x[:1, :1] = 1
    return x


def repeated(m: int, k: int, seed: int) -> csr.Csr:
    """Columns in any order, which may repeat, and empty rows; sums are exact in float32, not in 16 bits."""
    rng = np.random.default_rng(seed)
    counts = rng.integers(0, 5, m) * rng.integers(0, 2, m) * (k > 0)
    row_ptr = np.concatenate(([0], np.cumsum(counts))).astype(np.int32)
    col_idx = rng.integers(0, max(1, k), row_ptr[-1]).astype(np.int32)
    return csr.Csr(m, k, row_ptr, col_idx, rng.integers(1, 60000, row_ptr[-1]).astype(np.float32) / 4)


def given_to(name: str, m: int, k: int, seed: int):
    return (dense if name in DENSE else repeated)(m, k, seed)


sizes = st.tuples(st.integers(1, 70), st.integers(1, 70), st.integers(0, 2**32 - 1))
each = pytest.mark.parametrize("name", MAKERS)
each_sparse = pytest.mark.parametrize("name", [name for name in MAKERS if name not in ("float16", "e4m3", "int8")])


@each
@given(given_=sizes)
@settings(deadline=None, max_examples=40)
def test_a_matrix_survives_the_way_through_a_dense_one_and_through_csr(name, given_):
    m, k, _ = given_
    source = given_to(name, *given_)
    a = MAKERS[name](source)
    assert formats.validate(a) is a and formats.to_host(a) is a
    assert a.nbytes == sum(x.nbytes for x in vars(a).values() if isinstance(x, np.ndarray))
    x = formats.to_dense(a)
    assert x.dtype == np.float32 and x.flags.c_contiguous and x.shape == ((k, m) if isinstance(a, nm.Nm) else (m, k))
    assert formats.is_sparse(a) != hasattr(a, "bits")
    whole, dtype = csr.to_dense(source) if name in COMPRESSED else source, getattr(a, "dtype", "float32")
    if name in COMPRESSED or "BCSR" in name or name == "float16":  # rounded once, and nothing pruned
        assert np.array_equal(x, half.from_bits(half.to_bits(whole, dtype), dtype))
    if formats.is_sparse(a) and not isinstance(a, two_four.TwoFourEight):
        back = csr.validate(operands.as_csr(a))
        assert np.array_equal(csr.to_dense(back), x.T if isinstance(a, nm.Nm) else x)
        place = csr.rows(back) * back.k + back.col_idx
        assert back is a or ((back.val != 0).all() and (place[1:] > place[:-1]).all())


@pytest.mark.parametrize(("m", "k"), [(0, 0), (0, 7), (7, 0), (33, 40)])
@pytest.mark.parametrize("name", [*COMPRESSED, "BCSR of float32", "BCSR of bfloat16"])
def test_a_matrix_may_have_no_rows_no_columns_and_no_non_zeros(name, m, k):
    nothing = csr.Csr(m, k, np.zeros(m + 1, np.int32), np.zeros(0, np.int32), np.zeros(0, np.float32))
    a = formats.validate(MAKERS[name](nothing if name in COMPRESSED else csr.to_dense(nothing)))
    assert a.nnz == a.val.size == getattr(a, "fill_ratio", 0) == csr.validate(formats.to_csr(a)).nnz == 0
    assert np.array_equal(formats.to_dense(a), np.zeros((m, k)))


@each_sparse
@given(given_=sizes, data=st.data())
@settings(deadline=None, max_examples=40)
def test_a_number_changed_anywhere_is_refused_or_still_a_matrix(name, given_, data):
    a = MAKERS[name](given_to(name, *given_))
    index = [x for x in ("row_ptr", "col_idx", "meta", "index") if getattr(a, x, np.zeros(0)).size]
    at = data.draw(st.sampled_from(index))
    x = getattr(a, at).copy()
    most = np.iinfo(x.dtype)
    value = data.draw(st.integers(int(most.min), int(most.max)) | st.integers(-2 if most.min else 0, 80))
    x.reshape(-1)[data.draw(st.integers(0, x.size - 1))] = value
    changed = replace(a, **{at: x})
    message = said(lambda: formats.validate(changed))
    assert "\n" not in message and ". " not in message
    if not message:  # what is read through indices lies within the matrix
        assert formats.to_dense(changed).shape == formats.to_dense(a).shape


@pytest.mark.parametrize("name", [name for name in MAKERS if name[0] in "CBWN1" or name == "2:4 of float16"])
def test_a_gpu_finds_the_hosts_first_fault(there, name):
    """Of up to two numbers that are changed."""
    found = set()
    values = {"i": [-1, 0, 1, 2, 3, 8, 16, 1000, 2**31 - 1, -(2**31)], "u": [0, 0x4444, 0x8000, 0xFFFF, 0x1234]}
    for seed in range(60):
        rng = np.random.default_rng(seed)
        a = MAKERS[name](given_to(name, *map(int, rng.integers(1, 90, 2)), seed))
        at = rng.choice([x for x, array in a.arrays.items() if array.size])
        x = getattr(a, at).copy()
        x.reshape(-1)[rng.integers(x.size, size=rng.integers(1, 3))] = rng.choice(values.get(x.dtype.kind, [1, -0.0]))
        wrong = replace(a, **{at: x})
        message = said(lambda wrong=wrong: formats.validate(wrong))
        assert said(lambda wrong=wrong: formats.validate(there(wrong))) == message, seed
        found.add(re.sub(r"[\d-]", "", message))
    assert "" in found and len(found) > 1 + (name != "1:4")


# ------------------------------------------------------------------------------- what is refused


def scattered(m: int, k: int, *entries: tuple[int, int]) -> csr.Csr:
    x = np.zeros((m, k), np.float32)
    x[tuple(zip(*entries, strict=True))] = range(1, len(entries) + 1)
    return csr.from_scipy(csr_array(x))


PTR, INT32, FLOAT32 = np.array([0, 2, 2, 5], np.int32), np.int32, np.float32
#: Small ones: rows, windows and blocks of rows are empty in the middle, and edges are ragged.
GOOD = {
    "CSR": csr.Csr(3, 4, PTR, np.array([3, 0, 2, 2, 1], INT32), np.array([1, 2, 4, 1, 7], FLOAT32)),
    "BCSR": bcsr.from_csr(scattered(40, 37, (0, 0), (3, 36), (39, 20)), block=16, dtype="float32"),
    "WCSR": wcsr.from_csr(scattered(20, 30, (0, 4), (7, 29), (3, 4), (19, 0)), window=8, dtype="float32"),
    "N:M": nm.compress(np.arange(1.0, 19).reshape(9, 2), 2, 4, 1, prune=True),  # rows 2 3 6 7 8 (8)
    "2:4": two_four.random(2, 18, "bfloat16", 0),
    "8-bit 2:4": two_four.compress(dense(6, 36, 1), "e4m3", prune=True),
    "float16": half.from_dense(dense(4, 3, 1), "float16"),
    "e4m3": half.from_dense(dense(9, 13, 1), "e4m3"),
}
#: Format, what is changed, fields or (array, place, value), and words of the sentence.
MALFORMED = [
    *(
        ("CSR", {size: x}, [f"size {size} is {x!r}"])
        for size in "mk"
        for x in (float("nan"), 3.0, "4", None, -1, 2**31)
    ),
    ("CSR", {"row_ptr": PTR.astype(np.int64)}, ["row_ptr", "int64", "int32"]),
    ("CSR", {"val": np.ones((1, 5), FLOAT32)}, ["val", "2-dimensional"]),
    ("CSR", {"col_idx": np.zeros(10, INT32)[::2]}, ["col_idx", "contiguous", "copy it"]),
    ("CSR", {"row_ptr": PTR[:3]}, ["row_ptr", "3 entries", "m = 3", "4"]),
    ("CSR", {"col_idx": np.zeros(4, INT32)}, ["4 column indices", "5 values"]),
    ("CSR", ("row_ptr", 3, 4), ["ends at 4", "5 column"]),
    ("CSR", ("row_ptr", 0, -1), ["row_ptr", "starts at -1"]),
    ("CSR", ("row_ptr", 1, 3), ["row_ptr", "from 3 to 2", "row 1"]),
    ("CSR", ("row_ptr", 1, -1), ["row_ptr", "from 0 to -1", "row 0"]),
    ("CSR", ("row_ptr", 2, 9), ["row_ptr", "from 9 to 5", "row 2"]),
    ("CSR", ("col_idx", 3, 4), ["col_idx[3] is 4", "columns 0 to 3"]),
    ("CSR", {"k": 3}, ["col_idx[0] is 3", "columns 0 to 2"]),
    ("BCSR", {"dtype": "float64"}, ["float64", "bfloat16"]),
    ("BCSR", {"k": 2**31}, ["size k is 2147483648"]),
    ("BCSR", {"val": np.zeros((3, 16, 16), np.uint16)}, ["val", "uint16", "float32"]),
    ("BCSR", {"val": np.zeros((3, 8, 16), FLOAT32)}, ["(8, 16)", "16, 32"]),
    ("BCSR", {"row_ptr": np.array([0, 2, 3], INT32)}, ["row_ptr", "3 entries", "4"]),
    ("BCSR", ("row_ptr", 0, 1), ["starts at 1"]),
    ("BCSR", ("row_ptr", 2, 1), ["falls from 2 to 1", "row 1"]),
    ("BCSR", ("row_ptr", 3, 2), ["ends at 2", "3 blocks"]),
    ("BCSR", ("col_idx", 1, 3), ["col_idx[1] is 3", "0 to 2"]),
    ("BCSR", ("col_idx", 0, 2), ["from 2 to 2", "block 1", "ascend"]),
    ("BCSR", ("val", (2, 8, 0), 1), ["below row 39"]),
    ("BCSR", ("val", (1, 0, 5), 1), ["beyond column 36"]),
    ("BCSR", {"nnz": -1}, ["nnz", "-1"]),
    ("BCSR", {"nnz": 769}, ["nnz", "768"]),
    ("WCSR", {"window": 12}, ["window", "12"]),
    ("WCSR", {"pad": 3}, ["padding", "3"]),
    ("WCSR", {"m": 30}, ["row_ptr", "4 entries", "5"]),
    ("WCSR", {"val": np.zeros((16, 16), FLOAT32)}, ["(16, 16)", "8 rows"]),
    ("WCSR", ("row_ptr", 0, 8), ["starts at 8"]),
    ("WCSR", ("row_ptr", 3, 8), ["ends at 8"]),
    ("WCSR", ("row_ptr", 1, 4), ["row_ptr[1] is 4", "multiple"]),
    ("WCSR", ("col_idx", 1, -2), ["col_idx[1] is -2", "0 to 29"]),
    ("WCSR", ("col_idx", 1, 4), ["from 4 to 4", "column 1", "ascend"]),
    ("WCSR", ("col_idx", 0, -1), ["from -1 to 29", "padding last"]),
    ("WCSR", ("col_idx", 1, -1), ["non-zero", "padding"]),
    ("WCSR", ("val", (4, 8), 1), ["below row 19"]),
    ("N:M", {"val": np.ones((6, 2))}, ["val", "float64", "float32"]),
    ("N:M", {"vector": 2}, ["index", "(6, 2)", "(6, 1)", "vectors of 2"]),
    ("N:M", {"k": 8}, ["val", "(6, 2)", "(4, 2)", "k = 8"]),
    ("N:M", {"keep": 5}, ["keep is 5", "1 to 4"]),
    ("N:M", ("index", (2, 0), 3), ["index[2, 0]", "is 3", "rows 4 to 7", "group 1"]),
    ("N:M", ("index", (4, 1), 9), ["index[4, 1]", "is 9", "rows 8 to 8", "group 2"]),
    ("N:M", ("index", (2, 0), 7), ["from 7 to 7", "[3, 0]", "ascend", "group 1"]),
    ("N:M", ("index", (5, 1), 7), ["index[5, 1]", "is 7"]),
    ("N:M", ("val", (5, 0), np.nan), ["val[5, 0]", "is nan", "surplus", "must be 0"]),
    ("2:4", {"val": np.zeros((2, 8), np.uint16)}, ["val", "(2, 8)", "(2, 16)", "k = 18"]),
    ("2:4", {"m": 0}, ["m is 0"]),
    ("2:4", {"dtype": "float32"}, ["float32", "bfloat16"]),
    ("2:4", ("meta", (1, 1), 0x4044), ["indices 0 and 0", "row 1, group 6", "differ"]),
    ("2:4", ("meta", (0, 1), 0x4441), ["indices 1 and 0", "row 0, group 4", "smaller"]),
    ("2:4", ("val", (1, 15), 1), ["row 1, column 29", "columns 18 to 31", "padding"]),
    ("2:4", ("meta", (0, 1), 0x4448), ["row 0, column 18", "padding"]),
    ("8-bit 2:4", ("meta", (2, 1), 0x4454), ["indices 1 and 1", "row 2, group 5"]),
    ("8-bit 2:4", ("val", (3, 18), 7), ["row 3, column 36", "36 to 63"]),
    ("8-bit 2:4", {"scale": np.ones((5, 1), FLOAT32)}, ["scale is float32 (5, 1)", "(6, 1)"]),
    ("float16", {"bits": np.zeros((2, 2), np.int16)}, ["int16", "uint16"]),
    ("float16", {"bits": np.zeros((4, 3), np.uint16, order="F")}, ["row-major"]),
    ("e4m3", {"dtype": "e5m2"}, ["'e5m2'", "e4m3, int8"]),
    ("e4m3", {"scale": np.ones((9, 13), FLOAT32)}, ["(9, 13)", "(9, 1)", "(1, 13)"]),
    ("e4m3", {"scale": np.ones((9, 1))}, ["float64"]),
    *(("e4m3", ("scale", (0, 0), x), ["scale", "positive"]) for x in (0, -1, np.nan, np.inf)),
]


@pytest.mark.parametrize(("name", "change", "words"), MALFORMED)
def test_a_malformed_matrix_gets_one_sentence(there, name, change, words):
    a, sides = formats.validate(GOOD[name]), [lambda x: x]
    if isinstance(change, tuple):
        at, place, value = change
        change = {at: getattr(a, at).copy()}
        change[at][place] = value
        sides += [there] * (name in ("CSR", "BCSR", "WCSR", "N:M", "2:4"))
    for side in sides:
        says(words, lambda side=side: formats.validate(side(replace(a, **change))))


@each
def test_of_another_dtype_or_shape_and_with_gaps_every_array_is_refused(name):
    a = MAKERS[name](given_to(name, 20, 40, 1))
    for at, x in a.arrays.items():
        gaps = np.repeat(x, 2, axis=-1)[..., ::2]
        shorter = [x[:-1].copy()] if formats.is_sparse(a) else []
        for wrong in (x.astype(np.complex64), x[None], *[gaps] * (at != "scale"), *shorter, None, [1]):
            assert said(lambda at=at, wrong=wrong: formats.validate(replace(a, **{at: wrong}))), at


def test_arrays_on_two_sides_are_refused():
    there = SimpleNamespace(__cuda_array_interface__={}, flags=None, device=SimpleNamespace(id=3))
    says(["col_idx on the host", "val on GPU 3"], lambda: csr.validate(replace(GOOD["CSR"], val=there)))


@pytest.mark.gpu
@each
def test_a_gpu_makes_the_same(device, name):
    import cupy

    for m, k in ((1, 1), (16, 32), (77, 130), (300, 64)):
        given = given_to(name, m, k, m)
        here = MAKERS[name](given)
        there = formats.validate(MAKERS[name](cupy.asarray(given) if name in DENSE else formats.to_device(given)))
        assert all(isinstance(x, cupy.ndarray) for x in there.arrays.values())
        alike(formats.to_host(there), here)
        x = formats.to_dense(formats.to_host(there) if isinstance(here, csr.Csr) else there)
        assert np.array_equal(formats.to_host(x), formats.to_dense(here))
        alike(formats.to_host(formats.to_csr(there)), formats.to_csr(here))
        alike(formats.to_host(formats.to_device(here)), here)
        assert formats.to_device(there) is there and there.nbytes == here.nbytes
