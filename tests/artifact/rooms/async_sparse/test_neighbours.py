"""What a mesh's side does to DRAM: ncu's CSV is read, facts are of what was counted."""

from __future__ import annotations

import pandas as pd
import pytest

from artifact.rooms.async_sparse import neighbours
from artifact.rooms.async_sparse.spmm import facts, tables

SAID = """==PROF== Connected
"ID","Kernel Name","Metric Name","Metric Unit","Metric Value"
"0","union_rows","gpu__time_duration.sum","ns","9,999"
"1","union_rows","gpu__time_duration.sum","ns","8,000,000"
"1","union_rows","dram__bytes_read.sum","byte","32,000"
"1","union_rows","dram__bytes_write.sum","byte","4,000"
"1","union_rows","lts__t_sectors_op_read.sum","sector","2,000"
"1","union_rows","lts__t_sectors_op_read_lookup_hit.sum","sector","500"
""".splitlines()


def test_the_last_launch_counts():
    found = neighbours.counted(SAID)
    assert found == {"ms": 8.0, "dram_read_bytes": 32000, "dram_write_bytes": 4000, "l2_hit": 0.25}
    with pytest.raises(ValueError, match="ncu counted no launch"):
        neighbours.counted(["==ERROR== no"])


def test_without_ncu_it_is_one_sentence(monkeypatch):
    monkeypatch.setattr(neighbours.shutil, "which", lambda name: None)
    with pytest.raises(FileNotFoundError, match="counters need ncu"):
        neighbours.main([])


def test_the_chapter_says_what_was_counted(tmp_path, monkeypatch):
    assert len(tables.counted()) == len(neighbours.SIDES) * len(neighbours.TASKS)
    rows = [(100, 128, 8, 2.0, 3e9, 1e9, 0.2), (100, 128, 1, 1.0, 1e9, 1e9, 0.6)]
    rows += [(200, 128, 8, 8.2, 8e9, 1e9, 0.6), (200, 128, 1, 8.0, 8e9, 1e9, 0.6)]
    path = tmp_path / "neighbours.csv"
    pd.DataFrame(rows, columns=neighbours.COLUMNS).to_csv(path, index=False)
    monkeypatch.setattr(neighbours, "FILE", path)
    said = dict(facts.mesh())
    assert (said["mesh.most.side"], said["mesh.least.side"], said["mesh.points"]) == (100, 200, 8)
    assert [said[f"mesh.{name}"] for name in ("most.many_gb", "most.one_gb", "least.many_gb")] == [3, 1, 8]
    assert said["mesh.most.gain"] == 2 and said["mesh.least.gain"] == pytest.approx(1.025)
    assert set(tables.counted()["mesh"]) == {"100³", "200³"}
