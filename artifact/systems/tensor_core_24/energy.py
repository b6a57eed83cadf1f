"""What a multiplication costs in energy, and the clock that power leaves: from counters and from NVML.

Two sources that do not say the same thing. NVML's power is of a point, not of a contender: the board's, averaged
by the driver over a second (NVML, nvmlDeviceGetPowerUsage, from Ampere on), while contenders take turns of
milliseconds. `joules` therefore gives an interval, and only where that average has come near the limit. Nsight
Compute counts clocks and nanoseconds of a single launch, so its clock is the one inside the kernel. The limiter
is quick enough to set that clock anew for each launch, and so it tells contenders apart: `fit`.

The model. Dynamic power is energy for each clock, times the square of the voltage, times the clock. Held at the
limit, with the square of the voltage taken as proportional to the clock,

    clock^2  =  clocks / (w0 clocks + w1 tensor + w2 slices + w3 port + w4 dram)

where `tensor` are clocks that the tensor cores work, `slices` the bytes that L2's slices handle, `port` those that
arrive at the SMs, `dram` those read and written. Five weights, none negative, for all kernels. The time of a
launch is its clocks over that clock. For a kernel that does not exist, `Wgmma.predict` gives the clocks.

Energies of the model are relative: nobody measured what the board draws in the milliseconds of a profiled launch.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pandas as pd

from artifact.book.study import where
from artifact.measure import bench
from artifact.systems.tensor_core_24.experiments import Chapter, launches, together
from kernels import tensor_core_24 as system
from kernels.tensor_core_24 import family

TERMS = ("clocks", "tensor", "slices", "port", "dram")
#: The order in which a figure stacks them.
STACKED = ["tensor", "slices", "port", "dram", "clocks"]
#: Whose counters are shown in FP8.
EIGHT = ("fp8_packed", "fp8_direct", "fp8_pairs", "fp8_auto", "cusparselt", "cublaslt_eight")
JUDGED = ["size", "variant", "us", "predicted_us", "error"]
#: NVML's average counts as near the limit from this share of it on.
NEAR_LIMIT = 0.9
#: The error that the model is held against.
BAR = 0.05
#: The rungs that hide what they wait for, so that what bounds a step bounds the kernel.
STREAMING = (
    "wgmma_bands",
    "wgmma_keep",
    "wgmma_multicast",
    "wgmma_tall",
    "wgmma_packed",
    "wgmma_lean",
    "wgmma_lean_tall",
    "wgmma_rounds",
    "wgmma_three",
    "wgmma_pieces",
)
#: The rungs of three warpgroups of 64 x 256, and the plainest; the models are asked about it without having seen one.
OF_THREE = tuple(name for name, (config, *_) in system.RUNGS.items() if config.groups == 3)
LARGER = "wgmma_three"
THREE_GROUPS = system.RUNGS[LARGER][0]
#: Rungs that a prediction for `THREE_GROUPS` is anchored at: what bounds their steps, in words.
ANCHORS = {"wgmma_keep": "the port from L2", "wgmma_tall": "shared memory"}


def joules(df: pd.DataFrame, limit: float) -> pd.DataFrame:
    """Return records at the points that tell the energy of a launch, with low_j, high_j, low_pj and high_pj.

    low_j is NVML's average times the median; that average lags behind a load that grows, so it is the lower end.
    high_j is the power limit, W, times the median. Both take the board's power for the contender's, though the
    contenders of a point take turns. pj: picojoules for each dense-equivalent FLOP. Points where the average is below
    `NEAR_LIMIT` of the limit, as all short ones are, say nothing and are left out.
    """
    rows = df[df["power_w"] >= NEAR_LIMIT * limit].reset_index(drop=True)
    seconds, flop = rows["median_us"] * 1e-6, rows["useful_flops"]
    low, high = rows["power_w"] * seconds, limit * seconds
    return rows.assign(low_j=low, high_j=high, low_pj=1e12 * low / flop, high_pj=1e12 * high / flop)


def asked(df: pd.DataFrame) -> pd.DataFrame:
    """Return how long each point of records lasted and how often NVML was asked meanwhile.

    Experiment, m, n, k, ms (of the launches that were kept, of all contenders; flushes and warm-up are not recorded),
    times.
    """
    return (
        df.assign(ms=df["median_us"] * df["samples"] / 1e3)
        .groupby(["experiment", "m", "n", "k"], sort=False, as_index=False)["ms"]
        .sum()
        .assign(times=lambda found: 1 + (found["ms"] / (1e3 * bench.SAMPLE_EVERY_S)).astype(int))
    )


def activity(launches: pd.DataFrame) -> pd.DataFrame:
    """Return `experiments.launches` with what `TERMS` name.

    Millions of clocks in which the tensor cores work, which are `busy` per cent of all, and GB from and to DRAM.
    """
    return launches.assign(
        busy=launches["tensor"],
        tensor=launches["clocks"] * launches["tensor"] / 100,
        dram=launches["dram"] + launches["written"],
    )


# ---------------------------------------------------------------- the model


def fit(rows: pd.DataFrame) -> pd.Series:
    """Return the weights of `TERMS`, for each million clocks or GB, none negative.

    Their 1 / clock^2 is nearest to what was counted.
    """
    from scipy.optimize import nnls

    weights, _ = nnls(rows[list(TERMS)].div(rows["clocks"], axis=0).to_numpy(), (rows["ghz"] ** -2).to_numpy())
    return pd.Series(weights, index=list(TERMS))


def predicted_us(weights: pd.Series, rows: pd.DataFrame) -> pd.Series:
    """Return the time of each launch at the clock that power leaves.

    Its energy by term, at the voltage of 1 GHz, is its terms times their weights.
    """
    return rows["clocks"] * 1e3 / np.sqrt(rows["clocks"] / (rows[list(TERMS)] * weights).sum(axis=1))


def held_out(
    rows: pd.DataFrame, by: str = "variant", made: Callable[[pd.DataFrame], pd.DataFrame] = lambda mine: mine
) -> pd.DataFrame:
    """Predict each contender, or each size, by a model that never saw it: `JUDGED`.

    made: what is taken for the rows that are predicted. What leaves too few others for a model is left out.
    """
    judged = [pd.DataFrame(columns=JUDGED)]
    for _, mine in rows.groupby(by, sort=False):
        others = rows.drop(mine.index)
        if len(others) > len(TERMS):
            us = predicted_us(fit(others), made(mine))
            judged.append(mine.assign(predicted_us=us, error=us / mine["us"] - 1)[JUDGED])
    return pd.concat(judged[1:] or judged, ignore_index=True)


def predicted(variant: str, size: int, sms: int) -> float:
    """Return millions of clocks of a rung by the tuner's model, which no record was fitted to."""
    return system.RUNGS[variant][0].predict(size, size, size, sms) / 1e6


