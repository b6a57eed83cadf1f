"""The chapter's facts, by the part of it that they stand in. Sizes are named as a page writes them, "4096³"."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from artifact import registry
from artifact.book.facts import Fact, flat, summary
from artifact.book.study import by, pivot, ratio, where
from artifact.drawing.formatting import cube, listed, shape
from artifact.measure import apart, ceilings, records, verification
from artifact.measure.run import Run
from artifact.systems.tensor_core_24 import energy, experiments, libraries, tables, variants
from artifact.systems.tensor_core_24.experiments import (
    ALONE_S,
    ALONE_SAMPLES,
    COUNTED,
    KEYS,
    Chapter,
    launches,
    together,
)
from kernels.formats import two_four
from kernels.tensor_core_24 import bounds, family

#: The post's RTX 4070: SMs, and Hz of boost clock (its data sheet).
POST_SMS, POST_CLOCK = 46, 2.475e9
#: Clocks of an SM's tensor cores, in dense-equivalent FLOP.
PER_CLOCK = 2 * ceilings.TENSOR_FLOP_PER_CLOCK[(9, 0)]
#: `auto` over cuSPARSELt's best should be at `AIM`, from the work of 4096³ on.
AIM, LARGE = 1.10, 4096**3
WHOLE = (4096, 4096, 4096)
FEW_TOKENS = 64  #: of decoding, at most
#: As many tiles in both, 17 of 256 columns: rows that begin at odd multiples of 16 bytes, and at whole lines.
ODD_ROWS, WHOLE_ROWS = (4096, 4104, 4096), (4096, 4160, 4096)
#: The error of rounding to 8 significant bits, root mean square: uniform within half a unit, numbers spread evenly in
#: their logarithm.
ROUNDING = 2**-8 / np.sqrt(3) / np.sqrt(3 / (2 * np.log(2)))


def of(run: Run) -> Iterator[Fact]:
    """Yield every fact that records hold."""
    post = Chapter(run)
    for part in (pruned, published, studies, climbed, profiled, energies, tuned, small, any_size, rows, eight, linear):
        yield from part(post)


# ---------------------------------------------------------------- what this page compiles or tries itself


def compressed(a: two_four.TwoFour) -> Iterator[Fact]:
    """Return what a matrix takes compressed, bytes."""
    dense = 2 * a.m * a.k
    return flat({"matrix": {"dense": dense, "compressed": a.nbytes, "share": a.nbytes / dense}})


def code(rows: pd.DataFrame, loop: list[str]) -> Iterator[Fact]:
    """Return what this page's compiler made of the published kernel: what `variants.published` returns."""
    first, second = (sum("HMMA.SP" in op and op.endswith(f"{s} ;") for op in loop) for s in ("0x0", "0x1"))
    past = (rows["past_l1"] == rows["copies"]).all()
    return flat({"code": {"multiplications": first + second, "first": first, "second": second, "past_l1": past}})


def compiled(report: pd.DataFrame) -> Iterator[Fact]:
    """report: the system's compile report."""
    rows = variants.ladder_rows(report)
    spilled = sorted(set(report[report["spills"]]["variant"]) & set(rows["variant"]))
    other = int(rows.filter(items=["HMMA", "HMMA.SP", "HGMMA"]).to_numpy().sum())
    return flat({"compiled": {"spilling": len(spilled), "which": ", ".join(spilled), "other": other}})


def epilogue(tried: dict[str, float] | None) -> Iterator[Fact]:
    """C = alpha·A·B + beta·C + bias, where it was tried."""
    return flat({"epilogue": {"at": shape(experiments.CHECKED)} | tried} if tried else {})


# ---------------------------------------------------------------- the format and the published kernel


def pruned(post: Chapter) -> Iterator[Fact]:
    """How long pruning and compressing take."""
    made = experiments.pruning(post.run)
    made.index = pd.Index([f"{m} × {k}" for m, k in zip(made["m"], made["k"], strict=True)])
    return flat({"pruned": made[["median_us", "gbps"]].rename(columns={"median_us": "us"})})


