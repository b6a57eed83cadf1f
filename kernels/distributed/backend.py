"""Where a part is multiplied.

A GPU, with CuPy's arrays, or the host, with NumPy's, so that all but the GPU is tested without one.

Both make local products, gather rows, and keep time on streams: CuPy's, or `Now`, on which everything happens at once.
"""

import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from .. import formats, gpu, jit, library, workspace
from ..async_sparse import any_csr
from ..async_sparse.windows import Union
from ..autotune import knobs
from ..formats import csr, half
from ..formats.csr import Csr
from ..formats.half import Half
from ..lazy import Lazy, core
from ..library import current, dense, operands, plans, routes
from . import partition

cupyx = Lazy("cupyx")

SOURCE = Path(__file__).with_name("gather_rows.cu")
#: Bytes -> what gather_rows.cu moves at a time.
WORDS = {16: "uint4", 8: "uint2", 4: "unsigned", 2: "unsigned short"}
THREADS, MOST_BLOCKS = 256, 132 * 16
#: More non-zeros than this are not tried with several kernels: that sorts them, which takes seconds and memory.
TRIED = 50_000_000
#: Non-zeros of the rows that stand for a large part when its kernel is chosen.
SAMPLE = 2_000_000

Product = Callable[..., None]  #: (b, out, adds, stream) -> None


class Now(nullcontext):
    """A stream of the host: what is enqueued is done at once, and a mark is a time."""

    def record(self):
        """Return a point in time."""
        return time.perf_counter()

    def wait_event(self, mark) -> None:
        """Wait for a mark, which is past."""


class Host:
    """NumPy's arrays; products in float64, rounded once."""

    xp: Any = np
    to_here: Callable = staticmethod(formats.to_host)  #: a matrix -> the same in this machine's memory
    empty_pinned: Callable = staticmethod(np.empty)  #: (shape, dtype) -> an array of the host, to copy from
    caller: Callable[[], Any] = Now  #: () -> the stream that is the current one
    stream: Callable[..., Any] = staticmethod(lambda **how: Now())  #: a new one; priority: as CuPy's
    ms: Callable[[Any, Any], float] = staticmethod(lambda begin, end: 1e3 * (end - begin))  #: between two marks

    def empty(self, rows: int, columns: int, dtype: str):
        """Of float32, or bit patterns of a 16-bit dtype."""
        return self.xp.empty((rows, columns), csr.storage(dtype))

    def product(
        self, a, n: int, dtype: str, accuracy: str | None, tune: bool, *, choice: str = "", in_place: bool = False
    ) -> Product:
        """out = A B, or out += A B, of a part in CSR or BCSR, whose values are those at the time of the call."""

        def multiply(b, out, adds: bool = False, stream=None) -> None:
            matrix = csr.to_scipy(formats.to_csr(a)).astype(np.float64)
            made = matrix @ half.from_bits(b, dtype).astype(np.float64)
            if adds:
                made += half.from_bits(out, dtype)
            out[...] = half.to_bits(made.astype(np.float32), dtype)

        return multiply

    def gather(self, b, ids, out, stream=None) -> None:
        """Copy rows of B, by their numbers, into `out`."""
        np.take(b, ids, axis=0, out=out)

    def pinned(self, x: np.ndarray) -> np.ndarray:
        """Return a copy on the host from which copies to the GPU need no other."""
        made = self.empty_pinned(x.shape, x.dtype)
        made[...] = x
        return made

    def copy(self, source: np.ndarray, to, stream=None) -> None:
        """Copy an array of the host into `to`."""
        to[...] = source

    def sync(self) -> None:
        """Wait for all work."""


