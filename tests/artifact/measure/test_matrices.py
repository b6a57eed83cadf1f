"""The user's real matrices: which are listed, where they are looked for, and what is made of them."""

import tarfile
from unittest.mock import Mock

import numpy as np
import pandas as pd
import pytest
import scipy.io
import scipy.sparse
from refused import refused

from artifact.measure import files, matrices
from kernels.formats import csr


@pytest.fixture
def pattern() -> scipy.sparse.csr_array:
    """3 x 5 with an empty row; ones, like most of the collection's."""
    return scipy.sparse.csr_array((np.ones(4), np.array([1, 4, 0, 2]), np.array([0, 2, 2, 4])), shape=(3, 5))


def same_pattern(a: csr.Csr, matrix) -> bool:
    return (
        (a.m, a.k) == matrix.shape
        and np.array_equal(a.row_ptr, matrix.indptr)
        and np.array_equal(a.col_idx, matrix.indices)
    )


# ---------------------------------------------------------------- the list


def test_every_listed_matrix_has_a_name_a_group_and_a_domain():
    df = matrices.listed()
    assert list(df.columns) == ["name", "group", "domain"] and len(df) > 10 and not df.isna().any(axis=None)
    for column in df:
        text = df[column].astype(str)
        assert (text.str.strip() == text).all() and (text != "").all(), column
    assert df["name"].is_unique, "a name is a point of the record"


# ---------------------------------------------------------------- what is there of a list


def names(*of: str, group: str = "G") -> pd.DataFrame:
    return pd.DataFrame({"name": of, "group": group, "domain": ""})


def test_what_is_missing_is_left_out_and_said(tmp_path):
    (tmp_path / "b.npz").touch()
    files.write_text(tmp_path / "d" / "d.mtx", "")
    df = names("a", "b", "c", "d")
    there = matrices.present(df, tmp_path)
    assert there["name"].tolist() == ["b", "d"]
    said = matrices.left_out(df, there)
    assert said.startswith("2 of 4 listed matrices") and said.endswith("left out: a, c")
    assert matrices.left_out(there, there) == ""
    many = matrices.left_out(names(*"abcdefg"), there)
    assert many.endswith("left out: a, c, e, f, g") and "…" not in many
    assert matrices.left_out(names(*"abcdefgh"), there).endswith("f, g, …")


# ---------------------------------------------------------------- from the collection


@pytest.fixture
def collection(tmp_path, monkeypatch, pattern):
    """A collection on disk: G/good, whose archive also holds a right-hand side, and G/bad without a matrix."""
    site = tmp_path / "site" / "G"
    site.mkdir(parents=True)
    scipy.io.mmwrite(tmp_path / "good.mtx", pattern)
    for name, inside in (("good", ["good_b.mtx", "good.mtx"]), ("bad", ["bad_b.mtx"])):
        with tarfile.open(site / f"{name}.tar.gz", "w:gz") as archive:
            for file in inside:
                archive.add(tmp_path / "good.mtx", f"{name}/{file}")
    (site / "torn.tar.gz").write_bytes((site / "good.tar.gz").read_bytes()[:90])
    monkeypatch.setattr(matrices, "COLLECTION", (tmp_path / "site").as_uri())
    where = tmp_path / "mine"
    where.mkdir()
    return where


def test_a_download_fetches_what_is_missing_and_goes_on_after_what_fails(collection, pattern):
    lines, said = [], ["G/gone failed", "G/bad failed", "G/torn failed", "G/good"]
    assert matrices.download(names("gone", "bad", "torn", "good"), collection, lines.append) == ["gone", "bad", "torn"]
    assert [line.split(":")[0] for line in lines] == said and "has no bad.mtx" in lines[1]
    assert [path.name for path in collection.iterdir()] == ["good.mtx"], "no part of one stays"
    assert same_pattern(matrices.load("good", collection), pattern)
    for group in "G", "":  # it is there, and what the collection does not have is not asked for
        assert matrices.download(names("good", group=group), collection, pytest.fail) == []


def test_what_breaks_off_leaves_no_part(collection, monkeypatch):
    def breaks(content, file):
        file.write(b"%%")
        raise EOFError("cut")

    monkeypatch.setattr(matrices.shutil, "copyfileobj", breaks)
    assert matrices.download(names("good"), collection) == ["good"] and not list(collection.iterdir())


