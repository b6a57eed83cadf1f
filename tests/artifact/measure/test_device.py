import math
import platform
import re
import sys
from types import SimpleNamespace

import pytest

from artifact import paths, registry
from artifact.measure import device, run


@pytest.fixture
def no_gpu(monkeypatch):
    monkeypatch.setattr(device, "find", lambda: None)


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


class Driver:
    """Stands for the driver's library: what cuInit returns, and the name of that."""

    def __init__(self, status=0, name=b""):
        self.status, self.name = status, name

    def cuInit(self, flags):
        assert flags == 0
        return self.status

    def cuGetErrorName(self, status, address):
        address._obj.value = self.name
        return 0 if self.name else 1


@pytest.fixture
def driver(monkeypatch):
    """A function that puts a driver in place, with what the CUDA runtime then says."""
    runtime = pytest.importorskip("cuda.bindings.runtime")

    def put(status=0, name=b"", error="cudaSuccess", count=1):
        answer = getattr(runtime.cudaError_t, error), count
        monkeypatch.setattr(device.ctypes, "CDLL", lambda path: Driver(status, name))
        monkeypatch.setattr(runtime, "cudaGetDeviceCount", lambda: answer)

    return put


def test_find_says_none_where_there_is_no_driver_and_where_it_has_no_such_gpu(monkeypatch, driver):
    driver(device.CUDA_ERROR_NO_DEVICE, b"CUDA_ERROR_NO_DEVICE")
    assert device.find() is None
    driver(error="cudaErrorNoDevice", count=0)
    assert device.find() is None

    def missing(path):
        raise OSError(f"{path}: cannot open shared object file: No such file or directory")

    monkeypatch.setattr(device.ctypes, "CDLL", missing)
    assert device.find() is None


@pytest.mark.parametrize(
    ("put", "why"),
    [
        (
            {"status": 803, "name": b"CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"},
            "cuInit fails with error 803, CUDA_ERROR_SYSTEM_DRIVER_MISMATCH",
        ),
        ({"status": 4711}, "cuInit fails with error 4711"),
        (
            {"error": "cudaErrorInsufficientDriver", "count": None},
            "the CUDA runtime here says cudaErrorInsufficientDriver",
        ),
    ],
)
def test_a_driver_that_does_not_work_is_said_and_not_taken_for_no_gpu(driver, put, why):
    driver(**put)
    for ask in (device.find, device.require, lambda: run.start("casper_sparse", mode="auto")):
        with pytest.raises(device.NoGpu) as caught:
            ask()
        assert str(caught.value) == (
            f"the NVIDIA driver that is installed here does not work ({why}): repair or update it; "
            "records are drawn without one (MODE=recorded)"
        )
    assert run.start("casper_sparse", mode="recorded").mode == "recorded"


@pytest.mark.parametrize(
    "says",
    [
        "/usr/lib/libcuda.so.1: file too short",
        "libnvidia-ptxjitcompiler.so.1: cannot open shared object file: No such file or directory",
        "libcuda.so.1: cannot open shared object file: Permission denied",
    ],
)
def test_a_driver_that_does_not_load_is_said(monkeypatch, says):
    def broken(path):
        raise OSError(says)

    monkeypatch.setattr(device.ctypes, "CDLL", broken)
    with pytest.raises(device.NoGpu, match="driver that is installed here does not work") as caught:
        device.find()
    assert says in str(caught.value)


def test_a_runtime_that_raises_is_said(monkeypatch, driver):
    from cuda.bindings import runtime

    driver()

    def broken():
        raise RuntimeError("Failed to dlopen\nand a second line")

    monkeypatch.setattr(runtime, "cudaGetDeviceCount", broken)
    with pytest.raises(device.NoGpu, match=r"does not work \(Failed to dlopen\)"):
        device.find()


def test_a_problem_that_cannot_fit_is_refused_before_anything_is_drawn():
    info = device.DeviceInfo("NVIDIA H200", "nvidia-h200", 150 * 10**9)
    most = 2**31 - 1
    with pytest.raises(ValueError) as caught:
        device.require_memory(info, most, most, most)
    assert str(caught.value) == (
        f"m={most}, n={most}, k={most} needs 55,340,232,170 GB at least, but the NVIDIA H200 has "
        "150 GB: choose smaller sizes"
    )
    for sizes in ((16384, 16384, 16384), (2**20, 256, 2048), (120_000, 120_000, 1), (1, 1, most)):
        device.require_memory(info, *sizes)
    for sizes in ((130_000, 130_000, 1), (10**6, 100, 2**31), (100, 10**6, 2**31)):
        with pytest.raises(ValueError, match="GB at least"):
            device.require_memory(info, *sizes)


