"""What a cell of a chapter puts on its page: a sentence, a table, a figure, where the numbers come from."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pandas as pd
from IPython.display import HTML, Markdown, display
from pandas.io.formats.style import Styler

from artifact.drawing import prose, style
from artifact.measure.run import Run

#: The GPU that the prose of the chapters was written for.
WRITTEN_FOR = "nvidia-h200"
ELSEWHERE = (
    "*The numbers on this page are of the GPU named above. The explanations between them were written for an "
    "NVIDIA H200, and have to be read against these numbers.*"
)
NO_COUNTERS = "Hardware counters of this GPU were not recorded; `make profile` writes them."


def say(*texts: str) -> None:
    """Markdown, each text by itself; nothing where there is nothing to say."""
    for text in filter(None, texts):
        display(Markdown(text))


def table(df: pd.DataFrame | Styler | None, sentences: bool = False) -> None:
    """A table whose cells may hold HTML, or one that is styled already; nothing for None. sentences: columns
    of them, which may be wide."""
    if isinstance(df, pd.DataFrame):
        display(HTML(prose.table(df, prose=sentences)))
    elif df is not None:
        display(df)


def banner(run: Run) -> None:
    """Where a page's numbers come from, and that its prose was written for another GPU, if it was."""
    say(run.banner())
    if run.gpu != WRITTEN_FOR:
        say(ELSEWHERE)


def figures(room: str) -> Callable[..., None]:
    """`show(drawn, name, alt=, caption=)` of a room's chapter, in the book's style. drawn: (figure, the data
    behind it), or None, which shows nothing."""
    style.apply()
    return partial(_show, room)


def _show(room: str, drawn: tuple | None, name: str, *, alt: str, caption: str) -> None:
    if drawn is not None:
        fig, data = drawn
        display(style.show(fig, room, name, data, alt=alt, caption=caption))
