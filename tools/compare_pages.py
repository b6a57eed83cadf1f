"""Compare two builds of the book: every number on every page, every verdict, the data behind every figure.

    python tools/compare_pages.py OLD NEW [PAGE ...]      folders that `make artifact BUILD=…` made

A page's numbers are those of its Markdown and of what its cells show, as often as each stands there. Says which are
gone, with the words around them, and which were added; ends with 1 where a number or a figure's data is gone.
"""

import re
import sys
from collections import Counter
from pathlib import Path

import nbformat
import pandas as pd
from bs4 import BeautifulSoup

NUMBER = re.compile(r"(?<![\w.])[-+−]?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?\s?[%×]?")
AROUND = 40
MOST = 12  # of what was added


def text_of(notebook: Path) -> str:
    """Return what a reader sees of an executed notebook: Markdown cells, Markdown and HTML that cells show."""
    parts = []
    for cell in nbformat.read(notebook, as_version=4).cells:
        if cell.cell_type == "markdown":
            parts.append(cell.source)
        for output in cell.get("outputs", ()):
            data = output.get("data", {})
            if "text/markdown" in data:
                parts.append(re.sub(r"^:alt:.*$", "", data["text/markdown"], flags=re.MULTILINE))
            elif "text/html" in data:
                parts.append(visible(data["text/html"]))
    return " ".join(" ".join(parts).split())


def visible(markup: str) -> str:
    """Return the text that a reader sees, alternative texts included."""
    soup = BeautifulSoup(markup, "html.parser")
    for hidden in soup(["svg", "style", "script"]):
        hidden.decompose()
    alts = " ".join(image.get("alt", "") for image in soup("img"))
    return f"{soup.get_text(' ')} {alts}"


def numbers(text: str) -> dict[str, list[str]]:
    """Return number → the words around each of its places."""
    found: dict[str, list[str]] = {}
    for at in NUMBER.finditer(text):
        near = text[max(0, at.start() - AROUND) : at.end() + AROUND]
        found.setdefault(" ".join(at[0].replace(" ", "").split()), []).append(near)
    return found


def compare_texts(page: str, old: str, new: str) -> int:
    """Print what numbers a page lost and gained; return how many it lost."""
    before, after = numbers(old), numbers(new)
    count = {side: Counter({k: len(v) for k, v in found.items()}) for side, found in (("old", before), ("new", after))}
    gone, added = count["old"] - count["new"], count["new"] - count["old"]
    print(f"{page}: {sum(count['old'].values())} numbers, {sum(gone.values())} gone, {sum(added.values())} added")
    for number, times in gone.items():
        print(f"  gone {times} × {number}: …{before[number][0]}…")
    for number, times in list(added.items())[:MOST]:
        print(f"  added {times} × {number}: …{after[number][-1]}…")
    return sum(gone.values())


def compare_data(old: Path, new: Path) -> int:
    """Print which figures' data are gone or differ; return how many."""
    gone = 0
    for path in sorted(old.rglob("*.csv")):
        other = new / path.relative_to(old)
        if not other.is_file():
            print(f"  gone: {path.relative_to(old)}")
        elif path.read_bytes() != other.read_bytes() and not same(path, other):
            print(f"  differs: {path.relative_to(old)}")
        else:
            continue
        gone += 1
    return gone


def same(old: Path, new: Path) -> bool:
    """Whether all rows of one table, with all its columns, are in the other, in whatever order."""
    a, b = pd.read_csv(old), pd.read_csv(new)
    if not set(a) <= set(b):
        return False
    numbers = dict.fromkeys(a.select_dtypes("number"), float)
    rows = [
        Counter(df[list(a)].astype(numbers).round(9).astype(str).itertuples(index=False, name=None)) for df in (a, b)
    ]
    return not rows[0] - rows[1]


def main(old: Path, new: Path, *pages: str) -> int:
    """Compare the pages of two builds, and print what is gone and what was added."""
    gone = 0
    for path in sorted((old / "notebooks").glob("*.ipynb")):
        if pages and path.stem not in pages:
            continue
        other = new / "notebooks" / path.name
        gone += compare_texts(path.stem, text_of(path), text_of(other) if other.is_file() else "")
        if (old / "figures" / path.stem).is_dir():
            gone += compare_data(old / "figures" / path.stem, new / "figures" / path.stem)
    return 1 if gone else 0


if __name__ == "__main__":
    sys.exit(main(*map(Path, sys.argv[1:3]), *sys.argv[3:]))