def clocks(rows: pd.DataFrame, sms: int) -> pd.DataFrame:
    """Return the tuner's model beside the clocks that were counted: size, variant, clocks, predicted, error."""
    return (
        where(rows, variant=STREAMING)[["size", "variant", "clocks"]]
        .reset_index(drop=True)
        .assign(
            predicted=lambda found: [predicted(r.variant, r.size, sms) for r in found.itertuples()],
            error=lambda found: found["predicted"] / found["clocks"] - 1,
        )
    )


def both(rows: pd.DataFrame, sms: int) -> pd.DataFrame:
    """Predict with both models together: clocks by the tuner's, their rate by a fit without the contender: `JUDGED`.

    Only the bytes in L2's slices and of DRAM, and the tensor cores' clocks, are counted ones.
    """

    def unseen(mine: pd.DataFrame) -> pd.DataFrame:
        (variant,) = set(mine["variant"])
        if variant not in STREAMING:
            return mine
        return mine.assign(
            clocks=[predicted(variant, size, sms) for size in mine["size"]],
            port=[port_bytes(system.RUNGS[variant][0], size) / 1e9 for size in mine["size"]],
        )

    return where(held_out(rows, made=unseen), variant=STREAMING).reset_index(drop=True)


class View(NamedTuple):
    """What the chapter shows."""

    rows: pd.DataFrame  #: `activity`
    records: pd.DataFrame  #: whose power is told
    joules: pd.DataFrame
    tells: bool  #: whether enough contenders were counted for a model that leaves one out
    size: int  #: the largest that was profiled
    largest: pd.DataFrame  #: `rows` of that size, by variant


