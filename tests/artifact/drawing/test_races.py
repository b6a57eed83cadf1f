"""The races against the vendor's libraries, and the pages where several GPUs stand side by side."""

from types import SimpleNamespace

import pandas as pd
import pytest
import synthetic

from artifact import paths, rooms
from artifact.drawing import cells, gpus, prose, races
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
    one = races.Race(ROOM, "CSR", ("wide", "square"), ("warp_per_row",), ("rows_per_warp",), ceiling="fma",
                     stated="abstract-speedup")  # fmt: skip
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
    monkeypatch.setattr(rooms, "races", lambda *_: None)
    found = races.races(ROOM, folder(tmp_path))
    assert [race.says for race in found] == ["wide", "tall"]  # the most points first
    assert "warp_per_row" in found[0].published and "rows_per_warp" in found[0].best


def test_a_race_that_is_not_whole(tmp_path, monkeypatch):
    monkeypatch.setattr(rooms, "races", lambda *_: [{"says": "x", "wheels": 4}])
    with pytest.raises(ValueError, match="races.toml: a race is not whole.*wheels"):
        races.races(ROOM, tmp_path)


@pytest.mark.parametrize("room", [r for r in rooms.find() if rooms.races(r) is not None])
def test_what_a_room_declares_is_in_the_shipped_records(room):
    own = records.resolve("nvidia-h200", paths.RECORDED)
    known = {claim.id for claim in load.claims()}
    for race in races.races(room, own):
        df = races.points(race, own)
        assert len(df) and df["limit"].notna().all(), race
        assert not race.stated or race.stated in known
        # Nothing can be faster than the limit; a tenth for the noise of two measurements.
        assert (df[["published", "best", "vendor"]].min(axis=1) > 0.9 * df["limit"]).all(), race


def test_the_figure_has_a_lane_and_a_bar_for_each_gpu(tmp_path, race):
    found = {"H200": folder(tmp_path / "a"), "X1": folder(tmp_path / "b", "NVIDIA X1", speedup=2.0)}
    df = races.table(found)
    counts = {(ROOM, gpu): {measures.REPRODUCED: 3, measures.PARTLY: 1} for gpu in found}
    fig, data = races.figure(df, counts)
    labels = [tick.get_text() for tick in fig.axes[0].get_yticklabels()]
    assert labels[0].splitlines()[0].endswith(" · CSR")
    assert labels[0].splitlines()[1:] == [
        "stated above 1×, consistently",
        "H200: here 0.70–0.80×, ours 1.25×",
    ]
    assert labels[1] == "X1: here 2.00×, ours 1.25×"
    bars = [patch.get_width() for patch in fig.axes[1].patches if patch.get_width()]
    assert bars == [0.75, 0.25] * 2 and data is df
    absent = df[df["gpu"] == "H200"]
    fig, data = races.figure(absent, counts)
    assert len(fig.axes[0].get_yticklabels()) == 1, "a GPU that ran nothing has no lane"
    other = absent.assign(room="other", gpu="X1")
    fig, data = races.figure(pd.concat([absent, other]), counts)
    labels = [tick.get_text() for tick in fig.axes[0].get_yticklabels()]
    assert len(labels) == 3 and labels[1] == "X1: not measured" and len(data) == 2
    bars = [patch.get_width() for patch in fig.axes[1].patches if patch.get_width()]
    assert bars == [0.75, 0.25] * 2
    assert "H200: stated above 1×, consistently, here 0.7" in races.alt(
        df
    ) and "X1: stated above 1×, consistently, here 2.00× (2.00 to 2.00) as published" in races.alt(
        df
    )
    assert races.figure(df.iloc[:0]) is None


# ---------------------------------------------------------------- which GPUs there are


