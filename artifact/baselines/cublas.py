"""cuBLAS's multiplication of the same operands made dense: in float32, and on tensor cores by cuBLASLt.

The sparse B is made dense in `prepare`, once: that is `prepare_ms`. CUBLAS_COMPUTE_32F in the default
math mode multiplies in full float32; TF32 would need another mode or another compute type.

`READINGS` put more and more into a call, to find out what a published number contains:

    cublas              the multiplication alone: handle, operands and result are where they belong
    cublas_transfers    + A and B copied to the device and C back, from and to pageable memory
    cublas_allocation   + device memory for A, B and C allocated and freed, without transfers
    cublas_handle       + the handle created and destroyed, as Zeng's public code does

Each adds to the first one alone. All but the first make the host wait for the GPU: they are for
`bench.time_calls`, where host time counts.

cuBLASLt multiplies with sums in float32:

    cublaslt               A in 2:4, 16-bit floats; B and C as they lie
    cublaslt_eight         A in 2:4, in e4m3 with a scale for each operand; C bfloat16
    cublas_tf32            an N:M B; float32 arrays whose values TF32 holds, A and C column-major
    cublas_bf16            the same with A and C in bfloat16, and float32 values in B that bfloat16 holds
    cublas_dense           A in BCSR; bfloat16, float16, or float32 in TF32; B and C by rows or by columns
    cublas_dense_default   the same by cublasGemmEx as torch.mm calls it: A row-major, as a layer has its weights,
                           and the algorithm left to the library

The sparse operand is made dense in `prepare`, once: that is `prepare_ms`, and with a workspace `prepare_bytes`. No
kernel prescribes how an N:M B or a BCSR A then lies, so it is made in both orders, and algorithms for both are
candidates; the one that loses is freed.

`nvmath.linalg.advanced.Matmul` asks the library for its `PLANNED` likeliest algorithms and times them
(autotuning). The host's time counts there, which decides among kernels of some microseconds, so
`bench.time` has the last word on the `TUNED` fastest; `PreparedKernel.choice` says which one that was.
Neither is in `prepare_ms`.

A launch calls `cublasLtMatmul` with that algorithm through nvmath's bindings: `Matmul.execute` records
an event around each call, and allocates a result or needs C as an operand, none of which belongs into
a launch that may be captured.

8-bit operands are multiplied only where k is contiguous in both and C lies column-major. Where C lies by rows the
library is asked for C^T = B^T · A^T, whose matrices are ours as they lie, and for C = A · B where it lies by columns.
Scales are handed over as device addresses. The library's proposals are tried in both of SUMS.
"""

from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from functools import partial
from typing import Any

import numpy as np

from artifact.baselines._library import (
    ALPHA,
    BETA,
    PreparedKernel,
    cublas,
    cublasLt,
    data_type,
    fastest,
    hold,
    offers,
    on_stream,
    owned,
    put,
    refusing,
    require_column_major,
    require_taken,
    sizes,
)
from artifact.baselines.cusparse import require_blocks
from artifact.baselines.cusparselt import MULTIPLE_EIGHT, require_eight, require_two_four
from artifact.measure.device import first_line
from kernels import formats
from kernels.contract import Operands, Problem, require, timed
from kernels.formats import half, nm, two_four
from kernels.gpu import succeeded
from kernels.lazy import cupy, runtime

READINGS = ("cublas", "cublas_transfers", "cublas_allocation", "cublas_handle")


def prepare(reading: str, problem: Problem, device) -> PreparedKernel:
    """Make cuBLAS ready: a handle, B dense in Fortran order, and what the reading needs besides.

    reading: one of READINGS. device: `cuda.core.Device`, current. Raises ValueError for a problem
    without elements, where A or C is not a float32 array in Fortran order, and where the library
    refuses a handle.
    """
    require(
        min(problem.m, problem.n, problem.k) > 0,
        f"cuBLAS has nothing to multiply at {sizes(problem)}: give it a row and a column",
    )
    operands = problem.device()
    require_column_major("cuBLAS", problem, operands)
    dense, prepare_ms = timed(lambda: cupy.array(formats.to_dense(operands.b), order="F"))
    with refusing(f"cuBLAS refuses a handle at {sizes(problem)}", cublas.cuBLASError) as stack:
        ours = Operands(operands.a, dense, operands.c)
        call, output, *keep = _READY[reading](owned(stack, cublas.destroy, cublas.create()), ours)
        made = PreparedKernel(
            reading, prepare_ms, int(dense.nbytes), call, output, needs_host_clock=reading != "cublas"
        )
        return hold(made, stack, ours, keep)


