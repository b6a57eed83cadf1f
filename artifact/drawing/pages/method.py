"""The page on the method: the timer's constants, what a problem counts, limits of errors, columns of records."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from artifact import paths, rooms
from artifact.drawing import gpus, prose
from artifact.drawing.prose import captioned
from artifact.measure import again, bench, check, records, run
from kernels import jit
from kernels.contract import Problem

MIB = 2**20


@captioned("Constants of the timer.")
def constants() -> pd.DataFrame:
    """The timer's, with the comments above them."""
    return pd.DataFrame(
        {
            "constant": "<br>".join(f"<code>{name}</code>" for name in row.constant),
            "value": "<br>".join(map(_value, row.constant, row.value)),
            "what it does": prose.inline_code(row.meaning),
        }
        for row in prose.constants(bench).itertuples(index=False)
    )


def _value(name: str, number: float) -> str:
    return f"{number / MIB:g} MiB" if "BYTES" in name else f"{number:g}"


def samples() -> str:
    budgets = ", ".join(f"{s:.2g} s with `preset={name}`" for name, s in run.BUDGETS_S.items())
    return (
        f"A contender is warmed up until two successive medians of {bench.WARMUP_BATCH} launches agree within "
        f"{bench.WARMUP_TOLERANCE:.0%}. It then gets {bench.MIN_SAMPLES} to {bench.MAX_SAMPLES} samples, as many as its share of "
        f"the device time pays for ({budgets}). The records keep the median, both quartiles and the number of samples."
    )


def host() -> str:
    return (
        "Launching costs time on the host as well, and a library call that checks its arguments costs more than a bare launch. "
        f"That time must not be charged to the kernel, so a whole batch of up to {bench.BATCH} launches is enqueued before the "
        f"GPU gets there. A contender whose launch takes more than {bench.HOST_SHARE:.0%} of a flush on the host could let the "
        "GPU run dry; it is captured into a CUDA graph once and replayed. The column `graph` says where that happened. A test "
        "holds the whole arrangement to account: an empty kernel must read as next to nothing, for a library's launch as well."
    )


def published_protocol() -> str:
    return (
        "Many sources time otherwise: warm up, call in a loop, divide. Where a claim rests on that, it is measured so as well, "
        f"by `bench.time_calls`: a sample is {bench.CALLS} calls in a row after {bench.WARMUP_CALLS} that are not timed, over "
        f"their number, and there are {bench.CALL_SAMPLES} samples; long calls get fewer. Nothing is flushed, and whatever a call "
        "does on the host counts, be it on purpose, as with a library handle made in every call, or because it is how Python "
        "launches. The clock is the host's, so that a CPU can be timed alike. Records of the two protocols lie in different "
        "experiments and are never compared."
    )


def watched() -> str:
    return (
        f"Every {bench.SAMPLE_EVERY_S * 1e3:g} ms while a batch runs, NVML is asked for SM clock, board power and the reasons for "
        "throttling, and all three are columns of the records. A slow point with a reason beside it is another matter than a slow "
        "point without."
    )


# ---------------------------------------------------------------- what is counted


def sizes(p: Problem) -> str:
    return f"$M = {p.m}$, $N = {p.n}$, $K = {p.k}$, $S = {100 * p.density:g}\\%$, $\\mathrm{{nnz}} = {p.nnz}$:"


def counts(p: Problem, terms: dict[str, int]) -> dict[str, str]:
    """terms: what the least bytes are made of."""
    rows = {name: f"{count / 1e6:.3f} MB" for name, count in terms.items()}
    per_byte = p.useful_flops / p.least_bytes, p.useful_flops / p.requested_bytes
    return rows | {
        "least bytes": f"<strong>{p.least_bytes / 1e6:.3f} MB</strong>",
        "requested bytes": f"<strong>{p.requested_bytes / 1e6:.1f} MB</strong>",
        f"useful FLOP, {p.flops_def}": f"<strong>{p.useful_flops / 1e9:.3f} GFLOP</strong>",
        "FLOP per byte, least to requested": f"{per_byte[0]:.1f} to {per_byte[1]:.2f}",
    }


