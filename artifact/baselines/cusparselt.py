"""cuSPARSELt's 2:4 sparse times dense, 16-bit floats, sums in float32, A row-major, B and C as the problem has them.

Operands of e4m3 with one scale each are multiplied likewise: B as it lies, column-major, for the library transposes
no 8-bit operand; both scales are alpha; C is bfloat16.

    cusparselt_default    what the library takes of itself: algorithm 0
    cusparselt            the fastest of all that it has

The library's search (cusparseLtMatmulSearch) does not say how it times, nor whether its operands lie
in a cache meanwhile. So what it finds is one candidate; the others are every algorithm by its number,
and the fastest of these again with every way to split k. `bench.time` decides between them as it
decides between kernels, from cold caches; `PreparedKernel.choice` says which one won.

The library compresses A itself (cusparseLtSpMMACompress2), from a dense copy, for all algorithms
alike: the time of that is `prepare_ms`. Searching prepares no operand and is not in it.

Which file of the library: `artifact.measure.device.cusparselt`. A record's machine.json names the version that
answered, and records of two versions do not mix in one folder.
"""

from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from itertools import product as pairs
from typing import Any

import numpy as np

from artifact.baselines._library import (
    ALPHA,
    BETA,
    PreparedKernel,
    cusparse,
    data_type,
    fastest,
    hold,
    offers,
    owned,
    put,
    refusing,
    require_taken,
    sizes,
)
from artifact.measure import device as device_
from kernels.contract import Problem, require, timed
from kernels.formats import two_four
from kernels.formats.half import Eight, Half
from kernels.lazy import cupy

#: Which algorithm -> what it is called in the records.
NAMES = {"default": "cusparselt_default", "best": "cusparselt"}
#: 16 bytes, which the library wants every row and address aligned to, in elements of 16 and of 8 bits.
MULTIPLE, MULTIPLE_EIGHT = 8, 16
ALIGNMENT = 16
#: Launches of each algorithm in the library's own search.
SEARCH_ITERATIONS = 10
#: (SPLIT_K, SPLIT_K_MODE) to try; on Hopper the library refuses the last four, elsewhere the others.
SPLITS = (
    *((split, mode) for split in (1, -1) for mode in ("HEURISTIC", "DATAPARALLEL", "SPLITK", "STREAMK")),
    *((split, mode) for split in (2, 4) for mode in ("ONE_KERNEL", "TWO_KERNELS")),
)


@dataclass
class Product:
    """What the library knows of one multiplication, and where its operands are."""

    library: Any  #: nvmath.bindings.cusparseLt
    handle: int
    description: int  #: cusparseLtMatmulDescriptor_t
    addresses: tuple[int, int, int]  #: of compressed A, B and C
    alpha: np.ndarray = field(repr=False)

    def planned(self, most: int = 0, **attributes: int) -> PreparedKernel:
        """Plan the default algorithm, but for these attributes of its selection (MatmulAlgAttribute).

        It is a contender of `bench.time`, which keeps its selection and its workspace.

        most: bytes of a workspace for all algorithms, with which the library searches; it leaves a plan that it has put
        in order itself. 0: it does not search.
        """
        library, streams = self.library, np.zeros(1, np.uintp)
        with ExitStack() as stack:
            made = library.matmul_alg_selection_init(self.handle, self.description, int(library.MatmulAlg.DEFAULT))
            selection = owned(stack, library.matmul_alg_selection_destroy, made)
            values = {name: np.int32(value) for name, value in attributes.items()}
            put(library.matmul_alg_set_attribute, library.MatmulAlgAttribute, self.handle, selection, **values)
            made = library.matmul_plan_init(self.handle, self.description, selection)
            plan = owned(stack, library.matmul_plan_destroy, made)

            def arguments(workspace) -> tuple:
                (a, b, c), places = self.addresses, (workspace.data.ptr, streams.ctypes.data, len(streams))
                return (self.handle, plan, self.alpha.ctypes.data, a, b, BETA.ctypes.data, c, c, *places)

            if most:
                streams[0] = cupy.cuda.get_current_stream().ptr
                library.matmul_search(*arguments(cupy.empty(most, cupy.uint8)))
            workspace = cupy.empty(library.matmul_get_workspace(self.handle, plan), cupy.uint8)
            launched = arguments(workspace)

            def call(stream: int) -> None:
                streams[0] = stream
                library.matmul(*launched)

            number, split, mode = (self.get(selection, name) for name in ("CONFIG_ID", "SPLIT_K", "SPLIT_K_MODE"))
            choice = f"algorithm {number}, split-K {split}, {library.SplitKMode(mode).name}"
            choice += ", as the library's search left it" * bool(most)
            held, nbytes = (selection, workspace), int(workspace.nbytes)
            return PreparedKernel("", 0.0, nbytes, call, None, choice, keep=held, close=stack.pop_all().close)

    def get(self, selection: int, name: str) -> int:
        """Return an attribute of a selection."""
        number, attribute = np.zeros(1, np.int32), int(self.library.MatmulAlgAttribute[name])
        self.library.matmul_alg_get_attribute(self.handle, selection, attribute, number.ctypes.data, number.nbytes)
        return int(number[0])


