"""Alternative texts of shared charts: they say what the data behind a figure holds."""

import pandas as pd

from artifact.drawing import findings


def test_memories_tell_the_largest_share_of_each():
    rows = [("L2", "auto", "wide", 3.0), ("L2", "auto", "tall", 5.0), ("DRAM", "auto", "wide", 1.0)]
    data = pd.DataFrame(rows, columns=["memory", "variant", "group", "most"])
    data["ceiling"] = data["memory"].map({"L2": 10.0, "DRAM": 4.0})
    assert findings.memories(data).endswith("L2: auto 50%; DRAM: auto 25%.")


def test_a_ladder_names_its_experiments_where_there_are_several():
    data = pd.DataFrame(
        {
            "variant": ["a", "a", "b"],
            "experiment": ["wide", "tall", "wide"],
            "speedup": [1.0, 2.0, 3.0],
        }
    )
    assert findings.ladder(data).endswith("a 1.00 wide, 2.00 tall; b 3.00 wide.")
    assert findings.ladder(data[data["experiment"] == "wide"]).endswith("a 1.00; b 3.00.")


def test_dots_count_who_is_ahead():
    data = pd.DataFrame({"variant": ["a", "a", "b"], "value": [2.0, 0.5, 0.9]})
    text = findings.dots(data)
    assert "a is above 1 at 1 of 2, at most 2.00; b is above 1 at 0 of 1, at most 0.90" in text


def test_a_spread_tells_its_farthest_point():
    text = findings.spread(pd.DataFrame({"ratio": [1.0, 1.02, 0.98, 1.5]}))
    assert "75% of 4 points" in text and "50% off" in text
