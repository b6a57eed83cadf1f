"""Every kernel of casperSPARSE, as `artifact.sanitize` runs them."""

from collections.abc import Iterable
from functools import partial

from artifact.sanitize.cases import Case, Lab, own, scattered
from kernels import casper_sparse as system


def casper_sparse(lab: Lab) -> Iterable[Case]:
    """Yield the cases of the system's kernels."""
    for n in (256, 100, 7):
        yield from lab.products(system.problem_from_csr(scattered(), n), own(system))
    yield from lab.products(system.problem(90, 40, 70, 0.3), {"scalar": partial(system.prepare, "scalar")})


#: What one process runs each: name -> its cases.
CASES = {"casper_sparse": casper_sparse}
