"""cuBLASLt's dense multiplication of the same operands in e4m3, sums in float32, C bfloat16.

A is made dense in `bind`, once: that is `prepare_ms`. The library multiplies 8-bit operands only where k is
contiguous in both and C lies column-major. Where C lies by rows it is asked for C^T = B^T · A^T, whose matrices are
ours as they lie, and for C = A · B where it lies by columns.
Scales, one for each operand, are handed over as device addresses.

    fast         sums stay in the tensor cores, as those of the kernels here do
    promoted     now and then they are added up in float32 registers: more accurate, slower

`bench.time` decides among the `PLANNED` likeliest algorithms of both (`Bound.choice` says which one won).
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from functools import partial

import numpy as np

from artifact.baselines.cublaslt import PLANNED, WORKSPACE_BYTES, Candidate, NoAlgorithm
from artifact.baselines.cusparselt import (
    DATA_TYPE,
    MULTIPLE_EIGHT,
    Bound,
    fastest,
    release_all,
    require_eight,
)
from artifact.measure.device import first_line
from kernels.contract import Problem, require, timed
from kernels.formats import two_four_eight

NAME = "cublaslt_eight"
#: How sums are made -> cublasLt's FAST_ACCUM.
SUMS = {"fast": 1, "promoted": 0}
#: Host scalars, read when the call is made, captured or not.
_ALPHA, _BETA = np.ones(1, np.float32), np.zeros(1, np.float32)


def bind(problem: Problem, device) -> Bound:
    """Make cuBLASLt ready: A dense, an algorithm and its workspace. Overwrites C.

    device: `cuda.core.Device`, current. Raises ValueError where the operands are no e4m3 with one scale each and a
    bfloat16 C, where m, n (of C by rows) or k is no multiple of 16, and where the library refuses the problem.
    """
    import cupy
    from nvmath.bindings import cublasLt

    m, n, k = problem.m, problem.n, problem.k
    operands = problem.device()
    require_eight("cuBLASLt", problem, operands)
    lines = 0 if problem.orders == "FF" else n  # one column is as good as another
    require(
        not (m % MULTIPLE_EIGHT or lines % MULTIPLE_EIGHT or k % MULTIPLE_EIGHT),
        f"cuBLASLt multiplies e4m3 in multiples of {MULTIPLE_EIGHT} only, but m={m}, n={n}, k={k}: compare with "
        "another baseline",
    )
    device.set_current()
    a, prepare_ms = timed(lambda: two_four_eight.to_dense_bits(operands.a))
    release: list[tuple[Callable[[int], None], int]] = []
    try:
        handle = cublasLt.create()
        release.append((cublasLt.destroy, handle))
        candidates = {}
        for sums in SUMS:
            candidates |= _candidates(cublasLt, handle, problem, a, sums, release)
        if not candidates:
            raise NoAlgorithm("it knows no algorithm")
        choice = fastest(candidates, device)[0]
        won = candidates.pop(choice)
        cupy.cuda.get_current_stream().synchronize()  # a launch may come on another stream
    except (cublasLt.cuBLASLtError, NoAlgorithm) as error:
        release_all(release)
        raise ValueError(f"cuBLASLt refuses m={m}, n={n}, k={k} in e4m3: {first_line(error)}") from error
    except BaseException:
        release_all(release)
        raise
    memory = int(a.nbytes + won.workspace.nbytes)
    bound = Bound(NAME, prepare_ms, memory, choice, won.call, operands.c)
    # The arrays behind the raw addresses live for as long as the library may read them.
    bound.close = weakref.finalize(bound, release_all, release, (a, operands))
    return bound


def contenders(device) -> dict[str, Callable[[Problem], Bound]]:
    """What a kernel is compared with: "cublaslt_eight"."""
    return {NAME: partial(bind, device=device)}


def _candidates(library, handle: int, problem: Problem, a, sums: str, release: list) -> dict:
    """Words -> candidate, of every algorithm that the library proposes and runs."""
    import cupy

    operands = problem.device()
    b = operands.b.bits
    # (bits, scale, lines of k) of both, in the library's order
    both = [(b, operands.b.scale, problem.n), (a, operands.a.scale, problem.m)]
    if problem.orders == "FF":
        both.reverse()
    description, layouts = _describe(library, both, problem.k, sums, release)
    preference = library.matmul_preference_create()
    release.append((library.matmul_preference_destroy, preference))
    limit = np.array([WORKSPACE_BYTES], np.uint64)
    library.matmul_preference_set_attribute(
        preference,
        int(library.MatmulPreferenceAttribute.MAX_WORKSPACE_BYTES),
        limit.ctypes.data,
        limit.nbytes,
    )
    first, second, out = layouts
    found = np.zeros(PLANNED, library.matmul_heuristic_result_dtype)
    count = np.zeros(1, np.int32)
    try:
        library.matmul_algo_get_heuristic(
            handle,
            description,
            first,
            second,
            out,
            out,
            preference,
            PLANNED,
            found.ctypes.data,
            count.ctypes.data,
        )
    except library.cuBLASLtError:
        return {}
    made = {}
    for place in range(int(count[0])):
        algorithm = found[place : place + 1].copy()
        workspace = cupy.empty(int(algorithm["workspace_size"][0]), cupy.uint8)
        c = operands.c.bits.data.ptr
        arguments = (
            handle,
            description,
            _ALPHA.ctypes.data,
            both[0][0].data.ptr,
            first,
            both[1][0].data.ptr,
            second,
            _BETA.ctypes.data,
            c,
            out,
            c,
            out,
            algorithm.ctypes.data,
            workspace.data.ptr,
            workspace.nbytes,
        )
        candidate = Candidate(library, arguments, workspace, algorithm, sums)
        try:
            candidate.call(cupy.cuda.get_current_stream().ptr)
        except library.cuBLASLtError:
            continue
        made[f"place {place + 1} of the library's proposals, sums {sums}"] = candidate
    return made


def _describe(library, both, k: int, sums: str, release: list):
    """The operation's descriptor, and column-major layouts of both operands, the first to be transposed, and of C."""
    from cuda.bindings import runtime
    from nvmath.bindings import cublas

    e4m3, bfloat16 = (int(getattr(runtime.cudaDataType, DATA_TYPE[dtype])) for dtype in ("e4m3", "bfloat16"))
    description = library.matmul_desc_create(int(cublas.ComputeType.COMPUTE_32F), int(runtime.cudaDataType.CUDA_R_32F))
    release.append((library.matmul_desc_destroy, description))
    for name, value, dtype in (
        ("TRANSA", int(cublas.Operation.T), np.int32),
        ("TRANSB", int(cublas.Operation.N), np.int32),
        ("FAST_ACCUM", SUMS[sums], np.int8),
        ("A_SCALE_POINTER", both[0][1].data.ptr, np.uint64),
        ("B_SCALE_POINTER", both[1][1].data.ptr, np.uint64),
    ):
        value = np.array([value], dtype)
        library.matmul_desc_set_attribute(
            description, int(library.MatmulDescAttribute[name]), value.ctypes.data, value.nbytes
        )
    layouts = []
    high, wide = both[0][2], both[1][2]
    for dtype, rows, columns in ((e4m3, k, high), (e4m3, k, wide), (bfloat16, high, wide)):
        layout = library.matrix_layout_create(dtype, rows, columns, rows)
        release.append((library.matrix_layout_destroy, layout))
        layouts.append(layout)
    return description, layouts