#: What a kernel is compared with.
contenders = offers(prepare, {"cublas": ("cublas",)})
#: Every reading as a contender of `bench.time_calls`.
readings = offers(prepare, {name: (name,) for name in READINGS})


def gemm_arguments(a, b, c, dtype: str = "float32", compute: str = "COMPUTE_32F") -> tuple:
    """Return what gemm_ex takes after the handle for c = a · b, with the algorithm left to the library.

    a (m, k), b (k, n), c (m, n): CuPy arrays without gaps, each row-major or column-major; a
    row-major c is computed as its transpose, which is what lies there by columns. dtype: of all
    of them; compute: member of ComputeType, with float32 scalars.
    """
    if not c.flags.f_contiguous:
        a, b, c = b.T, a.T, c.T
    (m, k), n = a.shape, b.shape[1]
    kind, by_columns = data_type(dtype), (a.flags.f_contiguous, b.flags.f_contiguous)
    operations = (int(cublas.Operation.N if each else cublas.Operation.T) for each in by_columns)
    lda, ldb = (x.shape[0 if each else 1] for x, each in zip((a, b), by_columns, strict=True))
    alpha, beta = ALPHA.ctypes.data, BETA.ctypes.data
    matrices = (alpha, a.data.ptr, kind, lda, b.data.ptr, kind, ldb, beta, c.data.ptr, kind, m)
    return *operations, m, n, k, *matrices, int(getattr(cublas.ComputeType, compute)), int(cublas.GemmAlgo.DEFAULT)


def multiplication(handle: int, a, b, c, *how: str) -> Callable[[int], None]:
    """Return the multiplication alone. a, b, c, how: as `gemm_arguments` takes them."""
    arguments = gemm_arguments(a, b, c, *how)
    return on_stream(partial(cublas.set_stream, handle), partial(cublas.gemm_ex, handle, *arguments))


# One function for each reading: its call, the output to check, and other arrays that both need.


def _kernel(handle: int, ours: Operands) -> tuple:
    return multiplication(handle, ours.a, ours.b, ours.c), ours.c


def _transfers(handle: int, ours: Operands) -> tuple:
    """Return the output, which is the copy on the host that `check` poisons.

    The arrays on the device begin as NaN and belong to this contender alone, so that a copy left out cannot go
    unnoticed.
    """
    kinds = runtime.cudaMemcpyKind
    a, b = (array.get(order="F") for array in (ours.a, ours.b))  # pageable, as malloc gives it
    c = np.full(ours.c.shape, np.nan, np.float32, order="F")
    there = Operands(*(cupy.full_like(x, np.nan) for x in (ours.a, ours.b, ours.c)))
    multiply, pairs = multiplication(handle, there.a, there.b, there.c), ((there.a, a), (there.b, b))
    inputs = [(x.data.ptr, y.ctypes.data, y.nbytes, kinds.cudaMemcpyHostToDevice) for x, y in pairs]
    output = (c.ctypes.data, there.c.data.ptr, c.nbytes, kinds.cudaMemcpyDeviceToHost)

    def call(stream: int) -> None:
        for copy in inputs:
            _ask("cudaMemcpyAsync", *copy, stream)
        multiply(stream)
        _ask("cudaMemcpyAsync", *output, stream)

    return call, c, a, b, there


def _allocation(handle: int, ours: Operands) -> tuple:
    """Fresh memory holds no operands unless something copies them there, which is another reading.

    So the product is still that of the operands that stay, and the fresh memory only costs time.
    """
    multiply, sizes = multiplication(handle, ours.a, ours.b, ours.c), [x.nbytes for x in (ours.a, ours.b, ours.c)]

    def call(stream: int) -> None:
        with ExitStack() as fresh:
            for size in sizes:
                fresh.callback(_ask, "cudaFree", _ask("cudaMalloc", size))
            multiply(stream)

    return call, ours.c


