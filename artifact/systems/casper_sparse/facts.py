"""The chapter's facts, by the part of it that they stand in."""

from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any

import pandas as pd

from artifact.book.facts import Fact, part, summary
from artifact.book.study import Counters, Study, by, mean, ratio, where
from artifact.measure import durations, matrices, records
from artifact.measure.run import Run
from artifact.systems.casper_sparse import experiments
from artifact.systems.casper_sparse.experiments import BEST, POINT
from kernels import casper_sparse as system

Facts = Mapping[str, Any]
PUBLISHED = "warp_per_row"
#: What the ladder's text compares: variant → the rung that it changes, the sweeps.
STEPS = {
    "any_n": (PUBLISHED, "square"),
    "column_tiles": ("any_n", "wide", "square", "tall"),
    "l2_panels": ("column_tiles", "wide"),
    "rows_per_warp": ("l2_panels", "wide", "tall"),
    "in_flight": ("rows_per_warp", "square", "tall"),
    "split_rows": ("in_flight", "square"),
    "scalar": (PUBLISHED, "wide", "square", "tall"),
    "no_staging": (PUBLISHED, "wide", "square", "tall"),
}


def of(run: Run) -> Iterator[Fact]:
    """Return every fact that records hold."""
    study, raw = Study(run), experiments.sweeps(run)
    df = records.best_of(raw)
    return chain(
        sweeps(df, run.machine),
        gather(df, study),
        limits(study.counters),
        ladder(df, run.machine),
        ragged(experiments.odd(experiments.ragged(run))),
        real(experiments.speedups(experiments.real(study))),
        accuracy(df),
        repeats(raw, experiments.again(study.again.run)),
    )


@part
def compiled(report: pd.DataFrame) -> Facts:
    """Return what this page's compiler made, by its report."""
    df = report.drop_duplicates(["entry", "target"])
    registers = where(df, target="sm_90a").set_index("entry")["registers"]
    return {
        "compiled": {
            "entries": df["entry"].nunique(),
            "targets": ", ".join(df["target"].unique()),
            "count": len(df),
            "spilling": int(df["spills"].astype(bool).sum()),
            "n": experiments.N,
        },
        "registers": {v: registers[entry] for v, entry in experiments.USED.items()},
    }


@part
def sweeps(df: pd.DataFrame, machine: Mapping) -> Facts:
    """Return where the published kernel is ahead of the library."""
    points = df.drop_duplicates(POINT)
    fits = 4 * points["k"] * points["n"] <= machine["l2_bytes"]
    ours = {base: ratio(df, PUBLISHED, base, POINT) for base in (BEST, "cusparse_default")}
    over = {sweep: values for sweep, values in ours[BEST].groupby("experiment", sort=False)}
    by_n = over["wide"].groupby("n").agg(records.geomean)
    return {
        "points": {"count": len(points), "fit_l2": int(fits.sum()), "share_fit_l2": fits.mean()},
        "room": {"variants": len(system.VARIANTS), "tried": len(system.TRIED)},
        "l2_mib": machine["l2_bytes"] / 2**20,
        "winners": by(df, BEST, "best_of").str.removeprefix("cusparse_").value_counts(),
        "published": {sweep: summary(values) | {"ahead": (values > 1).mean()} for sweep, values in over.items()},
        "narrowest": {"n": by_n.index[0], "ratio": by_n.iloc[0]},
        "widest": {"n": by_n.index[-1], "ratio": by_n.iloc[-1]},
        **{
            name: {"share": (ours[base] > 1).mean(), "mean": records.geomean(ours[base])}
            for name, base in (("ahead", BEST), ("ahead_default", "cusparse_default"))
        },
    }


@part
def gather(df: pd.DataFrame, study: Study) -> Facts:
    """Return what a gather could do at most, and what the published kernel draws, TB/s and TFLOP/s."""
    gbps, ours = (
        {name: study.ceiling(f"{name}_read", "gbps") for name in ("l2", "shared")},
        where(df, variant=PUBLISHED),
    )
    drawn = (ours["requested_bytes"] / ours["median_us"] / 1e6).groupby(ours["experiment"], sort=False)
    return {name: {"tbps": rate / 1e3, "tflops": rate / 2e3} for name, rate in gbps.items()} | {"drawn": drawn.max()}


