"""The chapter on several GPUs: what travels, computed as the page is made; what was measured; our claims.

Records lie in `recorded/<gpu>/scaling.csv` beside this file, fresh ones in `distributed/<gpu>/` of the build. Claims
here are ours: no ledger counts them among those of the sources.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.lines import Line2D

from artifact import paths
from artifact.book.facts import Fact, flat
from artifact.distributed import agreement, model, scaling
from artifact.distributed.scaling import DTENSOR, GATHERED, OURS, STREAMED
from artifact.drawing import plot, style
from artifact.measure import records
from artifact.verdicts import compare
from kernels.distributed import exchange, generate, partition
from kernels.distributed.generate import Rmat, Stencil

RECORDED = Path(__file__).with_name("recorded")
SCALING, TRIED, BEYOND, DEALT = "scaling.csv", "tried.csv", "beyond.csv", "dealt.csv"
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
SHORT = {OURS: "ours", GATHERED: "all-gather, cuSPARSE", DTENSOR: "DTensor, dense", STREAMED: "streamed"}
#: Least efficiency of strong scaling `AT` so many GPUs; most bytes that are sent, over those that the pattern requires.
BARS = {"graph": 0.70, "mesh": 0.85, "block": 0.85}
MOST_SENT = 1.1
AT, LEAST_NNZ = 4, 10**9
#: Medians of an experiment that are so close count as the same.
WITHIN = 0.01
#: Columns that tell matrices apart.
MATRIX = ["case", "size", "n"]


# ---------------------------------------------------------------- records


def folder(mode: str = "auto", gpu: str = "nvidia-h200") -> Path:
    """Where a page's records are: fresh ones, unless only recorded ones are asked for or there are no others."""
    fresh = paths.BUILD / "distributed" / gpu
    return fresh if mode != "recorded" and (fresh / SCALING).is_file() else RECORDED / gpu


def load(where: Path, name: str = SCALING) -> pd.DataFrame:
    """A folder's records, with their rate and the bytes of A in CSR, with float32 values."""
    df = scaling.read(where / name)
    return df.assign(tflops=2 * df["nnz"] * df["n"] / df["median_ms"] / 1e9, csr_bytes=8 * df["nnz"] + 4 * df["m"])


def strong(df: pd.DataFrame) -> pd.DataFrame:
    """Sizes that were measured on one GPU and on several: efficiency is t(1) / (P · t(P))."""
    mine = df[df["contender"] == OURS].rename(columns={"median_ms": "ms"})
    alone = mine[mine["gpus"] == 1][[*MATRIX, "ms"]]
    table = mine.merge(alone.rename(columns={"ms": "alone"}), on=MATRIX)
    table = table[table.groupby(MATRIX)["gpus"].transform("max") > 1].sort_values(["case", "size", "gpus"])
    table["efficiency"] = table["alone"] / table["gpus"] / table["ms"]
    return table[[*MATRIX, "nnz", "gpus", "ms", "efficiency"]].reset_index(drop=True)


def weak(df: pd.DataFrame) -> pd.DataFrame:
    """What one GPU has of non-zeros, P have P times as many, within 5%: efficiency is a GPU's rate over one alone.

    Of each case the series on most numbers of GPUs, of two such the one of larger matrices.
    """
    mine = df[df["contender"] == OURS].rename(columns={"median_ms": "ms"})
    pairs = mine[mine["gpus"] == 1].merge(mine, on=["case", "n"], suffixes=("_alone", ""))
    share = pairs["nnz"] / pairs["gpus"] / pairs["nnz_alone"]
    same = (pairs["gpus"] == 1) & (pairs["size"] == pairs["size_alone"])
    grown = pairs[same | (pairs["gpus"] > 1) & ((share - 1).abs() < 0.05)].assign(efficiency=share)
    grown["efficiency"] *= grown["ms_alone"] / grown["ms"]
    series = grown.groupby(["case", "nnz_alone"])["gpus"].transform("size")
    best = grown[series > 1].assign(series=series).sort_values(["series", "nnz_alone"], kind="stable")
    last = best.groupby("case")["nnz_alone"].transform("last")
    return _ordered(best[best["nnz_alone"] == last], ["gpus"])[["case", "gpus", "nnz", "ms", "efficiency"]]


