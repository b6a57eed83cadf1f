"""What the tuner tries, how candidates are ranked, and the room's side of choosing and keeping."""

from __future__ import annotations

from dataclasses import replace
from math import ceil, exp, log, nan
from types import SimpleNamespace

import compiled
import numpy as np
import pytest
import racing
from hypothesis import given, settings
from hypothesis import strategies as st
from racing import A100, H100_PCIE, H200, L4
from test_published import make_problem

from artifact.measure import check
from artifact.measure import device as gpus
from kernels import jit, tuning
from kernels import nm_spmm as room
from kernels.contract import Operands
from kernels.formats import nm
from kernels.nm_spmm import family, ladder, launch, published
from kernels.nm_spmm.family import Config

SMS, MOST, MEMORY = 132, 232_448, 233_472
#: m, n, k, keep, group, vector
POINTS = sorted(
    {
        (s["m"], s["n"], s["k"], round(s["density"] * s.get("group", 32)), s.get("group", 32), s.get("vector", 32))
        for experiment, shapes in room.sweeps("full").items()
        if experiment != "tensor"
        for s in shapes
    }
    | {(1, 1, 1, 1, 4, 32), (129, 1, 10**6, 4, 32, 32), (10**6, 4, 1, 16, 32, 32), (77, 10**6, 100, 5, 7, 8)}
)


def matrix(n: int, k: int, keep: int = 16, group: int = 32, vector: int = 32) -> SimpleNamespace:
    """What the tuner looks at of B."""
    return SimpleNamespace(n=n, k=k, keep=keep, group=group, vector=vector, w=ceil(k / group) * keep)


def problem(m=512, n=256, k=1024, keep=16, group=32, vector=32):
    made = room.problem(m, n, k, keep / group, group=group, vector=vector)
    ops = Operands(None, matrix(n, k, keep, group, vector))
    return replace(made, make_device=lambda: ops)


def predicted(config: Config, m: int, n: int, k: int, keep=16, group=32, sms=SMS) -> float:
    return family.predict(config, m, n, matrix(n, k, keep, group), 32, sms, MEMORY)


def takes(config: Config, point: tuple, most: int = MOST) -> bool:
    *_, keep, group, vector = point
    try:
        family.check(config, keep, group, 32 if vector % 32 == 0 else 4, most)
    except ValueError:
        return False
    return True


# ------------------------------------------------------------------------------------- what is tried


@pytest.mark.parametrize("device", [H200, H100_PCIE], ids=lambda device: device.name)
def test_every_candidate_takes_the_problem_and_none_is_far_from_the_best(device):
    sms, kernels = device.properties.multiprocessor_count, set()
    for point in POINTS:
        m, n, k, keep, group, vector = point
        found = family.candidates(problem(*point), device)
        assert found and len(set(found)) == len(found), point
        assert all(takes(config, point) for config in found)
        kernels |= {config.kernel for config in found}
        b, slot = matrix(n, k, keep, group, vector), 4 if vector % 32 else 32
        times = [family.predict(c, m, n, b, slot, sms, MEMORY) for c in found]
        assert times == sorted(times) and times[-1] <= family.WITHIN * times[0], point
        assert len(found) <= family.MOST_SHORT
        assert len(found) <= family.MOST or times[0] < family.SHORT_CYCLES
    assert kernels == {"bulk", "stream", "cluster"}, "each has its sizes"


@pytest.mark.parametrize("device", [A100, L4], ids=lambda device: device.name)
def test_a_gpu_without_the_copy_engine_tries_copies_of_its_own(device):
    most = device.properties.max_shared_memory_per_block_optin
    for point in (
        (512, 512, 512, 16, 32, 32),
        (4096, 4096, 4096, 4, 32, 32),
        (333, 777, 1111, 2, 4, 4),
    ):
        found = family.candidates(problem(*point), device)
        assert found and {config.kernel for config in found} == {"wide"}
        assert set(found) <= set(family.WIDE) and all(takes(c, point, most) for c in found)


PATTERNS = [(32, 32), (16, 32), (12, 32), (4, 32), (2, 4), (1, 16), (5, 7)]


def tile(c: Config) -> tuple[int, ...]:
    return c.bm, c.bn, c.tm, c.tn, c.blocks


