"""The chapter's facts, by the part of it that they stand in. Sizes are named as a page writes them, "4096³"."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import pandas as pd

from artifact import registry
from artifact.book.facts import Fact, each, spread, under
from artifact.drawing.words import cube, listed, shape
from artifact.measure import ceilings as ceilings_
from artifact.measure import check
from artifact.measure import run as harness
from artifact.measure.ceilings import TENSOR_FLOP_PER_CLOCK
from artifact.measure.records import geomean
from artifact.measure.run import Run
from artifact.rooms.tensor_core_24 import energy, experiments, fp8, libraries, sass, tables, trials, variants
from artifact.rooms.tensor_core_24 import epilogue as epilogue_
from artifact.rooms.tensor_core_24.energy import View
from artifact.rooms.tensor_core_24.experiments import (
    KEYS,
    SHARED,
    TENSOR,
    Ceilings,
    Counters,
    Ladder,
    Profile,
    by_size,
    over,
    together,
    wide,
)
from artifact.rooms.tensor_core_24.sass import Published
from kernels import tensor_core_24 as room
from kernels.formats import two_four
from kernels.tensor_core_24 import bounds as bounds_
from kernels.tensor_core_24 import family, fp8_family

#: The post's RTX 4070: SMs, and Hz of boost clock (its data sheet).
POST_SMS, POST_CLOCK = 46, 2.475e9
#: Clocks of an SM's tensor cores, in dense-equivalent FLOP.
PER_CLOCK = 2 * TENSOR_FLOP_PER_CLOCK[(9, 0)]
WHOLE = (4096, 4096, 4096)
#: Blocks of the template that stand together, in their order.
STUDY_BLOCKS = (
    "studies",
    "study_ca",
    "study_conflicts",
    "study_all_threads",
    "study_two_warps",
    "study_one_selector",
    "study_x2",
    "study_stages",
    "study_stages_5",
)
IDEA_BLOCKS = (
    "multicast",
    "multicast_counted",
    "packed",
    "packed_counted",
    "stream_k",
    "stream_k_counted",
    "split_k",
    "fewer_instructions",
    "fewer_instructions_counted",
    "last_wave",
    "last_wave_counted",
    "refilling",
    "refilling_counted",
    "three",
    "three_counted",
    "pieces",
    "pieces_counted",
    "cp_async",
    "gpc",
    "gpc_counted",
)
NO_WGMMA = "**This GPU has no `wgmma`**: what follows of the ladder is compiled, but not measured."
#: As many tiles in both, 17 of 256 columns: rows that begin at odd multiples of 16 bytes, and at whole lines.
ODD_ROWS, WHOLE_ROWS = (4096, 4104, 4096), (4096, 4160, 4096)


def of(run: Run) -> Iterator[Fact]:
    """Yield every fact that records hold."""
    machine, root = run.machine, run.folder.parent.parent
    square, studied, ladder = experiments.measure(run, "square"), experiments.studies(run), experiments.ladder(run)
    ceilings = experiments.ceilings(harness.start("ceilings", "recorded", run.gpu, records=root), machine)
    counters, stated = experiments.counters(run), experiments.stated("benchmarks")
    profile = experiments.profile(counters, ladder)
    yield from pruned(experiments.pruning(run))
    yield from share(square, stated)
    yield from instruction(square, ceilings)
    yield from shared_memory(square, ceilings, machine, stated)
    yield from studies(studied, machine)
    yield from conflicts(counters)
    yield from climbed(ladder, machine)
    yield from profiled(profile, ladder, machine)
    yield from ideas(ladder, counters, machine)
    yield from alone(experiments.counters(run, "bounds"), profile)
    view = energy.view(counters, together(square, studied, ladder.frame), machine)
    yield from power(view, ladder, machine)
    yield from models(view)
    yield from peaks(view, ceilings, machine)
    yield from turns(experiments.alone(run), square)
    layers, ragged = experiments.measure(run, "llm"), experiments.measure(run, "ragged", experiments.RAGGED)
    both, tried = together(square, layers), trials.read(run.folder / "bounds", trials.LADDER)
    yield from speedups(both, machine)
    yield from other_libraries(libraries.read(run), both, machine)
    yield from small(experiments.small(run), tried)
    chosen_ = variants.chosen(run, wide(both, "tflops").index)
    yield from chosen(tables.chosen(chosen_, both, ceilings))
    yield from left(profile, square)
    yield from off_by_one(ragged, square)
    rows_ = experiments.rows(run)
    yield from rows(rows_, experiments.counters_of_rows(run), experiments.chosen_of_rows(run, rows_))
    yield from float16(experiments.measure(run, "float16"), square)
    yield from errors(together(square, layers, ladder.frame, studied, ragged), both)
    yield from eight(fp8.measure(run), square)
    yield from eight_outputs(fp8.outputs(run))
    yield from eight_counted(fp8.counted(experiments.counters(run, "fp8"), machine["sm_count"]), machine)
    yield from eight_tried(trials.read(run.folder / "fp8", trials.EIGHT))


# ---------------------------------------------------------------- the format and the published kernel


def compressed(a: two_four.TwoFour) -> Iterator[Fact]:
    """What a matrix takes compressed, bytes."""
    dense = 2 * a.m * a.k
    return under("matrix", dense=dense, compressed=a.nbytes, share=a.nbytes / dense)


def pruned(made: pd.DataFrame | None) -> Iterator[Fact]:
    """How long pruning and compressing take; made: the record of `prepare.measure`."""
    if made is None:
        return
    for row in made.itertuples():
        yield from under(f"pruned.{row.m} × {row.k}", us=row.median_us, gbps=row.gbps)


def code(made: Published) -> Iterator[Fact]:
    """What this page's compiler made of the published kernel."""
    first, second = made.selectors["0x0"], made.selectors["0x1"]
    return under("code", multiplications=made.multiplications, first=first, second=second, past_l1=made.past_l1)


