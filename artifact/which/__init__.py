"""Which kernel for my matrix? What the records say of it: `statistics` of a matrix, `pool` of what was measured, a
`model` of times fitted to it, the `advice` for a matrix, and the `atlas`, the map of what wins where."""
