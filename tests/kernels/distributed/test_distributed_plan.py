"""Plans over threads on the host: every cut, layout and schedule is right, sends what it must, and races none."""

import itertools
import threading
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings, strategies as st
from refused import refused, said

from kernels import distributed
from kernels.distributed import comm, partition, plans
from kernels.distributed.backend import Now
from kernels.distributed.partition import rows_of
from kernels.distributed.plans import Part
from kernels.formats import bcsr, csr, half, wcsr

RNG = np.random.default_rng(0)


def drawn(m: int, k: int, density: float = 0.1):
    return sp.random_array((m, k), density=density, rng=RNG, dtype=np.float32).tocsr()


def band(m: int):
    return sp.diags_array([np.ones(m, np.float32)] * 3, offsets=[-1, 0, 1], shape=(m, m)).tocsr()


ANY, BLOCKS = drawn(97, 97), drawn(100, 256)
#: SciPy's matrices, each with what else stands for it.
MATRICES = {
    "any": (ANY, lambda a: a),
    "wide": (drawn(50, 120), lambda a: a),
    "band": (band(200), lambda a: a),
    "empty": (sp.csr_array((40, 40), dtype=np.float32), lambda a: a),
    "windows": (ANY, lambda a: wcsr.from_csr(a, window=8, dtype="float32")),
    "blocks": (BLOCKS, lambda a: bcsr.from_csr(a, block=64, dtype="float32")),
}


def multiplied(a, expected, n: int, size: int, machine=distributed.Host, **asked) -> list:
    """Plans of a product on `size` threads, which must be right, twice; a: the matrix, or a function of the rank."""
    dtype = asked.get("dtype") or "float32"
    given = half.to_bits(RNG.standard_normal((expected.shape[1], n)).astype(np.float32), dtype)

    def work(ranks):
        made = distributed.plan(a(ranks.rank) if callable(a) else a, n, ranks, machine=machine(), **asked)
        made.operand().fill(given[slice(*made.b_rows)])
        for panel in made.result().arrays:
            panel[...] = 77
        once = made(timed=True).whole().copy()
        assert (once == made(given[slice(*made.b_rows)]).whole()).all()
        return made, once

    found = distributed.run_threads(size, work)
    whole = asked.get("c") == "replicated" and size > 1
    edges = [0, *(made.c_rows[1] for made, _ in found)]
    assert [made.c_rows for made, _ in found] == list(itertools.pairwise(edges)) and edges[-1] == expected.shape[0]
    results = [out for _, out in found] if whole else [np.concatenate([out for _, out in found])]
    reference = expected.astype(np.float64) @ half.from_bits(given, dtype)
    for out in results:
        error = np.abs(half.from_bits(out, dtype) - reference).max(initial=0) / max(
            np.abs(reference).max(initial=0), 1e-30
        )
        assert error < (1e-2 if dtype in half.DTYPES else 1e-6)
    return [made for made, _ in found]


def rows_needed(a, rows, columns) -> int:
    """Rows of B that parts name and do not have, by the definition."""
    named = [set(a.indices[a.indptr[x] : a.indptr[y]].tolist()) for x, y in itertools.pairwise(rows)]
    return sum(len(of - set(range(*own))) for of, own in zip(named, itertools.pairwise(columns), strict=True))


OPTIONS = {
    "chunks": st.integers(1, 12),
    "first": st.sampled_from(partition.FIRST),
    "b": st.sampled_from(plans.LAYOUTS),
    "c": st.sampled_from(plans.LAYOUTS),
    "replicas": st.sampled_from((1, 2, 4)),
    "dtype": st.sampled_from((None, "float16")),
}


