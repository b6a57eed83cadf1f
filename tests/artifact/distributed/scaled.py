"""Records as `scaling` writes them, computed from rates: for tests of what reads them."""

from __future__ import annotations

from artifact.distributed import model
from artifact.distributed.scaling import DTENSOR, GATHERED, OURS, Row

SIZES = {"graph": (24, 512, "float32"), "mesh": (256, 512, "float32"), "block": (65536, 8192, "bfloat16")}


def rows(rate: float = 4.0, nvlink: float = 250.0, slower: float = 1.0, gpus=(1, 2, 4)) -> list[Row]:
    """Of ours and of baselines that take twice as long, strong and weak scaling."""
    made = []
    for case, (size, n, dtype) in SIZES.items():
        for p in gpus:
            half = {"graph": size - 1, "mesh": round(size / 2 ** (1 / 3)), "block": size // 2}[case]
            doubled = half + p.bit_length() - 1
            grown = {"graph": doubled, "mesh": round(half * p ** (1 / 3)), "block": half * p}[case]
            for of in sorted({size, grown}):
                made += _rows(case, of, n, dtype, p, rate, nvlink, slower)
    return made


def _rows(case, size, n, dtype, p, rate, nvlink, slower) -> list[Row]:
    m, k, nnz = {
        "graph": (2**size,) * 2 + (64 * 2**size,),
        "mesh": (size**3,) * 2 + ((3 * size - 2) ** 3,),
        "block": (size, 16384, size * 16384 // 10),
    }[case]
    row_bytes = n * (4 if dtype == "float32" else 2)
    sent = round(model.needed(case, size, p) * row_bytes)
    work = nnz * n / 1e9 / rate / p * (slower if p > 1 else 1)
    moved = sent / p / nvlink / 1e6
    chunks = 4
    early = 0.9 if case == "mesh" else 1 / p / chunks if case == "graph" else 0.0
    ms = model.together(moved, work, chunks, early)
    common = (m, k, n, nnz, dtype)
    end = (1e-7, 1.0, chunks, "a kernel", "NVIDIA H200", "2026-01-01T00:00:00+00:00")
    every, nan, names = k * (p - 1) * row_bytes, float("nan"), (GATHERED,)
    split = moved, max(0.0, ms - work), work
    found = [
        Row(
            case,
            size,
            OURS,
            p,
            *common,
            ms,
            0.99 * ms,
            1.01 * ms,
            5,
            *split,
            1.0,
            sent,
            sent,
            every,
            *end,
        )
    ]
    if case == "block" and p > 1:
        names = GATHERED, DTENSOR
    times = 2 * ms, 2 * ms, 2 * ms, 5, nan, nan, nan, 1.0
    return found + [Row(case, size, name, p, *common, *times, every, every, every, *end) for name in names]
