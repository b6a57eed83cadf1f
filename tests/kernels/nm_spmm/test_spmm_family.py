"""The room's tuner: what it tries, how it ranks, and the file that keeps its choices."""

from __future__ import annotations

import csv
from dataclasses import fields, replace
from math import ceil, exp, log, nan
from types import SimpleNamespace

import compiled
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_published import make_problem

from artifact import check
from artifact import device as gpus
from kernels import jit
from kernels import nm_spmm as room
from kernels.contract import Operands
from kernels.formats import nm
from kernels.nm_spmm import ladder, tuner
from kernels.nm_spmm.ladder import Config
from kernels.nm_spmm.tuner import Choice


def gpu_of(name: str, capability: tuple[int, int], sms: int, most: int) -> SimpleNamespace:
    properties = SimpleNamespace(
        multiprocessor_count=sms,
        max_shared_memory_per_block_optin=most,
        max_shared_memory_per_multiprocessor=most + 1024,
    )
    return SimpleNamespace(name=name, compute_capability=capability, properties=properties)


SMS, MOST, MEMORY = 132, 232_448, 233_472
H200 = gpu_of("NVIDIA H200", (9, 0), SMS, MOST)
H100_PCIE = gpu_of("NVIDIA H100 PCIe", (9, 0), 114, MOST)
A100 = gpu_of("NVIDIA A100-SXM4-80GB", (8, 0), 108, 166_912)
L4 = gpu_of("NVIDIA L4", (8, 9), 58, 101_376)

#: m, n, k, keep, group, vector
POINTS = sorted(
    {
        (s["m"], s["n"], s["k"], round(s["density"] * s.get("group", 32)), s.get("group", 32), s.get("vector", 32))
        for experiment, shapes in room.sweeps("full").items() if experiment != "tensor"
        for s in shapes
    }
    | {(1, 1, 1, 1, 4, 32), (129, 1, 10**6, 4, 32, 32), (10**6, 4, 1, 16, 32, 32), (77, 10**6, 100, 5, 7, 8)}
)  # fmt: skip


def matrix(n: int, k: int, keep: int = 16, group: int = 32, vector: int = 32) -> SimpleNamespace:
    """What the tuner looks at of B."""
    return SimpleNamespace(
        n=n, k=k, keep=keep, group=group, vector=vector, w=ceil(k / group) * keep
    )


def problem(m=512, n=256, k=1024, keep=16, group=32, vector=32):
    made = room.problem(m, n, k, keep / group, group=group, vector=vector)
    ops = Operands(None, matrix(n, k, keep, group, vector))
    return replace(made, make_device=lambda: ops)


def predicted(config: Config, m: int, n: int, k: int, keep=16, group=32, sms=SMS) -> float:
    return tuner.predict(config, m, n, matrix(n, k, keep, group), 32, sms, MEMORY)


def takes(config: Config, point: tuple, most: int = MOST) -> bool:
    *_, keep, group, vector = point
    try:
        ladder.check(config, keep, group, 32 if vector % 32 == 0 else 4, most)
    except ValueError:
        return False
    return True


# ------------------------------------------------------------------------------------- what is tried


@pytest.mark.parametrize("device", [H200, H100_PCIE], ids=lambda device: device.name)
def test_every_candidate_takes_the_problem_and_none_is_far_from_the_best(device):
    sms, kernels = device.properties.multiprocessor_count, set()
    for point in POINTS:
        m, n, k, keep, group, vector = point
        found = tuner.candidates(problem(*point), device)
        assert found and len(set(found)) == len(found), point
        assert all(takes(config, point) for config in found)
        kernels |= {config.kernel for config in found}
        b, slot = matrix(n, k, keep, group, vector), 4 if vector % 32 else 32
        times = [tuner.predict(c, m, n, b, slot, sms, MEMORY) for c in found]
        assert times == sorted(times) and times[-1] <= tuner.WITHIN * times[0], point
        assert len(found) <= tuner.MOST_SHORT
        assert len(found) <= tuner.MOST or times[0] < tuner.SHORT_CYCLES
    assert kernels == {"bulk", "stream", "cluster"}, "each has its sizes"


