"""Columns of A that begin at multiples of 16 bytes, which every kernel of the room counts on."""

from __future__ import annotations

from math import ceil
from pathlib import Path

import numpy as np

from kernels import jit

SOURCE = Path(__file__).with_name("pitch.cu")
#: Bytes of an element -> the instantiation that copies it.
ENTRIES = {4: "pitch<float>", 2: "pitch<unsigned short>"}
ALIGNMENT = 16  # bytes that a kernel copies at once
SECTOR = 32  # bytes that DRAM delivers at once: the copy's columns begin at whole ones
COLUMNS = 8  # of the matrix that a block copies at a time


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
    from cuda.core import LaunchConfig

    lda = ceil(m * size / SECTOR) * SECTOR // size
    array = cupy.empty((k, lda), a.dtype)
    kernel = jit.load(jit.compile_cubin(SOURCE, ENTRIES[size], jit.arch_of(device)))
    config = LaunchConfig(grid=ceil(k / COLUMNS), block=(32, COLUMNS))
    i32 = np.int32
    return array, lda, [
        (kernel, config, (i32(m), i32(k), a.data.ptr, i32(m), array.data.ptr, i32(lda)))
    ]  # fmt: skip
