"""What kernels of preparation share on a GPU: sums that are 0 between launches, and memory of the host that they write.

One at a time prepares on a GPU: `of` gives the workspace, whose lock is held from the first launch until the host has
read what came of it. Nothing here needs CuPy.
"""

import ctypes
import functools
import os
import struct
import threading
from concurrent.futures import ThreadPoolExecutor
from math import ceil
from pathlib import Path

import numpy as np

from . import gpu, jit
from .lazy import core, driver

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

    def read(self, kind: struct.Struct | np.dtype, at: int = 0):
        """Return a record in the host's memory, its numbers or NumPy's.

        What kernels found, once the stream was waited for.

        at: bytes before it.
        """
        if isinstance(kind, struct.Struct):
            return kind.unpack_from(self._memory, at)
        return np.frombuffer(self._memory, kind, 1, at)[0].copy()

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
    found = _all.get(device.device_id)
    if found is None:
        with _making:
            found = _all.setdefault(device.device_id, Workspace(device))
    return found


@functools.lru_cache(1024)
def config(blocks, threads, shared: int = 0, cluster: tuple[int, ...] | None = None):
    """Return the `cuda.core.LaunchConfig` of so many blocks, kept: to make one takes as long as to launch.

    blocks, threads: numbers, or a tuple for each dimension. shared: bytes of dynamic shared memory a block.
    """
    return core.LaunchConfig(grid=blocks, block=threads, shmem_size=shared, cluster=cluster)


def enqueue(device, stream, source: Path, entry: str, blocks: int, threads, *arguments) -> None:
    """Launch a kernel of `jit.ready` on a `cuda.core.Stream`; arguments: NumPy scalars and addresses."""
    core.launch(stream, config(blocks, threads), jit.ready(source, entry, jit.arch_of(device)), *arguments)


_made: set[tuple[Path, str, str]] = set()


def compile_together(source: Path, entries: tuple[str, ...], arch: str) -> None:
    """Compile what was not compiled in this process, side by side: the compiler works without Python's lock."""
    missing = [x for x in entries if (source, x, arch) not in _made]
    if len(missing) > 1:
        with ThreadPoolExecutor(min(len(missing), os.cpu_count() or 1)) as pool:
            list(pool.map(lambda entry: jit.compile_cubin(source, entry, arch), missing))
    _made.update((source, x, arch) for x in missing)


_streams: dict[tuple[int, int], object] = {}


def stream_at(address: int, device):
    """Return the `cuda.core.Stream` at an address, on a `cuda.core.Device`; kept, since to make one takes long."""
    key = device.device_id, address
    found = _streams.get(key)
    if found is None:
        found = _streams[key] = device.create_stream(jit.StreamAt(address))
    return found


def _did(result: tuple):
    """Return what a call of the driver returned besides success. Raises RuntimeError, one sentence, where it failed."""
    return gpu.succeeded(result, "the driver cannot prepare a workspace ({}): free memory of the GPU")
