"""Which GPU a plan is on, that it is the current one meanwhile, and what launches of a plan write there besides out.

Those are counters, sums and copies: a set for all calls, and one for each CUDA graph.

Launches that share a set follow each other: a call's stream waits for an event behind the call before. That event is
recorded at once, since a stream may be destroyed, and its address another's, before the next call comes; only of the
default stream, which lasts, it is recorded when a call comes on another one. Graphs may run at any time, so a call that
is captured has a set of its graph's own.
"""

import contextlib
import weakref
from dataclasses import dataclass, field
from typing import Any

from .. import gpu
from ..contract import require
from ..gpu import now
from ..lazy import driver

LASTING = (0, 1)  #: CUDA's names of the legacy default stream, which nobody can destroy


def ordinal_for(a) -> int:
    """CUDA's number of the GPU to plan on: the one that A is on, or else the current one."""
    for x in (a, getattr(a, "val", None), getattr(a, "data", None)):
        with contextlib.suppress(AttributeError, NotImplementedError):  # CuPy's sparse matrices inherit such a property
            where = x.device  # type: ignore[union-attr]
            found = getattr(where, "index", None) if hasattr(where, "type") else where.id
            if getattr(where, "type", "cuda") == "cuda" and isinstance(found, int):
                return found
    return now() or 0


@contextlib.contextmanager
def opened(ordinal: int):
    """Make a GPU current until the end of the block, in CuPy as well where it is there."""
    before = now()
    device = gpu.current_device(ordinal)
    try:
        yield device
    finally:
        if before is not None and before != ordinal:
            gpu.open_device(before)


@contextlib.contextmanager
def settled(ordinal: int):
    """Make a GPU current as `opened`; at the end its work is done, whatever stream comes next."""
    with opened(ordinal) as device:
        yield device
        device.sync()


# ---------------------------------------------------------------- buffers


@dataclass
class Buffers:
    """One set."""

    scratch: tuple[int, ...]  #: addresses, in the order of `Launch.scratch`
    at: tuple | None = None  #: addresses that `ready` was made for
    ready: list = field(default_factory=list)  #: launches: (config, kernel, arguments)
    stages: dict = field(default_factory=dict)
    last: int | None = None  #: address of the stream that used it last
    keep: list = field(default_factory=list)
    _event: Any = None

    def follow(self, pointer: int) -> bool:
        """Let the stream at an address wait for the call before; False where that cannot be had.

        After the call comes `done`.
        """
        before, self.last = self.last, pointer
        if before is None or before == pointer in LASTING:
            return True
        if before in LASTING and not self._record(before):
            return False
        (error,) = driver.cuStreamWaitEvent(pointer, self._event, 0)
        return not int(error)

    def done(self, pointer: int) -> None:
        """Note where the work of a call on the stream at an address ends."""
        if pointer not in LASTING:
            require(self._record(pointer), f"the stream at {pointer:#x} takes no event: give a stream that is open")

    def _record(self, pointer: int) -> bool:
        if self._event is None:
            error, self._event = driver.cuEventCreate(driver.CUevent_flags.CU_EVENT_DISABLE_TIMING)
            if int(error):
                return False
            weakref.finalize(self, driver.cuEventDestroy, self._event)
        (error,) = driver.cuEventRecord(self._event, pointer)
        return not int(error)


def copy_of(sizes: tuple[int, ...]) -> Buffers:
    """Return a set of its own, of so many bytes each: zeros. It may be made while a stream is captured."""
    made = Buffers(())
    made.scratch = tuple(zeros(made, size) for size in sizes)
    return made


def zeros(buffers: Buffers, size: int) -> int:
    """Return the address of so many zeros, which live as long as the set does."""
    address = allocated(size)
    weakref.finalize(buffers, _free, address)
    return address


def _free(address: int) -> None:
    with contextlib.suppress(Exception), capturing_goes_on():  # the interpreter may be ending
        driver.cuMemFree(address)


def allocated(size: int) -> int:
    """Return the address of zeros on the current GPU, past any library's pool.

    Those wait for streams, which a capture forbids, or are a graph's own. Raises NoGpu, one sentence, where there is
    no memory.
    """

    def did(answer: tuple):
        return gpu.succeeded(
            answer, f"the GPU has no {size} bytes for a plan's buffers ({{}}): free memory of it", gpu.NoGpu
        )

    with capturing_goes_on():
        address = did(driver.cuMemAlloc(max(size, 16)))
        stream = did(driver.cuStreamCreate(driver.CUstream_flags.CU_STREAM_NON_BLOCKING))
        did(driver.cuMemsetD8Async(address, 0, max(size, 16), stream))
        did(driver.cuStreamSynchronize(stream))
        did(driver.cuStreamDestroy(stream))
    return int(address)


@contextlib.contextmanager
def capturing_goes_on():
    """Let this thread call meanwhile what a capture forbids by default, as to allocate: no part of the graph."""
    mode = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
    _, before = driver.cuThreadExchangeStreamCaptureMode(mode)
    try:
        yield
    finally:
        driver.cuThreadExchangeStreamCaptureMode(before)


def is_captured(pointer: int) -> bool:
    """Whether work on the stream at an address becomes part of a CUDA graph; that of the default stream never does."""
    if pointer in LASTING:
        return False
    error, status = driver.cuStreamIsCapturing(pointer)
    return not int(error) and int(status) != 0


def capture_of(pointer: int) -> int:
    """Return the number of the capture that the stream at an address is part of."""
    return int(driver.cuStreamGetCaptureInfo(pointer)[2])
