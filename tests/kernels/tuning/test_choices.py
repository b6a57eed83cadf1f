"""The files that keep choices: whole or not there, read as written, and what a row must name."""

from __future__ import annotations

import csv
import os
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import racing
from hypothesis import example, given, settings
from hypothesis import strategies as st
from refused import says

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
    return rooms(tmp_path)


def rooms(folder: Path) -> Choices:
    """Of one kernel with a header."""
    source = folder / "kernel.cu"
    source.write_text('#include "tile.cuh"\n__global__ void kernel() { tile(); }\n')
    (folder / "tile.cuh").write_text("__device__ void tile() {}\n")
    return Choices(
        "room",
        folder / "shipped",
        {"m": int, "dtype": str},
        {"knobs": Knobs, "others": Others},
        lambda config: [source],
    )


def current(room, config=None, median_us=9.0) -> Choice:
    return Choice(config or Knobs(), median_us, choices.digest(room.sources(None)))


KEY = (512, "bfloat16")
FITS = {"fits": lambda config: True}


# ------------------------------------------------------------------------------------------ knobs


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

configs = st.one_of(
    st.builds(Knobs, st.from_regex(r"\A\w+\Z"), st.integers(), st.floats(allow_nan=False), st.booleans()),
    st.builds(Others, st.integers()),
)


