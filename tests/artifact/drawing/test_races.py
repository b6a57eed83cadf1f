"""The races against the vendor's libraries, and the pages where several GPUs stand side by side."""

from dataclasses import replace
from types import SimpleNamespace

import drawn
import pandas as pd
import pytest
import synthetic

from artifact import paths, registry
from artifact.book import text as text_
from artifact.drawing import cells, prose, races, style
from artifact.drawing.pages import elsewhere, front
from artifact.measure import records
from artifact.verdicts import judge, load, measures

ROOM = "casper_sparse"


def folder(root, gpu="NVIDIA H200", **how):
    made = {name: synthetic.experiment(name, gpu=gpu, **how) for name in synthetic.SHAPES}
    return synthetic.folder(root, made, gpu, gpu.lower().replace(" ", "-"))


@pytest.fixture
def race(monkeypatch):
    """What the synthetic records have: their ladder ends earlier than the room's."""
    one = races.Race(
        ROOM,
        "CSR",
        ("wide", "square"),
        ("warp_per_row",),
        ("rows_per_warp",),
        ceiling="fma",
        stated=("abstract-speedup",),
    )
    monkeypatch.setattr(races, "races", lambda room, folder: [one] if room == ROOM else [])
    return one


def test_speedups_are_over_the_vendors_fastest(tmp_path, race):
    own = folder(tmp_path, speedup=0.5)
    points = races.points(race, own)
    assert len(points) == 3 * (7 + 5)
    assert (points["vendor"] / points["published"]).round(9).eq(0.5).all()
    assert (points["vendor"] / points["best"]).round(9).eq(1 / 0.8).all()
    assert points["limit"].gt(0).all()
    (row,) = races.table({"one": own}).itertuples()
    assert (row.published, row.best, row.points) == (pytest.approx(0.5), pytest.approx(1.25), 36)
    assert row.stated_low == row.stated_high == 1  # "above 1×"


def test_gpus_are_compared_at_the_points_that_both_have(tmp_path, race):
    one = folder(tmp_path / "a")
    few = {"wide": synthetic.experiment("wide", 2.0, gpu="NVIDIA X1").iloc[:32]}
    other = synthetic.folder(tmp_path / "b", few, "NVIDIA X1", "nvidia-x1")
    df = races.table({"H200": one, "X1": other}).set_index("gpu")
    assert df.loc["H200", "points"] == df.loc["X1", "points"] == len(races.points(race, other)) < 12
    assert df.loc["H200", "published"] == pytest.approx(0.7)
    assert df.loc["X1", "published"] == pytest.approx(2.0)


def test_a_room_that_says_nothing_races_where_all_three_were_measured(tmp_path, monkeypatch):
    monkeypatch.setattr(registry, "races", lambda *_: None)
    found = races.races(ROOM, folder(tmp_path))
    assert [race.says for race in found] == ["wide", "tall"]  # the most points first
    assert "warp_per_row" in found[0].published and "rows_per_warp" in found[0].best


def test_a_race_that_is_not_whole(tmp_path, monkeypatch):
    monkeypatch.setattr(registry, "races", lambda *_: [{"says": "x", "wheels": 4}])
    with pytest.raises(ValueError, match="races.toml: the key 'experiments' is missing"):
        races.races(ROOM, tmp_path)


@pytest.mark.parametrize("room", [r for r in registry.find() if registry.races(r) is not None])
def test_what_a_room_declares_is_in_the_shipped_records(room):
    own = records.resolve("nvidia-h200", paths.RECORDED)
    known = {claim.id for claim in load.claims()}
    for race in races.races(room, own):
        df = races.points(race, own)
        assert len(df) and df["limit"].notna().all(), race
        assert set(race.stated) <= known
        # Nothing can be faster than the limit; a tenth for the noise of two measurements.
        assert (df[["published", "best", "vendor"]].min(axis=1) > 0.9 * df["limit"]).all(), race


def test_an_experiment_that_not_all_gpus_have_is_raced_in_another(tmp_path, monkeypatch):
    """As NM-SpMM's, whose layers of LLaMA were measured on one GPU only."""
    one = races.Race(ROOM, "CSR", ("wide",), ("warp_per_row",), ("rows_per_warp",), otherwise=("square",))
    monkeypatch.setattr(races, "races", lambda room, folder: [one] if room == ROOM else [])
    both = folder(tmp_path / "a")
    square = {"square": synthetic.experiment("square", gpu="NVIDIA X1")}
    other = synthetic.folder(tmp_path / "b", square, "NVIDIA X1", "nvidia-x1")
    alone = races.table({"H200": both})
    assert alone["experiments"].tolist() == ["wide"] and alone["instead_of"].tolist() == [""]
    assert "wide" not in races.caption(alone)
    df = races.table({"H200": both, "X1": other})
    assert df["experiments"].tolist() == ["square"] * 2 and df["instead_of"].tolist() == ["wide"] * 2
    assert "at the 15 points of square, as not every GPU has wide." in races.caption(df)
    nothing = {"tall": synthetic.experiment("tall", gpu="NVIDIA Y2")}
    third = synthetic.folder(tmp_path / "c", nothing, "NVIDIA Y2", "nvidia-y2")
    df = races.table({"H200": both, "X1": other, "Y2": third})
    assert df["gpu"].tolist() == ["H200", "X1"], "the most GPUs that can take part"


