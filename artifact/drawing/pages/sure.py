"""How sure the ledger is, as `artifact.verdicts.uncertainty` wrote it beside the records."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from artifact.book import figures, text
from artifact.drawing import plot
from artifact.verdicts import judge, load, uncertainty

NEAR = 1.25  #: factor within which what was measured counts as near what is stated
#: A forest plot, as `figures` takes it: it is drawn once for each source.
FOREST = {
    **{"kind": "dots", "x": "ratio", "y": "claim", "hue": "verdict", "lanes": False, "scale": "fine", "reference": 1},
    **{"interval": ["low", "high"], "height": 0.165, "legend": 3, "labels": {"ratio": "measured over stated"}},
}


def read(folder: Path | None, name: str) -> pd.DataFrame | None:
    """Return a table in a folder of records; None where there is none."""
    return pd.read_csv(folder / name) if folder and (folder / name).is_file() else None


def tolerances(folder: Path | None) -> pd.DataFrame | None:
    """Return how many verdicts change where all tolerances are scaled by a factor, and of which claims, folded."""
    df = read(folder, uncertainty.SCALED)
    if df is None:
        return None
    return (
        df.groupby(["factor", "way"], sort=False)["claim"]
        .agg(lambda ids: text.part("links", list(ids), few=0))
        .unstack()
        .reset_index()
        .assign(changed=df.groupby("factor").size().to_numpy())
    )


def ratios(
    folders: Mapping[str, Path], judged: Mapping[str, pd.DataFrame], known: Sequence[load.Claim]
) -> pd.DataFrame | None:
    """Return what was measured over what is stated, and its interval, of each claim that states a number.

    By the records of the GPU that decides, those of a source together, in the order of the ratio. folders, judged: name
    of a GPU -> its records, and its verdicts.
    """
    tables = {gpu: read(folder, judge.STABILITY) for gpu, folder in folders.items()}
    every = [df.assign(gpu=gpu) for gpu, df in tables.items() if df is not None]
    if not every:
        return None
    decides = {system: judge.decider(judged, system) for system in {c.room for c in known}}
    df = (
        pd.DataFrame(
            [(c.id, c.source, uncertainty.stated(c), decides[c.room]) for c in known],
            columns=["claim", "source", "stated", "gpu"],
        )
        .dropna()
        .merge(pd.concat(every), on=["claim", "gpu"])
    )
    ends = df[["value", "low", "high"]].div(df["stated"], axis=0).rename(columns={"value": "ratio"})
    return (
        df[["claim", "source", "gpu", "verdict", "stated"]]
        .join(ends)
        .query("low > 0")
        .sort_values("ratio")
        .sort_values("source", kind="stable")
    )


def forests(df: pd.DataFrame | None) -> Iterator[tuple[str, tuple[Any, pd.DataFrame], dict[str, str]]]:
    """Yield name, figure with its data, and words of a forest plot of the `ratios` of each source, on one axis."""
    if df is None:
        return
    for source, own in df.groupby("source"):
        fig = figures.draw(FOREST, own)
        fig.axes[0].set_xlim(df["low"].min() / 1.1, df["high"].max() * 1.1)
        plot.log(fig.axes[0].xaxis)
        said = f"of {len(own)} claims of {source} that state a number"
        ends = " to ".join(f"{row.ratio:.2f} ({row.claim})" for row in own.iloc[[0, -1]].itertuples())
        words = {
            "fold": f"{source}, claim by claim",
            "caption": f"Measured over stated, {said}; lines hold 95 of 100 resamples.",
            "alt": f"Forest plot {said}: {own['ratio'].between(1 / NEAR, NEAR).sum()} within a quarter of it, from {ends}.",
        }
        yield "forest-" + own["claim"].iloc[0], (fig, own), words
