"""Facts and tables of the pages that belong to no room: with records, with parts of them, without any."""

import re

import jinja2
import numpy as np
import pandas as pd
import pytest
import synthetic

from artifact import paths
from artifact.book import html, tables, text
from artifact.book.facts import tree
from artifact.drawing import prose
from artifact.drawing.pages import appendix, front, ledger, machine
from artifact.measure import minutes
from artifact.verdicts import judge, load, measures

NOTHING = prose.Origin("nvidia-h200", None, False)
H200 = {
    "compute_capability": "9.0",
    "sm_count": 132,
    "sm_mhz_max": 1980,
    "memory_bus_bits": 6144,
    "memory_mhz_max": 3201,
}


@pytest.fixture(scope="module")
def origin(tmp_path_factory):
    folder = synthetic.folder(tmp_path_factory.mktemp("records"))
    return prose.Origin("nvidia-h200", folder, False)


@pytest.fixture(scope="module")
def known():
    return [claim for claim in load.claims() if claim.room == "casper_sparse"]


@pytest.fixture(scope="module")
def judged(known, origin):
    return {"NVIDIA H200": judge.judge(known, origin.folder)}


def shown(name: str, df: pd.DataFrame | None, facts=()) -> str:
    """A table of a page as HTML."""
    spec = tables.specs("book")[name]
    return tables.styled(tables.rows(spec, dict(facts)) if df is None else df, spec, dict(facts)).to_html()


# ---------------------------------------------------------------- the machine, the method


def test_tensor_cores():
    row = synthetic.ceilings().iloc[0].to_dict()
    rates = {"mma": 400.0, "mma_sp": 600.0, "wgmma": 800.0, "wgmma_sp": 1200.0, "wgmma_sp_ra": 1500.0}
    df = pd.DataFrame([row | {"variant": v, "tflops": rate} for v, rate in rates.items()])
    page = machine.Page(NOTHING, "", H200, df)
    known = dict(machine.facts(page, {}))
    assert (known["tflops.mma_sp"], known["tflops.wgmma_sp_ra"], known["mhz.low"]) == (600, 1500, 1980)
    least = 1500e6 / (2 * 4096 * H200["sm_count"])
    assert known["inside.wgmma_sp_ra.low"] == pytest.approx(least) and known["inside.wgmma_sp_ra.high"] == 1980
    assert "1.50×" in shown("tensor", page.tensor) and "nan" not in shown("tensor", page.tensor)
    hidden = machine.Page(NOTHING, "", H200, df.assign(sm_mhz=np.nan))
    assert not any(name.startswith("mhz") for name, _ in machine.facts(hidden, {}))


def test_a_machine_without_ceilings():
    page = machine.Page(NOTHING, NOTHING.banner())
    assert page.roofs is page.tensor is machine.roofs_table(page) is None
    assert not any(name.startswith("balance") for name, _ in machine.facts(page, {}))


# ---------------------------------------------------------------- the ledger, the front page


def test_what_matters_first_is_computed(judged):
    (df,) = judged.values()
    markup = ledger.fared(judged)
    measured = judge.counted(df[df["verdict"] != measures.NOT_MEASURED])
    holds = (measured["verdict"] == measures.REPRODUCED).sum()
    assert f"Of {len(measured)} claims that the records decide {holds} are reproduced" in markup
    assert markup.count("<li>") == 1 + measured["source"].nunique() and "nan" not in markup
    named = re.findall(r'href="#claim-([^"]*)"', markup)
    assert named and set(df.set_index("id").loc[named, "verdict"]).isdisjoint({measures.REPRODUCED})
    assert ledger.fared({}) == ledger.bars({}) == ledger.table({}, {}) == front.fare({}) == ""


def test_the_numbers_behind_a_verdict_are_copied_beside_the_figures(monkeypatch, tmp_path, origin):
    monkeypatch.setattr(paths, "FIGURES", tmp_path / "figures")
    known = load.claims()
    (files,) = ledger.numbers(known, origin, tmp_path / "none").values()
    assert set(files) == {claim.id for claim in known}
    measured = "../figures/records/nvidia-h200/casper_sparse/wide.csv"
    assert files["wide-speedup"] == {measured: "wide"}
    for to in {to for own in files.values() for to in own}:
        assert (tmp_path / to.removeprefix("../")).read_text() and to.endswith(".csv")
    assert ledger.numbers(known, NOTHING) == {}


