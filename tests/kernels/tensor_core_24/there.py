"""2:4 on a GPU that is not there: operands as its arrays, and a launch's arguments by their names in the source."""

import re
from dataclasses import replace

import numpy as np
from pretend import as_array

from kernels import jit
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


BY_ROWS = every(RUNGS, family.WGMMA_FAMILY)
WGMMA = every(RUNGS, family.WGMMA_FAMILY, family.NARROW_FAMILY)
PACKED = tuple(replace(c, packed=True) for c in WGMMA if c.kind.ordered and not c.kind.packed)
FP8 = every(family.FP8_RUNGS, family.FP8_FAMILY, family.FP8_NARROW_FAMILY)
#: Of each kernel a configuration.
KINDS = {c.name: c for c in (*WGMMA[::-1], *FP8[::-1])}


def moved(x: np.ndarray, by: int = 0):
    """The same as an array of the pretended GPU, so many bytes beyond a multiple of 512."""
    order = "F" if x.flags.f_contiguous and not x.flags.c_contiguous else "C"
    memory = as_array(np.zeros(x.nbytes + 512, np.uint8))
    placed = memory[by : by + x.nbytes].view(x.dtype).reshape(x.shape, order=order)
    placed[...] = x
    return placed


def problem_of(config: Tile, m: int, n: int, k: int, orders: str = "CC", by: tuple = (0, 0, 0), **more):
    """A problem that a configuration multiplies, its operands on the pretended GPU: A's values, B and C lie `by` bytes
    beyond multiples of 512."""
    eight = isinstance(config, Fp8)
    p = (fp8 if eight else operands).problem(m, n, k, orders=orders, **more)
    a, b = p.host().a, p.host().b
    names = ("val", "meta", *(["scale"] if eight else []))
    a = replace(a, **{name: moved(getattr(a, name), by[0] * (name == "val")) for name in names})
    zeros = np.zeros((m, n), np.uint8 if more.get("out") == "e4m3" else np.uint16, order=orders[1])
    c = Half(more.get("out", b.dtype if not eight else "bfloat16"), moved(zeros, by[2]))
    if eight:
        b = Eight(b.dtype, moved(b.bits, by[1]), moved(b.scale))
        c = Eight("e4m3", c.bits, moved(np.ones((1, 1), np.float32))) if zeros.itemsize == 1 else c
    else:
        b = Half(b.dtype, moved(np.asarray(b.bits, order=orders[0]), by[1]))
    ops = Operands(a, b, c)
    return replace(p, make_device=lambda: ops, _device=None)


def arguments(kernel: str, given: tuple) -> dict:
    """Name in the signature -> argument. kernel: as a pretended GPU has it."""
    stem, entry = kernel.split(": ")
    source = next(path for path in (tiles.HERE / f"{stem}.cu", jit.COMMON / f"{stem}.cu") if path.is_file())
    text = re.sub(r"//[^\n]*", "", source.read_text())
    (signature,) = re.findall(rf"\b{entry.split('<')[0]}\(([^{{]*?)\)\s*\{{", text)
    return dict(zip([re.findall(r"\w+", part)[-1] for part in signature.split(",")], given, strict=True))


def arrays(*kept) -> dict:
    """Address -> array, of all that is kept."""
    flat = [x for of in kept for x in (of if isinstance(of, tuple) else (of,))]
    flat = [getattr(x, "bits", x) for x in flat]
    return {x.ctypes.data: x for x in flat if isinstance(x, np.ndarray)}
