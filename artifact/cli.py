"""`python -m artifact`: claims, comparisons, machines and single measurements from the shell.

Exit codes: 0, or what the command says; 1 where a comparison differs or a result is wrong; 2 for
bad input, with one line on stderr.
"""

import argparse
import contextlib
import importlib
import inspect
import itertools
import json
import math
import os
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Any

from artifact import command, paths, registry
from artifact.book import facts
from artifact.command import BAD_INPUT, Argument, Options, option
from artifact.measure import bench, device, durations, files, matrices, records, run, verification
from artifact.recommend import landscape
from artifact.verdicts import compare, judge, load, measures
from kernels.contract import require
from kernels.formats.csr import INT32_MAX

#: What --verdict and --fail-on call the verdicts.
VERDICTS = {
    "reproduced": measures.REPRODUCED,
    "exceeded": measures.EXCEEDED,
    "partly": measures.PARTLY,
    "not-reproduced": measures.NOT_REPRODUCED,
    "does-not-carry-over": measures.NOT_CARRIED,
    "undecided": measures.UNDECIDED,
    "not-measured": measures.NOT_MEASURED,
}
#: What a command's exceptions mean, by the names of their classes, some of whose modules need a GPU.
CODES = {
    **dict.fromkeys(("ValueError", "FileNotFoundError", "NotADirectoryError", "PermissionError"), BAD_INPUT),
    **dict.fromkeys(("NoGpu", "OutOfMemoryError", "ModuleNotFoundError", "SystemExit"), BAD_INPUT),
    "WrongResult": 1,
    "KeyboardInterrupt": 130,
}
#: What is said of those that do not say it themselves.
SAID = {
    "ModuleNotFoundError": "{0.name} is not installed: see the extras in pyproject.toml.",
    "SystemExit": "The contender ended the program, so there is no result.",  # whatever code it chose
    "KeyboardInterrupt": "Interrupted; what was recorded so far is kept.",
}


class _Parser(command.Parser):
    who, hint = "artifact", " (see --help)"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    streams: tuple[Any, ...] = (sys.stdout, sys.stderr)
    for stream in streams:
        stream.reconfigure(errors="replace")  # of what a terminal cannot show, the rest is shown
    parser = _Parser(
        prog="python -m artifact",
        description="Measure sparse-matrix kernels, and put what their authors claim on trial.",
        epilog="The whole book: make artifact. All measurements of a GPU: make measure.",
    )
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND", dest="command")
    for name, (_, summary, says, taken) in COMMANDS.items():
        commands.add_parser(name, help=summary, description=says or summary).add(taken)
    try:
        try:
            options = parser.parse_args(arguments)
            try:
                return COMMANDS[options.command][0](options) or 0
            except (Exception, SystemExit, KeyboardInterrupt) as error:
                codes = [CODES[kind.__name__] for kind in type(error).__mro__ if kind.__name__ in CODES]
                if not codes:
                    raise
                return command.failed(_sentence(error), _Parser.who, codes[0])
        finally:
            sys.stdout.flush()
    except OSError as error:  # `… | head`; a full disk, behind the answer or a record
        # What is still to be written goes nowhere, since Python writes it at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0 if isinstance(error, BrokenPipeError) else command.failed(_sentence(error), _Parser.who)


def _sentence(error: object) -> str:
    return " ".join(SAID.get(type(error).__name__, "{0}").format(error).split())


# ---------------------------------------------------------------- options


def _number(kind: Callable[[str], Any], least: float, most: float, what: str, over: str = "") -> Callable:
    """Return what reads a `kind` of number, in words `what`, from `least` to `most`; over: what larger ones are."""

    def read(text: str):
        said = f"{text[:40]!r} is not {what}"
        with contextlib.suppress(ValueError):
            value = kind(text)
            if least <= value <= most:
                return value
            said = f"{text[:40]} is over {over}" if over and value > most else said
        raise argparse.ArgumentTypeError(said)

    return read


