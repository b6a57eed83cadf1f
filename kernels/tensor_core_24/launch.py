"""The system's variants: the source's kernel, its side studies, the Hopper ladder, and what is tuned, in any dtype."""

from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

from .. import autotune
from ..contract import Family, Kernel, Launch, Operands, PreparedKernel, Problem, require
from ..formats import compress
from ..formats.half import Half
from ..lazy import cupy
from . import family, mma_sp, wgmma
from .family import FP8_RUNGS, PUBLISHED, RUNGS, STUDIES, MmaSp
from .operands import EIGHT, SYSTEM
from .tiles import HERE, Tile, limits

BASELINES = ("cusparselt", "cublas.lt")

_STUDIES = {
    "mma_sp_ca": ("copies of 16 bytes by .ca, through L1", "0.9x, as the source says."),
    "mma_sp_all_threads": (
        "every thread copies 8 bytes of metadata, by .ca",
        "0.98x: an eighth of the copies, but with conflicts.",
    ),
    "mma_sp_two_warps": (
        "the first two warps copy the metadata",
        "1.0x: the same copies; the source found it slower and gives no number.",
    ),
    "mma_sp_one_selector": (
        "metadata for one selector, loaded without ldmatrix",
        "0.97x: four loads for one, while the tensor cores wait for B.",
    ),
    "mma_sp_x2": (
        "ldmatrix.x2, half a step ahead",
        "1.0x: metadata is a sixteenth of what is read.",
    ),
    "mma_sp_stages_2": ("two stages", "0.9x: one step of copies in flight."),
    "mma_sp_stages_4": ("four stages", "1.0x: two steps cover the latency of L2."),
    "mma_sp_stages_5": ("five stages", "0.9x: one block an SM instead of two."),
}


#: The published kernel in both dtypes, and the one that masks any sizes. The side studies, and the family
#: that the tuner tries, have as many more, which `prepare` compiles when they are asked for.
_PUBLISHED = tuple(PUBLISHED.entry(dtype, mask=mask) for dtype in ("bfloat16", "float16") for mask in (False, True))

CONFIGS = {"mma_sp": PUBLISHED, **STUDIES, **{name: config for name, (config, *_) in (RUNGS | FP8_RUNGS).items()}}
VARIANTS: dict[str, Kernel] = {
    "mma_sp": Kernel(
        "mma_sp",
        PUBLISHED.source,
        "the published kernel: 128 x 128 x 64, three stages, both selectors, ldmatrix.x4 for metadata",
        entries=_PUBLISHED,
        published=True,
        spill_free=False,  # 255 registers: on sm_120 some compilers put one or two of them aside
    ),
    **{
        name: Kernel(
            name,
            PUBLISHED.source,
            idea,
            prediction,
            (STUDIES[name].entry("bfloat16"),),
            spill_free=False,
        )
        for name, (idea, prediction) in _STUDIES.items()
    },
    **{
        name: Kernel(
            name,
            config.source,
            idea,
            prediction,
            tuple(config.entry(dtype) for dtype in ("bfloat16", "float16")),
            targets=family.TARGETS,
        )
        for name, (config, idea, prediction) in RUNGS.items()
    },
    "auto": Kernel(
        "auto",
        HERE / "family.py",
        "the fastest of this GPU's family for the shape, found by trying and written down",
        "1.1x over cuSPARSELt's best: power is what both are bound by, but no one tile suits every shape.",
    ),
}


def prepare(variant: str, problem: Problem, device, **extra) -> PreparedKernel:
    """Compile `variant` for `device` (a current `cuda.core.Device`), prepare A's metadata, make it ready.

    extra: alpha, beta, c and bias of C = alpha·A·B + beta·c + bias, as `mma_sp.prepare` and `wgmma.prepare` take
    them; for "auto" also `file`, see `autotune.prepare_choice`. Raises ValueError where the variant does not exist or
    does not take the problem or the GPU.
    """
    require(
        variant in VARIANTS,
        f"{SYSTEM} has no variant {variant!r}: choose one of {', '.join(VARIANTS)}",
    )
    return prepared(variant, problem, device, **extra)


def prepared(variant: str, problem: Problem, device, **extra) -> PreparedKernel:
    """Return a variant in any dtype, ready to run: of a configuration, or of what is chosen."""
    if variant in CONFIGS:
        return prepare_config(variant, problem, device, CONFIGS[variant], **extra)
    return autotune.prepare_choice(variant, FAMILIES["auto"], problem, device, **extra)


def prepare_config(name: str, problem: Problem, device, config, **extra) -> Launch:
    """Return a configuration of any family, ready to run."""
    module = mma_sp if isinstance(config, MmaSp) else wgmma
    return module.prepare(name, problem, device, config, **extra)


def _prepare_chosen(name: str, problem: Problem, device, config, **extra) -> Launch:
    """Return a choice, ready to run: where more than a product is asked for, the same tile of a kernel that adds it."""
    return prepare_config(name, problem, device, family.complete(config, set(extra) - {"alpha"}), **extra)


def tune(problem: Problem, device) -> autotune.Winner:
    """Return the fastest candidate whose output is that of the first of some simple kernels that runs.

    That is the published kernel, else wgmma_one_stage, which take operands by rows: where B or C lie by columns, they
    multiply copies. In e4m3 it is the ladder's first rung.
    """
    configs, eight = family.candidates(problem, device), family.dtype_of(problem) == EIGHT
    require(
        bool(configs),
        f"no configuration takes m={problem.m}, n={problem.n}, k={problem.k} on this GPU: see the families of "
        "family.py",
    )
    share: dict = {"cache": {}} if isinstance(configs[0], Tile) else {}  # what they prepare
    return autotune.tune(
        problem,
        configs,
        lambda p, config: prepare_config("trial", p, device, config, **(share if p is problem else {})),
        [partial(_by_rows, x, device=device) for x in (FP8_RUNGS if eight else ("mma_sp", "wgmma_one_stage"))],
        device,
        family.ROUNDS,
        family.jobs(configs, problem),
    )


def _by_rows(name: str, problem: Problem, device) -> Any:
    """Return a variant that takes operands by rows.

    Of others, on copies, whose result each launch copies to the problem's.
    """
    if problem.orders == "CC" or name in FP8_RUNGS:
        return prepare_config(name, problem, device, CONFIGS[name])
    given = problem.device()
    b, c = compress.contiguous(given.b.bits), cupy.empty(given.c.shape, cupy.uint16)
    rows = Operands(given.a, Half(given.b.dtype, b), Half(given.c.dtype, c))
    inner = prepare_config(
        name, replace(problem, orders="CC", make_device=lambda: rows, _device=None), device, CONFIGS[name]
    )

    def launch(stream) -> None:
        inner.launch(stream)
        with cupy.cuda.Stream.from_external(stream) as on:
            lines = compress.contiguous(c.T) if problem.orders[1] == "F" else c
            given.c.bits.data.copy_from_device_async(lines.data, c.nbytes, on)

    return SimpleNamespace(name=inner.name, launch=launch, result=lambda: given.c)


FAMILIES = {
    "auto": Family(
        prepare=_prepare_chosen,
        candidates=family.candidates,
        fits=family.fits,
        tune=tune,
        choices=family.CHOICES,
        key=family.key,
        cost=lambda config, p, device: config.predict(p.m, p.n, p.k, limits(device)[0], p.orders),
    ),
}
