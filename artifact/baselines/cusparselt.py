"""cuSPARSELt's 2:4 sparse times dense, 16-bit floats, sums in float32, A row-major, B and C as the problem has them.

Operands of e4m3 with one scale each are multiplied likewise: B as it lies, column-major, for the library transposes
no 8-bit operand; both scales are alpha; C is bfloat16.

    cusparselt_default      what the library takes of itself: algorithm 0
    cusparselt              the fastest of all that it has
    cusparselt_colmajor_b   the same with B column-major, to see what the order of B costs

The library's search (cusparseLtMatmulSearch) does not say how it times, nor whether its operands lie
in a cache meanwhile. So what it finds is one candidate; the others are every algorithm by its number,
and the fastest of these again with every way to split k. `bench.time` decides between them as it
decides between kernels, from cold caches; `Bound.choice` says which one won.

The library compresses A itself (cusparseLtSpMMACompress2), from a dense copy, for all algorithms
alike: the time of that is `prepare_ms`. Searching prepares no operand and is not in it.

Which file of the library: `artifact.measure.device.cusparselt`. A record's machine.json names the version that
answered, and records of two versions do not mix in one folder.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from artifact.measure import bench
from artifact.measure import device as device_
from kernels.contract import Problem, require, timed
from kernels.formats import two_four, two_four_eight
from kernels.formats.eight import Eight
from kernels.formats.half import Half

ALGORITHMS = ("default", "best")
#: 16 bytes, which the library wants every row and address aligned to, in elements of 16 and of 8 bits.
MULTIPLE, MULTIPLE_EIGHT = 8, 16
ALIGNMENT = 16
#: Member of cudaDataType for a dtype.
DATA_TYPE = {"bfloat16": "CUDA_R_16BF", "float16": "CUDA_R_16F", "e4m3": "CUDA_R_8F_E4M3"}
#: Launches of each algorithm in the library's own search.
SEARCH_ITERATIONS = 10
#: (SPLIT_K, SPLIT_K_MODE) to try; on Hopper the library refuses the last four, elsewhere the others.
SPLITS = (
    *((split, mode) for split in (1, -1) for mode in ("HEURISTIC", "DATAPARALLEL", "SPLITK", "STREAMK")),
    *((split, mode) for split in (2, 4) for mode in ("ONE_KERNEL", "TWO_KERNELS")),
)
#: Candidates are timed briefly, then this many of them again, for longer (seconds each).
FINALISTS = 3
ROUGH_S, FINE_S = 0.002, bench.BUDGET_S / 3
#: Host scalars, read when the call is made, captured or not.
_ALPHA, _BETA = np.ones(1, np.float32), np.zeros(1, np.float32)


@dataclass(eq=False)
class Bound:
    """A `kernels.contract.Bound` over a library's handle; `close()` frees that one early."""

    name: str
    prepare_ms: float
    prepare_bytes: int  #: what was made of the operands, and the workspace
    choice: str  #: the algorithm, in words
    call: Callable[[int], None] = field(repr=False)  #: takes the stream's handle
    output: Half = field(repr=False)
    close: Callable[[], None] = field(default=lambda: None, repr=False)

    def launch(self, stream) -> None:
        """Enqueue the multiplication on a `cuda.core.Stream`, which may be under capture."""
        self.call(int(stream.handle))

    def result(self) -> Half:
        """C (m, n), its bits a CuPy array."""
        return self.output


@dataclass
class Product:
    """What the library knows of one multiplication, and where its operands are."""

    library: Any  #: nvmath.bindings.cusparseLt
    handle: int
    description: int  #: cusparseLtMatmulDescriptor_t
    addresses: tuple[int, int, int]  #: of compressed A, B and C
    alpha: np.ndarray = field(default_factory=lambda: _ALPHA, repr=False)


@dataclass(eq=False)
class Candidate:
    """One algorithm of a product, planned: a contender of `bench.time`."""

    product: Product
    selection: int
    plan: int
    workspace: Any  #: CuPy bytes
    release: list = field(repr=False)
    streams: np.ndarray = field(default_factory=lambda: np.zeros(1, np.uintp), repr=False)

    def __post_init__(self) -> None:
        self.choice = _words(self.product, self.selection)
        a, b, c = self.product.addresses
        self.arguments = (
            self.product.handle,
            self.plan,
            self.product.alpha.ctypes.data,
            a,
            b,
            _BETA.ctypes.data,
            c,
            c,
            self.workspace.data.ptr,
            self.streams.ctypes.data,
            len(self.streams),
        )

    def call(self, stream: int) -> None:
        """Enqueue the multiplication on a stream, given by its handle."""
        self.streams[0] = stream
        self.product.library.matmul(*self.arguments)

    def launch(self, stream) -> None:
        self.call(int(stream.handle))


