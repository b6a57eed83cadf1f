"""The page on the machine: its description, its ceilings, and the machine code of the microbenchmarks.

A machine is a record's machine.json, None where the ceilings of a GPU were not measured; so is `measured`,
their record.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from artifact.book.facts import Fact, each, under
from artifact.drawing import compiled, prose
from artifact.drawing import roofs as roofs_
from artifact.drawing.prose import captioned
from artifact.measure import ceilings as ceilings_
from artifact.measure import run as harness
from kernels import ceilings

Machine = Mapping[str, Any]
NOT_MEASURED = "The ceilings of this GPU were not measured, so there is nothing to draw here."
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
    """What the page draws from."""

    origin: prose.Origin
    banner: str
    machine: Machine | None = None
    measured: pd.DataFrame | None = None

    @property
    def roofs(self) -> pd.DataFrame | None:
        return None if self.measured is None else roofs_.roofs(self.measured, self.machine)

    @property
    def tensor(self) -> pd.DataFrame | None:
        """Ceilings of tensor cores; None without any."""
        if self.measured is None:
            return None
        df = ceilings_.tensor_cores(self.measured, self.machine)
        return None if df.empty else df


def start(mode: str, gpu: str, preset: str, seed: int, records: str) -> Page:
    """Measure the ceilings, or read them, or find that there are none."""
    origin = prose.origin(mode, gpu, records)
    if not (origin.fresh or origin.has("ceilings")):
        return Page(origin, origin.banner(alone=True))
    run = harness.start("ceilings", mode, gpu, preset, seed, records)
    return Page(origin, run.banner(), run.machine, ceilings_.measure(run))


# ---------------------------------------------------------------- what it is


def facts(machine: Machine) -> dict[str, object]:
    """The description, without what is not known."""
    m = machine.get
    rows = {
        "GPU": machine["gpu"],
        "compute capability": m("compute_capability"),
        "streaming multiprocessors": m("sm_count"),
        "memory": f"{m('memory_bytes', 0) / 2**30:.1f} GiB, {m('memory_bus_bits')} bits wide",
        "error correction (ECC)": {True: "on", False: "off"}.get(m("ecc")),
        "L2 cache": _size(m("l2_bytes"), 2**20, "MiB"),
        "shared memory per SM": _size(m("shared_bytes_per_sm"), 2**10, "KiB"),
        "registers per SM": m("registers_per_sm"),
        "highest SM clock": f"{m('sm_mhz_max')} MHz" if m("sm_mhz_max") else None,
        "memory clock": f"{m('memory_mhz_max')} MHz" if m("memory_mhz_max") else None,
        "power limit": f"{m('power_limit_w'):g} W" if m("power_limit_w") else None,
        "driver": machine["driver"],
        "CUDA (of the driver)": machine["cuda"],
        "cuSPARSE": m("cusparse"),
        "Python": machine["python"],
        "operating system": m("os"),
        "measured": str(machine["date"]).replace("T", ", ").replace("+00:00", " UTC"),
        "commit": f"<code>{machine['commit']}</code>",
        "packages": ", ".join(f"{name} {version}" for name, version in machine["packages"].items()),
    }
    return {name: value for name, value in rows.items() if value is not None}


def _size(count: object, unit: int, name: str) -> str:
    return f"{count / unit:g} {name}" if isinstance(count, int | float) else "unknown"


# ---------------------------------------------------------------- what it can do


def rate(amount: float, unit: str) -> str:
    """amount: TFLOP/s or GB/s; NaN is not stated."""
    if pd.isna(amount):
        return "not stated"
    return f"{amount:.1f} TFLOP/s" if unit == "TFLOP/s" else f"{amount / 1e3:.2f} TB/s"


def _share(value: float, form: str = "{:.0%}") -> str:
    return "" if pd.isna(value) else form.format(value)


@captioned("Measured ceilings, beside what is published.")
def ceilings_table(roofs: pd.DataFrame) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "ceiling": row.ceiling,
            "measured": rate(row.measured, row.unit),
            "promised": rate(row.promised, row.unit),
            "share": _share(row.share),
            "it bounds": row.bounds,
        }
        for row in roofs.itertuples(index=False)
    )


def below_roofline(roofs: pd.DataFrame, here: Mapping[str, Sequence[float]]) -> dict[str, str]:
    """Alternative text and caption of the figure; here: what multiplications lie in it."""
    ends = ", ".join(f"{r.balance:.1f} ({r.ceiling})" for r in roofs.itertuples() if r.variant != "fma")
    bars = " The bars: where this book's multiplications lie, by both counts of bytes." if here else ""
    return {
        "alt": "Roofline of the machine: slopes for DRAM, L2 and shared memory that end at the FMA roof at "
        f"{ends} FLOP per byte.",
        "caption": "The measured roofs. Left of a dot, that memory is the limit for whoever must fetch all bytes from it; "
        f"right of it, arithmetic is. The numbers are FLOP per byte.{bars}",
    }


def known(page: Page, here: Mapping[str, Sequence[float]]) -> Iterator[Fact]:
    """Yield what the page's text names. here: what multiplications lie in the roofline, by their kind."""
    if page.roofs is not None and len(page.roofs):
        dots = page.roofs.set_index("variant")["balance"]
        yield from each("balance", dots.dropna())
        yield "balance.least", dots.min()
        if "CSR, requested bytes" in here:
            low, high = here["CSR, requested bytes"]
            yield from under("gather", low=low, high=high)
    if page.tensor is not None:
        rates = page.tensor.set_index("variant")["measured"]
        yield from each("tflops", rates)
        clocks = page.measured.set_index("variant")["sm_mhz"].reindex(rates.index)
        if clocks.notna().all():
            yield from under("mhz", low=clocks.min(), high=clocks.max())
        for row in page.tensor.dropna(subset=["sm_mhz", "least_mhz"]).itertuples():
            yield from under(f"inside.{row.variant}", low=row.least_mhz, high=row.sm_mhz)


