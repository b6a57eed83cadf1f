"""What the pages without a room show: where their numbers come from, and the figures' data."""

from __future__ import annotations

import importlib.util
import math
import re
from dataclasses import replace
from xml.etree import ElementTree

import matplotlib
import numpy as np
import pandas as pd
import pytest
import synthetic

matplotlib.use("agg")

from matplotlib import pyplot as plt

from artifact import paths, rooms
from artifact.drawing import headline, prose, protocol, roofs, style, systems
from artifact.measure import bench, device, minutes, records
from artifact.verdicts import judge, load, measures, page

INFO = device.DeviceInfo(0, "NVIDIA H200", "nvidia-h200", (9, 0), 132, 60 * 2**20, 2**37)
H200 = {
    "compute_capability": "9.0",
    "sm_count": 132,
    "sm_mhz_max": 1980,
    "memory_bus_bits": 6144,
    "memory_mhz_max": 3201,
}


@pytest.fixture(autouse=True)
def tidy():
    style.apply()
    yield
    plt.close("all")


@pytest.fixture(scope="module")
def gpu_folder(tmp_path_factory):
    """Synthetic records of all sweeps and of the ceilings; tests only read them."""
    return synthetic.folder(tmp_path_factory.mktemp("records"))


@pytest.fixture
def shelf(tmp_path, monkeypatch, gpu_folder):
    """The shipped records are synthetic, the fresh ones empty, and there is no GPU."""
    monkeypatch.setattr(paths, "RECORDED", gpu_folder.parent)
    monkeypatch.setattr(paths, "RECORDS", tmp_path / "fresh")
    monkeypatch.setattr(device, "find", lambda *_: None)
    return gpu_folder


@pytest.fixture
def gpu(shelf, monkeypatch):
    monkeypatch.setattr(device, "find", lambda *_: INFO)
    monkeypatch.setattr(device, "require", lambda *_: INFO)
    return paths.RECORDS


def drawn(fig, name="x") -> ElementTree.Element:
    """The figure as the page gets it, which must be well-formed."""
    return ElementTree.fromstring(style.svg(fig, name, "What it shows."))


def words(root: ElementTree.Element) -> str:
    return " ".join(" ".join("".join(e.itertext()).split()) for e in root.iter() if "text" in e.tag)


# ---------------------------------------------------------------- the five systems


def test_the_systems_are_cited_and_have_a_place_on_the_map():
    bibliography = (paths.ROOT / "book" / "references.bib").read_text(encoding="utf-8")
    for system in rooms.find().values():
        assert re.search(rf"^@\w+{{{system.cite},$", bibliography, re.MULTILINE), system.cite
        assert system.unit in systems.UNITS
        assert 0 <= system.pattern and system.pattern + system.span <= len(systems.PATTERNS)
    places = [
        (system.unit, column)
        for system in rooms.find().values()
        for column in range(system.pattern, system.pattern + system.span)
    ]
    assert len(set(places)) == len(places), "two cards lie on one another"


def test_the_state_of_a_room(gpu_folder, tmp_path):
    assert systems.state("casper_sparse", gpu_folder) == systems.MEASURED
    assert (
        systems.state("casper_sparse", tmp_path)
        == systems.state("casper_sparse", None)
        == systems.BUILT
    )
    assert systems.state("no_such_room", gpu_folder) == systems.NOT_BUILT


def test_the_map_shows_every_system(gpu_folder):
    fig, data = systems.systems_map(gpu_folder)
    assert list(data["name"]) == [system.name for system in rooms.find().values()]
    assert data.set_index("room")["state"]["casper_sparse"] == systems.MEASURED
    assert not data.isna().any(axis=None)
    text = words(drawn(fig))
    for name in [*data["name"], *systems.PATTERNS]:
        assert name in text


def test_the_patterns_are_what_they_are_called():
    anywhere, blocks, vectors, elements = systems._patterns()
    assert all(grid.shape == (8, 8) and grid.any() for grid in (anywhere, blocks))
    assert set(blocks.reshape(4, 2, 4, 2).sum(axis=(1, 3)).flat) == {0, 4}
    assert (vectors.reshape(2, 4, 2, 4).any(axis=3).sum(axis=1) == 2).all()
    assert (elements.reshape(8, 2, 4).sum(axis=2) == 2).all()


