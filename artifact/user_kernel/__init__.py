"""A reader's own kernel before the same court: the operands, the check, the timer and the records of a system.

A contender is a `.cu` whose comment says how to launch it (`header`), or a Python function that binds as a system does.
`benchmark` checks it, times it beside the system's own kernels and libraries, and says how it stands.
"""
