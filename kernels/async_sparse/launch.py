"""The system's variants: the source's ladder, and ours beyond it."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from .. import autotune
from ..contract import Family, Kernel, Launch, Operands, PreparedKernel, Problem, require, single, timed
from ..formats import bcsr
from ..formats.csr import Csr
from . import any_csr, family, heads, published, subwarp, windows
from .family import OneTile, Tile, Unit
from .operands import BLOCK, SYSTEM

BASELINES = ("cublas.dense", "cusparse.blocks", "cusparse", "cusparse.vectors", "triton_bsr")
VARIANTS: dict[str, Kernel] = {
    **published.KERNELS,
    **family.KERNELS,
    **windows.KERNELS,
    **subwarp.KERNELS,
    **heads.KERNELS,
    **any_csr.KERNELS,
}
#: Configurations of variants that nobody tunes, and of trials.
_CONFIGS: dict[str, Any] = {
    "unit_ring": Unit(),
    **{name: config for name, (config, _) in family.TRIALS.items()},
    "blocks_mma": Tile(0),
    **windows.CONFIGS,
    **subwarp.CONFIGS,
    **heads.CONFIGS,
}
OF_CSR = {*windows.CONFIGS, *subwarp.CONFIGS, *heads.CONFIGS, *any_csr.KERNELS}  #: what multiplies a matrix in CSR


def prepare(variant: str, problem: Problem, device) -> PreparedKernel:
    """Compile `variant` for `device` (a current `cuda.core.Device`), preprocess A and make it ready.

    variant: one of VARIANTS, of the TRIALS of `family` or `windows`, or "opt5_n8" to "opt5_n256" of the sweep over
    WGMMA_N. A kernel for blocks makes blocks of 64 x 64 of an A in CSR. Raises ValueError where there is no such
    variant, or where it does not take the problem or the GPU.
    """
    require(
        variant in VARIANTS or variant in _CONFIGS or variant in published.SWEEP,
        f"{SYSTEM} has no variant {variant!r}: choose one of {', '.join(VARIANTS)}",
    )
    if isinstance(problem.device().a, Csr) and variant not in OF_CSR:
        return _prepare_blocks(variant, problem, device)
    if variant == "auto" or variant in any_csr.KERNELS:
        return prepare_auto(variant, problem, device)
    if variant not in _CONFIGS:
        return published.prepare(variant, problem, device)
    config = _CONFIGS[variant]
    return (usual(problem, device, config) if isinstance(config, Unit) else config).prepare(variant, problem, device)


def _prepare_blocks(variant: str, problem: Problem, device) -> PreparedKernel:
    """Return a kernel for blocks on a CSR matrix, which is made blocks of 64 x 64 first: that time counts."""
    operands = problem.device()
    dtype = family.dtype_of(operands.b)
    a, ms = timed(lambda: bcsr.from_csr(operands.a, block=BLOCK, dtype="float32" if dtype == "tf32" else dtype))
    made = Operands(a, operands.b, operands.c)
    bound = prepare(variant, replace(problem, make_device=lambda: made, _device=None), device)
    bound.prepare_ms += ms
    bound.prepare_bytes += a.nbytes
    return bound


def usual(problem: Problem, device, config: Unit) -> Unit:
    """Return a configuration where nobody tunes: rings as deep as they fit, tiles as high as blocks."""
    shape = family.shape_of(problem)
    most = device.properties.max_shared_memory_per_block_optin
    return family.filled(replace(config, tall=shape.b_row == 128), shape, most)


def prepare_auto(name: str, problem: Problem, device, *, file: Path | None = None) -> Launch:
    """Return the chosen configuration, ready to run; tunes first where there is no choice yet.

    name: one of `FAMILIES` that has choices. file: where to look and to write, instead of the usual places.
    `prepare_ms` is what the choice prepares, the look at the matrix, and the trials where there were any. Raises
    ValueError where no configuration takes the problem.
    """
    of: Any = FAMILIES[name]
    key, look_ms = timed(lambda: of.key(problem))
    made = autotune.prepare_choice(name, replace(of, key=lambda _: key), problem, device, file=file)
    made.prepare_ms += look_ms
    return made


def candidates(problem: Problem, device) -> list[Unit | OneTile]:
    """Return what takes the problem on this GPU and may be the fastest: tiles of unit_ring, and opt5's widest.

    opt5 comes first where it is expected to be the fastest, else last.
    """
    units, one = family.candidates(problem, device), OneTile(published.wgmma_n(problem.n))
    if not fits(one, problem, device):
        return [*units]
    of = problem.m, problem.n, problem.device().a.blocks, family.shape_of(problem)
    ours, theirs = (family.predict(c, *of, device.properties.multiprocessor_count) for c in (units[0], one))
    return [one, *units] if theirs < ours else [*units, one]


def fits(config: Unit | OneTile, problem: Problem, device) -> bool:
    """Whether the GPU takes a configuration for the problem."""
    if isinstance(config, OneTile):
        return published.fits(config, problem, device)
    return family.fits(config, problem, device)


def prepare_config(name: str, problem: Problem, device, config: Unit | OneTile) -> Launch:
    """Return a configuration of "auto", ready to run."""
    if isinstance(config, OneTile):
        return published.prepare(name, problem, device, config=config)
    return family.prepare_config(name, problem, device, config)


def tune(problem: Problem, device) -> autotune.Winner:
    """Return the fastest candidate whose output is that of the first simple kernel that takes the problem.

    These are the source's, and for what they refuse unit_ring as nobody tuned it. Raises ValueError where no
    configuration takes the problem, or the GPU has no wgmma.
    """
    family.require_hopper("auto", device)
    shape = family.shape_of(problem)
    configs = candidates(problem, device)
    if not configs:  # whose refusal says why
        unit = usual(problem, device, Unit())
        family.check(unit, shape, device.properties.max_shared_memory_per_block_optin)
        configs = [unit]
    return autotune.tune(
        problem,
        configs,
        lambda p, config: prepare_config("auto", p, device, config),
        [partial(prepare, name, device=device) for name in ("opt5", "opt0", "unit_ring")],
        device,
        family.ROUNDS,
        dict.fromkeys(_job(config, shape) for config in configs),
    )


def _job(config: Unit | OneTile, shape: family.Shape) -> tuple[Path, str]:
    """(source, entry) of a configuration of "auto"."""
    if isinstance(config, OneTile):
        return published.KERNELS["opt5"].source, published.entry("opt5", shape.dtype, shape.c_order, config.width)
    return family.SOURCE, family.entry(config, shape)


FAMILIES = {
    "auto": Family(prepare_config, candidates, fits, tune, family.CHOICES, family.key),
    "blocks_mma": single("blocks_mma", prepare),
    **any_csr.FAMILIES,
}
