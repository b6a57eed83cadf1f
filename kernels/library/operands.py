"""A as callers bring it, made one of the formats here: of SciPy, CuPy, PyTorch, our own, or pruned from a dense array.

Everything happens where A lives, NumPy or CuPy. Values are never rounded in silence: what a dtype does not hold needs
an `accuracy` that says so.
"""

from __future__ import annotations

import sys
from dataclasses import replace

import numpy as np

from .. import formats
from ..contract import require
from ..formats import bcsr, csr, half, intake, nm, two_four
from ..formats.bcsr import Bcsr
from ..formats.csr import Csr
from ..formats.half import array_module
from ..formats.nm import Nm
from ..formats.two_four import TwoFour
from ..formats.wcsr import Wcsr

FORMATS = (Csr, Bcsr, Wcsr, TwoFour, Nm)
PATTERNS = ("2:4", "nm", "block")
DTYPES = ("float32", "bfloat16", "float16")
#: dtype of B -> what `accuracy` may ask of it; the first is what it holds, the default.
ACCURACIES = {
    "float32": ("fp32", "tf32", "fp16", "bf16"),
    "bfloat16": ("bf16",),
    "float16": ("fp16",),
}


def resolved(accuracy: str | None, dtype: str) -> str:
    """What is asked of products: "fp32", "tf32", "fp16" or "bf16"; None is what the dtype of B holds.

    Raises ValueError, one sentence, where B holds less than is asked, and for a dtype that no kernel multiplies.
    """
    require(
        dtype in ACCURACIES,
        f"B is {dtype}, but kernels multiply {', '.join(DTYPES)}: convert it",
    )
    every = ACCURACIES["float32"]
    require(
        accuracy is None or accuracy in every,
        f"accuracy is {accuracy!r}, but must be one of {', '.join(every)}",
    )
    held = ACCURACIES[dtype]
    require(
        accuracy is None or accuracy in held,
        f"accuracy is {accuracy!r}, but B is {dtype}, which holds {held[0]}: bring another B, or ask for that",
    )
    return accuracy or held[0]


def size_of(a) -> tuple[int, int]:
    """(m, k) of a matrix in one of the formats; an `Nm` holds the transpose, k x n, of A."""
    return (a.n, a.k) if isinstance(a, Nm) else (a.m, a.k)


def values_of(a):
    """float32: every value that a format stores, exact."""
    if isinstance(a, Csr | Nm):
        return a.val
    return a.val if a.dtype == "float32" else half.from_bits(a.val, a.dtype)


def dtype_named(a) -> str:
    """The dtype of A's values where kernels multiply it, else float32."""
    name = str(getattr(a, "dtype", "float32")).removeprefix("torch.")
    return name if name in DTYPES else "float32"


def operand(
    a, *, accuracy: str | None = None, dtype: str | None = None, prune: str | None = None,
    density: float | None = None, group: int = 32, vector: int = 32, block: int = 64,
):  # fmt: skip
    """A as one of `FORMATS`, on the side where it lives, validated.

    a: SciPy's or CuPy's sparse matrix of any kind, PyTorch's in CSR, BSR or COO or 2:4 semi-structured, one of our
    formats, or with `prune` a dense array of NumPy, CuPy or PyTorch. Blocks whose sides `bcsr.SIDES` has stay blocks,
    everything else that is no pattern becomes CSR with float32 values. An `Nm` compresses along its first axis,
    so it is that of Aᵀ (k x m): `nm.compress(a.T, …)`.

    prune: "2:4" keeps the two largest magnitudes of each four columns of a row; "nm" keeps density · group of each
    `group` columns, `vector` rows together; "block" keeps the share `density` of blocks with the largest sums of
    squares, without a density those that are not 0. dtype: of the values, "float32" where it is None.
    accuracy: an explicit one allows rounding to the dtype. Raises ValueError, one sentence, for anything else.
    """
    require(
        prune is None or prune in PATTERNS,
        f"prune is {prune!r}, but must be one of {', '.join(PATTERNS)}",
    )
    if prune is None:
        require(density is None, f"density is {density!r}, but nothing is pruned: say prune=")
        return formats.validate(_given(a, accuracy))
    require(
        not isinstance(a, FORMATS) and not _is_sparse(a),
        f"prune is {prune!r}, but A is {_name(a)}, which is sparse already: bring a dense array",
    )
    return _pruned(
        _dense(a, accuracy), prune, density, (group, vector), block, dtype or "float32", accuracy
    )