# ---------------------------------------------------------------- where numbers come from


def test_without_a_gpu_the_shipped_records_are_read(shelf):
    for mode in ("auto", "recorded"):
        found = prose.origin(mode, "nvidia-h200")
        assert (found.gpu, found.folder, found.fresh) == ("nvidia-h200", shelf, False)
    assert found.has("casper_sparse") and found.has("ceilings") and not found.has("nm_spmm")
    banner = found.banner()
    assert "From records of an NVIDIA H200, 2026-01-02, commit 0123abc." in banner
    assert "Nothing on this page was measured" in banner
    ElementTree.fromstring(banner)


def test_a_gpu_is_found_by_its_name(shelf):
    assert prose.origin("recorded", "NVIDIA H200").folder == shelf


def test_a_folder_of_records_can_be_named(shelf, tmp_path):
    other = synthetic.folder(tmp_path / "other", frames={}, gpu="NVIDIA B200", slug="nvidia-b200")
    assert prose.origin("recorded", "nvidia-b200", str(other.parent)).folder == other


def test_unknown_modes_and_gpus_are_refused(shelf):
    with pytest.raises(ValueError, match="mode is 'quick', but must be one of auto"):
        prose.origin("quick", "nvidia-h200")
    with pytest.raises(ValueError, match="'abacus'; known: nvidia-h200"):
        prose.origin("recorded", "abacus")
    with pytest.raises(device.NoGpu):
        prose.origin("measure", "nvidia-h200")


def test_no_records_at_all(shelf, tmp_path):
    found = prose.origin("auto", "nvidia-h200", tmp_path)
    assert found.folder is None and not found.fresh and not found.has("casper_sparse")
    assert "Nothing measured yet." in found.banner()
    assert "the GPU <code>nvidia-h200</code>" in found.banner()
    ElementTree.fromstring(found.banner())


@pytest.mark.parametrize("mode", ["auto", "measure"])
def test_with_a_gpu_its_own_records_are_read(gpu, mode):
    empty = prose.origin(mode, "some-other-gpu")
    assert empty == prose.Origin("nvidia-h200", None, True) and "this GPU" in empty.missing
    synthetic.folder(gpu)
    found = prose.origin(mode, "some-other-gpu")
    assert found == prose.Origin("nvidia-h200", gpu / "nvidia-h200", True)
    assert "measured on this machine" in found.banner()


def test_recorded_asks_for_no_gpu(gpu, shelf):
    assert prose.origin("recorded", "nvidia-h200") == prose.Origin("nvidia-h200", shelf, False)


def test_the_machine_is_that_of_the_last_measurement(tmp_path):
    folder = synthetic.folder(tmp_path)
    later = synthetic.machine() | {"date": "2026-02-03T04:05:06+00:00", "commit": "<new>"}
    records.write_machine(folder / "ceilings", later)
    banner = prose.Origin("nvidia-h200", folder, True).banner()
    assert "2026-02-03, commit &lt;new&gt;" in banner


def test_html_of_small_things():
    assert prose.article("NVIDIA H200") == "an NVIDIA H200"
    assert prose.article("Tesla V100") == "a Tesla V100"
    assert prose.inline_code("run `a < b` & go") == "run <code>a &lt; b</code> &amp; go"
    assert "<td>2</td>" in prose.table(pd.DataFrame({"x": [2]})).replace(" ", "").replace("\n", "")
    assert prose.facts({"SMs": 132}).count("<tr>") == 1


# ---------------------------------------------------------------- how long it took


def rows_at(*seconds: float, samples=10, median_us=1000.0) -> pd.DataFrame:
    start = pd.Timestamp("2026-01-02T03:04:05+00:00")
    when = [(start + pd.Timedelta(seconds=s)).isoformat() for s in seconds]
    return pd.DataFrame({"when": when, "samples": samples, "median_us": median_us})


@pytest.mark.parametrize(
    ("seconds", "took"),
    [
        ((0, 10, 30), 45),  # 10 + 20, and the mean of both for the first point
        ((30, 0, 10), 45),  # rows of a later contender may stand first
        ((0, 0, 10, 10, 30, 30), 45),  # the rows of a point are stamped alike
        ((0, 10, 10 + minutes.PAUSE_S + 1, 30 + minutes.PAUSE_S + 1), 45),  # a night is no work
        ((0, minutes.PAUSE_S), 2 * minutes.PAUSE_S),
    ],
)
def test_wall_time_from_the_stamps(seconds, took):
    assert minutes.wall_s(rows_at(*seconds)) == pytest.approx(took)


