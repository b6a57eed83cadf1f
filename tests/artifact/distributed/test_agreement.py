"""Points that were dealt out, beside those of one GPU: collected with the GPU of each, compared by experiment."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pandas as pd
import pytest

from artifact import paths
from artifact.distributed import agreement, page
from artifact.measure import dealt, records, run

SHIPPED = paths.RECORDED / "nvidia-h200"
WHERE = page.RECORDED / "nvidia-h200"


@pytest.fixture
def fresh(tmp_path):
    """A copy of a room's records, of which two GPUs measured every point but the first."""
    room = pd.read_csv(WHERE / page.DEALT)["room"].iloc[0]
    folder = tmp_path / "nvidia-h200" / room
    shutil.copytree(SHIPPED / room, folder, ignore=shutil.ignore_patterns("repeat", "profiles"))
    (folder / dealt.FOLDER).mkdir()
    for experiment in records.experiments(folder):
        rows = records.read(folder / f"{experiment}.csv").drop_duplicates(list(records.POINT))
        names = [f"{experiment} {run.point_name(row)}" for row in rows.itertuples()]
        lines = [{"point": x, "gpu": str(i % 2), "host": "a"} for i, x in enumerate(names)][1:]
        path = folder / dealt.FOLDER / f"{experiment}.jsonl"
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder.parent


def test_rows_know_their_gpu(fresh):
    df = agreement.collected(fresh)
    assert list(df.columns) == agreement.COLUMNS
    assert set(df["gpu"]) == {"a 0", "a 1"}
    (room,) = set(df["room"])
    for experiment, rows in df.groupby("experiment"):
        all_rows = records.read(SHIPPED / room / f"{experiment}.csv")
        points = all_rows[list(records.POINT)].drop_duplicates()
        assert len(rows[list(records.POINT)].drop_duplicates()) == len(points) - 1


def test_a_copy_agrees_and_a_slower_one_does_not(fresh):
    df = agreement.collected(fresh)
    same = agreement.compared(df, SHIPPED)
    assert (same[["time", "low", "high"]] == 1).all(axis=None) and (same["gpus"] == 2).all()
    known = page.dealt(same)
    assert known["worst"]["off"] == 0 and known["near"] == known["experiments"] == len(same)
    df["median_us"] *= 1.3
    slower = agreement.compared(df, SHIPPED)
    assert slower["time"].tolist() == pytest.approx([1.3] * len(slower))
    known = page.dealt(slower)
    assert known["worst"]["off"] > known["allowed"] and known["near"] == 0


def test_single_rows_are_apart_by_the_5th_and_the_95th_percentile(fresh):
    df = agreement.collected(fresh)
    df = df[df["experiment"] == df["experiment"].iloc[0]]
    factors = np.linspace(1, 2, len(df))
    of = agreement.compared(df.assign(median_us=df["median_us"] * factors), SHIPPED)
    assert of[["low", "high"]].to_numpy()[0] == pytest.approx(np.quantile(factors, [0.05, 0.95]))


def test_the_command_writes_what_the_page_reads(fresh, tmp_path, capsys):
    out = tmp_path / "there" / "nvidia-h200" / page.DEALT
    assert agreement.main(["--fresh", str(fresh), "--out", str(out)]) == 0
    assert "again_low" in capsys.readouterr().out
    assert len(page.agreement_table(page.agrees(out.parent))) == len(agreement.collected(fresh)["experiment"].unique())


def test_records_of_one_gpu_are_refused(tmp_path, capsys):
    (room,) = set(pd.read_csv(WHERE / page.DEALT)["room"])
    shutil.copytree(SHIPPED / room, tmp_path / room)
    out = tmp_path / "x.csv"
    assert agreement.main(["--fresh", str(tmp_path), "--out", str(out)]) == 2
    assert "no point there was dealt out" in capsys.readouterr().err and not out.exists()


def test_the_shipped_ones_agree():
    of = page.agrees(WHERE)
    assert (of["gpus"] >= 2).all() and of["points"].sum() > 50
    known = page.dealt(of)
    assert known["worst"]["off"] <= known["allowed"] and known["points"] == of["points"].sum()
    assert page.agrees(WHERE.parent) is None and page.agreement_table(None) is None
