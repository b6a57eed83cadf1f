"""Profiling and reports: real .ncu-rep files, written here, go through the real ncu_report."""

import importlib
import itertools
import json
import math
import runpy
import shutil
import struct
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest
from refused import refused

from artifact import cli, paths, registry
from artifact.measure import device, records
from artifact.profiling import ncu
from artifact.profiling.ncu import MARKER
from artifact.verdicts import evidence, load

# ---------------------------------------------------------------- reports
# Nsight Compute's format (its Customization Guide, and extras/FileFormat/*.proto), as far as needed.


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def message(*fields) -> bytes:
    """Protocol Buffers: (number, int, float, text or message) each."""
    out = b""
    for number, value in fields:
        if isinstance(value, int):
            out += varint(number << 3) + varint(value)
        elif isinstance(value, float):
            out += varint(number << 3 | 1) + struct.pack("<d", value)
        else:
            value = value.encode() if isinstance(value, str) else value
            out += varint(number << 3 | 2) + varint(len(value)) + value
    return out


def sized(piece: bytes) -> bytes:
    return struct.pack("<I", len(piece)) + piece


def metric(name_id: int, value) -> bytes:
    """A ProfileMetricResult. value: number, text, None, or (aggregate or None, instances)."""
    kinds = {str: 1, float: 3, int: 5}
    aggregate, instances = value if isinstance(value, tuple) else (value, ())
    fields = [(1, name_id)]
    if aggregate is not None:
        fields.append((2, message((kinds[type(aggregate)], aggregate))))
    for i, instance in enumerate(instances):
        element = message((1, message((5, i))), (2, message((kinds[type(instance)], instance))))
        fields.append((3, element))
    return message(*fields)


#: Names that are no keywords -> in short.
SHORT = {"time": ncu.TIME, "read": "dram__bytes_read.sum", "hit": "l2__hit.pct"}


def kernel(name: str, **values):
    """A launch; metrics by their names, or in short."""
    return SimpleNamespace(name=name, values={SHORT.get(key, key): v for key, v in values.items()})


SIZE = message((1, 1), (2, 1), (3, 1))
CODE = message((1, 7), (2, "PTX code"), (4, b"\x7fELF" + b"code" * 50), (6, 90))
COMMENT = message((1, message((1, "id"))), (2, "title"), (3, "comment on a section"))
SESSION = message(
    (1, 4711),
    (2, 1),
    (3, message((5, "host name"))),
    (4, message((5, "target name"))),
    (8, message((1, "Nsight Compute"), (2, "2026.3"))),
    (9, message((1, "/home/someone/python"), (4, "TOKEN=environment"))),
    (11, "ncu command line"),
)
PROCESS = message((1, 4711), (2, "process host"), (3, "/home/someone/process"))


def block(*kernels) -> bytes:
    strings, entries = [*dict.fromkeys(name for k in kernels for name in k.values)], []
    for i, k in enumerate(kernels):
        heading = [
            (1, 1),
            (2, i),
            (3, 1),
            (4, i),
            (5, f"_Z{k.name}"),
            (6, k.name),
            (7, f"void {k.name}<4>(int)"),
            (8, 3),
            (9, SIZE),
            (10, SIZE),
            (11, SIZE),
        ]
        results = [(13, metric(strings.index(name), value)) for name, value in k.values.items()]
        entries.append(message(*heading, *results, (15, CODE), (18, COMMENT)))
    payload = b"".join(map(sized, entries))
    table = message(*((1, s) for s in strings))
    header = message((2, len(kernels)), (3, SESSION), (4, table), (5, len(payload)), (6, PROCESS))
    return sized(header) + payload


def report(path: Path, *blocks: bytes, version: int = 10) -> Path:
    path.write_bytes(b"NVR\0" + sized(message((1, version))) + b"".join(blocks))
    return path


GRID = {
    f"launch__{what}_dim_{axis}": size
    for what, sizes in (("grid", (64, 32, 2)), ("block", (128, 1, 1)))
    for axis, size in zip("xyz", sizes, strict=True)
}


@pytest.fixture(autouse=True)
def library():
    """The real package; it has no wheels for macOS on ARM and the like."""
    return pytest.importorskip("ncu_report")


