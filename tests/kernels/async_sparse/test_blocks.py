"""Blocks on any GPU, `blocks_mma`: what the compiler makes of it for every family, its tiles and rings, its launch."""

from __future__ import annotations

import itertools
import math
import re

import compiled
import numpy as np
import pytest
import racing
from pretend import as_array, pretended  # noqa: F401
from refused import says

from kernels import async_sparse as room
from kernels import jit
from kernels.async_sparse import blocks, family, operands
from kernels.async_sparse.blocks import Tile
from kernels.async_sparse.family import Shape
from kernels.contract import Operands
from kernels.formats import bcsr
from kernels.formats.half import Half

KERNEL = room.VARIANTS[blocks.NAME]
#: Bytes of shared memory of a block, by compute capability, and of an SM.
SHARED = {(8, 0): 166_912, (8, 6): 101_376, (9, 0): 232_448, (10, 0): 232_448, (12, 0): 101_376}


@pytest.fixture(scope="module")
def reports():
    jobs = ((KERNEL.source, entry) for entry in KERNEL.entries)
    return compiled.reports(compiled.cubins(jobs, jit.FAMILIES))


def test_every_family_compiles_it_without_spills_and_two_blocks_share_an_sm(reports):
    assert len(reports) == len(KERNEL.entries) * len(jit.FAMILIES)
    for (entry, target), (used, _) in reports.items():
        assert not used.spills, f"{entry} on {target}: {used}"
        registers = math.ceil(used.registers / 8) * 8
        assert registers * blocks.THREADS * blocks.TOGETHER <= 65536, f"{entry} on {target}"


def test_it_is_copies_of_16_bytes_ldmatrix_and_tensor_cores(reports):
    for (entry, target), (_, mix) in reports.items():
        _, bm, _, b_cols, c_cols, bn, _ = re.findall(r"[^<>, ]+", entry)[1:]
        ops = {name: {op for op in mix if op.startswith(name)} for name in ("LDGSTS", "LDSM", "HMMA")}
        assert all(".128" in op and "BYPASS" in op for op in ops["LDGSTS"]) and ops["LDGSTS"]
        assert all(op.startswith("HMMA.16816.F32") for op in ops["HMMA"])
        # A warp's part in a step of 32: a fourth of the tile, 16 x 8 at a time.
        work = int(bm) * int(bn) // 4 // (16 * 8) * 2
        assert sum(mix[op] for op in ops["HMMA"]) == work, f"{entry} on {target}"
        assert all(op.endswith(".4") for op in ops["LDSM"])
        assert any(".MT88" in op for op in ops["LDSM"]) == (b_cols == "false"), "B is transposed"
        assert any(op.startswith("MOVM") for op in mix) == (c_cols == "true"), "C is transposed"
        assert not any(op.startswith(("RED", "ATOM")) for op in mix), "sums have one order"


@pytest.mark.parametrize("most", SHARED.values(), ids=map(str, SHARED))
@pytest.mark.parametrize("b_row", bcsr.SIDES)
def test_two_rings_fit_an_sm(b_row, most):
    for columns in blocks.widths(b_row):
        tile = blocks.filled(columns, b_row, most)
        need = blocks.shared_bytes(tile, b_row)
        assert blocks.TOGETHER * (need + blocks.DRIVER) <= most + blocks.DRIVER
        assert 2 <= tile.stages <= blocks.MOST_STAGES and need <= most
        # As deep as it may be: the source wants room for C in the ring, which two stages of 128 x 128 have not.
        assert tile.stages >= (3 if b_row == 128 and columns == 128 else 2)


def test_every_tile_is_one_that_the_source_takes():
    """Its static assertions hold for each pair of orders, block and width, in the shortest ring of any GPU."""
    jobs = []
    for b_row, (b, c) in itertools.product(bcsr.SIDES, (("C", "C"), ("F", "F"))):
        for columns in blocks.widths(b_row):
            shape = Shape("bfloat16", b_row, 16 if b == "C" else 64, b, c)
            jobs.append((blocks.SOURCE, blocks.entry(blocks.filled(columns, b_row, 101_376), shape)))
    assert len(compiled.cubins(jobs, ["sm_86"])) == len(jobs)


def test_a_ring_too_short_for_c_does_not_compile():
    shape = Shape("bfloat16", 128, 64, "C", "C")
    with pytest.raises(jit.CompileError, match="C leaves through the ring"):
        jit.compile_cubin(blocks.SOURCE, blocks.entry(Tile(128, 2), shape), "sm_86")


