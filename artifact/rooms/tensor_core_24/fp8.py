"""FP8: what the chapter measures of it, and a command that runs this alone.

    python -m artifact.rooms.tensor_core_24.fp8 --records FOLDER [--part check tiles measure] [--preset kick]

    check    every configuration on small whole numbers, whose products are exact: sizes that fit no tile, scales,
             both outputs; pruning on the GPU against NumPy; errors at large k. Writes fp8_check.table
    tiles    every configuration that the tuner would try, beside the libraries, at a few sizes. Writes fp8_tiles.table
    measure  the records of the chapter, by the harness; points that are there already are kept

What hangs, breaks the GPU's context or is wrong in `check` is written to fp8_left_out.txt, and neither tried nor
measured from then on: the parts run in a process of their own, which is started again without it. Delete the file to
try again. The tables are CSV under another ending, because they are no records: for whoever changes the kernels; no
page reads them.
"""

from __future__ import annotations

import argparse
import csv
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd

from artifact import registry
from artifact.measure import bench, check, records
from artifact.measure import run as harness
from artifact.measure.run import Run
from artifact.rooms.tensor_core_24 import energy, variants
from artifact.rooms.tensor_core_24.experiments import Counters
from kernels import jit, tuning
from kernels.contract import Problem
from kernels.formats import eight, half, two_four_eight
from kernels.formats.eight import Eight
from kernels.tensor_core_24 import fp8, fp8_family
from kernels.tensor_core_24 import fp8_operands as operands
from kernels.tensor_core_24.fp8_family import Fp8
from kernels.tensor_core_24.sweeps import DECODING, FEW, FP8_OUTPUT_SIZES, LLM, SQUARE
from kernels.tensor_core_24.sweeps import LINEAR as LINEAR_SHAPES
from kernels.tensor_core_24.sweeps import RAGGED as ROOM_RAGGED

ROOM = "tensor_core_24"
CONTENDERS = (*fp8.VARIANTS, "cusparselt_default", "cusparselt", "cublaslt_eight")
#: With whom the layout of a linear layer is compared, from which size on.
LINEAR = ("fp8_auto", "cusparselt", "cublaslt_eight")
SMALLEST = 4096
#: Whose counters are shown, our best and what it is held against.
COUNTED = ("fp8_packed", "fp8_direct", "fp8_pairs", "fp8_auto", "cusparselt", "cublaslt_eight")
#: For the looks of figures, as variants.ORDER.
ORDER = tuple(fp8.VARIANTS)
#: m, n, k: smaller than a tile and a step, around their edges, rows that TMA cannot address, more tiles than SMs.
RAGGED = (
    (64, 64, 128),
    (1, 8, 16),
    (3, 1, 1),
    (77, 136, 100),
    (129, 264, 63),
    (300, 257, 1000),
    (513, 1030, 65),
    (1921, 2305, 130),
)
#: Scales and dtype of C that are checked.
KINDS = tuple((scale, out) for scale in operands.SCALES for out in operands.OUTS)
#: Seconds after which a launch of those is taken to hang.
HANGS_S = 5
#: The exit status of a process that begins again without what it left out, and how often that is done.
AGAIN, STARTS = 75, 6
TILES = (
    (4096,) * 3,
    (8192,) * 3,
    (3072,) * 3,
    (1024,) * 3,
    (8192, 512, 8192),
    (8192, 128, 8192),
    (8192, 64, 8192),
    (8192, 16, 8192),
    (4096, 32, 4096),
)


# ---------------------------------------------------------------- the records


def problems(run: Run) -> list:
    """The room's shapes whose rows every library takes."""
    shapes = (*((size,) * 3 for size in SQUARE[run.preset]), *LLM[run.preset], *FEW[run.preset])
    return [partial(fp8.problem, m, n, k, seed=run.seed) for m, n, k in shapes]


def contenders(run: Run) -> dict:
    """name -> callable(problem) -> Bound; where `run` only reads, names -> None."""
    if run.device is None:
        return dict.fromkeys(CONTENDERS)
    ours = {name: partial(fp8.bind, name, device=run.device) for name in fp8.VARIANTS}
    return ours | registry.contenders(fp8.BASELINES, run.device)


def measure(run: Run) -> pd.DataFrame | None:
    """One row per shape and contender in `records.COLUMNS`; None where the GPU has no wgmma, and where `run` only reads
    and nothing was recorded. A library that refuses a shape has no row there, which `records.read_absent` tells."""
    return _with_libraries(run, "fp8", problems(run), CONTENDERS)


