"""The files that keep choices: whole or not there, read as written, and what a row must name."""

import csv
import os
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import racing
from hypothesis import example, given, settings, strategies as st
from refused import refused, says

from kernels import jit
from kernels.autotune import __main__ as command, choices
from kernels.autotune.choices import Choice, Choices

KEY = (512, "bfloat16")
NAME = "nvidia-h200.csv"


@dataclass(frozen=True)
class Knobs:
    kernel: str = "bulk"
    bm: int = 128
    share: float = 0.5
    ahead: bool = True


@dataclass(frozen=True)
class Others:
    number: int = 1


def systems(folder: Path) -> Choices:
    """Of one kernel with a header."""
    source = folder / "kernel.cu"
    source.write_text('#include "tile.cuh"\n__global__ void kernel() { tile(); }\n')
    (folder / "tile.cuh").write_text("__device__ void tile() {}\n")
    kinds = {"m": int, "dtype": str}, {"knobs": Knobs, "others": Others}
    return Choices("room", folder / "shipped", *kinds, lambda config: [source])


@pytest.fixture
def system(tmp_path, monkeypatch):
    monkeypatch.setenv("SPARSITY_CHOICES", str(tmp_path / "own"))
    return systems(tmp_path)


def current(system, median_us=9.0, **knobs) -> Choice:
    return Choice(Knobs(**knobs), median_us, choices.digest(system.sources(None)))


def found(system, key=KEY, device=racing.H200, fits=lambda config: True, **more):
    return choices.look_up(system, key, device, fits, **more)


# ------------------------------------------------------------------------------------------ files

configs = st.one_of(
    st.builds(Knobs, st.from_regex(r"\A\w+\Z"), st.integers(), st.floats(allow_nan=False), st.booleans()),
    st.builds(Others, st.integers()),
)
keys = st.tuples(st.integers(), st.text('ab," '))


@given(written=st.lists(st.tuples(keys, configs, st.integers(1, 10**9)), min_size=1, max_size=6))
@settings(deadline=None, max_examples=40)
def test_what_is_written_is_read_back_sorted_and_the_last_of_a_key_counts(written):
    with tempfile.TemporaryDirectory() as folder:
        path, of = Path(folder, "deep", "choices.csv"), systems(Path(folder))
        made = {key: replace(current(of, us / 100), config=config) for key, config, us in written}
        for key, config, us in written:
            choices.write(of, path, key, replace(current(of, us / 100), config=config))
        with path.open(newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        assert list(rows[0]) == [*of.key, *choices._COLUMNS] and [row["nvrtc"] for row in rows] == [
            jit.nvrtc_version()
        ] * len(rows)
        assert [(int(row["m"]), row["dtype"]) for row in rows] == sorted(made)
        assert choices.read(of, path) == made and list(path.parent.iterdir()) == [path]


def test_a_file_is_read_again_only_where_it_changed(system, tmp_path, monkeypatch):
    """Hundreds of rows are asked for at every bind; a file may be replaced at the same time of a coarse clock. An error
    leaves the old one."""
    path, other = tmp_path / "choices.csv", tmp_path / "other.csv"
    for to, bm in ((path, 64), (other, 32)):
        choices.write(system, to, KEY, current(system, bm=bm))
        os.utime(to, ns=(5, 5))
    first = choices.read(system, path)
    assert first[KEY].config.bm == 64 and choices.read(system, path) is first
    os.replace(other, path)
    assert choices.read(system, path)[KEY].config.bm == 32
    real, same = Path.stat, path.stat()
    with monkeypatch.context() as patch:  # a number may come again, and time and size be the same
        patch.setattr(Path, "stat", lambda of, **how: same if of == path else real(of, **how))
        for bm in (16, 32):
            choices.write(system, path, KEY, current(system, bm=bm))
            assert choices.read(system, path)[KEY].config.bm == bm
    monkeypatch.setattr(os, "replace", lambda *_: 1 // 0)
    refused("by zero", choices.write, system, path, KEY, current(system), kind=ZeroDivisionError)
    assert (
        choices.read(system, path)[KEY].config.bm == 32
        and path in tmp_path.iterdir()
        and other not in tmp_path.iterdir()
    )
    assert not [x for x in tmp_path.iterdir() if x.name.startswith("choices.csv.")]


def test_who_writes_at_once_loses_nothing(system, tmp_path):
    """The lock is the file system's, so that threads stand for processes, too."""
    path = tmp_path / "deep" / "choices.csv"
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda i: choices.write(system, path, (i, "x"), current(system, bm=i)), range(100)))
    assert [key for key, _ in choices.read(system, path)] == list(range(100))
    assert list(path.parent.iterdir()) == [path], "no lock is left behind"


