"""How fast contenders draw on each memory: what is drawn, and beside which ceiling."""

import numpy as np
import pandas as pd
import pytest
import synthetic
from drawn import labels, legible, words

from artifact.drawing import memories, style

ROOFS = {"L2": {"read": 10.0, "shared": 30.0}, "DRAM": {"copy": 4.0}}
SHOWN = ("warp_per_row", "rows_per_warp", "not_measured")


def rates(**changes) -> pd.DataFrame:
    """Three points of two groups for two contenders at both memories, the second twice as fast."""
    rows = [
        {"variant": v, "group": g, "memory": m, "tbps": scale * unit * (i + 1)}
        for v, scale in (("warp_per_row", 1.0), ("rows_per_warp", 2.0))
        for g, unit in (("wide", 1.0), ("tall", 0.5))
        for m in ROOFS
        for i in range(3)
    ]
    return pd.DataFrame(rows).assign(**changes)


def test_ranges_and_medians_are_those_of_the_points():
    fig, data = memories.memories(rates(), ROOFS, synthetic.LADDER, SHOWN)
    legible(fig)
    assert [ax.get_title() for ax in fig.get_axes()] == ["L2", "DRAM"]
    row = data.set_index(["memory", "variant", "group"]).loc[("DRAM", "rows_per_warp", "wide")]
    assert row[["points", "least", "median", "most", "ceiling"]].tolist() == [3, 2.0, 4.0, 6.0, 4.0]
    colour = style.look("warp_per_row", synthetic.LADDER)["color"]
    drawn = [line for line in fig.get_axes()[0].get_lines() if line.get_color() == colour]
    ranges = {tuple(np.asarray(line.get_xdata(), float)) for line in drawn if len(line.get_xdata()) == 2}
    assert ranges == {(1.0, 3.0), (0.5, 1.5)}
    assert {line.get_marker() for line in drawn if len(line.get_xdata()) == 1} == {"o", "s"}
    assert labels(fig)[:2] == ["wide", "tall"]


def test_the_largest_share_and_the_ceilings_are_written_out():
    fig, _ = memories.memories(rates(), ROOFS, synthetic.LADDER, SHOWN)
    said = words(fig)
    assert {"read 10.0", "shared 30.0", "copy 4.0", "30%", "60%", "75%", "150%"} <= set(said)


def test_what_cannot_be_drawn_is_refused():
    with pytest.raises(ValueError, match="none of not_measured has a rate"):
        memories.memories(rates(), ROOFS, synthetic.LADDER, ["not_measured"])
    with pytest.raises(ValueError, match="none of warp_per_row"):
        memories.memories(rates(tbps=np.nan), ROOFS, synthetic.LADDER, ["warp_per_row"])
    with pytest.raises(ValueError, match="no ceiling of DRAM"):
        memories.memories(rates(), {"L2": ROOFS["L2"]}, synthetic.LADDER, SHOWN)