def linear(run: Run) -> pd.DataFrame | None:
    """The same in the layout of a linear layer, many tokens and few: `LINEAR`."""
    many = [shape for shape in LINEAR_SHAPES[run.preset] if min(shape) >= SMALLEST]
    shapes = (*many, *DECODING[run.preset])
    made = [partial(fp8.problem, *shape, seed=run.seed, orders="FF") for shape in shapes]
    return _with_libraries(run, "fp8_linear", made, LINEAR)


def _with_libraries(run: Run, experiment: str, makers, names) -> pd.DataFrame | None:
    if not _measured(run, experiment):
        return None
    path = run.folder / f"{experiment}.csv"
    every = {name: bind for name, bind in contenders(run).items() if name in names}
    if run.mode == "measure":
        failed = [why for make in makers if (why := _measure_point(run, path, make(), every))]
        if failed:
            raise RuntimeError(f"{len(failed)} shapes could not be measured; the first: {failed[0]}")
    shapes = [make() for make in makers]
    if experiment not in records.read_absent(run.folder):
        return run.measure(experiment, shapes, every)
    df = records.read(path)
    wanted = {(p.m, p.n, p.k) for p in shapes}
    here = [at in wanted for at in df[["m", "n", "k"]].itertuples(index=False, name=None)]
    return df[np.array(here) & df["variant"].isin(names)].reset_index(drop=True)


def _measure_point(run: Run, path: Path, problem: Problem, every: dict) -> str:
    """Measure a shape with all that take it; "" or why it could not be done."""
    point = tuple(getattr(problem, column) for column in records.POINT)
    known = records.read_absent(run.folder).get(path.stem, {})
    gone = {variant for variant, *at in known if tuple(at) == point}
    everybody = {
        name: partial(_or_refuse, bind) if name.startswith(registry.PREFIXES) else bind
        for name, bind in every.items()
        if name not in gone
    }

    def left_out(name: str, why: str) -> None:
        print(f"left out: {why}", flush=True)
        records.leave_out(path, (name, *point), why)

    for name, (config, *_) in fp8_family.RUNGS.items():
        if config in fp8_family.LEFT_OUT and everybody.pop(name, None):
            left_out(name, f"{name} was wrong or hung in its check")
    try:
        harness.willing(everybody, lambda here: run.measure(path.stem, [problem], here), left_out)
    except Exception as error:  # of one shape: the others are measured, and the command fails
        why = f"{check.describe(problem)}: {type(error).__name__}: {error}".splitlines()[0]
        print(f"NOT MEASURED {why}", flush=True)
        return why
    return ""


def outputs(run: Run) -> pd.DataFrame | None:
    """Scales by vectors and C in e4m3, and sizes that no library takes: `fp8_auto` alone, as `measure`."""
    if not _measured(run, "fp8_outputs"):
        return None
    sizes = [(size,) * 3 for size in FP8_OUTPUT_SIZES[run.preset]]
    made = [partial(fp8.problem, *size, seed=run.seed, scale=scale, out=out) for size in sizes for scale, out in KINDS]
    made += [partial(fp8.problem, *size, seed=run.seed) for size in ROOM_RAGGED[run.preset] if size not in sizes]
    mine = {"fp8_auto": contenders(run)["fp8_auto"]}
    return run.measure("fp8_outputs", made, mine)


def counted(counters: Counters, sms: int) -> pd.DataFrame:
    """Of `COUNTED`, as `energy.activity`, by size and contender; empty where nothing was counted. sms: of the GPU."""
    rows = energy.activity(counters, sms)
    rows = rows[rows["variant"].isin(COUNTED)].set_index(["size", "variant"])
    order = {v: i for i, v in enumerate(COUNTED)}
    return rows.sort_index(key=lambda level: level.map(order) if level.name == "variant" else level)


def _measured(run: Run, experiment: str) -> bool:
    """Whether there are records, or will be."""
    if run.mode == "measure":
        return variants.is_hopper(run.machine)
    return (run.folder / f"{experiment}.csv").exists()


# ---------------------------------------------------------------- exact products