def test_only_a_file_of_the_matrix_s_own_name_is_taken(collection, tmp_path):
    """Neither a link to a file of the user's, nor a folder, nor a file whose name ends so."""
    with tarfile.open(tmp_path / "site" / "G" / "odd.tar.gz", "w:gz") as archive:
        archive.add(tmp_path / "good.mtx", "odd/not_odd.mtx")
        for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE, tarfile.FIFOTYPE):
            member = tarfile.TarInfo("odd/odd.mtx")
            member.type, member.linkname = kind, "odd/not_odd.mtx"
            archive.addfile(member)
    lines = []
    assert matrices.download(names("odd"), collection, lines.append) == ["odd"]
    assert "has no odd.mtx" in lines[0] and not list(collection.iterdir())


def test_the_folder_is_the_one_that_is_set(monkeypatch, tmp_path):
    monkeypatch.delenv(matrices.VARIABLE, raising=False)
    assert matrices.folder() is None
    (tmp_path / "file").touch()
    for named, found in (("", None), (str(tmp_path), tmp_path)):
        monkeypatch.setenv(matrices.VARIABLE, named)
        assert matrices.folder() == found
    for name in ("elsewhere", "file"):
        monkeypatch.setenv(matrices.VARIABLE, str(tmp_path / name))
        refused(f"{matrices.VARIABLE}.*{name}.*no folder: unset or correct", matrices.folder, kind=FileNotFoundError)


# ---------------------------------------------------------------- loading


@pytest.mark.parametrize("nested", [False, True])
def test_a_matrix_market_file(tmp_path, pattern, nested):
    folder = tmp_path / "small" if nested else tmp_path
    folder.mkdir(exist_ok=True)
    scipy.io.mmwrite(folder / "small.mtx", pattern)
    assert same_pattern(csr.validate(matrices.load("small", tmp_path)), pattern)


def test_values_are_seeded_by_the_name(tmp_path, pattern):
    for name in ("one", "two"):
        scipy.sparse.save_npz(tmp_path / f"{name}.npz", pattern)
    (tmp_path / "one").mkdir()
    scipy.io.mmwrite(tmp_path / "one" / "one.mtx", pattern)
    first = matrices.load("one", tmp_path).val
    (tmp_path / "one.npz").unlink()
    assert np.array_equal(first, matrices.load("one", tmp_path).val), "whatever the file's format"
    # The same in every process, which Python's own hash of a text is not.
    assert first.tolist() == pytest.approx([0.350498, -0.146919, 0.235533, -0.383107], abs=1e-6)
    assert not np.array_equal(first, matrices.load("two", tmp_path).val)


def test_a_matrix_that_memory_has_no_room_for_is_said_to_be_one(tmp_path, monkeypatch):
    monkeypatch.setattr(scipy.sparse, "load_npz", Mock(side_effect=MemoryError("Unable to allocate 8 TiB")))
    (tmp_path / "large.npz").touch()
    refused(r"large\.npz is a matrix that memory has no room for", matrices.load, "large", tmp_path)


def spoiled(pointers, indices, name: str, value: int):
    """What saves a matrix of which a pointer, or an index, is another."""

    def save(path):
        a = scipy.sparse.csc_array((np.ones(len(indices)), indices, pointers), shape=(3, len(pointers) - 1))
        getattr(a, name)[1 if name == "indptr" else 0] = value
        scipy.sparse.save_npz(path, a)

    return save


HEADER = "%%MatrixMarket matrix coordinate"


@pytest.mark.parametrize(
    ("name", "save"),
    [
        ("bad.npz", lambda path: path.write_bytes(b"not a zip")),
        ("bad.npz", lambda path: np.savez(path, a=np.ones(3))),
        ("bad.npz", spoiled([0, 1], [0], "indices", 10**6)),
        ("bad.npz", spoiled([0, 1, 2], [0, 1], "indptr", 3)),
        ("bad.mtx", lambda path: path.write_text("1 1 1\n")),
        ("bad.mtx", lambda path: path.write_text(f"{HEADER} complex general\n2 2 1\n1 2 1.0 3.0\n")),
        ("bad.mtx", lambda path: path.write_text(f"{HEADER} real general\n2 2 1\n1 2 1,5\n")),
    ],
)
def test_what_is_no_matrix_is_named(tmp_path, name, save):
    save(tmp_path / name)
    refused(r"bad\.(npz|mtx) holds no sparse matrix: .", matrices.load, "bad", tmp_path)
