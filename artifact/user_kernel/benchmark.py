"""A contender beside the kernels of a system and its libraries: checked, timed, recorded, drawn, judged.

It comes from a user's folder: a `.cu` with a header, or a Python function that binds as a system's does. It gets the
operands, the check, the timer and the columns that everybody gets. What a system's own chapter shows stays
as it is: a trial has records and a figure of its own, with the system's kernels and libraries measured in the same run.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import inspect
import os
import re
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd

from artifact import paths, registry
from artifact.measure import records, run, verification
from artifact.user_kernel import header
from kernels import jit
from kernels.contract import Launch, PreparedKernel, Problem, require

EXPERIMENT = "trial"
FASTER, LEVEL, SLOWER = "faster", "level", "slower"


@dataclass(frozen=True)
class Contender:
    """Somebody's kernel: what it is called in records and figures, where it comes from, and how it is bound."""

    name: str
    source: Path
    digest: str  #: of the source
    prepare: Callable[[Problem, Any], PreparedKernel]  #: (problem, `cuda.core.Device`), as `kernels.contract` has it
    header: header.Header | None = None  #: of a `.cu`


def load(what: str, name: str = "") -> Contender:
    """Return the contender that `what` names.

    A path that ends in .cu, or module:function, where the module is a dotted name or a path that ends in .py.

    name: what it is called; by default the file's or the module's own name. Raises FileNotFoundError or ValueError, one
    sentence.
    """
    head = header.read(Path(what)) if what.endswith(".cu") else None
    prepare: Any = None
    if head:
        name, source, prepare = name or head.source.stem, head.source, partial(prepare_cuda, head)
    else:
        place, _, attribute = what.rpartition(":")
        require(
            bool(place) and attribute.isidentifier(),
            f"{what!r} is no contender: name a file that ends in .cu, or module:function.",
        )
        module = _module(place)
        theirs: Any = getattr(module, attribute, None)
        require(
            callable(theirs) and bool(getattr(module, "__file__", None)),
            f"{place} has no function {attribute!r} in a file of its own.",
        )
        try:
            inspect.signature(theirs).bind(None, None)
        except (TypeError, ValueError):
            raise ValueError(f"{place}:{attribute} is not called with (problem, device), as a contender is.") from None
        name, source = name or module.__name__.rpartition(".")[2], Path(str(module.__file__))
        prepare = partial(_prepare, theirs)
    require(
        bool(re.fullmatch(r"[a-z][a-z0-9_]*", name)),
        f"A contender cannot be called {name!r}: give --name, lower-case letters, digits and underscores.",
    )
    # Of the source, and of headers of ours or beside it that a `.cu` includes.
    text = jit.with_includes(source).encode() if head else source.read_bytes()
    return Contender(name, source, hashlib.sha256(text).hexdigest()[:12], partial(prepare, name), head)


def prepare_cuda(head: header.Header, name: str, problem: Problem, device: Any) -> Launch:
    """Compile a `.cu` for `device` and make its launch from the header.

    Raises ValueError, one sentence, for what does not fit the problem or the GPU, or does not compile.
    """
    from cuda.core import LaunchConfig

    arch = jit.arch_of(device)
    require(
        arch in head.targets or head.targets == jit.TARGETS,
        f"{name} is made for {', '.join(head.targets)}, but this GPU takes {arch}.",
    )
    known = header.names(problem, problem.device())
    grid, block, shared = header.dimensions(head, known)
    kernel = jit.load(_compile(head, arch), shared)
    arrays = {text: held for text, held in known.items() if hasattr(held, "data")}
    arguments = tuple(
        arrays[text].data.ptr if text in arrays else header.number(head, text, kind, known)
        for text, kind in head.arguments
    )
    launches = [(kernel, LaunchConfig(grid=grid, block=block, shmem_size=shared), arguments)]
    return Launch(name, launches, problem.device().c, keep=tuple(arrays.values()), accumulates=head.clear)


def compiled(contender: Contender) -> list[dict[str, Any]]:
    """Return what the compiler makes of a `.cu`, a row for each target.

    Nothing of a Python contender, which compiles itself.

    Raises ValueError, one sentence with the compiler's first error, for what does not compile.
    """
    head = contender.header
    cubins = [_compile(head, target) for target in head.targets] if head else []
    return [
        {"target": cubin.arch, "registers": used.registers, "shared_bytes": used.shared_bytes, "spills": used.spills}
        for cubin, (used, _) in zip(cubins, jit.reports(cubins) if cubins else (), strict=True)
    ]


