"""Runtime-compiled CUDA kernels for sparse x dense, one folder ("room") per published system.

The package depends on nothing else in this repository: it can be used without the harness.
"""