def test_this_pages_gpu_first_then_those_beside_it_then_the_shipped(tmp_path):
    own = folder(tmp_path / "fresh", "NVIDIA X1")
    folder(tmp_path / "fresh", "NVIDIA Y2")
    shipped = [folder(tmp_path / "shipped", gpu) for gpu in ("NVIDIA A100", "NVIDIA X1")]
    found = gpus.folders(own, shipped[0].parent)
    assert list(found) == ["NVIDIA X1", "NVIDIA Y2", "NVIDIA A100"] and found["NVIDIA X1"] == own
    assert list(gpus.sides(own, shipped[0].parent))[-1] == "NVIDIA X1, as shipped"
    assert gpus.folders(None) == gpus.sides(None) == {}
    assert gpus.folders(tmp_path / "nothing") == {}
    with pytest.raises(FileNotFoundError, match="no records of any room"):
        gpus.name(tmp_path)


def test_verdicts_that_change_are_named(tmp_path):
    found = {
        "one": folder(tmp_path / "a"),
        "other": folder(tmp_path / "b", "NVIDIA X1", speedup=2.0),
    }
    judged = gpus.judged(found, ROOM)
    changed = gpus.changed(judged).set_index("id")
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
    assert gpus.changed({"one": judged["one"]}).empty
    assert "are the same on one" in elsewhere.summary(gpus.changed({"one": judged["one"]}), ["one"])


def test_how_machines_differ(tmp_path):
    found = {"one": folder(tmp_path / "a"), "other": folder(tmp_path / "b", "NVIDIA X1")}
    slower = synthetic.ceilings("NVIDIA X1", copy=synthetic.COPY_GBPS / 2)
    records.write(found["other"] / "ceilings" / "ceilings.csv", slower)
    df = gpus.machines(found).set_index("")
    assert df.loc["copying in memory, measured"].tolist() == ["4,000 GB/s", "2,000 GB/s (0.50×)"]
    assert "multiprocessors" not in df.index  # these machines do not state it


# ---------------------------------------------------------------- pages


@pytest.fixture
def few(monkeypatch):
    chosen = [c for c in load.claims() if c.id in ("abstract-speedup", "wide-speedup", "tall-best")]
    monkeypatch.setattr(elsewhere.compare.load, "claims", lambda: chosen)
    return chosen


def test_the_page_of_one_gpu_says_so_and_how_another_appears(tmp_path):
    own = folder(tmp_path)
    text = elsewhere.alone(gpus.sides(own, tmp_path / "none"))
    assert "one GPU: NVIDIA H200" in text and "one command" in text
    assert "make measure" in elsewhere.COMMANDS and "make compare FRESH=" in elsewhere.COMMANDS
    assert elsewhere.comparisons(gpus.sides(own, tmp_path / "none")) == {}
    assert "no GPU" in elsewhere.alone({})


def test_two_gpus_on_the_page(tmp_path, few):
    found = {
        "one": folder(tmp_path / "a"),
        "other": folder(tmp_path / "b", "NVIDIA X1", speedup=2.0),
    }
    (c,) = elsewhere.comparisons(found).values()
    assert elsewhere.titles(c) == ("NVIDIA H200", "NVIDIA X1") and elsewhere.alone(found) == ""
    fig, data = elsewhere.figure(c)
    assert fig.axes[0].get_ylabel().endswith("NVIDIA H200") and set(data["room"]) == {ROOM}
    table = elsewhere.changes(c)
    assert len(table) == (~c.verdicts["agrees"]).sum() > 0
    assert "#claim-abstract-speedup" in "".join(table["claim"])
    assert (
        "claims decide" in elsewhere.verdict(c) and "differ by at most" in elsewhere.below(c)["alt"]
    )


def test_a_second_measurement_on_the_same_gpu(tmp_path, few):
    found = {"fresh": folder(tmp_path / "a"), "as shipped": folder(tmp_path / "b")}
    (c,) = elsewhere.comparisons(found).values()
    assert "the records agree" in elsewhere.verdict(c) and elsewhere.changes(c) is None
    assert elsewhere.titles(c)[0] != elsewhere.titles(c)[1]


def test_too_little_in_common_is_said_in_a_sentence(tmp_path, few):
    part = {"wide": synthetic.experiment("wide").iloc[:8]}
    found = {"one": synthetic.folder(tmp_path / "a", part), "other": folder(tmp_path / "b")}
    (said,) = elsewhere.comparisons(found).values()
    assert isinstance(said, str) and "too few" in said


