"""The page "Put yours on trial": the template, what it may name, and the trials that there are."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterable
from pathlib import Path

import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.patches import Patch

from artifact import registry, trial
from artifact.book import figures
from artifact.drawing import plot, prose, style
from artifact.drawing.prose import captioned
from artifact.measure import records
from artifact.trial import contenders, court, header

TEMPLATES = Path(trial.__file__).parent
NO_TRIALS = (
    "No trial was held on this machine yet. Below, a published kernel stands where yours would: the figure is drawn from the "
    "records of its room, as that of a trial is."
)


def template(kind: str) -> str:
    """The text of a template: "cu" or "py"."""
    return (TEMPLATES / f"template.{kind}").read_text(encoding="utf-8")


def grammar() -> str:
    """What a header may say, from the module that reads it."""
    return inspect.getdoc(header)


@captioned("What the compiler makes of the template, for every target.")
def compiled() -> pd.DataFrame:
    """What the compiler makes of the template, for every target."""
    df = pd.DataFrame(contenders.compiled(contenders.load(str(TEMPLATES / "template.cu"))))
    return df.assign(spills=df["spills"].map({True: "yes", False: "none"}))


@captioned("What a kernel's header may name, by room.")
def arguments() -> pd.DataFrame:
    """What a header may name in each room, from a small problem of it."""
    rows = []
    for name in registry.find():
        make = importlib.import_module(f"kernels.{name}").problem
        density = inspect.signature(make).parameters["density"].default
        given = {} if density is not inspect.Parameter.empty else {"density": 0.25}
        problem = make(m=256, n=128, k=256, **given)
        told = header.described(problem, problem.host()).items()
        said = [f"<code>{key}</code> {what}" for key, what in told if key not in header.SIZES]
        rows.append({"room": f"<code>{name}</code>", "beside m, n, k and nnz": "<br>".join(said)})
    return pd.DataFrame(rows)


def trials(root: Path | None = None) -> dict[tuple[str, str, str], Path]:
    """(contender, GPU, room) -> folder of the trials that were held here."""
    return court.recorded(root or court.folder())


def held(root: Path | None = None) -> list[figures.Shown]:
    """The figure of every trial that was held here."""
    shown = []
    for (name, _, room), folder in trials(root).items():
        df = records.read(folder / f"{court.EXPERIMENT}.csv")
        gpu = records.read_machine(folder)["gpu"]
        ladder = importlib.import_module(f"kernels.{room}").VARIANTS
        shown.append(show(df, name, room, gpu, ladder))
    return shown


def figure(df: pd.DataFrame, name: str, ladder: Iterable[str] = ()):
    """The main figure of a room with the contender's bar in it: speed over the fastest library, or over the fastest
    other where none was measured; a bar for each, the geometric mean over its points, which are the dots. (fig, data)

    ladder: the room's kernels in their order; what else was measured stands below, the contender first.
    """
    table = court.standings(df, name)
    against = "library" if table["library"].ne("").all() else "best"
    over = table.set_index(list(records.POINT))[f"{against}_us"]
    data = df.join(over.rename("against_us"), on=list(records.POINT))
    data["speedup"] = data["against_us"] / data["median_us"]
    ladder = [v for v in ladder if v != name]
    measured = list(dict.fromkeys(data["variant"]))
    order = [name, *(v for v in ladder if v in measured)]
    order += [v for v in measured if v not in order]
    fig, ax = plt.subplots(figsize=(style.WIDTH, 1.0 + 0.3 * len(order)))
    tints = {
        "the contender": style.CLAIM,
        "the room's kernels": style.BEST,
        "libraries": style.BASELINE,
    }
    for y, variant in enumerate(order):
        values = data.loc[data["variant"] == variant, "speedup"]
        kind = "the contender" if variant == name else "the room's kernels"
        kind = "libraries" if variant.startswith(registry.PREFIXES) else kind
        mean = records.geomean(values)
        ax.barh(y, mean, height=0.66, color=tints[kind], alpha=0.9 if variant == name else 0.5)
        if len(values) > 1:
            ax.plot(values, [y] * len(values), "o", color=style.INK, markersize=2.6, markeredgewidth=0)
        plot.right(ax, y, 40, f"{mean:.2f}×", weight="bold" if variant == name else "normal")
    ax.axvline(1, color=style.BASELINE, linewidth=1.3)
    ax.set_yticks(range(len(order)), [style.name(variant) for variant in order])
    ax.set(ylim=(len(order) - 0.5, -0.5), xlim=(0, 1.05 * max(1, data["speedup"].max())))
    ax.set_xlabel(f"speedup over the fastest {'library' if against == 'library' else 'other'}; right: geometric means")
    ax.tick_params(axis="y", length=0)
    ax.grid(axis="y", visible=False)
    plot.legend(fig, {kind: Patch(color=tint, alpha=0.7) for kind, tint in tints.items()})
    return fig, data[["variant", *records.POINT, "median_us", "speedup", "prepare_ms"]]


def show(df: pd.DataFrame, name: str, room: str, gpu: str, ladder: Iterable[str] = ()) -> figures.Shown:
    """Draw `figure` into <figures>/trials/<contender>-<room>.svg, with its data beside it."""
    fig, data = figure(df, name, ladder)
    said = court.verdict(court.standings(df, name), name)
    return figures.shown(
        "trials",
        f"{name}-{room}",
        fig,
        data,
        alt=f"Speedups of {name} and of what it was measured beside in {room} on {gpu}. {said}",
        caption=f"{said} {gpu}; bars are geometric means over the points, which are the dots.",
    )


def stand_in(origin: prose.Origin) -> tuple[tuple, dict[str, str]] | None:
    """The figure of a trial with a published kernel in the contender's place, alternative text and caption; None
    without records of the room that is the headline."""
    chosen = registry.headline()
    if chosen is None or not origin.has(chosen.room):
        return None
    room = importlib.import_module(f"kernels.{chosen.room}")
    published = next(name for name, kernel in room.VARIANTS.items() if kernel.published)
    experiment = next(iter(room.sweeps("full")))
    df = records.read(origin.folder / chosen.room / f"{experiment}.csv")
    said = court.verdict(court.standings(df, published), published)
    return figure(df, published, room.VARIANTS), {
        "alt": f"Speedups of {published} and of what it was measured beside. {said}",
        "caption": f"{published}, as published, in the place of a contender, on the sweep “{experiment}”. {said}",
    }
