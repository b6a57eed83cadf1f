"""The chapter's experiments: what is asked for, what is left out, and what is read."""

from __future__ import annotations

from types import SimpleNamespace

import async_records as made
import numpy as np
import pandas as pd
import pytest
import scipy.sparse

from artifact import registry
from artifact.book.study import start
from artifact.measure import matrices
from artifact.rooms.async_sparse import contenders, experiments, facts
from artifact.rooms.async_sparse.contenders import BELL, CSR, KEPT, TORCH, TRITON, WCSR
from artifact.rooms.async_sparse.experiments import get
from kernels import async_sparse as room
from kernels.async_sparse import operands
from kernels.formats import bcsr, csr

SMALL = [{"m": 512, "n": 256, "k": 384, "density": d} for d in (0.5, 0.1)]


@pytest.fixture
def sweeps(monkeypatch):
    """Kernels whose sweep "ladder" has small shapes."""
    offered = SimpleNamespace(sweeps=lambda preset: {"ladder": SMALL}, problem=room.problem)
    monkeypatch.setattr(experiments, "kernels", offered)


def test_a_record_that_is_not_there_leaves_the_others(tmp_path, sweeps):
    made.folder(tmp_path, without=["ladder", "spmm_tf32", "counters"])
    run = start("async_sparse", "recorded", folder=str(tmp_path)).run
    assert get(run, "ladder") is None and get(run, "spmm_tf32") is None
    assert len(get(run, "ablation")) > 0
    assert experiments.trace(run) is None and experiments.conversions(run) is None


def test_a_sweep_is_read_for_the_contenders_that_it_has(tmp_path, sweeps):
    rows = []
    for shape in SMALL:
        nnz = room.problem(**shape).nnz
        at = (shape["m"], shape["n"], shape["k"])
        rows += [made.row("ladder", v, "", at, shape["density"], nnz, 5.0, 2.0 * nnz) for v in (KEPT, TORCH)]
    made.folder(tmp_path, ladder=made.frame(rows))
    df = get(start("async_sparse", "recorded", folder=str(tmp_path)).run, "ladder")
    assert df["variant"].tolist() == [KEPT, TORCH] * 2 and df["density"].tolist() == [0.5, 0.5, 0.1, 0.1]


def test_the_fastest_algorithm_for_csr_stands_for_them(run):
    assert (get(run, "ablation")["variant"] == CSR).sum() == 8
    two = pd.concat([made.ablation(), made.ablation().replace("cusparse_alg2", "cusparse_alg3")], ignore_index=True)
    two = made.faster(two, "cusparse_alg3", 3.0)
    best = experiments.with_csr(two).query("variant == @CSR")
    np.testing.assert_allclose(best["median_us"], two.loc[two["variant"] == "cusparse_alg3", "median_us"])
    none = made.ablation().query("variant != 'cusparse_alg2'")
    assert experiments.with_csr(none) is none


def test_matrices_of_the_folder_are_measured_once(measuring):
    run, names, asked = measuring
    df = get(run, "ablation")
    assert asked == [("ablation", name, 1024, [KEPT, "auto", BELL]) for name in names]
    assert df["label"].nunique() == 5
    get(run, "ablation")
    assert len(asked) == 5  # all are there


def test_what_does_not_fit_is_left_out(measuring, monkeypatch):
    run, names, asked = measuring
    run.machine["memory_bytes"] = 4 * 2 * 2 * 64 * 64 * 2 - 1  # two rows of two blocks are a quarter of it
    get(run, "ablation")
    assert all(BELL not in offered for *_, offered in asked) and len(asked) == 5
    monkeypatch.setattr(experiments, "MOST_BYTES", 1)
    asked.clear()
    assert get(run, "tile_n") is None and asked == []