def _handle(handle: int, ours: Operands) -> tuple:
    """Return a handle of its own for every call; the one that `prepare` made stays unused."""
    arguments = gemm_arguments(ours.a, ours.b, ours.c)

    def call(stream: int) -> None:
        with ExitStack() as stack:
            fresh = owned(stack, cublas.destroy, cublas.create())
            cublas.set_stream(fresh, stream)
            cublas.gemm_ex(fresh, *arguments)

    return call, ours.c


_READY = dict(zip(READINGS, (_kernel, _transfers, _allocation, _handle), strict=True))


def _ask(call: str, *arguments: Any) -> Any:
    """Call the CUDA runtime and return what it answers. Raise RuntimeError, one sentence, where it fails."""
    return succeeded(getattr(runtime, call)(*arguments), f"{call} failed with {{}}")


# ---------------------------------------------------------------- cuBLASLt

#: Of an N:M B: name in the records -> dtype, and bits of a float32 that dtypes have no place for.
TENSOR = {"cublas_tf32": "tf32", "cublas_bf16": "bfloat16"}
LOST = {"tf32": 0x1FFF, "bfloat16": 0xFFFF}
DENSE = ("cublas_dense", "cublas_dense_default")
#: What the choice says of the order of what was made dense -> the order.
ORDERS = {"row-major": "C", "column-major": "F"}
PLANNED, TUNED = 16, 6
#: Launches of each algorithm while autotuning.
ITERATIONS = 5
#: Bytes that an algorithm may ask for; on Hopper the library recommends 32 MiB.
WORKSPACE_BYTES = 256 * 2**20
#: What sums are computed in.
_COMPUTE = {"bfloat16": "COMPUTE_32F", "float16": "COMPUTE_32F", "tf32": "COMPUTE_32F_FAST_TF32"}
#: How sums of 8-bit products are made -> cublasLt's FAST_ACCUM: they stay in the tensor cores, as those of the kernels
#: here do, or now and then they are added up in float32 registers, which is more accurate, and slower.
SUMS = {"fast": 1, "promoted": 0}


class NoAlgorithm(Exception):
    """The library knows no algorithm for a problem."""


#: What makes the candidates of the library's handle, of what was made dense, and of a stack of what to destroy: the
#: algorithm in words -> it, named by the order of what it multiplies.
Propose = Callable[[int, dict[str, Any], ExitStack], dict[str, PreparedKernel]]


def prepare_lt(problem: Problem, device) -> PreparedKernel:
    """Make cuBLASLt ready on a 2:4 A: A dense, an algorithm and its workspace. Overwrites C.

    device: `cuda.core.Device`, current. Raises ValueError where A is not 2:4 or B not 16-bit of the
    same dtype, where m, n or k is 1 (but n of B and C by columns), and where the library refuses the problem.
    """
    _require_matrices("cuBLASLt", problem, by_columns=problem.orders == "FF")
    operands = problem.device()
    require_two_four("cuBLASLt", problem, operands)
    make = {"": partial(two_four.to_dense_bits, operands.a)}
    return _tuned("cublaslt", make, lambda a: (a, operands.b.bits, operands.c.bits), operands.a.dtype, problem, device)


def prepare_tensor(name: str, problem: Problem, device) -> PreparedKernel:
    """Make cuBLASLt ready on an N:M B: B dense in its better order, an algorithm, its workspace. Overwrites C.

    name: of TENSOR. device: `cuda.core.Device`, current. Raises ValueError where m, n or k is 1, where the operands are
    others than the module's docstring lists, and where the library refuses the problem.
    """
    dtype = TENSOR[name]
    _require_matrices(name, problem)
    operands = problem.device()
    a, c = (x.bits if isinstance(x, half.Half) and x.dtype == dtype else x for x in (operands.a, operands.c))
    number = np.uint16 if dtype in half.DTYPES else np.float32
    by_columns = all(getattr(x, "dtype", None) == number and x.flags.f_contiguous for x in (a, c))
    takes = f"an N:M B with a column-major A and C in {dtype}"
    require_taken(isinstance(operands.b, nm.Nm) and by_columns, name, takes, problem)
    _require_exact(name, dtype, {"A": a, "B": operands.b.val}, problem)
    return _tuned(name, _orders(operands.b, "B", dtype), lambda b: (a, b, c), dtype, problem, device)


