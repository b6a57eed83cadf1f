"""`blocks_mma` on a GPU, any from compute capability 8.0 on: exact products, and the same bits every time."""

from __future__ import annotations

import compiled
import numpy as np
import pytest
from test_async_gpu import NAN, SHAPES, case, numbers

from kernels import async_sparse as room
from kernels import gpu, jit
from kernels.async_sparse import blocks, operands
from kernels.async_sparse.blocks import Tile
from kernels.formats import bcsr

pytestmark = pytest.mark.gpu
DTYPES = ("bfloat16", "float16")
LAYOUTS = tuple(operands.LAYOUTS)
PAIRS = [(row, column) for row in bcsr.SIDES for column in bcsr.SIDES]


@pytest.fixture(scope="module")
def stream(device):
    yield device.create_stream()
    import cupy

    case.cache_clear()
    cupy.get_default_memory_pool().free_all_blocks()


def run(bound, device, stream) -> np.ndarray:
    """One launch into an output full of NaN; B's padded lines are full of NaN as well, until they are copied."""
    bound.result().bits.fill(NAN)
    padded = bound.keep[3]
    if len(bound.steps) > 1:
        padded.fill(NAN)
    device.sync()
    bound.launch(stream)
    stream.sync()
    return numbers(bound.result())


def check(made, device, stream, who: str, tile: Tile | None = None) -> None:
    made.check(run(blocks.bind(who, made.problem, device, tile), device, stream), who)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_ragged_sizes(device, stream, dtype, layout):
    for m, n, k in (*SHAPES, (130, 1001, 203), (257, 1023, 77), (65, 8, 8), (16, 3, 500)):
        check(case(m, n, k, dtype=dtype, layout=layout), device, stream, f"{dtype} {layout}")


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("block", PAIRS, ids=lambda pair: "x".join(map(str, pair)))
def test_blocks_of_every_size(device, stream, block, layout):
    """One of them with more blocks in a row than a warp has lanes, an odd number of them."""
    for dtype, m, n, k in (("bfloat16", 301, 299, 517), ("float16", 140, 72, 67 * block[1] - 3)):
        made = case(m, n, k, 0.9 if k > 1000 else 0.4, block, dtype, layout)
        check(made, device, stream, f"blocks of {block}, {layout}")


@pytest.mark.parametrize("layout", ["row", "linear"])
@pytest.mark.parametrize("b_row", bcsr.SIDES)
def test_every_tile_in_every_ring(device, stream, b_row, layout):
    made = case(331, 601, 419, 0.5, (b_row, 64), layout=layout)
    shape = blocks.shape_of(made.problem)
    tiles = [Tile(w, s) for w in blocks.widths(b_row) for s in range(2, blocks.MOST_STAGES + 1)]
    tiles = [t for t in tiles if (b_row, t.columns, t.stages) != (128, 128, 2)]
    jobs = [(blocks.SOURCE, blocks.entry(tile, shape)) for tile in tiles]
    compiled.cubins(jobs, [jit.arch_of(device)])
    for tile in tiles:
        check(made, device, stream, f"{tile} in rows of {b_row}, {layout}", tile)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_rows_without_blocks_one_block_and_all(device, stream, layout):
    for density in (0, 1 / 160, 0.02, 1):
        made = case(64 * 40 - 3, 192, 250, density, layout=layout)
        assert made.problem.host().a.blocks == round(160 * density)
        bound = room.bind("blocks_mma", made.problem, device)
        for _ in range(2):
            made.check(run(bound, device, stream), f"density {density}, {layout}")


@pytest.mark.parametrize("shared_bytes", [None, 101_376, 166_912])
def test_hopper_taken_for_another_gpu(device, stream, shared_bytes):
    """Compiled without Hopper's own instructions, with the shared memory of a GeForce or an A100."""
    here = gpu.Portable(device, shared_bytes)
    for layout in LAYOUTS:
        for block in (16, 64, 128):
            check(case(300, 1001, 517, 0.4, block, layout=layout), here, stream, f"{layout} {block}")


def test_what_is_beyond_b_is_not_multiplied(device, stream):
    """B's rows begin with NaN where a block's last columns are padding: nothing of them may reach C."""
    import cupy

    for layout in ("row", "source"):
        made = case(128, 264, 72, 1.0, layout=layout)
        ops = made.problem.device()
        memory = cupy.full(ops.b.bits.size + 64 * 300, NAN, np.uint16)
        memory[: ops.b.bits.size] = (ops.b.bits if layout == "row" else ops.b.bits.T).ravel()
        view = memory[: ops.b.bits.size]
        bits = view.reshape(72, 264) if layout == "row" else view.reshape(264, 72).T
        ops.b = type(ops.b)(ops.b.dtype, bits)
        made.check(run(blocks.bind("beyond", made.problem, device), device, stream), layout)


def test_the_same_bits_every_time(device, stream):
    """Of operands whose sums are rounded, so that another order of additions would show."""
    p = room.problem(1000, 520, 4000, 0.3, 7)
    bound = room.bind("blocks_mma", p, device)
    first = run(bound, device, stream)
    assert np.isfinite(first).all()
    for _ in range(20):
        assert np.array_equal(run(bound, device, stream), first)
