"""What the pages without a room of their own show: the map of the five systems, a timeline of launches,
the machine's roofs, the state of the records, and the README's figure.

    python -m artifact.maps readme      # draws book/_static/readme.svg from the shipped records
"""

from __future__ import annotations

import argparse
import ast
import functools
import html
import importlib
import re
import sys
import textwrap
import types
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.patches import FancyBboxPatch, Rectangle

from artifact import bench, claims, device, figures, paths, records, run

# ---------------------------------------------------------------- the five systems

MEASURED, BUILT, NOT_BUILT = "measured", "built, not measured", "not built yet"


@dataclass(frozen=True)
class System:
    """One source, as its own text describes it. `cite` is its key in book/references.bib."""

    room: str
    name: str
    cite: str
    format: str  #: how the sparse operand is stored
    precision: str
    unit: str  #: what does the arithmetic
    written_for: str  #: GPUs that the source measured on
    idea: str
    claims: str  #: what the abstract puts on trial
    pattern: int  #: column of the map: index into PATTERNS
    span: int = 1  #: columns of the map that it covers


#: In the order of the map; numbers are the sources' own.
SYSTEMS = (
    System(
        "casper_sparse",
        "casperSPARSE",
        "casper_sparse",
        "CSR",
        "FP32",
        "CUDA cores",
        "RTX 3050 Ti",
        "one warp per row, float4 loads of B",
        "consistently faster than cuSPARSE (abstract); consistently slower (section V)",
        0,
    ),
    System(
        "async_sparse",
        "AsyncSparse",
        "async_sparse",
        "WCSR and BCSR",
        "BF16",
        "tensor cores",
        "H100",
        "TMA feeds WGMMA through a ring of buffers; warps specialise",
        "1.47× over AccSpMM, 6.24× over cuSPARSE, 2.66× in LLM prefill",
        0,
        2,
    ),
    System(
        "nm_spmm",
        "NM-SpMM",
        "nm_spmm",
        "N:M vectors",
        "FP32",
        "CUDA cores",
        "A100, RTX 3090, RTX 4090",
        "blocking by a roofline model, packing when very sparse",
        "2.1× over nmSPARSE, 1.4 to 6.3× over cuBLAS",
        2,
    ),
    System(
        "nm_cuda_core",
        "N:M on CUDA cores",
        "nm_cuda_core",
        "2:4",
        "FP32",
        "CUDA cores",
        "RTX 4070",
        "register prefetch, or cp.async double buffers and split-K",
        "10² to 10⁴× over a CPU; over cuBLAS until large sizes",
        3,
    ),
    System(
        "tensor_core_24",
        "2:4 tensor cores",
        "tensor_core_24",
        "2:4 + metadata",
        "BF16",
        "tensor cores",
        "RTX 4070",
        "mma.sp with metadata swizzled beforehand",
        "94 to 98% of the vendor's sparse library",
        3,
    ),
)
PATTERNS = ("non-zeros anywhere", "blocks", "N of M vectors", "2 of 4 elements")
UNITS = ("CUDA cores", "tensor cores")


def state(room: str, folder: Path | None) -> str:
    """How far a room is, from what is there: its launch.py, and records under a GPU's `folder`."""
    if not (paths.ROOT / "kernels" / room / "launch.py").is_file():
        return NOT_BUILT
    return MEASURED if folder and room in records.rooms(folder) else BUILT


def systems(folder: Path | None) -> pd.DataFrame:
    """One row per system: the fields of `System`, and its state."""
    return pd.DataFrame([vars(s) | {"state": state(s.room, folder)} for s in SYSTEMS])


