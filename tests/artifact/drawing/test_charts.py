"""Charts over records that any room can draw."""

from __future__ import annotations

import re
from functools import partial

import numpy as np
import pandas as pd
import pytest
import synthetic
from drawn import labels as labels_of
from drawn import overlaps, words

from artifact.drawing import charts, style
from artifact.measure import records


@pytest.mark.parametrize("experiment,x", [("wide", "n"), ("square", "n"), ("tall", "m")])
def test_sweep_panel(sweeps, experiment, x):
    df = sweeps[sweeps["experiment"] == experiment]
    fig, data = charts.sweep_panel(df, x, synthetic.LADDER, claim=(0.55, 0.9), copy_gbps=4000, xlabel="size")
    axes = fig.get_axes()
    assert len(axes) == 9 and axes[0].get_xscale() == axes[0].get_yscale() == "log"
    labels = labels_of(fig)
    assert "stated by the source: 0.55–0.90×" in labels and "cuSPARSE, best algorithm" in labels
    assert set(data["variant"]) == {"warp_per_row", "rows_per_warp", "cusparse_best"}
    assert data.loc[data["variant"] == "cusparse_best", "speedup"].eq(1).all()
    assert len(data) == 3 * len(synthetic.SHAPES[experiment]) * len(synthetic.DENSITIES)
    drawn = dict(zip(labels, fig.legends[0].get_lines(), strict=False))
    measured = pd.concat(
        records.speedup(df, v, "cusparse_best").to_frame().assign(variant=v) for v in ("warp_per_row", "rows_per_warp")
    ).reset_index()
    for row, quantity in enumerate(("median_us", "gbps", "speedup")):
        for column, density in enumerate(synthetic.DENSITIES):
            lines = axes[3 * row + column].get_lines()
            for variant in ("warp_per_row", "rows_per_warp", "cusparse_best"):
                if quantity == "speedup" and variant == "cusparse_best":
                    continue  # it is 1
                here = measured if quantity == "speedup" else df
                here = here[(here["variant"] == variant) & (here["density"] == density)]
                here = here.sort_values(x)
                look = drawn[style.name(variant)]
                (line,) = (at for at in lines if at.get_marker() == look.get_marker())
                assert line.get_color() == look.get_color()
                np.testing.assert_array_equal(line.get_xdata(), here[x])
                np.testing.assert_allclose(line.get_ydata(), here[quantity])
    assert not overlaps(fig)


def test_sweep_panel_of_one_point(sweeps):
    df = sweeps[(sweeps["experiment"] == "wide") & (sweeps["n"] == 512) & (sweeps["density"] < 0.006)]
    fig, data = charts.sweep_panel(df, "n", synthetic.LADDER)
    assert len(fig.get_axes()) == 3 and len(data) == 3


def test_rows_of_a_sweep_panel_are_chosen(sweeps):
    df = sweeps[sweeps["experiment"] == "wide"]
    fig, whole = charts.sweep_panel(df, "n", synthetic.LADDER, claim=(0.55, 0.9), rows=["speedup"])
    assert len(fig.get_axes()) == 3 and "speedup" in fig.get_axes()[0].get_ylabel()
    fig, data = charts.sweep_panel(df, "n", synthetic.LADDER, rows=["median_us", "gbps"])
    assert [ax.get_yscale() for ax in fig.get_axes()] == ["log"] * 6
    pd.testing.assert_frame_equal(whole, data)


def test_dots_are_where_the_table_says():
    table = pd.DataFrame({"warp_per_row": [0.5, 2.0], "rows_per_warp": [1.5, np.nan]}, ["one", "two"])
    looks = partial(style.look, variants=synthetic.LADDER)
    fig, data = charts.dots(table, looks, "speed")
    (ax,) = fig.get_axes()
    assert [text.get_text() for text in ax.get_yticklabels()] == ["one", "two"]
    drawn = {line.get_marker(): np.asarray(line.get_xdata()) for line in ax.get_lines()}
    for variant in table:
        got = drawn[style.look(variant, synthetic.LADDER)["marker"]]
        np.testing.assert_array_equal(got, table[variant])
    assert len(data) == 3 and data["value"].tolist() == [0.5, 1.5, 2.0] and not overlaps(fig)
    with pytest.raises(ValueError, match="nothing to draw"):
        charts.dots(table * np.nan, looks, "speed")


def test_ladder_without_a_prediction(sweeps):
    fig, data = charts.ladder(sweeps, {"warp_per_row": "", "any_n": "Faster."})
    said = words(fig)
    assert said.count("–") == 1 and "Faster." in said
    assert set(data["prediction"]) == {"", "Faster."}


def test_ladder_has_what_the_source_states_in_its_first_row(sweeps):
    rungs = {"warp_per_row": "", "any_n": ""}
    stated = {"wide": (0.55, 0.9), "tall": (float("nan"), 1.0)}
    fig, data = charts.ladder(sweeps, rungs, stated=stated)
    (ax,) = fig.get_axes()
    hollow = [line for line in ax.get_lines() if line.get_markerfacecolor() == "none"]
    there = [e for e in stated if e in set(data["experiment"])]
    assert "wide" in there and len(hollow) == len(there)
    assert list(hollow[0].get_xdata()) == [0.55, 0.9]
    first = data[data["variant"] == "warp_per_row"].set_index("experiment")
    assert first.loc["wide", "stated_high"] == 0.9
    assert data.loc[data["variant"] == "any_n", "stated_high"].isna().all()
    assert "stated_low" not in charts.ladder(sweeps, rungs)[1]


def test_ladder(sweeps):
    predictions = dict.fromkeys([*synthetic.LADDER, "not_measured"], "Faster, by a lot. " * 6)
    fig, data = charts.ladder(sweeps, predictions)
    assert list(dict.fromkeys(data["variant"])) == list(synthetic.LADDER)
    one = data[(data["variant"] == "warp_per_row") & (data["experiment"] == "wide")].iloc[0]
    wide = sweeps[sweeps["experiment"] == "wide"]
    expected = records.geomean(records.speedup(wide, "warp_per_row", "cusparse_best"))
    assert one["speedup"] == pytest.approx(expected) and one["least"] < expected < one["most"]
    assert not overlaps(fig)
    with pytest.raises(ValueError, match="None of the rungs"):
        charts.ladder(sweeps, {"x": ""})


def test_spread():
    first = synthetic.experiment("wide")
    second = first.assign(median_us=first["median_us"] * 1.02)
    fig, data = charts.spread(first, second, synthetic.LADDER)
    np.testing.assert_allclose(data["ratio"], 1.02)
    assert not overlaps(fig)
    with pytest.raises(ValueError, match="share no point"):
        charts.spread(first, synthetic.experiment("tall"), synthetic.LADDER)


def test_plots_can_be_shown_on_one_page(sweeps):
    wide = sweeps[sweeps["experiment"] == "wide"]
    pages = [
        style.show(*pair[:1], "casper_sparse", name, pair[1], "alt", "caption")._repr_html_()
        for name, pair in {
            "wide": charts.sweep_panel(wide, "n", synthetic.LADDER),
            "spread": charts.spread(wide, wide, synthetic.LADDER),
        }.items()
    ]
    ids = re.findall(r'\bid="([^"]*)"', "".join(pages))
    assert len(ids) == len(set(ids))
