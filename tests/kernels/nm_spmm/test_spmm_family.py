"""What the tuner tries, how candidates are ranked, and the system's side of choosing and keeping."""

from dataclasses import replace
from math import ceil, exp, log
from types import SimpleNamespace

import compiled
import pytest
import racing
from hypothesis import given, settings, strategies as st
from nm_cases import point
from racing import A100, H100_PCIE, H200, L4
from refused import refused

from artifact.measure import device as gpus, verification
from kernels import autotune, nm_spmm as system
from kernels.autotune import probe
from kernels.contract import Operands
from kernels.nm_spmm import family, launch, published
from kernels.nm_spmm.family import Config

SMS, MOST, MEMORY = 132, 232_448, 233_472
#: m, n, k, keep, group, vector
SWEPT = {
    (s["m"], s["n"], s["k"], round(s["density"] * s.get("group", 32)), s.get("group", 32), s.get("vector", 32))
    for experiment, shapes in system.sweeps("full").items()
    if experiment not in ("tensor", "packing", "tried")
    for s in shapes
}
ODD = {(1, 1, 1, 1, 4, 32), (129, 1, 10**6, 4, 32, 32), (10**6, 4, 1, 16, 32, 32), (77, 10**6, 100, 5, 7, 8)}
PATTERN = st.integers(1, 64).flatmap(lambda group: st.tuples(st.integers(1, group), st.just(group)))


def problem(m=512, n=256, k=1024, keep=16, group=32, vector=32):
    """A problem with what the tuner looks at of B."""
    made = system.problem(m, n, k, keep / group, group=group, vector=vector)
    b = SimpleNamespace(n=n, k=k, keep=keep, group=group, vector=vector, w=ceil(k / group) * keep)
    return replace(made, make_device=lambda: Operands(None, b))


def predicted(config: Config, m: int, n: int, k: int, keep=16, group=32, slot=32, sms=SMS) -> float:
    return family.predict(config, m, n, ceil(k / group) * keep, keep, group, slot, sms, MEMORY)


def takes(config: Config, point: tuple, most: int = MOST) -> bool:
    *_, keep, group, vector = point
    return family.takes(config, keep, group, 4 if vector % 32 else 32, most)


def tile(c: Config) -> tuple[int, ...]:
    return c.bm, c.bn, c.tm, c.tn, c.blocks


# ------------------------------------------------------------------------------------- a step


@given(st.builds(Config, depth=st.integers(1, 200), unroll=st.integers(0, 100)), PATTERN, st.integers(1, 100))
@settings(deadline=None)
def test_steps_are_whole_windows_and_their_loop_ends_with_the_body_of_the_last_row(config, pattern, count):
    """Bodies are the most rows that divide a step, of whole quadruples. count: windows of the matrix."""
    keep, group = pattern
    windows, rows = family.windows(config, group), family.rows(config, *pattern)
    assert windows * group >= config.depth > (windows - 1) * group
    assert rows % 4 == 0 and 0 <= rows - windows * keep < 4
    body = family.unrolled(config, *pattern)
    assert body % 4 == 0 == rows % body and (body == rows if config.unroll == 0 else body <= max(4, config.unroll))
    longer = range(body + 4, min(config.unroll, rows) + 1, 4)
    assert not config.unroll or all(rows % more for more in longer), "a longer one was there"
    left = (count * keep - 1) % (windows * keep) + 1
    found = family.tail(config, *pattern, count * keep)
    assert found % body == 0 and found - body < left <= found <= rows


# ------------------------------------------------------------------------------------- what is tried


@pytest.mark.parametrize("device", [H200, H100_PCIE, A100, L4], ids=lambda device: device.name)
def test_every_candidate_takes_the_problem_and_none_is_far_from_the_best(device):
    properties, hopper = device.properties, device.compute_capability == (9, 0)
    most, found_kernels = properties.max_shared_memory_per_block_optin, set()
    for shape in sorted(SWEPT | ODD):
        m, n, k, keep, group, vector = shape
        found = family.candidates(problem(*shape), device)
        assert found and len(set(found)) == len(found) and all(takes(config, shape, most) for config in found), shape
        assert set(found) <= set(family.members(keep, group) if hopper else family.WIDE)
        assert all(family.fits(config, problem(*shape), device) for config in found)
        found_kernels |= {config.kernel for config in found}
        slot = 4 if vector % 32 else 32
        sms, memory = properties.multiprocessor_count, properties.max_shared_memory_per_multiprocessor
        times = [family.predict(c, m, n, ceil(k / group) * keep, keep, group, slot, sms, memory) for c in found]
        assert times == sorted(times) and times[-1] <= family.WITHIN * times[0], shape
        assert len(found) <= (family.MOST if times[0] >= family.SHORT_CYCLES else family.MOST_SHORT)
    assert found_kernels == ({"bulk", "stream", "cluster"} if hopper else {"wide"}), "each has its sizes"


