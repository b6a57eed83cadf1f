"""Every kernel for N:M on CUDA cores, as `artifact.sanitize` runs them."""

from collections.abc import Iterable
from functools import partial

from artifact.sanitize.cases import Case, Lab, own


def nm_cuda_core(lab: Lab) -> Iterable[Case]:
    """Yield the cases of the system's kernels."""
    from kernels import nm_cuda_core as system

    yield from lab.products(system.problem(96, 64, 200), own(system))
    for density, group, vector in ((0.5, 4, 1), (0.25, 4, 32), (0.5, 32, 1), (0.125, 32, 32)):
        yield from lab.products(
            system.problem(96, 64, 200, density, group=group, vector=vector),
            {"element_wise": partial(system.prepare, "element_wise")},
        )


#: What one process runs each: name -> its cases.
CASES = {"nm_cuda_core": nm_cuda_core}
