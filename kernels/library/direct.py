"""Products without a plan, in one launch: `spmm` of CSR that lies on the GPU, and SDDMM at its places.

look   checks A's indices, and is waited for
direct multiplies A as it was brought: anything else, and rows so long that one block would be busy with them for
       long, goes by a plan
sddmm  what training asks of A's values, and sddmm_panels where many places of a row lie close together. Of C = A · B
       with the gradient G of C, the gradient of A's value at row i, column j is the product of row i of G and row j of
       B, so (G · Bᵀ) at A's places
"""

import sys
from functools import cache
from math import ceil, inf
from typing import Any, NamedTuple

import numpy as np

from .. import jit, workspace
from ..contract import require
from ..formats import arrays, csr, intake
from . import current, dense
from .dense import Dense, require_no_grad

SOURCE, SAMPLED, PANELS = (jit.ROOT / "library" / f"{name}.cu" for name in ("direct", "sddmm", "sddmm_panels"))
WARPS = 8  #: of a block, each with a row
LONGEST = 16384  #: entries of a row
#: dtype of indices -> their bytes, what direct.cu calls them; of values: what it calls them, how many a word holds.
_INDICES = {"int32": (4, "int"), "int64": (8, "long long")}
_NUMBERS = {"float32": ("Float", 1), "bfloat16": ("Sixteen<BF16>", 2), "float16": ("Sixteen<F16>", 2)}
#: dtype -> what sddmm.cu calls it, bytes of a number.
_SAMPLED = {"float32": ("FLOAT32", 4), "bfloat16": ("BF16", 2), "float16": ("F16", 2)}
UNROLL = 4  #: places of a team, in sddmm.cu
FEWEST = 8  #: lanes of a team, where a row has a load for each: of 16 bytes they are a line of L2
MOST_COLUMNS = 2**30 - 1  #: whose bytes are an unsigned number of 32 bits
AT_ONCE, MOST_LOADS = 32, 4  #: bytes of a lane's loads, and these, at most: registers
#: Of sddmm_panels.cu: lanes of a team at most, and columns that one holds; places of a piece, on average, at least.
MOST_LANES, HELD, FEW_PLACES = 8, 32, 4
#: What an SM of an H100 has of L2 and of shared memory, bytes a clock; what a piece takes beside loads, and a block.
L2, SHARED, OF_A_PIECE, OF_A_BLOCK = 24, 128, 20, 8200
#: Measured over modelled, of sddmm_panels.cu against sddmm.cu, on an H100: ten matrices, n = 16 to 256, 4 and 2 bytes.
#: With it what is chosen takes 1.01 times the quicker one's time, 1.16 at most.
OVER = 1.7


