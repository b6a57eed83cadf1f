"""A problem's operands without signs, and operands of the same pattern whose product is exact in every order of sums.

`magnitudes` tells what an element's rounding errors may be, `exact` what no such limit can: a lost product in a long
sum of 16 bits, TF32 in place of float32. Its numbers are whole and small, so that sums stay what float32, and mostly
C's dtype, holds exactly, and a right kernel gives the same bits:

    sparse operand   1 and, at random, 2; the signs alternate along k, so that sums of any length stay near 0
    dense operand    1 and, at random, 0 or 2
    wide numbers     where products are float32's, odd ones of 14 bits, which TF32 would round, at random: in the
                     sparse operand for one half of all k, in the dense one for the other; 11 bits for TF32, as it holds

What differs "at random" is about 512 numbers of a row of A at most, so that sums keep below 2^23, and without wide
numbers nearly always below 2^8. Zeros of the sparse operand stay, so that it is the same matrix in every format.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from .. import formats, jit, splitmix
from ..contract import Operands, Problem, require
from ..formats.arrays import Arrays
from ..formats.bcsr import Bcsr
from ..formats.csr import Csr
from ..formats.half import Eight, Half, array_of
from ..formats.nm import Nm
from ..lazy import cupy
from . import outputs

SOURCE = Path(__file__).with_name("probe.cu")
THREADS, MOST_BLOCKS = 256, 132 * 16
SEED = 27
UNLIKE = 512  #: numbers of a row of A that differ from the rest, about, at most
WIDE_BITS = {"float32": 14, "tf32": 11}
#: Of 4 bytes of numbers: all bits but the signs.
UNSIGNED = {4: 0x7FFF_FFFF, 2: 0x7FFF_7FFF, 1: 0x7F7F_7F7F}


def magnitudes(problem: Problem) -> Problem:
    """Return the same problem with |A| and |B|; C is the same array, of 8 bits a bfloat16 one instead."""

    def made(ops: Operands) -> Operands:
        c = ops.c
        if isinstance(c, Eight):
            order = "C" if c.bits.flags.c_contiguous else "F"
            c = Half("bfloat16", cupy.empty(c.shape, np.uint16, order=order))
        return Operands(_unsigned(ops.a), _unsigned(ops.b), c)

    return _with(problem, made)


def exact(problem: Problem) -> Problem:
    """Return the same problem with whole numbers in A and B, whose scales are 1.

    C is the same array, an `Eight`'s scale 1.
    """
    return _with(problem, lambda ops: _exact(ops, problem))


def jobs(problem: Problem) -> list[tuple[Path, str]]:
    """(source, entry) of what makes both, to compile beside the candidates."""
    ops = problem.device()
    return [(SOURCE, "magnitudes"), *dict.fromkeys((SOURCE, _entry(x)) for x in (ops.a, ops.b))]


def _with(problem: Problem, made) -> Problem:
    """Return the problem with other operands, made of its own on the GPU where they are asked for."""

    def on_host() -> Operands:
        ops = other.device()
        return Operands(formats.to_host(ops.a), formats.to_host(ops.b))

    other = replace(
        problem,
        make_host=on_host,
        make_device=lambda: made(problem.device()),
        source=None,
        _host=None,
        _device=None,
    )
    return other


def _array(x):
    """Return the numbers of an operand, sparse or dense."""
    return x.val if formats.is_sparse(x) else array_of(x)


def _put(x, numbers, **scale):
    """Return an operand with other numbers of the same dtype; scales become 1, unless others are given."""
    if not isinstance(x, Arrays):
        return numbers
    if hasattr(x, "scale") and not scale:
        scale = {"scale": _ones(x)}
    return replace(x, **{"val" if formats.is_sparse(x) else "bits": numbers}, **scale)


def _ones(x):
    return cupy.asarray(np.ones(x.scale.shape, np.float32))


def _contiguous(array):
    """Return an array as it is where its numbers lie side by side, at multiples of 4 bytes; else a copy."""
    if not (array.flags.c_contiguous or array.flags.f_contiguous):
        array = cupy.ascontiguousarray(array)
    return array if array.data.ptr % 4 == 0 else array.copy()


def _unsigned(x):
    array = _contiguous(_array(x))
    made = cupy.empty_like(array)
    if array.size:
        threads = min(array.nbytes // 4 + 1, MOST_BLOCKS * THREADS)
        jit.run_on_cupy_stream(
            SOURCE,
            "magnitudes",
            threads,
            THREADS,
            np.uint64(array.nbytes),
            array.data.ptr,
            made.data.ptr,
            np.uint32(UNSIGNED[array.itemsize]),
        )
    return _put(x, made, **({"scale": x.scale} if hasattr(x, "scale") else {}))  # which are positive


@dataclass(frozen=True)
class _Along:
    """Where an operand's numbers lie along k: see probe.cu."""

    stride: int = 1
    extent: int = 1
    per: int = 1
    col_idx: Any = None
    area: int = 1
    width: int = 1


