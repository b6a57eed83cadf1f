"""The system's problems: C (m, n) = A (m, k) · B (k, n), A in blocks (BCSR) or CSR, B and C dense.

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
    _require(m, n, k, seed, dtype, layout)
    m, n, k, seed = map(int, (m, n, k, seed))
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
    _require(a.m, n, a.k, seed, dtype, layout, DTYPES if format == "bcsr" else CSR_DTYPES)
    require(reorder in REORDERS, f"reorder is {reorder!r}, but must be 'rcm', or '' for the given order")
    n, seed, sides = int(n), int(seed), bcsr.sides(block)
    a = with_values(reordered(a, reorder)[0], seed, dtype)
    size, stored = _size(dtype), "float32" if dtype == "tf32" else dtype

    def there(xp):
        return a if xp is np else csr.to_device(a)

    of = (a.m, n, a.k), a.nnz, a.nnz / (a.m * a.k), seed, dtype, layout
    if format == "csr":
        vectors = column_vectors(a)
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


def column_vectors(a: Csr, window: int = WINDOW) -> int:
    """Columns of all windows of so many rows that hold a non-zero, padding not counted."""
    return csr.distinct(csr.rows(a) // window * a.k + a.col_idx).size


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


def dense(xp, rows: int, columns: int, seed: int, dtype: str, order: str):
    """B of a seed, numbers in the order of memory: a `Half`, for "tf32" float32; `xp` makes it."""
    flat = splitmix.uniform(splitmix.key(seed, _B), rows * columns, dtype, xp)
    return _matrix(flat, (rows, columns), dtype, order)


def _matrix(flat, shape: tuple[int, int], dtype: str, order: str):
    array = flat.reshape(shape[::-1]).T if order == "F" else flat.reshape(shape)
    return Half(dtype, array) if dtype in half.DTYPES else array


def _require(m, n, k, seed, dtype, layout, dtypes=DTYPES) -> None:
    for name, value in (("m", m), ("n", n), ("k", k)):
        require_whole(name, value, 1, INT32_MAX, "2^31 - 1")
    require_seed(seed)
    require(
        dtype in dtypes,
        f"dtype is {dtype!r}, but the system's kernels take one of {', '.join(dtypes)}",
    )
    require(layout in LAYOUTS, f"layout is {layout!r}, but must be one of {', '.join(LAYOUTS)}")


def _label(block: tuple[int, int], dtype: str, layout: str) -> str:
    """Return what tells a problem from the source's: bfloat16, blocks of 64 x 64, C row-major."""
    parts = [dtype] if dtype != DTYPES[0] else []
    if block != (BLOCK, BLOCK):
        b_row, b_col = block
        parts.append(f"blocks of {b_row}" if b_row == b_col else f"blocks of {b_row} x {b_col}")
    return ", ".join(parts + [layout] * (layout != "source"))


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
    (m, n, k), size, order_b, order_c = sizes, _size(dtype), *LAYOUTS[layout]

    def operands(xp) -> Operands:
        made = Operands(make_a(xp), dense(xp, k, n, seed, dtype, order_b))
        if xp is not np:
            c = xp.empty(m * n, xp.uint16 if dtype in half.DTYPES else xp.float32)
            made.c = _matrix(c, (m, n), dtype, order_c)
        return made

    def on_device() -> Operands:
        import cupy

        return operands(cupy)

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
        make_device=on_device,
        limit="tf32" if dtype == "tf32" else "",
    )
