"""What the chapter shows and says: records in, a table or facts out.

Tables stand as they are (tables.toml) or are drawn (figures.toml). Facts are by the part of the chapter that they stand
in: nested, as its text reads them.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from artifact.baselines.cublas import READINGS
from artifact.book.facts import Fact, flat, summary
from artifact.book.study import Study, by, given, pivot, ratio, where
from artifact.drawing.compiled import HOPPER
from artifact.measure import durations
from artifact.measure.run import Run
from artifact.profiling import ncu
from artifact.systems.nm_cuda_core import experiments
from artifact.systems.nm_cuda_core.experiments import LETTER, ON_CPU, PATTERN_KERNELS, PUBLISHED, VARIANTS
from kernels import jit, nm_cuda_core as system
from kernels.contract import Problem
from kernels.formats import nm

#: The report's card: TFLOP/s of its cores (section 4.1) at the boost clock, and its GB/s; those of the 16 lanes of PCIe
#: 3.0 that the Xeon E5-2650 v2 of its host has.
CARD = {"tflops": 2 * 5888 * 2.475e9 / 1e12, "gbps": 504, "slot_gbps": 16 * 8e9 * 128 / 130 / 8e9}
FFMA = "sm__sass_thread_inst_executed_op_ffma_pred_on.sum"
READS = "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum"
TRAFFIC = "l1tex__t_bytes.sum"
#: What is busy -> metric, in per cent of its peak.
PIPES = {
    "shared": "l1tex__data_pipe_lsu_wavefronts.avg.pct_of_peak_sustained_elapsed",
    "fma": "sm__inst_executed_pipe_fma.avg.pct_of_peak_sustained_active",
    "l2": "lts__throughput.avg.pct_of_peak_sustained_elapsed",
    "dram": "dram__throughput.avg.pct_of_peak_sustained_elapsed",
    "warps": "sm__warps_active.avg.pct_of_peak_sustained_active",
}

#: What identifies a number of Fig. 3, and the sizes that it has.
NUMBER = ["metric", "source", "size", "variant", "quantity"]
SIZES = (256, 2048)
#: What a speedup is over → the published quantity, or what is none.
OVER = {"cpu_loop": "speedup_cpu", "cublas_handle": "speedup_cublas", "cublas": "speedup_alone"}
#: Reading → the part of a call that it adds; the term of the fit that grows as a part does.
PARTS = {"cublas": "kernel", "cublas_transfers": "copies", "cublas_allocation": "allocation", "cublas_handle": "handle"}
TERMS = {"cube_ms": "kernel", "square_ms": "copies", "constant_ms": "handle"}


def of(run: Run) -> Iterator[Fact]:
    """Yield every fact that records hold."""
    study = Study(run)
    scaling, published = (experiments.measure(study, name) for name in ("scaling", "published"))
    sequential = experiments.on_cpu(study)
    return flat(
        library(scaling, published, sequential)
        | contains(study, published)
        | of_variants(scaling)
        | counted(study)
        | beyond(scaling, experiments.measure(study, "element_wise"), study.ceiling("fma", "tflops"))
        | runs(study, scaling, experiments.second(study), sequential)
    )


def by_size(speedup: pd.Series) -> dict[str, Any]:
    """Return the spread of a speedup over all sizes and on both sides of 1024³, and how often it is above 1."""
    small, ahead = speedup.index < 1024, int((speedup > 1).sum())
    return (
        summary(speedup)
        | {"below_1024": summary(speedup[small]), "from_1024": summary(speedup[~small]), "at": speedup}
        | {"largest": speedup.iloc[-1], "ahead": ahead, "behind": len(speedup) - ahead}
    )


# ---------------------------------------------------------------- which index, machine code


def which_index(run: Run) -> Iterator[Fact]:
    """Yield how far what the published gather multiplies is from A · B.

    Of the smallest element-wise 2:4 case, in float64; with a GPU also how far off the kernel itself is.
    """
    case, shared = (system.problem(32, 32, 64, seed=run.seed, vector=vector) for vector in (1, 32))
    a, b, vectors = case.host().a.astype(np.float64), case.host().b, shared.host().b
    right, gathered = a @ nm.to_dense(b), a @ nm.to_dense(system.as_gathered(b))
    columns = np.flatnonzero(np.abs(gathered - right).max(axis=0) <= 1e-6 * np.abs(right).max())
    return flat(
        {
            "gather": {
                "error": _off(gathered, right),
                "right": len(columns),
                "same_if_shared": np.array_equal(nm.to_dense(system.as_gathered(vectors)), nm.to_dense(vectors)),
            }
            | {"where": ", ".join(f"column {c}" for c in columns[:4])},
            "run_here": run_here(run, case, {"from_right": right, "from_gathered": gathered}) if run.device else {},
        }
    )


def run_here(run: Run, case: Problem, references: dict[str, np.ndarray]) -> dict[str, float]:
    """Return how far what the baseline computes of a case that it does not take is from each of `references`."""
    import cupy

    bound = system.prepare("baseline", case, run.device, shared_indices=False)
    bound.launch(run.device.default_stream)
    run.device.sync()
    out = cupy.asnumpy(bound.result())
    case.release()
    return {name: _off(out, reference) for name, reference in references.items()}


def _off(out: np.ndarray, reference: np.ndarray) -> float:
    return float(np.linalg.norm(out - reference) / np.linalg.norm(reference))


def compiled(report: pd.DataFrame, prefetch: pd.DataFrame) -> Iterator[Fact]:
    """Yield what the compile report holds, with registers a thread on Hopper for the 2:4 pattern.

    What the compiler makes there of the source's kernels to the letter, and of ours; on how many targets `prefetch`,
    as `experiments.prefetch` compares it, is not the baseline.
    """
    distinct, names = report.drop_duplicates(["entry", "target"]), (*LETTER, "baseline", "double_buffer")
    made = jit.reports([jit.compile_cubin(system.VARIANTS[v].source, system.entry(v), HOPPER) for v in names])
    kinds = {"stores": "STG", "generic_loads": "LD.", "global_loads": "LDG."}
    return flat(
        {
            "compiled": {
                "targets": ", ".join(report["target"].unique()),
                "entries": distinct["entry"].nunique(),
                "count": len(distinct),
                "spilling": int(distinct["spills"].astype(bool).sum()),
            },
            "registers": where(report, target=HOPPER, entry=[*map(system.entry, VARIANTS)]).set_index("variant")[
                "registers"
            ],
            "code": {
                name: {"registers": used.registers, "stack_bytes": used.stack_bytes}
                | {what: sum(n for op, n in mix.items() if op.startswith(kind)) for what, kind in kinds.items()}
                for name, (used, mix) in zip(names, made, strict=True)
            }
            | {"target": HOPPER, "prefetch": {"targets_that_differ": (prefetch["same"] == "no").sum()}},
        }
    )


# ---------------------------------------------------------------- the library, the variants


def library(scaling: pd.DataFrame, published: pd.DataFrame, sequential: pd.DataFrame | None) -> dict[str, Any]:
    """Return speedups over cuBLAS by size; at 512³ over a call that makes a handle, in each record that has both."""
    return {
        "largest": scaling["m"].max(),
        "over_cublas": {v: by_size(ratio(scaling, v, "cublas")) for v in ("verbatim", "baseline", "zigzag")},
        "with_handle": {
            name: ratio(df, LETTER[0], "cublas_handle").get(512)
            for name, df in (("published", published), ("cpu", sequential))
            if df is not None
        },
    }


def contains(study: Study, published: pd.DataFrame) -> dict[str, Any]:
    """Return what a call of the report's cuBLAS contains, by the fit of its times, and what its parts cost here, µs."""
    theirs = experiments.stated(study)
    fit = experiments.fit(theirs)
    without_one = [experiments.fit(theirs.drop(size)).rates["tflops"] for size in theirs.index]
    terms, near = fit.terms([1024, 4096, 8192]), experiments.compare(published, theirs)[0]
    faster, rate = (study.stated("fig2", quantity, size=1024).iloc[0] for quantity in ("speedup_cublas", "tflops"))
    costs = {reading.removeprefix("cublas_"): by(published, reading).iloc[0] for reading in READINGS}
    alone = costs.pop("cublas")
    return {
        "stated": {"us_64": theirs[64] * 1e6, "ms_4096": theirs[4096] * 1e3, "ms_8192": theirs[8192] * 1e3},
        "fit": fit.rates
        | {"square": {f"ms_{size}": terms["square_ms"][size] for size in (4096, 8192)}}
        | {"without_one": {"low": min(without_one), "high": max(without_one)}, "ms_1024": terms.loc[1024].sum()},
        "card": CARD,
        "implied_ms": {end: faster["low"] * 1024**3 / rate[of] / 1e9 for end, of in (("low", "high"), ("high", "low"))},
        "costs_us": {"multiplication": alone} | {part: cost - alone for part, cost in costs.items()},
        "worst_factor": near["worst_factor"],
    }


