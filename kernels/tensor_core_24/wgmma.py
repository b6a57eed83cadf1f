"""The Hopper kernels on `wgmma.mma_async.sp`: preparation and launch of a `family.Wgmma` or a `family.Fp8`.

Preparation is offline, like the compression itself: the metadata is put into the order in which a
stage of the ring holds it, and for kernels that read A in the order of use, its values, too. Its time is `prepare_ms`.
Otherwise A's values, B and C stay as they are: TMA masks what lies beyond a matrix. But rows of A's values of 16 bits
are padded to whole steps, since what begins at an odd multiple of 16 bytes costs TMA twice the time. For B that is the
choice of a configuration, `copied`, since each launch pays for it. B and C may lie by rows or, where the kernel is made
for it, by columns (`Problem.orders`): its lines are what lies side by side. Where TMA cannot address a line, whose
length is no multiple of 16 bytes, a launch copies B to padded lines, or C back from them. Scales of 8 bits are read
from device memory by every launch.
"""

from math import ceil
from pathlib import Path
from typing import Any

import numpy as np

from .. import jit, padding
from ..contract import Launch, Problem, require, timed
from ..formats import layout, two_four
from ..formats.half import Half, array_module
from ..formats.two_four import TwoFour, TwoFourEight
from ..lazy import cupy
from ..tma import tensor_map
from ..workspace import argument
from . import gpcs
from .family import AT_LAUNCH, COMPLETE, Fp8, K, Wgmma, cut_into_pieces, shared_tiles, whole_tiles
from .operands import instance_of, require_extra
from .tiles import HERE, Tile, limits, require_activation, require_gpu


