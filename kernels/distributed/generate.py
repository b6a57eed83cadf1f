"""Matrices larger than a GPU's memory, made on the devices from a seed: each rank its own rows, a CPU any row again.

    Rmat      a power-law graph of 2^scale vertices: Chakrabarti, Zhan and Faloutsos, "R-MAT: A Recursive Model for
              Graph Mining", SDM 2004, with Graph500's a, b, c = 0.57, 0.19, 0.19
    Stencil   27 points on a cubic grid: a mesh

An R-MAT's edges are independent, so a row's columns can be drawn given the row, and its number of entries alone: here
that is the mean of R-MAT's binomial distribution, rounded at random. Repeated entries stay, and add up.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from .. import jit, splitmix
from ..contract import require, require_seed, require_whole
from ..formats.csr import Csr
from ..lazy import cupy
from . import partition
from .plans import Panels, Part

SOURCE = Path(__file__).with_name("generate.cu")
ENTRIES = ("rmat_lengths", "rmat_entries", "stencil_entries", "dense_rows")
THREADS = 256
_VALUE = 15  # as in generate.cu
_LENGTHS, _ENTRIES, _DENSE = range(3)  # streams of a seed
_MOST_BLOCKS = 2**16


@dataclass(frozen=True)
class Rmat:
    """2^scale rows and columns, `degree` entries a row on average."""

    scale: int
    degree: float
    seed: int = 0
    a: float = 0.57
    b: float = 0.19
    c: float = 0.19

    def __post_init__(self):
        require_whole("scale", self.scale, 2, 28)  # a position has 28 bits for a row
        require_seed(self.seed)
        require(self.degree > 0, f"degree is {self.degree!r}, but must be over 0")
        d = 1 - self.a - self.b - self.c
        require(
            min(self.a, self.b, self.c, d) > 0,
            f"a, b, c are {self.a}, {self.b}, {self.c}, but must be shares over 0 that leave one over 0",
        )

    @property
    def m(self) -> int:
        """Return the number of rows, which is that of columns."""
        return 1 << self.scale

    def _mean(self) -> np.ndarray:
        """Entries of a row by the 1 bits of its vertex."""
        ones = np.arange(self.scale + 1)
        upper = self.a + self.b
        return self.degree * self.m * upper ** (self.scale - ones) * (1 - upper) ** ones

    def _thresholds(self) -> tuple[int, int]:
        upper = self.b / (self.a + self.b)
        lower = (1 - self.a - self.b - self.c) / (1 - self.a - self.b)
        return round(65536 * upper), round(65536 * lower)

    def _factors(self) -> tuple[int, int]:
        """Odd, of the bijection from rows to vertices."""
        drawn = splitmix.random_u32(splitmix.key(self.seed, _LENGTHS), np.array([2**40, 2**40 + 1], np.uint64))
        first, second = (int(x) % self.m | 1 for x in drawn)
        return first, second

    def _back(self) -> tuple[int, int]:
        first, second = self._factors()
        return pow(second, -1, self.m), pow(first, -1, self.m)

    def _folded(self, x):
        return x ^ x >> np.uint64((self.scale + 1) // 2)

    def vertices(self, rows: np.ndarray) -> np.ndarray:
        """Return the vertex of R-MAT that each row is: uint64."""
        x, mask = rows.astype(np.uint64), np.uint64(self.m - 1)
        for factor in self._factors():
            x = self._folded(x * np.uint64(factor) & mask)
        return x

    def rows_of(self, vertices: np.ndarray) -> np.ndarray:
        """Return the other way round: uint64."""
        x, mask = vertices.astype(np.uint64), np.uint64(self.m - 1)
        for factor in self._back():
            x = self._folded(x) * np.uint64(factor) & mask
        return x

    def lengths(self, rows: np.ndarray) -> np.ndarray:
        """Entries of each of some rows: int32."""
        drawn = splitmix.random_u32(splitmix.key(self.seed, _LENGTHS), rows.astype(np.uint64))
        mean = self._mean()[np.bitwise_count(self.vertices(rows))]
        return np.floor(mean + (drawn + 0.5) * 2.0**-32).astype(np.int32)

    def row(self, row: int) -> tuple[np.ndarray, np.ndarray]:
        """(columns int32, values float32) of a row, with NumPy."""
        count = int(self.lengths(np.array([row]))[0])
        key, entry = splitmix.key(self.seed, _ENTRIES), np.arange(count, dtype=np.uint64)
        vertex = int(self.vertices(np.array([row]))[0])
        upper, lower = self._thresholds()
        column = np.zeros(count, np.uint64)
        for level in range(self.scale):
            if level % 2 == 0:
                drawn = splitmix.random_u32(key, _position(row, entry, level // 2))
            part = drawn >> np.uint64(16) if level % 2 == 0 else drawn & np.uint64(0xFFFF)
            low = vertex >> (self.scale - 1 - level) & 1
            column = column << np.uint64(1) | (part < (lower if low else upper))
        return self.rows_of(column).astype(np.int32), _values(key, row, entry)

    def device_lengths(self, begin: int, end: int):
        """Return the lengths of rows begin to end - 1, made on the GPU."""
        made = cupy.empty(end - begin, cupy.int32)
        mean = cupy.asarray(self._mean())
        first, second = self._factors()
        _launch(
            "rmat_lengths",
            end - begin,
            np.int32(end - begin),
            np.uint64(begin),
            np.int32(self.scale),
            np.uint32(first),
            np.uint32(second),
            np.uint64(splitmix.key(self.seed, _LENGTHS)),
            mean.data.ptr,
            made.data.ptr,
        )
        cupy.cuda.get_current_stream().synchronize()  # `mean` goes
        return made

    def _fill(self, begin: int, rows: int, row_ptr, col_idx, val) -> None:
        pairs = (*self._factors(), *self._back(), *self._thresholds())
        _launch(
            "rmat_entries",
            32 * rows,
            np.int32(rows),
            np.uint64(begin),
            np.int32(self.scale),
            *map(np.uint32, pairs),
            np.uint64(splitmix.key(self.seed, _ENTRIES)),
            row_ptr.data.ptr,
            col_idx.data.ptr,
            val.data.ptr,
        )


@dataclass(frozen=True)
class Stencil:
    """side^3 points, each with its neighbours in a cube of 3 x 3 x 3 and itself, as far as they are on the grid."""

    side: int
    seed: int = 0

    def __post_init__(self):
        require_whole("side", self.side, 1, 1290)  # 1290^3 < 2^31: columns have 32 bits
        require_seed(self.seed)

    @property
    def m(self) -> int:
        """Return the number of rows, which is that of columns."""
        return self.side**3

    def lengths(self, rows: np.ndarray) -> np.ndarray:
        """Entries of each of some rows: int32; NumPy or CuPy."""
        g = self.side
        x, y, z = (3 - (at == 0) - (at == g - 1) for at in (rows % g, rows // g % g, rows // (g * g)))
        return (x * y * z).astype(np.int32)

    def row(self, row: int) -> tuple[np.ndarray, np.ndarray]:
        """(columns int32, values float32) of a row, with NumPy."""
        g = self.side
        at = row % g, row // g % g, row // (g * g)
        near = np.array([(x, y, z) for z in (-1, 0, 1) for y in (-1, 0, 1) for x in (-1, 0, 1)], np.int64)
        there = near + at
        there = there[((there >= 0) & (there < g)).all(axis=1)]
        columns = (there[:, 2] * g + there[:, 1]) * g + there[:, 0]
        key = splitmix.key(self.seed, _ENTRIES)
        drawn = np.uint64(row << 5) | np.arange(len(there), dtype=np.uint64)
        return columns.astype(np.int32), splitmix.symmetric(splitmix.random_u32(key, drawn))

    def device_lengths(self, begin: int, end: int):
        """Return the lengths of rows begin to end - 1, made on the GPU."""
        return self.lengths(cupy.arange(begin, end, dtype=cupy.int64))

    def _fill(self, begin: int, rows: int, row_ptr, col_idx, val) -> None:
        _launch(
            "stencil_entries",
            rows,
            np.int32(rows),
            np.uint64(begin),
            np.int32(self.side),
            np.uint64(splitmix.key(self.seed, _ENTRIES)),
            row_ptr.data.ptr,
            col_idx.data.ptr,
            val.data.ptr,
        )


Generated = Rmat | Stencil


def edges(made: Generated, parts: int) -> np.ndarray:
    """int64 (parts + 1,): its rows balanced by non-zeros; on the current GPU."""
    return partition.by_nonzeros(_row_ptr(made.device_lengths(0, made.m)), parts)


def part(made: Generated, rows: np.ndarray, rank: int) -> Part:
    """Return a rank's rows, made on the current GPU; in slabs where 32 bits do not count their entries."""
    begin, end = int(rows[rank]), int(rows[rank + 1])
    offsets = _row_ptr(made.device_lengths(begin, end))
    found = []
    for first, last in partition.slabs(offsets):
        row_ptr = (offsets[first : last + 1] - offsets[first]).astype(cupy.int32)
        nnz = int(offsets[last]) - int(offsets[first])
        col_idx, val = cupy.empty(nnz, cupy.int32), cupy.empty(nnz, cupy.float32)
        if nnz:
            made._fill(begin + first, last - first, row_ptr, col_idx, val)
        found.append(Csr(last - first, made.m, row_ptr, col_idx, val))
    return Part(found if len(found) > 1 else found[0], rows)


