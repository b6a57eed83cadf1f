"""What the chapter measures, or reads from records, and what its tables, figures and facts say of it.

Records have rows of "cusparse_best" as well, the fastest algorithm of cuSPARSE at each point. Facts are by the part of
the chapter that they stand in.
"""

from collections.abc import Iterator, Mapping
from functools import partial
from itertools import chain

import numpy as np
import pandas as pd

from artifact.book.facts import Fact, Facts, part, summary
from artifact.book.study import MEMORIES, Counters, Study, by, given, mean, ratio, repeated, rungs, where
from artifact.measure import durations, matrices, records
from artifact.measure.run import Run
from artifact.profiling import ncu
from kernels import casper_sparse as system

PUBLISHED, BEST = "warp_per_row", "cusparse_best"
POINT = ["experiment", *records.POINT]
#: Odd numbers of columns, M = K = 4096, 1%.
RAGGED = {"full": (1, 3, 5, 17, 33, 65, 129, 257, 1001), "kick": (3, 65, 257)}
REAL_N = 256  #: columns of B for real matrices
N = 4096  #: columns of B whose instantiations the table of machine code shows
#: Variant → the instantiation that N takes; `auto` has none.
USED = {name: system.entry(name, N) for name, kernel in system.VARIANTS.items() if kernel.entries}
#: Sweep → the source's figure.
SWEEPS = {"wide": "fig4_wide", "square": "fig5_square", "tall": "fig6_tall"}
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

# ---------------------------------------------------------------- records


def sweeps(run: Run) -> pd.DataFrame:
    """Measure or read the source's three sweeps, all contenders; without rows of BEST."""
    contenders = run.variants() | run.baselines()
    return pd.concat(
        [
            run.measure(name, [partial(system.problem, **shape, seed=run.seed) for shape in shapes], contenders)
            for name, shapes in system.sweeps(run.preset).items()
        ],
        ignore_index=True,
    )


def again(run: Run) -> pd.DataFrame | None:
    """Measure or read the sweeps a second time; None where no second run was recorded."""
    return sweeps(run) if run.mode == "measure" or (run.folder / "wide.csv").exists() else None


def ragged(run: Run) -> pd.DataFrame:
    """Measure or read odd numbers of columns, for the variants that take more than multiples of four.

    Return the library's time and speedups over it at each N.
    """
    df = records.best_of(
        run.measure(
            "ragged",
            [partial(system.problem, m=4096, n=n, k=4096, density=0.01, seed=run.seed) for n in RAGGED[run.preset]],
            run.variants(v for v in system.VARIANTS if v not in (PUBLISHED, "no_staging", "shared_tiles"))
            | run.baselines(),
        )
    )
    return pd.DataFrame(
        {"library": by(df, BEST, key="n")}
        | {v: ratio(df, v, BEST, "n") for v in ("any_n", "in_flight", "split_rows", "auto")}
    ).reset_index()


def real(study: Study) -> pd.DataFrame | None:
    """Measure real matrices from the folder that the user names, or read them; None where there are no records.

    Return a row for each: domain, m, nnz, speedups over the library.
    """
    run, listed = study.run, matrices.listed().set_index("name").head({"kick": 3}.get(study.run.preset, 1000))
    if run.mode == "measure" and (folder := matrices.folder()):
        run.measure(
            "real",
            [system.problem_from_csr(matrices.load(name, folder), REAL_N, run.seed, name) for name in listed.index],
            run.variants() | run.baselines(),
        )
    if (df := study.read("real")) is None:
        return None
    df = where(records.best_of(df), label=listed.index)
    return (
        df.drop_duplicates("label")
        .set_index("label")[["m", "nnz"]]
        .join(listed["domain"])
        .assign(**{v: ratio(df, v, BEST, "label") for v in (PUBLISHED, "in_flight", "split_rows", "auto")})
        .rename_axis("matrix")
        .reset_index()
    )


# ---------------------------------------------------------------- tables of the sweeps


