"""Every case of a system can be made ready on a GPU that is not there, and every kernel of the system has one."""

from types import SimpleNamespace

import numpy as np
import pytest
import racing
from pretend import as_array, there

from artifact.sanitize import __main__ as sanitize, cases
from artifact.systems.async_sparse import sanitize as of_blocks
from kernels import jit, systems
from kernels.tensor_core_24 import fp8, gpcs

#: Systems whose cases are products by a kernel that is bound; the others call what works on a GPU alone.
PRODUCTS = tuple(name for name in cases.find() if name not in cases.SHARED)
OF_SYSTEM = {"async_csr": "async_sparse", "async_blocks": "async_sparse"}


@pytest.fixture
def ran(pretended, monkeypatch):
    """A function: a system -> what came of its cases, which are made ready and not launched; they are kept."""
    made: dict[str, sanitize.Ran] = {}
    properties = SimpleNamespace(**vars(racing.H200.properties), clock_rate=1_980_000)
    device = pretended(SimpleNamespace(**vars(racing.H200) | {"properties": properties}))
    monkeypatch.setattr(jit, "run_on_cupy_stream", lambda *_: None)
    monkeypatch.setattr(jit, "most_clusters", lambda *_: 2)
    monkeypatch.setattr(gpcs, "places", lambda _: as_array(np.zeros(132, np.int32)))

    def product(self, problem, name, prepare, right) -> None:
        if problem.room == "nm_spmm":  # its preparation follows indices, which kernels write
            problem = there(problem)
        prepare(problem, self.device if name in cases.WHOLE else self.few)

    monkeypatch.setattr(cases.Lab, "product", product)
    monkeypatch.setattr(of_blocks, "_gated", lambda *_: None)

    def run(system: str) -> sanitize.Ran:
        if system not in made:
            found = made[system] = sanitize.Ran(system, "")
            for name, work in cases.find()[system](cases.Lab(device)):
                try:
                    work()
                except ValueError as error:
                    found.refused[name] = str(error)
                else:
                    found.ran.add(name)
        return made[system]

    return run


@pytest.mark.parametrize("system", PRODUCTS)
def test_no_kernel_is_refused_on_every_problem(ran, system):
    assert ran(system).never == [], ran(system).refused


def test_every_variant_that_is_a_kernel_of_its_own_has_a_case(ran):
    for name, system in {**systems(), "fp8": fp8}.items():
        every = [x for x in PRODUCTS if OF_SYSTEM.get(x, x) == name]
        found = {case.split(",")[0] for x in every for case in ran(x).ran}
        own = {x for x in system.VARIANTS if "auto" not in x and x not in cases.CHOOSING}
        assert own <= found, own - found


def test_blocks_that_stay_have_several_tiles(ran):
    """What a kernel is told of the GPU: fewer multiprocessors than the problems have tiles."""
    real = SimpleNamespace(properties=SimpleNamespace(multiprocessor_count=132, l2_cache_size=7))
    few = cases.few(SimpleNamespace(properties=real.properties, device_id=3))
    assert few.properties.multiprocessor_count == cases.SMS < 6
    assert (few.device_id, few.properties.l2_cache_size) == (3, 7)
