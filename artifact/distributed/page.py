"""The chapter on several GPUs: what was measured, our claims, what more GPUs would do, and what travels.

Records lie in `recorded/<gpu>/scaling.csv` beside this file, fresh ones in `distributed/<gpu>/` of the build. Claims
here are ours: no ledger counts them among those of the sources. The model of more GPUs:

    multiplication   non-zeros of the part that has most · N / (rate · GPUs)      rate: of one GPU; a factor for several
    communication    latency + bytes of a GPU over its link                       NVLink: fitted; InfiniBand: assumed
    a call           what is not hidden of communication, and the multiplication

Bytes are not fitted: how many rows of B a part needs follows from how the matrix is made (`needed`). Beyond an NVLink
domain rows cross InfiniBand, one by one ("flat"), or once for a whole domain and then from GPU to GPU within it
("hierarchical"). Whatever is beyond the machine that was measured is a prediction, with an uncertainty that grows with
every doubling, and is drawn as one.
"""

import functools
from collections.abc import Iterator
from itertools import pairwise, product
from math import comb, exp, log, nan, sqrt
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.lines import Line2D

from artifact import paths
from artifact.book import study
from artifact.book.facts import Fact, flat
from artifact.distributed import agreement, scaling
from artifact.distributed.scaling import DTENSOR, GATHERED, OURS, STREAMED
from artifact.drawing import plot, style
from artifact.measure import records
from artifact.verdicts import compare
from kernels.distributed import generate, partition
from kernels.formats import csr

RECORDED = paths.SCALED
SCALING, TRIED, BEYOND, DEALT = "scaling.csv", "tried.csv", "beyond.csv", "dealt.csv"
CASES = {"graph": "power-law graph", "mesh": "mesh", "block": "block-sparse weight"}
NAMES = {
    OURS: "ours",
    GATHERED: "all-gather of B and cuSPARSE",
    DTENSOR: "PyTorch's distributed tensors, dense",
    STREAMED: "A streamed from the host",
}
#: The same at the head of a column.
SHORT = {OURS: "ours", GATHERED: "all-gather, cuSPARSE", DTENSOR: "DTensor, dense", STREAMED: "streamed"}
#: Least efficiency of strong scaling `AT` so many GPUs; most bytes that are sent, over those that the pattern requires.
BARS = {"graph": 0.70, "mesh": 0.85, "block": 0.85}
MOST_SENT = 1.1
AT, LEAST_NNZ = 4, 10**9
#: Medians of an experiment that are so close count as the same.
WITHIN = 0.01
#: Columns that tell matrices apart.
MATRIX = ["case", "size", "n"]
#: GPUs that predictions are made for.
GPUS = (8, 16, 32, 64, 128, 256, 512, 1024)
#: GPUs that NVLink joins: a host of eight, and a rack.
DOMAINS = (8, 64)
#: GB/s of a GPU's own InfiniBand port of 400 Gb/s in one direction that an exchange may get. Assumed, not measured.
INFINIBAND = (25.0, 40.0, 48.0)
#: Share by which a prediction may be off for each doubling beyond what was measured, besides the model's own error.
PER_DOUBLING = 0.05
WAYS = ("flat", "hierarchical")
_ELEMENT = {"float32": 4, "bfloat16": 2}


# ---------------------------------------------------------------- records


def folder(mode: str = "auto", gpu: str = "nvidia-h200") -> Path:
    """Where a page's records are: fresh ones, unless only recorded ones are asked for or there are no others."""
    fresh = paths.BUILD / "distributed" / gpu
    return fresh if mode != "recorded" and (fresh / SCALING).is_file() else RECORDED / gpu


def load(where: Path, name: str = SCALING) -> pd.DataFrame:
    """Return a folder's records, with what follows from them."""
    return derived(scaling.read(where / name))