def efficiencies(df: pd.DataFrame) -> pd.DataFrame | None:
    """`strong` and `weak` in one table; of strong scaling the largest matrix of a case is drawn; None without any."""
    fixed, grown = strong(df), weak(df)
    largest = fixed["nnz"] == fixed.groupby("case")["nnz"].transform("max")
    both = pd.concat(
        [fixed.assign(scaling="strong", drawn=largest), grown.assign(scaling="weak", drawn=True)], ignore_index=True
    )
    return both if len(both) else None


# ---------------------------------------------------------------- facts


def facts(df: pd.DataFrame, where: Path) -> Iterator[Fact]:
    """Yield what the page's text names: of records and of what lies in their folder `where`."""
    machine = records.read_machine(where) if (where / records.MACHINE).is_file() else {}
    ours = df[df["contender"] == OURS]
    sent = _sent(df)
    return flat(
        {
            "memory_bytes": machine.get("memory_bytes"),
            "measured": _measured(df, machine.get("commit", "")) if len(df) else {},
            "sent_over_least": sent.max(),
            **_strong(df),
            "weak": {case: _grown(of, ours[ours["case"] == case]) for case, of in weak(df).groupby("case", sort=False)},
            "beyond": _beyond(load(where, BEYOND)),
            "dealt": dealt(agrees(where)),
        }
    )


def _measured(df: pd.DataFrame, commit: str) -> dict[str, Any]:
    counts = sorted(df["gpus"].unique())
    about = {"gpu": df["gpu"].iloc[0], "day": df["when"].max()[:10], "commit": commit}
    return about | {"gpus": ", ".join(map(str, counts)), "most": counts[-1]}


def _sent(df: pd.DataFrame) -> pd.Series:
    """Bytes that ours sends, over those that the pattern requires."""
    mine = df[(df["contender"] == OURS) & (df["least_bytes"] > 0)]
    return mine["sent_bytes"] / mine["least_bytes"]


def _strong(df: pd.DataFrame) -> dict[str, Any]:
    """Efficiency on the most GPUs, of the largest matrix of each case, and how many times as long the fastest baseline
    takes there."""
    several = strong(df).query("gpus > 1")
    at = several[several["gpus"] == several["gpus"].max()].sort_values("nnz").drop_duplicates("case", keep="last")
    others = df[df["contender"] != OURS].sort_values("median_ms").drop_duplicates([*MATRIX, "gpus"])
    beside = at.merge(others[[*MATRIX, "gpus", "contender", "median_ms"]], on=[*MATRIX, "gpus"])
    of = {row.case: {"matrix": CASES[row.case], "efficiency": row.efficiency} for row in at.itertuples()}
    baseline = {
        row.case: {"matrix": CASES[row.case], "times": row.median_ms / row.ms, "contender": NAMES[row.contender]}
        for row in beside.itertuples()
    }
    return {"strong": {"gpus": several["gpus"].max(), "of": of}, "baseline": baseline}


def _grown(of: pd.DataFrame, mine: pd.DataFrame) -> dict[str, Any]:
    """Highest efficiency of a case; what one GPU makes of the series' first matrix, and of its largest one."""
    alone = mine[mine["gpus"] == 1].sort_values("nnz")
    ends = {"smaller": alone[alone["nnz"] == of["nnz"].min()].iloc[0], "larger": alone.iloc[-1]}
    known = {name: {"nnz": row["nnz"], "tflops": row["tflops"]} for name, row in ends.items()}
    return {"matrix": CASES[of["case"].iloc[0]], "efficiency": of["efficiency"].max(), **known}


