"""Cuts cover every row once, are balanced by non-zeros, and keep blocks whole."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels.distributed import partition

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
    with pytest.raises(ValueError, match=says):
        partition.require_bounds("rows", bounds, 2, 8, 2)