def test_wall_time_is_at_least_that_of_the_kernels():
    assert minutes.wall_s(rows_at(0, 0)) == pytest.approx(0.02)
    assert minutes.wall_s(rows_at(0, 1, samples=100, median_us=1e6)) == pytest.approx(200)
    assert minutes.wall_s(rows_at(0, minutes.PAUSE_S + 1)) == pytest.approx(0.02)


def test_durations_of_all_records(tmp_path):
    folder = synthetic.folder(tmp_path)
    records.write(
        folder / "casper_sparse" / "repeat" / "tall.csv", synthetic.experiment("tall", scale=2.0)
    )
    df = minutes.durations(folder).set_index(["room", "experiment", "repeat"])
    assert list(df.index) == [
        ("casper_sparse", "square", False), ("casper_sparse", "tall", False),
        ("casper_sparse", "wide", False), ("casper_sparse", "tall", True),
        ("ceilings", "ceilings", False),
    ]  # fmt: skip
    wide, tall, again = (
        df.loc[("casper_sparse", *key)]
        for key in (("wide", False), ("tall", False), ("tall", True))
    )
    assert (wide["figure"], tall["figure"], again["figure"]) == ("Fig. 4", "Fig. 6", "Fig. 6")
    assert wide["points"] == 21 and wide["rows"] == 21 * 8 and wide["notebook"] == "casper_sparse"
    assert again["kernel_s"] == pytest.approx(2 * tall["kernel_s"])
    assert tall["minutes"] * 60 >= tall["kernel_s"] * (1 - 1e-9)
    roof = df.loc[("ceilings", "ceilings", False)]
    assert (roof["figure"], roof["notebook"]) == ("", "machine")


def test_size_of_a_folder(tmp_path):
    assert minutes.size_bytes(tmp_path / "none") == 0
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "b").write_bytes(b"12345")
    (tmp_path / "c").write_bytes(b"123")
    assert minutes.size_bytes(tmp_path) == 8


# ---------------------------------------------------------------- constants


def module_of(path, text: str):
    path.write_text(text)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_constants_and_their_comments(tmp_path):
    module = module_of(
        tmp_path / "made_up.py",
        "#: What A does,\n#: on two lines.\nA = 3\n\n"
        "#: Both.\nLOW = 1\nHIGH = 2.5\n\n"
        "# no explanation\nHIDDEN = 4\n\n#: Not a number.\nTEXT = 'x'\n\nBARE = 5\n",
    )
    df = prose.constants(module)
    assert list(df["meaning"]) == ["What A does, on two lines.", "Both."]
    assert list(df["constant"]) == [["A"], ["LOW", "HIGH"]]
    assert list(df["value"]) == [[3], [1, 2.5]]


def test_the_constants_of_the_timer_are_its_own():
    df = prose.constants(bench)
    flat = {
        name: value
        for names, values in zip(df["constant"], df["value"], strict=True)
        for name, value in zip(names, values, strict=True)
    }
    assert {"FLUSH_FACTOR", "WARMUP_STEPS", "MIN_SAMPLES", "MAX_SAMPLES", "BUDGET_S"} <= set(flat)
    assert all(getattr(bench, name) == value for name, value in flat.items())
    assert df["meaning"].str.len().gt(10).all()


# ---------------------------------------------------------------- contradictions

REPRODUCED, PARTLY, NOT_REPRODUCED, NOT_MEASURED = measures.VERDICTS


@pytest.mark.parametrize(
    ("a", "b", "stands"),
    [
        (REPRODUCED, NOT_REPRODUCED, "a"),
        (NOT_REPRODUCED, REPRODUCED, "b"),
        (PARTLY, NOT_REPRODUCED, "a"),
        (PARTLY, REPRODUCED, "b"),
        (REPRODUCED, REPRODUCED, "both"),
        (PARTLY, PARTLY, "neither"),
        (NOT_REPRODUCED, NOT_REPRODUCED, "neither"),
        (NOT_MEASURED, REPRODUCED, "undecided"),
        (NOT_REPRODUCED, NOT_MEASURED, "undecided"),
    ],
)
def test_which_of_two_claims_stands(a, b, stands):
    any_claim = load.claims()[0]
    known = [
        replace(any_claim, id="a", contradicts=()),
        replace(any_claim, id="b", contradicts=("a",)),
    ]
    judged = pd.DataFrame({"id": ["a", "b"], "verdict": [a, b]})
    df = page.contradictions(judged, known)
    assert df.to_dict("records") == [{"one": "a", "other": "b", "stands": stands}]


