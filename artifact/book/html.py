"""HTML of pages: Jinja templates that escape what they show, in the folder `html` beside this module.

made("ledger", rows=…)         html/ledger.html.j2, filled
part("badge", verdict)         a macro of html/parts.html.j2
"""

import re
from functools import cache
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup, escape

from artifact.drawing import formatting
from artifact.measure import durations
from artifact.verdicts import measures, page

FOLDER = Path(__file__).parent / "html"


def code(text: object) -> Markup:
    """Return text with `backticks` as HTML, everything else escaped but for quotes."""
    said = str(escape(str(text))).replace("&#34;", '"').replace("&#39;", "'")
    return Markup(re.sub(r"`([^`]*)`", r"<code>\1</code>", said))


def made(name: str, **known: Any) -> Markup:
    """Return a template, filled with what it may name."""
    return Markup(_environment().get_template(f"{name}.html.j2").render(known).strip())


def part(name: str, *given: Any, **named: Any) -> Markup:
    """Return what a macro of parts.html.j2 makes of arguments."""
    return Markup(getattr(_environment().get_template("parts.html.j2").module, name)(*given, **named).strip())


@cache
def _environment() -> jinja2.Environment:
    loader = jinja2.FileSystemLoader(FOLDER)
    made = jinja2.Environment(
        loader=loader, autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    made.filters |= {"code": code, "minutes": durations.said, "article": formatting.article}
    made.globals |= {
        "LOOKS": page.LOOKS,
        "OWN_DATA": page.OWN_DATA,
        "said": measures.said,
        "VERDICTS": measures.VERDICTS,
    }
    return made
