"""Alternative texts of shared charts: they say what the data behind a figure holds."""

import pandas as pd

from artifact.book import figures

SPEEDS = pd.DataFrame(
    {
        "source": ["measured"] * 6 + ["stated"],
        "variant": ["cublas", "cublas", "cublas", "auto", "auto", "auto", "auto"],
        "density": [0.5, 0.25, 0.125, 0.5, 0.25, 0.125, 0.25],
        "speedup": [1.0, 1.0, 1.0, 1.0, 8.0, 2.0, 9000.0],
    }
)


MEANS = {"alt": "Speed", "kind": "dots", "y": "variant", "x": "speedup"}


def test_means_are_told_with_their_range_and_apart_from_what_is_stated():
    text = figures.alt(MEANS, SPEEDS)
    assert text.replace("\u202f", " ") == "Speed: cuBLAS SGEMM 1 and auto 2.52 (1 to 8). stated: auto 9 000."
    text = figures.alt(MEANS | {"at": "density"}, SPEEDS[SPEEDS["variant"] == "auto"])
    assert text.startswith("Speed: 50% kept: auto 1; 25% kept: auto 8; 12.5% kept: auto 2.")
    assert "auto -1" in figures.alt(MEANS, SPEEDS.assign(speedup=-1.0))
    assert figures.alt(MEANS, SPEEDS.assign(speedup=float("nan"))) == "Speed."


def test_ends_tell_where_a_line_begins_peaks_and_ends():
    text = figures.alt({"alt": "Speed", "kind": "lines", "x": "density", "y": "speedup"}, SPEEDS)
    assert "auto from 2 at 12.5% kept over 8 at 25% kept to 1 at 50% kept" in text
    assert "cuBLAS SGEMM from 1 at 12.5% kept to 1 at 50% kept and" in text
    assert text.replace("\u202f", " ").endswith("stated: auto 9 000 at 25% kept.")


def test_sums():
    text = figures.alt(MEANS | {"how": "each"}, SPEEDS[SPEEDS["source"] == "measured"])
    assert text == "Speed: cuBLAS SGEMM 3 and auto 11."