def reported(tmp_path, *launches, metrics) -> pd.DataFrame:
    """What is read of a report of these launches."""
    return ncu.read(report(tmp_path / "r.ncu-rep", block(*launches)), metrics)


# ---------------------------------------------------------------- reading any report


def test_launches_of_all_ranges_are_counted_in_their_order(tmp_path):
    first = kernel("first", time=100, hit=50.5, **GRID)
    df = ncu.read(report(tmp_path / "r.ncu-rep", block(first, kernel("second", time=7)), block(first)), [ncu.TIME])
    assert list(df.columns) == list(ncu.READ) and df["value"].tolist() == [100, 7, 100]
    assert df[["launch", "kernel", "grid", "block"]].to_numpy().tolist() == [
        [0, "first", "64x32x2", "128x1x1"],
        [1, "second", "", ""],
        [2, "first", "64x32x2", "128x1x1"],
    ]


def test_a_metric_that_a_launch_lacks_is_missing_and_not_zero(tmp_path):
    launches = kernel("a", time=100, hit=0.0), kernel("b", time=200), kernel("c", hit=None)
    df = reported(tmp_path, *launches, metrics=[ncu.TIME, "l2__hit.pct"])
    table = df.pivot(index="kernel", columns="metric", values="value")
    assert table.loc["a"].to_dict() == {ncu.TIME: 100, "l2__hit.pct": 0} and table.loc["b", ncu.TIME] == 200
    assert table.loc["b":, "l2__hit.pct"].isna().all() and table.loc["c"].isna().all()
    assert len(df) == 6 and df["unit"].notna().all()


def test_instances_give_their_aggregate_or_nothing(tmp_path):
    values = {"with.sum": (9.0, (4, 5)), "without.sum": (None, (4, 5)), "text": "words"}
    found = reported(tmp_path, kernel("a", **values), metrics=values).set_index("metric")["value"]
    assert found["with.sum"] == 9 and found[["without.sum", "text"]].isna().all()


@pytest.mark.parametrize("content", [b"NVR\0", b"NVR\0\xff\xff\xff\xff", b"NVR\0" + sized(message((1, 10)))])
@pytest.mark.parametrize(("package", "says"), [(True, "finds no metric of a launch"), (False, "needs the package")])
def test_what_is_no_whole_report_is_one_sentence(monkeypatch, tmp_path, content, package, says):
    path = tmp_path / "r.ncu-rep"
    path.write_bytes(content)
    if not package:
        monkeypatch.setitem(sys.modules, "ncu_report", None)
    refused(f"^{path}: .*{says}", ncu.read, path, METRICS, kind=(ValueError, FileNotFoundError))


@pytest.mark.parametrize("name,metric_name", [("", "time"), (None, "time"), ("a", None)])
def test_a_launch_of_which_a_name_is_missing_is_one_sentence(monkeypatch, library, name, metric_name):
    launch = SimpleNamespace(name=lambda: name, metric_names=lambda: [metric_name], metric_by_name=lambda _: None)
    monkeypatch.setattr(library, "load_report", lambda _: [[launch]])
    refused("r.ncu-rep: a launch in it cannot be decoded", ncu.read, Path("r.ncu-rep"), METRICS)


# ---------------------------------------------------------------- contenders

SHAPES = [{"m": 8, "n": n, "k": 6, "density": 0.25} for n in (4, 8)]
METRICS = (ncu.TIME, "dram__bytes_read.sum", "l2__hit.pct", "none")
ORDER = [(SHAPES[0], "a"), (SHAPES[0], "b"), (SHAPES[1], "a")]
MARK = kernel(MARKER, time=1)
LAUNCHES = [
    MARK,
    kernel("first", time=100, read=1000, hit=50.0),
    MARK,
    kernel("zero", time=10, read=20, hit=90.0),
    kernel("second", time=80, read=900, hit=60.0),
    MARK,
    kernel("first", time=200, read=2000, hit=40.0),
]


@pytest.fixture
def table(tmp_path) -> pd.DataFrame:
    return reported(tmp_path, *LAUNCHES, metrics=METRICS)


