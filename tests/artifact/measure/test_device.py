import importlib.metadata
import io
import math
import platform
import re
import sys
from types import SimpleNamespace

import pytest

from artifact import paths
from artifact.measure import device, records


@pytest.fixture
def no_gpu(monkeypatch):
    monkeypatch.setattr(device, "find", lambda ordinal=0: None)


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


def test_find_says_none_where_the_runtime_reports_an_error(monkeypatch):
    runtime = pytest.importorskip("cuda.bindings.runtime")
    for error in (
        runtime.cudaError_t.cudaErrorInsufficientDriver,
        runtime.cudaError_t.cudaErrorNoDevice,
    ):
        monkeypatch.setattr(runtime, "cudaGetDeviceCount", lambda error=error: (error, None))
        assert device.find() is None


def test_find_says_none_where_the_driver_is_broken(monkeypatch):
    runtime = pytest.importorskip("cuda.bindings.runtime")

    def broken():
        raise OSError("libcuda.so.1: cannot open shared object file")

    monkeypatch.setattr(runtime, "cudaGetDeviceCount", broken)
    assert device.find() is None


def test_find_says_none_beyond_the_last_gpu(monkeypatch):
    runtime = pytest.importorskip("cuda.bindings.runtime")
    monkeypatch.setattr(runtime, "cudaGetDeviceCount", lambda: (runtime.cudaError_t.cudaSuccess, 1))
    assert device.find(1) is None


def test_require_says_in_one_sentence_what_to_do(no_gpu):
    with pytest.raises(device.NoGpu) as caught:
        device.require()
    message = str(caught.value)
    assert message.startswith("mode=measure needs an NVIDIA GPU") and "mode=recorded" in message
    assert "\n" not in message


def test_require_names_the_missing_package(monkeypatch):
    info = device.DeviceInfo(0, "NVIDIA H200", "nvidia-h200", (9, 0), 132, 60 * 2**20, 2**37)
    monkeypatch.setattr(device, "find", lambda ordinal=0: info)
    monkeypatch.setattr(device, "GPU_MODULES", {"no_such_module_here": "no-such-wheel"})
    with pytest.raises(device.NoGpu, match="no-such-wheel.*gpu"):
        device.require()


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
        "SwPowerCap": "software power cap",
        "HwThermalSlowdown": "hardware thermal slowdown",
        "HwPowerBrakeSlowdown": "power brake",
        "DisplayClockSetting": "display clock setting",
    }
    for name, word in names.items():
        assert device.throttle_words(getattr(nvml, f"nvmlClocksEventReason{name}")) == word


def test_a_sample_without_nvml_is_empty_and_raises_nothing(monkeypatch):
    monkeypatch.setattr(device, "_nvml_handle", lambda bus: None)
    seen = device.sample()
    assert math.isnan(seen.sm_mhz) and math.isnan(seen.power_w) and seen.throttle == ""


def test_package_versions_are_plain_versions():
    versions = device.package_versions()
    assert versions["numpy"] == importlib.metadata.version("numpy")
    assert all(re.fullmatch(r"[\w.+!-]+", version) for version in versions.values())


def test_the_operating_system_names_no_machine():
    # Distribution, kernel number without its suffix, architecture: nothing a host could be told by.
    assert re.fullmatch(r"[^/]*, \w+ (\d+(\.\d+)*|unknown), \w+", device._os().replace("GNU/", ""))


def test_commit_can_be_given_where_there_is_no_git(monkeypatch):
    monkeypatch.setenv("SPARSITY_COMMIT", "abc1234")
    assert device.commit() == "abc1234"


def test_commit_is_unknown_outside_a_repository(monkeypatch, tmp_path):
    monkeypatch.delenv("SPARSITY_COMMIT", raising=False)
    monkeypatch.setattr(paths, "ROOT", tmp_path)
    assert device.commit() == "unknown"


def make_tree(root):
    for name in (
        "kernels/jit.py",
        "kernels/room/a.cu",
        "kernels/room/launch.py",
        "kernels/room/README.md",
        "kernels/other/b.cu",
        "kernels/common/vec.cuh",
        "kernels/formats/csr.py",
        "artifact/bench.py",
        "artifact/check.py",
        "artifact/figures.py",
        "artifact/baselines/cusparse.py",
        "artifact/baselines/cublas.py",
        "artifact/baselines/cublas_loop.c",
        "artifact/baselines/cublaslt.py",
        "artifact/baselines/shared.py",
        "artifact/baselines/kernel.py",
        "kernels/elsewhere/c.cu",
    ):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(f"# {name}\n")
    # A baseline that is made of others, in a circle, and of another room's kernels.
    for name, text in (
        ("cublas", "from artifact.baselines import shared\nfrom kernels.formats import csr"),
        ("shared", "from artifact.baselines.cublas import bind\nimport artifact.baselines.kernel"),
        ("kernel", "def bind():\n    from kernels import elsewhere, jit"),
    ):
        (root / "artifact" / "baselines" / f"{name}.py").write_text(f"{text}\n")


