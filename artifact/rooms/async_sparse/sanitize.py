"""Every kernel for CSR and for blocks, and a layer's, as `artifact.sanitize` runs them."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

import numpy as np

from artifact.measure import check
from artifact.sanitize.cases import Case, Lab, bound, here, own, require_right, scattered
from kernels.formats import bcsr, half
from kernels.formats.half import Half


def async_csr(lab: Lab) -> Iterable[Case]:
    """The kernels for CSR: windows on tensor cores, groups of rows, the source's own."""
    from kernels import async_sparse as room
    from kernels.async_sparse import union, windows
    from kernels.async_sparse import wcsr as of_windows

    modules = (of_windows, windows, union)
    names = [name for x in modules for name in (*x.KERNELS, *x.TRIALS)]
    binds = {name: partial(bound, room, name) for name in names}
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
    binds = {name: bind for name, bind in own(room).items() if name not in others}
    sweep = {f"opt5_n{n}": partial(bound, room, f"opt5_n{n}") for n in (8, 56, 248)}
    trials = {name: partial(bound, room, name) for name in family.TRIALS}
    yield from lab.products(room.problem(200, 1104, 300, 0.3), binds | sweep | trials)
    for dtype, layout, block in (
        ("tf32", "source", 64),
        ("float16", "linear", 64),
        ("bfloat16", "row", 64),
        ("bfloat16", "source", 128),
        ("bfloat16", "linear", 32),
        ("bfloat16", "source", 16),
        ("bfloat16", "linear", (64, 32)),
    ):
        problem = room.problem(200, 264, 300, 0.4, block=block, dtype=dtype, layout=layout)
        yield from lab.products(problem, binds)
    odd = room.problem(201, 77, 301, 0.4, layout="linear")  # nothing begins at multiples of 16 bytes
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
    require_right("gated", bool((off <= most).all()))


#: What one process runs each: name -> its cases.
CASES = {"async_csr": async_csr, "async_blocks": async_blocks}