def published(post: Chapter) -> Iterator[Fact]:
    """Return the published kernel beside cuSPARSELt's best and what the source states of both.

    What loops of one instruction sustain, TFLOP/s; what a step takes, clocks: of shared memory, of the tensor cores
    there and here.
    """
    rates, mhz = pivot(post["square"], "tflops"), post.ceilings["sm_mhz"]
    best, top = post.loops.iloc[-1], post.peak["mma_sp"]
    ours, library, share = rates["mma_sp"], rates["cusparselt"], ratio(post["square"], "mma_sp", "cusparselt")
    at = pd.DataFrame({"ours": ours, "library": library, "measured": share, "stated": post.post("speedup_cusparselt")})
    behind, most = (at["stated"] - at["measured"]).max(), {"tflops": library.max(), "size": cube(library.idxmax())}
    (flop, read, written), peak = variants.step(), post.stated("benchmarks", "peak", variant="mma_sp")["value"].item()
    there, shared = flop / (peak * 1e12 / POST_SMS / POST_CLOCK), (read + written) / variants.BYTES_PER_CLOCK
    here = flop / (top * 1e12 / post.machine["sm_count"] / (mhz["mma_sp"] * 1e6))
    step = {"read_kib": read / 1024, "written_kib": written / 1024, "shared": shared, "there": there, "here": here}
    of_peak = pd.DataFrame({"ours": ours / top, "stated": post.post("tflops") / peak}).dropna().rename(cube)
    counted = where(post.counted, size=4096).set_index("variant").reindex(["mma_sp", "mma_sp_ca", "mma_sp_all_threads"])
    return flat(
        {
            "share": {"at": at.dropna().rename(cube), "least": share.min(), "most": share.max(), "behind": behind},
            "peak": {**post.peak, "best_wgmma_sp": post.peak[best] if best != "mma_sp" else None},
            "rate": rates.loc[4096, ["mma_sp", "cusparselt", "cublaslt"]],
            "library": {"most": most},
            "best_sparse": {"called": post.loops.index[-1], "peak": post.peak[best], "mhz": mhz[best]},
            "step": step | {"ratio": shared / here, "mhz": mhz["mma_sp"]},
            "of_peak": of_peak,
            "busy": counted.loc["mma_sp", ["shared", "tensor"]],
            "conflicts": counted["conflicts"] / counted["waves"],
        }
    )


def studies(post: Chapter) -> Iterator[Fact]:
    """Of each side study: its speedup over the published kernel, geometric mean; blocks that an SM has room for."""
    us = pivot(post["studies"], "median_us")
    blocks = {v: variants.blocks(post.machine, v) for v in us if v in variants.STUDIES}
    found = {v: {"mean": records.geomean(us["mma_sp"] / us[v]), "blocks": min(of.values())} for v, of in blocks.items()}
    said = {v: variants.PREDICTIONS[v] for v in (*variants.STUDIES, "auto")}
    return flat(
        {
            "studies": {"sizes": listed(map(cube, us.index))},
            "blocks": variants.blocks(post.machine),
            "study": {v.removeprefix("mma_sp_"): study for v, study in found.items()},
            "prediction": said,
        }
    )


# ---------------------------------------------------------------- the ladder