_natural = _number(int, 0, math.inf, "a whole number from 0 on")
_positive = _number(int, 1, math.inf, "a whole number from 1 on")
_size = _number(
    int, 1, INT32_MAX, "a whole number from 1 on", "2^31 - 1, and kernels count rows and columns in 32 bits"
)
_seed = _number(int, 0, run.SEEDS, "a whole number from 0 on", f"{run.SEEDS}, the largest seed")
_fraction = _number(float, math.ulp(0), 1, "a fraction over 0 and up to 1 (S/100)")


def _setting(text: str) -> tuple[str, int]:
    name, _, value = text.partition("=")
    try:
        return name, int(value)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE with a whole number") from None


SIZES = {"-m": "rows of A", "-n": "columns of B", "-k": "columns of A"}
GPU = option("--gpu", default="", metavar="GPU", help="GPU of the records, e.g. nvidia-h200")
RECORDS = option("--records", type=Path, metavar="DIR", help="folder of records (default: the shipped ones)")
SEED = option("--seed", type=_seed, default=0, help="of the operands (default: 0)")
FURTHER = option(
    "--set",
    type=_setting,
    action="append",
    metavar="NAME=VALUE",
    help="another number that the system's problems have, e.g. group=32 (repeat for several)",
)
NO_BASELINE = option("--no-baseline", action="store_true", help="without the system's baselines")


def _among(name: str | None, known: Collection[str], none: str, hint: str = "") -> Any:
    """Return the name, if it is known, or None.

    Raises ValueError: `none`, with the name in its {}, and `hint`, or what there is.
    """
    require(
        name is None or name in known, f"{none.format(repr(name))}; {hint or 'known: ' + (', '.join(known) or 'none')}."
    )
    return name


# ---------------------------------------------------------------- claims and records


def _folder(options: Options) -> Path:
    """Return the records that --records and --gpu name; without --gpu the only GPU, or the H200.

    Raises FileNotFoundError that names the folder where there are none.
    """
    root = options.records or paths.RECORDED
    known = records.list_gpus(root)
    none = "holds no records with their machine.json." if root.is_dir() else "is missing."
    require(known, f"{root}: this folder of records {none}", FileNotFoundError)
    return records.resolve(options.gpu or (known[0] if len(known) == 1 else paths.HOME), root)


def _claims(options: Options) -> int:
    chosen = load.claims()
    close = ", ".join(get_close_matches(options.id or "", [claim.id for claim in chosen], n=3, cutoff=0.5))
    hint = f"close: {close}" if close else "`claims` without --id lists all"
    for wanted, of, none in (
        (options.id, lambda claim: [claim.id], ("There is no claim {}", hint)),
        (options.room, lambda claim: [claim.room], ("There are no claims of a system {}",)),
        (options.source_gpu, lambda claim: claim.gpu, ("No claim speaks of a GPU {}",)),
    ):
        _among(wanted or None, sorted({name for claim in chosen for name in of(claim)}), *none)
        chosen = [claim for claim in chosen if not wanted or wanted in of(claim)]
    folder = _folder(options)
    others = [] if options.gpu else records.list_gpus(folder.parent)
    judged = {gpu: judge.judge(chosen, folder.parent / gpu) for gpu in dict.fromkeys([folder.name, *others])}
    df, decide = judge.deciding(judged), {system: judge.decider(judged, system) for system in {c.room for c in chosen}}
    name = ", ".join([folder.name, *(f"{s} by {gpu}" for s, gpu in sorted(decide.items()) if gpu != folder.name)])
    df = df[df["verdict"].isin([VERDICTS[said] for said in options.verdict or VERDICTS])]
    written = {
        "short": lambda: df[["id", "verdict", "measured"]].to_csv(index=False),
        "csv": lambda: df.to_csv(index=False),
        "json": lambda: df.to_json(orient="records", indent=1, force_ascii=False) + "\n",
        "markdown": lambda: judge.markdown(df, name) + "\n",
        "text": lambda: f"GPU: {name}\n\n{(_one if options.id and len(df) else _all)(chosen, df)}\n",
    }
    print(written[options.format](), end="")
    return int(judge.counted(df)["verdict"].isin([VERDICTS[name] for name in options.fail_on]).any())


