"""What a room offers. The harness knows rooms through this module only.

A room is a package with

    VARIANTS: dict[str, Kernel]                 in the order in which the source introduces them
    problem(m=, n=, k=, density=, seed=)        -> Problem
    bind(variant, problem, device)              -> Bound     (compile + preprocess + upload, once)
    sweeps(preset)                              -> {experiment: [shape, ...]}
    BASELINES: tuple[str, ...]                  modules of `artifact.baselines` with the libraries
                                                that multiply the same operands
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from . import gpu, jit


@dataclass(frozen=True)
class Kernel:
    """One variant of a room: one idea, one `.cu` file."""

    name: str
    source: Path
    idea: str  #: one line, what this file does that the one before does not
    prediction: str = ""  #: what the idea should gain, written down before it was measured
    entries: tuple[str, ...] = ()  #: every template instantiation that `bind` may ask for
    published: bool = False  #: the source's own kernel, or a rung of ours
    spill_free: bool = True  #: no entry spills on any target: the tests ask each
    targets: tuple[str, ...] = jit.TARGETS  #: what it compiles for: wgmma, say, is for one only


@dataclass
class Operands:
    """A (m x k), B (k x n) and, on a device, the output C (m x n).

    One of A and B is a format of `kernels.formats`; the others are dense arrays, whose memory order
    is the room's.
    """

    a: Any
    b: Any
    c: Any = None
    stands: bool = False  #: B and C only have addresses, of which nothing may be read


@dataclass
class Problem:
    """One multiplication C = A . B, one of them sparse, as every contender of a measurement sees it.

    The operands are made on demand: `host()` gives NumPy arrays, `device()` CuPy arrays on the
    current GPU. Both makers yield the same bits, and both are cached until `release()`.
    """

    room: str
    label: str  #: name of a real matrix or of a pattern, "" for the room's usual generated one
    m: int
    n: int
    k: int
    nnz: int
    density: float  #: nominal share of non-zeros, as the source states it; nnz holds the true count
    seed: int
    useful_flops: int
    flops_def: str
    least_bytes: int  #: each operand read once, the output written once
    requested_bytes: int  #: what the source's kernel asks of the memory system, reuse not counted
    make_host: Callable[[], Operands] = field(repr=False)
    make_device: Callable[[], Operands] = field(repr=False)
    limit: str = ""  #: name of the error limit of its results; "": that of C's dtype
    orders: str = "CC"  #: memory orders of B and of C, each "C" or "F", where a room knows of others than rows
    #: The matrix on the host that the sparse operand was converted from, a `Csr` of the same values; None: it was drawn
    #: as it is. An oracle multiplies this one, which no conversion has touched.
    source: Any = field(default=None, repr=False)
    _host: Operands | None = field(default=None, repr=False)
    _device: Operands | None = field(default=None, repr=False)

    def host(self) -> Operands:
        if self._host is None:
            self._host = self.make_host()
        return self._host

    def device(self) -> Operands:
        """The operands on the current GPU. Raises NoGpu, one sentence, where CuPy is not installed."""
        if self._device is None:
            try:
                self._device = self.make_device()
            except ModuleNotFoundError as error:
                if error.name != "cupy":
                    raise
                raise gpu.NoGpu(gpu.NO_CUPY) from error
        return self._device

    def release(self) -> None:
        """Forget the operands, so that their memory can be reused."""
        self._host = self._device = None


class Bound(Protocol):
    """A contender that is ready to run: nothing but the kernel happens in `launch`."""

    name: str
    prepare_ms: float  #: offline preprocessing: format conversion, analysis; 0 where there is none
    prepare_bytes: int  #: device memory that the preprocessing leaves behind

    def launch(self, stream) -> None:
        """Enqueue the multiplication on a `cuda.core.Stream`.

        Two launches write the same output: unless its module says that they may overlap, whoever
        launches on several streams, or replays graphs on them, orders them.
        """

    def result(self):
        """The output C (m x n) as a CuPy array; a NumPy array where a CPU computes it."""


@dataclass
class Launch:
    """The usual `Bound`: a fixed list of (kernel, config, arguments) to enqueue."""

    name: str
    steps: list[tuple[Any, Any, tuple]]
    output: Any
    prepare_ms: float = 0.0
    prepare_bytes: int = 0
    keep: tuple = ()  #: device arrays that the raw pointers in `steps` refer to
    accumulates: bool = False  #: the kernels add to the output, so a launch clears it first
    #: arrays that launches write besides the output: counters and sums, zeros before the first one, and copies
    scratch: tuple = ()

    def launch(self, stream) -> None:
        from cuda.core import launch

        if self.accumulates:
            _clear(getattr(self.output, "bits", self.output), stream)  # a Half's array
        for kernel, config, arguments in self.steps:
            launch(stream, config, kernel, *arguments)

    def result(self):
        return self.output


_rehearsed = ContextVar("rehearsed", default=True)


@contextmanager
def unrehearsed():
    """Where nobody asks how long preparation takes: `timed` works once meanwhile."""
    token = _rehearsed.set(False)
    try:
        yield
    finally:
        _rehearsed.reset(token)


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    """(result, milliseconds) of GPU preprocessing; a first run lets kernels of it be compiled."""
    import cupy

    if not _rehearsed.get():
        begin = time.perf_counter()
        return work(), (time.perf_counter() - begin) * 1e3
    work()
    cupy.cuda.get_current_stream().synchronize()
    begin = time.perf_counter()
    result = work()
    cupy.cuda.get_current_stream().synchronize()
    return result, (time.perf_counter() - begin) * 1e3


def _clear(array, stream) -> None:
    """Enqueue zeros for the whole of a contiguous array, as a launch of a kernel would be."""
    from cuda.bindings import driver

    (error,) = driver.cuMemsetD8Async(array.data.ptr, 0, array.nbytes, int(stream.handle))
    if error != driver.CUresult.CUDA_SUCCESS:
        raise RuntimeError(f"clearing {array.nbytes} bytes of the output failed ({error.name})")


def require_whole(name: str, value, least: int, most: int, limit: str = "") -> None:
    """Raise ValueError unless `value` is an integer, Python's or NumPy's, from `least` to `most`.

    limit: how the message writes `most`, "2^31 - 1" say.
    """
    require(
        isinstance(value, (int, np.integer)) and least <= int(value) <= most,
        f"{name} is {value!r}, but must be a whole number from {least} to {limit or most}",
    )


def require_seed(seed) -> None:
    """Raise ValueError unless `seed` is what a generator takes: 0 to 2^32 - 1."""
    require_whole("seed", seed, 0, 2**32 - 1, "2^32 - 1")


def require(condition: Any, message: str) -> None:
    """Raise ValueError(message) unless `condition` holds: the one-sentence errors of `bind`."""
    if not condition:
        raise ValueError(message)
