"""Strong and weak scaling over the GPUs of a host, beside what others do there.

    python -m artifact.distributed.scaling --out scaling.csv
    torchrun --nproc-per-node 2 -m artifact.distributed.scaling --out scaling.csv

Three matrices: a power-law graph and a mesh, made on the devices, and a block-sparse weight. One of a size runs on 1, 2
and 4 GPUs (strong scaling); another grows with them (weak). Every result is checked before it is timed: sampled rows,
element by element, against float64 on the CPU, and every row with random vectors (Freivalds) where A is still there. A
file that is there already is gone on with.
"""

import contextlib
import gc
import time
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from artifact import command
from artifact.baselines import cusparse
from artifact.measure import device, records, verification
from kernels import distributed, formats
from kernels.contract import Operands, Problem, require
from kernels.distributed import Panels, Part, generate, partition
from kernels.distributed.comm import together
from kernels.formats import bcsr, csr, half
from kernels.lazy import Lazy, torch

torch_distributed = Lazy("torch.distributed")
SEED = 5
#: Rows that are checked on each rank, and columns of each.
SAMPLED, SAMPLED_COLUMNS = 24, 8
#: Of an element's difference, over the sum of its products' magnitudes.
LIMITS = {"float32": 2e-6, "bfloat16": 1e-2}
#: Random vectors that every row is multiplied by, and how many times the errors of its elements that sum may be off,
#: whose signs are independent of the vector's: with a probability of 2 * exp(-32), 3e-14, more (Hoeffding).
VECTORS, SPREAD = 2, 8
#: Of the norm of a row's errors: of sums in float32, over that of their magnitudes; of a rounding, over the row's.
SUMMED, ROUNDED = 2e-6, {"float32": 0.0, "bfloat16": 2.0**-9}
#: Elements, or non-zeros, that are multiplied at a time.
CHUNK = 2**24
#: Non-zeros of a matrix that is streamed: pinned memory for more takes longer to get than all the rest.
MOST_STREAMED = 600_000_000
#: Milliseconds that a sample takes at least; shorter calls are repeated in it.
SAMPLE_MS = 20.0
OURS, GATHERED, DTENSOR, STREAMED = "ours", "allgather_cusparse", "dtensor_dense", "streamed"


#: Parts of a call. Bytes that are sent, that have to be with this partition, that would be so that each has all of B.
SPLIT = ("communication_ms", "waiting_ms", "multiplication_ms")
BYTES = ("sent_bytes", "least_bytes", "gathered_bytes")
#: What is recorded of a contender on a matrix and so many GPUs. Bytes are of all GPUs in a call; times of the slowest.
COLUMNS = {
    "case": "str",  # graph, mesh, block
    "size": "int64",  # scale, side, rows
    "contender": "str",
    **dict.fromkeys(("gpus", "m", "k", "n", "nnz"), "int64"),
    "dtype": "str",
    **dict.fromkeys(("median_ms", "q25_ms", "q75_ms"), "float64"),
    "samples": "int64",
    **dict.fromkeys(SPLIT, "float64"),
    "imbalance": "float64",  # non-zeros of the GPU that has most over the mean
    **dict.fromkeys(BYTES, "int64"),
    "error": "float64",  # largest, over the sum of the products' magnitudes
    "prepare_s": "float64",
    "chunks": "int64",
    **dict.fromkeys(("kernel", "gpu", "when"), "str"),
}
KEY = ["case", "size", "n", "contender", "gpus"]
Row = dict[str, Any]
#: What a contender need not say.
USUAL: Row = dict.fromkeys(SPLIT, float("nan")) | dict.fromkeys(BYTES, 0) | {"chunks": 1}


@dataclass(frozen=True)
class Case:
    """A matrix of a size. degree: entries of a graph's row. beyond: so many that A itself fits no GPU."""

    name: str
    size: int
    n: int
    dtype: str
    degree: int = 64
    beyond: bool = False

    def panel(self, x) -> Panels:
        """Return a matrix of all N columns."""
        return Panels((0, self.n), [x], self.dtype)


#: Together with B and C they fit two H200; A alone is larger than one's memory.
BEYOND = (
    Case("graph", 26, 64, "float32", degree=288, beyond=True),
    Case("mesh", 896, 16, "float32", beyond=True),
)


