"""The frame of an .ncu-rep file: whether it is whole, and what in it no reader of counters needs.

    NVR\\0 │ size, FileHeader │ block │ block │ …
    block    size, BlockHeader │ payload, of as many bytes as the header says
    payload  size, entry │ size, entry │ …          sources of kernels first, then their results

A size is four bytes, little-endian; headers and entries are Protocol Buffers messages (Nsight
Compute's Customization Guide, "Report File Format", and the .proto files that it ships; the numbers
of their fields are below). `ncu_report` takes the frame on trust: of a file that ends early it
returns fewer kernels, or some without name and metrics, and a wrong size aborts the interpreter.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

MAGIC = b"NVR\0"
# BlockHeader
SOURCES, RESULTS, SESSION, PAYLOAD, PROCESS = 1, 2, 3, 5, 6
COUNTS = (SOURCES, RESULTS, 7, 8, 9, 10)  # and of ranges, command lists, graphs and their data
#: Of the session (ReportSessionDetails) and the process (ProcessInfo): the machines' names and
#: addresses, comments, the executable with folder and environment, the command line.
SESSION_PRIVATE = (3, 4, 7, 9, 11)
PROCESS_PRIVATE = (2, 3)
#: Of a kernel's source (SourceData): PTX, cubin, files and relocations.
CODE = (2, 3, 4, 8, 9)
#: Of a result (ProfileResult): sections, comments, rules and call stacks; and where its source is.
EXPLANATIONS = (17, 18, 19, 28, 32)
SOURCE = 15


def check(path: Path) -> None:
    """Raise one sentence unless the file is a whole report, as far as its frame tells.

    FileNotFoundError where there is none, ValueError for a folder and for a file that is empty,
    foreign, truncated or damaged. One cut between two blocks is a shorter report.
    """
    for _ in blocks(path):
        pass


def trim(path: Path, to: Path) -> Path:
    """Copy a report without code, sections, rules, call stacks, and who ran it where; returns `to`.

    All that Nsight Compute's own format requires stays. Errors as `check`.
    """
    with open(to, "wb") as file:
        file.write(head(path))
        for header, entries in blocks(path):
            sources, results = (_numbers(header).get(count, 0) for count in (SOURCES, RESULTS))
            entries = [
                _without(entry, CODE)
                if i < sources
                else _without(entry, EXPLANATIONS, {SOURCE: CODE})
                if i < sources + results
                else entry
                for i, entry in enumerate(entries)
            ]
            payload = b"".join(map(_sized, entries))
            header = _without(
                header, [PAYLOAD], {SESSION: SESSION_PRIVATE, PROCESS: PROCESS_PRIVATE}
            )
            header += _varint(PAYLOAD << 3) + _varint(len(payload))
            file.write(_sized(header) + payload)
    return to


def head(path: Path) -> bytes:
    """Magic number and file header, before the first block. Errors as `check`."""
    if not path.exists():
        raise FileNotFoundError(f"{path}: there is no such report; `make profile` makes them.")
    if not path.is_file():
        raise ValueError(f"{path}: this is a folder; name an .ncu-rep file in it.")
    with open(path, "rb") as file:
        start = file.read(8)
        if not start:
            raise ValueError(f"{path}: the report is empty; copy or profile it again.")
        if not start.startswith(MAGIC):
            raise ValueError(
                f"{path}: this is no report of Nsight Compute; name an .ncu-rep file that ncu wrote."
            )
        size = int.from_bytes(start[4:], "little")
        if len(start) < 8 or 8 + size > path.stat().st_size:
            raise _truncated(path)
        return start + file.read(size)


def blocks(path: Path) -> Iterator[tuple[bytes, list[bytes]]]:
    """Header and payload entries of each block. Errors as `check`."""
    data, at = path.read_bytes() if path.is_file() else b"", len(head(path))
    while at < len(data):
        header, at = _piece(data, at, len(data), path)
        try:
            numbers = _numbers(header)
        except (IndexError, ValueError):
            raise _damaged(path, at) from None
        end = at + numbers.get(PAYLOAD, 0)
        if end > len(data):
            raise _truncated(path)
        entries = []
        while at < end:
            entry, at = _piece(data, at, end, path)
            entries.append(entry)
        if len(entries) < sum(numbers.get(count, 0) for count in COUNTS):
            raise _damaged(path, at)
        yield header, entries


def _piece(data: bytes, at: int, end: int, path: Path) -> tuple[bytes, int]:
    """What follows the size at `at`, and where it ends."""
    begin = at + 4
    stop = begin + int.from_bytes(data[at:begin], "little")
    if max(begin, stop) > end:
        raise _truncated(path) if end == len(data) else _damaged(path, at)
    return data[begin:stop], stop


def _truncated(path: Path) -> ValueError:
    return ValueError(
        f"{path}: the report ends early, so it is truncated; copy or profile it again."
    )


def _damaged(path: Path, at: int) -> ValueError:
    return ValueError(
        f"{path}: the report does not fit together at byte {at}, so it is damaged; copy or profile "
        "it again."
    )


# ---------------------------------------------------------------- Protocol Buffers messages


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes, bytes]]:
    """Number, value (of a varint or of bytes) and encoding of each field."""
    at = 0
    while at < len(message):
        begin = at
        tag, at = _read_varint(message, at)
        kind, value = tag & 7, b""
        if kind == 0:
            value, at = _read_varint(message, at)
        elif kind in (1, 5):
            at += 8 if kind == 1 else 4
        elif kind == 2:
            size, at = _read_varint(message, at)
            value = message[at : at + size]
            at += size
        else:
            raise ValueError(f"{kind} is no wire type")
        if at > len(message):
            raise ValueError("the last field is too long")
        yield tag >> 3, value, message[begin:at]


def _numbers(message: bytes) -> dict[int, int]:
    return {number: value for number, value, _ in _fields(message) if isinstance(value, int)}


def _without(
    message: bytes, drop: Collection[int], inside: Mapping[int, Collection[int]] | None = None
) -> bytes:
    """The message without the fields `drop`, and its field f without the fields `inside[f]`."""
    kept = []
    for number, value, encoded in _fields(message):
        if inside and number in inside:
            value = _without(value, inside[number])
            encoded = _varint(number << 3 | 2) + _varint(len(value)) + value
        if number not in drop:
            kept.append(encoded)
    return b"".join(kept)


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at, value, shift = at + 1, value | (byte & 127) << shift, shift + 7
        if byte < 128:
            return value, at


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def _sized(piece: bytes) -> bytes:
    return len(piece).to_bytes(4, "little") + piece
