"""The examples: what they compute is right on the host, without a GPU they say so, and with one they run."""

import importlib
import os
import subprocess
import sys
from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.io
import scipy.sparse as sp

from artifact.drawing.pages import sources as examples
from artifact.paths import ROOT

EXAMPLES = ROOT / "examples"
sys.path.insert(0, str(EXAMPLES))

common, gcn, power_iteration = (importlib.import_module(name) for name in ("common", "gcn", "power_iteration"))

SCRIPTS = sorted(path.stem for path in EXAMPLES.glob("*.py") if path.stem != "common")


def run(name: str, *options, **environment: str) -> subprocess.CompletedProcess:
    command = [sys.executable, EXAMPLES / f"{name}.py", *map(str, options)]
    return subprocess.run(command, capture_output=True, text=True, env=os.environ | environment, cwd=EXAMPLES.anchor)


@pytest.mark.parametrize("name", SCRIPTS)
def test_without_a_gpu_an_example_says_so_in_one_sentence(name):
    sizes = ("--outputs", 64) if name == "pruned_linear" else ()
    done = run(name, *sizes, CUDA_VISIBLE_DEVICES="")
    assert done.returncode == 2 and not done.stdout
    assert done.stderr.startswith("GPU 0 cannot be used") and done.stderr.count("\n") == 1


def test_matrices_by_file_and_by_name(tmp_path, monkeypatch):
    a = sp.random(30, 30, 0.2, format="csr", random_state=0)
    sp.save_npz(tmp_path / "one.npz", a)
    scipy.io.mmwrite(tmp_path / "two.mtx", a)
    monkeypatch.setenv("SPARSITY_MATRICES", str(tmp_path))
    for name in ("one", "two", str(tmp_path / "one.npz"), str(tmp_path / "two.mtx")):
        found, said = common.matrix(name, 10, 0)
        assert np.allclose(found.toarray(), a.toarray()) and said in ("one", "two")
    sp.save_npz(tmp_path / "wide.npz", a[:10])
    with pytest.raises(ValueError, match="wide.npz is 10 x 30, but must be square"):
        common.matrix("wide", 10, 0)


OUTSIDE = sp.csc_array((np.ones(1), [0], [0, 1]), shape=(1, 1))
OUTSIDE.indices[0] = 10**6


@pytest.mark.parametrize(
    ("name", "held", "words"),
    [
        ("fortran.mtx", "%%MatrixMarket matrix coordinate real general\n1 1 1\n1 1 1.0D+03\n", None),
        (
            "comma.mtx",
            "%%MatrixMarket matrix coordinate real general\n1 1 1\n1 1 1,5\n",
            "line 3 has '1,5', which is no number",
        ),
        ("nothing.mtx", "%%MatrixMarket matrix array real general\n0 3\n", "is 0 x 3, but must be square"),
        ("csc.npz", OUTSIDE, "CSC row_idx.0. is 1000000"),
        ("text.npz", "text", "text.npz holds no sparse matrix"),
    ],
)
def test_a_file_is_read_to_its_last_character_or_refused(name, held, words, tmp_path):
    path = tmp_path / name
    path.write_text(held) if isinstance(held, str) else sp.save_npz(path, held)
    with pytest.raises(ValueError, match=words) if words else nullcontext():
        assert common.matrix(str(path), 10, 0)[0].toarray() == [[1000]]


def test_a_generated_graph_has_no_directions_no_loops_and_hubs():
    a = common.graph(2000, 0)
    assert (a != a.T).nnz == 0 and not a.diagonal().any() and set(a.data) == {1}
    degrees = np.diff(a.indptr)
    assert 8 < degrees.mean() < 17 and degrees.max() > 5 * degrees.mean()
    assert (common.graph(2000, 0) != a).nnz == 0 and (common.graph(2000, 1) != a).nnz


def layer(seed: int = 0):
    """A small network: Â, and in float64 its input, weights and target."""
    a = gcn.normalised(common.graph(40, seed, neighbours=4)).astype(np.float64)
    rng = np.random.default_rng(seed)
    return a, [rng.standard_normal(shape) for shape in ((40, 6), (6, 5), (5, 3), (40, 3))]


