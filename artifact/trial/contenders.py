"""Contenders from a user's folder: a `.cu` with a header, or a Python function that binds as a room's does."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import inspect
import os
import re
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

from artifact.measure.check import WrongResult
from artifact.trial import header
from kernels import jit
from kernels.contract import Bound, Launch, Problem


@dataclass(frozen=True)
class Contender:
    """Somebody's kernel: what it is called in records and figures, where it comes from, and how it is bound."""

    name: str
    source: Path
    digest: str  #: of the source
    bind: Callable[[Problem, Any], Bound]  #: (problem, `cuda.core.Device`), as `kernels.contract` has it
    header: header.Header | None = None  #: of a `.cu`


def load(what: str, name: str = "") -> Contender:
    """The contender that `what` names: a path that ends in .cu, or module:function, where the module is a dotted name
    or a path that ends in .py.

    name: what it is called; by default the file's or the module's own name. Raises FileNotFoundError or ValueError, one
    sentence.
    """
    if what.endswith(".cu"):
        head = header.read(Path(what))
        return _contender(name or head.source.stem, head.source, partial(bind_cuda, head), head)
    place, _, attribute = what.rpartition(":")
    if not place or not attribute.isidentifier():
        raise ValueError(f"{what!r} is no contender: name a file that ends in .cu, or module:function.")
    module = _module(place)
    bind = getattr(module, attribute, None)
    if not callable(bind) or not getattr(module, "__file__", None):
        raise ValueError(f"{place} has no function {attribute!r} in a file of its own.")
    try:
        inspect.signature(bind).bind(None, None)
    except (TypeError, ValueError):
        raise ValueError(f"{place}:{attribute} is not called with (problem, device), as a contender is.") from None
    return _contender(name or module.__name__.rpartition(".")[2], Path(str(module.__file__)), partial(_bind, bind))


def _contender(name: str, source: Path, bind: Callable[..., Bound], head: header.Header | None = None) -> Contender:
    """digest: of the source, and of headers of ours or beside it that a `.cu` includes."""
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name):
        raise ValueError(
            f"A contender cannot be called {name!r}: give --name, lower-case letters, digits and underscores."
        )
    text = jit.with_includes(source).encode() if head else source.read_bytes()
    return Contender(name, source, hashlib.sha256(text).hexdigest()[:12], partial(bind, name), head)


def bind_cuda(head: header.Header, name: str, problem: Problem, device: Any) -> Launch:
    """Compile a `.cu` for `device` and make its launch from the header. Raises ValueError, one sentence, for what
    does not fit the problem or the GPU, or does not compile."""
    from cuda.core import LaunchConfig

    arch = jit.arch_of(device)
    if arch not in head.targets and head.targets != jit.TARGETS:
        raise ValueError(f"{name} is made for {', '.join(head.targets)}, but this GPU takes {arch}.")
    known = header.names(problem, problem.device())
    header.check_arguments(head, known)
    grid, block, shared = header.dimensions(head, known)
    kernel = jit.load(_compile(head, arch), shared)
    arguments = tuple(
        known[text].data.ptr if hasattr(known.get(text), "data") else header.number(head, text, kind, known)
        for text, kind in head.arguments
    )
    config = LaunchConfig(grid=grid, block=block, shmem_size=shared)
    output = problem.device().c
    keep = tuple(x for x in known.values() if hasattr(x, "data"))
    return Launch(name, [(kernel, config, arguments)], output, keep=keep, accumulates=head.clear)


def compiled(contender: Contender) -> list[dict[str, Any]]:
    """What the compiler makes of a `.cu`, a row for each target; nothing of a Python contender, which compiles itself.

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
        known = header.names(problem, problem.host())
        header.check_arguments(contender.header, known)
        header.dimensions(contender.header, known)


def headers() -> list[Path]:
    """Where the CUDA toolkit's headers are, such as cuda_bf16.h: $CUDA_HOME, $CUDA_PATH, the toolkit's usual place, and
    the wheels of its runtime; what there is of them."""
    roots = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda"]
    nvidia: Any = importlib.util.find_spec("nvidia")
    wheels = [
        sorted(Path(folder).glob("*/include")) for folder in (nvidia.submodule_search_locations if nvidia else ())
    ]
    found = [Path(root) / "include" for root in roots if root]
    return [path for path in dict.fromkeys(sum(wheels, found)) if path.is_dir()]


def _compile(head: header.Header, target: str) -> jit.Cubin:
    try:
        return jit.compile_cubin(head.source, head.entry, target, include=headers())
    except jit.CompileError as error:
        said = [line.strip() for line in str(error).splitlines() if "error" in line]
        first = next((line for line in said[1:] if ": error" in line), said[0] if said else "")
        raise ValueError(f"{head.source.name}: {head.entry} does not compile for {target}: {first}.") from error


def _bind(bind: Callable, name: str, problem: Problem, device: Any) -> Bound:
    """As the user's function binds, under the contender's name and with what a record asks for.

    What it raises, an exit of the program too, is a ValueError of one sentence; with $DEBUG it comes as it is, and so
    does what says itself that it is no fault of the code, such as a problem that is not taken.
    """
    try:
        bound = bind(problem, device)
    except (ValueError, FileNotFoundError, WrongResult):
        raise
    except (Exception, SystemExit) as error:
        if os.environ.get("DEBUG") and not isinstance(error, SystemExit):
            raise
        said = " ".join(str(error).split())
        raise ValueError(f"{name} fails with {type(error).__name__}: {said} (DEBUG=1 shows where).") from error
    for attribute in ("launch", "result"):
        if not callable(getattr(bound, attribute, None)):
            raise ValueError(f"{name} binds a {type(bound).__name__} without {attribute}(): see kernels/contract.py.")
    usual = {"prepare_ms": 0.0, "prepare_bytes": 0}
    for attribute, value in {key: getattr(bound, key, value) for key, value in usual.items()}.items():
        setattr(bound, attribute, value)
    bound.name = name
    return bound


def _module(place: str) -> ModuleType:
    """A user's module by its path or its dotted name. Whatever it raises while it is loaded is one sentence: what, and
    in which line of which file."""
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
        missing = f"{place} needs {error.name}, which is not installed."
        if f"{place}.".startswith(f"{error.name}."):
            missing = f"There is no module {place!r} here or in Python's path."
        raise ValueError(missing) from error
    except SyntaxError as error:
        where = f"{Path(error.filename or place).name}, line {error.lineno}"
        raise ValueError(f"{place} is no Python ({where}: {error.msg}).") from error
    except (Exception, SystemExit) as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        said = (str(error).splitlines() or [""])[0].rstrip(".")
        raise ValueError(
            f"{place} raises {type(error).__name__} while it is loaded ({Path(last.filename).name}, line "
            f"{last.lineno}: {said})."
        ) from error
