"""Is a candidate's output right? It is compared with a simple kernel's before its time counts.

The harness checks against a float64 oracle, which belongs to it; here another kernel on the same operands
is enough, and cheap. What two right outputs differ by, sums in another order, grows with the sum of the
magnitudes of an element's products, which the simple kernel gives as well, on operands without signs:

    |found - expected| <= limit · (|A|·|B|) + rounding · |expected| + least        for every element

A sum of L products in float32 has an error of (L - 1)·u·Σ|a·b| at most, in any order, u = 2^-24 (Higham, "Accuracy
and Stability of Numerical Algorithms", section 4.2, eq. 4.4), and since errors of single additions have either sign,
λ·√L·u·Σ|a·b| with a probability of 1 - 2·exp(-λ²/2) at least (Higham and Mary, "A New Approach to Probabilistic
Rounding Error Analysis", SIAM J. Sci. Comput. 41, 2019, theorem 2.4). λ is 8 here: 3·10⁻¹⁴. Tensor cores cut off
instead, always towards zero: u of the sum on average in each instruction, which adds one product at least. L is one
for all rows, the longest that there can be.

So one lost product of L is found where 1 / L is more than the limit: up to some ten thousand float32 products. What
a limit hides is found by a launch on whole numbers, whose sums are exact: see `exact`.

A problem's operands without signs, and operands of the same pattern whose product is exact in every order of sums.

`magnitudes` tells what an element's rounding errors may be, `exact` what no such limit can: a lost product in a long
sum of 16 bits, TF32 in place of float32. Its numbers are whole and small, so that sums stay what float32, and mostly
C's dtype, holds exactly, and a right kernel gives the same bits:

    sparse operand   1 and, at random, 2; the signs alternate along k, so that sums of any length stay near 0
    dense operand    1 and, at random, 0 or 2
    wide numbers     where products are float32's, odd ones of 14 bits, which TF32 would round, at random: in the
                     sparse operand for one half of all k, in the dense one for the other; 11 bits for TF32, as it holds

What differs "at random" is about 512 numbers of a row of A at most, so that sums keep below 2^23, and without wide
numbers nearly always below 2^8. Zeros of the sparse operand stay, so that it is the same matrix in every format.
"""

from dataclasses import dataclass, replace
from math import sqrt
from pathlib import Path

import numpy as np

from .. import formats, gpu, jit, splitmix
from ..contract import Operands, PreparedKernel, Problem, require
from ..formats.arrays import Arrays
from ..formats.bcsr import Bcsr
from ..formats.csr import Csr
from ..formats.half import Dense, Eight, Half, array_of
from ..formats.nm import Nm
from ..lazy import cupy

COMPARE, SOURCE = (Path(__file__).with_name(name) for name in ("compare.cu", "probe.cu"))
THREADS, MOST_BLOCKS = 256, 132 * 16
#: dtype of C -> what compare.cu calls it.
ELEMENTS = {
    "float32": "Float",
    "bfloat16": "Sixteen<BF16>",
    "float16": "Sixteen<F16>",
    "e4m3": "E4m3",
}
#: What one rounding to a dtype changes, of a number, and of one too small for the dtype's full precision.
ROUNDINGS = {
    "float32": (0.0, 2.0**-126),
    "bfloat16": (2.0**-8, 2.0**-126),
    "float16": (2.0**-11, 2.0**-25),
    "e4m3": (2.0**-4, 2.0**-10),
}
UNIT, LAMBDA = 2.0**-24, 8
#: What tensor cores cut off a sum, for each of its products; and of 8 bits, which they align to 13 bits, of the whole.
CUT, CUT_EIGHT = UNIT, 2.0**-10
#: 3xTF32 leaves out of each product.
LEFT_OUT = 2.0**-21
SEED = 27
UNLIKE = 512  #: numbers of a row of A that differ from the rest, about, at most
WIDE_BITS = {"float32": 14, "tf32": 11}
#: Of 4 bytes of numbers: all bits but the signs.
UNSIGNED = {4: 0x7FFF_FFFF, 2: 0x7FFF_7FFF, 1: 0x7F7F_7F7F}


@dataclass(frozen=True)
class Allowed:
    """What a right element may be off by: limit · magnitudes + rounding · |element| + least."""

    limit: float
    rounding: float
    least: float