def host_part(made: Generated, rows: np.ndarray, rank: int) -> Part:
    """Return the same rows with NumPy, row by row: for small matrices."""
    begin, end = int(rows[rank]), int(rows[rank + 1])
    found = [made.row(row) for row in range(begin, end)]
    row_ptr = np.concatenate([[0], np.cumsum([len(c) for c, _ in found])]).astype(np.int32)
    nothing = [(np.zeros(0, np.int32), np.zeros(0, np.float32))]
    col_idx, val = (np.concatenate(x) for x in zip(*(found or nothing), strict=True))
    return Part(Csr(end - begin, made.m, row_ptr, col_idx, val), rows)


def fill_dense(panels: Panels, begin: int, seed: int) -> None:
    """Fill rows begin … of a dense matrix by position, on the current GPU: `dense` has the same numbers."""
    n, key = panels.edges[-1], np.uint64(splitmix.key(seed, _DENSE))
    for array, right in zip(panels.arrays, panels.edges, strict=False):
        if array.size:
            _launch(
                "dense_rows",
                min(array.size, _MOST_BLOCKS * THREADS),
                np.uint64(array.size),
                np.int32(array.shape[1]),
                np.uint64(begin),
                np.uint64(right),
                np.uint64(n),
                key,
                array.data.ptr,
            )


