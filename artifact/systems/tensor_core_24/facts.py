"""The chapter's facts, by the part of it that they stand in. Sizes are named as a page writes them, "4096³"."""

from collections.abc import Iterator
from functools import partial
from itertools import chain
from typing import Any

import numpy as np
import pandas as pd

from artifact import registry
from artifact.book.facts import Fact, Facts, part, summary
from artifact.book.study import by, pivot, ratio, where
from artifact.book.text import cube, listed, shape
from artifact.measure import apart, ceilings, records, verification
from artifact.measure.run import Run
from artifact.systems.tensor_core_24 import energy, experiments, libraries, tables
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
    return chain.from_iterable(
        make(post)
        for make in (
            pruned,
            published,
            studies,
            climbed,
            profiled,
            energies,
            tuned,
            small,
            any_size,
            rows,
            eight,
            linear,
        )
    )


# ---------------------------------------------------------------- what this page compiles or tries itself


@part
def compressed(a: two_four.TwoFour) -> Facts:
    """Return what a matrix takes compressed, bytes."""
    dense = 2 * a.m * a.k
    return {"matrix": {"dense": dense, "compressed": a.nbytes, "share": a.nbytes / dense}}


@part
def code(rows: pd.DataFrame, loop: list[str]) -> Facts:
    """Return what this page's compiler made of the published kernel: what `experiments.published` returns."""
    first, second = (sum("HMMA.SP" in op and op.endswith(f"{s} ;") for op in loop) for s in ("0x0", "0x1"))
    return {
        "code": {
            "multiplications": first + second,
            "first": first,
            "second": second,
            "past_l1": (rows["past_l1"] == rows["copies"]).all(),
        }
    }


@part
def compiled(report: pd.DataFrame) -> Facts:
    """report: the system's compile report."""
    rows = experiments.ladder_rows(report)
    spilled = sorted(set(report[report["spills"]]["variant"]) & set(rows["variant"]))
    return {
        "compiled": {
            "spilling": len(spilled),
            "which": ", ".join(spilled),
            "other": int(rows.filter(items=["HMMA", "HMMA.SP", "HGMMA"]).to_numpy().sum()),
        }
    }


@part
def epilogue(tried: dict[str, float]) -> Facts:
    """C = alpha·A·B + beta·C + bias, where it was tried."""
    return {"epilogue": {"at": shape(experiments.CHECKED)} | tried}


# ---------------------------------------------------------------- the format and the published kernel


@part
def pruned(post: Chapter) -> Facts:
    """How long pruning and compressing take."""
    made = experiments.pruning(post.run).assign(size=lambda df: df["m"].astype(str) + " × " + df["k"].astype(str))
    return {"pruned": made.set_index("size")[["median_us", "gbps"]].rename(columns={"median_us": "us"})}


@part
def published(post: Chapter) -> Facts:
    """Return the published kernel beside cuSPARSELt's best and what the source states of both.

    What loops of one instruction sustain, TFLOP/s; what a step takes, clocks: of shared memory, of the tensor cores
    there and here.
    """
    rates, mhz, c = pivot(post["square"], "tflops"), post.ceilings["sm_mhz"], family.PUBLISHED
    best, top = post.loops.iloc[-1], post.peak["mma_sp"]
    ours, library, share = rates["mma_sp"], rates["cusparselt"], ratio(post["square"], "mma_sp", "cusparselt")
    at = pd.DataFrame({"ours": ours, "library": library, "measured": share, "stated": post.post("speedup_cusparselt")})
    # Of a step of a block, 64 columns of A: FLOP, bytes that ldmatrix reads and that cp.async writes in shared memory.
    flop, written = 2 * c.bm * c.bn * c.bk, c.shared_bytes // c.stages
    read = c.threads // 32 * (c.wm * c.bk + 2 * c.bk * c.wn + c.wm * c.bk // 8)
    peak = post.stated("benchmarks", "peak", variant="mma_sp")["value"].item()
    there, shared = flop / (peak * 1e12 / POST_SMS / POST_CLOCK), (read + written) / experiments.BYTES_PER_CLOCK
    here = flop / (top * 1e12 / post.machine["sm_count"] / (mhz["mma_sp"] * 1e6))
    counted = where(post.counted, size=4096).set_index("variant").reindex(["mma_sp", "mma_sp_ca", "mma_sp_all_threads"])
    return {
        "share": {"at": at.dropna().rename(cube), "least": share.min(), "most": share.max()}
        | {"behind": (at["stated"] - at["measured"]).max()},
        "peak": {**post.peak, "best_wgmma_sp": post.peak[best] if best != "mma_sp" else None},
        "rate": rates.loc[4096, ["mma_sp", "cusparselt", "cublaslt"]],
        "library": {"most": {"tflops": library.max(), "size": cube(library.idxmax())}},
        "best_sparse": {"called": post.loops.index[-1], "peak": post.peak[best], "mhz": mhz[best]},
        "step": {"read_kib": read / 1024, "written_kib": written / 1024, "shared": shared, "there": there}
        | {"here": here, "ratio": shared / here, "mhz": mhz["mma_sp"]},
        "of_peak": pd.DataFrame({"ours": ours / top, "stated": post.post("tflops") / peak}).dropna().rename(cube),
        "busy": counted.loc["mma_sp", ["shared", "tensor"]],
        "conflicts": counted["conflicts"] / counted["waves"],
    }


