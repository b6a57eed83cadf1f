"""`python -m artifact`: claims, comparisons, machines and single measurements from the shell.

Exit codes: 0, or what the command says; 1 where a comparison differs or a result is wrong; 2 for
bad input, with one line on stderr.
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
import importlib
import inspect
import json
import math
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from artifact import paths, registry
from artifact.measure import matrices, minutes, records
from artifact.verdicts import compare, judge, load, measures, page
from artifact.which import atlas
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

#: What a command's exceptions mean, by the names of their classes, whose modules are not worth importing for every
#: command, or need a GPU.
CODES = {
    **dict.fromkeys(("ValueError", "FileNotFoundError", "NotADirectoryError", "PermissionError"), BAD_INPUT),
    **dict.fromkeys(("NoGpu", "OutOfMemoryError", "ModuleNotFoundError", "SystemExit"), BAD_INPUT),
    "WrongResult": WRONG,
    "KeyboardInterrupt": 130,
}
#: What is said of those that do not say it themselves.
SAID = {
    "ModuleNotFoundError": "{0.name} is not installed: see the extras in pyproject.toml.",
    "SystemExit": "The contender ended the program, so there is no result.",  # whatever code it chose
    "KeyboardInterrupt": "Interrupted; what was recorded so far is kept.",
}

Options = argparse.Namespace
Argument = tuple[tuple[str, ...], dict[str, Any]]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    streams: tuple[Any, ...] = (sys.stdout, sys.stderr)
    for stream in streams:
        with contextlib.suppress(AttributeError):  # of what a terminal cannot show, the rest is shown
            stream.reconfigure(errors="replace")
    try:
        try:
            return _done(arguments)
        finally:
            sys.stdout.flush()
    except OSError as error:  # `… | head`; a full disk, behind the answer or a record
        # What is still to be written goes nowhere, since Python writes it at its end.
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0 if isinstance(error, BrokenPipeError) else _fail(error, BAD_INPUT)


def _done(arguments: Sequence[str] | None) -> int:
    options = _parser().parse_args(arguments)
    try:
        return COMMANDS[options.command][0](options) or 0
    except (Exception, SystemExit, KeyboardInterrupt) as error:
        codes = [CODES[kind.__name__] for kind in type(error).__mro__ if kind.__name__ in CODES]
        missing = isinstance(error, ModuleNotFoundError) and (error.name or "").partition(".")[0]
        if not codes or missing in ("", "artifact", "kernels"):
            raise
        return _fail(error, codes[0])


def _fail(error: object, code: int) -> int:
    with contextlib.suppress(OSError):  # the code says it, too
        print(f"artifact: {_sentence(error)}", file=sys.stderr)
    return code


def _sentence(error: object) -> str:
    return " ".join(SAID.get(type(error).__name__, "{0}").format(error).split())


# ---------------------------------------------------------------- options


def _whole(least: int, most: float = math.inf, told: str = "") -> Callable[[str], int]:
    """What reads a whole number in a range; told: what the largest one is."""

    def read(text: str) -> int:
        with contextlib.suppress(ValueError):
            value = int(text)
            if value > most:
                raise argparse.ArgumentTypeError(f"{text[:40]} is over {told}")
            if value >= least:
                return value
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is not a whole number from {least} on")

    return read


_positive, _natural = _whole(1), _whole(0)
_size = _whole(1, INT32_MAX, "2^31 - 1, and kernels count rows and columns in 32 bits")
_seed = _whole(0, SEEDS, f"{SEEDS}, the largest seed")


def _fraction(text: str) -> float:
    with contextlib.suppress(ValueError):
        if 0 < float(text) <= 1:
            return float(text)
    raise argparse.ArgumentTypeError(f"{text!r} is not a fraction over 0 and up to 1 (S/100)")


def _setting(text: str) -> tuple[str, int]:
    name, _, value = text.partition("=")
    try:
        return name, int(value)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE with a whole number") from None


def _option(*names: str, **how: Any) -> Argument:
    """An argument of a command, as `argparse` takes it."""
    return names, how


def _switch(name: str, what: str) -> Argument:
    return _option(name, action="store_true", help=what)


def _sizes(default: str = "", **how: Any) -> tuple[Argument, ...]:
    """-m, -n and -k of a problem."""
    told = {"m": "rows of A", "n": "columns of B", "k": "columns of A"}
    return tuple(_option(f"-{size}", type=_size, help=what + default, **how) for size, what in told.items())


GPU = _option("--gpu", default="", metavar="GPU", help="GPU of the records, e.g. nvidia-h200")
RECORDS = _option("--records", type=Path, metavar="DIR", help="folder of records (default: the shipped ones)")
SEED = _option("--seed", type=_seed, default=0, help="of the operands (default: 0)")
FURTHER = _option(
    "--set",
    type=_setting,
    action="append",
    metavar="NAME=VALUE",
    help="another number that the room's problems have, e.g. group=32 (repeat for several)",
)
NO_BASELINE = _switch("--no-baseline", "without the room's baselines")

#: Command -> (function, what it does in a line, what `--help` says of it, arguments).
COMMANDS: dict[str, tuple[Callable[[Options], int | None], str, str, tuple[Argument, ...]]] = {}


def _command(name: str, summary: str, *arguments: Argument, says: str = "") -> Callable:
    """Make a function of the parsed options a command."""

    def known(function: Callable[[Options], int | None]) -> Callable[[Options], int | None]:
        COMMANDS[name] = function, summary, says or summary, arguments
        return function

    return known


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """In place of argparse's own, which puts the usage in front: an error is one line."""
        sys.exit(_fail(f"{message} (see --help)", BAD_INPUT))


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="python -m artifact",
        description="Measure sparse-matrix kernels, and put what their authors claim on trial.",
        epilog="The whole book: make artifact. All measurements of a GPU: make measure.",
    )
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND", dest="command")
    for name, (_, summary, says, arguments) in COMMANDS.items():
        sub = commands.add_parser(name, help=summary, description=says)
        for names, how in arguments:
            sub.add_argument(*names, **how)
    return parser


