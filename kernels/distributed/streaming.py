"""`streamed`: A stays in host memory and comes to the GPU in panels of rows, one travelling while one is multiplied.

    host, pinned   │ panel 0 │ panel 1 │ panel 2 │ panel 3 │ …       columns and values; where rows begin, and how they
    copies         │ 0 ▒▒▒▒▒▒│ 1 ▒▒▒▒▒▒│ 2 ▒▒▒▒▒▒│ …                 are cut into tasks, stays on the GPU
    products       │         │ 0 ████  │ 1 ████  │ …
    buffers        │ first   │ second  │ first   │ …

For what even all GPUs together cannot hold: each rank streams its own part. It takes at least as long as A's bytes
through the host's link, whatever n is, so it pays with a wide B.
"""

import numpy as np

from ..contract import require, require_whole
from ..formats import csr, foreign
from ..formats.csr import INT32_MAX, Csr
from ..library import operands
from . import partition
from .backend import Gpu, Streams, Times

#: Non-zeros of a panel, 8 bytes each: large enough for a link's full rate, and two fit any GPU.
PANEL = 1 << 26
#: Single rows: the only kernels that read columns and values where they lie, so that others can come there.
CHOICE = "union rows=1 vec=4 loads=1 unroll=8 chunk=-1 order="


class Streamed:
    """C = A · B with A (m, k) on the host, B (k, n) and C (m, n) float32 on the GPU: see `streamed`.

    bytes: of A that a call copies. panels: rows, (first, past the last), of each. times: of the last timed call.
    """

    def __init__(self, slabs: list[Csr], n: int, panel: int, machine):
        self.machine, self.m, self.k, self.n = machine, sum(a.m for a in slabs), slabs[0].k, n
        self.panels: list[tuple[int, int]] = []
        self.bytes = sum(a.col_idx.nbytes + a.val.nbytes for a in slabs)
        self.times: Times | None = None
        self._streams = Streams(machine)
        self._sources: list[tuple[np.ndarray, np.ndarray]] = []  # of each panel: columns, values
        offsets, begin = [], 0
        for a in slabs:
            col, val = machine.pinned(a.col_idx), machine.pinned(a.val)
            for x, y in cut(a.row_ptr, panel):
                of = slice(int(a.row_ptr[x]), int(a.row_ptr[y]))
                self.panels.append((begin + x, begin + y))
                self._sources.append((col[of], val[of]))
                offsets.append(a.row_ptr[x : y + 1] - a.row_ptr[x])
            begin += a.m
        most = max((col.size for col, _ in self._sources), default=0)
        xp = machine.xp
        self._buffers = [(xp.empty(most, np.int32), xp.empty(most, np.float32)) for _ in range(2)]
        self._products = []
        for i, row_ptr in enumerate(offsets):
            col, val = (z[: self._sources[i][0].size] for z in self._buffers[i % 2])
            part = Csr(len(row_ptr) - 1, self.k, xp.asarray(row_ptr), col, val)
            self._products.append(machine.product(part, n, "float32", "fp32", False, choice=CHOICE))

    def __call__(self, b, out=None, *, timed: bool = False):
        """out (m, n), a new array where none is given; b: (k, n) float32, row-major, on the GPU."""
        here = self.machine
        require(
            b.shape == (self.k, self.n) and b.dtype == np.float32,
            f"B is {b.dtype} {b.shape}, but must be float32 {(self.k, self.n)}",
        )
        out = here.empty(self.m, self.n, "float32") if out is None else out
        require(
            out.shape == (self.m, self.n) and out.dtype == np.float32,
            f"out is {out.dtype} {out.shape}, but must be float32 {(self.m, self.n)}",
        )
        streams, free = self._streams, [None, None]
        streams.begin()
        for i, ((x, y), sources) in enumerate(zip(self.panels, self._sources, strict=True)):
            if free[i % 2] is not None:
                here.wait(streams.travels, free[i % 2])
            streams.waiting(streams.spend("communication", streams.travels, self._copy, sources, self._buffers[i % 2]))
            given = b, out[x:y], False, streams.products
            free[i % 2] = streams.spend("multiplication", streams.products, self._products[i], *given)
        streams.end()
        if timed:
            self.times = streams.times()
        return out

    def _copy(self, sources, buffers) -> None:
        for source, to in zip(sources, buffers, strict=True):
            self.machine.copy(source, to[: source.size], self._streams.travels)


def streamed(a, n: int, *, panel: int = PANEL, machine=None) -> Streamed:
    """Make ready to multiply A (m, k) on the host by any float32 B (k, n) on the GPU.

    a: a sparse matrix of SciPy or a `Csr`, with float32 values, or a list of them, slabs of consecutive rows, where one
    would have over 2^31 - 1 non-zeros; copied into pinned memory. panel: non-zeros that travel
    together, 16 bytes of the GPU's memory each; a longer row travels alone. machine: as `plan`'s.
    Raises ValueError, one sentence, for what is no such matrix.
    """
    require_whole("n", n, 1, INT32_MAX, "2^31 - 1")
    require_whole("panel", panel, 1, INT32_MAX, "2^31 - 1")
    if operands.is_scipy(a) and a.nnz > INT32_MAX:
        whole = foreign.checked(foreign.checked(a).tocsr(), everything=True)
        a = [whole[x:y] for x, y in partition.slabs(whole.indptr)]
    slabs = [csr.to_host(operands.as_csr(operands.operand(x))) for x in (a if isinstance(a, list | tuple) else [a])]
    widths = sorted({x.k for x in slabs})
    require(len(widths) == 1, f"slabs have {widths} columns, but must have as many as each other")
    return Streamed(slabs, int(n), panel, machine or Gpu())


def cut(row_ptr: np.ndarray, most: int) -> list[tuple[int, int]]:
    """Ranges of rows with at most `most` entries each, or one row."""
    made, begin = [], 0
    while begin < len(row_ptr) - 1:
        end = partition.end_of(row_ptr, begin, most)
        made.append((begin, end))
        begin = end
    return made
