"""Tables of the chapter: one function each, records in, a DataFrame of cells out (which may hold HTML)."""

from __future__ import annotations

import pandas as pd

from artifact.drawing import prose
from artifact.drawing.prose import captioned
from artifact.drawing.style import name
from artifact.drawing.words import shape
from artifact.profiling import ncu
from artifact.rooms.nm_spmm import counters, results
from artifact.rooms.nm_spmm.contenders import LADDER, NMSPARSE, nmsparse_in
from artifact.rooms.nm_spmm.machine_code import fullest
from artifact.rooms.nm_spmm.points import POINT, at, by_density, has, mean, of, over
from artifact.rooms.nm_spmm.trial import BIG, GROUP, SPARSITIES
from artifact.rooms.nm_spmm.words import sparsity
from artifact.verdicts.measures import NOT_CARRIED, NOT_REPRODUCED
from kernels import nm_spmm as room
from kernels.nm_spmm import analysis

BLOCK = analysis.TABLE_1["large"]


def _code(word: str) -> str:
    return f"<code>{word}</code>"


def _where(key: tuple) -> dict[str, str]:
    """The columns that name a point, (label, m, n, k, density)."""
    return {"m × n × k": shape(key[1:4]), "sparsity": sparsity(key[4])}


# ---------------------------------------------------------------- the kernels, the analysis


@captioned("The kernels: the file of each, its idea, and whose it is.")
def variants() -> pd.DataFrame:
    """Every variant: its file, its idea, whose it is."""
    return pd.DataFrame(
        {
            "variant": _code(variant),
            "file": _code(kernel.source.name),
            "idea": prose.inline_code(kernel.idea),
            "by": "the paper" if kernel.published else "ours",
        }
        for variant, kernel in room.VARIANTS.items()
    )


@captioned(lambda report, target: f"What the compiler makes of each kernel for {target}.")
def compiled(report: pd.DataFrame, target: str) -> pd.DataFrame:
    """Registers, shared memory, spills and multiply-adds of the variants that are compiled for the target."""
    rows = []
    ops = [c for c in report.columns if c.startswith(("HMMA", "HGMMA"))]
    for variant in room.VARIANTS:
        if (most := fullest(report, variant, target)) is None:
            continue
        own = report[(report["variant"] == variant) & (report["target"] == target)]
        used = sorted({int(own["registers"].min()), int(own["registers"].max())})
        rows.append(
            {
                "variant": _code(variant),
                "kernels": len(own),
                "registers": " to ".join(map(str, used)),
                "static shared memory [B]": f"{int(own['shared_bytes'].max()):,}",
                "spilling": int(own["spills"].astype(bool).sum()) or "none",
                "FFMA": int(most["FFMA"]),
                "of all instructions": f"{most['FFMA'] / most['instructions']:.0%}" if most["FFMA"] else "–",
                "tensor-core instructions": sum(int(most[op]) for op in ops) or "–",
            }
        )
    return pd.DataFrame(rows)


@captioned("The three blockings of the paper's Table I, and what Eq. 6 says of them.")
def blockings() -> pd.DataFrame:
    """Table I, with what Eq. 6 says of it."""
    return pd.DataFrame(
        {
            "class": label,
            "block": f"{t.rows} × {t.columns}",
            "warp": f"{t.warp[0]} × {t.warp[1]}",
            "thread": f"{t.thread[0]} × {t.thread[1]}",
            "threads": t.threads,
            "FMA per 16-byte load": f"{analysis.cmar(*t.thread):.1f}",
            "registers for C, A, B": analysis.registers(*t.thread),
        }
        for label, t in analysis.TABLE_1.items()
    )


