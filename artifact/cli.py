"""`python -m artifact`: claims, comparisons, machines and single measurements from the shell.

Exit codes: 0, or what the command says; 1 where a comparison differs or a result is wrong; 2 for
bad input, with one line on stderr.
"""

import argparse
import contextlib
import difflib
import importlib
import inspect
import json
import math
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from artifact import paths, registry
from artifact.measure import matrices, minutes, records
from artifact.verdicts import compare, judge, load, measures, page
from artifact.which import pool
from kernels.formats.csr import INT32_MAX

WRONG = 1
BAD_INPUT = compare.BAD_INPUT

#: What --verdict and --fail-on call the verdicts.
VERDICTS = {
    "reproduced": measures.REPRODUCED,
    "partly": measures.PARTLY,
    "not-reproduced": measures.NOT_REPRODUCED,
    "does-not-carry-over": measures.NOT_CARRIED,
    "not-measured": measures.NOT_MEASURED,
}
FORMATS = ("text", "markdown", "csv", "json")

SEEDS = 2**32 - 1  # as `artifact.measure.run` has it, which is not worth importing for every command

SORRY = (ValueError, FileNotFoundError, NotADirectoryError, PermissionError)  # the user's to mend


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # of what a terminal cannot show, the rest is shown
            stream.reconfigure(errors="replace")
    try:
        try:
            return _done(arguments)
        finally:
            sys.stdout.flush()
    except BrokenPipeError:  # `… | head`
        _forget_output()
        return 0
    except OSError as error:  # a full disk, behind the answer or a record
        _forget_output()
        return _fail(str(error), BAD_INPUT)


def _done(arguments: Sequence[str] | None) -> int:
    options = _parser().parse_args(arguments)
    try:
        return options.command(options) or 0
    except SORRY as error:
        return _fail(str(error), BAD_INPUT)
    except SystemExit:  # of a user's contender, whatever code it chose: nothing was judged
        return _fail("The contender ended the program, so there is no result.", BAD_INPUT)
    except KeyboardInterrupt:
        return _fail("Interrupted; what was recorded so far is kept.", 130)
    except OSError:
        raise
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] in ("", "artifact", "kernels"):
            raise
        return _fail(_needs(error), BAD_INPUT)
    except Exception as error:
        # Known by name: their modules are not worth importing for every command, or need a GPU.
        if type(error).__name__ in ("NoGpu", "OutOfMemoryError"):
            return _fail(str(error), BAD_INPUT)
        if type(error).__name__ == "WrongResult":
            return _fail(str(error), WRONG)
        raise


def _fail(message: str, code: int) -> int:
    with contextlib.suppress(OSError):  # the code says it, too
        print(f"artifact: {' '.join(message.split())}", file=sys.stderr)
    return code


def _needs(error: ModuleNotFoundError) -> str:
    return f"{error.name} is not installed: see the extras in pyproject.toml."


def _forget_output() -> None:
    """Let what is still to be written go nowhere, since Python writes it at its end."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _usage(message: str):
    """In place of argparse's own, which puts the usage in front: an error is one line."""
    sys.exit(_fail(f"{message} (see --help)", BAD_INPUT))


def _positive(text: str, least: int = 1) -> int:
    try:
        value = int(text)
    except ValueError:
        value = -1
    if value < least:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is not a whole number from {least} on")
    return value


def _natural(text: str) -> int:
    return _positive(text, 0)


def _size(text: str) -> int:
    """Of a matrix: kernels count rows and columns in 32 bits."""
    value = _positive(text)
    if value > INT32_MAX:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is more than 2^31 - 1")
    return value


def _seed(text: str) -> int:
    value = _natural(text)
    if value > SEEDS:
        raise argparse.ArgumentTypeError(f"{text} is over {SEEDS}, the largest seed")
    return value