def climbed(post: Chapter) -> Iterator[Fact]:
    """How predictions did.

    Of each rung its gain over the one that it builds on, the waves that its tiles fill, and what single ideas rest on
    besides.
    """
    if post.rungs.empty:
        return
    sms, configs, rate = post.machine["sm_count"], post.rungs["config"], post.rates.loc[4096]
    gains, tiles = (df.loc[post.climbed].rename(cube) for df in (post.gains, post.tiles))
    predicted, top = post.rungs["predicted"].dropna(), rate[post.rungs.index].idxmax()
    came, waves = gains.mean()[predicted.index], tiles / sms
    near, nothing = (came.index[(came / expected - 1).abs() < 0.05] for expected in (predicted, 1))
    judged = {"count": len(predicted), "near": len(near), "rungs": listed(f"`{v}`" for v in near)}
    split = pd.DataFrame({"tiles": post.tiles["wgmma_split_k"], "gain": post.gains["wgmma_split_k"]}).rename(cube)
    steps = post.gains.loc[4096, :"wgmma_keep"].nlargest(3)
    last, three = waves["wgmma_last_wave"], configs["wgmma_pieces"]
    cuts = {at: family.cut_into_pieces(n, three.groups * three.blocks, sms) for at, n in tiles["wgmma_pieces"].items()}
    yield from flat(
        {
            "climbed": {"sizes": listed(gains.index)},
            "predicted": judged | {"near_nothing": len(nothing)},
            "rung": {v: {"m": c.m, "n": c.n} for v, c in configs.items()},
            "tiles": tiles.T,
            "waves": waves.T,
            "gain": gains.T,
            "mean_gain": gains.mean(),
            "climb": {"least": rate["mma_sp"], "most": rate[top], "top": top, "steps": steps},
            "registers": {"at_launch": family.AT_LAUNCH},
            "band": {v: configs[v].band for v in ("wgmma_gpc", "wgmma_lean")},
            "split_k": split,
            "pieces": {
                at: {"last": tiles["wgmma_pieces"][at] % sms, "pieces": cut.pieces, "rows": 64 * cut.groups}
                for at, cut in cuts.items()
            },
        }
    )
    for at, count in np.ceil(last[(last % 1 > 0) & (last % 1 <= 0.5)])[-1:].items():
        yield from flat({"last_wave": {"size": at, "before": int(count), "after": int(count) - 0.5}})


def profiled(post: Chapter) -> Iterator[Fact]:
    """Yield what bounds the ladder, as counted at the largest size that was profiled."""
    df = post.profile
    if df.empty or post.rungs.empty:
        return
    size, columns = df["size"].iloc[0], ["requests", "sectors", "conflicts", "waves", "written", "size"]
    yield from flat(
        {"profiled": {"size": cube(size)}, "counted": df.drop(columns=columns).assign(rate=post.rates.loc[size])}
    )
    ghz, told = where(post.counted, variant=post.rungs.index)["ghz"], where(post.ladder, variant="wgmma_keep", m=size)
    nvml = {"mhz": "sm_mhz", "watt": "power_w", "throttle": "throttle"}
    keep, tall = (post.rungs["config"][v] for v in ("wgmma_keep", "wgmma_tall"))
    steps, swept = {"keep": _step(keep), "tall": _step(tall)}, ratio(post["square"], "auto", "cusparselt")
    worst = post.gains.loc[post.climbed, "wgmma_stream_k"].idxmin()
    at = where(post.counted, size=worst).set_index("variant")[["slices", "dram"]]
    port = keep.m * keep.n * steps["keep"]["l2"] / variants.PORT_BYTES  # clocks for a step, as `Wgmma.predict` has it
    yield from flat(
        {
            "tile": steps | {"fewer": steps["tall"]["l2"] / steps["keep"]["l2"]},
            "clock": {"least": ghz.min(), "most": ghz.max(), "top": post.machine["sm_mhz_max"] / 1e3},
            "nvml": {"limit": post.machine.get("power_limit_w")} | {name: told[c].item() for name, c in nvml.items()},
            "stream_k": {"worst": cube(worst), **at.loc["wgmma_stream_k"] / at.loc["wgmma_keep"]},
            "left": {
                "swept": swept.get(size),
                "port": steps["keep"]["math"] / port,
                "shared": family.SHARED_REACHED / (1 + 32 / keep.n),
            },
        }
    )
    # Million clocks of a kernel, of it without its loads, and without its multiplications.
    alone = launches(post.counters_of("bounds"), post.machine).set_index("variant")
    tiles = {f"{tile.m} × {tile.n}": [name + part for part in bounds.LEFT_OUT] for name, tile in bounds.TILES.items()}
    bare = pd.DataFrame({tile: [*alone["clocks"].reindex(v)] for tile, v in tiles.items()}, ["whole", "bare", "load"]).T
    share, read = bare["bare"] / bare["whole"], alone["shared"].filter(like="_unloaded")
    ends = {"share": share.min(), "read_least": read.min(), "read_most": read.max()}
    yield from flat({"bare": ends | {"tiles": bare.assign(share=share)}})


