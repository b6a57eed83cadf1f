"""Figs. 1 and 4(a): the machine, from what it says of itself and what was measured on it, and a thread block."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd
from matplotlib import pyplot as plt

from artifact.drawing import sketch
from artifact.drawing.style import BASELINE, BEST, BOUND, CLAIM, INK, PUBLISHED, RUNGS, WIDTH
from artifact.rooms.async_sparse import arithmetic

#: What the source says of an H100 (Fig. 1, section IV).
SOURCE = {
    "SMs": "132",
    "L2": "50 MB",
    "memory": "80 GB, section IV: 96 GB",
    "from memory": "3.35 TB/s",
}


def machine(machine: Mapping[str, Any], ceilings: Mapping[str, Mapping[str, float]] | None):
    """Fig. 1: SMs, L2 and memory of the GPU that was measured, with what moves between them, beside what the source
    gives for its own. machine: of a record; ceilings: as `records.ceilings` gives them, or None."""
    rate = ceilings or {}

    def gbps(name: str) -> str:
        return f"{rate[name]['gbps'] / 1e3:.1f} TB/s" if name in rate else "not measured"

    def tflops(name: str) -> str:
        return f"{rate[name]['tflops']:.0f} TFLOP/s" if name in rate else "not measured"

    count = machine.get("sm_count", "?")
    facts = {
        "SMs": f"{count}",
        "shared memory": _of(machine, "shared_bytes_per_sm", 2**10, "KiB"),
        "registers": _of(machine, "registers_per_sm", 2**8, "KiB"),
        "L2": _of(machine, "l2_bytes", 2**20, "MiB"),
        "memory": _of(machine, "memory_bytes", 1e9, "GB"),
        "WGMMA, all SMs": tflops("wgmma"),
        "from shared memory": gbps("shared_read"),
        "from L2": gbps("l2_read"),
        "from memory": gbps("copy"),
    }
    fig, ax = plt.subplots(figsize=(WIDTH, 4.2))
    sms = int(count) if str(count).isdigit() else 132
    for i in range(sms):
        sketch.box(ax, 3.9 + 0.185 * (i % 22), 0.2 + 0.26 * (i // 22), "", RUNGS[3], 0.15, 0.2)
    sketch.put(ax, 5.9, 0.2 + 0.26 * (-(-sms // 22)) + 0.18, f"{facts['SMs']} SMs", fontsize=9)
    sketch.box(ax, 0, 0, "", RUNGS[3], 3.4, 2.3)
    sketch.put(ax, 1.7, 0.18, "an SM", fontweight="bold")
    for i in range(4):
        sketch.box(ax, 0.12 + 0.8 * i, 0.38, "tensor\ncore", PUBLISHED, 0.74, 0.5)
    sketch.box(ax, 0.12, 1.0, f"registers {facts['registers']}", BEST, 2.0, 0.36)
    sketch.box(ax, 2.24, 1.0, "TMA", CLAIM, 1.04, 0.36)
    sketch.box(
        ax,
        0.12,
        1.52,
        f"shared memory {facts['shared memory']}\n{facts['from shared memory']}, all SMs",
        BASELINE,
        3.16,
        0.62,
    )
    sketch.box(ax, 0, 2.9, f"L2 {facts['L2']}", RUNGS[1], 7.96, 0.5, size=9)
    sketch.box(ax, 0, 4.0, f"memory {facts['memory']}", BOUND, 7.96, 0.5, size=9)
    for x, (top, bottom), text in (
        (1.7, (2.32, 2.88), facts["from L2"]),
        (1.7, (3.42, 3.98), facts["from memory"]),
    ):
        sketch.arrow(ax, (x, bottom), (x, top), INK)
        sketch.put(
            ax,
            x + 0.12,
            (top + bottom) / 2,
            f"{text} measured" if "TB" in text else text,
            ha="left",
        )
    sketch.put(ax, 5.9, 2.4, f"WGMMA on all of them: {facts['WGMMA, all SMs']}")
    ax.set(xlim=(-0.05, 8.0), ylim=(4.6, -0.05))
    ax.axis("off")
    rows = [{"what": k, "here": v, "the source": SOURCE.get(k, "")} for k, v in facts.items()]
    return fig, pd.DataFrame(rows)


def _of(machine: Mapping[str, Any], key: str, unit: float, name: str) -> str:
    return f"{machine[key] / unit:.0f} {name}" if key in machine else "not recorded"


def thread_block(width: int = 256):
    """Fig. 4(a): a thread block of the source's kernel: a producer and two consumers, a ring of three stages, and what
    each consumer computes. width: WGMMA_N."""
    stage = arithmetic.stage_bytes(width)
    producer, consumer = arithmetic.REGISTERS[0], arithmetic.REGISTERS[1]
    fig, ax = plt.subplots(figsize=(WIDTH, 3.9))
    sketch.box(
        ax,
        0,
        0.9,
        f"warpgroup 0\nproducer: one thread\n{producer} registers a thread",
        CLAIM,
        1.75,
        1.3,
    )
    for i in (0, 1):
        text = f"warpgroup {i + 1}\nconsumer: WGMMA\n{consumer} registers a thread"
        sketch.box(ax, 5.0, 0.2 + 1.6 * i, text, PUBLISHED, 1.6, 1.1)
        sketch.box(ax, 7.1, 0.2 + 1.6 * i, f"C\n64 × {width}", BEST, 0.85, 1.1)
        sketch.arrow(ax, (6.62, 0.75 + 1.6 * i), (7.08, 0.75 + 1.6 * i), INK)
    rows = []
    for q in range(arithmetic.STAGES):
        x = 2.35 + 0.82 * q
        sketch.put(ax, x + 0.36, 0.05, f"stage {q}")
        sketch.box(ax, x, 0.2, f"A\n64 × 64\n{stage['A'] // 1024} KiB", RUNGS[3], 0.72, 0.7)
        for i in (0, 1):
            sketch.box(
                ax,
                x,
                1.0 + 0.85 * i,
                f"B\n64 × {width}\n{stage['B'] // 2048} KiB",
                BASELINE,
                0.72,
                0.8,
            )
        rows.append({"stage": q, "A bytes": stage["A"], "B bytes": stage["B"]})
    sketch.arrow(ax, (1.77, 1.55), (2.3, 1.55), INK)
    sketch.put(ax, 2.04, 1.38, "TMA")
    for i in (0, 1):
        sketch.arrow(ax, (4.83, 1.4 + 0.85 * i), (4.98, 0.75 + 1.6 * i), INK)
    sketch.arrow(ax, (4.98, 3.15), (0.9, 3.15), BOUND)
    sketch.put(ax, 2.95, 3.32, "empty[q]: a consumer has read the stage")
    sketch.arrow(ax, (0.9, 2.9), (4.98, 2.9), BOUND)
    sketch.put(ax, 2.95, 2.76, "full[q]: both tiles have landed")
    ax.set(xlim=(-0.05, 8.0), ylim=(3.5, -0.1))
    ax.axis("off")
    registers = arithmetic.WARPGROUP * sum(arithmetic.REGISTERS)
    shared = arithmetic.STAGES * sum(stage.values())
    return fig, pd.DataFrame(rows).assign(registers=registers, shared_bytes=shared)
