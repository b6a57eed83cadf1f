"""The system's problems: C (m, n) = A (m, k) · B (k, n), A in blocks (BCSR) or CSR, B and C dense; and its sweeps.

Every number comes from its position in a stream (`kernels.splitmix`), so NumPy and CuPy make the same
bits. The source names no values; these are random, because a GPU multiplies zeros with less power and
hence at higher clocks.
"""

from collections.abc import Callable
from math import ceil

import numpy as np

from .. import splitmix
from ..contract import Operands, Problem, require, require_seed, require_whole
from ..formats import bcsr, csr, half, reorder
from ..formats.csr import INT32_MAX, Csr
from ..formats.half import Half
from ..lazy import cupy

SYSTEM = "async_sparse"
FLOPS_DEF = "2·nnz·N"  # a multiply and an add for every non-zero and column (source, section IV)
BLOCK = 64  #: rows and columns of the source's blocks
TILE = 512  #: columns of C in a thread block of the source's: two consumers of 256 (section IV-B)
DTYPES = ("bfloat16", "float16", "tf32")
#: layout -> memory order of B and of C: "F" is column-major.
LAYOUTS = {"source": "FC", "linear": "FF", "row": "CC"}
REORDERS = ("rcm", "")
#: What A is -> the layout where none is named. Rows of B that single columns of A name want a row-major one.
FORMATS = {"bcsr": "source", "csr": "row"}
CSR_DTYPES = (*DTYPES, "float32")  #: which CUDA cores multiply as it is, and tensor cores in 3xTF32
WINDOW, WINDOW_TILE = 64, 128  #: rows of the source's windows, columns of C in a tile of its kernel
#: gate_proj of Qwen2.5-7B (section IV-D): rows and columns of the weight.
GATE = (18944, 3584)
#: Columns of B, the tokens, and kept shares of Table III; 50 and 70% sparsity are ours.
TOKENS = (1024, 4096, 16384, 65536)
DENSITIES = (0.5, 0.3, 0.2, 0.1, 0.05, 0.01)
#: (m, k) of weights of other models: Llama 2 7B, 13B and 70B, Qwen2.5-7B's other projection, Mistral.
LAYERS = (
    (4096, 4096),
    (11008, 4096),
    (4096, 11008),
    (13824, 5120),
    (28672, 8192),
    (3584, 18944),
    (14336, 4096),
)
WIDE = 16384  #: tokens of what is not a sweep over them
BLOCKS = (16, 32, 64, 128)
#: Sizes that are no multiples of a block, a tile or eight.
RAGGED = (
    (18944, 16384, 3584),
    (18943, 16384, 3584),
    (18944, 16383, 3584),
    (18944, 16384, 3583),
    (1001, 1003, 1005),
    (333, 77, 1111),
)
_PATTERN_VALUES, _B = 1, 2  # streams; `bcsr.random` takes 0 and 1


def problem(
    m: int,
    n: int,
    k: int,
    density: float = 0.1,
    seed: int = 0,
    *,
    block: int | tuple[int, int] = BLOCK,
    dtype: str = "bfloat16",
    layout: str = "source",
) -> Problem:
    """C (m, n) = A (m, k) · B (k, n), round(density · all blocks) of A's blocks full, the others empty.

    Every choice of blocks is equally likely; values are uniform in (-1, 1) and never 0. dtype
    "bfloat16" or "float16": B and C are `Half`; "tf32": all are float32, with values that TF32 holds
    exactly. layout: B column-major and C row-major ("source"), both column-major, as a linear layer
    has its input (n x k) and its output (n x m) ("linear"), or both row-major ("row"). Sizes need not
    be multiples of anything. Raises ValueError, one sentence, for what makes no problem.
    """
    m, n, k, seed = _checked(m, n, k, seed, dtype, layout)
    sides = bcsr.sides(block)
    # Drawn here as well, because a problem says how many blocks and non-zeros it has.
    _, col_idx, nnz = bcsr.random_pattern(m, k, density, seed, block=sides)
    return _problem(
        _label(sides, dtype, layout),
        (m, n, k),
        nnz,
        float(density),
        seed,
        dtype,
        layout,
        *_blocks_bytes(m, n, col_idx.size, sides, _size(dtype)),
        lambda xp: bcsr.random(m, k, density, seed, block=sides, dtype=dtype, xp=xp),
    )


