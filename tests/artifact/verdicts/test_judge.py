"""Verdicts from records: the ledger's rows, what stands beside a verdict, and the shipped verdicts."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import snapshots
import synthetic
from judging import ALL, GOOD, evidence, frames, load, rule

from artifact import paths
from artifact.measure import device, records
from artifact.verdicts import judge, measures, page
from artifact.verdicts import load as load_
from artifact.verdicts.evidence import NotMeasured
from artifact.verdicts.measures import NOT_MEASURED, NOT_REPRODUCED, PARTLY, REPRODUCED

CASPER = [claim for claim in load_.claims() if claim.room == "casper_sparse"]
GOLDEN = Path(__file__).with_name("golden.csv")
#: A number that is measured, not the name of a size, a GPU, a level of cache or an equation.
TYPED = re.compile(r"\d[\d.,]*\s*(×|%|per cent|times|µs|ms\b|MHz|[TG]?FLOP|[KMGT]i?B\b)|\d\.\d|\d[eE][-+]?\d")
UNITS = r"×|%|µs|TFLOP/s|GB/s|\(|error|target|bytes| at \d|launches|exponent|correlation|: |HMMA|steps fall"
PLAIN = "These records do not hold what would say why"  #: how a reason ends that nobody wrote


@pytest.fixture(scope="module")
def shipped() -> pd.DataFrame:
    """The verdicts by the shipped records of every GPU."""
    gpus = records.list_gpus(paths.RECORDED)
    return pd.concat([judge.judge(load_.claims(), paths.RECORDED / gpu).assign(on=gpu) for gpu in gpus])


def test_the_verdicts_of_the_shipped_records_are_those_of_the_golden_file(shipped):
    """A changed threshold, a changed `>=`, a changed record: whoever means it renews the file."""
    snapshots.check(GOLDEN, shipped[["id", "on", "verdict"]].to_csv(index=False, header=["claim", "gpu", "verdict"]))


def test_every_verdict_but_reproduced_has_a_reason_with_a_number(shipped):
    """On the GPU of the chapters it is written by hand."""
    failed = shipped[shipped["verdict"] != REPRODUCED]
    judged = failed[failed["verdict"] != NOT_MEASURED]["reason"]
    assert (shipped.loc[shipped["verdict"] == REPRODUCED, "reason"] == "").all() and failed["reason"].str.fullmatch(
        ".{30,}[.]"
    ).all()
    assert judged.str.contains(r"\d").all() and not judged.str.contains(r"[{}]|\bnan\b|\binf\b|None").any()
    assert not shipped.loc[shipped["on"] == paths.HOME, "reason"].str.contains(PLAIN).any()


def test_what_was_judged_is_a_number_and_said_with_its_unit(shipped):
    given = shipped[shipped["verdict"] != NOT_MEASURED]
    # A power law from which points lie far is none, and has no exponent.
    assert (given["value"].notna() | given["measured"].str.startswith("exponent")).all() and (given["points"] > 0).all()
    assert given["measured"].str.contains(UNITS).all()


def test_no_measured_number_is_typed_in_a_reason():
    for claim in load_.claims():
        said = judge.PLACEHOLDER.sub("", claim.reason)
        assert not TYPED.search(said) and (said != claim.reason or not said), claim.id


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


def test_verdicts_by_shipped_records_are_kept_until_a_file_changes(tmp_path, monkeypatch):
    made, judged = [], judge.judge
    monkeypatch.setattr(paths, "BUILD", tmp_path)
    monkeypatch.setattr(load_, "claims", lambda: CASPER)
    monkeypatch.setattr(judge, "judge", lambda claims, folder: made.append(folder) or judged(claims, folder))
    folder, kept = paths.RECORDED / paths.HOME, tmp_path / "verdicts" / f"{paths.HOME}.json"
    first = judge.kept(CASPER, folder)
    pd.testing.assert_frame_equal(judge.kept(CASPER[:5], folder), first[:5])
    assert len(made) == 1 and first.equals(judged(CASPER, folder))
    kept.write_text("{")  # as an interrupted disk leaves it
    judge.kept(CASPER, folder)
    monkeypatch.setattr(judge, "_state", lambda: "another")
    judge.kept(CASPER, folder)
    assert len(made) == 3


def test_verdicts_by_other_records_and_on_other_claims_are_not_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(paths, "BUILD", tmp_path / "build")
    folder = synthetic.folder(tmp_path / "own")
    pd.testing.assert_frame_equal(judge.kept(CASPER, folder), judge.judge(CASPER, folder))
    judge.kept([replace(CASPER[0], says="something else")], paths.RECORDED / paths.HOME)
    assert not (tmp_path / "build").exists()


# ---------------------------------------------------------------- reasons


@pytest.mark.parametrize(
    "text,filled",
    [
        (
            "Here it came to {measured}.",
            "Here it came to geometric mean 1.30× over cuSPARSE.",
        ),
        ("{least}, {most}, {mean}, {median}.", "1.30×, 1.30×, 1.30×, 1.30×."),
        ("{speedup warp_per_row / cusparse_best in wide at m = 1}.", None),
        ("{speedup warp_per_row / cusparse_best in wide}.", "1.30×."),
        ("{speedup warp_per_row / cusparse_best at density = 0.01}.", "1.30×."),
        ("With it {claim wide-cusparse-caching}.", "With it not measured here."),
        ("{claim wide-cusparse-faster}.", "cuSPARSE faster at 0 of 21 points."),
        (
            "{speedup warp_per_row / cublas}.",
            f"{PLAIN}: The variant 'cublas' was not measured in tall.",
        ),
        (
            "{counter c of warp_per_row}.",
            f"{PLAIN}: There are no hardware counters of this room on this GPU",
        ),
        ("{speedup nobody / cublas}.", f"{PLAIN}: The variant 'cublas' was not measured in tall."),
        ("", f"{PLAIN}."),
    ],
)
def test_placeholders(tmp_path, text, filled):
    """One whose record is missing leaves the plain sentence, which says so; one that is none is an error."""
    claim = replace(CLAIM, reason=text)
    where = synthetic.folder(tmp_path, frames(1.3))
    if filled is None:
        with pytest.raises(ValueError, match="a placeholder .* that is none"):
            judge.judge([claim], where)
        return
    (row,) = judge.judge([claim], where).to_dict("records")
    assert row["verdict"] == measures.NOT_CARRIED
    if PLAIN in filled:
        filled = f"Asked for under 1×, it came to: geometric mean 1.30× over cuSPARSE. {filled}"
    assert row["reason"].startswith(filled) and row["reason"].endswith(".")


# ---------------------------------------------------------------- contradictions


@pytest.mark.parametrize(
    ("a", "b", "stands"),
    [
        (REPRODUCED, NOT_REPRODUCED, "a"),
        (NOT_REPRODUCED, REPRODUCED, "b"),
        (PARTLY, NOT_REPRODUCED, "a"),
        (PARTLY, REPRODUCED, "b"),
        (REPRODUCED, REPRODUCED, "both"),
        (PARTLY, PARTLY, "neither"),
        (NOT_REPRODUCED, NOT_REPRODUCED, "neither"),
        (NOT_REPRODUCED, measures.NOT_CARRIED, "neither"),
        (measures.NOT_CARRIED, PARTLY, "b"),
        (NOT_MEASURED, REPRODUCED, "undecided"),
        (NOT_REPRODUCED, NOT_MEASURED, "undecided"),
    ],
)
@pytest.mark.parametrize("both", [(), ("b",)])  # who states it
def test_which_of_two_claims_stands(a, b, stands, both):
    known = [replace(CLAIM, id=i, contradicts=others) for i, others in (("a", both), ("b", ("a",)))]
    judged = pd.DataFrame({"id": ["a", "b"], "verdict": [a, b]})
    df = page.contradictions(judged, known)
    assert df.to_dict("records") == [{"one": "a", "other": "b", "stands": stands}]
