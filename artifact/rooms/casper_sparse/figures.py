"""The tables behind the chapter's figures; figures.toml says how each is drawn."""

from __future__ import annotations

import pandas as pd

from artifact.book.study import Study, by, given, repeated, rungs, where
from artifact.rooms.casper_sparse.experiments import BEST, POINT, traffic
from kernels import casper_sparse as room

#: Memory → the microbenchmark of what it delivers at most.
MEMORIES = {"DRAM": "copy", "L2": "l2_read", "shared memory": "shared_read"}
#: Sweep → the source's figure.
SWEEPS = {"wide": "fig4_wide", "square": "fig5_square", "tall": "fig6_tall"}


def sweep(everything: pd.DataFrame, study: Study, experiment: str) -> pd.DataFrame:
    """Return times, rates and speedups of a sweep, and below them what the source states of both and a copy's rate."""
    df = where(everything, experiment=experiment)
    df = df.join(by(df, BEST, key=POINT).rename("best_us"), on=POINT)
    df = df.assign(speedup=df["best_us"] / df["median_us"], source="measured")
    copy = study.ceiling("copy", "gbps")
    stated = study.published(SWEEPS[experiment]).set_index("quantity")[["low", "high"]]
    said = [{"quantity": "speedup", "source": "stated"} | stated.loc["speedup"].to_dict()]
    if "vram_throughput" in stated.index:
        share = stated.loc["vram_throughput"].fillna(100) / 100 * copy
        said.append({"quantity": "gbps", "source": "stated"} | share.to_dict())
    said.append({"quantity": "gbps", "source": "ceiling", "variant": "copy", "low": copy, "high": copy})
    of_panels = [row | {"density": d} for d in sorted(df["density"].unique()) for row in said]
    return pd.concat([df, pd.DataFrame(of_panels)], ignore_index=True)


def _ranges(rates: pd.DataFrame, ceilings: list[tuple[str, str, float]]) -> pd.DataFrame:
    """Return the median and the range of TB/s of each contender and group of points at each memory, its largest share
    of the memory's first ceiling, and the ceilings: memory, name, TB/s."""
    key = ["memory", "variant", "group"]
    df = rates.groupby(key, sort=False)["tbps"].agg(points="count", least="min", median="median", most="max")
    tops = pd.DataFrame(ceilings, columns=["memory", "variant", "median"]).assign(source="ceiling")
    df = df.reset_index().assign(source="measured")
    df["ceiling"] = df["memory"].map(tops.groupby("memory", sort=False)["median"].first())
    share = df.groupby(["memory", "variant"])["most"].transform("max") / df["ceiling"]
    return pd.concat([df.assign(share=share), tops], ignore_index=True)


def asked(everything: pd.DataFrame, study: Study) -> pd.DataFrame:
    """Return what the points of the sweeps ask of the memories, by arithmetic: every row of B that a gather reads, and
    every operand once."""
    gather, once = "every read of the gather", "A, B and C once"
    rates = pd.concat(
        everything[["variant"]].assign(
            group=everything["experiment"], memory=memory, tbps=everything[column] / everything["median_us"] / 1e6
        )
        for memory, column in ((gather, "requested_bytes"), (once, "least_bytes"))
    )
    tops = ((gather, "L2"), (gather, "shared memory"), (once, "DRAM"))
    return _ranges(rates, [(what, memory, study.ceiling(MEMORIES[memory], "gbps") / 1e3) for what, memory in tops])


def counted(study: Study) -> pd.DataFrame | None:
    """Return what Nsight Compute counted at each memory; None without its counters."""
    if not study.counters:
        return None
    tops = [(memory, "ceiling", study.ceiling(name, "gbps") / 1e3) for memory, name in MEMORIES.items()]
    return _ranges(traffic(study.counters), tops)


def ladder(everything: pd.DataFrame, study: Study) -> pd.DataFrame:
    """Return the mean and the range of each rung's speedup by sweep, its prediction, and what the source states of the
    published kernel."""
    predictions = {v: room.VARIANTS[v].prediction for v in room.VARIANTS if v in set(everything["variant"])}
    first = next(iter(predictions))
    stated = [
        study.stated(figure, "speedup")[["low", "high"]].assign(variant=first, experiment=sweep, source="stated")
        for sweep, figure in SWEEPS.items()
    ]
    return pd.concat([rungs(everything, predictions, BEST).assign(source="measured"), *stated], ignore_index=True)


@given
def real(table: pd.DataFrame) -> pd.DataFrame:
    """Return the speedup on each matrix of `experiments.speedups`, the largest of `auto` on top."""
    speeds = table.set_index("matrix").drop(columns=["domain", "m", "nnz"]).sort_values("auto", ascending=False)
    return speeds.rename_axis(index="row", columns="variant").stack().rename("value").dropna().reset_index()


@given
def spread(first: pd.DataFrame, second: pd.DataFrame) -> pd.DataFrame:
    """Return the second run over the first, point by point."""
    shown = ["warp_per_row", "auto", "cusparse_alg2", "cusparse_alg3"]
    return repeated(where(first, variant=shown), second)
