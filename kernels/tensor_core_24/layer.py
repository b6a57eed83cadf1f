"""2:4 as a linear layer calls it: by addresses, for any number of tokens, without trials or copies.

    Y (tokens x m) = activation(X (tokens x k) · Aᵀ + bias)                        bfloat16 or float16, A 2:4 along k
    Y (tokens x m) = activation(scale_A · scale_X · X (tokens x k) · Aᵀ + bias)    X and A e4m3, Y bfloat16

A is held once, in the order of use (`pack`): 56% of the dense weight in 16 bits, five eighths in 8, and no kernel reads
it otherwise. Scales are one for A or one for each row of it, and one for X or one for each token. The tile is the one
that was tuned for the sizes, where the GPU's choices have it, else the best by prediction.
"""

import functools
from dataclasses import dataclass, field
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np

from .. import autotune, gpu, workspace
from ..contract import require
from ..formats.half import DTYPES
from ..formats.two_four import TwoFourEight
from ..tma import mapped, remember
from . import family, fp8_family, fp8_operands, tiles, wgmma
from .fp8_family import Fp8
from .fp8_operands import DTYPE
from .tiles import Tile, limits

ORDERS = "FF"  # tokens x features: k, and features, side by side
#: What `pack` rounds m and k up to: whole tiles of every kernel, whole rounds of rings of four stages. In 8 bits k is
#: rounded to a stage.
ROWS, COLUMNS = 256, 4 * family.K
QUANTISE = Path(__file__).with_name("quantise.cu")
_ENUM = {"bfloat16": "BF16", "float16": "F16"}
_LINE = 128  # bytes of a box's line, and of a swizzle


@dataclass(frozen=True)
class Sizes:
    """What a launch depends on besides addresses."""

    m: int  #: features of Y
    k: int  #: features of X
    tokens: int
    dtype: str  #: of A and X
    bias: bool = False
    activation: str = ""
    vectors: bool = False  #: e4m3: a scale for each row of A and for each token, instead of one for each operand

    @property
    def n(self) -> int:
        """Columns of C, as the system calls them."""
        return self.tokens

    @property
    def eight(self) -> bool:
        """Tell whether the layer is in FP8."""
        return self.dtype == DTYPE

    @property
    def said(self) -> str:
        """Return what sentences call the layer."""
        return "a 2:4 layer in FP8" if self.eight else "a 2:4 layer"

    @property
    def rows(self) -> int:
        """Blocks of 64 rows of packed values."""
        return ceil(self.m / ROWS) * ROWS // 64

    @property
    def pieces(self) -> int:
        """Pieces of 64 columns of packed A in each of them."""
        return ceil(self.k / COLUMNS) * COLUMNS // family.K


def pack(a):
    """Return A in the order of use, where A lives, NumPy or CuPy.

    Of a `TwoFour` (values, metadata): uint16 (rows, pieces, 64, 32), and uint32 (rows', 128 pieces), rows of whole
    tiles of any height. Of a `TwoFourEight` both in one: uint8 (m' / 64, k' / 128, 5120).
    """
    if isinstance(a, TwoFourEight):
        return fp8_operands.pack(a, ROWS)
    return wgmma.pack_values(a, ROWS, COLUMNS), wgmma.ring_metadata(a, 3 * ROWS, COLUMNS)


def check(sizes: Sizes) -> None:
    """Raise ValueError, one sentence, for sizes that no kernel here takes."""
    require(
        sizes.dtype in (*DTYPES, DTYPE),
        f"a 2:4 layer multiplies bfloat16 or float16, but is given {sizes.dtype}: convert it",
    )
    for name, value, multiple in (("inputs", sizes.k, 16 if sizes.eight else 8), ("outputs", sizes.m, 8)):
        require(
            value % multiple == 0,
            f"{sizes.said} has {value} {name}, but the copy engine takes multiples of {multiple}: pad them",
        )
    tiles.require_activation(sizes.activation)


def reads_packed(config, eight: bool) -> bool:
    """Whether a configuration reads A as `pack` has it, and adds a bias."""
    if not isinstance(config, Tile) or isinstance(config, Fp8) != eight or not config.in_order_of_use:
        return False
    return config.kind.ordered and config.kind.adds and COLUMNS % (config.steps(1) * config.K) == 0


