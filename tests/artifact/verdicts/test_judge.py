"""Verdicts from records: the ledger's rows, what stands beside a verdict, and the shipped verdicts."""

import io
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import synthetic
from judging import ALL, GOOD, evidence, frames, load, rule

from artifact import cli, paths, registry
from artifact.measure import device, records
from artifact.verdicts import judge, measures
from artifact.verdicts import load as load_
from artifact.verdicts.evidence import NotMeasured
from artifact.verdicts.measures import NOT_MEASURED, NOT_REPRODUCED, PARTLY, REPRODUCED

CASPER = [claim for claim in load_.claims() if claim.room == "casper_sparse"]
GOLDEN = Path(__file__).with_name("golden.csv")
RENEW = "python -m artifact claims --csv > tests/artifact/verdicts/golden.csv"


def test_the_verdicts_of_the_shipped_records_are_those_of_the_golden_file(capsys):
    """A changed threshold, a changed `>=`, a changed record: whoever means it renews the file."""
    assert cli.main(["claims", "--gpu", "nvidia-h200", "--csv"]) == 0
    new = pd.read_csv(io.StringIO(capsys.readouterr().out)).set_index("id")
    old = pd.read_csv(GOLDEN).set_index("id")
    rows = [
        f"{i}: {dict(old.loc[i]) if i in old.index else 'new'} -> {dict(new.loc[i]) if i in new.index else 'gone'}"
        for i in dict.fromkeys([*old.index, *new.index])
        if i not in old.index or i not in new.index or not old.loc[i].equals(new.loc[i])
    ]
    if rows:
        head = f"{len(rows)} verdicts or values of {paths.RECORDED} changed; if they should: `{RENEW}`"
        pytest.fail("\n".join([head, *rows]))


def test_the_ledger_follows_the_records(tmp_path):
    """The abstract and section V disagree about who is faster; the records decide."""
    slow = judge.judge(CASPER, synthetic.folder(tmp_path / "slow")).set_index("id")
    fast = judge.judge(CASPER, synthetic.folder(tmp_path / "fast", frames(1.3))).set_index("id")
    assert slow.verdict["abstract-speedup"] == NOT_REPRODUCED
    assert slow.verdict["summary-cusparse-faster"] == REPRODUCED
    assert fast.verdict["abstract-speedup"] == REPRODUCED
    assert fast.verdict["summary-cusparse-faster"] == NOT_REPRODUCED
    assert "summary-cusparse-faster" in slow.why["abstract-speedup"]
    assert slow.published["wide-speedup"] == "0.55–0.90×"


def test_a_second_baseline_is_judged_beside_the_first(tmp_path):
    """At 0.85 of the best algorithm's speed, and 1.19 of the default's."""
    folder = synthetic.folder(tmp_path, frames(0.85))
    (row,) = judge.judge(load(tmp_path / "rooms", GOOD), folder).to_dict("records")
    assert row["verdict"] == REPRODUCED and row["measured"] == "0.85× over cuSPARSE"
    assert "Against cuSPARSE's default algorithm: 1.19× over" in row["why"]
    assert "(not reproduced)." in row["why"]
    alone = load(tmp_path / "rooms", GOOD.replace(', also_over = "cusparse_default"', ""))
    assert "default" not in judge.judge(alone, folder)["why"].item()


def test_the_ledger_says_where_a_claim_was_judged(tmp_path):
    text = GOOD.replace("reduce =", "at = { n = [512, 1024] }\nreduce =")
    folder = synthetic.folder(tmp_path, frames(lambda m, n, k, d: 0.7 if n <= 1024 else 9.0))
    (row,) = judge.judge(load(tmp_path / "rooms", text), folder).to_dict("records")
    assert row["verdict"] == REPRODUCED and "Judged at n = 512 or 1024." in row["why"]
    assert "of 6 points lie" in row["why"]
    whole = judge.judge(load(tmp_path / "rooms", GOOD), folder)
    assert whole["verdict"].item() != REPRODUCED


