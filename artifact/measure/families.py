"""Sparse patterns of a million non-zeros and more that resemble classes of the SuiteSparse collection: made here, ours.

Each is made anew from its size and a seed, in the order in which a program would number its unknowns; none is a matrix
of the collection. A list of matrices names them like any other, `matrices.load` draws their values.
"""

from collections.abc import Callable
from functools import partial, reduce
from typing import Any

import numpy as np
import scipy.sparse as sp


def grid(shape: tuple[int, ...], reach: int, unknowns: int) -> sp.csr_array:
    """Return a finite-element grid: each node with all that are within `reach` along every axis, its unknowns dense.

    shape: nodes along each axis, the last one fastest.
    """
    near = range(-reach, reach + 1)
    axes = [sp.diags_array([1.0] * len(near), offsets=near, shape=(n, n), dtype=np.float32) for n in shape]
    return sp.csr_array(reduce(partial(sp.kron, format="csr"), [*axes, np.ones((unknowns, unknowns), np.float32)]))


def mesh(points: int, seed: int) -> sp.csr_array:
    """Return a tetrahedral mesh of random points in a cube, numbered slab by slab: nodes of one tetrahedron meet."""
    from scipy.spatial import Delaunay

    at = np.random.default_rng(seed).random((points, 3))
    at = at[np.lexsort((at[:, 2], *(np.floor(at[:, i] * points ** (1 / 3) / 4) for i in (1, 0))))]
    corners = Delaunay(at).simplices
    return _of(points, np.repeat(corners, 4, axis=1).ravel(), np.tile(corners, 4).ravel())


def saddle(side: int, seed: int) -> sp.csr_array:
    """Return an optimality system: a grid's Hessian, and half as many constraints on eight random unknowns each."""
    hessian, rng = grid((side, side), 1, 1), np.random.default_rng(seed)
    few = side * side // 2
    near = rng.integers(0, side * side, few)[:, None] + rng.integers(-4 * side, 4 * side, (few, 8))
    limits = _of(side * side, np.repeat(np.arange(few), 8), near.ravel() % (side * side))[:few]
    return sp.csr_array(sp.block_array([[hessian, limits.T], [limits, None]]))


def circuit(rows: int, rails: int, seed: int) -> sp.csr_array:
    """Return a circuit: nodes that see a few near ones, and rails, dense rows and columns, that a share of all sees."""
    rng = np.random.default_rng(seed)
    near = np.arange(rows)[:, None] + np.rint(rng.standard_cauchy((rows, 4)) * 20).astype(np.int64)
    share = rng.random(rails) ** 2 / 10
    hubs = [rng.choice(rows, int(rows * s), replace=False) for s in share]
    place = np.repeat(rng.choice(rows, rails, replace=False), list(map(len, hubs)))
    here, there = np.append(np.repeat(np.arange(rows), 4), place), np.append(near.ravel() % rows, np.concatenate(hubs))
    return _of(rows, np.append(here, there), np.append(there, here))


def orbitals(atoms: int, each: int, seed: int) -> sp.csr_array:
    """Return an electronic structure: dense blocks between atoms of a bent chain that are near each other."""
    at = np.cumsum(np.random.default_rng(seed).standard_normal((atoms, 3)), axis=0)
    far = np.linalg.norm(at[:, None] - at, axis=2)
    here, there = np.nonzero(far < np.quantile(far, 0.04))
    return _of(atoms, here, there, blocks=each)


def rmat(scale: int, edges: int, corners: tuple[float, float, float], both: bool, seed: int) -> sp.csr_array:
    """Return a recursive random graph of 2^scale nodes (R-MAT): so many edges a node, `both` ways or one.

    corners: probabilities of three quarters of the matrix; social networks have a heavy first one.
    """
    rng, ends = np.random.default_rng(seed), np.cumsum(corners)
    here = there = np.zeros(edges << scale, np.int64)
    for _ in range(scale):
        quarter = np.searchsorted(ends, rng.random(len(here)))
        here, there = 2 * here + quarter // 2, 2 * there + quarter % 2
    return _of(1 << scale, np.append(here, there), np.append(there, here)) if both else _of(1 << scale, here, there)


def roads(side: int, seed: int) -> sp.csr_array:
    """Return a road network: a lattice that lacks a third of its edges, numbered town by town."""
    rng, rows = np.random.default_rng(seed), np.arange(side * side).reshape(side, side)
    here = np.append(rows[:, :-1].ravel(), rows[:-1].ravel())
    there = np.append(rows[:, 1:].ravel(), rows[1:].ravel())
    kept = rng.random(here.size) < 2 / 3
    towns = np.lexsort((rows.ravel(), rows.ravel() % side // 64, rows.ravel() // side // 64))
    here, there = np.argsort(towns)[here[kept]], np.argsort(towns)[there[kept]]
    return _of(side * side, np.append(here, there), np.append(there, here))


def scattered(rows: int, each: int, half: int, seed: int) -> sp.csr_array:
    """Return random non-zeros, so many a row, within a band of `half` to either side."""
    away = np.random.default_rng(seed).integers(-half, half + 1, (rows, each))
    return _of(rows, np.repeat(np.arange(rows), each), ((np.arange(rows)[:, None] + away) % rows).ravel())


def _of(n: int, here: Any, there: Any, blocks: int = 1) -> sp.csr_array:
    """Return the pattern (n, n) of pairs, each once, every one a dense block; ones."""
    a = sp.csr_array((np.ones(len(here), np.float32), (here, there)), shape=(n, n))
    a.data[:] = 1
    return a if blocks == 1 else sp.csr_array(sp.kron(a, np.ones((blocks, blocks), np.float32), format="csr"))


#: Name in a list -> what makes it.
FAMILIES: dict[str, Callable[[], sp.csr_array]] = {
    "made_elasticity_3d": partial(grid, (28, 28, 28), 1, 3),
    "made_shell": partial(grid, (96, 96), 1, 6),
    "made_stencil_3d": partial(grid, (64, 64, 64), 1, 1),
    "made_mesh_3d": partial(mesh, 100_000, 1),
    "made_saddle": partial(saddle, 360, 2),
    "made_circuit": partial(circuit, 200_000, 24, 3),
    "made_orbitals": partial(orbitals, 900, 11, 4),
    "made_social": partial(rmat, 16, 20, (0.57, 0.19, 0.19), True, 5),
    "made_web": partial(rmat, 18, 8, (0.57, 0.28, 0.1), False, 6),
    "made_roads": partial(roads, 800, 7),
    "made_band": partial(scattered, 60_000, 40, 60, 8),
    "made_random": partial(scattered, 50_000, 40, 25_000, 9),
}
