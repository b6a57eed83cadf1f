"""A verdict in words: what was measured, why, and what lies close, from the numbers of a rule.

The sentences stand in `words.j2`, here and beside each system's `measures.py`: macros called <function>_<what>, as
`median_measured`. A macro gets the parameters that the claim gives the function, and what came of it.
"""

from collections.abc import Mapping
from functools import cache, partial
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import jinja2
import pandas as pd

from artifact import registry
from artifact.measure import records
from artifact.verdicts import quantities

if TYPE_CHECKING:
    from artifact.verdicts.measures import Judged, Reduced, Rule

FILE = "words.j2"
#: What a quantity says of itself: its name, what stands behind its numbers, where they come from, how a course of it
#: is told, and what a point is called that lies on one side of a limit.
OF_QUANTITIES = ("name", "tail", "how", "called", "above", "below", "at_least")


def told(rule: "Rule", r: "Reduced", judged: "Judged") -> tuple[str, str, str]:
    """Return what was measured, why the verdict is as it is, and what lies close, in words."""
    seen: dict[str, Any] = {what: of_quantity(rule.quantity, what, r.of) for what in OF_QUANTITIES}
    lists = not isinstance(rule.quantity.keywords.get("of", ""), str)
    named = lists if r.of.named is None else r.of.named
    seen |= {"v": r.of, "each": r.values, "r": r, "named": named, "edge": judged.edge, **r.data, **judged.data}
    measured, asked = _say(rule.expect, "measured", seen), _say(rule.expect, "asked", seen)
    why = " ".join(filter(None, (asked, _say(rule.reduce, "why", seen), seen["how"])))
    close = _say(rule.expect, "close", seen) if judged.edge else ""
    return measured or _say(rule.reduce, "measured", seen), why, close


def say(what: str, **seen: Any) -> str:
    """Return what the macro `what` of this folder's template makes of `seen`."""
    return _line(getattr(_macros(Path(__file__).parent), what)(SimpleNamespace(**seen)))


def of_quantity(quantity: partial, what: str, values: quantities.Values) -> str:
    """Return what a quantity says; its tail begins with a space, or there is none."""
    made = _say(quantity, what, {"v": values, **values.data})
    return f" {made}" if made and what == "tail" else made


def _say(part: partial, what: str, seen: Mapping[str, Any]) -> str:
    """Return what the template beside a part's module says of it; nothing where it says nothing."""
    macros = _macros(Path(part.func.__code__.co_filename).parent)
    macro = getattr(macros, f"{part.func.__name__}_{what}", None)
    return _line(macro(SimpleNamespace(**{**seen, **part.keywords}))) if macro else ""


def _line(text: str) -> str:
    return " ".join(text.split())


@cache
def _macros(folder: Path) -> Any:
    """Return the macros of a folder's template; nothing where it has none."""
    path = folder / FILE
    return _environment().from_string(path.read_text(encoding="utf-8")).module if path.is_file() else None


@cache
def _environment() -> jinja2.Environment:
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent), trim_blocks=True, lstrip_blocks=True
    )
    shared = (quantities.span, quantities.density, quantities.stated, quantities.contenders, registry.library)
    made.filters |= {f.__name__: f for f in (*shared, points, apart, each)} | {"f": format, "geomean": records.geomean}
    made.globals["counted"] = quantities.counted
    return made


def points(count: int) -> str:
    """Return a number of points in words."""
    return f"{count} point" + ("s" if count != 1 else "")


def apart(s: pd.Series, level: str = "experiment") -> dict[Any, pd.Series]:
    """Split values by a level of their index."""
    return dict(iter(s.groupby(level=level, sort=False)))


def each(of: Mapping[str, Any], show: Any) -> str:
    """List names, each with its value as `show` has it: a function, or a format."""
    write = show if callable(show) else show.format
    return ", ".join(f"{name} {write(value)}" for name, value in of.items())
