"""Figs. 3 and 4(b): timelines of the kernels, from clocks that they read themselves.

A trace lies in `traces/timeline.csv` beside the records, a row for each thing that a warpgroup of one thread block did:

    variant     the kernel
    block       of its thread blocks, its number in the grid
    role        "load", "multiply" or "store"
    warpgroup   of the block, from 0
    step        of the loop over non-zero blocks, from 0
    begin_ns, end_ns    by the GPU's global timer, from any zero that the rows of a block share
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.patches import Patch

from artifact.drawing import plot
from artifact.drawing.style import BASELINE, BEST, PUBLISHED, WIDTH
from artifact.measure import records
from artifact.rooms.async_sparse import contenders

TRACE = Path("traces", "timeline.csv")  #: no record of times, so not among them
COLUMNS = ("variant", "block", "role", "warpgroup", "step", "begin_ns", "end_ns")
ROLES = {"load": BASELINE, "multiply": PUBLISHED, "store": BEST}
_LANE, _GAP = 0.8, 0.5


def read(folder: Path) -> pd.DataFrame | None:
    """The trace beside a room's records; None where there is none. Raises ValueError, one sentence, that names file and
    column for one that is not whole."""
    path = folder / TRACE
    if not path.is_file():
        return None
    df = pd.read_csv(path)
    missing = [column for column in COLUMNS if column not in df]
    if missing:
        raise ValueError(f"{path}: the column {missing[0]!r} is missing, so this is no timeline.")
    validate(df, str(path))
    return df[list(COLUMNS)]


def write(folder: Path, df: pd.DataFrame) -> Path:
    """Put a trace beside a room's records, whole or not at all. Raises ValueError as `read`."""
    path = folder / TRACE
    validate(df, str(path))
    text = df[list(COLUMNS)].to_csv(index=False, lineterminator="\n")
    return records.write_text(path, text)


def validate(df: pd.DataFrame, what: str) -> None:
    """Raises ValueError, one sentence, that names the first row that no kernel could have written."""
    unknown = df[~df["role"].isin(ROLES)]
    if len(unknown):
        raise ValueError(
            f"{what}: row {unknown.index[0] + 2} has the role {unknown['role'].iloc[0]!r}, but must "
            f"have one of {', '.join(ROLES)}."
        )
    backwards = df[~(df["end_ns"] >= df["begin_ns"])]
    if len(backwards):
        raise ValueError(f"{what}: row {backwards.index[0] + 2} ends before it begins.")


def draw(frame: pd.DataFrame, variants: Sequence[str], block: int | None = None, steps: int = 8):
    """A group of lanes for each variant, a lane for each role and warpgroup, over the first `steps` steps of one thread
    block and its stores; nanoseconds from its first row on. Raises ValueError without any of the variants."""
    shown = [v for v in variants if (frame["variant"] == v).any()]
    if not shown:
        raise ValueError(f"The trace has none of {', '.join(variants)}.")
    parts = []
    for variant in shown:
        rows = frame[frame["variant"] == variant]
        rows = rows[rows["block"] == (rows["block"].min() if block is None else block)]
        rows = rows[(rows["step"] < steps) | (rows["role"] == "store")]
        if rows.empty:
            raise ValueError(f"The trace of {variant} has no thread block {block}.")
        begin = rows["begin_ns"].min()
        parts.append(rows.assign(begin_ns=rows["begin_ns"] - begin, end_ns=rows["end_ns"] - begin))
    data = pd.concat(parts, ignore_index=True)
    last = data.loc[data["role"] != "store", "end_ns"].max()
    data = data[data["begin_ns"] <= 1.05 * last].reset_index(drop=True)  # later stores would be all there is to see
    lanes = [
        (variant, *lane)
        for variant in shown
        for lane in sorted(
            set(data.loc[data["variant"] == variant, ["role", "warpgroup"]].itertuples(index=False, name=None)),
            key=lambda lane: (list(ROLES).index(lane[0]), lane[1]),
        )
    ]
    fig, ax = plt.subplots(figsize=(WIDTH, 1.2 + 0.28 * len(lanes) + 0.3 * len(shown)))
    y, ticks, labels = 0.0, [], []
    for variant, role, group in lanes:
        first = not any(lane[0] == variant for lane in lanes[: len(ticks)])
        y += _GAP + 0.6 if first else 0.0
        if first:
            ax.text(0, y - 0.62, contenders.name(variant), fontweight="bold", fontsize=8.5, va="bottom")
        mine = data[(data["variant"] == variant) & (data["role"] == role) & (data["warpgroup"] == group)]
        for row in mine.itertuples():
            how = {"facecolor": ROLES[role], "alpha": 0.45 if row.step % 2 else 0.8, "linewidth": 0}
            ax.broken_barh([(row.begin_ns, row.end_ns - row.begin_ns)], (y - _LANE / 2, _LANE), **how)
        ticks.append(y)
        labels.append(f"{role}, warpgroup {group}")
        y += 1
    ax.set_yticks(ticks, labels, fontsize=8)
    ax.set(
        ylim=(y - 0.4, -0.2),
        xlim=(0, 1.08 * last),
        xlabel=f"ns from the start of a thread block, {steps} steps",
    )
    ax.tick_params(axis="y", length=0)
    ax.grid(axis="y", visible=False)
    plot.legend(fig, {role: Patch(color=tint, alpha=0.8) for role, tint in ROLES.items()})
    return fig, data


def overlap(frame: pd.DataFrame) -> pd.Series:
    """By variant, the share of the time in which a thread block multiplies that it also loads, its thread blocks
    together: 0 where the two take turns."""
    shares = {}
    for variant, rows in frame.groupby("variant", sort=False):
        both = whole = 0.0
        for _, block in rows.groupby("block"):
            loads, products = (_union(block[block["role"] == role]) for role in ("load", "multiply"))
            whole += sum(end - begin for begin, end in products)
            both += sum(max(0.0, min(a[1], b[1]) - max(a[0], b[0])) for a in loads for b in products)
        shares[variant] = both / whole if whole else float("nan")
    return pd.Series(shares, dtype=float)


def _union(rows: pd.DataFrame) -> list[tuple[float, float]]:
    """Intervals that lie apart, of those of the rows."""
    found: list[tuple[float, float]] = []
    for begin, end in sorted(zip(rows["begin_ns"], rows["end_ns"], strict=True)):
        if found and begin <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], end)
        else:
            found.append((begin, end))
    return found
