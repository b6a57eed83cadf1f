"""A as callers bring it, made one of the formats here: of SciPy, CuPy, PyTorch, our own, or pruned from a dense array.

Everything happens where A lives, NumPy or CuPy. Values are never rounded in silence: what a dtype does not hold needs
an `accuracy` that says so. Sparse tensors of PyTorch are COO, CSR, CSC, BSR, BSC and 2:4, checked before anything reads
through them: PyTorch checks no index by default, and its conversions read and write wherever one points.
"""

import sys
from contextlib import suppress
from dataclasses import replace
from types import SimpleNamespace

import numpy as np

from .. import formats
from ..contract import require
from ..formats import arrays, bcsr, compress, csr, foreign, half, intake, nm, two_four, wcsr
from ..lazy import cupy, torch
from .dense import called, named

FORMATS = (csr.Csr, bcsr.Bcsr, wcsr.Wcsr, two_four.TwoFour, nm.Nm)
DTYPES = ("float32", "bfloat16", "float16")
PATTERNS = ("2:4", "nm", "block")  #: that a dense array is pruned to
#: dtype of B -> what `accuracy` may ask of it; the first is what it holds, the default.
ACCURACIES = {
    "float32": ("fp32", "tf32", "fp16", "bf16"),
    "bfloat16": ("bf16",),
    "float16": ("fp16",),
}


def resolved(accuracy: str | None, dtype: str) -> str:
    """Return what is asked of products: "fp32", "tf32", "fp16" or "bf16"; None is what the dtype of B holds.

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


#: Other words for a dtype, in lower case; NumPy knows more.
_SPELT = {
    **dict.fromkeys(("float", "fp32", "f32"), "float32"),
    **dict.fromkeys(("bf16", "bfloat"), "bfloat16"),
    **dict.fromkeys(("fp16", "f16"), "float16"),
    **dict.fromkeys(("fp64", "f64"), "float64"),
}


def dtype_name(dtype) -> str | None:
    """Return what a dtype is called here, "float32" say; None stays None.

    dtype: PyTorch's, NumPy's or `ml_dtypes`', a class of theirs, or text: "torch.float16", "fp16", "half", "<f4".
    Raises ValueError, one sentence, for what is no dtype; whether kernels multiply it, `resolved` says.
    """
    if dtype is None:
        return None
    if type(dtype).__module__.partition(".")[0] == "torch":
        return named(dtype)
    wanted = dtype
    if isinstance(dtype, str):
        word = dtype.strip().lower().rpartition(".")[2]
        wanted = _SPELT.get(word, word)
    if wanted == "bfloat16":  # of which NumPy need not know
        return wanted
    with suppress(TypeError, ValueError):
        found = np.dtype(wanted)
        if found.isnative:
            return found.name
    raise ValueError(
        f"dtype is {dtype!r}, but must be one of {', '.join(DTYPES)}, as text or as a dtype of PyTorch or NumPy"
    )


def size_of(a) -> tuple[int, int]:
    """(m, k) of a matrix in one of the formats; an `Nm` holds the transpose, k x n, of A."""
    return (a.n, a.k) if isinstance(a, nm.Nm) else (a.m, a.k)


def values_of(a):
    """float32: every value that a format stores, exact."""
    return a.val if getattr(a, "dtype", "float32") == "float32" else half.from_bits(a.val, a.dtype)


def dtype_named(a) -> str:
    """Return the dtype of A's values where kernels multiply it, else float32."""
    name = named(getattr(a, "dtype", "float32"))
    return name if name in DTYPES else "float32"