def test_matrices_in_csr_are_measured_for_what_takes_them(measuring):
    run, names, asked = measuring
    run.variants = lambda names=("wcsr", "windows", "union_rows", KEPT): dict.fromkeys(names)
    run.baselines = lambda: dict.fromkeys([BELL, "cusparse_alg2", "cusparse_default"])
    assert get(run, "spmm_tf32")["label"].nunique() == 5
    sizes = [(n, offered) for _, label, n, offered in asked if label == names[0]]
    assert [n for n, _ in sizes] == [256, 512, 1024]
    assert sizes[0][1] == ["wcsr", "windows", KEPT, BELL, "cusparse_alg2"]  # there is no auto_tf32
    asked.clear()
    get(run, "spmm")
    assert {tuple(offered) for *_, offered in asked} == {("union_rows", "cusparse_alg2")} and len(asked) == 15
    asked.clear()
    assert get(run, "spmm_rcm") is None and asked == []  # auto_fp32 alone is ours there
    run.variants = lambda names=("auto_fp32",): dict.fromkeys(names)
    get(run, "spmm_rcm")
    assert [(label, n) for _, label, n, _ in asked] == [(names[0], 1024), (names[3], 1024)]
    asked.clear()
    run.variants = lambda names=("wcsr", "wcsr_whole", "windows"): dict.fromkeys(names)
    get(run, "wcsr_parts")
    assert [(label, n) for _, label, n, _ in asked] == [(names[0], 512)]
    assert asked[0][3] == list(contenders.PARTS)


def test_a_library_that_fails_is_left_out_at_a_matrix_and_not_asked_again(measuring):
    run, names, asked = measuring
    run.variants = lambda names=("union_rows",): dict.fromkeys(names)
    run.baselines = lambda: dict.fromkeys(["cusparse_alg2", "cusparse_alg3"])
    measure = run.measure

    def refusing(experiment, problems, offered):
        if "cusparse_alg3" in offered and problems[0].label == names[1]:
            raise ValueError("cusparse_alg3: cuSPARSE refuses alg3 here")
        measure(experiment, problems, offered)

    run.measure = refusing
    df = get(run, "spmm")
    assert names[1] not in set(df.loc[df["variant"] == "cusparse_alg3", "label"])
    asked.clear()
    get(run, "spmm")
    assert asked == []


def test_orders_of_rows_are_kept_apart(measuring):
    run, names, _ = measuring
    given, ordered = (experiments.matrix(names[0], matrices.folder(), order) for order in ("", "rcm"))
    assert given.nnz == ordered.nnz and given.k == ordered.k == 128
    assert not np.array_equal(given.col_idx, ordered.col_idx)


def test_a_kick_takes_few_matrices_and_one_n(measuring):
    run, names, asked = measuring
    run.preset = "kick"
    run.variants = lambda names=("wcsr",): dict.fromkeys(names)
    get(run, "spmm_tf32")
    assert [(label, n) for _, label, n, _ in asked] == [(name, 256) for name in names[:3]]
    asked.clear()
    get(run, "wcsr_parts")
    assert [n for _, _, n, _ in asked] == [256]


def test_a_gpu_without_wgmma_is_asked_for_what_it_has(measuring):
    run, names, asked = measuring
    run.machine["compute_capability"] = "8.9"
    run.variants = lambda names=("opt0", KEPT, "auto"): dict.fromkeys(names)
    get(run, "ablation")
    assert {tuple(offered) for *_, offered in asked} == {("opt0", BELL)}
    assert get(run, "tile_n") is None and experiments.trace(run) is None


def test_a_trace_is_written_where_clocks_are_kept(measuring, monkeypatch):
    run, *_ = measuring
    monkeypatch.setattr(
        "kernels.async_sparse.timeline.timeline", lambda problem, device: made.timeline().to_dict("records")
    )
    run.device = None
    pd.testing.assert_frame_equal(experiments.trace(run), made.timeline())


def test_widths_of_the_tile_are_asked_for_by_name(measuring):
    run, _, asked = measuring
    get(run, "tile_n")
    assert asked[0][3] == [f"opt5_n{width}" for width in range(8, 257, 8)]


def test_without_a_folder_of_matrices_records_are_read(tmp_path, monkeypatch):
    monkeypatch.delenv(matrices.VARIABLE, raising=False)
    folder = made.folder(tmp_path) / made.ROOM
    run = SimpleNamespace(mode="measure", folder=folder, preset="full", seed=0)
    assert get(run, "ablation")["label"].nunique() == 8


