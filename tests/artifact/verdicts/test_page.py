"""The ledger: its cells, sections, columns of GPUs, counts and rules; and that nothing of a source is skipped."""

import re
from contextlib import nullcontext

import pandas as pd
import pytest
from bs4 import BeautifulSoup

from artifact import paths, registry
from artifact.drawing.pages import ledger
from artifact.measure import durations, records
from artifact.verdicts import judge, load, measures

KNOWN, UNTESTED, FIGURES = load.claims(), load.untested(), load.figures_of()
SYSTEMS = {name: system for name, system in registry.find().items() if system.sections}
SECTIONS = {"abstract": "", "I": "", "V": "", "V.D": "", "III-B": "", "III-B1": "", "Fig. 3": "", "TL;DR": ""}
GPU = "NVIDIA H200"


@pytest.fixture(scope="module")
def gpus() -> dict[str, pd.DataFrame]:
    """The verdicts by the shipped records of every GPU."""
    folders = {gpu: paths.RECORDED / gpu for gpu in records.list_gpus(paths.RECORDED)}
    return judge.everywhere(KNOWN, folders)


@pytest.fixture(scope="module")
def df(gpus) -> pd.DataFrame:
    return gpus[paths.HOME]


def rows(text: str) -> dict[str, BeautifulSoup]:
    """Id of a claim -> its row."""
    soup = BeautifulSoup(text, "html.parser")
    return {row["id"].removeprefix("claim-"): row for row in soup.find_all("tr", id=re.compile("^claim-"))}


def test_totals_tell_apart_what_the_sources_own_data_decide(df):
    own, counted = df[df["own"].astype(bool)], judge.counts(df)
    assert sum(counted.values()) == (~df["extension"].astype(bool)).sum() and counted[judge.OWN_DATA] == len(own)
    assert judge.OWN_DATA in judge.totals(df) and judge.OWN_DATA not in judge.totals(df.drop(own.index))
    assert judge.totals(df) in judge.markdown(df, GPU).splitlines()[0]


def test_each_cell_holds_a_verdict_what_was_measured_and_why(df):
    text = ledger.ledger({GPU: df}).partition("<script")[0]
    found = rows(text)
    assert sorted(found) == sorted(df["id"]) and "http" not in text
    for row in df.to_dict("records"):
        own = found[row["id"]]
        cell = own.find("td", {"data-label": GPU})
        assert cell["data-verdict"] == measures.said(row["verdict"], row["extension"])
        seen = "".join(cell.text.split())
        assert all("".join(said.split()) in seen for said in (row["measured"], row["close"], row["why"])), row["id"]
        told = cell.find("p", class_="judged").find_previous_siblings("p")
        assert len(told) == bool(row["close"]) + (bool(row["reason"]) and row["verdict"] != measures.NOT_MEASURED)
        assert bool(cell.find("small")) == row["extension"] and own.find("a", href=f"#claim-{row['id']}")
        assert durations.said(row["minutes"]) in own.find("th").text
    assert set(re.findall('href="#claim-([^"]*)"', text)) <= set(df["id"])


def test_the_ledger_escapes_what_it_shows():
    row = dict.fromkeys(judge.LEDGER_COLUMNS, "<b> & co") | {"verdict": measures.PARTLY, "minutes": 1.0, "own": False}
    text = ledger.ledger({"<b>GPU": pd.DataFrame([row])}, beside="ledger.html")
    assert "<b>" not in text and "&lt;b&gt; &amp; co" in text


def test_rows_stand_below_the_sections_of_their_sources(df):
    soup, head, below = BeautifulSoup(ledger.ledger({GPU: df}), "html.parser"), "", {}
    for row in soup.find("tbody").find_all("tr"):
        head = row.text if "group" in row.get("class", ()) else head
        below |= {row["id"].removeprefix("claim-"): (head.strip(), row["data-group"])} if row.get("id") else {}
    sections = ledger.by_section(df).set_index("id")
    want = {i: f"{row['source']} · {row['section']}" for i, row in sections.iterrows()}
    assert below == {i: (said, said) for i, said in want.items()} and list(below) == list(want)
    assert list(dict.fromkeys(sections["source"])) == list(dict.fromkeys(df["source"]))


def test_what_comes_first_is_open_and_the_others_unfold_with_links_to_numbers(df):
    files = {GPU: {"wide-speedup": {"figures/records/h200/wide.csv": "wide"}}}
    text = ledger.ledger({GPU: df}, files, "ledger.html", ["wide-speedup", "abstract-speedup"])
    shown, folded = map(rows, text.split('<details class="folded">'))
    assert set(shown) == {"wide-speedup", "abstract-speedup"} and set(folded) == set(df["id"]) - set(shown)
    linked = {i for i, row in (shown | folded).items() if row.find("a", download=True)}
    assert linked == {"wide-speedup"}
    assert 'class="folded"' not in ledger.ledger({GPU: df}, beside="ledger.html", first=["no such claim"])


