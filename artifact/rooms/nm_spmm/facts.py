"""The chapter's facts, by the part of it that they stand in.

A pattern is named as the field does, N:M with M = 32: "share.v3.16:32" is what V3 has at 50% sparsity.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Any

import pandas as pd

from artifact import registry
from artifact.book.facts import Fact, flat, summary
from artifact.book.study import pivot
from artifact.drawing.words import listed, shape
from artifact.measure.records import geomean
from artifact.measure.run import Run
from artifact.rooms.nm_spmm import model, results
from artifact.rooms.nm_spmm.model import kept
from artifact.rooms.nm_spmm.results import AIM, AIM_SHARE, CLASSES
from artifact.rooms.nm_spmm.study import (
    BIG,
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
    by,
    by_density,
    over,
    point_of,
    rates,
)
from kernels import jit
from kernels.contract import Problem
from kernels.formats import nm
from kernels.nm_spmm import analysis, banks, family, published

#: How far from the speed of what it rebuilds a rebuilding may be to count as near it, a prediction from what came.
NEAR = 0.05
BRIEF_US = 100  #: Microseconds of a launch count below.
MOST_VECTORS = 4  #: of a block for which packing is described
LINE = ["variant", "vector", "m", "n", "k"]  #: what a line of the tensor cores' figure is of
LOW = 0.8  #: A share of the ideal, or of the fastest pattern, that is named as falling short.


def of(run: Run) -> Iterator[Fact]:
    """Return every fact that records hold."""
    study, random = Spmm(run), model.random_patterns(k=512, n=1024, seed=0)
    df = {name: study.measure(name) for name in CONTENDERS if not name.startswith("tensor")}
    counted, outcome = results.counters(study), results.outcome(study.rungs, df["stepwise"], df["anchors"])
    return chain(
        needed(random),
        col_info(study, random),
        theory(study),
        pipelines({d: model.durations(study, d) for d in DENSITIES}),
        stepwise(df["stepwise"], study.fma),
        packing(df["packing"]),
        sizes(df["sizes"], study.published("fig8")),
        llama(study, df["llama"]),
        authors(study, df["anchors"], df["stepwise"]),
        side_by_side(study),
        ladder(study.rungs, outcome),
        waves("rolled", study.here.sm_count, df["stepwise"]),
        trials(results.trials(df["tried"])),
        waits(counted),
        few_tiles(df["anchors"], study.here.sm_count),
        roofline(study, counted),
        fig10(study),
        vectors(df["vectors"]),
        ragged(df["ragged"]),
        largest_error([df[name] for name in ("stepwise", "sizes", "llama", "anchors", "vectors", "ragged")]),
        unstructured(df["unstructured"]),
        tensor(study.tensor()),
        behind(df["anchors"], df["llama"]),
    )


def nm_of(density: float) -> str:
    """Name a density as facts do: 0.5 is "16:32"."""
    return f"{kept(density)}:{GROUP}"


def by_nm(values: pd.Series | Mapping[float, float]) -> pd.Series:
    """Return values by density by N:M."""
    return pd.Series(values, dtype=float).rename(nm_of)


def ends(values: pd.Series) -> dict[str, float]:
    """Return the least and the largest; nothing of nothing."""
    return {"low": values.min(), "high": values.max()}


def ranged(values: pd.Series) -> dict[str, Any]:
    """Return the summary of a series by point, and where its ends are; nothing of an empty one."""
    found = {"low_at": values.idxmin, "high_at": values.idxmax} if len(values) else {}
    return summary(values) | {end: point_of(at()) for end, at in found.items()}


def places(values: pd.Series) -> dict[str, Any]:
    """Return how many points a series has, and each of them."""
    points = [{"where": point_of(at), "value": value} for at, value in values.items()]
    return {"count": len(values), "points": dict(enumerate(points))}


def mean(values: pd.Series) -> float | None:
    """Return the geometric mean; nothing of nothing."""
    return geomean(values) if len(values) else None


def code(names: Iterable[str]) -> str:
    """List names of contenders as code."""
    return listed(f"`{name}`" for name in names)


# ---------------------------------------------------------------- the format and the analysis


def stored(example: Problem) -> Iterator[Fact]:
    """Return what a problem stores. example: of vectors of 32."""
    entries = round(example.density * example.k) * (example.n // VECTOR)
    found = {"size": example.k, "pattern": nm_of(example.density), "kept": example.nnz, "all": example.k * example.n}
    return flat({"stored": found | {"indices": entries, "of_an_index": example.nnz / entries}})


def needed(patterns: Mapping[float, nm.Nm]) -> Iterator[Fact]:
    """Return what packing can leave out of A for a block of four vectors."""
    return flat({"left_out": by_nm({d: 1 - model.needed(b, MOST_VECTORS) for d, b in patterns.items()})})


def col_info(study: Spmm, patterns: Mapping[float, nm.Nm]) -> Iterator[Fact]:
    """Return what `col_info` adds to the bytes of B's values, and what the source says."""
    said = study.stated("text", "col_info_memory").iloc[0]
    added = by_nm(model.col_info_shares(patterns))
    return flat({"col_info": {"added": added, "stated": {"low": said["low"], "high": said["high"]}}})