@part
def studies(post: Chapter) -> Facts:
    """Of each side study: its speedup over the published kernel, geometric mean; blocks that an SM has room for."""
    us = pivot(post["studies"], "median_us")
    return {
        "studies": {"sizes": listed(map(cube, us.index))},
        "blocks": experiments.blocks(post.machine),
        "study": {
            v.removeprefix("mma_sp_"): {
                "mean": records.geomean(us["mma_sp"] / us[v]),
                "blocks": min(experiments.blocks(post.machine, v).values()),
            }
            for v in us.columns.intersection(experiments.STUDIES, sort=False)
        },
        "prediction": {v: experiments.PREDICTIONS[v] for v in (*experiments.STUDIES, "auto")},
    }


# ---------------------------------------------------------------- the ladder


@part
def climbed(post: Chapter) -> Facts:
    """How predictions did.

    Of each rung its gain over the one that it builds on, the waves that its tiles fill, and what single ideas rest on
    besides.
    """
    if post.rungs.empty:
        return {}
    sms, configs, rate = post.machine["sm_count"], post.rungs["config"], post.rates.loc[4096]
    gains, tiles = (df.loc[post.climbed].rename(cube) for df in (post.gains, post.tiles))
    predicted, top = post.rungs["predicted"].dropna(), rate[post.rungs.index].idxmax()
    came, waves = gains.mean()[predicted.index], tiles / sms
    near, nothing = (came.index[(came / expected - 1).abs() < 0.05] for expected in (predicted, 1))
    last, three = waves["wgmma_last_wave"], configs["wgmma_pieces"]
    return {
        "climbed": {"sizes": listed(gains.index)},
        "predicted": {"count": len(predicted), "near": len(near), "rungs": listed(f"`{v}`" for v in near)}
        | {"near_nothing": len(nothing)},
        "rung": {v: {"m": c.m, "n": c.n} for v, c in configs.items()},
        "tiles": tiles.T,
        "waves": waves.T,
        "gain": gains.T,
        "mean_gain": gains.mean(),
        "climb": {"least": rate["mma_sp"], "most": rate[top], "top": top}
        | {"steps": post.gains.loc[4096, :"wgmma_keep"].nlargest(3)},
        "registers": {"at_launch": family.AT_LAUNCH},
        "band": {v: configs[v].band for v in ("wgmma_gpc", "wgmma_lean")},
        "split_k": pd.DataFrame({"tiles": post.tiles["wgmma_split_k"], "gain": post.gains["wgmma_split_k"]}).rename(
            cube
        ),
        "pieces": {
            at: {"last": n % sms, "pieces": cut.pieces, "rows": 64 * cut.groups}
            for at, n in tiles["wgmma_pieces"].items()
            for cut in [family.cut_into_pieces(n, three.groups * three.blocks, sms)]
        },
        "last_wave": {
            name: value
            for at, count in np.ceil(last[(last % 1 > 0) & (last % 1 <= 0.5)])[-1:].items()
            for name, value in (("size", at), ("before", int(count)), ("after", int(count) - 0.5))
        },
    }