def test_kernels_belong_to_the_marker_before_them(table):
    df = ncu.attribute(table, ORDER)
    assert list(df.columns) == list(ncu.COLUMNS)
    launches = df[["variant", "m", "n", "k", "density", "launch", "kernel"]].drop_duplicates()
    assert launches.to_numpy().tolist() == [
        ["a", 8, 4, 6, 0.25, 0, "first"],
        ["b", 8, 4, 6, 0.25, 0, "zero"],
        ["b", 8, 4, 6, 0.25, 1, "second"],
        ["a", 8, 8, 6, 0.25, 0, "first"],
    ]
    assert len(df) == 4 * len(METRICS)
    assert df[df["metric"] == "none"]["value"].isna().all()
    assert df[df["kernel"] == "second"]["value"].tolist()[:3] == [80, 900, 60]


@pytest.mark.parametrize(
    ("launches", "message"),
    [
        (slice(0, 3), "marks 2 contenders, but 3 were profiled"),
        (slice(1, None), "holds first, which no contender launched"),
    ],
)
def test_a_report_that_does_not_fit_is_refused(tmp_path, launches, message):
    refused(message, ncu.attribute, reported(tmp_path, *LAUNCHES[launches], metrics=METRICS), ORDER, kind=RuntimeError)


@pytest.mark.parametrize(
    ("kernel_name", "metric_name", "left"),
    [
        ("", "", {ncu.TIME: 90, "dram__bytes_read.sum": 920, "l2__hit.pct": 60}),  # that of the longest kernel
        ("zero", "dram__bytes_read.sum", {ncu.TIME: 90, "l2__hit.pct": 60}),
        ("second", "l2__hit.pct", {ncu.TIME: 90, "dram__bytes_read.sum": 920}),
        ("zero", "l2__hit.pct", {ncu.TIME: 90, "dram__bytes_read.sum": 920, "l2__hit.pct": 60}),
        ("second", ncu.TIME, {"dram__bytes_read.sum": 920, "l2__hit.pct": 90}),
    ],
)
def test_several_kernels_become_one_value_and_a_missing_one_is_no_part_of_a_sum(table, kernel_name, metric_name, left):
    here = (table["kernel"] == kernel_name) & (table["metric"] == metric_name)
    df = ncu.per_contender(ncu.attribute(table.assign(value=table["value"].mask(here)), ORDER))
    assert df[df["variant"] == "b"].set_index("metric")["value"].to_dict() == left
    assert len(df[df["variant"] == "a"]) == 6


@pytest.mark.parametrize("row", ncu.REPORT_METRICS)
def test_a_row_of_the_report_is_in_the_unit_that_it_names(row):
    counter, factor = ncu.REPORT_METRICS[row]
    assert factor == (100 if "(%)" in row and counter.endswith(".ratio") else 1e-6 if "(MB)" in row else 1)


# ---------------------------------------------------------------- running ncu


def test_the_command_leaves_the_clocks_alone_and_profiles_the_marked_range(tmp_path):
    task = {"room": "casper_sparse", "shapes": SHAPES, "contenders": ["a"], "seed": 0}
    words = ncu.command("/opt/ncu", ["x.sum", "y.pct"], tmp_path / "r.ncu-rep", task)
    options = ("--clock-control none", "--profile-from-start off", "--metrics x.sum,y.pct", "--import-sass no")
    assert all(option in " ".join(words) for option in (*options, "--disable-extra-suffixes"))
    assert not any(word.startswith(("--set", "--section", "--import-source")) for word in words)
    assert words[-4:-1] == [sys.executable, "-m", "artifact.profiling.ncu"]
    assert json.loads(words[-1]) == task


def test_the_target_that_ncu_starts_is_given_its_task(monkeypatch, tmp_path):
    words = ncu.command("ncu", ["x.sum"], tmp_path / "r.ncu-rep", {"room": "no_system"})
    monkeypatch.setattr(sys, "argv", words[words.index(ncu.__name__) :])
    monkeypatch.setattr(device, "require", lambda: SimpleNamespace(open=lambda: None))
    refused("kernels.no_system", runpy.run_path, ncu.__file__, run_name="__main__", kind=ModuleNotFoundError)


def test_without_ncu_there_is_one_clear_sentence(monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda name: None)
    refused(
        "ncu is not on the PATH.*shipped profiles",
        ncu.profile,
        "casper_sparse",
        SHAPES,
        ["warp_per_row"],
        kind=FileNotFoundError,
    )


