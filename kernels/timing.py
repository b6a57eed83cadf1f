"""Launches timed one by one on a GPU, each from a cold L2: what the harness and autotuning measure with."""

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from .lazy import core

#: The flush writes this many times the L2's size before every launch. The lines that it leaves
#: there are dirty, so the launch also waits for write-backs: alike for all, at most one L2 full ...
FLUSH_FACTOR = 4
#: ... and at least this many bytes: the flush also is the time in which the host runs ahead.
FLUSH_BYTES_MIN = 256 * 2**20


def flush_bytes(l2_bytes: int) -> int:
    """Return the bytes that the flush overwrites on a GPU with this much L2."""
    return max(FLUSH_FACTOR * l2_bytes, FLUSH_BYTES_MIN)


@contextmanager
def uncollected() -> Iterator[None]:
    """Keep Python's collector of garbage from running: meanwhile the GPU would catch up with the host."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


class Stopwatch:
    """A stream, a buffer that flushes the L2, and events around launches; `close` it.

    device: a current `cuda.core.Device`; most: launches that are enqueued at a time.
    """

    def __init__(self, device, most: int):
        options = core.EventOptions(timing_enabled=True)
        self.stream: Any = device.create_stream()
        self.buffer = device.allocate(flush_bytes(device.properties.l2_cache_size), stream=self.stream)
        self.events = [(device.create_event(options), device.create_event(options)) for _ in range(most)]
        device.sync()  # operands were made on other streams

    def flush(self) -> None:
        """Enqueue one flush."""
        self.buffer.fill(0, stream=self.stream)

    def enqueue(self, launches: Sequence[Callable[[Any], None]]) -> None:
        """Enqueue launches, each called with the stream, behind a flush and between its two events."""
        with uncollected():
            self.flush()  # a head start for the host
            for launch, (begin, end) in zip(launches, self.events, strict=False):
                self.flush()
                self.stream.record(begin)
                launch(self.stream)
                self.stream.record(end)

    def read(self, count: int) -> list[float]:
        """Return the microseconds of the last `count` launches, in their order, after the last one's end."""
        self.stream.sync()
        return [(end - begin) * 1e3 for begin, end in self.events[:count]]

    def flush_us(self, count: int) -> float:
        """Return the microseconds of a flush: of `count`, back to back, so that no gap between them counts."""
        begin, end = self.events[0]
        self.flush()
        self.stream.record(begin)
        for _ in range(count):
            self.flush()
        self.stream.record(end)
        return self.read(1)[0] / count

    def close(self) -> None:
        """Wait, so that a failed launch surfaces as itself and nothing is freed while it runs; then free all."""
        self.stream.sync()
        self.buffer.close(self.stream)
        self.stream.close()