def bind(algorithm: str, problem: Problem, device, *, column_major_b: bool = False) -> Bound:
    """Make cuSPARSELt ready: descriptors, A compressed, an algorithm and its workspace.

    algorithm: "default" or "best". column_major_b: multiply by a column-major copy of B, made here.
    device: `cuda.core.Device`, current. Overwrites C. Raises ValueError for an unknown algorithm,
    where A is not 2:4 or B not of the same dtype, where m, n or k is no multiple of 8 (16 in e4m3), and where the
    library refuses the problem.
    """
    require(
        algorithm in ALGORITHMS,
        f"cuSPARSELt has no algorithm {algorithm!r} here: choose one of {', '.join(ALGORITHMS)}",
    )
    m, n, k = problem.m, problem.n, problem.k
    _require_multiples(m, n, k, MULTIPLE)
    operands = problem.device()
    eight_bit = isinstance(operands.a, two_four_eight.TwoFourEight)
    if eight_bit:
        _require_multiples(m, n, k, MULTIPLE_EIGHT)
    (require_eight if eight_bit else require_two_four)("cuSPARSELt", problem, operands)
    import cupy

    device.set_current()
    cusparseLt = device_.cusparselt()
    name = ("cusparselt" if algorithm == "best" else "cusparselt_default") + ("_colmajor_b" if column_major_b else "")
    b, transposing_ms, copied_bytes, alpha = operands.b.bits, 0.0, 0, _ALPHA
    by_columns = problem.orders[0] == "F"
    if eight_bit:
        alpha = (operands.a.scale * operands.b.scale).get().ravel()
        column_major_b, b = True, b.T
    elif by_columns:
        column_major_b = True
    elif column_major_b:
        b, transposing_ms = timed(lambda: cupy.ascontiguousarray(operands.b.bits.T))
        copied_bytes = int(b.nbytes)
    release: list[tuple[Callable[[int], None], int]] = []
    try:
        handle = cusparseLt.init()
        release.append((cusparseLt.destroy, handle))
        a, compressing_ms, description = _describe(cusparseLt, handle, problem, operands, column_major_b, release)
        product = Product(
            cusparseLt,
            handle,
            description,
            (a.data.ptr, b.data.ptr, operands.c.bits.data.ptr),
            alpha,
        )
        won = _planned(product) if algorithm == "default" else _best(product, device)
        release += won.release
        cupy.cuda.get_current_stream().synchronize()  # a launch may come on another stream
    except cusparseLt.cuSPARSELtError as error:
        release_all(release)
        raise ValueError(
            f"cuSPARSELt refuses m={m}, n={n}, k={k} in {operands.a.dtype}: {cusparseLt.get_error_string(error.status)}"
        ) from error
    except BaseException:
        release_all(release)
        raise
    bound = Bound(
        name,
        compressing_ms + transposing_ms,
        int(a.nbytes) + copied_bytes + int(won.workspace.nbytes),
        won.choice,
        won.call,
        operands.c,
    )
    # The arrays behind the raw addresses live for as long as the library may read them.
    bound.close = weakref.finalize(bound, release_all, release, (a, b, operands, alpha))
    return bound


def contenders(device) -> dict[str, Callable[[Problem], Bound]]:
    """What a kernel is compared with: "cusparselt_default" and "cusparselt"."""
    return {
        "cusparselt_default": partial(bind, "default", device=device),
        "cusparselt": partial(bind, "best", device=device),
    }


def layouts(device) -> dict[str, Callable[[Problem], Bound]]:
    """The best algorithm on a column-major copy of B: "cusparselt_colmajor_b"."""
    return {"cusparselt_colmajor_b": partial(bind, "best", device=device, column_major_b=True)}


def fastest(candidates: Mapping[str, Any], device) -> list[str]:
    """Names of the `FINALISTS` fastest of some `Bound`s, the fastest first.

    All are timed briefly by `bench.time`, from cold caches; those that lead, again and for longer.
    """
    rough = bench.time(candidates, device, budget_s=ROUGH_S, min_samples=3, max_samples=5)
    lead = sorted(candidates, key=lambda name: rough[name].median_us)[:FINALISTS]
    fine = bench.time({name: candidates[name] for name in lead}, device, budget_s=FINE_S)
    return sorted(lead, key=lambda name: fine[name].median_us)


