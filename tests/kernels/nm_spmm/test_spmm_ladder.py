"""Our FP32 rungs: what a configuration asks for, what the compiler makes of it, and on a GPU the products."""

from __future__ import annotations

import math
import os
import re
import secrets
import sys
from dataclasses import replace
from types import SimpleNamespace

import compiled
import numpy as np
import pytest
from compiled import count
from hypothesis import given, settings
from hypothesis import strategies as st
from test_published import H200, among_sevens, as_array, make_problem, on_fake_gpu

from artifact.measure import bench, check
from kernels import jit, pitch, tma
from kernels import nm_spmm as room
from kernels.formats import nm
from kernels.nm_spmm import banks, family, ladder, operands, packing, schedule
from kernels.nm_spmm.family import HOPPER, PATTERNS, RUNGS, TRIALS, Config
from kernels.nm_spmm.sweeps import DENSITIES

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


#: wide is banks with other multiply-adds, bulk is ahead without looking ahead, and stream is rolled with another body.
DISTINCT = ("banks", "ahead", "rolled", "turned", "cluster")
#: Those without the copy engine.
COPIES = ("wide", "banks")
STREAMS = tuple(name for name, (config, *_) in RUNGS.items() if config.kernel == "stream")


def jobs(name: str) -> list[tuple[str, str]]:
    """(entry, target): what the room declares, for all of its targets; what else one of each kind may be asked for
    (in full of the first of them), for that of the records."""
    kernel, config = family.KERNELS[name], RUNGS[name][0]
    declared = [(entry, target) for entry in kernel.entries for target in kernel.targets]
    chosen = OTHERS if name == DISTINCT[0] else OTHERS[::2] if name in DISTINCT else ()
    others = [(family.entry(config, *other), "sm_90a") for other in chosen]
    return sorted({*declared, *others})


def arguments(entry: str) -> dict[str, int | bool]:
    """Template arguments of an entry by the names and the types that they have in its source."""
    name, given = entry[:-1].split("<")
    source = (family.HERE / f"{name}.cu").read_text()
    (names,) = re.findall(r"^template <([^>]*)>\n__global__", source, re.MULTILINE)
    read = {"int": int, "bool": {"false": False, "true": True}.__getitem__}
    kinds, values = [x.split() for x in names.split(",")], given.split(", ")
    return {name: read[kind](x) for (kind, name), x in zip(kinds, values, strict=True)}