def brought(a) -> tuple[Any, ...] | None:
    """Return (row_ptr, col_idx, val) of CSR on a GPU in arrays of PyTorch or CuPy; None of anything else."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(a, torch.Tensor):
        if a.layout is not torch.sparse_csr or not a.is_cuda or a.dim() != 2:
            return None
        require_no_grad(a, "A")
        a = a.detach()
        val = a.values()
        return None if val.dim() != 1 or val.is_neg() else (a.crow_indices(), a.col_indices(), val)
    if type(a) is csr.Csr and arrays.array_module(a.row_ptr) is not np:
        return a.row_ptr, a.col_idx, a.val
    if getattr(a, "format", "") == "csr" and type(a).__module__.startswith("cupyx."):
        return a.indptr, a.indices, a.data
    return None


def multiplied(a, b, given: Dense, out, alpha: float, beta: float, stream, check: bool):
    """alpha · A · B + beta · out, or None where a plan has to do it; given: what `dense.describe` says of B.

    Raises ValueError, one sentence, where the lengths of A's arrays make no CSR matrix, or its indices are wrong.
    """
    parts = brought(a)
    if parts is None:
        return None
    rows, columns, values = (dense.describe(x, "A") for x in parts)
    plain = all(len(x.shape) == 1 and (x.strides == (1,) or x.shape[0] < 2) for x in (rows, columns, values))
    if not plain or not {rows.dtype, columns.dtype} <= _INDICES.keys() or values.dtype not in _NUMBERS:
        return None
    m, k = map(int, (a.m, a.k) if type(a) is csr.Csr else a.shape)
    csr.require_sizes(m, k)
    csr.require_lengths(m, rows.shape[0], columns.shape[0], values.shape[0])
    for x, name in ((b, "B"), (out, "out")):
        require_no_grad(x, name)
    nnz, ordinal = values.shape[0], values.device
    fits = len(given.shape) == 2 and given.shape[0] == k and given.dtype == values.dtype and given.device == ordinal
    if not fits or not dense.is_laid(given, "C") or 0 in (m, nnz, *given.shape):
        return None
    kind, in_a_word = _NUMBERS[given.dtype]
    wide, odd = divmod(given.shape[1], in_a_word)
    words = width(wide, given.ptr)
    while words > 1 and wide <= 16 * words:  # lanes would have nothing to do
        words //= 2
    blocks = ceil(m / WARPS) * ceil(wide / (32 * max(1, words)))
    if odd or not words or blocks > csr.INT32_MAX:
        return None
    pointer = dense.current(b, ordinal) if stream is None else dense.address_of(stream)
    if out is not None:
        to = dense.describe(out, "out")
        fits = (
            to.shape == (m, given.shape[1])
            and to.dtype == given.dtype
            and to.device == ordinal
            and dense.is_laid(to, "C")
        )
        if not fits or to.ptr % (4 * words) or not dense.apart(given, to):
            return None  # a plan does it, or says what is wrong
    (row_bytes, row_kind), (col_bytes, col_kind) = _INDICES[rows.dtype], _INDICES[columns.dtype]
    with current.opened(ordinal) as device:
        flow = workspace.stream_at(pointer, device)
        lies = intake.Arrays(m, k, nnz, rows.ptr, columns.ptr, row_bytes, col_bytes)
        if check and intake.looked(lies, device, flow, prints=False).longest > LONGEST:
            return None
        if out is None:
            out = dense.empty(b, (m, given.shape[1]), given.dtype, "C", ordinal, None if stream is None else pointer)
        entry = f"direct<{row_kind}, {col_kind}, {kind}, {words}>"
        places = rows.ptr, columns.ptr, values.ptr, given.ptr, np.int64(wide), dense.describe(out, "out").ptr
        sizes = np.int64(wide), np.int32(m), np.int32(wide), np.float32(alpha), np.float32(beta)
        workspace.enqueue(device, flow, SOURCE, entry, blocks, 32 * WARPS, *places, *sizes)
    return out


def width(n: int, *addresses: int) -> int:
    """Words of 4 bytes that a lane loads at once: rows of n of them begin at multiples; 0: at no word."""
    return next((w for w in (4, 2, 1) if n % w == 0 and all(x % (4 * w) == 0 for x in addresses)), 0)


class Team(NamedTuple):
    """The lanes of a warp that multiply two rows, in sddmm.cu."""

    vec: int  #: columns of a load
    loads: int  #: of a lane at once
    lanes: int  #: a power of 2

    def times(self, n: int) -> int:
        """Return how often a team loads until it has n columns."""
        return ceil(n / (self.vec * self.loads * self.lanes))

    def entry(self, n: int, dtype: str, out: str) -> str:
        """Return the instantiation for rows of n columns. dtype: theirs; out: of values."""
        wide = str(self.times(n) > 1).lower()
        return f"sddmm<{_SAMPLED[dtype][0]}, {_SAMPLED[out][0]}, {self.vec}, {self.loads}, {self.lanes}, {wide}>"


def team(n: int, size: int, *addresses: int) -> Team | None:
    """Return the lanes for rows of n numbers of `size` bytes; None where an address is no number's.

    Loads are as wide as n and the addresses of both matrices allow. Of all ways the one that takes the fewest
    instructions, half of one's loads each time for addresses; then one that has a row at once; then the one whose sums
    are added up over few lanes.
    """
    wide = (v for v in (8, 4, 2, 1) if v * size <= 16 and not any(x % (v * size) for x in (n * size, *addresses)))
    vec = next(wide, 0)
    if vec == 0:
        return None
    fits = (
        Team(vec, loads, 1 << bits)
        for bits in range(6)
        for loads in range(1, min(MOST_LOADS, AT_ONCE // (vec * size)) + 1)
        if 2 << bits > min(FEWEST, n // vec)
    )
    return min(fits, key=lambda x: (x.times(n) * x.lanes * (2 * x.loads + 1), x.times(n), x.lanes))


class Staged(NamedTuple):
    """The lanes that multiply two rows, and where they come from, in sddmm_panels.cu."""

    loads: int  #: of 16 bytes of a lane
    lanes: int  #: a power of 2

    @property
    def row_bytes(self) -> int:
        """Return what a row takes of shared memory."""
        return 16 * self.loads * self.lanes

    def entry(self, dtype: str, out: str) -> str:
        """Return the instantiation. dtype: of rows; out: of values."""
        return f"sddmm_panels<{_SAMPLED[dtype][0]}, {_SAMPLED[out][0]}, {self.lanes}, {self.loads}>"

    def threads(self, size: int) -> int:
        """Return those of a block, by the columns of `size` bytes that a lane holds."""
        held = self.loads * 16 // size
        return 32 * (12 if held > 16 else 16 if held > 8 else 24)


def staged(n: int, size: int, *addresses: int) -> Staged | None:
    """Return the lanes for rows of n numbers of `size` bytes; None where sddmm_panels.cu cannot load them."""
    units, odd = divmod(n * size, 16)
    if odd or not 0 < n <= MOST_LANES * HELD or any(x % 16 for x in addresses):
        return None
    lanes = min(MOST_LANES, 1 << (units - 1).bit_length())
    return Staged(ceil(units / lanes), lanes)


class Pieces(NamedTuple):
    """A's places as blocks of sddmm_panels.cu take them: those of a row in a panel of columns, panel by panel."""

    wide: int  #: columns of a panel
    copied: int  #: panels that blocks copy, all together
    cut: Any  #: int32 (blocks + 1,): pieces before a block's
    first: Any  #: int32 (panels + 1,): pieces before a panel's
    piece: Any  #: int32 (pieces, 4): row, first place, the one behind the last, panel

    @staticmethod
    def of(a: csr.Csr, row, wide: int, blocks: int) -> "Pieces | None":
        """Cut A's places into pieces, whatever their order; None where these are too short. row: int32 (nnz,)."""
        xp, nnz = a.xp, a.nnz
        panel, panels = a.col_idx // wide, ceil(a.k / wide)
        new = csr.changes(row) | csr.changes(panel)
        if FEW_PLACES * int(new.sum()) > nnz:
            return None
        begin = xp.flatnonzero(new)
        end, panel = xp.concatenate((begin[1:], xp.full(1, nnz, begin.dtype))), panel[begin]
        order = xp.argsort(panel)
        begin, end, panel = begin[order], end[order], panel[order]
        piece = xp.stack((row[begin], begin, end, panel), axis=1).astype(np.int32)
        first = xp.searchsorted(panel, xp.arange(panels + 1, dtype=panel.dtype)).astype(np.int32)
        work = xp.cumsum(end - begin + OF_A_PIECE // 2)  # blocks have as much as others, not as many
        shares = work[-1] * xp.arange(blocks + 1) // blocks
        cut = xp.searchsorted(work, shares, side="right").astype(np.int32)
        return Pieces(wide, blocks + int(csr.changes(panel).sum()), cut, first, piece)

    def clocks(self, nnz: int, n: int, size: int, lanes: int) -> float:
        """Clocks of SMs, all together, for rows of n numbers of `size` bytes, by teams of so many lanes."""
        row, instructions = n * size, n * (1 + 1 / 4 if size == 4 else 2 + 1 / 8) / 32 + lanes / 3
        copied = self.copied * self.wide + self.piece.shape[0]  # rows
        beside = OF_A_PIECE * self.piece.shape[0] + OF_A_BLOCK * (self.cut.shape[0] - 1)
        return OVER * (copied * row / L2 + nnz * max(row / SHARED, instructions / 4) + beside)


def quickest(cuts: list[Pieces], nnz: int, n: int, made: Staged, size: int, shared: int) -> Pieces | None:
    """Return the pieces with which sddmm_panels.cu is quicker than sddmm.cu, and than with others; None: there is none.

    shared: bytes that a block has at most. What sddmm.cu waits for is a row of B from L2 at every place.
    """
    fits = ((x.clocks(nnz, n, size, made.lanes), i) for i, x in enumerate(cuts) if x.wide * made.row_bytes <= shared)
    clocks, best = min(fits, default=(inf, 0))
    return cuts[best] if clocks < nnz * n * size / L2 else None


class Sampled:
    """(G · Bᵀ) at the places of A (m, k), a `Csr` on a current GPU: (nnz,), in the order of A's values.

    made = Sampled(a, device)
    made(g, b)      # G (m, n), B (k, n): row-major, both float32, bfloat16 or float16, of PyTorch, CuPy or others
    """

    def __init__(self, a: csr.Csr, device):
        self.a, self.device = a, device
        self._row, self._column = csr.rows(a).astype(np.int32), a.col_idx
        if a.nnz and a.col_idx.data.ptr % 16:  # four at once
            self._column = a.col_idx.copy()
        shared, blocks = (
            getattr(device.properties, name) for name in ("max_shared_memory_per_block_optin", "multiprocessor_count")
        )
        # Of rows of B of 1024 bytes at most, 512 and 256.
        narrow = shared // (4 * MOST_LANES * HELD) // 32 * 32
        many = a.nnz * 4 * MOST_LANES * HELD / L2 > OF_A_BLOCK * blocks  # else blocks are not worth it for any n
        cuts = [Pieces.of(a, self._row, times * narrow, blocks) for times in (1, 2, 4) if many]
        pieces = [x for x in cuts if x is not None]
        #: n, bytes of a number and its `Staged`: the `quickest` pieces. Training asks for one again and again.
        self._quickest = cache(lambda n, size, near: quickest(pieces, a.nnz, n, near, size, shared))
        device.sync()  # they are there, whatever stream comes next

    def __call__(self, g, b, dtype: str = "", out=None):
        """Return the values in a dtype, by default that of B, on the current stream; sums are float32.

        out: an array (nnz,) of that dtype, without gaps, to write and return in place of a new one. Raises ValueError,
        one sentence, for other shapes or dtypes.
        """
        ordinal, nnz = self.device.device_id, self.a.nnz
        require_no_grad(g, "G")
        require_no_grad(b, "B")
        left, right = dense.describe(g, "G"), dense.describe(b, "B")
        dtype = dtype or right.dtype
        for name, x, rows in (("G", left, self.a.m), ("B", right, self.a.k)):
            require(
                len(x.shape) == 2
                and x.shape[0] == rows
                and x.dtype in _SAMPLED
                and x.device == ordinal
                and dense.is_laid(x, "C"),
                f"{name} is {x.dtype} {tuple(x.shape)} on GPU {x.device}, but must be row-major float32, bfloat16 or "
                f"float16 of {rows} rows on GPU {ordinal}",
            )
        require(
            left.dtype == right.dtype,
            f"G is {left.dtype} and B {right.dtype}, but a product of their rows has one dtype: convert one of them",
        )
        require(dtype in _SAMPLED, f"values are asked for in {dtype}, but come in {', '.join(_SAMPLED)}")
        n = left.shape[1]
        require(
            right.shape[1] == n,
            f"G has {n} columns and B {right.shape[1]}, but a product of their rows needs as many",
        )
        if out is None:
            out = dense.empty(b, (nnz,), dtype, "C", ordinal, None)
        to = dense.describe(out, "out")
        require(
            (to.shape, to.dtype, to.device, to.readonly) == ((nnz,), dtype, ordinal, False)
            and (nnz < 2 or to.strides == (1,)),
            f"out is {to.dtype} {tuple(to.shape)} on GPU {to.device}, but must be {dtype} {(nnz,)}, without gaps and "
            f"writable, on GPU {ordinal}",
        )
        require_no_grad(out, "out")
        if nnz == 0:
            return out
        size = _SAMPLED[right.dtype][1]
        made = team(n, size, left.ptr, right.ptr)
        if made is None or n > MOST_COLUMNS:
            raise ValueError(
                f"G and B have {n} columns and begin at {left.ptr:#x} and {right.ptr:#x}, but must have {MOST_COLUMNS} "
                f"at most and begin at multiples of {size} bytes: copy them"
            )
        near = staged(n, size, left.ptr, right.ptr)
        pieces = near and self._quickest(n, size, near)
        given = self._column.data.ptr, left.ptr, right.ptr, to.ptr
        with current.opened(ordinal):
            flow = workspace.stream_at(dense.current(b, ordinal), self.device)
            if near and pieces:
                blocks, shared = pieces.cut.shape[0] - 1, pieces.wide * near.row_bytes
                how = PANELS, near.entry(right.dtype, dtype), blocks, near.threads(size)
                lists = (x.data.ptr for x in (pieces.cut, pieces.first, pieces.piece))
                sizes = (np.int32(x) for x in (n, self.a.k, pieces.wide))
                workspace.enqueue(self.device, flow, *how, *sizes, *lists, *given, shared=shared)
            else:
                blocks = ceil(nnz / (32 * WARPS // made.lanes * UNROLL))
                how = SAMPLED, made.entry(n, right.dtype, dtype), blocks, 32 * WARPS
                workspace.enqueue(self.device, flow, *how, np.int32(nnz), np.int32(n), self._row.data.ptr, *given)
        return out
