"""The files that keep choices: one for each system and GPU, read by people, too.

A system ships the choices that were made on the GPUs that it was measured on, in choices/<gpu>.csv; what a
user's own GPU chooses goes to the folder <system> of $SPARSITY_CHOICES, else of `choices` beside the folder of
cubins (`jit.cache_folder`), and comes first.

A choice says that of these kernels, compiled by this compiler, the one is the fastest. So a row names the
compiler and the kernels, and with others the choice is made again; but a library takes one by another minor version
of the compiler, whose configuration is still the best guess (`near`). The kernels are named by a digest of
the sources that all candidates come from, not of the chosen one's alone, since another may have become
faster; of the sources, not of machine code, since that takes minutes to compile, for every look-up; and
of what the compiler reads in them: comments and line breaks do not count. Where names change and machine
code does not, `python -m kernels.autotune --stamp ROOM` says so in the system's files.
"""

import contextlib
import csv
import functools
import hashlib
import io
import os
import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from typing import Generic, TypeVar

from .. import jit
from ..contract import require

_COMMENT = re.compile(r'("(?:\\.|[^"\\\n])*")|//[^\n]*|/\*.*?\*/', re.DOTALL)
#: Columns after those that tell problems apart.
_COLUMNS = ("nvrtc", "kernels", "median_us", "family", "knobs")

#: What of these is not checked otherwise.
_FORMS = {"nvrtc": r"(\d+\.\d+)?", "kernels": r"([0-9a-f]{12})?"}

Config = TypeVar("Config", bound=Hashable)  #: a system's configurations


@dataclass(frozen=True, eq=False)
class Choices(Generic[Config]):
    """Where a system's choices are kept, and what tells them apart."""

    room: str
    shipped: Path  #: the folder of the system's own
    key: Mapping[str, type]  #: column -> int or str: a problem's key, a tuple, in this order
    families: Mapping[str, type]  #: name in the file -> dataclass of numbers, texts and flags
    #: a configuration -> the .cu files of all that it was tried against
    sources: Callable[[Config], Iterable[Path]]


@dataclass(frozen=True)
class Choice(Generic[Config]):
    """A configuration, the time that made it the choice, and of which kernels by which compiler."""

    config: Config
    median_us: float
    kernels: str = ""  #: see `digest`; "" where a file is older than this column
    nvrtc: str = field(default_factory=jit.nvrtc_version)


def look_up(
    choices: Choices[Config],
    key: tuple,
    device,
    fits: Callable[[Config], bool],
    file: Path | None = None,
    *,
    near: bool = False,
) -> Choice[Config] | None:
    """Return the choice for a problem's key on this GPU, or None where there is none that still holds.

    fits: whether the GPU takes a configuration, which may have been edited by hand or come from another GPU.
    file: where to look instead of the user's own folder and the shipped one. near: where no choice is of today's
    compiler, take one of another minor version of it, which `Choice.nvrtc` tells. A file that may not be read is done
    without, which is said once, on stderr. Raises ValueError, one sentence, for a file that is no file of choices.
    """
    paths = [file] if file else [own_file(choices, device), choices.shipped / f"{slug(device)}.csv"]
    found = [choice for path in paths if (choice := _there(choices, path).get(key)) and fits(choice.config)]
    return next((c for how in sorted({False, near}) for c in found if is_current(choices, c, near=how)), None)


def is_current(choices: Choices[Config], choice: Choice[Config], near: bool = False) -> bool:
    """Whether a choice is of today's kernels and compiler; near: or of another minor version of the compiler."""
    made, now = (x.split(".")[0] if near else x for x in (choice.nvrtc, jit.nvrtc_version()))
    return made == now and choice.kernels == digest(choices.sources(choice.config))


def digest(sources: Iterable[Path]) -> str:
    """12 hexadecimal digits of what the compiler reads in these .cu files and their headers of ours."""
    texts = sorted(_without_comments(jit.with_includes(path)) for path in set(sources))
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:12]


@functools.lru_cache(64)  # milliseconds, for every row that is looked at
def _without_comments(text: str) -> str:
    return " ".join(_COMMENT.sub(r"\1 ", text).replace("\0", " ").split())


def read(choices: Choices[Config], path: Path) -> Mapping[tuple, Choice[Config]]:
    """key -> Choice.

    Raises ValueError that names file and row where one cannot be read, OSError for a file that may not be.
    """
    of = path.stat()  # a renamed file has another number, at the same time of a coarse clock
    return _read(choices, path, of.st_mtime_ns, of.st_size, of.st_ino)


