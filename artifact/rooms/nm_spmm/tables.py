"""The chapter's tables: records in, a plain DataFrame out; tables.toml says how it is written."""

from __future__ import annotations

import pandas as pd

from artifact.book.study import pivot
from artifact.drawing.words import shape
from artifact.measure.records import geomean
from artifact.rooms.nm_spmm import results
from artifact.rooms.nm_spmm.model import kept
from artifact.rooms.nm_spmm.results import CLASSES, sizes_of
from artifact.rooms.nm_spmm.study import (
    BIG,
    DENSITIES,
    GROUP,
    PLACE,
    POINT,
    SPARSITIES,
    Spmm,
    by_density,
    over,
    rates,
    sparsity,
)
from artifact.verdicts.measures import NOT_CARRIED, NOT_REPRODUCED
from kernels import nm_spmm as room
from kernels.nm_spmm import analysis


def placed(df: pd.DataFrame) -> pd.DataFrame:
    """Return a table by `POINT` with the sizes and the sparsity of its points in words, as first columns."""
    where = {"shape": [shape(at[1:4]) for at in df.index], "sparsity": [sparsity(at[4]) for at in df.index]}
    return pd.DataFrame(where, df.index).join(df)


def variants() -> pd.DataFrame:
    """Return every variant: its file, its idea, whose it is."""
    rows = [(v, k.source.name, k.idea, "the paper" if k.published else "ours") for v, k in room.VARIANTS.items()]
    return pd.DataFrame(rows, columns=["variant", "file", "idea", "by"])


def blockings() -> pd.DataFrame:
    """Return Table I, with what Eq. 6 says of it."""
    rows = [
        {"class": label, "block": f"{t.rows} × {t.columns}", "warp": "{} × {}".format(*t.warp), "threads": t.threads}
        | {"thread": "{} × {}".format(*t.thread), "fma": analysis.cmar(*t.thread)}
        | {"registers": analysis.registers(*t.thread)}
        for label, t in analysis.TABLE_1.items()
    ]
    return pd.DataFrame(rows)


def proposed(here: analysis.Device) -> pd.DataFrame:
    """Return what the analysis proposes on a GPU for the sizes of Table II, beside what that has."""
    rows = []
    for label, (expected, (m, n, k)) in analysis.TABLE_2.items():
        chosen = analysis.class_of(here, m, n)
        blocks = analysis.TABLE_1[chosen].blocks(m, n) / here.sm_count
        steps = [analysis.propose(here, m, n, k, kept(d), GROUP) for d in SPARSITIES]
        depths = [f"{t.windows * GROUP}{', packed' if t.packed else ''}" for t in steps]
        rows.append((label, shape((m, n, k)), expected, chosen, blocks, *depths))
    columns = ["size", "shape", "expected", "chosen", "blocks", *(f"k_s at {sparsity(d)}" for d in SPARSITIES)]
    return pd.DataFrame(rows, columns=columns)


# ---------------------------------------------------------------- the paper's figures


def packing(packed: pd.DataFrame) -> pd.DataFrame:
    """Return TFLOP/s of V3 packed and with all rows staged, by sparsity, and what four vectors need of A's rows."""
    df = rates(packed).assign(won=results.won_by_packing(packed)).reset_index()
    needed = [analysis.needed_share(d, 4) for d in df["density"]]
    return df.assign(sparsity=df["density"].map(sparsity), needed=needed)


def best_of_three(by_size: pd.DataFrame) -> pd.DataFrame:
    """Return the fastest of the classes of Table I at each size of Table II and each sparsity."""
    best = pivot(by_size, "median_us", PLACE)[CLASSES].idxmin(axis=1).unstack("density")
    best = best[sorted(best, reverse=True)].rename(columns=sparsity).reset_index()
    sizes = sizes_of(best)
    expected = [analysis.TABLE_2[label][0] for label in sizes]
    return best.assign(size=sizes, shape=[shape(at) for at in best[["m", "n", "k"]].to_numpy()], expected=expected)


def fig8(by_size: pd.DataFrame, stated: pd.DataFrame) -> pd.DataFrame:
    """Return the three kernels at each matrix of Table II, each over the best of the three, geometric means over the
    sparsities that both have: here, and as the authors published it for a GPU of theirs, with the best of split-K and
    with one pass."""
    ours, one_pass = by_size.rename(columns={"variant": "library"}), stated.assign(tflops=stated["tflops_one_pass"])
    heads = {"here": ours, "theirs": stated, "theirs, one pass": one_pass}
    df = pd.concat(heads, names=["head"]).reset_index("head").query("library in @CLASSES")
    df = df[df.groupby(PLACE)["head"].transform("nunique") == len(heads)]
    share = df["tflops"] / df.groupby([*PLACE, "head"])["tflops"].transform("max")
    df = df.assign(share=share, size=sizes_of(df))
    means = df.pivot_table(index="size", columns=["library", "head"], values="share", aggfunc=geomean)[CLASSES]
    matrix = [f"{label}: {shape(analysis.TABLE_2[label][1])}" for label in means.index]
    return means.set_axis([", ".join(column) for column in means], axis=1).assign(matrix=matrix)


def llama(df: pd.DataFrame, fig9: pd.DataFrame) -> pd.DataFrame:
    """Return geometric means over the layers of Llama by sparsity, beside the published ones of the A100."""
    pairs = {v: (v, "cublas") for v in ("auto", "v3", "nmsparse_vw32")}
    pairs |= {f"{v} over it": (v, "nmsparse_vw32") for v in ("auto", "v3")}
    means = {column: by_density(over(df, *pair)) for column, pair in pairs.items()}
    theirs = results.published_speedups(fig9[fig9["gpu"] == "A100"]).groupby(["density", "library"])["speedup"]
    found = pd.DataFrame(means).join(theirs.agg(geomean).unstack()).reset_index()
    return found.assign(sparsity=found["density"].map(sparsity), ideal=1 / found["density"])


