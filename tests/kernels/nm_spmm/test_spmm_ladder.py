"""Our FP32 rungs: what a configuration asks for, what the compiler makes of it, and on a GPU the products."""

from __future__ import annotations

import math
import os
import secrets
import shutil
from dataclasses import replace
from types import SimpleNamespace

import compiled
import numpy as np
import pytest
from compiled import count
from test_published import H200, as_array, make_problem, on_fake_gpu

from artifact import check
from kernels import jit, tma
from kernels.formats import nm
from kernels.nm_spmm import banks, ladder, operands, packing, pitch
from kernels.nm_spmm.ladder import HOPPER, PATTERNS, RUNGS, Config

#: Fresh for every run; part of every failure's message. Set SPARSITY_TEST_SEED to run one again.
SEED = int(os.environ.get("SPARSITY_TEST_SEED", secrets.randbits(31)))
MOST = H200.properties.max_shared_memory_per_block_optin
A100 = SimpleNamespace(
    name="A100",
    compute_capability=(8, 0),
    properties=SimpleNamespace(max_shared_memory_per_block_optin=166_912),
)
gpu = pytest.mark.gpu
#: What narrow vectors, ragged m and other patterns ask for: keep, group, slot, aligned.
OTHERS = ((8, 32, 4, False), (2, 4, 32, False), (3, 5, 4, True), (5, 16, 32, True))


def jobs(name: str) -> list[tuple]:
    kernel, config = ladder.KERNELS[name], RUNGS[name][0]
    entries = {*kernel.entries, *(ladder.entry(config, *other) for other in OTHERS)}
    return [(kernel.source, entry) for entry in sorted(entries)]


def arguments(entry: str) -> tuple[list[int], list[bool]]:
    """Template arguments of an entry: its numbers and its flags, in their orders."""
    parts = entry[:-1].split("<")[1].split(", ")
    return [int(x) for x in parts if x.isdigit()], [x == "true" for x in parts if not x.isdigit()]


# ------------------------------------------------------------------------------------ compilation


@pytest.fixture(scope="module")
def cubins():
    """(entry, target) -> cubin."""
    found = {}
    for name, kernel in ladder.KERNELS.items():
        found |= compiled.cubins(jobs(name), kernel.targets)
    return found


@pytest.fixture(scope="module")
def reports(cubins):
    return compiled.reports(cubins)


