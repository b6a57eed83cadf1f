"""What tests ask of two results: that they are the same."""

from dataclasses import fields, is_dataclass

import numpy as np

from kernels import formats


def alike(found, expected, what: str = "", there: bool = False) -> None:
    """Formats, tuples of arrays, arrays and numbers are equal to the bit, dtypes included; NaN is NaN.

    there: and what was found lies on a GPU, without gaps.
    """
    if is_dataclass(expected):
        assert type(found) is type(expected), what
        found, expected = ([getattr(x, f.name) for f in fields(expected) if f.compare] for x in (found, expected))
    if isinstance(expected, tuple | list):
        for i, pair in enumerate(zip(found, expected, strict=True)):
            alike(*pair, f"{what} {i}", there)
    elif isinstance(expected, np.ndarray):
        assert (found.dtype, found.shape) == (expected.dtype, expected.shape), what
        assert not there or (type(found) is not np.ndarray and found.flags.c_contiguous), what
        np.testing.assert_array_equal(_bits(found), _bits(expected), err_msg=what)
    else:
        assert found == expected, what


def _bits(x) -> np.ndarray:
    x = np.asarray(formats.to_host(x))
    return np.where(x == x, x, x.dtype.type(np.nan)).view(f"i{x.itemsize}") if x.dtype.kind == "f" else x
