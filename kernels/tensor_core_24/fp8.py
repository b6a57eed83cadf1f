"""The FP8 kernels on `wgmma.mma_async.sp`: preparation, launch and tuning of an `fp8_family.Fp8`.

A part of the room of its own, as `pruning` is: its problems (`fp8_operands`) are none that the room's VARIANTS
take. Preparation is offline, like the compression itself: the metadata is put into the order in which a stage
of the ring holds it, for some kernels together with A's values (`pack`). B and C stay as they are, but where a
row of B^T is no multiple of 16 bytes or one of C: then a launch copies B to padded rows and C back from them.
Scales are read from device memory by every launch.
"""

from __future__ import annotations

from functools import partial
from math import ceil, nan

import numpy as np

from .. import jit, pitch, tuning
from ..contract import Bound, Kernel, Launch, Problem, require, timed
from ..formats import two_four_eight
from ..formats.eight import Eight
from ..formats.half import Half, array_module
from ..tma import tensor_map
from . import family, fp8_family
from .fp8_family import HERE, KEEP, RUNGS, TARGETS, Fp8, K
from .fp8_operands import DTYPE, problem, problem_from
from .operands import ROOM

__all__ = ["BASELINES", "VARIANTS", "bind", "bind_config", "problem", "problem_from", "tune"]

#: Libraries of `artifact/baselines` that these problems are raced against.
BASELINES = ("cusparselt", "cublaslt_eight")

VARIANTS: dict[str, Kernel] = {
    **{
        name: Kernel(
            name,
            config.source,
            idea,
            prediction,
            (config.entry(), config.entry("e4m3", True, True)),
            targets=TARGETS,
        )
        for name, (config, idea, prediction) in RUNGS.items()
    },
    "fp8_auto": Kernel(
        "fp8_auto",
        HERE / "fp8_family.py",
        "the fastest of this GPU's FP8 family for the shape, found by trying and written down",
        "1.1x over cuSPARSELt's best, as in BF16.",
    ),
}


def ring_metadata(a: two_four_eight.TwoFourEight, rows: int = 64):
    """Metadata in the order of the ring: uint32 (m'/64, 2 k'), NumPy or CuPy.

    m' and k' are m and k rounded up to multiples of `rows` and 128; what is added is valid metadata of zeros. For
    each 64 rows and 64 columns of A there are the 128 words of `two_four_eight.words`.
    """
    words = two_four_eight.words(a.meta, rows)
    high, wide = words.shape[:2]
    xp = array_module(words)
    if wide % 2:
        words = xp.concatenate((words, xp.full((high, 1, 4, 32), 0x44444444, xp.uint32)), axis=1)
    return xp.ascontiguousarray(words).reshape(high, -1)


