"""The GPU that a caller multiplies on, or one sentence on why there is none."""

from .lazy import core, driver

NO_CUPY = (
    "operands on the GPU are CuPy arrays, and CuPy is not installed here: install cupy-cuda13x, "
    "or stay on the host with Problem.host()"
)


class NoGpu(RuntimeError):
    """There is no GPU that works, or nothing that holds operands on it; the message is one sentence."""


_devices: dict[int, object] = {}


def current_device(ordinal: int):
    """`open_device`, which is not asked again where that GPU is current already."""
    found = _devices.get(ordinal)
    if found is None or now() != ordinal:
        found = _devices[ordinal] = open_device(ordinal)
    return found


def now() -> int | None:
    """CUDA's number of this thread's current GPU, or None where there is none."""
    try:
        error, device = driver.cuCtxGetDevice()
    except Exception:  # no driver, which `open_device` says better
        return None
    return None if error else int(device)


def open_device(ordinal: int = 0):
    """Return the GPU with this CUDA number as a `cuda.core.Device`, made current in this thread.

    CuPy then shares its context.

    Raises NoGpu where there is no such GPU, no driver, or one that does not work.
    """
    try:
        device = core.Device(ordinal)
        device.set_current()
    except Exception as error:  # a missing library, a missing GPU, a driver that fails: each raises its own
        why = (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
        raise NoGpu(
            f"GPU {ordinal} cannot be used ({why}): multiply where there is an NVIDIA GPU with its driver; "
            "compiling needs neither"
        ) from error
    return device


def succeeded(result: tuple, failed: str, kind: type[Exception] = RuntimeError):
    """Return what a call of the driver returned besides success.

    Raises `kind` with this sentence, {} in it the error's name.
    """
    error, *rest = result
    if int(error):
        raise kind(failed.format(error.name))
    return rest[0] if rest else None


def set_bytes(array, value: int, stream) -> None:
    """Enqueue one value for every byte of a contiguous CuPy array on a `cuda.core.Stream`."""
    done = driver.cuMemsetD8Async(array.data.ptr, value, array.nbytes, int(stream.handle))
    succeeded(done, f"setting {array.nbytes} bytes failed ({{}})")


class Portable:
    """A GPU taken for one that has none of Hopper's own instructions, so that what runs elsewhere runs here.

    It stands for a `cuda.core.Device` wherever a system or the library asks for one: kernels are compiled for sm_90
    instead of sm_90a, routes and candidates are those of other GPUs, and choices are kept under a name of its own.
    """

    def __init__(self, device, shared_bytes: int | None = None):
        """shared_bytes: what a block may have of shared memory at most, where that shall be less than the GPU's."""
        self._device = device
        self.name = f"{device.name} portable"
        self.properties = device.properties if shared_bytes is None else _Less(device.properties, shared_bytes)

    def __getattr__(self, name: str):
        if name == "_device":  # of a copy that is being made
            raise AttributeError(name)
        return getattr(self._device, name)


class _Less:
    """Properties of a GPU with less shared memory."""

    def __init__(self, properties, shared_bytes: int):
        self._properties = properties
        self.max_shared_memory_per_block_optin = shared_bytes
        self.max_shared_memory_per_multiprocessor = shared_bytes + 1024

    def __getattr__(self, name: str):
        return getattr(self._properties, name)


def with_wgmma(ordinal: int, what: str):
    """Return the `cuda.core.Device` with this CUDA number; ValueError, one sentence, where it has no wgmma.

    what: what is multiplied by it, as "a 2:4 layer".
    """
    device = core.Device(ordinal)
    if tuple(device.compute_capability) != (9, 0):
        raise ValueError(
            f"{what} is multiplied by wgmma, which compute capability 9.0 has and GPU {ordinal}, "
            f"{'.'.join(map(str, device.compute_capability))}, has not"
        )
    return device