def _step(c: family.Wgmma) -> dict[str, float]:
    """Of a step of a tile: clocks of multiplication, what it reads of B from shared memory, A's share, and l2.

    What it brings from there, bytes for each element of C.
    """
    rows = c.groups * c.blocks  # of 64, each multiplied by the same B
    read, math = rows * family.K * c.n * 2, 2 * c.m * c.n * family.K / PER_CLOCK
    sizes = {"m": c.m, "n": c.n, "k": family.K, "rows_of_64": rows, "l2": (c.m * 72 + c.n * 128) / (c.m * c.n)}
    return sizes | {
        "math": math,
        "b_kib": read / 1024,
        "b_clocks": read / variants.BYTES_PER_CLOCK,
        "a_share": 32 / c.n,
    }


# ---------------------------------------------------------------- energy


def energies(post: Chapter) -> Iterator[Fact]:
    """Yield what NVML's power tells, and of which points; the clock in the profile and in the harness.

    How good models of the clock and of clocks are, and what they say of a larger tile; contenders alone beside the
    sweep's turns.
    """
    view = energy.view(post)
    told = view.joules
    points = sorted(set(zip(told["m"], told["experiment"], strict=True)))
    auto = where(told, variant="auto").sort_values("m").drop_duplicates("m", keep="last").set_index("m").rename(cube)
    asked = energy.asked(view.records).sort_values("ms")
    short = asked[[at not in points for at in zip(asked["m"], asked["experiment"], strict=True)]].iloc[[0, -1]]
    limit = {"limit": post.machine.get("power_limit_w"), "points": listed(f"{cube(m)} ({name})" for m, name in points)}
    yield from flat(
        {
            "energy": {
                "near": 1 - energy.NEAR_LIMIT,
                "bar": energy.BAR,
                "auto": auto[["low_j", "high_j", "low_pj", "high_pj"]],
                "short": {f"{cube(r.m)} ({r.experiment})": {"ms": r.ms, "times": r.times} for r in short.itertuples()},
                **(limit if points else {}),
            }
        }
    )
    yield from _turns(post["alone"], post["square"])
    if not view.tells:
        return
    rows, sms, largest, size = view.rows, post.machine["sm_count"], view.largest, view.size
    at, judged, found = where(post.ladder, m=size).set_index("variant"), energy.held_out(rows), energy.clocks(rows, sms)
    seen = {"harness": (largest["clocks"] * 1e3 / at["median_us"]).dropna(), "profile": largest["ghz"]}
    ends = {"least": 0, "quarter": 0.25, "three_quarters": 0.75, "most": 1}
    ghz = {name: clock.quantile([*ends.values()]).set_axis([*ends]) for name, clock in seen.items()}
    of_rows = {"least": rows["ghz"].min(), "most": rows["ghz"].max(), "rms": np.sqrt((judged["error"] ** 2).mean())}
    best, row = post.loops.iloc[-1], largest.loc["auto"]
    peak, rate = post.peak[best], 2e-6 * size**3 / row["us"]  # TFLOP/s
    yield from flat(
        {
            "ghz": ghz | {"nvml": at["sm_mhz"].min() / 1e3},
            "clocks": _judged(found) | {"rungs": found["variant"].nunique(), "shared_reached": family.SHARED_REACHED},
            "model": _judged(judged) | of_rows,
            "model.across": _judged(energy.held_out(rows, "size")),
            "model.both": _judged(energy.both(rows, sms)),
            "larger": _larger(view, sms),
            # What a share of a peak compares: `auto` in the profile with the loop of its instruction.
            "peaks": {"needs": ceilings.least_mhz(best, peak, post.machine) / 1e3, "rate": rate, "share": rate / peak},
            "peaks.size": cube(size),
            "peaks.ghz": row["ghz"],
            "peaks.busy": row["tensor"] / row["clocks"],
        }
    )


