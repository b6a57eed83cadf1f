"""What is shown of the shipped records: chapters' texts and pages that belong to no system, as they were last read."""

from pathlib import Path

import pytest
import snapshots

from artifact import paths
from artifact.book import facts, text

FOLDER = Path(__file__).with_name("shown")
NOT_MEASURED = text.NOT_MEASURED.partition("{")[0]
CHAPTERS = [(system, name, gpu) for system, name in text.chapters() for r, gpu in facts.having_facts() if r == system]


@pytest.mark.parametrize("name", ["index", "ledger", "elsewhere"])
def test_a_page_shows_what_it_showed(shown, name):
    snapshots.check(FOLDER / f"{name}.txt", snapshots.lines(shown(name, paths.RECORDED, paths.HOME)))


@pytest.mark.parametrize("name", ["machine", "method", "which"])
def test_a_page_that_follows_from_code_shows_what_was_measured(shown, name):
    said = "\n".join(shown(name, paths.RECORDED, paths.HOME))
    assert len(said) > 3000 and NOT_MEASURED not in said and "nan" not in said.split()


@pytest.mark.parametrize(("system", "name", "gpu"), CHAPTERS)
def test_a_chapter_says_what_it_said(system, name, gpu):
    """By the facts that lie beside the records; what a page adds to them is said to be missing."""
    made = text.chapter(system, name)
    made.add(facts.read(paths.RECORDED / gpu / system / facts.FILE))
    snapshots.check(FOLDER / f"{system}-{name}-{gpu}.txt", snapshots.lines(map(made, made.blocks)))