def of_variants(scaling: pd.DataFrame) -> dict[str, Any]:
    """Compare each variant with the baseline, and the report's kernels to the letter with ours of the same idea.

    Name the fastest at each size.
    """
    mine = where(scaling, variant=VARIANTS)
    return {
        "over": {v: by_size(ratio(scaling, v, "baseline")) for v in VARIANTS[1:]},
        "lanes": by_size(ratio(scaling, "zigzag", "double_buffer_split1")),
        "fastest": mine.loc[mine.groupby("m")["median_us"].idxmin()].set_index("m")["variant"],
        "letter": {
            theirs: {"ours": ours} | by_size(ratio(scaling, theirs, ours))
            for theirs, ours in zip(LETTER, PUBLISHED, strict=True)
        },
    }


# ---------------------------------------------------------------- what Nsight Compute counts


def counted(study: Study) -> dict[str, Any]:
    """Return what keeps the kernels from being faster: at 256³, where most of the GPU is idle.

    At 4096³, what is busy, in per cent; wavefronts of a 16-byte read at 2048³; L1 traffic, MB, as stated, of
    `verbatim`, and of the baseline if it stored C as the report does.
    """
    get, machine, launches = study.counters.get, study.machine, ncu.launches(study.run.folder)
    traffic = study.stated("fig3", "l1_traffic", variant="baseline").drop_duplicates("size").set_index("size")["value"]
    return {
        "profile": {"launches": len(launches), "kernels": launches["kernel"].nunique()}
        | {"metrics": study.counters.rows["metric"].nunique()}
        if len(launches)
        else {},
        "machine": {"sm_count": machine["sm_count"], "l2_mib": machine["l2_bytes"] / 2**20},
        "idle": {
            v: {"time_us": get(v, ncu.TIME, m=256) / 1e3, "drain": stalled(study, v, 256, "drain")}
            for v in ("baseline", "double_buffer", "double_buffer_split1")
        },
        "busy": {
            v: {pipe: get(v, metric, m=4096) for pipe, metric in PIPES.items()}
            for v in ("baseline", "verbatim", "zigzag")
        },
        "stalls": {
            "zigzag": {why: stalled(study, "zigzag", 4096, why) for why in ("long_scoreboard", "short_scoreboard")}
        },
        "wavefronts": {v: wavefronts(study, v, 2048) for v in ("baseline", "zigzag")},
        "traffic": {
            f"at_{size}": {"stated": traffic[size], "narrow": get("baseline", TRAFFIC, m=size) / 1e6 + 12e-6 * size**2}
            | {"verbatim": get("verbatim", TRAFFIC, m=size) / 1e6}
            for size in (256, 2048)
        }
        | {v: get(v, TRAFFIC, m=2048) / get("baseline", TRAFFIC, m=2048) for v in ("prefetch", "prefetch_kept")},
    }


