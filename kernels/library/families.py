"""What each family of GPUs multiplies with: the routes, asked for GPUs that need not be there."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np

from ..formats import bcsr, intake, nm, two_four
from ..formats.csr import Csr
from . import routes

SIZE = 256  #: of the matrices that routes are asked about


def _family(name: str, compute_capability: tuple[int, int], sms: int, shared: int) -> SimpleNamespace:
    """Return GPUs of one compute capability, which stand for a `cuda.core.Device` where routes look at one.

    name: what they are called. sms, shared: multiprocessors of the first of them, and bytes of shared memory that a
    block may have.
    """
    properties = SimpleNamespace(
        multiprocessor_count=sms,
        max_shared_memory_per_block_optin=shared,
        max_shared_memory_per_multiprocessor=shared + 1024,
    )
    return SimpleNamespace(name=name, compute_capability=compute_capability, properties=properties)


FAMILIES = (
    _family("H100, H200", (9, 0), 132, 232_448),
    _family("A100", (8, 0), 108, 166_912),
    _family("RTX 30, A10", (8, 6), 82, 101_376),
    _family("RTX 40, L4, L40S", (8, 9), 128, 101_376),
    _family("B200", (10, 0), 148, 232_448),
    _family("RTX 50", (12, 0), 170, 101_376),
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


_NM = partial(nm.random, SIZE, SIZE, 8, 32, 32, 0)
_BLOCKS = partial(bcsr.random, SIZE, SIZE, 0.5, 0)
#: Format, dtype of B and accuracy, as a table says them -> how to make A; the dtype and accuracy that are asked for.
ASKED: dict[tuple[str, str], tuple[Callable[[], Any], str, str]] = {
    ("CSR", "float32"): (_csr, "float32", "fp32"),
    ("CSR", "float32, at least TF32"): (_csr, "float32", "tf32"),
    ("CSR", "bfloat16, float16"): (_csr, "bfloat16", "bf16"),
    ("blocks", "bfloat16, float16"): (partial(_BLOCKS, dtype="bfloat16"), "bfloat16", "bf16"),
    ("blocks", "float32, at least TF32"): (partial(_BLOCKS, dtype="float32"), "float32", "tf32"),
    ("2:4", "bfloat16, float16"): (partial(two_four.random, SIZE, SIZE, "bfloat16", 0), "bfloat16", "bf16"),
    ("N:M", "float32"): (_NM, "float32", "fp32"),
    ("N:M", "float32, at least TF32"): (_NM, "float32", "tf32"),
    ("N:M", "bfloat16"): (_NM, "bfloat16", "bf16"),
}


def table() -> dict[tuple[str, str], dict[str, str]]:
    """(format, B) -> name of a family -> what multiplies there."""
    return {asked: {f.name: multiplied(asked, f) for f in FAMILIES} for asked in ASKED}


def multiplied(asked: tuple[str, str], family: SimpleNamespace) -> str:
    """Return what multiplies an entry of `ASKED` on a family of GPUs, by the routes and what they may choose from."""
    make, dtype, accuracy = ASKED[asked]
    try:
        way = routes.route(make(), dtype, accuracy, family, explicit=True)
    except ValueError:
        return NONE
    of, found = way.family, {way.variant}
    if of.choices is not None:
        if isinstance(way.a, Csr):  # no GPU looks at it here, and what one would find ranks configurations alone
            way = replace(way, a=replace(way.a, facts=intake.Facts(1, True, 0, (1,) * len(intake.HEIGHTS))))
        names = {kind: name for name, kind in of.choices.families.items()}
        configs = of.candidates(routes.multiplication(way, SIZE), family)
        found = {name if (name := names[type(config)]) in WORDS else config.kernel for config in configs}
    return "; or ".join(dict.fromkeys(WORDS[name] for name in WORDS if name in found))