def exact(
    m: int, n: int, k: int, scale: str = "tensor", out: str = "bfloat16", seed: int = 0
) -> tuple[Problem, np.ndarray]:
    """A problem of small whole numbers over scales of powers of two, and C (m, n) in float32, rounded to `out`.

    A is -1 and 1 where it stores something, B -2 to 2: partial sums up to k = 4096 are whole numbers of 13 bits, which
    the tensor cores keep, so that every element is the one that rounding once makes.
    """
    draw = np.random.default_rng([seed, m, n, k])
    a = operands.host_operands(m, n, k, seed, "tensor").a
    signs = eight.to_bits(draw.choice(np.float32([-1, 1]), a.val.shape), "e4m3")
    b_t = draw.choice(np.float32([-2, -1, 0, 1, 2]), (n, k))
    shapes = ((1, 1), (1, 1)) if scale == "tensor" else ((m, 1), (1, n))
    scale_a, scale_b = (draw.choice(np.float32([0.25, 0.5, 1, 2]), shape) for shape in shapes)
    a = replace(a, val=np.where(a.val & 0x7F, signs, np.uint8(0)), scale=scale_a)
    b = Eight("e4m3", eight.to_bits(b_t, "e4m3").T, scale_b)
    out_scale = 4.0
    product = two_four_eight.to_dense(a) @ eight.to_dense(b)
    if out == "e4m3":
        kept = eight.from_bits(eight.to_bits(product / np.float32(out_scale), out), out) * np.float32(out_scale)
    else:
        kept = half.from_bits(half.to_bits(product, out), out)
    return fp8.problem_from(a, b, out, out_scale), kept


def numbers(result) -> np.ndarray:
    """An output of a GPU as float32 on the host."""
    return (eight if isinstance(result, Eight) else half).to_dense(result).get()


def compare(bound, expected: np.ndarray, device) -> str:
    """ "" where a launch writes exactly this, else what is wrong first."""
    stream = device.create_stream()
    bound.result().fill(np.nan)
    device.sync()
    bound.launch(stream)
    wait(stream)
    found = numbers(bound.result())
    wrong = ~(found == expected)
    if not wrong.any():
        return ""
    row, column = np.argwhere(wrong)[0]
    return (
        f"{wrong.sum()} of {wrong.size} elements are wrong, the first at row {row}, column {column}: "
        f"{found[row, column]} instead of {expected[row, column]}"
    )


class Hangs(Exception):
    """A launch does not end."""


def wait(stream) -> None:
    """Until the stream is done; Hangs after a while."""
    end, began = stream.record(), time.perf_counter()
    while not end.is_done:
        if time.perf_counter() - began > HANGS_S:
            raise Hangs(f"it has not ended after {HANGS_S} s")
        time.sleep(1e-4)


def left_out_file(folder: Path) -> Path:
    return folder / "fp8_left_out.txt"


def leave_out(folder: Path, config: Fp8, error: Exception | None) -> None:
    """Nothing tries `config` any more. After an error that leaves the GPU of no use, the process ends."""
    fp8_family.LEFT_OUT.add(config)
    with left_out_file(folder).open("a", encoding="utf-8") as file:
        file.write(f"{tuning.knobs(config)}\n")
    if isinstance(error, Hangs) or "CUDA" in type(error).__name__:
        print(f"left out, and once more: {tuning.knobs(config)}: {error}", flush=True)
        os._exit(AGAIN)


def read_left_out(folder: Path) -> set[Fp8]:
    """What earlier checks have left out."""
    path = left_out_file(folder)
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    return {config for config in configurations().values() if tuning.knobs(config) in lines}


def configurations(kernels=fp8_family.KERNELS) -> dict[str, Fp8]:
    """What is checked and timed: the rungs by their names, the rest of the family by their knobs."""
    rungs = {name: c for name, (c, *_) in fp8_family.RUNGS.items() if c.kernel in kernels}
    return rungs | {tuning.knobs(c): c for c in fp8_family.FAMILY if c.kernel in kernels and c not in rungs.values()}


def every_kind() -> dict[str, Fp8]:
    """What is checked with all scales and outputs: the rungs, and widths of C that end within 16 columns or are 16."""
    odd = {name: c for name, c in configurations().items() if c.kernel == "direct" and c.n in (16, 184)}
    return {name: c for name, (c, *_) in fp8_family.RUNGS.items()} | odd


def compile_all() -> None:
    """Every instantiation that the parts run, on as many threads as there are processors."""
    kinds = [
        ("bfloat16", False, False),
        ("bfloat16", True, True),
        ("e4m3", False, False),
        ("e4m3", True, True),
    ]
    jobs = {(c.source, c.entry()) for c in configurations().values()}
    jobs |= {(c.source, c.entry(*kind)) for c in every_kind().values() for kind in kinds}
    with ThreadPoolExecutor() as pool:
        list(pool.map(lambda job: jit.compile_cubin(*job, fp8_family.TARGETS[0]), jobs))


