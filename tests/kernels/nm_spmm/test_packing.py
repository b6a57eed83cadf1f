"""The offline preprocessing: what a kernel reads stands for B, and packing stages the fewest rows."""

from __future__ import annotations

import math
from dataclasses import fields

import numpy as np
import pytest

from kernels.formats import nm
from kernels.nm_spmm import packing
from kernels.nm_spmm.packing import prepare

#: k, n, keep, group, vector, columns, windows, slot: the paper's patterns and blocks, every M and
#: L, vectors wider and narrower than a block, slots from a column to a block, ragged k and n.
CASES = [
    (256, 128, 16, 32, 32, 64, 1, 32),
    (256, 256, 4, 32, 32, 128, 4, 32),
    (96, 64, 32, 32, 32, 32, 1, 8),
    (100, 70, 12, 32, 32, 32, 1, 4),
    (130, 130, 8, 32, 32, 128, 2, 32),
    (37, 33, 20, 32, 32, 64, 1, 32),
    (33, 97, 4, 32, 4, 64, 1, 4),
    (64, 90, 16, 32, 8, 32, 2, 8),
    (64, 90, 16, 32, 8, 32, 2, 2),
    (70, 100, 8, 16, 16, 64, 2, 16),
    (70, 100, 2, 16, 16, 32, 4, 1),
    (50, 80, 8, 16, 64, 32, 1, 32),
    (41, 300, 4, 8, 128, 64, 4, 64),
    (41, 300, 1, 8, 64, 128, 2, 32),
    (24, 60, 8, 8, 4, 32, 1, 4),
    (31, 200, 2, 4, 32, 64, 4, 32),
    (31, 200, 1, 4, 8, 64, 2, 4),
    (7, 9, 4, 4, 4, 8, 1, 2),
    (40, 45, 4, 8, 64, 32, 2, 16),
    (1, 1, 1, 4, 32, 32, 1, 32),
    (65, 100, 3, 32, 128, 96, 1, 8),
    (20, 50, 2, 4, 48, 32, 1, 16),
    (20, 50, 2, 4, 6, 9, 3, 3),
    (10, 7, 1, 2, 1, 4, 2, 1),
]
MODES = [(packed, tiled) for packed in (False, True) for tiled in (False, True)]
ARRAYS = ("val", "index", "col_info", "count")


def matrix(case) -> nm.Nm:
    k, n, keep, group, vector = case[:5]
    return nm.random(k, n, keep, group, vector, 1)


def prepared(case, packed: bool, tiled: bool = False, b: nm.Nm | None = None) -> packing.Packed:
    columns, windows, slot = case[5:]
    b = matrix(case) if b is None else b
    return prepare(b, columns, windows, packed=packed, slot=slot, tiled=tiled)


