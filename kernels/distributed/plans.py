"""`plan`: out = A · B over several GPUs.

Only the rows of B that a part names travel, and while they do, what is there already is multiplied.

    comm = distributed.start()                      # torchrun, MPI or Slurm started the processes
    made = distributed.plan(a, n, comm)             # collective: who has which rows, who sends what, local plans
    made.operand().fill(b)                          # this rank's rows of B: made.b_rows
    c = made()                                      # collective: this rank's rows of C: made.c_rows

B and C lie in panels of columns (`Panels`), one for each chunk of N that travels by itself: a panel of B holds the
part's own rows, which the caller fills, and after them those that come. So nothing is copied before a product.

    travels       │ chunk 0 ▒▒▒▒ │ chunk 1 ▒▒▒▒ │ chunk 2 ▒▒▒▒ │
    is multiplied │ 0, early ████│ 0 ██ 1 ██████│ 2 ███████ …
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .. import formats
from ..contract import require, require_whole
from ..formats import csr, foreign, half
from ..formats.bcsr import Bcsr
from ..formats.csr import INT32_MAX, Csr
from ..library import operands
from . import comm as talk
from . import halo, partition, split
from .backend import Gpu, Streams, Times, rows_of, units
from .partition import Grid

LAYOUTS = ("distributed", "replicated")
#: Columns that a chunk has at least: a kernel's panel. And chunks at most.
LEAST_CHUNK, MOST_CHUNKS = 128, 4
#: Bytes of B that wait packed at once; with more, chunks share a buffer and are packed one after the other.
MOST_AHEAD = 16 * 2**30


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

    @property
    def nnz(self) -> int:
        """Return the number of non-zeros."""
        return sum(x.nnz for x in self.slabs)

    @property
    def k(self) -> int:
        """Return the number of columns of a slab."""
        return self.slabs[0].k


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
        for array, begin, end in zip(self.arrays, self.edges, self.edges[1:], strict=False):
            array[...] = _stored(given[:, begin:end], array)
        return self

    def whole(self):
        """Return the matrix (rows, n), a copy; without one where there is a single panel."""
        if len(self.arrays) == 1:
            return self.arrays[0]
        return half.array_module(self.arrays[0]).concatenate(self.arrays, axis=1)

    def rows(self, begin: int, end: int) -> Panels:
        """Return some rows of it, shared."""
        return replace(self, arrays=[x[begin:end] for x in self.arrays])


def _stored(x, like):
    """Columns of a matrix as an array where `like` is, of its dtype: 16-bit floats as their bit patterns."""
    if str(x.dtype) == "torch.bfloat16":  # which other libraries do not exchange
        x = x.view(sys.modules["torch"].int16)
    made = half.array_module(like).asarray(x)
    return made if made.dtype == like.dtype else made.view(like.dtype)


class Plan:
    """C = A · B for one A (m, k), cut into parts, and any B (k, n): see `plan`.

    b_rows, c_rows: the rows of B and C, (first, past the last), of this rank. sent_bytes: what this rank sends in a
    call; least_bytes: what the others need of it at least, with this partition; gathered_bytes: what it would send so
    that each has all of B. Calls are collective and share buffers: one after the other. `times` is of the last call
    with timed=True.
    """

    def __init__(self, machine, comm, grid: Grid, n: int, dtype: str, chunks, slabs, rows, columns, asked: dict):
        """slabs, rows, columns: as `_cut` has them; asked: options of `plan`."""
        self.machine, self.comm, self.grid, self.dtype = machine, comm, grid, dtype
        self.m, self.k, self.n = int(rows[-1]), int(columns[-1][-1]), n
        self.edges = _edges(n, chunks, comm.size > 1 and asked["b"] == "distributed")  #: of chunks
        self.sent_bytes = self.least_bytes = self.gathered_bytes = 0
        self.times: Times | None = None
        self._streams = Streams(machine)
        self._move: list[tuple] = []  #: of each chunk (what packs, what exchanges)
        self._ahead = False  #: all chunks are packed at first, each in a buffer of its own
        #: What is left of each chunk once its sums are there, in turn: an exchange of C and what adds then, or None.
        self._after: list[list[tuple]] = []
        (i, j), unit, k = grid.at(comm.rank), units(slabs[0])[1], slabs[0].k
        slabs, mine = [machine.to_here(x) for x in slabs], columns[j]
        begin, of, own_units = int(mine[0]), None, -(-k // unit)
        if asked["b"] == "distributed" and grid.rows > 1:
            column = comm if grid.replicas == 1 else comm.split(j)
            inside = (mine - begin) // unit
            require(
                k % unit == 0,
                f"k is {self.k}, but B is sent in blocks of {unit} rows: make k a multiple, or use CSR",
            )
            named = [x.col_idx for x in slabs]
            of = halo.exchange(named, inside, column)
            named = halo.compact(named, int(inside[-1]), of.own, of.received, over=asked["consumed"])
            k, own_units = of.units * unit, of.own[1] - of.own[0]
            slabs = [split.ascending(replace(x, k=k, col_idx=y)) for x, y in zip(slabs, named, strict=True)]
        # Products before B and C have their memory, of which the conversion of A may need much.
        adds = dtype not in half.DTYPES and not asked["consumed"]
        #: Of the first chunk and of later ones, for each a `split.Piece`.
        self.pieces = split.of_slabs(slabs, own_units, asked["first"], adds)
        #: Of each chunk (product, rows, early, adds).
        self._steps = _products(self, asked["accuracy"], asked["tune"], asked["consumed"])
        self.c_rows = int(rows[i]), int(rows[i + 1])
        if asked["b"] == "replicated":
            self.b_rows, self._b = (0, self.k), self.panels(self.k)
            self._all = self._b.rows(begin, begin + k)  #: own and received rows, which products read
        else:
            own = min(own_units * unit, k)
            first_row = begin if of is None else int(mine[i])
            self.b_rows, self._all = (first_row, first_row + own), self.panels(k)
            self._b = self._all.rows(0, own)
        self._c = self._out = self.panels(self.c_rows[1] - self.c_rows[0])  #: sums of this part, and what of C it keeps
        if of is not None:
            row_bytes = n * csr.storage(dtype).itemsize * unit
            self.least_bytes = int(of.send_counts.sum()) * row_bytes
            self.gathered_bytes = own_units * (grid.rows - 1) * row_bytes
            if any(comm.gather(self.least_bytes)):
                _moves(self, of, unit, column)
        if grid.replicas > 1:
            _reduces(self, comm if grid.rows == 1 else comm.split(i))
        if asked["c"] == "replicated" and comm.size > 1:
            _spreads(self)
        machine.sync()

    @property
    def widths(self) -> list[int]:
        """Columns of each chunk."""
        return np.diff(self.edges).tolist()

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
        streams, count = self._streams, len(self._steps)
        streams.begin()
        if self._ahead:
            streams.spend("communication", streams.travels, self._each, [pack for pack, _ in self._move])
        arrived: list[Any] = []
        for chunk in range(count):
            for ahead in range(len(arrived), count if self._ahead else min(chunk + 2, count)):
                here = [x for x in self._move[ahead : ahead + 1] for x in x[self._ahead :]]
                arrived.append(streams.spend("communication", streams.travels, self._each, here))
            self._multiply(chunk, arrived[chunk])
        # Where nothing of another rank is multiplied, nobody has waited yet for B to be sent.
        streams.end(arrived[-1])
        if timed:
            self.times = streams.times()
        return self._out

    def _each(self, moves) -> None:
        for move in moves:
            move(self._streams.travels)

    def _multiply(self, chunk: int, arrived) -> None:
        """Multiply a chunk, then add sums of other parts and spread C."""
        streams, here = self._streams, self.machine
        b, c = self._all.arrays[chunk], self._c.arrays[chunk]
        for product, (begin, end), early, adds in self._steps[chunk]:
            if not early and arrived is not None:
                streams.waiting(arrived)
                arrived = None
            streams.spend("multiplication", streams.products, product, b, c[begin:end], adds, streams.products)
        for every in self._after:
            move, add = every[chunk]
            here.wait(streams.travels, here.mark(streams.products))
            streams.waiting(streams.spend("communication", streams.travels, move, streams.travels))
            if add:
                with here.on(streams.products):
                    add()


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

    Raises ValueError on every rank, one sentence, where ranks bring different sizes, two use one GPU, or the grid, the
    edges or the dtype do not fit.
    """
    comm = comm or talk.alone()
    machine = machine or Gpu()
    grid = Grid(comm.size, replicas)
    for name, value, known in (("b", b, LAYOUTS), ("c", c, LAYOUTS), ("first", first, split.FIRST)):
        require(value in known, f"{name} is {value!r}, but must be one of {', '.join(known)}")
    require_whole("n", n, 1, INT32_MAX, "2^31 - 1")
    if operands.is_scipy(a) and a.nnz > INT32_MAX:
        whole, of = a, (rows, columns)
        a = talk.together(comm, lambda: _part_of(whole, grid, comm, *of))
        rows = columns = None
    dtype = operands.dtype_name(dtype) or operands.dtype_named(a.slabs[0] if isinstance(a, Part) else a)
    slabs, rows, columns = talk.together(comm, lambda: _cut(a, grid, comm, rows, columns, accuracy, dtype))
    sizes = {"m": int(rows[-1]), "k": int(columns[-1][-1]), "n": int(n), "dtype": dtype, "chunks": chunks}
    sizes |= {"replicas": replicas, "b": b, "c": c, "rows": rows.tolist(), "columns": [x.tolist() for x in columns]}
    talk.same(comm, **sizes)
    if machine.uuid:
        talk.one_gpu_each(comm, machine.uuid)
    options = {"b": b, "c": c, "first": first, "accuracy": accuracy, "tune": tune}
    options["consumed"] = isinstance(a, Part) and a.consumed
    return Plan(machine, comm, grid, int(n), dtype, chunks, slabs, rows, columns, options)