def systems_map(folder: Path | None):
    """The five systems by what kind of sparsity they take and which unit computes. (fig, data)"""
    data = systems(folder)
    fig, ax = plt.subplots(figsize=(figures.WIDTH, 5.15), layout="none")
    fig.subplots_adjust(0, 0, 1, 1)
    left, top, cell, card = 0.52, 0.92, 0.068, (0.94, 0.78)
    for column, (name, grid) in enumerate(zip(PATTERNS, _patterns(), strict=True)):
        x, y = left + column + (1 - 8 * cell) / 2, 0.26
        for row in range(8):
            for col in range(8):
                on = bool(grid[row, col])
                box = Rectangle(
                    (x + col * cell, y + row * cell),
                    cell,
                    cell,
                    facecolor=figures.BOUND if on else "none",
                    edgecolor=figures.INK,
                    linewidth=0.35,
                    alpha=0.85 if on else 0.3,
                )
                ax.add_patch(box)
        _text(ax, left + column + 0.5, 0.13, name, weight="bold")
    for row, unit in enumerate(UNITS):
        middle = top + 0.06 + row * (card[1] + 0.1) + card[1] / 2
        _text(ax, 0.28, middle, unit.replace(" ", "\n"), weight="bold", linespacing=1.5)
    colours = (
        figures.PUBLISHED,
        figures.CLAIM,
        figures.BEST,
        figures.BASELINE,
        figures.RUNGS[1],
    )
    for system, colour in zip(data.itertuples(), colours, strict=True):
        row = UNITS.index(system.unit)
        x = left + system.pattern + (1 - card[0]) / 2
        y = top + 0.06 + row * (card[1] + 0.1)
        there = system.state != NOT_BUILT
        width = system.span - 1 + card[0]
        shape = {"boxstyle": "round,pad=0,rounding_size=0.04", "linewidth": 1.5}
        if there:
            tint = FancyBboxPatch(
                (x, y), width, card[1], facecolor=colour, edgecolor="none", alpha=0.2, **shape
            )
            ax.add_patch(tint)
        frame = FancyBboxPatch(
            (x, y),
            width,
            card[1],
            facecolor="none",
            edgecolor=colour,
            linestyle="-" if there else (0, (4, 3)),
            **shape,
        )
        ax.add_patch(frame)
        lines = [
            f"{system.format}, {system.precision}",
            *textwrap.wrap(system.idea, 25 if system.span == 1 else 60),
            *textwrap.wrap("on " + system.written_for, 24 if system.span == 1 else 60),
        ]
        _text(ax, x + 0.05, y + 0.11, system.name, ha="left", weight="bold", fontsize=9.5)
        for number, line in enumerate(lines):
            _text(ax, x + 0.05, y + 0.22 + number * 0.083, line, ha="left", fontsize=7.8)
        _text(
            ax,
            x + width - 0.05,
            y + card[1] - 0.07,
            system.state,
            ha="right",
            fontsize=7.8,
            style="normal" if there else "italic",
            weight="bold" if there else "normal",
        )
    bottom = top + 0.06 + 2 * (card[1] + 0.1)
    ax.set(xlim=(0, left + 4 + 0.02), ylim=(bottom, 0))
    ax.axis("off")
    return fig, data.drop(columns=["pattern", "span"])


def _patterns() -> list[np.ndarray]:
    """8 x 8 examples of PATTERNS, of similar density; drawn once with a fixed seed."""
    rng = np.random.default_rng(3)
    anywhere = np.zeros((8, 8), bool)
    for row, count in enumerate((1, 4, 0, 2, 1, 6, 2, 1)):
        anywhere[row, rng.choice(8, count, replace=False)] = True
    blocks = np.kron(
        np.array([[1, 0, 0, 1], [0, 1, 0, 0], [1, 0, 0, 0], [0, 0, 1, 1]]), np.ones((2, 2))
    )
    vectors = np.zeros((8, 8), bool)
    for window in (0, 4):  # two of every four rows, per group of four columns
        for group in (0, 4):
            for row in rng.choice(4, 2, replace=False):
                vectors[window + row, group : group + 4] = True
    elements = np.zeros((8, 8), bool)
    for row in range(8):
        for group in (0, 4):
            elements[row, group + rng.choice(4, 2, replace=False)] = True
    return [anywhere, blocks.astype(bool), vectors, elements]


# ---------------------------------------------------------------- where a page's numbers come from