def test_a_contradiction_that_both_claims_state_is_one():
    any_claim = load.claims()[0]
    known = [replace(any_claim, id=i, contradicts=(o,)) for i, o in (("a", "b"), ("b", "a"))]
    judged = pd.DataFrame({"id": ["a", "b"], "verdict": [PARTLY, REPRODUCED]})
    assert len(page.contradictions(judged, known)) == 1
    alone = [replace(any_claim, id="a", contradicts=())]
    none = page.contradictions(judged, alone)
    assert none.empty and list(none.columns) == ["one", "other", "stands"]


def test_the_contradictions_of_the_ledger(gpu_folder):
    known = load.claims()
    df = page.contradictions(judge.judge(known, gpu_folder), known)
    stated = {frozenset((c.id, o)) for c in known for o in c.contradicts}
    assert stated and {frozenset(pair) for pair in df[["one", "other"]].to_numpy()} == stated
    # In the synthetic records the published kernel is slower everywhere.
    by_pair = df.set_index(["one", "other"])["stands"]
    assert by_pair["abstract-speedup", "summary-cusparse-faster"] == "summary-cusparse-faster"


# ---------------------------------------------------------------- roofs


def test_peaks_of_an_h200():
    assert roofs.peak("copy", H200, 1500) == pytest.approx(4916.7, abs=0.1)
    assert roofs.peak("fma", H200, 1980) == pytest.approx(66.9, abs=0.05)
    assert roofs.peak("shared_read", H200, 1980) == pytest.approx(33454, abs=1)
    assert roofs.peak("l2_read", H200, 1980) is None


def test_a_peak_follows_the_clock_it_ran_at():
    assert roofs.peak("fma", H200, 990) == pytest.approx(roofs.peak("fma", H200, 1980) / 2)
    assert roofs.peak("copy", H200, 990) == roofs.peak("copy", H200, 1980)
    for unknown in (math.nan, 0):
        assert roofs.peak("fma", H200, unknown) == roofs.peak("fma", H200, 1980)


def test_an_a100_has_half_the_lanes():
    assert roofs.peak("fma", H200 | {"compute_capability": "8.0"}, 1980) == pytest.approx(
        roofs.peak("fma", H200, 1980) / 2
    )
    a100 = H200 | {"compute_capability": "8.0", "sm_count": 108}
    assert roofs.peak("fma", a100, 1410) == pytest.approx(19.5, abs=0.05)


@pytest.mark.parametrize(
    ("variant", "key"),
    [
        ("copy", "memory_bus_bits"), ("copy", "memory_mhz_max"), ("shared_read", "sm_count"),
        ("fma", "sm_count"), ("fma", "compute_capability"), ("fma", "sm_mhz_max"),
        ("shared_read", "sm_mhz_max"),
    ],
)  # fmt: skip
def test_a_machine_that_does_not_say_enough_promises_nothing(variant, key):
    assert roofs.peak(variant, H200 | {key: None}, math.nan) is None
    assert roofs.peak(variant, {k: v for k, v in H200.items() if k != key}, math.nan) is None


def test_roofs_beside_what_is_promised():
    df = roofs.roofs(synthetic.ceilings(), H200).set_index("variant")
    assert list(df.index) == [roof.variant for roof in roofs.ROOFS]
    assert df["measured"].to_dict() == {
        "copy": 4000, "l2_read": 8000, "shared_read": 32000, "fma": 60
    }  # fmt: skip
    assert df["balance"]["copy"] == pytest.approx(60e12 / 4000e9)
    assert df["share"]["copy"] == pytest.approx(4000 / 4916.7, rel=1e-4)
    assert df["share"]["fma"] == pytest.approx(60 / 66.9, rel=1e-3)
    assert math.isnan(df["promised"]["l2_read"]) and math.isnan(df["balance"]["fma"])
    assert df["spread"].tolist() == pytest.approx([0.02] * 4)
    assert set(df["unit"]) == {"GB/s", "TFLOP/s"} and df["unit"]["fma"] == "TFLOP/s"


