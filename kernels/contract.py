"""What a system offers. The harness knows systems through this module only.

A system is a package with

    VARIANTS: dict[str, Kernel]                 in the order in which the source introduces them
    problem(m=, n=, k=, density=, seed=)        -> Problem
    prepare(variant, problem, device)           -> PreparedKernel     (compile + preprocess + upload, once)
    sweeps(preset)                              -> {experiment: [shape, ...]}
    BASELINES: tuple[str, ...]                  modules of `artifact.baselines`, or "module.part"
                                                that multiply the same operands
    FAMILIES: dict[str, Family]                 where it has any: configurations that the library chooses among
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from enum import IntEnum
from math import prod
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Protocol

import numpy as np

from . import gpu, jit, tma, workspace
from .lazy import core, cupy


@dataclass(frozen=True)
class Kernel:
    """One variant of a system: one idea, one `.cu` file."""

    name: str
    source: Path
    idea: str  #: one line, what this file does that the one before does not
    prediction: str = ""  #: what the idea should gain, written down before it was measured
    entries: tuple[str, ...] = ()  #: every template instantiation that `prepare` may ask for
    published: bool = False  #: the source's own kernel, or a rung of ours
    spill_free: bool = True  #: no entry spills on any target: the tests ask each
    targets: tuple[str, ...] = jit.TARGETS  #: what it compiles for: wgmma, say, is for one only


class Operand(IntEnum):
    """An array that each call of a plan brings: what stands among a launch's arguments in place of its address.

    A number, since binding asks how an address is aligned: as all that a plan hands on are, at multiples of 16 bytes,
    but values at any of 4.
    """

    B = 0
    OUT = 16
    VALUES = 36  #: A's, where they may change


class Slot:
    """An `Operand`, or an address, as binding sees it: what a CuPy array says of itself, without memory."""

    def __init__(self, operand: Operand | int, shape: tuple[int, ...], dtype, order: str = "C"):
        """Describe a matrix, or a vector, without gaps.

        order: "C" for rows, "F" for columns that lie side by side.
        """
        self.operand, self.shape, self.dtype = operand, shape, np.dtype(dtype)
        self.itemsize, self.size, self.ndim = self.dtype.itemsize, prod(shape), len(shape)
        self.nbytes = self.size * self.itemsize
        self.order = order
        lines = shape if order == "C" else shape[::-1]
        strides = tuple(self.itemsize * prod(lines[i + 1 :]) for i in range(self.ndim))
        self.strides = strides if order == "C" else strides[::-1]
        line = self.size == max(shape, default=1)  # lies either way
        self.flags = SimpleNamespace(c_contiguous=order == "C" or line, f_contiguous=order == "F" or line)
        self.data = SimpleNamespace(ptr=operand)

    @property
    def T(self) -> Slot:
        """Return the transpose, without moving anything."""
        return Slot(self.operand, self.shape[::-1], self.dtype, "F" if self.order == "C" else "C")

    def reshape(self, shape) -> Slot:
        """Return A row-major one in another shape; -1: a vector."""
        return Slot(self.operand, (self.size,) if shape == -1 else shape, self.dtype)


@dataclass
class Operands:
    """A (m x k), B (k x n) and, on a device, the output C (m x n).

    One of A and B is a format of `kernels.formats`; the others are dense arrays, whose memory order
    is the system's. What a plan is made for has `Slot`s in place of dense arrays.
    """

    a: Any
    b: Any
    c: Any = None


@dataclass(kw_only=True)
class Multiplication:
    """C = A . B, one of them sparse: what a kernel is bound to.

    The operands are made on demand: `host()` gives NumPy arrays, `device()` CuPy arrays on the
    current GPU. Both makers yield the same bits, and both are cached until `release()`.
    """

    m: int
    n: int
    k: int
    nnz: int
    make_host: Callable[[], Operands] = field(repr=False)
    make_device: Callable[[], Operands] = field(repr=False)
    limit: str = ""  #: name of the error limit of its results; "": that of C's dtype
    orders: str = "CC"  #: memory orders of B and of C, each "C" or "F", where a system knows of others than rows
    #: The matrix on the host that the sparse operand was converted from, a `Csr` of the same values; None: it was drawn
    #: as it is. An oracle multiplies this one, which no conversion has touched.
    source: Any = field(default=None, repr=False)
    _host: Operands | None = field(default=None, repr=False)
    _device: Operands | None = field(default=None, repr=False)

    def host(self) -> Operands:
        """Return the operands in host memory, made once."""
        if self._host is None:
            self._host = self.make_host()
        return self._host

    def device(self) -> Operands:
        """Return the operands on the current GPU. Raises NoGpu, one sentence, where CuPy is not installed."""
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


@dataclass(kw_only=True)
class Problem(Multiplication):
    """A multiplication as every contender of a measurement sees it, with what its record says of it."""

    room: str
    label: str  #: name of a real matrix or of a pattern, "" for the system's usual generated one
    density: float  #: nominal share of non-zeros, as the source states it; nnz holds the true count
    seed: int
    useful_flops: int
    flops_def: str
    least_bytes: int  #: each operand read once, the output written once
    requested_bytes: int  #: what the source's kernel asks of the memory system, reuse not counted


class PreparedKernel(Protocol):
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
        """Return the output C (m x n) as a CuPy array; a NumPy array where a CPU computes it."""


@dataclass
class Launch:
    """The usual `PreparedKernel`: a fixed list of (kernel, config, arguments) to enqueue.

    Arguments are NumPy's numbers, addresses, tensor maps as `tma.Mapped`, and arrays, which it keeps and whose
    addresses kernels get; where it is bound to `Slot`s, an address may be an `Operand`, which a plan fills in.
    """

    name: str
    steps: list[tuple[Any, Any, tuple]]
    output: Any
    prepare_ms: float = 0.0
    prepare_bytes: int = 0
    keep: tuple = ()  #: device arrays that raw pointers in `steps` refer to
    accumulates: bool = False  #: the kernels add to the output, so a launch clears it first
    #: arrays that launches write besides the output: counters and sums, zeros before the first one, and copies
    scratch: tuple = ()

    #: the steps as they were given, whose arrays live as long; with addresses for these; in `steps`, which are
    #: launched, tensor maps are encoded
    given: list[tuple[Any, Any, tuple]] = field(init=False, repr=False)
    named: list[tuple[Any, Any, tuple]] = field(init=False)

    def __post_init__(self):
        self.given = self.steps
        self.named = [(kernel, config, tuple(map(_addressed, given))) for kernel, config, given in self.steps]
        self.steps = [(kernel, config, tuple(map(_encoded, given))) for kernel, config, given in self.named]

    def launch(self, stream) -> None:
        """Enqueue the steps on a `cuda.core.Stream`."""
        if self.accumulates:
            gpu.set_bytes(getattr(self.output, "bits", self.output), 0, stream)  # a Half's array
        for kernel, config, arguments in self.steps:
            core.launch(stream, config, kernel, *arguments)

    def result(self):
        """Return the output."""
        return self.output


def _addressed(x):
    return x if isinstance(x, tma.Mapped) else workspace.argument(x)


def _encoded(x):
    """Return an argument as kernels take it: tensor maps of what is there are encoded, before a capture forbids it."""
    return tma.encoded(x) if isinstance(x, tma.Mapped) and not isinstance(x.address, Operand) else x


def step(
    job: tuple[Path, str], device, grid, block, arguments: Iterable, shared: int = 0, cluster=None
) -> tuple[Any, Any, tuple]:
    """Return a step of a `Launch`, (kernel, config, arguments), of a template instantiation, compiled and loaded.

    job: (source, entry). grid, block: numbers, or a tuple of them. arguments: Python's integers become int32, None an
    address of nothing; arrays, NumPy's numbers and tensor maps stay. shared: bytes of dynamic shared memory. cluster:
    its blocks, of which the grid then counts clusters.
    """
    how = workspace.config(grid, block, shared, cluster)
    given = (np.int32(x) if isinstance(x, int) else 0 if x is None else x for x in arguments)
    return jit.loaded(*job, device, shared), how, tuple(given)


@dataclass(frozen=True)
class Family:
    """Configurations of a system that do the same, and how the library chooses among them: an entry of its `FAMILIES`.

    p: a `Multiplication`; device: a current `cuda.core.Device`.
    """

    prepare: Callable[[str, Any, Any, Any], Any]  #: (name, p, device, configuration): a `Launch`
    candidates: Callable[[Any, Any], list]  #: (p, device): what takes p and may be the fastest
    fits: Callable[[Any, Any, Any], bool]  #: (configuration, p, device): whether it takes p
    tune: Callable[[Any, Any], Any] | None = None  #: (p, device): the `autotune.Winner` of trials; None: nothing to try
    choices: Any = None  #: `autotune.Choices`, where winners are kept; None: nowhere, and configurations are names
    key: Callable[[Any], tuple] | None = None  #: (p): what a winner is kept under
    cost: Callable[[Any, Any, Any], float] | None = None  #: (configuration, p, device): as predicted; None: in order

    def likely(self, p, device):
        """Return the best candidate by prediction. Raises ValueError, one sentence, where there is none."""
        configs = self.candidates(p, device)
        if not configs and self.tune:
            self.tune(p, device)  # which says why
        return min(configs, key=lambda config: self.cost(config, p, device) if self.cost else 0)


def single(name: str, prepare: Callable[..., PreparedKernel]) -> Family:
    """Return the `Family` of one kernel, which is its own configuration; bind: of (name, p, device)."""
    return Family(
        prepare=lambda _, p, device, config: prepare(config, p, device),
        candidates=lambda p, device: [name],
        fits=lambda config, p, device: config == name,
    )


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
    """Return (result, milliseconds) of GPU preprocessing; a first run lets kernels of it be compiled."""
    if not _rehearsed.get():
        begin = time.perf_counter()
        return work(), (time.perf_counter() - begin) * 1e3
    work()
    cupy.cuda.get_current_stream().synchronize()
    begin = time.perf_counter()
    result = work()
    cupy.cuda.get_current_stream().synchronize()
    return result, (time.perf_counter() - begin) * 1e3


def require_whole(name: str, value, least: int, most: int, limit: str = "") -> int:
    """Return `value` as Python's integer, since NumPy's would wrap in products; ValueError unless it is one in limits.

    least, most: those limits. limit: how the message writes `most`, "2^31 - 1" say.
    """
    require(
        isinstance(value, (int, np.integer)) and least <= int(value) <= most,
        f"{name} is {value!r}, but must be a whole number from {least} to {limit or most}",
    )
    return int(value)


def require_seed(seed) -> None:
    """Raise ValueError unless `seed` is what a generator takes: 0 to 2^32 - 1."""
    require_whole("seed", seed, 0, 2**32 - 1, "2^32 - 1")


def require(condition: Any, message: str, error: type[Exception] = ValueError) -> None:
    """Raise ValueError(message), or another error, unless `condition` holds: the one-sentence errors of `prepare`."""
    if not condition:
        raise error(message)


def holds(check: Callable[..., Any], *given) -> bool:
    """Whether a check of what is given raises no ValueError."""
    try:
        check(*given)
    except ValueError:
        return False
    return True


Bound = PreparedKernel  # its former name