def allowed(kind: str, dtype: str, length: int, outputs: int = 1) -> Allowed:
    """Of so many outputs that differ: 1 from the exact product, 2 from each other.

    kind: a problem's `limit`, or the dtype of C where that is "". dtype: of C. length: products of the longest sum.
    """
    limit = LAMBDA * sqrt(max(length, 1)) * UNIT + (LEFT_OUT if kind == "float32" else CUT * length)
    limit += CUT_EIGHT * kind.startswith("fp8")
    rounding, least = ROUNDINGS[dtype]
    return Allowed(outputs * limit, outputs * 1.1 * rounding, outputs * least)


def run(bound: PreparedKernel, device, stream):
    """Return the output of one launch; what the launch does not write is NaN. An array, a `Half` or an `Eight`."""
    output = bound.result()
    gpu.set_bytes(array_of(output), 0xFF, stream)  # NaN in each dtype; CuPy's fill would be compiled first
    device.sync()
    bound.launch(stream)
    stream.sync()
    return output


def copy(output):
    """Return an output that the next launch does not overwrite, in the same memory order.

    Of contiguous arrays without a kernel.
    """
    array = array_of(output)
    made = cupy.empty_like(array)
    made.data.copy_from_device(array.data, array.nbytes)
    # The host does not wait for a copy within the GPU, nor does a stream that the next launch overwrites it on.
    cupy.cuda.runtime.deviceSynchronize()
    return replace(output, bits=made) if isinstance(output, Half | Eight) else made


def dtype_of(output) -> str:
    """Return the name of an output's dtype."""
    return output.dtype if isinstance(output, Dense) else output.dtype.name