def _among(name: str, known: Iterable[str], none: str) -> str:
    """The name, if it is known. Raises ValueError: `none`, with the name in its {}, and what there is."""
    known = list(known)
    if name not in known:
        raise ValueError(f"{none.format(repr(name))}; known: {', '.join(known) or 'none'}.")
    return name


# ---------------------------------------------------------------- claims and records


def _folder(options: Options) -> Path:
    """The records that --records and --gpu name; without --gpu the only GPU, or the H200.

    Raises FileNotFoundError that names the folder where there are none.
    """
    root = options.records or paths.RECORDED
    known = records.list_gpus(root)
    if not known:
        what = "holds no records with their machine.json" if root.is_dir() else "is missing"
        raise FileNotFoundError(f"{root}: this folder of records {what}.")
    return records.resolve(options.gpu or (known[0] if len(known) == 1 else paths.HOME), root)


@_command(
    "claims",
    "verdicts on the claims, from the records",
    GPU,
    RECORDS,
    _option("--id", metavar="X", help="one claim, with how it was judged"),
    _option("--room", metavar="ROOM", help="claims of one room"),
    _option("--source-gpu", metavar="NAME", help="claims of what was said of this GPU"),
    _option("--verdict", action="append", choices=VERDICTS, help="claims with this verdict (repeat for several)"),
    _option("--format", choices=FORMATS, default="text", help="default: %(default)s"),
    _option(
        "--fail-on",
        action="append",
        choices=VERDICTS,
        default=[],
        help="exit code 1 if any counted claim shown has this verdict (repeat for several)",
    ),
    _option("--json", dest="format", action="store_const", const="json", help="the same as --format json"),
    _option(
        "--csv", dest="format", action="store_const", const="short", help="id, verdict and what was measured alone"
    ),
    says="Print the verdict on each claim. Exit code 0: printed; 2: bad input, as records that are not whole. "
    "With --fail-on 1 if any claim that is counted has one of these verdicts, for scripts.",
)
def _claims(options: Options) -> int:
    chosen = _chosen(options)
    folder = _folder(options)
    df = judge.judge(chosen, folder)
    if options.verdict:
        df = df[df["verdict"].isin([VERDICTS[name] for name in options.verdict])]
    written = {
        "short": lambda: df[list(judge.GOLDEN_COLUMNS)].to_csv(index=False),
        "csv": lambda: df.to_csv(index=False),
        "json": lambda: df.to_json(orient="records", indent=1, force_ascii=False) + "\n",
        "markdown": lambda: page.markdown(df, folder.name) + "\n",
        "text": lambda: f"GPU: {folder.name}\n\n{(_one if options.id and len(df) else _all)(chosen, df)}\n",
    }
    print(written[options.format](), end="")
    wanted = {VERDICTS[name] for name in options.fail_on}
    return WRONG * bool(wanted & set(judge.counted(df)["verdict"]))


