"""The GPUs that have records: this page's first, then those beside it and those that are shipped; how they differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pandas as pd

from artifact import paths
from artifact.drawing.prose import captioned
from artifact.measure import records
from artifact.verdicts import judge, load, measures

#: What tells machines apart: key of machine.json -> what it is called, its unit, what one of these units is.
TOLD = {
    "sm_count": ("multiprocessors", "", 1),
    "sm_mhz_max": ("highest SM clock", "MHz", 1),
    "l2_bytes": ("L2 cache", "MiB", 2**20),
    "memory_bytes": ("memory", "GB", 1e9),
    "power_limit_w": ("power limit", "W", 1),
}
#: The same of measured ceilings: microbenchmark -> what it is called, and the column with its rate.
ROOFS = {
    "copy": ("copying in memory, measured", "gbps", "GB/s"),
    "l2_read": ("reading the L2 cache, measured", "gbps", "GB/s"),
    "shared_read": ("reading shared memory, measured", "gbps", "GB/s"),
    "fma": ("FP32 on CUDA cores, measured", "tflops", "TFLOP/s"),
    "wgmma": ("BF16 on tensor cores, measured", "tflops", "TFLOP/s"),
    "wgmma_sp": ("BF16 2:4 on tensor cores, measured", "tflops", "TFLOP/s"),
}


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


def sides(own: Path | None, shipped: Path = paths.RECORDED) -> dict[str, Path]:
    """`folders`, and where the records of this page are not the shipped ones of the same GPU, these as well."""
    found = folders(own, shipped)
    if own is not None and found and own.name in records.list_gpus(shipped):
        same = shipped / own.name
        if same.resolve() != own.resolve():
            found[f"{name(same)}, as shipped"] = same
    return found


def changed(judged: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Claims whose verdict is not the same on all GPUs that could give one: id, says, and for each GPU its
    verdict; judged: name of a GPU -> verdicts on the same claims. No rows for fewer than two GPUs."""
    frames = {gpu: df.set_index("id") for gpu, df in judged.items()}
    first = next(iter(frames.values())) if frames else pd.DataFrame()
    rows = []
    for claim in first.index if len(frames) > 1 else ():
        given = {gpu: df.loc[claim, "verdict"] for gpu, df in frames.items()}
        if len(set(given.values()) - {measures.NOT_MEASURED}) > 1:
            rows.append({"id": claim, "says": first.loc[claim, "says"], **given})
    return pd.DataFrame(rows, columns=["id", "says", *frames])


def judged(found: Mapping[str, Path], room: str) -> dict[str, pd.DataFrame]:
    """Verdicts on the claims of a room, of each GPU that has records of it."""
    mine = [claim for claim in load.claims() if claim.room == room]
    having = {gpu: folder for gpu, folder in found.items() if room in records.rooms(folder)}
    return {gpu: judge.judge(mine, folder) for gpu, folder in having.items()}


@captioned("What tells the GPUs apart.")
def machines(found: Mapping[str, Path]) -> pd.DataFrame:
    """What tells the GPUs apart: a row for each quantity that any of them states, a column for each GPU with its value
    and, behind the first, the ratio to that of the first."""
    rows = {}
    for gpu, folder in found.items():
        machine = records.read_machine(folder / records.rooms(folder)[0])
        for key, (what, unit, one) in TOLD.items():
            if isinstance(machine.get(key), int | float):
                rows.setdefault((what, unit), {})[gpu] = machine[key] / one
        for roof, rates in _ceilings(folder).items():
            if roof in ROOFS:
                what, column, unit = ROOFS[roof]
                rows.setdefault((what, unit), {})[gpu] = rates[column]
    order = [row[0] for row in (*TOLD.values(), *ROOFS.values())]
    listed = sorted(rows.items(), key=lambda item: order.index(item[0][0]))
    names = list(found)
    return pd.DataFrame(
        {"": what, **{gpu: _cell(values, gpu, names, unit) for gpu in names}}
        for (what, unit), values in listed
    )


def _ceilings(folder: Path) -> dict[str, dict[str, float]]:
    try:
        return records.ceilings(folder)
    except FileNotFoundError:
        return {}


def _cell(values: Mapping[str, float], gpu: str, names: Sequence[str], unit: str) -> str:
    if gpu not in values:
        return "not recorded"
    ratio = ""
    if gpu != names[0] and values.get(names[0]):
        ratio = f" ({values[gpu] / values[names[0]]:.2f}×)"
    return f"{values[gpu]:,.0f} {unit}".strip() + ratio