def prepare_dense(name: str, problem: Problem, device) -> PreparedKernel:
    """Make the library ready on a BCSR A: A dense, and an algorithm and its workspace. Overwrites C.

    name: one of `DENSE`. device: `cuda.core.Device`, current. Raises ValueError where A is not BCSR with a B and a C of
    its dtype, where float32 values are others than TF32 holds, for "cublas_dense" where m, n or k is 1, and where the
    library refuses the problem.
    """
    operands = problem.device()
    require_blocks(name, problem, operands)
    b, c = half.array_of(operands.b), half.array_of(operands.c)
    dtype = operands.a.dtype.replace("float32", "tf32")
    _require_exact(name, dtype, {"A": operands.a.val, "B": b}, problem)
    orders = _orders(operands.a, "A", dtype)
    if name == DENSE[0]:
        _require_matrices(name, problem, DENSE[1])
        return _tuned(name, orders, lambda a: (a, b, c), dtype, problem, device)
    a, prepare_ms = timed(orders[", A row-major"])
    with refusing(f"cuBLAS refuses {sizes(problem)} in {dtype}", cublas.cuBLASError) as stack:
        call = multiplication(owned(stack, cublas.destroy, cublas.create()), a, b, c, dtype, _COMPUTE[dtype])
        call(cupy.cuda.get_current_stream().ptr)  # the first launch loads code and may be refused
        how = int(a.nbytes), call, operands.c, "the library's default"
        return hold(PreparedKernel(name, prepare_ms, *how), stack, a, operands)


def prepare_eight(problem: Problem, device) -> PreparedKernel:
    """Make cuBLASLt ready on a 2:4 A in e4m3: A dense, an algorithm and its workspace. Overwrites C.

    device: `cuda.core.Device`, current. Raises ValueError where the operands are no e4m3 with one scale each and a
    bfloat16 C, where m, n (of C by rows) or k is no multiple of 16, and where the library refuses the problem.
    """
    operands = problem.device()
    require_eight("cuBLASLt", problem, operands)
    lines = 0 if problem.orders == "FF" else problem.n  # one column is as good as another
    require(
        not any(size % MULTIPLE_EIGHT for size in (problem.m, lines, problem.k)),
        f"cuBLASLt multiplies e4m3 in multiples of {MULTIPLE_EIGHT} only, but {sizes(problem)}: compare with "
        "another baseline",
    )

    make = {"": partial(two_four.to_dense_bits, operands.a)}
    return _fastest("cublaslt_eight", make, partial(_proposals, problem), "e4m3", problem, device)


lt = offers(prepare_lt, {"cublaslt": ()})
tensor = offers(prepare_tensor, {name: (name,) for name in TENSOR})
dense = offers(prepare_dense, {name: (name,) for name in DENSE})
eight = offers(prepare_eight, {"cublaslt_eight": ()})


def _require_matrices(
    contender: str, problem: Problem, other: str = "another baseline", by_columns: bool = False
) -> None:
    require(
        min(problem.m, problem.k) > 1 and (problem.n > 1 or by_columns),
        f"{contender} is planned from the strides of matrices, and at {sizes(problem)} one is a "
        f"vector, which has no order: compare with {other}",
    )


def _require_exact(contender: str, dtype: str, operands: dict[str, Any], problem: Problem) -> None:
    """Raise ValueError, naming the operand, for float32 values that a dtype does not hold.

    Rounding them would make it another product.
    """
    for name, values in operands.items():
        lost = values.dtype == np.float32 and (values.view(np.uint32) & np.uint32(LOST[dtype])).any()
        require_taken(not lost, contender, f"values of {name} that {dtype} holds exactly", problem)


def _orders(sparse: Any, letter: str, dtype: str) -> dict[str, Callable[[], Any]]:
    """Return what makes an operand dense in each order: float32, or the bits of a 16-bit dtype."""

    def make(order: str) -> Any:
        return cupy.array(half.to_bits(formats.to_dense(sparse), dtype.replace("tf32", "float32")), order=order)

    return {f", {letter} {words}": partial(make, order) for words, order in ORDERS.items()}


