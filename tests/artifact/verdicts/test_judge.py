"""Verdicts from records: the ledger's rows, what stands beside a verdict, and the shipped verdicts."""

import re
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import snapshots
import synthetic
from bs4 import BeautifulSoup
from judging import ALL, GOOD, SPEEDUP, evidence, frames, load, rule
from refused import refused

from artifact import paths, registry
from artifact.drawing.pages import ledger
from artifact.measure import device, durations, records
from artifact.verdicts import judge, load as load_, measures
from artifact.verdicts.evidence import NotMeasured
from artifact.verdicts.measures import NOT_MEASURED, NOT_REPRODUCED, PARTLY, REPRODUCED

CASPER = [claim for claim in load_.claims() if claim.room == "casper_sparse"]
#: A number that is measured, not the name of a size, a GPU, a level of cache or an equation.
TYPED = re.compile(r"\d[\d.,]*\s*(×|%|per cent|times|µs|ms\b|MHz|[TG]?FLOP|[KMGT]i?B\b)|\d\.\d|\d[eE][-+]?\d")
UNITS = r"×|%|µs|TFLOP/s|GB/s|\(|error|target|bytes| at \d|launches|exponent|correlation|: |HMMA|steps fall"
PLAIN = "These records do not hold what would say why"  #: how a reason ends that nobody wrote


@pytest.fixture(scope="module")
def shipped(gpus) -> pd.DataFrame:
    """The verdicts by the shipped records of every GPU, in one table."""
    return pd.concat(df.assign(on=gpu) for gpu, df in gpus.items())


def test_the_verdicts_of_the_shipped_records_are_those_that_are_shipped(shipped):
    """A changed threshold, a changed `>=`, a changed record: whoever means it renews the file."""
    snapshots.check(paths.RECORDED / judge.SHIPPED, judge.to_csv(dict(list(shipped.groupby("on", sort=False)))))


def test_a_verdict_has_a_number_with_its_unit_and_all_but_reproduced_a_reason_with_one(shipped):
    """On the GPU of the chapters it is written by hand."""
    holds, given = shipped["verdict"] == REPRODUCED, shipped["verdict"] != NOT_MEASURED
    reason = shipped["reason"]
    assert ((reason == "") == holds).all() and reason[~holds].str.fullmatch(".{30,}[.]").all()
    judged = reason[given & ~holds]
    assert judged.str.contains(r"\d").all() and not judged.str.contains(r"[{}]|\bnan\b|\binf\b|None").any()
    assert not reason[shipped["on"] == paths.HOME].str.contains(PLAIN).any()
    # A power law from which points lie far is none, and has no exponent.
    some = shipped[given]
    assert (some["value"].notna() | some["measured"].str.startswith("exponent")).all() and (some["points"] > 0).all()
    assert some["measured"].str.contains(UNITS).all()


def test_no_measured_number_is_typed_in_a_reason():
    for claim in load_.claims():
        said = judge.PLACEHOLDER.sub("", claim.reason)
        assert not TYPED.search(said) and (said != claim.reason or not said), claim.id


@pytest.mark.parametrize(
    "speedup,pair", [(None, (measures.NOT_CARRIED, REPRODUCED)), (1.3, (REPRODUCED, measures.NOT_CARRIED))]
)
def test_the_ledger_follows_the_records(tmp_path, speedup, pair):
    """The abstract and section V disagree about who is faster; the records decide."""
    ids = ["abstract-speedup", "summary-cusparse-faster", "wide-speedup"]
    df = (
        judge.judge([claim for claim in CASPER if claim.id in ids], synthetic.folder(tmp_path, frames(speedup)))
        .set_index("id")
        .loc[ids]
    )
    assert tuple(df["verdict"][:2]) == pair and df["published"].iloc[2] == "0.55–0.90×"
    assert "summary-cusparse-faster" in df["why"].iloc[0]


NEAR, FAR = "n = 512 or 1024", lambda m, n, k, d: 0.7 if n <= 1024 else 9.0