def derived(df: pd.DataFrame) -> pd.DataFrame:
    """Return records with their rate, the bytes of A in CSR with float32 values, names, and sizes as tables show them.

    over_least: bytes that ours sends, over those that the pattern requires; NaN where nothing has to travel.
    """
    sends, csr_bytes = (df["contender"] == OURS) & (df["least_bytes"] > 0), 8 * df["nnz"] + 4 * df["m"]
    brief = df["case"].replace("block", "blocks")
    return df.assign(
        tflops=2 * df["nnz"] * df["n"] / df["median_ms"] / 1e9,
        over_least=df["sent_bytes"] / df["least_bytes"].where(sends),
        csr_bytes=csr_bytes,
        csr_gb=csr_bytes / 1e9,
        sent_gb=df["sent_bytes"] / 1e9,
        rows_e6=df["m"] / 1e6,
        nnz_e9=df["nnz"] / 1e9,
        matrix=df["case"].map(CASES),
        brief=brief,
        sized=brief + (df["nnz"] / 1e9).map(", {:.2g} · 10⁹".format).astype(str),
    )


def ours(df: pd.DataFrame) -> pd.DataFrame:
    """Return records of ours."""
    return study.where(df, contender=OURS)


def strong(df: pd.DataFrame) -> pd.DataFrame:
    """Sizes that were measured on one GPU and on several: efficiency is t(1) / (P · t(P))."""
    mine = ours(df).rename(columns={"median_ms": "ms"}).sort_values(["case", "size", "gpus"])
    table = mine.merge(mine[mine["gpus"] == 1][[*MATRIX, "ms"]], on=MATRIX, suffixes=("", "_alone")).assign(
        efficiency=lambda of: of["ms_alone"] / of["gpus"] / of["ms"]
    )
    several = table.groupby(MATRIX)["gpus"].transform("max") > 1
    return table.loc[several, [*MATRIX, "matrix", "nnz", "gpus", "ms", "efficiency"]].reset_index(drop=True)


def weak(df: pd.DataFrame) -> pd.DataFrame:
    """Return what one GPU has of non-zeros, P have P times as many, within 5%.

    Efficiency is a GPU's rate over one alone.

    Of each case the series on most numbers of GPUs, of two such the one of larger matrices.
    """
    mine = ours(df).rename(columns={"median_ms": "ms"})
    pairs = mine[mine["gpus"] == 1].merge(mine, on=["case", "n"], suffixes=("_alone", ""))
    share = pairs["nnz"] / pairs["gpus"] / pairs["nnz_alone"]
    near = np.where(pairs["gpus"] == 1, pairs["size"] == pairs["size_alone"], (share - 1).abs() < 0.05)
    grown = pairs.assign(efficiency=share * (pairs["ms_alone"] / pairs["ms"]))[near].assign(
        series=lambda of: of.groupby(["case", "nnz_alone"])["gpus"].transform("size")
    )
    best = grown[grown["series"] > 1].sort_values(["series", "nnz_alone"], kind="stable")
    largest = best["nnz_alone"] == best.groupby("case")["nnz_alone"].transform("last")
    return _ordered(best[largest], ["gpus"])[["case", "gpus", "nnz", "ms", "efficiency"]]


def efficiencies(df: pd.DataFrame) -> pd.DataFrame:
    """`strong` and `weak` in one table; of strong scaling the largest matrix of a case is drawn."""
    largest = {"drawn": lambda of: of["nnz"] == of.groupby("case")["nnz"].transform("max")}
    both = strong(df).assign(scaling="strong", **largest), weak(df).assign(scaling="weak", drawn=True)
    return pd.concat(both, ignore_index=True)


# ---------------------------------------------------------------- facts