@part
def limits(counters: Counters) -> Facts:
    """Return what Nsight Compute counted at the largest density, per cent; nothing without it."""
    if not counters:
        return {}
    table = experiments.counted(counters)
    dense = experiments.dense(table)
    ordered = where(dense, variant=("l2_panels", "in_flight", "cusparse_alg2"))
    tiles = where(dense, variant="shared_tiles")
    ends = {"min": "low", "max": "high"}
    columns = {"DRAM": "dram", "L2 hits": "l2_hits", "L1 hits": "l1_hits"}
    points = dense["variant"] + ".m" + dense["m"].astype(str) + "n" + dense["n"].astype(str)
    at = {"m": dense["m"].max(), "density": table["density"].max()}
    read = [counters.get(v, experiments.FROM_DRAM, **at) for v in ("rows_per_warp", "in_flight")]
    counted = {
        "density": at["density"],
        "n": where(dense, m=4096)["n"].max(),
        "ordered": {name.lower(): ordered[name].agg([*ends]).rename(ends) for name in ("L2", "DRAM")},
        "tiles.l2": tiles["L2"].agg([*ends]).rename(ends),
        "tiles.shared": tiles["L1 and shared"].agg([*ends]).rename(ends),
        **dense[[*columns]].rename(columns=columns).set_index(points).to_dict("index"),
        "few_rows.occupancy": where(table, m=1024, variant=PUBLISHED)["occupancy"].max(),
    }
    hits = counters.get("rows_per_warp", "l1tex__t_sector_hit_rate.pct", **at)
    return {"counted": counted, "second_cost": {"l1_hits": hits, "from_dram": read[0] / read[1]}}


@part
def ladder(df: pd.DataFrame, machine: Mapping) -> Facts:
    """Return what each rung gains over the one that it changes, ladder.VARIANT.SWEEP, and how near `auto` is."""
    widest, densest = df["n"][df["experiment"] == "wide"].max(), df["density"].max()
    steps = {v: {sweep: mean(df, v, base, experiment=sweep) for sweep in at} for v, (base, *at) in STEPS.items()}
    steps["l2_panels"]["widest"] = mean(df, "l2_panels", PUBLISHED, experiment="wide", n=widest)
    steps["shared_tiles"] = {"densest": mean(df, "shared_tiles", "in_flight", density=densest)}
    best = where(df, variant=system.TRIED).groupby(POINT)["median_us"].min()
    regret = by(df, "auto", key=POINT) / best - 1
    return {
        "ladder": steps,
        "rows_of_an_sm": 4096 // machine["sm_count"],
        "regret": {"median": abs(regret.median()), "most": regret.max()},
    }


@part
def ragged(odd: pd.DataFrame) -> Facts:
    """Return where `auto` is behind the library, and where real matrices are listed; odd: `experiments.odd`."""
    behind, least = odd["n"][odd["auto"] < 1], odd.loc[odd["auto"].idxmin()]
    return {
        "ragged": {"points": len(odd), "behind": len(behind), "where": ", ".join(map(str, behind))}
        | {"least": {"n": int(least["n"]), "ratio": least["auto"]}},
        "matrices": {"folder": matrices.VARIABLE, "list": matrices.LIST.name},
    }


@part
def real(table: pd.DataFrame) -> Facts:
    """Return how real matrices go; table: `experiments.speedups`."""
    least, about = table.loc[table["auto"].idxmin()], {"matrices": len(table), "n": experiments.REAL_N}
    about |= {
        "behind": int((table["auto"] < 1).sum()),
        "mean": table[[PUBLISHED, "split_rows", "auto"]].apply(records.geomean),
    }
    return {"real": about | {"least": {"matrix": least["matrix"], "ratio": least["auto"]}}}


@part
def accuracy(df: pd.DataFrame) -> Facts:
    """Return the largest relative errors; those of the library that lose less than half of what ours do."""
    error = experiments.errors(df).set_index("variant")["rel_err"]
    mine = error.index.isin(system.VARIANTS)
    better = [f"`{v.removeprefix('cusparse_')}`" for v in error.index[~mine & (error < error[mine].max() / 2)]]
    return {"error": {"bound": error.max() * 1.05, "better": len(better), "who": ", ".join(better)}}


@part
def repeats(first: pd.DataFrame, second: pd.DataFrame) -> Facts:
    """Return how far a second run is from the first."""
    off = durations.apart(first, second)
    return {"again": {"count": len(off), "median": off.median(), "most": off.max(), "ninetieth": off.quantile(0.9)}}