@captioned("Ceilings of the tensor cores.")
def tensor_table(tensor: pd.DataFrame) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "microbenchmark": f"<code>{row.variant}</code>",
            "what it does": row.idea,
            "TFLOP/s": f"{row.measured:.1f}",
            "promised": f"{row.promised:.1f}",
            "share": _share(row.share),
            "over its dense one": _share(row.over_dense, "{:.2f}×"),
            "of the best dense": _share(row.of_best),
        }
        for row in tensor.itertuples(index=False)
    )


# ---------------------------------------------------------------- what the compiler made of it


@captioned("The microbenchmarks, and the idea of each.")
def ideas() -> pd.DataFrame:
    return pd.DataFrame(
        {
            "microbenchmark": f"<code>{k.name}</code>",
            "entry": f"<code>{k.entries[0].replace('<', '&lt;')}</code>",
            "what it does": k.idea,
        }
        for k in ceilings.VARIANTS.values()
    )


@captioned("What the compiler makes of the microbenchmarks.")
def compiled_table(report: pd.DataFrame) -> pd.DataFrame:
    """report: the compile report of the room "ceilings"."""
    columns = ["variant", "target", "registers", "shared_bytes", "spills", "instructions"]
    shown = report[columns].rename(columns={"shared_bytes": "shared (B)"})
    shown["spills"] = shown["spills"].map({True: "yes", False: "no"})
    shown["of these"] = [
        f"{row.get(WORK[row['variant']], 0)} {WORK[row['variant']]}" for row in report.to_dict("records")
    ]
    return shown


def compiled_facts(report: pd.DataFrame) -> Iterator[Fact]:
    """Yield what the last column of `compiled_table` counts, and what spills."""
    yield from each("counted", WORK)
    yield "spilling", ", ".join(f"`{name}`" for name in report[report["spills"]]["variant"].unique())


def heart(name: str, opcode: str, count: int) -> str:
    """The first instructions of a microbenchmark's loop on Hopper, from its first `opcode` on."""
    ops = compiled.instructions(ceilings.VARIANTS[name])
    first = next(i for i, op in enumerate(ops) if op.startswith(opcode))
    return "\n".join(ops[first : first + count])
