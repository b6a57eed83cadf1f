"""Is the output right?

It is compared with a float64 oracle before any number is recorded, before the timed launches and after them.

    rel_err = ‖out - ref‖ / ‖ref‖                               Frobenius norms
    max_err = max |out - ref| / max(|ref|, rms(ref))            the largest element-wise error

The element-wise error is relative to the reference element, but to the root mean square of all
elements where the element is smaller than that. For operands without signs, as casperSPARSE draws
them, it is the plain relative error up to a small factor.

    bound   = max |out - ref| / what rounding explains          at most 1, or the output is wrong

What rounding explains of an element grows with the sum of its products' magnitudes, (|A|·|B|) of that
element: a sum that cancels has no relative accuracy in float32 in any order, and next to a row of a
hundred thousand products one of five is held to its own five. See `kernels.autotune.probe`, and
`_explained` here. What no such limit shows, one lost product in a long sum of 16 bits, TF32 in place of
float32, shows on operands whose product is exact (`probe`), where nothing but that product is right.

The oracle comes before the contenders are bound: what one does to the operands cannot reach it. On
the GPU it multiplies with the libraries that are among the contenders, in float64, so its product C
is confirmed without them: C·x = A·(B·x) in every row, for a random vector x (Freivalds).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from artifact.measure import device
from kernels import formats
from kernels.autotune import probe
from kernels.contract import PreparedKernel, Problem, require
from kernels.formats import csr, half
from kernels.formats.half import Dense, array_module, array_of
from kernels.lazy import Lazy, cupy


class Limit(NamedTuple):
    """Largest errors with which an output still counts as right, and why these."""

    rel_err: float
    #: Of products whose magnitudes nobody summed; else what an element in 16 bits may be off by where partial sums were
    #: rounded to them, too.
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


#: Of the norm of a product whose sums cancel, over that of its magnitudes' sums: eight times what is usual, half of
#: 2^-24. Sums of L products of random signs are about the root of L smaller than those of their magnitudes.
IN_LONG_SUMS = 8 * probe.UNIT / 2


class WrongResult(ArithmeticError):
    """A kernel's output is not the product; the message is one sentence."""


class Errors(NamedTuple):
    """Errors as the records keep them; see the module for their definitions."""

    rel_err: float
    max_err: float
    bound: float = math.nan  #: NaN where nobody summed the magnitudes of products


@dataclass(frozen=True)
class Reference:
    """C in float64 (m, n), NumPy or CuPy, with its Frobenius norm and root mean square."""

    values: Any
    norm: float
    rms: float
    sizes: Any = None  #: |A|·|B| in float32 (m, n), on the same side
    longest: int = 1  #: products of the longest sum, or more
    size_norm: float = 0.0  #: Frobenius norm of `sizes`


def oracle(problem: Problem, *, on: str = "auto", sizes: bool = True) -> Reference:
    """Return the product in float64, on the operands that the contenders get; to be made before them.

    on: "cpu" (host operands), "gpu" (device operands; on the CPU up to `CPU_WORK` multiply-adds) or
    "auto" (the GPU if CuPy finds one). A CSR matrix A is multiplied as it is: repeated entries add
    up, columns need no order. So is the one that A was converted from, where the problem has it
    (`Problem.source`): what the conversion loses is an error then. Operands of any other sparse format
    are made dense first, or CSR where that takes less (`CSR_BELOW`). B may be a `Half`, in any memory
    order. sizes: whether magnitudes are summed as well. Raises WrongResult, one sentence, where a product
    of the GPU's cannot be confirmed.
    """
    host = on == "cpu" or (on == "auto" and device.find() is None)
    operands = problem.host() if host else problem.device()
    a, b, size = operands.a, operands.b, problem.m * problem.k
    few = problem.nnz * CSR_BELOW < size or size > DENSE_ELEMENTS
    if problem.source is not None:
        a = problem.source if host else formats.to_device(problem.source)
    elif few and formats.is_sparse(a):
        a = formats.to_csr(a)
    sparse = isinstance(a, csr.Csr)
    here = host or max(problem.nnz if sparse else size, problem.k, problem.m) * problem.n <= CPU_WORK
    if here and not host:
        a, b = formats.to_host(a), formats.to_host(b)
    if not sparse:
        a, b = _dense(a, b)
    multiply = sparse_product if sparse else dense_product
    values = multiply(a, b)
    if not here:
        confirm(values, a, b, describe(problem))
    summed = multiply(_unsigned(a), _unsigned(b), np.float32) if sizes else None
    if here and not host:
        values, summed = (None if x is None else cupy.asarray(x) for x in (values, summed))
    longest = array_module(a.row_ptr).diff(a.row_ptr, prepend=0).max() if sparse else a.shape[1]
    return reference(values, summed, int(longest))


