"""Sums in one order without a GPU: slots of parts, configurations, which kernels add by atomics."""

import re

import numpy as np
import pytest
import twins
from hypothesis import given
from hypothesis import strategies as st
from matrices import of_lengths
from pretend import pretended  # noqa: F401
from racing import H200

from kernels import jit
from kernels.async_sparse import any_csr, planning
from kernels.async_sparse.windows import Union, Windows
from kernels.autotune import choices
from kernels.autotune.__main__ import systems
from kernels.formats import csr
from kernels.library.routes import in_order

# ------------------------------------------------------------------------------------ slots


@given(st.lists(st.integers(0, 3000), max_size=30), st.sampled_from([32, 64, 256]), st.booleans())
def test_every_part_has_the_slot_that_the_kernel_finds(lengths, chunk, longest_first):
    """Parts of a window side by side, by their columns, whatever order tasks come in; and no slot but theirs."""
    row_ptr = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    work, _ = twins.tasks(row_ptr, chunk, longest_first=longest_first)
    parts = planning.parts(row_ptr, work.cut, chunk)
    cut = work.table[work.table[:, 3] >= 0]
    counted = np.bincount(cut[:, 3], minlength=len(work.cut)) if len(cut) else []
    if max([0, *counted]) < 3:
        assert parts is None, "the sum of two is the same either way round"
        return
    slot, _, first, columns = parts[cut[:, 3]].T
    mine = slot + (cut[:, 1] - first) // columns  # in_order.cuh
    assert sorted(mine) == list(range(parts[:, 1].sum()))
    assert (cut[np.argsort(mine), 1] == np.sort(cut[:, 1])).all()
    assert list(parts[:, 1]) == list(counted)


@pytest.mark.parametrize("longest, different", [(10, False), (64, False), (65, True), (3000, True)])
def test_kernels_differ_where_three_parts_or_more_meet(pretended, longest, different):  # noqa: F811
    """The sum of two is the same either way round: what is as it is stays the kernel that was chosen."""
    pretended(H200)
    a = csr.to_device(of_lengths([3] * 40 + [longest]))
    for config in (Union(1, chunk=32), Union(2, chunk=32), Windows(8, chunk=32)):
        ask = in_order(config)
        made = [c.convert(a, *(() if isinstance(c, Union) else (1, 1))) for c in (config, ask)]
        assert made[0].parts is None and (made[1].parts is not None) == different
        assert np.array_equal(made[0].work.table, made[1].work.table), "the same tasks"


# ------------------------------------------------------------------------------------ configurations


def every_family() -> list[choices.Choices]:
    return [*systems().values(), any_csr.CHOICES]


@pytest.mark.parametrize("system", every_family(), ids=lambda system: system.room)
def test_every_family_has_configurations_that_repeat(system):
    for make in system.families.values():
        config = in_order(make())
        assert type(config) is make and in_order(config) == config
        assert choices.parse_knobs(choices.knobs(config), make) == config
    for config in (Union(), Windows()):
        assert in_order(config) != config and "in_order" not in choices.knobs(config)


def test_whole_rows_are_in_order():
    assert in_order(Union(chunk=0)) == Union(chunk=0)
    assert [in_order(x) for x in ("split_rows", "any_n")] == ["in_flight", "any_n"]


#: Files that add float32 to memory in the order in which blocks come; what else counts in whole numbers.
ADDS = {
    "async_sparse/cut_windows.cuh",
    "async_sparse/union.cuh",
    "async_sparse/wcsr.cu",
    "casper_sparse/split_rows.cu",
    "nm_cuda_core/double_buffer.cu",
    "nm_cuda_core/verbatim_double_buffer.cu",
    "nm_spmm/spmm_tile.cuh",
}
COUNTS = {
    "async_sparse/opt6_atomic.cu",
    "async_sparse/opt6_stealing.cu",
    "async_sparse/planning.cu",
    "async_sparse/units.cuh",
    "formats/compress.cu",
    "formats/intake.cu",
    "autotune/compare.cu",
}


def test_it_is_known_which_kernels_add_by_atomics():
    """A new one must be told apart in `in_order`, or be known to count."""
    found = {
        str(path.relative_to(jit.ROOT))
        for path in jit.ROOT.rglob("*.cu*")
        if re.search(r"atomicAdd\(|red\.[a-z.]+\.v?4?\.?f32", path.read_text())
    }
    assert found == ADDS | COUNTS
