"""The table of what the formats cost: its counts against the formats', its facts, its file."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import scipy.sparse

from artifact.measure import matrices
from artifact.rooms.async_sparse import conversions, facts
from kernels.formats import bcsr, csr


def table(**changed) -> pd.DataFrame:
    row = dict.fromkeys(conversions.COLUMNS, 0.5) | {"matrix": "a", "m": 10, "k": 10, "nnz": 9}
    return pd.DataFrame([row | changed])[list(conversions.COLUMNS)]


def test_fill_ratios_are_those_of_the_formats():
    a = csr.from_scipy(scipy.sparse.random(300, 200, 0.02, "csr", random_state=1, dtype=np.float32))
    blocks, windows = conversions.fills(a)
    assert blocks == pytest.approx(bcsr.from_csr(a).fill_ratio)
    assert blocks < windows <= 1, "windows leave out the empty columns of a block"


def test_nothing_measured_is_no_fact():
    assert conversions.conversions(None) is None
    assert not list(facts.formats(None))


def test_the_table_beside_the_records_is_read(tmp_path):
    run = SimpleNamespace(mode="recorded", folder=tmp_path)
    assert conversions.conversions(run) is None
    path = tmp_path / conversions.TABLE
    path.parent.mkdir()
    table(bcsr_fill=0.25, wcsr_fill=0.5, rcm_ms=3.0).to_csv(path, index=False)
    said = dict(facts.formats(conversions.conversions(run)))
    assert [said[f"format.{c}"] for c in ("matrices", "bcsr_fill", "wcsr_fill", "rcm_ms")] == [1, 0.25, 0.5, 3.0]
    table().drop(columns="rcm_ms").to_csv(path, index=False)
    with pytest.raises(ValueError, match="the column 'rcm_ms' is missing"):
        conversions.conversions(run)


@pytest.mark.gpu
def test_a_measurement_writes_the_table(tmp_path, monkeypatch, device):
    where = tmp_path / "matrices"
    where.mkdir()
    name = matrices.listed(conversions.rooms.matrices(conversions.ROOM))["name"].iloc[0]
    a = scipy.sparse.random(500, 500, 0.01, format="csr", random_state=2)
    scipy.sparse.save_npz(where / f"{name}.npz", a)
    monkeypatch.setenv(matrices.VARIABLE, str(where))
    run = SimpleNamespace(mode="measure", folder=tmp_path / "records")
    df = conversions.conversions(run)
    assert df["matrix"].tolist() == [name] and (df[["bcsr_ms", "wcsr_ms"]] > 0).all(axis=None)
    assert (df["bcsr_fill"] < df["wcsr_fill"]).all() and (df["wcsr_bytes"] < df["bcsr_bytes"]).all()
