"""Which SMs form a GPC: what is made of the clusters that ran on them, and what is found on a GPU."""

from __future__ import annotations

import re
import sys
import types
from math import ceil
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels import jit
from kernels.tensor_core_24 import family, gpcs

#: Bytes of shared memory that a block, and that all blocks of an SM together may have on Hopper.
MOST, OF_AN_SM = 232448, 228 * 1024
#: A GH100 as made: GPCs, and SMs of each. A product has some fewer SMs.
GPCS, SMS_OF_ONE = 8, 18


@st.composite
def chips(draw) -> list[list[int]]:
    """GPCs, each of two SMs or more, by their numbers, which may leave some out."""
    sizes = draw(st.lists(st.integers(2, SMS_OF_ONE), min_size=1, max_size=9))
    total = sum(sizes)
    numbers = draw(st.lists(st.integers(0, 300), min_size=total, max_size=total, unique=True))
    ends = np.cumsum(sizes).tolist()
    return [numbers[end - size : end] for size, end in zip(sizes, ends, strict=True)]


def clusters_of(chip: list[list[int]], seed: int) -> list[np.ndarray]:
    """Clusters of two to eight, none of which leaves a GPC, and just enough of them to join all of its SMs."""
    rng, found = np.random.default_rng(seed), []
    for gpc in chip:
        for i, number in enumerate(gpc[1:], 1):
            with_it = rng.choice(gpc[:i], min(i, int(rng.integers(1, 8))), replace=False)
            found.append(rng.permutation([number, *with_it]))
    return [found[i] for i in rng.permutation(len(found))]


def groups_of(chip: list[list[int]]) -> dict[int, int]:
    return {number: min(gpc) for gpc in chip for number in gpc}


# ---------------------------------------------------------------------------- from clusters to GPCs


@given(chip=chips(), seed=st.integers(0, 2**32 - 1))
@settings(deadline=None, max_examples=200)
def test_clusters_give_their_gpcs_back(chip, seed):
    assert gpcs.joined(clusters_of(chip, seed)) == groups_of(chip)


def test_a_number_travels_along_a_chain_of_clusters():
    """In this order a pass over all clusters brings the least number on by one of them."""
    chain = [np.array([i, i + 1]) for i in reversed(range(40))]
    assert gpcs.joined(chain) == dict.fromkeys(range(41), 0)


# ----------------------------------------------------------------------------- from GPCs to places


@given(chip=chips())
@settings(deadline=None, max_examples=200)
def test_every_sm_has_a_place_and_those_of_a_gpc_are_side_by_side(chip):
    groups = groups_of(chip)
    found = gpcs.placed(groups, len(groups))
    assert found.dtype == np.int32 and len(found) == max(groups) + 1
    assert sorted(found[found >= 0]) == [*range(len(groups))]
    assert set(np.flatnonzero(found >= 0)) == set(groups), "no SM has the other numbers"
    assert set(found[found < 0]) <= {-1}
    for gpc in chip:
        places = sorted(found[gpc])
        assert places == [*range(places[0], places[0] + len(gpc))]


@pytest.mark.parametrize("sms", [3, 5, 132])
def test_an_sm_that_no_cluster_ran_on_is_said(sms):
    """Its block would have no place, or another's; and with more SMs than the GPU has, something else is wrong."""
    with pytest.raises(ValueError) as caught:
        gpcs.placed({0: 0, 1: 0, 2: 2, 3: 2}, sms)
    message = str(caught.value)
    assert re.match(rf"clusters ran on 4 of this GPU's {sms} multiprocessors, ", message)
    assert message.endswith(": use wgmma_keep") and "\n" not in message and ". " not in message


# ------------------------------------------------------------------------------- what is launched


class There(np.ndarray):
    """A NumPy array as CuPy has it, whose address is itself: a launch is made up."""

    @property
    def data(self):
        return SimpleNamespace(ptr=self)

    def get(self) -> np.ndarray:
        return np.asarray(self)


