"""Every kernel for 2:4, in 16 bits and in 8, as `artifact.sanitize` runs them."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

import numpy as np

from artifact.measure import check
from artifact.sanitize.cases import configured, own
from artifact.sanitize.lab import Case, Lab
from kernels.formats import half
from kernels.formats.half import Half


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
    c = Half(
        "bfloat16", half.to_bits(rng.standard_normal((200, 264)).astype(np.float32), "bfloat16")
    )
    bias = rng.standard_normal(200).astype(np.float32)
    kinds = {config.kernel: name for name, (config, *_) in family.RUNGS.items()}
    names = ["mma_sp", *(name for kind, name in kinds.items() if kind in family.COMPLETE)]
    product = check.oracle(problem, on="cpu").values
    right = check.reference(
        2 * product - half.from_bits(c.bits, "bfloat16").astype(np.float64) + bias[:, None]
    )

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


def fp8(lab: Lab) -> Iterable[Case]:
    from kernels.tensor_core_24 import fp8 as room
    from kernels.tensor_core_24 import fp8_family

    for size, knobs in (
        ((200, 264, 392), {}), ((400, 520, 200), {"scale": "vectors"}), ((133, 77, 210), {"out": "e4m3"}),
        ((200, 272, 400), {"scale": "vectors", "out": "e4m3"}),
    ):  # fmt: skip
        yield from lab.products(room.problem(*size, **knobs), own(room))
    kinds = {(c.kernel, c.m, c.n): c for c in fp8_family.FAMILY}
    binds = {
        f"fp8_{kernel} {m} x {n}": partial(configured, room.bind_config, config)
        for (kernel, m, n), config in kinds.items()
    }
    yield from lab.products(room.problem(272, 400, 392), binds)


#: What one process runs each: name -> its cases.
CASES = {"tensor_core_24": tensor_core_24, "fp8": fp8}
