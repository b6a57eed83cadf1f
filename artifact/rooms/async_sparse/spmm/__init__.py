"""The second half of the trial: real matrices in CSR, which windows, rows and libraries multiply (Table I, Fig. 5)."""

from artifact.rooms.async_sparse.spmm import experiments, facts, figures, tables

__all__ = ["experiments", "facts", "figures", "tables"]
