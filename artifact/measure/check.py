"""Is the output right? It is compared with a float64 oracle before any number is recorded, before
the timed launches and after them.

    rel_err = ‖out - ref‖ / ‖ref‖                               Frobenius norms
    max_err = max |out - ref| / max(|ref|, rms(ref))            the largest element-wise error

The element-wise error is relative to the reference element, but to the root mean square of all
elements where the element is smaller than that: a sum that cancels to nearly nothing has no
relative accuracy in float32 in any order. For operands without signs, as casperSPARSE draws them,
it is the plain relative error up to a small factor.

The oracle comes before the contenders are bound: what one does to the operands cannot reach it. On
the GPU it multiplies with the libraries that are among the contenders, in float64, so its product C
is confirmed without them: C·x = A·(B·x) in every row, for a random vector x (Freivalds).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from artifact.measure import device
from kernels import formats
from kernels.contract import Bound, Problem
from kernels.formats import csr, eight, half
from kernels.formats.half import Half, array_of


@dataclass(frozen=True)
class Limit:
    """Largest errors with which an output still counts as right."""

    rel_err: float
    max_err: float
    why: str


#: dtype of the output, or what `Problem.limit` names instead -> limit. The method page of the book shows
#: this table.
LIMITS = {
    "float32": Limit(
        1e-5,
        1e-4,
        "float32 sums of float32 products: 6e-8 each, 1e-7 to 1e-6 where hundreds of them add up "
        "here; tf32 operands would already show 3e-4 where signs differ and 1e-5 in long sums of "
        "one sign, a lost or repeated non-zero 1e-3 in its row",
    ),
    "tf32": Limit(
        1e-4,
        1e-3,
        "float32 results of TF32 operands: products of 11-bit numbers are exact, but tensor cores cut "
        "off what their sums cannot hold instead of rounding it, so errors add up with k: 1e-5 at "
        "k = 4096; a lost or repeated non-zero still 1e-2 in its row",
    ),
    "float16": Limit(
        1e-3,
        4e-3,
        "float32 sums of exact products, rounded once to 11 bits: 5e-4 at most, 3e-4 in the norm",
    ),
    "bfloat16": Limit(
        4e-3,
        1.6e-2,
        "float32 sums of exact products, rounded once to 8 bits: 4e-3 at most, 2e-3 in the norm",
    ),
    "fp8": Limit(
        8e-3,
        4e-2,
        "bfloat16 results of e4m3 operands: products are exact, but Hopper's tensor cores align what they add "
        "to the largest and cut it off 13 bits behind its first one (DeepSeek-V3 Technical Report, section "
        "3.5.2: 14 bits in all), once in 64 columns of A: in a model of that 2e-3 in the norm and 1e-2 at most "
        "at k = 16384, beside the rounding to bfloat16; a lost non-zero shows in operands of small whole "
        "numbers, whose sums are exact",
    ),
    "fp8_e4m3": Limit(
        4e-2,
        1.1e-1,
        "the same rounded to 4 bits: 6.3e-2 at most, 2.6e-2 in the norm, beside the sums' own error",
    ),
}
#: Multiply-adds, and elements of B and C, up to which the CPU is the oracle even where there is a
#: GPU (SciPy for CSR, else NumPy); beyond, it is the GPU's float64 through CuPy.
CPU_WORK = 2**24
#: A sparse format that can become CSR is multiplied so where fewer than one element in so many is a
#: non-zero, or where it has more than so many elements; else it is multiplied dense, which is faster
#: there: float64 matrix units against a library's gathering.
CSR_BELOW = 64
DENSE_ELEMENTS = 2**30
#: float64 elements of A, B or C that an oracle handles at a time (1 GiB), to bound its temporaries.
PANEL_ELEMENTS = 2**27
#: Elements that are compared at a time, likewise.
COMPARE_ELEMENTS = 2**24
#: Largest deviation of C·x from A·(B·x), x standard-normal, over the norm of that row of C, or the
#: rows' root mean square where that is larger. Rounding in float64 leaves 1e-12; one element of 2^15
#: in a row that is off by as little as the tightest limit above moves it by 5e-7.
CONFIRM_TOLERANCE = 1e-9


class WrongResult(ArithmeticError):
    """A kernel's output is not the product; the message is one sentence."""


@dataclass(frozen=True)
class Errors:
    """Errors as the records keep them; see the module for their definitions."""

    rel_err: float
    max_err: float


