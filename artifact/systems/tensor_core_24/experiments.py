"""The chapter's experiments: measured on the GPU that is here, or read from records, as its run says.

Records are DataFrames in `records.COLUMNS`; sizes are M = N = K where a table has one number for them. And what it asks
of the kernels: what fits where, the ladder, what was chosen, and what the compiler makes of them here, counts and
excerpts of SASS. A machine is a run's machine.json, a shape m, n and k (and how operands lie) as `sweeps` gives it.
"""

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, cached_property, partial
from itertools import product
from typing import Any

import numpy as np
import pandas as pd

from artifact import registry
from artifact.book import text
from artifact.book.study import Counters, Study, pivot, where
from artifact.drawing.compiled import instructions
from artifact.measure import bench, records, run as harness, verification
from artifact.measure.ceilings import DENSE
from artifact.measure.run import Run, Timer
from kernels import autotune, jit, tensor_core_24 as system
from kernels.contract import Problem
from kernels.formats import half, two_four
from kernels.lazy import cupy
from kernels.tensor_core_24 import family, fp8, operands, pruning as prune
from kernels.tensor_core_24.sweeps import DECODING, FEW, FP8_OUTPUT_SIZES, LINEAR, LLM, RAGGED, SQUARE

SYSTEM = "tensor_core_24"
KEYS = ["m", "n", "k"]
LIBRARIES = ("cusparselt", "cublaslt")
BYTES_PER_CLOCK = 128  #: of an SM's shared memory
PORT_BYTES = 64  #: that an SM gets from L2 in a clock, about
RESERVED = 1024  #: bytes of shared memory that CUDA keeps of each block
#: Who is looked at in most figures: the source's kernel, our best, and the libraries.
MAIN = ("mma_sp", "auto", "cusparselt_default", "cusparselt", "cublaslt")
#: Variants for their looks: the source's kernel first, our best last.
ORDER = ("mma_sp", *system.RUNGS, "auto")
STUDIES = tuple(name for name in system.VARIANTS if name.startswith("mma_sp_"))
PREDICTIONS = {v: text.times(kernel.prediction) for v, kernel in system.VARIANTS.items()}
Machine = Mapping[str, Any]
Shape = tuple[int, int, int]
#: Who is measured in an experiment, besides `MAIN` in those that are not named here.
CONTENDERS = {
    "studies": ("mma_sp", *STUDIES, "cusparselt"),
    "ladder": ("mma_sp", *system.RUNGS, "auto", *LIBRARIES),
    "ragged": ("mma_sp", "auto", "cublaslt"),
    "rows": ("wgmma_lean", "wgmma_lean_tall", "wgmma_clusters", "auto", *LIBRARIES),
    "small": ("wgmma_cp_async", "auto", *LIBRARIES),
    "alone": ("wgmma_keep", "auto", "cusparselt"),
    "linear": ("auto", *LIBRARIES),
    "decoding": ("auto", *LIBRARIES),
    "fp8": (*fp8.VARIANTS, "cusparselt_default", "cusparselt", "cublaslt_eight"),
    "fp8_linear": ("fp8_auto", "cusparselt", "cublaslt_eight"),
    "fp8_outputs": ("fp8_auto",),
}
EIGHT = ("fp8", "fp8_linear", "fp8_outputs")  #: experiments in FP8
HOPPER = ("rows", "small", "linear", "decoding", *EIGHT)  #: experiments of Hopper's kernels
TOKENS = 8  #: multiples of tokens that the sparse library takes
MANY_TOKENS = 4096  #: FP8 is measured in the layout of a linear layer from this size on, and with few tokens
ALPHA, BETA = 0.5, 2.0  #: of C = alpha·A·B + beta·C + bias, which is tried at two sizes
CHECKED, TIMED = (1000, 520, 712), (4096, 4096, 4096)
ALONE_S, ALONE_SAMPLES = 0.5, 400  #: how long a contender is measured alone, and how often at most
#: Loop of nothing but one instruction → what figures and sentences call that. Of two loops the faster one counts: A in
#: registers and A in shared memory are one instruction, and which is faster differs between GPUs.
INSTRUCTIONS = {"mma_sp": "mma.sp", "wgmma": "wgmma (dense)", "wgmma_sp_ra": "wgmma.sp", "wgmma_sp": "wgmma.sp"}
#: What Nsight Compute counts, by the columns of `Chapter.counted`, and how many of its units are one of theirs.
COUNTED = {
    "us": ("gpu__time_duration.sum", 1e3),
    "ghz": ("sm__cycles_elapsed.avg.per_second", 1e9),
    "tensor": ("sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed", 1),
    "shared": ("l1tex__data_pipe_lsu_wavefronts.avg.pct_of_peak_sustained_elapsed", 1),
    "port": ("l1tex__m_xbar2l1tex_read_bytes.sum", 1e9),
    "slices": ("lts__t_bytes.sum", 1e9),
    "dram": ("dram__bytes_read.sum", 1e9),
    "written": ("dram__bytes_write.sum", 1e9),
    "instructions": ("smsp__inst_executed.sum", 1e6),
    "requests": ("lts__t_requests_srcunit_tex.sum", 1),
    "sectors": ("lts__t_sectors_srcunit_tex.sum", 1),
    "conflicts": ("l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum", 1),
    "waves": ("l1tex__data_pipe_lsu_wavefronts_mem_shared.sum", 1),
}


