"""What bind prepares, with NumPy in the place of CuPy, and what the compiler makes of every entry."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from types import SimpleNamespace

import compiled
import numpy as np
import pytest
import racing
from compiled import count
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels import casper_sparse as room
from kernels import jit, tuning
from kernels.casper_sparse import family, generate, launch
from kernels.contract import Operands
from kernels.formats import csr

H200 = racing.H200
#: Variants that load float4 and nothing else.
NEED_FOURS = ("warp_per_row", "no_staging", "shared_tiles")
WITH_SOURCE = [name for name, kernel in room.VARIANTS.items() if kernel.entries]


def entries(variant: str, n: int) -> list[str]:
    """What bind may ask the compiler for at this n, or nothing where it refuses."""
    if n % 4 and variant in NEED_FOURS:
        return []
    if variant == "shared_tiles":
        return [room.entry(variant, n, rows) for rows in family.SHARED_ROWS]
    return [room.entry(variant, n)]


@st.composite
def matrices(draw, least_rows=0) -> csr.Csr:
    """Lengths that differ by much, columns unsorted and repeated, empty rows; exact in float32."""
    lengths = draw(st.lists(st.integers(0, 9) | st.integers(20, 300), min_size=least_rows, max_size=12))
    return ragged(lengths, draw(st.integers(1, 40)), draw(st.integers(0, 999)))


def ragged(lengths, k: int, seed: int = 0) -> csr.Csr:
    rng = np.random.default_rng(seed)
    row_ptr = np.cumsum([0, *lengths]).astype(np.int32)
    nnz = int(row_ptr[-1])
    columns, values = rng.integers(0, k, nnz), rng.integers(-64, 64, nnz) / 8
    a = csr.Csr(len(lengths), k, row_ptr, columns.astype(np.int32), values.astype(np.float32))
    return csr.validate(a)


def on_host(p):
    """A problem whose device operands are its host's."""
    return replace(p, make_device=p.host)


# ----------------------------------------------------------------------------- which instantiation


@pytest.mark.parametrize("variant", WITH_SOURCE)
def test_bind_asks_for_no_entry_that_is_not_compiled_here(variant):
    """So that `test_every_entry_compiles…` covers whatever N a user brings."""
    asked = {entry for n in range(1, 261) for entry in entries(variant, n)}
    declared = set(room.VARIANTS[variant].entries) - {"zero_rows"}
    assert asked == declared, "and none is declared that no N needs"
    for n in (300, 512, 1000, 1001, 1002, 4096, 32768, 2**31 - 1, 2**31 - 2):
        assert set(entries(variant, n)) <= declared


@pytest.mark.parametrize("variant", NEED_FOURS)
@pytest.mark.parametrize("n", [1, 2, 3, 5, 6, 33, 257, 258, 259])
def test_a_kernel_of_float4_refuses_other_n(variant, n):
    with pytest.raises(ValueError) as caught:
        room.entry(variant, n)
    message = str(caught.value)
    assert message.startswith(variant) and f"N is {n}" in message and "any_n" in message
    # bind says the same, before it compiles or launches anything
    p = replace(room.problem(8, n, 64, 0.5), make_device=lambda: Operands(None, None))
    with pytest.raises(ValueError, match=f"N is {n}"):
        room.bind(variant, p, H200)


def test_an_unknown_variant_is_named_with_the_known_ones():
    with pytest.raises(ValueError, match="no variant 'warp_per_column': choose one of warp_per_row"):
        room.bind("warp_per_column", room.problem(8, 4, 64, 0.5), H200)


@pytest.mark.parametrize("k", [0, 5])
def test_shared_tiles_refuses_a_matrix_without_non_zeros(k):
    p = on_host(
        room.problem_from_csr(
            csr.Csr(3, k, *(np.zeros(s, t) for s, t in ((4, np.int32), (0, np.int32), (0, np.float32)))), 4
        )
    )
    with pytest.raises(ValueError, match="without non-zeros"):
        room.bind("shared_tiles", p, H200)


LARGE = st.integers(1, launch.MOST) | st.integers(1_900_000, 2_000_000)


