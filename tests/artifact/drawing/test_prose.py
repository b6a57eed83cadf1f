"""What pages show besides figures: where their numbers come from, small things in HTML, constants."""

import importlib
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest
import synthetic
from drawn import on_a_page, texts

from artifact.book import text
from artifact.drawing import compiled, outputs, provenance, sketch
from artifact.drawing.pages import method
from artifact.drawing.pages.sources import linked
from artifact.measure import bench, device, records, run as harness
from artifact.verdicts import load
from kernels import casper_sparse, tensor_core_24

# ---------------------------------------------------------------- where numbers come from


def test_without_a_gpu_the_shipped_records_are_read(shelf):
    for mode in ("auto", "recorded"):
        found = provenance.origin(mode, "nvidia-h200")
        assert (found.gpu, found.folder, found.fresh) == ("nvidia-h200", shelf, False)
    assert found.has("casper_sparse") and found.has("ceilings") and not found.has("nm_spmm")
    banner = found.banner()
    assert "From records of an NVIDIA H200, 2026-01-02, commit 0123abc." in banner
    assert "Nothing on this page was measured" in banner
    ElementTree.fromstring(banner)


def test_a_folder_of_records_can_be_named(shelf, tmp_path):
    other = synthetic.folder(tmp_path / "other", frames={}, gpu="NVIDIA B200", slug="nvidia-b200")
    assert provenance.origin("recorded", "nvidia-b200", str(other.parent)).folder == other


@pytest.mark.parametrize(
    ("mode", "gpu", "error", "why"),
    [
        ("quick", "nvidia-h200", ValueError, "mode is 'quick', but must be one of auto"),
        ("recorded", "abacus", ValueError, "'abacus'; known: nvidia-h200"),
        ("measure", "nvidia-h200", device.NoGpu, ""),
    ],
)
def test_unknown_modes_and_gpus_are_refused(shelf, mode, gpu, error, why):
    with pytest.raises(error, match=why):
        provenance.origin(mode, gpu)


def test_no_records_at_all(shelf, tmp_path):
    found = provenance.origin("auto", "nvidia-h200", tmp_path)
    assert found.folder is None and not found.fresh and not found.has("casper_sparse")
    assert "Nothing measured yet." in found.banner() and "the GPU <code>nvidia-h200</code>" in found.banner()
    ElementTree.fromstring(found.banner())


@pytest.mark.parametrize("mode", ["auto", "measure"])
def test_with_a_gpu_its_own_records_are_read(gpu, mode):
    empty = provenance.origin(mode, "some-other-gpu")
    assert empty == provenance.Origin("nvidia-h200", None, True) and "this GPU" in empty.missing
    synthetic.folder(gpu)
    found = provenance.origin(mode, "some-other-gpu")
    assert found == provenance.Origin("nvidia-h200", gpu / "nvidia-h200", True)
    assert "measured on this machine" in found.banner()


def test_a_banner_names_every_gpu_that_a_page_draws_from(tmp_path, shelf):
    """Each with its dates; the commits fold. A page of one GPU's records names that alone."""
    own = synthetic.folder(tmp_path, gpu="NVIDIA X1", slug="nvidia-x1")
    records.write_machine(
        own / "ceilings",
        synthetic.machine("NVIDIA X1", "nvidia-x1") | {"date": "2026-02-03T04:05:06+00:00", "commit": "new"},
    )
    synthetic.folder(tmp_path, gpu="NVIDIA Y2", slug="nvidia-y2")
    banner = provenance.Origin("nvidia-x1", own, True).banner()
    title = banner.partition("</p>")[0]
    assert "an NVIDIA X1, 2026-01-02 to 2026-02-03; an NVIDIA Y2, 2026-01-02; an NVIDIA H200, 2026-01-02." in title
    assert "0123abc" not in title and "Those of the NVIDIA X1 were measured on this machine." in banner
    assert (
        "NVIDIA X1: commits 0123abc, new; NVIDIA Y2: commit 0123abc"
        in banner.partition("<summary>Commits</summary>")[2]
    )
    ElementTree.fromstring(banner)
    alone = provenance.Origin("nvidia-x1", own, False).banner(alone=True)
    assert "H200" not in alone and "commits 0123abc, new." in alone


