"""One file per sparse format: how it is laid out, compressed, validated and expanded.

Every module of a format has to_dense, to_host and to_device; the functions here find the module of
an operand, so that others need not know which formats there are.
"""

from __future__ import annotations

import importlib
from typing import Any


def is_sparse(x: Any) -> bool:
    """Whether `x` is a matrix in one of the formats of this package, and not an array."""
    return type(x).__module__.startswith(f"{__name__}.")


def to_dense(x: Any) -> Any:
    """`x` as a dense array on the side where it lives; an array as it is."""
    return _module(x).to_dense(x) if is_sparse(x) else x


def to_host(x: Any) -> Any:
    """`x` with NumPy arrays: a format or an array of CuPy's, else as it is."""
    if is_sparse(x):
        return _module(x).to_host(x)
    return x.get() if hasattr(x, "get") else x


def _module(x: Any):
    return importlib.import_module(type(x).__module__)
