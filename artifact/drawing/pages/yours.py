"""The page "Put yours on trial": the template, what it may name, and the trials that there are."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.patches import Patch

from artifact import registry, trial
from artifact.book import figures
from artifact.book.facts import Fact, under
from artifact.drawing import plot, prose, style
from artifact.measure import records
from artifact.trial import contenders, court, header

TINTS = {"the contender": style.CLAIM, "the room's kernels": style.BEST, "libraries": style.BASELINE}
TEMPLATES = Path(trial.__file__).parent


def template(kind: str) -> str:
    """Return the text of a template: "cu" or "py"."""
    return (TEMPLATES / f"template.{kind}").read_text(encoding="utf-8")


def grammar() -> str:
    """Return what a header may say, from the module that reads it."""
    return inspect.getdoc(header)


def compiled() -> pd.DataFrame:
    """Return what the compiler makes of the template, for every target."""
    df = pd.DataFrame(contenders.compiled(contenders.load(str(TEMPLATES / "template.cu"))))
    return df.assign(spills=df["spills"].map({True: "yes", False: "none"}))


def arguments() -> pd.DataFrame:
    """Return what a header may name in each room, from a small problem of it."""
    rows = []
    for name in registry.find():
        make = importlib.import_module(f"kernels.{name}").problem
        asked = inspect.signature(make).parameters["density"].default is inspect.Parameter.empty
        problem = make(m=256, n=128, k=256, **({"density": 0.25} if asked else {}))
        told = header.described(problem, problem.host()).items()
        rows.append((f"`{name}`", "; ".join(f"`{key}` {what}" for key, what in told if key not in header.SIZES)))
    return pd.DataFrame(rows, columns=["room", "names"])


def held(root: Path | None = None) -> list[figures.Shown]:
    """Draw the figure of every trial that was held here. root: folder of trials, those of this machine by default."""
    shown = []
    for (name, _, room), folder in court.recorded(root or court.folder()).items():
        df, gpu = records.read(folder / f"{court.EXPERIMENT}.csv"), records.read_machine(folder)["gpu"]
        shown.append(show(df, name, room, gpu, registry.variants(room)))
    return shown


def figure(df: pd.DataFrame, name: str, ladder: Iterable[str] = ()) -> tuple[Any, pd.DataFrame]:
    """Draw the main figure of a room with the contender's bar in it: speed over the fastest library, or over the fastest
    other where none was measured; a bar for each, the geometric mean over its points, which are the dots. (fig, data)

    ladder: the room's kernels in their order; what else was measured stands below, the contender first.
    """
    table = court.standings(df, name)
    against, word = ("library", "library") if table["library"].ne("").all() else ("best", "other")
    over = table.set_index(list(records.POINT))[f"{against}_us"].rename("against_us")
    data = df.join(over, on=list(records.POINT)).assign(speedup=lambda rows: rows["against_us"] / rows["median_us"])
    measured = data["variant"].unique()
    order = list(dict.fromkeys([name, *(v for v in ladder if v in measured), *measured]))
    fig, ax = plt.subplots(figsize=(style.WIDTH, 1.0 + 0.3 * len(order)))
    for y, variant in enumerate(order):
        values, mine = data.loc[data["variant"] == variant, "speedup"], variant == name
        kind = "libraries" if variant.startswith(registry.PREFIXES) else "the room's kernels"
        mean, tint = records.geomean(values), TINTS["the contender" if mine else kind]
        ax.barh(y, mean, height=0.66, color=tint, alpha=0.9 if mine else 0.5)
        if len(values) > 1:
            ax.plot(values, [y] * len(values), "o", color=style.INK, markersize=2.6, markeredgewidth=0)
        plot.right(ax, y, 40, f"{mean:.2f}×", weight="bold" if mine else "normal")
    ax.axvline(1, color=style.BASELINE, linewidth=1.3)
    ax.set_yticks(range(len(order)), [style.name(variant) for variant in order])
    ax.set(ylim=(len(order) - 0.5, -0.5), xlim=(0, 1.05 * max(1, data["speedup"].max())))
    ax.set_xlabel(f"speedup over the fastest {word}; right: geometric means")
    ax.tick_params(axis="y", length=0)
    ax.grid(axis="y", visible=False)
    plot.legend(fig, {kind: Patch(color=tint, alpha=0.7) for kind, tint in TINTS.items()})
    return fig, data[["variant", *records.POINT, "median_us", "speedup", "prepare_ms"]]


def show(df: pd.DataFrame, name: str, room: str, gpu: str, ladder: Iterable[str] = ()) -> figures.Shown:
    """Draw `figure` into <figures>/trials/<contender>-<room>.svg, with its data beside it."""
    said = court.verdict(court.standings(df, name), name)
    return figures.shown(
        "trials",
        f"{name}-{room}",
        *figure(df, name, ladder),
        alt=f"Speedups of {name} and of what it was measured beside in {room} on {gpu}. {said}",
        caption=f"{said} {gpu}; bars are geometric means over the points, which are the dots.",
    )


def stand_in(origin: prose.Origin) -> tuple[tuple | None, list[Fact]]:
    """Draw the figure of a trial with a published kernel in the contender's place, None without records of the room that
    is the headline; and yield what is said of it."""
    chosen = registry.headline()
    if chosen is None or origin.folder is None or not origin.has(chosen.room):
        return None, []
    room = importlib.import_module(f"kernels.{chosen.room}")
    published = next(name for name, kernel in room.VARIANTS.items() if kernel.published)
    experiment = next(iter(room.sweeps("full")))
    df = records.read(origin.folder / chosen.room / f"{experiment}.csv")
    said = court.verdict(court.standings(df, published), published)
    return figure(df, published, room.VARIANTS), [*under("trial", name=published, sweep=experiment, said=said)]
