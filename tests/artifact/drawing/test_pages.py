"""Tables and sentences of the pages that belong to no room: with records, with parts of them, without any."""

import json
import re
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import synthetic

from artifact import paths, registry
from artifact.book.facts import tree
from artifact.book.text import page as page_
from artifact.drawing import cells, prose, roofs
from artifact.drawing import systems as systems_
from artifact.drawing.pages import appendix, evaluation, front, ledger, machine, method
from artifact.measure import bench, check, minutes, others, records
from artifact.paths import HOME
from artifact.verdicts import judge, load, measures, page
from kernels import casper_sparse, ceilings

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
def judged(known):
    """Made-up verdicts: of two claims that contradict each other, the first stands."""
    verdicts = [measures.REPRODUCED, measures.NOT_REPRODUCED]
    pair = next([c.id, c.contradicts[0]] for c in known if c.contradicts)
    given = dict(zip(pair, verdicts, strict=True))
    return pd.DataFrame(
        {
            "id": c.id,
            "says": c.says,
            "verdict": given.get(c.id, measures.NOT_MEASURED),
            "extension": c.extension,
        }
        for c in known
    )


# ---------------------------------------------------------------- the machine


def test_facts_leave_out_what_is_not_known():
    known = synthetic.machine() | H200 | {"ecc": True, "memory_bytes": 2**37, "l2_bytes": 2**25}
    rows = machine.facts(known)
    assert rows["memory"] == "128.0 GiB, 6144 bits wide"
    assert rows["L2 cache"] == "32 MiB" and rows["error correction (ECC)"] == "on"
    assert rows["highest SM clock"] == "1980 MHz"
    assert rows["measured"] == "2026-01-02, 03:04:05 UTC"
    less = machine.facts({k: v for k, v in known.items() if k not in ("sm_mhz_max", "ecc")})
    assert "highest SM clock" not in less and "error correction (ECC)" not in less


def test_rates_have_their_unit():
    assert machine.rate(12.34, "TFLOP/s") == "12.3 TFLOP/s"
    assert machine.rate(4321.0, "GB/s") == "4.32 TB/s"
    assert machine.rate(np.nan, "GB/s") == "not stated"


def test_ceilings_and_roofline():
    found = roofs.roofs(synthetic.ceilings(), H200)
    table = machine.ceilings_table(found)
    assert table["measured"].str.contains("4.00 TB/s").any()
    few = {"CSR, requested bytes": (0.1, 0.5)}
    page = machine.Page(NOTHING, "", H200, synthetic.ceilings())
    known = dict(machine.known(page, few))
    assert known["gather.high"] == 0.5 and known["balance.least"] == found["balance"].min()
    assert "gather.high" not in dict(machine.known(page, {}))
    assert "The bars:" in machine.below_roofline(found, few)["caption"]
    assert "The bars:" not in machine.below_roofline(found, {})["caption"]


def with_tensor_cores(**rates):
    row = synthetic.ceilings().iloc[0].to_dict()
    return pd.DataFrame([row | {"variant": v, "tflops": rate} for v, rate in rates.items()])


def test_tensor_cores():
    df = with_tensor_cores(mma=400.0, mma_sp=600.0, wgmma=800.0, wgmma_sp=1200.0, wgmma_sp_ra=1500.0)
    page = machine.Page(NOTHING, "", H200, df)
    known = dict(machine.known(page, {}))
    assert (known["tflops.mma_sp"], known["tflops.wgmma_sp_ra"], known["mhz.low"]) == (600, 1500, 1980)
    least = 1500e6 / (2 * 4096 * H200["sm_count"])
    assert known["inside.wgmma_sp_ra.low"] == pytest.approx(least) and known["inside.wgmma_sp_ra.high"] == 1980
    table = machine.tensor_table(page.tensor).set_index("microbenchmark")
    assert table.loc["<code>mma_sp</code>", "over its dense one"] == "1.50×"
    assert table.loc["<code>mma</code>", "over its dense one"] == ""
    hidden = machine.Page(NOTHING, "", H200, df.assign(sm_mhz=np.nan))
    assert not any(name.startswith("mhz") for name, _ in machine.known(hidden, {}))
    ada = machine.Page(NOTHING, "", H200, with_tensor_cores(mma=400.0, mma_sp=600.0))
    assert "tflops.wgmma" not in dict(machine.known(ada, {}))