def _fraction(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 < value <= 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a fraction over 0 and up to 1 (S/100)")
    return value


def _setting(text: str) -> tuple[str, int]:
    name, _, value = text.partition("=")
    try:
        return name, int(value)
    except ValueError:
        message = f"{text!r} is not NAME=VALUE with a whole number"
        raise argparse.ArgumentTypeError(message) from None


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m artifact",
        description="Measure sparse-matrix kernels, and put what their authors claim on trial.",
        epilog="The whole book: make artifact. All measurements of a GPU: make measure.",
    )
    parser.error = _usage
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")

    def command(function, name: str, summary: str, description: str = ""):
        sub = commands.add_parser(name, help=summary, description=description or summary)
        sub.set_defaults(command=function)
        sub.error = _usage
        return sub

    def where(sub) -> None:
        sub.add_argument("--gpu", default="", metavar="GPU", help="GPU of the records, e.g. nvidia-h200")
        sub.add_argument(
            "--records",
            type=Path,
            default=paths.RECORDED,
            metavar="DIR",
            help="folder of records (default: the shipped ones)",
        )

    sub = command(
        _claims,
        "claims",
        "verdicts on the claims, from the records",
        "Print the verdict on each claim. Exit code 0: printed; 2: bad input, as records that are not whole. "
        "With --fail-on 1 if any claim that is counted has one of these verdicts, for scripts.",
    )
    where(sub)
    sub.add_argument("--id", metavar="X", help="one claim, with how it was judged")
    sub.add_argument("--room", metavar="ROOM", help="claims of one room")
    sub.add_argument("--source-gpu", metavar="NAME", help="claims of what was said of this GPU")
    sub.add_argument(
        "--verdict",
        action="append",
        choices=VERDICTS,
        help="claims with this verdict (repeat for several)",
    )
    sub.add_argument("--format", choices=FORMATS, default="text", help="default: %(default)s")
    sub.add_argument(
        "--fail-on",
        action="append",
        choices=VERDICTS,
        default=[],
        help="exit code 1 if any counted claim shown has this verdict (repeat for several)",
    )
    sub.add_argument("--json", action="store_true", help="the same as --format json")
    sub.add_argument("--csv", action="store_true", help="id, verdict and what was measured alone")

    sub = command(
        _compare,
        "compare",
        "fresh records against the shipped ones",
        "Compare fresh records with the shipped ones. Exit code 0: they agree within tolerance; "
        "1: they differ; 2: bad input. For another kind of GPU speedups are shown side by side, "
        "and the verdicts on the claims decide.",
    )
    sub.add_argument(
        "--fresh",
        metavar="GPU|DIR",
        default="",
        help="one side: a folder of records or a GPU (default: the only GPU in build/records)",
    )
    sub.add_argument(
        "--shipped",
        metavar="GPU|DIR",
        default="",
        help="the other side (default: the same GPU among the shipped, else nvidia-h200)",
    )
    sub.add_argument("--room", metavar="ROOM", help="one room")
    sub.add_argument(
        "--tolerance",
        type=float,
        default=compare.SPEEDUP_TOLERANCE,
        help="of speedups, relative (default: %(default)s)",
    )
    sub.add_argument(
        "--time-tolerance",
        type=float,
        default=compare.TIME_TOLERANCE,
        help="of times, relative (default: %(default)s)",
    )

    sub = command(_machine, "machine", "the machine that records were made on, or (without --gpu) this one")
    where(sub)
    sub.add_argument("--room", metavar="ROOM", help="machine of one room's records")

    sub = command(
        _compile,
        "compile",
        "registers, shared memory, spills and instructions of a room's kernels; needs no GPU",
    )
    sub.add_argument("room", help="a folder of kernels/ with a launch.py")
    sub.add_argument("--variant", metavar="V", help="one variant")
    sub.add_argument("--target", metavar="SM", help="one target, e.g. sm_90a")
    sub.add_argument("--csv", action="store_true", help="as CSV")

    sub = command(
        _run,
        "run",
        "check and time one size on the GPU here",
        "Check variants of a room against a float64 reference, then time them, interleaved with "
        "the room's baselines, at one size. Nothing is recorded.",
    )
    sub.add_argument("room", help="a folder of kernels/ with a launch.py")
    sub.add_argument(
        "--variant",
        action="append",
        metavar="V",
        help="variant (repeat for several; default: all that take the problem)",
    )
    for size, what in (("m", "rows of A"), ("n", "columns of B"), ("k", "columns of A")):
        sub.add_argument(f"-{size}", type=_size, required=True, help=what)
    sub.add_argument(
        "--density",
        type=_fraction,
        help="nominal share of nonzeros, S/100 (default: the room's, if it has one)",
    )
    sub.add_argument("--seed", type=_seed, default=0, help="of the operands (default: 0)")
    sub.add_argument(
        "--set",
        type=_setting,
        action="append",
        metavar="NAME=VALUE",
        help="another number that the room's problems have, e.g. group=32 (repeat for several)",
    )
    sub.add_argument(
        "--protocol",
        choices=("cold", "published"),
        default="cold",
        help="cold: single launches after a flush of the L2, GPU time only (default); published: "
        "loops of calls, nothing flushed, host time included",
    )
    sub.add_argument(
        "--warmup",
        type=_natural,
        metavar="N",
        help="cold: launches before the timer's own warm-up; published: calls before each loop",
    )
    sub.add_argument(
        "--iterations",
        type=_positive,
        metavar="N",
        help="cold: timed launches; published: calls of a loop (default: by time budget)",
    )
    sub.add_argument("--no-baseline", action="store_true", help="without the room's baselines")

    sub = command(
        _trial,
        "trial",
        "your own kernel, on a room's operands, beside its kernels and libraries",
        "Check your kernel against a float64 reference, time it beside a room's kernels and libraries, and say how "
        "it stands. The record goes to <build>/trials, the figure to <build>/figures/trials. A kernel is a .cu with a "
        "header (see --template cu) or a Python function (--template py). Without a kernel: what arguments the "
        "room's operands have. Exit code 1: the kernel is wrong.",
    )
    sub.add_argument("kernel", nargs="?", metavar="KERNEL.cu", help="with the header in its first comment")
    sub.add_argument(
        "--contender",
        metavar="MODULE:BIND",
        help="a dotted name, or a path that ends in .py; its code is run, with all that you may do",
    )
    sub.add_argument("--room", metavar="ROOM", help="whose problems it solves")
    sub.add_argument("--name", default="", help="of the contender (default: the file's or the module's)")
    sub.add_argument("--template", choices=("cu", "py"), help="print one to copy, and end")
    for size, what in (("m", "rows of A"), ("n", "columns of B"), ("k", "columns of A")):
        sub.add_argument(f"-{size}", type=_size, help=f"{what} (default: the room's first sweep)")
    sub.add_argument("--density", type=_fraction, help="nominal share of nonzeros, S/100")
    sub.add_argument("--matrix", type=Path, metavar="FILE", help="a real A, .mtx or SciPy's .npz; with -n")
    sub.add_argument("--seed", type=_seed, default=0, help="of the operands (default: 0)")
    sub.add_argument(
        "--set",
        type=_setting,
        action="append",
        metavar="NAME=VALUE",
        help="another number that the room's problems have (repeat for several)",
    )
    sub.add_argument("--preset", choices=("kick", "full"), default="kick", help="of the sweep (default: kick)")
    sub.add_argument(
        "--against",
        action="append",
        metavar="V",
        help="variant of the room beside it (repeat for several; default: all that take the problem)",
    )
    sub.add_argument("--no-baseline", action="store_true", help="without the room's baselines")

    sub = command(
        _profile,
        "profile",
        "hardware counters through Nsight Compute",
        "Profile what profiles.toml lists, and write counters.csv and profiles/<room>.ncu-rep to "
        "<build>/records/<gpu>/<room>.",
    )
    sub.add_argument("room", nargs="?", help="one room (default: all that profiles.toml lists)")

    sub = command(
        _matrices,
        "matrices",
        "real matrices: which of a list are here; --download fetches the others",
        "Say which matrices of a list are in the folder of SPARSITY_MATRICES, or fetch those that are "
        "not from the SuiteSparse Matrix Collection: a room's list may be tens of GB. Exit code 1: "
        "some could not be fetched.",
    )
    sub.add_argument("--room", metavar="ROOM", help="a room's own list (default: the general one)")
    sub.add_argument("--most", type=_positive, metavar="NNZ", help="none with more non-zeros")
    sub.add_argument("--download", action="store_true", help="fetch what is missing")

    sub = command(
        _which,
        "which",
        "which kernel for my matrix: its statistics, advice, the expected time and why",
        "Print the statistics of a sparse matrix, which recorded kernel multiplies it fastest by a dense one of N "
        "columns, the time to expect, and why. Needs no GPU; with one it also measures, and says whether the advice "
        "was good.",
    )
    sub.add_argument("matrix", type=Path, metavar="FILE", help="Matrix Market's .mtx, or SciPy's .npz")
    sub.add_argument("-n", type=_size, required=True, help="columns of B")
    sub.add_argument(
        "--precision",
        default="fp32",
        choices=[p.lower() for p in pool.PRECISIONS],
        help="of the result, at least (default: %(default)s)",
    )
    sub.add_argument("--no-measure", action="store_true", help="advice alone, also where there is a GPU")
    where(sub)

    sub = command(_records, "records", "list the records there are")
    sub.add_argument("--records", type=Path, metavar="DIR", help="folder of records (default: shipped and fresh)")
    return parser


