"""Plans over threads on the host: every cut, layout and schedule gives the product, and sends what it must."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

from kernels import distributed
from kernels.distributed import partition, pieces, plans
from kernels.distributed.machine import rows_of
from kernels.distributed.plans import Part, Times
from kernels.formats import bcsr, csr, half, wcsr

RNG = np.random.default_rng(0)
ANY = sp.random_array((97, 97), density=0.1, rng=RNG, dtype=np.float32).tocsr()
WIDE = sp.random_array((50, 120), density=0.1, rng=RNG, dtype=np.float32).tocsr()
BAND = sp.diags_array([np.ones(200)] * 3, offsets=[-1, 0, 1], shape=(200, 200)).tocsr()
BAND = BAND.astype(np.float32)
EMPTY = sp.csr_array((40, 40), dtype=np.float32)
BLOCKS = bcsr.from_csr(sp.random_array((256, 320), density=0.02, rng=RNG, dtype=np.float32).tocsr(), block=32)


def multiplied(a, expected, n: int, size: int, *, part: bool = False, **asked):
    """(plans, times) of a product on `size` threads, which must be right."""
    dtype = asked.get("dtype", "float32")
    b = RNG.standard_normal((expected.shape[1], n)).astype(np.float32)
    given = half.to_bits(b, dtype) if dtype in half.DTYPES else b

    def work(comm):
        mine = a(comm.rank) if part else a
        made = distributed.plan(mine, n, comm, machine=distributed.Host(), **asked)
        made.operand().fill(given[slice(*made.b_rows)])
        for panel in made.result().arrays:
            panel[...] = 77
        once = made(timed=True).whole().copy()
        again = made(given[slice(*made.b_rows)]).whole()
        assert (once == again).all()
        return made, once

    found = distributed.run_threads(size, work)
    if asked.get("c") == "replicated":
        results = [out for _, out in found]
    else:
        rows = [made.c_rows for made, _ in found]
        assert [x for x, _ in rows] == [0, *(y for _, y in rows[:-1])]
        assert rows[-1][1] == expected.shape[0]
        results = [np.concatenate([out for _, out in found])]
    if dtype in half.DTYPES:
        b, results = half.from_bits(given, dtype), [half.from_bits(x, dtype) for x in results]
    reference = expected.astype(np.float64) @ b
    for out in results:
        error = np.abs(out - reference).max() / max(np.abs(reference).max(), 1e-30)
        assert error < (1e-2 if dtype in half.DTYPES else 1e-6)
    return [made for made, _ in found]


@pytest.mark.parametrize("size", [1, 2, 4])
@pytest.mark.parametrize(
    "asked",
    [
        {},
        {"chunks": 3},
        {"chunks": 40},
        {"b": "replicated"},
        {"c": "replicated"},
        {"first": "whole"},
        {"first": "local", "chunks": 2},
        {"replicas": 2, "chunks": 3},
        {"replicas": 4},
        {"replicas": 2, "b": "replicated", "c": "replicated"},
    ],
    ids=str,
)
def test_every_layout_gives_the_product(size, asked):
    if size % asked.get("replicas", 1):
        pytest.skip("the grid does not fit")
    for made in multiplied(ANY, ANY, 40, size, **asked):
        assert made.sent_bytes == made.least_bytes
        assert isinstance(made.times, Times) and made.times.total > 0


@pytest.mark.parametrize("a", [WIDE, EMPTY], ids=["wide", "empty"])
@pytest.mark.parametrize("replicas", [1, 2])
def test_shapes_that_are_not_square_and_nothing_at_all(a, replicas):
    multiplied(a, a, 8, 4, replicas=replicas)


@pytest.mark.parametrize("asked", [{}, {"replicas": 2}, {"replicas": 4}, {"b": "replicated"}])
def test_blocks_travel_as_blocks(asked):
    expected = csr.to_scipy(bcsr.to_csr(BLOCKS))
    plans = multiplied(BLOCKS, expected, 64, 4, dtype="bfloat16", **asked)
    assert all(made.sent_bytes % (2 * 64) == 0 for made in plans)
    assert asked or all(type(step[0].a).__name__ == "Bcsr" for step in plans[0].pieces)


def test_windows_are_multiplied_as_csr():
    multiplied(wcsr.from_csr(ANY, window=8, dtype="float32"), ANY, 16, 2)


def test_parts_that_no_rank_has_whole():
    edges = np.array([0, 30, 97])

    def part(rank):
        rows = ANY[edges[rank] : edges[rank + 1]]
        return Part(csr.from_scipy(rows), edges)

    plans = multiplied(part, ANY, 12, 2, part=True)
    assert [made.c_rows for made in plans] == [(0, 30), (30, 97)]


@pytest.mark.parametrize("consumed", [False, True])
@pytest.mark.parametrize("chunks", [1, 3])
@pytest.mark.parametrize("whole", [ANY, BAND], ids=["any", "band"])
def test_a_part_may_come_in_slabs(whole, chunks, consumed):
    m = whole.shape[0]
    edges, cuts = np.array([0, m // 3, m]), ((0, 10, 10, m // 3), (0, 1, m - m // 3))

    def part(rank):
        rows = whole[edges[rank] : edges[rank + 1]]
        made = [csr.from_scipy(rows[x:y]) for x, y in itertools.pairwise(cuts[rank])]
        return Part(made, edges, consumed=consumed)

    for made in multiplied(part, whole, 12, 2, part=True, chunks=chunks):
        early = [[x.early for x in every] for every in made.pieces]
        assert early == [sorted(x, reverse=True) for x in early], "what is early comes first"
        assert not (consumed and any(x.adds for every in made.pieces for x in every))


def test_a_consumed_part_is_written_over():
    edges, rows = np.array([0, 97]), np.array([0, 97])
    mine = csr.from_scipy(ANY)
    before = mine.col_idx.copy()
    (made,) = multiplied(lambda _: Part([mine], edges, rows, consumed=True), ANY, 8, 1, part=True)
    assert made.pieces[0][0].a.col_idx is mine.col_idx
    assert (mine.col_idx == before).all(), "one part has all of B: its columns stay"


def test_blocks_may_come_in_slabs():
    expected = csr.to_scipy(bcsr.to_csr(BLOCKS))
    edges, columns = np.array([0, 96, 256]), np.array([0, 160, 320])

    def part(rank):
        begin, end = edges[rank], edges[rank + 1]
        cuts = (begin, begin + 32, end)
        return Part([rows_of(BLOCKS, x, y) for x, y in itertools.pairwise(cuts)], edges, columns)

    multiplied(part, expected, 64, 2, part=True, dtype="bfloat16")


@pytest.mark.parametrize("a", [ANY, WIDE], ids=["square", "wide"])
def test_a_matrix_of_more_entries_than_32_bits_count_is_cut_into_slabs(monkeypatch, a):
    for module in (plans, partition):
        monkeypatch.setattr(module, "INT32_MAX", 50)
    monkeypatch.setattr(partition, "SLAB", 100)
    made = multiplied(a, a, 12, 2)
    assert all(len(x.pieces[1]) > 2 for x in made)
    with pytest.raises(ValueError, match="replicas is 2, but a matrix of .* is cut by rows alone"):
        multiplied(a, a, 12, 2, replicas=2)


def test_slabs_of_different_widths_are_refused():
    slabs = [csr.from_scipy(ANY[:50]), csr.from_scipy(ANY[50:, :90])]
    with pytest.raises(ValueError, match=r"slabs of the part of rank 0 have \[90, 97\] columns"):
        distributed.plan(Part(slabs, np.array([0, 97])), 8, machine=distributed.Host())


def test_only_named_rows_travel():
    """Of a band each part needs one row of each neighbour: 2 of 200 rows cross each of three edges."""
    plans = multiplied(BAND, BAND, 16, 4, chunks=2)
    assert sum(made.sent_bytes for made in plans) == 6 * 16 * 4
    assert sum(made.gathered_bytes for made in plans) == 200 * 3 * 16 * 4


def test_interior_rows_of_a_band_come_first_and_nothing_is_added():
    early, late = multiplied(BAND, BAND, 16, 4, chunks=2)[1].pieces
    assert early == late and [x.early for x in early] == [True, False, False]
    assert not any(x.adds for x in early)
    rows = sorted(x.rows for x in early)
    assert rows[0][0] == 0 and [x[1] for x in rows[:-1]] == [x[0] for x in rows[1:]]
    assert early[0].rows[1] - early[0].rows[0] == rows[-1][1] - 2


def test_without_interior_rows_the_local_columns_of_the_first_chunk_come_first():
    made = multiplied(ANY, ANY, 40, 2, chunks=2)[0]
    early, late = made.pieces
    assert [(x.early, x.adds) for x in early] == [(True, False), (False, True)]
    assert [(x.early, x.adds) for x in late] == [(False, False)]
    assert sum(x.a.nnz for x in early) == late[0].a.nnz


def test_16_bit_sums_are_not_rounded_twice_unless_it_is_asked_for():
    plans = multiplied(ANY, ANY, 16, 2, dtype="float16", accuracy="fp16")
    assert [x.adds for x in plans[0].pieces[0]] == [False]
    plans = multiplied(ANY, ANY, 16, 2, dtype="float16", accuracy="fp16", first="local")
    assert [x.adds for x in plans[0].pieces[0]] == [False, True]


@pytest.mark.parametrize("seed", range(3))
def test_interior_is_the_longest_run(seed):
    rng = np.random.default_rng(seed)
    a = csr.from_scipy(sp.random_array((30, 30), density=0.08, rng=rng).tocsr())
    remote = a.col_idx >= 20
    outside = [remote[a.row_ptr[i] : a.row_ptr[i + 1]].any() for i in range(30)]
    begin, end = pieces.interior(a, remote)
    assert not any(outside[begin:end])
    longest = max(map(len, "".join("x" if o else "." for o in outside).split("x")))
    assert end - begin == longest


# ---------------------------------------------------------------- what does not fit


def planned(size: int, sizes=None, **asked):
    def work(comm):
        own = {name: value[comm.rank] for name, value in (sizes or {}).items()}
        n = own.pop("n", 16)
        return distributed.plan(ANY, n, comm, machine=distributed.Host(), **own, **asked)

    return distributed.run_threads(size, work)


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"replicas": 3}, "replicas is 3, but must divide the 2 parts"),
        ({"b": "split"}, "b is 'split', but must be one of distributed, replicated"),
        ({"first": "all"}, "first is 'all', but must be one of auto, local, whole"),
        ({"sizes": {"n": (16, 24)}}, "n is 16 on rank 0, but 24 on rank 1: all ranks must bring the same"),
        ({"sizes": {"chunks": (1, 2)}}, "chunks is 1 on rank 0, but 2 on rank 1"),
        ({"chunks": 17}, "chunks is 17, but must be a whole number from 1 to 16"),
        ({"rows": [0, 5]}, "must be 3 edges from 0 to 97"),
    ],
)
def test_what_does_not_fit_is_one_sentence_on_every_rank(asked, says):
    with pytest.raises(ValueError, match=says):
        planned(2, **asked)


def test_a_gpu_that_two_ranks_use():
    from kernels.distributed import comm

    with pytest.raises(ValueError, match="ranks 0 and 2 both use GPU a of .*give each a GPU of its own"):
        distributed.run_threads(3, lambda ranks: comm.one_gpu_each(ranks, "aba"[ranks.rank]))
    distributed.run_threads(3, lambda ranks: comm.one_gpu_each(ranks, "abc"[ranks.rank]))


@pytest.mark.parametrize(
    ("environment", "says"),
    [
        ({"RANK": "2", "WORLD_SIZE": "2"}, "RANK is 2, but ranks of WORLD_SIZE = 2 are 0 to 1"),
        ({"RANK": "x", "WORLD_SIZE": "2"}, "must be numbers: start the processes with torchrun"),
    ],
)
def test_a_place_that_is_none(environment, says):
    with pytest.raises(ValueError, match=says):
        distributed.place(environment)


def test_who_started_the_processes_is_found():
    found = distributed.place({"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1"})
    assert (found.rank, found.size, found.local) == (3, 4, 1)
    slurm = {"SLURM_PROCID": "1", "SLURM_NTASKS": "2", "SLURM_LOCALID": "1"}
    assert distributed.place(slurm).size == 2
    assert distributed.place({}).size == 1


def test_an_error_of_one_thread_ends_all():
    def work(comm):
        if comm.rank == 1:
            raise KeyError("one")
        comm.gather(0)

    with pytest.raises(KeyError, match="one"):
        distributed.run_threads(3, work)


@pytest.mark.parametrize("most", [0, plans.MOST_AHEAD])
def test_chunks_share_a_buffer_where_all_packed_at_once_would_be_too_much(monkeypatch, most):
    monkeypatch.setattr(plans, "MOST_AHEAD", most)
    for made in multiplied(ANY, ANY, 40, 3, chunks=4):
        assert made._ahead == (most > 0) and len(made._move) == 4


def test_who_sends_all_of_its_rows_packs_nothing(monkeypatch):
    packed = []
    gather = distributed.Host.gather

    def counted(self, b, ids, out, stream=None):
        packed.append(len(ids))
        gather(self, b, ids, out, stream)

    monkeypatch.setattr(distributed.Host, "gather", counted)
    full = sp.csr_array(np.ones((40, 40), np.float32))
    multiplied(full, full, 40, 3, chunks=4)
    assert packed == []
    multiplied(ANY, ANY, 40, 3, chunks=4)
    assert packed


# ---------------------------------------------------------------- who waits for whom


class Ordered(distributed.Host):
    """A host with two streams that logs which marks the caller's stream waits for."""

    def __init__(self):
        self.marks, self.waits = {}, []

    def streams(self):
        return "products", "travels"

    def mark(self, stream=None):
        self.marks[stream] = self.marks.get(stream, 0) + 1
        return stream, self.marks[stream]

    def wait(self, stream, mark):
        if stream is None:
            self.waits.append(mark)