def test_a_race_may_be_of_some_points(tmp_path, race):
    own = folder(tmp_path)
    few = races.points(replace(race, at={"density": [0.01], "n": [512]}), own)
    every = races.points(race, own)
    assert 0 < len(few) < len(every)
    assert few.index.equals(every.query("density == 0.01 and n == 512").index)


def test_the_shipped_gpus_meet_in_every_race():
    found = prose.folders(paths.RECORDED / "nvidia-h200")
    df = races.table(found)
    for _, own in df.groupby(["room", "race"]):
        assert set(own["gpu"]) == set(found), "an empty line of the front page"
        assert own["points"].nunique() == 1
    assert (df["instead_of"] == "").all(), "a GPU lacks what another race stands in for"
    # A range lies within a range and a mean below a mean, so that no kernel seems faster than the GPU allows.
    assert (df["published_most"] < df["limit_most"]).all()
    assert (df[["published", "best"]].max(axis=1) < df["limit"]).all()


def of_two(tmp_path):
    found = {"H200": folder(tmp_path / "a"), "X1": folder(tmp_path / "b", "NVIDIA X1", speedup=2.0)}
    counts = {(ROOM, gpu): {measures.REPRODUCED: 3, measures.PARTLY: 1, races.OWN: 4} for gpu in found}
    return races.table(found), counts


@pytest.mark.parametrize("layout", [races.WIDE, races.NARROW], ids=["wide", "narrow"])
@pytest.mark.parametrize("gpus", [1, 2, 3])
def test_the_figure_has_a_row_for_a_race_and_marks_for_each_gpu(tmp_path, race, layout, gpus):
    """A GPU that did not run the race has its verdicts, and is named."""
    df, counts = of_two(tmp_path)
    third = df[df["gpu"] == "X1"].assign(gpu="Y2", published=3.0)
    df = pd.concat([df, third], ignore_index=True).iloc[:gpus]
    fig, data = races.figure(df, counts, layout)
    drawn.legible(fig)
    ax, bars = fig.axes
    said = " ".join(text.get_text().replace("\n", " ") for text in ax.texts)
    assert said.count("ours 1.25×") == 1 and ("not measured on X1" in said) == (gpus == 1)
    for colour, side in ((style.PUBLISHED, "published"), (style.BEST, "best")):
        assert filled(ax, colour) == [(pytest.approx(v), i == 0) for i, v in enumerate(df[side])]
    assert widths(bars)[:6] == [0.375, 0.125, 0.5] * 2
    assert data[races.OWN].tolist() == [4, 4, 0][:gpus]
    assert all(f"{gpu}: " in races.alt(df) or gpus == 1 for gpu in df["gpu"])
    assert (df["limit_most"] > df["limit_least"]).all()


def test_no_rows_no_figure_and_no_limit_without_ceilings(tmp_path, race):
    own = folder(tmp_path)
    (own / "ceilings" / "ceilings.csv").unlink()
    df = races.table({"one": own})
    assert df["limit"].isna().all() and df["best"].notna().all() and races.figure(df)
    assert races.figure(df.iloc[:0]) is None and races.drawn(df.iloc[:0]) is None


@pytest.mark.parametrize(
    "ids,said", [([], ""), (["tc-range"], "0.94–0.98×"), (["async-gate-80", "async-gate-99"], "1.46–3.19×")]
)
def test_what_several_claims_state_is_a_range(ids, said):
    known = {claim.id: claim for claim in load.claims()}
    stated = races._stated([known[i] for i in ids])
    assert stated["stated"] == said
    assert not said or f"{stated['stated_low']}–{stated['stated_high']}×" == said


def widths(ax) -> list[float]:
    return [patch.get_width() for patch in ax.patches]


def filled(ax, colour: str) -> list[tuple[float, bool]]:
    """Where the marks of a colour are, from the top, and whether they are filled."""
    marks = [line for line in ax.get_lines() if line.get_marker() in ("o", "D") and line.get_color() == colour]
    marks = sorted(marks, key=lambda line: line.get_ydata()[0])
    return [(line.get_xdata()[0], line.get_markerfacecolor() != "none") for line in marks]