# ---------------------------------------------------------------- commands


def _folder(options) -> Path:
    """The records that --records and --gpu name; without --gpu the only GPU, or the H200."""
    known = _gpus(options.records)
    return records.resolve(options.gpu or (known[0] if len(known) == 1 else "nvidia-h200"), options.records)


def _gpus(root: Path) -> list[str]:
    """The GPUs with records under `root`. Raises FileNotFoundError that names it for none."""
    known = records.list_gpus(root)
    if not known:
        what = "holds no records with their machine.json" if root.is_dir() else "is missing"
        raise FileNotFoundError(f"{root}: this folder of records {what}.")
    return known


def _claims(options) -> int:
    chosen = load.claims()
    if options.id:
        ids = [claim.id for claim in chosen]
        chosen = [claim for claim in chosen if claim.id == options.id]
        if not chosen:
            close = difflib.get_close_matches(options.id, ids, n=3, cutoff=0.5)
            hint = f"close: {', '.join(close)}" if close else "`claims` without --id lists all"
            raise ValueError(f"There is no claim {options.id!r}; {hint}.")
    if options.room:
        known = sorted({claim.room for claim in chosen})
        chosen = [claim for claim in chosen if claim.room == options.room]
        if not chosen:
            raise ValueError(f"There are no claims of a room {options.room!r}; known: {', '.join(known)}.")
    if options.source_gpu:
        known = sorted({gpu for claim in chosen for gpu in claim.gpu})
        chosen = [claim for claim in chosen if options.source_gpu in claim.gpu]
        if not chosen:
            raise ValueError(f"No claim speaks of a GPU {options.source_gpu!r}; known: {', '.join(known)}.")
    folder = _folder(options)
    df = judge.judge(chosen, folder)
    if options.verdict:
        df = df[df["verdict"].isin([VERDICTS[name] for name in options.verdict])]
    form = "json" if options.json else options.format
    if options.csv:
        print(df[list(judge.GOLDEN_COLUMNS)].to_csv(index=False), end="")
    elif form == "csv":
        print(df.to_csv(index=False), end="")
    elif form == "json":
        print(df.to_json(orient="records", indent=1, force_ascii=False))
    elif form == "markdown":
        print(page.markdown(df, folder.name))
    else:
        print(f"GPU: {folder.name}\n")
        _print_claims(chosen, df, one=bool(options.id))
    wanted = {VERDICTS[name] for name in options.fail_on}
    return WRONG if wanted & set(judge.counted(df)["verdict"]) else 0


