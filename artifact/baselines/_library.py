"""What modules on a library share.

A `PreparedKernel`, what is destroyed with it, the sentence of a refusal, and the search for the fastest of several
algorithms.
"""

import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any

import numpy as np

from artifact.measure import bench
from artifact.measure.device import first_line
from kernels.contract import Operands, Problem, require
from kernels.lazy import Lazy, cupy, runtime

cublas, cublasLt, cusparse = (Lazy(f"nvmath.bindings.{name}") for name in ("cublas", "cublasLt", "cusparse"))
#: Host scalars, read when the call is made, captured or not.
ALPHA, BETA = np.ones(1, np.float32), np.zeros(1, np.float32)
#: Member of cudaDataType for a dtype.
DATA_TYPE = {
    "bfloat16": "CUDA_R_16BF",
    "float16": "CUDA_R_16F",
    "e4m3": "CUDA_R_8F_E4M3",
    "float32": "CUDA_R_32F",
    "tf32": "CUDA_R_32F",
}
#: Candidates are timed briefly, then this many of them again, for longer (seconds each).
FINALISTS = 3
ROUGH_S, FINE_S = 0.002, bench.BUDGET_S / 3


Makes = Callable[[Problem], "PreparedKernel"]


@dataclass(eq=False)
class PreparedKernel:
    """A `kernels.contract.PreparedKernel` over a library; `close()` destroys early what `hold` gave it."""

    name: str
    prepare_ms: float
    prepare_bytes: int  #: what was made of the operands, and the workspace
    call: Callable[[int], Any] = field(repr=False)  #: enqueues the multiplication; takes the stream's handle
    output: Any = field(repr=False)
    choice: str = ""  #: the algorithm, in words
    needs_host_clock: bool = False  #: `bench.time` would see the multiplication only
    keep: Any = field(default=None, repr=False)  #: arrays behind raw addresses in `call`
    close: Callable[[], Any] = field(default=lambda: None, repr=False)

    def launch(self, stream) -> None:
        """Enqueue the multiplication on a `cuda.core.Stream`, which may be under capture."""
        self.call(int(stream.handle))

    def result(self) -> Any:
        """Return C (m, n): a CuPy array, or a `Half` of one; NumPy's where it is copied to the host."""
        return self.output


def offers(prepare: Callable[..., PreparedKernel], names: Mapping[str, tuple]) -> Callable[[Any], dict[str, Makes]]:
    """Return a module's `contenders`, a function of the device.

    Name in the records -> what makes a `PreparedKernel` of a problem. names: name -> the first arguments of `prepare`,
    before the problem.
    """
    return lambda device: {name: partial(prepare, *first, device=device) for name, first in names.items()}


def hold(bound: PreparedKernel, stack: ExitStack, *keep: Any) -> PreparedKernel:
    """Let a `PreparedKernel` destroy what a stack has when it is closed or forgotten.

    `keep`, the arrays behind the raw addresses, lives as long.
    """
    cupy.cuda.get_current_stream().synchronize()  # a launch may come on another stream
    bound.close = weakref.finalize(bound, lambda stack, _: stack.close(), stack.pop_all(), keep)
    return bound


def owned(stack: ExitStack, destroy: Callable[[Any], Any], thing: Any) -> Any:
    """Return a thing that the stack is to destroy."""
    stack.callback(destroy, thing)
    return thing


@contextmanager
def refusing(says: str, *errors: type[Exception], words: Callable[[Any], str] = first_line) -> Iterator[ExitStack]:
    """Give a stack of what to destroy where the block fails.

    Make ValueError, one sentence that begins with `says`, of a library's own errors.
    """
    with ExitStack() as stack:
        try:
            yield stack
        except errors as error:
            raise ValueError(f"{says}: {words(error)}") from error


def sizes(problem: Problem) -> str:
    """Return the sizes of a problem, in a sentence."""
    return f"m={problem.m}, n={problem.n}, k={problem.k}"


def require_taken(holds: bool, library: str, takes: str, problem: Problem) -> None:
    """Raise ValueError, one sentence, unless the operands of a problem are what a library takes."""
    require(
        holds,
        f"{library} takes {takes} here, and {problem.room} has something else: compare with another baseline",
    )


def require_column_major(contender: str, problem: Problem, operands: Operands) -> None:
    """Raise ValueError unless A and C are float32 arrays in Fortran order."""
    for name, array in (("A", operands.a), ("C", operands.c)):
        require(
            getattr(array, "dtype", None) == np.float32 and array.flags.f_contiguous,
            f"{contender} takes {name} as a float32 array in Fortran order here, and {problem.room} "
            "has it otherwise: compare with another baseline",
        )


def data_type(dtype: str) -> int:
    """Return the member of cudaDataType for a dtype."""
    return int(getattr(runtime.cudaDataType, DATA_TYPE[dtype]))


def put(call: Callable[..., Any], members: Any, *thing: int, **values: np.generic) -> None:
    """Set attributes of a thing of a library, each by `call(*thing, member, address, bytes)`.

    members: the enumeration of attributes; values: name of a member → NumPy scalar of the type that the library wants.
    """
    for name, value in values.items():
        held = np.array(value)
        call(*thing, int(getattr(members, name)), held.ctypes.data, held.nbytes)


def on_stream(set_stream: Callable[[int], Any], call: Callable[[], Any]) -> Callable[[int], None]:
    """Return what calls on a stream, given by its handle. It is set where it changes: that takes host time."""
    once = lru_cache(maxsize=1)(set_stream)

    def launched(stream: int) -> None:
        once(stream)
        call()

    return launched


def fastest(candidates: Mapping[str, Any], device) -> list[str]:
    """Return the names of the `FINALISTS` fastest of some `PreparedKernel`s, the fastest first.

    All are timed briefly by `bench.time`, from cold caches; those that lead, again and for longer.
    """
    rough = bench.time(candidates, device, budget_s=ROUGH_S, min_samples=3, max_samples=5)
    lead = sorted(candidates, key=lambda name: rough[name].median_us)[:FINALISTS]
    fine = bench.time({name: candidates[name] for name in lead}, device, budget_s=FINE_S)
    return sorted(lead, key=lambda name: fine[name].median_us)
