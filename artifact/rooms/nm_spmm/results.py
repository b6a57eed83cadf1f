"""What follows from the room's records: against the authors' kernels, predictions and what came of them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pandas as pd

from artifact import registry
from artifact.drawing.words import shape
from artifact.measure import records
from artifact.rooms.nm_spmm.contenders import CONTENDERS, FOR_FEW, LADDER, TRIALS
from artifact.rooms.nm_spmm.points import POINT, by_density, has, mean, of, over
from artifact.rooms.nm_spmm.trial import BIG, Trial
from artifact.rooms.nm_spmm.words import typeset
from kernels import nm_spmm as room
from kernels.nm_spmm import analysis

AIM, AIM_SHARE = 1.10, 0.80  #: over the authors' kernels; of the FMA ceiling
CLASSES = ["small", "medium", "large"]


# ---------------------------------------------------------------- step by step


def rates(stepwise: pd.DataFrame) -> dict[str, pd.Series]:
    """Contender -> TFLOP/s of useful work by density, in the order of the experiment."""
    steps = [v for v in CONTENDERS["stepwise"] if has(stepwise, v)]
    return {v: by_density(of(stepwise, v, "tflops")) for v in steps}


def best_shares(stepwise: pd.DataFrame, fma: float, variants: Iterable[str]) -> dict[str, float]:
    """Contender -> the largest share of the FMA ceiling at any sparsity but 0; those that were measured."""
    known = {v: rate for v, rate in rates(stepwise).items() if v in set(variants)}
    return {v: (known[v] / fma)[[d for d in known[v].index if d < 1]].max() for v in variants if v in known}


def high(densities: pd.Index) -> list[float]:
    """Those of a sparsity that the paper calls high."""
    return [d for d in densities if 1 - d > analysis.HIGH]


def won_by_packing(packed: pd.DataFrame) -> pd.Series:
    """Speed of packing over staging all, by density."""
    return by_density(over(packed, "v3_packed", "v3_unpacked"))


def rule_is_right(won: pd.Series) -> list[float]:
    """The densities at which packing above 70% and not below is the faster choice."""
    return [d for d in won.index if (won[d] > 1) == (1 - d > analysis.HIGH)]


# ---------------------------------------------------------------- sizes, Llama


def sizes_shown(shapes: list[dict]) -> dict[str, tuple[int, int, int]]:
    """Label -> size, of those of Table II that are measured."""
    swept = {tuple(shape[x] for x in "mnk") for shape in shapes}
    return {label: size for label, (_, size) in analysis.TABLE_2.items() if size in swept}


def by_class(df: pd.DataFrame) -> pd.DataFrame:
    """µs by point, a column a contender."""
    return df.set_index([*POINT, "variant"])["median_us"].unstack("variant")


def published_sizes(stated: dict[str, pd.DataFrame]) -> pd.DataFrame:
    """Of the authors' series of Fig. 8 the fastest of the three classes at each point: its sizes and density,
    gpu, library, tflops of useful work, and per_cent, that over the peak that Table III gives their GPU."""
    own = stated["fig8"][stated["fig8"]["library"].isin(CLASSES)]
    point = [column for column in POINT if column != "label"]
    best = own.loc[own.groupby(point)["tflops"].idxmax()]
    tables = records.published(registry.published("nm_spmm", "tables"))
    peak = tables[tables["quantity"] == "peak_fp32"].set_index("of")["value"].astype(float)
    useful = best["tflops"] * best["density"]
    best = best.assign(tflops=useful, per_cent=100 * useful / best["gpu"].map(peak))
    return best[["gpu", "library", *point, "tflops", "per_cent"]].reset_index(drop=True)


def published_mean(fig9: pd.DataFrame, gpu: str, library: str, density: float) -> float:
    """Geometric mean of a library's published speedups over cuBLAS on the same GPU."""
    rate = fig9.set_index(["gpu", "library", "density", "point"])["tflops"].sort_index()
    dense = rate[gpu, "cublas"].droplevel("density")
    return mean((rate[gpu, library, density] / dense).dropna())


