"""Which instantiation, what bind prepares, with NumPy in CuPy's place, the cost model, what the compiler makes."""

import math
from dataclasses import replace
from types import SimpleNamespace

import compiled
import numpy as np
import pytest
import racing
from compiled import count
from hypothesis import given, settings, strategies as st
from pretend import there
from racing import H200
from refused import says

from kernels import casper_sparse as system, jit
from kernels.casper_sparse import launch, operands
from kernels.contract import Operands
from kernels.formats import csr

#: Variants that load float4 and nothing else.
NEED_FOURS = ("warp_per_row", "no_staging", "shared_tiles")
WITH_SOURCE = [name for name, kernel in system.VARIANTS.items() if kernel.entries]


def ragged(lengths, k: int, seed: int = 0) -> csr.Csr:
    """Rows of these lengths, columns unsorted and repeated, values exact in float32."""
    rng = np.random.default_rng(seed)
    row_ptr = np.cumsum([0, *lengths]).astype(np.int32)
    columns, values = rng.integers(0, k, row_ptr[-1]), rng.integers(-64, 64, row_ptr[-1]) / 8
    return csr.validate(csr.Csr(len(lengths), k, row_ptr, columns.astype(np.int32), values.astype(np.float32)))


lengths_of = st.lists(st.integers(0, 9) | st.integers(20, 300), min_size=1, max_size=12)
matrices = st.builds(ragged, lengths_of, st.integers(1, 40), st.integers(0, 999))

# ----------------------------------------------------------------------------- which instantiation


def entries(variant: str, n: int) -> set[str]:
    """What bind may ask the compiler for at this n, or nothing where it refuses."""
    if n % 4 and variant in NEED_FOURS:
        return set()
    return {system.entry(variant, n, rows) for rows in launch.SHARED_ROWS}


@pytest.mark.parametrize("variant", WITH_SOURCE)
def test_prepare_asks_for_no_entry_that_is_not_declared_and_none_is_that_no_n_needs(variant):
    declared = set(system.VARIANTS[variant].entries) - {"zero_rows"}
    assert set().union(*(entries(variant, n) for n in range(1, 261))) == declared
    assert all(entries(variant, n) <= declared for n in (300, 1001, 1002, 32768, 2**31 - 1, 2**31 - 2))


@pytest.mark.parametrize("variant", NEED_FOURS)
def test_a_kernel_of_float4_refuses_other_n_before_anything_is_made(variant):
    for n in (1, 2, 6, 257):
        says([variant, f"N is {n}", "any_n"], lambda n=n: system.entry(variant, n))
        p = replace(system.problem(8, n, 64, 0.5), make_device=lambda: Operands(None, None))
        says([f"N is {n}"], lambda p=p: system.prepare(variant, p, H200))


@given(n=st.integers(1, 2000), rows=st.integers(0, 2**24))
@settings(deadline=None)
def test_vectors_stay_aligned_and_blocks_cover_rows_and_columns(n, rows):
    vec = launch.vector_width(n)
    assert n % vec == 0 and (vec == 4 or n % (2 * vec)), "the widest that divides n"
    for columns in (launch.NARROW, launch.WIDE):
        lanes = launch.lanes_of(n, columns)
        assert 32 % lanes == 0 and lanes % launch.UNROLL == 0
        assert lanes * vec >= min(n, columns) or lanes == 32
        size, blocks = launch.panel_grid(rows, n, columns, H200)
        in_flight = launch.THREADS // lanes
        assert size % in_flight == 0 and in_flight <= size <= 8 * in_flight
        assert blocks == math.ceil(rows / size) * math.ceil(n / (lanes * vec))
        assert size == in_flight or rows // size >= 2 * 3 * 132, "two rounds of what an H200 holds"


large = st.integers(1, launch.MOST) | st.integers(1_900_000, 2_000_000)


@given(m=large, k=large, nnz=st.integers(1, 2**31 - 1))
@settings(deadline=None, max_examples=300)
def test_shared_tiles_counts_with_32_bits_or_refuses(m, k, nnz):
    """The counters of shared_tiles.cu as they are after its last tile, in whole numbers that do not wrap."""
    p = SimpleNamespace(m=m, n=4, k=k, nnz=nnz)
    tiles, rows = math.ceil(k / launch.tile_rows(k, H200)), launch.SHARED_THREADS // 8 * launch.best_rows(p, H200)
    m_pad = math.ceil(m / rows) * rows
    begin, at_tile = tiles * launch.tile_rows(k, H200), m_pad - 1 + tiles * m_pad
    why_not = launch.why_not_shared_tiles(p, H200)
    assert bool(why_not) == (begin >= 2**31 or at_tile >= 2**31 - 1) and ". " not in why_not