def _beyond(df: pd.DataFrame) -> dict[str, Any]:
    """Of matrices that no GPU holds."""
    if df.empty:
        return {}
    return {
        "gpu": df["gpu"].iloc[0],
        **{name: df[name].max() for name in ("gpus", "prepare_s", "error")},
        "csr_bytes": {"low": df["csr_bytes"].min(), "high": df["csr_bytes"].max()},
        "of": {
            f"{row.case}{row.size}x{row.gpus}": {
                "matrix": CASES[row.case],
                "communication_ms": row.communication_ms,
                "ms": row.median_ms,
            }
            for row in df.itertuples()
        },
    }


def agrees(where: Path, shipped: Path | None = None) -> pd.DataFrame | None:
    """`agreement.compared` of the points that several GPUs measured; None without. shipped: records of one GPU."""
    of = agreement.read(where / DEALT)
    return None if of is None else agreement.compared(of, shipped or paths.RECORDED / where.name)


def dealt(of: pd.DataFrame | None) -> dict[str, Any]:
    """Of `agrees`: how far medians are off, and how far apart single rows are; nothing without any."""
    if of is None or of.empty:
        return {}
    off = (of["time"] - 1).abs()
    return {
        **{"points": of["points"].sum(), "gpus": of["gpus"].max(), "experiments": len(of)},
        **{"near": int((off < WITHIN).sum()), "within": WITHIN, "allowed": compare.TIME_TOLERANCE},
        "worst": {"experiment": of.loc[off.idxmax(), "experiment"], "off": off.max()},
        "rows_apart": (of["high"] - of["low"]).max(),
        "again_apart": (of["again_high"] - of["again_low"]).max(),
    }


# ---------------------------------------------------------------- tables


def rates(df: pd.DataFrame) -> pd.DataFrame | None:
    """Milliseconds of all contenders, and what of ours is what."""
    if df.empty:
        return None
    needs = df["least_bytes"].where((df["contender"] == OURS) & (df["least_bytes"] > 0))
    table = df.assign(matrix=_matrix(df), over_least=df["sent_bytes"] / needs, sent_gb=df["sent_bytes"] / 1e9)
    return _ordered(table.assign(contender=df["contender"].map(SHORT)).sort_values("contender"), ["size", "gpus"])


def times(df: pd.DataFrame) -> pd.DataFrame | None:
    """For each matrix and number of GPUs milliseconds of all, and how many times as fast as the others ours is."""
    mine = df[df["contender"] == OURS]
    if mine.empty:
        return None
    wide = df.pivot(index=[*MATRIX, "gpus"], columns="contender", values="median_ms")
    table = _ordered(mine.assign(matrix=_matrix(mine)), ["size", "n", "gpus"])
    for name in (name for name in NAMES if name in wide):
        others = table.join(wide[name].rename("ms"), on=[*MATRIX, "gpus"])["ms"]
        over = [f" ({ms / own:.2f}×)" for ms, own in zip(others, table["median_ms"], strict=True)]
        said = [f"{ms:.4g}{more}" for ms, more in zip(others, over if name != OURS else [""] * len(over), strict=True)]
        table[SHORT[name]] = pd.Series(said, table.index).where(others.notna(), "")
    return table


def _matrix(df: pd.DataFrame) -> pd.Series:
    return df["case"].map(BRIEF) + (df["nnz"] / 1e9).map(", {:.2g} · 10⁹".format)


def _ordered(df: pd.DataFrame, by: list[str]) -> pd.DataFrame:
    """Sorted by case, in the order of CASES, and by these columns."""
    place = df["case"].map(list(CASES).index)
    return df.assign(_place=place).sort_values(["_place", *by], kind="stable", ignore_index=True)


def beyond(where: Path) -> pd.DataFrame | None:
    """Matrices that no GPU holds: `beyond.csv` beside the records."""
    df = load(where, BEYOND)
    units = {"m": 1e6, "nnz": 1e9, "csr_bytes": 1e9, "sent_bytes": 1e9}
    scaled = {column: df[column] / unit for column, unit in units.items()}
    return df.assign(matrix=df["case"].map(CASES), **scaled) if len(df) else None


