"""The command for a tool, its end, what is read of it; with a sanitizer and cases that tests make up."""

import os
import re
import sys
import textwrap
from functools import partial
from pathlib import Path

import pytest

from artifact.sanitize import __main__ as sanitize, cases
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


READ, WRITE = "Invalid __global__ read of size 4 bytes", "Error: Race reported between Write access"
UNINIT = "Uninitialized __global__ memory read of size 4 bytes"


@pytest.mark.parametrize(
    ("log", "counted", "kernels", "found"),
    [
        (MEMCHECK, 3, (), [(READ, "union_rows", "union_rows.cu:77", 2), ("Program hit CUDA_ERROR", "", "", 1)]),
        (RACECHECK, 1, (), [(WRITE, "opt1", "opt1.cu:30", 1)]),  # in its first line
        (INITCHECK, 2, (), [(UNINIT, "cupy_copy__float32_float32", "", 1), (UNINIT, "stream", "store.cuh:12", 1)]),
        (INITCHECK, 2, ("stream", "bulk"), [(UNINIT, "stream", "store.cuh:12", 1)]),  # others' are left out
        (MEMCHECK, 3, ("stream",), [("Program hit CUDA_ERROR", "", "", 1)]),  # which names no kernel
        ("", None, (), []),
    ],
)
def test_reports_are_those_of_a_kernel_and_a_line(log, counted, kernels, found):
    grouped, number = sanitize.read_log(log, kernels)
    assert number == counted and [(x.kernel, x.where, many) for x, many in grouped] == [x[1:] for x in found]
    assert all(x.kind.startswith(kind) and kind in str(x) for (x, _), (kind, *_) in zip(grouped, found, strict=True))


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
system, out, how = sys.argv[1], sys.argv[2], os.environ["HOW"]
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
        return sanitize.run("room", tool, tmp_path / "out", kernels, limit, child=(sys.executable, str(cases)), **more)

    return made


WELL = {"ran": {"one, m=1", "two, m=2"}, "refused": {"two, m=1": "not for it"}, "never": [], "broken": ""}


@pytest.mark.parametrize(
    ("how", "given", "right", "parts", "details"),
    [
        ("well", {}, True, WELL | {"kernels": {"one": False, "two": True}}, ""),
        ("well", {"log": MEMCHECK}, False, WELL, "room, memcheck: 2 x Invalid __global__ read"),
        (
            "well",
            {"log": INITCHECK, "tool": "initcheck", "kernels": {"stream": 1}},
            False,
            WELL,
            "1 x Uninit.*stream",
        ),
        ("well", {"log": INITCHECK, "tool": "initcheck", "kernels": {"bulk": 1}}, True, WELL, ""),
        ("well", {"tool": "racecheck"}, True, {"kernels": {"one": False}}, ""),  # two copies by TMA
        ("well", {"log": None}, False, {}, "memcheck wrote no summary: see .*log.txt"),
        ("never", {}, False, {"never": ["two"]}, "room, memcheck: two never ran: not for it"),
        ("is wrong", {}, False, {"failed": {"one, m=1": "WrongResult: one is wrong"}}, "one, m=1: WrongResult: one is"),
        ("hangs", {"limit": 3}, False, {"ran": {"one, m=1"}}, "not through after 3 s, in two, m=2"),
        ("breaks off", {}, False, {}, "ended with status 3 in two, m=2: Segmentation fault"),
    ],
)
def test_what_came_of_a_process_is_said(run, how, given, right, parts, details):
    made = run(how, **given)
    assert {name: getattr(made, name) for name in parts} == parts and made.is_right == right
    said = sanitize.details([made])
    assert re.search(details, "\n".join(said)) and bool(said) != right and 0 < made.seconds < 60
    assert sanitize.row(made).split()[:2] == ["room", made.tool]


