"""Measure beside the experiments, on real matrices in CSR.

What plans and one order cost, what tasks of a warp are worth, and what the model of times is fitted to. Needs a GPU and
SPARSITY_MATRICES; to fit, neither:

    python -m artifact.systems.async_sparse.scripts plans [FILE]      plans.csv anew, and when each has paid
    python -m artifact.systems.async_sparse.scripts in_order [FILE]   in_order.csv anew, and the price of one order
    python -m artifact.systems.async_sparse.scripts tasks [FILE]      tasks_of_a_warp.csv anew
    python -m artifact.systems.async_sparse.scripts counters [FILE]   neighbours.csv anew, by ncu
    python -m artifact.systems.async_sparse.scripts matrices [FILE]   candidate_matrices.csv anew
    python -m artifact.systems.async_sparse.scripts candidates [FILE] candidates.csv anew
    python -m artifact.systems.async_sparse.scripts few [FILE]        candidates_few.csv anew
    python -m artifact.systems.async_sparse.scripts half [FILE]       candidates_half.csv anew
    python -m artifact.systems.async_sparse.scripts sddmm [FILE]      sddmm.csv anew
    python -m artifact.systems.async_sparse.scripts fit               `kernels/async_sparse/model.csv` from these

Medians of launches in turns, cold L2.

plans.csv, N = 256, float32: the median of `plan(a, 256, tune=False)`, of a matrix that was not seen before, by the
host's clock; and of launches of what it chose and of cuSPARSE's algorithms, whose own preparation counts as well. Its
choice is the configuration that was predicted, cusparse the fastest algorithm; microseconds. What of a plan was timed
by hand lies in plan_parts.csv.

in_order.csv, N = 256: kernels as they were chosen by trials, and the same with parts added up in order. Where no group
or window has more than two parts, both are one kernel, and two times tell the noise.

tasks_of_a_warp.csv: up to 1, 2, 4 and 8 tasks a warp of union_rows.cu (the experiment behind `windows.WORK`), of
matrices that have enough groups of rows for more than one, and of meshes and power-law graphs that are made from a
seed. Rows and loads are of the configuration, columns is of a task, on average, and tasks of a warp at most.

neighbours.csv says why the side of a mesh decided how fast it was multiplied: DRAM's bytes with one task a warp, and
with eight. Each launch is one panel of 128 columns of the kernel for groups of four rows, the second of two, under ncu
with its clocks left alone. Of the columns l2_hit is the share of sectors read that L2 had.

candidates.csv: every configuration in the model's pools, and cuSPARSE's algorithms for CSR in the same heat;
candidates_few.csv: the same of few columns, and cuSPARSE's for a vector where there is one;
candidates_half.csv: the same in bfloat16, and the algorithm of cuSPARSE's that is right in it;
candidate_matrices.csv: what `kernels.async_sparse.any_csr` says of the matrices, in their given order and with
similar rows side by side.

sddmm.csv: gradients of values (G · Bᵀ at the places of a matrix), ours in three dtypes, as `Sampled` is called; the
libraries' as sddmm.py beside this has them. Each result is held against float64: rel_err is the norm of the
difference over the norm. Beside the real matrices there are random ones, whose rows are long.
"""

import io
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from itertools import product
from math import ceil
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pandas as pd
import scipy.sparse as sp
from scipy.optimize import nnls

from artifact import command, registry
from artifact.baselines import cusparse
from artifact.measure import apart, device as gpu, matrices, records, verification
from artifact.systems.async_sparse import sddmm
from artifact.systems.async_sparse.experiments import CSR_ALGORITHMS, present, until_even
from kernels import distributed, library
from kernels.async_sparse import any_csr, operands, windows
from kernels.async_sparse.windows import Union
from kernels.autotune import choices, knobs, search
from kernels.contract import Problem
from kernels.distributed import generate
from kernels.formats import csr, half
from kernels.lazy import cupy
from kernels.library.routes import in_order

