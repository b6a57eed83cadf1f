"""The GPU: whether there is one, what it is, and how it runs right now."""

import ast
import ctypes
import functools
import hashlib
import importlib.metadata
import importlib.util
import math
import os
import platform
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from artifact import paths
from kernels import contract
from kernels.gpu import NoGpu, open_device, succeeded
from kernels.lazy import driver

#: Distributions whose versions can change a number in the records.
PACKAGES = (
    "cuda-bindings",
    "cuda-core",
    "cupy-cuda13x",
    "ncu-report",
    "numpy",
    "nvidia-cublas",
    "nvidia-cuda-nvrtc",
    "nvidia-cusparse",
    "nvidia-cusparselt-cu13",
    "nvidia-ml-py",
    "nvmath-python",
    "pandas",
    "scipy",
    "torch",
    "triton",
)
#: Modules that measuring needs beside the base environment (the `gpu` extra): module ->
#: distribution.
GPU_MODULES = {
    "cupy": "cupy-cuda13x",
    "ml_dtypes": "ml-dtypes",
    "nvmath": "nvmath-python",
    "pynvml": "nvidia-ml-py",
}

#: Environment variable: the file of cuSPARSELt to measure, where it is not the one that nvmath finds.
CUSPARSELT = "SPARSITY_CUSPARSELT"

#: NVML's bits of "clocks event reasons", in words. An idle GPU clocks down as well: no throttling.
THROTTLE_REASONS = {
    0x001: "idle",
    0x002: "clock setting",
    0x004: "software power cap",
    0x008: "hardware slowdown",
    0x010: "sync boost",
    0x020: "software thermal slowdown",
    0x040: "hardware thermal slowdown",
    0x080: "power brake",
    0x100: "display clock setting",
}
NOT_THROTTLED = "none"

#: What is asked of NVML: of pynvml and a GPU's handle, and what stands where it does not say.
Questions = Mapping[str, tuple[Callable[[Any, Any], Any], Any]]
SAMPLED: Questions = {
    "sm_mhz": (lambda nvml, gpu: float(nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_SM)), math.nan),
    "power_w": (lambda nvml, gpu: nvml.nvmlDeviceGetPowerUsage(gpu) / 1e3, math.nan),
    "throttle": (lambda nvml, gpu: throttle_words(nvml.nvmlDeviceGetCurrentClocksEventReasons(gpu)), ""),
}
DESCRIBED: Questions = {
    "driver": (lambda nvml, gpu: nvml.nvmlSystemGetDriverVersion(), "unknown"),
    "sm_mhz_max": (lambda nvml, gpu: nvml.nvmlDeviceGetMaxClockInfo(gpu, nvml.NVML_CLOCK_SM), None),
    "memory_mhz_max": (lambda nvml, gpu: nvml.nvmlDeviceGetMaxClockInfo(gpu, nvml.NVML_CLOCK_MEM), None),
    "power_limit_w": (lambda nvml, gpu: nvml.nvmlDeviceGetEnforcedPowerLimit(gpu) / 1e3, None),
}

#: The driver's library on Linux, and its status where it works and finds no GPU.
DRIVER, CUDA_ERROR_NO_DEVICE = "libcuda.so.1", 100


@dataclass(frozen=True)
class DeviceInfo:
    """What the harness steers by; `open()` gives the `cuda.core.Device`."""

    gpu: str  #: e.g. "NVIDIA H200"
    slug: str  #: e.g. "nvidia-h200", the folder of its records
    memory_bytes: int

    def open(self) -> Any:
        """Return the `cuda.core.Device`, made current in this thread (CuPy then shares its context)."""
        return open_device()


class Sample(NamedTuple):
    """One look at the running GPU. What NVML does not say is NaN, or empty for `throttle`."""

    sm_mhz: float
    power_w: float
    throttle: str  #: `NOT_THROTTLED`, or reasons joined by " + "