def operand(
    a,
    *,
    accuracy: str | None = None,
    dtype: str | None = None,
    prune: str | None = None,
    density: float | None = None,
    group: int = 32,
    vector: int = 32,
    block: int = 64,
    check: bool = True,
):
    """Return A as one of `FORMATS`, on the side where it lives, validated.

    a: SciPy's or CuPy's sparse matrix of any kind, PyTorch's in COO, CSR, CSC, BSR, BSC or 2:4 semi-structured, what
    becomes one of SciPy's by its `tocsr()`, one of our formats, or with `prune` a dense array of NumPy, CuPy or
    PyTorch. Blocks whose sides `bcsr.SIDES` has stay blocks, everything else that is no pattern becomes CSR with
    float32 values. An `Nm` compresses along its first axis, so it is that of Aᵀ (k x m): `nm.compress(a.T, …)`.

    prune: "2:4" keeps the two largest magnitudes of each four columns of a row; "nm" keeps density · group of each
    `group` columns, `vector` rows together; "block" keeps the share `density` of blocks with the largest sums of
    squares, without a density those that are not 0. dtype: of the values, as `dtype_name` takes it; None: that of A.
    accuracy: an explicit one allows rounding to the dtype. check: whether the indices of what is made are looked at;
    those that a conversion reads through are in any case.
    Raises ValueError, one sentence, for anything else.
    """
    dtype = dtype_name(dtype) or dtype_named(a)
    require(
        prune is None or prune in PATTERNS,
        f"prune is {prune!r}, but must be one of {', '.join(PATTERNS)}",
    )
    if prune is None:
        require(density is None, f"density is {density!r}, but nothing is pruned: say prune=")
        made = _read(a, accuracy)
        return formats.validate(made) if check else made
    require(
        not isinstance(a, FORMATS) and not _is_sparse(a),
        f"prune is {prune!r}, but A is {called(a)}, which is sparse already: bring a dense array",
    )
    require(
        hasattr(a, "dtype") and hasattr(a, "shape"),
        f"A is {called(a)}, but must be an array of NumPy, CuPy or PyTorch",
    )
    x = float32(array(real(a)) if _is_torch(a) else a, accuracy)
    require(x.ndim == 2, f"A has {x.ndim} dimensions, but a matrix has 2")
    require(
        prune == "block" or 0 not in x.shape,
        f"A is {x.shape[0]} x {x.shape[1]}, but prune={prune!r} needs a row and a column at least",
    )
    require_held(x, dtype, accuracy)
    if prune == "2:4":
        require(density in (None, 0.5), f"density is {density!r}, but 2:4 keeps half: leave it out")
        as_pairs = dtype in half.DTYPES
        return two_four.compress(x, dtype, prune=True) if as_pairs else nm.compress(x.T, 2, 4, 1, prune=True)
    if prune == "nm":
        require(density is not None, f"prune='nm' needs a density, N/{group}, but has none")
        return nm.compress(x.T, nm.keep_of(float(density or 0), group), group, vector, prune=True)
    return bcsr.from_dense(x, block=block, dtype=dtype, density=density)


def _is_torch(a) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(a, torch.Tensor)


def _is_sparse(a) -> bool:
    of_torch = _is_torch(a) and (is_semi_structured(a) or str(a.layout) != "torch.strided")
    return of_torch or is_scipy(a)


is_scipy = foreign.is_sparse


def is_semi_structured(a) -> bool:
    """PyTorch's 2:4 tensors, of whichever library of its kernels: subclasses of a tensor, with names of their own."""
    return any(kind.__name__ == "SparseSemiStructuredTensor" for kind in type(a).__mro__)


def _read(a, accuracy):
    """Return a sparse matrix as one of `FORMATS`; ValueError, one sentence, for what is none."""
    if isinstance(a, FORMATS):
        # What was found of its arrays before is not believed: they may have changed.
        return replace(a, facts=None) if isinstance(a, csr.Csr) and a.facts else a
    if _is_torch(a) and _is_sparse(a):
        return _of_tensor(a.detach(), accuracy)
    if not is_scipy(a) and callable(getattr(a, "tocsr", None)):  # another library's, or a view of a file
        given, a = a, a.tocsr()
        require(is_scipy(a), f"A is {called(given)}, whose tocsr() gives {called(a)}: bring a matrix of SciPy")
    if is_scipy(a) and a.format == "bsr":
        foreign.checked(a)
        stored_blocks = int(a.indptr[-1])  # SciPy's arrays may be longer
        row_ptr = csr.narrowed("BSR", "row_ptr", a.indptr)
        col_idx = csr.narrowed("BSR", "col_idx", a.indices[:stored_blocks])
        return blocks_of(*a.shape, row_ptr, col_idx, float32(a.data[:stored_blocks], accuracy))
    if is_scipy(a):
        row_ptr, col_idx, val = foreign.csr_arrays(a)
        return csr_of(*a.shape, row_ptr, col_idx, float32(val, accuracy))
    dense = _is_torch(a) or hasattr(a, "__array_interface__") or hasattr(a, "__dlpack__")
    raise ValueError(
        f"A is {called(a)}, a dense array: say which pattern it shall have with prune="
        + " or ".join(f'"{pattern}"' for pattern in PATTERNS)
        if dense
        else f"A is {called(a)}, but must be a sparse matrix of SciPy, CuPy or PyTorch, one of "
        f"{', '.join(kind.__name__ for kind in FORMATS)}, or a dense array with prune="
    )


