"""NVIDIA's libraries without a GPU: arrays on the CPU that pass for CuPy's, and modules in its place."""

import ctypes
import sys
import types
from types import SimpleNamespace

import numpy as np

from artifact import bench
from kernels.contract import Operands, Problem
from kernels.formats import two_four
from kernels.formats.half import Half
from kernels.formats.two_four import TwoFour
from kernels.tensor_core_24 import operands

DEVICE = SimpleNamespace(set_current=lambda: None)
STREAM = SimpleNamespace(handle=7, sync=lambda: None)


class Array(np.ndarray):
    """A NumPy array that has what is used of CuPy's."""

    @property
    def data(self):
        return SimpleNamespace(ptr=self.ctypes.data if self.size else 0)

    def get(self, order="C"):
        return np.array(self, order=order, subok=False)


class Library(types.ModuleType):
    """A module of `nvmath.bindings` that hands out numbers and logs what it is asked.

    log: (kind, *arguments); alive: the numbers that were made and not destroyed.
    """

    def __init__(self, name: str):
        super().__init__(name)
        self.alive, self.made, self.log = set(), {}, []

    def make(self, kind: str, *arguments) -> int:
        thing = len(self.made) + 1
        self.made[thing] = (kind, *arguments)
        self.alive.add(thing)
        self.log.append((kind, *arguments))
        return thing

    def unmake(self, thing: int) -> None:
        self.alive.remove(thing)  # twice is a KeyError
        self.log.append(("destroy", thing))

    def what(self, thing: int) -> tuple:
        """The arguments that a thing which is still there was made with."""
        assert thing in self.alive, f"{self.made[thing]} was destroyed before it was used"
        return self.made[thing][1:]

    def count(self, kind: str) -> int:
        return sum(entry[0] == kind for entry in self.log)


def array(shape, dtype) -> Array:
    return np.zeros(shape, dtype).view(Array)


def at(address: int, shape, dtype) -> np.ndarray:
    """The row-major array at an address, to read and to write."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    return np.frombuffer((ctypes.c_byte * size).from_address(address), dtype).reshape(shape)


def install(monkeypatch, *libraries: types.ModuleType) -> types.ModuleType:
    """Put modules in the place of `nvmath.bindings`', and just enough of CuPy, which is returned."""
    cupy = types.ModuleType("cupy")
    cupy.uint8 = np.uint8
    cupy.empty = array
    cupy.array = lambda x, order: np.array(x, order=order).view(Array)
    cupy.full_like = lambda x, value: np.full_like(x, value)
    cupy.ascontiguousarray = lambda x: np.ascontiguousarray(x).view(Array)
    stream = SimpleNamespace(ptr=0, synchronize=lambda: None)
    cupy.cuda = SimpleNamespace(get_current_stream=lambda: stream)
    bindings = types.ModuleType("nvmath.bindings")
    for library in libraries:
        setattr(bindings, library.__name__, library)
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    monkeypatch.setitem(sys.modules, "nvmath", types.ModuleType("nvmath"))
    monkeypatch.setitem(sys.modules, "nvmath.bindings", bindings)
    return cupy


def two_four_problem(monkeypatch, m, n, k, dtype="bfloat16") -> Problem:
    """A problem of the room tensor_core_24 whose device operands are arrays of the fake CuPy."""
    problem = operands.problem(m, n, k, seed=1, dtype=dtype)
    host = problem.host()
    a, b = host.a, host.b
    problem._device = Operands(
        TwoFour(m, k, dtype, a.val.view(Array), a.meta.view(Array)),
        Half(dtype, b.bits.view(Array)),
        Half(dtype, array((m, n), np.uint16)),
    )
    expand = two_four.to_dense_bits
    monkeypatch.setattr(two_four, "to_dense_bits", lambda a: expand(a).view(Array))
    return problem


class Timer:
    """Takes the place of `bench.time`: launches each contender once; its time is what one says.

    us(name, round) gives microseconds; seen: the names of each round.
    """

    def __init__(self, monkeypatch, us):
        self.us, self.seen = us, []
        monkeypatch.setattr(bench, "time", self)

    def __call__(self, contenders, device, **budget):
        assert device is DEVICE
        self.seen.append(list(contenders))
        for contender in contenders.values():
            contender.launch(STREAM)
        time = {name: self.us(name, len(self.seen) - 1) for name in contenders}
        return {name: SimpleNamespace(median_us=us) for name, us in time.items()}
