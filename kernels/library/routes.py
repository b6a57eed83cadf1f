"""Which room's kernels multiply a matrix: by its format, the dtype of B, the accuracy asked for, and the GPU.

    A        B          accuracy   compute capability 9.0                  other GPUs, from 8.0 on
    CSR      float32    fp32       async_sparse auto_fp32                  async_sparse auto_fp32, without windows
             float32    tf32       async_sparse auto_tf32                  as fp32
             16-bit     its own    async_sparse auto_half                  async_sparse auto_half
    BCSR     float32    fp32       as CSR                                  as CSR
             float32    tf32       async_sparse auto                       as CSR
             16-bit     its own    async_sparse auto                       async_sparse blocks_mma
    2:4      16-bit     its own    tensor_core_24 auto                     tensor_core_24 auto, which is mma_sp
             float32    any        as CSR                                  as CSR
    N:M      float32    fp32       nm_spmm auto                            nm_spmm auto, which is wide
             float32    tf32       nm_spmm tf32                            as fp32
             bfloat16   bf16       nm_spmm bf16                            none
    WCSR                           as CSR                                  as CSR

CSR whose values change in place is casper_sparse's everywhere. A `gpu.Portable` counts as another GPU. "fp16" and
"bf16" of float32 are multiplied as "tf32", which holds both. N:M whose vectors are no multiple of four rows of A is
multiplied as CSR. auto_fp32 may add three TF32 products for one of float32, whose error is that of float32's sums, and
may multiply several rows of A together: then what is infinite or NaN in B becomes NaN in all of them. Where A has
infinite values there are no such three products. TF32 takes A rounded and B cut to 10 bits of fraction.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .. import jit, splitmix, tuning
from ..contract import Launch, Operands, Problem, require
from ..formats import half
from ..formats.bcsr import Bcsr
from ..formats.csr import Csr
from ..formats.half import Half
from ..formats.nm import Nm
from ..formats.two_four import TwoFour
from . import current, in_order, operands

HOPPER = ("sm_90a",)
_B = 2  # stream of the random numbers that trials multiply


@dataclass(frozen=True)
class Route:
    """A room's way to multiply a matrix."""

    room: str
    variant: str  #: "auto": chosen among the room's configurations; otherwise one of its variants
    a: Any  #: A as the room multiplies it
    numbers: str  #: what the room reads B as: a dtype, or "tf32"
    b_order: str = "C"  #: memory order of B (k, n) that the kernel reads
    c_order: str = "C"  #: and of out (m, n)
    turned: bool = False  #: the room multiplies outᵀ = Bᵀ · Aᵀ
    in_place: bool = False  #: kernels read A's values where they are, so that they may change


def route(
    a,
    dtype: str,
    accuracy: str,
    device,
    *,
    order: str = "C",
    out_order: str = "C",
    explicit: bool = False,
    in_place: bool = False,
) -> Route:
    """The way for a matrix of `operands.FORMATS`, on the host or the GPU.

    dtype, accuracy: as `operands.resolved` has them. device: a `cuda.core.Device`. order, out_order: memory orders of
    B and out, which a kernel may take or not. explicit: the caller named the accuracy, so values may be rounded to
    it. in_place: A is CSR whose values change. Raises ValueError, one sentence, where no kernel does that.
    """
    hopper = jit.arch_of(device) in HOPPER
    if in_place:
        require(
            isinstance(a, Csr) and dtype == "float32",
            f"values change in place for CSR times float32, but A is {type(a).__name__} and B {dtype}: leave "
            "in_place out, and plan anew where values change",
        )
        return Route("casper_sparse", "auto", a, "float32", in_place=True)
    if dtype in half.DTYPES:
        operands.require_all_held(a, dtype, accuracy if explicit else None)
        return _sixteen(a, dtype, hopper, order, out_order, device)
    less = accuracy != "fp32"
    if isinstance(a, Nm) and (a.vector % 4 == 0 or a.vector >= a.n):
        if less and hopper:
            return Route("nm_spmm", "tf32", replace(a, val=_tf32(a.val)), "tf32", turned=True)
        return Route("nm_spmm", "auto", a, "float32", turned=True)
    if isinstance(a, Bcsr) and less and hopper:
        made = replace(a, dtype="float32", val=_tf32(operands.values_of(a)))
        return Route("async_sparse", "auto", made, "tf32", "F", out_order)
    return _csr(operands.as_csr(a), less, hopper)


