"""The FP8 kernels on `wgmma.mma_async.sp`: variants and tuning of an `fp8_family.Fp8`.

A part of its own, as `pruning` is: its problems (`fp8_operands`) are none that the system's VARIANTS take.
"""

from functools import partial

from .. import autotune
from ..contract import Kernel, PreparedKernel, Problem, require
from . import family, fp8_family, fp8_operands
from .fp8_family import RUNGS, Fp8
from .fp8_operands import problem, problem_from
from .operands import SYSTEM
from .tiles import HERE, TARGETS, limits, require_gpu
from .wgmma import prepare as prepare_config

__all__ = ["BASELINES", "VARIANTS", "prepare", "prepare_config", "problem", "problem_from", "tune"]

#: Libraries of `artifact/baselines` that these problems are raced against.
BASELINES = ("cusparselt", "cublas.eight")

VARIANTS: dict[str, Kernel] = {
    **{
        name: Kernel(
            name,
            config.source,
            idea,
            prediction,
            (config.entry(), config.entry("e4m3", False, "CC", True, True)),
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


def prepare(variant: str, problem: Problem, device, **extra) -> PreparedKernel:
    """Compile `variant` for `device` (a current `cuda.core.Device`), prepare A's metadata, make it ready.

    extra: `file` of "fp8_auto", as of the system's "auto". Raises ValueError where the variant does not exist or
    does not take the problem or the GPU.
    """
    require(
        variant in VARIANTS,
        f"{SYSTEM} has no FP8 variant {variant!r}: choose one of {', '.join(VARIANTS)}",
    )
    if variant != "fp8_auto":
        return prepare_config(variant, problem, device, RUNGS[variant][0], **extra)
    require_gpu(variant, device, Fp8.INSTEAD)
    of = problem.m, problem.n, problem.k, *limits(device), problem.orders
    return autotune.prepare_choice(
        family.CHOICES,
        (*of[:3], problem.label),
        device,
        fits=lambda config: isinstance(config, Fp8) and config.takes(*of),
        make=lambda: tune(problem, device),
        prepare=lambda config: prepare_config(variant, problem, device, config),
        **extra,
    )


def tune(problem: Problem, device) -> autotune.Winner:
    """Return the fastest candidate whose output is that of the ladder's first rung."""
    configs = fp8_family.likely(problem.m, problem.n, problem.k, *limits(device), problem.orders)
    require(
        bool(configs),
        f"no FP8 configuration takes m={problem.m}, n={problem.n}, k={problem.k} on this GPU: see "
        "FAMILY of fp8_family.py",
    )
    out, *scaled = fp8_operands.kind(problem)
    share: dict = {}
    return autotune.tune(
        problem,
        configs,
        lambda p, config: prepare_config("trial", p, device, config, cache=share if p is problem else None),
        [partial(prepare, name, device=device) for name in RUNGS],
        device,
        family.ROUNDS,
        [(config.source, config.entry(out, False, problem.orders, *scaled)) for config in configs],
    )


bind, bind_config = prepare, prepare_config  # former names
