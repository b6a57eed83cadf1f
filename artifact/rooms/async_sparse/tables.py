"""Tables of the chapter: one function each, records in, a DataFrame of cells out; None where nothing was measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd

from artifact.drawing import prose
from artifact.drawing.compiled import HOPPER
from artifact.drawing.prose import captioned
from artifact.drawing.words import shape, times
from artifact.measure import records
from artifact.rooms.async_sparse import arithmetic, contenders, experiments, figures
from artifact.rooms.async_sparse.arithmetic import BLOCK
from artifact.rooms.async_sparse.contenders import BELL, DENSE, KEPT, TORCH, TRITON, name
from artifact.rooms.async_sparse.experiments import Counters
from artifact.rooms.async_sparse.figures import before, present
from kernels.async_sparse.operands import TILE
from kernels.contract import Kernel

NONE = "–"
#: Instructions that tell the kernels apart -> what the table of machine code calls them.
OPS = {
    "FFMA": "FFMA",
    "HGMMA": "wgmma",
    "UTMALDG": "TMA loads",
    "BAR": "block barriers",
    "ATOMG": "atomics",
}
#: The same of kernels for matrices in CSR, whose tasks add to C and want no answer.
OPS_CSR = {op: called for op, called in OPS.items() if op != "ATOMG"} | {"REDG": "atomic adds"}


@captioned("The ladder: the idea of each kernel, what it should gain, and what came.")
def variants(offered: Mapping[str, Kernel], df: pd.DataFrame | None) -> pd.DataFrame:
    """Every kernel of the ladder: idea, what it should gain over the one that it builds on, and what came of it
    on real matrices."""
    here = [v for v in contenders.LADDER if v in offered]
    return pd.DataFrame(
        {
            "kernel": f"<code>{v}</code>",
            "idea": prose.inline_code(offered[v].idea),
            "predicted": prose.inline_code(times(offered[v].prediction)) or NONE,
            "came": _times(_step(df, v, before(v, here))),
            "by": "the paper" if offered[v].published else "ours",
        }
        for v in here
    )


def _step(df: pd.DataFrame | None, variant: str, base: str | None) -> float | None:
    """The geometric mean of a speedup; None where one of the two was not measured."""
    if df is None or base is None or not {variant, base} <= set(df["variant"]):
        return None
    return records.geomean(figures.speedups(df, [variant], base)["speedup"])


@captioned("What the compiler makes of each kernel; where none spills, nothing is said of it.")
def compiled(
    report: pd.DataFrame,
    shown: Sequence[str] = contenders.LADDER,
    ops: Mapping[str, str] = OPS,
) -> pd.DataFrame:
    """What each kernel compiles to for Hopper; report: the room's compile report."""
    here = report[report["target"] == HOPPER]
    rows = []
    for v in present(here, shown):
        own = here[here["variant"] == v]
        registers = sorted({int(own["registers"].min()), int(own["registers"].max())})
        row = {"kernel": f"<code>{v}</code>", "kernels": len(own)}
        row |= {
            "registers": " to ".join(map(str, registers)),
            "spills": int(own["spills"].sum()) or "none",
        }
        for op, called in ops.items():
            row[called] = int(own[op].max()) if op in own and own[op].max() else NONE
        rows.append(row | {"instruc\u00adtions": int(own["instructions"].max())})
    df = pd.DataFrame(rows)
    return df if df.empty or df["spills"].ne("none").any() else df.drop(columns="spills")


