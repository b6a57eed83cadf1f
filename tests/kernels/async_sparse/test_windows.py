"""Windows without a GPU: who multiplies which columns, how values lie, what the compiler makes of the kernels."""

from __future__ import annotations

import re
from math import ceil, log2
from types import SimpleNamespace

import compiled
import numpy as np
import pytest
import racing
from compiled import count
from pretend import Array
from scipy.sparse import random_array
from test_operands import pattern

from kernels import async_sparse as room
from kernels import jit
from kernels.async_sparse import family, operands, tasks, wcsr, windows
from kernels.async_sparse.windows import Windows
from kernels.formats import csr
from kernels.formats import wcsr as format_
from kernels.formats.csr import Csr

rng = np.random.default_rng(5)


# ------------------------------------------------------------------------------------------ tasks


def lengths_to_row_ptr(lengths) -> np.ndarray:
    return np.concatenate(([0], np.cumsum(lengths))).astype(np.int32)


#: Columns of windows: none at all, empty ones between others, one heavy one, one of everything, many alike.
LENGTHS = {
    "no window has any": [0, 0, 0],
    "empty ones": [0, 40, 0, 0, 8, 0],
    "a heavy one": [*(8 * rng.integers(0, 5, 200)), 80_000, *(8 * rng.integers(0, 5, 99))],
    "around a chunk": [56, 64, 72, 128, 136, 8],
    "alike": [512] * 300,
}


@pytest.mark.parametrize("chunk", [0, 32, 64, 512])
@pytest.mark.parametrize("even", [False, True])
@pytest.mark.parametrize("longest_first", [False, True])
@pytest.mark.parametrize("case", LENGTHS)
def test_every_column_is_in_one_task_of_its_window(case, longest_first, even, chunk):
    row_ptr = lengths_to_row_ptr(LENGTHS[case])
    made = tasks.tasks(row_ptr, chunk, even=even, longest_first=longest_first)
    window, begin, end, place = made.table.T
    assert made.table.dtype == made.cut.dtype == np.int32 and made.table.flags.c_contiguous
    seen = np.zeros(row_ptr[-1], int)
    for w, b, e, _ in made.table:
        assert row_ptr[w] <= b <= e <= row_ptr[w + 1]
        seen[b:e] += 1
    assert (seen == 1).all()
    # A window has a task even where it has no column: somebody must store its zeros.
    tasks_of = np.bincount(window, minlength=row_ptr.size - 1)
    assert (tasks_of >= 1).all() and ((end > begin) | (tasks_of[window] == 1)).all()
    assert np.array_equal(made.cut, np.flatnonzero(tasks_of > 1))
    assert np.array_equal(place >= 0, tasks_of[window] > 1)
    assert np.array_equal(made.cut[place[place >= 0]], window[place >= 0])
    lengths = end - begin
    if chunk:
        assert lengths.max(initial=0) <= chunk and ((begin - row_ptr[window]) % tasks.STEP == 0).all()
    else:
        assert made.count == row_ptr.size - 1 and made.cut.size == 0
    if longest_first:
        assert (np.diff(lengths) <= 0).all()
    else:
        assert (np.diff(begin) >= 0).all() and (np.diff(window) >= 0).all()


def test_parts_of_a_window_are_alike_or_all_but_the_last_as_long_as_a_chunk():
    row_ptr = lengths_to_row_ptr([520, 32, 1000])

    def sizes(even: bool) -> list[int]:
        table = tasks.tasks(row_ptr, 256, even=even).table
        return (table[:, 2] - table[:, 1]).tolist()

    assert sizes(False) == [256, 256, 8, 32, 256, 256, 256, 232]
    assert sizes(True) == [192, 192, 136, 32, 256, 256, 256, 232]