@given(m=LARGE, k=LARGE, nnz=st.integers(1, 2**31 - 1))
@settings(deadline=None, max_examples=300)
def test_shared_tiles_counts_with_32_bits_or_refuses(m, k, nnz):
    """The counters of shared_tiles.cu as they are after its last tile, in whole numbers that do not wrap."""
    p = SimpleNamespace(m=m, n=4, k=k, nnz=nnz)
    k_tile = family.tile_rows(k, H200)
    block_rows = family.SHARED_THREADS // 8 * family.best_rows(p, H200)
    m_pad = math.ceil(m / block_rows) * block_rows
    begin, at_tile = math.ceil(k / k_tile) * k_tile, m_pad - 1 + math.ceil(k / k_tile) * m_pad
    why_not = launch.why_not_shared_tiles(p, H200)
    if not why_not:
        assert begin < 2**31 and at_tile < 2**31
    else:
        assert begin >= 2**31 or at_tile >= 2**31 - 1
        assert re.fullmatch(r"shared_tiles would cut A of .* with 32 bits: use in_flight", why_not)


def test_a_matrix_that_32_bits_do_not_count_is_refused_before_it_is_cut(monkeypatch):
    """From 1.94 million rows and columns on; cutting it would take 17 GB twice, to read out of bounds at last."""
    p = replace(
        room.problem(1_950_000, 4, 1_950_000, 1e-9),
        nnz=10,
        make_device=lambda: Operands(None, None),
    )
    monkeypatch.setattr(launch, "cut_columns", lambda *a: pytest.fail("cut"))
    with pytest.raises(ValueError, match="^shared_tiles would cut A of 1950000 x 1950000 into 11"):
        room.bind("shared_tiles", p, H200)


@pytest.mark.parametrize("variant", room.VARIANTS)
@pytest.mark.parametrize("size", ["m", "n"])
def test_sizes_at_the_end_of_32_bits_are_refused(variant, size):
    """n within 128 of 2^31: any_n's tile would wrap around, and the last columns' index as well."""
    p = replace(room.problem(4, 4, 4, 1.0), **{size: 2**31 - 100})
    with pytest.raises(ValueError, match=f"^{size} is 2147483548, but .* up to 2147479552 rows"):
        room.bind(variant, p, H200)