def pack(a: two_four_eight.TwoFourEight, rows: int = 256):
    """A in the order of use: uint8 (m'/64, k'/128, 5120), NumPy or CuPy.

    m' and k' are m and k rounded up to multiples of `rows` and 128, with zeros. A piece is 64 rows and 128 columns of
    A: 64 values a row, whose four units of 16 bytes are, in row r, at u ^ (r // 2 % 4), the 64-byte swizzle of TMA,
    which wgmma undoes; then the 256 words of `ring_metadata`.
    """
    xp = array_module(a.val)
    words = ring_metadata(a, rows)
    high, wide = words.shape[0], words.shape[1] // 256
    val = a.val
    if val.shape != (64 * high, 64 * wide):
        val = xp.zeros((64 * high, 64 * wide), xp.uint8)
        val[: a.m, : a.k_pad // 2] = a.val
    units = val.reshape(high, 64, wide, 4, 16).transpose(0, 2, 1, 3, 4)
    row, unit = xp.arange(64)[:, None], xp.arange(4)[None, :]
    pieces = xp.empty((high, wide, 5120), xp.uint8)
    pieces[:, :, :4096] = units[:, :, row, unit ^ row // 2 % 4].reshape(high, wide, 4096)
    pieces[:, :, 4096:] = words.view(xp.uint8).reshape(high, wide, 1024)
    return pieces


def bind(variant: str, problem: Problem, device, **extra) -> Bound:
    """Compile `variant` for `device` (a current `cuda.core.Device`), prepare A's metadata, make it ready.

    extra: `file` of "fp8_auto", as of the room's "auto". Raises ValueError where the variant does not exist or
    does not take the problem or the GPU.
    """
    require(
        variant in VARIANTS,
        f"{ROOM} has no FP8 variant {variant!r}: choose one of {', '.join(VARIANTS)}",
    )
    if variant != "fp8_auto":
        return bind_config(variant, problem, device, RUNGS[variant][0], **extra)
    _require_gpu(variant, device)
    shape = problem.m, problem.n, problem.k
    most = device.properties.max_shared_memory_per_block_optin
    return tuning.bind_choice(
        family.CHOICES,
        (*shape, problem.label),
        device,
        fits=lambda config: isinstance(config, Fp8) and fp8_family.fits(config, *shape, most, problem.orders),
        make=lambda: tune(problem, device),
        bind=lambda config: bind_config(variant, problem, device, config),
        **extra,
    )


def tune(problem: Problem, device) -> tuning.Winner:
    """The fastest candidate whose output is that of the ladder's first rung."""
    properties = device.properties
    limits = properties.multiprocessor_count, properties.max_shared_memory_per_block_optin
    configs = fp8_family.candidates(problem.m, problem.n, problem.k, *limits, problem.orders)
    require(
        bool(configs),
        f"no FP8 configuration takes m={problem.m}, n={problem.n}, k={problem.k} on this GPU: see "
        "FAMILY of fp8_family.py",
    )
    kind = (*_kind(problem), problem.orders)
    share: dict = {}
    return tuning.tune(
        problem,
        configs,
        lambda p, config: bind_config("trial", p, device, config, cache=share if p is problem else None),
        [partial(bind, name, device=device) for name in RUNGS],
        device,
        family.ROUNDS,
        [(config.source, config.entry(*kind)) for config in configs],
    )


def bind_config(
    name: str, problem: Problem, device, config: Fp8, *, bias=None, activation: str = "", cache: dict | None = None
) -> Launch:
    """Make a configuration ready: D (m, n) = activation(scale_A · scale_B · sums / scale_D + bias), FP32 sums, rounded
    once.

    bias: float32 (m,), CuPy; activation: one of `family.ACTIVATIONS`, or "": none.
    cache: where configurations that are tried on one problem share what they prepare. Raises ValueError, one
    sentence, where the GPU has no wgmma, the operands are none of FP8, or the configuration does not take the
    problem.
    """
    import cupy

    _require_gpu(name, device)
    m, n, k = problem.m, problem.n, problem.k
    config.check(m, n, k, device.properties.max_shared_memory_per_block_optin, problem.orders)
    turned = problem.orders == "FF"
    operands = problem.device()
    out_kind, rows, columns = _kind(problem)
    a, b, out = operands.a, operands.b, operands.c
    cache = {} if cache is None else cache
    packed = config.kernel in fp8_family.PACKED
    key, prepare_ms = "packed" if packed else f"metadata of {config.m}", 0.0
    if key not in cache:
        cache[key], prepare_ms = timed(lambda: pack(a) if packed else ring_metadata(a, config.m))
    prepared = cache[key]

    before, after = [], []
    # (n, k); and (m, n), or lines of C by columns (n, m)
    b_bits, d_bits = b.bits.T if n > 1 else b.bits.reshape(1, k), out.bits
    if turned:
        d_bits = out.bits.T.reshape(-1).reshape(n, m)
    given = d_bits
    if k % 16 or b_bits.data.ptr % 16:
        if "b" not in cache:
            cache["b"] = cupy.empty((n, ceil(k / pitch.LINE) * pitch.LINE), cupy.uint8)
        b_bits = cache["b"]
        before.append(pitch.copy(b.bits.T, b_bits, device))
    unit = 16 // d_bits.dtype.itemsize  # elements of C that the copy engine can address
    if given.shape[1] % unit or d_bits.data.ptr % 16:
        if "d" not in cache:
            cache["d"] = cupy.empty((given.shape[0], ceil(given.shape[1] / unit) * unit), d_bits.dtype)
        d_bits = cache["d"]
        # What a kernel does not write is NaN, not what another one left in the same memory.
        poison = Half(out.dtype, d_bits) if isinstance(out, Half) else Eight(DTYPE, d_bits, out.scale)
        poison.fill(nan)
        after.append(pitch.copy(d_bits, given, device))
    cupy.cuda.get_current_stream().synchronize()  # a launch may come on another stream

    b_map = tensor_map(b_bits, (config.n // 2 if config.pairs else config.n, K), 128, config.ahead)
    val = a.val
    of_a: tuple
    of_d: tuple
    if packed:
        of_a = (prepared.data.ptr,)
    else:
        val = val.copy() if val.data.ptr % 16 else val  # a part of another array
        of_a = tensor_map(val, (config.m, K // 2), 64), tensor_map(prepared, (config.m // 64, 256))
    if config.kernel in fp8_family.DIRECT:
        of_d = d_bits.data.ptr, np.int32(d_bits.strides[0])
    else:
        lines = min(64, config.n) if turned else 64
        of_d = (tensor_map(d_bits, (lines, 64), 64 * d_bits.dtype.itemsize),)
    high, wide = config.tiles(m, n)
    scales = (a.scale, b.scale, getattr(out, "scale", None))
    arguments = (
        *map(np.int32, (ceil(k / K), high, wide, min(config.band, high), KEEP[config.keep])),
        *(0 if x is None else x.data.ptr for x in scales),
        np.int32(m),
        np.int32(n),
        0 if bias is None else bias.data.ptr,
    )
    shared = config.shared_bytes
    extra = activation or bias is not None
    entry = config.entry(out_kind, rows, columns, problem.orders, extra)
    kernel = jit.loaded(config.source, entry, device, shared)
    launch = launch_of(config, m, n, device)
    return Launch(
        name,
        [*before, (kernel, launch, (*of_a, b_map, *of_d, *arguments)), *after],
        out,
        prepare_ms,
        prepared.nbytes,
        keep=(operands, val, prepared, b_bits, d_bits, bias),
    )


def launch_of(config: Fp8, m: int, n: int, device):
    """The `cuda.core.LaunchConfig` of a configuration."""
    from cuda.core import LaunchConfig

    high, wide = config.tiles(m, n)
    count, sms = high * wide, device.properties.multiprocessor_count
    resident = count if config.kernel == "split_k" else sms // config.cluster
    grid = min(count, resident)  # of clusters, where there are any
    cluster = {"cluster": config.cluster} if config.cluster > 1 else {}
    return LaunchConfig(grid=grid, block=config.threads, shmem_size=config.shared_bytes, **cluster)


def _require_gpu(name: str, device) -> None:
    require(
        jit.arch_of(device) in TARGETS,
        f"{name} is made of wgmma, which compute capability 9.0 has and this GPU, "
        f"{'.'.join(map(str, device.compute_capability))}, has not: FP8 has no other kernel here",
    )


def _kind(problem: Problem) -> tuple[str, bool, bool]:
    """The dtype of C, whether A has a scale for each row, B one for each column; ValueError for other operands."""
    operands = problem.device()
    a, b, c = operands.a, operands.b, operands.c
    require(
        isinstance(a, two_four_eight.TwoFourEight) and isinstance(b, Eight) and a.dtype == b.dtype == DTYPE,
        f"the FP8 kernels take A as 2:4 and B dense in {DTYPE}, and {problem.room} has something else here: "
        "make a problem of fp8_operands",
    )
    return c.dtype, a.scale.shape[0] > 1, b.scale.shape[1] > 1
