"""Tables of the prefill from its records."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from artifact.drawing import plot
from artifact.drawing.prose import captioned
from artifact.rooms.async_sparse.prefill.configurations import CONFIGURATIONS, DENSE, LAYERS


@captioned(
    lambda df, density: (
        f"The whole model: milliseconds when dense, and how many times as fast it is with {density:.0%} of the blocks."
    )
)
def whole(df: pd.DataFrame | None, density: float) -> pd.DataFrame | None:
    """Times of the dense model, and what each configuration is over it, at one share of blocks."""
    if df is None or not (df["density"] == density).any():
        return None
    ms = _by_length(df, density) / 1e3
    made = pd.DataFrame({"tokens": [plot.number(n) for n in ms.index]})
    made["dense [ms]"] = [f"{t:,.1f}" for t in ms[DENSE]]
    for name in (c for c in CONFIGURATIONS if c in ms and c != DENSE):
        made[CONFIGURATIONS[name].called] = _times(ms[DENSE] / ms[name])
    return made


@captioned(
    lambda of, density: (
        f"The whole model with {density:.0%} of the blocks: how many times as fast as the dense one, on "
        f"{' / '.join(of)}."
    )
)
def beside(of: Mapping[str, pd.DataFrame], density: float) -> pd.DataFrame | None:
    """The same of several GPUs, of the lengths that all of them measured; of: name of a GPU -> record of the whole
    model. None for fewer than two."""
    each = {gpu: _by_length(df, density) for gpu, df in of.items()}
    if len(each) < 2:
        return None
    lengths = sorted(set.intersection(*(set(ms.index) for ms in each.values())))
    made = pd.DataFrame({"tokens": [plot.number(n) for n in lengths]})
    for name in (c for c in CONFIGURATIONS if all({c, DENSE} <= set(ms) for ms in each.values())):
        columns = [
            [f"{t / 1e3:,.1f}" for t in ms.loc[lengths, DENSE]]
            if name == DENSE
            else [f"{x:.2f}" for x in (ms[DENSE] / ms[name]).loc[lengths]]
            for ms in each.values()
        ]
        called = "dense [ms]" if name == DENSE else CONFIGURATIONS[name].called
        unit = "" if name == DENSE else "×"
        made[called] = [" / ".join(row) + unit for row in zip(*columns, strict=True)]
    return made


@captioned(
    lambda df, density: (
        f"The FFN alone: milliseconds when dense, and how many times as fast it is with {density:.0%} of the blocks."
    )
)
def layer(df: pd.DataFrame | None, density: float) -> pd.DataFrame | None:
    """The same of the FFN alone."""
    if df is None or not (df["density"] == density).any():
        return None
    ms = _by_length(df, density) / 1e3
    made = pd.DataFrame({"tokens": [plot.number(n) for n in ms.index]})
    made["dense [ms]"] = [f"{t:.2f}" for t in ms["ffn_dense"]]
    for name in (v for v in LAYERS if v in ms and v != "ffn_dense"):
        made[LAYERS[name]] = _times(ms["ffn_dense"] / ms[name])
    return made


@captioned("What attention was: SDPA's backend, and how much the patterns kept.")
def chosen(df: pd.DataFrame | None) -> pd.DataFrame | None:
    """What attention was: SDPA's backend, how much of the causal blocks the patterns kept."""
    if df is None:
        return None
    df = df.drop_duplicates("n", keep="last").sort_values("n")
    return pd.DataFrame(
        {
            "tokens": [plot.number(n) for n in df["n"]],
            "SDPA's backend": df["backend"].str.removesuffix("_ATTENTION").str.lower().to_numpy(),
            "causal blocks kept": [f"{share:.0%}" for share in df["kept_share"]],
            "heads with vertical-slash": [f"{share:.0%}" for share in df["vertical_share"]],
        }
    )


def _by_length(df: pd.DataFrame, density: float) -> pd.DataFrame:
    own = df[df["density"] == density]
    return own.pivot_table(index="n", columns="variant", values="median_us", aggfunc="last")


def _times(over: pd.Series) -> list[str]:
    return ["" if pd.isna(x) else f"{x:.2f}×" for x in over]
