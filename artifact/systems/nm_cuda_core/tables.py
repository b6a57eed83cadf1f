"""What the chapter shows, as tables (tables.toml) or drawn (figures.toml): records in, a DataFrame out."""

import numpy as np
import pandas as pd

from artifact.book.study import Study, by, given, pivot, ratio, where
from artifact.profiling import ncu
from artifact.systems.nm_cuda_core import experiments
from artifact.systems.nm_cuda_core.experiments import LETTER, ON_CPU, PATTERN_KERNELS, PUBLISHED, VARIANTS
from artifact.systems.nm_cuda_core.facts import PIPES, stalled, wavefronts

#: What identifies a number of Fig. 3, and the sizes that it has.
NUMBER = ["metric", "source", "size", "variant", "quantity"]
SIZES = (256, 2048)
#: What a speedup is over → the published quantity, or what is none.
OVER = {"cpu_loop": "speedup_cpu", "cublas_handle": "speedup_cublas", "cublas": "speedup_alone"}
#: Reading → the part of a call that it adds; the term of the fit that grows as a part does.
PARTS = {"cublas": "kernel", "cublas_transfers": "copies", "cublas_allocation": "allocation", "cublas_handle": "handle"}
TERMS = {"cube_ms": "kernel", "square_ms": "copies", "constant_ms": "handle"}


def _beside(measured: pd.DataFrame, study: Study, figure: str, *quantities: str) -> pd.DataFrame:
    """Put what the report states of these quantities at a size below what was measured."""
    stated = pd.concat(study.stated(figure, quantity) for quantity in quantities).dropna(subset=["size"])
    kernel = stated["variant"].replace(dict(zip(PUBLISHED, LETTER, strict=True)))
    stated = stated.drop(columns="value").assign(source="stated", gpu="RTX 4070", kernel=kernel)
    return pd.concat([measured.assign(source="measured"), stated], ignore_index=True)


def scaling(study: Study, *records: pd.DataFrame | None) -> pd.DataFrame:
    """Return the time and the TFLOP/s of each contender by size; of several records with it, the first counts.

    A library, and a CPU, multiplies the dense matrix.
    """
    df = pd.concat(records).drop_duplicates(["variant", "m"])
    flops = df["useful_flops"] / df["density"].where(~df["variant"].isin(VARIANTS), 1)
    df = df.assign(size=df["m"], time_ms=df["median_us"] / 1e3, tflops=flops / df["median_us"] / 1e6)
    df = df.assign(time=df["time_ms"])
    columns = ["experiment", "variant", "size", "density", "median_us", "q25_us", "q75_us", "time_ms", "time", "tflops"]
    return _beside(df[columns], study, "fig2", "tflops", "time")


@given
def speedups(study: Study, *records: pd.DataFrame) -> pd.DataFrame:
    """Return speedups by size, a column each.

    They are over the sequential CPU, over the report's reading of cuBLAS and over its kernel alone.
    """
    times = pivot(pd.concat(records).drop_duplicates(["variant", "m"]), "median_us")
    shown = {"cpu_loop": ["cublas", "cublas_handle", *LETTER], "cublas_handle": LETTER, "cublas": LETTER}
    table = pd.concat(
        (times[over].to_numpy()[:, None] / times[variants]).stack().rename("speedup").reset_index().assign(over=over)
        for over, variants in shown.items()
    ).rename(columns={"m": "size"})
    columns = {column: table["speedup"].where(table["over"] == over) for over, column in OVER.items()}
    return _beside(table.assign(**columns), study, "fig2", "speedup_cpu", "speedup_cublas")


def contains(study: Study, published: pd.DataFrame) -> pd.DataFrame:
    """Return the parts of a cuBLAS call by size, as measured and in the fit of the report's times: ms and shares."""
    theirs, times = experiments.stated(study), experiments.measured(published)
    fit, (_, models) = experiments.fit(theirs), experiments.compare(published, theirs)
    extra, kernel = times.sub(times["cublas"], axis=0).clip(lower=0).drop(columns="cublas"), times["cublas"]
    tables = {"time_ms": times, "over_kernel_ms": extra, "scaled_ms": models, "part_ms": extra.assign(cublas=kernel)}
    here = pd.DataFrame({name: table.stack() for name, table in tables.items()}).reindex(PARTS, level=1)
    here = here.rename_axis(["size", "variant"]).reset_index()
    here = here.assign(source="measured", part=here["variant"].map(PARTS))
    terms = fit.terms(theirs.index)
    ms = {"time_ms": 1e3 * theirs, "stated_ms": 1e3 * theirs, "fitted_ms": terms.sum(axis=1)}
    each = (terms.assign(**ms, size=theirs.index, part=part, part_ms=terms[term]) for term, part in TERMS.items())
    stated = pd.concat(each)
    df = pd.concat([here, stated.assign(source="stated", variant="cublas")], ignore_index=True)
    df = df.assign(row=df["size"].map("{}³, ".format) + np.where(df["source"] == "stated", "fit", "here"))
    whole = df.groupby("row")["part_ms"].transform("sum")
    return df.assign(share=100 * df["part_ms"] / whole, whole_ms=whole).sort_values(["size", "source"], kind="stable")


