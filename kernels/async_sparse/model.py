"""How long a kernel for CSR takes, predicted from a matrix's statistics: to rank candidates, of which a few are tried.

Microseconds are a sum of terms, each with a weight of the kernel's that is not negative. The weights in model.csv
were fitted to what artifact/rooms/async_sparse/candidates.csv holds, by `fit.py` there: real matrices on an H200.
Elsewhere the ranking may be worse; what is chosen is measured all the same.
"""

from __future__ import annotations

import csv
import functools
from dataclasses import dataclass
from math import ceil
from pathlib import Path

import numpy as np

from ..contract import require
from . import tasks, union, windows
from .family import DTYPES
from .statistics import HEIGHTS, Statistics
from .union import Union
from .windows import Windows

FILE = Path(__file__).with_name("model.csv")
#: Of a launch: once; what is gathered of B, B and C once, what windows of 64 rows need of B, tasks, steps of the
#: longest task, whether windows are cut, the longest row.
TERMS = ("launch", "gathered", "dense", "least", "tasks", "steps", "cut", "longest")

_UNIONS = tuple(
    Union(rows, 4, loads, unroll, -1, order)
    for rows, loads, unroll in ((1, 1, 8), (1, 2, 4), (2, 1, 8), (2, 2, 4), (4, 1, 4), (4, 1, 8))
    for order in tasks.ORDERS
)
_EXACT = tuple(
    Windows(window, 1, True, -1, True, order) for window in (8, 16, 32) for order in tasks.ORDERS
)
_TF32 = tuple(
    Windows(window, 1, False, -1, True, order)
    for window in (8, 16, 32, 64)
    for order in tasks.ORDERS
)
#: accuracy -> configurations that have it. TF32 is where either the operands hold no more, or the caller wants no more.
POOLS: dict[str, tuple[Union | Windows, ...]] = {
    "fp32": _UNIONS + _EXACT,
    "tf32": _UNIONS + _EXACT + _TF32,
    #: Of 16-bit types, ranked by the weights of float32's groups, with half of the bytes.
    "half": tuple(c for c in _UNIONS if union.made_for(c, "bfloat16")),
}


def kernel(config: Union | Windows) -> str:
    """The name of a configuration's weights."""
    if isinstance(config, Union):
        return f"union_rows_{config.rows}_{config.loads}_{config.unroll}"
    return f"windows{'_exact' * config.exact}_{config.window}_{config.groups}"


def terms(
    config: Union | Windows, of: Statistics, n: int, dtype: str = "tf32"
) -> tuple[float, ...]:
    """`TERMS` of a launch, each in units that make its weight about 1; dtype: of B, "tf32" for float32."""
    size = DTYPES[dtype][1]
    if isinstance(config, Union):
        height, width = config.rows, union.columns_of(union.fitted(config, n, dtype), dtype)
        stored = of.union(height, config.order)
        chunk = union.chunk_of(config, stored, ceil(of.m / height))
        together = config.unroll
    else:
        height, width = config.window, windows.GROUP_COLUMNS * config.groups
        # Half of the padding to whole slices, on average.
        stored = of.union(height, config.order) + ceil(of.m / height) * 3.5
        chunk, together = windows.LEAST_CHUNK, tasks.STEP
    panels = ceil(n / width)
    return (
        1.0,
        stored * n * size / 8e6,
        (of.m + of.k) * n * size / 4e6,
        of.union(HEIGHTS[-1], config.order) * n * size / 8e6,
        ceil(of.m / height) * panels / 1e4,
        min(of.longest, chunk) / together / 10,
        float(of.longest > chunk),
        of.longest / 100,
    )


def predict(config: Union | Windows, of: Statistics, n: int, dtype: str = "tf32") -> float:
    """Microseconds of a launch on n columns."""
    of_kernel = weights()[kernel(config)]
    return sum(w * x for w, x in zip(of_kernel, terms(config, of, n, dtype), strict=True))


def candidates(accuracy: str, of: Statistics, n: int, most: int) -> list[Union | Windows]:
    """The fastest of `POOLS` by prediction, the best first, among those whose order of rows has statistics."""
    require(accuracy in POOLS, f"accuracy is {accuracy!r}, but must be one of {', '.join(POOLS)}")
    dtype = "bfloat16" if accuracy == "half" else "tf32"
    table = _table(accuracy, tuple(of.columns))
    if not table.pool:
        return []
    return [table.pool[i] for i in predictions(table, of, n, dtype).argsort(kind="stable")[:most]]


@dataclass(frozen=True)
class Table:
    """What `terms` looks at of each configuration of a pool; width: columns of a panel, of a union with `vec` of 1."""

    pool: tuple[Union | Windows, ...]
    order: np.ndarray
    height: np.ndarray
    union: np.ndarray
    vec: np.ndarray
    width: np.ndarray
    together: np.ndarray
    weights: np.ndarray


@functools.cache
def _table(accuracy: str, orders: tuple[str, ...]) -> Table:
    """Of the configurations of `POOLS` that have one of these orders of rows."""
    pool = tuple(config for config in POOLS[accuracy] if config.order in orders)
    rows = [
        (orders.index(c.order), c.rows, True, c.vec, 32 * c.loads, c.unroll)
        if isinstance(c, Union)
        else (orders.index(c.order), c.window, False, 1, windows.GROUP_COLUMNS * c.groups, tasks.STEP)
        for c in pool
    ]  # fmt: skip
    columns = map(np.array, zip(*rows, strict=True)) if rows else [np.zeros(0)] * 6
    return Table(pool, *columns, np.array([weights()[kernel(c)] for c in pool]))


def predictions(table: Table, of: Statistics, n: int, dtype: str) -> np.ndarray:
    """`predict` of all of them at once, in the time that it takes for one."""
    size = DTYPES[dtype][1]
    unions = np.array([of.columns[order] for order in of.columns])
    least = unions[table.order, -1]
    groups = np.ceil(of.m / table.height)
    stored = unions[table.order, _INDEX[table.height]] + 3.5 * groups * ~table.union
    vec = np.minimum(table.vec, union.fitting(4, n)) if dtype == "tf32" else 2 * table.vec
    width = np.where(table.union, table.width * vec, table.width)
    evenly = np.ceil(np.maximum(1, union.LONG * stored / np.maximum(1, groups)) / tasks.STEP)
    chunk = np.where(table.union, evenly * tasks.STEP, windows.LEAST_CHUNK)
    terms = np.empty((len(TERMS), len(table.pool)))
    terms[0] = 1
    terms[1] = stored * (n * size / 8e6)
    terms[2] = (of.m + of.k) * n * size / 4e6
    terms[3] = least * (n * size / 8e6)
    terms[4] = groups * np.ceil(n / width) / 1e4
    terms[5] = np.minimum(of.longest, chunk) / table.together / 10
    terms[6] = of.longest > chunk
    terms[7] = of.longest / 100
    return np.einsum("ct,tc->c", table.weights, terms)


#: Rows of a window -> the place of its columns in `Statistics.columns`.
_INDEX = np.zeros(HEIGHTS[-1] + 1, int)
_INDEX[list(HEIGHTS)] = range(len(HEIGHTS))


@functools.cache
def weights() -> dict[str, tuple[float, ...]]:
    """Kernel -> its weights of `TERMS`, as model.csv has them."""
    with FILE.open(newline="") as file:
        return {row["kernel"]: tuple(float(row[t]) for t in TERMS) for row in csv.DictReader(file)}
