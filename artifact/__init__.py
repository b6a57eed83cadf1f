"""The harness: checks and times the kernels of a system, keeps records, draws the book from them."""
