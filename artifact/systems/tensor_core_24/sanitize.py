"""Every kernel for 2:4, in 16 bits and in 8, as `artifact.sanitize` runs them."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import numpy as np
from scipy.special import erf

from artifact.measure import verification
from artifact.sanitize.cases import Case, Lab, configured, normal, own
from kernels import tensor_core_24 as system
from kernels.formats import half, two_four
from kernels.lazy import cupy
from kernels.tensor_core_24 import family, fp8 as fp8_system, launch, layer

#: Activations in float64, as kernels apply them to what they store.
FUNCTIONS: dict[str, Callable] = {
    "": lambda x: x,
    "relu": lambda x: np.maximum(x, 0),
    "gelu": lambda x: x * (1 + erf(x / np.sqrt(2))) / 2,
    "silu": lambda x: x / (1 + np.exp(-x)),
}
#: Of each kernel that takes B and C in any order the smallest tile, and the tiles for few tokens.
SMALLEST = {c.kernel: c for c in sorted(family.WGMMA_FAMILY, key=lambda c: -c.m * c.n) if c.kind.ordered}
NARROW = {c.kernel: c for c in sorted(family.NARROW_FAMILY, key=lambda c: -c.n)}


def tensor_core_24(lab: Lab) -> Iterable[Case]:
    """Yield the cases of the system's kernels in 16 bits."""
    for shape, kind in (((200, 264, 392), "bfloat16"), ((400, 520, 200), "float16"), ((133, 77, 210), "bfloat16")):
        yield from lab.products(system.problem(*shape, dtype=kind), own(system))
    # Of what the tuner tries, the smallest and the largest tile of each kernel.
    by_size = sorted((c for c in family.WGMMA_FAMILY if c.kernel != "gpc"), key=lambda c: (c.m * c.n, c.stages))
    tiles = dict.fromkeys(
        c for of in ({c.kernel: c for c in by_size[::-1]}, {c.kernel: c for c in by_size}) for c in of.values()
    )
    binds = _each(launch.prepare_config, tiles, "{c.kernel} {c.m} x {c.n}, {c.stages} stages")
    yield from lab.products(system.problem(400, 520, 500), binds)  # 8 steps: whole rounds of rings
    # B and C in other orders.
    few = {(c.kernel, c.groups, c.n, c.splits): c for c in family.NARROW_FAMILY}
    for orders, n, configs in (("FF", 264, SMALLEST), ("FC", 264, SMALLEST), ("CF", 264, SMALLEST), ("FF", 13, few)):
        binds = _each(launch.prepare_config, configs.values(), "{c.kernel} {c.m} x {c.n} {c.splits}, " + orders)
        yield from lab.products(system.problem(200, n, 512, orders=orders), binds)
    yield from _with_more(lab)
    # With A in the order of use, a bias and an activation.
    for n, those in (
        (264, [replace(c, copied=False, packed=True) for c in SMALLEST.values()]),
        (13, [c if c.kind.packed else replace(c, packed=True) for c in NARROW.values()]),
    ):
        yield from _activated(lab, system.problem(200, n, 512, orders="FF"), launch.prepare_config, those)
    # By the launcher: tokens that fit no tile, from narrow tiles to wide ones.
    for m, tokens, k, dtype, activation in (
        (8, 1, 8, "bfloat16", "relu"),
        (200, 13, 264, "bfloat16", "gelu"),
        (264, 43, 392, "float16", "silu"),
        (136, 133, 520, "bfloat16", ""),
        (1000, 523, 512, "bfloat16", "gelu"),
    ):
        problem, prepare = system.problem(m, tokens, k, dtype=dtype, orders="FF"), partial(_layer, dtype, activation)
        yield from lab.products(problem, {f"layer {activation}".strip(): prepare}, _right(problem, activation))


def _each(prepare: Callable, configs: Iterable, said: str) -> dict[str, Callable]:
    """Return name → what makes a configuration ready; said: the name, of the configuration `c`."""
    return {said.format(c=c): partial(configured, prepare, c) for c in configs}


def _with_more(lab: Lab) -> Iterable[Case]:
    """2 · A · B - C + bias, of every kernel that adds: one rung of each."""
    problem, bias = system.problem(200, 264, 392), normal(16, 200)
    c = half.from_dense(normal(4, 200, 264), "bfloat16")
    rungs = {config.kernel: name for name, (config, *_) in family.RUNGS.items() if config.kernel in family.COMPLETE}
    right = verification.reference(
        2 * verification.oracle(problem, on="cpu").values - half.to_dense(c).astype(np.float64) + bias[:, None]
    )

    def prepare(name: str, problem, device):
        return system.prepare(name, problem, device, alpha=2.0, beta=-1.0, c=half.to_device(c), bias=cupy.asarray(bias))

    return lab.products(problem, {name: partial(prepare, name) for name in ("mma_sp", *rungs.values())}, right)


def _activated(lab: Lab, problem, prepare: Callable, configs: Iterable) -> Iterable[Case]:
    """gelu(A · B + bias) by each configuration."""

    def made(name: str, problem, device, config):
        return prepare(name, problem, device, config, bias=cupy.asarray(normal(16, problem.m)), activation="gelu")

    return lab.products(
        problem, _each(made, configs, "{c.kernel} {c.m} x {c.n} {c.splits} with gelu"), _right(problem, "gelu")
    )


