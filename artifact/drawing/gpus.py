"""The GPUs that have records: this page's first, then those beside it and those that are shipped; how they differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pandas as pd

from artifact import paths, registry
from artifact.drawing.prose import captioned, folders, inline_code, name
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
#: What a record says of a clock that nothing held back.
FREE = ("", "none")


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


@captioned(
    f"What tells the GPUs apart. Under load: medians over the squares of at least {LARGE} that all of them measured."
)
def machines(found: Mapping[str, Path]) -> pd.DataFrame:
    """What tells the GPUs apart: a row for each quantity that any of them states, a column for each GPU with its value
    and, behind the first, the ratio to that of the first."""
    rows: dict[str, dict[str, tuple[float, str]]] = {
        what: {} for what in (*(told[0] for told in TOLD.values()), *ROOFS)
    }
    for gpu, folder in found.items():
        machine = records.read_machine(folder / records.rooms(folder)[0])
        for key, (what, unit, one) in TOLD.items():
            if isinstance(machine.get(key), int | float):
                rows[what][gpu] = machine[key] / one, unit
        known = _ceilings(folder)
        for what, (loops, column, unit) in ROOFS.items():
            there = [loop for loop in loops if loop in known]
            if there:
                fastest = max(there, key=lambda loop: known[loop][column])
                by = f", `{fastest}`" if len(loops) > 1 else ""
                rows[what][gpu] = known[fastest][column], f"{unit}{by}"
    rows |= loads(found)
    names = list(found)
    return pd.DataFrame(
        {"": what, **{gpu: _cell(values, gpu, names) for gpu in names}} for what, values in rows.items() if values
    )


def loads(found: Mapping[str, Path]) -> dict[str, dict[str, tuple[float, str]]]:
    """What was sampled while large products ran, on each unit of arithmetic: what it is called -> GPU -> value, unit.
    Of the rows that all of these GPUs have, so that all did the same; none where they share none."""
    rows: dict[str, dict[str, tuple[float, str]]] = {}
    for unit in registry.UNITS:
        of = [room.room for room in registry.find().values() if room.unit == unit]
        each = {gpu: _large(folder, of) for gpu, folder in found.items()}
        each = {gpu: df for gpu, df in each.items() if len(df)}
        if not each:
            continue
        first, *others = (df.index for df in each.values())
        for index in others:
            first = first.intersection(index)
        for gpu, df in each.items() if len(first) else ():
            df = df.loc[first]
            for column, (called, of_unit) in LOADS.items():
                rows.setdefault(f"{called} under load, {unit}", {})[gpu] = (
                    df[column].median(),
                    of_unit,
                )
            held = 100 * (~df["throttle"].isin(FREE)).mean()
            rows.setdefault(f"clock held back, {unit}", {})[gpu] = held, f"% of {len(df)} rows"
    return rows


def _large(folder: Path, of: Sequence[str]) -> pd.DataFrame:
    """Rows of these rooms that are of large squares and whose power was sampled, by what they are of."""
    key = ["room", "experiment", *records.KEY]
    found = [folder / room / f"{e}.csv" for room in of for e in records.experiments(folder / room)]
    if not found:
        return pd.DataFrame()
    df = pd.concat([records.read(path) for path in found], ignore_index=True)
    square = (df["m"] == df["n"]) & (df["n"] == df["k"]) & (df["m"] >= LARGE)
    return df[square & df["power_w"].notna()].drop_duplicates(key).set_index(key)


def _ceilings(folder: Path) -> dict[str, dict[str, float]]:
    try:
        return records.ceilings(folder)
    except FileNotFoundError:
        return {}


def _cell(values: Mapping[str, tuple[float, str]], gpu: str, names: Sequence[str]) -> str:
    if gpu not in values:
        return "not recorded"
    (value, unit), ratio = values[gpu], ""
    if gpu != names[0] and values.get(names[0], (0,))[0]:
        ratio = f" ({value / values[names[0]][0]:.2f}×)"
    return inline_code(f"{value:,.0f} {unit}".strip() + ratio)
