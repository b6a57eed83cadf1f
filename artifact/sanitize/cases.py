"""What is run of no system, the library and the formats' own kernels, and what the systems' cases share.

Every variant that is a kernel of its own, whatever else its `prepare` takes, on problems with several tiles, ragged
edges, cut rows and split sums (`artifact/systems/<system>/sanitize.toml`, or `.py` of what is more than a problem).

A kernel is told of few multiprocessors (`few`), so that blocks that stay have several tiles each of a problem this
small. Kernels that choose among the others ("auto") are left out, and so are the ceilings, which measure and compute
nothing.

    python -m artifact.sanitize.cases SYSTEM OUT [--tool TOOL] [--only TEXT]

runs the cases of a system in one process. It writes a line of JSON to OUT before each case, its name, and one after it:
what came of it, and which kernels it loaded. So a case that hangs or ends the process is known by its name.
"""

import importlib
import json
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, replace
from functools import cache, partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

import kernels
from artifact import command, registry
from artifact.measure import verification
from kernels import distributed, formats, gpu, jit, tma
from kernels.contract import Problem
from kernels.distributed import generate
from kernels.distributed.backend import Gpu
from kernels.formats import bcsr, compress, csr, foreign, half, nm, two_four, wcsr
from kernels.lazy import cupy
from kernels.library import operands
from kernels.library.direct import Sampled

SMS = 4  #: that a kernel is told of, so that blocks that stay have several tiles of a small problem each
#: Kernels that ask the GPU itself which multiprocessor they run on.
WHOLE = ("wgmma_gpc",)

#: A name, and what runs a kernel twice and compares; it raises ValueError where the problem is none of the kernel's.
Case = tuple[str, Callable[[], Any]]


class Told:
    """Something that is said to be `said`, and what it is in all else."""

    def __init__(self, real: Any, **said: Any):
        self._real = real
        self.__dict__.update(said)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


def few(device: Any) -> Any:
    """Return a `cuda.core.Device` that says it has `SMS` multiprocessors."""
    return Told(device, properties=Told(device.properties, multiprocessor_count=SMS))


class Lab:
    """tool: what watches, such as "initcheck", or "" where nobody does."""

    def __init__(self, device: Any, tool: str = ""):
        self.device, self.few, self.tool = device, few(device), tool
        self.stream = device.create_stream()

    def products(
        self, problem: Problem, binds: Mapping[str, Callable[[Problem, Any], Any]], right=None
    ) -> Iterable[Case]:
        """Yield a case for each kernel on a problem.

        binds: name -> what makes it ready, of a problem and a device; right: what comes out, where that is not the
        product in float64 of the host's operands.
        """
        expected = cache(lambda: right or verification.oracle(problem, on="cpu"))
        for name, prepare in binds.items():
            yield f"{name}, {verification.describe(problem)}", partial(self.product, problem, name, prepare, expected)

    def product(
        self, problem: Problem, name: str, prepare: Callable, right: Callable[[], verification.Reference]
    ) -> None:
        """Check one kernel's product against `right`."""
        bound = prepare(problem, self.device if name in WHOLE else self.few)
        given = [x for *_, arguments in getattr(bound, "named", ()) for x in arguments]
        self.ready(bound.result(), [x for x in given if isinstance(x, tma.Mapped)])
        for _ in range(2):  # counters, flags and sums are as the first launch has left them
            bound.launch(self.stream)
            self.stream.sync()
        verification.compare(here(bound.result()), right(), name, problem.limit)

    def compare(self, out: Any, right: np.ndarray, name: str, limit: str) -> None:
        """Raise WrongResult unless what a GPU makes is a product, float64 on the host."""
        self.device.sync()
        verification.compare(here(out), verification.reference(right), name, limit)

    def ready(self, out: Any, maps: Iterable[tma.Mapped] = ()) -> None:
        """Whatever CuPy enqueued is done, and out is NaN; but for initcheck, which finds who reads what nobody wrote.

        It does not see what tensor maps write (Compute Sanitizer's known limitations), so their arrays are written by
        copies first: what they held.
        """
        if self.tool != "initcheck":
            stored = half.array_of(out)
            stored.data.memset(0xFF, stored.nbytes)
        else:
            for said in maps:
                _rewrite(said)
        cupy.cuda.runtime.deviceSynchronize()


