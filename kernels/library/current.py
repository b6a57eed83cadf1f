"""Which GPU a plan is on, and that it is the current one of the thread while it is made or called."""

from contextlib import contextmanager, suppress
from typing import Any

from .. import gpu
from ..gpu import now


def ordinal_for(a) -> int:
    """CUDA's number of the GPU to plan on: A's own, or the current one."""
    found = gpu_of(a)
    return (now() or 0) if found is None else found


def gpu_of(a) -> int | None:
    """CUDA's number of the GPU that A is on; None for the host."""
    parts: tuple[Any, ...] = a, getattr(a, "val", None), getattr(a, "data", None)
    for x in parts:
        with suppress(AttributeError, NotImplementedError):  # CuPy's sparse matrices inherit such a property
            where = x.device
            found = getattr(where, "index", None) if hasattr(where, "type") else where.id
            if getattr(where, "type", "cuda") == "cuda" and isinstance(found, int):
                return found
    return None


@contextmanager
def opened(ordinal: int):
    """Make a GPU current until the end of the block, in CuPy as well where it is there."""
    before = now()
    device = gpu.current_device(ordinal)
    try:
        yield device
    finally:
        if before is not None and before != ordinal:
            gpu.open_device(before)


@contextmanager
def settled(ordinal: int):
    """Make a GPU current as `opened`; at the end its work is done, whatever stream comes next."""
    with opened(ordinal) as device:
        yield device
        device.sync()