def _one(chosen: Sequence[load.Claim], df) -> str:
    claim, row = chosen[0], df.iloc[0]
    lines = [
        *((key, row[key]) for key in "id source where says gpu published measured".split()),
        ("verdict", measures.said(row["verdict"], claim.aside)),
        *((key, row[key]) for key in ("sure", "reason", "why")),
        ("experiment", f"{', '.join(claim.experiment)} ({durations.said(claim.minutes)} minutes to measure)"),
        *((key, judge.written(value)) for key, value in claim.rule.written.items()),
        *(("", f"{rule.name}: {rule.definition}") for rule in judge.rules([claim]).itertuples()),
    ]
    return "\n".join(f"{key:<11} {value}" for key, value in lines if value)


def _all(_, df) -> str:
    """Verdicts for a terminal, a line for each claim."""
    lines = [
        f"{measures.said(row.verdict, row.aside):<30}  {row.id:<28}  {row.measured}"
        + f" ({row.aside}, not counted)" * bool(row.aside)
        + f" ({row.sure.partition(';')[0]})" * bool(row.sure)
        for row in df.itertuples()
    ]
    return "\n".join([*lines, "", judge.totals(df)])


def _compare(options: Options) -> int:
    made = records.list_gpus(paths.RECORDS)
    several = f"There are fresh records of {', '.join(made)}; choose with --fresh."
    none = "There are no fresh records yet; `make measure` makes them."
    require(options.fresh or len(made) == 1, several if made else none)
    fresh = _side(options.fresh or made[0], paths.RECORDS)
    same = fresh.name if fresh.name in records.list_gpus(paths.RECORDED) else paths.HOME
    sides = fresh, _side(options.shipped or same, paths.RECORDED)
    result = compare.compare(*sides, options.room, options.tolerance, options.time_tolerance)
    print(compare.report(result))
    return compare.AGREE if result.agrees else compare.DIFFER


def _side(given: str, root: Path) -> Path:
    """Return a GPU's folder of records from a path or a name.

    The path is its own or that of a folder of records with one GPU in it; the name is looked for in `root`, or else
    where the other records are.
    """
    path = Path(given)
    if path.is_dir():
        inside = [] if records.systems(path) else records.list_gpus(path)
        require(len(inside) <= 1, f"{path}: there are records of {', '.join(inside)}; name one of these folders.")
        return path.joinpath(*inside)
    known = {gpu: place for place in (paths.RECORDED, paths.RECORDS, root) for gpu in records.list_gpus(place)}
    require(
        device.slug(given) in known,
        f"There is no folder and no GPU with records {given!r}; known: {', '.join(sorted(known)) or 'none'}.",
    )
    return records.resolve(given, known[device.slug(given)])


def _check(options: Options) -> int:
    root = options.records or paths.RECORDED
    require(bool(records.list_gpus(root)), f"{root}: there are no records in this folder.")
    kept = {root: paths.RECORDED} | ({} if options.records else {paths.SCALED: paths.SCALED})
    found = [(folder.parent, at) for at in kept for folder in sorted(at.rglob(records.MACHINE))]
    said = [x for folder, at in found for x in files.problems(folder, kept[at] / folder.relative_to(at))]
    if not said:  # of other records, other facts and verdicts follow
        for system, gpu in facts.having_facts(root):
            said += facts.differences(root / gpu / system / facts.FILE, facts.to_csv(facts.of(system, gpu, root)))
        judged = judge.everywhere(load.claims(), {gpu: root / gpu for gpu in records.list_gpus(root)})
        said += facts.differences(root / judge.SHIPPED, judge.to_csv(judged))
        for gpu, df in judged.items():
            stale = sorted(judge.drawings(root / gpu).keys() - set(zip(df["id"], df["verdict"], strict=True)))
            said += [f"{root / gpu / judge.STABILITY}: {claim} is no longer {verdict!r}" for claim, verdict in stale]
    print(*said, f"Not as they were written: {len(said) or 'no'} files, rows, facts or verdicts.", sep="\n")
    return int(bool(said))


