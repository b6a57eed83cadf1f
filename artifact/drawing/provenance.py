"""Where the numbers of a page come from: its records, the GPUs that have some and how they differ."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from artifact import paths, registry
from artifact.book import text
from artifact.measure import device, files, records, run
from artifact.verdicts import measures

# ---------------------------------------------------------------- where a page's numbers come from


@dataclass(frozen=True)
class Origin:
    """The records that a page without a system of its own draws from. `folder` is None without any."""

    gpu: str  #: slug
    folder: Path | None
    fresh: bool  #: measured on this machine's GPU, as opposed to read from what is shipped

    def has(self, system: str) -> bool:
        """Tell whether a system has records."""
        return self.folder is not None and system in records.systems(self.folder)

    @property
    def missing(self) -> str:
        """One sentence for a page that finds nothing to show."""
        where = "this GPU" if self.fresh else f"the GPU `{self.gpu}`"
        return f"There are no records of {where} yet: `make measure` on a machine with one makes them."

    def banner(self, alone: bool = False) -> str:
        """Return an admonition as `banner` gives it, for a page over all systems.

        Every GPU that has records, with when they were measured. alone: the page draws from this origin's GPU and no
        other.
        """
        made = {}
        for gpu, at in (
            (gpu, at) for gpu, at in folders(self.folder, paths.RECORDED).items() if not alone or at == self.folder
        ):
            parts = sorted(part for system in records.systems(at) for part in records.made(at / system))
            told = [(part.date[:10], part.commit) for part in parts if part.date != files.NOT_RECORDED]
            days, commits = ([*dict.fromkeys(of)] for of in zip(*told, strict=True))
            made[gpu] = {
                "when": " to ".join(dict.fromkeys((days[0], days[-1]))),
                "by": f"commit{'s' * (len(commits) > 1)} {', '.join(commits)}",
            }
        return text.part("banner", made, self.fresh) if made else text.part("nothing_yet", self.missing)


def banner(here: run.Run) -> str:
    """Return where the numbers of a system's page come from.

    An admonition as HTML, because Markdown in a cell's output knows none, here or in the book.
    """
    return text.part("of_run", here, records.made(here.folder) if here.mode == "recorded" else [])


def name(folder: Path) -> str:
    """Return what the GPU is called whose records lie in `folder`."""
    return str(records.read_machine(folder / records.systems(folder)[0])["gpu"])


def folders(own: Path | None, shipped: Path = paths.RECORDED) -> dict[str, Path]:
    """Name of a GPU -> folder of its records: `own`, then the others beside it, then the others that are shipped.

    Empty where there is no `own`, or nothing in it.
    """
    if own is None or not records.systems(own):
        return {}
    every = [own, *(root / slug for root in (own.parent, shipped) for slug in records.list_gpus(root))]
    first = {folder.name: folder for folder in reversed(every)}
    return {name(first[slug]): first[slug] for slug in dict.fromkeys(folder.name for folder in every)}


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
    known = records.list_gpus(root)
    own = None if not known or (here and slug not in known) else records.resolve(slug, root)
    return Origin(own.name if own else slug, own, bool(here))


# ---------------------------------------------------------------- how GPUs differ

#: What tells machines apart: key of machine.json -> what it is called, its unit, what one of these units is.
TOLD = {
    "sm_count": ("multiprocessors", "", 1),
    "sm_mhz_max": ("highest SM clock", "MHz", 1),
    "l2_bytes": ("L2 cache", "MiB", 2**20),
    "memory_bytes": ("memory", "GB", 1e9),
    "power_limit_w": ("power limit", "W", 1),
}
#: The same of measured ceilings: what it is called -> the microbenchmarks of it, of which the fastest counts, and the
#: column with its rate.
ROOFS = {
    "copying in memory, measured": (("copy",), "gbps", "GB/s"),
    "reading the L2 cache, measured": (("l2_read",), "gbps", "GB/s"),
    "reading shared memory, measured": (("shared_read",), "gbps", "GB/s"),
    "FP32 on CUDA cores, measured": (("fma",), "tflops", "TFLOP/s"),
    "BF16 on tensor cores, measured": (("wgmma", "mma"), "tflops", "TFLOP/s"),
    "BF16 2:4 on tensor cores, measured": (("wgmma_sp", "wgmma_sp_ra", "mma_sp"), "tflops", "TFLOP/s"),
}
#: What was sampled while kernels ran, at squares of at least LARGE: column -> what it is called, its unit.
LOADS = {"power_w": ("power", "W"), "sm_mhz": ("SM clock", "MHz")}
LARGE = 4096
_KEY = ["room", "experiment", *records.KEY]


def sides(own: Path | None, shipped: Path = paths.RECORDED) -> dict[str, Path]:
    """Return `folders`, and where the records of this page are not the shipped ones of the same GPU, these as well."""
    found = folders(own, shipped)
    if not found or own is None or own.name not in records.list_gpus(shipped):
        return found
    same = shipped / own.name
    return found if same.resolve() == own.resolve() else found | {f"{name(same)}, as shipped": same}


def changed(judged: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Return claims whose verdict is not the same on all GPUs that could give one.

    Id, says, and for each GPU its verdict; judged: name of a GPU -> verdicts on the same claims. No rows for fewer
    than two GPUs.
    """
    frames = [df.set_index(["id", "says"])["verdict"].rename(gpu) for gpu, df in judged.items()]
    given = pd.concat(frames, axis=1) if frames else pd.DataFrame(columns=["id", "says"])
    return given[given.mask(given.isin(measures.OPEN)).nunique(axis=1) > 1].reset_index()


