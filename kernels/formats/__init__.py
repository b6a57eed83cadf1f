"""One file per format: how it is laid out, compressed, validated and expanded.

All but `half` and `eight`, which are dense, are sparse. Every module of a format has to_dense and validate; the
functions here find the module of an operand, so that others need not know which formats there are. `arrays` is what
all formats share, `stored` what two of them do, `reorder` changes a matrix, not a format, `foreign` is for matrices of
SciPy and CuPy, and `checks` finds faults of formats on the GPU.
"""

import importlib
from typing import Any

from . import arrays
from .arrays import to_device as to_device
from .eight import Eight
from .half import Half


def is_sparse(x: Any) -> bool:
    """Whether `x` is a matrix in one of the sparse formats here: neither an array nor a `Half` or `Eight`."""
    return _has_module(x) and not isinstance(x, (Half, Eight))


def to_dense(x: Any) -> Any:
    """`x` as a dense array on the side where it lives, a `Half` or an `Eight` in float32; an array as it is."""
    return _module(x).to_dense(x) if _has_module(x) else x


def to_host(x: Any) -> Any:
    """`x` with NumPy arrays: a format or an array of CuPy's, else as it is."""
    if _has_module(x):
        return arrays.to_host(x)
    return x.get() if hasattr(x, "get") else x


def validate(x: Any) -> Any:
    """Return a format as it is, or ValueError: one sentence, which array is wrong and where."""
    return _module(x).validate(x)


def to_csr(x: Any) -> Any:
    """`x` as `csr.Csr` on the side where it lives; as it is where its format has no way to that."""
    return getattr(_module(x), "to_csr", lambda same: same)(x)


def _has_module(x: Any) -> bool:
    return type(x).__module__.startswith(f"{__name__}.")


def _module(x: Any):
    return importlib.import_module(type(x).__module__)
