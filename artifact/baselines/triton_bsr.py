"""PyTorch's Triton kernel for block-sparse times dense: `torch.sparse._triton_ops.bsr_dense_mm`.

    triton_bsr         as PyTorch calls it: with the parameters of its table, which knows the A100 alone,
                       elsewhere with its defaults (tiles of C as wide as a block is high, one stage)
    triton_bsr_tuned   the fastest of those and of `TILES` x `PIPELINES` on this problem, as PyTorch's
                       documentation advises for other GPUs (torch/sparse/_triton_ops_meta.py)

bfloat16 and float16, sums in float32. Of float32 operands PyTorch forbids TF32 and adds products up in float64, so that
tensor cores do not multiply: what AsyncSparse compares with as TorchAO "in TF32" is this call. B and C are taken
by rows or by columns as they lie, and shared with PyTorch, not copied; so is A. Only where m or k is no
multiple of the block are B and C padded, in `bind` (`cusparse_block.padded`): their time is `prepare_ms`,
their memory `prepare_bytes`, as of blocks that are made of an A in CSR (`cusparse_block.in_blocks`).
Compiling and tuning prepare no operand and are in neither.

PyTorch is no dependency of this project: where it is not installed, this contender is a ValueError.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from artifact.baselines.cusparse import require_blocks, require_work
from artifact.baselines.cusparse_block import in_blocks, made_bytes, padded
from artifact.baselines.cusparselt import fastest
from artifact.measure.device import first_line
from kernels.contract import Operands, Problem, require, timed
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


@dataclass(eq=False)
class Bound:
    """A `kernels.contract.Bound` that calls PyTorch. Also a contender of `bench.time`, while tuning."""

    name: str
    torch: Any = field(repr=False)
    #: On PyTorch's current stream. Its tensors keep the memory of the operands.
    multiply: Callable[[], Any] = field(repr=False)
    output: Any = field(repr=False)
    prepare_ms: float = 0.0
    prepare_bytes: int = 0  #: padded B and C; 0 where they are shared
    choice: str = ""  #: the kernel's parameters, in words
    _streams: dict[int, Any] = field(default_factory=dict, repr=False)

    def launch(self, stream) -> None:
        """Enqueue the multiplication on a `cuda.core.Stream`, which may be under capture once a
        launch on it has been made: PyTorch allocates a scalar there, and keeps its memory."""
        handle = int(stream.handle)
        if handle not in self._streams:
            self._streams = {handle: self.torch.cuda.ExternalStream(handle)}
        with self.torch.cuda.stream(self._streams[handle]):
            self.multiply()

    def result(self):
        """C (m, n), a CuPy array, or a `Half` of one."""
        return self.output


def bind(name: str, problem: Problem, device) -> Bound:
    """Make PyTorch ready: tensors, and a compiled kernel. Overwrites C.

    name: one of `NAMES`. device: `cuda.core.Device`, current. Raises ValueError for another name,
    without PyTorch, its CUDA or Triton, for a problem without non-zeros, where A is not CSR, or BCSR with
    a B and a C of its dtype, for an n that `tile` does not divide, for a matrix of 2^31 elements or
    more, and where PyTorch refuses the problem.
    """
    require(name in NAMES, f"PyTorch has no contender {name!r} here: choose one of {', '.join(NAMES)}")
    require_work(problem)
    device.set_current()
    operands, blocks_ms, blocks_bytes = in_blocks(problem)
    require_blocks(name, problem, operands)
    a, n = operands.a, problem.n
    b_row, b_col = a.block
    require(
        n % LEAST == 0 and _power_of_two(_tile(n, b_row)) and n % _tile(n, b_row) == 0,
        f"{name} cuts n into tiles of {b_row} columns, as many as a block has rows, or takes a power of "
        f"two from {LEAST} below that, but n={n}: choose another n",
    )
    most = max(a.val.size, a.block_rows * b_row * n, a.block_columns * b_col * n)
    require(
        most <= MOST_ELEMENTS,
        f"{name} computes offsets in 32 bits, and at m={problem.m}, n={n}, k={problem.k} a matrix has "
        f"{most} elements: choose a smaller n",
    )
    torch, ops = _pytorch(name)
    (whole, output), ms = timed(lambda: padded(operands))
    ms, nbytes = ms + blocks_ms, blocks_bytes + made_bytes(whole, operands)
    made = partial(Bound, torch=torch, output=output, prepare_ms=ms, prepare_bytes=nbytes)
    bsr, dense, out = _tensors(torch, whole)
    default = made(
        "triton_bsr",
        multiply=lambda: ops.bsr_dense_mm(bsr, dense, out=out),
        choice="PyTorch's own parameters",
    )
    _compile(default, problem)
    if name == "triton_bsr":
        return default
    candidates = {default.choice: default}
    for meta in parameters(n):
        words = ", ".join(f"{key} {value}" for key, value in meta.items())
        # With beta 0 the input is not read, and bsr_dense_mm passes the output in its place as well.
        candidate = made(
            name,
            multiply=partial(ops.bsr_dense_addmm, out, bsr, dense, beta=0, alpha=1, out=out, meta=meta),
            choice=words,
        )
        try:
            _compile(candidate, problem)
        except ValueError:
            continue  # too much shared memory, say: the others stay
        candidates[words] = candidate
    won = candidates[fastest(candidates, device)[0]]
    won.name = name
    return won


def contenders(device) -> dict[str, Callable[[Problem], Bound]]:
    """What a kernel is compared with: "triton_bsr" and "triton_bsr_tuned"."""
    return {name: partial(bind, name, device=device) for name in NAMES}


def parameters(n: int) -> list[dict[str, int]]:
    """The kernel's parameters to try for n columns, each as `bsr_dense_addmm` takes them."""
    return [
        {
            "SPLIT_N": n // tile,
            "GROUP_SIZE_ROW": GROUP_SIZE_ROW,
            "num_stages": stages,
            "num_warps": warps,
        }
        for tile in TILES
        if n % tile == 0
        for stages, warps in PIPELINES
    ]


