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
sizes m, n, k and nnz, and what the system's operands hold (`names`): `a`, `b` and `c` for a dense matrix, `a.row_ptr`
and the like for a part of a sparse one. An argument is one such name or sum: an array becomes a pointer, a number an
int32. A type behind a colon is what the array must have, or what the number becomes: `b:float32`, `nnz:int64`.

Headers are looked for beside the `.cu`, in kernels/common, and in the CUDA toolkit, where there is one ($CUDA_HOME).
"""

import ast
import dataclasses
import math
import operator
import re
from collections.abc import Callable, Mapping
from fractions import Fraction
from itertools import accumulate, chain
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from kernels import formats, jit
from kernels.contract import Operands, Problem
from kernels.formats.half import Half, array_of

ONCE = ("entry", "grid", "block", "arguments")  #: keys that must be there
MAYBE = ("shared", "clear", "targets")
TYPES = ("int32", "uint32", "int64", "uint64", "float32", "float64", "uint16")
SIZES = ("m", "n", "k", "nnz")

#: The first comment, and a line of it: key, text.
_COMMENT = re.compile(r"^(?:[ \t]*//.*\n?)+", re.MULTILINE)
_LINE = re.compile(rf"[ \t]*//\s*({'|'.join((*ONCE, *MAYBE, 'require'))})\s*:\s*(.*?)\s*")
_OPERATORS: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
#: Functions, and with how many numbers they are called at most.
_FUNCTIONS: dict[str, tuple[Callable, int]] = {"ceil": (math.ceil, 1), "min": (min, 99), "max": (max, 99)}
_LONGEST = 1000  #: characters of a sum: Python's parser ends with an error of its own behind some thousands


@dataclasses.dataclass(frozen=True)
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

    def refuse(self, why: str) -> NoReturn:
        """Raise ValueError, which names the file."""
        raise ValueError(f"{self.source.name}: {why}")


def read(source: Path) -> Header:
    """Return the header of a `.cu`. Raises FileNotFoundError, or ValueError, one sentence that names file and line."""
    if not source.is_file():
        raise FileNotFoundError(f"{source}: there is no such kernel.")
    try:
        text = source.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{source.name} is no text in UTF-8: byte {error.start} is 0x{error.object[error.start]:02x}."
        ) from None
    begin, comment = next(((at.start(), at[0]) for at in _COMMENT.finditer(text)), (0, ""))
    lines = enumerate(comment.splitlines(), 1 + text.count("\n", 0, begin))
    said = [(number, at[1], at[2]) for number, line in lines if (at := _LINE.fullmatch(line))]
    found = {key: text for _, key, text in said}
    require = tuple(text for _, key, text in said if key == "require")
    split = {key: _parts(found.get(key, "")) for key in ("grid", "block", "arguments")}
    targets = _parts(found.get("targets", ", ".join(jit.TARGETS)))
    arguments = tuple((name.strip(), kind.strip()) for name, _, kind in (x.partition(":") for x in split["arguments"]))
    sums = [*split["grid"], *split["block"], found.get("shared", "0"), *require, *(name for name, _ in arguments)]
    faults = chain(
        (f", line {i}: {key} says nothing" for i, key, text in said if not text),
        (
            f", line {i}: {key} is there a second time"
            for at, (i, key, _) in enumerate(said)
            if key != "require" and key in [before for _, before, _ in said[:at]]
        ),
        (
            f": its first comment has no line `// {key}: …`; it needs {', '.join(ONCE)}"
            for key in ONCE
            if key not in found
        ),
        (f": clear is {x!r}, but only c, the output, can be" for x in [found.get("clear", "c")] if x != "c"),
        (f": there is no target {x!r}; known: {', '.join(jit.FAMILIES)}" for x in targets if x not in jit.FAMILIES),
        (f": {key} has {len(split[key])} dimensions, at most 3" for key in ("grid", "block") if len(split[key]) > 3),
        (
            f": the argument {name} has the type {kind!r}, none of {', '.join(TYPES)}"
            for name, kind in arguments
            if kind not in ("", *TYPES)
        ),
        filter(None, map(_unreadable, sums)),  # said now, not at the launch
    )
    for fault in faults:
        raise ValueError(f"{source.name}{fault}.")
    shared = found.get("shared", "0")
    return Header(
        source, found["entry"], split["grid"], split["block"], arguments, shared, "clear" in found, require, targets
    )


def names(problem: Problem, operands: Operands) -> dict[str, Any]:
    """Return what arguments and sums may name: sizes, dense matrices, and the parts of sparse ones.

    Numbers are int, arrays NumPy's or CuPy's, as `operands` are; c is None where there is none yet.
    """
    found: dict[str, Any] = {name: getattr(problem, name) for name in SIZES}
    for letter in ("a", "b", "c"):
        operand = getattr(operands, letter)
        if formats.is_sparse(operand):
            found |= {f"{letter}.{part.name}": getattr(operand, part.name) for part in dataclasses.fields(operand)}
        else:
            found[letter] = array_of(operand) if isinstance(operand, Half) else operand
    return {
        name: int(held) if isinstance(held, int | np.integer) else held
        for name, held in found.items()
        if not isinstance(held, str | bool)
    }


def described(problem: Problem, operands: Operands) -> dict[str, str]:
    """Name -> what it is: a number's value, an array's type and shape, for whoever writes a header."""
    known = names(problem, operands)
    arrays = {name: held for name, held in known.items() if hasattr(held, "shape")}
    told = {name: f"whole number, here {held}" for name, held in known.items()}
    for name, held in arrays.items():
        order = "row-major" if held.flags.c_contiguous else "column-major"
        told[name] = f"{held.dtype} ({' x '.join(map(str, held.shape))})" + f", {order}" * (held.ndim > 1)
    return told | {n: f"the output, {problem.m} x {problem.n}, as b's type" for n, x in known.items() if x is None}


def value(header: Header, text: str, known: Mapping[str, Any]) -> int | bool:
    """Return what a sum comes to, exactly.

    Raises ValueError, one sentence, for what has no value, or is no whole number.
    """
    result = _exact(header, text, known)
    if result != result // 1:
        header.refuse(f"{text!r} is {float(result):g} here, no whole number: use ceil().")
    return result if isinstance(result, bool) else int(result)


def _exact(header: Header, text: str, known: Mapping[str, Any]) -> Fraction | bool:
    """Raise ValueError, one sentence, for what has no value."""
    try:
        return _value(ast.parse(text, mode="eval").body, known)
    except KeyError as error:
        numbers = ", ".join(n for n, x in known.items() if isinstance(x, int))
        header.refuse(f"{text!r} names {error.args[0]!r}, which is no number here; numbers are {numbers}.")
    except ZeroDivisionError:
        header.refuse(f"{text!r} divides by 0.")
    except RecursionError:
        header.refuse(f"{text[:40]!r} is nested too deep.")
    except TypeError as error:
        header.refuse(f"{text[:40]!r} {error}.")


def dimensions(header: Header, known: Mapping[str, Any]) -> tuple[tuple[int, ...], tuple[int, ...], int]:
    """Grid, block and bytes of dynamic shared memory.

    Raises ValueError, one sentence, for an argument that the system has not, or not of its type, for what is no size,
    and what the header requires and does not get.
    """
    for text, kind in header.arguments:
        held = known.get(text, 0)
        has = getattr(held, "dtype", kind)  # there is no c on the host
        if not isinstance(held, int) and kind and has != kind:
            header.refuse(f"{text} is {has} in this system, but the kernel takes {kind}.")
        if re.fullmatch(r"[a-z_][\w.]*", text) and text not in known:
            header.refuse(f"there is no argument {text!r}; the system has {', '.join(known)}.")
        if isinstance(held, int):
            number(header, text, kind, known)
    for text in header.require:
        if value(header, text, known) is not True:
            named = dict.fromkeys(re.findall(r"[a-z_.]+", text))
            here = ", ".join(f"{n} = {known[n]}" for n in named if isinstance(known.get(n), int))
            raise ValueError(f"{header.source.name} requires {text}, but {here or 'it is not so'}.")

    def size(key: str, text: str, least: int = 1) -> int:
        found = value(header, text, known)
        if isinstance(found, bool) or found < least:
            header.refuse(f"{key} {text!r} is {found} here, but must be {least} at least.")
        return found

    grid, block = (tuple(size(k, text) for text in getattr(header, k)) for k in ("grid", "block"))
    return grid, block, size("shared", header.shared, 0)


def number(header: Header, text: str, kind: str, known: Mapping[str, Any]) -> np.generic:
    """Return a scalar argument as a NumPy scalar. Raises ValueError where its type does not hold it."""
    dtype = np.dtype(kind or "int32")
    floats = dtype.kind == "f"
    limits: Any = np.finfo(dtype) if floats else np.iinfo(dtype)
    found = _exact(header, text, known) if floats else value(header, text, known)
    if not Fraction(float(limits.min)) <= found <= Fraction(int(limits.max)):
        wrong = f"is {found}, which is no {dtype.name}: name another type, as in {text}:int64"
        header.refuse(f"the argument {text} {f'is no {dtype.name}' if floats else wrong}.")
    return dtype.type(float(found) if floats else found)


def _parts(text: str) -> tuple[str, ...]:
    """Split at the commas that stand in no brackets."""
    depths = accumulate((letter == "(") - (letter == ")") for letter in text)
    marked = "".join(
        "\n" if letter == "," and not depth else letter for letter, depth in zip(text, depths, strict=True)
    )
    return tuple(part.strip() for part in marked.split("\n"))


def _unreadable(text: str) -> str:
    """Why a sum cannot be read; nothing where it can."""
    if len(text) > _LONGEST:
        return f": {text[:40]!r} … has {len(text)} characters, at most {_LONGEST} are read"
    try:
        ast.parse(text, mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return f": {text!r} is neither a name nor a sum"
    return ""


def _value(node: ast.expr, known: Mapping[str, Any]) -> Any:
    """Return a number, a Fraction, or what a comparison says. Raises KeyError for what is no number."""
    match node:
        case ast.Constant(value=int() | float() as number) if math.isfinite(number) and not isinstance(number, bool):
            return Fraction(repr(number))
        case ast.Name() | ast.Attribute() if isinstance(known.get(ast.unparse(node)), int):
            return Fraction(known[ast.unparse(node)])
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_value(operand, known)
        case ast.BinOp(left, op, right) | ast.Compare(left, [op], [right]) if type(op) in _OPERATORS:
            return _OPERATORS[type(op)](_value(left, known), _value(right, known))
        case ast.Call(ast.Name(name), args, []) if name in _FUNCTIONS:
            call, most = _FUNCTIONS[name]
            if not 1 <= len(args) <= most:
                raise TypeError(f"calls {name}() with {len(args)} numbers")
            return (
                call(*(_value(part, known) for part in args)) if most == 1 else call([_value(p, known) for p in args])
            )
    raise KeyError(ast.unparse(node))
