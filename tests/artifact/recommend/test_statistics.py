"""Statistics of patterns against counting them by hand, and the file that the book is built from."""

import numpy as np
import pytest
import scipy.sparse

from artifact import registry
from artifact.measure import files, matrices
from artifact.recommend import statistics
from kernels.formats import csr, reorder

SHIPPED = [system for system in registry.find() if (registry.FOLDER / system / registry.STATISTICS).is_file()]


def test_a_small_matrix_counted_by_hand():
    dense = np.zeros((20, 10), np.float32)
    dense[0, [0, 5]] = dense[1, [0, 9]] = dense[9, 5] = dense[17, 5] = 1
    s = statistics.of(csr.from_scipy(scipy.sparse.csr_array(dense)))
    assert (s.m, s.k, s.nnz, s.row_most, s.empty_rows) == (20, 10, 6, 2, 16) and s.row_mean == 0.3 and s.density == 0.03
    assert s.row_variation == pytest.approx(np.sqrt(0.5 - 0.09) / 0.3)
    assert s.bandwidth == 8, "row 1 is at column 0.5, its entry at 9"
    assert s.windows_8 == 6 / 5, "rows 0 to 7 have columns 0, 5 and 9, then two windows 5"
    assert s.windows_16 == 6 / 4 and s.windows_32 == s.windows_64 == 6 / 3
    assert s.similar_8 == 6 / 3, "rows 1 and 0, 9 and 17 come first, in one window"
    assert s.blocks_16 == 6 / (2 * 256) and s.blocks_32 == 6 / 1024


def test_random_matrices_counted_one_by_one():
    a = csr.from_scipy(scipy.sparse.random(133, 90, 0.05, "csr", rng=np.random.default_rng(4)))
    dense = csr.to_dense(a) != 0
    s = statistics.of(a)
    for height in statistics.WINDOWS:
        unions = sum(dense[i : i + height].any(axis=0).sum() for i in range(0, 133, height))
        assert getattr(s, f"windows_{height}") == pytest.approx(a.nnz / unions)
        alike = dense[reorder.similar(a)]
        unions = sum(alike[i : i + height].any(axis=0).sum() for i in range(0, 133, height))
        assert getattr(s, f"similar_{height}") == pytest.approx(a.nnz / unions)
    for side in statistics.BLOCKS:
        kept = sum(dense[i : i + side, j : j + side].any() for i in range(0, 133, side) for j in range(0, 90, side))
        assert getattr(s, f"blocks_{side}") == pytest.approx(a.nnz / kept / side**2)


@pytest.mark.parametrize("k", [1, 2, 3])
def test_one_non_zero_is_as_far_away_on_average_as_it_is(k):
    assert statistics.of(csr.from_scipy(scipy.sparse.csr_array(([1.0], ([3], [0])), shape=(4, k)))).spread == 3 / 4


def test_matrices_without_non_zeros():
    for m, k in ((0, 0), (3, 0), (0, 4), (5, 7)):
        s = statistics.of(csr.Csr(m, k, np.zeros(m + 1, np.int32), np.zeros(0, np.int32), np.zeros(0, np.float32)))
        assert all(np.isfinite(x) for x in vars(s).values()) and s.nnz == s.density == 0 and s.empty_rows == m


def test_reordering_brings_a_band_back_and_leaves_what_is_not_square():
    n = 200
    band = scipy.sparse.diags_array([1.0, 1, 1], offsets=[-1, 0, 1], shape=(n, n), format="csr")
    mixed = np.random.default_rng(1).permutation(n)
    a = csr.from_scipy(band[mixed][:, mixed])
    assert statistics.of(a).bandwidth > 100 and statistics.of(statistics.ordered(a, statistics.RCM)).bandwidth <= 2
    assert statistics.ordered(a, statistics.GIVEN) is a
    wide = csr.from_scipy(scipy.sparse.random(5, 9, 0.5, "csr"))
    assert statistics.ordered(wide, statistics.RCM) is wide


def test_written_and_read_again(tmp_path, monkeypatch, capsys):
    scipy.sparse.save_npz(tmp_path / "small.npz", scipy.sparse.random(60, 60, 0.1, "csr"))
    monkeypatch.setenv(matrices.VARIABLE, str(tmp_path))
    system = tmp_path / "any"
    files.write_text(system / registry.MATRICES, "name,group,domain\nsmall,,test\nabsent,,test\n")
    monkeypatch.setattr(registry, "FOLDER", tmp_path)
    assert statistics.main(["--room", "any"]) == 0
    found = statistics.read(system / registry.STATISTICS)
    assert list(found) == [("small", "given"), ("small", "rcm")]
    whole = statistics.of(matrices.load("small", tmp_path))
    assert vars(found["small", "given"]) == pytest.approx(vars(whole), rel=1e-5)
    assert "--room any" in (system / registry.STATISTICS).read_text().splitlines()[1]
    monkeypatch.delenv(matrices.VARIABLE)
    assert statistics.main(["--room", "any"]) == 2 and "is not set" in capsys.readouterr().err


@pytest.mark.parametrize("system", SHIPPED)
def test_the_shipped_statistics_are_of_the_listed_matrices(system):
    listed = matrices.listed(registry.FOLDER / system / registry.MATRICES).set_index("name")
    for (name, order), s in statistics.read(registry.FOLDER / system / registry.STATISTICS).items():
        assert (s.m, s.k) == (listed.loc[name, "rows"], listed.loc[name, "cols"])
        assert order in (statistics.GIVEN, statistics.RCM)
        assert 1 <= s.windows_8 <= s.windows_16 <= s.windows_32 <= s.windows_64
        assert 1 >= s.blocks_16 >= s.blocks_32 >= s.blocks_64 > 0
