"""The model in worlds whose laws are known: it finds them, sees nothing of what is left out, and knows its limits."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import worlds
from refused import refused

from artifact import paths
from artifact.recommend import landscape, model, statistics


@pytest.fixture(scope="module")
def made():
    return worlds.pool(60)


def without(made, variant, but):
    """The pool without a contender's points, but for those of these matrices."""
    return replace(made, df=made.df[(made.df["variant"] != variant) | made.df["label"].isin(but)])


def said(pool, name, n=128, left_out=""):
    return model.guess(model.fit(pool, left_out), pool.matrices[name], n)


def test_left_out_in_turn_the_advice_is_good_and_better_than_any_constant(made):
    found = model.evaluate(made)
    assert len(found) == 120 and (found["ratio"] >= 1).all()
    name, share = model.always(made)
    assert model.good(found) > max(0.8, share), (name, share)
    low, high = model.off(found)
    assert 0.9 < low <= 1.01 and 0.99 <= high < 1.1, "the laws are sums of the model's own terms"


def test_few_matrices_are_ranked_by_their_neighbours_and_many_by_sums(made):
    few = worlds.pool(20)
    assert not model.fit(few).sums and model.fit(made).sums
    assert model.good(model.evaluate(few)) >= 0.7 and not model.guess(model.fit(few), few.matrices["m1"], 128).sums


def test_four_of_five_are_within_what_is_said():
    assert model.off(pd.DataFrame({"advised_us": np.arange(1.0, 12.0), "expected_us": 1.0})) == (2.0, 10.0)


@pytest.mark.parametrize(
    "form,never,always",
    [("", {"blocks_64"}, {"work"}), ("blocks", {"work", "windows_16", "longest"}, {"blocks_64"})],
)
def test_a_format_has_its_own_terms(made, form, never, always):
    """The same times, said to be of blocks or of CSR."""
    about = replace(made.about, formats={"*": form}) if form else made.about
    weights = model.fit(replace(made, about=about)).weights.sum(axis=0)
    used = {name for name, weight in zip(model.TERMS, weights, strict=True) if weight > 0}
    assert not used & never and always <= used


@pytest.mark.parametrize("points", [model.LEAST_POINTS - 1, model.LEAST_POINTS])
def test_who_was_measured_at_few_points_has_no_sum(made, points):
    win = made.df["variant"] == "win"
    few = replace(made, df=made.df[~win | (win.cumsum() <= points)])
    weights = pd.DataFrame(model.fit(few).weights, model.fit(few).variants)
    none = points < model.LEAST_POINTS
    assert weights.loc["win"].isna().all() == none and weights.drop("win").notna().all(axis=None)
    assert ("win" in set(said(few, "m0").table["variant"])) != none


@pytest.mark.parametrize("left_out", [True, False])
def test_what_is_left_out_is_not_seen(made, left_out):
    """Times of a matrix a thousand times as long change nothing of what is said of it; or they were looked at."""
    label, df = "m7", made.df.copy()
    df.loc[df["label"] == label, "median_us"] *= np.linspace(1, 1000, (df["label"] == label).sum())
    before, after = (said(pool, label, left_out=label * left_out).table for pool in (made, replace(made, df=df)))
    assert before.equals(after) == left_out


def test_who_was_not_measured_anywhere_near_is_not_advised(made):
    found = said(without(made, "win", but=["m1"]), "m1", left_out="m1").table
    assert "win" not in set(found["variant"]) and found["expected_us"].notna().all()


def test_nothing_left_is_a_sentence(made):
    refused("no record left without 'm1'", model.fit, replace(made, df=made.df[made.df["label"] == "m1"]), "m1")


def test_a_contender_that_refuses_counts_as_bad_where_it_refuses(made):
    few = replace(made, df=made.df[(made.df["variant"] == "auto") | made.df["label"].isin(["m1", "m2"])])
    good = (few.df["median_us"] <= model.GOOD * few.df.groupby(["label", "n"])["median_us"].transform("min")) & few.df[
        "variant"
    ].isin(few.advisable)
    points = few.df[["label", "n"]].drop_duplicates()
    assert model.always(few)[1] == pytest.approx(good.groupby(few.df["variant"]).sum().max() / len(points))


