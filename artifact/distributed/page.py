"""The chapter on several GPUs: pictures of what travels, computed as the page is made; what was measured, as tables,
figures and the facts of its text; our claims.

Records lie in `recorded/<gpu>/scaling.csv` beside this file, fresh ones in `distributed/<gpu>/` of the build. Claims
here are ours: no ledger counts them among those of the sources.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.lines import Line2D
from matplotlib.ticker import NullLocator

from artifact import paths
from artifact.book.facts import Fact, under
from artifact.distributed import agreement, model, scaling
from artifact.distributed.scaling import DTENSOR, GATHERED, OURS, STREAMED, Row
from artifact.drawing import plot, style
from artifact.drawing.prose import captioned
from artifact.drawing.words import listed
from artifact.measure import records
from artifact.verdicts import compare
from kernels.distributed import exchange, generate, partition
from kernels.distributed.generate import Rmat, Stencil

RECORDED = Path(__file__).with_name("recorded")
SCALING, TRIED, BEYOND = "scaling.csv", "tried.csv", "beyond.csv"
DEALT = "dealt.csv"
CASES = {"graph": "power-law graph", "mesh": "mesh", "block": "block-sparse weight"}
#: In tables, whose width is that of the text.
BRIEF = {"graph": "graph", "mesh": "mesh", "block": "blocks"}
NAMES = {
    OURS: "ours",
    GATHERED: "all-gather of B and cuSPARSE",
    DTENSOR: "PyTorch's distributed tensors, dense",
    STREAMED: "A streamed from the host",
}
#: The same at the head of a column.
SHORT = {GATHERED: "all-gather, cuSPARSE", DTENSOR: "DTensor, dense", STREAMED: "streamed"}
COLOURS = {
    OURS: style.BEST,
    GATHERED: style.BASELINE,
    DTENSOR: style.RUNGS[0],
    STREAMED: style.RUNGS[1],
    "graph": style.PUBLISHED,
    "mesh": style.BEST,
    "block": style.BASELINE,
}
MARKERS = {"graph": "o", "mesh": "s", "block": "^"}
#: Least efficiency of strong scaling `AT` so many GPUs; most bytes that are sent, over those that the pattern requires.
BARS = {"graph": 0.70, "mesh": 0.85, "block": 0.85}
MOST_SENT = 1.1
AT, LEAST_NNZ = 4, 10**9
#: Medians of an experiment that are so close count as the same.
WITHIN = 0.01


# ---------------------------------------------------------------- records


def folder(mode: str = "auto", gpu: str = "nvidia-h200") -> Path:
    """Where a page's records are: fresh ones, unless only recorded ones are asked for or there are no others."""
    fresh = paths.BUILD / "distributed" / gpu
    return fresh if mode != "recorded" and (fresh / SCALING).is_file() else RECORDED / gpu


def load(where: Path) -> list[Row]:
    """A folder's records, none where there are none."""
    return scaling.read(where / SCALING)


def facts(rows: list[Row], where: Path) -> Iterator[Fact]:
    """Yield what the page's text names: of records and of what lies in their folder `where`."""
    machine = records.read_machine(where) if (where / records.MACHINE).is_file() else {}
    if "memory_bytes" in machine:
        yield "memory_bytes", machine["memory_bytes"]
    yield from _measured(rows, machine.get("commit", ""))
    yield from _strong(rows)
    yield from _weak(rows)
    yield from _beyond(scaling.read(where / BEYOND))
    yield from agreement_facts(agrees(where))


def _measured(rows: list[Row], commit: str) -> Iterator[Fact]:
    """Where and when; of ours the most bytes that were sent, over those that the pattern requires."""
    if rows:
        counts = sorted({row.gpus for row in rows})
        yield from under("measured", gpu=rows[0].gpu, day=max(row.when for row in rows)[:10], commit=commit)
        yield from under("measured", gpus=", ".join(map(str, counts)), most=counts[-1])
    if sent := _sent(rows):
        yield "sent_over_least", max(sent)