def against_authors(anchored: pd.DataFrame, theirs: pd.DataFrame) -> pd.DataFrame:
    """Return `auto` and the authors' kernels at 4096³, and over all shapes, by sparsity."""
    auto = results.against(anchored, theirs)["auto"].dropna()
    big = theirs[(theirs["library"] == "nm_spmm") & (theirs[["m", "n", "k"]] == BIG).all(axis=1)]
    df = pd.DataFrame({"all": by_density(auto), "theirs": big.set_index("density")["speedup"]})
    at_big = auto[[at[:3] == (BIG, BIG, BIG) for at in auto.index]].droplevel(["m", "n", "k"])
    df = df.assign(over=at_big, auto=df["theirs"] * at_big).sort_index(ascending=False)
    return df.assign(sparsity=df.index.map(sparsity))


def side_by_side(beside: pd.DataFrame) -> pd.DataFrame:
    """Return our rebuildings over the authors' own kernels in one run: means and ranges. beside: rebuilt.csv."""
    groups = beside.groupby(["density", "library"], sort=False)["speedup"]
    found = groups.agg(lambda own: f"{geomean(own):.2f}× ({own.min():.2f} to {own.max():.2f})").unstack()
    return found.sort_index(ascending=False).rename(index=sparsity).reset_index(names="sparsity")


def roofline(study: Spmm, counted: pd.DataFrame) -> pd.DataFrame:
    """Return the share of the FMA ceiling by contender and sparsity, while profiled, beside what the source states."""
    share = counted.pivot(index="variant", columns="density", values="tflops") / study.fma
    said = results.peak_shares(study).pivot(index="variant", columns="density", values="stated")
    shown = share.loc[["auto", "v3", "nmsparse_vw32"], list(SPARSITIES)]
    theirs = said.reindex_like(shown).map(" (paper: {:.0%})".format, na_action="ignore").fillna("")
    return (shown.map("{:.0%}".format) + theirs).rename(columns=sparsity).reset_index()


# ---------------------------------------------------------------- our ladder


def predictions(outcome: pd.DataFrame) -> pd.DataFrame:
    """Return each rung with what was predicted and what came, in words. outcome: `results.outcome`."""
    came = [
        f"{at.came:.2f}× over `{at.over}` at {at.at}; all: {at.low:.2f} to {at.high:.2f}×"
        for at in outcome.itertuples()
    ]
    return outcome.assign(came=came)


def sustained(stepwise: pd.DataFrame, fma: float, rungs: list[str]) -> pd.DataFrame:
    """Return TFLOP/s and share of the FMA ceiling of V3, our rungs and `auto`, by sparsity."""
    rate = rates(stepwise)[["v3", *[v for v in rungs if v in set(stepwise["variant"])], "auto"]]
    shown = rate.map("{:.1f}".format) + (rate / fma).map(" ({:.0%})".format)
    return shown.rename(index=sparsity).T.reset_index()


def trials(outcomes: pd.DataFrame) -> pd.DataFrame:
    """Return what each trial was, and what came by sparsity. outcomes: `results.trials`."""
    df = outcomes.assign(density=outcomes["density"].map(sparsity))
    return df.pivot_table(
        index=["trial", "idea", "expected"], columns="density", values="came", sort=False
    ).reset_index()


def counters(counted: pd.DataFrame) -> pd.DataFrame | None:
    """Return what the counters say at 50 and 87.5% sparsity; None without them. counted: `results.counters`."""
    rows = counted[counted["density"].isin(DENSITIES)].sort_values("density", ascending=False, kind="stable")
    return rows.assign(sparsity=rows["density"].map(sparsity)) if len(rows) else None


# ---------------------------------------------------------------- beyond the paper


def few_tiles(anchored: pd.DataFrame, sms: int) -> pd.DataFrame | None:
    """Return µs where there are fewer tiles of 64 × 128 than SMs; None where no point has."""
    us = results.few_tiles(anchored, sms)
    return placed(us.rename(columns={v: f"{v} [µs]" for v in us.columns[1:]})) if len(us) else None


def ragged(df: pd.DataFrame) -> pd.DataFrame:
    """Return TFLOP/s of V3 and `auto`, and speedups, at sizes that no tile divides."""
    pairs = {"auto over cuBLAS": ("auto", "cublas"), "over V3": ("auto", "v3"), "V3 over cuBLAS": ("v3", "cublas")}
    return placed(pivot(df, "tflops", POINT).assign(**{column: over(df, *pair) for column, pair in pairs.items()}))


def unstructured(loose: pd.DataFrame) -> pd.DataFrame:
    """Return speedups over cuSPARSE's best algorithm."""
    us = pivot(loose, "median_us", POINT)[["auto", "v3", "nmsparse_vw32", "nm_baseline", "cublas"]]
    return placed(us.rdiv(results.best_csr(loose).reindex(us.index), axis=0))


def failed(verdicts: pd.DataFrame) -> pd.DataFrame:
    """Return claims that were not reproduced or do not carry over, with the reasons."""
    rows = verdicts[verdicts["verdict"].isin([NOT_REPRODUCED, NOT_CARRIED])].astype(str)
    return rows.assign(why=rows["reason"].where(rows["reason"] != "", rows["why"]))
