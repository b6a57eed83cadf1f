"""A built page's names of kernels' files, each a link to the file as it lies in the repository."""

import re
from pathlib import Path

from artifact.book import html
from artifact.paths import ROOT

#: Where the copies lie, seen from a page; with an ending that browsers show instead of saving.
FOLDER, ENDING = "sources", ".txt"
#: A name of a file in code: what Sphinx makes of Markdown, and what tables hold.
NAMED = re.compile(
    r'(?P<link><a [^>]*>\s*)?<code[^>]*>(?:<span class="pre">)?(?P<name>[\w/]+\.cuh?)(?:</span>)?</code>'
)


def linked(page: str, name: str, root: Path = ROOT) -> tuple[str, dict[str, str]]:
    """Return the page, and the files that it links to: path seen from the page -> text. name: of the page, without ending.

    A file of the system whose chapter the page is comes first; a name that several other folders have, or none, stays as
    it is.
    """
    files: dict[str, str] = {}

    def replaced(found: re.Match) -> str:
        path = _find(found["name"], name, root)
        if path is None or found["link"]:
            return found[0]
        to = f"{FOLDER}/{path.relative_to(root).as_posix()}{ENDING}"
        files[to] = path.read_text(encoding="utf-8")
        return html.part("source", to, found[0])

    return NAMED.sub(replaced, page), files


def _find(said: str, system: str, root: Path) -> Path | None:
    """Return the file of kernels/ that a page means."""
    said, kernels = said.removeprefix("kernels/"), root / "kernels"
    near = [path for path in (kernels / system / said, kernels / said) if path.is_file()]
    found = near[:1] or list(kernels.glob(f"*/{said}"))
    return found[0] if len(found) == 1 else None
