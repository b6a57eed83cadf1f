"""Pages that belong to no system, by the shipped records: their cells display what they displayed before."""

import zlib
from pathlib import Path

import pytest
import snapshots

from artifact import paths
from artifact.book.text import NOT_MEASURED

FOLDER = Path(__file__).with_name("shown")


@pytest.mark.parametrize("name", ["index", "ledger", "elsewhere"])
def test_a_page_shows_what_it_showed(shown, name):
    """A line for each output: its first words, its length, a checksum."""
    lines = [
        f"{' '.join(said.split())[:60]!r} {len(said)} {zlib.crc32(said.encode())}"
        for said in shown(name, paths.RECORDED, paths.HOME)
    ]
    snapshots.check(FOLDER / f"{name}.txt", "\n".join([*lines, ""]))


@pytest.mark.parametrize("name", ["machine", "method", "which"])
def test_a_page_that_follows_from_code_shows_what_was_measured(shown, name):
    said = "\n".join(shown(name, paths.RECORDED, paths.HOME))
    assert len(said) > 3000 and NOT_MEASURED.partition("{")[0] not in said and "nan" not in said.split()
