"""The files that keep choices: whole or not there, read as written, and what a row must name."""

from __future__ import annotations

import csv
import multiprocessing
import os
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import racing

from artifact.measure import device as gpus
from kernels import jit
from kernels.tuning import __main__ as command
from kernels.tuning import choices
from kernels.tuning.choices import Choice, Choices


@dataclass(frozen=True)
class Knobs:
    kernel: str = "bulk"
    bm: int = 128
    share: float = 0.5
    ahead: bool = True


@dataclass(frozen=True)
class Others:
    number: int = 1


@pytest.fixture
def room(tmp_path, monkeypatch):
    monkeypatch.setenv("SPARSITY_CHOICES", str(tmp_path / "own"))
    source = tmp_path / "kernel.cu"
    source.write_text('#include "tile.cuh"\n__global__ void kernel() { tile(); }\n')
    (tmp_path / "tile.cuh").write_text("__device__ void tile() {}\n")
    return Choices(
        "room",
        tmp_path / "shipped",
        {"m": int, "dtype": str},
        {"knobs": Knobs, "others": Others},
        lambda config: [source],
    )


def current(room, config=None, median_us=9.0) -> Choice:
    return Choice(config or Knobs(), median_us, choices.digest(room.sources(None)))


KEY = (512, "bfloat16")
FITS = {"fits": lambda config: True}


# ------------------------------------------------------------------------------------------ knobs


def test_knobs_are_read_as_they_were_written():
    for knobs in (Knobs(), Knobs("wide", 64, 0.25, False), Knobs(ahead=False), Knobs(bm=-1)):
        found = choices.parse_knobs(choices.knobs(knobs), Knobs)
        assert found == knobs and [type(x) for x in vars(found).values()] == [str, int, float, bool]
    assert choices.parse_knobs("", Knobs) == Knobs(), "what is not named is as usual"
    assert choices.parse_knobs("  bm=64   ahead=False ", Knobs) == Knobs(bm=64, ahead=False)
    assert choices.knobs("in_flight") == "in_flight", "casper's candidates are names"


def test_what_is_no_knob_is_refused():
    for value in ("false", "0", "yes", "", "true"):  # bool("False") is True
        with pytest.raises(ValueError, match=f"^ahead is {value}, but must be True or False$"):
            choices.parse_knobs(f"ahead={value}", Knobs)
    for text in ("bm=many", "bm=1.5", "bm=", "bm", "bm=1=2"):
        with pytest.raises(ValueError):
            choices.parse_knobs(text, Knobs)
    with pytest.raises(AttributeError):
        choices.parse_knobs("colour=red", Knobs)


# ------------------------------------------------------------------------------------------ files


def test_a_file_is_readable_by_a_person_sorted_and_read_as_written(room, tmp_path):
    path = tmp_path / "deep" / "er" / "choices.csv"
    made = {(4096, "a"): Knobs(), (64, "b"): Others(7), (512, "a"): Knobs("wide", 64, ahead=False)}
    for key, config in made.items():
        choices.write(room, path, key, current(room, config, 123.456))
    assert path.read_text().startswith("m,dtype,nvrtc,kernels,median_us,family,knobs\n64,b,")
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["m"] for row in rows] == ["64", "512", "4096"] and list(rows[0]) == [*room.columns]
    assert rows[0]["family"] == "others" and rows[0]["knobs"] == "number=7"
    assert rows[1]["knobs"] == "kernel=wide bm=64 share=0.5 ahead=False", "every knob has its name"
    assert rows[0]["nvrtc"] == jit.nvrtc_version() and rows[0]["median_us"] == "123.46"
    assert choices.read(room, path) == {key: current(room, config, 123.46) for key, config in made.items()}
    assert list(path.parent.iterdir()) == [path]


def test_a_choice_replaces_the_one_that_was_there(room, tmp_path):
    path, other = tmp_path / "choices.csv", current(room, Knobs(bm=1))
    choices.write(room, path, (8, "a"), other)
    for bm in (2, 3):
        choices.write(room, path, KEY, current(room, Knobs(bm=bm)))
    assert choices.read(room, path) == {(8, "a"): other, KEY: current(room, Knobs(bm=3))}


def test_a_file_is_written_aside_and_renamed(tmp_path, monkeypatch):
    """Who reads while another writes sees the old file or the new one, and an error leaves the old."""
    path, seen = tmp_path / "choices.csv", []
    choices.write_rows(path, ("m",), [(1,)])
    rename = choices.os.replace

    def watch(source, target):
        seen.append((Path(source).read_text(), path.read_text()))
        assert Path(source).parent == path.parent, "of one file system"
        rename(source, target)

    monkeypatch.setattr(choices.os, "replace", watch)
    choices.write_rows(path, ("m",), [(2,)])
    assert seen == [("m\n2\n", "m\n1\n")] and list(tmp_path.iterdir()) == [path]

    def full_disk(*_):
        raise OSError("no space left on device")

    def rows():
        yield (3,)
        raise KeyError("broken")

    with pytest.raises(KeyError):
        choices.write_rows(path, ("m",), rows())
    monkeypatch.setattr(choices.os, "replace", full_disk)
    with pytest.raises(OSError, match="no space"):
        choices.write_rows(path, ("m",), [(3,)])
    assert path.read_text() == "m\n2\n" and list(tmp_path.iterdir()) == [path]


