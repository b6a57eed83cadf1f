"""What of a matrix decides which kernel for CSR is the fastest, and how long each takes by that.

To rank candidates, of which a few are tried.

Microseconds are a sum of terms, each with a weight of the kernel's that is not negative. The weights in model.csv
were fitted to what artifact/systems/async_sparse/candidates.csv holds, by `scripts.py` there: real matrices on an H200.
Elsewhere the ranking may be worse; what is chosen is measured all the same.
"""

import csv
import functools
from dataclasses import dataclass
from math import ceil
from operator import itemgetter, mul
from pathlib import Path

from ..contract import require
from ..formats import intake
from ..formats.csr import Csr
from . import tasks, union, windows
from .family import DTYPES
from .union import Union
from .windows import Windows

HEIGHTS = intake.HEIGHTS  #: rows of a window or group
FILE = Path(__file__).with_name("model.csv")
#: Of a launch: once; what is gathered of B, B and C once, what windows of 64 rows need of B, tasks, steps of the
#: longest task, whether windows are cut, the longest row.
TERMS = ("launch", "gathered", "dense", "least", "tasks", "steps", "cut", "longest")

_UNIONS = tuple(
    Union(rows, 4, loads, unroll, -1, order)
    for rows, loads, unroll in ((1, 1, 8), (1, 2, 4), (2, 1, 8), (2, 2, 4), (4, 1, 4), (4, 1, 8))
    for order in tasks.ORDERS
)
_EXACT = tuple(Windows(window, 1, True, -1, True, order) for window in (8, 16, 32) for order in tasks.ORDERS)
_TF32 = tuple(Windows(window, 1, False, -1, True, order) for window in (8, 16, 32, 64) for order in tasks.ORDERS)
#: accuracy -> configurations that have it. TF32 is where either the operands hold no more, or the caller wants no more.
POOLS: dict[str, tuple[Union | Windows, ...]] = {
    "fp32": _UNIONS + _EXACT,
    "tf32": _UNIONS + _EXACT + _TF32,
    #: Of 16-bit types, ranked by the weights of float32's groups, with half of the bytes.
    "half": tuple(c for c in _UNIONS if union.made_for(c, "bfloat16")),
}


# ---------------------------------------------------------------- what decides


@dataclass(frozen=True)
class Statistics:
    """Of an m x k matrix with nnz entries."""

    m: int
    k: int
    nnz: int
    longest: int  #: entries of the row that has most
    #: order of rows (`tasks.ORDERS`) -> for each of `HEIGHTS` the columns that windows of so many rows have together.
    columns: dict[str, tuple[int, ...]]
    ascending: bool = True  #: False: of some row columns do not ascend, or repeat, so groups of rows are costly to make


def statistics(a: Csr, at_a_glance: bool = False) -> Statistics:
    """Statistics of A by a sample of columns, in both orders of its rows.

    at_a_glance: in the given one alone, by the sample that its facts have.
    """
    facts = intake.facts_of(a)
    given = {"": facts.columns}
    columns = given if at_a_glance else {how: intake.shared(tasks.ordered(a, how)[1]) for how in tasks.ORDERS}
    return Statistics(a.m, a.k, a.nnz, facts.longest, columns, facts.ascending)


# ---------------------------------------------------------------- how long it takes


def kernel(config: Union | Windows) -> str:
    """Return the name of a configuration's weights."""
    if isinstance(config, Union):
        return f"union_rows_{config.rows}_{config.loads}_{config.unroll}"
    return f"windows{'_exact' * config.exact}_{config.window}_{config.groups}"


def terms(config: Union | Windows, of: Statistics, n: int, dtype: str = "tf32") -> tuple[float, ...]:
    """`TERMS` of a launch on n columns, each in units that make its weight about 1; dtype: of B, "tf32" for float32."""
    columns, gathered = of.columns[config.order], n * DTYPES[dtype][1] / 8e6
    if isinstance(config, Union):
        groups, width = ceil(of.m / config.rows), union.columns_of(union.fitted(config, n, dtype), dtype)
        stored: float = columns[HEIGHTS.index(config.rows)]
        chunk = ceil(max(1, union.LONG * stored / max(1, groups)) / tasks.STEP) * tasks.STEP
        together = config.unroll
    else:
        groups, width = ceil(of.m / config.window), windows.GROUP_COLUMNS * config.groups
        # Half of the padding to whole slices, on average.
        stored = columns[HEIGHTS.index(config.window)] + 3.5 * groups
        chunk, together = windows.LEAST_CHUNK, tasks.STEP
    return (
        1.0,
        stored * gathered,
        2 * (of.m + of.k) * gathered,
        columns[-1] * gathered,
        groups * ceil(n / width) / 1e4,
        min(of.longest, chunk) / together / 10,
        float(of.longest > chunk),
        of.longest / 100,
    )


def candidates(accuracy: str, of: Statistics, n: int) -> list[Union | Windows]:
    """Those of `POOLS` whose order of rows has statistics, the fastest by prediction first."""
    require(accuracy in POOLS, f"accuracy is {accuracy!r}, but must be one of {', '.join(POOLS)}")
    dtype = "bfloat16" if accuracy == "half" else "tf32"
    pool = ((c, w) for c, w in _weighed(accuracy) if c.order in of.columns)
    us = [(sum(map(mul, w, terms(c, of, n, dtype))), c) for c, w in pool]
    return [c for _, c in sorted(us, key=itemgetter(0))]


@functools.cache
def _weighed(accuracy: str) -> list[tuple[Union | Windows, tuple[float, ...]]]:
    return [(config, weights()[kernel(config)]) for config in POOLS[accuracy]]


@functools.cache
def weights() -> dict[str, tuple[float, ...]]:
    """Kernel -> its weights of `TERMS`, as model.csv has them."""
    with FILE.open(newline="", encoding="utf-8") as file:
        return {row["kernel"]: tuple(float(row[t]) for t in TERMS) for row in csv.DictReader(file)}