def prepare(algorithm: str, problem: Problem, device) -> PreparedKernel:
    """Make cuSPARSELt ready: descriptors, A compressed, an algorithm and its workspace.

    algorithm: one of NAMES. device: `cuda.core.Device`, current. Overwrites C. Raises ValueError where A is not
    2:4 or B not of the same dtype, where m, n or k is no multiple of 8 (16 in e4m3), and where the library refuses the
    problem.
    """
    _require_multiples(problem, MULTIPLE)
    operands = problem.device()
    eight_bit, alpha = isinstance(operands.a, two_four.TwoFourEight), ALPHA
    (require_eight if eight_bit else require_two_four)("cuSPARSELt", problem, operands)
    if eight_bit:
        _require_multiples(problem, MULTIPLE_EIGHT)
        alpha = (operands.a.scale * operands.b.scale).get().ravel()
    library = device_.cusparselt()
    with refusing(
        f"cuSPARSELt refuses {sizes(problem)} in {operands.a.dtype}",
        library.cuSPARSELtError,
        words=lambda error: library.get_error_string(error.status),
    ) as stack:
        handle = owned(stack, library.destroy, library.init())
        a, prepare_ms, description = _describe(library, handle, problem, operands, stack)
        addresses = a.data.ptr, operands.b.bits.data.ptr, operands.c.bits.data.ptr
        product = Product(library, handle, description, addresses, alpha)
        won = product.planned() if algorithm == "default" else _best(product, device)
        stack.callback(won.close)
        nbytes = int(a.nbytes) + won.prepare_bytes
        bound = PreparedKernel(NAMES[algorithm], prepare_ms, nbytes, won.call, operands.c, won.choice)
        return hold(bound, stack, a, operands, alpha, won)


contenders = offers(prepare, {name: (algorithm,) for algorithm, name in NAMES.items()})


def require_two_four(library: str, problem: Problem, operands) -> None:
    """Raise ValueError unless A is 2:4, and B and C are 16-bit floats of its dtype."""
    a, b, c = operands.a, operands.b, operands.c
    halves = isinstance(a, two_four.TwoFour) and isinstance(b, Half) and isinstance(c, Half)
    require_taken(
        halves and a.dtype == b.dtype == c.dtype, library, "a 2:4 A with a B and a C of its 16-bit dtype", problem
    )


def require_eight(library: str, problem: Problem, operands) -> None:
    """Raise ValueError unless A is 2:4 and B dense in e4m3, with one scale each, and C is bfloat16."""
    a, b, c = operands.a, operands.b, operands.c
    eights = isinstance(a, two_four.TwoFourEight) and isinstance(b, Eight) and a.dtype == b.dtype == "e4m3"
    scaled = eights and a.scale.size == b.scale.size == 1
    require_taken(scaled, library, "a 2:4 A and a B of e4m3 with one scale each", problem)
    require_taken(isinstance(c, Half) and c.dtype == "bfloat16", library, "a bfloat16 C of e4m3", problem)


