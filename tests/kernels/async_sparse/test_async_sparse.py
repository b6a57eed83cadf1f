"""The system without a GPU: problems, statistics, tasks and layouts of A, configurations and what is proposed of them,
what bind hands to a launch, sums in one order."""

import itertools
import re
from dataclasses import replace
from math import ceil
from types import SimpleNamespace

import numpy as np
import pytest
import racing
import twins
from hypothesis import assume, given, settings, strategies as st
from matrices import PATTERNS, of_lengths, pattern, shuffled
from racing import A100, B200, H100_PCIE, H200
from refused import says
from scipy.sparse import random_array

from artifact.systems.async_sparse import scripts
from kernels import async_sparse as system, autotune, formats, jit, padding
from kernels.async_sparse import any_csr, family, launch, operands, planning, published, subwarp, windows
from kernels.async_sparse.any_csr import HEIGHTS, Statistics
from kernels.async_sparse.family import OneTile, Shape, Unit
from kernels.async_sparse.per_warp import PerWarp
from kernels.async_sparse.windows import Union, Windows
from kernels.autotune.__main__ import systems
from kernels.contract import Operands
from kernels.formats import bcsr, csr, half, wcsr as format_
from kernels.formats.half import array_of
from kernels.library.routes import in_order

MOST = 232_448  # bytes of shared memory of a block on compute capability 9.0
USUAL = Shape("bfloat16", 64, 64, "F", "C")
SHAPES = [
    Shape(d, r, c, b, o) for d in family.DTYPES for r in (64, 128) for c in bcsr.SIDES for b in "FC" for o in "FC"
]
sizes = st.integers(1, 300)


@pytest.fixture
def device(pretended):
    return pretended(H200)


# ------------------------------------------------------------------------------------ problems


@given(
    shape=st.tuples(sizes, st.integers(1, 70), sizes),
    density=st.sampled_from((0, 0.3, 1)),
    block=st.sampled_from((16, 32, 64, (16, 128))),
    how=st.fixed_dictionaries(
        {"dtype": st.sampled_from(operands.DTYPES), "layout": st.sampled_from([*operands.LAYOUTS])}
    ),
)
@settings(deadline=None, max_examples=60)
def test_a_problem_counts_what_its_operands_have(shape, density, block, how):
    m, n, k = shape
    p = system.problem(m, n, k, density, 7, block=block, **how)
    a, b, size = bcsr.validate(p.host().a), p.host().b, 4 if how["dtype"] == "tf32" else 2
    b_row, b_col = bcsr.sides(block)
    assert a.blocks == round(density * (ceil(m / b_row) * ceil(k / b_col))) and p.nnz == a.nnz == bcsr.to_csr(a).nnz
    assert p.useful_flops == 2 * p.nnz * n and p.least_bytes == a.nbytes + b.nbytes + size * m * n
    # The source's kernel: 512 columns at once, all rows of B that a block meets.
    assert p.requested_bytes == ceil(n / 512) * a.nbytes + size * n * (a.blocks * b_col + m)
    assert array_of(b).flags.f_contiguous or how["layout"] == "row"
    values = np.ascontiguousarray(formats.to_dense(b))
    assert (values != 0).all() and np.abs(values).max() <= 1
    assert size == 2 or not (values.view(np.uint32) & 0x1FFF).any()


def test_the_label_says_what_is_unusual():
    options = ({}, {"block": (64, 16), "dtype": "float16"}, {"block": 128, "layout": "linear"})
    labels = [system.problem(64, 1, 64, **of).label for of in options]
    assert labels == ["", "float16, blocks of 64 x 16", "blocks of 128, linear"]
    assert system.problem_from_csr(shuffled(), 3, label="net", layout="row").label == "net"


@pytest.mark.parametrize("dtype", operands.CSR_DTYPES)
@pytest.mark.parametrize("reorder", operands.REORDERS)
def test_a_real_pattern_keeps_its_places_in_blocks_and_in_csr(dtype, reorder):
    given_ = shuffled()
    made = [system.problem_from_csr(given_, 9, 4, dtype=dtype, reorder=reorder, format="csr")]
    if dtype != "float32":
        made.append(system.problem_from_csr(given_, 9, 4, block=16, dtype=dtype, reorder=reorder, layout="row"))
    order, ms = operands.reordered(given_, reorder)
    assert (ms > 0) == (reorder == "rcm") == (not np.array_equal(csr.to_dense(order), csr.to_dense(given_)))
    for p in made:
        a, b = p.host().a, p.host().b
        assert np.array_equal(formats.to_dense(a) != 0, csr.to_dense(order) != 0) and p.nnz == a.nnz
        assert np.array_equal(formats.to_dense(a), formats.to_dense(made[0].host().a))
        assert p.least_bytes == a.nbytes + b.nbytes * (1 + 200 / 200) or a.val.dtype != np.asarray(array_of(b)).dtype
    whole = format_.from_csr(made[0].host().a, window=64, pad=8, dtype="float32")
    vectors, size = (whole.col_idx >= 0).sum(), 2 if dtype in half.DTYPES else 4
    asked = vectors * (64 * size + 4) + vectors * 9 * size + size * 200 * 9  # of a tile of 64 x 128
    assert made[0].requested_bytes == asked
    assert np.array_equal(operands.reordered(shuffled(50, 90), reorder)[0].col_idx, shuffled(50, 90).col_idx)


@pytest.mark.parametrize(
    ("changed", "word"),
    [
        ({"block": 8}, "8"),
        ({"block": (64, 65)}, "65"),
        ({"dtype": "float32"}, "float32"),
        ({"layout": "column"}, "column"),
        ({"m": 2**31 - 1, "k": 2**31 - 1}, str(2**50)),
    ],
    ids=str,
)
def test_what_makes_no_problem_gets_one_sentence(changed, word):
    says([word], lambda: system.problem(**{"m": 64, "n": 8, "k": 64} | changed))
    for more in ({"reorder": "amd"}, {"format": "coo"}, {"dtype": "float32"}):
        says([*more.values()], lambda more=more: system.problem_from_csr(shuffled(), 8, **more))


