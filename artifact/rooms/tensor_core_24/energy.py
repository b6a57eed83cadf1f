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
launch is its clocks over that clock. For a kernel that does not exist, `family.predict` gives the clocks.

Energies of the model are relative: nobody measured what the board draws in the milliseconds of a profiled launch.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pandas as pd

from artifact.measure import bench
from artifact.rooms.tensor_core_24 import experiments, variants
from artifact.rooms.tensor_core_24.experiments import Counters
from kernels import tensor_core_24 as room
from kernels.tensor_core_24 import family

DRAM_WRITTEN = "dram__bytes_write.sum"
TERMS = ("clocks", "tensor", "slices", "port", "dram")
#: What a figure and a table call them.
CALLED = {
    "tensor": "tensor cores",
    "slices": "L2 slices",
    "port": "L2 to SMs",
    "dram": "DRAM",
    "clocks": "every clock",
}
NEEDED = (
    experiments.TIME,
    experiments.CLOCK,
    experiments.TENSOR,
    experiments.AT_L2,
    experiments.TO_SM,
    experiments.FROM_DRAM,
    DRAM_WRITTEN,
)
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
OF_THREE = tuple(name for name, (config, *_) in room.RUNGS.items() if config.groups == 3)
LARGER = "wgmma_three"
THREE_GROUPS = room.RUNGS[LARGER][0]


def joules(df: pd.DataFrame, machine: variants.Machine) -> pd.DataFrame:
    """Energy of a launch at the points that tell it: variant, m, n, k, median_us, low_j, high_j, low_pj, high_pj.

    df: records. low_j is NVML's average times the median; that average lags behind a load that grows, so it is
    the lower end. high_j is the power limit times the median. Both take the board's power for the contender's,
    though the contenders of a point take turns. pj: picojoules for each dense-equivalent FLOP. Points where the
    average is below `NEAR_LIMIT` of the limit, as all short ones are, say nothing and are left out.
    """
    limit = machine.get("power_limit_w") or np.nan
    rows = df[df["power_w"] >= NEAR_LIMIT * limit]
    seconds = rows["median_us"] * 1e-6
    found = rows[["experiment", "variant", "m", "n", "k", "median_us"]].assign(
        power_w=rows["power_w"], low_j=rows["power_w"] * seconds, high_j=limit * seconds
    )
    flop = rows["useful_flops"]
    return found.assign(low_pj=1e12 * found["low_j"] / flop, high_pj=1e12 * found["high_j"] / flop).reset_index(
        drop=True
    )


def asked(df: pd.DataFrame) -> pd.DataFrame:
    """How long each point lasted and how often NVML was asked meanwhile: experiment, m, n, k, ms, times.

    df: records. ms: of the launches that were kept, of all contenders; flushes and warm-up are not recorded.
    """
    ms = df.assign(ms=df["median_us"] * df["samples"] / 1e3)
    found = ms.groupby(["experiment", "m", "n", "k"], sort=False, as_index=False)["ms"].sum()
    return found.assign(times=1 + (found["ms"] / (1e3 * bench.SAMPLE_EVERY_S)).astype(int))


def activity(counters: Counters, sms: int) -> pd.DataFrame:
    """What was counted of each launch, a row each: size, variant, us, ghz, `TERMS`, port_per_clock.

    clocks: millions, of the GPU. tensor: millions of clocks in which the tensor cores work. slices, port, dram:
    GB. port_per_clock: bytes that arrive at an SM in a clock. sms: of the GPU. Only launches for which all of
    `NEEDED` were counted.
    """
    launches = dict.fromkeys((size, variant) for variant, size, _ in counters.values)
    rows = []
    for size, variant in launches:
        if not counters.has(variant, size=size, metrics=NEEDED):
            continue
        time, clock, tensor, slices, port, read, written = (counters.get(variant, size, metric) for metric in NEEDED)
        clocks = time * clock * 1e-15
        rows.append(
            {
                "size": size,
                "variant": variant,
                "us": time / 1e3,
                "ghz": clock / 1e9,
                "clocks": clocks,
                "tensor": clocks * tensor / 100,
                "slices": slices / 1e9,
                "port": port / 1e9,
                "dram": (read + written) / 1e9,
                "port_per_clock": port / (clocks * 1e6 * sms),
            }
        )
    columns = ["size", "variant", "us", "ghz", *TERMS, "port_per_clock"]
    return pd.DataFrame(rows, columns=columns)