def test_require_says_in_one_sentence_what_to_do(no_gpu):
    with pytest.raises(device.NoGpu) as caught:
        device.require()
    message = str(caught.value)
    assert message.startswith("measuring needs an NVIDIA GPU") and "MODE=recorded" in message
    assert "\n" not in message


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
    monkeypatch.setattr(device, "_nvml", lambda bus: (None, None))
    seen = device.sample(SimpleNamespace(pci_bus_id="0"))
    assert math.isnan(seen.sm_mhz) and math.isnan(seen.power_w) and seen.throttle == ""


def test_commit_is_unknown_outside_a_repository(monkeypatch, tmp_path):
    monkeypatch.delenv("SPARSITY_COMMIT", raising=False)
    monkeypatch.setattr(paths, "ROOT", tmp_path)
    assert device.commit() == "unknown"


def test_a_repository_that_git_refuses_is_said(monkeypatch, tmp_path, capsys):
    """As a clone of another user's, which git calls dubious."""
    monkeypatch.delenv("SPARSITY_COMMIT", raising=False)
    monkeypatch.setattr(paths, "ROOT", tmp_path)
    assert device.commit() == "unknown" and capsys.readouterr().err == ""
    (tmp_path / ".git").write_text("gitdir: /no/where")
    assert device.commit() == "unknown"
    said = capsys.readouterr().err
    assert "recorded as unknown: fatal: not a git repository" in said and "SPARSITY_COMMIT" in said


def make_tree(root):
    for name in (
        "kernels/jit.py",
        "kernels/room/a.cu",
        "kernels/room/launch.py",
        "kernels/room/README.md",
        "kernels/room/choices/nvidia-h200.csv",
        "kernels/room/table.csv",
        "kernels/other/b.cu",
        "kernels/other/launch.py",
        "kernels/other/choices/nvidia-h200.csv",
        "kernels/common/vec.cuh",
        "kernels/tuning/race.py",
        "kernels/formats/csr.py",
        "artifact/measure/bench.py",
        "artifact/measure/check.py",
        "artifact/drawing/plot.py",
        "artifact/baselines/cusparse.py",
        "artifact/baselines/cublas.py",
        "artifact/baselines/cublas_loop.c",
        "artifact/baselines/cublaslt.py",
        "artifact/baselines/shared.py",
        "artifact/baselines/kernel.py",
        "kernels/elsewhere/c.cu",
        "kernels/elsewhere/launch.py",
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


@pytest.fixture
def tree(monkeypatch, tmp_path):
    monkeypatch.setattr(paths, "ROOT", tmp_path)
    known = ("cublas", "cublaslt", "cusparse", "kernel", "shared")
    modules = {name: f"artifact.baselines.{name}" for name in known}
    monkeypatch.setattr(registry, "modules", lambda: modules)
    monkeypatch.setitem(sys.modules, "kernels.room", SimpleNamespace(BASELINES=("cublas",)))
    make_tree(tmp_path)
    return tmp_path


def test_sources_change_with_what_changes_a_number_and_with_nothing_else(tree):
    for changed, matters in (
        ("kernels/jit.py", True),
        ("kernels/room/a.cu", True),
        ("kernels/room/choices/nvidia-h200.csv", True),
        ("kernels/common/vec.cuh", True),
        ("kernels/tuning/race.py", True),
        ("artifact/measure/bench.py", True),
        ("artifact/measure/check.py", True),
        ("artifact/baselines/cublas.py", True),
        ("artifact/baselines/cublas_loop.c", True),
        ("artifact/baselines/shared.py", True),
        ("artifact/baselines/kernel.py", True),
        ("kernels/elsewhere/c.cu", True),
        ("artifact/baselines/cublaslt.py", False),
        ("artifact/baselines/cusparse.py", False),
        ("kernels/room/README.md", False),
        ("kernels/room/table.csv", False),
        ("kernels/other/b.cu", False),
        ("kernels/other/choices/nvidia-h200.csv", False),
        ("artifact/drawing/plot.py", False),
    ):
        before = device.sources("room")
        with (tree / changed).open("a") as file:
            file.write("# something else\n")
        assert (device.sources("room") != before) == matters, changed


def test_the_cpu_has_a_name_on_one_line(monkeypatch):
    assert re.fullmatch(r"\S.*\S", device._cpu())
    # Where /proc does not say it, as on some other architectures, the architecture is left.
    monkeypatch.setattr(device.Path, "read_text", lambda *a, **k: "processor : 0\nmodel name\t: \n")
    assert device._cpu() == platform.machine()
    text = "processor : 0\nmodel name\t: AMD EPYC 9654 96-Core Processor  \nmodel name\t: other\n"
    monkeypatch.setattr(device.Path, "read_text", lambda *a, **k: text)
    assert device._cpu() == "AMD EPYC 9654 96-Core Processor"


def test_a_library_that_is_not_installed_has_no_version():
    assert device._library_version("no_such_library") is None


@pytest.fixture
def gpu():
    return device.require()


@pytest.mark.gpu
def test_the_gpu_is_found_and_described(gpu):
    info = gpu
    opened = info.open()
    machine = device.describe(opened)
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
