"""FP8 problems: A (m, k) 2:4 along k and B (k, n) dense, both e4m3 with scales; C (m, n) bfloat16 or e4m3.

C lies by rows, or, in bfloat16 and with orders "FF", by columns, as a linear layer has it.

B lies with k contiguous: its `bits` are the transposed view of a row-major (n, k) array, because 8-bit
operands of Hopper's tensor cores are not transposed on the way. `host_operands` and `device_operands`
make the same bits, the one with NumPy, the other with the kernels of `generate_eight.cu`.
"""

from math import ceil, sqrt
from pathlib import Path

import numpy as np

from .. import formats, splitmix
from ..contract import Operands, Problem, require
from ..formats import half, two_four
from ..formats.half import Eight, Half, array_module
from ..formats.two_four import TwoFourEight
from .operands import _B, _VALUES, device_places, fill, host_places, problem_of, require_sizes, swizzled

SOURCE = Path(__file__).with_name("generate_eight.cu")
ENTRIES = ("sparse_eight", "dense_eight")
DTYPE = "e4m3"
SCALES = ("tensor", "vectors")  # one for A and one for B; or one for each row of A and column of B
OUTS = ("bfloat16", "e4m3")
LIMITS = {"bfloat16": "fp8", "e4m3": "fp8_e4m3"}
LARGEST = np.float32(half.LARGEST[DTYPE])


def label(scale: str = "tensor", out: str = "bfloat16", orders: str = "CC") -> str:
    """How records and choices name such a problem: "e4m3", "e4m3 scaled by vectors to e4m3", "e4m3 linear"."""
    return (
        "e4m3"
        + (" scaled by vectors" if scale == "vectors" else "")
        + (" to e4m3" if out == "e4m3" else "")
        + (" linear" if orders == "FF" else "")
    )


