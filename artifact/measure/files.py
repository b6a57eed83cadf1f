"""Files of records: written whole or not at all, each with its digest, and each row with who measured it.

A folder with a machine.json answers for what lies in it and below it, down to folders with a machine.json of their own:

    machine.json      "sha256": name of each CSV and JSON file -> its digest
    provenance.csv    file, first, last, commit, driver, date: of these rows of a CSV file, both ends included

Rows are counted as a spreadsheet counts them, the header is row 1. What nobody wrote down is NOT_RECORDED. Facts follow
from records, and have neither a digest nor provenance.
"""

import csv
import io
import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from hashlib import sha256
from operator import itemgetter
from pathlib import Path
from typing import Any

from artifact import paths
from artifact.measure import device
from kernels import jit

MACHINE, PROVENANCE, FACTS, DIGESTS = "machine.json", "provenance.csv", "facts.csv", "sha256"
#: Files that have digests, but for UNTOLD.
SUFFIXES, UNTOLD = (".csv", ".json"), (MACHINE, PROVENANCE, FACTS)
COLUMNS = ("file", "first", "last", "commit", "driver", "date")
NOT_RECORDED = "not recorded"
Origin = tuple[str, ...]  #: of a row: commit, driver, day in UTC
UNKNOWN: Origin = (NOT_RECORDED,) * 3


def write_text(path: Path, text: str) -> Path:
    """Write `text` to `path` whole or not at all: to a temporary file in the same folder, then renamed.

    The folder that answers for the file then tells of it. A row that was there keeps its origin; one that is new is of
    the machine's commit and driver, and of the day that its `when` says, or else of today.
    """
    before = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
    path.parent.mkdir(parents=True, exist_ok=True)
    with jit.aside(path) as file:
        file.write(text.encode())
    folder = answering(path)
    if folder and path.name not in UNTOLD and path.suffix in SUFFIXES:
        name, known, machine = path.relative_to(folder).as_posix(), provenance(folder), read_json(folder / MACHINE, {})
        if path.suffix == ".csv":
            known[name] = list(
                origins(before, text, known.get(name, []), *(machine.get(x, NOT_RECORDED) for x in COLUMNS[3:5]))
            )
        seal(folder, known, [name])
    return path


