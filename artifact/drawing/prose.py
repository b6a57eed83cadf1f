"""What pages show besides figures: where their numbers come from, and tables as HTML."""

from __future__ import annotations

import ast
import functools
import html
import re
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any

import pandas as pd
from pandas.io.formats.style import Styler

from artifact import paths
from artifact.measure import device, records, run

# ---------------------------------------------------------------- where a page's numbers come from


@dataclass(frozen=True)
class Origin:
    """The records that a page without a room of its own draws from. `folder` is None without any."""

    gpu: str  #: slug
    folder: Path | None
    fresh: bool  #: measured on this machine's GPU, as opposed to read from what is shipped

    def has(self, room: str) -> bool:
        return self.folder is not None and room in records.rooms(self.folder)

    @property
    def missing(self) -> str:
        """One sentence for a page that finds nothing to show."""
        where = "this GPU" if self.fresh else f"the GPU `{self.gpu}`"
        return f"There are no records of {where} yet: `make measure` on a machine with one makes them."

    def machine(self) -> dict[str, Any]:
        """machine.json of the room that was measured last."""
        found = [records.read_machine(self.folder / room) for room in records.rooms(self.folder)]
        return max(found, key=lambda machine: str(machine["date"]))

    def banner(self, alone: bool = False) -> str:
        """An admonition as `Run.banner` gives it, for a page over all rooms: every GPU that has records, with when they
        were measured. alone: the page draws from this origin's GPU and no other."""
        if self.folder is None or not records.rooms(self.folder):
            title, text = "Nothing measured yet.", inline_code(self.missing)
        else:
            found = folders(self.folder, paths.RECORDED)
            made = {g: _made(at) for g, at in found.items() if not alone or at == self.folder}
            title, text = _origins(made, self.fresh)
        tag = "div" if "<details>" in text else "p"
        return (
            '<div class="admonition note">\n'
            f'<p class="admonition-title">{html.escape(title)}</p>\n<{tag}>{text}</{tag}>\n</div>'
        )


def _origins(made: Mapping[str, tuple[str, list[str]]], fresh: bool) -> tuple[str, str]:
    """Title and text of a banner. made: name of a GPU, this page's first -> `_made`; fresh: measured here."""
    one, several = len(made) == 1, len(made) > 1
    where = "; ".join(f"{article(gpu)}, {when}" for gpu, (when, _) in made.items())
    commits = {gpu: f"commit{'s' * (len(of) > 1)} {', '.join(of)}" for gpu, (_, of) in made.items()}
    title = f"From records of {where}{f', {next(iter(commits.values()))}' * one}."
    which = f"Those of the {html.escape(next(iter(made)))}" if several else "They"
    text = "Nothing on this page was measured on the machine that made it."
    if fresh:
        text = f"{which} were measured on this machine."
    if several:
        each = "; ".join(f"{gpu}: {of}" for gpu, of in commits.items())
        text += f"<details><summary>Commits</summary>{html.escape(each)}.</details>"
    return title, text


def name(folder: Path) -> str:
    """What the GPU is called whose records lie in `folder`. Raises FileNotFoundError where there are none."""
    found = records.rooms(folder)
    if not found:
        raise FileNotFoundError(f"{folder}: there are no records of any room.")
    return str(records.read_machine(folder / found[0])["gpu"])


def folders(own: Path | None, shipped: Path = paths.RECORDED) -> dict[str, Path]:
    """Name of a GPU -> folder of its records: `own`, then the others beside it, then the others that are shipped.
    Empty where there is no `own`, or nothing in it."""
    if own is None or not records.rooms(own):
        return {}
    found = {own.name: own}
    for root in (own.parent, shipped):
        for slug in records.list_gpus(root):
            found.setdefault(slug, root / slug)
    return {name(folder): folder for folder in found.values()}


def _made(folder: Path) -> tuple[str, list[str]]:
    """When and with which commits the rooms of a GPU were measured, which may be several."""
    found = [records.read_machine(folder / room) for room in records.rooms(folder)]
    parts = sorted((part for machine in found for part in records.made(machine)), key=attrgetter("date"))
    days = list(dict.fromkeys(part.date[:10] for part in parts))
    when = days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
    return when, list(dict.fromkeys(part.commit for part in parts))


