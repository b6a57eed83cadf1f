"""The Hopper kernels on `wgmma.mma_async.sp`: preparation and launch of a `family.Wgmma`.

Preparation is offline, like the compression itself: the metadata is put into the order in which a
stage of the ring holds it, and for wgmma_packed A's values, too. Its time is `prepare_ms`. Otherwise
A's values, B and C stay as they are: TMA masks what lies beyond a matrix. But rows of A's values are padded to whole
steps, since what begins at an odd multiple of 16 bytes costs TMA twice the time. For B that is the choice of a
configuration, `copied`, since each launch pays for it. B and C may lie by rows or, where the kernel is made for it, by
columns (`Problem.orders`): its lines are what lies side by side. Where a line is no multiple of 8 elements long, which
TMA cannot address, a launch copies B to padded lines, or C back from them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np

from .. import jit, pitch
from ..contract import Launch, Problem, require, timed
from ..formats import layout, two_four
from ..formats.half import Half, array_module
from ..tma import tensor_map
from .family import AT_LAUNCH, COMPLETE, K, Wgmma
from .operands import require_extra
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


def swizzled(val, width: int):
    """Pieces of 64 rows and `width` values, (rows, pieces, 64, width), whose units of 16 bytes are swizzled. val: (64
    rows, width pieces), NumPy or CuPy."""
    xp = array_module(val)
    units = val.reshape(val.shape[0] // 64, 64, -1, 4, width // 4).transpose(0, 2, 1, 3, 4)
    row, unit = xp.arange(64)[:, None], xp.arange(4)[None, :]
    return units[:, :, row, unit ^ row // 2 % 4].reshape(*units.shape[:3], width)


def whole_rows(a: two_four.TwoFour):
    """A's values in rows of whole steps: uint16 (m, k' / 2), NumPy or CuPy; k' is k rounded up to a multiple of 64."""
    return layout.with_zeros(a.val, a.m, ceil(a.k / K) * K // 2)


def bind(
    name: str,
    problem: Problem,
    device,
    config: Wgmma,
    *,
    alpha: float = 1.0,
    beta: float = 0.0,
    c: Half | None = None,
    bias=None,
    activation: str = "",
    metadata=None,
    cache: dict | None = None,
    source: Path | None = None,
) -> Launch:
    """Make a configuration ready: D (m, n) = activation(alpha·A·B + beta·C + bias), FP32 sums, rounded once.

    c: the C of beta, (m, n), looked at where beta is not 0; bias: float32 (m,), one for each row; CuPy.
    activation: one of `ACTIVATIONS`, or "": none.
    metadata: what `ring_metadata` returns, where it is there already, of whole tiles and rounds; cache:
    where configurations that are tried on one problem share what else they prepare; source: another file with the
    kernel, whose headers lie beside it or here. A Launch may be under way on two streams at once: both write the same.
    Raises ValueError, one sentence, where the GPU has no wgmma, the configuration does not take the problem, or the
    operands do not go together.
    """
    import cupy

    require_gpu(name, device, "use mma_sp")
    m, n, k, kind = problem.m, problem.n, problem.k, config.kind
    config.check(m, n, k, *limits(device), problem.orders)
    require_activation(activation)
    extra = activation or (beta != 0 or bias is not None)
    require(
        not extra or kind.adds,
        f"{config.name} adds neither C nor a bias, nor has it an activation: use one of {', '.join(COMPLETE)}",
    )
    operands = problem.device()
    require_extra(name, operands, beta, c, bias)
    if beta == 0:
        c = None
    cache = {} if cache is None else cache
    val, metadata, held, prepare_ms = _prepared(operands.a, config, metadata, cache)
    lines = Lines(device, cache)
    b, out, c_in = _addressable(problem, config, c, lines)
    own = kind.own(config, problem, device)
    cupy.cuda.get_current_stream().synchronize()  # a launch may come on another stream

    matrices: tuple = tuple(x.data.ptr for x in (val, metadata, b, out))
    if kind.deep == 1:
        matrices = _maps(config, val, metadata, b, out, problem.orders)
    arguments = [*matrices, *config.order(m, n, k, own.arguments), np.float32(alpha)]
    if kind.adds:
        added = (0 if x is None else x.data.ptr for x in (c_in, bias))
        arguments += [np.float32(beta), *added, *map(np.int32, (m, n, out.shape[1]))]
    if kind.ordered:
        arguments += [np.int32(val.shape[1] if config.in_order_of_use else 0)]
    if kind.deep > 1:
        arguments += map(np.int32, (k, metadata.shape[1], b.shape[1]))
    kernel = kernel_of(config, config.entry(operands.a.dtype, extra, problem.orders), device, source)
    launch = config.launch(m, n, kernel, device, own.count)
    held += sum(x.nbytes for x in (*own.workspace, *lines.made))
    steps = [*lines.before, (kernel, launch, tuple(arguments)), *lines.after]
    keep = (operands, val, metadata, own.workspace, b, out, c_in, c, bias)
    return Launch(name, steps, operands.c, prepare_ms, held, keep, scratch=(*own.scratch, *lines.made))


def _prepared(a: two_four.TwoFour, config: Wgmma, metadata, cache: dict):
    """(A's values as the kernel reads them, metadata, bytes made, milliseconds)."""
    prepare_ms, columns = 0.0, config.steps(1) * K
    if metadata is None:
        # In whole boxes of the copy engine, and in whole clusters.
        rows = 192 if config.m == 192 else max(256, config.below * config.m)
        metadata, prepare_ms = timed(lambda: ring_metadata(a, rows, columns))
    val, held, packed = a.val, metadata.nbytes, config.in_order_of_use
    if packed or a.k_pad % K or val.data.ptr % 16:  # or a part of another array
        key = f"packed {columns}" if packed else "val"
        if key not in cache:
            cache[key], ms = timed(lambda: pack_values(a, 256, columns) if packed else whole_rows(a))
            prepare_ms += ms
        val = cache[key]
        held += val.nbytes
    return val, metadata, held, prepare_ms


@dataclass
class Lines:
    """Copies around a launch: of lines that the copy engine cannot address."""

    device: Any
    cache: dict  #: where configurations that are tried on one problem share them
    made: list = field(default_factory=list)
    before: list = field(default_factory=list)
    after: list = field(default_factory=list)

    def padded(self, key: str, x, width: int):
        """Return an array for the lines of `x`, each of `width` elements. What a copy does not write is NaN, not what
        another one left in the same memory."""
        import cupy

        if key not in self.cache:
            self.cache[key] = cupy.empty((x.shape[0], width), x.dtype)
        self.made.append(self.cache[key])
        self.made[-1].data.memset_async(0xFF, self.made[-1].nbytes)
        return self.made[-1]

    def read(self, key: str, x, width: int):
        """`padded`, into which `x` is copied before the launch."""
        there = self.padded(key, x, width)
        self.before.append(pitch.copy(x, there, self.device))
        return there

    def written(self, key: str, x, width: int):
        """`padded`, from which `x` is copied after the launch."""
        there = self.padded(key, x, width)
        self.after.append(pitch.copy(there, x, self.device))
        return there


def by_columns(bits):
    """The columns of a column-major matrix as lines."""
    return bits.T.reshape(-1).reshape(bits.shape[::-1])  # a single one is as far from the next as it is long


def _addressable(problem: Problem, config: Wgmma, c: Half | None, lines: Lines) -> tuple:
    """Lines of B, C and what is added to it, where TMA can address them."""
    import cupy

    (of_b, of_c), operands = tuple(problem.orders), problem.device()
    b = by_columns(operands.b.bits) if of_b == "F" else operands.b.bits
    out = by_columns(operands.c.bits) if of_c == "F" else operands.c.bits
    c_in = None if c is None else by_columns(c.bits) if of_c == "F" else c.bits
    half_lines = pitch.LINE // 2  # elements of a whole line of L2
    if config.copied or not _by_tma(b):
        b = lines.read("b", b, ceil(b.shape[1] / half_lines) * half_lines)
    if not _by_tma(out) or c_in is not None and not _by_tma(c_in):
        out = lines.written("c", out, ceil(out.shape[1] / half_lines) * half_lines)
        if c_in is not None:
            given, c_in = c_in, cupy.empty_like(out)
            lines.before.append(pitch.copy(given, c_in, lines.device))
    return b, out, c_in


def _by_tma(lines) -> bool:
    """Whether TMA can address these lines."""
    return lines.shape[1] % 8 == 0 and lines.data.ptr % 16 == 0


def _maps(config: Wgmma, val, metadata, b, out, orders: str) -> tuple:
    """A, its metadata, lines of B and of C as a kernel with a copy engine is given them."""
    if config.packed:  # 4 KiB of a piece: 16 lines of 256 bytes
        of_a = tensor_map(val.reshape(-1, 128), (16, 128))
    else:
        of_a = val.data.ptr if config.kind.packed else tensor_map(val, (config.kind.box or config.m, K // 2), 64)
    return (
        of_a,
        tensor_map(metadata, (config.m // 64, 128)),
        tensor_map(b, ((config.n if orders[0] == "F" else K) // config.below, 64), 128),
        tensor_map(out, (min(64, config.n) if orders[1] == "F" else 64, 64), 128),
    )


def kernel_of(config: Tile, entry: str, device, source: Path | None = None):
    """A kernel of a configuration, loaded; source: see `bind`."""
    if source is None and not config.kind.exchanging:
        return jit.loaded(config.source, entry, device, config.shared_bytes)
    cubin = jit.compile_cubin(source or config.source, entry, jit.arch_of(device), include=(HERE,) if source else ())
    if config.kind.exchanging:
        cubin = jit.launched_with(cubin, AT_LAUNCH)
    return jit.load(cubin, config.shared_bytes)