def _print_claims(chosen: Sequence[load.Claim], df, one: bool) -> None:
    """As text for a terminal."""
    if one and len(df):
        claim, row = chosen[0], df.iloc[0]
        keys = "id source where says gpu published measured verdict close reason why".split()
        for key in keys:
            if row[key]:
                shown = measures.said(row[key], claim.extension) if key == "verdict" else row[key]
                print(f"{key:<11} {shown}")
        print(f"{'experiment':<11} {', '.join(claim.experiment)} ({minutes.said(claim.minutes)} minutes to measure)")
        for key, value in claim.rule.written.items():
            print(f"{key:<11} {page.written(value)}")
        for row in page.rules([claim]).itertuples():
            print(f"{'':<11} {row.name}: {row.definition}")
        return
    for row in df.to_dict("records"):
        mark = " (extension, not counted)" if row["extension"] else ""
        word = measures.said(row["verdict"], row["extension"])
        print(f"{word:<30}  {row['id']:<28}  {row['measured']}{mark}")
        if row["close"]:
            print(f"{'':<30}  {'':<28}  {row['close']}")
    print(f"\n{page.totals(df)}")


def _compare(options) -> int:
    fresh = _side(options.fresh, paths.RECORDS)
    if fresh is None:
        known = records.list_gpus(paths.RECORDS)
        if not known:
            raise FileNotFoundError("There are no fresh records yet; `make measure` makes them.")
        if len(known) > 1:
            raise ValueError(f"There are fresh records of {', '.join(known)}; choose with --fresh.")
        fresh = paths.RECORDS / known[0]
    shipped = _side(options.shipped, paths.RECORDED)
    if shipped is None:
        same = fresh.name if fresh.name in records.list_gpus(paths.RECORDED) else "nvidia-h200"
        shipped = records.resolve(same, paths.RECORDED)
    result = compare.compare(fresh, shipped, options.room, options.tolerance, options.time_tolerance)
    print(compare.report(result))
    return result.exit_code


