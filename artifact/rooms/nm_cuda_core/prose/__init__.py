"""Sentences of the chapter that hold numbers from records, as Markdown: one function for each paragraph.

In the order of the chapter: `kernels` (which index, the machine code), `speeds` (the report's figures and what goes
beyond them), `cublas` (what its cuBLAS contains), `reasons` (what Nsight Compute counts).
"""
