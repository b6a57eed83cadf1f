"""What is run: every variant of every room that is a kernel of its own, whatever else its `bind` takes, the library and
the formats' own kernels, on problems with several tiles, ragged edges, cut rows and split sums.

A kernel is told of few multiprocessors (`lab.Few`), so that blocks that stay have several tiles each of a problem this
small. Kernels that choose among the others ("auto") are left out, and so are the ceilings, which measure and compute
nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import fields, replace
from functools import partial

import numpy as np

from artifact.measure import check
from kernels.formats import bcsr, csr, eight, half, nm, two_four, two_four_eight, wcsr
from kernels.formats.half import Half

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


def _own(room) -> dict:
    """name -> bind of the variants that choose among no others."""
    names = [name for name in room.VARIANTS if "auto" not in name and name not in CHOOSING]
    return {name: partial(_bind, room, name) for name in names}


def _bind(room, name: str, problem, device):
    return room.bind(name, problem, device)


# ---------------------------------------------------------------- the rooms


def casper_sparse(lab: Lab) -> Iterable[Case]:
    from kernels import casper_sparse as room

    for n in (256, 100, 7):
        yield from lab.products(room.problem_from_csr(scattered(), n), _own(room))
    yield from lab.products(
        room.problem(90, 40, 70, 0.3), {"scalar": partial(_bind, room, "scalar")}
    )


def nm_cuda_core(lab: Lab) -> Iterable[Case]:
    from kernels import nm_cuda_core as room

    yield from lab.products(room.problem(96, 64, 200), _own(room))
    one = {"element_wise": partial(_bind, room, "element_wise")}
    for density, group, vector in ((0.5, 4, 1), (0.25, 4, 32), (0.5, 32, 1), (0.125, 32, 32)):
        yield from lab.products(room.problem(96, 64, 200, density, group=group, vector=vector), one)


def nm_spmm(lab: Lab) -> Iterable[Case]:
    from kernels import nm_spmm as room
    from kernels.nm_spmm import family, ladder

    trials = {name: partial(ladder.bind, name) for name in family.TRIALS}
    for density in (0.5, 0.125):
        yield from lab.products(room.problem(300, 264, 520, density), _own(room) | trials)
    yield from lab.products(room.problem(320, 256, 512, 0.25), _own(room))  # whole tiles
    few = {name: bind for name, bind in _own(room).items() if name in (*family.RUNGS, "v1", "v3")}
    yield from lab.products(room.problem(301, 140, 333, 0.25, vector=4), few)
    for dtype in ("tf32", "bfloat16"):
        name = "tf32" if dtype == "tf32" else "bf16"
        for m in (304, 301):
            yield from lab.products(
                room.problem(m, 264, 520, 0.25, dtype=dtype), {name: partial(_bind, room, name)}
            )


def async_csr(lab: Lab) -> Iterable[Case]:
    """The kernels for CSR: windows on tensor cores, groups of rows, the source's own."""
    from kernels import async_sparse as room
    from kernels.async_sparse import union, windows
    from kernels.async_sparse import wcsr as of_windows

    modules = (of_windows, windows, union)
    names = [name for x in modules for name in (*x.KERNELS, *x.TRIALS)]
    binds = {name: partial(_bind, room, name) for name in names}
    for dtype, n in (("float32", 264), ("tf32", 264), ("bfloat16", 100), ("float16", 264)):
        problem = room.problem_from_csr(scattered(), n, dtype=dtype, reorder="", format="csr")
        yield from lab.products(problem, binds)
    narrow = {name: bind for name, bind in binds.items() if name in union.KERNELS}
    for n in (6, 7):
        problem = room.problem_from_csr(scattered(), n, dtype="float32", reorder="", format="csr")
        yield from lab.products(problem, narrow)


def async_blocks(lab: Lab) -> Iterable[Case]:
    """The kernels for blocks, as published and beyond, and a layer's."""
    from kernels import async_sparse as room
    from kernels.async_sparse import any_csr, family, union, windows
    from kernels.async_sparse import wcsr as of_windows

    others = {x for module in (any_csr, of_windows, windows, union) for x in module.KERNELS}
    binds = {name: bind for name, bind in _own(room).items() if name not in others}
    sweep = {f"opt5_n{n}": partial(_bind, room, f"opt5_n{n}") for n in (8, 56, 248)}
    trials = {name: partial(_bind, room, name) for name in family.TRIALS}
    yield from lab.products(room.problem(200, 1104, 300, 0.3), binds | sweep | trials)
    for dtype, layout, block in (
        ("tf32", "source", 64), ("float16", "linear", 64), ("bfloat16", "row", 64), ("bfloat16", "source", 128),
        ("bfloat16", "linear", 32), ("bfloat16", "source", 16), ("bfloat16", "linear", (64, 32)),
    ):  # fmt: skip
        problem = room.problem(200, 264, 300, 0.4, block=block, dtype=dtype, layout=layout)
        yield from lab.products(problem, binds)
    odd = room.problem(
        201, 77, 301, 0.4, layout="linear"
    )  # nothing begins at multiples of 16 bytes
    yield from lab.products(odd, binds)
    for dtype in ("bfloat16", "float16"):
        yield f"gated, {dtype}", partial(_gated, lab, dtype)


