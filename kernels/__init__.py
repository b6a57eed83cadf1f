"""Runtime-compiled CUDA kernels for sparse matrix x dense matrix, one folder ("room") per published system.

The package depends on nothing else in this repository: take `kernels/` and use it without the harness.
"""
