from unittest.mock import Mock

import numpy as np
import pytest
from fake_libraries import DEVICE, nm_problem
from refused import refused

from artifact import registry
from artifact.systems.nm_spmm.baselines import nm_baseline
from kernels import nm_cuda_core
from kernels.contract import Launch, Operands
from kernels.formats import nm
from kernels.nm_spmm import operands


@pytest.fixture
def asked(monkeypatch):
    """The other system's `prepare`, which answers with a launch of the same name."""
    prepare = Mock(side_effect=lambda v, problem, _: Launch(v, [("kernel", "config", ())], problem.device().c, 2.5, 40))
    monkeypatch.setattr(nm_cuda_core, "prepare", prepare)
    return prepare


def test_the_other_systems_kernel_has_a_name_of_its_own(asked):
    problem = nm_problem(64, 32, 64)
    bound = registry.contenders(["nm_baseline"], DEVICE)["nm_baseline"](problem)
    asked.assert_called_once_with("baseline", problem, DEVICE)
    assert (bound.name, bound.prepare_ms, bound.prepare_bytes) == ("nm_baseline", 2.5, 40)
    assert bound.steps == [("kernel", "config", ())] and bound.result() is problem.device().c


def test_the_same_operands_in_16_bits_or_another_order_are_refused(asked):
    refused(
        "nm_baseline takes A as a float32 array .* nm_spmm has",
        nm_baseline.prepare,
        nm_problem(64, 32, 64, dtype="bfloat16"),
        DEVICE,
    )
    problem = nm_problem(64, 32, 64)
    problem.device().c = np.zeros((64, 32), np.float32)
    refused("nm_baseline takes C as a float32 array in Fortran order", nm_baseline.prepare, problem, DEVICE)
    problem._device = Operands(problem.device().a, nm.to_dense(problem.host().b))
    refused("nm_baseline takes B in N:M form", nm_baseline.prepare, problem, DEVICE)
    asked.assert_not_called()


@pytest.mark.gpu
@pytest.mark.parametrize("density", [0.125, 0.5, 1.0])
@pytest.mark.parametrize("vector", [32, 128])
def test_the_kernel_is_right_on_the_other_systems_problems(device, density, vector):
    from artifact.measure import verification

    problem = operands.problem(96, 160, 200, density, vector=vector)
    bound = nm_baseline.prepare(problem, device)
    stream, reference = device.create_stream(), verification.oracle(problem)
    for _ in range(2):
        assert verification.check(bound, problem, reference, stream).rel_err < 1e-6
    assert bound.name == "nm_baseline" and bound.prepare_ms > 0