@pytest.mark.parametrize("device", [A100, L4], ids=lambda device: device.name)
def test_a_gpu_without_the_copy_engine_tries_copies_of_its_own(device):
    most = device.properties.max_shared_memory_per_block_optin
    for point in (
        (512, 512, 512, 16, 32, 32),
        (4096, 4096, 4096, 4, 32, 32),
        (333, 777, 1111, 2, 4, 4),
    ):
        found = tuner.candidates(problem(*point), device)
        assert found and {config.kernel for config in found} == {"wide"}
        assert set(found) <= set(tuner.WIDE) and all(takes(c, point, most) for c in found)  # fmt: skip


PATTERNS = [(32, 32), (16, 32), (12, 32), (4, 32), (2, 4), (1, 16), (5, 7)]


def tile(c: Config) -> tuple[int, ...]:
    return c.bm, c.bn, c.tm, c.tn, c.blocks


@pytest.mark.parametrize("keep,group", PATTERNS)
def test_the_family_is_of_tiles_that_a_kernel_can_have(keep, group):
    found = tuner.family(keep, group)
    assert len(set(found)) == len(found) and {c.split for c in found} == set(tuner.SPLITS)
    assert {tile(c) for c in found} == set(tuner.TILES), "each has its place"
    for c in found:
        assert (
            (c.kernel == "cluster") == (c.split > 1) and c.stages >= 3 and not c.ahead and c.banks
        )
        assert c.tm % 4 == 0 and c.tn in (8, 16) and c.depth in tuner.DEPTHS
        assert c.bm % (c.tn * c.tm) == 0 and c.bn % 32 == 0 and c.bm <= 256, "whole warps, one box"
        assert c.bn % c.split == 0 and c.threads % 32 == 0 and c.threads <= 1024
        assert c.blocks * c.threads <= 2048


@pytest.mark.parametrize("keep,group", PATTERNS)
def test_a_tile_that_fills_a_multiprocessor_has_even_work_and_a_short_loop(keep, group):
    """As a stream, or with its steps cut in two; smaller ones have many waves, and steps unrolled whole."""
    found = tuner.family(keep, group)
    large, small = ([c for c in found if (c.blocks == 1) == one] for one in (True, False))
    assert {(c.kernel, c.split) for c in large} == {("stream", 1), ("cluster", 2)}
    for c in large:
        rows = ladder.rows(c, keep, group)
        assert 4 <= c.unroll <= max(tuner.BODIES) and rows % c.unroll == 0
        assert ladder.unrolled(c, keep, group) == c.unroll, "what is written down is what runs"
        assert c.unroll == 12 or rows % 8 or c.unroll == 8, "the longest of its kind"
    assert {c.kernel for c in small} == {"bulk", "cluster"}
    for c in small:
        assert c.unroll == 0
        rows = ladder.rows(c, keep, group)
        assert rows <= tuner.MOST_ROWS or c.depth == min(tuner.DEPTHS), "no more code than that"


def test_a_split_needs_steps_to_share():
    assert max(c.split for c in tuner.candidates(problem(512, 512, 4096), H200)) > 1
    assert max(c.split for c in tuner.candidates(problem(512, 512, 32), H200)) == 1


@pytest.mark.parametrize("slot", [32, 4])
def test_the_familys_kernels_do_not_spill(slot):
    """The paper's 50% in deep steps: every tile, alone and as a part of a cluster, in bodies of 8 and 12 rows."""
    configs = [
        c for c in tuner.family(16, 32)
        if c.depth == 96 and c.stages == 3 and c.split in (1, 2 if c.blocks == 1 else 4)
    ]  # fmt: skip
    assert {(tile(c), c.split > 1) for c in configs} == {
        (t, s) for t in tuner.TILES for s in (False, True)
    }
    assert {c.unroll for c in configs} == {0, *tuner.BODIES}
    entries = {(ladder.source(c), ladder.entry(c, 16, 32, slot)): c for c in configs}
    assert len(entries) == len(configs) < 30, "CI has two cores"
    reports = compiled.reports(compiled.cubins(entries, ladder.HOPPER))
    for (_, entry), c in entries.items():
        used, _ = reports[entry, "sm_90a"]
        assert not used.spills and used.registers * c.threads * c.blocks <= 2**16, entry


