"""What kernels of preparation share on a GPU: sums that are 0 between launches, and memory of the host that they write.

One at a time prepares on a GPU: `of` gives the workspace, whose lock is held from the first launch until the host has
read what came of it. `On` launches on CuPy's current stream with it held; nothing else here needs CuPy, whose own
operations would do as well, in some hundred launches, each of a kernel that it compiles for a third of a second where
it never ran before.
"""

import ctypes
import functools
import os
import struct
import threading
from concurrent.futures import ThreadPoolExecutor
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np

from . import gpu, jit
from .lazy import core, cupy, driver

THREADS = 256  #: of a block
MOST_BLOCKS = 2048  #: of launches that go on to further numbers
TILE = 2048  #: numbers that a block of a scan adds up (common/scan.cuh)
_BYTES = 256  #: of the sums, and of what the host reads
_LAUNCHES = 2**30 - 1  #: that a scan's words tell apart


class Workspace:
    """On a current `cuda.core.Device`."""

    def __init__(self, device):
        self.device = device
        self.lock = threading.RLock()
        self.sums = int(_did(driver.cuMemAlloc(_BYTES)))  #: address of zeros on the GPU
        _did(driver.cuMemsetD8(self.sums, 0, _BYTES))
        self.found = int(_did(driver.cuMemHostAlloc(_BYTES, 0)))  #: address of memory that both sides see
        self._memory = (ctypes.c_char * _BYTES).from_address(self.found)
        self._tiles, self._system, self._launch = 0, 0, 0

    def read(self, kind: struct.Struct, at: int = 0) -> tuple:
        """Return the numbers of a record in the host's memory, `at` bytes from its beginning.

        What kernels found, once the stream was waited for.
        """
        return kind.unpack_from(self._memory, at)

    def tiles(self, size: int) -> tuple[int, np.uint32]:
        """(address of a scan's words for so many numbers, which launch it is); others' words count as none."""
        need = max(1, ceil(size / TILE))
        self._launch += 1
        if need > self._system or self._launch > _LAUNCHES:
            if self._tiles:
                self.device.sync()
                _did(driver.cuMemFree(self._tiles))
            self._system, self._launch = max(need, 2 * self._system, 1024), 1
            self._tiles = int(_did(driver.cuMemAlloc(8 * self._system)))
            _did(driver.cuMemsetD8(self._tiles, 0, 8 * self._system))
        return self._tiles, np.uint32(self._launch)


_all: dict[int, Workspace] = {}
_making = threading.Lock()


def of(device) -> Workspace:
    """Return the workspace of a current `cuda.core.Device`."""
    with _making:
        if device.device_id not in _all:
            _all[device.device_id] = Workspace(device)
        return _all[device.device_id]


@functools.lru_cache(1024)
def config(blocks, threads, shared: int = 0, cluster: tuple[int, ...] | None = None):
    """Return the `cuda.core.LaunchConfig` of so many blocks, kept: to make one takes as long as to launch.

    blocks, threads: numbers, or a tuple for each dimension. shared: bytes of dynamic shared memory a block.
    """
    return core.LaunchConfig(grid=blocks, block=threads, shmem_size=shared, cluster=cluster)


def enqueue(device, stream, source: Path, entry: str, blocks: int, threads, *arguments, shared: int = 0) -> None:
    """Launch a kernel of `jit.ready` on a `cuda.core.Stream`; arguments: NumPy scalars and addresses.

    shared: bytes of dynamic shared memory a block.
    """
    kernel = jit.ready(source, entry, jit.arch_of(device), shared)
    core.launch(stream, config(blocks, threads, shared), kernel, *arguments)


@functools.cache
def compile_together(source: Path, entries: tuple[str, ...], arch: str) -> None:
    """Compile what was not compiled in this process, side by side: the compiler works without Python's lock."""
    with ThreadPoolExecutor(min(len(entries), os.cpu_count() or 1)) as pool:
        list(pool.map(lambda entry: jit.compile_cubin(source, entry, arch), entries))


_streams: dict[tuple[int, int], object] = {}


def stream_at(address: int, device):
    """Return the `cuda.core.Stream` at an address, on a `cuda.core.Device`; kept, since to make one takes long."""
    key = device.device_id, address
    found = _streams.get(key)
    if found is None:
        found = _streams[key] = device.create_stream(jit.StreamAt(address))
    return found


def on_cupys_stream():
    """Return (the `cuda.core.Device` where CuPy works, made current; its current stream)."""
    from cupy import cuda

    device = gpu.current_device(cuda.runtime.getDevice())
    return device, stream_at(cuda.get_current_stream().ptr, device)


class On:
    """Launches of kernels of one source; `with` holds the workspace.

    entries: of those that follow, so that they are compiled side by side where they have to be.
    """

    def __init__(self, source: Path, *entries: str):
        self.source = source
        self.device, self.stream = on_cupys_stream()
        self.work = of(self.device)
        if entries:
            compile_together(source, entries, jit.arch_of(self.device))

    def __enter__(self):
        self.work.lock.acquire()
        return self

    def __exit__(self, *_):
        self.work.lock.release()

    def launch(self, entry: str, size: int, *arguments, blocks: int = 0, threads: int = THREADS) -> None:
        """Launch a kernel with a thread for each of `size` numbers, or with so many blocks.

        Launches none where there are no numbers.
        """
        if blocks := blocks or ceil(size / threads):
            enqueue(self.device, self.stream, self.source, entry, blocks, threads, *map(argument, arguments))

    def on(self, entry: str, size: int, *arguments) -> None:
        """Launch a kernel whose threads go on to further ones of `size` numbers."""
        self.launch(entry, 0, *arguments, blocks=min(MOST_BLOCKS, ceil(size / THREADS)))

    def scan(self, entry: str, size: int, *arguments) -> Any:
        """int32 (size + 1,): what a kernel that scans so many numbers counts before each, and in all."""
        if size == 0:
            return cupy.zeros(1, np.int32)
        out = cupy.empty(size + 1, np.int32)
        self.launch(entry, size, *arguments, *self.work.tiles(size), out, blocks=ceil(size / TILE))
        return out

    def found(self, kind: struct.Struct) -> tuple:
        """Return what kernels wrote to the workspace's memory of the host; waits for the stream."""
        self.stream.sync()
        return self.work.read(kind)


def argument(x):
    """Return an array as its address, None as none; numbers as they are."""
    return 0 if x is None else x if isinstance(x, (int, np.generic)) else x.data.ptr


def ints(*numbers: int) -> list[np.int32]:
    """Return numbers as int32 arguments of a kernel."""
    return [np.int32(x) for x in numbers]


def longs(*numbers: int) -> list[np.int64]:
    """Return numbers as int64 arguments of a kernel."""
    return [np.int64(x) for x in numbers]


def _did(result: tuple):
    """Return what a call of the driver returned besides success. Raises RuntimeError, one sentence, where it failed."""
    return gpu.succeeded(result, "the driver cannot prepare a workspace ({}): free memory of the GPU")
