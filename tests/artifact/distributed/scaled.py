"""Records as `scaling` writes them, computed from rates: for tests of what reads them."""

import pandas as pd

from artifact.distributed import page, scaling
from artifact.distributed.scaling import COLUMNS, DTENSOR, GATHERED, OURS

SIZES = {"graph": (24, 512, "float32"), "mesh": (256, 512, "float32"), "block": (65536, 8192, "bfloat16")}


def rows(rate: float = 4.0, nvlink: float = 250.0, slower: float = 1.0, gpus=(1, 2, 4)) -> pd.DataFrame:
    """Of ours and of baselines that take twice as long, strong and weak scaling."""
    made = []
    for case, (size, n, dtype) in SIZES.items():
        for p in gpus:
            half = {"graph": size - 1, "mesh": round(size / 2 ** (1 / 3)), "block": size // 2}[case]
            doubled = half + p.bit_length() - 1
            grown = {"graph": doubled, "mesh": round(half * p ** (1 / 3)), "block": half * p}[case]
            for of in sorted({size, grown}):
                made += _rows(case, of, n, dtype, p, rate, nvlink, slower)
    return page.derived(pd.DataFrame(made)[[*COLUMNS]].astype(COLUMNS))


def _rows(case, size, n, dtype, p, rate, nvlink, slower) -> list[scaling.Row]:
    m, k, nnz = {
        "graph": (2**size,) * 2 + (64 * 2**size,),
        "mesh": (size**3,) * 2 + ((3 * size - 2) ** 3,),
        "block": (size, 16384, size * 16384 // 10),
    }[case]
    row_bytes = n * (4 if dtype == "float32" else 2)
    sent = round(page.needed(case, size, p) * row_bytes)
    work = nnz * n / 1e9 / rate / p * (slower if p > 1 else 1)
    moved = sent / p / nvlink / 1e6
    early = 0.9 if case == "mesh" else 1 / p / 4 if case == "graph" else 0.0
    ms, every = page.together(moved, work, 4, early), k * (p - 1) * row_bytes
    about = {"case": case, "size": size, "gpus": p, "m": m, "k": k, "n": n, "nnz": nnz, "dtype": dtype, "samples": 5}
    about |= {"imbalance": 1.0, "error": 1e-7, "prepare_s": 1.0, "chunks": 4, "kernel": "a kernel"}
    about |= {"gathered_bytes": every, "gpu": "NVIDIA H200", "when": "2026-01-01T00:00:00+00:00"}
    split = {"communication_ms": moved, "waiting_ms": max(0.0, ms - work), "multiplication_ms": work}
    times = {"median_ms": ms, "q25_ms": 0.99 * ms, "q75_ms": 1.01 * ms}
    mine = scaling.USUAL | about | split | times | {"contender": OURS, "sent_bytes": sent, "least_bytes": sent}
    slow = dict.fromkeys(times, 2 * ms) | {"sent_bytes": every, "least_bytes": every}
    names = (GATHERED, DTENSOR) if case == "block" and p > 1 else (GATHERED,)
    return [mine, *(scaling.USUAL | about | slow | {"contender": name} for name in names)]
