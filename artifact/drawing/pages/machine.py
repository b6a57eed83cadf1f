"""The page on the machine: its description, its ceilings and the roofline under them, the microbenchmarks' code."""

from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt

from artifact import registry
from artifact.book.facts import Fact, flat
from artifact.book.study import given
from artifact.drawing import compiled, plot, provenance, sketch, style
from artifact.measure import ceilings as ceilings_, records, run
from kernels import ceilings

#: Format and count of bytes -> least and largest useful FLOP per byte.
Intensities = Mapping[str, tuple[float, float]]
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


class Page:
    """What the page draws from: `machine` is a record's machine.json, `measured` the record of the ceilings.

    Both are empty where those of a GPU were not measured; then there are no roofs of a roofline, and no ceilings of
    tensor cores.
    """

    def __init__(
        self,
        origin: provenance.Origin,
        banner: str,
        machine: Mapping[str, Any] | None = None,
        measured: pd.DataFrame | None = None,
    ) -> None:
        self.origin = origin
        self.banner = banner
        self.machine = machine or {}
        self.measured = measured
        self.roofs = None if measured is None else roofs(measured, self.machine)
        self.tensor = None if measured is None else ceilings_.tensor_cores(measured, self.machine)


def start(mode: str, gpu: str, preset: str, seed: int, folder: str) -> Page:
    """Measure the ceilings, or read them, or find that there are none."""
    origin = provenance.origin(mode, gpu, folder)
    if not (origin.fresh or origin.has("ceilings")):
        return Page(origin, origin.banner(alone=True))
    here = run.start("ceilings", mode, gpu, preset, seed, folder)
    return Page(origin, provenance.banner(here), here.machine, ceilings_.measure(here))


def facts(page: Page, here: Intensities) -> Iterator[Fact]:
    """Yield what the page's text names. here: what multiplications lie in the roofline."""
    told: dict[str, Any] = {"machine": page.machine, "counted": WORK}
    if page.roofs is not None:
        dots = page.roofs.set_index("variant")["balance"]
        low, high = here.get("CSR, requested bytes", (None, None))
        told |= {
            "balance": {**dots, "least": dots.min()},
            "gather": {"low": low, "high": high},
            "ends": page.roofs.set_index("ceiling")["balance"].dropna(),
        }
    if page.measured is not None and page.tensor is not None and len(page.tensor):
        rates = page.tensor.set_index("variant")
        mhz = page.measured.set_index("variant")["sm_mhz"].reindex(rates.index).agg(["min", "max"], skipna=False)
        inside = rates.dropna(subset=["sm_mhz", "least_mhz"])[["least_mhz", "sm_mhz"]].set_axis(["low", "high"], axis=1)
        told |= {"tflops": rates["measured"], "mhz": mhz.set_axis(["low", "high"]), "inside": inside}
    yield from flat(told)


def rate(amount: float, unit: str) -> str:
    """Write TFLOP/s or GB/s; NaN is not stated."""
    if pd.isna(amount):
        return "not stated"
    return f"{amount:.1f} TFLOP/s" if unit == "TFLOP/s" else f"{amount / 1e3:.2f} TB/s"


@given
def roofs_table(df: pd.DataFrame) -> pd.DataFrame:
    """Return the measured ceilings beside what is published. df: `Page.roofs`."""
    return df.assign(**{c: list(map(rate, df[c], df["unit"])) for c in ("measured", "promised")})


def ideas() -> pd.DataFrame:
    """Return the microbenchmarks, and the idea of each."""
    return pd.DataFrame(
        [(f"`{k.name}`", f"`{k.entries[0]}`", k.idea) for k in ceilings.VARIANTS.values()],
        columns=["name", "entry", "idea"],
    )


def made(report: pd.DataFrame) -> pd.DataFrame:
    """Return what the compiler makes of the microbenchmarks.

    With how often the instruction is there that each rests on. report: the compile report of the system "ceilings".
    """
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