def _judged(df: pd.DataFrame) -> dict[str, Any]:
    """How far predictions are off, and how many of them are within the bar."""
    error = df["error"].set_axis([f"{r.variant} {cube(r.size)}" for r in df.itertuples()])
    good = int((error.abs() <= energy.BAR).sum())
    return {"error": error, "worst": error.abs().max(), "good": good, "beyond": len(df) - good, "count": len(df)}


def _larger(view: energy.View, sms: int) -> dict[str, Any]:
    """Of a tile of three warpgroups, from the other contenders, and what came of it."""
    tile, df, at = energy.THREE_GROUPS, energy.larger_tile(view.rows, view.size, sms), view.largest
    ours, came = df.assign(bound=pd.Series(energy.ANCHORS), ratio=df["over_auto"]), at.loc[energy.LARGER]
    ratio = at["us"]["auto"] / came["us"]
    nearest = (ours["ratio"] - ratio).abs().idxmin()
    return {
        **{"m": tile.m, "n": tile.n, "size": cube(view.size), "port": df["port"].iloc[0], "auto": at["port"]["auto"]},
        "as": ours[["bound", "ratio", "clocks", "ghz"]],
        "came": {"ratio": ratio, "nearest": nearest, "clocks": came["clocks"], "ghz": came["ghz"]},
    }


def _turns(told: pd.DataFrame, swept: pd.DataFrame) -> Iterator[Fact]:
    """Return `auto` over the library where each runs alone, beside the sweep's turns.

    With by how much that differs at the sizes at which power lowered the clock in both records.
    """
    at = {name: ratio(df, "auto", "cusparselt") for name, df in (("alone", told), ("turns", swept))}
    both = pd.DataFrame(at).dropna()
    capped = [df[df["throttle"].str.contains("power")]["m"] for df in (told, swept)]
    judged = both[both.index.isin(capped[0]) & both.index.isin(capped[1])]
    yield from flat({"alone": {"seconds": ALONE_S, "launches": ALONE_SAMPLES, "at": both.rename(cube)}})
    if len(judged):
        off, rows = judged["alone"] / judged["turns"] - 1, where(told, m=judged.index)
        apart = ((rows["q75_us"] - rows["q25_us"]) / rows["median_us"]).max()
        ends = {"least": off.min(), "most": off.max(), "mean": float(np.expm1(np.log1p(off).mean()))}
        yield from flat({"alone": ends | {"sizes": listed(map(cube, judged.index)), "quartiles": apart}})


# ---------------------------------------------------------------- the tuned family


def _by_shape(values: pd.Series) -> pd.Series:
    return values.set_axis(list(map(shape, values.index)))


def _large(values: pd.Series) -> pd.Series:
    """Whether a shape, by which `values` are, has the work of 4096³ at least."""
    return values.index.to_frame().astype(float).prod(axis=1) >= LARGE


