"""Every kernel for CSR and for blocks, and a layer's, as `artifact.sanitize` runs them."""

from collections.abc import Iterable
from functools import partial
from typing import Any

import numpy as np

from artifact.measure import verification
from artifact.sanitize.cases import Case, Lab, here, normal, own, require_close, scattered
from kernels import async_sparse as system
from kernels.async_sparse import any_csr, family, heads, layer, subwarp, windows
from kernels.formats import bcsr, half
from kernels.lazy import cupy


def _named(names: Iterable[str]) -> dict[str, Any]:
    return {name: partial(system.prepare, name) for name in names}


def async_csr(lab: Lab) -> Iterable[Case]:
    """Yield the kernels for CSR: windows on tensor cores, groups of rows, the source's own."""
    every = _named(windows.CONFIGS)
    narrow = _named(("union_rows", "union_half"))
    few = {str(c): partial(c.prepare, "subwarp") for c in any_csr.POOLS["fp32"] if isinstance(c, subwarp.Subwarp)}
    few |= _named(subwarp.CONFIGS | heads.CONFIGS)
    for dtype, n, binds in (
        *(("float32", 264, every), ("tf32", 264, every), ("bfloat16", 100, every), ("float16", 264, every)),
        *(("float32", 6, narrow), ("float32", 7, narrow | few), ("float32", 48, few)),
        *(("bfloat16", 8, few), ("float16", 41, few)),
    ):
        yield from lab.products(system.problem_from_csr(scattered(), n, dtype=dtype, reorder="", format="csr"), binds)


def async_blocks(lab: Lab) -> Iterable[Case]:
    """Yield the kernels for blocks, as published and beyond, and a layer's."""
    others = any_csr.KERNELS | windows.KERNELS | subwarp.KERNELS | heads.KERNELS
    binds = {name: prepare for name, prepare in own(system).items() if name not in others}
    more = _named([*(f"opt5_n{n}" for n in (8, 56, 248)), *family.TRIALS])
    yield from lab.products(system.problem(200, 1104, 300, 0.3), binds | more)
    for dtype, layout, block in (
        ("tf32", "source", 64),
        ("float16", "linear", 64),
        ("bfloat16", "row", 64),
        ("bfloat16", "source", 128),
        ("bfloat16", "linear", 32),
        ("bfloat16", "source", 16),
        ("bfloat16", "linear", (64, 32)),
    ):
        yield from lab.products(system.problem(200, 264, 300, 0.4, block=block, dtype=dtype, layout=layout), binds)
    # Nothing begins at multiples of 16 bytes.
    yield from lab.products(system.problem(201, 77, 301, 0.4, layout="linear"), binds)
    for dtype in ("bfloat16", "float16"):
        yield f"gated, {dtype}", partial(_gated, lab, dtype)


def two_lists(gate: bcsr.Bcsr, up: bcsr.Bcsr) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Make the lists of blocks of two matrices one, row by row: blocks, (row, begin, end, begin of `up`), columns."""
    place = np.concatenate([2 * bcsr.block_rows_of(gate), 2 * bcsr.block_rows_of(up) + 1])
    order, ends = np.argsort(place, kind="stable"), np.searchsorted(np.sort(place), range(2 * gate.block_rows + 1))
    return (
        np.concatenate([gate.val, up.val])[order],
        np.stack([np.arange(gate.block_rows), ends[:-1:2], ends[2::2], ends[1::2]], axis=1).astype(np.int32),
        np.concatenate([gate.col_idx, up.col_idx])[order].astype(np.int32),
    )


def _gated(lab: Lab, dtype: str, m: int = 200, k: int = 264, tokens: int = 300) -> None:
    """Check H = silu(X · Gᵀ) ∘ (X · Uᵀ) of the two lists of blocks made one."""
    gate, up = (bcsr.random(m, k, 0.4, seed, dtype=dtype) for seed in (1, 2))
    lists = two_lists(gate, up)
    x = half.to_bits(normal(3, tokens, k), dtype)
    made: Any = layer.launcher(layer.Sizes("gated", m, k, len(lists[-1]), tokens, dtype), lab.device.device_id)
    there = [cupy.asarray(np.ascontiguousarray(given)) for given in (x, *lists)]
    counter, out = cupy.zeros(2, cupy.uint32), half.Half(dtype, cupy.empty((tokens, m), cupy.uint16))
    lab.ready(out)
    at_x, *rest = (given.data.ptr for given in there)
    for _ in range(2):
        made(lab.stream, at_x, out.bits.data.ptr, *rest, counter.data.ptr)
        lab.stream.sync()
    of_gate, of_up = (half.from_bits(x, dtype) @ bcsr.to_dense(a).astype(np.float64).T for a in (gate, up))
    # Both factors are rounded to the dtype, and their product.
    right = of_gate / (1 + np.exp(-of_gate)) * of_up
    require_close("gated", half.to_dense(here(out)), right, 3 * verification.LIMITS[dtype].max_err)


#: What one process runs each: name -> its cases.
CASES = {"async_csr": async_csr, "async_blocks": async_blocks}
