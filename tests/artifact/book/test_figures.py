"""Figures as data: every kind draws, every figure of a chapter is specified, those of a built book are legible."""

import importlib
import re
import sys
from pathlib import Path

import jinja2
import numpy as np
import pandas as pd
import pytest
from refused import refused

from artifact import paths, registry
from artifact.book import charts, figures, text

sys.path.insert(0, str(Path(__file__).parents[1]))
from drawn import folder, legible  # noqa: F401

SPECIFIED = [path.parent.name for path in sorted(registry.FOLDER.glob("*/figures.toml"))]
SPECS = {system: figures.specs(system) for system in SPECIFIED}
FIGURES = paths.FIGURES  #: of the built book, wherever a test draws its own
DRAWN = [
    (system, name)
    for system, specs in SPECS.items()
    for name in specs
    if "kind" in specs[name] and (FIGURES / system / f"{name}.csv").is_file()
]


def table() -> pd.DataFrame:
    """Two contenders at four sizes and two densities, with a range, what is stated and a ceiling."""
    rows = [
        {
            "variant": v,
            "n": n,
            "density": d,
            "value": 2.0**i * d * n / 512,
            "low": d * n / 512,
            "high": 4.0 * d * n / 512,
        }
        for i, v in enumerate(("auto", "cusparse_best"))
        for n in (512, 1024, 2048, 4096)
        for d in (0.5, 1.0)
    ]
    measured = pd.DataFrame(rows).assign(source="measured", share=0.5)
    stated = pd.DataFrame({"variant": ["auto"], "density": 0.5, "low": 1.0, "high": 3.0, "source": "stated"})
    return pd.concat(
        [
            measured,
            stated,
            pd.DataFrame({"variant": ["copy"], "density": 0.5, "value": 9.0, "slope": 0.1, "source": "ceiling"}),
        ],
        ignore_index=True,
    )


EACH = {
    "lines": {"x": "n", "y": "value", "col": "density", "interval": ["low", "high"], "reference": 1},
    "dots": {
        "x": "value",
        "y": "variant",
        "hue": "n",
        "interval": ["low", "high"],
        "text": [{"of": "share", "as": "pct"}],
    },
    "bars": {"x": "value", "y": "variant", "hue": "n", "best": True},
    "stacked": {"x": "value", "y": "variant", "hue": "n"},
    "boxes": {"x": "value", "y": "variant", "reference": 1},
    "cloud": {"x": "n", "y": "value", "histogram": True},
    "heat": {"x": "n", "y": "variant", "value": "value"},
}


@pytest.mark.parametrize("kind", charts.KINDS)
def test_a_kind_draws_every_value(kind):
    spec = {"kind": kind, "caption": "", "alt": "A figure", **EACH[kind]}
    legible(figures.draw(spec, table()[lambda df: df["density"] == 0.5], ("scalar", "auto")))
    assert re.fullmatch(r"A figure: .*\d.*", figures.alt(spec, table()))


def test_quantities_have_panels_without_titles_of_their_own():
    spec = {"kind": "lines", "x": "n", "y": ["rate", "share"], "col": "density", "titles": "at {}"}
    fig = figures.draw(spec, table().rename(columns={"value": "rate"}))
    assert [ax.get_title() for ax in fig.axes] == ["at 50 %", "at 100 %", "", ""]


def test_rows_that_are_drawn_are_those_that_a_specification_names():
    shown = figures.drawn_rows({"where": {"variant": ["cusparse_best"]}}, table())
    assert set(shown["variant"]) == {"cusparse_best", "auto", "copy"}
    assert set(shown.loc[shown["source"] == "measured", "variant"]) == {"cusparse_best"}


def test_nothing_measured_is_not_shown(monkeypatch):
    found = []
    monkeypatch.setattr(figures, "display", found.append)
    show = figures.shower("book")
    show("systems", None)
    show("systems", table()[lambda df: df["source"] == "stated"])
    assert not found


def test_a_figure_is_saved_with_its_data_and_gives_the_same_bytes():
    pictures = []
    for _ in range(2):
        made = figures.shown(
            "room",
            "some_name",
            figures.draw({"kind": "lines", "x": "n", "y": "value"}, table()),
            table(),
            "What it shows.",
            "Caption.",
            "Folded",
        )
        pictures.append(made.svg.read_text())
    assert pictures[0] == pictures[1]
    assert np.isclose(pd.read_csv(made.csv)["value"], table()["value"], equal_nan=True).all()
    assert made.markdown.startswith("::::{dropdown} Folded\n```{figure} ../figures/room/some_name.svg")
    assert ":name: room-some-name" in made.markdown and ":alt: What it shows." in made.markdown


@pytest.mark.parametrize(("system", "name"), DRAWN)
def test_figures_of_the_built_book_are_legible(system, name):
    order = tuple(importlib.import_module(f"kernels.{system}").VARIANTS)
    data = pd.read_csv(FIGURES / system / f"{name}.csv")
    spec = SPECS[system][name]
    legible(figures.draw(spec, figures.drawn_rows(spec, data), order))


# ---------------------------------------------------------------- alternative texts: what the data behind a figure hold

SPEEDS = pd.DataFrame(
    {
        "source": ["measured"] * 6 + ["stated"],
        "variant": ["cublas", "cublas", "cublas", "auto", "auto", "auto", "auto"],
        "density": [0.5, 0.25, 0.125, 0.5, 0.25, 0.125, 0.25],
        "speedup": [1.0, 1.0, 1.0, 1.0, 8.0, 2.0, 9000.0],
    }
)


