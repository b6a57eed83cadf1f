from dataclasses import replace

import judging
import numpy as np
import pandas as pd
import pytest
import synthetic

from artifact.measure import records
from artifact.verdicts import compare, measures


def frames(**how):
    return {name: synthetic.experiment(name, **how) for name in synthetic.SHAPES}


#: Enough to see verdicts change; all of a room take a second on each side.
FEW = [claim for claim in compare.load.claims() if claim.id in ("abstract-speedup", "tall-best", "wide-speedup")]


@pytest.fixture(autouse=True)
def few_claims(monkeypatch):
    monkeypatch.setattr(compare.load, "claims", lambda: FEW)
    return FEW


@pytest.fixture
def shipped(tmp_path):
    return synthetic.folder(tmp_path / "shipped")


@pytest.mark.parametrize(
    "how,code",
    [
        ({}, compare.AGREE),
        ({"jitter": 0.01}, compare.AGREE),
        ({"scale": 1.05}, compare.AGREE),  # a slower machine, the same speedups
        ({"scale": 1.09}, compare.AGREE),
        ({"scale": 1.12}, compare.DIFFER),
        ({"scale": 0.95}, compare.AGREE),  # a faster machine
        ({"scale": 0.91}, compare.AGREE),
        ({"scale": 0.88}, compare.DIFFER),  # much faster is no agreement either
        ({"speedup": 0.5}, compare.DIFFER),
        ({"speedup": 3.0}, compare.DIFFER),
        ({"jitter": 0.3}, compare.DIFFER),  # errors of both signs do not cancel
    ],
)
def test_exit_codes_on_the_same_gpu(tmp_path, shipped, how, code):
    result = compare.compare(synthetic.folder(tmp_path / "fresh", frames(**how)), shipped)
    assert result.same_gpu and result.exit_code == code and result.agrees == result.summary["agrees"].all()
    assert ("The records agree." in compare.report(result)) == (code == compare.AGREE)


@pytest.mark.parametrize(
    "factor,code",
    [(1.04, compare.AGREE), (1.07, compare.DIFFER), (0.96, compare.AGREE), (0.93, compare.DIFFER)],
)
def test_speedups_have_the_narrower_tolerance(tmp_path, shipped, factor, code):
    """A kernel that is 7% faster or slower than it was, on a machine that is not."""
    speedups = {n: s * factor for n, s in synthetic.SPEEDUP.items()}
    made = {n: synthetic.experiment(n, speedup=s) for n, s in speedups.items()}
    result = compare.compare(synthetic.folder(tmp_path / "fresh", made), shipped)
    off = result.summary[~result.summary["agrees"]]
    assert result.exit_code == code and set(off["variant"]) <= {"warp_per_row"}


def test_ratios_are_those_of_the_fresh_records_over_the_shipped(tmp_path, shipped):
    """Slower in time, by the same a smaller speedup."""
    made = frames(scale=1.2)
    for df in made.values():
        df.loc[df["variant"] == "warp_per_row", ["median_us", "q25_us", "q75_us"]] *= 2
        df["tflops"] = df["useful_flops"] / df["median_us"] / 1e6
        df["gbps"] = df["least_bytes"] / df["median_us"] / 1e3
    result = compare.compare(synthetic.folder(tmp_path / "fresh", made), shipped)
    ours = result.points[result.points["variant"] == "warp_per_row"]
    assert np.allclose(ours["time_ratio"], 2.4) and np.allclose(ours["speedup_ratio"], 0.5)
    wide = ours[ours["experiment"] == "wide"]
    assert np.allclose(wide["speedup_shipped"], 0.7) and np.allclose(wide["speedup_fresh"], 0.35)
    row = result.summary.set_index(["experiment", "variant"]).loc[("wide", "warp_per_row")]
    assert row["time_ratio"] == pytest.approx(2.4) and row["speedup_fresh"] == pytest.approx(0.35)


def test_changed_verdicts_within_tolerance_are_told_with_the_times_and_are_no_difference(tmp_path, shipped):
    fresh = synthetic.folder(tmp_path / "fresh", frames(speedup=1.3))
    result = compare.compare(fresh, shipped, speedup_tolerance=9, time_tolerance=9)
    (row,) = result.verdicts[result.verdicts["id"] == "wide-speedup"].to_dict("records")
    assert result.exit_code == compare.AGREE and not result.verdicts["agrees"].all()
    assert row["fresh_value"] == pytest.approx(1.3) and row["shipped_value"] == pytest.approx(0.7)
    assert row["times"] == pytest.approx({"warp_per_row": 0.7 / 1.3, "cusparse_best": 1})
    assert all(said in compare.report(result) for said in ("abstract-speedup", "0.60×", "the tolerances decide"))
    with pytest.raises(ValueError, match="not 0"):
        compare.compare(fresh, shipped, speedup_tolerance=0)


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