@captioned("The paper's Table II, and beside it what was measured here.")
def table2(df: pd.DataFrame | None, stated: pd.DataFrame) -> pd.DataFrame:
    """Table II, and beside it the geometric means here; without a record its own columns alone."""
    over = arithmetic.table2_speedups(stated)
    rate = stated[stated["quantity"] == "tflops"].drop_duplicates("variant").set_index("variant")
    order = [
        *contenders.STEPS,
        *contenders.BRANCHES,
        *contenders.OURS,
        TRITON,
        contenders.BSR,
        contenders.CSR,
        BELL,
    ]
    here = pd.Series(dtype=float)
    if df is not None:
        here = df.groupby("variant")["tflops"].agg(records.geomean)
    rows = []
    for v in (v for v in order if v in rate.index or v in here.index):
        base = before(v, order)
        step = over.get(v, float("nan")) / over.get(base, float("nan"))
        row = {
            "kernel": name(v),
            "stated [TFLOP/s]": _number(rate["low"].get(v)),
            "stated ×": _times(over.get(v)),
        }
        row |= {"stated step": _times(step)}
        if v in here.index:
            row |= {
                "here [TFLOP/s]": _number(here[v]),
                "here ×": _times(_step(df, v, BELL) if v != BELL else None),
                "step here": _times(_step(df, v, base)),
                "matrices": int((df["variant"] == v).sum()),
            }
        rows.append(row)
    return pd.DataFrame(rows).fillna(NONE)


@captioned("What the profiler counted of each kernel.")
def counted(counters: Counters | None) -> pd.DataFrame | None:
    """What the profile says of each kernel at the point of the ladder."""
    if counters is None or not counters.variants:
        return None
    rows = []
    for v in counters.variants:
        reason, waiting = counters.stall(v)
        rows.append(
            {
                "kernel": name(v),
                "µs": _number(counters.get(v, experiments.TIME) / 1e3),
                "tensor cores [%]": _whole(counters.get(v, experiments.TENSOR)),
                "L2 [%]": _whole(counters.get(v, experiments.L2)),
                "L2 [TB/s]": f"{counters.l2_gbps(v) / 1e3:.1f}",
                "DRAM [%]": _whole(counters.get(v, experiments.DRAM)),
                "SMs busy [%]": _whole(100 * counters.balance(v)),
                "waits for": f"{reason.replace('_', ' ')} {waiting:.1f}" if reason else NONE,
            }
        )
    return pd.DataFrame(rows)


@captioned("The paper's Table III: speedups over dense cuBLAS, stated and here.")
def gate(df: pd.DataFrame | None, stated: pd.DataFrame) -> pd.DataFrame | None:
    """Table III: speedups over dense cuBLAS, stated and here, by N and share of blocks."""
    if df is None:
        return None
    keyed = stated[stated["quantity"] == "speedup_cublas"].set_index(["n", "density"])["low"]
    shown = present(df, (KEPT, TRITON, "auto"))
    over = {v: figures.speedups(df, [v], TORCH).set_index(["n", "density"])["speedup"] for v in shown}
    dense = df[df["variant"] == TORCH].set_index(["n", "density"])["median_us"]
    rows = []
    for n, d in dense.sort_index(ascending=[True, False]).index:
        row = {"N": f"{n:,}", "blocks kept": f"{d:.0%}", "cuBLAS [ms]": f"{dense[n, d] / 1e3:.3f}"}
        row["stated"] = _times(keyed.get((n, d)))
        rows.append(row | {name(v): _times(over[v].get((n, d))) for v in shown})
    return pd.DataFrame(rows)


@captioned("Configurations that did not become `unit_ring`: its time over theirs.")
def tried(df: pd.DataFrame | None) -> pd.DataFrame | None:
    """Configurations that did not become unit_ring: its time over theirs, by the share of blocks that is kept."""
    if df is None:
        return None
    said = experiments.trials()
    times = df.pivot_table(index="variant", columns="density", values="median_us", sort=False)
    over = times.rdiv(times.loc["unit_ring"], axis=1).drop(index="unit_ring")
    over.columns = [f"{share:.0%} kept" for share in over.columns]
    table = over.map(lambda x: f"{x:.3f}×")
    table.insert(0, "instead", [said[name] for name in table.index])
    return table.reset_index(drop=True)