@captioned("What the analysis proposes on this GPU for the sizes of Table II, beside what Table I has.")
def proposed(here: analysis.Device) -> pd.DataFrame:
    """What the analysis proposes on a GPU for the sizes of Table II, beside what that has."""
    rows = []
    for label, (expected, (m, n, k)) in analysis.TABLE_2.items():
        chosen = analysis.class_of(here, m, n)
        row = {
            "": label,
            "m × n × k": shape((m, n, k)),
            "class in Table II": expected,
            "class here": chosen,
            "blocks per SM": f"{analysis.TABLE_1[chosen].blocks(m, n) / here.sm_count:.1f}",
        }
        for d in SPARSITIES:
            t = analysis.propose(here, m, n, k, round(d * GROUP), GROUP)
            row[f"k_s at {sparsity(d)}"] = f"{t.windows * GROUP}{', packed' if t.packed else ''}"
        rows.append(row)
    return pd.DataFrame(rows)


# ---------------------------------------------------------------- the paper's figures


@captioned("V3 with packed rows of A and with all rows staged, by sparsity.")
def packing(packed: pd.DataFrame) -> pd.DataFrame:
    """V3 packed and with all rows staged, by sparsity."""
    rate = {v: of(packed, v, "tflops") for v in ("v3_packed", "v3_unpacked")}
    return pd.DataFrame(
        {
            "sparsity": sparsity(d),
            "rows of A needed by 4 vectors": f"{analysis.needed_share(d, 4):.0%}",
            "packed [TFLOP/s]": f"{mean(at(rate['v3_packed'], d)):.1f}",
            "whole [TFLOP/s]": f"{mean(at(rate['v3_unpacked'], d)):.1f}",
            "packed over whole": f"{ratio:.2f}×",
        }
        for d, ratio in results.won_by_packing(packed).items()
    )


@captioned("The fastest of the three blockings at each size of Table II, by sparsity.")
def best_of_three(by_size: pd.DataFrame, shapes: dict[str, tuple[int, int, int]]) -> pd.DataFrame:
    """The fastest of the classes of Table I at each size of Table II and each sparsity."""
    best = results.by_class(by_size)[results.CLASSES].idxmin(axis=1)
    rows = []
    for label, size in shapes.items():
        mine = best[[key[1:4] == size for key in best.index]]
        mine = mine.sort_index(level="density", ascending=False)
        row = {"": label, "m × n × k": shape(size), "Table II": analysis.TABLE_2[label][0]}
        rows.append(row | {sparsity(key[-1]): chosen for key, chosen in mine.items()})
    return pd.DataFrame(rows)


@captioned(
    "Each blocking over the best of the three at each matrix of Table II; published beside measured, with one pass in "
    "brackets."
)
def fig8(by_size: pd.DataFrame, stated: pd.DataFrame) -> pd.DataFrame:
    """The three kernels at each matrix of Table II, each over the best of the three, geometric means over the
    sparsities that both have: here, and as the authors published it for a GPU of theirs, with the best of split-K and
    with one pass."""
    rows = []
    for label, (_, size) in analysis.TABLE_2.items():
        theirs = stated[(stated[["m", "n", "k"]] == list(size)).all(axis=1)]
        ours = by_size[(by_size[["m", "n", "k"]] == list(size)).all(axis=1)]
        kept = sorted(set(ours["density"]) & set(theirs["density"]))
        if not kept:
            continue
        row: dict[str, str] = {"matrix": f"{label}: {shape(size)}"}
        for head, df, who, rate in (
            ("here", ours, "variant", "tflops"),
            ("theirs", theirs, "library", "tflops"),
            ("one pass", theirs, "library", "tflops_one_pass"),
        ):
            table = df[df["density"].isin(kept) & df[who].isin(results.CLASSES)]
            table = table.pivot(index="density", columns=who, values=rate)
            share = table.div(table.max(axis=1), axis=0)
            for kernel in filter(share.__contains__, results.CLASSES):
                cell = f"{mean(share[kernel]):.2f}×"
                if head == "one pass":  # in brackets, behind theirs
                    row[f"{kernel}, theirs"] += f" ({cell})"
                else:
                    row[f"{kernel}, {head}"] = cell
        rows.append(row)
    return pd.DataFrame(rows)


