"""What the tuners share: files that are whole or not there, and knobs as text."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from types import SimpleNamespace

import pytest

from artifact.measure import device as gpus
from kernels import jit, tuning


@dataclass(frozen=True)
class Knobs:
    kernel: str = "bulk"
    bm: int = 128
    share: float = 0.5
    ahead: bool = True


# ------------------------------------------------------------------------------------------ knobs


@pytest.mark.parametrize(
    "knobs", [Knobs(), Knobs("wide", 64, 0.25, False), Knobs(ahead=False), Knobs(bm=-1)]
)
def test_knobs_are_read_as_they_were_written(knobs):
    text = " ".join(f"{name}={value}" for name, value in asdict(knobs).items())
    found = tuning.parse_knobs(text, Knobs)
    assert found == knobs and [type(x) for x in vars(found).values()] == [str, int, float, bool]


def test_what_is_not_named_is_as_usual():
    assert tuning.parse_knobs("", Knobs) == Knobs()
    assert tuning.parse_knobs("  bm=64   ahead=False ", Knobs) == Knobs(bm=64, ahead=False)


@pytest.mark.parametrize("value", ["false", "0", "1", "yes", "", "true"])
def test_a_flag_is_true_or_false(value):
    """bool("False") is True: a flag must not be made of its text."""
    with pytest.raises(ValueError, match=f"^ahead is {value}, but must be True or False$"):
        tuning.parse_knobs(f"ahead={value}", Knobs)


@pytest.mark.parametrize(
    "text,error",
    [
        ("bm=many", ValueError),
        ("bm=1.5", ValueError),
        ("bm=", ValueError),
        ("bm", ValueError),
        ("bm=1=2", ValueError),
        ("colour=red", AttributeError),
    ],
)
def test_what_is_no_knob_is_refused(text, error):
    with pytest.raises(error):
        tuning.parse_knobs(text, Knobs)


# ------------------------------------------------------------------------------------------ files


def test_rows_are_written_with_their_columns_in_a_new_folder(tmp_path):
    path = tmp_path / "deep" / "er" / "choices.csv"
    tuning.write_rows(path, ("m", "knobs"), [(1, "a=1 b=2"), (2, "c, d")])
    assert path.read_bytes() == b'm,knobs\n1,a=1 b=2\n2,"c, d"\n'
    tuning.write_rows(path, ("m",), [])
    assert path.read_text() == "m\n" and list(path.parent.iterdir()) == [path]


def test_a_file_is_written_aside_and_renamed(tmp_path, monkeypatch):
    """Who reads while another writes sees the old file or the new one, and an error leaves the old."""
    path, seen = tmp_path / "choices.csv", []
    tuning.write_rows(path, ("m",), [(1,)])
    rename = tuning.os.replace

    def watch(source, target):
        seen.append((Path(source).read_text(), path.read_text()))
        assert Path(source).parent == path.parent, "of one file system"
        rename(source, target)

    monkeypatch.setattr(tuning.os, "replace", watch)
    tuning.write_rows(path, ("m",), [(2,)])
    assert seen == [("m\n2\n", "m\n1\n")] and list(tmp_path.iterdir()) == [path]

    def full_disk(*_):
        raise OSError("no space left on device")

    monkeypatch.setattr(tuning.os, "replace", full_disk)
    with pytest.raises(OSError, match="no space"):
        tuning.write_rows(path, ("m",), [(3,)])
    assert path.read_text() == "m\n2\n" and list(tmp_path.iterdir()) == [path]


def test_an_error_among_the_rows_leaves_what_was_there(tmp_path):
    path = tmp_path / "choices.csv"
    tuning.write_rows(path, ("m",), [(1,)])

    def rows():
        yield (2,)
        raise KeyError("broken")

    with pytest.raises(KeyError):
        tuning.write_rows(path, ("m",), rows())
    assert path.read_text() == "m\n1\n" and list(tmp_path.iterdir()) == [path]


# ---------------------------------------------------------------------------------------- folders


def test_choices_lie_beside_the_cubins_unless_the_user_says_where(monkeypatch, tmp_path):
    monkeypatch.delenv("SPARSITY_CHOICES", raising=False)
    monkeypatch.setattr(jit, "cache_folder", lambda: tmp_path / "build" / "cubin")
    assert tuning.own_folder() == tmp_path / "build" / "choices"
    assert tuning.own_folder("nm_spmm") == tmp_path / "build" / "choices" / "nm_spmm"
    monkeypatch.setenv("SPARSITY_CHOICES", str(tmp_path / "mine"))
    assert tuning.own_folder() == tmp_path / "mine"
    assert tuning.own_folder("nm_spmm") == tmp_path / "mine" / "nm_spmm"


@pytest.mark.parametrize(
    "name,slug",
    [
        ("NVIDIA H200", "nvidia-h200"),
        ("NVIDIA A100-SXM4-80GB", "nvidia-a100-sxm4-80gb"),
        ("NVIDIA GeForce RTX 4090 (D)", "nvidia-geforce-rtx-4090-d"),
    ],
)
def test_a_gpus_slug_is_that_of_its_records(name, slug):
    assert tuning.slug(SimpleNamespace(name=name)) == slug == gpus.slug(name)


# ------------------------------------------------------------------------------------- on a GPU


class Work:
    """A bound whose launch overwrites so many bytes; it notes that it was launched."""

    def __init__(self, megabytes: int):
        import cupy

        self.buffer, self.launches = cupy.empty(megabytes << 20, cupy.uint8), 0

    def launch(self, stream):
        import cupy

        self.launches += 1
        with cupy.cuda.Stream.from_external(stream):
            self.buffer.fill(self.launches % 2)


@pytest.mark.gpu
def test_a_race_is_of_one_uncounted_and_so_many_counted_launches(device):
    bounds = {"much": Work(1024), "little": Work(64)}
    times = tuning.race(bounds, device, 5)
    assert [bound.launches for bound in bounds.values()] == [6, 6]
    assert times.keys() == bounds.keys() and times["much"] > 4 * times["little"] > 0