def facts(df: pd.DataFrame, where: Path) -> Iterator[Fact]:
    """Yield what the page's text names: of records and of what lies in their folder `where`; nothing without any.

    Strong scaling on the most GPUs, of the largest matrix of each case, and how many times as long the fastest
    baseline takes there.
    """
    if df.empty:
        return
    machine = records.read_machine(where) if (where / records.MACHINE).is_file() else {}
    several = strong(df).query("gpus > 1")
    at = several[several["gpus"] == several["gpus"].max()].sort_values("nnz").drop_duplicates("case", keep="last")
    others = df[df["contender"] != OURS].sort_values("median_ms").drop_duplicates([*MATRIX, "gpus"])
    beside = at.merge(others[[*MATRIX, "gpus", "contender", "median_ms"]], on=[*MATRIX, "gpus"]).assign(
        times=lambda of: of["median_ms"] / of["ms"], contender=lambda of: of["contender"].map(NAMES)
    )
    large = load(where, BEYOND).rename(columns={"median_ms": "ms"})
    called = large["case"] + large["size"].astype(str) + "x" + large["gpus"].astype(str)
    yield from flat(
        {
            "memory_bytes": machine.get("memory_bytes"),
            "measured": {
                **{"gpu": df["gpu"].iloc[0], "day": df["when"].max()[:10], "commit": machine.get("commit", "")},
                **{"gpus": ", ".join(map(str, sorted(df["gpus"].unique()))), "most": df["gpus"].max()},
            },
            "sent_over_least": df["over_least"].max(),
            "strong": {"gpus": several["gpus"].max(), "of": at.set_index("case")[["matrix", "efficiency"]]},
            "baseline": beside.set_index("case")[["matrix", "times", "contender"]],
            "weak": {case: _grown(of, df) for case, of in weak(df).groupby("case", sort=False)},
            "beyond": {
                **{name: large[name].max() for name in ("gpu", "gpus", "prepare_s", "error")},
                "csr_bytes": large["csr_bytes"].agg({"low": "min", "high": "max"}),
                "of": large.set_index(called)[["matrix", "communication_ms", "ms"]],
            },
            "dealt": dealt(agrees(where)),
        }
    )


def _grown(of: pd.DataFrame, df: pd.DataFrame) -> dict[str, Any]:
    """Highest efficiency of a case; what one GPU makes of the series' first matrix, and of its largest one."""
    case = of["case"].iloc[0]
    alone = study.where(df, contender=OURS, case=case, gpus=1).sort_values("nnz")[["nnz", "tflops"]]
    return {
        **{"matrix": CASES[case], "efficiency": of["efficiency"].max()},
        **{"smaller": alone[alone["nnz"] == of["nnz"].min()].iloc[0], "larger": alone.iloc[-1]},
    }


def agrees(where: Path) -> pd.DataFrame | None:
    """`agreement.compared` of the points that several GPUs measured and the shipped ones of one GPU; None without."""
    if not (where / DEALT).is_file():
        return None
    of = agreement.compared(pd.read_csv(where / DEALT, keep_default_na=False), paths.RECORDED / where.name)
    return None if of.empty else of


@study.given
def dealt(of: pd.DataFrame) -> dict[str, Any]:
    """Of `agrees`: how far medians are off, and how far apart single rows are."""
    off = (of["time"] - 1).abs()
    return {
        **{"points": of["points"].sum(), "gpus": of["gpus"].max(), "experiments": len(of)},
        **{"near": int((off < WITHIN).sum()), "within": WITHIN, "allowed": compare.TIME_TOLERANCE},
        "worst": {"experiment": of.loc[off.idxmax(), "experiment"], "off": off.max()},
        "rows_apart": (of["high"] - of["low"]).max(),
        "again_apart": (of["again_high"] - of["again_low"]).max(),
    }


# ---------------------------------------------------------------- tables


def rates(df: pd.DataFrame) -> pd.DataFrame:
    """Milliseconds of all contenders, and what of ours is what."""
    return _ordered(df.assign(contender=df["contender"].map(SHORT)).sort_values("contender"), ["size", "gpus"])


