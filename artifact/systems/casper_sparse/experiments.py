"""What the chapter measures, or reads from records, and what its tables and figures show of it.

Records have rows of "cusparse_best" as well, the fastest algorithm of cuSPARSE at each point.
"""

from functools import partial

import numpy as np
import pandas as pd

from artifact.book.study import Counters, Study, by, given, ratio, repeated, rungs, where
from artifact.measure import matrices, records
from artifact.measure.run import Run
from artifact.profiling import ncu
from kernels import casper_sparse as system

BEST = "cusparse_best"
POINT = ["experiment", *records.POINT]
#: Odd numbers of columns, M = K = 4096, 1%.
RAGGED = {"full": (1, 3, 5, 17, 33, 65, 129, 257, 1001), "kick": (3, 65, 257)}
REAL_N = 256  #: columns of B for real matrices
N = 4096  #: columns of B whose instantiations the table of machine code shows
#: Variant → the instantiation that N takes; `auto` has none.
USED = {name: system.entry(name, N) for name, kernel in system.VARIANTS.items() if kernel.entries}
#: Memory → the microbenchmark of what it delivers at most.
MEMORIES = {"DRAM": "copy", "L2": "l2_read", "shared memory": "shared_read"}
#: Sweep → the source's figure.
SWEEPS = {"wide": "fig4_wide", "square": "fig5_square", "tall": "fig6_tall"}

# ---------------------------------------------------------------- records


def sweeps(run: Run) -> pd.DataFrame:
    """Measure or read the source's three sweeps, all contenders; without rows of BEST."""
    contenders = run.variants() | run.baselines()
    problems = {
        name: [partial(system.problem, **shape, seed=run.seed) for shape in shapes]
        for name, shapes in system.sweeps(run.preset).items()
    }
    return pd.concat([run.measure(name, made, contenders) for name, made in problems.items()], ignore_index=True)


def again(run: Run) -> pd.DataFrame | None:
    """Measure or read the sweeps a second time; None where no second run was recorded."""
    return sweeps(run) if run.mode == "measure" or (run.folder / "wide.csv").exists() else None


def ragged(run: Run) -> pd.DataFrame:
    """Measure or read odd numbers of columns, for the variants that take more than multiples of four."""
    four = ("warp_per_row", "no_staging", "shared_tiles")
    contenders = run.variants(v for v in system.VARIANTS if v not in four) | run.baselines()
    problems = [partial(system.problem, m=4096, n=n, k=4096, density=0.01, seed=run.seed) for n in RAGGED[run.preset]]
    return records.best_of(run.measure("ragged", problems, contenders))


def real(study: Study) -> pd.DataFrame | None:
    """Measure real matrices from the folder that the user names, or read them; None where there are no records."""
    run, names = study.run, matrices.listed()["name"].head({"kick": 3}.get(study.run.preset, 1000))
    if run.mode == "measure" and (folder := matrices.folder()):
        problems = [partial(_of_a_matrix, name, folder, run.seed) for name in names]
        run.measure("real", problems, run.variants() | run.baselines())
    df = study.read("real")
    return None if df is None else where(records.best_of(df), label=names)


def _of_a_matrix(name, folder, seed):
    return system.problem_from_csr(matrices.load(name, folder), REAL_N, seed, name)


# ---------------------------------------------------------------- tables of the sweeps


def last_rung(everything: pd.DataFrame, study: Study) -> pd.DataFrame:
    """Return a row for each sweep: `auto` against the library, and how near it comes to the roofline."""
    df = where(everything, variant="auto").set_index(POINT)
    moved_us = df["least_bytes"] / study.ceiling("copy", "gbps") / 1e3
    multiplied_us = df["useful_flops"] / study.ceiling("fma", "tflops") / 1e6
    share = np.maximum(moved_us, multiplied_us) / df["median_us"]
    groups = df.assign(speedup=ratio(everything, "auto", BEST, POINT), share=share).groupby("experiment", sort=False)
    spread = groups["speedup"].agg(mean=records.geomean, least="min", most="max", points="count")
    return spread.assign(share=groups["share"].median()).reset_index()


