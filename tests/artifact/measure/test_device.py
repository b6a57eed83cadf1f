"""The GPU: none, one that does not work, one that is described; and what records say of the code behind them."""

import math
import os
import platform
import re
import subprocess
import sys
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
from refused import refused

from artifact import paths, registry
from artifact.baselines import cpu
from artifact.measure import device, run


@pytest.mark.parametrize(
    ("name", "slug"),
    [
        ("NVIDIA H200", "nvidia-h200"),
        ("NVIDIA A100-SXM4-80GB", "nvidia-a100-sxm4-80gb"),
        ("NVIDIA GeForce RTX 5090 (Laptop)", "nvidia-geforce-rtx-5090-laptop"),
    ],
)
def test_slug_is_a_folder_name(name, slug):
    assert device.slug(name) == slug


@pytest.fixture
def driver(monkeypatch):
    """A function that puts a driver in place: why it does not load, what cuInit returns and calls that, what the CUDA
    runtime then says, or raises."""
    runtime = pytest.importorskip("cuda.bindings.runtime")

    def put(loads="", status=0, name=b"", error="cudaSuccess", count=1, raises=""):
        def named(status, address):
            address._obj.value = name

        def load(path):
            if loads:
                raise OSError(loads)
            return SimpleNamespace(cuInit=lambda flags: status, cuGetErrorName=named)

        def counted():
            if raises:
                raise RuntimeError(raises)
            return getattr(runtime.cudaError_t, error), count

        monkeypatch.setattr(device.ctypes, "CDLL", load)
        monkeypatch.setattr(runtime, "cudaGetDeviceCount", counted)

    return put


@pytest.mark.parametrize(
    "put",
    [
        {"loads": "libcuda.so.1: cannot open shared object file: No such file or directory"},
        {"status": device.CUDA_ERROR_NO_DEVICE, "name": b"CUDA_ERROR_NO_DEVICE"},
        {"error": "cudaErrorNoDevice", "count": 0},
    ],
)
def test_find_says_none_where_there_is_no_driver_and_where_it_has_no_such_gpu(driver, put):
    driver(**put)
    assert device.find() is None
    refused("^measuring needs an NVIDIA GPU.*MODE=recorded", device.require, kind=device.NoGpu)


PART = "libnvidia-ptxjitcompiler.so.1: cannot open shared object file: No such file or directory"
DENIED = "libcuda.so.1: cannot open shared object file: Permission denied"


@pytest.mark.parametrize(
    ("put", "why"),
    [
        ({"status": 803, "name": b"CUDA_ERROR_X"}, "cuInit fails with error 803, CUDA_ERROR_X"),
        ({"status": 4711}, "cuInit fails with error 4711"),
        ({"error": "cudaErrorInsufficientDriver", "count": None}, "runtime here says cudaErrorInsufficientDriver"),
        ({"raises": "Failed to dlopen\nand a second line"}, "Failed to dlopen"),
        *(({"loads": said}, said) for said in ("/usr/lib/libcuda.so.1: file too short", PART, DENIED)),
    ],
)
def test_a_driver_that_does_not_work_is_said_and_not_taken_for_no_gpu(driver, put, why):
    driver(**put)
    for ask in (device.find, device.require, lambda: run.start("casper_sparse", mode="auto")):
        refused(rf"that is installed here does not work \(.*{why}\): repair or update it", ask, kind=device.NoGpu)
    assert run.start("casper_sparse", mode="recorded").mode == "recorded"


MOST = 2**31 - 1


FIT = ((16384, 16384, 16384), (2**20, 256, 2048), (120_000, 120_000, 1), (1, 1, MOST), (200_000, 1, 500_000))
DO_NOT = ((130_000, 130_000, 1), (10**6, 100, 2**31), (100, 10**6, 2**31), (MOST, MOST, MOST))


#: Bytes that are just enough: of A and B the smaller one, C and its reference.
JUST = {(1, 1, 1): 12, (4, 2, 8): 112, (2, 4, 8): 112, (1, 1, 9): 28}
CASES = [*((x, 150 * 10**9, x in FIT) for x in FIT + DO_NOT), *((x, JUST[x] - d, not d) for x in JUST for d in (0, 1))]


@pytest.mark.parametrize(("sizes", "memory", "fits"), CASES)
def test_a_problem_that_cannot_fit_is_refused_before_anything_is_drawn(sizes, memory, fits):
    info = device.DeviceInfo("NVIDIA H200", "nvidia-h200", memory)
    has = f"the NVIDIA H200 has {memory / 1e9:.0f} GB: choose smaller"
    says = "^m={}, n={}, k={} needs .* GB at least, but {}".format(*sizes, has)
    with nullcontext() if fits else pytest.raises(ValueError, match=says):
        device.require_memory(info, *sizes)


@pytest.mark.parametrize(
    ("bits", "words"),
    [
        (0x0, "none"),
        (0x1, "idle"),
        (0x4, "software power cap"),
        (0x4 | 0x40, "software power cap + hardware thermal slowdown"),
        (0x4 | 0x10000, "software power cap + reason 0x10000"),
    ],
)
def test_throttle_bits_become_words(bits, words):
    assert device.throttle_words(bits) == words