@given(
    name=st.sampled_from([*MATRICES]),
    size=st.integers(1, 4),
    asked=st.fixed_dictionaries({}, optional=OPTIONS),
    n=st.integers(12, 40),
    ahead=st.booleans(),
    limit=st.booleans(),
)
@settings(deadline=None, max_examples=120)
def test_every_cut_layout_and_schedule_gives_the_product(name, size, asked, n, ahead, limit):
    """Also where chunks share a buffer, and where 32 bits do not count a matrix's entries."""
    a, form = MATRICES[name]
    replicas = asked.get("replicas", 1)
    if size % replicas:
        asked["replicas"] = replicas = size
    limit = limit and replicas == 1 and form(a) is a and asked.get("dtype") is None
    if asked.get("dtype"):
        asked |= {"accuracy": "fp16"}
    with pytest.MonkeyPatch.context() as patch:
        if not ahead:
            patch.setattr(plans, "MOST_AHEAD", 0)
        if limit:
            for module in (plans, partition):
                patch.setattr(module, "INT32_MAX", 50)
            patch.setattr(partition, "SLAB", 100)
        made = multiplied(form(a), a, n, size, **asked)
    travels = size > 1 and asked.get("b") != "replicated" and replicas < size
    assert all(len(x.edges) - 1 == asked.get("chunks", 1) for x in made)
    width = 2 if asked.get("dtype") else 4
    if replicas == 1:
        edges = [made[0].b_rows[0], *(x.b_rows[1] for x in made)] if travels else []
        rows = [0, *(x.c_rows[1] for x in made)]
        spread = (size - 1) * a.shape[0] * n * width * (asked.get("c") == "replicated")
        if name != "blocks":
            least = rows_needed(a, rows, edges) if travels else 0
            assert sum(x.sent_bytes for x in made) == least * n * width + spread
            assert sum(x.gathered_bytes for x in made) == (size - 1) * a.shape[1] * n * width * travels
    for x in made:
        assert x.sent_bytes == x.least_bytes and x.times.total >= 0
        for every in x.pieces:
            early = [piece.early for piece in every]
            assert early == sorted(early, reverse=True), "what is early comes first"
        adds = [piece.adds for every in x.pieces for piece in every]
        assert not any(adds) or asked.get("first") == "local" or not asked.get("dtype"), "16 bits are not rounded twice"
        assert not any(piece.adds for piece in x.pieces[1]), "only the first chunk waits for nothing"


@given(
    name=st.sampled_from(("any", "band", "blocks")),
    cuts=st.lists(st.integers(0, 3), min_size=3, max_size=3),
    chunks=st.integers(1, 3),
    consumed=st.booleans(),
)
@settings(deadline=None, max_examples=40)
def test_a_part_may_come_in_slabs_and_be_written_over(name, cuts, chunks, consumed):
    a, form = MATRICES[name]
    unit, whole = (64, form(a)) if name == "blocks" else (20, csr.from_scipy(a))
    m, columns = a.shape[0], np.array([0, 128, 256]) if name == "blocks" else None
    edges = [0, unit, m]

    def part(rank):
        inner = sorted(min(edges[rank + 1], edges[rank] + unit * x) for x in cuts)
        bounds = itertools.pairwise([edges[rank], *inner, edges[rank + 1]])
        slabs = [rows_of(whole, x, y) for x, y in bounds]
        slabs = [replace(x, col_idx=x.col_idx.copy()) for x in slabs]
        parts.append(slabs)
        return Part(slabs, np.array(edges), columns, consumed)

    parts: list = []
    for made in multiplied(part, a, 12, 2, chunks=chunks):
        assert not (consumed and any(x.adds for every in made.pieces for x in every))
    if consumed:
        assert all(max(x.col_idx, default=0) < 256 for slabs in parts for x in slabs)


def test_a_band_multiplies_its_interior_first_and_others_their_own_columns():
    early, late = multiplied(band(200), band(200), 16, 4, chunks=2)[1].pieces
    assert early == late and [(x.early, x.adds) for x in early] == [(True, False), (False, False), (False, False)]
    first, last = early[0].rows
    assert [x.rows for x in early[1:]] == [(0, first), (last, early[-1].rows[1])] and (first, last - first) == (1, 48)
    early, late = multiplied(ANY, ANY, 40, 2, chunks=2)[0].pieces
    assert [(x.early, x.adds) for x in early] == [(True, False), (False, True)]
    assert [x.early for x in late] == [False] and sum(x.a.nnz for x in early) == late[0].a.nnz


@given(rows=st.lists(st.booleans(), min_size=1, max_size=40))
def test_interior_is_the_longest_run(rows):
    """rows: whether a row has a remote entry."""
    a = csr.from_scipy(sp.csr_array(np.array([[1.0, remote] for remote in rows], np.float32)))
    begin, end = partition.interior(a, a.col_idx >= 1)
    longest = max(map(len, "".join("x" if x else "." for x in rows).split("x")))
    assert not any(rows[begin:end]) and end - begin == longest
    first, _ = partition.pieces([a], 1, "auto", sums_exactly=False)
    assert first[0].early == (longest >= partition.WORTH * a.nnz)