HERE = Path(__file__).parent
PLANS, IN_ORDER, TASKS, NEIGHBOURS, PLAN_PARTS = (
    HERE / f"{name}.csv" for name in ("plans", "in_order", "tasks_of_a_warp", "neighbours", "plan_parts")
)
CANDIDATES, FEW, HALF, STATISTICS, SDDMM = (
    HERE / f"{name}.csv" for name in ("candidates", "candidates_few", "candidates_half", "candidate_matrices", "sddmm")
)
#: What groups of rows took while their tasks lay in the order of rows, before parts of a group shared a block; and
#: after, while a warp had up to eight tasks whatever was in them, before `windows.WORK`.
IN_ROW_ORDER, EIGHT_TASKS = HERE / "candidates_in_row_order.csv", HERE / "candidates_eight_tasks.csv"
ORDERS = {"": "columns", "similar": "similar"}  #: of rows in `Statistics.columns` -> how its columns in the file begin
N, SEED, MATRICES = 256, 5, 74
#: Of SDDMM: columns, and rows and densities of the random matrices.
SAMPLED_COLUMNS, ROWS, DENSITIES = (16, 32, 64, 128, 256), 4096, (0.01, 0.03, 0.1, 0.3)
FEW_COLUMNS, HALF_COLUMNS = (1, 2, 3, 4, 7, 8, 16, 32, 41, 64, 128), (16, 64, 128, 256, 1024)
#: Way of the library -> dtype of the problem.
DTYPES = {"auto_fp32": "float32", "auto_tf32": "tf32", "auto_half": "bfloat16"}
MOST = (1, 2, 4, 8)  #: tasks of a warp at most
CONFIGS = (Union(1, 4, 1, 8), Union(1, 4, 2, 4), Union(2, 4, 1, 8), Union(4, 4, 1, 4))
SIDES, SCALES, DEGREE = (64, 100, 128, 150), (16, 18), 32  #: of meshes; of graphs
WIDTHS = (128, 512)
COUNTED_SIDES, COUNTED_TASKS, COUNTED_WIDTH = (203, 255, 256), (8, 1), 128
METRICS = (
    "gpu__time_duration.sum",
    *("dram__bytes_read.sum", "dram__bytes_write.sum"),
    *("lts__t_sectors_op_read.sum", "lts__t_sectors_op_read_lookup_hit.sum"),
)
NCU = "ncu --clock-control none -k regex:union_rows --csv --print-units base --metrics".split()


def real(listed: bool = True) -> Iterator[tuple[str, csr.Csr]]:
    """Yield (name, matrix) of the matrices of the folder that are the first of the system's list.

    Or of all that lie there. Raises SystemExit, one sentence, where no folder is named.
    """
    where = matrices.folder()
    if where is None:
        raise SystemExit(f"{matrices.VARIABLE} names no folder of matrices: set it")
    for name in present(where, MATRICES) if listed else sorted(path.stem for path in where.glob("*.npz")):
        yield name, matrices.load(name, where)


@contextmanager
def problem(a: csr.Csr, n: int, name: str, dtype: str, seed: int = SEED) -> Iterator[Problem]:
    """Make a problem of a matrix in CSR as it comes, and give its memory back."""
    made = operands.problem_from_csr(a, n, seed, name, format="csr", dtype=dtype, reorder="")
    yield made
    apart.release(made)


# ---------------------------------------------------------------- plans


def paid(df: pd.DataFrame) -> pd.DataFrame:
    """Return rows of plans.csv with what a plan saves and costs.

    saved_us: by a multiplication; cost_us: beyond cuSPARSE's preparation; count: multiplications after which it has
    paid.
    """
    saved, cost = df["cusparse_us"] - df["us"], df["plan_us"] - df["cusparse_prepare_us"]
    return df.assign(saved_us=saved, cost_us=cost, count=until_even(saved, cost))


