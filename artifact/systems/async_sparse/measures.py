"""What only claims of AsyncSparse need: the cells of its tables, tile widths, gains, bytes of formats."""

import itertools
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from artifact.measure import records
from artifact.systems.async_sparse.experiments import BLOCK, KEPT, TILES
from artifact.verdicts.evidence import Evidence, Values, by_variant, contenders, denser, need, rows
from artifact.verdicts.measures import HOLDS, NOT_REPRODUCED, PARTLY, REPRODUCED, Judged, Reduced, means, within


def cells(e: Evidence, experiments, of: str, over: Sequence[str], densities: Sequence[float]) -> Values:
    """Return the cells of a table such as Table I.

    The geometric mean of the speedup over each of `over`, at each n and over the matrices that are denser than each of
    `densities`.
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
    return Values(by, unit="×", named=len(by) > 1)


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
    wide = pd.DataFrame(by_variant(e.frame(experiments), rate, TILES)).dropna(axis=1, how="all")
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


QUANTITIES = (cells, tile_sweep, stored_over_blocks, blocks_over)
REDUCERS = (share_of_gain,)
EXPECTATIONS = (within_and_each_step_gains, crosses)