def predictions() -> Iterator[Fact]:
    """What was predicted, as the room says it."""
    return each("prediction", {v: variants.prediction(v) for v in (*variants.STUDIES, "auto")})


def _stated(benchmarks: pd.DataFrame, quantity: str) -> dict[int, float]:
    """What the source states of its kernel, by size."""
    mine = benchmarks[(benchmarks["quantity"] == quantity) & (benchmarks["variant"] == "mma_sp")]
    rows = mine[mine["size"].notna()]
    return dict(zip(rows["size"].astype(int), rows["low"], strict=True))


def _stated_peak(benchmarks: pd.DataFrame) -> float:
    rows = benchmarks[(benchmarks["quantity"] == "peak") & (benchmarks["variant"] == "mma_sp")]
    return rows["low"].iloc[0]


def share(square: pd.DataFrame, benchmarks: pd.DataFrame) -> Iterator[Fact]:
    """The published kernel's throughput over cuSPARSELt's best; benchmarks: what the source states."""
    ours, library = by_size(square, "mma_sp"), by_size(square, "cusparselt")
    at, stated = over(square, "mma_sp", "cusparselt"), _stated(benchmarks, "speedup_cusparselt")
    there = [size for size in stated if size in at.index]
    for size in there:
        here = dict(ours=ours[size], library=library[size], measured=at[size], stated=stated[size])
        yield from under(f"share.at.{cube(size)}", **here)
    yield from under("share", least=at.min(), most=at.max(), behind=max(stated[size] - at[size] for size in there))


def instruction(square: pd.DataFrame, ceilings: Ceilings) -> Iterator[Fact]:
    """What loops of one instruction sustain, and contenders at 4096³, TFLOP/s."""
    yield from each("peak", ceilings.peak)
    if ceilings.two_instructions:
        yield "peak.best_wgmma_sp", ceilings.peak[ceilings.best_sparse]
    yield from each("rate", {v: by_size(square, v)[4096] for v in ("mma_sp", "cusparselt", "cublaslt")})
    library = by_size(square, "cusparselt")
    yield from under("library.most", tflops=library.max(), size=cube(library.idxmax()))
    if ceilings.best_sparse is None:
        return
    best = ceilings.best_sparse
    yield from under("best_sparse", loop=best, called=ceilings.called, peak=ceilings.peak[best])
    yield "best_sparse.mhz", ceilings.sm_mhz[best]


def shared_memory(
    square: pd.DataFrame, ceilings: Ceilings, machine: variants.Machine, benchmarks: pd.DataFrame
) -> Iterator[Fact]:
    """What a step of the published kernel takes, clocks: of shared memory, of the tensor cores there and here."""
    if "mma_sp" not in ceilings.peak:
        return
    step, top, mhz, stated_peak = (
        variants.step(),
        ceilings.peak["mma_sp"],
        ceilings.sm_mhz["mma_sp"],
        _stated_peak(benchmarks),
    )
    there = step.flop / (stated_peak * 1e12 / POST_SMS / POST_CLOCK)
    here = step.flop / (top * 1e12 / machine["sm_count"] / (mhz * 1e6))
    yield from under("step", read_kib=step.read / 1024, written_kib=step.written / 1024, shared=step.clocks)
    yield from under("step", there=there, here=here, ratio=step.clocks / here, mhz=mhz)
    ours, stated = by_size(square, "mma_sp"), _stated(benchmarks, "tflops")
    for size in _stated(benchmarks, "speedup_cusparselt"):
        if size in ours.index:
            yield from under(f"of_peak.{cube(size)}", ours=ours[size] / top, stated=stated[size] / stated_peak)