def planned(device: Any, plans: int = 25, launches: int = 15) -> Iterator[tuple]:
    """Measure the rows of plans.csv: a minute or two on an H100."""
    every = registry.contenders(["cusparse"], device)
    for name, a in real():
        with problem(a, N, name, "float32") as p:
            there, us = p.device().a, []
            for _ in range(plans):
                begin = time.perf_counter()
                made = library.plan(there, N, tune=False)
                us.append((time.perf_counter() - begin) * 1e6)
            family, _, chosen = made.choice.partition(" ")
            bounds: dict[str, Any] = {key: every[key](p) for key in CSR_ALGORITHMS}
            bounds["plan"] = any_csr.prepare_config(
                "plan", p, device, choices.parse_knobs(chosen, any_csr.CHOICES.families[family])
            )
            found = search.race(bounds, device, launches)
            ours = round(np.median(us[2:]), 2), round(found.pop("plan"), 2)
            best = min(found, key=found.__getitem__)
            theirs = best, round(found[best], 2), round(bounds[best].prepare_ms * 1e3, 2)
            yield name, a.m, a.k, a.nnz, N, made.choice, *ours, *theirs
            for key in CSR_ALGORITHMS:
                bounds[key].close()


# ---------------------------------------------------------------- one order


def price(df: pd.DataFrame) -> pd.DataFrame:
    """Return of each auto: matrices, geometric mean and largest of in_order_us / us, and the matrix of the largest.

    How many matrices have three parts or more, and the mean over these.
    """
    ratio, auto = df["in_order_us"] / df["us"], df["auto"]
    return (
        ratio.groupby(auto, sort=False)
        .agg(matrices="size", mean=records.geomean, largest="max", worst="idxmax")
        .assign(worst=lambda table: table["worst"].map(df["matrix"]))
        .join(ratio[df["parts"] > 2].groupby(auto).agg(cut="size", cut_mean=records.geomean))
        .fillna({"cut": 0})
        .reset_index()
    )


def ordered(device: Any, launches: int = 21) -> Iterator[tuple]:
    """Measure the rows of in_order.csv: some minutes on an H100."""
    for name, a in real():
        for auto, dtype in DTYPES.items():
            with problem(a, N, name, dtype) as p:
                config = any_csr.tune(p, device, any_csr.ACCURACIES[auto]).config
                configs = {"us": config, "in_order_us": in_order(config)}
                us = search.race(
                    {x: any_csr.prepare_config(x, p, device, configs[x]) for x in configs}, device, launches
                )
                at = name, a.m, a.nnz, N, auto, knobs(config), parts_of(p, device, config)
                yield *at, *(f"{us[x]:.2f}" for x in configs)


def parts_of(p: Problem, device: Any, config: Any) -> int:
    """Return the parts of the group or window that has the most, 1 where none is cut."""
    if isinstance(config, Union):
        made: Any = config.convert(p.device().a)
    else:
        blocks = device.properties.multiprocessor_count * (3 - config.groups)
        made = config.convert(p.device().a, blocks, ceil(p.n / (windows.group_columns("tf32") * config.groups)))
    place = made.work.table[:, 3].get()
    return int(np.bincount(place[place >= 0]).max(initial=1))


# ---------------------------------------------------------------- tasks of a warp


def gains(df: pd.DataFrame) -> pd.DataFrame:
    """Return for each launch of tasks_of_a_warp.csv.

    Loaded, the bytes of B in a task, and for 1, 2 and 4 tasks a warp how many times as fast it is as with 8.
    """
    wide = df.pivot_table(index=list(df)[:-2], columns="tasks", values="us").reset_index()
    # Of a panel of columns: loads are of 4 values for each of 32 lanes.
    return wide.assign(
        loaded=wide["columns"] * (128 * wide["loads"]).clip(upper=wide["n"]) * 4,
        **{f"gain_{most}": wide[MOST[-1]] / wide[most] for most in MOST[:-1]},
    ).drop(columns=list(MOST))


