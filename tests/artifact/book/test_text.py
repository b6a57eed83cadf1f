"""Templates and facts: what a page says where something was measured, was not, or does not hold."""

import re

import jinja2
import pytest
from refused import refused

from artifact import registry
from artifact.book import facts, text
from artifact.book.text import Text

CHAPTERS = text.chapters()
SOURCE = """
{% block ratio %}
Measured: {{ speed.wide|span }}.
{% holds speed.wide.mean > 1 and speed.wide.low < 2 %}
It is ahead.
{% endholds %}
{% endblock %}
{% block counted %}{{ counted.l2.hits|pct }}{% endblock %}
"""


def of(**known) -> Text:
    made = Text(text._environment().from_string(SOURCE))
    made.add(facts.flat({"speed.wide": known}))
    return made


def test_a_block_says_facts_by_name():
    assert of(low=0.5, high=2, mean=1.2)("ratio") == "Measured: 0.50× to 2.00×, geometric mean 1.20×.\nIt is ahead."


def test_a_fact_may_have_the_name_of_a_dictionarys_method():
    made = Text(
        text._environment().from_string("{% block b %}{{ balance.copy|n }} {{ balance.items()|length }}{% endblock %}")
    )
    made.add(facts.flat({"balance": {"copy": 3}}))
    assert made("b") == "3 1"


def test_an_explanation_that_does_not_hold_is_not_given_and_its_condition_is_with_the_numbers():
    said = of(low=0.5, high=2, mean=0.8)("ratio")
    assert "It is ahead" not in said and "speed.wide.mean = 0.8" in said and "speed.wide.low = 0.5" in said
    assert "`speed.wide.mean > 1 and speed.wide.low < 2`" in said


def test_a_block_whose_fact_was_not_measured_says_so_and_names_it():
    assert "`counted`" in of(mean=1.2)("counted")
    refused("no such block", of(), "no such block", kind=KeyError)


@pytest.mark.parametrize(
    ("values", "holds"), [({"mean": 2, "low": 1}, True), ({"mean": 1, "low": 1}, False), ({}, None)]
)
def test_a_condition_is_true_false_or_unknown(values, holds):
    assert text.holds(of(**values), "speed.wide.mean > 1 and speed.wide.low < 2") is holds


def test_facts_survive_being_written():
    assert (
        facts.to_csv([("a.b", 0.1), ("a.c", "alg2, alg3"), ("n", 3)]) == 'name,value\na.b,0.1\na.c,"alg2, alg3"\nn,3\n'
    )


@pytest.mark.parametrize("name", [path.stem for path in text.PAGES.glob("*.md")])
def test_a_page_of_nothing_known_says_so(name):
    made = text.page(name)
    assert made.blocks and all(map(made, made.blocks))


@pytest.mark.parametrize(
    "path",
    [*text.PAGES.glob("*.md"), *(registry.FOLDER / system / f"{name}.md" for system, name in CHAPTERS)],
    ids=lambda path: path.stem,
)
def test_templates_have_no_branch_but_holds(path):
    used = set(re.findall(r"\{%-?\s*(\w+)", path.read_text(encoding="utf-8")))
    assert used <= {"block", "endblock", "holds", "endholds", "for", "else", "endfor"}, used  # else: of an empty list


def test_a_template_that_is_none_says_where():
    refused("holds|end of", text._environment().from_string, "{% holds x > 1 %}", kind=jinja2.TemplateSyntaxError)


# ---------------------------------------------------------------- filters

FORMS = ("x", "pct(1)", "n", "sci", "abs", "signed", "change", "by_sparsity")
GAIN = {"gain.4096³": 1.5, "gain.8192³": 0.5}


def rendered(source: str, facts=()) -> str:
    made = Text(text._environment().from_string(f"{{% block b %}}{source}{{% endblock %}}"))
    made.add(dict(facts).items())
    return made("b")


@pytest.mark.parametrize("asked", [*(f"a.b|{form}" for form in FORMS), "(a.b / a.c)|pct", '"%.1f"|format(a.b)'])
def test_a_filter_that_is_asked_for_a_missing_fact_says_which(asked):
    assert rendered(f"{{{{ {asked} }}}}", {"a.c": 1.0}) == text.NOT_MEASURED.format("`b`")


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
