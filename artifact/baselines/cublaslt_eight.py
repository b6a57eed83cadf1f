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

from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import Any

import numpy as np

from artifact.baselines import cublaslt
from artifact.baselines._library import Bound, data_type, owned, sizes
from artifact.baselines.cublaslt import PLANNED, WORKSPACE_BYTES, layout
from artifact.baselines.cusparselt import MULTIPLE_EIGHT, require_eight
from artifact.measure.lazy import cupy
from kernels.contract import Problem, require, timed
from kernels.formats import two_four_eight

NAME = "cublaslt_eight"
#: How sums are made -> cublasLt's FAST_ACCUM.
SUMS = {"fast": 1, "promoted": 0}


def bind(problem: Problem, device) -> Bound:
    """Make cuBLASLt ready: A dense, an algorithm and its workspace. Overwrites C.

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
    device.set_current()
    a, prepare_ms = timed(lambda: two_four_eight.to_dense_bits(operands.a))

    def propose(library, handle: int, stack: ExitStack) -> dict[str, Bound]:
        made = (_candidates(library, handle, problem, a, sums, stack) for sums in SUMS)
        return {words: candidate for each in made for words, candidate in each.items()}

    return cublaslt.bound(NAME, cublaslt.search(propose, "e4m3", problem, device), a, prepare_ms, operands)


def contenders(device) -> dict[str, Callable[[Problem], Bound]]:
    """What a kernel is compared with: "cublaslt_eight"."""
    return {NAME: partial(bind, device=device)}


def _candidates(library, handle: int, problem: Problem, a, sums: str, stack: ExitStack) -> dict[str, Bound]:
    """Words -> candidate, of every algorithm that the library proposes and runs."""
    operands = problem.device()
    # (bits, scale, lines of k) of both, in the library's order
    both = [(operands.b.bits, operands.b.scale, problem.n), (a, operands.a.scale, problem.m)]
    if problem.orders == "FF":
        both.reverse()
    description, layouts = _describe(library, both, problem.k, sums, stack)
    preference = owned(stack, library.matmul_preference_destroy, library.matmul_preference_create())
    limit, most = np.array([WORKSPACE_BYTES], np.uint64), library.MatmulPreferenceAttribute.MAX_WORKSPACE_BYTES
    library.matmul_preference_set_attribute(preference, int(most), limit.ctypes.data, limit.nbytes)
    found, count = np.zeros(PLANNED, library.matmul_heuristic_result_dtype), np.zeros(1, np.int32)
    asked = (handle, description, *layouts, layouts[2], preference, PLANNED)
    try:
        library.matmul_algo_get_heuristic(*asked, found.ctypes.data, count.ctypes.data)
    except library.cuBLASLtError:
        return {}
    made = {}
    for place in range(int(count[0])):
        matrices = both[0][0], both[1][0], operands.c.bits
        algorithm = found[place : place + 1].copy()
        candidate = cublaslt.candidate(library, handle, description, layouts, matrices, algorithm, sums)
        try:
            candidate.call(cupy.cuda.get_current_stream().ptr)
        except library.cuBLASLtError:
            continue
        made[f"place {place + 1} of the library's proposals, sums {sums}"] = candidate
    return made


def _describe(library, both: list[tuple], k: int, sums: str, stack: ExitStack) -> tuple[int, list[int]]:
    """Return the operation's descriptor, and column-major layouts of both operands, the first to be transposed, and of
    C."""
    from nvmath.bindings import cublas

    sum_type = int(cublas.ComputeType.COMPUTE_32F)
    description = owned(stack, library.matmul_desc_destroy, library.matmul_desc_create(sum_type, data_type("float32")))
    attributes: dict[str, Any] = {
        "TRANSA": np.array([int(cublas.Operation.T)], np.int32),
        "TRANSB": np.array([int(cublas.Operation.N)], np.int32),
        "FAST_ACCUM": np.array([SUMS[sums]], np.int8),
        "A_SCALE_POINTER": np.array([both[0][1].data.ptr], np.uint64),
        "B_SCALE_POINTER": np.array([both[1][1].data.ptr], np.uint64),
    }
    for name, value in attributes.items():
        attribute = int(library.MatmulDescAttribute[name])
        library.matmul_desc_set_attribute(description, attribute, value.ctypes.data, value.nbytes)
    high, wide = both[0][2], both[1][2]
    shapes = ("e4m3", (k, high)), ("e4m3", (k, wide)), ("bfloat16", (high, wide))
    return description, [layout(library, dtype, shape, stack) for dtype, shape in shapes]
