"""Which GPU a plan is on, and that it is the current one of the thread while it is made or called."""

from __future__ import annotations

from contextlib import contextmanager
from itertools import chain

from .. import gpu
from ..gpu import now


def ordinal_for(a) -> int:
    """CUDA's number of the GPU to plan on: A's own, or the current one."""
    for found in (gpu_of(a), now()):
        if found is not None:
            return found
    return 0


def gpu_of(a) -> int | None:
    """CUDA's number of the GPU that A is on; None for the host."""
    for x in chain((a,), (getattr(a, name, None) for name in ("val", "data"))):
        where = _device_of(x)
        for name in ("index", "id"):
            found = getattr(where, name, None)
            if isinstance(found, int) and getattr(where, "type", "cuda") == "cuda":
                return found
    return None


def _device_of(x):
    try:
        return getattr(x, "device", None)
    except NotImplementedError:  # CuPy's sparse matrices inherit such a property
        return None


@contextmanager
def opened(ordinal: int):
    """A GPU, current meanwhile, in CuPy as well where it is there."""
    before = now()
    device = gpu.current_device(ordinal)
    try:
        yield device
    finally:
        if before is not None and before != ordinal:
            gpu.open_device(before)


@contextmanager
def settled(ordinal: int):
    """`opened`, whose work is done at the end, whatever stream comes next."""
    with opened(ordinal) as device:
        yield device
        device.sync()


class Current:
    """With a plan's GPU current, which it mostly is already; a class, since a generator takes longer to enter."""

    __slots__ = ("device", "ordinal", "before")

    def __init__(self, device, ordinal: int):
        self.device, self.ordinal = device, ordinal

    def __enter__(self):
        self.before = now()
        if self.before != self.ordinal:
            self.device.set_current()

    def __exit__(self, *_):
        if self.before is not None and self.before != self.ordinal:
            gpu.open_device(self.before)
