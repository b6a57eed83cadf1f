"""Points are dealt out: each is measured once, by one process; one that dies leaves its point to another."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from artifact.distributed import farm
from artifact.measure import dealt
from artifact.paths import ROOT

#: By what it requires: folders of tests are called as Dask's package is.
DASK = importlib.util.find_spec("dask") is not None
WORKER = """
import os, signal, sys, time
from pathlib import Path
from artifact.measure import dealt
folder, dies = Path(sys.argv[1]), sys.argv[2]
record = folder / "record.txt"
def there(point):
    return record.exists() and point in record.read_text().split()
for point in dealt.points([f"p{i}" for i in range(12)], folder, str, there):
    time.sleep(0.05)
    if point == dies:
        (folder / "dying").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    with dealt.alone(folder):
        text = record.read_text() if record.exists() else ""
        time.sleep(0.01)
        record.write_text(text + point + "\\n")
    dealt.mark(folder, "wide", point)
"""


def started(folder, gpu: str, dies: str = "") -> subprocess.Popen:
    environment = os.environ | {"PYTHONPATH": str(ROOT), dealt.VARIABLE: gpu}
    return subprocess.Popen([sys.executable, "-c", WORKER, str(folder), dies], env=environment)


def test_each_point_is_measured_once_by_one_process(tmp_path):
    workers = [started(tmp_path, str(gpu)) for gpu in range(3)]
    assert [worker.wait(60) for worker in workers] == [0, 0, 0]
    measured = (tmp_path / "record.txt").read_text().split()
    assert sorted(measured) == sorted(f"p{i}" for i in range(12))
    marks = dealt.marks(tmp_path, "wide")
    assert marks.keys() == set(measured)
    assert len({mark.split()[1] for mark in marks.values()}) > 1, "one process did everything"


def test_the_point_of_a_process_that_died_is_measured_by_another(tmp_path):
    dying = started(tmp_path, "0", dies="p0")
    while not (tmp_path / ".dealt").is_dir():
        time.sleep(0.01)
    other = started(tmp_path, "1")
    assert (dying.wait(60), other.wait(60)) == (-signal.SIGKILL, 0)
    assert sorted((tmp_path / "record.txt").read_text().split()) == sorted(f"p{i}" for i in range(12))


def test_without_the_variable_nothing_is_locked(tmp_path, monkeypatch):
    monkeypatch.delenv(dealt.VARIABLE, raising=False)
    assert list(dealt.points([1, 2], tmp_path, str, lambda point: True)) == [1, 2]
    with dealt.alone(tmp_path):
        dealt.mark(tmp_path, "wide", "p")
    assert not list(tmp_path.iterdir()) and dealt.marks(tmp_path, "wide") == {}


@pytest.mark.parametrize(
    ("asked", "shown", "says"),
    [
        ("0,3", "0,1", "GPU '3' is not here: choose among 0, 1, or say all"),
        ("0,0", "0,1", "GPU 0 is named 2 times: name each once"),
        ("all", "", "there is no GPU here"),
    ],
)
def test_gpus_that_cannot_be_dealt_to(asked, shown, says):
    with pytest.raises(ValueError, match=says):
        farm.visible(asked, {"CUDA_VISIBLE_DEVICES": shown})


def test_gpus_are_those_that_are_shown():
    assert farm.visible("all", {"CUDA_VISIBLE_DEVICES": "2,5"}) == ["2", "5"]
    assert farm.visible("5", {"CUDA_VISIBLE_DEVICES": "2,5"}) == ["5"]


def test_a_chapter_runs_as_a_process_that_knows_its_gpu(tmp_path, monkeypatch):
    seen = []

    def run(command, env, **more):
        seen.append((command[-4:], env["CUDA_VISIBLE_DEVICES"], env[dealt.VARIABLE]))
        return subprocess.CompletedProcess(command, codes.pop(0), "", "noise\nerror: row 3")

    codes = [0, 2, -9]
    monkeypatch.setattr(farm.subprocess, "run", run)
    asked = "notebooks/a.ipynb", "3", str(tmp_path), ("--mode", "measure")
    assert farm.execute(*asked) == ""
    target = str(tmp_path / "3" / "a.ipynb")
    assert seen == [(["notebooks/a.ipynb", target, "--mode", "measure"], "3", "3")]
    assert farm.execute(*asked) == "a on GPU 3: row 3"
    with pytest.raises(RuntimeError, match="a on GPU 3 was ended by signal 9"):
        farm.execute(*asked)


@pytest.mark.skipif(DASK, reason="Dask is installed")
def test_without_dask_it_is_one_sentence(capsys):
    assert farm.main(["--target", "x", "a.ipynb"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("error: points are dealt out by Dask") and said.count("\n") == 1


@pytest.mark.skipif(not DASK, reason="Dask is not installed")
def test_every_gpu_gets_every_chapter(tmp_path, monkeypatch, capsys):
    def execute(notebook, gpu, target, options):  # Dask hands a copy to its workers
        (Path(target) / f"{notebook}-{gpu}").write_text(" ".join(options))
        return "b on GPU 1: row 3" if (notebook, gpu) == ("b", "1") else ""

    monkeypatch.setattr(farm, "execute", execute)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    assert farm.main(["--target", str(tmp_path), "a", "b", "--", "--preset", "kick"]) == 1
    found = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert found == dict.fromkeys(("a-0", "a-1", "b-0", "b-1"), "--preset kick")
    assert capsys.readouterr().err == "error: b on GPU 1: row 3\n"
