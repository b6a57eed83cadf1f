"""What all tests share: how they run side by side, and what becomes of those that need a GPU where there is none
(they skip), or a driver that does not work (they fail)."""

import fcntl
import functools
import importlib
import os
import pkgutil
import secrets
import sys
import tempfile
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from turns import locked, turn, workers

import kernels
from artifact.measure import device as gpu
from kernels import jit, workspace

#: Held for as long as a test runs: by all but those marked `alone` together, by one of these for itself.
TURN = Path(tempfile.gettempdir()) / f"sparsity-on-trial-tests-{os.getuid()}"
#: Bytes of a GPU that a process may keep for its next test.
FREE = 2**30
#: One process of several; with one alone there is nobody to wait for.
SEVERAL = "PYTEST_XDIST_WORKER" in os.environ

# Products on the host are small; threads of every process for each of them would wait for each other.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# JAX would take three quarters of a GPU's memory for the one process that hands over an array of it.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
# All processes draw the same operands: they inherit the seed that the first one draws, unless the user has set it.
os.environ.setdefault("SPARSITY_TEST_SEED", str(secrets.randbits(31)))


@pytest.fixture(autouse=True)
def _nothing_is_loaded():
    """What one test loads, or a fake in its place, is no other's."""
    jit._loaded.clear()
    jit.ready.cache_clear()
    workspace.config.cache_clear()
    if "cupy" in sys.modules and (pool := sys.modules["cupy"].get_default_memory_pool()).free_bytes() > FREE:
        pool.free_all_blocks()


@functools.cache
def looked_for() -> gpu.DeviceInfo | gpu.NoGpu | None:
    """The GPU, what is the matter with its driver, or None where there is none."""
    try:
        return gpu.find()
    except gpu.NoGpu as error:
        return error


def found() -> gpu.DeviceInfo | None:
    return None if broken_driver() else looked_for()


def broken_driver() -> str:
    """What is the matter with the driver; empty where it works, or where there is none."""
    return str(looked_for()) if isinstance(looked_for(), gpu.NoGpu) else ""


def pytest_xdist_auto_num_workers() -> int:
    info = found()
    return workers(len(os.sched_getaffinity(0)), info and info.memory_bytes)


def alone(item: pytest.Item) -> bool:
    """Whether a test wants the GPU for itself."""
    return bool(item.get_closest_marker("alone") and item.get_closest_marker("gpu"))


def pytest_itemcollected(item: pytest.Item) -> None:
    """The tuner's tests are races, so they are `alone` without being told. One process has all that are."""
    if item.path.stem == "test_tune_gpu" or item.path.stem.endswith("_family"):
        item.add_marker(pytest.mark.alone)
    if alone(item):
        item.add_marker(pytest.mark.xdist_group("alone"))


@pytest.hookimpl(trylast=True)  # what -m and -k leave out shall not look for a GPU
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if found() is not None:
        items.sort(key=alone)  # last: while one of these runs, all other processes wait
    elif not broken_driver():  # with such a one they run, and `pytest_runtest_setup` says what is the matter
        for item in items:
            if item.get_closest_marker("gpu"):
                item.add_marker(pytest.mark.skip(reason="no NVIDIA GPU with a driver here"))


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("gpu") and (broken := broken_driver()):
        pytest.fail(broken, pytrace=False)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item):
    """Where there is a GPU, every test waits for its turn: a busy host spoils timings as well."""
    if not SEVERAL or found() is None:
        return (yield)
    TURN.mkdir(exist_ok=True)
    with turn(alone(item), TURN):
        return (yield)


@pytest.fixture(scope="session", autouse=SEVERAL)
def each_kernel_once() -> Iterator[None]:
    """A process that wants a kernel which another one is compiling waits, and finds it in the cache."""
    TURN.mkdir(exist_ok=True)
    compile_cubin = jit.compile_cubin

    def once(source: Path, entry: str, arch: str, **more) -> jit.Cubin:
        name = zlib.crc32("\0".join((Path(source).name, entry, arch)).encode())
        with locked(TURN / f"kernel-{name % 4096}", fcntl.LOCK_EX):
            return compile_cubin(source, entry, arch, **more)

    jit.compile_cubin = once
    yield
    jit.compile_cubin = compile_cubin


@pytest.fixture(scope="session")
def device():
    """The GPU as a `cuda.core.Device`, current in this thread, with the kernels of all systems compiled for it."""
    opened = gpu.require().open()
    arch, jobs = jit.arch_of(opened), set()
    for module in pkgutil.iter_modules(kernels.__path__, "kernels."):
        for kernel in getattr(importlib.import_module(module.name), "VARIANTS", {}).values():
            if arch in kernel.targets or kernel.targets == jit.TARGETS:
                jobs |= {(kernel.source, entry, arch) for entry in kernel.entries}
    with ThreadPoolExecutor(os.cpu_count()) as pool:  # one after the other they take minutes
        list(pool.map(lambda job: jit.compile_cubin(*job), sorted(jobs)))
    return opened


@pytest.fixture(scope="session")
def hopper(device):
    """The same where it has the copy engine, clusters and wgmma."""
    if jit.arch_of(device) != "sm_90a":
        pytest.skip("this GPU has no copy engine, no clusters and no wgmma")
    return device