@part
def profiled(post: Chapter) -> Facts:
    """Return what bounds the ladder, as counted at the largest size that was profiled."""
    df = post.profile
    if df.empty or post.rungs.empty:
        return {}
    size, columns = df["size"].iloc[0], ["requests", "sectors", "conflicts", "waves", "written", "size"]
    ghz, told = where(post.counted, variant=post.rungs.index)["ghz"], where(post.ladder, variant="wgmma_keep", m=size)
    keep, tall = (post.rungs["config"][v] for v in ("wgmma_keep", "wgmma_tall"))
    steps, swept = {"keep": _step(keep), "tall": _step(tall)}, ratio(post["square"], "auto", "cusparselt")
    worst = post.gains.loc[post.climbed, "wgmma_stream_k"].idxmin()
    at = where(post.counted, size=worst).set_index("variant")[["slices", "dram"]]
    # Million clocks of a kernel, of it without its loads, and without its multiplications.
    alone = launches(post.counters_of("bounds"), post.machine).set_index("variant")
    bare = pd.DataFrame(
        alone["clocks"]
        .reindex([name + part for name in bounds.TILES for part in bounds.LEFT_OUT])
        .to_numpy()
        .reshape(-1, 3),
        [f"{tile.m} × {tile.n}" for tile in bounds.TILES.values()],
        ["whole", "bare", "load"],
    )
    share, read = bare["bare"] / bare["whole"], alone["shared"].filter(like="_unloaded")
    return {
        "profiled": {"size": cube(size)},
        "counted": df.drop(columns=columns).assign(rate=post.rates.loc[size]),
        "tile": steps | {"fewer": steps["tall"]["l2"] / steps["keep"]["l2"]},
        "clock": {"least": ghz.min(), "most": ghz.max(), "top": post.machine["sm_mhz_max"] / 1e3},
        "nvml": {"limit": post.machine.get("power_limit_w")}
        | {name: told[c].item() for name, c in {"mhz": "sm_mhz", "watt": "power_w", "throttle": "throttle"}.items()},
        "stream_k": {"worst": cube(worst), **at.loc["wgmma_stream_k"] / at.loc["wgmma_keep"]},
        "left": {
            "swept": swept.get(size),
            # Over the clocks for a step, as `Tile` has it.
            "port": steps["keep"]["math"] / (keep.m * keep.n * steps["keep"]["l2"] / experiments.PORT_BYTES),
            "shared": family.SHARED_REACHED / (1 + 32 / keep.n),
        },
        "bare": {"share": share.min(), "read_least": read.min(), "read_most": read.max()}
        | {"tiles": bare.assign(share=share)},
    }


def _step(c: family.Wgmma) -> dict[str, float]:
    """Of a step of a tile: clocks of multiplication, what it reads of B from shared memory, A's share, and l2.

    What it brings from there, bytes for each element of C.
    """
    rows = c.groups * c.blocks  # of 64, each multiplied by the same B
    read, math = rows * family.K * c.n * 2, 2 * c.m * c.n * family.K / PER_CLOCK
    return {"m": c.m, "n": c.n, "k": family.K, "rows_of_64": rows, "l2": (c.m * 72 + c.n * 128) / (c.m * c.n)} | {
        "math": math,
        "b_kib": read / 1024,
        "b_clocks": read / experiments.BYTES_PER_CLOCK,
        "a_share": 32 / c.n,
    }


# ---------------------------------------------------------------- energy


