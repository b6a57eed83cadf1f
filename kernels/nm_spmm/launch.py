"""The system's variants: the paper's kernels, nmSPARSE's, our FP32 ladder, the tuned choice, and tensor cores."""

from pathlib import Path
from typing import Any

from .. import autotune
from ..contract import Family, Kernel, PreparedKernel, Problem, require, single
from . import family, ladder, nmsparse, published, tensor
from .operands import SYSTEM, require_float32

HERE = Path(__file__).parent
BASELINES = ("cublas", "cublas.tensor", "nm_baseline", "cusparse")

_AUTO = Kernel(
    "auto",
    HERE / "stream.cu",
    "the fastest of stream, bulk and cluster in ten tiles, tried on the problem (tuning)",
    "1.2x over v3 at 4096 cubed, and as much at small sizes, where the published tiles leave SMs idle.",
    family.KERNELS["turned"].entries,
    targets=family.HOPPER,
)
VARIANTS: dict[str, Kernel] = {
    **published.KERNELS,
    **nmsparse.KERNELS,
    **family.KERNELS,
    "auto": _AUTO,
    **tensor.KERNELS,
}


def prepare(variant: str, problem: Problem, device, **extra) -> PreparedKernel:
    """Compile `variant` for `device` (a current `cuda.core.Device`), preprocess B and make it ready.

    extra: `file` of "auto", see `autotune.prepare_choice`. Raises ValueError where the variant does not exist, or does
    not take the problem or the GPU.
    """
    require(
        variant in VARIANTS,
        f"{SYSTEM} has no variant {variant!r}: choose one of {', '.join(VARIANTS)}",
    )
    if variant not in tensor.KERNELS:
        require_float32(variant, problem.device())
    if variant == "auto":
        return autotune.prepare_choice(variant, FAMILIES[variant], problem, device, **extra)
    of: dict[Any, dict] = {
        published: published.KERNELS,
        nmsparse: nmsparse.KERNELS,
        tensor: tensor.KERNELS,
        ladder: family.RUNGS,
    }
    return next(module for module, names in of.items() if variant in names).prepare(variant, problem, device)


def tune(problem: Problem, device) -> autotune.Winner:
    """Return the fastest candidate whose output is that of the paper's v1, or where v1 cannot run, of `wide`."""
    configs = family.candidates(problem, device)
    b = problem.device().b
    require(
        bool(configs),
        f"no configuration takes {b.keep}:{b.group} on this GPU: a step of whole windows is too large "
        "for shared memory, see family.TILES",
    )
    return autotune.tune(
        problem,
        configs,
        lambda p, config: ladder.prepare_config("trial", p, device, config),
        (lambda p: published.prepare("v1", p, device), lambda p: ladder.prepare("wide", p, device)),
        device,
        family.ROUNDS,
        family.jobs(configs, problem),
    )


FAMILIES = {
    "auto": Family(ladder.prepare_config, family.candidates, family.fits, tune, family.CHOICES, family.key),
    **{name: single(name, tensor.prepare) for name in tensor.KERNELS},
}
