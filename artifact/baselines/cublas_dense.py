"""The dense library on the operands of a block-sparse problem: A in BCSR is made dense in `prepare`.

    cublas_dense           the fastest of cuBLASLt's algorithms (`cublaslt.tune`), for either order of A
    cublas_dense_default   cublasGemmEx as torch.mm calls it: A row-major, as a layer has its weights,
                           and the algorithm left to the library

bfloat16 and float16 with sums in float32, or float32 in TF32. B and C each lie by rows or by columns,
as the system has them. Making A dense is `prepare_ms`, and the dense A and a workspace `prepare_bytes`.
"""

from artifact.baselines import cublas_tensor
from artifact.baselines._library import PreparedKernel, cublas, hold, offers, owned, refusing, sizes
from artifact.baselines.cublas import gemm_arguments, multiplication
from artifact.baselines.cusparse import require_blocks
from kernels.contract import Operands, Problem, require, timed
from kernels.formats.half import array_of
from kernels.lazy import cupy

NAMES = ("cublas_dense", "cublas_dense_default")
#: What the choice says of A's order -> the order.
_ORDERS = {", A row-major": "C", ", A column-major": "F"}


def prepare(name: str, problem: Problem, device) -> PreparedKernel:
    """Make the library ready: A dense, and an algorithm and its workspace. Overwrites C.

    name: one of `NAMES`. device: `cuda.core.Device`, current. Raises ValueError
    where A is not BCSR with a B and a C of its dtype, where float32 values are others than TF32
    holds, for "cublas_dense" where m, n or k is 1, and where the library refuses the problem.
    """
    operands = problem.device()
    require_blocks(name, problem, operands)
    b, c = array_of(operands.b), array_of(operands.c)
    dtype = operands.a.dtype.replace("float32", "tf32")
    if dtype == "tf32":
        cublas_tensor.require_exact(name, dtype, {"A": operands.a.val, "B": b}, problem)
    if name == "cublas_dense_default":
        return _default(dtype, problem, operands)
    require(
        min(problem.m, problem.n, problem.k) > 1,
        f"cublas_dense is planned from the strides of matrices, and at {sizes(problem)} one is a "
        "vector, which has no order: compare with cublas_dense_default",
    )
    return cublas_tensor.in_best_order(name, operands.a, dtype, _ORDERS, lambda a: (a, b, c), problem, device)


contenders = offers(prepare, {name: (name,) for name in NAMES})


def _default(dtype: str, problem: Problem, operands: Operands) -> PreparedKernel:
    """cublasGemmEx on the dense A, launched once: the first launch loads code and may be refused."""
    a, prepare_ms = timed(lambda: cublas_tensor.made_dense(operands.a, dtype, "C"))
    compute = "COMPUTE_32F" + "_FAST_TF32" * (dtype == "tf32")
    arguments = gemm_arguments(a, array_of(operands.b), array_of(operands.c), dtype, compute)
    with refusing(f"cuBLAS refuses {sizes(problem)} in {dtype}", cublas.cuBLASError) as stack:
        call = multiplication(owned(stack, cublas.destroy, cublas.create()), arguments)
        call(cupy.cuda.get_current_stream().ptr)
        how = int(a.nbytes), call, operands.c, "the library's default"
        return hold(PreparedKernel("cublas_dense_default", prepare_ms, *how), stack, a, operands)
