"""Runtime-compiled CUDA kernels for sparse x dense, one package ("room") per published system.

It depends on nothing else in its repository, where it is `kernels`; installed, it is `sparsity_on_trial`:

    import sparsity_on_trial as trial

    made = trial.plan(a, n)                     # a: a sparse matrix of SciPy, CuPy or PyTorch; here a GPU is needed
    out = made(b)                               # out = A · B, an array of B's library: nothing but the launch
    print(trial.explain(a, n))                  # what decides, the kernel, expected times, and what would be faster

A system's own problems, as the book measures them:

    system = trial.systems()["nm_spmm"]
    problem = system.problem(m=4096, n=4096, k=4096, density=0.25)
    bound = trial.prepare("auto", problem)         # compiles, prepares the sparse operand
    stream = trial.open_device().create_stream()
    bound.launch(stream)                        # nothing but the kernel
    bound.result()                              # C, a CuPy array

A system's formats for operands of your own are in `formats`, and what every system offers is in `contract`. Kernels are
compiled on first use and kept (`jit.cache_folder`).
"""

import importlib
import pkgutil
from types import ModuleType

from .contract import Kernel, Operands, PreparedKernel, Problem, require
from .gpu import NoGpu, open_device
from .library import Plan, SparseMatrix, block_diagonal, explain, load_plan, plan, spmm

__all__ = [
    "PreparedKernel",
    "Kernel",
    "NoGpu",
    "Operands",
    "Plan",
    "Problem",
    "SparseMatrix",
    "block_diagonal",
    "explain",
    "prepare",
    "load_plan",
    "open_device",
    "plan",
    "systems",
    "spmm",
]
__version__ = "0.1.0"

Bound = PreparedKernel  # former names, here and below


def systems() -> dict[str, ModuleType]:
    """name -> package, of every system: what has problems, and kernels that solve them (see `contract`)."""
    names = sorted(found.name for found in pkgutil.iter_modules(__path__) if found.ispkg)
    packages = {name: importlib.import_module(f".{name}", __name__) for name in names}
    return {name: package for name, package in packages.items() if hasattr(package, "problem")}


def prepare(variant: str, problem: Problem, device=None) -> PreparedKernel:
    """Make `variant` of the problem's system ready to run: compile, preprocess, upload.

    device: a current `cuda.core.Device`; without one, GPU 0 is made current. Raises ValueError where the system has
    no such variant, or it does not take the problem or the GPU; NoGpu, one sentence, where there is no GPU.
    """
    known = systems()
    require(
        problem.room in known,
        f"there is no system {problem.room!r}: choose one of {', '.join(known)}",
    )
    system = known[problem.room]
    require(
        variant in system.VARIANTS,
        f"{problem.room} has no variant {variant!r}: choose one of {', '.join(system.VARIANTS)}",
    )
    return system.prepare(variant, problem, device or open_device())


rooms, bind = systems, prepare
