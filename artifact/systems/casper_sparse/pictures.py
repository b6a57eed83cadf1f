"""Pictures of CSR and of what a warp does with it."""

from typing import Any

import numpy as np
import pandas as pd

from artifact.drawing import sketch
from artifact.drawing.style import BEST, BOUND, INK, ROWS, RUNGS


def csr_picture(csr) -> tuple[Any, pd.DataFrame]:
    """Draw a small matrix and its three CSR arrays, one colour per row; csr: has m, k, row_ptr, col_idx and val."""
    starts, rows, of_row = np.asarray(csr.row_ptr), np.arange(csr.m), np.diff(csr.row_ptr)
    data = pd.DataFrame({"row": np.repeat(rows, of_row), "column": csr.col_idx, "value": csr.val.astype(float)})
    left, columns, some = csr.k + 4.4, np.arange(csr.k), np.flatnonzero(of_row)
    width, height = left + max(len(data), csr.m + 1) + 0.6, max(csr.m + 1.7, 7.6)
    colours = np.array([*(ROWS[row % len(ROWS)] for row in rows), BOUND])
    at, own, values = left + data.index, colours[data["row"]], data["value"].map(sketch.short)
    # Repeated entries share a cell of the matrix, though not a place in the arrays.
    cells = data.assign(text=values).groupby(["row", "column"])["text"].agg(["first", "size"]).reset_index()
    texts = cells["first"].where(cells["size"] == 1, cells["size"].astype(str) + "×")
    names = "row_ptr", "col_idx", "val"
    return sketch.picture(
        (0, width),
        (height + 0.4, 0),
        (sketch.frame, columns[None] + 1, rows[:, None] + 1, 1, 1, {"linewidth": 0.5, "alpha": 0.35}),
        (sketch.put, 0.75, rows + 1.5, rows, {"ha": "right"}),
        (sketch.put, columns + 1.5, 0.75, columns, {"va": "bottom"}),
        (sketch.put, csr.k / 2 + 1, csr.m + 1.6, f"A: {csr.m} × {csr.k}"),
        (sketch.box, cells["column"] + 1, cells["row"] + 1, texts, colours[cells["row"]]),
        (sketch.box, at, 4.3, data["column"].astype(str), own),
        (sketch.box, at, 6.3, values, own),
        (sketch.put, at + 0.5, 7.65, data.index, {"alpha": 0.7}),
        (sketch.box, left + np.arange(csr.m + 1), 1, starts.astype(str), colours),
        # An arrow from a row's pointer to its first nonzero; an empty row has none.
        (sketch.pointer, left + some + 0.5, 2.02, left + starts[some] + 0.5, 4.26, colours[some], {"linewidth": 1}),
        (sketch.put, left - 0.3, (1.5, 4.8, 6.8), names, {"ha": "right", "family": "monospace"}),
    ), data.rename_axis("position").reset_index()


def warp_picture(csr) -> tuple[Any, pd.DataFrame]:
    """Draw how one warp computes 128 columns of a row of C: chunks of 32 nonzeros, each lane four columns of B and C.

    csr: has rows of at most 64 nonzeros; the first that needs two chunks is drawn, else the first.
    """
    row = int(np.argmax(np.diff(csr.row_ptr) > 32))
    mine = slice(csr.row_ptr[row], csr.row_ptr[row + 1])
    data = (
        pd.DataFrame({"column": csr.col_idx[mine], "value": csr.val[mine].astype(float)})
        .rename_axis("nonzero")
        .reset_index()
        .assign(chunk=lambda df: df["nonzero"] // 32, lane=lambda df: df["nonzero"] % 32)
    )
    step, formula = 0.96, "acc += sh_val[j] · B[sh_col[j]][its four columns]"
    cell, end, first = step * 0.92, 32 * step + 0.3, f"(j = 0: row {data['column'][0]} of B)"
    heads = {
        f"row {row} of A: {len(data)} nonzeros, read in chunks of 32, lane i reads nonzero i": (0, 0.55),
        "shared memory of this warp: column and value of the current chunk (chunk 0)": (0, 3.3),
        f"every lane, for each nonzero j:  {formula}   {first}": (0, 8.3),
        "lane; one float4 of B": (end, 9.65),
        f"one float4 of C, row {row}": (end, 11.65),
        "column 0": (0, 12.5),
    }
    chunk, colours, now = data["chunk"].unique(), np.take(ROWS, data["chunk"]), data[:32]
    named = {"ha": "left", "color": np.take(ROWS, chunk), "weight": "bold"}
    lane, lanes, upright = np.arange(32), np.tile([RUNGS[1], BEST], 16), {"height": 1.7, "rotation": 90}
    parts = (lane * step)[:, None] + step * 0.23 * np.arange(1, 4)
    return sketch.picture(
        (-0.3, 40.5),
        (12.95, 0),
        (sketch.put, *zip(*heads.values(), strict=True), [*heads], {"ha": "left"}),
        (sketch.box, data["lane"] * step, 1.0 + data["chunk"], "", colours, cell, 0.8),
        (sketch.put, end, 1.42 + chunk, [f"chunk {c}" for c in chunk], named),
        (sketch.box, now.index * step, 3.75, now["column"].astype(str), ROWS[0], cell, upright),
        (sketch.box, now.index * step, 5.55, now["value"].map("{:.2g}".format), ROWS[0], cell, upright),
        (sketch.put, end, (4.6, 6.4), ("sh_col", "sh_val"), {"ha": "left", "family": "monospace"}),
        (sketch.pointer, 16 * step, 7.3, 16 * step, 7.95, INK, {"mutation_scale": 9}),
        (sketch.box, lane * step, 9.15, lane.astype(str), lanes, cell),
        (sketch.box, lane * step, 11.25, "", lanes, cell, 0.8),
        (sketch.segment, parts, 9.87, parts, 10.15, {"linewidth": 0.5, "alpha": 0.6}),
        (sketch.segment, step * (lane + 0.46), 10.27, step * (lane + 0.46), 11.13, {"color": lanes, "linewidth": 0.8}),
        (sketch.put, 32 * step, 12.5, "column 127", {"ha": "right"}),
        height=5.4,
    ), data