# ---------------------------------------------------------------- other libraries' matrices


def array(tensor):
    """Return a PyTorch tensor as a NumPy or CuPy array that shares its memory."""
    tensor = tensor.detach().resolve_neg().contiguous()  # a sign that is a flag does not travel
    if not tensor.is_cuda:
        return tensor.numpy()
    # What cupy.from_dlpack does, in a tenth of its time.
    kind, size = np.dtype(named(tensor.dtype)), tensor.numel()
    memory = cupy.cuda.UnownedMemory(tensor.data_ptr(), max(1, size) * kind.itemsize, tensor, tensor.get_device())
    return cupy.ndarray(tuple(tensor.shape), kind, cupy.cuda.MemoryPointer(memory, 0))


def csr_of(m: int, k: int, row_ptr, col_idx, val) -> csr.Csr:
    """CSR with 32-bit indices, or ValueError where these do not count its entries; values are float32."""
    if arrays.array_module(val) is not np:
        return intake.taken(m, k, row_ptr, col_idx, val)
    require(
        val.shape[0] <= csr.INT32_MAX,
        f"A has {val.shape[0]} non-zeros, but row offsets have 32 bits: split it by rows",
    )
    return csr.Csr(
        int(m),
        int(k),
        csr.narrowed("CSR", "row_ptr", row_ptr, copy=False),
        csr.narrowed("CSR", "col_idx", col_idx, copy=False),
        val,
    )


def blocks_of(m: int, k: int, row_ptr, col_idx, val):
    """Blocks (blocks, b_row, b_col) of float32 and of any sides, whose indices were checked.

    BCSR where it has such sides, else CSR; blocks may come in any order.
    """
    nnz = csr.count_nonzero(val)
    made = bcsr.in_order(bcsr.Bcsr(int(m), int(k), "float32", row_ptr, col_idx, val, nnz))
    return made if set(val.shape[1:]) <= set(bcsr.SIDES) else bcsr.to_csr(made)


# ---------------------------------------------------------------- PyTorch's


def _of_tensor(a, accuracy):
    """Return a sparse tensor on its side, as the format that it becomes; what an own format checks is still to come."""
    require(a.dim() == 2, f"A has {a.dim()} dimensions, but a matrix has 2")
    require(
        a.device.type in ("cpu", "cuda"),
        f"A is a tensor on {a.device.type}, but must be on the host or on a GPU: copy it",
    )
    if is_semi_structured(a):
        half.require_dtype(named(a.dtype))
        return two_four.compress(_bits(a.to_dense()), named(a.dtype))
    kind = str(a.layout).removeprefix("torch.sparse_")
    require(
        kind in ("coo", "csr", "csc", "bsr", "bsc"),
        f"A is a PyTorch tensor in {kind}, but COO, CSR, CSC, BSR, BSC and 2:4 are taken: convert it with "
        "to_sparse_csr()",
    )
    if kind == "coo":
        a = _summed(a)
    elif kind == "csc":
        made = torch.sparse_csc_tensor(*_checked(a, kind), real(a.values()), a.shape, check_invariants=False)
        a = made.to_sparse_csr()
    elif kind == "bsc":
        made = torch.sparse_bsc_tensor(*_checked(a, kind), a.values(), a.shape, check_invariants=False)
        a = made.to_sparse_bsr(tuple(a.values().shape[1:]))
    val, dtype = a.values(), named(a.dtype)
    if kind not in ("bsr", "bsc"):
        return csr_of(*a.shape, array(a.crow_indices()), array(a.col_indices()), float32(array(real(val)), accuracy))
    row_ptr, col_idx = (array(x.int()) for x in _checked(a, "bsr"))
    if dtype not in csr.DTYPES or not set(val.shape[1:]) <= set(bcsr.SIDES):
        return blocks_of(*a.shape, row_ptr, col_idx, float32(array(real(val)), accuracy))
    nnz = int(torch.count_nonzero(val))
    val = array(val) if dtype == "float32" else _bits(val)
    return bcsr.in_order(bcsr.Bcsr(*map(int, a.shape), dtype, row_ptr, col_idx, val, nnz))


