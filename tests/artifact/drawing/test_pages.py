"""Facts and tables of the pages that belong to no system: with records, with parts of them, without any."""

import re
import shutil

import jinja2
import numpy as np
import pandas as pd
import pytest
import synthetic
from drawn import legible, on_a_page, texts, words
from refused import refused

from artifact import paths, registry
from artifact.book import figures, text
from artifact.book.facts import tree
from artifact.drawing import provenance
from artifact.drawing.pages import appendix, front, ledger, machine
from artifact.measure import durations, records
from artifact.verdicts import judge, load, measures

NOTHING = provenance.Origin("nvidia-h200", None, False)
H200 = {
    "compute_capability": "9.0",
    "sm_count": 132,
    "sm_mhz_max": 1980,
    "memory_bus_bits": 6144,
    "memory_mhz_max": 3201,
}


@pytest.fixture(scope="module")
def origin(gpu_folder):
    return provenance.Origin("nvidia-h200", gpu_folder, False)


@pytest.fixture(scope="module")
def known():
    return [claim for claim in load.claims() if claim.room == "casper_sparse"]


@pytest.fixture(scope="module")
def judged(known, origin):
    return {"NVIDIA H200": judge.judge(known, origin.folder)}


def shown(name: str, df: pd.DataFrame | None, facts=()) -> str:
    """A table of a page as HTML."""
    spec = figures.specs("book", "tables")[name]
    return figures.styled(figures.rows(spec, dict(facts)) if df is None else df, spec, dict(facts)).to_html()


# ---------------------------------------------------------------- the machine, the method


def test_tensor_cores():
    rates = {"mma": 400.0, "mma_sp": 600.0, "wgmma": 800.0, "wgmma_sp": 1200.0, "wgmma_sp_ra": 1500.0}
    df = synthetic.ceilings().iloc[[0] * len(rates)].assign(variant=[*rates], tflops=[*rates.values()])
    page = machine.Page(NOTHING, "", H200, df)
    known = dict(machine.facts(page, {}))
    assert (known["tflops.mma_sp"], known["tflops.wgmma_sp_ra"], known["mhz.low"]) == (600, 1500, 1980)
    assert (
        known["inside.wgmma_sp_ra.low"] == pytest.approx(1500e6 / (2 * 4096 * H200["sm_count"]))
        and known["inside.wgmma_sp_ra.high"] == 1980
    )
    assert "1.50×" in shown("tensor", page.tensor) and "nan" not in shown("tensor", page.tensor)
    assert not any(
        name.startswith("mhz")
        for name, _ in machine.facts(machine.Page(NOTHING, "", H200, df.assign(sm_mhz=np.nan)), {})
    )


def test_a_machine_without_ceilings():
    page = machine.Page(NOTHING, NOTHING.banner())
    assert page.roofs is page.tensor is machine.roofs_table(page.roofs) is None
    assert not any(name.startswith("balance") for name, _ in machine.facts(page, {}))


def test_peaks_of_an_h200_and_of_a_machine_that_does_not_say_enough():
    mhz = pd.Series(1980.0, list(machine.ROOFS))
    promised = machine.peaks(H200, mhz)
    assert promised[["copy", "shared_read", "fma"]].tolist() == pytest.approx([4916.7, 33454, 66.9], rel=1e-3)
    assert machine.peaks({"compute_capability": "9.0"}, np.nan * mhz).isna().all() and np.isnan(promised["l2_read"])


def test_roofs_beside_what_is_promised():
    df = machine.roofs(synthetic.ceilings(), H200).set_index("variant")
    assert df["measured"].to_dict() == {"copy": 4000, "l2_read": 8000, "shared_read": 32000, "fma": 60}
    assert df["balance"]["copy"] == pytest.approx(60e12 / 4000e9)
    assert df["share"].tolist() == pytest.approx([4000 / 4916.7, np.nan, 32 / 33.454, 60 / 66.9], rel=1e-3, nan_ok=True)
    assert np.isnan(df["balance"]["fma"]) and df["spread"].tolist() == pytest.approx([0.02] * 4)
    assert df["unit"].tolist() == ["GB/s"] * 3 + ["TFLOP/s"]