def problem_from_csr(
    a: Csr,
    n: int,
    seed: int = 0,
    label: str = "",
    *,
    block: int | tuple[int, int] = BLOCK,
    dtype: str = "bfloat16",
    layout: str = "",
    reorder: str = "rcm",
    format: str = "bcsr",
) -> Problem:
    """C (m, n) = A · B for the pattern of a matrix on the host, with random values on it.

    format: "bcsr", A in blocks, or "csr", A a `Csr` whose columns ascend in a row: what else a kernel
    multiplies, windows of some height or blocks, it makes of that in `prepare`, and the time counts
    (`prepare_ms`). Values are float32 then, B and C too where dtype is "tf32" or "float32", in which
    values have all digits; `block` is not looked at. layout "": `FORMATS` says which.

    reorder: "rcm", SciPy's reverse Cuthill-McKee of rows and columns alike where A is square, or "",
    the matrix as it comes. Repeated entries become one. The other arguments are those of `problem`;
    on the GPU, A is converted there. Validates A; raises ValueError, one sentence, for what makes no
    problem.
    """
    csr.validate(a)
    require(format in FORMATS, f"format is {format!r}, but A is made one of {', '.join(FORMATS)}")
    layout = layout or FORMATS[format]
    _, n, _, seed = _checked(a.m, n, a.k, seed, dtype, layout, DTYPES if format == "bcsr" else CSR_DTYPES)
    require(reorder in REORDERS, f"reorder is {reorder!r}, but must be 'rcm', or '' for the given order")
    sides = bcsr.sides(block)
    a = with_values(reordered(a, reorder)[0], seed, dtype)
    size, stored = _size(dtype), "float32" if dtype == "tf32" else dtype

    def there(xp):
        return a if xp is np else csr.to_device(a)

    of = (a.m, n, a.k), a.nnz, a.nnz / (a.m * a.k), seed, dtype, layout
    if format == "csr":
        vectors = csr.distinct(csr.rows(a) // WINDOW * a.k + a.col_idx).size  # that hold a non-zero, of all windows
        # The source's kernel: each tile of C reads its window, and the rows of B that the window names.
        asked = ceil(n / WINDOW_TILE) * vectors * (WINDOW * size + 4) + vectors * n * size
        label = label or f"CSR, {dtype}" + f", {layout}" * (layout != FORMATS["csr"])
        return _problem(label, *of, (size + 4) * a.nnz + 4 * (a.m + 1), asked, there)
    blocks = bcsr.count_blocks(a, sides)
    bcsr.require_blocks(blocks, sides[0])
    made = _problem(
        label or _label(sides, dtype, layout),
        *of,
        *_blocks_bytes(a.m, n, blocks, sides, size),
        lambda xp: bcsr.from_csr(there(xp), block=sides, dtype=stored),
    )
    made.source = a
    return made


def reordered(a: Csr, how: str) -> tuple[Csr, float]:
    """Return (A in another order of rows and columns, milliseconds to find it); A itself where none applies.

    how: one of `REORDERS`. A matrix that is not square keeps its order.
    """
    if how != "rcm" or a.m != a.k:
        return a, 0.0
    order, ms = reorder.rcm(a)
    return reorder.permuted(a, order), ms


def with_values(a: Csr, seed: int, dtype: str) -> Csr:
    """Return the pattern of A, repeated entries made one, with random values of a dtype in float32.

    Values go to the entries in the order of rows and, in them, of columns.
    """
    place = csr.rows(a) * a.k + a.col_idx
    if not (place[1:] > place[:-1]).all():
        place = csr.distinct(place)
    val = splitmix.uniform(splitmix.key(seed, _PATTERN_VALUES), place.size, dtype)
    return Csr(
        a.m,
        a.k,
        csr.offsets(place, a.m, a.k),
        (place % a.k).astype(np.int32),
        half.from_bits(val, dtype) if dtype in half.DTYPES else val,
    )


def _checked(m, n, k, seed, dtype, layout, dtypes=DTYPES) -> tuple[int, ...]:
    """Return m, n, k and the seed as Python's integers."""
    sizes = [require_whole(x, of, 1, INT32_MAX, "2^31 - 1") for x, of in (("m", m), ("n", n), ("k", k))]
    require_seed(seed)
    require(
        dtype in dtypes,
        f"dtype is {dtype!r}, but the system's kernels take one of {', '.join(dtypes)}",
    )
    require(layout in LAYOUTS, f"layout is {layout!r}, but must be one of {', '.join(LAYOUTS)}")
    return *sizes, int(seed)


def _label(block: tuple[int, int], dtype: str, layout: str) -> str:
    """Return what tells a problem from the source's: bfloat16, blocks of 64 x 64, C row-major."""
    b_row, b_col = block
    blocks = f"blocks of {b_row}" + f" x {b_col}" * (b_row != b_col)
    unusual = {dtype: dtype != DTYPES[0], blocks: block != (BLOCK, BLOCK), layout: layout != "source"}
    return ", ".join(said for said, is_unusual in unusual.items() if is_unusual)


def _size(dtype: str) -> int:
    """Bytes of a value."""
    return 2 if dtype in half.DTYPES else 4


def _blocks_bytes(m: int, n: int, blocks: int, block: tuple[int, int], size: int) -> tuple[int, int]:
    """(bytes of A, what the source's kernel asks of A and B).

    Every tile of C reads its row of blocks, and for each block as many rows of B. size: of a value.
    """
    b_row, b_col = block
    a = size * blocks * b_row * b_col + 4 * (blocks + ceil(m / b_row) + 1)
    return a, ceil(n / TILE) * a + blocks * b_col * n * size


def _problem(
    label: str,
    sizes: tuple[int, int, int],
    nnz: int,
    density: float,
    seed: int,
    dtype: str,
    layout: str,
    a_bytes: int,
    asked_bytes: int,
    make_a: Callable,
) -> Problem:
    """sizes: m, n, k. a_bytes, asked_bytes: as `_blocks_bytes` has them. make_a: A of NumPy or CuPy."""
    (m, n, k), size = sizes, _size(dtype)

    def matrix(flat, shape: tuple[int, int], order: str):
        array = flat.reshape(shape[::-1]).T if order == "F" else flat.reshape(shape)
        return Half(dtype, array) if dtype in half.DTYPES else array

    def operands(xp) -> Operands:
        b = splitmix.uniform(splitmix.key(seed, _B), k * n, dtype, xp)  # numbers in the order of memory
        c = None if xp is np else matrix(xp.empty(m * n, b.dtype), (m, n), LAYOUTS[layout][1])
        return Operands(make_a(xp), matrix(b, (k, n), LAYOUTS[layout][0]), c)

    return Problem(
        room=SYSTEM,
        label=label,
        m=m,
        n=n,
        k=k,
        nnz=nnz,
        density=density,
        seed=seed,
        useful_flops=2 * nnz * n,
        flops_def=FLOPS_DEF,
        least_bytes=a_bytes + size * (k + m) * n,
        requested_bytes=asked_bytes + size * m * n,
        make_host=lambda: operands(np),
        make_device=lambda: operands(cupy),
        limit="tf32" if dtype == "tf32" else "",
    )


def sweeps(preset: str) -> dict[str, list[dict]]:
    """experiment -> shapes as keyword arguments of `problem`: m, n, k, density (block, dtype, layout).

    Real matrices are no shapes: "ablation", "tile_n", "spmm" and others take them from the system's list. preset:
    "full" or "kick", a part of it that finishes in seconds; else ValueError.
    """
    require(preset in ("full", "kick"), f"preset is {preset!r}, but must be 'full' or 'kick'")
    full = preset == "full"
    (m, k), linear = GATE, {"layout": "linear"}
    tokens = TOKENS if full else TOKENS[:1]
    densities = DENSITIES if full else (0.1,)
    return {
        "gate_proj": [{"m": m, "n": n, "k": k, "density": d, **linear} for n in tokens for d in densities],
        "ladder": [{"m": m, "n": WIDE, "k": k, "density": 0.1}],
        "tried": [
            {"m": m, "n": WIDE, "k": k, "density": d, **linear} for d in ((0.2, 0.1, 0.05, 0.01) if full else (0.1,))
        ],
        "blocks": [
            {"m": m, "n": WIDE, "k": k, "density": 0.1, "block": block, **linear}
            for block in (BLOCKS if full else BLOCKS[-1:])
        ],
        "shapes": [
            {"m": rows, "n": n, "k": columns, "density": d, **linear}
            for rows, columns in (LAYERS if full else LAYERS[:1])
            for n in (8192,)
            for d in ((0.2, 0.05) if full else (0.2,))
        ],
        "half": [
            {"m": m, "n": WIDE, "k": k, "density": 0.1, "dtype": dtype, **linear}
            for dtype in (("bfloat16", "float16", "tf32") if full else ("float16",))
        ],
        "ragged": [
            {"m": rows, "n": n, "k": columns, "density": 0.1, **linear}
            for rows, n, columns in (RAGGED if full else RAGGED[-1:])
        ],
    }
