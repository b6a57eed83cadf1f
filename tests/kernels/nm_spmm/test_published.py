"""NM-SpMM's own kernels: what bind prepares, what the compiler makes of it, and on a GPU the products."""

from __future__ import annotations

import math
import os
import secrets
from dataclasses import replace
from types import SimpleNamespace

import compiled
import numpy as np
import pytest
from compiled import count

from kernels import jit, pitch
from kernels.contract import Operands, Problem
from kernels.formats import nm
from kernels.nm_spmm import operands, packing, published

#: Fresh for every run; part of every failure's message. Set SPARSITY_TEST_SEED to run one again.
SEED = int(os.environ.get("SPARSITY_TEST_SEED", secrets.randbits(31)))
VARIANTS = tuple(published.KERNELS)
#: Variants that are one kernel; `v3_searched` is the fastest of several, and compiles and times them all.
SINGLE = tuple(variant for variant in VARIANTS if variant != "v3_searched")
gpu = pytest.mark.gpu
H200 = SimpleNamespace(
    device_id=0,
    name="H200",
    compute_capability=(9, 0),
    properties=SimpleNamespace(
        multiprocessor_count=132,
        clock_rate=1_980_000,
        max_shared_memory_per_multiprocessor=233_472,
        max_shared_memory_per_block_optin=232_448,
        l2_cache_size=60 * 2**20,
    ),
)
ENTRIES = {(kernel.source, entry) for kernel in published.KERNELS.values() for entry in kernel.entries}
#: What ragged m, vectors that are no multiple of 32, other patterns and long steps ask for.
OTHERS = {
    (published.HERE / f"{entry.split('<')[0]}.cu", entry)
    for entry in (
        "v1<64, 128, 8, 8, 32, 16, 4, false>",
        "v1<32, 32, 4, 4, 24, 3, 4, true>",
        "v2<64, 128, 8, 8, 64, 8, 4, false>",
        "v2<32, 64, 8, 4, 64, 5, 32, false>",
        "v3<64, 128, 8, 8, 32, 16, 4, false, false, false>",
        "v3<64, 128, 8, 8, 64, 16, 4, true, true, false>",
        "v3<32, 64, 8, 4, 32, 31, 32, false, true, false>",
        "v3<32, 32, 4, 4, 63, 7, 4, true, false, true>",
        "v3<32, 32, 4, 4, 128, 128, 32, false, false, true>",
    )
} | {(pitch.SOURCE, entry) for entry in pitch.ENTRIES.values()}


# ------------------------------------------------------------------------------------ compilation


#: For what no chapter compiles, the target of the records stands for all.
ONE_TARGET = ("sm_90a",)


@pytest.fixture(scope="module")
def reports():
    declared = compiled.spread(sorted(ENTRIES))
    return compiled.reports(declared | compiled.cubins(sorted(OTHERS), ONE_TARGET))


def test_nothing_spills_on_any_target(reports):
    assert len(reports) == 2 * len(ENTRIES) + len(OTHERS) * len(ONE_TARGET)
    assert {target for _, target in reports} == set(jit.TARGETS)
    for (entry, target), (resources, _) in reports.items():
        assert not resources.spills, f"{entry} on {target}: {resources}"


