"""The page "Put yours on trial": the template, what it may name, and the trials that there are."""

from __future__ import annotations

import importlib
import inspect
from pathlib import Path

import pandas as pd

from artifact import registry, trial
from artifact.drawing import prose, style
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


def held(root: Path | None = None) -> list[style.Shown]:
    """The figure of every trial that was held here."""
    shown = []
    for (name, _, room), folder in trials(root).items():
        df = records.read(folder / f"{court.EXPERIMENT}.csv")
        gpu = records.read_machine(folder)["gpu"]
        ladder = importlib.import_module(f"kernels.{room}").VARIANTS
        shown.append(court.show(df, name, room, gpu, ladder))
    return shown


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
    return court.figure(df, published, room.VARIANTS), {
        "alt": f"Speedups of {published} and of what it was measured beside. {said}",
        "caption": f"{published}, as published, in the place of a contender, on the sweep “{experiment}”. {said}",
    }