def _right(problem, activation: str, inputs: np.ndarray | None = None) -> verification.Reference:
    """Return the activation of a problem's product and the bias.

    inputs: (tokens, k), of other inputs than the problem's.
    """
    product = (
        verification.oracle(problem, on="cpu").values
        if inputs is None
        else two_four.to_dense(problem.host().a).astype(np.float64) @ inputs.T
    )
    return verification.reference(FUNCTIONS[activation](product + normal(16, problem.m)[:, None]))


def _layer(dtype: str, activation: str, problem, device) -> SimpleNamespace:
    """Return what a layer enqueues, as a `PreparedKernel`.

    For the sizes and the GPU as they are, not with few multiprocessors.
    """
    ops, sizes = problem.device(), layer.Sizes(problem.m, problem.k, problem.n, dtype, True, activation)
    arrays = [ops.b.bits, ops.c.bits, *layer.pack(ops.a), cupy.asarray(normal(16, problem.m))]

    def launch(stream) -> None:
        layer.launcher(sizes, device.device_id)(stream, *(array.data.ptr for array in arrays))

    return SimpleNamespace(launch=launch, result=lambda: ops.c)


def fp8(lab: Lab) -> Iterable[Case]:
    """Yield the cases of the system's kernels in 8 bits."""
    for problem in (
        fp8_system.problem(200, 264, 392),
        fp8_system.problem(400, 520, 200, scale="vectors"),
        fp8_system.problem(133, 77, 210, out="e4m3"),
        fp8_system.problem(200, 272, 400, scale="vectors", out="e4m3"),
    ):
        yield from lab.products(problem, own(fp8_system))
    binds = _each(
        fp8_system.prepare_config,
        {(c.kernel, c.m, c.n): c for c in family.FP8_FAMILY}.values(),
        "fp8_{c.kernel} {c.m} x {c.n}",
    )
    yield from lab.products(fp8_system.problem(272, 400, 392), binds)
    smallest = {c.kernel: c for c in sorted(family.FP8_FAMILY, key=lambda c: -c.m * c.n)}
    few = {c.kernel: c for c in sorted(family.FP8_NARROW_FAMILY, key=lambda c: -c.n)}
    for n, configs in ((264, smallest), (13, few)):
        problem = fp8_system.problem(200, n, 1040, scale="vectors", orders="FF")
        yield from _activated(lab, problem, fp8_system.prepare_config, configs.values())
    # By the launcher: of inputs in e4m3, and of 16 bits, which are quantised first, with a scale for each token.
    for m, tokens, k, dtype, activation in (
        (8, 1, 16, "", "relu"),
        (200, 13, 272, "", "gelu"),
        (1000, 523, 400, "", "silu"),
        (8, 1, 16, "bfloat16", ""),
        (200, 43, 272, "float16", "gelu"),
        (72, 133, 4112, "bfloat16", "silu"),
    ):
        problem = fp8_system.problem(m, tokens, k, scale="vectors" if dtype else "tensor", orders="FF")
        bits, numbers = _quantised(tokens, k, dtype) if dtype else (None, None)
        name = f"{f'quantise {dtype} and ' * bool(dtype)}layer {activation}".strip()
        binds = {name: partial(_layer_in_eight, dtype, activation, bits)}
        yield from lab.products(problem, binds, _right(problem, activation, numbers))


def _quantised(tokens: int, k: int, dtype: str) -> tuple[np.ndarray, np.ndarray]:
    """Return inputs (tokens, k), bit patterns, and in float64 what the kernel makes of them."""
    rng = np.random.default_rng(17)
    x = rng.standard_normal((tokens, k)) * rng.uniform(0.5, 2, (tokens, 1))
    x[tokens // 2 : tokens // 2 + tokens // 3] = 0  # tokens of zeros have the scale 1
    bits = half.to_bits(x.astype(np.float32), dtype)
    x = half.from_bits(bits, dtype)
    unit = half.scales(x, "e4m3", "rows")  # whose inverse the kernel multiplies by
    return bits, half.from_bits(half.to_bits(x * (np.float32(1) / unit), "e4m3"), "e4m3").astype(np.float64) * unit


def _layer_in_eight(dtype: str, activation: str, x: np.ndarray | None, problem, device) -> SimpleNamespace:
    """dtype, x: of inputs (tokens, k), bit patterns, which are quantised; "" and None: the problem's, in e4m3."""
    m, tokens, k, ops = problem.m, problem.n, problem.k, problem.device()
    numbers, scale, given = ops.b.bits, ops.b.scale, None
    if x is not None:
        given, numbers, scale = cupy.asarray(x), cupy.empty((tokens, k), cupy.uint8), cupy.empty(tokens, cupy.float32)
    arrays = [numbers, ops.c.bits, layer.pack(ops.a), ops.a.scale, scale, cupy.asarray(normal(16, m))]
    sizes = layer.Sizes(m, k, tokens, "e4m3", True, activation, given is not None)

    def launch(stream) -> None:
        if given is not None:
            layer.quantise(stream, dtype, tokens, k, given.data.ptr, numbers.data.ptr, scale.data.ptr, device)
        layer.launcher(sizes, device.device_id)(stream, *(array.data.ptr for array in arrays))

    return SimpleNamespace(launch=launch, result=lambda: ops.c)


#: What one process runs each: name -> its cases.
CASES = {"tensor_core_24": tensor_core_24, "fp8": fp8}