def _fastest(
    name: str, make: Mapping[str, Callable[[], Any]], propose: Propose, dtype: str, problem: Problem, device
) -> PreparedKernel:
    """Make an operand dense, and return the fastest of the candidates that multiply it.

    make: words on an order -> what makes it. Overwrites C. Raises ValueError where the library refuses the problem, or
    knows no algorithm.
    """
    made, operands = {words: timed(work) for words, work in make.items()}, problem.device()
    with refusing(f"cuBLASLt refuses {sizes(problem)} in {dtype}", cublasLt.cuBLASLtError, NoAlgorithm) as stack:
        handle = owned(stack, cublasLt.destroy, cublasLt.create())
        candidates = propose(handle, {words: array for words, (array, _) in made.items()}, stack)
        if not candidates:
            raise NoAlgorithm("it knows no algorithm")
        choice = fastest(candidates, device)[0]
        won = candidates[choice]
        array, prepare_ms = made[won.name]
        nbytes = int(array.nbytes) + won.prepare_bytes
        return hold(PreparedKernel(name, prepare_ms, nbytes, won.call, operands.c, choice), stack, array, operands, won)


def _tuned(
    name: str,
    make: Mapping[str, Callable[[], Any]],
    place: Callable[[Any], tuple],
    dtype: str,
    problem: Problem,
    device,
) -> PreparedKernel:
    """Return the fastest of the algorithms that Matmul finds. place: the dense operand -> A, B and C, without gaps."""

    def propose(handle: int, made: dict[str, Any], stack: ExitStack) -> dict[str, PreparedKernel]:
        products = {words: place(array) for words, array in made.items()}
        return {
            found + words: _candidate(handle, *described, matrices, algorithm, words)
            for words, matrices in products.items()
            for described in [_describe(matrices, dtype, stack)]
            for found, algorithm in _algorithms(handle, dtype, *matrices).items()
        }

    return _fastest(name, make, propose, dtype, problem, device)


def _algorithms(handle: int, dtype: str, a, b, c) -> dict[str, np.ndarray]:
    """Return the `TUNED` fastest algorithms that Matmul finds for c = a · b, in words -> as an array."""
    # Gives NumPy, and through it CuPy and nvmath, the dtype bfloat16: before nvmath lists them.
    import ml_dtypes
    from nvmath.linalg.advanced import Matmul

    numbers = np.dtype({"bfloat16": ml_dtypes.bfloat16, "float16": np.float16, "tf32": np.float32}[dtype])
    compute = int(getattr(cublas.ComputeType, _COMPUTE[dtype]))
    options = {"compute_type": compute, "handle": handle, "memory_limit": WORKSPACE_BYTES}
    # A result lies as A does, unless there is a C to add, which zero times is nothing.
    added = {} if _by_rows(c) == _by_rows(a) else {"c": c.view(numbers), "beta": 0.0}
    options |= {"inplace": True} if added and c.shape[1] == 1 else {}  # or it would be added to every column
    with Matmul(a.view(numbers), b.view(numbers), **added, options=options) as matmul:
        try:
            matmul.plan(preferences={"limit": PLANNED})
        except RuntimeError as error:
            raise NoAlgorithm(first_line(error)) from error
        matmul.autotune(iterations=ITERATIONS, prune=TUNED)
        return {
            f"algorithm {algorithm.algorithm_id}, split-K {algorithm.split_k}, option "
            f"{algorithm.custom_option}, place {place} after autotuning": algorithm.as_numpy()
            for place, algorithm in enumerate(matmul.algorithms, 1)
        }


def _by_rows(matrix) -> bool:
    """Tell whether a matrix lies by rows; what a vector says are its strides."""
    return matrix.strides[1] == matrix.itemsize


def _describe(matrices: tuple, dtype: str, stack: ExitStack) -> tuple[int, list[int]]:
    """Return the operation's descriptor and the layouts of A, B and C."""
    return _description(_COMPUTE[dtype], stack), [_layout(dtype, x.shape, stack, _by_rows(x)) for x in matrices]


