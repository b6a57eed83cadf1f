"""union_rows without a GPU: groups as the kernel reads them, what is refused, what the compiler makes of it."""

from __future__ import annotations

import math

import compiled
import numpy as np
import pytest
from compiled import count
from test_operands import pattern

from kernels import async_sparse as room
from kernels import jit
from kernels.async_sparse import tasks, union
from kernels.async_sparse.union import Union
from kernels.formats import csr

EVERY = [
    Union(rows, vec, loads, unroll)
    for rows in union.HEIGHTS
    for vec in union.VECTORS
    for loads in (1, 2)
    for unroll in (4, 8)
    if (rows * loads, loads * unroll) in union.BLOCKS
]


#: The room's kernels of groups, and what they declare.
OF_GROUPS = [room.VARIANTS[name] for name in ("union_rows", "union_half", "auto_fp32", "auto_half")]
DECLARED = {(kernel.source, entry) for kernel in OF_GROUPS for entry in kernel.entries}
HALVES = [Union(rows, unroll=unroll) for rows, unroll in union.HALF_BLOCKS]


@pytest.mark.parametrize("rows", union.HEIGHTS)
@pytest.mark.parametrize("order", tasks.ORDERS)
@pytest.mark.parametrize("chunk", [-1, 0, 32])
def test_tasks_make_up_the_matrix(rows, order, chunk):
    """What the kernel does with the arrays: task by task, row of a group by row."""
    a = pattern(203, 150, 1)
    made = union.prepare(a, Union(rows, chunk=chunk, order=order))
    val = made.val.reshape(-1, rows)
    places = np.arange(a.m) if made.order is None else made.order
    found = np.zeros((a.m, a.k), np.float32)
    for group, first, end, _ in made.work.table:
        for column in range(first, end):
            for r in range(min(rows, a.m - group * rows)):
                found[places[group * rows + r], made.col_idx[column]] += val[column, r]
    assert np.array_equal(found, csr.to_dense(a))
    assert (made.order is None) == (order == "")
    if rows == 1 and not order:
        assert made.col_idx is a.col_idx and made.made == 0


def test_a_task_has_four_times_the_average_group_at_most():
    assert union.chunk_of(Union(), 1000, 100) == 64  # of 40, whole steps
    assert union.chunk_of(Union(), 0, 0) == tasks.STEP
    assert union.chunk_of(Union(chunk=0), 1000, 100) == 0


def test_blocks_have_several_tasks_a_warp_where_there_are_many():
    assert union.per_block(100, 792, 2000) == union.WARPS
    assert union.per_block(10**7, 792, 2000) == union.WARPS * union.MOST_TASKS


def test_blocks_have_fewer_tasks_the_longer_they_are():
    loads = [512 * x for x in (0, 7, 27, 36, 120, 5000)]
    assert [union.per_block(10**7, 792, x) // union.WARPS for x in loads] == [8, 8, 3, 2, 1, 1]
    with_cuts = [union.per_block(10**7, 792, x, 5) // union.WARPS for x in loads[2:]]
    assert with_cuts == [2, 2, 1, 1], "a power of 2, as tasks.in_blocks lays them"


def test_refusals():
    with pytest.raises(ValueError, match="^union_rows is not made for groups of 3 rows with 1 loads"):
        union.bind("union_rows", None, None, Union(3))
    with pytest.raises(ValueError, match="^rows are ordered by 'rcm', but must be by one of"):
        tasks.ordered(pattern(8, 8), "rcm")


def test_loads_divide_n():
    for n, vec in ((4, 4), (6, 2), (7, 1), (256, 4)):
        assert union.fitted(Union(), n).vec == vec
    assert union.fitted(Union(vec=1), 8).vec == 1


def test_every_trial_can_be_made():
    for name, (config, said) in union.TRIALS.items():
        assert said and name.startswith("union_rows_")
        assert union.entry(config) in {union.entry(c) for c in EVERY}


@pytest.fixture(scope="module")
def reports():
    jobs = [(union.SOURCE, union.entry(config)) for config in EVERY]
    jobs += [(union.HALF_SOURCE, union.entry(c, d)) for c in HALVES for d in ("bfloat16", "float16")]
    made = compiled.cubins(jobs, ("sm_90a",))
    made |= compiled.cubins(DECLARED, jit.TARGETS)
    return compiled.reports(made)


def test_no_kernel_spills_and_as_many_blocks_share_an_sm_as_it_says(reports):
    blocks = {union.entry(config): union.blocks_of(config) for config in EVERY}
    blocks |= {union.entry(c, "float16"): union.blocks_of(c, "float16") for c in HALVES}
    for (entry, target), (used, mix) in reports.items():
        # A register may be spilled outside the inner loop; elsewhere than on Hopper, for which it is tuned, a few.
        most = 4 if target == "sm_90a" else 16
        assert used.spill_loads <= most and mix["EXIT"], f"{entry} for {target}: {used}"
        if entry in blocks:
            held = math.ceil(used.registers / 8) * 8 * 32 * union.WARPS
            assert blocks[entry] * held <= 65536, f"{entry} for {target}: {used}"


@compiled.exact
def test_a_kernel_is_called_free_of_spills_where_it_is(reports):
    """On every target: neither kernel is, and elements of a group's rows are not what is put aside."""
    for kernel in OF_GROUPS:
        used = [reports[entry, arch][0] for entry in kernel.entries for arch in kernel.targets]
        assert kernel.spill_free != any(x.spills for x in used), kernel.name


def test_16_bits_hold_twice_the_columns(reports):
    """Of as many loads: 8 multiply-adds for each row of a group, and C stored in as many instructions."""
    for rows in (2, 4):
        _, mix = reports[union.entry(Union(rows), "bfloat16"), "sm_90a"]
        assert count(mix, "FFMA") == 4 * 8 * rows
        assert count(mix, "STG", 128) >= rows
    assert union.columns_of(Union(), "float16") == 2 * union.columns_of(Union())


def test_a_row_of_b_feeds_all_rows_of_a_group(reports):
    """Multiply-adds for each 16-byte load of B, besides those of columns and tasks."""
    for rows in (2, 4, 8):
        _, mix = reports[union.entry(Union(rows)), "sm_90a"]
        assert count(mix, "FFMA") == 4 * 4 * rows
