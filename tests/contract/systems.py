"""Every system under study and its variants, and problems for any of them: what the contracts are asked of.

Nothing here names a system: a shape that a system is measured at (`sweeps`) says which densities, dtypes and layouts
it has, and is tried at small odd sizes.
"""

import inspect
from dataclasses import dataclass
from functools import cache
from types import ModuleType

import numpy as np
import pytest
from hypothesis import strategies as st

import kernels
from artifact.sanitize import cases
from kernels import jit
from kernels.contract import Kernel, Problem
from kernels.formats.csr import Csr

SYSTEMS = kernels.systems()
#: (package, kernel) of every variant, and of those that choose among no others by trials, which take seconds.
VARIANTS = [
    pytest.param(system, kernel, id=f"{name}-{kernel.name}")
    for name, system in SYSTEMS.items()
    for kernel in system.VARIANTS.values()
]
UNTUNED = [x for x in VARIANTS if "auto" not in x.values[1].name and x.values[1].name not in cases.CHOOSING]
#: Around every vector, tile and block; half of them multiples of what kernels want multiples of.
SIZES = (1, 7, 31, 64, 96, 127, 128, 200, 256, 320, 512)


@dataclass(frozen=True)
class Recipe:
    """How to make a problem of a system: again and again, with other numbers."""

    system: ModuleType
    m: int
    n: int
    k: int
    options: tuple[tuple[str, object], ...]  #: of `problem`, or of `problem_from_csr`
    rows: tuple[int, ...] | None = None  #: non-zeros of each row of a matrix; None: the system draws its own

    def problem(self, seed: int = 0) -> Problem:
        """Make the problem. Raises ValueError where there is none of these sizes."""
        options = dict(self.options)
        if self.rows is None:
            return self.system.problem(m=self.m, n=self.n, k=self.k, seed=seed, **options)
        return self.system.problem_from_csr(matrix(self.rows, self.k, seed), self.n, seed, **options)


def matrix(rows: tuple[int, ...], k: int, seed: int) -> Csr:
    """Rows of so many non-zeros each, k at most, at random columns that ascend."""
    rng = np.random.default_rng(seed)
    columns = [np.sort(rng.permutation(k)[:length]).astype(np.int32) for length in rows]
    row_ptr = np.cumsum([0, *map(len, columns)]).astype(np.int32)
    return Csr(len(rows), k, row_ptr, np.concatenate(columns), rng.uniform(-1, 1, row_ptr[-1]).astype(np.float32))


@cache
def options(system: ModuleType) -> tuple[tuple[tuple[str, object], ...], ...]:
    """What shapes that the system is measured at say beside sizes: densities, dtypes, memory orders."""
    shapes = [shape for experiment in system.sweeps("kick").values() for shape in experiment]
    return tuple(dict.fromkeys(tuple((x, v) for x, v in shape.items() if x not in "mnk") for shape in shapes))


@cache
def from_csr(system: ModuleType) -> tuple[tuple[tuple[str, object], ...], ...]:
    """Options of `problem_from_csr`; none where the system has no such function."""
    if not hasattr(system, "problem_from_csr"):
        return ()
    if "format" not in inspect.signature(system.problem_from_csr).parameters:
        return ((),)
    return tuple((("format", "csr"), ("dtype", x)) for x in ("tf32", "float32", "bfloat16", "float16"))


def recipes(system: ModuleType) -> st.SearchStrategy[Recipe]:
    """Problems of a system at odd sizes, and of matrices of empty, short and full rows where it takes any."""
    size = st.sampled_from(SIZES)
    own = st.builds(Recipe, st.just(system), size, size, size, st.sampled_from(options(system)))
    if not from_csr(system):
        return own
    rows = st.lists(st.sampled_from((0, 0, 1, 3, 8, 31, 33, 500)), min_size=1, max_size=150).map(tuple)
    return st.one_of(
        own, st.builds(Recipe, st.just(system), st.just(0), size, size, st.sampled_from(from_csr(system)), rows)
    )


def typical(system: ModuleType) -> list[Recipe]:
    """Problems of which every variant takes one: several tiles, ragged where the system allows."""
    made = [
        Recipe(system, m, n, k, kind)
        for m, n, k in ((320, 200, 331), (320, 256, 384), (512, 512, 512), (1664, 2816, 256))
        for kind in options(system)
    ]
    rows = tuple(np.random.default_rng(0).integers(0, 40, 333)) + (400, 0, 400)
    return made + [Recipe(system, 0, n, 400, kind, rows) for n in (200, 256) for kind in from_csr(system)]


def adds_in_any_order(kernel: Kernel) -> bool:
    """Whether sums of a variant may come in another order from launch to launch: its machine code adds floats
    atomically, or it chooses among others."""
    target = "sm_90a" if "sm_90a" in kernel.targets else kernel.targets[0]
    made = [jit.compile_cubin(kernel.source, entry, target) for entry in kernel.entries]
    return not made or any(
        op.startswith(("RED", "ATOM")) and "F32" in op for op in {op for _, mix in jit.reports(made) for op in mix}
    )
