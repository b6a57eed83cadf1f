"""What SC's templates ask: contributions, tasks, the first five minutes, memory, deviations."""

import re

import pandas as pd
import pytest
import synthetic

from artifact import cli, paths
from artifact.book.facts import tree
from artifact.book.text import page
from artifact.drawing import prose
from artifact.drawing import systems as systems_
from artifact.drawing.pages import appendix, evaluation
from artifact.measure import minutes
from artifact.verdicts import load

IDS = ("abstract-speedup", "abstract-memory-throughput")


@pytest.fixture(scope="module")
def with_records(tmp_path_factory):
    folder = synthetic.folder(tmp_path_factory.mktemp("records"))
    known = [claim for claim in load.claims() if claim.room == "casper_sparse"]
    origin = prose.Origin("nvidia-h200", folder, False)
    return appendix.Appendix(origin, known, systems_.systems(folder), minutes.durations(folder))


@pytest.fixture(scope="module")
def without(with_records):
    nothing = prose.Origin("nvidia-h200", None, False)
    return appendix.Appendix(nothing, with_records.known, systems_.systems(None), pd.DataFrame())


def test_contributions_have_all_that_a_rerun_needs(with_records, without):
    df = evaluation.contributions(with_records, *IDS)
    assert list(df[""]) == ["C1", "C2"]
    row = df.iloc[0]
    assert "ledger.html#claim-abstract-speedup" in row["claim"] and "wide, square, tall" in row["tried by"]
    assert row["tried by"].endswith("Fig. 4, Fig. 5, Fig. 6")
    for said in (
        "above 1×, consistently<br>",
        "of 54 points",
        "at_least = 1",
        "<br>H200: ",
        "<br>H100: ",
    ):
        assert said in row.iloc[-1]
    claim = next(c for c in with_records.known if c.id == IDS[0])
    for gpu, folder in with_records.folders.items():
        took = minutes.said(load.took(claim, folder))
        assert re.search(rf"<br>{with_records.short[gpu]}: [^:]*, {took} min<br>", row.iloc[-1])
    nothing = evaluation.contributions(without, *IDS)
    assert nothing[nothing.columns[-1]].str.contains("not measured yet").all()
    with pytest.raises(ValueError, match="names a claim 'yak' that is none"):
        evaluation.contributions(with_records, "yak")


def test_every_task_is_a_target_and_has_both_minutes(with_records, without):
    df = evaluation.tasks(with_records)
    makefile = (paths.ROOT / "Makefile").read_text()
    targets = [text.removeprefix("<code>make ").removesuffix("</code>") for text in df["task"]]
    assert all(f"\n{target}:" in makefile for target in targets)
    assert df[["your minutes", "its minutes"]].ne("").all().all()
    measured = df.set_index("").loc["T5", "its minutes"]
    assert measured.startswith(f"H200: {with_records.minutes:.0f}, the longest room ")
    assert "<br>H100: " in measured
    its = df.set_index("")["its minutes"]
    assert its["T4"] == evaluation.kicks()
    assert its["T7"].startswith(minutes.said(minutes.AGAIN_S / 60))
    for task, name in (
        ("T1", "environment"),
        ("T2", "artifact"),
        ("T3", "test"),
        ("T6", "compare"),
    ):
        assert its[task].startswith(minutes.said(minutes.COMMANDS_S[name] / 60))
    assert "not measured yet" in evaluation.tasks(without).set_index("").loc["T5", "its minutes"]


def test_a_kick_is_told_of_every_gpu(monkeypatch):
    monkeypatch.setattr(minutes, "KICK_S", {"A": 600, "B": 90})
    assert evaluation.kicks() == "A: 10.0<br>B: 1.5"


def test_a_transcript_is_what_the_commands_print():
    text = evaluation.typed(cli.main, "claims --id abstract-speedup", "records")
    assert text.startswith("```console\n$ python -m artifact claims --id abstract-speedup\n")
    assert "not reproduced" in text and text.count("[exit code 0]") == 2 and "more lines" in text
    assert max(map(len, text.splitlines())) <= evaluation.WIDE


def test_the_first_minutes_need_no_gpu(with_records):
    commands = page("reviewers")
    commands.add(appendix.facts(with_records))
    text = evaluation.typed(cli.main, *commands("first_minutes").splitlines())
    assert text.count("[exit code 0]") == 3 and "registers" in text


def test_the_largest_point_and_the_memory_of_each_gpu(with_records, without):
    told = dict(evaluation.facts(with_records))
    least = max(synthetic.experiment(name)["least_bytes"].max() for name in synthetic.SHAPES)
    assert told["largest.gpu_gb"] == pytest.approx(least / 1e9) and told["largest.host_gb"] > told["largest.gpu_gb"]
    assert 80 < told["memory_gb.NVIDIA H100 80GB HBM3"] < 90
    assert not any(name.startswith(("largest", "memory_gb")) for name, _ in evaluation.facts(without))


def test_minutes_of_each_room_the_longest_first():
    shipped = appendix.start("recorded", "nvidia-h200", "")
    told = tree(dict(evaluation.facts(shipped)))
    took = told["room_took"]["NVIDIA H200"]
    assert took == pytest.approx(shipped.first.groupby("room")["minutes"].sum().to_dict())
    assert list(took.values()) == sorted(took.values(), reverse=True)
    assert set(took) <= set(told["measured"])


def test_gpus_of_the_sources(with_records):
    assert "RTX 3050 Ti" in dict(appendix.facts(with_records))["sources.gpus"]
