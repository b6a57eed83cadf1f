"""The dense library's tensor cores on the operands of an N:M problem: column-major A and C.

    cublas_tf32   float32 arrays whose values TF32 holds, C float32
    cublas_bf16   A and C bfloat16, B's float32 values ones that bfloat16 holds

Sums are in float32. B is made dense in `bind`, once, which is `prepare_ms`. No kernel prescribes how
that B lies, so it is made in both orders, and algorithms for both are candidates: `Bound.choice`
says which won, and the other B is freed. A and C stay as the room has them.

The library is cuBLASLt, tuned by `cublaslt.tune`; cuBLAS's own calls end in its algorithms.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from functools import partial

import numpy as np

from artifact.baselines import cublaslt
from artifact.baselines.cusparselt import Bound, release_all
from kernels import formats
from kernels.contract import Operands, Problem, require, timed
from kernels.formats import half, nm
from kernels.formats.half import Half

#: dtype -> name in the records.
NAMES = {"tf32": "cublas_tf32", "bfloat16": "cublas_bf16"}
#: dtype -> bits of a float32 that it has no place for.
_LOST = {"tf32": 0x1FFF, "bfloat16": 0xFFFF}
#: What the choice says of B's order -> the order.
_ORDERS = {", B column-major": "F", ", B row-major": "C"}


def bind(dtype: str, problem: Problem, device) -> Bound:
    """Make cuBLASLt ready: B dense, its better order, an algorithm and its workspace. Overwrites C.

    dtype: "tf32" or "bfloat16". device: `cuda.core.Device`, current. Raises ValueError for another
    dtype, where m, n or k is 1, where the operands are others than this module's docstring lists,
    and where the library refuses the problem.
    """
    require(
        dtype in NAMES,
        f"cuBLAS has no tensor cores for {dtype!r} here: choose one of {', '.join(NAMES)}",
    )
    m, n, k = problem.m, problem.n, problem.k
    require(
        min(m, n, k) > 1,
        f"{NAMES[dtype]} is planned from the strides of matrices, and at m={m}, n={n}, k={k} one is "
        "a vector, which has no order: compare with another baseline",
    )
    operands = problem.device()
    a, c = _arrays(dtype, problem, operands)
    device.set_current()
    made = {
        words: timed(lambda order=order: _dense(operands.b, dtype, order))
        for words, order in _ORDERS.items()
    }
    products = {words: (a, b, c) for words, (b, _) in made.items()}
    choice, won, release = cublaslt.tune(products, dtype, problem, device)
    b, prepare_ms = made[won.product]
    memory = int(b.nbytes + won.workspace.nbytes)
    bound = Bound(NAMES[dtype], prepare_ms, memory, choice, won.call, operands.c)
    # The arrays behind the raw addresses live for as long as the library may read them.
    bound.close = weakref.finalize(bound, release_all, release, (b, operands))
    return bound


def contenders(device) -> dict[str, Callable[[Problem], Bound]]:
    """What a kernel is compared with: "cublas_tf32" and "cublas_bf16"."""
    return {name: partial(bind, dtype, device=device) for dtype, name in NAMES.items()}


def _arrays(dtype: str, problem: Problem, operands: Operands) -> tuple:
    """A and C as the arrays behind them, or ValueError where the operands are not of that dtype."""
    halves = dtype == "bfloat16"
    arrays = [
        x.bits if halves and isinstance(x, Half) and x.dtype == dtype else x
        for x in (operands.a, operands.c)
    ]
    number = np.uint16 if halves else np.float32
    require(
        isinstance(operands.b, nm.Nm)
        and all(getattr(x, "dtype", None) == number and x.flags.f_contiguous for x in arrays),
        f"{NAMES[dtype]} takes an N:M B with a column-major A and C in {dtype}, and {problem.room} "
        "has something else here: compare with another baseline",
    )
    # Rounding the operands would make it another product.
    exact = {"B": operands.b.val} if halves else {"A": arrays[0], "B": operands.b.val}
    for name, values in exact.items():
        lost = values.view(np.uint32) & np.uint32(_LOST[dtype])
        require(
            not lost.any(),
            f"{NAMES[dtype]} takes values that {dtype} holds exactly, and {name} of {problem.room} "
            "has others here: compare with another baseline",
        )
    return tuple(arrays)


def _dense(b: nm.Nm, dtype: str, order: str):
    """B (k, n) in a memory order: float32, or the bits of bfloat16."""
    import cupy

    dense = formats.to_dense(b)
    if dtype == "bfloat16":
        dense = half.to_bits(dense, dtype)
    return cupy.array(dense, order=order)
