"""Which system's kernels multiply a matrix: by its format, what B holds and the GPU; `TABLE` says it all.

A `gpu.Portable` counts as another GPU than Hopper. "fp16" and "bf16" of float32 are multiplied as "tf32", which holds
both. N:M whose vectors are no multiple of four rows of A is multiplied as CSR. auto_fp32 may add three TF32 products
for one of float32, whose error is that of float32's sums, and may multiply several rows of A together: then what is
infinite or NaN in B becomes NaN in all of them. Where A has infinite values there are no such three products. TF32
takes A rounded and B cut to 10 bits of fraction.
"""

import importlib
from collections import namedtuple
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from math import ceil
from types import SimpleNamespace
from typing import Any

import numpy as np

from .. import autotune, jit, splitmix
from ..async_sparse import planning
from ..async_sparse.windows import Union, WcsrTile, Windows
from ..contract import Family, Launch, Multiplication, Operand, Operands, Slot, require
from ..formats import bcsr, csr, half, intake, nm, two_four
from . import operands

HOPPER = ("sm_90a",)
_B = 2  # stream of the random numbers that trials multiply


# ---------------------------------------------------------------- how kernels read A's values


def _rounded(a, dtype: str):
    """To TF32."""
    stored = {"dtype": "float32"} if isinstance(a, bcsr.Bcsr) else {}
    return replace(a, val=planning.tf32(operands.values_of(a)), **stored)


def _stored(a, dtype: str):
    """In the dtype of B, where a format stores its values so."""
    return a if a.dtype == dtype else replace(a, dtype=dtype, val=half.to_bits(operands.values_of(a), dtype))


def _held(a, dtype: str):
    """Round to the dtype of B, in float32."""
    return replace(a, val=half.from_bits(half.to_bits(a.val, dtype), dtype))


# ---------------------------------------------------------------- the table


@dataclass(frozen=True)
class Route:
    """A family of a system's kernels, what it reads and writes, and the matrix that it multiplies."""

    room: str
    variant: str  #: of the system's `FAMILIES`
    numbers: str  #: what the system reads B as: a dtype, or "tf32"
    read: Callable | None = None  #: (A, dtype of B): A as its kernels read it, where that is another
    orders: tuple[str, ...] = ("CC",)  #: memory orders of B and out that its kernels have; the first is taken
    turned: bool = False  #: the system multiplies outᵀ = Bᵀ · Aᵀ
    in_place: bool = False  #: kernels read A's values where they are, so that they may change
    a: Any = None  #: A as the system multiplies it; None: in the table

    @property
    def family(self) -> Family:
        """Return the system's family of configurations."""
        return importlib.import_module(f"...{self.room}", __name__).FAMILIES[self.variant]


_GROUPS = Route("async_sparse", "auto_fp32", "float32")
_IN_PLACE = Route("async_sparse", "in_place", "float32", in_place=True)
_VECTORS = Route("nm_spmm", "auto", "float32", turned=True)
_ANY = ("CC", "CF", "FC", "FF")


def _sixteen(dtype: str) -> dict[tuple[type, str], tuple[Route, Route]]:
    """Return the routes of a dtype of 16 bits.

    On Hopper rows of B are read by blocks as they lie where those of out lie likewise.
    """
    rows = Route("async_sparse", "auto_half", dtype)
    blocks = Route("async_sparse", "auto", dtype, _stored, ("CC", "FC", "FF"))
    pairs = Route("tensor_core_24", "auto", dtype, _stored)
    return {
        (csr.Csr, dtype): (rows, rows),
        (bcsr.Bcsr, dtype): (blocks, Route("async_sparse", "blocks_mma", dtype, _stored, _ANY)),
        (two_four.TwoFour, dtype): (replace(pairs, orders=_ANY), pairs),
    }