# ---------------------------------------------------------------- the model


@dataclass(frozen=True)
class Model:
    """Weights of `TERMS`, for each million clocks or GB."""

    weights: pd.Series

    def energy(self, rows: pd.DataFrame) -> pd.Series:
        """Of each launch, at the voltage of 1 GHz."""
        return (rows[list(TERMS)] * self.weights).sum(axis=1)

    def ghz(self, rows: pd.DataFrame) -> pd.Series:
        """The clock that power leaves."""
        return np.sqrt(rows["clocks"] / self.energy(rows))

    def us(self, rows: pd.DataFrame) -> pd.Series:
        return rows["clocks"] * 1e3 / self.ghz(rows)

    def parts(self, rows: pd.DataFrame) -> pd.DataFrame:
        """Energy by term."""
        return rows[list(TERMS)] * self.weights


def fit(rows: pd.DataFrame) -> Model:
    """The weights, none negative, whose 1 / clock^2 is nearest to what was counted. ValueError with too few rows."""
    from scipy.optimize import nnls

    if len(rows) <= len(TERMS):
        raise ValueError(
            f"the energy model has {len(TERMS)} weights, but only {len(rows)} launches were counted: profile more"
        )
    per_clock = rows[list(TERMS)].div(rows["clocks"], axis=0)
    weights, _ = nnls(per_clock.to_numpy(), (rows["ghz"] ** -2).to_numpy())
    return Model(pd.Series(weights, index=list(TERMS)))


def left_out(rows: pd.DataFrame) -> pd.DataFrame:
    """Each contender predicted by a model that never saw it, at any size: size, variant, us, predicted_us, error."""
    found = []
    for variant in dict.fromkeys(rows["variant"]):
        mine = rows["variant"] == variant
        found.append(_judged(rows[mine], fit(rows[~mine])))
    return pd.concat(found, ignore_index=True)


def other_size(rows: pd.DataFrame) -> pd.DataFrame:
    """Each size predicted by a model of the other sizes; columns as of `left_out`. Empty with a single size."""
    sizes = sorted(set(rows["size"]))
    found = [_judged(rows[rows["size"] == s], fit(rows[rows["size"] != s])) for s in sizes[1:] and sizes]
    columns = ["size", "variant", "us", "predicted_us", "error"]
    return pd.concat(found, ignore_index=True) if found else pd.DataFrame(columns=columns)


def _judged(rows: pd.DataFrame, model: Model) -> pd.DataFrame:
    us = model.us(rows)
    return rows[["size", "variant", "us"]].assign(predicted_us=us, error=us / rows["us"] - 1)


def clocks(rows: pd.DataFrame, sms: int, names: Iterable[str] = STREAMING) -> pd.DataFrame:
    """The tuner's model of clocks, which no record was fitted to, beside those counted: size, variant, clocks,
    predicted (millions), error."""
    mine = rows[rows["variant"].isin(names)]
    predicted = [family.predict(room.RUNGS[r.variant][0], r.size, r.size, r.size, sms) / 1e6 for r in mine.itertuples()]
    found = mine[["size", "variant", "clocks"]].assign(predicted=predicted)
    return found.assign(error=found["predicted"] / found["clocks"] - 1).reset_index(drop=True)


def both(rows: pd.DataFrame, sms: int, names: Iterable[str] = STREAMING) -> pd.DataFrame:
    """Both models together: clocks from `family.predict`, the clock from a fit without the contender. Only the bytes
    in L2's slices and of DRAM, and the tensor cores' clocks, are counted ones. Columns as of `left_out`."""
    found = []
    for variant in dict.fromkeys(rows["variant"][rows["variant"].isin(names)]):
        mine = rows["variant"] == variant
        config = room.RUNGS[variant][0]
        sizes = rows["size"][mine]
        alike = rows[mine].assign(
            clocks=[family.predict(config, s, s, s, sms) / 1e6 for s in sizes],
            port=[port_bytes(config, s) / 1e9 for s in sizes],
        )
        found.append(_judged(alike, fit(rows[~mine])))
    columns = ["size", "variant", "us", "predicted_us", "error"]
    return pd.concat(found, ignore_index=True) if found else pd.DataFrame(columns=columns)


