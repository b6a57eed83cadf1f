"""The chapter's facts, by the part of it that they stand in: nested, as its text reads them."""

from collections.abc import Iterator
from itertools import chain
from typing import Any

import numpy as np
import pandas as pd

from artifact.baselines.cublas import READINGS
from artifact.book.facts import Fact, flat, summary
from artifact.book.study import Study, by, ratio, where
from artifact.drawing.compiled import HOPPER
from artifact.measure import durations
from artifact.measure.run import Run
from artifact.profiling import ncu
from artifact.systems.nm_cuda_core import experiments
from artifact.systems.nm_cuda_core.experiments import LETTER, PUBLISHED, VARIANTS
from kernels import jit
from kernels import nm_cuda_core as system
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


def of(run: Run) -> Iterator[Fact]:
    """Yield every fact that records hold."""
    study = Study(run)
    scaling, published = (experiments.measure(study, name) for name in ("scaling", "published"))
    sequential = experiments.on_cpu(study)
    parts = (
        library(scaling, published, sequential),
        contains(study, published),
        variants(scaling),
        counted(study),
        reversal(scaling, study.ceiling("fma", "tflops")),
        right_gather(scaling, experiments.measure(study, "element_wise")),
        hosts(study, sequential),
        repeats(scaling, experiments.second(study)),
    )
    return chain.from_iterable(map(flat, parts))


def by_size(speedup: pd.Series) -> dict[str, Any]:
    """Return the spread of a speedup over all sizes and on both sides of 1024³, and how often it is above 1."""
    small, ahead = speedup.index < 1024, int((speedup > 1).sum())
    sides = {"below_1024": summary(speedup[small]), "from_1024": summary(speedup[~small]), "at": speedup}
    return summary(speedup) | sides | {"largest": speedup.iloc[-1], "ahead": ahead, "behind": len(speedup) - ahead}


# ---------------------------------------------------------------- which index, machine code


