"""What the chapter asks of one GPU.

Its experiments and who is in each, ceilings, what its source and others gave, what follows from its records; and what
is known before a kernel runs: the paper's analysis with this GPU's measured ceilings, Eq. 3 to 6, how long the parts of
a step take, and what the compiler makes of the system's kernels.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cached_property, partial
from math import ceil, prod

import numpy as np
import pandas as pd

from artifact.book import study
from artifact.book.text import shape, times
from artifact.drawing import compiled as made_by_compiler
from artifact.measure import bench, external, records
from artifact.profiling import ncu
from kernels import autotune, jit, nm_spmm as system
from kernels.contract import Problem
from kernels.formats import nm
from kernels.nm_spmm import analysis, banks, family, launch as launching, published

GROUP = VECTOR = 32  #: the paper's window and vector
SPARSITIES = (0.5, 0.375, 0.25, 0.125)  #: of the paper, as shares that are kept
DENSITIES = HALF, SPARSE = (0.5, 0.125)  #: that tables of counters show
BIG = 4096  #: the size at which single kernels are compared
#: What tells one point of a record from another; of what others measured, which has no labels.
POINT, PLACE = ["label", "m", "n", "k", "density"], ["m", "n", "k", "density"]
#: Our rungs in their order: name -> configuration, idea, prediction; those tried and not kept likewise.
RUNGS, TRIALS = family.RUNGS, family.TRIALS
FOR_FEW = [v for v, (config, *_) in RUNGS.items() if config.split > 1]  #: rungs that cut K, for few tiles
ABOUT_C = [v for v in RUNGS if v not in FOR_FEW]
CLASSES = ["small", "medium", "large"]
#: Who stands for nmSPARSE: rebuilt to the letter, and in its style.
NMSPARSE = ("nmsparse_vw32", "nm_baseline")
#: Type -> its kernel and library, of the tensor cores.
DTYPES = {"tf32": ["tf32", "cublas_tf32"], "bfloat16": ["bf16", "cublas_bf16"]}
LIBRARIES = ["auto", "cublas", "nm_baseline", "nmsparse_vw32"]
#: Experiment -> contenders; it is of GPUs that take the first of them.
CONTENDERS = {
    "stepwise": ["v1", "v2", "v3", *ABOUT_C, *LIBRARIES],
    "sizes": [*CLASSES, "square", "auto", "cublas"],
    "llama": ["v3", *LIBRARIES],
    "anchors": ["v3", "v3_split_k", "v3_searched", "ahead", ABOUT_C[-1], *FOR_FEW, *LIBRARIES],
    "packing": ["v3_packed", "v3_unpacked"],
    "tried": ["bulk", "rolled", "turned", *TRIALS],
    "vectors": ["v3", "auto"],
    "ragged": ["v3", "auto", "cublas"],
    "unstructured": ["v3", "auto", "nm_baseline", "nmsparse_vw32", "cublas"],
} | {f"tensor_{dtype}": names for dtype, names in DTYPES.items()}
PROFILED = ["v1", "v2", "v3", *RUNGS, "auto", "nm_baseline", "nmsparse_vw32", "cublas"]
#: Metric -> column of `Spmm.counted`; from "FMA pipe [%]" on in per cent, then warps that wait per instruction issued.
METRICS = {
    ncu.TIME: "ns",
    "sm__sass_thread_inst_executed_op_ffma_pred_on.sum": "ffma",
    "smsp__inst_executed.sum": "issued",
    "dram__bytes_read.sum": "dram_read",
    "dram__bytes_write.sum": "dram_write",
    "lts__t_sectors_op_read.sum": "l2_read",
    "lts__t_sectors_op_red.sum": "l2_red",
    "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum": "wavefronts",
    "sm__inst_executed_pipe_fma.avg.pct_of_peak_sustained_active": "FMA pipe [%]",
    "smsp__issue_active.avg.pct_of_peak_sustained_active": "issue slots [%]",
    "l1tex__data_pipe_lsu_wavefronts.avg.pct_of_peak_sustained_elapsed": "shared memory [%]",
    "lts__throughput.avg.pct_of_peak_sustained_elapsed": "L2 [%]",
    "dram__throughput.avg.pct_of_peak_sustained_elapsed": "DRAM [%]",
    "sm__warps_active.avg.pct_of_peak_sustained_active": "warps [%]",
    ncu.STALLED.format("dispatch_stall"): "dispatch",
    ncu.STALLED.format("short_scoreboard"): "shared",
    ncu.STALLED.format("long_scoreboard"): "memory",
    ncu.STALLED.format("barrier"): "barrier",
    ncu.STALLED.format("no_instruction"): "instructions",
    ncu.STALLED.format("not_selected"): "not selected",
}
BLOCK = analysis.TABLE_1["large"]
#: Size -> its label in Table II.
SIZES = {size: label for label, (_, size) in analysis.TABLE_2.items()}

#: A column of a contender's rows, and the speedup of a contender over another, by `POINT`.
by, over = partial(study.by, key=POINT), partial(study.ratio, key=POINT)


def brief(contenders, device, *, budget_s, verify=None):
    """`bench.time` with a third of the time, for experiments of hundreds of points that are looked at together."""
    return bench.time(contenders, device, budget_s=budget_s / 3, verify=verify)


class Spmm(study.Study):
    """NM-SpMM on one GPU."""

    def takes(self, name: str) -> bool:
        """Tell whether a contender is for this GPU: libraries are, and kernels compiled for it or for all."""
        targets = set(
            system.VARIANTS[name].targets
            if name in system.VARIANTS
            else (family.HOPPER if name in TRIALS else jit.TARGETS)
        )
        return name == "auto" or self.arch in targets or targets == set(jit.TARGETS)  # `auto` tries what the GPU has

    def measure(self, experiment: str) -> pd.DataFrame | None:
        """Measure an experiment's contenders that this GPU takes, or read them from records.

        None where it does not take the first. Raises FileNotFoundError, one sentence, without records.
        """
        names, (sweep, _, dtype) = CONTENDERS[experiment], experiment.partition("_")
        if not self.takes(names[0]):
            return None
        every = (
            self.run.variants()
            | self.run.baselines()
            | {v: partial(launching.prepare_rung, v, device=self.run.device) for v in TRIALS}
        )
        csr = [v for v in every if v.startswith("cusparse") and experiment == "unstructured"]
        return self.run.measure(
            experiment,
            [
                partial(system.problem, **at, seed=self.run.seed)
                for at in system.sweeps(self.run.preset)[sweep]
                if not dtype or at["dtype"] == dtype
            ],
            {v: every[v] for v in (*names, *csr) if self.takes(v)},
            brief if experiment in ("llama", "tried") else bench.time,
        )

    def tensor(self) -> pd.DataFrame | None:
        """Measure the tensor cores' experiments of both types; None where the GPU takes neither."""
        known = [df for dtype in DTYPES if (df := self.measure(f"tensor_{dtype}")) is not None]
        return pd.concat(known, ignore_index=True) if known else None

    def others(self, name: str) -> external.Others:
        """Return what the code of others gave, "anchors" or "rebuilt": on this GPU, or on the nearest thing to it."""
        return external.nearest(self.run.room, name, self.run.gpu)

    @cached_property
    def gbps(self) -> dict[str, float]:
        """GB/s of DRAM, L2 and shared memory, measured."""
        return {what: self.ceiling(name, "gbps") for what, name in study.MEMORIES.items()}

    @cached_property
    def here(self) -> analysis.Device:
        """The GPU, with its measured ceilings."""
        of, peak = self.machine, self.ceiling("fma", "tflops")
        return analysis.Device(of["gpu"], of["sm_count"], peak, self.gbps["DRAM"], of["shared_bytes_per_sm"])

    @property
    def fma(self) -> float:
        """The measured FMA ceiling, TFLOP/s."""
        return self.here.peak_tflops

    @cached_property
    def arch(self) -> str:
        """The GPU's generation as compilers name it, "sm_90a"."""
        capability = self.machine["compute_capability"]
        return f"sm_{capability.replace('.', '')}{'a' if capability == '9.0' else ''}"

    @cached_property
    def target(self) -> str:
        """Of those compiled here, the nearest to the GPU of this page."""
        generation = {t: int(re.sub(r"\D", "", t)) for t in (*jit.TARGETS, self.arch)}
        able = [t for t in jit.TARGETS if generation[t] <= generation[self.arch]]
        return self.arch if self.arch in able else able[-1]

    @cached_property
    def report(self) -> pd.DataFrame:
        """Every entry, compiled here for the page's target."""
        return self.run.compile_report(self.target)

    @property
    def rungs(self) -> list[str]:
        """Our rungs that this GPU takes."""
        return [v for v in RUNGS if self.takes(v)]

    @cached_property
    def counted(self) -> pd.DataFrame:
        """What Nsight Compute counted at 4096³, a row for each contender and density.

        METRICS, us, useful (FFMA of all issued), useful_flops, tflops, bytes of DRAM, of reads of L2 (32 B a sector),
        of shared memory (128 B a wavefront). cuBLAS multiplies the dense matrix at every density.
        """
        return (
            self.counters.where(variant=PROFILED, m=BIG, n=BIG, k=BIG)
            .wide(METRICS, "density")
            .reindex(columns=["variant", "density", *METRICS.values()])
            .assign(
                us=lambda df: df["ns"] / 1e3,
                useful=lambda df: df["ffma"] / 32 / df["issued"],
                useful_flops=lambda df: (
                    2.0 * BIG**3 * df["density"].where(~df["variant"].str.startswith("cublas"), 1.0)
                ),
                tflops=lambda df: df["useful_flops"] / df["ns"] / 1e3,
                dram_bytes=lambda df: df["dram_read"] + df["dram_write"],
                l2_bytes=lambda df: 32 * (df["l2_read"] + df["l2_red"].fillna(0)),
                shared_bytes=lambda df: 128 * df["wavefronts"],
            )
            .sort_values(["variant", "density"], key=lambda c: c.map(PROFILED.index) if c.name == "variant" else -c)
        )

    @cached_property
    def outcome(self) -> pd.DataFrame:
        """Rungs beside their predictions.

        Rung, idea, prediction (words), predicted (its factor, NaN without one), came (at `at`, over `over`), and of
        that low and high, the ends everywhere.
        """
        rows, measured = [], {name: self.measure(name) for name in ("stepwise", "anchors")}
        for variant in (*self.rungs, "auto"):
            said, base = times(system.VARIANTS[variant].prediction), before(variant)
            came = over(measured["anchors" if variant in FOR_FEW else "stepwise"], variant, base)
            # A rung for few tiles is judged where there are fewest.
            least = min(came.index, key=lambda at: at[1] * at[2] * at[3])[:4]
            rows.append(
                {"rung": variant, "idea": system.VARIANTS[variant].idea, "prediction": said, "over": base}
                | {"came": records.geomean(came[[at[:4] == least for at in came.index]]), "at": shape(least[1:])}
                | {"predicted": float(next(iter(re.findall(r"([\d.]+)×", said)), np.nan))}
                | {"low": came.min(), "high": came.max()}
            )
        return pd.DataFrame(rows)

    @cached_property
    def trials(self) -> pd.DataFrame | None:
        """What was tried and not kept, a row for each density.

        Trial, idea, expected (words), factor (the number in them), density, came, over the rung that the expectation
        names; None where the GPU takes none.
        """
        if (tried := self.measure("tried")) is None:
            return None
        return pd.concat(
            [
                by_density(over(tried, name, base))
                .rename("came")
                .reset_index()
                .assign(trial=name, idea=idea, expected=times(expected), factor=float(factor))
                for name, (_, idea, expected) in TRIALS.items()
                for factor, base in re.findall(r"([\d.]+)x over (\w+)", expected)[:1]
            ],
            ignore_index=True,
        )