class Chapter(Study):
    """The source on trial on one GPU.

    `chapter["square"]` are the records of an experiment, `chapter["both"]` those of squares and of layers of models.
    """

    def __getitem__(self, experiment: str) -> pd.DataFrame:
        """Return an experiment's records, a row for each shape of its sweep and each contender."""
        known = self.__dict__.setdefault("_known", {})
        if experiment not in known:
            known[experiment] = self._records(experiment)
        return known[experiment]

    def _records(self, experiment: str) -> pd.DataFrame:
        run, names, eight = self.run, CONTENDERS.get(experiment, MAIN), experiment in EIGHT
        if experiment in HOPPER and not is_hopper(self.machine):
            return pd.DataFrame(columns=list(records.COLUMNS))
        if experiment == "both":
            return together(self["square"], self["llm"])
        if eight or experiment == "decoding":
            ours = {v: partial(fp8.prepare, v, device=run.device) for v in fp8.VARIANTS} if eight else run.variants()
            every = ours | registry.contenders(fp8.BASELINES if eight else system.BASELINES, run.device)
            return of_the_willing(
                run,
                experiment,
                in_eight(run)[experiment] if eight else problems(run, system.sweeps(run.preset)[experiment]),
                {v: every[v] for v in names},
            )
        return measure(run, experiment, names, timer=one_by_one if experiment == "alone" else bench.time)

    def by_shape(self, experiment: str, column: str) -> pd.DataFrame:
        """Return a column of an experiment's records by m, n and k, a column for each contender.

        No rows of what the GPU has no kernels for.
        """
        return pivot(self[experiment], column, KEYS).reindex(columns=list(CONTENDERS.get(experiment, MAIN)))

    def tried(self, part: str) -> pd.DataFrame:
        """Return the trials of a part, "bounds" or "fp8", that became no rung.

        A row for each and a size, with `gain`, the factor by which time or clocks became less; empty where none were
        recorded.
        """
        if (df := self.table(f"{part}/tried")) is None:
            return pd.DataFrame(columns=["trial", "beside", *KEYS, "unit", "gain"])
        return df.assign(gain=df["beside_value"] / df["value"])

    # ---------------------------------------------------------------- the ladder

    @cached_property
    def rungs(self) -> pd.DataFrame:
        """The rows of `rungs` that this GPU runs at some size of the sweep."""
        ladder, shapes = rungs(), system.sweeps(self.run.preset)["ladder"]
        return ladder[[any(takes(self.machine, v, shape) for shape in shapes) for v in ladder.index]]

    @cached_property
    def _sweep(self) -> dict[str, list[dict]]:
        """The shapes of the ladder by their record; those that a rung does not take have one of their own."""
        shapes = system.sweeps(self.run.preset)["ladder"]
        whole = [s for s in shapes if all(takes(self.machine, v, s) for v in self.rungs.index)]
        return {"ladder": whole, "ladder_small": [s for s in shapes if s not in whole]}

    @property
    def climbed(self) -> list[int]:
        """The largest sizes that every rung takes, at most two."""
        return sorted(shape["m"] for shape in self._sweep["ladder"])[-2:]

    @cached_property
    def ladder(self) -> pd.DataFrame:
        """Every rung at every size that it takes."""
        return together(
            *(measure(self.run, name, CONTENDERS["ladder"], shapes) for name, shapes in self._sweep.items() if shapes)
        )

    @cached_property
    def rates(self) -> pd.DataFrame:
        """TFLOP/s of the ladder, a row for each size, a column for each contender; NaN where it was not measured."""
        return pivot(self.ladder, "tflops").sort_index()

    @cached_property
    def gains(self) -> pd.DataFrame:
        """Of each rung, a column, by size: the factor over the kernel that it builds on."""
        before = self.rungs["before"]
        return self.rates[before.index] / self.rates[before].set_axis(before.index, axis=1)

    @property
    def tiles(self) -> pd.DataFrame:
        """Tiles of C of each rung, a column, by size."""
        sizes, configs = self.rates.index, self.rungs["config"]
        return pd.DataFrame({v: [math.prod(c.tiles(s, s)) for s in sizes] for v, c in configs.items()}, sizes)

    # ---------------------------------------------------------------- ceilings

    @cached_property
    def peak(self) -> pd.Series:
        """What loops of nothing but one instruction of tensor cores sustain, TFLOP/s, dense-equivalent."""
        return self.ceilings["tflops"].reindex(list(DENSE)).dropna()

    @cached_property
    def loops(self) -> pd.Series:
        """Instruction → its fastest loop; the last one is the best sparse instruction that the GPU has."""
        return self.peak.filter(items=list(INSTRUCTIONS)).groupby(INSTRUCTIONS, sort=False).idxmax()

    # ---------------------------------------------------------------- what was counted, and what was stated

    @cached_property
    def counted(self) -> pd.DataFrame:
        """What was counted of each launch of a cube."""
        return launches(self.counters, self.machine)

    @cached_property
    def profile(self) -> pd.DataFrame:
        """The rows of `counted` at the largest of the ladder's sizes, by contender; none where nothing was counted."""
        found = where(self.counted, size=self.climbed)
        found = where(found, size=found["size"].max()).set_index("variant")
        return found.loc[[v for v in CONTENDERS["ladder"] if v in found.index]]

    def post(self, quantity: str) -> pd.Series:
        """Return what the source states of its kernel, by size."""
        return (
            self.stated("benchmarks", quantity, variant="mma_sp")
            .dropna(subset="size")
            .astype({"size": int})
            .set_index("size")["value"]
        )


