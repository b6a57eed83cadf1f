"""2:4 as a linear layer calls it: by addresses, for any number of tokens, without trials or copies.

    Y (tokens x m) = activation(X (tokens x k) · Aᵀ + bias)        bfloat16 or float16, A 2:4 along k

A is held once, in the order of use (`pack`): 56% of the dense weight, and no kernel reads it otherwise. The tile is
the one that was tuned for the sizes, where the GPU's choices have it, else the best by `family.predict`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import Any

import numpy as np

from .. import gpu, tuning
from ..contract import require
from ..formats.two_four import TwoFour
from ..tma import mapped, remember
from . import family, tiles, wgmma
from .family import Wgmma
from .tiles import Tile, limits

ORDERS = "FF"  # tokens x features: k, and features, side by side
#: What `pack` rounds m and k up to: whole tiles of every kernel, whole rounds of rings of four stages.
ROWS, COLUMNS = 256, 4 * family.K
_LINE = 128  # bytes of a box's line, and of a swizzle


@dataclass(frozen=True)
class Features:
    """What a launch depends on besides addresses, the dtype and what follows the product."""

    m: int  #: features of Y
    k: int  #: features of X
    tokens: int

    @property
    def shape(self) -> tuple[int, int, int]:
        """m, n and k, as the room calls them."""
        return self.m, self.tokens, self.k

    @property
    def n(self) -> int:
        """Columns of C, as the room calls them."""
        return self.tokens


@dataclass(frozen=True)
class Sizes(Features):
    """What a launch depends on besides addresses."""

    dtype: str
    bias: bool = False
    activation: str = ""

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
    require_features("a 2:4 layer", sizes, 8, sizes.activation)


def require_features(what: str, sizes: Features, inputs: int, activation: str) -> None:
    """Raise ValueError, one sentence, where inputs are no multiple of so many, outputs none of 8, or nothing is so
    activated."""
    for name, value, multiple in (("inputs", sizes.k, inputs), ("outputs", sizes.m, 8)):
        require(
            value % multiple == 0,
            f"{what} has {value} {name}, but the copy engine takes multiples of {multiple}: pad them",
        )
    tiles.require_activation(activation)


def reads_packed(config) -> bool:
    """Whether a configuration reads A as `pack` has it, and adds a bias."""
    if not isinstance(config, Wgmma) or not config.in_order_of_use or not config.kind.ordered:
        return False
    return config.kind.adds and COLUMNS % (config.steps(1) * family.K) == 0


def config_of(sizes: Sizes, device) -> Wgmma:
    """The tuned configuration where the choices have the sizes, else the best by prediction."""
    return tuned(sizes, f"{sizes.dtype} {ORDERS}", device, reads_packed) or predicted(sizes, *limits(device))


def tuned(sizes: Features, label: str, device, reads: Callable[[Any], bool]):
    """The configuration that choices have for the sizes and the label, one that `reads` what a layer holds, or None."""
    takes = (*sizes.shape, *limits(device), ORDERS)
    found = tuning.look_up(
        family.CHOICES, (*sizes.shape, label), device, near=True, fits=lambda c: reads(c) and c.takes(*takes)
    )
    return found and found.config


@functools.lru_cache(1024)
def predicted(sizes: Sizes, sms: int, most: int) -> Wgmma:
    """The best by `family.predict`. sms: of the GPU; most: bytes of shared memory that a block may have."""
    found = family.likely(*sizes.shape, sms, most, ORDERS)
    return best("a 2:4 layer", sizes, filter(reads_packed, found), family.predict, sms)


def best(what: str, sizes: Features, configs, predict: Callable[..., float], sms: int):
    """The configuration that is predicted to be the fastest; ValueError, one sentence, where there is none."""
    found: Sequence[Tile] = list(configs)
    require(
        bool(found),
        f"no kernel takes {what} of {sizes.k} inputs, {sizes.m} outputs and {sizes.tokens} tokens on this GPU",
    )
    keep = tiles.worth_keeping(sizes.tokens)
    return min(found, key=lambda c: (predict(c, *sizes.shape, sms, ORDERS), c.keep != keep))


@dataclass
class Launcher:
    """A kernel for its sizes; a call brings the addresses, and enqueues."""

    sizes: Any
    config: Any
    kernel: Any
    launch: Any  #: cuda.core.LaunchConfig
    enqueue: Any  #: cuda.core.launch
    before: tuple  #: arguments between the tensor maps and what is scaled
    after: tuple  #: the last ones
    _maps: dict = field(default_factory=dict)  #: addresses -> what says where matrices are

    def __call__(self, stream, x: int, y: int, values: int, metadata: int, bias: int = 0) -> None:
        """Enqueue on a `cuda.core.Stream`. x, y: tokens x k and tokens x m, without gaps, at multiples of 16 bytes;
        values, metadata: of `pack`; bias: float32 (m,). Launches may overlap."""
        maps = self._maps.get((x, y, values, metadata)) or self._mapped(x, y, values, metadata)
        self.enqueue(stream, self.launch, self.kernel, *maps, *self.before, 0, bias, *self.after)

    def _mapped(self, x: int, y: int, values: int, metadata: int) -> tuple:
        s, c = self.sizes, self.config
        rows = ceil(s.m / 3 / ROWS) * 3 * ROWS // 64
        in_boxes = (s.rows * s.pieces * 16, _LINE), (16, _LINE), "<u2", 0
        found = (
            values if c.kind.packed else mapped(values, *in_boxes),
            mapped(metadata, (rows, 128 * s.pieces), (c.m // 64, 128), "<u4", 0),
            mapped(x, (s.tokens, s.k), (c.n // c.below, family.K), "<u2", _LINE),
            mapped(y, (s.tokens, s.m), (min(64, c.n), 64), "<u2", _LINE),
        )
        return remember(self._maps, (x, y, values, metadata), found)


@functools.lru_cache(512)
def launcher(sizes: Sizes, ordinal: int) -> Launcher:
    """The kernel for these sizes on the GPU of a CUDA number, which is current: compiled and loaded once.

    Raises ValueError, one sentence, where no kernel takes the sizes or the GPU has no wgmma.
    """
    check(sizes)
    device = gpu.with_wgmma(ordinal, "a 2:4 layer")
    config = config_of(sizes, device)
    entry = config.entry(sizes.dtype, sizes.activation or sizes.bias, ORDERS)
    own = config.kind.own(config, sizes, device)
    before = (*config.order(*sizes.shape, own.arguments), np.float32(1), np.float32(0))
    after = tuple(map(np.int32, (sizes.m, sizes.tokens, sizes.m, sizes.pieces)))
    return Launcher(sizes, config, *loaded(config, entry, sizes, device, own.count), before, after)


def loaded(config: Tile, entry: str, sizes: Features, device, count: int = 0) -> tuple[Any, Any, Any]:
    """(kernel, `cuda.core.LaunchConfig`, `cuda.core.launch`)."""
    from cuda.core import launch as enqueue

    kernel = wgmma.kernel_of(config, entry, device)
    return kernel, config.launch(sizes.m, sizes.tokens, kernel, device, count), enqueue