def _chosen(options: Options) -> list[load.Claim]:
    """The claims that --id, --room and --source-gpu leave. Raises ValueError for none, with what there is."""
    chosen = load.claims()
    for wanted, none, of in (
        (options.id, "There is no claim {}", lambda claim: [claim.id]),
        (options.room, "There are no claims of a room {}", lambda claim: [claim.room]),
        (options.source_gpu, "No claim speaks of a GPU {}", lambda claim: claim.gpu),
    ):
        known = sorted({name for claim in chosen for name in of(claim)})
        if wanted == options.id and wanted and wanted not in known:
            close = ", ".join(difflib.get_close_matches(wanted, known, n=3, cutoff=0.5))
            hint = f"close: {close}" if close else "`claims` without --id lists all"
            raise ValueError(f"There is no claim {wanted!r}; {hint}.")
        chosen = [claim for claim in chosen if not wanted or _among(wanted, known, none) in of(claim)]
    return chosen


def _one(chosen: Sequence[load.Claim], df) -> str:
    """One claim for a terminal, with how it was judged."""
    claim, row = chosen[0], df.iloc[0]
    said = {key: row[key] for key in "id source where says gpu published measured verdict close reason why".split()}
    said["verdict"] = measures.said(said["verdict"], claim.extension)
    lines = [(key, value) for key, value in said.items() if value]
    lines += [("experiment", f"{', '.join(claim.experiment)} ({minutes.said(claim.minutes)} minutes to measure)")]
    lines += [(key, page.written(value)) for key, value in claim.rule.written.items()]
    lines += [("", f"{rule.name}: {rule.definition}") for rule in page.rules([claim]).itertuples()]
    return "\n".join(f"{key:<11} {value}" for key, value in lines)


def _all(_, df) -> str:
    """Verdicts for a terminal, a line for each claim."""
    lines = []
    for row in df.itertuples():
        mark = " (extension, not counted)" * row.extension
        lines.append(f"{measures.said(row.verdict, row.extension):<30}  {row.id:<28}  {row.measured}{mark}")
        lines += [f"{'':<30}  {'':<28}  {row.close}"] if row.close else []
    return "\n".join([*lines, "", page.totals(df)])


@_command(
    "compare",
    "fresh records against the shipped ones",
    _option(
        "--fresh",
        metavar="GPU|DIR",
        default="",
        help="one side: a folder of records or a GPU (default: the only GPU in build/records)",
    ),
    _option(
        "--shipped",
        metavar="GPU|DIR",
        default="",
        help="the other side (default: the same GPU among the shipped, else nvidia-h200)",
    ),
    _option("--room", metavar="ROOM", help="one room"),
    _option(
        "--tolerance",
        type=float,
        default=compare.SPEEDUP_TOLERANCE,
        help="of speedups, relative (default: %(default)s)",
    ),
    _option(
        "--time-tolerance",
        type=float,
        default=compare.TIME_TOLERANCE,
        help="of times, relative (default: %(default)s)",
    ),
    says="Compare fresh records with the shipped ones. Exit code 0: they agree within tolerance; "
    "1: they differ; 2: bad input. For another kind of GPU speedups are shown side by side, "
    "and the verdicts on the claims decide.",
)
def _compare(options: Options) -> int:
    made = records.list_gpus(paths.RECORDS)
    if not options.fresh and not made:
        raise FileNotFoundError("There are no fresh records yet; `make measure` makes them.")
    if not options.fresh and len(made) > 1:
        raise ValueError(f"There are fresh records of {', '.join(made)}; choose with --fresh.")
    fresh = _side(options.fresh or made[0], paths.RECORDS)
    same = fresh.name if fresh.name in records.list_gpus(paths.RECORDED) else paths.HOME
    shipped = _side(options.shipped or same, paths.RECORDED)
    result = compare.compare(fresh, shipped, options.room, options.tolerance, options.time_tolerance)
    print(compare.report(result))
    return result.exit_code


