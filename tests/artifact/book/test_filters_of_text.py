"""Filters of a chapter's text: what they write, and what a block says whose fact is not known."""

import pytest

from artifact.book.text import NOT_MEASURED, Text, _environment


def rendered(source: str, *facts: tuple[str, float]) -> str:
    text = Text(_environment().from_string(f"{{% block b %}}{source}{{% endblock %}}"))
    text.add(facts)
    return text("b")


@pytest.mark.parametrize("asked", ["a.b|n", "a.b|x", "a.b|abs", "a.b|signed", "(a.b / a.c)|pct", '"%.1f"|format(a.b)'])
def test_a_filter_that_is_asked_for_a_missing_fact_says_which(asked):
    assert rendered(f"{{{{ {asked} }}}}", ("a.c", 1.0)) == NOT_MEASURED.format("`b`")


def test_lists_and_signs():
    facts = ("gain.4096³", 1.5), ("gain.8192³", 0.5)
    assert rendered("{{ gain|at }}", *facts) == "1.50× at 4096³ and 0.50× at 8192³"
    each = "{% for size in gain %}{{ size }}{{ loop|between }}{% endfor %}"
    assert rendered(each, *facts) == "4096³ and 8192³"
    assert rendered(each, *facts, ("gain.16384³", 1.0)) == "4096³, 8192³ and 16384³"
    assert rendered("{{ a|signed(1) }} {{ b|thousands }}", ("a", 0.123), ("b", 1234.4)) == "+12.3% 1,234"