def test_the_normalised_graph_is_symmetric_with_the_largest_eigenvalue_one():
    a, _ = layer()
    dense = a.toarray()
    assert np.allclose(dense, dense.T, atol=1e-7) and (dense.diagonal() > 0).all()
    assert np.isclose(np.linalg.eigvalsh(dense).max(), 1, atol=1e-6)


def test_gradients_by_hand_are_those_of_differences():
    a, (x, w1, w2, target) = layer()

    def loss(w1, w2):
        y = a @ (np.maximum(a @ (x @ w1), 0) @ w2)
        return ((y - target) ** 2).mean()

    for which, found in enumerate(gcn.gradients(a, x, w1, w2, target)):
        for place in ((0, 0), (2, 1), (4, 2)):
            far = [np.zeros_like(w) for w in (w1, w2)]
            far[which][place] = 1e-6
            slope = (loss(w1 + far[0], w2 + far[1]) - loss(w1 - far[0], w2 - far[1])) / 2e-6
            assert np.isclose(found[place], slope, rtol=1e-4, atol=1e-8)


def test_power_iteration_finds_the_largest_eigenvalue():
    a = sp.diags_array([5.0, -2.0, 1.0, 0.5]) + sp.csr_array((4, 4))
    start = np.random.default_rng(0).standard_normal((4, 3))
    found, x = power_iteration.iterated(lambda x: a @ x, start, 60, np)
    assert np.allclose(found, 5) and np.allclose(np.abs(x[0]), 1)


def test_what_is_recorded_is_what_the_page_shows(tmp_path, monkeypatch):
    monkeypatch.setattr(common.trial, "open_device", lambda: SimpleNamespace(name="NVIDIA H200"))
    assert common.COLUMNS == examples.COLUMNS and examples.tables(tmp_path) == examples.NONE
    path = tmp_path / "nvidia-h200.csv"
    rows = [common.Row("ours", 1000.0, 1.2e-7), common.Row("other", 2500.0, 2e-7)]
    none = common.Row("none", np.nan, np.nan, "is not installed")
    for name, what, shown in (("gcn", "a graph", rows), ("power_iteration", "a matrix", [*rows, none])):
        common.write(path, name, what, shown)
    first, second = examples.tables(tmp_path).split(":::{table} `")[1:]
    assert first.startswith("gcn`, a graph, on an NVIDIA H200, 20") and second.startswith("power_iteration`")
    assert "| ours | 1,000.0 | 1.00 | 1.2\u202f·\u202f10⁻⁷ |" in first
    assert (
        "| other | 2,500.0 | 2.50 | 2.0\u202f·\u202f10⁻⁷ |" in first and "| none | is not installed |  |  |" in second
    )
    (tmp_path / "other.csv").write_text("a,b\n1,2\n")
    with pytest.raises(ValueError, match="other.csv has the columns a, b, but a record of the examples"):
        examples.tables(tmp_path)


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("power_iteration", ("--rows", 2000, "--iterations", 20)),
        ("power_iteration", ("--rows", 2000, "--iterations", 20, "--vectors", 1)),
        ("pruned_linear", ("--outputs", 256, "--inputs", 512, "--tokens", 64)),
        ("pruned_linear", ("--outputs", 256, "--inputs", 512, "--tokens", 64, "--pattern", "block")),
        ("gcn", ("--nodes", 2000, "--features", 32, "--hidden", 32, "--classes", 8)),
    ],
)
def test_an_example_runs_and_is_right(name, options, tmp_path):
    pytest.importorskip("cupy")
    if name == "gcn":
        pytest.importorskip("torch")
    done = run(name, *options, SPARSITY_CHOICES=str(tmp_path))
    assert done.returncode == 0, done.stderr
    ours = next(line for line in done.stdout.splitlines() if line.startswith("ours"))
    assert float(ours.split()[-1]) < (2e-3 if name == "pruned_linear" else 1e-4)
