"""The chapter's facts, by the part of it that they stand in: nested, as its text reads them.

A pattern is named as the field does, N:M with M = 32: "share.v3.16:32" is what V3 has at 50% sparsity.
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Any

import pandas as pd

from artifact import registry
from artifact.book.facts import Fact, Facts, flat, part, summary
from artifact.book.study import given, pivot
from artifact.book.text import listed, shape
from artifact.measure import external, records
from artifact.measure.records import geomean
from artifact.measure.run import Run
from artifact.systems.nm_spmm import model
from artifact.systems.nm_spmm.model import (
    BIG,
    CLASSES,
    CONTENDERS,
    DENSITIES,
    GROUP,
    HALF,
    NMSPARSE,
    PLACE,
    POINT,
    RUNGS,
    SPARSE,
    VECTOR,
    Spmm,
    against,
    at_big,
    before,
    by,
    by_density,
    compared,
    few_tiles,
    kept,
    of_ideal,
    over,
    pattern,
    point_of,
    rates,
)
from kernels import jit
from kernels.contract import Problem
from kernels.formats import nm
from kernels.nm_spmm import analysis, banks, family, packing, published

#: How far from the speed of what it rebuilds a rebuilding may be to count as near it, a prediction from what came.
NEAR = 0.05
AIM, AIM_SHARE = 1.10, 0.80  #: over the authors' kernels; of the FMA ceiling
BRIEF_US = 100  #: Microseconds of a launch count below.
LOW = 0.8  #: A share of the ideal, or of the fastest pattern, that is named as falling short.


def of(run: Run) -> Iterator[Fact]:
    """Return every fact that records hold."""
    study = Spmm(run)
    return chain(analysed(study, model.random_patterns(k=512, n=1024, seed=0)), measured(study))


def measured(study: Spmm) -> Iterator[Fact]:
    """Return the facts of experiments, of counters, and of what others measured."""
    df: dict[str, Any] = {name: study.measure(name) for name in CONTENDERS if not name.startswith("tensor")}
    return flat(
        {
            **figures(study, df),
            **authors(study, df["anchors"], df["stepwise"]),
            **side_by_side(study),
            **ladder(study, df["stepwise"]),
            **counted(study, df["anchors"]),
            **fig10(study),
            **beyond(df),
            **(tensor(study.tensor()) or {}),
            **behind(df["anchors"], df["llama"]),
        }
    )


def nm_of(density: float) -> str:
    """Name a density as facts do: 0.5 is "16:32"."""
    return f"{kept(density)}:{GROUP}"


def by_nm(values: pd.Series | Mapping[float, float]) -> pd.Series:
    """Return values by density as values by N:M."""
    return pd.Series(values, dtype=float).rename(nm_of)


def ends(values: pd.Series) -> dict[str, float]:
    """Return the least and the largest value."""
    return {"low": values.min(), "high": values.max()}


def ranged(values: pd.Series) -> dict[str, Any]:
    """Return the summary of a series by point, and where its ends are; nothing of an empty one."""
    return summary(values) | (
        {"low_at": point_of(values.idxmin()), "high_at": point_of(values.idxmax())} if len(values) else {}
    )


def places(values: pd.Series) -> dict[str, Any]:
    """Return how many points a series has, and each of them."""
    return {
        "count": len(values),
        "points": {i: {"where": point_of(at), "value": value} for i, (at, value) in enumerate(values.items())},
    }


def code(names: Iterable[str]) -> str:
    """Return names as code, listed."""
    return listed(f"`{name}`" for name in names)


# ---------------------------------------------------------------- the format, the analysis, machine code


@part
def stored(example: Problem) -> Facts:
    """Return what a problem stores. example: of vectors of 32."""
    entries = round(example.density * example.k) * (example.n // VECTOR)
    return {
        "stored": {"size": example.k, "pattern": nm_of(example.density), "kept": example.nnz}
        | {"all": example.k * example.n, "indices": entries, "of_an_index": example.nnz / entries}
    }


@part
def analysed(study: Spmm, patterns: Mapping[float, nm.Nm]) -> Facts:
    """Return what the analysis says of blocks and of packing.

    What packing can leave out of A for a block of four vectors, what `col_info` adds to the bytes of B's values, where
    memory becomes the limit, what the analysis proposes, and parts of a step over its arithmetic.
    """
    here, block, whole = study.here, (model.BLOCK.rows, model.BLOCK.columns), published.DEPTH
    one = analysis.propose(here, BIG, BIG, BIG, kept(HALF), GROUP)
    steps = {d: model.durations(study, d) for d in DENSITIES}
    made = {
        d: packing.convert(b, columns=128, windows=1, packed=True, slot=VECTOR)
        for d, b in patterns.items()
        if 1 - d > analysis.HIGH
    }
    return {
        "left_out": by_nm({d: 1 - model.needed(b, 4) for d, b in patterns.items()}),
        "col_info": {
            "added": by_nm({d: packed.col_info_bytes / packed.val.nbytes for d, packed in made.items()}),
            "stated": study.stated("text", "col_info_memory").iloc[0][["low", "high"]],
        },
        "transition": {
            "stated": study.stated("text", "transition")["low"].iloc[0],
            "block": {
                device.name: analysis.transition(device, *block) for device in (*analysis.TABLE_3.values(), here)
            },
            "from_l2": analysis.transition(model.at_l2(study), *block),
            "whole": analysis.transition(here, BIG, BIG, depth=BIG),
            "l2_tbps": study.gbps["L2"] / 1e3,
        },
        "gpu": {"sms": here.sm_count, "shared_kib": here.shared_bytes // 1024, "fma": study.fma},
        "classes": {
            "blocks_per_sm": analysis.BLOCKS_PER_SM,
            "moved": listed(
                label
                for label, (name, (m, n, _)) in analysis.TABLE_2.items()
                if analysis.class_of(here.sm_count, m, n) != name
            ),
        },
        "deepest": {"size": BIG, "depth": one.windows * GROUP}
        | {"kib": analysis.shared_bytes(one.rows, one.columns, one.windows, kept(HALF), GROUP) / 1024}
        | {"threads": one.threads, "warps": one.threads * 2 // 32, "double_buffered": one.threads // 32},
        "depth": {"whole": whole[False], "packed": whole[True]},
        "step": {
            name: by_nm({d: at[name] / at["compute"] for d, at in steps.items()}) for name in ("load", "fragments")
        },
    }


@part
def compiled(study: Spmm) -> Facts:
    """Return what this page's compiler made, the size of loops of multiply-adds, and NVRTC of page and records."""
    report, looped = study.report, model.loops(study, ["bulk", "stream", "rolled", "turned"])
    return {
        "compiled": {"target": study.target, "count": len(report), "spilling": report["spills"].astype(bool).sum()},
        "loop_kib": {v: 16 * banks.instructions(sass) / 1024 for v, sass in looped.items()},
        "nvrtc": {"here": jit.nvrtc_version(), "records": study.machine["packages"].get("nvidia-cuda-nvrtc")},
    }


