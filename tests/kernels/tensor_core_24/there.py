"""2:4 on a GPU that is not there: operands as its arrays, and a launch's arguments by their names in the source."""

from dataclasses import replace
from functools import partial

import numpy as np
import pretend
from pretend import as_array

from kernels.contract import Operands
from kernels.formats.half import Eight, Half
from kernels.tensor_core_24 import RUNGS, family, fp8, operands, tiles
from kernels.tensor_core_24.family import Fp8
from kernels.tensor_core_24.tiles import Tile

#: Multiprocessors of an H200, and bytes of shared memory that a block may have there.
SMS, MOST = 132, 232448


def every(rungs: dict, *families) -> tuple:
    """The configurations of rungs, then of families, each once."""
    return tuple(dict.fromkeys([config for config, *_ in rungs.values()] + [c for of in families for c in of]))


WGMMA = every(RUNGS, family.WGMMA_FAMILY, family.NARROW_FAMILY)
PACKED = tuple(replace(c, packed=True) for c in WGMMA if c.kind.ordered and not c.kind.packed)
FP8 = every(family.FP8_RUNGS, family.FP8_FAMILY, family.FP8_NARROW_FAMILY)
#: Of each kernel a configuration.
KINDS = {c.name: c for c in (*WGMMA[::-1], *FP8[::-1])}


def problem_of(config: Tile, m: int, n: int, k: int, orders: str = "CC", by: tuple = (0, 0, 0), **more):
    """A problem that a configuration multiplies, its operands on the pretended GPU: A's values, B and C lie `by` bytes
    beyond multiples of 512."""
    eight = isinstance(config, Fp8)
    p = (fp8 if eight else operands).problem(m, n, k, orders=orders, **more)
    a, b, out = p.host().a, p.host().b, more.get("out", "bfloat16" if eight else p.host().b.dtype)
    a = replace(a, **{name: as_array(x, by[0] * (name == "val")) for name, x in a.arrays.items()})
    b = replace(b, bits=np.asarray(b.bits, order="F" if eight else orders[0]))
    b = replace(b, **{name: as_array(x, by[1] * (name == "bits")) for name, x in b.arrays.items()})
    bits = as_array(np.zeros((m, n), np.uint8 if out == "e4m3" else np.uint16, order=orders[1]), by[2])
    c = Eight(out, bits, as_array(np.ones((1, 1), np.float32))) if out == "e4m3" else Half(out, bits)
    return replace(p, make_device=lambda: Operands(a, b, c), _device=None)


arguments = partial(pretend.arguments, tiles.HERE)


def arrays(*kept) -> dict:
    """Address -> array, of all that is kept."""
    flat = [x for of in kept for x in (of if isinstance(of, tuple) else (of,))]
    flat = [getattr(x, "bits", x) for x in flat]
    return {x.ctypes.data: x for x in flat if isinstance(x, np.ndarray)}
