"""The contract of a system on trial, over every system and every GPU with shipped records: records are valid, each
claim has a verdict, the chapter renders whatever was measured and whatever holds, each figure and table shows what
the records say.

What is shown is held against `shown.csv`: for each figure and table its rows, its text and its numbers, in short.
Who ships records, or means another table, writes it anew: `python -m tests.contract.test_studies`.
"""

import io
import json
import re
import sys
from contextlib import ExitStack, redirect_stdout, suppress
from functools import cache
from pathlib import Path
from unittest import mock
from zlib import crc32

import numpy as np
import pandas as pd
import pytest
from matplotlib import pyplot

from artifact import paths, registry
from artifact.book import facts, figures, study, text
from artifact.drawing import outputs
from artifact.measure import records
from kernels import jit

sys.path.insert(0, str(Path(__file__).parents[1] / "artifact"))
from drawn import legible

SHIPPED = list(facts.having_facts())
CHAPTERS = text.chapters()
#: Notebook, its system, and a GPU whose records it reads.
PAGES = [
    (system if name == "chapter" else name, system, gpu)
    for system, name in CHAPTERS
    for r, gpu in SHIPPED
    if r == system
]
FIGURES = [path for system in registry.find() for path in (registry.FOLDER / system / registry.PUBLISHED).glob("*.csv")]
SHOWN = Path(__file__).with_name("shown.csv")


class Compiles(Exception):
    """A cell compiles a kernel, which is another test's."""


def digest(df: pd.DataFrame) -> tuple[int, int, float]:
    """Return how many rows a table has, a checksum of its columns and texts, and a sum over its numbers, in which each
    has a weight of its own and a large one hides no small one."""
    numbers = df.select_dtypes("number").astype(float)
    told = "\n".join([*map(str, df.columns), *df.drop(columns=numbers.columns).map(str).to_numpy().ravel()])
    sizes = np.nan_to_num(np.arcsinh(1e3 * numbers.to_numpy().ravel()), nan=0.1, posinf=1e3, neginf=-1e3)
    return len(df), crc32(told.encode()), round(float(sizes @ np.cos(np.arange(sizes.size))), 6)


@cache
def page(name: str, system: str, gpu: str) -> pd.DataFrame:
    """Run the cells of a notebook but for what compiles and what is drawn of tables; return what it shows: kind, name,
    rows, texts, numbers. Asserts that every figure has data, a caption and a text in its place, and that one drawn by
    code can be read."""
    seen: list[tuple] = []

    def figure(system, name, fig, data, alt, caption, fold="", narrow=None):
        assert len(data) and alt.strip() and caption.strip() and text.NOT_MEASURED[:20] not in alt + caption, name
        if fig is not None and gpu == paths.HOME:
            legible(fig)
        pyplot.close(fig)
        seen.append(("figure", name, *digest(data)))

    def table(system, name, styler, spec, caption, fold=""):
        assert caption.strip(), name
        seen.append(("table", name, *digest(styler.data)))

    def compiles(*_, **__):
        raise Compiles

    notebook = json.loads((paths.ROOT / "notebooks" / f"{name}.ipynb").read_text(encoding="utf-8"))
    first, *rest = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    names: dict = {}
    judged = study.start(system, "recorded", gpu).verdicts  # which may compile
    with ExitStack() as stack, redirect_stdout(io.StringIO()):
        for where, what, other in (
            *((figures, "shown", figure), (figures, "draw", lambda *_: None), (figures, "shown_table", table)),
            *((module, "display", lambda _: None) for module in (figures, outputs)),
            *((outputs, what, lambda *_, **__: None) for what in ("banner", "when", "run_own")),
            (outputs, "verdicts", lambda _: judged),
            *((jit, what, compiles) for what in ("compile_cubin", "disassemble")),
        ):
            stack.enter_context(mock.patch.object(where, what, other))
        exec(f"{first}\nmode, gpu = 'recorded', {gpu!r}", names)
        for cell in rest:
            with suppress(Compiles, NameError):  # or it needs what another cell compiles
                exec(cell, names)
    return pd.DataFrame(seen, columns=["kind", "name", "rows", "texts", "numbers"]).assign(page=name, gpu=gpu)


@cache
def known(system: str, gpu: str) -> list[facts.Fact]:
    """Make the facts of a system's records of a GPU."""
    return facts.of(system, gpu)


# ---------------------------------------------------------------- what is shipped


@pytest.mark.parametrize("path", FIGURES, ids=lambda path: f"{path.parents[1].name}-{path.stem}")
def test_what_a_source_states_says_where_it_stands(path):
    df = records.published(path)
    assert len(df.attrs["source"]) > 40 and len(df)
    if {"low", "high"} <= {*df}:
        assert not (df["low"] > df["high"]).any()
    for column in {"where", "quote"} & {*df}:
        assert df[column].str.strip().ne("").all(), column


@pytest.mark.parametrize(("system", "gpu"), SHIPPED)
def test_shipped_facts_are_those_of_the_shipped_records(system, gpu):
    path = paths.RECORDED / gpu / system / facts.FILE
    made = facts.to_csv(known(system, gpu))
    assert not [*facts.differences(path, made)], "python -m artifact.book.facts writes them anew"


# ---------------------------------------------------------------- the chapter


@pytest.mark.parametrize(("system", "name"), CHAPTERS)
def test_a_chapter_of_nothing_measured_says_so_or_needs_nothing(system, name):
    made = text.chapter(system, name)
    assert made.blocks and all(map(made, made.blocks))


@pytest.mark.parametrize(("system", "name"), CHAPTERS)
def test_a_chapter_renders_where_no_condition_is_true(system, name):
    source = (registry.FOLDER / system / f"{name}.md").read_text(encoding="utf-8")
    made = text.Text(
        text._environment().from_string(
            re.sub(r"(\{%-?\s*holds\s)(.+?)(\s*-?%\})", r"\1(\2) and false\3", source, flags=re.DOTALL)
        )
    )
    made.add(known(system, paths.HOME))
    said = list(map(made, made.blocks))
    assert all(said) and ("does not hold" in " ".join(said)) == bool(text.conditions(system, name))


@pytest.mark.parametrize(("name", "system", "gpu"), PAGES)
def test_figures_and_tables_show_what_the_records_say(name, system, gpu):
    key, shipped = ["kind", "name"], pd.read_csv(SHOWN)
    now, then = page(name, system, gpu), shipped[(shipped["page"] == name) & (shipped["gpu"] == gpu)]
    assert list(now[key].itertuples(index=False)) == list(then[key].itertuples(index=False))
    same = (now[["rows", "texts"]].to_numpy() == then[["rows", "texts"]].to_numpy()).all(axis=1)
    off = ~np.isclose(now["numbers"].to_numpy(), then["numbers"].to_numpy(), rtol=1e-8, atol=5e-6)
    assert now["name"][~same | off].tolist() == [], "python -m tests.contract.test_studies writes shown.csv anew"


if __name__ == "__main__":
    pd.concat(page(*each) for each in PAGES).to_csv(SHOWN, index=False)