def test_every_multiply_add_and_every_wide_access_is_there(reports):
    """A step is unrolled: TM x TN FFMA for each compressed row, and C leaves 16 bytes at a time."""
    for (entry, target), (_, mix) in reports.items():
        if entry.startswith("pitch"):
            continue
        name, sizes = entry[:-1].split("<")
        tm, tn, _, rows, _ = map(int, sizes.split(", ")[2:7])
        flags = sizes.split(", ")[7:]
        # The last step of v3 has a copy of its own, and the compiler may peel off a first one.
        least = (2 if name == "v3" else 1) * tm * tn * rows
        found = count(mix, "FFMA")
        assert found % (tm * tn * rows) == 0 and least <= found <= 2 * least, f"{entry} on {target}"
        add = name == "v3" and flags[1] == "true"
        stored = count(mix, "STG", 128)
        assert stored == (tm * tn // 4 if flags[-1] == "true" and not add else 0), f"{entry} {target}"
        adds = sum(count(mix, opcode) for opcode in ("RED", "REDG", "ATOMG"))
        assert bool(adds) == add, f"{entry} on {target}"
        assert bool(count(mix, "LDGSTS")) == (name == "v3"), f"{entry} on {target}"


# ------------------------------------------------------------------------------- configurations


def test_the_steps_are_the_authors():
    """k_s = 32, packed 64: two windows (kernel_*.cu of the authors' code)."""
    for keep in (16, 12):
        assert published.windows(keep, 32, packed=False) == 1
    for keep in (8, 4):
        assert published.windows(keep, 32, packed=True) == 2


@pytest.mark.parametrize("packed", [False, True])
def test_steps_of_any_pattern_are_about_as_deep(packed):
    for group in range(1, 129):
        for keep in range(1, group + 1):
            found = published.windows(keep, group, packed)
            assert found >= 1 and (found == 1 or found * group <= published.DEPTH[packed])
            assert group > 16 or found * group * 2 > published.DEPTH[packed] // 2
    for group in (4, 8):
        assert all(published.windows(n, group, packed) * n % 4 == 0 for n in range(1, group + 1))


def test_packing_begins_above_70_percent():
    for keep, packed in ((32, False), (16, False), (12, False), (8, True), (4, True)):
        assert published.high_sparsity(keep, 32) == packed
        for variant in VARIANTS:
            tile = published.configured(variant, "large", keep, 32)
            forced = {"v1": False, "v3_unpacked": False, "v3_packed": True}
            assert tile.packed == forced.get(variant, packed), f"{variant} at {keep}:32"
            assert published.source_of(variant, tile.packed) == (
                "v1" if variant == "v1" or (variant == "v2" and not packed) else "v2" if variant == "v2" else "v3"
            )


def test_shares_of_split_k():
    assert published.shares(1024, 64, 132) == 1
    assert published.shares(263, 64, 132) == 2
    assert published.shares(100, 64, 132) == 3
    assert published.shares(1, 64, 132) == 4
    assert published.shares(1, 3, 132) == 3


# --------------------------------------------------------------------------------- bind, on a CPU


class Array(np.ndarray):
    """A NumPy array with the one attribute of CuPy's that bind needs."""

    @property
    def data(self):
        return SimpleNamespace(ptr=self.ctypes.data)


def as_array(x: np.ndarray) -> Array:
    return x if isinstance(x, Array) else x.view(Array)


@pytest.fixture
def loaded(monkeypatch) -> list:
    """bind without a GPU; (cubin, bytes of dynamic shared memory) of what it would load."""
    found = []

    def load(cubin, dynamic_shared_bytes=0):
        found.append((cubin, dynamic_shared_bytes))
        return cubin.entry

    monkeypatch.setattr(jit, "load", load)
    monkeypatch.setattr(published, "timed", lambda work: (packing._map(as_array, work()), 1.25))
    monkeypatch.setattr(
        pitch,
        "aligned",
        lambda a, device: (a, -(-a.shape[0] // 4) * 4, ["copy"] * bool(a.shape[0] % 4)),
    )
    return found


def aligned_zeros(shape) -> np.ndarray:
    """Column-major, on a multiple of 16 bytes."""
    size = math.prod(shape)
    raw = np.zeros(size + 4, np.float32)
    skip = -raw.ctypes.data % 16 // 4
    return raw[skip : skip + size].reshape(shape, order="F").view(Array)


def on_fake_gpu(p: Problem) -> Problem:
    host = p.host()
    b = replace(host.b, val=host.b.val.view(Array), index=host.b.index.view(Array))
    ops = Operands(host.a.view(Array), b, aligned_zeros((p.m, p.n)))
    return replace(p, make_device=lambda: ops)


@pytest.mark.parametrize("keep", [32, 16, 12, 8, 4])
@pytest.mark.parametrize("variant", SINGLE)
def test_bind_asks_for_a_listed_entry(loaded, variant, keep):
    p = on_fake_gpu(operands.problem(128, 256, 512, keep / 32))
    bound = published.bind(variant, p, H200)
    ((kernel, config, arguments),) = bound.steps
    ((cubin, shared),) = loaded
    assert (cubin.source, kernel) in ENTRIES and kernel == cubin.entry
    sizes = kernel[:-1].split("<")[1].split(", ")
    bm, bn, tm, tn, depth, rows, slot = map(int, sizes[:7])
    assert config.grid[:2] == (math.ceil(256 / bn), math.ceil(128 / bm))
    assert config.block == (bm * bn // (tm * tn), 1, 1) and config.shmem_size == shared
    assert bound.accumulates == (variant == "v3_split_k") == (config.grid[2] > 1)
    _, packed, _ = bound.keep
    assert (packed.depth, packed.rows, packed.slot, packed.columns) == (depth, rows, slot, bn)
    steps = math.ceil(512 / depth)
    assert list(arguments[:5]) == [128, 256, 512, 128, steps]
    capacity = depth if cubin.source.stem == "v1" else arguments[5]
    assert capacity == (packed.count.max() if packed.packed else depth)
    floats = capacity * bm + rows * bn + bn // slot * rows + depth * packed.packed
    assert shared == 4 * floats * (2 if cubin.source.stem == "v3" else 1)
    pointers = arguments[5 if cubin.source.stem == "v1" else 6 :]
    assert pointers[0] == p.device().a.data.ptr and pointers[-1] == bound.result().data.ptr
    assert pointers[1:3] == (packed.val.data.ptr, packed.index.data.ptr)
    if len(pointers) == 5:
        assert pointers[3] == (packed.col_info.data.ptr if packed.packed else 0)


def test_the_search_is_among_the_authors_tiles_and_shares():
    """Four tiles, and 1, 2, 4 and 8 shares of k where blocks are few and there are as many steps."""
    assert {name: (t.rows, t.columns, t.thread) for name, t in published.TILES.items()} == {
        "small": (32, 32, (4, 4)),
        "medium": (32, 64, (8, 4)),
        "square": (64, 64, (8, 8)),
        "large": (64, 128, (8, 8)),
    }
    few = published.candidates(on_fake_gpu(operands.problem(64, 128, 512, 0.5)), 132)
    assert len(set(few)) == 16 and {c.split for c in few} == {1, 2, 4, 8}
    for k, splits in ((100, {1, 2, 4}), (32, {1}), (64, {1, 2})):
        found = published.candidates(on_fake_gpu(operands.problem(64, 128, k, 0.5)), 132)
        assert {c.split for c in found} == splits, "no share without a step"
    packed = published.candidates(on_fake_gpu(operands.problem(64, 128, 128, 0.25)), 132)
    assert {c.split for c in packed} == {1, 2}, "steps of 64 rows where it packs"
    many = published.candidates(on_fake_gpu(operands.problem(512, 512, 512, 0.5)), 6)
    assert [c.tile for c in many if c.split == 1] == list(published.TILES)
    assert {c.tile for c in many if c.split > 1} == {"large"}, "32 blocks for 6 SMs, the others 64 and more"


@pytest.mark.parametrize("keep", [16, 4])
def test_the_search_keeps_the_fastest(loaded, monkeypatch, keep):
    p = on_fake_gpu(operands.problem(128, 256, 512, keep / 32))
    asked = []

    def tune(problem, configs, bind, references, device, rounds, jobs):
        asked.extend((list(configs), list(jobs)))
        chosen = published.Timed("square", 4)
        assert chosen in configs and references[0](problem).name == "v1"
        return SimpleNamespace(bound=bind(problem, chosen), spent_ms=10.0)

    monkeypatch.setattr(published.tuning, "tune", tune)
    bound = published.bind("v3_searched", p, H200)
    configs, jobs = asked
    assert configs == published.candidates(p, 132) and len(jobs) == 8
    assert set(jobs) <= ENTRIES, "what may be asked for is listed"
    ((kernel, config, _),) = bound.steps
    assert (published.HERE / "v3.cu", kernel) in jobs and kernel.startswith("v3<64, 64, 8, 8, ")
    assert config.grid == (4, 2, 4) and bound.accumulates and bound.name == "v3_searched"
    assert bound.prepare_ms == 11.25, "the layout's and the trials'"


def test_shares_are_never_more_than_steps(loaded):
    p = on_fake_gpu(operands.problem(64, 64, 64, 0.5))
    for split, shares in ((0, 1), (1, 1), (2, 2), (8, 2)):
        bound = published.bind_tile("v3_searched", p, H200, "small", split)
        assert bound.steps[0][1].grid == (2, 2, shares) and bound.accumulates == (shares > 1)


def test_what_packing_adds_is_what_v2_counts_beyond_v1(loaded):
    p = on_fake_gpu(operands.problem(64, 128, 512, 0.25))
    v1, v2 = (published.bind(name, p, H200) for name in ("v1", "v2"))
    assert v1.keep[1].index_bytes == v2.keep[1].index_bytes == v1.prepare_bytes
    assert v2.prepare_bytes == v1.prepare_bytes + v2.keep[1].col_info_bytes
    assert v2.keep[1].col_info_bytes > 0 and v1.prepare_ms == 1.25


def test_a_padded_b_counts_as_prepared(loaded):
    p = on_fake_gpu(operands.problem(64, 100, 500, 0.5))
    bound = published.bind("v1", p, H200)
    packed = bound.keep[1]
    assert packed.val.shape == (256, 128)
    assert bound.prepare_bytes == packed.index_bytes + 4 * 256 * 128


def test_ragged_rows_are_copied_first_and_stored_one_by_one(loaded):
    bound = published.bind("v3", on_fake_gpu(operands.problem(61, 64, 64, 0.5)), H200)
    copy, (kernel, _, arguments) = bound.steps
    assert copy == "copy" and kernel.endswith("false>") and arguments[3] == 64


@pytest.mark.parametrize(("vector", "slot"), [(4, 4), (8, 4), (48, 4), (32, 32), (64, 32), (96, 32)])
def test_slots(loaded, vector, slot):
    p = on_fake_gpu(operands.problem(64, 256, 64, 0.5, vector=vector))
    assert published.bind("v3", p, H200).keep[1].slot == slot


def test_one_vector_of_all_columns_is_a_slot(loaded):
    p = on_fake_gpu(operands.problem(64, 30, 64, 0.5, vector=31))
    assert published.bind("v1", p, H200).keep[1].slot == 32


@pytest.mark.parametrize("vector", [1, 2, 3, 6, 33])
@pytest.mark.parametrize("variant", VARIANTS)
def test_narrow_vectors_are_refused(loaded, variant, vector):
    p = on_fake_gpu(operands.problem(32, 64, 64, 0.5, vector=vector))
    with pytest.raises(ValueError, match=f"among {vector}, .*: use nm_cuda_core.element_wise$"):
        published.bind(variant, p, H200)
    assert not loaded


def test_what_does_not_exist_or_fit_is_refused(loaded):
    with pytest.raises(ValueError, match="no published kernel is called 'v4': choose v1, v2, "):
        published.bind("v4", on_fake_gpu(operands.problem(32, 32, 32)), H200)
    b = nm.random(2048, 32, 1024, 2048, 32, 0)
    p = on_fake_gpu(operands.problem_from_nm(b, 32))
    with pytest.raises(ValueError, match="^v3 stages a window of 1024:2048 at once, .* smaller group$"):
        published.bind("v3", p, H200)
    assert not loaded


# ------------------------------------------------------------------------------------- on a GPU


def make_problem(m: int, n: int, k: int, keep: int, group: int, vector: int) -> Problem:
    """Small whole numbers, so that every sum is exact in any order."""
    rng = np.random.default_rng((SEED, m, n, k, keep, group, vector))
    b = nm.random(k, n, keep, group, vector, SEED)
    w = math.ceil(k / group) * keep
    limit = max(1, int((2**24 / w) ** 0.5) // 2)
    high = min(limit, 8)
    val = np.where(b.val == 0, 0, rng.integers(1, high + 1, b.val.shape)).astype(np.float32)
    b = replace(b, val=val * rng.choice(np.array([-1, 1], np.float32), val.shape))
    a = rng.integers(-high, high + 1, (k, m)).astype(np.float32).T

    def on_device() -> Operands:
        import cupy

        there = cupy.asarray(a.T).T
        return Operands(there, nm.to_device(b), cupy.empty((m, n), cupy.float32, order="F"))

    return replace(
        operands.problem_from_nm(b, m, SEED),
        make_host=lambda: Operands(a, b),
        make_device=on_device,
    )


def try_problem(p: Problem, device, variants=SINGLE) -> None:
    """C is full of NaN before a launch; two launches give the product twice."""
    host = p.host()
    exact = host.a.astype(np.float64) @ nm.to_dense(host.b).astype(np.float64)
    stream = device.create_stream()
    for variant in variants:
        bound = published.bind(variant, p, device)
        bound.result().fill(math.nan)
        device.sync()
        for _ in range(2):
            bound.launch(stream)
            stream.sync()
            out = bound.result().get()
            wrong = out != exact
            assert not wrong.any(), (
                f"{variant} on {host.b.keep}:{host.b.group} in vectors of {host.b.vector}: m={p.m}, "
                f"n={p.n}, k={p.k}, seed {SEED}: {wrong.sum()} of {wrong.size} elements are wrong, "
                f"the first at {tuple(np.argwhere(wrong)[0])}"
            )
    p.release()


@gpu
@pytest.mark.parametrize("keep", [32, 16, 12, 8, 4])
def test_the_papers_patterns(device, keep):
    for m, n, k in ((64, 128, 256), (128, 256, 1024), (512, 512, 512), (32, 32, 32)):
        try_problem(make_problem(m, n, k, keep, 32, 32), device)


@gpu
@pytest.mark.parametrize("m", [1, 4, 31, 33, 61, 64, 67, 100, 130])
def test_ragged_sizes(device, m):
    for n in (1, 31, 33, 100, 128, 130):
        for k in (1, 31, 33, 65, 100, 257):
            try_problem(make_problem(m, n, k, 12 if (n + k) % 2 else 4, 32, 32), device)


def some_keeps(group: int) -> list[int]:
    """Fewest and most; rows that four divides and that it does not; on both sides of where packing begins."""
    return sorted({1, group // 4, 3, group // 2 + 1, group - 1, group})


def test_some_patterns_are_of_every_kind():
    for group in (4, 8, 16, 32):
        keeps = some_keeps(group)
        assert {1, group} <= set(keeps) <= set(range(1, group + 1))
        assert {keep % 4 == 0 for keep in keeps} == {True, False}
        assert {published.high_sparsity(keep, group) for keep in keeps} == {True, False}


@gpu
@pytest.mark.parametrize(("keep", "group"), [(keep, group) for group in (4, 8, 16, 32) for keep in some_keeps(group)])
def test_every_kind_of_pattern(device, keep, group):
    try_problem(make_problem(68, 132, 200, keep, group, 32), device)
    narrow = ("v1", "v2", "v3_packed", "v3_split_k")
    try_problem(make_problem(64, 100, 131, keep, group, 4), device, narrow)


@gpu
@pytest.mark.parametrize(("keep", "group"), [(16, 32), (4, 32), (2, 4), (1, 4)])
def test_every_vector(device, keep, group):
    for vector in (4, 8, 12, 16, 32, 48, 64, 96, 128):
        for m, n, k in ((64, 128, 128), (100, 300, 131)):
            try_problem(make_problem(m, n, k, keep, group, vector), device)


@gpu
@pytest.mark.parametrize("keep", [16, 4])
def test_the_search_is_right_and_has_the_fastest(device, keep):
    """At 512 cubed, where shares of k are tried, and at a size that no tile divides."""
    for m, n, k in ((512, 512, 512), (130, 300, 257)):
        try_problem(make_problem(m, n, k, keep, 32, 32), device, ("v3_searched",))


@gpu
@pytest.mark.parametrize("split", published.SPLITS)
def test_every_tile_in_every_number_of_shares(device, split):
    for keep in (16, 12, 8):
        for m, n, k in ((128, 256, 1024), (67, 130, 257)):
            p = make_problem(m, n, k, keep, 32, 32)
            exact = p.host().a.astype(np.float64) @ nm.to_dense(p.host().b).astype(np.float64)
            stream = device.create_stream()
            for name in published.TILES:
                bound = published.bind_tile("v3_searched", p, device, name, split)
                for _ in range(2):
                    bound.launch(stream)
                    stream.sync()
                    right = np.array_equal(bound.result().get(), exact)
                    assert right, f"{name} in {split} shares, {keep}:32, m={m}, seed {SEED}"


@gpu
def test_larger_blocks_by_class(device):
    """4096 x 4096 has large blocks on any GPU, 1024 x 2048 medium ones on most."""
    for m, n, k in ((4096, 4096, 64), (1024, 2048, 131), (2051, 1025, 96)):
        for keep in (16, 4):
            try_problem(make_problem(m, n, k, keep, 32, 32), device, ("v1", "v2", "v3", "v3_split_k"))


@gpu
@pytest.mark.parametrize(
    ("keep", "group", "vector", "n"),
    [
        (3, 5, 32, 64),
        (20, 64, 32, 96),
        (7, 128, 4, 40),
        (1, 1, 32, 64),
        (40, 128, 64, 130),
        (1, 2, 7, 5),
        (5, 7, 21, 21),
    ],
)
def test_other_patterns_and_one_narrow_vector(device, keep, group, vector, n):
    try_problem(make_problem(70, n, 300, keep, group, vector), device)


def among_sevens(p):
    """The problem with its C in the middle of a larger array, and what lies before and behind it."""
    import cupy

    margin = 4096
    whole = cupy.full(p.m * p.n + 2 * margin, 7, cupy.float32)
    ops = replace(p.device(), c=whole[margin:-margin].reshape((p.m, p.n), order="F"))
    return replace(p, make_device=lambda: ops, _device=None), (whole[:margin], whole[-margin:])


@gpu
def test_nothing_beside_c_is_written(device):
    for m, n in ((61, 33), (64, 128), (36, 40)):
        p, margins = among_sevens(make_problem(m, n, 100, 4, 32, 32))
        try_problem(p, device)
        assert all(bool((margin == 7).all()) for margin in margins)


@gpu
@pytest.mark.parametrize("dtype", [np.float32, np.uint16])
def test_pitch_copies_and_pads(device, dtype):
    import cupy

    stream = device.create_stream()
    for m, k in ((1, 1), (5, 7), (33, 100), (1001, 70), (130, 3000)):
        made = np.random.default_rng(m).integers(1, 1000, (k, m)).astype(dtype)
        a = cupy.asarray(made).T
        array, lda, steps = pitch.aligned(a, device)
        if m * a.dtype.itemsize % 16 == 0:
            assert array is a and lda == m and not steps
            continue
        array.fill(999)
        device.sync()
        from cuda.core import launch

        for kernel, config, arguments in steps:
            launch(stream, config, kernel, *arguments)
        stream.sync()
        out = array.get()
        assert out.shape == (k, lda) and lda * a.dtype.itemsize % 16 == 0 and lda >= m
        assert np.array_equal(out[:, :m], made) and not out[:, m:].any()


@gpu
def test_packed_on_the_device_is_what_bind_reads(device):
    p = make_problem(64, 130, 300, 4, 32, 32)
    bound = published.bind("v2", p, device)
    tile = published.configured("v2", "small", 4, 32)
    expected = packing.prepare(p.host().b, tile.columns, tile.windows, packed=True, slot=32)
    found = packing.to_host(bound.keep[1])
    for name in ("val", "index", "col_info", "count"):
        assert np.array_equal(getattr(found, name), getattr(expected, name)), name
    assert 0 < bound.prepare_ms < 10_000