def here(x: Any) -> Any:
    """Return a result on the host, in its memory order: no kernel of CuPy's brings it into another."""
    if isinstance(x, half.Dense):
        return replace(x, **{name: here(array) for name, array in x.arrays.items()})
    return x.T.get().T if x.flags.f_contiguous else x.get()


def _rewrite(said: tma.Mapped) -> None:
    runtime = cupy.cuda.runtime
    rows, columns = said.shape
    size = (rows - 1) * said.strides[0] + columns * said.strides[1]
    held = np.empty(size, np.uint8)
    runtime.memcpy(held.ctypes.data, said.address, size, runtime.memcpyDeviceToHost)
    runtime.memcpy(said.address, held.ctypes.data, size, runtime.memcpyHostToDevice)


# ---------------------------------------------------------------- what systems run

#: Variants that choose among others, beside those that are called so.
CHOOSING = ("v3_searched",)
#: Plans: format, dtype and accuracy.
PLANS = (
    ("csr", "float32", None),
    ("csr", "float32", "tf32"),
    ("csr", "bfloat16", None),
    ("csr", "float16", None),
    ("bcsr", "bfloat16", None),
    ("bcsr", "float32", "tf32"),
    ("2:4", "float16", None),
    ("nm", "float32", None),
    ("nm", "bfloat16", None),
)
#: Pruning: its dtype, where a dense matrix has values, and the share that stays.
PRUNED = {
    "2:4": ("float16", (slice(None), slice(None, None, 4)), None),
    "nm": ("float32", (slice(None), slice(None, None, 32)), 1 / 32),
    "block": ("bfloat16", (slice(64, 128), slice(128, 192)), 1 / 12),
}


def scattered(m: int = 333, k: int = 457, share: float = 0.05) -> csr.Csr:
    """Return a matrix with empty rows, and two full ones, which are cut."""
    where = np.random.default_rng(0).random((m, k)) < share
    where[[7, m - 1]] = True
    where[50:60] = False
    row_ptr = np.concatenate([[0], np.cumsum(where.sum(1))]).astype(np.int32)
    val = np.random.default_rng(1).uniform(-1, 1, int(row_ptr[-1])).astype(np.float32)
    return csr.Csr(m, k, row_ptr, np.nonzero(where)[1].astype(np.int32), val)


def own(system) -> dict[str, Callable]:
    """name -> bind of the variants that choose among no others."""
    return {
        name: partial(system.prepare, name) for name in system.VARIANTS if "auto" not in name and name not in CHOOSING
    }


def specified(system: str, path: Path, lab: Lab) -> Iterable[Case]:
    """Yield the cases that a file names: problems, of `scattered` where it says so, and kernels, by default all."""
    module = importlib.import_module(f"kernels.{system}")
    for case in registry.toml(path)["case"]:
        make = partial(module.problem_from_csr, scattered()) if case.get("scattered") else module.problem
        binds = {name: partial(module.prepare, name) for name in case.get("kernels", own(module))}
        yield from lab.products(make(**case["problem"]), binds)


def configured(prepare: Callable, config, problem, device, **more):
    """Prepare a configuration as a trial of the tuner does."""
    return prepare("trial", problem, device, config, **more)


def require_right(name: str, holds: bool) -> None:
    """Raise WrongResult, with the name, unless it holds."""
    if not holds:
        raise verification.WrongResult(f"{name} is wrong")


def require_close(name: str, found: np.ndarray, right: np.ndarray, limit: float) -> None:
    """Raise WrongResult unless every element is right to a share `limit` of itself, or of the root mean square."""
    most = limit * np.maximum(np.abs(right), np.sqrt((right**2).mean()))
    require_right(name, bool((np.abs(found - right) <= most).all()))


def normal(seed: int, *shape: int) -> np.ndarray:
    """Standard-normal float32 values."""
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


