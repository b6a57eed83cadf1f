"""The chapter's facts, by the part of it that they stand in."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pandas as pd

from artifact.book.facts import Fact, each, spread, under
from artifact.measure import again, matrices, records
from artifact.measure import run as harness
from artifact.measure.records import geomean
from artifact.measure.run import Run
from artifact.rooms.casper_sparse import experiments, tables
from artifact.rooms.casper_sparse.experiments import BEST, POINT, Ceilings, Counters, by_sweep, mean, ratios
from kernels import casper_sparse as room

PUBLISHED = "warp_per_row"
#: What the ladder's text compares: variant, the rung that it changes, the sweep.
STEPS = (
    ("any_n", PUBLISHED, "square"),
    *(("column_tiles", "any_n", sweep) for sweep in ("wide", "square", "tall")),
    ("l2_panels", "column_tiles", "wide"),
    *(("rows_per_warp", "l2_panels", sweep) for sweep in ("wide", "tall")),
    *(("in_flight", "rows_per_warp", sweep) for sweep in ("square", "tall")),
    ("split_rows", "in_flight", "square"),
    *((variant, PUBLISHED, sweep) for variant in ("scalar", "no_staging") for sweep in ("wide", "square", "tall")),
)


def of(run: Run) -> Iterator[Fact]:
    """Yield every fact that records hold."""
    df = records.best_of(experiments.all_sweeps(run))
    yield from sweeps(df, run.machine)
    ceilings = experiments.ceilings(harness.start("ceilings", "recorded", run.gpu, records=run.folder.parent.parent))
    yield from gather(df, ceilings)
    yield from limits(experiments.counters(run))
    yield from ladder(df, run.machine)
    yield from ragged(tables.ragged(experiments.ragged(run)))
    yield from real(tables.real(experiments.real(run)))
    yield from accuracy(df)
    second = harness.start(run.room, "recorded", run.gpu, records=run.folder.parent.parent, repeat=True)
    yield from repeats(df, experiments.again(second))


def compiled(report: pd.DataFrame) -> Iterator[Fact]:
    """Of the compile report: what this page's compiler made."""
    df = tables.distinct(report)
    registers = tables.on_hopper(report)["registers"]
    yield from under(
        "compiled",
        entries=df["entry"].nunique(),
        targets=", ".join(dict.fromkeys(report["target"])),
        count=len(df),
        spilling=int(df["spills"].astype(bool).sum()),
        n=tables.N,
    )
    yield from each("registers", {name: int(registers[entry]) for name, entry in tables.used().items()})


def sweeps(df: pd.DataFrame, machine: Mapping) -> Iterator[Fact]:
    points = df.drop_duplicates(POINT)
    fits = 4 * points["k"] * points["n"] <= machine["l2_bytes"]
    yield from under("points", count=len(points), fit_l2=int(fits.sum()), share_fit_l2=fits.mean())
    yield from under("room", variants=len(room.VARIANTS), tried=len(room.TRIED))
    yield "l2_mib", machine["l2_bytes"] / 2**20
    winners = df.loc[df["variant"] == BEST, "best_of"].value_counts()
    yield from each("winners", winners.rename(lambda name: name.removeprefix("cusparse_")))
    for sweep, ratio in by_sweep(df, PUBLISHED).items():
        yield from spread(f"published.{sweep}", ratio)
        yield f"published.{sweep}.ahead", (ratio > 1).mean()
    wide = ratios(df, PUBLISHED, "wide")
    n = wide.index.get_level_values("n")
    yield from under("narrowest", n=n.min(), ratio=geomean(wide[n == n.min()]))
    yield from under("widest", n=n.max(), ratio=geomean(wide[n == n.max()]))
    for name, baseline in (("ahead", BEST), ("ahead_default", "cusparse_default")):
        ratio = pd.concat(list(by_sweep(df, PUBLISHED, baseline).values()))
        yield from under(name, share=(ratio > 1).mean(), mean=geomean(ratio))


def gather(df: pd.DataFrame, ceilings: Ceilings) -> Iterator[Fact]:
    """What a gather could do at most, and what the published kernel draws, TB/s and TFLOP/s."""
    yield from under("l2", tbps=ceilings.l2_gbps / 1e3, tflops=ceilings.l2_gbps / 2e3)
    yield from under("shared", tbps=ceilings.shared_gbps / 1e3, tflops=ceilings.shared_gbps / 2e3)
    ours = df[df["variant"] == PUBLISHED]
    drawn = (ours["requested_bytes"] / ours["median_us"] / 1e6).groupby(ours["experiment"], sort=False)
    yield from each("drawn", drawn.max())


