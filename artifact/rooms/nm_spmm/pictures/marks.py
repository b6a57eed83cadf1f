"""Marks of what is no contender, for pictures and charts of the room."""

MARKS = "osD^vPp"  # of what is no contender: sparsities, sizes, windows