def _side(given: str, root: Path) -> Path:
    """A GPU's folder from its path, from that of a folder of records with one GPU in it, or from its name, in `root` or
    else where the other records are."""
    path = Path(given)
    if path.is_dir():
        inside = [] if records.rooms(path) else records.list_gpus(path)
        if len(inside) > 1:
            raise ValueError(f"{path}: there are records of {', '.join(inside)}; name one of these folders.")
        return path.joinpath(*inside)
    for place in (root, paths.RECORDS, paths.RECORDED):
        with contextlib.suppress(ValueError):
            return records.resolve(given, place)
    known = sorted({*records.list_gpus(paths.RECORDS), *records.list_gpus(paths.RECORDED)})
    raise ValueError(f"There is no folder and no GPU with records {given!r}; known: {', '.join(known) or 'none'}.")


@_command(
    "machine",
    "the machine that records were made on, or (without --gpu) this one",
    GPU,
    RECORDS,
    _option("--room", metavar="ROOM", help="machine of one room's records"),
)
def _machine(options: Options) -> None:
    if options.gpu or options.room:
        folder = _folder(options)
        known = records.rooms(folder)
        room = _among(options.room or known[0], known, f"There are no records of a room {{}} on {folder.name}")
        machine = records.read_machine(folder / room)
    else:
        from artifact.measure import device

        machine = device.describe(device.require().open())
    print(json.dumps(machine, indent=1, ensure_ascii=False))


# ---------------------------------------------------------------- a room's kernels


def _room(name: str) -> Any:
    """The room's package. Raises ValueError that names the rooms there are."""
    known = sorted(path.parent.name for path in (paths.ROOT / "kernels").glob("*/launch.py"))
    return importlib.import_module(f"kernels.{_among(name, known, 'There is no room {}')}")


def _variants(room: Any, chosen: Sequence[str] | None) -> list[str]:
    return list(
        dict.fromkeys(_among(name, room.VARIANTS, "There is no variant {}") for name in chosen or room.VARIANTS)
    )


@_command(
    "compile",
    "registers, shared memory, spills and instructions of a room's kernels; needs no GPU",
    _option("room", help="a folder of kernels/ with a launch.py"),
    _option("--variant", metavar="V", help="one variant"),
    _option("--target", metavar="SM", help="one target, e.g. sm_90a"),
    _switch("--csv", "as CSV"),
)
def _compile(options: Options) -> None:
    room = _room(options.room)
    chosen = _variants(room, [options.variant] if options.variant else None)
    from artifact.measure import run

    targets = dict.fromkeys(target for name in chosen for target in room.VARIANTS[name].targets)
    target = _among(options.target, targets, "There is no target {}") if options.target else None
    df = run.compile_report(options.room, chosen, target)
    print(df.to_csv(index=False) if options.csv else df.to_string(index=False))


def _asked(room: Any, options: Options) -> dict[str, Any]:
    """What the options ask of the room's `problem`. Raises ValueError for what the room does not know."""
    name = room.__name__.rpartition(".")[2]
    if not hasattr(room, "problem"):
        raise ValueError(f"{name} has no problems to run; `compile` shows its kernels.")
    parameters = inspect.signature(room.problem).parameters
    usual = {key: getattr(options, key) for key in ("m", "n", "k", "seed", "density")}
    if options.density is None and parameters["density"].default is inspect.Parameter.empty:
        raise ValueError(f"{name} has no usual density: give one with --density.")
    further = [key for key in parameters if key not in usual]
    none = f"The problems of {name} have no {{}} to set"
    chosen = {_among(key, further, none): value for key, value in options.set or ()}
    return {key: value for key, value in usual.items() if value is not None} | chosen


