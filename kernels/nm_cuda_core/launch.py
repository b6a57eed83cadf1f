"""The system's variants, its problems and their sizes, and how each variant is configured and launched."""

from dataclasses import replace
from math import ceil
from pathlib import Path

import numpy as np

from ..contract import (
    Kernel,
    Launch,
    Operands,
    PreparedKernel,
    Problem,
    require,
    require_seed,
    require_whole,
    step,
    timed,
)
from ..formats import nm
from ..formats.csr import INT32_MAX
from ..lazy import cupy

SYSTEM = "nm_cuda_core"
HERE = Path(__file__).parent
BASELINES = ("cublas",)
FLOPS_DEF = "2·M·N·W"  # a multiply and an add for every stored value and every row of A
TILE = 32  # rows and columns of C that a block computes; the report's BLOCK_SIZE_M and _N
THREADS = TILE * TILE // 16  # 4 x 4 elements of C a thread
DENSE_ROWS = 64  # rows of A that element_wise stages at once
#: (N, M) of the patterns that the chapter measures; element_wise is compiled for any other as well.
PATTERNS = ((2, 4), (1, 4), (4, 8), (8, 32), (12, 32), (16, 32))
SPLIT_K = {"double_buffer": 2, "double_buffer_split1": 1, "verbatim_double_buffer": 2, "verbatim_split1": 1}
#: Bytes of dynamic shared memory of the kernels that are the report's to the letter; the others' is static.
SHARED_BYTES = {
    "verbatim": 4 * 64 * 2 * TILE,
    "verbatim_prefetch": 4 * 64 * 2 * TILE,
    "verbatim_double_buffer": 4 * 32 * 3 * TILE,
    "verbatim_split1": 4 * 32 * 3 * TILE,
}
VERBATIM = tuple(SHARED_BYTES)
#: m = n = k of the report's Figs. 2 and 4 (its section 4.4), and three of them that finish in seconds.
SIZES = {"full": (64, 128, 256, 512, 1024, 2048, 4096, 8192), "kick": (64, 512, 2048)}


def _kernel(
    name: str,
    idea: str,
    prediction: str,
    *entries: str,
    source: str = "",
    published: bool = False,
    spill_free: bool = True,
) -> Kernel:
    return Kernel(name, HERE / f"{source or name}.cu", idea, prediction, entries, published, spill_free)


def _element_wise(keep: int, group: int) -> str:
    return f"element_wise<{TILE}, {TILE}, {DENSE_ROWS}, {keep}, {group}>"


VARIANTS: dict[str, Kernel] = {
    kernel.name: kernel
    for kernel in (
        _kernel(
            "baseline",
            "the report's kernel, with rows requested together and C stored 16 bytes at a time: gather, synchronise, "
            "multiply 64 compressed rows, synchronise",
            "",
            f"baseline<{TILE}, {TILE}, 64>",
        ),
        _kernel(
            "prefetch",
            "loads of the next step into registers that nothing reads",
            "None: the compiler drops them, and the machine code is the baseline's.",
            f"prefetch<{TILE}, {TILE}, 64, false>",
        ),
        _kernel(
            "prefetch_kept",
            "the same loads, and a checksum that makes them stay",
            "0.7x: every row is requested twice, and twice the registers leave half of the warps.",
            f"prefetch<{TILE}, {TILE}, 64, true>",
            source="prefetch",
        ),
        _kernel(
            "pipelined",
            "the same registers, written to shared memory for the next step instead of loaded again",
            "0.95x: the latency passes behind the multiplication, but with 30 warps an SM in turns "
            "it did before, and here registers leave half of them.",
            f"pipelined<{TILE}, {TILE}, 64>",
        ),
        _kernel(
            "double_buffer",
            "B through cp.async into two buffers, 32 compressed rows a step, split-K 2",
            "0.9x: A is gathered behind the same barriers, twice as often, and C is cleared and "
            "added to atomically; ahead only where one block for each tile leaves SMs idle.",
            f"double_buffer<{TILE}, {TILE}, 32, 2, false>",
        ),
        _kernel(
            "double_buffer_split1",
            "the same without split-K",
            "Ahead of split-K 2 where the tiles alone fill the GPU, from 1024 on; behind below.",
            f"double_buffer<{TILE}, {TILE}, 32, 1, false>",
            source="double_buffer",
        ),
        _kernel(
            "verbatim",
            "the report's baseline to the letter: a row of A is stored before the next is asked for, C float by float",
            "0.9x at 4096 and 0.5x at 512, which is where nmSPARSE's own code lies beside our baseline: 30% more bytes "
            "through L1 at 256 and 4% more at 2048, and where blocks are few, a round trip to memory for every row.",
            f"verbatim<{TILE}, {TILE}, 64>",
            published=True,
        ),
        _kernel(
            "verbatim_prefetch",
            "the report's register prefetch to the letter: arrays that nothing reads",
            "1.00x over verbatim: the compiler drops arrays and loads.",
            f"verbatim_prefetch<{TILE}, {TILE}, 64>",
            published=True,
        ),
        _kernel(
            "verbatim_double_buffer",
            "the report's double buffer to the letter: an array of two pointers, so that B is read by generic loads",
            "0.7x over double_buffer: five reads of shared memory a row instead of two, four of them of 4 bytes.",
            f"verbatim_double_buffer<{TILE}, {TILE}, 32>",
            published=True,
            spill_free=False,  # the array of pointers lies in local memory, in the report's machine code as well
        ),
        _kernel(
            "verbatim_split1",
            "the same without split-K",
            "Ahead of verbatim_double_buffer where the tiles alone fill the GPU, from 1024 on; behind below.",
            f"verbatim_double_buffer<{TILE}, {TILE}, 32>",
            source="verbatim_double_buffer",
            published=True,
            spill_free=False,
        ),
        _kernel(
            "element_wise",
            "every column looks its rows of A up in shared memory: right for every N:M pattern",
            "0.35x: six 16-byte reads of shared memory for 16 multiply-adds instead of two.",
            *(_element_wise(*pattern) for pattern in PATTERNS),
        ),
        _kernel(
            "zigzag",
            "double_buffer without split-K, with lanes in pairs that read the same 16 bytes of shared memory",
            "1.3x over double_buffer_split1: 89% of the shared-memory pipe is in use, and a third of its wavefronts "
            "go.",
            f"double_buffer<{TILE}, {TILE}, 32, 1, true>",
            source="double_buffer",
        ),
    )
}


