"""Figures and tables of a built page."""

from artifact.drawing.pages.numbered import as_csv, numbered

FIGURE = '<figure id="{0}" style="x">\n<svg></svg><figcaption>What {0} shows.</figcaption></figure>'
HEAD = '<h2>What <code>C</code> is<a class="headerlink" href="#x" title="y">#</a></h2>'
TABLE = '<table class="dataframe"><thead><tr><th class="head text-right"><p>m</p></th></tr></thead></table>'


def test_figures_and_tables_are_numbered_in_their_order():
    page = (
        "<table></table><article>"
        + FIGURE.format("a")
        + HEAD
        + TABLE
        + '<table id="T"> <caption>What it <code>says</code>.</caption><tr><td>1</td></tr></table>'
        + FIGURE.format("b")
        + "<table></table><h3 id='z'>Next</h3><table></table></article><table>"
    )
    text, files = numbered(page, "chapter")
    assert '<figcaption><a class="number" href="#a">Figure 1.</a> What a shows.' in text
    assert '<figcaption><a class="number" href="#b">Figure 2.</a> What b shows.' in text
    for place, said in (
        ("table-1", "What C is"),
        ("T", "What it <code>says</code>."),
        ("table-3", "What C is (2)"),
        ("table-4", "Next"),
    ):
        assert f'{place}">Table {place[-1] if place != "T" else 2}.</a> {said} <a href="tables/' in text
        assert text.count(f'id="{place}"') == 1
    assert '<th scope="col" class="head text-right">' in text and text.count("<caption>") == 4
    assert text.startswith("<table></table>") and text.endswith("</article><table>")
    assert files["tables/chapter-1.csv"] == "m\n" and files["tables/chapter-2.csv"] == "1\n"
    assert len(files) == 4


def test_the_ledger_has_no_file_and_a_page_without_an_article_is_left_alone():
    text, files = numbered('<article><table class="ledger"></table></article>', "ledger")
    assert not files and 'id="table-1"' in text
    index = '<article><h2 id="A">A</h2><table class="indextable"><tr></tr></table></article>'
    assert numbered(index, "genindex") == (index.replace("<table", '<table aria-label="A"'), {})
    assert numbered("<p>No article.</p>", "x") == ("<p>No article.</p>", {})


def test_a_table_is_read_as_it_is_seen():
    rows = (
        '<tr><th colspan="2">over <b>it</b></th><th>a, b</th></tr>'
        "<tr><td>1<br>2</td><td></td><td>\n x \u00a0 </td></tr>"
    )
    assert as_csv(f"<table>{rows}</table>") == 'over it,,"a, b"\n1 2,,x\n'
