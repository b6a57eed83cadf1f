"""Every kernel for vectors of N:M, trials of its families among them, as `artifact.sanitize` runs them."""

from collections.abc import Iterable
from functools import partial
from itertools import product

from artifact.sanitize.cases import Case, Lab, own


def nm_spmm(lab: Lab) -> Iterable[Case]:
    """Yield the cases of the system's kernels."""
    from kernels import nm_spmm as system
    from kernels.nm_spmm import family, launch

    trials = {name: partial(launch.prepare_rung, name) for name in family.TRIALS}
    for density in (0.5, 0.125):
        yield from lab.products(system.problem(300, 264, 520, density), own(system) | trials)
    yield from lab.products(system.problem(320, 256, 512, 0.25), own(system))  # whole tiles
    yield from lab.products(
        system.problem(301, 140, 333, 0.25, vector=4),
        {name: prepare for name, prepare in own(system).items() if name in (*family.RUNGS, "v1", "v3")},
    )
    for (dtype, name), m in product((("tf32", "tf32"), ("bfloat16", "bf16")), (304, 301)):
        yield from lab.products(system.problem(m, 264, 520, 0.25, dtype=dtype), {name: partial(system.prepare, name)})


#: What one process runs each: name -> its cases.
CASES = {"nm_spmm": nm_spmm}
