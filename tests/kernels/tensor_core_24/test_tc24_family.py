"""The tuner: what it tries, how it ranks, and the file that keeps its choices."""

from __future__ import annotations

import csv
from dataclasses import fields, replace
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from artifact import check
from artifact import device as gpus
from kernels import jit
from kernels import tensor_core_24 as room
from kernels.contract import Operands
from kernels.tensor_core_24 import mma_sp, tuner, wgmma
from kernels.tensor_core_24.tuner import Choice
from kernels.tensor_core_24.wgmma import Config


def gpu_of(name: str, capability: tuple[int, int], sms: int, most: int) -> SimpleNamespace:
    properties = SimpleNamespace(
        multiprocessor_count=sms, max_shared_memory_per_block_optin=most, l2_cache_size=40 * 2**20
    )
    return SimpleNamespace(name=name, compute_capability=capability, properties=properties)


SMS, MOST = 132, 232448
H200 = gpu_of("NVIDIA H200", (9, 0), SMS, MOST)
H100_PCIE = gpu_of("NVIDIA H100 PCIe", (9, 0), 114, MOST)
A100 = gpu_of("NVIDIA A100-SXM4-80GB", (8, 0), 108, 166912)
L4 = gpu_of("NVIDIA L4", (8, 9), 58, 101376)
B200 = gpu_of("NVIDIA B200", (10, 0), 148, 232448)

SHAPES = sorted(
    {(s["m"], s["n"], s["k"]) for shapes in room.sweeps("full").values() for s in shapes}
    | {(1, 1, 1), (1, 8, 16), (64, 64, 64), (129, 1, 10**6), (10**6, 1, 1), (77, 10**6, 100)}
)


def never() -> Operands:
    raise AssertionError("operands are made before anything is tried")


def problem(m: int = 512, n: int = 256, k: int = 1024, dtype: str = "bfloat16"):
    return replace(room.problem(m, n, k, dtype=dtype), make_device=never, make_host=never)


# ------------------------------------------------------------------------------------- what is tried


@pytest.mark.parametrize("device", [H200, H100_PCIE], ids=lambda device: device.name)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_every_candidate_takes_the_problem_and_none_is_far_from_the_best(device, shape):
    found = tuner.candidates(problem(*shape), device)
    assert found and len(set(found)) == len(found)
    sms = device.properties.multiprocessor_count
    assert all(takes(config, shape, sms) for config in found)
    times = [tuner.predict(config, *shape, sms) for config in found]
    most = tuner.WITHIN * min(times)
    assert max(times) <= most
    for config in set(tuner.HOPPER) - set(found):
        assert tuner.predict(config, *shape, sms) > most or not takes(config, shape, sms)


def takes(config: Config, shape: tuple[int, int, int], sms: int) -> bool:
    try:
        wgmma.check(config, *shape, sms, MOST)
    except ValueError:
        return False
    return True


@pytest.mark.parametrize("device", [A100, L4, B200], ids=lambda device: device.name)
@pytest.mark.parametrize("shape", [(1, 1, 1), (512, 512, 512), (8192, 128, 8192), (333, 777, 1111)])
def test_a_gpu_without_wgmma_tries_the_sources_family(device, shape):
    found = tuner.candidates(problem(*shape), device)
    assert mma_sp.PUBLISHED in found and len(found) >= 3
    assert all(
        isinstance(config, mma_sp.Config) and mma_sp.fits(config, device) for config in found
    )
    left_out = [config for config in mma_sp.FAMILY if config not in found]
    assert not any(mma_sp.fits(config, device) for config in left_out)
    assert bool(left_out) == (device is L4), "99 KiB a block are not enough for all"


def test_a_split_needs_steps_to_share():
    """k of one step of 64: nothing is split, however few the tiles."""
    assert max(c.splits for c in tuner.candidates(problem(512, 512, 4096), H200)) > 1
    assert max(c.splits for c in tuner.candidates(problem(512, 512, 64), H200)) == 1


# ---------------------------------------------------------------------------------- the prediction

SIZES = st.integers(1, 20000)


