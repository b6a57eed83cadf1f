"""`plan`: out = A · B over several GPUs, and `streamed`, with A on the host.

Only the rows of B that a part names travel, and while they do, what is there already is multiplied.

    comm = distributed.start()                      # torchrun, MPI or Slurm started the processes
    made = distributed.plan(a, n, comm)             # collective: who has which rows, who sends what, local plans
    made.operand().fill(b)                          # this rank's rows of B: made.b_rows
    c = made()                                      # collective: this rank's rows of C: made.c_rows

B and C lie in panels of columns (`Panels`), one for each chunk of N that travels by itself: a panel of B holds the
part's own rows, which the caller fills, and after them those that come. So nothing is copied before a product.

    travels       │ chunk 0 ▒▒▒▒ │ chunk 1 ▒▒▒▒ │ chunk 2 ▒▒▒▒ │
    is multiplied │ 0, early ████│ 0 ██ 1 ██████│ 2 ███████ …

`streamed`: A stays in host memory and comes to the GPU in panels of rows, one travelling while one is multiplied.

    host, pinned   │ panel 0 │ panel 1 │ panel 2 │ panel 3 │ …       columns and values; where rows begin, and how they
    copies         │ 0 ▒▒▒▒▒▒│ 1 ▒▒▒▒▒▒│ 2 ▒▒▒▒▒▒│ …                 are cut into tasks, stays on the GPU
    products       │         │ 0 ████  │ 1 ████  │ …
    buffers        │ first   │ second  │ first   │ …

For what even all GPUs together cannot hold: each rank streams its own part. It takes at least as long as A's bytes
through the host's link, whatever n is, so it pays with a wide B.
"""

from __future__ import annotations

import functools
import itertools
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from .. import formats
from ..contract import require, require_whole
from ..formats import bcsr, csr, foreign, half
from ..formats.bcsr import Bcsr
from ..formats.csr import INT32_MAX, Csr
from ..lazy import torch
from ..library import operands
from . import comm as talk, partition
from .backend import Gpu, Streams, Times

LAYOUTS = ("distributed", "replicated")
#: Columns that a chunk has at least: a kernel's panel. And chunks at most.
LEAST_CHUNK, MOST_CHUNKS = 128, 4
#: Bytes of B that wait packed at once; with more, chunks share a buffer and are packed one after the other.
MOST_AHEAD = 16 * 2**30
#: Non-zeros of a streamed panel, 8 bytes each: large enough for a link's full rate, and two fit any GPU.
PANEL = 1 << 26
#: Single rows: the only kernels that read columns and values where they lie, so that others can come there.
CHOICE = "union rows=1 vec=4 loads=1 unroll=8 chunk=-1 order="


@dataclass(frozen=True)
class Part:
    """A rank's rows of a matrix that no rank has whole: made on the devices, or read by each."""

    #: Csr or Bcsr of rows[rank] … rows[rank + 1] - 1, with columns of the whole matrix; a list of them, slabs of
    #: consecutive rows, where 32 bits do not count the entries of all.
    a: Any
    rows: Any  #: int64 (ranks + 1,): which rows of A, and of C, each rank has
    columns: Any = None  #: the same of B; None: those of A, which is square
    #: The plan makes no second copy of A: columns are written over, and kernels read entries where they lie.
    consumed: bool = False

    @property
    def slabs(self) -> list:
        """Return the part's matrices, one for each column of the grid."""
        return list(self.a) if isinstance(self.a, list | tuple) else [self.a]


