"""The offline preprocessing: what a kernel reads stands for B, and packing stages the fewest rows."""

import math

import numpy as np
import pytest
import twins
from hypothesis import given, settings, strategies as st

from kernels.formats import nm
from kernels.nm_spmm import packing
from kernels.nm_spmm.packing import convert

ARRAYS = ("val", "index", "col_info", "count")


@st.composite
def cases(draw):
    """(matrix, keyword arguments of `prepare`): vectors wider and narrower than a block, slots from a column to a
    block, ragged k and n."""
    group = draw(st.sampled_from((2, 3, 4, 8, 32)))
    keep, slot = draw(st.integers(1, group)), draw(st.sampled_from((1, 2, 3, 4, 8, 32)))
    vector, n = slot * draw(st.integers(1, 6)), draw(st.integers(1, 200))
    b = nm.random(draw(st.integers(1, 100)), n, keep, group, vector if draw(st.booleans()) else n + vector, 1)
    columns, windows = slot * draw(st.integers(1, 5)), draw(st.integers(1, 4))
    return b, {"columns": columns, "windows": windows, "slot": slot}


def dense(x: packing.Packed, k: int) -> np.ndarray:
    """B with its padding, (k, blocks * columns), as a kernel would read it."""
    made = np.zeros((k, x.blocks * x.columns), np.float32)
    for block, step in np.ndindex(x.blocks, x.steps):
        first = block * x.columns
        rows = slice(step * x.rows, (step + 1) * x.rows)
        val = x.val[block, step] if x.val.ndim == 4 else x.val[rows, first : first + x.columns]
        staged = step * x.depth + np.arange(x.depth)
        if x.packed:
            staged = x.col_info[block, step, : x.count[block, step]]
        for column in range(x.columns):
            # IndexError for a position that is not staged, and for a value beside the matrix.
            row = staged[x.index[block, step, column // x.slot]]
            real = val[:, column] != 0
            np.add.at(made[:, first + column], row[real], val[real, column])
    return made


@settings(deadline=None, max_examples=60)
@given(case=cases(), packed=st.booleans(), tiled=st.booleans(), chunk=st.sampled_from((1, 3000, 1 << 25)))
def test_what_a_kernel_reads_is_the_matrix_and_no_row_more_than_it_needs(case, packed, tiled, chunk):
    """Whatever part is worked on at a time. Surplus rows too are indexed rightly; padding's index is 0."""
    b, shape = case
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packing, "_CHUNK", chunk)
        x = convert(b, packed=packed, tiled=tiled, **shape)
    columns, windows, slot = shape["columns"], shape["windows"], shape["slot"]
    assert (x.rows, x.depth, x.columns, x.slot) == (windows * b.keep, windows * b.group, columns, slot)
    assert (x.steps, x.blocks) == (math.ceil(b.k / x.depth), math.ceil(b.n / columns))
    assert (x.packed, x.val.ndim) == (packed, 4 if tiled else 2)
    assert all(getattr(x, name).flags.c_contiguous for name in ARRAYS[: 4 if packed else 2])
    assert {getattr(x, name).dtype for name in ARRAYS[1 : 4 if packed else 2]} == {np.dtype(np.int32)}
    made = dense(x, b.k)
    assert np.array_equal(made[:, : b.n], nm.to_dense(b)) and not made[:, b.n :].any()
    assert np.count_nonzero(x.val) == np.count_nonzero(b.val), "every value once"
    assert x.col_info_bytes == sum(getattr(x, name).nbytes for name in ARRAYS[2:] if packed)
    whole = (x.steps * x.rows, x.blocks * columns) == b.val.shape
    assert (x.val is b.val) == (whole and not tiled)
    for block, step in np.ndindex(x.blocks, x.steps):
        vectors = sorted({j // b.vector for j in range(block * columns, min((block + 1) * columns, b.n))})
        named = sorted(set(b.index[step * x.rows : (step + 1) * x.rows, vectors].ravel().tolist()))
        if packed:
            assert x.col_info[block, step].tolist() == named + [-1] * (x.depth - len(named))
            assert x.count[block, step] == len(named)
        for s, i in np.ndindex(columns // slot, x.rows):
            column, row, position = block * columns + s * slot, step * x.rows + i, x.index[block, step, s, i]
            if column >= b.n or row >= b.w:
                assert position == 0
            else:
                absolute = x.col_info[block, step, position] if packed else step * x.depth + position
                assert absolute == b.index[row, column // b.vector]


# ------------------------------------------------------------------------------- for tensor cores


def tiles_dense(start, index, values, k: int, size: int) -> np.ndarray:
    """B with its padding, (k, tiles * 128): a value for every place of a line, as wgmma reads it."""
    depth = index.shape[1]
    made, place = np.zeros((k, (len(start) - 1) * 128), np.float32), np.arange(depth)
    values = (values.astype(np.uint32) << 16).view(np.float32) if size == 2 else values
    for tile in range(len(start) - 1):
        for step, column in np.ndindex(int(start[tile + 1] - start[tile]), 128):
            at = (place * size // 16 ^ column % 8) * (16 // size) + place % (16 // size)
            step += start[tile]
            np.add.at(made[:, tile * 128 + column], index[step], values[step, column, at])
    return made


@settings(deadline=None, max_examples=40)
@given(case=cases(), size=st.sampled_from((2, 4)))
def test_tiles_stand_for_b_and_multiply_the_rows_that_they_need_and_no_other(case, size):
    """Of NumPy's, against which a GPU's are held."""
    b, _ = case
    b.val[:] = np.sign(b.val)  # which both dtypes hold
    start, index, values = twins.vector_tiles(b, size)
    depth = 128 // size
    assert start.shape == (math.ceil(b.n / 128) + 1,) and start[0] == 0 and start[-1] == len(index)
    assert start.dtype == index.dtype == np.int32 and values.shape == (len(index), 128, depth)
    made, real = tiles_dense(start, index, values, b.k, size), nm.to_dense(b)
    assert np.array_equal(made[:, : b.n], real) and not made[:, b.n :].any()
    for tile in range(len(start) - 1):
        rows = index[start[tile] : start[tile + 1]].ravel()
        vectors = sorted({j // b.vector for j in range(tile * 128, min((tile + 1) * 128, b.n))})
        needed = sorted(set(b.index[: b.real, vectors].ravel().tolist()))
        assert rows[: len(needed)].tolist() == needed
        assert len(rows) - len(needed) < depth and (rows[len(needed) :] == needed[-1]).all()


# --------------------------------------------------------------------------- on a GPU


@pytest.mark.gpu
@pytest.mark.parametrize("tiled", [False, True])
@pytest.mark.parametrize("packed", [False, True])
@settings(deadline=None, max_examples=20)
@given(case=cases())
def test_the_gpu_prepares_the_same(device, packed, tiled, case):
    b, shape = case
    here = convert(b, packed=packed, tiled=tiled, **shape)
    there = convert(nm.to_device(b), packed=packed, tiled=tiled, **shape)
    for name in ARRAYS[: 4 if packed else 2]:
        assert np.array_equal(getattr(there, name).get(), getattr(here, name)), name