def find() -> DeviceInfo | None:
    """CUDA's first GPU, or None where there is no driver, or one that has no GPU.

    Raises NoGpu, one sentence, where a driver is installed and does not work: its machine may well
    have a GPU, so that must not pass for a machine without.
    """
    # Without cuda-python first, so that what fails is the driver's and nothing else's.
    try:
        library = ctypes.CDLL(DRIVER)
    except OSError as failed:
        # Of a library that it needs in turn, or of a file that is no library, it says other things.
        if str(failed).startswith(f"{DRIVER}: cannot open shared object file: No such file"):
            return None
        raise _broken(first_line(failed)) from failed
    status, name = library.cuInit(0), ctypes.c_char_p()
    if status == CUDA_ERROR_NO_DEVICE:
        return None
    if status:
        library.cuGetErrorName(status, ctypes.byref(name))
        called = f", {name.value.decode()}" if name.value else ""
        raise _broken(f"cuInit fails with error {status}{called}")
    try:
        from cuda.bindings import runtime

        error, count = runtime.cudaGetDeviceCount()
    except Exception as failed:  # whatever a broken installation throws
        raise _broken(first_line(failed)) from failed
    known = {runtime.cudaError_t.cudaSuccess: count, runtime.cudaError_t.cudaErrorNoDevice: 0}
    if error not in known:
        raise _broken(f"the CUDA runtime here says {error.name}")
    if not known[error]:
        return None
    # From here on there is a GPU, and what fails is an error that somebody should see.
    from cuda.core import Device

    return DeviceInfo(Device(0).name, slug(Device(0).name), _total_memory())


def _broken(why: str) -> NoGpu:
    return NoGpu(
        f"the NVIDIA driver that is installed here does not work ({why}): repair or update it; "
        "records are drawn without one (MODE=recorded)"
    )


def require() -> DeviceInfo:
    """Return the GPU, ready to be measured.

    Raises NoGpu, one sentence, where there is none, its driver does not work, or a package that
    measuring needs is missing.
    """
    if (info := find()) is None:
        raise NoGpu(
            "measuring needs an NVIDIA GPU and its driver, and none was found here: run it where there is "
            "one; records are drawn without (MODE=recorded)"
        )
    if missing := [name for module, name in GPU_MODULES.items() if not importlib.util.find_spec(module)]:
        raise NoGpu(
            f"the {info.gpu} cannot be measured without {', '.join(missing)}: install the `gpu` "
            "extra (make does where it finds a GPU)"
        )
    return info


def require_memory(info: DeviceInfo, m: int, n: int, k: int) -> None:
    """Raise ValueError, one sentence, for a product that cannot fit the GPU; before anything is drawn.

    What fits may still need more: counted are C in 16 bits and its reference in float64, and of A
    (m, k) and B (k, n) the smaller one in 16 bits, since the other one may be sparse.
    """
    least = 2 * min(m * k, k * n) + (2 + 8) * m * n
    contract.require(
        least <= info.memory_bytes,
        f"m={m}, n={n}, k={k} needs {least / 1e9:,.0f} GB at least, but the {info.gpu} has "
        f"{info.memory_bytes / 1e9:,.0f} GB: choose smaller sizes",
    )


def slug(name: str) -> str:
    """Return a GPU's name as a folder: "NVIDIA H200" -> "nvidia-h200"."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def sample(device) -> Sample:
    """SM clock (MHz), board power (W) and throttle reasons right now, through NVML.

    device: `cuda.core.Device`. Never raises: a container may hide NVML.
    """
    return Sample(**_answers(device, SAMPLED))


def throttle_words(bits: int) -> str:
    """NVML's reason bits in words, joined by " + "; `NOT_THROTTLED` where no bit is set."""
    known = THROTTLE_REASONS | {bits & ~sum(THROTTLE_REASONS): f"reason {bits & ~sum(THROTTLE_REASONS):#x}"}
    return " + ".join(word for bit, word in known.items() if bits & bit) or NOT_THROTTLED