@pytest.fixture(scope="module")
def shipped():
    """Verdicts by the shipped records, of each GPU."""
    found = prose.folders(paths.RECORDED / "nvidia-h200")
    return {gpu: judge.judge(load.claims(), own) for gpu, own in found.items()}


def test_the_shipped_figure_can_be_read_wide_and_narrow(shipped):
    found = prose.folders(paths.RECORDED / "nvidia-h200")
    (wide, data, narrow), said = front.raced(found, shipped)
    for fig, at_most in ((wide, style.WIDTH), (narrow, 4.2)):
        drawn.legible(fig)
        assert fig.get_size_inches()[0] <= at_most
    assert wide.get_size_inches()[1] < 6, "doors and figure within the first thousand pixels of a page"
    lines = [text.get_text().count("\n") + 1 for text in narrow.axes[0].texts]
    assert max(lines) <= 2 and len(said["caption"]) < 230, "three lines"
    assert len(data) == 12 and data[races.OWN].sum() > 0


# ---------------------------------------------------------------- which GPUs there are


def test_this_pages_gpu_first_then_those_beside_it_then_the_shipped(tmp_path):
    own = folder(tmp_path / "fresh", "NVIDIA X1")
    folder(tmp_path / "fresh", "NVIDIA Y2")
    shipped = [folder(tmp_path / "shipped", gpu) for gpu in ("NVIDIA A100", "NVIDIA X1")]
    found = prose.folders(own, shipped[0].parent)
    assert list(found) == ["NVIDIA X1", "NVIDIA Y2", "NVIDIA A100"] and found["NVIDIA X1"] == own
    assert list(prose.sides(own, shipped[0].parent))[-1] == "NVIDIA X1, as shipped"
    assert prose.folders(None) == prose.sides(None) == {}
    assert prose.folders(tmp_path / "nothing") == {}


def test_how_machines_differ(tmp_path):
    """Of each quantity the ratio to the first; of loops the fastest, by name; under load the rows that all have."""
    found = {"one": folder(tmp_path / "a"), "other": folder(tmp_path / "b", "NVIDIA X1")}
    for at, copy, rates in zip(found.values(), (4000.0, 2000.0), ((100.0, 200.0), (150.0, 120.0)), strict=True):
        df = synthetic.ceilings(records.read_machine(at / ROOM)["gpu"], copy=copy)
        loops = [
            df[df["variant"] == "fma"].assign(variant=name, tflops=rate)
            for name, rate in zip(("wgmma_sp", "wgmma_sp_ra"), rates, strict=True)
        ]
        df = pd.concat([df, *loops], ignore_index=True)
        records.write(at / "ceilings" / "ceilings.csv", df.assign(useful_flops=df["tflops"] * df["median_us"] * 1e6))
    path = found["other"] / ROOM / "square.csv"
    df = records.read(path).assign(power_w=500.0, throttle="software power cap")
    records.write(path, df[df["m"] != 16384])
    df = prose.machines(found).set_index("what")
    assert df.loc["copying in memory, measured"].tolist() == ["4,000 GB/s", "2,000 GB/s (0.50×)"]
    assert df.loc["BF16 2:4 on tensor cores, measured"].str.contains("wgmma_sp_ra`|`wgmma_sp`").all()
    assert df.loc["power under load, CUDA cores"].tolist() == ["400 W", "500 W (1.25×)"]
    rows = 3 * 3 * (1 + len(synthetic.SLOWER))  # of 4096, 8192, and 4096 among the wide ones, at three densities
    assert df.loc["clock held back, CUDA cores"].tolist() == [f"0 % of {rows} rows", f"67 % of {rows} rows"]
    assert "multiprocessors" not in df.index  # these machines do not state it


# ---------------------------------------------------------------- pages


@pytest.fixture
def few(monkeypatch):
    chosen = [c for c in load.claims() if c.id in ("abstract-speedup", "wide-speedup", "tall-best")]
    monkeypatch.setattr(elsewhere.compare.load, "claims", lambda: chosen)
    return chosen


def said(c, block: str) -> str:
    made = text_.page("elsewhere")
    made.add(elsewhere.facts(c))
    return made(block)


def test_too_little_in_common_is_said_in_a_sentence(tmp_path, few):
    part = {"wide": synthetic.experiment("wide").iloc[:8]}
    found = {"one": synthetic.folder(tmp_path / "a", part), "other": folder(tmp_path / "b")}
    (said,) = elsewhere.comparisons(found).values()
    assert isinstance(said, str) and "too few" in said