@given(n=st.integers(1, 2000))
@settings(deadline=None)
def test_vectors_stay_aligned_and_cover_a_row(n):
    vec = family.vector_width(n)
    assert n % vec == 0 and (vec == 4 or n % (2 * vec)), "the widest that divides n"
    for columns in (family.NARROW, family.WIDE):
        lanes = family.lanes_of(n, columns)
        assert 32 % lanes == 0 and lanes % family.UNROLL == 0
        assert lanes * vec >= min(n, columns) or lanes == 32
        size, blocks = family.panel_grid(1000, n, columns, H200)
        assert size % (family.THREADS // lanes) == 0
        assert blocks == math.ceil(1000 / size) * math.ceil(n / (lanes * vec))


# --------------------------------------------------------------------------------------- bind


class Array(np.ndarray):
    """A NumPy array with the one attribute of CuPy's that bind needs."""

    @property
    def data(self):
        return SimpleNamespace(ptr=self.ctypes.data)


def as_device(x):
    return np.ascontiguousarray(x).view(Array)


@pytest.fixture
def fake_gpu(monkeypatch):
    """bind without a GPU: what it loads is logged as (entry, dynamic shared bytes)."""
    loaded = []

    def load(name, entry, device, shared=0):
        assert entry in room.VARIANTS[name].entries
        loaded.append((entry, shared))
        return entry

    for name in ("split", "cut_columns"):
        prepare = getattr(launch, name)

        def prepared(*arguments, prepare=prepare):
            made = prepare(*arguments)
            arrays = {k: as_device(v) for k, v in vars(made).items() if isinstance(v, np.ndarray)}
            return replace(made, **arrays)

        monkeypatch.setattr(launch, name, prepared)
    monkeypatch.setattr(launch, "_load", load)
    monkeypatch.setattr(launch, "_config", lambda *a: SimpleNamespace(grid=a[0], block=a[1]))
    monkeypatch.setattr(launch, "timed", lambda work: (work(), 1.25))
    return loaded


def fake_problem(a: csr.Csr, n: int):
    """A problem of host arrays that look like the device's."""
    p = room.problem_from_csr(a, n)
    ops = Operands(
        csr.Csr(a.m, a.k, *map(as_device, (a.row_ptr, a.col_idx, a.val))),
        as_device(p.host().b),
        as_device(np.zeros((a.m, n), np.float32)),
    )
    return replace(p, make_device=lambda: ops)


@pytest.mark.parametrize("variant", WITH_SOURCE)
def test_bind_makes_one_launch_that_covers_the_output(fake_gpu, variant):
    a = ragged([3] * 40, 50)
    for n in [*range(1, 40), 64, 127, 128, 129, 132, 256, 257, 260]:
        if n % 4 and variant in NEED_FOURS:
            continue
        p = fake_problem(a, n)
        bound = room.bind(variant, p, H200)
        ((kernel, config, arguments),) = bound.steps
        assert bound.name == variant and bound.result() is p.device().c
        assert config.grid >= 1 and config.block <= 1024 and config.block % 32 == 0
        assert kernel == fake_gpu[-1][0]
        # Arguments are NumPy scalars of the kernel's types, and addresses of arrays that stay alive.
        assert all(isinstance(x, (np.int32, int)) for x in arguments)
        assert arguments[-2:] == (p.device().b.data.ptr, p.device().c.data.ptr)
        preprocessed = variant in ("split_rows", "shared_tiles")
        assert (bound.prepare_ms, bool(bound.keep)) == ((1.25, True) if preprocessed else (0, False))
        assert (bound.prepare_bytes > 0) == preprocessed


def test_split_rows_clears_what_it_adds_to(fake_gpu):
    p = fake_problem(ragged([1] * 30 + [5000] + [2] * 30 + [3000], 200), 8)
    bound = room.bind("split_rows", p, H200)
    clear, main = bound.steps
    items = bound.keep[0]
    assert clear[0] == "zero_rows" and clear[1].grid == 2 and items.cut.tolist() == [30, 61]
    assert clear[2] == (np.int32(8), items.cut.data.ptr, p.device().c.data.ptr)
    assert main[2][0] == len(items.item) and main[2][3] == items.item.data.ptr
    assert bound.prepare_bytes == items.item.nbytes + items.cut.nbytes


def test_shared_tiles_asks_for_the_shared_memory_that_it_uses(fake_gpu):
    p = fake_problem(ragged([40] * 300, 5000), 64)
    bound = room.bind("shared_tiles", p, H200)
    ((_, config, arguments),) = bound.steps
    m, m_pad, n, k, k_tile = (int(x) for x in arguments[:5])
    (tiled,) = bound.keep
    assert (m, n, k, k_tile) == (300, 64, 5000, tiled.k_tile) and m_pad == tiled.m_pad
    ((entry, shared),) = fake_gpu
    assert shared == (k_tile + 1) * 128, "the row of zeros, then the tile"
    rows = int(entry.split(", ")[1])
    assert m_pad % (128 * rows) == 0 and config.grid == m_pad // (128 * rows) * 2
    assert bound.prepare_bytes == sum(x.nbytes for x in (tiled.order, tiled.ptr, tiled.pair))


@pytest.mark.parametrize("n", [64, 66])
def test_auto_keeps_the_fastest_of_what_can_run(fake_gpu, monkeypatch, n):
    p = fake_problem(ragged([30] * 100, 200), n)
    possible = [name for name in family.TRIED if n % 4 == 0 or name not in NEED_FOURS]
    for fastest in possible:
        track = racing.track(monkeypatch, lambda name, _, best=fastest: 50.0 if name == best else 60.0)
        bound = room.bind("auto", p, H200)
        assert track.heats[0][0] == possible and bound.name == "auto" and bound.prepare_ms > 0
        assert bound.steps[-1][0] in room.VARIANTS[fastest].entries
        assert {(source.name, entry) for source, entry, _ in track.compiled} == {
            (room.VARIANTS[name].source.name, room.bind(name, p, H200).steps[-1][0]) for name in possible
        }, "what is compiled at once is what is bound"


def test_auto_survives_a_candidate_that_fails(fake_gpu, monkeypatch):
    """shared_tiles once asked for memory that the GPU refused, and `auto` fell with it."""

    def refused(variant, p, device):
        raise RuntimeError("CUDA_ERROR_INVALID_VALUE")

    track = racing.track(monkeypatch, lambda name, _: 50.0 + family.TRIED.index(name))
    p = fake_problem(ragged([30] * 100, 350), 64)
    for name in family.TRIED:
        with monkeypatch.context() as patch:
            patch.setitem(launch._BIND, name, refused)
            if name == "any_n":
                patch.setitem(launch._BIND, "scalar", launch._bind_warp_per_row)
            said = f"^the tuner skips {name}: CUDA_ERROR_INVALID_VALUE$"
            with pytest.warns(UserWarning, match=said):
                bound = room.bind("auto", p, H200)
        others = [other for other in family.TRIED if other != name]
        assert track.heats[-2][0] == others and bound.name == "auto"
        assert bound.steps[-1][0] in room.VARIANTS[others[0]].entries


def test_auto_takes_no_wrong_result_however_fast(fake_gpu, monkeypatch):
    p = fake_problem(ragged([30] * 100, 350), 64)
    track = racing.track(monkeypatch, lambda name, _: 50.0 + family.TRIED.index(name))

    def run(bound, device, stream):
        return np.full((2, 2), 1.0 if bound.name == "in_flight" else 3.0, np.float32)

    monkeypatch.setattr(tuning.outputs, "run", run)
    with pytest.warns(UserWarning, match="^the tuner skips in_flight: its output is not that of scalar"):
        bound = room.bind("auto", p, H200)
    assert "in_flight" not in track.heats[0][0]
    assert bound.steps[-1][0] in room.VARIANTS["any_n"].entries


def test_auto_runs_on_a_matrix_without_non_zeros(fake_gpu, monkeypatch):
    racing.track(monkeypatch, lambda *_: 1.0)
    assert room.bind("auto", fake_problem(ragged([0] * 9, 5), 8), H200).name == "auto"


# --------------------------------------------------------------------------------------- split


def check_items(a: csr.Csr, chunk: int | None, items: launch.Items) -> None:
    assert items.item.dtype == items.cut.dtype == np.int32
    assert items.item.shape[1:] == (4,) and items.item.flags.c_contiguous
    row, start, count, shared = items.item.T
    assert np.all(np.diff(row) >= 0) and np.array_equal(np.unique(row), np.arange(a.m))
    # One after the other, the items are the non-zeros 0, 1, 2, ... each of them once.
    assert np.array_equal(np.append(start, a.nnz), np.append(0, np.cumsum(count)))
    assert np.all(start >= a.row_ptr[row]) and np.all(start + count <= a.row_ptr[row + 1])
    pieces = np.bincount(row, minlength=a.m)
    assert np.array_equal(shared, pieces[row] > 1), "an item is shared where its row was cut"
    assert np.array_equal(items.cut, np.flatnonzero(pieces > 1))
    assert np.all((count > 0) | (pieces[row] == 1)), "only an empty row has an empty item"
    if chunk:
        assert np.all(count <= chunk)
        assert np.array_equal(pieces, np.maximum(-(-np.diff(a.row_ptr) // chunk), 1))


@given(a=matrices(), chunk=st.integers(1, 70) | st.sampled_from([255, 256, 257, 10**6]))
@settings(deadline=None)
def test_items_cover_every_non_zero_once(a, chunk):
    check_items(a, chunk, launch.split(a, chunk))


@given(a=matrices())
@settings(deadline=None)
def test_items_without_a_given_chunk(a):
    check_items(a, None, launch.split(a))


@pytest.mark.parametrize("nnz", [0, 1, 3])
def test_a_matrix_with_hardly_a_non_zero_is_split_too(nnz):
    a = ragged([nnz] + [0] * 999, 10)
    items = launch.split(a)
    check_items(a, None, items)
    assert len(items.item) == 1000 and not items.cut.size


def test_only_rows_that_others_would_wait_for_are_cut():
    """Rows that the source's generator makes differ by a factor of two: cutting them gains nothing."""
    a = room.problem(2000, 4, 4096, 0.05).host().a
    assert not launch.split(a).cut.size
    assert launch.split(ragged([64] * 100 + [100_000], 10)).cut.tolist() == [100]


@pytest.mark.parametrize("length", [31, 32, 33, 63, 64, 65, 96, 97])
def test_rows_around_the_chunk(length):
    items = launch.split(ragged([length, 0, length], 9), 32)
    counts = [32] * (length // 32) + [length % 32] * (length % 32 > 0)
    assert items.item[:, 2].tolist() == [*counts, 0, *counts]
    assert items.cut.tolist() == ([0, 2] if length > 32 else [])


# --------------------------------------------------------------------------------- cut_columns


@given(a=matrices(least_rows=1), k_tile=st.integers(1, 45), row_multiple=st.integers(1, 9))
@settings(deadline=None, max_examples=200)
def test_a_matrix_cut_by_columns_is_still_the_same_matrix(a, k_tile, row_multiple):
    check_tiles(a, k_tile, row_multiple)


@pytest.mark.parametrize("k_tile", [1, 2, 13, 25, 26, 49, 50, 51, 10_000])
def test_ragged_tiles(k_tile):
    check_tiles(ragged([0, 7, 300, 0, 0, 50, 1], 50), k_tile, 128)


def test_a_row_and_a_column_alone():
    check_tiles(ragged([5], 7), 3, 128)
    check_tiles(ragged([1, 0, 2], 1), 1800, 4)


def check_tiles(a: csr.Csr, k_tile: int, row_multiple: int) -> None:
    cut = launch.cut_columns(a, k_tile, row_multiple)
    tiles, lengths = math.ceil(a.k / k_tile), np.diff(a.row_ptr)
    assert cut.k_tile == k_tile
    assert cut.m_pad % row_multiple == 0 and 0 <= cut.m_pad - a.m < row_multiple
    assert cut.order.dtype == cut.ptr.dtype == cut.pair.dtype == np.int32
    assert sorted(cut.order) == list(range(a.m)) and np.all(np.diff(lengths[cut.order]) <= 0)
    assert cut.ptr.shape == (tiles * cut.m_pad + 1,) and cut.pair.shape == (a.nnz, 2)
    assert cut.pair.flags.c_contiguous
    assert cut.ptr[0] == 0 and cut.ptr[-1] == a.nnz and np.all(np.diff(cut.ptr) >= 0)

    # Every (offset, bits) pair back to (row, column, value).
    place = np.repeat(np.arange(tiles * cut.m_pad), np.diff(cut.ptr))
    tile, position = place // cut.m_pad, place % cut.m_pad
    assert np.all(position < a.m), "rows that pad the last block are empty"
    row = cut.order[position]
    offset = cut.pair[:, 0]
    # Row 0 of the staged tile holds zeros, so its rows of B begin at 128 bytes, 128 bytes each.
    assert np.all(offset % 128 == 0) and np.all((offset >= 128) & (offset <= k_tile * 128))
    column = tile * k_tile + offset // 128 - 1
    value = np.ascontiguousarray(cut.pair[:, 1]).view(np.float32)
    dense = np.zeros((a.m, a.k), np.float32)
    np.add.at(dense, (row, column), value)
    assert np.array_equal(dense, csr.to_dense(a))
    # Within a tile, the entries of a row keep their order: results do not depend on the sort.
    for i in range(a.m):
        mine = slice(a.row_ptr[i], a.row_ptr[i + 1])
        for t in range(tiles):
            inside = a.col_idx[mine] // k_tile == t
            here = (row == i) & (tile == t)
            assert np.array_equal(column[here], a.col_idx[mine][inside])
            assert np.array_equal(value[here], a.val[mine][inside])


@given(k=st.integers(1, 200_000), kib=st.sampled_from([64, 99, 163, 227]))
@settings(deadline=None)
def test_a_tile_fits_the_shared_memory_of_every_gpu(k, kib):
    gpu = SimpleNamespace(properties=SimpleNamespace(max_shared_memory_per_block_optin=kib * 1024))
    rows = family.tile_rows(k, gpu)
    static = 8 * family.SHARED_THREADS
    assert 1 <= rows <= k
    assert static + (rows + 1) * 128 <= kib * 1024
    tiles = math.ceil(k / rows)
    assert (tiles - 1) * rows < k, "no tile is empty"
    if tiles > 1:  # one tile fewer would not fit
        assert static + (math.ceil(k / (tiles - 1)) + 1) * 128 + 1024 > kib * 1024


# ---------------------------------------------------------------------------------- cost model


def work(m=4096, n=4096, k=4096, nnz=4096 * 150):
    return SimpleNamespace(m=m, n=n, k=k, nnz=nnz)


@pytest.mark.parametrize("rows", family.SHARED_ROWS)
@pytest.mark.parametrize("bigger", [{"m": 8192}, {"n": 8192}, {"n": 4128}, {"k": 8192}, {"nnz": 4096 * 300}])
def test_more_work_is_never_predicted_to_be_faster(rows, bigger):
    assert family.shared_cycles(work(**bigger), H200, rows) >= family.shared_cycles(work(), H200, rows)


def test_a_smaller_gpu_is_never_predicted_to_be_faster():
    half = SimpleNamespace(
        properties=SimpleNamespace(multiprocessor_count=66, max_shared_memory_per_block_optin=232448)
    )
    for rows in family.SHARED_ROWS:
        assert family.shared_cycles(work(), half, rows) >= family.shared_cycles(work(), H200, rows)


def test_a_few_rows_make_small_blocks_and_many_make_large_ones():
    assert family.best_rows(work(m=128, n=128, nnz=128 * 50), H200) == min(family.SHARED_ROWS)
    many = work(m=2**20, n=256, k=2048, nnz=2**20 * 75)
    assert family.best_rows(many, H200) == max(family.SHARED_ROWS)


@given(rows=st.integers(0, 2**24), in_flight=st.sampled_from([16, 32, 64, 128]))
@settings(deadline=None)
def test_a_block_takes_whole_rounds_of_rows(rows, in_flight):
    size = family.rows_per_block(rows, in_flight, 396)
    assert size % in_flight == 0 and in_flight <= size <= 8 * in_flight
    smaller = family.rows_per_block(rows // 2, in_flight, 396)
    assert smaller <= size, "fewer rows, no larger blocks"


# -------------------------------------------------------------------------------------- sweeps


def test_the_sweeps_are_the_sources():
    full = room.sweeps("full")
    assert {name: len(shapes) for name, shapes in full.items()} == {
        "wide": 21,
        "square": 15,
        "tall": 18,
    }
    wide, square, tall = ({(s["m"], s["n"], s["k"]) for s in full[e]} for e in full)
    assert wide == {(4096, 2**e, 4096) for e in range(9, 16)}
    assert square == {(2**e, 2**e, 2**e) for e in range(10, 15)}
    assert tall == {(2**e, 256, 2048) for e in range(15, 21)}
    for shapes in full.values():
        assert {s["density"] for s in shapes} == {0.005, 0.01, 0.05}


def test_kick_is_a_part_of_full_and_small():
    full, kick = room.sweeps("full"), room.sweeps("kick")
    assert list(kick) == list(full)
    for name, shapes in kick.items():
        assert 0 < len(shapes) < len(full[name])
        assert all(shape in full[name] for shape in shapes)


def test_an_unknown_preset_is_named():
    with pytest.raises(ValueError, match="preset is 'fulll', but must be 'full' or 'kick'"):
        room.sweeps("fulll")


# --------------------------------------------------------------------------- what the compiler makes

#: (source, entry) of every variant; several variants may share one.
COMPILED = {
    f"{kernel.source.stem}: {entry}": (kernel.source, entry)
    for kernel in room.VARIANTS.values()
    for entry in kernel.entries
}


@pytest.fixture(scope="module")
def cubins():
    return compiled.cubins(COMPILED.values())


@pytest.fixture(scope="module")
def reports(cubins):
    return compiled.reports(cubins)


@pytest.mark.parametrize("arch", jit.TARGETS)
@pytest.mark.parametrize("variant", WITH_SOURCE)
def test_every_entry_compiles_for_every_target_without_spills(reports, variant, arch):
    kernel = room.VARIANTS[variant]
    for entry in kernel.entries:
        used, mix = reports[entry, arch]
        assert not (kernel.spill_free and used.spills), f"{entry} spills on {arch}: {used}"
        assert used.stack_bytes == used.local_bytes == 0 and mix["EXIT"] >= 1
        # A block of the size that bind launches must find its registers.
        threads = {
            "shared_tiles": family.SHARED_THREADS,
            "rows_per_warp": family.THREADS,
            "split_rows": family.THREADS,
        }.get(entry.split("<")[0], 32 * family.WARPS)
        assert threads * math.ceil(used.registers / 8) * 8 <= 65536, f"{entry} on {arch}: {used}"


@pytest.mark.parametrize("arch", jit.TARGETS)
def test_three_blocks_of_512_threads_share_an_sm(reports, arch):
    """`__launch_bounds__(512, 3)` and 40 registers: 48 warps hide the latency of L2."""
    for (entry, target), (used, _) in reports.items():
        if target == arch and entry.startswith(("rows_per_warp<512", "split_rows<512")):
            assert used.registers <= 40, f"{entry} on {arch}"


@pytest.mark.parametrize("arch", jit.TARGETS)
def test_loads_of_b_are_as_wide_as_n_allows(reports, arch):
    for name, (_, entry) in COMPILED.items():
        template, _, rest = entry.partition("<")
        if template in ("zero_rows", "shared_tiles"):
            continue
        arguments = [int(x) for x in rest.rstrip(">").split(",")]
        # rows_per_warp and split_rows: THREADS, LANES, VEC, UNROLL; any_n: WARPS, VEC;
        # column_tiles and l2_panels: WARPS, VEC, TILES, UNROLL; the published ones are float4.
        vec = {"rows_per_warp": 2, "split_rows": 2, "any_n": 1, "column_tiles": 1, "l2_panels": 1}
        bits = 32 * (arguments[vec[template]] if template in vec else 4)
        _, mix = reports[entry, arch]
        where = f"{name} on {arch}: {mix}"
        assert count(mix, "STG", bits) >= 1 and count(mix, "STG") == count(mix, "STG", bits), where
        wide = {w: count(mix, "LDG", w) for w in (32, 64, 128)}
        # split_rows reads an item, an int4, at once.
        wide[128] -= template == "split_rows" and bits != 128
        assert wide[bits] >= 1, where
        assert not any(wide[w] for w in (64, 128) if w != bits), where
        if template in ("rows_per_warp", "split_rows", "column_tiles", "l2_panels"):
            in_flight = arguments[3] * (arguments[2] if template[0] in "cl" else 1)
            assert wide[bits] >= in_flight, "independent loads " + where


@pytest.mark.parametrize("arch", jit.TARGETS)
def test_the_published_kernel_loads_float4_and_stages_in_shared_memory(reports, arch):
    used, mix = reports[f"warp_per_row<{family.WARPS}>", arch]
    assert count(mix, "LDG", 128) >= 1 and count(mix, "STG", 128) == count(mix, "STG") == 1
    assert count(mix, "STS") >= 2 and count(mix, "LDS") >= 2
    assert used.shared_bytes - 2 * 4 * 32 * family.WARPS in (0, 1024), "and the driver's own KiB"
    # FFMA, not FMUL and FADD: four for every load of B.
    assert count(mix, "FFMA") == 4 * count(mix, "LDG", 128) and not count(mix, "FADD")


@pytest.mark.parametrize("arch", jit.TARGETS)
def test_without_staging_there_is_no_shared_memory(reports, arch):
    for entry in {
        e for _, e in COMPILED.values() if e.startswith(("no_staging", "column_tiles", "l2_panels", "rows_per"))
    }:
        used, mix = reports[entry, arch]
        assert used.shared_bytes == 0 and not count(mix, "LDS") and not count(mix, "STS"), entry


@pytest.mark.parametrize("arch", jit.TARGETS)
@pytest.mark.parametrize("rows", family.SHARED_ROWS)
def test_shared_tiles_moves_16_bytes_at_a_time(reports, rows, arch):
    """A struct that is copied element by element would turn each LDS.128 into four LDS."""
    entry = f"shared_tiles<{family.SHARED_THREADS}, {rows}, {family.SHARED_UNROLL}>"
    used, mix = reports[entry, arch]
    assert count(mix, "LDGSTS", 128) == count(mix, "LDGSTS") >= 1, "tiles bypass the registers"
    # Two non-zeros: one load of their (offset, value) pairs and one of B for each.
    pairs = rows * family.SHARED_UNROLL // 2
    assert count(mix, "LDS", 128) >= 3 * pairs and count(mix, "FFMA") >= 8 * pairs
    assert 3 * count(mix, "FFMA") == 8 * count(mix, "LDS", 128), "four FFMA for a load of B"
    assert count(mix, "LDS", 128) == count(mix, "LDS"), "none is narrow"
    assert count(mix, "STS", 64) >= rows and count(mix, "STS", 32) == 0
    assert count(mix, "LDG", 64) >= 2 * rows, "the next pairs are fetched ahead"
    assert count(mix, "STG", 128) == count(mix, "STG") == rows
    assert used.shared_bytes - 8 * family.SHARED_THREADS in (0, 1024)


@pytest.mark.parametrize("arch", jit.TARGETS)
def test_cut_rows_add_without_waiting(reports, arch):
    """RED, whose result nobody reads, and as many as a vector has elements; no other atomics."""
    for entry in room.VARIANTS["split_rows"].entries:
        if entry == "zero_rows":
            continue
        _, mix = reports[entry, arch]
        vec = int(entry.split(", ")[2])
        assert count(mix, "RED") + count(mix, "REDG") == vec, f"{entry} on {arch}: {mix}"
        assert not count(mix, "ATOM") + count(mix, "ATOMG")


@pytest.mark.parametrize(
    ("variant", "entry", "reason"),
    [
        ("any_n", "any_n<8, 3>", "a load is 4, 8 or 16 bytes wide"),
        ("column_tiles", "column_tiles<8, 4, 1, 3>", "cut into whole groups of UNROLL"),
        ("l2_panels", "l2_panels<8, 4, 1, 5>", "cut into whole groups of UNROLL"),
        ("rows_per_warp", "rows_per_warp<512, 8, 4, 3>", "cut into whole groups of UNROLL"),
        ("split_rows", "split_rows<512, 4, 4, 8>", "cut into whole groups of UNROLL"),
        ("shared_tiles", "shared_tiles<1024, 3, 2>", "groups of eight, pairs of two"),
        ("shared_tiles", "shared_tiles<1024, 4, 1>", "groups of eight, pairs of two"),
    ],
)
def test_an_impossible_instantiation_says_why(variant, entry, reason):
    with pytest.raises(jit.CompileError, match=f"(?s){entry}.*{reason}"):
        jit.compile_cubin(room.VARIANTS[variant].source, entry, "sm_90a")


def test_the_generators_compile_without_spills():
    """All of them for one target, one for all."""
    source, entries = generate.SOURCE, generate.ENTRIES
    made = compiled.cubins([(source, entry) for entry in entries], ["sm_90a"])
    made |= compiled.cubins([(source, entries[-1])])
    for (entry, arch), (used, _) in compiled.reports(made).items():
        assert not used.spills, f"{entry} on {arch}: {used}"
