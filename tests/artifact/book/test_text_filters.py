"""Numbers of a chapter's text: filters, and facts that are missing."""

from artifact.book import text


def rendered(source: str, **facts: float) -> str:
    made = text.Text(text._environment().from_string("{% block it %}" + source + "{% endblock %}"))
    made.add(facts.items())
    return made("it")


def test_a_missing_number_is_said_in_whatever_form_it_was_to_be():
    for form in ("x", "pct(1)", "n", "sci", "change", "by_sparsity"):
        assert rendered(f"{{{{ ratio|{form} }}}}") == text.NOT_MEASURED.format("`ratio`")
    assert rendered("{{ ratio|x }}", ratio=1.5) == "1.50×"


def test_values_by_pattern():
    assert text.sparsity("12:32") == "62.5%"
    assert text.by_sparsity({"16:32": 1.2, "4:32": 1.1}) == "1.20× at 50% and 1.10× at 87.5%"
    assert text.by_sparsity({"8:32": 0.123}, "pct", 1) == "12.3% at 75%"
    assert text.by_sparsity({}) == ""