def last_rung(everything: pd.DataFrame, study: Study) -> pd.DataFrame:
    """Return a row for each sweep: `auto` against the library, and how near it comes to the roofline."""
    return (
        where(everything, variant="auto")
        .set_index(POINT)
        .assign(
            speedup=ratio(everything, "auto", BEST, POINT),
            moved_us=lambda df: df["least_bytes"] / study.ceiling("copy", "gbps") / 1e3,
            multiplied_us=lambda df: df["useful_flops"] / study.ceiling("fma", "tflops") / 1e6,
            share=lambda df: df[["moved_us", "multiplied_us"]].max(axis=1, skipna=False) / df["median_us"],
        )
        .groupby("experiment", sort=False)
        .agg(
            **{"mean": ("speedup", records.geomean), "least": ("speedup", "min"), "most": ("speedup", "max")},
            points=("speedup", "count"),
            share=("share", "median"),
        )
        .reset_index()
    )


def preprocessing(everything: pd.DataFrame) -> pd.DataFrame:
    """Return what preparing costs, and after how many multiplications it is worth it against the library."""
    library = where(everything, variant=BEST).set_index(POINT)[["median_us", "prepare_ms"]].add_suffix("_library")
    return (
        where(everything, variant=("split_rows", "shared_tiles", "auto", "in_flight"))
        .join(library, on=POINT)
        .assign(
            gain_us=lambda df: df["median_us_library"] - df["median_us"],
            extra_us=lambda df: 1e3 * (df["prepare_ms"] - df["prepare_ms_library"]),
            even=lambda df: np.select(
                [df["extra_us"] <= 0, df["gain_us"] > 0], [0, np.ceil(df["extra_us"] / df["gain_us"])], np.inf
            ),
            mib=lambda df: df["prepare_bytes"] / 2**20,
        )
        .groupby("variant", sort=False)
        .agg(
            **{"median": ("prepare_ms", "median"), "largest": ("prepare_ms", "max")},
            mib=("mib", "max"),
            even=("even", "median"),
        )
        .reset_index()
    )


def errors(everything: pd.DataFrame) -> pd.DataFrame:
    """Return the largest errors of each contender over all points."""
    return (
        everything[everything["variant"] != BEST]
        .groupby("variant", sort=False)[["rel_err", "max_err"]]
        .max()
        .reset_index()
    )


# ---------------------------------------------------------------- counters

