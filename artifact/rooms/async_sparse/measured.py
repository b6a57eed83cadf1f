"""The real matrices that scripts of this room measure."""

from __future__ import annotations

from collections.abc import Iterator

from artifact import registry
from artifact.measure import matrices
from kernels.formats.csr import Csr


def real(most: int) -> Iterator[tuple[str, Csr]]:
    """(name, matrix) of the first of the room's list that are there; SystemExit, one sentence, without their folder."""
    folder = matrices.folder()
    if folder is None:
        raise SystemExit(f"{matrices.VARIABLE} names no folder of matrices: set it")
    listed = matrices.listed(registry.matrices("async_sparse")).head(most)
    for name in matrices.present(listed, folder)["name"]:
        yield name, matrices.load(name, folder)