def _tile(n: int, b_row: int) -> int:
    """Columns of C in a thread block, as `bsr_dense_addmm_meta` has it without an entry."""
    return n // max(n // b_row, 1)


def _power_of_two(x: int) -> bool:
    return x & (x - 1) == 0


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
    for there, what in (
        (torch.cuda.is_available(), "CUDA"),
        (getattr(_triton_ops, "bsr_dense_mm", None) is not None, "Triton"),
    ):
        require(
            there,
            f"{name} needs PyTorch with {what}, and the one here (version {torch.__version__}) is "
            "without: install another, or leave this contender out",
        )
    return torch, _triton_ops


def _tensors(torch, whole: Operands) -> tuple[Any, Any, Any]:
    """A as a sparse BSR tensor, B and C, all on the memory of the operands."""
    a, dtype = whole.a, getattr(torch, whole.a.dtype)

    def numbers(array):
        if array.dtype == np.float32:
            return torch.from_dlpack(array)
        # As int16, which both libraries exchange: CuPy has no bfloat16 there.
        return torch.from_dlpack(array.view(np.int16)).view(dtype)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that sparse BSR tensors are in beta state
        bsr = torch.sparse_bsr_tensor(
            torch.from_dlpack(a.row_ptr),
            torch.from_dlpack(a.col_idx),
            numbers(a.val),
            size=(a.m, a.k),
            check_invariants=False,
        )
    return bsr, numbers(array_of(whole.b)), numbers(array_of(whole.c))


def _compile(bound: Bound, problem: Problem) -> None:
    """Launch once, which compiles, and wait; ValueError, one sentence, where PyTorch refuses."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that the parameters are not tuned: `choice` says so
            bound.multiply()
        bound.torch.cuda.synchronize()
    except Exception as error:  # Triton's, PyTorch's and the driver's have no class in common
        raise ValueError(
            f"PyTorch's bsr_dense_mm refuses m={problem.m}, n={problem.n}, k={problem.k} with "
            f"{bound.choice}: {first_line(error)}"
        ) from error