# ---------------------------------------------------------------- the library and the formats


def library(lab: Lab) -> Iterable[Case]:
    """Plans of every format and dtype, with what they do besides the kernel: other orders, factors, single calls."""
    sparse, single = scattered(200, 320), partial(_planned, lab, scattered(200, 320), "float32", None, 64)
    return [
        *(
            (
                f"plan of {kind}, {dtype} {accuracy or ''}, n={n}",
                partial(_planned, lab, _of_format(kind, dtype, accuracy, sparse), dtype, accuracy, n),
            )
            for (kind, dtype, accuracy), n in product(PLANS, (64, 33))
        ),
        ("plan in order of csr", partial(single, deterministic=True)),
        ("plan tuned of csr", partial(single, tune=True)),
        *((f"plan pruned to {prune}", partial(_pruned, lab, prune)) for prune in PRUNED),
        *((f"spmm of csr, n={n}", partial(_single, lab, sparse, n)) for n in (64, 33, 1)),
        *(
            (f"sddmm of {dtype}, n={n}", partial(_sampled, lab, sparse, n, dtype))
            for n, dtype in product((16, 33, 64, 100, 300), ("float32", *half.DTYPES))
        ),
        *(  # of so many places that panels are taken
            (f"sddmm of panels of {dtype}, n={n}", partial(_sampled, lab, scattered(400, 457, 0.5), n, dtype))
            for n, dtype in product((248, 256), ("float32", *half.DTYPES))
        ),
        # Of float32 and 2 bytes: rows of uint4 to unsigned short.
        *((f"gather of rows, {size}", partial(_gathered, lab, size)) for size in (8, 4, 3, 2)),
    ]


def _of_format(kind: str, dtype: str, accuracy: str | None, sparse: csr.Csr) -> Any:
    vectors = nm.random(320, 200, 8, 32, 16, 0)
    make: dict[str, Callable[[], Any]] = {
        "csr": lambda: replace(sparse, val=_rounded_to(sparse.val, dtype)),
        "bcsr": lambda: bcsr.random(200, 320, 0.4, 0, dtype=dtype),
        "2:4": lambda: two_four.random(200, 320, dtype, 0),
        "nm": lambda: replace(vectors, val=_rounded_to(vectors.val, dtype)),
    }
    made = make[kind]()
    return replace(made, val=_cut_to(made.val, accuracy))


def _rounded_to(values: np.ndarray, dtype: str) -> np.ndarray:
    return half.from_bits(half.to_bits(values, dtype), dtype)


def _dense(values: np.ndarray, dtype: str, order: Any = "C") -> Any:
    made = cupy.asarray(np.asarray(half.to_bits(values, dtype), order=order))
    return half.Half(dtype, made) if dtype in half.DTYPES else made


def _cut_to(values: np.ndarray, accuracy: str | None) -> np.ndarray:
    return (values.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32) if accuracy == "tf32" else values


def _planned(lab: Lab, a, dtype: str, accuracy: str | None, n: int, **more) -> None:
    made = kernels.plan(a, n, dtype=dtype, accuracy=accuracy, **({"tune": False} | more))
    dense = formats.to_dense(a).astype(np.float64)
    numbers = _rounded_to(_cut_to(normal(5, made.k, n), accuracy), dtype)
    right = (dense.T if isinstance(a, nm.Nm) else dense) @ numbers.astype(np.float64)
    limit = "tf32" if accuracy == "tf32" else dtype
    for order in "CF":
        b = _dense(numbers, dtype, order)
        out = made(b)
        lab.compare(out, right, "a plan", limit)
    made(b, out=out, alpha=0.5, beta=2.0)
    lab.device.sync()
    require_close("a plan that adds", formats.to_dense(here(out)), 2.5 * right, 3 * verification.LIMITS[limit].max_err)