@captioned(
    "Geometric means of speedups over cuBLAS on layers of Llama, beside those that the authors published of an A100."
)
def llama(df: pd.DataFrame, fig9: pd.DataFrame) -> pd.DataFrame:
    """Geometric means over the layers of Llama by sparsity, beside the published ones of the A100."""
    other = nmsparse_in(set(df["variant"]))
    dense = {v: over(df, v, "cublas") for v in ("auto", "v3", other)}
    theirs = {v: over(df, v, other) for v in ("auto", "v3")}
    kept = [d for d in by_density(dense["auto"]).index if d in SPARSITIES]
    return pd.DataFrame(
        {
            "sparsity": sparsity(d),
            "ideal": f"{1 / d:.2f}×",
            "auto": f"{mean(at(dense['auto'], d)):.2f}×",
            "V3": f"{mean(at(dense['v3'], d)):.2f}×",
            NMSPARSE[other]: f"{mean(at(dense[other], d)):.2f}×",
            "auto over it": f"{mean(at(theirs['auto'], d)):.2f}×",
            "V3 over it": f"{mean(at(theirs['v3'], d)):.2f}×",
            "NM-SpMM, A100": f"{results.published_mean(fig9, 'A100', 'nm_spmm', d):.2f}×",
            "nmSPARSE, A100": f"{results.published_mean(fig9, 'A100', 'nmsparse', d):.2f}×",
        }
        for d in kept
    )


@captioned("`auto` beside the authors' kernels: at 4096³, and over all shapes.")
def against_authors(bars: results.Bars) -> pd.DataFrame:
    """`auto` and the authors' kernels at 4096³, and over all shapes, by sparsity."""
    rows = []
    for d in bars.over_shapes.index:
        theirs, there = bars.theirs["nm_spmm", BIG, BIG, BIG, d], d in bars.at_step.index
        rows.append(
            {
                "sparsity": sparsity(d),
                f"authors at {BIG}³": f"{theirs:.2f}×",
                "auto": f"{theirs * bars.at_step[d]:.2f}×" if there else "–",
                "auto over theirs": f"{bars.at_step[d]:.2f}×" if there else "–",
                "over all shapes": f"{bars.over_shapes[d]:.2f}×",
            }
        )
    return pd.DataFrame(rows)


@captioned(
    "Our rebuildings over the authors' own kernels in one run: geometric means of speedups, and ranges over shapes."
)
def side_by_side(beside: pd.DataFrame) -> pd.DataFrame:
    """beside: others/<gpu>/rebuilt.csv."""
    columns = {
        _code(variant): speeds.groupby(level="density", sort=False).agg(
            lambda own: f"{mean(own):.2f}× ({own.min():.2f} to {own.max():.2f})"
        )
        for variant, speeds in results.rebuilt(beside).items()
    }
    found = pd.DataFrame(columns)
    found.insert(0, "sparsity", found.index.map(sparsity))
    return found


@captioned("Useful work in per cent of the FMA ceiling while profiled, beside what the paper states.")
def roofline(rows: pd.DataFrame, fma: float, stated: pd.DataFrame) -> pd.DataFrame:
    """Share of the FMA ceiling by contender and sparsity, while profiled, beside what the source states.

    rows: the data behind the roofline. stated: the source's text.
    """
    tflops = rows[rows["source"] == "measured"].set_index(["variant", "density"])["tflops"]
    peaks = stated[stated["quantity"] == "peak_share"].set_index(["variant", "density"])["low"]
    cells = []
    shown = set(tflops.index.get_level_values("variant"))
    for v, library in (("auto", ""), ("v3", "nm_spmm"), (nmsparse_in(shown), "nmsparse")):
        row = {"contender": name(v)}
        for d in (d for d in SPARSITIES if (v, d) in tflops.index):
            theirs = f" (paper: {peaks[library, d]:.0%})" if (library, d) in peaks else ""
            row[sparsity(d)] = f"{tflops[v, d] / fma:.0%}{theirs}"
        cells.append(row)
    return pd.DataFrame(cells)


