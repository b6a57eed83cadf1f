"""What pages show besides figures: where their numbers come from, small things in HTML, constants."""

import importlib
from xml.etree import ElementTree

import pytest
import synthetic

from artifact.drawing import provenance
from artifact.drawing.pages import method
from artifact.measure import device, records

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
    assert "Nothing measured yet." in found.banner()
    assert "the GPU <code>nvidia-h200</code>" in found.banner()
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
    later = {"date": "2026-02-03T04:05:06+00:00", "commit": "new"}
    records.write_machine(own / "ceilings", synthetic.machine("NVIDIA X1", "nvidia-x1") | later)
    synthetic.folder(tmp_path, gpu="NVIDIA Y2", slug="nvidia-y2")
    banner = provenance.Origin("nvidia-x1", own, True).banner()
    title = banner.partition("</p>")[0]
    assert "an NVIDIA X1, 2026-01-02 to 2026-02-03; an NVIDIA Y2, 2026-01-02; an NVIDIA H200, 2026-01-02." in title
    assert "0123abc" not in title and "Those of the NVIDIA X1 were measured on this machine." in banner
    folded = banner.partition("<summary>Commits</summary>")[2]
    assert "NVIDIA X1: commits 0123abc, new; NVIDIA Y2: commit 0123abc" in folded
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
    df = method.constants(importlib.import_module("made_up"))
    assert df.to_numpy().tolist() == [["`A`", "3", "What A does, on two lines."], ["`LOW`, `HIGH`", "1 · 2.5", "Both."]]
