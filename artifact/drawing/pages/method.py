"""The page on the method: the timer's constants, what a problem counts, limits of errors, columns of records."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pandas as pd

from artifact import paths, registry
from artifact.book import text
from artifact.book.facts import Fact, flat
from artifact.drawing import gpus, prose
from artifact.measure import again, bench, check, records, run
from kernels import jit
from kernels.contract import Problem

MIB = 2**20


def facts(root: Path = paths.RECORDED) -> Iterator[Fact]:
    """Yield the timer's, the check's and the compiler's constants, and what second runs say of ratios."""
    timer = {n.lower(): value for n, value in vars(bench).items() if n.isupper() and isinstance(value, int | float)}
    options = ", ".join(f"`{key}={value}`" for key, value in jit.OPTIONS.items())
    yield from flat({"timer": timer, "budget_s": run.BUDGETS_S})
    yield "check.cpu_work", text.thousands(check.CPU_WORK, mark="\u202f")
    yield from flat({"jit": {"targets": ", ".join(f"`{t}`" for t in jit.TARGETS), "options": options}})
    if len(found := again.runs(root)):
        worst, same = found.loc[found["most_of_ten"].idxmax()], found[found["same_code"]]
        told = {"system": system(worst.room), "gpu": gpus.name(root / worst.gpu), "off": worst.most_of_ten}
        medians, most = int(found["measurements"].sum()), same["most_of_ten"].max()
        yield from flat({"again": {"medians": medians, "worst": told, "same_code": most}})


def counted(p: Problem) -> Iterator[Fact]:
    """Yield a problem's sizes."""
    density = {"percent": f"{100 * p.density:g}", "true": p.nnz / p.m / p.k}
    return flat({"p": {"m": p.m, "n": p.n, "k": p.k, "nnz": p.nnz} | density})


def constants() -> pd.DataFrame:
    """Return the timer's constants, with the comments above them."""
    df = prose.constants(bench)
    values = [" · ".join(map(_value, *row)) for row in zip(df["constant"], df["value"], strict=True)]
    return df.assign(constant=[", ".join(f"`{name}`" for name in names) for names in df["constant"]], value=values)


def _value(name: str, number: float) -> str:
    return f"{number / MIB:g} MiB" if "BYTES" in name else f"{number:g}"


def counts(p: Problem, terms: dict[str, int]) -> pd.DataFrame:
    """Return what a problem counts. terms: what the least bytes are made of."""
    rows = {name: f"{count / 1e6:.3f} MB" for name, count in terms.items()} | {
        "least bytes": f"{p.least_bytes / 1e6:.3f} MB",
        "requested bytes": f"{p.requested_bytes / 1e6:.1f} MB",
        f"useful FLOP, {p.flops_def}": f"{p.useful_flops / 1e9:.3f} GFLOP",
        "FLOP per byte, least to requested": f"{p.useful_flops / p.least_bytes:.1f} to "
        f"{p.useful_flops / p.requested_bytes:.2f}",
    }
    return pd.DataFrame(rows.items(), columns=["what", "count"])


def limits() -> pd.DataFrame:
    """Return the largest errors with which a result counts as right."""
    rows = [(name, limit.rel_err, limit.max_err, limit.why) for name, limit in check.LIMITS.items()]
    return pd.DataFrame(rows, columns=["dtype", "rel_err", "max_err", "why"])


def columns() -> pd.DataFrame:
    """Return the columns of a record."""
    rows = [(f"`{name}`", c.unit, c.kind, c.means) for name, c in records.COLUMNS.items()]
    return pd.DataFrame(rows, columns=["column", "unit", "kind", "meaning"])


def second_runs(root: Path = paths.RECORDED) -> pd.DataFrame | None:
    """Return a row for each room of each GPU with a second run, as `again.runs` finds them; None without one."""
    found = again.runs(root)
    if found.empty:
        return None
    names = {gpu: gpus.name(root / gpu).removeprefix("NVIDIA ") for gpu in found["gpu"].unique()}
    code = found["same_code"].map({True: "the same code", False: "other code"})
    return found.assign(
        gpu=found["gpu"].map(names),
        system=found["room"].map(system),
        experiments=found["experiments"].map(", ".join),
        medians=found["measurements"].astype(str) + " of " + found["of"].astype(str),
        off=[f"{row.median:.1%}, {row.most_of_ten:.1%}, {row.most:.0%}" for row in found.itertuples()],
        apart=found["between"].map(_long) + ", " + code,
    )


def _long(between: pd.Timedelta) -> str:
    minutes = between.total_seconds() / 60
    return f"{minutes:.0f} min" if minutes < 100 else f"{minutes / 60:.0f} h"


def system(room: str) -> str:
    """Return the name of a room's system; of what is no room, as the ceilings, its own."""
    known = registry.find()
    return known[room].name if room in known else room