@given(PATTERN)
@settings(deadline=None)
def test_the_family_is_of_tiles_that_a_kernel_can_have(pattern):
    """One that fills a multiprocessor is a stream, or has its steps cut in two, and a short loop; smaller ones have
    many waves, and steps unrolled whole."""
    found = family.members(*pattern)
    assert len(set(found)) == len(found) and {c.split for c in found} == set(family.SPLITS)
    assert {tile(c) for c in found} == set(family.TILES), "each has its place"
    for c in found:
        assert (c.kernel == "cluster") == (c.split > 1) and c.stages >= 3 and c.bm <= 256, "one box"
        assert c.bm % (c.tn * c.tm) == c.bn % 32 == c.bn % c.split == c.threads % 32 == 0, "whole warps"
        if c.blocks == 1:
            assert (c.kernel, c.split) in (("stream", 1), ("cluster", 2))
            assert c.unroll == family.unrolled(c, *pattern) <= max(family.BODIES), "what is written down is what runs"
        else:
            assert c.unroll == 0 and (family.rows(c, *pattern) <= family.MOST_ROWS or c.depth == min(family.DEPTHS))


def test_the_familys_kernels_do_not_spill():
    """The paper's 50% in deep steps: of each kernel with each work of a thread the tile that leaves a thread the fewest
    registers, in the longest body."""
    configs = [c for c in family.members(16, 32) if c.depth == 96 and c.stages == 3 and c.split <= 4]
    configs.sort(key=lambda c: (c.threads * c.blocks, c.bm * c.bn, c.unroll))
    hardest = {(c.kernel, c.tm, c.tn): c for c in configs}.values()
    entries = {(family.SOURCES[c.kernel], family.entry(c, 16, 32)): c for c in hardest}
    reports = compiled.reports(compiled.cubins(entries, family.HOPPER))
    for (_, entry), c in entries.items():
        used, _ = reports[entry, "sm_90a"]
        assert not used.spills and used.registers * c.threads * c.blocks <= 2**16, entry


# ---------------------------------------------------------------------------------- the prediction

FAMILY = family.members(16, 32)
#: 1 to 20,000, small ones as often as large ones.
SIZES = st.floats(0, log(20_000)).map(lambda x: round(exp(x)))


@given(config=st.sampled_from(FAMILY), m=SIZES, n=SIZES, k=SIZES)
@settings(deadline=None, max_examples=300)
def test_more_work_is_never_predicted_to_be_faster(config, m, n, k):
    time = predicted(config, m, n, k)
    assert time > 0 and min(predicted(config, m, n, 2 * k), predicted(config, m, n, k, keep=32)) >= time
    # A stream pays for sums that all pass through L2 until there is a tile for each block, and no longer.
    relief = 20 * config.bm * config.bn / 32 if config.kernel == "stream" else 0
    assert min(predicted(config, 8 * m, n, k), predicted(config, m, 8 * n, k)) >= time - relief


@pytest.mark.parametrize(
    ("waves", "rest", "least", "most"), [(1, 1, 0.5, 0.62), (3, 1, 0.75, 0.82), (1, 0, 0.98, 1.05), (4, 0, 0.95, 1.05)]
)
def test_a_stream_takes_the_time_of_its_steps_and_a_bulk_that_of_its_waves(waves, rest, least, most):
    """Of the same tiles: a wave of all, and one of a single tile. Where waves are whole, streams gain nothing."""
    stream = next(c for c in FAMILY if c.kernel == "stream" and c.depth == 64)
    m = (waves * SMS + rest) * stream.bm
    bulk = predicted(replace(stream, kernel="bulk"), m, stream.bn, 16384)
    assert least < predicted(stream, m, stream.bn, 16384) / bulk < most
    few, enough = (predicted(stream, stream.bm * tiles, stream.bn, 2048) for tiles in (SMS - 1, SMS))
    assert few > enough + 10 * stream.bm * stream.bn / 32, "with less than a tile for each all sums pass through L2"


def test_large_products_want_large_tiles_and_small_ones_parts_for_every_multiprocessor():
    """512 cubed has 8 tiles of 128 x 256; 4096 cubed at 50% takes 2.8 ms at 128 multiply-adds a cycle, and 55 to 100%
    of that rate is reached."""
    for keep in (16, 12, 8, 4):
        small = family.candidates(problem(512, 512, 512, keep), H200)
        assert ceil(512 / small[0].bm) * ceil(512 / small[0].bn) * small[0].split >= 60
    best, *others = family.candidates(problem(4096, 4096, 4096), H200)
    turned = family.RUNGS["turned"][0]
    assert best.kernel == "stream" and any(replace(c, depth=turned.depth) == turned for c in (best, *others))
    assert 1 < predicted(best, 4096, 4096, 4096) / (4096**3 / 2 / 128 / SMS) < 1.8
    assert max(c.split for c in family.candidates(problem(512, 512, 32), H200)) == 1, "a split needs steps to share"
    depths = [family.named("bulk", problem(keep=keep), H200).depth for keep in (16, 32)]
    assert depths == [64, 32], "half as deep where a ring of dense steps has no room"


# ----------------------------------------------------------------------------------------- trials


