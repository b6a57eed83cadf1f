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

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from artifact import registry
from artifact.measure import bench, check, records
from artifact.measure import run as harness
from artifact.rooms.tensor_core_24 import variants
from kernels import jit, tuning
from kernels.contract import Problem
from kernels.formats import eight, half, two_four_eight
from kernels.tensor_core_24 import fp8, fp8_family, fp8_operands
from kernels.tensor_core_24.sweeps import DECODING, FEW, FP8_OUTPUT_SIZES, LINEAR, LLM, SQUARE
from kernels.tensor_core_24.sweeps import RAGGED as ROOM_RAGGED

ROOM = "tensor_core_24"
CONTENDERS = (*fp8.VARIANTS, "cusparselt_default", "cusparselt", "cublaslt_eight")
#: With whom the layout of a linear layer is compared, from which size on.
BESIDE = ("fp8_auto", "cusparselt", "cublaslt_eight")
SMALLEST = 4096
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
KINDS = tuple((scale, out) for scale in fp8_operands.SCALES for out in fp8_operands.OUTS)
#: m, n, k of random operands whose errors are told.
RANDOM = ((2048, 2048, 512), (2048, 2048, 4096), (1024, 1024, 16384))
#: Seconds after which a launch of those is taken to hang.
HANGS_S = 5
#: The exit status of a process that begins again without what it left out, and how often that is done.
AGAIN, STARTS = 75, 6
LEFT_OUT = "fp8_left_out.txt"
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
Maker = Callable[[], Problem]
say = partial(print, flush=True)


# ---------------------------------------------------------------- the records


def problems(run: harness.Run) -> list[Maker]:
    """Return the room's shapes whose rows every library takes."""
    shapes = (*((size,) * 3 for size in SQUARE[run.preset]), *LLM[run.preset], *FEW[run.preset])
    return [partial(fp8.problem, m, n, k, seed=run.seed) for m, n, k in shapes]


def contenders(run: harness.Run) -> dict[str, harness.Contender]:
    ours = {name: partial(fp8.bind, name, device=run.device) for name in fp8.VARIANTS}
    return ours | registry.contenders(fp8.BASELINES, run.device)


def measure(run: harness.Run) -> pd.DataFrame:
    """Return a row for each shape and contender in `records.COLUMNS`. A library that refuses a shape has no row there,
    which `records.read_absent` tells."""
    return _with_libraries(run, "fp8", problems(run), CONTENDERS)


def linear(run: harness.Run) -> pd.DataFrame:
    """Return the same in the layout of a linear layer, many tokens and few: `BESIDE`."""
    many = [shape for shape in LINEAR[run.preset] if min(shape) >= SMALLEST]
    shapes = (*many, *DECODING[run.preset])
    made = [partial(fp8.problem, *shape, seed=run.seed, orders="FF") for shape in shapes]
    return _with_libraries(run, "fp8_linear", made, BESIDE)


def outputs(run: harness.Run) -> pd.DataFrame:
    """Return `fp8_auto` alone, with scales by vectors and C in e4m3, and at sizes that no library takes."""
    sizes = [(size,) * 3 for size in FP8_OUTPUT_SIZES[run.preset]]
    made = [partial(fp8.problem, *size, seed=run.seed, scale=scale, out=out) for size in sizes for scale, out in KINDS]
    made += [partial(fp8.problem, *size, seed=run.seed) for size in ROOM_RAGGED[run.preset] if size not in sizes]
    return run.measure("fp8_outputs", made, {"fp8_auto": contenders(run)["fp8_auto"]})


EXPERIMENTS = {"fp8": measure, "fp8_outputs": outputs, "fp8_linear": linear}