def _sent(rows: list[Row]) -> list[float]:
    return [r.sent_bytes / r.least_bytes for r in rows if r.contender == OURS and r.least_bytes]


def strong(rows: list[Row], contender: str = OURS) -> pd.DataFrame:
    """Sizes that were measured on one GPU and on several: efficiency is t(1) / (P · t(P))."""
    mine = [row for row in rows if row.contender == contender]
    alone = {(r.case, r.size, r.n): r for r in mine if r.gpus == 1}
    found = [
        {
            "case": r.case,
            "size": r.size,
            "n": r.n,
            "nnz": r.nnz,
            "gpus": r.gpus,
            "ms": r.median_ms,
            "efficiency": alone[r.case, r.size, r.n].median_ms / r.gpus / r.median_ms,
        }
        for r in mine
        if (r.case, r.size, r.n) in alone
    ]
    table = pd.DataFrame(found, columns=["case", "size", "n", "nnz", "gpus", "ms", "efficiency"])
    several = table.groupby(["case", "size", "n"])["gpus"].transform("max") > 1
    return table[several].sort_values(["case", "size", "gpus"], ignore_index=True)


def weak(rows: list[Row], contender: str = OURS) -> pd.DataFrame:
    """What one GPU has of non-zeros, P have P times as many: efficiency is the rate of a GPU over that of one alone.

    Of each case the series on most numbers of GPUs, of two such the one of larger matrices.
    """
    mine = [row for row in rows if row.contender == contender]
    found = []
    for case in dict.fromkeys(row.case for row in mine):
        for r in (series := _series(case, mine)):
            rate, alone = r.nnz / r.gpus / r.median_ms, series[0].nnz / series[0].median_ms
            row = {"case": case, "gpus": r.gpus, "nnz": r.nnz, "ms": r.median_ms}
            found.append({**row, "efficiency": rate / alone})
    return pd.DataFrame(found, columns=["case", "gpus", "nnz", "ms", "efficiency"])


def _series(case: str, rows: list[Row]) -> list[Row]:
    """What `weak` takes of a case, the row of one GPU first; nothing without one of several."""
    every = [_grown(first, rows) for first in rows if first.case == case and first.gpus == 1]
    series = max(every, key=lambda x: (len(x), x[0].nnz), default=[])
    return series if len(series) > 1 else []


def _grown(first: Row, rows: list[Row]) -> list[Row]:
    """The row, and those of as many non-zeros a GPU on more of them, within 5%."""
    like = [r for r in rows if (r.case, r.n) == (first.case, first.n)]
    more = [r for r in like if r.gpus > 1 and abs(r.nnz / r.gpus / first.nnz - 1) < 0.05]
    return [first, *sorted(more, key=lambda r: r.gpus)]


def drawn_scaling(rows: list[Row]) -> tuple | None:
    """(figure, data): efficiency of strong and weak scaling; None without records of several GPUs."""
    tables = {"strong": strong(rows), "weak": weak(rows)}
    if not any(len(table) for table in tables.values()):
        return None
    fig, axes = plt.subplots(1, 2, figsize=(style.WIDTH, 3.0), sharey=True, layout="constrained")
    handles = {}
    for ax, (kind, table) in zip(axes, tables.items(), strict=True):
        for case, of in table.groupby("case", sort=False):
            of = of[of["nnz"] == of["nnz"].max()] if kind == "strong" else of
            of = of.sort_values("gpus")
            (line,) = ax.plot(of["gpus"], 100 * of["efficiency"], color=COLOURS[case], marker=MARKERS[case])
            handles[CASES[case]] = line
        ax.axhline(100, color=style.BOUND, linewidth=0.8, linestyle="--")
        ax.set_xscale("log", base=2)
        counts = sorted({int(x) for x in table["gpus"]})
        ax.set_xticks(counts, counts)
        ax.minorticks_off()
        most = max(100 * t["efficiency"].max() for t in tables.values() if len(t))
        ax.set(title=f"{kind} scaling", xlabel="GPUs", ylim=(0, max(115, 1.08 * most)))
    axes[0].set_ylabel("efficiency, %")
    plot.legend(fig, handles)
    return fig, pd.concat([t.assign(scaling=kind) for kind, t in tables.items()])


