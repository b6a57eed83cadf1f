"""Plans without a GPU: a driver that notes who waits for whom, and buffers in memory of the host."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from kernels.library import buffers


class Driver:
    """What `buffers` asks of the driver. waits: (stream that waits, the other); captures: stream -> number."""

    CUevent_flags = SimpleNamespace(CU_EVENT_DISABLE_TIMING=2)

    def __init__(self):
        self.waits, self.captures, self.gone, self._recorded = [], {}, set(), {}

    def cuEventCreate(self, flags):
        return 0, object()

    def cuEventDestroy(self, event):
        return (0,)

    def cuEventRecord(self, event, stream):
        self._recorded[event] = stream
        return (400 if stream in self.gone else 0,)

    def cuStreamWaitEvent(self, stream, event, flags):
        self.waits.append((stream, self._recorded[event]))
        return (0,)

    def cuStreamIsCapturing(self, stream):
        return 0, int(stream in self.captures)

    def cuStreamGetCaptureInfo(self, stream):
        return 0, 1, self.captures[stream]


@pytest.fixture(autouse=True)
def driver(request, monkeypatch):
    if request.node.get_closest_marker("gpu") is not None:
        return None

    def zeros(mine, size: int) -> int:
        memory = np.zeros(size + 512, np.uint8)
        mine.keep.append(memory)
        return memory.ctypes.data + -memory.ctypes.data % 512

    made = Driver()
    monkeypatch.setattr(buffers, "_driver", lambda: made)
    monkeypatch.setattr(buffers, "zeros", zeros)
    return made
