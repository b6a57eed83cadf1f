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

from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np

from .. import jit, pitch
from ..contract import Launch, Problem, require, timed
from ..formats import layout, two_four
from ..formats.half import Half, array_module
from ..tma import tensor_map
from . import gpcs
from .family import ACTIVATIONS, AT_LAUNCH, COMPLETE, KEEP, TARGETS, K, Wgmma, cut_into_pieces
from .operands import require_extra

HERE = Path(__file__).parent


def ring_metadata(a: two_four.TwoFour, rows: int = 64, columns: int = K):
    """Metadata in the order of the ring: uint32 (m'/64, 2 k'), NumPy or CuPy.

    m' and k' are m and k rounded up to multiples of `rows` and `columns`; what is added is valid metadata of
    zeros. For each 64 rows and 64 columns of A there are 128 words, 32 for each warp of a warpgroup
    and its 16 rows, in the order of the lanes; a word is the one of `two_four.swizzle`.
    """
    if array_module(a.meta) is not np:
        high, wide = ceil(a.m / rows) * rows, ceil(a.k_pad / columns) * columns // 16
        return layout.swizzled(a.meta, high, wide, ring=True)
    swizzled = two_four.swizzle(a.meta, rows, columns)
    words = swizzled.view(np.uint32).reshape(-1, 4, 8, swizzled.shape[1] // 8, 4)
    moved = words.transpose(0, 3, 1, 2, 4).reshape(words.shape[0], -1)
    return moved if moved.flags.c_contiguous else moved.copy()


def pack_values(a: two_four.TwoFour, rows: int = 64, columns: int = K):
    """A's values in the order of use: uint16 (m'/64, k'/64, 64, 32), NumPy or CuPy.

    m' and k' are m and k rounded up to multiples of `rows` and `columns`, with zeros. A piece is 64 rows and 64
    columns of A, 32 values a row; the four units of 16 bytes of row r are at u ^ (r // 2 % 4), the
    64-byte swizzle of TMA, which wgmma undoes.
    """
    high, wide = -(-a.m // rows) * rows, -(-a.k // columns) * columns // 2
    val = a.val
    if array_module(val) is not np:
        return layout.packed_values(val, high, wide // 32)
    if val.shape != (high, wide):
        val = np.zeros((high, wide), np.uint16)
        val[: a.m, : a.k_pad // 2] = a.val
    units = val.reshape(high // 64, 64, wide // 32, 4, 8).transpose(0, 2, 1, 3, 4)
    row, unit = np.arange(64)[:, None], np.arange(4)[None, :]
    pieces = units[:, :, row, unit ^ row // 2 % 4].reshape(high // 64, wide // 32, 64, 32)
    return np.ascontiguousarray(pieces)


def whole_rows(a: two_four.TwoFour):
    """A's values in rows of whole steps: uint16 (m, k' / 2), NumPy or CuPy; k' is k rounded up to a multiple of 64."""
    return layout.with_zeros(a.val, a.m, ceil(a.k / K) * K // 2)


def shared_tiles(count: int, sms: int) -> int:
    """Tiles that stream_k cuts along k: none where they divide evenly, else one wave and the rest."""
    return 0 if count % sms == 0 else count % sms + sms


def whole_tiles(count: int, sms: int) -> int:
    """Tiles that last_wave does not cut: those of whole waves, or all where more than half a wave remains.

    sms: rounded down to an even number, as clusters of two have it.
    """
    wave = sms // 2 * 2
    return count - count % wave if count % wave <= wave // 2 else count


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
    activation: one of `family.ACTIVATIONS`, or "": none.
    metadata: what `ring_metadata` returns, where it is there already, of whole tiles and rounds; cache:
    where configurations that are tried on one problem share what else they prepare; source: another file with the
    kernel, whose headers lie beside it or here. A Launch may be under way on two streams at once: both write the same.
    Raises ValueError, one sentence, where the GPU has no wgmma, the configuration does not take the problem, or the
    operands do not go together.
    """
    import cupy

    require(
        jit.arch_of(device) in TARGETS,
        f"{name} is made of wgmma, which compute capability 9.0 has and this GPU, "
        f"{'.'.join(map(str, device.compute_capability))}, has not: use mma_sp",
    )
    properties = device.properties
    m, n, k = problem.m, problem.n, problem.k
    config.check(m, n, k, properties.multiprocessor_count, properties.max_shared_memory_per_block_optin, problem.orders)
    require(
        activation in ("", *ACTIVATIONS),
        f"activation is {activation!r}, but must be one of {', '.join(ACTIVATIONS)}, or empty",
    )
    extra = activation or (beta != 0 or bias is not None)
    kind = config.kind
    require(
        not extra or kind.adds,
        f"wgmma_{config.kernel} adds neither C nor a bias, nor has it an activation: use one of {', '.join(COMPLETE)}",
    )
    operands = problem.device()
    require_extra(name, operands, beta, c, bias)
    if beta == 0:
        c = None
    a, out, packed = operands.a, operands.c, kind.packed or config.packed
    cache = {} if cache is None else cache
    val, metadata, held, prepare_ms = _prepared(a, config, metadata, cache)
    dense = _addressable(problem, config, c, cache, device)
    own = own_of(config, problem, device)
    cupy.cuda.get_current_stream().synchronize()  # a launch may come on another stream

    high, wide = grid_of(config, m, n)
    arguments = [
        *_operands(config, val, metadata, dense, problem.orders),
        np.int32(config.steps(k)),
        *(() if kind.by_threads else map(np.int32, (high, wide, min(config.band, high)))),
        *own.arguments,
        *(() if kind.hints == "never" else [np.int32(KEEP[config.keep])]),
        np.float32(alpha),
    ]
    if kind.adds:
        arguments += [
            np.float32(beta),
            *(0 if x is None else x.data.ptr for x in (dense.c_in, bias)),
            *map(np.int32, (m, n, dense.c.shape[1])),
        ]
    if kind.ordered:
        arguments += [np.int32(val.shape[1] if packed else 0)]
    if kind.by_threads:
        arguments += map(np.int32, (k, metadata.shape[1], dense.b.shape[1]))
    kernel = kernel_of(config, config.entry(a.dtype, extra, problem.orders), device, source)
    launch = launch_of(config, m, n, kernel, device, own.count)
    held += sum(x.nbytes for x in (*own.workspace, *dense.copies))
    return Launch(
        name,
        [*dense.before, (kernel, launch, tuple(arguments)), *dense.after],
        out,
        prepare_ms,
        held,
        keep=(
            operands,
            a.val if packed else val,
            metadata,
            val if packed else None,
            own.workspace,
            dense.b,
            dense.c,
            dense.c_in,
            c,
            bias,
        ),
        scratch=(*own.scratch, *dense.copies),
    )


def launch_of(config: Wgmma, m: int, n: int, kernel, device, count: int = 0):
    """The `cuda.core.LaunchConfig` of a loaded kernel. count: of what is multiplied; 0: of the tiles."""
    from cuda.core import LaunchConfig

    kind, (high, wide) = config.kind, grid_of(config, m, n)
    sms = device.properties.multiprocessor_count
    how: dict = {"block": config.threads, "shmem_size": config.shared_bytes}
    if config.cluster > 1:
        how["cluster"] = config.cluster
    if config.kernel == "gpc":  # every place is some block's
        return LaunchConfig(grid=sms, is_cooperative=True, **how)
    if kind.by_threads:
        return LaunchConfig(grid=(high, wide), **how)
    grid = count or high * wide
    if len(kind.share) > 1:  # of four there need not be as many as SMs allow, but what GPCs have room for
        grid = min(grid, jit.most_clusters(kernel, LaunchConfig(grid=1, **how), device))
    elif kind.stays:
        grid = min(grid, sms // kind.stays)  # of clusters, where there are any
    return LaunchConfig(grid=grid, **how)


def grid_of(config: Wgmma, m: int, n: int) -> tuple[int, int]:
    """Tiles in a column, or what a cluster multiplies at a time, and in a row of C."""
    high, wide = config.tiles(m, n)
    return ceil(high / _below(config)), wide


def _below(config: Wgmma) -> int:
    """Blocks of a cluster, one below the other, that fetch B for each other."""
    return 2 if config.kernel == "multicast" else config.share


def _prepared(a: two_four.TwoFour, config: Wgmma, metadata, cache: dict):
    """(A's values as the kernel reads them, metadata, bytes made, milliseconds)."""
    kind, prepare_ms = config.kind, 0.0
    if metadata is None:
        # In whole boxes of the copy engine, and in whole clusters.
        rows = 192 if config.m == 192 else max(256, _below(config) * config.m)
        metadata, prepare_ms = timed(lambda: ring_metadata(a, rows, config.steps(1) * K))
    val, held, packed = a.val, metadata.nbytes, kind.packed or config.packed
    if packed or a.k_pad % K or val.data.ptr % 16:  # or a part of another array
        key, make = "val", lambda: whole_rows(a)
        if packed:
            columns = config.steps(1) * K
            key, make = f"packed {columns}", lambda: pack_values(a, 256, columns)
        if key not in cache:
            cache[key], ms = timed(make)
            prepare_ms += ms
        val = cache[key]
        held += val.nbytes
    return val, metadata, held, prepare_ms


@dataclass(frozen=True)
class _Dense:
    """Lines of B, C and what is added to it, where TMA can address them, and the copies around a launch."""

    b: Any
    c: Any
    c_in: Any
    copies: tuple
    before: list
    after: list


def _addressable(problem: Problem, config: Wgmma, c: Half | None, cache: dict, device) -> _Dense:
    import cupy

    def lines(x: Half | None, order: str):
        if x is None or order == "C":
            return None if x is None else x.bits
        columns = x.bits.T
        return columns.reshape(-1).reshape(columns.shape)  # a single one is as far from the next as it is long

    (of_b, of_c), operands = tuple(problem.orders), problem.device()
    given_b, given_c, given_in = lines(operands.b, of_b), lines(operands.c, of_c), lines(c, of_c)
    b, out, c_in = given_b, given_c, given_in
    copies, before, after = [], [], []

    def padded(key: str, x):
        width = ceil(x.shape[1] / (pitch.LINE // 2)) * pitch.LINE // 2  # whole lines of L2
        if key not in cache:
            cache[key] = cupy.empty((x.shape[0], width), cupy.uint16)
        # What a copy does not write is NaN, not what another one left in the same memory.
        cache[key].data.memset_async(0xFF, cache[key].nbytes)
        copies.append(cache[key])
        return cache[key]

    if config.copied or not _by_tma(b):
        b = padded("b", b)
        before.append(pitch.copy(given_b, b, device))
    if not _by_tma(out) or c_in is not None and not _by_tma(c_in):
        out = padded("c", out)
        after.append(pitch.copy(out, given_c, device))
        if c_in is not None:
            c_in = cupy.empty_like(out)
            before.append(pitch.copy(given_in, c_in, device))
    return _Dense(b, out, c_in, tuple(copies), before, after)


def _by_tma(lines) -> bool:
    """Whether TMA can address these lines."""
    return lines.shape[1] % 8 == 0 and lines.data.ptr % 16 == 0


def _operands(config: Wgmma, val, metadata, dense: _Dense, orders: str) -> tuple:
    """A, its metadata, lines of B and of C as the kernel is given them: addresses, or tensor maps."""
    kind = config.kind
    if kind.by_threads:
        return tuple(x.data.ptr for x in (val, metadata, dense.b, dense.c))
    rows = 64 if config.kernel == "pieces" else config.m  # of a request
    if config.packed:  # 4 KiB of a piece: 16 lines of 256 bytes
        of_a = tensor_map(val.reshape(-1, 128), (16, 128))
    else:
        of_a = val.data.ptr if kind.packed else tensor_map(val, (rows, K // 2), 64)
    return (
        of_a,
        tensor_map(metadata, (config.m // 64, 128)),
        tensor_map(dense.b, ((config.n if orders[0] == "F" else K) // _below(config), 64), 128),
        tensor_map(dense.c, (min(64, config.n) if orders[1] == "F" else 64, 64), 128),
    )


def kernel_of(config: Wgmma, entry: str, device, source: Path | None = None):
    """A kernel of a configuration, loaded; source: see `bind`."""
    shared = config.shared_bytes
    if source is None and not config.kind.exchanging:
        return jit.loaded(config.source, entry, device, shared)
    cubin = jit.compile_cubin(source or config.source, entry, jit.arch_of(device), include=(HERE,) if source else ())
    if config.kind.exchanging:
        cubin = jit.launched_with(cubin, AT_LAUNCH)
    return jit.load(cubin, shared)


# ---------------------------------------------------------------- what one kernel alone is given


@dataclass(frozen=True)
class _Own:
    arguments: tuple = ()
    workspace: tuple = ()
    scratch: tuple = ()  #: of it, what launches write
    count: int = 0  #: of what is multiplied; 0: of the tiles


def _nothing(config: Wgmma, problem: Problem, device) -> _Own:
    return _Own()


def _last_wave(config: Wgmma, problem: Problem, device) -> _Own:
    high, wide = grid_of(config, problem.m, problem.n)
    whole = whole_tiles(high * wide, device.properties.multiprocessor_count)
    return _Own((np.int32(whole if config.steps(problem.k) > 1 else high * wide),))


def _places(config: Wgmma, problem: Problem, device) -> _Own:
    places = gpcs.places(device.device_id)
    return _Own((places.data.ptr,), (places,))


def _shares(config: Wgmma, problem: Problem, device) -> _Own:
    import cupy

    high, wide = grid_of(config, problem.m, problem.n)
    sms = device.properties.multiprocessor_count
    sums = cupy.empty((sms, config.m * config.n), cupy.float32)
    handovers = cupy.zeros((sms, config.groups, 2), cupy.uint32)  # `Handover`s
    cut = np.int32(shared_tiles(high * wide, sms))
    return _Own((cut, sums.data.ptr, handovers.data.ptr), (sums, handovers), (sums, handovers))


def _pieces(config: Wgmma, problem: Problem, device) -> _Own:
    high, wide = grid_of(config, problem.m, problem.n)
    cut = cut_into_pieces(high * wide, config.groups, device.properties.multiprocessor_count)
    return _Own((np.int32(cut.whole), np.int32(cut.groups)), count=cut.whole + cut.pieces)


def own_of(config: Wgmma, sizes, device) -> _Own:
    """What a kernel alone is given. sizes: anything with m, n and k."""
    return _OWN.get(config.kernel, _nothing)(config, sizes, device)


_OWN = {"last_wave": _last_wave, "gpc": _places, "stream_k": _shares, "pieces": _pieces}