@part
def clashes(found: pd.DataFrame, stepwise: pd.DataFrame) -> Facts:
    """Return what the rung against clashes gained. found: `model.clashes`, and `reached` of the ceiling."""
    first, above = before("banks"), found[found["reached"] > 1.02 * found["left"]]
    return {
        "clash": {"before": found["clash"][first], "banks": found["clash"]["banks"]}
        | {"gain": geomean(over(stepwise, "banks", first)), "above": len(above), "who": code(above.index)}
    }


# ---------------------------------------------------------------- the paper's figures


def high(densities: pd.Index) -> pd.Series:
    """Tell which densities are of high sparsity, as the paper has it."""
    return 1 - densities > analysis.HIGH


def moderate_and_high(gain: pd.Series) -> dict[str, Any]:
    """Return what a step gains at moderate sparsity, at high sparsity and on the mean of that."""
    above, moderate = gain[high(gain.index)], gain[~high(gain.index) & (gain.index < 1)]
    return {"moderate": by_nm(moderate), "high": by_nm(above), "mean_high": geomean(above)}


def figures(study: Spmm, df: Mapping[str, pd.DataFrame]) -> Facts:
    """Return, of records by experiment, what the paper's figures are about.

    Shares of the FMA ceiling, TFLOP/s, and what each step gains at moderate and at high sparsity. Where packing pays,
    and whether packing above 70% and not below is the faster choice. The best of the three classes, `auto` over it, and
    what the authors' series of Fig. 8 is of. The layers of Llama: over nmSPARSE's kernel, rebuilt and in our style,
    over cuBLAS, of the ideal.
    """
    rate, steps = rates(df["stepwise"]), {"v2": ("v2", "v1"), "v3": ("v3", "v2")}
    won = by_density(over(df["packing"], "v3_packed", "v3_unpacked"))
    us, stated = pivot(df["sizes"], "median_us", POINT).sort_index(), study.published("fig8")
    best, expected = us[CLASSES].idxmin(axis=1), {size: name for name, size in analysis.TABLE_2.values()}
    own = stated[stated["library"].isin(CLASSES)]
    gain, layers = own["tflops"] / own["tflops_one_pass"], df["llama"]
    dense, ideal = over(layers, "auto", "cublas"), of_ideal(layers)
    low = ideal[ideal < LOW]
    return {
        "share": {v: by_nm(rate.loc[rate.index < 1, v] / study.fma) for v in ("v3", "auto")},
        "rate.most": rate.max().max(),
        "v3_dense_over_cublas": by_density(over(df["stepwise"], "v3", "cublas"))[1],
        "gain": {v: moderate_and_high(by_density(over(df["stepwise"], *pair))) for v, pair in steps.items()},
        "packing": {
            "pays": by_nm(won[won > 1]),
            "rule_is_right": ((won > 1) == high(won.index)).sum(),
            "sparsities": len(won),
        },
        "table_2": {"hits": sum(name == expected[at[1:4]] for at, name in best.items()), "points": len(best)},
        "auto_over_classes": ranged(us[CLASSES].min(axis=1) / us["auto"]),
        "fig8": {"gpu": listed(own["gpu"].unique()), "points": len(own), "one_pass": (own["split_k"] == 1).sum()}
        | {"cut_mean": geomean(gain), "cut_most": gain.max()},
        "llama": {
            "claimed": study.stated("text", "speedup_nmsparse", where="abstract")["low"].iloc[0],
            "points": (dense.index.get_level_values("density") == dense.index[0][-1]).sum(),
            "over": {
                base: {v: geomean(over(layers, v, base)) for v in ("v3", "auto")} for base in (*NMSPARSE, "cublas")
            },
            "ideal": ranged(ideal),
            "low": {"count": len(low), "share": LOW, "m": listed(sorted(set(low.index.get_level_values("m"))))},
            "behind": places(dense[dense < 1]),
        },
    }


