"""What was tried to make the kernels for Hopper faster and is no rung, one run or one pair of profiles for each.

The numbers are in bounds/tried.csv of the room's records, and in fp8/tried.csv for FP8: a row for a trial and a size,
with the time or the clocks of the kernel that it was tried on, and its own; times of one run. What became of a trial is
the last word in `LADDER` and `EIGHT`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pandas as pd

from artifact.drawing import words

FILE = "tried.csv"
COLUMNS = ("trial", "beside", "m", "n", "k", "unit", "beside_value", "value")
#: trial -> what, what was expected of it, what became of it.
Trials = Mapping[str, tuple[str, str, str]]
LADDER: Trials = {
    "registers": (
        "A from registers, loaded by <code>ldmatrix</code> as a stage lands",
        "1.05×: as instructions alone, those with A in registers are 7% faster",
        "not kept: the warps read as much of shared memory as the tensor cores did",
    ),
    "registers_alone": (
        "the same without loads, beside the kernel without loads",
        "1.07×: the instructions alone",
        "a bound",
    ),
    "squares": (
        "three squares of a warpgroup to store C through instead of two",
        "1.02×: a warpgroup waits less for the copy engine at the end of a tile",
        "not kept",
    ),
    "all_squares": (
        "a square for all of C, for which the ring has three stages instead of four",
        "1.04×: no warpgroup waits at the end of a tile",
        "not kept: three stages are not enough",
    ),
    "shares": (
        "the last wave of <code>wgmma_three</code> in equal shares of its steps for all blocks, sums through L2",
        "1.09× at 4096³: 2.67 waves instead of 3, less 3 µs for the sums",
        "not kept: the sums cost more, and under the profiler a launch did not end, why is not known; "
        "<code>wgmma_pieces</code> does as much at 8192³, and nobody waits",
    ),
    "paced": (
        "blocks wait for each other every 32 steps, 2000 clocks at most, so that reads of neighbours meet",
        "1.03×: as few bytes in L2's slices as <code>wgmma_refilling</code> has",
        "not kept: they became 4% fewer",
    ),
    "copy_engine": (
        "on 64 × 64 tiles the copy engine, which also stores C (<code>wgmma_ring</code>)",
        "0.9×: its tensor map is a trip to DRAM before the first operand",
        "kept where tiles are many",
    ),
    "copy_engine_warm": (
        "the same, with operands that the launch before left in L2",
        "1.0×: then there is no trip to DRAM",
        "not so: the copy engine begins later wherever its operands lie",
    ),
    "wider": (
        "tiles of 64 × 64 instead of 64 × 32",
        "0.95× at 512³: 64 tiles for 132 multiprocessors; 1.2× where that makes one wave of two",
        "kept: the tuner has both",
    ),
    "empty": ("a kernel that does nothing", "2×: most of such a product is its launch", "a bound"),
}
EIGHT: Trials = {
    "halves": (
        "each half of a step a group of wgmma of its own, with one word of metadata",
        "1.2×: without loads the loop was as slow as with them, at three quarters of what shared memory gives",
        "kept, in all kernels",
    ),
    "halves_unloaded": ("the same where nothing is loaded", "1.3×: what bounds is shared memory alone", "a bound"),
    "unloaded": ("nothing is loaded", "1.1×: what L2 and DRAM still cost", "a bound"),
    "unloaded_unstored": ("nothing is loaded or stored", "1.15×: what C costs, too", "a bound"),
    "trailing_registers": (
        "C is rounded at the end of a tile and written from registers while the next tile is multiplied",
        "1.05× at 8192³, 1.10× at 4096³: the tensor cores wait for rounding alone",
        "not kept",
    ),
    "trailing_squares": (
        "the same through shared memory and the copy engine",
        "the same, without stores in the queue of the loads of metadata",
        "not kept",
    ),
    "boxes": (
        "pieces of A by a tensor map, whose reads neighbouring SMs share before L2, and not as bytes side by side",
        "1.03×: fewer bytes through L2, hence a higher clock",
        "not kept: not more than a run differs from the next",
    ),
    "tall_pairs": (
        "fp8_pairs with 256 × 192 of C a block, C from registers, five stages",
        "1.05×: the fewest bytes through L2 of all",
        "not kept",
    ),
    "across": (
        "bands of columns of tiles, with serialised wgmma",
        "1.0×: as many bytes, another operand that stays",
        "not kept",
    ),
}


def read(folder: Path, known: Trials) -> pd.DataFrame | None:
    """The trials in a folder of records, with `gain`; None without. ValueError for another file than `known` ones'."""
    path = Path(folder) / FILE
    if not path.is_file():
        return None
    df = pd.read_csv(path)
    if tuple(df.columns) != COLUMNS or not set(df["trial"]) <= set(known):
        raise ValueError(
            f"{path.name}: it has the columns {', '.join(COLUMNS)} and trials that trials.py knows, or is another "
            "file: make it again"
        )
    return df.assign(gain=df["beside_value"] / df["value"])


def table(df: pd.DataFrame, known: Trials) -> pd.DataFrame:
    """Trial, the kernel beside it, what was expected, and by what factor time or clocks became less, by size."""
    rows = []
    for name, part in df.groupby("trial", sort=False):
        what, expected, outcome = known[name]
        came = words.listed(
            f"{row['gain']:.2f}× at {words.shape((row['m'], row['n'], row['k']))}" for _, row in part.iterrows()
        )
        rows.append(
            {
                "tried": what,
                "on": f"<code>{part['beside'].iloc[0]}</code>",
                "expected": expected,
                "came": f"{came} {'in clocks' if part['unit'].iloc[0] != 'us' else 'in time'}; {outcome}",
            }
        )
    return pd.DataFrame(rows)