@given(config=st.sampled_from(tuner.HOPPER), m=SIZES, n=SIZES, k=SIZES, sms=st.integers(1, 200))
@settings(deadline=None, max_examples=200)
def test_more_work_never_takes_less_time_and_more_multiprocessors_never_more(config, m, n, k, sms):
    time = tuner.predict(config, m, n, k, sms)
    assert time > 0
    assert tuner.predict(config, 2 * m, n, k, sms) >= time
    assert tuner.predict(config, m, 2 * n, k, sms) >= time
    assert tuner.predict(config, m, n, 2 * k, sms) >= time
    assert tuner.predict(config, m, n, k, 2 * sms) <= time


def area(config: Config) -> int:
    """Elements of C of a block."""
    return config.m * config.n


def ranked(m: int, n: int, k: int) -> list[Config]:
    return sorted(tuner.HOPPER, key=lambda config: tuner.predict(config, m, n, k, SMS))


@pytest.mark.parametrize("size", [4096, 8192, 16384])
def test_large_products_want_large_tiles(size):
    """Small ones copy more for a multiplication than the tensor cores leave time for."""
    assert area(ranked(size, size, size)[0]) >= 128 * 256
    found = tuner.candidates(problem(size, size, size), H200)
    assert min(map(area, found)) >= 128 * 128 and max(map(area, found)) == 256 * 192


def test_small_products_want_tiles_or_parts_for_every_multiprocessor():
    """512 cubed has 8 tiles of 128 x 256 for 132 multiprocessors."""
    best = ranked(512, 512, 512)[0]
    tiles = wgmma.tiles(best, 512, 512)
    assert tiles[0] * tiles[1] * best.splits > 30
    assert not any(
        config.splits == 1 and area(config) >= 128 * 256
        for config in tuner.candidates(problem(512, 512, 512), H200)
    )


def test_narrow_products_want_narrow_tiles():
    """Of 256 columns of a tile, n = 128 uses half, and n = 64 a quarter."""
    for m, n, k in ((8192, 128, 8192), (8192, 64, 8192)):
        assert ranked(m, n, k)[0].n <= 128
        assert not any(config.n == 256 for config in tuner.candidates(problem(m, n, k), H200))


# ----------------------------------------------------------------------------------------- trials


@pytest.fixture
def trials(monkeypatch):
    """tune without a GPU: the heats as (configs, rounds); a configuration takes what `us` says."""
    heats = []

    def us(config, rounds):
        return 100.0 + tuner.HOPPER.index(config)

    def time(configs, problem, device, rounds):
        heats.append((list(configs), rounds))
        return {config: trials.us(config, rounds) for config in configs}

    trials = SimpleNamespace(heats=heats, us=us, compiled=[])
    monkeypatch.setattr(tuner, "_time", time)
    monkeypatch.setattr(tuner, "_compile", lambda configs, *_: trials.compiled.extend(configs))
    return trials


def test_the_best_few_are_timed_again_and_that_decides(trials):
    p = problem(4096, 4096, 4096)
    found = tuner.candidates(p, H200)
    assert len(found) > tuner.FINALISTS, "or the second heat is no other"
    second = sorted(found, key=tuner.HOPPER.index)[1]
    # In the second heat it is the second of the first that is the fastest.
    trials.us = lambda config, rounds: (
        7.5
        if config == second and rounds == tuner.FINAL_ROUNDS
        else 100.0 + tuner.HOPPER.index(config)
    )
    assert tuner.tune(p, H200) == Choice(second, 7.5)
    (first, few), (final, more) = trials.heats
    assert first == found == trials.compiled and few == tuner.ROUNDS < more == tuner.FINAL_ROUNDS
    assert set(final) == set(sorted(found, key=tuner.HOPPER.index)[: tuner.FINALISTS])