def of_ideal(df: pd.DataFrame) -> pd.Series:
    """Speedup of `auto` over cuBLAS, of what skipping the zeros alone would give, by point."""
    gained = over(df, "auto", "cublas")
    return gained * gained.index.get_level_values("density")


# ---------------------------------------------------------------- against the authors' kernels


@dataclass(frozen=True)
class Bars:
    """Our kernels against the authors' own, by (m, n, k, density), and against the FMA ceiling."""

    theirs: pd.Series  #: the authors' speedups over cuBLAS, by (library, m, n, k, density)
    ours: pd.Series  #: speedup of `auto` over cuBLAS, over theirs
    over_shapes: pd.Series  #: geometric means of it, by density
    at_step: pd.Series  #: of it at 4096³, by density
    missed: pd.Series  #: the means, and those at 4096³, that are below the aim
    below: pd.Series  #: the points that are
    reached: pd.Series  #: share of the FMA ceiling at 50 to 75% sparsity, 4096³ and above
    short: pd.Series  #: of `reached`, what is below the aim
    clock: pd.Series  #: MHz that the GPU had at these points
    at_clock: pd.Series  #: share of what the ceiling is at that clock
    throttle: pd.Series  #: the driver's word for it
    capped: bool  #: whether the clock was held down at all that are short
    ported: pd.Series  #: V3 as the authors ran it, the best of what was measured of it, over theirs
    searched: bool  #: whether that is the best of their tiles and numbers of shares, and not of ours alone
    nm_baseline: pd.Series  #: our kernel in the style of nmSPARSE over nmSPARSE's own
    nmsparse: pd.Series  #: nmSPARSE's kernel as we rebuilt it over nmSPARSE's own; empty where it was not measured
    searched_alone: pd.Series  #: V3 with the best of the authors' tiles and numbers of shares alone; empty likewise
    us: pd.DataFrame  #: µs by point and contender, of the two


def against(anchored: pd.DataFrame, theirs: pd.Series, variant: str, library: str = "nm_spmm") -> pd.Series:
    """Our speedup over cuBLAS, over that of the authors' kernels, by (m, n, k, density)."""
    mine = over(anchored, variant, "cublas").droplevel("label")
    return (mine / theirs[library]).dropna()


def bars(trial: Trial, anchored: pd.DataFrame) -> Bars:
    """anchored: records of the experiment "anchors"."""
    keys = ["library", "m", "n", "k", "density"]
    theirs = trial.stated["anchors"].set_index(keys)["speedup"]
    ours = against(anchored, theirs, "auto")
    over_shapes = ours.groupby(level="density").apply(mean).sort_index(ascending=False)
    at_step = ours[[key[:3] == (BIG, BIG, BIG) for key in ours.index]].droplevel(["m", "n", "k"])
    both = pd.concat({f"{BIG}³": at_step, "all shapes": over_shapes})
    large = anchored[(anchored["variant"] == "auto") & anchored["density"].between(0.25, 0.5)]
    large = large[(large[["m", "n", "k"]] >= BIG).all(axis=1)]
    reached, clock, throttle = (
        of(large, "auto", column).droplevel("label") for column in ("tflops", "sm_mhz", "throttle")
    )
    reached = reached / trial.fma
    short, most = reached[reached < AIM_SHARE], trial.run.machine["sm_mhz_max"]
    named = [v for v in ("v3", "v3_split_k", "v3_searched") if has(anchored, v)]
    like = [against(anchored, theirs, v) for v in named]
    return Bars(
        theirs,
        ours,
        over_shapes,
        at_step,
        both[both < AIM].sort_values(),
        ours[ours < AIM].sort_values(),
        reached,
        short,
        clock,
        reached * most / clock,
        throttle,
        bool(len(short) and (clock[short.index] < most).all()),
        pd.concat(like, axis=1).max(axis=1) if like else pd.Series(dtype=float),
        "v3_searched" in named,
        against(anchored, theirs, "nm_baseline", "nmsparse"),
        against(anchored, theirs, "nmsparse_vw32", "nmsparse")
        if has(anchored, "nmsparse_vw32")
        else pd.Series(dtype=float),
        against(anchored, theirs, "v3_searched") if "v3_searched" in named else pd.Series(dtype=float),
        anchored[anchored["label"] == ""].pivot_table(
            index=["m", "n", "k", "density"], columns="variant", values="median_us"
        ),
    )