# ------------------------------------------------------------------------------- statistics, model


def statistics_of(a: csr.Csr, *orders: str) -> Statistics:
    """What the GPU finds, of a matrix on the host."""
    facts = twins.facts(a)
    columns = {how: twins.shared(twins.similar(a)[1] if how else a) for how in orders}
    return Statistics(a.m, a.k, a.nnz, facts.longest, columns, facts.ascending)


@given(st.sampled_from([*PATTERNS]), st.integers(0, 99))
@settings(max_examples=20, deadline=None)
def test_statistics_are_counts_and_a_fingerprint_is_the_patterns(which, seed):
    a = pattern(which, seed)
    found = statistics_of(a, *planning.ORDERS)
    for how, columns in found.columns.items():
        there = csr.to_dense(twins.similar(a)[1] if how else a) != 0
        parts = ([there[i : i + height].any(0).sum() for i in range(0, a.m, height)] for height in HEIGHTS)
        assert (found.longest, columns) == (there.sum(1).max(initial=0), tuple(map(sum, parts))), how
    assume(1 < a.nnz < a.m * a.k)
    moved = replace(a, col_idx=np.roll(a.col_idx, 1))
    prints = [twins.facts(x).fingerprint for x in (a, replace(a, val=a.val + 1), moved)]
    assert prints[0] == prints[1] and (prints[0] != prints[2] or np.array_equal(a.col_idx, moved.col_idx))


def test_the_weights_are_what_the_measured_candidates_say_and_propose_well():
    measured = scripts.read()
    shipped = any_csr.weights()
    names = {any_csr.library(n, dtype) for n in (64, 256) for dtype in ("tf32", "bfloat16")}
    for pool, dtype in (("tf32", "tf32"), ("half", "bfloat16")):
        of = any_csr.POOLS[pool]
        names |= {any_csr.kernel(c, n, dtype) for c in of for n in (64, 256) if any_csr.takes_part(c, n)}
    assert set(shipped) == names
    for kernel, weights in scripts.fit(measured).items():
        assert np.allclose(weights, shipped[kernel], rtol=2e-3, atol=2e-3), kernel
    for accuracy in any_csr.POOLS:
        regret = scripts.held_out(accuracy)
        assert (regret["regret"] <= 1.1).mean() >= 0.97 and (regret["first"] <= 1.1).mean() >= 0.8


@given(seed=st.integers(0, 999), n=st.integers(1, 1200), orders=st.sampled_from([("",), ("", "similar")]))
@settings(max_examples=40, deadline=None)
def test_candidates_are_the_fastest_by_prediction_and_can_be_made(seed, n, orders):
    rng = np.random.default_rng(seed)
    nnz, longest = int(rng.integers(1, 10**7)), int(rng.choice((32, 256, rng.integers(1, 5000))))
    columns = {how: tuple(map(int, -np.sort(-rng.integers(1, nnz + 1, 7)))) for how in orders}
    of = Statistics(*map(int, rng.integers(1, 10**6, 2)), nnz, longest, columns)
    for accuracy, pool in any_csr.POOLS.items():
        dtype = "bfloat16" if accuracy == "half" else "tf32"
        found = any_csr.ranked(accuracy, of, n)
        times = [any_csr.expected_us(c, of, n, dtype) for c in found]
        there = [c for c in pool if any_csr.takes_part(c, n)]
        assert set(found) == {c for c in there if c.order in orders}
        assert (np.diff(times) >= -1e-9 * times[-1]).all()
        for source, entry in (any_csr.entry_of(c, n, dtype) for c in found[:3]):
            assert source.stem == entry.split("<")[0] and source.is_file()


def test_proposals_follow_the_matrix_and_take_few_launches():
    lonely = csr.from_scipy(random_array((5000, 5000), density=0.001, rng=0, dtype=np.float32).tocsr())
    alike = random_array((40, 4000), density=0.03, rng=0, dtype=np.float32).tocsr()[np.repeat(np.arange(40), 64)]
    first = [any_csr.ranked("tf32", statistics_of(a, ""), 512)[0] for a in (lonely, csr.from_scipy(alike))]
    assert isinstance(first[0], Union) and isinstance(first[1], Windows) and first[1].window >= 16
    says(["'fp8'"], lambda: any_csr.ranked("fp8", statistics_of(lonely), 8))
    tried = [any_csr.short(statistics_of(a, ""), n) for a in (lonely, csr.from_scipy(alike)) for n in (8, 64, 256)]
    assert all(tried[:2]) and not any(tried[2::3])
    assert any_csr.side_by_side(statistics_of(csr.from_scipy(alike)), 8) == (PerWarp(),) and any_csr.LAUNCHES <= 63


def test_groups_of_rows_in_no_order_are_proposed_to_trials_alone_and_keys_tell_accuracies_apart(device):
    p = system.problem_from_csr(shuffled(), 64, dtype="float32", format="csr")
    a, half_ = csr.to_device(shuffled()), system.problem_from_csr(shuffled(), 64, format="csr")
    given_ = replace(p.device(), a=a)
    mixed = replace(p, make_device=lambda: given_, _device=None)
    at_a_glance = any_csr.candidates(mixed, device, "fp32")
    assert at_a_glance and all(c.rows == 1 for c in at_a_glance)
    assert set(at_a_glance) < set(any_csr.candidates(mixed, device, "fp32", False))
    keys = [any_csr.key(p, "fp32"), any_csr.key(p, "tf32"), any_csr.key(half_, "half")]
    assert [key[-1] for key in keys] == ["fp32", "tf32", "bfloat16"] and keys[0][:-1] == keys[2][:-1]


