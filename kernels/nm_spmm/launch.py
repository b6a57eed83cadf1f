"""The room's variants: the paper's kernels, our FP32 ladder, the tuned choice, and tensor cores."""

from __future__ import annotations

from pathlib import Path

from kernels.contract import Bound, Kernel, Problem, require
from kernels.nm_spmm import ladder, published, tensor, tuner
from kernels.nm_spmm.operands import ROOM

HERE = Path(__file__).parent
BASELINES = ("cublas", "cublas_tensor", "nm_baseline", "cusparse")

_AUTO = Kernel(
    "auto",
    HERE / "stream.cu",
    "the fastest of stream, bulk and cluster in ten tiles, tried on the problem (tuner.py)",
    "1.2x over v3 at 4096 cubed, and as much at small sizes, where the published tiles leave SMs idle.",
    ladder.KERNELS["turned"].entries,
    targets=ladder.HOPPER,
)
VARIANTS: dict[str, Kernel] = {
    **published.KERNELS,
    **ladder.KERNELS,
    "auto": _AUTO,
    **tensor.KERNELS,
}


def bind(variant: str, problem: Problem, device) -> Bound:
    """Compile `variant` for `device` (a current `cuda.core.Device`), preprocess B and make it ready.

    Raises ValueError where the variant does not exist, or does not take the problem or the GPU.
    """
    require(
        variant in VARIANTS,
        f"{ROOM} has no variant {variant!r}: choose one of {', '.join(VARIANTS)}",
    )
    if variant == "auto":
        return tuner.bind(variant, problem, device)
    for module in (published, ladder, tensor):
        if variant in module.KERNELS:
            return module.bind(variant, problem, device)
    raise AssertionError(variant)