def _unsigned(x):
    """Return a dense operand, or a `Csr`, without signs."""
    if isinstance(x, csr.Csr):
        return replace(x, val=abs(x.val))
    if isinstance(x, Dense):
        bits = 8 * x.bits.itemsize  # e4m3 has a bit for the sign, too
        return replace(x, bits=x.bits & x.bits.dtype.type((1 << bits - 1) - 1))
    return abs(x)


def confirm(values, a, b, where: str) -> None:
    """Raise WrongResult, one sentence that names `where`, unless `values` is A·B.

    values: float64 (m, n); a: (m, k), an array, a `Half` or `formats.csr.Csr`; b: (k, n), an array or
    a `Half`; all on one side. Without any library's multiplication: dense matrices element by element
    and summed, a CSR matrix by SciPy on the CPU, all in float64. A vector tells nearly every wrong
    product from the right one (Freivalds, "Probabilistic machines can use less running time", 1977).
    """
    if not values.size:
        return
    xp = array_module(values)
    x = xp.asarray(np.random.default_rng(0).standard_normal(values.shape[1]))
    y = _times(b, x)
    exact = (
        xp.asarray(_in_float64(formats.to_host(a), "scipy.sparse") @ formats.to_host(y))
        if isinstance(a, csr.Csr)
        else _times(a, y)
    )
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


def reference(values, sizes=None, longest: int = 1) -> Reference:
    """Wrap a float64 product, NumPy or CuPy, with its norm; sizes, longest: as `Reference` has them."""
    norm, of_sizes = (
        math.sqrt(sum(float(array_module(part).square(part, dtype=np.float64).sum()) for part in _parts(x)))
        for x in (values, np.zeros((0, 0)) if sizes is None else sizes)
    )
    return Reference(values, norm, norm / math.sqrt(max(values.size, 1)), sizes, longest, of_sizes)


