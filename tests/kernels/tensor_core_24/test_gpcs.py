"""Which SMs form a GPC: what is made of the clusters that ran on them, and what is found on a GPU."""

from math import ceil

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from refused import says

from kernels.tensor_core_24 import gpcs

#: A GH100 as made: GPCs, and SMs of each. A product has some fewer SMs.
GPCS, SMS_OF_ONE = 8, 18


@st.composite
def chips(draw) -> list[list[int]]:
    """GPCs, each of two SMs or more, by their numbers, which may leave some out."""
    sizes = draw(st.lists(st.integers(2, SMS_OF_ONE), min_size=1, max_size=9))
    total = sum(sizes)
    numbers = draw(st.lists(st.integers(0, 300), min_size=total, max_size=total, unique=True))
    return [numbers[end - size : end] for size, end in zip(sizes, np.cumsum(sizes).tolist(), strict=True)]


def clusters_of(chip: list[list[int]], seed: int) -> list[np.ndarray]:
    """Clusters of two to eight, none of which leaves a GPC, and just enough of them to join all of its SMs."""
    rng, found = np.random.default_rng(seed), []
    for gpc in chip:
        for i, number in enumerate(gpc[1:], 1):
            with_it = rng.choice(gpc[:i], min(i, int(rng.integers(1, 8))), replace=False)
            found.append(rng.permutation([number, *with_it]))
    return [found[i] for i in rng.permutation(len(found))]


def check_places(found: np.ndarray, chip: list[list[int]]) -> None:
    """Every SM has a place of its own, those of a GPC are side by side, and other numbers have none."""
    numbers = sorted(sum(chip, []))
    assert found.dtype == np.int32 and len(found) == numbers[-1] + 1
    assert np.flatnonzero(found >= 0).tolist() == numbers and set(found[found < 0]) <= {-1}
    assert sorted(found[numbers]) == [*range(len(numbers))] and all(np.ptp(found[gpc]) == len(gpc) - 1 for gpc in chip)


@given(chip=chips(), seed=st.integers(0, 2**32 - 1))
@settings(deadline=None, max_examples=50)
def test_clusters_give_their_gpcs_places_side_by_side(chip, seed):
    check_places(gpcs.placed(clusters_of(chip, seed), sum(map(len, chip))), chip)


def test_a_number_travels_along_a_chain_of_clusters():
    """In this order a pass over all clusters brings the least number on by one of them."""
    chain = [np.array([i, i + 2]) for i in reversed(range(40))]
    check_places(gpcs.placed(chain, 42), [[*range(0, 42, 2)], [*range(1, 42, 2)]])


@pytest.mark.parametrize("sms", [3, 5, 132])
def test_an_sm_that_no_cluster_ran_on_is_said(sms):
    """Its block would have no place, or another's; and with more SMs than the GPU has, something else is wrong."""
    clusters = [np.array([0, 1]), np.array([2, 3])]
    says([f"on 4 of this GPU's {sms} multi", "use wgmma_keep"], lambda: gpcs.placed(clusters, sms))


@pytest.mark.gpu
def test_this_gpus_sms_are_told_apart_by_gpc(hopper, monkeypatch):
    seen, placed = [], gpcs.placed
    monkeypatch.setattr(gpcs, "placed", lambda clusters, sms: placed(seen.extend(clusters) or clusters, sms))
    gpcs.places.cache_clear()
    places = gpcs.places(hopper.device_id)
    found, sms = places.get(), hopper.properties.multiprocessor_count
    assert gpcs.places(hopper.device_id) is places
    gpc_of = {number: {number} for number in np.concatenate(seen).tolist()}
    for cluster in seen:
        joined = set().union(*(gpc_of[number] for number in cluster.tolist()))
        gpc_of.update(dict.fromkeys(joined, joined))
    members = [sorted(x) for x in {id(x): x for x in gpc_of.values()}.values()]
    check_places(found, members)
    whole = [gpc for gpc in members if len(gpc) > 2]  # pairs that larger clusters leave out stay apart
    assert ceil(sms / SMS_OF_ONE) <= len(members) and len(whole) <= GPCS, "no GPC fell apart"
    assert sum(map(len, whole)) > 0.9 * sms and all(2 <= len(gpc) <= SMS_OF_ONE for gpc in members)
