"""Another order of a matrix's rows, or of a square one's rows and columns, so that non-zeros share blocks.

Reverse Cuthill-McKee numbers the rows by a breadth-first walk over the graph of the pattern, which
brings the non-zeros near the diagonal. AsyncSparse applies SciPy's to every matrix (section IV-A).

`similar` sorts rows by three min-hashes of their columns (Broder, "On the resemblance and containment of
documents", 1997): two rows have the same one with the probability that a column of either is in both. It takes a
GPU milliseconds, and moves no column.
"""

import time

import numpy as np

from ..contract import require
from . import csr
from .csr import Csr


def rcm(a: Csr) -> tuple[np.ndarray, float]:
    """(order, milliseconds): SciPy's reverse Cuthill-McKee of a square matrix on the host.

    order: int32 (m,), row order[i] becomes row i. It walks the pattern of A + Aᵀ, since the walk needs
    a graph without directions, so rows that no entry links may come in any place. The time includes
    making that pattern. Raises ValueError, one sentence, for a matrix that is not square.
    """
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import reverse_cuthill_mckee

    require(a.m == a.k, f"reverse Cuthill-McKee takes square matrices, not one of {a.m} x {a.k}")
    begin = time.perf_counter()
    if a.m == 0:
        return np.zeros(0, np.int32), 0.0
    pattern = csr_array((np.ones(a.nnz, bool), a.col_idx, a.row_ptr), shape=(a.m, a.k))
    order = reverse_cuthill_mckee((pattern + pattern.T).tocsr(), symmetric_mode=True)
    return order.astype(np.int32), (time.perf_counter() - begin) * 1e3


#: Odd factors of the hashes, and bits that the sort looks at of each.
_FACTORS, _BITS = (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9), 21


def similar(a: Csr):
    """int32 (m,): an order of the rows in which those with common columns lie side by side; NumPy or CuPy, as `a`.

    Row order[i] becomes row i; rows without entries come last, rows that hash alike keep their order.
    """
    xp = a.xp
    row, col = csr.rows(a), a.col_idx.astype(xp.uint64)
    key = xp.zeros(a.m, xp.uint64)
    for factor in _FACTORS:
        mixed = (col + xp.uint64(1)) * xp.uint64(factor)
        mixed = (mixed ^ (mixed >> xp.uint64(29))) * xp.uint64(0xBF58476D1CE4E5B9)
        least = xp.full(a.m, 2**_BITS - 1, xp.uint32)
        xp.minimum.at(least, row, (mixed >> xp.uint64(64 - _BITS)).astype(xp.uint32))
        key = key << xp.uint64(_BITS) | least.astype(xp.uint64)
    return xp.argsort(key, kind="stable").astype(xp.int32)


def permuted(a: Csr, order: np.ndarray) -> Csr:
    """A[order][:, order] of a square matrix on the host: rows and columns alike, columns ascending.

    Repeated entries stay repeated. Raises ValueError, one sentence, where `order` is no permutation.
    """
    require(
        a.m == a.k and np.array_equal(np.sort(order), np.arange(a.m)),
        f"the order is no permutation of the {a.m} rows and {a.k} columns of a square matrix",
    )
    place = np.empty(a.m, np.int64)
    place[order] = np.arange(a.m)
    key = place[csr.rows(a)] * a.k + place[a.col_idx]
    to = np.argsort(key, kind="stable")
    return Csr(a.m, a.k, csr.offsets(key[to], a.m, a.k), (key[to] % max(a.k, 1)).astype(np.int32), a.val[to])