def ring_metadata(a: TwoFour | TwoFourEight, rows: int, columns: int):
    """Metadata in the order of the ring: uint32 (m'/64, 2 k'), NumPy or CuPy.

    m' and k' are m and k rounded up to multiples of `rows` and `columns`; what is added is valid metadata of
    zeros. For each 64 rows and 64 columns of A there are 128 words, 32 for each warp of a warpgroup
    and its 16 rows, in the order of the lanes; a word is the one of `two_four.swizzle`, or of `two_four.words`.
    """
    high, wide = ceil(a.m / rows) * rows, ceil(a.k / columns) * columns // 16
    if isinstance(a, TwoFourEight):
        meta = a.xp.pad(a.meta, ((0, 0), (0, wide - a.meta.shape[1])), constant_values=two_four.EMPTY)
        return two_four.words(meta, rows).reshape(high // 64, -1)
    if a.xp is not np:
        return layout.swizzled(a.meta, high, wide, ring=True)
    words = two_four.swizzle(a.meta, rows, columns).view(np.uint32).reshape(high // 64, 4, 8, wide // 4, 4)
    return np.ascontiguousarray(words.transpose(0, 3, 1, 2, 4)).reshape(high // 64, -1)


def pack_values(a: TwoFour | TwoFourEight, rows: int, columns: int):
    """A's values in the order of use: uint16 (m'/64, k'/64, 64, 32), NumPy or CuPy.

    m' and k' are m and k rounded up to multiples of `rows` and `columns`, with zeros. A piece is 64 rows and 64
    columns of A, 32 values a row; the four units of 16 bytes of row r are at u ^ (r // 2 % 4), the
    64-byte swizzle of TMA, which wgmma undoes. In e4m3 uint8 (m'/64, k'/128, 5120): a piece is 128 columns, 64 values a
    row, and behind them are the 256 words of `ring_metadata`.
    """
    xp, high, wide = a.xp, ceil(a.m / rows) * rows, ceil(a.k / columns) * columns // 2
    if isinstance(a, TwoFourEight):
        val = _swizzled(xp.pad(a.val, ((0, high - a.m), (0, wide - a.val.shape[1]))), 64)
        words = ring_metadata(a, rows, columns).view(xp.uint8)
        return xp.concatenate([x.reshape(high // 64, wide // 64, -1) for x in (val, words)], axis=2)
    if xp is not np:
        return layout.packed_values(a.val, high, wide // 32)
    return np.ascontiguousarray(_swizzled(layout.with_zeros(a.val, high, wide), 32))


def _swizzled(val, width: int):
    """Pieces of 64 rows and `width` values, (rows, pieces, 64, width), whose units of 16 bytes are swizzled.

    val: (64 rows, width pieces), NumPy or CuPy.
    """
    xp = array_module(val)
    units = val.reshape(val.shape[0] // 64, 64, -1, 4, width // 4).transpose(0, 2, 1, 3, 4)
    row, unit = xp.arange(64)[:, None], xp.arange(4)[None, :]
    return units[:, :, row, unit ^ row // 2 % 4].reshape(*units.shape[:3], width)


def prepare(
    name: str,
    problem: Problem,
    device,
    config: Wgmma | Fp8,
    *,
    alpha: float = 1.0,
    beta: float = 0.0,
    c: Half | None = None,
    bias=None,
    activation: str = "",
    cache: dict | None = None,
    source: Path | None = None,
) -> Launch:
    """Make a configuration ready: D (m, n) = activation(alpha·A·B + beta·C + bias), FP32 sums, rounded once.

    In 8 bits scale_A · scale_B / scale_D stands in place of alpha, and there is no C.
    c: the C of beta, (m, n), looked at where beta is not 0; bias: float32 (m,), one for each row; CuPy.
    activation: one of `ACTIVATIONS`, or "": none.
    cache: where configurations that are tried on one problem share what they prepare; source: another file with the
    kernel, whose headers lie beside it or here. A Launch may be under way on two streams at once: both write the same.
    Raises ValueError, one sentence, where the GPU has no wgmma, the configuration does not take the problem, or the
    operands do not go together.
    """
    eight = isinstance(config, Fp8)
    require_gpu(name, device, config.INSTEAD)
    m, n, k, orders, kind = problem.m, problem.n, problem.k, problem.orders, config.kind
    config.check(m, n, k, *limits(device), orders)
    require_activation(activation)
    operands, extra = problem.device(), activation or (beta != 0 or bias is not None)
    require(
        not eight or (alpha == 1 and beta == 0), f"{config.name} has scales in place of alpha and adds no C: scale A"
    )
    require(
        not extra or kind.adds,
        f"{config.name} adds neither C nor a bias, nor has it an activation: use one of {', '.join(COMPLETE)}",
    )
    require_extra(name, operands, beta, c, bias)
    cache = {} if cache is None else cache
    val, metadata, held, prepare_ms = _prepared(operands.a, config, cache)
    b, out, c_in, before, after, copies = _addressable(problem, config, c if beta else None, device, cache)
    own, workspace, count = own_of(config, problem, device)
    cupy.cuda.get_current_stream().synchronize()  # a launch may come on another stream

    dtype, *scaled = instance_of(operands)
    kernel = kernel_of(config, config.entry(dtype, extra, orders, *scaled), device, source)
    scaled_by = (getattr(x, "scale", None) for x in (operands.a, operands.b, operands.c))
    given = arguments(
        config,
        (val, metadata, b, out),
        config.order(m, n, k, own),
        (m, n, k),
        scales=[*map(argument, scaled_by)] if eight else (alpha, beta),
        bias=argument(bias),
        c_in=argument(c_in),
        orders=orders,
    )
    steps = [*before, (kernel, config.launch(m, n, kernel, device, count), given), *after]
    held += sum(x.nbytes for x in (*workspace, *copies))
    keep = (operands, val, metadata, workspace, b, out, c_in, c, bias)
    return Launch(name, steps, operands.c, prepare_ms, held, keep, scratch=(*workspace, *copies))


def _prepared(a, config: Tile, cache: dict) -> tuple:
    """(A's values as the kernel reads them, its metadata, bytes made, milliseconds).

    In 8 bits what is in the order of use has both in one.
    """
    spent, made, columns = [0.0], [], config.steps(1) * config.K

    def once(key: str, work):
        if key not in cache:
            cache[key], ms = timed(work)
            spent.append(ms)
        made.append(cache[key])
        return cache[key]

    val, metadata, eight = a.val, None, isinstance(config, Fp8)
    rows = config.m if config.m == 192 else max(256, config.below * config.m)  # whole boxes of TMA, whole clusters
    if not (eight and config.in_order_of_use):
        metadata = once(f"metadata {rows} {columns}", lambda: ring_metadata(a, rows, columns))
    if config.in_order_of_use:
        val = once(f"packed {columns}", lambda: pack_values(a, 256, columns))
    elif eight and val.data.ptr % 16:  # a part of another array
        val = once("val", val.copy)
    elif not eight and (a.k_pad % K or val.data.ptr % 16):
        val = once("val", lambda: layout.with_zeros(a.val, a.m, ceil(a.k / K) * K // 2))  # whole steps
    return val, metadata, sum(x.nbytes for x in made), sum(spent)


def _addressable(problem: Problem, config: Tile, c: Half | None, device, cache: dict) -> tuple:
    """Return the lines of B, of C and of what is added to it that TMA can address, with the copies.

    (lines; copies to them before a launch, from them after it; the arrays that these write).
    """
    operands, copies = problem.device(), []
    before: list = []
    after: list = []

    def padded(key: str, x):
        """Return an array for lines.

        What a copy does not write is NaN, not what another one left in the same memory.
        """
        if key not in cache:
            width = ceil(x.shape[1] * x.dtype.itemsize / padding.LINE) * padding.LINE // x.dtype.itemsize
            cache[key] = cupy.empty((x.shape[0], width), x.dtype)
        cache[key].data.memset_async(0xFF, cache[key].nbytes)
        copies.append(cache[key])
        return cache[key]

    b, (out, c_in) = operands.b.bits, (x and x.bits for x in (operands.c, c))
    if problem.orders[0] == "F" or isinstance(config, Fp8):
        b = _columns(b)
    if problem.orders[1] == "F":
        out, c_in = _columns(out), None if c is None else _columns(c_in)
    if config.copied or not _by_tma(b):
        given, b = b, padded("b", b)
        before.append(padding.copy(given, b, device))
    if not _by_tma(out) or c_in is not None and not _by_tma(c_in):
        to, out = out, padded("c", out)
        after.append(padding.copy(out, to, device))
        if c_in is not None:
            given, c_in = c_in, cupy.empty_like(out)
            before.append(padding.copy(given, c_in, device))
    return b, out, c_in, before, after, copies


def _columns(bits):
    """Return the columns of a column-major matrix as lines."""
    return bits.T.reshape(-1).reshape(bits.shape[::-1])  # a single one is as far from the next as it is long


def _by_tma(lines) -> bool:
    """Whether TMA can address these lines."""
    return lines.shape[1] * lines.dtype.itemsize % 16 == 0 and lines.data.ptr % 16 == 0


def own_of(config: Tile, sizes, device) -> tuple[tuple, tuple, int]:
    """Return what a kernel alone is given: arguments, the arrays among them, and how much is multiplied; 0: all tiles.

    sizes: anything with m, n and k. Launches write these arrays.
    """
    c, (high, wide), (sms, _) = config, config.grid(sizes.m, sizes.n), limits(device)
    count = high * wide
    if c.kernel == "last_wave":
        return (np.int32(whole_tiles(count, sms) if c.steps(sizes.k) > 1 else count),), (), 0
    if c.kernel == "pieces":
        cut = cut_into_pieces(count, c.groups, sms)
        return (np.int32(cut.whole), np.int32(cut.groups)), (), cut.whole + cut.pieces
    if c.kernel == "gpc":
        return (gpcs.places(device.device_id).data.ptr,), (), 0
    if c.kernel == "stream_k":
        sums = cupy.empty((sms, c.m * c.n), cupy.float32)
        handovers = cupy.zeros((sms, c.groups, 2), cupy.uint32)  # `Handover`s
        return (np.int32(shared_tiles(count, sms)), sums.data.ptr, handovers.data.ptr), (sums, handovers), 0
    return (), (), 0


def arguments(
    config: Tile, matrices: tuple, order: tuple, sizes: tuple, *, scales, bias: int, c_in: int = 0, orders: str
) -> tuple:
    """Return what a kernel is given.

    matrices: A's values, its metadata, lines of B and of C, arrays or what stands for them; order: see `Tile.order`;
    sizes: m, n, k; scales: alpha and beta, or addresses of those of A, B and C; bias, c_in: addresses, or 0.
    """
    kind, (val, metadata, b, out), (m, n, k) = config.kind, matrices, sizes
    wide, size = out.dtype.itemsize, b.dtype.itemsize
    if kind.deep > 1:
        maps: list[Any] = [argument(x) for x in matrices]
    else:
        box, deep = kind.box or config.m, config.n if orders[0] == "F" or size == 1 else config.K
        of_a: Any = val.data.ptr if kind.packed else tensor_map(val, (box, config.K // 2), 64)
        if config.packed:  # 4 KiB of a piece: 16 lines of 256 bytes
            of_a = tensor_map(val.reshape((val.size // 128, 128)), (16, 128))
        words = [] if metadata is None else [tensor_map(metadata, (config.m // 64, 2 * config.K))]
        of_b = tensor_map(b, (deep // config.below, 128 // size), 128, config.ahead)
        of_c: list[Any] = [out.data.ptr, np.int32(out.strides[0])]
        if not config.direct:
            of_c = [tensor_map(out, (min(64, config.n) if orders[1] == "F" else 64, 64), 64 * wide)]
        maps = [of_a, *words, of_b, *of_c]
    if isinstance(config, Fp8):
        return (*maps, *order, *scales, np.int32(m), np.int32(n), bias)
    alpha, beta = map(np.float32, scales)
    added = (beta, c_in, bias, *map(np.int32, (m, n, out.shape[1]))) if kind.adds else ()
    more = [val.shape[1] if config.in_order_of_use else 0] if kind.ordered else []
    more += [k, metadata.shape[1], b.shape[1]] if kind.deep > 1 else []
    return (*maps, *order, alpha, *added, *map(np.int32, more))


def kernel_of(config: Tile, entry: str, device, source: Path | None = None):
    """Return a kernel of a configuration, loaded; source: see `prepare`."""
    if source is None and not config.kind.exchanging:
        return jit.loaded(config.source, entry, device, config.shared_bytes)
    cubin = jit.compile_cubin(source or config.source, entry, jit.arch_of(device), include=(HERE,) if source else ())
    if config.kind.exchanging:
        cubin = jit.launched_with(cubin, AT_LAUNCH)
    return jit.load(cubin, config.shared_bytes)