@captioned("Rates, what the time went to, and bytes.")
def scaling_table(rows: list[Row]) -> pd.DataFrame | None:
    """Milliseconds of all contenders, and what of ours is what."""
    if not rows:
        return None
    found = []
    for row in sorted(rows, key=lambda r: (list(CASES).index(r.case), r.size, r.gpus, r.contender)):
        split = row.multiplication_ms == row.multiplication_ms
        needs = row.contender == OURS and row.least_bytes
        found.append(
            {
                "matrix, non-zeros": f"{BRIEF[row.case]}, {row.nnz / 1e9:.2g} · 10⁹",
                "N": row.n,
                "GPUs": row.gpus,
                "contender": SHORT.get(row.contender, NAMES[row.contender]),
                "ms": f"{row.median_ms:.1f}",
                "TFLOP/s": f"{row.tflops:.1f}",
                "communi\u00adcation, ms": f"{row.communication_ms:.1f}" if split else "",
                "waiting, ms": f"{row.waiting_ms:.1f}" if split else "",
                "multipli\u00adcation, ms": f"{row.multiplication_ms:.1f}" if split else "",
                "sent, GB": f"{row.sent_bytes / 1e9:.2f}",
                "of the least": f"{row.sent_bytes / row.least_bytes:.2f}×" if needs else "",
            }
        )
    return pd.DataFrame(found)


@captioned("Milliseconds of all, and how many times as fast as the others ours is. cuSPARSE takes CSR, of blocks BSR.")
def times_table(rows: list[Row]) -> pd.DataFrame | None:
    """For each matrix and number of GPUs milliseconds of all, and how many times as fast as the others ours is."""
    ours = {(r.case, r.size, r.n, r.gpus): r for r in rows if r.contender == OURS}
    times = {(r.case, r.size, r.n, r.gpus, r.contender): r.median_ms for r in rows}
    others = [name for name in NAMES if name != OURS and any(r.contender == name for r in rows)]
    found = []
    for key, mine in sorted(ours.items(), key=lambda x: (list(CASES).index(x[0][0]), *x[0][1:])):
        row = {
            "matrix, non-zeros": f"{BRIEF[mine.case]}, {mine.nnz / 1e9:.2g} · 10⁹",
            "GPUs": mine.gpus,
            "ours, ms": f"{mine.median_ms:.4g}",
        }
        for name in others:
            ms = times.get((*key, name))
            row[SHORT[name]] = f"{ms:.4g} ({ms / mine.median_ms:.2f}×)" if ms else ""
        found.append(row)
    return pd.DataFrame(found) if found else None


def _strong(rows: list[Row]) -> Iterator[Fact]:
    """Efficiency on the most GPUs, of the largest matrix of each case, and how many times as long the fastest baseline
    takes there."""
    several = strong(rows).query("gpus > 1")
    if several.empty:
        return
    most = int(several["gpus"].max())
    yield "strong.gpus", most
    at = several[several["gpus"] == most].sort_values("nnz").drop_duplicates("case", keep="last")
    for row in at.itertuples():
        yield from under(f"strong.of.{row.case}", matrix=CASES[row.case], efficiency=row.efficiency)
        beside = [r for r in rows if (r.case, r.size, r.n, r.gpus) == (row.case, row.size, row.n, most)]
        others = [(r.median_ms, NAMES[r.contender]) for r in beside if r.contender != OURS]
        if others:
            ms, name = min(others)
            yield from under(f"baseline.{row.case}", matrix=CASES[row.case], times=ms / row.ms, contender=name)