def fig10(study: Spmm) -> Facts:
    """Return the shares of the peak by the authors' own profiles, and those that are not what their text says."""
    profiled = study.published("fig10").set_index(["library", "density"])["tflops"]
    said = study.stated("text", "peak_share").set_index(["variant", "density"])["low"].reindex(profiled.index)
    shares = profiled * profiled.index.get_level_values("density") / study.stated("text", "peak")["low"].iloc[0]
    off = shares[(shares - said).abs() > NEAR]
    return {
        "fig10": {
            "profiles": len(shares),
            "others": len(shares) - len(off),
            "points": {
                i: {"library": library, "pattern": nm_of(d), "share": share, "said": said[library, d]}
                for i, ((library, d), share) in enumerate(off.items())
            },
        }
    }


# ---------------------------------------------------------------- against the authors' kernels


def authors(study: Spmm, anchored: pd.DataFrame, stepwise: pd.DataFrame) -> Facts:
    """Return `auto` over the authors' kernels and of the FMA ceiling, and how good our rebuildings are."""
    theirs, large = study.others("anchors"), (anchored[["m", "n", "k"]] >= BIG).all(axis=1)
    beside, half = against(anchored, theirs.numbers()), anchored["density"].between(0.25, 0.5)
    reached = by(anchored[large & half], "auto", "tflops") / study.fma  # at 50 to 75% sparsity, 4096³ and above
    auto, short, rate = beside["auto"].dropna(), reached[reached < AIM_SHARE], rates(stepwise)["auto"][0.5:0.25]
    means = pd.concat({f"{BIG}³": at_big(auto), "all shapes": by_density(auto)})
    missed, below = means[means < AIM].sort_values(), auto[auto < AIM].sort_values()
    return {
        "authors": {
            "gpu": theirs.gpu,
            "shapes": len(auto.groupby(level=["m", "n", "k"])),
            "at_big": ends(at_big(auto)),
            "over_shapes": ends(by_density(auto)),
            "points": ranged(auto),
            "missed": {
                "count": len(missed),
                "means": {
                    i: {"where": where, "pattern": nm_of(d), "value": value}
                    for i, ((where, d), value) in enumerate(missed.items())
                },
            },
            "below": places(below) | {"most_m": max((at[0] for at in below.index), default=0)},
        },
        "reached": ends(reached) | {"count": len(reached)},
        "short": places(short),
        "aim": {"over": AIM, "gain": AIM - 1, "share": AIM_SHARE, "means": len(means)},
        "sustained": by_nm(rate),
        "sustained_share": ends(rate / study.fma),
    } | rebuilt(beside, pivot(anchored, "median_us", PLACE))