def _exact(ops: Operands, problem: Problem) -> Operands:
    require(
        formats.is_sparse(ops.a) != formats.is_sparse(ops.b),
        f"a problem of {getattr(problem, 'room', 'a plan')} has no sparse operand: it has no product to probe",
    )
    left = formats.is_sparse(ops.a)
    pattern, dense = (ops.a, ops.b) if left else (ops.b, ops.a)
    narrow = isinstance(dense, (Half, Eight)) or isinstance(ops.c, (Half, Eight))
    along, per = _along_sparse(pattern), pattern.group if isinstance(pattern, Nm) else 1
    bits = 0 if narrow or along is None else WIDE_BITS[problem.limit or "float32"]
    array = _contiguous(array_of(dense))
    rows = left == bool(array.flags.c_contiguous)  # numbers of one k lie side by side in memory
    across = _Along(array.shape[1 if left else 0] if rows else 1, problem.k, per)
    share = max(1, min(2048, 4096 * UNLIKE // max(problem.k, 1)))
    one = _put(pattern, _whole(pattern, along or _Along(), True, share, bits))
    other = _put(dense, _whole(dense, across, False, share, bits))
    c = Eight(ops.c.dtype, ops.c.bits, _ones(ops.c)) if isinstance(ops.c, Eight) else ops.c
    return Operands(one, other, c) if left else Operands(other, one, c)


def _along_sparse(x) -> _Along | None:
    """None of formats that hold no float32."""
    if isinstance(x, Nm):
        return _Along(max(x.n, 1), max(x.w, 1), x.keep)
    if isinstance(x, Csr):
        return _Along(col_idx=x.col_idx)
    if isinstance(x, Bcsr):
        b_row, b_col = x.block
        return _Along(col_idx=x.col_idx, area=b_row * b_col, width=b_col)
    return None


def _entry(x) -> str:
    return f"whole<{outputs.ELEMENTS[str(getattr(x, 'dtype', 'float32'))]}>"  # CSR and N:M have no other


def _whole(x, along: _Along, sparse: bool, share: int, bits: int):
    """Numbers in place of an operand's, of its dtype and where they lie."""
    array, seed = _contiguous(_array(x)), SEED if sparse else SEED + 1
    made = cupy.empty_like(array)
    keys = splitmix.key(seed, 0), splitmix.key(seed, 1), splitmix.key(SEED, 2)
    if array.size:
        jit.run_on_cupy_stream(
            SOURCE,
            _entry(x),
            min(array.size, MOST_BLOCKS * THREADS),
            THREADS,
            np.uint64(array.size),
            array.data.ptr,
            made.data.ptr,
            np.int32(sparse),
            np.uint32(share),
            np.int32(bits),
            0 if along.col_idx is None else along.col_idx.data.ptr,
            *map(np.int64, (along.area, along.width, along.stride, along.extent, along.per)),
            *map(np.uint64, keys),
        )
    return made
