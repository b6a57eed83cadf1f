"""What a case of `cases` is given: the GPU, the same with few multiprocessors, a stream, and the look at a product."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cached_property, partial
from typing import Any

import numpy as np

from artifact.measure import check
from kernels import tma
from kernels.contract import Problem
from kernels.formats.eight import Eight
from kernels.formats.half import Half, array_of

SMS = 4  #: that a kernel is told of, so that blocks that stay have several tiles of a small problem each
#: Kernels that ask the GPU itself which multiprocessor they run on.
WHOLE = ("wgmma_gpc",)

#: A name, and what runs a kernel twice and compares; it raises ValueError where the problem is none of the kernel's.
Case = tuple[str, Callable[[], None]]


class Few:
    """A `cuda.core.Device` that says it has `SMS` multiprocessors."""

    def __init__(self, device):
        self._device, self.properties = device, _Properties(device.properties)

    def __getattr__(self, name: str):
        return getattr(self._device, name)


class _Properties:
    multiprocessor_count = SMS

    def __init__(self, real):
        self._real = real

    def __getattr__(self, name: str):
        return getattr(self._real, name)


class Asked:
    """A problem, and its product in float64 from the operands of the host."""

    def __init__(self, problem: Problem):
        self.problem = problem

    @cached_property
    def right(self) -> check.Reference:
        return check.oracle(self.problem, on="cpu")


class Lab:
    """tool: what watches, such as "initcheck", or "" where nobody does."""

    def __init__(self, device, tool: str = ""):
        self.device, self.few, self.tool = device, Few(device), tool
        self.stream = device.create_stream()

    def products(self, problem: Problem, binds: dict[str, Callable[[Problem, Any], Any]], right=None) -> Iterable[Case]:
        """A case for each kernel on a problem. binds: name -> what makes it ready, of a problem and a device; right:
        what comes out, where that is not the product."""
        asked = Asked(problem)
        for name, bind in binds.items():
            yield (
                f"{name}, {check.describe(problem)}",
                partial(self.product, asked, name, bind, right),
            )

    def product(self, asked: Asked, name: str, bind, right: check.Reference | None) -> None:
        with tma.recorded() as maps:
            bound = bind(asked.problem, self.device if name in WHOLE else self.few)
        self.ready(bound.result(), maps)
        for _ in range(2):  # counters, flags and sums are as the first launch has left them
            bound.launch(self.stream)
            self.stream.sync()
        check.compare(here(bound.result()), right or asked.right, name, asked.problem.limit)

    def ready(self, out, maps=()) -> None:
        """Whatever CuPy enqueued is done, and out is NaN; but for initcheck, which finds who reads what nobody wrote.

        It does not see what tensor maps write (Compute Sanitizer's known limitations), so their arrays are written by
        copies first: what they held.
        """
        import cupy

        if self.tool != "initcheck":
            stored = array_of(out)
            stored.data.memset(0xFF, stored.nbytes)
        else:
            for _, said in maps.values() if maps else ():
                _rewrite(said)
        cupy.cuda.runtime.deviceSynchronize()


def here(x):
    """A result on the host, in its memory order: no kernel of CuPy's brings it into another."""
    if isinstance(x, Half):
        return Half(x.dtype, here(x.bits))
    if isinstance(x, Eight):
        return Eight(x.dtype, here(x.bits), x.scale.get())
    return x.T.get().T if x.flags.f_contiguous else x.get()


def _rewrite(said: tma.Mapped) -> None:
    import cupy

    runtime = cupy.cuda.runtime
    rows, columns = said.shape
    size = (rows - 1) * said.strides[0] + columns * said.strides[1]
    held = np.empty(size, np.uint8)
    runtime.memcpy(held.ctypes.data, said.address, size, runtime.memcpyDeviceToHost)
    runtime.memcpy(said.address, held.ctypes.data, size, runtime.memcpyHostToDevice)
