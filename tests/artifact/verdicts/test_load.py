"""Reading claims: what a file may say, and what it is told where it says something else."""

import pytest
import synthetic
from judging import GOOD, load

from artifact import paths, registry
from artifact.measure import minutes, records
from artifact.profiling import ncu
from artifact.verdicts import evidence, measures
from artifact.verdicts import load as load_

KNOWN = load_.claims()
HOME = paths.RECORDED / paths.HOME


def test_a_claim_takes_its_range_from_the_published_numbers(tmp_path):
    (claim,) = load(tmp_path, GOOD)
    assert claim.rule.expect.keywords == {"between": [0.55, 0.9], "tolerance": 0.05}
    assert (
        claim.typed == {"wide": 2, "counters": 3} and claim.source == "casperSPARSE" and claim.published == "0.55–0.90×"
    )
    assert claim.rule.also_over == "cusparse_default" and "also_over" not in claim.rule.quantity.keywords
    assert claim.rule.written["expect"] == {"within": "published", "tolerance": 0.05}


def test_a_claim_may_replace_one_end_of_the_published_numbers(tmp_path):
    (claim,) = load(tmp_path, GOOD.replace('"published", tol', '["published", 2.0], tol'))
    assert claim.rule.expect.keywords["between"] == [0.55, 2.0]
    (claim,) = load(tmp_path, GOOD.replace('"published", tol', '[0, "published"], tol'))
    assert claim.rule.expect.keywords["between"] == [0, 0.9]
    assert claim.published == "0.55–0.90×"


@pytest.mark.parametrize(
    "old,new,says",
    [
        ('says = "It is slower."\n', "", "claim 'a' has no 'says'"),
        ('reduce = "each point"\n', "", "claim 'a' has no 'reduce'"),
        ('where = "V.A"', 'where = "V.A"\nwhen = 1', "has a key 'when'"),
        ("{ speedup =", "{ guess =", "names 'guess' as its 'quantity'; known: speedup, time"),
        ('"each point"', '"guess"', "names 'guess' as its 'reduce'; known: each_point"),
        ("{ within =", "{ guess =", "names 'guess' as its 'expect'; known: at_least"),
        ('"each point"', "3", "names '3' as its 'reduce'"),
        ('"each point"', '{ each_point = "m" }', "names 'each_point' as its 'reduce', with too many positional"),
        ('["wide", "counters"]', '["deep"]', "experiment 'deep'; known: wide, counters"),
        (
            "tolerance = 0.05",
            "slack = 1",
            "names 'within' as its 'expect', with missing a required argument: 'tolerance'",
        ),
        (", tolerance = 0.05", "", "with missing a required argument: 'tolerance'"),
        (', over = "cusparse_best"', "", "with missing a required argument: 'over'"),
        (
            'over = "cusparse_best"',
            'over = ["any_n", "l2_panels"]',
            "no baseline 'over' beside which",
        ),
        ('quantity = "speedup" }', 'quantity = "joy" }', "for quantity = joy, which has no single number"),
        ('figure = "fig4_wide"', 'figure = "fig9"', "no such published numbers"),
        ('"speedup" }', '"speedup", size = 1 }', "asks fig4_wide.csv for a column 'size'"),
        ('"speedup" }', '"speedup", where = "V" }', "for quantity = speedup, where = V, which has no single"),
        ('{ figure = "fig4_wide", quantity = "speedup" }', '"so"', "its 'published' has no 'low'"),
        ("reduce =", "at = 3\nreduce =", "an 'at' that is not a table of columns"),
        ("reduce =", "at = { size = 1 }\nreduce =", "an 'at' that is not a table of columns"),
        ("reduce =", "repeats = true\nreduce =", "no two experiments that repeat"),
        ("wide = 2", "wide = 2 2", "not valid TOML"),
        ('"published", tol', '["published", inf], tol', "the number inf in its 'expect'; a range"),
        (
            '"published", tol',
            "[-inf, 1.0], tol",
            "the number -inf in its 'expect'; a range has two",
        ),
        ("tolerance = 0.05", "tolerance = nan", "the number nan in its 'expect'"),
        ("reduce =", 'depends_on = "luck"\nreduce =', "depends on 'luck'; it must be 'gpu' or 'm"),
        ("reduce =", 'gpu = "A100"\nreduce =', "has a 'gpu' that is no list of names"),
        (
            "reduce =",
            'extension = "yes"\nreduce =',
            "has an 'extension' that is neither true nor f",
        ),
        ('says = "It', 'contradicts = ["b"]\nsays = "It', "contradicts 'b', which is no claim"),
    ],
)
def test_a_malformed_claim_is_one_sentence(tmp_path, old, new, says):
    assert GOOD.count(old) >= 1
    with pytest.raises((ValueError, FileNotFoundError)) as error:
        load(tmp_path, GOOD.replace(old, new))
    assert says in str(error.value) and "\n" not in str(error.value)