@pytest.mark.parametrize(
    ("output", "kind", "message"),
    [
        ("==ERROR== ERR_NVGPUCTRPERM - The user does not have", PermissionError, "run as root"),
        ("==WARNING== ERR_NVGPUCTRPERM\n", PermissionError, "uses the shipped profiles"),
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
        ("==WARNING== No kernels were profiled.\n", RuntimeError, "ncu profiled no kernel"),
        ("", RuntimeError, "it printed nothing"),
    ],
)
def test_what_ncu_prints_becomes_one_sentence(output, kind, message):
    error = ncu.explain(output)
    assert isinstance(error, kind) and message in str(error) and "\n" not in str(error)


class Ncu:
    """Stands in for ncu: refuses what `lacks` says, else has the launches of LAUNCHES."""

    def __init__(self, lacks=(), form="Failed to find metric {}", all_at_once=False):
        self.lacks, self.form, self.all_at_once = lacks, form, all_at_once
        self.asked: list[list[str]] = []
        self.launches = [kernel(k.name, **k.values, **GRID) for k in LAUNCHES]

    def __call__(self, arguments, **_):
        words = arguments[arguments.index("--metrics") + 1].split(",")
        self.task = json.loads(arguments[-1])
        self.asked.append(words + [w for w in arguments if w.startswith("--")])
        missing = [w for w in self.lacks if w in self.asked[-1]]
        if missing:
            named = missing if self.all_at_once else missing[:1]
            lines = [f"==ERROR== {self.form.format(name)}\n" for name in named]
            return SimpleNamespace(returncode=1, stdout="".join(lines))
        report(Path(arguments[arguments.index("--export") + 1]), block(*self.launches))
        return SimpleNamespace(returncode=0, stdout="")


def profiled(monkeypatch, ncu_here, metrics=METRICS, **options):
    monkeypatch.setattr(shutil, "which", lambda name: "/opt/ncu")
    monkeypatch.setattr(subprocess, "run", ncu_here)
    monkeypatch.setattr(ncu, "attribute", lambda df, _, real=ncu.attribute: real(df, ORDER))
    return ncu.profile("room", SHAPES, ["a", "b"], metrics, **options)


@pytest.mark.parametrize("all_at_once", [True, False])
@pytest.mark.parametrize("form", ["Failed to find metric {}", "Unknown metrics: {}, other.sum.", "No metric '{}' here"])
def test_metrics_that_the_gpu_lacks_are_left_out_and_missing(monkeypatch, form, all_at_once):
    here = Ncu(["none", "no__such.sum"], form, all_at_once)
    metrics = [*METRICS, "no__such.sum", "no__such.sum.pct", ncu.TIME]
    df = profiled(monkeypatch, here, metrics)
    assert len(here.asked) == (2 if all_at_once else 3)
    assert {"none", "no__such.sum"}.isdisjoint(here.asked[-1])
    assert {ncu.TIME, "no__such.sum.pct", *ncu.DIMENSIONS} <= set(here.asked[-1])
    assert df[df["metric"] == "no__such.sum"]["value"].isna().all()
    assert len(df) == 4 * len(set(metrics)) and set(df["grid"]) == {"64x32x2"}


def test_another_gpus_name_of_a_metric_is_tried(monkeypatch):
    here = Ncu(["dram__bytes_read.sum"])
    df = profiled(monkeypatch, here)
    assert "dram__bytes_op_read.sum" in here.asked[-1]
    assert {"dram__bytes_read.sum", "dram__bytes_op_read.sum"} <= set(df["metric"])


def test_an_older_ncu_goes_without_the_options_that_it_lacks(monkeypatch):
    here = Ncu(["--import-sass"], "unrecognised option '{}'. Use --help for further details.")
    profiled(monkeypatch, here)
    assert "--import-sass" not in here.asked[-1] and "--disable-extra-suffixes" in here.asked[-1]


def test_ncu_is_not_asked_for_ever(monkeypatch):
    here = Ncu([f"m{i}" for i in range(50)])
    refused("Failed to find metric m7", profiled, monkeypatch, here, [f"m{i}" for i in range(50)], kind=RuntimeError)
    assert len(here.asked) == ncu.ATTEMPTS


