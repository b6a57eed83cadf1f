"""Nothing of a source is skipped: every section has claims, or says why not."""

import re

import pytest

from artifact import registry
from artifact.verdicts import evidence, page
from artifact.verdicts import load as load_

KNOWN, UNTESTED, FIGURES = load_.claims(), load_.untested(), load_.figures_of()
ROOMS = {name: room for name, room in registry.find().items() if room.sections}
SECTIONS = {"abstract": "", "I": "", "V": "", "V.D": "", "III-B": "", "III-B1": "", "Fig. 3": ""}


@pytest.mark.parametrize(
    "where,sections,figures",
    [
        ("abstract; V.D", ["abstract", "V.D"], []),
        ("V", ["V"], []),
        ("V.D.2, Fig. 4a", ["V.D"], ["Fig. 4a"]),
        ("I; III-B1; Fig. 8; Tables I and II", ["I", "III-B1"], ["Fig. 8", "Tables I and II"]),
        ("V.D, Fig. 3", ["V.D"], ["Fig. 3"]),  # a figure is a section where there is no other
        ("Fig. 3", ["Fig. 3"], ["Fig. 3"]),
    ],
)
def test_places(where, sections, figures):
    assert page.places(where, SECTIONS) == (sections, figures)


@pytest.mark.parametrize("where", ["VI", "Fig. 4", "V; elsewhere", ""])
def test_a_place_that_the_source_has_not_is_refused(where):
    with pytest.raises(ValueError, match="of its source, whose sections are: abstract, I"):
        page.places(where, SECTIONS)


def test_a_semicolon_may_be_part_of_a_section():
    assert page.places("TL;DR; Meta", {"TL;DR": "", "Meta": ""})[0] == ["TL;DR", "Meta"]


@pytest.mark.parametrize("room", ROOMS.values(), ids=ROOMS)
def test_every_section_has_claims_or_a_reason(room):
    df = page.coverage(room, KNOWN, UNTESTED, FIGURES[room.room])
    assert list(dict.fromkeys(df["section"])) == list(room.sections)
    empty = df[(df["claims"].map(len) == 0) & (df["reason"] == "")]
    assert empty["section"].tolist() == []
    assert {i for ids in df["claims"] for i in ids} == {c.id for c in KNOWN if c.room == room.room}
    said = {u.says for u in UNTESTED if u.room == room.room}
    assert set(df["says"]) - {""} == said
    assert (df.loc[df["claims"].map(len) > 0, "experiment"] != "").all()


def test_every_built_room_lists_its_sections():
    assert {claim.room for claim in KNOWN} <= set(ROOMS)


def test_figures_are_those_that_experiments_make_and_claims_name():
    df = page.coverage(ROOMS["casper_sparse"], KNOWN, UNTESTED, FIGURES["casper_sparse"])
    wide = df[(df["section"] == "V.A") & (df["experiment"] == "wide")]
    assert wide["figure"].item() == "Fig. 4" and "wide-cusparse-faster" in wide["claims"].item()
    spmm = page.coverage(ROOMS["nm_spmm"], KNOWN, UNTESTED, FIGURES["nm_spmm"])
    theirs = spmm[spmm["experiment"].str.startswith(evidence.OTHERS)]
    assert not theirs.empty and theirs["claims"].map(len).all()


def test_what_is_untested_has_a_reason():
    assert len(UNTESTED) > 30
    for entry in UNTESTED:
        assert entry.says.endswith(".") and entry.reason.endswith("."), entry
        claimed = {c.says for c in KNOWN if c.room == entry.room}
        assert len(entry.reason) > 30 and entry.says not in claimed, entry
        # What a reason refers to is there; with "to" between them, a range.
        for name in re.findall(r"\(([a-z]+-[\w-]+)(?: to ([\w-]+))?\)", entry.reason):
            assert {i for i in name if i} <= {c.id for c in KNOWN}, entry