def _with_libraries(run: harness.Run, experiment: str, makers: Iterable[Maker], names: Collection[str]) -> pd.DataFrame:
    path = run.folder / f"{experiment}.csv"
    if run.mode == "measure":
        every = {name: bind for name, bind in contenders(run).items() if name in names}
        failed = [why for make in makers if (why := _measure_point(run, path, make(), every))]
        if failed:
            raise RuntimeError(f"{len(failed)} shapes could not be measured; the first: {failed[0]}")
    df, wanted = records.read(path), {(p.m, p.n, p.k) for p in (make() for make in makers)}
    here = [at in wanted for at in df[["m", "n", "k"]].itertuples(index=False, name=None)]
    return df[np.array(here) & df["variant"].isin(names)].reset_index(drop=True)


def _measure_point(run: harness.Run, path: Path, problem: Problem, every: Mapping[str, harness.Contender]) -> str:
    """Measure a shape with all that take it; return "" or why it could not be done."""
    point = tuple(getattr(problem, column) for column in records.POINT)
    gone = {variant for variant, *at in records.read_absent(run.folder).get(path.stem, {}) if tuple(at) == point}

    def left_out(name: str, why: str) -> None:
        say(f"left out: {why}")
        records.leave_out(path, (name, *point), why)

    wrong = {v for v, (config, *_) in fp8_family.RUNGS.items() if config in fp8_family.LEFT_OUT} & {*every} - gone
    for name in wrong:
        left_out(name, f"{name} was wrong or hung in its check")
    here = {name: _refusing(name, bind) for name, bind in every.items() if name not in gone | wrong}
    try:
        harness.willing(here, lambda those: run.measure(path.stem, [problem], those), left_out)
    except Exception as error:  # of one shape: the others are measured, and the command fails
        why = f"{check.describe(problem)}: {_first_line(error)}"
        say(f"NOT MEASURED {why}")
        return why
    return ""


def _refusing(name: str, bind: harness.Contender) -> harness.Contender:
    """Return a contender that, if it is a library and fails in any way, refuses, so that it is left out and named."""

    def bound(problem: Problem):
        try:
            return bind(problem)
        except Exception as error:
            raise ValueError(_first_line(error)) from error

    return bound if name.startswith(registry.PREFIXES) else bind


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0]


# ---------------------------------------------------------------- exact products


def exact(
    m: int, n: int, k: int, scale: str = "tensor", out: str = "bfloat16", seed: int = 0
) -> tuple[Problem, np.ndarray]:
    """A problem of small whole numbers over scales of powers of two, and C (m, n) in float32, rounded to `out`.

    A is -1 and 1 where it stores something, B -2 to 2: partial sums up to k = 4096 are whole numbers of 13 bits, which
    the tensor cores keep, so that every element is the one that rounding once makes.
    """
    draw = np.random.default_rng([seed, m, n, k])
    a = fp8_operands.host_operands(m, n, k, seed, "tensor").a
    signs = eight.to_bits(draw.choice(np.array([-1, 1], np.float32), a.val.shape), "e4m3")
    b_t = draw.choice(np.arange(-2, 3, dtype=np.float32), (n, k))
    shapes = ((1, 1), (1, 1)) if scale == "tensor" else ((m, 1), (1, n))
    scale_a, scale_b = (draw.choice(np.array([0.25, 0.5, 1, 2], np.float32), shape) for shape in shapes)
    a = replace(a, val=np.where(a.val & 0x7F, signs, np.uint8(0)), scale=scale_a)
    b = eight.Eight("e4m3", eight.to_bits(b_t, "e4m3").T, scale_b)
    out_scale = 4.0
    product = two_four_eight.to_dense(a) @ eight.to_dense(b)
    if out == "e4m3":
        kept = eight.from_bits(eight.to_bits(product / np.float32(out_scale), out), out) * np.float32(out_scale)
    else:
        kept = half.from_bits(half.to_bits(product, out), out)
    return fp8.problem_from(a, b, out, out_scale), kept


