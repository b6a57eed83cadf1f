"""The systems' kernels as a library: any sparse A times any dense B, with the kernel that suits them.

operands   A as callers bring it, made one of the formats
dense      B and out: where they lie, on which stream; and the small kernel around a multiplication
routes     which system's kernels multiply what
plans      `plan`, `spmm`, `load_plan`
sampled    the product of two dense matrices at a sparse one's places: the gradient of A's values
torch_ops  PyTorch operators with gradients
layers     linear layers of blocks for PyTorch, and the FFNs of a language model made of them
torch_modes  what PyTorch's gradients and autocast ask of both
"""

from .plans import Plan, plan, spmm
from .sampled import Sampled
from .saved import load_plan
from .torch_ops import SparseMatrix

__all__ = ["Plan", "Sampled", "SparseMatrix", "load_plan", "plan", "spmm"]