#: Format and what is asked, "fp32" or "tf32" of float32, a 16-bit dtype, or "in_place" -> the routes on compute
#: capability 9.0 and on other GPUs, from 8.0 on; None: there is none. What is missing is multiplied as CSR.
TABLE: dict[tuple[type, str], tuple[Route, Route | None]] = {
    (csr.Csr, "fp32"): (_GROUPS, _GROUPS),
    (csr.Csr, "tf32"): (Route("async_sparse", "auto_tf32", "tf32", _rounded), _GROUPS),
    (csr.Csr, "in_place"): (_IN_PLACE, _IN_PLACE),
    (bcsr.Bcsr, "tf32"): (Route("async_sparse", "auto", "tf32", _rounded, ("FC", "FF")), _GROUPS),
    **_sixteen("bfloat16"),
    **_sixteen("float16"),
    (nm.Nm, "fp32"): (_VECTORS, _VECTORS),
    (nm.Nm, "tf32"): (Route("nm_spmm", "tf32", "tf32", _rounded, turned=True), _VECTORS),
    (nm.Nm, "bfloat16"): (Route("nm_spmm", "bf16", "bfloat16", _held, turned=True), None),
}


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
    """Return the way for a matrix of `operands.FORMATS`, on the host or the GPU.

    dtype, accuracy: as `operands.resolved` has them. device: a `cuda.core.Device`. order, out_order: memory orders of
    B and out, which a kernel may take or not. explicit: the caller named the accuracy, so values may be rounded to
    it. in_place: A is CSR whose values change. Raises ValueError, one sentence, where no kernel does that.
    """
    hopper = jit.arch_of(device) in HOPPER
    asked = "in_place" if in_place else dtype if dtype in half.DTYPES else "fp32" if accuracy == "fp32" else "tf32"
    require(
        not in_place or (isinstance(a, csr.Csr) and dtype == "float32"),
        f"values change in place for CSR times float32, but A is {type(a).__name__} and B {dtype}: leave in_place out, "
        "and plan anew where values change",
    )
    kind: type = type(a) if (type(a), asked) in TABLE else csr.Csr
    if isinstance(a, nm.Nm):
        require(asked != "float16", "N:M times float16 has no kernel, but bfloat16 and float32 have: convert B")
        whole = a.vector % 4 == 0 or a.vector >= a.n
        kind = nm.Nm if whole or asked == "bfloat16" else csr.Csr
    way = TABLE[kind, asked][0 if hopper else 1]
    if way is None:
        cc = ".".join(map(str, device.compute_capability))
        raise ValueError(
            f"N:M times {dtype} is multiplied on compute capability 9.0 only, but this GPU has {cc}: convert B to "
            "float32"
        )
    if not explicit and dtype in half.DTYPES and getattr(a, "dtype", "float32") != dtype:
        operands.require_held(operands.values_of(a), dtype, None)
    a = operands.as_csr(a) if kind is csr.Csr or way is _GROUPS else a
    orders = max(way.orders, key=lambda x: (x[0] == order, x[1] == out_order))
    return replace(way, a=way.read(a, dtype) if way.read else a, orders=(orders,))


# ---------------------------------------------------------------- what a kernel is bound to


def multiplication(way: Route, n: int, xp=None) -> Multiplication:
    """Return what the system multiplies: B and out are `Slot`s, and A's values, too, where they may change.

    xp: CuPy or NumPy, for trials: arrays with random numbers in their place.
    """
    a, (m, k) = way.a, operands.size_of(way.a)
    b_order, out_order = tuple(way.orders[0])
    bits = way.numbers in half.DTYPES
    kind = "uint16" if bits else "float32"
    if xp is None:
        b, c = Slot(Operand.B, (k, n), kind, b_order), Slot(Operand.OUT, (m, n), kind, out_order)
        if way.in_place:
            a = replace(a, val=Slot(Operand.VALUES, a.val.shape, a.val.dtype), facts=intake.facts_of(a))
    else:
        numbers = splitmix.uniform(splitmix.key(0, _B), k * n, way.numbers, xp)
        b, c = _laid(numbers, k, n, b_order), _laid(xp.zeros(m * n, kind), m, n, out_order)
    dense = [x.T if way.turned else x for x in (b, c)]
    b_like, c_like = (half.Half(way.numbers, x) for x in dense) if bits else dense
    made = Operands(b_like, a, c_like) if way.turned else Operands(a, b_like, c_like)
    return Multiplication(
        m=n if way.turned else m,
        n=m if way.turned else n,
        k=k,
        nnz=way.a.nnz,
        make_host=lambda: made,
        make_device=lambda: made,
        limit="tf32" if way.numbers == "tf32" else "",
        orders=way.orders[0],
    )