def test_an_id_is_there_once(tmp_path):
    with pytest.raises(ValueError, match="'a' is there twice"):
        load(tmp_path, GOOD + GOOD[GOOD.index("[[claim]]") :])


# ---------------------------------------------------------------- the claims of every room


@pytest.mark.parametrize("part", measures.PARTS)
def test_what_a_room_adds_no_other_room_needs_and_its_claims_use(part):
    used = {(c.room, getattr(c.rule, part).func.__name__) for c in KNOWN}
    shared = measures.table(part, "")
    for room in registry.find():
        own = measures.table(part, room).keys() - shared.keys()
        assert {name for r, name in used if r == room} >= own, room
    for name in shared:  # what no room needs is not there
        assert any(n == name for _, n in used), name


def test_every_definition_says_when_a_claim_is_reproduced():
    for room in ("", *registry.find()):
        for part in measures.PARTS:
            for name, function in measures.table(part, room).items():
                text = " ".join(function.__doc__.split())
                assert text.endswith(".") and len(text) > 20, name
                if part == "expect":
                    assert "eproduced" in text and "artly" in text, name


def test_published_numbers_are_there_for_claims_or_said_why_not():
    """Of every room that has claims: each is judged by numbers of its own published/, and each of those
    names its source."""
    for room in {claim.room for claim in KNOWN}:
        folder = registry.FOLDER / room / registry.PUBLISHED
        table = registry.toml(registry.FOLDER / room / registry.CLAIMS)["claim"]
        figures = {c["published"]["figure"] for c in table if isinstance(c["published"], dict)}
        held = {path.stem for path in folder.glob("*.csv")}
        assert figures and figures <= held, room
        for name in held:
            assert len(records.published(folder / f"{name}.csv").attrs["source"]) > 40, (room, name)


def test_every_number_of_casper_sparse_is_put_on_trial():
    """The other rooms' tests have rules of their own on what is left."""
    table = registry.toml(registry.FOLDER / "casper_sparse" / registry.CLAIMS)["claim"]
    published = [c["published"] for c in table if isinstance(c["published"], dict)]
    held = {
        (path.stem, quantity)
        for path in (registry.FOLDER / "casper_sparse" / registry.PUBLISHED).glob("fig*.csv")
        for quantity in records.published(path)["quantity"]
    }
    assert {(p["figure"], p["quantity"]) for p in published} == held
    sections = {c["where"].split(",")[0].split(";")[0] for c in table}
    assert {"abstract", "I", "III.A", "III.B", "III.C", "V", "V.A", "V.B", "V.C", "V.D"} <= sections
    assert len(table) >= 30


def test_minutes_are_stated_for_what_claims_ask_and_for_what_figures_show():
    for room, figures in load_.figures_of().items():
        assert set(figures) <= set(typed(room)), room
    own = [c for c in KNOWN if not all("@" in e or e.startswith("others/") for e in c.experiment)]
    assert all(c.minutes > 0 for c in own) and len(own) > len(KNOWN) / 2


#: Experiments of claims.toml that have no record of ours: they have no minutes, or none that a record could tell.
NO_RECORD = {"counters"}


def typed(room: str) -> dict[str, float]:
    return registry.toml(registry.FOLDER / room / registry.CLAIMS)["minutes"]