def test_a_quantity_that_is_only_bounded_needs_one_verdict_from_both_bounds():
    per_us = synthetic.COPY_GBPS * 1e3
    words = {"dram_use": ["warp_per_row"], "metric": "dram"}
    claim = rule(words, "median", {"at_least": 0.9, "partly": 0.6})

    def got(least, requested):
        made = frames()
        for df in made.values():
            df["least_bytes"] = least * per_us * df["median_us"]
            df["requested_bytes"] = requested * per_us * df["median_us"]
        return measures.outcome(claim, evidence(made), ALL)

    assert got(0.95, 2.0).verdict == REPRODUCED  # even with perfect reuse DRAM is that busy
    assert got(0.1, 0.5).verdict == NOT_REPRODUCED  # not even without any reuse
    assert got(0.65, 0.8).verdict == PARTLY
    assert got(0.65, 0.8).measured == (
        "between warp_per_row 65% of the DRAM's bandwidth and warp_per_row 80% of the DRAM's bandwidth"
    )
    with pytest.raises(NotMeasured, match="between warp_per_row 10% of .* and warp_per_row 100%"):
        got(0.1, 2.0)  # could be anything: the claim is left open


# ---------------------------------------------------------------- runs of one measurement

REPEATS = """
[minutes]
wide = 2
square = 3
counters = 1
[[claim]]
id = "a"
where = "V.A"
says = "It is twice as fast."
experiment = ["wide", "square"]
repeats = true
quantity = { speedup = ["warp_per_row"], over = "any_n" }
reduce = "each point"
expect = { near = [2, 2], factor = 1.1, partly = 1.5 }
published = "twice"
"""


@pytest.fixture
def two_runs(tmp_path) -> Path:
    """The wide sweep twice, the second time as the square one; warp_per_row is 1 and 4 times as fast as
    any_n, but at the largest n, which the second lacks, exactly twice as fast."""
    made = {}
    for name, speedup in (("wide", 1.0), ("square", 4.0)):
        df = frames()["wide"].assign(experiment=name)
        last = df["n"] == df["n"].max()
        ours, theirs = df["variant"] == "warp_per_row", df["variant"] == "any_n"
        df.loc[theirs, "median_us"] = 100.0
        df.loc[ours, "median_us"] = np.where(last[ours], 50.0, 100.0 / speedup)
        df["q25_us"] = df["q75_us"] = df["median_us"]
        df["tflops"] = df["useful_flops"] / df["median_us"] / 1e6
        df["gbps"] = df["least_bytes"] / df["median_us"] / 1e3
        made[name] = df if name == "wide" else df[~last]
    return synthetic.folder(tmp_path, made)


def test_runs_of_one_measurement_are_judged_by_their_mean(tmp_path, two_runs):
    (row,) = judge.judge(load(tmp_path / "rooms", REPEATS), two_runs).to_dict("records")
    assert row["verdict"] == REPRODUCED and row["measured"] == "warp_per_row 2× over any_n"
    assert "wide alone: warp_per_row 1–2× over any_n (not reproduced)" in row["why"]
    assert "square alone: warp_per_row 4× over any_n (not reproduced)" in row["why"]
    points = len(frames()["wide"].drop_duplicates(list(records.POINT)))
    assert f" {points} points" in row["why"]  # each once
    text = REPEATS.replace("repeats = true\n", "")
    (apart,) = judge.judge(load(tmp_path / "rooms", text), two_runs).to_dict("records")
    assert apart["verdict"] == NOT_REPRODUCED and "alone" not in apart["why"]


def test_a_point_that_one_run_lacks_is_that_of_the_other(tmp_path, two_runs):
    largest = max(frames()["wide"]["n"])
    text = REPEATS.replace("repeats = true", f"repeats = true\nat = {{ n = {largest} }}")
    known = load(tmp_path / "rooms", text)
    (row,) = judge.judge(known, two_runs).to_dict("records")
    assert row["verdict"] == REPRODUCED and "square alone: not measured" in row["why"]
    (two_runs / "casper_sparse" / "square.csv").unlink()
    assert judge.judge(known, two_runs)["verdict"].item() == NOT_MEASURED


# ---------------------------------------------------------------- whose GPU a claim speaks of


@pytest.mark.parametrize(
    ("said", "measured", "same"),
    [
        ("RTX 4070", "nvidia-geforce-rtx-4070", True),
        ("RTX 4070", "nvidia-geforce-rtx-4070-ti", False),
        ("RTX 4070", "nvidia-geforce-rtx-4070-super", False),
        ("RTX 3050 Ti", "nvidia-geforce-rtx-3050-ti-laptop-gpu", True),
        ("RTX 3050 Ti", "nvidia-geforce-rtx-3050", False),
        ("A100", "nvidia-a100-80gb-pcie", True),
        ("A100", "nvidia-h200", False),
        ("H100 96 GB", "nvidia-h200", True),  # one chip
        ("H100 96 GB", "nvidia-h100-80gb-hbm3", True),
        ("H100", "nvidia-a100", False),
    ],
)
def test_gpus_that_a_source_speaks_of(said, measured, same):
    assert judge.same_gpu(said, measured) is same


