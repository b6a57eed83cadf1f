"""Rows that begin at multiples of 16 bytes: copies of matrices whose own rows do not.

A "row" is what lies side by side: of a column-major matrix, a column.
"""

from math import ceil

from . import jit
from .contract import step
from .lazy import cupy

SOURCE = jit.COMMON / "pitch.cu"
#: Bytes that are copied at once -> the instantiation.
ENTRIES = {
    16: "pitch<uint4>",
    8: "pitch<uint2>",
    4: "pitch<unsigned>",
    2: "pitch<unsigned short>",
    1: "pitch<unsigned char>",
}
ALIGNMENT = 16  # bytes that a kernel copies at once
SECTOR = 32  # bytes that DRAM delivers at once: the copy's rows begin at whole ones
LINE = 128  # bytes that L2 is asked for at once: rows that begin at whole ones cost the copy engine the least
LINES = 8  # rows of the matrix that a block copies at a time


def aligned(a, device) -> tuple:
    """(array, lda, steps): A (m, k) such that columns begin at multiples of 16 bytes.

    a: CuPy array of 4- or 2-byte elements, column-major without gaps. `array` is `a` itself where
    its columns begin so, and `steps` then empty; else it is a new array (k, lda) of zero-padded
    columns, which holds nothing until `steps`, the launches (kernel, config, arguments) that fill
    it, have run: they belong to the multiplication. lda: elements from one column to the next.
    """
    m, k = a.shape
    size = a.dtype.itemsize
    if m * size % ALIGNMENT == 0 and a.data.ptr % ALIGNMENT == 0:
        return a, m, []
    lda = ceil(m * size / SECTOR) * SECTOR // size
    array = cupy.empty((k, lda), a.dtype)
    return array, lda, [copy(a.T, array, device)]


def copy(source, target, device) -> tuple:
    """Return the launch (kernel, config, arguments) that copies rows into rows of another length.

    source, target: CuPy arrays, row-major without gaps, of as many rows of 1-, 2- or 4-byte elements.
    What is longer in the target becomes zeros, and what is longer in the source stays behind.
    """
    size = source.dtype.itemsize
    # What is copied at once divides rows and addresses of both.
    bits = source.data.ptr | target.data.ptr | source.shape[1] * size | target.shape[1] * size
    unit = min(bits & -bits, max(ENTRIES))
    lines = source.shape[0]
    from_pitch, to_pitch = (x.shape[1] * size // unit for x in (source, target))
    arguments = min(from_pitch, to_pitch), lines, source, from_pitch, target, to_pitch
    return step((SOURCE, ENTRIES[unit]), device, ceil(lines / LINES), (32, LINES), arguments)
