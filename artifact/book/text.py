"""Render a chapter's text, a Markdown template of named blocks, with the facts of one GPU, and the HTML of pages.

    {% block wide %} … {{ ratio.wide.mean|x }} … {% endblock %}    text("wide") is this Markdown
    {% holds CONDITION %} … {% endholds %}                         an explanation and what it stands on

    made("ledger", rows=…)                                         html/ledger.html.j2, filled
    part("badge", verdict)                                         a macro of html/parts.html.j2

Numbers come by name from facts (see `facts`); none is typed. A block that names a fact which was not measured says so.
An explanation is shown where its condition is true; where it is not, the page says that it does not hold there, with
the numbers. Templates have loops, blocks and `holds`: what a sentence says is in the template, for writers to edit.
Those of HTML, in the folder `html`, escape what they show.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import jinja2
import pandas as pd
from jinja2 import nodes
from jinja2.ext import Extension
from markupsafe import Markup, escape

from artifact import paths, registry
from artifact.book.facts import Value, tree
from artifact.measure import durations, records
from artifact.verdicts import judge, measures

PAGES, HTML = Path(__file__).parent / "pages", Path(__file__).parent / "html"
NOT_MEASURED = "*This was not measured on this GPU: no record gives {}.*"
_HOLDS = re.compile(r"\{%(-?)\s*holds\s+(.+?)\s*(-?)%\}", re.DOTALL)


@dataclass
class Text:
    """A template and the facts that are known so far."""

    template: jinja2.Template
    facts: dict[str, Value] = field(default_factory=dict)

    def add(self, facts: Iterable[tuple[str, Value]]) -> None:
        """Take in facts, (name, value) each."""
        self.facts |= dict(facts)

    def __call__(self, block: str, facts: Iterable[tuple[str, Value]] = ()) -> str:
        """Return a block's Markdown, with `facts` as well as those that are known, which they join.

        Raises KeyError for a block that the template has not.
        """
        self.add(facts)
        return _filled(lambda: "".join(self.template.blocks[block](self.template.new_context(tree(self.facts)))))

    @property
    def blocks(self) -> tuple[str, ...]:
        """Return the names of the blocks, in order."""
        return tuple(self.template.blocks)


class _Undefined(jinja2.StrictUndefined):
    """What no fact gives; it cannot be written as a number either."""

    __format__ = __abs__ = __round__ = jinja2.StrictUndefined._fail_with_undefined_error


def _filled(make: Callable[[], str]) -> str:
    """Return what a template makes, or a sentence that names the fact that was not measured: Jinja quotes it last."""
    try:
        return make().strip()
    except jinja2.UndefinedError as error:
        return NOT_MEASURED.format("`{}`".format(re.findall(r"'([^']*)'", str(error))[-1]))


def chapter(system: str, name: str = "chapter") -> Text:
    """Return the text of a system, from its file `name`.md, without facts."""
    return _text(registry.FOLDER / system / f"{name}.md")


def page(name: str) -> Text:
    """Return the text of a page that is of no system, without facts."""
    return _text(PAGES / f"{name}.md")


def _text(path: Path) -> Text:
    return Text(_environment().from_string(path.read_text(encoding="utf-8")))


def rendered(template: str, facts: Mapping[str, Value]) -> str:
    """Return a line of text, a caption say, with these facts; what was not measured is said as in a block."""
    return _filled(lambda: _environment().from_string(template).render(tree(facts)))


# ---------------------------------------------------------------- HTML


def code(text: object) -> Markup:
    """Return text with `backticks` as HTML, everything else escaped but for quotes."""
    return Markup(
        re.sub(r"`([^`]*)`", r"<code>\1</code>", str(escape(str(text))).replace("&#34;", '"').replace("&#39;", "'"))
    )


def made(name: str, **known: Any) -> Markup:
    """Return a template, filled with what it may name."""
    return Markup(_environment().get_template(f"{name}.html.j2").render(known).strip())


def part(name: str, *given: Any, **named: Any) -> Markup:
    """Return what a macro of parts.html.j2 makes of arguments."""
    return Markup(getattr(_environment().get_template("parts.html.j2").module, name)(*given, **named).strip())


# ---------------------------------------------------------------- what a page shows


def kept(system: str, name: str, df: pd.DataFrame) -> Path:
    """Keep the data behind a figure or a table where links in pages lead, and return where."""
    return records.write_text(paths.FIGURES / system / f"{name}.csv", df.to_csv(index=False, lineterminator="\n"))


@dataclass(frozen=True)
class Shown:
    """A figure or a table as a notebook displays it: in the book a directive of MyST, which Sphinx numbers.

    In JupyterLab HTML.
    """

    directive: str  #: with "{data}" where the link to the data stands
    html: str
    plain: str
    csv: Path  #: the data behind it
    fold: str = ""  #: what it is called where it unfolds
    svg: Path | None = None

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        return {"text/markdown": self.markdown, "text/html": self.html, "text/plain": self.plain}

    @property
    def markdown(self) -> str:
        """The directive with its link, as it unfolds."""
        linked = self.directive.replace(
            "{data}", f"{{download}}`data (CSV) <{paths.FROM_PAGES}/{self.csv.parent.name}/{self.csv.name}>`"
        )
        return f"::::{{dropdown}} {self.fold}\n{linked}\n::::" if self.fold else linked


def chapters() -> list[tuple[str, str]]:
    """List (system, name) of every chapter's template."""
    found = sorted(registry.FOLDER.glob("*/*.md"))
    return [(path.parent.name, path.stem) for path in found if path.stem not in ("README", "rebuilt")]


