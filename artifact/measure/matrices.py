"""Real sparse matrices, read from a folder of the user's; they are not part of this repository.

`matrices.csv` lists them with their names in the SuiteSparse Matrix Collection, whence they come as
Matrix Market files, by hand or with a downloader such as `ssgetpy`. The environment variable
SPARSITY_MATRICES names the folder, which holds `<name>.npz` (`scipy.sparse.save_npz`),
`<name>.mtx`, or `<name>/<name>.mtx`, as the collection's archives unpack.
"""

from __future__ import annotations

import os
import zlib
from pathlib import Path

import numpy as np
import pandas as pd

from kernels.formats import csr

VARIABLE = "SPARSITY_MATRICES"
LIST = Path(__file__).with_name("matrices.csv")


def listed() -> pd.DataFrame:
    """The matrices of the experiment: columns name, group (in the collection), domain."""
    return pd.read_csv(LIST, comment="#")


def folder() -> Path | None:
    """The user's folder of matrices; None where $SPARSITY_MATRICES is not set.

    Raises FileNotFoundError where it is set, but is no folder.
    """
    named = os.environ.get(VARIABLE)
    if not named:
        return None
    if not Path(named).is_dir():
        raise FileNotFoundError(
            f"{VARIABLE} names {named!r}, which is no folder: unset or correct it"
        )
    return Path(named)


def load(name: str, where: Path) -> csr.Csr:
    """The pattern of one matrix with random values in place of its own, which are mostly ones.

    Standard-normal float32 values, seeded by the name. Raises FileNotFoundError that says what was
    looked for, ValueError where the file holds no matrix.
    """
    places = (where / f"{name}.npz", where / f"{name}.mtx", where / name / f"{name}.mtx")
    path = next((place for place in places if place.is_file()), None)
    if path is None:
        raise FileNotFoundError(
            f"matrix {name} is not in the folder of {VARIABLE}: expected {name}.npz, {name}.mtx or "
            f"{name}/{name}.mtx"
        )
    import scipy.io
    import scipy.sparse

    try:
        matrix = scipy.sparse.load_npz(path) if path.suffix == ".npz" else scipy.io.mmread(path)
        a = csr.from_scipy(scipy.sparse.csr_array(matrix))
    except Exception as error:
        raise ValueError(f"{path.name} holds no sparse matrix: {error}") from error
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    return csr.Csr(a.m, a.k, a.row_ptr, a.col_idx, rng.standard_normal(a.nnz, dtype=np.float32))