def test_what_was_read_is_not_read_again_until_it_changes(room, tmp_path, monkeypatch):
    """Hundreds of rows, asked for at every bind."""
    path = tmp_path / "choices.csv"
    choices.write(room, path, KEY, current(room))
    first, parsed = choices.read(room, path), []
    monkeypatch.setattr(choices, "parse_knobs", lambda *what: parsed.append(what) or Knobs(bm=64))
    assert choices.read(room, path) is first and not parsed
    path.write_text(path.read_text().replace("9.00", "8.00"))
    choices.os.utime(path, ns=(1, 1))
    assert choices.read(room, path) == {KEY: current(room, Knobs(bm=64), 8.0)}


def _write_many(room, path, process: int, count: int) -> None:
    for i in range(count):
        choices.write(room, path, (process * count + i, "x"), Choice(Others(i), 1.0, "0" * 12))


def _no_sources(config):
    return []


def test_processes_that_write_at_once_lose_nothing(room, tmp_path):
    path, room = tmp_path / "deep" / "choices.csv", replace(room, sources=_no_sources)
    with ProcessPoolExecutor(4, mp_context=multiprocessing.get_context("spawn")) as pool:
        list(pool.map(_write_many, [room] * 4, [path] * 4, range(4), [25] * 4))
    assert sorted(key for key, _ in choices.read(room, path)) == list(range(100))
    assert list(path.parent.iterdir()) == [path], "no lock is left behind"


def test_a_file_that_was_replaced_at_the_same_time_of_the_clock_is_read_again(room, tmp_path):
    path, other = tmp_path / "choices.csv", tmp_path / "other.csv"
    for to, bm in ((path, 64), (other, 32)):
        choices.write(room, to, KEY, current(room, Knobs(bm=bm)))
        os.utime(to, ns=(5, 5))
    assert choices.read(room, path)[KEY].config.bm == 64
    os.replace(other, path)
    assert choices.read(room, path)[KEY].config.bm == 32


GOOD = "512,bfloat16,13.0,0123456789ab,9.00,knobs,kernel=wide bm=64"


def test_a_row_that_is_no_choice_is_named_with_its_file_and_not_overwritten(room, tmp_path):
    path = tmp_path / "nvidia-h200.csv"
    for row in (
        "many,bfloat16,13.0,0123456789ab,9.00,knobs,bm=64",
        "512,bfloat16,13.0,0123456789ab,fast,knobs,bm=64",
        "512,bfloat16,13.0,0123456789ab,9.00,knobs,bm=many",
        "512,bfloat16,13.0,0123456789ab,9.00,knobs,ahead=1",
        "512,bfloat16,13.0,0123456789ab,9.00,knobs,colour=red",
        "512,bfloat16,13.0,0123456789ab,9.00,knobs,bm",
        "512,bfloat16,13.0,0123456789ab,9.00,others,bm=64",
        "512,bfloat16,13.0,0123456789ab,9.00,,bm=64",
        "512,bfloat16,13.0,0123456789ab,9.00,knobs",
        "512,bfloat16,new,0123456789ab,9.00,knobs,bm=64",
        "512,bfloat16,13.0,new,9.00,knobs,bm=64",
        "512,bfloat16,9.00,knobs,bm=64",
        "512",
        "<<<<<<< ours",
    ):
        path.write_text("\n".join([",".join(room.columns), GOOD, row, GOOD]) + "\n")
        with pytest.raises(ValueError) as caught:
            choices.read(room, path)
        message = str(caught.value)
        assert message.startswith("nvidia-h200.csv, row 3 is no choice of the tuner ("), row
        assert message.endswith("): delete the row") and "\n" not in message
        with pytest.raises(ValueError, match="row 3"):
            choices.write(room, path, KEY, current(room))
        assert row in path.read_text(), "a broken file is not overwritten"
        path.unlink()
    path.write_text("m,n,k,config\n512,256,1024,big\n")
    with pytest.raises(ValueError, match=r"^nvidia-h200.csv, row 2 is no choice of the tuner"):
        choices.read(room, path)


