"""The machine's measured ceilings beside what its data sheet promises, and its roofline."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt

from artifact import registry
from artifact.drawing import charts, plot, style
from artifact.measure import records

#: FP32 FMA units of an SM; GPUs that are not listed have 128.
FP32_LANES = {(8, 0): 64, (7, 0): 64, (7, 5): 64}
#: Bytes that the 32 banks of an SM's shared memory deliver in a clock.
SHARED_BYTES_PER_CLOCK = 128
#: Transfers per clock that NVML reports for the memory, HBM and GDDR alike.
TRANSFERS_PER_CLOCK = 2


@dataclass(frozen=True)
class Roof:
    """A ceiling: the microbenchmark, how it is called, its colour, and what it bounds."""

    variant: str
    name: str
    colour: str
    bounds: str


ROOFS = (
    Roof(
        "copy",
        "DRAM copy",
        style.BASELINE,
        "operands larger than the L2: what must come from memory, or go there, once",
    ),
    Roof(
        "l2_read",
        "L2 read",
        style.RUNGS[1],
        "rows of B that several rows of A ask for, after the first fetch",
    ),
    Roof(
        "shared_read",
        "shared-memory read",
        style.CLAIM,
        "tiles of B that a block has staged for itself",
    ),
    Roof(
        "fma",
        "FP32 FMA",
        style.BOUND,
        "the arithmetic, once the data is in registers",
    ),
)


def peak(variant: str, machine: Mapping[str, Any], sm_mhz: float) -> float | None:
    """What arithmetic on the machine's description promises: GB/s, or TFLOP/s for "fma".

    sm_mhz: SM clock while the microbenchmark ran, else the highest. None where the machine does not
    say enough (the L2's width is not published).
    """
    clock = sm_mhz if sm_mhz == sm_mhz and sm_mhz else machine.get("sm_mhz_max")
    sms, bits, memory = (machine.get(k) for k in ("sm_count", "memory_bus_bits", "memory_mhz_max"))
    if variant == "copy" and bits and memory:
        return bits / 8 * memory * TRANSFERS_PER_CLOCK / 1e3
    if variant == "shared_read" and sms and clock:
        return sms * SHARED_BYTES_PER_CLOCK * clock / 1e3
    if variant == "fma" and sms and clock and machine.get("compute_capability"):
        capability = tuple(map(int, str(machine["compute_capability"]).split(".")))
        return sms * FP32_LANES.get(capability, 128) * 2 * clock / 1e6
    return None


def roofs(df: pd.DataFrame, machine: Mapping[str, Any]) -> pd.DataFrame:
    """Measured ceilings beside what the machine's description promises.

    df: the record of the room "ceilings". Columns: ceiling, variant, measured, unit, promised,
    share, balance (FLOP per byte above which FMA is the lower roof), spread (quartiles over median),
    bounds.
    """
    rows = []
    have = df.set_index("variant")
    fma = float(have["tflops"].get("fma", np.nan))
    for roof in ROOFS:
        if roof.variant not in have.index:
            continue
        row = have.loc[roof.variant]
        value = float(row["tflops"] if roof.variant == "fma" else row["gbps"])
        promised = peak(roof.variant, machine, float(row["sm_mhz"]))
        rows.append(
            {
                "ceiling": roof.name,
                "variant": roof.variant,
                "measured": value,
                "unit": "TFLOP/s" if roof.variant == "fma" else "GB/s",
                "promised": promised if promised else np.nan,
                "share": value / promised if promised else np.nan,
                "balance": np.nan if roof.variant == "fma" else fma * 1e3 / value,
                "spread": float((row["q75_us"] - row["q25_us"]) / row["median_us"]),
                "bounds": roof.bounds,
            }
        )
    return pd.DataFrame(rows)


def roofline(ceilings: pd.DataFrame, intensities: Mapping[str, tuple[float, float]] | None = None):
    """The measured roofs, and where the multiplications of the records lie under them. (fig, data)

    ceilings: from `roofs`. intensities: format and count of bytes -> least and largest useful FLOP per
    byte, drawn as bars along the bottom.
    """
    memories = ceilings[ceilings["variant"] != "fma"]
    fma = float(ceilings.set_index("variant")["measured"]["fma"])
    look = {roof.variant: roof for roof in ROOFS}
    marks = [*memories["balance"], *(v for pair in (intensities or {}).values() for v in pair)]
    left, right = min(*marks, 0.4) / 2.5, max(marks) * 3
    low = left * memories["measured"].min() / 1e3
    bottom, top = low / 6, fma * 2.2
    fig, ax = plt.subplots(figsize=(style.WIDTH, 4.4))
    ax.set(xscale="log", yscale="log", xlim=(left, right), ylim=(bottom, top))
    start = float(memories["balance"].min())
    ax.plot([start, right], [fma, fma], color=style.BOUND, linewidth=2)
    rows = [{"what": "FP32 FMA", "flop_per_byte": start, "tflops": fma}]
    for memory in memories.itertuples():
        slope = memory.measured / 1e3
        colour = look[memory.variant].colour
        ax.plot([left, memory.balance], [left * slope, fma], color=colour, linewidth=1.8)
        ax.plot(memory.balance, fma, "o", color=colour, markersize=6)
        ax.plot([memory.balance] * 2, [bottom, fma], color=colour, linewidth=0.8, linestyle=(0, (1, 3)))
        rows.append({"what": memory.ceiling, "flop_per_byte": memory.balance, "tflops": fma})
    ax.set_xlabel("useful FLOP per byte of that memory")
    ax.set_ylabel("TFLOP/s at most")
    plot.log(ax.xaxis)
    plot.log(ax.yaxis)
    for number, (name, (least, most)) in enumerate((intensities or {}).items()):
        y = bottom * (low / bottom) ** (0.2 + 0.75 * (number + 0.5) / len(intensities))
        ax.plot(
            [least, most],
            [y, y],
            color=style.PUBLISHED,
            linewidth=5,
            alpha=0.55,
            solid_capstyle="butt",
        )
        after = right / most > least / left  # where there is more room for the name
        side = {"ha": "left", "xytext": (6, 0)} if after else {"ha": "right", "xytext": (-6, 0)}
        at = most if after else least
        ax.annotate(name, (at, y), textcoords="offset points", va="center", fontsize=8, **side)
        rows += [{"what": name, "flop_per_byte": v, "tflops": np.nan} for v in (least, most)]
    fig.canvas.draw()  # the layout must be settled before a label can be turned along a slope
    ax.annotate(
        f"FP32 FMA {fma:.1f} TFLOP/s",
        (right, fma),
        xytext=(-2, 5),
        textcoords="offset points",
        ha="right",
        fontsize=8.5,
    )
    for memory in memories.itertuples():
        slope = memory.measured / 1e3
        at = left**0.62 * memory.balance**0.38
        ends = (left, left * slope), (memory.balance, fma)
        text = f"{memory.ceiling} {slope:.2f} TB/s"
        charts.along(ax, text, (at, at * slope), ends, gap=5, size=8.5)
        ax.annotate(
            f"{memory.balance:.1f}",
            (memory.balance, fma),
            xytext=(0, 7),
            textcoords="offset points",
            ha="center",
            fontsize=8.5,
        )
    return fig, pd.DataFrame(rows)


def intensities(folder: Path) -> dict[str, tuple[float, float]]:
    """Useful FLOP per byte over all generated points under a GPU's folder, by format and by both
    counts of bytes: {"CSR, requested bytes": (least, most), …}.

    Of the systems that compute on CUDA cores: FMA is no roof for tensor cores.
    """
    found = {}
    for system in registry.find().values():
        here = records.experiments(folder / system.room)
        if system.unit != "CUDA cores" or not here:
            continue
        df = pd.concat(records.read(folder / system.room / f"{name}.csv") for name in here)
        df = df[(df["nnz"] > 0) & (df["label"] == "")]
        for column in ("requested_bytes", "least_bytes") if len(df) else ():
            ratio = df["useful_flops"] / df[column]
            name = f"{system.format}, {column.replace('_', ' ')}"
            least, most = found.get(name, (math.inf, 0.0))  # of another system with this format
            found[name] = (min(least, float(ratio.min())), max(most, float(ratio.max())))
    return found
