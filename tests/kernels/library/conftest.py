"""Plans without a GPU: a driver that notes who waits for whom, and buffers in memory of the host."""

from types import SimpleNamespace

import numpy as np
import pytest

from kernels.library import current


class Driver:
    """What `buffers` asks of the driver. waits: (stream that waits, the other); captures: stream -> number; gone:
    streams that nothing may be asked of; refuses: those that take no event."""

    CUevent_flags = SimpleNamespace(CU_EVENT_DISABLE_TIMING=2)

    def __init__(self):
        self.waits, self.captures, self._recorded = [], {}, {}
        self.gone, self.refuses = set(), set()

    def cuEventCreate(self, flags):
        return 0, object()

    def cuEventDestroy(self, event):
        return (0,)

    def cuEventRecord(self, event, stream):
        assert stream not in self.gone
        self._recorded[event] = stream, self.captures.get(stream)
        return (400 if stream in self.refuses else 0,)

    def cuStreamWaitEvent(self, stream, event, flags):
        assert stream not in self.gone
        other, capture = self._recorded[event]
        if capture not in (None, self.captures.get(stream)):
            return (900,)
        self.waits.append((stream, other))
        return (0,)

    def cuStreamIsCapturing(self, stream):
        assert stream not in self.gone
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
    monkeypatch.setattr(current, "driver", made)
    monkeypatch.setattr(current, "zeros", zeros)
    return made


@pytest.fixture
def open_gpu(device, tmp_path, monkeypatch):
    """The GPU; choices for tests' matrices are nobody else's."""
    monkeypatch.setenv("SPARSITY_CHOICES", str(tmp_path))
    return device