def ruled(df: pd.DataFrame) -> pd.DataFrame:
    """Return `gains`, and gain.

    How many times as fast a launch is with the largest number of `MOST` that the rule allows.
    """
    made = gains(df).assign(gain_8=1.0)
    allowed = np.searchsorted(MOST, (windows.WORK / made["loaded"]).clip(lower=1), side="right") - 1
    return made.assign(gain=made[[f"gain_{most}" for most in MOST]].to_numpy()[np.arange(len(made)), allowed])


def every() -> Iterator[tuple[str, csr.Csr]]:
    """Yield real matrices, and made ones, on the host."""
    yield from real(listed=False)
    meshes: dict[str, Any] = {f"mesh {side}³": generate.Stencil(side, SEED) for side in SIDES}
    for name, which in (meshes | {f"graph 2^{scale}": generate.Rmat(scale, DEGREE, SEED) for scale in SCALES}).items():
        yield name, csr.to_host(generate.part(which, np.array([0, which.m]), 0).a)


def tasks(device: Any, launches: int = 6) -> Iterator[tuple]:
    """Measure the rows of tasks_of_a_warp.csv: about a minute on an H200."""
    slots = device.properties.multiprocessor_count
    for name, a in every():
        # With fewer groups a warp has one task whatever is asked for.
        configs = [c for c in CONFIGS if a.m / c.rows >= 4 * slots * windows.blocks_of(c) * windows.WARPS]
        for n in WIDTHS if configs else ():
            with problem(a, n, name, "tf32") as p:
                for config in configs:
                    bounds = {}
                    for most in MOST:
                        with mock.patch.multiple(windows, MOST_TASKS=most, WORK=np.inf):
                            bounds[str(most)] = config.prepare("union_rows", p, device)
                    prepared = config.convert(p.device().a)
                    at = config.rows, config.loads, f"{prepared.col_idx.size / len(prepared.work.table):.4g}"
                    for asked, us in search.race(bounds, device, launches).items():
                        yield name, a.m, a.nnz, n, *at, asked, f"{us:.2f}"


def counted(lines: Iterable[str]) -> tuple[float, ...]:
    """Return what ncu's CSV says of the last launch: ms, DRAM's bytes read and written, l2_hit.

    Raises ValueError where it says nothing.
    """
    table = [line for line in lines if line.startswith('"')]
    if not table:
        raise ValueError("ncu counted no launch: run it by hand and read what it says")
    df = pd.read_csv(io.StringIO("\n".join(table)), thousands=",")
    ns, read, written, asked, hit = (
        df[df["ID"] == df["ID"].iloc[-1]].set_index("Metric Name")["Metric Value"].astype(float)[list(METRICS)]
    )
    return ns / 1e6, read, written, hit / asked


def multiply(side: int, most: int) -> None:
    """Multiply a mesh twice, on the GPU that is here."""
    here, mesh = distributed.Gpu(0), generate.Stencil(side, SEED)
    with mock.patch.multiple(windows, MOST_TASKS=most, WORK=np.inf):
        plan = distributed.plan(generate.part(mesh, np.array([0, mesh.m]), 0), COUNTED_WIDTH, machine=here)
    generate.fill_dense(plan.operand(), 0, SEED)
    for _ in range(2):
        plan()
    here.sync()


def neighbours(device: Any) -> Iterator[tuple]:
    """Count the launches of neighbours.csv, each in a process of its own."""
    for side, most in product(COUNTED_SIDES, COUNTED_TASKS):
        command = [*NCU, ",".join(METRICS), sys.executable, "-m", __spec__.name, "multiply", str(side), str(most)]
        said = subprocess.run(command, stdout=subprocess.PIPE, encoding="utf-8", check=True).stdout
        yield side, COUNTED_WIDTH, most, *(f"{x:.6g}" for x in counted(said.splitlines()))


# ---------------------------------------------------------------- gradients of values


