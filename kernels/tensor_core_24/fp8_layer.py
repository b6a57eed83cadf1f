"""2:4 in FP8 as a linear layer calls it: by addresses, for any number of tokens, without trials or copies.

    Y (tokens x m) = activation(scale_A · scale_X · X (tokens x k) · Aᵀ + bias)        X and A e4m3, Y bfloat16

As `layer`: A is held once, in the order of use, with its metadata (`pack`): five eighths of the dense weight in 8 bits.
Scales are one for A or one for each row of it, and one for X or one for each token.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np

from .. import gpu, jit, tuning, workspace
from ..contract import require
from ..formats.two_four_eight import TwoFourEight
from ..tma import mapped, remember
from . import family, fp8, fp8_family, fp8_operands, layer
from .family import ACTIVATIONS
from .fp8_family import KEEP, PACKED, Fp8, K

ROWS = layer.ROWS  #: what `pack` rounds m up to; k is rounded to K
QUANTISE = Path(__file__).with_name("quantise.cu")
_ENUM = {"bfloat16": "BF16", "float16": "F16"}


@dataclass(frozen=True)
class Sizes:
    """What a launch depends on besides addresses."""

    m: int  #: features of Y
    k: int  #: features of X
    tokens: int
    vectors: bool = False  #: a scale for each row of A and for each token, instead of one for each operand
    bias: bool = False
    activation: str = ""


def pack(a: TwoFourEight):
    """A and its metadata in the order of use: uint8 (m' / 64, k' / 128, 5120), where A lives, NumPy or CuPy."""
    return fp8.pack(a, ROWS)


def check(sizes: Sizes) -> None:
    """Raise ValueError, one sentence, for sizes that no kernel here takes."""
    for name, value, multiple in (("inputs", sizes.k, 16), ("outputs", sizes.m, 8)):
        require(
            value % multiple == 0,
            f"a 2:4 layer in FP8 has {value} {name}, but the copy engine takes multiples of {multiple}: pad them",
        )
    require(
        sizes.activation in ("", *ACTIVATIONS),
        f"activation is {sizes.activation!r}, but must be one of {', '.join(ACTIVATIONS)}, or empty",
    )


def config_of(sizes: Sizes, device) -> Fp8:
    """The tuned configuration where the choices have the sizes, else the best by prediction."""
    properties = device.properties
    most = properties.max_shared_memory_per_block_optin
    shape = sizes.m, sizes.tokens, sizes.k
    label = fp8_operands.label("vectors" if sizes.vectors else "tensor", orders=layer.ORDERS)
    found = tuning.look_up(
        family.CHOICES,
        (*shape, label),
        device,
        near=True,
        fits=lambda c: isinstance(c, Fp8) and c.kernel in PACKED and fp8_family.fits(c, *shape, most, layer.ORDERS),
    )
    return found.config if found is not None else predicted(sizes, properties.multiprocessor_count, most)


@functools.lru_cache(1024)
def predicted(sizes: Sizes, sms: int, most: int) -> Fp8:
    """The best by `fp8_family.predict`. sms: of the GPU; most: bytes of shared memory that a block may have."""
    shape = sizes.m, sizes.tokens, sizes.k
    found = [c for c in fp8_family.candidates(*shape, sms, most, layer.ORDERS) if c.kernel in PACKED]
    require(
        bool(found),
        f"no kernel takes a 2:4 layer in FP8 of {sizes.k} inputs, {sizes.m} outputs and {sizes.tokens} tokens on this "
        "GPU",
    )
    keep = fp8_family.worth_keeping(sizes.tokens)
    return min(found, key=lambda c: (fp8_family.predict(c, *shape, sms), c.keep != keep))


def quantise(stream, dtype: str, tokens: int, k: int, x: int, to: int, scale: int, device) -> None:
    """Enqueue on a `cuda.core.Stream`: each token's features in e4m3, and its scale, the largest magnitude over 448.

    dtype: of x, "bfloat16" or "float16". x: address of tokens x k numbers, k a multiple of 16; to: of as many bytes;
    scale: of tokens float32.
    """
    if tokens:
        workspace.enqueue(
            device, stream, QUANTISE, f"quantised<{_ENUM[dtype]}>", tokens, 256, x, np.int32(k // 8), to, scale
        )


@dataclass
class Launcher:
    """A kernel for its sizes; a call brings the addresses, and enqueues."""

    sizes: Sizes
    config: Fp8
    kernel: Any
    launch: Any  #: cuda.core.LaunchConfig
    numbers: tuple  #: steps, the order of tiles, and what L2 keeps
    last: tuple  #: m and tokens
    enqueue: Any  #: cuda.core.launch
    _maps: dict = field(default_factory=dict)  #: addresses -> what says where x and y are

    def __call__(self, stream, x: int, y: int, packed: int, scale_a: int, scale_x: int, bias: int = 0) -> None:
        """Enqueue on a `cuda.core.Stream`. x, y: tokens x k and tokens x m, without gaps, at multiples of 16 bytes;
        packed: of `pack`; scales, bias: float32. Launches may overlap."""
        maps = self._maps.get((x, y)) or self._mapped(x, y)
        self.enqueue(
            stream, self.launch, self.kernel, packed, *maps, *self.numbers, scale_a, scale_x, 0, *self.last, bias
        )

    def _mapped(self, x: int, y: int) -> tuple:
        s, c = self.sizes, self.config
        b = mapped(x, (s.tokens, s.k), (c.n // 2 if c.pairs else c.n, K), "|u1", 128, c.ahead)
        if c.kernel in fp8_family.DIRECT:
            return remember(self._maps, (x, y), (b, y, np.int32(2 * s.m)))
        to = mapped(y, (s.tokens, s.m), (min(64, c.n), 64), "<u2", 128)
        return remember(self._maps, (x, y), (b, to))


@functools.lru_cache(512)
def launcher(sizes: Sizes, ordinal: int) -> Launcher:
    """The kernel for these sizes on the GPU of a CUDA number, which is current: compiled and loaded once.

    Raises ValueError, one sentence, where no kernel takes the sizes or the GPU has no wgmma.
    """
    from cuda.core import launch as enqueue

    check(sizes)
    device = gpu.with_wgmma(ordinal, "a 2:4 layer in FP8")
    config = config_of(sizes, device)
    entry = config.entry("bfloat16", sizes.vectors, sizes.vectors, layer.ORDERS, sizes.activation or sizes.bias)
    kernel = jit.loaded(config.source, entry, device, config.shared_bytes)
    high, wide = config.tiles(sizes.m, sizes.tokens)
    numbers = tuple(map(np.int32, (ceil(sizes.k / K), high, wide, min(config.band, high), KEEP[config.keep])))
    launch = fp8.launch_of(config, sizes.m, sizes.tokens, device)
    last = np.int32(sizes.m), np.int32(sizes.tokens)
    return Launcher(sizes, config, kernel, launch, numbers, last, enqueue)
