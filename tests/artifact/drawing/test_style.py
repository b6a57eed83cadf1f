"""One palette that everyone can tell apart, in the light and in the dark."""

import itertools

import numpy as np
import pytest

from artifact.drawing import style
from artifact.paths import ROOT

WHITE, NEAR_BLACK = "#FFFFFF", "#121212"
#: The book's background in dark mode, in its style sheet.
DARK_PAGE = "#14171B"
#: What the style sheet does to figures there: CSS's `invert(1) hue-rotate(180deg)`, as its specification computes it.
FILTER = "filter: invert(1) hue-rotate(180deg)"
ROTATED = np.array([[-0.574, 1.430, 0.144], [0.426, 0.430, 0.144], [0.426, 1.430, -0.856]])

# Machado, Oliveira and Fernandes 2009: how linear RGB looks to someone without one kind of cone.
SIGHT = {
    "full": np.eye(3),
    "protanopia": np.array(
        [
            [0.152286, 1.052583, -0.204868],
            [0.114503, 0.786281, 0.099216],
            [-0.003882, -0.048116, 1.051998],
        ]
    ),
    "deuteranopia": np.array(
        [
            [0.367322, 0.860646, -0.227968],
            [0.280085, 0.672501, 0.047413],
            [-0.011820, 0.042940, 0.968881],
        ]
    ),
    "tritanopia": np.array(
        [
            [1.255528, -0.076749, -0.178779],
            [-0.078411, 0.930809, 0.147602],
            [0.004733, 0.691367, 0.303900],
        ]
    ),
}


def linear(colour: str) -> np.ndarray:
    c = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    return np.where(c <= 0.04045, c / 12.92, ((c + 0.055) / 1.055) ** 2.4)


def contrast(a: str, b: str) -> float:
    """WCAG 2's contrast ratio."""
    light = sorted(float(linear(c) @ (0.2126, 0.7152, 0.0722)) for c in (a, b))
    return (light[1] + 0.05) / (light[0] + 0.05)


def lab(rgb: np.ndarray) -> np.ndarray:
    xyz = (
        np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
        @ np.clip(rgb, 0, 1)
        / (0.9505, 1, 1.089)
    )
    f = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


# ---------------------------------------------------------------- palette


@pytest.mark.parametrize("role", style.PALETTE)
@pytest.mark.parametrize("background", [WHITE, NEAR_BLACK])
def test_every_colour_is_seen_on_white_and_on_near_black(role, background):
    assert contrast(style.PALETTE[role], background) >= 3


def in_the_dark(colour: str) -> str:
    c = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    return "#" + "".join(f"{round(255 * v):02x}" for v in np.clip(ROTATED @ (1 - c), 0, 1))


@pytest.mark.parametrize("sight", SIGHT)
@pytest.mark.parametrize("on_a_page", [str, in_the_dark])
def test_the_main_roles_are_told_apart_by_everyone(sight, on_a_page):
    for a, b in itertools.combinations(
        [on_a_page(style.PALETTE[r]) for r in ("published", "baseline", "best", "bound", "claim")], 2
    ):
        apart = lab(SIGHT[sight] @ linear(a)) - lab(SIGHT[sight] @ linear(b))
        assert np.linalg.norm(apart) > 12, (a, b)


def test_no_two_contenders_look_the_same():
    ladder = [f"v{i}" for i in range(11)]  # nine rungs between the published kernel and the last
    ours = [style.look(v, ladder) for v in ladder]
    for what in ("color", "marker"):
        assert len({look[what] for look in ours}) == 11
    assert ours[0]["color"] == style.PUBLISHED and ours[-1]["color"] == style.BEST
    # What uses tensor cores, or multiplies blocks, is never drawn beside cuBLAS in float32 or the CPU.
    tensor_cores = ("cusparselt", "cublaslt", "cublas_tf32", "cublas_bf16")
    blocks = ("cusparse_bell", "cusparse_bsr", "triton_bsr", "cublas_dense")
    csr = [v for v in style.NAMES if v.startswith("cusparse_") and not v.startswith(blocks)]
    drawn = [
        [v for v in style.NAMES if v.startswith(tensor_cores)],
        [v for v in style.NAMES if v.startswith(blocks)] + csr,
        [v for v in style.NAMES if not v.startswith(tensor_cores + blocks)],
    ]
    assert set().union(*drawn) == set(style.NAMES) and len(csr) == 5
    for names in drawn:
        theirs = [style.look(v, ladder) for v in names]
        assert len({look["marker"] for look in [*ours, *theirs]}) == 11 + len(theirs)
        assert {look["color"] for look in theirs} == {style.BASELINE}


def test_colours_of_dark_pages_are_seen_there_and_told_apart():
    sheet = (ROOT / "book" / "_static" / "custom.css").read_text().lower()
    assert f"--pst-color-background: {DARK_PAGE.lower()}" in sheet and FILTER in sheet
    dark = {role: in_the_dark(colour) for role, colour in style.PALETTE.items()}
    for role, colour in dark.items():
        assert contrast(colour, DARK_PAGE) >= 4, role
    assert contrast(in_the_dark(style.INK), DARK_PAGE) > 12
    for a, b in itertools.combinations(dark.values(), 2):
        assert np.linalg.norm(lab(linear(a)) - lab(linear(b))) > 15, (a, b)