def conditions(system: str, name: str = "chapter") -> list[tuple[str, str]]:
    """List (block, condition) of every explanation in a system's template, in their order."""
    blocks = re.findall(
        r"\{%-?\s*block\s+(\w+)(.*?)\{%-?\s*endblock",
        (registry.FOLDER / system / f"{name}.md").read_text(encoding="utf-8"),
        re.DOTALL,
    )
    return [(block, " ".join(said.split())) for block, body in blocks for _, said, _ in _HOLDS.findall(body)]


def holds(text: Text, condition: str) -> bool | None:
    """Tell whether a condition is true of a text's facts; None where one of them is not known."""
    try:
        return bool(_environment().compile_expression(condition, undefined_to_none=False)(**tree(text.facts)))
    except jinja2.UndefinedError:
        return None


# ---------------------------------------------------------------- numbers as they are read


def _number(form: str, digits: int) -> Callable[..., str]:
    """Return a function that writes a number in a form that takes its digits behind the point.

    digits: how many there usually are.
    """

    def write(value: float, digits: int = digits) -> str:
        return form.format(value, digits)

    return write


def listed(words: Iterable[object]) -> str:
    """Return "a, b and c"; nothing for nothing."""
    said = [str(word) for word in words]
    return "".join(said) if len(said) < 2 else f"{', '.join(said[:-1])} and {said[-1]}"


#: Letters that are spoken with a vowel first: an H200, an RTX 4090.
SPOKEN = "AEFHILMNORSX"


def article(name: str) -> str:
    """Return a name with its indefinite article: "an NVIDIA H200", "a GeForce GTX 1080"."""
    word = name.split()[0]
    return f"{'an' if word[0] in (SPOKEN if word.upper() == word else 'AEIOU') else 'a'} {name}"


def cube(size: int) -> str:
    """Return the name of a cube: "4096³"."""
    return f"{size}³"


def shape(sizes: Sequence[int]) -> str:
    """(M, N, K): "4096³" or "4096 × 512 × 128"."""
    return cube(sizes[0]) if len(set(sizes)) == 1 else " × ".join(map(str, sizes))


def more(share: float, what: str) -> str:
    """Return a difference: "12% more bytes"."""
    return f"{abs(share):.0%} {'more' if share >= 0 else 'fewer'} {what}"


def change(ratio: float) -> str:
    """Return a speedup: "12% faster"; less than 2% is none."""
    if abs(ratio - 1) < 0.02:
        return "the same within 2%"
    return f"{abs(ratio - 1):.0%} {'faster' if ratio > 1 else 'slower'}"


def times(text: str) -> str:
    """Return a prediction as a page writes it: in the sources it is plain ASCII, "1.3x over mma_sp at 512 cubed"."""
    return re.sub(r"(?<=\d)x(?=[ :,;.)]|$)", "×", text).replace(" cubed", "³")


x = _number("{:.{}f}×", 2)  # 1.234 as "1.23×"
pct = _number("{:.{}%}", 0)  # 0.123 as "12%"
signed = _number("{:+.{}%}", 0)  # 0.123 as "+12%"
n = _number("{:.{}f}", 0)  # 1.234 as "1"
sci = _number("{:.{}e}", 1)  # 0.00012 as "1.2e-04"


def span(spread: Mapping[str, float], digits: int = 2) -> str:
    """Return what `facts.summary` made, of ratios: "0.50× to 2.00×, geometric mean 1.00×"."""
    low, high, mean = (x(spread[part], digits) for part in ("low", "high", "mean"))
    return f"{low} to {high}, geometric mean {mean}"


def sparsity(pattern: str) -> str:
    """12:32 as "62.5%"."""
    kept, group = map(int, pattern.split(":"))
    return f"{100 * (1 - kept / group):g}%"


