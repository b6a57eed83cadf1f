"""What is run of no room, the library and the formats' own kernels, and what the rooms' cases share: every variant that
is a kernel of its own, whatever else its `bind` takes, on problems with several tiles, ragged edges, cut rows and split
sums (`artifact/rooms/<room>/sanitize.py`).

A kernel is told of few multiprocessors (`lab.Few`), so that blocks that stay have several tiles each of a problem this
small. Kernels that choose among the others ("auto") are left out, and so are the ceilings, which measure and compute
nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import fields, replace
from functools import partial

import numpy as np

from artifact import registry
from artifact.measure import check
from kernels import formats
from kernels.formats import (
    bcsr,
    checks,
    compress,
    csr,
    eight,
    foreign,
    half,
    nm,
    two_four,
    two_four_eight,
    wcsr,
)
from kernels.formats.half import Half, array_module
from kernels.library import operands

from .lab import Case, Lab, here

#: Variants that choose among others, beside those that are called so.
CHOOSING = ("v3_searched",)


def scattered(m: int = 333, k: int = 457) -> csr.Csr:
    """A matrix with empty rows, and two full ones, which are cut."""
    where = np.random.default_rng(0).random((m, k)) < 0.05
    where[[7, m - 1]] = True
    where[50:60] = False
    row_ptr = np.concatenate([[0], np.cumsum(where.sum(1))]).astype(np.int32)
    val = np.random.default_rng(1).uniform(-1, 1, int(row_ptr[-1])).astype(np.float32)
    return csr.Csr(m, k, row_ptr, np.nonzero(where)[1].astype(np.int32), val)


def own(room) -> dict:
    """name -> bind of the variants that choose among no others."""
    names = [name for name in room.VARIANTS if "auto" not in name and name not in CHOOSING]
    return {name: partial(bound, room, name) for name in names}


def bound(room, name: str, problem, device):
    return room.bind(name, problem, device)


def configured(bind: Callable, config, problem, device, **more):
    return bind("trial", problem, device, config, **more)


# ---------------------------------------------------------------- the library and the formats


def library(lab: Lab) -> Iterable[Case]:
    """Plans of every format and dtype, with what they do besides the kernel: other orders, factors, single calls."""
    sparse = scattered(200, 320)
    for kind, dtype, accuracy in (
        ("csr", "float32", None),
        ("csr", "float32", "tf32"),
        ("csr", "bfloat16", None),
        ("csr", "float16", None),
        ("bcsr", "bfloat16", None),
        ("bcsr", "float32", "tf32"),
        ("2:4", "float16", None),
        ("nm", "float32", None),
        ("nm", "bfloat16", None),
    ):
        a = _of_format(kind, dtype, sparse)
        a = replace(a, val=_cut(a.val, accuracy))
        for n in (64, 33):
            given = dtype, accuracy, n
            yield (
                f"plan of {kind}, {dtype} {accuracy or ''}, n={n}",
                partial(_planned, lab, a, *given),
            )
    yield (
        "plan in order of csr",
        partial(_planned, lab, sparse, "float32", None, 64, deterministic=True),
    )
    yield "plan tuned of csr", partial(_planned, lab, sparse, "float32", None, 64, tune=True)
    for prune, dtype in (("2:4", "float16"), ("nm", "float32"), ("block", "bfloat16")):
        yield f"plan pruned to {prune}", partial(_pruned, lab, prune, dtype)
    for n in (64, 33, 1):
        yield f"spmm of csr, n={n}", partial(_single, lab, sparse, n)
    for n in (64, 34, 33):
        yield f"sddmm, n={n}", partial(_sampled, lab, sparse, n)
    for size in (8, 4, 3, 2):  # of float32 and 2 bytes: rows of uint4 to unsigned short
        yield f"gather of rows, {size}", partial(_gathered, lab, size)


def _of_format(kind: str, dtype: str, sparse: csr.Csr):
    if kind == "csr":
        if dtype == "float32":
            return sparse
        return replace(sparse, val=half.from_bits(half.to_bits(sparse.val, dtype), dtype))
    if kind == "bcsr":
        return bcsr.random(200, 320, 0.4, 0, dtype=dtype)
    if kind == "2:4":
        return two_four.random(200, 320, dtype, 0)
    made = nm.random(320, 200, 8, 32, 16, 0)
    if dtype == "float32":
        return made
    return replace(made, val=half.from_bits(half.to_bits(made.val, dtype), dtype))


def _planned(lab: Lab, a, dtype: str, accuracy: str | None, n: int, **more) -> None:
    import cupy

    import kernels
    from kernels import formats

    made = kernels.plan(a, n, dtype=dtype, accuracy=accuracy, **({"tune": False} | more))
    dense = formats.to_dense(a).astype(np.float64)
    dense = dense.T if isinstance(a, nm.Nm) else dense
    numbers = _cut(np.random.default_rng(5).standard_normal((made.k, n)).astype(np.float32), accuracy)
    in_half = dtype in half.DTYPES
    bits = half.to_bits(numbers, dtype) if in_half else numbers
    numbers = half.from_bits(bits, dtype) if in_half else numbers
    right = dense @ numbers.astype(np.float64)
    limit = "tf32" if accuracy == "tf32" else dtype
    for order in "CF":
        b = cupy.asarray(np.asarray(bits, order=order))
        b = Half(dtype, b) if in_half else b
        out = made(b)
        lab.device.sync()
        check.compare(here(out), check.reference(right), "a plan", limit)
    made(b, out=out, alpha=0.5, beta=2.0)
    lab.device.sync()
    _require_close("a plan that adds", out, 2.5 * right, 3 * check.LIMITS[limit].max_err)


def _cut(values: np.ndarray, accuracy: str | None) -> np.ndarray:
    """Values that TF32 holds, where products are made in it."""
    if accuracy != "tf32":
        return values
    return (values.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)


def _require_close(name: str, out, right: np.ndarray, limit: float) -> None:
    found = here(out)
    found = half.from_bits(found.bits, found.dtype) if isinstance(found, Half) else found
    off = np.abs(found - right)
    most = limit * np.maximum(np.abs(right), np.sqrt((right**2).mean()))
    require_right(name, bool((off <= most).all()))


def require_right(name: str, holds: bool) -> None:
    if not holds:
        raise check.WrongResult(f"{name} is wrong")


def _pruned(lab: Lab, prune: str, dtype: str) -> None:
    """A dense matrix on the GPU, pruned there: its largest values are few enough to stay, so nothing is lost."""
    import cupy

    import kernels

    dense = np.zeros((192, 256), np.float32)
    where = {"2:4": (slice(None), slice(None, None, 4)), "nm": (slice(None), slice(None, None, 32))}
    blocks = slice(64, 128), slice(128, 192)
    of = where.get(prune, blocks)
    shape = dense[of].shape
    values = np.random.default_rng(11).integers(1, 9, shape).astype(np.float32)
    dense[of] = values
    numbers = np.random.default_rng(12).integers(-4, 5, (256, 40)).astype(np.float32)
    in_half = dtype in half.DTYPES
    bits = half.to_bits(numbers, dtype) if in_half else numbers
    share = {"2:4": None, "nm": 1 / 32, "block": 1 / 12}[prune]
    made = kernels.plan(cupy.asarray(dense), 40, dtype=dtype, prune=prune, density=share, vector=32, tune=False)
    b = cupy.asarray(bits)
    out = made(Half(dtype, b) if in_half else b)
    lab.device.sync()
    right = dense.astype(np.float64) @ numbers.astype(np.float64)
    check.compare(here(out), check.reference(right), f"a plan pruned to {prune}", dtype)


def _single(lab: Lab, a: csr.Csr, n: int) -> None:
    import cupy

    import kernels

    numbers = np.random.default_rng(6).standard_normal((a.k, n)).astype(np.float32)
    b, there = cupy.asarray(numbers), csr.to_device(a)
    for _ in range(2):
        out = kernels.spmm(there, b)
        lab.device.sync()
        right = csr.to_dense(a).astype(np.float64) @ numbers.astype(np.float64)
        check.compare(here(out), check.reference(right), "spmm", "float32")


def _sampled(lab: Lab, a: csr.Csr, n: int) -> None:
    import cupy

    from kernels.library.sampled import Sampled

    rng = np.random.default_rng(7)
    g, b = (rng.standard_normal((rows, n)).astype(np.float32) for rows in (a.m, a.k))
    made = Sampled(csr.to_device(a), lab.device)
    out = made(cupy.asarray(g), cupy.asarray(b))
    lab.device.sync()
    right = (g.astype(np.float64) @ b.astype(np.float64).T)[csr.rows(a), a.col_idx]
    check.compare(here(out)[:, None], check.reference(right[:, None]), "sddmm", "float32")


def _gathered(lab: Lab, columns: int) -> None:
    import cupy

    from kernels.distributed.machine import Gpu

    rng = np.random.default_rng(8)
    b = rng.integers(0, 2**16, (50, columns)).astype(np.uint16)
    ids = rng.integers(0, 50, 77)
    out = cupy.empty((77, columns), cupy.uint16)
    Gpu(lab.device.device_id).gather(cupy.asarray(b), cupy.asarray(ids), out)
    lab.device.sync()
    require_right("gather", np.array_equal(here(out), b[ids]))


def generated(lab: Lab) -> Iterable[Case]:
    """Large matrices as ranks make them on their GPUs, here one small part, and its product."""
    from kernels.distributed.generate import Rmat, Stencil

    for made in (Rmat(8, 8, 3), Stencil(6, 2)):
        yield f"{made}", partial(_generated, lab, made)


def _generated(lab: Lab, made) -> None:
    from kernels import distributed
    from kernels.distributed import generate
    from kernels.distributed.machine import Gpu

    edges = np.array([0, made.m])
    part = generate.part(made, edges, 0)
    host = generate.host_part(made, edges, 0).a
    for name in ("row_ptr", "col_idx", "val"):
        same = np.array_equal(here(getattr(part.a, name)), getattr(host, name))
        require_right(f"{name} of {made}", same)
    plan = distributed.plan(part, 48, chunks=2, machine=Gpu(lab.device.device_id))
    generate.fill_dense(plan.operand(), 0, 5)
    out = here(plan().whole())
    right = csr.to_dense(host).astype(np.float64) @ generate.dense(np.arange(made.m), np.arange(48), 48, 5)
    check.compare(out, check.reference(right), f"the product of {made}", "float32")


def conversions(lab: Lab) -> Iterable[Case]:
    """The formats' own kernels: what prunes, what looks whether a matrix is one, what makes one format of another."""
    sparse = scattered()
    for dtype in ("float32", "bfloat16"):
        for block in (64, 16, (32, 128)):
            convert = partial(bcsr.from_csr, block=block, dtype=dtype)
            yield f"bcsr, {dtype} {block}", partial(_converted, convert, csr, sparse)
        for window in (64, 4):
            convert = partial(wcsr.from_csr, window=window, dtype=dtype)
            yield f"wcsr, {dtype} {window}", partial(_converted, convert, csr, sparse)
    blocks = bcsr.from_csr(sparse, block=32)
    windows = wcsr.from_csr(sparse)
    yield "bcsr to csr", partial(_converted, bcsr.to_csr, bcsr, blocks)
    yield "wcsr to csr", partial(_converted, wcsr.to_csr, wcsr, windows)
    for size, pattern in (((100, 70), (2, 4, 32)), ((130, 33), (8, 32, 8)), ((64, 20), (1, 4, 1))):
        yield f"nm, {size} {pattern}", partial(_compressed_nm, size, pattern)
    for dtype in half.DTYPES:
        for size in ((70, 100), (33, 77)):
            yield f"2:4, {dtype} {size}", partial(_compressed, lab, dtype, *size)
    for dtype in eight.DTYPES:
        for size in ((70, 100), (33, 77)):
            yield f"2:4 of 8 bits, {dtype} {size}", partial(_compressed_eight, lab, dtype, *size)
    ragged = np.random.default_rng(14).standard_normal((70, 100)).astype(np.float32)
    pairs = two_four.compress(ragged, "float16", prune=True)
    vectors = nm.compress(ragged, 2, 4, 32, prune=True)
    for given in (blocks, windows, pairs, vectors):
        kind = type(given).__name__
        yield f"{kind} looked at", partial(_looked_at, given)
        yield f"{kind} as CSR", partial(_converted, operands.as_csr, formats, given)
    twice = np.r_[blocks.col_idx[::-1][:3], blocks.col_idx[3:]]  # out of order, or in one place
    disordered = replace(blocks, col_idx=twice.astype(np.int32))
    yield "bcsr in order", partial(_converted, bcsr.in_order, bcsr, disordered)
    yield "pointers and indices of others", _looked_at_others
    yield "numbers as float32", _as_float32