def test_a_chapter_shows_both_gpus_and_nothing_with_one(tmp_path, monkeypatch, race):
    own = folder(tmp_path / "fresh", "NVIDIA X1", speedup=2.0)
    shown = []
    monkeypatch.setattr(cells, "display", shown.append)
    monkeypatch.setattr(paths, "FIGURES", tmp_path / "figures")
    monkeypatch.setattr(paths, "RECORDED", tmp_path / "none")
    run = SimpleNamespace(room=ROOM, folder=own / ROOM)
    cells.beside(run)
    assert not shown
    monkeypatch.setattr(paths, "RECORDED", folder(tmp_path / "shipped").parent)
    cells.beside(run)
    figure, said = shown
    assert figure.csv_path.name == "gpus.csv" and "H200" in figure.markup
    assert "NVIDIA X1 and NVIDIA H200" in said.data and "abstract-speedup" in said.data


def test_a_page_says_whose_machine_code_it_shows():
    here = cells.metadata.version(cells.NVRTC)

    def run(mode, version):
        return SimpleNamespace(mode=mode, machine={"packages": {cells.NVRTC: version}})

    assert f"NVRTC {here}, which made the page" in cells.compiler(run("recorded", "13.0.1"))
    assert cells.compiler(run("recorded", "13.0.1")).endswith("measured is of 13.0.1.*")
    assert cells.compiler(run("recorded", here)) == cells.compiler(run("measure", "13.0.1")) == ""
    assert cells.compiler(SimpleNamespace(mode="recorded", machine={})) == ""


def test_a_page_over_all_rooms_names_all_commits(tmp_path):
    own = folder(tmp_path)
    origin = prose.Origin("nvidia-h200", own, False)
    assert "2026-01-02, commit 0123abc." in origin.banner()
    other = synthetic.machine() | {"commit": "4567def", "date": "2026-01-05T00:00:00+00:00"}
    records.write_machine(own / "ceilings", other)
    assert "2026-01-02 to 2026-01-05, commits 0123abc, 4567def." in origin.banner()


def test_findings_take_their_numbers_from_the_records(tmp_path):
    known = [c for c in load.claims() if c.room == ROOM]
    judged = judge.judge(known, folder(tmp_path, speedup=2.0))
    text = front.findings(judged, "Stated: faster. Here: {abstract-speedup}.")
    assert text.startswith(
        '<ol><li>Stated: faster. Here: <a href="ledger.html#claim-abstract-speedup">'
    )
    assert "<strong>54 of 54 points</strong>" in text
    unknown = judged[judged["verdict"] == measures.NOT_MEASURED]["id"].iloc[0]
    assert front.findings(judged, f"Not measured: {{{unknown}}}.") == ""
    assert front.findings(None, "x") == ""
    with pytest.raises(ValueError, match="names a claim 'yak'"):
        front.findings(judged, "{yak}")


def test_the_front_figure_counts_each_gpus_verdicts(tmp_path, race):
    own = folder(tmp_path)
    known = [c for c in load.claims() if c.room == ROOM]
    (drawn, data), said = front.raced(
        {"NVIDIA H200": own}, {"NVIDIA H200": judge.judge(known, own)}
    )
    assert len(drawn.axes) == 2 and len(data) == 1 and said["caption"].startswith("NVIDIA H200. ")
    assert front.raced({}, {})[0] is None
    doors = front.doors(("Read", "ledger.html", "with `make`"))
    assert 'href="ledger.html"' in doors and "<code>make</code>" in doors


def test_the_notebooks_findings_name_claims_that_there_are():
    text = (paths.ROOT / "notebooks" / "index.ipynb").read_text()
    judged = pd.DataFrame(
        {"id": [c.id for c in load.claims()], "verdict": measures.NOT_MEASURED, "measured": "—"}
    )
    named = front.PLACE.findall(text.partition("front.findings")[2].partition("]")[0])
    assert len(named) >= 5 and set(named) <= set(judged["id"])
