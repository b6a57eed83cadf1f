"""Which steps of which tiles each block multiplies: all of them once, evenly, and no wait without an end."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.nm_spmm import schedule


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
each = settings(deadline=None, max_examples=150)


def checks(test):
    """test(work) on the sizes above and on what hypothesis finds."""
    return each(given(work=st.one_of(WORK, EVEN, st.sampled_from(KNOWN)))(test))


@checks
def test_every_step_is_multiplied_once_evenly_and_whole_waves_are_left_alone(work):
    """Cut are the tiles beyond whole waves and one wave more; none where there are none beyond."""
    tiles_m, tiles_n, steps, blocks = work
    tiles, table = tiles_m * tiles_n, schedule.parts(*work)
    times, found = np.zeros((tiles_m, tiles_n, steps), int), lists(table)
    for parts in found:
        for p in parts:
            assert p.steps > 0 and p.first + p.steps <= steps
            times[p.x, p.y, p.first : p.first + p.steps] += 1
    assert (times == 1).all()
    totals = [sum(p.steps for p in parts) for parts in found]
    assert max(totals) - min(totals) <= (tiles % blocks > 0)
    least = schedule.LEAST_STEPS
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
    found = lists(schedule.parts(*work))
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


# ------------------------------------------------------------------------------------------ by hand


def test_three_tiles_of_four_steps_on_two_blocks():
    """Six steps each; tile 1 is cut in the middle, and its head is multiplied first."""
    assert schedule.parts(3, 1, 4, 2).tolist() == [
        [[1, 0, 0, -1], [0, 0, 2, 0], [0, 0, 6, 0]],
        [[2, 0, 0, 0], [1, 2, 4, 1], [0, 0, 6, 0]],
    ]


def test_one_tile_of_nine_steps_on_many_blocks():
    """Three blocks, as a smaller share is not worth the workspace; the last adds up what two others gave."""
    assert schedule.parts(1, 1, 9, 132).tolist() == [
        [[0, 0, 0, -1], [0, 0, 3, 0]],
        [[0, 3, 0, -1], [0, 0, 3, 0]],
        [[0, 6, 0, 2], [0, 0, 3, 0]],
    ]


@pytest.mark.parametrize("m,n", [(1 << 15, 1), (1, 1 << 15), (40_000, 2)])
def test_more_tiles_than_a_part_can_name_are_refused(m, n):
    with pytest.raises(ValueError, match=f"^C has {m} x {n} tiles, .*: multiply in several") as caught:
        schedule.parts(m, n, 1, 132)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("m,n", [((1 << 15) - 1, 1), (1, (1 << 15) - 1)])
def test_as_many_tiles_as_a_part_can_name(m, n):
    found = [p[:2] for parts in lists(schedule.parts(m, n, 2, 1000)) for p in parts]
    assert {x for x, _ in found} == set(range(m)) and {y for _, y in found} == set(range(n))


# ----------------------------------------------------------------------------------- as the kernel


BM, BN, DEPTH, STAGES = 2, 3, 2, 3


class Machine:
    """stream.cu on NumPy: blocks that follow a table, a workspace full of NaN, flags, and waits."""

    def __init__(self, a: np.ndarray, b: np.ndarray, blocks: int):
        (m, k), n = a.shape, b.shape[1]
        tiles_m, tiles_n, self.steps = -(-m // BM), -(-n // BN), -(-k // DEPTH)
        self.a = np.pad(a, ((0, tiles_m * BM - m), (0, self.steps * DEPTH - k)))
        self.b = np.pad(b, ((0, self.steps * DEPTH - k), (0, tiles_n * BN - n)))
        self.table = schedule.parts(tiles_m, tiles_n, self.steps, blocks)
        self.c = np.full((tiles_m * BM, tiles_n * BN), np.nan)
        self.partial = np.full((len(self.table), BM, BN), np.nan)
        self.ready = np.zeros(len(self.table), int)

    def where(self, block: int, part: int, position: int) -> tuple[int, int, int]:
        """Tile and step at a position of a block's list, searched from its current part on."""
        rows = self.table[block]
        while rows[part + 1][2] <= position:
            part += 1
        tile, first, start, _ = rows[part].tolist()
        return tile & 0xFFFF, tile >> 16, first + position - start

    def run(self, block: int):
        """A block; it yields when it has to wait, and after each of its parts."""
        rows, part = self.table[block], 0
        total = rows[-1][2]
        stages = {s: self.where(block, 0, s) for s in range(min(STAGES, total))}  # ahead of itself
        while rows[part][2] < total:
            others = rows[part][3]
            acc = np.zeros((BM, BN))
            for position in range(rows[part][2], rows[part + 1][2]):
                x, y, step = stages.pop(position)
                at = slice(step * DEPTH, (step + 1) * DEPTH)
                acc += self.a[x * BM : (x + 1) * BM, at] @ self.b[at, y * BN : (y + 1) * BN]
                if position + STAGES < total:
                    stages[position + STAGES] = self.where(block, part, position + STAGES)
            part += 1
            for other in range(block - others, block) if others > 0 else ():
                while not self.ready[other]:
                    yield "waits"
                acc += self.partial[other]
                self.ready[other] = 0
            if others < 0:
                assert not self.ready[block], "its place in the workspace is still in use"
                self.partial[block], self.ready[block] = acc, 1
            else:
                tile = self.c[x * BM : (x + 1) * BM, y * BN : (y + 1) * BN]
                assert np.isnan(tile).all(), "a tile is written once"
                tile[:] = acc
            yield "goes on"
        assert not stages, "everything that was fetched is multiplied"


