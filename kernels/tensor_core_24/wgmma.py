"""The Hopper kernels on `wgmma.mma_async.sp`: preparation and launch of a `family.Wgmma`.

Preparation is offline, like the compression itself: the metadata is put into the order in which a
stage of the ring holds it, and for wgmma_packed A's values, too. Its time is `prepare_ms`. Otherwise
A's values, B and C stay as they are: TMA masks what lies beyond a matrix. But rows of A's values are padded to whole
steps, since what begins at an odd multiple of 16 bytes costs TMA twice the time. For B that is the choice of a
configuration, `copied`, since each launch pays for it. Where n is no multiple of 8, which TMA cannot address, a launch
copies B to padded rows and C back from them.
"""

from __future__ import annotations

from math import ceil
from pathlib import Path

import numpy as np

from .. import jit, pitch
from ..contract import Launch, Problem, require, timed
from ..formats import layout, two_four
from ..formats.half import Half, array_module
from ..tma import tensor_map
from . import gpcs
from .family import AT_LAUNCH, COMPLETE, EXCHANGING, KEEP, TARGETS, K, Wgmma, cut_into_pieces
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


def pack_values(a: two_four.TwoFour, rows: int = 64):
    """A's values in the order of use: uint16 (m'/64, k'/64, 64, 32), NumPy or CuPy.

    m' and k' are m and k rounded up to multiples of `rows` and 64, with zeros. A piece is 64 rows and 64
    columns of A, 32 values a row; the four units of 16 bytes of row r are at u ^ (r // 2 % 4), the
    64-byte swizzle of TMA, which wgmma undoes.
    """
    high, wide = -(-a.m // rows) * rows, -(-a.k // K) * K // 2
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
    metadata=None,
    cache: dict | None = None,
    source: Path | None = None,
) -> Launch:
    """Make a configuration ready: D (m, n) = alpha·A·B + beta·C + bias, FP32 sums, rounded once.

    c: the C of beta, (m, n), looked at where beta is not 0; bias: float32 (m,), one for each row; CuPy.
    metadata: what `ring_metadata` returns, where it is there already, of whole tiles and rounds; cache:
    where configurations that are tried on one problem share what else they prepare; source: another file with the
    kernel, whose headers lie beside it or here. A Launch may be under way on two streams at once: both write the same.
    Raises ValueError, one sentence, where the GPU has no wgmma, the configuration does not take the problem, or the
    operands do not go together.
    """
    import cupy
    from cuda.core import LaunchConfig

    require(
        jit.arch_of(device) in TARGETS,
        f"{name} is made of wgmma, which compute capability 9.0 has and this GPU, "
        f"{'.'.join(map(str, device.compute_capability))}, has not: use mma_sp",
    )
    properties = device.properties
    m, n, k = problem.m, problem.n, problem.k
    sms = properties.multiprocessor_count
    config.check(m, n, k, sms, properties.max_shared_memory_per_block_optin)
    extra = beta != 0 or bias is not None
    require(
        not extra or config.kernel in COMPLETE,
        f"wgmma_{config.kernel} adds neither C nor a bias: use one of {', '.join(COMPLETE)}",
    )
    operands = problem.device()
    require_extra(name, operands, beta, c, bias)
    if beta == 0:
        c = None
    a, b, out = operands.a, operands.b, operands.c
    cache = {} if cache is None else cache
    share = 2 if config.kernel == "multicast" else config.share  # blocks, one below the other
    prepare_ms = 0.0
    if metadata is None:
        # In whole boxes of the copy engine, and in whole clusters.
        rows = 192 if config.m == 192 else max(256, share * config.m)
        metadata, prepare_ms = timed(lambda: ring_metadata(a, rows, config.steps(1) * K))

    packed = None
    if config.kernel == "packed":
        if "packed" not in cache:
            cache["packed"], pack_ms = timed(lambda: pack_values(a, 256))
            prepare_ms += pack_ms
        packed = cache["packed"]
    val, padded = a.val, None
    if packed is None and (a.k_pad % K or val.data.ptr % 16):  # or a part of another array
        if "val" not in cache:
            cache["val"], val_ms = timed(lambda: whole_rows(a))
            prepare_ms += val_ms
        val = padded = cache["val"]
    # Elements of a row of copies of B and C: whole lines.
    width = ceil(n / (pitch.LINE // 2)) * pitch.LINE // 2
    before, after = [], []
    b_bits, c_bits, c_in = b.bits, out.bits, None if c is None else c.bits
    addresses = [x.data.ptr for x in (b_bits, c_bits, c_in) if x is not None]
    alike = n % 8 == 0 and not any(address % 16 for address in addresses)  # TMA can address it
    if config.copied or not alike:
        if "b" not in cache:
            cache["b"] = cupy.empty((k, width), cupy.uint16)
        b_bits = cache["b"]
        # What a copy does not write is NaN, not what another one left in the same memory; so, too, of C below.
        b_bits.data.memset_async(0xFF, b_bits.nbytes)
        before.append(pitch.copy(b.bits, b_bits, device))
    if not alike:
        if "c" not in cache:
            cache["c"] = cupy.empty((m, width), cupy.uint16)
        c_bits = cache["c"]
        c_bits.data.memset_async(0xFF, c_bits.nbytes)
        after.append(pitch.copy(c_bits, out.bits, device))
        if c is not None:
            c_in = cupy.empty_like(c_bits)
            before.append(pitch.copy(c.bits, c_in, device))
    cupy.cuda.get_current_stream().synchronize()  # a launch may come on another stream

    rows = 64 if config.kernel == "pieces" else config.m  # of a request
    direct = config.kernel == "cp_async"
    maps = (
        tuple(x.data.ptr for x in (val, metadata, b_bits, c_bits))
        if direct
        else (
            tensor_map(val, (rows, K // 2), 64) if packed is None else packed.data.ptr,
            tensor_map(metadata, (config.m // 64, 128)),
            tensor_map(b_bits, (K // share, 64), 128),
            tensor_map(c_bits, (64, 64), 128),
        )
    )
    high, wide = config.tiles(m, n)
    high = ceil(high / share)
    count = high * wide
    steps = config.steps(k)
    order = () if direct else (high, wide, min(config.band, high))
    arguments = [np.int32(x) for x in (steps, *order)]
    workspace = ()
    if config.kernel == "last_wave":
        arguments.append(np.int32(whole_tiles(count, sms) if steps > 1 else count))
    if config.kernel == "gpc":
        workspace = (gpcs.places(device.device_id),)
        arguments.append(workspace[0].data.ptr)
    if config.kernel == "stream_k":
        workspace = (
            cupy.empty((sms, config.m * config.n), cupy.float32),
            cupy.zeros((sms, config.groups, 2), cupy.uint32),  # `Handover`s
        )
        cupy.cuda.get_current_stream().synchronize()  # the zeros are there, whatever stream comes next
        arguments += [np.int32(shared_tiles(count, sms)), *(x.data.ptr for x in workspace)]
    cut = cut_into_pieces(count, config.groups, sms) if config.kernel == "pieces" else None
    if cut:
        arguments += [np.int32(cut.whole), np.int32(cut.groups)]
    if config.kernel not in ("one_stage", "ring", "specialised", "cp_async", *EXCHANGING):
        arguments.append(np.int32(KEEP[config.keep]))
    arguments.append(np.float32(alpha))
    if config.kernel in COMPLETE:
        arguments += [
            np.float32(beta), 0 if c_in is None else c_in.data.ptr,
            0 if bias is None else bias.data.ptr, *map(np.int32, (m, n, c_bits.shape[1])),
        ]  # fmt: skip
    if direct:
        arguments += [np.int32(x) for x in (k, metadata.shape[1], b_bits.shape[1])]
    shared = config.shared_bytes
    entry = config.entry(a.dtype, extra)
    if source is None and config.kernel not in EXCHANGING:
        kernel = jit.loaded(config.source, entry, device, shared)
    else:
        cubin = jit.compile_cubin(
            source or config.source, entry, jit.arch_of(device), include=(HERE,) if source else ()
        )
        if config.kernel in EXCHANGING:
            cubin = jit.launched_with(cubin, AT_LAUNCH)
        kernel = jit.load(cubin, shared)
    resident = dict.fromkeys(
        ("persistent", "packed", "stream_k", "lean", "rounds", "refilling", *EXCHANGING), sms
    )
    resident |= {"multicast": sms // 2, "last_wave": sms // 2}
    cluster = 2 if config.kernel == "last_wave" else max(share, config.splits)
    options: dict = {"cluster": cluster} if cluster > 1 else {}
    if config.kernel == "clusters":
        # Of four there need not be as many as SMs allow, but what GPCs have room for.
        one = LaunchConfig(grid=1, block=config.threads, shmem_size=shared, **options)
        resident["clusters"] = jit.most_clusters(kernel, one, device)
    if cut:
        count = cut.whole + cut.pieces
    grid = min(count, resident.get(config.kernel, count))  # of clusters, where there are any
    if direct:
        grid = high, wide
    if config.kernel == "gpc":  # every place is some block's
        grid, options = sms, {"is_cooperative": True}
    launch = LaunchConfig(grid=grid, block=config.threads, shmem_size=shared, **options)
    copies = [x for x, own in ((b_bits, b.bits), (c_bits, out.bits)) if x is not own]
    kept = [x for x in (metadata, *workspace, packed, padded, *copies) if x is not None]
    held = sum(x.nbytes for x in kept)
    return Launch(
        name,
        [*before, (kernel, launch, (*maps, *arguments)), *after],
        out,
        prepare_ms,
        held,
        keep=(operands, val, metadata, packed, workspace, b_bits, c_bits, c_in, c, bias),
        scratch=(*(workspace if config.kernel == "stream_k" else ()), *copies),
    )
