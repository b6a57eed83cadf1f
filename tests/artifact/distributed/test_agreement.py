"""Points that were dealt out, beside those of one GPU: collected with the GPU of each, compared by experiment."""

import shutil

import numpy as np
import pandas as pd
import pytest

from artifact import paths
from artifact.distributed import agreement, page
from artifact.measure import records, run

SHIPPED = paths.RECORDED / "nvidia-h200"
WHERE = page.RECORDED / "nvidia-h200"
(SYSTEM,) = pd.read_csv(WHERE / page.DEALT)["room"].unique()


@pytest.fixture
def fresh(tmp_path):
    """A copy of a system's records, of which two GPUs measured every point but the first."""
    folder = tmp_path / "nvidia-h200" / SYSTEM
    shutil.copytree(SHIPPED / SYSTEM, folder, ignore=shutil.ignore_patterns("repeat", "profiles"))
    for experiment in records.experiments(folder):
        points = records.read(folder / f"{experiment}.csv").drop_duplicates(list(records.POINT))[1:]
        for i, row in enumerate(points.itertuples()):
            run.mark(folder, experiment, f"{experiment} {run.point_name(row)}", {"gpu": str(i % 2), "host": "a"})
    return folder.parent


@pytest.fixture
def collected(fresh):
    return agreement.collected(fresh)


def test_rows_know_their_gpu(collected):
    assert list(collected.columns) == agreement.COLUMNS
    assert set(collected["gpu"]) == {"a 0", "a 1"} and set(collected["room"]) == {SYSTEM}
    for experiment, rows in collected.groupby("experiment"):
        every, mine = records.read(SHIPPED / SYSTEM / f"{experiment}.csv"), rows[list(records.POINT)].drop_duplicates()
        assert len(mine) == len(every[list(records.POINT)].drop_duplicates()) - 1


@pytest.mark.parametrize(("factor", "agrees"), [(1.0, True), (1.3, False)])
def test_a_copy_agrees_and_a_slower_one_does_not(collected, factor, agrees):
    of = agreement.compared(collected.assign(median_us=factor * collected["median_us"]), SHIPPED)
    assert of[["time", "low", "high"]].to_numpy() == pytest.approx(factor) and (of["gpus"] == 2).all()
    known = page.dealt(of)
    assert known["worst"]["off"] == pytest.approx(factor - 1) and (known["worst"]["off"] <= known["allowed"]) == agrees
    assert known["near"] == agrees * len(of) and known["experiments"] == len(of)


def test_single_rows_are_apart_by_the_5th_and_the_95th_percentile(collected):
    df = collected[collected["experiment"] == collected["experiment"].iloc[0]]
    factors = np.linspace(1, 2, len(df))
    of = agreement.compared(df.assign(median_us=df["median_us"] * factors), SHIPPED)
    assert of[["low", "high"]].to_numpy()[0] == pytest.approx(np.quantile(factors, [0.05, 0.95]))


def test_the_command_writes_what_the_page_reads_and_refuses_records_of_one_gpu(fresh, tmp_path, capsys):
    out = tmp_path / "there" / "nvidia-h200" / page.DEALT
    assert agreement.main(["--fresh", str(fresh), "--out", str(out)]) == 0 and "again_low" in capsys.readouterr().out
    assert len(page.agreement_table(page.agrees(out.parent))) == len(records.experiments(fresh / SYSTEM))
    shutil.rmtree(fresh / SYSTEM / run.DEALT)
    out.unlink()
    assert agreement.main(["--fresh", str(fresh), "--out", str(out)]) == 2
    assert "no point there was dealt out" in capsys.readouterr().err and not out.exists()


def test_the_shipped_ones_agree():
    of = page.agrees(WHERE)
    known = page.dealt(of)
    assert known["worst"]["off"] <= known["allowed"] and known["points"] == of["points"].sum()
    assert page.agrees(WHERE.parent) is None and page.agreement_table(None) is None