@pytest.fixture
def trials(monkeypatch):
    """tune without a GPU: a configuration takes what its place in the family says."""
    bound = []

    def ready(name, config=None):
        bound.append((name, config))
        return SimpleNamespace(name=name, prepare_ms=1.0)

    prepare = lambda name, p, device, config: ready(name, config)  # noqa: E731
    monkeypatch.setattr(launch, "prepare_config", prepare)
    monkeypatch.setitem(launch.FAMILIES, "auto", replace(launch.FAMILIES["auto"], prepare=prepare))
    monkeypatch.setattr(published, "prepare", lambda name, p, device: ready(name))
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
    tried = [*(("trial", config) for config in found), ("v1", None), ("trial", min(found, key=order))]
    assert trials.bound == [("v1", None)] * 2 + tried, "the reference without signs, too, and both on whole numbers"
    assert {job[:2] for job in trials.compiled} == {(family.SOURCES[c.kernel], family.entry(c, 16, 32)) for c in found}
    p, trials.compiled[:] = problem(m=513), []
    launch.tune(p, H200)
    ragged = {family.entry(c, 16, 32, aligned=False) for c in family.candidates(p, H200)}
    assert {entry for _, entry, _ in trials.compiled} == ragged, "rows that 16-byte stores do not fit"
    refused("^no configuration takes 64:512 on this GPU", launch.tune, problem(keep=64, group=512), H200)


KEPT = racing.Kept(family)
read, write, look_up = KEPT.read, KEPT.write, KEPT.look_up


def test_prepare_tunes_once_and_reads_from_then_on(trials, tmp_path):
    p, path = problem(), tmp_path / "deep" / "choices.csv"
    first = autotune.prepare_choice("auto", launch.FAMILIES["auto"], p, H200, file=path)
    heats, tried = len(trials.heats), len(trials.bound)
    (choice,) = read(path).values()
    second = autotune.prepare_choice("auto", launch.FAMILIES["auto"], p, H200, file=path)
    assert len(trials.heats) == heats >= 2 and len(trials.bound) == tried + 1, "tried again"
    assert trials.bound[-1] == trials.bound[-2] == ("auto", choice.config)
    assert first.prepare_ms > 1.0 and second.prepare_ms == 1.0, "trials count as preparation"
    for config in {*FAMILY, *family.WIDE, Config(banks=False), *(c for c, *_ in family.RUNGS.values())}:
        assert autotune.choices.parse_knobs(autotune.knobs(config), Config) == config


def test_a_choice_is_for_its_sizes_its_pattern_and_a_gpu_that_takes_it(monkeypatch, tmp_path, trials):
    """Edited by hand, of other kernels, or from another GPU."""
    folders, p = KEPT.in_folders(monkeypatch, tmp_path), problem()
    monkeypatch.setitem(launch.FAMILIES, "auto", replace(launch.FAMILIES["auto"], choices=family.CHOICES))
    for device in (H200, A100):
        path = folders[1] / f"{gpus.slug(device.name)}.csv"
        for config in (Config("stream", depth=32, bn=128), family.WIDE[-2]):
            write(path, p, config)
            assert look_up(p, device) == (config if device is H200 or config.kernel == "wide" else None)
        for other in ({"m": 513}, {"n": 257}, {"k": 1025}, {"keep": 12}, {"keep": 8, "group": 16}, {"vector": 64}):
            assert look_up(problem(**other), device) is None
    for config in (Config(stages=8), Config("stream", stages=2), Config(depth=512), Config("gone")):
        write(folders[1] / "nvidia-h200.csv", p, config)
        assert look_up(p, H200) is None, config
    autotune.prepare_choice("auto", launch.FAMILIES["auto"], p, H200)
    assert trials.heats and look_up(p, H200) == trials.bound[-1][1], "the own one comes first now"


def test_shipped_choices_fit_their_gpu_and_one_has_all_points_of_the_sweeps():
    shipped = {path.stem: read(path) for path in family.CHOICES.shipped.glob("*.csv")}
    assert set(shipped) == set(racing.SHIPPED)
    for gpu, choices in shipped.items():
        assert all(c.median_us > 0 and takes(c.config, point) for point, c in choices.items())
        assert set(choices) >= SWEPT or gpu != racing.WHOLE, "records of `auto` would begin with trials"


# ------------------------------------------------------------------------------------- on a GPU


@pytest.mark.gpu
@pytest.mark.parametrize(("keep", "vector"), [(16, 32), (12, 8)])
def test_every_tile_of_the_family_multiplies(hopper, keep, vector):
    """Alone and in clusters, each in one of its depths and bodies: exact products of small whole numbers."""
    p = probe.exact(point(700, 900, 1000, keep, vector=vector))
    reference, stream = verification.oracle(p), hopper.create_stream()
    taken = [c for c in family.members(keep, 32) if family.fits(c, p, hopper)]
    chosen = {(tile(c), c.kernel, c.split, c.unroll, c.stages): c for c in taken}.values()
    compiled.cubins(sorted(set(family.jobs(chosen, p))), family.HOPPER)
    for c in chosen:
        verification.exactly(launch.prepare_config("trial", p, hopper, c), p, reference, stream)