def write_json(path: Path, content: Any) -> Path:
    """Write `content` to `path` as JSON, as `write_text` does."""
    return write_text(path, json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n")


def read_json(path: Path, otherwise: Any) -> Any:
    """Return what a JSON file holds, or `otherwise` where there is none. Raises ValueError where it was cut."""
    try:
        return json.loads(path.read_text(encoding="utf-8", errors="replace")) if path.is_file() else otherwise
    except json.JSONDecodeError as error:
        raise ValueError(f"{path}: line {error.lineno}: this is not complete JSON ({error.msg}).") from None


# ---------------------------------------------------------------- with digest and provenance


def answering(path: Path) -> Path | None:
    """Return the folder that answers for a file; None where it has no machine.json, nor have the two above it."""
    return next((folder for folder in path.parents[:3] if (folder / MACHINE).is_file()), None)


def kept(folder: Path) -> dict[str, Path]:
    """Return name -> path of all files that a folder answers for."""
    return {
        path.relative_to(folder).as_posix(): path
        for path in sorted(folder.rglob("*"))
        if path.suffix in SUFFIXES and path.name not in (MACHINE, FACTS) and answering(path) == folder
    }


def provenance(folder: Path) -> dict[str, list[Origin]]:
    """Return file -> the origin of each of its rows, as a folder's provenance.csv has them."""
    known: dict[str, list[Origin]] = {}
    path = folder / PROVENANCE
    for row in rows(path.read_text(encoding="utf-8", errors="replace")) if path.is_file() else ():
        with suppress(ValueError):  # a line that was damaged tells of no row
            file, first, last, *origin = row.values()
            known.setdefault(file, []).extend([tuple(origin)] * (int(last) + 1 - int(first)))
    return known


def lines(known: Mapping[str, Sequence[Origin]]) -> str:
    """Return the text of the provenance.csv that `provenance` reads."""
    runs = (
        (file, origin, [row for row, _ in run])
        for file, origins in sorted(known.items())
        for origin, run in itertools.groupby(enumerate(origins, 2), key=itemgetter(1))
    )
    told = [COLUMNS, *((file, rows[0], rows[-1], *origin) for file, origin, rows in runs)]
    return "".join(f"{','.join(map(str, line))}\n" for line in told)


def seal(folder: Path, known: Mapping[str, Sequence[Origin]], names: Sequence[str] = ()) -> None:
    """Write a folder's provenance.csv, and its digest and those of other files; forget what is no longer there."""
    if known:
        write_text(folder / PROVENANCE, lines({name: of for name, of in known.items() if (folder / name).is_file()}))
    machine = read_json(folder / MACHINE, {})
    there = sorted(name for name in {*machine.get(DIGESTS, ()), PROVENANCE, *names} if (folder / name).is_file())
    new = {name: sha256((folder / name).read_bytes()).hexdigest() for name in (PROVENANCE, *names) if name in there}
    told = {name: new.get(name) or machine[DIGESTS][name] for name in there}
    write_json(folder / MACHINE, machine | {DIGESTS: told})


def origins(before: str, text: str, known: Sequence[Origin], *new: str) -> Iterator[Origin]:
    """Yield the origin of each row of a CSV file. before: its text with rows of the origins `known`.

    new: commit and driver of rows that were not there.
    """
    there, here = rows(before), rows(text)
    same = {*(there or [{}])[0]}
    keys = ([tuple(row[c] for c in row if c in same) for row in table] for table in (there, here))
    of = dict(zip(next(keys), itertools.chain(known, itertools.repeat(UNKNOWN)), strict=False))
    for row, key in zip(here, next(keys), strict=True):
        yield of.get(key) or (*new, (row.get("when") or datetime.now(UTC).isoformat())[:10])


def rows(text: str) -> list[dict[str, str]]:
    """Return the rows of a CSV file, column -> cell; none of what is no CSV."""
    with suppress(csv.Error):
        return list(csv.DictReader(io.StringIO(text)))
    return []


# ---------------------------------------------------------------- what is not as it was written


def problems(folder: Path, shipped: Path) -> Iterator[str]:
    """Yield a sentence for each file whose digest is another, and where rows and provenance.csv do not agree.

    shipped: the folder in git that this one is, or is a copy of; its versions tell which cell was changed.
    """
    here, said, known = kept(folder), read_json(folder / MACHINE, {}).get(DIGESTS, {}), provenance(folder)
    for name in sorted({*here, *said, *known}):
        content = here[name].read_bytes() if name in here else b""
        if sha256(content).hexdigest() != said.get(name):
            where = changed(content, said.get(name, ""), shipped / name) or "the file"
            yield f"{folder / name}: {where} is not as it was written, for {MACHINE} has another digest."
        count = len(rows(content.decode(errors="replace"))) if name.endswith(".csv") and name != PROVENANCE else 0
        if count != len(known.get(name, ())):
            yield f"{folder / name}: there are {count} rows, but {len(known.get(name, ()))} in {PROVENANCE}."
    if known and lines(known) != (folder / PROVENANCE).read_text(encoding="utf-8", errors="replace"):
        yield f"{folder / PROVENANCE}: its lines do not have each row once, in order."


def changed(content: bytes, known: str, path: Path) -> str:
    """Return in which row a file first is not as it was with the digest `known`, and how; "" where git has no such."""
    with suppress(OSError, RuntimeError, ValueError, StopIteration, csv.Error):
        name = path.resolve().relative_to(paths.ROOT).as_posix()
        commits = device.git("log", "--format=%h", "--", name).split()
        versions = (device.git("show", f"{commit}:{name}") + end for commit in commits for end in ("\n", ""))
        then = next(text for text in versions if sha256(text.encode()).hexdigest() == known)
        both = itertools.zip_longest(then.splitlines(), content.decode(errors="replace").splitlines(), fillvalue="")
        row, pair = next((row, pair) for row, pair in enumerate(both, 1) if len({*pair}) > 1)
        cells = itertools.zip_longest(*csv.reader(pair), fillvalue="")
        was, now = next(cell for cell in cells if len({*cell}) > 1)
        return f"row {row}, {now!r} in place of {was!r},"
    return ""
