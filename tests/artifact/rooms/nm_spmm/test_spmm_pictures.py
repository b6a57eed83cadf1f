"""The pictures of nm_spmm: what they show is what the arrays hold."""

import re
from dataclasses import replace
from xml.etree import ElementTree

import drawn
import matplotlib
import numpy as np
import pandas as pd
import pytest

matplotlib.use("agg")

from drawn import words
from matplotlib import pyplot as plt
from matplotlib.colors import to_hex

from artifact import paths
from artifact.drawing import style
from artifact.rooms.nm_spmm import pictures as spmm_pictures
from kernels.formats import nm
from kernels.nm_spmm import analysis, packing

legible = drawn.legible
MODERATE, HIGH = nm.random(192, 256, 16, 32, 32, 0), nm.random(192, 256, 4, 32, 32, 0)
CASES = {"50 % sparsity": MODERATE, "87.5 % sparsity": HIGH}
SMALL = nm.random(32, 16, 2, 8, 4, 1)
TIMES = {"load": 180.0, "index": 15.0, "compute": 420.0}


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(paths, "FIGURES", tmp_path)
    style.apply()
    yield tmp_path
    plt.close("all")


# ---------------------------------------------------------------- the format


@pytest.mark.parametrize("sizes", [(8, 12, 2, 4, 4), (16, 16, 4, 8, 8), (9, 7, 3, 4, 3)])
def test_format_picture_shows_the_matrix_and_its_arrays(sizes):
    b = nm.random(*sizes, 3)
    fig, data = spmm_pictures.format_picture(b)
    dense = np.zeros((b.k, b.n))
    np.add.at(dense, (data["row"], data["column"]), data["value"])
    np.testing.assert_array_equal(dense, nm.to_dense(b))
    assert (data["row"] == data["window"] * b.group + data["position"]).all()
    assert (data["vector"] == data["column"] // b.vector).all()
    said = words(fig)
    assert f"B: {b.k} × {b.n}" in said and f"index: {b.w} × {b.q}" in said
    cells = [text for text in said if re.fullmatch(r"\.\d\d|1\.0", text)]
    assert len(cells) == 2 * np.count_nonzero(b.val)  # in the matrix and among the values
    legible(fig)


def test_format_picture_frames_one_vector_in_all_three():
    b = nm.random(8, 12, 2, 4, 4, 3)
    fig, data = spmm_pictures.format_picture(b)
    frames = [p for p in fig.get_axes()[0].patches if p.get_linewidth() > 2]
    matrix, values, index = sorted(frames, key=lambda frame: frame.get_x())
    assert matrix.get_width() == values.get_width() == b.vector
    assert values.get_y() == index.get_y()
    (row,) = set(data[(data["compressed_row"] == values.get_y()) & (data["vector"] == 0)]["row"])
    assert matrix.get_y() == row


@pytest.mark.parametrize("k,n", [(17, 8), (8, 17)])
def test_format_picture_refuses_what_cannot_be_read(k, n):
    with pytest.raises(ValueError, match=f"{k} x {n} is too large"):
        spmm_pictures.format_picture(nm.random(k, n, 2, 4, 4, 0))


# ---------------------------------------------------------------- the working set


def test_working_set_counts_the_rows_that_a_block_needs():
    fig, data = spmm_pictures.working_set(CASES, columns=128, depth=64, block=1, step=2)
    for title, b in CASES.items():
        windows = slice(4 * b.keep, 6 * b.keep)
        rows, counts = np.unique(b.index[windows, 4:8], return_counts=True)
        here = data[(data["case"] == title) & (data["vectors"] > 0)]
        assert here["row"].tolist() == rows.tolist() and here["vectors"].tolist() == list(counts)
        share = f"{len(rows)} of 64 rows of A_s are needed: {100 * len(rows) / 64:.0f} %"
        assert share in words(fig)
    idle = [p for p in fig.get_axes()[0].patches if p.get_hatch()]
    assert len(idle) == (data["vectors"] == 0).sum()  # told by more than colour
    legible(fig)


def test_working_set_agrees_with_the_preprocessing():
    ready = packing.prepare(HIGH, 128, 2, packed=True, slot=32)
    _, data = spmm_pictures.working_set({"": HIGH}, columns=128, depth=64, block=1, step=1)
    rows = data.loc[data["vectors"] > 0, "row"].tolist()
    assert rows == ready.col_info[1, 1, : ready.count[1, 1]].tolist()


def test_working_set_of_short_ends():
    b = nm.random(40, 40, 4, 32, 32, 0)  # one row of 32 and one of 8, a vector of 32 and one of 8
    fig, data = spmm_pictures.working_set({"": b}, columns=64, depth=64)
    assert len(data) == 40 and any("of 40 rows" in text for text in words(fig))
    legible(fig)


@pytest.mark.parametrize(
    "bad,said",
    [
        ({"depth": 128}, "cannot be drawn"),
        ({"depth": 48}, "a multiple of 32"),
        ({"step": 3}, "no step 3"),
        ({"step": -1}, "no step -1"),
        ({"block": 2}, "no block 2"),
    ],
)
def test_working_set_refuses_what_there_is_not(bad, said):
    with pytest.raises(ValueError, match=said):
        spmm_pictures.working_set(CASES, **bad)


def test_footprint_lies_between_its_bounds():
    fig, data = spmm_pictures.footprint(CASES)
    assert set(data["vectors"]) == {1, 2, 4, 8}  # 256 columns have no 16 vectors
    for title, b in CASES.items():
        here = data[data["case"] == title].set_index("vectors")
        assert here.loc[1, "per_cent"] == pytest.approx(100 * b.keep / b.group)
        assert here["per_cent"].is_monotonic_increasing and here["per_cent"].max() <= 100
        expected = [100 * analysis.needed_share(b.keep / b.group, v) for v in here.index]
        np.testing.assert_allclose(here["expected"], expected)
        np.testing.assert_allclose(here["per_cent"], expected, atol=8)
        ready = packing.prepare(b, 128, 1, packed=True, slot=32)
        assert here.loc[4, "per_cent"] == pytest.approx(100 * analysis.staged_share(ready))
    legible(fig)
    with pytest.raises(ValueError, match="1 to 7 cases, not 0"):
        spmm_pictures.footprint({})


# ---------------------------------------------------------------- blocking


@pytest.mark.parametrize("kind", analysis.TABLE_1)
def test_blocking_gives_every_lane_its_thread_tile(kind):
    tile = analysis.TABLE_1[kind]
    fig, data = spmm_pictures.blocking(tile, kind)
    assert data["lane"].tolist() == list(range(32))
    assert set(zip(data["height"], data["width"], strict=True)) == {tile.thread}
    covered = np.zeros(tile.warp, int)
    for piece in data.itertuples():
        rows, columns = (
            slice(piece.row, piece.row + piece.height),
            slice(piece.column, piece.column + piece.width),
        )
        covered[rows, columns] += 1
    assert (covered == 1).all()
    said = " ".join(words(fig))
    m, n = tile.thread
    assert f"{m * n} FMA\nfor {m + n} values" in said and kind in words(fig)
    assert f"m_s × n_s = {tile.rows} × {tile.columns}" in said
    legible(fig)


def test_blocking_of_lanes_in_pieces():
    """Each lane has two halves of 4 rows, 32 rows apart, as for loads of 16 bytes."""
    tile = analysis.TABLE_1["large"]
    row, column = np.indices(tile.warp)
    lanes = row % 32 // 4 * 4 + column // 8
    fig, data = spmm_pictures.blocking(tile, lanes=lanes)
    assert len(data) == 64 and set(data["height"]) == {4} and set(data["width"]) == {8}
    assert data.loc[data["lane"] == 5, "row"].tolist() == [4, 36]
    legible(fig)


def test_blocking_colours_lanes_that_read_the_same_rows():
    fig, data = spmm_pictures.blocking(analysis.TABLE_1["large"])
    texts = {t.get_text(): t.get_position() for t in fig.findobj(plt.Text)}
    colours = {}
    for patch in fig.get_axes()[0].patches:
        (x, y), width, height = patch.get_xy(), patch.get_width(), patch.get_height()
        for lane in range(32):
            at = texts[f"{lane}"]
            if not patch.get_fill() and np.allclose(at, (x + width / 2, y + height / 2)):
                colours[lane] = to_hex(patch.get_edgecolor())
    rows = data.set_index("lane")["row"]
    for lane in range(1, 32):
        same = rows[lane] == rows[lane - 1]
        assert (colours[lane] == colours[lane - 1]) == same
    assert len(set(colours.values())) == 8


def test_blocking_refuses_tiles_that_do_not_fit():
    tile = analysis.TABLE_1["large"]
    with pytest.raises(ValueError, match=r"warp tile of \(48, 32\) does not divide"):
        spmm_pictures.blocking(replace(tile, warp=(48, 32)))
    with pytest.raises(ValueError, match=r"thread tile of \(8, 5\) does not divide"):
        spmm_pictures.blocking(replace(tile, thread=(8, 5)))
    with pytest.raises(ValueError, match="with 64 lanes"):
        spmm_pictures.blocking(replace(tile, thread=(8, 4)))
    with pytest.raises(ValueError, match="lanes 0 to 31"):
        spmm_pictures.blocking(tile, lanes=np.zeros((64, 32), int))


# ---------------------------------------------------------------- preprocessing


@pytest.mark.parametrize("slot", [2, 4])
@pytest.mark.parametrize("tiled", [False, True])
@pytest.mark.parametrize("block,step", [(0, 0), (1, 1)])
def test_packing_picture_follows_every_index(slot, tiled, block, step):
    ready = packing.prepare(SMALL, 8, 2, packed=True, slot=slot, tiled=tiled)
    fig, data = spmm_pictures.packing_picture(SMALL, ready, block, step)
    staged = ready.col_info[block, step]
    assert (staged[data["stored"]] == data["row"]).all()  # the reordered index finds the same rows
    assert (data["row"] % SMALL.group == data["position"]).all()
    vectors = (block * 8 + data["slot"] * slot) // SMALL.vector
    assert (data["vector"] == vectors).all() and len(data) == ready.rows * 8 // slot
    count = int(ready.count[block, step])
    said = words(fig)
    assert f"col_info:\n{count} of 16 rows" in said
    arrows = [p for p in fig.get_axes()[0].patches if hasattr(p, "get_arrowstyle")]
    assert len(arrows) == count
    first = np.ravel_multi_index((block, step, 0, 0), (2, 2, 4, 8))
    assert (f"+{first}" in said and "one piece a step" in said) == tiled
    assert f"+{step * 4 * 16 + block * 8}" in said
    legible(fig)


def test_packing_picture_without_packing():
    ready = packing.prepare(SMALL, 8, 2, packed=False, slot=4)
    fig, data = spmm_pictures.packing_picture(SMALL, ready, 1, 1)
    assert (data["stored"] + 16 == data["row"]).all()
    assert "index, reordered:\nin the step" in words(fig)
    assert not any("col_info" in text for text in words(fig))
    legible(fig)


def test_packing_picture_of_short_ends():
    b = nm.random(20, 10, 2, 8, 4, 2)
    ready = packing.prepare(b, 8, 2, packed=True, slot=2, tiled=True)
    fig, data = spmm_pictures.packing_picture(b, ready, 1, 1)
    assert set(data["vector"]) == {2} and data["compressed_row"].tolist() == [4, 5]
    assert (ready.col_info[1, 1][data["stored"]] == data["row"]).all()
    legible(fig)


def test_packing_picture_refuses_what_cannot_be_drawn():
    ready = packing.prepare(SMALL, 8, 2, packed=True, slot=4)
    for block, step in ((2, 0), (0, 2), (-1, 0)):
        with pytest.raises(ValueError, match=f"no block {block} with a step {step}"):
            spmm_pictures.packing_picture(SMALL, ready, block, step)
    with pytest.raises(ValueError, match="32 rows of A_s, 8 compressed rows and 2 vectors"):
        wide = packing.prepare(SMALL, 8, 4, packed=True, slot=4)
        spmm_pictures.packing_picture(SMALL, wide)


# ---------------------------------------------------------------- pipelines


def ends(bars: pd.DataFrame, what: str) -> pd.DataFrame:
    """Start and end of what a step does, by step."""
    return bars[bars["what"] == what].groupby("step").agg({"start": "min", "end": "max"})


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("more", [{}, {"col_info": 40.0}, {"fragments": 100.0, "col_info": 700.0}])
@pytest.mark.parametrize("compute", [60.0, 420.0])
def test_schedule_waits_for_what_it_needs(overlap, more, compute):
    durations = TIMES | {"compute": compute} | more
    bars = spmm_pictures.schedule(durations, 6, overlap)
    for what, duration in durations.items():
        here = bars[bars["what"] == what]
        total = (here["end"] - here["start"]).groupby(here["step"]).sum()
        np.testing.assert_allclose(total, duration)  # whatever it does takes its time in every step
        assert total.index.tolist() == list(range(6))
    for _, lane in bars.groupby("lane"):  # a lane does one thing at a time
        lane = lane.sort_values("start")
        assert (lane["start"].to_numpy()[1:] >= lane["end"].to_numpy()[:-1] - 1e-9).all()
    load, compute = ends(bars, "load"), ends(bars, "compute")
    assert (compute["start"] >= load["end"]).all()
    assert (ends(bars, "index")["start"] >= load["end"]).all()
    # Of two buffers, the one that is loaded is no longer read.
    assert (load["start"].to_numpy()[2:] >= compute["end"].to_numpy()[:-2]).all()
    if "col_info" in more:
        assert (load["start"] >= ends(bars, "col_info")["end"]).all()
    if not overlap:
        assert bars["end"].max() == pytest.approx(6 * sum(durations.values()))


def test_schedule_hides_the_shorter_of_the_two():
    period = spmm_pictures.period_of
    moderate = spmm_pictures.schedule(TIMES, 6, True)
    assert period(moderate) == pytest.approx(420 + 15)  # the loads are hidden
    high = spmm_pictures.schedule({"col_info": 40, "load": 260, "compute": 130}, 6, True)
    assert period(high) == pytest.approx(300)  # the multiplications are hidden
    assert period(spmm_pictures.schedule(TIMES, 6, False)) == pytest.approx(615)
    inner = TIMES | {"fragments": 200.0}
    assert period(spmm_pictures.schedule(inner, 6, False)) == pytest.approx(815)
    # All slices but the first are read behind the multiplications of the one before.
    hidden = 420 + 15 + 200 / spmm_pictures.SLICES
    assert period(spmm_pictures.schedule(inner, 6, True)) == pytest.approx(hidden)


@pytest.mark.parametrize("bad", [{"loads": 1.0}, {"load": -1.0}, {"load": float("nan")}])
def test_schedule_refuses_what_is_no_duration(bad):
    with pytest.raises(ValueError, match="takes durations from 0"):
        spmm_pictures.schedule(TIMES | bad, 4, True)
    with pytest.raises(ValueError, match="steps from 1, not .* and 0"):
        spmm_pictures.schedule(TIMES, 0, True)
    with pytest.raises(ValueError, match="both over 0"):
        spmm_pictures.schedule({"load": 1.0}, 4, True)


@pytest.mark.parametrize("more", [{}, {"col_info": 40.0, "fragments": 100.0}])
def test_pipeline_draws_its_schedules(more):
    fig, data = spmm_pictures.pipeline(TIMES | more, "ns", "a title", steps=4)
    assert set(data["schedule"]) == {"one after the other", "double-buffered"}
    bars = [p for p in fig.get_axes()[0].patches if p.get_fill()]
    assert sorted(p.get_width() for p in bars) == pytest.approx(sorted(data["end"] - data["start"]))
    hatched = [p for p in fig.get_axes()[0].patches if p.get_hatch()]
    assert len(hatched) == (data["step"] % 2 == 1).sum()
    one = 615 + sum(more.values())
    assert f"one after the other: {one:.3g} ns a step" in words(fig)
    assert fig.get_axes()[0].get_xlabel() == "time (ns)"
    said = [text.get_text() for text in fig.legends[0].get_texts()]
    assert ("col_info" in said) == ("col_info" in more)
    legible(fig)


# ---------------------------------------------------------------- on a page


# ---------------------------------------------------------------- stream-K


@pytest.mark.parametrize("tiles,steps,blocks", [((32, 16), 64, 132), ((3, 2), 5, 7), ((4, 4), 8, 16)])
def test_shares_are_all_steps_of_all_tiles_and_are_even(tiles, steps, blocks):
    fig, data = spmm_pictures.shares(tiles, steps, blocks)
    length = data["end"] - data["start"]
    assert (length > 0).all() and set(data["what"]) <= set(spmm_pictures.PARTS)
    for name, df in data.groupby("schedule"):
        assert length[df.index].groupby(df["tile"]).sum().eq(steps).all(), name
        assert df["tile"].nunique() == tiles[0] * tiles[1]
        for _, mine in df.groupby("block"):
            assert (mine["start"].iloc[1:].array == mine["end"].iloc[:-1].array).all()
            assert mine["start"].iloc[0] == 0
    ends = {name: df.groupby("block")["end"].max() for name, df in data.groupby("schedule")}
    assert ends["stream-K"].max() <= ends["waves"].max()
    assert ends["stream-K"].max() - ends["stream-K"].min() <= 1
    titles = [ax.get_title() for ax in fig.axes[:2]]
    for title, name in zip(titles, ("waves", "stream-K"), strict=True):
        last, used = ends[name].max(), ends[name].mean() / ends[name].max()
        assert title == f"{name}: {last} steps, {used:.0%} of them used"


@pytest.mark.parametrize("bad", [((0, 1), 4, 4), ((1, 1), 0, 4), ((1, 1), 4, 0)])
def test_shares_of_nothing_are_refused(bad):
    with pytest.raises(ValueError, match="^Shares are drawn from 1 tile, step and block on, not"):
        spmm_pictures.shares(*bad)


def test_every_picture_can_be_shown():
    ready = packing.prepare(SMALL, 8, 2, packed=True, slot=4, tiled=True)
    made = {
        "format": spmm_pictures.format_picture(nm.random(8, 12, 2, 4, 4, 3)),
        "working_set": spmm_pictures.working_set(CASES),
        "footprint": spmm_pictures.footprint(CASES),
        "blocking": spmm_pictures.blocking(analysis.TABLE_1["large"], "large"),
        "packing": spmm_pictures.packing_picture(SMALL, ready),
        "pipeline": spmm_pictures.pipeline(TIMES, "ns"),
        "shares": spmm_pictures.shares((32, 16), 64, 132),
    }
    page = ""
    for name, (fig, data) in made.items():
        shown = style.show(fig, "nm_spmm", name, data, f"Alt of {name}.", "Caption.")
        assert ElementTree.fromstring(shown.svg_path.read_text()).get("role") == "img"
        assert style.INK not in shown.markup and "currentColor" in shown.markup
        assert len(pd.read_csv(shown.csv_path)) == len(data)
        page += shown.markup
    ids = re.findall(r'\bid="([^"]*)"', page)
    assert len(ids) == len(set(ids))
