"""Sentences of the chapter that hold numbers from records, as Markdown: one function for each paragraph.

In the order of the chapter: `theory` (the format and the analysis), `paper` (the paper's figures), `ladder` (our
kernels), `beyond` (what the paper does not have), `closing` (verdicts, what falls short, in short).
"""
