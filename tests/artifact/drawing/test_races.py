"""The races against the vendor's libraries, and the pages where several GPUs stand side by side."""

import json
import re
from dataclasses import replace
from types import SimpleNamespace

import drawn
import pandas as pd
import pytest
import synthetic

from artifact import paths, registry
from artifact.book import text as text_
from artifact.drawing import cells, prose, races, style, words
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


def test_no_limit_without_ceilings(tmp_path, race):
    own = folder(tmp_path)
    (own / "ceilings" / "ceilings.csv").unlink()
    df = races.table({"one": own})
    assert df["limit"].isna().all() and df["best"].notna().all()
    assert races.figure(df) and "limit" not in races.alt(df)


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
    with pytest.raises(ValueError, match="races.toml: a race is not whole.*wheels"):
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


def test_what_several_claims_state_is_a_range():
    known = {claim.id: claim for claim in load.claims()}
    gate = [known[f"async-gate-{share}"] for share in (80, 90, 95, 99)]
    assert races._stated(gate) == {"stated": "1.46–3.19×", "stated_low": 1.46, "stated_high": 3.19}
    assert races._stated([known["tc-range"]]) == {"stated": "0.94–0.98×", "stated_low": 0.94, "stated_high": 0.98}
    assert races._stated([])["stated"] == ""


@pytest.mark.parametrize("room", registry.find())
def test_every_race_on_the_front_page_says_what_its_source_states(room):
    assert all(race.stated for race in races.races(room, paths.RECORDED / "nvidia-h200"))


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


def widths(ax) -> list[float]:
    return [patch.get_width() for patch in ax.patches]


def filled(ax, colour: str) -> list[tuple[float, bool]]:
    """Where the marks of a colour are, from the top, and whether they are filled."""
    marks = [line for line in ax.get_lines() if line.get_marker() in ("o", "D") and line.get_color() == colour]
    marks = sorted(marks, key=lambda line: line.get_ydata()[0])
    return [(line.get_xdata()[0], line.get_markerfacecolor() != "none") for line in marks]


@pytest.mark.parametrize("layout", [races.WIDE, races.NARROW], ids=["wide", "narrow"])
def test_the_figure_has_a_row_for_a_race_and_marks_for_each_gpu(tmp_path, race, layout):
    df, counts = of_two(tmp_path)
    fig, data = races.figure(df, counts, layout)
    drawn.legible(fig)
    ax, bars = fig.axes
    said = [text.get_text().replace("\n", " ") for text in ax.texts]
    assert "stated above 1×, consistently; here 0.70–0.80×; ours 1.25×" in said
    names = [*said, *(tick.get_text() for tick in ax.get_yticklabels())]
    assert sum(name.startswith("casperSPARSE") for name in names) == 1, "one row a system"
    assert filled(ax, style.PUBLISHED) == [
        (pytest.approx(df["published"][0]), True),
        (pytest.approx(2), False),
    ]
    assert filled(ax, style.BEST) == [(pytest.approx(1.25), True), (pytest.approx(1.25), False)]
    assert widths(bars) == [0.375, 0.125, 0.5] * 2
    assert [tick.get_text() for tick in bars.get_yticklabels()] == ["H200", "X1"]
    meant = [text.get_text() for text in fig.legends[0].get_texts()]
    assert meant == ["✓ reproduced", "◐ partly", f"= {races.OWN}"]
    assert {"H200: filled", "X1: hollow, below"} <= {t.get_text() for t in fig.legends[1].get_texts()}
    assert data[measures.PARTLY].tolist() == [1, 1] and data[races.OWN].tolist() == [4, 4]
    assert data["published"].tolist() == df["published"].tolist()


def test_the_limit_is_drawn_with_its_range(tmp_path, race):
    df, _ = of_two(tmp_path)
    row = df.iloc[0]
    (ax,) = races.figure(df)[0].axes
    grey = [line for line in ax.get_lines() if line.get_color() == style.BOUND]
    spans = [line.get_xdata() for line in grey if len(line.get_xdata()) == 2]
    most = min(row["limit_most"], ax.get_xlim()[1] / 1.03)
    assert list(spans[0]) == pytest.approx([row["limit_least"], most])
    arrows = [line for line in grey if line.get_marker() == ">"]
    assert len(arrows) == sum(df["limit_most"] > ax.get_xlim()[1] / 1.03), "what goes on has an arrow"


