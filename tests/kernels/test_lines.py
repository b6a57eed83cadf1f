"""CUDA sources: lines that the book's listings show whole."""

import re

from artifact.paths import ROOT

FOLDERS = [ROOT / name for name in ("artifact", "kernels", "tests")]
SOURCES = sorted(path for folder in FOLDERS for ending in ("cu", "cuh") for path in folder.rglob(f"*.{ending}"))
COLUMNS = 100
#: An instruction of PTX is one literal, on a line without anything else but what opens or closes an asm statement.
INSTRUCTION = re.compile(r'\s*(asm( volatile)?\()?"(\\.|[^"\\])*"( ::)?')


def too_long(text: str) -> list[str]:
    """Lines of more than `COLUMNS` characters, instructions of PTX aside."""
    return [line for line in text.split("\n") if len(line) > COLUMNS and not INSTRUCTION.fullmatch(line)]


def test_lines_are_seen_whole():
    assert len(SOURCES) > 100
    assert not {str(path): lines for path in SOURCES if (lines := too_long(path.read_text(encoding="utf-8")))}
