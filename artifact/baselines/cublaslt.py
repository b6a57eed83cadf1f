"""cuBLASLt's dense multiplication of the same operands: 16-bit floats, sums in float32, as B and C lie.

A is made dense in `prepare`, once: that is `prepare_ms`.

`nvmath.linalg.advanced.Matmul` asks the library for its `PLANNED` likeliest algorithms and times them
(autotuning). The host's time counts there, which decides among kernels of some microseconds, so
`bench.time` has the last word on the `TUNED` fastest; `PreparedKernel.choice` says which one that was.
Neither is in `prepare_ms`.

A launch calls `cublasLtMatmul` with that algorithm through nvmath's bindings: `Matmul.execute` records
an event around each call, and allocates a result or needs C as an operand, none of which belongs into
a launch that may be captured.

`tune` is all of this but for the operands: `cublas_tensor` has it find its algorithms too.
"""

from collections.abc import Callable, Mapping
from contextlib import ExitStack
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
    owned,
    put,
    refusing,
    sizes,
)
from artifact.baselines.cusparselt import require_two_four
from artifact.measure.device import first_line
from kernels.contract import Problem, require, timed
from kernels.formats import two_four
from kernels.lazy import cupy

PLANNED, TUNED = 16, 6
#: Launches of each algorithm while autotuning.
ITERATIONS = 5
#: Bytes that an algorithm may ask for; on Hopper the library recommends 32 MiB.
WORKSPACE_BYTES = 256 * 2**20
#: What sums are computed in.
_COMPUTE = {"bfloat16": "COMPUTE_32F", "float16": "COMPUTE_32F", "tf32": "COMPUTE_32F_FAST_TF32"}


class NoAlgorithm(Exception):
    """The library knows no algorithm for a problem."""


def prepare(problem: Problem, device) -> PreparedKernel:
    """Make cuBLASLt ready: A dense, an algorithm and its workspace. Overwrites C.

    device: `cuda.core.Device`, current. Raises ValueError where A is not 2:4 or B not 16-bit of the
    same dtype, where m, n or k is 1 (but n of B and C by columns), and where the library refuses the problem.
    """
    require(
        min(problem.m, problem.k) > 1 and (problem.n > 1 or problem.orders == "FF"),
        f"cuBLASLt is planned from the strides of matrices, and at {sizes(problem)} one is a "
        "vector, which has no order: compare with another baseline",
    )
    operands = problem.device()
    require_two_four("cuBLASLt", problem, operands)
    a, prepare_ms = timed(lambda: two_four.to_dense_bits(operands.a))
    tuned = tune({"": (a, operands.b.bits, operands.c.bits)}, operands.a.dtype, problem, device)
    return bound("cublaslt", tuned, a, prepare_ms, operands)


contenders = offers(prepare, {"cublaslt": ()})


#: The fastest algorithm in words, ready to launch, and what is to be destroyed with it.
Tuned = tuple[str, PreparedKernel, ExitStack]


def tune(products: Mapping[str, tuple], dtype: str, problem: Problem, device) -> Tuned:
    """Find the fastest algorithm.

    products: what to add to the words -> A (m, k), B (k, n) and C (m, n), CuPy arrays without gaps,
    each row-major or column-major: the same multiplication with operands in another order. dtype:
    "bfloat16" or "float16", whose arrays are uint16, or "tf32", whose arrays are float32.
    Overwrites C. Raises ValueError where the library refuses the problem.
    """

    def propose(handle: int, stack: ExitStack) -> dict[str, PreparedKernel]:
        return {
            words + product: candidate(handle, *described, matrices, algorithm, product)
            for product, matrices in products.items()
            for described in [_describe(matrices, dtype, stack)]
            for words, algorithm in _tuned(handle, dtype, *matrices).items()
        }

    return search(propose, dtype, problem, device)


def search(propose: Callable[[int, ExitStack], dict], dtype: str, problem: Problem, device) -> Tuned:
    """Find the fastest of the library's candidates for a problem.

    `propose` makes them of the library's handle and a stack of what to destroy. Overwrites C. Raises ValueError where
    the library refuses the problem, or knows no algorithm.
    """
    with refusing(f"cuBLASLt refuses {sizes(problem)} in {dtype}", cublasLt.cuBLASLtError, NoAlgorithm) as stack:
        candidates = propose(owned(stack, cublasLt.destroy, cublasLt.create()), stack)
        if not candidates:
            raise NoAlgorithm("it knows no algorithm")
        choice = fastest(candidates, device)[0]
        return choice, candidates[choice], stack.pop_all()


def bound(name: str, tuned: Tuned, dense: Any, prepare_ms: float, operands, *keep: Any) -> PreparedKernel:
    """Make a `PreparedKernel` of what was tuned.

    dense: made of the sparse operand; keep: other arrays that are read.
    """
    choice, won, stack = tuned
    nbytes = int(dense.nbytes) + won.prepare_bytes
    return hold(
        PreparedKernel(name, prepare_ms, nbytes, won.call, operands.c, choice), stack, dense, operands, keep, won
    )


def _tuned(handle: int, dtype: str, a, b, c) -> dict[str, np.ndarray]:
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
    layouts = [layout(dtype, matrix.shape, stack, _by_rows(matrix)) for matrix in matrices]
    for made, matrix in zip(layouts, matrices, strict=True):
        order = np.int32(cublasLt.Order.ROW if _by_rows(matrix) else cublasLt.Order.COL)
        put(cublasLt.matrix_layout_set_attribute, cublasLt.MatrixLayoutAttribute, made, ORDER=order)
    return description(_COMPUTE[dtype], stack), layouts


def description(compute: str, stack: ExitStack) -> int:
    """Return the descriptor of an operation that computes in a member of ComputeType, with float32 scalars."""
    made = cublasLt.matmul_desc_create(int(getattr(cublas.ComputeType, compute)), data_type("float32"))
    return owned(stack, cublasLt.matmul_desc_destroy, made)


def layout(dtype: str, shape: tuple[int, int], stack: ExitStack, by_rows: bool = False) -> int:
    """Return a layout of a matrix without gaps."""
    made = cublasLt.matrix_layout_create(data_type(dtype), *shape, shape[by_rows])
    return owned(stack, cublasLt.matrix_layout_destroy, made)


def candidate(handle: int, operation: int, layouts, matrices, algorithm, product: str) -> PreparedKernel:
    """Return an algorithm, a result of the library's heuristics, with a workspace of its own.

    A contender of `bench.time`. matrices: CuPy arrays; product: its name, one of `tune`'s.
    """
    (a, b, c), (layout_a, layout_b, layout_c) = (matrix.data.ptr for matrix in matrices), layouts
    workspace = cupy.empty(int(algorithm["workspace_size"][0]), cupy.uint8)
    factors = ALPHA.ctypes.data, a, layout_a, b, layout_b, BETA.ctypes.data
    how = algorithm.ctypes.data, workspace.data.ptr, workspace.nbytes
    call = partial(cublasLt.matmul, handle, operation, *factors, c, layout_c, c, layout_c, *how)
    return PreparedKernel(product, 0.0, int(workspace.nbytes), call, matrices[2], keep=(workspace, algorithm))
