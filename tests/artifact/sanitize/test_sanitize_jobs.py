"""The command for a tool, its end, what is read of it; with a sanitizer and cases that tests make up."""

from __future__ import annotations

import os
import sys
import textwrap
from pathlib import Path

import pytest

from artifact.sanitize import __main__ as sanitize
from artifact.sanitize import cases, child
from artifact.sanitize.__main__ import Ran, Report

MEMCHECK = """\
========= COMPUTE-SANITIZER
========= Invalid __global__ read of size 4 bytes
=========     at union_rows+0x70 in union_rows.cu:77
=========     by thread (0,0,0) in block (1,0,0)
=========     Access at 0x7f is out of bounds
=========
========= Invalid __global__ read of size 4 bytes
=========     at union_rows+0x70 in union_rows.cu:77
=========     by thread (1,0,0) in block (1,0,0)
=========
========= Program hit CUDA_ERROR_LAUNCH_FAILED (error 719) due to "unspecified launch failure" on CUDA API call
=========
========= ERROR SUMMARY: 3 errors
"""
RACECHECK = """\
========= COMPUTE-SANITIZER
========= Error: Race reported between Write access at void opt1<(int)256>(float *)+0x70 in opt1.cu:30
=========     and Read access at void opt1<(int)256>(float *)+0x90 in opt1.cu:41 [128 hazards]
=========
========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)
"""
INITCHECK = """\
========= COMPUTE-SANITIZER
========= Uninitialized __global__ memory read of size 4 bytes
=========     at cupy_copy__float32_float32+0x40
=========     by thread (0,0,0) in block (0,0,0)
=========
========= Uninitialized __global__ memory read of size 4 bytes
=========     at stream+0x1f0 in store.cuh:12
=========
========= ERROR SUMMARY: 2 errors
"""


def test_reports_are_those_of_a_kernel_and_a_line():
    reports, counted = sanitize.read_log(MEMCHECK)
    assert counted == 3 and len(reports) == 3
    ((first, count), (second, _)) = sanitize.grouped(reports)
    assert (count, first.kernel, first.where) == (2, "union_rows", "union_rows.cu:77")
    assert first.kind == "Invalid __global__ read of size 4 bytes" and "719" in second.kind
    assert str(first).endswith("of size 4 bytes, union_rows in union_rows.cu:77")


def test_a_race_names_its_kernel_in_its_first_line():
    (race,), counted = sanitize.read_log(RACECHECK)
    assert (race.kernel, race.where) == ("opt1", "opt1.cu:30")
    assert counted == 1


def test_reports_of_others_kernels_are_left_out_where_all_are_watched():
    reports, _ = sanitize.read_log(INITCHECK)
    assert [x.kernel for x, _ in sanitize.grouped(reports, ["stream", "bulk"])] == ["stream"]
    assert len(sanitize.grouped(reports)) == 2


# ---------------------------------------------------------------- a process

SANITIZER = """\
#!{python}
import os, subprocess, sys
log = sys.argv[sys.argv.index("--log-file") + 1]
inner = sys.argv[sys.argv.index("--log-file") + 2 :]
status = subprocess.run(inner).returncode
if "LOG" in os.environ:
    open(log, "w").write(open(os.environ["LOG"]).read())
sys.exit(status)
"""

CHILD = """\
import json, os, sys, time
room, out, how = sys.argv[1], sys.argv[2], os.environ["HOW"]
assert os.environ["SPARSITY_CHOICES"] and sys.argv[3] == "--tool"
with open(out, "w") as file:
    def write(**line):
        file.write(json.dumps(line) + "\\n")
        file.flush()
    for name, more in (("one, m=1", {{}}), ("two, m=1", {{"refused": "not for it"}}), ("two, m=2", {{}})):
        write(case=name)
        if how in ("hangs", "breaks off") and name == "two, m=2":
            if how == "hangs":
                time.sleep(100)
            print("Traceback\\nSegmentation fault")
            sys.exit(3)
        if how == "is wrong" and name == "one, m=1":
            more = {{"failed": "WrongResult: one is wrong"}}
        if how == "never" and name == "two, m=2":
            more = {{"refused": "nor for this"}}
        write(case=name, done=True, kernels={{name.split(",")[0]: name[0] == "t"}}, seconds=0.1, **more)
    write(end=True)
"""


