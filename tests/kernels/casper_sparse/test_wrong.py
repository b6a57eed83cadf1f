"""Kernels that are wrong on purpose, in wrong/: `artifact.measure.verification` must catch every one of them."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from artifact.measure import verification
from kernels import casper_sparse as system
from kernels import jit
from kernels.contract import Launch, Operands
from kernels.formats import csr

SOURCES = sorted(Path(__file__).with_name("wrong").glob("*.cu"))
M, K = 403, 200

#: kernel -> (N on which it goes wrong, what the check says)
CAUGHT = {
    "adds_to_the_output": (64, "leaves 25792 of 25792 elements unwritten or NaN"),
    "drops_ragged_columns": (68, r"leaves 1612 of 27404 elements .* row 0, column 64"),
    "drops_repeated_columns": (64, "is wrong: relative error"),
    "leaves_last_row": (64, "leaves 64 of 25792 elements .* row 402, column 0"),
    "loses_last_nonzero": (64, "is wrong: relative error"),
    "multiplies_padding": (64, "elements unwritten or NaN"),
    "rounds_the_stride": (65, "is wrong: relative error"),
    "rounds_to_tf32": (64, "is wrong: relative error [0-9.]+e-0[45]"),
}
#: kernel -> an N on which it is right all the same, so that its N above is what the test is about
RIGHT_AT = {"drops_ragged_columns": 64, "rounds_the_stride": 64}


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.stem)
def test_a_wrong_kernel_says_so_and_compiles(source):
    """Without a GPU as well: it must be the check that refuses it, not the compiler."""
    assert source.stem in CAUGHT and source.read_text().startswith("// Wrong on purpose: ")
    assert jit.compile_cubin(source, source.stem, "sm_90a").code


def make_problem(n: int):
    """Rows of 2 to 60 non-zeros, neighbours with the same column, and a row 0 of B that none uses."""
    rng = np.random.default_rng(8)
    lengths = rng.integers(2, 61, M)
    row_ptr = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    columns = rng.integers(1, K, row_ptr[-1]).astype(np.int32)
    columns[row_ptr[:-1] + 1] = columns[row_ptr[:-1]]
    values = rng.uniform(0.1, 1, columns.size).astype(np.float32)
    a = csr.validate(csr.Csr(M, K, row_ptr, columns, values))
    b = rng.uniform(0.1, 1, (K, n)).astype(np.float32)
    b[0] = math.inf
    problem = system.problem_from_csr(a, n)

    def on_device() -> Operands:
        import cupy

        c = cupy.empty((M, n), cupy.float32)
        return Operands(csr.to_device(a), cupy.asarray(b), c)

    return replace(problem, make_host=lambda: Operands(a, b), make_device=on_device)


def prepare(source: Path, entry: str, problem, device) -> Launch:
    """All of them take the arguments of any_n, which is bound here as the right one among them."""
    from cuda.core import LaunchConfig

    ops = problem.device()
    kernel = jit.load(jit.compile_cubin(source, entry, jit.arch_of(device)))
    arrays = (ops.a.row_ptr, ops.a.col_idx, ops.a.val, ops.b, ops.c)
    arguments = (np.int32(problem.m), np.int32(problem.n), *(x.data.ptr for x in arrays))
    config = LaunchConfig(grid=math.ceil(problem.m / 8), block=256)
    return Launch(source.stem, [(kernel, config, arguments)], ops.c)


def checked(source: Path, entry: str, n: int, device) -> float:
    """The error of a kernel; WrongResult where the check refuses it."""
    import cupy

    problem = make_problem(n)
    reference = verification.reference(cupy.asarray(verification.oracle(problem, on="cpu").values))
    bound = prepare(source, entry, problem, device)
    return verification.check(bound, problem, reference, device.create_stream()).rel_err


@pytest.mark.gpu
@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.stem)
def test_a_wrong_kernel_is_caught(device, source):
    """Some are right at an N that is convenient: why the ladder is tested at ragged N."""
    n, said = CAUGHT[source.stem]
    assert checked(system.VARIANTS["any_n"].source, system.entry("any_n", n), n, device) < 1e-6
    with pytest.raises(verification.WrongResult, match=f"^{source.stem} at m={M}, n={n}, .*{said}"):
        checked(source, source.stem, n, device)
    if source.stem in RIGHT_AT:
        assert checked(source, source.stem, RIGHT_AT[source.stem], device) < 1e-6