def problem(
    m: int,
    n: int,
    k: int,
    density: float = 0.5,
    seed: int = 0,
    *,
    group: int = 4,
    vector: int = TILE,
) -> Problem:
    """C (m, n) = A (m, k) · B (k, n), B pruned to density·group of every `group` rows.

    A and C are column-major, A's elements and B's values uniform in (0, 1] (the report's section
    4.3). vector: neighbouring columns of B that share their indices; 1 is the element-wise 2:4 of
    the report's Fig. 1. Raises ValueError with one sentence for what makes no problem.
    """
    m, n, k, seed = _checked(m, n, k, seed)
    require(
        isinstance(vector, (int, np.integer)) and vector >= 1,
        f"vector is {vector!r}, but must be a whole number of columns from 1",
    )
    keep = nm.keep_of(density, group)

    w, q = ceil(k / group) * keep, ceil(n / vector)
    label = _label(keep, group, vector)
    return _problem(label, (m, n, k), (w, q), keep / group, seed, lambda: nm.random(k, n, keep, group, vector, seed))


def problem_from_nm(b: nm.Nm, m: int, seed: int = 0, label: str = "") -> Problem:
    """C (m, n) = A (m, k) · B for a given B on the host; validates B."""
    nm.validate(b)
    m, *_, seed = _checked(m, b.n, b.k, seed)
    return _problem(
        label or _label(b.keep, b.group, b.vector),
        (m, b.n, b.k),
        (b.w, b.q),
        b.keep / b.group,
        seed,
        lambda: b,
    )


def _label(keep: int, group: int, vector: int) -> str:
    """Return what tells a pattern from the system's usual one, 2:4 in vectors of 32 columns."""
    shared = {TILE: "", 1: " element-wise"}.get(vector, f" vectors of {vector}")
    label = f"{keep}:{group}{shared}"
    return "" if label == "2:4" else label


def _checked(m: int, n: int, k: int, seed: int) -> tuple[int, ...]:
    """Return m, n, k and the seed as Python's integers: NumPy's would wrap in products."""
    sizes = [require_whole(x, of, 1, INT32_MAX, "2^31 - 1") for x, of in (("m", m), ("n", n), ("k", k))]
    require_seed(seed)
    return *sizes, int(seed)