def _side(given: str, root: Path) -> Path | None:
    """A GPU's folder from its path, from that of a folder of records with one GPU in it, or from its name, in `root` or
    else where the other records are; None if nothing was given."""
    if not given:
        return None
    path = Path(given)
    if path.is_dir():
        inside = [] if records.rooms(path) else records.list_gpus(path)
        if len(inside) > 1:
            raise ValueError(f"{path}: there are records of {', '.join(inside)}; name one of these folders.")
        return path / inside[0] if inside else path
    for place in (root, paths.RECORDS, paths.RECORDED):
        try:
            return records.resolve(given, place)
        except ValueError:
            continue
    known = sorted({*records.list_gpus(paths.RECORDS), *records.list_gpus(paths.RECORDED)})
    raise ValueError(f"There is no folder and no GPU with records {given!r}; known: {', '.join(known) or 'none'}.")


def _machine(options) -> int:
    if options.gpu or options.room:
        folder = _folder(options)
        known = records.rooms(folder)
        room = options.room or known[0]
        if room not in known:
            raise ValueError(f"There are no records of a room {room!r} on {folder.name}; known: {', '.join(known)}.")
        machine = records.read_machine(folder / room)
    else:
        from artifact.measure import device

        machine = device.describe(device.require().open())
    print(json.dumps(machine, indent=1, ensure_ascii=False))
    return 0


def _room(name: str):
    """The room's package. Raises ValueError that names the rooms there are."""
    known = sorted(path.parent.name for path in (paths.ROOT / "kernels").glob("*/launch.py"))
    if not re.fullmatch(r"[a-z0-9_]+", name) or name not in known:
        raise ValueError(f"There is no room {name!r}; known: {', '.join(known) or 'none'}.")
    return importlib.import_module(f"kernels.{name}")


