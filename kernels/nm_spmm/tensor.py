"""The tensor-core kernels on `wgmma`: tf32 and bf16, which gather rows of A^T for dense tiles of B.

Neither is in the paper. A tile of 128 columns of C needs the rows of A^T that any of its vectors
has kept. Where vectors are 128 wide (or a multiple) that is exactly what is stored; narrower ones
share a tile, which multiplies the union of their rows, with zeros where a vector skips one:

    multiplied share of k = 1 - (1 - N/M)^(128/L)       on average; N/M for L >= 128

Preparation is offline: B's values are put into the order and the swizzle in which wgmma reads them.
"""

from math import ceil
from pathlib import Path

import numpy as np

from .. import jit, padding
from ..contract import Kernel, Launch, Problem, Slot, require, timed
from ..formats import compress, layout
from ..formats.half import Half
from ..formats.nm import INT32_MAX
from ..lazy import core, cupy
from ..tma import tensor_map

HERE = Path(__file__).parent
TARGETS = ("sm_90a",)
ROWS, COLUMNS = 256, 128  #: of C in a tile; M and N of tensor_tile.cuh
LINE = 128  #: bytes of a column's values in a step
THREADS = 384
STAGES = 4  #: of the ring
BUFFERS = 2  #: squares that a warpgroup of bf16 stores C through
BAND = 16  #: tiles along n that are worked on at a time
#: Dynamic shared memory of a block: the ring, and for bf16 the squares that C passes through.
SHARED = {
    "tf32": STAGES * (COLUMNS * LINE + LINE // 4 * (ROWS + 8) * 4),
    "bf16": STAGES * (COLUMNS + ROWS) * LINE + 2 * BUFFERS * 8192,
}

KERNELS: dict[str, Kernel] = {
    kernel.name: kernel
    for kernel in (
        Kernel(
            "tf32",
            HERE / "tf32.cu",
            "tensor cores in TF32: gathered rows of A^T as wgmma's left operand, through registers",
            "Three times as fast as cuBLAS in TF32 at 87.5% and vectors of 128, 1.5x at 50%: the gather "
            "takes as long as the multiplication of what is left, and each tile ends with a store.",
            tuple(f"tf32<{STAGES}, {whole}>" for whole in ("true", "false")),
            targets=TARGETS,
        ),
        Kernel(
            "bf16",
            HERE / "bf16.cu",
            "tensor cores in BF16: gathered rows of A^T as wgmma's right operand, as they are",
            "Four times as fast as cuBLAS in BF16 at 87.5% and vectors of 128, 1.6x at 50%: a tile asks L2 "
            "for 48 bytes a cycle, a little more than it delivers. Vectors of 32 at 50% stay behind, "
            "since four of them need 94% of the rows.",
            (f"bf16<{STAGES}, {BUFFERS}>",),
            targets=TARGETS,
        ),
    )
}


def prepare(variant: str, problem: Problem, device) -> Launch:
    """Make "tf32" or "bf16" ready: C = A · B, sums in float32, for "bf16" rounded once.

    Operands of a problem with dtype "tf32" (float32 arrays) or "bfloat16" (A and C are `Half`). Where columns of A do
    not begin at multiples of 16 bytes, a launch copies it first; and for "bf16" C back, at last. Raises ValueError, one
    sentence, where the GPU has no wgmma, or the operands are not the variant's.
    """
    require(
        jit.arch_of(device) in TARGETS,
        f"{variant} is made of wgmma, which compute capability 9.0 has and this GPU, "
        f"{'.'.join(map(str, device.compute_capability))}, has not: use v3",
    )
    ops, m, n, bf16 = problem.device(), problem.m, problem.n, variant == "bf16"
    dtype, said = (
        ("bfloat16", "bfloat16, but A has another dtype") if bf16 else ("tf32", "float32 arrays, but A is a Half")
    )
    require(
        ops.a.dtype == dtype if bf16 else not isinstance(ops.a, Half),
        f'{variant} multiplies {said}: make the problem with dtype="{dtype}"',
    )
    values = [ops.b.val] if bf16 or isinstance(ops.a, Slot) else [ops.b.val, ops.a.T]
    require(
        not any(compress.has_bits(x, 0xFFFF if bf16 else 0x1FFF) for x in values),
        f'{variant} would lose digits of its operands: make the problem with dtype="{dtype}"',
    )
    along = ceil(m / ROWS), ceil(n / COLUMNS)
    require(
        along[1] * problem.k <= INT32_MAX,
        f"{variant} counts rows of {along[1]} tiles in 32 bits, and k = {problem.k} is too many: cut B",
    )
    tiles, prepare_ms = timed(lambda: layout.vector_tiles(ops.b, 2 if bf16 else 4))
    a, lda, before = padding.aligned(ops.a.bits if bf16 else ops.a, device)
    after, entries, shared = [], KERNELS[variant].entries, SHARED[variant]
    of_c: tuple
    if bf16:
        c = lines = ops.c.bits.T  # row-major, as TMA sees it
        if m % 8 or c.data.ptr % 16:
            c = cupy.empty((n, ceil(m / 8) * 8), cupy.uint16)
            after.append(padding.copy(c, lines, device))
        entry, of_c = entries[0], (tensor_map(c, (64, 64), 128),)
    else:
        c, whole = ops.c, m % 4 == 0 and ops.c.data.ptr % 16 == 0
        entry, of_c = entries[not whole], (c.data.ptr, np.int32(m), np.int32(n))
    order = map(np.int32, (*along, min(BAND, along[1])))
    arguments = a.data.ptr, np.int32(lda), *(x.data.ptr for x in tiles), *of_c, *order
    kernel = jit.loaded(KERNELS[variant].source, entry, device, shared)
    grid = min(along[0] * along[1], device.properties.multiprocessor_count)
    config = core.LaunchConfig(grid=grid, block=THREADS, shmem_size=shared)
    return Launch(
        variant,
        [*before, (kernel, config, arguments), *after],
        ops.c,
        prepare_ms,
        sum(x.nbytes for x in tiles),
        keep=(ops, tiles, a, c),
        scratch=(*([a] if before else []), *([c] if after else [])),
    )
