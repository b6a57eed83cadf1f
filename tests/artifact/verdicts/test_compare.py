from contextlib import nullcontext
from dataclasses import replace

import judging
import numpy as np
import pandas as pd
import pytest
import synthetic
from refused import refused

from artifact.measure import records
from artifact.verdicts import compare, measures


def frames(**how):
    return {name: synthetic.experiment(name, **how) for name in synthetic.SHAPES}


#: Enough to see verdicts change; all of a system take a second on each side.
FEW = [claim for claim in compare.load.claims() if claim.id in ("abstract-speedup", "tall-best", "wide-speedup")]


@pytest.fixture(autouse=True)
def few_claims(monkeypatch):
    monkeypatch.setattr(compare.load, "claims", lambda: FEW)
    return FEW


OTHER = {"gpu": "NVIDIA L4", "slug": "nvidia-l4"}


@pytest.fixture(scope="module")
def usual(tmp_path_factory):
    """Made-up records; tests only read them."""
    return synthetic.folder(tmp_path_factory.mktemp("shipped"))


@pytest.fixture
def compared(tmp_path, usual):
    """Compare made-up records with the usual ones."""

    def make(fresh=None, gpu=None, with_ceilings=True, **how):
        return compare.compare(
            synthetic.folder(tmp_path / "fresh", fresh, **gpu or {}, with_ceilings=with_ceilings), usual, **how
        )

    return make


def ours(factor):
    """A kernel of so many times the speed, on a machine that is as fast as before."""
    return {name: synthetic.experiment(name, speedup=s * factor) for name, s in synthetic.SPEEDUP.items()}


@pytest.mark.parametrize(
    "fresh,agree",
    [
        (frames(jitter=0.01), True),
        *((frames(scale=scale), True) for scale in (1.09, 0.91)),  # another machine, the same speedups
        *((frames(scale=scale), False) for scale in (1.12, 0.88)),  # much faster is no agreement either
        (frames(jitter=0.3), False),  # errors of both signs do not cancel
        *((ours(factor), True) for factor in (1.04, 0.96)),  # speedups have the narrower tolerance
        *((ours(factor), False) for factor in (1.07, 0.93)),
    ],
)
def test_exit_codes_on_the_same_gpu(compared, fresh, agree):
    result = compared(fresh)
    assert result.same_gpu and result.agrees == agree == result.summary["agrees"].all()
    assert ("The records agree." in compare.report(result)) == agree and "\n0 " not in compare.report(result)


def test_ratios_are_those_of_the_fresh_records_over_the_shipped(compared):
    """Slower in time, by the same a smaller speedup."""
    result = compared({n: synthetic.experiment(n, s / 2, scale=1.2) for n, s in synthetic.SPEEDUP.items()})
    table = result.points[result.points["variant"] == "warp_per_row"]
    assert np.allclose(table["time_ratio"], 2.4) and np.allclose(table["speedup_ratio"], 0.5)
    wide = table[table["experiment"] == "wide"]
    assert np.allclose(wide["speedup_shipped"], 0.7) and np.allclose(wide["speedup_fresh"], 0.35)
    row = result.summary.set_index(["experiment", "variant"]).loc[("wide", "warp_per_row")]
    assert [row["time_ratio"], row["speedup_fresh"]] == pytest.approx([2.4, 0.35])


def test_changed_verdicts_within_tolerance_are_told_with_the_times_and_are_no_difference(compared):
    result = compared(frames(speedup=1.3), speedup_tolerance=9, time_tolerance=9)
    (row,) = result.verdicts[result.verdicts["id"] == "wide-speedup"].to_dict("records")
    assert result.agrees and not result.verdicts["agrees"].all()
    assert [row["fresh_value"], row["shipped_value"]] == pytest.approx([1.3, 0.7])
    assert row["times"] == pytest.approx({"warp_per_row": 0.7 / 1.3, "cusparse_best": 1})
    assert all(said in compare.report(result) for said in ("abstract-speedup", "0.60×", "the tolerances decide"))


@pytest.mark.parametrize(
    "here,there,basis",
    [
        (["fig1@A100"], [], compare.NO_GPU),
        (["wide"], ["wide", "ceilings"], compare.OWN),
        (["wide", "fig1@A100"], ["wide"], compare.OWN),
        (["counters", "wide"], ["ceilings", "wide"], compare.TWO_KINDS),
        (["counters"], ["counters"], compare.OWN),
    ],
)
def test_what_two_verdicts_rest_on(here, there, basis):
    assert compare._basis(tuple(here), tuple(there)) == basis


@pytest.mark.parametrize("how,agree", [({"scale": 8.0}, True), ({"speedup": 1.3}, False)])
def test_on_another_gpu_the_claims_decide(compared, how, agree):
    result = compared(frames(**how, gpu=OTHER["gpu"]), OTHER, with_ceilings=False)
    assert not result.same_gpu and result.agrees == agree and "Different GPUs" in compare.report(result)


def test_on_another_gpu_times_are_no_disagreement_and_speedups_are(compared):
    slower, other = frames(scale=3.0, gpu=OTHER["gpu"]), frames(speedup=9.0, gpu=OTHER["gpu"])
    assert compared(slower, OTHER, with_ceilings=False).summary["agrees"].all()
    assert not compared(other, OTHER, with_ceilings=False).summary["agrees"].all()


def test_exit_codes_are_those_that_scripts_know():
    assert (compare.AGREE, compare.DIFFER, compare.BAD_INPUT) == (0, 1, 2)


