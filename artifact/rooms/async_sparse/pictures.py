"""Pictures drawn by code: Fig. 1, the machine; Fig. 2, a matrix in both formats; Figs. 3 and 4, a thread block."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse as sp
from matplotlib import pyplot as plt
from matplotlib.collections import PatchCollection
from matplotlib.patches import Patch, Rectangle

from artifact.book.study import Study, given, where
from artifact.drawing import plot, sketch
from artifact.drawing.style import BASELINE, BEST, BOUND, CLAIM, INK, PUBLISHED, ROWS, RUNGS, WIDTH
from artifact.rooms.async_sparse import arithmetic, contenders
from kernels import splitmix
from kernels.formats import bcsr, csr, reorder, wcsr

#: What the source says of an H100 (Fig. 1, section IV).
SOURCE = {"SMs": "132", "L2": "50 MB", "memory": "80 GB, section IV: 96 GB", "from memory": "3.35 TB/s"}
Drawn = tuple[Any, pd.DataFrame]


def _bare(ax: Any, xlim: tuple[float, float], ylim: tuple[float, float]) -> None:
    ax.set(xlim=xlim, ylim=ylim)
    ax.axis("off")


# ---------------------------------------------------------------- Fig. 1


def machine(study: Study) -> Drawn:
    """Draw SMs, L2 and memory of the GPU that was measured, with what moves between them, beside what the source gives
    for its own."""
    of, sms = study.machine, int(study.machine["sm_count"])
    tbps = {name: f"{study.ceiling(name, 'gbps') / 1e3:.1f} TB/s" for name in ("shared_read", "l2_read", "copy")}
    facts = {
        "SMs": f"{sms}",
        "shared memory": f"{of['shared_bytes_per_sm'] / 2**10:.0f} KiB",
        "registers": f"{of['registers_per_sm'] / 2**8:.0f} KiB",
        "L2": f"{of['l2_bytes'] / 2**20:.0f} MiB",
        "memory": f"{of['memory_bytes'] / 1e9:.0f} GB",
        "WGMMA, all SMs": f"{study.ceiling('wgmma', 'tflops'):.0f} TFLOP/s",
        "from shared memory": tbps["shared_read"],
        "from L2": tbps["l2_read"],
        "from memory": tbps["copy"],
    }
    fig, ax = plt.subplots(figsize=(WIDTH, 4.2))
    shared = f"shared memory {facts['shared memory']}\n{facts['from shared memory']}, all SMs"
    boxes: list[tuple[Any, ...]] = [
        *((3.9 + 0.185 * (i % 22), 0.2 + 0.26 * (i // 22), "", RUNGS[3], 0.15, 0.2) for i in range(sms)),
        (0, 0, "", RUNGS[3], 3.4, 2.3),
        *((0.12 + 0.8 * i, 0.38, "tensor\ncore", PUBLISHED, 0.74, 0.5) for i in range(4)),
        (0.12, 1.0, f"registers {facts['registers']}", BEST, 2.0, 0.36),
        (2.24, 1.0, "TMA", CLAIM, 1.04, 0.36),
        (0.12, 1.52, shared, BASELINE, 3.16, 0.62),
        (0, 2.9, f"L2 {facts['L2']}", RUNGS[1], 7.96, 0.5, 9),
        (0, 4.0, f"memory {facts['memory']}", BOUND, 7.96, 0.5, 9),
    ]
    for box in boxes:
        sketch.box(ax, *box)
    sketch.put(ax, 5.9, 0.2 + 0.26 * (-(-sms // 22)) + 0.18, f"{sms} SMs", fontsize=9)
    sketch.put(ax, 1.7, 0.18, "an SM", fontweight="bold")
    for top, bottom, rate in ((2.32, 2.88, "from L2"), (3.42, 3.98, "from memory")):
        sketch.arrow(ax, (1.7, bottom), (1.7, top), INK)
        sketch.put(ax, 1.82, (top + bottom) / 2, f"{facts[rate]} measured", ha="left")
    sketch.put(ax, 5.9, 2.4, f"WGMMA on all of them: {facts['WGMMA, all SMs']}")
    _bare(ax, (-0.05, 8.0), (4.6, -0.05))
    return fig, pd.DataFrame({"what": facts, "here": facts, "the source": SOURCE}).assign(what=list(facts))


# ---------------------------------------------------------------- Fig. 2


def mesh(side: int = 8, seed: int = 0) -> csr.Csr:
    """Make neighbours and selves on a grid of side x side points, which are numbered at random.

    Symmetric, (side², side²), five non-zeros in most rows, all 1; the same for the same arguments.
    """
    draws = splitmix.random_u32(splitmix.key(seed, 0), splitmix.positions(range(side * side)))
    number = np.argsort(draws, kind="stable")
    line, one = sp.diags_array([1.0] * 3, offsets=(-1, 0, 1), shape=(side, side)), sp.eye_array(side)
    grid = sp.coo_array(sp.kron(line, one) + sp.kron(one, line))
    at = number[grid.row], number[grid.col]
    return csr.from_scipy(sp.csr_array((np.ones(grid.nnz, np.float32), at), shape=grid.shape))


def examples() -> dict[str, csr.Csr]:
    """Make a small mesh whose points are numbered at random, and after reverse Cuthill-McKee."""
    a = mesh()
    return {"a mesh as it comes": a, "after reverse Cuthill-McKee": reorder.permuted(a, reorder.rcm(a)[0])}


def formats(cases: Mapping[str, csr.Csr], block: int = 16, window: int = 16, pad: int = 8) -> Drawn:
    """Draw matrices, each as it is, in BCSR and in WCSR, with what both store and their fill ratios.

    cases: title -> matrix on the host, such as `examples()`, all of one size. A colour per row of blocks, or window;
    what is tinted is stored, what is hatched is WCSR's padding. The data behind it: one row per non-zero: case, row,
    column, block (its place in `val` of BCSR), window, packed (its column in `val` of WCSR).
    """
    stored = {t: (a, bcsr.from_csr(a, block=block), wcsr.from_csr(a, window=window, pad=pad)) for t, a in cases.items()}
    size = max(a.k for a in cases.values())
    lefts = (0, size + 10, 2 * (size + 10))
    width, step = lefts[2] + max(int(np.diff(w.row_ptr).max()) for *_, w in stored.values()), size + 22
    fig, ax = plt.subplots(figsize=(WIDTH, WIDTH * (step * len(cases) - 2) / (width + 4)))
    data = []
    for top, (title, (a, b, w)) in enumerate(stored.items()):
        top = 9 + step * top
        rows = _places(a, b, w)
        begin = np.asarray(w.row_ptr)[rows["window"]]
        for edge in range(block, size, block):
            sketch.rule(ax, (0, size), (top + edge, top + edge), False)
            sketch.rule(ax, (edge, edge), (top, top + size), False)
        for row, col in zip(bcsr.block_rows_of(b), b.col_idx, strict=True):
            sketch.box(ax, lefts[1] + col * block, top + row * block, "", ROWS[row % len(ROWS)], block, block)
        for i, (first, end) in enumerate(zip(w.row_ptr[:-1], w.row_ptr[1:], strict=True)):
            used, y = int((w.col_idx[first:end] >= 0).sum()), top + i * window
            sketch.box(ax, lefts[2], y, "", ROWS[i % len(ROWS)], used, window)
            look: dict[str, Any] = {
                "fill": False,
                "edgecolor": BOUND,
                "linewidth": 0.5,
                "hatch": "//////",
                "alpha": 0.7,
            }
            ax.add_patch(Rectangle((lefts[2] + used, y), end - first - used, window, **look))
        for left, x in zip(lefts, (rows["column"], rows["column"], rows["packed"] - begin), strict=True):
            cells = [Rectangle((left + at, top + y), 1, 1) for at, y in zip(x, rows["row"], strict=True)]
            ax.add_collection(PatchCollection(cells, facecolor=INK, linewidth=0))
        for left in lefts[:2]:
            ax.add_patch(Rectangle((left, top), size, size, fill=False, edgecolor=INK, linewidth=1))
        blocks = f"{b.blocks} of {b.block_rows * b.block_columns} blocks of {block} × {block}"
        columns = f"{w.columns} columns of {window}, padded to {pad}"
        _say(ax, lefts[0], top, top + size, (title, f"{a.m} × {a.k}, {len(rows)} non-zeros"))
        _say(ax, lefts[1], top, top + size, ("BCSR", blocks), b)
        _say(ax, lefts[2], top, top + size, ("WCSR", columns), w)
        data.append(rows.assign(case=title)[["case", *rows.columns]])
    ax.set_aspect("equal")
    _bare(ax, (-2, width + 2), (step * len(cases) - 3, -1))
    return fig, pd.concat(data, ignore_index=True)


def _places(a: csr.Csr, b: bcsr.Bcsr, w: wcsr.Wcsr) -> pd.DataFrame:
    """Return where each non-zero is: row, column, block, window, packed; repeated entries once."""
    row, column = np.divmod(csr.distinct(csr.rows(a) * a.k + a.col_idx), a.k)
    (b_row, b_col), window = b.block, row // w.window
    blocks = bcsr.block_rows_of(b) * b.block_columns + b.col_idx
    block = np.searchsorted(blocks, row // b_row * b.block_columns + column // b_col)
    # Padding goes where no column is, behind all of its window.
    packed = csr.owners(w.row_ptr, w.columns) * (a.k + 1) + np.where(w.col_idx < 0, a.k, w.col_idx)
    at = np.searchsorted(packed, window * (a.k + 1) + column)
    return pd.DataFrame({"row": row, "column": column, "block": block, "window": window, "packed": at})


def _say(ax: Any, left: float, top: float, bottom: float, head: tuple[str, str], stored: Any = None) -> None:
    """Write a title and a line above a matrix, and below it row_ptr, which few rows keep short, and the fill ratio with
    its terms."""
    sketch.put(ax, left, top - 5.6, head[0], ha="left", weight="bold")
    sketch.put(ax, left, top - 2, head[1], ha="left", fontsize=8)
    if stored is not None:
        row_ptr = "row_ptr " + " ".join(map(str, stored.row_ptr.tolist()))
        sketch.put(ax, left, bottom + 2.6, row_ptr, ha="left", fontsize=8)
        fill = f"fill {stored.nnz} / {stored.val.size} = {stored.fill_ratio:.1%}"
        sketch.put(ax, left, bottom + 6.4, fill, ha="left", fontsize=8)


# ---------------------------------------------------------------- Figs. 3 and 4


def thread_block() -> Drawn:
    """Draw Fig. 4(a): a thread block of the source's kernel: a producer and two consumers, a ring of three stages, and
    what each consumer computes."""
    stage, (producer, consumer, _) = arithmetic.STAGE, arithmetic.REGISTERS
    fig, ax = plt.subplots(figsize=(WIDTH, 3.9))
    sketch.box(ax, 0, 0.9, f"warpgroup 0\nproducer: one thread\n{producer} registers a thread", CLAIM, 1.75, 1.3)
    a, b = f"A\n64 × 64\n{stage['A'] // 1024} KiB", f"B\n64 × 256\n{stage['B'] // 2048} KiB"
    for i in (0, 1):
        y = 0.2 + 1.6 * i
        text = f"warpgroup {i + 1}\nconsumer: WGMMA\n{consumer} registers a thread"
        sketch.box(ax, 5.0, y, text, PUBLISHED, 1.6, 1.1)
        sketch.box(ax, 7.1, y, "C\n64 × 256", BEST, 0.85, 1.1)
        sketch.arrow(ax, (6.62, y + 0.55), (7.08, y + 0.55), INK)
        sketch.arrow(ax, (4.83, 1.4 + 0.85 * i), (4.98, y + 0.55), INK)
    for q in range(arithmetic.STAGES):
        x = 2.35 + 0.82 * q
        sketch.put(ax, x + 0.36, 0.05, f"stage {q}")
        for y, text, colour, height in ((0.2, a, RUNGS[3], 0.7), (1.0, b, BASELINE, 0.8), (1.85, b, BASELINE, 0.8)):
            sketch.box(ax, x, y, text, colour, 0.72, height)
    for start, end, colour, at, said in (
        ((1.77, 1.55), (2.3, 1.55), INK, (2.04, 1.38), "TMA"),
        ((4.98, 3.15), (0.9, 3.15), BOUND, (2.95, 3.32), "empty[q]: a consumer has read the stage"),
        ((0.9, 2.9), (4.98, 2.9), BOUND, (2.95, 2.76), "full[q]: both tiles have landed"),
    ):
        sketch.arrow(ax, start, end, colour)
        sketch.put(ax, *at, said)
    _bare(ax, (-0.05, 8.0), (3.5, -0.1))
    table = {"stage": range(arithmetic.STAGES), "A bytes": stage["A"], "B bytes": stage["B"]}
    block = {"registers": arithmetic.WARPGROUP * sum(arithmetic.REGISTERS), "shared_bytes": 3 * sum(stage.values())}
    return fig, pd.DataFrame(table | block)


ROLES = {"load": BASELINE, "multiply": PUBLISHED, "store": BEST}


@given
def timeline(frame: pd.DataFrame, variants: Sequence[str], steps: int = 8) -> Drawn:
    """Draw Figs. 3 and 4(b), what warpgroups of a thread block did by clocks that they read themselves: lanes for each
    variant, a lane for each role and warpgroup, over the first steps of its loop and its stores; nanoseconds from its
    first row on. frame: of `experiments.trace`, in which a kernel has a row for each step."""
    first = frame.groupby("variant")["block"].transform("min")
    data = where(frame[frame["block"] == first], variant=variants)
    data = data[(data["step"] < steps) | (data["role"] == "store")]
    order = {"variant": list(variants).index, "role": list(ROLES).index, "warpgroup": int}
    data = data.sort_values(list(order), key=lambda s: s.map(order[s.name]), kind="stable")
    begin = data.groupby("variant")["begin_ns"].transform("min")
    data = data.assign(begin_ns=data["begin_ns"] - begin, end_ns=data["end_ns"] - begin)
    last = data.loc[data["role"] != "store", "end_ns"].max()
    data = data[data["begin_ns"] <= 1.05 * last].reset_index(drop=True)  # later stores would be all there is to see
    lanes = data.groupby(list(order), sort=False)
    variant = data["variant"].factorize()[0]
    places = (lanes.ngroup() + 1.1 * (1 + variant)).rename("y")
    heads = data["variant"].groupby(places).first().drop_duplicates()
    fig, ax = plt.subplots(figsize=(WIDTH, 1.2 + 0.28 * lanes.ngroups + 0.3 * len(heads)))
    for y, row in zip(places, data.itertuples(), strict=True):
        how: dict[str, Any] = {"facecolor": ROLES[row.role], "alpha": 0.45 if row.step % 2 else 0.8, "linewidth": 0}
        ax.broken_barh([(row.begin_ns, row.end_ns - row.begin_ns)], (y - 0.4, 0.8), **how)
    for y, head in heads.items():
        ax.text(0, y - 0.62, contenders.name(head), fontweight="bold", fontsize=8.5, va="bottom")
    labels = data["role"] + ", warpgroup " + data["warpgroup"].astype(str)
    ax.set_yticks(places.drop_duplicates(), labels[places.drop_duplicates().index], fontsize=8)
    about = f"ns from the start of a thread block, {steps} steps"
    ax.set(ylim=(places.max() + 0.6, -0.2), xlim=(0, 1.08 * last), xlabel=about)
    ax.tick_params(axis="y", length=0)
    ax.grid(axis="y", visible=False)
    plot.legend(fig, {role: Patch(color=tint, alpha=0.8) for role, tint in ROLES.items()})
    return fig, data