@part
def energies(post: Chapter) -> Facts:
    """Return what NVML's power tells, and of which points; the clock in the profile and in the harness.

    How good models of the clock and of clocks are, and what they say of a larger tile, from the other contenders, and
    what came of it; contenders alone beside the sweep's turns.
    """
    view = energy.view(post)
    told, rows, largest, size = view.joules, view.rows, view.largest, view.size
    points = sorted(set(zip(told["m"], told["experiment"], strict=True)))
    asked = energy.asked(view.records).sort_values("ms")
    short = asked[[at not in points for at in zip(asked["m"], asked["experiment"], strict=True)]].iloc[[0, -1]]
    found = {
        "energy": {
            "near": 1 - energy.NEAR_LIMIT,
            "bar": energy.BAR,
            "auto": where(told, variant="auto")
            .sort_values("m")
            .drop_duplicates("m", keep="last")
            .set_index("m")
            .rename(cube)[["low_j", "high_j", "low_pj", "high_pj"]],
            "short": {f"{cube(r.m)} ({r.experiment})": {"ms": r.ms, "times": r.times} for r in short.itertuples()},
            "limit": post.machine.get("power_limit_w") if points else None,
            "points": listed(f"{cube(m)} ({name})" for m, name in points) if points else None,
        },
        "alone": _turns(post["alone"], post["square"]),
    }
    if not view.tells:
        return found
    sms, at = post.machine["sm_count"], where(post.ladder, m=size).set_index("variant")
    judged, clocks = energy.held_out(rows), energy.clocks(rows, sms)
    ends = {"least": 0, "quarter": 0.25, "three_quarters": 0.75, "most": 1}
    best, row = post.loops.iloc[-1], largest.loc["auto"]
    peak, rate = post.peak[best], 2e-6 * size**3 / row["us"]  # TFLOP/s
    tile, larger, came = energy.THREE_GROUPS, energy.larger_tile(rows, size, sms), largest.loc[energy.LARGER]
    gain = row["us"] / came["us"]
    return found | {
        "ghz": {
            name: clock.quantile([*ends.values()]).set_axis([*ends])
            for name, clock in {
                "harness": (largest["clocks"] * 1e3 / at["median_us"]).dropna(),
                "profile": largest["ghz"],
            }.items()
        }
        | {"nvml": at["sm_mhz"].min() / 1e3},
        "clocks": _judged(clocks) | {"rungs": clocks["variant"].nunique(), "shared_reached": family.SHARED_REACHED},
        "model": _judged(judged)
        | {"least": rows["ghz"].min(), "most": rows["ghz"].max(), "rms": np.sqrt((judged["error"] ** 2).mean())},
        "model.across": _judged(energy.held_out(rows, "size")),
        "model.both": _judged(energy.both(rows, sms)),
        "larger": {"m": tile.m, "n": tile.n, "size": cube(size), "port": larger["port"].iloc[0], "auto": row["port"]},
        "larger.as": larger.assign(bound=pd.Series(energy.ANCHORS), ratio=larger["over_auto"])[
            ["bound", "ratio", "clocks", "ghz"]
        ],
        "larger.came": {"ratio": gain, "nearest": (larger["over_auto"] - gain).abs().idxmin()}
        | {"clocks": came["clocks"], "ghz": came["ghz"]},
        # What a share of a peak compares: `auto` in the profile with the loop of its instruction.
        "peaks": {"needs": ceilings.least_mhz(best, peak, post.machine) / 1e3, "rate": rate, "share": rate / peak}
        | {"size": cube(size), "ghz": row["ghz"], "busy": row["tensor"] / row["clocks"]},
    }


def _judged(df: pd.DataFrame) -> dict[str, Any]:
    """How far predictions are off, and how many of them are within the bar."""
    error = df["error"].set_axis([f"{r.variant} {cube(r.size)}" for r in df.itertuples()])
    good = int((error.abs() <= energy.BAR).sum())
    return {"error": error, "worst": error.abs().max(), "good": good, "beyond": len(df) - good, "count": len(df)}


def _turns(told: pd.DataFrame, swept: pd.DataFrame) -> dict[str, Any]:
    """Return `auto` over the library where each runs alone, beside the sweep's turns.

    With by how much that differs at the sizes at which power lowered the clock in both records.
    """
    both = pd.DataFrame({"alone": ratio(told, "auto", "cusparselt"), "turns": ratio(swept, "auto", "cusparselt")})
    both, found = both.dropna(), {"seconds": ALONE_S, "launches": ALONE_SAMPLES}
    capped = [df[df["throttle"].str.contains("power")]["m"] for df in (told, swept)]
    judged = both[both.index.isin(capped[0]) & both.index.isin(capped[1])]
    off, rows = judged["alone"] / judged["turns"] - 1, where(told, m=judged.index)
    found["at"] = both.rename(cube)
    if judged.empty:
        return found
    return (
        found
        | {"least": off.min(), "most": off.max(), "mean": float(np.expm1(np.log1p(off).mean()))}
        | {"sizes": listed(map(cube, judged.index))}
        | {"quartiles": ((rows["q75_us"] - rows["q25_us"]) / rows["median_us"]).max()}
    )


