"""Snapshots: texts that follow from shipped records, in a file each, renewed by one command (RENEW)."""

import os
import zlib
from collections.abc import Iterable
from pathlib import Path

RENEW = "SNAPSHOTS=renew python -m pytest tests/artifact/verdicts/test_judge.py tests/artifact/drawing/test_shown.py"


def check(path: Path, text: str) -> None:
    """Compare a text with its snapshot, or renew it where the environment asks for that."""
    if os.environ.get("SNAPSHOTS") == "renew":
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert path.read_text(encoding="utf-8") == text, f"{path.name} is of other records or templates; to renew: {RENEW}"


def lines(texts: Iterable[str]) -> str:
    """Return a line for each text: its first words, its length, a checksum."""
    return "".join(f"{' '.join(said.split())[:60]!r} {len(said)} {zlib.crc32(said.encode())}\n" for said in texts)