GOOD = "512,bfloat16,13.0,0123456789ab,9.00,knobs,kernel=wide bm=64"


KNOBS = ("ahead=false", "ahead=0", "ahead=", "bm=many", "bm=1.5", "bm=", "bm", "bm=1=2", "x=1")  # bool("False") is True


@pytest.mark.parametrize(
    "row",
    [
        *(f"512,bfloat16,13.0,0123456789ab,9.00,knobs,{knobs}" for knobs in KNOBS),
        "many,bfloat16,13.0,0123456789ab,9.00,knobs,bm=64",
        "512,bfloat16,13.0,0123456789ab,fast,knobs,bm=64",
        "512,bfloat16,13.0,0123456789ab,9.00,others,bm=64",
        "512,bfloat16,13.0,0123456789ab,9.00,,bm=64",
        "512,bfloat16,13.0,0123456789ab,9.00,knobs",
        "512,bfloat16,new,0123456789ab,9.00,knobs,bm=64",
        "512,bfloat16,13.0,new,9.00,knobs,bm=64",
        "512",
        "<<<<<<< ours",
        "\xff\xfe\x00binary",
        "\x7fELF\x02\n\x80",
    ],
)
def test_what_is_no_choice_is_named_with_its_file_and_not_overwritten(system, tmp_path, row):
    path = tmp_path / NAME
    path.write_bytes("\n".join([",".join([*system.key, *choices._COLUMNS]), GOOD, row, GOOD]).encode("latin-1"))
    before, named = (
        path.read_bytes(),
        [NAME, "delete it"] if max(row) > "\x7e" else [f"{NAME}, row 3", "delete the row"],
    )
    says(named, lambda: choices.read(system, path))
    says(named, lambda: choices.write(system, path, KEY, current(system)))
    assert path.read_bytes() == before


# ----------------------------------------------------------------------------------------- look-up


@pytest.mark.parametrize("error", [PermissionError(13, "Permission denied"), OSError(5, "I/O error")])
@pytest.mark.parametrize("what", ["stat", "open"])
def test_what_may_not_be_read_is_done_without(system, monkeypatch, capsys, what, error):
    """A HOME that may not be entered, another user's file: the shipped choice counts, else there is none. Permissions
    would not stop a test that runs as root."""
    own, real = choices.own_file(system, racing.H200).parent, getattr(Path, what)
    for folder, bm in ((system.shipped, 3), (own, 5)):
        choices.write(system, folder / NAME, KEY, current(system, bm=bm))
    choices._read.cache_clear()
    jit._say_once.cache_clear()

    def refuse(path, *more, **given):
        if path.is_relative_to(own):
            raise error
        return real(path, *more, **given)

    monkeypatch.setattr(Path, what, refuse)
    for _ in range(2):
        assert found(system).config.bm == 3 and found(system, (1, "x")) is None
    (line,) = capsys.readouterr().err.splitlines()
    assert str(own) in line and error.strerror in line and "SPARSITY_CHOICES" in line


#: The compiler of a choice -> whether it is near 13.0, today's.
NEAR = {"13.0": True, "13.99": True, "12.0": False, "1.0": False, "": False}
places = st.none() | st.tuples(st.booleans(), st.sampled_from([*NEAR]), st.integers(0, 3))


