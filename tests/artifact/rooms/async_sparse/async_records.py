"""Records of a machine that does what AsyncSparse states of its own: a model for tests, and for nothing else."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import synthetic

from artifact import registry
from artifact.measure import records

ROOM = "async_sparse"
TABLES = {name: registry.published(ROOM, name) for name in ("table1", "table2", "table3", "text")}
GATE = (18944, 3584)
#: Speedups over Blocked-ELL: Table II, and of what it does not have any that fit its words.
OVER_BELL = {"opt0": 0.08, "opt1": 0.42, "opt2": 1.56, "opt3": 4.31, "opt4": 4.41, "opt5": 4.40}
OVER_BELL |= {"opt6": 2.72, "opt6_atomic": 3.0, "opt6_stealing": 2.95, "opt7": 4.10}
OVER_BELL |= {"unit_ring": 5.0, "auto": 5.6}
OVER_BELL |= {"cusparse_bell": 1.0, "triton_bsr": 2.42, "cusparse_bsr": 1.3, "cusparse_alg2": 0.7}
WIDTHS = tuple(range(8, 257, 8))
#: TFLOP/s of widths that pad nothing, or would.
UNPADDED = {8: 0.56, 16: 1.0, 32: 1.8, 64: 3.1, 128: 4.7, 176: 5.466, 248: 6.0, 256: 5.9}
TENSOR = "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed"
DRAM = "dram__throughput.avg.pct_of_peak_sustained_elapsed"
READ, WRITTEN = "dram__bytes_read.sum", "dram__bytes_write.sum"
DURATION = "gpu__time_duration.sum"  # in ns
L2_READS = "lts__t_sectors_op_read.sum"
L2_HITS = "lts__t_sector_hit_rate.pct"
BLOCKS = "launch__occupancy_limit_registers"
REGISTERS = "launch__registers_per_thread"


def row(experiment, variant, label, shape, density, nnz, tflops, blocks, **more) -> dict:
    """A row of a record; blocks: bytes of the sparse operand."""
    m, n, k = shape
    flops, least = 2.0 * nnz * n, blocks + 2.0 * n * (m + k)
    t = flops / tflops / 1e6
    return {
        "room": ROOM,
        "experiment": experiment,
        "variant": variant,
        "label": label,
        "m": m,
        "n": n,
        "k": k,
        "density": density,
        "nnz": nnz,
        "seed": 0,
        "median_us": t,
        "q25_us": 0.99 * t,
        "q75_us": 1.01 * t,
        "samples": 50,
        "flops_def": "2·nnz·N",
        "useful_flops": flops,
        "tflops": flops / t / 1e6,
        "least_bytes": least,
        "requested_bytes": 9 * least,
        "gbps": least / t / 1e3,
        "rel_err": 1e-6,
        "max_err": 1e-5,
        "prepare_ms": 1.0,
        "prepare_bytes": 0.0,
        "graph": True,
        "sm_mhz": 1755.0,
        "power_w": 600.0,
        "throttle": "",
        "gpu": "NVIDIA H200",
        "when": "2026-01-02T03:04:05+00:00",
    } | more


def frame(rows: list[dict]) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=list(records.COLUMNS))


def matrices(count: int) -> list[tuple[str, int, int]]:
    """(name, rows, non-zeros) of square matrices of densities from 0.03 to 3%."""
    densities = np.geomspace(3e-4, 3e-2, count)
    return [(f"matrix{i}", 2000 + 100 * i, int(d * (2000 + 100 * i) ** 2)) for i, d in enumerate(densities)]


def real(experiment: str, rates: dict[str, float], count: int, n: int = 1024, scale=1.0) -> pd.DataFrame:
    """rates: contender -> TFLOP/s on the geometric mean over the matrices, which differ by up to 4 times."""
    spread = np.geomspace(0.5, 2.0, count)
    rows = []
    for (label, m, nnz), factor in zip(matrices(count), spread, strict=True):
        blocks = 20.0 * nnz
        for variant, rate in rates.items():
            whole = -(-m // 64) * 64 if m % 64 else 0
            copies = 2.0 * n * 2 * whole  # of B and of C, in whole blocks
            stored = 2.5 * blocks + copies if variant == "cusparse_bell" else 0.0
            own = factor**0.5 if variant == "cusparse_bell" else factor  # its padding is another
            rows.append(
                row(
                    experiment,
                    variant,
                    label,
                    (m, n, m),
                    nnz / m**2,
                    nnz,
                    scale * own * rate,
                    blocks,
                    prepare_bytes=stored,
                )
            )
    return frame(rows)


def ablation(count: int = 8) -> pd.DataFrame:
    """As the source states it: TFLOP/s by Table II, whose speedups are over 1.5."""
    return real("ablation", {v: 1.5 * over for v, over in OVER_BELL.items()}, count)


def padded(width: int, n: int = 1024) -> int:
    return -(-n // (2 * width)) * 2 * width


def tile_n(count: int = 8) -> pd.DataFrame:
    x, y = np.log(list(UNPADDED)), np.log(list(UNPADDED.values()))
    rates = {f"opt5_n{w}": float(np.exp(np.interp(np.log(w), x, y))) * 1024 / padded(w) for w in WIDTHS}
    return real("tile_n", rates, count)


#: TFLOP/s at N = 256 over all matrices, and how often they err: Table I, and of what it does not have any that fit.
TF32 = {
    "wcsr": 3.86,
    "wcsr_whole": 3.5,
    "windows": 6.0,
    "auto_tf32": 7.0,
    "opt5": 2.45,
    "triton_bsr": 0.66,
    "cusparse_bell": 0.72,
    "cusparse_bsr": 0.5,
    "cusparse_alg1": 1.0,
    "cusparse_alg2": 3.0,
    "cusparse_alg3": 2.9,
}
FLOAT32 = {
    "union_rows": 3.3,
    "windows_exact": 4.0,
    "auto_fp32": 5.0,
    "cusparse_alg1": 1.0,
    "cusparse_alg2": 3.0,
    "cusparse_alg3": 2.9,
}
PARTS = {
    "wcsr": 3.0,
    "wcsr_whole": 2.5,
    "wcsr_c256": 2.9,
    "wcsr_c1024": 3.1,
    "wcsr_c2048": 2.8,
    "wcsr_n64": 2.6,
    "wcsr_n256": 2.7,
    "windows_8": 5.0,
    "windows": 6.0,
    "windows_32": 5.5,
    "windows_64": 4.0,
    "windows_16_whole": 5.5,
    "windows_16_in_order": 5.8,
    "windows_16_narrow": 5.6,
}
GROWS = {256: 1.0, 512: 1.05, 1024: 1.15}  #: with N, what the source's kernels do more


def spmm(experiment: str, rates: dict[str, float], count: int, sizes=(256, 512, 1024), **more) -> pd.DataFrame:
    """Matrices in CSR, square. Where a column of a window has many non-zeros, tensor cores gain: over the matrices
    `shared` goes from 1 to 16, and with it who multiplies blocks or windows gets faster."""
    rows = []
    for i, (label, m, nnz) in enumerate(matrices(count)):
        share = 16 ** (i / max(1, count - 1))
        for n in sizes:
            columns = nnz / share
            asked = columns * (-(-n // 128) * (64 * 4 + 4) + 4 * n) + 4.0 * m * n
            for variant, rate in rates.items():
                csr = variant in ("union_rows",) or variant.startswith("cusparse_alg")
                gain = 1.0 if csr else share**0.5 / 2
                if variant == "opt5":  # both catch up where matrices are dense
                    gain *= share**0.175 / 1.275
                if variant == "cusparse_bell":
                    gain *= share**0.22 / 1.357
                own = variant.startswith(("wcsr", "opt5"))
                tflops = rate * gain * (GROWS[n] if own else 1.0)
                stored = {"opt5": 30.0 * nnz + 4.0 * n * m, "wcsr": 10.0 * nnz}
                a = row(
                    experiment,
                    variant,
                    label,
                    (m, n, m),
                    nnz / m**2,
                    nnz,
                    tflops,
                    8.0 * nnz,
                    requested_bytes=asked,
                    prepare_bytes=stored.get(variant, 0.0),
                    prepare_ms=0.1 if csr else 0.9,
                    rel_err=2e-7 if experiment == "spmm" else 1e-6,
                )
                rows.append(a | more)
    return frame(rows)


def spmm_tf32(count: int = 12) -> pd.DataFrame:
    return spmm("spmm_tf32", TF32, count)


def spmm_exact(count: int = 12) -> pd.DataFrame:
    return spmm("spmm", FLOAT32, count)


def spmm_rcm(count: int = 12) -> pd.DataFrame:
    """Reordering makes all but the CUDA cores' share a quarter faster."""
    kept = {v: 1.25 * r for v, r in FLOAT32.items() if v not in ("union_rows", "windows_exact")}
    return spmm("spmm_rcm", kept, count, (1024,))


