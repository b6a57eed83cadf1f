"""Whether a dense multiplication is expected to be faster than a plan: from a GPU's ceilings, by arithmetic.

Microseconds are a sum: a launch, what is computed at the rate of tensor cores or of FMA units, bytes from L2 and from
DRAM, each as many times its ceiling as was measured (`WEIGHTS`). Ceilings come from the GPU's own description.
"""

from collections import namedtuple
from math import ceil

from ..formats import bcsr, nm, two_four
from . import operands

#: Compute capability -> FLOP that an SM does in a clock: 16-bit products on tensor cores with float32 sums, and float32
#: on FMA units (NVIDIA's architecture white papers; tensor cores of RTX 40 and 50 do half of what is said here).
RATES = {
    (8, 0): (2048, 128),
    (8, 6): (512, 256),
    (8, 7): (1024, 256),
    (8, 9): (1024, 256),
    (9, 0): (4096, 256),
    (10, 0): (8192, 256),
    (11, 0): (4096, 256),
    (12, 0): (1024, 256),
}
L2_BYTES = 64  #: that L2 delivers to an SM in a clock, at most
#: How many times its ceiling each part takes: (microseconds of a launch, arithmetic, L2, DRAM). "dense" is cuBLAS. The
#: last three are by hand: groups of rows, whose conversions of 16 bits count as arithmetic, and `blocks_mma`, by its
#: prediction. The others were fitted to the records of an H200 and an H100 by least squares of relative errors.
WEIGHTS = {
    "dense 16": (7.5, 1.16, 0.0, 0.88),
    "dense tf32": (7.5, 1.3, 0.0, 0.0),
    "dense fp32": (14.0, 1.32, 0.0, 0.48),
    "blocks": (15.0, 0.0, 1.53, 0.67),
    "2:4": (6.5, 1.56, 0.0, 1.09),
    "nm fp32": (9.0, 1.2, 0.0, 0.76),
    "nm 16": (1.0, 1.42, 0.0, 1.0),
    "nm tf32": (1.0, 1.55, 0.0, 1.0),
    "rows fp32": (8.0, 0.5, 1.5, 0.7),
    "rows 16": (8.0, 1.5, 1.5, 0.7),
    "blocks_mma": (8.0, 1.25, 1.53, 0.67),
}
GROUP = 4  #: rows that a group of CSR has


#: Of a GPU: FLOP/us on tensor cores in 16 bits and on FMA units, bytes/us from L2 and DRAM.
Ceilings = namedtuple("Ceilings", "tensor fma l2 dram")
#: What a plan multiplies: A (m, k), of which `stored` values are, by B (k, n). kind: of `WEIGHTS`, what multiplies;
#: numbers: "16", "tf32" or "fp32"; high: rows of A that share a row of B; wide: columns of B that share a value of A;
#: more: times `stored` that is multiplied.
Work = namedtuple("Work", "kind numbers m n k stored high wide more", defaults=(1, 256, 1.0))


def ceilings(device) -> Ceilings | None:
    """Of a `cuda.core.Device`; None where its driver does not say what they follow from."""
    properties, capability = device.properties, tuple(device.compute_capability)
    known = [x for x in RATES if x <= capability]
    clock, memory, bus = (
        getattr(properties, name, 0)  # kHz, kHz, bits
        for name in ("clock_rate", "memory_clock_rate", "global_memory_bus_width")
    )
    if not known or not clock or not memory or not bus:
        return None
    tensor, fma = RATES[max(known)]
    all_sms = properties.multiprocessor_count * clock / 1e3  # clocks of all, a microsecond
    return Ceilings(tensor * all_sms, fma * all_sms, L2_BYTES * all_sms, 2 * memory / 1e3 * bus / 8)


def dense_is_faster(way, n: int, device) -> str:
    """Return a sentence with both times where a dense product is expected to be faster, else "".

    way: a `routes.Route`.
    """
    of, work = ceilings(device), work_of(way, n)
    if of is None or 0 in (work.m, work.n, work.k):
        return ""
    dense, sparse = both(work, of)
    return (
        f"A dense product of this size is expected to take {_short(dense)} us on this GPU, and this one "
        f"{_short(sparse)} us: make A dense, if it fits."
        if dense < sparse
        else ""
    )


def work_of(way, n: int) -> Work:
    """Return what a `routes.Route` multiplies by n columns."""
    a, (m, k) = way.a, operands.size_of(way.a)
    numbers = {"float32": "fp32", "tf32": "tf32"}.get(way.numbers, "16")
    if isinstance(a, bcsr.Bcsr) and way.room == "async_sparse":
        return blocks(m, n, k, a.blocks, a.block, numbers, way.variant == "blocks_mma")
    if isinstance(a, two_four.TwoFour):
        return Work("2:4", numbers, m, n, k, m * k / 2)
    if isinstance(a, nm.Nm):
        return vectors(m, n, k, a.keep / a.group, min(a.vector, m), numbers)
    # CSR: groups of rows over their union, of non-zeros anywhere. In TF32 no faster than in float32, as a rule.
    density = min(1.0, a.nnz / max(1, m * k))
    shared = GROUP * density / (1 - (1 - density) ** GROUP) if density else 1.0
    return Work(f"rows {'16' if numbers == '16' else 'fp32'}", numbers, m, n, k, a.nnz, high=shared)


def blocks(m: int, n: int, k: int, count: int, block: tuple[int, int], numbers: str, portable: bool) -> Work:
    """Blocks; those lower than 64 rows are stacked on Hopper, with what is empty in between, at random places."""
    b_row, b_col = block
    stored = count * b_row * b_col
    if portable:
        return Work("blocks_mma", numbers, m, n, k, stored, b_row, 128 if b_row == 128 else 256)
    density, pile = min(1.0, stored / max(1, m * k)), max(1, 64 // b_row)
    more = (1 - (1 - density) ** pile) / density if density else 1.0
    return Work("blocks", numbers, m, n, k, stored, max(64, b_row), 512, more)


def vectors(m: int, n: int, k: int, density: float, vector: int, numbers: str) -> Work:
    """N:M; tensor cores multiply 128 rows together, so the union of what their vectors keep."""
    each = 1.0
    if numbers != "fp32" and density:
        each = (1 - (1 - density) ** max(1, 128 // vector)) / density
    return Work(f"nm {numbers}", numbers, m, n, k, m * k * density, more=each)


def both(work: Work, of: Ceilings) -> tuple[float, float]:
    """(microseconds of the product with a dense A, of this one)."""
    dense = Work(f"dense {work.numbers}", work.numbers, work.m, work.n, work.k, work.m * work.k)
    return microseconds(dense, of), microseconds(work, of)


def microseconds(work: Work, of: Ceilings) -> float:
    """How long a product is expected to take."""
    launch, arithmetic, l2, dram = WEIGHTS[work.kind]
    size = 2 if work.numbers == "16" else 4
    on_fma = work.numbers == "fp32" or work.kind.startswith("rows")
    rate = of.fma if on_fma else of.tensor / (size / 2)
    done = work.stored * work.more
    asked = size * (done * work.n / work.high + done * ceil(work.n / work.wide))
    moved = size * (work.stored + (work.k + work.m) * work.n)
    return launch + arithmetic * 2 * done * work.n / rate + l2 * asked / of.l2 + dram * moved / of.dram


def _short(us: float) -> str:
    return f"{us:.0f}" if us >= 100 else f"{us:.2g}"
