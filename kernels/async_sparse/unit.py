"""unit_ring made ready: blocks stacked to 64 rows, the order of block rows, tensor maps, the launch."""

from dataclasses import replace

from .. import jit
from ..contract import Launch, Problem, require, timed
from ..formats import bcsr, layout
from ..formats.bcsr import Bcsr
from ..formats.csr import Csr
from ..formats.half import array_module
from ..tma import tensor_map
from . import family, planning
from .family import LINE, ROWS, Unit
from .lines import lines


def stacked(a: Bcsr) -> Bcsr:
    """Return a with blocks of 64 rows where they are lower: blocks of neighbouring rows stacked, zeros between.

    A stacked block stands where any of its 64 / b_row blocks does: of blocks chosen at random, at density d
    a share of (1 - (1 - d)^s) / (s d) of what is multiplied is not zero, for s of them. A lies on a GPU.
    """
    b_row, _ = a.block
    if b_row >= ROWS:
        return a
    pattern = Csr(a.block_rows, a.block_columns, a.row_ptr, a.col_idx, a.val)  # of blocks
    first, row_ptr, count = planning.groups(pattern, ROWS // b_row)
    bcsr.require_blocks(count, ROWS)
    col_idx, val = layout.stacked(a, ROWS // b_row, first, row_ptr, count)
    return replace(a, row_ptr=row_ptr, col_idx=col_idx, val=val)


def prepare(name: str, problem: Problem, device, config: Unit) -> Launch:
    """Return a configuration ready to run. `prepare_ms` is the stacking and the order of block rows.

    Launches of one `Launch` share a counter of tiles: they must not overlap. Raises ValueError where the GPU has no
    wgmma, or the configuration does not take the problem.
    """
    import cupy

    require_hopper(name, device)
    shape = family.shape_of(problem)
    family.check(config, shape, device.properties.max_shared_memory_per_block_optin)
    operands = problem.device()
    (a, rows), prepare_ms = timed(lambda: _prepared(operands.a, config.longest_first))
    dense = lines(operands, device)
    grid, numbers = family.dealt(config, shape, problem.m, problem.n, problem.k, device)
    counters = cupy.zeros(2, cupy.uint32)
    k = LINE // shape.size // shape.pieces  # of a box
    b_box = (config.width, k) if shape.b_order == "F" else (k, 64)
    val = blocks_of(a)
    wide = family.box_columns(config.width, shape.size, shape.c_order)
    maps = (
        tensor_map(val, (ROWS, k), LINE // shape.pieces),
        tensor_map(dense.b, b_box, LINE // shape.pieces if shape.b_order == "F" else LINE),
        c_map(dense.c, wide, shape),
    )
    arguments = (
        *maps,
        rows.data.ptr,
        a.col_idx.data.ptr,
        counters.data.ptr,
        *numbers,
    )
    job = family.SOURCE, family.entry(config, shape)
    held = rows.nbytes + (a.nbytes if a is not operands.a else 0)
    keep, need = (a, val, rows, counters), family.shared_bytes(config, shape)
    how = device, (grid, family.THREADS), arguments, need, prepare_ms, held, keep, (counters,)
    return dense.bound(name, operands, job, *how)


def blocks_of(a: Bcsr):
    """Return the rows of all blocks, one after another, (blocks * b_row, b_col); of no block at all, one of zeros."""
    xp = array_module(a.val)
    val = a.val if a.blocks else xp.zeros((1, *a.block), a.val.dtype)
    if val.data.ptr % 16:
        val = val.copy()
    return val.reshape(-1, a.block[1])


def c_map(c, wide: int, shape):
    """Return the tensor map of C's boxes (output.cuh).

    `wide` columns of it, in lines of 128 bytes or of their width.
    """
    if shape.c_order == "F":
        return tensor_map(c, (wide, LINE // shape.size if shape.size == 4 else ROWS), LINE)
    width = wide * shape.size
    return tensor_map(c, (ROWS, wide), width if width > 16 else 0)


def require_hopper(name: str, device) -> None:
    """Raise ValueError, one sentence, where the GPU has no wgmma."""
    require(
        jit.arch_of(device) in family.TARGETS,
        f"{name} is made of wgmma, which compute capability 9.0 has and this GPU, "
        f"{'.'.join(map(str, device.compute_capability))}, has not: use blocks_mma, or opt0 in TF32",
    )


def _prepared(a: Bcsr, longest_first: bool):
    a = stacked(a)
    return a, layout.ordered_rows(a.row_ptr, longest_first)