def test_findings_have_numbers_with_links_and_are_left_out_without():
    every = load.claims()
    data, folder = front.systems(None), paths.RECORDED / "nvidia-h200"
    both = {"H200": judge.judge(every, folder), "H100": judge.judge(every, paths.RECORDED / "nvidia-h100-80gb-hbm3")}
    page = text.page("front")
    page.add(front.facts(data, both, every))
    markup = front.findings(page)
    assert markup.count("<h3>") == len(front.FINDINGS) and "on an H200" in markup
    assert set(re.findall(r'href="ledger.html#claim-([^"]*)"', markup)) <= {claim.id for claim in every}
    page = text.page("front")
    page.add(front.facts(data, {}, every))
    assert front.findings(page).count("<h3>") == 0
    assert page("citation").startswith("```bibtex\n@software{") and len(data) == page("systems").count("| [")


def test_only_verdicts_have_badges_and_the_style_sheet_knows_each():
    with pytest.raises(jinja2.UndefinedError):
        html.part("badge", "maybe")
    sheet = (paths.ROOT / "book" / "_static" / "custom.css").read_text()
    assert sheet.count("{") == sheet.count("}")  # a brace too many hides the rule behind it
    for verdict in measures.VERDICTS:
        (name,) = re.findall(r'class="([\w-]+)"', html.part("badge", verdict))
        assert f".{name} {{ color:" in sheet, verdict


# ---------------------------------------------------------------- the appendix


@pytest.fixture(scope="module")
def of_records(origin, known):
    return appendix.Appendix(origin, known)


@pytest.fixture
def of_nothing(known):
    return appendix.Appendix(NOTHING, known)


def test_verdicts_and_minutes_of_every_gpu(of_records):
    told = tree(dict(appendix.facts(of_records)))["gpus"]
    assert list(told) == list(of_records.folders)
    for gpu, df in of_records.judged.items():
        assert told[gpu]["verdicts"] == judge.counted(df)["verdict"].value_counts().to_dict()
        took = list(told[gpu]["took"].values())
        assert took == sorted(took, reverse=True) and sum(took) == pytest.approx(told[gpu]["once"])
    for gpu, folder in of_records.folders.items():
        spent = minutes.durations(folder)
        assert told[gpu]["once"] == pytest.approx(spent.loc[~spent["repeat"], "minutes"].sum())


def test_times_and_contributions(of_records, of_nothing):
    table = appendix.times(of_records)
    every = pd.concat(list(of_records.spent.values())).drop_duplicates(appendix.EXPERIMENT)
    assert len(table) == len(every) and list(table.columns[-2:]) == ["H200: min (s)", "H100: min (s)"]
    square = table[table["experiment"].eq("square") & table["notebook"].str.contains("casper")]
    assert square["figure"].item() == "Fig. 5"
    assert square["H200: min (s)"].item().startswith("– ("), "one stamp tells no minutes"
    assert appendix.times(of_nothing) is None
    df = appendix.contributions(of_records, "abstract-speedup", "abstract-memory-throughput")
    row = df.set_index("number").loc["C1"]
    assert "ledger.html#claim-abstract-speedup" in row["claim"] and row["tried"].endswith("Fig. 4, Fig. 5, Fig. 6")
    assert "of 54 points" in row["here"] and "at_least = 1" in row["here"] and "H100: " in row["here"]


def test_the_appendix_lists_every_condition_and_whether_it_holds():
    a = appendix.Appendix(prose.origin("recorded", "nvidia-h200"), [])
    found = appendix.conditions(a)
    assert len(found) == sum(len(text.conditions(*chapter)) for chapter in text.chapters())
    assert set(found[list(a.short.values())].stack()) <= set(appendix.HOLDS.values())


def test_the_appendix_says_what_it_can_without_records(of_nothing):
    page = text.page("reviewers")
    page.add(appendix.facts(of_nothing))
    unknown = {block for block in page.blocks if page(block).startswith("*This was not measured")}
    assert unknown == {"memory", "together", "verdicts", "carried", "longest"}


def test_a_transcript_is_what_the_commands_print():
    said = appendix.typed("claims --id abstract-speedup")
    assert said.startswith("```console\n$ python -m artifact claims --id abstract-speedup\n")
    assert "not reproduced" in said and said.count("[exit code 0]") == 1 and "more lines" in said
    assert max(map(len, said.splitlines())) <= appendix.WIDE