@dataclass(frozen=True)
class Origin:
    """The records that a page without a room of its own draws from. `folder` is None without any."""

    gpu: str  #: slug
    folder: Path | None
    fresh: bool  #: measured on this machine's GPU, as opposed to read from what is shipped

    def has(self, room: str) -> bool:
        return self.folder is not None and room in records.rooms(self.folder)

    @property
    def missing(self) -> str:
        """One sentence for a page that finds nothing to show."""
        where = "this GPU" if self.fresh else f"the GPU `{self.gpu}`"
        return (
            f"There are no records of {where} yet: `make measure` on a machine with one makes them."
        )

    def machine(self) -> dict[str, Any]:
        """machine.json of the room that was measured last."""
        found = [records.read_machine(self.folder / room) for room in records.rooms(self.folder)]
        return max(found, key=lambda machine: str(machine["date"]))

    def banner(self) -> str:
        """An admonition as `Run.banner` gives it, for a page over all rooms."""
        if self.folder is None or not records.rooms(self.folder):
            title, text = "Nothing measured yet.", inline_code(self.missing)
        else:
            m = self.machine()
            title = (
                f"From records of {article(m['gpu'])}, {str(m['date'])[:10]}, commit {m['commit']}."
            )
            text = (
                "They were measured on this machine."
                if self.fresh
                else "Nothing on this page was measured on the machine that made it."
            )
        return (
            '<div class="admonition note">\n'
            f'<p class="admonition-title">{html.escape(title)}</p>\n<p>{text}</p>\n</div>'
        )


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


def table(df: pd.DataFrame, prose: bool = False) -> str:
    """`df` as an HTML table in the book's style; cells may hold HTML. prose: columns of sentences."""
    return df.to_html(
        index=False, border=0, escape=False, na_rep="", classes="prose" if prose else None
    )


def facts(rows: Mapping[str, object]) -> str:
    """Two columns, name and value, as an HTML table without a head."""
    body = "".join(
        f'<tr><th scope="row">{key}</th><td>{value}</td></tr>' for key, value in rows.items()
    )
    return f'<table class="facts"><tbody>{body}</tbody></table>'


def article(name: str) -> str:
    """A name with its indefinite article: "an NVIDIA H200"."""
    return f"{'an' if name[:1] in 'AEIOUN' else 'a'} {name}"


def inline_code(text: str) -> str:
    """Text with `backticks` as HTML, everything else escaped."""
    return re.sub(r"`([^`]*)`", r"<code>\1</code>", html.escape(text, quote=False))


# ---------------------------------------------------------------- what was measured, and how long it took

#: A longer gap between two points of an experiment is taken for an interruption, not for work.
PAUSE_S = 300
#: The room "ceilings" is on the page of the machine; every other room has a page of its own.
NOTEBOOKS = {"ceilings": "machine"}


def durations(folder: Path) -> pd.DataFrame:
    """How long each experiment under a GPU's folder took, from the records themselves.

    Columns: room, experiment, repeat (the second run), figure (of the source, as
    claims.toml says), notebook, points, rows, minutes (wall clock, from the rows' times; preparing,
    checking and flushing included), kernel_s (samples x medians), gpu.
    """
    stated = claims.figures_of()
    rows = []
    for room in records.rooms(folder):
        for repeat in (False, True):
            here = folder / room / "repeat" if repeat else folder / room
            for experiment in records.experiments(here):
                df = records.read(here / f"{experiment}.csv")
                rows.append(
                    {
                        "room": room,
                        "experiment": experiment,
                        "repeat": repeat,
                        "figure": stated.get(room, {}).get(experiment, ""),
                        "notebook": NOTEBOOKS.get(room, room),
                        "points": len(df.drop_duplicates(list(records.POINT))),
                        "rows": len(df),
                        "minutes": wall_s(df) / 60,
                        "kernel_s": float((df["samples"] * df["median_us"]).sum() / 1e6),
                        "gpu": df["gpu"].iloc[0],
                    }
                )
    return pd.DataFrame(rows)


def wall_s(df: pd.DataFrame) -> float:
    """Seconds that a record took. Rows are stamped when their point is done, so the first point is
    taken to have cost as much as the mean of the others; at least the kernels' own time."""
    when = pd.to_datetime(df["when"], utc=True, format="ISO8601").drop_duplicates().sort_values()
    gaps = when.diff().dt.total_seconds().dropna()
    gaps = gaps[gaps <= PAUSE_S]
    kernels = float((df["samples"] * df["median_us"]).sum() / 1e6)
    return max(float(gaps.sum() + gaps.mean()) if len(gaps) else 0.0, kernels)