@pytest.mark.parametrize("room", list(load_.figures_of()))
def test_typed_minutes_are_of_experiments_that_exist(room):
    """Of a record on some GPU, or of a series or of others' code that is there; and near what the home GPU's record
    says, so that nobody is misled who reads the file."""
    gpus = [paths.RECORDED / gpu for gpu in records.list_gpus(paths.RECORDED)]
    for experiment, said in typed(room).items():
        there = [evidence.place(experiment, folder, room).is_file() for folder in gpus]
        assert any(there), f"{room} has minutes for {experiment!r}, of which there is no record"
        told = None
        if evidence.SERIES not in experiment and not experiment.startswith(evidence.OTHERS):
            if experiment not in NO_RECORD:
                told = minutes.of_record(evidence.place(experiment, HOME, room))
        else:
            assert said == 0, experiment
        if told is not None:
            assert abs(said - told) <= max(0.1, told / 2), f"{experiment}: {said} typed, {told:.1f} recorded"


def test_minutes_are_those_of_the_records_and_typed_ones_only_where_none_tells():
    spent = minutes.durations(HOME)
    spent = spent[~spent["repeat"] & spent["told"]].set_index(["room", "experiment"])["minutes"]
    for claim in KNOWN:
        of = {e: ("ceilings" if e == "ceilings" else claim.room, e) for e in claim.experiment}
        took = sum(spent[of[e]] if of[e] in spent.index else typed(claim.room)[e] for e in of)
        assert claim.minutes == pytest.approx(took, abs=0.006), claim.id
    (spmm,) = [c for c in KNOWN if c.id == "spmm-range"]
    assert spmm.minutes == pytest.approx(spent[("nm_spmm", "llama")], abs=0.006)


def test_without_records_typed_minutes_stand(tmp_path):
    (claim,) = load(tmp_path, GOOD)
    assert load_.took(claim, tmp_path / "nowhere") == 5
    folder = synthetic.folder(tmp_path / "records")
    df = synthetic.experiment("wide")
    df.loc[df.index[-1], "when"] = "2026-01-02T03:08:05+00:00"
    records.write(folder / "casper_sparse" / "wide.csv", df)
    assert load_.took(claim, folder) == pytest.approx(8 + 3)


def test_the_profiler_is_told_which_counters_claims_use():
    wanted = load_.counters_wanted(KNOWN)
    of_rooms = {m for plan in registry.profiles().values() for m in plan.get("metrics", ())}
    assert wanted == sorted(set(wanted)) and set(wanted) <= {*ncu.METRICS, *of_rooms}
    said = {
        word
        for claim in KNOWN
        for value in claim.rule.written["quantity"].values()
        for word in (value if isinstance(value, list) else [value])
        if isinstance(word, str) and "__" in word
    }
    assert said == set(wanted) and "dram__throughput.avg.pct_of_peak_sustained_elapsed" in said


def test_a_claim_that_needs_counters_or_ceilings_says_so():
    for claim in KNOWN:
        if load_.counters_wanted([claim]) or claim.rule.quantity.func.__name__ == "stall":
            assert "counters" in claim.experiment, claim.id
        if claim.rule.quantity.func.__name__ in ("share_of_ceiling", "ceiling", "roofline_transition"):
            assert "ceilings" in claim.experiment, claim.id


def test_what_is_partly_is_weaker_than_what_is_reproduced():
    for claim in KNOWN:
        name, given = claim.rule.expect.func.__name__, claim.rule.expect.keywords
        if name == "at_least":
            assert given["limit"] >= given["partly"], claim.id
        if name == "at_most":
            assert given["limit"] <= given["partly"], claim.id
        if name == "near":
            assert 1 <= given["factor"] <= given["partly"], claim.id
        if name == "within" and "partly" in given:
            assert given["tolerance"] < given["partly"], claim.id
        if claim.rule.quantity.func.__name__ == "true_density":  # of each room by the same rule
            assert given["partly"] == pytest.approx(5 * given["tolerance"]), claim.id


def test_what_several_claims_note_is_written_once(tmp_path):
    notes = '[notes]\nhere = "Only here."\n'
    (claim,) = load(tmp_path, notes + GOOD + 'note = ["here", "And more."]\n')
    assert claim.note == "Only here. And more."
    (claim,) = load(tmp_path, notes + GOOD + 'note = "here"\n')
    assert claim.note == "Only here."
    with pytest.raises(ValueError, match="the note 'hear', which is not among .notes.: here"):
        load(tmp_path, notes + GOOD + 'note = "hear"\n')
