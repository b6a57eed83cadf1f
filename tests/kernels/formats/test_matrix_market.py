"""Matrix Market's files: SciPy's numbers where they are numbers, and one sentence where anything is not."""

import bz2
import gzip

import numpy as np
import pytest
import scipy.io
import scipy.sparse as sp
from hypothesis import given, strategies as st
from refused import says

from kernels.formats import matrix_market

HEAD = "%%MatrixMarket matrix "
ENTRY = "coordinate real general\n2 2 1\n1 2 "


def read(path, text: str):
    path = path / "some.mtx"
    path.write_bytes((HEAD + text).encode())
    return matrix_market.read(path)


@pytest.mark.parametrize("symmetry", ["general", "symmetric", "skew-symmetric"])
@pytest.mark.parametrize("field", ["real", "integer", "pattern"])
def test_a_written_matrix_comes_back(tmp_path, field, symmetry):
    rng = np.random.default_rng(1)
    x = np.round(rng.standard_normal((30, 30)) * 8) * (rng.random((30, 30)) < 0.2)
    x = {"general": x, "symmetric": x + x.T, "skew-symmetric": x - x.T}[symmetry]
    x = (x != 0) * 1.0 if field == "pattern" and symmetry != "skew-symmetric" else x
    if field == "pattern" and symmetry == "skew-symmetric":
        pytest.skip("there is no such matrix")
    a = sp.coo_array(x.astype(int) if field == "integer" else x)
    scipy.io.mmwrite(tmp_path / "a.mtx", a, field=field, symmetry=symmetry)
    scipy.io.mmwrite(tmp_path / "dense.mtx", x, symmetry=symmetry)
    for name in ("a.mtx", "dense.mtx"):
        assert (matrix_market.read(tmp_path / name).toarray() == x).all()


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("1.0D+03", 1000),
        ("1d3", 1000),
        ("-2.5D-1", -0.25),
        (".5", 0.5),
        ("5.", 5),
        ("1E2", 100),
        ("1e+2", 100),
        ("inf", np.inf),
        ("-Infinity", -np.inf),
        ("nan", np.nan),
        ("1e999", np.inf),
        ("00012", 12),
        ("1.5\t", 1.5),
        ("1.5\r", 1.5),
        ("1.5\n\n", 1.5),
        ("99999999999999999999", 1e20),
    ],
)
def test_every_spelling_of_a_number_is_that_number(tmp_path, word, value):
    assert np.array_equal(read(tmp_path, ENTRY + word + "\n").toarray(), [[0, value], [0, 0]], equal_nan=True)


@pytest.mark.parametrize(
    "word",
    [
        "1,5",
        "1.5x",
        "1.0Q3",
        "0x10",
        "1.2.3",
        "1-2",
        "1e5e6",
        "1e5.5",
        "--5",
        "1e",
        "e5",
        "1_000",
        "1.5f",
        "½",
        "1e+-5",
        "1+",
        "1.e.5",
        "1e5-",
        "..5",
        "infx",
        "nanx",
        "1;",
        "#",
    ],
)
def test_what_is_no_number_is_named_with_its_line(tmp_path, word):
    says(["line 3 has ", "no number"], lambda: read(tmp_path, ENTRY + word + "\n"))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("coordinate real general\n2 2 1\n1 2 3 4\n", ["line 3 has 4 numbers", "3"]),
        ("coordinate real general\n2 2 1\n1 2\n", ["line 3 has 2 numbers"]),
        ("coordinate real general\n2 2 2\n1 2 3\n", ["1 entries", "2"]),
        ("coordinate real general\n2 2 1\n1 2 3\n2 2 3\n", ["line 4 is an entry more than the 1"]),
        ("coordinate pattern general\n2 2 1\n1 2.5\n", ["line 3", "'2.5'", "whole number"]),
        ("coordinate integer general\n2 2 1\n1 2 2.5\n", ["line 3", "'2.5'", "whole number"]),
        ("coordinate integer general\n2 2 1\n1 2 99999999999999999999\n", ["out of range"]),
        ("coordinate real general\n2 2 1\n0 2 5\n", ["ndex out of bounds"]),
        ("coordinate real general\n2 2 1\n1 3 5\n", ["ndex out of bounds"]),
        ("coordinate complex general\n2 2 1\n1 2 5 1\n", ["field is 'complex'"]),
        ("coordinate real hermitian\n2 2 1\n1 2 5\n", ["symmetry is 'hermitian'"]),
        ("vector real general\n2 2 1\n1 2 5\n", ["layout is 'vector'"]),
        ("coordinate real\n2 2 1\n1 2 5\n", ["first line"]),
        ("array pattern general\n2 2\n", ["pattern"]),
        ("coordinate real general\n2 2\n1 2 5\n", ["line 2 is no 3 whole numbers"]),
        ("coordinate real general\n" + "1" * 20 + " 2 1\n1 2 5\n", ["line 2 is no 3 whole numbers"]),
        ("coordinate real general\n% so\n\n2 2 x\n", ["line 4 is no 3 whole numbers"]),
        ("coordinate real general\n2 -2 1\n1 2 5\n", ["line 2 is no 3"]),
        ("coordinate real general\n", ["no 3 whole numbers"]),
        ("coordinate real general\n3000000000 2 0\n", ["3000000000 x 2", "2^31 - 1"]),
        ("coordinate real symmetric\n3 2 0\n", ["3 x 2", "symmetric"]),
        ("coordinate real general\n2 2 1000000000000\n1 2 5\n", ["1 entries", "1000000000000"]),
        ("array real general\n100000 100000\n1\n", ["1 entries", "10000000000"]),
        ("array real general\n2 2\n1\n2\n3\n4\n5\n", ["line 7 is an entry more"]),
    ],
)
def test_what_is_no_matrix_is_one_sentence(tmp_path, text, words):
    says(words, lambda: read(tmp_path, text))


@pytest.mark.parametrize(
    ("text", "shape"),
    [
        ("array real general\n0 3\n", (0, 3)),
        ("array real general\n3 0\n", (3, 0)),
        ("array real symmetric\n0 0\n", (0, 0)),
        ("array real skew-symmetric\n1 1\n", (1, 1)),
        ("coordinate real general\n0 0 0\n", (0, 0)),
        ("coordinate pattern general\n5 4 0\n", (5, 4)),
    ],
)
def test_a_matrix_of_nothing_is_one(tmp_path, text, shape):
    found = read(tmp_path, text)
    assert found.shape == shape and found.nnz == 0


def test_packed_files_are_read(tmp_path):
    text = (HEAD + ENTRY + "1.0D+03\n").encode()
    (tmp_path / "a.mtx.gz").write_bytes(gzip.compress(text))
    (tmp_path / "a.mtx.bz2").write_bytes(bz2.compress(text))
    for name in ("a.mtx.gz", "a.mtx.bz2"):
        assert matrix_market.read(tmp_path / name).toarray()[0, 1] == 1000


@given(st.text("0123456789+-.eEdDx, \t", min_size=1, max_size=12))
def test_any_text_is_the_number_that_python_reads_or_refused(tmp_path_factory, word):
    path = tmp_path_factory.getbasetemp()
    try:
        value = float(word.strip().lower().replace("d", "e"))
    except ValueError:
        value = None
    try:
        found = read(path, ENTRY + word + "\n").toarray()[0, 1]
    except ValueError as error:
        assert "line 3" in str(error).lower() or "entries" in str(error)
        assert value is None or word.strip().startswith("+"), "SciPy takes no plus sign"
    else:
        assert found == value