def stalled(study: Study, variant: str, size: int, reason: str) -> float:
    """Return the warps that wait for `reason` per instruction issued."""
    return study.counters.get(variant, ncu.STALLED.format(reason), m=size)


def wavefronts(study: Study, variant: str, size: int) -> float:
    """Return the wavefronts of a 16-byte read from shared memory; 16 multiply-adds follow two of them."""
    reads, ffma = (study.counters.get(variant, metric, m=size) for metric in (READS, FFMA))
    return reads / (ffma / 32 / 16 * 2)


# ---------------------------------------------------------------- the reversal and beyond the report


def beyond(scaling: pd.DataFrame, element: pd.DataFrame, fma: float) -> dict[str, Any]:
    """Return the rates of `verbatim` at the largest sizes, and `element_wise` on vectors and on elements.

    Ms that the requests and FLOPs of `verbatim` at 4096³ would take on the report's card; fma: the FMA ceiling,
    TFLOP/s. `element_wise` is over the baseline on vectors at the largest size, and over cuBLAS at all.
    """
    rate = by(scaling, LETTER[0], "tflops")
    requested, flops = (by(scaling, LETTER[0], what).get(4096, np.nan) for what in ("requested_bytes", "useful_flops"))
    at_4096, largest, baseline = rate.get(4096, np.nan), rate.iloc[-1], by(scaling, "baseline").iloc[-1]
    speed = ratio(element, "element_wise", "cublas")
    return {
        "fma_share": {"at_4096": at_4096 / fma, "largest": largest / fma},
        "kept_of_best": min(at_4096, largest) / rate.max(),
        "from_dram_ms": requested / (CARD["gbps"] * 1e9) * 1e3,
        # At the TFLOP/s that its section 5.1 states from 4096³ on.
        "fallen_ms": {"low": flops / 2.9 / 1e9, "high": flops / 2.1 / 1e9},
        "element_wise": {
            "vectors": by(scaling, "element_wise").iloc[-1] / baseline,
            "elements": by(element, "element_wise").iloc[-1] / baseline,
            "over_cublas": by_size(speed),
            "ahead_at": ", ".join(f"{size}³" for size in speed.index[speed > 1]) or "no size",
        },
    }


