"""Verdicts on a page: the ledger, badges, what rules are made of."""

import html
import re

import pandas as pd
import pytest
import synthetic
from judging import frames

from artifact.drawing.pages import ledger
from artifact.measure import minutes
from artifact.verdicts import judge, load, measures, page
from artifact.verdicts.measures import PARTLY

KNOWN = load.claims()


def measured(df) -> int:
    """Claims that are counted, without those that a source's own data decide."""
    claims = judge.counted(df)
    return len(claims) - claims["own"].sum()


def test_totals_tell_apart_what_the_sources_own_data_decide(tmp_path):
    df = judge.judge(KNOWN, synthetic.folder(tmp_path))
    claims = judge.counted(df)
    theirs = claims[claims["own"]]
    holds = (theirs["verdict"] == measures.REPRODUCED).sum()
    counts, more = page.totals(df).split("; ")
    assert sum(int(part.split()[0]) for part in counts.split(", ")) == measured(df)
    assert more == f"{len(theirs)} more {page.OWN_DATA}, and {holds} of these are consistent with it"
    assert "more" not in page.totals(claims.drop(theirs.index))
    assert page.markdown(df, "X").splitlines()[0] == f"{measured(df)} claims on X: {page.totals(df)}"


def test_the_ledger_is_a_table_with_badges_in_words(tmp_path):
    df = judge.judge(KNOWN, synthetic.folder(tmp_path))
    text = ledger.ledger({"NVIDIA H200": df})
    assert text.count("<tr") == len(df) + 1 + text.count('<tr class="group">')
    assert f"<p>{measured(df)} claims" in text and measured(df) < len(judge.counted(df)) < len(df)
    for claim in KNOWN:
        assert f'id="claim-{claim.id}"' in text
    for verdict in set(judge.counted(df)["verdict"]):
        assert f"{verdict}</span>" in text
    assert "http" not in text and "<script" not in text
    linked = set(re.findall('href="#(claim-[^"]*)"', text))
    assert "claim-wide-cusparse-faster" in linked
    assert linked <= set(re.findall('id="(claim-[^"]*)"', text))


def test_the_ledger_escapes_what_it_shows():
    row = dict.fromkeys(judge.LEDGER_COLUMNS, "<b> & co") | {"verdict": PARTLY, "minutes": 1.0, "own": False}
    text = ledger.ledger({"<b>GPU": pd.DataFrame([row])}, "ledger.html")
    assert "<b>" not in text and "&lt;b&gt; &amp; co" in text


def test_the_ledger_says_whose_gpu_and_why_and_what_is_no_claim(tmp_path):
    df = judge.judge(KNOWN, synthetic.folder(tmp_path))
    text = ledger.ledger({"NVIDIA H200": df})
    rows = dict(re.findall(r'<tr id="claim-([^"]*)"[^>]*>(.*)</tr>', text))
    assert sorted(rows) == sorted(df["id"])
    for row in df.to_dict("records"):
        shown = rows[row["id"]]
        assert f"<td>{row['source']}</td><td>{row['gpu']}</td>" in shown, row["id"]
        (found,) = re.findall(' data-verdict="([^"]*)" data-search="([^"]*)" data-order', shown)
        word = measures.said(row["verdict"], row["extension"])
        assert found[0] == word and found[1].startswith(f"{word}: "), row["id"]
        assert html.escape(row["measured"]) in found[1], row["id"]
        assert ("extension, not counted" in shown) == row["extension"], row["id"]
        assert ("A close call" in shown) == bool(row["close"]), row["id"]
        if row["reason"] and row["verdict"] != measures.NOT_MEASURED:
            assert re.search(r"why, .*</summary>.*<p>.+</p><p class=\"judged\">", shown), row["id"]
        assert ("<summary>a close call, " in shown) == bool(row["close"]), row["id"]
        # Folded is all but the verdict and what was measured, and a row is a link to itself.
        plain = re.sub("<details>.*?</details>|<[^>]*>", "", re.search("<td data-label=.NVIDIA.*", shown)[0])
        assert html.escape(row["measured"]) in plain and "A close call" not in plain, row["id"]
        assert f'href="#claim-{row["id"]}"' in shown
        assert f"<small>{minutes.said(row['minutes'])} min</small></th>" in shown
    assert text.count('<th scope="col">') == len(ledger.BEFORE)
    assert text.count('<th scope="col" data-gpu="">NVIDIA H200</th>') == 1
    linked = ledger.ledger({"NVIDIA H200": df}, "ledger.html")
    assert 'href="ledger.html#claim-wide-speedup"' in linked


