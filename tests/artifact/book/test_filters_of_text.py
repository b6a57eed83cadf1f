"""Filters of a chapter's text: what they write, and what a block says whose fact is not known."""

import pytest

from artifact.book.text import NOT_MEASURED, Text, _environment

FORMS = ("x", "pct(1)", "n", "sci", "abs", "signed", "change", "by_sparsity")
GAIN = {"gain.4096³": 1.5, "gain.8192³": 0.5}


def rendered(source: str, facts=()) -> str:
    text = Text(_environment().from_string(f"{{% block b %}}{source}{{% endblock %}}"))
    text.add(dict(facts).items())
    return text("b")


@pytest.mark.parametrize("asked", [*(f"a.b|{form}" for form in FORMS), "(a.b / a.c)|pct", '"%.1f"|format(a.b)'])
def test_a_filter_that_is_asked_for_a_missing_fact_says_which(asked):
    assert rendered(f"{{{{ {asked} }}}}", {"a.c": 1.0}) == NOT_MEASURED.format("`b`")


@pytest.mark.parametrize(
    "asked,facts,said",
    [
        ("{{ gain|at }}", GAIN, "1.50× at 4096³ and 0.50× at 8192³"),
        ("{% for size in gain %}{{ size }}{{ loop|between }}{% endfor %}", GAIN, "4096³ and 8192³"),
        ("{% for of in gain %}{{ of }}{{ loop|between }}{% endfor %}", GAIN | {"gain.1³": 1}, "4096³, 8192³ and 1³"),
        ("{{ a|signed(1) }} {{ b|thousands }}", {"a": 0.123, "b": 1234.4}, "+12.3% 1,234"),
        ("{{ a|x }} {{ a|pct }} {{ a|n(1) }} {{ a|sci }}", {"a": 0.126}, "0.13× 13% 0.1 1.3e-01"),
        ("{{ '12:32'|sparsity }}", {}, "62.5%"),
        ("{{ p|by_sparsity }}", {"p.16:32": 1.2, "p.4:32": 1.1}, "1.20× at 50% and 1.10× at 87.5%"),
        ("{{ p|by_sparsity('pct', 1) }}", {"p.8:32": 0.123}, "12.3% at 75%"),
        ("{{ s|ends }} {{ t|ends(1) }}", {"s.low": 1, "s.high": 2, "t.low": 3, "t.high": 3}, "1.00 to 2.00 3.0"),
    ],
)
def test_what_filters_write(asked, facts, said):
    assert rendered(asked, facts) == said