# ---------------------------------------------------------------- who waits for whom


class Flow(Now):
    """A stream of a `Racing`; a mark is the set of accesses before it."""

    def __init__(self, machine, name: str):
        self.machine, self.name, self.before = machine, name, set()

    def record(self):
        return set(self.before)

    def wait_event(self, mark):
        self.before |= mark

    def __enter__(self):
        assert self.machine.exchanged in self.before, "sums of others have come"


class Racing(distributed.Host):
    """A host with two streams, on which conflicting accesses of memory must be ordered by marks."""

    of_thread = threading.local()

    def __init__(self):
        Racing.of_thread.machine = self
        self.callers, self.seen, self.order = Flow(self, "caller"), [], []
        self.count = itertools.count()
        self.exchanged = None

    def caller(self):
        return self.callers

    def stream(self, priority=0):
        return Flow(self, "travels" if priority else "products")

    def ms(self, begin, end):
        return 0.0

    def access(self, stream, reads, writes):
        me, mine = next(self.count), []
        self.order.append(stream.name)
        for array, write in [*((x, False) for x in reads), *((x, True) for x in writes)]:
            first, last = np.lib.array_utils.byte_bounds(array) if array.size else (0, 0)
            for other, *span, wrote in itertools.chain(*self.seen):
                apart = span[1] <= first or last <= span[0] or not (write or wrote)
                assert apart or other in stream.before, f"{stream.name}: access {me} races with {other}"
            mine.append((me, first, last, write))
        self.seen.append(mine)
        stream.before.add(me)
        return me

    def product(self, a, *given, **options):
        multiply = super().product(a, *given, **options)

        def noted(b, out, adds, stream):
            self.access(stream, [b[: 1 + max(a.col_idx, default=-1)], a.col_idx, a.val], [out])
            multiply(b, out, adds)

        return noted

    def gather(self, b, ids, out, stream):
        self.access(stream, [b], [out])
        super().gather(b, ids, out)

    def copy(self, source, to, stream):
        self.access(stream, [], [to])
        super().copy(source, to)

    def from_another_stream(self, made, *given):
        """Call twice, from streams of callers that have waited for nothing."""
        self.seen.clear()
        kept = []
        for _ in range(2):
            self.callers = Flow(self, "another")
            kept.append(made(*given))


@pytest.fixture
def noted(monkeypatch):
    """Exchanges of threads are accesses of their `Racing`."""
    real = comm.Threads.ready

    def ready(ranks, send, recv):
        go, here = real(ranks, send, recv), Racing.of_thread.machine

        def move(stream=None):
            if stream:  # else a plan is made
                here.exchanged = here.access(stream, send, recv)
            go()

        return move

    monkeypatch.setattr(comm.Threads, "ready", ready)


@pytest.mark.parametrize(
    ("a", "ahead", "order"),
    [
        (band(60), True, "ttttttppp"),
        (band(60), False, "ttttpttpp"),
        (sp.csr_array(np.ones((60, 60), np.float32)), False, "tttppp"),
    ],
)
def test_rows_of_the_next_chunk_travel_before_one_is_multiplied(noted, monkeypatch, a, ahead, order):
    """All are packed before the first is sent, or the next is packed and sent; who sends all rows packs nothing."""
    monkeypatch.setattr(plans, "MOST_AHEAD", plans.MOST_AHEAD * ahead)

    def work(ranks):
        here = Racing()
        made = distributed.plan(a, 9, ranks, machine=here, chunks=3, first="whole")
        here.order.clear()
        made()
        return "".join(stream[0] for stream in here.order)

    assert distributed.run_threads(2, work) == [order] * 2


