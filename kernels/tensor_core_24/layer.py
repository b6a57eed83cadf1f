"""2:4 as a linear layer calls it: by addresses, for any number of tokens, without trials or copies.

    Y (tokens x m) = activation(X (tokens x k) · Aᵀ + bias)        bfloat16 or float16, A 2:4 along k

A is held once, in the order of use (`pack`): 56% of the dense weight, and no kernel reads it otherwise. The tile is
the one that was tuned for the sizes, where the GPU's choices have it, else the best by `family.predict`.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from math import ceil
from typing import Any

import numpy as np

from .. import gpu, tuning
from ..contract import require
from ..formats.two_four import TwoFour
from ..pitch import ALIGNMENT
from ..tma import mapped, remember
from . import family, fp8_family, wgmma
from .family import ACTIVATIONS, KEEP, Wgmma

ORDERS = "FF"  # tokens x features: k, and features, side by side
#: What `pack` rounds m and k up to: whole tiles of every kernel, whole rounds of rings of four stages.
ROWS, COLUMNS = 256, 4 * family.K
_SIZE = 2  # bytes of a value
_EACH = ALIGNMENT // _SIZE
_LINE = 128  # bytes of a box's line, and of a swizzle


@dataclass(frozen=True)
class Sizes:
    """What a launch depends on besides addresses."""

    m: int  #: features of Y
    k: int  #: features of X
    tokens: int
    dtype: str
    bias: bool = False
    activation: str = ""

    @property
    def n(self) -> int:
        """Columns of C, as the room calls them."""
        return self.tokens

    @property
    def rows(self) -> int:
        """Blocks of 64 rows of packed values."""
        return ceil(self.m / ROWS) * ROWS // 64

    @property
    def pieces(self) -> int:
        """Pieces of 64 columns of packed A in each of them."""
        return ceil(self.k / COLUMNS) * COLUMNS // family.K


def pack(a: TwoFour):
    """(values, metadata) of A in the order of use, where A lives, NumPy or CuPy: uint16 (rows, pieces, 64, 32), and
    uint32 (rows', 128 pieces), rows of whole tiles of any height."""
    return wgmma.pack_values(a, ROWS, COLUMNS), wgmma.ring_metadata(a, 3 * ROWS, COLUMNS)


def check(sizes: Sizes) -> None:
    """Raise ValueError, one sentence, for sizes that no kernel here takes."""
    require(
        sizes.dtype in ("bfloat16", "float16"),
        f"a 2:4 layer multiplies bfloat16 or float16, but is given {sizes.dtype}: convert it",
    )
    for name, value in (("inputs", sizes.k), ("outputs", sizes.m)):
        require(
            value % _EACH == 0,
            f"a 2:4 layer has {value} {name}, but the copy engine takes multiples of {_EACH}: pad them",
        )
    require(
        sizes.activation in ("", *ACTIVATIONS),
        f"activation is {sizes.activation!r}, but must be one of {', '.join(ACTIVATIONS)}, or empty",
    )


def reads_packed(config: Wgmma) -> bool:
    """Whether a configuration reads A as `pack` has it, and adds a bias."""
    rounds = config.steps(1) * family.K
    return (config.packed or config.kernel == "few") and config.kind.adds and COLUMNS % rounds == 0


def config_of(sizes: Sizes, device) -> Wgmma:
    """The tuned configuration where the choices have the sizes, else the best by prediction."""
    limits = (
        device.properties.multiprocessor_count,
        device.properties.max_shared_memory_per_block_optin,
    )
    key = (sizes.m, sizes.tokens, sizes.k, f"{sizes.dtype} {ORDERS}")
    found = tuning.look_up(
        family.CHOICES,
        key,
        device,
        near=True,
        fits=lambda c: isinstance(c, Wgmma) and reads_packed(c) and family.takes(c, *key[:3], *limits, ORDERS),
    )
    return found.config if found is not None else predicted(sizes, *limits)


@functools.lru_cache(1024)
def predicted(sizes: Sizes, sms: int, most: int) -> Wgmma:
    """The best by `family.predict`. sms: of the GPU; most: bytes of shared memory that a block may have."""
    found = [c for c in family.likely(sizes.m, sizes.tokens, sizes.k, sms, most, ORDERS) if reads_packed(c)]
    require(
        bool(found),
        f"no kernel takes a 2:4 layer of {sizes.k} inputs, {sizes.m} outputs and {sizes.tokens} tokens on this GPU",
    )
    keep = fp8_family.worth_keeping(sizes.tokens)

    def rank(c: Wgmma) -> tuple:
        return family.predict(c, sizes.m, sizes.tokens, sizes.k, sms, ORDERS), c.keep != keep

    return min(found, key=rank)


@dataclass
class Launcher:
    """A kernel for its sizes; a call brings the addresses, and enqueues."""

    sizes: Sizes
    config: Wgmma
    kernel: Any
    launch: Any  #: cuda.core.LaunchConfig
    before: tuple  #: arguments between the tensor maps and what is scaled
    after: tuple  #: the last ones
    enqueue: Any  #: cuda.core.launch
    _maps: dict = field(default_factory=dict)  #: addresses -> the first four arguments

    def __call__(self, stream, x: int, y: int, values: int, metadata: int, bias: int = 0) -> None:
        """Enqueue on a `cuda.core.Stream`. x, y: tokens x k and tokens x m, without gaps, at multiples of 16 bytes;
        values, metadata: of `pack`; bias: float32 (m,). Launches may overlap."""
        maps = self._maps.get((x, y, values, metadata)) or self._mapped(x, y, values, metadata)
        self.enqueue(stream, self.launch, self.kernel, *maps, *self.before, 0, bias, *self.after)

    def _mapped(self, x: int, y: int, values: int, metadata: int) -> tuple:
        s, c = self.sizes, self.config
        lines = s.rows * s.pieces * 16
        rows = ceil(s.m / 3 / ROWS) * 3 * ROWS // 64
        a = values if c.kernel == "few" else mapped(values, (lines, _LINE), (16, _LINE), "<u2", 0)
        found = (
            a,
            mapped(metadata, (rows, 128 * s.pieces), (c.m // 64, 128), "<u4", 0),
            mapped(x, (s.tokens, s.k), (c.n // c.share, family.K), "<u2", _LINE),
            mapped(y, (s.tokens, s.m), (min(64, c.n), 64), "<u2", _LINE),
        )
        return remember(self._maps, (x, y, values, metadata), found)


@functools.lru_cache(512)
def launcher(sizes: Sizes, ordinal: int) -> Launcher:
    """The kernel for these sizes on the GPU of a CUDA number, which is current: compiled and loaded once.

    Raises ValueError, one sentence, where no kernel takes the sizes or the GPU has no wgmma.
    """
    from cuda.core import launch as enqueue

    check(sizes)
    device = gpu.with_wgmma(ordinal, "a 2:4 layer")
    config = config_of(sizes, device)
    extra = sizes.activation or sizes.bias
    kernel = wgmma.kernel_of(config, config.entry(sizes.dtype, extra, ORDERS), device)
    high, wide = wgmma.grid_of(config, sizes.m, sizes.tokens)
    own, i32 = wgmma.own_of(config, sizes, device), np.int32
    before = (
        i32(config.steps(sizes.k)),
        *map(i32, (high, wide, min(config.band, high))),
        *own.arguments,
        *(() if config.kind.hints == "never" else [i32(KEEP[config.keep])]),
        np.float32(1),
        np.float32(0),
    )
    after = tuple(map(i32, (sizes.m, sizes.tokens, sizes.m, sizes.pieces)))
    launch = wgmma.launch_of(config, sizes.m, sizes.tokens, kernel, device, own.count)
    return Launcher(sizes, config, kernel, launch, before, after, enqueue)