def _csr(a: Csr, less: bool, hopper: bool) -> Route:
    if less and hopper:
        return Route("async_sparse", "auto_tf32", replace(a, val=_tf32(a.val)), "tf32")
    return Route("async_sparse", "auto_fp32", a, "float32")


def _sixteen(a, dtype: str, hopper: bool, order: str, out_order: str, device) -> Route:
    if isinstance(a, TwoFour):
        val = half.to_bits(operands.values_of(a), dtype) if a.dtype != dtype else a.val
        orders = (order, out_order) if hopper else ("C", "C")
        return Route("tensor_core_24", "auto", replace(a, dtype=dtype, val=val), dtype, *orders)
    if isinstance(a, Bcsr):
        val = half.to_bits(operands.values_of(a), dtype) if a.dtype != dtype else a.val
        made = replace(a, dtype=dtype, val=val)
        if hopper:  # rows of B are read as they lie where those of out lie likewise
            return Route("async_sparse", "auto", made, dtype, order, out_order if order == "F" else "C")
        return Route("async_sparse", "blocks_mma", made, dtype, order, out_order)
    if not isinstance(a, Nm):
        return Route("async_sparse", "auto_half", operands.as_csr(a), dtype)
    require(
        dtype == "bfloat16",
        f"N:M times {dtype} has no kernel, but bfloat16 and float32 have: convert B",
    )
    cc = ".".join(map(str, device.compute_capability))
    require(
        hopper,
        f"N:M times {dtype} is multiplied on compute capability 9.0 only, but this GPU has {cc}: convert B to float32",
    )
    rounded = half.from_bits(half.to_bits(a.val, dtype), dtype)
    return Route("nm_spmm", "bf16", replace(a, val=rounded), dtype, turned=True)


def _tf32(values):
    from ..async_sparse import windows

    return windows.tf32(values)


# ---------------------------------------------------------------- a room's problem


def problem(way: Route, n: int, xp) -> tuple[Problem, Any, Any]:
    """(the room's problem, B, out): random values, as trials need them. xp: CuPy or NumPy."""
    m, k = operands.size_of(way.a)
    b = _random(k, n, way.numbers, way.b_order, xp)
    c = _laid(xp.zeros(m * n, xp.uint16 if _sixteen_bits(way) else xp.float32), m, n, way.c_order)
    return _problem(way, n, b, c), b, c


def stand_ins(way: Route, n: int) -> tuple[Problem, Any, Any]:
    """(the room's problem, arrays that stand for B and out): CuPy's, of addresses where nothing is."""
    m, k = operands.size_of(way.a)
    dtype = np.dtype(np.uint16 if _sixteen_bits(way) else np.float32)
    b = _at(_PLACES[0], k, n, way.b_order, dtype)
    c = _at(_PLACES[1], m, n, way.c_order, dtype)
    return _problem(way, n, b, c, stands=True), b, c


_PLACES = (
    1 << 46,
    1 << 45,
)  #: further apart than any GPU has memory, and on boundaries that every kernel takes


def _at(address: int, rows: int, columns: int, order: str, dtype: np.dtype):
    import cupy

    memory = cupy.cuda.UnownedMemory(address, max(1, rows * columns) * dtype.itemsize, None, current.now() or 0)
    return cupy.ndarray((rows, columns), dtype, cupy.cuda.MemoryPointer(memory, 0), order=order)