def _weak(rows: list[Row]) -> Iterator[Fact]:
    """Highest efficiency of each case; what one GPU makes of the series' first matrix, and of its largest one."""
    mine = [row for row in rows if row.contender == OURS]
    for case, of in weak(rows).groupby("case", sort=False):
        yield from under(f"weak.{case}", matrix=CASES[case], efficiency=of["efficiency"].max())
        first = _series(case, mine)[0]
        alone = [r for r in mine if (r.case, r.n, r.gpus) == (case, first.n, 1)]
        for name, row in (("smaller", first), ("larger", max(alone, key=lambda r: r.nnz))):
            yield from under(f"weak.{case}.{name}", nnz=row.nnz, tflops=row.tflops)


@captioned("Matrices that no GPU holds.")
def beyond_table(where: Path) -> pd.DataFrame | None:
    """Matrices that no GPU holds: `beyond.csv` beside the records."""
    found = [
        {
            "matrix": CASES[row.case],
            "rows": f"{row.m / 1e6:.0f} · 10⁶",
            "non-zeros": f"{row.nnz / 1e9:.1f} · 10⁹",
            "A, GB": f"{_csr_bytes(row) / 1e9:.0f}",
            "N": row.n,
            "GPUs": row.gpus,
            "ms": f"{row.median_ms:.0f}",
            "TFLOP/s": f"{row.tflops:.1f}",
            "sent, GB": f"{row.sent_bytes / 1e9:.2f}",
        }
        for row in scaling.read(where / BEYOND)
    ]
    return pd.DataFrame(found) if found else None


def _beyond(rows: list[Row]) -> Iterator[Fact]:
    """Of the rows of `beyond.csv`."""
    if not rows:
        return
    sizes = [_csr_bytes(row) for row in rows]
    yield from under("beyond", gpu=rows[0].gpu, gpus=max(row.gpus for row in rows))
    yield from under("beyond", prepare_s=max(row.prepare_s for row in rows), error=max(row.error for row in rows))
    yield from under("beyond.csr_bytes", low=min(sizes), high=max(sizes))
    for row in rows:
        name = f"beyond.of.{row.case}{row.size}x{row.gpus}"
        yield from under(name, matrix=CASES[row.case], communication_ms=row.communication_ms, ms=row.median_ms)


def _csr_bytes(row: Row) -> int:
    """Of A in CSR: int32 columns, float32 values, and where each row begins."""
    return 8 * row.nnz + 4 * row.m


@captioned("What overlapping took: milliseconds of the first schedule and of today's.")
def schedules_table(where: Path, rows: list[Row]) -> pd.DataFrame | None:
    """What overlap took: times of the first schedule, of `tried.csv` beside the records, and of today's."""
    now = {(r.case, r.size, r.n, r.gpus): r for r in rows if r.contender == OURS}
    found = []
    for before in scaling.read(where / TRIED):
        after = now.get((before.case, before.size, before.n, before.gpus))
        if after is None:
            continue
        for name, row in (
            ("pack, send, pack, send …", before),
            ("pack all, then send, first in line", after),
        ):
            found.append(
                {
                    "matrix": BRIEF[row.case],
                    "schedule": name,
                    "all": f"{row.median_ms:.2f}",
                    "communi\u00adcation": f"{row.communication_ms:.2f}",
                    "waiting": f"{row.waiting_ms:.2f}",
                    "multipli\u00adcation": f"{row.multiplication_ms:.2f}",
                }
            )
    return pd.DataFrame(found) if found else None


def agrees(where: Path, shipped: Path | None = None) -> pd.DataFrame | None:
    """`agreement.compared` of the points that several GPUs measured; None without. shipped: records of one GPU."""
    of = agreement.read(where / DEALT)
    return None if of is None else agreement.compared(of, shipped or paths.RECORDED / where.name)


@captioned("Times of dealt out points over those of one GPU, and of that GPU's second run over its first.")
def agreement_table(of: pd.DataFrame | None) -> pd.DataFrame | None:
    """Times of each experiment over those of one GPU: where dealt out, and in that GPU's own second run."""
    if of is None:
        return None
    return pd.DataFrame(
        {
            "experiment": f"{row.room}/{row.experiment}",
            "points": row.points,
            "rows": row.rows,
            "median": f"{row.time:.3f}",
            "9 of 10 rows": f"{row.low:.3f} to {row.high:.3f}",
            "second run of one GPU": ""
            if row.again_low != row.again_low
            else f"{row.again_low:.3f} to {row.again_high:.3f}",
        }
        for row in of.itertuples()
    )


