"""Runtime-compiled CUDA kernels for sparse x dense, one package ("room") per published system.

It depends on nothing else in its repository, where it is `kernels`; installed, it is `sparsity_on_trial`:

    import sparsity_on_trial as trial

    made = trial.plan(a, n)                     # a: a sparse matrix of SciPy, CuPy or PyTorch; here a GPU is needed
    out = made(b)                               # out = A · B, an array of B's library: nothing but the launch

A room's own problems, as the book measures them:

    room = trial.rooms()["nm_spmm"]
    problem = room.problem(m=4096, n=4096, k=4096, density=0.25)
    bound = trial.bind("auto", problem)         # compiles, prepares the sparse operand
    stream = trial.open_device().create_stream()
    bound.launch(stream)                        # nothing but the kernel
    bound.result()                              # C, a CuPy array

A room's formats for operands of your own are in `formats`, and what every room offers is in `contract`. Kernels are
compiled on first use and kept (`jit.cache_folder`).
"""

import importlib
import pkgutil
from types import ModuleType

from .contract import Bound, Kernel, Operands, Problem, require
from .gpu import NoGpu, open_device
from .library import Plan, SparseMatrix, load_plan, plan, spmm

__all__ = [
    "Bound",
    "Kernel",
    "NoGpu",
    "Operands",
    "Plan",
    "Problem",
    "SparseMatrix",
    "bind",
    "load_plan",
    "open_device",
    "plan",
    "rooms",
    "spmm",
]
__version__ = "0.1.0"


def rooms() -> dict[str, ModuleType]:
    """name -> package, of every room: what has problems, and kernels that solve them (see `contract`)."""
    names = sorted(found.name for found in pkgutil.iter_modules(__path__) if found.ispkg)
    packages = {name: importlib.import_module(f".{name}", __name__) for name in names}
    return {name: package for name, package in packages.items() if hasattr(package, "problem")}


def bind(variant: str, problem: Problem, device=None) -> Bound:
    """Make `variant` of the problem's room ready to run: compile, preprocess, upload.

    device: a current `cuda.core.Device`; without one, GPU 0 is made current. Raises ValueError where the room has
    no such variant, or it does not take the problem or the GPU; NoGpu, one sentence, where there is no GPU.
    """
    known = rooms()
    require(
        problem.room in known,
        f"there is no room {problem.room!r}: choose one of {', '.join(known)}",
    )
    room = known[problem.room]
    require(
        variant in room.VARIANTS,
        f"{problem.room} has no variant {variant!r}: choose one of {', '.join(room.VARIANTS)}",
    )
    return room.bind(variant, problem, device or open_device())