def tuned(post: Chapter) -> Iterator[Fact]:
    """How `auto` does at squares and layers, against other versions of cuSPARSELt, too, and what the tuner chose."""
    us = post.by_shape("both", "median_us")
    best, default, dense = (us[v] / us["auto"] for v in ("cusparselt", "cusparselt_default", "cublaslt"))
    large, weak = best[_large(best)], dense[[max(key) <= 1024 or key[1] <= 128 for key in dense.index]]
    below, chosen = large[large < AIM], variants.chosen(post.run, us.index)
    tiles = len(chosen[["kernel", "m", "n"]].drop_duplicates())
    yield from flat(
        {
            "auto": {
                "best": summary(best) | {"at": _by_shape(best)},
                "default": summary(default),
                "dense": summary(dense),
                "narrowest": shape(best.idxmin()),
                "widest": shape(best.idxmax()),
                "behind": int((best < 1).sum()),
                "large": summary(large) | {"aim": AIM, "reached": len(large) - len(below), "below": len(below)},
                "small": summary(best[~_large(best)]),
                "below_aim": summary(below),
                "weak": _by_shape(weak),
            },
            "cusparselt": post.machine["cusparselt"],
            "chosen": {"count": len(chosen), "combinations": tiles, "splits": _by_shape(chosen["splits"])},
        }
    )
    for version, df in libraries.read(post.run).items():
        times = pivot(df, "median_us", KEYS)
        over = times["cusparselt"] / times["auto"]
        large = over[_large(over)]
        found = {
            "best": summary(over),
            "large": summary(large) | {"reached": int((large >= AIM).sum())},
            # Two runs are two clocks: what both have in common is `auto`.
            "newer": records.geomean((best / over).dropna()),
            "version": version,
            "least_at": shape(over.idxmin()),
            "behind": int((over < 1).sum()),
        }
        yield from flat({"other": {version.replace(".", "_"): found}})


def small(post: Chapter) -> Iterator[Fact]:
    """Where few tiles are multiplied, and what the trials at such products say of why, µs."""
    us, least = post.by_shape("small", "median_us"), post.tried("bounds").groupby("trial").first()
    few = {"best": summary(us["cusparselt"] / us["auto"]), "dense": summary(us["cublaslt"] / us["auto"])}
    yield from flat({"few": few})
    if len(least):
        more, empty = least["value"] - least["beside_value"], least.loc["empty"]
        times = {"cold": more["copy_engine"], "warm": more["copy_engine_warm"], "empty": empty["value"]}
        yield from flat({"copies": times | {"size": shape(tuple(empty[KEYS])), "beside": empty["beside_value"]}})


def any_size(post: Chapter) -> Iterator[Fact]:
    """Yield what one size off 4096³ costs, and `auto` over dense cuBLASLt at any size; FP16 beside BF16 at 4096³.

    The largest error of ours of all BF16 records, and what preparing A costs, ms.
    """
    rate, halves = post.by_shape("ragged", "tflops"), (post["float16"], where(post["square"], m=4096))
    over, near = rate["auto"] / rate["cublaslt"], [key for key in rate.index if max(abs(s - 4096) for s in key) < 64]
    kinds = {True: "odd", False: "aligned"}
    lost = 1 - rate.loc[near].div(rate.loc[near[:1]].iloc[0] if near else 1).drop(WHOLE, errors="ignore")
    off = lost.groupby([kinds[bool(n % 8)] for _, n, _ in lost.index]).mean()
    (fp, fine), (bf, coarse) = (
        (ratio(df, "auto", "cusparselt").item(), by(df, "auto", "rel_err").item()) for df in halves
    )
    every = together(post["square"], post["llm"], post.ladder, post["studies"], post["ragged"])
    cost = post.by_shape("both", "prepare_ms")[["auto", "cusparselt"]]
    last = max(cost.index, key=lambda key: key[0] * key[2])
    yield from flat(
        {
            "ragged": {"dense": _by_shape(over)},
            "off": off.to_dict("index") | {"dense": over[near].drop(WHOLE, errors="ignore").min()},
            "fp16": {"best": fp, "bfloat16": bf, "error": coarse / fine},
            "error": _worst(every[~every["variant"].str.startswith(registry.PREFIXES)]) | {"rounding": ROUNDING},
            "prepare": {"at": shape(last), **cost.loc[last]},
        }
    )


def _worst(df: pd.DataFrame) -> dict[str, Any]:
    """Return the largest relative error of records, and where it is."""
    row = df.loc[df["rel_err"].idxmax()]
    return {"most": row["rel_err"], "variant": row["variant"], "at": shape(tuple(row[KEYS]))}


