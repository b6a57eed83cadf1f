"""The page on the machine: its description, its ceilings, and the machine code of the microbenchmarks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from artifact.book.facts import Fact, flat
from artifact.drawing import compiled, prose
from artifact.drawing import roofs as roofs_
from artifact.measure import ceilings as ceilings_
from artifact.measure import run as harness
from kernels import ceilings

#: Microbenchmark -> the instruction that its rate rests on.
WORK = {
    "fma": "FFMA",
    "copy": "LDG.128",
    "l2_read": "LDG.128",
    "shared_read": "LDS.128",
    "mma": "HMMA",
    "mma_sp": "HMMA.SP",
    "wgmma": "HGMMA",
    "wgmma_sp": "HGMMA.SP",
    "wgmma_sp_ra": "HGMMA.SP",
}


@dataclass(frozen=True)
class Page:
    """What the page draws from: `machine` is a record's machine.json, `measured` the record of the ceilings; both are
    empty where those of a GPU were not measured."""

    origin: prose.Origin
    banner: str
    machine: Mapping[str, Any] = field(default_factory=dict)
    measured: pd.DataFrame | None = None

    @property
    def roofs(self) -> pd.DataFrame | None:
        """The roofs of the roofline; None without ceilings."""
        return None if self.measured is None else roofs_.roofs(self.measured, self.machine)

    @property
    def tensor(self) -> pd.DataFrame | None:
        """Ceilings of tensor cores; None without any."""
        df = pd.DataFrame() if self.measured is None else ceilings_.tensor_cores(self.measured, self.machine)
        return None if df.empty else df


def start(mode: str, gpu: str, preset: str, seed: int, records: str) -> Page:
    """Measure the ceilings, or read them, or find that there are none."""
    origin = prose.origin(mode, gpu, records)
    if not (origin.fresh or origin.has("ceilings")):
        return Page(origin, origin.banner(alone=True))
    run = harness.start("ceilings", mode, gpu, preset, seed, records)
    return Page(origin, run.banner(), run.machine, ceilings_.measure(run))


def facts(page: Page, here: Mapping[str, Sequence[float]]) -> Iterator[Fact]:
    """Yield what the page's text names. here: what multiplications lie in the roofline, by their kind."""
    yield from flat({"machine": page.machine, "counted": WORK})
    if page.roofs is not None and len(page.roofs):
        dots = page.roofs.set_index("variant")["balance"]
        low, high = here.get("CSR, requested bytes", (None, None))
        ends = page.roofs[page.roofs["variant"] != "fma"].set_index("ceiling")["balance"]
        yield from flat({"balance": {**dots, "least": dots.min()}, "gather": {"low": low, "high": high}, "ends": ends})
    if page.tensor is not None and page.measured is not None:
        rates = page.tensor.set_index("variant")
        clocks = page.measured.set_index("variant")["sm_mhz"].reindex(rates.index)
        known = rates.dropna(subset=["sm_mhz", "least_mhz"])
        inside = {name: {"low": row["least_mhz"], "high": row["sm_mhz"]} for name, row in known.iterrows()}
        mhz = {"low": clocks.min(skipna=False), "high": clocks.max(skipna=False)}
        yield from flat({"tflops": rates["measured"], "mhz": mhz, "inside": inside})


def rate(amount: float, unit: str) -> str:
    """Write TFLOP/s or GB/s; NaN is not stated."""
    if pd.isna(amount):
        return "not stated"
    return f"{amount:.1f} TFLOP/s" if unit == "TFLOP/s" else f"{amount / 1e3:.2f} TB/s"


def roofs(page: Page) -> pd.DataFrame | None:
    """Return the measured ceilings beside what is published; None without ceilings."""
    df = page.roofs
    if df is None:
        return None
    written = {c: [rate(*pair) for pair in zip(df[c], df["unit"], strict=True)] for c in ("measured", "promised")}
    return df.assign(**written)


def ideas() -> pd.DataFrame:
    """Return the microbenchmarks, and the idea of each."""
    rows = [(f"`{k.name}`", f"`{k.entries[0]}`", k.idea) for k in ceilings.VARIANTS.values()]
    return pd.DataFrame(rows, columns=["name", "entry", "idea"])


def made(report: pd.DataFrame) -> pd.DataFrame:
    """Return what the compiler makes of the microbenchmarks, with how often the instruction is there that each rests on.
    report: the compile report of the room "ceilings"."""
    work = [f"{row.get(WORK[row['variant']], 0)} {WORK[row['variant']]}" for row in report.to_dict("records")]
    return report.assign(work=work, spills=report["spills"].map({True: "yes", False: "no"}))


def spilling(report: pd.DataFrame) -> list[Fact]:
    """Return which of the microbenchmarks spill."""
    return [("spilling", ", ".join(f"`{name}`" for name in report[report["spills"]]["variant"].unique()))]


def heart(name: str, opcode: str, count: int) -> str:
    """Return the first instructions of a microbenchmark's loop on Hopper, from its first `opcode` on."""
    ops = compiled.instructions(ceilings.VARIANTS[name])
    first = next(i for i, op in enumerate(ops) if op.startswith(opcode))
    return "\n".join(ops[first : first + count])