@pytest.mark.parametrize("device", [racing.A100, racing.L4, racing.H200, racing.B200])
def test_a_wide_tile_for_many_columns_and_a_narrow_one_for_few(device):
    shape = Shape("bfloat16", 64, 64, "F", "C")
    assert blocks.chosen(shape, 1658, 296, 16384, device).columns == 256
    assert blocks.chosen(shape, 1658, 296, 16, device).columns == 64
    tall = Shape("bfloat16", 128, 128, "F", "C")
    assert blocks.chosen(tall, 400, 148, 16384, device).columns == 128
    assert blocks.chosen(shape, 0, 1, 8, device).columns == 64, "nothing to multiply"


def problem(m, n, k, dtype="bfloat16", layout="source", block=64, density=0.4):
    """A problem whose arrays pretend to be on a GPU."""
    p = room.problem(m, n, k, density, 0, block=block, dtype=dtype, layout=layout)
    a, b = p.host().a, p.host().b
    a = bcsr.Bcsr(a.m, a.k, a.dtype, *map(as_array, (a.row_ptr, a.col_idx, a.val)), a.nnz)
    c = np.zeros((n, m) if operands.LAYOUTS[layout][1] == "F" else (m, n), np.uint16)
    c = c.T if operands.LAYOUTS[layout][1] == "F" else c
    whole = Operands(a, Half(dtype, as_array(b.bits)), Half(dtype, as_array(c)))
    p._device = whole
    return p


@pytest.mark.parametrize("layout", operands.LAYOUTS)
@pytest.mark.parametrize("block", [64, (128, 16), 16])
def test_a_launch_has_a_block_for_every_tile_and_writes_c_where_it_lies(
    layout,
    block,
    pretended,  # noqa: F811
):
    device = pretended(racing.A100)
    p = problem(300, 1000, 200, layout=layout, block=block)
    bound = room.bind("blocks_mma", p, device)
    ops, (b_order, c_order) = p.device(), operands.LAYOUTS[layout]
    ((kernel, config, arguments),) = bound.steps
    shape = blocks.shape_of(p)
    assert (shape.b_order, shape.c_order) == (b_order, c_order)
    tile = blocks.chosen(shape, ops.a.blocks, ops.a.block_rows, 1000, device)
    assert kernel == f"blocks_mma: {blocks.entry(tile, shape)}"
    panels = math.ceil(1000 / tile.columns)
    assert config.grid == ops.a.block_rows * panels and config.block == 128
    assert config.shmem_size == blocks.shared_bytes(tile, shape.b_row)
    assert arguments[3] == ops.b.bits.data.ptr and arguments[5] == ops.c.bits.data.ptr
    assert arguments[4] == (200 if b_order == "F" else 1000)
    assert arguments[6] == (300 if c_order == "F" else 1000)
    assert tuple(arguments[7:12]) == (300, 1000, 200, panels, ops.a.block_rows)
    assert 1 <= arguments[12] <= panels


@pytest.mark.parametrize(("layout", "n", "k"), [("row", 1001, 200), ("source", 1000, 203)])
def test_lines_of_b_that_are_not_aligned_are_copied_and_those_of_c_are_not(
    layout,
    n,
    k,
    pretended,  # noqa: F811
):
    p = problem(301, n, k, layout=layout)
    bound = room.bind("blocks_mma", p, pretended(racing.L4))
    copy, (_, _, arguments) = bound.steps
    assert p.device().b.bits.data.ptr in copy[2] and arguments[3] != p.device().b.bits.data.ptr
    assert arguments[4] % 8 == 0 and arguments[5] == p.device().c.bits.data.ptr
    assert [x.data.ptr for x in bound.scratch] == [arguments[3]], "launches share the copy"


def test_float32_is_refused():
    p = room.problem(64, 64, 64, 1.0, 0, dtype="tf32")
    p._device = p.host()
    p._device.c = np.zeros((64, 64), np.float32)
    says(["blocks_mma", "float32"], lambda: blocks.bind("blocks_mma", p, racing.A100))


def test_hoppers_own_kernels_name_it_elsewhere():
    p = room.problem(64, 64, 64, 1.0, 0)
    p._device = p.host()
    says(["wgmma", "blocks_mma"], lambda: room.bind("unit_ring", p, racing.A100))
    assert family.TARGETS == ("sm_90a",) and KERNEL.targets == jit.TARGETS