def runs(
    study: Study, scaling: pd.DataFrame, second: pd.DataFrame | None, sequential: pd.DataFrame | None
) -> dict[str, Any]:
    """Name the host, and tell how many times as fast as that the published kernel is at the largest size.

    The largest error; how far a second run is from the first, and two names of one program within a run.
    """
    off = pd.Series(dtype=float) if second is None else durations.apart(scaling, second)
    return {
        "host": {name: study.machine.get(key) for name, key in (("cpu", "cpu"), ("cores", "cpu_cores"))},
        **{
            f"over_{v}": ratio(sequential, LETTER[0], v).iloc[-1]
            for v in (() if sequential is None else ("cpu_loop", "cpu_blas"))
        },
        "error": {"most": scaling["max_err"].max()},
        "again": {"count": len(off) or None, "median": off.median(), "most": off.max()},
        "twins": {"most": (ratio(scaling, "prefetch", "baseline") - 1).abs().max()},
    }


# ---------------------------------------------------------------- figures


def _beside(measured: pd.DataFrame, study: Study, figure: str, *quantities: str) -> pd.DataFrame:
    """Put what the report states of these quantities at a size below what was measured."""
    stated = (
        pd.concat(study.stated(figure, quantity) for quantity in quantities)
        .dropna(subset=["size"])
        .drop(columns="value")
        .assign(source="stated", gpu="RTX 4070")
        .assign(kernel=lambda df: df["variant"].replace(dict(zip(PUBLISHED, LETTER, strict=True))))
    )
    return pd.concat([measured.assign(source="measured"), stated], ignore_index=True)