# ------------------------------------------------------------------------------------------ few columns


@given(
    st.integers(1, 1200), st.sampled_from(sorted(family.DTYPES)), st.sampled_from((1, 2, 4)), st.sampled_from((0, 16))
)
def test_lanes_hold_every_column_by_loads_that_divide_them(n, dtype, rows, columns):
    x = subwarp.spread(n, dtype, rows, columns)
    assert n % x.vec == 0 and x.vec * family.DTYPES[dtype][1] <= 16 and 32 % x.lanes == 0
    assert x.columns <= max(columns or 512, x.vec) and x.columns < 2 * n + x.vec


@pytest.mark.parametrize("chunk", [64, 1024])
@pytest.mark.parametrize("most", [0, 32, 500, 5000])
def test_long_rows_are_cut_into_parts_that_make_them_up(device, most, chunk):
    lengths = np.random.default_rng(most + chunk).integers(0, 5000, 60) // np.arange(1, 61)
    edges = np.concatenate(([0], np.cumsum(lengths))).astype(np.int64)
    tasks, parts, places, rows = subwarp.lengthy(edges, most, chunk)
    assert rows == sum(x > most for x in lengths) and places == parts[:, 1].sum(initial=0)
    for row in np.flatnonzero(np.diff(edges) > most):
        mine = tasks[tasks[:, 0] == row]
        assert mine[-1, 2] == edges[row + 1] and (mine[1:, 1] == mine[:-1, 2]).all()
        assert (mine[:, 2] > mine[:, 1]).all() and (np.diff(mine, axis=1)[:, 1] <= chunk + planning.STEP).all()
        _, count, first, size = parts[mine[0, 3]] if len(mine) > 1 else (0, 1, edges[row], 0)
        assert (mine[:, 3] == (mine[0, 3] if len(mine) > 1 else -1)).all() and (count, first) == (len(mine), edges[row])
        assert (mine[:, 1] == first + size * np.arange(count)).all()


# ------------------------------------------------------------------------------------------ tasks

row_pointers = st.lists(st.integers(0, 300) | st.sampled_from((5000, 512)), min_size=1, max_size=60).map(
    lambda lengths: np.concatenate(([0], np.cumsum(lengths))).astype(np.int32)
)


