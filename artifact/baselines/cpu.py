"""The same multiplication on the host's CPU: the report's sequential loop, and two fairer ones.

    cpu_loop    one thread, dense, three plain loops in C, compiled here with -O3: the baseline of
                Zeng, "GPU Accelerated Structured Sparsity Matrix Multiplication", section 4.3
    cpu_scipy   one thread, the non-zeros only: SciPy's compiled loop over a CSR matrix
    cpu_blas    every core, dense: the BLAS that NumPy comes with

The operands are the problem's host ones, in the layout that each contender likes best; bringing
them there is `prepare_ms`. For `bench.time_calls`, which times by the host's clock.
"""

import ctypes
import functools
import os
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
from scipy.sparse import csr_array

from artifact import paths
from artifact.baselines import _library
from kernels import formats
from kernels.contract import Operands, Problem, timed, unrehearsed

SOURCE = Path(__file__).with_name("cpu_loop.c")
#: No -ffast-math: it would let the compiler reorder the sum. No -march: the report had none.
FLAGS = ("-std=c99", "-O3", "-shared", "-fPIC")
COMPILERS = ("cc", "gcc", "clang")


class PreparedKernel(_library.PreparedKernel):
    """A `kernels.contract.PreparedKernel` on the CPU: `launch` returns when the product is there."""

    on_cpu = True  #: the GPU idles meanwhile, so its clock says nothing

    def launch(self, stream) -> None:
        """Multiply. The stream is ignored and may be None."""
        self.output = self.call(0)


def prepare(name: str, problem: Problem, device=None) -> PreparedKernel:
    """Make one contender ready; the device is ignored.

    Raises FileNotFoundError where "cpu_loop" finds no C compiler.
    """
    if name == "cpu_loop":
        library()  # compiling it is no preprocessing of operands
    operands = problem.host()
    with unrehearsed():
        multiply, prepare_ms = timed(lambda: _PREPARE[name](operands))
    output = np.full((problem.m, problem.n), np.nan, np.float32)
    # No memory of a device is taken, and `bench.time` would see nothing of it.
    return PreparedKernel(name, prepare_ms, 0, lambda _: multiply(), output, needs_host_clock=True)


def _loop(operands: Operands) -> Callable[[], np.ndarray]:
    """Return A column-major, B and C row-major, as the report has them."""
    a = np.asfortranarray(formats.to_dense(operands.a))
    b = np.ascontiguousarray(formats.to_dense(operands.b))
    c = np.full((a.shape[0], b.shape[1]), np.nan, np.float32)
    of_pointers_and_sizes = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 3, *[ctypes.c_size_t] * 3)
    run = of_pointers_and_sizes(("cpu_loop", library()))

    def multiply() -> np.ndarray:
        run(a.ctypes.data, b.ctypes.data, c.ctypes.data, *c.shape, b.shape[0])
        return c

    return multiply


def _scipy(operands: Operands) -> Callable[[], np.ndarray]:
    """CSR times row-major.

    Where B is the sparse one that is CSR of B^T times A^T, and A^T is row-major because A is column-major; the result
    is C^T.
    """
    a_is_sparse = formats.is_sparse(operands.a)
    matrix = csr_array(formats.to_dense(operands.a) if a_is_sparse else formats.to_dense(operands.b).T)
    dense = np.ascontiguousarray(operands.b if a_is_sparse else operands.a.T)
    return lambda: matrix @ dense if a_is_sparse else (matrix @ dense).T


def _blas(operands: Operands) -> Callable[[], np.ndarray]:
    """C^T = B^T · A^T, all row-major for NumPy: C = A · B, all column-major for the BLAS."""
    a = np.ascontiguousarray(formats.to_dense(operands.a).T)
    b = np.ascontiguousarray(formats.to_dense(operands.b).T)
    c = np.full((b.shape[0], a.shape[1]), np.nan, np.float32)
    return lambda: np.matmul(b, a, out=c).T


_PREPARE = {"cpu_loop": _loop, "cpu_scipy": _scipy, "cpu_blas": _blas}
contenders = _library.offers(prepare, {name: (name,) for name in _PREPARE})


@functools.cache
def library() -> ctypes.CDLL:
    """Return the loop, compiled once in a process.

    Raises FileNotFoundError where there is no C compiler, RuntimeError where it fails.
    """
    command = compiler()
    if command is None:
        raise FileNotFoundError(
            f"cpu_loop is compiled when it is first used, and none of {', '.join(COMPILERS)} was "
            "found here: install a C compiler, or name one in $CC"
        )
    paths.BUILD.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=paths.BUILD) as folder:
        made = f"{folder}/cpu_loop.so"
        words = (*command, *FLAGS, "-o", made, str(SOURCE))
        done = subprocess.run(words, capture_output=True, encoding="utf-8", errors="replace")
        if done.returncode:
            said = next(iter(done.stderr.splitlines()), f"exit code {done.returncode}")
            raise RuntimeError(f"{command[0]} does not compile {SOURCE.name}: {said}")
        return ctypes.CDLL(made)


def compiler() -> tuple[str, ...] | None:
    """Return the system's C compiler: $CC, or the first of `COMPILERS` on the PATH; None without."""
    known = (shlex.split(os.environ.get("CC", "")), *([name] for name in COMPILERS))
    return next((tuple(words) for words in known if words and shutil.which(words[0])), None)