def before(variant: str) -> str:
    """Return what a rung is compared with: what its prediction names, else the rung before it; of `auto` V3."""
    named = re.search(r"over (\w+)", system.VARIANTS[variant].prediction)
    if named and named[1] in system.VARIANTS:
        return named[1]
    return (dict(zip(RUNGS, ["v3", *RUNGS], strict=False)) | {"auto": "v3"})[variant]


# ---------------------------------------------------------------- series of records, and words for their points


def by_density(values: pd.Series) -> pd.Series:
    """Return the geometric mean for each density, the densest first."""
    return values.groupby(level="density").agg(records.geomean).sort_index(ascending=False)


def rates(df: pd.DataFrame) -> pd.DataFrame:
    """Return TFLOP/s of useful work, a row for each density, the densest first, and a column for each contender."""
    return df.pivot_table("tflops", "density", "variant", aggfunc=records.geomean, sort=False).sort_index(
        ascending=False
    )


def of_ideal(df: pd.DataFrame) -> pd.Series:
    """Return the speedup of `auto` over cuBLAS, of what skipping the zeros alone would give, by point."""
    gained = over(df, "auto", "cublas")
    return gained * gained.index.get_level_values("density")


def few_tiles(anchored: pd.DataFrame, sms: int) -> pd.DataFrame:
    """Return µs where there are fewer tiles of 64 × 128 than SMs.

    A row for each point, `tiles` per SM, a column for V3, with K cut, each rung and `auto`, if the GPU takes it.
    """
    us = study.pivot(anchored, "median_us", POINT).assign(
        tiles=lambda us: [BLOCK.blocks(m, n) / sms for _, m, n, _, _ in us.index]
    )
    return us.loc[
        us["tiles"] < 1, ["tiles", *us.columns.intersection(["v3", "v3_split_k", *RUNGS, "auto"], sort=False)]
    ]