def test_throttle_bits_are_those_of_nvml():
    nvml = pytest.importorskip("pynvml")
    names = {
        "GpuIdle": "idle",
        "ApplicationsClocksSetting": "clock setting",
        "SwPowerCap": "software power cap",
        "HwSlowdown": "hardware slowdown",
        "SyncBoost": "sync boost",
        "SwThermalSlowdown": "software thermal slowdown",
        "HwThermalSlowdown": "hardware thermal slowdown",
        "HwPowerBrakeSlowdown": "power brake",
        "DisplayClockSetting": "display clock setting",
    }
    bits = [getattr(nvml, f"nvmlClocksEventReason{name}") for name in names]
    assert list(map(device.throttle_words, bits)) == list(names.values())


def test_a_sample_without_nvml_is_empty_and_raises_nothing(monkeypatch):
    monkeypatch.setattr(device, "_nvml", lambda bus: (None, None))
    seen = device.sample(SimpleNamespace(pci_bus_id="0"))
    assert math.isnan(seen.sm_mhz) and math.isnan(seen.power_w) and seen.throttle == ""


def test_a_repository_that_git_refuses_is_said(monkeypatch, tmp_path, capsys):
    """As a clone of another user's, which git calls dubious; where there is none, nothing is said."""
    monkeypatch.delenv("SPARSITY_COMMIT", raising=False)
    monkeypatch.setattr(paths, "ROOT", tmp_path)
    assert device.commit() == "unknown" and capsys.readouterr().err == ""
    (tmp_path / ".git").write_text("gitdir: /no/where")
    assert device.commit() == "unknown"
    said = capsys.readouterr().err
    assert "recorded as unknown: fatal: not a git repository" in said and "SPARSITY_COMMIT" in said
    monkeypatch.setenv("SPARSITY_COMMIT", "0123abc")
    assert device.commit() == "0123abc"


def test_a_checkout_is_told_by_its_commit_and_whether_files_differ_from_it(monkeypatch, tmp_path):
    monkeypatch.delenv("SPARSITY_COMMIT", raising=False)
    monkeypatch.setattr(paths, "ROOT", tmp_path)
    (tmp_path / "a.txt").write_text("as it was")
    for words in ("init -q", "add a.txt", "-c user.name=a -c user.email=a@b commit -qm a"):
        device.git(*words.split())
    clean = device.commit()
    (tmp_path / "a.txt").write_text("as it is")
    assert re.fullmatch("[0-9a-f]{7,}", clean) and device.commit() == clean + "+"


#: Path in a small tree -> whether a system's numbers change with it.
MATTERS = {
    **dict.fromkeys(("kernels/jit.py", "kernels/room/a.cu", "kernels/room/launch.py"), True),
    **dict.fromkeys(
        ("kernels/room/choices/nvidia-h200.csv", "kernels/common/vec.cuh", "kernels/autotune/race.py"), True
    ),
    **{f"artifact/{x}": True for x in ("measure/bench.py", "measure/verification.py", "baselines/cublas_loop.c")},
    **{f"artifact/baselines/{x}.py": True for x in ("cublas", "shared", "kernel")},
    "kernels/elsewhere/c.cu": True,
    **{f"artifact/{x}.py": False for x in ("baselines/cublaslt", "baselines/cusparse", "drawing/plot")},
    **dict.fromkeys(("kernels/room/README.md", "kernels/room/table.csv", "kernels/other/b.cu"), False),
    "kernels/other/choices/nvidia-h200.csv": False,
}
#: A baseline that is made of others, in a circle, and of another system's kernels.
IMPORTS = {
    "cublas": "from artifact.baselines import shared\nfrom kernels.formats import csr",
    "shared": "from artifact.baselines.cublas import bind\nimport artifact.baselines.kernel",
    "kernel": "def bind():\n    from kernels import elsewhere, jit",
}


