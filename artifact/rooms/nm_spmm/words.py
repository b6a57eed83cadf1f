"""Points, shares and predictions in the words of the chapter."""

from __future__ import annotations

import re
from collections.abc import Iterable

import pandas as pd

from artifact.drawing.words import listed, shape


def sparsity(density: float) -> str:
    return f"{100 * (1 - density):g}%"


def point_of(key: tuple) -> str:
    """A point, (label, m, n, k, density) or without the label: "4096³ and 75%"."""
    *_, m, n, k, density = key
    return f"{shape((m, n, k))} and {sparsity(density)}"


def named(variants: Iterable[str]) -> str:
    return listed(f"`{v}`" for v in variants)


def at_each(series: pd.Series, form: str = "{:.2f}×") -> str:
    """A series by density: "1.20× at 50% and 1.10× at 75%"."""
    return listed(f"{form.format(v)} at {sparsity(d)}" for d, v in series.items())


def from_sparsity(value: float) -> str:
    """Where memory becomes the limit; 1 is never, 0 always."""
    return "never" if value >= 1 else "always" if value <= 0 else f"from {value:.0%} sparsity on"


def typeset(prediction: str) -> str:
    """A prediction, which is plain ASCII in the source: "1.15x over v3" with its sign."""
    return re.sub(r"(?<=\d)x(?= |:|,|;|\.|\)|$)", "×", prediction).replace(" cubed", "³")
