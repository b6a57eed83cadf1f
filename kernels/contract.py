"""What a room offers. The harness knows rooms through this module only.

A room is a package with

    VARIANTS: dict[str, Kernel]                 in the order in which the source introduces them
    problem(m=, n=, k=, density=, seed=)        -> Problem
    bind(variant, problem, device)              -> Bound     (compile + preprocess + upload, once)
    sweeps(preset)                              -> {experiment: [shape, ...]}
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol


@dataclass(frozen=True)
class Kernel:
    """One variant of a room: one idea, one `.cu` file."""

    name: str
    source: Path
    idea: str  #: one line, what this file does that the one before does not
    prediction: str = ""  #: what the idea should gain, written down before it was measured
    entries: tuple[str, ...] = ()  #: every template instantiation that `bind` may ask for
    published: bool = False  #: the source's own kernel, or a rung of ours
    spill_free: bool = True  #: the tests hold every entry to it, on every target


@dataclass
class Operands:
    """A (a format of `kernels.formats`), B (k x n) and, on a device, the output C (m x n)."""

    a: Any
    b: Any
    c: Any = None


@dataclass
class Problem:
    """One multiplication C = A . B with A sparse, as every contender of a measurement sees it.

    The operands are made on demand: `host()` gives NumPy arrays, `device()` CuPy arrays on the
    current GPU. Both makers yield the same bits, and both are cached until `release()`.
    """

    room: str
    label: str  #: name of a real matrix, "" for a generated one
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
    _host: Operands | None = field(default=None, repr=False)
    _device: Operands | None = field(default=None, repr=False)

    def host(self) -> Operands:
        if self._host is None:
            self._host = self.make_host()
        return self._host

    def device(self) -> Operands:
        if self._device is None:
            self._device = self.make_device()
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
        """Enqueue the multiplication on a `cuda.core.Stream`."""

    def result(self):
        """The output C as a CuPy array (m x n, float32, row-major)."""


@dataclass
class Launch:
    """The usual `Bound`: a fixed list of (kernel, config, arguments) to enqueue."""

    name: str
    steps: list[tuple[Any, Any, tuple]]
    output: Any
    prepare_ms: float = 0.0
    prepare_bytes: int = 0
    keep: tuple = ()  #: device arrays that the raw pointers in `steps` refer to

    def launch(self, stream) -> None:
        from cuda.core import launch

        for kernel, config, arguments in self.steps:
            launch(stream, config, kernel, *arguments)

    def result(self):
        return self.output


def require(condition: bool, message: str) -> None:
    """Raise ValueError(message) unless `condition` holds: the one-sentence errors of `bind`."""
    if not condition:
        raise ValueError(message)