def test_block_contenders_are_left_out_where_blocks_are_too_many(monkeypatch):
    rng = np.random.default_rng(0)
    rows = np.sort(rng.integers(0, 640, 4000))
    columns = rng.integers(0, 640, 4000).astype(np.int32)
    a = csr.Csr(640, 640, csr.offsets(rows * 640, 640, 640), columns, np.ones(4000, np.float32))
    every = [WCSR, KEPT, BELL, TRITON, "cusparse_alg2"]
    assert experiments.too_large(a, every, "tf32", np.inf) == {}
    assert experiments.too_large(a, [WCSR, "cusparse_alg2"], "float32", 1) == {}
    monkeypatch.setattr(experiments, "MOST_SUMMED", 99)
    found = experiments.too_large(a, every, "tf32", np.inf)
    assert list(found) == [TRITON] and "sums 100 blocks in float64" in found[TRITON]
    assert experiments.too_large(a, every, "bfloat16", np.inf) == {}  # it has tensor cores
    assert list(experiments.too_large(a, [BELL], "tf32", 6e6)) == [BELL]
    monkeypatch.setattr(experiments, "MOST_BYTES", 1)
    assert list(experiments.too_large(a, every, "tf32", np.inf)) == [KEPT, BELL, TRITON]


def test_the_kernel_for_blocks_gets_b_as_the_source_has_it(monkeypatch):
    from fake_libraries import csr_problem, install

    install(monkeypatch)
    problem = csr_problem(64, 24, 96, dtype="tf32")
    seen = []

    def bind(given):
        seen.append(given.device())
        return SimpleNamespace(prepare_ms=1.0, prepare_bytes=10)

    bound = experiments.in_source_layout(bind, problem)
    (given,) = seen
    assert given.b.flags.f_contiguous and not given.b.flags.c_contiguous
    np.testing.assert_array_equal(given.b, problem.host().b)
    assert given.c is problem.device().c and problem.device().b.flags.c_contiguous
    assert bound.prepare_ms > 1 and bound.prepare_bytes == 10 + 4 * 96 * 24


def test_fill_ratios_are_those_of_the_formats():
    a = csr.from_scipy(scipy.sparse.random(300, 200, 0.02, "csr", random_state=1, dtype=np.float32))
    blocks, windows = experiments.fills(a)
    assert blocks == pytest.approx(bcsr.from_csr(a).fill_ratio)
    assert blocks < windows <= 1, "windows leave out the empty columns of a block"


@pytest.fixture
def one_matrix(tmp_path, monkeypatch):
    """The name of a matrix that the user's folder has."""
    where = tmp_path / "matrices"
    where.mkdir()
    name = matrices.listed(registry.FOLDER / made.ROOM / registry.MATRICES)["name"].iloc[0]
    a = scipy.sparse.random(1000, 1000, 0.03, format="csr", random_state=1)
    scipy.sparse.save_npz(where / f"{name}.npz", a)
    monkeypatch.setenv(matrices.VARIABLE, str(where))
    return name


@pytest.mark.gpu
def test_a_matrix_is_measured_on_a_gpu(tmp_path, one_matrix):
    run = start("async_sparse", "measure", preset="kick", folder=str(tmp_path / "records")).run
    tf32, float32 = get(run, "spmm_tf32"), get(run, "spmm")
    assert {WCSR, "windows", KEPT, CSR} <= set(tf32["variant"]) and set(tf32["n"]) == {256}
    assert (tf32["rel_err"] < 1e-4).all() and (float32["rel_err"] < 1e-5).all()
    assert {"windows_exact", CSR} <= set(float32["variant"])
    kept = experiments.matrix(one_matrix, matrices.folder())
    np.testing.assert_allclose(facts.statistics(tf32)["shared"], kept.nnz / operands.column_vectors(kept))
    assert set(contenders.PARTS) <= set(get(run, "wcsr_parts")["variant"])
    made_of = experiments.conversions(run)
    assert made_of["matrix"].tolist() == [one_matrix] and (made_of[["bcsr_ms", "wcsr_ms"]] > 0).all(axis=None)
    assert (made_of["wcsr_bytes"] < made_of["bcsr_bytes"]).all()


@pytest.mark.gpu
def test_a_sweep_is_measured_on_a_gpu(tmp_path):
    df = get(start("async_sparse", "measure", preset="kick", folder=str(tmp_path)).run, "gate_proj")
    assert {KEPT, "auto", TORCH} <= set(df["variant"]) and (df["rel_err"] < 0.01).all()
