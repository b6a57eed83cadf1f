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

from .. import autotune, gpu, tma, workspace
from ..contract import Slot, require
from ..formats.half import DTYPES
from ..formats.two_four import TwoFourEight
from ..lazy import core
from . import family, wgmma
from .family import Fp8
from .operands import EIGHT, label_of
from .tiles import Tile, limits, require_activation

ORDERS = "FF"  # tokens x features: k, and features, side by side
#: What `pack` rounds m and k up to: whole tiles of every kernel, whole rounds of rings of four stages. In 8 bits k is
#: rounded to a stage.
ROWS, COLUMNS = 256, 4 * family.K
QUANTISE = Path(__file__).with_name("quantise.cu")
_ENUM = {"bfloat16": "BF16", "float16": "F16"}


@dataclass(frozen=True)
class Sizes:
    """What a launch depends on besides addresses."""

    m: int  #: features of Y
    k: int  #: features of X
    n: int  #: tokens, columns of C as the system calls them
    dtype: str  #: of A and X
    bias: bool = False
    activation: str = ""
    vectors: bool = False  #: e4m3: a scale for each row of A and for each token, instead of one for each operand

    @property
    def eight(self) -> bool:
        """Tell whether the layer is in FP8."""
        return self.dtype == EIGHT

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
        return wgmma.pack_values(a, ROWS, Fp8.K)
    return wgmma.pack_values(a, ROWS, COLUMNS), wgmma.ring_metadata(a, 3 * ROWS, COLUMNS)


def check(sizes: Sizes) -> None:
    """Raise ValueError, one sentence, for sizes that no kernel here takes."""
    require(
        sizes.dtype in (*DTYPES, EIGHT),
        f"a 2:4 layer multiplies bfloat16 or float16, but is given {sizes.dtype}: convert it",
    )
    for name, value, multiple in (("inputs", sizes.k, 16 if sizes.eight else 8), ("outputs", sizes.m, 8)):
        require(
            value % multiple == 0,
            f"{sizes.said} has {value} {name}, but the copy engine takes multiples of {multiple}: pad them",
        )
    require_activation(sizes.activation)


def reads_packed(config, eight: bool) -> bool:
    """Whether a configuration reads A as `pack` has it, and adds a bias."""
    if not isinstance(config, Tile) or isinstance(config, Fp8) != eight or not config.in_order_of_use:
        return False
    return config.kind.ordered and config.kind.adds and COLUMNS % (config.steps(1) * config.K) == 0


def config_of(sizes: Sizes, device) -> Tile:
    """Return the tuned configuration where the choices have the sizes, else the best by prediction."""
    of, most = (sizes.m, sizes.n, sizes.k), limits(device)
    label = f"{sizes.dtype} {ORDERS}"
    if sizes.eight:
        label = label_of(EIGHT, ORDERS, "vectors" if sizes.vectors else "tensor")
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
    shape, keep = (
        (sizes.m, sizes.n, sizes.k),
        "b" if sizes.n <= 1024 else "a",
    )  # L2 is asked to keep B while it is small
    found = [c for c in family.likely(sizes.eight, *shape, sms, most, ORDERS) if reads_packed(c, sizes.eight)]
    require(
        bool(found),
        f"no kernel takes {sizes.said} of {sizes.k} inputs, {sizes.m} outputs and {sizes.n} tokens on this GPU",
    )
    return min(found, key=lambda c: (c.predict(*shape, sms, ORDERS), c.keep != keep))


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
    order: tuple  #: arguments between the matrices and what is scaled
    _given: dict = field(default_factory=dict)  #: addresses -> arguments

    def __call__(self, stream, x: int, y: int, *held: int) -> None:
        """Enqueue on a `cuda.core.Stream`.

        x, y: tokens x k and tokens x m, without gaps, at multiples of 16 bytes; held: values and metadata of `pack`
        and a bias, float32 (m,) or 0; in 8 bits what `pack` makes, scales of A and of X, float32, and a bias. Launches
        may overlap.
        """
        given = self._given.get((x, y, *held)) or self._arguments(x, y, *held)
        core.launch(stream, self.launch, self.kernel, *given)

    def _arguments(self, x: int, y: int, packed: int, *held: int) -> tuple:
        s, (*scales, bias), metadata = self.sizes, held, None
        if s.eight:
            val, scales = Slot(packed, (1,), "uint8"), [*scales, 0]
        else:
            val = Slot(packed, (s.rows, s.pieces, 64, 32), "uint16")
            metadata = Slot(scales[0], (ceil(s.m / 3 / ROWS) * 3 * ROWS // 64, 128 * s.pieces), "uint32")
            scales = [1, 0]
        b, out = Slot(x, (s.n, s.k), "uint8" if s.eight else "uint16"), Slot(y, (s.n, s.m), "uint16")
        matrices, sizes = (val, metadata, b, out), (s.m, s.n, s.k)
        given = wgmma.arguments(self.config, matrices, self.order, sizes, scales=scales, bias=bias, orders=ORDERS)
        encoded = tuple(tma.encoded(x) if isinstance(x, tma.Mapped) else x for x in given)
        return tma.remember(self._given, (x, y, packed, *held), encoded)


@functools.lru_cache(512)
def launcher(sizes: Sizes, ordinal: int) -> Launcher:
    """Return the kernel for these sizes on the GPU of a CUDA number, which is current: compiled and loaded once.

    Raises ValueError, one sentence, where no kernel takes the sizes or the GPU has no wgmma.
    """
    check(sizes)
    device = gpu.with_wgmma(ordinal, sizes.said)
    config: Any = config_of(sizes, device)
    dtype, scaled = ("bfloat16", [sizes.vectors] * 2) if sizes.eight else (sizes.dtype, [])
    kernel = wgmma.kernel_of(config, config.entry(dtype, sizes.activation or sizes.bias, ORDERS, *scaled), device)
    own, _, count = wgmma.own_of(config, sizes, device)
    launch = config.launch(sizes.m, sizes.n, kernel, device, count)
    return Launcher(sizes, config, kernel, launch, config.order(sizes.m, sizes.n, sizes.k, own))
