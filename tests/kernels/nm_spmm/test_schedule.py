"""Which steps of which tiles each block multiplies: all of them once, evenly, and no wait without an end."""

from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from refused import says

from kernels.nm_spmm import launch


class Part(NamedTuple):
    x: int  #: row of tiles
    y: int  #: column of tiles
    first: int  #: step
    steps: int
    start: int  #: steps of the block before it
    others: int


def lists(table: np.ndarray) -> list[list[Part]]:
    """The parts of every block, read as stream.cu reads them: a part ends where the next one starts."""
    found = []
    for rows in table.tolist():
        total, parts = rows[-1][2], []
        for (tile, first, start, others), (_, _, end, _) in zip(rows, rows[1:], strict=False):
            if start < total:
                parts.append(Part(tile & 0xFFFF, tile >> 16, first, end - start, start, others))
        found.append(parts)
    return found


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
    times, found = np.zeros((tiles_m, tiles_n, steps), int), lists(table)
    for parts in found:
        for p in parts:
            assert p.steps > 0 and p.first + p.steps <= steps
            times[p.x, p.y, p.first : p.first + p.steps] += 1
    assert (times == 1).all()
    totals = [sum(p.steps for p in parts) for parts in found]
    assert max(totals) - min(totals) <= (tiles % blocks > 0)
    least = launch.LEAST_STEPS
    assert len(table) == (blocks if tiles >= blocks else max(1, min(blocks, tiles * steps // least)))
    assert min(totals) >= (1 if tiles >= blocks else min(least, tiles * steps)), "no share that does not pay"
    waves, rest = divmod(tiles, blocks)
    cut = {p.y * tiles_m + p.x for parts in found for p in parts if p.steps < steps}
    assert not cut or (rest and max(cut) < rest + blocks * (waves > 0))
    # int32 (blocks, most, 4) as the kernel's struct; every list ends with at least one part of no steps.
    assert table.dtype == np.int32 and table.flags.c_contiguous
    assert table.shape == (len(found), 1 + max(map(len, found)), 4)
    for rows, parts, total in zip(table, found, totals, strict=True):
        assert (rows[len(parts) :] == (0, 0, total, 0)).all()
        starts = rows[: len(parts) + 1, 2]
        assert starts[0] == 0 and (np.diff(starts) > 0).all(), "the kernel searches them"


@checks
def test_what_is_given_is_taken_once_by_who_waits_for_nobody_that_waits(work):
    """Who gives does it first, who takes does it after its share, from the blocks just before, in the order of the
    tile's steps: a sum's order is always the same."""
    _, _, steps, _ = work
    found = lists(launch.parts(*work))
    given_to, taken = {b: parts[0] for b, parts in enumerate(found) if parts[0].others < 0}, []
    for block, parts in enumerate(found):
        assert all(p.others >= 0 for p in parts[1:]), "one part goes to the workspace, the first"
        assert (parts[0].others < 0) == (parts[0].first + parts[0].steps < steps)
        takes = [i for i, p in enumerate(parts) if p.others > 0]
        assert len(takes) <= 1
        for p in parts[takes[0] + 1 :] if takes else ():
            assert (p.first, p.steps, p.others) == (0, steps, 0), "then only whole tiles"
        for p in parts:
            assert p.others < 0 or p.first + p.steps == steps, "who writes C has the last step"
            assert (p.others > 0) == (p.others >= 0 and p.first > 0), "and takes what it lacks"
        for p in (parts[i] for i in takes):
            before, step = range(block - p.others, block), 0
            assert before.start >= 0, "only blocks of lower number, which start no later"
            for b in before:
                assert given_to[b][:3] == (p.x, p.y, step)
                step += given_to[b].steps
            assert step == p.first
            taken += before
    assert sorted(taken) == sorted(given_to), "flags end as they began"


@pytest.mark.parametrize(("m", "n"), [(1 << 15, 1), (1, 1 << 15)])
def test_a_part_can_name_so_many_tiles_and_no_more(m, n):
    says([f"{m} x {n} tiles"], lambda: launch.parts(m, n, 1, 132))
    most = m - (m > 1), n - (n > 1)
    found = [p[:2] for parts in lists(launch.parts(*most, 2, 1000)) for p in parts]
    assert {x for x, _ in found} == set(range(most[0])) and {y for _, y in found} == set(range(most[1]))