def studies(df: pd.DataFrame, machine: variants.Machine) -> Iterator[Fact]:
    """Of each side study: its speedup over the published kernel, geometric mean; blocks that an SM has room for."""
    registers = variants.blocks_by_registers(machine)
    yield "studies.sizes", listed(map(cube, by_size(df, "mma_sp").index))
    yield from under("blocks", registers=registers, shared=variants.blocks_by_shared(machine))
    for v in variants.STUDIES:
        if (df["variant"] == v).any():
            blocks = min(registers, variants.blocks_by_shared(machine, v))
            name = v.removeprefix("mma_sp_")
            yield from under(f"study.{name}", mean=geomean(over(df, v, "mma_sp")), blocks=blocks)


def conflicts(counters: Counters) -> Iterator[Fact]:
    """Of the published kernel: how busy its pipes are at 4096³, per cent, and what share of wavefronts conflicts."""
    if counters.has("mma_sp", size=4096, metrics=(TENSOR, SHARED)):
        shared, tensor = (counters.get("mma_sp", 4096, metric) for metric in (SHARED, TENSOR))
        yield from under("busy", shared=shared, tensor=tensor)
    metrics = experiments.CONFLICTS, experiments.WAVES
    for v in ("mma_sp", "mma_sp_ca", "mma_sp_all_threads"):
        sizes = [size for size in (4096, 8192, 2048) if counters.has(v, size=size, metrics=metrics)]
        for size in sizes[:1]:
            yield f"conflicts.{v}", counters.get(v, size, metrics[0]) / counters.get(v, size, metrics[1])


# ---------------------------------------------------------------- the ladder


def compiled(report: pd.DataFrame) -> Iterator[Fact]:
    """report: the room's compile report."""
    rows = sass.ladder_rows(report)
    spilled = sorted(set(report[report["spills"]]["variant"]) & set(rows.index))
    other = sum(int(rows[op].sum()) for op in ("HMMA", "HMMA.SP", "HGMMA") if op in rows)
    return under("compiled", spilling=len(spilled), which=", ".join(spilled), other=other)


def climbed(ladder: Ladder, machine: variants.Machine) -> Iterator[Fact]:
    """How predictions did; of each rung its gain over the one that it builds on, and the waves that its tiles fill."""
    if not ladder.rungs:
        return
    sizes = ladder.climbed
    judged = tables.gains(ladder).dropna(subset=["predicted"])
    came = judged[[cube(size) for size in sizes]].mean(axis=1)
    near = judged[(came / judged["predicted"] - 1).abs() < 0.05]["rung"]
    yield from under("climbed", sizes=listed(map(cube, sizes)), largest=cube(sizes[-1]))
    yield from under("predicted", count=len(judged), near=len(near), rungs=listed(f"`{v}`" for v in near))
    yield "predicted.near_nothing", int(((came - 1).abs() < 0.05).sum())
    for v, rung in ladder.rungs.items():
        gains = {size: gain for size in sizes if not np.isnan(gain := ladder.gain(v, size))}
        yield from under(f"rung.{v}", m=rung.m, n=rung.n)
        yield from each(f"tiles.{v}", {cube(size): rung.tiles(size) for size in sizes})
        yield from each(f"waves.{v}", {cube(size): rung.tiles(size) / machine["sm_count"] for size in sizes})
        yield from each(f"gain.{v}", {cube(size): gain for size, gain in gains.items()})
        if gains:
            yield f"mean_gain.{v}", np.mean(list(gains.values()))
    top = max(ladder.rungs, key=lambda v: ladder.rate(v, 4096))
    names = list(variants.rungs())
    chain = [v for v in ladder.rungs if v in names[: names.index("wgmma_keep") + 1]]
    steps = sorted(chain, key=lambda v: -ladder.gain(v, 4096))[:3]
    yield from under("climb", least=ladder.rate("mma_sp", 4096), most=ladder.rate(top, 4096), top=top)
    yield from each("climb.steps", {v: ladder.gain(v, 4096) for v in steps})