@given(row_pointers, st.sampled_from((0, 32, 64, 512)), st.booleans(), st.booleans())
@settings(deadline=None)
def test_every_column_is_in_one_task_of_its_window(row_ptr, chunk, even, longest_first):
    of = {"longest_first": longest_first and even}
    made = twins.tasks(row_ptr, chunk, **of)[0] if even else planning.fixed_tasks(row_ptr, chunk)
    window, begin, end, place = made.table.T
    assert made.table.dtype == made.cut.dtype == np.int32 and made.table.flags.c_contiguous
    assert (row_ptr[window] <= begin).all() and (end <= row_ptr[window + 1]).all()
    by_place = np.lexsort((end, begin, window))
    assert np.array_equal(
        np.concatenate([np.arange(b, e) for b, e in zip(begin[by_place], end[by_place], strict=True)]),
        np.arange(row_ptr[-1]),
    )
    # A window has a task even where it has no column: somebody must store its zeros.
    tasks_of = np.bincount(window, minlength=row_ptr.size - 1)
    assert (tasks_of >= 1).all() and ((end > begin) | (tasks_of[window] == 1)).all()
    assert np.array_equal(made.cut, np.flatnonzero(tasks_of > 1)) and np.array_equal(place >= 0, tasks_of[window] > 1)
    assert np.array_equal(made.cut[place[place >= 0]], window[place >= 0])
    length = end - begin
    assert not made.cut.size or length.max() <= chunk and not ((begin - row_ptr[window]) % planning.STEP).any()
    assert chunk or not made.cut.size
    ordered = length[::-1] if of["longest_first"] else begin
    assert (np.diff(ordered) >= 0).all()
    last = end == row_ptr[window + 1]
    assert even or not chunk or (length[~last] == chunk).all()
    assert not chunk or np.array_equal(tasks_of, np.maximum(1, -(-np.diff(row_ptr) // chunk)))


def test_chunks_are_whole_steps_and_balance_blocks():
    for chunk in (-32, 8, 100):
        says([f"{chunk} columns", "multiple of 32"], lambda chunk=chunk: planning.fixed_tasks(np.int32([0, 8]), chunk))
    says(["'rcm'"], lambda: planning.ordered(shuffled(), "rcm"))
    lengths = np.append(8 * np.random.default_rng(5).integers(0, 5, 5000), (80_000, 8_000))
    load = lengths.sum() / 132
    row_ptr = np.append(0, np.cumsum(lengths)).astype(np.int32)
    table = twins.tasks(row_ptr, windows.balanced(load), longest_first=True)[0].table
    cost = table[:, 2] - table[:, 1]
    assert max(cost[i::132].sum() for i in range(132)) < 1.6 * load, "dealt out in turn, as windows.cu does"
    assert windows.balanced(0) == 256 and windows.balanced(1000) == 512
    loads = [512 * x for x in (0, 7, 27, 36, 120, 5000)]
    assert [windows.per_block(10**7, 792, x) // 8 for x in loads] == [8, 8, 3, 2, 1, 1]
    assert [windows.per_block(10**7, 792, x, 5) // 8 for x in loads[2:]] == [2, 2, 1, 1], "a power of 2"
    assert windows.per_block(3 * 2 * 792 * windows.WARPS, 792, 0) // windows.WARPS == 3, "two rounds of the GPU"
    assert windows.per_block(100, 792, 2000) == windows.WARPS


# ------------------------------------------------------------------------------------------ layouts


@pytest.mark.parametrize("order", planning.ORDERS)
@pytest.mark.parametrize("chunk", [-1, 0, 32])
@pytest.mark.parametrize("rows", windows.GROUP_HEIGHTS)
@pytest.mark.parametrize("which", ["random", "empty windows", "none", "shuffled"])
def test_groups_and_their_tasks_make_up_the_matrix(device, which, rows, chunk, order):
    """Also where columns are in any order, and repeat."""
    a = shuffled() if which == "shuffled" else pattern(which)
    on_gpu = csr.to_device(a)
    made = Union(rows, chunk=chunk, order=order).convert(on_gpu)
    val, places = made.values.reshape(-1, rows), np.arange(a.m) if made.order is None else made.order
    found = np.zeros((a.m, a.k), np.float32)
    for group, first, end, _ in made.work.table:
        for place, part in zip(places[group * rows : (group + 1) * rows], val[first:end].T, strict=False):
            np.add.at(found[place], made.col_idx[first:end], part)
    assert np.array_equal(found, csr.to_dense(a)) and (made.order is None) == (order == "")
    others = np.bincount(made.work.table[:, 3] + 1, minlength=len(made.work.cut) + 1)[1:] - 1
    assert np.array_equal(made.work.others, others)
    assert (made.nbytes == made.work.nbytes and made.col_idx is on_gpu.col_idx) == (rows == 1 and not order)


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("window", windows.HEIGHTS)
@pytest.mark.parametrize("which", ["random", "every padding", "shuffled"])
def test_slices_are_the_windows_values_in_the_swizzle(device, which, window, exact):
    """wgmma's 32-byte swizzle: bit 4 of an address is exchanged with bit 7; exact: rounded to TF32, and the rest."""
    a = shuffled() if which == "shuffled" else pattern(which)
    made = Windows(window, exact=exact).convert(csr.to_device(a), 1, 1)
    of, slices = format_.from_csr(a, window=window, pad=windows.PAD, dtype="float32"), made.values
    assert slices.shape == (of.columns // 8, 1 + exact, window, 2, 4) and np.array_equal(made.col_idx, of.col_idx)
    at = 32 * np.arange(window)[:, None] + 4 * np.arange(8)
    flat = slices.reshape(len(slices), 1 + exact, -1)[:, :, (at ^ (at >> 7 & 1) << 4) // 4]
    value = of.val.reshape(window, -1, 8).transpose(1, 0, 2)
    big = planning.tf32(value) if exact else value
    assert np.array_equal(flat[:, 0], big) and (not exact or np.array_equal(flat[:, 1], planning.tf32(value - big)))


def test_tf32_rounds_to_the_nearest_and_what_is_no_number_stays():
    x = np.array([1, 1 + 2**-11, 1 + 2**-11 - 2**-23, -1 - 2**-11, -0.0, 3e-39, np.inf, -np.inf], np.float32)
    right = np.array([1, 1 + 2**-10, 1, -1 - 2**-10, -0.0, 3e-39, np.inf, -np.inf], np.float32)
    assert np.allclose(planning.tf32(x), right, rtol=1e-12, atol=1e-41)
    odd = planning.tf32(np.array([0x7FFFFFFF, 0xFFFFFFFF, 0x7F800001], np.uint32).view(np.float32))
    assert np.isnan(odd).all() and not (odd.view(np.uint32) & 0x1FFF).any()


# ---------------------------------------------------------------------------------- configurations


def problem(m=18944, n=1024, k=3584, shape: Shape = USUAL, blocks: int = 1658):
    """A problem whose operands are asked for nothing but what a shape and a key say."""
    b, c = (np.zeros((2, 2), np.float32, order=order) for order in (shape.b_order, shape.c_order))
    if shape.dtype != "tf32":
        b, c = (half.Half(shape.dtype, x.astype(np.uint16, order="K")) for x in (b, c))
    ops = Operands(SimpleNamespace(block=(shape.b_row, shape.b_col), blocks=blocks), b, c)
    return replace(system.problem(m, n, k, 0), make_device=lambda: ops, _device=None)


def test_names_are_bindable_once_and_say_what_they_change():
    trials = family.TRIALS | windows.TRIALS
    assert len(family.TRIALS) + len(windows.TRIALS) == len(trials) and not trials.keys() & system.VARIANTS.keys()
    assert all(said for _, said in trials.values()) and len({config for config, _ in trials.values()}) == len(trials)
    assert [windows.CONFIGS[x].chunk for x in ("wcsr", "wcsr_whole", "wcsr_c256")] == [512, 0, 256]
    assert [windows.fitted(Union(), n).vec for n in (4, 6, 7)] == [4, 2, 1]
    kinds = (("tf32", False), ("tf32", True), ("bfloat16", False))
    for window, (dtype, exact), groups in itertools.product(windows.HEIGHTS, kinds, (1, 2)):
        config = Windows(window, groups, exact)
        stages = windows.stages(config, dtype)
        need = stages * windows.stage_bytes(config, dtype) + windows.TAKEN
        assert need * (3 - groups) <= 228 * 1024 and 3 <= stages <= windows.MOST_STAGES


@given(st.sampled_from(SHAPES), st.sampled_from(family.WIDTHS), st.sampled_from((101_376, 166_912, MOST)))
@settings(deadline=None)
def test_filled_rings_fit_and_leave_no_room_for_another_unit(shape, width, most):
    config = family.filled(Unit(width, tall=shape.b_row == 128), shape, most)
    assume(shape.b_order == "F" or (width % 64 == 0 and shape.size == 2))
    assume(config.private >= 3)
    family.check(config, shape, most)
    more = replace(config, private=config.private + 1)
    full = family.shared_bytes(more, shape) + family.STATIC > most
    assert full or config.private == 2 * config.shared, "a unit of the shared ring for two of the private"
    assert config.private <= 2 * config.shared and shape.pieces * shape.b_col * shape.size == 128 * shape.steps
    assert autotune.choices.parse_knobs(autotune.knobs(config), Unit) == config


def test_shared_memory_by_hand():
    """64 x 512 of C in bfloat16: A has 8 KiB a step, B 32 KiB for a warpgroup; a box of C is 64 x 64 of 2 bytes."""
    tall, tf32 = Shape("bfloat16", 128, 128, "F", "F"), replace(USUAL, dtype="tf32")
    for config, shape, kib in (
        (Unit(256, shared=3, private=4), USUAL, 3 * 8 + 4 * 32 + 5 * 8),
        (Unit(256, tall=True, shared=3, private=8, buffers=1), tall, 3 * 32 + 8 * 8 + 3 * 8),
        (Unit(96, shared=1, private=2), USUAL, 8 + 24 + 5 * 4),  # of 96 columns a box has 32, of 8 it has 8
        (Unit(8, shared=1, private=2), USUAL, 8 + 2 + 5),
        (Unit(128, shared=2, private=3), tf32, 16 + 48 + 5 * 8),
        (Unit(128, shared=2, private=3), replace(tf32, c_order="F"), 16 + 48 + 5 * 16),
    ):
        assert family.shared_bytes(config, shape) == kib * 1024


@pytest.mark.parametrize(
    ("config", "shape", "words"),
    [
        (Unit(40), USUAL, ["40 columns", "256, 192"]),
        (Unit(96), replace(USUAL, b_order="C"), ["row-major B of bfloat16", "96 columns"]),
        (Unit(64), Shape("tf32", 64, 64, "C", "C"), ["row-major B of tf32", "column-major"]),
        (Unit(64, tall=True), USUAL, ["blocks of 64 rows", "tall=True"]),
        (Unit(64, private=2), USUAL, ["3 and 2 units", "need 2, 3 and 1"]),
        (Unit(64, shared=1), USUAL, ["1 and 5 units"]),
        (Unit(64, buffers=0), USUAL, ["0 boxes"]),
        (Unit(256, shared=3, private=6), USUAL, ["512 columns", "264192 bytes", str(MOST)]),
    ],
)
def test_what_a_configuration_does_not_take_is_one_sentence(config, shape, words):
    says(words, lambda: family.check(config, shape, MOST))


@given(n=st.integers(1, 70_000), groups=st.sampled_from([1, 2]))
def test_the_sources_width_divides_n_or_pads_it_least(n, groups):
    width = published.wgmma_n(n, groups)
    assert width == max(published.WIDTHS, key=lambda w: (-(-n % (groups * w)), w))


@given(
    st.sampled_from(SHAPES),
    st.sampled_from((1, 64, 333, 1024, 65536)),
    st.integers(0, 10**5),
    st.sampled_from((H200, H100_PCIE)),
)
@settings(deadline=None)
def test_candidates_take_the_problem_and_are_those_with_the_best_prediction(shape, n, count, device):
    p, sms = problem(n=n, shape=shape, blocks=count), device.properties.multiprocessor_count
    found = family.candidates(p, device)
    assert bool(found) == (shape.dtype != "tf32" or shape.b_order == "F")
    assert len(set(found)) == len(found) <= family.MOST + family.AS_THEY_LIE
    assert all(family.fits(c, p, device) and not family.fits(c, p, A100) and not family.fits(c, p, B200) for c in found)
    assert {replace(c, longest_first=True) for c in found if not c.longest_first} <= set(found)
    time = {c.width: family.predict(c, p.m, n, count, shape, sms) for c in found}
    assert list(time.values()) == sorted(time.values()) and min(time.values(), default=1) > 0
    for c in found:
        more = family.predict(c, p.m, 2 * n, count, shape, sms), family.predict(c, p.m, n, 2 * count, shape, sms)
        assert min(more) >= time[c.width] >= family.predict(c, p.m, n, count, shape, 2 * sms)
    for c, k in ((c, k) for c in found for k in (64, 10**7)):
        grid, (rows, panels, group, steps) = family.dealt(c, shape, p.m, n, k, device)
        assert grid == min(sms, rows * panels) and 1 <= group <= panels and steps == shape.steps
    assert {c.group_kib for c in found} <= {*family.GROUPS_KIB} and (n > 1 or {c.group_kib for c in found} <= {4096})


@given(st.sampled_from(SHAPES), st.sampled_from((1, 77, 1024, 2**26)), st.integers(0, 10**5))
@settings(deadline=None)
def test_opt5_takes_part_where_it_takes_the_problem(shape, n, count):
    p = problem(n=n, shape=shape, blocks=count)
    found, units = launch.candidates(p, H200), family.candidates(p, H200)
    one = {*found} - {*units}
    takes = (shape.b_row, shape.b_col, shape.b_order) == (64, 64, "F") and n < 2**25
    assert one == ({OneTile(published.wgmma_n(n))} if takes else set()) and [c for c in found if c in units] == units
    assert all(launch.fits(c, p, H200) and not launch.fits(c, p, B200) for c in found)
    time = [family.predict(c, p.m, n, count, shape, 132) for c in found]
    assert not takes or min(time[0], time[-1]) == min(time), "what is expected to be the faster of both comes first"


@given(
    st.sampled_from(bcsr.SIDES),
    st.sampled_from((racing.A100, racing.L4, H200)),
    st.integers(0, 9999),
    st.sampled_from((8, 16384)),
)
@settings(deadline=None)
def test_two_rings_of_blocks_mma_fit_an_sm(b_row, device, count, n):
    """Wide tiles for many columns, narrow ones for few."""
    most, shape = device.properties.max_shared_memory_per_block_optin, Shape("bfloat16", b_row, 64, "F", "C")
    tile = family.chosen(shape, count, 296, n, device)
    assert tile.columns in family.tile_widths(b_row) and (n > 8 or tile.columns == 64)
    assert n == 8 or count < 296 or tile.columns == max(family.tile_widths(b_row))
    for columns in family.tile_widths(b_row):
        filled = family.filled_tile(columns, b_row, most)
        assert family.TOGETHER * (family.tile_bytes(filled, b_row) + family.DRIVER) <= most + family.DRIVER
        assert (3 if b_row == columns == 128 else 2) <= filled.stages <= family.MOST_STAGES


KEPT = racing.Kept(family)


def test_a_choice_is_for_its_problem_and_its_gpu_and_shipped_ones_fit(monkeypatch, tmp_path):
    for path in family.CHOICES.shipped.glob("*.csv"):
        most = racing.SHIPPED[path.stem].properties.max_shared_memory_per_block_optin
        for (*_, b_row, b_col, dtype, b, c), choice in KEPT.read(path).items():
            if isinstance(choice.config, Unit):
                family.check(choice.config, Shape(dtype, max(64, b_row), b_col, b, c), most)
            else:
                assert (b_row, b_col, b) == (64, 64, "F") and choice.config.width in published.WIDTHS
    own, shipped = KEPT.in_folders(monkeypatch, tmp_path)
    config = family.filled(Unit(192), USUAL, MOST)
    KEPT.write(shipped / "nvidia-h200.csv", problem(), config)
    KEPT.write(own / "nvidia-h200.csv", problem(), replace(config, private=99))
    assert KEPT.look_up(problem(), H200) == config, "the shipped one, which fits"
    others = [problem(n=1025), problem(blocks=1659)]
    changes = ({"b_order": "C"}, {"c_order": "F"}, {"dtype": "float16"}, {"b_col": 32})
    others += [problem(shape=replace(USUAL, **change)) for change in changes]
    assert not any(KEPT.look_up(p, H200) for p in others) and KEPT.look_up(problem(), H100_PCIE) is None


def test_prepare_tunes_once_with_the_first_reference_that_takes_the_problem(device, monkeypatch, tmp_path):
    """The narrower a configuration, the faster, here."""
    bound, refusing, path = [], [], tmp_path / "choices.csv"

    def prepare(name, p, device, spans=None, config=None):
        bound.append((name, config))
        if name in refusing:
            raise ValueError(f"{name} does not take it")
        return SimpleNamespace(name=name, prepare_ms=1.0)

    track = racing.track(monkeypatch, lambda config, rounds: 100.0 + config.width)
    monkeypatch.setattr(Unit, "prepare", lambda config, name, p, device: prepare(name, p, device, config=config))
    monkeypatch.setattr(published, "prepare", prepare)
    found = launch.candidates(problem(), H200)
    first = launch.prepare_auto("auto", problem(), H200, file=path)
    best, judge = ("auto", min(found, key=lambda config: config.width)), ("opt5", None)
    assert bound == [judge, judge, *(("auto", c) for c in found), judge, best, best]
    assert {job[:2] for job in track.compiled} == {
        *((family.SOURCE, family.entry(config, USUAL)) for config in found if isinstance(config, Unit)),
        (system.VARIANTS["opt5"].source, published.entry("opt5", "bfloat16", "C", 256)),
    }
    second = launch.prepare_auto("auto", problem(), H200, file=path)
    assert bound[-1:] == [best] and first.prepare_ms > second.prepare_ms, "trials count as preparation"
    refusing += ["opt5", "opt0"]
    bound.clear()
    launch.tune(problem(), H200)
    assert [name for name, _ in bound][:5] == ["opt5", "opt0", "unit_ring", "unit_ring", "auto"]


# -------------------------------------------------------------------------------------------- bind


def step_of(bound):
    """(kernel, template arguments, config, arguments) of the launch that multiplies: others copy, clear or round."""
    others = (*padding.ENTRIES.values(), "clear_cut", "round_cut")
    (step,) = [s for s in bound.named if not any(entry in s[0] for entry in others)]
    kernel, *of = re.findall(r"[^<>, ]+", step[0].split(": ")[1])
    return kernel, of, *step[1:]


def tile_of(kernel: str, of: list[str]) -> tuple[int, int]:
    """(columns that a warpgroup multiplies, columns of C in a tile), by a kernel's template arguments."""
    width = 128 if kernel == "opt0" else int(of[{"blocks_mma": 5, "unit_ring": 4}.get(kernel, 2)])
    side_by_side = kernel in published.PAIRS or kernel == "unit_ring" and of[3] == "false"
    return width, width * (1 + side_by_side)


@pytest.mark.parametrize("layout", operands.LAYOUTS)
@pytest.mark.parametrize("dtype", family.DTYPES)
@pytest.mark.parametrize("name", ["unit_ring", *published.KERNELS, "opt5_n136", "blocks_mma"])
def test_kernels_for_blocks_are_launched_for_every_tile(device, name, dtype, layout):
    """And maps have boxes of a step, of lines that TMA takes, swizzled as these lie."""
    for m, n, k, block in ((300, 1536, 200, 64), (301, 77, 133, (128, 32)), (64, 1, 64, 64), (1, 8, 1, 32)):
        p = system.problem(m, n, k, 0.3, block=block, dtype=dtype, layout=layout)
        shape, of_block = family.shape_of(p), 64 if name == "unit_ring" else 1
        assert 1 in (m, n) or shape.b_order + shape.c_order == operands.LAYOUTS[layout]
        try:
            bound = system.prepare(name, p, device)
        except ValueError as error:
            column_major = shape.b_order == "C" and name not in ("opt0", "blocks_mma")
            assert column_major or "64 x 64" in str(error) or (name, dtype) == ("blocks_mma", "tf32"), error
            continue
        kernel, of, how, arguments = step_of(bound)
        width, columns = tile_of(kernel, of)
        tiles, staying = ceil(m / max(of_block, p.device().a.block[0])), kernel in ("unit_ring", *published.PERSISTENT)
        tiles *= ceil(n / columns) if kernel != "opt7" else 2 * ceil(n / columns / 2)  # a cluster of two
        assert np.prod(how.grid) * (2 if kernel == "opt7" else 1) == (min(132, tiles) if staying else tiles)
        assert how.block == (384 if kernel in (*published.PAIRS, "unit_ring") else 128)
        assert getattr(how, "shmem_size", 0) <= MOST - family.STATIC and bound.result() is p.device().c
        maps = [x for x in arguments if hasattr(x, "swizzle")]
        assert len(maps) == {"opt0": 0, "opt1": 0, "blocks_mma": 0, "opt7": 2}.get(kernel, 3)
        for x in maps:
            line = x.box[1] * int(x.typestr[-1])
            assert x.swizzle == (0 if line <= 16 else min(128, line)) and not x.strides[0] % 16 | x.address % 16
        step = 128 // shape.size // shape.pieces
        assert not maps or maps[0].box == (64, step) and maps[1].box in ((width, step), (step, 64))
        assert not maps or maps[0].shape[0] % 64 == 0, "lower blocks are stacked"
        assert [x.size for x in bound.scratch if x.dtype == np.uint32] == [2] * (name == "unit_ring")
        counters = [x.size for x in bound.keep[3] if np.ndim(x) and getattr(x, "dtype", 0) == np.uint32]
        expected = {"unit_ring": [2], **dict.fromkeys(("opt6_atomic", "opt6_stealing"), [np.prod(how.grid) + 1])}
        assert counters == expected.get(name, [])


@pytest.mark.parametrize("dtype", ["tf32", "bfloat16"])
@pytest.mark.parametrize("name", [*windows.KERNELS, "windows_16_similar", "opt0", "unit_ring"])
def test_kernels_for_csr_multiply_all_tasks_in_all_panels(device, name, dtype):
    if not name.startswith("wcsr") and (dtype == "bfloat16") != (name in ("union_half", "windows_half", "unit_ring")):
        return
    for which, n in (("random", 77), ("a heavy row", 260), ("none", 1), ("empty windows", 128)):
        p = system.problem_from_csr(pattern(which), n, dtype=dtype, format="csr", reorder="")
        bound = system.prepare(name, p, device)
        main, _, how, arguments = step_of(bound)
        assert bound.prepare_bytes > 0 and bound.result() is p.device().c
        of_cut = [given for kernel, _, given in bound.named if "_cut<" in kernel]
        turns = [kernel.split(": ")[1].split("<")[0] for kernel, *_ in bound.named if "pitch" not in kernel]
        assert turns == sorted(turns, key=["clear_cut", main, "round_cut"].index)
        first = arguments[7] if name.startswith("windows") else arguments[6] if dtype == "bfloat16" else 0
        assert all(given[1] == first for given in of_cut), "the order of rows, or sums"
        if name.startswith("wcsr"):
            made, work = windows.CONFIGS[name].convert(p.device().a, dtype)
            sums = len(work.cut) * 64 * (n + -n % 8) * 4 * (dtype == "bfloat16")  # of whole lines in float32
            assert bound.prepare_bytes == made.nbytes + work.nbytes + sums
            assert how.grid == (len(work.table), ceil(n / 128))
            assert len(bound.named) == 1 + bool(len(work.cut)) + 2 * (n * (4 if dtype == "tf32" else 2) % 16 > 0)
        elif name.startswith("windows"):
            width = windows.group_columns(dtype)
            groups = windows.CONFIGS[name].groups or 1 + (n > width)
            count, panels = map(int, arguments[3:5])
            assert how.grid == min(132 * (3 - groups), count * panels) and panels == ceil(n / (width * groups))
            assert count >= ceil(p.m / 16) and how.block == 128 * (groups + 1)
        elif name.startswith("union"):
            panels = ceil(n / windows.columns_of(windows.fitted(Union(), n, dtype), dtype))
            count, each = map(int, arguments[1:3])
            assert how.grid == ceil(count / each) * panels and each % windows.WARPS == 0 and count >= ceil(p.m / 4)


@pytest.mark.parametrize(("longest", "different"), [(10, False), (64, False), (65, True), (3000, True)])
def test_what_adds_up_in_order_is_another_kernel_where_three_parts_meet(device, longest, different):
    """The sum of two is the same either way round. Tasks are the same."""
    p = system.problem_from_csr(of_lengths([3] * 40 + [longest]), 64, dtype="float32", format="csr", reorder="")
    for config in (Union(1, chunk=32), Union(2, chunk=32), Windows(8, exact=True, chunk=32)):
        usual, ordered = (c.prepare("in order", p, device) for c in (config, in_order(config)))
        assert (step_of(usual)[:2] != step_of(ordered)[:2]) == different
        assert len(ordered.scratch) - len(usual.scratch) == 2 * different
        assert not different or len(ordered.named) == 1, "nothing is cleared"
        assert not different or isinstance(config, Windows) or not ordered.scratch[0].size, "nobody waits for a part"
        made = [c.convert(p.device().a, *[1, 1] * isinstance(c, Windows)) for c in (config, in_order(config))]
        assert [x.parts is not None for x in made] == [False, different]
        assert np.array_equal(*(x.work.table for x in made))


def test_warps_have_many_tasks_where_rows_of_b_are_far(pretended):
    device = pretended(racing.gpu_of("small", (9, 0), 1, MOST))
    p = system.problem_from_csr(of_lengths([30] * 2000 + [3000]), 128, dtype="float32", format="csr", reorder="")
    for l2, of_a_warp in ((50 * 2**20, 2), (2**17, 8)):
        device.properties.l2_cache_size = l2
        *_, arguments = step_of(Union(1).prepare("single rows", p, device))
        assert arguments[2] == of_a_warp * windows.WARPS


def test_what_kernels_do_not_take_says_who_does(device, monkeypatch):
    row, low = (system.problem(130, 64, 130, 0.5, **x) for x in ({"layout": "row"}, {"block": 32}))
    tall = replace(system.problem(64, 8, 64, 0), n=2**26, make_device=system.problem(64, 8, 64, 0).device)
    float32, tf32, half_ = (
        system.problem_from_csr(shuffled(), 64, dtype=d, format="csr", layout=x)
        for d, x in (("float32", "row"), ("tf32", "source"), ("bfloat16", "row"))
    )
    cases = [(name, low, ["64 x 64", "use unit_ring"]) for name in published.KERNELS]
    cases += [(name, row, ["column-major", "use unit_ring"]) for name in published.KERNELS if name != "opt0"]
    of_grid = published.KERNELS.keys() - published.PERSISTENT
    cases += [(name, tall, [name, "n=67108864", "at most 65535"]) for name in of_grid]
    for name in ("wcsr", "windows"):
        cases += [(name, float32, ["lose digits"]), (name, tf32, ["column-major"]), (name, low, ["A is Bcsr"])]
    cases += [("blocks_mma", system.problem(64, 64, 64, 1.0, dtype="tf32"), ["B is float32"])]
    cases += [("windows", half_, ["B is bfloat16"]), ("union_rows", half_, ["union_half"])]
    finer = replace(half_, make_device=lambda: replace(half_.device(), a=float32.device().a), _device=None)
    cases += [("windows_half", float32, ["B is float32"]), ("windows_half", finer, ["lose digits", "union_half"])]
    for name, p, words in cases:
        says([name, *words], lambda name=name, p=p: system.prepare(name, p, device))
    monkeypatch.setattr(launch, "prepare_auto", lambda name, p, device: p)
    assert all(system.prepare(name, float32, device) is float32 for name in any_csr.KERNELS), "as it is, not in blocks"
    says(["groups of 3 rows"], lambda: Union(3).prepare("union_rows", float32, device))
    assert system.prepare("opt0", row, device).steps and jit.arch_of(H200) in family.TARGETS


@pytest.mark.parametrize("layout", operands.LAYOUTS)
def test_lines_are_what_tma_takes(device, layout):
    """n = 1 of a row-major matrix lies as a column-major one does, but its lines are said to be 2 bytes apart."""
    for m, n, k in ((64, 1, 64), (1, 64, 1), (1, 1, 1), (8, 3, 8), (40, 33, 7)):
        ops = system.problem(m, n, k, 1, layout=layout).device()
        dense = family.lines(ops, device)
        for array, given_ in ((dense.b, ops.b), (dense.c, ops.c)):
            assert array.data.ptr % 16 == array.strides[0] % 16 == array.shape[1] % 8 == 0
            assert array.strides[0] >= 2 * array.shape[1] and array.size >= array_of(given_).size
        assert len(dense.copies) == len(dense.before) + len(dense.after)
        assert not dense.after or (dense.c == 0xFFFF).all(), "NaN, so that what is not written shows"


# ------------------------------------------------------------------------------------ slots


@given(st.lists(st.integers(0, 3000), max_size=30), st.sampled_from([32, 64, 256]), st.booleans())
def test_every_part_has_the_slot_that_the_kernel_finds(lengths, chunk, longest_first):
    """Parts of a window side by side, by their columns, whatever order tasks come in; and no slot but theirs."""
    row_ptr = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    work, _ = twins.tasks(row_ptr, chunk, longest_first=longest_first)
    parts = planning.parts(row_ptr, work.cut, chunk)
    cut = work.table[work.table[:, 3] >= 0]
    counted = np.bincount(cut[:, 3], minlength=len(work.cut)) if len(cut) else []
    if max([0, *counted]) < 3:
        assert parts is None, "the sum of two is the same either way round"
        return
    slot, _, first, columns = parts[cut[:, 3]].T
    mine = slot + (cut[:, 1] - first) // columns  # in_order.cuh
    assert sorted(mine) == list(range(parts[:, 1].sum()))
    assert (cut[np.argsort(mine), 1] == np.sort(cut[:, 1])).all()
    assert list(parts[:, 1]) == list(counted)


# ------------------------------------------------------------------------------------ configurations


@pytest.mark.parametrize("kept", [*systems().values(), any_csr.CHOICES], ids=lambda kept: kept.room)
def test_every_family_has_configurations_that_repeat(kept):
    for make in kept.families.values():
        config = in_order(make())
        assert type(config) is make and in_order(config) == config
        assert autotune.choices.parse_knobs(autotune.knobs(config), make) == config
    for config in (Union(), Windows()):
        assert in_order(config) != config and "in_order" not in autotune.knobs(config)
    assert in_order(Union(chunk=0)) == Union(chunk=0), "whole rows"


#: Files that add float32 to memory in the order in which blocks come; what else counts in whole numbers.
ADDS = {
    "async_sparse/cut_windows.cuh",
    "async_sparse/union.cuh",
    "async_sparse/wcsr.cu",
    "casper_sparse/split_rows.cu",
    "nm_cuda_core/double_buffer.cu",
    "nm_cuda_core/verbatim_double_buffer.cu",
    "nm_spmm/spmm_tile.cuh",
}
COUNTS = {
    "async_sparse/opt6_atomic.cu",
    "async_sparse/opt6_stealing.cu",
    "async_sparse/planning.cu",
    "async_sparse/units.cuh",
    "formats/compress.cu",
    "formats/intake.cu",
    "autotune/compare.cu",
}


def test_it_is_known_which_kernels_add_by_atomics():
    """A new one must be told apart in `in_order`, or be known to count."""
    found = {
        str(path.relative_to(jit.ROOT))
        for path in jit.ROOT.rglob("*.cu*")
        if re.search(r"atomicAdd\(|red\.[a-z.]+\.v?4?\.?f32", path.read_text())
    }
    assert found == ADDS | COUNTS
