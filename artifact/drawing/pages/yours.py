"""The page "Put yours on trial": the template, what it may name, and the trials that there are."""

import importlib
import inspect
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pandas as pd

from artifact import registry, user_kernel
from artifact.book import charts, figures
from artifact.book.facts import Fact, flat
from artifact.book.text import Shown
from artifact.drawing import provenance
from artifact.measure import records
from artifact.user_kernel import benchmark, header

TEMPLATES = Path(user_kernel.__file__).parent


def template(kind: str) -> str:
    """Return the text of a template: "cu" or "py"."""
    return (TEMPLATES / f"template.{kind}").read_text(encoding="utf-8")


def grammar() -> str:
    """Return what a header may say, from the module that reads it."""
    return str(inspect.getdoc(header))


def compiled() -> pd.DataFrame:
    """Return what the compiler makes of the template, for every target."""
    return pd.DataFrame(benchmark.compiled(benchmark.load(str(TEMPLATES / "template.cu")))).assign(
        spills=lambda df: df["spills"].map({True: "yes", False: "none"})
    )


def arguments() -> pd.DataFrame:
    """Return what a header may name in each system, from a small problem of it."""
    rows = []
    for name in registry.find():
        make = importlib.import_module(f"kernels.{name}").problem
        asked = inspect.signature(make).parameters["density"].default is inspect.Parameter.empty
        problem = make(m=256, n=128, k=256, **({"density": 0.25} if asked else {}))
        told = header.described(problem, problem.host()).items()
        rows.append((f"`{name}`", "; ".join(f"`{key}` {what}" for key, what in told if key not in header.SIZES)))
    return pd.DataFrame(rows, columns=["room", "names"])


def held(root: Path | None = None) -> list[Shown]:
    """Draw the figure of every trial that was held here. root: folder of trials, those of this machine by default."""
    return [
        show(
            records.read(folder / f"{benchmark.EXPERIMENT}.csv"),
            name,
            system,
            records.read_machine(folder)["gpu"],
            registry.variants(system),
        )
        for (name, _, system), folder in benchmark.recorded(root or benchmark.folder()).items()
    ]


def figure(df: pd.DataFrame, name: str, ladder: Iterable[str] = ()) -> tuple[Any, pd.DataFrame]:
    """Draw the speed of everybody over the fastest library, or over the fastest other where none was measured.

    A dot for each point, the geometric mean beside them. (fig, data)

    ladder: the system's kernels in their order; what else was measured stands below, the contender first.
    """
    table = benchmark.standings(df, name)
    against, word = ("library", "library") if table["library"].ne("").all() else ("best", "other")
    data = df.join(
        table.set_index(list(records.POINT))[f"{against}_us"].rename("against_us"), on=list(records.POINT)
    ).assign(speedup=lambda rows: rows["against_us"] / rows["median_us"])
    order = list(dict.fromkeys([name, *ladder, *data["variant"]]))
    data = data.sort_values("variant", key=lambda variants: variants.map(order.index), kind="stable")
    about = charts.About({"speedup": f"speedup over the fastest {word}; right: geometric means"}, order=list(ladder))
    return (
        charts.boxes(data, about, x="speedup", y="variant", reference=1, text=[{"of": "mean", "as": "x"}]),
        data[["variant", *records.POINT, "median_us", "speedup", "prepare_ms"]],
    )


def show(df: pd.DataFrame, name: str, system: str, gpu: str, ladder: Iterable[str] = ()) -> Shown:
    """Draw `figure` into <figures>/trials/<contender>-<system>.svg, with its data beside it."""
    said = benchmark.verdict(benchmark.standings(df, name), name)
    return figures.shown(
        "trials",
        f"{name}-{system}",
        *figure(df, name, ladder),
        alt=f"Speedups of {name} and of what it was measured beside in {system} on {gpu}. {said}",
        caption=f"{said} {gpu}: boxes of the points, which are the dots, and geometric means.",
    )


def stand_in(origin: provenance.Origin) -> tuple[tuple | None, list[Fact]]:
    """Draw the figure of a trial with a published kernel in the contender's place, and yield what is said of it.

    The figure is None without records of the system that is the headline.
    """
    chosen = next((system for system in registry.find().values() if system.headline), None)
    if chosen is None or origin.folder is None or not origin.has(chosen.room):
        return None, []
    system = importlib.import_module(f"kernels.{chosen.room}")
    published = next(name for name, kernel in system.VARIANTS.items() if kernel.published)
    experiment = next(iter(system.sweeps("full")))
    df = records.read(origin.folder / chosen.room / f"{experiment}.csv")
    said = benchmark.verdict(benchmark.standings(df, published), published)
    return figure(df, published, system.VARIANTS), [
        *flat({"trial": {"name": published, "sweep": experiment, "said": said}})
    ]
