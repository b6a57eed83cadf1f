"""The FP8 kernels on `wgmma.mma_async.sp`, of a `family.Fp8`.

A part of its own, as `pruning` is: its problems are none that the system's VARIANTS take.
"""

from ..contract import Kernel, PreparedKernel, Problem, require
from . import launch
from .family import FP8_RUNGS, Fp8
from .launch import prepare_config
from .operands import EIGHT, SYSTEM, problem_eight as problem
from .tiles import HERE, TARGETS, require_gpu

__all__ = ["BASELINES", "VARIANTS", "prepare", "prepare_config", "problem"]

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
        for name, (config, idea, prediction) in FP8_RUNGS.items()
    },
    "fp8_auto": Kernel(
        "fp8_auto",
        HERE / "family.py",
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
    require_gpu(variant, device, Fp8.INSTEAD)
    require(
        problem.label.startswith(EIGHT),
        f"{variant} multiplies {EIGHT}, and this is another problem: make one of {SYSTEM}.fp8",
    )
    return launch.prepared(variant, problem, device, **extra)


bind, bind_config = prepare, prepare_config  # former names
