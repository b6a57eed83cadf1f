"""A GPU that is not there: CuPy's arrays are NumPy's with an address, kernels are names, and launches a list.

What runs is all that happens on the host: the conversion of A, a system's bind, the plan's arguments.
"""

import ctypes
import re
import sys
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
import twins

from kernels import formats, jit, workspace
from kernels.contract import Operands, Problem
from kernels.formats.half import Half, array_of
from kernels.library import current


class Array(np.ndarray):
    """What the systems ask of CuPy's arrays."""

    @property
    def data(self):
        def memset_async(value, size):
            np.asarray(self).view(np.uint8)[...] = value

        def copy_from_device(other, size):
            ctypes.memmove(self.ctypes.data, other.ptr, size)

        at = {"ptr": self.ctypes.data, "device_id": 0}
        return SimpleNamespace(**at, memset_async=memset_async, copy_from_device=copy_from_device)

    @property
    def device(self):
        return SimpleNamespace(id=0)

    @property
    def __cuda_array_interface__(self):
        return {"shape": self.shape, "typestr": self.dtype.str, "version": 3}

    def get(self) -> np.ndarray:
        return np.asarray(self)


class Cupy(ModuleType):
    """NumPy, whose functions return such arrays."""

    ndarray = Array
    cuda = SimpleNamespace(
        get_current_stream=lambda device=-1: SimpleNamespace(synchronize=lambda: None, ptr=0),
        Device=lambda: SimpleNamespace(id=0),
        runtime=SimpleNamespace(getDevice=lambda: 0, deviceSynchronize=lambda: None),
    )

    @staticmethod
    def argsort(x, **_):
        return as_array(np.argsort(x, kind="stable"))

    def __getattr__(self, name: str):
        found = getattr(np, name)
        if isinstance(found, type) or not callable(found):
            return found

        def wrapped(*given, **options):
            return as_array(found(*given, **options))

        return wrapped


class Strict(Cupy):
    """CuPy that has what needs no compiler: copies of memory, and what libraries do."""

    ALLOWED = "empty", "zeros", "asarray", "sort", "argsort", "empty_like", "ndarray", "cuda"

    def __getattr__(self, name: str):
        if name in self.ALLOWED or isinstance(getattr(np, name, None), type):
            return super().__getattr__(name)
        raise AssertionError(f"cupy.{name} would be compiled")


def as_array(made, by: int = 0):
    """An array, a tuple or a format on the GPU; arrays begin at multiples of 512 bytes, or `by` behind."""
    if is_dataclass(made):
        return replace(made, **{f.name: as_array(getattr(made, f.name)) for f in fields(made)})
    if isinstance(made, tuple):
        return type(made)(*map(as_array, made)) if hasattr(made, "_fields") else tuple(map(as_array, made))
    if not isinstance(made, np.ndarray) or isinstance(made, Array) or not made.size:
        return made.view(Array) if isinstance(made, np.ndarray) else made
    order = "F" if made.flags.f_contiguous and not made.flags.c_contiguous else "C"
    memory = np.empty(made.nbytes + 512 + by, np.uint8)
    begin = -memory.ctypes.data % 512 + by
    placed = memory[begin : begin + made.nbytes].view(made.dtype).reshape(made.shape, order=order)
    placed[...] = made
    return placed.view(Array)


def there(problem: Problem, order: str = "F") -> Problem:
    """The problem with its host's operands on the pretended GPU, and a C of zeros; order: C's in memory."""
    host = problem.host()
    dense = host.a if formats.is_sparse(host.b) else host.b
    c = as_array(np.zeros((problem.m, problem.n), array_of(dense).dtype, order))
    made = Operands(as_array(host.a), as_array(host.b), replace(dense, bits=c) if isinstance(dense, Half) else c)
    return replace(problem, make_device=lambda: made, _device=None)


class View:
    """In the place of `cuda.core.utils.StridedMemoryView`: a tensor map is what it was made of."""

    @staticmethod
    def from_any_interface(array, stream_ptr):
        def as_tensor_map(box, **knobs):
            return SimpleNamespace(address=array.data.ptr, shape=tuple(array.shape), box=box)

        return SimpleNamespace(as_tensor_map=as_tensor_map)


@pytest.fixture
def pretended(monkeypatch):
    """A function: a GPU by its numbers (`racing`) -> that GPU, current, with CuPy; its `launched` is the list."""

    def open_as(gpu: SimpleNamespace) -> SimpleNamespace:
        launched: list[tuple] = []
        device = SimpleNamespace(**vars(gpu), launched=launched)
        monkeypatch.setitem(sys.modules, "cupy", Cupy("cupy"))
        monkeypatch.setattr("cuda.core.LaunchConfig", lambda **given: SimpleNamespace(**given))
        monkeypatch.setattr("cuda.core.launch", lambda *given: launched.append(given))
        monkeypatch.setattr("cuda.core.utils.StridedMemoryView", View)
        for name, what in {
            "compile_cubin": lambda source, entry, arch, include=(): f"{source.stem}: {entry}",
            "_loaded": {},
            "launched_with": lambda cubin, registers: cubin,
            "load": lambda cubin, shared=0: cubin,
        }.items():
            monkeypatch.setattr(jit, name, what)
        for opened in ("open_device", "current_device"):
            monkeypatch.setattr(current.gpu, opened, lambda ordinal=0: device)
        for where, name, what in (
            (current, "now", lambda: 0),
            (workspace, "stream_at", lambda address, gpu: address),
            (current, "is_captured", lambda pointer: False),
            (current.Buffers, "follow", lambda self, pointer: True),
            (current.Buffers, "done", lambda self, pointer: None),
        ):
            monkeypatch.setattr(where, name, what)
        twins.instead_of_a_gpu(monkeypatch, as_array)
        return device

    return open_as


def arguments(folder: Path, kernel: str, given: tuple) -> dict:
    """Name in the signature -> argument. kernel: as a pretended GPU has it, of a file of the folder, or of all."""
    stem, entry = kernel.split(": ")
    source = next(path for path in (folder / f"{stem}.cu", jit.COMMON / f"{stem}.cu") if path.is_file())
    text = re.sub(r"//[^\n]*", "", source.read_text())
    (signature,) = re.findall(rf"\b{entry.split('<')[0]}\(([^{{]*?)\)\s*\{{", text)
    return dict(zip([re.findall(r"\w+", part)[-1] for part in signature.split(",")], given, strict=True))