def difference(found, expected, magnitudes=None, may: Allowed = Allowed(0.0, 0.0, 0.0)) -> str:
    """Return "" where two outputs agree, else in a few words how they differ.

    Both (m, n) of one dtype and memory order, CuPy, `Half` or, with one scale for all, `Eight`. magnitudes: Σ|a·b| of
    each element, in the same order and dtype, for an `Eight` bfloat16 and without C's scale; None: equal numbers alone
    agree. may: see `allowed`. What is infinite or NaN in both, as operands may make it, agrees.
    """
    right = array_of(expected)
    if not right.size:
        return ""
    limits, sizes = (may.limit, may.rounding, may.least), 0 if magnitudes is None else array_of(magnitudes).data.ptr
    if isinstance(expected, Eight):  # in units of C's numbers
        limits = may.limit / float(formats.to_host(expected.scale).max()), *limits[1:]
    verdict, blocks = cupy.zeros(3, cupy.uint64), min(MOST_BLOCKS, -(-right.size // THREADS))
    jit.run_on_cupy_stream(
        COMPARE,
        f"compare<{ELEMENTS[dtype_of(expected)]}>",
        blocks * THREADS,
        THREADS,
        np.uint64(right.size),
        array_of(found).data.ptr,
        right.data.ptr,
        sizes,
        *map(np.float32, limits),
        verdict.data.ptr,
    )
    wrong, last, worst = verdict.get()  # the first wrong one comes so many before the end
    if not wrong:
        return ""
    place = np.unravel_index(right.size - int(last), right.shape, "C" if right.flags.c_contiguous else "F")
    times = f", by up to {worst.astype(np.uint32).view(np.float32):.1e} times what rounding explains" * bool(sizes)
    return f"{wrong} of {right.size} elements differ, the first at row {place[0]}, column {place[1]}{times}"


# ---------------------------------------------------------------- operands to check with


def magnitudes(problem: Problem) -> Problem:
    """Return the same problem with |A| and |B|; C is the same array, of 8 bits a bfloat16 one instead."""

    def made(ops: Operands) -> Operands:
        c = ops.c
        if isinstance(c, Eight):
            c = Half("bfloat16", cupy.empty(c.shape, np.uint16, order="C" if c.bits.flags.c_contiguous else "F"))
        return Operands(_unsigned(ops.a), _unsigned(ops.b), c)

    return _with(problem, made)


def exact(problem: Problem) -> Problem:
    """Return the same problem with whole numbers in A and B, whose scales are 1.

    C is the same array, an `Eight`'s scale 1.
    """
    return _with(problem, lambda ops: _exact(ops, problem))


def jobs(problem: Problem) -> list[tuple[Path, str]]:
    """(source, entry) of what makes both, and of what compares outputs, to compile beside the candidates."""
    ops = problem.device()
    made = dict.fromkeys((SOURCE, _entry(x)) for x in (ops.a, ops.b))
    return [(COMPARE, f"compare<{ELEMENTS[dtype_of(ops.c)]}>"), (SOURCE, "magnitudes"), *made]


def _with(problem: Problem, made) -> Problem:
    """Return the problem with other operands, made of its own on the GPU where they are asked for."""
    other = replace(
        problem,
        make_host=lambda: Operands(formats.to_host(other.device().a), formats.to_host(other.device().b)),
        make_device=lambda: made(problem.device()),
        source=None,
        _host=None,
        _device=None,
    )
    return other


def _array(x):
    """Return the numbers of an operand, sparse or dense."""
    return x.val if formats.is_sparse(x) else array_of(x)


def _put(x, numbers, **scale):
    """Return an operand with other numbers of the same dtype."""
    name = "val" if formats.is_sparse(x) else "bits"
    return replace(x, **{name: numbers}, **scale) if isinstance(x, Arrays) else numbers


def _ones(x) -> dict:
    """Return a scale of 1 for what has a scale."""
    return {"scale": cupy.asarray(np.ones(x.scale.shape, np.float32))} if hasattr(x, "scale") else {}


def _contiguous(array):
    """Return an array as it is where its numbers lie side by side, at multiples of 4 bytes; else a copy."""
    if not (array.flags.c_contiguous or array.flags.f_contiguous):
        array = cupy.ascontiguousarray(array)
    return array if array.data.ptr % 4 == 0 else array.copy()


def _unsigned(x):
    array = _contiguous(_array(x))
    made = cupy.empty_like(array)
    if array.size:
        threads = min(array.nbytes // 4 + 1, MOST_BLOCKS * THREADS)
        jit.run_on_cupy_stream(
            SOURCE,
            "magnitudes",
            threads,
            THREADS,
            np.uint64(array.nbytes),
            array.data.ptr,
            made.data.ptr,
            np.uint32(UNSIGNED[array.itemsize]),
        )
    return _put(x, made)  # scales are positive


def _exact(ops: Operands, problem: Problem) -> Operands:
    require(
        formats.is_sparse(ops.a) != formats.is_sparse(ops.b),
        f"a problem of {getattr(problem, 'room', 'a plan')} has no sparse operand: it has no product to probe",
    )
    left = formats.is_sparse(ops.a)
    pattern, dense = (ops.a, ops.b) if left else (ops.b, ops.a)
    narrow = isinstance(dense, (Half, Eight)) or isinstance(ops.c, (Half, Eight))
    along, per = _along_sparse(pattern), pattern.group if isinstance(pattern, Nm) else 1
    bits = 0 if narrow or along is None else WIDE_BITS[problem.limit or "float32"]
    array = _contiguous(array_of(dense))
    rows = left == bool(array.flags.c_contiguous)  # numbers of one k lie side by side in memory
    across = 0, 1, 1, array.shape[1 if left else 0] if rows else 1, problem.k, per
    share = max(1, min(2048, 4096 * UNLIKE // max(problem.k, 1)))
    one = _put(pattern, _whole(pattern, along or (0, 1, 1, 1, 1, 1), True, share, bits), **_ones(pattern))
    other = _put(dense, _whole(dense, across, False, share, bits), **_ones(dense))
    c = replace(ops.c, **_ones(ops.c)) if isinstance(ops.c, Eight) else ops.c
    return Operands(one, other, c) if left else Operands(other, one, c)


def _along_sparse(x) -> tuple[int, ...] | None:
    """Where a pattern's numbers lie along k, as probe.cu is told: col_idx, area, width, stride, extent, per.

    None of formats that hold no float32.
    """
    if isinstance(x, Nm):
        return 0, 1, 1, max(x.n, 1), max(x.w, 1), x.keep
    if isinstance(x, Csr | Bcsr):
        rows, width = getattr(x, "block", (1, 1))
        return x.col_idx.data.ptr, rows * width, width, 1, 1, 1
    return None


def _entry(x) -> str:
    return f"whole<{ELEMENTS[str(getattr(x, 'dtype', 'float32'))]}>"  # CSR and N:M have no other


def _whole(x, along: tuple[int, ...], sparse: bool, share: int, bits: int):
    """Numbers in place of an operand's, of its dtype and where they lie."""
    array, seed = _contiguous(_array(x)), SEED if sparse else SEED + 1
    made = cupy.empty_like(array)
    keys = splitmix.key(seed, 0), splitmix.key(seed, 1), splitmix.key(SEED, 2)
    if array.size:
        jit.run_on_cupy_stream(
            SOURCE,
            _entry(x),
            min(array.size, MOST_BLOCKS * THREADS),
            THREADS,
            np.uint64(array.size),
            array.data.ptr,
            made.data.ptr,
            np.int32(sparse),
            np.uint32(share),
            np.int32(bits),
            along[0],
            *map(np.int64, along[1:]),
            *map(np.uint64, keys),
        )
    return made
