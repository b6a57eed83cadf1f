"""How a `.cu` says how it is launched: a few lines of its first comment.

    // entry:     my_kernel<4>                        the kernel, or an instantiation of its template
    // grid:      ceil(n / 128), m                    blocks in x, y, z
    // block:     128                                 threads in x, y, z
    // shared:    0                                   bytes of dynamic shared memory; may be left out: 0
    // arguments: m, n, a.row_ptr, a.col_idx, a.val:float32, b:float32, c     the kernel's parameters in their order
    // clear:     c                                   c is zeroed in every launch; may be left out: it is not
    // require:   n % 4 == 0                          what it takes; may be left out, or come several times
    // targets:   sm_90a                              what it compiles for; may be left out: everything

A line is `// key: value`; other lines of comment may stand between. Values are sums over whole numbers and names: + -
* / // %, ceil(), min(), max(), and in `require` comparisons; `/` is exact, so ceil(n / 128) rounds up. Names are the
sizes m, n, k and nnz, and what the room's operands hold (`names`): `a`, `b` and `c` for a dense matrix, `a.row_ptr`
and the like for a part of a sparse one. An argument is one such name or sum: an array becomes a pointer, a number an
int32. A type behind a colon is what the array must have, or what the number becomes: `b:float32`, `nnz:int64`.

Headers are looked for beside the `.cu`, in kernels/common, and in the CUDA toolkit, where there is one ($CUDA_HOME).
"""

from __future__ import annotations

import ast
import dataclasses
import math
import operator
import re
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from kernels import formats, jit
from kernels.contract import Operands, Problem
from kernels.formats.half import Half, array_of

ONCE = ("entry", "grid", "block", "arguments")  #: keys that must be there
MAYBE = ("shared", "clear", "targets")
TYPES = ("int32", "uint32", "int64", "uint64", "float32", "float64", "uint16")
SIZES = ("m", "n", "k", "nnz")

_LINE = re.compile(r"//\s*([a-z]+)\s*:\s*(.*?)\s*")
_OPERATORS = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: Fraction,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
#: Functions, and with how many numbers they are called at least and at most.
_FUNCTIONS = {"ceil": (math.ceil, 1, 1), "min": (min, 1, 99), "max": (max, 1, 99)}
_LONGEST = 1000  #: characters of a sum: Python's parser ends with an error of its own behind some thousands


@dataclass(frozen=True)
class Header:
    """What the comment of a `.cu` says; values are text until `value` has the problem's numbers."""

    source: Path
    entry: str
    grid: tuple[str, ...]
    block: tuple[str, ...]
    arguments: tuple[tuple[str, str], ...]  #: (name or sum, type, "" where it says none)
    shared: str = "0"
    clear: bool = False
    require: tuple[str, ...] = ()
    targets: tuple[str, ...] = jit.TARGETS


def read(source: Path) -> Header:
    """The header of a `.cu`. Raises FileNotFoundError, or ValueError, one sentence that names file and line."""
    if not source.is_file():
        raise FileNotFoundError(f"{source}: there is no such kernel.")
    found: dict[str, str] = {}
    require: list[str] = []
    try:
        lines = source.read_text(encoding="utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{source.name} is no text in UTF-8: byte {error.start} is 0x{error.object[error.start]:02x}."
        ) from None
    for number, line in enumerate(lines, 1):
        if not line.lstrip().startswith("//"):
            if number > 1 and lines[number - 2].strip():
                break  # behind the first comment
            continue
        match = _LINE.fullmatch(line.strip())
        if not match or match[1] not in (*ONCE, *MAYBE, "require"):
            continue
        key, text = match.groups()
        if not text:
            raise ValueError(f"{source.name}, line {number}: {key} says nothing.")
        if key == "require":
            require.append(text)
        elif key in found:
            raise ValueError(f"{source.name}, line {number}: {key} is there a second time.")
        else:
            found[key] = text
    for key in ONCE:
        if key not in found:
            raise ValueError(f"{source.name}: its first comment has no line `// {key}: …`; it needs {', '.join(ONCE)}.")
    if found.get("clear", "c") != "c":
        raise ValueError(f"{source.name}: clear is {found['clear']!r}, but only c, the output, can be.")
    targets = _parts(found.get("targets", ", ".join(jit.TARGETS)))
    for target in targets:
        if target not in jit.FAMILIES:
            raise ValueError(f"{source.name}: there is no target {target!r}; known: {', '.join(jit.FAMILIES)}.")
    dimensions = {key: _parts(found[key]) for key in ("grid", "block")}
    for key, parts in dimensions.items():
        if len(parts) > 3:
            raise ValueError(f"{source.name}: {key} has {len(parts)} dimensions, at most 3.")
    arguments = tuple(_typed(source, text) for text in _parts(found["arguments"]))
    texts = [*dimensions["grid"], *dimensions["block"], found.get("shared", "0"), *require]
    for text in [*texts, *(text for text, _ in arguments)]:
        _tree(source, text)  # whatever cannot be read is said now, not at the launch
    return Header(
        source,
        found["entry"],
        dimensions["grid"],
        dimensions["block"],
        arguments,
        found.get("shared", "0"),
        "clear" in found,
        tuple(require),
        targets,
    )