def test_on_another_gpu_the_claims_decide(tmp_path, shipped):
    other = {"gpu": "NVIDIA L4", "slug": "nvidia-l4"}
    slower = frames(scale=8.0, gpu=other["gpu"])
    fresh = synthetic.folder(tmp_path / "fresh", slower, **other, with_ceilings=False)
    result = compare.compare(fresh, shipped)
    assert not result.same_gpu and result.exit_code == compare.AGREE
    assert "Different GPUs" in compare.report(result)
    faster = frames(speedup=1.3, gpu=other["gpu"])
    result = compare.compare(synthetic.folder(tmp_path / "fresh2", faster, **other), shipped)
    assert result.exit_code == compare.DIFFER


def test_what_one_side_did_not_measure_is_no_difference(tmp_path, shipped):
    made = {name: df for name, df in frames().items() if name != "tall"}
    fresh = synthetic.folder(tmp_path / "fresh", made, with_ceilings=False)
    result = compare.compare(fresh, shipped)
    assert set(result.points["experiment"]) == {"wide", "square"}
    assert result.exit_code == compare.AGREE and (result.covered, result.total) == (36, 54)
    assert "cover 36 of the 54 shipped points" in compare.report(result)
    whole = compare.compare(shipped, shipped, "casper_sparse")
    assert whole.covered == whole.total == 54


def test_too_little_in_common_is_no_agreement(tmp_path, shipped):
    """One sweep of three, or what `make kick` measures: the same where it is, and no answer."""
    made = frames()
    wide = synthetic.folder(tmp_path / "wide", {"wide": made["wide"]})
    with pytest.raises(ValueError, match="has only 168 of the 432 rows of casper_sparse in"):
        compare.compare(wide, shipped)
    kick = synthetic.folder(tmp_path / "kick", {"wide": made["wide"][made["wide"]["n"].isin([512, 2048])]})
    with pytest.raises(ValueError, match="has only 48 of the 432 rows.*too few.*`make measure`"):
        compare.compare(kick, shipped)


@pytest.mark.parametrize("unmeasured", ["fresh", "shipped"])
def test_verdicts_that_one_side_cannot_give_decide_nothing_on_another_gpu(unmeasured):
    side = {"fresh": measures.REPRODUCED, "shipped": measures.REPRODUCED}
    known = compare.agreeing(pd.DataFrame([side, side | {unmeasured: measures.NOT_MEASURED}]))
    assert list(known) == [True, True]
    other = compare.agreeing(pd.DataFrame([side | {unmeasured: measures.PARTLY}]))
    assert list(other) == [False]


def test_verdicts_that_the_fresh_records_do_not_give_are_no_agreement(tmp_path, shipped, few_claims, monkeypatch):
    """On another GPU the verdicts decide; "not measured" everywhere would agree with anything."""
    synthetic.write_counters(shipped / "casper_sparse", {"warp_per_row": {"c": 1.0}})
    words = ({"counter": "c", "of": "warp_per_row"}, "median", {"at_least": 1, "partly": 0})
    asked = few_claims[:2]
    by_counters = [replace(asked[0], id=f"c{i}", rule=judging.rule(*words)) for i in range(3)]
    monkeypatch.setattr(compare.load, "claims", lambda: [*asked, *by_counters])
    other = {"gpu": "NVIDIA L4", "slug": "nvidia-l4"}
    fresh = synthetic.folder(tmp_path / "fresh", frames(gpu=other["gpu"]), **other)
    with pytest.raises(ValueError, match="gives only 2 of the 5 verdicts that .* gives, too few"):
        compare.compare(fresh, shipped)
    monkeypatch.setattr(compare.load, "claims", lambda: [*asked, *by_counters[:2]])
    assert compare.compare(fresh, shipped).exit_code == compare.AGREE


def test_records_without_a_baseline_compare_times(tmp_path):
    def alone(scale):
        df = synthetic.experiment("wide", scale=scale)
        return synthetic.folder(tmp_path / str(scale), {"wide": df[df["variant"] == "warp_per_row"]})

    codes = [compare.compare(alone(scale), alone(1.0)).exit_code for scale in (1.01, 1.5)]
    assert codes == [compare.AGREE, compare.DIFFER]


def test_ceilings_are_those_that_both_have(tmp_path, shipped):
    fresh = synthetic.folder(tmp_path / "fresh")
    records.write(fresh / "ceilings" / "ceilings.csv", synthetic.ceilings(copy=2000.0, fma=30.0).iloc[[0, 3]])
    assert compare.compare(fresh, shipped).ceilings == pytest.approx({"copy": 0.5, "fma": 0.5})


def test_bad_input(tmp_path, shipped):
    far = synthetic.experiment("wide")
    far = synthetic.folder(tmp_path / "far", {"wide": far.assign(n=far["n"] + 1)})
    for fresh, room, says in ((tmp_path / "no", None, "no records"), (shipped, "x", "'x'"), (far, None, "only 0 of")):
        with pytest.raises((ValueError, FileNotFoundError), match=says):
            compare.compare(fresh, shipped, room)
    path = far / "casper_sparse" / "wide.csv"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-3]))
    for sides in ((far, shipped), (shipped, far)):
        with pytest.raises(ValueError, match="wide.csv"):
            compare.compare(*sides)