def constants(module: types.ModuleType) -> pd.DataFrame:
    """The module's constants that a `#:` comment explains: constant, value (lists: those below one
    comment share it), meaning. Numbers only."""
    lines = Path(module.__file__).read_text(encoding="utf-8").splitlines()
    rows = []
    for node in ast.parse("\n".join(lines)).body:
        targets = node.targets if isinstance(node, ast.Assign) else []
        if len(targets) != 1 or not isinstance(targets[0], ast.Name):
            continue
        comment, at = [], node.lineno - 2
        while at >= 0 and lines[at].startswith("#:"):
            comment.insert(0, lines[at][2:].strip())
            at -= 1
        # A constant right below another one shares its comment.
        if not comment and rows and rows[-1]["line"] == node.lineno - 1:
            comment = [rows[-1]["meaning"]]
        value = getattr(module, targets[0].id)
        if comment and isinstance(value, int | float):
            rows.append(
                {
                    "constant": targets[0].id,
                    "value": value,
                    "meaning": " ".join(comment),
                    "line": node.lineno,
                }
            )
    # As objects, or whole numbers would become floats beside others.
    df = pd.DataFrame(rows, columns=["constant", "value", "meaning"], dtype=object)
    # One row for constants that share a comment.
    return df.groupby("meaning", sort=False, as_index=False).agg(list)[list(df.columns)]


def contradictions(judged: pd.DataFrame, known: Sequence[claims.Claim]) -> pd.DataFrame:
    """Pairs of claims of one source that cannot both hold: one, other (ids), and which `stands`.

    judged: verdicts from `claims.judge`. stands: an id, "both", "neither" or "undecided".
    """
    verdict = judged.set_index("id")["verdict"]
    pairs = dict.fromkeys(frozenset((c.id, other)) for c in known for other in c.contradicts)
    order = [c.id for c in known]
    rows = []
    for pair in pairs:
        one, other = sorted(pair, key=order.index)
        ranks = [claims.VERDICTS.index(verdict[i]) for i in (one, other)]
        if claims.VERDICTS.index(claims.NOT_MEASURED) in ranks:
            stands = "undecided"
        elif ranks[0] == ranks[1]:
            stands = "both" if verdict[one] == claims.REPRODUCED else "neither"
        else:
            stands = one if ranks[0] < ranks[1] else other
        rows.append({"one": one, "other": other, "stands": stands})
    return pd.DataFrame(rows, columns=["one", "other", "stands"])


def size_bytes(folder: Path) -> int:
    """Bytes of the files under a folder, links not followed; 0 if there is none."""
    return sum(f.lstat().st_size for f in Path(folder).rglob("*") if not f.is_dir())


# ---------------------------------------------------------------- the protocol, drawn