def rows(post: Chapter) -> Iterator[Fact]:
    """Yield what rows of B that begin at odd multiples of 16 bytes cost."""
    us = post.by_shape("rows", "median_us")
    odd, clusters = us.loc[[family.begin_at(n) == 16 for _, n, _ in us.index]], us["wgmma_lean"] / us["wgmma_clusters"]
    took = {
        shape(key): f"`{c['kernel']}` of {c['m']} × {c['n']}{' after a copy' * c['copied']}"
        for key, c in variants.chosen(post.run, odd.index).iterrows()
    }
    yield from flat({"rows": {"best": summary(odd["cusparselt"] / odd["auto"]), "took": took}})
    if {ODD_ROWS, WHOLE_ROWS} <= {*us.index}:
        beside = {"odd": clusters[ODD_ROWS], "whole": clusters[WHOLE_ROWS]}
        more = us.loc[ODD_ROWS] / us.loc[WHOLE_ROWS] - 1
        counted = {name: COUNTED[name][0] for name in ("requests", "sectors", "port")}
        by_columns = partial(post.counters.get, "wgmma_lean", m=4096)
        grown = {name: by_columns(metric, n=4104) / by_columns(metric, n=4096) for name, metric in counted.items()}
        yield from flat({"rows": {"more": more, "clusters": beside, "grown": grown}})


# ---------------------------------------------------------------- FP8


def eight(post: Chapter) -> Iterator[Fact]:
    """`fp8_auto` over the libraries and over `auto` in BF16, errors, and the clock that power leaves.

    What scales by vectors and an output of e4m3 cost, at the largest size.
    """
    df, outputs = (
        post[name].query("m == n and n == k").sort_values("m", kind="stable") for name in ("fp8", "fp8_outputs")
    )
    if df.empty:
        return
    us, limit = post.by_shape("fp8", "median_us"), verification.LIMITS["fp8"]
    time = (by(df, "fp8_auto") / by(post["square"], "auto")).dropna()
    least, most, capped = time.idxmin(), time.idxmax(), df[df["throttle"].str.contains("power")]
    size = outputs.loc[outputs["label"] != "e4m3", "m"].max()
    scaled = where(outputs, m=size).set_index("label")["median_us"]
    ours = where(post["fp8"], variant=[*family.FP8_RUNGS, "fp8_auto"])
    yield from flat(
        {
            "eight": {
                "best": _over(us, "cusparselt"),
                "dense": _over(us, "cublaslt_eight"),
                "time": {"least": time[least], "least_at": cube(least), "most": time[most], "most_at": cube(most)},
                "error": _worst(ours) | {"element": ours["max_err"].max()},
                "limit": {"most": limit.rel_err, "element": limit.max_err, "why": limit.why},
                "outputs": {"size": cube(size), "time": (scaled / scaled["e4m3"]).drop("e4m3")},
            }
        }
    )
    for last in capped[-1:].itertuples():
        sizes = {"first": cube(capped["m"].iloc[0]), "last": cube(last.m)}
        yield from flat({"eight": {"power": sizes | {"watt": last.power_w, "mhz": last.sm_mhz}}})
    yield from _beside(energy.eight(post), post.machine["sm_mhz_max"])
    tried = post.tried("fp8")
    if len(tried):  # how far groups of half a step came, and what is left where nothing is loaded: shares of the clocks
        at, gain = tried.set_index(["trial", "m"])["beside_value"], tried.groupby("trial")["gain"].agg(records.geomean)
        names = ["halves", "halves_unloaded", "unloaded", "unloaded_unstored"]
        yield from flat(
            {"eight": {"bare": (at["halves_unloaded"] / at["halves"]).rename(cube), "left": 1 / gain[names]}}
        )


def _told(over: pd.Series) -> dict[str, Any]:
    """Ratios by shape: their summary, and where they are least and most; nothing of none."""
    at = _by_shape(over.dropna())
    return summary(at) | ({"least_at": at.idxmin(), "most_at": at.idxmax()} if len(at) else {})