def test_a_ceiling_that_was_not_measured_is_left_out():
    record = synthetic.ceilings()
    df = roofs.roofs(record[record["variant"] != "l2_read"], H200)
    assert set(df["variant"]) == {"copy", "shared_read", "fma"}


def test_the_roofline_and_its_data(gpu_folder):
    here = roofs.intensities(gpu_folder)
    assert set(here) == {"CSR, requested bytes", "CSR, least bytes"}
    fig, data = roofs.roofline(roofs.roofs(synthetic.ceilings(), H200), here)
    at = data[data["what"] == "DRAM copy"].iloc[0]
    assert (at["flop_per_byte"], at["tflops"]) == (pytest.approx(15), 60)
    ends = data[data["what"] == "CSR, least bytes"]["flop_per_byte"].tolist()
    assert ends == list(here["CSR, least bytes"])
    text = words(drawn(fig))
    assert "FP32 FMA 60.0 TFLOP/s" in text and "DRAM copy 4.00 TB/s" in text
    fig, data = roofs.roofline(roofs.roofs(synthetic.ceilings(), H200))
    assert len(data) == 4 and (data["flop_per_byte"] > 0).all()


def test_intensities_span_the_records(gpu_folder, tmp_path):
    df = pd.concat(synthetic.experiment(name) for name in synthetic.SHAPES)
    least, most = roofs.intensities(gpu_folder)["CSR, requested bytes"]
    ratio = df["useful_flops"] / df["requested_bytes"]
    assert (least, most) == (pytest.approx(ratio.min()), pytest.approx(ratio.max()))
    assert roofs.intensities(synthetic.folder(tmp_path, frames={})) == {}


def test_intensities_tell_formats_apart_and_leave_tensor_cores_out(gpu_folder):
    alone = roofs.intensities(gpu_folder)
    for room in ("nm_cuda_core", "nm_spmm", "tensor_core_24"):
        df = synthetic.experiment("square", room=room)
        records.write(gpu_folder / room / "square.csv", df)
    both = roofs.intensities(gpu_folder)
    assert set(both) - set(alone) == {
        f"{format}, {kind} bytes"
        for format in ("2:4", "N:M vectors")
        for kind in ("requested", "least")
    }
    assert {name: both[name] for name in alone} == alone
    fig, data = roofs.roofline(roofs.roofs(synthetic.ceilings(), H200), both)
    assert len(data) == 4 + 2 * 6
    bars = [line.get_ydata()[0] for line in fig.axes[0].lines if line.get_linewidth() == 5]
    bottom = fig.axes[0].get_ylim()[0]
    assert len(set(bars)) == 6 and all(bottom < y < 6 * bottom for y in bars)


# ---------------------------------------------------------------- the protocol


def test_the_timeline_is_the_schedule_of_the_timer():
    fig, data = protocol.timeline(("A", "B"), rounds=2)
    gpu = data[data["lane"] == "GPU"]
    order = bench.schedule({"A": 2, "B": 2})
    assert gpu["what"].tolist() == ["flush", *(x for name in order for x in ("flush", name))]
    assert (data["end"] > data["begin"]).all()
    for _, lane in data.groupby("lane"):
        assert np.allclose(lane["begin"].to_numpy()[1:], lane["end"].to_numpy()[:-1])
    text = words(drawn(fig))
    assert text.count("a sample of A") == text.count("a sample of B") > 0


# ---------------------------------------------------------------- the headline


def test_the_contest_is_between_the_published_kernel_and_the_last_rung(gpu_folder):
    c = headline.contest(gpu_folder)
    assert (c.published, c.last) == ("warp_per_row", synthetic.LADDER[-1])
    assert c.experiments == ["wide", "square", "tall"], "in the order of the source"
    for name, ratio in synthetic.SPEEDUP.items():
        assert c.geomean("warp_per_row", name) == pytest.approx(ratio)
        assert c.geomean(c.last, name) == pytest.approx(1 / synthetic.SLOWER[c.last])