def compare(bound, expected: np.ndarray, device) -> str:
    """Return "" where a launch writes exactly this, else what is wrong first."""
    stream = device.create_stream()
    bound.result().fill(np.nan)
    device.sync()
    bound.launch(stream)
    wait(stream)
    result = bound.result()
    found = (eight if isinstance(result, eight.Eight) else half).to_dense(result).get()
    wrong = np.argwhere(~(found == expected))
    return "".join(
        f"{len(wrong)} of {found.size} elements are wrong, the first at row {row}, column {column}: "
        f"{found[row, column]} instead of {expected[row, column]}"
        for row, column in wrong[:1]
    )


class Hangs(Exception):
    """A launch does not end."""


def wait(stream) -> None:
    """Wait until the stream is done; raise Hangs after a while."""
    end, began = stream.record(), time.perf_counter()
    while not end.is_done:
        if time.perf_counter() - began > HANGS_S:
            raise Hangs(f"it has not ended after {HANGS_S} s")
        time.sleep(1e-4)


def leave_out(folder: Path, config: fp8_family.Fp8, error: Exception | None) -> None:
    """Let nothing try `config` any more. After an error that leaves the GPU of no use, the process ends."""
    fp8_family.LEFT_OUT.add(config)
    with (folder / LEFT_OUT).open("a", encoding="utf-8") as file:
        file.write(f"{tuning.knobs(config)}\n")
    if isinstance(error, Hangs) or "CUDA" in type(error).__name__:
        say(f"left out, and once more: {tuning.knobs(config)}: {error}")
        os._exit(AGAIN)


def read_left_out(folder: Path) -> set[fp8_family.Fp8]:
    """Return what earlier checks have left out."""
    path = folder / LEFT_OUT
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    return {config for config in configurations().values() if tuning.knobs(config) in lines}


def configurations(kernels: Collection[str] = fp8_family.KERNELS) -> dict[str, fp8_family.Fp8]:
    """Return what is checked and timed: the rungs by their names, the rest of the family by their knobs."""
    rungs = {name: c for name, (c, *_) in fp8_family.RUNGS.items() if c.kernel in kernels}
    return rungs | {tuning.knobs(c): c for c in fp8_family.FAMILY if c.kernel in kernels and c not in rungs.values()}


def every_kind(kernels: Collection[str] = fp8_family.KERNELS) -> dict[str, fp8_family.Fp8]:
    """Return what is checked with all scales and outputs: the rungs, and widths of C that end within 16 columns or are
    16."""
    odd = ("direct", 16), ("direct", 184)
    return {v: c for v, c in configurations(kernels).items() if v in fp8_family.RUNGS or (c.kernel, c.n) in odd}


def compile_all() -> None:
    """Compile every instantiation that the parts run, on as many threads as there are processors."""
    kinds = [(out, vectors, vectors) for out in ("bfloat16", "e4m3") for vectors in (False, True)]
    jobs = {(c.source, c.entry()) for c in configurations().values()}
    jobs |= {(c.source, c.entry(*kind)) for c in every_kind().values() for kind in kinds}
    with ThreadPoolExecutor() as pool:
        list(pool.map(lambda job: jit.compile_cubin(job[0], job[1], fp8_family.TARGETS[0]), jobs))


