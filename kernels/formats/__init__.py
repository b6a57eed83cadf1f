"""One file per format: how it is laid out, compressed, validated and expanded.

All but those of `half`, which are dense, are sparse. Every module of a format has to_dense and validate; the functions
here find the module of an operand, so that others need not know which formats there are. `arrays` is what all formats
share, `reorder` changes a matrix, not a format, and `foreign` is for matrices of SciPy and CuPy.
"""

import importlib
from typing import Any

from . import arrays
from .arrays import Arrays, to_device as to_device
from .half import Dense


def is_sparse(x: Any) -> bool:
    """Whether `x` is a matrix in one of the sparse formats here: neither an array nor a `Half` or `Eight`."""
    return isinstance(x, Arrays) and not isinstance(x, Dense)


def to_dense(x: Any) -> Any:
    """`x` as a dense array on the side where it lives, a `Half` or an `Eight` in float32; an array as it is."""
    return _module(x).to_dense(x) if isinstance(x, Arrays) else x


def to_host(x: Any) -> Any:
    """`x` with NumPy arrays: a format or an array of CuPy's, else as it is."""
    if isinstance(x, Arrays):
        return arrays.to_host(x)
    return x.get() if hasattr(x, "get") else x


def validate(x: Any) -> Any:
    """Return a format as it is, or ValueError: one sentence, which array is wrong and where."""
    return _module(x).validate(x)


def to_csr(x: Any) -> Any:
    """`x` as `csr.Csr` on the side where it lives; as it is where its format has no way to that."""
    return getattr(_module(x), "to_csr", lambda same: same)(x)


def _module(x: Any):
    return importlib.import_module(type(x).__module__)
