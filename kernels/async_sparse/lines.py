"""B and C as the copy engine and 16-byte loads need them: lines that begin at multiples of 16 bytes.

A line is what lies side by side: a row of a row-major matrix, a column of a column-major one.
"""

from dataclasses import dataclass, field
from math import ceil
from typing import Any

from .. import jit, padding, workspace
from ..contract import Launch
from ..formats.half import array_of
from ..lazy import cupy
from .family import order


@dataclass
class Lines:
    """Dense operands of a launch, and what has to run before and after it."""

    b: Any  #: CuPy (lines, elements), row-major: rows of B, or its columns
    c: Any  #: likewise of C
    before: list = field(default_factory=list)  #: launches that fill a padded B
    after: list = field(default_factory=list)  #: launches that bring a padded C back
    copies: tuple = ()  #: the padded ones

    def bound(
        self,
        name: str,
        operands,
        job: tuple,
        device,
        shape: tuple,
        arguments: tuple,
        need: int = 0,
        prepare_ms: float = 0.0,
        held: int = 0,
        keep: tuple = (),
        scratch: tuple = (),
        around: tuple = ((), ()),
        cluster: tuple[int, ...] = (),
    ) -> Launch:
        """Return the launch of a kernel between the copies of lines; whatever CuPy's stream does is done before.

        job: (source, entry). shape: (grid, block). need: bytes of dynamic shared memory. held: bytes that preparation
        leaves. around: launches right before and after the kernel. cluster: its blocks, where there are clusters.
        """
        from cuda.core import LaunchConfig

        (source, entry), (grid, block) = job, shape
        kernel, knobs = jit.loaded(source, entry, device, need), {"cluster": cluster} if cluster else {}
        plain = not need and not cluster
        how = workspace.config(*shape) if plain else LaunchConfig(grid=grid, block=block, shmem_size=need, **knobs)
        cupy.cuda.get_current_stream().synchronize()  # zeros are there, whatever stream comes next
        steps = [*self.before, *around[0], (kernel, how, arguments), *around[1], *self.after]
        keep, scratch = (operands, self.b, self.c, *keep), (*scratch, *self.copies)
        return Launch(name, steps, operands.c, prepare_ms, held, keep=keep, scratch=scratch)


def lines(operands, device, *, by_rows: bool = False, copy_c: bool = True) -> Lines:
    """B and C themselves where their lines are aligned, else padded copies and the launches for them.

    by_rows: take both as row-major, which a single column may be as well as column-major. copy_c: False leaves C as it
    is, for kernels that write lines of any kind. A padded C holds NaN at first, so that what a kernel leaves unwritten
    is seen.
    """
    b, c = (_lines(x, by_rows) for x in (operands.b, operands.c))
    made = Lines(b, c)
    if _ragged(b):
        made.b = _padded(b)
        made.before.append(padding.copy(b, made.b, device))
    if copy_c and _ragged(c):
        made.c = _padded(c)
        if made.c.nbytes:  # all bits set is NaN in every dtype
            made.c.data.memset_async(0xFF, made.c.nbytes)
        made.after.append(padding.copy(made.c, c, device))
    made.copies = tuple(x for x, own in ((made.b, b), (made.c, c)) if x is not own)
    cupy.cuda.get_current_stream().synchronize()  # a launch may come on another stream
    return made


def _lines(matrix, by_rows: bool):
    array = array_of(matrix)
    return array if by_rows or order(matrix) == "C" else array.T


def _ragged(array) -> bool:
    row = array.shape[1] * array.dtype.itemsize
    # A single line may have any distance to the next, and the copy engine looks at it.
    apart = array.strides[0]
    return any(x % padding.ALIGNMENT for x in (row, apart, array.data.ptr))


def _padded(array):
    each = padding.ALIGNMENT // array.dtype.itemsize
    return cupy.empty((array.shape[0], ceil(array.shape[1] / each) * each), array.dtype)