def test_rows_stand_below_the_sections_of_their_sources(tmp_path):
    df = judge.judge(KNOWN, synthetic.folder(tmp_path))
    text = ledger.ledger({"NVIDIA H200": df})
    heads = re.findall('<tr class="group"><th scope="rowgroup" colspan="4">(.*?)</th></tr>', text)
    assert len(heads) == len(set(heads)) and heads[:2] == [
        "casperSPARSE · abstract",
        "casperSPARSE · I",
    ]
    assert [head.split(" · ")[0] for head in heads] == sorted(
        (head.split(" · ")[0] for head in heads), key=list(dict.fromkeys(df["source"])).index
    )
    below, head = {}, ""
    for line in text.splitlines():
        if found := re.match('<tr class="group"><th[^>]*>(.*?)</th></tr>', line):
            head = found[1]
        elif found := re.match('<tr id="claim-([^"]*)" data-group="([^"]*)">', line):
            assert found[2] == head, line
            below[found[1]] = head
    sections = ledger.by_section(df).set_index("id")
    assert below == {i: f"{row['source']} · {row['section']}" for i, row in sections.iterrows()}
    assert 'class="group"' not in ledger.ledger({"NVIDIA H200": df}, "ledger.html")


def test_the_numbers_of_a_claim_are_a_link_in_its_cell(tmp_path):
    df = judge.judge(KNOWN, synthetic.folder(tmp_path))
    files = {"NVIDIA H200": {"wide-speedup": {"figures/records/h200/wide.csv": "wide"}}}
    text = ledger.ledger({"NVIDIA H200": df}, files=files)
    link = 'The numbers (CSV): <a href="figures/records/h200/wide.csv" download="">wide</a></p></details>'
    assert text.count("The numbers") == 1
    assert link in re.search('<tr id="claim-wide-speedup".*', text)[0]


def test_what_comes_first_is_open_and_the_others_unfold(tmp_path):
    df = judge.judge(KNOWN, synthetic.folder(tmp_path))
    first = ["wide-speedup", "abstract-speedup"]
    text = ledger.ledger({"NVIDIA H200": df}, "ledger.html", first)
    shown, folded = text.split('<details class="folded">')
    assert set(re.findall('<tr id="claim-([^"]*)"', shown)) == set(first)
    assert set(re.findall('<tr id="claim-([^"]*)"', folded)) == set(df["id"]) - set(first)
    assert f"<summary>The other {len(df) - 2} rows</summary>" in folded
    assert f"<p>{measured(df)} claims" in shown  # counts are of all
    assert 'class="folded"' not in ledger.ledger({"NVIDIA H200": df}, "ledger.html", ["no such claim"])


def test_the_ledger_has_a_column_for_each_gpu(tmp_path):
    one = judge.judge(KNOWN, synthetic.folder(tmp_path / "a"))
    two = judge.judge(KNOWN, synthetic.folder(tmp_path / "b", frames(1.5))).iloc[::-1]  # in any order
    text = ledger.ledger({"First": one, "Second": two})
    assert re.findall('<th scope="col" data-gpu="">(.*?)</th>', text) == ["First", "Second"]
    assert f"<p>{measured(one)} claims on First: " in text
    rows = dict(re.findall(r'<tr id="claim-([^"]*)"[^>]*>(.*)</tr>', text))
    of = [df.set_index("id") for df in (one, two)]
    of = [df.apply(lambda r: measures.said(r["verdict"], r["extension"]), axis=1) for df in of]
    assert (of[0] != of[1].reindex(of[0].index)).any()
    for i, shown in rows.items():
        assert re.findall('data-verdict="([^"]*)"', shown) == [frame[i] for frame in of], i