def profiled(profile: Profile, ladder: Ladder, machine: variants.Machine) -> Iterator[Fact]:
    """What bounds the ladder, as counted at the largest size that was profiled."""
    if not profile.sizes:
        return
    size, rungs, get = profile.sizes[-1], variants.rungs(), profile.counters.get
    yield "profiled.size", cube(size)
    for v in profile.contenders:
        tensor, shared = get(v, size, TENSOR), get(v, size, SHARED)
        us, ghz = get(v, size, experiments.TIME) / 1e3, get(v, size, experiments.CLOCK) / 1e9
        yield from under(f"counted.{v}", tensor=tensor, shared=shared, us=us, ghz=ghz, clocks=us * ghz / 1e3)
        columns = {"port": experiments.TO_SM, "slices": experiments.AT_L2, "dram": experiments.FROM_DRAM}
        gb = {name: get(v, size, metric) / 1e9 for name, metric in columns.items()}
        yield from under(f"counted.{v}", **gb, instructions=get(v, size, experiments.INSTRUCTIONS) / 1e6)
        yield f"counted.{v}.port_per_clock", gb["port"] * 1e3 / (us * ghz * machine["sm_count"]) * 1e3
        yield f"counted.{v}.rate", ladder.rate(v, size)
    if not profile.holds("wgmma_keep"):
        return
    for name, v in (("keep", "wgmma_keep"), ("tall", "wgmma_tall")):
        rung = rungs[v]
        math = 2 * rung.m * rung.n * variants.STEP_K / PER_CLOCK
        yield from under(f"tile.{name}", m=rung.m, n=rung.n, k=variants.STEP_K, math=math, rows_of_64=rung.rows_of_64)
        read = dict(b_kib=rung.b_bytes / 1024, b_clocks=rung.b_bytes / variants.BYTES_PER_CLOCK, a_share=32 / rung.n)
        yield from under(f"tile.{name}", **read)
    yield "tile.fewer", rungs["wgmma_tall"].l2_bytes / rungs["wgmma_keep"].l2_bytes
    seen = [
        get(v, s, experiments.CLOCK) / 1e9
        for v in rungs
        for s in profile.sizes
        if profile.counters.has(v, size=s, metrics=[experiments.CLOCK])
    ]
    yield from under("clock", least=min(seen), most=max(seen), top=machine["sm_mhz_max"] / 1e3)
    columns = (by_size(ladder.frame, "wgmma_keep", column)[size] for column in ("sm_mhz", "power_w", "throttle"))
    yield from under("nvml", **dict(zip(("mhz", "watt", "throttle"), columns, strict=True)))
    yield "nvml.limit", machine["power_limit_w"]


def ideas(ladder: Ladder, counters: Counters, machine: variants.Machine) -> Iterator[Fact]:
    """What single ideas of the ladder rest on, besides gains and the profile at its largest size."""
    yield from under("registers", at_launch=family.AT_LAUNCH)
    yield from each("band", {v: room.RUNGS[v][0].band for v in ("wgmma_gpc", "wgmma_lean")})
    if "wgmma_split_k" in ladder.rungs:
        rung = ladder.rungs["wgmma_split_k"]
        for size in ladder.sizes:
            yield from under(f"split_k.{cube(size)}", tiles=rung.tiles(size), gain=ladder.gain(rung.name, size))
    stream = "wgmma_stream_k"
    if stream in ladder.rungs:
        worst = min(ladder.climbed, key=lambda size: ladder.gain(stream, size))
        metrics = experiments.AT_L2, experiments.FROM_DRAM
        if counters.has(stream, "wgmma_keep", size=worst, metrics=metrics):
            slices, dram = (counters.ratio(stream, "wgmma_keep", worst, metric) for metric in metrics)
            yield from under("stream_k", worst=cube(worst), slices=slices, dram=dram)
    if "wgmma_last_wave" in ladder.rungs:
        waves = {size: ladder.rungs["wgmma_last_wave"].tiles(size) / machine["sm_count"] for size in ladder.climbed}
        for size in [size for size, count in waves.items() if 0 < count % 1 <= 0.5][-1:]:
            before = int(np.ceil(waves[size]))
            yield from under("last_wave", size=cube(size), before=before, after=before - 0.5)
    if "wgmma_pieces" in ladder.rungs:
        rung = ladder.rungs["wgmma_pieces"]
        for size in ladder.climbed:
            count = rung.tiles(size)
            cut = family.cut_into_pieces(count, rung.rows_of_64, machine["sm_count"])
            last = dict(last=count % machine["sm_count"], pieces=cut.pieces, rows=64 * cut.groups)
            yield from under(f"pieces.{cube(size)}", **last)


def alone(counters: Counters, profile: Profile) -> Iterator[Fact]:
    """Million clocks of a kernel, of it without its loads, and without its multiplications.

    counters: of the room's part `bounds`.
    """
    if not profile.sizes:
        return
    size, metrics = profile.sizes[-1], (experiments.TIME, experiments.CLOCK, SHARED)
    shares, read = [], []
    for name, tile in bounds_.TILES.items():
        kernels = [name + part for part in bounds_.LEFT_OUT]
        if not counters.has(*kernels, size=size, metrics=metrics):
            continue
        whole, bare, load = (
            counters.get(v, size, experiments.TIME) * counters.get(v, size, experiments.CLOCK) / 1e15 for v in kernels
        )
        yield from under(f"bare.tiles.{tile.m} × {tile.n}", whole=whole, bare=bare, load=load, share=bare / whole)
        shares.append(bare / whole)
        read.append(counters.get(f"{name}_unloaded", size, SHARED))
    if shares:
        yield from under("bare", share=min(shares), read_least=min(read), read_most=max(read))


# ---------------------------------------------------------------- energy