def verify(run: Run, kernels=fp8_family.KERNELS) -> Iterator[dict]:
    """A row for every thing checked: what, where, wrong ("" where it is right), rel_err, max_err."""
    device = run.device
    most = device.properties.max_shared_memory_per_block_optin
    for m, n, k in RAGGED:
        for scale, out in KINDS:
            problem, expected = exact(m, n, k, scale, out, run.seed)
            few = every_kind()
            for name, config in configurations(kernels).items():
                if config in fp8_family.LEFT_OUT or not fp8_family.fits(config, m, n, k, most):
                    continue
                if (scale, out) != KINDS[0] and name not in few:
                    continue
                row = {
                    "what": name,
                    "where": f"{m} x {n} x {k}, {problem.label}",
                    "rel_err": 0,
                    "max_err": 0,
                }
                try:
                    wrong = compare(fp8.bind_config(name, problem, device, config), expected, device)
                    failure = None
                except Exception as error:
                    wrong, failure = f"{type(error).__name__}: {error}".splitlines()[0], error
                if wrong:
                    leave_out(run.folder, config, failure)
                yield row | {"wrong": wrong}
            problem.release()
    yield pruning(run.seed)
    for m, n, k in ((2048, 2048, 512), (2048, 2048, 4096), (1024, 1024, 16384)):
        for scale, out in KINDS:
            problem = fp8.problem(m, n, k, seed=run.seed, scale=scale, out=out)
            reference = check.oracle(problem)
            here = (
                contenders(run) if (scale, out) == KINDS[0] else {"fp8_persistent": contenders(run)["fp8_persistent"]}
            )
            for name, bind in here.items():
                rung = fp8_family.RUNGS.get(name)
                if rung is not None and rung[0] in fp8_family.LEFT_OUT:
                    continue
                if name != "fp8_auto" and (rung is None or rung[0].kernel in kernels):
                    yield accuracy(name, bind, problem, reference, device)
            problem.release()


def accuracy(name: str, bind, problem: Problem, reference, device) -> dict:
    row = {"what": name, "where": check.describe(problem), "rel_err": np.nan, "max_err": np.nan}
    try:
        errors = check.check(bind(problem), problem, reference, device.create_stream())
        return row | {"wrong": "", "rel_err": errors.rel_err, "max_err": errors.max_err}
    except Exception as error:  # a library's own have no class in common
        return row | {"wrong": f"{type(error).__name__}: {error}".splitlines()[0]}


def pruning(seed: int) -> dict:
    """Pruning and compressing by the GPU against NumPy, at a size whose rows are no whole units."""
    import cupy

    dense = np.random.default_rng(seed).integers(0, 256, (333, 1001), dtype=np.uint8)
    here = two_four_eight.compress(dense, "e4m3", prune=True)
    there = two_four_eight.to_host(two_four_eight.compress(cupy.asarray(dense), "e4m3", prune=True))
    wrong = [name for name in ("val", "meta") if not np.array_equal(getattr(here, name), getattr(there, name))]
    words = f"{' and '.join(wrong)} differ from NumPy's" if wrong else ""
    return {
        "what": "compress_eight",
        "where": "333 x 1001",
        "wrong": words,
        "rel_err": 0,
        "max_err": 0,
    }


# ---------------------------------------------------------------- tiles


def tiles(run: Run, shape: tuple[int, int, int], kernels, budget_s: float = 0.06) -> list[dict]:
    """A row for every configuration and library at a shape, timed together, the fastest first."""
    m, n, k = shape
    properties = run.device.properties
    limits = properties.multiprocessor_count, properties.max_shared_memory_per_block_optin
    configs = [c for c in configurations(kernels).values() if c in fp8_family.candidates(m, n, k, *limits)]
    share: dict = {}
    every = {
        tuning.knobs(c): lambda problem, c=c: fp8.bind_config(_one_word(c), problem, run.device, c, cache=share)
        for c in configs
    }
    called = {_one_word(c): tuning.knobs(c) for c in configs}
    libraries = registry.contenders(fp8.BASELINES, run.device)
    every |= {name: partial(_or_refuse, bind) for name, bind in libraries.items()}
    problem = fp8.problem(m, n, k, seed=run.seed)
    reference = check.oracle(problem)

    def work(here) -> tuple[dict, dict, dict]:
        bounds = {name: bind(problem) for name, bind in here.items()}
        timer = partial(bench.time, budget_s=budget_s)
        return bounds, *harness.check_and_time(bounds, problem, reference, run.device, timer)

    while True:
        try:
            bounds, errors, timings = harness.willing(
                every, work, lambda name, why: print(f"left out: {name}: {why}", flush=True)
            )
            break
        except check.WrongResult as error:
            print(f"WRONG at {shape}: {error}", flush=True)
            del every[called[str(error).split(" ", 1)[0]]]
    problem.release()
    rows = [
        {
            "m": m,
            "n": n,
            "k": k,
            "contender": name,
            "choice": getattr(bounds[name], "choice", ""),
            "median_us": t.median_us,
            "q25_us": t.q25_us,
            "q75_us": t.q75_us,
            "samples": t.samples,
            "tflops": 2e-6 * m * n * k / t.median_us,
            "sm_mhz": t.sm_mhz,
            "power_w": t.power_w,
            "rel_err": errors[name].rel_err,
            "max_err": errors[name].max_err,
            "predicted_kilocycles": next(
                (fp8_family.predict(c, m, n, k, limits[0]) / 1e3 for c in configs if tuning.knobs(c) == name), np.nan
            ),
        }
        for name, t in timings.items()
    ]
    return sorted(rows, key=lambda row: row["median_us"])