def rebuilt(beside: pd.DataFrame, us: pd.DataFrame) -> dict[str, Any]:
    """Return our rebuildings over the authors' own kernels, in two runs. us: their times."""
    ported, from_m = beside[["v3", "v3_split_k", "v3_searched"]].max(axis=1), BIG // 2
    large = ported.index.get_level_values("m") >= from_m
    return {
        "style": geomean(beside["nm_baseline"]),
        "nmsparse": ranged(beside["nmsparse_vw32"]),
        "ported": ranged(ported)
        | {name: summary(ported[rows]).get("mean") for name, rows in (("large", large), ("small", ~large))}
        | {"from_m": from_m},
        "apart": {v: apart(beside[v], us[v]) for v in ("v3_searched", "nmsparse_vw32")},
    }


def apart(factor: pd.Series, us: pd.Series) -> dict[str, float]:
    """Return where a rebuilding is not near what it rebuilds, and how long it takes there. us: its own times."""
    off = factor[(factor - 1).abs() > NEAR]
    brief = us[off.index] < BRIEF_US
    return (
        {"near": NEAR, "points": len(factor), "off": len(off), "brief": brief.sum(), "longer": (~brief).sum()}
        | {"brief_us": BRIEF_US, "gap_us": max(us[off.index][brief] * (off[brief] - 1).abs(), default=0.0)}
        | {"off_low": off.min(), "off_high": off.max()}
        | ends(off[~brief])
    )


def side_by_side(study: Spmm) -> Facts:
    """Return our rebuildings beside what they rebuild, in one run, here and on other GPUs, by their names."""
    here, found = study.others("rebuilt"), {m.gpu: m for m in external.find(study.run.room, name="rebuilt")}
    speeds = {gpu: m.numbers().set_index(PLACE).groupby("library", sort=False)["speedup"] for gpu, m in found.items()}
    ratios = {gpu: {v: ranged(own) for v, own in each} for gpu, each in speeds.items()}
    near = {v: {"near": ((own - 1).abs() <= NEAR).sum(), "within": NEAR} for v, own in speeds[here.gpu]}
    return {
        "beside": {v: ratios[here.gpu][v] | near[v] for v in near},
        "beside_elsewhere": {records.short_gpus(found)[gpu]: both for gpu, both in ratios.items() if gpu != here.gpu},
    }