@pytest.mark.parametrize("asked", [{}, {"replicas": 2}, {"c": "replicated"}, {"first": "whole"}], ids=str)
@pytest.mark.parametrize("chunks", [1, 3, 4])
@pytest.mark.parametrize("ahead", [True, False])
@pytest.mark.parametrize("a", [ANY, band(60), sp.csr_array(np.tril(np.ones((9, 9), np.float32)))])
def test_no_access_races_with_another_whatever_comes_first_on_a_gpu(noted, monkeypatch, a, ahead, chunks, asked):
    """The caller writes B before each call and reads C after it; a buffer is one for several chunks, or for one."""
    monkeypatch.setattr(plans, "MOST_AHEAD", plans.MOST_AHEAD * ahead)

    def work(ranks):
        here = Racing()
        made = distributed.plan(a, 8, ranks, machine=here, chunks=chunks, **asked)
        for x in made.operand().arrays:
            x[...] = 1
        for _ in range(2):
            here.access(here.callers, [], made.operand().arrays)
            here.access(here.callers, made().arrays, [])
        here.from_another_stream(made)

    distributed.run_threads(2, work)


@pytest.mark.parametrize("limit", [None, 100])
@pytest.mark.parametrize("cuts", [(), (40, 41)], ids=["whole", "slabs"])
@pytest.mark.parametrize("panel", [1, 50, 10**6])
@pytest.mark.parametrize("n", [1, 5])
def test_a_streamed_matrix_multiplies_and_its_panels_are_there_until_then(monkeypatch, panel, cuts, limit, n):
    """Whole, in slabs, and cut into them where 32 bits do not count its entries."""
    if limit:
        panel = min(panel, limit)
        for module in (plans, partition):
            monkeypatch.setattr(module, "INT32_MAX", limit)
    here, b = Racing(), RNG.standard_normal((97, n)).astype(np.float32)
    slabs = [ANY[x:y] for x, y in itertools.pairwise((0, *cuts, 97))] if cuts else ANY
    made = distributed.streamed(slabs, n, panel=panel, machine=here)
    for _ in range(2):
        here.access(here.callers, [], [b])
        out = made(b, timed=True)
        here.access(here.callers, [out], [])
        np.testing.assert_allclose(out, ANY @ b, rtol=1e-5, atol=1e-5)
    assert made.bytes == 8 * ANY.nnz and made.times.total == 0
    assert covers([x for x, _ in made.panels] + [97], 97) and made.panels[-1][1] == 97
    here.from_another_stream(made, b)


# ---------------------------------------------------------------- what is refused, by all ranks alike


def first_or(ranks, value):
    """Of the last rank another value."""
    return value[ranks.rank == ranks.size - 1]


def part_of(ranks, change):
    edges = np.array([0, 30, 97])
    mine = csr.from_scipy(ANY[edges[ranks.rank] : edges[ranks.rank + 1]])
    return Part(change(mine) if ranks.rank == 1 else mine, edges)


SLABS = [csr.from_scipy(ANY[:50]), csr.from_scipy(ANY[50:, :90])]
REFUSED = [
    (lambda ranks: (ANY, {"replicas": 3}), "replicas is 3, but must divide the 2 parts"),
    (lambda ranks: (ANY, {"b": "split"}), "b is 'split', but must be one of distributed, replicated"),
    (lambda ranks: (ANY, {"first": "all"}), "first is 'all', but must be one of auto, local, whole"),
    (lambda ranks: (ANY, {"n": first_or(ranks, (16, 24))}), "n is 16 on rank 0, but 24 on rank 1"),
    (lambda ranks: (ANY, {"chunks": first_or(ranks, (1, 2))}), "chunks is 1 on rank 0, but 2 on rank 1"),
    (lambda ranks: (ANY, {"chunks": 17}), "chunks is 17, but must be a whole number from 1 to 16"),
    (lambda ranks: (ANY, {"rows": [0, 5]}), "must be 3 edges from 0 to 97"),
    (lambda ranks: (ANY, {"rows": first_or(ranks, ([0, 40, 97], [0, 50, 97]))}), "rows is [0, 40, 97] on rank 0"),
    (lambda ranks: (ANY, {"columns": first_or(ranks, ([0, 40, 97], [0, 50, 97]))}), "columns is [[0, 40, 97]] on"),
    (lambda ranks: (Part(SLABS, np.array([0, 97])), {}), "must be 3 edges"),
    (lambda ranks: (Part(SLABS, np.array([0, 97, 97])), {}), "slabs of the part of rank 0 have [90, 97] columns"),
    (lambda ranks: (part_of(ranks, lambda a: replace(a, col_idx=a.col_idx + 97)), {}), "on rank 1, CSR col_idx[0] is"),
    (lambda ranks: (part_of(ranks, csr.to_scipy), {}), "on rank 1, the part of rank 1 is csr_array, but must be Csr"),
    (lambda ranks: (part_of(ranks, lambda a: rows_of(a, 0, 10)), {}), "on rank 1, the part of rank 1 has 10 rows"),
]