def test_a_third_gpu_lies_below_the_second(tmp_path, race):
    df, _ = of_two(tmp_path)
    third = df[df["gpu"] == "X1"].assign(gpu="Y2", published=3.0)
    fig, _ = races.figure(pd.concat([df, third]))
    drawn.legible(fig)
    assert filled(fig.axes[0], style.PUBLISHED)[2] == (3.0, False)
    assert {"X1: hollow, 1 below", "Y2: hollow, 2 below"} <= set(drawn.labels(fig))


def test_a_gpu_that_did_not_run_a_race_is_named(tmp_path, race):
    df, counts = of_two(tmp_path)
    absent = df[df["gpu"] == "H200"]
    fig, _ = races.figure(absent, counts)
    said = [text.get_text() for text in fig.axes[0].texts]
    assert any(text.endswith("; ours 1.25×; not measured on X1") for text in said)
    assert widths(fig.axes[1]) == [0.375, 0.125, 0.5] * 2, "its verdicts are there"
    alone = races.figure(absent)[0]
    assert len(alone.axes) == 1 and not any("H200" in label for label in drawn.labels(alone))


def test_the_figure_in_words(tmp_path, race):
    df, _ = of_two(tmp_path)
    said = races.alt(df)
    assert "H200: stated above 1×, consistently, here 0.7" in said
    assert "X1: stated above 1×, consistently, here 2.00× (2.00 to 2.00) as published" in said
    assert races.figure(df.iloc[:0]) is None and races.drawn(df.iloc[:0]) is None
    assert "The words have the H200's numbers." in races.caption(df)
    assert "H200" not in races.caption(df.iloc[:1])


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


def test_verdicts_that_change_are_named(tmp_path):
    found = {
        "one": folder(tmp_path / "a"),
        "other": folder(tmp_path / "b", "NVIDIA X1", speedup=2.0),
    }
    judged = prose.judged(found, ROOM)
    changed = prose.changed(judged).set_index("id")
    assert changed.loc["abstract-speedup", "one"] != changed.loc["abstract-speedup", "other"]
    same = set(judged["one"]["id"]) - set(changed.index)
    first, second = (df.set_index("id")["verdict"] for df in judged.values())
    for claim in same:
        assert first[claim] == second[claim] or measures.NOT_MEASURED in (
            first[claim],
            second[claim],
        )
    text = elsewhere.summary(changed.reset_index(), found)
    assert f"{len(changed)} verdicts" in text and "#claim-abstract-speedup" in text
    assert prose.changed({"one": judged["one"]}).empty
    assert "are the same on one" in elsewhere.summary(prose.changed({"one": judged["one"]}), ["one"])


def test_how_machines_differ(tmp_path):
    found = {"one": folder(tmp_path / "a"), "other": folder(tmp_path / "b", "NVIDIA X1")}
    slower = synthetic.ceilings("NVIDIA X1", copy=synthetic.COPY_GBPS / 2)
    records.write(found["other"] / "ceilings" / "ceilings.csv", slower)
    df = prose.machines(found).set_index("what")
    assert df.loc["copying in memory, measured"].tolist() == ["4,000 GB/s", "2,000 GB/s (0.50×)"]
    assert "multiprocessors" not in df.index  # these machines do not state it


def test_the_fastest_loop_counts_and_is_named(tmp_path):
    """Which of two loops of one instruction is the faster one may differ from GPU to GPU."""
    found = {"one": folder(tmp_path / "a"), "other": folder(tmp_path / "b", "NVIDIA X1")}
    for at, rates in zip(found.values(), ((100.0, 200.0), (150.0, 120.0)), strict=True):
        df = synthetic.ceilings(records.read_machine(at / ROOM)["gpu"])
        row = df[df["variant"] == "fma"]
        loops = [
            row.assign(variant=name, tflops=rate) for name, rate in zip(("wgmma_sp", "wgmma_sp_ra"), rates, strict=True)
        ]
        loops = [df.assign(useful_flops=df["tflops"] * df["median_us"] * 1e6) for df in loops]
        records.write(at / "ceilings" / "ceilings.csv", pd.concat([df, *loops], ignore_index=True))
    df = prose.machines(found).set_index("what")
    cells_ = df.loc["BF16 2:4 on tensor cores, measured"].tolist()
    assert cells_ == [
        "200 TFLOP/s, `wgmma_sp_ra`",
        "150 TFLOP/s, `wgmma_sp` (0.75×)",
    ]