def times(df: pd.DataFrame) -> pd.DataFrame:
    """For each matrix and number of GPUs milliseconds of all, and how many times as fast as the others ours is."""
    key = [*MATRIX, "gpus"]
    table = _ordered(ours(df), ["size", "n", "gpus"]).set_index(key)
    ms = df.pivot(index=key, columns="contender", values="median_ms").reindex(table.index)
    over = ms.div(table["median_ms"], axis=0).map(" ({:.2f}×)".format).assign(**{OURS: ""})
    said = (ms.map("{:.4g}".format) + over).where(ms.notna(), "")
    return table.join(said.rename(columns=SHORT)).reset_index()


def _ordered(df: pd.DataFrame, by: list[str]) -> pd.DataFrame:
    """Sorted by case, in the order of CASES, and by these columns."""
    return df.sort_values(
        ["case", *by],
        key=lambda x: x.map(list(CASES).index) if x.name == "case" else x,
        kind="stable",
        ignore_index=True,
    )


def schedules(where: Path, df: pd.DataFrame) -> pd.DataFrame:
    """Return what overlap took: times of the first schedule, of `tried.csv` beside the records, and of today's."""
    before, key = load(where, TRIED), [*MATRIX, "gpus"]
    now = before[key].merge(ours(df), on=key)
    return pd.concat(
        [
            before.merge(now[key], on=key).assign(schedule="pack, send, pack, send …"),
            now.assign(schedule="pack all, then send, first in line"),
        ]
    ).sort_index(kind="stable")


@study.given
def agreement_table(of: pd.DataFrame) -> pd.DataFrame:
    """Return times of each experiment over those of one GPU: where dealt out, and in that GPU's own second run."""
    apart = {
        name: [
            f"{low:.3f} to {high:.3f}" * (low == low) for low, high in zip(of[f"{at}low"], of[f"{at}high"], strict=True)
        ]
        for name, at in (("rows_apart", ""), ("again", "again_"))
    }
    return of.assign(experiment=of["room"] + "/" + of["experiment"], **apart)


def fits(df: pd.DataFrame) -> pd.DataFrame:
    """Return what the model was fitted to, a row for each case."""
    found = pd.DataFrame(filter(None, (fit(df, case) for case in CASES)), columns=Fitted._fields)
    return found.assign(case=found["case"].map(CASES))


# ---------------------------------------------------------------- claims of our own


def claims(df: pd.DataFrame) -> pd.DataFrame:
    """Return what this chapter claims: efficiency at four GPUs, and bytes; what was measured, and a verdict."""
    table, rows = strong(df).sort_values("nnz"), []
    counts = (table["case"] != "graph") | (table["nnz"] >= LEAST_NNZ) & (table["n"] == 512)
    found = table[counts].drop_duplicates(["case", "gpus"], keep="last").sort_values("gpus")
    for case, bar in BARS.items():
        of = study.where(found, case=case).set_index("gpus")["efficiency"]
        at, fewer = of.get(AT, np.nan), of[(of.index > 1) & (of.index < AT)]
        so_far = ", ".join(f"{x:.0%} at {gpus} GPUs" for gpus, x in fewer.items()) if np.isnan(at) else f"{at:.0%}"
        missed = ", missed on fewer" * bool(np.isnan(at) and (fewer < bar).any())
        what = " with at least 10⁹ non-zeros at N = 512" * (case == "graph")
        text = f"strong scaling of the {CASES[case]}{what} at {AT} GPUs"
        rows.append((text, f"≥ {bar:.0%}", so_far, _verdict(at, at >= bar) + missed))
    sent, text = df["over_least"].max(), "bytes sent over those that the pattern requires"
    so_far = f"{sent:.3g}×" * (not np.isnan(sent))
    rows.append((text, f"≤ {MOST_SENT:g}×", so_far, _verdict(sent, sent <= MOST_SENT)))
    return pd.DataFrame(rows, columns=["ours", "bar", "measured", "verdict"])


def _verdict(found: float, right: bool) -> str:
    return "not measured yet" if np.isnan(found) else "holds" if right else "does not hold"


# ---------------------------------------------------------------- bytes, from how a matrix is made