@pytest.mark.parametrize(("asked", "says"), REFUSED, ids=[says for _, says in REFUSED])
def test_what_does_not_fit_is_one_sentence_on_every_rank(asked, says):
    """None waits for another for ever, either."""

    def one(ranks):
        a, more = asked(ranks)
        return said(lambda: distributed.plan(a, **({"n": 16} | more), comm=ranks, machine=distributed.Host()))

    found = distributed.run_threads(2, one)
    assert found[0] == found[1] and says in found[0] and "\n" not in found[0]


def test_three_ranks_are_all_compared():
    differing = ({"n": 4}, {"n": 4}, {"n": 5})
    refused(
        "n is 4 on rank 0, but 5 on rank 2",
        distributed.run_threads,
        3,
        lambda ranks: comm.same(ranks, **differing[ranks.rank]),
    )
    refused(
        "ranks 0 and 2 both use GPU a of ",
        distributed.run_threads,
        3,
        lambda ranks: comm.one_gpu_each(ranks, "aba"[ranks.rank]),
    )
    distributed.run_threads(3, lambda ranks: comm.one_gpu_each(ranks, "abc"[ranks.rank]))
    refused(
        "one",
        distributed.run_threads,
        3,
        lambda ranks: {}["one"] if ranks.rank == 1 else ranks.gather(0),
        kind=KeyError,
    )


@pytest.mark.parametrize("make", [distributed.plan, partial(distributed.streamed, panel=50)], ids=["plan", "streamed"])
def test_indices_of_large_matrices_are_looked_at_before_they_are_cut(monkeypatch, make):
    for module in (partition, plans):
        monkeypatch.setattr(module, "INT32_MAX", 100)
    for change, says in (("indices", "outside"), ("indptr", "falls from")):
        a = ANY.copy()
        getattr(a, change)[5] = 10**7
        refused(f"10000000.*{says}|{says} 10000000", make, a, 16, machine=distributed.Host())


# ---------------------------------------------------------------- B as it comes

X = RNG.standard_normal((97, 8)).astype(np.float32)


def filled(dtype: str, b, **asked):
    """The panels of a plan for one rank, with B in them."""
    asked |= {"dtype": dtype, "accuracy": {"bfloat16": "bf16", "float16": "fp16"}.get(dtype)}
    return distributed.plan(ANY, 8, machine=distributed.Host(), **asked).operand().fill(b)


@pytest.mark.parametrize("dtype", half.DTYPES)
def test_b_in_16_bits_is_a_half_an_array_or_bit_patterns(dtype):
    bits = half.to_bits(X, dtype)
    kind = np.float16 if dtype == "float16" else pytest.importorskip("ml_dtypes").bfloat16
    for b in (bits, np.asfortranarray(bits), half.Half(dtype, bits), X.astype(kind)):
        assert (filled(dtype, b, chunks=3).whole() == bits).all()


@pytest.mark.parametrize(
    ("dtype", "b", "says"),
    [
        ("float32", X.astype(float), "B is float64, but the plan is for float32"),
        ("float32", X.astype(np.uint16), "B is uint16, but the plan is for float32"),
        ("float16", X, "B is float32, but the plan is for float16"),
        ("float16", half.Half("bfloat16", X.astype(np.uint16)), "B is bfloat16, but"),
        ("float32", [[1.0]], "B is list, but"),
        ("float32", X[:1], "B is 1 x 8, but this rank's rows of it are 97 x 8"),
        ("float32", X[:, 0], "B is 97, but"),
    ],
)
def test_another_b_is_refused(dtype, b, says):
    refused(says, filled, dtype, b)


# ---------------------------------------------------------------- what travels