def fitting(config: Config, keep: int, group: int, slot: int = 32) -> Config:
    """As bind makes it: in steps half as deep where shared memory asks for it."""
    need = family.shared_bytes(config, keep, group, slot) + family.BARRIERS
    return replace(config, depth=config.depth // 2) if need > MOST else config


# ------------------------------------------------------------------------------------ compilation


@pytest.fixture(scope="module")
def cubins():
    """(entry, target) -> cubin."""
    found = {}
    for name, kernel in family.KERNELS.items():
        for target in kernel.targets:
            entries = [(kernel.source, entry) for entry, wanted in jobs(name) if wanted == target]
            found |= compiled.cubins(entries, [target])
    return found


@pytest.fixture(scope="module")
def reports(cubins):
    return compiled.reports(cubins)


@pytest.mark.parametrize("name", RUNGS)
def test_every_entry_compiles_without_spilling(reports, name):
    kernel = family.KERNELS[name]
    assert kernel.targets == (jit.TARGETS if name in ("wide", "banks") else HOPPER)
    for entry, target in jobs(name):
        t = arguments(entry)
        threads = t["BM"] * t["BN"] // (t["TM"] * t["TN"])
        used, _ = reports[entry, target]
        assert not used.spills, f"{entry} on {target}: {used}"
        assert used.registers * t["BLOCKS"] * threads <= 2**16, f"{entry} on {target}"


@pytest.mark.parametrize("name", RUNGS)
def test_every_multiply_add_and_every_wide_access_is_there(reports, name):
    """TM x TN FFMA for each row of the loop's body, which is a whole step where nothing else is said; the
    compiler may peel off one. Shared memory, C and the workspace are read and written 16 bytes at a time."""
    for entry, target in jobs(name):
        t = arguments(entry)
        body, wide = t.get("UNROLL", t["ROWS"]), t["TM"] * t["TN"] // 4
        _, mix = reports[entry, target]
        assert count(mix, "FFMA") in (4 * wide * body, 8 * wide * body), f"{entry} {target}"
        assert count(mix, "LDS") == count(mix, "LDS", 128) > 0, f"{entry} on {target}"
        if name != "cluster":
            stored = count(mix, "STG", 128)
            assert stored == wide * t["ALIGNED"], f"{entry} on {target}"
        # What others have left in the workspace, even where C is written 4 bytes at a time.
        assert count(mix, "LDG", 128) == wide * (name in STREAMS), f"{entry} on {target}"
        assert bool(count(mix, "LDGSTS")) == (name in COPIES)
        engine = [op for op in mix if op.startswith(("UTMALDG", "UBLKCP"))]
        assert bool(engine) == (target in HOPPER and name not in COPIES)
        met = any(op.startswith("UCGABAR") for op in mix)
        assert met == (name == "cluster"), f"{entry} on {target}"


@pytest.mark.parametrize("name", ["wide", "banks", "bulk", "ahead", "stream"])
def test_what_a_row_adds_is_nearly_all_multiply_adds(reports, name):
    """The difference of two kernels that differ by 16 rows a step is what a row costs in the loop."""
    config = RUNGS[name][0]
    short, long = ((8, 32), (16, 32)) if config.depth == 64 else ((16, 32), (32, 32))
    mixes = [reports[family.entry(config, *pattern), "sm_90a"][1] for pattern in (short, long)]
    added = count(mixes[1], "FFMA") - count(mixes[0], "FFMA")
    every = sum(mixes[1].values()) - sum(mixes[0].values())
    assert added == 16 * config.tm * config.tn
    assert added / every > 0.9, f"{added} of {every} instructions"


@pytest.mark.parametrize("keep,group", PATTERNS)
@pytest.mark.parametrize("name", ["stream", "rolled", "turned"])
def test_the_loops_code(cubins, name, keep, group):
    """An instruction is 16 bytes and the cache of an SM's quarter for them is taken to hold 32 KB: a loop of
    8 rows fits with room to spare. A whole step does only at 87.5%, where it is 8 rows."""
    config = fitting(RUNGS[name][0], keep, group)
    body = family.unrolled(config, keep, group)
    code = banks.loop(jit.disassemble(cubins[family.entry(config, keep, group), "sm_90a"]))
    multiply, every = banks.conflicts(code)["ffma"], banks.instructions(code)
    a_row = config.tm * config.tn
    assert multiply == body * a_row
    # 6.25 loads a row, and about a hundred instructions where the loop ends a step, with its barriers.
    assert every <= body * (a_row + 8) + 150
    assert (16 * every < 20_000) == (body <= 8)
    assert multiply / every > (0.9 if body < family.rows(config, keep, group) else 0.84)


@pytest.mark.parametrize("keep,group", PATTERNS)
def test_banks_clashes_less_than_wide(cubins, keep, group):
    share = {}
    for name in ("wide", "banks"):
        entry = family.entry(replace(RUNGS[name][0], depth=32), keep, group)
        found = banks.conflicts(jit.disassemble(cubins[entry, "sm_90a"]))
        assert found["ffma"] >= keep * 128
        share[name] = (found["two_same"] + found["three_same"]) / found["ffma"]
    assert share["banks"] < 0.7 * share["wide"], share


# ------------------------------------------------------------------------------- configurations


def changed(one: Config, other: Config) -> set[str]:
    return {name for name, value in vars(one).items() if getattr(other, name) != value}


def test_the_ladder_adds_one_thing_a_rung_and_predicts_it():
    assert (
        list(RUNGS)
        == list(family.KERNELS)
        == ["wide", "banks", "bulk", "ahead", "stream", "rolled", "turned", "cluster"]
    )
    for name, (config, idea, prediction) in RUNGS.items():
        kernel = family.KERNELS[name]
        assert (kernel.name, kernel.idea, kernel.prediction) == (name, idea, prediction)
        assert prediction and not kernel.published and kernel.source == family.source(config)
    for before, name, expected in (
        ("wide", "banks", {"banks": True}),
        ("bulk", "ahead", {"ahead": True}),
        ("bulk", "stream", {"kernel": "stream"}),
        ("stream", "rolled", {"unroll": 8}),
        ("rolled", "turned", {"tm": 8, "tn": 16}),
    ):
        config = RUNGS[name][0]
        assert changed(RUNGS[before][0], config) == set(expected), name
        assert {x: getattr(config, x) for x in expected} == expected, name


#: What each trial changes, and of which rung.
TRIED = {
    "shallow": ("bulk", {"depth"}),
    "two_stages": ("bulk", {"depth", "stages"}),
    "two_blocks": ("bulk", {"bn", "depth", "blocks"}),
    "turned_bulk": ("bulk", {"tm", "tn"}),
    "rolled_bulk": ("bulk", {"unroll"}),
    "body_4": ("rolled", {"unroll"}),
    "body_16": ("rolled", {"unroll"}),
    "rolled_ahead": ("rolled", {"ahead"}),
    "deep": ("turned", {"depth"}),
}


def test_a_trial_is_a_rung_with_another_knob_and_is_predicted_against_it():
    assert set(TRIALS) == set(TRIED) and not set(TRIALS) & set(room.VARIANTS)
    configs = [config for config, *_ in (RUNGS | TRIALS).values()]
    assert len(set(configs)) == len(configs), "none is tried twice"
    for name, (config, idea, prediction) in TRIALS.items():
        rung, knobs = TRIED[name]
        assert idea and "\n" not in idea + prediction
        assert re.findall(r"^[0-9.]+x over (\w+)[.:]", prediction) == [rung], name
        assert changed(RUNGS[rung][0], config) == knobs, name


@pytest.mark.parametrize("density", DENSITIES)
@pytest.mark.parametrize("name", TRIALS)
def test_a_trial_takes_the_patterns_of_its_experiment(name, density):
    keep = round(32 * density)
    config = fitting(TRIALS[name][0], keep, 32)
    family.check(config, keep, 32, 32, MOST)
    resident = config.blocks * (family.shared_bytes(config, keep, 32, 32) + family.RESERVED)
    assert resident <= H200.properties.max_shared_memory_per_multiprocessor


def test_no_trial_spills():
    entries = {(family.source(c), family.entry(fitting(c, 16, 32), 16, 32)) for c, *_ in TRIALS.values()}
    for (entry, _), (used, _) in compiled.reports(compiled.cubins(sorted(entries), HOPPER)).items():
        t = arguments(entry)
        threads = t["BM"] * t["BN"] // (t["TM"] * t["TN"])
        assert not used.spills and used.registers * t["BLOCKS"] * threads <= 2**16, entry


@pytest.mark.parametrize("name", [*RUNGS, *TRIALS])
def test_an_entrys_arguments_are_where_its_source_has_them(name):
    config = (RUNGS | TRIALS)[name][0]
    for keep, group, slot, aligned in ((16, 32, 32, True), (5, 7, 4, False)):
        expected = {
            "BM": config.bm,
            "BN": config.bn,
            "TM": config.tm,
            "TN": config.tn,
            "SLOT": slot,
            "ROWS": family.rows(config, keep, group),
            "DEPTH": family.windows(config, group) * group,
            "STAGES": config.stages,
            "BLOCKS": config.blocks,
            "ALIGNED": aligned,
        }
        if config.kernel == "wide":
            expected["BANKS"] = config.banks
        else:
            expected |= {"AHEAD": config.ahead, "UNROLL": family.unrolled(config, keep, group)}
        if config.kernel == "cluster":
            expected["SPLIT"] = config.split
        entry = family.entry(config, keep, group, slot, aligned)
        assert entry.split("<")[0] == config.kernel == family.source(config).stem
        assert arguments(entry) == expected


@pytest.mark.parametrize("depth", [32, 64])
def test_a_step_is_whole_windows_and_whole_quadruples_of_rows(depth):
    config = Config(depth=depth)
    for group in range(1, 129):
        count = family.windows(config, group)
        assert count >= 1 and count * group >= depth > (count - 1) * group
        for keep in range(1, group + 1):
            found = family.rows(config, keep, group)
            assert found % 4 == 0 and 0 <= found - count * keep < 4, f"{keep}:{group}"
    assert [family.rows(config, keep, 32) for keep in (32, 16, 12, 8, 4, 31)] == [
        depth // 32 * keep for keep in (32, 16, 12, 8, 4)
    ] + [depth]


CONFIGS = st.builds(Config, depth=st.integers(1, 200), unroll=st.integers(0, 100))
PATTERN = st.integers(1, 64).flatmap(lambda group: st.tuples(st.integers(1, group), st.just(group)))


@given(config=CONFIGS, pattern=PATTERN)
@settings(deadline=None)
def test_a_body_is_the_most_rows_that_divide_a_step(config, pattern):
    rows, body = family.rows(config, *pattern), family.unrolled(config, *pattern)
    assert body % 4 == 0 and rows % body == 0
    if config.unroll == 0:
        assert body == rows
    else:
        assert body <= max(4, config.unroll)
        for more in range(body + 4, min(config.unroll, rows) + 1, 4):
            assert rows % more, "a longer one was there"


@pytest.mark.parametrize(
    "rows,unroll,body",
    [(32, 0, 32), (32, 8, 8), (32, 12, 8), (48, 12, 12), (20, 8, 4), (36, 8, 4), (8, 16, 8), (40, 3, 4)],
)
def test_bodies(rows, unroll, body):
    assert family.unrolled(Config(depth=64, unroll=unroll), rows, 64) == body


@given(config=CONFIGS, pattern=PATTERN, count=st.integers(1, 100))
@settings(deadline=None)
def test_the_last_step_ends_with_the_body_that_has_the_last_row(config, pattern, count):
    """count: windows of the matrix. All that follows in the step is padding, so none of B's rows is left out."""
    keep, group = pattern
    step, w = family.windows(config, group) * keep, count * keep
    left = w - (math.ceil(w / step) - 1) * step
    body, found = family.unrolled(config, *pattern), family.tail(config, *pattern, w)
    assert found % body == 0 and found - body < left <= found <= family.rows(config, *pattern)


@pytest.mark.parametrize(
    "keep,unroll,w,rows",
    [
        (16, 8, 64, 32),  # two windows a step, whole steps
        (16, 8, 80, 16),  # one of two windows
        (16, 0, 80, 32),  # in one body
        (12, 8, 12, 16),  # 12 rows take two bodies of 8
        (12, 4, 12, 12),
        (4, 8, 4, 8),  # half a body
        (4, 4, 12, 4),
    ],
)
def test_tails(keep, unroll, w, rows):
    assert family.tail(Config(depth=64, unroll=unroll), keep, 32, w) == rows


@pytest.mark.parametrize(
    "n,vector,slot", [(256, 32, 32), (256, 64, 32), (20, 20, 32), (256, 4, 4), (256, 48, 4), (30, 31, 32)]
)
def test_slots(n, vector, slot):
    assert family.slot_of(nm.random(64, n, 2, 4, vector, 0)) == slot


@pytest.mark.parametrize("vector", [1, 2, 6, 33])
def test_narrow_vectors_are_refused(vector):
    with pytest.raises(ValueError, match=f"^vectors of {vector} columns .*: use nm_cuda_core.elem"):
        family.slot_of(nm.random(64, 128, 2, 4, vector, 0))


def test_shared_memory_of_a_block():
    """As, Bs and indices of each stage, by hand; a cluster's also holds the partial sums."""
    wide = Config("wide", 128, 128, depth=32, stages=3)
    assert family.shared_bytes(wide, 16, 32, 32) == 3 * 4 * (32 * 128 + 16 * 128 + 4 * 16)
    assert family.shared_bytes(wide, 16, 32, 4) == 3 * 4 * (32 * 128 + 16 * 128 + 32 * 16)
    bulk = Config("bulk", 64, 32, 8, depth=32, stages=3)  # of 128 bytes, which TMA asks for
    floats = 32 * 64 + 4 * 32 + 4
    assert floats % 32 and family.shared_bytes(bulk, 4, 32, 32) == 3 * 4 * (floats // 32 + 1) * 32
    cluster = Config("cluster", 128, 256, depth=32, stages=3, split=4)
    assert family.shared_bytes(cluster, 4, 32, 32) == 4 * 128 * 256


@pytest.mark.parametrize(
    "config,pattern,message",
    [
        (Config(), (200, 300, 32), "^a step of 200:300 needs 300 rows of A, .*: use smaller windows$"),
        (Config(stages=2), (16, 32, 32), "^bulk with ahead=True has 2 stages, .*: use more stages$"),
        (Config("stream", stages=2), (16, 32, 32), "^stream with ahead=True has 2 stages, but needs 3"),
        (Config("cluster", stages=2), (16, 32, 32), "^cluster with ahead=True has 2 stages, but needs 3"),
        (Config("stream", stages=1, ahead=False), (16, 32, 32), "has 1 stages, but needs 2"),
        (Config("wide", stages=1, ahead=False), (16, 32, 32), "has 1 stages, but needs 2"),
        (Config(stages=5), (32, 32, 32), "^bulk with 128 x 256 tiles and 5 stages of 32:32 needs "),
    ],
)
def test_what_does_not_fit_is_refused_in_a_sentence(config, pattern, message):
    with pytest.raises(ValueError, match=message) as caught:
        family.check(config, *pattern, MOST)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("kernel", ["wide", "bulk", "stream", "cluster"])
def test_two_stages_will_do_where_nobody_looks_ahead(kernel):
    family.check(Config(kernel, stages=2, ahead=False), 16, 32, 32, MOST)


@pytest.mark.parametrize("keep,group", PATTERNS)
@pytest.mark.parametrize("name", RUNGS)
def test_the_papers_patterns_fit(name, keep, group):
    config = RUNGS[name][0]
    if keep == group:
        config = replace(config, depth=32)
    for slot in (32, 4) if keep != group else (32,):
        family.check(config, keep, group, slot, MOST)
        resident = config.blocks * (family.shared_bytes(config, keep, group, slot) + 1024)
        assert resident <= 233_472, "as many blocks an SM as its registers allow"


# ----------------------------------------------------------------------------------- bind, on a CPU


def ones_everywhere(shape, dtype) -> np.ndarray:
    """All bits set: NaN where these are floats."""
    return as_array(np.full((*shape, np.dtype(dtype).itemsize), 255, np.uint8).view(dtype)[..., 0])


#: What bind asks of CuPy, on NumPy.
CUPY = SimpleNamespace(
    asarray=as_array,
    empty=ones_everywhere,
    zeros=lambda shape, dtype: as_array(np.zeros(shape, dtype)),
    pad=lambda array, widths: as_array(np.pad(array, widths)),
)


@pytest.fixture
def loaded(monkeypatch) -> SimpleNamespace:
    """bind without a GPU: what it would load, and what it would make tensor maps of."""
    found = SimpleNamespace(cubins=[], maps=[])
    monkeypatch.setitem(sys.modules, "cupy", CUPY)

    def load(cubin, dynamic_shared_bytes=0):
        found.cubins.append((cubin, dynamic_shared_bytes))
        return cubin.entry

    def tensor_map(array, box, swizzle=0):
        found.maps.append((array, box))
        return "map"

    # What bind asks for is compiled above, where the compiler is looked at.
    monkeypatch.setattr(jit, "compile_cubin", lambda *job: jit.Cubin(*job, "symbol", b""))
    monkeypatch.setattr(jit, "load", load)
    monkeypatch.setattr(
        jit,
        "loaded",
        lambda source, entry, device, dynamic=0: load(jit.compile_cubin(source, entry, jit.arch_of(device)), dynamic),
    )
    monkeypatch.setattr(tma, "tensor_map", tensor_map)
    monkeypatch.setattr(ladder, "timed", lambda work: (packing._map(as_array, work()), 1.25))
    return found


@pytest.mark.parametrize("keep,group", PATTERNS)
@pytest.mark.parametrize("name", [name for name in RUNGS if name != "cluster"])
def test_bind_asks_for_a_listed_entry(loaded, name, keep, group):
    p = on_fake_gpu(operands.problem(128, 300, 500, keep / group))
    bound = ladder.bind(name, p, H200)
    ((kernel, config, given),) = bound.steps
    ((cubin, shared),) = loaded.cubins
    assert kernel == cubin.entry in family.KERNELS[name].entries and bound.name == name
    t = arguments(kernel)
    if name not in STREAMS:
        assert config.grid[:2] == (math.ceil(128 / t["BM"]), math.ceil(300 / t["BN"]))
    threads = t["BM"] * t["BN"] // (t["TM"] * t["TN"])
    assert config.block == (threads, 1, 1) and config.shmem_size == shared <= MOST
    ops, packed, a, *_ = bound.keep
    assert (packed.rows, packed.depth) == (t["ROWS"], t["DEPTH"])
    assert (packed.slot, packed.columns) == (t["SLOT"], t["BN"])
    assert not packed.packed and packed.steps == math.ceil(500 / t["DEPTH"])
    assert bound.prepare_bytes == packed.nbytes and bound.prepare_ms == 1.25
    pointers = packed.val.data.ptr, packed.index.data.ptr, bound.result().data.ptr
    assert not bound.accumulates and given[-1] == pointers[-1]
    if name in COPIES:
        assert list(given[:6]) == [128, 300, 500, packed.steps, 128, 1] and not loaded.maps
        assert given[6:] == (ops.a.data.ptr, *pointers)
    else:
        assert list(given[:4]) == [128, 300, packed.steps, 1] and given[4] == "map"
        assert given[5:7] == pointers[:2] and (len(given) == 8 or name in STREAMS)
        ((rows_of_a, box),) = loaded.maps
        assert rows_of_a.shape == (500, 128) and box == (t["DEPTH"], t["BM"])
        assert np.shares_memory(rows_of_a, ops.a)


def small_gpu(sms: int) -> SimpleNamespace:
    properties = SimpleNamespace(**vars(H200.properties) | {"multiprocessor_count": sms})
    return SimpleNamespace(**vars(H200) | {"properties": properties})


@pytest.mark.parametrize("sms,blocks", [(3, 1), (2, 2), (64, 1), (6, 1)])
@pytest.mark.parametrize("unroll", [0, 8])
def test_a_stream_has_a_list_and_a_place_for_each_block(loaded, sms, blocks, unroll):
    """6 tiles of 8 steps: on 3, 4 and 6 blocks, or as many as there is work for."""
    p = on_fake_gpu(operands.problem(260, 500, 497, 0.375))
    config = replace(RUNGS["stream"][0], blocks=blocks, unroll=unroll, stages=2)
    bound = ladder.bind_config("some", p, small_gpu(sms), config)
    ((kernel, launch, given),) = bound.steps
    _, packed, _, (table, partial, handovers), _ = bound.keep
    assert kernel.startswith("stream<")
    np.testing.assert_array_equal(table, schedule.parts(3, 2, 8, sms * blocks))
    assert table.dtype == np.int32 and table.flags.c_contiguous
    assert launch.grid == (len(table), 1, 1) and len(table) == min(sms * blocks, 6 * 8 // 3)
    assert launch.block == (256, 1, 1)
    assert partial.shape == (len(table), 128, 256) and partial.dtype == np.float32
    assert handovers.shape == (len(table), 8, 2), "counts for every warp"
    assert handovers.dtype == np.uint32 and not handovers.any()
    # 16 windows of 12 rows, two a step: the last one is whole, and padded to no more.
    expected = (
        260,
        500,
        8,
        1.0,
        "map",
        packed.val.data.ptr,
        packed.index.data.ptr,
        24,
        table.data.ptr,
        table.shape[1],
        partial.data.ptr,
        handovers.data.ptr,
        bound.result().data.ptr,
    )
    assert given == expected
    for at in (0, 1, 2, 7, 9):
        assert type(given[at]) is np.int32, "an int of the kernel"
    assert type(given[3]) is np.float32 and all(type(given[at]) is int for at in (5, 6, 8, 10, 11, 12))


def test_a_stream_leaves_out_padding_in_a_tiles_last_step(loaded):
    """k = 95 at 16:32 is three windows, two a step: 16 rows of the second one's 32, all where they are one body."""
    for name, rows in (("rolled", 16), ("turned", 16), ("stream", 32)):
        bound = ladder.bind(name, on_fake_gpu(operands.problem(128, 64, 64 + 31, 0.5)), H200)
        assert bound.steps[0][2][7] == rows


@pytest.mark.parametrize("name", TRIALS)
def test_bind_takes_trials(loaded, name):
    bound = ladder.bind(name, on_fake_gpu(operands.problem(128, 300, 500, 0.25)), H200)
    config = TRIALS[name][0]
    ((kernel, _, _),) = bound.steps
    assert bound.name == name and kernel == family.entry(config, 8, 32)
    shallow = fitting(config, 16, 32)
    bound = ladder.bind(name, on_fake_gpu(operands.problem(128, 300, 500, 0.5)), H200)
    assert bound.steps[0][0] == family.entry(shallow, 16, 32)
    assert (shallow != config) == (name == "deep"), "three windows of 75% fit, of 50% two do"


@pytest.mark.parametrize("name", ["bulk", "turned"])
@pytest.mark.parametrize("m,lda", [(61, 64), (64, 64)])
def test_a_copy_of_a_is_read_as_it_lies(loaded, monkeypatch, m, lda, name):
    """Where m is no multiple of 4, or A begins between two multiples of 16 bytes."""
    copied = np.zeros((96, lda), np.float32).view(type(as_array(np.zeros(1))))
    monkeypatch.setattr(pitch, "aligned", lambda a, device: (copied, lda, [("copy", None, ())]))
    bound = ladder.bind(name, on_fake_gpu(operands.problem(m, 64, 96, 0.5)), H200)
    assert bound.steps[0][0] == "copy" and ("false>" in bound.steps[1][0]) == (m % 4 != 0)
    ((rows_of_a, _),) = loaded.maps
    assert rows_of_a.shape == (96, m) and np.shares_memory(rows_of_a, copied)


def test_bind_refuses_what_it_does_not_multiply(loaded):
    half = on_fake_gpu_half(operands.problem(64, 64, 64, dtype="bfloat16"))
    with pytest.raises(ValueError, match="^bulk multiplies float32 by N:M, not bfloat16: use bf16"):
        ladder.bind("bulk", half, H200)
    p = on_fake_gpu(operands.problem(64, 64, 64))
    for name in ("ahead", "turned"):
        with pytest.raises(ValueError, match=f"^{name} needs the copy engine of sm_90a, .*: use wide$"):
            ladder.bind(name, p, A100)
    b = nm.random(1024, 64, 100, 512, 32, 0)
    with pytest.raises(ValueError, match="^a step of 100:512 needs 512 rows of A"):
        ladder.bind("wide", on_fake_gpu(operands.problem_from_nm(b, 64)), H200)
    assert not loaded.cubins


def on_fake_gpu_half(p):
    return replace(p, make_device=p.make_host)


# ------------------------------------------------------------------------------------- on a GPU


@pytest.fixture(scope="module")
def rungs(device):
    """Those that this GPU takes, with what ragged sizes ask for compiled at once."""
    arch = jit.arch_of(device)
    names = [name for name, (config, *_) in RUNGS.items() if config.kernel == "wide" or arch in HOPPER]
    compile_all(device, names, [(keep, 32, 32, False) for keep in (4, 8, 12, 16)])
    return names


def compile_all(device, names, patterns) -> None:
    """At once, in threads: what `bind` would compile one by one. patterns: arguments of `family.entry`."""
    entries = set()
    for name in names:
        config = (RUNGS | TRIALS)[name][0]
        for pattern in patterns:
            fits = fitting(config, *pattern[:3])
            entries.add((family.source(config), family.entry(fits, *pattern)))
    compiled.cubins(sorted(entries), [jit.arch_of(device)])


def product(p) -> np.ndarray:
    host = p.host()
    return host.a.astype(np.float64) @ nm.to_dense(host.b).astype(np.float64)


def try_problem(p, device, names) -> None:
    exact = product(p)
    for name in names:
        try_bound(ladder.bind(name, p, device), p, device, exact)
    p.release()


def try_bound(bound, p, device, exact) -> None:
    """C is full of NaN before a launch; two launches give the exact product, bit by bit."""
    b, stream = p.host().b, device.create_stream()
    for _ in range(2):
        bound.result().fill(math.nan)
        device.sync()
        bound.launch(stream)
        stream.sync()
        wrong = bound.result().get() != exact
        assert not wrong.any(), (
            f"{bound.name} on {b.keep}:{b.group} in vectors of {b.vector}: m={p.m}, n={p.n}, k={p.k}, "
            f"seed {SEED}: {wrong.sum()} of {wrong.size} elements are wrong, the first at "
            f"{tuple(np.argwhere(wrong)[0])}"
        )


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
def test_every_trial(device):
    if jit.arch_of(device) not in HOPPER:
        pytest.skip("this GPU has no copy engine")
    keeps = (16, 12, 8, 4)
    compile_all(device, TRIALS, [(keep, 32, 32, True) for keep in keeps])
    for keep in keeps:
        try_problem(make_problem(1100, 1300, 1000, keep, 32, 32), device, TRIALS)


#: m, n, k on so many multiprocessors, in tiles of 128 x 256 and steps of 64.
STREAMED = {
    "a step in all": lambda sms: (100, 200, 50),
    "eight tiles of a step": lambda sms: (512, 512, 64),
    "eight tiles": lambda sms: (512, 512, 4096),
    "one tile less than blocks": lambda sms: (128 * (sms - 1), 256, 320),
    "as many tiles as blocks": lambda sms: (128 * sms, 256, 320),
    "one tile more": lambda sms: (128 * (sms + 1), 256, 320),
    "two waves and a tile, ragged": lambda sms: (128 * (2 * sms + 1) - 3, 250, 333),
    "512 tiles of a step": lambda sms: (4096, 4096, 64),
    "512 tiles of four steps": lambda sms: (4096, 4096, 256),
}


@gpu
@pytest.mark.parametrize("size", STREAMED)
@pytest.mark.parametrize("name", ["stream", "turned"])
def test_streams_follow_each_other_without_a_pause(device, rungs, name, size):
    """Twenty launches that nothing waits for in between. Before each, C and the workspace are full of NaN: what
    a launch did not write itself would show. Sums are taken as often as they are left, once in each launch."""
    if name not in rungs:
        pytest.skip("this GPU has no copy engine")
    import cupy

    p = make_problem(*STREAMED[size](device.properties.multiprocessor_count), 8, 32, 32)
    bound, exact = ladder.bind(name, p, device), cupy.asarray(product(p))
    _, partial, handovers = bound.keep[3]
    wrong, uneven = cupy.zeros(20, np.int64), cupy.zeros(20, np.int64)
    device.sync()
    with cupy.cuda.Stream() as current:
        stream = device.create_stream(jit.StreamAt(current.ptr))
        for i in range(20):
            bound.result().fill(math.nan)
            partial.fill(math.nan)
            bound.launch(stream)
            wrong[i] = (bound.result() != exact).sum()
            left, taken = handovers[..., 0], handovers[..., 1]
            uneven[i] = ((left != taken) | (left != 0) & (left != i + 1)).sum()
        for _ in range(20):  # and with nothing at all in between
            bound.launch(stream)
    device.sync()
    assert wrong.get().tolist() == [0] * 20, f"{name}, {size}, seed {SEED}"
    assert uneven.get().tolist() == [0] * 20, f"{name}, {size}, seed {SEED}"
    assert bool((bound.result() == exact).all())
    assert set(np.unique(handovers.get())) <= {0, 40}, f"{name}, {size}, seed {SEED}"
    p.release()


@gpu
@pytest.mark.parametrize("first", [0, 2**32 - 3])
@pytest.mark.parametrize("name", ["stream", "turned"])
def test_streams_overlap(device, rungs, name, first):
    """One Bound on four streams at once, and replayed from two graphs meanwhile: launches that take each other's sums
    find the same ones, and none waits for ever. first: counts that are about to pass 2^32 as well."""
    if name not in rungs:
        pytest.skip("this GPU has no copy engine")
    import cupy

    sms = device.properties.multiprocessor_count
    # Tiles that many blocks share, and two launches that fit the GPU at once; then all blocks and more than a wave.
    for m, n, k in ((512, 512, 4096), (128, 256, 640), (128 * (sms + 1), 256, 320)):
        p = make_problem(m, n, k, 8, 32, 32)
        bound, exact = ladder.bind(name, p, device), cupy.asarray(product(p))
        bound.keep[3][2].fill(first)
        bound.result().fill(math.nan)
        streams = [device.create_stream() for _ in range(4)]
        graphs = [bench.capture(name, bound, streams[0]) for _ in range(2)]
        device.sync()
        for _ in range(50):
            for stream in streams:
                bound.launch(stream)
            for graph, stream in zip(graphs, streams, strict=False):
                graph.launch(stream)
        device.sync()
        wrong = int((bound.result() != exact).sum())
        assert not wrong, f"{name} at {m}, {n}, {k}: {wrong} elements, seed {SEED}"
        # And nothing is left that a launch on its own would stumble over.
        left, taken = bound.keep[3][2][..., 0], bound.keep[3][2][..., 1]
        assert bool((left == taken).all())
        try_bound(bound, p, device, product(p))
        p.release()


@gpu
@pytest.mark.parametrize("name", ["stream", "turned"])
def test_a_stream_is_replayed_from_a_graph(device, rungs, name):
    """Arguments that never change: with other values in B each time, so that sums of the launch before would show."""
    if name not in rungs:
        pytest.skip("this GPU has no copy engine")
    import cupy

    p = make_problem(512, 512, 4096, 8, 32, 32)
    bound, exact, stream = ladder.bind(name, p, device), product(p), device.create_stream()
    graph, values = bench.capture(name, bound, stream), bound.keep[1].val
    for factor in (1, 2, -1, 3, 1):
        was = values.copy()
        values *= np.float32(factor)
        bound.result().fill(math.nan)
        device.sync()
        for _ in range(3):
            graph.launch(stream)
        stream.sync()
        assert bool((bound.result() == cupy.asarray(exact * factor)).all()), f"{name}, {factor}"
        values[...] = was
        cupy.cuda.get_current_stream().synchronize()
    p.release()


@gpu
@pytest.mark.parametrize("blocks", [1, 2])
def test_a_stream_with_blocks_that_share_a_multiprocessor(device, rungs, blocks):
    """128 x 128 tiles, and less than a tile for each block."""
    if "stream" not in rungs:
        pytest.skip("this GPU has no copy engine")
    for m, n, k, keep in ((1000, 1000, 1000, 16), (2100, 2050, 300, 4)):
        p = make_problem(m, n, k, keep, 32, 32)
        config = replace(RUNGS["rolled"][0], bn=128, depth=32, blocks=blocks)
        try_bound(ladder.bind_config("stream", p, device, config), p, device, product(p))


@gpu
def test_long_products_turn_the_ring_over(device, rungs):
    for k in (4096, 4095, 6 * 64, 2 * 64 + 1):
        try_problem(make_problem(260, 300, k, 16, 32, 32), device, rungs)


@gpu
@pytest.mark.parametrize("split", [2, 4, 8])
def test_shares_of_a_cluster_without_steps(device, rungs, split):
    """k of fewer steps than blocks: the others add zeros. Small tiles, and large ones in a loop."""
    if "cluster" not in rungs:
        pytest.skip("this GPU has no clusters")
    small, large = (replace(RUNGS[name][0], kernel="cluster", split=split) for name in ("cluster", "turned"))
    for k in (1, 32, 33, 96, 1000):
        p = make_problem(70, 100, k, 8, 32, 32)
        for config in (small, large):
            try_bound(ladder.bind_config("cluster", p, device, config), p, device, product(p))


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
    for m, n in ((61, 33), (64, 128), (36, 40)):
        p, margins = among_sevens(make_problem(m, n, 100, 4, 32, 32))
        try_problem(p, device, rungs)
        assert all(bool((margin == 7).all()) for margin in margins)


# ------------------------------------------------------------------------------- wrong on purpose

#: A bug -> the file where it would be, the text there, the text instead, a rung that has it.
MUTANTS = {
    "next_row_of_b": ("fragments.cuh", "b + (q + s + 1) * T::BN", "b + (q + s) * T::BN", "banks"),
    "indices_of_the_first_rows": ("fragments.cuh", "now = next", "now = now", "wide"),
    "last_column_lost": ("sums.cuh", "column < n &&", "column + 1 < n &&", "bulk"),
    "step_before_again": ("ring.cuh", "copy(where(step - 1 +", "copy(where(step - 2 +", "ahead"),
    "rows_of_the_body_before": ("fragments.cuh", "const int q = u + v;", "const int q = v;", "turned"),
    "step_of_another_part": ("stream.cu", "p->first + position - p->start", "position - p->start", "rolled"),
    "helper_forgotten": ("stream.cu", "= blockIdx.x - part.others;", "= blockIdx.x - part.others + 1;", "turned"),
    "head_without_its_end": ("stream.cu", "part.others < 0 ? ROWS : tail", "tail", "turned"),
    "rows_of_another_thread": ("stream.cu", "T::BM + t.m + T::DOWN * c", "T::BM + t.m + c", "rolled"),
    "share_of_rank_0_only": ("cluster.cu", "BM + down, r)", "BM + down, 0)", "cluster"),
    "cuts_lose_a_step": ("cluster.cu", "(steps + SPLIT - 1) / SPLIT", "steps / SPLIT", "cluster"),
    "scaled_by_more_than_alpha": ("sums.cuh", "acc[j][i] *= alpha", "acc[j][i] *= 1.001f", "bulk"),
}


@pytest.fixture
def mutant(monkeypatch, tmp_path):
    """mutant(bug): from now on the ladder compiles sources with one text changed, which must be there once."""

    def change(bug: str) -> str:
        *edit, name = MUTANTS[bug]
        compiled.changed(family.HERE, tmp_path, *edit)
        changed = {kernel: tmp_path / path.name for kernel, path in family.SOURCES.items()}
        monkeypatch.setattr(family, "SOURCES", changed)
        return name

    return change


@pytest.mark.parametrize("bug", MUTANTS)
def test_a_wrong_kernel_compiles(mutant, bug):
    """Without a GPU as well: it must be the check that refuses it, not the compiler."""
    config = RUNGS[MUTANTS[bug][3]][0]
    entry = family.entry(config, 8, 32)
    before = jit.compile_cubin(family.source(config), entry, "sm_90a").code
    mutant(bug)
    assert jit.compile_cubin(family.source(config), entry, "sm_90a").code != before


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
