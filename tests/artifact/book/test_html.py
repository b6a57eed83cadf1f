"""HTML of pages: what is shown is escaped, and every template can be read."""

import jinja2

from artifact.book import html


def test_what_a_page_shows_is_escaped():
    assert html.code('run `a < b` & "go"') == 'run <code>a &lt; b</code> &amp; "go"'
    assert "&lt;b&gt;" in html.part("link", "a.html", "<b>") and "<b>" not in html.part("links", ["<b>"])
    assert "<b>1</b>" in html.part("facts", {"x": "<b>1</b>"})  # of HTML already


def test_templates_escape_and_name_what_they_lack():
    assert all(path.name.endswith(".html.j2") for path in html.FOLDER.iterdir())
    for path in html.FOLDER.glob("*.html.j2"):
        jinja2.Environment().parse(path.read_text(encoding="utf-8"))