def rebuilt(beside: pd.DataFrame) -> dict[str, pd.Series]:
    """Our rebuilding -> its speed over the authors' own kernel in the same run, by (m, n, k, density); beside: the
    numbers of others/<gpu>/rebuilt.csv."""
    at = ["m", "n", "k", "density"]
    return {v: own.set_index(at)["speedup"] for v, own in beside.groupby("library", sort=False)}


def beside_authors(anchored: pd.DataFrame) -> list[str]:
    """Who is drawn beside the authors' kernels: our best, and what we rebuilt of both, as they run it where the records
    have that."""
    pairs = (("v3_searched", "v3"), ("nmsparse_vw32", "nm_baseline"))
    return ["auto", *(first if has(anchored, first) else other for first, other in pairs)]


# ---------------------------------------------------------------- what was predicted, and what came


def predicted(variant: str) -> str:
    """What a rung should gain, as it was written down before it was measured."""
    return typeset(room.VARIANTS[variant].prediction)


def before(variant: str) -> str:
    """What a rung is compared with: what its prediction names, else the rung before it; `auto` with V3."""
    if (named := re.search(r"over (\w+)", predicted(variant))) and named[1] in room.VARIANTS:
        return named[1]
    return (dict(zip(LADDER, ["v3", *LADDER], strict=False)) | {"auto": "v3"})[variant]


def outcome(rungs: list[str], stepwise: pd.DataFrame, anchored: pd.DataFrame) -> pd.DataFrame:
    """Rungs beside their predictions: rung, prediction, predicted (a factor, NaN without one), came, from, to, at,
    over. Those that the records lack are left out."""
    rows = []
    for variant in (*rungs, "auto"):
        frame = anchored if variant in FOR_FEW else stepwise
        if not {variant, before(variant)} <= set(frame["variant"]):
            continue
        came = over(frame, variant, before(variant))
        # A rung for few tiles is judged where there are fewest.
        least = min(came.index, key=lambda key: key[1] * key[2] * key[3])[:4]
        number = re.search(r"([\d.]+)×", predicted(variant))
        rows.append(
            {"rung": variant, "prediction": predicted(variant)}
            | {"predicted": float(number[1]) if number else np.nan}
            | {"came": mean(came[[key[:4] == least for key in came.index]])}
            | {"from": came.min(), "to": came.max(), "at": shape(least[1:])}
            | {"over": before(variant)}
        )
    return pd.DataFrame(rows, columns=["rung", "prediction", "predicted", "came", "from", "to", "at", "over"])


def trials(tried: pd.DataFrame) -> pd.DataFrame:
    """What was tried and not kept: trial, idea, expected (words), factor (the number in them), came (by density),
    over the rung that the expectation names. Those without records are left out."""
    rows = []
    for name, (_, idea, expected) in TRIALS.items():
        base = re.search(r"over (\w+)", expected)[1]
        if {name, base} <= set(tried["variant"]):
            number = float(re.match(r"[\d.]+", expected)[0])
            came = by_density(over(tried, name, base))
            rows.append((name, idea, typeset(expected), number, came))
    return pd.DataFrame(rows, columns=["trial", "idea", "expected", "factor", "came"])
