"""Points, shares and predictions in the words of the chapter."""

from __future__ import annotations

import re

from artifact.drawing.words import shape


def sparsity(density: float) -> str:
    return f"{100 * (1 - density):g}%"


def point_of(key: tuple) -> str:
    """A point, (label, m, n, k, density) or without the label: "4096³ and 75%"."""
    *_, m, n, k, density = key
    return f"{shape((m, n, k))} and {sparsity(density)}"


def typeset(prediction: str) -> str:
    """A prediction, which is plain ASCII in the source: "1.15x over v3" with its sign."""
    return re.sub(r"(?<=\d)x(?= |:|,|;|\.|\)|$)", "×", prediction).replace(" cubed", "³")
