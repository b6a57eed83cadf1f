"""The pictures: what they are drawn from is the format, the preprocessing and the schedules themselves."""

import numpy as np
import pandas as pd
import pytest
from drawn import legible, words

from artifact.drawing import style
from artifact.rooms.nm_spmm import model, pictures
from kernels.formats import nm
from kernels.nm_spmm import analysis, packing

MODERATE, HIGH = (nm.random(128, 256, keep, 32, 32, 0) for keep in (16, 4))
CASES = {"moderate": MODERATE, "high": HIGH}
SMALL = nm.random(32, 16, 2, 8, 4, 1)
TIMES = {"load": 180.0, "index": 15.0, "fragments": 0.0, "compute": 420.0}


@pytest.fixture(autouse=True)
def look():
    style.apply()


def test_the_format_has_every_stored_value():
    b = nm.random(12, 8, 2, 4, 4, 3)
    fig, data = pictures.format_picture(b)
    dense = nm.to_dense(b)
    assert (dense[data["row"], data["column"]] == data["value"].astype(dense.dtype)).all() and len(data) == b.val.size
    assert (data["row"] == data["window"] * b.group + data["position"]).all()
    legible(fig)


def test_working_set_agrees_with_the_preprocessing():
    ready = packing.prepare(HIGH, 128, 2, packed=True, slot=32)
    fig, data = pictures.working_set(CASES)
    high = data[data["case"] == "high"]
    assert high.loc[high["vectors"] > 0, "row"].tolist() == ready.col_info[0, 0, : ready.count[0, 0]].tolist()
    assert len([p for p in fig.get_axes()[0].patches if p.get_hatch()]) == (data["vectors"] == 0).sum()
    legible(fig)


def test_what_a_block_needs_is_what_packing_stages():
    for b in CASES.values():
        assert model.needed(b, 1) == pytest.approx(b.keep / b.group)
        ready = packing.prepare(b, 128, 1, packed=True, slot=32)
        assert model.needed(b, 4) == pytest.approx(analysis.staged_share(ready))


@pytest.mark.parametrize("kind", analysis.TABLE_1)
def test_blocking_gives_every_lane_its_thread_tile(kind):
    tile = analysis.TABLE_1[kind]
    fig, data = pictures.blocking(tile, kind)
    assert data["lane"].tolist() == list(range(32))
    covered = np.zeros(tile.warp, int)
    for piece in data.itertuples():
        covered[piece.row : piece.row + piece.height, piece.column : piece.column + piece.width] += 1
    assert (covered == 1).all() and f"m_s × n_s = {tile.rows} × {tile.columns}" in " ".join(words(fig))
    legible(fig)


def test_packing_picture_follows_every_index():
    ready = packing.prepare(SMALL, 8, 2, packed=True, slot=4, tiled=True)
    fig, data = pictures.packing_picture(SMALL, ready)
    assert (ready.col_info[0, 0][data["stored"]] == data["row"]).all()  # the reordered index finds the same rows
    assert (data["row"] % SMALL.group == data["position"]).all() and len(data) == ready.rows * 2
    count, said = int(ready.count[0, 0]), words(fig)
    assert f"col_info:\n{count} of 16 rows" in said
    assert len([p for p in fig.get_axes()[0].patches if hasattr(p, "get_arrowstyle")]) == count
    tiled = np.ravel_multi_index((1, 1, 0, 0), (2, 2, 4, 8))
    assert f"+{tiled}" in said and f"+{4 * 16 + 8}" in said
    legible(fig)


# ---------------------------------------------------------------- schedules


def ends(bars: pd.DataFrame, what: str) -> pd.DataFrame:
    """Start and end of what a step does, by step."""
    return bars[bars["what"] == what].groupby("step").agg({"start": "min", "end": "max"})


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("more", [{}, {"col_info": 40.0}, {"fragments": 100.0, "col_info": 700.0}])
@pytest.mark.parametrize("compute", [60.0, 420.0])
def test_schedule_waits_for_what_it_needs(overlap, more, compute):
    durations = TIMES | {"compute": compute} | more
    bars = pictures.schedule(durations, 6, overlap)
    for what, duration in durations.items():
        here = bars[bars["what"] == what]
        total = (here["end"] - here["start"]).groupby(here["step"]).sum()
        np.testing.assert_allclose(total, duration)  # whatever it does takes its time in every step
        assert total.index.tolist() == (list(range(6)) if duration else [])
    for _, lane in bars.groupby("lane"):  # a lane does one thing at a time
        lane = lane.sort_values("start")
        assert (lane["start"].to_numpy()[1:] >= lane["end"].to_numpy()[:-1] - 1e-9).all()
    load, compute = ends(bars, "load"), ends(bars, "compute")
    assert (compute["start"] >= load["end"]).all() and (ends(bars, "index")["start"] >= load["end"]).all()
    # Of two buffers, the one that is loaded is no longer read.
    assert (load["start"].to_numpy()[2:] >= compute["end"].to_numpy()[:-2]).all()
    if "col_info" in more:
        assert (load["start"] >= ends(bars, "col_info")["end"]).all()
    if not overlap:
        assert bars["end"].max() == pytest.approx(6 * sum(durations.values()))


def test_schedule_hides_the_shorter_of_the_two():
    def period(durations: dict[str, float], overlap: bool) -> float:
        return pictures.period_of(pictures.schedule(durations, 6, overlap))

    assert period(TIMES, True) == pytest.approx(420 + 15)  # the loads are hidden
    assert period(TIMES, False) == pytest.approx(615)
    high = {"col_info": 40, "load": 260, "compute": 130}
    assert period(high, True) == pytest.approx(300)  # the multiplications are hidden
    # All slices but the first are read behind the multiplications of the one before.
    assert period(TIMES | {"fragments": 200.0}, True) == pytest.approx(420 + 15 + 200 / pictures.SLICES)


@pytest.mark.parametrize("more", [{}, {"col_info": 40.0, "fragments": 100.0}])
def test_pipeline_draws_its_schedules(more):
    fig, data = pictures.pipeline(TIMES | more, "a title", steps=4)
    bars = [p for p in fig.get_axes()[0].patches if p.get_fill()]
    assert sorted(p.get_width() for p in bars) == pytest.approx(sorted(data["end"] - data["start"]))
    assert f"one after the other: {615 + sum(more.values()):.3g} ns a step" in words(fig)
    assert ("col_info" in [text.get_text() for text in fig.legends[0].get_texts()]) == ("col_info" in more)
    legible(fig)


@pytest.mark.parametrize("tiles,steps,blocks", [((32, 16), 64, 132), ((3, 2), 5, 7), ((4, 4), 8, 16)])
def test_shares_are_all_steps_of_all_tiles_and_are_even(tiles, steps, blocks):
    _, data = pictures.shares(tiles, steps, blocks)
    length = data["end"] - data["start"]
    assert (length > 0).all() and set(data["what"]) <= set(pictures.PARTS)
    for name, df in data.groupby("schedule"):
        assert length[df.index].groupby(df["tile"]).sum().eq(steps).all(), name
        assert df["tile"].nunique() == tiles[0] * tiles[1]
        for _, mine in df.groupby("block"):
            assert (mine["start"].iloc[1:].array == mine["end"].iloc[:-1].array).all() and mine["start"].iloc[0] == 0
    last = {name: df.groupby("block")["end"].max() for name, df in data.groupby("schedule")}
    assert last["stream-K"].max() <= last["waves"].max()
    assert last["stream-K"].max() - last["stream-K"].min() <= 1