def _pruned(lab: Lab, prune: str) -> None:
    """Prune a dense matrix on the GPU: its largest values are few enough to stay, so nothing is lost."""
    (dtype, where, share), dense = PRUNED[prune], np.zeros((192, 256), np.float32)
    dense[where] = np.random.default_rng(11).integers(1, 9, dense[where].shape)
    numbers = np.random.default_rng(12).integers(-4, 5, (256, 40)).astype(np.float32)
    made = kernels.plan(cupy.asarray(dense), 40, dtype=dtype, prune=prune, density=share, vector=32, tune=False)
    lab.compare(made(_dense(numbers, dtype)), dense.astype(np.float64) @ numbers, f"a plan pruned to {prune}", dtype)


def _single(lab: Lab, a: csr.Csr, n: int) -> None:
    numbers, there = normal(6, a.k, n), csr.to_device(a)
    b, right = cupy.asarray(numbers), csr.to_dense(a).astype(np.float64) @ numbers
    for _ in range(2):
        lab.compare(kernels.spmm(there, b), right, "spmm", "float32")


def _sampled(lab: Lab, a: csr.Csr, n: int, dtype: str) -> None:
    g, b = (_rounded_to(normal(seed, rows, n), dtype) for seed, rows in ((7, a.m), (8, a.k)))
    out = Sampled(csr.to_device(a), lab.device)(_dense(g, dtype), _dense(b, dtype))
    right = (g.astype(np.float64) @ b.astype(np.float64).T)[csr.rows(a), a.col_idx]
    lab.device.sync()
    require_close("sddmm", formats.to_dense(here(out)), right, verification.LIMITS[dtype].max_err)


def _gathered(lab: Lab, columns: int) -> None:
    rng = np.random.default_rng(8)
    b, ids = rng.integers(0, 2**16, (50, columns)).astype(np.uint16), rng.integers(0, 50, 77)
    out = cupy.empty((77, columns), cupy.uint16)
    Gpu(lab.device.device_id).gather(cupy.asarray(b), cupy.asarray(ids), out)
    lab.device.sync()
    require_right("gather", np.array_equal(here(out), b[ids]))


def generated(lab: Lab) -> Iterable[Case]:
    """Large matrices as ranks make them on their GPUs, here one small part, and its product."""
    for made in (generate.Rmat(8, 8, 3), generate.Stencil(6, 2)):
        yield f"{made}", partial(_generated, lab, made)


def _generated(lab: Lab, made) -> None:
    edges = np.array([0, made.m])
    part, host = generate.part(made, edges, 0), generate.host_part(made, edges, 0).a
    _require_same(part.a, host)
    plan = distributed.plan(part, 48, chunks=2, machine=Gpu(lab.device.device_id))
    generate.fill_dense(plan.operand(), 0, 5)
    right = csr.to_dense(host).astype(np.float64) @ generate.dense(np.arange(made.m), np.arange(48), 48, 5)
    lab.compare(plan().whole(), right, f"the product of {made}", "float32")