# ---------------------------------------------------------------- the tuned family


def _by_shape(values: pd.Series) -> pd.Series:
    return values.set_axis(list(map(shape, values.index)))


def _large(values: pd.Series) -> pd.Series:
    """Whether a shape, by which `values` are, has the work of 4096³ at least."""
    return values.index.to_frame().astype(float).prod(axis=1) >= LARGE


@part
def tuned(post: Chapter) -> Facts:
    """How `auto` does at squares and layers, against other versions of cuSPARSELt, too, and what the tuner chose."""
    us = post.by_shape("both", "median_us")
    best, default, dense = (us[v] / us["auto"] for v in ("cusparselt", "cusparselt_default", "cublaslt"))
    large, weak = best[_large(best)], dense[[max(key) <= 1024 or key[1] <= 128 for key in dense.index]]
    below, chosen = large[large < AIM], experiments.chosen(post.run, us.index)
    return {
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
        "chosen": {"count": len(chosen), "combinations": len(chosen[["kernel", "m", "n"]].drop_duplicates())}
        | {"splits": _by_shape(chosen["splits"])},
        "other": {
            version.replace(".", "_"): _version(version, ratio(df, "auto", "cusparselt", KEYS), best)
            for version, df in libraries.read(post.run).items()
        },
    }


def _version(version: str, over: pd.Series, best: pd.Series) -> dict[str, Any]:
    """Return `auto` over another version of cuSPARSELt, by shape; best: over the one of the records."""
    large = over[_large(over)]
    return {
        "best": summary(over),
        "large": summary(large) | {"reached": int((large >= AIM).sum())},
        # Two runs are two clocks: what both have in common is `auto`.
        "newer": records.geomean((best / over).dropna()),
        "version": version,
        "least_at": shape(over.idxmin()),
        "behind": int((over < 1).sum()),
    }


@part
def small(post: Chapter) -> Facts:
    """Where few tiles are multiplied, and what the trials at such products say of why, µs."""
    us, least = post.by_shape("small", "median_us"), post.tried("bounds").groupby("trial").first()
    few = {"best": summary(us["cusparselt"] / us["auto"]), "dense": summary(us["cublaslt"] / us["auto"])}
    if least.empty:
        return {"few": few}
    more, empty = least["value"] - least["beside_value"], least.loc["empty"]
    return {
        "few": few,
        "copies": {"cold": more["copy_engine"], "warm": more["copy_engine_warm"], "empty": empty["value"]}
        | {"size": shape(tuple(empty[KEYS])), "beside": empty["beside_value"]},
    }


@part
def any_size(post: Chapter) -> Facts:
    """Return what one size off 4096³ costs, and `auto` over dense cuBLASLt at any size; FP16 beside BF16 at 4096³.

    The largest error of ours of all BF16 records, and what preparing A costs, ms.
    """
    rate, halves = post.by_shape("ragged", "tflops"), (post["float16"], where(post["square"], m=4096))
    over, near = rate["auto"] / rate["cublaslt"], [key for key in rate.index if max(abs(s - 4096) for s in key) < 64]
    lost = 1 - rate.loc[near].div(rate.loc[near[:1]].iloc[0] if near else 1).drop(WHOLE, errors="ignore")
    (fp, fine), (bf, coarse) = (
        (ratio(df, "auto", "cusparselt").item(), by(df, "auto", "rel_err").item()) for df in halves
    )
    every = together(post["square"], post["llm"], post.ladder, post["studies"], post["ragged"])
    cost = post.by_shape("both", "prepare_ms")[["auto", "cusparselt"]]
    last = max(cost.index, key=lambda key: key[0] * key[2])
    return {
        "ragged": {"dense": _by_shape(over)},
        "off": lost.groupby(["odd" if n % 8 else "aligned" for _, n, _ in lost.index]).mean().to_dict("index")
        | {"dense": over[near].drop(WHOLE, errors="ignore").min()},
        "fp16": {"best": fp, "bfloat16": bf, "error": coarse / fine},
        "error": _worst(every[~every["variant"].str.startswith(registry.PREFIXES)]) | {"rounding": ROUNDING},
        "prepare": {"at": shape(last), **cost.loc[last]},
    }


