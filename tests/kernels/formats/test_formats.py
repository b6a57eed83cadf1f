"""What holds of every format: dense and back, CSR and back, the same on either side, and nothing malformed passes."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from refused import said, says

from kernels import formats
from kernels.formats import arrays, bcsr, csr, eight, half, nm, two_four, two_four_eight, wcsr
from kernels.library import operands

#: Of a dense matrix (m, k) of float32 that may be pruned; N:M is a matrix of the other side, so of its transpose.
DENSE = {
    "BCSR of float32": lambda x: bcsr.from_dense(x, block=(16, 32), dtype="float32"),
    "BCSR of bfloat16": lambda x: bcsr.from_dense(x, block=16),
    "N:M": lambda x: nm.compress(x.T, 3, 8, 5, prune=True),
    "1:4": lambda x: nm.compress(x.T, 1, 4, 1, prune=True),
    "2:4 of float16": lambda x: two_four.compress(x, "float16", prune=True),
    "2:4 of bfloat16": lambda x: two_four.compress(x, "bfloat16", prune=True),
    "2:4 of e4m3": lambda x: two_four_eight.compress(x, "e4m3", prune=True, scale="rows"),
    "2:4 of int8": lambda x: two_four_eight.compress(x, "int8", prune=True),
    "float16": lambda x: half.from_dense(x, "float16"),
    "e4m3": lambda x: eight.from_dense(x, "e4m3", "rows"),
    "int8": lambda x: eight.from_dense(x, "int8", "columns"),
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
    x[0, 0] = 1
    return x


def repeated(m: int, k: int, seed: int) -> csr.Csr:
    """Columns in any order, which may repeat, and empty rows; sums are exact in float32."""
    rng = np.random.default_rng(seed)
    counts = rng.integers(0, 5, m) * rng.integers(0, 2, m)
    row_ptr = np.concatenate(([0], np.cumsum(counts))).astype(np.int32)
    col_idx = rng.integers(0, k, row_ptr[-1]).astype(np.int32)
    return csr.Csr(m, k, row_ptr, col_idx, rng.integers(1, 9, row_ptr[-1]).astype(np.float32))


def given_to(name: str, m: int, k: int, seed: int):
    return (dense if name in DENSE else repeated)(m, k, seed)


def equal(one, other) -> None:
    """Of one type, with the same sizes and dtypes, and the same numbers or bit patterns in all arrays."""
    assert type(one) is type(other)
    for name, x in vars(other).items():
        y = getattr(one, name)
        if isinstance(x, np.ndarray):
            assert x.dtype == y.dtype and np.array_equal(x, y, equal_nan=x.dtype.kind == "f"), name
        elif name != "facts":
            assert x == y, name


sizes = st.integers(1, 70), st.integers(1, 70), st.integers(0, 2**32 - 1)


@pytest.mark.parametrize("name", MAKERS)
@given(m=sizes[0], k=sizes[1], seed=sizes[2])
@settings(deadline=None, max_examples=40)
def test_a_matrix_survives_the_way_through_a_dense_one_and_through_csr(name, m, k, seed):
    a = MAKERS[name](given_to(name, m, k, seed))
    assert formats.validate(a) is a and formats.to_host(a) is a
    assert a.nbytes == sum(x.nbytes for x in vars(a).values() if isinstance(x, np.ndarray))
    x = formats.to_dense(a)
    assert x.dtype == np.float32 and x.flags.c_contiguous and x.shape == ((k, m) if isinstance(a, nm.Nm) else (m, k))
    assert formats.is_sparse(a) != hasattr(a, "bits")
    if name in COMPRESSED:
        assert np.array_equal(x, csr.to_dense(given_to(name, m, k, seed)))
    if formats.is_sparse(a) and not isinstance(a, two_four_eight.TwoFourEight):
        back = csr.validate(operands.as_csr(a))
        assert np.array_equal(csr.to_dense(back), x.T if isinstance(a, nm.Nm) else x)
        assert back is a or (back.val != 0).all()
        place = csr.rows(back) * back.k + back.col_idx
        assert back is a or (place[1:] > place[:-1]).all()


@pytest.mark.parametrize("name", [name for name in MAKERS if name not in ("float16", "e4m3", "int8")])
@given(m=sizes[0], k=sizes[1], seed=sizes[2], data=st.data())
@settings(deadline=None, max_examples=40)
def test_a_number_changed_anywhere_is_refused_or_still_a_matrix(name, m, k, seed, data):
    a = MAKERS[name](given_to(name, m, k, seed))
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


@pytest.mark.parametrize("name", MAKERS)
def test_of_another_dtype_or_shape_and_with_gaps_every_array_is_refused(name):
    a = MAKERS[name](given_to(name, 20, 40, 1))
    for at, x in a.arrays.items():
        gaps = np.repeat(x, 2, axis=-1)[..., ::2]
        shorter = [x[:-1].copy()] if formats.is_sparse(a) else []
        for wrong in (x.astype(np.complex64), x[None], *[gaps] * (at != "scale"), *shorter):
            assert said(lambda at=at, wrong=wrong: formats.validate(replace(a, **{at: wrong}))), at


@pytest.mark.parametrize("value", [0, -1, np.nan, np.inf])
@pytest.mark.parametrize("name", ["e4m3", "2:4 of e4m3"])
def test_scales_are_positive_and_finite(name, value):
    a = MAKERS[name](dense(5, 40, 1))
    a.scale[3] = value
    says(["scale", "positive"], lambda: formats.validate(a))


def test_arrays_on_two_sides_are_refused():
    there = SimpleNamespace(__cuda_array_interface__={}, flags=None, device=SimpleNamespace(id=3))
    both = {"col_idx": np.zeros(1), "val": there}
    says(["col_idx on the host", "val on GPU 3"], lambda: arrays.require_one_side("CSR", both))
    arrays.require_one_side("CSR", {"val": there})


@pytest.mark.gpu
@pytest.mark.parametrize("name", MAKERS)
def test_a_gpu_makes_the_same(device, name):
    import cupy

    for m, k in ((1, 1), (16, 32), (77, 130), (300, 64)):
        given = given_to(name, m, k, m)
        here = MAKERS[name](given)
        there = formats.validate(MAKERS[name](cupy.asarray(given) if name in DENSE else formats.to_device(given)))
        assert all(isinstance(x, cupy.ndarray) for x in there.arrays.values())
        equal(formats.to_host(there), here)
        x = formats.to_dense(formats.to_host(there) if isinstance(here, csr.Csr) else there)
        assert np.array_equal(formats.to_host(x), formats.to_dense(here))
        equal(formats.to_host(formats.to_csr(there)), formats.to_csr(here))
        equal(formats.to_host(formats.to_device(here)), here)
        assert formats.to_device(there) is there and there.nbytes == here.nbytes