def dense(rows: np.ndarray, columns: np.ndarray, n: int, seed: int) -> np.ndarray:
    """float32 (rows, columns): some elements of the dense matrix with n columns."""
    at = rows.astype(np.uint64)[:, None] * np.uint64(n) + columns.astype(np.uint64)
    return splitmix.symmetric(splitmix.random_u32(splitmix.key(seed, _DENSE), at))


def expected(made: Generated, row: int, columns: np.ndarray, n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """(float64 elements of a row of C = A · B, their sums of magnitudes), made anew on the CPU."""
    names, values = made.row(row)
    products = values.astype(np.float64)[:, None] * dense(names, columns, n, seed)
    return products.sum(axis=0), np.abs(products).sum(axis=0)


def _row_ptr(lengths):
    """int64 (rows + 1,) from int32 lengths, CuPy."""
    made = cupy.zeros(lengths.shape[0] + 1, cupy.int64)
    made[1:] = cupy.cumsum(lengths, dtype=cupy.int64)
    return made


def _position(row: int, entry: np.ndarray, which: int) -> np.ndarray:
    return np.uint64(row << 36 | which) | entry << np.uint64(4)


def _values(key: int, row: int, entry: np.ndarray) -> np.ndarray:
    return splitmix.symmetric(splitmix.random_u32(key, _position(row, entry, _VALUE)))


def _launch(entry: str, threads: int, *arguments) -> None:
    if threads:
        jit.run_on_cupy_stream(SOURCE, entry, threads, THREADS, *arguments)