def test_a_machine_without_ceilings():
    page = machine.Page(NOTHING, NOTHING.banner())
    assert page.roofs is None and page.tensor is None
    assert not list(machine.known(page, {}))
    old = machine.Page(NOTHING, "", H200, synthetic.ceilings())  # from before there were any
    assert old.roofs is not None and old.tensor is None


def test_compiled_microbenchmarks():
    report = pd.DataFrame(
        {
            "variant": ["fma", "copy"],
            "target": "sm_90a",
            "registers": 32,
            "shared_bytes": 0,
            "spills": [False, True],
            "instructions": 100,
            "FFMA": [64, 0],
        }
    )
    table = machine.compiled_table(report)
    assert table["of these"].tolist() == ["64 FFMA", "0 LDG.128"]
    assert table["spills"].tolist() == ["no", "yes"]
    assert dict(machine.compiled_facts(report))["spilling"] == "`copy`"
    assert dict(machine.compiled_facts(report.assign(spills=False)))["spilling"] == ""
    assert len(machine.ideas()) == len(ceilings.VARIANTS) and set(machine.WORK) == set(ceilings.VARIANTS)


def test_the_heart_of_a_microbenchmark():
    lines = machine.heart("fma", "FFMA", 5).splitlines()
    assert len(lines) == 5 and lines[0].startswith("FFMA")


# ---------------------------------------------------------------- the method


def test_constants_of_the_timer_are_those_that_it_uses():
    table = method.constants()
    assert table["value"].str.contains("MiB").any()
    row = table[table["constant"].str.contains("<code>BATCH</code>")]
    assert str(bench.BATCH) in row["value"].item()
    facts = dict(method.facts())
    assert (facts["timer.batch"], facts["timer.call_samples"]) == (bench.BATCH, bench.CALL_SAMPLES)
    assert "budget_s.kick" in facts and "`sm_90a`" in facts["jit.targets"]


def test_a_problem_in_numbers():
    p = casper_sparse.problem(m=64, n=32, k=128, density=0.1, seed=0)
    facts = dict(method.counted(p))
    assert (facts["p.m"], facts["p.percent"], facts["p.true"]) == (64, "10", p.nnz / 64 / 128)
    rows = method.counts(p, {"B, once": 4 * 128 * 32})
    assert rows["B, once"] == "0.016 MB"
    assert rows["least bytes"] == f"<strong>{p.least_bytes / 1e6:.3f} MB</strong>"


def test_limits_targets_and_columns():
    assert method.limits()["dtype of C"].tolist() == list(check.LIMITS)
    assert len(method.columns()) == len(records.COLUMNS)


# ---------------------------------------------------------------- the ledger


def test_pairs_of_claims_that_contradict_each_other(known, judged):
    table = ledger.pairs(judged, known)
    first = judged.set_index("verdict").loc[measures.REPRODUCED, "id"]
    assert table["which stands"].tolist().count(f"<code>{first}</code>") == 1
    assert table["one"].str.contains(f'href="#claim-{first}"').any()
    assert f"There are {len(table)} such pairs, and the records decide 1" in ledger.decided(judged, known)
    assert ledger.pairs(None, known) is None
    assert f"There are {len(table)} such pairs; without records" in ledger.decided(None, known)


def test_a_ledger_without_records(known, origin):
    assert ledger.judged(known, NOTHING) is None
    assert f"{len(load.of_sources(known))} claims and no verdicts" in ledger.without_records(known, NOTHING)
    assert ledger.without_records(known, origin) == ""


def test_systems_without_claims(known):
    found = registry.find()
    text = ledger.without_claims(known, found.values())
    assert f"for {len(found) - 1} of the {len(found)} systems" in text
    assert "casperSPARSE" not in text
    assert ledger.without_claims(known, [found["casper_sparse"]]) == ""


