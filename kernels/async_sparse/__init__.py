"""Block-sparse matrices on Hopper's asynchronous units, TMA and WGMMA: AsyncSparse's BCSR kernels."""

from kernels.async_sparse.operands import problem, problem_from_csr

__all__ = ["problem", "problem_from_csr"]
