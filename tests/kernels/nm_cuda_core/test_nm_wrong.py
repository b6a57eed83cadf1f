"""Kernels that are wrong on purpose, in wrong/: `artifact.measure.verification` must catch every one of them."""

from dataclasses import replace
from pathlib import Path

import compiled
import numpy as np
import pytest

from artifact.measure import verification
from kernels import jit
from kernels import nm_cuda_core as system
from kernels.contract import Launch
from kernels.formats import nm
from kernels.nm_cuda_core import launch

SOURCES = sorted(Path(__file__).with_name("wrong").glob("*.cu"))
M, N = 96, 160
#: 2:4 in vectors of 32 columns with 66 compressed rows: two whole steps of 32, and two rows more.
USUAL = {"k": 132, "vector": 32}

#: kernel -> (problem on which it goes wrong, what the check says)
CAUGHT = {
    "adds_without_clearing": (USUAL, "leaves 15360 of 15360 elements unwritten or NaN"),
    "drops_ragged_step": (USUAL, "is wrong: relative error"),
    "gathers_first_column": (USUAL, "is wrong: relative error"),
    "gathers_next_column": (USUAL, "is wrong: relative error"),
    "leaves_last_tile": (USUAL, "leaves 1024 of 15360 elements .* row 64, column 128"),
    "loses_last_row": (USUAL, "is wrong: relative error"),
    "rounds_a_to_tf32": (USUAL, "is wrong: relative error [0-9.]+e-05"),
    "split_k_loses_odd_step": (USUAL, "is wrong: relative error"),
    "split_k_overwrites": (USUAL, "is wrong: relative error"),
}
#: kernel -> a problem on which it is right all the same, so that its problem above is what matters
RIGHT_AT = {
    "drops_ragged_step": {"k": 128, "vector": 32},
    "gathers_first_column": {"k": 132, "vector": N},
    "gathers_next_column": {"k": 132, "vector": N},
    "loses_last_row": {"k": 129, "vector": 32},  # the last row is a surplus one, of zeros
    "split_k_loses_odd_step": {"k": 128, "vector": 32},
    "split_k_overwrites": {"k": 64, "vector": 32},  # one step, so one share
}


def source_of(name: str) -> Path:
    return Path(__file__).with_name("wrong") / f"{name}.cu"


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.stem)
def test_a_wrong_kernel_says_so_and_compiles(source):
    """Without a GPU as well: it must be the check that refuses it, not the compiler."""
    assert source.stem in CAUGHT and source.read_text().startswith("// Wrong on purpose: ")
    assert jit.compile_cubin(source, source.stem, "sm_90a").code


def make_problem(k: int, vector: int):
    """The system's own operands, all positive: what every record is checked on."""
    return system.problem(M, N, k, seed=8, vector=vector)


def prepare(name: str, problem, device, *, cleared: bool = False) -> Launch:
    """All of them take the baseline's arguments, in blocks of 64 threads for tiles of 32 x 32."""
    from cuda.core import LaunchConfig

    ops = problem.device()
    index = nm.per_column_index(ops.b)
    kernel = jit.load(jit.compile_cubin(source_of(name), name, jit.arch_of(device)))
    sizes = map(np.int32, (problem.m, problem.n, ops.b.w))
    pointers = (x.data.ptr for x in (ops.a, ops.b.val, index, ops.c))
    shares = 2 if name.startswith("split_k") else 1
    config = LaunchConfig(grid=(problem.m // 32, problem.n // 32, shares), block=64)
    # Clearing is done where it is needed: it is not what is wrong with split-K here.
    steps = [(kernel, config, (*sizes, *pointers))]
    return Launch(name, steps, ops.c, keep=(ops, index), accumulates=cleared or shares > 1)


@pytest.mark.gpu
@pytest.mark.parametrize("name", CAUGHT)
def test_a_wrong_kernel_is_caught(device, name):
    sizes, said = CAUGHT[name]
    problem = make_problem(**sizes)
    reference, stream = verification.oracle(problem), device.create_stream()
    right = system.prepare("baseline", problem, device)
    assert verification.check(right, problem, reference, stream).rel_err < 1e-6
    with pytest.raises(verification.WrongResult, match=said) as caught:
        verification.check(prepare(name, problem, device), problem, reference, stream)
    assert str(caught.value).startswith(f"{name} at m={M}, n={N}, k={sizes['k']}, ")
    if name in RIGHT_AT or name == "adds_without_clearing":  # clearing is all that one lacks
        easy = make_problem(**RIGHT_AT.get(name, USUAL))
        bound = prepare(name, easy, device, cleared=name not in RIGHT_AT)
        assert verification.check(bound, easy, verification.oracle(easy), stream).rel_err < 1e-6


#: bug of what is to the letter -> (variant, file, text that is there once, what stands there instead)
MUTANTS = {
    "no_end": ("verbatim", "nmsparse.cuh", "if (!END || i + row < left) store4(", "if (i + row + 1 < left) store4("),
    "other_rows_of_a": ("verbatim", "nmsparse.cuh", "load4(A + m0 + k * m", "load4(A + m0 + (k ^ 1) * m"),
    "columns_swapped": ("verbatim_prefetch", "nmsparse.cuh", "Bs[row * BN + t_n + j]", "Bs[row * BN + t_n + 3 - j]"),
    "rows_of_64": ("verbatim", "verbatim.cu", "min(BK, w - w0)", "BK - 1"),
    "no_swap": ("verbatim_double_buffer", "verbatim_double_buffer.cu", "read = write;", ""),
    "share_too_short": (
        "verbatim_double_buffer",
        "verbatim_double_buffer.cu",
        "(steps + split - 1) / split;",
        "max(1, steps / split);",
    ),
    "overwrites": ("verbatim_double_buffer", "verbatim_double_buffer.cu", "if (split == 1) {", "if (split != 1) {"),
}


def mutated(monkeypatch, folder, bug: str) -> str:
    """The variant, which is from now on compiled from sources with one text changed."""
    variant, *edit = MUTANTS[bug]
    compiled.changed(launch.HERE, folder, *edit)
    kernel = system.VARIANTS[variant]
    changed = replace(kernel, source=folder / kernel.source.name)
    monkeypatch.setitem(system.VARIANTS, variant, changed)
    return variant


@pytest.mark.parametrize("bug", MUTANTS)
def test_a_wrong_letter_compiles(monkeypatch, tmp_path, bug):
    kernel, entry = system.VARIANTS[MUTANTS[bug][0]], system.entry(MUTANTS[bug][0])
    before = jit.compile_cubin(kernel.source, entry, "sm_90a").code
    variant = mutated(monkeypatch, tmp_path, bug)
    assert jit.compile_cubin(system.VARIANTS[variant].source, entry, "sm_90a").code != before


@pytest.mark.gpu
@pytest.mark.parametrize("bug", MUTANTS)
def test_a_wrong_letter_is_caught(device, monkeypatch, tmp_path, bug):
    """An odd number of steps of 32 rows, the last not whole; of 64, one and two rows more."""
    problem = make_problem(**USUAL)
    reference, stream = verification.oracle(problem), device.create_stream()
    right = system.prepare(MUTANTS[bug][0], problem, device)
    assert verification.check(right, problem, reference, stream).rel_err < 1e-6
    variant = mutated(monkeypatch, tmp_path, bug)
    with pytest.raises(verification.WrongResult):
        verification.check(system.prepare(variant, problem, device), problem, reference, stream)