def scaling(study: Study, *records: pd.DataFrame | None) -> pd.DataFrame:
    """Return the time and the TFLOP/s of each contender by size; of several records with it, the first counts.

    A library, and a CPU, multiplies the dense matrix.
    """
    columns = ["experiment", "variant", "size", "density", "median_us", "q25_us", "q75_us", "time_ms", "time", "tflops"]
    df = (
        pd.concat(records)
        .drop_duplicates(["variant", "m"])
        .assign(
            size=lambda df: df["m"],
            time_ms=lambda df: df["median_us"] / 1e3,
            time=lambda df: df["time_ms"],
            flops=lambda df: df["useful_flops"] / df["density"].where(~df["variant"].isin(VARIANTS), 1),
            tflops=lambda df: df["flops"] / df["median_us"] / 1e6,
        )
    )
    return _beside(df[columns], study, "fig2", "tflops", "time")


@given
def speedups(study: Study, *records: pd.DataFrame) -> pd.DataFrame:
    """Return speedups by size, a column each.

    They are over the sequential CPU, over the report's reading of cuBLAS and over its kernel alone.
    """
    times = pivot(pd.concat(records).drop_duplicates(["variant", "m"]), "median_us")
    shown = {"cpu_loop": ["cublas", "cublas_handle", *LETTER], "cublas_handle": LETTER, "cublas": LETTER}
    table = pd.concat(
        (times[over].to_numpy()[:, None] / times[variants])
        .stack()
        .rename("speedup")
        .reset_index()
        .assign(over=over, **{OVER[over]: lambda df: df["speedup"]})
        for over, variants in shown.items()
    )
    return _beside(table.rename(columns={"m": "size"}), study, "fig2", "speedup_cpu", "speedup_cublas")


def parts_of_a_call(study: Study, published: pd.DataFrame) -> pd.DataFrame:
    """Return the parts of a cuBLAS call by size, as measured and in the fit of the report's times: ms and shares."""
    theirs, times = experiments.stated(study), experiments.measured(published)
    terms, (_, models) = experiments.fit(theirs).terms(theirs.index), experiments.compare(published, theirs)
    extra = times.sub(times["cublas"], axis=0).clip(lower=0).drop(columns="cublas")
    here = (
        pd.DataFrame(
            {"time_ms": times.stack(), "over_kernel_ms": extra.stack(), "scaled_ms": models.stack()}
            | {"part_ms": extra.assign(cublas=times["cublas"]).stack()}
        )
        .reindex(PARTS, level=1)
        .rename_axis(["size", "variant"])
        .reset_index()
        .assign(source="measured", part=lambda here: here["variant"].map(PARTS))
    )
    df = pd.concat(
        [
            here,
            pd.concat(
                terms.assign(
                    **{"time_ms": 1e3 * theirs, "stated_ms": 1e3 * theirs, "fitted_ms": terms.sum(axis=1)},
                    **{"size": theirs.index, "part": part, "part_ms": terms[term]},
                )
                for term, part in TERMS.items()
            ).assign(source="stated", variant="cublas"),
        ],
        ignore_index=True,
    ).assign(
        row=lambda df: df["size"].map("{}³, ".format) + np.where(df["source"] == "stated", "fit", "here"),
        share=lambda df: df.groupby("row")["part_ms"].transform(lambda parts: 100 * parts / parts.sum()),
        whole_ms=lambda df: df.groupby("row")["part_ms"].transform("sum"),
    )
    return df.sort_values(["size", "source"], kind="stable")


def variants(df: pd.DataFrame, base: str) -> pd.DataFrame:
    """Return each contender's performance over that of `base` by size.

    With whether it is the fastest, or within 2% of it, by which runs of one kernel differ.
    """
    return df.assign(
        **{"source": "measured", "kernel": df["variant"], "size": df["m"], "time_ms": df["median_us"] / 1e3},
        over_baseline=df["m"].map(by(df, base)) / df["median_us"],
        fastest=df["median_us"] <= 1.02 * df.groupby("m")["median_us"].transform("min"),
    )[["source", "experiment", "variant", "kernel", "size", "time_ms", "over_baseline", "fastest"]]