def sparsity(density: float) -> str:
    """Write a density as its sparsity: 0.375 is "62.5%"."""
    return f"{100 * (1 - density):g}%"


def point_of(key: tuple) -> str:
    """Write a point, with its label or without: "4096³ and 75%"."""
    *_, m, n, k, density = key
    return f"{shape((m, n, k))} and {sparsity(density)}"


def sizes_of(df: pd.DataFrame) -> pd.Series:
    """Return the label in Table II of each row's size; missing where it has none."""
    return pd.Series([SIZES.get(tuple(size)) for size in df[["m", "n", "k"]].to_numpy().tolist()], df.index)


def pattern(label: str) -> tuple[int, int]:
    """Return the group M and the vector length L of a record's label, which names them where they are not 32."""
    group, vector = re.search(r"\d+:(\d+)", label), re.search(r"vectors of (\d+)", label)
    return int(group[1]) if group else GROUP, (1 if "element-wise" in label else int(vector[1]) if vector else VECTOR)


# ---------------------------------------------------------------- tensor cores


def crossing_of(density: np.ndarray, speedup: np.ndarray) -> float:
    """Return the sparsity from which on a contender wins, densities falling.

    Where the line between two points passes 1 for good, both logarithmic. NaN where the last point does not win; the
    first point's sparsity where all do.
    """
    losses = np.flatnonzero(speedup < 1)
    if not losses.size or losses[-1] == len(speedup) - 1:
        return np.nan if losses.size else 1 - float(density[0])
    (d0, d1), (s0, s1) = (np.log(values[losses[-1] :][:2]) for values in (density, speedup))
    return 1 - float(np.exp(d0 - s0 * (d1 - d0) / (s1 - s0)))