def _bind(makers: Mapping[str, Callable], problem, named: Sequence[str], variants: Sequence[str]) -> dict[str, Any]:
    """The contenders that take the problem; one that does not is left out, unless it was named or
    no variant would remain."""
    bounds, refused = {}, {}
    for name, make in makers.items():
        try:
            bounds[name] = make(problem)
        except (ValueError, ModuleNotFoundError) as why:
            if name in named:
                raise
            refused[name] = _sentence(why)
    if all(name in refused for name in variants):
        raise ValueError(refused[variants[0]])
    for name, said in refused.items():
        print(f"left out: {said}" if name in said else f"left out: {name}: {said}")
    return bounds


@_command(
    "run",
    "check and time one size on the GPU here",
    _option("room", help="a folder of kernels/ with a launch.py"),
    _option(
        "--variant",
        action="append",
        metavar="V",
        help="variant (repeat for several; default: all that take the problem)",
    ),
    *_sizes(required=True),
    _option("--density", type=_fraction, help="nominal share of nonzeros, S/100 (default: the room's, if it has one)"),
    SEED,
    FURTHER,
    _option(
        "--protocol",
        choices=("cold", "published"),
        default="cold",
        help="cold: single launches after a flush of the L2, GPU time only (default); published: "
        "loops of calls, nothing flushed, host time included",
    ),
    _option(
        "--warmup",
        type=_natural,
        metavar="N",
        help="cold: launches before the timer's own warm-up; published: calls before each loop",
    ),
    _option(
        "--iterations",
        type=_positive,
        metavar="N",
        help="cold: timed launches; published: calls of a loop (default: by time budget)",
    ),
    NO_BASELINE,
    says="Check variants of a room against a float64 reference, then time them, interleaved with "
    "the room's baselines, at one size. Nothing is recorded.",
)
def _run(options: Options) -> None:
    room = _room(options.room)
    names = _variants(room, options.variant)
    asked = _asked(room, options)
    from artifact.measure import check, device, run

    info = device.require()
    device.require_memory(info, options.m, options.n, options.k)  # before anything is drawn
    opened = info.open()
    problem = room.problem(**asked)
    reference = check.oracle(problem)
    makers: dict[str, Callable] = {name: lambda p, name=name: room.bind(name, p, opened) for name in names}
    makers |= {} if options.no_baseline else registry.contenders(getattr(room, "BASELINES", ()), opened)
    bounds = _bind(makers, problem, options.variant or (), names)
    run.check_exactly(problem, {name: makers[name] for name in bounds}, opened)
    errors, timings = run.check_and_time(bounds, problem, reference, opened, _timer(options))

    label = f", {problem.label}" * bool(problem.label)
    print(
        f"{info.gpu}: m={problem.m} n={problem.n} k={problem.k} nnz={problem.nnz} "
        f"S={problem.density * 100:g} %{label}; FLOPs {problem.flops_def}; "
        f"{options.protocol} protocol"
    )
    library = min(((t.median_us, name) for name, t in timings.items() if name not in names), default=None)
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


def _timer(options: Options) -> Callable:
    """The timer of `artifact.measure.bench` that --protocol names, with --warmup and --iterations."""
    from artifact.measure import bench

    warmup, count = options.warmup, options.iterations

    def published(bounds, opened, *, verify):
        plan = {key: value for key, value in {"warmup": warmup, "calls": count}.items() if value is not None}
        # What was asked for is done, however long it takes.
        return bench.time_calls(bounds, opened, verify=verify, **plan, **({"budget_s": math.inf} if plan else {}))

    def cold(bounds, opened, *, verify):
        stream = opened.create_stream()
        for bound in bounds.values():
            for _ in range(warmup or 0):
                bound.launch(stream)
        stream.sync()
        plan = {"min_samples": count, "max_samples": count} if count else {}
        return bench.time(bounds, opened, verify=verify, **plan)

    return {"cold": cold, "published": published}[options.protocol]


# ---------------------------------------------------------------- a reader's own kernel, a reader's own matrix