@pytest.mark.parametrize(
    "speedup,old,new,verdict,said,unsaid",
    [
        # At 0.85 of the best algorithm's speed, and 1.19 of the default's.
        (0.85, "", "", REPRODUCED, ["Against cuSPARSE's default algorithm: 1.19× over", "(not reproduced)."], "at n"),
        (0.85, ', also_over = "cusparse_default"', "", REPRODUCED, ["100% of 21 points lie"], "default"),
        (
            FAR,
            "reduce =",
            "at = { n = [512, 1024] }\nreduce =",
            REPRODUCED,
            [f"Judged at {NEAR}.", "6 points lie"],
            "—",
        ),
        (FAR, "", "", measures.NOT_CARRIED, ["29% of 21 points lie"], "Judged at"),
    ],
)
def test_the_ledger_says_where_and_against_whom_a_claim_was_judged(tmp_path, speedup, old, new, verdict, said, unsaid):
    (row,) = judge.judge(
        load(tmp_path / "rooms", GOOD.replace(old, new)), synthetic.folder(tmp_path, frames(speedup))
    ).to_dict("records")
    assert row["verdict"] == verdict and all(words in row["why"] for words in said) and unsaid not in row["why"]


DRAM = {"dram_use": ["warp_per_row"], "metric": "dram"}, "median", {"at_least": 0.9, "partly": 0.6}
MEMORY = {"memory_use": "warp_per_row", "metric": "dram"}, "each point", {"memory_limits_from": 0.6, "at_points": 0.9}


@pytest.mark.parametrize(
    "asked,least,requested,verdict,measured",
    [
        (DRAM, 0.95, 2.0, REPRODUCED, "between warp_per_row 95% of .* and warp_per_row 100%"),  # with perfect reuse
        (DRAM, 0.1, 0.5, NOT_REPRODUCED, "between"),  # not even without any reuse
        (DRAM, 0.65, 0.8, PARTLY, "65% of the DRAM's bandwidth and warp_per_row 80% of the DRAM's bandwidth"),
        (DRAM, 0.1, 2.0, None, "between warp_per_row 10% of .* and warp_per_row 100%"),  # anything: it is left open
        (MEMORY, 0.9, 0.95, REPRODUCED, ""),
        (MEMORY, 0.1, 0.2, NOT_REPRODUCED, ""),
        (MEMORY, 0.1, 0.9, None, "between DRAM 10%"),
    ],
)
def test_a_quantity_that_is_only_bounded_needs_one_verdict_from_both_bounds(asked, least, requested, verdict, measured):
    """What comes from DRAM of all that is asked for nobody counted."""
    made = frames(tflops=30.0)
    for df in made.values():
        df[["least_bytes", "requested_bytes"]] = np.outer(
            synthetic.COPY_GBPS * 1e3 * df["median_us"], [least, requested]
        )
    with nullcontext() if verdict else pytest.raises(NotMeasured, match=measured):
        found = measures.outcome(rule(*asked), evidence(made), ALL)
        assert found.verdict == verdict and re.search(measured, found.measured)


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
        of = [np.where(last, 50.0, 100.0 / speedup), 100.0]
        us = np.select([df["variant"] == v for v in ("warp_per_row", "any_n")], of, df["median_us"])
        rates = {"tflops": df["useful_flops"] / us / 1e6, "gbps": df["least_bytes"] / us / 1e3}
        df = df.assign(median_us=us, q25_us=us, q75_us=us, **rates)
        made[name] = df if name == "wide" else df[~last]
    return synthetic.folder(tmp_path, made)


