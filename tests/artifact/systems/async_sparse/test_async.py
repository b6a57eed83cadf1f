"""What the chapter measures, and what its tables, figures and rules are computed from."""

from types import SimpleNamespace
from unittest.mock import Mock

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import synthetic
from refused import refused

from artifact import registry
from artifact.book.study import start
from artifact.measure import bench, matrices, records
from artifact.measure.run import Refused
from artifact.systems.async_sparse import experiments, facts, scripts
from artifact.systems.async_sparse.experiments import BELL, CSR, KEPT, TORCH, TRITON, WCSR, get
from kernels.async_sparse import operands
from kernels.formats import bcsr, csr, wcsr


def folder_of(where, monkeypatch, count: int, size: int, density: float) -> list[str]:
    """The names of so many matrices of the system's list, which the user's folder then has."""
    names = matrices.listed(registry.FOLDER / experiments.SYSTEM / registry.MATRICES)["name"].head(count).tolist()
    for i, name in enumerate(names):
        a = scipy.sparse.random(size + i, size + i, density, format="csr", random_state=i)
        scipy.sparse.save_npz(where / f"{name}.npz", a)
    monkeypatch.setenv(matrices.VARIABLE, str(where))
    monkeypatch.setattr(matrices, "FAMILIES", {})
    return names


@pytest.fixture
def measuring(tmp_path, monkeypatch):
    """(a function: contenders of ours, of libraries -> a run that seems to measure; the names of four small matrices;
    what runs were asked for: experiment, label, n, contenders)."""
    names, folder, asked = folder_of(tmp_path, monkeypatch, 4, 100, 0.05), tmp_path / "records", []
    row = synthetic.experiment("wide").iloc[0].to_dict()

    def measure(experiment, problems, offered, timer):
        assert (timer is bench.time) != experiment.endswith(experiments.WARM)
        for problem in problems:
            asked.append((experiment, problem.label, problem.n, list(offered)))
            at = {name: getattr(problem, name) for name in ("label", "m", "n", "k", "density", "nnz")}
            rows = [row | at | {"room": experiments.SYSTEM, "experiment": experiment, "variant": v} for v in offered]
            records.append(folder / f"{experiment}.csv", synthetic.consistent(pd.DataFrame(rows)))

    def run(ours=(KEPT, "auto"), libraries=(BELL, "other")):
        asked.clear()
        return SimpleNamespace(
            room=experiments.SYSTEM,
            mode="measure",
            preset="full",
            seed=0,
            folder=folder,
            measure=measure,
            machine={"memory_bytes": 2**30, "compute_capability": "9.0"},
            variants=lambda names=ours: dict.fromkeys(names),
            baselines=lambda: dict.fromkeys(libraries),
        )

    return run, names, asked


def test_matrices_of_the_folder_are_measured_once(measuring):
    run, names, asked = measuring
    assert get(run(), "ablation")["label"].nunique() == 4
    assert asked == [("ablation", name, 1024, [KEPT, "auto", BELL]) for name in names]
    get(run(), "ablation")
    assert asked == []  # all are there


def test_what_does_not_fit_is_left_out(measuring, monkeypatch):
    run, names, asked = measuring
    small = run()
    small.machine["memory_bytes"] = 4 * 2 * 2 * 64 * 64 * 2 - 1  # two rows of two blocks are a quarter of it
    get(small, "ablation")
    assert all(BELL not in offered for *_, offered in asked) and len(asked) == 4
    monkeypatch.setattr(experiments, "MOST_BYTES", 1)
    assert get(run(), "tile_n") is None and asked == []


@pytest.mark.parametrize(
    ("experiment", "ours", "asked_for", "at"),
    [
        ("spmm_tf32", ("wcsr", "windows", "union_rows", KEPT), ["wcsr", "windows", KEPT, BELL, "cusparse_alg2"], 12),
        ("spmm", ("wcsr", "windows", "union_rows", KEPT), ["union_rows", "cusparse_alg2"], 12),
        ("spmm_rcm", ("wcsr",), None, 0),  # auto_fp32 alone is ours there
        ("spmm_rcm", ("auto_fp32",), ["auto_fp32", "cusparse_alg2"], 2),  # every third
        ("wcsr_parts", ("wcsr", "wcsr_whole", "windows"), list(experiments.PARTS), 1),
        ("spmm_tf32_warm", ("wcsr",), ["wcsr", BELL, "cusparse_alg2"], 12),
    ],
)
def test_matrices_in_csr_are_measured_for_what_takes_them(measuring, experiment, ours, asked_for, at):
    run, names, asked = measuring
    df = get(run(ours, (BELL, "cusparse_alg2", "cusparse_default")), experiment)
    assert (df is None) == (at == 0) and len(asked) == at and all(offered == asked_for for *_, offered in asked)
    assert [(label, n) for _, label, n, _ in asked] == [
        (name, n) for name in names[:: {12: 1, 2: 3}.get(at, 5)] for n in experiments.REAL[experiment].sizes
    ][:at]