@dataclass
class Panels:
    """A dense matrix (rows, n) in panels of columns, each row-major: float32, or bit patterns of a 16-bit dtype."""

    edges: tuple[int, ...]  #: where panels begin, and n
    arrays: list  #: (rows, width)
    dtype: str = "float32"

    def fill(self, x) -> Panels:
        """Copy a matrix (rows, n) in, of the same dtype; of a 16-bit one as a `Half`, its bit patterns, or an array."""
        shape, given = (self.arrays[0].shape[0], self.edges[-1]), half.array_of(x)
        name = str(getattr(x, "dtype", type(x).__name__)).removeprefix("torch.")
        require(
            name == self.dtype or (self.dtype in half.DTYPES and name == "uint16"),
            f"B is {name}, but the plan is for {self.dtype}: convert it, or plan with another dtype",
        )
        require(
            tuple(given.shape) == shape,
            f"B is {' x '.join(map(str, given.shape))}, but this rank's rows of it are {shape[0]} x {shape[1]}",
        )
        if str(given.dtype) == "torch.bfloat16":  # which other libraries do not exchange
            given = given.view(torch.int16)
        for array, begin, end in zip(self.arrays, self.edges, self.edges[1:], strict=False):
            made = half.array_module(array).asarray(given[:, begin:end])
            array[...] = made if made.dtype == array.dtype else made.view(array.dtype)
        return self

    def whole(self):
        """Return the matrix (rows, n), a copy; without one where there is a single panel."""
        if len(self.arrays) == 1:
            return self.arrays[0]
        return half.array_module(self.arrays[0]).concatenate(self.arrays, axis=1)

    def rows(self, begin: int, end: int) -> Panels:
        """Return some rows of it, shared."""
        return replace(self, arrays=[x[begin:end] for x in self.arrays])