def test_each_sweep_is_drawn_over_what_it_sweeps(gpu_folder):
    df = headline.contest(gpu_folder).speedups
    points = len(synthetic.DENSITIES) * sum(map(len, synthetic.SHAPES.values()))
    assert len(df) == 2 * points
    swept = {"wide": "n", "square": "m", "tall": "m"}
    for name, here in df.groupby("experiment"):
        assert (here["size"] == here[swept[name]]).all()
        assert here["size"].nunique() == len(synthetic.SHAPES[name])


def only(df: pd.DataFrame, *prefixes: str) -> pd.DataFrame:
    return df[df["variant"].str.startswith(prefixes)]


@pytest.mark.parametrize(
    "change",
    [
        lambda df: only(df, "warp_per_row", "rows_per_warp"),  # no library
        lambda df: only(df, "any_n", "rows_per_warp", "cusparse"),  # no published kernel
        lambda df: only(df, "warp_per_row", "cusparse"),  # no rung of ours
        lambda df: df.assign(label="wiki-Vote"),  # real matrices
        lambda df: df[df["n"] == 512],  # one size is no sweep
    ],
)
def test_records_without_a_contest(tmp_path, change):
    folder = synthetic.folder(tmp_path, frames={"wide": change(synthetic.experiment("wide"))})
    assert headline.contest(folder) is None
    target = tmp_path / "readme.svg"
    with pytest.raises(FileNotFoundError, match="no records of casper_sparse with cuSPARSE"):
        headline.readme(folder, target)
    assert not target.exists()


def test_the_contest_in_panels(gpu_folder):
    c = headline.contest(gpu_folder)
    fig, data = headline.contest_figure(c)
    assert [ax.get_title() for ax in fig.axes] == ["wide", "square", "tall"]
    assert [ax.get_xlabel() for ax in fig.axes] == ["N", "M = N = K", "M"]
    assert list(data.columns) == ["experiment", "variant", *records.POINT, "speedup"]
    assert len(data) == len(c.speedups) and (data["speedup"] > 0).all()
    published, ours, library = fig.axes[0].get_lines()
    assert published.get_ydata() == pytest.approx([0.7] * 7)
    assert ours.get_ydata() == pytest.approx([1.25] * 7) and set(library.get_ydata()) == {1}
    assert "warp_per_row (as published)" in words(drawn(fig))


# ---------------------------------------------------------------- the README's figure


def test_the_figure_of_the_readme_stands_alone(gpu_folder, tmp_path):
    target = tmp_path / "figure" / "readme.svg"
    assert headline.readme(gpu_folder, target) == target
    assert [p.name for p in target.parent.iterdir()] == ["readme.svg"], "nothing half-written stays"
    text = target.read_text(encoding="utf-8")
    root = ElementTree.fromstring(text)
    assert root.tag == "{http://www.w3.org/2000/svg}svg", "without it a browser shows no picture"
    assert "prefers-color-scheme:dark" in text and "currentColor" in text
    assert re.findall(r"https?://([^/\"]+)", text) == ["www.w3.org"], "it asks no other host"
    assert root.get("aria-label") == (
        "Speedup of warp_per_row and rows_per_warp over cuSPARSE's best algorithm on NVIDIA H200: "
        "wide 0.70 and 1.25, square 0.80 and 1.25, tall 0.85 and 1.25"
    )


def test_the_same_records_give_the_same_figure(gpu_folder, tmp_path):
    one, other = (headline.readme(gpu_folder, tmp_path / f"{i}.svg").read_bytes() for i in (1, 2))
    assert one == other


def test_the_figure_from_the_shell(gpu_folder, tmp_path, capsys):
    arguments = ["readme", "--records", str(gpu_folder.parent), "--output", str(tmp_path / "r.svg")]
    assert headline.main(arguments) == 0
    assert capsys.readouterr().out.strip() == str(tmp_path / "r.svg")
    assert headline.main([*arguments, "--gpu", "abacus"]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1
    assert err.startswith("artifact.maps: ") and "nvidia-h200" in err


def test_the_figure_in_the_readme_is_that_of_the_shipped_records(tmp_path):
    made = headline.readme(records.resolve("nvidia-h200", paths.RECORDED), tmp_path / "readme.svg")
    here, shipped = (
        ElementTree.parse(path).getroot().get("aria-label")
        for path in (made, headline.README_FIGURE)
    )
    assert here == shipped, "python -m artifact.maps readme"