def test_a_bar_for_each_source_counts_its_claims(tmp_path):
    df = judge.judge(KNOWN, synthetic.folder(tmp_path))
    text = html.unescape(ledger.bars({"NVIDIA H200": df}))
    counted = judge.counted(df)
    assert counted["own"].any() and f"</span> {page.OWN_DATA}</span>" in text
    counted.loc[counted["own"], "verdict"] = page.OWN_DATA
    for source, own in counted.groupby("source", sort=False):
        (row,) = [row for row in text.split("<tr>") if f'<th scope="row">{source}</th>' in row]
        assert f"<td>{len(own)}</td>" in row
        told = re.search(r'aria-label="([^"]*)"', row)[1]
        for verdict, count in own["verdict"].value_counts().items():
            assert f"{count} {verdict}" in told.split(", ")
            assert f'title="{count} {verdict}"' in row
        assert sum(map(int, re.findall(r"style=\"flex:(\d+)\"", row))) == len(own)


def test_an_extension_is_answered_and_not_reproduced(tmp_path):
    df = judge.judge(KNOWN, synthetic.folder(tmp_path))
    ours = df[df["extension"].astype(bool)]
    text = page.markdown(df, "NVIDIA H200")
    rows = {line.split("`")[1]: line for line in text.splitlines() if line.startswith("| `")}
    for i in ours["id"]:
        assert "reproduced" not in rows[i].split("|")[6] and "extension" in rows[i].split("|")[6]
    assert {measures.said(v) for v in measures.VERDICTS} == set(measures.VERDICTS)
    assert "reproduced" not in " ".join(measures.said(v, True) for v in measures.VERDICTS)


def test_rules_are_defined_for_every_claim():
    df = page.rules(KNOWN)
    assert list(df["part"].unique()) == list(measures.PARTS)
    for _, rows in df.groupby("part"):
        assert sorted(i for ids in rows["claims"] for i in ids) == sorted(c.id for c in KNOWN)
    speedup = df.set_index("name").loc["speedup"]
    assert speedup["definition"].startswith("Time of the baseline `over` divided by")
    assert not df.duplicated(["part", "name"]).any()  # or two rooms would each have one of that name


def test_a_rule_is_written_as_in_its_file():
    words = {"near": ["published", 2.5], "factor": 1.05, "each_step": True, "at": 4096}
    text = '{ near = ["published", 2.5], factor = 1.05, each_step = true, at = 4096 }'
    assert page.written(words) == text and page.written("each point") == '"each point"'


@pytest.mark.parametrize(
    "one,other,stands",
    [
        (measures.REPRODUCED, measures.NOT_REPRODUCED, "abstract-speedup"),
        (measures.NOT_REPRODUCED, measures.PARTLY, "summary-cusparse-faster"),
        (measures.REPRODUCED, measures.REPRODUCED, "both"),
        (measures.PARTLY, measures.PARTLY, "neither"),
        (measures.NOT_MEASURED, measures.REPRODUCED, "undecided"),
    ],
)
def test_at_most_one_of_two_opposite_claims_stands(one, other, stands):
    of = {claim.id: measures.NOT_MEASURED for claim in KNOWN}
    of |= {"abstract-speedup": one, "summary-cusparse-faster": other}
    judged = pd.DataFrame({"id": list(of), "verdict": list(of.values())})
    pairs = page.contradictions(judged, KNOWN).set_index(["one", "other"])["stands"]
    assert pairs["abstract-speedup", "summary-cusparse-faster"] == stands