# ---------------------------------------------------------------- the roofline

#: FP32 FMA units of an SM by compute capability; GPUs that are not listed have 128.
FP32_LANES = {"8.0": 64, "7.0": 64, "7.5": 64}
#: Bytes that the 32 banks of an SM's shared memory deliver in a clock.
SHARED_BYTES_PER_CLOCK = 128
#: Transfers per clock that NVML reports for the memory, HBM and GDDR alike.
TRANSFERS_PER_CLOCK = 2
#: Microbenchmark of a ceiling → how it is called, its colour, and what it bounds.
ROOFS = {
    "copy": (
        "DRAM copy",
        style.BASELINE,
        "operands larger than the L2: what must come from memory, or go there, once",
    ),
    "l2_read": ("L2 read", style.RUNGS[1], "rows of B that several rows of A ask for, after the first fetch"),
    "shared_read": ("shared-memory read", style.CLAIM, "tiles of B that a block has staged for itself"),
    "fma": ("FP32 FMA", style.BOUND, "the arithmetic, once the data is in registers"),
}


def peaks(machine: Mapping[str, Any], sm_mhz: pd.Series) -> pd.Series:
    """Return what arithmetic on the machine's description promises of each roof, GB/s, and TFLOP/s of "fma".

    NaN where the machine does not say enough (the L2's width is not published).

    sm_mhz: SM clock while each microbenchmark ran, else the highest.
    """
    sms, bits, memory, most = (
        machine.get(key) or np.nan for key in ("sm_count", "memory_bus_bits", "memory_mhz_max", "sm_mhz_max")
    )
    clock = sm_mhz.replace(0, np.nan).fillna(most)
    return pd.Series(
        {
            "copy": bits / 8 * memory * TRANSFERS_PER_CLOCK / 1e3,
            "shared_read": sms * SHARED_BYTES_PER_CLOCK * clock["shared_read"] / 1e3,
            "fma": sms * FP32_LANES.get(str(machine.get("compute_capability")), 128) * 2 * clock["fma"] / 1e6,
        }
    ).reindex(list(ROOFS))


def roofs(df: pd.DataFrame, machine: Mapping[str, Any]) -> pd.DataFrame:
    """Return the measured ceilings beside what the machine's description promises.

    df: the record of the system "ceilings". Columns: ceiling, variant, measured, unit, promised, share, balance (FLOP per
    byte above which FMA is the lower roof), spread (quartiles over median), bounds.
    """
    have = df.set_index("variant").reindex(list(ROOFS))
    fma, promised = have.index == "fma", peaks(machine, have["sm_mhz"])
    measured = have["gbps"].where(~fma, have["tflops"])
    return pd.DataFrame(
        {
            "ceiling": [name for name, _, _ in ROOFS.values()],
            "variant": have.index,
            "measured": measured,
            "unit": np.where(fma, "TFLOP/s", "GB/s"),
            "promised": promised,
            "share": measured / promised,
            "balance": (measured["fma"] * 1e3 / measured).where(~fma),
            "spread": (have["q75_us"] - have["q25_us"]) / have["median_us"],
            "bounds": [bounds for _, _, bounds in ROOFS.values()],
        }
    ).reset_index(drop=True)