def first_line(error: object) -> str:
    """Return what an error says, as part of a sentence: CUDA's own messages run over several lines."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)


def describe(device) -> dict[str, Any]:
    """Everything about this machine that a number may depend on: the content of machine.json.

    device: `cuda.core.Device`, current. No path, host name, serial number or UUID is in it.
    """
    p, version = device.properties, _ask(lambda: succeeded(driver.cuDriverGetVersion(), "{}"), None)
    system, number = platform.system(), re.match(r"[\d.]*\d|", platform.release())
    return {
        "gpu": device.name,
        "slug": slug(device.name),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit(),
        "compute_capability": "{}.{}".format(*device.compute_capability),
        "sm_count": p.multiprocessor_count,
        "l2_bytes": p.l2_cache_size,
        "memory_bytes": _total_memory(),
        "memory_bus_bits": p.global_memory_bus_width,
        "shared_bytes_per_sm": p.max_shared_memory_per_multiprocessor,
        "registers_per_sm": p.max_registers_per_multiprocessor,
        "ecc": bool(p.ecc_enabled),
        **_answers(device, DESCRIBED),
        "cuda": f"{version // 1000}.{version % 1000 // 10}" if version else "unknown",
        "cublas": _library_version("cublas"),
        "cusparse": _library_version("cusparse"),
        "cusparselt": _library_version("cusparseLt"),
        "cpu": _cpu(),
        "cpu_cores": len(os.sched_getaffinity(0)),  # that this process may use
        "python": platform.python_version(),
        # Distribution and kernel, numbers only: a suffix may name the machine it was built for.
        "os": f"{_ask(lambda: platform.freedesktop_os_release()['PRETTY_NAME'], system)}, {system} "
        f"{number.group() if number else ''}, {platform.machine()}",
        "packages": {
            name: found
            for name in PACKAGES
            if (found := _ask(functools.partial(importlib.metadata.version, name), None))
        },
    }


def git(*arguments: str, root: Path | None = None) -> str:
    """Return what git says of the checkout, or of another.

    Raises OSError where there is no git, RuntimeError with its reason where it fails.
    """
    command = ("git", "-C", str(root or paths.ROOT), *arguments)
    done = subprocess.run(command, capture_output=True, encoding="utf-8", errors="replace")
    contract.require(done.returncode == 0, done.stderr.strip(), RuntimeError)
    return done.stdout.strip()


def commit() -> str:
    """Short hash of the checkout, with "+" where files differ from it.

    $SPARSITY_COMMIT stands in where a copy without Git is measured; else "unknown", which is said, with Git's reason,
    where there is a repository: a clone of another user's, say.
    """
    if os.environ.get("SPARSITY_COMMIT"):
        return os.environ["SPARSITY_COMMIT"]
    try:
        # An archive unpacked inside somebody else's repository must not get that one's commit.
        if os.path.realpath(git("rev-parse", "--show-toplevel")) != os.path.realpath(paths.ROOT):
            return "unknown"
        changed = git("status", "--porcelain", "--untracked-files=no")
        return git("rev-parse", "--short", "HEAD") + "+" * bool(changed)
    except (OSError, RuntimeError) as error:
        if (paths.ROOT / ".git").exists():
            why = f"The commit is recorded as unknown: {first_line(error)} (or name it in SPARSITY_COMMIT)"
            print(why, file=sys.stderr)
        return "unknown"


def sources(system: str) -> str:
    """Digest of what a system's numbers come from.

    Its kernels, what systems share, the choices that tuning made and the system ships, its BASELINES, timer, check.

    Of a baseline that is made of other baselines, or of another system's kernels, those too. Records of
    one digest belong together, whether it was committed or not, and whatever else a commit changed.
    """
    from artifact import registry

    kernels, artifact = paths.ROOT / "kernels", paths.ROOT / "artifact"
    modules = {name: module.replace(".", "/") for name, module in registry.modules().items()}
    shared = {f.name for f in kernels.iterdir() if f.is_dir() and not (f / "launch.py").exists()}
    asked = getattr(importlib.import_module(f"kernels.{system}"), "BASELINES", ())
    systems, baselines = {system} | shared, list(dict.fromkeys(name.partition(".")[0] for name in asked))
    for baseline in baselines:  # which grows meanwhile
        nodes = ast.walk(ast.parse((paths.ROOT / f"{modules[baseline]}.py").read_text(encoding="utf-8")))
        taken = (node for node in nodes if isinstance(node, ast.Import | ast.ImportFrom))
        for name in {f"{getattr(x, 'module', '')}.{alias.name}".lstrip(".") for x in taken for alias in x.names}:
            match name.split("."):
                case ["artifact", "baselines", other, *_] if other in {*modules} - {*baselines}:
                    baselines.append(other)
                case ["kernels", package, *_] if (kernels / package).is_dir():
                    systems.add(package)
    files = [
        *kernels.glob("*.py"),
        *(f for name in systems for f in (kernels / name).rglob("*")),
        artifact / "measure" / "bench.py",
        artifact / "measure" / "verification.py",
        *(paths.ROOT / f"{modules[name]}.py" for name in baselines),
        *(artifact / "baselines").glob("_library.py"),
        *(f for name in baselines for f in (artifact / "baselines").glob(f"{name}_*.c")),
    ]
    digest = hashlib.sha256()
    for file in sorted(f for f in files if f.suffix in (".py", ".c", ".cu", ".cuh") or f.match("choices/*.csv")):
        digest.update(f"{file.relative_to(paths.ROOT).as_posix()}\0".encode() + file.read_bytes())
    return digest.hexdigest()[:12]


def _total_memory() -> int:
    """Bytes of device memory. Asked without a context, so that looking for a GPU makes none."""
    found = driver.cuDeviceTotalMem(driver.CUdevice(0))
    return int(succeeded(found, "the driver does not say how much memory the GPU has ({})"))


@functools.cache
def _nvml(pci_bus_id: str) -> tuple[Any, Any]:
    """pynvml and its handle of the GPU, by bus id: CUDA and NVML number GPUs differently."""
    import pynvml

    pynvml.nvmlInit()
    return pynvml, pynvml.nvmlDeviceGetHandleByPciBusId(pci_bus_id)


def _answers(device, questions: Questions) -> dict[str, Any]:
    nvml, gpu = _ask(lambda: _nvml(device.pci_bus_id), (None, None))
    return {name: _ask(lambda ask=ask: ask(nvml, gpu), otherwise) for name, (ask, otherwise) in questions.items()}


def _ask(question, otherwise):
    """One question; a GPU, a container or an installation may refuse any of them."""
    try:
        return question()
    except Exception:
        return otherwise


def _library_version(name: str) -> str | None:
    """Version of a library itself, e.g. "12.6.3", by its module in nvmath.bindings; None without it.

    The package's version may differ. cuBLASLt is a part of cuBLAS. One packed number would be ambiguous. Of cuSPARSELt
    that of the file that was chosen; ValueError where it is not the one that answers.
    """
    if name == "cusparseLt" and os.environ.get(CUSPARSELT):
        return _property_version(cusparselt().get_property)
    return _ask(lambda: _property_version(importlib.import_module(f"nvmath.bindings.{name}").get_property), None)


def cusparselt():
    """Return the module nvmath.bindings.cusparseLt.

    It is loaded over the file that $SPARSITY_CUSPARSELT names, else over what nvmath finds.

    Every version of the library has one soname, and nvmath calls whichever file with that name the process
    loaded first (cuda.pathfinder.load_nvidia_dynamic_lib, "Search order"). So the chosen file is loaded before
    nvmath's first call, and a process has one version: two are measured by two runs into two folders. Raises
    ValueError, one sentence, where the file cannot be loaded or another one was there before, and ImportError
    without nvmath.
    """
    path = os.environ.get(CUSPARSELT)
    wanted = _file_version(path) if path else None
    from nvmath.bindings import cusparseLt

    answers = _property_version(cusparseLt.get_property) if path else None
    contract.require(
        answers == wanted,
        f"{CUSPARSELT} names cuSPARSELt {wanted}, but version {answers} was loaded before it: start Python "
        "with LD_PRELOAD set to the same file",
    )
    return cusparseLt


def _file_version(path: str) -> str:
    """Load a file for good, and ask it for its version."""
    try:
        ask = ctypes.CDLL(path).cusparseLtGetProperty
    except (OSError, AttributeError) as error:
        raise ValueError(
            f"{CUSPARSELT} must name a file libcusparseLt.so that loads, and does not: {first_line(error)}"
        ) from error

    def one(part: int) -> int:
        value = ctypes.c_int(-1)
        status = ask(part, ctypes.byref(value))
        contract.require(
            status == 0, f"the file that {CUSPARSELT} names does not tell its version: its status is {status}, not 0"
        )
        return value.value

    return _property_version(one)


def _property_version(get_property) -> str:
    """Return a library's version from its libraryPropertyType 0, 1, 2: major, minor, patch."""
    return ".".join(str(get_property(part)) for part in range(3))


def _cpu() -> str:
    """Model of the host's CPU, e.g. "AMD EPYC 9654 96-Core Processor"; else its architecture."""
    text = _ask(lambda: Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace"), "")
    return next(iter(re.findall(r"^model name[ \t]*:[ \t]*(\S.*?)\s*$", text, re.MULTILINE)), platform.machine())