@pytest.mark.parametrize("content", [b"\xff\xfe\x00binary", b"m,dtype\n\xff\n", b"\x7fELF\x02\n\x80"])
def test_what_is_no_text_is_named_and_stays(room, tmp_path, content):
    path = tmp_path / "nvidia-h200.csv"
    path.write_bytes(content)
    for work in (choices.read, lambda *of: choices.write(*of, KEY, current(room))):
        with pytest.raises(ValueError, match=r"nvidia-h200\.csv is no file of .*: delete it$") as caught:
            work(room, path)
        assert "\n" not in str(caught.value) and path.read_bytes() == content


# ----------------------------------------------------------------------------------------- look-up


@pytest.fixture
def said(capsys):
    """said(): the lines on stderr since the last call; what was said once may be said again."""
    jit._say_once.cache_clear()
    yield lambda: capsys.readouterr().err.splitlines()
    jit._say_once.cache_clear()


@pytest.mark.parametrize("error", [PermissionError(13, "Permission denied"), OSError(5, "I/O error")])
@pytest.mark.parametrize("what", ["stat", "open"])
def test_what_may_not_be_read_is_done_without(room, monkeypatch, said, what, error):
    """A HOME that may not be entered, another user's file: the shipped choice counts, else there is none. Permissions
    would not stop a test that runs as root."""
    choices.write(room, room.shipped / "nvidia-h200.csv", KEY, current(room, Knobs(bm=3)))
    own, real = choices.own_folder("room"), getattr(Path, what)
    choices.write(room, own / "nvidia-h200.csv", KEY, current(room, Knobs(bm=5)))
    choices._read.clear()

    def refuse(path, *more, **given):
        if path.is_relative_to(own):
            raise error
        return real(path, *more, **given)

    monkeypatch.setattr(Path, what, refuse)
    for _ in range(2):
        assert choices.look_up(room, KEY, racing.H200, **FITS).config == Knobs(bm=3)
        assert choices.look_up(room, (1, "x"), racing.H200, **FITS) is None
    (line,) = said()
    assert str(own) in line and error.strerror in line and "SPARSITY_CHOICES" in line


def test_what_is_a_file_on_the_way_or_a_folder_at_the_end_is_done_without(room, monkeypatch, tmp_path, said):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("SPARSITY_CHOICES", str(tmp_path / "file" / "deep"))
    assert choices.look_up(room, KEY, racing.H200, **FITS) is None and not said()
    monkeypatch.setenv("SPARSITY_CHOICES", str(tmp_path / "folder"))
    (tmp_path / "folder" / "room" / "nvidia-h200.csv").mkdir(parents=True)
    assert choices.look_up(room, KEY, racing.H200, **FITS) is None and len(said()) == 1


def test_another_minor_version_of_the_compiler_is_near(room, monkeypatch):
    """Asked for by a library; who measures takes today's alone."""
    monkeypatch.setattr(jit, "nvrtc_version", lambda: "13.4")
    own, shipped = (f / "nvidia-h200.csv" for f in (choices.own_folder("room"), room.shipped))
    one = replace(current(room, Knobs(bm=1)), nvrtc="13.0")

    def found(near=True, fits=lambda config: True):
        return choices.look_up(room, KEY, racing.H200, fits, near=near)

    choices.write(room, shipped, KEY, one)
    assert found(near=False) is None and found() == one and found().nvrtc != jit.nvrtc_version()
    assert found(fits=lambda config: False) is None
    choices.write(room, own, KEY, replace(one, config=Knobs(bm=2), nvrtc="13.3"))
    assert found().config == Knobs(bm=2), "the user's own comes first"
    choices.write(room, shipped, KEY, replace(one, nvrtc="13.4"))
    assert found().config == found(near=False).config == Knobs(bm=1), "but today's before all"
    choices.write(room, own, KEY, replace(one, kernels="0" * 12))
    for other in ("12.9", "14.0", "1.3", ""):
        choices.write(room, shipped, KEY, replace(one, nvrtc=other))
        assert found() is None, other
    choices.write(room, shipped, KEY, replace(one, kernels="0" * 12))
    assert found() is None, "other kernels are never near"


def test_the_users_own_choice_comes_before_the_shipped_one(room):
    own, shipped = (f / "nvidia-h200.csv" for f in (choices.own_folder("room"), room.shipped))
    one, two = current(room, Knobs(bm=1)), current(room, Knobs(bm=2))

    def found(file=None, key=KEY):
        return choices.look_up(room, key, racing.H200, lambda config: True, file)

    assert found() is None
    choices.write(room, shipped, KEY, one)
    assert found() == one
    choices.write(room, own, (8, "a"), two)
    assert found() == one, "the shipped one where there is no own"
    choices.write(room, own, KEY, two)
    assert found() == two
    choices.write(room, own, KEY, replace(two, kernels="0" * 12))
    assert found() == one, "the shipped one where the own one does not hold"
    # A named file is the only one that is looked at.
    assert found(own.with_name("another.csv")) is None and found(shipped) == one
    for other in ((513, "bfloat16"), (512, "float16")):
        assert found(key=other) is None