def which_index(run: Run) -> Iterator[Fact]:
    """Yield how far what the published gather multiplies is from A · B.

    Of the smallest element-wise 2:4 case, in float64; with a GPU also how far off the kernel itself is.
    """
    case, shared = (system.problem(32, 32, 64, seed=run.seed, vector=vector) for vector in (1, 32))
    a, b, vectors = case.host().a.astype(np.float64), case.host().b, shared.host().b
    right, gathered = a @ nm.to_dense(b), a @ nm.to_dense(system.as_gathered(b))
    columns = np.flatnonzero(np.abs(gathered - right).max(axis=0) <= 1e-6 * np.abs(right).max())
    same = np.array_equal(nm.to_dense(system.as_gathered(vectors)), nm.to_dense(vectors))
    found = {"error": _off(gathered, right), "right": len(columns), "same_if_shared": same}
    here = run_here(run, case, {"from_right": right, "from_gathered": gathered}) if run.device else {}
    return flat({"gather": found | {"where": ", ".join(f"column {c}" for c in columns[:4])}, "run_here": here})


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
    distinct = report.drop_duplicates(["entry", "target"])
    here = where(report, target=HOPPER, entry=[system.entry(v) for v in VARIANTS])
    names = (*LETTER, "baseline", "double_buffer")
    cubins = [jit.compile_cubin(system.VARIANTS[v].source, system.entry(v), HOPPER) for v in names]
    kinds = {"stores": "STG", "generic_loads": "LD.", "global_loads": "LDG."}
    made = {
        name: {"registers": used.registers, "stack_bytes": used.stack_bytes}
        | {what: sum(n for op, n in mix.items() if op.startswith(kind)) for what, kind in kinds.items()}
        for name, (used, mix) in zip(names, jit.reports(cubins), strict=True)
    }
    differ = (prefetch["same"] == "no").sum()
    found = {
        "targets": ", ".join(report["target"].unique()),
        "entries": distinct["entry"].nunique(),
        "count": len(distinct),
    }
    return flat(
        {
            "compiled": found | {"spilling": int(distinct["spills"].astype(bool).sum())},
            "registers": here.set_index("variant")["registers"],
            "code": made | {"target": HOPPER, "prefetch": {"targets_that_differ": differ}},
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


def variants(scaling: pd.DataFrame) -> dict[str, Any]:
    """Compare each variant with the baseline, and the report's kernels to the letter with ours of the same idea.

    Name the fastest at each size.
    """
    mine = where(scaling, variant=VARIANTS)
    pairs = zip(LETTER, PUBLISHED, strict=True)
    return {
        "over": {v: by_size(ratio(scaling, v, "baseline")) for v in VARIANTS[1:]},
        "lanes": by_size(ratio(scaling, "zigzag", "double_buffer_split1")),
        "fastest": mine.loc[mine.groupby("m")["median_us"].idxmin()].set_index("m")["variant"],
        "letter": {theirs: {"ours": ours} | by_size(ratio(scaling, theirs, ours)) for theirs, ours in pairs},
    }


# ---------------------------------------------------------------- what Nsight Compute counts


def counted(study: Study) -> dict[str, Any]:
    """Return what keeps the kernels from being faster: at 256³, where most of the GPU is idle.

    At 4096³, what is busy, in per cent; wavefronts of a 16-byte read at 2048³; L1 traffic, MB, as stated, of
    `verbatim`, and of the baseline if it stored C as the report does.
    """
    get, machine, launches = study.counters.get, study.machine, ncu.launches(study.run.folder)
    traffic = study.stated("fig3", "l1_traffic", variant="baseline").drop_duplicates("size").set_index("size")["value"]
    base = get("baseline", TRAFFIC, m=2048)
    profile = {"launches": len(launches), "kernels": launches["kernel"].nunique()}
    return {
        "profile": profile | {"metrics": study.counters.rows["metric"].nunique()} if len(launches) else {},
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
        | {v: get(v, TRAFFIC, m=2048) / base for v in ("prefetch", "prefetch_kept")},
    }


def stalled(study: Study, variant: str, size: int, reason: str) -> float:
    """Return the warps that wait for `reason` per instruction issued."""
    return study.counters.get(variant, ncu.STALLED.format(reason), m=size)


def wavefronts(study: Study, variant: str, size: int) -> float:
    """Return the wavefronts of a 16-byte read from shared memory; 16 multiply-adds follow two of them."""
    reads, ffma = (study.counters.get(variant, metric, m=size) for metric in (READS, FFMA))
    return reads / (ffma / 32 / 16 * 2)


# ---------------------------------------------------------------- the reversal and beyond the report


def reversal(scaling: pd.DataFrame, fma: float) -> dict[str, Any]:
    """Return the rates of `verbatim` at the largest sizes.

    Ms that its requests and FLOPs at 4096³ would take on the report's card. fma: the FMA ceiling, TFLOP/s.
    """
    rate = by(scaling, LETTER[0], "tflops")
    requested, flops = (by(scaling, LETTER[0], what).get(4096, np.nan) for what in ("requested_bytes", "useful_flops"))
    at_4096, largest = rate.get(4096, np.nan), rate.iloc[-1]
    return {
        "fma_share": {"at_4096": at_4096 / fma, "largest": largest / fma},
        "kept_of_best": min(at_4096, largest) / rate.max(),
        "from_dram_ms": requested / (CARD["gbps"] * 1e9) * 1e3,
        # At the TFLOP/s that its section 5.1 states from 4096³ on.
        "fallen_ms": {"low": flops / 2.9 / 1e9, "high": flops / 2.1 / 1e9},
    }


def right_gather(scaling: pd.DataFrame, element: pd.DataFrame) -> dict[str, Any]:
    """Compare `element_wise`, on vectors and on elements, with the baseline and with cuBLAS.

    With the baseline on vectors at the largest size, with cuBLAS at all.
    """
    speed, baseline = ratio(element, "element_wise", "cublas"), by(scaling, "baseline").iloc[-1]
    times = {"vectors": scaling, "elements": element}
    found = {on: by(df, "element_wise").iloc[-1] / baseline for on, df in times.items()}
    ahead = ", ".join(f"{size}³" for size in speed.index[speed > 1]) or "no size"
    return {"element_wise": found | {"over_cublas": by_size(speed), "ahead_at": ahead}}


def hosts(study: Study, sequential: pd.DataFrame | None) -> dict[str, Any]:
    """Name the host, and tell how many times as fast the published kernel is at the largest size."""
    host = {name: study.machine.get(key) for name, key in (("cpu", "cpu"), ("cores", "cpu_cores"))}
    over = () if sequential is None else ("cpu_loop", "cpu_blas")
    return {"host": host} | {f"over_{v}": ratio(sequential, LETTER[0], v).iloc[-1] for v in over}


def repeats(scaling: pd.DataFrame, second: pd.DataFrame | None) -> dict[str, Any]:
    """Return the largest error; how far a second run is from the first, and two names of one program within a run."""
    off = pd.Series(dtype=float) if second is None else durations.apart(scaling, second)
    return {
        "error": {"most": scaling["max_err"].max()},
        "again": {"count": len(off) or None, "median": off.median(), "most": off.max()},
        "twins": {"most": (ratio(scaling, "prefetch", "baseline") - 1).abs().max()},
    }
