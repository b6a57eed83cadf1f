"""Beyond the paper: few tiles, the roofline with counters, patterns, any size, cuSPARSE, tensor cores."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import pandas as pd

from artifact import baselines
from artifact.drawing.words import listed, shape
from artifact.rooms.nm_spmm import model, results
from artifact.rooms.nm_spmm.contenders import DTYPES, LADDER
from artifact.rooms.nm_spmm.figures import pattern
from artifact.rooms.nm_spmm.points import by_density, has, mean, of, over
from artifact.rooms.nm_spmm.tables import BLOCK, best_csr
from artifact.rooms.nm_spmm.trial import GROUP, Trial
from artifact.rooms.nm_spmm.words import sparsity
from kernels.nm_spmm import analysis

#: What a line of the tensor cores' figure is of.
LINE = ["variant", "vector", "m", "n", "k"]


def few_tiles(anchored: pd.DataFrame, sms: int) -> str:
    """What cutting K gains over V3 where there are fewer tiles than SMs; nothing where no point has."""
    keys = of(anchored, "auto").index
    few = [key for key in keys if BLOCK.blocks(key[1], key[2]) < sms]
    cuts = [v for v in ("v3_split_k", *LADDER, "auto") if has(anchored, v)]
    gains = listed(f"`{v}` {mean(over(anchored, v, 'v3').loc[few]):.2f}×" for v in cuts)
    return f"Over V3, geometric means of these: {gains}." if few else ""


def roofline(trial: Trial, rows: pd.DataFrame, eq3: Mapping[tuple[str, float], float]) -> str:
    """What Eq. 3 would allow V3 at 87.5% sparsity, and what it does; nothing where that was not profiled.

    rows: the data behind the roofline. eq3: FLOP per byte by Eq. 3.
    """
    v3 = rows[(rows["source"] == "measured") & (rows["variant"] == "v3") & (rows["density"] == 0.125)]
    if v3.empty:
        return ""
    intensity, v3 = eq3["v3", 0.125], v3.iloc[0]
    dram, l2 = (analysis.attainable(d, intensity) for d in (trial.here, model.at_l2(trial)))
    return (
        "Share of the FMA ceiling while being profiled, and what the paper states for its A100. Where Eq. 3 puts V3 at "
        f"{sparsity(0.125)}, {intensity:.1f} FLOP/B, DRAM alone would allow {dram:.0f} TFLOP/s and L2 {l2:.0f}; it "
        f"sustains {v3['tflops']:.0f}. DRAM sees only {intensity / v3['dram']:.0%} of Eq. 3's bytes, so it is not the limit."
    )


def spread(lengths: pd.DataFrame) -> dict[str, float]:
    """`auto`, V3 -> what the slowest pattern of a sparsity has of the fastest one's rate, the least over sparsities."""
    rates = {v: of(lengths, v, "tflops").groupby(level="density") for v in ("auto", "v3")}
    return {v: rate.agg(lambda x: x.min() / x.max()).min() for v, rate in rates.items()}


def vectors(lengths: pd.DataFrame) -> str:
    """What a longer vector gains, at each sparsity. lengths: records of one size and many patterns."""
    auto, v3 = (of(lengths, v, "tflops") for v in ("auto", "v3"))
    lines = []
    for d in by_density(auto).index:
        at = {pattern(key[0])[1]: key for key in auto.index if key[4] == d and pattern(key[0])[0] == GROUP}
        if len(at) > 1:
            (short, first), (long, last) = min(at.items()), max(at.items())
            lines.append(
                f"At {sparsity(d)} and windows of {GROUP}, from L = {short} to {long}: `auto` {auto[first]:.1f} to "
                f"{auto[last]:.1f} TFLOP/s, V3 {v3[first]:.1f} to {v3[last]:.1f}."
            )
    least = spread(lengths)
    return (
        " ".join(lines) + " Over all patterns of one sparsity the slowest has "
        f"{least['auto']:.0%} of the fastest with `auto`, {least['v3']:.0%} with V3. Short vectors cost twice: a "
        "warp's lanes need several rows of A at once, and a block's union of choices approaches all of them."
    )


def ragged(df: pd.DataFrame) -> str:
    """What sizes that no tile divides cost."""
    ideal = results.of_ideal(df)
    four = ideal[[key[1] % 4 == 0 for key in ideal.index]]
    odd = ideal.drop(four.index)
    said = (
        "Sizes that no tile divides. A column of A is read 16 bytes at a time where it begins at a multiple of 16 "
        "bytes; where m is no multiple of 4 a first kernel copies A to padded columns, and its time counts."
    )
    if len(odd):
        said += f" `auto` gets {mean(odd):.0%} of the ideal there"
        said += f", {mean(four):.0%} where m is a multiple of 4." if len(four) else "."
    return said


def largest_error(frames: Iterable[pd.DataFrame]) -> str:
    """The FP32 kernel with the largest relative error of several records."""
    rows = pd.concat(frames, ignore_index=True)
    rows = rows[~rows["variant"].str.startswith(baselines.PREFIXES)]
    worst = rows.loc[rows["rel_err"].idxmax()]
    return (
        f"The largest relative error of any FP32 kernel of this page is {worst['rel_err']:.1e} "
        f"(`{worst['variant']}`, {shape((worst['m'], worst['n'], worst['k']))}), against a float64 product."
    )


def unstructured(loose: pd.DataFrame) -> str:
    """cuSPARSE against dense cuBLAS and `auto`."""
    csr, dense, auto = best_csr(loose), of(loose, "cublas"), of(loose, "auto")
    to_dense = pd.Series({key: dense[key] / csr[key] for key in auto.index})
    to_auto = pd.Series({key: csr[key] / auto[key] for key in auto.index})
    return (
        f"cuSPARSE is at {mean(to_dense):.2f}× dense cuBLAS (geometric mean), {to_dense.max():.2f}× at its best; "
        f"`auto` is {mean(to_auto):.0f}× as fast. These sparsities are far too low for CSR on its own terms: "
        "[casperSPARSE](casper_sparse.ipynb) begins where 95% is zero."
    )


def crossings(compared: pd.DataFrame) -> str:
    """From which sparsity on each line wins. compared: the data behind the tensor cores' figure."""
    lines = []
    for (variant, vector, m, n, k), rows in compared.groupby(LINE, sort=False):
        where, most = rows["crossing"].iloc[0], rows.loc[rows["speedup"].idxmax()]
        wins = f"wins from {where:.0%} sparsity on" if where > 0 else "wins at every sparsity"
        lines.append(
            f"- `{variant}`, vectors of {vector}, {shape((m, n, k))}: "
            f"{'never wins' if np.isnan(where) else wins}; {most['speedup']:.2f}× at {sparsity(most['density'])}."
        )
    return "\n".join(lines)


def tensor_rates(tensor: pd.DataFrame, stepwise: pd.DataFrame) -> str:
    """What the kernels on tensor cores reach, beside the FP32 ones of the run of Fig. 7."""
    tops = {names[0]: tensor.loc[tensor["variant"] == names[0], "tflops"] for names in DTYPES.values()}
    said = listed(
        f"up to {rate.max():.0f} TFLOP/s of useful work for `{name}`" for name, rate in tops.items() if len(rate)
    )
    most = max(rate.max() for rate in results.rates(stepwise).values())
    return f"That is {said}; the FP32 kernels of this page reach {most:.0f}."
