"""The room's figure: Fig. 1 of its source."""

import pandas as pd
from matplotlib import pyplot as plt

from artifact.drawing import plot, style


def rates(df: pd.DataFrame, order: list[str]):
    """Useful TFLOP/s over the columns of B, a line for each contender. (fig, data)"""
    fig, ax = plt.subplots(figsize=(style.WIDTH, 3))
    handles = {}
    for variant, rows in df.groupby("variant", sort=False):
        handles[style.name(variant)] = plot.line(ax, rows["n"], rows["tflops"], variant, order)
    plot.sizes(ax, df["n"].tolist())
    ax.set(xlabel="N", ylabel="useful TFLOP/s")
    plot.legend(fig, handles)
    return fig, df[["variant", "m", "n", "k", "tflops"]]