def _there(choices: Choices[Config], path: Path) -> Mapping[tuple, Choice[Config]]:
    """`read`, or nothing where there is no file, or none that may be read."""
    try:
        return read(choices, path)
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as error:
        jit._say_once(
            f"Choices of kernels in {path} cannot be read ({error.strerror or error}), so the tuner goes on "
            "without: let yourself read them, or set SPARSITY_CHOICES to another folder."
        )
        return {}


@functools.lru_cache(64)  # hundreds of rows, asked for at every bind
def _read(choices: Choices[Config], path: Path, *stamp: int) -> Mapping[tuple, Choice[Config]]:
    found = {}
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
    except (UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"{path} is no file of the tuner's choices ({error}): delete it") from error
    for number, row in enumerate(rows, 2):
        try:
            key = tuple(kind(row[name]) for name, kind in choices.key.items())
            config = parse_knobs(row["knobs"], choices.families[row["family"]])
            # A file from before these columns was made with what nobody knows any more.
            made = {name: row.get(name, "") for name in _FORMS}
            for name, value in made.items():
                require(re.fullmatch(_FORMS[name], value), f"{name} is {value}")
            found[key] = Choice(config, float(row["median_us"]), **made)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ValueError(
                f"{path.name}, row {number} is no choice of the tuner ({error}): delete the row"
            ) from error
    return found


def write(choices: Choices[Config], path: Path, key: tuple, choice: Choice[Config]) -> None:
    """Add a choice to a file, or replace the one that is there; the file is written aside and renamed.

    Of several processes that do so at once, each adds to what the one before it wrote.
    """
    with _alone(path):
        _write_all(choices, path, {**(read(choices, path) if path.is_file() else {}), key: choice})


def stamp(choices: Choices, path: Path) -> int:
    """Say of every choice of a file that it is of today's kernels; returns how many said otherwise.

    For whoever has shown that the machine code is what it was: see the module.
    """
    with _alone(path):
        found = read(choices, path)
        now = {key: replace(c, kernels=digest(choices.sources(c.config))) for key, c in found.items()}
        _write_all(choices, path, now)
    return sum(now[key] != found[key] for key in now)


@contextlib.contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Until its end no other process, nor thread, reads and writes the file's folder so.

    By a lock of the folder, which leaves no file behind. Where a file system has none, everybody goes on.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        with contextlib.suppress(ImportError, OSError):
            import fcntl

            fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)  # and the lock with it


def _write_all(choices: Choices[Config], path: Path, found: Mapping[tuple, Choice[Config]]) -> None:
    names = {kind: name for name, kind in choices.families.items()}
    rows = (
        (*key, c.nvrtc, c.kernels, f"{c.median_us:.2f}", names[type(c.config)], knobs(c.config))
        for key, c in sorted(found.items(), key=lambda item: item[0])
    )
    with jit.aside(path) as file, io.TextIOWrapper(file, encoding="utf-8", newline="") as text:
        csv.writer(text, lineterminator="\n").writerows([(*choices.key, *_COLUMNS), *rows])
    _read.cache_clear()  # a number may come again, and the coarse time be the same


#: Of a field that is named where it is not as usual only: one that older files and records do not have.
UNSAID = {"unsaid": True}


@functools.lru_cache(1024)
def knobs(config) -> str:
    """Return a configuration as a person reads it: "bm=128 bn=256 ahead=True"; what is no dataclass, as text."""
    if not is_dataclass(config):
        return str(config)
    values = ((f, getattr(config, f.name)) for f in fields(config))
    return " ".join(f"{f.name}={value}" for f, value in values if not (f.metadata.get("unsaid") and value == f.default))


@functools.lru_cache(1024)
def parse_knobs(text: str, make: type):
    """Return a configuration, a dataclass of numbers, texts and flags, from "bm=128 bn=256 ahead=True"."""
    values = {}
    for part in text.split():
        name, value = part.split("=")
        kind = type(getattr(make(), name))
        require(kind is not bool or value in ("True", "False"), f"{name} is {value}, but must be True or False")
        values[name] = value == "True" if kind is bool else kind(value)
    return make(**values)


def own_file(choices: Choices, device) -> Path:
    """Where the choices of this user's GPUs are kept: $SPARSITY_CHOICES, unless that is empty, or beside the cubins."""
    folder = os.environ.get("SPARSITY_CHOICES") or jit.cache_folder().parent / "choices"
    return Path(folder, choices.room, f"{slug(device)}.csv")


def slug(device) -> str:
    """Return the GPU's name as the records' folders have it."""
    return re.sub(r"[^a-z0-9]+", "-", device.name.lower()).strip("-")
