"""What kernels of preparation do, with NumPy: a GPU's results are held against it, or it stands in."""

import itertools
from dataclasses import fields, is_dataclass, replace

import numpy as np

from kernels import formats, splitmix
from kernels.async_sparse import planning
from kernels.formats import (
    arrays,
    bcsr,
    compress,
    csr,
    half,
    intake,
    layout,
    nm,
    reorder,
    two_four,
    wcsr,
)
from kernels.formats.csr import Csr
from kernels.library import operands
from kernels.nm_spmm import packing
from kernels.tensor_core_24 import wgmma


def facts(a: Csr) -> intake.Facts:
    a = formats.to_host(a)
    place = csr.rows(a) * a.k + a.col_idx
    longest = int(np.diff(a.row_ptr).max(initial=0))
    return intake.Facts(longest, bool((place[1:] > place[:-1]).all()), _fingerprint(a), shared(a))


def shared(a: Csr, windows: int = 0) -> tuple[int, ...]:
    a = formats.to_host(a)
    most, row = intake.HEIGHTS[-1], csr.rows(a)
    # By window of the highest kind, column and row: then a column of any lower window is a run as well.
    key = np.sort((row // most * a.k + a.col_idx) * most + row % most)
    return tuple(len(csr.distinct(key // height)) for height in intake.HEIGHTS)


def _fingerprint(a: Csr) -> int:
    column, place = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F)

    def total(x, by, other) -> int:
        x = (x.astype(np.uint64) + np.uint64(1)) * by ^ np.arange(x.size, dtype=np.uint64) * other
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
            x = (x ^ x >> np.uint64(shift)) * np.uint64(factor)
        return int((x ^ x >> np.uint64(31)).sum())

    return (total(a.col_idx, column, place) + 3 * total(a.row_ptr, place, column)) % 2**64


def similar(a: Csr) -> tuple[np.ndarray, Csr]:
    a = formats.to_host(a)
    order = reorder.similar(a)
    return order, csr.from_scipy(csr.to_scipy(a)[order])


def grouped(a: Csr, rows: int, chunk: int, block: int):
    assert facts(a).ascending, "columns that the kernel looks for ascend"
    of = wcsr.from_csr(formats.to_host(a), window=rows, pad=1, dtype="float32")
    table, chunk = tasks(of.row_ptr, chunk, block=block)
    return of.row_ptr, of.col_idx, np.ascontiguousarray(of.val.T), table, chunk


def sliced(a: Csr, rows: int, dtype: str, exact: bool):
    assert facts(a).ascending, "columns that the kernel looks for ascend"
    pad = 8 if dtype == "tf32" else 16
    of = wcsr.from_csr(formats.to_host(a), window=rows, pad=pad, dtype="float32" if dtype == "tf32" else dtype)
    val = of.val.reshape(rows, of.columns // pad, 2, pad // 2).transpose(1, 0, 2, 3)
    val = np.where((np.arange(rows) // 4 % 2 == 1)[:, None, None], val[:, :, ::-1], val)
    if not exact:
        return of.row_ptr, of.col_idx, np.ascontiguousarray(val)[:, None]
    big = planning.tf32(val)
    with np.errstate(invalid="ignore"):
        rest = np.where(np.isfinite(big), val - big, np.float32(0))
    return of.row_ptr, of.col_idx, np.stack([big, planning.tf32(rest)], axis=1)


def tasks(row_ptr, chunk: int, *, block: int = 0, longest_first: bool = False):
    edges = formats.to_host(row_ptr).tolist()
    m, step = len(edges) - 1, planning.STEP
    if chunk < 0:
        chunk = -(-max(1, -chunk * edges[-1]) // (max(1, m) * step)) * step
    made: list[list[tuple]] = []  # of each row
    cut: list[int] = []
    for row, (first, end) in enumerate(itertools.pairwise(edges)):
        parts = -(-(end - first) // chunk) if chunk and end - first > chunk else 1
        size = -(-(end - first) // (parts * step)) * step
        at = [first + i * size for i in range(parts)] + [end]
        made.append([(row, *ends, len(cut) if parts > 1 else -1) for ends in itertools.pairwise(at)])
        cut += [row] * (parts > 1)
    table = _in_blocks(made, block) if block and cut else [task for of_row in made for task in of_row]
    if longest_first:
        table.sort(key=lambda task: task[1] - task[2])
    others = np.array([len(made[row]) - 1 for row in cut], np.int32)
    return planning.Tasks(np.array(table, np.int32).reshape(-1, 4), np.array(cut, np.int32), others), chunk


def _in_blocks(made: list[list[tuple]], block: int) -> list[tuple]:
    """Cut rows in room of a power of 2, or of whole blocks, the largest first; whole rows in what is left, and behind;
    of no row and no column where there are too few."""

    def system(of_row: list) -> int:
        return -(-len(of_row) // block) * block if len(of_row) > block else 1 << (len(of_row) - 1).bit_length()

    whole = iter([of_row[0] for of_row in made if len(of_row) == 1])
    rows = sorted((of_row for of_row in made if len(of_row) > 1), key=system, reverse=True)
    left = {of_row[0]: system(of_row) - len(of_row) for of_row in rows}
    empty = (len(made), 0, 0, -1)
    fills = {first: [next(whole, empty) for _ in range(left[first])] for first in sorted(left)}
    return [task for of_row in rows for task in (*of_row, *fills[of_row[0]])] + [*whole]


def groups(a: Csr, rows: int):
    found, first = np.unique(csr.rows(a) // rows * a.k + a.col_idx, return_index=True)
    counted = np.cumsum(np.bincount(first, minlength=a.nnz), dtype=np.int32)
    return np.concatenate((np.zeros(1, np.int32), counted)), csr.offsets(found, -(-a.m // rows), a.k), found.size


def float32(x, check: bool = False):
    with np.errstate(over="ignore"):
        made = np.ascontiguousarray(x.astype(np.float32))
    return made, operands.first_not_same(made, x) if check else None


def has_bits(x, bits: int) -> bool:
    return bool((x.view(np.uint32) & np.uint32(bits)).any())


def blocks(x, block, dtype: str, count):
    size = -(-x.shape[0] // block[0]) * -(-x.shape[1] // block[1])
    x = half.Half(dtype, x) if x.dtype == np.uint16 else x
    density = None if count is None else count / size
    a = bcsr.from_dense(x, block=block, dtype=dtype, density=density)
    return a.row_ptr, a.col_idx, a.val, a.nnz


def nm_(x, keep: int, group: int, vector: int, prune: bool):
    b = nm.compress(x, keep, group, vector, prune=prune)
    return b.val, b.index, None


def ordered_rows(row_ptr, longest_first: bool):
    lengths = np.diff(row_ptr)
    rows = np.argsort(-lengths, kind="stable") if longest_first else np.arange(lengths.size)
    return np.stack([rows, row_ptr[rows], row_ptr[rows + 1], 0 * rows], axis=1).astype(np.int32)


def stacked(a: bcsr.Bcsr, high: int, *_):
    """The same matrix in blocks as wide, `high` times as high, and no block of nothing but zeros."""
    (b_row, b_col), row = a.block, bcsr.block_rows_of(a)
    place, target = np.unique(row // high * a.block_columns + a.col_idx, return_inverse=True)
    val = np.zeros((len(place), high, b_row, b_col), a.val.dtype)
    val[target.reshape(-1), row % high] = a.val
    return (place % a.block_columns).astype(np.int32), val.reshape(-1, high * b_row, b_col)


def swizzled(meta, rows: int, width: int, ring: bool):
    whole = np.full((rows, width), two_four.EMPTY, np.uint16)
    whole[: meta.shape[0], : meta.shape[1]] = meta
    if not ring:
        return two_four.swizzle(whole, 16, 64)
    return wgmma.ring_metadata(two_four.TwoFour(rows, 16 * width, "bfloat16", None, whole), 64, 64)


def packed_values(val, rows: int, pieces: int):
    return wgmma.pack_values(two_four.TwoFour(val.shape[0], 2 * val.shape[1], "bfloat16", val, None), rows, 64 * pieces)


def vector_steps(b: nm.Nm, columns: int, windows: int, slot: int, height: int, tiled: bool):
    made = packing.convert(b, columns, windows, packed=False, slot=slot, tiled=tiled)
    if not tiled:
        return made.val, made.index
    more = (0, 0), (0, 0), (0, height - made.rows)  # rows of zeros, whose index is 0
    return np.pad(made.val, (*more, (0, 0))), np.pad(made.index, ((0, 0), *more))


def vector_tiles(b: nm.Nm, size: int):
    depth, column = 128 // size, np.arange(128)
    start, index, values = [0], [np.zeros((0, depth), np.int32)], []
    for first in range(0, b.n, 128):
        here = np.arange(first, min(first + 128, b.n))
        of_a = b.index[: b.real][:, here // b.vector]
        rows = np.unique(of_a)
        steps = -(-len(rows) // depth)
        dense = np.zeros((steps * depth, 128), np.float32)
        dense[np.searchsorted(rows, of_a), here - first] = b.val[: b.real, here]
        units = dense.reshape(steps, depth, 128).transpose(0, 2, 1).reshape(steps, 128, 8, 16 // size)
        values.append(units[:, column[:, None], np.arange(8) ^ column[:, None] % 8].reshape(steps, 128, depth))
        start.append(start[-1] + steps)
        index.append(np.pad(rows, (0, steps * depth - len(rows)), "edge").reshape(steps, depth))
    made = np.concatenate(values)
    made = half.to_bits(made, "bfloat16") if size == 2 else made
    return np.array(start, np.int32), np.concatenate(index).astype(np.int32), made


#: (module, function) -> what does the same with NumPy.
CONVERSIONS = {
    (planning, "groups"): groups,
    (compress, "float32"): float32,
    (compress, "contiguous"): np.ascontiguousarray,
    (compress, "filled"): csr.count_nonzero,
    (compress, "has_bits"): has_bits,
    (compress, "blocks"): blocks,
    (bcsr, "in_order"): bcsr.in_order,
    (compress, "nm"): nm_,
    (bcsr, "to_csr"): bcsr.to_csr,
    (wcsr, "to_csr"): wcsr.to_csr,
    (compress, "csr_of_pairs"): operands.as_csr,
    (compress, "csr_of_vectors"): operands.as_csr,
    (layout, "with_zeros"): layout.with_zeros,
    (layout, "ordered_rows"): ordered_rows,
    (layout, "stacked"): stacked,
    (layout, "swizzled"): swizzled,
    (layout, "packed_values"): packed_values,
    (layout, "vector_steps"): vector_steps,
    (layout, "vector_tiles"): vector_tiles,
}


def on_host(x):
    """A format, or an array, of NumPy's own arrays."""
    if is_dataclass(x):
        return replace(x, **{f.name: on_host(getattr(x, f.name)) for f in fields(x)})
    return np.asarray(x) if isinstance(x, np.ndarray) else formats.to_host(x)


def instead_of_a_gpu(monkeypatch, as_array) -> None:
    """The launches of preparation done by NumPy; as_array: makes arrays, of formats and tuples, too,
    those of a pretended GPU."""

    def given(function):
        return lambda *arguments, **options: as_array(function(*map(on_host, arguments), **options))

    for (module, name), function in CONVERSIONS.items():
        monkeypatch.setattr(module, name, given(function))
    monkeypatch.setattr(arrays, "first_fault", lambda *_: None)
    monkeypatch.setattr(intake, "shared", given(shared))
    for function in (similar, grouped, sliced, tasks):
        monkeypatch.setattr(planning, function.__name__, given(function))
    monkeypatch.setattr(planning, "tf32", given(planning.tf32))
    monkeypatch.setattr(planning, "flags", given(planning.flags))
    monkeypatch.setattr(intake, "facts_of", lambda a: a.facts or facts(on_host(a)))

    def taken(m, k, row_ptr, col_idx, val, *, check=True):
        host = [formats.to_host(x) for x in (row_ptr, col_idx, val)]
        a = csr.validate(
            Csr(
                m,
                k,
                csr.narrowed("CSR", "row_ptr", host[0]),
                csr.narrowed("CSR", "col_idx", host[1]),
                host[2],
            )
        )
        return Csr(a.m, a.k, *map(as_array, (a.row_ptr, a.col_idx, a.val)), facts(a))

    monkeypatch.setattr(intake, "taken", taken)
    monkeypatch.setattr(intake, "checked", lambda a: taken(a.m, a.k, a.row_ptr, a.col_idx, a.val))

    def converted(kernel, x, dtype, kind):
        return as_array(getattr(half, kernel)(formats.to_host(x), dtype))

    monkeypatch.setattr(half, "_on_gpu", converted)
    first = half.first_not_held
    monkeypatch.setattr(half, "first_not_held", lambda x, dtype: first(np.asarray(formats.to_host(x)), dtype))

    def random(made, key, dtype):
        made[:] = splitmix.uniform(key, made.size, dtype)
        return made

    monkeypatch.setattr(splitmix, "_on_gpu", random)