@pytest.mark.parametrize("chunk", [0, 32, 64, 512])
@pytest.mark.parametrize("case", LENGTHS)
def test_parts_of_a_window_share_a_block_or_begin_with_one(case, chunk):
    row_ptr = lengths_to_row_ptr(LENGTHS[case])
    before = tasks.tasks(row_ptr, chunk, even=True)
    made = tasks.in_blocks(before, row_ptr.size - 1, 64)
    window, place = made.table[:, 0], made.table[:, 3]
    filler = window == row_ptr.size - 1
    assert (made.table[filler] == [row_ptr.size - 1, 0, 0, -1]).all()
    assert sorted(map(tuple, made.table[~filler])) == sorted(map(tuple, before.table))
    assert made.table.dtype == np.int32 and made.table.flags.c_contiguous
    at = [np.flatnonzero(place == p) for p in range(len(made.cut))]
    for x in at:
        assert (np.diff(x) == 1).all() and (np.diff(made.table[x, 1]) > 0).all()
        for block in (8, 16, 32, 64):
            assert x[0] // block == x[-1] // block or x[0] % block == 0
    lengths = [len(x) for _, x in sorted((x[0], x) for x in at)]
    room = [64 * -(-n // 64) if n > 64 else 2 ** ceil(log2(n)) for n in lengths]
    assert room == sorted(room, reverse=True)
    if case == "alike" and chunk == 64:  # eight parts each, and nothing else
        assert made.count == before.count and not filler.any()


@pytest.mark.parametrize("chunk", [-32, 8, 100])
def test_a_chunk_is_whole_steps(chunk):
    with pytest.raises(ValueError, match=f"a task has {chunk} columns, but must have a multiple of 32"):
        tasks.tasks(lengths_to_row_ptr([8]), chunk)


def test_blocks_are_balanced_where_one_window_has_most_columns():
    """Dealt out in turn, as windows.cu does: no block has much more than the average."""
    lengths = [*(8 * rng.integers(0, 5, 5000)), 80_000, 8_000]
    row_ptr, blocks = lengths_to_row_ptr(lengths), 132
    load = row_ptr[-1] / blocks
    table = tasks.tasks(row_ptr, windows.balanced(load), even=True, longest_first=True).table
    cost = table[:, 2] - table[:, 1]
    most = max(cost[i::blocks].sum() for i in range(blocks))
    assert most < 1.6 * load < max(lengths) / 10


# ----------------------------------------------------------------------------------------- layouts


def a_matrix(m: int, k: int, seed: int = 0, dtype: str = "float32") -> Csr:
    return operands.with_values(pattern(m, k, seed), seed, dtype)


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("window", windows.HEIGHTS)
def test_slices_are_the_windows_values_in_the_swizzle(window, exact):
    a = a_matrix(130, 90, dtype="float32" if exact else "tf32")
    made = format_.from_csr(a, window=window, pad=wcsr.PAD, dtype="float32")
    slices = windows.slices_of(made, exact)
    assert slices.dtype == np.float32 and slices.flags.c_contiguous
    assert slices.shape == (made.columns // 8, 1 + exact, window, 2, 4)
    assert slices[0].nbytes == window * 32 * (1 + exact)
    flat = slices.reshape(len(slices), 1 + exact, window * 8)
    for s in (0, len(slices) - 1):
        for row in range(window):
            for column in range(8):
                # wgmma's 32-byte swizzle: bit 4 of an address is exchanged with its bit 7.
                at = 32 * row + 4 * column
                at ^= (at >> 7 & 1) << 4
                parts = flat[s, :, at // 4]
                value = made.val[row, 8 * s + column]
                big = windows.tf32(np.array([value]))[0] if exact else value
                assert parts[0] == big and not parts.view(np.uint32).max() & 0x1FFF
                if exact:
                    assert parts[1] == windows.tf32(np.array([value - big], np.float32))[0]


def test_tf32_rounds_to_the_nearest():
    x = np.array([1, 1 + 2**-11, 1 + 2**-11 - 2**-23, -1 - 2**-11, 0, -0.0, 3e-39], np.float32)
    one = 1 + 2**-10
    expected = np.array([1, one, 1, -one, 0, -0.0, 3e-39], np.float32)
    assert np.allclose(windows.tf32(x), expected, rtol=1e-12, atol=1e-41)


def test_nan_and_infinity_stay_what_they_are_in_tf32():
    bits = np.array([0x7FFFFFFF, 0xFFFFFFFF, 0x7F800001, 0x7FC00000, 0x7F800000, 0xFF800000], np.uint32)
    found = windows.tf32(bits.view(np.float32))
    assert np.isnan(found[:4]).all() and found[4:].tolist() == [np.inf, -np.inf]
    assert not (found.view(np.uint32) & 0x1FFF).any()


def test_what_is_infinite_has_no_rest():
    a = csr.from_scipy(random_array((16, 40), density=0.5, rng=0, dtype=np.float32).tocsr())
    a.val[:4] = np.inf, -np.inf, 3.4028e38, np.nan
    big, rest = np.moveaxis(windows.slices_of(format_.from_csr(a, window=16, dtype="float32"), True), 1, 0)
    assert np.isinf(big).sum() == 3 and np.isnan(big).sum() == 1
    assert np.isfinite(rest).all() and not rest[~np.isfinite(big)].any()


def test_what_three_products_take():
    def splits(*values):
        val = np.array(values, np.float32)
        rows, columns = np.array([0, len(val)], np.int32), np.arange(len(val), dtype=np.int32)
        return windows.splits(csr.Csr(1, 9, rows, columns, val))

    most = np.array(0x7F7FEFFF, np.uint32).view(np.float32)  # the largest that TF32 rounds to a number
    assert np.isfinite(windows.tf32(np.array([most]))) and splits(1, most, -most) and splits()
    assert splits(1, np.nan), "which is NaN in every product"
    for value in (np.inf, -np.inf, np.nextafter(most, np.float32(np.inf))):
        assert np.isinf(windows.tf32(np.array([value], np.float32)))
        assert not splits(1, value) and not splits(np.nan, value)


def test_a_grid_that_clears_cut_windows_ends_where_grids_do(monkeypatch):
    monkeypatch.setattr(jit, "loaded", lambda *_: None)
    for width, blocks in ((257, 2), (65_535 * 256, 65_535), (65_536 * 256, 65_535)):
        c = SimpleNamespace(data=SimpleNamespace(ptr=0), shape=(64, width))
        cut = np.zeros(3, np.int32).view(Array)
        ((_, config, _),) = tasks.clear(None, 64, cut, c, 64, racing.H200)
        assert tuple(config.grid)[:2] == (3, blocks)


def test_three_products_are_as_accurate_as_float32():
    """As `halve` in windows.cuh and `slices_of` split operands, sums aside."""
    a, b = (rng.uniform(-1, 1, 100_000).astype(np.float32) for _ in range(2))
    a_big, b_big = windows.tf32(a), windows.tf32(b)
    a_rest, b_rest = windows.tf32(a - a_big), windows.tf32(b - b_big)
    a_big, b_big, a_rest, b_rest, a, b = map(np.float64, (a_big, b_big, a_rest, b_rest, a, b))
    off = np.abs(a_rest * b_big + a_big * b_rest + a_big * b_big - a * b) / np.abs(a * b)
    assert off.max() < 2**-20.4 and off.mean() < 2**-22.5
    assert np.abs(a_big * b_big - a * b).mean() / np.abs(a * b).mean() > 1e-4


@pytest.mark.parametrize("n", wcsr.WIDTHS)
def test_threads_of_the_gather_write_every_unit_once_and_without_conflicts(n):
    """The mapping of gather_k_major: lines of n, units of 4 values of k, 16 bytes at u ^ n % 8."""
    thread = np.arange(128)
    warp, lane = thread // 32, thread % 32
    four, across = lane // 2 % 4, 4 * (lane % 2 + lane // 8 * 2)
    written = np.zeros(n * 8, int)
    for i in range(n // 64):
        piece = warp + 4 * i
        unit, line = 4 * (piece // (n // 32)) + four, piece % (n // 32) * 32 + across
        for j in range(4):
            at = 8 * (line + j) + (unit ^ (line + j) % 8)
            np.add.at(written, at, 1)
            for eight in at.reshape(-1, 8):  # go out together: each to 16 other bytes of 128
                assert len(set(eight % 8)) == 8
        # A warp reads whole lines of 128 bytes, of four rows of B.
        for w in range(4):
            mine = {(u, x // 32) for u, x in zip(unit[warp == w], line[warp == w], strict=True)}
            assert len(mine) == 4
    assert (written == 1).all()


@pytest.mark.parametrize("window", windows.HEIGHTS)
def test_lanes_store_the_columns_whose_rows_of_b_they_loaded(window):
    """A slice, lane by lane as windows.cu reads, multiplies and stores it, with wgmma as wgmma.cuh describes it."""
    gathered = rng.integers(-3, 4, (8, 128)).astype(np.float32)  # 8 rows of B, 128 columns
    values = rng.integers(-3, 4, (window, 8)).astype(np.float32)
    c = np.full((window, 128), np.nan, np.float32)
    left = np.full((2, 64, 8), np.nan, np.float32)  # B^T, of two blocks
    lanes = [(w, g, t, 32 * w + 4 * g) for w in range(4) for g in range(8) for t in range(4)]
    for w, g, t, mine in lanes:
        x, y = gathered[t, mine : mine + 4], gathered[t + 4, mine : mine + 4]
        for i in range(2):
            row = 16 * w + g
            left[i, row, t], left[i, row + 8, t] = x[2 * i], x[2 * i + 1]
            left[i, row, t + 4], left[i, row + 8, t + 4] = y[2 * i], y[2 * i + 1]
    assert not np.isnan(left).any()
    product = left @ values.T  # (2, 64, window)
    for w, g, t, mine in lanes:
        acc = np.zeros((2, window // 2), np.float32)
        for j in range(window // 8):
            for down in range(2):
                row = 16 * w + g + 8 * down
                acc[:, 4 * j + 2 * down : 4 * j + 2 * down + 2] = product[:, row, 8 * j + 2 * t :][:, :2]
        for j in range(window // 4):
            row, d = j // 2 * 8 + 2 * t + j % 2, j // 2 * 4 + j % 2
            assert np.isnan(c[row, mine : mine + 4]).all()
            c[row, mine : mine + 4] = acc[0, d], acc[0, d + 2], acc[1, d], acc[1, d + 2]
    assert np.array_equal(c, values @ gathered)


# --------------------------------------------------------------------------------- problems in CSR


def test_a_problem_in_csr_has_the_values_of_its_dtype():
    made = room.problem_from_csr(pattern(), 30, 3, "mine", dtype="float32", format="csr", reorder="")
    ops = made.host()
    csr.validate(ops.a)
    assert isinstance(ops.a, Csr) and ops.a.val.dtype == ops.b.dtype == np.float32
    assert ops.b.flags.c_contiguous and ops.b.shape == (200, 30)
    assert made.nnz == ops.a.nnz and made.useful_flops == 2 * made.nnz * 30 and made.label == "mine"
    assert made.least_bytes == ops.a.nbytes + ops.b.nbytes + 4 * 200 * 30 and made.limit == ""
    windows_ = format_.from_csr(ops.a, window=64, pad=8, dtype="float32")
    vectors = int((windows_.col_idx >= 0).sum())
    assert operands.column_vectors(ops.a) == vectors
    assert made.requested_bytes == vectors * (64 * 4 + 4 + 30 * 4) + 4 * 200 * 30
    assert (ops.a.val.view(np.uint32) & 0x1FFF).any() and (ops.b.view(np.uint32) & 0x1FFF).any()


@pytest.mark.parametrize("dtype", operands.DTYPES)
def test_blocks_and_csr_of_a_matrix_hold_the_same_product(dtype):
    made, blocks = (
        room.problem_from_csr(pattern(), 20, 3, dtype=dtype, format=format, layout="row") for format in ("csr", "bcsr")
    )
    from kernels import formats

    assert np.array_equal(formats.to_dense(made.host().a), formats.to_dense(blocks.host().a))
    assert np.array_equal(formats.to_dense(made.host().b), formats.to_dense(blocks.host().b))
    assert made.limit == blocks.limit and made.nnz == blocks.nnz


def test_what_makes_no_problem_in_csr_is_refused():
    with pytest.raises(ValueError, match="format is 'coo', but A is made one of bcsr, csr"):
        room.problem_from_csr(pattern(), 8, format="coo")
    with pytest.raises(ValueError, match="dtype is 'float32'"):
        room.problem_from_csr(pattern(), 8, dtype="float32")
    assert room.problem_from_csr(pattern(), 8).host().b.bits.flags.f_contiguous


def test_a_matrix_without_non_zeros_has_no_column_vectors():
    empty = Csr(5, 5, np.zeros(6, np.int32), np.zeros(0, np.int32), np.zeros(0, np.float32))
    assert operands.column_vectors(empty) == 0


# ---------------------------------------------------------------------------------- configurations


def test_names_are_bindable_once_and_say_what_they_change():
    trials = wcsr.TRIALS | windows.TRIALS
    assert len(trials) == len(wcsr.TRIALS) + len(windows.TRIALS)
    assert not set(trials) & (set(room.VARIANTS) | set(family.TRIALS))
    assert len({config for config, _ in trials.values()}) == len(trials)
    assert all(said for _, said in trials.values())
    assert wcsr.config_of("wcsr_whole").chunk == 0 and wcsr.config_of("wcsr").chunk > 0
    assert wcsr.config_of("wcsr_n64").width == 64
    assert windows.config_of("windows", 128).groups == 1
    assert windows.config_of("windows_exact", 129) == Windows(exact=True)
    assert windows.config_of("windows_8_narrow", 1024) == Windows(8, groups=1)


def test_rings_fit_the_shared_memory_of_their_blocks():
    for window in windows.HEIGHTS:
        for exact in (False, True):
            for groups in (1, 2):
                config = Windows(window, groups, exact)
                need = windows.stages(config) * windows.stage_bytes(config) + windows.TAKEN
                assert need * (3 - groups) <= 228 * 1024 and windows.stages(config) >= 3
                assert need <= 227 * 1024 + 1024


# --------------------------------------------------------------------------- what the compiler makes

ENTRIES = (
    *((wcsr.SOURCE, e) for e in room.VARIANTS["wcsr"].entries),
    *((windows.SOURCE, e) for name in windows.KERNELS for e in room.VARIANTS[name].entries),
    (wcsr.SOURCE, "clear_cut<64>"),
    (wcsr.SOURCE, "round_cut<BF16, 64>"),
    (wcsr.SOURCE, "round_cut<F16, 64>"),
    *((windows.SOURCE, f"clear_cut<{window}>") for window in windows.HEIGHTS),
)


@pytest.fixture(scope="module")
def cubins():
    return compiled.cubins(ENTRIES, family.TARGETS)


@pytest.fixture(scope="module")
def reports(cubins):
    return compiled.reports(cubins)


def test_no_kernel_spills_and_a_block_finds_its_registers(reports):
    for (entry, _), (used, mix) in reports.items():
        assert not used.spills and mix["EXIT"], f"{entry}: {used}"
        if entry.startswith("windows"):
            groups = int(entry.split(", ")[1])
            # What setmaxnreg shares out: 128 registers for each of 2 · 256 threads, 168 for each of 384.
            assert used.registers == (128 if groups == 1 else 168), f"{entry}: {used}"
            assert used.shared_bytes <= windows.TAKEN, f"{entry}: {used}"
        elif entry.startswith("wcsr"):
            width = int(re.findall(r"\d+", entry)[-1])
            blocks = 65536 // (ceil(used.registers / 8) * 8 * 128)
            assert blocks >= {64: 5, 128: 4, 256: 2}[width], f"{entry}: {used}"
            assert blocks * (wcsr.shared_bytes(width) + used.shared_bytes) <= 228 * 1024


def test_registers_of_setmaxnreg_are_there():
    text = windows.SOURCE.read_text()
    assert re.findall(r"give_registers<([^>]+)>", text) == ["56"]
    assert re.findall(r"take_registers<([^>]+)>", text) == ["GROUPS == 1 ? 200 : 224"]
    assert 56 + 200 <= 2 * 128 and 56 + 2 * 224 <= 3 * 168


def test_the_multiplication_is_of_the_dtype_and_the_width(cubins):
    kinds = {"BF16": "x16.F32.BF16", "F16": "x16.F32", "TF32": "x8.F32.TF32"}
    for (entry, _), cubin in cubins.items():
        work = re.findall(r"HGMMA\S+", jit.disassemble(cubin))
        if entry.startswith("wcsr"):
            dtype, n = entry[5:-1].split(", ")
            assert work == [f"HGMMA.64x{n}{kinds[dtype]}"] * 4, entry
        elif entry.startswith("windows"):
            window, _, _, exact = entry[8:-1].split(", ")
            # Two blocks of 64 columns: 4 slices at once and one; in three products 2 and one, and of low windows
            # 4 and one, and two of the products are one of twice the width.
            widths, slices = ([window], 4 + 1) if exact == "false" else ([window] * 3, 2 + 1)
            if exact == "true" and int(window) <= 16:
                widths, slices = [window, str(2 * int(window))], 4 + 1
            wanted = [f"HGMMA.64x{w}x8.F32.TF32" for w in widths] * 2 * slices
            assert sorted(work) == sorted(wanted), entry
        else:
            assert not work, entry


def test_wgmma_of_a_step_follow_each_other_without_a_wait(cubins):
    """A wait among them would say that the compiler has made them wait for one another."""
    for (entry, _), cubin in cubins.items():
        order = re.findall(r"HGMMA|WARPGROUP.DEPBAR", jit.disassemble(cubin))
        runs = "".join("h" if op == "HGMMA" else "|" for op in order).split("|")
        together = {len(run) for run in runs if run}
        if entry.startswith("wcsr"):
            assert together == {4}, entry
        elif entry.startswith("windows"):
            low = int(re.findall(r"\d+", entry)[0]) <= 16
            exact = {16, 4} if low else {12, 6}
            assert together == (exact if "true" in entry else {8, 2}), entry


def test_each_kernel_loads_as_its_head_says(reports):
    for (entry, _), (_, mix) in reports.items():
        if entry.startswith("wcsr"):
            n, tf32 = int(re.findall(r"\d+", entry)[-1]), "TF32" in entry
            assert any(op.startswith("UTMALDG") for op in mix), entry
            assert count(mix, "STS", 128) == n // 16, entry
            # Rows of B, their numbers four at a time or one by one, and the task.
            assert count(mix, "LDG", 128) == n // 16 + (n // 64 if tf32 else 0) + 1, entry
            assert not count(mix, "LDGSTS") and count(mix, "REDG") == n // 2, entry
        elif entry.startswith("windows"):
            window = int(re.findall(r"\d+", entry)[0])
            assert count(mix, "UBLKCP") == 1 and count(mix, "LDGSTS"), entry
            assert count(mix, "REDG") == window // 4, "16 bytes at a time"
            assert count(mix, "LDS", 128) and not count(mix, "STS", 128), entry


@pytest.mark.parametrize(
    ("source", "entry", "reason"),
    [
        (windows.SOURCE, "windows<128, 2, 3, false>", "windows have 8, 16, 32 or 64 rows"),
        (windows.SOURCE, "windows<16, 3, 3, false>", "one or two warpgroups multiply"),
        (wcsr.SOURCE, "wcsr<TF32, 96>", "a tile has 64, 128, 192 or 256 columns"),
    ],
)
def test_an_impossible_instantiation_says_why(source, entry, reason):
    with pytest.raises(jit.CompileError, match=reason):
        jit.compile_cubin(source, entry, "sm_90a")
