"""The harness: checks and times the kernels of a room, keeps records, draws the book from them."""
