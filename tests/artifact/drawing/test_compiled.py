"""What a page says of kernels that it compiles, and what it does with a reader's own problem."""

import pandas as pd
import pytest

from artifact.drawing import cells, compiled
from artifact.measure import run as harness
from kernels import casper_sparse, tensor_core_24

SIZES = {"m": 64, "n": 32, "k": 48, "density": 0.1, "seed": 3}


def test_registers_and_spills():
    text = compiled.told(casper_sparse.VARIANTS["warp_per_row"])
    assert text.startswith("`warp_per_row<") and "compiled for sm_90a" in text
    assert text.endswith("registers a thread and spills none.")
    assert "no kernel of its own" in compiled.told(casper_sparse.VARIANTS["auto"])


def test_instructions_have_no_addresses():
    ops = compiled.instructions(casper_sparse.VARIANTS["warp_per_row"])
    assert any(op.startswith("LDG.E.128") for op in ops)
    assert not any("/*" in op for op in ops)


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("room", "module", "sizes", "names"),
    [
        ("casper_sparse", casper_sparse, SIZES, ["warp_per_row", "cusparse_alg2"]),
        ("tensor_core_24", tensor_core_24, {"m": 1000, "n": 520, "k": 712, "seed": 1}, ["mma_sp", "cublaslt"]),
    ],
)
def test_a_readers_own_problem_on_a_gpu(monkeypatch, tmp_path, room, module, sizes, names):
    shown = []
    monkeypatch.setattr(cells, "display", shown.append)
    run = harness.start(room, mode="measure", preset="kick", records=tmp_path)
    cells.run_own(run, module.problem(**sizes), names)
    (table,) = shown
    assert "relative error" in table.data and "1.00×" in table.data
    assert not list(run.folder.glob("*.csv"))


def test_registers_that_are_the_same_everywhere_are_said_once():
    used = pd.DataFrame({"sm_80": [48, 32], "sm_90a": [40, 32]}, index=["one", "two"])
    assert compiled.registers(used).to_dict() == {"one": "48, 40", "two": "32"}