class Plan:
    """C = A · B for one A (m, k), cut into parts, and any B (k, n): see `plan`.

    b_rows, c_rows: the rows of B and C, (first, past the last), of this rank. sent_bytes: what this rank sends in a
    call; least_bytes: what the others need of it at least, with this partition; gathered_bytes: what it would send so
    that each has all of B. Calls are collective and share buffers: one after the other. `times` is of the last call
    with timed=True.
    """

    def __init__(self, machine, comm, n: int, dtype: str, edges, slabs, rows, columns, asked: dict):
        """edges: of chunks; slabs, rows, columns: as `_cut` has them; asked: options of `plan`."""
        self.machine, self.comm, self.dtype, self.edges = machine, comm, dtype, edges
        self.m, self.k, self.n = int(rows[-1]), int(columns[-1][-1]), n
        self.gathered_bytes = self.least_bytes = self.sent_bytes = 0
        self.times: Times | None = None
        self.widths: list[int] = np.diff(edges).tolist()  #: columns of each chunk
        self._streams = Streams(machine)
        replicas, parts = len(columns), len(rows) - 1
        (i, j), unit, k = divmod(comm.rank, replicas), partition.units(slabs[0])[1], slabs[0].k
        slabs, mine = [machine.to_here(x) for x in slabs], columns[j]
        begin, of, own_units = int(mine[0]), None, -(-k // unit)
        if asked["b"] == "distributed" and parts > 1:
            column = comm if replicas == 1 else comm.split(j)
            inside = (mine - begin) // unit
            require(
                k % unit == 0,
                f"k is {self.k}, but B is sent in blocks of {unit} rows: make k a multiple, or use CSR",
            )
            named = [x.col_idx for x in slabs]
            of = partition.exchange(named, inside, column)
            named = partition.compact(named, int(inside[-1]), of.own, of.received, over=asked["consumed"])
            own_units = of.own[1] - of.own[0]
            k = (own_units + of.received.shape[0]) * unit
            slabs = [replace(x, k=k, col_idx=y) for x, y in zip(slabs, named, strict=True)]
            slabs = [bcsr.in_order(x) if isinstance(x, Bcsr) else x for x in slabs]
        # Products before B and C have their memory, of which the conversion of A may need much.
        adds = dtype not in half.DTYPES and not asked["consumed"]
        #: Of the first chunk and of later ones, for each a `partition.Piece`.
        self.pieces = partition.pieces(slabs, own_units, asked["first"], adds)
        #: Of each chunk (product, rows, whether it is the first that needs what travels, adds); those of one width
        #: share products.
        product = functools.cache(
            lambda piece, width: machine.product(
                piece.a, width, dtype, asked["accuracy"], asked["tune"], in_place=asked["consumed"]
            )
        )
        self._steps = [
            [(product(x, width), x.rows, at == sum(y.early for y in of), x.adds) for at, x in enumerate(of)]
            for of, width in zip((self.pieces[0], *[self.pieces[1]] * (len(edges) - 2)), self.widths, strict=True)
        ]
        self.c_rows = int(rows[i]), int(rows[i + 1])
        if asked["b"] == "replicated":
            self.b_rows, self._b = (0, self.k), self.panels(self.k)
            self._all = self._b.rows(begin, begin + k)  #: own and received rows, which products read
        else:
            first, own = int(mine[i]), min(own_units * unit, k)
            self.b_rows, self._all = (first, first + own), self.panels(k)
            self._b = self._all.rows(0, own)
        self._c = self._out = self.panels(self.c_rows[1] - self.c_rows[0])  #: sums of this part, and what of C it keeps
        #: Of each chunk what packs and sends its rows; so many chunks travel before one is multiplied.
        self._moves: list[list] = [[] for _ in self.widths]
        self._ahead = 2
        #: What is left of each chunk once its sums are there, in turn: an exchange of C and what adds then, or None.
        self._after: list[list[tuple]] = []
        if of is not None:
            row_bytes = n * csr.storage(dtype).itemsize * unit
            self.least_bytes = int(of.send_counts.sum()) * row_bytes
            self.gathered_bytes = own_units * (parts - 1) * row_bytes
            if any(comm.gather(self.least_bytes)):
                self._exchange_b(of, unit, column)
        sent = self.sent_bytes
        if replicas > 1:
            self._reduce_c(comm if parts == 1 else comm.split(i))
        if asked["c"] == "replicated" and comm.size > 1:
            self._spread_c()
        self.least_bytes += self.sent_bytes - sent
        machine.sync()

    def panels(self, rows: int) -> Panels:
        """Unwritten ones of this plan's chunks, where it multiplies."""
        return Panels(self.edges, [self.machine.empty(rows, w, self.dtype) for w in self.widths], self.dtype)

    def operand(self) -> Panels:
        """B's rows of this rank, to be filled: (b_rows, n); all of B where it is replicated."""
        return self._b

    def result(self) -> Panels:
        """C's rows of this rank, of the last call; all of C where it is replicated."""
        return self._out

    def __call__(self, b=None, *, timed: bool = False) -> Panels:
        """Multiply; collective. b: this rank's rows of B (rows, n), copied in; None: `operand` is filled already."""
        if b is not None:
            self._b.fill(b)
        streams, arrived = self._streams, list[Any]()
        streams.begin()
        for chunk, (b_panel, c_panel) in enumerate(zip(self._all.arrays, self._c.arrays, strict=True)):
            for moves in self._moves[len(arrived) : chunk + self._ahead]:
                arrived.append(streams.spend("communication", streams.travels, *moves))
            for product, (begin, end), waits, adds in self._steps[chunk]:
                if waits:
                    streams.waiting(arrived[chunk])
                streams.spend("multiplication", streams.products, partial(product, b_panel, c_panel[begin:end], adds))
            for move, add in (every[chunk] for every in self._after):
                streams.travels.wait_event(streams.products.record())
                streams.waiting(streams.spend("communication", streams.travels, move))
                if add:
                    with streams.products:
                        add()
        # Where nothing of another rank is multiplied, nobody has waited yet for B to be sent.
        streams.end(arrived[-1])
        if timed:
            self.times = streams.times()
        return self._out

    def _ready(self, ranks, send, recv):
        """Return the exchange of these arrays, whose bytes are counted."""
        self.sent_bytes += sum(x.nbytes for q, x in enumerate(send) if q != ranks.rank)
        return ranks.ready(send, recv)

    def _exchange_b(self, of: partition.Exchange, unit: int, column) -> None:
        """Make what packs and sends the rows of each chunk.

        Where memory allows it, all are packed before the first one travels, so that exchanges follow each other
        without a kernel in between: products that fill the GPU would run before it, and the next exchange behind them.
        Who sends all of its rows, as with blocks all over a weight, packs nothing.
        """
        here, own = self.machine, (of.own[1] - of.own[0])
        complete = all(rows in (0, own) for rows in of.send_counts.tolist())
        count = 0 if complete else int(of.send_counts.sum())
        ahead = all(column.gather(complete or self.least_bytes <= MOST_AHEAD))
        shared = None if ahead else here.empty(count * unit, max(self.widths), self.dtype)
        for moves, x in zip(self._moves, self._all.arrays, strict=True):
            by_unit = x.reshape(-1, unit * x.shape[1])
            buffer = here.empty(count * unit, x.shape[1], self.dtype) if shared is None else shared
            packed = buffer.reshape(-1)[: count * by_unit.shape[1]].reshape(count, by_unit.shape[1])
            send = [by_unit[: int(x)] for x in of.send_counts] if complete else partition.split(packed, of.send_counts)
            if not complete:
                moves.append(partial(here.gather, by_unit[:own], of.send, packed))
            moves.append(self._ready(column, send, partition.split(by_unit[own:], of.recv_counts)))
        if ahead:
            self._ahead = len(self._moves)
            self._moves[0] = [*(pack for *packs, _ in self._moves for pack in packs), self._moves[0][-1]]
            self._moves[1:] = [moves[-1:] for moves in self._moves[1:]]

    def _reduce_c(self, row) -> None:
        """Add up the sums of a row of the grid: each part gets the others' sums of its share of the rows."""
        first, last = self.c_rows
        edges = partition.even(last - first, row.size)
        begin, end = int(edges[row.rank]), int(edges[row.rank + 1])
        self._out, after = self._c.rows(begin, end), []
        for c, mine in zip(self._c.arrays, self._out.arrays, strict=True):
            # What comes of this part itself is there already.
            into = [
                self.machine.empty((end - begin) * (q != row.rank), c.shape[1], self.dtype) for q in range(row.size)
            ]
            send = partition.split(c, np.diff(edges))
            send[row.rank] = into[row.rank]

            def add(mine=mine, others=into[: row.rank] + into[row.rank + 1 :]):
                total = half.from_bits(mine, self.dtype)
                for x in others:
                    total += half.from_bits(x, self.dtype)
                if total is not mine:
                    mine[...] = half.to_bits(total, self.dtype)

            after.append((self._ready(row, send, into), add))
        self._after.append(after)
        self.c_rows = first + begin, first + end

    def _spread_c(self) -> None:
        """Every rank gets all of C."""
        whole, ranges = self.panels(self.m), self.comm.gather(self.c_rows)
        self._after.append(
            [
                (self._ready(self.comm, [x] * self.comm.size, [every[p:q] for p, q in ranges]), None)
                for x, every in zip(self._out.arrays, whole.arrays, strict=True)
            ]
        )
        self._out = whole


def plan(
    a,
    n: int,
    comm=None,
    *,
    dtype: str | None = None,
    accuracy: str | None = None,
    replicas: int = 1,
    rows=None,
    columns=None,
    b: str = "distributed",
    c: str = "distributed",
    chunks: int | None = None,
    first: str = "auto",
    tune: bool = False,
    machine=None,
) -> Plan:
    """Make ready to multiply A (m, k) by any B (k, n) with all ranks of `comm`; collective.

    a: a sparse matrix as `library.plan` takes, the same on every rank, or a `Part`; CSR, WCSR (multiplied as CSR) and
    BCSR stay sparse rows or blocks; a SciPy matrix of over 2^31 - 1 non-zeros is cut into slabs. comm: as in `comm`;
    None: alone. dtype, accuracy, tune: of the local plans, which are the library's; parts of over 50 million non-zeros
    get the kernel that the model predicts.
    replicas: 1 cuts A by rows, as many as ranks by columns, between them 1.5D (see `partition`). rows, columns: int64
    edges of the parts of A's rows and B's; None: rows balanced by non-zeros, and B like the rows of a square A, else
    even. b, c: "distributed", or "replicated" on every rank. chunks: of N, whose exchanges overlap with products of
    others; None: up to 4. first: what is multiplied before rows arrive, one of `split.FIRST`.
    machine: a `backend.Gpu` or `Host`; None: the GPU that is current.

    Raises ValueError on every rank, one sentence, where ranks bring different sizes, or the grid, the edges or the
    dtype do not fit.
    """
    comm, machine = comm or talk.alone(), machine or Gpu()
    require_whole("replicas", replicas, 1, INT32_MAX, "2^31 - 1")
    require(
        comm.size % replicas == 0,
        f"replicas is {replicas}, but must divide the {comm.size} parts",
    )
    for name, value, known in (("b", b, LAYOUTS), ("c", c, LAYOUTS), ("first", first, partition.FIRST)):
        require(value in known, f"{name} is {value!r}, but must be one of {', '.join(known)}")
    n = require_whole("n", n, 1, INT32_MAX, "2^31 - 1")
    dtype = operands.dtype_name(dtype) or operands.dtype_named(a.slabs[0] if isinstance(a, Part) else a)
    slabs, rows, columns = talk.together(comm, lambda: _cut(a, comm, replicas, rows, columns, accuracy, dtype))
    m, k, edges = int(rows[-1]), int(columns[-1][-1]), {"rows": rows.tolist(), "columns": [x.tolist() for x in columns]}
    talk.same(comm, m=m, k=k, n=n, dtype=dtype, chunks=chunks, replicas=replicas, b=b, c=c, **edges)
    if chunks is None:
        chunks = max(1, min(MOST_CHUNKS, n // LEAST_CHUNK)) if comm.size > 1 and b == "distributed" else 1
    require_whole("chunks", chunks, 1, n)
    # Loads of 16 bytes stay aligned.
    panels = partition.even(n, chunks, 8 if n % 8 == 0 and chunks <= n // 8 else 1).tolist()
    consumed = isinstance(a, Part) and a.consumed
    asked = {"b": b, "c": c, "first": first, "accuracy": accuracy, "tune": tune, "consumed": consumed}
    return Plan(machine, comm, n, dtype, panels, slabs, rows, columns, asked)


def _cut(a, comm, replicas: int, rows, columns, accuracy, dtype: str):
    """Return this rank's slabs, the edges of the rows of parts, and the edges of B for each column of the grid.

    Slabs have the columns of the rank's column of the grid; column j has columns[j][0] … columns[j][-1] - 1 of A.
    """
    (i, j), parts = divmod(comm.rank, replicas), comm.size // replicas
    if isinstance(a, Part):
        require(
            replicas == 1 and rows is None and columns is None,
            "a Part says itself which rows are whose, and is cut by rows: leave replicas, rows and columns out",
        )
        for x in a.slabs:
            require(
                isinstance(x, Csr | Bcsr),
                f"the part of rank {comm.rank} is {type(x).__name__}, but must be Csr or Bcsr: convert it",
            )
            formats.validate(x)
        rows = partition.require_bounds("rows", a.rows, parts, int(a.rows[-1]))
        own = rows if a.columns is None else a.columns
        own = partition.require_bounds("columns", own, parts, a.slabs[0].k, partition.units(a.slabs[0])[1])
        found = sum(x.m for x in a.slabs)
        widths = sorted({x.k for x in a.slabs})
        require(
            len(widths) == 1,
            f"slabs of the part of rank {comm.rank} have {widths} columns, but must have those of the whole matrix",
        )
        require(
            found == rows[i + 1] - rows[i],
            f"the part of rank {comm.rank} has {found} rows, but its edges say {rows[i + 1] - rows[i]}",
        )
        return a.slabs, rows, [own]
    large = operands.is_scipy(a) and a.nnz > INT32_MAX  # 32 bits do not count its entries: a part may be slabs
    if large:
        require(
            replicas == 1,
            f"replicas is {replicas}, but a matrix of {a.nnz} non-zeros is cut by rows alone: leave replicas out",
        )
        whole = foreign.checked(foreign.checked(a).tocsr(), everything=True)
        (m, k), row_ptr, (u_row, u_col) = whole.shape, whole.indptr, (1, 1)
    else:
        whole = operands.operand(a, accuracy=accuracy, dtype=dtype)
        whole = whole if isinstance(whole, Csr | Bcsr) else operands.as_csr(whole)
        m, k, row_ptr, (u_row, u_col) = whole.m, whole.k, whole.row_ptr, partition.units(whole)
    if rows is None:
        rows = np.minimum(partition.by_nonzeros(row_ptr, parts) * u_row, m)
    rows = partition.require_bounds("rows", rows, parts, m, u_row)
    if columns is not None:
        require(
            replicas == 1,
            "columns are given, but replicas cut them too: leave one of both out",
        )
        every = [partition.require_bounds("columns", columns, parts, k, u_col)]
    elif replicas == 1 and m == k and u_row == u_col:
        every = [rows]
    else:
        classes = itertools.pairwise(partition.even(k, replicas, u_col))
        every = [x + partition.even(int(y - x), parts, u_col) for x, y in classes]
    first, last = int(rows[i]), int(rows[i + 1])
    if large:
        cuts = partition.slabs(row_ptr[first : last + 1])
        return [csr.from_scipy(whole[first + x : first + y]) for x, y in cuts], rows, every
    return [partition.columns_of(partition.rows_of(whole, first, last), *every[j][[0, -1]].tolist())], rows, every


class Streamed:
    """C = A · B with A (m, k) on the host, B (k, n) and C (m, n) float32 on the GPU: see `streamed`.

    bytes: of A that a call copies. panels: rows, (first, past the last), of each. times: of the last timed call.
    """

    def __init__(self, slabs: list[Csr], n: int, panel: int, machine):
        self.machine, self.m, self.k, self.n = machine, sum(a.m for a in slabs), slabs[0].k, n
        self.times: Times | None = None
        self.bytes = sum(a.col_idx.nbytes + a.val.nbytes for a in slabs)
        self._streams, xp = Streams(machine), machine.xp
        slabs = [replace(a, col_idx=machine.pinned(a.col_idx), val=machine.pinned(a.val)) for a in slabs]
        parts = [partition.rows_of(a, *of) for a in slabs for of in partition.cut(a.row_ptr, panel)]
        self.panels = list(itertools.pairwise(itertools.accumulate((x.m for x in parts), initial=0)))
        most = max((x.nnz for x in parts), default=0)
        self._buffers = [(xp.empty(most, np.int32), xp.empty(most, np.float32)) for _ in range(2)]
        self._steps: list[tuple] = []  #: of each panel: what copies its columns and values, and its product
        for part, buffers in zip(parts, itertools.cycle(self._buffers), strict=False):
            there = [x[: part.nnz] for x in buffers]
            a = Csr(part.m, part.k, xp.asarray(part.row_ptr), *there)
            copies = [partial(machine.copy, *both) for both in zip((part.col_idx, part.val), there, strict=True)]
            self._steps.append((copies, machine.product(a, n, "float32", "fp32", False, choice=CHOICE)))

    def __call__(self, b, out=None, *, timed: bool = False):
        """out (m, n), a new array where none is given; b: (k, n) float32, row-major, on the GPU."""
        out = self.machine.empty(self.m, self.n, "float32") if out is None else out
        for name, x, rows in (("B", b, self.k), ("out", out, self.m)):
            require(
                x.shape == (rows, self.n) and x.dtype == np.float32,
                f"{name} is {x.dtype} {x.shape}, but must be float32 {(rows, self.n)}",
            )
        streams = self._streams
        free = [streams.begin()] * 2
        for i, ((x, y), (copies, product)) in enumerate(zip(self.panels, self._steps, strict=True)):
            streams.travels.wait_event(free[i % 2])
            streams.waiting(streams.spend("communication", streams.travels, *copies))
            free[i % 2] = streams.spend("multiplication", streams.products, partial(product, b, out[x:y], False))
        streams.end()
        if timed:
            self.times = streams.times()
        return out


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