def _variants(room, chosen: Sequence[str] | None) -> list[str]:
    for name in chosen or ():
        if name not in room.VARIANTS:
            raise ValueError(f"There is no variant {name!r}; known: {', '.join(room.VARIANTS)}.")
    return list(dict.fromkeys(chosen or room.VARIANTS))


def _compile(options) -> int:
    room = _room(options.room)
    chosen = _variants(room, [options.variant] if options.variant else None)
    from artifact.measure import run

    targets = dict.fromkeys(target for name in chosen for target in room.VARIANTS[name].targets)
    if options.target and options.target not in targets:
        raise ValueError(f"There is no target {options.target!r}; known: {', '.join(targets)}.")
    df = run.compile_report(options.room, chosen, options.target or None)
    print(df.to_csv(index=False) if options.csv else df.to_string(index=False))
    return 0


def _asked(room, options) -> dict:
    """What the options ask of the room's `problem`. Raises ValueError for what the room does not know."""
    name = room.__name__.rpartition(".")[2]
    if not hasattr(room, "problem"):
        raise ValueError(f"{name} has no problems to run; `compile` shows its kernels.")
    parameters = inspect.signature(room.problem).parameters
    chosen = {key: getattr(options, key) for key in ("m", "n", "k", "seed")}
    if options.density is not None:
        chosen["density"] = options.density
    elif parameters["density"].default is inspect.Parameter.empty:
        raise ValueError(f"{name} has no usual density: give one with --density.")
    further = [key for key in parameters if key not in (*chosen, "density")]
    for key, value in options.set or ():
        if key not in further:
            known = ", ".join(further) or "none"
            raise ValueError(f"The problems of {name} have no {key!r} to set; known: {known}.")
        chosen[key] = value
    return chosen


def _bind(makers, problem, named: Sequence[str], variants: Sequence[str]) -> dict:
    """The contenders that take the problem; one that does not is left out, unless it was named or
    no variant would remain."""
    bounds, refused = {}, {}
    for name, make in makers.items():
        try:
            bounds[name] = make(problem)
        except (ValueError, ModuleNotFoundError) as error:
            if name in named:
                raise
            missing = isinstance(error, ModuleNotFoundError)
            refused[name] = ValueError(_needs(error)) if missing else error
    if all(name in refused for name in variants):
        raise refused[variants[0]]
    for name, error in refused.items():
        print(f"left out: {error}" if name in str(error) else f"left out: {name}: {error}")
    return bounds


def _run(options) -> int:
    room = _room(options.room)
    names = _variants(room, options.variant)
    asked = _asked(room, options)
    from artifact import registry
    from artifact.measure import bench, check, device, run

    info = device.require()
    device.require_memory(info, options.m, options.n, options.k)  # before anything is drawn
    opened = info.open()
    problem = room.problem(**asked)
    reference = check.oracle(problem)
    makers = {name: lambda p, name=name: room.bind(name, p, opened) for name in names}
    if not options.no_baseline:
        makers |= registry.contenders(getattr(room, "BASELINES", ()), opened)
    bounds = _bind(makers, problem, options.variant or (), names)
    run.check_exactly(problem, {name: makers[name] for name in bounds}, opened)

    def published(bounds, opened, *, verify):
        given = {"warmup": options.warmup, "calls": options.iterations}
        plan = {key: value for key, value in given.items() if value is not None}
        if plan:
            plan["budget_s"] = math.inf  # what was asked for is done, however long it takes
        return bench.time_calls(bounds, opened, verify=verify, **plan)

    def ours(bounds, opened, *, verify):
        stream = opened.create_stream()
        for bound in bounds.values():
            for _ in range(options.warmup or 0):
                bound.launch(stream)
        stream.sync()
        count = options.iterations
        plan = {"min_samples": count, "max_samples": count} if count else {}
        return bench.time(bounds, opened, verify=verify, **plan)

    timer = published if options.protocol == "published" else ours
    errors, timings = run.check_and_time(bounds, problem, reference, opened, timer)

    label = f", {problem.label}" if problem.label else ""
    print(
        f"{info.gpu}: m={problem.m} n={problem.n} k={problem.k} nnz={problem.nnz} "
        f"S={problem.density * 100:g} %{label}; FLOPs {problem.flops_def}; "
        f"{options.protocol} protocol"
    )
    others = [(t.median_us, name) for name, t in timings.items() if name not in names]
    library = min(others, default=None)
    print(
        f"{'variant':<20} {'median':>11} {'quartiles':>23} {'TFLOP/s':>9} {'GB/s':>8} "
        f"{'rel. error':>11}" + (f"  over {library[1]}" if library else "")
    )
    for name, t in timings.items():
        ratio = f"  {library[0] / t.median_us:.2f}×" if library else ""
        print(
            f"{name:<20} {t.median_us:>8.1f} µs {t.q25_us:>10.1f}–{t.q75_us:<9.1f} µs "
            f"{problem.useful_flops / t.median_us / 1e6:>8.2f} "
            f"{problem.least_bytes / t.median_us / 1e3:>8.0f} "
            f"{errors[name].rel_err:>11.1e}{ratio}"
        )
    return 0


