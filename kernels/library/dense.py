"""B and out as callers bring them: where they lie, in which order, on whose stream.

A fast path for PyTorch's tensors and CuPy's arrays, since every multiplication comes through here; anything else that
speaks DLPack or `__cuda_array_interface__` takes the slow one. Neither library is imported: who has such an array has
imported it.
"""

import functools
import sys
from contextlib import nullcontext
from math import ceil, prod
from numbers import Real
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from .. import gpu, jit, workspace
from ..contract import require
from ..formats.half import Half

SOURCE = jit.ROOT / "library" / "combine.cu"
#: dtype -> what combine.cu calls it, bytes of a number.
DTYPES = {"float32": ("float", 4), "bfloat16": ("Sixteen<BF16>", 2), "float16": ("Sixteen<F16>", 2)}
_MOST_BLOCKS = 2**20
_MOST_WORK: Any = 10**6  # of NumPy, before it says that arrays may share memory
_SOMEWHERE = 2**40  # for NumPy, which allocates where an address is 0


class Dense(NamedTuple):
    """A dense array on a GPU, of one or two dimensions."""

    ptr: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]  #: elements
    dtype: str
    device: int  #: CUDA's number of the GPU
    readonly: bool = False  #: whether its library says that nobody may write it


class _Libraries(dict[type, str]):
    """Whose class of arrays it is: "torch", "cupy" or "another", found out once: every call asks."""

    def __missing__(self, kind: type) -> str:
        def is_of(name: str, base: str) -> bool:
            module = sys.modules.get(name)
            return module is not None and issubclass(kind, getattr(module, base))

        found = "torch" if is_of("torch", "Tensor") else "cupy" if is_of("cupy", "ndarray") else "another"
        return self.setdefault(kind, found)


_libraries = _Libraries()


def describe(x, name: str) -> Dense:
    """Where an array on a GPU lies. name: what a message calls it.

    Raises ValueError, one sentence, for what lies on the host, is no array, or has elements between elements.
    """
    if type(x) is Half:
        return describe(x.bits, name)._replace(dtype=x.dtype)
    library = _libraries[x.__class__]
    if library == "torch":
        if not x.is_cuda:
            raise ValueError(_on_host(name, x))
        if x.layout != sys.modules["torch"].strided:
            raise ValueError(f"{name} is a sparse tensor, but only A is sparse: make it dense with to_dense()")
        if x.is_neg():
            raise ValueError(f"{name} is a view whose signs PyTorch has yet to change: call resolve_neg() first")
        return Dense(x.data_ptr(), x.shape, x.stride(), named(x.dtype), x.get_device())
    if library == "cupy":
        strides = _elements(x.strides, x.dtype.itemsize)
        return Dense(x.data.ptr, x.shape, strides, named(x.dtype), x.data.device_id)
    return _foreign(x, name)


def place(x, name: str) -> tuple[int, tuple]:
    """(address, all else that tells how an array lies): what every call asks, without what `describe` makes of it."""
    library = _libraries[x.__class__]
    if library == "cupy":
        memory = x.data
        return memory.ptr, (x.shape, x.strides, x.dtype, memory.device_id)
    if library == "torch" and x.layout is sys.modules["torch"].strided:
        if x.requires_grad:
            require_no_grad(x, name)
        return x.data_ptr(), (x.shape, x.stride(), x.dtype, x.get_device(), x.is_neg())
    if type(x) is Half:
        at, how = place(x.bits, name)
        return at, (*how, x.dtype)
    found = describe(x, name)
    return found.ptr, found[1:]


