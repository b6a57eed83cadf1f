"""Vector-wise N:M: of every M consecutive rows, each vector of L neighbouring columns keeps N.

2:4 with L = 2, so that two columns share their rows; the last group has one row, so it is padded:

              n = 4                  val                   index
       0   a b | . .               a b | f g               0   1      row of each vector,
   k   1   . . | f g    group 0    c d | h i    w = 4      2   2      ascending in a group
   =   2   c d | h i    = M rows   ---------               -----
   5   3   . . | . .               r s | t u               4   4
           ---------               0 0 | 0 0               4   4      surplus: the last row again,
       4   r s | t u    group 1                            q = 2      with zeros

w = ceil(k / M) * N compressed rows, q = ceil(n / L) vectors. Where k is no multiple of M, the last
group is shorter; where n is no multiple of L, the last vector is narrower. A group that has fewer
rows than N keeps them all, and its surplus compressed rows repeat its last row with the value 0, so
every index is a row of the matrix and products need no special case.

L = 1 is the element-wise N:M of Zeng, "GPU Accelerated Structured Sparsity Matrix Multiplication",
section 3.1 and Fig. 1; L > 1 the vector-wise one of NM-SpMM, section II-A and Fig. 1, whose index
holds positions within a group where this one holds rows of the whole matrix.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..contract import require, require_seed, require_whole
from . import compress as on_gpu
from .arrays import Arrays, array_module, checked, require_arrays, require_none, require_share, to_device, to_host  # noqa: F401 (for callers)
from .csr import INT32_MAX

#: Elements of the dense matrix worked on at a time, to bound the temporaries. `random` draws chunk by
#: chunk, so another value gives other matrices.
_CHUNK = 1 << 22


@dataclass(frozen=True)
class Nm(Arrays):
    """A sparse k x n matrix, N:M along k; the arrays are NumPy's or CuPy's, both on one side.

    val: float32 (w, n) row-major; index: int32 (w, q) row-major, rows 0 to k - 1.
    """

    k: int
    n: int
    keep: int  #: N of N:M
    group: int  #: M of N:M, consecutive rows
    vector: int  #: L, neighbouring columns that share their indices; 1 is element-wise N:M
    val: Any
    index: Any

    @property
    def w(self) -> int:
        """Compressed rows, surplus ones included."""
        return math.ceil(self.k / self.group) * self.keep

    @property
    def real(self) -> int:
        """Compressed rows without surplus ones."""
        return self.w - max(0, self.keep - (self.k - (self.k - 1) // self.group * self.group))

    @property
    def q(self) -> int:
        """Vectors of a row."""
        return math.ceil(self.n / self.vector)

    @property
    def nnz(self) -> int:
        """Stored values, explicit zeros included."""
        return self.w * self.n


def keep_of(density: float, group: int) -> int:
    """N of the N:M pattern with M = group and that density.

    Raises ValueError that names the nearest densities where density * group is no whole number
    from 1 to group.
    """
    group = require_whole("N:M group", group, 1, INT32_MAX, "2^31 - 1")
    exact = require_share("N:M density", density) * group
    keep = round(exact)
    # The tolerance takes 1 - 0.9 for 1:10, although that is 0.09999999999999998.
    if keep >= 1 and abs(exact - keep) < 1e-6:
        return keep
    nearest = sorted({max(math.floor(exact), 1), math.ceil(exact) or 1})
    choices = " or ".join(f"{x / group} ({x}:{group})" for x in nearest)
    raise ValueError(f"density {density} is not N/{group} for a whole N from 1 to {group}: choose {choices}")


def random(k: int, n: int, keep: int, group: int, vector: int, seed: int) -> Nm:
    """Return a random pattern with random values, on the host; the same bits for the same arguments.

    Values are uniform in (0, 1]; each vector's rows are drawn uniformly without replacement from
    its group (selection sampling: Knuth, The Art of Computer Programming, 3.4.2, algorithm S).
    Raises ValueError where the sizes make no matrix, or for a seed outside 0 to 2^32 - 1.
    """
    k, n, keep, group, vector = _sizes(k, n, keep, group, vector)
    require_seed(seed)
    rng = np.random.default_rng([int(seed), k, n, keep, group, vector])
    q = math.ceil(n / vector)

    def draw(groups: range, row: int, rows: int) -> np.ndarray:
        return rng.integers(0, rows - row, (len(groups), q), np.min_scalar_type(rows))

    index = sampled(k, keep, group, q, draw)
    val = rng.random((len(index), n), np.float32)
    np.subtract(1, val, out=val)  # [0, 1) to (0, 1], exactly: both are multiples of 2^-24
    b = Nm(k, n, keep, group, vector, val, index)
    val[b.real :] = 0
    return b


def compress(dense, keep: int, group: int, vector: int, prune: bool = False) -> Nm:
    """Return the N:M form of a real (k, n) array, NumPy or CuPy, on the side where the array lives.

    The array is rounded to float32 first where it has another dtype. With `prune`, each vector
    keeps the `keep` rows of a group with the largest sums of magnitudes, the lower row where sums
    are equal; a sum that is no number counts as infinite. NumPy and CuPy choose the same rows.
    A vector with fewer non-zero rows than `keep` stores its lowest zero rows too.

    Raises ValueError that names group, vector and count where more rows than `keep` are non-zero
    and `prune` is not set, and where the array is not 2-dimensional and real.
    """
    xp = array_module(dense)
    dense = xp.asarray(dense)
    require(
        dense.ndim == 2 and dense.dtype.kind in "fiub",
        f"an N:M matrix is made from a real 2-dimensional array, but the given one is {dense.ndim}-dimensional "
        f"{dense.dtype}",
    )
    k, n, keep, group, vector = _sizes(dense.shape[0], dense.shape[1], keep, group, vector)
    if xp is not np:
        dense = dense if dense.dtype == np.float32 else on_gpu.float32(dense)[0]
        val, index, wrong = on_gpu.nm(dense, keep, group, vector, prune)
        if wrong is not None:
            raise _too_many(dense, wrong, keep, group, vector)
        return Nm(k, n, keep, group, vector, val, index)
    b, lanes = _empty(k, n, keep, group, vector), min(vector, n)
    for start, stop, first, last in _chunks(k, keep, group, n):
        groups = math.ceil((stop - start) / group)
        rows, taken = (stop - start) // groups, (last - first) // groups
        padded = np.zeros((stop - start, b.q * lanes), np.float32)
        padded[:, :n] = dense[start:stop]
        cells = padded.reshape(groups, rows, b.q, lanes)
        if prune:
            scores = _sums(np.abs(cells).astype(np.float64))
            scores = np.where(np.isnan(scores), np.inf, scores)
        else:
            scores = (cells != 0).any(axis=-1).astype(np.int8)
            crowded = scores.sum(axis=1) > keep
            if crowded.any():
                raise _too_many(dense, start // group * b.q + int(crowded.argmax()), keep, group, vector)
        local = np.sort(np.argsort(-scores, axis=1, kind="stable")[:, :taken], axis=1)
        values = np.take_along_axis(cells, local[..., None], axis=1)
        b.val[first:last] = values.reshape(-1, b.q * lanes)[:, :n]
        b.index[first:last] = (local + np.arange(start, stop, rows)[:, None, None]).reshape(-1, b.q)
    return b


def _empty(k: int, n: int, keep: int, group: int, vector: int) -> Nm:
    """Return a matrix on the host all of whose rows are surplus."""
    w, q = math.ceil(k / group) * keep, math.ceil(n / vector)
    return Nm(k, n, keep, group, vector, np.zeros((w, n), np.float32), np.full((w, q), k - 1, np.int32))


def validate(b: Nm) -> Nm:
    """Return `b`, or raise ValueError: one sentence, which array is wrong and where."""
    k, n, keep, group, vector = _sizes(b.k, b.n, b.keep, b.group, b.vector)
    where = f" where k = {k} and n = {n} at {keep}:{group} with vectors of {vector}"
    require_arrays("N:M", b, {"val": (np.float32, (b.w, n)), "index": (np.int32, (b.w, b.q))}, where)
    sizes = map(np.int64, (k, n, keep, group, b.w, b.q, b.w - b.real))
    return checked(b, ("nm", b.index.size, b.index, b.val, *sizes), _require_right)


def _require_right(b: Nm) -> None:
    real, groups = b.real, np.arange(b.w) // b.keep
    low = (groups * b.group).astype(np.int32)[:, None]  # as int32, comparing needs no wide copy of the index
    high = np.minimum(low, b.k - b.group) + b.group
    require_none(
        (b.index < low) | (b.index >= high),
        lambda at: (
            f"N:M {_place(b, at)}, outside the rows {low[at // b.q, 0]} to {high[at // b.q, 0] - 1} of group "
            f"{groups[at // b.q]}"
        ),
    )
    # From group to group the rows rise anyway, after the check above.
    require_none(
        b.index[1:real] <= b.index[: real - 1],
        lambda at: (
            f"N:M index goes from {b.index.flat[at]} to {b.index.flat[at + b.q]} at [{at // b.q + 1}, {at % b.q}], but "
            f"must ascend within group {groups[at // b.q]}"
        ),
    )
    require_none(
        b.index[real:] != b.k - 1,
        lambda at: f"N:M {_place(b, real * b.q + at)}, but a surplus row must repeat the last row, {b.k - 1}",
    )
    require_none(
        b.val[real:] != 0,
        lambda at: f"N:M val[{real + at // b.n}, {at % b.n}] is {b.val[real:].flat[at]}, but a surplus row must be 0",
    )


def _place(b: Nm, at: int) -> str:
    return f"index[{at // b.q}, {at % b.q}] is {b.index.flat[at]}"


def to_dense(b: Nm):
    """(k, n) float32 array, row-major, on the side where `b` lives."""
    xp = b.xp
    dense = xp.zeros((b.k, b.n), xp.float32)
    columns = xp.arange(b.n)
    # Surplus rows are left out: they would overwrite the row that they repeat.
    for start, stop, first, last in _chunks(b.k, b.keep, b.group, b.n):
        rows = xp.take(b.index[first:last], columns // b.vector, axis=1) - start
        dense[start:stop][rows, columns] = b.val[first:last]
    return dense


def per_column_index(b: Nm):
    """int32 (w, n) row-major: the row of every value, each index repeated for its vector's columns.

    The form that the report's kernels read. It lives where `b` lives and is always a copy.
    """
    return b.xp.take(b.index, b.xp.arange(b.n) // b.vector, axis=1)


def _sizes(k, n, keep, group, vector) -> tuple[int, int, int, int, int]:
    """Return the same as Python's integers, because NumPy's would wrap in the products."""
    sizes = (("k", k), ("n", n), ("group", group), ("vector", vector))
    k, n, group, vector = (require_whole(f"N:M {name}", x, 1, INT32_MAX, "2^31 - 1") for name, x in sizes)
    return k, n, require_whole("N:M keep", keep, 1, group), group, vector


def _chunks(k: int, keep: int, group: int, columns: int):
    """Yield runs of whole groups as (first row, end, first compressed row, end), surplus rows left out.

    A short last group is a run of its own, so all groups of a run have the same number of rows.
    """
    step = max(1, _CHUNK // (group * columns))
    whole = k // group
    for start in range(0, whole, step):
        stop = min(start + step, whole)
        yield start * group, stop * group, start * keep, stop * keep
    rest = k - whole * group
    if rest:
        yield whole * group, k, whole * keep, whole * keep + min(keep, rest)


def sampled(k: int, keep: int, group: int, q: int, draw: Callable[[range, int, int], np.ndarray]) -> np.ndarray:
    """Return the rows that each of q vectors keeps, every choice equally likely: int32 (w, q), by algorithm S.

    draw: of some groups, a row of them, and how many rows they have: for each of these groups and vectors a whole
    number from 0 to rows - row - 1.
    """
    index = np.full((math.ceil(k / group) * keep, q), k - 1, np.int32)
    for start, stop, first, last in _chunks(k, keep, group, q):
        groups = range(start // group, math.ceil(stop / group))
        rows, taken = (stop - start) // len(groups), (last - first) // len(groups)
        left = np.full((len(groups), q), taken, np.min_scalar_type(rows))
        kept = np.empty((*left.shape, rows), bool)
        for row in range(rows):
            # Of the rows - row that are left, `left` are still to be taken: with integers, exactly.
            kept[:, :, row] = draw(groups, row, rows) < left
            left -= kept[:, :, row]
        local = (np.flatnonzero(kept) % rows).reshape(len(groups), q, taken).transpose(0, 2, 1)
        index[first:last] = (local + np.arange(start, stop, rows)[:, None, None]).reshape(-1, q)
    return index


def _sums(cells):
    """Return sums over the last axis, pair by pair: an order that NumPy shares with the kernel, to the last bit."""
    while (width := cells.shape[-1]) > 1:
        pairs = cells[..., 0 : width - 1 : 2] + cells[..., 1::2]
        if width % 2:
            pairs[..., -1] += cells[..., -1]
        cells = pairs
    return cells[..., 0]


def _too_many(dense, wrong: int, keep: int, group: int, vector: int) -> ValueError:
    """Return the error on more rows that are not 0 than `keep`.

    wrong: group · vectors + vector of the first such place.
    """
    k, n = dense.shape
    g, v = divmod(wrong, math.ceil(n / vector))
    rows, columns = range(g * group, min(k, (g + 1) * group)), range(v * vector, min(n, (v + 1) * vector))
    used = dense[rows.start : rows.stop, columns.start : columns.stop]
    if not isinstance(used, np.ndarray):
        used = on_gpu.contiguous(used).get()
    count = int((used != 0).any(axis=1).sum())
    return ValueError(
        f"group {g} (rows {rows[0]} to {rows[-1]}) has {count} non-zero rows in vector {v} "
        f"(columns {columns[0]} to {columns[-1]}), but {keep}:{group} keeps {keep}: prune it or choose another pattern"
    )
