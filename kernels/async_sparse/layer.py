"""The system's kernels as a linear layer calls them: by addresses, for any number of tokens, without trials or copies.

    unit_ring   Y (tokens x m) = X (tokens x k) · Aᵀ
    gated       H (tokens x m) = silu(X · Gᵀ) ∘ (X · Uᵀ), G and U in one list of blocks (gated.cu)
    opt5        C (m x tokens) = A · Xᵀ, the source's kernel as it writes: the layer's output is its transpose

Blocks are 64 x 64 of 16-bit values, 8 KiB each, one after another. The tile is the one that was tuned for the sizes,
where the GPU's choices have it, else the best by `family.predict`.
"""

import functools
from dataclasses import dataclass, field
from math import ceil
from typing import Any

from .. import autotune, gpu
from ..contract import require, step
from ..lazy import core
from ..padding import ALIGNMENT
from ..tma import mapped, remember
from . import family, published
from .family import LINE, ROWS, Shape, Unit

KERNELS = ("unit_ring", "gated", "opt5")
_SIZE = 2  # bytes of a value
_K = LINE // _SIZE
_EACH = ALIGNMENT // _SIZE


@dataclass(frozen=True)
class Sizes:
    """What a launch depends on besides addresses."""

    kernel: str
    m: int
    k: int
    blocks: int  #: of A, or of G and U together
    tokens: int
    dtype: str

    @property
    def out(self) -> tuple[int, int]:
        """The shape that is written."""
        return (self.m, self.tokens) if self.kernel == "opt5" else (self.tokens, self.m)


def whole_lines(size: int) -> int:
    """Return the least number of values, at least `size`, whose lines begin at multiples of 16 bytes."""
    return ceil(size / _EACH) * _EACH


def check(sizes: Sizes) -> None:
    """Raise ValueError, one sentence, for sizes that no kernel here takes."""
    require(
        sizes.kernel in KERNELS,
        f"a layer has no kernel {sizes.kernel!r}: choose one of {', '.join(KERNELS)}",
    )
    require(
        sizes.dtype in ("bfloat16", "float16"),
        f"a layer of blocks multiplies bfloat16 or float16, but is given {sizes.dtype}: convert it",
    )
    for name, value in (("inputs", sizes.k), ("outputs", sizes.m)):
        require(
            value % _EACH == 0,
            f"a layer of blocks has {value} {name}, but the copy engine takes multiples of {_EACH}: pad them",
        )


def shape_of(sizes: Sizes) -> Shape:
    """Return the shape that a layer's kernel is chosen for."""
    return Shape(sizes.dtype, ROWS, ROWS, "F", "C" if sizes.kernel == "opt5" else "F")


def config_of(sizes: Sizes, device) -> Unit:
    """Return the tile and its rings: tuned where the choices have the sizes, else the best by prediction."""
    shape = shape_of(sizes)
    most = device.properties.max_shared_memory_per_block_optin
    if sizes.kernel == "unit_ring":
        key = (sizes.m, sizes.tokens, sizes.k, sizes.blocks, ROWS, ROWS, sizes.dtype, "F", "F")
        found = autotune.look_up(
            family.CHOICES, key, device, lambda config: isinstance(config, Unit) and family.takes(config, shape, most)
        )
        if found is not None and isinstance(found.config, Unit):
            return found.config
    sms = device.properties.multiprocessor_count
    tiles = family.tiles(shape, most)
    return min(tiles, key=lambda c: family.predict(c, sizes.m, sizes.tokens, sizes.blocks, shape, sms))


def entry(sizes: Sizes, config: Unit) -> str:
    """Return the template instantiation."""
    if sizes.kernel == "gated":
        return family.instance("gated", sizes.dtype, config.width, config.shared, config.private, config.buffers)
    if sizes.kernel == "opt5":
        return published.entry("opt5", sizes.dtype, "C", published.wgmma_n(sizes.tokens))
    return family.entry(config, shape_of(sizes))


@dataclass
class Launcher:
    """A kernel for its sizes; a call brings the addresses, and enqueues."""

    sizes: Sizes
    kernel: Any
    launch: Any  #: cuda.core.LaunchConfig
    numbers: tuple  #: the arguments after the addresses
    width: int  #: columns of B in a box
    wide: int  #: columns of C in a box
    _maps: dict = field(default_factory=dict)

    def __call__(self, stream, x: int, y: int, val: int, index: int, col_idx: int, counter: int):
        """Enqueue on a `cuda.core.Stream`.

        x, y: tokens x k and tokens x m (opt5: m x tokens), without gaps, at multiples of 16 bytes; val: the blocks;
        index: int4 of each block row, as `layout.ordered_rows` has them (opt5: int32 row_ptr); counter: two uint32
        zeros, which are zeros again afterwards: no two launches may share them at once.
        """
        s = self.sizes
        b = self._map(x, (s.tokens, s.k), (self.width, _K), LINE)
        a = self._map(val, (max(s.blocks, 1) * ROWS, ROWS), (ROWS, _K), LINE)
        if s.kernel == "opt5":
            width = self.wide * _SIZE
            c = self._map(y, (s.m, s.tokens), (ROWS, self.wide), width if width > 16 else 0)
            core.launch(stream, self.launch, self.kernel, a, b, c, index, col_idx, 0)
        else:
            c = self._map(y, (s.tokens, s.m), (self.wide, ROWS), LINE)
            core.launch(stream, self.launch, self.kernel, a, b, c, index, col_idx, counter, *self.numbers)

    def _map(self, address: int, shape: tuple[int, int], box: tuple[int, int], swizzle: int):
        key = address, shape, box
        return self._maps.get(key) or remember(self._maps, key, mapped(address, shape, box, "<u2", swizzle))


@functools.lru_cache(512)
def launcher(sizes: Sizes, ordinal: int) -> Launcher:
    """Return the kernel for these sizes on the GPU of a CUDA number, which is current: compiled and loaded once.

    Raises ValueError, one sentence, where no kernel takes the sizes or the GPU has no wgmma.
    """
    check(sizes)
    device = gpu.with_wgmma(ordinal, "a layer of blocks")
    shape = shape_of(sizes)
    if sizes.kernel == "opt5":
        require(
            sizes.tokens * _SIZE % ALIGNMENT == 0,
            f"opt5 writes lines of {sizes.tokens} tokens, but the copy engine takes multiples of 8: use unit_ring",
        )
        config = Unit(published.wgmma_n(sizes.tokens))
        need = published.shared_bytes("opt5", config.width, _SIZE, "C")
        grid: Any = (ceil(sizes.m / ROWS), ceil(sizes.tokens / config.columns))
        numbers: tuple = ()
    else:
        config = config_of(sizes, device)
        need = family.shared_bytes(config, shape)
        grid, numbers = family.dealt(config, shape, sizes.m, sizes.tokens, sizes.k, device)
    job = family.HERE / f"{sizes.kernel}.cu", entry(sizes, config)
    wide = family.box_columns(config.width, _SIZE, shape.c_order)
    return Launcher(sizes, *step(job, device, grid, family.THREADS, numbers, need), config.width, wide)
