"""What follows from the source's own numbers without measuring: ratios recomputed, padding, registers, savings.

`table1`, `table2`, `table3` and `text` are its published tables, as `stated` reads them.
"""

from __future__ import annotations

import math

import pandas as pd

from artifact import paths, registry
from artifact.measure import others, records

ROOM = "async_sparse"
N = 1024  #: columns of B in the ablation and in the sweep over tiles
BLOCK = 64  #: rows and columns of a block
CONSUMERS = 2  #: warpgroups that multiply, side by side along N
STAGES = 3
REGISTERS = (24, 240, 240)  #: a thread, by setmaxnreg, of the producer and of the consumers
WARPGROUP = 128  #: threads
SM_REGISTERS, SM_SHARED = 65536, 233472  #: of an H100's SM: registers, bytes of shared memory
STEPS = ("opt0", "opt1", "opt2", "opt3", "opt4")  #: the ladder that the source adds up
SIZES = {"bfloat16": 2, "tf32": 4, "float32": 4}


def stated(part: str) -> pd.DataFrame:
    """What the source states in "table1", "table2", "table3" or "text"."""
    return records.published(registry.published(ROOM, part))


def apart() -> pd.DataFrame:
    """What the code of others gave on real matrices here, apart from this harness: Voltrix."""
    return others.read(ROOM, "apart", paths.HOME).table()


def value(df: pd.DataFrame, quantity: str, **where) -> float:
    """The one number of a quantity. Raises KeyError where it is not there once."""
    rows = df[df["quantity"] == quantity]
    for key, wanted in where.items():
        rows = rows[rows[key] == wanted]
    if len(rows) != 1:
        raise KeyError(f"{quantity} at {where} is there {len(rows)} times")
    return float(rows["low"].iloc[0])


# ---------------------------------------------------------------- Tables I and II


def recomputed(table1: pd.DataFrame) -> pd.DataFrame:
    """The speedups of WCSR in Table I beside those that its rates give: kernel, n, density, stated, ratio, and
    the ends of what the rounded rates allow."""
    at = ["kernel", "n", "density"]
    rate = table1[table1["quantity"] == "tflops"].set_index(at)["low"]
    rows = []
    for row in table1[table1["quantity"] == "wcsr_speedup"].itertuples():
        ours, theirs = rate["WCSR", row.n, row.density], rate[row.kernel, row.n, row.density]
        half = 0.005
        rows.append(
            {"kernel": row.kernel, "n": row.n, "density": row.density, "stated": row.low}
            | {"ratio": ours / theirs, "least": (ours - half) / (theirs + half)}
            | {"most": (ours + half) / (theirs - half)}
        )
    df = pd.DataFrame(rows)
    return df.assign(agrees=df["stated"].between(df["least"] - half, df["most"] + half))


def implied(table2: pd.DataFrame) -> pd.Series:
    """Of each row of Table II the TFLOP/s of cuSPARSE that its speedup is over, which over one set of matrices is
    one number: the ratio of geometric means is the geometric mean of ratios."""
    rates = table2[table2["quantity"] == "tflops"].set_index("variant")["low"]
    over = table2[table2["quantity"] == "speedup_bell"].set_index("variant")["low"]
    return (rates.drop("cusparse_bell") / over).rename("implied")


def shares(speedups: pd.Series) -> pd.DataFrame:
    """What each step of the ladder is of the whole: by difference of speedups, as the source counts, and by factor,
    whose logarithms add up. speedups: by variant, in the order of STEPS; those that are there."""
    s = speedups.reindex(STEPS).dropna()
    gain, factor = s.diff().iloc[1:], (s / s.shift()).iloc[1:]
    return pd.DataFrame(
        {
            "gain": gain,
            "factor": factor,
            "by difference": gain / gain.sum(),
            "by factor": factor.map(math.log) / math.log(s.iloc[-1] / s.iloc[0]),
        }
    )


def table2_speedups(table2: pd.DataFrame) -> pd.Series:
    return table2[table2["quantity"] == "speedup_bell"].set_index("variant")["low"]


# ---------------------------------------------------------------- tiles


def padded(width: int, n: int = N) -> int:
    """Columns that are computed where a block takes 2 · width of n."""
    tile = CONSUMERS * width
    return -(-n // tile) * tile


def extra(width: int, n: int = N) -> float:
    """Work beyond n columns, as a share of n: what the source calls waste."""
    return padded(width, n) / n - 1


def wasted(width: int, n: int = N) -> float:
    """The share of what is computed that is in vain."""
    return 1 - n / padded(width, n)


def chosen(n: int = N) -> int:
    """WGMMA_N by the source's rule: the widest whose tile divides n; 8 where none does."""
    return max((w for w in range(8, 257, 8) if n % (CONSUMERS * w) == 0), default=8)


def stage_bytes(width: int, dtype: str = "bfloat16") -> dict[str, int]:
    """Bytes of A and of B in a stage."""
    size = SIZES[dtype]
    return {"A": BLOCK * BLOCK * size, "B": BLOCK * CONSUMERS * width * size}


def blocks_by_registers(per_sm: int = SM_REGISTERS) -> int:
    """Blocks for which an SM has registers, after they were moved."""
    return per_sm // (WARPGROUP * sum(REGISTERS))


def blocks_by_shared(width: int, per_sm: int = SM_SHARED, reserved: int = 1024) -> int:
    """Blocks for which an SM has shared memory, of STAGES stages each."""
    return per_sm // (STAGES * sum(stage_bytes(width).values()) + reserved)


def multicast_share(width: int) -> float:
    """What is left of the reads from L2 if A is read once for two blocks."""
    stage = stage_bytes(width)
    return (stage["A"] / 2 + stage["B"]) / (stage["A"] + stage["B"])


# ---------------------------------------------------------------- layers and models


def useful_tflops(table3: pd.DataFrame) -> pd.DataFrame:
    """TFLOP/s of BCSR in Table III by n (rows) and density (columns), as section IV defines them."""
    rows = table3[(table3["quantity"] == "latency") & (table3["variant"] == "opt5")]
    flops = 2.0 * 18944 * 3584 * rows["n"] * rows["density"]
    rows = rows.assign(tflops=flops / rows["low"] / 1e9, n=rows["n"].astype(int))
    return rows.pivot(index="n", columns="density", values="tflops").sort_index(axis=1, ascending=False)


def side_by_side(first: float, second: float) -> float:
    """The speedup of two savings in disjoint parts of one run time, from the speedup of either alone."""
    return 1 / (1 / first + 1 / second - 1)