def _description(compute: str, stack: ExitStack) -> int:
    made = cublasLt.matmul_desc_create(int(getattr(cublas.ComputeType, compute)), data_type("float32"))
    return owned(stack, cublasLt.matmul_desc_destroy, made)


def _layout(dtype: str, shape: tuple[int, int], stack: ExitStack, by_rows: bool = False) -> int:
    made, order = cublasLt.matrix_layout_create(data_type(dtype), *shape, shape[by_rows]), cublasLt.Order
    owned(stack, cublasLt.matrix_layout_destroy, made)
    number = np.int32(order.ROW if by_rows else order.COL)
    put(cublasLt.matrix_layout_set_attribute, cublasLt.MatrixLayoutAttribute, made, ORDER=number)
    return made


def _candidate(handle: int, operation: int, layouts, matrices, algorithm, words: str) -> PreparedKernel:
    """Return an algorithm, a result of the library's heuristics, with a workspace of its own.

    A contender of `bench.time`. matrices: CuPy arrays; words: on the order of what was made dense.
    """
    (a, b, c), (layout_a, layout_b, layout_c) = (matrix.data.ptr for matrix in matrices), layouts
    workspace = cupy.empty(int(algorithm["workspace_size"][0]), cupy.uint8)
    factors = ALPHA.ctypes.data, a, layout_a, b, layout_b, BETA.ctypes.data
    how = algorithm.ctypes.data, workspace.data.ptr, workspace.nbytes
    call = partial(cublasLt.matmul, handle, operation, *factors, c, layout_c, c, layout_c, *how)
    return PreparedKernel(words, 0.0, int(workspace.nbytes), call, matrices[2], keep=(workspace, algorithm))


def _proposals(problem: Problem, handle: int, made: dict[str, Any], stack: ExitStack) -> dict[str, PreparedKernel]:
    """Words -> candidate, of every algorithm that the library proposes for e4m3 and runs, with sums of both kinds."""
    operands = problem.device()
    # (bits, scale, lines of k) of both, in the library's order
    both = [(operands.b.bits, operands.b.scale, problem.n), (made[""], operands.a.scale, problem.m)]
    if problem.orders == "FF":
        both.reverse()
    (left, scale, high), (right, other_scale, wide) = both
    # Column-major layouts of both operands, the first to be transposed, and of C.
    shapes = ("e4m3", (problem.k, high)), ("e4m3", (problem.k, wide)), ("bfloat16", (high, wide))
    layouts = [_layout(*shape, stack) for shape in shapes]
    preference = owned(stack, cublasLt.matmul_preference_destroy, cublasLt.matmul_preference_create())
    most = {"MAX_WORKSPACE_BYTES": np.uint64(WORKSPACE_BYTES)}
    put(cublasLt.matmul_preference_set_attribute, cublasLt.MatmulPreferenceAttribute, preference, **most)
    run = {}
    for sums, fast in SUMS.items():
        operation = _description("COMPUTE_32F", stack)
        put(
            cublasLt.matmul_desc_set_attribute,
            cublasLt.MatmulDescAttribute,
            operation,
            TRANSA=np.int32(cublas.Operation.T),
            TRANSB=np.int32(cublas.Operation.N),
            FAST_ACCUM=np.int8(fast),
            A_SCALE_POINTER=np.uint64(scale.data.ptr),
            B_SCALE_POINTER=np.uint64(other_scale.data.ptr),
        )
        found, count = np.zeros(PLANNED, cublasLt.matmul_heuristic_result_dtype), np.zeros(1, np.int32)
        asked = (handle, operation, *layouts, layouts[2], preference, PLANNED)
        with suppress(cublasLt.cuBLASLtError):  # then there are none
            cublasLt.matmul_algo_get_heuristic(*asked, found.ctypes.data, count.ctypes.data)
        for place in range(int(count[0])):
            algorithm = found[place : place + 1].copy()
            candidate = _candidate(handle, operation, layouts, (left, right, operands.c.bits), algorithm, "")
            with suppress(cublasLt.cuBLASLtError):
                candidate.call(cupy.cuda.get_current_stream().ptr)
                run[f"place {place + 1} of the library's proposals, sums {sums}"] = candidate
    return run