def test_power_and_clock_under_load_are_of_rows_that_all_have(tmp_path):
    """Medians of the large squares; a row that one GPU lacks counts on neither."""
    one, other = (folder(tmp_path / name, gpu) for name, gpu in (("a", "NVIDIA H200"), ("b", "NVIDIA X1")))
    path = other / ROOM / "square.csv"
    df = records.read(path).assign(power_w=500.0, sm_mhz=1500.0, throttle="software power cap")
    records.write(path, df[df["m"] != 16384])
    path = one / ROOM / "square.csv"
    df = records.read(path)
    records.write(path, df.assign(power_w=df["m"].map(lambda m: 900.0 if m == 16384 else 400.0)))
    df = prose.machines({"one": one, "other": other}).set_index("what")
    assert df.loc["power under load, CUDA cores"].tolist() == ["400 W", "500 W (1.25×)"]
    assert df.loc["SM clock under load, CUDA cores"].tolist() == ["1,980 MHz", "1,500 MHz (0.76×)"]
    rows = 3 * 3 * (1 + len(synthetic.SLOWER))  # of 4096, 8192, and 4096 among the wide ones, at three densities
    assert df.loc["clock held back, CUDA cores"].tolist() == [
        f"0 % of {rows} rows",
        f"67 % of {rows} rows",
    ]
    assert not df.index.str.contains("under load, tensor").any()


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


def test_the_page_of_one_gpu_says_so_and_how_another_appears(tmp_path):
    own = folder(tmp_path)
    assert elsewhere.comparisons(prose.sides(own, tmp_path / "none")) == {}
    made = text_.page("elsewhere")
    made.add(elsewhere.start(prose.sides(own, tmp_path / "none"), {}))
    assert "records of NVIDIA H200 alone" in made("alone") and "make compare FRESH=" in made("commands")


def test_two_gpus_on_the_page(tmp_path, few):
    found = {"one": folder(tmp_path / "a"), "other": folder(tmp_path / "b", "NVIDIA X1", speedup=2.0)}
    (c,) = elsewhere.comparisons(found).values()
    assert elsewhere.titles(c) == ("NVIDIA H200", "NVIDIA X1")
    fig, data = elsewhere.figure(c)
    assert fig.axes[0].get_xlabel() == "H200 over X1" and set(data["room"]) == {ROOM}
    ours = data[data["variant"] == "warp_per_row"].set_index("experiment")
    assert ours["gain"].to_dict() == pytest.approx({n: s / 2 for n, s in synthetic.SPEEDUP.items()})
    assert ours["faster"].to_dict() == pytest.approx({n: s / 2 for n, s in synthetic.SPEEDUP.items()})
    assert set(ours["whose"]) == {"the source's kernels, rebuilt"}
    moved, close = elsewhere.changes(c), elsewhere.changes(c, close=True)
    assert len(moved) == (~c.verdicts["agrees"]).sum() > 0 and close is None
    assert moved["claim"].str.contains("#claim-").all() and moved["what moved"].str.contains("warp_per_row takes").all()
    assert "the claims decide" in said(c, "other_gpu") and "differ by at most" in said(c, "alt")
    assert dict(elsewhere.start(found, {"other": c}))["changes"] == len(moved)


def test_lines_of_the_figure_are_at_the_ratios_of_the_ceilings(tmp_path, few):
    """On two GPUs whose memory differs; none where it does not."""
    found = {"one": folder(tmp_path / "a"), "other": folder(tmp_path / "b", "NVIDIA X1", scale=1.5)}

    def dashed() -> set[float]:
        (c,) = elsewhere.comparisons(found).values()
        (fig, _), text = elsewhere.figure(c), said(c, "caption")
        lines = {round(line.get_xdata()[0], 2) for line in fig.axes[0].lines if line.get_linestyle() == "--"}
        fig.clear()
        assert all(f"{at:.2f}×" in text for at in lines)
        return lines

    assert dashed() == set()
    slower = synthetic.ceilings("NVIDIA X1", copy=synthetic.COPY_GBPS / 1.4)
    records.write(found["other"] / "ceilings" / "ceilings.csv", slower)
    assert dashed() == {1.4}


