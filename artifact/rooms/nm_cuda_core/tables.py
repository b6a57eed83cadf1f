"""Tables of the chapter: records in, a table with its formats out."""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np
import pandas as pd
from pandas.io.formats.style import Styler

from artifact.drawing import style
from artifact.drawing.compiled import on_targets, registers
from artifact.drawing.prose import captioned
from artifact.measure import records
from artifact.rooms.nm_cuda_core import figures
from artifact.rooms.nm_cuda_core.counters import PIPES, Counters
from artifact.rooms.nm_cuda_core.machine_code import (
    COUNTED,
    HOPPER,
    instructions,
    loads,
    of_pattern,
    the_same,
)
from artifact.rooms.nm_cuda_core.trial import ON_CPU, PATTERN_KERNELS, as_published, of, ratios
from kernels import nm_cuda_core as room

SIZE = "M = N = K"


def _styled(df: pd.DataFrame) -> Styler:
    return df.style.hide(axis="index")


def variants() -> str:
    """Every variant, its idea and whose it is, as a table in Markdown."""
    rows = [f"| `{v.name}` | {v.idea} | {'the report' if v.published else 'ours'} |" for v in room.VARIANTS.values()]
    return "\n".join(["| variant | idea | by |", "|---|---|---|", *rows])


@captioned(on_targets)
def compiled(report: pd.DataFrame) -> Styler:
    """Registers on every target, shared memory and instructions on sm_90a, for the 2:4 pattern."""
    here, targets = of_pattern(report), list(dict.fromkeys(report["target"]))
    used = here.pivot(index="variant", columns="target", values="registers")[targets]
    hopper = here[here["target"] == HOPPER].set_index("variant")
    known = hopper[["shared_bytes", *(c for c in COUNTED if c in hopper)]]
    table = registers(used).to_frame().join(known)
    table = table.rename(columns={"shared_bytes": "shared [B]"})
    return _styled(table.loc[list(room.VARIANTS)].reset_index()).format(precision=0)


@captioned("The machine code of `prefetch` beside that of the baseline.")
def prefetch(targets: list[str]) -> Styler:
    """`prefetch` beside the baseline, instruction by instruction, on every target."""
    rows = []
    for target in targets:
        one, two = (instructions(v, target) for v in ("baseline", "prefetch"))
        rows.append(
            {
                "target": target,
                "instructions, baseline": len(one),
                "instructions, prefetch": len(two),
                "the same, one by one": "yes" if the_same("baseline", "prefetch", target) else "no",
                "global loads, baseline": loads("baseline", target),
                "prefetch": loads("prefetch", target),
                "prefetch_kept": loads("prefetch_kept", target),
            }
        )
    return _styled(pd.DataFrame(rows))


@captioned("Speedups over cuBLAS by what is counted as its time, and shares of the FMA ceiling.")
def over_cublas(published: pd.DataFrame, scaling: pd.DataFrame, fma: float) -> Styler:
    """The published kernel's speedup by what is counted as cuBLAS, and ours beside it; shares of the FMA ceiling."""
    named, double = (as_published(scaling, v) for v in ("baseline", "double_buffer"))
    ours = "baseline (ours), "
    columns = {
        "over a cuBLAS call with its handle": ratios(published, named, "cublas_handle"),
        "over the call alone, published protocol": ratios(published, named, "cublas"),
        "over the kernel alone, cold L2": ratios(scaling, named, "cublas"),
        f"{double}, over the kernel alone": ratios(scaling, double, "cublas"),
        "share of the FMA ceiling": of(scaling, named, "tflops") / fma,
        f"{ours}over the kernel alone": ratios(scaling, "baseline", "cublas"),
        f"{ours}share of the FMA ceiling": of(scaling, "baseline", "tflops") / fma,
    }
    rows = pd.DataFrame(columns)
    return _styled(rows.rename_axis(SIZE).reset_index()).format(precision=2)


@captioned("How near each reading of “cuBLAS” comes to the published times.")
def readings(compared: pd.DataFrame) -> Styler:
    """How near each reading of cuBLAS comes to the published times. compared: `figures.compare_readings`."""
    columns = {
        "kernel_scale": "kernel, scaled by",
        "extra_scale": "rest, scaled by",
        "rms_error": "rms error",
        "worst_factor": "worst factor",
        "constant_us": "constant [µs]",
        "gbps": "n² part [GB/s]",
        "tflops": "n³ part [TFLOP/s]",
    }
    shown = compared.rename(columns=columns, index=style.name).rename_axis("reading").reset_index()
    return _styled(shown.replace([np.inf], np.nan)).format(precision=2, na_rep="–")