OCCUPANCY = "sm__warps_active.avg.pct_of_peak_sustained_active"
#: Metric → the column of a table.
METRICS = {
    "dram__throughput.avg.pct_of_peak_sustained_elapsed": "DRAM",
    "lts__throughput.avg.pct_of_peak_sustained_elapsed": "L2",
    "l1tex__throughput.avg.pct_of_peak_sustained_active": "L1 and shared",
    "lts__t_sector_hit_rate.pct": "L2 hits",
    "l1tex__t_sector_hit_rate.pct": "L1 hits",
    OCCUPANCY: "occupancy",
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
    """Return the largest density of the shapes that fill the GPU: SIZES, variant, a column for each of METRICS.

    In per cent; empty without counters.
    """
    return counters.wide(METRICS, *SIZES).loc[lambda df: (df["density"] == df["density"].max()) & (df["m"] > 1024)]


@given
def at_most_dense(counters: Counters) -> pd.DataFrame:
    """Return what the table of counters shows."""
    df = where(counted(counters), variant=(PUBLISHED, "in_flight", "shared_tiles", "cusparse_alg2", "cusparse_alg3"))
    shape = df[["m", "n", "k"]].astype(str).agg(" × ".join, axis=1)
    return df.assign(shape=shape.mask(shape.duplicated(), ""))


def traffic(counters: Counters) -> pd.DataFrame:
    """Return SIZES, variant, group (the sweep that a shape is of), memory and its TB/s."""
    rows, key = counters.rows, [*SIZES, "variant"]
    memory, size = (rows["metric"].map({metric: what[i] for metric, what in TRAFFIC.items()}) for i in (0, 1))
    return (
        rows.assign(memory=memory, bytes=rows["value"] * size)
        .groupby([*key, "memory"], sort=False)["bytes"]
        .sum()
        .reset_index()
        .join(where(rows, metric=ncu.TIME).set_index(key)["value"].rename("time_ns"), on=key)
        .sort_values("memory", kind="stable")
        .assign(
            tbps=lambda df: df["bytes"] / df["time_ns"] / 1e3,
            group=lambda df: np.select(
                [(df["m"] == df["n"]) & (df["n"] == df["k"]), df["m"] > df["k"]], ["square", "tall"], "wide"
            ),
        )
    )


# ---------------------------------------------------------------- what figures draw


def sweep(everything: pd.DataFrame, study: Study, experiment: str) -> pd.DataFrame:
    """Return times, rates and speedups of a sweep, and below them what the source states of both and a copy's rate."""
    df = (
        where(everything, experiment=experiment)
        .join(by(everything, BEST, key=POINT).rename("best_us"), on=POINT)
        .assign(speedup=lambda df: df["best_us"] / df["median_us"], source="measured")
    )
    copy, stated = study.ceiling("copy", "gbps"), study.published(SWEEPS[experiment]).set_index("quantity")
    share = stated.loc[stated.index == "vram_throughput", ["low", "high"]].fillna(100) / 100 * copy
    said = [
        {"quantity": "speedup", "source": "stated"} | stated.loc["speedup", ["low", "high"]].to_dict(),
        *({"quantity": "gbps", "source": "stated"} | ends for ends in share.to_dict("records")),
        {"quantity": "gbps", "source": "ceiling", "variant": "copy", "low": copy, "high": copy},
    ]
    return pd.concat(
        [df, pd.DataFrame(row | {"density": d} for d in sorted(df["density"].unique()) for row in said)],
        ignore_index=True,
    )


def _ranges(rates: pd.DataFrame, ceilings: list[tuple[str, str, float]]) -> pd.DataFrame:
    """Return the median and the range of TB/s of each contender and group of points at each memory.

    With its largest share of the memory's first ceiling, and the ceilings: memory, name, TB/s.
    """
    tops = pd.DataFrame(ceilings, columns=["memory", "variant", "median"]).assign(source="ceiling")
    df = (
        rates.groupby(["memory", "variant", "group"], sort=False)["tbps"]
        .agg(points="count", least="min", median="median", most="max")
        .reset_index()
        .assign(
            source="measured",
            ceiling=lambda df: df["memory"].map(tops.groupby("memory", sort=False)["median"].first()),
            share=lambda df: df.groupby(["memory", "variant"])["most"].transform("max") / df["ceiling"],
        )
    )
    return pd.concat([df, tops], ignore_index=True)


def asked(everything: pd.DataFrame, study: Study) -> pd.DataFrame:
    """Return what the points of the sweeps ask of the memories, by arithmetic.

    Every row of B that a gather reads, and every operand once.
    """
    gather, once = "every read of the gather", "A, B and C once"
    return _ranges(
        pd.concat(
            everything[["variant"]].assign(
                group=everything["experiment"], memory=memory, tbps=everything[column] / everything["median_us"] / 1e6
            )
            for memory, column in ((gather, "requested_bytes"), (once, "least_bytes"))
        ),
        [
            (what, memory, study.ceiling(MEMORIES[memory], "gbps") / 1e3)
            for what, memory in ((gather, "L2"), (gather, "shared memory"), (once, "DRAM"))
        ],
    )


@given
def memories(study: Study, counters: Counters) -> pd.DataFrame:
    """Return what Nsight Compute counted at each memory."""
    return _ranges(
        traffic(counters),
        [(memory, "ceiling", study.ceiling(name, "gbps") / 1e3) for memory, name in MEMORIES.items()],
    )


def ladder(everything: pd.DataFrame, study: Study) -> pd.DataFrame:
    """Return the mean and the range of each rung's speedup by sweep, and its prediction.

    With what the source states of the published kernel.
    """
    predictions = {v: system.VARIANTS[v].prediction for v in system.VARIANTS if v in set(everything["variant"])}
    stated = pd.concat(
        study.stated(figure, "speedup")[["low", "high"]].assign(variant=next(iter(predictions)), experiment=sweep)
        for sweep, figure in SWEEPS.items()
    )
    return (
        pd.concat({"measured": rungs(everything, predictions, BEST), "stated": stated}, names=["source"])
        .reset_index("source")
        .reset_index(drop=True)
    )


@given
def by_matrix(table: pd.DataFrame) -> pd.DataFrame:
    """Return the speedup on each matrix of `real`, the largest of `auto` on top."""
    return (
        table.set_index("matrix")
        .drop(columns=["domain", "m", "nnz"])
        .sort_values("auto", ascending=False)
        .rename_axis(index="row", columns="variant")
        .stack()
        .rename("value")
        .dropna()
        .reset_index()
    )


@given
def spread(first: pd.DataFrame, second: pd.DataFrame) -> pd.DataFrame:
    """Return the second run over the first, point by point."""
    return repeated(where(first, variant=[PUBLISHED, "auto", "cusparse_alg2", "cusparse_alg3"]), second)


# ---------------------------------------------------------------- facts


def of(run: Run) -> Iterator[Fact]:
    """Return every fact that records hold."""
    study, raw = Study(run), sweeps(run)
    df = records.best_of(raw)
    return chain(
        over_library(df, study),
        limits(study.counters or None),
        gains(df, run.machine),
        behind(ragged(run)),
        on_matrices(real(study)),
        accuracy(df),
        repeats(raw, again(study.again.run)),
    )


@part
def compiled(report: pd.DataFrame) -> Facts:
    """Return what this page's compiler made, by its report."""
    df = report.drop_duplicates(["entry", "target"])
    return {
        "compiled": {
            "entries": df["entry"].nunique(),
            "targets": ", ".join(df["target"].unique()),
            "count": len(df),
            "spilling": int(df["spills"].astype(bool).sum()),
            "n": N,
        },
        "registers": pd.Series(USED).map(where(df, target="sm_90a").set_index("entry")["registers"]),
    }


@part
def over_library(df: pd.DataFrame, study: Study) -> Facts:
    """Return where the published kernel is ahead of the library.

    What a gather could do at most, and what the published kernel draws, TB/s and TFLOP/s.
    """
    once = df.drop_duplicates([*records.POINT, "variant"])  # 4096³ is a point of two sweeps
    points, l2 = once.drop_duplicates([*records.POINT]), study.machine["l2_bytes"]
    fits = 4 * points["k"] * points["n"] <= l2
    ours = {base: ratio(once, PUBLISHED, base, [*records.POINT]) for base in (BEST, "cusparse_default")}
    over = {sweep: v for sweep, v in ratio(df, PUBLISHED, BEST, POINT).groupby("experiment", sort=False)}
    by_n, rows = over["wide"].groupby("n").agg(records.geomean), where(df, variant=PUBLISHED)
    return {
        "points": {"count": len(points), "fit_l2": int(fits.sum()), "share_fit_l2": fits.mean()},
        "room": {"variants": len(system.VARIANTS), "tried": len(system.TRIED)},
        "l2_mib": l2 / 2**20,
        "winners": by(once, BEST, "best_of").str.removeprefix("cusparse_").value_counts(),
        "published": {sweep: summary(values) | {"ahead": (values > 1).mean()} for sweep, values in over.items()},
        **{name: {"n": by_n.index[at], "ratio": by_n.iloc[at]} for name, at in (("narrowest", 0), ("widest", -1))},
        **{
            name: {"share": (ours[base] > 1).mean(), "mean": records.geomean(ours[base])}
            for name, base in (("ahead", BEST), ("ahead_default", "cusparse_default"))
        },
        **{
            name: {"tbps": rate / 1e3, "tflops": rate / 2e3}
            for name in ("l2", "shared")
            for rate in [study.ceiling(f"{name}_read", "gbps")]
        },
        "drawn": (rows["requested_bytes"] / rows["median_us"] / 1e6).groupby(rows["experiment"], sort=False).max(),
    }


@part
def limits(counters: Counters) -> Facts:
    """Return what Nsight Compute counted at the largest density, per cent."""
    dense, columns = counted(counters), {"DRAM": "dram", "L2 hits": "l2_hits", "L1 hits": "l1_hits"}
    points = dense["variant"] + ".m" + dense["m"].astype(str) + "n" + dense["n"].astype(str)
    at = {"m": dense["m"].max(), "density": counters.rows["density"].max()}
    read = [counters.get(v, FROM_DRAM, **at) for v in ("rows_per_warp", "in_flight")]
    return {
        "counted": {
            "density": at["density"],
            "n": where(dense, m=4096)["n"].max(),
            "ordered": _ends(dense, ("l2_panels", "in_flight", "cusparse_alg2"), {"L2": "l2", "DRAM": "dram"}),
            "tiles": _ends(dense, "shared_tiles", {"L2": "l2", "L1 and shared": "shared"}),
            **dense[[*columns]].rename(columns=columns).set_index(points).to_dict("index"),
            "few_rows.occupancy": counters.where(variant=PUBLISHED, m=1024, metric=OCCUPANCY).rows["value"].max(),
        },
        "second_cost": {"l1_hits": counters.get("rows_per_warp", "l1tex__t_sector_hit_rate.pct", **at)}
        | {"from_dram": read[0] / read[1]},
    }


def _ends(df: pd.DataFrame, variant: str | tuple[str, ...], columns: Mapping[str, str]) -> pd.DataFrame:
    """Return the least and the largest of these columns, by their new names."""
    return (
        where(df, variant=variant)[[*columns]].agg(["min", "max"]).set_axis(["low", "high"]).rename(columns=columns).T
    )


@part
def gains(df: pd.DataFrame, machine: Mapping) -> Facts:
    """Return what each rung gains over the one that it changes, ladder.VARIANT.SWEEP, and how near `auto` is."""
    steps = {v: {sweep: mean(df, v, base, experiment=sweep) for sweep in at} for v, (base, *at) in STEPS.items()}
    steps["l2_panels"]["widest"] = mean(
        df, "l2_panels", PUBLISHED, experiment="wide", n=where(df, experiment="wide")["n"].max()
    )
    regret = by(df, "auto", key=POINT) / where(df, variant=system.TRIED).groupby(POINT)["median_us"].min() - 1
    return {
        "ladder": steps
        | {"shared_tiles": {"densest": mean(df, "shared_tiles", "in_flight", density=df["density"].max())}},
        "rows_of_an_sm": 4096 // machine["sm_count"],
        "regret": {"median": abs(regret.median()), "most": regret.max()},
    }


@part
def behind(odd: pd.DataFrame) -> Facts:
    """Return where `auto` is behind the library, and where real matrices are listed; odd: of `ragged`."""
    behind, least = odd["n"][odd["auto"] < 1], odd.loc[odd["auto"].idxmin()]
    return {
        "ragged": {"points": len(odd), "behind": len(behind), "where": ", ".join(map(str, behind))}
        | {"least": {"n": int(least["n"]), "ratio": least["auto"]}},
        "matrices": {"folder": matrices.VARIABLE, "list": matrices.LIST.name},
    }


@part
def on_matrices(table: pd.DataFrame) -> Facts:
    """Return how real matrices go; table: of `real`."""
    least = table.loc[table["auto"].idxmin()]
    return {
        "real": {"matrices": len(table), "n": REAL_N, "behind": int((table["auto"] < 1).sum())}
        | {"mean": table[[PUBLISHED, "split_rows", "auto"]].apply(records.geomean)}
        | {"least": {"matrix": least["matrix"], "ratio": least["auto"]}}
    }


@part
def accuracy(df: pd.DataFrame) -> Facts:
    """Return the largest relative errors; those of the library that lose less than half of what ours do."""
    error = errors(df).set_index("variant")["rel_err"]
    mine = error.index.isin(system.VARIANTS)
    better = [f"`{v.removeprefix('cusparse_')}`" for v in error.index[~mine & (error < error[mine].max() / 2)]]
    return {"error": {"bound": error.max() * 1.05, "better": len(better), "who": ", ".join(better)}}


@part
def repeats(first: pd.DataFrame, second: pd.DataFrame) -> Facts:
    """Return how far a second run is from the first."""
    off = durations.apart(first, second)
    return {"again": {"count": len(off), "median": off.median(), "most": off.max(), "ninetieth": off.quantile(0.9)}}