def timeline(names: Sequence[str] = ("A", "B"), rounds: int = 2):
    """A schematic of the timer: what the host enqueues, what the GPU runs, when NVML is asked.

    The order of the launches is the one that `bench.schedule` gives. (fig, data); times have no unit.
    """
    order = bench.schedule(dict.fromkeys(names, rounds))
    colours = dict(zip(names, (figures.PUBLISHED, figures.BASELINE, figures.BEST), strict=False))
    length = dict(zip(names, (2.1, 1.3, 1.7), strict=False))
    flush, enqueue = 3.0, 0.42
    blocks, clock, host = [], 0.0, 0.0
    blocks.append(("GPU", "flush", clock, clock + flush))
    blocks.append(("host", "flush", host, host + enqueue))
    clock, host = clock + flush, host + enqueue
    for name in order:
        for what, time in (("flush", flush), (name, length[name])):
            blocks.append(("GPU", what, clock, clock + time))
            blocks.append(("host", what, host, host + enqueue))
            clock, host = clock + time, host + enqueue
    data = pd.DataFrame(blocks, columns=["lane", "what", "begin", "end"])

    fig, ax = plt.subplots(figsize=(figures.WIDTH, 2.7), layout="none")
    fig.subplots_adjust(0, 0, 1, 1)
    lanes = {"host": 1.15, "GPU": 2.35}
    for block in data.itertuples():
        y = lanes[block.lane]
        colour = colours.get(block.what, figures.BOUND)
        gap = 0.05
        box = (block.begin + gap, y), block.end - block.begin - 2 * gap, 0.7
        alpha = 0.16 if block.what == "flush" else 0.35
        ax.add_patch(Rectangle(*box, facecolor=colour, alpha=alpha, linewidth=0))
        ax.add_patch(Rectangle(*box, fill=False, edgecolor=colour, linewidth=1))
        if block.lane == "GPU":
            weight = "normal" if block.what == "flush" else "bold"
            _text(ax, (block.begin + block.end) / 2, y + 0.35, block.what, weight=weight)
            if block.what != "flush":
                for x in (block.begin, block.end):
                    ax.plot([x, x], [y - 0.14, y + 0.84], color=figures.INK, linewidth=1.3)
                    ax.plot(x, y - 0.14, "v", color=figures.INK, markersize=4)
                ax.annotate(
                    "",
                    (block.begin, y + 1.05),
                    (block.end, y + 1.05),
                    arrowprops={"arrowstyle": "<->", "color": colour, "linewidth": 1},
                )
                _text(
                    ax,
                    (block.begin + block.end) / 2,
                    y + 1.32,
                    f"a sample of {block.what}",
                    fontsize=8,
                )
    for x in np.linspace(host + 0.3, clock, 6):
        ax.plot(x, lanes["host"] + 0.35, "o", color=figures.CLAIM, markersize=4)
    _text(
        ax,
        (host + clock) / 2,
        0.72,
        "meanwhile NVML is asked for clock, power and throttling",
        fontsize=8,
    )
    _text(ax, host / 2, 0.72, "everything is enqueued first", fontsize=8)
    for lane, label in (("host", "host"), ("GPU", "GPU stream")):
        _text(ax, -0.3, lanes[lane] + 0.35, label, ha="right", weight="bold")
    _text(ax, flush / 2, lanes["GPU"] + 1.05, "a head start", fontsize=8)
    ax.plot(-3.2, lanes["GPU"] + 1.32, "v", color=figures.INK, markersize=4)
    _text(ax, -2.9, lanes["GPU"] + 1.32, "CUDA event", ha="left", fontsize=8)
    ax.set(xlim=(-3.4, clock + 1), ylim=(4.25, 0.45))
    ax.axis("off")
    return fig, data


# ---------------------------------------------------------------- the machine's roofs

#: FP32 FMA units of an SM; GPUs that are not listed have 128.
FP32_LANES = {(8, 0): 64, (7, 0): 64, (7, 5): 64}
#: Bytes that the 32 banks of an SM's shared memory deliver in a clock.
SHARED_BYTES_PER_CLOCK = 128
#: Transfers per clock that NVML reports for the memory, HBM and GDDR alike.
TRANSFERS_PER_CLOCK = 2


@dataclass(frozen=True)
class Roof:
    """A ceiling: the microbenchmark, how it is called, its colour, and what it bounds."""

    variant: str
    name: str
    colour: str
    bounds: str


ROOFS = (
    Roof(
        "copy",
        "DRAM copy",
        figures.BASELINE,
        "operands larger than the L2: what must come from memory, or go there, once",
    ),
    Roof(
        "l2_read",
        "L2 read",
        figures.RUNGS[1],
        "rows of B that several rows of A ask for, after the first fetch",
    ),
    Roof(
        "shared_read",
        "shared-memory read",
        figures.CLAIM,
        "tiles of B that a block has staged for itself",
    ),
    Roof(
        "fma",
        "FP32 FMA",
        figures.BOUND,
        "the arithmetic, once the data is in registers",
    ),
)


def peak(variant: str, machine: Mapping[str, Any], sm_mhz: float) -> float | None:
    """What arithmetic on the machine's description promises: GB/s, or TFLOP/s for "fma".

    sm_mhz: SM clock while the microbenchmark ran, else the highest. None where the machine does not
    say enough (the L2's width is not published).
    """
    clock = sm_mhz if sm_mhz == sm_mhz and sm_mhz else machine.get("sm_mhz_max")
    sms, bits, memory = (machine.get(k) for k in ("sm_count", "memory_bus_bits", "memory_mhz_max"))
    if variant == "copy" and bits and memory:
        return bits / 8 * memory * TRANSFERS_PER_CLOCK / 1e3
    if variant == "shared_read" and sms and clock:
        return sms * SHARED_BYTES_PER_CLOCK * clock / 1e3
    if variant == "fma" and sms and clock and machine.get("compute_capability"):
        capability = tuple(map(int, str(machine["compute_capability"]).split(".")))
        return sms * FP32_LANES.get(capability, 128) * 2 * clock / 1e6
    return None