@pytest.mark.parametrize(
    "new,verdict,said",
    [
        (
            "repeats = true",
            REPRODUCED,
            r" 21 points.*wide alone: warp_per_row 1–2× over any_n \(not reproduced\); square alone: .* 4×",
        ),
        ("", measures.NOT_CARRIED, "^((?!alone).)*$"),
        # The largest n, which one run lacks, is that of the other.
        ("repeats = true\nat = { n = 32768 }", REPRODUCED, "square alone: not measured"),
    ],
)
def test_runs_of_one_measurement_are_judged_by_their_mean(tmp_path, two_runs, new, verdict, said):
    known = load(tmp_path / "rooms", REPEATS.replace("repeats = true", new))
    (row,) = judge.judge(known, two_runs).to_dict("records")
    assert row["verdict"] == verdict and re.search(said, row["why"])
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
        rows += judge.judge(
            [replace(CLAIM, **changes)],
            synthetic.folder(
                tmp_path / str(speedup),
                {name: df.assign(gpu=gpu) for name, df in frames(speedup).items()},
                gpu,
                device.slug(gpu),
            ),
        ).to_dict("records")
    assert [row["verdict"] for row in rows] == [expected, REPRODUCED] and rows[1]["reason"] == ""


def test_verdicts_by_shipped_records_are_kept_until_a_file_changes(tmp_path, monkeypatch):
    made, judged, few = [], judge.judge, CASPER[:6]
    monkeypatch.setattr(paths, "BUILD", tmp_path / "build")
    monkeypatch.setattr(load_, "claims", lambda: few)
    monkeypatch.setattr(judge, "judge", lambda claims, folder: made.append(folder) or judged(claims, folder))
    own, folder = synthetic.folder(tmp_path / "own"), paths.RECORDED / paths.HOME
    judge.kept(few, own)  # other records, and other claims
    judge.kept([replace(few[0], says="something else")], folder)
    assert not (tmp_path / "build").exists() and made == [own, folder]
    first = judge.kept(few, folder)
    pd.testing.assert_frame_equal(judge.kept(few[:5], folder), first[:5])
    assert len(made) == 3 and first.equals(judged(few, folder))
    (tmp_path / "build" / "verdicts" / f"{paths.HOME}.json").write_text("{")  # as an interrupted disk leaves it
    judge.kept(few, folder)
    monkeypatch.setattr(judge, "_state", lambda: "another")
    judge.kept(few, folder)
    assert len(made) == 5


@pytest.mark.parametrize("name", ["a.py", "a.toml", "a.j2", "a.csv", "a.json", "a.txt"])
def test_a_file_that_verdicts_follow_from_changes_their_state(tmp_path, monkeypatch, name):
    monkeypatch.setattr(paths, "ROOT", tmp_path)
    states = [judge._state()]
    for text in ("one", "longer"):
        records.write_text(tmp_path / "artifact" / "deep" / name, text)
        states.append(judge._state())
    assert len(set(states)) == (1 if name == "a.txt" else 3)


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
            f"{PLAIN}: There are no hardware counters of this system on this GPU",
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
        refused("a placeholder .* that is none", judge.judge, [claim], where)
        return
    (row,) = judge.judge([claim], where).to_dict("records")
    assert row["verdict"] == measures.NOT_CARRIED
    if PLAIN in filled:
        filled = f"Asked for under 1×, it came to: geometric mean 1.30× over cuSPARSE. {filled}"
    assert row["reason"].startswith(filled) and row["reason"].endswith(".")


@pytest.mark.parametrize(("reason", "said"), [("", "Better than stated"), ("Since it is.", "Since it is.")])
def test_what_exceeds_a_claim_is_said_where_nobody_wrote_why(tmp_path, reason, said):
    more = rule(SPEEDUP, "geometric mean", {"near": [1.0, 1.1], "factor": 1.05, "partly": 1.3, "better": "more"})
    (row,) = judge.judge(
        [replace(CLAIM, reason=reason, rule=more)], synthetic.folder(tmp_path, frames(2.0))
    ).itertuples()
    assert row.verdict == measures.EXCEEDED and row.reason.startswith(said)


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
        (measures.UNDECIDED, REPRODUCED, "undecided"),
        (measures.EXCEEDED, REPRODUCED, "both"),
        (measures.EXCEEDED, PARTLY, "a"),
    ],
)
@pytest.mark.parametrize("both", [(), ("b",)])  # who states it
def test_which_of_two_claims_stands(a, b, stands, both):
    known = [replace(CLAIM, id=i, contradicts=others) for i, others in (("a", both), ("b", ("a",)))]
    assert judge.contradictions(pd.DataFrame({"id": ["a", "b"], "verdict": [a, b]}), known).to_dict("records") == [
        {"one": "a", "other": "b", "stands": stands}
    ]


