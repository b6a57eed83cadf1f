"""The system's problems: A (m, k) 2:4 along k, B (k, n) dense, C (m, n); 16-bit floats by rows, or e4m3 with scales.

A linear layer has activations of tokens x features: then B = Xᵀ and C = Yᵀ are column-major, orders "FF". In e4m3 B
lies with k contiguous in any case, because 8-bit operands of Hopper's tensor cores are not transposed on the way: its
`bits` are the transposed view of a row-major (n, k) array.

`host_operands` and `device_operands` make the same bits, the one with NumPy, the other with the kernels of
`generate.cu` and `generate_eight.cu`. The source names no data; values are random, because a GPU multiplies zeros with
less power and hence at higher clocks.
"""

from math import ceil, sqrt
from pathlib import Path

import numpy as np

from .. import jit, splitmix
from ..contract import Operands, Problem, require, require_seed, require_whole
from ..formats import compress, half, two_four
from ..formats.half import Eight, Half
from ..formats.two_four import TwoFour, TwoFourEight
from ..lazy import cupy

SYSTEM = "tensor_core_24"
FLOPS_DEF = "2·M·N·K"  # dense-equivalent: half of them multiply zeros (the source's footnote 4)
TILE = 128  # rows and columns of C that a block of the published kernel computes
EIGHT = "e4m3"  #: the dtype of 8 bits
#: dtype -> label in the records: the source's dtype has none.
LABELS = {"bfloat16": "", "float16": "float16", EIGHT: EIGHT}
#: Memory orders of B and C -> what a label says of them: k side by side in B, features side by side in C.
ORDERS = {"CC": "", "FF": "linear", "FC": "B by columns", "CF": "C by columns"}
SCALES = ("tensor", "vectors")  #: in e4m3: one for A and one for B; or one for each row of A and column of B
OUTS = ("bfloat16", EIGHT)  #: dtypes of C there
LIMITS = {"bfloat16": "fp8", EIGHT: "fp8_e4m3"}
LARGEST = np.float32(half.LARGEST[EIGHT])
SOURCE = Path(__file__).with_name("generate.cu")
#: dtype -> what makes A of it, and B: files and entries.
_EIGHT = Path(__file__).with_name("generate_eight.cu")
MADE = {
    "bfloat16": ((SOURCE, "sparse<BF16>"), (SOURCE, "dense<BF16>")),
    "float16": ((SOURCE, "sparse<FP16>"), (SOURCE, "dense<FP16>")),
    EIGHT: ((_EIGHT, "sparse_eight"), (_EIGHT, "dense_eight")),
}
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
    half.require_dtype(dtype)
    require(orders in ORDERS, f"orders is {orders!r}, but must be one of {', '.join(ORDERS)}")
    return _problem(m, n, k, density, seed, dtype, orders)


def problem_eight(
    m: int,
    n: int,
    k: int,
    density: float = 0.5,
    seed: int = 0,
    *,
    scale: str = "tensor",
    out: str = "bfloat16",
    orders: str = "CC",
) -> Problem:
    """Return the same in e4m3: values are rounded to it over scales of 1/448, A's padding is to 32 columns.

    scale: of `SCALES`; "vectors" are times 0.5 to 2 by row of A and by column of B. out: the dtype of C, "bfloat16" or
    "e4m3", whose scale leaves room for eight standard deviations. orders: "FF": C by columns; B is in any case. Raises
    ValueError as `problem` does, and for an unknown scale.
    """
    require(out in OUTS, f"C is {out!r}, but must be one of {', '.join(OUTS)}")
    require(scale in SCALES, f"scale is {scale!r}, but must be one of {', '.join(SCALES)}")
    require(
        orders in ("CC", "FF") and (orders == "CC" or out == "bfloat16"),
        f"orders is {orders!r} for C in {out}, but must be 'CC', or 'FF' in bfloat16",
    )
    return _problem(m, n, k, density, seed, EIGHT, orders, scale, out)


def _problem(m, n, k, density, seed, dtype: str, orders: str, scale: str = "tensor", out: str = "") -> Problem:
    form = _form(dtype)
    require_sizes(m, n, k, density, seed, form.UNIT)
    m, n, k, seed = map(int, (m, n, k, seed))  # NumPy's would wrap in the products
    nnz, size, out_size = m * two_four.padded(k, form.UNIT) // 2, np.dtype(form.VALUES).itemsize, 2 - (out == EIGHT)
    a, b, c = nnz * size + nnz // 4, size * k * n, out_size * m * n  # bytes; A: val and meta
    return Problem(
        room=SYSTEM,
        label=label_of(dtype, orders, scale, out),
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
        make_host=lambda: host_operands(m, n, k, seed, dtype, scale),
        make_device=lambda: device_operands(m, n, k, seed, dtype, orders, scale, out),
        limit=LIMITS.get(out, ""),
        orders=orders,
    )


def _form(dtype: str) -> type[TwoFour] | type[TwoFourEight]:
    return TwoFourEight if dtype == EIGHT else TwoFour


def label_of(dtype: str, orders: str = "CC", scale: str = "tensor", out: str = "") -> str:
    """Return what records call such a problem: "", "float16 linear", "e4m3 scaled by vectors to e4m3"."""
    said = "scaled by vectors" * (scale == "vectors"), "to e4m3" * (out == EIGHT)
    return " ".join(filter(None, (LABELS[dtype], *said, ORDERS[orders])))