# ---------------------------------------------------------------- our ladder


def ladder(study: Spmm, stepwise: pd.DataFrame, rung: str = "rolled") -> Facts:
    """Return rungs that the GPU does not take, and predictions with a number; what was tried and not kept.

    What evening out the last wave of a rung would gain, and what it did.
    """
    judged, sms = study.outcome.dropna(subset=["predicted"]), study.here.sm_count
    near = (judged["came"] / judged["predicted"] - 1).abs() < NEAR
    one, (down, across), last = RUNGS[rung][0], model.schedule(rung)[0], model.last_steps(rung, sms)
    return {
        "rungs.absent": code(v for v in RUNGS if v not in study.rungs),
        "predictions": {"count": len(judged), "near": near.sum(), "within": NEAR}
        | {"wrong": code(judged.loc[~near, "rung"])},
        "waves": {"rows": one.bm, "columns": one.bn, "depth": one.depth, "tiles": down * across, "sms": sms}
        | {"waves": down * across / sms, "steps": last["waves"], "evened": last["stream-K"]}
        | {"gain": last["waves"] / last["stream-K"]},
        "stream_over_bulk": by_nm(by_density(over(stepwise, "stream", "bulk"))),
        "trials": trials(study.trials),
    }


@given
def trials(trials: pd.DataFrame) -> Facts:
    """Return what was tried and not kept. trials: `Spmm.trials`."""
    groups = trials.groupby("trial")
    off = (groups["came"].agg(geomean) / groups["factor"].first() - 1).abs() >= NEAR
    return {"count": len(off), "lost": (groups["came"].max() < 1).sum(), "off": off.sum(), "within": NEAR}


def counted(study: Spmm, anchored: pd.DataFrame) -> Facts:
    """Return what V3, `auto`, the nmSPARSE-style kernel and rungs that differ in their loop wait for.

    What cutting K gains over V3 where there are fewer tiles than SMs, nothing where no point has; what Eq. 3 would
    allow V3 at high sparsity, and what it does. Without counters nothing of them.
    """
    us, counted = few_tiles(anchored, study.here.sm_count), study.counted
    cuts = {"few_tiles": us.drop(columns=["tiles", "v3"]).rdiv(us["v3"], axis=0).apply(geomean) if len(us) else {}}
    if counted.empty:
        return cuts
    half, sparse = (counted[counted["density"] == d].set_index("variant") for d in DENSITIES)
    stalled = half.loc["v3", ["dispatch", "shared", "memory", "barrier", "instructions"]].astype(float)
    names = {"issue slots [%]": "issuing", "useful": "ffma", "dispatch": "dispatch"}
    intensity, v3 = model.by_eq3(study)["v3", SPARSE], sparse.loc["v3"]
    memories, nmsparse = {"dram": study.here, "l2": model.at_l2(study)}, half.loc["nm_baseline"]
    return {
        "waits": {
            "worst": stalled.idxmax(),
            "most": stalled.max(),
            "memory": pd.concat([half, sparse]).loc[["v3", "auto"], ["L2 [%]", "DRAM [%]"]].max().max(),
            "nm_baseline": {"fma": nmsparse["FMA pipe [%]"], "shared": nmsparse["shared memory [%]"]},
            **{v: half.loc[v, [*names]].rename(names) for v in ("v3", "auto")},
        },
        "fetches": half["instructions"].reindex(["bulk", "stream", "rolled"]).to_dict()
        | {"stream_high": sparse["instructions"].get("stream")}
        | {f"rows{of}": family.rows(RUNGS["stream"][0], kept(d), GROUP) for of, d in (("", HALF), ("_high", SPARSE))},
        **cuts,
        "roofline": {name: min(at.peak_tflops, intensity * at.bandwidth_gbs / 1e3) for name, at in memories.items()}
        | {"pattern": nm_of(SPARSE), "intensity": intensity, "tflops": v3["tflops"]}
        | {"dram_of_eq3": intensity / (v3["useful_flops"] / v3["dram_bytes"])},
    }