def roofline(ceilings: pd.DataFrame, intensities: Intensities):
    """Draw the measured roofs, and where the multiplications of the records lie under them; return figure and data.

    ceilings: from `roofs`. intensities: format and count of bytes → least and largest useful FLOP per byte, drawn as
    bars along the bottom.
    """
    memories, fma = ceilings[ceilings["variant"] != "fma"], ceilings.set_index("variant")["measured"]["fma"]
    slopes = memories["measured"] / 1e3
    marks = [*memories["balance"], *(end for ends in intensities.values() for end in ends)]
    left, right, start = min(*marks, 0.4) / 2.5, max(marks) * 6, memories["balance"].min()
    low = left * slopes.min()
    bottom = low / 6
    fig, ax = plt.subplots(figsize=(style.WIDTH, 4.4))
    ax.set(
        **{"xscale": "log", "yscale": "log", "xlim": (left, right), "ylim": (bottom, fma * 2.2)},
        **{"xlabel": "useful FLOP per byte of that memory", "ylabel": "TFLOP/s at most"},
    )
    plot.log(ax.xaxis)
    plot.log(ax.yaxis)
    names, (least, most) = list(intensities), np.array([*intensities.values()], float).reshape(-1, 2).T
    y = bottom * (low / bottom) ** (0.2 + 0.75 * (np.arange(len(names)) + 0.5) / max(1, len(names)))
    bar = {"color": style.PUBLISHED, "linewidth": 5, "alpha": 0.55, "solid_capstyle": "butt"}
    ends, colours = memories["balance"].to_numpy(), [ROOFS[name][1] for name in memories["variant"]]
    down = partial(sketch.segment, linestyle=(0, (1, 3)))
    sketch.draw(
        ax,
        (sketch.segment, start, fma, right, fma, {"color": style.BOUND, "linewidth": 2}),
        (sketch.segment, least, y, most, y, bar),
        (sketch.note, most, y, names, 6, 0, {"ha": "left", "va": "center", "fontsize": 8}),
        (sketch.segment, left, left * slopes, ends, fma, {"color": colours, "linewidth": 1.8}),
        (down, ends, bottom, ends, fma, {"color": colours, "linewidth": 0.8}),
        (sketch.note, ends, fma, [f"{end:.1f}" for end in ends], 0, 7, {"ha": "center"}),
        (sketch.note, right, fma, f"FP32 FMA {fma:.1f} TFLOP/s", -2, 5, {"ha": "right"}),
    )
    for end, colour in zip(ends, colours, strict=True):
        ax.plot(end, fma, "o", color=colour, markersize=6)
    fig.canvas.draw()  # the layout must be settled before a label can be turned along a slope
    places = [
        np.column_stack(at) for at in ((np.full(len(ends), left), left * slopes), (ends, np.full(len(ends), fma)))
    ]
    run, rise = np.diff([ax.transData.transform(place) for place in places], axis=0)[0].T
    at, angle = left**0.62 * ends**0.38, np.arctan2(rise, run)
    turned = {"rotation": np.degrees(angle), "rotation_mode": "anchor", "ha": "center"}
    said = [f"{name} {slope:.2f} TB/s" for name, slope in zip(memories["ceiling"], slopes, strict=True)]
    sketch.draw(ax, (sketch.note, at, at * slopes, said, -5 * np.sin(angle), 5 * np.cos(angle), turned))
    return fig, pd.DataFrame(
        [("FP32 FMA", start, fma), *((m.ceiling, m.balance, fma) for m in memories.itertuples())]
        + [(name, end, np.nan) for name, ends in intensities.items() for end in ends],
        columns=["what", "flop_per_byte", "tflops"],
    )


def intensities(folder: Path) -> dict[str, tuple[float, float]]:
    """Return the least and the largest useful FLOP per byte of all generated points under a GPU's folder.

    By format and by both counts of bytes: {"CSR, requested bytes": (least, most), …}.

    Of the systems that compute on CUDA cores: FMA is no roof for tensor cores.
    """
    each = [
        records.read(folder / system.room / f"{name}.csv").assign(format=system.format)
        for system in registry.find().values()
        for name in records.experiments(folder / system.room)
        if system.unit == "CUDA cores"
    ]
    df, found = pd.concat(each or [pd.DataFrame(columns=["format", "nnz", "label"])]), {}
    for format, own in df.query("nnz > 0 and label == ''").groupby("format", sort=False):
        for kind in ("requested", "least"):
            ratio = own["useful_flops"] / own[f"{kind}_bytes"]
            found[f"{format}, {kind} bytes"] = (ratio.min(), ratio.max())
    return found
