"""How long measuring took, from the stamps of the records; second runs, of records made here and of shipped ones."""

import json
from pathlib import Path

import pandas as pd
import pytest
import synthetic

from artifact import paths
from artifact.drawing.pages import method
from artifact.measure import durations, records

HERE = Path("nvidia-h200", "tensor_core_24")


def rows_at(*seconds: float, samples=10, median_us=1000.0) -> pd.DataFrame:
    start = pd.Timestamp("2026-01-02T03:04:05+00:00")
    when = [(start + pd.Timedelta(seconds=s)).isoformat() for s in seconds]
    return pd.DataFrame({"when": when, "samples": samples, "median_us": median_us})


@pytest.mark.parametrize(
    ("seconds", "took"),
    [
        ((0, 10, 30), 45),  # 10 + 20, and the mean of both for the first point
        ((30, 0, 10), 45),  # rows of a later contender may stand first
        ((0, 0, 10, 10, 30, 30), 45),  # the rows of a point are stamped alike
        ((0, 10, 10 + durations.PAUSE_S + 1, 30 + durations.PAUSE_S + 1), 45),  # a night is no work
        ((0, durations.PAUSE_S), 2 * durations.PAUSE_S),
    ],
)
def test_wall_time_from_the_stamps(seconds, took):
    assert durations.took(rows_at(*seconds))[0] == pytest.approx(took)


@pytest.mark.parametrize(
    ("rows", "took", "told"),
    [
        (rows_at(0, 0), 0.02, False),
        (rows_at(0, 1, samples=100, median_us=1e6), 200, True),
        (rows_at(0, durations.PAUSE_S + 1), 0.02, False),
    ],
)
def test_wall_time_is_at_least_that_of_the_kernels_and_two_stamps_tell_it(rows, took, told):
    assert durations.took(rows)[:2] == (pytest.approx(took), told)


def test_durations_of_all_records(tmp_path):
    folder = synthetic.folder(tmp_path)
    records.write(folder / "casper_sparse" / "repeat" / "tall.csv", synthetic.experiment("tall", scale=2.0))
    df = durations.durations(folder).set_index(["room", "experiment", "repeat"])
    assert list(df.index) == [
        ("casper_sparse", "square", False),
        ("casper_sparse", "tall", False),
        ("casper_sparse", "wide", False),
        ("casper_sparse", "tall", True),
        ("ceilings", "ceilings", False),
    ]
    wide, tall, again = (df.loc[("casper_sparse", *key)] for key in (("wide", False), ("tall", False), ("tall", True)))
    assert wide["points"] == 21 and wide["rows"] == 21 * 8 and wide["notebook"] == "casper_sparse"
    assert again["kernel_s"] == pytest.approx(2 * tall["kernel_s"])
    assert tall["minutes"] * 60 >= tall["kernel_s"] * (1 - 1e-9)
    assert df.loc[("ceilings", "ceilings", False)]["notebook"] == "machine"
    assert not df["told"].any(), "these records have one stamp each"


def test_a_single_stamp_tells_no_minutes(tmp_path):
    folder = synthetic.folder(tmp_path) / "casper_sparse"
    assert durations.of_record(folder / "wide.csv") is None and durations.of_record(folder / "narrow.csv") is None
    df = records.read(folder / "wide.csv")
    df.loc[df.index[-1], "when"] = "2026-01-02T03:05:05+00:00"
    records.write(folder / "again" / "wide.csv", df)
    assert durations.of_record(folder / "again" / "wide.csv") == pytest.approx(2)


def test_minutes_in_words():
    assert [durations.said(m) for m in (0, 0.01, 0.06, 1, 26.63)] == [
        "0",
        "under 0.1",
        "0.1",
        "1.0",
        "26.6",
    ]


# ---------------------------------------------------------------- second runs


def slower(df: pd.DataFrame, factor: float) -> pd.DataFrame:
    """A record that is so much slower, 30 h earlier: how far apart two are has no sign."""
    times, rates = ["median_us", "q25_us", "q75_us"], ["tflops", "gbps"]
    when = pd.to_datetime(df["when"], utc=True, format="ISO8601") - pd.Timedelta(hours=30)
    return df.assign(when=when.map(lambda x: x.isoformat())).assign(**df[times] * factor, **df[rates] / factor)


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
    (row,) = durations.runs(shipped).itertuples(index=False)
    assert (row.gpu, row.room, row.experiments) == ("nvidia-h200", "tensor_core_24", ["llm"])
    assert (row.measurements, row.of, row.same_code) == (35, 35, True) and row.between == pd.Timedelta(hours=30)
    assert [row.median, row.most_of_ten, row.most] == pytest.approx([0.03] * 3)


def test_only_what_both_have_is_compared(shipped):
    first = records.read(shipped / HERE / "llm.csv")
    second = first[first["variant"] == "auto"].assign(median_us=first["median_us"] * 0.9)
    off = durations.apart(first, second)
    assert len(off) == len(second) < len(first) and list(off) == pytest.approx([0.1] * len(off))


@pytest.mark.parametrize("changed", ["sources", "driver"])
def test_other_code_is_said(shipped, changed):
    path = shipped / HERE / records.REPEAT / records.MACHINE
    path.write_text(json.dumps(json.loads(path.read_text()) | {changed: "another"}))
    assert list(durations.runs(shipped)["same_code"]) == [False]
    assert method.second_runs(shipped).loc[0, "apart"] == "30 h, other code"
    assert "again.same_code" not in dict(method.facts(shipped))