# ---------------------------------------------------------------------------------- the prediction

FAMILY = tuner.family(16, 32)
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
    taken = [c for c in tuner.family(keep, 32) if takes(c, point)]
    return sorted(taken, key=lambda c: predicted(c, m, n, k, keep))


@pytest.mark.parametrize("keep", [16, 12, 8])
@pytest.mark.parametrize("size", [4096, 8192])
def test_large_products_want_large_tiles_that_nobody_shares(size, keep):
    best = ranked(size, size, size, keep)[0]
    assert best.bm * best.bn >= 128 * 128 and best.tm * best.tn == 128 and best.split == 1
    assert best.kernel == "stream", "and no wave that is not full"
    found = tuner.candidates(problem(size, size, size, keep), H200)
    assert {(8, 16), (16, 8)} <= {(c.tm, c.tn) for c in found if c.bm * c.bn == 128 * 256}
    turned = ladder.RUNGS["turned"][0]
    assert any(c == replace(turned, depth=c.depth) for c in found), "the ladder's own is tried"


def test_small_products_want_tiles_or_parts_for_every_multiprocessor():
    """512 cubed has 8 tiles of 128 x 256 for 132 multiprocessors."""
    for keep in (16, 4):
        best = ranked(512, 512, 512, keep)[0]
        assert ceil(512 / best.bm) * ceil(512 / best.bn) * best.split >= 60
        found = tuner.candidates(problem(512, 512, 512, keep), H200)
        assert not any(c.split == 1 and c.bm * c.bn >= 128 * 256 for c in found)


def test_the_prediction_is_of_the_measured_size():
    """4096 cubed at 50%: 2.8 ms at the peak of 128 multiply-adds a cycle, and 55 to 100% of it is reached."""
    least = 4096**3 / 2 / 128 / SMS
    assert 1 < predicted(ranked(4096, 4096, 4096)[0], 4096, 4096, 4096) / least < 1.8


# ----------------------------------------------------------------------------------------- trials


@pytest.fixture
def trials(monkeypatch):
    """tune without a GPU: the heats as (configs, rounds); a configuration takes what `us` says."""
    state = SimpleNamespace(heats=[], bound=[], us=lambda config, rounds: 100.0 + order(config))

    def race(bounds, device, rounds):
        state.heats.append((list(bounds), rounds))
        return {config: state.us(config, rounds) for config in bounds}

    def bind_config(name, problem, device, config):
        state.bound.append((name, config))
        return SimpleNamespace(name=name, prepare_ms=1.0)

    monkeypatch.setattr(tuner.tuning, "race", race)
    monkeypatch.setattr(ladder, "bind_config", bind_config)
    monkeypatch.setattr(jit, "compile_cubin", lambda *job: job)
    return state


def order(config: Config) -> int:
    """Some order of what may be tried."""
    known = [c for pattern in ((16, 32), (8, 32), (8, 16)) for c in tuner.family(*pattern)]
    return list(dict.fromkeys(known)).index(config)


def test_the_best_few_are_timed_again_and_that_decides(trials):
    p = problem(4096, 4096, 4096)
    found = tuner.candidates(p, H200)
    best = sorted(found, key=order)
    assert len(found) > tuner.FINALISTS, "or the second heat is no other"
    trials.us = lambda config, rounds: (
        80.0 if config == best[1] and rounds == tuner.FINAL_ROUNDS else 100.0 + order(config)
    )
    assert tuner.tune(p, H200) == Choice(best[1], 80.0)
    (first, few), (final, more) = trials.heats
    assert set(first) == set(found) and few == tuner.ROUNDS < more == tuner.FINAL_ROUNDS
    assert set(final) == set(best[: tuner.FINALISTS])
    assert {name for name, _ in trials.bound} == {"trial"}


