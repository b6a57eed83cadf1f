"""What kernels of preparation do, with NumPy: a GPU's results are held against it, or it stands in."""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace

import numpy as np

from kernels import formats, splitmix
from kernels.async_sparse import planning, statistics, unit, windows
from kernels.async_sparse import tasks as host_tasks
from kernels.formats import (
    bcsr,
    checks,
    compress,
    csr,
    half,
    intake,
    layout,
    nm,
    reorder,
    stored,
    two_four,
    wcsr,
)
from kernels.formats.csr import Csr
from kernels.library import operands
from kernels.nm_spmm import packing, tensor
from kernels.tensor_core_24 import wgmma


def facts(a: Csr) -> intake.Facts:
    a = formats.to_host(a)
    place = csr.rows(a) * a.k + a.col_idx
    longest = int(np.diff(a.row_ptr).max(initial=0))
    print_ = int(statistics.fingerprint(a), 16)
    return intake.Facts(longest, bool((place[1:] > place[:-1]).all()), print_, shared(a))


def shared(a: Csr, windows: int = 0) -> tuple[int, ...]:
    return statistics._unions(formats.to_host(a))


def similar(a: Csr) -> tuple[np.ndarray, Csr]:
    a = formats.to_host(a)
    order = reorder.similar(a)
    return order, reorder.rows_permuted(a, order)


def grouped(a: Csr, rows: int, chunk: int, block: int):
    of = wcsr.from_csr(formats.to_host(a), window=rows, pad=1, dtype="float32")
    table, chunk = tasks(of.row_ptr, chunk, block=block)
    return of.row_ptr, of.col_idx, np.ascontiguousarray(of.val.T), table, chunk


def sliced(a: Csr, rows: int, pad: int, exact: bool):
    of = wcsr.from_csr(formats.to_host(a), window=rows, pad=pad, dtype="float32")
    return of.row_ptr, of.col_idx, windows.slices_of(of, exact)


def tasks(row_ptr, chunk: int, *, block: int = 0, longest_first: bool = False):
    row_ptr = formats.to_host(row_ptr)
    if chunk < 0:
        average = -chunk * int(row_ptr[-1]) / max(1, row_ptr.size - 1)
        chunk = -(-max(1, average) // host_tasks.STEP) * host_tasks.STEP
        chunk = int(chunk)
    work = host_tasks.tasks(row_ptr, chunk, even=True, longest_first=longest_first)
    if block:
        work = host_tasks.in_blocks(work, row_ptr.size - 1, block)
    place = work.table[:, 3]
    others = np.bincount(place[place >= 0], minlength=len(work.cut)).astype(np.int32) - 1
    return planning.Table(work.table, work.cut, others), chunk


def groups(a: Csr, rows: int):
    place = csr.rows(a) // rows * a.k + a.col_idx
    found, first = np.unique(place, return_index=True)
    counted = np.cumsum(np.bincount(first, minlength=a.nnz), dtype=np.int32)
    begin = csr.offsets(found, -(-a.m // rows), a.k)
    return np.concatenate((np.zeros(1, np.int32), counted)), begin, found.size


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


def in_order(a: bcsr.Bcsr):
    a = bcsr.in_order(a)
    return a.row_ptr, a.col_idx, a.val, a.nnz


def nm_(x, keep: int, group: int, vector: int, prune: bool):
    b = nm.compress(x, keep, group, vector, prune=prune)
    return b.val, b.index, None


def stacked(a: bcsr.Bcsr, high: int, *_):
    a = unit.stacked(a)
    return a.col_idx, a.val


def swizzled(meta, rows: int, width: int, ring: bool):
    whole = np.full((rows, width), two_four.EMPTY, np.uint16)
    whole[: meta.shape[0], : meta.shape[1]] = meta
    if not ring:
        return two_four.swizzle(whole, 16, 64)
    return wgmma.ring_metadata(two_four.TwoFour(rows, 16 * width, "bfloat16", None, whole))


def packed_values(val, rows: int, pieces: int):
    a = two_four.TwoFour(val.shape[0], 2 * val.shape[1], "bfloat16", val, None)
    return wgmma.pack_values(a, rows)


def vector_steps(b: nm.Nm, columns: int, windows: int, slot: int, height: int, tiled: bool):
    of = {"packed": False, "slot": slot, "tiled": tiled, "height": height}
    made = packing.prepare(b, columns, windows, **of)
    return made.val, made.index


def vector_tiles(b: nm.Nm, size: int):
    made = tensor.prepare(b, size)
    return made.start, made.index, made.values


#: (module, function) -> what does the same with NumPy.
CONVERSIONS = {
    (planning, "groups"): groups,
    (compress, "float32"): float32,
    (compress, "contiguous"): np.ascontiguousarray,
    (compress, "filled"): stored.count_nonzero,
    (compress, "has_bits"): has_bits,
    (compress, "blocks"): blocks,
    (compress, "in_order"): in_order,
    (compress, "nm"): nm_,
    (compress, "csr_of_blocks"): bcsr.to_csr,
    (compress, "csr_of_windows"): wcsr.to_csr,
    (compress, "csr_of_pairs"): operands.as_csr,
    (compress, "csr_of_vectors"): operands.as_csr,
    (layout, "with_zeros"): layout.with_zeros,
    (layout, "ordered_rows"): unit.work_order,
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
    """The launches of preparation done by NumPy; as_array: makes an array of a pretended GPU."""

    def there(x):
        if is_dataclass(x):
            return replace(x, **{f.name: there(getattr(x, f.name)) for f in fields(x)})
        return tuple(map(there, x)) if isinstance(x, tuple) else as_array(x)

    def given(function):
        return lambda *arguments, **options: there(function(*map(on_host, arguments), **options))

    for (module, name), function in CONVERSIONS.items():
        monkeypatch.setattr(module, name, given(function))
    monkeypatch.setattr(checks, "_first", lambda *_: None)
    monkeypatch.setattr(intake, "shared", given(shared))
    for function in (similar, grouped, sliced, tasks):
        monkeypatch.setattr(planning, function.__name__, given(function))
    monkeypatch.setattr(planning, "splits", lambda a, infinite: windows.splits(on_host(a)))
    monkeypatch.setattr(planning, "tf32", given(windows.tf32))
    monkeypatch.setattr(
        planning,
        "holds_tf32",
        lambda x: not (formats.to_host(x).view(np.uint32) & np.uint32(0x1FFF)).any(),
    )
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
