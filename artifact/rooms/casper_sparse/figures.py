"""Charts of the room `casper_sparse` over its records, as `(fig, data)`, and what stands below them."""

from __future__ import annotations

from functools import partial

import pandas as pd

from artifact import registry
from artifact.book.study import Study, where
from artifact.drawing import charts, memories, style
from artifact.drawing.cells import Said
from artifact.measure import records
from artifact.rooms.casper_sparse import findings
from artifact.rooms.casper_sparse.experiments import BEST, traffic
from kernels import casper_sparse as room

NAMES = tuple(room.VARIANTS)
SHOWN = ("warp_per_row", "l2_panels", "auto")
#: Those whose traffic is drawn.
DRAWN = ("warp_per_row", "l2_panels", "in_flight", "shared_tiles", "auto", BEST)
#: Sweep -> what it sweeps, how the axis is called, and the source's figure.
SWEEPS = {
    "wide": ("n", "N, columns of B", "fig4_wide"),
    "square": ("n", "M = N = K", "fig5_square"),
    "tall": ("m", "M, rows of A", "fig6_tall"),
}


#: Of a sweep, what answers the source's claim, and what lies behind it.
ANSWER, BEHIND = ("speedup",), ("median_us", "gbps")


def panel(everything: pd.DataFrame, experiment: str, study: Study, rows: tuple[str, ...]):
    """Speedup of a sweep beside what the source states (ANSWER), or its time and memory throughput (BEHIND)."""
    x, xlabel, figure = SWEEPS[experiment]
    stated = records.published(registry.published("casper_sparse", figure)).set_index("quantity")
    stated = stated[["low", "high"]]
    share = None
    if "vram_throughput" in stated.index:
        share = tuple(stated.loc["vram_throughput"].fillna(100) / 100)
    return charts.sweep_panel(
        where(everything, experiment=experiment),
        x,
        list(NAMES),
        show_variants=list(SHOWN),
        claim=tuple(stated.loc["speedup"]),
        copy_gbps=study.ceiling("copy", "gbps"),
        xlabel=xlabel,
        claim_share=share,
        rows=rows,
    )


def below_panel(experiment: str, rows: tuple[str, ...]) -> dict[str, Said]:
    """Alternative text and caption of a sweep's panel."""
    if rows == ANSWER:
        return {
            "alt": findings.speedups,
            "caption": f"The {experiment} sweep: speedup over the fastest cuSPARSE algorithm. Violet: what the source "
            "states for its GPU.",
        }
    return {
        "alt": findings.times,
        "caption": f"The {experiment} sweep. Top: time of one multiplication. Bottom: bytes that any kernel must "
        "move (A, B and C once) over that time; the dashed line is a measured copy. Violet: what the source states for "
        "its GPU; its memory throughput is what the hardware moved, which is more than these least bytes (the counters "
        "below compare like with like).",
        "fold": "Time and memory throughput",
    }


def panels(everything: pd.DataFrame, experiment: str, study: Study):
    """For each of ANSWER and BEHIND: the figure of a sweep, its name and what stands below it."""
    for rows, named in ((ANSWER, experiment), (BEHIND, f"{experiment}-time")):
        drawn = panel(everything, experiment, study, rows)
        yield drawn, named, below_panel(experiment, rows)


def asked(everything: pd.DataFrame, study: Study):
    """What the points of the sweeps ask of the memories, by arithmetic: every row of B that a gather reads, and every
    operand once."""
    bytes_of = {
        "every read of the gather": "requested_bytes",
        "A, B and C once": "least_bytes",
    }
    rates = [
        everything[["variant", "experiment"]]
        .rename(columns={"experiment": "group"})
        .assign(memory=memory, tbps=everything[column] / everything["median_us"] / 1e6)
        for memory, column in bytes_of.items()
    ]
    roofs = {
        "every read of the gather": {
            "L2": study.ceiling("l2_read", "gbps") / 1e3,
            "shared memory": study.ceiling("shared_read", "gbps") / 1e3,
        },
        "A, B and C once": {"DRAM": study.ceiling("copy", "gbps") / 1e3},
    }
    return memories.memories(pd.concat(rates), roofs, list(NAMES), DRAWN)


def counted(study: Study):
    """What Nsight Compute counted at each memory; None without its counters."""
    if not study.counters:
        return None
    names = {"DRAM": "copy", "L2": "l2_read", "shared memory": "shared_read"}
    roofs = {memory: {"ceiling": study.ceiling(name, "gbps") / 1e3} for memory, name in names.items()}
    drawn = [v for v in DRAWN if v != BEST]
    return memories.memories(traffic(study.counters), roofs, list(NAMES), [*drawn, "cusparse_alg2", "cusparse_alg3"])


def real(table: pd.DataFrame | None):
    """Speedup on each real matrix, the largest of `auto` on top; table: `experiments.speedups`. None without one."""
    if table is None:
        return None
    speeds = table.set_index("matrix").drop(columns=["domain", "m", "nnz"])
    speeds = speeds.sort_values("auto", ascending=False)
    return charts.dots(speeds, partial(style.look, variants=list(NAMES)), "speedup over cuSPARSE's best algorithm")


def ladder(everything: pd.DataFrame):
    """Every rung over cuSPARSE's best, and beside the published one what the source states of each sweep."""
    stated = {}
    for experiment, (_, _, figure) in SWEEPS.items():
        found = records.published(registry.published("casper_sparse", figure)).set_index("quantity")
        stated[experiment] = tuple(found.loc["speedup", ["low", "high"]].astype(float))
    predictions = {name: k.prediction for name, k in room.VARIANTS.items()}
    return charts.ladder(everything, predictions, stated=stated)


def spread(everything: pd.DataFrame, second: pd.DataFrame | None):
    """The second run over the first; None without one."""
    if second is None:
        return None
    looked_at = ["warp_per_row", "auto", "cusparse_alg2", "cusparse_alg3"]
    one = everything[everything["variant"].isin(looked_at)]
    return charts.spread(one, second, list(NAMES))
