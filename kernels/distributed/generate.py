"""Matrices larger than a GPU's memory, made on the devices from a seed: each rank its own rows, a CPU any row again.

    Rmat      a power-law graph of 2^scale vertices: Chakrabarti, Zhan and Faloutsos, "R-MAT: A Recursive Model for
              Graph Mining", SDM 2004, with Graph500's a, b, c = 0.57, 0.19, 0.19
    Stencil   27 points on a cubic grid: a mesh

An R-MAT's edges are independent, so a row's columns can be drawn given the row, and its number of entries alone: here
that is the mean of R-MAT's binomial distribution, rounded at random. Repeated entries stay, and add up.
"""

from dataclasses import dataclass
from itertools import product
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
#: Shares of R-MAT's quadrants above, a + b, and of 65536 how often a column's bit is 1 where the row's is 0, or 1.
A, B, C = 0.57, 0.19, 0.19
UPPER = A + B
THRESHOLDS = round(65536 * B / UPPER), round(65536 * (1 - UPPER - C) / (1 - UPPER))
_VALUE = 15  # as in generate.cu
_LENGTHS, _ENTRIES, _DENSE = range(3)  # streams of a seed
_MOST_BLOCKS = 2**16


@dataclass(frozen=True)
class Rmat:
    """2^scale rows and columns, `degree` entries a row on average."""

    scale: int
    degree: float
    seed: int = 0

    def __post_init__(self):
        require_whole("scale", self.scale, 2, 28)  # a position has 28 bits for a row
        require_seed(self.seed)
        require(self.degree > 0, f"degree is {self.degree!r}, but must be over 0")

    @property
    def m(self) -> int:
        """Return the number of rows, which is that of columns."""
        return 1 << self.scale

    def _mean(self) -> np.ndarray:
        """Entries of a row by the 1 bits of its vertex."""
        ones = np.arange(self.scale + 1)
        return self.degree * self.m * UPPER ** (self.scale - ones) * (1 - UPPER) ** ones

    def _factors(self) -> tuple[int, ...]:
        """Odd, of the bijection from rows to vertices, two, and back, two."""
        drawn = splitmix.random_u32(splitmix.key(self.seed, _LENGTHS), np.array([2**40, 2**40 + 1], np.uint64))
        there = [int(x) % self.m | 1 for x in drawn]
        return *there, *(pow(x, -1, self.m) for x in reversed(there))

    def _folded(self, x):
        return x ^ x >> np.uint64((self.scale + 1) // 2)

    def vertices(self, rows: np.ndarray) -> np.ndarray:
        """Return the vertex of R-MAT that each row is: uint64."""
        x, mask = rows.astype(np.uint64), np.uint64(self.m - 1)
        for factor in self._factors()[:2]:
            x = self._folded(x * np.uint64(factor) & mask)
        return x

    def rows_of(self, vertices: np.ndarray) -> np.ndarray:
        """Return the other way round: uint64."""
        x, mask = vertices.astype(np.uint64), np.uint64(self.m - 1)
        for factor in self._factors()[2:]:
            x = self._folded(x) * np.uint64(factor) & mask
        return x

    def lengths(self, rows: np.ndarray) -> np.ndarray:
        """Entries of each of some rows: int32."""
        drawn = splitmix.random_u32(splitmix.key(self.seed, _LENGTHS), rows.astype(np.uint64))
        mean = self._mean()[np.bitwise_count(self.vertices(rows))]
        return np.floor(mean + (drawn + 0.5) * 2.0**-32).astype(np.int32)

    def row(self, row: int) -> tuple[np.ndarray, np.ndarray]:
        """(columns int32, values float32) of a row, with NumPy."""
        (count,), (vertex,) = self.lengths(np.array([row])), self.vertices(np.array([row]))
        key, entry, level = (
            splitmix.key(self.seed, _ENTRIES),
            splitmix.positions(range(count)),
            splitmix.positions(range(self.scale)),
        )
        place = np.uint64(self.scale - 1) - level
        # 32 random bits are drawn for two levels, 16 for each.
        drawn = splitmix.random_u32(key, _position(row, entry[:, None], level // np.uint64(2)))
        part = drawn >> np.where(level % 2 == 0, np.uint64(16), np.uint64(0)) & np.uint64(0xFFFF)
        ones = part < np.where(vertex >> place & np.uint64(1), *reversed(THRESHOLDS))
        column = (ones.astype(np.uint64) << place).sum(axis=1, dtype=np.uint64)
        drawn = splitmix.random_u32(key, _position(row, entry, _VALUE))
        return self.rows_of(column).astype(np.int32), splitmix.symmetric(drawn)

    def device_lengths(self, begin: int, end: int):
        """Return the lengths of rows begin to end - 1, made on the GPU."""
        made, mean = cupy.empty(end - begin, cupy.int32), cupy.asarray(self._mean())
        given = np.int32(self.scale), *map(np.uint32, self._factors()[:2]), np.uint64(splitmix.key(self.seed, _LENGTHS))
        _launch("rmat_lengths", 1, end - begin, begin, *given, mean, made)
        cupy.cuda.get_current_stream().synchronize()  # `mean` goes
        return made

    def _entries(self) -> tuple:
        """Return what makes entries: its name, threads for each row, and what it is given of the matrix."""
        return "rmat_entries", 32, np.int32(self.scale), *map(np.uint32, (*self._factors(), *THRESHOLDS))


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
        scale = self.side ** np.arange(3)
        there = row // scale % self.side + np.array([*product((-1, 0, 1), repeat=3)])[:, ::-1]
        columns = (there * scale).sum(axis=1)[((there >= 0) & (there < self.side)).all(axis=1)]
        drawn = splitmix.random_u32(
            splitmix.key(self.seed, _ENTRIES), np.uint64(row << 5) | splitmix.positions(range(len(columns)))
        )
        return columns.astype(np.int32), splitmix.symmetric(drawn)

    def device_lengths(self, begin: int, end: int):
        """Return the lengths of rows begin to end - 1, made on the GPU."""
        return self.lengths(cupy.arange(begin, end, dtype=cupy.int64))

    def _entries(self) -> tuple:
        return "stencil_entries", 1, np.int32(self.side)


Generated = Rmat | Stencil


def edges(made: Generated, parts: int) -> np.ndarray:
    """int64 (parts + 1,): its rows balanced by non-zeros; on the current GPU."""
    return partition.by_nonzeros(_row_ptr(made.device_lengths(0, made.m)), parts)


def part(made: Generated, rows: np.ndarray, rank: int) -> Part:
    """Return a rank's rows, made on the current GPU; in slabs where 32 bits do not count their entries."""
    begin, found, (entry, threads, *given) = int(rows[rank]), [], made._entries()
    given.append(np.uint64(splitmix.key(made.seed, _ENTRIES)))
    offsets = _row_ptr(made.device_lengths(begin, int(rows[rank + 1])))
    for first, last in partition.slabs(offsets):
        row_ptr = (offsets[first : last + 1] - offsets[first]).astype(cupy.int32)
        nnz = int(offsets[last]) - int(offsets[first])
        col_idx, val = cupy.empty(nnz, cupy.int32), cupy.empty(nnz, cupy.float32)
        if nnz:
            _launch(entry, threads, last - first, begin + first, *given, row_ptr, col_idx, val)
        found.append(Csr(last - first, made.m, row_ptr, col_idx, val))
    return Part(found if len(found) > 1 else found[0], rows)


def host_part(made: Generated, rows: np.ndarray, rank: int) -> Part:
    """Return the same rows with NumPy, row by row: for small matrices."""
    every = range(int(rows[rank]), int(rows[rank + 1]))
    columns, values = zip((np.zeros(0, np.int32), np.zeros(0, np.float32)), *map(made.row, every), strict=True)
    row_ptr = np.cumsum([len(x) for x in columns]).astype(np.int32)
    return Part(Csr(len(every), made.m, row_ptr, np.concatenate(columns), np.concatenate(values)), rows)


def fill_dense(panels: Panels, begin: int, seed: int) -> None:
    """Fill rows begin … of a dense matrix by position, on the current GPU: `dense` has the same numbers."""
    n, key = panels.edges[-1], splitmix.key(seed, _DENSE)
    for array, right in zip(panels.arrays, panels.edges, strict=False):
        if array.size:
            threads = min(array.size, _MOST_BLOCKS * THREADS)
            sizes = np.uint64(array.size), np.int32(array.shape[1]), *map(np.uint64, (begin, right, n, key))
            jit.run_on_cupy_stream(SOURCE, "dense_rows", threads, THREADS, *sizes, array.data.ptr)


def dense(rows: np.ndarray, columns: np.ndarray, n: int, seed: int) -> np.ndarray:
    """float32 (rows, columns): some elements of the dense matrix with n columns."""
    at = rows.astype(np.uint64)[:, None] * np.uint64(n) + columns.astype(np.uint64)
    return splitmix.symmetric(splitmix.random_u32(splitmix.key(seed, _DENSE), at))


def _row_ptr(lengths):
    """int64 (rows + 1,) from int32 lengths, CuPy."""
    return cupy.concatenate((cupy.zeros(1, cupy.int64), cupy.cumsum(lengths, dtype=cupy.int64)))


def _position(row: int, entry: np.ndarray, which) -> np.ndarray:
    return np.uint64(row << 36) | entry << np.uint64(4) | np.uint64(which)


def _launch(entry: str, threads: int, rows: int, begin: int, *given) -> None:
    """Run a kernel on so many rows from `begin` on, `threads` of it for each; given: NumPy's scalars, CuPy's arrays."""
    if rows:
        arguments = (x if isinstance(x, np.generic) else x.data.ptr for x in given)
        jit.run_on_cupy_stream(SOURCE, entry, threads * rows, THREADS, np.int32(rows), np.uint64(begin), *arguments)