def needed(case: str, size: int, parts: int, domain: int = 1) -> float:
    """Rows of B that cross between domains, of all: each domain of so many parts gets each row that it names once.

    case, size: as `scaling`'s. Of the graph and the weight the expectation, of the mesh what slabs share.
    """
    groups = parts / domain
    if groups <= 1:
        return 0.0
    away = 1 - 1 / groups  # of the rows that a domain names, what it does not have itself
    if case == "mesh":
        # A part needs of its own plane, and of the next two, what lies within a line and a point of its own points.
        edges, planes = np.arange(round(groups) + 1) * size**3 / groups, size**2 * np.array([[-1], [0], [1]])
        first = np.maximum(0, edges[:-1] - size - 1 + planes)
        last = np.minimum(size**3, edges[1:] + size + 1 + planes)
        before = np.maximum.accumulate(np.concatenate([0 * last[:1], last[:-1]]))
        return float(np.maximum(0, last - np.maximum(first, before)).sum()) - size**3
    if case == "block":
        return groups * 16384 * (1 - (1 - 0.1) ** (size / 64 / groups)) * away  # k, blocks' share, unit of `scaling`'s
    of = generate.Rmat(size, 64)
    # Vertices by the 1 bits of their number; entries of a column fall on rows at random, as rows are scrambled.
    left, ones = generate.A + generate.C, np.arange(of.scale + 1)
    named = 1 - np.exp(-64 * of.m * left ** (of.scale - ones) * (1 - left) ** ones / groups)
    return groups * away * float(sum(comb(of.scale, i) * x for i, x in enumerate(named)))


# ---------------------------------------------------------------- fit


class Fitted(NamedTuple):
    """Rates of a case: milliseconds, bytes and non-zeros in billions."""

    case: str
    rate: float  #: non-zeros times columns, in billions, that one GPU multiplies in a millisecond
    slower: float  #: by which several GPUs multiply slower than that, each its share
    nvlink: float  #: GB/s of a GPU in one direction
    latency_ms: float  #: of an exchange, each chunk
    early: float  #: of the multiplication, what needs no other GPU's rows: nearly all, or the GPU's share of one chunk
    error: float  #: of the fit: root of the mean of squares of log(predicted / measured), of several GPUs
    measured: int  #: GPUs, at most

    def call(self, work: float, moved: float, gpus: int, chunks: int) -> float:
        """Milliseconds of a call that multiplies for `work` of them, and whose rows travel for `moved`."""
        own = 1 / gpus / chunks if self.case == "graph" else 0.0
        return together(moved + self.latency_ms * chunks, work, chunks, self.early or own)

    def off(self, gpus: int) -> float:
        """Return the factor by which a prediction may be off either way."""
        return exp(2 * self.error) * (1 + PER_DOUBLING) ** max(0.0, log(gpus / self.measured, 2))


def fit(df: pd.DataFrame, case: str) -> Fitted | None:
    """Return a case's rates from records of ours; None without one GPU, or without several, at the same N."""
    mine = study.where(ours(df), case=case).assign(
        work=lambda of: of["nnz"] * of["n"] / 1e9, sent=lambda of: of["sent_bytes"] / of["gpus"] / 1e9
    )
    alone, several = mine[mine["gpus"] == 1], mine[mine["gpus"] > 1]
    if alone.empty or several.empty:
        return None
    rate = float((alone["work"] / alone["multiplication_ms"]).median())
    share = several["work"] * several["imbalance"] / several["gpus"]
    slower = float((several["multiplication_ms"] * rate / share).median())
    latency, per_gb = _line(*(several[c].to_numpy(float) for c in ("sent", "communication_ms", "chunks")))
    made = Fitted(
        case, rate, slower, 1e3 / per_gb, latency, 0.9 if case == "mesh" else 0.0, 0.0, int(several["gpus"].max())
    )
    off = [
        log(made.call(r.work * r.imbalance / rate * slower / r.gpus, 1e3 * r.sent / made.nvlink, r.gpus, r.chunks))
        - log(r.median_ms)
        for r in several.itertuples()
    ]
    return made._replace(error=sqrt(float(np.mean(np.square(off)))))


