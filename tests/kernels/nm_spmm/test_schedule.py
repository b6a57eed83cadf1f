"""Which steps of which tiles each block multiplies: all of them once, evenly, and no wait without an end."""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from refused import says

from kernels.nm_spmm import launch


def flat(table: np.ndarray) -> np.ndarray:
    """(block, row of tiles, column, first step, steps, steps before, others) of every part, each one's in order.

    As stream.cu reads them: a part ends where the next one starts.
    """
    steps = np.diff(table[:, :, 2], axis=1)
    block, place = np.nonzero(steps > 0)
    tile, first, start, others = table[block, place].T
    return np.stack([block, tile & 0xFFFF, tile >> 16, first, steps[block, place], start, others], axis=1)


#: tiles along m and n, steps of a tile, blocks. Few tiles, and as many tiles as blocks, are as likely as others.
WORK = st.tuples(st.integers(1, 24), st.integers(1, 24), st.integers(1, 70), st.integers(1, 140))
EVEN = st.builds(
    lambda x, y, steps, waves: (x * waves, y, steps, x * y),
    st.integers(1, 12),
    st.integers(1, 12),
    st.integers(1, 70),
    st.integers(1, 4),
)
#: 4096 cubed, 133 tiles, 132, 131 and 8 of 64 steps on 132 multiprocessors; more blocks than steps.
KNOWN = (
    (32, 16, 64, 132),
    (133, 1, 6, 132),
    (132, 1, 6, 132),
    (131, 1, 6, 132),
    (4, 2, 64, 132),
    (3, 2, 1, 132),
)


def checks(test):
    """test(work) on the sizes above and on what hypothesis finds."""
    work = st.one_of(WORK, EVEN, st.sampled_from(KNOWN))
    return settings(deadline=None, max_examples=150)(given(work=work)(test))


@checks
def test_every_step_is_multiplied_once_evenly_and_whole_waves_are_left_alone(work):
    """Cut are the tiles beyond whole waves and one wave more; none where there are none beyond."""
    tiles_m, tiles_n, steps, blocks = work
    tiles, table = tiles_m * tiles_n, launch.parts(*work)
    times, found = np.zeros((tiles_m, tiles_n, steps), int), flat(table)
    for _, x, y, first, length, _, _ in found:
        assert first + length <= steps
        times[x, y, first : first + length] += 1
    assert (times == 1).all()
    totals, least, (waves, rest) = table[:, -1, 2], launch.LEAST_STEPS, divmod(tiles, blocks)
    assert np.ptp(totals) <= (rest > 0)
    assert len(table) == (blocks if waves else max(1, min(blocks, tiles * steps // least)))
    assert totals.min() >= (1 if waves else min(least, tiles * steps)), "no share that does not pay"
    cut = (found[:, 2] * tiles_m + found[:, 1])[found[:, 4] < steps]
    assert not cut.size or (rest and cut.max() < rest + blocks * (waves > 0))
    # int32 (blocks, most, 4) as the kernel's struct; every list ends with at least one part of no steps.
    counts = np.bincount(found[:, 0], minlength=len(table))
    assert table.dtype == np.int32 and table.flags.c_contiguous and table.shape == (len(table), 1 + counts.max(), 4)
    for rows, count, total in zip(table, counts, totals, strict=True):
        assert (rows[count:] == (0, 0, total, 0)).all() and rows[0, 2] == 0
        assert (np.diff(rows[: count + 1, 2]) > 0).all(), "the kernel searches them"


@checks
def test_what_is_given_is_taken_once_by_who_waits_for_nobody_that_waits(work):
    """Who gives does it first, who takes does it after its share, from the blocks just before, in the order of the
    tile's steps: a sum's order is always the same."""
    steps, parts = work[2], flat(launch.parts(*work))
    given_to, taken = {row[0]: row for row in parts.tolist() if row[6] < 0}, []
    for block in range(parts[-1, 0] + 1):
        _, _, _, first, length, start, others = mine = parts[parts[:, 0] == block].T
        assert ((others < 0) == (first + length < steps)).all(), "who writes C has the last step"
        assert not (others[1:] < 0).any(), "one part goes to the workspace, the first"
        assert ((others > 0) == ((others >= 0) & (first > 0))).all(), "and who lacks steps takes them"
        takes = np.flatnonzero(others > 0)
        assert len(takes) <= 1
        for at in takes.tolist():
            assert (mine[3:5, at + 1 :].T == (0, steps)).all() and not others[at + 1 :].any(), "then only whole tiles"
            before, step = range(block - others[at], block), 0
            assert before.start >= 0, "only blocks of lower number, which start no later"
            for b in before:
                assert given_to[b][1:4] == [*mine[1:3, at], step]
                step += given_to[b][4]
            assert step == first[at]
            taken += before
    assert sorted(taken) == sorted(given_to), "flags end as they began"


@pytest.mark.parametrize(("m", "n"), [(1 << 15, 1), (1, 1 << 15)])
def test_a_part_can_name_so_many_tiles_and_no_more(m, n):
    says([f"{m} x {n} tiles"], lambda: launch.parts(m, n, 1, 132))
    most = m - (m > 1), n - (n > 1)
    found = flat(launch.parts(*most, 2, 1000))
    assert set(found[:, 1]) == set(range(most[0])) and set(found[:, 2]) == set(range(most[1]))
