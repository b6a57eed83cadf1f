"""What each family of GPUs multiplies with: the routes, asked for GPUs that need not be there."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import numpy as np

from .. import jit
from ..formats import bcsr, intake, nm, two_four
from ..formats.csr import Csr
from . import routes

SIZE = 256  #: of the matrices that routes are asked about


def _properties(sms: int, shared: int) -> SimpleNamespace:
    """sms: multiprocessors; shared: bytes of shared memory that a block may have."""
    return SimpleNamespace(
        multiprocessor_count=sms,
        max_shared_memory_per_block_optin=shared,
        max_shared_memory_per_multiprocessor=shared + 1024,
    )


@dataclass(frozen=True)
class Family:
    """GPUs of one compute capability; stands for a `cuda.core.Device` where routes look at one."""

    name: str  #: what its GPUs are called
    compute_capability: tuple[int, int]
    properties: SimpleNamespace  #: of the first of them

    @property
    def target(self) -> str:
        """What kernels are compiled for."""
        return jit.arch_of(self)


FAMILIES = (
    Family("H100, H200", (9, 0), _properties(132, 232_448)),
    Family("A100", (8, 0), _properties(108, 166_912)),
    Family("RTX 30, A10", (8, 6), _properties(82, 101_376)),
    Family("RTX 40, L4, L40S", (8, 9), _properties(128, 101_376)),
    Family("B200", (10, 0), _properties(148, 232_448)),
    Family("RTX 50", (12, 0), _properties(170, 101_376)),
)
NONE = "none, and one sentence says so"
#: What a route leads to -> how it multiplies.
WORDS = {
    "union": "groups of rows, CUDA cores",
    "windows": "windows, `wgmma`",
    "unit": "blocks, `wgmma`",
    "blocks_mma": "blocks, `mma.sync`",
    "wgmma": "2:4, `wgmma.sp`",
    "mma_sp": "2:4, `mma.sp`",
    "wide": "vectors, CUDA cores",
    "bulk": "vectors, CUDA cores and copy engine",
    "stream": "vectors, CUDA cores and copy engine",
    "cluster": "vectors, CUDA cores and copy engine",
    "tf32": "vectors, `wgmma`",
    "bf16": "vectors, `wgmma`",
}


def _csr() -> Csr:
    row_ptr, every = (np.arange(0, end, step, dtype=np.int32) for end, step in ((8 * SIZE + 1, 8), (SIZE, SIZE // 8)))
    return Csr(SIZE, SIZE, row_ptr, np.tile(every, SIZE), np.ones(8 * SIZE, np.float32))


def _nm():
    return nm.random(SIZE, SIZE, 8, 32, 32, 0)


def _blocks(dtype: str):
    return bcsr.random(SIZE, SIZE, 0.5, 0, dtype=dtype)


#: Format, dtype of B and accuracy, as a table says them -> how to make A; the dtype and accuracy that are asked for.
ASKED: dict[tuple[str, str], tuple[Callable[[], Any], str, str]] = {
    ("CSR", "float32"): (_csr, "float32", "fp32"),
    ("CSR", "float32, at least TF32"): (_csr, "float32", "tf32"),
    ("CSR", "bfloat16, float16"): (_csr, "bfloat16", "bf16"),
    ("blocks", "bfloat16, float16"): (lambda: _blocks("bfloat16"), "bfloat16", "bf16"),
    ("blocks", "float32, at least TF32"): (lambda: _blocks("float32"), "float32", "tf32"),
    ("2:4", "bfloat16, float16"): (lambda: two_four.random(SIZE, SIZE, "bfloat16", 0), "bfloat16", "bf16"),
    ("N:M", "float32"): (_nm, "float32", "fp32"),
    ("N:M", "float32, at least TF32"): (_nm, "float32", "tf32"),
    ("N:M", "bfloat16"): (_nm, "bfloat16", "bf16"),
}


def table() -> dict[tuple[str, str], dict[str, str]]:
    """(format, B) -> name of a family -> what multiplies there."""
    return {asked: {f.name: multiplied(asked, f) for f in FAMILIES} for asked in ASKED}


def multiplied(asked: tuple[str, str], family: Family) -> str:
    """Return what multiplies an entry of `ASKED` on a family of GPUs, by the routes and what they may choose from."""
    make, dtype, accuracy = ASKED[asked]
    try:
        way = routes.route(make(), dtype, accuracy, family, explicit=True)
    except ValueError:
        return NONE
    return "; or ".join(dict.fromkeys(WORDS[name] for name in _names(way, family)))


def _names(way: routes.Route, family: Family) -> list[str]:
    """Return the kernels that a way may take, in the order of `WORDS`."""
    of = way.family
    if of.choices is None:
        return [way.variant]
    if isinstance(way.a, Csr):  # no GPU looks at it here, and what one would find ranks configurations alone
        facts = intake.Facts(1, True, 0, (1,) * len(intake.HEIGHTS))
        way = replace(way, a=replace(way.a, facts=facts))
    names = {kind: name for name, kind in of.choices.families.items()}
    configs = of.candidates(routes.multiplication(way, SIZE), family)
    found = {name if (name := names[type(config)]) in WORDS else config.kernel for config in configs}
    return [name for name in WORDS if name in found]