def conversions(lab: Lab) -> Iterable[Case]:
    """Return the formats' own kernels.

    What prunes, what looks whether a matrix is one, what makes one format of another.
    """
    sparse, ragged, dtypes = scattered(), normal(14, 70, 100), ("float32", "bfloat16")
    blocks, windows = bcsr.from_csr(sparse, block=32), wcsr.from_csr(sparse)
    pruned = two_four.compress(ragged, "float16", prune=True), nm.compress(ragged, 2, 4, 32, prune=True)
    every: tuple[Any, ...] = (blocks, windows, *pruned)
    twice = np.r_[blocks.col_idx[::-1][:3], blocks.col_idx[3:]]  # out of order, or in one place
    sizes: tuple[int | tuple[int, int], ...] = (64, 16, (32, 128))
    of_vectors = (((100, 70), 2, 4, 32), ((130, 33), 8, 32, 8), ((64, 20), 1, 4, 1))
    pairs: list[tuple[Any, str, str, Any]] = [
        (two_four, f"2:4 of {8 * half.BITS[dtype]().itemsize} bits", dtype, half.to_bits(normal(9, *size), dtype))
        for size, dtype in product(((70, 100), (33, 77)), half.BITS)
    ]
    made: list[tuple[str, Callable, Any]] = [  # name, what converts on the host and on a GPU, and what is given to it
        *((f"bcsr, {d} {b}", partial(bcsr.from_csr, block=b, dtype=d), sparse) for d, b in product(dtypes, sizes)),
        *((f"wcsr, {d} {w}", partial(wcsr.from_csr, window=w, dtype=d), sparse) for d, w in product(dtypes, (64, 4))),
        ("bcsr to csr", bcsr.to_csr, blocks),
        ("wcsr to csr", wcsr.to_csr, windows),
        *(
            (f"nm, {size} {k, g, v}", partial(nm.compress, keep=k, group=g, vector=v, prune=True), normal(13, *size))
            for size, k, g, v in of_vectors
        ),
        *(
            (f"{name}, {dtype} {given.shape}", partial(module.compress, dtype=dtype, prune=True), given)
            for module, name, dtype, given in pairs
        ),
        *(
            (
                f"{name} that fit, {dtype} {given.shape}",
                partial(module.compress, dtype=dtype),
                module.to_dense_bits(module.compress(given, dtype, prune=True)),
            )
            for module, name, dtype, given in pairs
        ),
        *((f"{type(given).__name__} as CSR", operands.as_csr, given) for given in every),
        ("bcsr in order", bcsr.in_order, replace(blocks, col_idx=twice.astype(np.int32))),
    ]
    return [
        *((name, partial(_converted, convert, given)) for name, convert, given in made),
        *((f"{type(given).__name__} looked at", partial(_looked_at, given)) for given in every),
        ("pointers and indices of others", _looked_at_others),
        ("numbers as float32", _as_float32),
    ]


def _on_gpu(given: Any) -> Any:
    return cupy.asarray(given) if isinstance(given, np.ndarray) else formats.to_device(given)


def _converted(convert: Callable, given: Any) -> None:
    """Check that a GPU makes of a matrix what NumPy makes of it."""
    _require_same(convert(_on_gpu(given)), convert(given))


def _require_same(made: Any, right: Any) -> None:
    for name in (part.name for part in fields(right) if isinstance(getattr(right, part.name), np.ndarray)):
        found, expected = here(getattr(made, name)), getattr(right, name)
        require_right(f"{name} of {type(right).__name__}", np.array_equal(found, expected))


