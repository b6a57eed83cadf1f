"""What only claims of AsyncSparse need.

The cells of its tables, tile widths and what padding costs, gains, bytes and fill of formats, parts of a model, bubbles
of a pipeline.
"""

import itertools
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from artifact import registry
from artifact.measure import records
from artifact.systems.async_sparse.experiments import BEFORE, BLOCK, KEPT, SYSTEM, TILES
from artifact.verdicts.evidence import Evidence, Values, by_variant, contenders, denser, need, rows
from artifact.verdicts.measures import HOLDS, NOT_REPRODUCED, PARTLY, REPRODUCED, Judged, Reduced, means, within


def stated(e: Evidence, table: str, quantity: str) -> pd.DataFrame:
    """Return the rows of one quantity in a table of the source."""
    return records.published(registry.published(e.room, table)).query("quantity == @quantity")


def cells(
    e: Evidence, experiments, of: str, over: Sequence[str], densities: Sequence[float], against: str = ""
) -> Values:
    """Return the cells of a table such as Table I.

    The geometric mean of the speedup over each of `over`, at each n and over the matrices that are denser than each of
    `densities`. With `against`, a row of Table I, over the speedup that this states in the same cell.
    """
    by = {
        rival: pd.Series(
            {
                (n, d): records.geomean(denser(line, d))
                for n, line in e.ratio(experiments, of, rival).groupby(level="n", sort=False)
                for d in densities
            }
        )
        for rival in contenders(over)
    }
    if against:
        said = stated(e, "table1", "wcsr_speedup").query("kernel == @against").set_index(["n", "density"])["low"]
        by = {rival: s / said.reindex(s.index) for rival, s in by.items()}
    return Values(by, unit="×", named=len(by) > 1)


def time_over_stated(e: Evidence, experiments, of: str) -> Values:
    """Return the time of a contender over the latency that Table III states, at each n and density."""
    said = stated(e, "table3", "latency").query("variant == @of")[["n", "density", "low"]]
    df = rows(e, experiments, of).merge(said, on=["n", "density"])
    need(not df.empty, f"{of} was not measured at a point of Table III.")
    return Values(by_variant(df, df["median_us"] / 1e3 / df["low"], [of]), unit="×")


def not_launched(e: Evidence, experiments, of: str, against: str) -> Values:
    """Return 1 for each matrix at which `against` was measured and `of` was not, 0 where both were."""
    df = e.frame(experiments, of, against)
    have = {v: df.loc[df["variant"] == v, "label"].unique() for v in (of, against)}
    return Values({of: pd.Series(~np.isin(have[against], have[of]), _index(experiments, have[against]), float)}, ".0%")


def _index(experiments: Sequence[str], values: Sequence, name: str = "label") -> pd.MultiIndex:
    return pd.MultiIndex.from_product([list(experiments)[:1], values], names=["experiment", name])


def aside(e: Evidence, experiments: Sequence[str], table: str) -> pd.DataFrame:
    """Return a table that lies beside the records of these experiments; NotMeasured where there is none."""
    path, _ = e.folder / e.room / f"{table}.csv", e.frame(experiments)
    need(path.is_file(), f"There is no {table}.csv beside the records.")
    return pd.read_csv(path)


def fill(e: Evidence, experiments, order: str, against: str = "") -> Values:
    """Return the share of non-zeros in what blocks of 64 x 64 store of each matrix, which follows from its pattern.

    order: "given" or "rcm", of rows and columns; with `against`, over that in this order.
    """
    df = pd.read_csv(registry.FOLDER / e.room / "statistics.csv", comment="#").pivot(
        index="name", columns="order", values="blocks_64"
    )
    df = df[df.index.isin(e.frame(experiments)["label"])]
    need(not df.empty, "There are no statistics of a matrix of these records.")
    found = df[order] / (df[against] if against else 1.0)
    found.index = _index(experiments, found.index)
    return Values({"blocks": found}, ".2f", "×") if against else Values({"blocks": found}, ".1f", "%", 100)


def part_of_model(e: Evidence, experiments, part: str, configuration: str, against: str = "") -> Values:
    """Return the time of a part of the model's prefill as a share of all; with `against`, over that of this part.

    At each n that was profiled.
    """
    df, at = aside(e, experiments, "prefill/parts"), e.frame(experiments)
    df = df[(df["configuration"] == configuration) & df["n"].isin(at["n"]) & df["density"].isin(at["density"])]
    need(not df.empty, f"The parts of the model {configuration!r} were not profiled there.")
    us = df.pivot(index="n", columns="part", values="us")
    found = us[part] / (us[against] if against else us.sum(axis=1))
    found.index = _index(experiments, found.index, "n")
    return Values({part: found}, ".2f", "×") if against else Values({part: found}, ".0f", "%", 100)


def multiplying(e: Evidence, experiments, of: str) -> Values:
    """Return the share of a warpgroup's loop, from its first product to the end of its last, in which it multiplies.

    By the clocks of thread blocks that were traced; the rest are bubbles.
    """
    df = aside(e, experiments, "traces/timeline").query("variant == @of and role == 'multiply'")
    need(not df.empty, f"{of} was not traced.")
    loops = df.assign(ns=df["end_ns"] - df["begin_ns"]).groupby(["block", "warpgroup"])
    found = loops["ns"].sum() / (loops["end_ns"].max() - loops["begin_ns"].min())
    found.index = _index(experiments, range(len(found)), "loop")
    return Values({of: found}, ".0f", "%", 100)


