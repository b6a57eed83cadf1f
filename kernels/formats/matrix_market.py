"""Matrix Market's files (.mtx), read by SciPy once it is sure that SciPy reads all that they say.

    %%MatrixMarket matrix coordinate real general      or array; integer, pattern; symmetric, skew-symmetric
    % any comment
    3 4 2                                              rows, columns, entries; of an array without the entries
    1 2 0.5                                            an entry: row and column from 1, and a value unless it is pattern
    3 4 1.0D+03                                        Fortran's exponents are exponents

SciPy's reader ends a number at what it does not know, so that 1.0D+03 and 1,5 become 1, and the process at an array
without rows. What may come to it is told by a few searches over the whole text, which take less time than it does.
(NIST, "The Matrix Market Exchange Formats: Initial Design", 1996.)
"""

from __future__ import annotations

import bz2
import gzip
import io
import re
from pathlib import Path

import numpy as np

from ..contract import require
from .csr import INT32_MAX

FIELDS = ("real", "double", "integer", "unsigned-integer", "pattern")
SYMMETRIES = ("general", "symmetric", "skew-symmetric")
_OPEN = {".gz": gzip.open, ".bz2": bz2.open}
_FORTRAN = bytes.maketrans(b"Dd", b"Ee")
_NO_NUMBERS = re.compile(rb"(?i)(?<!\S)[+-]?(?:inf(?:inity)?|nan)(?!\S)")


def read(path):
    """The `scipy.sparse.coo_array` in a file, which may be packed (.gz, .bz2).

    Raises ValueError, one sentence without the file's name, where it is no real matrix, or a number is none.
    """
    from scipy.io import mmread
    from scipy.sparse import coo_array

    path = Path(path)
    with _OPEN.get(path.suffix, open)(path, "rb") as file:
        head, words, sizes, lines = _head(file)
        text = file.read()
    if b"D" in text or b"d" in text:
        text = text.translate(_FORTRAN)
    layout, field, symmetry = words
    (m, k), entries = sizes[:2], _entries(layout, symmetry, sizes)
    width = 1 if layout == "array" else 2 if field == "pattern" else 3
    wrong = _wrong(text, entries, width, field, lines)
    require(not wrong, wrong)
    if entries == 0:
        return coo_array((m, k))
    try:
        return coo_array(mmread(io.BytesIO(head + text), spmatrix=False))
    except OverflowError as error:
        raise ValueError(str(error).rstrip(".")) from error


def _head(file) -> tuple[bytes, tuple[str, str, str], tuple[int, ...], int]:
    """(a file's lines up to its first entry, layout, field and symmetry, sizes, how many lines)."""
    line = file.readline()
    words, head, number = line.decode("latin-1").lower().split(), line, 2
    require(
        len(words) == 5 and words[:2] == ["%%matrixmarket", "matrix"],
        "its first line is not '%%MatrixMarket matrix LAYOUT FIELD SYMMETRY'",
    )
    known = {"layout": ("coordinate", "array"), "field": FIELDS, "symmetry": SYMMETRIES}
    for (name, those), word in zip(known.items(), words[2:], strict=True):
        require(word in those, f"its {name} is {word!r}, but {', '.join(those)} are read")
    layout, field, symmetry = words[2:]
    require(
        layout == "coordinate" or field != "pattern",
        "an array has values, but its field is 'pattern'",
    )
    line = file.readline()
    while line and (line.startswith(b"%") or not line.strip()):
        line, number = file.readline(), number + 1
    sizes, count = line.decode("latin-1").split(), 3 if layout == "coordinate" else 2
    require(
        len(sizes) == count and all(x.isascii() and x.isdigit() and len(x) < 20 for x in sizes),
        f"line {number} is no {count} whole numbers, but must say how large the matrix is",
    )
    made = tuple(int(x) for x in sizes)
    m, k = made[:2]
    require(max(m, k) <= INT32_MAX, f"it is {m} x {k}, but sizes are at most 2^31 - 1 here")
    require(symmetry == "general" or m == k, f"it is {m} x {k}, which cannot be {symmetry}")
    return head + line, (layout, field, symmetry), made, number