def _machine(options: Options) -> None:
    if options.gpu or options.room:
        folder = _folder(options)
        known = records.systems(folder)
        system = _among(options.room or known[0], known, f"There are no records of a system {{}} on {folder.name}")
        machine = records.read_machine(folder / system)
    else:
        machine = device.describe(device.require().open())
    print(json.dumps(machine, indent=1, ensure_ascii=False))


# ---------------------------------------------------------------- a system's kernels


def _system(name: str) -> Any:
    """Return the system's package. Raises ValueError that names the systems there are."""
    known = sorted(path.parent.name for path in (paths.ROOT / "kernels").glob("*/launch.py"))
    return importlib.import_module(f"kernels.{_among(name, known, 'There is no system {}')}")


def _variants(system: Any, chosen: Sequence[str] | None) -> list[str]:
    return [
        *dict.fromkeys(_among(name, system.VARIANTS, "There is no variant {}") for name in chosen or system.VARIANTS)
    ]


def _compile(options: Options) -> None:
    system = _system(options.room)
    chosen = _variants(system, options.variant and [options.variant])
    targets = dict.fromkeys(target for name in chosen for target in system.VARIANTS[name].targets)
    df = run.compile_report(options.room, chosen, _among(options.target or None, targets, "There is no target {}"))
    print(df.to_csv(index=False) if options.csv else df.to_string(index=False))


def _asked(system: Any, options: Options) -> dict[str, Any]:
    """Return what the options ask of the system's `problem`. Raises ValueError for what the system does not know."""
    name, further = system.__name__.rpartition(".")[2], dict(options.set or ())
    require(hasattr(system, "problem"), f"{name} has no problems to run; `compile` shows its kernels.")
    parameters = inspect.signature(system.problem).parameters
    usual = {key: getattr(options, key) for key in ("m", "n", "k", "seed", "density")}
    require(
        options.density is not None or parameters["density"].default is not inspect.Parameter.empty,
        f"{name} has no usual density: give one with --density.",
    )
    for key in further:
        _among(key, [key for key in parameters if key not in usual], f"The problems of {name} have no {{}} to set")
    return {key: value for key, value in usual.items() if value is not None} | further


def _prepare(makers: Mapping[str, Callable], problem, named: Sequence[str], variants: Sequence[str]) -> dict[str, Any]:
    """Return the contenders that take the problem.

    One that does not is left out, unless it was named or no variant would remain.
    """
    bounds, refused = {}, {}
    for name, make in makers.items():
        try:
            bounds[name] = make(problem)
        except (ValueError, ModuleNotFoundError) as why:
            if name in named:
                raise
            refused[name] = _sentence(why)
    require(any(name in bounds for name in variants), refused.get(variants[0], ""))
    for name, said in refused.items():
        print(f"left out: {said}" if name in said else f"left out: {name}: {said}")
    return bounds