@pytest.fixture
def run(tmp_path, monkeypatch):
    """A function: how the cases go, and the log that a tool writes -> what came of it."""
    tool = tmp_path / "bin" / "compute-sanitizer"
    tool.parent.mkdir()
    tool.write_text(SANITIZER.format(python=sys.executable))
    tool.chmod(0o755)
    cases = tmp_path / "cases.py"
    cases.write_text(textwrap.dedent(CHILD.format()))
    monkeypatch.setenv("PATH", f"{tool.parent}{os.pathsep}{os.environ['PATH']}")

    def made(how: str, log: str | None = "", tool: str = "memcheck", limit: float = 60, **more) -> Ran:
        monkeypatch.setenv("HOW", how)
        monkeypatch.delenv("LOG", raising=False)
        if log is not None:
            (tmp_path / "log").write_text(log or "========= ERROR SUMMARY: 0 errors\n")
            monkeypatch.setenv("LOG", str(tmp_path / "log"))
        kernels = more.pop("kernels", {"one": False, "two": True, "union_rows": False})
        command = (sys.executable, str(cases))
        return sanitize.run("room", tool, tmp_path / "out", kernels, limit, child=command, **more)

    return made


def test_a_room_where_all_is_well_is_right(run):
    made = run("well")
    assert made.is_right and not made.broken and made.ran == {"one, m=1", "two, m=2"}
    assert made.refused == {"two, m=1": "not for it"} and made.never == []
    assert made.kernels == {"one": False, "two": True} and 0 < made.seconds < 60
    assert sanitize.details([made]) == []
    made.seconds = 0.2
    assert sanitize.row(made).split() == ["room", "memcheck", "2", "2", "0", "0", "0"]


def test_what_a_tool_reports_is_an_error_of_the_room(run):
    made = run("well", MEMCHECK)
    assert sum(count for _, count in made.found) == 3 and not made.is_right
    assert "room, memcheck: 2 x Invalid __global__ read" in sanitize.details([made])[0]
    watched = run("well", INITCHECK, tool="initcheck", kernels={"stream": True})
    assert [report.kernel for report, _ in watched.found] == ["stream"]
    assert run("well", INITCHECK, tool="initcheck", kernels={"bulk": True}).is_right


def test_a_kernel_that_never_ran_is_an_error(run):
    made = run("never")
    assert made.never == ["two"] and not made.is_right
    assert sanitize.details([made]) == ["room, memcheck: two never ran: not for it"]


def test_a_hang_is_ended_and_names_its_case(run):
    made = run("hangs", limit=3)
    assert made.broken.startswith("not through after 3 s, in two, m=2") and made.seconds < 30
    assert made.ran == {"one, m=1"} and not made.is_right


def test_a_tool_that_wrote_nothing_has_not_looked(run):
    assert "wrote no summary" in run("well", None).broken


def test_racecheck_looks_at_what_does_not_copy_by_tma(run):
    made = run("well", RACECHECK.replace("1 hazard", "0 hazards"), tool="racecheck")
    assert "two" not in made.kernels and "one" in made.kernels


def test_a_process_that_breaks_off_names_its_case_and_its_last_words(run):
    made = run("breaks off")
    assert made.broken == "ended with status 3 in two, m=2: Segmentation fault"


def test_the_command_names_the_kernels_that_the_tool_looks_at(run, tmp_path):
    made = sanitize.words("fp8", "synccheck", tmp_path, ["b", "a"], number=3, only="x", child=("child",))
    assert made[made.index("--kernel-name") + 1] == "regex=^_Z[0-9]+(a|b)"
    assert made[made.index("--port") + 1] == str(49152 + 60)
    inner = made[made.index("child") :]
    assert inner == [
        "child",
        "fp8",
        str(tmp_path / "cases.jsonl"),
        "--tool",
        "synccheck",
        "--only",
        "x",
    ]
    assert "--kernel-name" not in sanitize.words("fp8", "initcheck", tmp_path, ["a"])