def test_counters_report_and_launches_are_kept(monkeypatch, tmp_path):
    folder = tmp_path / "gpu" / "room"
    assert ncu.launches(folder).empty and list(ncu.launches(folder)) == list(ncu.LAUNCH_COLUMNS)
    df = profiled(monkeypatch, here := Ncu(), folder=folder, gpu="GPU")
    assert here.task == {"room": "room", "shapes": SHAPES, "contenders": ["a", "b"], "seed": 0}
    counters = records.read_counters(folder / "counters.csv")
    pd.testing.assert_frame_equal(counters, ncu.per_contender(df), check_dtype=False)
    pd.testing.assert_frame_equal(ncu.attribute(ncu.read(folder / "profiles" / "room.ncu-rep", METRICS), ORDER), df)
    assert len(list(folder.rglob("*"))) == 5, "nothing else is left behind"
    rows = ncu.launches(folder)
    assert list(rows) == list(ncu.LAUNCH_COLUMNS)
    assert rows[["variant", "n", "launch", "kernel", "time_ns"]].to_numpy().tolist() == [
        ["a", 4, 0, "first", 100.0],
        ["b", 4, 0, "zero", 10.0],
        ["b", 4, 1, "second", 80.0],
        ["a", 8, 0, "first", 200.0],
    ]
    shipped = [path.read_bytes() for path in folder.rglob("*.csv")]
    private = (b"someone", b"host name", b"command line")
    assert len(shipped) == 2 and not any(words in content for words in private for content in shipped)


def test_where_a_write_fails_nothing_is_left_behind(monkeypatch, tmp_path):
    monkeypatch.setattr(records, "write_counters", lambda *_: records.read(tmp_path / "none.csv"))
    refused("none.csv", profiled, monkeypatch, Ncu(), folder=tmp_path / "room", kind=FileNotFoundError)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_the_report_of_a_profiler_that_failed_is_not_read(monkeypatch, tmp_path):
    wrote = Ncu()

    def failed(arguments, **_):
        wrote(arguments)
        return SimpleNamespace(returncode=1, stdout="==ERROR== The application was ended\n")

    refused("The application was ended", profiled, monkeypatch, failed, folder=tmp_path / "room", kind=RuntimeError)
    assert wrote.asked and not list(tmp_path.iterdir())


# ---------------------------------------------------------------- on a GPU


@pytest.mark.gpu
@pytest.mark.alone
@pytest.mark.parametrize(
    ("system", "shape", "contenders"),
    [
        (
            "casper_sparse",
            {"m": 2048, "n": 128, "k": 2048, "density": 0.05},
            ["warp_per_row", "cusparse_alg2"],
        ),
        (
            "nm_cuda_core",
            {"m": 256, "n": 256, "k": 256, "density": 0.5},
            ["baseline", "double_buffer", "cublas"],
        ),
        (
            "nm_spmm",
            {"m": 256, "n": 256, "k": 256, "density": 0.125},
            ["v3", "banks", "nm_baseline", "cublas"],
        ),
    ],
)
def test_counters_of_a_small_problem(device, tmp_path, system, shape, contenders):
    if shutil.which("ncu") is None:
        pytest.skip("Nsight Compute is not installed")
    try:
        df = ncu.profile(system, [shape], contenders, folder=tmp_path / system)
    except PermissionError as error:
        pytest.skip(str(error))
    table = ncu.per_contender(df).pivot(index="variant", columns="metric", values="value")
    assert set(table.index) == set(contenders) and (table["gpu__time_duration.sum"] > 0).all()
    assert table.loc[contenders[0], "launch__registers_per_thread"] > 16
    assert df["grid"].str.fullmatch(r"\d+x\d+x\d+").all()
    missing = set(ncu.METRICS) - set(df.dropna(subset="value")["metric"])
    assert len(missing) < 5, f"names that this GPU does not know: {missing}"
    rows = ncu.launches(tmp_path / system)
    assert set(rows["variant"]) == set(contenders) and (rows["time_ns"] > 0).all()


