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
a limit hides is found by a launch on whole numbers, whose sums are exact: see `probe`.
"""

from dataclasses import dataclass, replace
from math import sqrt
from pathlib import Path

import numpy as np

from .. import formats, gpu, jit
from ..contract import PreparedKernel
from ..formats.half import Dense, Eight, Half, array_of
from ..lazy import cupy

SOURCE = Path(__file__).with_name("compare.cu")
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


@dataclass(frozen=True)
class Allowed:
    """What a right element may be off by: limit · magnitudes + rounding · |element| + least."""

    limit: float
    rounding: float
    least: float


NOTHING = Allowed(0.0, 0.0, 0.0)  #: equal numbers alone agree


def allowed(kind: str, dtype: str, length: int, outputs: int = 1) -> Allowed:
    """Of so many outputs that differ: 1 from the exact product, 2 from each other.

    kind: a problem's `limit`, or the dtype of C where that is "". dtype: of C. length: products of the longest sum.
    """
    limit = LAMBDA * sqrt(max(length, 1)) * UNIT
    limit += LEFT_OUT if kind == "float32" else CUT * length
    if kind.startswith("fp8"):
        limit += CUT_EIGHT
    rounding, least = ROUNDINGS[dtype]
    return Allowed(outputs * limit, outputs * 1.1 * rounding, outputs * least)


def run(bound: PreparedKernel, device, stream):
    """Return the output of one launch; what the launch does not write is NaN. An array, a `Half` or an `Eight`."""
    output = bound.result()
    poison(output, stream)
    device.sync()
    bound.launch(stream)
    stream.sync()
    return output


def poison(output, stream) -> None:
    """Enqueue a NaN for every element, which is all ones in each dtype; CuPy's fill would be compiled first."""
    gpu.set_bytes(array_of(output), 0xFF, stream)


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


def jobs(problem) -> list[tuple[Path, str]]:
    """(source, entry) of what compares a problem's outputs, to compile beside the candidates."""
    return [(SOURCE, f"compare<{ELEMENTS[dtype_of(problem.device().c)]}>")]


def dtype_of(output) -> str:
    """Return the name of an output's dtype."""
    return output.dtype if isinstance(output, Dense) else output.dtype.name


def difference(found, expected, magnitudes=None, may: Allowed = NOTHING) -> str:
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
        SOURCE,
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
