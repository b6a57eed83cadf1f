"""Products in FP8 that are exact, and what a launch writes held against them."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np

from kernels import tuning
from kernels.contract import Problem
from kernels.formats import eight, half, two_four_eight
from kernels.tensor_core_24 import fp8, fp8_family, fp8_operands

#: m, n, k: smaller than a tile and a step, around their edges, rows that TMA cannot address, more tiles than SMs.
RAGGED = (
    (64, 64, 128),
    (1, 8, 16),
    (3, 1, 1),
    (77, 136, 100),
    (129, 264, 63),
    (300, 257, 1000),
    (513, 1030, 65),
    (1921, 2305, 130),
)
#: Scales and dtype of C.
KINDS = tuple(product(fp8_operands.SCALES, fp8_operands.OUTS))


def exact(
    m: int, n: int, k: int, scale: str = "tensor", out: str = "bfloat16", seed: int = 0
) -> tuple[Problem, np.ndarray]:
    """A problem of small whole numbers over scales of powers of two, and C (m, n) in float32, rounded to `out`.

    A is -1 and 1 where it stores something, B -2 to 2: partial sums up to k = 4096 are whole numbers of 13 bits, which
    the tensor cores keep, so that every element is the one that rounding once makes.
    """
    draw = np.random.default_rng([seed, m, n, k])
    a = fp8_operands.host_operands(m, n, k, seed, "tensor").a
    signs = eight.to_bits(draw.choice(np.array([-1, 1], np.float32), a.val.shape), "e4m3")
    b_t = draw.choice(np.arange(-2, 3, dtype=np.float32), (n, k))
    shapes = ((1, 1), (1, 1)) if scale == "tensor" else ((m, 1), (1, n))
    scale_a, scale_b = (draw.choice(np.array([0.25, 0.5, 1, 2], np.float32), shape) for shape in shapes)
    a = replace(a, val=np.where(a.val & 0x7F, signs, np.uint8(0)), scale=scale_a)
    b = eight.Eight("e4m3", eight.to_bits(b_t, "e4m3").T, scale_b)
    out_scale = 4.0
    product = two_four_eight.to_dense(a) @ eight.to_dense(b)
    if out == "e4m3":
        kept = eight.from_bits(eight.to_bits(product / np.float32(out_scale), out), out) * np.float32(out_scale)
    else:
        kept = half.from_bits(half.to_bits(product, out), out)
    return fp8.problem_from(a, b, out, out_scale), kept


def compare(bound, expected: np.ndarray, device) -> str:
    """Return "" where a launch writes exactly this, else what is wrong first."""
    stream = device.create_stream()
    bound.result().fill(np.nan)
    device.sync()
    bound.launch(stream)
    stream.sync()
    result = bound.result()
    found = (eight if isinstance(result, eight.Eight) else half).to_dense(result).get()
    wrong = np.argwhere(~(found == expected))
    return "".join(
        f"{len(wrong)} of {found.size} elements are wrong, the first at row {row}, column {column}: "
        f"{found[row, column]} instead of {expected[row, column]}"
        for row, column in wrong[:1]
    )


def configurations() -> dict[str, fp8_family.Fp8]:
    """The rungs by their names, the rest of the family by their knobs."""
    rungs = {name: c for name, (c, *_) in fp8_family.RUNGS.items()}
    return rungs | {tuning.knobs(c): c for c in fp8_family.FAMILY if c not in rungs.values()}