@dataclass(frozen=True)
class View:
    """What the chapter shows; of the model None where too few launches were counted."""

    rows: pd.DataFrame  #: `activity`
    joules: pd.DataFrame
    asked: pd.DataFrame
    model: Model | None
    judged: pd.DataFrame | None  #: `left_out`
    sms: int

    @property
    def size(self) -> int:
        """The largest that was profiled."""
        return int(self.rows["size"].max())

    @property
    def largest(self) -> pd.DataFrame:
        """`rows` of the largest size, by variant."""
        return self.rows[self.rows["size"] == self.size].set_index("variant")

    @property
    def tells(self) -> bool:
        """Whether there is a model, and `auto` to hold everybody against."""
        return self.model is not None and "auto" in self.largest.index

    @property
    def parts(self) -> pd.DataFrame:
        """Energy by contender and term, at the largest size."""
        return self.model.parts(self.largest)


def view(counters: Counters, df: pd.DataFrame, machine: variants.Machine) -> View:
    """df: records of several experiments; of a point that is in two of them both rows are kept."""
    sms = machine["sm_count"]
    rows = activity(counters, sms)
    told = joules(df, machine)
    if rows["variant"].nunique() <= len(TERMS) + 1:
        return View(rows, told, asked(df), None, None, sms)
    return View(rows, told, asked(df), fit(rows), left_out(rows), sms)


# ---------------------------------------------------------------- a kernel that moves fewer bytes


def port_bytes(config: family.Wgmma, size: int) -> int:
    """What arrives at the SMs for M = N = K = size: stages of A's values, its metadata and B, all tiles in full."""
    high, wide = config.tiles(size, size)
    step = config.m * (family.K + family.K // 8) + config.n * 2 * family.K
    return high * wide * -(-size // family.K) * step


#: Rungs that a prediction for `THREE_GROUPS` is anchored at: what bounds their steps, in words.
ANCHORS = {"wgmma_keep": "the port from L2", "wgmma_tall": "shared memory"}


def larger_tile(rows: pd.DataFrame, size: int, sms: int) -> pd.DataFrame:
    """What both models say of a tile of 192 x 256: anchor, port_gb, clocks, ghz, us, over_auto.

    The model of the clock is fitted without the rungs that compute such tiles. A row for each of `ANCHORS`: both
    models are taken to be as far off for the new tile as they are for the anchor. Slices and DRAM are as counted for
    `wgmma_tall`, whose tile is as large; the tensor cores work also on the part of the tiles that lies beyond the
    matrix. over_auto: counted time of `auto` over the prediction. Empty where `auto` or an anchor was not counted at
    that size.
    """
    others = rows[~rows["variant"].isin(OF_THREE)]
    at = others[others["size"] == size].set_index("variant")
    if not {*ANCHORS, "auto"} <= set(at.index):
        return pd.DataFrame(columns=["anchor", "port_gb", "clocks", "ghz", "us", "over_auto"])
    c, model, found = THREE_GROUPS, fit(others), []
    high, wide = c.tiles(size, size)
    for anchor in ANCHORS:
        was = at.loc[[anchor]]
        same = family.predict(room.RUNGS[anchor][0], size, size, size, sms) / 1e6
        waits = float(was["clocks"].iloc[0]) / same
        new = pd.DataFrame(
            {
                "anchor": [anchor],
                "clocks": family.predict(c, size, size, size, sms) / 1e6 * waits,
                "tensor": high * wide * -(-size // family.K) * c.groups * c.n / sms / 1e6,
                "slices": at["slices"]["wgmma_tall"],
                "port": port_bytes(c, size) / 1e9,
                "dram": at["dram"]["wgmma_tall"],
            }
        )
        us = model.us(new) * float(was["us"].iloc[0] / model.us(was).iloc[0])
        found.append(new.assign(us=us, ghz=new["clocks"] * 1e3 / us, port_gb=new["port"]))
    new = pd.concat(found, ignore_index=True)
    new["over_auto"] = at["us"]["auto"] / new["us"]
    return new[["anchor", "port_gb", "clocks", "ghz", "us", "over_auto"]]