@_command(
    "trial",
    "your own kernel, on a room's operands, beside its kernels and libraries",
    _option("kernel", nargs="?", metavar="KERNEL.cu", help="with the header in its first comment"),
    _option(
        "--contender",
        metavar="MODULE:BIND",
        help="a dotted name, or a path that ends in .py; its code is run, with all that you may do",
    ),
    _option("--room", metavar="ROOM", help="whose problems it solves"),
    _option("--name", default="", help="of the contender (default: the file's or the module's)"),
    _option("--template", choices=("cu", "py"), help="print one to copy, and end"),
    *_sizes(" (default: the room's first sweep)"),
    _option("--density", type=_fraction, help="nominal share of nonzeros, S/100"),
    _option("--matrix", type=Path, metavar="FILE", help="a real A, .mtx or SciPy's .npz; with -n"),
    SEED,
    FURTHER,
    _option("--preset", choices=("kick", "full"), default="kick", help="of the sweep (default: kick)"),
    _option(
        "--against",
        action="append",
        metavar="V",
        help="variant of the room beside it (repeat for several; default: all that take the problem)",
    ),
    NO_BASELINE,
    says="Check your kernel against a float64 reference, time it beside a room's kernels and libraries, and say how "
    "it stands. The record goes to <build>/trials, the figure to <build>/figures/trials. A kernel is a .cu with a "
    "header (see --template cu) or a Python function (--template py). Without a kernel: what arguments the "
    "room's operands have. Exit code 1: the kernel is wrong.",
)
def _trial(options: Options) -> None:
    from artifact.drawing.pages import yours
    from artifact.measure import device
    from artifact.trial import court, header

    if options.template:
        print(yours.template(options.template), end="")
        return
    if not options.room:
        raise ValueError("Which room's problems shall it solve? Name one with --room.")
    if options.kernel and options.contender:
        raise ValueError(f"One contender at a time: {options.kernel} or --contender {options.contender}.")
    room, what = _room(options.room), options.kernel or options.contender
    problems = _trial_problems(room, options)
    if not what:
        for name, meaning in header.described(problems[0], problems[0].host()).items():
            print(f"{name:<12} {meaning}")
        return
    contender = court.load(what, options.name)
    court.refuse_name(contender, room.VARIANTS)
    names = _variants(room, options.against)
    if device.find() is None:
        court.check_header(contender, problems[0])
    for row in court.compiled(contender):
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
    shown = yours.show(df, contender.name, options.room, info.gpu, room.VARIANTS)
    print(f"record: {begun.folder / court.EXPERIMENT}.csv; figure: {shown.svg}")


def _trial_problems(room: Any, options: Options) -> list:
    """The problems of a trial: one of the given sizes, or of a real matrix, else the room's first sweep."""
    sizes, further = (options.m, options.n, options.k), options.density or options.set
    if options.matrix is not None:
        if not hasattr(room, "problem_from_csr"):
            raise ValueError(f"The problems of {options.room} are not made of a matrix in CSR.")
        if options.n is None or options.m or options.k or further:
            raise ValueError("A matrix has its sizes and its density: beside --matrix give -n alone.")
        a = matrices.read(options.matrix)
        return [room.problem_from_csr(a, options.n, options.seed, options.matrix.stem)]
    if all(sizes):
        return [room.problem(**_asked(room, options))]
    if any(sizes) or further:
        raise ValueError("A problem has -m, -n and -k: give all three, or none for the room's sweep.")
    shapes = next(iter(room.sweeps(options.preset).values()))
    return [room.problem(**shape, seed=options.seed) for shape in shapes]