def names(problem: Problem, operands: Operands) -> dict[str, Any]:
    """What arguments and sums may name: sizes, dense matrices, and the parts of sparse ones.

    Numbers are int, arrays NumPy's or CuPy's, as `operands` are; c is None where there is none yet.
    """
    found: dict[str, Any] = {name: int(getattr(problem, name)) for name in SIZES}
    for letter in ("a", "b", "c"):
        operand = getattr(operands, letter)
        if formats.is_sparse(operand):
            for part in dataclasses.fields(operand):
                held = getattr(operand, part.name)
                if isinstance(held, np.integer):
                    held = int(held)
                if not isinstance(held, (str, bool)):
                    found[f"{letter}.{part.name}"] = held
        else:
            found[letter] = array_of(operand) if isinstance(operand, Half) else operand
    return found


def described(problem: Problem, operands: Operands) -> dict[str, str]:
    """Name -> what it is: a number's value, an array's type and shape, for whoever writes a header."""
    found = {}
    for name, held in names(problem, operands).items():
        if isinstance(held, int):
            found[name] = f"whole number, here {held}"
        elif held is None:
            found[name] = f"the output, {problem.m} x {problem.n}, as b's type"
        else:
            order = "row-major" if held.flags.c_contiguous else "column-major"
            shape = " x ".join(map(str, held.shape))
            flat = "" if held.ndim == 1 else f", {order}"
            found[name] = f"{held.dtype} ({shape}){flat}"
    return found


def value(header: Header, text: str, known: Mapping[str, Any]) -> int | bool:
    """What a sum comes to, exactly. Raises ValueError, one sentence, for what has no value, or is no whole number."""
    result = _exact(header, text, known)
    if isinstance(result, Fraction):
        if result.denominator != 1:
            raise ValueError(f"{header.source.name}: {text!r} is {_short(result)} here, no whole number: use ceil().")
        return int(result)
    return result


def _short(number: Fraction) -> str:
    try:
        return f"{float(number):g}"
    except OverflowError:
        return "huge"


def _exact(header: Header, text: str, known: Mapping[str, Any]) -> int | Fraction | bool:
    try:
        return _value(_tree(header.source, text).body, known)
    except KeyError as error:
        numbers = ", ".join(n for n, x in known.items() if isinstance(x, int))
        raise ValueError(
            f"{header.source.name}: {text!r} names {error.args[0]!r}, which is no number here; numbers are {numbers}."
        ) from None
    except ZeroDivisionError:
        raise ValueError(f"{header.source.name}: {text!r} divides by 0.") from None
    except (RecursionError, TypeError) as error:
        said = "is nested too deep" if isinstance(error, RecursionError) else str(error)
        raise ValueError(f"{header.source.name}: {text[:40]!r} {said}.") from None


