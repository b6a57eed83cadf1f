"""The system's problems: C (m, n) = A (m, k) · B (k, n), A in CSR, B and C row-major, all float32."""

import math

import numpy as np

from ..contract import Operands, Problem
from ..formats import csr
from ..lazy import cupy
from . import generate

SYSTEM = "casper_sparse"
FLOPS_DEF = "2·nnz·N"  # a multiply and an add for every non-zero and every column (source, Eq. 4)


def problem(m: int, n: int, k: int, density: float, seed: int = 0) -> Problem:
    """C (m, n) = A (m, k) · B (k, n) with the source's generators.

    density is the source's S / 100: a row holds between K·S/200 and K·S/100 non-zeros.
    Raises ValueError with one sentence for sizes that make no problem.
    """
    generate.validate(m, n, k, density, seed)
    m, n, k, seed = int(m), int(n), int(k), int(seed)  # NumPy's integers would wrap in the products
    nnz = int(generate.row_counts(m, k, density, seed).sum(dtype=np.int64))
    generate.require_int32(nnz)
    arguments = (m, n, k, density, seed)
    return _problem(
        "",
        m,
        n,
        k,
        nnz,
        density,
        seed,
        lambda: generate.host_operands(*arguments),
        lambda: generate.device_operands(*arguments),
    )


def problem_from_csr(a: csr.Csr, n: int, seed: int = 0, label: str = "") -> Problem:
    """C (m, n) = A · B for a given A on the host, with the source's generator of B; validates A."""
    csr.validate(a)
    # Repeated entries could make it more than 1, and no rows or no columns make it nothing.
    density = min(1.0, a.nnz / (a.m * a.k)) if a.m * a.k else 0.0
    generate.validate(max(a.m, 1), n, max(a.k, 1), density, seed)
    n, seed = int(n), int(seed)

    def on_device() -> Operands:
        return Operands(
            csr.to_device(a),
            generate.device_dense(a.k, n, seed),
            cupy.empty((a.m, n), cupy.float32),
        )

    return _problem(
        label,
        a.m,
        n,
        a.k,
        a.nnz,
        density,
        seed,
        lambda: Operands(a, generate.host_dense(a.k, n, seed)),
        on_device,
    )


def _problem(label, m, n, k, nnz, density, seed, on_host, on_device) -> Problem:
    a_bytes = 8 * nnz + 4 * (m + 1)
    column_tiles = math.ceil(n / 128)  # the published kernel reads its row of A again for each
    return Problem(
        room=SYSTEM,
        label=label,
        m=m,
        n=n,
        k=k,
        nnz=nnz,
        density=density,
        seed=seed,
        useful_flops=2 * nnz * n,
        flops_def=FLOPS_DEF,
        least_bytes=a_bytes + 4 * k * n + 4 * m * n,
        requested_bytes=8 * nnz * column_tiles + 8 * m + 4 * nnz * n + 4 * m * n,
        make_host=on_host,
        make_device=on_device,
    )
