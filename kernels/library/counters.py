"""Counters of tiles, for kernels that claim their tiles from one: two uint32 zeros, which are zeros again afterwards.

Launches that share a counter share their tiles, so no two may run at once. Those of a stream follow each other and
have one counter, whatever layer they are of. A captured launch has its own, since its graph may be replayed beside
everything else; nobody knows when a graph goes, so the counter stays until the process ends: 32 bytes for a launch.
"""

import threading

from . import buffers

SPACE = 32  #: bytes from a counter to the next
MANY = 1024  #: that are allocated together
_PER_THREAD = 2  #: the address that stands for another stream in each thread, CU_STREAM_PER_THREAD

_of_stream: dict[tuple[int, int, int], int] = {}
_spare: dict[int, list[int]] = {}
_lock = threading.Lock()


def counter(ordinal: int, stream: int, captured: bool) -> int:
    """Return the address of a counter for a launch on the stream at an address.

    It is on the current GPU, of CUDA's number ordinal.

    captured: whether the launch becomes part of a graph.
    """
    if captured:
        return _fresh(ordinal)
    key = ordinal, stream, threading.get_ident() if stream == _PER_THREAD else 0
    found = _of_stream.get(key)
    return found or _of_stream.setdefault(key, _fresh(ordinal))


def _fresh(ordinal: int) -> int:
    """Return a counter that nobody else has."""
    with _lock:
        spare = _spare.setdefault(ordinal, [])
        if not spare:
            first = buffers.allocated(MANY * SPACE)
            spare.extend(range(first, first + MANY * SPACE, SPACE))
        return spare.pop()