def cases(ranks: int, scale: int, side: int, rows: int, n: int, tokens: int) -> list[Case]:
    """Return what so many GPUs measure: one size for all, and one that is half of it on one GPU and grows with them."""
    grown = scale - 1 + int(np.log2(ranks))
    wide = side if ranks == 2 else round((side**3 * ranks / 2) ** (1 / 3))
    return list(
        dict.fromkeys(
            (
                Case("graph", scale, n, "float32"),
                Case("mesh", side, n, "float32"),
                Case("block", rows, tokens, "bfloat16"),
                Case("graph", grown, n, "float32"),
                Case("mesh", wide, n, "float32"),
                Case("block", rows * ranks // 2, tokens, "bfloat16"),
            )
        )
    )


# ---------------------------------------------------------------- a file that is gone on with


def read(path: Path) -> pd.DataFrame:
    """COLUMNS of a file, no rows where there is no file. Raises ValueError, one sentence, for another file."""
    df = pd.read_csv(path, dtype={"kernel": str}) if path.is_file() else pd.DataFrame(columns=[*COLUMNS])
    require(list(df) == [*COLUMNS], f"{path}: its columns are not {', '.join(COLUMNS)}: give another --out")
    return df.fillna({"kernel": ""}).astype(COLUMNS)


def write(path: Path, df: pd.DataFrame) -> None:
    """All rows, of which the last of a key counts."""
    how: Any = {"float_format": "%.6g", "na_rep": "nan", "lineterminator": "\n"}
    records.write_text(path, df.drop_duplicates(KEY, keep="last").to_csv(index=False, **how))


# ---------------------------------------------------------------- time


def timed(call: Callable[[], object], here: Any, comm: Any, repeats: int) -> Row:
    """Median and quartiles of milliseconds a call, of the slowest rank in each sample; collective.

    The clock is the host's, around calls that all ranks begin together and whose end each waits for.
    """

    def once(calls: int) -> float:
        here.sync()
        comm.gather(None)
        begin = time.perf_counter()
        for _ in range(calls):
            call()
        here.sync()
        return max(comm.gather((time.perf_counter() - begin) * 1e3 / calls))

    once(1)
    calls = max(1, round(SAMPLE_MS / max(once(1), 1e-3)))
    samples = [once(calls) for _ in range(repeats)]
    return dict(zip(("median_ms", "q25_ms", "q75_ms"), map(float, np.percentile(samples, (50, 25, 75))), strict=True))


# ---------------------------------------------------------------- matrices


@dataclass
class Made:
    """A rank's part, and how its results are checked: a row of A, and elements of B, made anew on the CPU."""

    part: Part
    fill: Callable[[Panels, int], None]  #: rows of B from one on
    row: Callable[[int], tuple[np.ndarray, np.ndarray]]  #: of the whole matrix -> (columns, float32 values)
    b: Callable[[np.ndarray, np.ndarray], np.ndarray]  #: (rows, columns) -> float32 elements


def make(case: Case, here: Any, comm: Any) -> Made:
    """Return a rank's part of a case, on its GPU; collective."""
    if case.name == "block":
        return _block(case, here, comm)
    matrix = generate.Rmat(case.size, case.degree, SEED) if case.name == "graph" else generate.Stencil(case.size, SEED)
    edges = generate.edges(matrix, comm.size)
    here.xp.get_default_memory_pool().free_all_blocks()  # lengths of all rows are not needed again
    return Made(
        replace(generate.part(matrix, edges, comm.rank), consumed=case.beyond),
        lambda panels, begin: generate.fill_dense(panels, begin, SEED),
        matrix.row,
        lambda rows, columns: generate.dense(rows, columns, case.n, SEED),
    )


def _block(case: Case, here: Any, comm: Any, k: int = 16384, density: float = 0.1) -> Made:
    """Return a block-sparse weight (size x k), 64 x 64, bfloat16; each rank makes its own rows."""
    xp, unit = here.xp, 64
    edges = partition.even(case.size, comm.size, unit)
    begin, end = map(int, edges[comm.rank :][:2])
    a = bcsr.random(end - begin, k, density, SEED + comm.rank, dtype="bfloat16", xp=xp)

    def fill(panels: Panels, first: int) -> None:
        wide = xp.empty((panels.arrays[0].shape[0], case.n), np.float32)
        generate.fill_dense(Panels((0, case.n), [wide]), first, SEED)
        panels.fill(half.Half("bfloat16", half.to_bits(wide, "bfloat16")))

    def row(row: int) -> tuple[np.ndarray, np.ndarray]:
        first = (row - begin) // unit * unit
        of = bcsr.to_csr(bcsr.to_host(partition.rows_of(a, first, min(first + unit, a.m))))
        inside = slice(*map(int, of.row_ptr[row - begin - first :][:2]))
        return of.col_idx[inside], of.val[inside]

    def b(rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
        return half.from_bits(half.to_bits(generate.dense(rows, columns, case.n, SEED), "bfloat16"), "bfloat16")

    return Made(Part(a, edges, partition.even(k, comm.size, unit)), fill, row, b)


def checked(made: Made, case: Case, out: Panels, comm) -> float:
    """Return the largest error at sampled rows of C, of which `out` has those of this rank; collective.

    Raises `verification.WrongResult`.
    """
    rng, begin = np.random.default_rng(SEED + comm.rank), int(made.part.rows[comm.rank])
    rows, errors = out.arrays[0].shape[0], [0.0]
    columns = np.unique(np.append(rng.integers(0, case.n, SAMPLED_COLUMNS), (0, case.n - 1)))
    for row in np.unique(rng.integers(0, rows, SAMPLED if rows else 0)).tolist():
        names, values = made.row(begin + row)
        products = values.astype(np.float64)[:, None] * made.b(names, columns)
        found = np.concatenate([formats.to_host(x[row]) for x in out.arrays])[columns]
        least = np.maximum(np.abs(products).sum(axis=0), np.finfo(np.float32).tiny)
        wrong = np.abs(_float64(found, case.dtype) - products.sum(axis=0)) / least
        errors.append(float(np.nan_to_num(wrong, nan=np.inf).max()))
    # A that no GPU holds beside what is made of it is gone.
    over, row = (0.0, 0) if made.part.consumed else off_by(made, case, out)
    every, wheres = zip(*comm.gather((max(errors), (over, begin + row))), strict=True)
    worst, (off, at) = max(every), max(wheres, key=lambda x: x[0])
    if worst > LIMITS[case.dtype]:
        raise verification.WrongResult(
            f"{case.name} {case.size} has an error of {worst:.1e} at sampled rows, over {LIMITS[case.dtype]:.0e}"
        )
    if off > 1:
        raise verification.WrongResult(
            f"{case.name} {case.size} is wrong in row {at}: times a random vector it is off by {off:.1e} times what "
            "rounding explains"
        )
    return worst


def off_by(made: Made, case: Case, out: Panels) -> tuple[float, int]:
    """(largest deviation of a row of C · x from A · (B · x) over what rounding explains, that row of `out`).

    In float64, without a library's sparse multiplication, for `VECTORS` vectors x of random signs. out: C's rows of
    this rank's part of A. A NaN is infinitely far off.
    """
    xp, n, k, step = half.array_module(out.arrays[0]), case.n, made.part.slabs[0].k, max(1, CHUNK // case.n)
    signs = xp.asarray(np.random.default_rng(SEED).choice((-1.0, 1.0), (n, VECTORS)))
    products, worst = xp.empty((k, VECTORS + 1)), (0.0, 0)  # B · x for each vector; magnitudes of B's rows, summed
    for begin in range(0, k, step):
        panel = case.panel(xp.empty((min(step, k - begin), n), csr.storage(case.dtype)))
        made.fill(panel, begin)
        b = _float64(panel.arrays[0], case.dtype)
        products[begin : begin + step] = xp.concatenate((b @ signs, xp.abs(b).sum(axis=1)[:, None]), axis=1)
    for begin, a in _slices(made.part.slabs, step):
        owner, column = xp.asarray(csr.rows(a)), xp.asarray(a.col_idx)
        value = xp.asarray(a.val).astype(xp.float64)
        terms = [value * products[column, j] for j in range(VECTORS)] + [xp.abs(value) * products[column, -1]]
        exact = xp.stack([xp.bincount(owner, term, a.m) for term in terms], axis=1)
        c = xp.concatenate([_float64(array[begin : begin + a.m], case.dtype) for array in out.arrays], axis=1)
        may = SUMMED * exact[:, -1] / np.sqrt(n) + ROUNDED[case.dtype] * xp.sqrt((c * c).sum(axis=1))
        over = xp.abs(c @ signs - exact[:, :-1]).max(axis=1) / (SPREAD * may + np.finfo(np.float32).tiny)
        over = xp.where(xp.isnan(over), np.inf, over)
        worst = max(worst, (float(over.max()), begin + int(over.argmax())), key=lambda x: x[0])
    return worst


def _slices(slabs, most: int):
    """(row, CSR of some rows from there on) of slabs of consecutive rows.

    At most so many rows, and about `CHUNK` non-zeros.
    """
    base = 0
    for slab in slabs:
        rows, columns = getattr(slab, "block", (1, 1))
        step = max(rows, most // rows * rows)
        for first, last in partition.cut(formats.to_host(slab.row_ptr), CHUNK // (rows * columns)):
            end = min(last * rows, slab.m)
            for at in range(first * rows, end, step):
                yield base + at, formats.to_csr(partition.rows_of(slab, at, min(at + step, end)))
        base += slab.m


def _float64(array, dtype: str):
    return half.from_bits(array, dtype).astype(np.float64)


# ---------------------------------------------------------------- contenders


class Ready(NamedTuple):
    """A contender that is ready to multiply."""

    call: Callable[..., object]
    b: Panels  #: B's rows of this rank, to be filled, the first of which is `b_row`
    b_row: int
    out: Callable[[], Panels]  #: C's rows of this rank, of the last call
    more: Row  #: what its record says besides what is usual
    plan: Any = None  #: whose `times` tell the parts of a call with timed=True


def ours(case: Case, made: Made, here: Any, comm: Any) -> Ready:
    """Return a plan of the library."""
    # One GPU multiplies in chunks as well: what stands for B and C while a kernel is chosen has to fit beside them.
    plan: Any = distributed.plan(
        made.part,
        case.n,
        comm,
        dtype=case.dtype,
        chunks=4 if case.dtype == "float32" and not case.beyond else None,
        machine=here,
        tune=case.name == "block",
    )
    sizes = zip(*comm.gather((plan.sent_bytes, plan.least_bytes, plan.gathered_bytes)), strict=True)
    local = next(iter(getattr(plan._steps[-1][0][0], "args", ())), None)  # of a GPU's product, the plan of the library
    more = {"chunks": len(plan.edges) - 1, "kernel": getattr(local, "choice", "")}
    more |= dict(zip(BYTES, map(sum, sizes), strict=True))
    return Ready(plan, plan.operand(), plan.b_rows[0], plan.result, more, plan)


def gathered(case: Case, made: Made, here: Any, comm: Any) -> Ready:
    """All of B for everyone, with NCCL's all-gather, and cuSPARSE."""
    a, k = made.part.a, made.part.slabs[0].k
    own = partition.even(k, comm.size)
    require(k % comm.size == 0, f"{k} rows of B are no {comm.size} equal parts, which all-gather needs")
    whole, out = here.empty(k, case.n, case.dtype), here.empty(a.m, case.n, case.dtype)
    mine = whole[own[comm.rank] : own[comm.rank + 1]]
    b, c = (half.Half(case.dtype, x) if case.dtype in half.DTYPES else x for x in (whole, out))
    problem = Problem(
        room="distributed",
        label=case.name,
        m=a.m,
        n=case.n,
        k=k,
        nnz=a.nnz,
        density=a.nnz / (a.m * k),
        seed=SEED,
        useful_flops=2 * a.nnz * case.n,
        flops_def="2·nnz·N",
        least_bytes=0,
        requested_bytes=0,
        make_host=lambda: Operands(a, b, c),
        make_device=lambda: Operands(a, b, c),
    )
    prepare = partial(cusparse.prepare_blocks, "bsr") if case.name == "block" else partial(cusparse.prepare, "alg2")
    bound: Any = together(comm, lambda: prepare(problem, here.device))
    stream = here.xp.cuda.Stream(non_blocking=True)
    bound.keep = bound.keep, stream  # `flow` and `at` are but its address
    flow, tensors, at = here._stream(stream), [], None
    if comm.size > 1:
        tensors = [torch.from_dlpack(x.reshape(-1).view(np.uint8)) for x in (whole, mine)]
        at = torch.cuda.ExternalStream(stream.ptr, comm._device)

    def call() -> None:
        if tensors:
            with torch.cuda.stream(at):
                torch_distributed.all_gather_into_tensor(*tensors, group=comm._group)
        bound.launch(flow)

    more = dict.fromkeys(BYTES, out.dtype.itemsize * case.n * k * (comm.size - 1)) | {"kernel": bound.name}
    return Ready(call, case.panel(mine), int(own[comm.rank]), lambda: case.panel(out), more)


def dtensor(case: Case, made: Made, here: Any, comm: Any) -> Ready:
    """PyTorch's distributed tensors multiply dense ones: the weight with its zeros, rows of it and of B on each GPU."""
    require(
        comm.size > 1 and case.name == "block",
        "distributed tensors hold no sparse matrix, and of dense ones only the weight fits",
    )
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.tensor import DTensor, Shard

    mesh = DeviceMesh.from_group(comm._group, "cuda")
    first, last = map(int, made.part.columns[comm.rank :][:2])
    panel = here.empty(last - first, case.n, case.dtype)
    bits = half.to_bits(bcsr.to_dense(made.part.a), case.dtype)
    here.sync()
    local = (torch.from_dlpack(x.view(np.int16)).view(torch.bfloat16) for x in (bits, panel))
    a, b = (DTensor.from_local(x, mesh, [Shard(0)]) for x in local)
    kept: list[Any] = []

    def call() -> None:
        kept[:] = [(a @ b).redistribute(mesh, [Shard(0)])]

    def out() -> Panels:
        return case.panel(here.xp.from_dlpack(kept[0].to_local().contiguous().view(torch.int16)).view(np.uint16))

    call()  # makes the result
    return Ready(call, case.panel(panel), first, out, {"kernel": "torch.matmul"})


def streamed(case: Case, made: Made, here: Any, comm: Any) -> Ready:
    """Return A in host memory, on one GPU."""
    require(
        comm.size == 1 and case.name == "graph" and made.part.a.nnz <= MOST_STREAMED,
        f"only a graph of up to {MOST_STREAMED:.0e} non-zeros on one GPU is streamed",
    )
    a = csr.to_host(made.part.a)
    made.part = Part(a, made.part.rows)  # what was on the GPU goes
    plan: Any = distributed.streamed(a, case.n, machine=here)
    b, out = (here.empty(rows, case.n, case.dtype) for rows in (a.k, a.m))
    more = dict.fromkeys(BYTES, plan.bytes) | {"chunks": len(plan.panels), "kernel": "single rows"}
    return Ready(partial(plan, b, out), case.panel(b), 0, lambda: case.panel(out), more, plan)


CONTENDERS = {OURS: ours, GATHERED: gathered, DTENSOR: dtensor, STREAMED: streamed}


# ---------------------------------------------------------------- the whole


def _row(name: str, case: Case, made: Made, here: Any, comm: Any, repeats: int) -> Row:
    """Return what a record says of a contender, which is made ready, checked and timed; collective.

    Raises `verification.WrongResult`.
    """
    begin = time.perf_counter()
    ready = CONTENDERS[name](case, made, here, comm)
    here.sync()
    spent = max(comm.gather(time.perf_counter() - begin))
    made.fill(ready.b, ready.b_row)
    for array in ready.out().arrays:
        array.fill(0x7FFF if case.dtype in half.DTYPES else np.nan)
    here.sync()
    ready.call()
    here.sync()
    row = ready.more | {"error": checked(made, case, ready.out(), comm), "prepare_s": spent}
    row |= timed(ready.call, here, comm, repeats) | {"when": datetime.now(UTC).isoformat(timespec="seconds")}
    if ready.plan is not None:
        ready.call(timed=True)
        _, *parts = max(comm.gather(astuple(ready.plan.times)))  # of the slowest
        row |= dict(zip(SPLIT, parts, strict=True))
    return row


def measure(case: Case, names: Sequence[str], here: Any, comm: Any, repeats: int, say: Callable) -> list[Row]:
    """COLUMNS of the contenders of a case that take it; collective."""
    begin = time.perf_counter()
    made = make(case, here, comm)
    here.sync()
    counts, rows = comm.gather(sum(x.nnz for x in made.part.slabs)), []
    nnz = sum(counts)
    say(f"{case.name} {case.size}: {nnz:.3g} non-zeros made in {time.perf_counter() - begin:.1f} s")
    about = USUAL | {
        **{"case": case.name, "size": case.size, "gpus": comm.size, "gpu": str(here.device.name), "dtype": case.dtype},
        **{"m": int(made.part.rows[-1]), "k": made.part.slabs[0].k, "n": case.n, "nnz": nnz, "samples": repeats},
        "imbalance": max(counts) * comm.size / nnz,
    }
    for name in names:
        try:
            found = about | {"contender": name} | _row(name, case, made, here, comm, repeats)
            rows.append({column: found[column] for column in COLUMNS})
            rate = 2 * nnz * case.n / found["median_ms"] / 1e9
            say(f"  {name}: {found['median_ms']:.2f} ms, {rate:.1f} TFLOP/s, ready in {found['prepare_s']:.1f} s")
        except (ValueError, verification.WrongResult, RuntimeError, ImportError, MemoryError) as error:
            # PyTorch refuses on all ranks alike; of memory one alone may have too little, and the others wait for it.
            alike = name == DTENSOR or isinstance(error, ValueError | verification.WrongResult | ImportError)
            if not (comm.size == 1 if isinstance(error, MemoryError) else alike):
                raise
            say(f"  {name}: not measured: {device.first_line(error)}")
        gc.collect()
        here.xp.get_default_memory_pool().free_all_blocks()
        with contextlib.suppress(ImportError):
            torch.cuda.empty_cache()
    return rows


@command.program(
    "artifact.distributed.scaling",
    __doc__,
    command.option("--out", type=Path, required=True, help="CSV, gone on with where it is there"),
    command.option("--gpus", type=int, help="how many there must be"),
    command.option("--cases", default="graph,mesh,block"),
    command.option("--beyond", action="store_true", help="instead: matrices that no GPU holds, on at least two"),
    command.option("--contenders", default=",".join(CONTENDERS)),
    command.option("--scale", type=int, default=24, help="2^scale vertices of the graph"),
    command.option("--side", type=int, default=256, help="points along a side of the mesh"),
    command.option("--rows", type=int, default=65536, help="rows of the block-sparse weight"),
    command.option("-n", type=int, default=512, help="columns of B"),
    command.option("--tokens", type=int, default=8192, help="columns of B of the weight"),
    command.option("--repeats", type=int, default=5),
    command.option("--budget", type=float, default=140, help="seconds after which nothing new is begun"),
)
def main(given: command.Options) -> None:
    """Measure what is missing in the file that `given` names."""
    begin = time.monotonic()
    with distributed.start(size=given.gpus) as comm:
        here = distributed.Gpu(distributed.place().local)

        def say(text: str) -> None:
            if comm.rank == 0:
                print(f"{time.monotonic() - begin:6.1f} s  {text}", flush=True)

        df = comm.gather(read(given.out) if comm.rank == 0 else None)[0]
        done = set(df[KEY].itertuples(index=False, name=None))
        require(
            comm.size > 1 or not given.beyond,
            "--beyond is for matrices that no GPU holds, but there is one: start at least two",
        )
        every = cases(comm.size, given.scale, given.side, given.rows, given.n, given.tokens)
        contenders = [OURS] if given.beyond else given.contenders.split(",")
        for case in BEYOND if given.beyond else every:
            names = [x for x in contenders if (case.name, case.size, case.n, x, comm.size) not in done]
            if case.name not in given.cases.split(",") or not names:
                continue
            if max(comm.gather(time.monotonic() - begin)) > given.budget:
                say(f"{case.name} {case.size}: left for another time, {given.budget:g} s are over")
                continue
            rows = measure(case, names, here, comm, given.repeats, say)
            df = pd.concat([df, pd.DataFrame(rows, columns=[*COLUMNS]).astype(COLUMNS)], ignore_index=True)
            if comm.rank == 0:
                records.write_machine(given.out.parent, device.describe(here.device))
                write(given.out, df)


if __name__ == "__main__":
    raise SystemExit(main())
