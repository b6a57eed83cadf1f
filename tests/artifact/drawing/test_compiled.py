"""What a page says of a problem that its reader makes up, and of machine code."""

import pytest

from artifact.drawing import compiled
from artifact.measure import run as harness
from kernels import casper_sparse
from kernels.contract import Kernel

SIZES = {"m": 64, "n": 32, "k": 48, "density": 0.1, "seed": 3}


def test_without_a_gpu_a_problem_is_compiled():
    run = harness.start("casper_sparse", mode="recorded")
    text = compiled.tried(run, "warp_per_row", casper_sparse.problem(**SIZES))
    assert text.startswith("`warp_per_row` at 64 × 32 × 48, seed 3: not run")
    assert "registers a thread and spills none" in text
    text = compiled.tried(run, "auto", casper_sparse.problem(**SIZES))
    assert "no kernel of its own" in text


def test_an_unknown_variant_is_refused():
    run = harness.start("casper_sparse", mode="recorded")
    with pytest.raises(ValueError, match="variant is 'warp', but must be one of warp_per_row, "):
        compiled.tried(run, "warp", casper_sparse.problem(**SIZES))


def test_instructions_have_no_addresses():
    kernel: Kernel = casper_sparse.VARIANTS["warp_per_row"]
    ops = compiled.instructions(kernel)
    assert any(op.startswith("LDG.E.128") for op in ops)
    assert not any("/*" in op for op in ops)


@pytest.mark.gpu
def test_on_a_gpu_a_problem_is_checked_and_timed(tmp_path):
    run = harness.start("casper_sparse", mode="measure", preset="kick", records=tmp_path)
    text = compiled.tried(run, "warp_per_row", casper_sparse.problem(**SIZES))
    assert " µs, " in text and "against float64." in text
    assert not list(run.folder.glob("*.csv"))