def _trial(options) -> int:
    from artifact import trial
    from artifact.trial import contenders, court, header

    if options.template:
        template = Path(trial.__file__).parent / f"template.{options.template}"
        print(template.read_text(encoding="utf-8"), end="")
        return 0
    if not options.room:
        raise ValueError("Which room's problems shall it solve? Name one with --room.")
    if options.kernel and options.contender:
        raise ValueError(f"One contender at a time: {options.kernel} or --contender {options.contender}.")
    room, what = _room(options.room), options.kernel or options.contender
    problems = _trial_problems(room, options)
    if not what:
        for name, meaning in header.described(problems[0], problems[0].host()).items():
            print(f"{name:<12} {meaning}")
        return 0
    contender = contenders.load(what, options.name)
    court.refuse_name(contender, room.VARIANTS)
    names = _variants(room, options.against)
    from artifact.measure import device

    if device.find() is None:
        contenders.check_header(contender, problems[0])
    for row in contenders.compiled(contender):
        print(
            f"{contender.name}: {row['target']}, {row['registers']} registers, "
            f"{row['shared_bytes']} bytes of static shared memory" + ", spills" * row["spills"],
            flush=True,
        )
    info = device.require()
    for problem in problems:
        device.require_memory(info, problem.m, problem.n, problem.k)
    begun = court.start(contender, options.room, options.preset, options.seed)
    court.check_first(contender, problems[0], begun.device)
    others = begun.variants(names) | ({} if options.no_baseline else begun.baselines())
    df = court.measure(begun, contender, problems, others)
    table = court.standings(df, contender.name)
    print(table.to_string(index=False))
    print(court.verdict(table, contender.name))
    shown = court.show(df, contender.name, options.room, info.gpu, room.VARIANTS)
    print(f"record: {begun.folder / court.EXPERIMENT}.csv; figure: {shown.svg_path}")
    return 0


def _trial_problems(room, options) -> list:
    """The problems of a trial: one of the given sizes, or of a real matrix, else the room's first sweep."""
    sizes = {key: getattr(options, key) for key in ("m", "n", "k")}
    if options.matrix is not None:
        if not hasattr(room, "problem_from_csr"):
            raise ValueError(f"The problems of {options.room} are not made of a matrix in CSR.")
        if options.n is None or options.m or options.k or options.density or options.set:
            raise ValueError("A matrix has its sizes and its density: beside --matrix give -n alone.")
        a = matrices.read(options.matrix)
        return [room.problem_from_csr(a, options.n, options.seed, options.matrix.stem)]
    if all(sizes.values()):
        return [room.problem(**_asked(room, options))]
    if any(sizes.values()) or options.density or options.set:
        raise ValueError("A problem has -m, -n and -k: give all three, or none for the room's sweep.")
    shapes = next(iter(room.sweeps(options.preset).values()))
    return [room.problem(**shape, seed=options.seed) for shape in shapes]


