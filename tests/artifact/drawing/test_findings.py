"""Alternative texts of shared charts: they say what the data behind a figure holds."""

import pandas as pd

from artifact.drawing import findings

SPEEDS = pd.DataFrame(
    {
        "source": ["measured"] * 6 + ["stated"],
        "variant": ["cublas", "cublas", "cublas", "auto", "auto", "auto", "auto"],
        "density": [0.5, 0.25, 0.125, 0.5, 0.25, 0.125, 0.25],
        "speedup": [1.0, 1.0, 1.0, 1.0, 8.0, 2.0, 9000.0],
    }
)


def test_means_are_told_with_their_range_and_apart_from_what_is_stated():
    text = findings.means("Speed", "speedup")(SPEEDS)
    assert text.replace("\u202f", " ") == "Speed: cuBLAS SGEMM 1 and auto 2.52 (1 to 8). stated: auto 9 000."
    text = findings.means("Speed", "speedup", at="density")(SPEEDS[SPEEDS["variant"] == "auto"])
    assert text.startswith("Speed: 50% kept: auto 1; 25% kept: auto 8; 12.5% kept: auto 2.")
    negative = SPEEDS.assign(speedup=-1.0)
    assert "auto -1" in findings.means("Share", "speedup")(negative)
    assert findings.means("Speed", "speedup")(SPEEDS.assign(speedup=float("nan"))) == "Speed."


def test_ends_tell_where_a_line_begins_peaks_and_ends():
    text = findings.ends("Speed", "speedup", "density")(SPEEDS)
    assert "auto from 2 at 12.5% kept over 8 at 25% kept to 1 at 50% kept" in text
    assert "cuBLAS SGEMM from 1 at 12.5% kept to 1 at 50% kept and" in text
    assert text.replace("\u202f", " ").endswith("stated: auto 9 000 at 25% kept.")


def test_each():
    text = findings.each("Ends", "speedup", "variant")(SPEEDS[SPEEDS["source"] == "measured"])
    assert text == "Ends: cuBLAS SGEMM 1 and auto 8."
