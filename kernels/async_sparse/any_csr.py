"""The best kernel for a matrix in CSR that someone brings: a model proposes five, a race decides, the choice is kept.

"auto_fp32" chooses among kernels whose errors are as small as float32's: CUDA cores, and three products in TF32.
"auto_tf32" also takes TF32, which holds 11 bits of a value: for operands that hold no more.
"auto_half" is for B and C in 16 bits.
"""

from functools import cache, partial
from pathlib import Path

from .. import autotune, jit
from ..autotune import Choices, Rounds
from ..contract import Family, Kernel, Launch, Problem
from ..formats import half, intake
from . import family, model, planning, union, windows
from .model import statistics
from .union import Union
from .wcsr import require_rows
from .windows import Windows

HERE = Path(__file__).parent
ACCURACIES = {"auto_fp32": "fp32", "auto_tf32": "tf32", "auto_half": "half"}
MOST = 5  #: candidates that are tried
#: A reference, with and without signs; for each candidate a check and four launches of which three count; two more and
#: a check of the winner; it and the reference on whole numbers.
ROUNDS = Rounds(first=3, final=1, finalists=1, short_us=0, factor=1, hot_s=0.0)
LAUNCHES = 2 + MOST * (1 + 1 + ROUNDS.first) + (1 + ROUNDS.final) + 1 + 2

KERNELS: dict[str, Kernel] = {
    "auto_fp32": Kernel(
        "auto_fp32",
        union.SOURCE,
        "the fastest kernel with float32's accuracy on the matrix: groups of rows, or windows in 3xTF32",
        "1.6 times the fastest of cuSPARSE's algorithms for CSR, nowhere less than it.",
        union.KERNELS["union_rows"].entries,
        spill_free=False,
    ),
    "auto_tf32": Kernel(
        "auto_tf32",
        windows.SOURCE,
        "… or windows in TF32",
        "1.1 times auto_fp32; on finite elements twice as fast.",
        windows.KERNELS["windows"].entries,
        targets=family.TARGETS,
    ),
    "auto_half": Kernel(
        "auto_half",
        union.HALF_SOURCE,
        "the fastest of the groups of rows for 16-bit types",
        "1.5 times auto_fp32, with half of the bytes.",
        union.KERNELS["union_half"].entries,
        spill_free=False,
    ),
}

CHOICES: Choices[Union | Windows] = Choices(
    "async_sparse/csr",
    HERE / "choices" / "csr",
    {"m": int, "n": int, "k": int, "nnz": int, "pattern": str, "accuracy": str},
    {"union": Union, "windows": Windows},
    lambda config: [union.SOURCE, union.HALF_SOURCE, windows.SOURCE],
)


def key(problem: Problem, accuracy: str) -> tuple:
    """Return what a choice is kept under: sizes, places of non-zeros, and the accuracy, or 16-bit dtype.

    Raises ValueError, one sentence, where A is not CSR, or B and C are not row-major.
    """
    operands = problem.device()
    require_rows(f"auto_{accuracy}", operands)
    a, dtype = operands.a, family.dtype_of(operands.b)
    kind = dtype if accuracy == "half" else accuracy
    return problem.m, problem.n, problem.k, a.nnz, f"{intake.facts_of(a).fingerprint:016x}", kind


def prepare_config(name: str, problem: Problem, device, config: Union | Windows) -> Launch:
    """Return a configuration ready to run."""
    module = union if isinstance(config, Union) else windows
    return module.prepare(name, problem, device, config)


def fits(config: Union | Windows, problem: Problem, device) -> bool:
    """Whether the GPU takes it, windows being wgmma's, and the kernel A's values: choices are kept for a pattern."""
    if isinstance(config, Union):
        return True
    return jit.arch_of(device) in family.TARGETS and (not config.exact or planning.splits(problem.device().a))


def candidates(problem: Problem, device, accuracy: str, at_a_glance: bool = True) -> list[Union | Windows]:
    """Return what takes the problem, the best first by the model.

    at_a_glance: which looks at few numbers of A, and leaves out what is costly to make of it.
    """
    of = statistics(problem.device().a, at_a_glance)
    cheap = of.ascending or not at_a_glance
    every = (c for c in model.candidates(accuracy, of, problem.n) if cheap or getattr(c, "rows", 0) == 1)
    windows_fit = cache(lambda exact: fits(Windows(exact=exact), problem, device))  # A's values are looked at once
    return [c for c in every if isinstance(c, Union) or windows_fit(c.exact)]


def tune(problem: Problem, device, accuracy: str) -> autotune.Winner:
    """Return the fastest of the `MOST` candidates that the model proposes, whose output is that of single rows."""
    configs = candidates(problem, device, accuracy, False)[:MOST]
    dtype = family.dtype_of(problem.device().b)
    return autotune.tune(
        problem,
        configs,
        lambda p, config: prepare_config("auto", p, device, config),
        (lambda p: union.prepare("single rows", p, device, Union(1)),),
        device,
        ROUNDS,
        [entry_of(config, problem.n, dtype) for config in configs],
    )


def entry_of(config: Union | Windows, n: int, dtype: str = "tf32") -> tuple[Path, str]:
    """(source, template instantiation) of a configuration on n columns of B; dtype: of B, "tf32" for float32."""
    if isinstance(config, Union):
        source = union.HALF_SOURCE if dtype in half.DTYPES else union.SOURCE
        return source, union.entry(union.fitted(config, n, dtype), dtype)
    return windows.SOURCE, windows.entry(config)


FAMILIES = {
    name: Family(
        prepare_config,
        partial(candidates, accuracy=accuracy),
        fits,
        partial(tune, accuracy=accuracy),
        CHOICES,
        partial(key, accuracy=accuracy),
    )
    for name, accuracy in ACCURACIES.items()
}