def test_a_choice_is_for_its_gpu_and_one_that_does_not_fit_is_none(room):
    choices.write(room, room.shipped / "nvidia-h200.csv", KEY, current(room, Knobs(bm=7)))
    asked = []

    def fits(config):
        asked.append(config)
        return False

    assert choices.look_up(room, KEY, racing.H100_PCIE, fits) is None and not asked
    assert choices.look_up(room, KEY, racing.H200, fits) is None and asked == [Knobs(bm=7)]


def test_choices_lie_beside_the_cubins_unless_the_user_says_where(monkeypatch, tmp_path):
    monkeypatch.setattr(jit, "cache_folder", lambda: tmp_path / "build" / "cubin")
    for given in (None, ""):
        monkeypatch.delenv("SPARSITY_CHOICES", raising=False)
        if given is not None:
            monkeypatch.setenv("SPARSITY_CHOICES", given)
        assert choices.own_folder("nm_spmm") == tmp_path / "build" / "choices" / "nm_spmm"
    monkeypatch.setenv("SPARSITY_CHOICES", str(tmp_path / "mine"))
    assert choices.own_folder("nm_spmm") == tmp_path / "mine" / "nm_spmm"


def test_a_gpus_slug_is_that_of_its_records():
    for name, slug in (
        ("NVIDIA H200", "nvidia-h200"),
        ("NVIDIA A100-SXM4-80GB", "nvidia-a100-sxm4-80gb"),
        ("NVIDIA GeForce RTX 4090 (D)", "nvidia-geforce-rtx-4090-d"),
    ):
        assert choices.slug(SimpleNamespace(name=name)) == slug == gpus.slug(name)


# ------------------------------------------------------------------------------------------ digest


def test_the_digest_is_of_what_the_compiler_reads(room, tmp_path):
    """Headers count, comments and line breaks do not, nor where the checkout is."""
    (source,), header = room.sources(None), tmp_path / "tile.cuh"
    first = choices.digest([source])
    assert len(first) == 12 and int(first, 16) >= 0
    source.write_text("/* what\n it does */\n" + source.read_text().replace("{ ", "{\n    // now\n"))
    header.write_text(header.read_text() + "// nothing more\n")
    assert choices.digest([source]) == first
    (tmp_path / "elsewhere").mkdir()
    for path in (source, header):
        (tmp_path / "elsewhere" / path.name).write_text(path.read_text())
    assert choices.digest([tmp_path / "elsewhere" / source.name]) == first
    header.write_text('__device__ void tile() { asm("// no comment"); }\n')
    second = choices.digest([source])
    header.write_text('__device__ void tile() { asm("// another"); }\n')
    assert len({first, second, choices.digest([source])}) == 3, "a text is no comment"
    other = tmp_path / "other.cu"
    other.write_text("__global__ void other() {}\n")
    both = choices.digest([source, other])
    assert both == choices.digest([other, source, other]) != choices.digest([source])


# --------------------------------------------------------------------------------- what is shipped


def test_shipped_choices_are_of_todays_kernels():
    """Where this fails, a kernel has changed: see kernels/tuning/choices.py for what to do."""
    assert list(command.rooms()) == ["async_sparse", "nm_spmm", "tensor_core_24"]
    for name, room in command.rooms().items():
        for path in room.shipped.glob("*.csv"):
            found = choices.read(room, path).values()
            sources = {(c.kernels, tuple(sorted(room.sources(c.config)))) for c in found}
            for kernels, files in sources:
                assert kernels == choices.digest(files), f"{name}/{path.name} is of other kernels"
            assert {c.nvrtc for c in found} == {"13.0"}, "the compiler that they were made with"


def test_who_has_shown_that_machine_code_is_the_same_says_so(room, tmp_path, monkeypatch, capsys):
    path = room.shipped / "nvidia-h200.csv"
    old = Choice(Knobs(bm=5), 9.0, "0" * 12, "13.0")
    choices.write(room, path, KEY, old)
    choices.write(room, path, (8, "a"), replace(current(room), nvrtc="12.9"))
    monkeypatch.setattr(command, "rooms", lambda: {"room": room, "other": replace(room, room="x")})
    command.main([])
    assert capsys.readouterr().out.startswith(
        "room/nvidia-h200.csv: 1 of 2 choices are of today's kernels, made with NVRTC 12.9, 13.0\n"
    )
    command.main(["--stamp", "room"])
    assert "2 of 2 choices are of today's kernels (1 stamped)" in capsys.readouterr().out
    found = choices.read(room, path)
    assert found[KEY] == replace(old, kernels=current(room).kernels), "the rest stays"
    assert found[8, "a"].nvrtc == "12.9"