def power(view: View, ladder: Ladder, machine: variants.Machine) -> Iterator[Fact]:
    """What NVML's power tells, and of which points."""
    told, limit = view.joules, machine.get("power_limit_w")
    yield from under("energy", near=1 - energy.NEAR_LIMIT, bar=energy.BAR)
    if told.empty:
        return
    points = sorted({(r.m, r.experiment) for r in told.itertuples()})
    yield from under("energy", limit=limit, points=listed(f"{cube(m)} ({experiment})" for m, experiment in points))
    auto = told[told["variant"] == "auto"].sort_values("m").drop_duplicates("m", keep="last")
    for r in auto.itertuples():
        cost = dict(low_j=r.low_j, high_j=r.high_j, low_pj=r.low_pj, high_pj=r.high_pj)
        yield from under(f"energy.auto.{cube(r.m)}", **cost)
    rest = view.asked[[at not in points for at in zip(view.asked["m"], view.asked["experiment"], strict=True)]]
    for r in rest.sort_values("ms").iloc[[0, -1]].drop_duplicates().itertuples() if len(rest) else ():
        yield from under(f"energy.short.{cube(r.m)} ({r.experiment})", ms=r.ms, times=r.times)
    if view.model is None:
        return
    at = ladder.frame[ladder.frame["m"] == view.size].set_index("variant")
    here = (view.largest["clocks"] * 1e3 / at["median_us"]).dropna()
    for name, ghz in (("harness", here), ("profile", view.largest["ghz"])):
        if len(ghz):
            low, high = ghz.quantile([0.25, 0.75])
            yield from under(f"ghz.{name}", least=ghz.min(), most=ghz.max(), quarter=low, three_quarters=high)
    if len(at):
        yield "ghz.nvml", at["sm_mhz"].iloc[0] / 1e3


def models(view: View) -> Iterator[Fact]:
    """How good the models of the clock and of clocks are, and what they say of a larger tile."""
    found = energy.clocks(view.rows, view.sms)
    if len(found):
        good = (found["error"].abs() <= energy.BAR).sum()
        yield from under("clocks", rungs=found["variant"].nunique(), count=len(found), good=int(good))
        yield "clocks.shared_reached", family.SHARED_REACHED
        yield from each("clocks.error", {f"{r.variant} {cube(r.size)}": r.error for r in found.itertuples()})
    if view.model is None:
        return
    judged, across = view.judged, energy.other_size(view.rows)
    yield from under("model", least=view.rows["ghz"].min(), most=view.rows["ghz"].max(), count=len(judged))
    off = judged["error"].abs()
    yield from under("model", worst=off.max(), rms=np.sqrt((off**2).mean()))
    yield from each("model.error", {f"{r.variant} {cube(r.size)}": r.error for r in judged.itertuples()})
    for name, rows_ in (("across", across), ("both", energy.both(view.rows, view.sms))):
        off = rows_["error"].abs()
        if len(rows_):
            good = int((off <= energy.BAR).sum())
            yield from under(f"model.{name}", worst=off.max(), good=good, beyond=len(off) - good, count=len(off))
    yield from _larger(view)


def _larger(view: View) -> Iterator[Fact]:
    """Of a tile of three warpgroups, from the other contenders, and what came of it."""
    tile, found = energy.THREE_GROUPS, energy.larger_tile(view.rows, view.size, view.sms)
    if found.empty:
        return
    port = found["port_gb"].iloc[0]
    yield from under("larger", m=tile.m, n=tile.n, port=port, auto=view.largest["port"]["auto"], size=cube(view.size))
    for r in found.itertuples():
        said = dict(bound=energy.ANCHORS[r.anchor], ratio=r.over_auto, clocks=r.clocks, ghz=r.ghz)
        yield from under(f"larger.as.{r.anchor}", **said)
    if energy.LARGER in view.largest.index:
        came = view.largest.loc[energy.LARGER]
        ratio = view.largest["us"]["auto"] / came.us
        nearest = min(found.itertuples(), key=lambda r: abs(r.over_auto - ratio)).anchor
        yield from under("larger.came", ratio=ratio, clocks=came.clocks, ghz=came.ghz, nearest=nearest)


def peaks(view: View, ceilings: Ceilings, machine: variants.Machine) -> Iterator[Fact]:
    """What a share of a peak compares: `auto` in the profile with the loop of its instruction."""
    best = ceilings.best_sparse
    if best is None or view.model is None or "auto" not in view.largest.index:
        return
    least = ceilings_.least_mhz(best, ceilings.peak[best], machine) / 1e3
    row = view.largest.loc["auto"]
    rate = 2e-6 * view.size**3 / row.us  # TFLOP/s
    if not np.isnan(least):
        yield from under("peaks", needs=least, rate=rate, share=rate / ceilings.peak[best], size=cube(view.size))
        yield from under("peaks", ghz=row.ghz, busy=row.tensor / row.clocks)