def test_short_launches_are_timed_more_often(trials):
    """Below 40 us, which candidate is ahead is a matter of the clock's noise."""
    p, factor = problem(), tuner.SHORT_FACTOR
    trials.us = lambda config, rounds: tuner.SHORT_US / 2 + tuner.HOPPER.index(config) / 100
    choice = tuner.tune(p, H200)
    found = tuner.candidates(p, H200)
    best = sorted(found, key=tuner.HOPPER.index)
    assert choice == Choice(best[0], trials.us(best[0], 0))
    assert [(len(configs), rounds) for configs, rounds in trials.heats] == [
        (len(found), tuner.ROUNDS),
        (len(found), factor * tuner.ROUNDS),
        (min(len(found), factor * tuner.FINALISTS), factor**2 * tuner.FINAL_ROUNDS),
    ]


def test_where_nothing_takes_the_problem_it_is_said(trials):
    p = problem(m=2**30)
    assert tuner.candidates(p, H200) == []
    with pytest.raises(ValueError, match="^no configuration takes m=1073741824, n=256, k=1024 on"):
        tuner.tune(p, H200)


@pytest.fixture
def bound(monkeypatch):
    """bind without a GPU: (family, name, config, what was asked for beside) of what is made ready."""
    made = []

    def binder(family):
        def bind(name, problem, device, config, **extra):
            made.append((family, name, config, extra))
            return SimpleNamespace(prepare_ms=1.0)

        return bind

    monkeypatch.setattr(wgmma, "bind", binder("wgmma"))
    monkeypatch.setattr(mma_sp, "bind", binder("mma_sp"))
    return made


def test_bind_tunes_once_and_reads_from_then_on(trials, bound, tmp_path):
    p, path = problem(), tmp_path / "deep" / "choices.csv"
    first = tuner.bind("auto", p, H200, file=path, alpha=2.0)
    assert len(trials.heats) == 2 and path.is_file()
    (choice,) = tuner.read(path).values()
    second = tuner.bind("auto", p, H200, file=path)
    assert len(trials.heats) == 2, "tried again"
    assert bound == [
        ("wgmma", "auto", choice.config, {"alpha": 2.0}), ("wgmma", "auto", choice.config, {})
    ]  # fmt: skip
    assert first.prepare_ms > 1.0 and second.prepare_ms == 1.0, "trials count as preparation"
    # Another shape and another dtype are other problems.
    tuner.bind("auto", problem(k=2048), H200, file=path)
    tuner.bind("auto", problem(dtype="float16"), H200, file=path)
    assert len(trials.heats) == 6 and len(tuner.read(path)) == 3


def test_a_choice_of_either_family_is_bound_by_it(trials, bound, tmp_path):
    path = tmp_path / "choices.csv"
    config = mma_sp.Config(bn=256, group=4)
    tuner.write(path, problem(), Choice(config, 3.0))
    tuner.bind("auto", problem(), A100, file=path)
    assert bound == [("mma_sp", "auto", config, {})] and not trials.heats


def test_what_is_chosen_for_a_plain_product_serves_one_with_c_and_a_bias(trials, bound, tmp_path):
    """The fastest plain kernel may add neither: then it is the same tile from one that does."""
    path = tmp_path / "choices.csv"
    chosen = Config("multicast", 2, 2, 192, 4, 2, band=4, keep="a")
    tuner.write(path, problem(), Choice(chosen, 3.0))
    for extra in ({}, {"alpha": 2.0}, {"bias": "one"}, {"beta": 1.0, "c": "one"}):
        tuner.bind("auto", problem(), H200, file=path, **extra)
    instead = replace(chosen, kernel="persistent")
    assert [(config, extra) for _, _, config, extra in bound] == [
        (chosen, {}),
        (chosen, {"alpha": 2.0}),
        (instead, {"bias": "one"}),
        (instead, {"beta": 1.0, "c": "one"}),
    ]
    assert not trials.heats and tuner.read(path)[512, 256, 1024, "bfloat16"].config == chosen


def test_auto_is_the_tuner(monkeypatch):
    asked = []
    monkeypatch.setattr(tuner, "bind", lambda *what, **extra: asked.append((what, extra)))
    p = problem()
    room.bind("auto", p, H200, alpha=3.0)
    assert asked == [(("auto", p, H200), {"alpha": 3.0})]