def agreement_facts(of: pd.DataFrame | None) -> Iterator[Fact]:
    """Of `agrees`: how far medians are off, and how far apart single rows are; nothing without any."""
    if of is None or of.empty:
        return
    off = (of["time"] - 1).abs()
    yield from under("dealt", points=of["points"].sum(), gpus=of["gpus"].max(), experiments=len(of))
    yield from under("dealt", near=int((off < WITHIN).sum()), within=WITHIN, allowed=compare.TIME_TOLERANCE)
    yield from under("dealt.worst", experiment=of.loc[off.idxmax(), "experiment"], off=off.max())
    yield "dealt.rows_apart", (of["high"] - of["low"]).max()
    again = (of["again_high"] - of["again_low"]).dropna()
    if len(again):
        yield "dealt.again_apart", again.max()


# ---------------------------------------------------------------- claims of our own


UNKNOWN = "not measured yet"


@dataclass(frozen=True)
class Claim:
    """One of ours, with its bar."""

    text: str
    value: float | None  #: None: not measured
    bar: float
    at_least: bool = True
    so_far: str = ""  #: what was measured instead
    behind: bool = False  #: whether that is below the bar, which more GPUs do not raise

    @property
    def verdict(self) -> str:
        if self.value is None:
            return f"{UNKNOWN}, missed on fewer" if self.behind else UNKNOWN
        holds = self.value >= self.bar if self.at_least else self.value <= self.bar
        return "holds" if holds else "does not hold"


def claims(rows: list[Row]) -> list[Claim]:
    """What this chapter claims: efficiency at four GPUs, and bytes."""
    table, found = strong(rows), []
    for case, bar in BARS.items():
        of = table[table["case"] == case]
        if case == "graph":
            of = of[(of["nnz"] >= LEAST_NNZ) & (of["n"] == 512)]
        found_at = {
            gpus: float(rows_of.loc[rows_of["nnz"].idxmax(), "efficiency"]) for gpus, rows_of in of.groupby("gpus")
        }
        value = found_at.get(AT)
        fewer = {g: x for g, x in found_at.items() if 1 < g < AT}
        so_far = ", ".join(f"{x:.0%} at {g} GPUs" for g, x in fewer.items())
        behind = any(x < bar for x in fewer.values())
        what = " with at least 10⁹ non-zeros at N = 512" if case == "graph" else ""
        found.append(
            Claim(
                f"strong scaling of the {CASES[case]}{what} at {AT} GPUs",
                value,
                bar,
                so_far=so_far,
                behind=behind,
            )
        )
    sent, text = _sent(rows), "bytes sent over those that the pattern requires"
    return [*found, Claim(text, max(sent) if sent else None, MOST_SENT, at_least=False)]


@captioned("Claims about several GPUs, and what was measured.")
def claims_table(rows: list[Row]) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "ours": claim.text,
            "bar": f"≥ {claim.bar:.0%}" if claim.at_least else f"≤ {claim.bar:g}×",
            "measured": claim.so_far
            if claim.value is None
            else f"{claim.value:.0%}"
            if claim.at_least
            else f"{claim.value:.3g}×",
            "verdict": claim.verdict,
        }
        for claim in claims(rows)
    )


# ---------------------------------------------------------------- beyond the machine