def turns(told: pd.DataFrame | None, square: pd.DataFrame) -> Iterator[Fact]:
    """`auto` over the library where each runs alone, beside the sweep's turns, and by how much that differs at the
    sizes at which power lowered the clock in both records."""
    yield from under("alone", seconds=experiments.ALONE_S, launches=experiments.ALONE_SAMPLES)
    if told is None:
        return
    capped = [set(df["m"][df["throttle"].str.contains("power")]) for df in (told, square)]
    by_itself, in_turns = (over(df, "auto", "cusparselt") for df in (told, square))
    both = pd.DataFrame({"alone": by_itself, "turns": in_turns}).dropna()
    for m, r in both.iterrows():
        yield from under(f"alone.at.{cube(m)}", alone=r.alone, turns=r.turns)
    judged = both[[m in capped[0] & capped[1] for m in both.index]]
    if judged.empty:
        return
    ratios = judged["alone"] / judged["turns"] - 1
    apart = ((told["q75_us"] - told["q25_us"]) / told["median_us"])[told["m"].isin(judged.index)].max()
    mean = float(np.expm1(np.log1p(ratios).mean()))
    yield from under("alone", sizes=listed(map(cube, judged.index)), mean=mean, quartiles=apart)
    yield from under("alone", least=ratios.min(), most=ratios.max())


# ---------------------------------------------------------------- the tuned family


def _by_shape(values: pd.Series) -> dict[str, float]:
    return {shape(key): value for key, value in values.items()}


def _flop(at: pd.Index) -> np.ndarray:
    return np.array([2.0 * np.prod(key) for key in at])


def speedups(both: pd.DataFrame, machine: variants.Machine) -> Iterator[Fact]:
    """Of `auto`; both: records of squares and layers."""
    us = wide(both, "median_us")
    best, default, dense = (us[v] / us["auto"] for v in ("cusparselt", "cusparselt_default", "cublaslt"))
    for name, ratio in (("best", best), ("default", default), ("dense", dense)):
        yield from spread(f"auto.{name}", ratio)
        yield from each(f"auto.{name}.at", _by_shape(ratio))
    yield from under("auto", narrowest=shape(best.idxmin()), widest=shape(best.idxmax()), behind=int((best < 1).sum()))
    is_large = _flop(best.index) >= experiments.LARGE
    yield from spread("auto.large", best[is_large])
    yield from spread("auto.small", best[~is_large])
    below = best[is_large & (best < experiments.AIM)]
    yield from under("auto.large", aim=experiments.AIM, reached=int(is_large.sum() - len(below)), below=len(below))
    if len(below):
        yield from under("auto.below_aim", low=below.min(), high=below.max())
    weak = dense[[max(key) <= 1024 or key[1] <= 128 for key in dense.index]]
    yield from each("auto.weak", _by_shape(weak))
    yield "cusparselt", machine.get("cusparselt") or "of an unknown version"


def other_libraries(found: Mapping[str, pd.DataFrame], both: pd.DataFrame, machine: variants.Machine) -> Iterator[Fact]:
    """How `auto` does against other versions of cuSPARSELt, and those against the records' own.

    found: as `libraries.read` returns it; both: records of squares and layers.
    """
    mine = wide(both, "median_us")
    for version, df in found.items():
        if version == machine.get("cusparselt"):
            continue
        us = wide(df, "median_us")
        ratio = us["cusparselt"] / us["auto"]
        large = ratio[_flop(ratio.index) >= experiments.LARGE]
        name = f"other.{version.replace('.', '_')}"
        yield from under(name, version=version, least_at=shape(ratio.idxmin()), behind=int((ratio < 1).sum()))
        yield from spread(f"{name}.best", ratio)
        yield from spread(f"{name}.large", large)
        yield f"{name}.large.reached", int((large >= experiments.AIM).sum())
        shared = us.index.intersection(mine.index)
        # Two runs are two clocks: what both have in common is `auto`.
        if len(shared):
            yield f"{name}.newer", geomean((mine["cusparselt"] / mine["auto"])[shared] / ratio[shared])


def small(df: pd.DataFrame | None, tried: pd.DataFrame | None) -> Iterator[Fact]:
    """Where few tiles are multiplied, and what the trials at such products say of why, µs."""
    if df is not None:
        us = wide(df, "median_us")
        yield from spread("few.best", us["cusparselt"] / us["auto"])
        yield from spread("few.dense", us["cublaslt"] / us["auto"])
    names = ("copy_engine", "copy_engine_warm", "empty")
    if tried is None or not set(names) <= set(tried["trial"]):
        return
    least = tried[tried["trial"].isin(names)].groupby("trial").first()
    cold, warm, empty = (least.loc[name] for name in names)
    yield from under("copies", size=shape((int(cold["m"]), int(cold["n"]), int(cold["k"]))))
    yield from under("copies", empty=empty["value"], beside=empty["beside_value"])
    yield from under("copies", cold=cold["value"] - cold["beside_value"], warm=warm["value"] - warm["beside_value"])


