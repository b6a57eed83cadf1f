"""Real sparse matrices, read from a folder of the user's; they are not part of this repository.

`matrices.csv`, here or in a system's folder, lists them with their names in the SuiteSparse Matrix
Collection, whence they come as Matrix Market files: `python -m artifact matrices --download` fetches
them. The environment variable SPARSITY_MATRICES names the folder, which holds `<name>.npz`
(`scipy.sparse.save_npz`), `<name>.mtx`, or `<name>/<name>.mtx`, as the collection's archives unpack. A list may also
name patterns of `families.py`, which need no file.
"""

import os
import shutil
import tarfile
import urllib.parse
import urllib.request
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from artifact.measure.families import FAMILIES
from kernels.contract import require
from kernels.formats import csr, matrix_market

VARIABLE = "SPARSITY_MATRICES"
LIST = Path(__file__).with_name("matrices.csv")
COLLECTION = "https://sparse.tamu.edu/MM"  #: <group>/<name>.tar.gz below it


def listed(path: Path = LIST) -> pd.DataFrame:
    """Return the matrices of a list: columns name, group (in the collection, "" for what is not there), domain.

    A list may have columns more, such as rows, cols and nnz. Raises FileNotFoundError for no list.
    """
    require(path.is_file(), f"{path}: this list of matrices is missing", FileNotFoundError)
    return pd.read_csv(path, comment="#", dtype=dict.fromkeys(("name", "group", "domain"), str), keep_default_na=False)


def present(matrices: pd.DataFrame, where: Path) -> pd.DataFrame:
    """Return those of a list that are in the folder, or made without a file, in its order."""
    here = [name in FAMILIES or find(name, where) is not None for name in matrices["name"]]
    return matrices[here].reset_index(drop=True)


def left_out(matrices: pd.DataFrame, there: pd.DataFrame) -> str:
    """Return a sentence on what of a list is not there, for whoever measures without it; "" if all of it is."""
    missing = [name for name in matrices["name"] if name not in set(there["name"])]
    few = ", ".join([*missing[:5], *(["…"] if len(missing) > 5 else [])])
    said = f"{len(there)} of {len(matrices)} listed matrices are in the folder of {VARIABLE}; left out: {few}"
    return said if missing else ""


def find(name: str, where: Path) -> Path | None:
    """Return the file of one matrix; None where it is not in the folder."""
    places = (where / f"{name}.npz", where / f"{name}.mtx", where / name / f"{name}.mtx")
    return next((place for place in places if place.is_file()), None)


def download(matrices: pd.DataFrame, where: Path, say: Callable[[str], None] = print) -> list[str]:
    """Fetch what is missing of a list from the collection, a matrix at a time; the names that failed.

    What the collection does not have (no group) is left out. An interrupted download leaves whole
    matrices only, and goes on with the next one when it is started again.
    """
    failed, pairs = [], zip(matrices["name"], matrices["group"], strict=True)
    for name, group in ((name, group) for name, group in pairs if group and find(name, where) is None):
        url = f"{COLLECTION}/{urllib.parse.quote(group)}/{urllib.parse.quote(name)}.tar.gz"
        part = where / f"{name}.mtx.part"
        try:
            with (
                urllib.request.urlopen(url, timeout=60) as answer,
                tarfile.open(fileobj=answer, mode="r|gz") as archive,
            ):
                # Beside it may lie right-hand sides and coordinates.
                member: Any = next((x for x in archive if x.isfile() and Path(x.name).name == f"{name}.mtx"), None)
                require(member, f"the archive {url} has no {name}.mtx")
                content: Any = archive.extractfile(member)
                with part.open("wb") as file:
                    shutil.copyfileobj(content, file)
            part.replace(where / f"{name}.mtx")
            say(f"{group}/{name}")
        except (OSError, EOFError, tarfile.TarError, ValueError, zlib.error) as error:
            say(f"{group}/{name} failed: {error}")
            failed.append(name)
        finally:
            part.unlink(missing_ok=True)
    return failed


def folder() -> Path | None:
    """Return the user's folder of matrices; None where $SPARSITY_MATRICES is not set.

    Raises FileNotFoundError where it is set, but is no folder.
    """
    named = os.environ.get(VARIABLE, "")
    said = f"{VARIABLE} names {named!r}, which is no folder: unset or correct it"
    require(not named or Path(named).is_dir(), said, FileNotFoundError)
    return Path(named) if named else None


def read(path: Path) -> csr.Csr:
    """Return the matrix of a file, `scipy.sparse.save_npz`'s .npz or Matrix Market's .mtx, in float32.

    Raises FileNotFoundError for no file, ValueError where it holds no matrix, or more than memory does.
    """
    import scipy.sparse

    require(path.is_file(), f"{path}: there is no such matrix.", FileNotFoundError)
    try:
        return csr.from_scipy(scipy.sparse.load_npz(path) if path.suffix == ".npz" else matrix_market.read(path))
    except MemoryError as error:
        raise ValueError(f"{path.name} is a matrix that memory has no room for.") from error
    except Exception as error:
        raise ValueError(f"{path.name} holds no sparse matrix: {error}") from error


def load(name: str, where: Path) -> csr.Csr:
    """Return the pattern of one matrix with random values in place of its own, which are mostly ones.

    Standard-normal float32 values, seeded by the name. Raises FileNotFoundError that says what was
    looked for, ValueError where the file holds no matrix.
    """
    path = find(name, where)
    said = f"matrix {name} is not in the folder of {VARIABLE}: expected {name}.npz, {name}.mtx or {name}/{name}.mtx"
    require(path or name in FAMILIES, said, FileNotFoundError)
    a = csr.from_scipy(FAMILIES[name]()) if path is None else read(path)
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    return replace(a, val=rng.standard_normal(a.nnz, dtype=np.float32))