def compiled(report: pd.DataFrame, target: str) -> Iterator[Fact]:
    """Return what this page's compiler made. report: `artifact.measure.run`."""
    return flat({"compiled": {"target": target, "count": len(report), "spilling": report["spills"].astype(bool).sum()}})


def theory(study: Spmm) -> Iterator[Fact]:
    """Return where memory becomes the limit, and what the analysis proposes."""
    here, block, whole = study.here, (model.BLOCK.rows, model.BLOCK.columns), published.DEPTH
    one = analysis.propose(here, BIG, BIG, BIG, kept(HALF), GROUP)
    size = analysis.shared_bytes(one.rows, one.columns, one.windows, kept(HALF), GROUP)
    moved = [label for label, (name, (m, n, _)) in analysis.TABLE_2.items() if analysis.class_of(here, m, n) != name]
    shift = {
        "stated": study.stated("text", "transition")["low"].iloc[0],
        "block": {device.name: analysis.transition(device, *block) for device in model.devices(here)},
        "from_l2": analysis.transition(model.at_l2(study), *block),
        "whole": analysis.transition(here, BIG, BIG, depth=BIG),
        "l2_tbps": study.gbps["L2"] / 1e3,
    }
    return flat(
        {
            "transition": shift,
            "gpu": {"sms": here.sm_count, "shared_kib": here.shared_bytes // 1024, "fma": study.fma},
            "classes": {"blocks_per_sm": analysis.BLOCKS_PER_SM, "moved": listed(moved)},
            "deepest": {"size": BIG, "depth": one.windows * GROUP, "kib": size / 1024, "threads": one.threads}
            | {"warps": one.threads * 2 // 32, "double_buffered": one.threads // 32},
            "depth": {"whole": whole[False], "packed": whole[True]},
        }
    )


def pipelines(steps: Mapping[float, Mapping[str, float]]) -> Iterator[Fact]:
    """Return how long parts of a step take over its arithmetic. steps: density -> durations."""
    parts = ("load", "fragments")
    return flat({"step": {name: by_nm({d: at[name] / at["compute"] for d, at in steps.items()}) for name in parts}})


# ---------------------------------------------------------------- the paper's figures


def high(densities: pd.Index) -> pd.Series:
    """Tell which densities are of a sparsity that the paper calls high."""
    return 1 - densities > analysis.HIGH


def moderate_and_high(gain: pd.Series) -> dict[str, Any]:
    """Return what a step gains at moderate sparsity, at high sparsity and on the mean of that."""
    above = gain[high(gain.index)]
    moderate = gain.drop(above.index)
    return {"moderate": by_nm(moderate[moderate.index < 1]), "high": by_nm(above), "mean_high": geomean(above)}


def stepwise(df: pd.DataFrame, fma: float) -> Iterator[Fact]:
    """Return shares of the FMA ceiling, TFLOP/s, and what each step gains at moderate and at high sparsity."""
    rate, dense = rates(df), by_density(over(df, "v3", "cublas"))
    sparse = rate[rate.index < 1]
    gains = {v: by_density(over(df, v, base)) for v, base in (("v2", "v1"), ("v3", "v2"))}
    return flat(
        {
            "share": {v: by_nm(sparse[v] / fma) for v in ("v3", "auto")},
            "rate.most": rate.max().max(),
            "v3_dense_over_cublas": dense[1],
            "gain": {v: moderate_and_high(gain) for v, gain in gains.items()},
        }
    )


def packing(packed: pd.DataFrame) -> Iterator[Fact]:
    """Return where packing pays, and whether packing above 70% and not below is the faster choice."""
    won = results.won_by_packing(packed)
    pays = won > 1
    right = (pays == high(won.index)).sum()
    return flat({"packing": {"pays": by_nm(won[pays]), "rule_is_right": right, "sparsities": len(won)}})


def sizes(by_size: pd.DataFrame, stated: pd.DataFrame) -> Iterator[Fact]:
    """Return the best of the three classes, `auto` over it, and what the authors' series of Fig. 8 is of."""
    us = pivot(by_size, "median_us", POINT).sort_index()
    best, expected = us[CLASSES].idxmin(axis=1), {size: name for name, size in analysis.TABLE_2.values()}
    own = stated[stated["library"].isin(CLASSES)]
    gain = own["tflops"] / own["tflops_one_pass"]
    fig8 = {"gpu": listed(dict.fromkeys(own["gpu"])), "points": len(own), "one_pass": (own["split_k"] == 1).sum()}
    return flat(
        {
            "table_2": {"hits": sum(name == expected[at[1:4]] for at, name in best.items()), "points": len(best)},
            "auto_over_classes": ranged(us[CLASSES].min(axis=1) / us["auto"]),
            "fig8": fig8 | {"cut_mean": geomean(gain), "cut_most": gain.max()},
        }
    )


def fig10(study: Spmm) -> Iterator[Fact]:
    """Return the shares of the peak by the authors' own profiles, and those that are not what their text says."""
    peak = study.stated("text", "peak")["low"].iloc[0]
    profiled = study.published("fig10").set_index(["library", "density"])["tflops"]
    said = study.stated("text", "peak_share").set_index(["variant", "density"])["low"].reindex(profiled.index)
    shares = profiled * profiled.index.get_level_values("density") / peak
    off = shares[(shares - said).abs() > NEAR]
    points = [
        {"library": library, "pattern": nm_of(d), "share": share, "said": said[library, d]}
        for (library, d), share in off.items()
    ]
    count = {"profiles": len(shares), "off": len(off), "others": len(shares) - len(off)}
    return flat({"fig10": count | {"points": dict(enumerate(points))}})


def llama(study: Spmm, df: pd.DataFrame) -> Iterator[Fact]:
    """Return the layers of Llama: over nmSPARSE's kernel, rebuilt and in our style, over cuBLAS, of the ideal."""
    dense, ideal = over(df, "auto", "cublas"), results.of_ideal(df)
    low = ideal[ideal < LOW]
    ours = {base: {v: geomean(over(df, v, base)) for v in ("v3", "auto")} for base in (*NMSPARSE, "cublas")}
    few = {"count": len(low), "share": LOW, "m": listed(sorted(set(low.index.get_level_values("m"))))}
    claimed = study.stated("text", "speedup_nmsparse", where="abstract")["low"].iloc[0]
    points = (dense.index.get_level_values("density") == dense.index[0][-1]).sum()
    found = {"claimed": claimed, "points": points, "over": ours, "ideal": ranged(ideal), "low": few}
    return flat({"llama": found | {"behind": places(dense[dense < 1])}})


# ---------------------------------------------------------------- against the authors' kernels


def authors(study: Spmm, anchored: pd.DataFrame, stepwise: pd.DataFrame) -> Iterator[Fact]:
    """Return `auto` over the authors' kernels and of the FMA ceiling, and how good our rebuildings are."""
    theirs = study.others("anchors")
    beside, reached = results.against(anchored, theirs.numbers()), results.reached(anchored, study.fma)
    auto, short = beside["auto"].dropna(), reached[reached < AIM_SHARE]
    at_big = auto[[at[:3] == (BIG, BIG, BIG) for at in auto.index]].droplevel(["m", "n", "k"])
    over_shapes = by_density(auto)
    means = pd.concat({f"{BIG}³": at_big, "all shapes": over_shapes})
    missed, below = means[means < AIM].sort_values(), auto[auto < AIM].sort_values()
    rate = rates(stepwise)["auto"][0.5:0.25]
    at = [{"where": where, "pattern": nm_of(d), "value": value} for (where, d), value in missed.items()]
    found = {
        "gpu": theirs.gpu,
        "shapes": len(auto.groupby(level=["m", "n", "k"])),
        "at_big": ends(at_big),
        "over_shapes": ends(over_shapes),
        "points": ranged(auto),
        "missed": {"count": len(missed), "means": dict(enumerate(at))},
        "below": places(below) | {"most_m": max((at[0] for at in below.index), default=0)},
    }
    parts = {
        "authors": found,
        "reached": ends(reached) | {"count": len(reached)},
        "short": places(short),
        "aim": {"over": AIM, "gain": AIM - 1, "share": AIM_SHARE, "means": len(means)},
        "sustained": by_nm(rate),
        "sustained_share": ends(rate / study.fma),
    }
    return flat(parts | rebuilt(beside, pivot(anchored, "median_us", PLACE)))


def rebuilt(beside: pd.DataFrame, us: pd.DataFrame) -> dict[str, Any]:
    """Return our rebuildings over the authors' own kernels, in two runs. us: their times."""
    ported, from_m = beside[["v3", "v3_split_k", "v3_searched"]].max(axis=1), BIG // 2
    large = ported.index.get_level_values("m") >= from_m
    parts = {"large": mean(ported[large]), "small": mean(ported[~large]), "from_m": from_m}
    found = {"style": geomean(beside["nm_baseline"]), "nmsparse": ranged(beside["nmsparse_vw32"])}
    off = {v: apart(beside[v], us[v]) for v in ("v3_searched", "nmsparse_vw32")}
    return found | {"ported": ranged(ported) | parts, "apart": off}


def apart(factor: pd.Series, us: pd.Series) -> dict[str, float]:
    """Return where a rebuilding is not near what it rebuilds, and how long it takes there. us: its own times."""
    off = factor[(factor - 1).abs() > NEAR]
    brief = us[off.index] < BRIEF_US
    gap = max(us[off.index][brief] * (off[brief] - 1).abs(), default=0.0)
    found = {"near": NEAR, "points": len(factor), "off": len(off), "brief": brief.sum(), "longer": (~brief).sum()}
    found |= {"brief_us": BRIEF_US, "gap_us": gap, "off_low": off.min(), "off_high": off.max()}
    return found | ends(off[~brief])


def side_by_side(study: Spmm) -> Iterator[Fact]:
    """Return our rebuildings beside what they rebuild, in one run, here and on other GPUs, by their names."""
    beside = results.rebuilt(study.others("rebuilt").numbers())
    near = {v: {"near": ((speeds - 1).abs() <= NEAR).sum(), "within": NEAR} for v, speeds in beside.items()}
    other = {gpu: results.rebuilt(numbers) for gpu, numbers in study.elsewhere().items()}
    elsewhere = {gpu: {v: ranged(speeds) for v, speeds in both.items()} for gpu, both in other.items()}
    return flat({"beside": {v: ranged(beside[v]) | near[v] for v in beside}, "beside_elsewhere": elsewhere})


# ---------------------------------------------------------------- our ladder


def ladder(rungs: list[str], outcome: pd.DataFrame) -> Iterator[Fact]:
    """Return rungs that the GPU does not take, and predictions with a number. outcome: `results.outcome`."""
    judged = outcome.dropna(subset=["predicted"])
    near = (judged["came"] / judged["predicted"] - 1).abs() < NEAR
    found = {"count": len(judged), "near": near.sum(), "within": NEAR, "wrong": code(judged.loc[~near, "rung"])}
    return flat({"rungs.absent": code(v for v in RUNGS if v not in rungs), "predictions": found})


def waves(rung: str, sms: int, stepwise: pd.DataFrame) -> Iterator[Fact]:
    """Return what evening out the last wave would gain, and what it did."""
    one, (down, across), last = RUNGS[rung][0], model.schedule(rung)[0], model.last_steps(rung, sms)
    tile = {"rows": one.bm, "columns": one.bn, "depth": one.depth, "tiles": down * across, "sms": sms}
    steps = {"waves": down * across / sms, "steps": last["waves"], "evened": last["stream-K"]}
    gain = {"gain": last["waves"] / last["stream-K"]}
    return flat({"waves": tile | steps | gain, "stream_over_bulk": by_nm(by_density(over(stepwise, "stream", "bulk")))})


def loops(looped: Mapping[str, str]) -> Iterator[Fact]:
    """Return the size of loops. looped: rung -> its largest loop of multiply-adds."""
    return flat({"loop_kib": {v: 16 * banks.instructions(sass) / 1024 for v, sass in looped.items()}})


def trials(outcomes: pd.DataFrame) -> Iterator[Fact]:
    """Return what was tried and not kept. outcomes: `results.trials`."""
    groups = outcomes.groupby("trial")
    off = (groups["came"].agg(geomean) / groups["factor"].first() - 1).abs() >= NEAR
    lost = groups["came"].max() < 1
    return flat({"trials": {"count": len(off), "lost": lost.sum(), "off": off.sum(), "within": NEAR}})


def clashes(found: pd.DataFrame, stepwise: pd.DataFrame) -> Iterator[Fact]:
    """Return what the rung against clashes gained. found: `machine_code.clashes`, and `reached` of the ceiling."""
    first, above = results.before("banks"), found[found["reached"] > 1.02 * found["left"]]
    gain, clash = geomean(over(stepwise, "banks", first)), found["clash"]
    gained = {"before": clash[first], "banks": clash["banks"], "gain": gain}
    return flat({"clash": gained | {"above": len(above), "who": code(above.index)}})


def compilers(machine: Mapping) -> Iterator[Fact]:
    """Return NVRTC of this page and of the records."""
    return flat({"nvrtc": {"here": jit.nvrtc_version(), "records": machine["packages"].get("nvidia-cuda-nvrtc")}})


def waits(counted: pd.DataFrame) -> Iterator[Fact]:
    """Return what V3, `auto`, the nmSPARSE-style kernel and rungs that differ in their loop wait for; nothing without
    counters. counted: `results.counters`."""
    if counted.empty:
        return flat({})
    half, sparse = (counted[counted["density"] == d].set_index("variant") for d in DENSITIES)
    stalled = half.loc["v3", ["dispatch", "shared", "memory", "barrier", "instructions"]].astype(float)
    memory = pd.concat([half, sparse]).loc[["v3", "auto"], ["L2 [%]", "DRAM [%]"]].max().max()
    names = {"issue slots [%]": "issuing", "useful": "ffma", "dispatch": "dispatch"}
    ours = {v: half.loc[v, [*names]].rename(names) for v in ("v3", "auto")}
    style = {"fma": half["FMA pipe [%]"]["nm_baseline"], "shared": half["shared memory [%]"]["nm_baseline"]}
    fetches = half["instructions"].reindex(["bulk", "stream", "rolled"]).to_dict()
    fetches |= {"stream_high": sparse["instructions"].get("stream")}
    rows = {f"rows{of}": family.rows(RUNGS["stream"][0], kept(d), GROUP) for of, d in (("", HALF), ("_high", SPARSE))}
    found = {"worst": stalled.idxmax(), "most": stalled.max(), "memory": memory, "nm_baseline": style}
    return flat({"waits": found | ours, "fetches": fetches | rows})


# ---------------------------------------------------------------- beyond the paper


def few_tiles(anchored: pd.DataFrame, sms: int) -> Iterator[Fact]:
    """Return what cutting K gains over V3 where there are fewer tiles than SMs; nothing where no point has."""
    us = results.few_tiles(anchored, sms)
    cuts = us.drop(columns=["tiles", "v3"])
    return flat({"few_tiles": cuts.rdiv(us["v3"], axis=0).apply(geomean) if len(us) else {}})


def roofline(study: Spmm, counted: pd.DataFrame) -> Iterator[Fact]:
    """Return what Eq. 3 would allow V3 at high sparsity, and what it does. counted: `results.counters`."""
    if counted.empty:
        return flat({})
    intensity, row = model.by_eq3(study)["v3", SPARSE], counted.set_index(["variant", "density"]).loc["v3", SPARSE]
    by_memory = {"dram": study.here, "l2": model.at_l2(study)}
    allowed = {name: analysis.attainable(device, intensity) for name, device in by_memory.items()}
    share = intensity / (row["useful_flops"] / row["dram_bytes"])
    found = {"pattern": nm_of(SPARSE), "intensity": intensity, "tflops": row["tflops"], "dram_of_eq3": share}
    return flat({"roofline": allowed | found})


def vectors(lengths: pd.DataFrame) -> Iterator[Fact]:
    """Return what a longer vector gains at each sparsity. lengths: records of one size and many patterns."""
    rate = pivot(lengths, "tflops", POINT)[["auto", "v3"]]
    whole = rate[[results.pattern(at[0])[0] == GROUP for at in rate.index]]
    slowest = rate.groupby(level="density").agg(lambda values: values.min() / values.max()).min()
    found = {}
    for d, rows in reversed([*whole.groupby(level="density")]):
        rows = rows.set_axis([results.pattern(at[0])[1] for at in rows.index], axis=0).sort_index()
        ends_ = {"short": rows.index[0], "long": rows.index[-1]}
        found[nm_of(d)] = {end: {"length": length} | rows.loc[length].to_dict() for end, length in ends_.items()}
    return flat({"vectors": found, "slowest_pattern": slowest})


def ragged(df: pd.DataFrame) -> Iterator[Fact]:
    """Return what `auto` has of the ideal at sizes that no tile divides, apart where m is a multiple of 4."""
    ideal = results.of_ideal(df)
    four = ideal.index.get_level_values("m") % 4 == 0
    return flat({"ragged": {"of_four": mean(ideal[four]), "odd": mean(ideal[~four])}})


def largest_error(frames: Iterable[pd.DataFrame]) -> Iterator[Fact]:
    """Return the FP32 kernel with the largest relative error of several records."""
    rows = pd.concat(frames, ignore_index=True)
    worst = rows.loc[rows["rel_err"].where(~rows["variant"].str.startswith(registry.PREFIXES)).idxmax()]
    where = shape(worst[["m", "n", "k"]].tolist())
    return flat({"error": {"most": worst["rel_err"], "variant": worst["variant"], "where": where}})


def unstructured(loose: pd.DataFrame) -> Iterator[Fact]:
    """Return cuSPARSE against dense cuBLAS and `auto`."""
    csr = results.best_csr(loose)
    dense, auto = by(loose, "cublas") / csr, geomean(csr / by(loose, "auto"))
    return flat({"cusparse.over_dense": {"mean": geomean(dense), "high": dense.max()}, "auto_over_cusparse": auto})


def tensor(df: pd.DataFrame | None) -> Iterator[Fact]:
    """Return what tensor cores reach, and from which sparsity on each line wins, 1 where it never does."""
    if df is None:
        return flat({})
    compared, lines = results.compared(df), []
    for (variant, vector, *size), rows in compared.groupby(LINE, sort=False):
        most, crossing = rows.loc[rows["speedup"].idxmax()], rows["crossing"].fillna(1).iloc[0]
        line = {"variant": variant, "vector": vector, "size": shape(size), "crossing": crossing}
        lines.append(line | {"most": most["speedup"], "most_at": nm_of(most["density"])})
    never = compared.drop_duplicates(LINE)["crossing"].isna().sum()
    rate = compared.groupby("variant", sort=False)["tflops"].max()
    return flat({"tensor_rate": rate, "tensor": {"never": never, "lines": dict(enumerate(lines))}})


# ---------------------------------------------------------------- the end


def behind(anchored: pd.DataFrame, llama: pd.DataFrame) -> Iterator[Fact]:
    """Return where `auto` is slower than what stands for nmSPARSE."""
    ratios = {base: pd.concat([over(df, "auto", base) for df in (anchored, llama)]) for base in NMSPARSE}
    return flat({"behind": {base: places(ratio[ratio < 1]) for base, ratio in ratios.items()}})


def verdicts(judged: pd.DataFrame, failed: pd.DataFrame) -> Iterator[Fact]:
    """Count verdicts. judged: what `cells.verdicts` returns; failed: `tables.failed`."""
    return flat({"verdicts": {"judged": len(judged), "failed": len(failed)}})