def test_this_pages_gpu_first_then_those_beside_it_then_the_shipped(tmp_path):
    x1, y2, a100, other = (
        synthetic.folder(tmp_path / root, {}, f"NVIDIA {gpu}", f"nvidia-{gpu.lower()}")
        for root, gpu in (("fresh", "X1"), ("fresh", "Y2"), ("shipped", "A100"), ("shipped", "X1"))
    )
    found = provenance.folders(x1, a100.parent)
    assert list(found.items()) == [("NVIDIA X1", x1), ("NVIDIA Y2", y2), ("NVIDIA A100", a100)]
    assert provenance.sides(x1, a100.parent) == found | {"NVIDIA X1, as shipped": other}
    assert provenance.folders(None) == provenance.sides(None) == provenance.folders(tmp_path / "nothing") == {}


# ---------------------------------------------------------------- constants


def test_constants_and_their_comments(tmp_path, monkeypatch):
    (tmp_path / "made_up.py").write_text(
        "#: What A does,\n#: on two lines.\nA = 3\n\n"
        "#: Both.\nLOW = 1\nHIGH = 2.5\n\n"
        "# no explanation\nHIDDEN = 4\n\n#: Not a number.\nTEXT = 'x'\n\nBARE = 5\n",
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert method.constants(importlib.import_module("made_up")).to_numpy().tolist() == [
        ["`A`", "3", "What A does, on two lines."],
        ["`LOW`, `HIGH`", "1 · 2.5", "Both."],
    ]


# ---------------------------------------------------------------- what cells put on a page

SIZES = {"m": 64, "n": 32, "k": 48, "density": 0.1, "seed": 3}


@pytest.fixture
def shown(monkeypatch) -> list:
    found = []
    monkeypatch.setattr(outputs, "display", found.append)
    return found


def test_verdicts_are_those_of_the_system(shown):
    judged = outputs.verdicts(harness.start("nm_cuda_core", mode="recorded"))
    assert set(judged["id"]) == {claim.id for claim in load.claims() if claim.room == "nm_cuda_core"}
    assert all(name in shown[0].data for name in judged["id"])


def test_several_texts_and_what_is_not_there(shown):
    outputs.say("one", "", "two")
    assert [markdown.data for markdown in shown] == ["one", "two"]


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("system", "module", "sizes", "names"),
    [
        ("casper_sparse", casper_sparse, SIZES, ["warp_per_row", "cusparse_alg2"]),
        ("tensor_core_24", tensor_core_24, {"m": 1000, "n": 520, "k": 712, "seed": 1}, ["mma_sp", "cublaslt"]),
    ],
)
def test_a_readers_own_problem_on_a_gpu(shown, tmp_path, system, module, sizes, names):
    run = harness.start(system, mode="measure", preset="kick", records=tmp_path)
    outputs.run_own(run, module.problem(**sizes), names)
    (table,) = shown
    assert "relative error" in table.data and "1.00×" in table.data
    assert not list(run.folder.glob("*.csv"))


def test_registers_and_spills():
    text = compiled.told(casper_sparse.VARIANTS["warp_per_row"])
    assert text.startswith("`warp_per_row<") and "compiled for sm_90a" in text
    assert text.endswith("registers a thread and spills none.")
    assert "no kernel of its own" in compiled.told(casper_sparse.VARIANTS["auto"])
    assert compiled.registers(
        pd.DataFrame({"sm_80": [48, 32], "sm_90a": [40, 32]}, index=["one", "two"])
    ).to_dict() == {"one": "48, 40", "two": "32"}


