"""Rows side by side in a warp, as casper_sparse multiplies them (rows_per_warp.cu there): CSR in float32.

There is no table, and a block has rows that follow each other: of a mesh, whose neighbours lie near, they find each
other's rows of B in L1. The lanes of a warp wait for the longest of its rows, so this is for rows of about one length.
"""

from dataclasses import dataclass
from pathlib import Path

from .. import casper_sparse
from ..contract import PreparedKernel, Problem, require
from .family import dtype_of

#: Columns of a panel -> the variant of casper_sparse.
NAMES = {32: "rows_per_warp", 128: "in_flight"}
SOURCE: Path = casper_sparse.VARIANTS[NAMES[32]].source


@dataclass(frozen=True)
class PerWarp:
    """A configuration of rows_per_warp.cu."""

    columns: int = 32  #: of C in a panel: 32, or 128

    rows, order = 1, ""  # what is asked of the other configurations for CSR

    def entry(self, n: int, dtype: str = "tf32") -> str:
        """Return the template instantiation for n columns; dtype: of B, "tf32" for float32, which alone there is."""
        return casper_sparse.entry(NAMES[self.columns], n)

    def prepare(self, name: str, problem: Problem, device) -> PreparedKernel:
        """Return a configuration ready to run; nothing is made of A. Raises ValueError where B is not float32."""
        dtype = dtype_of(problem.device().b)
        require(dtype == "tf32", f"{name} has rows side by side in float32, but B is {dtype}: use union_half")
        bound = casper_sparse.prepare(NAMES[self.columns], problem, device)
        bound.name = name
        return bound