def chosen(table: pd.DataFrame) -> Iterator[Fact]:
    """table: `tables.chosen`."""
    if table.empty:
        return
    yield from under("chosen", count=len(table), combinations=table.groupby(["kernel", "tile"]).ngroups)
    yield from each("chosen.splits", table.set_index("shape")["splits"])


def left(profile: Profile, square: pd.DataFrame) -> Iterator[Fact]:
    """How near `auto` could come to its bounds with the ladder's plain tile."""
    if not profile.holds("auto", "cusparselt"):
        return
    tile = variants.rungs()["wgmma_keep"]
    port = tile.m * tile.n * tile.l2_bytes / variants.PORT_BYTES  # clocks for a step, as family.predict has it
    math = 2 * tile.m * tile.n * variants.STEP_K / PER_CLOCK
    swept = over(square, "auto", "cusparselt")
    shared = family.SHARED_REACHED / (1 + 32 / tile.n)
    yield from under("left", swept=swept.get(profile.sizes[-1], np.nan), port=math / port, shared=shared)


def off_by_one(ragged: pd.DataFrame, square: pd.DataFrame) -> Iterator[Fact]:
    """What one size off 4096³ costs, and `auto` over dense cuBLASLt at any size."""
    rate = wide(ragged, "tflops")
    yield from each("ragged.dense", _by_shape(rate["auto"] / rate["cublaslt"]))
    near = [key for key in rate.index if key != WHOLE and all(abs(size - 4096) < 64 for size in key)]
    if not near:
        return
    yield "off.dense", min(rate.loc[key, "auto"] / rate.loc[key, "cublaslt"] for key in near)
    for name, odd in (("aligned", False), ("odd", True)):
        keys = [key for key in near if bool(key[1] % 8) == odd]
        for v in experiments.RAGGED:
            base = rate.loc[WHOLE, v] if WHOLE in rate.index else by_size(square, v)[4096]
            yield f"off.{name}.{v}", 1 - np.mean([rate.loc[key, v] / base for key in keys])


def rows(df: pd.DataFrame | None, counters: Counters, took: Mapping[tuple, variants.Chosen]) -> Iterator[Fact]:
    """What rows of B that begin at odd multiples of 16 bytes cost.

    counters: of `experiments.counters_of_rows`; took: choices of the tuner, by shape.
    """
    if df is None:
        return
    rate, us = wide(df, "tflops"), wide(df, "median_us")
    odd = [key for key in rate.index if variants.begin_at(key[1]) == 16]
    yield from spread("rows.best", (rate["auto"] / rate["cusparselt"])[odd])
    for key in (key for key in odd if key in took):
        c = took[key]
        yield f"rows.took.{shape(key)}", f"`{c.kernel}` of {c.m} × {c.n}{' after a copy' * c.copied}"
    if not {ODD_ROWS, WHOLE_ROWS} <= set(us.index):
        return
    yield from each("rows.more", us.loc[ODD_ROWS] / us.loc[WHOLE_ROWS] - 1)
    for name, key in (("odd", ODD_ROWS), ("whole", WHOLE_ROWS)):
        yield f"rows.clusters.{name}", us.loc[key, "wgmma_lean"] / us.loc[key, "wgmma_clusters"]
    metrics = dict(requests=experiments.REQUESTS, sectors=experiments.SECTORS, port=experiments.TO_SM)
    if all(counters.has("wgmma_lean", size=n, metrics=metrics.values()) for n in (4096, 4104)):
        grown = {
            name: counters.get("wgmma_lean", 4104, m) / counters.get("wgmma_lean", 4096, m)
            for name, m in metrics.items()
        }
        yield from each("rows.grown", grown)


def epilogue(tried: epilogue_.Tried | None) -> Iterator[Fact]:
    if tried is not None:
        at = shape(tuple(epilogue_.CHECKED.values()))
        yield from under("epilogue", at=at, rel_err=tried.rel_err, all_us=tried.all_us, plain_us=tried.plain_us)


def float16(halves: pd.DataFrame, square: pd.DataFrame) -> Iterator[Fact]:
    """`auto` over cuSPARSELt's best at 4096³ in both types, and how many times smaller FP16's error is."""
    fp, bf = (df.set_index("variant") for df in (halves, square[square["m"] == 4096]))
    over_fp, over_bf = (df["tflops"]["auto"] / df["tflops"]["cusparselt"] for df in (fp, bf))
    yield from under("fp16", best=over_fp, bfloat16=over_bf, error=bf["rel_err"]["auto"] / fp["rel_err"]["auto"])