def _entries(layout: str, symmetry: str, sizes: tuple[int, ...]) -> int:
    """Lines of numbers: of a symmetric array those on and below the diagonal."""
    m, k = sizes[:2]
    if layout == "coordinate":
        return sizes[2]
    return {"general": m * k, "symmetric": m * (m + 1) // 2, "skew-symmetric": m * (m - 1) // 2}[symmetry]


#: Kinds of characters, by number: spaces, ends of lines, digits, signs, points, exponents, all else.
_KINDS = (b" \t\r", b"\n", b"0123456789", b"+-", b".", b"eE")
_SPACE, _END, _DIGIT, _SIGN, _POINT, _EXPONENT, _ELSE = range(7)
_KIND = bytes(next((i for i, those in enumerate(_KINDS) if x in those), _ELSE) for x in range(256))
#: What no number has side by side, and what none has once digits and signs are left out.
_APART = {
    *((x, _SIGN) for x in (_DIGIT, _POINT, _SIGN)),
    *((_SIGN, x) for x in (_SPACE, _END, _EXPONENT)),
    *((_EXPONENT, x) for x in (_SPACE, _END, _POINT, _EXPONENT)),
    *((x, _EXPONENT) for x in (_SPACE, _END, _SIGN)),
}
_APART_BARE = {(_POINT, _POINT), (_EXPONENT, _POINT), (_EXPONENT, _EXPONENT)}
_NOT_IN = {
    "real": (),
    "double": (),
    "integer": (_POINT, _EXPONENT),
}  # the others have no signs either


def _wrong(text: bytes, entries: int, width: int, field: str, lines: int) -> str:
    """What is wrong with the text, `entries` lines of `width` numbers each; "" where nothing is. lines: before it."""
    kinds = b"\1" + text.translate(_KIND) + b"\1"
    if _ELSE in kinds:  # infinite, or no number, is a number
        kinds = b"\1" + _NO_NUMBERS.sub(b"0", text).translate(_KIND) + b"\1"
    bare = kinds.translate(None, bytes((_DIGIT, _SIGN)))
    space = np.frombuffer(kinds, np.uint8) <= _END
    found = int(np.count_nonzero(space[:-1] & ~space[1:]))
    unknown = (_ELSE, *_NOT_IN.get(field, (_POINT, _EXPONENT, _SIGN)))
    fits = found == entries * width and not any(x in kinds for x in unknown)
    if fits and not _has(kinds, _APART) and not _has(bare, _APART_BARE):
        return ""
    return _first_wrong(text, entries, width, field, lines)


def _has(kinds: bytes, pairs: set[tuple[int, int]]) -> bool:
    """Whether two neighbours are one of the pairs."""
    x = np.frombuffer(kinds, np.uint8)
    beside = (x[:-1] << 3) | x[1:]
    wanted = bytes((i >> 3, i & 7) in pairs for i in range(256))
    return 1 in beside.tobytes().translate(wanted)


def _first_wrong(text: bytes, entries: int, width: int, field: str, lines: int) -> str:
    """The sentence on the first line that is wrong, by itself or by being there; "" where SciPy reads all of it."""
    number = re.compile(rb"(?i)[+-]?(?:(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?|inf(?:inity)?|nan)")
    whole = re.compile(rb"[+-]?\d+")
    of_line = [whole] * (width - 1) + [number] if width != 2 else [whole] * 2
    if field in ("integer", "unsigned-integer"):
        of_line = [whole] * width
    count = 0
    for at, line in enumerate(text.split(b"\n"), lines + 1):
        words = line.split()
        for word, kind in zip(words, of_line, strict=False):
            if not kind.fullmatch(word):
                what = "number" if kind is number else "whole number"
                return f"line {at} has {word.decode('latin-1')[:40]!r}, which is no {what}"
        if words and len(words) != width:
            return f"line {at} has {len(words)} numbers, but must have {width}"
        count += bool(words)
        if count > entries:
            return f"line {at} is an entry more than the {entries} that its sizes say"
    return f"it has {count} entries, but its sizes say {entries}" * (count != entries)