def compared(tensor: pd.DataFrame) -> pd.DataFrame:
    """Return the tensor-core kernels beside dense cuBLAS of the same type.

    Their records, the densest first, with vector, speedup, and the crossing of their line, NaN where it never wins.
    """
    library, us = dict(DTYPES.values()), tensor.set_index(["variant", *POINT])["median_us"]
    rows = tensor[tensor["variant"].isin(library)].sort_values("density", ascending=False, kind="stable")
    dense = us.loc[[(library[v], *at) for v, *at in rows[["variant", *POINT]].itertuples(index=False)]]
    rows = rows.assign(vector=[pattern(label)[1] for label in rows["label"]], speedup=dense.array / rows["median_us"])
    line = ["variant", "vector", "m", "n", "k"]
    wins = rows.groupby(line).apply(lambda at: crossing_of(at["density"].to_numpy(), at["speedup"].to_numpy()))
    return rows.join(wins.rename("crossing"), on=line)


# ---------------------------------------------------------------- what the source states, and what its code gave


def peak_shares(spmm: Spmm) -> pd.DataFrame:
    """Return what the source's text states of the share of its peak.

    Library, variant (ours of the same idea), density, stated (0 to 1).
    """
    return (
        spmm.stated("text", "peak_share")
        .rename(columns={"variant": "library", "low": "stated"})
        .assign(variant=lambda rows: rows["library"].map({"nm_spmm": "v3", "nmsparse": "nmsparse_vw32"}))
        .dropna(subset=["density"])[["library", "variant", "density", "stated"]]
    )


def published_speedups(fig9: pd.DataFrame) -> pd.DataFrame:
    """Return Fig. 9 as speedups over cuBLAS on the same GPU: gpu, library, density, point, m, n, k, speedup."""
    return (
        fig9[fig9["library"] != "cublas"]
        .join(
            fig9[fig9["library"] == "cublas"].set_index(["gpu", "point"])["tflops"].rename("dense"), on=["gpu", "point"]
        )
        .assign(speedup=lambda rows: rows["tflops"] / rows["dense"])
        .drop(columns=["tflops", "dense"])
    )