def _name(a) -> str:
    return f"{type(a).__module__}.{type(a).__qualname__}"


def _root(a) -> str:
    return type(a).__module__.partition(".")[0]


def _is_torch(a) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(a, torch.Tensor)


def _is_sparse(a) -> bool:
    if _is_torch(a):
        return _is_semi_structured(a) or str(a.layout) != "torch.strided"
    return is_scipy(a)


def is_scipy(a) -> bool:
    """Whether it is a sparse matrix of SciPy or CuPy; neither need be there."""
    return _root(a) in ("scipy", "cupyx") and hasattr(a, "tocsr")


def _is_semi_structured(a) -> bool:
    """PyTorch's 2:4 tensors, of whichever library of its kernels: subclasses of a tensor, with names of their own."""
    return any(kind.__name__ == "SparseSemiStructuredTensor" for kind in type(a).__mro__)


def _given(a, accuracy):
    if isinstance(a, FORMATS):
        return a
    if _is_torch(a) and _is_sparse(a):
        return _of_torch(a, accuracy)
    if _is_sparse(a):
        return _of_scipy(a, accuracy)
    dense = _is_torch(a) or hasattr(a, "__array_interface__") or hasattr(a, "__dlpack__")
    raise ValueError(
        f"A is {_name(a)}, a dense array: say which pattern it shall have with prune="
        + " or ".join(f'"{pattern}"' for pattern in PATTERNS)
        if dense
        else f"A is {_name(a)}, but must be a sparse matrix of SciPy, CuPy or PyTorch, one of "
        f"{', '.join(kind.__name__ for kind in FORMATS)}, or a dense array with prune="
    )


# ---------------------------------------------------------------- other libraries' matrices


def _of_scipy(a, accuracy):
    """SciPy's, or CuPy's, which has the same attributes."""
    require(len(a.shape) == 2, f"A has {len(a.shape)} dimensions, but a matrix has 2")
    if getattr(a, "format", "") == "bsr":
        return _of_blocks(*a.shape, a.indptr, a.indices, a.data, accuracy)
    a = a.tocsr()
    return _csr(*a.shape, a.indptr, a.indices, _float32(a.data, accuracy))


def _of_torch(a, accuracy):
    import torch

    a = a.detach()
    require(a.dim() == 2, f"A has {a.dim()} dimensions, but a matrix has 2")
    if _is_semi_structured(a):
        dtype = str(a.dtype).removeprefix("torch.")
        half.require_dtype(dtype)
        return two_four.compress(_array(a.to_dense().float()), dtype)
    if a.layout == torch.sparse_bsr:
        values = _torch_values(a.values(), accuracy)
        made = _of_blocks(
            *a.shape, _array(a.crow_indices()), _array(a.col_indices()), values, accuracy
        )
        dtype = str(a.dtype).removeprefix("torch.")
        if isinstance(made, Bcsr) and dtype in half.DTYPES:
            return replace(made, dtype=dtype, val=half.to_bits(made.val, dtype))
        return made
    if a.layout == torch.sparse_coo:
        a = a.coalesce().to_sparse_csr()
    require(
        a.layout == torch.sparse_csr,
        f"A is a PyTorch tensor in {str(a.layout).removeprefix('torch.')}, but CSR, BSR, COO and 2:4 are taken: "
        "convert it with to_sparse_csr()",
    )
    values = _torch_values(a.values(), accuracy)
    return _csr(*a.shape, _array(a.crow_indices()), _array(a.col_indices()), values)


def _torch_values(values, accuracy):
    import torch

    if values.dtype in (torch.bfloat16, torch.float16):
        values = values.float()  # exact, and bfloat16 is no dtype of NumPy's
    return _float32(_array(values), accuracy)