@pytest.mark.parametrize("keep,group", PATTERNS)
def test_the_family_is_of_tiles_that_a_kernel_can_have(keep, group):
    found = family.members(keep, group)
    assert len(set(found)) == len(found) and {c.split for c in found} == set(family.SPLITS)
    assert {tile(c) for c in found} == set(family.TILES), "each has its place"
    for c in found:
        assert (c.kernel == "cluster") == (c.split > 1) and c.stages >= 3 and not c.ahead and c.banks
        assert c.tm % 4 == 0 and c.tn in (8, 16) and c.depth in family.DEPTHS
        assert c.bm % (c.tn * c.tm) == 0 and c.bn % 32 == 0 and c.bm <= 256, "whole warps, one box"
        assert c.bn % c.split == 0 and c.threads % 32 == 0 and c.threads <= 1024
        assert c.blocks * c.threads <= 2048


@pytest.mark.parametrize("keep,group", PATTERNS)
def test_a_tile_that_fills_a_multiprocessor_has_even_work_and_a_short_loop(keep, group):
    """As a stream, or with its steps cut in two; smaller ones have many waves, and steps unrolled whole."""
    found = family.members(keep, group)
    large, small = ([c for c in found if (c.blocks == 1) == one] for one in (True, False))
    assert {(c.kernel, c.split) for c in large} == {("stream", 1), ("cluster", 2)}
    for c in large:
        rows = family.rows(c, keep, group)
        assert 4 <= c.unroll <= max(family.BODIES) and rows % c.unroll == 0
        assert family.unrolled(c, keep, group) == c.unroll, "what is written down is what runs"
        assert c.unroll == 12 or rows % 8 or c.unroll == 8, "the longest of its kind"
    assert {c.kernel for c in small} == {"bulk", "cluster"}
    for c in small:
        assert c.unroll == 0
        rows = family.rows(c, keep, group)
        assert rows <= family.MOST_ROWS or c.depth == min(family.DEPTHS), "no more code than that"


def test_a_split_needs_steps_to_share():
    assert max(c.split for c in family.candidates(problem(512, 512, 4096), H200)) > 1
    assert max(c.split for c in family.candidates(problem(512, 512, 32), H200)) == 1


@pytest.mark.parametrize(("slot", "knobs"), [(32, ("kernel", "tm", "tn")), (4, ("kernel",))], ids=["32", "4"])
def test_the_familys_kernels_do_not_spill(slot, knobs):
    """The paper's 50% in deep steps: of each kernel with each work of a thread (of each kernel, where vectors are
    narrow) the tile that leaves a thread the fewest registers, in the longest body."""
    configs = [
        c
        for c in family.members(16, 32)
        if c.depth == 96 and c.stages == 3 and c.split in (1, 2 if c.blocks == 1 else 4)
    ]
    assert {(tile(c), c.split > 1) for c in configs} == {(t, s) for t in family.TILES for s in (False, True)}
    assert {c.unroll for c in configs} == {0, *family.BODIES}
    configs.sort(key=lambda c: (c.threads * c.blocks, c.bm * c.bn, c.unroll))
    hardest = {tuple(getattr(c, knob) for knob in knobs): c for c in configs}.values()
    assert len(hardest) == (8 if slot == 32 else 3)
    entries = {(family.source(c), family.entry(c, 16, 32, slot)): c for c in hardest}
    reports = compiled.reports(compiled.cubins(entries, family.HOPPER))
    for (_, entry), c in entries.items():
        used, _ = reports[entry, "sm_90a"]
        assert not used.spills and used.registers * c.threads * c.blocks <= 2**16, entry


# ---------------------------------------------------------------------------------- the prediction

FAMILY = family.members(16, 32)
#: 1 to 20,000, small ones as often as large ones.
SIZES = st.floats(0, log(20_000)).map(lambda x: round(exp(x)))


@given(config=st.sampled_from(FAMILY), m=SIZES, n=SIZES, k=SIZES)
@settings(deadline=None, max_examples=500)
def test_more_work_is_never_predicted_to_be_faster(config, m, n, k):
    time = predicted(config, m, n, k)
    assert time > 0
    assert predicted(config, m, n, 2 * k) >= time
    assert predicted(config, m, n, k, keep=32) >= time
    # A stream pays for sums that all pass through L2 until there is a tile for each block, and no longer.
    relief = 20 * config.bm * config.bn / 32 if config.kernel == "stream" else 0
    assert predicted(config, 8 * m, n, k) >= time - relief
    assert predicted(config, m, 8 * n, k) >= time - relief


def test_a_stream_takes_the_time_of_its_steps_and_a_bulk_that_of_its_waves():
    """Of the same tiles: a wave of all, and one of a single tile. Where waves are whole, streams gain nothing."""
    stream = next(c for c in FAMILY if c.kernel == "stream" and c.depth == 64)
    bulk = replace(stream, kernel="bulk")
    for waves, rest, least, most in (
        (1, 1, 0.5, 0.62),
        (3, 1, 0.75, 0.82),
        (1, 0, 0.98, 1.05),
        (4, 0, 0.95, 1.05),
    ):
        m = (waves * SMS + rest) * stream.bm
        share = predicted(stream, m, stream.bn, 16384) / predicted(bulk, m, stream.bn, 16384)
        assert least < share < most, (waves, rest, share)


