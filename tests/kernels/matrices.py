"""Matrices in CSR that tests of kernels for windows, groups and blocks share."""

import numpy as np

from kernels.formats.csr import Csr

#: What could go wrong: name -> (m, k).
PATTERNS = {
    "random": (300, 1000),
    "one": (1, 1),
    "tall": (64 * 40 - 3, 130),
    "none": (100, 50),
    "all": (130, 200),
    "empty windows": (333, 500),
    "a heavy row": (700, 3000),
    "every padding": (1130, 90),
}


def places(which: str, seed: int = 0) -> np.ndarray:
    """bool (m, k): where the matrix has non-zeros."""
    m, k = PATTERNS[which]
    rng = np.random.default_rng((seed, m, k))
    made = rng.random((m, k)) < {"none": 0, "all": 1, "one": 1, "a heavy row": 0.005}.get(which, 0.05)
    if which == "empty windows":  # of 64 rows and of 8, at the ends as well
        made[:64] = made[70:80] = made[128:192] = made[-70:] = False
    elif which == "a heavy row":
        made[m // 3] = True
    elif which == "every padding":  # windows of 8 rows with 0, 1, 2 ... columns
        made[:] = False
        for window in range(-(-m // 8)):
            columns = rng.choice(k, min(window % 70, k), replace=False)
            made[rng.integers(8 * window, min(m, 8 * window + 8), columns.size), columns] = True
    return made


def pattern(which: str = "random", seed: int = 0) -> Csr:
    """Random values at `places`."""
    where = places(which, seed)
    row_ptr = np.concatenate([[0], np.cumsum(where.sum(1))]).astype(np.int32)
    val = np.random.default_rng(seed).uniform(-1, 1, int(row_ptr[-1])).astype(np.float32)
    return Csr(*where.shape, row_ptr, np.nonzero(where)[1].astype(np.int32), val)


def shuffled(m: int = 200, k: int = 200, seed: int = 0) -> Csr:
    """About 3% of the entries, in any order and some of them twice."""
    rng = np.random.default_rng(seed)
    row = np.sort(rng.integers(0, m, m * k // 32))
    row_ptr = np.searchsorted(row, np.arange(m + 1)).astype(np.int32)
    return Csr(m, k, row_ptr, rng.integers(0, k, row.size).astype(np.int32), np.ones(row.size, np.float32))


def of_lengths(lengths, k: int = 4000, rng: np.random.Generator | None = None) -> Csr:
    """Rows of so many ones, in the first columns; with numbers to draw from, of random values in any columns."""
    row_ptr = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    columns = [np.sort(rng.permutation(k)[:x]) if rng else np.arange(x) for x in lengths]
    col_idx = np.concatenate([*columns, []]).astype(np.int32)
    val = rng.standard_normal(col_idx.size) if rng else np.ones(col_idx.size)
    return Csr(len(lengths), k, row_ptr, col_idx, val.astype(np.float32))