def faster(df: pd.DataFrame) -> pd.DataFrame:
    """Return for each point of sddmm.csv the time of the fastest library over ours: float32, bfloat16, float16.

    16 bits are held against cuSPARSE in float16.
    """
    at = ["matrix", "nnz", "n"]
    ours, theirs = (df[(df["contender"] == "ours") == mine] for mine in (True, False))
    best = theirs.groupby([*at, "dtype"])["us"].min().unstack()
    mine = ours.set_index([*at, "dtype"])["us"].unstack()
    return mine.rdiv(best.assign(bfloat16=best["float16"]))[["float32", "bfloat16", "float16"]].reset_index()


def sampled(device: Any, launches: int = 9) -> Iterator[tuple]:
    """Measure the rows of sddmm.csv: about two minutes on an H100. Raises ValueError where a result is wrong."""
    rng = np.random.default_rng(SEED)
    drawn = ((f"random {x:.0%}", sp.random_array((ROWS, ROWS), density=x, rng=rng, format="csr")) for x in DENSITIES)
    every = (*real(listed=False), *((name, csr.from_scipy(x)) for name, x in drawn))
    for (name, host), n in product(every, SAMPLED_COLUMNS):
        a = csr.to_device(host)
        made, bounds = library.Sampled(a, device), dict[tuple[str, str], Any]()
        # Multiples of 1/32 below 4, which all dtypes hold.
        full = [cupy.asarray((rng.integers(-127, 128, (size, n)) / 32).astype(np.float32)) for size in (a.m, a.k)]
        short = [x.astype(np.float16) for x in full]
        for pair in (full, short):
            bounds |= {(f"cusparse {x}", pair[0].dtype.name): sddmm.prepare(x, a, *pair) for x in sddmm.ORDERS}
        bounds["torch", "float32"] = sddmm.prepare_torch(a, *full)
        for dtype in ("float32", *half.DTYPES):
            pair = full if dtype == "float32" else [half.from_dense(x, dtype) for x in full]
            bounds["ours", dtype] = sddmm.prepare_ours(made, *pair)
        right, errors, stream = sddmm.reference(a, *full), {}, device.create_stream()
        for key, bound in bounds.items():
            bound.launch(stream)
            stream.sync()
            x = bound.result()
            x = half.to_dense(x) if isinstance(x, half.Half) else x
            errors[key] = float(cupy.linalg.norm(x - right) / cupy.linalg.norm(right))
            if not errors[key] <= verification.LIMITS[key[1]].rel_err:
                raise ValueError(f"SDDMM by {' in '.join(key)} is off by {errors[key]:.1e} on {name} at n={n}")
        for key, us in search.race(bounds, device, launches).items():
            yield name, a.m, a.k, a.nnz, n, key[1], key[0], f"{us:.2f}", f"{errors[key]:.1e}"
        for bound in bounds.values():
            bound.close()


# ---------------------------------------------------------------- the model of times


@cache
def read() -> pd.DataFrame:
    """Return what was measured: matrix, n, config (knobs, or an algorithm of cuSPARSE), us, dtype of B.

    And of the configurations in the model's pools their kernel and its terms.
    """
    of = {
        row.matrix: any_csr.Statistics(
            *(row.m, row.k, row.nnz, row.longest),
            {how: tuple(getattr(row, f"{begin}_{h}") for h in any_csr.HEIGHTS) for how, begin in ORDERS.items()},
        )
        for row in apart.read(STATISTICS).itertuples()
    }
    configs = {knobs(c): c for pool in any_csr.POOLS.values() for c in pool}
    kinds = {CANDIDATES: "tf32", FEW: "tf32", HALF: DTYPES["auto_half"]}
    df = pd.concat(apart.read(file).assign(dtype=dtype) for file, dtype in kinds.items())
    found: list[tuple] = []
    for name, n, text, us, dtype in df.itertuples(index=False):
        config = configs.get(text)
        if config and any_csr.takes_part(config, n):
            kernel, like = any_csr.kernel(config, n, dtype), config
        elif text.startswith("cusparse"):
            kernel, like = any_csr.library(n, dtype), any_csr.LIKE
        else:
            continue
        found.append((name, n, text, us, dtype, kernel, np.array(any_csr.terms(like, of[name], n, dtype))))
    return pd.DataFrame(found, columns=[*df, "kernel", "terms"])


