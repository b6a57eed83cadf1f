"""Another order of a square matrix's rows and columns, so that non-zeros share blocks.

Reverse Cuthill-McKee numbers the rows by a breadth-first walk over the graph of the pattern, which
brings the non-zeros near the diagonal. AsyncSparse applies SciPy's to every matrix (section IV-A).
"""

from __future__ import annotations

import time

import numpy as np

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

    if a.m != a.k:
        raise ValueError(f"reverse Cuthill-McKee takes square matrices, not one of {a.m} x {a.k}")
    begin = time.perf_counter()
    if a.m == 0:
        return np.zeros(0, np.int32), 0.0
    pattern = csr_array((np.ones(a.nnz, bool), a.col_idx, a.row_ptr), shape=(a.m, a.k))
    order = reverse_cuthill_mckee((pattern + pattern.T).tocsr(), symmetric_mode=True)
    return order.astype(np.int32), (time.perf_counter() - begin) * 1e3


def permuted(a: Csr, order: np.ndarray) -> Csr:
    """A[order][:, order] of a square matrix on the host: rows and columns alike, columns ascending.

    Repeated entries stay repeated. Raises ValueError, one sentence, where `order` is no permutation.
    """
    if order.shape != (a.m,) or a.m != a.k or not _is_permutation(order):
        raise ValueError(
            f"the order is no permutation of the {a.m} rows and {a.k} columns of a square matrix"
        )
    place = np.empty(a.m, np.int64)
    place[order] = np.arange(a.m)
    key = place[csr.rows(a)] * a.k + place[a.col_idx]
    to = np.argsort(key, kind="stable")
    return Csr(
        a.m, a.k, csr.offsets(key[to], a.m, a.k), (key[to] % max(a.k, 1)).astype(np.int32), a.val[to]
    )  # fmt: skip


def _is_permutation(order: np.ndarray) -> bool:
    seen = np.zeros(order.size, bool)
    if order.size and (order.min() < 0 or order.max() >= order.size):
        return False
    seen[order] = True
    return bool(seen.all())
