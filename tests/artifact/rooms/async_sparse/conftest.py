"""A run that seems to measure."""

from types import SimpleNamespace

import pandas as pd
import pytest
import scipy.sparse
import synthetic

from artifact import registry
from artifact.measure import matrices, records
from artifact.rooms.async_sparse.contenders import BELL, KEPT, ROOM


@pytest.fixture
def measuring(tmp_path, monkeypatch):
    """A run that seems to measure, the names of five small matrices that the user's folder has, and what the run is
    asked for: (experiment, label, n, contenders)."""
    names = matrices.listed(registry.FOLDER / ROOM / registry.MATRICES)["name"].head(5).tolist()
    folder, asked, row = tmp_path / "records", [], synthetic.experiment("wide").iloc[0].to_dict()
    for i, name in enumerate(names):
        a = scipy.sparse.random(100 + i, 100 + i, 0.05, format="csr", random_state=i)
        scipy.sparse.save_npz(tmp_path / f"{name}.npz", a)
    monkeypatch.setenv(matrices.VARIABLE, str(tmp_path))

    def measure(experiment, problems, offered):
        for problem in problems:
            asked.append((experiment, problem.label, problem.n, list(offered)))
            at = {name: getattr(problem, name) for name in ("label", "m", "n", "k", "density", "nnz")}
            rows = [row | at | {"room": ROOM, "experiment": experiment, "variant": v} for v in offered]
            records.append(folder / f"{experiment}.csv", synthetic.consistent(pd.DataFrame(rows)))

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
