"""Facts: a tidy table of a chapter's numbers, name → value, from the records of one GPU.

A system's `facts.py` yields (name, value); names have dots, as "ratio.wide.mean". The table of each shipped GPU lies
beside its records, so that a reviewer can search it:

    python -m artifact.book.facts        writes artifact/recorded/<gpu>/<system>/facts.csv anew
"""

import csv
import functools
import io
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from artifact import command, paths, registry
from artifact.book.study import given
from artifact.measure import records, run

Value = bool | int | float | str
Fact = tuple[str, Value]
Facts = Mapping[str, Any]  #: nested, as `flat` takes them
FILE = f"{records.FACTS}.csv"


def summary(values: pd.Series) -> dict[str, Value]:
    """Return a series' least, largest and geometric mean, and how many there are; nothing of an empty one."""
    if values.empty:
        return {}
    return {"low": values.min(), "high": values.max(), "mean": records.geomean(values), "count": len(values)}


def flat(values: Mapping[Any, Any] | pd.Series) -> Iterator[Fact]:
    """Yield the facts of nested mappings, series and tables, named by their keys with dots between.

    Each row of a table is one. What is NaN or None was not measured, and is no fact.
    """
    for key, value in values.items():
        value = value.to_dict("index") if isinstance(value, pd.DataFrame) else value
        if isinstance(value, Mapping | pd.Series):
            yield from ((f"{key}.{rest}", inner) for rest, inner in flat(value))
        elif not pd.isna(value):
            yield str(key), value


def part(make: Callable[..., Mapping[str, Any]]) -> Callable[..., list[Fact]]:
    """Have a function of tables that returns nested facts list them as `flat` does; none where a table is None."""

    @functools.wraps(make)
    def made(*tables: Any) -> list[Fact]:
        return list(flat(given(make)(*tables) or {}))

    return made


def verdicts(judged: pd.DataFrame) -> Iterator[Fact]:
    """Yield verdict.CLAIM of each claim in what `outputs.verdicts` returns."""
    return flat({"verdict": judged.set_index("id")["verdict"].rename(lambda name: name.replace("-", "_"))})


def tree(facts: Mapping[str, Value]) -> dict[str, Any]:
    """Nest facts by the dots in their names, as templates read them."""
    root: dict[str, Any] = {}
    for name, value in facts.items():
        *path, last = name.split(".")
        at = root
        for part in path:
            at = at.setdefault(part, {})
        at[last] = value
    return root


def to_csv(facts: Iterable[Fact]) -> str:
    """Write facts as CSV with the columns name and value."""
    return pd.DataFrame(list(facts), columns=["name", "value"], dtype=object).to_csv(index=False, lineterminator="\n")


def differences(path: Path, now: str) -> Iterator[str]:
    """Yield a sentence for each row of a CSV file whose last cell is not that of the text `now`.

    The other cells are its name. Numbers may differ by rounding.
    """
    texts = path.read_text(encoding="utf-8") if path.is_file() else "", now
    then, here = ({", ".join(row[:-1]): row[-1] for row in csv.reader(io.StringIO(text))} for text in texts)
    for name in dict.fromkeys((*then, *here)):
        was, came = then.get(name, "missing"), here.get(name, "missing")
        if was != came and not math.isclose(*pd.to_numeric(pd.Series([was, came]), errors="coerce"), rel_tol=1e-9):
            yield f"{path}: {name} is {was!r}, but the records give {came!r}."


def read(path: Path) -> list[Fact]:
    """Return the facts in a file that `to_csv` wrote; what reads as a number or as a truth is one."""
    df = pd.read_csv(path, dtype=str, keep_default_na=False)
    truths = df["value"].map({"True": True, "False": False}).astype(object)
    values = pd.to_numeric(df["value"], errors="coerce").astype(object).fillna(truths).fillna(df["value"])
    return list(zip(df["name"], values, strict=True))


def having_facts(root: Path = paths.RECORDED) -> Iterator[tuple[str, str]]:
    """Yield (system, GPU) of every shipped record whose system makes facts of it."""
    for gpu in sorted(path.name for path in root.iterdir() if path.is_dir()):
        for system in records.systems(root / gpu):
            if (registry.FOLDER / system / "chapter.md").is_file():
                yield system, gpu


def of(system: str, gpu: str, root: Path = paths.RECORDED) -> list[Fact]:
    """Make the facts of a system's records of a GPU, in the folder of that name in `root`."""
    return list(registry.module(system, "facts").of(run.start(system, "recorded", gpu, records=root)))


@command.program("artifact.book.facts", __doc__)
def main(_: command.Options) -> None:
    """Write the facts of every system and GPU beside its records."""
    for system, gpu in having_facts():
        path = paths.RECORDED / gpu / system / FILE
        records.write_text(path, to_csv(of(system, gpu)))
        print(path.relative_to(paths.ROOT))


if __name__ == "__main__":
    raise SystemExit(main())