def fit(measured: pd.DataFrame) -> dict[str, tuple[float, ...]]:
    """Return kernel -> weights of its terms that are not negative, least squares of relative errors.

    measured: of `read`; of cuSPARSE's algorithms the fastest counts.
    """
    slower = measured["config"].str.startswith("cusparse") & (
        measured["us"] > measured.groupby(["matrix", "n", "kernel"])["us"].transform("min")
    )
    measured = measured[~slower]
    return {
        kernel: tuple(float(f"{weight:.4g}") for weight in weights)
        for kernel, rows in measured.groupby("kernel")
        for weights, _ in [nnls(np.stack(rows["terms"]) / rows[["us"]].to_numpy(), np.ones(len(rows)))]
    }


@cache
def folds(count: int = 10) -> list[tuple[list[str], dict[str, tuple[float, ...]]]]:
    """Return a tenth of the matrices at a time, and `fit` of what was measured of all others."""
    names = sorted(read()["matrix"].unique())
    return [(part, fit(read()[~read()["matrix"].isin(part)])) for part in (names[i::count] for i in range(count))]


def held_out(accuracy: str) -> pd.DataFrame:
    """Return what the model would have chosen among for matrices that it was not fitted to, those of `folds`.

    Columns: matrix, n, regret (time of the best of what is proposed over that of the best of the pool), first
    (of the proposed one), speedup (of the best proposed over cuSPARSE's fastest algorithm for CSR), expected, library
    (time over the expected one, of the first proposed and of cuSPARSE's fastest).
    """
    measured, at, found = read(), ["matrix", "n"], []
    measured = measured[measured["dtype"] == (DTYPES["auto_half"] if accuracy == "half" else "tf32")]
    pool = {knobs(c): c for c in any_csr.POOLS[accuracy]}
    pooled = measured["config"].isin(pool)

    def of_proposed(here: pd.DataFrame) -> float:
        tried = any_csr.proposed([pool[config] for config in here["config"]])
        return float(here["us"][here["config"].isin(set(map(knobs, tried)))].min())

    theirs = measured[measured["config"].str.startswith("cusparse")].sort_values("us", kind="stable")
    libraries = theirs.drop_duplicates(at).set_index(at)
    for left_out, weights in folds():
        ours = measured[measured["matrix"].isin(left_out) & pooled]
        guess = [terms @ weights[kernel] for kernel, terms in zip(ours["kernel"], ours["terms"], strict=True)]
        ranked = ours.assign(guess=guess).sort_values("guess", kind="stable").groupby(at)
        first, best, got = ranked.first(), ranked["us"].min(), ranked.apply(of_proposed)
        library = libraries.loc[best.index]
        off = [terms @ weights[kernel] for kernel, terms in zip(library["kernel"], library["terms"], strict=True)]
        found.append(
            pd.DataFrame({"regret": got / best, "first": first["us"] / best, "speedup": library["us"] / got}).assign(
                expected=first["us"] / first["guess"], library=library["us"] / off
            )
        )
    return pd.concat(found).reset_index()


def known(device: Any) -> Iterator[tuple]:
    """Yield the rows of candidate_matrices.csv."""
    for name, a in real(listed=False):
        of = any_csr.statistics(csr.to_device(a))
        yield name, of.m, of.k, of.nnz, of.longest, *(x for how in ORDERS for x in of.columns[how])