@given(m=st.integers(1, 60), parts=st.integers(1, 6), seed=st.integers(0, 99), density=st.floats(0, 0.3))
@settings(deadline=None, max_examples=60)
def test_the_exchange_brings_each_named_row_once_and_no_other(m, parts, seed, density):
    a = sp.random_array((m, m), density=density, rng=np.random.default_rng(seed), dtype=np.float32).tocsr()
    edges = partition.by_nonzeros(a.indptr, parts)

    def work(ranks):
        mine = a.indices[a.indptr[edges[ranks.rank]] : a.indptr[edges[ranks.rank + 1]]]
        return partition.exchange([mine], edges, ranks), mine

    found = distributed.run_threads(parts, work)
    table = partition.volumes(a.indptr, a.indices, edges, edges)
    assert table.sum() == rows_needed(a, edges, edges)
    for p, (of, mine) in enumerate(found):
        assert (
            set(of.received.tolist()) == set(mine.tolist()) - set(range(*of.own)) and (np.diff(of.received) > 0).all()
        )
        assert of.recv_counts.tolist() == [0 if q == p else table[p, q] for q in range(parts)]
        names = np.concatenate([np.arange(*of.own), of.received])
        for over in (False, True):
            (places,) = partition.compact([mine.copy()], m, of.own, of.received, over=over)
            assert (names[places] == mine).all()
        for q, there in enumerate(partition.split(of.send, of.send_counts)):
            assert (there + edges[p] == partition.split(found[q][0].received, found[q][0].recv_counts)[p]).all()


# ---------------------------------------------------------------- cuts

ROW_PTR = st.lists(st.integers(0, 50), min_size=1, max_size=200).map(lambda x: np.concatenate([[0], np.cumsum(x)]))


def covers(edges, m: int) -> bool:
    return edges[0] == 0 and edges[-1] == m and bool((np.diff(edges) >= 0).all())


@given(ROW_PTR, st.integers(1, 9), st.sampled_from((0.0, 1.0)))
def test_parts_cost_their_share_and_half_of_a_row_at_each_end(row_ptr, parts, row_cost):
    """A cut is where the cost so far is nearest to the share."""
    edges = partition.by_nonzeros(row_ptr, parts, row_cost=row_cost)
    cost = row_ptr + row_cost * np.arange(len(row_ptr))
    assert covers(edges, len(row_ptr) - 1) and len(edges) == parts + 1
    for p, edge in enumerate(edges[1:-1], 1):
        off = np.abs(cost - cost[-1] * p / parts)
        assert off[edge] <= off.min() + 1e-9


@given(st.integers(0, 1000), st.integers(1, 9), st.sampled_from((1, 8, 64)))
def test_even_parts_differ_by_a_unit(size, parts, unit):
    edges = partition.even(size, parts, unit)
    assert covers(edges, size) and all(e % unit == 0 for e in edges[:-1] if e < size)
    assert max(np.diff(edges)) - min(np.diff(edges)) <= 2 * unit
    assert partition.require_bounds("rows", edges, parts, size, unit).tolist() == edges.tolist()


@given(ROW_PTR, st.integers(1, 60))
def test_panels_have_at_most_so_many_entries_or_a_row(row_ptr, most):
    """And would have more with another row; slabs are alike, but balanced."""
    m, cuts = len(row_ptr) - 1, list(partition.cut(row_ptr, most))
    assert covers([0, *(y for _, y in cuts)], m) and all(x < y for x, y in cuts)
    assert all(x[1] == y[0] for x, y in itertools.pairwise(cuts))
    for begin, end in cuts:
        assert row_ptr[end] - row_ptr[begin] <= most or end == begin + 1
        assert end == m or row_ptr[end + 1] - row_ptr[begin] > most
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(partition, "INT32_MAX", 2 * most)
        patch.setattr(partition, "SLAB", most)
        slabs = partition.slabs(row_ptr)
    assert covers([0, *(y for _, y in slabs)], m) and (len(slabs) > 1) == (row_ptr[-1] > 2 * most)
    assert all(row_ptr[y] - row_ptr[x] <= most + 50 for x, y in slabs) or len(slabs) == 1


@pytest.mark.parametrize(
    ("bounds", "says"),
    [
        ([0, 5], "must be 3 edges from 0 to 8"),
        ([0, 9, 8], "must not fall"),
        ([0, 3, 8], "blocks of 2 rows must stay whole"),
        ([1, 2, 8], "edges from 0 to 8"),
    ],
)
def test_edges_that_do_not_cut_are_refused(bounds, says):
    refused(says, partition.require_bounds, "rows", bounds, 2, 8, 2)
