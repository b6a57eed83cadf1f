"""The system's problems: A (m, k) 2:4 along k, B (k, n) dense, C (m, n), 16-bit floats, by rows by default.

A linear layer has activations of tokens x features: then B = Xᵀ and C = Yᵀ are column-major, orders "FF".

`host_operands` and `device_operands` make the same bits, the one with NumPy, the other with the
kernels of `generate.cu`. The source names no data; values are random, because a GPU multiplies
zeros with less power and hence at higher clocks.
"""

from math import ceil
from pathlib import Path

import numpy as np

from .. import formats, jit, splitmix
from ..contract import Operands, Problem, require, require_seed, require_whole
from ..formats import compress, half, two_four
from ..formats.half import Half, array_module
from ..formats.two_four import TwoFour

SYSTEM = "tensor_core_24"
FLOPS_DEF = "2·M·N·K"  # dense-equivalent: half of them multiply zeros (the source's footnote 4)
TILE = 128  # rows and columns of C that a block of the published kernel computes
#: dtype -> label in the records: the source's dtype has none.
LABELS = {"bfloat16": "", "float16": "float16"}
#: Memory orders of B and C -> what a label says of them: k side by side in B, features side by side in C.
ORDERS = {"CC": "", "FF": "linear", "FC": "B by columns", "CF": "C by columns"}
SOURCE = Path(__file__).with_name("generate.cu")
#: What generate.cu calls a dtype.
_ENUM = {"bfloat16": "BF16", "float16": "FP16"}
ENTRIES = tuple(f"{kernel}<{dtype}>" for kernel in ("sparse", "dense") for dtype in _ENUM.values())
THREADS = 256
INT32_MAX = 2**31 - 1
_INDICES, _VALUES, _B = range(3)  # streams
_PANEL = 1 << 22  # numbers that NumPy makes at a time, to bound its temporaries


def problem(
    m: int, n: int, k: int, density: float = 0.5, seed: int = 0, *, dtype: str = "bfloat16", orders: str = "CC"
) -> Problem:
    """C (m, n) = A (m, k) · B (k, n) with random A and B; sizes need not be multiples of anything.

    Values are uniform in (-1, 1), rounded to `dtype`, and never zero; each group of four columns of
    A has one of the six pairs of indices. The padding of A, to k_pad = k rounded up to 16, is zeros
    with valid metadata, and a last group of one column stores one value and a zero. nnz counts what
    is stored, m · k_pad / 2 values. orders: memory orders of B and C, of `ORDERS`; numbers are the same in any. Raises
    ValueError with one sentence for sizes from which no problem can be made, a density other than 0.5, an unknown dtype
    or order, or a seed outside 0 to 2^32 - 1.
    """
    require_sizes(m, n, k, density, seed)
    half.require_dtype(dtype)
    require(orders in ORDERS, f"orders is {orders!r}, but must be one of {', '.join(ORDERS)}")
    arguments = (int(m), int(n), int(k), int(seed), dtype)  # NumPy's would wrap in the products
    return problem_of(
        *arguments[:4],
        label=label_of(dtype, orders),
        make_host=lambda: host_operands(*arguments),
        make_device=lambda: device_operands(*arguments, orders),
        orders=orders,
    )


def label_of(dtype: str, orders: str = "CC") -> str:
    """Return what the records call a dtype and memory orders."""
    return " ".join(filter(None, (LABELS[dtype], ORDERS[orders])))


def problem_from(a: TwoFour, b: Half, label: str = "") -> Problem:
    """C (m, n) = A · B for given matrices, on the host or the device; validates both.

    label: "" for the one that `problem` gives to the dtype. Raises ValueError with one sentence
    where a matrix is malformed or the two do not go together.
    """
    two_four.validate(a)
    half.validate(b)
    require(
        a.dtype == b.dtype,
        f"A is {a.dtype} and B is {b.dtype}, but the instruction takes one dtype: convert one",
    )
    require(
        a.k == b.shape[0],
        f"A has {a.k} columns and B has {b.shape[0]} rows, but a product needs as many",
    )
    m, n, k = int(a.m), int(b.shape[1]), int(a.k)
    require_sizes(m, n, k)
    return problem_of(
        *(m, n, k, 0),
        label=label or LABELS[a.dtype],
        make_host=lambda: Operands(formats.to_host(a), formats.to_host(b)),
        make_device=lambda: Operands(two_four.to_device(a), half.to_device(b), _output(m, n, a.dtype)),
    )