def _worst(df: pd.DataFrame) -> dict[str, Any]:
    """Return the largest relative error of records, and where it is."""
    row = df.loc[df["rel_err"].idxmax()]
    return {"most": row["rel_err"], "variant": row["variant"], "at": shape(tuple(row[KEYS]))}


@part
def rows(post: Chapter) -> Facts:
    """Return what rows of B that begin at odd multiples of 16 bytes cost."""
    us = post.by_shape("rows", "median_us")
    odd, clusters = us.loc[[family.begin_at(n) == 16 for _, n, _ in us.index]], us["wgmma_lean"] / us["wgmma_clusters"]
    found = {
        "best": summary(odd["cusparselt"] / odd["auto"]),
        "took": {
            shape(key): f"`{c['kernel']}` of {c['m']} × {c['n']}{' after a copy' * c['copied']}"
            for key, c in experiments.chosen(post.run, odd.index).iterrows()
        },
    }
    if not {ODD_ROWS, WHOLE_ROWS} <= {*us.index}:
        return {"rows": found}
    by_columns = partial(post.counters.get, "wgmma_lean", m=4096)
    return {
        "rows": found
        | {"more": us.loc[ODD_ROWS] / us.loc[WHOLE_ROWS] - 1}
        | {
            "clusters": {"odd": clusters[ODD_ROWS], "whole": clusters[WHOLE_ROWS]},
            "grown": {
                name: by_columns(COUNTED[name][0], n=4104) / by_columns(COUNTED[name][0], n=4096)
                for name in ("requests", "sectors", "port")
            },
        }
    }


# ---------------------------------------------------------------- FP8


@part
def eight(post: Chapter) -> Facts:
    """`fp8_auto` over the libraries and over `auto` in BF16, errors, and the clock that power leaves.

    What scales by vectors and an output of e4m3 cost, at the largest size. How far groups of half a step came, and what
    is left where nothing is loaded, shares of the clocks.
    """
    df, outputs = (
        post[name].query("m == n and n == k").sort_values("m", kind="stable") for name in ("fp8", "fp8_outputs")
    )
    if df.empty:
        return {}
    us, limit = post.by_shape("fp8", "median_us"), verification.LIMITS["fp8"]
    time = (by(df, "fp8_auto") / by(post["square"], "auto")).dropna()
    least, most, capped = time.idxmin(), time.idxmax(), df[df["throttle"].str.contains("power")]
    size = outputs.loc[outputs["label"] != "e4m3", "m"].max()
    scaled = where(outputs, m=size).set_index("label")["median_us"]
    ours, tried = where(post["fp8"], variant=[*family.FP8_RUNGS, "fp8_auto"]), post.tried("fp8")
    of_both = {
        "eight": {
            "best": _over(us, "cusparselt"),
            "dense": _over(us, "cublaslt_eight"),
            "time": {"least": time[least], "least_at": cube(least), "most": time[most], "most_at": cube(most)},
            "error": _worst(ours) | {"element": ours["max_err"].max()},
            "limit": {"most": limit.rel_err, "element": limit.max_err, "why": limit.why},
            "outputs": {"size": cube(size), "time": (scaled / scaled["e4m3"]).drop("e4m3")},
            "power": {
                name: value
                for last in capped[-1:].itertuples()
                for name, value in (
                    *(("first", cube(capped["m"].iloc[0])), ("last", cube(last.m))),
                    *(("watt", last.power_w), ("mhz", last.sm_mhz)),
                )
            },
        },
        "beside": _beside(energy.eight(post), post.machine["sm_mhz_max"]),
    }
    if tried.empty:
        return of_both
    at, gain = tried.set_index(["trial", "m"])["beside_value"], tried.groupby("trial")["gain"].agg(records.geomean)
    return of_both | {
        "eight.bare": (at["halves_unloaded"] / at["halves"]).rename(cube),
        "eight.left": 1 / gain[["halves", "halves_unloaded", "unloaded", "unloaded_unstored"]],
    }