@pytest.mark.parametrize("left,covered", [(["wide", "square"], 36), (["wide", "square", "tall"], 54)])
def test_what_one_side_did_not_measure_is_no_difference(compared, left, covered):
    result = compared({name: df for name, df in frames().items() if name in left}, with_ceilings=False)
    assert set(result.points["experiment"]) == set(left) and not result.ceilings
    assert result.agrees and (result.covered, result.total) == (covered, 54)
    assert f"cover {covered} of the 54 shipped points" in compare.report(result)


@pytest.mark.parametrize(
    "fresh,how,says",
    [
        # One sweep of three, or what `make kick` measures: the same where it is, and no answer.
        ({"wide": frames()["wide"]}, {}, "has only 168 of the 432 rows of casper_sparse in"),
        ({"wide": frames()["wide"].query("n in (512, 2048)")}, {}, "has only 48 of the 432 .*too few.*`make measure`"),
        ({"wide": frames()["wide"].eval("n = n + 1")}, {}, "only 0 of"),
        (None, {"system": "x"}, "'x'"),
        (None, {"speedup_tolerance": 0}, "not 0"),
    ],
)
def test_too_little_in_common_is_no_agreement(compared, fresh, how, says):
    refused(says, compared, fresh, **how)


def test_no_records_are_no_agreement(tmp_path):
    refused("no records", compare.compare, tmp_path, tmp_path, kind=FileNotFoundError)


@pytest.mark.parametrize("broken", [0, 1])
def test_a_broken_record_on_either_side_is_bad_input(tmp_path, broken):
    sides = [synthetic.folder(tmp_path / side) for side in compare.SIDES]
    path = sides[broken] / "casper_sparse" / "wide.csv"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-3]))
    refused("wide.csv", compare.compare, *sides)


@pytest.mark.parametrize(
    "fresh,shipped,agrees",
    [
        *((verdict, verdict, True) for verdict in measures.VERDICTS),
        (measures.REPRODUCED, measures.NOT_MEASURED, True),
        (measures.NOT_MEASURED, measures.REPRODUCED, True),
        (measures.PARTLY, measures.REPRODUCED, False),
    ],
)
def test_verdicts_that_one_side_cannot_give_decide_nothing(fresh, shipped, agrees):
    assert list(compare.agreeing(pd.DataFrame([{"fresh": fresh, "shipped": shipped}]))) == [agrees]


@pytest.mark.parametrize("more,enough", [(2, True), (3, False)])
def test_verdicts_that_the_fresh_records_do_not_give_are_no_agreement(tmp_path, few_claims, monkeypatch, more, enough):
    """On another GPU the verdicts decide; "not measured" everywhere would agree with anything."""
    shipped = synthetic.folder(tmp_path / "shipped")
    synthetic.write_counters(shipped / "casper_sparse", {"warp_per_row": {"c": 1.0}})
    by_counter = judging.rule({"counter": "c", "of": "warp_per_row"}, "median", {"at_least": 1, "partly": 0})
    claims = [*few_claims[:2], *(replace(few_claims[0], id=f"c{i}", rule=by_counter) for i in range(more))]
    monkeypatch.setattr(compare.load, "claims", lambda: claims)
    fresh = synthetic.folder(tmp_path / "fresh", frames(gpu=OTHER["gpu"]), **OTHER)
    with nullcontext() if enough else pytest.raises(ValueError, match="gives only 2 of the 5 .* gives, too few"):
        assert compare.compare(fresh, shipped).agrees


@pytest.mark.parametrize("scale,agree", [(1.01, True), (1.5, False)])
def test_records_without_a_baseline_compare_times(tmp_path, scale, agree):
    made = (synthetic.experiment("wide", scale=s).query("variant == 'warp_per_row'") for s in (scale, 1.0))
    sides = [synthetic.folder(tmp_path / str(at), {"wide": df}) for at, df in enumerate(made)]
    assert compare.compare(*sides).agrees == agree


def test_ceilings_are_those_that_both_have(tmp_path):
    fresh, shipped = (synthetic.folder(tmp_path / side) for side in compare.SIDES)
    records.write(fresh / "ceilings" / "ceilings.csv", synthetic.ceilings(copy=2000.0, fma=30.0).iloc[[0, 3]])
    assert compare.compare(fresh, shipped).ceilings == pytest.approx({"copy": 0.5, "fma": 0.5})


def test_verdicts_are_counted_apart_by_what_they_rest_on():
    given, none = measures.REPRODUCED, measures.NOT_MEASURED
    rows = [
        ("a", given, given, compare.OWN, True),
        ("b", given, measures.PARTLY, compare.TWO_KINDS, False),
        ("c", given, given, compare.NO_GPU, True),
        ("d", given, none, compare.OWN, True),
    ]
    assert compare.counted(pd.DataFrame(rows, columns=["id", "fresh", "shipped", "basis", "agrees"])) == {
        "own": 2,
        "kept": 1,
        "no_gpu": 1,
        "two_kinds": ("b",),
    }


def test_a_verdict_by_counters_on_one_side_alone_is_told(tmp_path, few_claims, monkeypatch):
    sides = [synthetic.folder(tmp_path / side) for side in compare.SIDES]
    synthetic.write_counters(sides[1] / "casper_sparse", {"warp_per_row": {"dram": 80}})
    use = judging.rule({"dram_use": "warp_per_row", "metric": "dram"}, "median", {"at_least": 0.1, "partly": 0})
    monkeypatch.setattr(compare.load, "claims", lambda: [replace(few_claims[0], rule=use)])
    assert compare.compare(*sides).verdicts["basis"].tolist() == [compare.TWO_KINDS]
