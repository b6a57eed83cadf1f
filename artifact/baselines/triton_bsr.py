"""PyTorch's Triton kernel for block-sparse times dense: `torch.sparse._triton_ops.bsr_dense_mm`.

    triton_bsr         as PyTorch calls it: with the parameters of its table, which knows the A100 alone,
                       elsewhere with its defaults (tiles of C as wide as a block is high, one stage)
    triton_bsr_tuned   the fastest of those and of `TILES` x `PIPELINES` on this problem, as PyTorch's
                       documentation advises for other GPUs (torch/sparse/_triton_ops_meta.py)

bfloat16 and float16, sums in float32. Of float32 operands PyTorch forbids TF32 and adds products up in float64, so that
tensor cores do not multiply: what AsyncSparse compares with as TorchAO "in TF32" is this call. B and C are taken
by rows or by columns as they lie, and shared with PyTorch, not copied; so is A. Only where m or k is no
multiple of the block are B and C padded, in `prepare` (`cusparse.padded`): their time is `prepare_ms`,
their memory `prepare_bytes`, as of blocks that are made of an A in CSR (`cusparse.in_whole_blocks`).
Compiling and tuning prepare no operand and are in neither.

PyTorch is no dependency of this project: where it is not installed, this contender is a ValueError.
"""

import warnings
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache, partial
from typing import Any

import numpy as np

from artifact.baselines._library import PreparedKernel, fastest, offers, refusing, sizes
from artifact.baselines.cusparse import in_whole_blocks
from artifact.measure.device import first_line
from kernels.contract import Operands, Problem, require
from kernels.formats.half import array_of

NAMES = ("triton_bsr", "triton_bsr_tuned")
#: Columns of C that a thread block computes, and (stages, warps), to try.
TILES = (64, 128, 256)
PIPELINES = ((1, 4), (3, 4), (3, 8))
#: PyTorch's default; its kernel computes this many rows of blocks at a time in all columns.
GROUP_SIZE_ROW = 4
#: n must be a multiple of it, and no tile may be narrower.
LEAST = 16
#: The kernel computes the offset of an element in 32 bits.
MOST_ELEMENTS = 2**31 - 1


def prepare(name: str, problem: Problem, device) -> PreparedKernel:
    """Make PyTorch ready: tensors, and a compiled kernel. Overwrites C.

    name: one of `NAMES`. device: `cuda.core.Device`, current. Raises ValueError without PyTorch, its
    CUDA or Triton, for a problem without non-zeros, where A is not CSR, or BCSR with a B and a C of
    its dtype, for an n that `tile` does not divide, for a matrix of 2^31 elements or more, and where
    PyTorch refuses the problem.
    """
    whole, output, ms, nbytes = in_whole_blocks(name, problem)
    a, n = whole.a, problem.n
    b_row, b_col = a.block
    tile = n // max(n // b_row, 1)  # as `bsr_dense_addmm_meta` has it without an entry
    require(
        n % LEAST == 0 and tile & (tile - 1) == 0 and n % tile == 0,
        f"{name} cuts n into tiles of {b_row} columns, as many as a block has rows, or takes a power of "
        f"two from {LEAST} below that, but n={n}: choose another n",
    )
    most = max(a.val.size, a.block_rows * b_row * n, a.block_columns * b_col * n)
    require(
        most <= MOST_ELEMENTS,
        f"{name} computes offsets in 32 bits, and at {sizes(problem)} a matrix has {most} elements: choose a smaller n",
    )
    torch, ops = _pytorch(name)
    bsr, dense, out = _tensors(torch, whole)

    def made(choice: str, multiply: Callable[[], Any]) -> PreparedKernel:
        """Compile by a launch, and wait. Raise ValueError, one sentence, where PyTorch refuses."""
        # Triton's, PyTorch's and the driver's errors have no class in common.
        says = f"PyTorch's bsr_dense_mm refuses {sizes(problem)} with {choice}"
        with refusing(says, Exception), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that the parameters are not tuned: `choice` says so
            multiply()
            torch.cuda.synchronize()
        external = lru_cache(maxsize=1)(torch.cuda.ExternalStream)

        def call(handle: int) -> None:
            # Under capture once a launch on it has been made: PyTorch allocates a scalar there, and keeps its memory.
            with torch.cuda.stream(external(handle)):
                multiply()

        return PreparedKernel(name, ms, nbytes, call, output, choice)

    default = made("PyTorch's own parameters", partial(ops.bsr_dense_mm, bsr, dense, out=out))
    if name == "triton_bsr":
        return default
    candidates = {default.choice: default}
    for meta in parameters(n):
        words = ", ".join(f"{key} {value}" for key, value in meta.items())
        # With beta 0 the input is not read, and bsr_dense_mm passes the output in its place as well.
        multiply = partial(ops.bsr_dense_addmm, out, bsr, dense, beta=0, alpha=1, out=out, meta=meta)
        with suppress(ValueError):  # too much shared memory, say: the others stay
            candidates[words] = made(words, multiply)
    return candidates[fastest(candidates, device)[0]]


contenders = offers(prepare, {name: (name,) for name in NAMES})


def parameters(n: int) -> list[dict[str, int]]:
    """Return the kernel's parameters to try for n columns, each as `bsr_dense_addmm` takes them."""
    return [
        {"SPLIT_N": n // tile, "GROUP_SIZE_ROW": GROUP_SIZE_ROW, "num_stages": stages, "num_warps": warps}
        for tile in TILES
        if n % tile == 0
        for stages, warps in PIPELINES
    ]


def _pytorch(name: str) -> tuple[Any, Any]:
    """PyTorch and its Triton operations, or ValueError where one of them is missing."""
    try:
        import torch
        from torch.sparse import _triton_ops
    except (ImportError, OSError) as error:
        raise ValueError(
            f"{name} needs PyTorch, which cannot be imported here ({first_line(error)}): install it, or "
            "leave this contender out"
        ) from error
    there = {"CUDA": torch.cuda.is_available(), "Triton": getattr(_triton_ops, "bsr_dense_mm", None) is not None}
    for what in there:
        require(
            there[what],
            f"{name} needs PyTorch with {what}, and the one here (version {torch.__version__}) is "
            "without: install another, or leave this contender out",
        )
    return torch, _triton_ops


def _tensors(torch, whole: Operands) -> tuple[Any, Any, Any]:
    """Return A as a sparse BSR tensor, B and C, all on the memory of the operands."""
    a, dtype = whole.a, getattr(torch, whole.a.dtype)

    def numbers(array):
        if array.dtype == np.float32:
            return torch.from_dlpack(array)
        # As int16, which both libraries exchange: CuPy has no bfloat16 there.
        return torch.from_dlpack(array.view(np.int16)).view(dtype)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that sparse BSR tensors are in beta state
        bsr = torch.sparse_bsr_tensor(
            *map(torch.from_dlpack, (a.row_ptr, a.col_idx)), numbers(a.val), size=(a.m, a.k), check_invariants=False
        )
    return bsr, numbers(array_of(whole.b)), numbers(array_of(whole.c))