def test_a_library_that_fails_is_left_out_at_a_matrix_and_not_asked_again(measuring):
    run, names, asked = measuring
    both = run(("union_rows",), ("cusparse_alg2", "cusparse_alg3"))
    measure = both.measure

    def refusing(experiment, problems, offered, timer):
        if "cusparse_alg3" in offered and problems[0].label == names[1]:
            raise Refused("cusparse_alg3", "cuSPARSE refuses alg3 here")
        measure(experiment, problems, offered, timer)

    both.measure = refusing
    df = get(both, "spmm")
    assert names[1] not in set(df.loc[df["variant"] == "cusparse_alg3", "label"])
    asked.clear()
    get(both, "spmm")
    assert asked == []


def test_a_kernel_of_ours_that_fails_ends_the_measurement(measuring):
    both = measuring[0](("union_rows",), ("cusparse_alg2",))
    both.variants = lambda names=(): {"union_rows": Mock(side_effect=ValueError("out of resources"))}
    both.measure = lambda experiment, problems, offered, timer: offered["union_rows"](problems[0])
    refused("^out of resources$", get, both, "spmm")


def test_block_contenders_are_left_out_where_blocks_are_too_many(monkeypatch):
    rng = np.random.default_rng(0)
    rows = np.sort(rng.integers(0, 640, 4000))
    columns = rng.integers(0, 640, 4000).astype(np.int32)
    a = csr.Csr(640, 640, csr.offsets(rows * 640, 640, 640), columns, np.ones(4000, np.float32))
    every = [WCSR, KEPT, BELL, TRITON, "cusparse_alg2"]
    assert experiments.too_large(a, every, "tf32", np.inf) == {}
    monkeypatch.setattr(experiments, "MOST_SUMMED", 99)
    found = experiments.too_large(a, every, "tf32", np.inf)
    assert list(found) == [TRITON] and "sums 100 blocks in float64" in found[TRITON]
    assert list(experiments.too_large(a, [BELL], "tf32", 6e6)) == [BELL]
    monkeypatch.setattr(experiments, "MOST_BYTES", 1)
    assert list(experiments.too_large(a, every, "tf32", np.inf)) == [KEPT, BELL, TRITON]


def test_the_kernel_for_blocks_gets_b_as_the_source_has_it(monkeypatch):
    from fake_libraries import csr_problem, install

    install(monkeypatch)
    problem = csr_problem(64, 24, 96, dtype="tf32")
    seen = []

    def prepare(given):
        seen.append(given.device())
        return SimpleNamespace(prepare_ms=1.0, prepare_bytes=10)

    bound = experiments.in_source_layout(prepare, problem)
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


@pytest.mark.gpu
def test_a_matrix_is_measured_on_a_gpu(tmp_path, monkeypatch):
    (one_matrix,) = folder_of(tmp_path, monkeypatch, 1, 1000, 0.03)
    run = start("async_sparse", "measure", preset="kick", folder=str(tmp_path / "records")).run
    tf32, float32 = get(run, "spmm_tf32"), get(run, "spmm")
    assert {WCSR, "windows", KEPT, CSR} <= set(tf32["variant"]) and set(tf32["n"]) == {256}
    assert (tf32["rel_err"] < 1e-4).all() and (float32["rel_err"] < 1e-5).all()
    assert {"windows_exact", CSR} <= set(float32["variant"])
    kept = experiments.matrix(one_matrix, matrices.folder())
    np.testing.assert_allclose(
        facts.statistics(tf32)["shared"], kept.nnz / wcsr.from_csr(kept, window=64, pad=1, dtype="float32").columns
    )
    assert set(experiments.PARTS) <= set(get(run, "wcsr_parts")["variant"])
    made_of = experiments.conversions(run)
    assert made_of["matrix"].tolist() == [one_matrix] and (made_of[["bcsr_ms", "wcsr_ms"]] > 0).all(axis=None)
    assert (made_of["wcsr_bytes"] < made_of["bcsr_bytes"]).all()