def blocks_over(e: Evidence, experiments, of: str) -> Values:
    """Bytes that blocks of 64 x 64 take on the GPU (opt5) over those of a contender's own format.

    Without the column-major copy of B that is made for the blocks, 4 bytes an element.
    """
    df = rows(e, experiments, KEPT, of)
    bytes_of = by_variant(
        df, df["prepare_bytes"] - np.where(df["variant"] == KEPT, 4.0 * df["k"] * df["n"], 0.0), (KEPT, of)
    )
    blocks, own = bytes_of[KEPT].align(bytes_of[of], join="inner")
    need(len(own) > 0 and min(*own, *blocks) > 0, f"The records do not say how many bytes blocks and {of} store.")
    return Values({of: blocks / own}, unit="×")


def tile_sweep(e: Evidence, experiments, rate: str) -> Values:
    """Return `rate`, "tflops", of the contenders of the sweep over WGMMA_N, in the order of the width.

    Only at the points that all of them have.
    """
    wide = e.framed(experiments).wide(rate).reindex(columns=TILES).dropna(axis=1, how="all")
    need(len(wide.columns) > 2, "Fewer than three widths of the WGMMA tile were measured.")
    need(len(wide.dropna()) > 0, "No point was measured with all widths of the WGMMA tile.")
    return Values(dict(wide.dropna().items()), ".3g", " TFLOP/s")


def stored_over_blocks(e: Evidence, experiments, of: str) -> Values:
    """Return what a contender stores of the sparse operand over the bytes of BCSR.

    The memory that its preprocessing adds, without copies of B and C in whole blocks where m or k is no multiple of
    one, over the least traffic without B and C; 2 bytes an element.
    """
    df = rows(e, experiments, of)
    m, n, k = (df[size].astype(float) for size in ("m", "n", "k"))
    blocks = df["least_bytes"] - 2 * n * (m + k)
    stored = df["prepare_bytes"] - sum(2 * n * np.ceil(size / BLOCK) * BLOCK * (size % BLOCK > 0) for size in (m, k))
    need(min(*blocks, *stored) > 0, f"The records do not say how many bytes {of} stores.")
    return Values(by_variant(df, stored / blocks, [of]), unit="×")


def share_of_gain(v: Values, part: Sequence[str], whole: Sequence[str]) -> Reduced:
    """Return what the step of `part` adds to the geometric mean, as a share of what `whole` adds.

    Each is a step from a first to a second contender. The same as factors, whose logarithms add up, is said beside it.
    """
    mean = means(v)
    added, of = (mean[b] - mean[a] for a, b in (part, whole))
    need(of > 0, f"From {whole[0]} to {whole[1]} nothing is gained.")
    logs = [np.log(mean[b] / mean[a]) for a, b in (part, whole)]
    return Reduced(replace(v, unit=""), pd.Series([added / of]), data={"means": mean, "factors": logs[0] / logs[1]})


def gains_over_stated(v: Values) -> Reduced:
    """Return what each step adds to the geometric mean over what the text says that it adds.

    Of a step that is to lose, what it takes away; a hundredth where it does the opposite.
    """
    said = records.published(registry.published(SYSTEM, "text")).query("quantity == 'gain'")
    mean, said = means(v), said.set_index("variant")["low"]
    added = pd.Series({step: mean[step] - mean[BEFORE[step]] for step in said.index})
    return Reduced(v, (added / said).clip(lower=0.01), data={"added": added, "said": said})


def over_narrower(v: Values, widths: Sequence[int]) -> Reduced:
    """Return the geometric mean of each of these widths of the WGMMA tile over that of the width 8 narrower."""
    mean = means(v, [f"opt5_n{width}" for width in widths] + [f"opt5_n{width - 8}" for width in widths])
    line = pd.Series({width: mean[f"opt5_n{width}"] / mean[f"opt5_n{width - 8}"] for width in widths})
    return Reduced(replace(v, unit="×"), line, lines=True, course=[({}, line)])


def within_and_each_step_gains(
    r: Reduced, between: Sequence[float], tolerance: float, partly: float, steps: Sequence[str], better: str = ""
) -> Judged:
    """As `within`: reproduced, exceeded or partly by the tolerance.

    Partly at best if the geometric mean does not rise from each contender of `steps` to the next.
    """
    judged, mean = within(r, between, tolerance, partly, better), means(r.of, steps)
    idle = [f"{a} to {b}" for a, b in itertools.pairwise(steps) if mean[b] <= mean[a]]
    return replace(
        judged,
        verdict=PARTLY if idle and judged.verdict in HOLDS else judged.verdict,
        data={**judged.data, "idle": idle},
    )


def crosses(r: Reduced, limit: float) -> Judged:
    """Reproduced if the first value of the line is below `limit` and the last one above.

    Partly if only the last one is above and the first one is less.
    """
    ((_, line),) = r.course
    first, last = line.iloc[0], line.iloc[-1]
    return Judged(REPRODUCED if first < limit < last else PARTLY if limit < last > first else NOT_REPRODUCED)


QUANTITIES = (
    *(cells, tile_sweep, stored_over_blocks, blocks_over, time_over_stated, not_launched),
    *(fill, part_of_model, multiplying),
)
REDUCERS = (share_of_gain, gains_over_stated, over_narrower)
EXPECTATIONS = (within_and_each_step_gains, crosses)