def drawn_predictions(rows: list[Row]) -> tuple | None:
    """(figure, data): predicted efficiency for up to 1,024 GPUs, with its range; None where nothing is fitted."""
    table = model.predictions(rows)
    if table.empty:
        return None
    size = (style.WIDTH, 3.2)
    fig, axes = plt.subplots(1, 2, figsize=size, sharey=True, layout="constrained")
    handles = {}
    for ax, domain in zip(axes, model.DOMAINS, strict=True):
        for (case, way), of in table[table["domain"] == domain].groupby(["case", "way"], sort=False):
            scale = of["efficiency"] * of["ms"]
            dashes = "--" if way == model.WAYS[1] else ":"
            (line,) = ax.plot(of["gpus"], 100 * of["efficiency"], dashes, color=COLOURS[case])
            handles[f"{CASES[case]}, {way}"] = line
            if way == model.WAYS[1]:
                low, high = 100 * scale / of["high_ms"], 100 * scale / of["low_ms"]
                ax.fill_between(of["gpus"], low, high, color=COLOURS[case], alpha=0.15, linewidth=0)
        ax.set_xscale("log", base=2)
        ax.set_xticks(model.GPUS[::2], model.GPUS[::2])
        ax.minorticks_off()
        ax.set(title=f"prediction, NVLink joins {domain}", xlabel="GPUs", ylim=(0, 125))
    axes[0].set_ylabel("efficiency, %")
    plot.legend(fig, handles, columns=3)
    return fig, table


@captioned("What the model was fitted to.")
def fits_table(rows: list[Row]) -> pd.DataFrame | None:
    found = [of for case in CASES if (of := model.fit(rows, case))]
    if not found:
        return None
    return pd.DataFrame(
        {
            "matrix": CASES[of.case],
            "non-zeros · N a second": f"{of.rate:.3g} · 10¹²",
            "slower on several GPUs": f"{of.slower:.2f}×",
            "NVLink, GB/s": f"{of.nvlink:.0f}",
            "error on what was measured": f"{np.expm1(of.error):.1%}",
            "measured on up to": f"{of.measured} GPUs",
        }
        for of in found
    )


# ---------------------------------------------------------------- pictures, computed as the page is made

ROWS = {"row of B is there": (True, style.BEST), "row of B travels": (False, style.PUBLISHED)}
WAYS = {
    "by rows": (style.BEST, "o"),
    "1.5D, 2 replicas": (style.CLAIM, "s"),
    "by columns": (style.RUNGS[0], "^"),
    "all of B": (style.BASELINE, "v"),
}
SMALL = {"graph": Rmat(9, 8, 1), "mesh": Stencil(8, 1)}


def _whole(made):
    return generate.host_part(made, np.array([0, made.m]), 0).a


def drawn_parts(parts: int = 4) -> tuple:
    """(figure, data): small matrices cut into parts, entries by whether their row of B is there or travels."""
    fig, axes = plt.subplots(1, 2, figsize=(style.WIDTH, 4.0), layout="constrained")
    data, handles = [], {}
    for ax, (case, made) in zip(axes, SMALL.items(), strict=True):
        a = _whole(made)
        edges = partition.by_nonzeros(a.row_ptr, parts)
        row = np.repeat(np.arange(a.m), np.diff(a.row_ptr))
        owner = np.searchsorted(edges, np.arange(a.m), side="right") - 1
        local = owner[row] == owner[a.col_idx]
        for name, (there, colour) in ROWS.items():
            of = local == there
            ax.plot(a.col_idx[of], row[of], ".", markersize=1.4, color=colour)
            handles[name] = Line2D([], [], marker="o", linestyle="none", color=colour)
        for edge in edges[1:-1]:
            ax.axhline(edge - 0.5, color=style.BOUND, linewidth=0.8)
        ax.set(title=CASES[case], xlim=(0, a.m), ylim=(a.m, 0), aspect="equal")
        ax.set_xticks([]), ax.set_yticks([])
        data += [{"case": case, **row} for row in _received(a, edges)]
    plot.legend(fig, handles)
    return fig, pd.DataFrame(data)


def _received(a, edges: np.ndarray) -> list[dict[str, int]]:
    """Of each part: its rows and non-zeros, the rows of B that it receives and those that others have."""
    table = exchange.volumes(a.row_ptr, a.col_idx, edges, edges)
    return [
        {
            "part": p,
            "rows": int(edges[p + 1] - edges[p]),
            "non-zeros": int(a.row_ptr[edges[p + 1]] - a.row_ptr[edges[p]]),
            "rows of B received": int(table[p].sum() - table[p, p]),
            "rows that others have": int(a.m - (edges[p + 1] - edges[p])),
        }
        for p in range(len(edges) - 1)
    ]


