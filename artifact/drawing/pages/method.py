"""The page on the method: the timer as a picture and its constants, what a problem counts, limits of errors, columns of records."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd

from artifact import paths, registry
from artifact.book import text
from artifact.book.facts import Fact, flat
from artifact.drawing import provenance, sketch, style
from artifact.measure import bench, durations, files, records, run, verification
from kernels import jit, timing
from kernels.contract import Problem

#: In a module: a comment of several lines, and the assignments that it explains.
CONSTANTS = re.compile(r"((?:^#:.*\n)+)((?:^[A-Z]\w* = .*\n)+)", re.MULTILINE)


def facts(root: Path = paths.RECORDED) -> Iterator[Fact]:
    """Yield the timer's, the check's and the compiler's constants, and what second runs say of ratios."""
    told: dict[str, Any] = {
        "timer": {n.lower(): v for n, v in vars(bench).items() if n.isupper() and isinstance(v, int | float)},
        "budget_s": run.BUDGETS_S,
        "check": {"cpu_work": text.thousands(verification.CPU_WORK)},
        "jit": {
            "targets": ", ".join(f"`{target}`" for target in jit.TARGETS),
            "options": ", ".join(f"`{key}={value}`" for key, value in jit.OPTIONS.items()),
        },
    }
    if len(found := durations.runs(root)):
        worst, same = found.loc[found["most_of_ten"].idxmax()], found[found["same_code"]]
        told["again"] = {
            "medians": int(found["measurements"].sum()),
            "worst": {"system": system(worst.room), "gpu": provenance.name(root / worst.gpu), "off": worst.most_of_ten},
            "same_code": same["most_of_ten"].max(),
        }
    yield from flat(told)


def counted(p: Problem) -> Iterator[Fact]:
    """Yield a problem's sizes."""
    told = {"m": p.m, "n": p.n, "k": p.k, "nnz": p.nnz, "percent": f"{100 * p.density:g}", "true": p.nnz / p.m / p.k}
    return flat({"p": told})


def constants(*modules: ModuleType) -> pd.DataFrame:
    """Return the timer's constants that a `#:` comment explains.

    Constant (several below one comment), value, meaning. Numbers only.
    """
    rows = []
    for module, said, below in [
        (m, *x)
        for m in modules or (timing, bench)
        for x in CONSTANTS.findall(Path(str(m.__file__)).read_text(encoding="utf-8"))
    ]:
        found = {name: getattr(module, name) for name in re.findall(r"^(\w+) =", below, re.MULTILINE)}
        numbers = {name: value for name, value in found.items() if isinstance(value, int | float)}
        values = [f"{v / 2**20:g} MiB" if "BYTES" in name else f"{v:g}" for name, v in numbers.items()]
        told = ", ".join(f"`{name}`" for name in numbers), " · ".join(values), " ".join(said.replace("#:", "").split())
        rows += [told] * bool(numbers)
    return pd.DataFrame(rows, columns=["constant", "value", "meaning"])


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
    return pd.DataFrame(
        [(name, limit.rel_err, limit.max_err, limit.why) for name, limit in verification.LIMITS.items()],
        columns=["dtype", "rel_err", "max_err", "why"],
    )


def columns() -> pd.DataFrame:
    """Return the columns of a record."""
    return pd.DataFrame(
        [(f"`{name}`", c.unit, c.kind, c.means) for name, c in records.COLUMNS.items()],
        columns=["column", "unit", "kind", "meaning"],
    )


def second_runs(root: Path = paths.RECORDED) -> pd.DataFrame | None:
    """Return a row for each system of each GPU with a second run, as `durations.runs` finds them; None without one."""
    found = durations.runs(root)
    if found.empty:
        return None
    names = {gpu: provenance.name(root / gpu).removeprefix("NVIDIA ") for gpu in found["gpu"].unique()}
    minutes = pd.to_timedelta(found["between"]).dt.total_seconds() / 60
    return found.assign(
        gpu=found["gpu"].map(names),
        system=found["room"].map(system),
        experiments=found["experiments"].map(", ".join),
        medians=found["measurements"].astype(str) + " of " + found["of"].astype(str),
        off=[f"{row.median:.1%}, {row.most_of_ten:.1%}, {row.most:.0%}" for row in found.itertuples()],
        apart=[f"{m:.0f} min" if m < 100 else f"{m / 60:.0f} h" for m in minutes]
        + found["same_code"].map({True: ", the same code", False: ", other code"}),
    )