def _gated(lab: Lab, dtype: str, m: int = 200, k: int = 264, tokens: int = 300) -> None:
    """H = silu(X · Gᵀ) ∘ (X · Uᵀ) of the two lists of blocks made one."""
    import cupy

    from kernels.async_sparse import layer

    gate, up = (bcsr.random(m, k, 0.4, seed, dtype=dtype) for seed in (1, 2))
    index, columns, blocks = [], [], []
    for row in range(gate.block_rows):
        ends = [len(columns)]
        for a in (gate, up):
            of_row = slice(a.row_ptr[row], a.row_ptr[row + 1])
            columns += list(a.col_idx[of_row])
            blocks += list(a.val[of_row])
            ends.append(len(columns))
        index.append((row, ends[0], ends[2], ends[1]))
    x = np.random.default_rng(3).standard_normal((tokens, k)).astype(np.float32)
    x = half.to_bits(x, dtype)
    sizes = layer.Sizes("gated", m, k, len(columns), tokens, dtype)
    made = layer.launcher(sizes, lab.device.device_id)
    there = [
        cupy.asarray(np.ascontiguousarray(given))
        for given in (x, np.array(blocks), np.array(index, np.int32), np.array(columns, np.int32))
    ]
    counter = cupy.zeros(2, cupy.uint32)
    out = Half(dtype, cupy.empty((tokens, m), cupy.uint16))
    lab.ready(out)
    at_x, *rest = (given.data.ptr for given in there)
    for _ in range(2):
        made(lab.stream, at_x, out.bits.data.ptr, *rest, counter.data.ptr)
        lab.stream.sync()
    numbers = half.from_bits(x, dtype).astype(np.float64)
    of_gate, of_up = (numbers @ bcsr.to_dense(a).astype(np.float64).T for a in (gate, up))
    right = of_gate / (1 + np.exp(-of_gate)) * of_up
    off = np.abs(half.from_bits(here(out).bits, dtype) - right)
    # Both factors are rounded to the dtype, and their product.
    limit = 3 * check.LIMITS[dtype].max_err
    most = limit * np.maximum(np.abs(right), np.sqrt((right**2).mean()))
    _require_right("gated", bool((off <= most).all()))


def tensor_core_24(lab: Lab) -> Iterable[Case]:
    from kernels import tensor_core_24 as room
    from kernels.tensor_core_24 import family, launch

    for dtype, size in (("bfloat16", (200, 264, 392)), ("float16", (400, 520, 200))):
        yield from lab.products(room.problem(*size, dtype=dtype), _own(room))
    yield from lab.products(room.problem(133, 77, 210), _own(room))
    # Of what the tuner tries, the smallest and the largest tile of each kernel.
    ends = {}
    for config in sorted(family.WGMMA_FAMILY, key=lambda c: (c.m * c.n, c.stages)):
        first, _ = ends.get(config.kernel, (config, config))
        ends[config.kernel] = first, config
    binds = {
        f"{config.kernel} {config.m} x {config.n}, {config.stages} stages": partial(
            _configured, launch.bind_config, config
        )
        for config in dict.fromkeys(c for pair in ends.values() for c in pair)
        if config.kernel not in ("gpc",)
    }
    yield from lab.products(room.problem(400, 520, 500), binds)  # 8 steps: whole rounds of rings
    yield from _with_more(lab, room)


def _configured(bind: Callable, config, problem, device, **more):
    return bind("trial", problem, device, config, **more)


def _with_more(lab: Lab, room) -> Iterable[Case]:
    """2 · A · B - C + bias, of every kernel that adds: one rung of each."""
    from kernels.tensor_core_24 import family

    problem = room.problem(200, 264, 392)
    rng = np.random.default_rng(4)
    c = Half(
        "bfloat16", half.to_bits(rng.standard_normal((200, 264)).astype(np.float32), "bfloat16")
    )
    bias = rng.standard_normal(200).astype(np.float32)
    kinds = {config.kernel: name for name, (config, *_) in family.RUNGS.items()}
    names = ["mma_sp", *(name for kind, name in kinds.items() if kind in family.COMPLETE)]
    product = check.oracle(problem, on="cpu").values
    right = check.reference(
        2 * product - half.from_bits(c.bits, "bfloat16").astype(np.float64) + bias[:, None]
    )

    def bind(name: str, problem, device):
        import cupy

        return room.bind(
            name,
            problem,
            device,
            alpha=2.0,
            beta=-1.0,
            c=half.to_device(c),
            bias=cupy.asarray(bias),
        )

    yield from lab.products(problem, {name: partial(bind, name) for name in names}, right)


