"""What GPU tests of the library multiply: matrices of every format, and B and out as callers may lay them."""

from dataclasses import replace

import numpy as np
import scipy.sparse as sp

from kernels import formats, gpu
from kernels.formats import bcsr, csr, half, nm, two_four, wcsr
from kernels.formats.half import Half, array_of
from kernels.formats.nm import Nm
from kernels.library import current, operands, plans, routes

#: The largest ‖out − right‖ / ‖right‖, by what products are made in, or by the dtype that out is rounded to.
LIMITS = {"float32": 1e-5, "tf32": 2e-3, "bfloat16": 4e-3, "float16": 1e-3}
WAYS = [  # A, dtype of B, accuracy, limit
    ("csr", "float32", None, "float32"),
    ("csr", "float32", "tf32", "tf32"),
    ("csr bfloat16", "bfloat16", None, "bfloat16"),
    ("csr float16", "float16", None, "float16"),
    ("wcsr", "float32", None, "float32"),
    ("bcsr64 float32", "float32", None, "float32"),
    ("bcsr64 float32", "float32", "tf32", "tf32"),
    ("bcsr64 bfloat16", "bfloat16", None, "bfloat16"),
    ("bcsr32 float16", "float16", None, "float16"),
    ("2:4 bfloat16", "bfloat16", None, "bfloat16"),
    ("2:4 float16", "float16", None, "float16"),
    ("2:4 bfloat16", "float32", None, "float32"),
    ("nm", "float32", None, "float32"),
    ("nm", "float32", "tf32", "tf32"),
    ("nm bfloat16", "bfloat16", None, "bfloat16"),
]
HOPPERS = "nm bfloat16"  #: what has no kernel elsewhere


def numbers(shape, dtype: str = "float32", seed: int = 0) -> np.ndarray:
    """float32, of normal distribution, that a dtype holds."""
    x = np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
    return half.from_bits(half.to_bits(x, dtype), dtype) if dtype in half.DTYPES else x


def on_gpu(x: np.ndarray, dtype: str = "float32", how: str = "C"):
    """An array of CuPy's, or a `Half` of one, in a larger one, all bits set, NaN: along rows or columns, with gaps, or
    at an odd place."""
    import cupy

    bits = half.to_bits(x, dtype) if dtype in half.DTYPES else x
    flat = cupy.empty((6 if how == "gaps" else 1) * x.size + 1, bits.dtype)
    flat.data.memset_async(0xFF, flat.nbytes)  # on the current stream, as what follows
    if how == "gaps":
        made = flat[:-1].reshape(2 * x.shape[0], 3 * x.shape[1])[::2, ::3]
    else:
        line = flat[1 : x.size + 1] if how == "odd" else flat[: x.size]
        made = line.reshape(x.shape[::-1]).T if how == "F" else line.reshape(x.shape)
    made[...] = cupy.asarray(bits)
    return Half(dtype, made) if dtype in half.DTYPES else made


def poisoned(m: int, n: int, dtype: str, how: str = "C"):
    """An out of NaN."""
    return on_gpu(np.full((m, n), np.nan, np.float32), dtype, how)


def left_alone(out) -> bool:
    """Whether what lies between the elements of an array of `on_gpu` is as it was."""
    x = array_of(out)
    bits = x.base.view(f"u{x.itemsize}")
    return int((bits == np.iinfo(bits.dtype).max).sum()) == bits.size - x.size


def wide(x) -> np.ndarray:
    """float64 on the host."""
    x = formats.to_host(x)
    return (half.to_dense(x) if isinstance(x, Half) else np.asarray(x)).astype(np.float64)


def error(found, right: np.ndarray) -> float:
    return float(np.linalg.norm(wide(found) - right) / np.linalg.norm(right))


def scattered(m: int, k: int, density: float = 0.1, dtype: str = "float32"):
    a = sp.random(m, k, density, format="csr", random_state=1, dtype=np.float32)
    a.data = numbers(a.nnz, dtype, 2)
    return a


def of_format(kind: str, m: int, k: int):
    """(A, as float64): values that float16 or bfloat16 hold where the name says so."""
    name, _, dtype = kind.partition(" ")
    if name in ("csr", "wcsr"):
        a = csr.from_scipy(scattered(m, k, dtype=dtype or "float32"))
        a = wcsr.from_csr(a, dtype="float32") if name == "wcsr" else a
    elif name == "2:4":
        a = two_four.random(m, k, dtype, 0)
    elif name == "nm":
        a = nm.random(k, m, 8, 32, 16, 0)
        a = replace(a, val=half.from_bits(half.to_bits(a.val, dtype), dtype)) if dtype else a
    else:
        a = bcsr.random(m, k, 0.6, 0, block=int(name.removeprefix("bcsr")), dtype=dtype)
    dense = formats.to_dense(a).astype(np.float64)
    return a, dense.T if isinstance(a, Nm) else dense


def planned(a, n: int, dtype: str, accuracy=None, *, order="C", target="", tune=False, choice="") -> plans.Plan:
    """A plan on the GPU; target: "portable": as other GPUs make it, or a number, and with so little shared memory.
    choice: of kernels, which is taken."""
    with current.opened(0) as here:
        if target:
            here = gpu.Portable(here, None if target == "portable" else int(target))
        asked, a = operands.resolved(accuracy, dtype), formats.to_device(a)
        explicit = accuracy is not None or bool(choice)
        way = routes.route(a, dtype, asked, here, order=order, out_order=order, explicit=explicit)
        return plans.built(way, n, dtype, asked, here, tune, choice)