def measure(
    run: Run, experiment: str, names: Iterable[str], shapes: Sequence[dict] | None = None, timer: Timer = bench.time
) -> pd.DataFrame:
    """Return a row for each shape and each contender of `names` that the GPU runs at all of them.

    Shapes are by default those of the experiment's sweep; contenders are in that order.
    """
    shapes = system.sweeps(run.preset)[experiment] if shapes is None else shapes
    every = run.variants() | run.baselines()
    return run.measure(
        experiment, problems(run, shapes), {v: every[v] for v in names if takes(run.machine, v, *shapes)}, timer
    )


def problems(run: Run, shapes: Iterable[Mapping[str, Any]]) -> list[Problem]:
    """Return the system's problem of each shape."""
    return [system.problem(**shape, seed=run.seed) for shape in shapes]


def in_eight(run: Run) -> dict[str, list[Problem]]:
    """Return the problems in FP8 by experiment: shapes whose rows every library takes.

    Scales and outputs of each kind, and sizes that no library takes; and the layout of a linear layer.
    """
    make, at = partial(fp8.problem, seed=run.seed), run.preset
    squares, outputs = ([(size,) * 3 for size in sizes[at]] for sizes in (SQUARE, FP8_OUTPUT_SIZES))
    many = [shape for shape in LINEAR[at] if min(shape) >= MANY_TOKENS]
    return {
        "fp8": [make(*shape) for shape in (*squares, *LLM[at], *FEW[at])],
        "fp8_outputs": [
            *(
                make(*shape, scale=scale, out=out)
                for shape, scale, out in product(outputs, operands.SCALES, operands.OUTS)
            ),
            *(make(*shape) for shape in RAGGED[at] if shape not in outputs),
        ],
        "fp8_linear": [make(*shape, orders="FF") for shape in (*many, *DECODING[at])],
    }