def test_rules_link_where_there_are_rows(known):
    linked, plain = (ledger.rules(known, linked=linked) for linked in (True, False))
    assert linked["claims"].str.contains(f'<a href="#claim-{known[0].id}">').any()
    assert not plain["claims"].str.contains("<a href").any()
    assert f"--id {known[0].id}" in ledger.rerun(known)


# ---------------------------------------------------------------- the front page


def test_the_citation_is_that_of_its_file(tmp_path):
    (tmp_path / "CITATION.cff").write_text(
        "title: 'One two three: four'\nversion: 1.2\nlicense: X\ndate-released: 2026-01-02\ndoi: 10.1/2\n"
        "authors: [{name: The Group}, {family-names: Doe, given-names: Jo}]\n"
    )
    said = front.citation(tmp_path)
    assert said.startswith("```bibtex\n@software{one_two_three,\n  author = {{The Group} and Doe, Jo},")
    assert "  year = {2026},\n  doi = {10.1/2}," in said and said.count("{") == said.count("}")
    (tmp_path / "CITATION.cff").write_text(
        "title: One two\nversion: 1\nlicense: X\ndate-released: 2026-01-02\nauthors: [{name: The Group}]\n"
    )
    assert "doi" not in front.citation(tmp_path) and "@software{one_two," in front.citation(tmp_path)


def test_table_of_systems_links_to_chapters_that_are_there(tmp_path, origin):
    _, data = systems_.systems_map(origin.folder)
    (tmp_path / "casper_sparse.ipynb").touch()
    lines = front.table_of_systems(data, tmp_path).splitlines()
    assert len(lines) == 2 + len(data)
    linked = [line for line in lines if ".ipynb)" in line]
    assert len(linked) == 1 and linked[0].startswith("| [casperSPARSE](casper_sparse.ipynb) |")
    assert front.below_map(data)["alt"].count(":") >= len(data)


def test_rooms_that_are_not_built(origin):
    data = systems_.systems(origin.folder)
    all_built = data.assign(state=systems_.BUILT)
    assert front.not_built(all_built) == ""
    one = all_built.assign(state=[systems_.BUILT] + [systems_.NOT_BUILT] * (len(data) - 1))
    assert "dashed" in front.below_map(one)["caption"]
    assert "dashed" not in front.below_map(all_built)["caption"]
    text = front.not_built(one)
    assert text.startswith(f"**1 of {len(data)} rooms has kernels.**")


def test_findings_are_computed(tmp_path, known):
    folder = synthetic.folder(tmp_path)
    df = judge.judge(known, folder)
    text = ledger.findings(df)
    measured = judge.counted(df[df["verdict"] != measures.NOT_MEASURED])
    holds = (measured["verdict"] == measures.REPRODUCED).sum()
    assert f"Of {len(measured)} claims that the records decide {holds} are reproduced" in text
    assert text.count("<li>") == 1 + measured["source"].nunique() and "nan" not in text
    named = re.findall(r'href="#claim-([^"]*)"', text)
    assert named and set(df.set_index("id").loc[named, "verdict"]).isdisjoint({measures.REPRODUCED})
    assert "claim-abstract-speedup" in text
    assert ledger.findings(None) == ledger.bars(None) == ledger.table({}) == ""


def test_the_ledger_is_whole_without_its_script(tmp_path, known):
    df = judge.judge(known, synthetic.folder(tmp_path))
    text = ledger.table({"NVIDIA H200": df})
    assert text.index("</table>") < text.index('<script src="itables.js"></script>')
    assert "http" not in text and text.count("<tr id=") == len(df)


def test_every_gpu_that_has_records_has_its_column(tmp_path, known, origin):
    """A second folder of records beside the page's own; its GPU needs no line of code."""
    judged = judge.judge(known, origin.folder)
    assert ledger.everywhere(known, origin, None) == {}
    alone = ledger.everywhere(known, origin, judged, tmp_path / "none")
    assert list(alone) == ["NVIDIA H200"]
    for slug, gpu in (("nvidia-a100", "NVIDIA A100"), (origin.gpu, "NVIDIA H200")):
        fast = {name: synthetic.experiment(name, 2.0, gpu=gpu) for name in synthetic.SHAPES}
        synthetic.folder(tmp_path, fast, gpu, slug)
    both = ledger.everywhere(known, origin, judged, tmp_path)
    assert list(both) == ["NVIDIA H200", "NVIDIA A100"] and both["NVIDIA H200"] is judged
    wide = [df.set_index("id").loc["wide-cusparse-faster", "measured"] for df in both.values()]
    assert wide[1] == "cuSPARSE faster at 0 of 21 points" != wide[0]
    text = ledger.table(both)
    assert text.count('data-gpu=""') == 2 and text.count("data-verdict=") == 2 * len(judged)


