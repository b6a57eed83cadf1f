"""The system's variants: the source's ladder, and ours beyond it."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from .. import autotune
from ..contract import Family, Kernel, Launch, Operands, PreparedKernel, Problem, require, single, timed
from ..formats import bcsr
from ..formats.csr import Csr
from . import any_csr, blocks, family, published, union, unit, wcsr, windows
from .family import Shape, Unit
from .operands import BLOCK, SYSTEM

BASELINES = ("cublas.dense", "cusparse.blocks", "cusparse", "triton_bsr")

#: What unit_ring is where nobody tunes: tiles of 64 x 512, or 128 x 256 for blocks of 128 rows.
_USUAL = Shape("bfloat16", 64, 64, "F", "C")
_MOST = 232_448  # bytes of shared memory of a block on compute capability 9.0
_SHAPES = (
    _USUAL,
    Shape("bfloat16", 64, 64, "F", "F"),
    Shape("bfloat16", 64, 64, "C", "C"),
    Shape("bfloat16", 64, 32, "F", "F"),
    Shape("float16", 128, 128, "F", "F"),
    Shape("tf32", 64, 64, "F", "C"),
)


def _entries(widths: tuple[int, ...]) -> tuple[str, ...]:
    """Return instantiations that stand for all: every shape in the widest tile, the usual shape in every one."""
    pairs = [(shape, widths[0]) for shape in _SHAPES] + [(_USUAL, n) for n in widths[1:]]
    return tuple(
        family.entry(family.filled(Unit(n, tall=shape.b_row == 128), shape, _MOST), shape) for shape, n in pairs
    )


VARIANTS: dict[str, Kernel] = {
    **published.KERNELS,
    "unit_ring": Kernel(
        "unit_ring",
        family.SOURCE,
        "blocks that stay and claim tiles, longest first; a ring of units for each warpgroup; stores overlap",
        "2.1 times opt5 at 80%, where it waits for L2: 72 KiB a step at 42 bytes a cycle and SM are 1,760 "
        "cycles, 530 TFLOP/s. At 99% writing C bounds it.",
        _entries(family.WIDTHS[:1]),
        targets=family.TARGETS,
    ),
    "auto": Kernel(
        "auto",
        family.SOURCE,
        "unit_ring in the tile and the order that were the fastest on the problem (tuning)",
        "As unit_ring where n is large; twice as fast where tiles of 512 columns leave SMs idle, or pad n.",
        _entries(family.WIDTHS),
        targets=family.TARGETS,
    ),
    **blocks.KERNELS,
    **wcsr.KERNELS,
    **windows.KERNELS,
    **union.KERNELS,
    **any_csr.KERNELS,
}


#: Who binds what takes a matrix in CSR, and the kernels for blocks that nobody tunes.
_CSR = {name: module.prepare for module in (wcsr, windows, union) for name in (*module.KERNELS, *module.TRIALS)}
_BLOCKS = dict.fromkeys((*published.KERNELS, *published.SWEEP), published.prepare) | {blocks.NAME: blocks.prepare}


def prepare(variant: str, problem: Problem, device) -> PreparedKernel:
    """Compile `variant` for `device` (a current `cuda.core.Device`), preprocess A and make it ready.

    variant: one of VARIANTS, of the TRIALS of `family`, `wcsr`, `windows` or `union`, or "opt5_n8" to "opt5_n256" of
    the sweep over WGMMA_N. A kernel for blocks makes blocks of 64 x 64 of an A in CSR. Raises ValueError where
    there is no such variant, or where it does not take the problem or the GPU.
    """
    if variant in any_csr.KERNELS:
        return prepare_auto(variant, problem, device)
    if variant in _CSR:
        return _CSR[variant](variant, problem, device)
    if isinstance(problem.device().a, Csr):
        return _prepare_blocks(variant, problem, device)
    if variant in _BLOCKS:
        return _BLOCKS[variant](variant, problem, device)
    require(
        variant in VARIANTS or variant in family.TRIALS,
        f"{SYSTEM} has no variant {variant!r}: choose one of {', '.join(VARIANTS)}",
    )
    unit.require_hopper(variant, device)
    if variant == "auto":
        return prepare_auto(variant, problem, device)
    config = family.TRIALS[variant][0] if variant in family.TRIALS else Unit()
    return unit.prepare(variant, problem, device, usual(problem, device, config))


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


def usual(problem: Problem, device, config: Unit | None = None) -> Unit:
    """unit_ring where nobody tunes, or a configuration: rings as deep as they fit, tiles as high as blocks."""
    shape = family.shape_of(problem)
    most = device.properties.max_shared_memory_per_block_optin
    return family.filled(replace(config or Unit(), tall=shape.b_row == 128), shape, most)


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


def tune(problem: Problem, device) -> autotune.Winner:
    """Return the fastest candidate whose output is that of the first of `references` that takes the problem.

    Raises ValueError where no configuration does.
    """
    configs = family.candidates(problem, device)
    if not configs:  # whose refusal says why
        configs = [usual(problem, device)]
        most = device.properties.max_shared_memory_per_block_optin
        family.check(configs[0], family.shape_of(problem), most)
    return autotune.tune(
        problem,
        configs,
        lambda p, config: unit.prepare("auto", p, device, config),
        references(device),
        device,
        family.ROUNDS,
        dict.fromkeys((family.SOURCE, family.entry(config, family.shape_of(problem))) for config in configs),
    )


def references(device) -> list[Callable[[Problem], PreparedKernel]]:
    """Return simple kernels that say what is right.

    The source's, and for what they refuse unit_ring as nobody tuned it.
    """
    simple = [partial(published.prepare, name, device=device) for name in ("opt5", "opt0")]
    return [*simple, lambda p: unit.prepare("unit_ring", p, device, usual(p, device))]


FAMILIES = {
    "auto": Family(unit.prepare, family.candidates, family.fits, tune, family.CHOICES, family.key),
    blocks.NAME: single(blocks.NAME, blocks.prepare),
    **any_csr.FAMILIES,
}
