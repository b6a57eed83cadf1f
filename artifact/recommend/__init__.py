"""Which kernel for my matrix?

What the records say of it: `statistics` of a matrix, the `landscape` of what was measured and of what wins where, a
`model` of times fitted to it, which advises for a matrix.
"""