def test_the_target_waits_for_each_contender_before_the_next_marker(monkeypatch):
    """Kernels of two that overlapped would have two markers before them."""
    import cuda.core
    from cuda.bindings import driver

    log = []
    stream = SimpleNamespace(sync=lambda: log.append("wait"))
    opened = SimpleNamespace(compute_capability=(9, 0), create_stream=lambda: stream, sync=lambda: log.append("ready"))
    code = SimpleNamespace(get_kernel=lambda name: name)
    program = SimpleNamespace(compile=lambda kind: code)
    monkeypatch.setattr(device, "require", lambda: SimpleNamespace(open=lambda: opened))
    monkeypatch.setattr(registry, "contenders", lambda *_: {})
    for name, what in {
        "LaunchConfig": dict,
        "Program": lambda *_: program,
        "ProgramOptions": dict,
        "launch": lambda stream, config, kernel: log.append(kernel),
    }.items():
        monkeypatch.setattr(cuda.core, name, what)
    monkeypatch.setattr(driver, "cuProfilerStart", lambda: log.append("start"))
    monkeypatch.setattr(driver, "cuProfilerStop", lambda: log.append("stop"))
    system = SimpleNamespace(
        BASELINES=(),
        problem=lambda **_: SimpleNamespace(release=lambda: None),
        prepare=lambda name, *_: SimpleNamespace(launch=lambda stream: log.append(name)),
    )
    monkeypatch.setattr(ncu.importlib, "import_module", lambda name: system)
    ncu.main({"room": "x", "shapes": [{"m": 1}], "contenders": ["a", "b"], "seed": 0})
    each = [MARKER, "a", "wait", MARKER, "b", "wait"]
    assert log == ["ready", "start", *each, "stop"]


# ---------------------------------------------------------------- python -m artifact profile


PROFILES = registry.profiles()
SYSTEMS = list(PROFILES)
#: Those that have kernels: a system's trial may be written before them.
BUILT = [system for system in SYSTEMS if (paths.ROOT / "kernels" / system / "launch.py").is_file()]
#: Modules of systems with problems of their own.
PARTS = [system for system in SYSTEMS if "." in system]


def complaint(capsys, *arguments: str) -> str:
    """The one line on stderr with which `profile` refuses these arguments."""
    assert cli.main(["profile", *arguments]) == 2
    err = capsys.readouterr().err
    assert err.startswith("artifact: ") and err.count("\n") == 1
    return err


def planned(system: str) -> list[dict]:
    plan = PROFILES[system]
    return [s | {"density": d} for d, s in itertools.product(plan["densities"], plan["shapes"])]


# ---------------------------------------------------------------- the command


@pytest.mark.parametrize("system", ["juggle", "ceilings", "../casper_sparse"])
def test_an_unknown_system_names_the_known_ones(capsys, monkeypatch, system):
    monkeypatch.setattr(device, "find", lambda *_: None)
    monkeypatch.setattr(ncu, "profile", lambda *_, **__: pytest.fail("there is no GPU"))
    err = complaint(capsys, system)
    assert repr(system) in err and f"known: {', '.join(SYSTEMS)}" in err
    assert "needs an NVIDIA GPU" in complaint(capsys) and "needs an NVIDIA GPU" in complaint(capsys, "casper_sparse")


INFO = SimpleNamespace(slug="nvidia-h200", gpu="NVIDIA H200")


@pytest.fixture
def gpu(monkeypatch, tmp_path):
    """A machine that seems to have a GPU, and folders of its own."""
    monkeypatch.setattr(device, "require", lambda *_: INFO)
    monkeypatch.setattr(paths, "RECORDS", tmp_path / "records")
    return tmp_path


@pytest.fixture
def asked(monkeypatch):
    """The calls of `ncu.profile`, which seems to work: one counter is 5 in each launch, one is missing."""
    calls = []

    def profile(system, shapes, contenders, metrics, *, folder, gpu):
        calls.append((system, list(shapes), list(contenders), list(metrics), folder))
        found = [(ncu.TIME, 5.0), (ncu.METRICS[1], math.nan)] * len(shapes) * len(contenders)
        return pd.DataFrame(found, columns=["metric", "value"])

    monkeypatch.setattr(ncu, "profile", profile)
    return calls