@pytest.mark.parametrize(
    ("changed", "matters"),
    [
        ("kernels/jit.py", True),
        ("kernels/room/a.cu", True),
        ("kernels/common/vec.cuh", True),
        ("artifact/bench.py", True),
        ("artifact/baselines/cublas.py", True),
        ("artifact/baselines/cublas_loop.c", True),
        ("artifact/baselines/shared.py", True),
        ("artifact/baselines/kernel.py", True),
        ("kernels/elsewhere/c.cu", True),
        ("artifact/baselines/cublaslt.py", False),
        ("artifact/baselines/cusparse.py", False),
        ("kernels/room/README.md", False),
        ("kernels/other/b.cu", False),
        ("artifact/figures.py", False),
    ],
)
def test_sources_change_with_what_changes_a_number(monkeypatch, tmp_path, changed, matters):
    monkeypatch.setattr(paths, "ROOT", tmp_path)
    monkeypatch.setitem(sys.modules, "kernels.room", SimpleNamespace(BASELINES=("cublas",)))
    make_tree(tmp_path)
    before = device.sources("room")
    with (tmp_path / changed).open("a") as file:
        file.write("# something else\n")
    assert (device.sources("room") != before) == matters


def test_a_room_that_names_no_baselines_has_none(monkeypatch, tmp_path):
    monkeypatch.setattr(paths, "ROOT", tmp_path)
    monkeypatch.setitem(sys.modules, "kernels.room", SimpleNamespace())
    make_tree(tmp_path)
    before = device.sources("room")
    for file in (tmp_path / "artifact" / "baselines").iterdir():
        file.write_text("something else")
    assert device.sources("room") == before


def test_the_rooms_name_baselines_that_exist():
    from artifact import baselines
    from kernels import casper_sparse, nm_cuda_core

    for room in (casper_sparse, nm_cuda_core):
        assert list(baselines.contenders(room.BASELINES, None))
        assert device.sources(room.__name__.rpartition(".")[2])


def test_the_cpu_has_a_name_on_one_line(monkeypatch):
    assert re.fullmatch(r"\S.*\S", device._cpu())
    # Where /proc does not say it, as on some other architectures, the architecture is left.
    monkeypatch.setattr(
        "builtins.open", lambda *a, **k: io.StringIO("processor : 0\nmodel name\t: \n")
    )
    assert device._cpu() == platform.machine()
    text = "processor : 0\nmodel name\t: AMD EPYC 9654 96-Core Processor  \nmodel name\t: other\n"
    monkeypatch.setattr("builtins.open", lambda *a, **k: io.StringIO(text))
    assert device._cpu() == "AMD EPYC 9654 96-Core Processor"


def test_a_library_that_is_not_installed_has_no_version():
    assert device._library_version("no_such_library") is None


def test_records_of_machines_that_did_not_say_their_cpu_stay_readable(tmp_path):
    old = dict.fromkeys(("gpu", "slug", "commit", "driver", "cuda", "cusparse", "python"), "x")
    old |= {"date": "2026-11-21T10:00:00+00:00", "packages": {"numpy": "2.4.6"}}
    records.write_machine(tmp_path, old)
    assert records.read_machine(tmp_path) == old


@pytest.fixture
def gpu():
    return device.require()


@pytest.mark.gpu
def test_the_gpu_is_found_and_described(gpu):
    info = gpu
    opened = info.open()
    machine = device.describe(opened)
    assert machine["gpu"] == info.gpu and machine["slug"] == info.slug
    assert machine["sm_count"] == info.sm_count > 0 and machine["l2_bytes"] == info.l2_bytes > 0
    assert machine["memory_bytes"] == info.memory_bytes > 2**30
    assert re.fullmatch(r"\d+\.\d+", machine["cuda"])
    for library in ("cublas", "cusparse", "cusparselt"):
        assert re.fullmatch(r"\d+\.\d+\.\d+", machine[library])
    assert machine["cpu"] and machine["cpu_cores"] >= 1
    text = str(machine)
    assert "/" not in text.replace("GNU/Linux", ""), "a machine's paths are nobody's business"
    assert not re.search(rf"\b{re.escape(platform.node())}\b", text)


@pytest.mark.gpu
def test_a_sample_of_the_gpu_has_a_clock(gpu):
    seen = device.sample(gpu.open())
    assert seen.sm_mhz > 100 and seen.power_w > 1 and seen.throttle
