"""2:4 in FP8 as a linear layer calls it: by addresses, for any number of tokens, without trials or copies.

    Y (tokens x m) = activation(scale_A · scale_X · X (tokens x k) · Aᵀ + bias)        X and A e4m3, Y bfloat16

As `layer`: A is held once, in the order of use, with its metadata (`pack`): five eighths of the dense weight in 8 bits.
Scales are one for A or one for each row of it, and one for X or one for each token.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from .. import gpu, workspace
from ..formats.two_four_eight import TwoFourEight
from ..tma import mapped, remember
from . import fp8, fp8_family, fp8_operands, layer
from .fp8_family import Fp8, K
from .tiles import limits

ROWS = layer.ROWS  #: what `pack` rounds m up to; k is rounded to K
QUANTISE = Path(__file__).with_name("quantise.cu")
_ENUM = {"bfloat16": "BF16", "float16": "F16"}


@dataclass(frozen=True)
class Sizes(layer.Features):
    """What a launch depends on besides addresses."""

    vectors: bool = False  #: a scale for each row of A and for each token, instead of one for each operand
    bias: bool = False
    activation: str = ""


def pack(a: TwoFourEight):
    """A and its metadata in the order of use: uint8 (m' / 64, k' / 128, 5120), where A lives, NumPy or CuPy."""
    return fp8.pack(a, ROWS)


def check(sizes: Sizes) -> None:
    """Raise ValueError, one sentence, for sizes that no kernel here takes."""
    layer.require_features("a 2:4 layer in FP8", sizes, 16, sizes.activation)


def reads_packed(config) -> bool:
    """Whether a configuration reads A as `pack` has it."""
    return isinstance(config, Fp8) and config.kind.packed


def config_of(sizes: Sizes, device) -> Fp8:
    """The tuned configuration where the choices have the sizes, else the best by prediction."""
    label = fp8_operands.label("vectors" if sizes.vectors else "tensor", orders=layer.ORDERS)
    return layer.tuned(sizes, label, device, reads_packed) or predicted(sizes, *limits(device))


@functools.lru_cache(1024)
def predicted(sizes: Sizes, sms: int, most: int) -> Fp8:
    """The best by `fp8_family.predict`. sms: of the GPU; most: bytes of shared memory that a block may have."""
    found = fp8_family.candidates(*sizes.shape, sms, most, layer.ORDERS)
    return layer.best("a 2:4 layer in FP8", sizes, filter(reads_packed, found), fp8_family.predict, sms)


def quantise(stream, dtype: str, tokens: int, k: int, x: int, to: int, scale: int, device) -> None:
    """Enqueue on a `cuda.core.Stream`: each token's features in e4m3, and its scale, the largest magnitude over 448.

    dtype: of x, "bfloat16" or "float16". x: address of tokens x k numbers, k a multiple of 16; to: of as many bytes;
    scale: of tokens float32.
    """
    if tokens:
        workspace.enqueue(
            device, stream, QUANTISE, f"quantised<{_ENUM[dtype]}>", tokens, 256, x, np.int32(k // 8), to, scale
        )


class Launcher(layer.Launcher):
    """A kernel for its sizes; a call brings the addresses, and enqueues."""

    def __call__(self, stream, x: int, y: int, packed: int, scale_a: int, scale_x: int, bias: int = 0) -> None:  # type: ignore[override]
        """Enqueue on a `cuda.core.Stream`. x, y: tokens x k and tokens x m, without gaps, at multiples of 16 bytes;
        packed: of `pack`; scales, bias: float32. Launches may overlap."""
        maps = self._maps.get((x, y)) or self._places(x, y)
        scales = scale_a, scale_x, 0
        self.enqueue(stream, self.launch, self.kernel, packed, *maps, *self.before, *scales, *self.after, bias)

    def _places(self, x: int, y: int) -> tuple:
        s, c = self.sizes, self.config
        b = mapped(x, (s.tokens, s.k), (c.n // c.below, K), "|u1", 128, c.ahead)
        if c.direct:
            return remember(self._maps, (x, y), (b, y, np.int32(2 * s.m)))
        to = mapped(y, (s.tokens, s.m), (min(64, c.n), 64), "<u2", 128)
        return remember(self._maps, (x, y), (b, to))


@functools.lru_cache(512)
def launcher(sizes: Sizes, ordinal: int) -> Launcher:
    """The kernel for these sizes on the GPU of a CUDA number, which is current: compiled and loaded once.

    Raises ValueError, one sentence, where no kernel takes the sizes or the GPU has no wgmma.
    """
    check(sizes)
    device = gpu.with_wgmma(ordinal, "a 2:4 layer in FP8")
    config = config_of(sizes, device)
    entry = config.entry("bfloat16", sizes.vectors, sizes.vectors, layer.ORDERS, sizes.activation or sizes.bias)
    after = np.int32(sizes.m), np.int32(sizes.tokens)
    kernel, launch, enqueue = layer.loaded(config, entry, sizes, device)
    return Launcher(sizes, config, kernel, launch, enqueue, config.order(*sizes.shape), after)