@pytest.mark.gpu
def test_a_sweep_is_measured_on_a_gpu(tmp_path):
    df = get(start("async_sparse", "measure", preset="kick", folder=str(tmp_path)).run, "gate_proj")
    assert {KEPT, "auto", TORCH} <= set(df["variant"]) and (df["rel_err"] < 0.01).all()


def test_break_even_lies_between_the_points_or_nowhere():
    s = pd.Series({0.5: 0.5, 0.125: 2.0, 0.01: 8.0})
    assert experiments.break_even(s) == pytest.approx(0.25)
    assert np.isnan(experiments.break_even(s * 0.1)) and np.isnan(experiments.break_even(s * 10))


# ---------------------------------------------------------------- who is ahead, and the rule


def test_statistics_of_a_record_are_those_of_the_matrix():
    rng = np.random.default_rng(1)
    row_ptr = np.arange(0, 200 * 7 + 1, 7).astype(np.int32)
    a = csr.Csr(200, 300, row_ptr, rng.integers(0, 300, 1400).astype(np.int32), np.ones(1400, np.float32))
    for n in (64, 200, 1024):
        p = operands.problem_from_csr(a, n, dtype="tf32", reorder="", format="csr")
        row = {x: [getattr(p, x)] for x in ("m", "n", "k", "nnz", "requested_bytes")}
        found, kept = facts.statistics(pd.DataFrame(row)).iloc[0], p.host().a
        assert found["per_row"] == pytest.approx(kept.nnz / 200)
        assert found["shared"] == pytest.approx(
            kept.nnz / wcsr.from_csr(kept, window=64, pad=1, dtype="float32").columns
        )


def points(shared, a, b) -> pd.DataFrame:
    df = pd.DataFrame({"shared": shared, "per_row": 5.0, "a": a, "b": b})
    winner = pd.Categorical(df[["a", "b"]].idxmin(axis=1), ["a", "b"])
    return df.assign(label=[f"matrix{i}" for i in range(len(df))], winner=winner)


def test_a_split_lies_between_the_points_that_differ():
    found = facts.split(points([1.0, 2.0, 8.0, 9.0], [1, 1, 4, 4], [2, 2, 2, 2]))
    assert (found["statistic"], found["below"], found["above"]) == ("shared", "a", "b")
    assert found["at"] == pytest.approx(4.0)
    same = facts.split(points([3.0, 3.0], [1, 1], [2, 2]))
    assert same["below"] == same["above"] == "a"


def test_what_a_rule_costs_is_asked_where_it_has_not_looked():
    """One odd matrix among many: a rule that knew it would lose nothing; without it, it chooses the other kernel."""
    shared = [1.0, 1.1, 1.2, 8.0, 8.1, 8.2, 100.0]
    a, b = [1, 1, 1, 2, 2, 2, 1], [2, 2, 2, 1, 1, 1, 3]
    found = facts.leave_out(points(shared, a, b))
    assert found["right"] == pytest.approx(6 / 7)
    assert found["worst"] == pytest.approx(2) and found["lost"] == pytest.approx(3 ** (1 / 7) - 1)
    assert found["fixed"] in ("a", "b") and found["fixed_lost"] > found["lost"]


def test_all_n_of_a_matrix_are_left_out_together():
    odd = points([1.0, 1.2, 8.0, 9.0], [1, 1, 2, 1], [2, 2, 1, 9])
    assert facts.leave_out(pd.concat([odd] * 3, ignore_index=True))["worst"] == 8


# ---------------------------------------------------------------- tables


# ---------------------------------------------------------------- counters and clocks


def test_ncu_is_read_for_the_last_launch():
    names = dict(zip(scripts.METRICS, ("8,000,000", "32,000", "4,000", "2,000", "500"), strict=True))
    lines = ["==PROF== Connected", '"ID","Metric Name","Metric Value"', '"0","gpu__time_duration.sum","9,999"']
    found = scripts.counted([*lines, *(f'"1","{metric}","{value}"' for metric, value in names.items())])
    assert found == (8.0, 32000, 4000, 0.25)
    refused("ncu counted no launch", scripts.counted, ["==ERROR== no"])
