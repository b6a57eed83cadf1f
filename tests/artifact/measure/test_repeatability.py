"""Second runs, of records made here and of the shipped ones."""

import json
from pathlib import Path

import pandas as pd
import pytest

from artifact import paths
from artifact.drawing.pages import method
from artifact.measure import records, repeatability

HERE = Path("nvidia-h200", "tensor_core_24")


def slower(df: pd.DataFrame, factor: float) -> pd.DataFrame:
    """A record that is so much slower, 30 h earlier: how far apart two are has no sign."""
    times, rates = ["median_us", "q25_us", "q75_us"], ["tflops", "gbps"]
    when = pd.to_datetime(df["when"], utc=True, format="ISO8601") - pd.Timedelta(hours=30)
    made = df.assign(when=when.map(lambda x: x.isoformat()))
    return made.assign(**df[times] * factor, **df[rates] / factor)


@pytest.fixture
def shipped(tmp_path) -> Path:
    """Two experiments of a system of the shipped records, with a second run of one that is 3% slower."""
    there, here = paths.RECORDED / HERE, tmp_path / HERE
    for folder in (here, here / records.REPEAT):
        records.write_machine(folder, records.read_machine(there))
    first = {name: records.read(there / f"{name}.csv") for name in ("llm", "square")}
    for name, df in first.items():
        records.write(here / f"{name}.csv", df)
    records.write(here / records.REPEAT / "llm.csv", slower(first["llm"], 1.03))
    return tmp_path


def test_a_row_for_each_system_with_a_second_run(shipped):
    (row,) = repeatability.runs(shipped).itertuples(index=False)
    assert (row.gpu, row.room, row.experiments) == ("nvidia-h200", "tensor_core_24", ["llm"])
    assert (row.measurements, row.of, row.same_code) == (35, 35, True)
    assert row.between == pd.Timedelta(hours=30)
    assert [row.median, row.most_of_ten, row.most] == pytest.approx([0.03] * 3)


def test_only_what_both_have_is_compared(shipped):
    first = records.read(shipped / HERE / "llm.csv")
    second = first[first["variant"] == "auto"].assign(median_us=first["median_us"] * 0.9)
    off = repeatability.apart(first, second)
    assert len(off) == len(second) < len(first)
    assert list(off) == pytest.approx([0.1] * len(off))


@pytest.mark.parametrize("changed", ["sources", "driver"])
def test_other_code_is_said(shipped, changed):
    path = shipped / HERE / records.REPEAT / records.MACHINE
    path.write_text(json.dumps(json.loads(path.read_text()) | {changed: "another"}))
    assert list(repeatability.runs(shipped)["same_code"]) == [False]
    assert method.second_runs(shipped).loc[0, "apart"] == "30 h, other code"
    assert "again.same_code" not in dict(method.facts(shipped))