def test_a_chapter_shows_both_gpus_and_nothing_with_one(tmp_path, monkeypatch, race):
    own = folder(tmp_path / "fresh", "NVIDIA X1", speedup=2.0)
    shown = []
    for module in (cells, cells.figures):
        monkeypatch.setattr(module, "display", shown.append)
    monkeypatch.setattr(paths, "FIGURES", tmp_path / "figures")
    monkeypatch.setattr(paths, "RECORDED", tmp_path / "none")
    run = SimpleNamespace(room=ROOM, folder=own / ROOM)
    cells.beside(run)
    assert not shown
    monkeypatch.setattr(paths, "RECORDED", folder(tmp_path / "shipped").parent)
    cells.beside(run)
    figure, said = shown
    assert figure.csv.name == "gpus.csv" and "H200" in figure.markdown
    assert "NVIDIA X1 and NVIDIA H200" in said.data and "abstract-speedup" in said.data


def test_what_a_source_published_itself_is_counted_apart(shipped):
    """As the ledger says: consistent in the source's own data, and not measured here."""
    df = shipped["NVIDIA H200"]
    measured, own = judge.by_evidence(df)
    holds = int((measured["verdict"] == measures.REPRODUCED).sum())
    counts = front.counts({"NVIDIA H200": df})
    assert len(own) == sum(of.get(races.OWN, 0) for of in counts.values()) > 0
    assert sum(of.get(measures.REPRODUCED, 0) for of in counts.values()) == holds
    assert sum(sum(of.values()) for of in counts.values()) == len(measured) + len(own)


def test_two_gpus_on_the_page(tmp_path, few):
    found = {"one": folder(tmp_path / "a"), "other": folder(tmp_path / "b", "NVIDIA X1", speedup=2.0)}
    slower = synthetic.ceilings("NVIDIA X1", copy=synthetic.COPY_GBPS / 1.4)
    records.write(found["other"] / "ceilings" / "ceilings.csv", slower)
    (c,) = elsewhere.comparisons(found).values()
    fig, data = elsewhere.figure(c)
    ours = data[data["variant"] == "warp_per_row"].set_index("experiment")
    for column in ("gain", "faster"):
        assert ours[column].to_dict() == pytest.approx({n: s / 2 for n, s in synthetic.SPEEDUP.items()})
    dashed = {round(line.get_xdata()[0], 2) for line in fig.axes[0].lines if line.get_linestyle() == "--"}
    assert dashed == {1.4} and "1.40×" in said(c, "caption")
    changed, ceilings = elsewhere.changes(c), elsewhere.ceilings(c).set_index("ceiling")["ratio"]
    assert len(changed) == (~c.verdicts["agrees"]).sum() > 0 and changed["claim"].str.contains("#claim-").all()
    assert changed["times"].str.contains("warp_per_row [0-9.]+×").all() and ceilings["copy"] == pytest.approx(1.4)
    assert dict(elsewhere.start(found, {"other": c}))["changes"] == len(changed)
    assert f"{len(changed)} change" in said(c, "other_gpu")


def test_what_one_side_does_not_give_is_counted(tmp_path, few):
    """One has no sweep along M, which a claim of the three needs."""
    found = {"one": folder(tmp_path / "a"), "other": folder(tmp_path / "b", "NVIDIA X1")}
    (found["other"] / ROOM / "tall.csv").unlink()
    (c,) = elsewhere.comparisons(found).values()
    counts = dict(elsewhere.facts(c))
    assert counts["alone.NVIDIA H200"] == (c.verdicts["fresh"] != c.verdicts["shipped"]).sum() > 0
    assert counts["alone.NVIDIA X1"] == 0 and counts["neither"] == 0


def test_a_second_measurement_and_verdicts_that_change(tmp_path, few):
    found = {"fresh": folder(tmp_path / "a"), "as shipped": folder(tmp_path / "b")}
    (c,) = elsewhere.comparisons(found).values()
    assert elsewhere.changes(c) is None and dict(elsewhere.facts(c))["off"] == 0
    assert elsewhere.titles(c)[0] != elsewhere.titles(c)[1]
    found["other"] = folder(tmp_path / "c", "NVIDIA X1", speedup=2.0)
    judged = prose.judged(found, ROOM)
    changed = prose.changed(judged)
    assert set(changed["id"]) == {i for i in judged["fresh"]["id"] if changes_at(judged, i)}
    assert "#claim-abstract-speedup" in elsewhere.summary(changed, found)
    assert prose.changed({"one": judged["fresh"]}).empty


def changes_at(judged, i: str) -> bool:
    """Whether those of the verdicts on a claim that are given differ."""
    given = {df.set_index("id")["verdict"][i] for df in judged.values()}
    return len(given - {measures.NOT_MEASURED}) > 1