# ---------------------------------------------------------------- the ledger

KNOWN, UNTESTED, FIGURES = load_.claims(), load_.untested(), load_.figures_of()
SYSTEMS = {name: system for name, system in registry.find().items() if system.sections}
SECTIONS = {"abstract": "", "I": "", "V": "", "V.D": "", "III-B": "", "III-B1": "", "Fig. 3": "", "TL;DR": ""}
GPU = "NVIDIA H200"


@pytest.fixture(scope="module")
def gpus() -> dict[str, pd.DataFrame]:
    """The verdicts by the shipped records of every GPU."""
    return judge.everywhere(KNOWN, {gpu: paths.RECORDED / gpu for gpu in records.list_gpus(paths.RECORDED)})


@pytest.fixture(scope="module")
def df(gpus) -> pd.DataFrame:
    return gpus[paths.HOME]


def rows(text: str) -> dict[str, BeautifulSoup]:
    """Id of a claim -> its row."""
    return {
        row["id"].removeprefix("claim-"): row
        for row in BeautifulSoup(text, "html.parser").find_all("tr", id=re.compile("^claim-"))
    }


def test_totals_tell_apart_what_the_sources_own_data_decide(df):
    own, counted = df[df["own"].astype(bool)], judge.counts(df)
    of = judge.facts(df)
    assert sum(counted.values()) == (~of["apart"].isin([judge.EXTENSIONS, judge.STAND_INS])).sum()
    assert counted[judge.OWN_DATA] == (of["apart"] == judge.OWN_DATA).sum()
    assert judge.OWN_DATA in judge.totals(df) and judge.OWN_DATA not in judge.totals(df.drop(own.index))
    assert judge.totals(df) in judge.markdown(df, GPU).splitlines()[0]


def verdicts(*rows: tuple[str, str, str]) -> pd.DataFrame:
    """A ledger of (fact, verdict, why it is apart) each."""
    kinds = {"extension": judge.EXTENSIONS, "own": judge.OWN_DATA, "rebuilt": judge.REBUILT}
    made = [
        {"id": f"c{i}", "room": "r", "source": "s", "fact": fact, "verdict": verdict}
        | {"aside": "stand-in: x" if why == judge.STAND_INS else ""}
        | {key: why == kind for key, kind in kinds.items()}
        for i, (fact, verdict, why) in enumerate(rows)
    ]
    return pd.DataFrame(made)


LEDGER = (
    ("a", REPRODUCED, ""),
    ("a", NOT_REPRODUCED, ""),  # two readings that differ
    ("b", PARTLY, ""),
    ("b", PARTLY, ""),
    ("b", REPRODUCED, judge.OWN_DATA),
    ("c", REPRODUCED, ""),
    ("c", NOT_MEASURED, ""),  # says nothing beside one that is decided
    ("d", REPRODUCED, judge.EXTENSIONS),
    ("e", NOT_REPRODUCED, judge.STAND_INS),
    ("f", REPRODUCED, judge.REBUILT),
)


def test_readings_of_one_fact_count_once_and_what_is_apart_is_taken_out():
    df = verdicts(*LEDGER)
    assert judge.counts(df) == {REPRODUCED: 1, PARTLY: 2, judge.REBUILT: 1, judge.OWN_DATA: 1}
    told = judge.reconciled(df).set_index("what")
    assert told.loc["rows of the ledger"].tolist() == [len(LEDGER), 7]
    apart = told.loc[[f"of these {why}" for why in judge.APART]].sum()
    assert (told.loc["rows of the ledger"] - apart).tolist() == told.loc["the tally"].tolist() == [6, 3]
    assert told.loc[[v for v in measures.VERDICTS if v in told.index]].sum().tolist() == [6, 3]