def _which(options) -> int:
    from artifact.measure import device
    from artifact.which import advice

    folder = _folder(options)
    a = matrices.read(options.matrix)
    precision = options.precision.upper()
    answer = advice.advise(a, options.n, folder, precision, options.matrix.stem)
    print("\n".join(advice.lines(answer, folder.name)))
    info = None if options.no_measure else device.find()
    if info is None:
        return 0
    device.require_memory(info, a.m, options.n, a.k)
    df = advice.measure(answer, a, info.open())
    print(f"\nMeasured on {info.gpu}:\n{df.to_string(index=False)}")
    print(advice.judged(df, answer.guess.variant))
    return 0


def _profile(options) -> int:
    from artifact.measure import device
    from artifact.profiling import ncu

    listed = registry.profiles()
    if options.room not in (None, *listed):
        raise ValueError(f"There is no profile of {options.room!r}; known: {', '.join(listed)}.")
    info = device.require()
    folder = paths.RECORDS / info.slug
    known = load.claims()
    for room in [options.room] if options.room else listed:
        plan = listed[room]
        shapes = [shape | {"density": d} for d in plan["densities"] for shape in plan["shapes"]]
        print(f"{room}: {len(shapes)} shapes × {len(plan['contenders'])} contenders", flush=True)
        wanted = load.counters_wanted(claim for claim in known if claim.room == room)
        where = folder.joinpath(*room.split("."))  # a part of a room lies in its folder
        metrics = dict.fromkeys([*ncu.METRICS, *plan.get("metrics", ()), *wanted])
        try:
            df = ncu.profile(room, shapes, plan["contenders"], metrics, folder=where, gpu=info.gpu)
        except RuntimeError as error:  # what ncu said, in one sentence
            raise ValueError(str(error)) from error
        found = df.dropna(subset="value")
        print(f"{room}: {len(found)} values of {found['metric'].nunique()} counters")
        if absent := [metric for metric in metrics if metric not in set(found["metric"])]:
            print(f"{room}: not on this GPU: {', '.join(absent)}")
        print(f"{room}: counters and launches are in {where}, the report is beside them")
    return 0


def _matrices(options) -> int:
    df = matrices.listed(registry.matrices(options.room) if options.room else matrices.LIST)
    if options.most and "nnz" not in df:
        raise ValueError("The general list does not say how many non-zeros: use --most with --room.")
    if options.most:
        df = df[df["nnz"] <= options.most]
    where = matrices.folder()
    if where is None:
        raise FileNotFoundError(f"{matrices.VARIABLE} is not set: let it name a folder of matrices.")
    failed = matrices.download(df, where) if options.download else []
    there = matrices.present(df, where)
    print(matrices.left_out(df, there) or f"All {len(df)} listed matrices are in {where}")
    return WRONG if failed else 0


def _records(options) -> int:
    roots = [options.records] if options.records else [paths.RECORDED, paths.RECORDS]
    found = False
    for root in roots:
        for gpu in records.list_gpus(root):
            for room in records.rooms(Path(root) / gpu):
                folder = Path(root) / gpu / room
                machine = records.read_machine(folder)
                for experiment in records.experiments(folder):
                    rows = len(records.read(folder / f"{experiment}.csv"))
                    found = True
                    kind = "fresh" if root == paths.RECORDS else "shipped" if root == paths.RECORDED else str(root)
                    print(f"{kind:<8} {gpu:<24} {room:<16} {experiment:<12} {rows:>5} rows  {machine['date']}")
    if not found:
        raise FileNotFoundError(f"There are no records in {' or '.join(str(root) for root in roots)}.")
    return 0