def schedules(where: Path, df: pd.DataFrame) -> pd.DataFrame | None:
    """What overlap took: times of the first schedule, of `tried.csv` beside the records, and of today's."""
    before, key = load(where, TRIED), [*MATRIX, "gpus"]
    now = before[key].merge(df[df["contender"] == OURS], on=key)
    first = before.merge(now[key], on=key).assign(schedule="pack, send, pack, send …")
    both = pd.concat([first, now.assign(schedule="pack all, then send, first in line")]).sort_index(kind="stable")
    return both.assign(matrix=both["case"].map(BRIEF)) if len(both) else None


def agreement_table(of: pd.DataFrame | None) -> pd.DataFrame | None:
    """Times of each experiment over those of one GPU: where dealt out, and in that GPU's own second run."""
    if of is None:
        return None
    apart = {
        name: [
            f"{low:.3f} to {high:.3f}" * (low == low) for low, high in zip(of[f"{at}low"], of[f"{at}high"], strict=True)
        ]
        for name, at in (("rows_apart", ""), ("again", "again_"))
    }
    return of.assign(experiment=of["room"] + "/" + of["experiment"], **apart)


def fits(df: pd.DataFrame) -> pd.DataFrame | None:
    """What the model was fitted to, a row for each case."""
    found = [vars(of) for case in CASES if (of := model.fit(df, case))]
    return pd.DataFrame(found).assign(case=[CASES[of["case"]] for of in found]) if found else None


# ---------------------------------------------------------------- claims of our own


def claims(df: pd.DataFrame) -> pd.DataFrame:
    """What this chapter claims: efficiency at four GPUs, and bytes; what was measured, and a verdict."""
    table = strong(df).sort_values("nnz")
    counts = (table["case"] != "graph") | (table["nnz"] >= LEAST_NNZ) & (table["n"] == 512)
    found = table[counts].drop_duplicates(["case", "gpus"], keep="last").set_index("gpus")
    rows = []
    for case, bar in BARS.items():
        of = found[found["case"] == case].sort_index()["efficiency"]
        fewer = of[(of.index > 1) & (of.index < AT)]
        what = " with at least 10⁹ non-zeros at N = 512" * (case == "graph")
        so_far = ", ".join(f"{x:.0%} at {gpus} GPUs" for gpus, x in fewer.items())
        verdict = "not measured yet" + ", missed on fewer" * bool((fewer < bar).any())
        if AT in of.index:
            so_far, verdict = f"{of[AT]:.0%}", "holds" if of[AT] >= bar else "does not hold"
        rows.append((f"strong scaling of the {CASES[case]}{what} at {AT} GPUs", f"≥ {bar:.0%}", so_far, verdict))
    sent = _sent(df).max()
    so_far, verdict = "", "not measured yet"
    if sent == sent:
        so_far, verdict = f"{sent:.3g}×", "holds" if sent <= MOST_SENT else "does not hold"
    text = "bytes sent over those that the pattern requires"
    rows.append((text, f"≤ {MOST_SENT:g}×", so_far, verdict))
    return pd.DataFrame(rows, columns=["ours", "bar", "measured", "verdict"])


# ---------------------------------------------------------------- beyond the machine


def predictions(df: pd.DataFrame) -> pd.DataFrame | None:
    """`model.predictions`, with the range of the efficiency where rows cross once for a domain; None where nothing is
    fitted."""
    table = model.predictions(df)
    if table.empty:
        return None
    scale = (table["efficiency"] * table["ms"]).where(table["way"] == model.WAYS[1])
    curve = table["case"].map(CASES) + ", " + table["way"]
    return table.assign(curve=curve, least=scale / table["high_ms"], most=scale / table["low_ms"])


# ---------------------------------------------------------------- what travels, computed as the page is made

ROWS = {"row of B is there": (True, style.BEST), "row of B travels": (False, style.PUBLISHED)}
SMALL: dict[str, Rmat | Stencil] = {"graph": Rmat(9, 8, 1), "mesh": Stencil(8, 1)}


def _whole(made: Rmat | Stencil) -> Any:
    return generate.host_part(made, np.array([0, made.m]), 0).a