def host_operands(m: int, n: int, k: int, seed: int, dtype: str) -> Operands:
    """Return A as TwoFour and B (k, n) as Half, made with NumPy."""
    stored, meta = host_places(m, k, seed, 16)
    val = _values(splitmix.key(seed, _VALUES), (m, stored.size), dtype) * stored
    return Operands(TwoFour(m, k, dtype, val, meta), host_dense(k, n, seed, dtype))


def device_operands(m: int, n: int, k: int, seed: int, dtype: str, orders: str = "CC") -> Operands:
    """Return the same operands as CuPy arrays, and an output C (m, n) of unspecified content."""
    import cupy

    val = cupy.empty((m, ceil(k / 16) * 8), cupy.uint16)
    meta = device_places(SOURCE, f"sparse<{_ENUM[dtype]}>", k, val, seed)
    b = device_dense(k, n, seed, dtype)
    if orders[0] == "F":
        b = Half(dtype, compress.contiguous(b.bits.T).T)
    c = _output(m, n, dtype) if orders[1] == "C" else Half(dtype, _output(n, m, dtype).bits.T)
    return Operands(TwoFour(m, k, dtype, val, meta), b, c)


def host_places(m: int, k: int, seed: int, multiple: int) -> tuple[np.ndarray, np.ndarray]:
    """(1 where a row stores a value, 0 where padding does; metadata): uint16, k rounded up to a multiple."""
    k_pad = ceil(k / multiple) * multiple
    left = k - 4 * np.arange(k_pad // 4)  # columns from a group's first one on
    pairs = np.where(left >= 4, 6, np.where(left == 3, 3, 1)).astype(np.uint64)
    stored = np.clip(left[:, None] - np.arange(2), 0, 1).astype(np.uint16).ravel()
    choice = np.empty(m * k_pad // 4, np.uint8)
    for start in range(0, choice.size, _PANEL):
        at = splitmix.positions(range(start, min(start + _PANEL, choice.size)))
        draw = splitmix.random_u32(splitmix.key(seed, _INDICES), at)
        choice[start : start + _PANEL] = draw * pairs[at % pairs.size] >> np.uint64(32)
    return stored, two_four.pack_pairs(two_four.PAIRS[choice].reshape(m, -1))


def device_places(source: Path, entry: str, k: int, val, seed: int):
    """Metadata of an A, while a kernel writes its values into `val`, (m, k' / 2)."""
    import cupy

    meta = cupy.empty((val.shape[0], val.shape[1] // 8), cupy.uint16)
    sizes, keys = (np.int32(val.shape[0]), np.int32(k)), (splitmix.key(seed, stream) for stream in (_INDICES, _VALUES))
    arguments = (*sizes, *map(np.uint64, keys), val.data.ptr, meta.data.ptr)
    jit.run_on_cupy_stream(source, entry, meta.size, THREADS, *arguments)
    return meta


def fill(source: Path, entry: str, bits, seed: int):
    """Return the array, which a kernel fills with the numbers of B: eight at a time."""
    key = np.uint64(splitmix.key(seed, _B))
    jit.run_on_cupy_stream(source, entry, ceil(bits.size / 8), THREADS, np.uint64(bits.size), key, bits.data.ptr)
    return bits


def host_dense(rows: int, columns: int, seed: int, dtype: str) -> Half:
    """Return the dense matrix of a seed: B of a problem with as many rows and columns."""
    return Half(dtype, _values(splitmix.key(seed, _B), (rows, columns), dtype))


def device_dense(rows: int, columns: int, seed: int, dtype: str) -> Half:
    """Return the same matrix as a CuPy array."""
    import cupy

    return Half(dtype, fill(SOURCE, f"dense<{_ENUM[dtype]}>", cupy.empty((rows, columns), cupy.uint16), seed))


def require_extra(name: str, ops: Operands, beta: float, c, bias) -> None:
    """Raise ValueError, one sentence, where beta, c and bias do not go with a problem's operands.

    c: Half (m, n) in the output's memory order, not the output, looked at only where beta is not 0; bias: float32 (m,).
    """
    m, n = ops.c.shape
    if beta != 0:
        require(c is not None, f"{name} has nothing to multiply by beta = {beta}: give it c")
        require(
            c.dtype == ops.a.dtype and tuple(c.shape) == (m, n) and c.bits.strides == ops.c.bits.strides,
            f"{name} adds a {ops.a.dtype} c of {(m, n)} that lies in memory as the output, not {c.dtype} "
            f"{tuple(c.shape)} with strides of {c.bits.strides} bytes",
        )
        require(
            c.bits.data.ptr != ops.c.bits.data.ptr,
            f"{name} would change the c that it adds, so a second launch would add another: copy it",
        )
    if bias is not None:
        require(
            bias.dtype == np.float32 and bias.shape == (m,) and bias.flags.c_contiguous,
            f"{name} adds a contiguous float32 bias of {(m,)}, one for each row of C, not "
            f"{bias.dtype} {tuple(bias.shape)}",
        )


def swizzled(val, width: int):
    """Pieces of 64 rows and `width` values, (rows, pieces, 64, width), whose units of 16 bytes are swizzled.

    val: (64 rows, width pieces), NumPy or CuPy.
    """
    xp = array_module(val)
    units = val.reshape(val.shape[0] // 64, 64, -1, 4, width // 4).transpose(0, 2, 1, 3, 4)
    row, unit = xp.arange(64)[:, None], xp.arange(4)[None, :]
    return units[:, :, row, unit ^ row // 2 % 4].reshape(*units.shape[:3], width)


def _output(m: int, n: int, dtype: str) -> Half:
    import cupy

    return Half(dtype, cupy.empty((m, n), cupy.uint16))


def require_sizes(m, n, k, density: float = 0.5, seed: int = 0, multiple: int = 16) -> None:
    """Raise ValueError, one sentence, for sizes from which no problem can be made.

    multiple: of the padding of k, which would not fit the kernels' int otherwise.
    """
    for name, value, most in (("m", m, INT32_MAX), ("n", n, INT32_MAX), ("k", k, INT32_MAX - multiple + 1)):
        require_whole(name, value, 1, most)
    require(density == 0.5, f"density is {density!r}, but 2:4 keeps half: give 0.5")
    require_seed(seed)


def problem_of(
    m: int, n: int, k: int, seed: int, *, bits: int = 16, out_bits: int = 16, multiple: int = 16, **of
) -> Problem:
    """Return a problem of the system: what sizes say of it, and `of` for the rest.

    bits: of operands; out_bits: of C; multiple: of the padding of k.
    """
    nnz = m * ceil(k / multiple) * multiple // 2
    a, b, c = nnz * bits // 8 + nnz // 4, bits * k * n // 8, out_bits * m * n // 8  # bytes; A: val and meta
    return Problem(
        room=SYSTEM,
        m=m,
        n=n,
        k=k,
        nnz=nnz,
        density=0.5,
        seed=seed,
        useful_flops=2 * m * n * k,
        flops_def=FLOPS_DEF,
        least_bytes=a + b + c,
        # Every block reads its rows of A and its columns of B.
        requested_bytes=ceil(n / TILE) * a + ceil(m / TILE) * b + c,
        **of,
    )


def _values(key: int, shape: tuple[int, int], dtype: str) -> np.ndarray:
    """Return A row-major matrix of bit patterns from the numbers of one stream."""
    return splitmix.uniform(key, shape[0] * shape[1], dtype).reshape(shape)
