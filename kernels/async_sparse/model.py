"""How long a kernel for CSR takes, predicted from a matrix's statistics: to rank candidates, of which a few are tried.

Microseconds are a sum of terms, each with a weight of the kernel's that is not negative. The weights in model.csv
were fitted to what artifact/rooms/async_sparse/candidates.csv holds, by `scripts.py` there: real matrices on an H200.
Elsewhere the ranking may be worse; what is chosen is measured all the same.
"""

from __future__ import annotations

import csv
import functools
from math import ceil
from pathlib import Path
from typing import NamedTuple

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
_EXACT = tuple(Windows(window, 1, True, -1, True, order) for window in (8, 16, 32) for order in tasks.ORDERS)
_TF32 = tuple(Windows(window, 1, False, -1, True, order) for window in (8, 16, 32, 64) for order in tasks.ORDERS)
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


def terms(config: Union | Windows, of: Statistics, n: int, dtype: str = "tf32") -> tuple[float, ...]:
    """`TERMS` of a launch, each in units that make its weight about 1; dtype: of B, "tf32" for float32."""
    size = DTYPES[dtype][1]
    if isinstance(config, Union):
        height, width = config.rows, union.columns_of(union.fitted(config, n, dtype), dtype)
        columns = of.union(height, config.order)
        stored: float = columns
        chunk = union.chunk_of(config, columns, ceil(of.m / height))
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
    times = predictions(table, of, n, dtype)
    return [table[i].config for i in sorted(range(len(table)), key=times.__getitem__)[:most]]


class _Row(NamedTuple):
    """What `terms` looks at of a configuration; width: columns of a panel, of a union with `vec` of 1."""

    config: Union | Windows
    order: str
    height: int
    place: int  #: of the height among `HEIGHTS`
    union: bool
    vec: int
    width: int
    together: int
    weights: tuple[float, ...]


@functools.cache
def _table(accuracy: str, orders: tuple[str, ...]) -> tuple[_Row, ...]:
    """Of the configurations of `POOLS` that have one of these orders of rows."""
    return tuple(
        _Row(c, c.order, c.rows, HEIGHTS.index(c.rows), True, c.vec, 32 * c.loads, c.unroll, weights()[kernel(c)])
        if isinstance(c, Union)
        else _Row(
            c,
            c.order,
            c.window,
            HEIGHTS.index(c.window),
            False,
            1,
            windows.GROUP_COLUMNS * c.groups,
            tasks.STEP,
            weights()[kernel(c)],
        )
        for c in POOLS[accuracy]
        if c.order in orders
    )


def predictions(table: tuple[_Row, ...], of: Statistics, n: int, dtype: str) -> list[float]:
    """`predict` of all of them, in the time that it takes for one or two: a plan without trials waits for it."""
    size, wide = DTYPES[dtype][1], 1 if dtype == "tf32" else 2
    most = union.fitting(4, n) if dtype == "tf32" else 4
    gathered, dense, longest = n * size / 8e6, (of.m + of.k) * n * size / 4e6, of.longest
    found = []
    for row in table:
        columns, groups = of.columns[row.order], ceil(of.m / row.height)
        stored: float = columns[row.place]
        width = row.width
        if row.union:
            width *= wide * min(row.vec, most)
            chunk = ceil(max(1, union.LONG * stored / max(1, groups)) / tasks.STEP) * tasks.STEP
        else:
            stored += 3.5 * groups
            chunk = windows.LEAST_CHUNK
        launch, per_gathered, per_dense, per_least, per_task, per_step, cut, per_longest = row.weights
        found.append(
            launch
            + per_gathered * stored * gathered
            + per_dense * dense
            + per_least * columns[-1] * gathered
            + per_task * groups * ceil(n / width) / 1e4
            + per_step * min(longest, chunk) / row.together / 10
            + cut * (longest > chunk)
            + per_longest * longest / 100
        )
    return found


@functools.cache
def weights() -> dict[str, tuple[float, ...]]:
    """Kernel -> its weights of `TERMS`, as model.csv has them."""
    with FILE.open(newline="", encoding="utf-8") as file:
        return {row["kernel"]: tuple(float(row[t]) for t in TERMS) for row in csv.DictReader(file)}