def test_the_ledger_has_a_column_for_each_gpu(gpus):
    made = pd.concat(gpus).assign(said=lambda df: list(map(measures.said, df["verdict"], df["extension"])))
    said = made.groupby("id")["said"].agg(list)
    one, other = gpus.items()
    text = ledger.ledger(dict([one, (other[0], other[1].iloc[::-1])]))  # in any order
    cells = {
        i: [c["data-verdict"] for c in row.find_all("td", {"data-verdict": True})] for i, row in rows(text).items()
    }
    assert cells == said.to_dict()


def test_a_bar_for_each_source_counts_its_claims(df):
    soup = BeautifulSoup(ledger.bars({GPU: df}), "html.parser")
    drawn = {
        row.th.text: {bar["title"]: int(bar["style"].removeprefix("flex:")) for bar in row.find_all("span", title=True)}
        for row in soup.find("tbody").find_all("tr")
    }
    assert drawn == {
        source: {f"{count} {verdict}": count for verdict, count in judge.counts(own).items()}
        for source, own in df.groupby("source", sort=False)
    }
    assert not ledger.bars({})


def test_an_extension_is_answered_and_not_reproduced(df):
    lines = {line.split("`")[1]: line for line in judge.markdown(df, GPU).splitlines() if line.startswith("| `")}
    for i in df.loc[df["extension"].astype(bool), "id"]:
        assert "extension" in lines[i] and "reproduced" not in lines[i].split("|")[6]
    assert all(measures.said(v) == v and "reproduced" not in measures.said(v, True) for v in measures.VERDICTS)


def test_rules_are_defined_for_every_claim():
    df = judge.rules(KNOWN)
    assert list(df["part"].unique()) == list(measures.PARTS)
    for _, part in df.groupby("part"):
        assert sorted(i for ids in part["claims"] for i in ids) == sorted(c.id for c in KNOWN)
    assert not df.duplicated(["part", "name"]).any()  # or two systems would each have one of that name


@pytest.mark.parametrize(
    "value,text",
    [
        ("each point", '"each point"'),
        (
            {"near": ["published", 2.5], "factor": 1.05, "each_step": True, "at": 4096},
            '{ near = ["published", 2.5], factor = 1.05, each_step = true, at = 4096 }',
        ),
    ],
)
def test_a_rule_is_written_as_in_its_file(value, text):
    assert judge.written(value) == text


# ---------------------------------------------------------------- nothing skipped


@pytest.mark.parametrize(
    "where,sections,figures",
    [
        ("abstract; V.D", ["abstract", "V.D"], []),
        ("V", ["V"], []),
        ("V.D.2, Fig. 4a", ["V.D"], ["Fig. 4a"]),
        ("I; III-B1; Fig. 8; Tables I and II", ["I", "III-B1"], ["Fig. 8", "Tables I and II"]),
        ("V.D, Fig. 3", ["V.D"], ["Fig. 3"]),  # a figure is a section where there is no other
        ("Fig. 3", ["Fig. 3"], ["Fig. 3"]),
        ("TL;DR; V", ["V", "TL;DR"], []),
        *((where, None, None) for where in ("VI", "Fig. 4", "V; elsewhere", "")),
    ],
)
def test_places(where, sections, figures):
    with nullcontext() if sections else pytest.raises(ValueError, match="whose sections are: abstract, I"):
        assert judge.places(where, SECTIONS) == (sections, figures)


@pytest.mark.parametrize("system", SYSTEMS.values(), ids=SYSTEMS)
def test_every_section_has_claims_or_a_reason(system):
    df = judge.coverage(system, KNOWN, UNTESTED, FIGURES[system.room])
    assert list(dict.fromkeys(df["section"])) == list(system.sections)
    assert ((df["claims"].map(len) > 0) | (df["reason"] != "")).all()
    assert {i for ids in df["claims"] for i in ids} == {c.id for c in KNOWN if c.room == system.room}
    assert set(df["says"]) - {""} == {u.says for u in UNTESTED if u.room == system.room}
    told = df[df["experiment"].isin(FIGURES[system.room])]
    assert all(FIGURES[system.room][row.experiment] in row.figure for row in told.itertuples())


def test_what_is_untested_has_a_reason():
    ids = {c.id for c in KNOWN}
    assert {claim.room for claim in KNOWN} <= set(SYSTEMS)
    for entry in UNTESTED:
        assert entry.says.endswith(".") and entry.reason.endswith(".") and len(entry.reason) > 30, entry
        # What a reason refers to is there; with "to" between them, a range.
        for names in re.findall(r"\(([a-z]+-[\w-]+)(?: to ([\w-]+))?\)", entry.reason):
            assert {i for i in names if i} <= ids, entry
