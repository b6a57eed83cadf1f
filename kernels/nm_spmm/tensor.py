"""The tensor-core kernels on `wgmma`: tf32 and bf16, which gather rows of A^T for dense tiles of B.

Neither is in the paper. A tile of 128 columns of C needs the rows of A^T that any of its vectors
has kept. Where vectors are 128 wide (or a multiple) that is exactly what is stored; narrower ones
share a tile, which multiplies the union of their rows, with zeros where a vector skips one:

    multiplied share of k = 1 - (1 - N/M)^(128/L)       on average; N/M for L >= 128

Preparation is offline: B's values are put into the order and the swizzle in which wgmma reads them.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, gcd
from pathlib import Path
from typing import Any

import numpy as np

from .. import jit, pitch
from ..contract import Kernel, Launch, Problem, Slot, require, timed
from ..formats import compress, half, layout
from ..formats.half import Half, array_module
from ..formats.nm import INT32_MAX, Nm
from ..tma import tensor_map

HERE = Path(__file__).parent
TARGETS = ("sm_90a",)
ROWS, COLUMNS = 256, 128  #: of C in a tile; M and N of tensor_tile.cuh
LINE = 128  #: bytes of a column's values in a step
THREADS = 384
STAGES = 4  #: of the ring
BUFFERS = 2  #: squares that a warpgroup of bf16 stores C through
BAND = 16  #: tiles along n that are worked on at a time
#: Variant -> bytes of an element.
_SIZES = {"tf32": 4, "bf16": 2}
_CHUNK = 1 << 24  # values laid out at a time, to bound the temporaries

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


@dataclass(frozen=True)
class Tiles:
    """B as the kernels read it; the arrays are NumPy's or CuPy's, all on one side.

    start: int32 (tiles + 1), the steps of tile j are start[j] to start[j + 1] - 1.
    index: int32 (steps, depth), the rows of A^T that a step multiplies, ascending in a tile; its
    last one is repeated, with values of 0, to a whole number of steps.
    values: (steps, 128, depth), float32 or bits of bfloat16: for each column of the tile its values
    in these rows, 128 bytes, whose 16-byte unit u is at u ^ column % 8 (128-byte swizzle).
    """

    start: Any
    index: Any
    values: Any

    @property
    def depth(self) -> int:
        """Rows of A^T in a step: 32 for TF32, 64 for BF16."""
        return self.index.shape[1]

    @property
    def nbytes(self) -> int:
        return self.start.nbytes + self.index.nbytes + self.values.nbytes


def prepare(b: Nm, size: int) -> Tiles:
    """B for tiles of 128 columns, on the side where it lives; size: 4 for TF32, 2 for BF16.

    Any k, n, N:M and vector length. Values are kept (TF32) or rounded (BF16).
    """
    xp, real = array_module(b.val), b.real
    depth, unit = LINE // size, gcd(COLUMNS, b.vector)
    tiles, units = ceil(b.n / COLUMNS), ceil(b.n / unit)  # units: columns of one vector and tile
    if xp is not np and tiles * b.k <= INT32_MAX:
        return Tiles(*layout.vector_tiles(b, size))
    vector, tile = xp.arange(units) * unit // b.vector, xp.arange(units) * unit // COLUMNS
    batch = max(1, _CHUNK // b.n)
    parts = [slice(first, min(first + batch, real)) for first in range(0, real, batch)]

    needed = xp.zeros((tiles, b.k), bool)
    for part in parts:
        needed[tile, b.index[part][:, vector]] = True
    count = needed.sum(axis=1)
    start = xp.zeros(tiles + 1, xp.int64)
    start[1:] = xp.cumsum(-(-count // depth))
    steps = int(start[-1])
    require(
        steps <= INT32_MAX,
        f"B has {steps} steps of {depth} rows, but the kernels count up to {INT32_MAX}: cut it",
    )
    # Where a tile's row of A^T is in `index`, and the row at every place; padding repeats the last.
    place = start[:-1, None] * depth + xp.cumsum(needed, axis=1) - 1
    index = xp.zeros(steps * depth, xp.int32)
    which, row = xp.nonzero(needed)
    index[place[which, row]] = row.astype(xp.int32)
    last = start[:-1] * depth + count - 1
    for past in range(1, depth):  # at most a step is padded
        inside = last + past < start[1:] * depth
        index[(last + past)[inside]] = index[last[inside]]

    values = xp.zeros(steps * COLUMNS * depth, xp.uint16 if size == 2 else xp.float32)
    column = xp.arange(b.n)
    of_unit, line = column // unit, column % COLUMNS
    for part in parts:
        at = place[tile, b.index[part][:, vector]][:, of_unit]  # (rows, n)
        step, inside = at // depth, at % depth
        chunk, rest = inside * size // 16 ^ line % 8, inside % (16 // size)
        target = (step * COLUMNS + line) * depth + chunk * (16 // size) + rest
        val = b.val[part]
        values[target] = half.to_bits(val, "bfloat16") if size == 2 else val
    return Tiles(start.astype(xp.int32), index.reshape(steps, depth), values.reshape(steps, COLUMNS, depth))


def shared_bytes(variant: str) -> int:
    """Dynamic shared memory of a block: the ring, and for bf16 the squares that C passes through."""
    if variant == "bf16":
        return STAGES * (COLUMNS + ROWS) * LINE + 2 * BUFFERS * 8192
    return STAGES * (COLUMNS * LINE + LINE // 4 * (ROWS + 8) * 4)


def bind(variant: str, problem: Problem, device, *, band: int = BAND) -> Launch:
    """Make "tf32" or "bf16" ready: C = A · B, sums in float32, for "bf16" rounded once.

    Operands of a problem with dtype "tf32" (float32 arrays) or "bfloat16" (A and C are `Half`). band:
    tiles of 128 columns that are worked on together. Where columns of A do not begin at multiples of
    16 bytes, a launch copies it first; and for "bf16" C back, at last. Raises ValueError, one
    sentence, where the GPU has no wgmma, or the operands are not the variant's.
    """
    import cupy
    from cuda.core import LaunchConfig

    require(variant in KERNELS, f"tensor cores have {', '.join(KERNELS)}, but no {variant!r}")
    require(
        jit.arch_of(device) in TARGETS,
        f"{variant} is made of wgmma, which compute capability 9.0 has and this GPU, "
        f"{'.'.join(map(str, device.compute_capability))}, has not: use v3",
    )
    require(band >= 1, f"band is {band}, but must be 1 tile or more")
    m, n = problem.m, problem.n
    operands = problem.device()
    _require_operands(variant, operands)
    size = _SIZES[variant]
    tiles, prepare_ms = timed(lambda: prepare(operands.b, size))
    a, lda, before = pitch.aligned(operands.a.bits if size == 2 else operands.a, device)
    after = []
    along = ceil(m / ROWS), ceil(n / COLUMNS)
    head = (
        a.data.ptr,
        np.int32(lda),
        *(x.data.ptr for x in (tiles.start, tiles.index, tiles.values)),
    )
    tail = *map(np.int32, along), np.int32(min(band, along[1]))
    if size == 4:
        c = operands.c
        whole = m % 4 == 0 and c.data.ptr % 16 == 0
        entry = f"tf32<{STAGES}, {str(whole).lower()}>"
        arguments = (*head, c.data.ptr, np.int32(m), np.int32(n), *tail)
    else:
        entry = f"bf16<{STAGES}, {BUFFERS}>"
        bits = operands.c.bits
        c = bits.T  # row-major, as TMA sees it
        if m % 8 or bits.data.ptr % 16:
            c = cupy.empty((n, ceil(m / 8) * 8), cupy.uint16)
            after.append(pitch.copy(c, bits.T, device))
        arguments = (*head, tensor_map(c, (64, 64), 128), *tail)

    shared = shared_bytes(variant)
    source = KERNELS[variant].source
    kernel = jit.loaded(source, entry, device, shared)
    grid = min(along[0] * along[1], device.properties.multiprocessor_count)
    config = LaunchConfig(grid=grid, block=THREADS, shmem_size=shared)
    return Launch(
        variant,
        [*before, (kernel, config, arguments), *after],
        operands.c,
        prepare_ms,
        tiles.nbytes,
        keep=(operands, tiles, a, c),
        scratch=(*([a] if before else []), *([c] if after else [])),
    )


def _require_operands(variant: str, operands) -> None:
    """Raise ValueError unless the dtype is the variant's and tensor cores lose nothing of a value."""
    a, b = operands.a, operands.b
    if variant == "bf16":
        require(
            isinstance(a, Half) and a.dtype == "bfloat16",
            'bf16 multiplies bfloat16, but A has another dtype: make the problem with dtype="bfloat16"',
        )
        values, lost = (b.val,), 0xFFFF
    else:
        require(
            not isinstance(a, Half),
            'tf32 multiplies float32 arrays, but A is a Half: make the problem with dtype="tf32"',
        )
        values, lost = (b.val, *([] if isinstance(a, Slot) else [a.T])), 0x1FFF
    for x in values:
        require(
            not _has_bits(x, lost),
            f"{variant} would lose digits of its operands: make the problem with "
            f'dtype="{"bfloat16" if variant == "bf16" else "tf32"}"',
        )


def _has_bits(x, bits: int) -> bool:
    """Whether some number of a float32 array without gaps has one of these bits."""
    if array_module(x) is np:
        return bool((x.view(np.uint32) & np.uint32(bits)).any())
    return compress.has_bits(x, bits)