def test_instructions_have_no_addresses():
    ops = compiled.instructions(casper_sparse.VARIANTS["warp_per_row"])
    assert any(op.startswith("LDG.E.128") for op in ops) and not any("/*" in op for op in ops)


# ---------------------------------------------------------------- numbers in words, names of files


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (text.listed([]), ""),
        (text.listed(["a"]), "a"),
        (text.listed(["a", "b", "c"]), "a, b and c"),
        (text.shape((512, 512, 512)), "512³"),
        (text.shape((512, 512, 64)), "512 × 512 × 64"),
        (text.more(0.123, "bytes"), "12% more bytes"),
        (text.more(-0.5, "clocks"), "50% fewer clocks"),
        (text.change(1.2), "20% faster"),
        (text.change(0.9), "10% slower"),
        (text.change(1.019), "the same within 2%"),
        (text.change(0.981), "the same within 2%"),
        (text.times("1.3x over 128 x 256: 2x."), "1.3× over 128 x 256: 2×."),
        (sketch.wrap("one two three", 8), "one two\nthree"),
        (sketch.wrap("", 8), "–"),
        *((sketch.short(value), text) for value, text in ((0, "0"), (0.533, ".53"), (-0.5, "-.50"), (0.996, "1.0"))),
        *((sketch.short(value), text) for value, text in ((1.25, "1.2"), (12.34, "12.3"))),
    ],
)
def test_what_is_said(said, expected):
    assert said == expected


def test_a_file_that_is_named_is_linked_and_comes_along(tmp_path):
    for name in ("one/a.cu", "two/a.cu", "two/b.cuh", "common/c.cuh"):
        records.write_text(tmp_path / "kernels" / name, name)
    page = (
        '<code class="x"><span class="pre">a.cu</span></code> <code>b.cuh</code> <code>common/c.cuh</code> '
        '<code>kernels/two/a.cu</code> <code>none.cu</code> <a href="y"><code>b.cuh</code></a> a.cu'
    )
    text, files = linked(page, "one", tmp_path)
    assert files == {
        f"sources/kernels/{name}.txt": name for name in ("one/a.cu", "two/b.cuh", "common/c.cuh", "two/a.cu")
    }
    assert text.count("<a ") == 5 and 'href="sources/kernels/one/a.cu.txt"><code' in text
    assert '<a href="y"><code>b.cuh</code></a> a.cu' in text
    # On a page of no system a name that two folders have says nothing.
    assert linked("<code>a.cu</code>", "index", tmp_path) == ("<code>a.cu</code>", {})


def test_a_mark_is_drawn_at_all_entries_of_its_arrays_as_it_says():
    marks = (sketch.put, [0, 1], 2, ["a", "b"], {"ha": ["left", "right"]}), (sketch.frame, 0, [0, 1], 1, 1)
    ax = sketch.picture((0, 4), (3, 0), *marks).axes[0]
    assert [(t.get_text(), t.get_position(), t.get_ha()) for t in ax.texts] == [
        ("a", (0, 2), "left"),
        ("b", (1, 2), "right"),
    ]
    assert [patch.get_xy() for patch in ax.patches] == [(0, 0), (0, 1)] and ax.get_ylim() == (3, 0)


# ---------------------------------------------------------------- the picture of the timing protocol


def test_the_timeline_is_the_schedule_of_the_timer():
    fig, data = method.timeline(("A", "B"), rounds=2)
    gpu = data[data["lane"] == "GPU"]
    assert gpu["what"].tolist() == ["flush", *(x for name in bench.schedule({"A": 2, "B": 2}) for x in ("flush", name))]
    assert (data["end"] > data["begin"]).all()
    for _, lane in data.groupby("lane"):
        assert np.allclose(lane["begin"].to_numpy()[1:], lane["end"].to_numpy()[:-1])
    text = texts(on_a_page(fig))
    assert text.count("a sample of A") == text.count("a sample of B") > 0