def _told(over: pd.Series) -> dict[str, Any]:
    """Ratios by shape: their summary, and where they are least and most; nothing of none."""
    at = _by_shape(over.dropna())
    return summary(at) | ({"least_at": at.idxmin(), "most_at": at.idxmax()} if len(at) else {})


def _over(us: pd.DataFrame, library: str) -> dict[str, Any]:
    """How `fp8_auto` does against a library: us by shape."""
    over = us[library] / us["fp8_auto"]
    return _told(over) | {"library": registry.library(library), "at": _by_shape(over.dropna())}


def _beside(df: pd.DataFrame, top: float) -> dict[str, Any]:
    """Return the kernel of ours over cuSPARSELt's in the profile; top: the GPU's highest clock, MHz."""
    ours, theirs = (where(df, variant=v).set_index("size").drop(columns="variant") for v in ("fp8_auto", "cusparselt"))
    over = (ours / theirs)[["us", "clocks", "ghz", "tensor", "port", "slices", "dram"]]
    if over.empty:
        return {}
    last = over.index[-1]
    return (
        pd.DataFrame(
            {"least": over.min(), "most": over.max(), "last": over.loc[last], "mean": over.agg(records.geomean)}
        ).to_dict("index")
        | {"most_mhz": df["ghz"].max() * 1e3, "top_mhz": top, "size": cube(last)}
        | {
            "busy": {
                name: (side["tensor"] / side["clocks"])[last] for name, side in (("ours", ours), ("theirs", theirs))
            }
        }
    )


# ---------------------------------------------------------------- the layout of a linear layer


@part
def linear(post: Chapter) -> Facts:
    """Return both precisions in the layout of a linear layer over both libraries.

    With many tokens and with few, BF16 over other versions of cuSPARSELt, too; how long A takes from DRAM in FP8.
    Whose numbers of whole models are shown, their gains, and microseconds of a call on the host.
    """
    gains, host = where(tables.models(), weight="2:4"), tables.host().set_index("layer").filter(like="us_").T
    whole = {
        "steps": apart.origin(tables.WHOLE_MODEL),
        "host": apart.origin(tables.HOST_MODEL),
        "gain": {
            f"{phase}.{dtype}": summary(df["speedup"]) for (phase, dtype), df in gains.groupby(["phase", "precision"])
        },
        "call": {
            name: summary(host[layer])
            for name, layer in {
                "dense": "nn.Linear",
                "half": "SemiStructuredLinear",
                "eight": "SemiStructuredLinearFP8",
            }.items()
        },
        "prefill_ms": where(gains, phase="prefill", precision="e4m3")["ms"].min(),
    }
    us = post.by_shape("fp8_linear", "median_us")
    if us.empty:
        return {"whole": whole}
    least, rate = us["fp8_auto"].idxmin(), post.by_shape("fp8_linear", "gbps")["fp8_auto"].max()
    elements, other = least[0] * least[2], libraries.read(post.run, libraries.LINEAR)
    return {
        "whole": whole,
        "linear": {
            "half": _layers(
                pd.concat([post.by_shape(name, "median_us") for name in ("linear", "decoding")]), "auto", "cublaslt"
            ),
            "eight": _layers(us, "fp8_auto", "cublaslt_eight"),
            "a": {"at": shape(least), "us": us["fp8_auto"].min(), "tbps": rate / 1e3}
            | {"mb": elements * 5 / 8e6, "dense_mb": elements / 1e6},
            "other": {
                version.replace(".", "_"): _layers(pivot(df, "median_us", KEYS), "auto") | {"version": version}
                for version, df in other.items()
            },
        },
    }


def _layers(us: pd.DataFrame, ours: str, dense: str = "") -> dict[str, Any]:
    """Ours over cuSPARSELt's best and over dense: many tokens, from the work of 4096³ on, and few; us by shape."""
    few = us.index.get_level_values("n") <= FEW_TOKENS
    return {
        part: {name: _told((us[v] / us[ours])[at]) for name, v in (("lib", "cusparselt"), ("dense", dense)) if v}
        for part, at in (("many", ~few), ("large", _large(us[ours])), ("few", few))
    }