def _require_multiples(problem: Problem, multiple: int) -> None:
    each = problem.m, problem.n, problem.k
    require(
        min(each) > 0 and not any(size % multiple for size in each),
        f"cuSPARSELt takes multiples of {multiple} only, as {ALIGNMENT * 8 // multiple}-bit rows are aligned to "
        f"{ALIGNMENT} bytes, but {sizes(problem)}: compare with another baseline",
    )


def _describe(library, handle: int, problem: Problem, operands, stack: ExitStack) -> tuple[Any, float, int]:
    """Return compressed A (CuPy bytes), the milliseconds of compressing it, the product's descriptor."""
    m, n, k, a = problem.m, problem.n, problem.k, operands.a
    dtype, out = data_type(a.dtype), data_type(operands.c.dtype)
    row, column = int(cusparse.Order.ROW), int(cusparse.Order.COL)
    as_is, transposed = int(cusparse.Operation.NON_TRANSPOSE), int(cusparse.Operation.TRANSPOSE)

    def matrix(init: Callable, rows: int, columns: int, dtype: int, order: int, *more: int) -> int:
        leading = columns if order == row else rows
        made = init(handle, rows, columns, leading, ALIGNMENT, dtype, order, *more)
        return owned(stack, library.mat_descriptor_destroy, made)

    mat_a = matrix(library.structured_descriptor_init, m, k, dtype, row, int(library.Sparsity.SPARSITY_50_PERCENT))
    # Column-major B is row-major B^T, transposed; of 8 bits it always is.
    shape, op_b = ((n, k), transposed) if out != dtype or problem.orders[0] == "F" else ((k, n), as_is)
    mat_b = matrix(library.dense_descriptor_init, *shape, dtype, row)
    mat_c = matrix(library.dense_descriptor_init, m, n, out, column if problem.orders[1] == "F" else row)
    sums = int(library.ComputeType.COMPUTE_32F)
    description = library.matmul_descriptor_init(handle, as_is, op_b, mat_a, mat_b, mat_c, mat_c, sums)
    owned(stack, library.matmul_descriptor_destroy, description)
    compressed, buffer = (cupy.empty(size, cupy.uint8) for size in library.sp_mma_compressed_size2(handle, mat_a))
    bits = two_four.to_dense_bits(a)
    places = bits.data.ptr, compressed.data.ptr, buffer.data.ptr, cupy.cuda.get_current_stream().ptr
    _, ms = timed(lambda: library.sp_mma_compress2(handle, mat_a, 1, as_is, *places))
    return compressed, ms, description


def _best(product: Product, device) -> PreparedKernel:
    """Return the fastest algorithm of a product; what loses is destroyed. Overwrites C."""
    planned = [product.planned()]  # where even this one is refused, the problem is
    default = planned[0]
    made = {default.choice: default}

    def add(most: int = 0, **attributes: int) -> None:
        """Plan one more, or let the library search for one, and launch it; not where it is there or refused."""
        with suppress(product.library.cuSPARSELtError):
            candidate = product.planned(most, **attributes)
            planned.append(candidate)
            if candidate.choice not in made:
                candidate.call(cupy.cuda.get_current_stream().ptr)
                made[candidate.choice] = candidate

    try:
        # Versions of the library differ in whether the highest number is still an algorithm.
        for number in range(product.get(default.keep[0], "CONFIG_MAX_ID") + 1):
            add(CONFIG_ID=number)
        most = max(other.prepare_bytes for other in made.values())
        add(most, SEARCH_ITERATIONS=SEARCH_ITERATIONS)
        lead, before = fastest(made, device), set(made)
        for name, (split, mode) in pairs(lead, SPLITS):
            number, way = product.get(made[name].keep[0], "CONFIG_ID"), int(product.library.SplitKMode[mode])
            add(CONFIG_ID=number, SPLIT_K=split, SPLIT_K_MODE=way)
        won = made[fastest({name: made[name] for name in made if name in lead or name not in before}, device)[0]]
        planned.remove(won)
        return won
    finally:
        for loser in planned:
            loser.close()