@pytest.mark.parametrize("chunks", [1, 3])
@pytest.mark.parametrize("whole", [ANY, sp.csr_array(np.tril(np.ones((8, 8), np.float32)))])
def test_who_needs_nothing_still_waits_until_its_own_rows_are_sent(whole, chunks):
    def work(comm):
        made = distributed.plan(whole, 4, comm, chunks=chunks, machine=Ordered())
        made(np.ones((made.b_rows[1] - made.b_rows[0], 4), np.float32))
        return made.machine

    for here in distributed.run_threads(2, work):
        for stream in here.streams():
            assert (stream, here.marks[stream]) in here.waits


# ---------------------------------------------------------------- B as it comes


#: What a matrix of float32 values is rounded to without a word.
ROUNDED = {"float32": None, "bfloat16": "bf16", "float16": "fp16"}


def filled(dtype: str, b, **asked):
    """The panels of a plan for one rank, with B in them."""
    asked |= {"dtype": dtype, "accuracy": ROUNDED[dtype], "machine": distributed.Host()}
    return distributed.plan(ANY, 8, **asked).operand().fill(b)


@pytest.mark.parametrize("dtype", half.DTYPES)
def test_b_in_16_bits_is_a_half_an_array_or_bit_patterns(dtype):
    x = RNG.standard_normal((97, 8)).astype(np.float32)
    bits = half.to_bits(x, dtype)
    given = [bits, np.asfortranarray(bits), half.Half(dtype, bits)]
    if dtype == "float16":
        given.append(x.astype(np.float16))
    for b in given:
        assert (filled(dtype, b, chunks=3).whole() == bits).all()