@functools.lru_cache(256)
def _elements(strides: tuple[int, ...], size: int) -> tuple[int, ...]:
    require(
        not any(bytes_apart % size for bytes_apart in strides),
        f"an array has strides of {strides} bytes, but its elements have {size}: copy it",
    )
    return tuple(bytes_apart // size for bytes_apart in strides)


def _foreign(x, name: str) -> Dense:
    require(not isinstance(x, np.ndarray), _on_host(name, x))
    require(
        hasattr(x, "__dlpack__") or hasattr(x, "__cuda_array_interface__"),
        f"{name} is {called(x)}, which speaks neither DLPack nor __cuda_array_interface__: bring an array of PyTorch, "
        "CuPy or another library of GPU arrays",
    )
    kind, ordinal = x.__dlpack_device__() if hasattr(x, "__dlpack_device__") else (None, 0)
    require(kind != _CPU, _on_host(name, x))
    # JAX's arrays never change, which their description does not say in every version.
    jax = type(x).__module__.partition(".")[0] in ("jax", "jaxlib")
    view = _viewed(x, name, (current(x, ordinal) or _LEGACY, -1) if jax else (-1, current(x, ordinal) or _LEGACY))
    require(view.is_device_accessible and view.device_id >= 0, _on_host(name, x))
    shape = tuple(view.shape)
    strides = view.strides or (prod(shape[i + 1 :]) for i in range(len(shape)))
    return Dense(int(view.ptr), shape, tuple(strides), named(view.dtype), int(view.device_id), view.readonly or jax)


_CPU = 1  # of DLPack's kinds of devices
_LEGACY = 1  # DLPack's number of the stream at address 0


def _viewed(x, name: str, streams: tuple[int, int]):
    """Return what another library says of its array; ValueError, one sentence, where it says nothing.

    The caller's stream is the one that counts, so nobody waits for another one, which -1 asks for; but JAX takes -1 for
    an address, and gets the current stream, which then waits for what JAX has yet to do.
    """
    from cuda.core.utils import StridedMemoryView

    for stream in streams:
        try:
            return StridedMemoryView.from_any_interface(x, stream_ptr=stream)
        except Exception as error:  # each library has its own
            failed = error
    said = (str(failed).splitlines() or [type(failed).__name__])[0].rstrip(".").replace(". ", ", ")
    raise ValueError(
        f"{name} is {called(x)}, whose library does not say where it lies ({said}): bring an array of PyTorch or CuPy"
    ) from failed


def _on_host(name: str, x) -> str:
    return f"{name} is {called(x)} on the host, but kernels read GPU memory: copy it to the GPU first"


def called(x) -> str:
    """Return the class of an object, as messages name it: "numpy.ndarray"."""
    return f"{type(x).__module__}.{type(x).__qualname__}"


@functools.cache
def named(dtype) -> str:
    """Return a dtype of PyTorch's, or of NumPy's, as it is called here: "bfloat16"."""
    return str(getattr(dtype, "name", dtype)).removeprefix("torch.")


def require_no_grad(x, name: str) -> None:
    """Raise ValueError, one sentence, where PyTorch would want a gradient of x, a tensor or any other array.

    name: what the sentence calls it. Nothing is lost under torch.no_grad(), or of what is detached.
    """
    if getattr(x, "requires_grad", False) and sys.modules["torch"].is_grad_enabled():
        raise ValueError(
            f"{name} requires grad, but gradients are lost here: multiply by a SparseMatrix, which has them, or detach "
            f"{name}"
        )


def matrix(x: Dense) -> tuple[int, int, int, int]:
    """(rows, columns, elements from row to row, from column to column); a vector is one column."""
    if len(x.shape) == 1:
        return x.shape[0], 1, x.strides[0], 1
    (rows, columns), (by_row, by_column) = x.shape, x.strides
    return rows, columns, by_row, by_column


def is_laid(x: Dense, order: str) -> bool:
    """Whether a matrix has no gaps and runs along rows ("C") or columns ("F"); a single one is both."""
    rows, columns, by_row, by_column = matrix(x)
    if order == "F":
        rows, columns, by_row, by_column = columns, rows, by_column, by_row
    if rows == 0 or columns == 0:  # strides of nothing are anything
        return True
    return (columns == 1 or by_column == 1) and (rows == 1 or by_row == columns)


def order_of(x: Dense) -> str:
    """Return "F" for what runs along columns, else "C"."""
    rows, columns, by_row, by_column = matrix(x)
    return "F" if by_row < by_column and rows > 1 and columns > 1 else "C"


def extent(x: Dense) -> tuple[int, int]:
    """Where an array's bytes are, counted from its address: the first, and the one past the last."""
    if 0 in x.shape:
        return 0, 0
    size = DTYPES[x.dtype][1]
    ends = [size * (n - 1) * step for n, step in zip(x.shape, x.strides, strict=True)]
    return sum(e for e in ends if e < 0), size + sum(e for e in ends if e > 0)


def _claimed(x: Dense) -> np.ndarray:
    """Return an array of NumPy's with an array's places, to be asked about them and never read."""
    size = DTYPES[x.dtype][1]
    strides = tuple(size * step for step in x.strides)
    said = {
        "version": 3,
        "data": (x.ptr or _SOMEWHERE, False),
        "typestr": f"|V{size}",
        "shape": x.shape,
        "strides": strides,
    }
    return np.asarray(SimpleNamespace(__array_interface__=said))


def overlaps_itself(x: Dense) -> bool:
    """Whether elements of an array of one or two dimensions share memory, as those of an expanded one do."""
    places = _claimed(x)
    return any(np.may_share_memory(y[:1], y[1:], max_work=_MOST_WORK) for y in (places, places.T))


def apart(x: Dense, y: Dense) -> bool:
    """Whether two arrays of a dtype share no memory, where that is not too hard to say."""
    (first, past), (begin, end) = extent(x), extent(y)
    if x.ptr + past <= y.ptr + begin or y.ptr + end <= x.ptr + first:
        return True
    return not np.may_share_memory(_claimed(x), _claimed(y), max_work=_MOST_WORK)


# ---------------------------------------------------------------- what is allocated


def need_cupy():
    """CuPy, or NoGpu: formats are converted, and kernels prepared, with its arrays."""
    try:
        import cupy
    except ModuleNotFoundError as error:
        raise gpu.NoGpu(
            "a plan converts A and prepares kernels with CuPy, which is not installed here: install cupy-cuda13x"
        ) from error
    return cupy


def empty(like, shape: tuple[int, ...], dtype: str, order: str, device: int, stream: int | None):
    """Return an array of the library of `like`, PyTorch's or else CuPy's, in memory that belongs to a stream.

    stream: its address, or None for the library's current one.
    """
    turned = order == "F" and len(shape) == 2
    made = shape[::-1] if turned else shape
    if _libraries[like.__class__] == "torch":
        torch = sys.modules["torch"]
        with nullcontext() if stream is None else torch.cuda.stream(torch.cuda.ExternalStream(stream, device)):
            x = torch.empty(made, dtype=getattr(torch, dtype), device=like.device)
    else:
        cupy = need_cupy()
        with cupy.cuda.Device(device), nullcontext() if stream is None else cupy.cuda.ExternalStream(stream, device):
            # Who brought bfloat16 without PyTorch has imported `ml_dtypes`, by which NumPy knows the name.
            x = cupy.empty(made, "uint16" if isinstance(like, Half) else dtype)
    x = x.T if turned else x
    return Half(dtype, x) if isinstance(like, Half) else x


# ---------------------------------------------------------------- streams


def address_of(stream) -> int:
    """Return the address of a stream: an int, a stream of cuda.core, PyTorch or CuPy, or what has `__cuda_stream__`.

    Raises ValueError, one sentence, for anything else.
    """
    for found in (stream, getattr(stream, "cuda_stream", None), getattr(stream, "ptr", None)):  # PyTorch's, CuPy's
        if isinstance(found, int) and not isinstance(found, bool):
            return found
    protocol: Any = getattr(stream, "__cuda_stream__", None)
    require(
        protocol is not None,
        f"stream is {called(stream)}, but must be a stream of PyTorch, CuPy or cuda.core, or an address",
    )
    return int((protocol() if callable(protocol) else protocol)[1])


def current(like, device: int) -> int:
    """Return the address of the current stream of the library of `like`: PyTorch's, or else CuPy's."""
    if _libraries[like.__class__] == "torch":
        return sys.modules["torch"]._C._cuda_getCurrentRawStream(device)  # a tenth of the time of what is public
    cupy = sys.modules.get("cupy")
    return cupy.cuda.get_current_stream(device).ptr if cupy is not None else 0


# ---------------------------------------------------------------- combine.cu


def factor(name: str, x) -> float:
    """alpha or beta, called `name`, as a float; ValueError, one sentence, for what is no real number of the host.

    x: a number of Python or NumPy, or an array of the host without dimensions.
    """
    device = getattr(x, "device", "cpu")
    on_host = getattr(device, "type", device) == "cpu" and not hasattr(x, "__cuda_array_interface__")
    if getattr(x, "shape", None) == () and on_host and hasattr(x, "item"):
        x = x.item()
    require(
        isinstance(x, Real) and not isinstance(x, bool),
        f"{name} is {x!r}, but must be a real number on the host",
    )
    require(
        not _MOST < abs(x) < float("inf"),
        f"{name} is {x!r}, but must be a number that float32 holds",
    )
    return float(x)


_MOST = float(np.finfo(np.float32).max)


def combine(x: Dense, y: Dense, alpha: float, beta: float, device, stream) -> None:
    """Enqueue y = alpha · x + beta · y on a `cuda.core.Stream`; ValueError where an address is no element's."""
    kind, size = DTYPES[x.dtype]
    require(
        x.ptr % size == y.ptr % size == 0,
        f"an array begins at an address that is no multiple of its elements' {size} bytes: copy it",
    )
    rows, columns, *of_x = matrix(x)
    i64, of_y = np.int64, matrix(y)[2:]
    blocks = max(1, min(_MOST_BLOCKS, ceil(rows / 32) * ceil(columns / 32)))
    arguments = np.int32(rows), np.int32(columns), x.ptr, *map(i64, of_x), y.ptr, *map(i64, of_y)
    scales = np.float32(alpha), np.float32(beta)
    workspace.enqueue(device, stream, SOURCE, f"combine<{kind}>", blocks, (32, 8), *arguments, *scales)