def test_what_each_gpu_lacks_is_said_by_count(tmp_path, few):
    """One has no sweep along M, which a claim of the three needs."""
    found = {"one": folder(tmp_path / "a"), "other": folder(tmp_path / "b", "NVIDIA X1")}
    (found["other"] / ROOM / "tall.csv").unlink()
    (c,) = elsewhere.comparisons(found).values()
    lack = "the experiment `tall` of casperSPARSE"
    count = (c.verdicts["lacks"] == lack).sum()
    assert count > 0 and f"{count} are given on NVIDIA H200 alone" in said(c, "other_gpu")
    assert f"{count} for {lack}" in said(c, "other_gpu")


def test_a_second_measurement_on_the_same_gpu(tmp_path, few):
    found = {"fresh": folder(tmp_path / "a"), "as shipped": folder(tmp_path / "b")}
    (c,) = elsewhere.comparisons(found).values()
    assert ": 0 of " in said(c, "same_gpu") and elsewhere.changes(c) is elsewhere.changes(c, close=True) is None
    assert elsewhere.titles(c)[0] != elsewhere.titles(c)[1]


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


def test_a_page_says_whose_machine_code_it_shows():
    here = cells.metadata.version(cells.NVRTC)

    def run(mode, version):
        return SimpleNamespace(mode=mode, machine={"packages": {cells.NVRTC: version}})

    assert f"NVRTC {here}, which made the page" in cells.compiler(run("recorded", "13.0.1"))
    assert cells.compiler(run("recorded", "13.0.1")).endswith("measured is of 13.0.1.*")
    assert cells.compiler(run("recorded", here)) == cells.compiler(run("measure", "13.0.1")) == ""
    assert cells.compiler(SimpleNamespace(mode="recorded", machine={})) == ""


def test_a_page_over_all_rooms_names_all_commits(tmp_path, monkeypatch):
    monkeypatch.setattr(paths, "RECORDED", tmp_path / "none")
    own = folder(tmp_path)
    origin = prose.Origin("nvidia-h200", own, False)
    assert "2026-01-02, commit 0123abc." in origin.banner()
    other = synthetic.machine() | {"commit": "4567def", "date": "2026-01-05T00:00:00+00:00"}
    records.write_machine(own / "ceilings", other)
    assert "2026-01-02 to 2026-01-05, commits 0123abc, 4567def." in origin.banner()


@pytest.mark.parametrize(
    ("gpu", "said"),
    [("H200", "an H200"), ("RTX 4090", "an RTX 4090"), ("B200", "a B200"), ("GeForce GTX 1080", "a GeForce GTX 1080")],
)
def test_the_article_of_a_gpu(gpu, said):
    assert words.article(gpu) == said


def test_the_front_figure_counts_each_gpus_verdicts(tmp_path, race):
    own = folder(tmp_path)
    known = [c for c in load.claims() if c.room == ROOM]
    judged = {"NVIDIA H200": judge.judge(known, own)}
    (wide, data, narrow), _ = front.raced({"NVIDIA H200": own}, judged)
    assert len(wide.axes) == len(narrow.axes) == 2 and len(data) == 1
    of = judge.counted(judged["NVIDIA H200"])["verdict"].value_counts()
    assert {v: data[v].item() for v in of.index} == of.to_dict()
    assert front.raced({}, {})[0] is None


def test_what_a_source_published_itself_is_counted_apart(shipped):
    """As the ledger says: consistent in the source's own data, and not measured here."""
    df = shipped["NVIDIA H200"]
    measured, own = judge.by_evidence(df)
    holds = int((measured["verdict"] == measures.REPRODUCED).sum())
    counts = front.counts({"NVIDIA H200": df})
    assert len(own) == sum(of.get(races.OWN, 0) for of in counts.values()) > 0
    assert sum(of.get(measures.REPRODUCED, 0) for of in counts.values()) == holds
    assert sum(sum(of.values()) for of in counts.values()) == len(measured) + len(own)


def test_the_front_page_begins_with_doors_then_the_figure_then_the_findings():
    notebook = json.loads((paths.ROOT / "notebooks" / "index.ipynb").read_text())
    text = "".join("".join(cell["source"]) + "\n" for cell in notebook["cells"])
    order = [
        "# Sparsity on Trial",
        "front.doors(",
        'show("races", drawn',
        "front.findings(",
        "front.fare(",
        "## What is on trial",
    ]
    places = [text.index(part) for part in order]
    assert places == sorted(places)
    intro = "".join(notebook["cells"][0]["source"]).partition("\n")[2]
    assert len(re.findall(r"\.(?:\s|$)", intro)) == 2, "two sentences"