def _laid(flat, rows: int, columns: int, order: str):
    return flat.reshape(columns, rows).T if order == "F" else flat.reshape(rows, columns)


# ---------------------------------------------------------------- a choice among configurations


def choose(way: Route, p: Multiplication, device, trials=None) -> tuple[Any, str]:
    """Return (the configuration that is the fastest, what a caller may want to know of the choice, or "").

    By trials or by what was kept of earlier ones. trials: makes the multiplication that there may be trials on; None:
    there may be none, and where nothing is kept, it is the best by prediction. A choice that was kept of another minor
    version of the compiler counts as well, which is what a caller may want to know.
    """
    family: Any = way.family

    def fits(config) -> bool:
        return family.fits(config, p, device)

    key = family.choices and family.key(p)
    kept = key and autotune.look_up(family.choices, key, device, fits, near=True)
    if kept:
        now = jit.nvrtc_version()
        noted = f"the kernel was chosen by trials with NVRTC {kept.nvrtc}, but NVRTC {now} compiles it"
        return kept.config, noted if kept.nvrtc != now else ""
    if trials is None or not key:
        return family.likely(p, device), ""
    return autotune.choose(family.choices, key, device, fits=fits, make=lambda: family.tune(trials(), device))[0], ""


def prepare(way: Route, config, p: Multiplication, device) -> Launch:
    """Return a configuration ready to run. Raises ValueError where it does not take p."""
    return way.family.prepare(f"{way.room} {text(way, config).partition(' ')[0]}", p, device, config)


def text(way: Route, config) -> str:
    """Return a configuration as a plan's file has it: its name, or "family knobs"."""
    if way.family.choices is None:
        return config
    name = next(x for x, kind in way.family.choices.families.items() if kind is type(config))
    return f"{name} {autotune.knobs(config)}"


def written(way: Route, choice: str, p: Multiplication, device):
    """Return the configuration that `text` wrote; None where it is none that takes p on this GPU.

    Somebody edited it.
    """
    family, (name, _, knobs) = way.family, choice.partition(" ")
    try:
        config = choice if not family.choices else autotune.choices.parse_knobs(knobs, family.choices.families[name])
        return config if family.fits(config, p, device) else None
    except (KeyError, ValueError, TypeError, AttributeError):
        return None


# ---------------------------------------------------------------- the same bits twice

#: Float32 sums depend on the order of their additions. On one GPU that order is a configuration's own, for every
#: launch, but where several blocks add to one element of C as they come to it:
#:
#:     CSR       union_rows, union_half   groups of rows cut into three parts or more    unless `in_order`
#:               windows                  windows likewise: of x + y + z the order counts    unless `in_order`
#:               wcsr, the source's       windows cut into three tasks or more    `in_order`: windows stay whole
#:
#: Everything else repeats its bits, subwarp too, whose parts of a row are added up in one order always. Blocks that
#: claim tiles from a counter (unit_ring, gated) claim whole sums: who has a tile changes, what is added when does not;
#: opt5's have one each.
#: What is cut along k elsewhere is added up in one order: by N:M's stream kernel and clusters, and by split-K, stream-K
#: and the last wave of 2:4 and FP8. So is what `sddmm` sums, and what parts of a distributed product add to each other.
#: What no route leads to: the published N:M kernels with split-K (v3_split_k, v3_searched, double_buffer) add by
#: atomics, too.
#:
#: The order does depend on the configuration, which trials may choose anew (`Plan.choice` tells), on the number of
#: columns, and where tiles are shared out among SMs on the GPU.


def in_order(config: Any) -> Any:
    """Return a configuration whose every launch gives the same bits: this one, or the same that adds up in one order.

    config: of a family of `autotune.Choices`, of wcsr, or the name of a kernel.
    """
    if isinstance(config, Union | Windows):
        return config if config.chunk == 0 else replace(config, in_order=True)
    if isinstance(config, WcsrTile):
        return replace(config, chunk=0)
    return config