def check_header(contender: Contender, problem: Problem) -> None:
    """Raise ValueError, one sentence, where a header does not fit the problem; needs no GPU."""
    if contender.header is not None:
        header.dimensions(contender.header, header.names(problem, problem.host()))


def headers() -> list[Path]:
    """Where the CUDA toolkit's headers are, such as cuda_bf16.h.

    $CUDA_HOME, $CUDA_PATH, the toolkit's usual place, and the wheels of its runtime; what there is of them.
    """
    places = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda"]
    nvidia: Any = importlib.util.find_spec("nvidia")
    wheels = nvidia.submodule_search_locations if nvidia else ()
    of_wheels = (path for folder in wheels for path in sorted(Path(folder).glob("*/include")))
    found = (*(Path(place, "include") for place in places if place), *of_wheels)
    return [path for path in dict.fromkeys(found) if path.is_dir()]


def _compile(head: header.Header, target: str) -> jit.Cubin:
    try:
        return jit.compile_cubin(head.source, head.entry, target, include=headers())
    except jit.CompileError as error:
        said = [line.strip() for line in str(error).splitlines() if "error" in line]
        first = next((line for line in said[1:] if ": error" in line), said[0] if said else "")
        raise ValueError(f"{head.source.name}: {head.entry} does not compile for {target}: {first}.") from error


def _prepare(prepare: Callable, name: str, problem: Problem, device: Any) -> PreparedKernel:
    """As the user's function binds, under the contender's name and with what a record asks for.

    What it raises, an exit of the program too, is a ValueError of one sentence; with $DEBUG it comes as it is, and so
    does what says itself that it is no fault of the code, such as a problem that is not taken.
    """
    try:
        bound = prepare(problem, device)
    except (ValueError, FileNotFoundError, verification.WrongResult):
        raise
    except (Exception, SystemExit) as error:
        if os.environ.get("DEBUG") and not isinstance(error, SystemExit):
            raise
        said = " ".join(str(error).split())
        raise ValueError(f"{name} fails with {type(error).__name__}: {said} (DEBUG=1 shows where).") from error
    for attribute in ("launch", "result"):
        require(
            callable(getattr(bound, attribute, None)),
            f"{name} binds a {type(bound).__name__} without {attribute}(): see kernels/contract.py.",
        )
    for attribute, usual in (("prepare_ms", 0.0), ("prepare_bytes", 0)):
        setattr(bound, attribute, getattr(bound, attribute, usual))
    bound.name = name
    return bound


def _module(place: str) -> ModuleType:
    """Return a user's module by its path or its dotted name.

    Whatever it raises while it is loaded is one sentence: what, and in which line of which file.
    """
    path = Path(place)
    if path.suffix == ".py" and not path.is_file():
        raise FileNotFoundError(f"{place}: there is no such module.")
    try:
        if path.suffix != ".py":
            # `python -m` has the current folder in its path; a console script has not.
            sys.path.insert(0, str(Path.cwd()))
            return importlib.import_module(place)
        spec: Any = importlib.util.spec_from_file_location(path.stem, path)
        module = importlib.util.module_from_spec(spec)
        sys.modules.setdefault(path.stem, module)  # dataclasses look their module up
        spec.loader.exec_module(module)
        return module
    except ModuleNotFoundError as error:
        if f"{place}.".startswith(f"{error.name}."):
            raise ValueError(f"There is no module {place!r} here or in Python's path.") from error
        raise ValueError(f"{place} needs {error.name}, which is not installed.") from error
    except SyntaxError as error:
        raise ValueError(
            f"{place} is no Python ({Path(error.filename or place).name}, line {error.lineno}: {error.msg})."
        ) from error
    except (Exception, SystemExit) as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        said = (str(error).splitlines() or [""])[0].rstrip(".")
        raise ValueError(
            f"{place} raises {type(error).__name__} while it is loaded ({Path(last.filename).name}, line "
            f"{last.lineno}: {said})."
        ) from error


# ---------------------------------------------------------------- the trial


def folder() -> Path:
    """Where trials lie: <folder>/<contender>/<gpu>/<system>/trial.csv."""
    return paths.BUILD / "trials"


def recorded(root: Path) -> dict[tuple[str, str, str], Path]:
    """(contender, GPU's slug, system) -> folder, of the trials that are there."""
    return {(p.parts[-4], p.parts[-3], p.parts[-2]): p.parent for p in sorted(root.glob(f"*/*/*/{EXPERIMENT}.csv"))}