def verify(run: harness.Run, kernels: Collection[str] = fp8_family.KERNELS) -> Iterator[dict[str, Any]]:
    """Yield a row for every thing checked: what, where, wrong ("" where it is right), rel_err, max_err."""
    device = run.device
    most = device.properties.max_shared_memory_per_block_optin
    for shape, (scale, out) in product(RAGGED, KINDS):
        problem, expected = exact(*shape, scale, out, run.seed)
        known = configurations(kernels) if (scale, out) == KINDS[0] else every_kind(kernels)
        for name, config in known.items():
            if config in fp8_family.LEFT_OUT or not fp8_family.fits(config, *shape, most):
                continue
            row = {"what": name, "where": check.describe(problem), "rel_err": 0, "max_err": 0}
            failure = None
            try:
                wrong = compare(fp8.bind_config(name, problem, device, config), expected, device)
            except Exception as error:
                wrong, failure = _first_line(error), error
            if wrong:
                leave_out(run.folder, config, failure)
            yield row | {"wrong": wrong}
        problem.release()
    yield pruning(run.seed)
    out_of = {v for v, (c, *_) in fp8_family.RUNGS.items() if c in fp8_family.LEFT_OUT or c.kernel not in kernels}
    for (m, n, k), (scale, out) in product(RANDOM, KINDS):
        problem = fp8.problem(m, n, k, seed=run.seed, scale=scale, out=out)
        reference = check.oracle(problem)
        plain = {*contenders(run)} if (scale, out) == KINDS[0] else {"fp8_persistent"}
        for name, bind in contenders(run).items():
            if name in plain - out_of - {"fp8_auto"}:
                yield accuracy(name, bind, problem, reference, device)
        problem.release()


def accuracy(
    name: str, bind: harness.Contender, problem: Problem, reference: check.Reference, device
) -> dict[str, Any]:
    row = {"what": name, "where": check.describe(problem), "rel_err": np.nan, "max_err": np.nan}
    try:
        errors = check.check(bind(problem), problem, reference, device.create_stream())
        return row | {"wrong": "", "rel_err": errors.rel_err, "max_err": errors.max_err}
    except Exception as error:  # a library's own have no class in common
        return row | {"wrong": _first_line(error)}


def pruning(seed: int) -> dict[str, Any]:
    """Hold pruning and compressing by the GPU against NumPy, at a size whose rows are no whole units."""
    import cupy

    dense = np.random.default_rng(seed).integers(0, 256, (333, 1001), dtype=np.uint8)
    here = two_four_eight.compress(dense, "e4m3", prune=True)
    there = two_four_eight.to_host(two_four_eight.compress(cupy.asarray(dense), "e4m3", prune=True))
    wrong = [name for name in ("val", "meta") if not np.array_equal(getattr(here, name), getattr(there, name))]
    row = {"what": "compress_eight", "where": "333 x 1001", "rel_err": 0, "max_err": 0}
    return row | {"wrong": "".join(f"{name} differs from NumPy's; " for name in wrong)}


# ---------------------------------------------------------------- tiles


def tiles(
    run: harness.Run, shape: tuple[int, int, int], kernels: Collection[str], budget_s: float = 0.06
) -> list[dict[str, Any]]:
    """Return a row for every configuration and library at a shape, timed together, the fastest first."""
    sms, most = run.device.properties.multiprocessor_count, run.device.properties.max_shared_memory_per_block_optin
    # A name is a word, since an error begins with that of what is wrong.
    known = {tuning.knobs(c).replace(" ", ","): c for c in configurations(kernels).values()}
    worth = set(fp8_family.candidates(*shape, sms, most))
    known = {name: c for name, c in known.items() if c in worth}
    share: dict = {}
    every: dict[str, Any] = {
        name: lambda problem, name=name, c=c: fp8.bind_config(name, problem, run.device, c, cache=share)
        for name, c in known.items()
    }
    every |= {name: _refusing(name, bind) for name, bind in registry.contenders(fp8.BASELINES, run.device).items()}
    problem = fp8.problem(*shape, seed=run.seed)
    reference = check.oracle(problem)

    def work(here: Mapping[str, harness.Contender]) -> tuple[dict, dict, dict]:
        bounds = {name: bind(problem) for name, bind in here.items()}
        timer = partial(bench.time, budget_s=budget_s)
        return bounds, *harness.check_and_time(bounds, problem, reference, run.device, timer)

    while True:
        try:
            bounds, errors, timings = harness.willing(every, work, lambda name, why: say(f"left out: {name}: {why}"))
            break
        except check.WrongResult as error:
            say(f"WRONG at {shape}: {error}")
            del every[str(error).split(" ", 1)[0]]
    problem.release()
    predicted = {name: fp8_family.predict(c, *shape, sms) / 1e3 for name, c in known.items()}
    how = {"gpu": run.machine["gpu"], "when": ""}
    rows = [
        harness.row(problem, name, "tiles", bounds[name], errors[name], timing, **how)
        | {"choice": getattr(bounds[name], "choice", ""), "predicted_kilocycles": predicted.get(name, np.nan)}
        for name, timing in timings.items()
    ]
    return sorted(rows, key=lambda row: row["median_us"])