def roofs(df: pd.DataFrame, machine: Mapping[str, Any]) -> pd.DataFrame:
    """Measured ceilings beside what the machine's description promises.

    df: the record of the room "ceilings". Columns: ceiling, variant, measured, unit, promised,
    share, balance (FLOP per byte above which FMA is the lower roof), spread (quartiles over median),
    bounds.
    """
    rows = []
    have = df.set_index("variant")
    fma = float(have["tflops"].get("fma", np.nan))
    for roof in ROOFS:
        if roof.variant not in have.index:
            continue
        row = have.loc[roof.variant]
        value = float(row["tflops"] if roof.variant == "fma" else row["gbps"])
        promised = peak(roof.variant, machine, float(row["sm_mhz"]))
        rows.append(
            {
                "ceiling": roof.name,
                "variant": roof.variant,
                "measured": value,
                "unit": "TFLOP/s" if roof.variant == "fma" else "GB/s",
                "promised": promised if promised else np.nan,
                "share": value / promised if promised else np.nan,
                "balance": np.nan if roof.variant == "fma" else fma * 1e3 / value,
                "spread": float((row["q75_us"] - row["q25_us"]) / row["median_us"]),
                "bounds": roof.bounds,
            }
        )
    return pd.DataFrame(rows)


def roofline(ceilings: pd.DataFrame, intensities: Mapping[str, tuple[float, float]] | None = None):
    """The measured roofs, and where the multiplications of the records lie under them. (fig, data)

    ceilings: from `roofs`. intensities: format and count of bytes -> least and largest useful FLOP per
    byte, drawn as bars along the bottom.
    """
    memories = ceilings[ceilings["variant"] != "fma"]
    fma = float(ceilings.set_index("variant")["measured"]["fma"])
    look = {roof.variant: roof for roof in ROOFS}
    marks = [*memories["balance"], *(v for pair in (intensities or {}).values() for v in pair)]
    left, right = min(*marks, 0.4) / 2.5, max(marks) * 3
    low = left * memories["measured"].min() / 1e3
    bottom, top = low / 6, fma * 2.2
    fig, ax = plt.subplots(figsize=(figures.WIDTH, 4.4))
    ax.set(xscale="log", yscale="log", xlim=(left, right), ylim=(bottom, top))
    start = float(memories["balance"].min())
    ax.plot([start, right], [fma, fma], color=figures.BOUND, linewidth=2)
    rows = [{"what": "FP32 FMA", "flop_per_byte": start, "tflops": fma}]
    for memory in memories.itertuples():
        slope = memory.measured / 1e3
        colour = look[memory.variant].colour
        ax.plot([left, memory.balance], [left * slope, fma], color=colour, linewidth=1.8)
        ax.plot(memory.balance, fma, "o", color=colour, markersize=6)
        ax.plot(
            [memory.balance] * 2, [bottom, fma], color=colour, linewidth=0.8, linestyle=(0, (1, 3))
        )
        rows.append({"what": memory.ceiling, "flop_per_byte": memory.balance, "tflops": fma})
    ax.set_xlabel("useful FLOP per byte of that memory")
    ax.set_ylabel("TFLOP/s at most")
    figures._log(ax.xaxis)
    figures._log(ax.yaxis)
    for number, (name, (least, most)) in enumerate((intensities or {}).items()):
        y = bottom * (low / bottom) ** (0.2 + 0.75 * (number + 0.5) / len(intensities))
        ax.plot(
            [least, most],
            [y, y],
            color=figures.PUBLISHED,
            linewidth=5,
            alpha=0.55,
            solid_capstyle="butt",
        )
        after = right / most > least / left  # where there is more room for the name
        side = {"ha": "left", "xytext": (6, 0)} if after else {"ha": "right", "xytext": (-6, 0)}
        at = most if after else least
        ax.annotate(name, (at, y), textcoords="offset points", va="center", fontsize=8, **side)
        rows += [{"what": name, "flop_per_byte": v, "tflops": np.nan} for v in (least, most)]
    fig.canvas.draw()  # the layout must be settled before a label can be turned along a slope
    ax.annotate(
        f"FP32 FMA {fma:.1f} TFLOP/s",
        (right, fma),
        xytext=(-2, 5),
        textcoords="offset points",
        ha="right",
        fontsize=8.5,
    )
    for memory in memories.itertuples():
        slope = memory.measured / 1e3
        at = left**0.62 * memory.balance**0.38
        ends = (left, left * slope), (memory.balance, fma)
        text = f"{memory.ceiling} {slope:.2f} TB/s"
        figures.along(ax, text, (at, at * slope), ends, gap=5, size=8.5)
        ax.annotate(
            f"{memory.balance:.1f}",
            (memory.balance, fma),
            xytext=(0, 7),
            textcoords="offset points",
            ha="center",
            fontsize=8.5,
        )
    return fig, pd.DataFrame(rows)