def density(p: Problem) -> str:
    return (
        f"Note the density: the source calls this $S = {100 * p.density:g}\\%$, but draws each row's count uniformly between half "
        f"of that and all of it, so the matrix holds {p.nnz / p.m / p.k:.2%}. The records keep the nominal value, by which the "
        "source labels its plots, and the true count of non-zeros beside it."
    )


# ---------------------------------------------------------------- when a result is right, what is compiled and recorded


@captioned("Largest errors with which a result counts as right.")
def limits() -> pd.DataFrame:
    return pd.DataFrame(
        {
            "dtype of C": name,
            "rel_err at most": f"{limit.rel_err:.1e}",
            "max_err at most": f"{limit.max_err:.1e}",
            "why": limit.why,
        }
        for name, limit in check.LIMITS.items()
    )


def reference() -> str:
    work = f"{check.CPU_WORK:,}".replace(",", "\u202f")
    return (
        f"Up to {work} multiply-adds the reference is SciPy's on the CPU; beyond, cuSPARSE's in float64, and a test on the GPU "
        "holds the two together. Kernels that are wrong on purpose, one that skips a non-zero and one that leaves elements "
        "unwritten among them, are part of the tests: the check must catch them."
    )


def targets() -> str:
    options = ", ".join(f"`{key}={value}`" for key, value in jit.OPTIONS.items())
    return (
        f"Targets: {', '.join(f'`{t}`' for t in jit.TARGETS)}, that is Ampere, Ada, Hopper and Blackwell. Options: {options}. A "
        "kernel *spills* when its registers do not suffice and it keeps values in local memory: any stack, any `LDL` or `STL` in "
        "the disassembly counts."
    )


@captioned("Columns of a record.")
def columns() -> pd.DataFrame:
    """Of a record."""
    return pd.DataFrame(
        {"column": f"<code>{name}</code>", "unit": c.unit, "kind": c.kind, "meaning": c.means}
        for name, c in records.COLUMNS.items()
    )


# ---------------------------------------------------------------- what is compared


@captioned(
    "Second runs: by how much of the first run each median time is off, half of them at most, nine of ten, and all."
)
def second_runs(root: Path = paths.RECORDED) -> pd.DataFrame | None:
    """A row for each room of each GPU with a second run, as `again.runs` finds them; None without one."""
    found = again.runs(root)
    if found.empty:
        return None
    return pd.DataFrame(
        {
            "GPU": gpus.name(root / row.gpu).removeprefix("NVIDIA "),
            "system": _system(row.room),
            "experiments": ", ".join(row.experiments),
            "medians": f"{row.measurements} of {row.of}",
            "off by": f"{row.median:.1%}, {row.most_of_ten:.1%}, {row.most:.0%}",
            "apart": f"{_long(row.between)}, {'the same' if row.same_code else 'other'} code",
        }
        for row in found.itertuples()
    )


def _long(between: pd.Timedelta) -> str:
    minutes = between.total_seconds() / 60
    return f"{minutes:.0f} min" if minutes < 100 else f"{minutes / 60:.0f} h"


def _system(room: str) -> str:
    known = rooms.find()
    return known[room].name if room in known else room


def repeats(root: Path = paths.RECORDED) -> str:
    """What second runs say of ratios; a sentence where there is none."""
    found = again.runs(root)
    if found.empty:
        return "There is no second run of these records."
    worst = found.loc[found["most_of_ten"].idxmax()]
    same = found[found["same_code"]]
    text = (
        f"Some experiments were measured a second time, minutes later on the same GPU or days later on another one of its kind, {found['measurements'].sum()} medians in all; "
        "and where the code of a room had changed meanwhile, its own part in a difference is in it. "
    )
    if len(same):
        text += f"Of the same code, nine of ten are within {same['most_of_ten'].max():.1%} of the first everywhere. "
    return text + (
        f"Least steady is {_system(worst.room)} on an {gpus.name(root / worst.gpu)}, where one in ten is off by {worst.most_of_ten:.1%} or more. So contenders are compared within a run, "
        "and a few per cent between two runs say nothing."
    )