def as_published(study: Study, published: pd.DataFrame) -> pd.DataFrame:
    """Return `variants` of the report's kernels to the letter, and what it states of them."""
    return _beside(variants(where(published, variant=LETTER), LETTER[0]), study, "fig4", "speedup_baseline")


def stalls(study: Study) -> pd.DataFrame:
    """Return warps stalled per issued instruction by size, variant and reason.

    Of those of the report's Table 1 and of all that are 5% of a bar or more the nine largest; what is left is "other".
    """
    reasons = {ncu.STALLED.format(reason): reason for reason in ncu.STALLS if reason != "selected"}
    rows = study.counters.where(variant=VARIANTS, m=SIZES, metric=reasons).rows
    table = rows.assign(metric=rows["metric"].map(reasons)).pivot_table("value", ["m", "variant"], "metric").fillna(0)
    share = table.div(table.sum(axis=1), axis=0).max().sort_values(ascending=False)
    apart = share[(share >= 0.05) | (share > 0) & share.index.isin(["long_scoreboard", "barrier", "drain"])].index[:9]
    return (
        table[apart]
        .assign(other=table.drop(columns=apart).sum(axis=1))
        .reindex(VARIANTS, level="variant")
        .rename_axis(index=["size", "variant"], columns="reason")
        .stack()
        .rename("warps_stalled_per_issue")
        .reset_index()
        .assign(total=lambda df: df.groupby(["size", "variant"])["warps_stalled_per_issue"].transform("sum"))
    )


def element_wise(scaling: pd.DataFrame, element: pd.DataFrame) -> pd.DataFrame:
    """Return the time of what is right for elements over that of the baseline, which is on vectors of 32 columns."""
    return (
        pd.DataFrame(
            {
                "element_wise on vectors of 32": by(scaling, "element_wise"),
                "element_wise on element-wise 2:4": by(element, "element_wise"),
                "cuBLAS, dense": by(scaling, "cublas"),
            }
        )
        .div(by(scaling, "baseline"), axis=0)
        .rename_axis("size")
        .reset_index()
        .melt("size", var_name="line", value_name="time_over_baseline")
        .assign(variant=lambda df: np.where(df["line"] == "cuBLAS, dense", "cublas", "element_wise"))
    )


# ---------------------------------------------------------------- tables


def over_cublas(published: pd.DataFrame, scaling: pd.DataFrame, fma: float) -> pd.DataFrame:
    """Compare kernels with cuBLAS by size: the published one by what is counted as cuBLAS, and ours beside it.

    With shares of the FMA ceiling, TFLOP/s.
    """
    return (
        pd.DataFrame(
            {
                "handle": ratio(published, LETTER[0], "cublas_handle"),
                "call": ratio(published, LETTER[0], "cublas"),
                "kernel": ratio(scaling, LETTER[0], "cublas"),
                "double_buffer": ratio(scaling, LETTER[2], "cublas"),
                "share": by(scaling, LETTER[0], "tflops") / fma,
                "ours": ratio(scaling, "baseline", "cublas"),
                "our_share": by(scaling, "baseline", "tflops") / fma,
            }
        )
        .rename_axis("size")
        .reset_index()
    )


def metrics(study: Study) -> pd.DataFrame:
    """List the report's metrics, and whether the profile here has them, by another name where that is "ratio"."""
    table, held = study.published("table1"), set(study.counters.rows["metric"])
    # What the report calls smps__ is smsp__, and its stalls are the .pct of what is counted as .ratio here.
    ours = table["metric"].str.replace("smps__", "smsp__").str.replace("issue_active.pct", "issue_active.ratio")
    return table.assign(here=np.where(ours.isin(held), np.where(ours == table["metric"], "yes", "ratio"), "–"))