def _run(options: Options) -> None:
    system = _system(options.room)
    names, asked, info = _variants(system, options.variant), _asked(system, options), device.require()
    device.require_memory(info, options.m, options.n, options.k)  # before anything is drawn
    opened, problem = info.open(), system.problem(**asked)
    reference = verification.oracle(problem)
    baselines = () if options.no_baseline else getattr(system, "BASELINES", ())
    makers: dict[str, Callable] = {name: partial(system.prepare, name, device=opened) for name in names}
    makers |= registry.contenders(baselines, opened)
    bounds = _prepare(makers, problem, options.variant or (), names)
    run.check_exactly(problem, {name: makers[name] for name in bounds}, opened)
    errors, timings = run.check_and_time(bounds, problem, reference, opened, _timer(options))
    print(
        f"{info.gpu}: m={problem.m} n={problem.n} k={problem.k} nnz={problem.nnz} "
        f"S={problem.density * 100:g} %{f', {problem.label}' * bool(problem.label)}; FLOPs {problem.flops_def}; "
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
    """Return the timer of `artifact.measure.bench` that --protocol names, with --warmup and --iterations."""
    warmup, count = options.warmup, options.iterations
    if options.protocol == "published":
        asked: dict[str, Any] = {k: v for k, v in {"warmup": warmup, "calls": count}.items() if v is not None}
        # What was asked for is done, however long it takes.
        return partial(bench.time_calls, **(asked | {"budget_s": math.inf} if asked else {}))

    def cold(bounds, opened, *, verify):
        stream = opened.create_stream()
        for bound, _ in itertools.product(bounds.values(), range(warmup or 0)):
            bound.launch(stream)
        stream.sync()
        samples = {"min_samples": count, "max_samples": count} if count else {}
        return bench.time(bounds, opened, verify=verify, **samples)

    return cold


# ---------------------------------------------------------------- a reader's own kernel, a reader's own matrix


def _trial(options: Options) -> None:
    from artifact.drawing.pages import yours
    from artifact.user_kernel import benchmark, header

    if options.template:
        return print(yours.template(options.template), end="")
    require(bool(options.room), "Which system's problems shall it solve? Name one with --room.")
    require(
        not options.kernel or not options.contender,
        f"One contender at a time: {options.kernel} or --contender {options.contender}.",
    )
    system, what = _system(options.room), options.kernel or options.contender
    problems = _trial_problems(system, options)
    if not what:
        told = header.described(problems[0], problems[0].host())
        return print(*(f"{name:<12} {meaning}" for name, meaning in told.items()), sep="\n")
    contender = benchmark.load(what, options.name)
    benchmark.refuse_name(contender, system.VARIANTS)
    names = _variants(system, options.against)
    if device.find() is None:
        benchmark.check_header(contender, problems[0])
    for row in benchmark.compiled(contender):
        print(
            f"{contender.name}: {row['target']}, {row['registers']} registers, "
            f"{row['shared_bytes']} bytes of static shared memory" + ", spills" * row["spills"],
            flush=True,
        )
    info = device.require()
    for problem in problems:
        device.require_memory(info, problem.m, problem.n, problem.k)
    begun = benchmark.start(contender, options.room, options.preset, options.seed)
    benchmark.check_first(contender, problems[0], begun.device)
    others = begun.variants(names) | ({} if options.no_baseline else begun.baselines())
    df = benchmark.measure(begun, contender, problems, others)
    table = benchmark.standings(df, contender.name)
    print(table.to_string(index=False), benchmark.verdict(table, contender.name), sep="\n")
    shown = yours.show(df, contender.name, options.room, info.gpu, system.VARIANTS)
    print(f"record: {begun.folder / benchmark.EXPERIMENT}.csv; figure: {shown.svg}")


def _trial_problems(system: Any, options: Options) -> list:
    """Return the problems of a trial: one of the given sizes, or of a real matrix, else the system's first sweep."""
    sizes, further = (options.m, options.n, options.k), options.density or options.set
    if options.matrix is not None:
        require(hasattr(system, "problem_from_csr"), f"The problems of {options.room} are not made of a matrix in CSR.")
        require(
            options.n is not None and not options.m and not options.k and not further,
            "A matrix has its sizes and its density: beside --matrix give -n alone.",
        )
        return [system.problem_from_csr(matrices.read(options.matrix), options.n, options.seed, options.matrix.stem)]
    if all(sizes):
        return [system.problem(**_asked(system, options))]
    require(
        not any(sizes) and not further, "A problem has -m, -n and -k: give all three, or none for the system's sweep."
    )
    return [system.problem(**shape, seed=options.seed) for shape in next(iter(system.sweeps(options.preset).values()))]


def _which(options: Options) -> None:
    from artifact.recommend import model

    folder = _folder(options)
    a = matrices.read(options.matrix)
    answer = model.advise(a, options.n, folder, options.precision.upper(), options.matrix.stem)
    print("\n".join(model.lines(answer, folder.name)))
    info = None if options.no_measure else device.find()
    if info is not None:
        device.require_memory(info, a.m, options.n, a.k)
        df = model.measure(answer, a, info.open())
        print(f"\nMeasured on {info.gpu}:\n{df.to_string(index=False)}")
        print(model.judged(df, answer.guess.variant))


# ---------------------------------------------------------------- what `make` and a node need


def _profile(options: Options) -> None:
    from artifact.profiling import ncu

    listed = registry.profiles()
    chosen, info = _among(options.room or None, listed, "There is no profile of {}"), device.require()
    for system, plan in listed.items() if chosen is None else [(chosen, listed[chosen])]:
        shapes = [shape | {"density": d} for d in plan["densities"] for shape in plan["shapes"]]
        print(f"{system}: {len(shapes)} shapes × {len(plan['contenders'])} contenders", flush=True)
        wanted = load.counters_wanted(claim for claim in load.claims() if claim.room == system)
        where = paths.RECORDS.joinpath(info.slug, *system.split("."))  # a part of a system lies in its folder
        metrics = dict.fromkeys([*ncu.METRICS, *plan.get("metrics", ()), *wanted])
        try:
            df = ncu.profile(system, shapes, plan["contenders"], metrics, folder=where, gpu=info.gpu)
        except RuntimeError as error:  # what ncu said, in one sentence
            raise ValueError(str(error)) from error
        found = df.dropna(subset="value")
        print(f"{system}: {len(found)} values of {found['metric'].nunique()} counters")
        if absent := [metric for metric in metrics if metric not in set(found["metric"])]:
            print(f"{system}: not on this GPU: {', '.join(absent)}")
        print(f"{system}: counters and launches are in {where}, the report is beside them")


def _matrices(options: Options) -> int:
    df = matrices.listed(registry.FOLDER / options.room / registry.MATRICES if options.room else matrices.LIST)
    require(
        not options.most or "nnz" in df, "The general list does not say how many non-zeros: use --most with --room."
    )
    df = df[df["nnz"] <= options.most] if options.most else df
    where = matrices.folder()
    if where is None:
        raise FileNotFoundError(f"{matrices.VARIABLE} is not set: let it name a folder of matrices.")
    failed = matrices.download(df, where) if options.download else []
    print(matrices.left_out(df, matrices.present(df, where)) or f"All {len(df)} listed matrices are in {where}")
    return int(bool(failed))


def _records(options: Options) -> None:
    roots = [options.records] if options.records else [paths.RECORDED, paths.RECORDS]
    kinds = {paths.RECORDED: "shipped", paths.RECORDS: "fresh"}
    found = [
        f"{kinds.get(root, root)!s:<8} {gpu:<24} {system:<16} {experiment:<12} "
        f"{len(records.read(root / gpu / system / f'{experiment}.csv')):>5} rows  "
        f"{records.read_machine(root / gpu / system)['date']}"
        for root in roots
        for gpu in records.list_gpus(root)
        for system in records.systems(root / gpu)
        for experiment in records.experiments(root / gpu / system)
    ]
    require(found, f"There are no records in {' or '.join(map(str, roots))}.", FileNotFoundError)
    print("\n".join(found))


# ---------------------------------------------------------------- all commands

#: Command -> (function, what it does in a line, what `--help` says of it where that is more, arguments).
COMMANDS: dict[str, tuple[Callable[[Options], int | None], str, str, tuple[Argument, ...]]] = {
    "claims": (
        _claims,
        "verdicts on the claims, from the records",
        "Print the verdict on each claim. Exit code 0: printed; 2: bad input, as records that are not whole. "
        "With --fail-on 1 if any claim that is counted has one of these verdicts, for scripts.",
        (
            GPU,
            RECORDS,
            option("--id", metavar="X", help="one claim, with how it was judged"),
            option("--room", metavar="ROOM", help="claims of one system"),
            option("--source-gpu", metavar="NAME", help="claims of what was said of this GPU"),
            option(
                "--verdict", action="append", choices=VERDICTS, help="claims with this verdict (repeat for several)"
            ),
            option(
                "--format", choices=("text", "markdown", "csv", "json"), default="text", help="default: %(default)s"
            ),
            option(
                "--fail-on",
                action="append",
                choices=VERDICTS,
                default=[],
                help="exit code 1 if any counted claim shown has this verdict (repeat for several)",
            ),
            option("--json", dest="format", action="store_const", const="json", help="the same as --format json"),
            option(
                "--csv",
                dest="format",
                action="store_const",
                const="short",
                help="id, verdict and what was measured alone",
            ),
        ),
    ),
    "compare": (
        _compare,
        "fresh records against the shipped ones",
        "Compare fresh records with the shipped ones. Exit code 0: they agree within tolerance; "
        "1: they differ; 2: bad input. For another kind of GPU speedups are shown side by side, "
        "and the verdicts on the claims decide.",
        (
            option(
                "--fresh",
                metavar="GPU|DIR",
                default="",
                help="one side: a folder of records or a GPU (default: the only GPU in build/records)",
            ),
            option(
                "--shipped",
                metavar="GPU|DIR",
                default="",
                help="the other side (default: the same GPU among the shipped, else nvidia-h200)",
            ),
            option("--room", metavar="ROOM", help="one system"),
            option(
                "--tolerance",
                type=float,
                default=compare.SPEEDUP_TOLERANCE,
                help="of speedups, relative (default: %(default)s)",
            ),
            option(
                "--time-tolerance",
                type=float,
                default=compare.TIME_TOLERANCE,
                help="of times, relative (default: %(default)s)",
            ),
        ),
    ),
    "check": (
        _check,
        "are records, their provenance, facts and verdicts what they say they are",
        "Hold each file against its digest in machine.json, the rows against provenance.csv, and all facts and "
        "verdicts, made anew, against those that are shipped. Names the file, and in a clone the row, of what was "
        "changed. Exit code 1: something differs.",
        (RECORDS,),
    ),
    "machine": (
        _machine,
        "the machine that records were made on, or (without --gpu) this one",
        "",
        (
            GPU,
            RECORDS,
            option("--room", metavar="ROOM", help="machine of one system's records"),
        ),
    ),
    "compile": (
        _compile,
        "registers, shared memory, spills and instructions of a system's kernels; needs no GPU",
        "",
        (
            option("room", help="a folder of kernels/ with a launch.py"),
            option("--variant", metavar="V", help="one variant"),
            option("--target", metavar="SM", help="one target, e.g. sm_90a"),
            option("--csv", action="store_true", help="as CSV"),
        ),
    ),
    "run": (
        _run,
        "check and time one size on the GPU here",
        "Check variants of a system against a float64 reference, then time them, interleaved with "
        "the system's baselines, at one size. Nothing is recorded.",
        (
            option("room", help="a folder of kernels/ with a launch.py"),
            option(
                "--variant",
                action="append",
                metavar="V",
                help="variant (repeat for several; default: all that take the problem)",
            ),
            *(option(size, type=_size, required=True, help=what) for size, what in SIZES.items()),
            option(
                "--density",
                type=_fraction,
                help="nominal share of nonzeros, S/100 (default: the system's, if it has one)",
            ),
            SEED,
            FURTHER,
            option(
                "--protocol",
                choices=("cold", "published"),
                default="cold",
                help="cold: single launches after a flush of the L2, GPU time only (default); published: "
                "loops of calls, nothing flushed, host time included",
            ),
            option(
                "--warmup",
                type=_natural,
                metavar="N",
                help="cold: launches before the timer's own warm-up; published: calls before each loop",
            ),
            option(
                "--iterations",
                type=_positive,
                metavar="N",
                help="cold: timed launches; published: calls of a loop (default: by time budget)",
            ),
            NO_BASELINE,
        ),
    ),
    "trial": (
        _trial,
        "your own kernel, on a system's operands, beside its kernels and libraries",
        "Check your kernel against a float64 reference, time it beside a system's kernels and libraries, and say how "
        "it stands. The record goes to <build>/trials, the figure to <build>/figures/trials. A kernel is a .cu with a "
        "header (see --template cu) or a Python function (--template py). Without a kernel: what arguments the "
        "room's operands have. Exit code 1: the kernel is wrong.",
        (
            option("kernel", nargs="?", metavar="KERNEL.cu", help="with the header in its first comment"),
            option(
                "--contender",
                metavar="MODULE:BIND",
                help="a dotted name, or a path that ends in .py; its code is run, with all that you may do",
            ),
            option("--room", metavar="ROOM", help="whose problems it solves"),
            option("--name", default="", help="of the contender (default: the file's or the module's)"),
            option("--template", choices=("cu", "py"), help="print one to copy, and end"),
            *(
                option(size, type=_size, help=f"{what} (default: the system's first sweep)")
                for size, what in SIZES.items()
            ),
            option("--density", type=_fraction, help="nominal share of nonzeros, S/100"),
            option("--matrix", type=Path, metavar="FILE", help="a real A, .mtx or SciPy's .npz; with -n"),
            SEED,
            FURTHER,
            option("--preset", choices=("kick", "full"), default="kick", help="of the sweep (default: kick)"),
            option(
                "--against",
                action="append",
                metavar="V",
                help="variant of the system beside it (repeat for several; default: all that take the problem)",
            ),
            NO_BASELINE,
        ),
    ),
    "which": (
        _which,
        "which kernel for my matrix: its statistics, advice, the expected time and why",
        "Print the statistics of a sparse matrix, which recorded kernel multiplies it fastest by a dense one of N "
        "columns, the time to expect, and why. Needs no GPU; with one it also measures, and says whether the advice "
        "was good.",
        (
            option("matrix", type=Path, metavar="FILE", help="Matrix Market's .mtx, or SciPy's .npz"),
            option("-n", type=_size, required=True, help="columns of B"),
            option(
                "--precision",
                default="fp32",
                choices=[p.lower() for p in landscape.PRECISIONS],
                help="of the result, at least (default: %(default)s)",
            ),
            option("--no-measure", action="store_true", help="advice alone, also where there is a GPU"),
            GPU,
            RECORDS,
        ),
    ),
    "profile": (
        _profile,
        "hardware counters through Nsight Compute",
        "Profile what profiles.toml lists, and write counters.csv and profiles/<system>.ncu-rep to "
        "<build>/records/<gpu>/<room>.",
        (option("room", nargs="?", help="one system (default: all that profiles.toml lists)"),),
    ),
    "matrices": (
        _matrices,
        "real matrices: which of a list are here; --download fetches the others",
        "Say which matrices of a list are in the folder of SPARSITY_MATRICES, or fetch those that are "
        "not from the SuiteSparse Matrix Collection: a system's list may be tens of GB. Exit code 1: "
        "some could not be fetched.",
        (
            option("--room", metavar="ROOM", help="a system's own list (default: the general one)"),
            option("--most", type=_positive, metavar="NNZ", help="none with more non-zeros"),
            option("--download", action="store_true", help="fetch what is missing"),
        ),
    ),
    "records": (
        _records,
        "list the records there are",
        "",
        (option("--records", type=Path, metavar="DIR", help="folder of records (default: shipped and fresh)"),),
    ),
}