def ranked(m: int, n: int, k: int, keep: int = 16) -> list[Config]:
    point = (m, n, k, keep, 32, 32)
    taken = [c for c in family.members(keep, 32) if takes(c, point)]
    return sorted(taken, key=lambda c: predicted(c, m, n, k, keep))


@pytest.mark.parametrize("keep", [16, 12, 8])
@pytest.mark.parametrize("size", [4096, 8192])
def test_large_products_want_large_tiles_that_nobody_shares(size, keep):
    best = ranked(size, size, size, keep)[0]
    assert best.bm * best.bn >= 128 * 128 and best.tm * best.tn == 128 and best.split == 1
    assert best.kernel == "stream", "and no wave that is not full"
    found = family.candidates(problem(size, size, size, keep), H200)
    assert {(8, 16), (16, 8)} <= {(c.tm, c.tn) for c in found if c.bm * c.bn == 128 * 256}
    turned = family.RUNGS["turned"][0]
    assert any(c == replace(turned, depth=c.depth) for c in found), "the ladder's own is tried"


def test_small_products_want_tiles_or_parts_for_every_multiprocessor():
    """512 cubed has 8 tiles of 128 x 256 for 132 multiprocessors."""
    for keep in (16, 4):
        best = ranked(512, 512, 512, keep)[0]
        assert ceil(512 / best.bm) * ceil(512 / best.bn) * best.split >= 60
        found = family.candidates(problem(512, 512, 512, keep), H200)
        assert not any(c.split == 1 and c.bm * c.bn >= 128 * 256 for c in found)


def test_the_prediction_is_of_the_measured_size():
    """4096 cubed at 50%: 2.8 ms at the peak of 128 multiply-adds a cycle, and 55 to 100% of it is reached."""
    least = 4096**3 / 2 / 128 / SMS
    assert 1 < predicted(ranked(4096, 4096, 4096)[0], 4096, 4096, 4096) / least < 1.8


# ----------------------------------------------------------------------------------------- trials


@pytest.fixture
def trials(monkeypatch):
    """tune without a GPU: a configuration takes what its place in the family says."""
    bound = []

    def ready(name, config=None):
        bound.append((name, config))
        return SimpleNamespace(name=name, prepare_ms=1.0)

    monkeypatch.setattr(ladder, "bind_config", lambda name, p, device, config: ready(name, config))
    monkeypatch.setattr(published, "bind", lambda name, p, device: ready(name))
    made = racing.track(monkeypatch, lambda config, rounds: 100.0 + order(config))
    made.bound = bound
    return made


def order(config: Config) -> int:
    """Some order of what may be tried."""
    known = [c for pattern in ((16, 32), (8, 32), (8, 16)) for c in family.members(*pattern)]
    return list(dict.fromkeys(known)).index(config)


def test_the_fastest_candidate_is_chosen_checked_against_the_papers_kernel(trials):
    p = problem(4096, 4096, 4096)
    found = family.candidates(p, H200)
    assert launch.tune(p, H200).config == min(found, key=order)
    assert trials.bound == [
        ("v1", None),
        ("v1", None),
        *(("trial", config) for config in found),
        ("v1", None),
        ("trial", min(found, key=order)),
    ], "the reference without signs, too, and both on whole numbers"
    (first, few), (final, more) = trials.heats
    finalists = family.ROUNDS.finalists * family.ROUNDS.factor
    assert set(first) == set(found) and len(final) == min(finalists, len(found)) and few < more
    assert {job[:2] for job in trials.compiled} == {(family.source(c), family.entry(c, 16, 32)) for c in found}
    p, trials.compiled[:] = problem(m=513), []
    launch.tune(p, H200)
    assert {entry for _, entry, _ in trials.compiled} == {
        family.entry(c, 16, 32, aligned=False) for c in family.candidates(p, H200)
    }, "rows that 16-byte stores do not fit"


def test_where_nothing_takes_the_problem_it_is_said(trials):
    p = problem(keep=64, group=512)
    assert family.candidates(p, H200) == []
    with pytest.raises(ValueError, match="^no configuration takes 64:512 on this GPU") as caught:
        launch.tune(p, H200)
    assert "\n" not in str(caught.value)


