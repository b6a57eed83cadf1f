"""Kernels of preparation run on the host, by g++, so that what they do is tested without a GPU, too."""

import ctypes
import functools
import hashlib
import itertools
import re
import shutil
import struct
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from pretend import Array, Cupy, Strict, as_array

from kernels import formats, gpu, jit, workspace
from kernels.async_sparse import planning
from kernels.autotune import probe
from kernels.contract import Operands
from kernels.distributed import generate
from kernels.formats import arrays, compress, intake, layout

COMPILE = ("g++", "-std=c++20", "-O1", "-w", "-shared", "-fPIC", "-x", "c++")
SHIM = Path(__file__).with_name("emulated.hpp")
#: What is run of each source.
ENTRIES = {
    arrays.CHECKS: arrays.CHECKS_ENTRIES,
    compress.SOURCE: compress.ENTRIES,
    layout.SOURCE: layout.ENTRIES,
    planning.SOURCE: tuple(
        f"{name}<0>"
        for name in (
            "similar",
            "permuted_ptr",
            "permuted",
            "firsts",
            "group_ptr",
            "grouped",
            "sliced",
            "count_tasks",
            "cut_rows",
            "task_ranks",
            "cut_places",
            "cut_tasks",
            "tasks_in_blocks",
            "tasks_in_order",
            "task_keys",
            "tasks_by_keys",
            "values",
            "rounded",
        )
    ),
    intake.SOURCE: ("look<int, int>", "look<long long, long long>", "sample<0>"),
    generate.SOURCE: generate.ENTRIES,
    probe.COMPARE: tuple(f"compare<{name}>" for name in probe.ELEMENTS.values()),
    probe.SOURCE: ("magnitudes", *(f"whole<{name}>" for name in probe.ELEMENTS.values())),
}


@pytest.fixture(params=["host", pytest.param("gpu", marks=pytest.mark.gpu)])
def there(request, monkeypatch):
    """A function: a format or an array of the host -> the same on a GPU, or on one whose kernels the host runs."""
    if request.param == "gpu":
        import cupy

        return lambda x: cupy.asarray(x) if isinstance(x, np.ndarray) else formats.to_device(x)
    return _run_here(monkeypatch)


@pytest.fixture
def by_the_host(monkeypatch):
    """A function: a format or an array of the host -> the same on a GPU whose kernels the host runs."""
    return _run_here(monkeypatch)


def _run_here(monkeypatch):
    if shutil.which("g++") is None:
        pytest.skip("no compiler for the host here")
    monkeypatch.setitem(sys.modules, "cupy", Poisoned("cupy"))
    monkeypatch.setattr(workspace, "of", lambda device: Workspace())
    monkeypatch.setattr(workspace, "enqueue", _enqueue)
    monkeypatch.setattr(jit, "run_on_cupy_stream", _run)
    monkeypatch.setattr(gpu, "set_bytes", lambda x, value, stream: ctypes.memset(x.data.ptr, value, x.nbytes))
    monkeypatch.setattr(arrays, "to_host", lambda x: arrays._moved(x, lambda y: y.get() if hasattr(y, "get") else y))
    monkeypatch.setattr(probe, "MOST_BLOCKS", 2)  # threads that do much are soon done
    monkeypatch.setattr(jit, "compile_cubin", lambda source, entry, arch: None)
    device = SimpleNamespace(device_id=0, compute_capability=(9, 0))
    stream = SimpleNamespace(sync=lambda: None, handle=0)
    monkeypatch.setattr(workspace, "on_cupys_stream", lambda: (device, stream))
    monkeypatch.setattr(intake, "_copied", _copied)
    return lambda x: _strided(x) if isinstance(x, np.ndarray) else formats.to_device(x)


@pytest.fixture
def anything_there(there, monkeypatch):
    """`there`, where all that CuPy has may be used."""
    if isinstance(sys.modules["cupy"], Poisoned):
        monkeypatch.setitem(sys.modules, "cupy", Cupy("cupy"))
    return there


@pytest.fixture
def moved(anything_there):
    """A function: a problem -> the same, whose operands on the GPU are those of the host."""

    def of(problem):
        ops = problem.host()
        there = Operands(*(x if x is None else anything_there(x) for x in (ops.a, ops.b, ops.c)))
        return replace(problem, make_device=lambda: there)

    return of


def _strided(x: np.ndarray):
    """An array of the pretended GPU in the same memory order, gaps and all."""
    return as_array(x) if x.flags.forc else x.view(Array)


class Poisoned(Strict):
    """CuPy as `pretend` has it, whose new memory holds what nobody wants."""

    @staticmethod
    def empty(shape, dtype=float):
        made = as_array(np.empty(shape, dtype))
        np.asarray(made).reshape(-1).view(np.uint8)[...] = 0xFB
        return made


class Workspace:
    """As `workspace.Workspace`, of host memory; sums are 0 between launches."""

    _launch = itertools.count(1)

    def __init__(self):
        self.lock = threading.RLock()
        self._memory = np.zeros(64, np.uint64)
        self.sums, self.found = (self._memory.ctypes.data + 256 * i for i in range(2))
        self._tiles = np.zeros(1 << 12, np.uint64)

    def tiles(self, size: int):
        return self._tiles.ctypes.data, np.uint32(next(self._launch))

    def read(self, kind: struct.Struct, at: int = 0):
        assert not self._memory[:32].any(), "sums are not 0 after a launch"
        return kind.unpack_from(self._memory[32:].view(np.uint8), at)


def _copied(address: int, size: int, count: int) -> np.ndarray:
    return np.frombuffer(ctypes.string_at(address, size * count), f"i{size}")


def _enqueue(device, stream, source: Path, entry: str, blocks: int, threads: int, *arguments):
    cells = [np.array([x], np.uint64) if type(x) is int else np.array([x]) for x in arguments]
    given = (ctypes.c_void_p * len(cells))(*(x.ctypes.data for x in cells))
    getattr(_compiled(source), f"run_{ENTRIES[source].index(entry)}")(blocks, threads, given)


def _run(source: Path, entry: str, threads: int, block: int, *arguments) -> None:
    _enqueue(None, None, source, entry, -(-threads // block), block, *arguments)


@functools.cache
def _compiled(source: Path):
    runs = "\n".join(
        f'extern "C" void run_{i}(int blocks, int threads, void** given) '
        f"{{ launched({entry}, blocks, threads, given); }}"
        for i, entry in enumerate(ENTRIES[source])
    )
    text = f"{SHIM.read_text()}\n{_text(source)}\n{runs}\n".encode()
    library = jit.cache_folder() / f"host-{hashlib.sha256(text).hexdigest()}.so"  # as cubins are, for the next time
    if not library.is_file():
        library.parent.mkdir(parents=True, exist_ok=True)
        with jit.aside(library) as file:
            subprocess.run([*COMPILE, "-o", file.name, "-"], input=text, check=True)
    return ctypes.CDLL(library)


def _text(source: Path) -> str:
    """A source with its headers in it, but for half.cuh, which is PTX."""

    def included(match) -> str:
        return "" if match[1] == "half.cuh" else _text(jit.COMMON / match[1])

    text = source.read_text().replace("#pragma once", "")
    return re.sub(r'^#include "([^"]+)"', included, text, flags=re.MULTILINE)
