"""The rooms on trial, found by looking: every folder here that holds a room.toml is one.

A room's folder holds what only its trial needs: room.toml (what the system is), claims.toml,
profiles.toml, published/ (the source's numbers), and modules that its chapter imports. The harness reads them
through this module and names no room.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent
ROOM, CLAIMS, PROFILES, PUBLISHED, BASELINES = (
    "room.toml", "claims.toml", "profiles.toml", "published", "baselines",
)  # fmt: skip


@dataclass(frozen=True)
class Room:
    """One system on trial, as its own text describes it; the content of its room.toml."""

    room: str  #: the folder's name, and that of the package of its kernels
    name: str
    title: str  #: of the source
    cite: str  #: its key in the bibliography
    order: int  #: of the rooms, in the book and in the ledger
    format: str  #: how the sparse operand is stored
    precision: str
    unit: str  #: what does the arithmetic
    patterns: list[str]  #: of the non-zeros, columns of the map of the systems
    written_for: str  #: GPUs that the source measured on
    idea: str
    claims: str  #: what the abstract puts on trial


def find(folder: Path = FOLDER) -> dict[str, Room]:
    """Every room below `folder` by its name, in their order. Raises ValueError that names file and key
    where a room.toml is not whole."""
    rooms = [_read(path) for path in folder.glob(f"*/{ROOM}")]
    return {room.room: room for room in sorted(rooms, key=lambda room: (room.order, room.room))}


def toml(path: Path) -> dict[str, Any]:
    """The content of a TOML file. Raises FileNotFoundError or ValueError, one sentence that names it."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise FileNotFoundError(f"{path}: this file of a room is missing.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: this is not valid TOML ({error}).") from None


def published(room: str, figure: str, folder: Path = FOLDER) -> Path:
    """Where the source's numbers for one of its figures or tables lie."""
    return folder / room / PUBLISHED / f"{figure}.csv"


def profiles(folder: Path = FOLDER) -> dict[str, dict[str, Any]]:
    """Room -> what `make profile` puts under Nsight Compute: contenders, densities and shapes, and
    `metrics` that it needs besides the usual ones; of the rooms that say it."""
    paths = {room: folder / room / PROFILES for room in find(folder)}
    return {room: toml(path) for room, path in paths.items() if path.is_file()}


def baselines(room: str, folder: Path = FOLDER) -> tuple[str, ...]:
    """Names of the modules in the room's baselines/, what it alone is compared with."""
    return tuple(sorted(p.stem for p in (folder / room / BASELINES).glob("[!_]*.py")))


def _read(path: Path) -> Room:
    table = toml(path)
    known = [field.name for field in fields(Room)][1:]
    for key in (*known, *table):
        if key not in table:
            raise ValueError(f"{path}: the key {key!r} is missing.")
        if key not in known:
            raise ValueError(f"{path}: the key {key!r} is none of a room's ({', '.join(known)}).")
    return Room(path.parent.name, **table)