@dataclass(frozen=True)
class Reference:
    """C in float64 (m, n), NumPy or CuPy, with its Frobenius norm and root mean square."""

    values: Any
    norm: float
    rms: float


def oracle(problem: Problem, *, on: str = "auto") -> Reference:
    """The product in float64, on the operands that the contenders get; to be made before them.

    on: "cpu" (host operands), "gpu" (device operands; on the CPU up to `CPU_WORK` multiply-adds) or
    "auto" (the GPU if CuPy finds one). A CSR matrix A is multiplied as it is: repeated entries add
    up, columns need no order. Operands of any other sparse format are made dense first, or CSR where
    that takes less (`CSR_BELOW`). B may be a `Half`, in any memory order. Raises WrongResult, one
    sentence, where a product of the GPU's cannot be confirmed.
    """
    if on not in ("auto", "cpu", "gpu"):
        raise ValueError(f"on is {on!r}, but must be 'auto', 'cpu' or 'gpu'")
    host = on == "cpu" or (on == "auto" and not _gpu())
    operands = problem.host() if host else problem.device()
    size = problem.m * problem.k
    few = problem.nnz * CSR_BELOW < size or size > DENSE_ELEMENTS
    first = formats.to_csr(operands.a) if few and formats.is_sparse(operands.a) else operands.a
    sparse = isinstance(first, csr.Csr)
    terms = problem.nnz if sparse else size
    small = max(terms, problem.k, problem.m) * problem.n <= CPU_WORK
    if not host and not small:
        a, b = first, _dense(operands.b)
        if not sparse:
            a = _dense(a)
        values = cupy_product(a, b) if sparse else dense_product(a, b)
        confirm(values, a, b, describe(problem))
        return reference(values)
    a, b = (first, operands.b) if host else map(formats.to_host, (first, operands.b))
    values = scipy_product(a, b) if sparse else dense_product(a, b)
    if host:
        return reference(values)
    import cupy

    return reference(cupy.asarray(values))


def confirm(values, a, b, where: str) -> None:
    """Raise WrongResult, one sentence that names `where`, unless `values` is A·B.

    values: float64 (m, n); a: (m, k), an array, a `Half` or `formats.csr.Csr`; b: (k, n), an array or
    a `Half`; all on one side. Without any library's multiplication: dense matrices element by element
    and summed, a CSR matrix by SciPy on the CPU, all in float64. A vector tells nearly every wrong
    product from the right one (Freivalds, "Probabilistic machines can use less running time", 1977).
    """
    if not values.size:
        return
    xp = _array_module(values)
    x = xp.asarray(np.random.default_rng(0).standard_normal(values.shape[1]))
    y = _times(b, x)
    if isinstance(a, csr.Csr):
        host = a if xp is np else formats.to_host(a)
        exact = xp.asarray(scipy_product(host, _here(y)[:, None])[:, 0])
    else:
        exact = _times(a, y)
    norm = xp.sqrt(xp.concatenate([xp.square(part).sum(axis=1) for part in _parts(values)]))
    scale = xp.maximum(norm, math.sqrt(float(xp.square(norm).mean())))
    off = xp.abs(_times(values, x) - exact)
    wrong = ~(off <= CONFIRM_TOLERANCE * scale)  # NaN is wrong as well
    if bool(wrong.any()):
        row = int(wrong.argmax())
        raise WrongResult(
            f"the float64 product that results are compared with is itself wrong at {where}: row {row} "
            f"is off by {float(off[row]):.1e} where its norm is {float(norm[row]):.1e}"
        )


def reference(values) -> Reference:
    """Wrap a float64 product, NumPy or CuPy, with its norm."""
    xp = _array_module(values)
    square = sum(float(xp.square(part).sum()) for part in _parts(values))
    return Reference(values, math.sqrt(square), math.sqrt(square / max(values.size, 1)))


def scipy_product(a, b) -> np.ndarray:
    """A·B in float64 with SciPy, whose loop adds repeated entries up.

    a: `formats.csr.Csr` of NumPy arrays; b: (k, n), an array or a `Half`.
    """
    from scipy.sparse import csr_array

    matrix = csr_array((a.val.astype(np.float64), a.col_idx, a.row_ptr), shape=(a.m, a.k))
    return np.asarray(matrix @ _numbers(b, array_of(b)).astype(np.float64))


