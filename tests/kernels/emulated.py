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
from kernels.async_sparse import heads, planning, subwarp
from kernels.async_sparse.heads import Heads
from kernels.autotune import probe
from kernels.contract import Operands
from kernels.distributed import generate
from kernels.formats import arrays, compress, half, intake, layout
from kernels.library import direct

COMPILE = ("g++", "-std=c++20", "-O1", "-w", "-shared", "-fPIC", "-x", "c++")
SHIM = Path(__file__).with_name("emulated.hpp")
#: Configurations of rows by a few lanes, and (columns, dtype) that they are run on.
FEW = tuple(
    subwarp.Subwarp(rows, slots, columns, quads, rounds)
    for rows in (1, 2)
    for slots, columns, quads, rounds in (
        *((1, 0, True, 0), (8, 0, False, 0), (32, 16, True, 0)),
        *((1, 0, True, 1), (1, 16, False, 2)),
    )
)
HEADS = (Heads(), Heads(16), Heads(rounds=2))
FEW_COLUMNS = ((1, "tf32"), (3, "tf32"), (8, "tf32"), (44, "tf32"), (8, "bfloat16"), (7, "float16"))
#: Columns of dense matrices whose product is sampled; their dtype, that of what comes out, bytes of a number of theirs.
SAMPLED_COLUMNS = (1, 3, 7, 16, 32, 41, 64, 100, 128, 256, 300)
SAMPLED_DTYPES = (
    ("float32", "float32", 4),
    ("bfloat16", "bfloat16", 2),
    ("float16", "float16", 2),
    ("bfloat16", "float32", 2),
)
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
    )
    + ("sliced<float>", "sliced<unsigned short>"),
    subwarp.SOURCE: tuple(dict.fromkeys(config.entry(n, dtype) for n, dtype in FEW_COLUMNS for config in FEW)),
    heads.SOURCE: tuple(dict.fromkeys(config.entry(n, dtype) for n, dtype in FEW_COLUMNS for config in HEADS)),
    half.SOURCE: tuple(f"{name}<{dtype}>" for name in ("to_bits", "not_held") for dtype in ("BF16", "F16")),
    direct.SAMPLED: tuple(
        dict.fromkeys(
            direct.team(n, size).entry(n, dtype, out) for n in SAMPLED_COLUMNS for dtype, out, size in SAMPLED_DTYPES
        )
    ),
    direct.PANELS: tuple(
        dict.fromkeys(
            made.entry(dtype, out)
            for n in SAMPLED_COLUMNS
            for dtype, out, size in SAMPLED_DTYPES
            if (made := direct.staged(n, size))
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
    for where, name, what in (
        (workspace, "of", lambda device: Workspace()),
        (workspace, "enqueue", _enqueue),
        (jit, "run_on_cupy_stream", _run),
        (gpu, "set_bytes", lambda x, value, stream: ctypes.memset(x.data.ptr, value, x.nbytes)),
        (arrays, "to_host", lambda x: arrays._moved(x, lambda y: y.get() if hasattr(y, "get") else y)),
        (probe, "MOST_BLOCKS", 2),  # threads that do much are soon done
        (jit, "compile_cubin", lambda source, entry, arch: None),
    ):
        monkeypatch.setattr(where, name, what)
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


def _enqueue(device, stream, source: Path, entry: str, blocks: int, threads: int, *arguments, shared: int = 0):
    cells = [np.array([x], np.uint64) if type(x) is int else np.array([x]) for x in arguments]
    given = (ctypes.c_void_p * len(cells))(*(x.ctypes.data for x in cells))
    grid = blocks if isinstance(blocks, tuple) else (blocks, 1)
    getattr(_compiled(source), f"run_{ENTRIES[source].index(entry)}")(*grid, threads, given)


def _run(source: Path, entry: str, threads: int, block: int, *arguments) -> None:
    _enqueue(None, None, source, entry, -(-threads // block), block, *arguments)


@functools.cache
def _compiled(source: Path):
    runs = "\n".join(
        f'extern "C" void run_{i}(int blocks, int panels, int threads, void** given) '
        f"{{ launched({entry}, blocks, panels, threads, given); }}"
        for i, entry in enumerate(ENTRIES[source])
    )
    text = f"{SHIM.read_text()}\n{_text(source)}\n{runs}\n".encode()
    library = jit.cache_folder() / f"host-{hashlib.sha256(text).hexdigest()}.so"  # as cubins are, for the next time
    if not library.is_file():
        library.parent.mkdir(parents=True, exist_ok=True)
        with jit.aside(library) as file:
            subprocess.run([*COMPILE, "-o", file.name, "-"], input=text, check=True)
    return ctypes.CDLL(library)


def _text(source: Path, seen: set[Path] | None = None) -> str:
    """A source with its headers in it, each once, but for half.cuh, which is PTX.

    One thread runs at a time, so of all other PTX a count is a count, and nothing is fenced or fetched ahead.
    """
    seen = set() if seen is None else seen

    def included(match) -> str:
        beside = source.with_name(match[1])
        path = beside if beside.exists() else jit.COMMON / match[1]
        new = path.name != "half.cuh" and path not in seen
        seen.add(path)
        return _text(path, seen) if new else ""

    text = source.read_text().replace("#pragma once", "")
    text = re.sub(r"extern __shared__ __align__\((\d+)\) char (\w+)\[\]", r"alignas(\1) static char \2[1 << 16]", text)
    counted = "before = atomicInc(count, all - 1);\n"
    text = re.sub(r'asm volatile\(\s*"atom\.release\.gpu\.global\.inc.*?\);\n', counted, text, flags=re.DOTALL)
    text = re.sub(r'asm volatile\(\s*".*?\);\n', ";\n", text, flags=re.DOTALL)
    return re.sub(r'^#include "([^"]+)"', included, text, flags=re.MULTILINE)