def test_short_launches_are_timed_more_often(trials):
    trials.us = lambda config, rounds: tuner.SHORT_US / 2 + order(config) / 100
    choice = tuner.tune(problem(), H200)
    best = min(tuner.candidates(problem(), H200), key=order)
    assert choice == Choice(best, trials.us(best, 0))
    assert trials.heats[-1][1] > tuner.FINAL_ROUNDS and len(trials.heats[-1][0]) > tuner.FINALISTS


def test_where_nothing_takes_the_problem_it_is_said(trials):
    p = problem(keep=64, group=512)
    assert tuner.candidates(p, H200) == []
    with pytest.raises(ValueError, match="^no configuration takes 64:512 on this GPU") as caught:
        tuner.tune(p, H200)
    assert "\n" not in str(caught.value)


def test_bind_tunes_once_and_reads_from_then_on(trials, tmp_path):
    p, path = problem(), tmp_path / "deep" / "choices.csv"
    first = tuner.bind("auto", p, H200, file=path)
    heats = len(trials.heats)
    assert heats >= 2 and path.is_file()
    (choice,) = tuner.read(path).values()
    tried = len(trials.bound)
    second = tuner.bind("auto", p, H200, file=path)
    assert len(trials.heats) == heats and len(trials.bound) == tried + 1, "tried again"
    assert trials.bound[-1] == trials.bound[-2] == ("auto", choice.config)
    assert first.prepare_ms > 1.0 and second.prepare_ms == 1.0, "trials count as preparation"
    for other in (problem(k=2048), problem(keep=8), problem(vector=64), problem(keep=8, group=16)):
        tuner.bind("auto", other, H200, file=path)
    assert len(tuner.read(path)) == 5, "other sizes and other patterns are other problems"


def test_a_choice_that_cannot_be_kept_still_serves(trials, tmp_path):
    (tmp_path / "a file").write_text("in the way of a folder")
    with pytest.warns(UserWarning, match="^the tuner's choice is not kept: "):
        tuner.bind("auto", problem(), H200, file=tmp_path / "a file" / "choices.csv")
    assert trials.bound[-1][0] == "auto"


# -------------------------------------------------------------------------------------- the file


@pytest.mark.parametrize(
    "config", (*FAMILY[::5], *tuner.WIDE, Config(banks=False), *(c for c, *_ in ladder.RUNGS.values())), ids=str
)  # fmt: skip
def test_a_choice_is_read_as_it_was_written(tmp_path, config):
    path = tmp_path / "choices.csv"
    tuner.write(path, problem(), Choice(config, 123.456))
    assert tuner.read(path) == {(512, 256, 1024, 16, 32, 32): Choice(config, 123.46)}


def test_the_file_is_readable_by_a_person_and_sorted(tmp_path):
    path = tmp_path / "choices.csv"
    for m in (4096, 512, 64):
        tuner.write(path, problem(m=m), Choice(Config(), 9.0))
    tuner.write(path, problem(m=64, keep=4), Choice(Config("cluster", split=4), 8.5))
    assert path.read_text().startswith("m,n,k,keep,group,vector,nvrtc,median_us,knobs\n")
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["m"], row["keep"]) for row in rows] == [
        ("64", "4"), ("64", "16"), ("512", "16"), ("4096", "16")
    ]  # fmt: skip
    assert rows[0]["knobs"].split()[0] == "kernel=cluster" and "split=4" in rows[0]["knobs"]
    assert len(rows[0]["knobs"].split()) == len(fields(Config)), "every knob has its name"
    assert rows[0]["median_us"] == "8.50"


