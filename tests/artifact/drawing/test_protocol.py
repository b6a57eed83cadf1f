"""The picture of the timing protocol."""

import numpy as np
from drawn import on_a_page, texts

from artifact.drawing.pages import method
from artifact.measure import bench


def test_the_timeline_is_the_schedule_of_the_timer():
    fig, data = method.timeline(("A", "B"), rounds=2)
    gpu = data[data["lane"] == "GPU"]
    order = bench.schedule({"A": 2, "B": 2})
    assert gpu["what"].tolist() == ["flush", *(x for name in order for x in ("flush", name))]
    assert (data["end"] > data["begin"]).all()
    for _, lane in data.groupby("lane"):
        assert np.allclose(lane["begin"].to_numpy()[1:], lane["end"].to_numpy()[:-1])
    text = texts(on_a_page(fig))
    assert text.count("a sample of A") == text.count("a sample of B") > 0