def _edges(n: int, chunks: int | None, travels: bool) -> tuple[int, ...]:
    if chunks is None:
        chunks = max(1, min(MOST_CHUNKS, n // LEAST_CHUNK)) if travels else 1
    require_whole("chunks", chunks, 1, n)
    unit = 8 if n % 8 == 0 and chunks <= n // 8 else 1  # loads of 16 bytes stay aligned
    return tuple(int(x) for x in partition.even(n, chunks, unit))


def _part_of(a, grid: Grid, comm, rows, columns) -> Part:
    """Return a rank's rows, in slabs, of a SciPy matrix whose entries 32 bits do not count."""
    require(
        grid.replicas == 1,
        f"replicas is {grid.replicas}, but a matrix of {a.nnz} non-zeros is cut by rows alone: leave replicas out",
    )
    whole = foreign.checked(foreign.checked(a).tocsr(), everything=True)
    if rows is None:
        rows = partition.by_nonzeros(whole.indptr, comm.size)
    rows = partition.require_bounds("rows", rows, comm.size, whole.shape[0])
    begin, end = int(rows[comm.rank]), int(rows[comm.rank + 1])
    cuts = partition.slabs(whole.indptr[begin : end + 1])
    if columns is None and whole.shape[0] != whole.shape[1]:
        columns = partition.even(whole.shape[1], comm.size)
    return Part([csr.from_scipy(whole[begin + x : begin + y]) for x, y in cuts], rows, columns)


def _cut(a, grid: Grid, comm, rows, columns, accuracy, dtype: str):
    """Return this rank's slabs, the edges of its rows, and the edges of B for each slab.

    Slabs have the columns of the rank's column of the grid.

    A column of the grid has the columns columns[j][0] … columns[j][-1] - 1 of A.
    """
    i, j = grid.at(comm.rank)
    if isinstance(a, Part):
        require(
            grid.replicas == 1 and rows is None and columns is None,
            "a Part says itself which rows are whose, and is cut by rows: leave replicas, rows and columns out",
        )
        slabs = a.slabs
        for x in slabs:
            require(
                isinstance(x, Csr | Bcsr),
                f"the part of rank {comm.rank} is {type(x).__name__}, but must be Csr or Bcsr: convert it",
            )
            formats.validate(x)
        rows = np.asarray(a.rows, np.int64)
        rows = partition.require_bounds("rows", rows, grid.rows, int(rows[-1]))
        own = rows if a.columns is None else np.asarray(a.columns, np.int64)
        own = partition.require_bounds("columns", own, grid.rows, a.k, units(slabs[0])[1])
        mine, found = int(rows[i + 1] - rows[i]), sum(x.m for x in slabs)
        widths = sorted({x.k for x in slabs})
        require(
            len(widths) == 1,
            f"slabs of the part of rank {comm.rank} have {widths} columns, but must have those of the whole matrix",
        )
        require(
            found == mine,
            f"the part of rank {comm.rank} has {found} rows, but its edges say {mine}",
        )
        return slabs, rows, [own]
    whole = operands.operand(a, accuracy=accuracy, dtype=dtype)
    if not isinstance(whole, Csr | Bcsr):
        whole = operands.as_csr(whole)
    u_row, u_col = units(whole)
    if rows is None:
        rows = np.minimum(partition.by_nonzeros(whole.row_ptr, grid.rows) * u_row, whole.m)
    rows = partition.require_bounds("rows", rows, grid.rows, whole.m, u_row)
    classes = partition.even(whole.k, grid.replicas, u_col)
    if columns is not None:
        require(
            grid.replicas == 1,
            "columns are given, but replicas cut them too: leave one of both out",
        )
        every = [partition.require_bounds("columns", columns, grid.rows, whole.k, u_col)]
    elif grid.replicas == 1 and whole.m == whole.k and u_row == u_col:
        every = [rows]
    else:
        every = [x + partition.even(int(y - x), grid.rows, u_col) for x, y in zip(classes, classes[1:], strict=False)]
    local = rows_of(whole, int(rows[i]), int(rows[i + 1]))
    return [_columns_of(local, int(every[j][0]), int(every[j][-1]))], rows, every


def _columns_of(a, begin: int, end: int):
    """Return the columns of a part in a range, counted from its begin."""
    if (begin, end) == (0, a.k):
        return a
    unit = units(a)[1]
    first, last = begin // unit, -(-end // unit)
    kept = split.kept(a, (a.col_idx >= first) & (a.col_idx < last))
    return replace(kept, k=end - begin, col_idx=(kept.col_idx - first).astype(np.int32))


def _products(made: Plan, accuracy, tune: bool, in_place: bool) -> list[list[tuple]]:
    """For each chunk its products; chunks of one width share them. in_place: as `Gpu.product`'s."""
    known: dict[tuple, Any] = {}
    steps: list[list[tuple]] = []
    for chunk, width in enumerate(made.widths):
        steps.append([])
        for piece in made.pieces[min(chunk, 1)]:
            key = id(piece), width
            if key not in known:
                known[key] = made.machine.product(piece.a, width, made.dtype, accuracy, tune, in_place=in_place)
            steps[-1].append((known[key], piece.rows, piece.early, piece.adds))
    return steps


def _moves(made: Plan, of: halo.Exchange, unit: int, column) -> None:
    """For each chunk the calls that pack and send its rows.

    Where memory allows it, all are packed before the first one travels, so that exchanges follow each other without a
    kernel in between: products that fill the GPU would run before it, and the next exchange behind them. Who sends all
    of its rows, as with blocks all over a weight, packs nothing.
    """
    here, own = made.machine, (of.own[1] - of.own[0])
    complete = all(rows in (0, own) for rows in of.send_counts.tolist())
    count = 0 if complete else int(of.send_counts.sum())
    made._ahead = all(column.gather(complete or made.least_bytes <= MOST_AHEAD))
    shared = None if made._ahead else here.empty(count * unit, max(made.widths), made.dtype)
    for x in made._all.arrays:
        by_unit = x.reshape(-1, unit * x.shape[1])
        buffer = here.empty(count * unit, x.shape[1], made.dtype) if shared is None else shared
        packed = buffer.reshape(-1)[: count * by_unit.shape[1]].reshape(count, by_unit.shape[1])
        if complete:
            send = [by_unit[: int(rows)] for rows in of.send_counts]
        else:
            send = halo.split(packed, of.send_counts)
        go = column.ready(send, halo.split(by_unit[own:], of.recv_counts))

        def pack(stream, source=by_unit[:own], packed=packed):
            if not complete:
                here.gather(source, of.send, packed, stream)

        made._move.append((pack, go))
        made.sent_bytes += sum(s.nbytes for q, s in enumerate(send) if q != column.rank)


def _reduces(made: Plan, row) -> None:
    """Add up the sums of a row of the grid: each part gets the others' sums of its share of the rows."""
    first, last = made.c_rows
    edges = partition.even(last - first, row.size)
    begin, end = int(edges[row.rank]), int(edges[row.rank + 1])
    counts, after = np.diff(edges), []
    made._out = made._c.rows(begin, end)
    for c, mine in zip(made._c.arrays, made._out.arrays, strict=True):
        # What comes of this part itself is there already.
        into = [made.machine.empty((end - begin) * (q != row.rank), c.shape[1], made.dtype) for q in range(row.size)]
        send = halo.split(c, counts)
        send[row.rank] = into[row.rank]

        def add(mine=mine, into=into):
            total = half.from_bits(mine, made.dtype)
            for x in into[: row.rank] + into[row.rank + 1 :]:
                total += half.from_bits(x, made.dtype)
            if total is not mine:
                mine[...] = half.to_bits(total, made.dtype)

        after.append((row.ready(send, into), add))
        made.sent_bytes += c.nbytes - mine.nbytes
        made.least_bytes += c.nbytes - mine.nbytes
    made._after.append(after)
    made.c_rows = first + begin, first + end


def _spreads(made: Plan) -> None:
    """Every rank gets all of C."""
    comm, whole = made.comm, made.panels(made.m)
    ranges, after = comm.gather(made.c_rows), []
    for mine, every in zip(made._out.arrays, whole.arrays, strict=True):
        after.append((comm.ready([mine] * comm.size, [every[x:y] for x, y in ranges]), None))
        made.sent_bytes += (comm.size - 1) * mine.nbytes
        made.least_bytes += (comm.size - 1) * mine.nbytes
    made._after.append(after)
    made._out = whole