@pytest.mark.parametrize("changed", MATTERS)
def test_sources_change_with_what_changes_a_number_and_with_nothing_else(monkeypatch, tmp_path, changed):
    known = ("cublas", "cublaslt", "cusparse", "kernel", "shared")
    monkeypatch.setattr(paths, "ROOT", tmp_path)
    monkeypatch.setattr(registry, "modules", lambda: {name: f"artifact.baselines.{name}" for name in known})
    monkeypatch.setitem(sys.modules, "kernels.room", SimpleNamespace(BASELINES=("cublas",)))
    for name in (*MATTERS, "kernels/other/launch.py", "kernels/elsewhere/launch.py", "kernels/formats/csr.py"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(IMPORTS.get(path.stem, f"# {name}") + "\n")
    before, path = device.sources("room"), tmp_path / changed
    path.write_text(path.read_text() + "# something else\n")
    assert (device.sources("room") != before) == MATTERS[changed]


def test_the_cpu_has_a_name_on_one_line(monkeypatch):
    assert re.fullmatch(r"\S.*\S", device._cpu())
    # Where /proc does not say it, as on some other architectures, the architecture is left.
    for text, name in (
        ("", platform.machine()),
        ("AMD EPYC 9654 96-Core Processor  ", "AMD EPYC 9654 96-Core Processor"),
    ):
        text = f"processor : 0\nmodel name\t: {text}\nmodel name\t:\n"
        monkeypatch.setattr(device.Path, "read_text", lambda *a, text=text, **k: text)
        assert device._cpu() == name
    assert device._library_version("no_such_library") is None


@pytest.mark.gpu
def test_the_gpu_is_found_and_described():
    info = device.require()
    machine = device.describe(info.open())
    assert machine["gpu"] == info.gpu and machine["slug"] == info.slug
    assert machine["sm_count"] > 0 and machine["l2_bytes"] > 0
    assert machine["memory_bytes"] == info.memory_bytes > 2**30
    assert re.fullmatch(r"\d+\.\d+", machine["cuda"])
    for library in ("cublas", "cusparse", "cusparselt"):
        assert re.fullmatch(r"\d+\.\d+\.\d+", machine[library])
    assert machine["cpu"] and machine["cpu_cores"] >= 1
    text = str(machine)
    assert "/" not in text.replace("GNU/Linux", ""), "a machine's paths are nobody's business"
    assert not re.search(rf"\b{re.escape(platform.node())}\b", text)


# ---------------------------------------------------------------- which file of cuSPARSELt


SONAME = "libcusparseLt.so.0"
SOURCE = """
int cusparseLtGetProperty(int part, int* value)
{
    static const int version[3] = {%s};
    *value = version[part];
    return 0;
}
"""
#: Stands for nvmath: calls whatever the loader has by that name.
NVMATH = f"""
import ctypes

def get_property(part):
    value = ctypes.c_int()
    assert ctypes.CDLL({SONAME!r}).cusparseLtGetProperty(part, ctypes.byref(value)) == 0
    return value.value
"""
compiler = cpu.compiler()
makes = pytest.mark.skipif(
    compiler is None, reason=f"none of {', '.join(cpu.COMPILERS)} is here to make a library with"
)


@pytest.fixture
def nvmath(tmp_path):
    """A folder for PYTHONPATH, with an `nvmath` that has nothing but the library's version."""
    (tmp_path / "python/nvmath/bindings").mkdir(parents=True)
    (tmp_path / "python/nvmath/bindings/cusparseLt.py").write_text(NVMATH)
    return tmp_path / "python"


def library(made: Path, source: str) -> Path:
    made.parent.mkdir()
    made.with_suffix(".c").write_text(source)
    command = [*compiler, "-shared", "-fPIC", f"-Wl,-soname,{SONAME}", "-o", made, made.with_suffix(".c")]
    subprocess.run(command, check=True)
    return made


@pytest.fixture
def versions(tmp_path):
    """Files of 0.8.0 and of 0.10.0."""
    return [library(tmp_path / v / SONAME, SOURCE % v.replace(".", ", ")) for v in ("0.8.0", "0.10.0")]


#: What a process of its own says: the version, or why not; the file that it is given is loaded first.
ASK = """
import ctypes, sys
first = sys.argv[1:] and ctypes.CDLL(sys.argv[1])
from artifact.measure import device
try:
    print(device._library_version("cusparseLt"))
except ValueError as error:
    print(error)
"""


def ask(nvmath: Path, chosen: object, found: Path, *first: Path) -> str:
    """What it says with a file chosen and another where the loader looks."""
    where = {"PYTHONPATH": f"{nvmath}{os.pathsep}{paths.ROOT}", "LD_LIBRARY_PATH": str(found.parent)}
    env = os.environ | where | {device.CUSPARSELT: str(chosen)}
    command = [sys.executable, "-c", ASK, *map(str, first)]
    return subprocess.run(command, env=env, capture_output=True, text=True, check=True, timeout=120).stdout.strip()


@makes
def test_the_chosen_file_answers_and_not_the_one_that_is_found(nvmath, versions):
    old, new = versions
    assert ask(nvmath, "", old) == "0.8.0" and ask(nvmath, new, old) == "0.10.0"
    said = ask(nvmath, new, new, old)
    assert said.startswith(f"{device.CUSPARSELT} names cuSPARSELt 0.10.0, but version 0.8.0 was loaded")
    assert said.endswith("start Python with LD_PRELOAD set to the same file")


@makes
@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("", "must name a file .*none.so"),
        ("int nothing(void) { return 0; }", "and does not: .*cusparseLtGetProperty"),
        ("int cusparseLtGetProperty(int part, int* value) { return 7; }", "its status is 7, not 0"),
    ],
)
def test_a_file_that_is_no_such_library_is_refused_and_not_passed_over(monkeypatch, tmp_path, source, says):
    made = library(tmp_path / "other" / SONAME, source) if source else tmp_path / "none.so"
    monkeypatch.setenv(device.CUSPARSELT, str(made))
    for call in (device.cusparselt, partial(device._library_version, "cusparseLt")):
        refused(f"{device.CUSPARSELT} .*{says}", call)
