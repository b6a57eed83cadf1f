"""The chapter's facts, by the part of it that they stand in.

A pattern is named as the field does, N:M with M = 32: "share.v3.16:32" is what V3 has at 50% sparsity.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import numpy as np
import pandas as pd

from artifact import registry
from artifact.book.facts import Fact, each, under
from artifact.drawing.words import listed, shape
from artifact.measure.run import Run
from artifact.rooms.nm_spmm import counters, figures, model, results, tables
from artifact.rooms.nm_spmm.contenders import DTYPES, LADDER, RUNGS, rows_of_a_step
from artifact.rooms.nm_spmm.counters import DENSITIES, PIPES, STALLS, Counters
from artifact.rooms.nm_spmm.points import at, by_density, has, mean, over
from artifact.rooms.nm_spmm.points import of as column
from artifact.rooms.nm_spmm.results import AIM, AIM_SHARE, Bars
from artifact.rooms.nm_spmm.trial import BIG, GROUP, VECTOR, Trial, start, text
from artifact.rooms.nm_spmm.words import point_of
from kernels import jit
from kernels.contract import Problem
from kernels.formats import nm
from kernels.nm_spmm import analysis, published

HALF, SPARSE = DENSITIES
#: How far from the speed of what it rebuilds a rebuilding may be to count as near it, a prediction from what came.
NEAR = 0.05
BRIEF_US = 100  #: Microseconds of a launch count below.
MOST_VECTORS = 4  #: of a block for which packing is described
STEPS = (("v2", "v1"), ("v3", "v2"))
KERNELS = ("nmsparse_vw32", "nm_baseline")  #: who stands for nmSPARSE
LINE = ["variant", "vector", "m", "n", "k"]  #: what a line of the tensor cores' figure is of
LOW = 0.8  #: A share of the ideal, or of the fastest pattern, that is named as falling short.


def of(run: Run) -> Iterator[Fact]:
    """Yield every fact that records hold."""
    trial = start("recorded", run.gpu, folder=run.folder.parent.parent)
    random = model.random_patterns(k=512, n=1024, seed=0)
    yield from needed(random)
    yield from col_info(model.col_info_shares(random), trial.stated)
    yield from theory(trial)
    yield from pipelines({d: model.durations(trial, model.published_tile(trial, d), d) for d in DENSITIES})
    stepwise_, anchored, llama_ = (trial.measure(name) for name in ("stepwise", "anchors", "llama"))
    by_size, lengths, ragged_ = (trial.measure(name) for name in ("sizes", "vectors", "ragged"))
    yield from stepwise(stepwise_, trial.fma)
    yield from packing(trial.measure("packing"))
    yield from sizes(by_size, trial.stated["fig8"])
    yield from llama(llama_, trial.stated)
    yield from authors(trial, results.bars(trial, anchored), stepwise_)
    yield from side_by_side(trial.stated["rebuilt"], trial.rebuilt_elsewhere)
    yield from ladder(trial.rungs, results.outcome(trial.rungs, stepwise_, anchored))
    yield from waves("rolled", trial.here.sm_count, stepwise_)
    if trial.has("tried"):
        yield from trials(results.trials(trial.measure("tried")))
    counted = counters.read(trial.run)
    yield from waits(counted)
    yield from few_tiles(anchored, trial.here.sm_count)
    yield from roofline(trial, counted, model.by_eq3(trial))
    yield from fig10(trial.stated)
    yield from vectors(lengths)
    yield from ragged(ragged_)
    yield from largest_error([stepwise_, by_size, llama_, anchored, lengths, ragged_])
    yield from unstructured(trial.measure("unstructured"))
    tensor_ = trial.tensor()
    yield from tensor(tensor_, None if tensor_ is None else figures.compared(tensor_))
    yield from behind(anchored, llama_)


def nm_of(density: float) -> str:
    """A density as a fact's name has it: 0.5 is "16:32"."""
    return f"{round(density * GROUP)}:{GROUP}"


def by_nm(name: str, series: pd.Series) -> Iterator[Fact]:
    """Yield name.N:M → value of a series by density."""
    return each(name, series.rename(nm_of))


def ranged(name: str, series: pd.Series) -> Iterator[Fact]:
    """Yield the geometric mean of a series by point, its least and its largest and where they are; nothing for an empty
    one."""
    if len(series):
        low, high = series.idxmin(), series.idxmax()
        yield from under(name, mean=mean(series), low=series[low], high=series[high], count=len(series))
        yield from under(name, low_at=point_of(low), high_at=point_of(high))