def fp8(lab: Lab) -> Iterable[Case]:
    from kernels.tensor_core_24 import fp8 as room
    from kernels.tensor_core_24 import fp8_family

    for size, knobs in (
        ((200, 264, 392), {}), ((400, 520, 200), {"scale": "vectors"}), ((133, 77, 210), {"out": "e4m3"}),
        ((200, 272, 400), {"scale": "vectors", "out": "e4m3"}),
    ):  # fmt: skip
        yield from lab.products(room.problem(*size, **knobs), _own(room))
    kinds = {(c.kernel, c.m, c.n): c for c in fp8_family.FAMILY}
    binds = {
        f"fp8_{kernel} {m} x {n}": partial(_configured, room.bind_config, config)
        for (kernel, m, n), config in kinds.items()
    }
    yield from lab.products(room.problem(272, 400, 392), binds)


# ---------------------------------------------------------------- the library and the formats


def library(lab: Lab) -> Iterable[Case]:
    """Plans of every format and dtype, with what they do besides the kernel: other orders, factors, single calls."""
    sparse = scattered(200, 320)
    for kind, dtype, accuracy in (
        ("csr", "float32", None), ("csr", "float32", "tf32"), ("csr", "bfloat16", None), ("csr", "float16", None),
        ("bcsr", "bfloat16", None), ("bcsr", "float32", "tf32"), ("2:4", "float16", None), ("nm", "float32", None),
        ("nm", "bfloat16", None),
    ):  # fmt: skip
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
    numbers = _cut(
        np.random.default_rng(5).standard_normal((made.k, n)).astype(np.float32), accuracy
    )
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
    _require_right(name, bool((off <= most).all()))


def _require_right(name: str, holds: bool) -> None:
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
    made = kernels.plan(
        cupy.asarray(dense), 40, dtype=dtype, prune=prune, density=share, vector=32, tune=False
    )
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
    _require_right("gather", np.array_equal(here(out), b[ids]))


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
        _require_right(f"{name} of {made}", same)
    plan = distributed.plan(part, 48, chunks=2, machine=Gpu(lab.device.device_id))
    generate.fill_dense(plan.operand(), 0, 5)
    out = here(plan().whole())
    right = csr.to_dense(host).astype(np.float64) @ generate.dense(
        np.arange(made.m), np.arange(48), 48, 5
    )
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


def _converted(convert: Callable, module, given) -> None:
    """What a GPU makes of a matrix is what NumPy does."""
    _require_same(convert(module.to_device(given)), convert(given))


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
            _require_right(
                f"{part.name} of {type(right).__name__}", np.array_equal(found, expected)
            )


def _compressed(lab: Lab, dtype: str, m: int, k: int) -> None:
    import cupy

    numbers = np.random.default_rng(9).standard_normal((m, k)).astype(np.float32)
    bits = half.to_bits(numbers, dtype)
    right = two_four.compress(bits, dtype, prune=True)
    made = two_four.compress(cupy.asarray(bits), dtype, prune=True)
    fits = two_four.compress(cupy.asarray(two_four.to_dense_bits(right)), dtype)
    for found in (made, fits):
        _require_right(
            f"2:4 in {dtype}",
            np.array_equal(here(found.val), right.val)
            and np.array_equal(here(found.meta), right.meta),
        )


def _compressed_eight(lab: Lab, dtype: str, m: int, k: int) -> None:
    import cupy

    numbers = np.random.default_rng(10).standard_normal((m, k)).astype(np.float32)
    bits = eight.to_bits(numbers, dtype)
    right = two_four_eight.compress(bits, dtype, prune=True)
    made = two_four_eight.compress(cupy.asarray(bits), dtype, prune=True)
    _require_right(
        f"2:4 in {dtype}",
        np.array_equal(here(made.val), right.val) and np.array_equal(here(made.meta), right.meta),
    )


#: What one process runs: name -> its cases.
ROOMS: dict[str, Callable[[Lab], Iterable[Case]]] = {
    function.__name__: function
    for function in (
        casper_sparse, nm_cuda_core, nm_spmm, async_csr, async_blocks, tensor_core_24, fp8, library, generated,
        conversions,
    )
}  # fmt: skip