def host_operands(m: int, n: int, k: int, seed: int, dtype: str, scale: str = "tensor") -> Operands:
    """Return A as TwoFour or TwoFourEight and B (k, n) as Half or Eight, made with NumPy."""
    form = _form(dtype)
    stored, meta = host_places(m, k, seed, form.UNIT)
    val = _values(splitmix.key(seed, _VALUES), (m, stored.size), dtype) * stored.astype(form.VALUES)
    if dtype != EIGHT:
        return Operands(TwoFour(m, k, dtype, val, meta), Half(dtype, host_dense(k, n, seed, dtype)))
    of_a, of_b = scales(m, n, seed, scale)
    return Operands(TwoFourEight(m, k, dtype, val, meta, of_a), Eight(dtype, host_dense(n, k, seed, dtype).T, of_b))


def device_operands(
    m: int, n: int, k: int, seed: int, dtype: str, orders: str = "CC", scale: str = "tensor", out: str = ""
) -> Operands:
    """Return the same operands as CuPy arrays, and an output C (m, n) of unspecified content."""
    of_a, of_b = scales(m, n, seed, scale)
    a = _form(dtype).empty(cupy, m, k, dtype, *([cupy.asarray(of_a)] if dtype == EIGHT else []))
    keys = (np.uint64(splitmix.key(seed, stream)) for stream in (_INDICES, _VALUES))
    given = np.int32(m), np.int32(k), *keys, a.val.data.ptr, a.meta.data.ptr
    jit.run_on_cupy_stream(*MADE[dtype][0], a.meta.size, THREADS, *given)
    c = cupy.empty((m, n), cupy.uint8 if out == EIGHT else cupy.uint16, order=orders[1])
    if dtype != EIGHT:
        b = device_dense(k, n, seed, dtype)
        return Operands(a, Half(dtype, compress.contiguous(b.T).T if orders[0] == "F" else b), Half(dtype, c))
    b = Eight(dtype, device_dense(n, k, seed, dtype).T, cupy.asarray(of_b))
    if out != EIGHT:
        return Operands(a, b, Half(out, c))
    most = float(of_a.max() * of_b.max()) * float(LARGEST) ** 2
    room = 8 * sqrt(max(k / 2, 1)) / 3 * most / float(LARGEST)
    return Operands(a, b, Eight(EIGHT, c, cupy.full((1, 1), room, cupy.float32)))


def scales(m: int, n: int, seed: int, scale: str) -> tuple[np.ndarray, np.ndarray]:
    """float32 scales of A, (1, 1) or (m, 1), and of B, (1, 1) or (1, n)."""
    one = np.full((1, 1), 1 / LARGEST, np.float32)
    if scale == "tensor":
        return one, one.copy()
    draw = np.random.default_rng([seed, m, n])
    of_a, of_b = (draw.uniform(0.5, 2, shape).astype(np.float32) * one for shape in ((m, 1), (1, n)))
    return of_a, of_b


def host_places(m: int, k: int, seed: int, multiple: int) -> tuple[np.ndarray, np.ndarray]:
    """(1 where a row stores a value, 0 where padding does; metadata): uint16, k rounded up to a multiple."""
    k_pad = two_four.padded(k, multiple)
    left = k - 4 * np.arange(k_pad // 4)  # columns from a group's first one on
    pairs = np.where(left >= 4, 6, np.where(left == 3, 3, 1)).astype(np.uint64)
    stored = np.clip(left[:, None] - np.arange(2), 0, 1).astype(np.uint16).ravel()
    choice = np.empty(m * k_pad // 4, np.uint8)
    for start in range(0, choice.size, _PANEL):
        at = splitmix.positions(range(start, min(start + _PANEL, choice.size)))
        draw = splitmix.random_u32(splitmix.key(seed, _INDICES), at)
        choice[start : start + _PANEL] = draw * pairs[at % pairs.size] >> np.uint64(32)
    return stored, two_four.pack_pairs(two_four.PAIRS[choice].reshape(m, -1))


def host_dense(rows: int, columns: int, seed: int, dtype: str) -> np.ndarray:
    """Return bit patterns of the dense matrix of a seed: of B, in e4m3 of its transpose."""
    return _values(splitmix.key(seed, _B), (rows, columns), dtype)


def device_dense(rows: int, columns: int, seed: int, dtype: str):
    """Return the same matrix as a CuPy array."""
    bits, key = cupy.empty((rows, columns), _form(dtype).VALUES), np.uint64(splitmix.key(seed, _B))
    given = np.uint64(bits.size), key, bits.data.ptr
    jit.run_on_cupy_stream(*MADE[dtype][1], ceil(bits.size / 8), THREADS, *given)  # eight numbers a thread
    return bits


def _values(key: int, shape: tuple[int, int], dtype: str) -> np.ndarray:
    """Return a row-major matrix of bit patterns from the numbers of one stream."""
    size = shape[0] * shape[1]
    if dtype == EIGHT:
        return half.to_bits(splitmix.uniform(key, size, "float32") * LARGEST, EIGHT).reshape(shape)
    return splitmix.uniform(key, size, dtype).reshape(shape)


def require_sizes(m, n, k, density: float = 0.5, seed: int = 0, multiple: int = 16) -> None:
    """Raise ValueError, one sentence, for sizes from which no problem can be made.

    multiple: of the padding of k, which would not fit the kernels' int otherwise.
    """
    for name, value, most in (("m", m, INT32_MAX), ("n", n, INT32_MAX), ("k", k, INT32_MAX - multiple + 1)):
        require_whole(name, value, 1, most)
    require(density == 0.5, f"density is {density!r}, but 2:4 keeps half: give 0.5")
    require_seed(seed)


def instance_of(operands: Operands) -> tuple:
    """Return what of operands kernels are compiled for: the dtype.

    In e4m3 that of C, then whether A has a scale for each row, and B one for each column.
    """
    a, b, c = operands.a, operands.b, operands.c
    return (a.dtype,) if a.dtype != EIGHT else (c.dtype, a.scale.shape[0] > 1, b.scale.shape[1] > 1)


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
