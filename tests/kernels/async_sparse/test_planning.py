"""planning.cu, intake.cu and half.cu against their twins in NumPy: on a GPU, and the first two run by the host."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
import twins
from matrices import of_lengths
from refused import refused, said

from kernels import formats
from kernels.async_sparse import planning
from kernels.formats import csr, intake
from kernels.formats.csr import Csr


def matrices(seed: int, times: int) -> dict[str, Csr]:
    rng = np.random.default_rng(seed)
    m, k = (int(x) for x in rng.integers(100, 300, 2) * times)
    graph = rng.zipf(1.6, m).clip(0, k)
    graph[rng.integers(0, m, m // 3)] = 0
    graph[m // 2] = k
    return {
        "uniform": csr.from_scipy(sp.random(m, k, 0.01, format="csr", dtype=np.float32, random_state=rng)),
        "graph": of_lengths(graph, k, rng),
        "band": csr.from_scipy(
            sp.diags([np.arange(1, m + 1.0)] * 7, range(-3, 4), shape=(m, m), format="csr", dtype=np.float32)
        ),
        "one row": of_lengths(np.array([k]), k, rng),
        "one column": of_lengths(rng.integers(0, 2, m), 1, rng),
        "empty": of_lengths(np.zeros(m, int), k, rng),
    }


@pytest.fixture
def pairs(request, there):
    """(name, matrix, the same on the GPU) of several; small ones where the host runs the kernels."""
    on_gpu = request.node.get_closest_marker("gpu") is not None
    return [
        (f"{name} {seed}", a, there(a))
        for seed in range(3 if on_gpu else 1)
        for name, a in matrices(seed, 20 if on_gpu else 1).items()
    ]


def same(found, expected, what: str) -> None:
    for i, (x, y) in enumerate(zip(found, expected, strict=True)):
        np.testing.assert_array_equal(formats.to_host(x), y, err_msg=f"{what}, array {i}")


def test_facts_and_fingerprint(pairs):
    for name, a, on_gpu in pairs:
        assert intake.checked(on_gpu).facts == twins.facts(a), name
    unsorted = csr.Csr(2, 5, np.int32([0, 2, 4]), np.int32([3, 1, 2, 2]), np.ones(4, np.float32))
    assert not intake.checked(formats.to_device(unsorted)).facts.ascending


@pytest.mark.parametrize("kind", ["row_ptr", "col_idx"])
def test_the_first_wrong_index_is_named_as_on_the_host(kind, pairs):
    for name, a, _ in pairs:
        for i, wrong in enumerate((-1, a.k if kind == "col_idx" else a.nnz + 5, 2**31 - 1, -(2**31))):
            array = getattr(a, kind).copy()
            if not array.size:
                continue
            array[np.random.default_rng(i).integers(array.size)] = wrong
            given = replace(a, **{kind: array})
            on_host, on_gpu = (said(lambda x=x: csr.validate(x)) for x in (given, formats.to_device(given)))
            assert on_host == on_gpu if kind == "col_idx" else bool(on_host) == bool(on_gpu), name


def test_indices_of_64_bits_are_narrowed_and_checked(pairs, there):
    for name, a, on_gpu in pairs:
        wide = there(a.row_ptr.astype(np.int64)), there(a.col_idx.astype(np.int64))
        made = intake.taken(a.m, a.k, *wide, on_gpu.val)
        same((made.row_ptr, made.col_idx), (a.row_ptr, a.col_idx), name)
        if a.nnz:
            wide[1][a.nnz // 2] = 2**32
            refused(rf"col_idx\[{a.nnz // 2}\] is 4294967296", intake.taken, a.m, a.k, *wide, on_gpu.val)


def test_rows_have_so_many_columns_together(pairs):
    for name, a, on_gpu in pairs:
        exact, found = twins.shared(a), intake.shared(on_gpu)
        if max(np.diff(a.row_ptr), default=0) * 64 <= 1024:
            assert found == exact, name
        else:  # of long windows a part of the columns is looked at
            np.testing.assert_allclose(found, exact, rtol=0.15, err_msg=name)
        if a.nnz:
            np.testing.assert_allclose(intake.shared(on_gpu, 16), exact, rtol=0.6, err_msg=name)


@pytest.mark.parametrize("size", [0, 1, 1000])
def test_what_tf32_makes_of_values(there, size):
    """The largest that it rounds to a number, and the next one; digits that it has not; NaN of all kinds."""
    plain = np.float32(np.random.default_rng(0).integers(-99, 99, size))
    for bits in (0x3F800000, 0x3F800001, 0x3F801000, 0x7F7FEFFF, 0x7F7FF000, 0xFF7FF000, 0x7F800000, 0x7FFFFFFF):
        val = np.append(plain, np.array([bits], np.uint32).view(np.float32))[-size or 1 :]
        with np.errstate(over="ignore", invalid="ignore"):
            right = np.isinf(planning.tf32(val)).any(), (val.view(np.uint32) & 0x1FFF).any()
        for x in (val, there(val)):
            assert tuple(planning.flags(x)) == right, hex(bits)
        same([planning.tf32(there(val))], [planning.tf32(val)], hex(bits))


def test_rows_by_likeness(pairs):
    for name, a, on_gpu in pairs:
        (order, made), (right, expected) = planning.similar(on_gpu), twins.similar(a)
        same(
            (order, made.row_ptr, made.col_idx, made.val),
            (right, expected.row_ptr, expected.col_idx, expected.val),
            name,
        )


@pytest.mark.parametrize(("rows", "chunk"), [(2, -4), (4, -1), (4, 32), (8, 0)])
def test_groups(rows, chunk, pairs):
    for name, a, on_gpu in pairs:
        *found, table, longest = planning.grouped(on_gpu, rows, chunk, 64)
        *right, expected, most = twins.grouped(a, rows, chunk, 64)
        same(found, right, name)
        require_same_tasks(table, expected, 64, name)
        assert longest == most, name


@pytest.mark.parametrize("how", [("tf32", False), ("tf32", True), ("bfloat16", False), ("float16", False)], ids=str)
@pytest.mark.parametrize("rows", [8, 16, 32, 64])
def test_windows(rows, how, pairs):
    for name, a, on_gpu in pairs:
        same(planning.sliced(on_gpu, rows, *how), twins.sliced(a, rows, *how), name)


@pytest.mark.parametrize("chunk", [0, 32, 96])
def test_tasks_row_after_row(chunk, pairs):
    for name, a, on_gpu in pairs:
        for longest_first in (False, True):
            found, _ = planning.tasks(on_gpu.row_ptr, chunk, longest_first=longest_first)
            right, _ = twins.tasks(a.row_ptr, chunk, longest_first=longest_first)
            same((found.table, found.cut, found.others), (right.table, right.cut, right.others), name)


@pytest.mark.parametrize("block", [8, 64])
@pytest.mark.parametrize("chunk", [0, 32, 96, -1, -4])
def test_tasks_in_blocks(chunk, block, pairs):
    for name, a, on_gpu in pairs:
        found, longest = planning.tasks(on_gpu.row_ptr, chunk, block=block)
        right, most = twins.tasks(a.row_ptr, chunk, block=block)
        require_same_tasks(found, right, block, name)
        assert longest == most and (longest == chunk or chunk < 0), name


def require_same_tasks(found, right, block: int, name: str) -> None:
    """The same tasks in places with the same properties; which system of a size comes first is free."""
    same((found.cut, found.others), (right.cut, right.others), name)
    table = formats.to_host(found.table)
    assert sorted(map(tuple, table)) == sorted(map(tuple, right.table)), name
    place = table[:, 3]
    for cut in np.unique(place[place >= 0]):
        at = np.flatnonzero(place == cut)
        begin, parts = at[0], at.size
        assert (at == begin + np.arange(parts)).all() and (np.diff(table[at, 1]) > 0).all(), name
        assert begin % min(block, 1 << (parts - 1).bit_length()) == 0, name
        if parts <= block:
            assert begin // block == at[-1] // block, name