def machines(found: Mapping[str, Path]) -> pd.DataFrame:
    """Tell the GPUs apart.

    A row for each quantity that any of them states, a column for each GPU with its value and, behind the first, the
    ratio to that of the first.
    """
    rows = []
    for gpu, folder in found.items():
        machine, known = records.read_machine(folder / records.systems(folder)[0]), records.ceilings(folder)
        stated = ((what, machine.get(key), unit, one) for key, (what, unit, one) in TOLD.items())
        rows += [(what, gpu, n / one, unit) for what, n, unit, one in stated if isinstance(n, int | float)]
        for what, (loops, column, unit) in ROOFS.items():
            rates = {known[loop][column]: loop for loop in reversed(loops) if loop in known}
            if rates:
                rows.append((what, gpu, max(rates), unit + f", `{rates[max(rates)]}`" * (len(loops) > 1)))
    df = pd.DataFrame([*rows, *loads(found)], columns=["what", "gpu", "value", "unit"])
    order = [what for what in (*(told[0] for told in TOLD.values()), *ROOFS, *df["what"]) if what in set(df["what"])]
    ratio = df["value"] / df["what"].map(df[df["gpu"] == next(iter(found), "")].set_index("what")["value"])
    cells = [
        f"{value:,.0f} {unit}".strip() + f" ({by:.2f}×)" * (gpu != next(iter(found)) and 0 < by < float("inf"))
        for gpu, value, unit, by in zip(df["gpu"], df["value"], df["unit"], ratio, strict=True)
    ]
    return (
        df.assign(cell=cells)
        .pivot(index="what", columns="gpu", values="cell")
        .reindex(columns=list(found))
        .loc[list(dict.fromkeys(order))]
        .fillna("not recorded")
        .rename_axis(columns=None)
        .reset_index()
    )


def loads(found: Mapping[str, Path]) -> Iterator[tuple[str, str, float, str]]:
    """Yield what was sampled while large products ran, on each unit of arithmetic.

    What it is called, GPU, value, unit. Of the rows that all of these GPUs have, so that all did the same; none where
    they share none.
    """
    for unit in registry.UNITS:
        systems = [system.room for system in registry.find().values() if system.unit == unit]
        each = {gpu: df for gpu, folder in found.items() if len(df := _large(folder, systems))}
        df = pd.concat(each or {"": pd.DataFrame(columns=[*_KEY, "throttle", *LOADS])}, names=["gpu"])
        for gpu, own in df[df.groupby(_KEY)["m"].transform("size") == len(each)].groupby(level="gpu", sort=False):
            held = 100 * (~own["throttle"].isin(["", "none"])).mean()
            yield from ((f"{said} under load, {unit}", gpu, own[c].median(), of) for c, (said, of) in LOADS.items())
            yield f"clock held back, {unit}", gpu, held, f"% of {len(own)} rows"


def _large(folder: Path, systems: Sequence[str]) -> pd.DataFrame:
    """Return rows of these systems that are of large squares and whose power was sampled, by what they are of."""
    paths = [folder / system / f"{e}.csv" for system in systems for e in records.experiments(folder / system)]
    return (
        pd.concat([pd.DataFrame(columns=list(records.COLUMNS)), *map(records.read, paths)], ignore_index=True)
        .query("m == n and n == k and m >= @LARGE and power_w.notna()")
        .drop_duplicates(_KEY)
    )