def test_the_numbers_behind_a_verdict_are_copied_beside_the_figures(monkeypatch, tmp_path, origin):
    monkeypatch.setattr(paths, "FIGURES", tmp_path / "figures")
    known = load.claims()
    (files,) = ledger.numbers(known, origin, tmp_path / "none").values()
    assert set(files) == {claim.id for claim in known}
    measured = "../figures/records/nvidia-h200/casper_sparse/wide.csv"
    assert files["wide-speedup"] == {measured: "wide"}
    theirs = [to for own in files.values() for to in own if "/published/" in to]
    assert theirs and all(to.startswith("../figures/records/nm_spmm/published/") for to in theirs)
    for to in {to for own in files.values() for to in own}:
        copy = tmp_path / to.removeprefix("../")
        assert copy.read_text() and copy.suffix == ".csv"
    shipped = origin.folder / "casper_sparse" / "wide.csv"
    assert (tmp_path / measured.removeprefix("../")).read_bytes() == shipped.read_bytes()
    assert ledger.numbers(known, NOTHING) == {}


def test_when_a_claim_does_not_carry_over(known):
    text = ledger.carries(known)
    assert measures.NOT_CARRIED in text and "H100, H200 and GH200" in text
    assert f"of {len(known)} claims depend on the GPU" in text


def test_counts_of_verdicts(judged, known):
    text = front.verdicts({"One": judged, "<Two>": judged}, known)
    assert f"holds {len(load.of_sources(known))} claims of casperSPARSE." in text
    assert text.count("<li>") == 2 and f"<li>One: {page.counts(judge.counted(judged))}</li>" in text
    assert "&lt;Two&gt;: " in text and front.verdicts({}, known) == ""
    every = load.claims()
    assert "claims of 5 sources." in front.verdicts({"One": judge.judge(every, paths.RECORDED / "nvidia-h200")}, every)
    assert all(verdict in front.meanings() for verdict in measures.VERDICTS)


# ---------------------------------------------------------------- the appendix


@pytest.fixture(scope="module")
def of_records(origin, known):
    spent = minutes.durations(origin.folder)
    return appendix.Appendix(origin, known, systems_.systems(origin.folder), spent)


@pytest.fixture
def of_nothing(known):
    return appendix.Appendix(NOTHING, known, systems_.systems(None), pd.DataFrame())


def test_checklist(of_records, of_nothing):
    rows = appendix.checklist(of_records)
    assert ". Records: NVIDIA H200" in rows["Hardware"]
    assert re.search(
        r"the others on Hopper alone: casperSPARSE (\d+) of \1; .*AsyncSparse \d+ of \d+\.",
        rows["Hardware"],
    )
    first = of_records.first
    own = f"NVIDIA H200: {len(first)} experiments with {first['rows'].sum()} rows"
    assert f"judged from the records of each GPU. {own}; " in rows["Experiments"]
    assert "Python 3.11 to 3.14, git" in rows["Run-time environment"]
    assert f"{minutes.COMMANDS_S['environment']} s on two cores" in rows["Time to prepare"]
    for gpu in of_records.folders:
        assert f"{gpu}: " in rows["Experiments"] and f"{gpu}: " in rows["Time to measure"]
    assert "real matrices" not in rows["Data set"]
    assert "0 locked packages" not in rows["Run-time environment"]
    without = appendix.checklist(of_nothing)
    assert without["Experiments"].endswith("no records yet")
    assert without["Time to measure"] == "not measured yet" and "Records" not in without["Hardware"]
    assert list(rows) == list(without)


