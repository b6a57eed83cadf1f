"""Which GPU a plan is on, and that it is the current one of the thread while it is made or called."""

from contextlib import contextmanager, suppress

from .. import gpu
from ..gpu import now


def ordinal_for(a) -> int:
    """CUDA's number of the GPU to plan on: the one that A is on, or else the current one."""
    for x in (a, getattr(a, "val", None), getattr(a, "data", None)):
        with suppress(AttributeError, NotImplementedError):  # CuPy's sparse matrices inherit such a property
            where = x.device  # type: ignore[union-attr]
            found = getattr(where, "index", None) if hasattr(where, "type") else where.id
            if getattr(where, "type", "cuda") == "cuda" and isinstance(found, int):
                return found
    return now() or 0


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
