"""Rows that begin at multiples of 16 bytes: copies of matrices whose own rows do not.

A "row" is what lies side by side: of a column-major matrix, a column.
"""

from __future__ import annotations

from math import ceil

import numpy as np

from . import jit

SOURCE = jit.COMMON / "pitch.cu"
#: Bytes of an element -> the instantiation that copies it.
ENTRIES = {4: "pitch<float>", 2: "pitch<unsigned short>", 1: "pitch<unsigned char>"}
ALIGNMENT = 16  # bytes that a kernel copies at once
SECTOR = 32  # bytes that DRAM delivers at once: the copy's rows begin at whole ones
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
    import cupy

    lda = ceil(m * size / SECTOR) * SECTOR // size
    array = cupy.empty((k, lda), a.dtype)
    return array, lda, [copy(a.T, array, device)]


def copy(source, target, device) -> tuple:
    """The launch (kernel, config, arguments) that copies rows into rows of another length.

    source, target: CuPy arrays, row-major without gaps, of as many rows of 1-, 2- or 4-byte elements.
    What is longer in the target becomes zeros, and what is longer in the source stays behind.
    """
    from cuda.core import LaunchConfig

    entry = ENTRIES[source.dtype.itemsize]
    kernel = jit.load(jit.compile_cubin(SOURCE, entry, jit.arch_of(device)))
    lines, i32 = source.shape[0], np.int32
    length, to_pitch = min(source.shape[1], target.shape[1]), target.shape[1]
    config = LaunchConfig(grid=ceil(lines / LINES), block=(32, LINES))
    return kernel, config, (
        i32(length), i32(lines), source.data.ptr, i32(source.shape[1]), target.data.ptr, i32(to_pitch),
    )  # fmt: skip