def variants(df: pd.DataFrame, base: str) -> pd.DataFrame:
    """Return each contender's performance over that of `base` by size.

    With whether it is the fastest, or within 2% of it, by which runs of one kernel differ.
    """
    over, best = df["m"].map(by(df, base)) / df["median_us"], df.groupby("m")["median_us"].transform("min")
    df = df.assign(size=df["m"], time_ms=df["median_us"] / 1e3, over_baseline=over, kernel=df["variant"])
    df = df.assign(fastest=df["median_us"] <= 1.02 * best, source="measured")
    return df[["source", "experiment", "variant", "kernel", "size", "time_ms", "over_baseline", "fastest"]]


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
    named = share.index.isin(["long_scoreboard", "barrier", "drain"])
    apart = share[(share >= 0.05) | (share > 0) & named].index[:9]
    table = table[apart].assign(other=table.drop(columns=apart).sum(axis=1)).reindex(VARIANTS, level="variant")
    df = table.rename_axis(columns="reason").stack().rename("warps_stalled_per_issue").reset_index()
    total = df.groupby(["m", "variant"])["warps_stalled_per_issue"].transform("sum")
    return df.rename(columns={"m": "size"}).assign(total=total)


def element_wise(scaling: pd.DataFrame, element: pd.DataFrame) -> pd.DataFrame:
    """Return the time of what is right for elements over that of the baseline, which is on vectors of 32 columns."""
    lines = {
        "element_wise on vectors of 32": by(scaling, "element_wise"),
        "element_wise on element-wise 2:4": by(element, "element_wise"),
        "cuBLAS, dense": by(scaling, "cublas"),
    }
    table = pd.DataFrame(lines).div(by(scaling, "baseline"), axis=0).rename_axis("size").reset_index()
    table = table.melt("size", var_name="line", value_name="time_over_baseline")
    return table.assign(variant=np.where(table["line"] == "cuBLAS, dense", "cublas", "element_wise"))


# ---------------------------------------------------------------- tables


def over_cublas(published: pd.DataFrame, scaling: pd.DataFrame, fma: float) -> pd.DataFrame:
    """Compare kernels with cuBLAS by size: the published one by what is counted as cuBLAS, and ours beside it.

    With shares of the FMA ceiling, TFLOP/s.
    """
    columns = {
        "handle": ratio(published, LETTER[0], "cublas_handle"),
        "call": ratio(published, LETTER[0], "cublas"),
        "kernel": ratio(scaling, LETTER[0], "cublas"),
        "double_buffer": ratio(scaling, LETTER[2], "cublas"),
        "share": by(scaling, LETTER[0], "tflops") / fma,
        "ours": ratio(scaling, "baseline", "cublas"),
        "our_share": by(scaling, "baseline", "tflops") / fma,
    }
    return pd.DataFrame(columns).rename_axis("size").reset_index()


def metrics(study: Study) -> pd.DataFrame:
    """List the report's metrics, and whether the profile here has them, by another name where that is "ratio"."""
    table, held = study.published("table1"), set(study.counters.rows["metric"])
    # What the report calls smps__ is smsp__, and its stalls are the .pct of what is counted as .ratio here.
    ours = table["metric"].str.replace("smps__", "smsp__").str.replace("issue_active.pct", "issue_active.ratio")
    here = np.where(ours == table["metric"], "yes", "ratio")
    return table.assign(here=np.where(ours.isin(held), here, "–"))


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
    kind = np.where(theirs["quantity"].str.endswith("_ratio"), "ratio", "value")
    ours = rows.assign(source="measured", size=rows["m"], quantity="value", low=value, high=value)
    values = pd.concat([ours, theirs.assign(source="stated", quantity=kind)])
    values["metric"] = values["metric"].str.rpartition(".")[0].map(stems)
    exact = where(values, quantity="value").query("low == high")
    base = where(exact, variant=LETTER[0]).drop_duplicates(NUMBER)
    pairs = where(exact, variant=LETTER[1:]).merge(base, on=["metric", "source", "size"], suffixes=("", "_base"))
    over = pairs["low"] / pairs["low_base"]
    data = pd.concat([values, pairs.assign(quantity="ratio", low=over, high=over)])[[*NUMBER, "low", "high"]]
    data = (
        data.dropna(subset=["low", "high"], how="all")
        .dropna(subset=NUMBER)
        .drop_duplicates(NUMBER)
        .astype({"size": int})
    )
    unit = np.where(data["quantity"] == "ratio", "×", "")
    text = [*map(_between, data["low"], data["high"], unit)]
    shown = data.assign(text=text, title=data["variant"] + np.where(unit == "×", " ratio", ""))
    table = shown.pivot(index=["size", "metric", "source"], columns="title", values="text")
    return table.reindex(list(ncu.REPORT_METRICS), level="metric").reset_index(), data


def _between(low: float, high: float, unit: str) -> str:
    """Write a value, a range or an open bound.

    Three digits (of a small ratio two decimals), or a whole number in groups of three.
    """
    sign = "< " if np.isnan(low) else "> " if np.isnan(high) else ""
    ends = {v: ",.0f" if v >= 1000 else ".2f" if unit and v < 10 else ".3g" for v in (low, high) if v == v}
    said = "–".join(dict.fromkeys(f"{v:{form}}{unit}" for v, form in ends.items()))
    return sign + said.replace(",", "\u202f").replace("inf", "∞")


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
    speed = {v: ratio(df, v, "cublas", ["label", "density"]) for v in PATTERN_KERNELS}
    table = pd.DataFrame(speed).reset_index().replace({"label": {"": "2:4"}})
    return table.assign(ideal=1 / table["density"])


def on_cpu(sequential: pd.DataFrame) -> pd.DataFrame:
    """Return the ms of the CPUs and of the published kernel by size, and its speedup over one thread and all cores."""
    times = pd.DataFrame({v: by(sequential, v) / 1e3 for v in (*ON_CPU, LETTER[0])})
    over = {f"over_{v}": times[v] / times[LETTER[0]] for v in ("cpu_loop", "cpu_blas")}
    return times.assign(**over).rename_axis("size").reset_index()