def errors(every: pd.DataFrame, both: pd.DataFrame) -> Iterator[Fact]:
    """The largest error of ours, and what preparing A costs, ms; every: all BF16 records; both: squares and layers."""
    ours = every[~every["variant"].str.startswith(registry.PREFIXES)]
    worst = every.loc[ours["rel_err"].idxmax()]
    # The error of rounding to 8 significant bits, root mean square: uniform within half a unit, numbers spread
    # evenly in their logarithm.
    rounding = 2**-8 / np.sqrt(3) / np.sqrt(3 / (2 * np.log(2)))
    cost = wide(both, "prepare_ms")
    last = max(cost.index, key=lambda key: key[0] * key[2])
    yield from under("error", most=worst["rel_err"], variant=worst["variant"], at=shape(tuple(worst[KEYS])))
    yield "error.rounding", rounding
    yield from under("prepare", at=shape(last), auto=cost.loc[last, "auto"], cusparselt=cost.loc[last, "cusparselt"])


# ---------------------------------------------------------------- FP8


def eight(eights: pd.DataFrame | None, square: pd.DataFrame) -> Iterator[Fact]:
    """`fp8_auto` over the libraries and over `auto` in BF16, errors, and the clock that power leaves."""
    if eights is None:
        return
    us = wide(eights, "median_us")
    for name, v in (("best", "cusparselt"), ("dense", "cublaslt_eight")):
        ratio = (us[v] / us["fp8_auto"]).dropna()
        yield from spread(f"eight.{name}", ratio)
        yield from each(f"eight.{name}.at", _by_shape(ratio))
        yield from under(f"eight.{name}", least_at=shape(ratio.idxmin()), most_at=shape(ratio.idxmax()))
        yield f"eight.{name}.library", registry.library(v)
    cubes = eights[(eights["m"] == eights["n"]) & (eights["n"] == eights["k"])]
    gain = (by_size(square, "auto", "median_us") / by_size(cubes, "fp8_auto", "median_us")).dropna()
    if len(gain):
        yield from under("eight.time", least=1 / gain.max(), least_at=cube(gain.idxmax()))
        yield from under("eight.time", most=1 / gain.min(), most_at=cube(gain.idxmin()))
    capped = cubes[cubes["throttle"].str.contains("power")].sort_values("m")
    if len(capped):
        first, last = capped.iloc[0], capped.iloc[-1]
        yield from under("eight.power", first=cube(int(first["m"])), last=cube(int(last["m"])))
        yield from under("eight.power", watt=last["power_w"], mhz=last["sm_mhz"])
    limit = check.LIMITS["fp8"]
    ours = eights[eights["variant"].isin([*fp8_family.RUNGS, "fp8_auto"])]
    worst = ours.loc[ours["rel_err"].idxmax()]
    yield from under("eight.error", most=worst["rel_err"], at=shape(tuple(worst[KEYS])), element=ours["max_err"].max())
    yield from under("eight.limit", most=limit.rel_err, element=limit.max_err, why=limit.why)


def eight_outputs(outputs: pd.DataFrame | None) -> Iterator[Fact]:
    """What scales by vectors and an output of e4m3 cost, at the largest size."""
    if outputs is None:
        return
    cubes = outputs[(outputs["m"] == outputs["n"]) & (outputs["n"] == outputs["k"])]
    size = int(cubes.loc[cubes["label"] != "e4m3", "m"].max())
    us = cubes[cubes["m"] == size].set_index("label")["median_us"]
    yield "eight.outputs.size", cube(size)
    yield from each("eight.outputs.time", (us / us["e4m3"]).drop("e4m3"))


def eight_counted(rows: pd.DataFrame, machine: variants.Machine) -> Iterator[Fact]:
    """The kernel of ours over cuSPARSELt's, in the profile; rows: `fp8.counted`."""
    ours, theirs = "fp8_auto", "cusparselt"
    both = rows.unstack("variant") if len(rows) else rows
    if not {("us", ours), ("us", theirs)} <= set(both.columns):
        return
    both = both[both["us"][[ours, theirs]].notna().all(axis=1)]
    last = both.index[-1]
    names = ("us", "clocks", "ghz", "tensor", "port", "slices", "dram")
    ratio = {name: both[name][ours] / both[name][theirs] for name in names}
    for name in names:
        found = ratio[name]
        yield from under(f"beside.{name}", least=found.min(), most=found.max(), last=found[last], mean=geomean(found))
    yield from under("beside", size=cube(int(last)), most_mhz=rows["ghz"].max() * 1e3, top_mhz=machine["sm_mhz_max"])
    busy = both["tensor"] / both["clocks"]
    yield from under("beside.busy", ours=busy[ours][last], theirs=busy[theirs][last])


def eight_tried(df: pd.DataFrame | None) -> Iterator[Fact]:
    """How far groups of half a step came, and what is left where nothing is loaded: shares of the clocks."""
    names = ("halves", "halves_unloaded", "unloaded", "unloaded_unstored")
    if df is None or not set(names) <= set(df["trial"]):
        return
    gain = df.groupby("trial")["gain"].agg(geomean)
    before, bare = (df[df["trial"] == name].set_index("m")["beside_value"] for name in names[:2])
    yield from each("eight.bare", {cube(int(m)): bare[m] / before[m] for m in before.index})
    yield from each("eight.left", {name: 1 / gain[name] for name in names})
