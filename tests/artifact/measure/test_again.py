"""Second runs, of records made here and of the shipped ones."""

import json
from pathlib import Path

import pandas as pd
import pytest

from artifact import paths
from artifact.drawing.pages import method
from artifact.measure import again, records


@pytest.fixture
def shipped(tmp_path) -> Path:
    """Two experiments of a room of the shipped records, with a second run of one that is 3% slower."""
    there = paths.RECORDED / "nvidia-h200" / "tensor_core_24"
    here = tmp_path / "nvidia-h200" / "tensor_core_24"
    machine = records.read_machine(there)
    for folder, factor in ((here, 1.0), (here / records.REPEAT, 1.03)):
        folder.mkdir(parents=True)
        (folder / records.MACHINE).write_text(json.dumps(machine))
        names = ("llm", "square") if factor == 1 else ("llm",)
        for name in names:
            df = records.read(there / f"{name}.csv")
            for column in ("median_us", "q25_us", "q75_us"):
                df[column] *= factor
            df[["tflops", "gbps"]] /= factor
            if factor > 1:  # an earlier one, for once: how far apart they are has no sign
                earlier = pd.to_datetime(df["when"], utc=True, format="ISO8601") - pd.Timedelta(hours=30)
                df["when"] = earlier.map(lambda when: when.isoformat())
            df.to_csv(folder / f"{name}.csv", index=False)
    return tmp_path


def test_a_row_for_each_room_with_a_second_run(shipped):
    (row,) = again.runs(shipped).itertuples(index=False)
    assert (row.gpu, row.room, row.experiments) == ("nvidia-h200", "tensor_core_24", ["llm"])
    assert (row.measurements, row.of, row.same_code) == (35, 35, True)
    assert row.between == pd.Timedelta(hours=30)
    assert [row.median, row.most_of_ten, row.most] == pytest.approx([0.03] * 3)


def test_only_what_both_have_is_compared(shipped):
    first = records.read(shipped / "nvidia-h200" / "tensor_core_24" / "llm.csv")
    second = first[first["variant"] == "auto"].assign(median_us=first["median_us"] * 0.9)
    off = again.apart(first, second)
    assert len(off) == len(second) < len(first)
    assert list(off) == pytest.approx([0.1] * len(off))


@pytest.mark.parametrize("changed", ["sources", "driver"])
def test_other_code_is_said(shipped, changed):
    path = shipped / "nvidia-h200" / "tensor_core_24" / records.REPEAT / records.MACHINE
    path.write_text(json.dumps(json.loads(path.read_text()) | {changed: "another"}))
    assert list(again.runs(shipped)["same_code"]) == [False]
    assert method.second_runs(shipped).loc[0, "apart"] == "30 h, other code"
    assert "again.same_code" not in dict(method.facts(shipped))