def test_the_command_names_the_kernels_that_the_tool_looks_at(run, tmp_path):
    made = sanitize.words("fp8", "synccheck", tmp_path, ["b", "a"], number=3, only="x", child=("child",))
    assert made[made.index("--kernel-name") + 1] == "regex=^_Z[0-9]+(a|b)"
    assert made[made.index("--port") + 1] == str(49152 + 60)
    inner = made[made.index("child") :]
    assert inner == ["child", "fp8", str(tmp_path / "cases.jsonl"), *"--tool synccheck --only x".split()]
    assert "--kernel-name" not in sanitize.words("fp8", "initcheck", tmp_path, ["a"])


# ---------------------------------------------------------------- the whole


@pytest.fixture
def systems(monkeypatch, tmp_path):
    """The command over systems that tests make up; a list of (system, tool) that ran."""
    ran = []

    def made(system, tool, folder, kernels, limit, **more):
        ran.append((system, tool))
        found = Ran(system, tool, 1.0, {"x"}, kernels={"a": system == "fp8", "b": True})
        if system == "nm_spmm" and tool == "synccheck":
            found.found = [(Report("Barrier error", "a", ""), 1)]
        return found

    for name, what in {
        "run": made,
        "sanitizer": lambda: "compute-sanitizer",
        "_compile_all": lambda: None,
        "never_loaded": lambda kernels: [],
    }.items():
        monkeypatch.setattr(sanitize, name, what)
    return ran


def test_each_system_runs_alone_and_then_under_every_tool(systems, capsys):
    assert sanitize.main(["--rooms", "fp8", "library", "--jobs", "2"]) == 0
    assert sorted(systems[:2]) == [("fp8", ""), ("library", "")]
    assert set(systems[2:]) == {(r, t) for r in ("fp8", "library") for t in sanitize.TOOLS} - {
        ("fp8", "racecheck")  # whose kernels all copy by TMA
    }
    table = capsys.readouterr().out
    assert table.splitlines()[0].split()[:2] == ["room", "tool"] and "library" in table


def test_one_error_anywhere_is_an_exit_code(systems, capsys):
    assert sanitize.main(["--rooms", "nm_spmm", "--tools", "memcheck"]) == 0
    assert sanitize.main(["--rooms", "nm_spmm", "--tools", "synccheck"]) == 1
    assert "nm_spmm, synccheck: 1 x Barrier error" in capsys.readouterr().out
    assert sanitize.main([]) == 1


def test_copies_of_the_copy_engine_are_seen_in_machine_code():
    def code(*opcodes: int) -> bytes:
        return b"".join(x.to_bytes(8, "little") + bytes(8) for x in opcodes)

    assert not cases.by_copy_engine(code(0x981, 0x3AE, 0x988))
    assert cases.by_copy_engine(code(0x981, 0x75B4)) and cases.by_copy_engine(code(0x73BA))


def test_a_case_that_fails_does_not_keep_others_from_running():
    said = {
        "a": ({"refused": "not for it"}, ValueError("not for it")),
        "b": ({"failed": "ArithmeticError: wrong"}, ArithmeticError("wrong\nin two lines")),
        "c, of d": ({}, None),
        "e": ({"unseen": "copies in a cluster"}, cases.Unseen("copies in a cluster")),
    }

    def work(name):
        loaded[name] = True
        if error := said[name][1]:
            raise error

    lines, loaded = [], {}
    for only in ("", "of d"):
        cases.run([(name, partial(work, name)) for name in said], loaded, only, lines.append)
    done = [{k: v for k, v in line.items() if k not in ("done", "seconds")} for line in lines if "done" in line]
    every = [{"case": name, "kernels": {name: True}} | what for name, (what, _) in said.items()]
    assert done == [*every, every[2]] and [line["case"] for line in lines[::2]] == [x["case"] for x in done]


@pytest.mark.gpu
@pytest.mark.parametrize("system", cases.find())
def test_results_of_all_cases_are_right(device, system, tmp_path):
    """As the command runs them first: without a tool, in a process of its own."""
    made = sanitize.run(system, "", tmp_path, {}, 300)
    assert made.is_right, sanitize.details([made])
    assert Path(tmp_path / "cases.jsonl").is_file()