@pytest.mark.parametrize("df", ["nvidia-h200", "nvidia-h100-80gb-hbm3", "each"])
def test_every_total_is_that_of_the_reconciliation(gpus, df):
    df = judge.deciding(gpus) if df == "each" else gpus[df]
    told, of = judge.reconciled(df).set_index("what"), judge.counts(df)
    assert {v: n for v, n in told["facts"].items() if v in of} == {v: n for v, n in of.items() if v in told.index and n}
    apart = [f"of these {why}" for why in judge.APART]
    assert (told.loc["rows of the ledger"] - told.loc["the tally"]).tolist() == told.reindex(apart).sum().tolist()
    assert told.loc["the tally", "facts"] == sum(of.get(v, 0) for v in measures.VERDICTS)


def test_a_gpu_of_the_sources_own_kind_decides(gpus):
    every = judge.deciding({gpu: gpus[gpu] for gpu in ("nvidia-h200", "nvidia-h100-80gb-hbm3")})
    for system, own in every.groupby("room", sort=False):
        by = "nvidia-h100-80gb-hbm3" if system == "async_sparse" else "nvidia-h200"
        pd.testing.assert_frame_equal(own, gpus[by][gpus[by]["room"] == system], check_dtype=False)
    assert judge.decider({"nvidia-h200": gpus["nvidia-h200"]}, "async_sparse") == "nvidia-h200"


def test_each_cell_holds_a_verdict_what_was_measured_and_why(df):
    text, script, _ = ledger.ledger({GPU: df}).partition("<script")
    assert script and "<script" not in ledger.ledger({GPU: df}, beside="ledger.html")
    found = rows(text)
    assert sorted(found) == sorted(df["id"]) and "http" not in text
    for row in df.to_dict("records"):
        own = found[row["id"]]
        cell = own.find("td", {"data-label": GPU})
        assert cell["data-verdict"] == measures.said(row["verdict"], row["aside"])
        seen = "".join(cell.text.split())
        assert all("".join(said.split()) in seen for said in (row["measured"], row["why"])), row["id"]
        assert len(cell.find("p", class_="judged").find_previous_siblings("p")) == (
            bool(row["reason"]) and row["verdict"] not in measures.OPEN
        ) + bool(row["sure"])
        said = "".join(small.text for small in cell.find_all("small"))
        assert (row["aside"] in said) and ("on our rebuilding" in said) == row["rebuilt"]
        assert ("not counted" in said) == bool(row["aside"]) and own.find("a", href=f"#claim-{row['id']}")
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
    shown, folded = map(
        rows,
        ledger.ledger(
            {GPU: df},
            {GPU: {"wide-speedup": {"figures/records/h200/wide.csv": "wide"}}},
            "ledger.html",
            ["wide-speedup", "abstract-speedup"],
        ).split('<details class="folded">'),
    )
    assert set(shown) == {"wide-speedup", "abstract-speedup"} and set(folded) == set(df["id"]) - set(shown)
    assert {i for i, row in (shown | folded).items() if row.find("a", download=True)} == {"wide-speedup"}
    assert 'class="folded"' not in ledger.ledger({GPU: df}, beside="ledger.html", first=["no such claim"])


def test_the_ledger_has_a_column_for_each_gpu(gpus):
    said = (
        pd.concat(gpus)
        .assign(said=lambda df: list(map(measures.said, df["verdict"], df["aside"])))
        .groupby("id")["said"]
        .agg(list)
    )
    one, other = gpus.items()
    text = ledger.ledger(dict([one, (other[0], other[1].iloc[::-1])]))  # in any order
    assert {
        i: [c["data-verdict"] for c in row.find_all("td", {"data-verdict": True})] for i, row in rows(text).items()
    } == said.to_dict()


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


def test_what_stands_aside_is_answered_and_not_reproduced(df):
    lines = {line.split("`")[1]: line for line in judge.markdown(df, GPU).splitlines() if line.startswith("| `")}
    for i, why in df.loc[df["aside"] != "", ["id", "aside"]].itertuples(index=False):
        assert f"({why}, not counted)" in lines[i] and "reproduced" not in lines[i].split("|")[6]
    assert all(measures.said(v) == v and "reproduced" not in measures.said(v, "extension") for v in measures.VERDICTS)


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
