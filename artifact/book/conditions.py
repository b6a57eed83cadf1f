"""The conditions under which explanations stand, of every chapter and GPU: the appendix's table."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pandas as pd

from artifact import registry
from artifact.book import facts, text
from artifact.measure import records

SAID = {True: "holds", False: "does not hold", None: "not known"}


def table(folders: Mapping[str, Path]) -> pd.DataFrame:
    """Return one row for each explanation: chapter, block, condition, and a column for each GPU.

    folders: name of a GPU → the folder of its records.
    """
    rows = []
    known = {room: _facts(room, folders) for room in dict(text.chapters())}
    for room, name in text.chapters():
        texts = {gpu: text.chapter(room, name) for gpu in folders}
        for gpu, made in texts.items():
            made.add(known[room][gpu])
        for block, condition in text.conditions(room, name):
            said = {gpu: SAID[text.holds(made, condition)] for gpu, made in texts.items()}
            rows.append({"chapter": registry.find()[room].name, "block": block, "condition": f"`{condition}`"} | said)
    return pd.DataFrame(rows)


def _facts(room: str, folders: Mapping[str, Path]) -> dict[str, list[facts.Fact]]:
    """Name of a GPU → the facts of a room's records of it, once for all templates of the room."""
    return {
        gpu: facts.of(room, folder.name, folder.parent) if room in records.rooms(folder) else []
        for gpu, folder in folders.items()
    }