def against(anchored: pd.DataFrame, theirs: pd.DataFrame) -> pd.DataFrame:
    """Return the speedup over cuBLAS of each contender over that of the authors' kernel, by point.

    theirs: others/<gpu>/anchors.csv.
    """
    us, stated = (
        study.pivot(anchored, "median_us", PLACE),
        theirs.pivot(index=PLACE, columns="library", values="speedup"),
    )
    theirs_of = stated.reindex(us.index)[["nmsparse" if v in NMSPARSE else "nm_spmm" for v in us]]
    return us.rdiv(us["cublas"], axis=0) / theirs_of.set_axis(us.columns, axis=1)


def at_big(values: pd.Series) -> pd.Series:
    """Return what is at 4096³, by density."""
    return values[[at[:3] == (BIG, BIG, BIG) for at in values.index]].droplevel(["m", "n", "k"])


# ---------------------------------------------------------------- before a kernel runs


def kept(density: float) -> int:
    """Return N of N:M."""
    return round(density * GROUP)


def random_patterns(k: int, n: int, seed: int) -> dict[float, nm.Nm]:
    """Return density -> a random pattern of the paper's sparsity at it."""
    return {d: nm.random(k=k, n=n, keep=kept(d), group=GROUP, vector=VECTOR, seed=seed) for d in SPARSITIES}


def asked(b: nm.Nm) -> np.ndarray:
    """Tell which row of A each vector of B needs: bool (k, q). b: of whole windows."""
    found = np.zeros((b.k, b.q), bool)
    np.put_along_axis(found, np.asarray(b.index), True, axis=0)
    return found


