"""Problems, and contenders on the CPU, of the harness's tests."""

from dataclasses import replace

import numpy as np
import pytest

from kernels import formats
from kernels.contract import Operands, Problem
from kernels.formats import csr, half, nm, two_four
from kernels.formats.half import Half, array_of


def problem(m=7, n=5, k=6, operands: Operands | None = None, **what) -> Problem:
    """A problem of these operands, on the host alone; what: other parts of it."""
    usual = {"room": "test", "label": "", "nnz": 12, "density": 0.25, "seed": 0, "flops_def": "2·nnz·N"}
    made = usual | {"useful_flops": 24 * n, "least_bytes": 1000, "requested_bytes": 2000} | what
    return Problem(
        m=m,
        n=n,
        k=k,
        make_host=lambda: operands or pytest.fail("nothing here multiplies"),
        make_device=lambda: pytest.fail("no GPU was asked for"),
        **made,
    )


def drawn(kind="csr", m=7, n=5, k=6, nnz=20, signed=True, dtype="bfloat16", **what) -> Problem:
    """A problem of each format. "csr": columns repeat and come in any order, and rows may be empty; "nm": A is dense
    and column-major, B is 2:4; "half": A is 2:4, both are 16-bit floats."""
    rng, low = np.random.default_rng([m, n, k]), -1.0 if signed else 0.0
    dense = {shape: rng.uniform(low, 1, shape).astype(np.float32) for shape in ((m, k), (k, n))}
    if kind == "csr":
        row_ptr = np.searchsorted(np.sort(rng.integers(0, max(m, 1), nnz)), np.arange(m + 1)).astype(np.int32)
        columns, val = rng.integers(0, k, nnz).astype(np.int32), rng.uniform(low, 1, nnz).astype(np.float32)
        operands = Operands(csr.validate(csr.Csr(m, k, row_ptr, columns, val)), dense[k, n])
    elif kind == "nm":
        operands = Operands(np.asfortranarray(dense[m, k]), nm.random(k, n, 2, 4, 1, 0))
    else:
        operands = Operands(two_four.random(m, k, dtype, 0), half.from_dense(dense[k, n], dtype))
    nnz = (operands.b if kind == "nm" else operands.a).nnz
    return problem(m, n, k, operands, nnz=nnz, **what)


def on_gpu(made: Problem) -> Problem:
    """The same with its operands on the GPU, too, and a C as its system has it."""

    def make_device() -> Operands:
        import cupy

        def there(x):
            order = "F" if isinstance(x, np.ndarray) and x.flags.f_contiguous else "C"
            return cupy.asarray(x, order=order) if isinstance(x, np.ndarray) else formats.to_device(x)

        a, b, halves = made.host().a, made.host().b, isinstance(made.host().b, Half)
        order = "F" if isinstance(a, np.ndarray) else "C"
        c = cupy.empty((made.m, made.n), cupy.uint16 if halves else cupy.float32, order=order)
        return Operands(there(a), there(b), Half(b.dtype, c) if halves else c)

    return replace(made, make_device=make_device)


def product(a, b) -> np.ndarray:
    """A·B as contenders give it: in float32."""
    return np.float32(formats.to_dense(a).astype(float) @ formats.to_dense(b).astype(float))


class OnCpu:
    """A contender whose launch writes work(a, b) into an output, by default the product: numbers, or the bits of a
    dtype. launches: how many there were."""

    prepare_ms, prepare_bytes = 1.5, 64

    def __init__(self, of: Problem, work=product, name="on_cpu", dtype="float32"):
        self.problem, self.work, self.name, self.launches = of, work, name, 0
        stored = np.zeros((of.m, of.n), np.float32 if dtype == "float32" else np.uint16)
        self.output = stored if dtype == "float32" else Half(dtype, stored)

    def launch(self, stream=None):
        operands = self.problem.host()
        made, self.launches = self.work(operands.a, operands.b), self.launches + 1
        bits = isinstance(self.output, Half) and np.asarray(made).dtype == np.float32
        array_of(self.output)[...] = half.to_bits(made, self.output.dtype) if bits else made

    def result(self):
        return self.output