def start(contender: Contender, system: str, preset: str, seed: int, root: Path | None = None):
    """Return the `run.Run` of a trial, whose earlier record is set aside: its contender may have been another.

    Raises `device.NoGpu` where there is nothing to measure on.
    """
    begun = run.start(system, "measure", preset=preset, seed=seed, records=(root or folder()) / contender.name)
    path = begun.folder / f"{EXPERIMENT}.csv"
    if path.exists():
        os.replace(path, path.with_name(path.name + run.SET_ASIDE))
    for other in (records.PLAN, records.ABSENT):
        (begun.folder / other).unlink(missing_ok=True)
    records.write_machine(begun.folder, begun.machine | {"contender": f"{contender.source.name} {contender.digest}"})
    return begun


def refuse_name(contender: Contender, known: Iterable[str]) -> None:
    """Raise ValueError for a contender that is called as one that it is compared with."""
    require(
        contender.name not in known and not contender.name.startswith(registry.PREFIXES),
        f"There is a {contender.name!r} already: call the contender something else with --name.",
    )


def check_first(contender: Contender, problem: Problem, opened) -> None:
    """Raise `verification.WrongResult` for a wrong contender, ValueError as it does itself, before others are ready."""
    reference = verification.oracle(problem)
    run.check_exactly(problem, {contender.name: lambda p: contender.prepare(p, opened)}, opened)
    with run.a_stream(opened) as stream:
        verification.check(contender.prepare(problem, opened), problem, reference, stream)
    problem.release()


def measure(
    begun: run.Run,
    contender: Contender,
    problems: Iterable[Problem],
    others: Mapping[str, run.Contender],
    say: Callable[[str], None] = lambda line: print(line, file=sys.stderr, flush=True),
) -> pd.DataFrame:
    """Return the record of a trial, a row for each problem and everyone who takes it.

    Who does not take a problem that the contender takes, and a library that is wrong there, is left out of it, which is
    said and written down. Raises `verification.WrongResult` for a contender, or a kernel of ours, that is wrong, and
    ValueError for a contender that does not take a problem.
    """
    path = begun.folder / f"{EXPERIMENT}.csv"
    everybody = {contender.name: lambda p: contender.prepare(p, begun.device)} | dict(others)
    for problem in problems:

        def left_out(name: str, why: str, problem: Problem = problem) -> None:
            say(f"left out: {why}")
            run.leave_out(path, name, [problem], why)

        run.willing(everybody, partial(begun.measure, EXPERIMENT, [problem]), left_out, must=[contender.name])
    return records.read(path)


def standings(df: pd.DataFrame, name: str) -> pd.DataFrame:
    """Return a row for each point of a trial.

    POINT, median_us of the contender, the fastest other and its time, the fastest library and its time ("" and NaN
    where none was measured), speedups over both, and a verdict.

    Level is whose quartiles overlap. Raises ValueError where the record has no such contender, or nobody beside it.
    """
    at = list(records.POINT)
    mine, others = (df[own].set_index(at) for own in (df["variant"] == name, df["variant"] != name))
    require(
        not mine.empty and set(mine.index) == set(others.index),
        f"The trial needs {name!r} and somebody beside it at every point.",
    )
    best = _fastest(others).loc[mine.index]
    library = _fastest(others[others["variant"].str.startswith(registry.PREFIXES)]).reindex(mine.index)
    apart = np.where(mine["q25_us"] > best["q75_us"], SLOWER, LEVEL)
    return pd.DataFrame(
        {
            "median_us": mine["median_us"],
            "best": best["variant"],
            "best_us": best["median_us"],
            "library": library["variant"].fillna(""),
            "library_us": library["median_us"],
            "verdict": np.where(mine["q75_us"] < best["q25_us"], FASTER, apart),
            "over_best": best["median_us"] / mine["median_us"],
            "over_library": library["median_us"] / mine["median_us"],
        }
    ).reset_index()


def _fastest(df: pd.DataFrame) -> pd.DataFrame:
    return df.sort_values("median_us", kind="stable").groupby(level=list(records.POINT), dropna=False).head(1)


def verdict(table: pd.DataFrame, name: str) -> str:
    """How a contender stands, in a sentence or two; table: its `standings`."""
    counts, library = table["verdict"].value_counts(), table.dropna(subset="over_library")
    held = ", ".join(f"{word} at {counts[word]}" for word in (FASTER, LEVEL, SLOWER) if word in counts)
    points, best = f"{len(table)} point{'s' * (len(table) > 1)}", "/".join(dict.fromkeys(table["best"]))
    text = f"{name} against the best at each of {points} ({best}): {records.geomean(table['over_best']):.2f}×, {held}."
    if library.empty:
        return text
    names, over = "/".join(dict.fromkeys(library["library"])), records.geomean(library["over_library"])
    return f"{text} Over the fastest library ({names}): {over:.2f}×."