def dense(x: packing.Packed, k: int) -> np.ndarray:
    """B with its padding, (k, blocks * columns), as a kernel would read it."""
    made = np.zeros((k, x.blocks * x.columns), np.float32)
    for block, step in np.ndindex(x.blocks, x.steps):
        first = block * x.columns
        if x.tiled:
            val = x.val[block, step]
        else:
            val = x.val[step * x.rows : (step + 1) * x.rows, first : first + x.columns]
        staged = step * x.depth + np.arange(x.depth)
        if x.packed:
            staged = x.col_info[block, step, : x.count[block, step]]
        for column in range(x.columns):
            # IndexError for a position that is not staged, and for a value beside the matrix.
            row = staged[x.index[block, step, column // x.slot]]
            real = val[:, column] != 0
            np.add.at(made[:, first + column], row[real], val[real, column])
    return made


def needed(b: nm.Nm, columns: int, depth: int) -> list[list[list[int]]]:
    """The rows of A^T that the columns of each block need in each step, ascending, one by one."""
    rows = depth // b.group * b.keep
    found = []
    for left in range(0, b.n, columns):
        vectors = sorted({j // b.vector for j in range(left, min(left + columns, b.n))})
        steps = range(0, b.w, rows)
        found.append([sorted(set(b.index[i : i + rows, vectors].ravel().tolist())) for i in steps])
    return found


@pytest.mark.parametrize(("packed", "tiled"), MODES)
@pytest.mark.parametrize("case", CASES)
def test_what_a_kernel_reads_is_the_matrix(case, packed, tiled):
    k, n, keep, group, vector, columns, windows, slot = case
    b = matrix(case)
    x = prepared(case, packed, tiled, b)
    assert (x.rows, x.depth, x.columns, x.slot) == (windows * keep, windows * group, columns, slot)
    assert (x.steps, x.blocks) == (math.ceil(k / x.depth), math.ceil(n / columns))
    assert (x.packed, x.tiled) == (packed, tiled)
    shape = (x.steps * x.rows, x.blocks * columns)
    if tiled:
        shape = (x.blocks, x.steps, x.rows, columns)
    assert x.val.dtype == np.float32 and x.val.shape == shape
    assert x.index.dtype == np.int32
    assert x.index.shape == (x.blocks, x.steps, columns // slot, x.rows)
    assert 0 <= x.index.min() and x.index.max() < x.depth
    assert all(getattr(x, name).flags.c_contiguous for name in ARRAYS[: 4 if packed else 2])
    made = dense(x, k)
    assert np.array_equal(made[:, :n], nm.to_dense(b)) and not made[:, n:].any()
    # Every value once: explicit ones of the format and zeros of the padding.
    assert np.count_nonzero(x.val) == np.count_nonzero(b.val)


@pytest.mark.parametrize("case", CASES)
def test_packing_stages_exactly_the_rows_that_are_needed(case):
    b = matrix(case)
    x = prepared(case, True)
    assert x.col_info.dtype == x.count.dtype == np.int32
    assert x.col_info.shape == (x.blocks, x.steps, x.depth)
    assert x.count.shape == (x.blocks, x.steps) and x.count.min() >= 1
    for block, steps in enumerate(needed(b, x.columns, x.depth)):
        assert len(steps) == x.steps
        for step, rows in enumerate(steps):
            assert x.count[block, step] == len(rows)
            assert x.col_info[block, step].tolist() == rows + [-1] * (x.depth - len(rows))


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_every_entry_of_the_index_is_the_one_of_its_column(case, packed):
    """Surplus rows too, whose value of 0 hides a wrong one above, and zeros where B is padding."""
    b = matrix(case)
    x = prepared(case, packed)
    for block, step, slot, i in np.ndindex(x.index.shape):
        column, row = block * x.columns + slot * x.slot, step * x.rows + i
        position = x.index[block, step, slot, i]
        if column >= b.n or row >= b.w:
            assert position == 0
            continue
        absolute = x.col_info[block, step, position] if packed else step * x.depth + position
        assert absolute == b.index[row, column // b.vector]


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_tiles_are_the_same_values_side_by_side(case, packed):
    plain, tiled = prepared(case, packed), prepared(case, packed, tiled=True)
    for block, step in np.ndindex(plain.blocks, plain.steps):
        rows = slice(step * plain.rows, (step + 1) * plain.rows)
        columns = slice(block * plain.columns, (block + 1) * plain.columns)
        assert np.array_equal(tiled.val[block, step], plain.val[rows, columns])
    for name in ARRAYS[1:]:
        assert np.array_equal(getattr(plain, name), getattr(tiled, name))


@pytest.mark.parametrize("chunk", [1, 3000, 20000])
@pytest.mark.parametrize("case", CASES)
def test_chunks_leave_no_seam(monkeypatch, case, chunk):
    whole = prepared(case, True, tiled=True)
    monkeypatch.setattr(packing, "_CHUNK", chunk)
    parts = prepared(case, True, tiled=True)
    assert all(np.array_equal(getattr(whole, name), getattr(parts, name)) for name in ARRAYS)


@pytest.mark.parametrize("slot", [1, 2, 4, 8, 16, 32])
def test_a_slot_repeats_the_entries_of_its_vector(slot):
    b = nm.random(70, 200, 8, 32, 32, 0)
    one = prepare(b, 64, 2, packed=True, slot=32)
    other = prepare(b, 64, 2, packed=True, slot=slot)
    times = 32 // slot
    repeated = np.repeat(one.index, times, axis=2)
    repeated[-1, :, math.ceil((200 - 3 * 64) / slot) :] = 0  # of 64 columns, 8 are there
    assert np.array_equal(other.index, repeated)
    assert other.index_bytes == times * one.index_bytes
    assert np.array_equal(other.col_info, one.col_info)


def test_the_diagram_of_the_module():
    index = np.array([[0, 0], [2, 3], [4, 4], [5, 5]], np.int32)
    val = np.arange(1, 17, dtype=np.float32).reshape(4, 4)
    x = prepare(nm.Nm(8, 4, 2, 4, 2, val, index), 4, 2, packed=True, slot=2)
    assert x.col_info.tolist() == [[[0, 2, 3, 4, 5, -1, -1, -1]]] and x.count.tolist() == [[5]]
    assert x.index.tolist() == [[[[0, 1, 3, 4], [0, 2, 3, 4]]]]
    plain = prepare(nm.Nm(8, 4, 2, 4, 2, val, index), 4, 2, packed=False, slot=2)
    assert plain.index[0, 0].T.tolist() == index.tolist()


def test_at_12_5_percent_four_vectors_need_13_of_32_rows():
    """32 (1 - (7/8)^4) = 13.2, the expected size of the union of four draws of 4 in 32."""
    b = nm.random(32 * 64, 128 * 32, 4, 32, 32, 0)
    x = prepare(b, 128, 1, packed=True, slot=32)
    assert abs(x.count.mean() - 13.24) < 0.2


def test_without_padding_the_values_are_shared():
    b = nm.random(128, 256, 16, 32, 32, 0)
    assert prepare(b, 128, 2, packed=True, slot=32).val is b.val
    before = b.index.copy(), b.val.copy()
    for packed, tiled in MODES:
        prepare(b, 128, 2, packed=packed, slot=8, tiled=tiled)
    assert np.array_equal(b.index, before[0]) and np.array_equal(b.val, before[1])
    assert prepare(b, 96, 2, packed=True, slot=32).val.shape == (64, 288)


def test_bytes_are_those_of_the_arrays():
    b = nm.random(128, 256, 16, 32, 32, 0)
    x = prepare(b, 128, 2, packed=True, slot=32)
    assert (x.val.nbytes, x.index_bytes) == (4 * 64 * 256, 4 * 64 * 8)
    assert x.col_info_bytes == 4 * (2 * 2 * 64 + 2 * 2)
    assert x.nbytes == x.val.nbytes + x.index_bytes + x.col_info_bytes
    plain = prepare(b, 128, 2, packed=False, slot=32)
    assert (plain.col_info_bytes, plain.nbytes) == (0, x.val.nbytes + x.index_bytes)


def test_on_the_host_it_is_there_already():
    x = prepare(nm.random(128, 256, 16, 32, 32, 0), 128, 2, packed=True, slot=32)
    assert packing.to_host(x) is x


@pytest.mark.parametrize("integer", [np.int32, np.int64])
def test_sizes_may_be_numpy_integers(integer):
    b = nm.random(100, 70, 12, 32, 32, 0)
    one = prepare(b, 32, 2, packed=True, slot=4)
    two = prepare(b, integer(32), integer(2), packed=True, slot=integer(4))
    assert all(np.array_equal(getattr(one, name), getattr(two, name)) for name in ARRAYS)
    assert all(isinstance(getattr(two, f.name), int) for f in fields(two)[:6])


GOOD = {"columns": 64, "windows": 1, "packed": True, "slot": 32}


@pytest.mark.parametrize(
    ("vector", "change", "words"),
    [
        *(
            (32, {name: x}, [f"{name} is {x!r}", "whole number"])
            for name in ("columns", "windows", "slot")
            for x in (0, -1, 2.0, None, 2**31)
        ),
        (32, {"slot": 24}, ["slot is 24", "64 columns of a block"]),
        (32, {"columns": 48}, ["slot is 32", "48 columns of a block"]),
        (16, {}, ["slot is 32", "vectors of 16"]),
        (48, {}, ["slot is 32", "vectors of 48"]),
    ],
)
def test_what_the_matrix_does_not_allow_gets_one_sentence(vector, change, words):
    b = nm.random(64, 100, 16, 32, vector, 0)
    with pytest.raises(ValueError) as caught:
        prepare(b, **(GOOD | change))
    message = str(caught.value)
    assert "\n" not in message and ". " not in message
    for word in words:
        assert word in message, f"{word!r} is not in: {message}"


def test_a_vector_as_wide_as_the_matrix_allows_every_slot():
    b = nm.random(64, 100, 16, 32, 100, 0)
    x = prepare(b, 64, 1, packed=True, slot=32)
    assert np.all(x.count == 16) and np.array_equal(dense(x, 64)[:, :100], nm.to_dense(b))


# --------------------------------------------------------------------------- on a GPU


@pytest.mark.gpu
@pytest.mark.parametrize(("packed", "tiled"), MODES)
def test_the_gpu_prepares_the_same(device, packed, tiled):
    for case in CASES:
        try_prepared(case, packed, tiled)


def try_prepared(case, packed: bool, tiled: bool) -> None:
    import cupy

    b = matrix(case)
    here = prepared(case, packed, tiled, b)
    there = prepared(case, packed, tiled, nm.to_device(b))
    back = packing.to_host(there)
    again = packing.to_device(here)
    for name in ARRAYS:
        if getattr(here, name) is None:
            assert getattr(there, name) is getattr(back, name) is getattr(again, name) is None
            continue
        for x in (getattr(there, name), getattr(again, name)):
            assert isinstance(x, cupy.ndarray) and x.flags.c_contiguous
            assert x.dtype == getattr(here, name).dtype
        assert np.array_equal(getattr(back, name), getattr(here, name))
        assert np.array_equal(getattr(again, name).get(), getattr(here, name))


@pytest.mark.gpu
@pytest.mark.alone
@pytest.mark.parametrize(("packed", "tiled", "slot"), [(True, False, 32), (True, True, 4)])
def test_a_large_matrix_takes_milliseconds_and_little_memory(device, packed, tiled, slot):
    import cupy

    from kernels.nm_spmm import operands

    b = operands.problem(64, 8192, 22016, 0.5).device().b
    pool = cupy.cuda.MemoryPool()
    times = []
    with cupy.cuda.using_allocator(pool.malloc):
        for _ in range(3):
            x = None
            start, end = cupy.cuda.Event(), cupy.cuda.Event()
            cupy.cuda.get_current_stream().synchronize()
            start.record()
            x = prepare(b, 128, 8, packed=packed, slot=slot, tiled=tiled)
            end.record()
            end.synchronize()
            times.append(cupy.cuda.get_elapsed_time(start, end))
        made = x.index_bytes + x.col_info_bytes + (x.val.nbytes if tiled else 0)
        assert pool.total_bytes() - made < 2**30
    assert min(times) < 100, times
    assert x.steps == 86 and x.blocks == 64
