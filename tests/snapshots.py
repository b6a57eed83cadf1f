"""Snapshots: texts that follow from shipped records, in a file each, renewed by one command.

SNAPSHOTS=renew python -m pytest tests/artifact/verdicts/test_judge.py tests/artifact/book/test_chapters.py
"""

import os
from pathlib import Path

RENEW = "SNAPSHOTS=renew python -m pytest tests/artifact/verdicts/test_judge.py tests/artifact/book/test_chapters.py"


def check(path: Path, text: str) -> None:
    """Compare a text with its snapshot, or renew it where the environment asks for that."""
    if os.environ.get("SNAPSHOTS") == "renew":
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert path.read_text(encoding="utf-8") == text, f"{path.name} is of other records or templates; to renew: {RENEW}"