def needed(b: nm.Nm, vectors: int) -> float:
    """Return the share of A's rows that a block of so many vectors needs of a step, over all blocks and steps."""
    return asked(b)[:, : b.q // vectors * vectors].reshape(b.k, -1, vectors).any(axis=2).mean()


def at_l2(spmm: Spmm) -> analysis.Device:
    """Return this GPU with L2 for a memory."""
    return replace(spmm.here, bandwidth_gbs=spmm.gbps["L2"])


def published_tile(spmm: Spmm, density: float) -> analysis.Tile:
    """Return V3's configuration at 4096³."""
    return published.configured("v3", analysis.class_of(spmm.here.sm_count, BIG, BIG), kept(density), GROUP)


def staged(tile: analysis.Tile, density: float) -> float:
    """Return the share of A's rows that a block stages."""
    return analysis.needed_share(density, tile.columns // VECTOR) if tile.packed else 1.0


def step_of(tile: analysis.Tile, density: float) -> str:
    """Say what a step of a published kernel is, as the title of its picture."""
    return f"{sparsity(density)} sparsity, {'packed' if tile.packed else 'staged whole'}, k_s = {tile.windows * GROUP}"


def durations(spmm: Spmm, density: float) -> dict[str, float]:
    """Return how long the parts of a step of V3 take in a block that has an SM to itself, ns: each at its ceiling."""
    tile, word, sms = published_tile(spmm, density), analysis.WORD, spmm.here.sm_count
    depth, share = tile.windows * GROUP, staged(tile, density)
    rows, l2, shared = round(depth * density), spmm.gbps["L2"] / sms, spmm.gbps["shared memory"] / sms  # bytes per ns
    return {
        "load": word * (tile.rows * depth * share + tile.columns * rows) / l2,
        "fragments": word * (rows * tile.threads // 32 * sum(tile.warp)) / shared,
        "index": word * rows * (tile.columns // VECTOR) / shared,
        "compute": 2 * tile.rows * tile.columns * rows / (spmm.fma * 1e3 / sms),
    } | ({"col_info": word * depth * share / l2} if tile.packed else {})


def schedule(rung: str) -> tuple[tuple[int, int], int]:
    """Return a product of 4096³ with a rung's tiles: how many down and across, and steps of each."""
    one = RUNGS[rung][0]
    return (ceil(BIG / one.bm), ceil(BIG / one.bn)), ceil(BIG / one.depth)


def last_steps(rung: str, blocks: int) -> dict[str, int]:
    """Return how many steps a product of 4096³ takes with a rung's tiles, in waves and as stream-K deals them out."""
    tiles, steps = schedule(rung)
    return {
        "waves": ceil(prod(tiles) / blocks) * steps,
        "stream-K": max(int(end) for parts in launching.parts(*tiles, steps, blocks) for _, _, end, _ in parts),
    }


def by_eq3(spmm: Spmm) -> dict[tuple[str, float], float]:
    """Return (variant, density) -> FLOP per byte by Eq. 3 at 4096³, of V3, nmSPARSE, and `auto` by shipped choices."""
    path, tiles = family.CHOICES.shipped / f"{spmm.run.gpu}.csv", {d: published_tile(spmm, d) for d in SPARSITIES}
    choices = autotune.read(family.CHOICES, path) if path.is_file() else {}
    return (
        {("v3", d): analysis.intensity(t.rows, t.columns, d, share=staged(t, d)) for d, t in tiles.items()}
        # Tiles of 32 × 32, and no row that is not multiplied.
        | {("nmsparse_vw32", d): analysis.intensity(32, 32, d, share=d) for d in SPARSITIES}
        | {
            ("auto", d): analysis.intensity(choice.config.bm, choice.config.bn, d)
            for d in SPARSITIES
            if (choice := choices.get((BIG, BIG, BIG, kept(d), GROUP, VECTOR)))
        }
    )


# ---------------------------------------------------------------- machine code


def fullest(report: pd.DataFrame) -> pd.DataFrame:
    """Return, by variant, the entry with the most multiply-adds: its unrolled step of the largest tile.

    report: `artifact.measure.run.compile_report` for one target.
    """
    return report.loc[report.groupby("variant", sort=False)["FFMA"].idxmax()].set_index("variant")


def loops(spmm: Spmm, variants: Iterable[str]) -> dict[str, str]:
    """Return the machine code of each variant's largest loop of multiply-adds, of those that the page's target has."""
    most = fullest(spmm.report)["entry"]
    cubins = {v: jit.compile_cubin(system.VARIANTS[v].source, most[v], spmm.target) for v in variants if v in most}
    return {v: banks.loop(sass) or sass for v, cubin in cubins.items() for sass in [jit.disassemble(cubin)]}


def clashes(loops: Mapping[str, str]) -> pd.DataFrame:
    """Of each main loop return, by variant.

    Useful (share of multiply-adds in all instructions), clash (share of them with two operands in one register bank),
    left (of the ceiling, if each clash costs a cycle).
    """
    return (
        pd.DataFrame({v: banks.conflicts(code) | {"all": banks.instructions(code)} for v, code in loops.items()})
        .T.assign(
            useful=lambda rows: rows["ffma"] / rows["all"],
            clash=lambda rows: (rows["two_same"] + rows["three_same"]) / rows["ffma"],
            left=lambda rows: rows["useful"] / (1 + rows["useful"] * rows["clash"]),
        )
        .loc[:, ["useful", "clash", "left"]]
    )


def compiled(report: pd.DataFrame) -> pd.DataFrame:
    """Return registers, shared memory, spills and multiply-adds of the variants, a row each, over all their entries."""
    own, most = report.groupby("variant", sort=False), fullest(report)
    return pd.DataFrame(
        {
            "kernels": own.size(),
            "registers": own["registers"].agg(lambda used: " to ".join(map(str, sorted({used.min(), used.max()})))),
            "shared": own["shared_bytes"].max(),
            "spilling": own["spills"].sum().replace(0, "none"),
            "FFMA": most["FFMA"],
            "useful": (most["FFMA"] / most["instructions"]).replace(0, np.nan),
            "tensor": most.filter(regex="^HG?MMA").sum(axis=1).replace(0, np.nan),
        }
    ).reset_index()


def own(here: analysis.Device, problem: Problem, target: str) -> pd.DataFrame:
    """Return V1 to V3 as they are compiled for a reader's own problem on the GPU `here`.

    Their template instantiation, registers a thread, multiply-adds in the machine code. Raises ValueError, one
    sentence, for what V3 does not take.
    """
    b, name = problem.host().b, analysis.class_of(here.sm_count, problem.m, problem.n)
    tiles = {v: published.configured(v, name, b.keep, b.group) for v in ("v1", "v2", "v3")}
    stems = {v: published.source_of(v, tile.packed) for v, tile in tiles.items()}
    return made_by_compiler.own(
        {
            v: (published.HERE / f"{stem}.cu", published.entry(stem, tiles[v], b.keep, b.group, published.slot_of(b)))
            for v, stem in stems.items()
        },
        target,
    ).assign(kernel=lambda df: "`" + df["kernel"] + "`")