# -------------------------------------------------------------------------------------- the file


@pytest.mark.parametrize("config", (*tuner.HOPPER, *mma_sp.FAMILY), ids=str)
def test_a_choice_is_read_as_it_was_written(tmp_path, config):
    path = tmp_path / "choices.csv"
    tuner.write(path, problem(), Choice(config, 123.456))
    (found,) = tuner.read(path).items()
    assert found == ((512, 256, 1024, "bfloat16"), Choice(config, 123.46))
    assert found[1].family == ("wgmma" if isinstance(config, Config) else "mma_sp")


def test_the_file_is_readable_by_a_person_and_sorted(tmp_path):
    path = tmp_path / "choices.csv"
    for m in (4096, 512, 64):
        tuner.write(path, problem(m=m), Choice(Config(keep="a", band=11), 9.0))
    tuner.write(path, problem(m=64, dtype="float16"), Choice(mma_sp.PUBLISHED, 8.5))
    lines = path.read_text().splitlines()
    assert lines[0] == "m,n,k,dtype,median_us,family,knobs" == ",".join(tuner.COLUMNS)
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["m"], row["dtype"]) for row in rows] == [
        ("64", "bfloat16"), ("64", "float16"), ("512", "bfloat16"), ("4096", "bfloat16")
    ]  # fmt: skip
    assert rows[0]["knobs"].split()[0] == "kernel=persistent" and "band=11" in rows[0]["knobs"]
    assert len(rows[0]["knobs"].split()) == len(fields(Config)), "every knob has its name"
    assert rows[1]["family"] == "mma_sp" and rows[1]["median_us"] == "8.50"


def test_a_choice_replaces_the_one_that_was_there(tmp_path):
    path = tmp_path / "choices.csv"
    other = Choice(Config(stages=3), 5.0)
    tuner.write(path, problem(n=8), other)
    for config in (Config(), Config(band=2)):
        tuner.write(path, problem(), Choice(config, 9.0))
    assert tuner.read(path) == {
        (512, 8, 1024, "bfloat16"): other,
        (512, 256, 1024, "bfloat16"): Choice(Config(band=2), 9.0),
    }
    assert len(path.read_text().splitlines()) == 3


def test_the_file_is_written_aside_and_renamed(tmp_path, monkeypatch):
    """Who reads while another writes sees the old file or the new one, and an error leaves the old."""
    path = tmp_path / "choices.csv"
    tuner.write(path, problem(), Choice(Config(), 9.0))
    before, replaced = path.read_bytes(), []
    rename = tuner.os.replace

    def watch(source, target):
        assert path.read_bytes() == before, "changed before it was complete"
        assert len(tuner.read(source)) == 2 and target == path
        replaced.append(source)
        rename(source, target)

    monkeypatch.setattr(tuner.os, "replace", watch)
    tuner.write(path, problem(n=8), Choice(Config(), 9.0))
    assert len(replaced) == 1 and list(tmp_path.iterdir()) == [path], (
        "and nothing is left beside it"
    )

    def full_disk(*_):
        raise OSError("no space left on device")

    monkeypatch.setattr(tuner.os, "replace", full_disk)
    before = path.read_bytes()
    with pytest.raises(OSError, match="no space"):
        tuner.write(path, problem(n=16), Choice(Config(), 9.0))
    assert path.read_bytes() == before and len(tuner.read(path)) == 2


GOOD = "512,256,1024,bfloat16,9.00,wgmma,kernel=persistent groups=2 stages=4"