# ---------------------------------------------------------------- beyond the paper


def beyond(df: Mapping[str, pd.DataFrame]) -> Facts:
    """Return, of records by experiment, what a longer vector gains at each sparsity.

    What `auto` has of the ideal at sizes that no tile divides, apart where m is a multiple of 4; the FP32 kernel with
    the largest relative error; cuSPARSE against dense cuBLAS and `auto`.
    """
    rate = pivot(df["vectors"], "tflops", POINT)[["auto", "v3"]]
    rate[["group", "length"]] = [pattern(at[0]) for at in rate.index]
    whole = rate[rate["group"] == GROUP].sort_values("length").groupby(level="density")
    slowest, ideal = rate.groupby(level="density")[["auto", "v3"]], of_ideal(df["ragged"])
    four = ideal.index.get_level_values("m") % 4 == 0
    rows = pd.concat([df[x] for x in ("stepwise", "sizes", "llama", "anchors", "vectors", "ragged")], ignore_index=True)
    worst = rows.loc[rows["rel_err"].where(~rows["variant"].str.startswith(registry.PREFIXES)).idxmax()]
    csr = records.best_of(df["unstructured"])
    dense = over(csr, "cusparse_best", "cublas")
    return {
        "vectors": {
            nm_of(d): {
                end: {column: rows[column].iloc[at] for column in ("length", "auto", "v3")}
                for end, at in (("short", 0), ("long", -1))
            }
            for d, rows in reversed([*whole])
        },
        "slowest_pattern": slowest.agg(lambda values: values.min() / values.max()).min(),
        "ragged": {name: summary(ideal[kept]).get("mean") for name, kept in (("of_four", four), ("odd", ~four))},
        "error": {"most": worst["rel_err"], "variant": worst["variant"]}
        | {"where": shape(worst[["m", "n", "k"]].tolist())},
        "cusparse.over_dense": {"mean": geomean(dense), "high": dense.max()},
        "auto_over_cusparse": geomean(over(csr, "auto", "cusparse_best")),
    }


@given
def tensor(df: pd.DataFrame) -> Facts:
    """Return what tensor cores reach, and from which sparsity on each line wins, 1 where it never does."""
    rows = compared(df)
    most = rows.loc[rows.groupby(["variant", "vector", "m", "n", "k"], sort=False)["speedup"].idxmax()]
    return {
        "tensor_rate": rows.groupby("variant", sort=False)["tflops"].max(),
        "tensor": {
            "never": most["crossing"].isna().sum(),
            "lines": {
                i: {"variant": at.variant, "vector": at.vector, "size": shape((at.m, at.n, at.k))}
                | {"crossing": at.crossing, "most": at.speedup, "most_at": nm_of(at.density)}
                for i, at in enumerate(most.fillna({"crossing": 1}).itertuples())
            },
        },
    }


def behind(anchored: pd.DataFrame, llama: pd.DataFrame) -> Facts:
    """Return where `auto` is slower than what stands for nmSPARSE."""
    return {
        "behind": {
            base: places(pd.concat([over(df, "auto", base) for df in (anchored, llama)]).loc[lambda ratio: ratio < 1])
            for base in NMSPARSE
        }
    }


@part
def verdicts(judged: pd.DataFrame, failed: pd.DataFrame) -> Facts:
    """Count verdicts. judged: what `outputs.verdicts` returns; failed: `tables.failed`."""
    return {"verdicts": {"judged": len(judged), "failed": len(failed)}}