def origins(root: Path = paths.RECORDED) -> pd.DataFrame:
    """Return how many rows of each system and GPU are of which commit and driver, and of which days."""
    keys, folders = ["gpu", "system", "commit", "driver"], sorted(path.parent for path in root.rglob(records.MACHINE))
    rows = [
        (*folder.relative_to(root).parts[:2], *origin)
        for folder in folders
        for of in files.provenance(folder).values()
        for origin in of
    ]
    names = {gpu: provenance.name(root / gpu).removeprefix("NVIDIA ") for gpu in records.list_gpus(root)}
    return (
        pd.DataFrame(rows, columns=[*keys, "date"])
        .groupby(keys, sort=False)["date"]
        .agg(rows="size", days=lambda dates: ", ".join(sorted({*dates})))
        .reset_index()
        .assign(gpu=lambda df: df["gpu"].replace(names), system=lambda df: df["system"].map(system))
    )


def system(system: str) -> str:
    """Return the name of a system's system; of what is no system, as the ceilings, its own."""
    return getattr(registry.find().get(system), "name", system)


# ---------------------------------------------------------------- the timer as a picture

#: Height of a lane, and what it is called; lengths of a flush, of a host's call, and of each contender in turn.
LANES = {"host": (1.15, "host"), "GPU": (2.35, "GPU stream")}
FLUSH, ENQUEUE, LENGTHS = 3.0, 0.42, (2.1, 1.3, 1.7)


def timeline(names: Sequence[str] = ("A", "B"), rounds: int = 2) -> tuple[Any, pd.DataFrame]:
    """Draw a schematic of the timer: what the host enqueues, what the GPU runs, when NVML is asked.

    The order of the launches is the one that `bench.schedule` gives. (fig, data); times have no unit.
    """
    length = dict(zip(names, LENGTHS, strict=False)) | {"flush": FLUSH}
    launches = [what for name in bench.schedule(dict.fromkeys(names, rounds)) for what in ("flush", name)]
    data = pd.DataFrame({"what": ["flush", *launches]})
    spans = {"GPU": data["what"].map(length).cumsum(), "host": ENQUEUE * (data.index + 1.0)}
    data = (
        pd.concat([data.assign(lane=lane, end=end) for lane, end in spans.items()])
        .sort_index(kind="stable", ignore_index=True)
        .assign(begin=lambda data: data.groupby("lane")["end"].shift(fill_value=0.0))
    )
    host, clock = data.groupby("lane")["end"].max()[["host", "GPU"]]
    colours = dict(zip(names, (style.PUBLISHED, style.BASELINE, style.BEST), strict=False)) | {"flush": style.BOUND}
    colour, y, flush = data["what"].map(colours), data["lane"].map(lambda lane: LANES[lane][0]), data["what"] == "flush"
    block = data["begin"] + 0.05, y, data["end"] - data["begin"] - 0.1, 0.7
    fill = {"fill": True, "facecolor": colour, "alpha": np.where(flush, 0.16, 0.35), "linewidth": 0}
    gpu, top = data[data["lane"] == "GPU"], LANES["GPU"][0]
    samples, middle = gpu[gpu["what"] != "flush"], data[["begin", "end"]].mean(axis=1)
    events = samples[["begin", "end"]].to_numpy().ravel()
    small, bold = {"fontsize": 8}, np.where(gpu["what"] == "flush", "normal", "bold")
    fig = sketch.picture(
        (-3.4, clock + 1),
        (4.25, 0.45),
        (sketch.frame, *block, fill),
        (sketch.frame, *block, {"edgecolor": colour, "linewidth": 1}),
        (sketch.put, middle[gpu.index], top + 0.35, gpu["what"], {"weight": bold}),
        (sketch.segment, events, top - 0.14, events, top + 0.84, {"linewidth": 1.3}),
        (sketch.put, middle[samples.index], top + 1.32, "a sample of " + samples["what"], small),
        (sketch.put, (host + clock) / 2, 0.72, "meanwhile NVML is asked for clock, power and throttling", small),
        (sketch.put, host / 2, 0.72, "everything is enqueued first", small),
        *((sketch.put, -0.3, at + 0.35, label, {"ha": "right", "weight": "bold"}) for at, label in LANES.values()),
        (sketch.put, FLUSH / 2, top + 1.05, "a head start", small),
        (sketch.put, -2.9, top + 1.32, "CUDA event", {"ha": "left", "fontsize": 8}),
        height=2.7,
        whole=True,
    )
    (ax,) = fig.axes
    for sample in samples.itertuples():
        ax.annotate(
            "",
            (sample.begin, top + 1.05),
            (sample.end, top + 1.05),
            arrowprops={"arrowstyle": "<->", "color": colours[sample.what], "linewidth": 1},
        )
    ax.plot([*events, -3.2], [*np.full(len(events), top - 0.14), top + 1.32], "v", color=style.INK, markersize=4)
    ax.plot(
        np.linspace(host + 0.3, clock, 6), np.full(6, LANES["host"][0] + 0.35), "o", color=style.CLAIM, markersize=4
    )
    return fig, data[["lane", "what", "begin", "end"]]