# ---------------------------------------------------------------- what each family of GPUs multiplies with

SIZE = 256  #: of the matrices that routes are asked about


def _family(name: str, compute_capability: tuple[int, int], sms: int, shared: int) -> SimpleNamespace:
    """Return GPUs of one compute capability, which stand for a `cuda.core.Device` where routes look at one.

    name: what they are called. sms, shared: multiprocessors of the first of them, and bytes of shared memory that a
    block may have.
    """
    properties = SimpleNamespace(
        multiprocessor_count=sms,
        max_shared_memory_per_block_optin=shared,
        max_shared_memory_per_multiprocessor=shared + 1024,
    )
    return SimpleNamespace(name=name, compute_capability=compute_capability, properties=properties)


FAMILIES = (
    _family("H100, H200", (9, 0), 132, 232_448),
    _family("A100", (8, 0), 108, 166_912),
    _family("RTX 30, A10", (8, 6), 82, 101_376),
    _family("RTX 40, L4, L40S", (8, 9), 128, 101_376),
    _family("B200", (10, 0), 148, 232_448),
    _family("RTX 50", (12, 0), 170, 101_376),
)
NONE = "none, and one sentence says so"
#: What a route leads to -> how it multiplies.
WORDS = {
    "union": "groups of rows, CUDA cores",
    "subwarp": "rows by a few lanes, CUDA cores",  # up to `any_csr.FEW` columns
    "windows": "windows, `wgmma`",
    "unit": "blocks, `wgmma`",
    "opt5": "blocks, `wgmma`",
    "blocks_mma": "blocks, `mma.sync`",
    "wgmma": "2:4, `wgmma.sp`",
    "mma_sp": "2:4, `mma.sp`",
    "wide": "vectors, CUDA cores",
    "bulk": "vectors, CUDA cores and copy engine",
    "stream": "vectors, CUDA cores and copy engine",
    "cluster": "vectors, CUDA cores and copy engine",
    "tf32": "vectors, `wgmma`",
    "bf16": "vectors, `wgmma`",
}


