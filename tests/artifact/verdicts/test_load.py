"""Reading claims: what a file may say, and what it is told where it says something else."""

import re

import numpy as np
import pandas as pd
import pytest
import synthetic
from judging import GOOD, load
from refused import refused

from artifact import paths, registry
from artifact.measure import durations, records
from artifact.profiling import ncu
from artifact.verdicts import evidence, kinds, load as load_, measures
from artifact.verdicts.measures import NOT_REPRODUCED

KNOWN = load_.claims()
HOME = paths.RECORDED / paths.HOME
TYPED = {system: registry.toml(registry.FOLDER / system / registry.CLAIMS)["minutes"] for system in load_.figures_of()}
ALL = [(part, system) for part in measures.PARTS for system in ("", *registry.find())]


@pytest.mark.parametrize(
    "said,between",
    [
        ('"published"', [0.55, 0.9]),
        ('["published", 2.0]', [0.55, 2.0]),
        ('[0, "published"]', [0, 0.9]),
        ("[1, 2]", [1, 2]),
    ],
)
def test_a_claim_takes_its_range_from_the_published_numbers(tmp_path, said, between):
    (claim,) = load(tmp_path, GOOD.replace('within = "published"', f"within = {said}"))
    assert claim.rule.expect.keywords == {"between": between, "tolerance": 0.05, "partly": None, "better": ""}
    assert claim.published == "0.55–0.90×" and claim.typed == {"wide": 2, "counters": 3}
    assert claim.rule.also_over == "cusparse_default" and "also_over" not in claim.rule.quantity.keywords


@pytest.mark.parametrize(
    "old,new,says",
    [
        ('says = "It is slower."\n', "", "'says' is missing"),
        ('reduce = "each point"\n', "", "'reduce' is missing"),
        ('where = "V.A"', 'where = "V.A"\nwhen = 1', "'when' is none of id, where"),
        ('id = "a"', "id = 3", "'id' is 3"),
        ("{ speedup =", "{ guess =", "'guess' as its 'quantity'; known: speedup"),
        ('"each point"', '"guess"', "'guess' as its 'reduce'; known: each_point"),
        ("{ within =", "{ guess =", "'guess' as its 'expect'; known: at_least"),
        ('"each point"', "3", "reduce"),
        ('"each point"', '{ each_point = "m" }', "'each_point' as its 'reduce', with too many positional"),
        ('["wide", "counters"]', '["deep"]', "experiment 'deep'; known: wide, counters"),
        ("tolerance = 0.05", "slack = 1", "missing a required argument: 'tolerance'"),
        (', over = "cusparse_best"', "", "missing a required argument: 'over'"),
        ('over = "cusparse_best"', 'over = ["any_n", "l2_panels"]', "'also_over'"),
        ('quantity = "speedup" }', 'quantity = "joy" }', "quantity = joy"),
        ('figure = "fig4_wide"', 'figure = "fig9"', "no such published numbers"),
        ('"speedup" }', '"speedup", size = 1 }', "column 'size'"),
        ('"speedup" }', '"speedup", where = "V" }', "where = V"),
        ('{ figure = "fig4_wide", quantity = "speedup" }', '"so"', "its 'published' has no 'low'"),
        ("reduce =", "at = 3\nreduce =", "'at' is 3"),
        ("reduce =", "at = { size = 1 }\nreduce =", "at.size"),
        ("reduce =", "repeats = true\nreduce =", "'repeats' and no two experiments"),
        ("wide = 2", "wide = 2 2", "not valid TOML"),
        ('"published", tol', '["published", inf], tol', "the number inf"),
        ('"published", tol', "[-inf, 1.0], tol", "the number -inf"),
        ("tolerance = 0.05", "tolerance = nan", "the number nan"),
        ("reduce =", 'depends_on = "luck"\nreduce =', "'depends_on' is 'luck', but must be 'gpu' or 'method'"),
        ("reduce =", 'gpu = "A100"\nreduce =', "'gpu' is 'A100'"),
        ("reduce =", 'extension = "yes"\nreduce =', "'extension' is 'yes'"),
        ('says = "It', 'contradicts = ["b"]\nsays = "It', "contradicts 'b'"),
        ("reduce =", 'note = "hear"\nreduce =', "the note 'hear'"),
        ("reduce =", 'kind = "guess"\nreduce =', "of the kind 'guess'; known: speedup"),
        ("reduce =", 'kind = "share"\nreduce =', "gives 'tolerance', which its kind 'share' gives"),
        (
            'published = { figure = "fig4_wide", quantity = "speedup" }\n',
            GOOD[GOOD.index("published =") :] + GOOD[GOOD.index("[[claim]]") :],
            "twice",
        ),
    ],
)
def test_a_malformed_claim_is_one_sentence(tmp_path, old, new, says):
    assert GOOD.count(old) >= 1
    said = f"^(?=.*{tmp_path}).*{re.escape(says)}"
    refused(said, load, tmp_path, GOOD.replace(old, new), kind=(ValueError, FileNotFoundError))


@pytest.mark.parametrize("said,note", [('["here", "And more."]', "Only here. And more."), ('"here"', "Only here.")])
def test_what_several_claims_note_is_written_once(tmp_path, said, note):
    (claim,) = load(tmp_path, f'[notes]\nhere = "Only here."\n{GOOD}note = {said}\n')
    assert claim.note == note


# ---------------------------------------------------------------- kinds


