"""The systems' kernels as a library: any sparse A times any dense B, with the kernel that suits them.

operands   A as callers bring it, made one of the formats
dense      B and out: where they lie, on which stream; and the small kernel around a multiplication
routes     which system's kernels multiply what
plans      `plan`, `spmm`, `load_plan`, `explain`
explanation  why a plan is as it is: statistics, kernel, expected times, and what would be faster
current    the GPU that is current meanwhile, and what launches of a plan write there besides out
direct     products without a plan: `spmm` of CSR on the GPU, and of two dense matrices at a sparse one's places
torch_ops  PyTorch operators with gradients, and what operators and layers share
layers     linear layers of blocks for PyTorch, and the FFNs of a language model made of them
semi_structured  linear layers in 2:4
"""

from .direct import Sampled
from .explanation import Explanation
from .operands import block_diagonal
from .plans import Plan, explain, load_plan, plan, spmm
from .torch_ops import SparseMatrix

__all__ = ["Explanation", "Plan", "Sampled", "SparseMatrix", "block_diagonal", "explain", "load_plan", "plan", "spmm"]
