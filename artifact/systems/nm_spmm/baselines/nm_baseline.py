"""The nmSPARSE-style kernel of the system nm_cuda_core, for another system's problems: "nm_baseline".

It is no library, but what NM-SpMM is compared with beside one: the published baseline of Zeng's
report, after nmSPARSE's vector-wise kernel.
"""

from collections.abc import Callable
from functools import partial

from artifact.baselines._library import require_column_major
from kernels import nm_cuda_core
from kernels.contract import PreparedKernel, Problem, require
from kernels.formats.nm import Nm

NAME = "nm_baseline"


def prepare(problem: Problem, device) -> PreparedKernel:
    """Compile the kernel for `device` (a current `cuda.core.Device`) and make it ready.

    Raises ValueError where B is not N:M in vectors of a multiple of 32 columns, where A or C is not
    a float32 array in Fortran order, and where m or n is no multiple of 32.
    """
    operands = problem.device()
    require(
        isinstance(operands.b, Nm),
        f"{NAME} takes B in N:M form, and {problem.room} has it otherwise: compare with another baseline",
    )
    require_column_major(NAME, problem, operands)
    bound = nm_cuda_core.prepare("baseline", problem, device)
    bound.name = NAME
    return bound


def contenders(device) -> dict[str, Callable[[Problem], PreparedKernel]]:
    """Return what a kernel is compared with: "nm_baseline"."""
    return {NAME: partial(prepare, device=device)}