def _converted(convert: Callable, module, given) -> None:
    """What a GPU makes of a matrix is what NumPy does."""
    _require_same(convert(module.to_device(given)), convert(given))


def _looked_at(given) -> None:
    """A GPU takes what the host takes, and finds the same fault."""
    formats.validate(formats.to_device(given))
    name = next(x for x in ("meta", "index", "col_idx") if hasattr(given, x))
    wrong = getattr(given, name).copy()
    wrong.flat[wrong.size // 2] = 0 if name == "meta" else 2**30
    _require_same_refusal(type(given).__name__, formats.validate, replace(given, **{name: wrong}))


def _looked_at_others() -> None:
    for index in (np.int32, np.int64):
        columns = np.array([0, 5, 1, 4], index)
        for within in (6, 5):
            _require_same_refusal(f"pointers of {within} columns", _look_at_compressed, columns, within)
            _require_same_refusal(f"indices under {within}", _look_at_coordinates, columns, within)


def _look_at_coordinates(columns, within: int) -> None:
    if array_module(columns) is np:
        csr.require_columns("COO", columns, within, "columns", "col_idx")
    else:
        checks.require_within("COO", "col_idx", columns, within, "columns")


def _look_at_compressed(columns, within: int) -> None:
    pointers = array_module(columns).asarray(np.array([0, 2, 2, 4], columns.dtype))
    arrays = {"row_ptr": pointers, "col_idx": columns}
    foreign.require_compressed("CSR", arrays, 3, within, "columns", 4)


def _require_same_refusal(what: str, look: Callable, given, *more) -> None:
    """`look` says of what lies on the GPU what it says of what lies on the host."""
    import cupy

    there = cupy.asarray(given) if isinstance(given, np.ndarray) else formats.to_device(given)
    require_right(f"what is said of {what}", _refusal(look, there, *more) == _refusal(look, given, *more))


def _refusal(look: Callable, *given) -> str:
    try:
        look(*given)
    except ValueError as error:
        return str(error)
    return ""


def _as_float32() -> None:
    import cupy

    x = np.random.default_rng(15).standard_normal((45, 67))
    for view in (lambda y: y, lambda y: y.T, lambda y: y[:, ::2]):
        made, _ = compress.float32(view(cupy.asarray(x)), check=True)
        require_right("a cast to float32", np.array_equal(here(made), view(x).astype(np.float32)))


def _compressed_nm(size: tuple[int, int], pattern: tuple[int, int, int]) -> None:
    import cupy

    dense = np.random.default_rng(13).standard_normal(size).astype(np.float32)
    made = nm.compress(cupy.asarray(dense), *pattern, prune=True)
    _require_same(made, nm.compress(dense, *pattern, prune=True))


def _require_same(made, right) -> None:
    for part in fields(right):
        expected = getattr(right, part.name)
        if isinstance(expected, np.ndarray):
            found = here(getattr(made, part.name))
            require_right(f"{part.name} of {type(right).__name__}", np.array_equal(found, expected))


def _compressed(lab: Lab, dtype: str, m: int, k: int) -> None:
    import cupy

    numbers = np.random.default_rng(9).standard_normal((m, k)).astype(np.float32)
    bits = half.to_bits(numbers, dtype)
    right = two_four.compress(bits, dtype, prune=True)
    made = two_four.compress(cupy.asarray(bits), dtype, prune=True)
    fits = two_four.compress(cupy.asarray(two_four.to_dense_bits(right)), dtype)
    for found in (made, fits):
        require_right(
            f"2:4 in {dtype}",
            np.array_equal(here(found.val), right.val) and np.array_equal(here(found.meta), right.meta),
        )


def _compressed_eight(lab: Lab, dtype: str, m: int, k: int) -> None:
    import cupy

    numbers = np.random.default_rng(10).standard_normal((m, k)).astype(np.float32)
    bits = eight.to_bits(numbers, dtype)
    right = two_four_eight.compress(bits, dtype, prune=True)
    made = two_four_eight.compress(cupy.asarray(bits), dtype, prune=True)
    require_right(
        f"2:4 in {dtype}",
        np.array_equal(here(made.val), right.val) and np.array_equal(here(made.meta), right.meta),
    )


#: What one process runs of no room: name -> its cases.
SHARED = {"library": library, "generated": generated, "conversions": conversions}


def find() -> dict[str, Callable[[Lab], Iterable[Case]]]:
    """What one process runs: name -> its cases; the rooms' own, from their sanitize.py, and those of no room."""
    of_rooms = (registry.module(room, "sanitize").CASES for room in registry.find())
    return {name: cases for found in (*of_rooms, SHARED) for name, cases in found.items()}