def test_what_is_refused_is_refused_before_it_is_made(monkeypatch):
    monkeypatch.setattr(launch, "cut_columns", lambda *a: pytest.fail("cut"))
    p = replace(system.problem(1_950_000, 4, 1_950_000, 1e-9), nnz=10, make_device=lambda: Operands(None, None))
    says(["1950000 x 1950000", "use in_flight"], lambda: system.prepare("shared_tiles", p, H200))
    says(["without non-zeros"], lambda: system.prepare("shared_tiles", replace(p, nnz=0), H200))
    for variant in system.VARIANTS:
        for size in "mn":
            wide = replace(system.problem(4, 4, 4, 1.0), **{size: 2**31 - 100})
            says([f"{size} is 2147483548"], lambda p=wide, variant=variant: system.prepare(variant, p, H200))


# --------------------------------------------------------------------------------------- bind


@pytest.fixture
def device(pretended):
    return pretended(H200)


def of(a: csr.Csr, n: int):
    """A problem whose arrays pretend to be on a GPU."""
    return there(system.problem_from_csr(a, n), "C")


@pytest.mark.parametrize("variant", WITH_SOURCE)
def test_prepare_makes_one_launch_that_covers_the_output(device, variant):
    warps = variant in ("warp_per_row", "scalar", "no_staging", "any_n", "column_tiles", "l2_panels")
    for n in (1, 2, 4, 31, 33, 36, 128, 129, 132, 257, 260):
        if n % 4 and variant in NEED_FOURS:
            continue
        p = of(ragged([3] * 40, 50), n)
        ops, bound = p.device(), system.prepare(variant, p, device)
        ((kernel, config, arguments),) = bound.steps
        assert kernel.split(": ")[1] in entries(variant, n) and bound.result() is ops.c
        assert config.block % 32 == 0 and config.block == (256 if warps else config.block) <= 1024
        rows = 32 * launch.vector_width(n) * launch.tiles_per_warp(n)
        tiles = math.ceil(n / rows) if variant in ("column_tiles", "l2_panels") else 1
        assert config.grid == 5 * tiles or not warps
        if variant in ("rows_per_warp", "in_flight"):
            columns = launch.NARROW if variant == "rows_per_warp" else launch.WIDE
            assert (arguments[2], config.grid) == launch.panel_grid(40, n, columns, device)
        assert arguments[-2:] == (ops.b.data.ptr, ops.c.data.ptr)
        assert arguments[0] == 40 and arguments[1] == {"warp_per_row": n // 4, "shared_tiles": 128}.get(variant, n)
        assert all(type(x) in (np.int32, int) for x in arguments)
        assert bool(bound.prepare_ms) == bool(bound.keep) == (variant in ("split_rows", "shared_tiles"))
        assert bound.prepare_bytes == sum(x.nbytes for x in bound.keep)


def test_split_rows_clears_what_it_adds_to(device):
    p = of(ragged([1] * 30 + [5000] + [2] * 30 + [3000], 200), 8)
    bound = system.prepare("split_rows", p, device)
    (zero, config, arguments), main = bound.steps
    items, cut = bound.keep
    assert zero.endswith("zero_rows") and config.grid == 2 and cut.tolist() == [30, 61]
    assert arguments == (8, cut.data.ptr, p.device().c.data.ptr)
    assert main[2][0] == len(items) and main[2][3] == items.data.ptr


def test_shared_tiles_asks_for_the_shared_memory_that_it_uses(device):
    p = of(ragged([40] * 300, 5000), 64)
    ((kernel, config, (m, m_pad, n, k, k_tile, *_)),) = system.prepare("shared_tiles", p, device).steps
    rows = 128 * int(kernel.split(", ")[1])
    assert (m, n, k) == (300, 64, 5000) and config.shmem_size == (k_tile + 1) * 128, "the row of zeros, then the tile"
    assert m_pad % rows == 0 and 0 <= m_pad - 300 < rows and config.grid == m_pad // rows * 2


@pytest.mark.parametrize("n", [64, 66])
def test_auto_keeps_the_fastest_of_what_can_run(device, monkeypatch, n):
    p = of(ragged([30] * 100, 350), n)
    possible = launch.candidates(p, device)
    assert possible == [x for x in launch.TRIED if n % 4 == 0 or x != "shared_tiles"]
    compiles = jit.compile_cubin
    kernels = {name: system.prepare(name, p, device).steps[-1][0] for name in [*possible, "scalar"]}
    for best in possible:
        asked: list[str] = []
        track = racing.track(monkeypatch, lambda name, _, best=best: 50.0 if name == best else 60.0)
        monkeypatch.setattr(jit, "compile_cubin", lambda *job, to=asked: to.append(compiles(*job)) or to[-1])
        bound = system.prepare("auto", p, device)
        assert set(asked) == {kernels[name] for name in possible}, "what is compiled at once is what is bound"
        assert track.heats[0][0] == possible and bound.name == "auto" and bound.prepare_ms > 0
        assert bound.steps[-1][0] == kernels[best]


def test_auto_runs_on_a_matrix_without_non_zeros(device, monkeypatch):
    racing.track(monkeypatch, lambda *_: 1.0)
    assert system.prepare("auto", of(ragged([0] * 9, 5), 8), device).name == "auto"


# ------------------------------------------------------------------------------ preprocessing


@given(a=matrices, chunk=st.none() | st.integers(1, 70) | st.sampled_from([255, 256, 257, 10**6]))
@settings(deadline=None)
def test_items_cover_every_non_zero_once(a, chunk):
    items, cut = launch.split(a, chunk)
    assert items.dtype == cut.dtype == np.int32 and items.flags.c_contiguous
    row, start, number, shared = items.T
    assert np.array_equal(np.append(start, a.nnz), np.append(0, np.cumsum(number)))
    assert np.all(start >= a.row_ptr[row]) and np.all(start + number <= a.row_ptr[row + 1])
    pieces = np.bincount(row, minlength=a.m)
    assert pieces.all() and np.array_equal(shared, pieces[row] > 1) and np.array_equal(cut, np.flatnonzero(pieces > 1))
    least = chunk or max(launch.SPLIT_AT_LEAST, 4 * a.nnz / a.m)
    assert chunk is None or np.all(number <= chunk)
    assert np.all((pieces == 1) | (np.diff(a.row_ptr) > least)), "only what others would wait for is cut"
    assert np.all(pieces >= np.diff(a.row_ptr) // (2 * least + 1)) and np.all((number > 0) | (pieces[row] == 1))


@given(a=matrices, k_tile=st.integers(1, 45), row_multiple=st.integers(1, 9))
@settings(deadline=None)
def test_a_matrix_cut_by_columns_is_still_the_same_matrix(a, k_tile, row_multiple):
    m_pad, lengths = math.ceil(a.m / row_multiple) * row_multiple, np.diff(a.row_ptr)
    order, ptr, pair = launch.cut_columns(a, k_tile, m_pad)
    assert sorted(order) == list(range(a.m)) and np.all(np.diff(lengths[order]) <= 0)
    assert len(ptr) == math.ceil(a.k / k_tile) * m_pad + 1 and ptr[-1] == a.nnz
    assert order.dtype == ptr.dtype == pair.dtype == np.int32 and pair.flags.c_contiguous
    place = np.repeat(np.arange(len(ptr) - 1), np.diff(ptr))
    row, offset = order[place % m_pad], pair[:, 0]
    # Row 0 of the staged tile holds zeros, so its rows of B begin at 128 bytes, 128 bytes each.
    assert np.all(offset % 128 == 0) and np.all((offset >= 128) & (offset <= k_tile * 128))
    column = place // m_pad * k_tile + offset // 128 - 1
    value = np.ascontiguousarray(pair[:, 1]).view(np.float32)
    # Within a row and a tile, entries keep their order: results do not depend on the sort.
    given_row = np.repeat(np.arange(a.m), lengths)
    kept = np.lexsort((np.arange(a.nnz), a.col_idx // k_tile, given_row))
    found = np.lexsort((np.arange(a.nnz), column // k_tile, row))
    assert np.array_equal(row[found], given_row[kept]) and np.array_equal(column[found], a.col_idx[kept])
    assert np.array_equal(value[found], a.val[kept])


@given(k=st.integers(1, 200_000), kib=st.sampled_from([64, 99, 163, 227]))
@settings(deadline=None)
def test_a_tile_fits_the_shared_memory_of_every_gpu(k, kib):
    gpu = SimpleNamespace(properties=SimpleNamespace(max_shared_memory_per_block_optin=kib * 1024))
    rows, static = launch.tile_rows(k, gpu), 8 * launch.SHARED_THREADS
    tiles = math.ceil(k / rows)
    assert static + (rows + 1) * 128 <= kib * 1024 and (tiles - 1) * rows < k, "no tile is empty"
    assert tiles == 1 or static + (math.ceil(k / (tiles - 1)) + 1) * 128 + 1024 > kib * 1024


@pytest.mark.parametrize("rows", launch.SHARED_ROWS)
@pytest.mark.parametrize("more", [{"m": 8192}, {"n": 8192}, {"n": 4128}, {"k": 8192}, {"nnz": 4096 * 300}], ids=str)
def test_more_work_or_a_smaller_gpu_is_never_predicted_to_be_faster(rows, more):
    usual = {"m": 4096, "n": 4096, "k": 4096, "nnz": 4096 * 150}
    time = launch.shared_cycles(SimpleNamespace(**usual), H200, rows)
    assert launch.shared_cycles(SimpleNamespace(**usual | more), H200, rows) >= time
    small = SimpleNamespace(properties=SimpleNamespace(**vars(H200.properties) | {"multiprocessor_count": 66}))
    assert launch.shared_cycles(SimpleNamespace(**usual), small, rows) >= time
    few, many = (SimpleNamespace(m=m, n=n, k=2048, nnz=50 * m) for m, n in ((128, 128), (2**20, 256)))
    assert (launch.best_rows(few, H200), launch.best_rows(many, H200)) == (1, 8)


# ------------------------------------------------------------------------------- the generator


@given(
    seed=st.integers(0, 2**32 - 1),
    stream=st.integers(0, 3),
    index=st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=8),
    bound=st.integers(1, 2**31),
)
@settings(deadline=None)
def test_numpy_makes_the_bits_of_the_kernel(seed, stream, index, bound):
    """generate.cu in Python's unbounded integers, one number at a time."""

    def random_u32(i: int) -> int:
        x = i ^ ((seed * 0x9E3779B9 + stream * 0x85EBCA6B) % 2**32)
        for shift in (16, 15, 16):
            x = (x * 1664525 + 1013904223) % 2**32
            x ^= x >> shift
        return x

    exact, given_ = [random_u32(i) for i in index], np.array(index, np.uint32)
    assert operands._random(seed, stream, given_).tolist() == exact
    assert operands._below(np.array(exact, np.uint32), bound).tolist() == [x * bound >> 32 for x in exact]
    unit = operands._unit(seed, stream, given_)  # exact in float32, or the GPU and NumPy might round differently
    assert unit.dtype == np.float32 and [int(float(u) * 2**24) for u in unit] == [2 * (x >> 9) + 1 for x in exact]


@given(
    sizes=st.tuples(st.integers(1, 60), st.integers(1, 40) | st.sampled_from((129, 300)), st.integers(1, 2000)),
    thousandths=st.integers(0, 1000),
    seed=st.integers(0, 2**32 - 1),
)
@settings(deadline=None, max_examples=50)
def test_operands_are_the_sources(sizes, thousandths, seed):
    """Rows of floor(K·S/200) to floor(K·S/100) non-zeros, for S as it is written; values between 0 and 1."""
    (m, n, k), density = sizes, thousandths / 1000
    p = system.problem(m, n, k, density, seed)
    a, b = csr.validate(p.host().a), p.host().b
    lengths = np.diff(a.row_ptr)
    assert k * thousandths // 2000 <= lengths.min() and lengths.max() <= k * thousandths // 1000
    assert all(np.all((x > 0) & (x < 1)) and x.dtype == np.float32 for x in (a.val, b)) and b.shape == (k, n)
    assert p.nnz == a.nnz and p.useful_flops == 2 * a.nnz * n and b.flags.c_contiguous
    assert p.least_bytes == a.nbytes + b.nbytes + 4 * m * n
    # The published kernel reads A again for each of its column tiles, B for every non-zero.
    assert p.requested_bytes == 8 * a.nnz * math.ceil(n / 128) + 8 * m + 4 * a.nnz * n + 4 * m * n


@given(k=st.integers(1, 12), n=st.integers(1, 12), panel=st.integers(1, 40))
@settings(deadline=None, max_examples=30)
def test_panels_of_the_dense_matrix_leave_no_seam(k, n, panel):
    whole = operands.dense(np, k, n, 3)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(operands, "_PANEL", panel)
        assert np.array_equal(operands.dense(np, k, n, 3), whole)


def test_a_given_matrix_keeps_its_entries():
    a = ragged([3, 0, 5], 30)
    p = system.problem_from_csr(a, 6, seed=2, label="some matrix")
    assert p.host().a is a and p.label == "some matrix" and np.array_equal(p.host().b, operands.dense(np, 30, 6, 2))
    assert system.problem_from_csr(ragged([3], 1), 4).density == 1.0, "repeated entries"
    for m, k in ((0, 5), (5, 0), (0, 0)):
        zeros = np.zeros(0, np.int32)
        empty = csr.Csr(m, k, np.zeros(m + 1, np.int32), zeros, zeros.astype(np.float32))
        assert system.problem_from_csr(empty, 4).useful_flops == 0
    a.col_idx[5] = 30
    says(["col_idx[5] is 30"], lambda: system.problem_from_csr(a, 4))
    says(["32-bit"], lambda: system.problem(m=2**20, n=1, k=2**13, density=0.5))


# --------------------------------------------------------------------------- what the compiler makes


@pytest.fixture(scope="module")
def reports():
    """Of every instantiation, for Hopper and for another GPU in turn."""
    jobs = {(kernel.source, e) for kernel in system.VARIANTS.values() for e in kernel.entries}
    return compiled.reports(compiled.spread(sorted(jobs)))


#: Where a template's arguments name the width of a vector.
VEC = {"rows_per_warp": 2, "split_rows": 2, "any_n": 1, "column_tiles": 1, "l2_panels": 1}


@compiled.again
def test_loads_of_b_are_as_wide_as_n_allows_and_independent(reports):
    """And three blocks of 512 threads share an SM: 48 warps hide the latency of L2."""
    for (entry, arch), (used, mix) in reports.items():
        template, _, rest = entry.partition("<")
        where, arguments = f"{entry} on {arch}: {mix}", [int(x) for x in rest.rstrip(">").split(",") if x]
        if template in ("zero_rows", "shared_tiles"):
            continue
        bits = 32 * (arguments[VEC[template]] if template in VEC else 4)
        assert count(mix, "STG", bits) == count(mix, "STG") >= 1, where
        wide = {w: count(mix, "LDG", w) for w in (32, 64, 128)}
        wide[128] -= template == "split_rows" and bits != 128  # an item, an int4, at once
        assert wide[bits] >= 1 and not any(wide[w] for w in (64, 128) if w != bits), where
        if template in ("rows_per_warp", "split_rows", "column_tiles", "l2_panels"):
            assert wide[bits] >= arguments[3] * (arguments[2] if template[0] in "cl" else 1), where
            assert used.registers <= 40 or template[0] in "cl", where
        staged = template in ("warp_per_row", "any_n")
        assert bool(count(mix, "LDS")) == bool(count(mix, "STS")) == staged or template == "split_rows", where
        added = count(mix, "RED") + count(mix, "REDG")
        assert added == (arguments[2] if template == "split_rows" else 0) and not count(mix, "ATOMG"), where


@compiled.again
def test_shared_tiles_moves_16_bytes_at_a_time(reports):
    """A struct that is copied element by element would turn each LDS.128 into four LDS."""
    for (entry, _), (used, mix) in reports.items():
        if entry.startswith("shared_tiles"):
            rows = int(entry.split(", ")[1])
            assert count(mix, "LDGSTS", 128) == count(mix, "LDGSTS") >= 1, "tiles bypass the registers"
            assert 3 * count(mix, "FFMA") == 8 * count(mix, "LDS", 128) > 0
            assert count(mix, "LDS", 128) == count(mix, "LDS") and count(mix, "LDG", 64) >= 2 * rows
            assert count(mix, "STG", 128) == count(mix, "STG") == rows
            assert used.shared_bytes - 8 * launch.SHARED_THREADS in (0, 1024)