def preprocessing(everything: pd.DataFrame) -> pd.DataFrame:
    """Return what preparing costs, and after how many multiplications it is worth it against the library."""
    library = where(everything, variant=BEST).set_index(POINT)[["median_us", "prepare_ms"]].add_suffix("_library")
    df = where(everything, variant=("split_rows", "shared_tiles", "auto", "in_flight"))
    df = df.join(library, on=POINT)
    gain_us = df["median_us_library"] - df["median_us"]
    extra_us = 1e3 * (df["prepare_ms"] - df["prepare_ms_library"])
    even = np.select([extra_us <= 0, gain_us > 0], [0, np.ceil(extra_us / gain_us)], np.inf)
    groups = df.assign(even=even, mib=df["prepare_bytes"] / 2**20).groupby("variant", sort=False)
    table = groups["prepare_ms"].agg(median="median", largest="max")
    return table.assign(mib=groups["mib"].max(), even=groups["even"].median()).reset_index()


def odd(ragged: pd.DataFrame) -> pd.DataFrame:
    """Return the library's time and speedups over it at each odd N."""
    speedups = {v: ratio(ragged, v, BEST, "n") for v in ("any_n", "in_flight", "split_rows", "auto")}
    return pd.DataFrame({"library": by(ragged, BEST, key="n")} | speedups).reset_index()


@given
def speedups(real: pd.DataFrame) -> pd.DataFrame:
    """Return a row for each real matrix: domain, m, nnz, speedups over the library."""
    table = real.drop_duplicates("label").set_index("label")[["m", "nnz"]]
    table = table.join(matrices.listed().set_index("name")["domain"])
    shown = ("warp_per_row", "in_flight", "split_rows", "auto")
    return table.assign(**{v: ratio(real, v, BEST, "label") for v in shown}).rename_axis("matrix").reset_index()


def errors(everything: pd.DataFrame) -> pd.DataFrame:
    """Return the largest errors of each contender over all points."""
    df = everything[everything["variant"] != BEST]
    return df.groupby("variant", sort=False)[["rel_err", "max_err"]].max().reset_index()


# ---------------------------------------------------------------- counters

#: Metric → the column of a table.
METRICS = {
    "dram__throughput.avg.pct_of_peak_sustained_elapsed": "DRAM",
    "lts__throughput.avg.pct_of_peak_sustained_elapsed": "L2",
    "l1tex__throughput.avg.pct_of_peak_sustained_active": "L1 and shared",
    "lts__t_sector_hit_rate.pct": "L2 hits",
    "l1tex__t_sector_hit_rate.pct": "L1 hits",
    "sm__warps_active.avg.pct_of_peak_sustained_active": "occupancy",
}
FROM_DRAM = "dram__bytes_read.sum"
#: Metric → the memory whose traffic it counts, the farthest from the cores first, and the bytes of one count.
TRAFFIC = {
    FROM_DRAM: ("DRAM", 1),
    "dram__bytes_write.sum": ("DRAM", 1),
    "lts__t_sectors_op_read.sum": ("L2", 32),
    "lts__t_sectors_op_red.sum": ("L2", 32),
    "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum": ("shared memory", 128),
}
SIZES = ["m", "n", "k", "density"]


def counted(counters: Counters) -> pd.DataFrame:
    """Return SIZES, variant and a column for each of METRICS, per cent; empty without counters."""
    return counters.wide(METRICS, *SIZES)


def dense(counted: pd.DataFrame) -> pd.DataFrame:
    """Return the largest density of the shapes that fill the GPU, of `counted`."""
    return counted[(counted["density"] == counted["density"].max()) & (counted["m"] > 1024)]


def at_most_dense(counters: Counters) -> pd.DataFrame | None:
    """Return what the table of counters shows; None without counters."""
    if not counters:
        return None
    shown = ("warp_per_row", "in_flight", "shared_tiles", "cusparse_alg2", "cusparse_alg3")
    df = where(dense(counted(counters)), variant=shown)
    shape = df[["m", "n", "k"]].astype(str).agg(" × ".join, axis=1)
    return df.assign(shape=shape.where(~shape.duplicated(), ""))


