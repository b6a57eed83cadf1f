"""The FP8 kernels on `wgmma.mma_async.sp`: preparation, launch and tuning of an `fp8_family.Fp8`.

A part of the room of its own, as `pruning` is: its problems (`fp8_operands`) are none that the room's VARIANTS
take. Preparation is offline, like the compression itself: the metadata is put into the order in which a stage
of the ring holds it, for some kernels together with A's values (`pack`). B and C stay as they are, but where a
row of B^T is no multiple of 16 bytes or one of C: then a launch copies B to padded rows and C back from them.
Scales are read from device memory by every launch.
"""

from __future__ import annotations

from functools import partial
from math import ceil

import numpy as np

from .. import pitch, tuning
from ..contract import Bound, Kernel, Launch, Problem, require, timed
from ..formats import two_four_eight
from ..formats.eight import Eight
from ..formats.half import array_module
from ..tma import tensor_map
from . import family, fp8_family
from .fp8_family import RUNGS, Fp8, K
from .fp8_operands import DTYPE, problem, problem_from
from .operands import ROOM
from .tiles import HERE, TARGETS, limits, require_activation, require_gpu
from .wgmma import Lines, by_columns, kernel_of, swizzled

__all__ = ["BASELINES", "VARIANTS", "bind", "bind_config", "problem", "problem_from", "tune"]

INSTEAD = "FP8 has no other kernel here"
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
    val = xp.zeros((64 * high, 64 * wide), xp.uint8)
    val[: a.m, : a.k_pad // 2] = a.val
    pieces = xp.empty((high, wide, 5120), xp.uint8)
    pieces[:, :, :4096] = swizzled(val, 64).reshape(high, wide, 4096)
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
    require_gpu(variant, device, INSTEAD)
    of = problem.m, problem.n, problem.k, *limits(device), problem.orders
    return tuning.bind_choice(
        family.CHOICES,
        (*of[:3], problem.label),
        device,
        fits=lambda config: isinstance(config, Fp8) and config.takes(*of),
        make=lambda: tune(problem, device),
        bind=lambda config: bind_config(variant, problem, device, config),
        **extra,
    )


def tune(problem: Problem, device) -> tuning.Winner:
    """The fastest candidate whose output is that of the ladder's first rung."""
    configs = fp8_family.candidates(problem.m, problem.n, problem.k, *limits(device), problem.orders)
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

    bias: float32 (m,), CuPy; activation: one of `ACTIVATIONS`, or "": none.
    cache: where configurations that are tried on one problem share what they prepare. Raises ValueError, one
    sentence, where the GPU has no wgmma, the operands are none of FP8, or the configuration does not take the
    problem.
    """
    import cupy

    require_gpu(name, device, INSTEAD)
    require_activation(activation)
    m, n, k, kind = problem.m, problem.n, problem.k, config.kind
    config.check(m, n, k, *limits(device), problem.orders)
    turned, (out_kind, rows, columns) = problem.orders == "FF", _kind(problem)
    operands = problem.device()
    a, b, out = operands.a, operands.b, operands.c
    cache = {} if cache is None else cache
    key, prepare_ms = "packed" if kind.packed else f"metadata of {config.m}", 0.0
    if key not in cache:
        cache[key], prepare_ms = timed(lambda: pack(a) if kind.packed else ring_metadata(a, config.m))
    prepared, lines = cache[key], Lines(device, cache)
    # (n, k); and (m, n), or lines of C by columns (n, m)
    b_bits = b.bits.T if n > 1 else b.bits.reshape(1, k)
    d_bits = by_columns(out.bits) if turned else out.bits
    if k % 16 or b_bits.data.ptr % 16:
        b_bits = lines.read("b", b.bits.T, ceil(k / pitch.LINE) * pitch.LINE)
    unit = 16 // d_bits.dtype.itemsize  # elements of C that the copy engine can address
    if d_bits.shape[1] % unit or d_bits.data.ptr % 16:
        d_bits = lines.written("d", d_bits, ceil(d_bits.shape[1] / unit) * unit)
    cupy.cuda.get_current_stream().synchronize()  # a launch may come on another stream

    val = a.val
    of_a: tuple = (prepared.data.ptr,)
    of_d: tuple = (d_bits.data.ptr, np.int32(d_bits.strides[0]))
    if not kind.packed:
        val = val.copy() if val.data.ptr % 16 else val  # a part of another array
        of_a = tensor_map(val, (config.m, K // 2), 64), tensor_map(prepared, (config.m // 64, 256))
    if not config.direct:
        box = min(64, config.n) if turned else 64
        of_d = (tensor_map(d_bits, (box, 64), 64 * d_bits.dtype.itemsize),)
    of_b = tensor_map(b_bits, (config.n // config.below, K), 128, config.ahead)
    scales = (a.scale, b.scale, getattr(out, "scale", None))
    arguments = (
        *(*of_a, of_b, *of_d, *config.order(m, n, k)),
        *(0 if x is None else x.data.ptr for x in scales),
        *map(np.int32, (m, n)),
        0 if bias is None else bias.data.ptr,
    )
    entry = config.entry(out_kind, rows, columns, problem.orders, activation or bias is not None)
    kernel = kernel_of(config, entry, device)
    return Launch(
        name,
        [*lines.before, (kernel, config.launch(m, n, kernel, device), arguments), *lines.after],
        out,
        prepare_ms,
        prepared.nbytes,
        keep=(operands, val, prepared, b_bits, d_bits, bias),
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