@pytest.mark.parametrize(
    "kind,said,scale,given",
    [
        ({"factor": 1.2, "partly": 2.0}, {"near": [2, 4]}, 1, {"factor": 1.2, "partly": 2.0}),
        ({"factor": 1.2, "partly": 2.0}, {"near": [2, 4]}, 2, {"factor": 1.44, "partly": 4.0}),
        ({"tolerance": 0.1}, {"within": [0.5, 0.6]}, 0.5, {"tolerance": 0.05}),
        ({"change": 0.1, "each_step": True}, {"rises": None}, 2, {"change": 0.2, "each_step": True}),
        ({"slack": 1.5}, {"at_least": 60}, 1, {"partly": 40}),
        ({"slack": 1.5}, {"at_most": 60}, 1, {"partly": 90}),
    ],
)
def test_a_kind_gives_tolerances_that_scale(kind, said, scale, given):
    assert kinds.given({"expect": kind}, said, scale) == pytest.approx(given)


@pytest.mark.parametrize("ratio", [0.1, 0.94, 1.02, 1.3, 5.0])
def test_no_effect_at_all_never_counts_where_an_effect_is_claimed(ratio):
    """However wide the tolerances, what comes to 1 is not reproduced."""
    bound, one = "at_least" if ratio > 1 else "at_most", pd.Series([1.0])
    for word, first, wide in (("near", [ratio, ratio], {"factor": 9, "partly": 9}), (bound, ratio, {"slack": 9})):
        given = kinds.given({"expect": wide, "effect": dict.fromkeys(wide, 0.75)}, {word: first})
        judged = getattr(measures, word)(measures.Reduced(evidence.Values({"a": one}), one), first, **given)
        assert judged.verdict == NOT_REPRODUCED


def test_tolerances_of_all_claims_scale_and_one_is_as_it_is(tmp_path):
    text = GOOD.replace(", tolerance = 0.05", "").replace("reduce =", 'kind = "share"\nreduce =')
    (plain,), (wide,) = load(tmp_path, text), load(tmp_path, text, scale=2.0)
    assert wide.rule.expect.keywords["tolerance"] == 2 * plain.rule.expect.keywords["tolerance"]


# ---------------------------------------------------------------- the claims of every system


def test_every_kind_has_a_claim_and_every_claim_a_kind():
    assert {claim.kind for claim in KNOWN} == kinds.known().keys()


@pytest.mark.parametrize("part,system", ALL)
def test_each_part_of_a_rule_is_defined_and_used(part, system):
    """By claims of the system that adds it, or by any where all share it; an expectation's definition says when."""
    own = measures.table(part, system).keys() - (measures.table(part, "").keys() if system else set())
    assert own <= {getattr(c.rule, part).func.__name__ for c in KNOWN if system in ("", c.room)}
    for function in measures.table(part, system).values():
        said = " ".join(function.__doc__.split())
        assert said.endswith(".") and len(said) > 20
        assert part != "expect" or ("eproduced" in said and "artly" in said)


@pytest.mark.parametrize("system", TYPED)
def test_typed_minutes_are_of_experiments_that_exist(system):
    """Of a record on some GPU, or of a series or of others' code that is there; and near what the home GPU's record
    says, so that nobody is misled who reads the file."""
    assert set(load_.figures_of()[system]) <= set(TYPED[system])
    gpus = [paths.RECORDED / gpu for gpu in records.list_gpus(paths.RECORDED)]
    for experiment, said in TYPED[system].items():
        assert any(evidence.place(experiment, folder, system).is_file() for folder in gpus), experiment
        theirs = evidence.SERIES in experiment or experiment.startswith(evidence.OTHERS)
        told = (
            0
            if theirs
            else None
            if experiment == records.COUNTERS
            else durations.of_record(evidence.place(experiment, HOME, system))
        )
        assert told is None or abs(said - told) <= (0 if theirs else max(0.1, told / 2)), experiment


def test_minutes_are_those_of_the_records_and_typed_ones_only_where_none_tells(tmp_path):
    (claim,) = load(tmp_path, GOOD)
    assert load_.took(claim, tmp_path / "nowhere") == 5
    folder, df = synthetic.folder(tmp_path / "records"), synthetic.experiment("wide")
    df.loc[df.index[-1], "when"] = "2026-01-02T03:08:05+00:00"
    records.write(folder / "casper_sparse" / "wide.csv", df)
    assert load_.took(claim, folder) == pytest.approx(8 + 3)


def test_the_profiler_is_told_which_counters_claims_use():
    wanted = load_.counters_wanted(KNOWN)
    of_systems = {m for plan in registry.profiles().values() for m in plan.get("metrics", ())}
    assert wanted == sorted(set(wanted)) and set(wanted) <= {*ncu.METRICS, *of_systems}
    values = [value for claim in KNOWN for value in claim.rule.written["quantity"].values()]
    words = {word for value in values for word in (value if isinstance(value, list) else [value])}
    assert {word for word in words if "__" in str(word)} == set(wanted), "what looks like a counter"


@pytest.mark.parametrize("claim", KNOWN, ids=lambda claim: claim.id)
def test_a_claim_is_whole(claim):
    """It names the counters and ceilings that it needs, `partly` is the weaker limit, and what follows from programs
    does not depend on a GPU."""
    expect, quantity = claim.rule.expect, claim.rule.quantity
    assert not load_.counters_wanted([claim]) or "counters" in claim.experiment
    named = quantity.keywords.get("ceiling", "" if quantity.func.__name__ in ("ceiling", "roofline_transition") else 1)
    assert "ceilings" in claim.experiment or not isinstance(named, str)
    weaker, stronger = {
        "at_least": ("partly", "limit"),
        "at_most": ("limit", "partly"),
        "near": ("factor", "partly"),
    }.get(expect.func.__name__, ("tolerance", "partly"))
    assert expect.keywords.get(weaker, 0) <= (expect.keywords.get(stronger) or np.inf)
    assert claim.depends_on == load_.METHOD or (claim.gpu and quantity.func.__name__ not in measures.OF_PROGRAMS)