# ---------------------------------------------------------------- the command


def checked(run: harness.Run, kernels: Collection[str]) -> int:
    """Return how many things are wrong; print those, and the errors of random operands."""
    rows = []
    for row in verify(run, kernels):
        rows.append(row)
        if row["wrong"] or row["rel_err"]:
            said = f"{row['wrong']} rel_err {row['rel_err']:.2e}, max_err {row['max_err']:.2e}"
            say(f"{'WRONG ' * bool(row['wrong'])}{row['what']} at {row['where']}: {said.strip()}")
    pd.DataFrame(rows).to_csv(run.folder / "fp8_check.table", index=False)
    wrong = sum(bool(row["wrong"]) for row in rows)
    say(f"{len(rows)} checks, {wrong} wrong")
    return wrong


def tiled(run: harness.Run, kernels: Collection[str]) -> None:
    """Time what the tuner would try, shape by shape."""
    rows: list[dict[str, Any]] = []
    for shape in TILES:
        try:
            rows += (here := tiles(run, shape, kernels))
        except Exception as error:  # of one shape, whatever it is
            say(f"{shape}: {_first_line(error)}")
            continue
        pd.DataFrame(rows).to_csv(run.folder / "fp8_tiles.table", index=False)
        columns = ["median_us", "tflops", "variant", "choice"]
        say(f"{shape}:\n{pd.DataFrame(here)[columns].to_string(index=False, header=False)}")


def main(arguments: list[str] | None = None) -> None:
    parts, kernels = ("check", "tiles", "measure"), fp8_family.KERNELS
    known: dict[str, dict[str, Any]] = {
        "--records": {"required": True, "metavar": "FOLDER", "type": Path},
        "--part": {"nargs": "+", "choices": parts, "default": parts},
        "--kernels": {"nargs": "+", "choices": kernels, "default": kernels},
        "--preset": {"choices": tuple(harness.BUDGETS_S), "default": "full"},
        "--seed": {"type": int, "default": 0},
        "--inside": {"action": "store_true", "help": argparse.SUPPRESS},
    }
    parser = argparse.ArgumentParser(prog=f"python -m {__spec__.name}", description=__doc__.splitlines()[0])
    for option, how in known.items():
        parser.add_argument(option, **how)
    given = sys.argv[1:] if arguments is None else arguments
    options = parser.parse_args(given)
    if options.inside:
        return work(options)
    command = [sys.executable, "-m", __spec__.name, *given, "--inside"]
    runs = (subprocess.run(command, check=False).returncode for _ in range(STARTS))
    status = next((status for status in runs if status != AGAIN), AGAIN)
    if status:
        raise SystemExit(status)


def work(options: argparse.Namespace) -> None:
    """Do the parts that were asked for, in this process."""
    run = harness.start(ROOM, "measure", preset=options.preset, seed=options.seed, records=options.records)
    if not variants.is_hopper(run.machine):
        raise SystemExit(f"error: {run.machine['gpu']} has no wgmma, which the kernels for FP8 need")
    fp8_family.LEFT_OUT.update(read_left_out(run.folder))
    if set(options.part) & {"check", "tiles"}:
        compile_all()
    wrong = checked(run, options.kernels) if "check" in options.part else 0
    if "tiles" in options.part:
        tiled(run, options.kernels)
    if "measure" in options.part:
        try:
            measure(run)
        finally:
            outputs(run)
            linear(run)
    if wrong:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
