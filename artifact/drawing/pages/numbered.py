"""A built page's figures and tables: numbered in their order, with captions that are seen, each table with its CSV."""

from __future__ import annotations

import csv
import io
import re
from html.parser import HTMLParser

#: Where the tables' CSV files lie, seen from a page.
FOLDER = "tables"
#: What `numbered` looks for on a page: heads of sections, figures, their captions, tables with theirs.
PLACES = re.compile(
    r'<h[1-6][ >](?P<head>.*?)</h[1-6]>|<figure id="(?P<figure>[^"]+)"|(?P<caption><figcaption>)'
    r"|<table(?P<table>[^>]*)>(?:\s*<caption[^>]*>(?P<said>.*?)</caption>)?(?P<body>.*?</table>)",
    re.DOTALL,
)
COLUMN = re.compile(r'<th class="(head[^"]*)"')
#: What Sphinx puts into heads and captions: links to themselves, and a number that counts some tables only.
HEADER = re.compile(r'<a class="headerlink".*?</a>|<span class="caption-number">.*?</span>', re.DOTALL)
ID = re.compile(r'\bid="([^"]*)"')
#: The ledger's rows come with the command line as a CSV of their own, `python -m artifact claims`.
NO_CSV = 'class="ledger'
#: What Sphinx sets an index in, letter by letter, which is no table to be told of.
INDEX = "indextable"


def numbered(page: str, name: str) -> tuple[str, dict[str, str]]:
    """The page, and its tables' CSV files: path seen from the page -> text. name: of the page, without ending.

    A figure's or table's number is a link to it. A table without a caption of its own has its section's title, with a
    count from the second one on.
    """
    section, figure, numbers = "", "", {"figure": 0, "table": 0, "untold": 0}
    files: dict[str, str] = {}

    def replaced(found: re.Match) -> str:
        nonlocal section, figure
        if found["head"] is not None:
            named = re.sub(r"<[^>]*>|^[^<>]*>", "", HEADER.sub("", found["head"]))
            section, numbers["untold"] = " ".join(named.split()), 0
        elif found["figure"] is not None:
            figure = found["figure"]
        elif found["caption"] is not None:
            numbers["figure"] += 1
            link = f'<a class="number" href="#{figure}">Figure {numbers["figure"]}.</a>'
            return f"<figcaption>{link} " if figure else found[0]
        else:
            return table(found)
        return found[0]

    def table(found: re.Match) -> str:
        if INDEX in found["table"]:
            return f'<table aria-label="{section}"{found[0].removeprefix("<table")}'
        numbers["table"] += 1
        number, said, given = numbers["table"], HEADER.sub("", found["said"] or ""), found["table"]
        body = COLUMN.sub(r'<th scope="col" class="\1"', found["body"])
        if not said:
            numbers["untold"] += 1
            said = section + (f" ({numbers['untold']})" if numbers["untold"] > 1 else "")
        anchor = ID.search(given)
        place, given = (anchor[1], given) if anchor else (f"table-{number}", f' id="table-{number}"{given}')
        link = f'<a class="number" href="#{place}">Table {number}.</a>'
        data = ""
        if NO_CSV not in given:
            path = f"{FOLDER}/{name}-{number}.csv"
            files[path] = as_csv(body)
            data = f' <a href="{path}" download="">CSV</a>'
        return f"<table{given}><caption><span>{link} {said}{data}</span></caption>{body}"

    start, end = page.find("<article"), page.rfind("</article>")
    if start < 0 or end < start:
        return page, files
    return page[:start] + PLACES.sub(replaced, page[start:end]) + page[end:], files


def as_csv(table: str) -> str:
    """The rows of an HTML table as CSV, as they are read; a cell over several columns is followed by empty ones."""
    rows = _Rows()
    rows.feed(table)
    rows.close()
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(rows.rows)
    return out.getvalue()


class _Rows(HTMLParser):
    """Texts of the cells, row by row."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self._cell: list[str] | None = None
        self._span = 1

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self._cell, self._span = [], int(dict(attrs).get("colspan") or 1)
        elif tag == "br" and self._cell is not None:
            self._cell.append(" ")

    def handle_endtag(self, tag: str) -> None:
        if tag in ("td", "th") and self._cell is not None:
            text = " ".join("".join(self._cell).split())
            self.rows[-1] += [text] + [""] * (self._span - 1)
            self._cell = None

    def handle_data(self, data: str) -> None:
        if self._cell is not None:
            self._cell.append(data.replace("\u00ad", ""))  # where a word may break