def test_bfloat16_arrays_of_other_libraries_are_bit_patterns():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    x = RNG.standard_normal((97, 8)).astype(np.float32)
    bits = half.to_bits(x, "bfloat16")
    assert (filled("bfloat16", x.astype(ml_dtypes.bfloat16)).whole() == bits).all()


@pytest.mark.parametrize(
    ("dtype", "b", "says"),
    [
        ("float32", np.ones((97, 8)), "B is float64, but the plan is for float32: convert it"),
        ("float32", np.ones((97, 8), np.uint16), "B is uint16, but the plan is for float32"),
        ("float16", np.ones((97, 8), np.float32), "B is float32, but the plan is for float16"),
        ("float16", half.Half("bfloat16", np.ones((97, 8), np.uint16)), "B is bfloat16, but"),
        ("float32", [[1.0]], "B is list, but"),
        ("float32", np.ones((1, 8), np.float32), "B is 1 x 8, but this rank's rows of it are 97 x 8"),
        ("float32", np.ones((97, 9), np.float32), "B is 97 x 9, but"),
        ("float32", np.ones(97, np.float32), "B is 97, but"),
    ],
)
def test_another_b_is_refused(dtype, b, says):
    with pytest.raises(ValueError, match=says):
        filled(dtype, b)


# ---------------------------------------------------------------- all ranks hear of it