def _looked_at(given: Any) -> None:
    """Check that a GPU takes what the host takes, and finds the same fault."""
    formats.validate(formats.to_device(given))
    name = next(x for x in ("meta", "index", "col_idx") if hasattr(given, x))
    wrong = getattr(given, name).copy()
    wrong.flat[wrong.size // 2] = 0 if name == "meta" else 2**30
    _require_same_refusal(formats.validate, replace(given, **{name: wrong}))


def _looked_at_others() -> None:
    def look_at_compressed(columns, within: int) -> None:
        pointers = half.array_module(columns).asarray(np.array([0, 2, 2, 4], columns.dtype))
        foreign.require_compressed("CSR", {"row_ptr": pointers, "col_idx": columns}, 3, within, "columns", 4)

    for index, within in product((np.int32, np.int64), (6, 5)):
        columns = np.array([0, 5, 1, 4], index)
        _require_same_refusal(look_at_compressed, columns, within)
        _require_same_refusal(partial(foreign.require_within, "COO", "col_idx"), columns, within, "columns")


def _require_same_refusal(look: Callable, given: Any, *more: Any) -> None:
    """`look` says of what lies on the GPU what it says of what lies on the host."""
    said = set()
    for x in (_on_gpu(given), given):
        try:
            look(x, *more)
            said.add("")
        except ValueError as error:
            said.add(str(error))
    require_right(f"what is said of {type(given).__name__} {more}", len(said) == 1)


def _as_float32() -> None:
    x = np.random.default_rng(15).standard_normal((45, 67))
    for view in (lambda y: y, lambda y: y.T, lambda y: y[:, ::2]):
        made, _ = compress.float32(view(cupy.asarray(x)), check=True)
        require_right("a cast to float32", np.array_equal(here(made), view(x).astype(np.float32)))


#: What one process runs of no system: name -> its cases.
SHARED = {"library": library, "generated": generated, "conversions": conversions}


def find() -> dict[str, Callable[[Lab], Iterable[Case]]]:
    """Return what one process runs: name -> its cases.

    The systems' own, from their sanitize.toml or sanitize.py, and those of no system.
    """
    of_systems = (
        {system: partial(specified, system, toml)} if toml.is_file() else registry.module(system, "sanitize").CASES
        for system in registry.find()
        for toml in [registry.FOLDER / system / "sanitize.toml"]
    )
    return {name: cases for found in (*of_systems, SHARED) for name, cases in found.items()}


# ---------------------------------------------------------------- one process

#: Opcodes of the copy engine on compute capability 9.0, without what says where operands lie: UTMALDG, UTMASTG, UBLKCP.
_COPIES = (0x1B4, 0x1B5, 0x1BA)
_CLUSTERS = (0x1C7,)  #: barriers of a cluster: UCGABAR


def by_copy_engine(instructions: bytes, opcodes: tuple[int, ...] = _COPIES) -> bool:
    """Whether a kernel's machine code copies by TMA, which racecheck does not see, or has other opcodes."""
    return bool(np.isin(np.frombuffer(instructions, "<u8")[::2] & 0x1FF, opcodes).any())


class Unseen(Exception):
    """A tool does not look at a kernel, and breaks when it is launched."""


def note_loaded(tool: str = "") -> dict[str, bool]:
    """Return what `jit.load` loads from now on, kernel -> whether it copies by TMA: a dict that fills.

    tool: "racecheck" refuses kernels that copy by TMA between the blocks of a cluster: it leaves them out and yet ends
    with "failed to handle a hardware exception" (CUDA 13.0's, on an H100).
    """
    loaded: dict[str, bool] = {}
    load = jit.load

    def noted(cubin, *more):
        name, instructions = cubin.entry.split("<")[0], jit._instructions(cubin)
        copies = loaded.setdefault(name, by_copy_engine(instructions))
        if tool == "racecheck" and copies and by_copy_engine(instructions, _CLUSTERS):
            raise Unseen(f"{name} copies by TMA in a cluster, which racecheck does not see")
        return load(cubin, *more)

    jit.load = noted
    return loaded


def run(cases: Iterable, loaded: dict[str, bool], only: str, write) -> None:
    """Run cases; write(line) for each, with what it loaded. only: a text that their names have."""
    for name, work in ((name, work) for name, work in cases if only in name):
        write({"case": name})
        begin, said = time.perf_counter(), {}
        try:
            work()
        except (ValueError, Unseen) as error:
            said = {"unseen" if isinstance(error, Unseen) else "refused": str(error)}
        except Exception as error:  # a wrong result, or an error of the driver's
            said = {"failed": f"{type(error).__name__}: {error}".splitlines()[0]}
        write(
            {"case": name, "done": True, "kernels": dict(loaded), "seconds": round(time.perf_counter() - begin, 3)}
            | said
        )
        loaded.clear()


@command.program(
    "artifact.sanitize.cases",
    "The cases of a system in turn, as compute-sanitizer watches.",
    command.option("room"),
    command.option("out", type=Path),
    command.option("--tool", default=""),
    command.option("--only", default="", help="cases whose name has this text"),
)
def main(given: command.Options) -> None:
    """Run the cases of one process, and write what was run and what was wrong."""
    cupy.cuda.set_allocator(None)  # an array is an allocation: what lies beyond it is nobody's
    loaded, most = note_loaded(given.tool), jit.most_clusters
    jit.most_clusters = lambda *asked: min(SMS // 2, most(*asked))
    with given.out.open("w", encoding="utf-8") as file:

        def write(line: dict) -> None:
            print(json.dumps(line), file=file, flush=True)

        run(find()[given.room](Lab(gpu.open_device(0), given.tool)), loaded, given.only, write)
        write({"end": True})


if __name__ == "__main__":
    from artifact.sanitize import cases

    raise SystemExit(cases.main())  # of the module that the systems' cases import