# ---------------------------------------------------------------- our ladder


@captioned("Each rung over the one before: what was expected, and what came.")
def predictions(outcome: pd.DataFrame) -> pd.DataFrame:
    """outcome: `results.outcome`."""
    return pd.DataFrame(
        {
            "rung": _code(row["rung"]),
            "idea": prose.inline_code(room.VARIANTS[row["rung"]].idea),
            "predicted": prose.inline_code(row["prediction"]) or "–",
            "came of it": f"{row['came']:.2f}× over {_code(row['over'])} at {row['at']}; "
            f"all: {row['from']:.2f} to {row['to']:.2f}×",
        }
        for row in outcome.to_dict("records")
    )


@captioned("Useful TFLOP/s and share of the FMA ceiling, by sparsity.")
def sustained(rate: dict[str, pd.Series], fma: float, rungs: list[str]) -> pd.DataFrame:
    """TFLOP/s and share of the FMA ceiling of V3, our rungs and `auto`, by sparsity."""
    return pd.DataFrame(
        {"": _code(v)} | {sparsity(d): f"{tflops:.1f} ({tflops / fma:.0%})" for d, tflops in rate[v].items()}
        for v in ("v3", *rungs, "auto")
        if v in rate
    )


@captioned("Ideas that are no rung: what each was, what was expected of it, and what came.")
def trials(outcomes: pd.DataFrame) -> pd.DataFrame:
    """outcomes: `results.trials`."""
    return pd.DataFrame(
        {
            "trial": _code(row.trial),
            "what, and what was expected": f"{prose.inline_code(row.idea)}. <em>{prose.inline_code(row.expected)}</em>",
        }
        | {sparsity(d): f"{ratio:.2f}×" for d, ratio in row.came.items()}
        for row in outcomes.itertuples()
    )


@captioned("Clashes of register banks in the main loop, and the ceiling if every clash cost a cycle.")
def clashes(found: pd.DataFrame, best: dict[str, float]) -> pd.DataFrame:
    """found: `machine_code.clashes`. best: variant -> the largest share of the FMA ceiling that it reached."""
    return pd.DataFrame(
        {
            "variant": _code(v),
            "FFMA of all instructions": f"{row.useful:.0%}",
            "of them with a clash": f"{row.clash:.0%}",
            "ceiling if every clash cost a cycle": f"{row.left:.0%}",
            "reached, best sparsity": f"{best[v]:.0%}" if v in best else "–",
        }
        for v, row in zip(found.index, found.itertuples(), strict=True)
    )


@captioned(
    lambda counted, density: (
        f"How busy each part of the GPU is at {BIG}³ and {sparsity(density)} sparsity (Nsight Compute)."
    )
)
def pipes(counted: counters.Counters, density: float) -> pd.DataFrame:
    """How busy each part of the GPU is, by contender."""
    return pd.DataFrame(
        {
            "contender": name(v),
            "µs": f"{counted.get(v, density, ncu.TIME) / 1e3:.0f}",
            "FFMA of all issued": f"{counted.ffma_share(v, density):.0%}",
        }
        | {what: f"{counted.get(v, density, metric):.0f}" for what, metric in counters.PIPES.items()}
        for v in counted.profiled
    )


@captioned(
    lambda counted, density: (
        f"Warps that wait per instruction issued, by reason, at {BIG}³ and {sparsity(density)} sparsity."
    )
)
def stalls(counted: counters.Counters, density: float) -> pd.DataFrame:
    """Warps that wait per instruction issued, by contender and reason."""
    return pd.DataFrame(
        {"contender": name(v)} | {what: f"{counted.stalled(v, density, r):.2f}" for what, r in counters.STALLS.items()}
        for v in counted.profiled
    )


# ---------------------------------------------------------------- beyond the paper