@pytest.fixture
def launched(monkeypatch):
    """gpcs.places without a GPU; what it launches is kept: (configuration, blocks of each cluster).

    The chip has seven GPCs and 132 SMs, the number of an SM says which: number % 7.
    """
    import cuda.core

    made, rng = [], np.random.default_rng(0)
    chip = [np.arange(gpc, 132, 7) for gpc in range(7)]

    def launch(stream, config, kernel, found, stay) -> None:
        assert kernel == ("gpcs", "sm_90a", config.shmem_size) and stay == gpcs.STAY
        assert isinstance(stay, np.int32) and found.dtype == np.uint32
        assert found.size == config.grid * config.cluster, "a number for every block"
        for row in found.reshape(-1, config.cluster):
            row[:] = rng.choice(chip[rng.integers(7)], config.cluster, replace=False)
        made.append((config, found))

    properties = SimpleNamespace(multiprocessor_count=132, max_shared_memory_per_block_optin=MOST)
    stream = SimpleNamespace(sync=lambda: None)
    cupy = types.ModuleType("cupy")
    cupy.uint32, cupy.asarray = np.uint32, lambda x: x.view(There)
    cupy.empty = lambda shape, dtype: np.full(shape, 2**32 - 1, dtype).view(There)
    here = SimpleNamespace(synchronize=lambda: None)
    cupy.cuda = SimpleNamespace(get_current_stream=lambda: here)
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    monkeypatch.setattr(cuda.core, "LaunchConfig", lambda **knobs: SimpleNamespace(**knobs))
    monkeypatch.setattr(cuda.core, "launch", launch)
    monkeypatch.setattr(
        cuda.core,
        "Device",
        lambda number: SimpleNamespace(
            device_id=number,
            compute_capability=(9, 0),
            properties=properties,
            create_stream=lambda: stream,
        ),
    )
    monkeypatch.setattr(jit, "compile_cubin", lambda source, entry, arch: (entry, arch))
    monkeypatch.setattr(jit, "load", lambda cubin, dynamic: (*cubin, dynamic))
    gpcs.places.cache_clear()
    yield made
    gpcs.places.cache_clear()


def test_every_sm_gets_clusters_of_every_size_for_itself(launched):
    found = gpcs.places(0)
    assert sorted(found) == [*range(132)]
    for gpc in range(7):
        places = sorted(found[gpc::7])
        assert places == [*range(places[0], places[0] + len(places))]
    sizes = [config.cluster for config, _ in launched]
    assert sizes == [2, 3, 4, 5, 6, 7, 8], "8 is the most that is portable"
    for config, blocks in launched:
        assert config.block == 32 and blocks.size >= 2 * 132, "each SM has its turn"
        assert config.shmem_size <= MOST and 2 * config.shmem_size > OF_AN_SM, "one at a time"


# --------------------------------------------------------------------------------------- on a GPU


@pytest.mark.gpu
def test_this_gpus_sms_are_told_apart_by_gpc(device, monkeypatch):
    if jit.arch_of(device) not in family.TARGETS:
        pytest.skip("wgmma_gpc is for Hopper")
    seen, placed = [], gpcs.placed

    def place(groups, sms):
        seen.append(groups)
        return placed(groups, sms)

    monkeypatch.setattr(gpcs, "placed", place)
    gpcs.places.cache_clear()
    places = gpcs.places(device.device_id)
    found, sms = places.get(), device.properties.multiprocessor_count
    assert found.dtype == np.int32
    assert np.array_equal(np.sort(found[found >= 0]), np.arange(sms))
    assert gpcs.places(device.device_id) is places

    (groups,) = seen
    members = [[x for x in groups if groups[x] == gpc] for gpc in set(groups.values())]
    whole = [gpc for gpc in members if len(gpc) > 2]  # pairs that larger clusters leave out stay apart
    assert ceil(sms / SMS_OF_ONE) <= len(members) and len(whole) <= GPCS, "no GPC fell apart"
    assert sum(map(len, whole)) > 0.9 * sms
    for gpc in members:
        assert 2 <= len(gpc) <= SMS_OF_ONE
        taken = np.sort(found[gpc])
        assert taken[-1] - taken[0] == len(gpc) - 1, "side by side"