@pytest.mark.parametrize("name", RUNGS)
def test_every_entry_compiles_without_spilling(reports, name):
    kernel = ladder.KERNELS[name]
    assert kernel.targets == (jit.TARGETS if name in ("wide", "banks") else HOPPER)
    for _, entry in jobs(name):
        (bm, bn, tm, tn, *_), _ = arguments(entry)
        for target in kernel.targets:
            used, _ = reports[entry, target]
            assert not used.spills, f"{entry} on {target}: {used}"
            blocks = RUNGS[name][0].blocks
            assert used.registers * blocks * (bm * bn // tm // tn) <= 2**16, f"{entry} on {target}"


@pytest.mark.parametrize("name", RUNGS)
def test_every_multiply_add_and_every_wide_access_is_there(reports, name):
    """A step is unrolled: TM x TN FFMA for each compressed row. The compiler may peel off a step."""
    for _, entry in jobs(name):
        (_, _, tm, tn, _, rows, *_), flags = arguments(entry)
        aligned = flags[0] if name != "bulk" and name != "ahead" else flags[1]
        for target in ladder.KERNELS[name].targets:
            _, mix = reports[entry, target]
            assert count(mix, "FFMA") in (tm * tn * rows, 2 * tm * tn * rows), f"{entry} {target}"
            if name != "cluster":
                stored = count(mix, "STG", 128)
                assert stored == tm * tn // 4 * aligned, f"{entry} on {target}"
            assert bool(count(mix, "LDGSTS")) == (name in ("wide", "banks"))
            engine = [op for op in mix if op.startswith(("UTMALDG", "UBLKCP"))]
            assert bool(engine) == (target in HOPPER and name not in ("wide", "banks"))
            met = any(op.startswith("UCGABAR") for op in mix)
            assert met == (name == "cluster"), f"{entry} on {target}"


@pytest.mark.parametrize("name", ["wide", "banks", "bulk", "ahead"])
def test_what_a_row_adds_is_nearly_all_multiply_adds(reports, name):
    """The difference of two kernels that differ by 16 rows a step is what a row costs in the loop."""
    config = RUNGS[name][0]
    short, long = ((8, 32), (16, 32)) if config.depth == 64 else ((16, 32), (32, 32))
    mixes = [reports[ladder.entry(config, *pattern), "sm_90a"][1] for pattern in (short, long)]
    added = count(mixes[1], "FFMA") - count(mixes[0], "FFMA")
    every = sum(mixes[1].values()) - sum(mixes[0].values())
    assert added == 16 * config.tm * config.tn
    assert added / every > 0.9, f"{added} of {every} instructions"


@pytest.mark.parametrize("keep,group", PATTERNS)
def test_banks_clashes_less_than_wide(cubins, keep, group):
    share = {}
    for name in ("wide", "banks"):
        entry = ladder.entry(replace(RUNGS[name][0], depth=32), keep, group)
        found = banks.conflicts(jit.disassemble(cubins[entry, "sm_90a"]))
        assert found["ffma"] >= keep * 128
        share[name] = (found["two_same"] + found["three_same"]) / found["ffma"]
    assert share["banks"] < 0.7 * share["wide"], share


# ------------------------------------------------------------------------------- configurations


def test_the_ladder_adds_one_thing_a_rung_and_predicts_it():
    assert list(RUNGS) == list(ladder.KERNELS) == ["wide", "banks", "bulk", "ahead", "cluster"]
    for name, (config, idea, prediction) in RUNGS.items():
        kernel = ladder.KERNELS[name]
        assert (kernel.name, kernel.idea, kernel.prediction) == (name, idea, prediction)
        assert prediction and not kernel.published and kernel.source == ladder.source(config)
    changed = {
        b: {f for f in vars(RUNGS[a][0]) if getattr(RUNGS[a][0], f) != getattr(RUNGS[b][0], f)}
        for a, b in (("wide", "banks"), ("bulk", "ahead"))
    }
    assert changed == {"banks": {"banks"}, "ahead": {"ahead"}}


@pytest.mark.parametrize("depth", [32, 64])
def test_a_step_is_whole_windows_and_whole_quadruples_of_rows(depth):
    config = Config(depth=depth)
    for group in range(1, 129):
        count = ladder.windows(config, group)
        assert count >= 1 and count * group >= depth > (count - 1) * group
        for keep in range(1, group + 1):
            found = ladder.rows(config, keep, group)
            assert found % 4 == 0 and 0 <= found - count * keep < 4, f"{keep}:{group}"
    assert [ladder.rows(config, keep, 32) for keep in (32, 16, 12, 8, 4, 31)] == [
        depth // 32 * keep for keep in (32, 16, 12, 8, 4)
    ] + [depth]


@pytest.mark.parametrize(
    "n,vector,slot", [(256, 32, 32), (256, 64, 32), (20, 20, 32), (256, 4, 4), (256, 48, 4), (30, 31, 32)]
)  # fmt: skip
def test_slots(n, vector, slot):
    assert ladder.slot_of(nm.random(64, n, 2, 4, vector, 0)) == slot


@pytest.mark.parametrize("vector", [1, 2, 6, 33])
def test_narrow_vectors_are_refused(vector):
    with pytest.raises(ValueError, match=f"^vectors of {vector} columns .*: use nm_cuda_core.elem"):
        ladder.slot_of(nm.random(64, 128, 2, 4, vector, 0))


def test_shared_memory_of_a_block():
    """As, Bs and indices of each stage, by hand; a cluster's also holds the partial sums."""
    wide = Config("wide", 128, 128, depth=32, stages=3)
    assert ladder.shared_bytes(wide, 16, 32, 32) == 3 * 4 * (32 * 128 + 16 * 128 + 4 * 16)
    assert ladder.shared_bytes(wide, 16, 32, 4) == 3 * 4 * (32 * 128 + 16 * 128 + 32 * 16)
    bulk = Config("bulk", 64, 32, 8, depth=32, stages=3)  # of 128 bytes, which TMA asks for
    floats = 32 * 64 + 4 * 32 + 4
    assert floats % 32 and ladder.shared_bytes(bulk, 4, 32, 32) == 3 * 4 * (floats // 32 + 1) * 32
    cluster = Config("cluster", 128, 256, depth=32, stages=3, split=4)
    assert ladder.shared_bytes(cluster, 4, 32, 32) == 4 * 128 * 256


@pytest.mark.parametrize(
    "config,pattern,message",
    [
        (Config(), (200, 300, 32), "^a step of 200:300 needs 300 rows of A, .*: use smaller windows$"),
        (Config(stages=2), (16, 32, 32), "^bulk with ahead=True has 2 stages, .*: use more stages$"),
        (Config("wide", stages=1, ahead=False), (16, 32, 32), "has 1 stages, but needs 2"),
        (Config(stages=5), (32, 32, 32), "^bulk with 128 x 256 tiles and 5 stages of 32:32 needs "),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused_in_a_sentence(config, pattern, message):
    with pytest.raises(ValueError, match=message) as caught:
        ladder.check(config, *pattern, MOST)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("keep,group", PATTERNS)
@pytest.mark.parametrize("name", RUNGS)
def test_the_papers_patterns_fit(name, keep, group):
    config = RUNGS[name][0]
    if keep == group:
        config = replace(config, depth=32)
    for slot in (32, 4) if keep != group else (32,):
        ladder.check(config, keep, group, slot, MOST)
        resident = config.blocks * (ladder.shared_bytes(config, keep, group, slot) + 1024)
        assert resident <= 233_472, "as many blocks an SM as its registers allow"


# ----------------------------------------------------------------------------------- bind, on a CPU


@pytest.fixture
def loaded(monkeypatch) -> SimpleNamespace:
    """bind without a GPU: what it would load, and what it would make tensor maps of."""
    found = SimpleNamespace(cubins=[], maps=[])

    def load(cubin, dynamic_shared_bytes=0):
        found.cubins.append((cubin, dynamic_shared_bytes))
        return cubin.entry

    def tensor_map(array, box, swizzle=0):
        found.maps.append((array, box))
        return "map"

    monkeypatch.setattr(jit, "load", load)
    monkeypatch.setattr(tma, "tensor_map", tensor_map)
    monkeypatch.setattr(ladder, "timed", lambda work: (packing._map(as_array, work()), 1.25))
    return found


@pytest.mark.parametrize("keep,group", PATTERNS)
@pytest.mark.parametrize("name", ["wide", "banks", "bulk", "ahead"])
def test_bind_asks_for_a_listed_entry(loaded, name, keep, group):
    p = on_fake_gpu(operands.problem(128, 300, 500, keep / group))
    bound = ladder.bind(name, p, H200)
    ((kernel, config, given),) = bound.steps
    ((cubin, shared),) = loaded.cubins
    assert kernel == cubin.entry in ladder.KERNELS[name].entries and bound.name == name
    (bm, bn, tm, tn, slot, rows, depth, *_), _ = arguments(kernel)
    assert config.grid[:2] == (math.ceil(128 / bm), math.ceil(300 / bn))
    assert config.block == (bm * bn // (tm * tn), 1, 1) and config.shmem_size == shared <= MOST
    ops, packed, a, _ = bound.keep
    assert (packed.rows, packed.depth, packed.slot, packed.columns) == (rows, depth, slot, bn)
    assert not packed.packed and packed.steps == math.ceil(500 / depth)
    assert bound.prepare_bytes == packed.nbytes and bound.prepare_ms == 1.25
    pointers = packed.val.data.ptr, packed.index.data.ptr, bound.result().data.ptr
    assert given[-3:] == pointers and not bound.accumulates
    if name in ("bulk", "ahead"):
        assert list(given[:4]) == [128, 300, packed.steps, 1] and given[4] == "map"
        ((rows_of_a, box),) = loaded.maps
        assert rows_of_a.shape == (500, 128) and box == (depth, bm)
        assert np.shares_memory(rows_of_a, ops.a)
    else:
        assert list(given[:6]) == [128, 300, 500, packed.steps, 128, 1] and not loaded.maps


@pytest.mark.parametrize(
    "m,lda",
    [
        (61, 64),
        (64, 64),
    ],
)  # fmt: skip
def test_a_copy_of_a_is_read_as_it_lies(loaded, monkeypatch, m, lda):
    """Where m is no multiple of 4, or A begins between two multiples of 16 bytes."""
    copied = np.zeros((96, lda), np.float32).view(type(as_array(np.zeros(1))))
    monkeypatch.setattr(pitch, "aligned", lambda a, device: (copied, lda, ["copy"]))
    bound = ladder.bind("bulk", on_fake_gpu(operands.problem(m, 64, 96, 0.5)), H200)
    assert bound.steps[0] == "copy" and ("false>" in bound.steps[1][0]) == (m % 4 != 0)
    ((rows_of_a, _),) = loaded.maps
    assert rows_of_a.shape == (96, m) and np.shares_memory(rows_of_a, copied)


def test_bind_refuses_what_it_does_not_multiply(loaded):
    half = on_fake_gpu_half(operands.problem(64, 64, 64, dtype="bfloat16"))
    with pytest.raises(ValueError, match="^bulk multiplies float32 by N:M, not bfloat16: use bf16"):
        ladder.bind("bulk", half, H200)
    p = on_fake_gpu(operands.problem(64, 64, 64))
    with pytest.raises(ValueError, match="^ahead needs the copy engine of sm_90a, .*: use wide$"):
        ladder.bind("ahead", p, A100)
    b = nm.random(1024, 64, 100, 512, 32, 0)
    with pytest.raises(ValueError, match="^a step of 100:512 needs 512 rows of A"):
        ladder.bind("wide", on_fake_gpu(operands.problem_from_nm(b, 64)), H200)
    assert not loaded.cubins


def on_fake_gpu_half(p):
    return replace(p, make_device=p.make_host)


# ------------------------------------------------------------------------------------- on a GPU


@pytest.fixture(scope="module")
def rungs(device):
    """Those that this GPU takes."""
    arch = jit.arch_of(device)
    return [
        name for name, (config, *_) in RUNGS.items() if config.kernel == "wide" or arch in HOPPER
    ]


#: wide is banks with other multiply-adds, and bulk is ahead without looking ahead.
DISTINCT = ("banks", "ahead", "cluster")


def compile_all(device, names, patterns) -> None:
    """At once, in threads: what `bind` would compile one by one. patterns: arguments of `ladder.entry`."""
    entries = {
        (ladder.source(RUNGS[name][0]), ladder.entry(RUNGS[name][0], *pattern))
        for name in names
        for pattern in patterns
    }
    compiled.cubins(sorted(entries), [jit.arch_of(device)])


def try_problem(p, device, names) -> None:
    """C is full of NaN before a launch; two launches give the exact product, bit by bit."""
    host = p.host()
    exact = host.a.astype(np.float64) @ nm.to_dense(host.b).astype(np.float64)
    stream = device.create_stream()
    for name in names:
        bound = ladder.bind(name, p, device)
        for _ in range(2):
            bound.result().fill(math.nan)
            device.sync()
            bound.launch(stream)
            stream.sync()
            wrong = bound.result().get() != exact
            assert not wrong.any(), (
                f"{name} on {host.b.keep}:{host.b.group} in vectors of {host.b.vector}: m={p.m}, "
                f"n={p.n}, k={p.k}, seed {SEED}: {wrong.sum()} of {wrong.size} elements are wrong, "
                f"the first at {tuple(np.argwhere(wrong)[0])}"
            )
    p.release()


@gpu
@pytest.mark.parametrize("keep,group", PATTERNS)
def test_the_papers_patterns(device, rungs, keep, group):
    for m, n, k in ((128, 256, 512), (512, 512, 512), (32, 32, 32), (640, 1024, 96)):
        try_problem(make_problem(m, n, k, keep, group, 32), device, rungs)


@gpu
@pytest.mark.parametrize("m", [1, 2, 4, 5, 31, 64, 127, 130, 259])
def test_ragged_sizes(device, rungs, m):
    for n in (1, 31, 33, 130, 257):
        for k in (1, 31, 33, 65, 257):
            try_problem(make_problem(m, n, k, 12 if (n + k) % 2 else 4, 32, 32), device, rungs)


@gpu
@pytest.mark.parametrize("group", [4, 8, 16, 32])
def test_every_window(device, rungs, group):
    names = [name for name in rungs if name in DISTINCT]
    keeps = sorted({1, group // 2, group - 1, group})
    compile_all(device, names, [(n, group, *x) for n in keeps for x in ((32, True), (4, False))])
    for keep in keeps:
        try_problem(make_problem(132, 260, 200, keep, group, 32), device, names)
        try_problem(make_problem(66, 100, 131, keep, group, 4), device, names)


@gpu
@pytest.mark.parametrize("vector", [4, 8, 12, 16, 32, 48, 64, 96, 128, 1000])
def test_every_vector(device, rungs, vector):
    names, slot = [name for name in rungs if name in DISTINCT], 4 if vector % 32 else 32
    patterns = ((16, 32), (4, 32), (2, 4), (1, 4))
    compile_all(device, names, [(*x, slot, even) for x in patterns for even in (True, False)])
    for keep, group in patterns:
        for m, n, k in ((128, 256, 128), (101, 300, 131)):
            try_problem(make_problem(m, n, k, keep, group, vector), device, names)


@gpu
def test_long_products_turn_the_ring_over(device, rungs):
    for k in (4096, 4095, 6 * 64, 2 * 64 + 1):
        try_problem(make_problem(260, 300, k, 16, 32, 32), device, rungs)


@gpu
@pytest.mark.parametrize("split", [2, 4, 8])
def test_shares_of_a_cluster_without_steps(device, rungs, split):
    """k of fewer steps than blocks: the others add zeros."""
    if "cluster" not in rungs:
        pytest.skip("this GPU has no clusters")
    import cupy

    for k in (1, 32, 33, 96, 1000):
        p = make_problem(70, 100, k, 8, 32, 32)
        config = replace(RUNGS["cluster"][0], split=split)
        bound = ladder.bind_config("cluster", p, device, config)
        bound.result().fill(math.nan)
        stream = device.create_stream()
        device.sync()
        bound.launch(stream)
        stream.sync()
        host = p.host()
        exact = host.a.astype(np.float64) @ nm.to_dense(host.b)
        assert bool((bound.result() == cupy.asarray(exact)).all()), f"k={k}, seed {SEED}"


@gpu
def test_real_values_repeat_bit_by_bit_and_pass_the_check(device, rungs):
    p = operands.problem(1001, 1003, 1005, 0.25, SEED % 2**32)
    reference, stream = check.oracle(p), device.create_stream()
    for name in rungs:
        bound = ladder.bind(name, p, device)
        assert check.check(bound, p, reference, stream).rel_err < 2e-6, f"{name}, seed {SEED}"
        first = bound.result().copy()
        bound.launch(stream)
        stream.sync()
        assert bool((bound.result() == first).all()), f"{name}, seed {SEED}"


@gpu
def test_nothing_beside_c_is_written(device, rungs):
    import cupy

    margin = 4096
    for m, n in ((61, 33), (64, 128), (36, 40)):
        p = make_problem(m, n, 100, 4, 32, 32)
        whole = cupy.full(m * n + 2 * margin, 7, cupy.float32)
        ops = replace(p.device(), c=whole[margin:-margin].reshape((m, n), order="F"))
        p = replace(p, make_device=lambda ops=ops: ops, _device=None)
        try_problem(p, device, rungs)
        assert bool((whole[:margin] == 7).all()) and bool((whole[-margin:] == 7).all())


# ------------------------------------------------------------------------------- wrong on purpose

#: A bug -> the file where it would be, the text there, the text instead, a rung that has it.
MUTANTS = {
    "next_row_of_b": ("fragments.cuh", "b + (q + s + 1) * T::BN", "b + (q + s) * T::BN", "banks"),
    "indices_of_the_first_rows": ("fragments.cuh", "now = next", "now = now", "wide"),
    "last_column_lost": ("fragments.cuh", "column < n &&", "column + 1 < n &&", "bulk"),
    "step_before_again": ("ring.cuh", "copy(step - 1 + STAGES,", "copy(step - 2 + STAGES,", "ahead"),
    "share_of_rank_0_only": ("cluster.cu", "BM + down, r)", "BM + down, 0)", "cluster"),
    "cuts_lose_a_step": ("cluster.cu", "(steps + SPLIT - 1) / SPLIT", "steps / SPLIT", "cluster"),
    "scaled_by_more_than_alpha": ("fragments.cuh", "acc[j][i] *= alpha", "acc[j][i] *= 1.001f", "bulk"),
}  # fmt: skip


@pytest.fixture
def mutant(monkeypatch, tmp_path):
    """mutant(bug): from now on the ladder compiles sources with one text changed, which must be there once."""

    def change(bug: str) -> str:
        file, old, new, name = MUTANTS[bug]
        for path in ladder.HERE.glob("*.cu*"):
            shutil.copy(path, tmp_path)
        text = (tmp_path / file).read_text()
        assert text.count(old) == 1, f"{file} has {text.count(old)} times {old!r}"
        (tmp_path / file).write_text(text.replace(old, new))
        monkeypatch.setattr(ladder, "HERE", tmp_path)
        return name

    return change


@pytest.mark.parametrize("bug", MUTANTS)
def test_a_wrong_kernel_compiles(mutant, bug):
    """Without a GPU as well: it must be the check that refuses it, not the compiler."""
    config = RUNGS[MUTANTS[bug][3]][0]
    entry = ladder.entry(config, 8, 32)
    before = jit.compile_cubin(ladder.source(config), entry, "sm_90a").code
    mutant(bug)
    assert jit.compile_cubin(ladder.source(config), entry, "sm_90a").code != before


@gpu
@pytest.mark.parametrize("bug", MUTANTS)
def test_a_wrong_kernel_is_caught(device, rungs, mutant, bug):
    if MUTANTS[bug][3] not in rungs:
        pytest.skip("this GPU does not take the rung")
    # 33 steps of 32, which no cut divides.
    p = operands.problem(500, 777, 1030, 0.25, SEED % 2**32)
    reference, stream = check.oracle(p), device.create_stream()
    name = MUTANTS[bug][3]
    assert check.check(ladder.bind(name, p, device), p, reference, stream).rel_err < 2e-6
    mutant(bug)
    with pytest.raises(check.WrongResult, match="is wrong: |unwritten or NaN"):
        check.check(ladder.bind(name, p, device), p, reference, stream)
