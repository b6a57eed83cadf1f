"""The dense library's tensor cores on the operands of an N:M problem: column-major A and C.

    cublas_tf32   float32 arrays whose values TF32 holds, C float32
    cublas_bf16   A and C bfloat16, B's float32 values ones that bfloat16 holds

Sums are in float32. B is made dense in `prepare`, once, which is `prepare_ms`. No kernel prescribes how
that B lies, so it is made in both orders, and algorithms for both are candidates: `PreparedKernel.choice`
says which won, and the other B is freed. A and C stay as the system has them.

The library is cuBLASLt, tuned by `cublaslt.tune`; cuBLAS's own calls end in its algorithms.
`in_best_order` is all of this but for the operands: `cublas_dense` calls it with others.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from artifact.baselines import cublaslt
from artifact.baselines._library import PreparedKernel, offers, require_taken, sizes
from kernels import formats
from kernels.contract import Operands, Problem, require, timed
from kernels.formats import half, nm
from kernels.formats.half import Half
from kernels.lazy import cupy

#: dtype -> name in the records.
NAMES = {"tf32": "cublas_tf32", "bfloat16": "cublas_bf16"}
#: dtype -> bits of a float32 that it has no place for.
_LOST = {"tf32": 0x1FFF, "bfloat16": 0xFFFF}
#: What the choice says of B's order -> the order.
_ORDERS = {", B column-major": "F", ", B row-major": "C"}


def prepare(dtype: str, problem: Problem, device) -> PreparedKernel:
    """Make cuBLASLt ready: B dense, its better order, an algorithm and its workspace. Overwrites C.

    dtype: "tf32" or "bfloat16". device: `cuda.core.Device`, current. Raises ValueError
    where m, n or k is 1, where the operands are others than this module's docstring lists,
    and where the library refuses the problem.
    """
    require(
        min(problem.m, problem.n, problem.k) > 1,
        f"{NAMES[dtype]} is planned from the strides of matrices, and at {sizes(problem)} one is "
        "a vector, which has no order: compare with another baseline",
    )
    operands = problem.device()
    a, c = _arrays(dtype, problem, operands)
    return in_best_order(NAMES[dtype], operands.b, dtype, _ORDERS, lambda b: (a, b, c), problem, device)


contenders = offers(prepare, {name: (dtype,) for dtype, name in NAMES.items()})


def _arrays(dtype: str, problem: Problem, operands: Operands) -> tuple:
    """Return A and C as the arrays behind them, or ValueError where the operands are not of that dtype."""
    halves = dtype == "bfloat16"
    arrays = [x.bits if halves and isinstance(x, Half) and x.dtype == dtype else x for x in (operands.a, operands.c)]
    number = np.uint16 if halves else np.float32
    by_columns = all(getattr(x, "dtype", None) == number and x.flags.f_contiguous for x in arrays)
    takes = f"an N:M B with a column-major A and C in {dtype}"
    require_taken(isinstance(operands.b, nm.Nm) and by_columns, NAMES[dtype], takes, problem)
    exact = {"B": operands.b.val} if halves else {"A": arrays[0], "B": operands.b.val}
    require_exact(NAMES[dtype], dtype, exact, problem)
    return tuple(arrays)


def require_exact(contender: str, dtype: str, operands: Mapping[str, Any], problem: Problem) -> None:
    """Raise ValueError, naming the operand, for float32 values that a dtype of `_LOST` does not hold.

    Rounding them would make it another product.
    """
    for name, values in operands.items():
        lost = values.view(np.uint32) & np.uint32(_LOST[dtype])
        require_taken(not lost.any(), contender, f"values of {name} that {dtype} holds exactly", problem)


def in_best_order(
    name: str,
    sparse: Any,
    dtype: str,
    orders: Mapping[str, str],
    place: Callable[[Any], tuple],
    problem: Problem,
    device,
) -> PreparedKernel:
    """cuBLASLt ready to multiply with a sparse operand made dense in the order that suits it best.

    sparse: a matrix of `kernels.formats` that `dtype` holds exactly. dtype: "bfloat16", "float16" or
    "tf32". orders: what `PreparedKernel.choice` says of an order -> the order, "C" or "F". place: the dense
    operand -> A, B and C, CuPy arrays of `cublaslt.tune`. Overwrites C. Raises ValueError where the
    library refuses the problem.
    """
    made = {words: timed(partial(made_dense, sparse, dtype, order)) for words, order in orders.items()}
    products = {words: place(dense) for words, (dense, _) in made.items()}
    tuned = cublaslt.tune(products, dtype, problem, device)
    dense, prepare_ms = made[tuned[1].name]
    return cublaslt.bound(name, tuned, dense, prepare_ms, problem.device(), products[tuned[1].name])


def made_dense(sparse: Any, dtype: str, order: str):
    """Return a sparse matrix in a memory order: float32, or the bits of a 16-bit dtype."""
    dense = formats.to_dense(sparse)
    return cupy.array(half.to_bits(dense, dtype) if dtype in half.DTYPES else dense, order=order)