class Gpu(Host):
    """CuPy's arrays on one GPU, by CUDA's number, by default the current one; local products are plans of `library`."""

    to_here = staticmethod(formats.to_device)
    empty_pinned = staticmethod(lambda shape, dtype: cupyx.empty_pinned(shape, dtype))

    def __init__(self, ordinal: int | None = None):
        self.xp, self.ordinal = dense.need_cupy(), current.ordinal_for(None) if ordinal is None else ordinal
        self.device: Any = gpu.open_device(self.ordinal)
        self.xp.cuda.Device(self.ordinal).use()
        self.caller, self.ms = self.xp.cuda.get_current_stream, self.xp.cuda.get_elapsed_time
        self.stream = partial(self.xp.cuda.Stream, non_blocking=True)

    def product(
        self, a, n: int, dtype: str, accuracy: str | None, tune: bool, *, choice: str = "", in_place: bool = False
    ) -> Product:
        """As `Host.product`.

        choice: of a kernel for CSR and float32, which then needs only where rows begin. in_place: by a kernel for
        these that reads entries where they lie; other kinds are converted as they need it.
        """
        asked = operands.resolved(accuracy, dtype)
        exact = isinstance(a, Csr) and dtype == "float32" and asked == "fp32"
        free = self.xp.get_default_memory_pool().free_all_blocks
        made: Any = None
        # Of nothing there are no statistics.
        if exact and a.m > 0 and a.nnz > 0 and (choice or in_place or a.nnz > TRIED):
            way = routes.Route("async_sparse", "auto_fp32", "float32", a=a)
            build = partial(plans.built, way, n, dtype, asked, self.device, False)
            try:
                made = build(choice or choice_of(a, n, in_place))
            except MemoryError:  # its frames hold what was made so far: nothing is free before this block's end
                if choice or in_place:
                    raise
            if made is None:
                # Groups of rows are made beside A, for which there was no room: single rows lie there already.
                free()
                made = build(choice_of(a, n, in_place=True))
        else:
            made = library.plan(a, n, dtype=dtype, accuracy=accuracy, tune=tune, device=self.ordinal)
        wrap = partial(Half, dtype) if dtype in half.DTYPES else lambda x: x
        self.device.sync()
        free()  # what stood for B and out

        def multiply(plan, b, out, adds: bool = False, stream=None) -> None:
            plan(wrap(b), wrap(out), beta=1.0 if adds else 0.0, stream=stream)

        return partial(multiply, made)

    def gather(self, b, ids, out, stream=None) -> None:
        """Copy rows of B, by their numbers, into `out`."""
        rows, size = int(ids.shape[0]), b.shape[1] * b.dtype.itemsize
        if rows == 0:
            return
        word = next(w for w in WORDS if size % w == 0 and not (b.data.ptr | out.data.ptr) % w)
        kernel = jit.loaded(SOURCE, f"gather_rows<{WORDS[word]}>", self.device)
        config = core.LaunchConfig(grid=min(MOST_BLOCKS, -(-rows * (size // word) // THREADS)), block=THREADS)
        sizes, addresses = (np.int64(rows), np.int32(size // word)), (x.data.ptr for x in (ids, b, out))
        core.launch(self._stream(stream), config, kernel, *sizes, *addresses)

    def copy(self, source: np.ndarray, to, stream=None) -> None:
        """Copy an array of the host into `to` on a stream."""
        if source.size:
            to.set(source, stream)

    def _stream(self, stream):
        return workspace.stream_at((stream or self.caller()).ptr, self.device)

    def sync(self) -> None:
        """Wait for all work of the GPU."""
        self.device.sync()


@dataclass
class Times:
    """Milliseconds of a call: of this rank's streams. Communication and multiplication go on at the same time."""

    total: float = 0.0
    communication: float = 0.0  #: packing and exchange of B, or copies of A
    waiting: float = 0.0  #: products waited for what travels
    multiplication: float = 0.0


class Streams:
    """A machine's streams of products and of what travels, behind the caller's, call after call; what they do when."""

    def __init__(self, machine):
        self.machine, self._spans = machine, defaultdict(list)
        # Of what travels, kernels get the next multiprocessors that are free.
        self.products, self.travels = machine.stream(), machine.stream(priority=-1)
        self._end = machine.caller().record()

    def begin(self):
        """Let both wait for the caller, and for the call before, whose buffers they write; return the mark of that."""
        self._spans.clear()
        for mark in (self.machine.caller().record(), self._end):
            for stream in (self.products, self.travels):
                stream.wait_event(mark)
        self._start = self.products.record()
        return self._start

    def spend(self, name: str, stream, *works: Callable[..., Any]) -> Any:
        """Enqueue `work(stream)` of each; the mark of their end. name: what the time between counts as."""
        begin = stream.record()
        for work in works:
            work(stream)
        end = stream.record()
        self._spans[name].append((begin, end))
        return end

    def waiting(self, mark) -> None:
        """Let products wait for a mark of what travels."""
        self.spend("waiting", self.products, lambda stream: stream.wait_event(mark))

    def end(self, *marks) -> None:
        """Let the caller wait for the last product, and for these."""
        self._end = self.products.record()
        for mark in (self._end, *marks):
            self.machine.caller().wait_event(mark)

    def times(self) -> Times:
        """Of the last call, by `spend`'s names; waits for its end."""
        here = self.machine
        here.sync()
        sums = {name: sum(here.ms(*span) for span in every) for name, every in self._spans.items()}
        return Times(here.ms(self._start, self._end), **sums)


def choice_of(a: Csr, n: int, in_place: bool = False) -> str:
    """Return the kernel for a large CSR matrix, by the model's prediction for some of its rows, as a plan calls it.

    Statistics need a sort of all entries, so rows from the middle stand for the rest; kernels that put similar rows
    side by side are left out, since the order is one of all rows. in_place: only those of single rows, which alone read
    entries where they lie.
    """
    middle = a.m // 2
    of = any_csr.statistics(partition.rows_of(a, *next(partition.cut(a.row_ptr, SAMPLE, middle))))
    grown, longest = a.nnz / max(1, of.nnz), int((a.row_ptr[1:] - a.row_ptr[:-1]).max())
    columns = {how: tuple(int(x * grown) for x in every) for how, every in of.columns.items()}
    whole = replace(of, m=a.m, k=a.k, nnz=a.nnz, longest=longest, columns=columns)
    every = any_csr.ranked("fp32", whole, n)
    best = next(c for c in every if isinstance(c, Union) and not c.order and (c.rows == 1 or not in_place))
    return f"union {knobs(best)}"