def origin(mode: str, gpu: str, folder: str | Path = "") -> Origin:
    """Resolve a notebook's parameters to a GPU's folder, as `run.start` does, without measuring.

    folder: the parameter `records`. Raises ValueError for an unknown mode and, naming the known
    GPUs, where there are records but none of `gpu`; `device.NoGpu` for mode="measure" without one.
    """
    if mode not in run.MODES:
        raise ValueError(f"mode is {mode!r}, but must be one of {', '.join(run.MODES)}")
    here = device.require() if mode == "measure" else device.find() if mode == "auto" else None
    root = Path(folder) if folder else paths.RECORDS if here else paths.RECORDED
    slug = here.slug if here else gpu
    if here and slug not in records.list_gpus(root):
        return Origin(slug, None, True)
    if not records.list_gpus(root):
        return Origin(slug, None, bool(here))
    known = records.resolve(slug, root)
    return Origin(known.name, known, bool(here))


#: A caption, or what makes it of the arguments of the function that makes the table.
Caption = str | Callable[..., str]


def captioned(caption: Caption) -> Callable[[Callable], Callable]:
    """Of a function that makes a table, a DataFrame or a Styler, or None: the caption that pages show with it, in which
    `backticks` mark code."""

    def decorate(make: Callable) -> Callable:
        @functools.wraps(make)
        def made(*args, **kwargs):
            if (df := make(*args, **kwargs)) is None:
                return None
            said = caption(*args, **kwargs) if callable(caption) else caption
            if isinstance(df, Styler):
                df.set_caption(inline_code(said))
            else:
                df.attrs["caption"] = said
            return df

        return made

    return decorate


#: What a column is called, and where that may go on in the next line: a name in code is wider than its numbers.
HEAD = re.compile(r"(<th(?: [^>]*)?>)([^<>]+)(?=</th>)")
JOINT = re.compile(r"(?<=\w)[._](?=\w{2})")


def table(df: pd.DataFrame | Styler, prose: bool = False, called: str = "") -> str:
    """`df` as an HTML table in the book's style; cells may hold HTML. prose: columns of sentences. called: its caption,
    where it has none of its own."""
    if isinstance(df, Styler):
        text, own = df.to_html(), df.data.attrs
    else:
        look = "prose" if prose else None
        text = df.to_html(index=False, border=0, escape=False, na_rep="", classes=look)
        own = df.attrs
    text = HEAD.sub(lambda m: m[1] + JOINT.sub(r"\g<0><wbr>", m[2]), text)
    said = inline_code(own.get("caption", called))
    if not said or "<caption>" in text:
        return text
    return re.sub(r"<table[^>]*>", lambda m: f"{m[0]}<caption>{said}</caption>", text, count=1)


def facts(rows: Mapping[str, object], called: str = "") -> str:
    """Two columns, name and value, as an HTML table without a head. called: its caption."""
    body = "".join(f'<tr><th scope="row">{key}</th><td>{value}</td></tr>' for key, value in rows.items())
    said = f"<caption>{inline_code(called)}</caption>" if called else ""
    return f'<table class="facts">{said}<tbody>{body}</tbody></table>'


def article(name: str) -> str:
    """A name with its indefinite article: "an NVIDIA H200"."""
    return f"{'an' if name[:1] in 'AEIOUN' else 'a'} {name}"


def inline_code(text: str) -> str:
    """Text with `backticks` as HTML, everything else escaped."""
    return re.sub(r"`([^`]*)`", r"<code>\1</code>", html.escape(text, quote=False))


def constants(module: types.ModuleType) -> pd.DataFrame:
    """The module's constants that a `#:` comment explains: constant, value (lists: those below one
    comment share it), meaning. Numbers only."""
    lines = Path(module.__file__).read_text(encoding="utf-8").splitlines()
    rows = []
    for node in ast.parse("\n".join(lines)).body:
        targets = node.targets if isinstance(node, ast.Assign) else []
        if len(targets) != 1 or not isinstance(targets[0], ast.Name):
            continue
        comment, at = [], node.lineno - 2
        while at >= 0 and lines[at].startswith("#:"):
            comment.insert(0, lines[at][2:].strip())
            at -= 1
        # A constant right below another one shares its comment.
        if not comment and rows and rows[-1]["line"] == node.lineno - 1:
            comment = [rows[-1]["meaning"]]
        value = getattr(module, targets[0].id)
        if comment and isinstance(value, int | float):
            rows.append(
                {
                    "constant": targets[0].id,
                    "value": value,
                    "meaning": " ".join(comment),
                    "line": node.lineno,
                }
            )
    # As objects, or whole numbers would become floats beside others.
    df = pd.DataFrame(rows, columns=["constant", "value", "meaning"], dtype=object)
    # One row for constants that share a comment.
    return df.groupby("meaning", sort=False, as_index=False).agg(list)[list(df.columns)]