def _problem(way: Route, n: int, b, c, stands: bool = False) -> Problem:
    m, k = operands.size_of(way.a)
    b_like, c_like = (_as_half(way, x.T if way.turned else x) for x in (b, c))
    if way.turned:
        made, sizes = Operands(b_like, way.a, c_like, stands), (n, m, k)
    else:
        made, sizes = Operands(way.a, b_like, c_like, stands), (m, n, k)
    return Problem(
        room=way.room,
        label="" if way.numbers == "bfloat16" else way.numbers,
        m=sizes[0],
        n=sizes[1],
        k=sizes[2],
        nnz=way.a.nnz,
        density=way.a.nnz / (m * k),
        seed=0,
        useful_flops=2 * way.a.nnz * n,
        flops_def="2·nnz·N",
        least_bytes=0,
        requested_bytes=0,
        make_host=lambda: made,
        make_device=lambda: made,
        limit="tf32" if way.numbers == "tf32" else "",
        orders=way.b_order + way.c_order,
    )


def _sixteen_bits(way: Route) -> bool:
    return way.numbers in half.DTYPES


def _as_half(way: Route, x):
    return Half(way.numbers, x) if _sixteen_bits(way) else x


def _random(rows: int, columns: int, numbers: str, order: str, xp):
    return _laid(splitmix.uniform(splitmix.key(0, _B), rows * columns, numbers, xp), rows, columns, order)


def _laid(flat, rows: int, columns: int, order: str):
    return flat.reshape(columns, rows).T if order == "F" else flat.reshape(rows, columns)


# ---------------------------------------------------------------- a choice among configurations


@dataclass(frozen=True)
class _Family:
    """A room's configurations for a problem, as its own auto goes about them."""

    choices: tuning.Choices
    key: Callable[[], tuple]
    fits: Callable[[Any], bool]
    likely: Callable[[], Any]  #: the best configuration by the room's own prediction
    tune: Callable[[Problem], tuning.Winner]  #: on a problem whose B and out are there
    bind: Callable[[str, Any], Launch]  #: (name, configuration)


def _family(way: Route, p: Problem, device) -> _Family | None:
    """Of a way whose variant chooses among configurations; None of one that is a single kernel, or casper_sparse's."""
    if way.variant in ("auto_fp32", "auto_tf32", "auto_half"):
        return _any_csr(way.variant, p, device)
    if way.variant != "auto" or way.room == "casper_sparse":
        return None
    family: Any  # the modules of a room
    launch: Any
    bind_config: Callable[[str, Problem, Any, Any], Launch]
    if way.room == "async_sparse":
        from ..async_sparse import family, launch, unit

        bind_config = unit.bind
    elif way.room == "tensor_core_24":
        from ..tensor_core_24 import family, launch

        bind_config = launch.bind_config
    else:
        from ..nm_spmm import family, ladder, launch

        bind_config = ladder.bind_config
    return _Family(
        family.CHOICES,
        lambda: family.key(p),
        lambda config: family.fits(config, p, device),
        lambda: _likely(way.room, family, launch.tune, p, device),
        lambda real: launch.tune(real, device),
        lambda name, config: bind_config(name, p, device, config),
    )


def _any_csr(variant: str, p: Problem, device) -> _Family:
    from ..async_sparse import any_csr, model, statistics

    accuracy, fits = any_csr.ACCURACIES[variant], any_csr.fitting(p, device)

    def likely():
        of = statistics.at_a_glance(p.device().a)
        every = model.candidates(accuracy, of, p.n, len(model.POOLS[accuracy]))
        if not of.ascending:
            every = [config for config in every if getattr(config, "rows", 0) == 1]
        return next(config for config in every if fits(config))

    return _Family(
        any_csr.CHOICES,
        lambda: any_csr.key(p, accuracy),
        fits,
        likely,
        lambda real: any_csr.tune(real, device, accuracy),
        lambda name, config: any_csr.bind_config(name, p, device, config),
    )


def _likely(room: str, family, tune: Callable, p: Problem, device):
    configs = family.candidates(p, device)
    if not configs:
        return tune(p, device).config  # which says why there is none
    if room == "tensor_core_24" and jit.arch_of(device) in HOPPER:
        sms = device.properties.multiprocessor_count
        return min(configs, key=lambda c: family.predict(c, p.m, p.n, p.k, sms, p.orders))
    return configs[0]


