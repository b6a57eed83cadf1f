"""What is shown of the shipped records: chapters' texts and pages that belong to no system, as they were last read."""

import re
from pathlib import Path

import pytest
import snapshots
import synthetic

from artifact import paths
from artifact.book import facts, text
from artifact.drawing import provenance
from artifact.measure import device
from artifact.verdicts import load

FOLDER = Path(__file__).with_name("shown")
CHAPTERS = [(system, name, gpu) for system, name in text.chapters() for r, gpu in facts.having_facts() if r == system]


@pytest.mark.parametrize("name", ["index", "ledger", "elsewhere"])
def test_a_page_shows_what_it_showed(shown, name):
    snapshots.check(FOLDER / f"{name}.txt", snapshots.lines(shown(name, paths.RECORDED, paths.HOME)))


@pytest.mark.parametrize(("system", "name", "gpu"), CHAPTERS)
def test_a_chapter_says_what_it_said(system, name, gpu):
    """By the facts that lie beside the records; what a page adds to them is said to be missing."""
    made = text.chapter(system, name)
    made.add(facts.read(paths.RECORDED / gpu / system / facts.FILE))
    snapshots.check(FOLDER / f"{system}-{name}-{gpu}.txt", snapshots.lines(map(made, made.blocks)))


# ---------------------------------------------------------------- a third GPU: its records are enough

SYSTEM, SLUG, NAME = "casper_sparse", "nvidia-z9", "NVIDIA Z9"
SHIPPED = list(provenance.folders(paths.RECORDED / paths.HOME))
#: What a page may not say of three.
TWO = re.compile(r"\b(both GPUs|two (kinds of )?GPUs|two machines|the other GPU's)\b")


@pytest.fixture
def every(tmp_path, monkeypatch, shipped):
    """Folder of made-up records of the GPUs that are shipped, and of one that nobody has, a quarter slower."""
    root = tmp_path / "records"
    for name, scale in (dict.fromkeys(SHIPPED, 1.0) | {NAME: 1.25}).items():
        synthetic.folder(
            root,
            {sweep: synthetic.experiment(sweep, gpu=name, scale=scale) for sweep in synthetic.SHAPES},
            name,
            device.slug(name),
        )
    shipped(root)
    monkeypatch.setattr(provenance.sides, "__defaults__", (root,))
    mine = [claim for claim in load.claims() if claim.room == SYSTEM]
    monkeypatch.setattr(load, "claims", lambda *_: mine)
    return root


def test_elsewhere_holds_it_against_every_other(every, shown):
    banner, _, page = "\n".join(shown("elsewhere", every, SLUG)).partition("Commits")
    (head,) = re.findall(r"^\| quantity .*", page, re.MULTILINE)
    assert all(gpu in banner and gpu in head for gpu in (NAME, *SHIPPED)), "a column of the machines"
    assert all(f"**{NAME} and {other}**" in page for other in SHIPPED)
    assert page.count("```{figure} ") == len(SHIPPED)
    assert not TWO.search(re.sub(r"^\|.*", "", page, flags=re.MULTILINE))