def require_two_four(library: str, problem: Problem, operands) -> None:
    """Raise ValueError unless A is 2:4, and B and C are 16-bit floats of its dtype."""
    a, b, c = operands.a, operands.b, operands.c
    halves = isinstance(b, Half) and isinstance(c, Half)
    require(
        isinstance(a, two_four.TwoFour) and halves and a.dtype == b.dtype == c.dtype,
        f"{library} takes a 2:4 A with a B and a C of its 16-bit dtype here, and {problem.room} has "
        "something else: compare with another baseline",
    )


def require_eight(library: str, problem: Problem, operands) -> None:
    """Raise ValueError unless A is 2:4 and B dense in e4m3, with one scale each, and C is bfloat16."""
    a, b, c = operands.a, operands.b, operands.c
    require(
        isinstance(a, two_four_eight.TwoFourEight)
        and isinstance(b, Eight)
        and a.dtype == b.dtype == "e4m3"
        and a.scale.size == b.scale.size == 1,
        f"{library} takes a 2:4 A and a B of e4m3 with one scale each here, and {problem.room} has something else: "
        "compare with another baseline",
    )
    require(
        isinstance(c, Half) and c.dtype == "bfloat16",
        f"{library} gives a bfloat16 C of e4m3 here, not {c.dtype}: compare with another baseline",
    )


def release_all(release: list, keep: tuple = (), leave: int = 0) -> None:
    """Destroy what was made, the last first, but for `leave`; `keep` only has to live until then."""
    while len(release) > leave:
        destroy, thing = release.pop()
        destroy(thing)


def _require_multiples(m: int, n: int, k: int, multiple: int) -> None:
    require(
        min(m, n, k) > 0 and not (m % multiple or n % multiple or k % multiple),
        f"cuSPARSELt takes multiples of {multiple} only, as {ALIGNMENT * 8 // multiple}-bit rows are aligned to "
        f"{ALIGNMENT} bytes, but m={m}, n={n}, k={k}: compare with another baseline",
    )


def _describe(library, handle: int, problem: Problem, operands, column_major_b: bool, release: list):
    """Compressed A (CuPy bytes), the milliseconds of compressing it, the product's descriptor."""
    import cupy
    from cuda.bindings import runtime
    from nvmath.bindings import cusparse

    m, n, k, a = problem.m, problem.n, problem.k, operands.a
    dtype, out = (int(getattr(runtime.cudaDataType, DATA_TYPE[x.dtype])) for x in (a, operands.c))
    row, column = int(cusparse.Order.ROW), int(cusparse.Order.COL)
    as_is, transposed = int(cusparse.Operation.NON_TRANSPOSE), int(cusparse.Operation.TRANSPOSE)

    def dense(rows: int, columns: int, dtype: int, order: int = row) -> int:
        matrix = library.dense_descriptor_init(
            handle, rows, columns, columns if order == row else rows, ALIGNMENT, dtype, order
        )
        release.append((library.mat_descriptor_destroy, matrix))
        return matrix

    mat_a = library.structured_descriptor_init(
        handle, m, k, k, ALIGNMENT, dtype, row, int(library.Sparsity.SPARSITY_50_PERCENT)
    )
    release.append((library.mat_descriptor_destroy, mat_a))
    # Column-major B is row-major B^T, transposed.
    mat_b, op_b = (dense(n, k, dtype), transposed) if column_major_b else (dense(k, n, dtype), as_is)
    mat_c = dense(m, n, out, column if problem.orders[1] == "F" else row)
    description = library.matmul_descriptor_init(
        handle, as_is, op_b, mat_a, mat_b, mat_c, mat_c, int(library.ComputeType.COMPUTE_32F)
    )
    release.append((library.matmul_descriptor_destroy, description))

    size, scratch = library.sp_mma_compressed_size2(handle, mat_a)
    compressed, buffer = cupy.empty(size, cupy.uint8), cupy.empty(scratch, cupy.uint8)
    bits = (two_four_eight if out != dtype else two_four).to_dense_bits(a)
    stream = cupy.cuda.get_current_stream().ptr
    _, ms = timed(
        lambda: library.sp_mma_compress2(
            handle, mat_a, 1, as_is, bits.data.ptr, compressed.data.ptr, buffer.data.ptr, stream
        )
    )
    return compressed, ms, description