def test_what_is_listed_is_profiled_and_recorded(capsys, gpu, asked):
    assert cli.main(["profile"]) == 0
    assert [call[0] for call in asked] == SYSTEMS
    for system, shapes, contenders, metrics, folder in asked:
        assert shapes == planned(system) and contenders == PROFILES[system]["contenders"]
        wanted = load.counters_wanted(claim for claim in load.claims() if claim.room == system)
        assert {*ncu.METRICS, *wanted} <= {*metrics} and len({*metrics}) == len(metrics)
        assert folder == (gpu / "records" / "nvidia-h200").joinpath(*system.split("."))
    out, err = capsys.readouterr()
    for said in (
        f"{SYSTEMS[0]}: {len(planned(SYSTEMS[0])) * len(asked[0][2])} values of 1 counters",
        f"not on this GPU: {ncu.METRICS[1]}",
        f"counters and launches are in {gpu}",
    ):
        assert said in out and err == ""


def test_a_system_adds_its_own_metrics(gpu, asked, monkeypatch):
    system = next(system for system in SYSTEMS if "metrics" not in PROFILES[system])
    own = {system: PROFILES[system] | {"metrics": ["own.sum", ncu.METRICS[2]]}}
    monkeypatch.setattr(registry, "profiles", lambda: own)
    assert cli.main(["profile"]) == 0
    ((_, _, _, metrics, _),) = asked
    assert metrics.count("own.sum") == metrics.count(ncu.METRICS[2]) == 1


@pytest.mark.parametrize(
    ("printed", "said"),
    [
        ("==ERROR== ERR_NVGPUCTRPERM - no permission\n", "uses the shipped profiles"),
        ("==ERROR== Failed to initialize\n", "could not profile: Failed to initialize"),
    ],
)
def test_where_ncu_fails_there_is_one_sentence_and_no_file(capsys, gpu, monkeypatch, printed, said):
    monkeypatch.setattr(ncu.shutil, "which", lambda *_: "/opt/ncu")
    failed = SimpleNamespace(returncode=1, stdout=printed)
    monkeypatch.setattr(ncu.subprocess, "run", lambda *_, **__: failed)
    assert said in complaint(capsys, SYSTEMS[0])
    assert not (gpu / "records").exists()


# ---------------------------------------------------------------- profiles.toml


GOOD = """contenders = ["v1"]
densities = [0.5]
shapes = [{ m = 1, n = 2, k = 3 }]
[part]
metrics = ["own"]
"""


@pytest.mark.parametrize(
    "old,new,says",
    [
        ("", "", ""),
        ('contenders = ["v1"]', "", "room: the key 'contenders' is missing"),
        ('["v1"]', '["v1", "v1"]', "'contenders' is .* nothing twice"),
        ("[0.5]", "[]", "'densities' is .* has something"),
        ("[0.5]", "[1.5]", "'densities.0' is 1.5"),
        ("m = 1", "m = 0", "'shapes.0.m' is 0"),
        ("k = 3", 'k = "3"', "'shapes.0.k' is '3'"),
        ("metrics", "counters", "room.part: the key 'counters' is none of contenders"),
    ],
)
def test_a_profile_is_complete_and_lists_nothing_twice(tmp_path, monkeypatch, old, new, says):
    monkeypatch.setattr(registry, "find", lambda folder: ["room"])
    path = records.write_text(tmp_path / "room" / registry.PROFILES, GOOD.replace(old, new))
    with pytest.raises(ValueError, match=f"{path}: .*{says}") if says else nullcontext():
        system, part = registry.profiles(tmp_path).values()
        assert system["shapes"] == [{"m": 1, "n": 2, "k": 3}] and part == system | {"metrics": ["own"]}


def test_own_metrics_are_none_that_every_system_has():
    assert not {metric for plan in PROFILES.values() for metric in plan.get("metrics", ())} & set(ncu.METRICS)


@pytest.mark.parametrize("system", [*BUILT, *PARTS])
def test_shapes_make_problems(system):
    module = importlib.import_module(f"kernels.{system}")
    for shape in planned(system):
        problem = module.problem(**shape)
        assert problem.nnz > 0 and (problem.m, problem.n, problem.k) == tuple(shape[key] for key in ("m", "n", "k"))


def test_contenders_of_claims_on_counters_are_profiled():
    for claim in load.claims():
        if "counters" in claim.experiment:
            named = {*evidence.contenders(claim.rule.quantity.keywords.get("of", ()))} - {
                evidence.BEST
            }  # whichever algorithm that is at a point
            assert named <= set(PROFILES[claim.room]["contenders"]), claim.id
