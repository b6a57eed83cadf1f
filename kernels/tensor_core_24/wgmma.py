"""The Hopper kernels on `wgmma.mma_async.sp`: preparation and launch of a `family.Wgmma` or an `fp8_family.Fp8`.

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

import numpy as np

from .. import jit, padding
from ..contract import Launch, Problem, require, timed
from ..formats import layout, two_four
from ..formats.half import Half, array_module
from ..tma import tensor_map
from . import fp8_operands
from .family import AT_LAUNCH, COMPLETE, K, Wgmma
from .fp8_family import Fp8
from .operands import require_extra, swizzled
from .tiles import HERE, Tile, limits, require_activation, require_gpu


def ring_metadata(a: two_four.TwoFour, rows: int = 64, columns: int = K):
    """Metadata in the order of the ring: uint32 (m'/64, 2 k'), NumPy or CuPy.

    m' and k' are m and k rounded up to multiples of `rows` and `columns`; what is added is valid metadata of
    zeros. For each 64 rows and 64 columns of A there are 128 words, 32 for each warp of a warpgroup
    and its 16 rows, in the order of the lanes; a word is the one of `two_four.swizzle`.
    """
    if array_module(a.meta) is not np:
        high, wide = ceil(a.m / rows) * rows, ceil(a.k_pad / columns) * columns // 16
        return layout.swizzled(a.meta, high, wide, ring=True)
    meta = two_four.swizzle(a.meta, rows, columns)
    words = meta.view(np.uint32).reshape(-1, 4, 8, meta.shape[1] // 8, 4)
    moved = words.transpose(0, 3, 1, 2, 4).reshape(words.shape[0], -1)
    return moved if moved.flags.c_contiguous else moved.copy()


def pack_values(a: two_four.TwoFour, rows: int = 64, columns: int = K):
    """A's values in the order of use: uint16 (m'/64, k'/64, 64, 32), NumPy or CuPy.

    m' and k' are m and k rounded up to multiples of `rows` and `columns`, with zeros. A piece is 64 rows and 64
    columns of A, 32 values a row; the four units of 16 bytes of row r are at u ^ (r // 2 % 4), the
    64-byte swizzle of TMA, which wgmma undoes.
    """
    high, wide = ceil(a.m / rows) * rows, ceil(a.k / columns) * columns // 2
    if array_module(a.val) is not np:
        return layout.packed_values(a.val, high, wide // 32)
    return np.ascontiguousarray(swizzled(layout.with_zeros(a.val, high, wide), 32))


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
    import cupy

    eight = isinstance(config, Fp8)
    require_gpu(name, device, config.INSTEAD)
    m, n, k, kind = problem.m, problem.n, problem.k, config.kind
    config.check(m, n, k, *limits(device), problem.orders)
    require_activation(activation)
    operands, extra = problem.device(), activation or (beta != 0 or bias is not None)
    if eight:
        dtype, *scaled = fp8_operands.kind(problem)
        require(alpha == 1 and beta == 0, f"{config.name} has scales in place of alpha and adds no C: scale A")
    else:
        dtype, scaled = operands.a.dtype, []
    require(
        not extra or kind.adds,
        f"{config.name} adds neither C nor a bias, nor has it an activation: use one of {', '.join(COMPLETE)}",
    )
    require_extra(name, operands, beta, c, bias)
    cache = {} if cache is None else cache
    val, metadata, held, prepare_ms = _prepared(operands.a, config, cache)
    b, out, c_in, before, after, copies = _addressable(problem, config, c if beta else None, device, cache)
    own = kind.own(config, problem, device)
    cupy.cuda.get_current_stream().synchronize()  # a launch may come on another stream

    sizes = np.int32(m), np.int32(n)
    arguments = [*_matrices(config, val, metadata, b, out, problem.orders), *config.order(m, n, k, own.arguments)]
    if eight:
        scales = operands.a.scale, operands.b.scale, getattr(operands.c, "scale", None)
        arguments += [*map(_address, scales), *sizes, _address(bias)]
    else:
        arguments.append(np.float32(alpha))
        if kind.adds:
            arguments += [np.float32(beta), _address(c_in), _address(bias), *sizes, np.int32(out.shape[1])]
        if kind.ordered:
            arguments.append(np.int32(val.shape[1] if config.in_order_of_use else 0))
        if kind.deep > 1:
            arguments += map(np.int32, (k, metadata.shape[1], b.shape[1]))
    kernel = kernel_of(config, config.entry(dtype, extra, problem.orders, *scaled), device, source)
    steps = [*before, (kernel, config.launch(m, n, kernel, device, own.count), tuple(arguments)), *after]
    held += sum(x.nbytes for x in (*own.workspace, *copies))
    keep = (operands, val, metadata, own.workspace, b, out, c_in, c, bias)
    return Launch(name, steps, operands.c, prepare_ms, held, keep, scratch=(*own.scratch, *copies))


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

    val, metadata = a.val, None
    rows = config.m if config.m == 192 else max(256, config.below * config.m)  # whole boxes of TMA, whole clusters
    if isinstance(config, Fp8):
        if config.in_order_of_use:
            val = once("packed", lambda: fp8_operands.pack(a))
        else:
            metadata = once(f"metadata {config.m}", lambda: fp8_operands.ring_metadata(a, config.m))
            val = val.copy() if val.data.ptr % 16 else val  # a part of another array
    else:
        metadata = once(f"metadata {rows} {columns}", lambda: ring_metadata(a, rows, columns))
        if config.in_order_of_use:
            val = once(f"packed {columns}", lambda: pack_values(a, 256, columns))
        elif a.k_pad % K or val.data.ptr % 16:
            val = once("val", lambda: layout.with_zeros(a.val, a.m, ceil(a.k / K) * K // 2))  # whole steps
    return val, metadata, sum(x.nbytes for x in made), sum(spent)


def by_columns(bits):
    """Return the columns of a column-major matrix as lines."""
    return bits.T.reshape(-1).reshape(bits.shape[::-1])  # a single one is as far from the next as it is long


def _addressable(problem: Problem, config: Tile, c: Half | None, device, cache: dict) -> tuple:
    """Return the lines of B, of C and of what is added to it that TMA can address, with the copies.

    (lines; copies to them before a launch, from them after it; the arrays that these write).
    """
    import cupy

    (of_b, of_c), operands, copies = tuple(problem.orders), problem.device(), []
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

    b, out, c_in = operands.b.bits, operands.c.bits, c and c.bits
    if of_b == "F" or isinstance(config, Fp8):
        b = by_columns(b)
    if of_c == "F":
        out, c_in = by_columns(out), None if c is None else by_columns(c.bits)
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


def _by_tma(lines) -> bool:
    """Whether TMA can address these lines."""
    return lines.shape[1] * lines.dtype.itemsize % 16 == 0 and lines.data.ptr % 16 == 0


def _address(array) -> int:
    return 0 if array is None else array.data.ptr


def _matrices(config: Tile, val, metadata, b, out, orders: str) -> tuple:
    """Return A, its metadata, lines of B and of C as a kernel is given them."""
    if config.kind.deep > 1:
        return tuple(map(_address, (val, metadata, b, out)))
    wide, size = out.dtype.itemsize, b.dtype.itemsize
    if config.packed:  # 4 KiB of a piece: 16 lines of 256 bytes
        of_a = tensor_map(val.reshape(-1, 128), (16, 128))
    else:
        box = config.kind.box or config.m, config.K // 2
        of_a = val.data.ptr if config.kind.packed else tensor_map(val, box, 64)
    deep = config.n if orders[0] == "F" or size == 1 else config.K
    of_b = tensor_map(b, (deep // config.below, 128 // size), 128, config.ahead)
    of_c: tuple = (out.data.ptr, np.int32(out.strides[0]))
    if not config.direct:
        of_c = (tensor_map(out, (min(64, config.n) if orders[1] == "F" else 64, 64), 64 * wide),)
    words = () if metadata is None else (tensor_map(metadata, (config.m // 64, 2 * config.K)),)
    return of_a, *words, of_b, *of_c


def kernel_of(config: Tile, entry: str, device, source: Path | None = None):
    """Return a kernel of a configuration, loaded; source: see `prepare`."""
    if source is None and not config.kind.exchanging:
        return jit.loaded(config.source, entry, device, config.shared_bytes)
    cubin = jit.compile_cubin(source or config.source, entry, jit.arch_of(device), include=(HERE,) if source else ())
    if config.kind.exchanging:
        cubin = jit.launched_with(cubin, AT_LAUNCH)
    return jit.load(cubin, config.shared_bytes)