def candidates(
    device: Any, sizes: Iterable[int] = (256, 1024), accuracy: str = "tf32", launches: int = 4
) -> Iterator[tuple]:
    """Measure the rows of candidates.csv: about two minutes on an H200. accuracy: whose pool."""
    algorithms = CSR_ALGORITHMS[2:] if accuracy == "half" else CSR_ALGORITHMS[1:]
    for (name, a), n in product(real(listed=False), sizes):
        with problem(a, n, name, DTYPES[f"auto_{accuracy}"], seed=0) as p:
            bounds: dict[str, Any] = {x: cusparse.prepare(x.removeprefix("cusparse_"), p, device) for x in algorithms}
            if n == 1:
                bounds |= {x: make(p) for x, make in cusparse.vectors(device).items()}
            configs = [c for c in any_csr.POOLS[accuracy] if any_csr.takes_part(c, n) and any_csr.fits(c, p, device)]
            bounds |= {knobs(config): any_csr.prepare_config("auto", p, device, config) for config in configs}
            for config, us in search.race(bounds, device, launches).items():
                yield name, n, config, f"{us:.2f}"
            for bound in bounds.values():
                getattr(bound, "close", lambda: None)()  # a library's handle


def fitted() -> None:
    """Write the model's weights, and print how good its proposals are."""
    pd.DataFrame.from_dict(fit(read()), "index", columns=list(any_csr.TERMS)).to_csv(
        any_csr.FILE, index_label="kernel", lineterminator="\n"
    )
    for accuracy, (n, rows) in ((x, part) for x in any_csr.POOLS for part in held_out(x).groupby("n")):
        print(
            f"{accuracy}, n={n}: of {len(rows)} matrices left out in turn the first proposal is within 10% of the best "
            f"for {(rows['first'] <= 1.1).mean():.0%}, the best of all for {(rows['regret'] <= 1.1).mean():.0%}; "
            f"{records.geomean(rows['speedup']):.2f} times cuSPARSE, at least {rows['speedup'].min():.2f}"
        )


# ---------------------------------------------------------------- the command


_COLUMNS = " ".join(f"{begin}_{height}" for begin in ORDERS.values() for height in any_csr.HEIGHTS)
#: What is measured -> its file and its columns, its rows of a `cuda.core.Device`, the report on them.
SCRIPTS: dict[str, tuple[Path, str, Callable, Callable]] = {
    "plans": (PLANS, "matrix m k nnz n choice plan_us us cusparse cusparse_us cusparse_prepare_us", planned, paid),
    "in_order": (IN_ORDER, "matrix m nnz n auto config parts us in_order_us", ordered, price),
    "tasks": (TASKS, "matrix m nnz n rows loads columns tasks us", tasks, ruled),
    "counters": (NEIGHBOURS, "side n tasks ms dram_read_bytes dram_write_bytes l2_hit", neighbours, pd.DataFrame),
    "matrices": (STATISTICS, f"matrix m k nnz longest {_COLUMNS}", known, pd.DataFrame),
    "candidates": (CANDIDATES, "matrix n config us", candidates, pd.DataFrame),
    "few": (FEW, "matrix n config us", partial(candidates, sizes=FEW_COLUMNS), pd.DataFrame),
    "sddmm": (SDDMM, "matrix m k nnz n dtype contender us rel_err", sampled, faster),
    "half": (HALF, "matrix n config us", partial(candidates, sizes=HALF_COLUMNS, accuracy="half"), pd.DataFrame),
}
#: And the others; the last is for ncu alone.
OTHERS: dict[str, Callable] = {"fit": fitted, "multiply": multiply}


@command.program(
    "artifact.systems.async_sparse.scripts",
    __doc__,
    command.option("what", choices=[*SCRIPTS, *OTHERS]),
    command.option("more", nargs="*", help="a file in place of the one beside this module"),
)
def main(asked: command.Options) -> None:
    """Measure a file anew, on the GPU that is here, rows printed as they come, and print a report of it."""
    if asked.what in OTHERS:
        return OTHERS[asked.what](*map(int, asked.more))
    file, columns, rows, report = SCRIPTS[asked.what]
    path, device, found = Path(asked.more[0] if asked.more else file), gpu.require().open(), []
    for row in rows(device):
        print(*row, flush=True)
        found.append(row)
    apart.write(path, __file__, device, columns.split(), found)
    print(report(apart.read(path)).to_string())


if __name__ == "__main__":
    raise SystemExit(main())