def dense_product(a, b, dtype=np.float64):
    """A·B in float64 with NumPy or CuPy, on the side where both live, row-major; then in another dtype.

    a: (m, k), b: (k, n), either of them a format of `kernels.formats` or an array. Only panels are
    in float64, and of a `Half` in float32.
    """
    a, b = _dense(a, b)
    xp, (m, k), n = array_module(array_of(a)), a.shape, b.shape[1]
    out = xp.zeros((m, n), dtype)
    height, width = (max(1, PANEL_ELEMENTS // max(k, size, 1)) for size in (n, m))
    for i in range(0, m, height):
        rows = _numbers(a, array_of(a)[i : i + height]).astype(xp.float64)
        for j in range(0, n, width):
            out[i : i + height, j : j + width] = rows @ _numbers(b, array_of(b)[:, j : j + width]).astype(xp.float64)
    return out


def _in_float64(a: csr.Csr, library: str):
    """Return a copy in float64, which nobody else has, as a matrix of scipy.sparse or cupyx.scipy.sparse."""
    return Lazy(library).csr_matrix((a.val.astype(np.float64), a.col_idx, a.row_ptr), shape=(a.m, a.k), copy=True)


def sparse_product(a, b, dtype=np.float64):
    """A·B in float64 with SciPy, or cuSPARSE through CuPy, on the side where both live, row-major.

    Then in another dtype.

    a: `formats.csr.Csr`; b: (k, n), an array or a `Half`.

    CuPy wants B and C column-major and A canonical, hence copies: of A once, of B and C a panel of
    columns at a time.
    """
    xp, n = array_module(a.val), b.shape[1]
    out = xp.zeros((a.m, n), dtype)
    if a.nnz == 0:
        return out
    matrix = _in_float64(a, "scipy.sparse" if xp is np else "cupyx.scipy.sparse")
    matrix.sum_duplicates()  # also sorts; cuSPARSE itself promises nothing about repeated entries
    width = max(1, PANEL_ELEMENTS // max(a.m, a.k, 1))
    for j in range(0, n, width):
        out[:, j : j + width] = matrix @ _numbers(b, array_of(b)[:, j : j + width]).astype(xp.float64, order="F")
    return out


def check(
    bound: PreparedKernel,
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
    where = _launched(bound, problem, reference, stream, launch, when)
    return compare(bound.result(), reference, where, problem.limit)


def exactly(bound: PreparedKernel, exact: Problem, reference: Reference, stream=None) -> None:
    """Poison the output, launch once; WrongResult, one sentence, unless every element is the product, rounded once.

    bound: ready on `exact`, a problem of `probe.exact`; reference: its oracle.
    """
    where, out = _launched(bound, exact, reference, stream, None, "on whole numbers"), bound.result()
    dtype = probe.dtype_of(out)

    def mark(part, product, _):
        rounded = half.from_bits(half.to_bits(product.astype(np.float32), dtype), dtype)
        return part != rounded.astype(np.float64)

    count, place, value, right = _marked(out, reference, mark)
    if count:
        _require_written(out, reference, where)
        raise WrongResult(
            f"{where} is wrong: {count} of {out.size} elements are not the product, which is exact there; the "
            f"first one, at {place}, is {value:.9g} instead of {right:.9g}"
        )


def _marked(out, reference: Reference, mark: Callable[..., Any]) -> tuple[int, str, float, float]:
    """Count the elements of an output that `mark(part, product, magnitudes)` marks.

    Of the first one also say where it is, what it is, and what it should be.
    """
    count, seen, first = 0, 0, ("", math.nan, math.nan)
    for part, exact, sizes in _beside_each_other(out, reference):
        marks = mark(part, exact, sizes)
        if not count and marks.any():
            at = int(marks.argmax())
            row, column = divmod(seen + at, out.shape[1])
            first = f"row {row}, column {column}", float(part.ravel()[at]), float(exact.ravel()[at])
        count, seen = count + int(marks.sum()), seen + marks.size
    return count, *first


def _require_written(out, reference: Reference, where: str) -> None:
    missing, place, *_ = _marked(out, reference, lambda part, *_: array_module(part).isnan(part))
    said = f"{where} leaves {missing} of {out.size} elements unwritten or NaN, the first at {place}"
    require(not missing, said, WrongResult)


def _launched(
    bound: PreparedKernel, problem: Problem, reference: Reference, stream, launch: Callable[[], Any] | None, when: str
) -> str:
    """Poison the output and launch once; what a sentence about that begins with."""
    out, where = bound.result(), " ".join(filter(None, (bound.name, when, "at", describe(problem))))
    shape, right = tuple(out.shape), tuple(reference.values.shape)
    require(shape == right, f"{where} returns an array of shape {shape}, but the product has {right}", WrongResult)
    out.fill(math.nan)
    if not isinstance(array_of(out), np.ndarray):  # the launch may go to another stream than CuPy's
        cupy.cuda.get_current_stream().synchronize()
    try:
        (launch or partial(bound.launch, stream))()
        if stream is not None:
            stream.sync()
    except Exception as error:  # the driver's and the libraries' errors have no public class in common
        raise WrongResult(f"{where} failed to run: {device.first_line(error)}") from error
    return where


def compare(out, reference: Reference, where: str = "the result", limit: str = "") -> Errors:
    """Errors of `out` against the reference, each NumPy or CuPy and in any memory order.

    out: an array or a `Half`. limit: of `LIMITS`, instead of the one of `out`'s dtype. Raises
    WrongResult, one sentence that begins with `where`, if they exceed the limit: of the norm, and of each
    element, by the magnitudes of its products or, where the reference has none, by `Limit.max_err`.
    """
    xp, kind = array_module(array_of(out)), limit or probe.dtype_of(out)
    require(
        kind in LIMITS,
        f"{where} is {kind}, for which there is no error limit: add one to LIMITS, which has {', '.join(LIMITS)}",
    )
    square = worst = bound = 0.0
    for part, exact, sizes in _beside_each_other(out, reference):
        off, scale = xp.abs(part - exact), xp.maximum(xp.abs(exact), reference.rms)
        square += float(xp.square(off).sum())
        # An all-zero reference leaves no scale: then any deviation at all is wrong, and none is 0.
        ratio = off / scale if reference.rms else xp.where(off == 0, 0.0, math.inf)
        worst = max(worst, float(ratio.max()))
        bound = max(bound, float((off / _explained(exact, sizes, reference, kind, out)).max()))
    norm, most, summed = math.sqrt(square), LIMITS[kind].rel_err, reference.sizes is not None
    if reference.size_norm and reference.norm:
        # Where long sums cancel, random errors grow with the magnitudes' sums; what tensor cores cut off, with the sum
        # itself: half of 2^-24 for each product.
        spread = IN_LONG_SUMS * reference.size_norm / reference.norm
        most = max(most, spread + (0 if kind == "float32" else reference.longest * probe.UNIT / 2))
    rel_err = norm / reference.norm if reference.norm else (0.0 if norm == 0 else math.inf)
    if not (rel_err <= most and bound <= 1):  # NaN, an element left unwritten, fails as well
        _require_written(out, reference, where)
        said = f"relative error {rel_err:.2e}, but at most {most:.0e}"
        if rel_err <= most:
            largest = f"largest element-wise error {worst:.2e}, but at most {LIMITS[kind].max_err:.0e}"
            said = f"an element is off by {bound:.2e} times what rounding explains" if summed else largest

        def mark(part, exact, sizes):
            ratio = xp.abs(part - exact) / _explained(exact, sizes, reference, kind, out)
            return ~(ratio <= 1 if bound > 1 else ratio < bound)

        _, place, value, right = _marked(out, reference, mark)
        which = "the first such element" if bound > 1 else "the element that is farthest off"
        raise WrongResult(
            f"{where} is wrong: {said} for {kind}; {which}, at {place}, is {value:.6g} instead of {right:.6g}"
        )
    return Errors(rel_err, worst, bound if summed else math.nan)


def _beside_each_other(out, reference: Reference):
    """Yield an output, the reference product and its magnitudes (or None) side by side, in float64.

    Parts are row-major, so that a position in one is a row and a column.
    """
    xp = array_module(array_of(out))
    every = [_parts(x) for x in (array_of(out), reference.values, reference.sizes) if x is not None]
    for part, *others in zip(*every, strict=True):
        # A CPU's output may have a GPU's reference.
        exact, *sizes = (formats.to_host(other) if xp is np else xp.asarray(other) for other in others)
        yield _numbers(out, part).astype(xp.float64, order="C"), exact, sizes[0] if sizes else None


def _explained(exact, sizes, reference: Reference, kind: str, out):
    """Return what an element of each may be off by, over 0.

    In 16 bits a library may round sums of parts of k, too, and then the sum of those: up to the element-wise
    limit, but not more than every product rounded so.
    """
    xp, dtype, size = array_module(exact), probe.dtype_of(out), abs(exact)
    typical = LIMITS[kind].max_err * xp.maximum(size, reference.rms)
    if sizes is None:
        return xp.maximum(typical, np.finfo(np.float64).tiny)
    may = probe.allowed(kind, dtype, reference.longest)
    least = may.least * (float(formats.to_host(out.scale).max()) if isinstance(out, half.Eight) else 1.0)
    most = may.limit * sizes.astype(xp.float64) + may.rounding * size + least
    return xp.maximum(most, xp.minimum(typical, 2 * may.rounding * sizes)) if dtype in half.DTYPES else most


def describe(problem: Problem) -> str:
    """Return a problem in a sentence: its matrix's name, if it has one, and its sizes."""
    sizes = f"m={problem.m}, n={problem.n}, k={problem.k}, {problem.nnz} non-zeros"
    return f"{problem.label}, {sizes}" if problem.label else sizes


def _dense(*operands):
    """Return operands with the zeros that a sparse format leaves out; an array or a `Half` is as it is."""
    return (formats.to_dense(x) if formats.is_sparse(x) else x for x in operands)


def _times(matrix, x):
    """Return a dense matrix, or a `Half`, times a vector, in float64 and without a library."""
    xp = array_module(x)
    parts = [(_numbers(matrix, part).astype(xp.float64) * x).sum(axis=1) for part in _parts(array_of(matrix))]
    return xp.concatenate(parts) if parts else xp.zeros(len(array_of(matrix)))


def _numbers(x, part):
    """Return what a part of `array_of(x)` stands for."""
    if not isinstance(x, Dense):
        return part
    # Results of 8 bits have one scale for all.
    return half.from_bits(part, x.dtype) * (x.scale if isinstance(x, half.Eight) else 1)


def _parts(array):
    """Yield the rows in order, about `COMPARE_ELEMENTS` elements at a time; nothing is copied."""
    height = max(1, COMPARE_ELEMENTS // max(math.prod(array.shape[1:]), 1))
    for start in range(0, len(array) if array.size else 0, height):
        yield array[start : start + height]
