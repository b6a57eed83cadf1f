"""Fidelity: a rebuilding is held against what its source states, in time on its kind of GPU, else in a ratio."""

import pytest
from judging import evidence, frames

from artifact import registry
from artifact.verdicts import anchors, load

ANCHOR = anchors.Anchor("Fig. 4", ("wide",), "warp_per_row", "cusparse_best", {}, None, "", (1.0, 1.0))


@pytest.mark.parametrize("speedup,met", [(1.0, True), (0.81, True), (1.24, True), (0.79, False), (1.26, False)])
def test_elsewhere_the_ratio_to_a_library_decides(speedup, met):
    e = evidence(frames(speedup))
    assert anchors.met([ANCHOR], e, own=False) is anchors.met([ANCHOR], e, own=True) is met
    assert not anchors.met([], e, own=False)


@pytest.mark.parametrize("times,unit", [(1.0, "µs"), (1e-3, "ms")])
@pytest.mark.parametrize("off,met", [(1.0, True), (1.3, False), (0.7, False)])
def test_on_its_own_kind_of_gpu_what_it_states_in_time_does(times, unit, off, met):
    e = evidence(frames(1.0)).only({"n": 512, "density": 0.01})
    stated = e.frame(["wide"]).query("variant == 'warp_per_row'")["median_us"].item() * times * off
    at = {"at": {"n": 512, "density": 0.01}, "absolute": (stated, stated), "unit": unit}
    anchor = anchors.Anchor(**{**vars(ANCHOR), **at})
    assert anchors.met([anchor], e, own=True) is met and anchors.met([anchor], e, own=False)


def test_every_source_has_an_anchor_and_what_was_not_measured_meets_none():
    assert all(load.anchors(system) for system in registry.find())
    missing = anchors.Anchor(**{**vars(ANCHOR), "experiment": ("wide",), "of": "nobody"})
    assert not anchors.met([ANCHOR, missing], evidence(frames(1.0)), own=False)