def by_sparsity(values: Mapping[str, float], form: str = "x", *digits: int) -> str:
    """Values by pattern, in the form of a filter: "1.20× at 50% and 1.10× at 75%"; nothing for none."""
    return listed([f"{FILTERS[form](value, *digits)} at {sparsity(pattern)}" for pattern, value in values.items()])


def thousands(value: float, digits: int = 0) -> str:
    """1234.5 as "1,234"."""
    return f"{float(value):,.{digits}f}"


def at(ratios: Mapping[str, float]) -> str:
    """Ratios by where they are: "1.00× at 4096³ and 2.00× at 8192³"."""
    return listed(f"{x(ratio)} at {where}" for where, ratio in ratios.items())


def between(loop: jinja2.runtime.LoopContext) -> str:
    """Return what stands after an item of a list in a loop: a comma, "and" before the last, nothing after it."""
    return "" if loop.last else " and " if loop.revindex == 2 else ", "


def ends(spread: Mapping[str, float], digits: int = 2) -> str:
    """Low and high: "1.37 to 1.41", or "1.08" where both are the same."""
    low, high = (n(spread[part], digits) for part in ("low", "high"))
    return low if spread["low"] == spread["high"] else f"{low} to {high}"


FILTERS: dict[str, Callable[..., str]] = {"x": x, "pct": pct, "signed": signed, "n": n, "sci": sci} | {
    form.__name__: form
    for form in (*(span, thousands, at, between, sparsity, by_sparsity, ends, listed, more, change, times),)
}


# ---------------------------------------------------------------- the template language


class _Holds(Extension):
    """{% holds CONDITION %} … {% endholds %}"""

    tags = {"holds"}

    def preprocess(self, source: str, name: str | None, filename: str | None = None) -> str:
        """Hand the condition on as text, too."""
        return _HOLDS.sub(lambda at: f"{{%{at[1]} holds ({at[2]}), {' '.join(at[2].split())!r} {at[3]}%}}", source)

    def parse(self, parser) -> nodes.Node:
        line = next(parser.stream).lineno
        condition = parser.parse_expression()
        parser.stream.expect("comma")
        said = parser.parse_expression()
        body = parser.parse_statements(("name:endholds",), drop_needle=True)
        named = nodes.List([nodes.Tuple([nodes.Const(_path(at)), at], "load") for at in _numbers_of(condition)])
        return nodes.If(condition, body, [], [nodes.Output([self.call_method("denied", [said, named])])]).set_lineno(
            line
        )

    @staticmethod
    def denied(condition: str, named: Sequence[tuple[str, Value]]) -> str:
        """Say that an explanation does not hold, with the numbers that its condition names."""
        shown = [f"{name} = {value:.4g}" if isinstance(value, float) else f"{name} = {value}" for name, value in named]
        here = f" ({', '.join(shown)})" if shown else ""
        return f"*An explanation stands here that does not hold on this GPU: it asks for `{condition}`{here}.*"


def _numbers_of(condition: nodes.Expr) -> list[nodes.Expr]:
    """Return the facts that an expression names, by their whole names."""
    named = [*nodes.List([condition]).find_all((nodes.Getattr, nodes.Getitem, nodes.Name))]
    within = {id(part) for node in named for part in node.iter_child_nodes()}
    return [node for node in named if id(node) not in within and _path(node)]


def _path(node: nodes.Node) -> str:
    """Return a fact as a template names it; "" for what is none."""
    if isinstance(node, nodes.Name):
        return node.name
    last = getattr(node, "attr", None) or getattr(getattr(node, "arg", None), "value", None)
    return f"{_path(node.node)}.{last}" if isinstance(node, nodes.Getattr | nodes.Getitem) and last is not None else ""


class _Environment(jinja2.Environment):
    """Facts come before methods: `balance.copy` is the fact where there is one."""

    def getattr(self, obj: object, attribute: str) -> object:
        return obj[attribute] if isinstance(obj, dict) and attribute in obj else super().getattr(obj, attribute)


@cache
def _environment() -> jinja2.Environment:
    escaped = jinja2.select_autoescape(["html.j2"], default_for_string=False)
    how: Any = {"trim_blocks": True, "lstrip_blocks": True, "loader": jinja2.FileSystemLoader(HTML)}
    made = _Environment(undefined=_Undefined, extensions=[_Holds], autoescape=escaped, **how)
    made.filters |= FILTERS | {"code": code, "minutes": durations.said, "article": article}
    made.globals |= {name: getattr(judge, name) for name in ("LOOKS", "OWN_DATA", "REBUILT", "VERDICTS")}
    made.globals |= {"said": measures.said, "OPEN": measures.OPEN}
    return made