def _csr() -> csr.Csr:
    row_ptr, every = (np.arange(0, end, step, dtype=np.int32) for end, step in ((8 * SIZE + 1, 8), (SIZE, SIZE // 8)))
    return csr.Csr(SIZE, SIZE, row_ptr, np.tile(every, SIZE), np.ones(8 * SIZE, np.float32))


_NM = partial(nm.random, SIZE, SIZE, 8, 32, 32, 0)
_BLOCKS = partial(bcsr.random, SIZE, SIZE, 0.5, 0)
#: Format, dtype of B and accuracy, as a table says them -> how to make A; the dtype and accuracy that are asked for.
ASKED: dict[tuple[str, str], tuple[Callable[[], Any], str, str]] = {
    ("CSR", "float32"): (_csr, "float32", "fp32"),
    ("CSR", "float32, at least TF32"): (_csr, "float32", "tf32"),
    ("CSR", "bfloat16, float16"): (_csr, "bfloat16", "bf16"),
    ("blocks", "bfloat16, float16"): (partial(_BLOCKS, dtype="bfloat16"), "bfloat16", "bf16"),
    ("blocks", "float32, at least TF32"): (partial(_BLOCKS, dtype="float32"), "float32", "tf32"),
    ("2:4", "bfloat16, float16"): (partial(two_four.random, SIZE, SIZE, "bfloat16", 0), "bfloat16", "bf16"),
    ("N:M", "float32"): (_NM, "float32", "fp32"),
    ("N:M", "float32, at least TF32"): (_NM, "float32", "tf32"),
    ("N:M", "bfloat16"): (_NM, "bfloat16", "bf16"),
}


def table() -> dict[tuple[str, str], dict[str, str]]:
    """(format, B) -> name of a family -> what multiplies there."""
    return {asked: {f.name: multiplied(asked, f) for f in FAMILIES} for asked in ASKED}


def multiplied(asked: tuple[str, str], family: SimpleNamespace) -> str:
    """Return what multiplies an entry of `ASKED` on a family of GPUs, by the routes and what they may choose from."""
    make, dtype, accuracy = ASKED[asked]
    try:
        way = route(make(), dtype, accuracy, family, explicit=True)
    except ValueError:
        return NONE
    of, found = way.family, {way.variant}
    if of.choices is not None:
        if isinstance(way.a, csr.Csr):  # no GPU looks at it here, and what one would find ranks configurations alone
            way = replace(way, a=replace(way.a, facts=intake.Facts(1, True, 0, (1,) * len(intake.HEIGHTS))))
        names = {kind: name for name, kind in of.choices.families.items()}
        configs = of.candidates(multiplication(way, SIZE), family)
        found = {name if (name := names[type(config)]) in WORDS else config.kernel for config in configs}
    return "; or ".join(dict.fromkeys(WORDS[name] for name in WORDS if name in found))


# ---------------------------------------------------------------- whether a dense product is faster

# From a GPU's ceilings, by arithmetic. Microseconds are a sum: a launch, what is computed at the rate of tensor cores
# or of FMA units, bytes from L2 and from DRAM, each as many times its ceiling as was measured (`WEIGHTS`). Ceilings
# come from the GPU's own description.

#: Compute capability -> FLOP that an SM does in a clock: 16-bit products on tensor cores with float32 sums, and float32
#: on FMA units (NVIDIA's architecture white papers; tensor cores of RTX 40 and 50 do half of what is said here).
RATES = {
    (8, 0): (2048, 128),
    (8, 6): (512, 256),
    (8, 7): (1024, 256),
    (8, 9): (1024, 256),
    (9, 0): (4096, 256),
    (10, 0): (8192, 256),
    (11, 0): (4096, 256),
    (12, 0): (1024, 256),
}
L2_BYTES = 64  #: that L2 delivers to an SM in a clock, at most
#: How many times its ceiling each part takes: (microseconds of a launch, arithmetic, L2, DRAM). "dense" is cuBLAS. The
#: last three are by hand: groups of rows, whose conversions of 16 bits count as arithmetic, and `blocks_mma`, by its
#: prediction. The others were fitted to the records of an H200 and an H100 by least squares of relative errors.
WEIGHTS = {
    "dense 16": (7.5, 1.16, 0.0, 0.88),
    "dense tf32": (7.5, 1.3, 0.0, 0.0),
    "dense fp32": (14.0, 1.32, 0.0, 0.48),
    "blocks": (15.0, 0.0, 1.53, 0.67),
    "2:4": (6.5, 1.56, 0.0, 1.09),
    "nm fp32": (9.0, 1.2, 0.0, 0.76),
    "nm 16": (1.0, 1.42, 0.0, 1.0),
    "nm tf32": (1.0, 1.55, 0.0, 1.0),
    "rows fp32": (8.0, 0.5, 1.5, 0.7),
    "rows 16": (8.0, 1.5, 1.5, 0.7),
    "blocks_mma": (8.0, 1.25, 1.53, 0.67),
}
GROUP = 4  #: rows that a group of CSR has


#: Of a GPU: FLOP/us on tensor cores in 16 bits and on FMA units, bytes/us from L2 and DRAM.
Ceilings = namedtuple("Ceilings", "tensor fma l2 dram")
#: What a plan multiplies: A (m, k), of which `stored` values are, by B (k, n). kind: of `WEIGHTS`, what multiplies;
#: numbers: "16", "tf32" or "fp32"; high: rows of A that share a row of B; wide: columns of B that share a value of A;
#: more: times `stored` that is multiplied.
Work = namedtuple("Work", "kind numbers m n k stored high wide more", defaults=(1, 256, 1.0))


def ceilings(device) -> Ceilings | None:
    """Of a `cuda.core.Device`; None where its driver does not say what they follow from."""
    properties, capability = device.properties, tuple(device.compute_capability)
    known = [x for x in RATES if x <= capability]
    clock, memory, bus = (
        getattr(properties, name, 0)  # kHz, kHz, bits
        for name in ("clock_rate", "memory_clock_rate", "global_memory_bus_width")
    )
    if not known or not clock or not memory or not bus:
        return None
    tensor, fma = RATES[max(known)]
    all_sms = properties.multiprocessor_count * clock / 1e3  # clocks of all, a microsecond
    return Ceilings(tensor * all_sms, fma * all_sms, L2_BYTES * all_sms, 2 * memory / 1e3 * bus / 8)


def dense_is_faster(way: Route, n: int, device) -> str:
    """Return a sentence with both times where a dense product is expected to be faster, else ""."""
    of, work = ceilings(device), work_of(way, n)
    if of is None or 0 in (work.m, work.n, work.k):
        return ""
    dense, sparse = both(work, of)
    return (
        f"A dense product of this size is expected to take {_short(dense)} us on this GPU, and this one "
        f"{_short(sparse)} us: make A dense, if it fits."
        if dense < sparse
        else ""
    )


def work_of(way: Route, n: int) -> Work:
    """Return what a route multiplies by n columns."""
    a, (m, k) = way.a, operands.size_of(way.a)
    numbers = {"float32": "fp32", "tf32": "tf32"}.get(way.numbers, "16")
    if isinstance(a, bcsr.Bcsr) and way.room == "async_sparse":
        return blocks(m, n, k, a.blocks, a.block, numbers, way.variant == "blocks_mma")
    if isinstance(a, two_four.TwoFour):
        return Work("2:4", numbers, m, n, k, m * k / 2)
    if isinstance(a, nm.Nm):
        return vectors(m, n, k, a.keep / a.group, min(a.vector, m), numbers)
    # CSR: groups of rows over their union, of non-zeros anywhere. In TF32 no faster than in float32, as a rule.
    density = min(1.0, a.nnz / max(1, m * k))
    shared = GROUP * density / (1 - (1 - density) ** GROUP) if density else 1.0
    return Work(f"rows {'16' if numbers == '16' else 'fp32'}", numbers, m, n, k, a.nnz, high=shared)


def blocks(m: int, n: int, k: int, count: int, block: tuple[int, int], numbers: str, portable: bool) -> Work:
    """Blocks; those lower than 64 rows are stacked on Hopper, with what is empty in between, at random places."""
    b_row, b_col = block
    stored = count * b_row * b_col
    if portable:
        return Work("blocks_mma", numbers, m, n, k, stored, b_row, 128 if b_row == 128 else 256)
    density, pile = min(1.0, stored / max(1, m * k)), max(1, 64 // b_row)
    more = (1 - (1 - density) ** pile) / density if density else 1.0
    return Work("blocks", numbers, m, n, k, stored, max(64, b_row), 512, more)


def vectors(m: int, n: int, k: int, density: float, vector: int, numbers: str) -> Work:
    """N:M; tensor cores multiply 128 rows together, so the union of what their vectors keep."""
    together = numbers != "fp32" and density
    each = (1 - (1 - density) ** max(1, 128 // vector)) / density if together else 1.0
    return Work(f"nm {numbers}", numbers, m, n, k, m * k * density, more=each)


def both(work: Work, of: Ceilings) -> tuple[float, float]:
    """(microseconds of the product with a dense A, of this one)."""
    dense = Work(f"dense {work.numbers}", work.numbers, work.m, work.n, work.k, work.m * work.k)
    return microseconds(dense, of), microseconds(work, of)


def microseconds(work: Work, of: Ceilings) -> float:
    """How long a product is expected to take."""
    launch, arithmetic, l2, dram = WEIGHTS[work.kind]
    size = 2 if work.numbers == "16" else 4
    on_fma = work.numbers == "fp32" or work.kind.startswith("rows")
    rate = of.fma if on_fma else of.tensor / (size / 2)
    done = work.stored * work.more
    asked = size * (done * work.n / work.high + done * ceil(work.n / work.wide))
    moved = size * (work.stored + (work.k + work.m) * work.n)
    return launch + arithmetic * 2 * done * work.n / rate + l2 * asked / of.l2 + dram * moved / of.dram


def _short(us: float) -> str:
    return f"{us:.0f}" if us >= 100 else f"{us:.2g}"