def test_a_choice_replaces_the_one_that_was_there(tmp_path):
    path, other = tmp_path / "choices.csv", Choice(Config(stages=4), 5.0)
    tuner.write(path, problem(n=8), other)
    for config in (Config(), Config(bn=128)):
        tuner.write(path, problem(), Choice(config, 9.0))
    assert tuner.read(path) == {
        (512, 8, 1024, 16, 32, 32): other,
        (512, 256, 1024, 16, 32, 32): Choice(Config(bn=128), 9.0),
    }


def test_what_was_read_is_not_read_again_until_it_changes(tmp_path, monkeypatch):
    """Hundreds of rows, asked for at every bind."""
    path = tmp_path / "choices.csv"
    tuner.write(path, problem(), Choice(Config(), 9.0))
    first = tuner.read(path)
    parsed = []
    monkeypatch.setattr(
        tuner.tuning, "parse_knobs", lambda *what: parsed.append(what) or Config(bn=64)
    )
    assert tuner.read(path) is first and not parsed
    path.write_text(path.read_text().replace("9.00", "8.00"))
    tuner.os.utime(path, ns=(1, 1))
    assert tuner.read(path) == {(512, 256, 1024, 16, 32, 32): Choice(Config(bn=64), 8.0)}


GOOD = f"512,256,1024,16,32,32,{jit.nvrtc_version()},9.00,kernel=bulk bm=128 ahead=True"


@pytest.mark.parametrize(
    "row",
    [
        "512,256,k,16,32,32,13.0,9.00,kernel=bulk",
        "512,256,1024,16,32,32,13.0,fast,kernel=bulk",
        "512,256,1024,16,32,32,13.0,9.00,stages=many",
        "512,256,1024,16,32,32,13.0,9.00,ahead=1",
        "512,256,1024,16,32,32,13.0,9.00,colour=red",
        "512,256,1024,16,32,32,13.0,9.00,kernel",
        "512,256,1024,16,32,32,13.0,9.00",
        "512,256,1024,16,32,32,new,9.00,kernel=bulk",
        "512,256,1024,16,32,32,9.00,kernel=bulk",
        "512,256,1024",
        "512",
        "<<<<<<< ours",
    ],
)
def test_a_row_that_is_no_choice_is_named_with_its_file(tmp_path, row):
    path = tmp_path / "nvidia-h200.csv"
    path.write_text("\n".join([",".join(tuner.COLUMNS), GOOD, row, GOOD]) + "\n")
    with pytest.raises(ValueError) as caught:
        tuner.read(path)
    message = str(caught.value)
    assert message.startswith("nvidia-h200.csv, row 3 is no choice of the tuner (")
    assert message.endswith("): delete the row") and "\n" not in message
    with pytest.raises(ValueError, match="row 3"):
        tuner.write(path, problem(), Choice(Config(), 9.0))
    assert row in path.read_text(), "a broken file is not overwritten"


# ------------------------------------------------------------------------------- where it looks


@pytest.fixture
def folders(tmp_path, monkeypatch):
    """The user's own folder of this room and the shipped one, both empty."""
    own, shipped = tmp_path / "own", tmp_path / "shipped"
    monkeypatch.setenv("SPARSITY_CHOICES", str(own))
    monkeypatch.setattr(tuner, "SHIPPED", shipped)
    return own / "nm_spmm", shipped


def test_the_users_own_choice_comes_before_the_shipped_one(folders):
    own, shipped = (folder / "nvidia-h200.csv" for folder in folders)
    one, two = Choice(Config(bn=128), 1.0), Choice(Config(bm=64, tm=8), 2.0)
    assert tuner.look_up(problem(), H200) is None
    tuner.write(shipped, problem(), one)
    assert tuner.look_up(problem(), H200) == one
    tuner.write(own, problem(n=8), two)
    assert tuner.look_up(problem(), H200) == one, "the shipped one where there is no own"
    tuner.write(own, problem(), two)
    assert tuner.look_up(problem(), H200) == two
    # A named file is the only one that is looked at.
    assert tuner.look_up(problem(), H200, own.with_name("another.csv")) is None
    assert tuner.look_up(problem(), H200, shipped) == one