def dense_product(a, b):
    """A·B in float64 with NumPy or CuPy, on the side where both live, row-major.

    a: (m, k), b: (k, n), either of them a format of `kernels.formats` or an array. Only panels are
    in float64, and of a `Half` in float32.
    """
    a, b = _dense(a), _dense(b)
    xp = _array_module(array_of(a))
    (m, k), n = a.shape, b.shape[1]
    out = xp.zeros((m, n), xp.float64)
    height, width = (max(1, PANEL_ELEMENTS // max(k, size, 1)) for size in (n, m))
    for i in range(0, m, height):
        rows = _numbers(a, array_of(a)[i : i + height]).astype(xp.float64)
        for j in range(0, n, width):
            columns = _numbers(b, array_of(b)[:, j : j + width]).astype(xp.float64)
            out[i : i + height, j : j + width] = rows @ columns
    return out


def cupy_product(a, b):
    """A·B in float64 with cuSPARSE through CuPy, row-major.

    a: `formats.csr.Csr` of CuPy arrays; b: (k, n), an array or a `Half`.

    CuPy wants B and C column-major and A canonical, hence copies: of A once, of B and C a panel of
    columns at a time.
    """
    import cupy
    from cupyx.scipy.sparse import csr_matrix

    n = b.shape[1]
    out = cupy.zeros((a.m, n), cupy.float64)
    if a.nnz == 0:
        return out
    # copy=True: sum_duplicates must not be able to touch the contenders' operands.
    matrix = csr_matrix(
        (a.val.astype(cupy.float64), a.col_idx, a.row_ptr), shape=(a.m, a.k), copy=True
    )
    matrix.sum_duplicates()  # also sorts; cuSPARSE itself promises nothing about repeated entries
    width = max(1, PANEL_ELEMENTS // max(a.m, a.k, 1))
    for j in range(0, n, width):
        panel = _numbers(b, array_of(b)[:, j : j + width]).astype(cupy.float64, order="F")
        out[:, j : j + width] = matrix @ panel
    return out


def check(
    bound: Bound,
    problem: Problem,
    reference: Reference,
    stream=None,
    *,
    launch: Callable[[], Any] | None = None,
    when: str = "",
) -> Errors:
    """Poison the output, launch once, compare; the errors, or WrongResult with one sentence.

    stream: `cuda.core.Stream` to launch on; None for a contender that runs on the CPU. launch: how
    to launch instead, and to wait for the end. when: for the sentence, "after timing" say.
    `bound.result()` must be the array, `Half` or `Eight` that the launch writes, since that one is filled
    with NaN first. The compared dtype is that of the result.
    """
    out = bound.result()
    where = " ".join(filter(None, (bound.name, when, "at", describe(problem))))
    if tuple(out.shape) != tuple(reference.values.shape):
        raise WrongResult(
            f"{where} returns an array of shape {tuple(out.shape)}, "
            f"but the product has {tuple(reference.values.shape)}"
        )
    out.fill(math.nan)
    _finish(out)
    try:
        if launch is not None:
            launch()
        else:
            bound.launch(stream)
            if stream is not None:
                stream.sync()
    except (
        Exception
    ) as error:  # the driver's and the libraries' errors have no public class in common
        raise WrongResult(f"{where} failed to run: {device.first_line(error)}") from error
    return compare(bound.result(), reference, where, problem.limit)


def compare(out, reference: Reference, where: str = "the result", limit: str = "") -> Errors:
    """Errors of `out` against the reference, each NumPy or CuPy and in any memory order.

    out: an array or a `Half`. limit: of `LIMITS`, instead of the one of `out`'s dtype. Raises
    WrongResult, one sentence that begins with `where`, if they exceed the limit.
    """
    stored = array_of(out)
    xp = _array_module(stored)
    kind = limit or (out.dtype if isinstance(out, Half) else out.dtype.name)
    if kind not in LIMITS:
        raise ValueError(
            f"{where} is {kind}, for which there is no error limit: "
            f"add one to LIMITS, which has {', '.join(LIMITS)}"
        )
    most_of = LIMITS[kind]
    square = worst = 0.0
    missing, first = 0, -1
    offset = 0
    for part, exact in zip(_parts(stored), _parts(reference.values), strict=True):
        # Row-major, so that a position in it is a row and a column.
        part = _numbers(out, part).astype(xp.float64, order="C")
        exact = _beside(exact, xp)
        holes = xp.isnan(part)
        count = int(holes.sum())
        if count and first < 0:
            first = offset + int(holes.argmax())
        missing += count
        offset += part.size
        if missing:
            continue
        off = xp.abs(part - exact)
        square += float(xp.square(off).sum())
        scale = xp.maximum(xp.abs(exact), reference.rms)
        # An all-zero reference leaves no scale: then any deviation at all is wrong, and none is 0.
        ratio = off / scale if reference.rms else xp.where(off == 0, 0.0, math.inf)
        worst = max(worst, float(ratio.max()))
    if missing:
        row, column = divmod(first, out.shape[1])
        raise WrongResult(
            f"{where} leaves {missing} of {out.size} elements unwritten or NaN, "
            f"the first at row {row}, column {column}"
        )
    norm = math.sqrt(square)
    rel_err = norm / reference.norm if reference.norm else (0.0 if norm == 0 else math.inf)
    for name, value, most in (
        ("relative error", rel_err, most_of.rel_err),
        ("largest element-wise error", worst, most_of.max_err),
    ):
        if not value <= most:
            raise WrongResult(
                f"{where} is wrong: {name} {value:.2e}, but at most {most:.0e} for {kind}; "
                f"{_first_wrong(out, reference, most_of.max_err)}"
            )
    return Errors(rel_err, worst)


def _first_wrong(out, reference: Reference, most: float) -> str:
    """Where a wrong output is wrong first, in words: the first element over the element-wise limit, or the farthest off
    where none is."""
    stored, offset, farthest = array_of(out), 0, (-1.0, 0, 0.0, 0.0)
    xp = _array_module(stored)
    for part, exact in zip(_parts(stored), _parts(reference.values), strict=True):
        part = _numbers(out, part).astype(xp.float64, order="C")
        exact = _beside(exact, xp)
        ratio = xp.abs(part - exact) / xp.maximum(xp.abs(exact), reference.rms or 1.0)
        over = ratio > most
        found = bool(over.any())
        at = int((over if found else ratio).argmax())
        off = float(ratio.ravel()[at])
        if found or off > farthest[0]:
            farthest = (off, offset + at, float(part.ravel()[at]), float(exact.ravel()[at]))
        if found:
            break
        offset += part.size
    else:
        found = False
    _, at, value, right = farthest
    row, column = divmod(at, out.shape[1])
    which = "the first such element" if found else "the element that is farthest off"
    return f"{which}, at row {row}, column {column}, is {value:.6g} instead of {right:.6g}"


def describe(problem: Problem) -> str:
    """A problem in a sentence: its matrix's name, if it has one, and its sizes."""
    name = f"{problem.label}, " if problem.label else ""
    return f"{name}m={problem.m}, n={problem.n}, k={problem.k}, {problem.nnz} non-zeros"


def _dense(x):
    """`x` without the zeros that a sparse format leaves out; an array or a `Half` as it is."""
    return formats.to_dense(x) if formats.is_sparse(x) else x


def _times(matrix, x):
    """A dense matrix, or a `Half`, times a vector, in float64 and without a library."""
    xp = _array_module(x)
    parts = [
        (_numbers(matrix, part).astype(xp.float64) * x).sum(axis=1)
        for part in _parts(array_of(matrix))
    ]
    return xp.concatenate(parts) if parts else xp.zeros(len(array_of(matrix)))


def _here(array) -> np.ndarray:
    """`array` as NumPy's."""
    return array if isinstance(array, np.ndarray) else array.get()


def _numbers(x, part):
    """What a part of `array_of(x)` stands for."""
    if isinstance(x, eight.Eight):  # of results, which have one scale for all
        return eight.from_bits(part, x.dtype) * x.scale
    return half.from_bits(part, x.dtype) if isinstance(x, Half) else part


def _parts(array):
    """The rows in order, about `COMPARE_ELEMENTS` elements at a time; nothing is copied."""
    height = max(1, COMPARE_ELEMENTS // max(math.prod(array.shape[1:]), 1))
    for start in range(0, len(array) if array.size else 0, height):
        yield array[start : start + height]


def _beside(array, xp):
    """`array` as an array of the module `xp`: a CPU's output may have a GPU's reference."""
    return _here(array) if xp is np else xp.asarray(array)


def _finish(array) -> None:
    """Wait until the poison is in place: the launch may go to another stream than CuPy's."""
    if not isinstance(array_of(array), np.ndarray):
        import cupy

        cupy.cuda.get_current_stream().synchronize()


def _array_module(array):
    if isinstance(array, np.ndarray):
        return np
    import cupy

    return cupy


def _gpu() -> bool:
    return device.find() is not None
