import json
import shutil
import subprocess
import sys
from types import SimpleNamespace

import pandas as pd
import pytest

from artifact import ncu, records

SHAPES = [{"m": 8, "n": n, "k": 6, "density": 0.25} for n in (4, 8)]


def action(name, **values):
    """A profiled kernel; metric names are written with __ for the dots."""
    metrics = {
        key.replace("__dot__", "."): SimpleNamespace(value=lambda v=v: v, unit=lambda: "u")
        for key, v in values.items()
    }
    return SimpleNamespace(name=lambda: name, metric_by_name=metrics.get)


def kernel(name, time, bytes_read, hit):
    return action(
        name,
        gpu__time_duration__dot__sum=time,
        dram__bytes_read__dot__sum=bytes_read,
        lts__t_sector_hit_rate__dot__pct=hit,
    )


METRICS = ("gpu__time_duration.sum", "dram__bytes_read.sum", "lts__t_sector_hit_rate.pct", "none")
ORDER = [(SHAPES[0], "a"), (SHAPES[0], "b"), (SHAPES[1], "a")]
ACTIONS = [
    action(ncu.MARKER),
    kernel("first", 100, 1000, 50.0),
    action(ncu.MARKER),
    kernel("zero", 10, 20, 90.0),
    kernel("second", 80, 900, 60.0),
    action(ncu.MARKER),
    kernel("first", 200, 2000, 40.0),
]


def test_kernels_belong_to_the_marker_before_them():
    df = ncu.tidy(ACTIONS, ORDER, METRICS)
    assert list(df.columns) == list(ncu.COLUMNS)
    launches = df[["variant", "n", "launch", "kernel"]].drop_duplicates()
    assert [tuple(row) for row in launches.to_numpy()] == [
        ("a", 4, 0, "first"),
        ("b", 4, 0, "zero"),
        ("b", 4, 1, "second"),
        ("a", 8, 0, "first"),
    ]
    assert set(df["metric"]) == set(METRICS) - {"none"}, "a missing metric stays missing"


def test_several_kernels_of_a_contender_become_one_value():
    df = ncu.per_contender(ncu.tidy(ACTIONS, ORDER, METRICS))
    b = df[df["variant"] == "b"].set_index("metric")["value"]
    assert b["gpu__time_duration.sum"] == 90 and b["dram__bytes_read.sum"] == 920
    assert b["lts__t_sector_hit_rate.pct"] == 60, "that of the longest kernel"
    assert len(df) == 9


def test_counters_can_be_read_back(tmp_path):
    df = ncu.per_contender(ncu.tidy(ACTIONS, ORDER, METRICS))
    back = records.read_counters(ncu.write(df, tmp_path / "counters.csv"))
    pd.testing.assert_frame_equal(back, df, check_dtype=False)


@pytest.mark.parametrize(
    ("actions", "message"),
    [
        (ACTIONS[:3], "ends after 2 of 3"),
        ([kernel("stray", 1, 1, 1.0)], "holds stray, which no contender launched"),
    ],
)
def test_a_report_that_does_not_fit_is_refused(actions, message):
    with pytest.raises(RuntimeError, match=message):
        ncu.tidy(actions, ORDER, METRICS)


def test_the_command_leaves_the_clocks_alone_and_profiles_the_marked_range(tmp_path):
    task = {"room": "casper_sparse", "shapes": SHAPES, "contenders": ["a"], "seed": 0}
    words = ncu.command("/opt/ncu", ["x.sum", "y.pct"], tmp_path / "r.ncu-rep", task)
    text = " ".join(words)
    assert "--clock-control none" in text and "--profile-from-start off" in text
    assert "--metrics x.sum,y.pct" in text
    assert words[-4:-1] == [sys.executable, "-m", "artifact.ncu"]
    assert json.loads(words[-1]) == task


def test_without_ncu_there_is_one_clear_sentence(monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(FileNotFoundError, match="ncu is not on the PATH"):
        ncu.profile("casper_sparse", SHAPES, ["warp_per_row"])


@pytest.mark.parametrize(
    ("output", "kind", "message"),
    [
        ("==ERROR== ERR_NVGPUCTRPERM - The user does not have", PermissionError, "run as root"),
        (
            "==PROF== Connected\n==ERROR== Failed to initialize the profiler: LibraryNotLoaded\n",
            RuntimeError,
            "ncu could not profile: Failed to initialize the profiler: LibraryNotLoaded",
        ),
        (
            "==PROF== Connected\nTraceback\nValueError: casper_sparse has no variant 'x'\n"
            "==PROF== Disconnected\n==ERROR== The application returned an error code (1).\n",
            RuntimeError,
            "ncu could not profile: ValueError: casper_sparse has no variant",
        ),
        ("", RuntimeError, "it printed nothing"),
    ],
)
def test_what_ncu_prints_becomes_one_sentence(output, kind, message):
    error = ncu.explain(output)
    assert isinstance(error, kind) and message in str(error) and "\n" not in str(error)


def test_a_metric_that_the_gpu_lacks_is_left_out(monkeypatch):
    asked = []

    def fake(arguments, **_):
        asked.append(arguments[arguments.index("--metrics") + 1].split(","))
        if "no__such.sum" in asked[-1]:
            return SimpleNamespace(returncode=1, stdout="==ERROR== Unknown metric no__such.sum\n")
        ncu.Path(arguments[arguments.index("--export") + 1]).touch()
        return SimpleNamespace(returncode=0, stdout="")

    monkeypatch.setattr(shutil, "which", lambda name: "/opt/ncu")
    monkeypatch.setattr(subprocess, "run", fake)
    monkeypatch.setattr(ncu, "read", lambda path, order, metrics: (order, metrics))
    order, metrics = ncu.profile("room", SHAPES, ["a", "b"], ["x.sum", "no__such.sum", "x.sum"])
    assert asked == [["x.sum", "no__such.sum"], ["x.sum"]] and metrics == ["x.sum"]
    assert [(shape["n"], name) for shape, name in order] == [
        (4, "a"), (4, "b"), (8, "a"), (8, "b"),
    ]  # fmt: skip


@pytest.mark.gpu
def test_counters_of_a_small_problem(device):
    if shutil.which("ncu") is None:
        pytest.skip("Nsight Compute is not installed")
    pytest.importorskip("ncu_report")
    shape = {"m": 2048, "n": 128, "k": 2048, "density": 0.05}
    try:
        df = ncu.profile("casper_sparse", [shape], ["warp_per_row", "cusparse_alg2"])
    except PermissionError as error:
        pytest.skip(str(error))
    table = ncu.per_contender(df).pivot(index="variant", columns="metric", values="value")
    assert set(table.index) == {"warp_per_row", "cusparse_alg2"}
    assert (table["gpu__time_duration.sum"] > 0).all()
    assert table.loc["warp_per_row", "launch__registers_per_thread"] > 16
    missing = set(ncu.METRICS) - set(df["metric"])
    assert len(missing) < 5, f"names that this GPU does not know: {missing}"