def of_the_willing(
    run: Run, experiment: str, asked: Sequence[Problem], contenders: Mapping[str, harness.Contender]
) -> pd.DataFrame:
    """Return a row for each problem and each contender that takes it, in that order.

    A library that refuses a shape has no row there, which is written down where it is measured
    (`records.read_absent`).
    """
    points = pd.DataFrame([[getattr(p, x) for x in records.POINT] for p in asked], columns=records.POINT)
    for problem, point in zip(asked, points.itertuples(index=False), strict=True) if run.mode == "measure" else ():
        absent = records.read_absent(run.folder).get(experiment, {})
        here = {v: prepare for v, prepare in contenders.items() if (v, *point) not in absent}
        harness.measure_willing(run, experiment, [problem], here)
    known = where(records.read(run.folder / f"{experiment}.csv"), variant=contenders)
    return points.merge(known)[list(records.COLUMNS)]


def one_by_one(bounds: Mapping, device, *, budget_s: float, verify=None) -> dict[str, bench.Timing]:
    """Time as `bench.time` does, but one contender after the other, for `ALONE_S` seconds each.

    Elsewhere contenders take turns of milliseconds, so that the clock, which power lowers, is nearly one for all.
    """
    alone = partial(bench.time, budget_s=ALONE_S, max_samples=ALONE_SAMPLES, verify=verify)
    return {name: alone({name: bound}, device)[name] for name, bound in bounds.items()}


def together(*frames: pd.DataFrame) -> pd.DataFrame:
    """Return records of several experiments as one table."""
    return pd.concat(frames, ignore_index=True)


def launches(counters: Counters, machine: Machine) -> pd.DataFrame:
    """Return what was counted of each launch of a cube.

    Its size and variant, the columns of `COUNTED`, clocks (millions, of the GPU), and port_per_clock: bytes that
    arrive at an SM in a clock.
    """
    table = (
        Counters(counters.rows.query("m == n and n == k"))
        .wide({metric: name for name, (metric, _) in COUNTED.items()}, "m")
        .rename(columns={"m": "size"})
        .reindex(columns=["size", "variant", *COUNTED])
    )
    table[[*COUNTED]] = table[[*COUNTED]] / [float(unit) for _, unit in COUNTED.values()]
    clocks = table["us"] * table["ghz"]
    return table.assign(clocks=clocks / 1e3, port_per_clock=table["port"] * 1e3 / (clocks * machine["sm_count"]) * 1e3)


# ---------------------------------------------------------------- what fits where, and what was chosen


def is_hopper(machine: Machine) -> bool:
    """Tell whether the machine's GPU has compute capability 9.0."""
    return machine["compute_capability"] == "9.0"


def takes(machine: Machine, variant: str, *shapes: Mapping[str, Any]) -> bool:
    """Tell whether a GPU has a kernel, and whether these shapes have work for all of it.

    Its block must fit into shared memory.
    """
    block = machine["shared_bytes_per_sm"] - RESERVED
    if variant not in system.RUNGS:
        return family.STUDIES.get(variant, family.PUBLISHED).shared_bytes <= block
    try:
        for s in shapes:
            system.RUNGS[variant][0].check(s["m"], s["n"], s["k"], machine["sm_count"], block)
    except ValueError:
        return False
    return is_hopper(machine)


def blocks(machine: Machine, variant: str = "mma_sp") -> dict[str, int]:
    """Return how many blocks of the published kernel, or of a study, an SM has room for, by what they need.

    Registers, 256 a thread, and shared memory.
    """
    return {
        "registers": machine["registers_per_sm"] // (256 * family.PUBLISHED.threads),
        "shared": machine["shared_bytes_per_sm"]
        // (family.STUDIES.get(variant, family.PUBLISHED).shared_bytes + RESERVED),
    }