def config_of(sizes: Sizes, device) -> Tile:
    """Return the tuned configuration where the choices have the sizes, else the best by prediction."""
    of, most = (sizes.m, sizes.tokens, sizes.k), limits(device)
    label = f"{sizes.dtype} {ORDERS}"
    if sizes.eight:
        label = fp8_operands.label("vectors" if sizes.vectors else "tensor", orders=ORDERS)
    found = autotune.look_up(
        family.CHOICES,
        (*of, label),
        device,
        near=True,
        fits=lambda c: reads_packed(c, sizes.eight) and c.takes(*of, *most, ORDERS),
    )
    return found.config if found else predicted(sizes, *most)


@functools.lru_cache(1024)
def predicted(sizes: Sizes, sms: int, most: int) -> Tile:
    """Return the best by prediction. sms: of the GPU; most: bytes of shared memory that a block may have.

    Raises ValueError, one sentence, where no kernel takes the sizes.
    """
    of: Any = fp8_family if sizes.eight else family
    shape, keep = (sizes.m, sizes.tokens, sizes.k), tiles.worth_keeping(sizes.tokens)
    found = [c for c in of.likely(*shape, sms, most, ORDERS) if reads_packed(c, sizes.eight)]
    require(
        bool(found),
        f"no kernel takes {sizes.said} of {sizes.k} inputs, {sizes.m} outputs and {sizes.tokens} tokens on this GPU",
    )
    return min(found, key=lambda c: (of.predict(c, *shape, sms, ORDERS), c.keep != keep))


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
    config: Any
    kernel: Any
    launch: Any  #: cuda.core.LaunchConfig
    enqueue: Any  #: cuda.core.launch
    order: tuple  #: arguments between the matrices and what is scaled
    _given: dict = field(default_factory=dict)  #: addresses -> arguments

    def __call__(self, stream, x: int, y: int, *held: int) -> None:
        """Enqueue on a `cuda.core.Stream`.

        x, y: tokens x k and tokens x m, without gaps, at multiples of 16 bytes; held: values and metadata of `pack`
        and a bias, float32 (m,) or 0; in 8 bits what `pack` makes, scales of A and of X, float32, and a bias. Launches
        may overlap.
        """
        given = self._given.get((x, y, *held)) or self._arguments(x, y, *held)
        self.enqueue(stream, self.launch, self.kernel, *given)

    def _arguments(self, x: int, y: int, *held: int) -> tuple:
        s, c, (*of_a, bias) = self.sizes, self.config, held
        b = mapped(x, (s.tokens, s.k), (c.n // c.below, c.K), "|u1" if s.eight else "<u2", _LINE, c.ahead)
        d: tuple = (y, np.int32(2 * s.m))
        if not c.direct:
            d = (mapped(y, (s.tokens, s.m), (min(64, c.n), 64), "<u2", _LINE),)
        m, tokens = np.int32(s.m), np.int32(s.tokens)
        if s.eight:
            packed, *scales = of_a
            given: tuple = (packed, b, *d, *self.order, *scales, 0, m, tokens, bias)
        else:
            values, metadata = of_a
            a = values if c.kind.packed else mapped(values, (s.rows * s.pieces * 16, _LINE), (16, _LINE), "<u2", 0)
            words = ceil(s.m / 3 / ROWS) * 3 * ROWS // 64, 128 * s.pieces
            e = mapped(metadata, words, (c.m // 64, 128), "<u4", 0)
            added = np.float32(1), np.float32(0), 0, bias
            given = (a, e, b, *d, *self.order, *added, m, tokens, m, np.int32(s.pieces))
        return remember(self._given, (x, y, *held), given)


@functools.lru_cache(512)
def launcher(sizes: Sizes, ordinal: int) -> Launcher:
    """Return the kernel for these sizes on the GPU of a CUDA number, which is current: compiled and loaded once.

    Raises ValueError, one sentence, where no kernel takes the sizes or the GPU has no wgmma.
    """
    from cuda.core import launch as enqueue

    check(sizes)
    device = gpu.with_wgmma(ordinal, sizes.said)
    config: Any = config_of(sizes, device)
    dtype, scaled = ("bfloat16", [sizes.vectors] * 2) if sizes.eight else (sizes.dtype, [])
    kernel = wgmma.kernel_of(config, config.entry(dtype, sizes.activation or sizes.bias, ORDERS, *scaled), device)
    own = config.kind.own(config, sizes, device)
    launch = config.launch(sizes.m, sizes.tokens, kernel, device, own.count)
    order = config.order(sizes.m, sizes.tokens, sizes.k, own.arguments)
    return Launcher(sizes, config, kernel, launch, enqueue, order)
