"""Records that look measured and are not: a small model of a GPU, for tests and for nothing
else."""

import tempfile
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd

from artifact.measure import device, records

COPY_GBPS, FMA_TFLOPS = 4000.0, 60.0
# What each contender's time is, over that of the best cuSPARSE algorithm.
SLOWER = {"any_n": 1.3, "column_tiles": 1.05, "l2_panels": 0.92, "rows_per_warp": 0.8}
SLOWER |= {"cusparse_default": 1.4, "cusparse_alg1": 1.15, "cusparse_alg2": 1.0}

SHAPES = {
    "wide": [(4096, n, 4096) for n in (512, 1024, 2048, 4096, 8192, 16384, 32768)],
    "square": [(s, s, s) for s in (1024, 2048, 4096, 8192, 16384)],
    "tall": [(2**p, 256, 2048) for p in range(15, 21)],
}
DENSITIES = (0.005, 0.01, 0.05)
SPEEDUP = {"wide": 0.7, "square": 0.8, "tall": 0.85}  # of the published kernel


def experiment(name: str, speedup=None, gpu="NVIDIA H200", scale=1.0, jitter=0.0, fill=0.75, **changes) -> pd.DataFrame:
    """One record. speedup: of warp_per_row over the best cuSPARSE, a number or a function (m, n, k,
    density) -> number; scale: all times times this; jitter: relative spread of a time; changes:
    columns to overwrite."""
    speedup = SPEEDUP[name] if speedup is None else speedup
    generator = np.random.default_rng(len(name))
    rows = []
    for m, n, k in SHAPES[name]:
        for density in DENSITIES:
            nnz = int(m * k * density * fill)
            flops, least = 2.0 * nnz * n, 8.0 * nnz + 4.0 * (m + 1) + 4.0 * n * (m + k)
            requested = 4.0 * nnz * n + 4.0 * m * n + 8.0 * nnz * -(-n // 128)
            base = scale * 1e6 * max(requested / 8e12, least / 4e12)
            ratio = speedup(m, n, k, density) if callable(speedup) else speedup
            for variant, times in ({"warp_per_row": 1 / ratio} | SLOWER).items():
                t = base * times * float(np.exp(jitter * generator.standard_normal()))
                rows.append(
                    {
                        "room": "casper_sparse",
                        "experiment": name,
                        "variant": variant,
                        "label": "",
                        "m": m,
                        "n": n,
                        "k": k,
                        "density": density,
                        "nnz": nnz,
                        "seed": 0,
                        "median_us": t,
                        "q25_us": 0.99 * t,
                        "q75_us": 1.01 * t,
                        "samples": 100,
                        "flops_def": "2*nnz*n",
                        "useful_flops": flops,
                        "tflops": flops / t / 1e6,
                        "least_bytes": least,
                        "requested_bytes": requested,
                        "gbps": least / t / 1e3,
                        "rel_err": 2e-7,
                        "max_err": 1e-5,
                        "prepare_ms": 3 * t / 1e3,
                        "prepare_bytes": 0.0,
                        "graph": False,
                        "sm_mhz": 1980.0,
                        "power_w": 400.0,
                        "throttle": "",
                        "gpu": gpu,
                        "when": "2026-01-02T03:04:05+00:00",
                    }
                    | changes
                )
    return pd.DataFrame(rows)


def ceilings(gpu="NVIDIA H200", copy=COPY_GBPS, fma=FMA_TFLOPS) -> pd.DataFrame:
    row = experiment("wide").iloc[0].to_dict() | {
        "room": "ceilings",
        "experiment": "ceilings",
        "gpu": gpu,
    }
    rates = {
        "copy": (copy, 0.0),
        "l2_read": (2 * copy, 0.0),
        "shared_read": (8 * copy, 0.0),
        "fma": (1.0, fma),
    }
    return consistent(pd.DataFrame([row | {"variant": v, "gbps": g, "tflops": t} for v, (g, t) in rates.items()]))


def consistent(df: pd.DataFrame) -> pd.DataFrame:
    """`df`, made of rows of `experiment` of which columns were overwritten, without contradictions, which
    make a record invalid: rates follow from work that was overwritten, else work from rates."""
    df = df.copy()
    usual = {
        "useful_flops": 2.0 * df["nnz"] * df["n"],
        "least_bytes": 8.0 * df["nnz"] + 4.0 * (df["m"] + 1) + 4.0 * df["n"] * (df["m"] + df["k"]),
    }
    for rate, (work, unit) in records.RATES.items():
        per = df["median_us"] * unit
        off = ~np.isclose(df[rate], df[work] / per, rtol=1e-9, atol=0)
        kept = np.isclose(df[work], usual[work], rtol=1e-9, atol=0)
        df[work] = df[work].mask(off & kept, df[rate] * per)
        df[rate] = df[rate].mask(off & ~kept, df[work] / per)
    return df


def counters(values: dict[str, dict[str, float]]) -> pd.DataFrame:
    """Tidy counters at every point of every sweep: {variant: {metric: value}}."""
    shapes = dict.fromkeys(shape for sweep in SHAPES.values() for shape in sweep)  # each of them once
    rows = [
        (variant, m, n, k, density, metric, value, "%")
        for m, n, k in shapes
        for density in DENSITIES
        for variant, metrics in values.items()
        for metric, value in metrics.items()
    ]
    return pd.DataFrame(rows, columns=records.COUNTER_COLUMNS)


def write_counters(folder: Path, table, gpu="NVIDIA H200") -> None:
    """Put a table, or what `counters` makes of values, into a system's folder."""
    table = counters(table) if isinstance(table, dict) else table
    records.write_counters(folder / "counters.csv", table, gpu)


def machine(gpu="NVIDIA H200", slug="") -> dict:
    return dict.fromkeys(records.MACHINE_KEYS, "1.0") | {
        "gpu": gpu,
        "slug": slug or device.slug(gpu),
        "date": "2026-01-02T03:04:05+00:00",
        "commit": "0123abc",
        "packages": {"numpy": "2"},
    }


@cache
def usual(name: str, gpu: str) -> str:
    """The text of a record without changes: to validate it takes longer than most tests that begin with one."""
    with tempfile.TemporaryDirectory() as at:
        df = ceilings(gpu) if name == "ceilings" else consistent(experiment(name, gpu=gpu))
        return records.write(Path(at) / f"{name}.csv", df).read_text()


def folder(root: Path, frames=None, gpu="NVIDIA H200", slug="nvidia-h200", with_ceilings=True) -> Path:
    """A GPU's folder under `root` with these experiments (default: all three sweeps), as `make
    measure` leaves it."""
    system = root / slug / "casper_sparse"
    records.write_machine(system, machine(gpu, slug))
    for name in SHAPES if frames is None else ():
        (system / f"{name}.csv").write_text(usual(name, gpu))
    for name, df in (frames or {}).items():
        records.write(system / f"{name}.csv", consistent(df))
    if with_ceilings:
        records.write_machine(root / slug / "ceilings", machine(gpu, slug))
        (root / slug / "ceilings" / "ceilings.csv").write_text(usual("ceilings", gpu))
    return root / slug