@pytest.mark.parametrize("kernel", ["wide", "bulk", "stream", "cluster"])
def test_a_choice_of_each_kernel_is_taken(folders, kernel):
    choice = Choice(Config(kernel, depth=32, bn=128), 3.0)
    tuner.write(folders[1] / "nvidia-h200.csv", problem(), choice)
    assert tuner.look_up(problem(), H200) == choice


def test_a_choice_from_before_a_knob_is_one_with_its_default(folders):
    path = folders[1] / "nvidia-h200.csv"
    path.parent.mkdir()
    path.write_text("\n".join([",".join(tuner.COLUMNS), GOOD]) + "\n")
    assert tuner.look_up(problem(), H200) == Choice(Config(unroll=0, split=1), 9.0)


def test_a_choice_is_for_its_sizes_its_pattern_and_its_gpu(folders):
    tuner.write(folders[1] / "nvidia-h200.csv", problem(), Choice(Config(), 9.0))
    assert tuner.look_up(problem(), H200)
    for other in (
        problem(m=513), problem(n=257), problem(k=1025), problem(keep=12), problem(keep=8, group=16),
        problem(vector=64),
    ):  # fmt: skip
        assert tuner.look_up(other, H200) is None
    assert tuner.look_up(problem(), H100_PCIE) is None


@pytest.mark.parametrize(
    "config",
    [
        Config(stages=8),
        Config(stages=2),
        Config("stream", stages=2),
        Config(depth=512),
        Config("gone"),
    ],
    ids=str,
)
def test_a_choice_that_the_gpu_does_not_take_is_made_again(folders, trials, config):
    """Edited by hand, of other kernels, or from another GPU."""
    p = problem()
    tuner.write(folders[1] / "nvidia-h200.csv", p, Choice(config, 1.0))
    assert tuner.look_up(p, H200) is None
    tuner.bind("auto", p, H200)
    assert trials.heats and trials.bound[-1][1] in tuner.candidates(p, H200)
    assert tuner.look_up(p, H200).config == trials.bound[-1][1], "the own one comes first now"
    assert (folders[0] / "nvidia-h200.csv").is_file()


def test_a_choice_of_another_compiler_is_made_again(folders, trials):
    """Its machine code is another, and so is what is fastest."""
    p, path = problem(), folders[1] / "nvidia-h200.csv"
    tuner.write(path, p, Choice(Config(bn=128), 1.0, "9.9"))
    (kept,) = tuner.read(path).values()
    assert kept.nvrtc == "9.9" != jit.nvrtc_version() and tuner.look_up(p, H200) is None
    tuner.bind("auto", p, H200)
    assert trials.heats and tuner.look_up(p, H200).nvrtc == jit.nvrtc_version()


def test_a_choice_for_hopper_is_none_for_another_gpu(folders):
    for device in (A100, L4):
        path = folders[1] / f"{gpus.slug(device.name)}.csv"
        tuner.write(path, problem(), Choice(Config(depth=32, bn=128), 1.0))
        assert tuner.look_up(problem(), device) is None
        tuner.write(path, problem(), Choice(Config("stream", depth=32, bn=128), 1.0))
        assert tuner.look_up(problem(), device) is None
        tuner.write(path, problem(), Choice(tuner.WIDE[-2], 1.0))
        assert tuner.look_up(problem(), device).config == tuner.WIDE[-2]


@pytest.mark.parametrize("device", [H200, H100_PCIE, A100, L4], ids=lambda device: device.name)
def test_a_gpus_file_has_the_name_of_its_records(folders, device):
    assert tuner._own(device) == folders[0] / f"{gpus.slug(device.name)}.csv"