def _array(tensor):
    """A PyTorch tensor as a NumPy or CuPy array that shares its memory."""
    tensor = tensor.detach().resolve_neg().contiguous()  # a sign that is a flag does not travel
    if not tensor.is_cuda:
        return tensor.numpy()
    import cupy

    # What cupy.from_dlpack does, in a tenth of its time.
    kind, size = np.dtype(str(tensor.dtype).removeprefix("torch.")), tensor.numel()
    memory = cupy.cuda.UnownedMemory(
        tensor.data_ptr(), max(1, size) * kind.itemsize, tensor, tensor.get_device()
    )
    return cupy.ndarray(tuple(tensor.shape), kind, cupy.cuda.MemoryPointer(memory, 0))


def _csr(m: int, k: int, row_ptr, col_idx, val) -> Csr:
    if array_module(val) is not np:
        return intake.taken(m, k, row_ptr, col_idx, val)
    require(
        val.shape[0] <= csr.INT32_MAX,
        f"A has {val.shape[0]} non-zeros, but row offsets have 32 bits: split it by rows",
    )
    row_ptr = csr.narrowed("CSR", "row_ptr", row_ptr)
    return Csr(int(m), int(k), row_ptr, csr.narrowed("CSR", "col_idx", col_idx), val)


def _of_blocks(m: int, k: int, row_ptr, col_idx, val, accuracy):
    """Blocks, (blocks, b_row, b_col), of any sides: BCSR where it has such, else CSR; blocks may come in any order."""
    xp, val = array_module(val), _float32(val, accuracy)
    row_ptr = csr.narrowed("BSR", "row_ptr", row_ptr)
    col_idx = csr.narrowed("BSR", "col_idx", col_idx)
    csr.require_offsets("BSR", row_ptr)
    require(
        int(row_ptr[-1]) == col_idx.shape[0] == val.shape[0],
        f"BSR row_ptr ends at {int(row_ptr[-1])}, but there are {col_idx.shape[0]} column indices and "
        f"{val.shape[0]} blocks: all three must agree",
    )
    csr.require_columns("BSR", col_idx, -(-k // val.shape[2]), "columns of blocks")
    given = Bcsr(int(m), int(k), "float32", row_ptr, col_idx, val, int((val != 0).sum()))
    made = bcsr.to_csr(given)
    if val.shape[1] not in bcsr.SIDES or val.shape[2] not in bcsr.SIDES:
        return made
    place = bcsr.block_rows_of(given) * given.block_columns + col_idx
    if bool((place[1:] > place[:-1]).all()):
        return replace(given, val=xp.ascontiguousarray(val))
    return bcsr.from_csr(made, block=given.block, dtype="float32")


# ---------------------------------------------------------------- values


def _float32(x, accuracy):
    """An array as float32; ValueError where that rounds a value and no accuracy was asked for."""
    xp = array_module(x)
    real = (
        x.dtype.kind in "fiub" or x.dtype.name == "bfloat16"
    )  # ml_dtypes', which NumPy does not count among them
    require(real, f"A holds {x.dtype}, but a matrix is real here")
    made = x.astype(xp.float32, copy=False)
    if accuracy is None and x.dtype.itemsize >= 4 and x.dtype != np.float32:
        _require_same(made, x, str(x.dtype), "float32", "fp32")
    return xp.ascontiguousarray(made)


def _require_same(made, x, given: str, dtype: str, accuracy: str) -> None:
    if x.dtype.kind in "iu":  # compared as float64, 2^53 + 1 would be 2^53
        fits = made < 2.0 ** (8 * x.dtype.itemsize - (x.dtype.kind == "i"))
        xp = array_module(x)
        wrong = ~(fits & (xp.where(fits, made, xp.float32(0)).astype(x.dtype) == x))
    else:
        wrong = ~((made == x) | (made != made))
    if bool(wrong.any()):
        value = x.reshape(-1)[int(wrong.reshape(-1).argmax())]
        raise ValueError(_not_held(given, value.item(), dtype, accuracy))


def _not_held(given: str, value, dtype: str, accuracy: str) -> str:
    return (
        f"A is {given} and has values, such as {value!r}, that {dtype} does not hold: say "
        f"accuracy={accuracy!r} to round them"
    )


def require_held(values, dtype: str, accuracy: str | None) -> None:
    """Raise ValueError where a 16-bit dtype does not hold float32 values and no accuracy was asked for."""
    if dtype in half.DTYPES and accuracy is None:
        at = half.first_not_held(values, dtype)
        if at is not None:
            value = float(formats.to_host(values).ravel(order="K")[at])
            raise ValueError(_not_held("float32", value, dtype, ACCURACIES[dtype][0]))


# ---------------------------------------------------------------- dense arrays


def _dense(a, accuracy):
    """A dense array in float32, where it lives."""
    if _is_torch(a):
        x = _torch_values(a, accuracy)
    else:
        require(
            hasattr(a, "dtype") and hasattr(a, "shape"),
            f"A is {_name(a)}, but must be an array of NumPy, CuPy or PyTorch",
        )
        x = _float32(a, accuracy)
    require(x.ndim == 2, f"A has {x.ndim} dimensions, but a matrix has 2")
    return x


def _pruned(x, prune: str, density, pattern: tuple[int, int], block: int, dtype: str, accuracy):
    require(
        prune == "block" or 0 not in x.shape,
        f"A is {x.shape[0]} x {x.shape[1]}, but prune={prune!r} needs a row and a column at least",
    )
    if prune == "2:4":
        require(density in (None, 0.5), f"density is {density!r}, but 2:4 keeps half: leave it out")
        if dtype in half.DTYPES:
            require_held(x, dtype, accuracy)
            return two_four.compress(x, dtype, prune=True)
        return nm.compress(x.T, 2, 4, 1, prune=True)
    if prune == "nm":
        group, vector = pattern
        require(density is not None, f"prune='nm' needs a density, N/{group}, but has none")
        require_held(x, dtype, accuracy)
        return nm.compress(x.T, nm.keep_of(density, group), group, vector, prune=True)
    require_held(x, dtype, accuracy)
    return bcsr.from_dense(_without_blocks(x, density, block), block=block, dtype=dtype)


def _without_blocks(x, density, block: int):
    """The array with zeros in place of all blocks but the share `density` of the largest sums of squares."""
    if density is None:
        return x
    require(
        isinstance(density, float | int | np.floating | np.integer) and 0 <= density <= 1,
        f"density is {density!r}, but must be a share from 0 to 1",
    )
    xp = array_module(x)
    side = bcsr.sides(block)[0]
    m, k = x.shape
    rows, columns = -(-m // side), -(-k // side)
    padded = xp.zeros((rows * side, columns * side), xp.float32)
    padded[:m, :k] = x
    cells = padded.reshape(rows, side, columns, side)
    score = (cells.astype(xp.float64) ** 2).sum(axis=(1, 3)).reshape(-1)
    stable = {"kind": "stable"} if xp is np else {}  # CuPy's only sort is stable
    order = xp.argsort(-score, **stable)
    keep = xp.zeros(score.size, bool)
    keep[order[: round(density * score.size)]] = True
    cells = xp.where(keep.reshape(rows, 1, columns, 1), cells, xp.float32(0))
    return xp.ascontiguousarray(cells.reshape(padded.shape)[:m, :k])


# ---------------------------------------------------------------- from format to format


def as_csr(a) -> Csr:
    """Any format as CSR of A with float32 values, where it lives; zeros that a pattern stores fall away."""
    if isinstance(a, Csr):
        return a
    if isinstance(a, Bcsr | Wcsr):
        return formats.to_csr(a)
    dense = formats.to_dense(a)
    dense = dense.T if isinstance(a, Nm) else dense
    xp = array_module(dense)
    row, column = xp.nonzero(dense)
    m, k = dense.shape
    place = row.astype(xp.int64) * k + column
    values = xp.ascontiguousarray(dense[row, column])
    return Csr(m, k, csr.offsets(place, m, k), column.astype(xp.int32), values)


def transposed(a: Csr) -> tuple[Csr, object]:
    """(Aᵀ, the place in A's values of each of its values), where A lives."""
    xp = array_module(a.val)
    stable = {"kind": "stable"} if xp is np else {}
    order = xp.argsort(a.col_idx, **stable)
    row_ptr = xp.zeros(a.k + 1, xp.int32)
    row_ptr[1:] = xp.cumsum(xp.bincount(a.col_idx, minlength=a.k))
    columns = csr.rows(a)[order].astype(xp.int32)
    return Csr(a.k, a.m, row_ptr, columns, a.val[order]), order
