"""Made patterns: the same from the same seed, each pair once, and as their docstrings say."""

import numpy as np
import pytest

from artifact.measure import families, matrices

SMALL = {
    families.grid: ((5, 4, 3), 1, 2),
    families.mesh: (300, 1),
    families.saddle: (12, 2),
    families.circuit: (2000, 5, 3),
    families.orbitals: (60, 3, 4),
    families.rmat: (8, 5, (0.57, 0.19, 0.19), True, 5),
    families.roads: (70, 7),
    families.scattered: (300, 9, 20, 8),
}
SYMMETRIC = [families.grid, families.mesh, families.saddle, families.circuit, families.orbitals, families.rmat]


@pytest.mark.parametrize("make", SMALL, ids=lambda f: f.__name__)
def test_a_family_is_decided_by_its_arguments_and_has_each_pair_once(make):
    a, again = make(*SMALL[make]), make(*SMALL[make])
    assert (a != again).nnz == 0 and a.shape[0] == a.shape[1] and set(a.data) == {1}
    for begin, end in zip(a.indptr, a.indptr[1:], strict=False):
        assert (np.diff(a.indices[begin:end]) > 0).all()
    assert make not in SYMMETRIC or (a != a.T).nnz == 0


def test_nodes_of_a_grid_see_their_neighbours_and_a_band_ends():
    a = families.grid((5, 4, 3), 1, 2).toarray()
    assert a[0, :2].all() and a[0].sum() == 2 * 2 * 2 * 2 and a[2 * (12 + 3 + 1)].sum() == 27 * 2
    here, there = families.scattered(300, 9, 20, 8).nonzero()
    assert (np.minimum((here - there) % 300, (there - here) % 300) <= 20).all()


def test_a_made_matrix_needs_no_file_and_is_as_its_list_says(tmp_path):
    listed = matrices.listed(matrices.LIST.parents[1] / "systems/async_sparse/matrices.csv")
    there = matrices.present(listed, tmp_path)
    assert set(there["name"]) == set(families.FAMILIES) and {f.func for f in families.FAMILIES.values()} == set(SMALL)
    listed = there.set_index("name")[["rows", "cols", "nnz"]].T.to_dict("list")
    for name, make in families.FAMILIES.items():
        made = make()
        assert [*made.shape, made.nnz] == listed[name], name
    a = matrices.load("made_shell", tmp_path)
    assert [a.m, a.k, a.nnz] == listed["made_shell"] and len(np.unique(a.val)) > 1000