@pytest.mark.parametrize(
    "row",
    [
        "512,256,k,bfloat16,9.00,wgmma,kernel=ring",
        "512,256,1024,bfloat16,fast,wgmma,kernel=ring",
        "512,256,1024,bfloat16,9.00,wgmma,kernel=ring stages=many",
        "512,256,1024,bfloat16,9.00,wgmma,kernel=ring colour=red",
        "512,256,1024,bfloat16,9.00,wgmma,kernel",
        "512,256,1024,bfloat16,9.00,wgmma,bm=128",
        "512,256,1024,bfloat16,9.00,mma_sp,kernel=ring",
        "512,256,1024,bfloat16,9.00,tcgen05,bm=128",
        "512,256,1024,bfloat16,9.00,,bm=128",
        "512,256,1024,bfloat16,9.00,wgmma",
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


def test_a_file_with_other_columns_is_named(tmp_path):
    path = tmp_path / "nvidia-h200.csv"
    path.write_text("m,n,k,config\n512,256,1024,big\n")
    with pytest.raises(ValueError, match=r"^nvidia-h200.csv, row 2 is no choice of the tuner"):
        tuner.read(path)
    path.write_text(",".join(tuner.COLUMNS) + "\n" + GOOD + "\n")
    assert len(tuner.read(path)) == 1


def test_a_broken_file_is_not_overwritten(tmp_path):
    path = tmp_path / "choices.csv"
    path.write_text(",".join(tuner.COLUMNS) + "\n512,256\n")
    with pytest.raises(ValueError, match="row 2"):
        tuner.write(path, problem(), Choice(Config(), 9.0))
    assert path.read_text().endswith("512,256\n")


# ------------------------------------------------------------------------------- where it looks


@pytest.fixture
def folders(tmp_path, monkeypatch):
    """The user's own folder and the shipped one, both empty."""
    own, shipped = tmp_path / "own", tmp_path / "shipped"
    monkeypatch.setenv("SPARSITY_CHOICES", str(own))
    monkeypatch.setattr(tuner, "SHIPPED", shipped)
    return own, shipped


def test_the_users_own_choice_comes_before_the_shipped_one(folders):
    own, shipped = (folder / "nvidia-h200.csv" for folder in folders)
    one, two = Choice(Config(band=1), 1.0), Choice(Config(band=2), 2.0)
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


def test_a_choice_is_for_its_sizes_its_dtype_and_its_gpu(folders):
    tuner.write(folders[1] / "nvidia-h200.csv", problem(), Choice(Config(), 9.0))
    assert tuner.look_up(problem(), H200)
    for other in (problem(m=513), problem(n=257), problem(k=1025), problem(dtype="float16")):
        assert tuner.look_up(other, H200) is None
    assert tuner.look_up(problem(), H100_PCIE) is None


@pytest.mark.parametrize(
    "config",
    [
        Config("persistent", 2, 1, 256, 8, 2),
        Config("gone"),
        Config("split_k", 2, 2, 128, 5, 1, 3),
        Config("stream_k"),
        Config(n=96),
    ],
    ids=str,
)
def test_a_choice_that_the_gpu_does_not_take_is_made_again(folders, trials, bound, config):
    """Edited by hand, of other kernels, or from another GPU: 8 stages do not fit, 2 steps are not 3."""
    p = problem(512, 256, 128)
    tuner.write(folders[1] / "nvidia-h200.csv", p, Choice(config, 1.0))
    assert tuner.look_up(p, H200) is None
    tuner.bind("auto", p, H200)
    assert trials.heats and bound[0][2] in tuner.candidates(p, H200)
    assert tuner.look_up(p, H200).config == bound[0][2], "and the own one comes first from now on"


def test_a_choice_for_hopper_is_none_for_another_gpu(folders):
    for device, config in ((A100, Config()), (L4, Config()), (L4, mma_sp.Config(bn=256))):
        path = folders[1] / f"{gpus.slug(device.name)}.csv"
        tuner.write(path, problem(), Choice(config, 1.0))
        assert tuner.look_up(problem(), device) is None
    tuner.write(path, problem(), Choice(mma_sp.PUBLISHED, 1.0))
    assert tuner.look_up(problem(), L4).config == mma_sp.PUBLISHED


def test_a_choice_that_cannot_be_kept_still_serves(trials, bound, tmp_path):
    (tmp_path / "a file").write_text("in the way of a folder")
    with pytest.warns(UserWarning, match="^the tuner's choice is not kept: "):
        tuner.bind("auto", problem(), H200, file=tmp_path / "a file" / "choices.csv")
    assert len(bound) == 1 and bound[0][2] in tuner.candidates(problem(), H200)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_a_named_matrix_has_the_choice_of_its_dtype(folders, dtype):
    """The label of a given matrix is not a dtype: that is asked of the operands."""
    made = room.problem(20, 6, 30, dtype=dtype).host()
    named = room.problem_from(made.a, made.b, label="some weight")
    named = replace(named, make_device=lambda: made)
    tuner.write(folders[0] / "nvidia-h200.csv", named, Choice(Config(), 9.0))
    assert list(tuner.read(folders[0] / "nvidia-h200.csv")) == [(20, 6, 30, dtype)]
    for other in ("bfloat16", "float16"):
        found = tuner.look_up(problem(20, 6, 30, other), H200)
        assert (found is not None) == (other == dtype)
    assert tuner.look_up(named, H200)


def test_bind_writes_to_the_users_own_folder(folders, trials, bound):
    own, shipped = folders
    tuner.bind("auto", problem(), H200)
    assert (own / "nvidia-h200.csv").is_file() and not shipped.exists()
    tuner.bind("auto", problem(), H200)
    assert len(trials.heats) == 2


@pytest.mark.parametrize("device", [H200, H100_PCIE, A100, L4], ids=lambda device: device.name)
def test_a_gpus_file_has_the_name_of_its_records(folders, device):
    assert tuner._own(device).name == f"{gpus.slug(device.name)}.csv"


def test_shipped_choices_are_the_shapes_of_the_sweeps_and_fit_their_gpu():
    known = {H200.name: H200}
    for path in tuner.SHIPPED.glob("*.csv"):
        (device,) = [x for x in known.values() if gpus.slug(x.name) == path.stem]
        choices = tuner.read(path)
        assert choices, path.name
        for (m, n, k, dtype), choice in choices.items():
            assert dtype in ("bfloat16", "float16") and choice.median_us > 0
            wgmma.check(choice.config, m, n, k, device.properties.multiprocessor_count, MOST)
        swept = [
            (s["m"], s["n"], s["k"], s.get("dtype", "bfloat16"))
            for shapes in room.sweeps("full").values()
            for s in shapes
        ]
        assert set(swept) <= set(choices), "records of `auto` would begin with trials"


# ------------------------------------------------------------------------------------- on a GPU


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("shape", [(512, 512, 512), (1000, 1000, 1000), (333, 777, 1111)], ids=str)
def test_the_second_bind_is_quick_and_both_are_right(device, tmp_path, shape, dtype):
    path, stream = tmp_path / "choices.csv", device.create_stream()
    p = room.problem(*shape, seed=7, dtype=dtype)
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

    p = room.problem(2048, 2048, 2048, seed=3)
    choice = tuner.tune(p, device)
    bounds = {str(c): tuner._ready(str(c), p, device, c) for c in tuner.candidates(p, device)}
    times = {name: t.median_us for name, t in bench.time(bounds, device, budget_s=0.5).items()}
    assert times[str(choice.config)] < 1.25 * min(times.values()), times
    assert 0.5 < choice.median_us / times[str(choice.config)] < 2, "the same protocol"


@pytest.mark.gpu
def test_trials_leave_nothing_but_a_right_result(device, tmp_path):
    """Alpha, C and a bias go to the configuration that was chosen without them."""
    import cupy

    from kernels.formats import half

    if jit.arch_of(device) not in wgmma.TARGETS:
        pytest.skip("this GPU has no wgmma")
    p = room.problem(700, 520, 640, seed=5)
    product = check.oracle(p, on="cpu").values
    c = half.from_dense(cupy.full((700, 520), 3.0, cupy.float32), "bfloat16")
    bias = cupy.arange(700, dtype=cupy.float32) % 5
    bound = tuner.bind(
        "auto", p, device, file=tmp_path / "choices.csv", alpha=2.0, beta=-1.0, c=c, bias=bias
    )
    exact = 2 * product - 3 + (np.arange(700) % 5)[:, None]
    reference = check.reference(cupy.asarray(exact))
    assert check.check(bound, p, reference, device.create_stream()).rel_err > 0