def test_bind_tunes_once_and_reads_from_then_on(trials, tmp_path):
    p, path = problem(), tmp_path / "deep" / "choices.csv"
    first = launch.bind_auto("auto", p, H200, file=path)
    heats = len(trials.heats)
    assert heats >= 2 and path.is_file()
    (choice,) = read(path).values()
    tried = len(trials.bound)
    second = launch.bind_auto("auto", p, H200, file=path)
    assert len(trials.heats) == heats and len(trials.bound) == tried + 1, "tried again"
    assert trials.bound[-1] == trials.bound[-2] == ("auto", choice.config)
    assert first.prepare_ms > 1.0 and second.prepare_ms == 1.0, "trials count as preparation"
    for other in (problem(k=2048), problem(keep=8), problem(vector=64), problem(keep=8, group=16)):
        launch.bind_auto("auto", other, H200, file=path)
    assert len(read(path)) == 5, "other sizes and other patterns are other problems"


# -------------------------------------------------------------------------------------- the file


KEPT = racing.Kept(family)
read, write, look_up = KEPT.read, KEPT.write, KEPT.look_up


def test_every_configuration_is_read_as_it_was_written(tmp_path):
    configs = {*FAMILY, *family.WIDE, Config(banks=False), *(c for c, *_ in family.RUNGS.values())}
    for config in configs:
        assert tuning.choices.parse_knobs(tuning.knobs(config), Config) == config
    path = tmp_path / "choices.csv"
    write(path, problem(), FAMILY[-1])
    assert [(key, c.config) for key, c in read(path).items()] == [((512, 256, 1024, 16, 32, 32), FAMILY[-1])]
    assert path.read_text().startswith(
        "m,n,k,keep,group,vector,nvrtc,kernels,median_us,family,knobs\n512,256,1024,16,32,32,"
    )


@pytest.fixture
def folders(tmp_path, monkeypatch):
    return KEPT.in_folders(monkeypatch, tmp_path)


def test_a_choice_is_for_its_sizes_and_its_pattern(folders):
    for kernel in ("wide", "bulk", "stream", "cluster"):
        config = Config(kernel, depth=32, bn=128)
        write(folders[1] / "nvidia-h200.csv", problem(), config)
        assert look_up(problem(), H200) == config
    for other in (
        problem(m=513),
        problem(n=257),
        problem(k=1025),
        problem(keep=12),
        problem(keep=8, group=16),
        problem(vector=64),
    ):
        assert look_up(other, H200) is None


def test_a_choice_from_before_a_knob_is_one_with_its_default(folders):
    path = folders[1] / "nvidia-h200.csv"
    write(path, problem(), Config())
    path.write_text(path.read_text().replace(" split=1 unroll=0", ""))
    assert look_up(problem(), H200) == Config(unroll=0, split=1)


def test_a_choice_that_the_gpu_does_not_take_is_made_again(folders, trials):
    """Edited by hand, of other kernels, or from another GPU."""
    p = problem()
    for config in (Config(stages=8), Config(stages=2), Config("stream", stages=2), Config(depth=512), Config("gone")):
        write(folders[1] / "nvidia-h200.csv", p, config)
        assert look_up(p, H200) is None, config
    launch.bind_auto("auto", p, H200)
    assert trials.heats and trials.bound[-1][1] in family.candidates(p, H200)
    assert look_up(p, H200) == trials.bound[-1][1], "the own one comes first now"
    assert (folders[0] / "nvidia-h200.csv").is_file()


def test_a_choice_for_hopper_is_none_for_another_gpu(folders):
    for device in (A100, L4):
        path = folders[1] / f"{gpus.slug(device.name)}.csv"
        for config, taken in (
            (Config(depth=32, bn=128), False),
            (Config("stream", depth=32, bn=128), False),
            (family.WIDE[-2], True),
        ):
            write(path, problem(), config)
            assert look_up(problem(), device) == (config if taken else None)


def test_a_choice_is_of_the_kernels_that_it_was_tried_against():
    """Without the copy engine that is wide.cu alone; with it, the three others."""
    names = {c.kernel: {path.name for path in family.sources(c)} for c in (*FAMILY, *family.WIDE)}
    assert names.pop("wide") == {"wide.cu"}
    assert set(names) == {"bulk", "stream", "cluster"}
    assert all(found == {f"{name}.cu" for name in names} for found in names.values())