def _over(us: pd.DataFrame, library: str) -> dict[str, Any]:
    """How `fp8_auto` does against a library: us by shape."""
    over = us[library] / us["fp8_auto"]
    return _told(over) | {"library": registry.library(library), "at": _by_shape(over.dropna())}


def _beside(df: pd.DataFrame, top: float) -> Iterator[Fact]:
    """Yield the kernel of ours over cuSPARSELt's in the profile; top: the GPU's highest clock, MHz."""
    ours, theirs = (where(df, variant=v).set_index("size").drop(columns="variant") for v in ("fp8_auto", "cusparselt"))
    over = (ours / theirs)[["us", "clocks", "ghz", "tensor", "port", "slices", "dram"]]
    for last in over.index[-1:]:
        found = {"least": over.min(), "most": over.max(), "last": over.loc[last], "mean": over.agg(records.geomean)}
        busy = {name: (side["tensor"] / side["clocks"])[last] for name, side in (("ours", ours), ("theirs", theirs))}
        clocks = {"most_mhz": df["ghz"].max() * 1e3, "top_mhz": top, "size": cube(last), "busy": busy}
        yield from flat({"beside": pd.DataFrame(found).to_dict("index") | clocks})


# ---------------------------------------------------------------- the layout of a linear layer


def linear(post: Chapter) -> Iterator[Fact]:
    """Return both precisions in the layout of a linear layer over both libraries.

    With many tokens and with few, BF16 over other versions of cuSPARSELt, too; how long A takes from DRAM in FP8.
    Whose numbers of whole models are shown, their gains, and microseconds of a call on the host.
    """
    gains, host = where(tables.models(), weight="2:4"), tables.host().set_index("layer").filter(like="us_").T
    layers = {"dense": "nn.Linear", "half": "SemiStructuredLinear", "eight": "SemiStructuredLinearFP8"}
    gain = {f"{phase}.{dtype}": summary(df["speedup"]) for (phase, dtype), df in gains.groupby(["phase", "precision"])}
    told = {"steps": apart.origin(tables.WHOLE_MODEL), "host": apart.origin(tables.HOST_MODEL), "gain": gain}
    told |= {"call": {name: summary(host[layer]) for name, layer in layers.items()}}
    yield from flat({"whole": told | {"prefill_ms": where(gains, phase="prefill", precision="e4m3")["ms"].min()}})
    us = post.by_shape("fp8_linear", "median_us")
    if us.empty:
        return
    half = pd.concat([post.by_shape(name, "median_us") for name in ("linear", "decoding")])
    (m, _, k), rate = us["fp8_auto"].idxmin(), post.by_shape("fp8_linear", "gbps")["fp8_auto"].max()
    a = {"at": shape(us["fp8_auto"].idxmin()), "us": us["fp8_auto"].min(), "tbps": rate / 1e3}
    both = {"half": _layers(half, "auto", "cublaslt"), "eight": _layers(us, "fp8_auto", "cublaslt_eight")}
    yield from flat({"linear": both | {"a": a | {"mb": m * k * 5 / 8e6, "dense_mb": m * k / 1e6}}})
    for version in libraries.read(post.run):
        parts = [post.read(f"{records.LIBRARIES}/{version}/{name}") for name in libraries.LINEAR]
        if all(part is not None for part in parts):
            found = _layers(pd.concat([pivot(part, "median_us", KEYS) for part in parts]), "auto")
            yield from flat({"linear.other": {version.replace(".", "_"): found | {"version": version}}})


def _layers(us: pd.DataFrame, ours: str, dense: str = "") -> dict[str, Any]:
    """Ours over cuSPARSELt's best and over dense: many tokens, from the work of 4096³ on, and few; us by shape."""
    few = us.index.get_level_values("n") <= FEW_TOKENS
    parts, against = {"many": ~few, "large": _large(us[ours]), "few": few}, {"lib": "cusparselt", "dense": dense}
    over = {name: us[v] / us[ours] for name, v in against.items() if v}
    return {part: {name: _told(ratio[at]) for name, ratio in over.items()} for part, at in parts.items()}