def _line(gigabytes: np.ndarray, spent: np.ndarray, chunks: np.ndarray) -> tuple[float, float]:
    """(milliseconds a chunk, milliseconds a gigabyte), neither negative; of one size all is bandwidth."""
    if len(set(np.round(gigabytes, 6))) > 1:
        found, *_ = np.linalg.lstsq(np.stack([chunks, gigabytes], axis=1), spent, rcond=None)
        if found[0] >= 0 and found[1] > 0:
            return float(found[0]), float(found[1])
    return 0.0, float(np.median(spent / np.maximum(gigabytes, 1e-9)))


def together(communication: float, multiplication: float, chunks: int, early: float) -> float:
    """Return a call of a chunked schedule.

    The first chunk travels behind what is multiplied early, others behind products.
    """
    first, rest, chunk = communication / chunks, multiplication * (1 - early) / chunks, np.arange(chunks)
    ends = first * (chunk + 1) + rest * (chunks - chunk)  # where a chunk is waited for, and no later one
    return float(max(early * multiplication + rest * chunks, *ends))


# ---------------------------------------------------------------- predictions


def predict(of: Fitted, like: Any, alone_ms: float, gpus: int, domain: int, way: str) -> dict[str, Any]:
    """Return a call on so many GPUs of a matrix like a record's, a row of its table.

    Milliseconds, also over one GPU's `alone_ms`, and bytes of a GPU; the range of what `INFINIBAND` allows and of the
    model's error.
    """
    row_bytes = like.n * _ELEMENT[like.dtype]
    inside, outside = (needed(of.case, like.size, gpus, x) * row_bytes / gpus for x in (1, min(domain, gpus)))
    if way == "flat":
        # Of what a GPU gets, the share that is not in its domain, as rows lie evenly; of a domain of slabs the two at
        # its ends get what comes from outside: the slowest has half of it.
        away = max(0.0, 1 - domain / gpus) * gpus / max(gpus - 1, 1)
        outside = min(inside, outside * domain / 2) if of.case == "mesh" else inside * away
        inside -= outside  # otherwise all that crosses is handed round once it is there
    work, off = like.nnz * like.n / 1e9 / of.rate * of.slower / gpus, of.off(gpus)
    slow, ms, fast = (
        of.call(work, (inside / of.nvlink + outside / gbps) / 1e6, gpus, like.chunks) for gbps in INFINIBAND
    )
    band = alone_ms / gpus if way == WAYS[1] else nan  # drawn where rows cross once for a domain
    return {
        **{"gpus": gpus, "domain": domain, "way": way, "curve": f"{CASES[of.case]}, {way}"},
        **{"ms": ms, "low_ms": fast / off, "high_ms": slow * off, "multiplication_ms": work},
        **{"nvlink_bytes": inside, "infiniband_bytes": outside},
        **{"efficiency": alone_ms / gpus / ms, "least": band / (slow * off), "most": band / (fast / off)},
    }


def predictions(df: pd.DataFrame) -> pd.DataFrame:
    """Strong scaling of each case that can be fitted, as `predict` has it; empty where nothing is fitted.

    Of the size that was measured on most numbers of GPUs, of two such the larger.
    """
    found = []
    for case, rows in ours(df).sort_values("gpus", kind="stable").groupby("case", sort=False):
        sizes = [same for _, same in rows.groupby(["size", "n"]) if len(same) > 1 and same["gpus"].iloc[0] == 1]
        of = fit(df, case)
        if of and sizes:
            alone, *_, several = max(sizes, key=lambda same: (len(same), same["nnz"].iloc[0])).itertuples()
            found += [
                {"case": case} | predict(of, several, alone.median_ms, gpus, domain, way)
                for domain, way, gpus in product(DOMAINS, WAYS, GPUS)
            ]
    return pd.DataFrame(found)


