"""Points are dealt out: each is measured once, by one worker; one that dies leaves its point to another."""

import os
import signal
import subprocess
from functools import partial

import pytest
from refused import refused

from artifact.distributed import farm
from artifact.measure import run


def measured(folder, point: str) -> str:
    """Work that a worker finds by its name; the first who gets "dies" does."""
    if point == "dies" and not (folder / "died").exists():
        (folder / "died").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    if point == "wrong":
        raise ArithmeticError("wrong is off")
    with (folder / "measured").open("a") as file:
        file.write(f"{point}\n")
    return point.upper()


@pytest.fixture(scope="module")
def scheduler():
    pytest.importorskip("dask")
    with farm.workers(["4", "7"]) as address:
        yield address


def test_each_point_is_measured_once_also_where_a_worker_dies(scheduler, tmp_path, monkeypatch):
    monkeypatch.setenv(run.SCHEDULER, scheduler)
    points = [*map(str, range(9)), "dies"]
    made = list(run.each(partial(measured, tmp_path), points))
    assert {point: result for point, _, result in made} == {point: point.upper() for point in points}
    assert len(made) == len(points) == len(set((tmp_path / "measured").read_text().split()))
    assert {who["gpu"] for _, who, _ in made} == {"4", "7"}
    for point, who, _ in made:
        run.mark(tmp_path, "wide", point, who)
    marks = run.marks(tmp_path, "wide")
    assert marks.keys() == set(points) and {mark.split()[1] for mark in marks.values()} == {"4", "7"}
    refused("wrong is off", list, run.each(partial(measured, tmp_path), ["wrong"]), kind=ArithmeticError)


def test_without_a_scheduler_points_are_measured_here_in_order(tmp_path, monkeypatch):
    monkeypatch.delenv(run.SCHEDULER, raising=False)
    assert list(run.each(str.upper, ["a", "b"])) == [("a", {}, "A"), ("b", {}, "B")]
    run.mark(tmp_path, "wide", "a", {})
    assert not list(tmp_path.iterdir()) and run.marks(tmp_path, "wide") == {}


@pytest.mark.parametrize(
    ("asked", "shown", "says"),
    [
        ("0,3", "0,1", "GPU '3' is not here: choose among 0, 1, or say all"),
        ("0,0", "0,1", "GPU 0 is named 2 times: name each once"),
        ("all", "", "there is no GPU here"),
    ],
)
def test_gpus_are_those_that_are_shown_and_asked_for(asked, shown, says):
    refused(says, farm.visible, asked, {"CUDA_VISIBLE_DEVICES": shown})
    assert [farm.visible(x, {"CUDA_VISIBLE_DEVICES": "2,5"}) for x in ("all", "5")] == [["2", "5"], ["5"]]


def test_a_chapter_runs_as_a_process_that_knows_its_scheduler(tmp_path, monkeypatch, capsys):
    seen = []

    def ran(command, env, **more):
        seen.append((command[-4:], env[run.SCHEDULER]))
        return subprocess.CompletedProcess(command, 2 * (len(seen) == 2), None, "noise\nerror: row 3")

    monkeypatch.setattr(farm.subprocess, "run", ran)
    asked = ["--scheduler", "tcp://head", "--target", str(tmp_path), "n/a.ipynb", "n/b.ipynb"]
    assert farm.main([*asked, "--", "--mode", "measure"]) == 1 and capsys.readouterr().err == "error: b: row 3\n"
    assert len(seen) == 2 and seen[1] == (["n/b.ipynb", str(tmp_path / "b.ipynb"), "--mode", "measure"], "tcp://head")


def test_without_dask_it_is_one_sentence(capsys, monkeypatch):
    monkeypatch.setitem(farm.sys.modules, "distributed", None)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    assert farm.main(["--target", "x", "a.ipynb"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("error: points are dealt out by Dask") and said.count("\n") == 1
