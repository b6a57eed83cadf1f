"""The page on the method: the timer's constants, what a problem counts, limits of errors, columns of records."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pandas as pd

from artifact import paths, registry
from artifact.book.facts import Fact, each, under
from artifact.drawing import gpus, prose
from artifact.drawing.prose import captioned
from artifact.measure import again, bench, check, records, run
from kernels import jit
from kernels.contract import Problem

MIB = 2**20


def facts(root: Path = paths.RECORDED) -> Iterator[Fact]:
    """Yield the timer's, the check's and the compiler's constants, and what second runs say of ratios."""
    timer = {name.lower(): value for name, value in vars(bench).items() if name.isupper()}
    yield from each("timer", {name: value for name, value in timer.items() if isinstance(value, int | float)})
    yield from each("budget_s", run.BUDGETS_S)
    yield "check.cpu_work", f"{check.CPU_WORK:,}".replace(",", "\u202f")
    yield from under("jit", targets=", ".join(f"`{t}`" for t in jit.TARGETS))
    yield "jit.options", ", ".join(f"`{key}={value}`" for key, value in jit.OPTIONS.items())
    found = again.runs(root)
    if len(found):
        worst, same = found.loc[found["most_of_ten"].idxmax()], found[found["same_code"]]
        yield "again.medians", int(found["measurements"].sum())
        yield from under(
            "again.worst", system=_system(worst.room), gpu=gpus.name(root / worst.gpu), off=worst.most_of_ten
        )
        if len(same):
            yield "again.same_code", same["most_of_ten"].max()


def counted(p: Problem) -> Iterator[Fact]:
    """Yield a problem's sizes."""
    yield from under("p", m=p.m, n=p.n, k=p.k, nnz=p.nnz, percent=f"{100 * p.density:g}", true=p.nnz / p.m / p.k)


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


# ---------------------------------------------------------------- what is counted


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
    known = registry.find()
    return known[room].name if room in known else room