@given(own=places, shipped=places, near=st.booleans(), named=st.booleans())
@example(own=(True, "13.0", 1), shipped=(True, "13.0", 2), near=False, named=False)
@example(own=(True, "13.99", 1), shipped=(True, "13.99", 2), near=True, named=False)
@example(own=(True, "13.99", 1), shipped=(True, "13.0", 2), near=True, named=False)
@settings(deadline=None, max_examples=40)
def test_the_first_choice_that_holds_is_found(own, shipped, near, named):
    """Today's before a near one, the user's own before the shipped one; a named file is the only one looked at."""
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPARSITY_CHOICES", folder)
        patch.setattr(jit, "nvrtc_version", lambda: "13.0")
        of, right = systems(Path(folder)), {True: [], False: []}
        paths = [choices.own_file(of, racing.H200), of.shipped / NAME]
        for path, what in zip(paths, (own, shipped), strict=True):
            today, nvrtc, bm = what or (False, "", 0)
            made = replace(current(of, bm=bm), nvrtc=nvrtc, **({} if today else {"kernels": "0" * 12}))
            if what:
                choices.write(of, path, KEY, made)
            if today and bm and NEAR[nvrtc] and (path != paths[0] or not named):
                right[nvrtc == "13.0"].append(made)
        more = {"fits": lambda config: config.bm > 0, "near": near}
        assert found(of, file=paths[1] if named else None, **more) == next(
            iter(right[True] + (right[False] if near else [])), None
        )
        assert found(of, (513, "bfloat16"), **more) is found(of, device=racing.H100_PCIE, **more) is None


def test_choices_lie_beside_the_cubins_unless_the_user_says_where(system, monkeypatch, tmp_path):
    monkeypatch.setattr(jit, "cache_folder", lambda: tmp_path / "build" / "cubin")
    for said, folder in (("", tmp_path / "build" / "choices"), (str(tmp_path / "mine"), tmp_path / "mine")):
        monkeypatch.setenv("SPARSITY_CHOICES", said)
        assert choices.own_file(system, racing.H200) == folder / "room" / NAME


# ------------------------------------------------------------------------------------------ digest


def test_the_digest_is_of_what_the_compiler_reads(system, tmp_path):
    """Headers count, and texts in them; comments and line breaks do not, nor where the checkout is."""
    (source,), header, other = system.sources(None), tmp_path / "tile.cuh", tmp_path / "other.cu"
    first = choices.digest([source])
    assert len(first) == 12 and int(first, 16) >= 0
    source.write_text("/* what\n it does */\n" + source.read_text().replace("{ ", "{\n    // now\n"))
    header.write_text(header.read_text() + "// nothing more\n")
    assert choices.digest([source]) == first
    (tmp_path / "elsewhere").mkdir()
    for path in (source, header):
        (tmp_path / "elsewhere" / path.name).write_text(path.read_text())
    assert choices.digest([tmp_path / "elsewhere" / source.name]) == first
    different = {first}
    for text in ("no comment", "another"):
        header.write_text(f'__device__ void tile() {{ asm("// {text}"); }}\n')
        different.add(choices.digest([source]))
    other.write_text("__global__ void other() {}\n")
    both = choices.digest([source, other])
    assert both == choices.digest([other, source, other]) and len(different | {both}) == 4


# --------------------------------------------------------------------------------- what is shipped


def test_shipped_choices_are_of_todays_kernels():
    """Where this fails, a kernel has changed: see kernels/autotune/choices.py for what to do."""
    assert command.systems()
    for name, system in command.systems().items():
        for path in system.shipped.glob("*.csv"):
            kept = choices.read(system, path).values()
            for kernels, files in {(c.kernels, tuple(sorted(system.sources(c.config)))) for c in kept}:
                assert kernels == choices.digest(files), f"{name}/{path.name} is of other kernels"


def test_who_has_shown_that_machine_code_is_the_same_says_so(system, monkeypatch, capsys):
    path, now = system.shipped / NAME, replace(current(system, bm=5), nvrtc="12.9")
    choices.write(system, path, KEY, replace(now, kernels="0" * 12, nvrtc="13.0"))
    choices.write(system, path, (8, "a"), now)
    monkeypatch.setattr(command, "systems", lambda: {"room": system, "other": replace(system, room="x")})
    for asked, said in (
        ([], "1 of 2 choices"),
        (["--stamp", "room"], "2 of 2 choices are of today's kernels (1 stamped)"),
    ):
        command.main(asked)
        line = capsys.readouterr().out.splitlines()[0]
        assert line.startswith(f"room/{NAME}: {said}") and line.endswith("12.9, 13.0")
    assert choices.read(system, path) == {KEY: replace(now, nvrtc="13.0"), (8, "a"): now}, "the rest stays"