def drawn_parts(parts: int = 4) -> tuple[Any, pd.DataFrame]:
    """(figure, data): small matrices cut into parts, entries by whether their row of B is there or travels."""
    fig, axes = plt.subplots(1, 2, figsize=(style.WIDTH, 4.0), layout="constrained")
    for ax, (case, made) in zip(axes, SMALL.items(), strict=True):
        a = _whole(made)
        edges = partition.by_nonzeros(a.row_ptr, parts)
        row = np.repeat(np.arange(a.m), np.diff(a.row_ptr))
        owner = np.searchsorted(edges, np.arange(a.m), side="right") - 1
        for there, colour in ROWS.values():
            of = (owner[row] == owner[a.col_idx]) == there
            ax.plot(a.col_idx[of], row[of], ".", markersize=1.4, color=colour)
        ax.hlines(edges[1:-1] - 0.5, 0, a.m, color=style.BOUND, linewidth=0.8)
        ax.set(title=CASES[case], xlim=(0, a.m), ylim=(a.m, 0), aspect="equal", xticks=[], yticks=[])
    looks: Any = {"marker": "o", "linestyle": "none"}
    plot.legend(fig, {name: Line2D([], [], color=colour, **looks) for name, (_, colour) in ROWS.items()})
    return fig, pd.concat([received(made, parts).assign(case=case) for case, made in SMALL.items()])


def received(made: Rmat | Stencil, parts: int) -> pd.DataFrame:
    """Of each part of a generated matrix, small enough for the host: its rows and non-zeros, the rows of B that it
    receives and those that others have."""
    a = _whole(made)
    edges = partition.by_nonzeros(a.row_ptr, parts)
    table, rows = exchange.volumes(a.row_ptr, a.col_idx, edges, edges), np.diff(edges)
    columns = {"part": range(parts), "rows": rows, "non-zeros": np.diff(a.row_ptr[edges])}
    columns |= {"rows of B received": table.sum(axis=1) - table.diagonal(), "rows that others have": a.m - rows}
    return pd.DataFrame(columns)


def own_parts(made: Rmat | Stencil, parts: int) -> pd.DataFrame:
    """`received`, and that over the rows that a part has."""
    data = received(made, parts)
    return data.assign(**{"received, over its own": data["rows of B received"] / data["rows"]})


def volumes(most: int = 6) -> pd.DataFrame:
    """Rows of B, or C, that travel for 2 … 2^most parts: by the pattern, all of B, by columns, 1.5D with 2 replicas; a
    row for each way, and how many that are over the rows of B."""
    found = []
    for case, made in SMALL.items():
        a = _whole(made)
        for parts in 2 ** np.arange(1, most + 1):
            edges, half = (partition.by_nonzeros(a.row_ptr, int(p)) for p in (parts, parts // 2))
            by_rows = exchange.sent(exchange.volumes(a.row_ptr, a.col_idx, edges, edges))
            whole = exchange.gathered(edges), (parts - 1) * a.m, _replicated(a, half) + a.m
            found.append((case, int(parts), a.m, by_rows, *whole))
    ways = ["by rows", "all of B", "by columns", "1.5D, 2 replicas"]
    wide = pd.DataFrame(found, columns=["case", "parts", "m", *ways])
    long = wide.melt(["case", "parts", "m"], ways, "way", "travel")
    return long.assign(over=long["travel"] / long.pop("m")).merge(wide.drop(columns="m"), on=["case", "parts"])


def _replicated(a: Any, edges: np.ndarray) -> int:
    """Rows of B that travel where each half of the columns is cut into as many parts as the rows are."""
    columns, total = partition.even(a.k, 2), 0
    for first, last in zip(columns, columns[1:], strict=False):
        inside = (a.col_idx >= first) & (a.col_idx < last)
        row_ptr = np.concatenate([[0], np.cumsum(inside)])[a.row_ptr]
        of = partition.even(int(last - first), len(edges) - 1)
        total += exchange.sent(exchange.volumes(row_ptr, a.col_idx[inside] - first, edges, of))
    return total
