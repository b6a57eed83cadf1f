"""The source's kernel `mma_sp`, its side studies and its family: preparation and launch of a `family.MmaSp`.

Preparation is offline, as in the source: the metadata is swizzled, and A is padded to whole tiles
where its sizes are no multiples. Its time is `prepare_ms`. B and C stay as they are.
"""

from math import ceil, gcd

import numpy as np

from .. import jit
from ..contract import Launch, Problem, require, timed
from ..formats import layout, two_four
from ..formats.half import Half, array_module
from ..formats.two_four import TwoFour
from ..lazy import core
from ..workspace import argument
from .family import EPILOGUE_OF, INT32_MAX, PUBLISHED, MmaSp
from .operands import require_extra
from .tiles import limits

#: n and k from which the kernel's 32-bit offsets within a tile would wrap.
MOST = 2**24


def swizzle_by_part(swizzled):
    """Swizzled metadata in the order for `ldmatrix.x2`: 32 columns of A at a time.

    An 8 x 8 matrix of `two_four.swizzle` is 16 rows and 64 columns of A: half of its lanes serve
    the first 32 columns, half the second. Here it is 32 rows and 32 columns: half of the lanes
    serve rows 0 to 15, half rows 16 to 31. For 64 x 64 of A, four matrices one below the other,
    each of two halves of 8 x 4:

         rows 0-15    first  second 32 columns             first 32 columns    rows 0-15   16-31
              16-31   first  second                 ──►                             32-47  48-63
              32-47   first  second                        second 32 columns        0-15   16-31
              48-63   first  second                                                 32-47  48-63

    swizzled: uint16 (m' / 2, k' / 8), m' a multiple of 64; the same shape and side comes back.
    """
    rows, columns = swizzled.shape
    blocks = swizzled.reshape(rows // 32, 2, 2, 8, columns // 8, 2, 4)  # tile, p, e, g, j, s, t
    moved = blocks.transpose(0, 5, 1, 3, 4, 2, 6)
    return array_module(swizzled).ascontiguousarray(moved).reshape(rows, columns)


def convert(a: TwoFour, config: MmaSp = PUBLISHED):
    """(val, meta) as the kernel reads them, on the side where `a` lives.

    val: uint16 (m', k' / 2), `a.val` itself where that is its shape; m' and k' are m and k rounded
    up to multiples of bm and bk, with zeros. meta: uint16 (m' / 2, k' / 8).
    """
    rows, columns, val = two_four.padded(a.m, config.bm), two_four.padded(a.k, config.bk) // 2, a.val
    if val.shape != (rows, columns):
        val = layout.with_zeros(val, rows, columns)
    elif a.xp is not np and val.data.ptr % 16:  # a part of another array
        val = val.copy()
    meta = two_four.swizzle(a.meta, config.bm, config.bk)
    return val, swizzle_by_part(meta) if config.ldmatrix == 2 else meta


def prepare(
    name: str,
    problem: Problem,
    device,
    config: MmaSp = PUBLISHED,
    *,
    alpha: float = 1.0,
    beta: float = 0.0,
    c: Half | None = None,
    bias=None,
) -> Launch:
    """alpha · A · B + beta · c + bias, compiled for `device` (a current `cuda.core.Device`).

    c: Half (m, n) of the dtype, looked at where beta is not 0. bias: CuPy float32 (m,), one for
    each row of C. The kernel masks where the sizes, or the addresses of B and C, ask for it. The result is the
    problem's own output, C (m, n), rounded once.

    Raises ValueError with one sentence for a configuration that the kernel is not made for or that
    does not fit the GPU, sizes that it does not take, and operands that do not go together.
    """
    config.check()
    require(
        problem.orders == "CC",
        f"{name} takes row-major B and C, not orders {problem.orders!r}: use auto",
    )
    m, n, k = problem.m, problem.n, problem.k
    for size, value in (("n", n), ("k", k)):
        require(
            value <= MOST,
            f"{name} counts within a tile in 32 bits and takes {size} up to {MOST}, not {value}: "
            "multiply in several ranges",
        )
    blocks, shared, (_, most) = ceil(m / config.bm) * ceil(n / config.bn), config.shared_bytes, limits(device)
    require(
        blocks <= INT32_MAX,
        f"{name} has a block for each of {blocks} tiles of C, but a grid has at most 2^31 - 1: "
        "multiply in several ranges",
    )
    require(
        shared <= most,
        f"{name} needs {shared} bytes of shared memory a block, but this GPU has {most}: choose fewer stages",
    )
    ops = problem.device()
    require(
        ops.a.dtype == ops.b.dtype == ops.c.dtype,
        f"{name} takes one dtype, but A is {ops.a.dtype}, B {ops.b.dtype} and C {ops.c.dtype}",
    )
    require_extra(name, ops, beta, c, bias)
    c_in = c.bits if c is not None and beta != 0 else None
    epilogue = EPILOGUE_OF[alpha != 1 or beta != 0 or bias is not None, beta != 0, bias is not None]
    # Bytes, at most 16, that divide the addresses of all rows.
    align = gcd(16, 2 * n, *map(argument, (ops.b.bits, ops.c.bits, c_in)))
    whole = m % config.bm == n % config.bn == k % config.bk == 0 and align == 16
    (val, meta), prepare_ms = timed(lambda: convert(ops.a, config))
    kernel = jit.loaded(config.source, config.entry(ops.a.dtype, not whole, align, epilogue), device, shared)
    launch = core.LaunchConfig(grid=blocks, block=config.threads, shmem_size=shared)
    matrices = map(argument, (val, meta, ops.b.bits, ops.c.bits))
    given = *map(np.int32, (m, n, k)), *matrices, *map(np.float32, (alpha, beta)), argument(c_in), argument(bias)
    left = meta.nbytes + (val.nbytes if val is not ops.a.val else 0)
    return Launch(name, [(kernel, launch, given)], ops.c, prepare_ms, left, (ops, val, meta, c_in, bias))