def test_shipped_choices_are_the_points_of_the_sweeps_and_fit_their_gpu():
    for path in tuner.SHIPPED.glob("*.csv"):
        assert path.stem == gpus.slug(H200.name)
        choices = tuner.read(path)
        for point, choice in choices.items():
            assert choice.median_us > 0 and takes(choice.config, point), point
        swept = {
            (s["m"], s["n"], s["k"], round(s["density"] * s.get("group", 32)), s.get("group", 32), s.get("vector", 32))
            for experiment, shapes in room.sweeps("full").items() if experiment not in ("tensor", "packing", "tried")
            for s in shapes
        }  # fmt: skip
        assert swept <= set(choices), "records of `auto` would begin with trials"


# ------------------------------------------------------------------------------------- on a GPU


@pytest.mark.gpu
@pytest.mark.parametrize(
    "shape",
    [(512, 512, 512, 0.5, 32, 32), (1000, 1000, 1000, 0.125, 32, 32), (333, 777, 1111, 0.25, 16, 8)],
    ids=str,
)  # fmt: skip
def test_the_second_bind_is_quick_and_both_are_right(device, tmp_path, shape):
    m, n, k, density, group, vector = shape
    path, stream = tmp_path / "choices.csv", device.create_stream()
    p = room.problem(m, n, k, density, 7, group=group, vector=vector)
    reference = check.oracle(p)
    first = tuner.bind("auto", p, device, file=path)
    assert check.check(first, p, reference, stream).rel_err > 0
    text, (choice,) = path.read_text(), tuner.read(path).values()
    assert choice.config in tuner.candidates(p, device) and 1 < choice.median_us < 10_000
    second = tuner.bind("auto", p, device, file=path)
    assert check.check(second, p, reference, stream).rel_err > 0
    assert path.read_text() == text and first.name == second.name == "auto"
    assert second.prepare_ms < first.prepare_ms / 2, "no trial, nothing to compile"


@pytest.mark.gpu
def test_the_choice_is_among_the_fastest(device):
    """Timed once more, by the harness: within a quarter of the best of all candidates."""
    from artifact import bench

    p = room.problem(2048, 2048, 2048, 0.25, 3)
    choice = tuner.tune(p, device)
    bounds = {str(c): ladder.bind_config(str(c), p, device, c) for c in tuner.candidates(p, device)}
    times = {name: t.median_us for name, t in bench.time(bounds, device, budget_s=0.5).items()}
    assert times[str(choice.config)] < 1.25 * min(times.values()), times
    assert 0.5 < choice.median_us / times[str(choice.config)] < 2, "the same protocol"


@pytest.mark.gpu
@pytest.mark.parametrize("keep,vector", [(16, 32), (4, 32), (12, 8)])
def test_every_tile_of_the_family_multiplies(device, keep, vector):
    """Alone and in clusters, each in one of its depths and bodies: exact products of small whole numbers."""
    if jit.arch_of(device) not in ladder.HOPPER:
        pytest.skip("this GPU has no copy engine")
    p, stream = make_problem(700, 900, 1000, keep, 32, vector), device.create_stream()
    most = device.properties.max_shared_memory_per_block_optin
    point = (p.m, p.n, p.k, keep, 32, vector)
    taken = [c for c in tuner.family(keep, 32) if takes(c, point, most)]
    chosen = {(tile(c), c.kernel, c.split, c.unroll, c.stages): c for c in taken}.values()
    slot = ladder.slot_of(p.host().b)
    entries = {(ladder.source(c), ladder.entry(c, keep, 32, slot)) for c in chosen}
    compiled.cubins(sorted(entries), [jit.arch_of(device)])
    exact = p.host().a.astype(np.float64) @ nm.to_dense(p.host().b)
    assert {tile(c) for c in chosen} == set(tuner.TILES)
    for c in chosen:
        bound = ladder.bind_config("trial", p, device, c)
        bound.result().fill(nan)
        device.sync()
        bound.launch(stream)
        stream.sync()
        wrong = bound.result().get() != exact
        assert not wrong.any(), f"{c}: {wrong.sum()} of {wrong.size} elements are wrong"