def traffic(counters: Counters) -> pd.DataFrame:
    """Return SIZES, variant, group (the sweep that a shape is of), memory and its TB/s."""
    rows, key = counters.rows, [*SIZES, "variant"]
    time_ns = where(rows, metric=ncu.TIME).set_index(key)["value"].rename("time_ns")
    memory, size = (rows["metric"].map({metric: what[i] for metric, what in TRAFFIC.items()}) for i in (0, 1))
    df = rows.assign(memory=memory, bytes=rows["value"] * size).groupby([*key, "memory"], sort=False)["bytes"].sum()
    df = df.reset_index().join(time_ns, on=key).sort_values("memory", kind="stable")
    square, tall = (df["m"] == df["n"]) & (df["n"] == df["k"]), df["m"] > df["k"]
    group = np.select([square, tall], ["square", "tall"], "wide")
    return df.assign(tbps=df["bytes"] / df["time_ns"] / 1e3, group=group)


# ---------------------------------------------------------------- what figures draw


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
    of_panels = pd.DataFrame(row | {"density": d} for d in sorted(df["density"].unique()) for row in said)
    return pd.concat([df, of_panels], ignore_index=True)


def _ranges(rates: pd.DataFrame, ceilings: list[tuple[str, str, float]]) -> pd.DataFrame:
    """Return the median and the range of TB/s of each contender and group of points at each memory.

    With its largest share of the memory's first ceiling, and the ceilings: memory, name, TB/s.
    """
    key = ["memory", "variant", "group"]
    df = rates.groupby(key, sort=False)["tbps"].agg(points="count", least="min", median="median", most="max")
    tops = pd.DataFrame(ceilings, columns=["memory", "variant", "median"]).assign(source="ceiling")
    df = df.reset_index().assign(source="measured")
    df["ceiling"] = df["memory"].map(tops.groupby("memory", sort=False)["median"].first())
    share = df.groupby(["memory", "variant"])["most"].transform("max") / df["ceiling"]
    return pd.concat([df.assign(share=share), tops], ignore_index=True)


def asked(everything: pd.DataFrame, study: Study) -> pd.DataFrame:
    """Return what the points of the sweeps ask of the memories, by arithmetic.

    Every row of B that a gather reads, and every operand once.
    """
    gather, once = "every read of the gather", "A, B and C once"
    rates = pd.concat(
        everything[["variant"]].assign(
            group=everything["experiment"], memory=memory, tbps=everything[column] / everything["median_us"] / 1e6
        )
        for memory, column in ((gather, "requested_bytes"), (once, "least_bytes"))
    )
    tops = ((gather, "L2"), (gather, "shared memory"), (once, "DRAM"))
    return _ranges(rates, [(what, memory, study.ceiling(MEMORIES[memory], "gbps") / 1e3) for what, memory in tops])


def memories(study: Study) -> pd.DataFrame | None:
    """Return what Nsight Compute counted at each memory; None without its counters."""
    if not study.counters:
        return None
    tops = [(memory, "ceiling", study.ceiling(name, "gbps") / 1e3) for memory, name in MEMORIES.items()]
    return _ranges(traffic(study.counters), tops)


def ladder(everything: pd.DataFrame, study: Study) -> pd.DataFrame:
    """Return the mean and the range of each rung's speedup by sweep, and its prediction.

    With what the source states of the published kernel.
    """
    predictions = {v: system.VARIANTS[v].prediction for v in system.VARIANTS if v in set(everything["variant"])}
    stated = [
        study.stated(figure, "speedup")[["low", "high"]].assign(variant=next(iter(predictions)), experiment=sweep)
        for sweep, figure in SWEEPS.items()
    ]
    both = {"measured": rungs(everything, predictions, BEST), "stated": pd.concat(stated)}
    return pd.concat(both, names=["source"]).reset_index("source").reset_index(drop=True)


@given
def by_matrix(table: pd.DataFrame) -> pd.DataFrame:
    """Return the speedup on each matrix of `speedups`, the largest of `auto` on top."""
    speeds = table.set_index("matrix").drop(columns=["domain", "m", "nnz"]).sort_values("auto", ascending=False)
    return speeds.rename_axis(index="row", columns="variant").stack().rename("value").dropna().reset_index()


@given
def spread(first: pd.DataFrame, second: pd.DataFrame) -> pd.DataFrame:
    """Return the second run over the first, point by point."""
    shown = ["warp_per_row", "auto", "cusparse_alg2", "cusparse_alg3"]
    return repeated(where(first, variant=shown), second)