def test_shipped_choices_are_the_points_of_the_sweeps_and_fit_their_gpu():
    shipped = {path.stem: read(path) for path in family.CHOICES.shipped.glob("*.csv")}
    assert set(shipped) == set(racing.SHIPPED)
    for gpu, choices in shipped.items():
        assert gpu == gpus.slug(racing.SHIPPED[gpu].name) and choices
        for point, choice in choices.items():
            assert choice.median_us > 0 and takes(choice.config, point), point
        swept = {
            (s["m"], s["n"], s["k"], round(s["density"] * s.get("group", 32)), s.get("group", 32), s.get("vector", 32))
            for experiment, shapes in room.sweeps("full").items()
            if experiment not in ("tensor", "packing", "tried")
            for s in shapes
        }
        assert swept <= set(choices) or gpu != racing.WHOLE, "records of `auto` would begin with trials"


# ------------------------------------------------------------------------------------- on a GPU


@pytest.mark.gpu
@pytest.mark.parametrize(
    "shape",
    [(512, 512, 512, 0.5, 32, 32), (1000, 1000, 1000, 0.125, 32, 32), (333, 777, 1111, 0.25, 16, 8)],
    ids=str,
)
def test_the_second_bind_is_quick_and_both_are_right(device, tmp_path, shape):
    m, n, k, density, group, vector = shape
    path, stream = tmp_path / "choices.csv", device.create_stream()
    p = room.problem(m, n, k, density, 7, group=group, vector=vector)
    reference = check.oracle(p)
    first = launch.bind_auto("auto", p, device, file=path)
    assert check.check(first, p, reference, stream).rel_err > 0
    text, (choice,) = path.read_text(), read(path).values()
    assert choice.config in family.candidates(p, device) and 1 < choice.median_us < 10_000
    second = launch.bind_auto("auto", p, device, file=path)
    assert check.check(second, p, reference, stream).rel_err > 0
    assert path.read_text() == text and first.name == second.name == "auto"
    assert second.prepare_ms < first.prepare_ms / 2, "no trial, nothing to compile"


@pytest.mark.gpu
def test_the_choice_is_among_the_fastest(device):
    """Timed once more, by the harness: within a quarter of the best of all candidates."""
    from artifact.measure import bench

    p = room.problem(2048, 2048, 2048, 0.25, 3)
    choice = launch.tune(p, device)
    bounds = {str(c): ladder.bind_config(str(c), p, device, c) for c in family.candidates(p, device)}
    times = {name: t.median_us for name, t in bench.time(bounds, device, budget_s=0.5).items()}
    assert times[str(choice.config)] < 1.25 * min(times.values()), times
    assert 0.5 < choice.median_us / times[str(choice.config)] < 2, "the same protocol"


@pytest.mark.gpu
def test_a_candidate_that_multiplies_nothing_is_the_fastest_and_not_chosen(device, monkeypatch):
    p, idle = room.problem(700, 520, 640, 0.25, 3), []
    bind_config = ladder.bind_config

    def bind(name, problem, device, config):
        bound = bind_config(name, problem, device, config)
        if not idle or config in idle:
            idle.append(config)
            bound.steps.clear()
        return bound

    monkeypatch.setattr(ladder, "bind_config", bind)
    with pytest.warns(UserWarning, match="its output is not that of v1"):
        winner = launch.tune(p, device)
    assert winner.config not in idle and winner.median_us > 1


@pytest.mark.gpu
@pytest.mark.parametrize("keep,vector", [(16, 32), (4, 32), (12, 8)])
def test_every_tile_of_the_family_multiplies(device, keep, vector):
    """Alone and in clusters, each in one of its depths and bodies: exact products of small whole numbers."""
    if jit.arch_of(device) not in family.HOPPER:
        pytest.skip("this GPU has no copy engine")
    p, stream = make_problem(700, 900, 1000, keep, 32, vector), device.create_stream()
    most = device.properties.max_shared_memory_per_block_optin
    point = (p.m, p.n, p.k, keep, 32, vector)
    taken = [c for c in family.members(keep, 32) if takes(c, point, most)]
    chosen = {(tile(c), c.kernel, c.split, c.unroll, c.stages): c for c in taken}.values()
    slot = family.slot_of(p.host().b)
    entries = {(family.source(c), family.entry(c, keep, 32, slot)) for c in chosen}
    compiled.cubins(sorted(entries), [jit.arch_of(device)])
    exact = p.host().a.astype(np.float64) @ nm.to_dense(p.host().b)
    assert {tile(c) for c in chosen} == set(family.TILES)
    for c in chosen:
        bound = ladder.bind_config("trial", p, device, c)
        bound.result().fill(nan)
        device.sync()
        bound.launch(stream)
        stream.sync()
        wrong = bound.result().get() != exact
        assert not wrong.any(), f"{c}: {wrong.sum()} of {wrong.size} elements are wrong"
