"""Why claims are not reproduced: each says so in a sentence, whose numbers come from the records."""

import re
from dataclasses import replace

import pytest
import synthetic
from judging import frames

from artifact import paths
from artifact.drawing import cells
from artifact.measure import records
from artifact.verdicts import judge, load, measures

KNOWN = load.claims()
CASPER = {claim.id: claim for claim in KNOWN if claim.room == "casper_sparse"}
#: A number that is measured, not the name of a size, a GPU, a level of cache or an equation.
TYPED = re.compile(r"\d[\d.,]*\s*(×|%|per cent|times|µs|ms\b|MHz|[TG]?FLOP|[KMGT]i?B\b)|\d\.\d|\d[eE][-+]?\d")
#: What one record of one GPU says that the shipped records have.
SHIPPED = [paths.RECORDED / gpu for gpu in records.list_gpus(paths.RECORDED)]
#: The GPU that the chapters speak of: its reasons are written by hand.
HOME = paths.RECORDED / cells.WRITTEN_FOR
#: How a reason ends that nobody wrote.
PLAIN = "These records do not hold what would say why"


@pytest.fixture(scope="module", params=SHIPPED, ids=lambda folder: folder.name)
def shipped(request):
    return judge.judge(KNOWN, request.param).set_index("id")


def test_every_verdict_but_reproduced_has_a_reason_with_a_number(shipped):
    for i, row in shipped.iterrows():
        if row["verdict"] == measures.REPRODUCED:
            assert row["reason"] == "", i
        else:
            assert row["reason"].endswith(".") and len(row["reason"]) > 30, i
        if row["verdict"] not in (measures.REPRODUCED, measures.NOT_MEASURED):
            assert re.search(r"\d", row["reason"]), i
            assert not re.search(r"[{}]|\bnan\b|\binf\b|None", row["reason"]), i


def test_on_the_gpu_of_the_chapters_every_reason_is_written_by_hand():
    said = judge.judge(KNOWN, HOME)["reason"]
    assert (said != "").sum() > 50 and not said.str.contains(PLAIN).any()


def test_no_measured_number_is_typed_in_a_reason():
    for claim in KNOWN:
        if not claim.reason:
            continue
        assert judge.PLACEHOLDER.search(claim.reason), claim.id
        said = judge.PLACEHOLDER.sub("", claim.reason)
        assert not TYPED.search(said), (claim.id, TYPED.search(said)[0])
        assert claim.reason[0].isupper() or claim.reason[0] in "{aceno", claim.id
        assert claim.reason.endswith("."), claim.id


def test_reasons_are_there_for_what_is_not_reproduced_on_some_gpu_alone():
    """One that no shipped record needs would be a sentence that nobody can check."""
    needed = set()
    for folder in SHIPPED:
        df = judge.judge(KNOWN, folder)
        needed |= set(df["id"][df["verdict"] != measures.REPRODUCED])
    assert {claim.id for claim in KNOWN if claim.reason} <= needed


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
    claim = replace(CASPER["tall-cusparse-faster"], reason=text)
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