@cache
def rungs() -> pd.DataFrame:
    """Return the ladder, a row for each kernel.

    Its configuration, file, tile, KiB of shared memory of a block with its barriers, idea, prediction, the factor in
    that (NaN for none), and the kernel before: the one that the prediction names, else the row above. Split-K is for
    other shapes, and held against `wgmma_keep`.
    """
    return (
        pd.DataFrame(
            {
                "rung": name,
                "config": c,
                "file": c.source.name,
                "tile": f"{c.m} × {c.n}",
                "shared": round((c.shared_bytes + RESERVED) / 1024),
                "idea": idea,
                "prediction": PREDICTIONS[name],
            }
            for name, (c, idea, _) in system.RUNGS.items()
        )
        .assign(
            predicted=lambda df: df["prediction"].str.extract(r"^([\d.]+)×")[0].astype(float),
            named=lambda df: df["prediction"].str.extract(r"over (wgmma_\w+)")[0],
            before=lambda df: (
                df["named"]
                .mask(df["rung"] == "wgmma_split_k", "wgmma_keep")
                .fillna(df["rung"].shift(fill_value="mma_sp"))
            ),
        )
        .drop(columns="named")
        .set_index("rung", drop=False)
    )


def chosen(run: Run, shapes: Iterable[Shape]) -> pd.DataFrame:
    """Return what the tuner chose, a row for each shape (m, n, k) for which there is a choice.

    Kernel, m and n of a tile, splits, the operand that L2 is asked to keep, and whether B is copied to rows that begin
    at whole lines. It is looked up where `run` measures, else in the shipped file.
    """
    path = family.CHOICES.shipped / f"{run.gpu}.csv"
    shipped = autotune.read(family.CHOICES, path) if path.is_file() else {}

    def look_up(shape: Shape) -> Any:
        if run.device is None:
            return shipped.get((*shape, "bfloat16"))
        return autotune.look_up(
            family.CHOICES, family.key(system.problem(*shape, seed=run.seed)), run.device, lambda config: True
        )

    rows = {
        shape: (c.kernel, c.m, c.n, c.splits, c.keep, c.copied)
        if isinstance(c, family.Wgmma)
        else ("mma_sp", c.bm, c.bn, 1, "", False)
        for shape in shapes
        if (choice := look_up(shape))
        for c in [choice.config]
    }
    return pd.DataFrame(
        list(rows.values()),
        pd.MultiIndex.from_tuples(rows, names=["m", "n", "k"]),
        ["kernel", "m", "n", "splits", "keeps", "copied"],
    )


# ---------------------------------------------------------------- what the compiler makes of them


def ladder_rows(report: pd.DataFrame, *names: str) -> pd.DataFrame:
    """Return the rows of a compile report for these kernels, by default the rungs.

    Their first instantiation, which is of BF16 and whole tiles, with the shared memory of a rung's block.
    """
    return (
        report[report["variant"].isin(names or system.RUNGS)]
        .drop_duplicates(["variant", "target"])
        .assign(spilled=lambda rows: rows["spills"].map({True: "yes", False: "no"}))
        .join(rungs()["shared"], on="variant")
    )