def test_times(of_records, of_nothing):
    table = appendix.times(of_records)
    every = pd.concat(of_records.everywhere.values()).drop_duplicates(appendix.EXPERIMENT)
    assert len(table) == len(every) > len(of_records.spent)
    assert list(table.columns[-2:]) == ["H200: min (s)", "H100: min (s)"]
    square = table[table["experiment"].eq("square") & table["notebook"].str.contains("casper")]
    assert square["figure"].item() == "Fig. 5"
    assert square["H200: min (s)"].item().startswith("– ("), "one stamp tells no minutes"
    assert (table["H200: min (s)"] == "").sum() == len(every) - len(of_records.spent)
    short = of_records.spent.assign(repeat=True, minutes=0.01, told=True)
    again = replace(of_records, spent=short)
    shown = appendix.times(again)
    own = shown[shown["H200: min (s)"] != ""]
    assert own["experiment"].str.endswith(" (2nd run)").all()
    assert own["H200: min (s)"].str.startswith("&lt;&nbsp;0.1 (").all()
    assert again.first.empty and again.minutes == 0
    assert appendix.times(of_nothing) is None


def test_second_runs_are_told_apart_and_in_no_sum(origin, of_records):
    spent = of_records.spent.assign(minutes=1.5, told=True)
    twice = replace(of_records, spent=pd.concat([spent, spent.assign(repeat=True, minutes=0.5)]))
    assert twice.minutes == pytest.approx(1.5 * len(spent))
    told = dict(appendix.facts(twice))
    assert told["once.NVIDIA H200"] == pytest.approx(1.5 * len(spent))
    assert told["twice.NVIDIA H200"] == pytest.approx(0.5 * len(spent))
    assert f"NVIDIA H200: {1.5 * len(spent):.0f} min" in appendix.checklist(twice)["Time to measure"]


def test_shipped_minutes_are_those_of_first_runs():
    """What `make measure` takes would else be overstated."""
    for slug in records.list_gpus(paths.RECORDED):
        a = appendix.start("recorded", slug, "")
        spent = minutes.durations(paths.RECORDED / slug)
        assert a.minutes == pytest.approx(spent.loc[~spent["repeat"], "minutes"].sum())
        assert spent["repeat"].any() and a.minutes < spent["minutes"].sum()


def test_another_gpu_with_records_appears_by_itself(tmp_path, known):
    synthetic.folder(tmp_path, gpu="NVIDIA B200", slug="nvidia-b200")
    folder = synthetic.folder(tmp_path)
    third = appendix.Appendix(
        prose.Origin("nvidia-h200", folder, False),
        known,
        systems_.systems(folder),
        minutes.durations(folder),
    )
    assert list(third.folders) == ["NVIDIA H200", "NVIDIA B200", "NVIDIA H100 80GB HBM3"]
    rows = appendix.checklist(third)
    assert "NVIDIA B200: " in rows["Experiments"]
    told = tree(dict(appendix.facts(third)))
    assert all(list(told[what]) == list(third.folders) for what in ("once", "twice", "not_carried", "verdicts"))
    assert "B200: min (s)" in appendix.times(third)
    assert "without" not in rows["Time to measure"].split("; ")[2], "it has what others lack"


def test_verdicts_are_counted_on_every_gpu(of_records):
    told = tree(dict(appendix.facts(of_records)))["verdicts"]
    assert list(told) == list(of_records.folders)
    for gpu, df in of_records.judged.items():
        assert told[gpu] == judge.counted(df)["verdict"].value_counts().to_dict()


def test_the_appendix_says_what_it_can_without_records(of_nothing):
    text = page_("reviewers")
    text.add(appendix.facts(of_nothing))
    text.add(evaluation.facts(of_nothing))
    unknown = {block for block in text.blocks if text(block).startswith("*This was not measured")}
    assert unknown == {"memory", "together", "verdicts", "carried", "longest"}


def test_badges(of_records, of_nothing, tmp_path):
    (tmp_path / "CITATION.cff").write_text("title: x\n")
    table = appendix.badges(of_nothing, tmp_path).set_index("badge")["here"]
    assert table["Artifacts Available"].startswith("Not yet")
    assert "claims hold" not in table["Results Replicated"]
    (tmp_path / "CITATION.cff").write_text("title: x\ndoi: 10.5281/zenodo.1\n")
    table = appendix.badges(of_records, tmp_path).set_index("badge")["here"]
    assert table["Artifacts Available"] == "Met: 10.5281/zenodo.1."
    assert f"of {len(load.of_sources(of_records.known))} claims hold" in table["Results Replicated"]