def places(name: str, series: pd.Series) -> Iterator[Fact]:
    """Yield how many points a series has, and each of them."""
    yield f"{name}.count", len(series)
    for i, (key, value) in enumerate(series.items()):
        yield from under(f"{name}.points.{i}", where=point_of(key), value=value)


# ---------------------------------------------------------------- the format and the analysis


def stored(example: Problem) -> Iterator[Fact]:
    """What a problem stores. example: of vectors of 32."""
    entries = round(example.density * example.k) * (example.n // VECTOR)
    yield from under("stored", size=example.k, pattern=nm_of(example.density), kept=example.nnz)
    yield from under("stored", all=example.k * example.n, indices=entries, of_an_index=example.nnz / entries)


def needed(patterns: Mapping[float, nm.Nm]) -> Iterator[Fact]:
    """What packing can leave out of A for a block of four vectors."""
    return by_nm("left_out", pd.Series({d: 1 - model.needed(b, MOST_VECTORS) for d, b in patterns.items()}))


def col_info(added: pd.Series, stated: Mapping[str, pd.DataFrame]) -> Iterator[Fact]:
    """added: share of the bytes of B's values by density."""
    said = text(stated, "col_info_memory")
    yield from by_nm("col_info.added", added)
    yield from under("col_info.stated", low=float(said["low"]), high=float(said["high"]))


def compiled(report: pd.DataFrame, target: str) -> Iterator[Fact]:
    """Of the compile report: what this page's compiler made."""
    return under("compiled", target=target, count=len(report), spilling=int(report["spills"].astype(bool).sum()))


def theory(trial: Trial) -> Iterator[Fact]:
    """Where memory becomes the limit, and what the analysis proposes."""
    found, here = model.shifts(trial), trial.here
    yield "transition.stated", float(text(trial.stated, "transition")["low"])
    yield from each("transition.block", found.block)
    yield from under("transition", from_l2=found.from_l2, whole=found.whole, l2_tbps=trial.gbps["L2"] / 1e3)
    proposed = tables.proposed(here)
    moved = proposed.loc[proposed["class in Table II"] != proposed["class here"], ""]
    yield from under("gpu", sms=here.sm_count, shared_kib=here.shared_bytes // 1024, fma=trial.fma)
    yield from under("classes", blocks_per_sm=analysis.BLOCKS_PER_SM, moved=listed(moved))
    one = analysis.propose(here, BIG, BIG, BIG, round(HALF * GROUP), GROUP)
    size = analysis.shared_bytes(one.rows, one.columns, one.windows, round(HALF * GROUP), GROUP)
    yield from under("deepest", size=BIG, depth=one.windows * GROUP, kib=size / 1024, threads=one.threads)
    yield from under("deepest", warps=one.threads * 2 // 32, double_buffered=one.threads // 32)
    yield from under("depth", whole=published.DEPTH[False], packed=published.DEPTH[True])


def pipelines(steps: Mapping[float, Mapping[str, float]]) -> Iterator[Fact]:
    """steps: density -> durations of the parts of a step; over that of its arithmetic."""
    for name in ("load", "fragments"):
        yield from by_nm(f"step.{name}", pd.Series({d: s[name] / s["compute"] for d, s in steps.items()}))


# ---------------------------------------------------------------- the paper's figures


def stepwise(df: pd.DataFrame, fma: float) -> Iterator[Fact]:
    """fma: the FMA ceiling, TFLOP/s."""
    rate = results.rates(df)
    for variant in ("v3", "auto"):
        share = rate[variant] / fma
        yield from by_nm(f"share.{variant}", share[[d for d in share.index if d < 1]])
    yield "rate.most", max(tflops.max() for tflops in rate.values())
    for d, ratio in by_density(over(df, "v3", "cublas")).items():
        if d == 1:
            yield "v3_dense_over_cublas", ratio
    for pair in STEPS:
        gain = by_density(over(df, *pair))
        sparse = results.high(gain.index)
        yield from by_nm(f"gain.{pair[0]}.moderate", gain[[d for d in gain.index if d < 1 and d not in sparse]])
        yield from by_nm(f"gain.{pair[0]}.high", gain[sparse])
        if sparse:
            yield f"gain.{pair[0]}.mean_high", mean(gain[sparse])


def packing(packed: pd.DataFrame) -> Iterator[Fact]:
    won = results.won_by_packing(packed)
    yield from by_nm("packing.pays", won[won > 1])
    yield from under("packing", rule_is_right=len(results.rule_is_right(won)), sparsities=len(won))


def sizes(by_size: pd.DataFrame, stated: pd.DataFrame) -> Iterator[Fact]:
    """The best of the three classes, `auto` over it, and what the authors' series of Fig. 8 is of."""
    us = results.by_class(by_size)
    best = us[results.CLASSES].idxmin(axis=1)
    expected = {size: name for name, size in analysis.TABLE_2.values()}
    yield from under("table_2", hits=sum(name == expected[key[1:4]] for key, name in best.items()), points=len(best))
    yield from ranged("auto_over_classes", (us[results.CLASSES].min(axis=1) / us["auto"]).dropna())
    own = stated[stated["library"].isin(results.CLASSES)]
    gain = own["tflops"] / own["tflops_one_pass"]
    yield from under("fig8", gpu=listed(dict.fromkeys(own["gpu"])), points=len(own))
    yield from under("fig8", one_pass=int((own["split_k"] == 1).sum()), cut_mean=mean(gain), cut_most=gain.max())


def fig10(stated: Mapping[str, pd.DataFrame]) -> Iterator[Fact]:
    """The shares of the peak by the authors' own profiles, and those that are not what their text says."""
    peak = text(stated, "peak")["low"]
    said = stated["text"].query("quantity == 'peak_share'").set_index(["variant", "density"])["low"]
    profiled = stated["fig10"].set_index(["library", "density"])
    shares = profiled["tflops"] * profiled.index.get_level_values("density") / peak
    off = [key for key in shares.index if abs(shares[key] - said[key]) > NEAR]
    yield from under("fig10", profiles=len(shares), off=len(off), others=len(shares) - len(off))
    for i, key in enumerate(off):
        library, density = key
        yield from under(f"fig10.points.{i}", library=library, pattern=nm_of(density), share=shares[key])
        yield f"fig10.points.{i}.said", said[key]


def llama(df: pd.DataFrame, stated: Mapping[str, pd.DataFrame]) -> Iterator[Fact]:
    """The layers of Llama: over nmSPARSE's kernel, rebuilt and in our style, over cuBLAS, of the ideal."""
    dense, ideal = over(df, "auto", "cublas"), results.of_ideal(df)
    yield "llama.claimed", float(text(stated, "speedup_nmsparse", "abstract")["low"])
    yield "llama.points", len(at(dense, by_density(dense).index[0]))
    for other in (*KERNELS, "cublas"):
        if has(df, other):
            yield from under(f"llama.over.{other}", **{v: mean(over(df, v, other)) for v in ("v3", "auto")})
    yield from ranged("llama.ideal", ideal)
    low = ideal[ideal < LOW]
    yield from under("llama.low", count=len(low), share=LOW)
    yield "llama.low.m", listed(sorted(set(low.index.get_level_values("m"))))
    yield from places("llama.behind", dense[dense < 1])


# ---------------------------------------------------------------- against the authors' kernels


def authors(trial: Trial, bars: Bars, stepwise: pd.DataFrame) -> Iterator[Fact]:
    """`auto` over the authors' kernels and of the FMA ceiling, and how good our rebuildings are."""
    yield from under("authors", gpu=trial.authors.gpu, shapes=len(bars.ours.groupby(level=["m", "n", "k"])))
    yield from under("aim", over=AIM, gain=AIM - 1, share=AIM_SHARE, means=len(bars.over_shapes) + len(bars.at_step))
    for name, series in (("at_big", bars.at_step), ("over_shapes", bars.over_shapes)):
        if len(series):
            yield from under(f"authors.{name}", low=series.min(), high=series.max())
    yield from ranged("authors.points", bars.ours)
    yield from under("authors.missed", count=len(bars.missed))
    for i, ((where, density), value) in enumerate(bars.missed.items()):
        yield from under(f"authors.missed.means.{i}", where=where, pattern=nm_of(density), value=value)
    yield "authors.below.most_m", max((key[0] for key in bars.below.index), default=0)
    yield from places("authors.below", bars.below)
    if len(bars.reached):
        yield from under("reached", low=bars.reached.min(), high=bars.reached.max(), count=len(bars.reached))
    yield from places("short", bars.short)
    auto = results.rates(stepwise)["auto"]
    auto = auto[[d for d in auto.index if 0.25 <= d <= 0.5]]
    yield from by_nm("sustained", auto)
    yield from under("sustained_share", low=(auto / trial.fma).min(), high=(auto / trial.fma).max())
    yield from rebuilt(bars)


def rebuilt(bars: Bars) -> Iterator[Fact]:
    """Our rebuildings over the authors' own kernels, in two runs."""
    large = [key[0] >= BIG // 2 for key in bars.ported.index]
    yield from ranged("ported", bars.ported)
    yield from under("ported", from_m=BIG // 2, large=mean(bars.ported[large]))
    yield "ported.small", mean(bars.ported[[not x for x in large]])
    yield "style", mean(bars.nm_baseline)
    yield from ranged("nmsparse", bars.nmsparse)
    for variant, factor in (("v3_searched", bars.searched_alone), ("nmsparse_vw32", bars.nmsparse)):
        if len(factor):
            yield from apart(f"apart.{variant}", factor, bars.us[variant])


def apart(name: str, factor: pd.Series, us: pd.Series) -> Iterator[Fact]:
    """Where a rebuilding is not near what it rebuilds, and how long it takes there. us: its own times."""
    off = factor[(factor - 1).abs() > NEAR]
    time = us[off.index]
    brief, longer = off[time < BRIEF_US], off[time >= BRIEF_US]
    yield from under(name, near=NEAR, points=len(factor), off=len(off), brief=len(brief), longer=len(longer))
    gap = us[brief.index] * (brief - 1).abs()
    yield from under(name, brief_us=BRIEF_US, gap_us=max(gap, default=0.0))
    if len(off):
        yield from under(name, off_low=off.min(), off_high=off.max())
    if len(longer):
        yield from under(name, low=longer.min(), high=longer.max())


def side_by_side(beside: pd.DataFrame, elsewhere: Mapping[str, pd.DataFrame]) -> Iterator[Fact]:
    """Our rebuildings beside what they rebuild, in one run. beside: others/<gpu>/rebuilt.csv; elsewhere: the same of
    other GPUs, by their names."""
    for variant, speeds in results.rebuilt(beside).items():
        yield from ranged(f"beside.{variant}", speeds)
        yield from under(f"beside.{variant}", near=int(((speeds - 1).abs() <= NEAR).sum()), within=NEAR)
    for gpu, other in elsewhere.items():
        for variant, speeds in results.rebuilt(other).items():
            yield from ranged(f"beside_elsewhere.{gpu}.{variant}", speeds)


# ---------------------------------------------------------------- our ladder


def ladder(rungs: list[str], outcome: pd.DataFrame) -> Iterator[Fact]:
    """Rungs that the GPU does not take, and predictions with a number. outcome: `results.outcome`."""
    yield "rungs.absent", listed(f"`{v}`" for v in LADDER if v not in rungs)
    judged = outcome.dropna(subset=["predicted"])
    near = (judged["came"] / judged["predicted"] - 1).abs() < NEAR
    yield from under("predictions", count=len(judged), near=int(near.sum()), within=NEAR)
    yield "predictions.wrong", listed(f"`{v}`" for v in judged.loc[~near, "rung"])


def waves(rung: str, sms: int, stepwise: pd.DataFrame) -> Iterator[Fact]:
    """What evening out the last wave would gain, and what it did."""
    (down, across), _ = model.schedule(rung)
    one = RUNGS[rung][0]
    last = model.last_steps(rung, sms)
    yield from under("waves", tiles=down * across, sms=sms, waves=down * across / sms, evened=last["stream-K"])
    yield from under("waves", rows=one.bm, columns=one.bn, depth=one.depth)
    yield from under("waves", steps=last["waves"], gain=last["waves"] / last["stream-K"])
    if has(stepwise, "stream") and has(stepwise, "bulk"):
        yield from by_nm("stream_over_bulk", by_density(over(stepwise, "stream", "bulk")))


def loops(looped: Mapping[str, int]) -> Iterator[Fact]:
    """looped: rung -> bytes of its largest loop of multiply-adds."""
    return each("loop_kib", {v: size / 1024 for v, size in looped.items()})


def trials(outcomes: pd.DataFrame) -> Iterator[Fact]:
    """outcomes: `results.trials`."""
    came = zip(outcomes["came"], outcomes["factor"], strict=True)
    off = sum(abs(mean(ratio) / factor - 1) >= NEAR for ratio, factor in came)
    lost = sum(ratio.max() < 1 for ratio in outcomes["came"])
    yield from under("trials", count=len(outcomes), lost=lost, off=off, within=NEAR)


def clashes(found: pd.DataFrame, best: Mapping[str, float], stepwise: pd.DataFrame) -> Iterator[Fact]:
    """found: `machine_code.clashes`. best: variant -> the largest share of the FMA ceiling that it reached."""
    first = results.before("banks")
    if {"banks", first} <= set(found.index) and has(stepwise, "banks"):
        yield from under("clash", before=found["clash"][first], banks=found["clash"]["banks"])
        yield "clash.gain", mean(over(stepwise, "banks", first))
    above = [v for v in best if best[v] > 1.02 * found["left"][v]]
    yield from under("clash", above=len(above), who=listed(f"`{v}`" for v in above))


def compilers(machine: Mapping) -> Iterator[Fact]:
    """NVRTC of this page and of the records."""
    yield "nvrtc.here", jit.nvrtc_version()
    if made_by := machine["packages"].get("nvidia-cuda-nvrtc"):
        yield "nvrtc.records", made_by


def waits(counted: Counters) -> Iterator[Fact]:
    """What V3, `auto`, the nmSPARSE-style kernel and rungs that differ in their loop wait for."""
    slots, fma, shared = (PIPES[c] for c in ("issue slots [%]", "FMA pipe [%]", "shared memory [%]"))
    if {"v3", "auto", "nm_baseline"} <= set(counted.profiled):
        for v in ("v3", "auto"):
            yield from under(f"waits.{v}", issuing=counted.get(v, HALF, slots), ffma=counted.ffma_share(v, HALF))
            yield f"waits.{v}.dispatch", counted.stalled(v, HALF, "dispatch_stall")
        reasons = [name for name in STALLS if name != "not selected"]
        stalled = {name: counted.stalled("v3", HALF, STALLS[name]) for name in reasons}
        worst = max(stalled, key=lambda name: np.nan_to_num(stalled[name]))
        yield from under("waits", worst=worst, most=stalled[worst], memory=max(counted.memory().values()))
        yield from under("waits.nm_baseline", fma=counted.get("nm_baseline", HALF, fma))
        yield "waits.nm_baseline.shared", counted.get("nm_baseline", HALF, shared)
    if {"bulk", "stream", "rolled"} <= set(counted.profiled):
        for v in ("bulk", "stream", "rolled"):
            yield f"fetches.{v}", counted.stalled(v, HALF, "no_instruction")
        yield "fetches.stream_high", counted.stalled("stream", SPARSE, "no_instruction")
        for name, d in (("rows", HALF), ("rows_high", SPARSE)):
            yield f"fetches.{name}", rows_of_a_step("stream", round(d * GROUP), GROUP)


# ---------------------------------------------------------------- beyond the paper


def few_tiles(anchored: pd.DataFrame, sms: int) -> Iterator[Fact]:
    """What cutting K gains over V3 where there are fewer tiles than SMs; nothing where no point has."""
    few = [key for key in column(anchored, "auto").index if tables.BLOCK.blocks(key[1], key[2]) < sms]
    cuts = [v for v in ("v3_split_k", *LADDER, "auto") if has(anchored, v)]
    if few:
        yield from each("few_tiles", {v: mean(over(anchored, v, "v3").loc[few]) for v in cuts})


def roofline(trial: Trial, counted: Counters, eq3: Mapping[tuple[str, float], float]) -> Iterator[Fact]:
    """What Eq. 3 would allow V3 at high sparsity, and what it does. eq3: FLOP per byte by Eq. 3."""
    if "v3" not in counted.in_roofline:
        return
    rows = figures.counted(counted.rows, counted.in_roofline)
    intensity = eq3["v3", SPARSE]
    yield from under("roofline", pattern=nm_of(SPARSE), intensity=intensity)
    yield "roofline.dram", analysis.attainable(trial.here, intensity)
    yield "roofline.l2", analysis.attainable(model.at_l2(trial), intensity)
    for row in rows[(rows["variant"] == "v3") & (rows["density"] == SPARSE)].to_dict("records"):
        of_eq3 = intensity / (row["useful_flops"] / row["dram_bytes"])
        yield from under("roofline", tflops=row["tflops"], dram_of_eq3=of_eq3)


def vectors(lengths: pd.DataFrame) -> Iterator[Fact]:
    """What a longer vector gains at each sparsity. lengths: records of one size and many patterns."""
    rate = {v: column(lengths, v, "tflops") for v in ("auto", "v3")}
    for d in by_density(rate["auto"]).index:
        keys = [key for key in rate["auto"].index if key[4] == d and figures.pattern(key[0])[0] == GROUP]
        found = {figures.pattern(key[0])[1]: key for key in keys}
        if len(found) > 1:
            for end, (length, key) in (("short", min(found.items())), ("long", max(found.items()))):
                yield from under(f"vectors.{nm_of(d)}.{end}", length=length, **{v: rate[v][key] for v in rate})
    for v, tflops in rate.items():
        yield f"slowest_pattern.{v}", tflops.groupby(level="density").agg(lambda x: x.min() / x.max()).min()


def ragged(df: pd.DataFrame) -> Iterator[Fact]:
    """What `auto` has of the ideal at sizes that no tile divides, apart where m is a multiple of 4."""
    ideal = results.of_ideal(df)
    four = [key[1] % 4 == 0 for key in ideal.index]
    for name, part in (("of_four", ideal[four]), ("odd", ideal[[not x for x in four]])):
        if len(part):
            yield f"ragged.{name}", mean(part)


def largest_error(frames: Iterable[pd.DataFrame]) -> Iterator[Fact]:
    """The FP32 kernel with the largest relative error of several records."""
    rows = pd.concat(frames, ignore_index=True)
    rows = rows[~rows["variant"].str.startswith(registry.PREFIXES)]
    worst = rows.loc[rows["rel_err"].idxmax()]
    yield from under("error", most=worst["rel_err"], variant=worst["variant"])
    yield "error.where", shape((worst["m"], worst["n"], worst["k"]))


def unstructured(loose: pd.DataFrame) -> Iterator[Fact]:
    """cuSPARSE against dense cuBLAS and `auto`."""
    csr, dense, auto = tables.best_csr(loose), column(loose, "cublas"), column(loose, "auto")
    to_dense = pd.Series({key: dense[key] / csr[key] for key in auto.index})
    yield from under("cusparse.over_dense", mean=mean(to_dense), high=to_dense.max())
    yield "auto_over_cusparse", mean(pd.Series({key: csr[key] / auto[key] for key in auto.index}))


def tensor(df: pd.DataFrame | None, compared: pd.DataFrame | None) -> Iterator[Fact]:
    """What tensor cores reach, and from which sparsity on each line wins, 1 where it never does. compared:
    `figures.compared`."""
    if df is None or compared is None:
        return
    for name, *_ in DTYPES.values():
        if has(df, name):
            yield f"tensor_rate.{name}", df.loc[df["variant"] == name, "tflops"].max()
    yield "tensor.never", int(compared.drop_duplicates(LINE)["crossing"].isna().sum())
    for i, ((variant, vector, *size), rows) in enumerate(compared.groupby(LINE, sort=False)):
        where, most = rows["crossing"].fillna(1).iloc[0], rows.loc[rows["speedup"].idxmax()]
        yield from under(f"tensor.lines.{i}", variant=variant, vector=vector, size=shape(size), crossing=where)
        yield from under(f"tensor.lines.{i}", most=most["speedup"], most_at=nm_of(most["density"]))


# ---------------------------------------------------------------- the end


def behind(anchored: pd.DataFrame, llama: pd.DataFrame) -> Iterator[Fact]:
    """Where `auto` is slower than what stands for nmSPARSE."""
    for other in KERNELS:
        ratios = [over(df, "auto", other) for df in (anchored, llama) if has(df, other)]
        if ratios:
            ratio = pd.concat(ratios)
            yield from places(f"behind.{other}", ratio[ratio < 1])


def verdicts(judged: pd.DataFrame, failed: pd.DataFrame) -> Iterator[Fact]:
    """judged: what `cells.verdicts` returns; failed: `tables.failed`."""
    return under("verdicts", judged=len(judged), failed=len(failed))