def _planned(product: Product, **attributes: int) -> Candidate:
    """The default algorithm, but for these attributes of its selection (MatmulAlgAttribute)."""
    import cupy

    library, handle = product.library, product.handle
    release: list = []
    try:
        selection = library.matmul_alg_selection_init(handle, product.description, int(library.MatmulAlg.DEFAULT))
        release.append((library.matmul_alg_selection_destroy, selection))
        for name, value in attributes.items():
            number = np.array([value], np.int32)
            library.matmul_alg_set_attribute(
                handle,
                selection,
                int(library.MatmulAlgAttribute[name]),
                number.ctypes.data,
                number.nbytes,
            )
        plan = library.matmul_plan_init(handle, product.description, selection)
        release.append((library.matmul_plan_destroy, plan))
        workspace = cupy.empty(library.matmul_get_workspace(handle, plan), cupy.uint8)
        return Candidate(product, selection, plan, workspace, release)
    except BaseException:
        release_all(release)
        raise


def _best(product: Product, device) -> Candidate:
    """The fastest algorithm of a product; what loses is destroyed. Overwrites C."""
    made: dict[str, Candidate] = {}
    try:
        default = _planned(product)  # where even this one is refused, the problem is
        made[default.choice] = default
        # Versions of the library differ in whether the highest number is still an algorithm.
        for number in range(_get(product, default.selection, "CONFIG_MAX_ID") + 1):
            _add(product, made, CONFIG_ID=number)
        _add_found(product, made)
        lead, before = fastest(made, device), set(made)
        for name in lead:
            number = _get(product, made[name].selection, "CONFIG_ID")
            for split, mode in SPLITS:
                mode = int(product.library.SplitKMode[mode])
                _add(product, made, CONFIG_ID=number, SPLIT_K=split, SPLIT_K_MODE=mode)
        last = {name: made[name] for name in made if name in lead or name not in before}
        return made.pop(fastest(last, device)[0])
    finally:
        for candidate in made.values():
            release_all(candidate.release)


def _add(product: Product, made: dict[str, Candidate], **attributes: int) -> None:
    """Plan one more algorithm and launch it once, unless it is there or the library refuses it."""
    import cupy

    refusal = product.library.cuSPARSELtError
    try:
        candidate = _planned(product, **attributes)
    except refusal:
        return
    try:
        if candidate.choice not in made:
            candidate.call(cupy.cuda.get_current_stream().ptr)
            made[candidate.choice] = candidate
    except refusal:
        pass
    finally:
        if made.get(candidate.choice) is not candidate:
            release_all(candidate.release)


def _add_found(product: Product, made: dict[str, Candidate]) -> None:
    """Let the library search, and add what it finds: a plan that it has put in order itself."""
    import cupy

    library = product.library
    try:
        found = _planned(product, SEARCH_ITERATIONS=SEARCH_ITERATIONS)
    except library.cuSPARSELtError:
        return
    try:
        # It tries all of them, so the workspace must do for all of them.
        most = max(candidate.workspace.nbytes for candidate in made.values())
        found = replace(found, workspace=cupy.empty(most, cupy.uint8))
        found.streams[0] = cupy.cuda.get_current_stream().ptr
        library.matmul_search(*found.arguments)
        need = library.matmul_get_workspace(product.handle, found.plan)
        found = replace(found, workspace=cupy.empty(need, cupy.uint8))
        found.choice += ", as the library's search left it"
        found.call(cupy.cuda.get_current_stream().ptr)
        made[found.choice] = found
    except library.cuSPARSELtError:
        release_all(found.release)
    except BaseException:
        release_all(found.release)
        raise


def _get(product: Product, selection: int, name: str) -> int:
    """One attribute of an algorithm's selection."""
    number = np.zeros(1, np.int32)
    product.library.matmul_alg_get_attribute(
        product.handle,
        selection,
        int(product.library.MatmulAlgAttribute[name]),
        number.ctypes.data,
        number.nbytes,
    )
    return int(number[0])


def _words(product: Product, selection: int) -> str:
    """An algorithm in words: "algorithm 3, split-K 1, HEURISTIC"."""
    number, split, mode = (_get(product, selection, name) for name in ("CONFIG_ID", "SPLIT_K", "SPLIT_K_MODE"))
    return f"algorithm {number}, split-K {split}, {product.library.SplitKMode(mode).name}"