def intensities(folder: Path) -> dict[str, tuple[float, float]]:
    """Useful FLOP per byte over all generated points under a GPU's folder, by format and by both
    counts of bytes: {"CSR, requested bytes": (least, most), …}.

    Of the systems that compute on CUDA cores: FMA is no roof for tensor cores.
    """
    found = {}
    for system in SYSTEMS:
        here = records.experiments(folder / system.room)
        if system.unit != "CUDA cores" or not here:
            continue
        df = pd.concat(records.read(folder / system.room / f"{name}.csv") for name in here)
        df = df[(df["nnz"] > 0) & (df["label"] == "")]
        for column in ("requested_bytes", "least_bytes") if len(df) else ():
            ratio = df["useful_flops"] / df[column]
            name = f"{system.format}, {column.replace('_', ' ')}"
            found[name] = (float(ratio.min()), float(ratio.max()))
    return found


# ---------------------------------------------------------------- the headline


@dataclass(frozen=True)
class Contest:
    """The published kernel and our last rung against the library, over a room's sweeps."""

    room: str
    published: str
    last: str
    speedups: pd.DataFrame  #: experiment, POINT, variant, speedup over cusparse_best, size
    prepare_ms: float  #: median preprocessing of `last`

    def geomean(self, variant: str, experiment: str) -> float:
        df = self.speedups
        here = df[(df["variant"] == variant) & (df["experiment"] == experiment)]
        return records.geomean(here["speedup"])

    @property
    def experiments(self) -> list[str]:
        return list(dict.fromkeys(self.speedups["experiment"]))


@functools.cache
def _variants(room: str) -> dict[str, bool]:
    return {
        k.name: k.published for k in importlib.import_module(f"kernels.{room}").VARIANTS.values()
    }


def contest(folder: Path, room: str = "casper_sparse") -> Contest | None:
    """The contest of a room's generated sweeps; None where the records hold no two contenders."""
    found, known = [], _variants(room)
    for experiment in records.experiments(folder / room):
        df = records.read(folder / room / f"{experiment}.csv")
        df = df[df["label"] == ""]
        if not df["variant"].map(known).eq(True).any():  # sizes that the published kernel refuses
            continue
        sizes = [c for c in ("n", "m") if df[c].nunique() > 1]
        if len(df) and sizes and df["variant"].str.startswith("cusparse_").any():
            df = records.best_of(df, "cusparse_")
            df["size"] = df["m"] if sizes == ["n", "m"] else df[sizes[0]]
            found.append(df)
    if not found:
        return None
    df = pd.concat(found, ignore_index=True)
    measured = [v for v in known if (df["variant"] == v).any()]
    if len(measured) < 2:
        return None
    published, last = next((v for v in measured if known[v]), measured[0]), measured[-1]
    at = ["experiment", *records.POINT]
    rows = [
        records.speedup(df, v, claims.BEST).reset_index().assign(variant=v)
        for v in (published, last)
    ]
    speedups = pd.concat(rows).merge(df[[*at, "size"]].drop_duplicates(), on=at)
    order = sorted(
        dict.fromkeys(speedups["experiment"]),
        key=lambda e: ("wide", "square", "tall", e).index(e),
    )
    speedups["experiment"] = pd.Categorical(speedups["experiment"], order)
    speedups = speedups.sort_values(["experiment", "variant", "size"], ignore_index=True)
    prepare_ms = float(df.loc[df["variant"] == last, "prepare_ms"].median())
    return Contest(room, published, last, speedups.astype({"experiment": str}), prepare_ms)