def finish(machine: Machine, resident: int, rng: np.random.Generator) -> None:
    """All blocks to their end, `resident` at a time: they start in order, and go on in any."""
    waiting, running, stuck = list(range(len(machine.table))), {}, set()
    while waiting or running:
        while waiting and len(running) < resident:
            block = waiting.pop(0)
            running[block] = machine.run(block)
        block = int(rng.choice(list(running)))
        said = next(running[block], "is done")
        stuck = stuck | {block} if said == "waits" else set()
        assert stuck < set(running) or not running, "all that run wait for one that does not"
        if said == "is done":
            del running[block]


@given(
    m=st.integers(1, 17),
    n=st.integers(1, 17),
    k=st.integers(1, 40),
    blocks=st.integers(1, 12),
    resident=st.integers(1, 12),
    seed=st.integers(0, 2**32 - 1),
)
@each
def test_blocks_that_follow_the_table_give_the_product(m, n, k, blocks, resident, seed):
    """Even where fewer blocks run at a time than the table is for, in whatever order they go on."""
    rng = np.random.default_rng(seed)
    a, b = rng.integers(-9, 10, (m, k)), rng.integers(-9, 10, (k, n))
    machine = Machine(a.astype(float), b.astype(float), blocks)
    finish(machine, resident, rng)
    assert (machine.c[:m, :n] == a @ b).all() and not machine.ready.any()


def test_the_simulation_sees_a_wrong_table():
    """A block that counts one of its helpers less, one more, and a list that is a step off."""
    rng = np.random.default_rng(0)
    a, b = rng.integers(1, 9, (4, 60)).astype(float), rng.integers(1, 9, (60, 3)).astype(float)
    right = Machine(a, b, 7)
    taking = [(x, y) for x, y in np.argwhere(right.table[:, :, 3] > 0)]
    (block, part), giving = taking[-1], np.argwhere(right.table[:, :, 3] < 0)[0]
    for at, change in (((block, part, 3), -1), ((*giving, 1), 1)):
        machine = Machine(a, b, 7)
        machine.table[at] += change
        finish(machine, 7, rng)
        assert (machine.c != a @ b).any() or machine.ready.any()
    machine = Machine(a, b, 7)
    machine.table[block, part, 3] += 1
    with pytest.raises(AssertionError, match="wait"):
        finish(machine, 7, rng)
