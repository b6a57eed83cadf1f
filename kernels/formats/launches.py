"""Launches of kernels that prepare a matrix: on CuPy's current stream, with the GPU's workspace held meanwhile.

CuPy's own operations would do as well, in some hundred launches, each of a kernel that it compiles for a third of a
second where it never ran before.
"""

import struct
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np

from .. import jit, workspace
from ..lazy import cupy
from . import intake

THREADS = 256
MOST_BLOCKS = 2048  #: of launches that go on to further numbers


class On:
    """Launches of kernels of one source; `with` holds the workspace.

    entries: of those that follow, so that they are compiled side by side where they have to be.
    """

    def __init__(self, source: Path, *entries: str):
        self.source = source
        self.device, self.stream = intake.on_cupys_stream()
        self.work = workspace.of(self.device)
        if entries:
            workspace.compile_together(source, entries, jit.arch_of(self.device))

    def __enter__(self):
        self.work.lock.acquire()
        return self

    def __exit__(self, *_):
        self.work.lock.release()

    def launch(self, entry: str, size: int, *arguments, blocks: int = 0, threads: int = THREADS) -> None:
        """Launch a kernel with a thread for each of `size` numbers, or with so many blocks.

        Launches none where there are no numbers.
        """
        blocks = blocks or ceil(size / threads)
        if blocks:
            workspace.enqueue(
                self.device,
                self.stream,
                self.source,
                entry,
                blocks,
                threads,
                *map(argument, arguments),
            )

    def on(self, entry: str, size: int, *arguments) -> None:
        """Launch a kernel whose threads go on to further ones of `size` numbers."""
        self.launch(entry, 0, *arguments, blocks=min(MOST_BLOCKS, ceil(size / THREADS)))

    def scan(self, entry: str, size: int, *arguments) -> Any:
        """int32 (size + 1,): what a kernel that scans so many numbers counts before each, and in all."""
        if size == 0:
            return cupy.zeros(1, np.int32)
        out = cupy.empty(size + 1, np.int32)
        tiles = self.work.tiles(size)
        self.launch(entry, size, *arguments, *tiles, out, blocks=ceil(size / workspace.TILE))
        return out

    def found(self, kind: struct.Struct) -> tuple:
        """Return what kernels wrote to the workspace's memory of the host; waits for the stream."""
        self.stream.sync()
        return self.work.read(kind)


def argument(x):
    """Return an array as its address, None as none; numbers as they are."""
    if x is None:
        return 0
    return x if isinstance(x, (int, np.generic)) else x.data.ptr


def ints(*numbers: int) -> list[np.int32]:
    """Return numbers as int32 arguments of a kernel."""
    return [np.int32(x) for x in numbers]


def longs(*numbers: int) -> list[np.int64]:
    """Return numbers as int64 arguments of a kernel."""
    return [np.int64(x) for x in numbers]