def view(chapter: Chapter) -> View:
    """Return what records and counters of a GPU tell; of a point that is in two experiments both rows are kept."""
    df = together(chapter["square"], chapter["studies"], chapter.ladder)
    rows, told = activity(chapter.counted), joules(df, chapter.machine.get("power_limit_w") or np.nan)
    size, tells = rows["size"].max(), rows["variant"].nunique() > len(TERMS) + 1
    return View(rows, df, told, tells, size, rows[rows["size"] == size].set_index("variant"))


def eight(chapter: Chapter) -> pd.DataFrame:
    """Return `activity` of the kernels for FP8, our best and what it is held against, by size.

    Empty where nothing was counted.
    """
    return where(activity(launches(chapter.counters_of("fp8"), chapter.machine)), variant=EIGHT).sort_values(
        ["size", "variant"], key=lambda c: c.map(EIGHT.index) if c.name == "variant" else c
    )


# ---------------------------------------------------------------- what the page shows


def table(chapter: Chapter) -> pd.DataFrame | None:
    """Return bytes, energy and clocks of each contender at the largest size that was profiled.

    Of those that were measured there; None without a model.
    """
    rows, _, told, tells, size, at = view(chapter)
    if not tells:
        return None
    return (
        at.join(where(told, m=size, experiment="ladder").set_index("variant")[["low_j", "high_j", "high_pj"]])
        .assign(
            harness=at["clocks"] * 1e3 / where(chapter.ladder, m=size).set_index("variant")["median_us"],
            error=100 * where(held_out(rows), size=size).set_index("variant")["error"],
        )
        .dropna(subset="harness")
        .reset_index()
    )


def shares(chapter: Chapter) -> pd.DataFrame | None:
    """Return the energy of a multiplication by term, over all of it for `auto`; None without a model."""
    shown = view(chapter)
    if not shown.tells:
        return None
    parts = (shown.largest[list(TERMS)] * fit(shown.rows))[STACKED]
    share = parts / parts.loc["auto"].sum()
    return (
        share.reset_index()
        .melt("variant", var_name="term", value_name="share")
        .assign(size=shown.size, total=lambda df: df["variant"].map(share.sum(axis=1)))
    )


# ---------------------------------------------------------------- a kernel that moves fewer bytes


def port_bytes(config: family.Wgmma, size: int) -> int:
    """Return what arrives at the SMs for M = N = K = size.

    Stages of A's values, its metadata and B, all tiles in full.
    """
    steps = int(np.prod(config.tiles(size, size))) * -(-size // family.K)
    return steps * (config.m * (family.K + family.K // 8) + config.n * 2 * family.K)


def larger_tile(rows: pd.DataFrame, size: int, sms: int) -> pd.DataFrame:
    """Return what both models say of a tile of 192 x 256, by anchor: port (GB), clocks, ghz, us, over_auto.

    The model of the clock is fitted without the rungs that compute such tiles. A row for each of `ANCHORS`: both
    models are taken to be as far off for the new tile as they are for the anchor. Slices and DRAM are as counted for
    `wgmma_tall`, whose tile is as large; the tensor cores work also on the part of the tiles that lies beyond the
    matrix. over_auto: counted time of `auto` over the prediction. Empty where `auto` or an anchor was not counted.
    """
    others = rows[~rows["variant"].isin(OF_THREE)]
    at = others[others["size"] == size].set_index("variant")
    if not {*ANCHORS, "auto"} <= set(at.index):
        return pd.DataFrame(columns=["port", "clocks", "ghz", "us", "over_auto"])
    c, weights, was = THREE_GROUPS, fit(others), at.loc[list(ANCHORS)]
    new = was.assign(
        clocks=predicted(LARGER, size, sms) * (was["clocks"] / [predicted(anchor, size, sms) for anchor in ANCHORS]),
        tensor=np.prod(c.tiles(size, size)) * -(-size // family.K) * c.groups * c.n / sms / 1e6,
        slices=at["slices"]["wgmma_tall"],
        port=port_bytes(c, size) / 1e9,
        dram=at["dram"]["wgmma_tall"],
    )
    us = predicted_us(weights, new) * (was["us"] / predicted_us(weights, was))
    return new.assign(us=us, ghz=new["clocks"] * 1e3 / us, over_auto=at["us"]["auto"] / us)