def test_the_roofline_tells_formats_apart_and_leaves_tensor_cores_out(gpu_folder, tmp_path):
    alone, folder = machine.intensities(gpu_folder), shutil.copytree(gpu_folder, tmp_path / "gpu")
    for system in ("nm_cuda_core", "nm_spmm", "tensor_core_24"):
        records.write(folder / system / "square.csv", synthetic.experiment("square", room=system))
    every, roofs = machine.intensities(folder), machine.roofs(synthetic.ceilings(), H200)
    assert set(every) == {
        f"{format}, {kind} bytes" for format in ("CSR", "2:4", "N:M vectors") for kind in ("requested", "least")
    }
    assert {name: every[name] for name in alone} == alone
    of = gpu_folder / "casper_sparse"
    df = pd.concat(records.read(of / f"{name}.csv") for name in records.experiments(of))
    for kind in ("requested", "least"):
        ratio = df["useful_flops"] / df[f"{kind}_bytes"]
        assert alone[f"CSR, {kind} bytes"] == pytest.approx((ratio.min(), ratio.max()))
    for here in ({}, alone, every):
        fig, data = machine.roofline(roofs, here)
        assert len(data) == 4 + 2 * len(here) and (data["flop_per_byte"] > 0).all()
        at = data.set_index("what").loc["DRAM copy"]
        assert (at["flop_per_byte"], at["tflops"]) == (pytest.approx(15), 60)
        assert all(data.loc[data["what"] == name, "flop_per_byte"].tolist() == [*ends] for name, ends in here.items())
        assert {"FP32 FMA 60.0 TFLOP/s", "DRAM copy 4.00 TB/s"} <= set(words(fig))
        bars, bottom = (
            (b.get_ydata()[0] for b in fig.axes[0].lines if b.get_linewidth() == 5),
            fig.axes[0].get_ylim()[0],
        )
        assert len([y for y in {*bars} if bottom < y < 6 * bottom]) == len(here)


# ---------------------------------------------------------------- the ledger, the front page


def test_what_matters_first_is_computed(judged):
    (df,) = judged.values()
    markup = ledger.fared(judged)
    measured = judge.counted(df[~df["verdict"].isin(measures.OPEN)])
    of = judge.counts(df)
    decided = sum(of.get(verdict, 0) for verdict in set(measures.VERDICTS) - set(measures.OPEN))
    assert f"Of {decided} facts that the records decide {of[measures.REPRODUCED]} are reproduced" in markup
    assert markup.count("<li>") == 1 + measured["source"].nunique() and "nan" not in markup
    named = re.findall(r'href="#claim-([^"]*)"', markup)
    assert named and set(df.set_index("id").loc[named, "verdict"]).isdisjoint({measures.REPRODUCED})
    assert ledger.fared({}) == ledger.bars({}) == ledger.ledger({}) == front.fare({}) == ""


def test_the_numbers_behind_a_verdict_are_copied_beside_the_figures(monkeypatch, tmp_path, origin):
    monkeypatch.setattr(paths, "FIGURES", tmp_path / "figures")
    known = load.claims()
    (files,) = ledger.numbers(known, origin, tmp_path / "none").values()
    assert set(files) == {claim.id for claim in known}
    assert files["wide-speedup"] == {"../figures/records/nvidia-h200/casper_sparse/wide.csv": "wide"}
    for to in {to for own in files.values() for to in own}:
        assert (tmp_path / to.removeprefix("../")).read_text() and to.endswith(".csv")
    assert ledger.numbers(known, NOTHING) == {}


def test_findings_have_numbers_with_links_and_are_left_out_without():
    every, data, found = load.claims(), front.systems(None), provenance.folders(paths.RECORDED / "nvidia-h200")
    for judged, heads in ((judge.everywhere(every, found), len(front.FINDINGS)), ({}, 0)):
        page = text.page("front")
        page.add(front.facts(data, judged, every))
        markup = front.findings(page)
        assert markup.count("<h3>") == heads and ("on an H200" in markup) == bool(judged)
        assert set(re.findall(r'href="ledger.html#claim-([^"]*)"', markup)) <= {claim.id for claim in every}
    assert page("citation").startswith("```bibtex\n@software{") and len(data) == page("systems").count("| [")


def test_only_verdicts_have_badges_and_the_style_sheet_knows_each():
    refused("badge|maybe|object", text.part, "badge", "maybe", kind=jinja2.UndefinedError)
    sheet = (paths.ROOT / "book" / "_static" / "custom.css").read_text()
    assert sheet.count("{") == sheet.count("}")  # a brace too many hides the rule behind it
    for verdict in measures.VERDICTS:
        (name,) = re.findall(r'class="([\w-]+)"', text.part("badge", verdict))
        assert f".{name} {{ color:" in sheet, verdict


# ---------------------------------------------------------------- the appendix


@pytest.fixture(scope="module")
def of_records(origin, known):
    return appendix.Appendix(origin, known)


def test_verdicts_and_minutes_of_every_gpu(of_records):
    told = tree(dict(appendix.facts(of_records)))["gpus"]
    assert list(told) == list(of_records.folders)
    for gpu, folder in of_records.folders.items():
        assert told[gpu]["verdicts"] == judge.counts(of_records.judged[gpu])
        took, spent = list(told[gpu]["took"].values()), durations.durations(folder)
        assert took == sorted(took, reverse=True) and sum(took) == pytest.approx(told[gpu]["once"])
        assert told[gpu]["once"] == pytest.approx(spent.loc[~spent["repeat"], "minutes"].sum())


