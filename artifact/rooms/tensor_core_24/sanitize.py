"""Every kernel for 2:4, in 16 bits and in 8, as `artifact.sanitize` runs them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from scipy.special import erf

from artifact.measure import check
from artifact.sanitize.cases import Case, Lab, configured, own
from kernels.formats import eight, half, two_four_eight
from kernels.formats.half import Half

#: Activations in float64, as kernels apply them to what they store.
FUNCTIONS: dict[str, Callable] = {
    "": lambda x: x,
    "relu": lambda x: np.maximum(x, 0),
    "gelu": lambda x: x * (1 + erf(x / np.sqrt(2))) / 2,
    "silu": lambda x: x / (1 + np.exp(-x)),
}


def tensor_core_24(lab: Lab) -> Iterable[Case]:
    from kernels import tensor_core_24 as room
    from kernels.tensor_core_24 import family, launch

    for dtype, size in (("bfloat16", (200, 264, 392)), ("float16", (400, 520, 200))):
        yield from lab.products(room.problem(*size, dtype=dtype), own(room))
    yield from lab.products(room.problem(133, 77, 210), own(room))
    # Of what the tuner tries, the smallest and the largest tile of each kernel.
    ends = {}
    for config in sorted(family.WGMMA_FAMILY, key=lambda c: (c.m * c.n, c.stages)):
        first, _ = ends.get(config.kernel, (config, config))
        ends[config.kernel] = first, config
    binds = {
        f"{config.kernel} {config.m} x {config.n}, {config.stages} stages": partial(
            configured, launch.bind_config, config
        )
        for config in dict.fromkeys(c for pair in ends.values() for c in pair)
        if config.kernel not in ("gpc",)
    }
    yield from lab.products(room.problem(400, 520, 500), binds)  # 8 steps: whole rounds of rings
    yield from _by_columns(lab, room)
    yield from _with_more(lab, room)
    yield from _as_layers(lab, room)
    yield from _layers(lab, room)


def _by_columns(lab: Lab, room) -> Iterable[Case]:
    """B and C in other orders: the smallest tile of each kernel that takes them, and those for few tokens."""
    from kernels.tensor_core_24 import family, launch

    smallest = {c.kernel: c for c in sorted(family.WGMMA_FAMILY, key=lambda c: -c.m * c.n) if c.kind.ordered}
    few = {(c.kernel, c.groups, c.n, c.splits): c for c in family.NARROW_FAMILY}
    for orders, n, configs in (("FF", 264, smallest), ("FC", 264, smallest), ("CF", 264, smallest), ("FF", 13, few)):
        binds = {
            f"{config.kernel} {config.m} x {config.n} {config.splits}, {orders}": partial(
                configured, launch.bind_config, config
            )
            for config in configs.values()
        }
        yield from lab.products(room.problem(200, n, 512, orders=orders), binds)


def _with_more(lab: Lab, room) -> Iterable[Case]:
    """2 · A · B - C + bias, of every kernel that adds: one rung of each."""
    from kernels.tensor_core_24 import family

    problem = room.problem(200, 264, 392)
    rng = np.random.default_rng(4)
    c = Half("bfloat16", half.to_bits(rng.standard_normal((200, 264)).astype(np.float32), "bfloat16"))
    bias = rng.standard_normal(200).astype(np.float32)
    kinds = {config.kernel: name for name, (config, *_) in family.RUNGS.items()}
    names = ["mma_sp", *(name for kind, name in kinds.items() if kind in family.COMPLETE)]
    product = check.oracle(problem, on="cpu").values
    right = check.reference(2 * product - half.from_bits(c.bits, "bfloat16").astype(np.float64) + bias[:, None])

    def bind(name: str, problem, device):
        import cupy

        return room.bind(
            name,
            problem,
            device,
            alpha=2.0,
            beta=-1.0,
            c=half.to_device(c),
            bias=cupy.asarray(bias),
        )

    yield from lab.products(problem, {name: partial(bind, name) for name in names}, right)


def _as_layers(lab: Lab, room) -> Iterable[Case]:
    """With A in the order of use, a bias and an activation: of each kernel that takes them the smallest tile, and those
    for few tokens."""
    from kernels.tensor_core_24 import family, launch

    smallest = {
        c.kernel: replace(c, copied=False, packed=True)
        for c in sorted(family.WGMMA_FAMILY, key=lambda c: -c.m * c.n)
        if c.kind.ordered
    }
    narrow = sorted(family.NARROW_FAMILY, key=lambda c: -c.n)
    few = {c.kernel: c if c.kind.packed else replace(c, packed=True) for c in narrow}
    for n, configs in ((264, smallest), (13, few)):
        problem = room.problem(200, n, 512, orders="FF")
        yield from _activated(lab, problem, launch.bind_config, configs.values())


def _activated(lab: Lab, problem, bind: Callable, configs: Iterable) -> Iterable[Case]:
    """gelu(A · B + bias) by each configuration."""
    bias = _bias(problem.m)

    def made(config, problem, device):
        import cupy

        return configured(bind, config, problem, device, bias=cupy.asarray(bias), activation="gelu")

    binds = {
        f"{config.kernel} {config.m} x {config.n} {config.splits} with gelu": partial(made, config)
        for config in configs
    }
    product = check.oracle(problem, on="cpu").values
    yield from lab.products(problem, binds, _right(product, bias, "gelu"))


def _bias(m: int) -> np.ndarray:
    return np.random.default_rng(16).standard_normal(m).astype(np.float32)


def _right(product: np.ndarray, bias: np.ndarray, activation: str) -> check.Reference:
    return check.reference(FUNCTIONS[activation](product + bias[:, None]))


@dataclass
class _Called:
    """What a layer enqueues, as a `Bound`: for the sizes and the GPU as they are, not with few multiprocessors."""

    launch: Callable[[Any], None]  #: of a stream
    output: Half

    def result(self) -> Half:
        return self.output


def _layers(lab: Lab, room) -> Iterable[Case]:
    """By the launcher: tokens that fit no tile, from narrow tiles to wide ones."""
    for m, tokens, k, dtype, activation in (
        (8, 1, 8, "bfloat16", "relu"),
        (200, 13, 264, "bfloat16", "gelu"),
        (264, 43, 392, "float16", "silu"),
        (136, 133, 520, "bfloat16", ""),
        (1000, 523, 512, "bfloat16", "gelu"),
    ):
        problem, bias = room.problem(m, tokens, k, dtype=dtype, orders="FF"), _bias(m)
        bind = partial(_layer, dtype, activation, bias)
        product = check.oracle(problem, on="cpu").values
        name = f"layer {activation}".strip()
        yield from lab.products(problem, {name: bind}, _right(product, bias, activation))


def _layer(dtype: str, activation: str, bias: np.ndarray, problem, device) -> _Called:
    import cupy

    from kernels.tensor_core_24 import layer

    ops, added = problem.device(), cupy.asarray(bias)
    values, metadata = layer.pack(ops.a)
    sizes = layer.Sizes(problem.m, problem.k, problem.n, dtype, True, activation)

    def launch(stream) -> None:
        layer.launcher(sizes, device.device_id)(
            stream, ops.b.bits.data.ptr, ops.c.bits.data.ptr, values.data.ptr, metadata.data.ptr, added.data.ptr
        )

    return _Called(launch, ops.c)


def fp8(lab: Lab) -> Iterable[Case]:
    from kernels.tensor_core_24 import fp8 as room
    from kernels.tensor_core_24 import fp8_family

    for size, knobs in (
        ((200, 264, 392), {}),
        ((400, 520, 200), {"scale": "vectors"}),
        ((133, 77, 210), {"out": "e4m3"}),
        ((200, 272, 400), {"scale": "vectors", "out": "e4m3"}),
    ):
        yield from lab.products(room.problem(*size, **knobs), own(room))
    kinds = {(c.kernel, c.m, c.n): c for c in fp8_family.FAMILY}
    binds = {
        f"fp8_{kernel} {m} x {n}": partial(configured, room.bind_config, config)
        for (kernel, m, n), config in kinds.items()
    }
    yield from lab.products(room.problem(272, 400, 392), binds)
    smallest = {c.kernel: c for c in sorted(fp8_family.FAMILY, key=lambda c: -c.m * c.n)}
    few = {c.kernel: c for c in sorted(fp8_family.NARROW_FAMILY, key=lambda c: -c.n)}
    for n, configs in ((264, smallest), (13, few)):
        problem = room.problem(200, n, 1040, scale="vectors", orders="FF")
        yield from _activated(lab, problem, room.bind_config, configs.values())
    yield from _layers_in_eight(lab, room)


def _layers_in_eight(lab: Lab, room) -> Iterable[Case]:
    """By the launcher: of inputs in e4m3, and of 16 bits, which are quantised first, with a scale for each token."""
    for m, tokens, k, activation in (
        (8, 1, 16, "relu"),
        (200, 13, 272, "gelu"),
        (1000, 523, 400, "silu"),
    ):
        problem, bias = room.problem(m, tokens, k, orders="FF"), _bias(m)
        bind = partial(_layer_in_eight, "", activation, bias, None)
        product = check.oracle(problem, on="cpu").values
        yield from lab.products(problem, {f"layer {activation}": bind}, _right(product, bias, activation))
    for m, tokens, k, dtype, activation in (
        (8, 1, 16, "bfloat16", ""),
        (200, 43, 272, "float16", "gelu"),
        (72, 133, 4112, "bfloat16", "silu"),
    ):
        problem, bias = room.problem(m, tokens, k, scale="vectors", orders="FF"), _bias(m)
        rng = np.random.default_rng(17)
        x = rng.standard_normal((tokens, k)) * rng.uniform(0.5, 2, (tokens, 1))
        x[tokens // 2 : tokens // 2 + tokens // 3] = 0  # tokens of zeros have the scale 1
        bits = half.to_bits(x.astype(np.float32), dtype)
        x = half.from_bits(bits, dtype)
        unit = eight.scales(x, "e4m3", "rows")  # whose inverse the kernel multiplies by
        rounded = eight.to_bits(x * (np.float32(1) / unit), "e4m3")
        numbers = eight.from_bits(rounded, "e4m3").astype(np.float64) * unit
        weight = two_four_eight.to_dense(problem.host().a).astype(np.float64)
        bind = partial(_layer_in_eight, dtype, activation, bias, bits)
        right = _right(weight @ numbers.T, bias, activation)
        name = f"quantise {dtype} and layer {activation}".strip()
        yield from lab.products(problem, {name: bind}, right)


def _layer_in_eight(dtype: str, activation: str, bias: np.ndarray, x: np.ndarray | None, problem, device) -> _Called:
    """dtype, x: of inputs (tokens, k), bit patterns, which are quantised; "" and None: the problem's, in e4m3."""
    import cupy

    from kernels.tensor_core_24 import fp8_layer

    m, tokens, k = problem.m, problem.n, problem.k
    ops, added = problem.device(), cupy.asarray(bias)
    packed, given = fp8_layer.pack(ops.a), x if x is None else cupy.asarray(x)
    numbers, scale = ops.b.bits, ops.b.scale
    if given is not None:
        numbers, scale = cupy.empty((tokens, k), cupy.uint8), cupy.empty(tokens, cupy.float32)
    sizes = fp8_layer.Sizes(m, k, tokens, given is not None, True, activation)

    def launch(stream) -> None:
        if given is not None:
            fp8_layer.quantise(stream, dtype, tokens, k, given.data.ptr, numbers.data.ptr, scale.data.ptr, device)
        fp8_layer.launcher(sizes, device.device_id)(
            stream,
            numbers.data.ptr,
            ops.c.bits.data.ptr,
            packed.data.ptr,
            ops.a.scale.data.ptr,
            scale.data.ptr,
            added.data.ptr,
        )

    return _Called(launch, ops.c)


#: What one process runs each: name -> its cases.
CASES = {"tensor_core_24": tensor_core_24, "fp8": fp8}