@given(
    written=st.lists(
        st.tuples(st.tuples(st.integers(), st.text('ab," ')), configs, st.integers(1, 10**9)), min_size=1, max_size=6
    )
)
@settings(deadline=None, max_examples=40)
def test_what_is_written_is_read_back_sorted_and_the_last_of_a_key_counts(written):
    with tempfile.TemporaryDirectory() as folder:
        path, of = Path(folder, "deep", "choices.csv"), rooms(Path(folder))
        for key, config, hundredths in written:
            choices.write(of, path, key, current(of, config, hundredths / 100))
        with path.open(newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        assert list(rows[0]) == [*of.columns] and [row["nvrtc"] for row in rows] == [jit.nvrtc_version()] * len(rows)
        assert [(int(row["m"]), row["dtype"]) for row in rows] == sorted({key for key, *_ in written})
        assert choices.read(of, path) == {key: current(of, config, us / 100) for key, config, us in written}
        assert list(path.parent.iterdir()) == [path]


def test_a_file_is_written_aside_and_an_error_leaves_the_old(tmp_path, monkeypatch):
    path, seen, rename = tmp_path / "choices.csv", [], os.replace
    choices.write_rows(path, ("m",), [(1,)])
    monkeypatch.setattr(os, "replace", lambda one, two: (seen.append((Path(one).parent, two)), rename(one, two)))
    choices.write_rows(path, ("m",), [(2,)])
    assert seen == [(tmp_path, path)] and path.read_text() == "m\n2\n"
    with pytest.raises(ZeroDivisionError):
        choices.write_rows(path, ("m",), ((1 // x,) for x in (1, 0)))
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


def test_who_writes_at_once_loses_nothing(room, tmp_path):
    """The lock is the file system's, so that threads stand for processes, too."""
    path = tmp_path / "deep" / "choices.csv"

    def write(i: int) -> None:
        choices.write(room, path, (i, "x"), Choice(Others(i), 1.0, "0" * 12))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(write, range(100)))
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


@pytest.mark.parametrize(
    "row",
    [
        "many,bfloat16,13.0,0123456789ab,9.00,knobs,bm=64",
        "512,bfloat16,13.0,0123456789ab,fast,knobs,bm=64",
        "512,bfloat16,13.0,0123456789ab,9.00,knobs,ahead=1",
        "512,bfloat16,13.0,0123456789ab,9.00,knobs,colour=red",
        "512,bfloat16,13.0,0123456789ab,9.00,others,bm=64",
        "512,bfloat16,13.0,0123456789ab,9.00,,bm=64",
        "512,bfloat16,13.0,0123456789ab,9.00,knobs",
        "512,bfloat16,new,0123456789ab,9.00,knobs,bm=64",
        "512,bfloat16,13.0,new,9.00,knobs,bm=64",
        "512",
        "<<<<<<< ours",
    ],
)
def test_a_row_that_is_no_choice_is_named_with_its_file_and_not_overwritten(room, tmp_path, row):
    path = tmp_path / "nvidia-h200.csv"
    path.write_text("\n".join([",".join(room.columns), GOOD, row, GOOD]) + "\n")
    for work in (choices.read, lambda *of: choices.write(*of, KEY, current(room))):
        says(["nvidia-h200.csv, row 3", "delete the row"], lambda work=work: work(room, path))
    assert row in path.read_text(), "a broken file is not overwritten"


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


def compilers(now: str) -> dict[str, bool]:
    """The compiler of a choice -> whether it is near today's."""
    major = now.split(".")[0]
    return {now: True, f"{major}.99": True, f"{int(major) - 1}.0": False, f"{major[0]}.0": False, "": False}


places = st.none() | st.tuples(
    st.sampled_from(["today", "other"]), st.sampled_from([*compilers("13.0")]), st.integers(0, 3)
)


@given(own=places, shipped=places, near=st.booleans(), named=st.booleans())
@example(own=("today", "13.0", 1), shipped=("today", "13.0", 2), near=False, named=False)
@example(own=("today", "13.99", 1), shipped=("today", "13.99", 2), near=True, named=False)
@example(own=("today", "13.99", 1), shipped=("today", "13.0", 2), near=True, named=False)
@settings(deadline=None, max_examples=40)
def test_the_first_choice_that_holds_is_found(own, shipped, near, named):
    """Today's before a near one, the user's own before the shipped one; a named file is the only one looked at."""
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPARSITY_CHOICES", folder)
        patch.setattr(jit, "nvrtc_version", lambda: "13.0")
        of, found = rooms(Path(folder)), {True: [], False: []}
        paths = [choices.own_folder("room") / "nvidia-h200.csv", of.shipped / "nvidia-h200.csv"]
        for path, what in zip(paths, (own, shipped), strict=True):
            if what is None:
                continue
            kernels, nvrtc, bm = what
            made = Choice(Knobs(bm=bm), 1.0, current(of).kernels if kernels == "today" else "0" * 12, nvrtc)
            choices.write(of, path, KEY, made)
            if kernels == "today" and bm and compilers("13.0")[nvrtc] and (path != paths[0] or not named):
                found[nvrtc == "13.0"].append(made)
        file = paths[1] if named else None
        right = [*found[True], *(found[False] if near else [])]
        look = {"fits": lambda config: config.bm > 0, "near": near, "file": file}
        assert choices.look_up(of, KEY, racing.H200, **look) == next(iter(right), None)
        assert choices.look_up(of, (513, "bfloat16"), racing.H200, **look) is None
        assert choices.look_up(of, KEY, racing.H100_PCIE, **look | {"file": None}) is None


def test_choices_lie_beside_the_cubins_unless_the_user_says_where(monkeypatch, tmp_path):
    monkeypatch.setattr(jit, "cache_folder", lambda: tmp_path / "build" / "cubin")
    for empty in (False, True):
        monkeypatch.delenv("SPARSITY_CHOICES", raising=False)
        if empty:
            monkeypatch.setenv("SPARSITY_CHOICES", "")
        assert choices.own_folder("nm_spmm") == tmp_path / "build" / "choices" / "nm_spmm"
    monkeypatch.setenv("SPARSITY_CHOICES", str(tmp_path / "mine"))
    assert choices.own_folder("nm_spmm") == tmp_path / "mine" / "nm_spmm"


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
    assert command.rooms()
    for name, room in command.rooms().items():
        for path in room.shipped.glob("*.csv"):
            found = choices.read(room, path).values()
            sources = {(c.kernels, tuple(sorted(room.sources(c.config)))) for c in found}
            for kernels, files in sources:
                assert kernels == choices.digest(files), f"{name}/{path.name} is of other kernels"


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