@captioned("Microseconds where there are fewer tiles of 64 × 128 than SMs.")
def few_tiles(anchored: pd.DataFrame, sms: int) -> pd.DataFrame:
    """µs where there are fewer tiles of 64 × 128 than SMs; empty where no point has."""
    cuts = [v for v in ("v3", "v3_split_k", *LADDER, "auto") if has(anchored, v)]
    rows = []
    for key in of(anchored, "auto").index:
        if (blocks := BLOCK.blocks(key[1], key[2])) < sms:
            row = _where(key) | {"tiles of 64 × 128 per SM": f"{blocks / sms:.2f}"}
            rows.append(row | {f"{v} [µs]": f"{of(anchored, v)[key]:.1f}" for v in cuts})
    return pd.DataFrame(rows)


def few_tiles_gain(anchored: pd.DataFrame, sms: int) -> pd.DataFrame:
    """The points of `few_tiles`, a row each: how many times as fast as V3 is each other contender."""
    table = few_tiles(anchored, sms)
    times = table.filter(like=" [µs]").astype(float)
    times.columns = [column.removesuffix(" [µs]") for column in times]
    places = table[[c for c in table if "[" not in c and "tiles" not in c]].astype(str)
    labels = places.agg(" · ".join, axis=1)
    return times.rdiv(times["v3"], axis=0).drop(columns="v3").set_axis(labels, axis=0)


@captioned("Sizes that no tile divides: useful TFLOP/s and speedups.")
def ragged(df: pd.DataFrame) -> pd.DataFrame:
    """Sizes that no tile divides: TFLOP/s of V3 and `auto`, and speedups."""
    rate = {v: of(df, v, "tflops") for v in ("v3", "auto")}
    ratios = {
        "auto over cuBLAS": over(df, "auto", "cublas"),
        "over V3": over(df, "auto", "v3"),
        "V3 over cuBLAS": over(df, "v3", "cublas"),
    }
    return pd.DataFrame(
        _where(key)
        | {f"{name(v)} [TFLOP/s]": f"{rate[v][key]:.1f}" for v in rate}
        | {what: f"{ratio[key]:.2f}×" for what, ratio in ratios.items()}
        for key in rate["auto"].index
    )


def best_csr(loose: pd.DataFrame) -> pd.Series:
    """µs of cuSPARSE's best algorithm at each point."""
    rows = loose[loose["variant"].str.startswith("cusparse")]
    return rows.groupby(POINT)["median_us"].min()


@captioned("Speedups over cuSPARSE's best algorithm on the same B as CSR.")
def unstructured(loose: pd.DataFrame) -> pd.DataFrame:
    """Speedups over cuSPARSE's best algorithm."""
    csr = best_csr(loose)
    named = {"auto": "auto", "v3": "V3"} | NMSPARSE | {"cublas": "dense cuBLAS"}
    shown = {v: label for v, label in named.items() if (loose["variant"] == v).any()}
    times = {v: of(loose, v) for v in shown}
    return pd.DataFrame(
        _where(key) | {f"{label} over cuSPARSE": f"{csr[key] / times[v][key]:.1f}×" for v, label in shown.items()}
        for key in dict.fromkeys(times["auto"].index)
    )


@captioned("Claims that do not hold here, and why.")
def failed(verdicts: pd.DataFrame) -> pd.DataFrame:
    """Claims that were not reproduced or do not carry over, with the reasons; empty where there are none."""
    columns = {"says": "claim", "published": "published", "measured": "measured", "why": "why"}
    rows = verdicts[verdicts["verdict"].isin([NOT_REPRODUCED, NOT_CARRIED])]
    if "reason" in rows:
        rows = rows.assign(why=rows["reason"].where(rows["reason"] != "", rows["why"]))
    return pd.DataFrame(
        {called: prose.inline_code(str(row[column])) for column, called in columns.items()}
        for row in rows.to_dict("records")
    )
