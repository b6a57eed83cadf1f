"""What cells put on a page: verdicts, a reader's own problem, and what is said of kernels that a page compiles."""

import pandas as pd
import pytest

from artifact.drawing import compiled, outputs
from artifact.measure import run as harness
from artifact.verdicts import load
from kernels import casper_sparse, tensor_core_24

SIZES = {"m": 64, "n": 32, "k": 48, "density": 0.1, "seed": 3}


@pytest.fixture
def shown(monkeypatch) -> list:
    found = []
    monkeypatch.setattr(outputs, "display", found.append)
    return found


def test_verdicts_are_those_of_the_system(shown):
    judged = outputs.verdicts(harness.start("nm_cuda_core", mode="recorded"))
    assert set(judged["id"]) == {claim.id for claim in load.claims() if claim.room == "nm_cuda_core"}
    assert all(name in shown[0].data for name in judged["id"])


def test_several_texts_and_what_is_not_there(shown):
    outputs.say("one", "", "two")
    assert [markdown.data for markdown in shown] == ["one", "two"]


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("system", "module", "sizes", "names"),
    [
        ("casper_sparse", casper_sparse, SIZES, ["warp_per_row", "cusparse_alg2"]),
        ("tensor_core_24", tensor_core_24, {"m": 1000, "n": 520, "k": 712, "seed": 1}, ["mma_sp", "cublaslt"]),
    ],
)
def test_a_readers_own_problem_on_a_gpu(shown, tmp_path, system, module, sizes, names):
    run = harness.start(system, mode="measure", preset="kick", records=tmp_path)
    outputs.run_own(run, module.problem(**sizes), names)
    (table,) = shown
    assert "relative error" in table.data and "1.00×" in table.data
    assert not list(run.folder.glob("*.csv"))


def test_registers_and_spills():
    text = compiled.told(casper_sparse.VARIANTS["warp_per_row"])
    assert text.startswith("`warp_per_row<") and "compiled for sm_90a" in text
    assert text.endswith("registers a thread and spills none.")
    assert "no kernel of its own" in compiled.told(casper_sparse.VARIANTS["auto"])
    used = pd.DataFrame({"sm_80": [48, 32], "sm_90a": [40, 32]}, index=["one", "two"])
    assert compiled.registers(used).to_dict() == {"one": "48, 40", "two": "32"}


def test_instructions_have_no_addresses():
    ops = compiled.instructions(casper_sparse.VARIANTS["warp_per_row"])
    assert any(op.startswith("LDG.E.128") for op in ops) and not any("/*" in op for op in ops)
