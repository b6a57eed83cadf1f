"""The page "Put yours on trial": the template, what it may name, and the trials that there are."""

from __future__ import annotations

import importlib
import inspect
from pathlib import Path

import pandas as pd

from artifact import registry, trial
from artifact.book.facts import Fact, under
from artifact.drawing import prose, style
from artifact.measure import records
from artifact.trial import contenders, court, header

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


def held(root: Path | None = None) -> list[style.Shown]:
    """Draw the figure of every trial that was held here. root: folder of trials, those of this machine by default."""
    shown = []
    for (name, _, room), folder in court.recorded(root or court.folder()).items():
        df, gpu = records.read(folder / f"{court.EXPERIMENT}.csv"), records.read_machine(folder)["gpu"]
        shown.append(court.show(df, name, room, gpu, importlib.import_module(f"kernels.{room}").VARIANTS))
    return shown


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
    return court.figure(df, published, room.VARIANTS), [*under("trial", name=published, sweep=experiment, said=said)]