def test_commands_name_a_point_that_exists(of_records):
    told = dict(appendix.facts(of_records))
    assert told["example.point"].startswith("-m ") and "--density " in told["example.point"]
    assert (paths.ROOT / "notebooks" / f"{told['example.room']}.ipynb").is_file()
    assert told["built.casper_sparse"] == "casperSPARSE"


def test_every_section_of_every_source_is_shown(of_nothing):
    every = replace(of_nothing, known=load.claims())
    shown = appendix.covered(every)
    assert len(shown) == sum(bool(room.sections) for room in registry.find().values())
    tables = "".join(prose.table(df) for df in shown.values())
    linked = set(re.findall(r'href="ledger.html#claim-([^"]*)"', tables))
    assert linked == {claim.id for claim in every.known}
    assert tables.count("<em>not tested:</em>") >= len(load.untested())
    told = dict(appendix.facts(every))
    assert told["claims.of_sources"] == len(load.of_sources(every.known))
    assert told["claims.untested"] == len(load.untested())


def test_nothing_skipped_unfolds_and_is_whole_without_a_script(of_nothing):
    cell = next(
        "".join(c["source"])
        for c in json.loads((paths.ROOT / "notebooks" / "reviewers.ipynb").read_text())["cells"]
        if "pages.covered(" in "".join(c["source"])
    )
    shown = []
    scope = {
        "pages": appendix,
        "appendix": replace(of_nothing, known=load.claims()),
        "say": lambda text: None,
        "text": str,
        "table": lambda df, sentences, fold: shown.append(
            cells.folded(fold, prose.table(df, prose=sentences, called=fold))
        ),
    }
    exec(cell, scope)
    assert len(shown) == sum(bool(room.sections) for room in registry.find().values())
    for text in shown:
        assert text.startswith('<details class="folded"><summary>') and "<script" not in text
        assert text.endswith("</details>") and "<caption>" in text
    linked = set(re.findall(r'href="ledger.html#claim-([^"]*)"', "".join(shown)))
    assert linked == {claim.id for claim in load.claims()}


def test_versions_of_python_in_words():
    assert appendix.pythons(">=3.11,<3.15") == "3.11 to 3.14"


def test_others_code_is_shown_with_what_is_not_known(tmp_path, of_nothing):
    every = replace(of_nothing, known=load.claims())
    shown = appendix.theirs(every)
    assert "2026-11-24" in shown["NM-SpMM: anchors, H100"]
    text = shown["NM-SpMM: anchors, H200"]
    for said in (
        "compute_90",
        "NVIDIA H200",
        "2026-11-23",
        "143c1be",
        "others/nvidia-h200/anchors.csv",
    ):
        assert said in text, said
    assert 'href="ledger.html#claim-spmm-nmsparse"' in text and "beside ours" not in text
    assert "beside ours" not in shown["2:4 tensor cores: mma_sp, H200"]  # without records


def test_rates_of_others_code_stand_beside_ours(of_nothing):
    measured = others.read("tensor_core_24", "mma_sp", HOME)
    rate = {"mma_sp": 2 * 567.0, "auto": 900.0}  # theirs has 567 at 4096 cubed
    own = (
        synthetic.experiment("square")
        .iloc[[0] * len(rate)]
        .assign(room="tensor_core_24", variant=list(rate), m=4096, n=4096, k=4096, label="")
    )
    own["median_us"] = [2 * 4096**3 / tflops / 1e6 for tflops in rate.values()]
    with_records = SimpleNamespace(measured=[own], origin=SimpleNamespace(gpu=HOME))
    text = appendix._beside(with_records, measured)
    assert text.endswith("geometric means: mma_sp 2.00× at 1 shape")
    with_records.origin.gpu = "nvidia-a100"
    assert appendix._beside(with_records, measured) == ""  # of another GPU
    assert appendix._beside(SimpleNamespace(measured=[]), measured) == ""