@_command(
    "which",
    "which kernel for my matrix: its statistics, advice, the expected time and why",
    _option("matrix", type=Path, metavar="FILE", help="Matrix Market's .mtx, or SciPy's .npz"),
    _option("-n", type=_size, required=True, help="columns of B"),
    _option(
        "--precision",
        default="fp32",
        choices=[p.lower() for p in atlas.PRECISIONS],
        help="of the result, at least (default: %(default)s)",
    ),
    _switch("--no-measure", "advice alone, also where there is a GPU"),
    GPU,
    RECORDS,
    says="Print the statistics of a sparse matrix, which recorded kernel multiplies it fastest by a dense one of N "
    "columns, the time to expect, and why. Needs no GPU; with one it also measures, and says whether the advice "
    "was good.",
)
def _which(options: Options) -> None:
    from artifact.measure import device
    from artifact.which import advice

    folder = _folder(options)
    a = matrices.read(options.matrix)
    answer = advice.advise(a, options.n, folder, options.precision.upper(), options.matrix.stem)
    print("\n".join(advice.lines(answer, folder.name)))
    info = None if options.no_measure else device.find()
    if info is not None:
        device.require_memory(info, a.m, options.n, a.k)
        df = advice.measure(answer, a, info.open())
        print(f"\nMeasured on {info.gpu}:\n{df.to_string(index=False)}")
        print(advice.judged(df, answer.guess.variant))


# ---------------------------------------------------------------- what `make` and a node need


@_command(
    "profile",
    "hardware counters through Nsight Compute",
    _option("room", nargs="?", help="one room (default: all that profiles.toml lists)"),
    says="Profile what profiles.toml lists, and write counters.csv and profiles/<room>.ncu-rep to "
    "<build>/records/<gpu>/<room>.",
)
def _profile(options: Options) -> None:
    from artifact.measure import device
    from artifact.profiling import ncu

    listed = registry.profiles()
    rooms = [_among(options.room, listed, "There is no profile of {}")] if options.room else list(listed)
    info = device.require()
    known = load.claims()
    for room in rooms:
        plan = listed[room]
        shapes = [shape | {"density": d} for d in plan["densities"] for shape in plan["shapes"]]
        print(f"{room}: {len(shapes)} shapes × {len(plan['contenders'])} contenders", flush=True)
        wanted = load.counters_wanted(claim for claim in known if claim.room == room)
        where = paths.RECORDS.joinpath(info.slug, *room.split("."))  # a part of a room lies in its folder
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


@_command(
    "matrices",
    "real matrices: which of a list are here; --download fetches the others",
    _option("--room", metavar="ROOM", help="a room's own list (default: the general one)"),
    _option("--most", type=_positive, metavar="NNZ", help="none with more non-zeros"),
    _switch("--download", "fetch what is missing"),
    says="Say which matrices of a list are in the folder of SPARSITY_MATRICES, or fetch those that are "
    "not from the SuiteSparse Matrix Collection: a room's list may be tens of GB. Exit code 1: "
    "some could not be fetched.",
)
def _matrices(options: Options) -> int:
    df = matrices.listed(registry.matrices(options.room) if options.room else matrices.LIST)
    if options.most and "nnz" not in df:
        raise ValueError("The general list does not say how many non-zeros: use --most with --room.")
    df = df[df["nnz"] <= options.most] if options.most else df
    where = matrices.folder()
    if where is None:
        raise FileNotFoundError(f"{matrices.VARIABLE} is not set: let it name a folder of matrices.")
    failed = matrices.download(df, where) if options.download else []
    print(matrices.left_out(df, matrices.present(df, where)) or f"All {len(df)} listed matrices are in {where}")
    return WRONG * bool(failed)


@_command(
    "records",
    "list the records there are",
    _option("--records", type=Path, metavar="DIR", help="folder of records (default: shipped and fresh)"),
)
def _records(options: Options) -> None:
    roots = [options.records] if options.records else [paths.RECORDED, paths.RECORDS]
    kinds = {paths.RECORDED: "shipped", paths.RECORDS: "fresh"}
    found = [
        f"{kinds.get(root, root)!s:<8} {gpu:<24} {room:<16} {experiment:<12} "
        f"{len(records.read(root / gpu / room / f'{experiment}.csv')):>5} rows  "
        f"{records.read_machine(root / gpu / room)['date']}"
        for root in roots
        for gpu in records.list_gpus(root)
        for room in records.rooms(root / gpu)
        for experiment in records.experiments(root / gpu / room)
    ]
    if not found:
        raise FileNotFoundError(f"There are no records in {' or '.join(map(str, roots))}.")
    print("\n".join(found))