def _problem(label, sizes: tuple[int, int, int], compressed, density, seed, make_b) -> Problem:
    """sizes: m, n, k. compressed: rows of B's values and columns of its indices. make_b: B on the host."""
    (m, n, k), (w, q) = sizes, compressed

    def on_host() -> Operands:
        draw = np.random.default_rng([seed, 1]).random((k, m), dtype=np.float32)
        return Operands(np.subtract(1, draw, out=draw).T, make_b())

    def on_device() -> Operands:
        host = on_host()
        # CuPy copies C order fastest; the transpose is free.
        return Operands(cupy.asarray(host.a.T).T, nm.to_device(host.b), cupy.empty((m, n), cupy.float32, order="F"))

    return Problem(
        room=SYSTEM,
        label=label,
        m=m,
        n=n,
        k=k,
        nnz=w * n,
        density=density,
        seed=seed,
        useful_flops=2 * m * n * w,
        flops_def=FLOPS_DEF,
        least_bytes=4 * (m * k + w * n + w * q + m * n),
        # A block reads, for a compressed row, a row of its tiles of A and B and one index.
        requested_bytes=4 * (ceil(m / TILE) * ceil(n / TILE) * w * (2 * TILE + 1) + m * n),
        make_host=on_host,
        make_device=on_device,
    )


def as_gathered(b: nm.Nm) -> nm.Nm:
    """Return the matrix that the published kernels multiply with.

    All columns of a block take the indices of its first one.

    It is B itself where 32 columns share their indices. NumPy or CuPy arrays, as in `b`.
    """
    return replace(b, vector=TILE, index=nm.per_column_index(b)[:, ::TILE].copy())


def entry(variant: str, keep: int = 2, group: int = 4) -> str:
    """Return the template instantiation behind a variant for the pattern keep:group."""
    return _element_wise(keep, group) if variant == "element_wise" else VARIANTS[variant].entries[0]


def prepare(variant: str, problem: Problem, device, *, shared_indices: bool = True) -> PreparedKernel:
    """Compile `variant` for `device`, expand the indices to the kernels' w x n, and make it ready.

    device: a current `cuda.core.Device`.

    shared_indices: whether to insist that the columns of a block share their indices, without
    which every variant but element_wise computes A · `as_gathered(B)`. Raises ValueError where the
    variant does not exist or does not take the problem.
    """
    require(
        variant in VARIANTS,
        f"{SYSTEM} has no variant {variant!r}: choose one of {', '.join(VARIANTS)}",
    )
    for name, value in (("m", problem.m), ("n", problem.n)):
        require(
            value % TILE == 0,
            f"{variant} needs {name} to be a multiple of {TILE}, the tile of a block, not {value}",
        )
    require(
        problem.n // TILE < 2**16,
        f"{variant} has a grid row for every {TILE} columns and n = {problem.n} needs more than "
        "65535: multiply in several column ranges",
    )
    w = problem.nnz // problem.n
    largest = max(problem.m * problem.k, w * problem.n, problem.m * problem.n)
    require(
        variant not in VERBATIM or largest <= INT32_MAX,
        f"{variant} counts elements in 32 bits, as the report does, and a matrix here has {largest}: use "
        "baseline or double_buffer",
    )
    ops = problem.device()
    b = ops.b
    if variant == "element_wise":
        require(
            DENSE_ROWS % b.group == 0,
            f"element_wise stages {DENSE_ROWS} rows of A, which groups of {b.group} do not divide",
        )
    elif shared_indices:
        require(
            b.vector % TILE == 0,
            f"{variant} reads the indices of a block's first column only, but B shares them among "
            f"{b.vector} columns, not {TILE}: use element_wise",
        )
    index, prepare_ms = timed(lambda: nm.per_column_index(b))
    splits = SPLIT_K.get(variant, 1)
    grid = (problem.m // TILE, problem.n // TILE, splits)
    job = VARIANTS[variant].source, entry(variant, b.keep, b.group)
    arguments = problem.m, problem.n, b.w, *[problem.k] * (variant == "element_wise"), ops.a, b.val, index, ops.c
    steps = [step(job, device, grid, THREADS, arguments, SHARED_BYTES.get(variant, 0))]
    return Launch(variant, steps, ops.c, prepare_ms, index.nbytes, keep=(ops, index), accumulates=splits > 1)


def sweeps(preset: str) -> dict[str, list[dict]]:
    """experiment -> shapes as keyword arguments of `problem`: m, n, k and density, 2:4 as the report has it alone.

    preset: "full" (Figs. 2 and 4 of the report) or "kick" (three of them); else ValueError.
    """
    require(preset in SIZES, f"preset is {preset!r}, but must be 'full' or 'kick'")
    return {"scaling": [{"m": size, "n": size, "k": size, "density": 0.5} for size in SIZES[preset]]}
