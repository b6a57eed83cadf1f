"""Runs of the made-up machine: one that reads its records, and one that seems to measure."""

from types import SimpleNamespace

import async_records as made
import pytest

from artifact import registry
from artifact.book.study import start
from artifact.measure import matrices, records
from artifact.rooms.async_sparse.contenders import BELL, KEPT


@pytest.fixture
def run(tmp_path):
    made.folder(tmp_path)
    return start("async_sparse", "recorded", folder=str(tmp_path)).run


@pytest.fixture
def measuring(tmp_path, monkeypatch):
    """A run that seems to measure; what it is asked for, (experiment, label, n, contenders)."""
    import scipy.sparse

    where = tmp_path / "matrices"
    where.mkdir()
    names = matrices.listed(registry.FOLDER / made.ROOM / registry.MATRICES)["name"].head(5).tolist()
    for i, name in enumerate(names):
        a = scipy.sparse.random(100 + i, 100 + i, 0.05, format="csr", random_state=i)
        scipy.sparse.save_npz(where / f"{name}.npz", a)
    monkeypatch.setenv(matrices.VARIABLE, str(where))
    asked = []

    def measure(experiment, problems, offered):
        for problem in problems:
            asked.append((experiment, problem.label, problem.n, list(offered)))
            rows = [
                made.row(
                    experiment,
                    v,
                    problem.label,
                    (problem.m, problem.n, problem.k),
                    problem.density,
                    problem.nnz,
                    1.0,
                    1e4,
                )
                for v in offered
            ]
            records.append(folder / f"{experiment}.csv", made.frame(rows))

    folder = tmp_path / "records"
    run = SimpleNamespace(
        mode="measure",
        preset="full",
        seed=0,
        folder=folder,
        measure=measure,
        machine={"memory_bytes": 2**30, "compute_capability": "9.0"},
        variants=lambda names=(KEPT, "auto"): dict.fromkeys(names),
        baselines=lambda: dict.fromkeys([BELL, "other"]),
    )
    return run, names, asked