def problem(
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
    """C (m, n) = A (m, k) · B (k, n) with random A and B; sizes need not be multiples of anything.

    Values are uniform in (-1, 1) before they are rounded to e4m3 over scales of 1/448, and with "vectors" times
    0.5 to 2 by row of A and by column of B. out: the dtype of C, "bfloat16" or "e4m3", whose scale leaves room for
    eight standard deviations. orders: "FF": C by columns; B is in any case. Raises ValueError with one sentence for
    sizes from which no problem can be made, a density other than 0.5, an unknown scale, dtype or order, or a seed
    outside 0 to 2^32 - 1.
    """
    _require(m, n, k, out, density, seed)
    require(scale in SCALES, f"scale is {scale!r}, but must be one of {', '.join(SCALES)}")
    require(
        orders in ("CC", "FF") and (orders == "CC" or out == "bfloat16"),
        f"orders is {orders!r} for C in {out}, but must be 'CC', or 'FF' in bfloat16",
    )
    arguments = (int(m), int(n), int(k), int(seed), scale)
    return _problem(
        *(label(scale, out, orders), out, *arguments[:4]),
        make_host=lambda: host_operands(*arguments),
        make_device=lambda: device_operands(*arguments, out, orders),
        orders=orders,
    )


def problem_from(a: TwoFourEight, b: Eight, out: str = "bfloat16", out_scale: float = 1.0, name: str = "") -> Problem:
    """C (m, n) = A · B for given matrices, on the host or the device; validates both.

    b: (k, n), its bits column-major. out_scale: of C, where it is e4m3. name: "" for that of `label`. Raises
    ValueError with one sentence where a matrix is malformed or the two do not go together.
    """
    two_four.validate(a)
    require(a.dtype == b.dtype == DTYPE, f"A is {a.dtype} and B is {b.dtype}, but both must be {DTYPE}")
    require(
        a.k == b.shape[0],
        f"A has {a.k} columns and B has {b.shape[0]} rows, but a product needs as many",
    )
    m, n, k = a.m, b.shape[1], a.k
    require(
        b.bits.ndim == 2 and b.bits.dtype == np.uint8 and b.bits.T.flags.c_contiguous,
        "B must have its k contiguous: give the transposed view of a row-major (n, k) array of uint8",
    )
    half.require_scale(b.scale, ((1, 1), (1, n)))
    _require(m, n, k, out)
    require(out_scale > 0, f"the scale of C is {out_scale!r}, but must be positive")
    scale = "vectors" if a.scale.size > 1 or b.scale.size > 1 else "tensor"
    return _problem(
        *(name or label(scale, out), out, int(m), int(n), int(k), 0),
        make_host=lambda: Operands(formats.to_host(a), formats.to_host(b)),
        make_device=lambda: _on_device(a, b, out, out_scale),
    )


def host_operands(m: int, n: int, k: int, seed: int, scale: str) -> Operands:
    """Return A as TwoFourEight and B (k, n) as Eight, made with NumPy."""
    stored, meta = host_places(m, k, seed, 32)
    val = _values(splitmix.key(seed, _VALUES), m, stored.size) * stored.astype(np.uint8)
    b = _values(splitmix.key(seed, _B), n, k)
    scale_a, scale_b = scales(m, n, seed, scale)
    return Operands(TwoFourEight(m, k, DTYPE, val, meta, scale_a), Eight(DTYPE, b.T, scale_b))


def device_operands(m: int, n: int, k: int, seed: int, scale: str, out: str, orders: str = "CC") -> Operands:
    """Return the same operands as CuPy arrays, and an output C (m, n) of unspecified content."""
    import cupy

    val = cupy.empty((m, ceil(k / 32) * 16), cupy.uint8)
    meta = device_places(SOURCE, "sparse_eight", k, val, seed)
    b = fill(SOURCE, "dense_eight", cupy.empty((n, k), cupy.uint8), seed)
    scale_a, scale_b = map(cupy.asarray, scales(m, n, seed, scale))
    most = float(scale_a.max() * scale_b.max()) * float(LARGEST) ** 2
    system = 8 * sqrt(max(k / 2, 1)) / 3 * most / float(LARGEST)
    c = _output(m, n, out, system) if orders == "CC" else Half(out, _output(n, m, out, system).bits.T)
    return Operands(TwoFourEight(m, k, DTYPE, val, meta, scale_a), Eight(DTYPE, b.T, scale_b), c)


def scales(m: int, n: int, seed: int, scale: str) -> tuple[np.ndarray, np.ndarray]:
    """float32 scales of A, (1, 1) or (m, 1), and of B, (1, 1) or (1, n)."""
    one = 1 / LARGEST
    if scale == "tensor":
        return np.full((1, 1), one, np.float32), np.full((1, 1), one, np.float32)
    draw = np.random.default_rng([seed, m, n])
    of_a, of_b = (draw.uniform(0.5, 2, shape).astype(np.float32) * one for shape in ((m, 1), (1, n)))
    return of_a, of_b


def _values(key: int, rows: int, columns: int) -> np.ndarray:
    numbers = splitmix.uniform(key, rows * columns, "float32") * LARGEST
    return half.to_bits(numbers, DTYPE).reshape(rows, columns)


def _on_device(a: TwoFourEight, b: Eight, out: str, out_scale: float) -> Operands:
    import cupy

    output = _output(a.m, b.shape[1], out, out_scale)
    there = Eight(b.dtype, cupy.asarray(b.bits.T).T, cupy.asarray(b.scale))  # k contiguous as before
    return Operands(two_four.to_device(a), there, output)


def _output(m: int, n: int, out: str, scale: float):
    import cupy

    if out == "bfloat16":
        return Half(out, cupy.empty((m, n), cupy.uint16))
    return Eight(DTYPE, cupy.empty((m, n), cupy.uint8), cupy.full((1, 1), scale, cupy.float32))


def _require(m, n, k, out: str, density: float = 0.5, seed: int = 0) -> None:
    require_sizes(m, n, k, density, seed, 32)
    require(out in OUTS, f"C is {out!r}, but must be one of {', '.join(OUTS)}")


def _problem(name: str, out: str, *sizes: int, **of) -> Problem:
    out_bits = 16 if out == "bfloat16" else 8
    return problem_of(*sizes, bits=8, out_bits=out_bits, multiple=32, label=name, limit=LIMITS[out], **of)


def ring_metadata(a: TwoFourEight, rows: int = 64):
    """Metadata in the order of the ring: uint32 (m'/64, 2 k'), NumPy or CuPy.

    m' and k' are m and k rounded up to multiples of `rows` and 128; what is added is valid metadata of zeros. For
    each 64 rows and 64 columns of A there are the 128 words of `two_four.words`.
    """
    words = two_four.words(a.meta, rows)
    high, wide = words.shape[:2]
    xp = array_module(words)
    if wide % 2:
        words = xp.concatenate((words, xp.full((high, 1, 4, 32), 0x44444444, xp.uint32)), axis=1)
    return xp.ascontiguousarray(words).reshape(high, -1)


def pack(a: TwoFourEight, rows: int = 256):
    """Return A in the order of use: uint8 (m'/64, k'/128, 5120), NumPy or CuPy.

    m' and k' are m and k rounded up to multiples of `rows` and 128, with zeros. A piece is 64 rows and 128 columns of
    A: 64 values a row, whose four units of 16 bytes are, in row r, at u ^ (r // 2 % 4), the 64-byte swizzle of TMA,
    which wgmma undoes; then the 256 words of `ring_metadata`.
    """
    xp = array_module(a.val)
    words = ring_metadata(a, rows)
    high, wide = words.shape[0], words.shape[1] // 256
    val = xp.zeros((64 * high, 64 * wide), xp.uint8)
    val[: a.m, : a.k_pad // 2] = a.val
    pieces = xp.empty((high, wide, 5120), xp.uint8)
    pieces[:, :, :4096] = swizzled(val, 64).reshape(high, wide, 4096)
    pieces[:, :, 4096:] = words.view(xp.uint8).reshape(high, wide, 1024)
    return pieces


def kind(problem: Problem) -> tuple[str, bool, bool]:
    """Return the dtype of C, whether A has a scale for each row, B one for each column.

    ValueError for other operands.
    """
    operands = problem.device()
    a, b, c = operands.a, operands.b, operands.c
    require(
        isinstance(a, TwoFourEight) and isinstance(b, Eight) and a.dtype == b.dtype == DTYPE,
        f"the FP8 kernels take A as 2:4 and B dense in {DTYPE}, and {problem.room} has something else here: "
        "make a problem of fp8_operands",
    )
    return c.dtype, a.scale.shape[0] > 1, b.scale.shape[1] > 1