def contest_figure(c: Contest):
    """Speedup over the library's best algorithm: one panel per sweep, geometric mean over the
    densities as a line, their range as a band. (fig, data)"""
    names = c.experiments
    fig, axes = plt.subplots(
        1, len(names), figsize=(figures.WIDTH, 3.3), sharey=True, squeeze=False
    )
    handles: dict[str, object] = {}
    for ax, experiment in zip(axes[0], names, strict=True):
        here = c.speedups[c.speedups["experiment"] == experiment]
        for variant, role in ((c.published, "as published"), (c.last, "our last rung")):
            groups = here[here["variant"] == variant].groupby("size")["speedup"]
            mean = groups.apply(records.geomean)
            colour = figures.look(variant, [c.published, c.last])["color"]
            marker = figures.look(variant, [c.published, c.last])["marker"]
            ax.fill_between(
                mean.index, groups.min(), groups.max(), color=colour, alpha=0.2, linewidth=0
            )
            (line,) = ax.plot(mean.index, mean, color=colour, marker=marker, markeredgewidth=0)
            handles[f"{variant} ({role})"] = line
        line = ax.axhline(1, color=figures.BASELINE, linewidth=1.3)
        handles["cuSPARSE, best algorithm"] = line
        ax.set_title(experiment)
        swept = "N" if here["n"].nunique() > 1 and here["m"].nunique() == 1 else "M"
        swept = "M = N = K" if (here["m"] == here["n"]).all() else swept
        ax.set_xlabel(swept)
        figures._sizes(ax, here["size"].tolist())
    figures._ratio(axes[0, 0], c.speedups["speedup"].tolist())
    axes[0, 0].set_ylabel("speedup over cuSPARSE")
    figures._legend(fig, handles, columns=3)
    return fig, c.speedups[["experiment", "variant", *records.POINT, "speedup"]]


# ---------------------------------------------------------------- the README's figure

README_FIGURE = paths.ROOT / "book" / "_static" / "readme.svg"
#: A picture in a README follows the reader's colour scheme by itself.
_SCHEME = "<style>svg{color:#24292f}@media (prefers-color-scheme:dark){svg{color:#d5dae0}}</style>"


def readme(folder: Path, target: Path = README_FIGURE) -> Path:
    """Write the README's figure, an SVG that stands alone. Raises FileNotFoundError without records."""
    c = contest(folder)
    if c is None:
        raise FileNotFoundError(
            f"{folder.name} has no records of casper_sparse with cuSPARSE beside it: make measure"
        )
    figures.style()
    fig, _ = contest_figure(c)
    machine = records.read_machine(folder / c.room)
    alt = (
        f"Speedup of {c.published} and {c.last} over cuSPARSE's best algorithm on {machine['gpu']}: "
        + ", ".join(
            f"{e} {c.geomean(c.published, e):.2f} and {c.geomean(c.last, e):.2f}"
            for e in c.experiments
        )
    )
    text = figures.svg(fig, "readme", alt)
    plt.close(fig)
    text = (
        text.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1)
        if "xmlns=" not in text
        else text
    )
    text = re.sub(r"(<svg [^>]*>)", rf"\1{_SCHEME}", text, count=1)
    return records.write_text(target, text + "\n")


def main(arguments: Iterable[str] | None = None) -> int:
    """Draw the README's figure; errors are one sentence on stderr and exit code 2."""
    parser = argparse.ArgumentParser(prog="python -m artifact.maps", description=__doc__)
    parser.add_argument("what", choices=["readme"], help="the figure of the README")
    parser.add_argument("--gpu", default="nvidia-h200", help="whose records (default: %(default)s)")
    parser.add_argument(
        "--records", type=Path, default=paths.RECORDED, help="default: the shipped ones"
    )
    parser.add_argument("--output", type=Path, default=README_FIGURE)
    options = parser.parse_args(None if arguments is None else list(arguments))
    try:
        print(readme(records.resolve(options.gpu, options.records), options.output))
    except (ValueError, FileNotFoundError) as error:
        print(f"artifact.maps: {error}", file=sys.stderr)
        return 2
    return 0


def _text(ax, x: float, y: float, text: str, **how) -> None:
    ax.text(x, y, text, **({"ha": "center", "va": "center", "fontsize": 8.5} | how))


if __name__ == "__main__":
    sys.exit(main())