def wcsr_parts(count: int = 5) -> pd.DataFrame:
    return spmm("wcsr_parts", PARTS, count, (512,))


def gate(experiment: str, n: int, density: float, variant: str, ms: float, block=64) -> dict:
    """gate_proj: blocks of `block` squared, of which the share `density` is kept."""
    m, k = GATE
    nnz = round(density * (m // block) * (k // block)) * block * block
    tflops = 2.0 * nnz * n / ms / 1e9
    label = ", ".join([f"blocks of {block}"] * (block != 64) + ["linear"] * (experiment == "gate_proj"))
    return row(experiment, variant, label, (m, n, k), density, nnz, tflops, 2.0 * nnz)


def gate_proj() -> pd.DataFrame:
    """Table III, with two more densities at which blocks hardly pay, and what it does not have."""
    table = records.published(TABLES["table3"])
    ms = table[table["quantity"] == "latency"].set_index(["variant", "n", "density"])["low"]
    rows = []
    for n in (1024, 4096, 16384, 65536):
        dense = ms["cublas_dense_default", n, 0.1]
        for d in (0.5, 0.3):
            sparse = dense * (0.4 + 1.1 * d)
            times = {
                "cublas_dense_default": dense,
                "opt5": sparse,
                "triton_bsr": 1.1 * sparse,
                "auto": 0.7 * sparse,
            }
            rows += [gate("gate_proj", n, d, v, t) for v, t in times.items()]
        for d in (0.2, 0.1, 0.05, 0.01):
            dense, ours = ms["cublas_dense_default", n, d], ms["opt5", n, d]
            times = {
                "cublas_dense_default": dense,
                "opt5": ours,
                "triton_bsr": 0.8 * ours,
                "auto": 0.4 * ours,
            }
            rows += [gate("gate_proj", n, d, v, t) for v, t in times.items()]
    return frame(rows)


def ladder() -> pd.DataFrame:
    rows = [
        gate("ladder", 16384, 0.1, v, 1.7 * 4.40 / over)
        for v, over in OVER_BELL.items()
        if not v.startswith("cusparse_")
    ]
    return frame([*rows, gate("ladder", 16384, 0.1, "cublas_dense_default", 3.27)])


def blocks() -> pd.DataFrame:
    times = {"auto": 0.5, "triton_bsr": 1.0, "cusparse_bsr": 3.0}
    return frame(
        gate("blocks", 16384, 0.1, v, t * (1 + 16 / b), b) for b in (16, 32, 64, 128) for v, t in times.items()
    )


def shapes() -> pd.DataFrame:
    rows = []
    for m, n, k in ((3584, 4096, 18944), (28672, 4096, 8192), (4096, 4096, 14336)):
        nnz = m * k // 10
        rates = {"cublas_dense_default": 70.0, "triton_bsr": 200.0, "opt5": 150.0, "auto": 400.0}
        rows += [row("shapes", v, "", (m, n, k), 0.1, nnz, r, 2.0 * nnz) for v, r in rates.items()]
    return frame(rows)


#: Speedups over the dense model by length, Fig. 8 and what it does not have.
PREFILL = {
    "dense": (1.0,) * 7,
    "attention": (0.70, 0.72, 0.75, 0.80, 0.90, 0.98, 1.73),
    "ffn": (1.37, 1.39, 1.41, 1.36, 1.25, 1.15, 1.08),
    "both": (0.90, 0.95, 1.00, 1.10, 1.30, 1.60, 2.66),
    "ffn_ours": (2.0, 2.2, 2.4, 2.3, 2.1, 1.8, 1.5),
    "both_ours": (2.0, 2.2, 2.4, 2.3, 2.1, 2.4, 3.2),
}


def prefill() -> pd.DataFrame:
    """Fig. 8, at both shares of blocks."""
    m, k = GATE
    return frame(
        [
            row("prefill", v, "", (m, 1024 * 2**i, k), d, m * k // 10, 1.0, 1e10) | time(1e5 * 2.0**i / x)
            for d in (0.1, 0.05)
            for v, each in PREFILL.items()
            for i, x in enumerate(each)
        ]
    )


def prefill_ffn() -> pd.DataFrame:
    m, k = GATE
    over = {"ffn_dense": 1.0, "ffn_opt5": 3.1, "ffn_unit_ring": 4.8, "ffn_gated": 6.2}
    return frame(
        [
            row("prefill_ffn", v, "", (m, n, k), d, m * k // 10, 1.0, 1e10) | time(0.5 * n / x)
            for d in (0.1, 0.05)
            for n in (4096, 16384, 65536)
            for v, x in over.items()
        ]
    )


def time(us: float, flops: float = 1e15, least: float = 1e10) -> dict:
    """The columns of a row that say how long it took."""
    return {
        "median_us": us,
        "q25_us": us,
        "q75_us": us,
        "useful_flops": flops,
        "tflops": flops / us / 1e6,
        "least_bytes": least,
        "gbps": least / us / 1e3,
        "flops_def": "as the test says",
    }


def counters(changed: dict[tuple[str, str], float] | None = None) -> pd.DataFrame:
    """At the point of the ladder, as the source's words have it; changed: (variant, metric) -> value."""
    values = {(v, TENSOR): 70.0 for v in ("opt2", "opt3", "opt4", "opt5", "opt6", "opt7", "auto")}
    values |= {("opt1", TENSOR): 15.0, ("triton_bsr", TENSOR): 55.0}
    values |= {(v, DRAM): 70.0 for v in ("opt5", "auto")}
    values |= {("opt5", READ): 1e6, ("opt5", WRITTEN): 1.5e6, ("opt5", DURATION): 1e3}  # 2.5 TB/s
    values |= {("opt5", L2_READS): 1e9, ("opt7", L2_READS): 0.944e9}
    values |= {("opt5", L2_HITS): 60.0, ("opt6", L2_HITS): 60.5}
    values |= {("opt3", BLOCKS): 2.0, ("opt5", BLOCKS): 2.0}
    values |= {("opt1", REGISTERS): 200.0, ("opt2", REGISTERS): 165.0}
    values |= changed or {}
    m, k = GATE
    rows = [(v, m, 16384, k, 0.1, metric, value, "") for (v, metric), value in values.items()]
    return pd.DataFrame(rows, columns=records.COUNTER_COLUMNS)


def folder(root: Path, without=(), table: pd.DataFrame | None = None, **frames: pd.DataFrame) -> Path:
    """A GPU's folder with all of these records, or with others in their place."""
    gpu = root / "nvidia-h200"
    made = {
        "ablation": ablation,
        "tile_n": tile_n,
        "gate_proj": gate_proj,
        "ladder": ladder,
        "blocks": blocks,
        "shapes": shapes,
        "spmm_tf32": spmm_tf32,
        "spmm": spmm_exact,
        "spmm_rcm": spmm_rcm,
        "wcsr_parts": wcsr_parts,
        "prefill": prefill,
        "prefill_ffn": prefill_ffn,
    }
    for name in made.keys() - set(without):
        records.write(gpu / ROOM / f"{name}.csv", frames[name] if name in frames else made[name]())
    records.write_machine(gpu / ROOM, synthetic.machine() | {"sm_count": 132})
    if "counters" not in without:
        synthetic.write_counters(gpu / ROOM, counters() if table is None else table)
    return gpu


def faster(df: pd.DataFrame, variant: str, factor: float) -> pd.DataFrame:
    """Records in which a contender is so many times as fast."""
    df = df.copy()
    chosen = df["variant"] == variant
    assert chosen.any()
    df.loc[chosen, ["median_us", "q25_us", "q75_us"]] /= factor
    df.loc[chosen, ["tflops", "gbps"]] *= factor
    return df


TIMELINE = ("variant", "block", "role", "warpgroup", "step", "begin_ns", "end_ns")


def timeline() -> pd.DataFrame:
    """opt1 takes turns; opt5 loads ahead of two consumers."""
    rows = []
    for step in range(12):
        begin = 1000 * step
        rows.append(("opt1", 3, "load", 0, step, begin, begin + 700))
        rows.append(("opt1", 3, "multiply", 0, step, begin + 700, begin + 1000))
        rows.append(("opt5", 3, "load", 0, step, 300 * step, 300 * step + 600))
        for group in (1, 2):
            at = 600 + 300 * step + 20 * group
            rows.append(("opt5", 3, "multiply", group, step, at, at + 280))
    rows.append(("opt1", 3, "store", 0, 12, 12000, 12900))
    rows += [("opt5", 3, "store", group, 12, 4300, 4700) for group in (1, 2)]
    return pd.DataFrame(rows, columns=list(TIMELINE))