# ---------------------------------------------------------------- the whole


@pytest.fixture
def rooms(monkeypatch, tmp_path):
    """The command over rooms that tests make up; a list of (room, tool) that ran."""
    ran = []

    def made(room, tool, folder, kernels, limit, **more):
        ran.append((room, tool))
        found = Ran(room, tool, 1.0, {"x"}, kernels={"a": room == "fp8", "b": True})
        if room == "nm_spmm" and tool == "synccheck":
            found.found = [(Report("Barrier error", "a", ""), 1)]
        return found

    monkeypatch.setattr(sanitize, "run", made)
    monkeypatch.setattr(sanitize, "sanitizer", lambda: "compute-sanitizer")
    monkeypatch.setattr(sanitize, "_compile_all", lambda: None)
    monkeypatch.setattr(sanitize, "never_loaded", lambda kernels: [])
    return ran


def test_each_room_runs_alone_and_then_under_every_tool(rooms, capsys):
    assert sanitize.main(["--rooms", "fp8", "library", "--jobs", "2"]) == 0
    assert rooms[:2] == [("fp8", ""), ("library", "")] or rooms[:2] == [
        ("library", ""),
        ("fp8", ""),
    ]
    assert set(rooms[2:]) == {(r, t) for r in ("fp8", "library") for t in sanitize.TOOLS} - {
        ("fp8", "racecheck")  # whose kernels all copy by TMA
    }
    table = capsys.readouterr().out
    assert table.splitlines()[0].split()[:2] == ["room", "tool"] and "library" in table


def test_one_error_anywhere_is_an_exit_code(rooms, capsys):
    assert sanitize.main(["--rooms", "nm_spmm", "--tools", "memcheck"]) == 0
    assert sanitize.main(["--rooms", "nm_spmm", "--tools", "synccheck"]) == 1
    assert "nm_spmm, synccheck: 1 x Barrier error" in capsys.readouterr().out
    assert sanitize.main([]) == 1


def test_copies_of_the_copy_engine_are_seen_in_machine_code():
    def code(*opcodes: int) -> bytes:
        return b"".join(x.to_bytes(8, "little") + bytes(8) for x in opcodes)

    assert not child.by_copy_engine(code(0x981, 0x3AE, 0x988))
    assert child.by_copy_engine(code(0x981, 0x75B4)) and child.by_copy_engine(code(0x73BA))


def test_a_case_that_fails_does_not_keep_others_from_running():
    def refuses():
        raise ValueError("not for it")

    def fails():
        raise ArithmeticError("wrong\nin two lines")

    lines = []
    loaded = type("Loaded", (), {"take": lambda self: {"k": True}})()

    def breaks_the_tool():
        raise child.Unseen("copies in a cluster")

    every = [("a", refuses), ("b", fails), ("c, of d", lambda: None), ("e", breaks_the_tool)]
    child.run(every, loaded, "", lines.append)
    done = [line for line in lines if "done" in line]
    assert [line.get("refused") for line in done] == ["not for it", None, None, None]
    assert [line.get("failed") for line in done] == [None, "ArithmeticError: wrong", None, None]
    assert [line.get("unseen") for line in done] == [None, None, None, "copies in a cluster"]
    lines.clear()
    child.run(every, loaded, "of d", lines.append)
    assert [line["case"] for line in lines] == ["c, of d"] * 2


@pytest.mark.gpu
@pytest.mark.alone
def test_results_of_all_cases_are_right(device, tmp_path):
    """As the command runs them first: without a tool, in processes of their own."""
    for room in cases.find():
        made = sanitize.run(room, "", tmp_path / room, {}, 300)
        assert made.is_right, sanitize.details([made])
        assert Path(tmp_path / room / "cases.jsonl").is_file()