@pytest.mark.parametrize(
    "shipped", landscape.pools(paths.RECORDED / "nvidia-h200"), ids=lambda p: f"{p.about.room}-{p.about.experiment}"
)
def test_the_advice_from_the_shipped_records_is_mostly_good(shipped):
    """The page says how good; worse than this, something is broken."""
    found = model.evaluate(shipped)
    assert set(found["label"]) == set(shipped.matrices)
    assert model.good(found) >= 0.7 and found["ratio"].median() < 1.05


def test_the_nearest_points_say_what_preparation_is_and_larger_n_scales_the_time(made):
    """Parts of a sum are shares of it."""
    found = said(made, "m5")
    table = found.table.set_index("variant")
    assert table.loc[["win", "plain"], "prepare_ms"].tolist() == pytest.approx([2.0, 0.0], abs=1e-6)
    assert found.neighbours[0] == ("m5", 128) and len(found.neighbours) == model.RANKING
    assert sum(found.made_of.values()) == pytest.approx(1) and set(found.made_of) <= set(model.TERMS)
    assert 4 < said(made, "m5", 2048).table["expected_us"].min() / table["expected_us"].min() < 40


def test_what_a_time_goes_to_comes_with_the_largest_share_first(made):
    shares = [[*said(made, name).made_of.values()] for name in made.matrices]
    assert max(map(len, shares)) > 1 and all(x == sorted(x, reverse=True) for x in shares)


def test_a_matrix_of_nothing_has_finite_features():
    nothing = statistics.Statistics(**dict.fromkeys(statistics.FIELDS, 0) | {"m": 1, "k": 1})
    assert np.isfinite(model.features(nothing, 1)).all() and len(model.terms(nothing, 1)) == len(model.TERMS)
    assert (model.features(statistics.Statistics(**vars(nothing) | {"k": 0}), 1) <= 0).all(), "what is 0 is small"


@pytest.mark.parametrize("name", sorted({*statistics.FIELDS} - {"m", "k"}))
def test_twice_as_much_of_a_statistic_is_one_further_in_its_feature(name):
    s = statistics.Statistics(**dict.fromkeys(statistics.FIELDS, 1024))
    away = model.features(statistics.Statistics(**vars(s) | {name: 2048}), 8) - model.features(s, 8)
    used = {"nnz", "row_mean", "row_most", "row_variation", "spread", "windows_16", "windows_64", "blocks_64"}
    assert sorted(away.round(2)) == [0] * (len(away) - (name in used)) + [1] * (name in used)
    assert sorted((model.features(s, 16) - model.features(s, 8)).round(9)) == [0] * (len(away) - 2) + [1] * 2


def test_what_is_shared_by_all_rows_of_a_window_or_block_is_read_once_for_it():
    s = statistics.Statistics(**dict.fromkeys(statistics.FIELDS, 1.0) | {f"windows_{h}": h for h in statistics.WINDOWS})
    found = dict(zip(model.TERMS, model.terms(s, 3), strict=True))
    assert found["blocks_64"] * 64 == found["work"] == found["similar_8"]
    assert all(found[f"windows_{h}"] * h == pytest.approx(found["work"]) for h in statistics.WINDOWS)


def test_corrections_are_softened_and_weighted_by_distance():
    """Two points at distances 0 and 1: each counts by one over its squared distance and the softening."""
    mean = model._mean(np.array([[0.0], [1.0]]), 1 / (np.array([0.0, 1.0]) + model.SOFTENING[model.RANKING]))
    assert mean[0] == pytest.approx((1 / 1.1) / (1 / 0.1 + 1 / 1.1))
    assert np.isnan(model._mean(np.array([[np.nan]]), [1.0])[0])


def test_constant_features_count_for_nothing(made):
    matrices = {name: statistics.Statistics(**vars(s) | {"spread": 0.3}) for name, s in made.matrices.items()}
    alike = replace(made, matrices=matrices | {"far": statistics.Statistics(**vars(matrices["m3"]) | {"spread": 0.9})})
    assert said(alike, "far").neighbours == said(alike, "m3").neighbours
    assert np.isinf(model.fit(alike).scale).sum() >= 1
