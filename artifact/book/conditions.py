"""The conditions under which explanations stand, of every chapter and GPU: the appendix's table."""

from __future__ import annotations

import html
from collections.abc import Mapping
from pathlib import Path

import pandas as pd

from artifact import rooms
from artifact.book import facts, text
from artifact.measure import records

SAID = {True: "holds", False: "does not hold", None: "not known"}


def table(folders: Mapping[str, Path]) -> pd.DataFrame:
    """Return one row for each explanation: chapter, block, condition, and a column for each GPU.

    folders: name of a GPU → the folder of its records.
    """
    rows = []
    for room, name in text.chapters():
        known = {gpu: _with_facts(room, name, folder) for gpu, folder in folders.items()}
        for block, condition in text.conditions(room, name):
            said = {gpu: SAID[text.holds(made, condition)] for gpu, made in known.items()}
            rows.append(
                {
                    "chapter": rooms.find()[room].name,
                    "block": block,
                    "condition": f"<code>{html.escape(condition)}</code>",
                }
                | said
            )
    return pd.DataFrame(rows)


def _with_facts(room: str, name: str, folder: Path) -> text.Text:
    made = text.chapter(room, name)
    if room in records.rooms(folder):
        made.add(facts.of(room, folder.name, folder.parent))
    return made
