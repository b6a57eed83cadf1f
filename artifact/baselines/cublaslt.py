"""cuBLASLt's dense multiplication of the same operands: 16-bit floats, sums in float32, as B and C lie.

A is made dense in `bind`, once: that is `prepare_ms`.

`nvmath.linalg.advanced.Matmul` asks the library for its `PLANNED` likeliest algorithms and times them
(autotuning). The host's time counts there, which decides among kernels of some microseconds, so
`bench.time` has the last word on the `TUNED` fastest; `Bound.choice` says which one that was.
Neither is in `prepare_ms`.

A launch calls `cublasLtMatmul` with that algorithm through nvmath's bindings: `Matmul.execute` records
an event around each call, and allocates a result or needs C as an operand, none of which belongs into
a launch that may be captured.

`tune` is all of this but for the operands: `cublas_tensor` has it find its algorithms too.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from artifact.baselines.cusparselt import (
    DATA_TYPE,
    Bound,
    fastest,
    release_all,
    require_two_four,
)
from artifact.measure.device import first_line
from kernels.contract import Problem, require, timed
from kernels.formats import two_four

PLANNED, TUNED = 16, 6
#: Launches of each algorithm while autotuning.
ITERATIONS = 5
#: Bytes that an algorithm may ask for; on Hopper the library recommends 32 MiB.
WORKSPACE_BYTES = 256 * 2**20
#: Host scalars, read when the call is made, captured or not.
_ALPHA, _BETA = np.ones(1, np.float32), np.zeros(1, np.float32)
#: Member of cudaDataType for a dtype of the operands, and what sums are computed in.
_DATA = DATA_TYPE | {"tf32": "CUDA_R_32F"}
_COMPUTE = {"bfloat16": "COMPUTE_32F", "float16": "COMPUTE_32F", "tf32": "COMPUTE_32F_FAST_TF32"}


class NoAlgorithm(Exception):
    """The library knows no algorithm for a problem."""


@dataclass(eq=False)
class Candidate:
    """One algorithm with everything that it is called with: a contender of `bench.time`."""

    library: Any  #: nvmath.bindings.cublasLt
    arguments: tuple  #: of cublasLtMatmul, but for the stream
    workspace: Any  #: CuPy bytes
    algorithm: np.ndarray  #: cublasLtMatmulHeuristicResult_t, which begins with the algorithm
    product: str  #: of `tune`'s products, the one that it multiplies

    def call(self, stream: int) -> None:
        """Enqueue the multiplication on a stream, given by its handle."""
        self.library.matmul(*self.arguments, stream)

    def launch(self, stream) -> None:
        self.call(int(stream.handle))


def bind(problem: Problem, device) -> Bound:
    """Make cuBLASLt ready: A dense, an algorithm and its workspace. Overwrites C.

    device: `cuda.core.Device`, current. Raises ValueError where A is not 2:4 or B not 16-bit of the
    same dtype, where m, n or k is 1 (but n of B and C by columns), and where the library refuses the problem.
    """
    m, n, k = problem.m, problem.n, problem.k
    require(
        min(m, k) > 1 and (n > 1 or problem.orders == "FF"),
        f"cuBLASLt is planned from the strides of matrices, and at m={m}, n={n}, k={k} one is a "
        "vector, which has no order: compare with another baseline",
    )
    operands = problem.device()
    require_two_four("cuBLASLt", problem, operands)
    device.set_current()
    a, prepare_ms = timed(lambda: two_four.to_dense_bits(operands.a))
    choice, won, release = tune({"": (a, operands.b.bits, operands.c.bits)}, operands.a.dtype, problem, device)
    memory = int(a.nbytes + won.workspace.nbytes)
    bound = Bound("cublaslt", prepare_ms, memory, choice, won.call, operands.c)
    # The arrays behind the raw addresses live for as long as the library may read them.
    bound.close = weakref.finalize(bound, release_all, release, (a, operands))
    return bound


def contenders(device) -> dict[str, Callable[[Problem], Bound]]:
    """What a kernel is compared with: "cublaslt"."""
    return {"cublaslt": partial(bind, device=device)}


def tune(products: Mapping[str, tuple], dtype: str, problem: Problem, device) -> tuple[str, Candidate, list]:
    """The fastest algorithm in words, ready to launch, and what `release_all` is to destroy.

    products: what to add to the words -> A (m, k), B (k, n) and C (m, n), CuPy arrays without gaps,
    each row-major or column-major: the same multiplication with operands in another order. dtype:
    "bfloat16" or "float16", whose arrays are uint16, or "tf32", whose arrays are float32.
    Overwrites C. Raises ValueError where the library refuses the problem.
    """
    import cupy
    from nvmath.bindings import cublasLt

    release: list[tuple[Callable[[int], None], int]] = []
    candidates = {}
    try:
        handle = cublasLt.create()
        release.append((cublasLt.destroy, handle))
        for product, matrices in products.items():
            tuned = _tuned(handle, *matrices, dtype)
            described = _describe(cublasLt, matrices, dtype, release)
            candidates |= {
                words + product: _candidate(cublasLt, handle, *described, matrices, algorithm, product)
                for words, algorithm in tuned.items()
            }
        choice = fastest(candidates, device)[0]
        won = candidates.pop(choice)
        cupy.cuda.get_current_stream().synchronize()  # a launch may come on another stream
    except (cublasLt.cuBLASLtError, NoAlgorithm) as error:
        release_all(release)
        raise ValueError(
            f"cuBLASLt refuses m={problem.m}, n={problem.n}, k={problem.k} in {dtype}: {first_line(error)}"
        ) from error
    except BaseException:
        release_all(release)
        raise
    return choice, won, release


def _tuned(handle: int, a, b, c, dtype: str) -> dict[str, np.ndarray]:
    """The `TUNED` fastest algorithms that Matmul finds for c = a · b, in words -> as an array."""
    # Gives NumPy, and through it CuPy and nvmath, the dtype bfloat16: before nvmath lists them.
    import ml_dtypes
    from nvmath.bindings import cublas
    from nvmath.linalg.advanced import Matmul

    numbers = np.dtype({"bfloat16": ml_dtypes.bfloat16, "float16": np.float16, "tf32": np.float32}[dtype])
    options = {
        "compute_type": int(getattr(cublas.ComputeType, _COMPUTE[dtype])),
        "handle": handle,
        "memory_limit": WORKSPACE_BYTES,
    }
    # A result lies as A does, unless there is a C to add, which zero times is nothing.
    added = {} if _by_rows(c) == _by_rows(a) else {"c": c.view(numbers), "beta": 0.0}
    if added and c.shape[1] == 1:  # or it would be added to every column
        options["inplace"] = True
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
    """Whether a matrix lies by rows; what a vector says are its strides."""
    return matrix.strides[1] == matrix.itemsize


def _describe(library, matrices: tuple, dtype: str, release: list) -> tuple[int, list[int]]:
    """The operation's descriptor and the layouts of A, B and C."""
    from cuda.bindings import runtime
    from nvmath.bindings import cublas

    float32 = int(runtime.cudaDataType.CUDA_R_32F)
    numbers = int(getattr(runtime.cudaDataType, _DATA[dtype]))
    compute = int(getattr(cublas.ComputeType, _COMPUTE[dtype]))
    description = library.matmul_desc_create(compute, float32)
    release.append((library.matmul_desc_destroy, description))
    layouts = []
    for matrix in matrices:
        rows, columns = matrix.shape
        by_rows = _by_rows(matrix)
        layout = library.matrix_layout_create(numbers, rows, columns, columns if by_rows else rows)
        release.append((library.matrix_layout_destroy, layout))
        order = np.array([int(library.Order.ROW if by_rows else library.Order.COL)], np.int32)
        library.matrix_layout_set_attribute(
            layout, int(library.MatrixLayoutAttribute.ORDER), order.ctypes.data, order.nbytes
        )
        layouts.append(layout)
    return description, layouts


def _candidate(library, handle: int, description: int, layouts, matrices, algorithm, product: str) -> Candidate:
    """One of the algorithms that `_tuned` found, with a workspace of its own."""
    import cupy

    a, b, c = (matrix.data.ptr for matrix in matrices)
    layout_a, layout_b, layout_c = layouts
    workspace = cupy.empty(int(algorithm["workspace_size"][0]), cupy.uint8)
    arguments = (
        handle,
        description,
        _ALPHA.ctypes.data,
        a,
        layout_a,
        b,
        layout_b,
        _BETA.ctypes.data,
        c,
        layout_c,
        c,
        layout_c,
        algorithm.ctypes.data,
        workspace.data.ptr,
        workspace.nbytes,
    )
    return Candidate(library, arguments, workspace, algorithm, product)
