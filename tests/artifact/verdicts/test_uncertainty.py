"""How sure verdicts are: what is drawn, of which run, and the shipped probabilities."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import synthetic
from judging import ALL, SPEEDUP, evidence, frames, rule

from artifact import paths
from artifact.measure import records
from artifact.verdicts import judge, load, uncertainty
from artifact.verdicts.measures import NOT_REPRODUCED, PARTLY, REPRODUCED

CLAIM = load.claims()[0]
EVEN = {"at_least": 1.0, "partly": 0.9}


def claim(reduce, expect) -> load.Claim:
    return replace(CLAIM, rule=rule(SPEEDUP, reduce, expect))


def values(speedup):
    return CLAIM.rule.quantity.func(evidence(frames(speedup)), ALL, "warp_per_row", "cusparse_best")


def drawn(of, speedup, other=None):
    """Verdicts of the resamples, and what was drawn; `other`: the speedup in every other run."""
    runs = [values(speedup)] + [values(speedup if other is None else other)] * uncertainty.RUNS
    verdicts, numbers, what = uncertainty.resampled(of, runs)
    return pd.Series(verdicts).value_counts(normalize=True), numbers, what


def split(m, n, k, d):
    """A speedup that depends on the size, so that its mean depends on which sizes are drawn."""
    return {512: 0.5, 1024: 0.6, 2048: 0.8}.get(n, 1.18)


@pytest.mark.parametrize(
    "reduce",
    [
        "geometric mean",
        {"geometric_mean": "each density"},
        "median",
        "each point",
        {"quantile": 0.1},
        {"share_of_points_above": 1.0},
    ],
)
@pytest.mark.parametrize("expect", [EVEN, {"near": [0.9, 1.0], "factor": 1.05, "partly": 1.3}])
def test_what_is_fast_says_what_the_rule_itself_says(monkeypatch, reduce, expect):
    monkeypatch.setattr(uncertainty, "RESAMPLES", 40)
    monkeypatch.setattr(uncertainty, "FEWER", 40)
    fast = drawn(claim(reduce, expect), split)
    monkeypatch.setattr(uncertainty, "PLAIN", ())
    slow = drawn(claim(reduce, expect), split)
    assert fast[0].equals(slow[0]) and np.allclose(fast[1], slow[1]) and fast[2] == slow[2]


def test_far_from_a_limit_a_verdict_is_sure_and_at_the_limit_it_is_not():
    far, _, what = drawn(claim("geometric mean", EVEN), 1.5)
    assert (
        far.to_dict() == {REPRODUCED: 1.0}
        and what == f"{len(set(values(1.5).all.index.droplevel(['contender', 'experiment'])))} points"
    )
    mean = records.geomean(values(split).all)
    share, numbers, _ = drawn(claim("geometric mean", {"at_least": mean, "partly": 0.1}), split)
    assert 0.4 < share[REPRODUCED] < 0.6 and set(share.index) == {REPRODUCED, PARTLY}
    low, high = np.percentile(numbers, uncertainty.ENDS)
    assert low < mean < high


def test_half_of_the_resamples_take_another_run():
    share, _, _ = drawn(claim("geometric mean", EVEN), 1.5, other=0.5)
    assert share[REPRODUCED] == pytest.approx(0.5, abs=0.06) and share[NOT_REPRODUCED] == pytest.approx(0.5, abs=0.06)


def test_lines_are_drawn_whole():
    """Of three densities two fall and one rises: none of the lines is ever half a line."""
    course = claim({"trend": "n"}, {"falls": 0.05})
    share, numbers, what = drawn(course, lambda m, n, k, d: 1.0 + (n if d > 0.005 else -n) / 1e5)
    assert what.endswith(" lines") and {REPRODUCED, PARTLY, NOT_REPRODUCED} >= set(share.index) and len(share) > 1


def test_another_run_is_the_second_one_or_has_its_scatter(tmp_path):
    """Times of the second run where it is recorded; else near those of the first, rates the other way."""
    e = uncertainty.Evidence(synthetic.folder(tmp_path), "casper_sparse")
    first, same = e.frame(["wide"]), uncertainty.another(e, "wide", 1)
    assert np.allclose(same["median_us"], first["median_us"])  # nothing was measured twice
    shipped = uncertainty.Evidence(paths.RECORDED / paths.HOME, "casper_sparse")
    second = records.read(paths.RECORDED / paths.HOME / "casper_sparse" / records.REPEAT / "wide.csv")
    found = uncertainty.another(shipped, "wide", 1).merge(second, on=list(records.KEY), suffixes=("", "_second"))
    assert len(found) == len(second) and np.allclose(found["median_us"], found["median_us_second"])
    once = shipped.frame(["ragged"])
    runs = [uncertainty.another(shipped, "ragged", run) for run in (1, 2)]
    ratios = [run["median_us"].to_numpy() / once["median_us"].to_numpy() for run in runs]
    assert all(0 < np.abs(np.log(ratio)).max() < 0.5 for ratio in ratios)
    assert np.allclose(runs[0]["tflops"] * runs[0]["median_us"], once["tflops"] * once["median_us"])


def test_what_is_shipped_is_what_is_made(tmp_path, monkeypatch):
    """Of claims of each kind: with a second run, with the scatter of others, and of what is read once."""
    folder = paths.RECORDED / paths.HOME
    shipped = pd.read_csv(folder / judge.STABILITY, dtype=str)
    few = shipped.groupby(["runs", "resamples"]).head(1)
    made, draws = uncertainty.stability(folder, set(few["claim"]))
    uncertainty.write(tmp_path / "made.csv", made)
    assert pd.read_csv(tmp_path / "made.csv", dtype=str).equals(few.reset_index(drop=True))
    monkeypatch.setattr(uncertainty, "RESAMPLES", 20)
    judged = {paths.HOME: judge.kept(load.claims(), folder)}
    table = uncertainty.tally(judged, {paths.HOME: draws}).set_index("verdict")
    assert table["count"].to_dict() == judge.counts(judge.deciding(judged))
    assert ((table["low"] <= table["count"]) & (table["count"] <= table["high"])).all()