@captioned("The least time by each unit at its measured peak, and the time that `auto` took.")
def bounds(df: pd.DataFrame | None, roofs: dict | None) -> pd.DataFrame | None:
    """What bounds auto on gate_proj: the least time by each unit at its measured peak, and the time.

    DRAM moves every operand once. L2 delivers, for each block and panel of 512 columns, a block of A and its 64 rows
    of B; B and C pass it on their way from and to DRAM, too. Tensor cores multiply what is stored.
    """
    if df is None or not roofs:
        return None
    rows = []
    for _, row in df[(df["variant"] == "auto") & (df["n"] >= 16384)].iterrows():
        steps = row["nnz"] / BLOCK**2 * row["n"] / TILE
        through_l2 = steps * (BLOCK + TILE) * BLOCK * 2 + row["least_bytes"]
        least = {
            "DRAM [µs]": row["least_bytes"] / roofs["copy"]["gbps"] / 1e3,
            "L2 [µs]": through_l2 / roofs["l2_read"]["gbps"] / 1e3,
            "tensor cores [µs]": row["useful_flops"] / roofs["wgmma"]["tflops"] / 1e6,
        }
        rows.append(
            {"N": f"{row['n']:,}", "blocks kept": f"{row['density']:.0%}"}
            | {name: f"{us:.0f}" for name, us in least.items()}
            | {
                "auto [µs]": f"{row['median_us']:.0f}",
                "of the largest bound": f"{max(least.values()) / row['median_us']:.0%}",
            }
        )
    return pd.DataFrame(rows)


@captioned("Sizes that are no multiples of anything: TFLOP/s and error.")
def ragged(df: pd.DataFrame | None) -> pd.DataFrame | None:
    """TFLOP/s and error at sizes that are no multiples of anything."""
    if df is None:
        return None
    rows = []
    for key, point in df.groupby(["m", "n", "k", "density"], sort=False):
        ours = point[point["variant"] == "auto"]
        dense = point[point["variant"] == DENSE]
        if len(ours):
            ratio = dense["median_us"].iloc[0] / ours["median_us"].iloc[0] if len(dense) else None
            rows.append(
                {
                    "M × N × K": shape([int(size) for size in key[:3]]),
                    "blocks kept": f"{key[3]:.0%}",
                    "auto [µs]": f"{ours['median_us'].iloc[0]:.1f}",
                    "over cuBLASLt": _times(ratio),
                    "relative error": f"{ours['rel_err'].iloc[0]:.1e}",
                }
            )
    return pd.DataFrame(rows)


@captioned("The same layer in BF16, FP16 and TF32.")
def half(df: pd.DataFrame | None) -> pd.DataFrame | None:
    """gate_proj in BF16, FP16 and TF32."""
    if df is None:
        return None
    rows = []
    for label, point in df.groupby("label", sort=False):
        ours, dense = (point[point["variant"] == v] for v in ("auto", DENSE))
        if len(ours):
            dtype = label.split(",")[0]
            rows.append(
                {
                    "values": {"float16": "FP16", "tf32": "TF32"}.get(dtype, "BF16"),
                    "auto [µs]": f"{ours['median_us'].iloc[0]:.0f}",
                    "useful TFLOP/s": f"{ours['tflops'].iloc[0]:.0f}",
                    "over cuBLASLt": _times(
                        dense["median_us"].iloc[0] / ours["median_us"].iloc[0] if len(dense) else None
                    ),
                    "relative error": f"{ours['rel_err'].iloc[0]:.1e}",
                }
            )
    return pd.DataFrame(rows)


@captioned("Of Table II, the rate of cuSPARSE that each stated speedup is over.")
def side_by_side(table: pd.DataFrame) -> pd.DataFrame:
    """Of Table II, the rate of cuSPARSE that each stated speedup is over."""
    implied = arithmetic.implied(table)
    return pd.DataFrame(
        {"kernel": name(v), "rate over speedup [TFLOP/s]": f"{rate:.2f}"} for v, rate in implied.items()
    )


def _missing(value: float | None) -> bool:
    return value is None or value != value


def _number(value: float | None) -> str:
    return NONE if _missing(value) else f"{value:,.0f}" if value >= 100 else f"{value:.2f}"


def _whole(value: float | None) -> str:
    return NONE if _missing(value) else f"{value:.0f}"


def _times(value: float | None) -> str:
    return NONE if _missing(value) else f"{value:.2f}×"
