"""Matrix Market's files (.mtx), read by SciPy once it is sure that SciPy reads all that they say.

    %%MatrixMarket matrix coordinate real general      or array; integer, pattern; symmetric, skew-symmetric
    % any comment
    3 4 2                                              rows, columns, entries; of an array without the entries
    1 2 0.5                                            an entry: row and column from 1, and a value unless it is pattern
    3 4 1.0D+03                                        Fortran's exponents are exponents

SciPy's reader ends a number at what it does not know, so that 1.0D+03 and 1,5 become 1, and the process at an array
without rows. What may come to it is told by a search over the whole text, which takes about as long as it does.
(NIST, "The Matrix Market Exchange Formats: Initial Design", 1996.)
"""

import bz2
import gzip
import io
import re
from pathlib import Path

from ..contract import require
from .csr import INT32_MAX

FIELDS = ("real", "double", "integer", "unsigned-integer", "pattern")
SYMMETRIES = ("general", "symmetric", "skew-symmetric")
_OPEN = {".gz": gzip.open, ".bz2": bz2.open}
_FORTRAN = bytes.maketrans(b"Dd", b"Ee")


def read(path):
    """Return the `scipy.sparse.coo_array` in a file, which may be packed (.gz, .bz2).

    Raises ValueError, one sentence without the file's name, where it is no real matrix, or a number is none.
    """
    from scipy.io import mmread
    from scipy.sparse import coo_array

    path = Path(path)
    with _OPEN.get(path.suffix, open)(path, "rb") as file:
        head, (layout, field), (m, k), entries, lines = _head(file)
        text = file.read()
    if b"D" in text or b"d" in text:
        text = text.translate(_FORTRAN)
    numbers = [] if layout == "array" else [_WHOLE] * 2
    if field != "pattern":
        numbers.append(_WHOLE if "integer" in field else _NUMBER)
    _require_entries(text, entries, numbers, lines)
    if entries == 0:
        return coo_array((m, k))
    try:
        return coo_array(mmread(io.BytesIO(head + text), spmatrix=False))
    except OverflowError as error:
        raise ValueError(str(error).rstrip(".")) from error


def _head(file) -> tuple[bytes, tuple[str, str], tuple[int, int], int, int]:
    """Return a file's lines up to its first entry, layout and field, sizes, entries, and how many lines are before."""
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
    m, k, *entries = map(int, sizes)
    require(max(m, k) <= INT32_MAX, f"it is {m} x {k}, but sizes are at most 2^31 - 1 here")
    require(symmetry == "general" or m == k, f"it is {m} x {k}, which cannot be {symmetry}")
    # Of a symmetric array those on and below the diagonal.
    of_array = {"general": m * k, "symmetric": m * (m + 1) // 2, "skew-symmetric": m * (m - 1) // 2}[symmetry]
    return head + line, (layout, field), (m, k), entries[0] if entries else of_array, number


#: As texts of expressions; nothing is tried twice, so that a file is read as fast as SciPy reads it.
_WHOLE = rb"[+-]?\d++"
_NUMBER = rb"[+-]?(?:(?:\d++\.?\d*+|\.\d++)(?:[eE][+-]?\d++)?+|(?i:inf(?:inity)?+|nan))"


def _require_entries(text: bytes, entries: int, numbers: list[bytes], lines: int) -> None:
    """Raise ValueError, one sentence, unless a text is so many lines of such numbers; lines: before it."""
    line = rb"[ \t\r]++".join(numbers)
    if text.count(b"\n") == entries and re.fullmatch(rb"(?:[ \t\r]*+" + line + rb"[ \t\r]*+\n)*+", text):
        return
    count, width = 0, len(numbers)
    for at, line in enumerate(text.split(b"\n"), lines + 1):
        words = line.split()
        for word, kind in zip(words, numbers, strict=False):
            if not re.fullmatch(kind, word):
                what = "number" if kind is _NUMBER else "whole number"
                raise ValueError(f"line {at} has {word.decode('latin-1')[:40]!r}, which is no {what}")
        require(len(words) in (0, width), f"line {at} has {len(words)} numbers, but must have {width}")
        count += bool(words)
        require(count <= entries, f"line {at} is an entry more than the {entries} that its sizes say")
    require(count == entries, f"it has {count} entries, but its sizes say {entries}")