def fig3(study: Study) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return Fig. 3, a row for each size, metric and source, and its numbers, tidy: NUMBER, low and high.

    Measured is what `ncu.REPORT_METRICS` names of the kernels to the letter, under which stands what is stated of a
    kernel; of several rows for one number the first counts. Ratios that the report does not state are those of its
    values.
    """
    stems = {counter.rpartition(".")[0]: metric for metric, (counter, _) in ncu.REPORT_METRICS.items()}
    factors = dict(ncu.REPORT_METRICS.values())
    rows = where(study.counters.rows, variant=LETTER, m=SIZES, metric=factors)
    value = rows["value"] * rows["metric"].map(factors)
    theirs = study.published("fig3").replace({"variant": dict(zip(PUBLISHED, LETTER, strict=True))})
    values = pd.concat(
        [
            rows.assign(source="measured", size=rows["m"], quantity="value", low=value, high=value),
            theirs.assign(
                source="stated", quantity=np.where(theirs["quantity"].str.endswith("_ratio"), "ratio", "value")
            ),
        ]
    ).assign(metric=lambda df: df["metric"].str.rpartition(".")[0].map(stems))
    exact = where(values, quantity="value").query("low == high")
    pairs = where(exact, variant=LETTER[1:]).merge(
        where(exact, variant=LETTER[0]).drop_duplicates(NUMBER), on=["metric", "source", "size"], suffixes=("", "_base")
    )
    over = pairs["low"] / pairs["low_base"]
    data = (
        pd.concat([values, pairs.assign(quantity="ratio", low=over, high=over)])[[*NUMBER, "low", "high"]]
        .dropna(subset=["low", "high"], how="all")
        .dropna(subset=NUMBER)
        .drop_duplicates(NUMBER)
        .astype({"size": int})
    )
    unit = np.where(data["quantity"] == "ratio", "×", "")
    shown = (
        data.assign(
            text=[*map(_between, data["low"], data["high"], unit)],
            title=data["variant"] + np.where(unit == "×", " ratio", ""),
        )
        .pivot(index=["size", "metric", "source"], columns="title", values="text")
        .reindex(list(ncu.REPORT_METRICS), level="metric")
        .reset_index()
    )
    return shown, data


def _between(low: float, high: float, unit: str) -> str:
    """Write a value, a range or an open bound.

    Three digits (of a small ratio two decimals), or a whole number in groups of three.
    """
    sign = "< " if np.isnan(low) else "> " if np.isnan(high) else ""
    ends = {v: ",.0f" if v >= 1000 else ".2f" if unit and v < 10 else ".3g" for v in (low, high) if v == v}
    said = "–".join(dict.fromkeys(f"{v:{form}}{unit}" for v, form in ends.items()))
    return sign + said.replace("inf", "∞")


def pipes(study: Study) -> pd.DataFrame:
    """Tell what is busy, what warps wait for, and the wavefronts of a read from shared memory."""
    return pd.DataFrame(
        {"size": size, "variant": v}
        | {pipe: study.counters.get(v, metric, m=size) for pipe, metric in PIPES.items()}
        | {reason: stalled(study, v, size, f"{reason}_scoreboard") for reason in ("long", "short")}
        | {"waves": wavefronts(study, v, size)}
        for size in (256, 2048, 4096)
        for v in ("baseline", "pipelined", "double_buffer", "double_buffer_split1", "zigzag")
    )


def patterns(df: pd.DataFrame) -> pd.DataFrame:
    """Return speedups over cuBLAS at one size, by pattern, beside what skipping the zeros alone would give."""
    return (
        pd.DataFrame({v: ratio(df, v, "cublas", ["label", "density"]) for v in PATTERN_KERNELS})
        .reset_index()
        .replace({"label": {"": "2:4"}})
        .assign(ideal=lambda table: 1 / table["density"])
    )


def on_cpu(sequential: pd.DataFrame) -> pd.DataFrame:
    """Return the ms of the CPUs and of the published kernel by size, and its speedup over one thread and all cores."""
    times = pd.DataFrame({v: by(sequential, v) / 1e3 for v in (*ON_CPU, LETTER[0])})
    return (
        times.assign(**{f"over_{v}": times[v] / times[LETTER[0]] for v in ("cpu_loop", "cpu_blas")})
        .rename_axis("size")
        .reset_index()
    )