CLAIM = next(claim for claim in CASPER if claim.id == "tall-cusparse-faster")


@pytest.mark.parametrize(
    ("changes", "gpu", "expected"),
    [
        ({}, "NVIDIA H200", measures.NOT_CARRIED),
        ({}, "NVIDIA GeForce RTX 3050 Ti", NOT_REPRODUCED),
        ({"gpu": ("RTX 3050 Ti", "H100")}, "NVIDIA H200", NOT_REPRODUCED),
        ({"depends_on": load_.METHOD}, "NVIDIA H200", NOT_REPRODUCED),
    ],
)
def test_what_does_not_carry_over(tmp_path, changes, gpu, expected):
    """A claim that fails is excused only where the source measured it, on another GPU."""
    rows = []
    for speedup in (1.3, 0.7):
        made = {name: df.assign(gpu=gpu) for name, df in frames(speedup).items()}
        where = synthetic.folder(tmp_path / str(speedup), made, gpu, device.slug(gpu))
        rows += judge.judge([replace(CLAIM, **changes)], where).to_dict("records")
    assert [row["verdict"] for row in rows] == [expected, REPRODUCED] and rows[1]["reason"] == ""


def test_a_source_s_own_series_is_no_matter_of_this_gpu():
    for claim in load_.claims():
        if any("@" in experiment for experiment in claim.experiment):
            assert not judge.carried(claim, "nvidia-h200"), claim.id


def test_what_depends_on_a_gpu_is_a_time_a_rate_or_a_counter_of_hardware():
    """What follows from the programs, from formats or from arithmetic is never excused by the GPU."""
    for claim in load_.claims():
        if claim.depends_on == load_.GPU:
            assert claim.gpu and claim.rule.quantity.func.__name__ not in measures.OF_PROGRAMS, claim.id
            counters = load_.counters_wanted([claim])
            programs = [m for m in counters if load_.OF_PROGRAMS.match(m)]
            # The library's own copies are other programs on another GPU.
            assert not programs or claim.id == "tc-library-conflicts", claim.id
    every = {name for room in ("", *registry.find()) for name in measures.table("quantity", room)}
    assert every >= measures.OF_PROGRAMS


def test_memory_is_read_alike_in_all_rooms():
    """DRAM, with the L2 beside it."""
    read = [
        [c.rule.quantity.keywords[key].partition("__")[0] for key in ("metric", "beside")]
        for c in load_.claims()
        if c.rule.quantity.func.__name__ == "memory_use"
    ]
    assert len(read) >= 4 and all(words == ["dram", "lts"] for words in read)


def test_verdicts_by_shipped_records_are_kept_until_a_file_changes(tmp_path, monkeypatch):
    made, judged = [], judge.judge
    monkeypatch.setattr(paths, "BUILD", tmp_path)
    monkeypatch.setattr(judge, "judge", lambda claims, folder: made.append(folder) or judged(claims, folder))
    known, folder = load_.claims(), paths.RECORDED / paths.HOME
    mine = [claim for claim in known if claim.room == "casper_sparse"]
    first, again = judge.kept(mine, folder), judge.kept(mine, folder)
    assert len(made) == 1
    pd.testing.assert_frame_equal(first, judged(mine, folder))
    pd.testing.assert_frame_equal(again, first)
    monkeypatch.setattr(judge, "_state", lambda: "another")
    judge.kept(known, folder)
    assert len(made) == 2
    (tmp_path / "verdicts" / f"{folder.name}.json").write_text("{")  # as an interrupted disk leaves it
    judge.kept(known, folder)
    assert len(made) == 3


def test_verdicts_by_other_records_and_on_other_claims_are_not_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(paths, "BUILD", tmp_path / "build")
    folder = synthetic.folder(tmp_path / "own")
    pd.testing.assert_frame_equal(judge.kept(CASPER, folder), judge.judge(CASPER, folder))
    judge.kept([replace(CASPER[0], says="something else")], paths.RECORDED / paths.HOME)
    assert not (tmp_path / "build").exists()