def test_times_and_contributions(of_records):
    table = appendix.times(of_records)
    every = pd.concat(list(of_records.spent.values())).drop_duplicates(appendix.EXPERIMENT)
    assert len(table) == len(every) and list(table.columns[-2:]) == ["H200: min (s)", "H100: min (s)"]
    square = table[table["experiment"].eq("square") & table["notebook"].str.contains("casper")]
    assert square["figure"].item() == "Fig. 5"
    assert square["H200: min (s)"].item().startswith("– ("), "one stamp tells no minutes"
    row = (
        appendix.contributions(of_records, "abstract-speedup", "abstract-memory-throughput")
        .set_index("number")
        .loc["C1"]
    )
    assert "ledger.html#claim-abstract-speedup" in row["claim"] and row["tried"].endswith("Fig. 4, Fig. 5, Fig. 6")
    assert "points" in row["here"] and "at_least = 1" in row["here"] and "H100: " in row["here"]


def test_the_appendix_lists_every_condition_and_whether_it_holds():
    a = appendix.Appendix(provenance.origin("recorded", "nvidia-h200"), [])
    found = appendix.conditions(a)
    assert len(found) == sum(len(text.conditions(*chapter)) for chapter in text.chapters())
    assert set(found[list(a.short.values())].stack()) <= set(appendix.HOLDS.values())


def test_the_appendix_says_what_it_can_without_records(known):
    page, nothing = text.page("reviewers"), appendix.Appendix(NOTHING, known)
    page.add(appendix.facts(nothing))
    assert appendix.times(nothing) is None
    assert {block for block in page.blocks if page(block).startswith("*This was not measured")} == {
        "memory",
        "together",
        "verdicts",
        "carried",
        "longest",
    }


def test_a_transcript_is_what_the_commands_print():
    said = appendix.typed("claims --help", "claims --other")
    assert said.startswith("```console\n$ python -m artifact claims --help\n") and "more lines" in said
    assert said.count("[exit code 0]") == said.count("[exit code 2]") == 1
    assert max(map(len, said.splitlines())) <= appendix.WIDE


# ---------------------------------------------------------------- the map of the systems


def test_the_patterns_are_what_they_are_called():
    anywhere, blocks, vectors, elements = (
        np.array([[cell == "#" for cell in row] for row in grid.split()]) for grid in front.EXAMPLES
    )
    assert all(grid.shape == (8, 8) and grid.any() for grid in (anywhere, blocks))
    assert set(blocks.reshape(4, 2, 4, 2).sum(axis=(1, 3)).flat) == {0, 4}
    assert (vectors.reshape(2, 4, 2, 4).any(axis=3).sum(axis=1) == 2).all()
    assert (elements.reshape(8, 2, 4).sum(axis=2) == 2).all()


def system(name: str, unit: str, *patterns: str) -> dict:
    return {
        "room": name,
        "name": name,
        "cite": name,
        "format": "CSR",
        "precision": "FP32",
        "unit": unit,
        "patterns": list(patterns),
        "written_for": "a GPU",
        "idea": "an idea",
        "claims": "a claim",
        "title": name,
        "order": 1,
        "state": "built",
    }


CUDA, TENSOR = registry.UNITS
ANYWHERE, BLOCKS, VECTORS, ELEMENTS = registry.PATTERNS


def test_cards_that_would_lie_on_one_another_get_lanes():
    data = pd.DataFrame(
        [
            system("a", CUDA, ANYWHERE),
            system("b", CUDA, ANYWHERE),
            system("c", CUDA, BLOCKS),
            system("d", CUDA, ANYWHERE, BLOCKS),
            system("e", TENSOR, ANYWHERE),
        ]
    )
    assert front.lanes(data) == [0, 1, 0, 2, 0]


@pytest.mark.parametrize("count", [0, 1, 12])
def test_the_map_holds_any_number_of_systems(monkeypatch, count):
    made = [system(f"system {i}", registry.UNITS[i % 3 == 2], registry.PATTERNS[i % 2]) for i in range(count)]
    columns = list(system("x", CUDA, ANYWHERE))
    monkeypatch.setattr(front, "systems", lambda _: pd.DataFrame(made, columns=columns))
    fig, data = front.systems_map(None)
    cards = [p for p in fig.axes[0].patches if hasattr(p, "get_boxstyle") and p.get_facecolor()[3] == 0]
    boxes = [card.get_window_extent() for card in cards]
    assert len(boxes) == len(data) == count
    for i, box in enumerate(boxes):
        assert not any(box.overlaps(other) for other in boxes[:i])
        assert fig.axes[0].get_window_extent().containsx(box.x1)
        assert box.y0 > 0
    said = texts(on_a_page(fig))
    assert all(f"system {i}" in said for i in range(count))
    legible(fig)
