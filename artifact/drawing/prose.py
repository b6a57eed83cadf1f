"""Where the numbers of a page come from: its records, and the constants of a module."""

from __future__ import annotations

import re
import types
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from pathlib import Path

import pandas as pd

from artifact import paths
from artifact.book import html
from artifact.measure import device, records, run

# ---------------------------------------------------------------- where a page's numbers come from


@dataclass(frozen=True)
class Origin:
    """The records that a page without a room of its own draws from. `folder` is None without any."""

    gpu: str  #: slug
    folder: Path | None
    fresh: bool  #: measured on this machine's GPU, as opposed to read from what is shipped

    def has(self, room: str) -> bool:
        """Tell whether a room has records."""
        return self.folder is not None and room in records.rooms(self.folder)

    @property
    def missing(self) -> str:
        """One sentence for a page that finds nothing to show."""
        where = "this GPU" if self.fresh else f"the GPU `{self.gpu}`"
        return f"There are no records of {where} yet: `make measure` on a machine with one makes them."

    def banner(self, alone: bool = False) -> str:
        """Return an admonition as `Run.banner` gives it, for a page over all rooms: every GPU that has records, with
        when they were measured. alone: the page draws from this origin's GPU and no other."""
        found = folders(self.folder, paths.RECORDED)
        made = {gpu: _made(at) for gpu, at in found.items() if not alone or at == self.folder}
        return html.part("banner", made, self.fresh) if made else html.part("nothing_yet", self.missing)


def name(folder: Path) -> str:
    """What the GPU is called whose records lie in `folder`. Raises FileNotFoundError where there are none."""
    found = records.rooms(folder)
    if not found:
        raise FileNotFoundError(f"{folder}: there are no records of any room.")
    return str(records.read_machine(folder / found[0])["gpu"])


def folders(own: Path | None, shipped: Path = paths.RECORDED) -> dict[str, Path]:
    """Name of a GPU -> folder of its records: `own`, then the others beside it, then the others that are shipped.
    Empty where there is no `own`, or nothing in it."""
    if own is None or not records.rooms(own):
        return {}
    found = {own.name: own}
    for root in (own.parent, shipped):
        for slug in records.list_gpus(root):
            found.setdefault(slug, root / slug)
    return {name(folder): folder for folder in found.values()}


def _made(folder: Path) -> dict[str, str]:
    """Tell when and by which commits the rooms of a GPU were measured, which may be several."""
    machines = (records.read_machine(folder / room) for room in records.rooms(folder))
    parts = sorted((part for machine in machines for part in records.made(machine)), key=attrgetter("date"))
    days, commits = (list(dict.fromkeys(of)) for of in zip(*((p.date[:10], p.commit) for p in parts), strict=True))
    return {
        "when": " to ".join(dict.fromkeys((days[0], days[-1]))),
        "by": f"commit{'s' * (len(commits) > 1)} {', '.join(commits)}",
    }


def origin(mode: str, gpu: str, folder: str | Path = "") -> Origin:
    """Resolve a notebook's parameters to a GPU's folder, as `run.start` does, without measuring.

    folder: the parameter `records`. Raises ValueError for an unknown mode and, naming the known
    GPUs, where there are records but none of `gpu`; `device.NoGpu` for mode="measure" without one.
    """
    if mode not in run.MODES:
        raise ValueError(f"mode is {mode!r}, but must be one of {', '.join(run.MODES)}")
    here = device.require() if mode == "measure" else device.find() if mode == "auto" else None
    root = Path(folder) if folder else paths.RECORDS if here else paths.RECORDED
    slug = here.slug if here else gpu
    if here and slug not in records.list_gpus(root):
        return Origin(slug, None, True)
    if not records.list_gpus(root):
        return Origin(slug, None, bool(here))
    known = records.resolve(slug, root)
    return Origin(known.name, known, bool(here))


#: Two columns, name and value, as HTML without a head: rows of them, and a caption.
facts = partial(html.part, "facts")


_CONSTANTS = re.compile(r"((?:^#:.*\n)+)((?:^[A-Z]\w* = .*\n)+)", re.MULTILINE)


def constants(module: types.ModuleType) -> pd.DataFrame:
    """Return the module's constants that a `#:` comment explains: constant, value (lists: those below one
    comment share it), meaning. Numbers only."""
    rows = []
    for said, below in _CONSTANTS.findall(Path(str(module.__file__)).read_text(encoding="utf-8")):
        found = {name: getattr(module, name) for name in re.findall(r"^(\w+) =", below, re.MULTILINE)}
        numbers = {name: value for name, value in found.items() if isinstance(value, int | float)}
        rows.append((list(numbers), list(numbers.values()), " ".join(said.replace("#:", "").split())))
    return pd.DataFrame([row for row in rows if row[0]], columns=["constant", "value", "meaning"])
