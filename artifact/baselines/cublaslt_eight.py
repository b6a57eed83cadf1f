"""cuBLASLt's dense multiplication of the same operands in e4m3, sums in float32, C bfloat16.

A is made dense in `prepare`, once: that is `prepare_ms`. The library multiplies 8-bit operands only where k is
contiguous in both and C lies column-major. Where C lies by rows it is asked for C^T = B^T · A^T, whose matrices are
ours as they lie, and for C = A · B where it lies by columns.
Scales, one for each operand, are handed over as device addresses.

    fast         sums stay in the tensor cores, as those of the kernels here do
    promoted     now and then they are added up in float32 registers: more accurate, slower

`bench.time` decides among the `PLANNED` likeliest algorithms of both (`PreparedKernel.choice` says which one won).
"""

from contextlib import ExitStack, suppress

import numpy as np

from artifact.baselines import cublaslt
from artifact.baselines._library import PreparedKernel, cublas, cublasLt, offers, owned, put, sizes
from artifact.baselines.cublaslt import PLANNED, WORKSPACE_BYTES, description, layout
from artifact.baselines.cusparselt import MULTIPLE_EIGHT, require_eight
from kernels.contract import Problem, require, timed
from kernels.formats import two_four
from kernels.lazy import cupy

NAME = "cublaslt_eight"
#: How sums are made -> cublasLt's FAST_ACCUM.
SUMS = {"fast": 1, "promoted": 0}


def prepare(problem: Problem, device) -> PreparedKernel:
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
    a, prepare_ms = timed(lambda: two_four.to_dense_bits(operands.a))

    def propose(handle: int, stack: ExitStack) -> dict[str, PreparedKernel]:
        return {words: made for sums in SUMS for words, made in _candidates(handle, problem, a, sums, stack).items()}

    return cublaslt.bound(NAME, cublaslt.search(propose, "e4m3", problem, device), a, prepare_ms, operands)


contenders = offers(prepare, {NAME: ()})


def _candidates(handle: int, problem: Problem, a, sums: str, stack: ExitStack) -> dict[str, PreparedKernel]:
    """Words -> candidate, of every algorithm that the library proposes and runs."""
    operands = problem.device()
    # (bits, scale, lines of k) of both, in the library's order
    both = [(operands.b.bits, operands.b.scale, problem.n), (a, operands.a.scale, problem.m)]
    if problem.orders == "FF":
        both.reverse()
    (left, scale, high), (right, other_scale, wide) = both
    # Column-major layouts of both operands, the first to be transposed, and of C.
    shapes = ("e4m3", (problem.k, high)), ("e4m3", (problem.k, wide)), ("bfloat16", (high, wide))
    layouts, operation = [layout(*shape, stack) for shape in shapes], description("COMPUTE_32F", stack)
    put(
        cublasLt.matmul_desc_set_attribute,
        cublasLt.MatmulDescAttribute,
        operation,
        TRANSA=np.int32(cublas.Operation.T),
        TRANSB=np.int32(cublas.Operation.N),
        FAST_ACCUM=np.int8(SUMS[sums]),
        A_SCALE_POINTER=np.uint64(scale.data.ptr),
        B_SCALE_POINTER=np.uint64(other_scale.data.ptr),
    )
    preference = owned(stack, cublasLt.matmul_preference_destroy, cublasLt.matmul_preference_create())
    most = {"MAX_WORKSPACE_BYTES": np.uint64(WORKSPACE_BYTES)}
    put(cublasLt.matmul_preference_set_attribute, cublasLt.MatmulPreferenceAttribute, preference, **most)
    found, count = np.zeros(PLANNED, cublasLt.matmul_heuristic_result_dtype), np.zeros(1, np.int32)
    asked = (handle, operation, *layouts, layouts[2], preference, PLANNED)
    with suppress(cublasLt.cuBLASLtError):  # then there are none
        cublasLt.matmul_algo_get_heuristic(*asked, found.ctypes.data, count.ctypes.data)
    made = {}
    for place in range(int(count[0])):
        algorithm = found[place : place + 1].copy()
        candidate = cublaslt.candidate(handle, operation, layouts, (left, right, operands.c.bits), algorithm, sums)
        with suppress(cublasLt.cuBLASLtError):
            candidate.call(cupy.cuda.get_current_stream().ptr)
            made[f"place {place + 1} of the library's proposals, sums {sums}"] = candidate
    return made