@captioned("The report's metrics, and whether the profile here has them.")
def metrics(table1: pd.DataFrame, held: set[str]) -> Styler:
    """The report's metric groups, and whether the kept profile holds them. held: metrics of that profile."""
    shown = table1[table1.columns[table1.columns.isin(["aspect", "metric"])]].copy()
    here = []
    for asked in shown["metric"]:
        asked_here = re.sub(r"^smps__", "smsp__", asked)
        asked_here = asked_here.replace("per_issue_active.pct", "per_issue_active.ratio")
        here.append("–" if asked_here not in held else "yes" if asked_here == asked else "ratio")
    return _styled(shown.assign(here=here))


def fig3(counted: Counters, stated: pd.DataFrame) -> tuple[Mapping[str, Styler], pd.DataFrame]:
    """Fig. 3, measured above stated: size -> table, and the data behind them."""
    table, data = figures.counters_table(counted.of_fig3, stated, counted.as_published)
    parts = {}
    for part in (name for name in dict.fromkeys(table.columns.get_level_values(0)) if name):
        one = pd.concat([table[""], table[part]], axis=1)
        one.columns = [re.sub(r"^(\w+) / \w+$", r"\1 ratio", c) for c in one.columns]
        parts[part] = _styled(one).set_caption(f"Counters of the report's Fig. 3 at {part}, measured above stated.")
    return parts, data


@captioned("How busy the units are, what warps wait for, and wavefronts of a read from shared memory.")
def pipes(counted: Counters) -> Styler:
    """What is busy, what warps wait for, and the wavefronts of a read from shared memory."""
    shown = ("baseline", "pipelined", "double_buffer", "double_buffer_split1", "zigzag")
    rows = pd.DataFrame(
        {"size": size, "variant": v}
        | {f"{name} [%]": counted.get(v, size, metric) for name, metric in PIPES.items()}
        | {"long": counted.stalled(v, size, "long_scoreboard")}
        | {"short": counted.stalled(v, size, "short_scoreboard")}
        | {"waves": counted.wavefronts(v, size)}
        for size in (256, 2048, 4096)
        for v in shown
    )
    shares = [c for c in rows if "%" in c]
    table = _styled(rows).format(precision=2, na_rep="–")
    return table.format("{:.0f}", subset=shares, na_rep="–")


@captioned("Speedups over cuBLAS by pattern, beside what skipping the zeros alone would give.")
def patterns(df: pd.DataFrame) -> Styler:
    """Speedups over cuBLAS at one size, by pattern, beside what skipping the zeros alone would give."""
    speed = {v: records.speedup(df, v, "cublas") for v in PATTERN_KERNELS}
    keys = speed["baseline"].index
    density = keys.get_level_values("density")
    table = pd.DataFrame(
        {"pattern": [label or "2:4" for label in keys.get_level_values("label")]}
        | {"density": density, "ideal": 1 / density}
        | {v: s.to_numpy() for v, s in speed.items()}
    )
    table = table.rename(columns={"element_wise": "element_wise, on vectors"})
    return _styled(table).format(precision=2)


@captioned("The CPU in milliseconds, and how many times as fast the published kernel is.")
def on_cpu(sequential: pd.DataFrame) -> Styler:
    """ms of the CPUs and of the published kernel, and its speedup over one thread and over all cores."""
    named = as_published(sequential, "baseline")
    times = {f"{style.name(v)} [ms]": of(sequential, v) / 1e3 for v in (*ON_CPU, named)}
    loop, blas = f"{named} over one thread", f"{named} over all cores"
    table = pd.DataFrame(times)
    table[loop] = ratios(sequential, named, "cpu_loop")
    table[blas] = ratios(sequential, named, "cpu_blas")
    shown = _styled(table.rename_axis(SIZE).reset_index()).format("{:,.3f}", subset=list(times))
    return shown.format("{:,.0f}×", subset=[loop]).format("{:,.1f}×", subset=[blas])


@captioned("The largest errors of each contender.")
def errors(scaling: pd.DataFrame) -> Styler:
    """The largest errors of every contender."""
    table = scaling.groupby("variant", sort=False)[["rel_err", "max_err"]].max()
    table.columns = ["relative error", "element-wise error"]
    return _styled(table.reset_index()).format("{:.1e}", subset=list(table.columns))