def _one_word(config: Fp8) -> str:
    """What an error's first word is, where a configuration is wrong."""
    return tuning.knobs(config).replace(" ", ",")


def _or_refuse(bind, problem: Problem):
    """A library that fails in any way is left out, and named."""
    try:
        return bind(problem)
    except Exception as error:
        raise ValueError(f"{type(error).__name__}: {error}") from error


# ---------------------------------------------------------------- the command


def write(path: Path, rows: list[dict]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        table = csv.DictWriter(file, list(rows[0]))
        table.writeheader()
        table.writerows(rows)


def checked(run: Run, kernels) -> int:
    """How many things are wrong; prints those, and the errors of random operands."""
    rows = []
    for row in verify(run, kernels):
        rows.append(row)
        if row["wrong"]:
            print(f"WRONG {row['what']} at {row['where']}: {row['wrong']}", flush=True)
        elif row["rel_err"]:
            print(
                f"{row['what']} at {row['where']}: rel_err {row['rel_err']:.2e}, max_err {row['max_err']:.2e}",
                flush=True,
            )
    write(run.folder / "fp8_check.table", rows)
    wrong = sum(bool(row["wrong"]) for row in rows)
    print(f"{len(rows)} checks, {wrong} wrong", flush=True)
    return wrong


def tiled(run: Run, kernels) -> None:
    rows = []
    for shape in TILES:
        began = time.perf_counter()
        try:
            here = tiles(run, shape, kernels)
        except Exception as error:  # of one shape, whatever it is
            print(f"{shape}: {type(error).__name__}: {error}".splitlines()[0], flush=True)
            continue
        rows += here
        write(run.folder / "fp8_tiles.table", rows)
        print(f"{shape}: {time.perf_counter() - began:.1f} s", flush=True)
        for row in here:
            print(
                f"  {row['median_us']:9.2f} us {row['tflops']:7.1f} TFLOP/s  {row['contender']}  {row['choice']}",
                flush=True,
            )


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog=f"python -m {__spec__.name}", description=__doc__.splitlines()[0])
    parser.add_argument("--records", required=True, metavar="FOLDER", type=Path)
    parts = ("check", "tiles", "measure")
    parser.add_argument("--part", nargs="+", choices=parts, default=parts)
    known = fp8_family.KERNELS
    parser.add_argument("--kernels", nargs="+", choices=known, default=known)
    parser.add_argument("--preset", choices=tuple(harness.BUDGETS_S), default="full")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    given = sys.argv[1:] if arguments is None else arguments
    options = parser.parse_args(given)
    if options.inside:
        work(options)
        return
    command = [sys.executable, "-m", __spec__.name, *given, "--inside"]
    for _ in range(STARTS):
        status = subprocess.run(command, check=False).returncode
        if status != AGAIN:
            break
    if status:
        raise SystemExit(status)


def work(options: argparse.Namespace) -> None:
    """The parts that were asked for, in this process."""
    began = time.perf_counter()
    run = harness.start(ROOM, "measure", preset=options.preset, seed=options.seed, records=options.records)
    fp8_family.LEFT_OUT.update(read_left_out(run.folder))
    if set(options.part) & {"check", "tiles"}:
        compile_all()
        print(f"compiled after {time.perf_counter() - began:.1f} s", flush=True)
    wrong = checked(run, options.kernels) if "check" in options.part else 0
    if "tiles" in options.part:
        tiled(run, options.kernels)
    if "measure" in options.part:
        try:
            measure(run)
        finally:
            outputs(run)
            linear(run)
    print(f"{time.perf_counter() - began:.1f} s in all", flush=True)
    if wrong:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
