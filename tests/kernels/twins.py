"""What planning.cu, intake.cu and half.cu do, with NumPy: a GPU's results are held against it, or it stands for them."""

from __future__ import annotations

import numpy as np

from kernels import formats, splitmix
from kernels.async_sparse import planning, statistics, windows
from kernels.async_sparse import tasks as host_tasks
from kernels.formats import csr, half, intake, reorder, wcsr
from kernels.formats.csr import Csr


def facts(a: Csr) -> intake.Facts:
    a = formats.to_host(a)
    place = csr.rows(a) * a.k + a.col_idx
    longest = int(np.diff(a.row_ptr).max(initial=0))
    print_ = int(statistics.fingerprint(a), 16)
    return intake.Facts(longest, bool((place[1:] > place[:-1]).all()), print_)


def shared(a: Csr, windows: int = 0) -> tuple[int, ...]:
    return statistics._unions(formats.to_host(a))


def similar(a: Csr) -> tuple[np.ndarray, Csr]:
    a = formats.to_host(a)
    order = reorder.similar(a)
    return order, reorder.rows_permuted(a, order)


def grouped(a: Csr, rows: int):
    of = wcsr.from_csr(formats.to_host(a), window=rows, pad=1, dtype="float32")
    return of.row_ptr, of.col_idx, np.ascontiguousarray(of.val.T)


def sliced(a: Csr, rows: int, pad: int, exact: bool):
    of = wcsr.from_csr(formats.to_host(a), window=rows, pad=pad, dtype="float32")
    return of.row_ptr, of.col_idx, windows.slices_of(of, exact)


def tasks(row_ptr, chunk: int, *, block: int = 0, longest_first: bool = False) -> planning.Table:
    row_ptr = formats.to_host(row_ptr)
    work = host_tasks.tasks(row_ptr, chunk, even=True, longest_first=longest_first)
    if block:
        work = host_tasks.in_blocks(work, row_ptr.size - 1, block)
    place = work.table[:, 3]
    others = np.bincount(place[place >= 0], minlength=len(work.cut)).astype(np.int32) - 1
    return planning.Table(work.table, work.cut, others)


def on_host(a: Csr) -> Csr:
    return Csr(a.m, a.k, *(np.asarray(formats.to_host(x)) for x in (a.row_ptr, a.col_idx, a.val)))


def instead_of_a_gpu(monkeypatch, as_array) -> None:
    """The launches of preparation done by NumPy; as_array: makes an array of a pretended GPU."""

    def given(function):
        def called(*arguments, **options):
            arguments = [
                on_host(x) if isinstance(x, Csr) else formats.to_host(x) for x in arguments
            ]
            made = function(*arguments, **options)
            if isinstance(made, planning.Table):
                return planning.Table(*map(as_array, (made.table, made.cut, made.others)))
            if isinstance(made, tuple):
                return tuple(
                    Csr(x.m, x.k, *map(as_array, (x.row_ptr, x.col_idx, x.val))) if isinstance(x, Csr) else as_array(x)
                    for x in made
                )  # fmt: skip
            return as_array(made)

        return called

    for function in (shared, similar, grouped, sliced, tasks):
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
    monkeypatch.setattr(
        half, "first_not_held", lambda x, dtype: first(np.asarray(formats.to_host(x)), dtype)
    )

    def random(made, key, dtype):
        made[:] = splitmix.uniform(key, made.size, dtype)
        return made

    monkeypatch.setattr(splitmix, "_on_gpu", random)
