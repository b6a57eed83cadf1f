"""Which SMs form a GPC: what is made of the clusters that ran on them, and what is found on a GPU."""

from math import ceil

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from refused import says

from kernels import jit
from kernels.tensor_core_24 import family, gpcs

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
@settings(deadline=None, max_examples=50)
def test_clusters_give_their_gpcs_back(chip, seed):
    assert gpcs.joined(clusters_of(chip, seed)) == groups_of(chip)


def test_a_number_travels_along_a_chain_of_clusters():
    """In this order a pass over all clusters brings the least number on by one of them."""
    chain = [np.array([i, i + 1]) for i in reversed(range(40))]
    assert gpcs.joined(chain) == dict.fromkeys(range(41), 0)


# ----------------------------------------------------------------------------- from GPCs to places


@given(chip=chips())
@settings(deadline=None, max_examples=50)
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
    says([f"on 4 of this GPU's {sms} multi", "use wgmma_keep"], lambda: gpcs.placed({0: 0, 1: 0, 2: 2, 3: 2}, sms))


@pytest.mark.gpu
def test_this_gpus_sms_are_told_apart_by_gpc(device, monkeypatch):
    if jit.arch_of(device) not in family.TARGETS:
        pytest.skip("wgmma_gpc is for Hopper")
    seen, placed = [], gpcs.placed
    monkeypatch.setattr(gpcs, "placed", lambda groups, sms: placed(seen.append(groups) or groups, sms))
    gpcs.places.cache_clear()
    places = gpcs.places(device.device_id)
    found, sms = places.get(), device.properties.multiprocessor_count
    assert np.array_equal(np.sort(found[found >= 0]), np.arange(sms)) and gpcs.places(device.device_id) is places
    members = [[x for x in seen[0] if seen[0][x] == gpc] for gpc in set(seen[0].values())]
    whole = [gpc for gpc in members if len(gpc) > 2]  # pairs that larger clusters leave out stay apart
    assert ceil(sms / SMS_OF_ONE) <= len(members) and len(whole) <= GPCS, "no GPC fell apart"
    assert sum(map(len, whole)) > 0.9 * sms
    for gpc in members:
        taken = np.sort(found[gpc])
        assert 2 <= len(gpc) <= SMS_OF_ONE and taken[-1] - taken[0] == len(gpc) - 1, "side by side"
