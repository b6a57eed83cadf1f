"""The model in worlds whose laws are known: it finds them, sees nothing of what is left out, and knows its limits."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import worlds

from artifact import paths
from artifact.which import atlas, model, statistics


@pytest.fixture(scope="module")
def made():
    return worlds.pool(60)


def test_terms_have_names_and_features_are_finite_for_nothing(made):
    s = next(iter(made.matrices.values()))
    assert len(model.terms(s, 64)) == len(model.TERMS) == len(model.SAID)
    none = ("nnz", "row_mean", "row_most", "windows_16", "windows_64", "blocks_64", "spread")
    empty = statistics.Statistics(**vars(s) | dict.fromkeys(none, 0))
    assert np.isfinite(model.features(empty, 1)).all() and np.isfinite(model.terms(empty, 1)).all()


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
    found = model.evaluate(few)
    assert model.good(found) >= 0.7 and not model.guess(model.fit(few), few.matrices["m1"], 128).sums


def test_what_all_matrices_have_alike_tells_nothing(made):
    fitted, s = model.fit(made), made.matrices["m1"]
    assert len({x.spread for x in made.matrices.values()}) == 1
    here, far = (
        model.guess(fitted, x, 128).table for x in (s, statistics.Statistics(**vars(s) | {"spread": 100 * s.spread}))
    )
    assert here.equals(far)


def test_four_of_five_are_within_what_is_said():
    found = pd.DataFrame({"advised_us": np.arange(1.0, 12.0), "expected_us": 1.0})
    assert model.off(found) == (2.0, 10.0)


def test_what_a_time_is_made_of(made):
    """Laws and sums agree on what most of the time of a large matrix goes to."""
    label = max(made.matrices, key=lambda name: made.matrices[name].nnz)
    guess = model.guess(model.fit(made, label), made.matrices[label], 512)
    assert sum(guess.made_of.values()) == pytest.approx(1) and set(guess.made_of) <= set(model.TERMS)
    shares = list(guess.made_of.values())
    assert shares == sorted(shares, reverse=True)
    gathers = (
        "work",
        *(f"{kind}_{h}" for kind in ("windows", "similar") for h in statistics.WINDOWS),
    )
    assert sum(guess.made_of.get(term, 0) for term in gathers) > 0.5


def test_a_format_has_its_own_terms(made):
    """The same times, said to be of blocks or of CSR."""
    names = list(model.TERMS)
    blocks = atlas.Pool(replace(made.about, formats={"*": "blocks"}), made.df, made.matrices)
    for fitted, not_its in (
        (model.fit(made), {"blocks_64"}),
        (model.fit(blocks), {"work", "windows_16", "longest"}),
    ):
        used = {names[i] for i in np.flatnonzero(fitted.weights.sum(axis=0) > 0)}
        assert not used & not_its
    assert "blocks_64" in used


def test_who_was_measured_at_few_points_has_no_sum(made):
    df = made.df[(made.df["variant"] != "win") | made.df["label"].isin(["m1", "m2"])]
    fitted = model.fit(atlas.Pool(made.about, df, made.matrices))
    at = fitted.variants.index("win")
    assert np.isnan(fitted.weights[at]).all() and not np.isnan(np.delete(fitted.weights, at, 0)).any()
    assert "win" not in set(model.guess(fitted, made.matrices["m1"], 128).table["variant"])


def test_what_is_left_out_is_not_seen(made):
    """Times of a matrix a thousand times as long change nothing of what is said of it."""
    (label, s) = list(made.matrices.items())[7]
    df = made.df.copy()
    df.loc[df["label"] == label, "median_us"] *= np.linspace(1, 1000, (df["label"] == label).sum())
    other = atlas.Pool(made.about, df, made.matrices)
    before, after = (model.guess(model.fit(p, label), s, 128).table for p in (made, other))
    assert before.equals(after)
    seen = [model.guess(model.fit(p), s, 128).table for p in (made, other)]
    assert not seen[0].equals(seen[1]), "or the times were never looked at"


def test_neighbours_are_the_nearest_points(made):
    label, s = next(iter(made.matrices.items()))
    guess = model.guess(model.fit(made), s, 512)
    assert guess.neighbours[0] == (label, 512) and len(guess.neighbours) == model.RANKING
    assert label not in {name for name, _ in model.guess(model.fit(made, label), s, 512).neighbours}


def test_n_that_nobody_measured_scales_the_time(made):
    s = made.matrices["m3"]
    small, large = (model.guess(model.fit(made), s, n).table["expected_us"].min() for n in (128, 2048))
    assert 4 < large / small < 40


def test_who_was_not_measured_anywhere_near_is_not_advised(made):
    df = made.df[(made.df["variant"] != "win") | (made.df["label"] == "m1")]
    few = atlas.Pool(made.about, df, made.matrices)
    found = model.guess(model.fit(few, "m1"), made.matrices["m1"], 128).table
    assert "win" not in set(found["variant"]) and found["expected_us"].notna().all()


def test_preparation_is_what_it_was_nearby(made):
    table = model.guess(model.fit(made), made.matrices["m5"], 128).table.set_index("variant")
    assert table.loc["win", "prepare_ms"] == pytest.approx(2.0, rel=1e-6)
    assert table.loc["plain", "prepare_ms"] == pytest.approx(0.0, abs=1e-9)


def test_nothing_left_is_a_sentence(made):
    one = atlas.Pool(made.about, made.df[made.df["label"] == "m1"], {"m1": made.matrices["m1"]})
    with pytest.raises(ValueError, match="no record left without 'm1'"):
        model.fit(one, "m1")


def test_a_contender_that_refuses_counts_as_bad_where_it_refuses(made):
    df = made.df[(made.df["variant"] != "cut") | made.df["label"].isin(["m1", "m2"])]
    share = model.always(atlas.Pool(made.about, df, made.matrices))[1]
    assert share <= model.always(made)[1]


@pytest.mark.parametrize(
    "shipped", atlas.pools(paths.RECORDED / "nvidia-h200"), ids=lambda p: f"{p.about.room}-{p.about.experiment}"
)
def test_the_advice_from_the_shipped_records_is_mostly_good(shipped):
    """The page says how good; worse than this, something is broken."""
    found = model.evaluate(shipped)
    assert set(found["label"]) == set(shipped.matrices)
    assert model.good(found) >= 0.7 and found["ratio"].median() < 1.05
