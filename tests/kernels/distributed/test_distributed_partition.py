"""Cuts cover every row once, are balanced by non-zeros, and what travels is what the pattern asks for."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from kernels.distributed import exchange, partition
from kernels.distributed.comm import run_threads, same
from kernels.distributed.partition import Grid


def matrix(m: int, k: int, density: float, seed: int = 0):
    rng = np.random.default_rng(seed)
    return sp.random_array((m, k), density=density, rng=rng, dtype=np.float32).tocsr()


@given(st.lists(st.integers(0, 50), min_size=1, max_size=200), st.integers(1, 9), st.sampled_from((0.0, 1.0)))
def test_parts_cost_their_share_and_half_of_a_row_at_each_end(lengths, parts, row_cost):
    row_ptr = np.concatenate([[0], np.cumsum(lengths)])
    edges = partition.by_nonzeros(row_ptr, parts, row_cost=row_cost)
    assert edges[0] == 0 and edges[-1] == len(lengths) and (np.diff(edges) >= 0).all()
    cost = row_ptr + row_cost * np.arange(len(row_ptr))
    spent = np.diff(cost[edges])
    assert spent.sum() == cost[-1]
    assert spent.max() <= cost[-1] / parts + max(lengths) + row_cost + 1e-9


def test_empty_rows_are_shared_as_well():
    row_ptr = np.minimum(np.arange(1001), 10)
    assert partition.by_nonzeros(row_ptr, 2).tolist() == [0, 495, 1000]
    assert partition.by_nonzeros(row_ptr, 2, row_cost=0.0).tolist()[1] == 5


def test_what_all_ranks_must_bring_alike_is_asked_of_each():
    others = SimpleNamespace(gather=lambda mine: [mine, mine, mine | {"n": 5}])
    with pytest.raises(ValueError, match="n is 4 on rank 0, but 5 on rank 2"):
        same(others, m=3, n=4)


def test_long_rows_first_are_cut_by_non_zeros_and_not_by_rows():
    lengths = np.array([90] + [1] * 90)
    row_ptr = np.concatenate([[0], np.cumsum(lengths)])
    assert partition.by_nonzeros(row_ptr, 2, row_cost=0).tolist() == [0, 1, 91]
    assert partition.imbalance(row_ptr, np.array([0, 1, 91])) == 1.0
    assert partition.imbalance(row_ptr, np.array([0, 45, 91])) > 1.4


@given(st.integers(0, 1000), st.integers(1, 9), st.sampled_from((1, 8, 64)))
def test_even_parts_differ_by_a_unit(size, parts, unit):
    edges = partition.even(size, parts, unit)
    assert edges[0] == 0 and edges[-1] == size
    assert all(e % unit == 0 for e in edges[:-1])
    assert max(np.diff(edges)) - min(np.diff(edges)) <= 2 * unit


def test_a_grid_is_1d_at_both_ends_and_refuses_what_does_not_divide():
    assert (Grid(4).rows, Grid(4, 4).rows, Grid(4, 2).rows) == (4, 1, 2)
    assert [Grid(4, 2).at(rank) for rank in range(4)] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    with pytest.raises(ValueError, match="replicas is 3, but must divide the 4 parts"):
        Grid(4, 3)


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
    with pytest.raises(ValueError, match=says):
        partition.require_bounds("rows", bounds, 2, 8, 2)


def test_edges_at_the_end_cut_no_block_even_if_the_last_one_is_short():
    assert partition.require_bounds("rows", [0, 64, 100, 100], 3, 100, 64).tolist() == [
        0,
        64,
        100,
        100,
    ]
    with pytest.raises(ValueError, match="blocks of 64 rows must stay whole"):
        partition.require_bounds("rows", [0, 64, 99, 100], 3, 100, 64)


# ---------------------------------------------------------------- what travels


def needs(a, rows, columns, p: int) -> set[int]:
    """What part p names and does not have, by the definition."""
    named = set(a.indices[a.indptr[rows[p]] : a.indptr[rows[p + 1]]].tolist())
    return named - set(range(columns[p], columns[p + 1]))


@pytest.mark.parametrize("parts", [1, 2, 5])
def test_volumes_are_what_parts_name(parts):
    a = matrix(60, 60, 0.05)
    rows = partition.by_nonzeros(a.indptr, parts)
    columns = partition.even(60, parts)
    table = exchange.volumes(a.indptr, a.indices, rows, columns)
    for p in range(parts):
        assert table[p].sum() - table[p, p] == len(needs(a, rows, columns, p))
    assert exchange.sent(table) <= exchange.gathered(columns) == 60 * (parts - 1)


@pytest.mark.parametrize("parts", [1, 2, 5])
def test_the_exchange_brings_each_named_row_once_and_no_other(parts):
    a = matrix(60, 60, 0.05)
    edges = partition.by_nonzeros(a.indptr, parts)

    def work(comm):
        mine = a.indices[a.indptr[edges[comm.rank]] : a.indptr[edges[comm.rank + 1]]]
        return exchange.exchange([mine], edges, comm), mine

    found = run_threads(parts, work)
    table = exchange.volumes(a.indptr, a.indices, edges, edges)
    for p, (of, mine) in enumerate(found):
        assert set(of.received.tolist()) == needs(a, edges, edges, p)
        assert len(of.received) == len(set(of.received.tolist()))
        assert of.recv_counts.tolist() == [0 if q == p else table[p, q] for q in range(parts)]
        (places,) = exchange.compact([mine], 60, of.own, of.received)
        names = np.concatenate([np.arange(*of.own), of.received])
        assert (names[places] == mine).all()
    for p, (of, _) in enumerate(found):
        for q, there in enumerate(exchange.split(of.send, of.send_counts)):
            got = exchange.split(found[q][0].received, found[q][0].recv_counts)[p]
            assert (there + edges[p] == got).all()


def test_a_domain_that_gets_each_row_once_is_sent_less():
    a = matrix(80, 80, 0.2)
    edges = partition.by_nonzeros(a.indptr, 8)
    apart, once = exchange.between(a.indptr, a.indices, edges, edges, 4)
    first = np.concatenate([[0], edges[[4, 8]]])
    needed = [needs(a, first, first, p) for p in range(2)]
    assert once == sum(map(len, needed)) < apart
    table = exchange.volumes(a.indptr, a.indices, edges, edges)
    assert exchange.between(a.indptr, a.indices, edges, edges, 1) == (exchange.sent(table),) * 2
    assert exchange.between(a.indptr, a.indices, edges, edges, 8) == (0, 0)