def limits(counters: Counters | None) -> Iterator[Fact]:
    """What Nsight Compute counted at the largest density, per cent."""
    if counters is None:
        return
    dense, table = counters.most_dense, counters.table
    yield "counted.density", table["density"].max()
    yield "counted.n", dense.loc[dense["m"] == 4096, "n"].max()
    ordered = dense[dense["variant"].isin(["l2_panels", "in_flight", "cusparse_alg2"])]
    tiles = dense[dense["variant"] == "shared_tiles"]
    for name, rows, column in (
        ("ordered.l2", ordered, "L2"),
        ("ordered.dram", ordered, "DRAM"),
        ("tiles.l2", tiles, "L2"),
        ("tiles.shared", tiles, "L1 and shared"),
    ):
        if len(rows) and column in rows:
            yield from under(f"counted.{name}", low=rows[column].min(), high=rows[column].max())
    columns = {"DRAM": "dram", "L2 hits": "l2_hits", "L1 hits": "l1_hits"}
    for row in dense.to_dict("records"):
        point = f"counted.{row['variant']}.m{row['m']}n{row['n']}"
        yield from under(point, **{name: row[c] for c, name in columns.items() if pd.notna(row.get(c))})
    few = table[(table["m"] == 1024) & (table["variant"] == PUBLISHED)]["occupancy"]
    if len(few):
        yield "counted.few_rows.occupancy", few.max()
    m = dense["m"].max()
    if counters.has([("rows_per_warp", m, 256), ("in_flight", m, 256)]):
        ratio = counters.read_from_dram("rows_per_warp", m) / counters.read_from_dram("in_flight", m)
        yield from under("second_cost", l1_hits=counters.at("rows_per_warp", m, 256, "L1 hits"), from_dram=ratio)


def ladder(df: pd.DataFrame, machine: Mapping) -> Iterator[Fact]:
    """What each rung gains over the one that it changes: ladder.VARIANT.SWEEP."""
    yield from ((f"ladder.{v}.{sweep}", mean(df, v, sweep, baseline)) for v, baseline, sweep in STEPS)
    wide = df[df["experiment"] == "wide"]
    yield (
        "ladder.l2_panels.widest",
        geomean(records.speedup(wide[wide["n"] == wide["n"].max()], "l2_panels", PUBLISHED)),
    )
    dense = df[df["density"] == df["density"].max()]
    yield "ladder.shared_tiles.densest", geomean(records.speedup(dense, "shared_tiles", "in_flight"))
    yield "rows_of_an_sm", 4096 // machine["sm_count"]
    best = df[df["variant"].isin(room.TRIED)].groupby(POINT)["median_us"].min()
    regret = df[df["variant"] == "auto"].set_index(POINT)["median_us"] / best - 1
    yield from under("regret", median=abs(regret.median()), most=regret.max())


def ragged(table: pd.DataFrame) -> Iterator[Fact]:
    """table: `tables.ragged`."""
    behind, least = table.loc[table["auto"] < 1, "N"], table.loc[table["auto"].idxmin()]
    yield from under("ragged", points=len(table), behind=len(behind), where=", ".join(map(str, behind)))
    yield from under("ragged.least", n=int(least["N"]), ratio=least["auto"])


def real(table: pd.DataFrame | None) -> Iterator[Fact]:
    """table: `tables.real`."""
    yield from under("matrices", folder=matrices.VARIABLE, list=matrices.LIST.name)
    if table is None:
        return
    least = table.loc[table["auto"].idxmin()]
    yield from under("real", matrices=len(table), n=experiments.REAL_N, behind=int((table["auto"] < 1).sum()))
    yield from under("real.mean", **{v: geomean(table[v]) for v in (PUBLISHED, "split_rows", "auto")})
    yield from under("real.least", matrix=least["matrix"], ratio=least["auto"])


def accuracy(df: pd.DataFrame) -> Iterator[Fact]:
    """Largest relative errors; those of the library that lose less than half of what ours do."""
    error = tables.errors(df)["relative error"]
    ours = error[[v for v in error.index if v in room.VARIANTS]].max()
    library = [v for v in error.index if v not in room.VARIANTS]
    better = [f"`{v.removeprefix('cusparse_')}`" for v in library if error[v] < ours / 2]
    yield from under("error", bound=error.max() * 1.05, better=len(better), who=", ".join(better))


def repeats(df: pd.DataFrame, second: pd.DataFrame | None) -> Iterator[Fact]:
    """How far a second run is from the first."""
    if second is not None:
        off = again.apart(df, second)
        yield from under("again", count=len(off), median=off.median(), most=off.max(), ninetieth=off.quantile(0.9))


def verdicts(judged: pd.DataFrame) -> Iterator[Fact]:
    """judged: what `cells.verdicts` returns."""
    return each("verdict", judged.set_index("id")["verdict"].rename(lambda name: name.replace("-", "_")))