# ---------------------------------------------------------------- what travels, computed as the page is made

ROWS = {"row of B is there": (True, style.BEST), "row of B travels": (False, style.PUBLISHED)}
SMALL: dict[str, generate.Generated] = {"graph": generate.Rmat(9, 8, 1), "mesh": generate.Stencil(8, 1)}


@functools.cache
def _whole(made: generate.Generated) -> Any:
    return generate.host_part(made, np.array([0, made.m]), 0).a


def drawn_parts(parts: int = 4) -> tuple[Any, pd.DataFrame]:
    """(figure, data): small matrices cut into parts, entries by whether their row of B is there or travels."""
    fig, axes = plt.subplots(1, 2, figsize=(style.WIDTH, 4.0), layout="constrained")
    for ax, (case, made) in zip(axes, SMALL.items(), strict=True):
        a = _whole(made)
        edges, row = partition.by_nonzeros(a.row_ptr, parts), csr.rows(a)
        owner = np.searchsorted(edges, np.arange(a.m), side="right") - 1
        for there, colour in ROWS.values():
            of = (owner[row] == owner[a.col_idx]) == there
            ax.plot(a.col_idx[of], row[of], ".", markersize=1.4, color=colour)
        ax.hlines(edges[1:-1] - 0.5, 0, a.m, color=style.BOUND, linewidth=0.8)
        ax.set(title=CASES[case], xlim=(0, a.m), ylim=(a.m, 0), aspect="equal", xticks=[], yticks=[])
    looks: Any = {"marker": "o", "linestyle": "none"}
    plot.legend(fig, {name: Line2D([], [], color=colour, **looks) for name, (_, colour) in ROWS.items()})
    return fig, pd.concat([received(made, parts).assign(case=case) for case, made in SMALL.items()])


def received(made: generate.Generated, parts: int) -> pd.DataFrame:
    """Of each part of a generated matrix, small enough for the host.

    Its rows and non-zeros, the rows of B that it receives, also over its own, and those that others have.
    """
    a, edges = _whole(made), partition.by_nonzeros(_whole(made).row_ptr, parts)
    table, rows = partition.volumes(a.row_ptr, a.col_idx, edges, edges), np.diff(edges)
    columns = {
        **{"part": range(parts), "rows": rows, "non-zeros": np.diff(a.row_ptr[edges])},
        **{"rows of B received": table.sum(axis=1), "rows that others have": a.m - rows},
    }
    return pd.DataFrame(columns).assign(**{"received, over its own": lambda df: df["rows of B received"] / df["rows"]})


def volumes() -> pd.DataFrame:
    """Rows of B, or C, that travel for 2 … 64 parts: by the pattern, all of B, by columns, 1.5D with 2 replicas.

    A row for each way, and how many that are over the rows of B.
    """
    found = []
    for (case, made), parts in product(SMALL.items(), (2, 4, 8, 16, 32, 64)):
        a = _whole(made)
        edges, half = (partition.by_nonzeros(a.row_ptr, p) for p in (parts, parts // 2))
        ways = {
            "by rows": int(partition.volumes(a.row_ptr, a.col_idx, edges, edges).sum()),
            "all of B": (parts - 1) * a.m,
            "by columns": (parts - 1) * a.m,
            "1.5D, 2 replicas": _replicated(a, half) + a.m,
        }
        found += [
            {"case": case, "parts": parts} | {"way": way, "travel": travel, "over": travel / a.m} | ways
            for way, travel in ways.items()
        ]
    return pd.DataFrame(found)


def _replicated(a: Any, edges: np.ndarray) -> int:
    """Rows of B that travel where each half of the columns is cut into as many parts as the rows are."""
    halves = (partition.columns_of(a, *of) for of in pairwise(partition.even(a.k, 2).tolist()))
    return sum(
        int(partition.volumes(x.row_ptr, x.col_idx, edges, partition.even(x.k, len(edges) - 1)).sum()) for x in halves
    )