def errors_of(size: int, work) -> list[str]:
    """The sentence that each of the ranks gets: none waits for another for ever."""

    def one(comm):
        with pytest.raises(ValueError) as caught:
            work(comm)
        return str(caught.value)

    return distributed.run_threads(size, one)


def test_edges_that_differ_from_rank_to_rank_are_refused_by_all():
    def work(comm):
        edges = ([0, 40, 97], [0, 50, 97])[comm.rank]
        distributed.plan(ANY, 8, comm, rows=edges, machine=distributed.Host())

    of = errors_of(2, work)
    assert of[0] == of[1] and of[0].startswith("rows is [0, 40, 97] on rank 0, but [0, 50, 97] on")

    def columns(comm):
        edges = ([0, 40, 97], [0, 50, 97])[comm.rank]
        distributed.plan(ANY, 8, comm, columns=edges, machine=distributed.Host())

    assert all(x.startswith("columns is [[0, 40, 97]] on rank 0") for x in errors_of(2, columns))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda a: replace(a, col_idx=a.col_idx + 97), "CSR col_idx[0] is "),
        (lambda a: replace(a, row_ptr=a.row_ptr[::-1].copy()), "CSR row_ptr starts at "),
        (lambda a: csr.to_scipy(a), "the part of rank 1 is csr_array, but must be Csr or Bcsr"),
        (lambda a: rows_of(a, 0, 10), "the part of rank 1 has 10 rows, but its edges say 67"),
    ],
)
def test_a_part_that_is_wrong_on_one_rank_ends_all(change, says):
    edges = np.array([0, 30, 97])

    def work(comm):
        mine = csr.from_scipy(ANY[edges[comm.rank] : edges[comm.rank + 1]])
        part = Part(change(mine) if comm.rank == 1 else mine, edges)
        distributed.plan(part, 8, comm, machine=distributed.Host())

    of = errors_of(2, work)
    assert of[0] == of[1] and of[0].startswith(f"on rank 1, {says}")


# ---------------------------------------------------------------- blocks that do not fill the matrix


@pytest.mark.parametrize("size", [2, 3, 5])
def test_a_last_row_of_blocks_may_be_short_and_ranks_may_be_more_than_rows_of_blocks(size):
    whole = sp.random_array((100, 256), density=0.1, rng=RNG, dtype=np.float32).tocsr()
    blocks = bcsr.from_csr(whole, block=64, dtype="float32")
    made = multiplied(blocks, whole, 16, size)
    assert sum(x.c_rows[1] > x.c_rows[0] for x in made) == 2