MEANS = {"alt": "Speed", "kind": "dots", "y": "variant", "x": "speedup"}


def test_means_are_told_with_their_range_and_apart_from_what_is_stated():
    text = figures.alt(MEANS, SPEEDS)
    assert text == "Speed: cuBLAS SGEMM 1 and auto 2.52 (1 to 8). stated: auto 9,000."
    text = figures.alt(MEANS | {"at": "density"}, SPEEDS[SPEEDS["variant"] == "auto"])
    assert text.startswith("Speed: 50% kept: auto 1; 25% kept: auto 8; 12.5% kept: auto 2.")
    assert "auto -1" in figures.alt(MEANS, SPEEDS.assign(speedup=-1.0))
    assert figures.alt(MEANS, SPEEDS.assign(speedup=float("nan"))) == "Speed."


def test_ends_tell_where_a_line_begins_peaks_and_ends():
    text = figures.alt({"alt": "Speed", "kind": "lines", "x": "density", "y": "speedup"}, SPEEDS)
    assert "auto from 2 at 12.5% kept over 8 at 25% kept to 1 at 50% kept" in text
    assert "cuBLAS SGEMM from 1 at 12.5% kept to 1 at 50% kept and" in text
    assert text.endswith("stated: auto 9,000 at 25% kept.")


def test_sums():
    assert (
        figures.alt(MEANS | {"how": "each"}, SPEEDS[SPEEDS["source"] == "measured"])
        == "Speed: cuBLAS SGEMM 3 and auto 11."
    )


# ---------------------------------------------------------------- tables, and both as data

CHAPTERS = list((paths.ROOT / "notebooks").glob("*.ipynb"))
TABLED = [path.parent.name for path in sorted(registry.FOLDER.glob("*/tables.toml"))]


def test_a_table_is_written_as_its_specification_says():
    df = pd.DataFrame({"variant": ["a", "b"], "ratio": [1.234, None], "sm_80": [1.0, 2.0], "other": 0})
    columns = [{"of": "variant"}, {"title": "speedup", "of": "ratio", "as": "x"}, {"of": "^sm_", "as": "{:.0f}"}]
    markup = figures.styled(
        df, {"caption": "`a` at {{ n }}", "columns": [*columns, {"of": "absent"}], "na": "–"}, {"n": 3}
    ).to_html()
    assert "<caption><code>a</code> at 3</caption>" in markup
    assert re.findall(r"<t[hd][^>]*>([^<]*)</t", markup) == [
        "variant",
        "speedup",
        "sm_80",
        "a",
        "1.23×",
        "1",
        "b",
        "–",
        "2",
    ]


def test_a_table_may_be_written_out_over_facts():
    spec = {"caption": "Both.", "columns": [{"of": "a"}, {"of": "b", "as": "code"}], "rows": [["x", "`{{ n }}`"]]}
    assert (
        re.findall(r"<td[^>]*>(.*?)</td>", figures.styled(figures.rows(spec, {"n": 3}), spec).to_html())
        == ["x", "<code>3</code>"]
        and figures.rows({}, {}) is None
    )


@pytest.mark.parametrize(("kind", "shows"), [("tables", "table"), ("figures", "show")])
@pytest.mark.parametrize("system", [*TABLED, "book"])
def test_every_table_and_figure_of_a_chapter_is_specified(kind, shows, system):
    chapters = "".join(p.read_text() for p in CHAPTERS if f'outputs.of(\\"{system}' in p.read_text())
    assert set(re.findall(rf'\b{shows}\(\\"([\w-]+)\\"', chapters)) >= set(figures.specs(system, kind))


@pytest.mark.parametrize(
    "kind, written, said",
    [
        ("tables", '[one]\ncaption = "A"\ncolumn = []\n', "'column' is none of caption, columns"),
        ("tables", '[one]\ncaption = "A"\ncolumns = [{ of = 3 }]\n', "'columns.0.of' is 3"),
        ("tables", "[one]\nna = '–'\n", "'caption' is missing"),
        ("figures", '[one]\ncaption = ""\nalt = ""\nkind = "pie"\n', "'kind' is 'pie', but must be 'lines'"),
    ],
)
def test_a_specification_that_is_none_is_one_sentence_with_its_file(kind, written, said, tmp_path, monkeypatch):
    monkeypatch.setattr(registry, "home", lambda _: tmp_path)
    (tmp_path / f"{kind}.toml").write_text(written)
    refused(re.escape(f"{tmp_path / kind}.toml, [one]: the key {said}"), figures.specs, str(tmp_path), kind)


def test_what_a_page_shows_is_escaped():
    assert text.code('run `a < b` & "go"') == 'run <code>a &lt; b</code> &amp; "go"'
    assert "&lt;b&gt;" in text.part("link", "a.html", "<b>") and "<b>" not in text.part("links", ["<b>"])
    assert "<b>1</b>" in text.part("facts", {"x": "<b>1</b>"})  # of HTML already


def test_templates_escape_and_name_what_they_lack():
    assert all(path.name.endswith(".html.j2") for path in text.HTML.iterdir())
    for path in text.HTML.glob("*.html.j2"):
        jinja2.Environment().parse(path.read_text(encoding="utf-8"))
