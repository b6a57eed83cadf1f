"""Tables as data: what a page shows of a DataFrame by its specification, and that every table has one."""

import re

import jinja2
import pandas as pd
import pytest

from artifact import paths, registry
from artifact.book import figures, text

CHAPTERS = list((paths.ROOT / "notebooks").glob("*.ipynb"))
SPECIFIED = [path.parent.name for path in sorted(registry.FOLDER.glob("*/tables.toml"))]


def test_a_table_is_written_as_its_specification_says():
    df = pd.DataFrame({"variant": ["a", "b"], "ratio": [1.234, None], "sm_80": [1.0, 2.0], "other": 0})
    columns = [{"of": "variant"}, {"title": "speedup", "of": "ratio", "as": "x"}, {"of": "^sm_", "as": "{:.0f}"}]
    spec = {"caption": "`a` at {{ n }}", "columns": [*columns, {"of": "absent"}], "na": "–"}
    markup = figures.styled(df, spec, {"n": 3}).to_html()
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
    markup = figures.styled(figures.rows(spec, {"n": 3}), spec).to_html()
    assert re.findall(r"<td[^>]*>(.*?)</td>", markup) == ["x", "<code>3</code>"] and figures.rows({}, {}) is None


@pytest.mark.parametrize(("kind", "shows"), [("tables", "table"), ("figures", "show")])
@pytest.mark.parametrize("system", [*SPECIFIED, "book"])
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
    with pytest.raises(ValueError, match=re.escape(f"{tmp_path / kind}.toml, [one]: the key {said}")):
        figures.specs(str(tmp_path), kind)


def test_what_a_page_shows_is_escaped():
    assert text.code('run `a < b` & "go"') == 'run <code>a &lt; b</code> &amp; "go"'
    assert "&lt;b&gt;" in text.part("link", "a.html", "<b>") and "<b>" not in text.part("links", ["<b>"])
    assert "<b>1</b>" in text.part("facts", {"x": "<b>1</b>"})  # of HTML already


def test_templates_escape_and_name_what_they_lack():
    assert all(path.name.endswith(".html.j2") for path in text.HTML.iterdir())
    for path in text.HTML.glob("*.html.j2"):
        jinja2.Environment().parse(path.read_text(encoding="utf-8"))