def dimensions(header: Header, known: Mapping[str, Any]) -> tuple[tuple, tuple, int]:
    """Grid, block and bytes of dynamic shared memory. Raises ValueError for what is no size, and what the header
    requires and does not get."""
    for text in header.require:
        if value(header, text, known) is not True:
            used = {n: known[n] for n in re.findall(r"[a-z_.]+", text) if isinstance(known.get(n), int)}
            here = ", ".join(f"{name} = {number}" for name, number in used.items())
            raise ValueError(f"{header.source.name} requires {text}, but {here or 'it is not so'}.")
    sizes = []
    for key, texts in (("grid", header.grid), ("block", header.block)):
        sizes.append(tuple(value(header, text, known) for text in texts))
        for text, size in zip(texts, sizes[-1], strict=True):
            if type(size) is not int or size < 1:
                raise ValueError(f"{header.source.name}: {key} {text!r} is {size} here, but must be 1 at least.")
    shared = value(header, header.shared, known)
    if type(shared) is not int or shared < 0:
        raise ValueError(f"{header.source.name}: shared {header.shared!r} is {shared} here.")
    return *sizes, shared


def check_arguments(header: Header, known: Mapping[str, Any]) -> None:
    """Raise ValueError, one sentence, for an argument that the room has not, or not of its type."""
    for text, kind in header.arguments:
        if text in known and not isinstance(known[text], int):
            held = getattr(known[text], "dtype", kind)  # there is no c on the host
            if kind and held != kind:
                raise ValueError(f"{header.source.name}: {text} is {held} in this room, but the kernel takes {kind}.")
        elif re.fullmatch(r"[a-z_][\w.]*", text) and text not in known:
            raise ValueError(f"{header.source.name}: there is no argument {text!r}; the room has {', '.join(known)}.")
        else:
            number(header, text, kind, known)


def number(header: Header, text: str, kind: str, known: Mapping[str, Any]):
    """A scalar argument as a NumPy scalar. Raises ValueError where its type does not hold it."""
    dtype = np.dtype(kind or "int32")
    if dtype.kind == "f":
        exact = _exact(header, text, known)
        if abs(exact) > Fraction(float(np.finfo(dtype).max)):
            raise ValueError(f"{header.source.name}: the argument {text} is no {dtype.name}.")
        return dtype.type(float(exact))
    found, limits = value(header, text, known), np.iinfo(dtype)
    if not limits.min <= found <= limits.max:
        raise ValueError(
            f"{header.source.name}: the argument {text} is {found}, which is no {dtype.name}: name another "
            f"type, as in {text}:int64."
        )
    return dtype.type(found)


def _parts(text: str) -> tuple[str, ...]:
    """Split at the commas that stand in no brackets."""
    parts, depth = [""], 0
    for letter in text:
        depth += (letter == "(") - (letter == ")")
        if letter == "," and not depth:
            parts.append("")
        else:
            parts[-1] += letter
    return tuple(part.strip() for part in parts)


def _typed(source: Path, text: str) -> tuple[str, str]:
    name, _, kind = (part.strip() for part in text.partition(":"))
    if kind and kind not in TYPES:
        raise ValueError(f"{source.name}: the argument {name} has the type {kind!r}, none of {', '.join(TYPES)}.")
    return name, kind


def _tree(source: Path, text: str) -> ast.Expression:
    if len(text) > _LONGEST:
        raise ValueError(f"{source.name}: {text[:40]!r} … has {len(text)} characters, at most {_LONGEST} are read.")
    try:
        return ast.parse(text, mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise ValueError(f"{source.name}: {text!r} is neither a name nor a sum.") from None


def _value(node: ast.expr, known: Mapping[str, Any]):
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    if isinstance(node, ast.Constant) and type(node.value) is float and math.isfinite(node.value):
        return Fraction(repr(node.value))
    if isinstance(node, (ast.Name, ast.Attribute)):
        name = ast.unparse(node)
        if not isinstance(known.get(name), int):
            raise KeyError(name)
        return known[name]
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_value(node.operand, known)
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        left, right = _value(node.left, known), _value(node.right, known)
        return _OPERATORS[type(node.op)](left, right)
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in _OPERATORS:
        left, right = _value(node.left, known), _value(node.comparators[0], known)
        return _OPERATORS[type(node.ops[0])](left, right)
    if isinstance(node, ast.Call) and ast.unparse(node.func) in _FUNCTIONS and not node.keywords:
        call, least, most = _FUNCTIONS[node.func.id]
        if not least <= len(node.args) <= most:
            raise TypeError(f"calls {node.func.id}() with {len(node.args)} numbers")
        given = [_value(part, known) for part in node.args]
        return given[0] if len(given) == 1 and call is not math.ceil else call(*given)
    raise KeyError(ast.unparse(node))