def published(report: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    """Return the published kernel's rows of a compile report, and its loop on Hopper.

    One row for each target, with LDSM, copies and those past L1; of the loop, in order, multiplications, loads from
    shared memory and copies.
    """
    kernel, rows = system.VARIANTS["mma_sp"], ladder_rows(report, "mma_sp")
    mixes = [
        [(op.split("."), n) for op, n in jit.instruction_mix(jit.compile_cubin(kernel.source, *code)).items()]
        for code in rows[["entry", "target"]].itertuples(index=False)
    ]
    kinds = {"LDSM": {"LDSM"}, "past_l1": {"LDGSTS", "BYPASS"}, "copies": {"LDGSTS"}}
    return rows.assign(
        **{name: [sum(n for op, n in mix if parts <= {*op}) for mix in mixes] for name, parts in kinds.items()}
    ), [op for op in instructions(kernel) if re.match(r"(@!?P\d )?(HMMA|LDSM|LDGSTS)", op)]


def published_excerpt(loop: list[str]) -> str:
    """Return the begin of the published kernel's loop, and where it goes over to the other selector."""
    begin = next(i for i, op in enumerate(loop) if op.startswith("HMMA"))
    switch = next(i for i, op in enumerate(loop) if op.endswith("0x1 ;") and op.startswith("HMMA"))
    return "\n".join([*loop[begin : begin + 10], "…", *loop[switch - 3 : switch + 5]])


def step_of_persistent() -> str:
    """Return a step of a warpgroup of `wgmma_persistent`, without the address arithmetic."""
    moves = r"(@!?U?P\d )?(HGMMA|WARPGROUP|SYNCS|LDS|UTMALDG)"
    ops = [op for op in instructions(system.VARIANTS["wgmma_persistent"]) if re.match(moves, op)]
    where = [i for i, op in enumerate(ops) if op.startswith("HGMMA")]
    return "\n".join(ops[next(i for i in range(where[2], -1, -1) if "TRYWAIT" in ops[i]) : where[3] + 3])


# ---------------------------------------------------------------- pruning and compressing


def pruning(run: Run) -> pd.DataFrame:
    """Return how long pruning and compressing a dense matrix takes, a row for each size, in `records.COLUMNS`.

    Measured where `run` measures, else read.

    Measuring keeps the sizes that the record already holds. Raises `verification.WrongResult` where the GPU and NumPy
    do not make the same bits; nothing of that size is recorded.
    """
    path, asked = run.folder / "prepare.csv", [prune.problem(m, m, run.seed) for m in prune.SIZES[run.preset]]
    if run.mode == "measure":
        records.plan(path, [(prune.VARIANT, p.label, p.m, p.n, p.k, p.density) for p in asked])
        known = records.read(path)[["m", "seed"]].to_numpy().tolist() if path.exists() else []
        for problem in (p for p in asked if [p.m, p.seed] not in known):
            records.append(path, [_measured(run, problem)])
    return harness.select(records.read(path), asked, [prune.VARIANT], f"{run.room}/prepare on {run.gpu}")


def _measured(run: Run, problem: Problem) -> dict[str, Any]:
    def verify(_: str, launch: Callable[[], Any]) -> verification.Errors:
        """Poison the output, launch once, compare all of it with what NumPy makes of that matrix."""
        made = bound.result()
        for array in (made.val, made.meta):
            array.fill(0xFFFF)  # a NaN, and no pair of indices
        run.device.sync()
        launch()
        dense, out = half.to_host(problem.device().a), two_four.to_host(made)
        expected = two_four.compress(dense.bits, dense.dtype, prune=True)
        for name in ("val", "meta"):
            wrong = np.argwhere(getattr(out, name) != getattr(expected, name))
            if len(wrong):
                line, column = wrong[0]
                raise verification.WrongResult(
                    f"{bound.name} of {problem.m} x {problem.k} differs from NumPy in {len(wrong)} of "
                    f"{getattr(out, name).size} elements of {name}, the first at row {line}, column {column}"
                )
        return verification.Errors(0.0, 0.0)

    try:
        bound = prune.prepare(problem, run.device)
        return harness.measure_alone(run, problem, "prepare", bound, verify, harness.BUDGETS_S[run.preset])
    finally:
        problem.release()


# ---------------------------------------------------------------- beta·C and a bias


def epilogue(run: Run) -> dict[str, float] | None:
    """Try C = alpha·A·B + beta·C + bias.

    Its error at CHECKED, rel_err (Frobenius, against float64), and at TIMED its time beside the plain product's,
    all_us and plain_us; None where `run` only reads: nothing of it is recorded.
    """
    if run.device is None:
        return None

    def more(case: Problem) -> dict[str, Any]:
        random = cupy.random.default_rng(run.seed).random((case.m, case.n), dtype=cupy.float32)
        return {
            "alpha": ALPHA,
            "beta": BETA,
            "c": half.Half("bfloat16", half.to_bits(random, "bfloat16")),
            "bias": cupy.arange(case.m, dtype=cupy.float32) / case.m,
        }

    small, large = (system.problem(*sizes, seed=run.seed) for sizes in (CHECKED, TIMED))
    added = more(small)
    bound = system.prepare("auto", small, run.device, **added)
    bound.launch(run.device.default_stream)
    run.device.sync()
    c, found = (cupy.asnumpy(half.to_dense(x)).astype(np.float64) for x in (added["c"], bound.result()))
    wanted = ALPHA * verification.oracle(small, on="cpu").values + BETA * c + cupy.asnumpy(added["bias"])[:, None]
    bounds = {
        "plain_us": system.prepare("auto", large, run.device),
        "all_us": system.prepare("auto", large, run.device, **more(large)),
    }
    return {"rel_err": float(np.linalg.norm(found - wanted) / np.linalg.norm(wanted))} | {
        name: timing.median_us for name, timing in bench.time(bounds, run.device).items()
    }