def _bits(x):
    """Bit patterns, uint16, of a tensor of 16 bits, whose dtype not every library has."""
    return array(x.resolve_neg().contiguous().view(torch.int16)).view(np.uint16)


def _summed(a):
    """Return a COO tensor in CSR, entries at one place added up."""
    require(
        a.dense_dim() == 0,
        f"A is a hybrid COO tensor, whose entries are {a.dense_dim()}-dimensional arrays, as an embedding's sparse "
        "gradient has them: bring numbers for entries, as to_dense().to_sparse() makes them",
    )
    index, val = a._indices(), real(a._values())
    row, column, data = map(array, (*index, val))
    foreign.checked(SimpleNamespace(format="coo", shape=a.shape, row=row, col=column, data=data))
    # Whoever says that a tensor is coalesced need not be right.
    sums = a.is_coalesced() and bool((index[0, 1:] >= index[0, :-1]).all())
    made = torch.sparse_coo_tensor(index, val, a.shape, is_coalesced=sums or None, check_invariants=False)
    return made.coalesce().to_sparse_csr()


def _checked(a, kind: str) -> tuple:
    """(pointers, indices) of CSC, BSR or BSC; ValueError, one sentence, where a conversion would read beyond."""
    val = a.values()
    parts = (a.crow_indices(), a.col_indices()) if kind == "bsr" else (a.ccol_indices(), a.row_indices())
    require(
        val.dim() == (1 if kind == "csc" else 3) and 0 not in val.shape[1:],
        f"the values of A are {tuple(val.shape)}, but must be blocks, rows and columns of a block",
    )
    indptr, indices = map(array, parts)
    foreign.checked(SimpleNamespace(format=kind, shape=a.shape, indptr=indptr, indices=indices, data=val))
    end = int(indptr[-1])
    require(
        end == val.shape[0] == indices.shape[0],
        f"{kind.upper()} {foreign.COMPRESSED[kind][0]} ends at {end}, but there are {indices.shape[0]} indices and "
        f"{val.shape[0]} values: all three must agree",
    )
    return parts


# ---------------------------------------------------------------- values


def float32(x, accuracy):
    """Return an array as contiguous float32; ValueError where that rounds a value and no accuracy was asked for."""
    if x.dtype == np.float32 and x.flags.c_contiguous:
        return x
    xp = arrays.array_module(x)
    # ml_dtypes' bfloat16 NumPy does not count among them.
    require(x.dtype.kind in "fiub" or x.dtype.name == "bfloat16", f"A holds {x.dtype}, but a matrix is real here")
    check = accuracy is None and x.dtype.itemsize >= 4 and x.dtype != np.float32
    if xp is np or x.ndim > 3:
        with np.errstate(over="ignore"):
            made = xp.ascontiguousarray(x.astype(np.float32, copy=False))
        at = first_not_same(made, x) if check else None
    else:
        made, at = compress.float32(x, check)
    if at is not None:
        value = x[np.unravel_index(at, x.shape)].item()
        raise ValueError(_not_held(str(x.dtype), value, "float32", "fp32"))
    return made