def choose(
    way: Route,
    p: Problem,
    device,
    tune: Callable[[], Problem] | None,
    deterministic: bool = False,
    notes: list[str] | None = None,
) -> tuple[str, Callable[[], Launch]]:
    """A variant's name, or "family knobs", and what binds it: the fastest, by trials or by what was kept of earlier
    ones.

    p: B and out may be stand-ins. tune: makes the problem that there may be trials on; None: there may be none, and
    where nothing is kept, it is the best by prediction. A choice that was kept of another minor version of the compiler
    counts as well, and `notes` says so. deterministic: sums are added up in one order.
    """
    family = _family(way, p, device)
    if family is None:
        of_csr = way.room == "casper_sparse"
        name = _choose_csr(way, tune, p, device, deterministic) if of_csr else way.variant
        return name, lambda: bind(way, name, p, device)
    key = family.key()
    kept = tuning.look_up(family.choices, key, device, family.fits, near=True)
    if kept is not None:
        config = kept.config
        if notes is not None and kept.nvrtc != jit.nvrtc_version():
            notes.append(
                f"the kernel was chosen by trials with NVRTC {kept.nvrtc}, but NVRTC {jit.nvrtc_version()} compiles it"
            )
    elif tune:
        config, _ = tuning.choose(family.choices, key, device, fits=family.fits, make=lambda: family.tune(tune()))
    else:
        config = family.likely()
    if deterministic:
        config = in_order.in_order(config)
    name = next(x for x, kind in family.choices.families.items() if kind is type(config))
    return f"{name} {tuning.knobs(config)}", lambda: family.bind(f"{way.room} {name}", config)


def _choose_csr(way: Route, tune, p: Problem, device, deterministic: bool) -> str:
    from ..casper_sparse import family, launch

    if not tune:
        return in_order.in_order("split_rows") if deterministic else "split_rows"
    p = tune()
    # shared_tiles reads a copy of A's values.
    names = [x for x in family.candidates(p, device) if not (way.in_place and x == "shared_tiles")]
    if deterministic:
        names = list(dict.fromkeys(map(in_order.in_order, names)))
    jobs = [(family.VARIANTS[x].source, family.entry(x, p.n, family.best_rows(p, device))) for x in names]
    winner = tuning.tune(
        p,
        names,
        lambda p, name: launch.bind(name, p, device),
        (lambda p: launch.bind("scalar", p, device),),
        device,
        family.ROUNDS,
        jobs,
    )
    return winner.config


def bind(way: Route, choice: str, p: Problem, device) -> Launch:
    """What `choose` returned, ready to run. Raises ValueError where it is no choice of the room's."""
    name, _, knobs = choice.partition(" ")
    family = _family(way, p, device)
    if family is None:
        room = importlib.import_module(f"...{way.room}", __name__)
        return room.bind(name, p, device)
    known = family.choices.families
    require(name in known, f"{way.room} has no family {name!r}: choose {', '.join(known)}")
    return family.bind(f"{way.room} {name}", tuning.choices.parse_knobs(knobs, known[name]))


def holds(way: Route, choice: str, p: Problem, device) -> bool:
    """Whether what was written down is a choice that `choose` could make of this problem on this GPU."""
    name, _, knobs = choice.partition(" ")
    family = _family(way, p, device)
    if family is None and way.room == "casper_sparse":
        from ..casper_sparse.family import candidates

        return choice in candidates(p, device) and not (way.in_place and choice == "shared_tiles")
    if family is None:
        return choice == way.variant
    known = family.choices.families
    try:
        return name in known and family.fits(tuning.choices.parse_knobs(knobs, known[name]))
    except (ValueError, TypeError, AttributeError):  # somebody edited it
        return False


def kernels(room: str) -> str:
    """12 hexadecimal digits of a room's kernels, so that a choice is known to be of others."""
    return tuning.choices.digest((jit.ROOT / room).glob("*.cu"))