@captioned("A matrix of your own in parts: what each receives.")
def own_parts(made, parts: int) -> pd.DataFrame:
    """What each part of a generated matrix, small enough for the host, receives, and that over the rows it has."""
    a = _whole(made)
    data = pd.DataFrame(_received(a, partition.by_nonzeros(a.row_ptr, parts)))
    over = data["rows of B received"] / data["rows"]
    return data.assign(**{"received, over its own": over.map("{:.2f}×".format)})


def volumes(most: int = 6) -> pd.DataFrame:
    """Rows of B, or C, that travel for 2 … 2^most parts: by the pattern, all of B, by columns, 1.5D with 2 replicas."""
    found = []
    for case, made in SMALL.items():
        a = _whole(made)
        for parts in 2 ** np.arange(1, most + 1):
            edges = partition.by_nonzeros(a.row_ptr, parts)
            table = exchange.volumes(a.row_ptr, a.col_idx, edges, edges)
            half = partition.by_nonzeros(a.row_ptr, parts // 2)
            found.append(
                {
                    "case": case,
                    "parts": int(parts),
                    "by rows": exchange.sent(table),
                    "all of B": exchange.gathered(edges),
                    "by columns": (parts - 1) * a.m,
                    "1.5D, 2 replicas": _replicated(a, half) + a.m,
                }
            )
    return pd.DataFrame(found)


def told_volumes(found: pd.DataFrame) -> str:
    """The alternative text of the figure of `volumes`: what travels where there are the most parts."""
    last = found[found["parts"] == found["parts"].max()].set_index("case").drop(columns="parts")
    told = [f"{case}: {listed(f'{way} {rows:,}' for way, rows in own.items())}" for case, own in last.iterrows()]
    return f"Rows that travel for {found['parts'].max()} parts. {'; '.join(told)}."


def _replicated(a, edges: np.ndarray) -> int:
    """Rows of B that travel where each half of the columns is cut into as many parts as the rows are."""
    columns = partition.even(a.k, 2)
    total = 0
    for first, last in zip(columns, columns[1:], strict=False):
        inside = (a.col_idx >= first) & (a.col_idx < last)
        row_ptr = np.concatenate([[0], np.cumsum(inside)])[a.row_ptr]
        of = partition.even(int(last - first), len(edges) - 1)
        total += exchange.sent(exchange.volumes(row_ptr, a.col_idx[inside] - first, edges, of))
    return total


def drawn_volumes() -> tuple:
    """(figure, data): what travels with each way to cut, over the rows of B."""
    table = volumes()
    fig, axes = plt.subplots(1, 2, figsize=(style.WIDTH, 3.0), sharey=True, layout="constrained")
    handles = {}
    for ax, (case, of) in zip(axes, table.groupby("case", sort=False), strict=True):
        for way, (colour, marker) in WAYS.items():
            over = of[way] / SMALL[case].m
            how = {"linestyle": "-", "marker": marker, "markersize": 4}
            if way == "by columns":  # as many as all of B: seen around it
                how |= {"linestyle": "--", "marker": "o", "markersize": 9}
                how |= {"markerfacecolor": "none", "markeredgewidth": 1.3, "zorder": 3}
            (line,) = ax.plot(of["parts"], over, color=colour, **how)
            handles[way] = line
        ax.set_xscale("log", base=2)
        ax.set_yscale("log")
        ax.set_xticks(of["parts"], of["parts"])
        ax.xaxis.set_minor_locator(NullLocator())
        plot.log(ax.yaxis)
        ax.set(title=CASES[case], xlabel="parts")
    axes[0].set_ylabel("rows that travel, over those of B")
    plot.legend(fig, handles)
    return fig, table