def first_not_same(made, x) -> int | None:
    """Return the place, row by row, of the first number of an array that is another one in float32, as made.

    Or None.
    """
    if x.dtype.kind in "iu":  # compared as float64, 2^53 + 1 would be 2^53
        fits = made < 2.0 ** (8 * x.dtype.itemsize - (x.dtype.kind == "i"))
        wrong = ~(fits & (np.where(fits, made, np.float32(0)).astype(x.dtype) == x))
    else:
        wrong = ~((made == x) | (made != made))
    return int(wrong.reshape(-1).argmax()) if bool(wrong.any()) else None


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


def real(x):
    """Return a tensor in a dtype that NumPy has, exact: floats of 16 and 8 bits in float32.

    ValueError: it is not real.
    """
    require(not x.is_complex() and not x.is_quantized, f"A holds {named(x.dtype)}, but a matrix is real here")
    if not x.is_floating_point() or x.dtype.itemsize >= 4:
        return x
    try:
        return x.float()
    except RuntimeError as error:
        raise ValueError(f"A holds {named(x.dtype)}, which PyTorch does not convert: bring float32") from error


# ---------------------------------------------------------------- from format to format


def as_csr(a) -> csr.Csr:
    """Any format as CSR of A with float32 values, where it lives; zeros that a pattern stores fall away."""
    if isinstance(a, csr.Csr):
        return a
    if isinstance(a, bcsr.Bcsr | wcsr.Wcsr):
        return formats.to_csr(a)
    if arrays.array_module(a.val) is not np:
        return compress.csr_of_vectors(a) if isinstance(a, nm.Nm) else compress.csr_of_pairs(a)
    dense = formats.to_dense(a)
    dense = dense.T if isinstance(a, nm.Nm) else dense
    row, column = np.nonzero(dense)
    m, k = dense.shape
    return csr.Csr(m, k, csr.offsets(row, m, 1), column.astype(np.int32), dense[row, column])


def block_diagonal(matrices, accuracy: str | None = None) -> tuple[csr.Csr, np.ndarray, np.ndarray]:
    """Return (CSR with the matrices along its diagonal, the first row of each and then the end, likewise the columns).

    Many small products are one plan of it: what B holds from `columns[i]` on is multiplied by matrix i, and stands in
    out from `rows[i]` on. matrices: what `operand` takes without pruning, all on one side. accuracy: as of `operand`.
    Raises ValueError, one sentence, for none, for both sides, and where 32 bits do not count what there is.
    """
    made = [as_csr(operand(a, accuracy=accuracy)) for a in matrices]
    require(made, "there is no matrix to lay along the diagonal: bring one at least")
    sides = {arrays.array_module(a.val) for a in made}
    require(len(sides) == 1, "some matrices are on the host and some on a GPU: bring all to one side")
    rows, columns, ends = (np.cumsum([0, *sizes]) for sizes in zip(*((a.m, a.k, a.nnz) for a in made), strict=True))
    most = max(x[-1] for x in (rows, columns, ends))
    require(most <= csr.INT32_MAX, f"the diagonal has {most} rows, columns or non-zeros, but CSR counts with 32 bits")
    xp = sides.pop()
    row_ptr = [a.row_ptr[i > 0 :] + int(end) for i, (a, end) in enumerate(zip(made, ends[:-1], strict=True))]
    col_idx = [a.col_idx + int(first) for a, first in zip(made, columns[:-1], strict=True)]
    parts = map(xp.concatenate, (row_ptr, col_idx, [a.val for a in made]))
    return csr.Csr(int(rows[-1]), int(columns[-1]), *parts), rows, columns


def turned(a):
    """Aᵀ where A lives: blocks as blocks, any other format as CSR."""
    made, _ = transposed(as_csr(a))
    return bcsr.from_csr(made, block=a.block[::-1], dtype=a.dtype) if isinstance(a, bcsr.Bcsr) else made


def transposed(a: csr.Csr) -> tuple[csr.Csr, object]:
    """(Aᵀ, the place in A's values of each of its values), where A lives."""
    xp = arrays.array_module(a.val)
    order = xp.argsort(a.col_idx, **({"kind": "stable"} if xp is np else {}))
    row_ptr = csr.offsets(a.col_idx[order].astype(np.int64), a.k, 1)
    columns = csr.rows(a)[order].astype(np.int32)
    return csr.Csr(a.k, a.m, row_ptr, columns, a.val[order]), order
