"""What the tuner tries, how candidates are ranked, and the room's side of choosing and keeping."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import racing
from hypothesis import given, settings
from hypothesis import strategies as st
from racing import A100, B200, H100_PCIE, H200, L4

from artifact import paths
from artifact.measure import check
from artifact.measure import device as gpus
from kernels import jit, tuning
from kernels import tensor_core_24 as room
from kernels.contract import Operands
from kernels.tensor_core_24 import bounds, family, launch, mma_sp, wgmma
from kernels.tensor_core_24.family import MmaSp, Wgmma
from kernels.tensor_core_24.fp8_family import Fp8

SMS, MOST = 132, 232448
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
    found = family.candidates(problem(*shape), device)
    assert found and len(set(found)) == len(found)
    sms = device.properties.multiprocessor_count
    assert all(takes(config, shape, sms) for config in found)
    times = [family.predict(config, *shape, sms) for config in found]
    most = family.WITHIN * min(times)
    assert max(times) <= most
    for config in set(family.WGMMA_FAMILY) - set(found):
        if config.kernel == "clusters" and family.row_cost(shape[1]) == 1:
            continue
        assert family.predict(config, *shape, sms) > most or not takes(config, shape, sms)


def takes(config: Wgmma, shape: tuple[int, int, int], sms: int) -> bool:
    try:
        config.check(*shape, sms, MOST)
    except ValueError:
        return False
    return True


@pytest.mark.parametrize("device", [A100, L4, B200], ids=lambda device: device.name)
@pytest.mark.parametrize("shape", [(1, 1, 1), (512, 512, 512), (8192, 128, 8192), (333, 777, 1111)])
def test_a_gpu_without_wgmma_tries_the_sources_family(device, shape):
    found = family.candidates(problem(*shape), device)
    assert family.PUBLISHED in found and len(found) >= 3
    assert all(isinstance(config, MmaSp) and config.fits(device) for config in found)
    left_out = [config for config in family.MMA_SP_FAMILY if config not in found]
    assert not any(config.fits(device) for config in left_out)
    assert bool(left_out) == (device is L4), "99 KiB a block are not enough for all"


def test_a_split_needs_steps_to_share():
    """k of one step of 64: nothing is split, however few the tiles."""
    assert max(c.splits for c in family.candidates(problem(512, 512, 4096), H200)) > 1
    assert max(c.splits for c in family.candidates(problem(512, 512, 64), H200)) == 1


# ---------------------------------------------------------------------------------- the prediction

SIZES = st.integers(1, 20000)


@given(config=st.sampled_from(family.WGMMA_FAMILY), m=SIZES, n=SIZES, k=SIZES, sms=st.integers(1, 200))
@settings(deadline=None, max_examples=200)
def test_more_work_never_takes_less_time_and_more_multiprocessors_never_more(config, m, n, k, sms):
    time = family.predict(config, m, n, k, sms)
    assert time > 0
    # A last wave that is cut adds the sums of two blocks, and the next one that is not does not.
    less = time - (area(config) / family.EXCHANGED if config.kernel == "last_wave" else 0)
    assert family.predict(config, 2 * m, n, k, sms) >= less
    whole = 64 * n  # rows that do not begin at whole lines take longer than longer ones
    assert family.predict(config, m, 2 * whole, k, sms) >= family.predict(config, m, whole, k, sms) + less - time
    if config.kernel != "last_wave" or k > family.K:  # one step cannot be cut in two
        assert family.predict(config, m, n, 2 * k, sms) >= time
    assert family.predict(config, m, n, k, 2 * sms) <= 2 * time - less


def area(config: Wgmma) -> int:
    """Elements of C of a block."""
    return config.m * config.n


def parts(config: Wgmma, m: int, n: int, k: int) -> int:
    """Blocks that share the steps of a tile of the last wave."""
    count = config.tiles(m, n)[0] * config.tiles(m, n)[1]
    cut = config.kernel == "last_wave" and k > 64 and wgmma.whole_tiles(count, SMS) < count
    return 2 if cut else config.splits


def ranked(m: int, n: int, k: int) -> list[Wgmma]:
    return sorted(family.WGMMA_FAMILY, key=lambda config: family.predict(config, m, n, k, SMS))


@pytest.mark.parametrize("size", [4096, 8192, 16384])
def test_large_products_want_large_tiles(size):
    """Small ones copy more for a multiplication than the tensor cores leave time for."""
    assert area(ranked(size, size, size)[0]) >= 128 * 256
    found = family.candidates(problem(size, size, size), H200)
    assert min(map(area, found)) >= 128 * 128 and max(map(area, found)) == 256 * 192


def test_small_products_want_tiles_or_parts_for_every_multiprocessor():
    """512 cubed has 8 tiles of 128 x 256 for 132 multiprocessors."""
    shape = 512, 512, 512
    best = ranked(*shape)[0]
    tiles = best.tiles(512, 512)
    assert tiles[0] * tiles[1] * parts(best, *shape) > 30
    assert not any(
        parts(config, *shape) == 1 and area(config) >= 128 * 256 for config in family.candidates(problem(*shape), H200)
    )


@pytest.mark.parametrize(("tiles", "waves"), [(1, 0.5), (66, 0.5), (67, 1), (132, 1), (133, 1.5), (198, 1.5), (199, 2)])
def test_a_last_wave_that_is_cut_counts_half(tiles, waves):
    """Half of what another wave costs where nothing is cut, and the exchange of sums; DRAM is a few hundredths."""
    config = room.RUNGS["wgmma_last_wave"][0]

    def predicted(kernel: str, count: int) -> float:
        shape = config.m, config.n * count, 8192
        return family.predict(replace(config, kernel=kernel), *shape, SMS)

    one, two = predicted("lean", SMS), predicted("lean", 2 * SMS)
    assert one < two
    expected = one + (waves - 1) * (two - one)
    exchanged = area(config) / family.EXCHANGED if waves % 1 else 0
    assert predicted("last_wave", tiles) == pytest.approx(expected + exchanged, rel=0.07)
    assert (parts(config, config.m, config.n * tiles, 8192) == 2) == (waves % 1 > 0)


def test_one_step_is_cut_by_nobody():
    """So a last wave that is half full is predicted to take no less than a whole one."""
    config = room.RUNGS["wgmma_last_wave"][0]
    for k in (16, 64):
        shape = config.m, config.n * 40, k
        whole = family.predict(replace(config, kernel="lean"), *shape, SMS)
        assert family.predict(config, *shape, SMS) == whole


@pytest.mark.parametrize("name", ["wgmma_refilling", "wgmma_three", "wgmma_pieces"])
def test_what_has_three_warpgroups_has_somebody_who_adds(name):
    config = room.RUNGS[name][0]
    instead = family.complete(config, {"bias"})
    assert instead.kernel in family.COMPLETE and instead.n == config.n
    instead.check(8192, 8192, 8192, SMS, MOST)


@pytest.mark.parametrize(("kernel", "steps"), [("refilling", (1, 1, 2, 4, 5)), ("pieces", (4, 4, 4, 4, 8))])
def test_who_goes_in_rounds_has_whole_ones(kernel, steps):
    config = room.RUNGS[f"wgmma_{kernel}"][0]
    assert tuple(map(config.steps, (1, 64, 65, 256, 257))) == steps


def test_pieces_of_the_last_wave_take_less_than_tiles():
    """56 tiles are left at 8192 cubed, 24 at 28672 x 4096, and 88 at 4096 cubed, which are too many for pieces."""
    pieces, three = (room.RUNGS[f"wgmma_{kernel}"][0] for kernel in ("pieces", "three"))
    gain = {
        m: family.predict(three, m, n, 8192, SMS) / family.predict(pieces, m, n, 8192, SMS)
        for m, n in ((8192, 8192), (28672, 4096), (4096, 4096))
    }
    assert gain[4096] == 1 and 1.02 < gain[8192] < 1.04 and 1.01 < gain[28672] < 1.03, gain


def test_a_step_takes_what_the_profile_says():
    """Clocks of a wave of tiles in the shipped counters, in which nothing but the ends of waves is not a step."""
    folder = paths.RECORDED / "nvidia-h200" / "tensor_core_24" / "bounds"
    table = pd.read_csv(folder / "counters.csv")
    counted = table.pivot_table(index="variant", columns="metric", values="value")
    clocks = counted["gpu__time_duration.sum"] * counted["sm__cycles_elapsed.avg.per_second"] / 1e9
    for name, config in bounds.TILES.items():
        predicted = family.predict(config, 8192, 8192, 8192, SMS)
        assert predicted == pytest.approx(clocks[name], rel=0.03), name
        # Without loads it takes about as long where shared memory bounds it.
        if name != "wgmma_rounds":
            assert clocks[f"{name}_unloaded"] == pytest.approx(predicted, rel=0.03), name


def test_both_largest_tiles_are_tried_at_large_sizes():
    found = family.candidates(problem(12288, 12288, 12288), H200)
    assert {(256, 192), (192, 256)} <= {(c.m, c.n) for c in found}


def test_rows_at_odd_multiples_of_16_bytes_want_other_kernels():
    """The copy engine takes twice as long: its requests are shared, or B is copied first."""
    best = ranked(28672, 1000, 8192)[0]
    assert best.copied or best.share > 1
    for n, others in ((1000, True), (1008, True), (1056, True), (1024, False), (1001, False)):
        found = family.candidates(problem(28672, n, 8192), H200)
        assert others == any(c.copied for c in found), n
        assert others or not any(c.share > 1 for c in found), n
    assert any(c.share > 1 for c in family.candidates(problem(28672, 1000, 8192), H200))
    lean, clusters = (Wgmma(kernel, 2, 1, 128, 6, 1, share=share) for kernel, share in (("lean", 1), ("clusters", 2)))
    alone, pair = (family.predict(c, 1536, 1000, 3072, SMS) for c in (lean, clusters))
    assert [family.row_cost(n) for n in (1001, 1000, 1008, 1056, 1088, 1024)] == [
        1,
        2,
        1.25,
        1.1,
        1,
        1,
    ]
    assert alone > 1.5 * pair, "144 + 512 clocks a step alone, 144 + 256 in a pair"
    assert pair == family.predict(lean, 1536, 1024, 3072, SMS)


@pytest.mark.parametrize("n", [1, 63, 64, 1028, 128, 8192])
def test_b_is_not_copied_where_it_need_not_be_or_is_anyway(n):
    copied = [c for c in family.WGMMA_FAMILY if c.copied]
    assert copied and not any(takes(c, (8192, n, 8192), SMS) for c in copied)
    assert all(takes(c, (8192, wide, 8192), SMS) for c in copied for wide in (72, 80, 96))
    with pytest.raises(ValueError, match=f"not for lines of {n} elements: leave it out$"):
        copied[0].check(8192, n, 8192, SMS, MOST)
    assert all(takes(c, (8192, 72, 8192), SMS) for c in copied)


def test_narrow_products_want_narrow_tiles():
    """Of 256 columns of a tile, n = 128 uses half, and n = 64 a quarter."""
    for m, n, k in ((8192, 128, 8192), (8192, 64, 8192)):
        assert ranked(m, n, k)[0].n <= 128
        assert not any(config.n == 256 for config in family.candidates(problem(m, n, k), H200))


# ----------------------------------------------------------------------------------------- trials


@pytest.fixture
def trials(monkeypatch):
    """tune without a GPU: a configuration takes what its place in the family says.

    `bound` has (module, name, config, what was asked for beside) of what is made ready.
    """
    made = racing.track(monkeypatch, lambda config, rounds: 100.0 + order(config))
    made.bound = []

    def binder(module):
        def bind(name, problem, device, config, **extra):
            made.bound.append((module, name, config, extra))
            return SimpleNamespace(name=name, prepare_ms=1.0)

        return bind

    monkeypatch.setattr(wgmma, "bind", binder("wgmma"))
    monkeypatch.setattr(mma_sp, "bind", binder("mma_sp"))
    monkeypatch.setattr(wgmma, "ring_metadata", lambda a, *whole: ("metadata", *whole))
    return made


def order(config) -> int:
    return (*family.WGMMA_FAMILY, *family.MMA_SP_FAMILY).index(config)


def ready(*shape, dtype="bfloat16"):
    """A problem whose operands are asked for their dtype only."""
    ops = Operands(SimpleNamespace(dtype=dtype), None)
    return replace(problem(*shape, dtype=dtype), make_device=lambda: ops)


def test_the_fastest_candidate_is_chosen_checked_against_the_published_kernel(trials):
    p = ready(4096, 4096, 4096)
    found = family.candidates(p, H200)
    assert launch.tune(p, H200).config == min(found, key=order)
    (first, second, *others), judge = trials.bound, ("mma_sp", "mma_sp", family.PUBLISHED, {})
    assert first == second == judge, "with and without signs"
    assert others[-2] == judge and others[-1][2] == min(found, key=order), "on whole numbers"
    del others[-2:]
    assert [(module, config) for module, _, config, _ in others] == [("wgmma", c) for c in found]
    shared = others[0][3]
    assert shared == {"metadata": ("metadata", 3072, 256), "cache": {}}, "prepared once"
    assert all(extra["cache"] is shared["cache"] for *_, extra in others)
    assert {job[:2] for job in trials.compiled} == {(c.source, c.entry("bfloat16")) for c in found}
    (first, few), (final, more) = trials.heats
    finalists = family.ROUNDS.finalists * family.ROUNDS.factor
    assert first == found and len(final) == min(finalists, len(found)) and few < more


def test_metadata_that_is_prepared_once_serves_every_candidate(trials):
    """In whole tiles, or clusters of them, and in whole rounds of the ring: beyond its end would be words of zeros,
    which are no valid metadata."""
    launch.tune(ready(4096, 4096, 4096), H200)
    _, rows, columns = trials.bound[2][3]["metadata"]
    for config in family.WGMMA_FAMILY:
        assert rows % (config.m * config.share) == 0, config
        assert columns % (64 * config.steps(1)) == 0, config


def test_where_the_published_kernel_cannot_run_another_one_says_what_is_right(trials, monkeypatch):
    def refuse(*_, **__):
        raise ValueError("mma_sp counts within a tile in 32 bits")

    monkeypatch.setattr(mma_sp, "bind", refuse)
    launch.tune(ready(4096, 4096, 4096), H200)
    assert trials.bound[0][:3] == ("wgmma", "wgmma_one_stage", room.RUNGS["wgmma_one_stage"][0])


def test_where_nothing_takes_the_problem_it_is_said(trials):
    p = problem(m=2**30)
    assert family.candidates(p, H200) == []
    with pytest.raises(ValueError, match="^no configuration takes m=1073741824, n=256, k=1024 on"):
        launch.tune(p, H200)


def test_bind_tunes_once_and_reads_from_then_on(trials, tmp_path):
    p, path = ready(), tmp_path / "deep" / "choices.csv"
    first = launch.bind_auto("auto", p, H200, file=path, alpha=2.0)
    heats = len(trials.heats)
    assert heats >= 2 and path.is_file()
    (choice,) = read(path).values()
    assert choice.nvrtc == jit.nvrtc_version(), "another compiler makes other machine code"
    second = launch.bind_auto("auto", problem(), H200, file=path)
    assert len(trials.heats) == heats, "tried again"
    assert trials.bound[-2:] == [("wgmma", "auto", choice.config, {"alpha": 2.0}), ("wgmma", "auto", choice.config, {})]
    assert first.prepare_ms > 1.0 and second.prepare_ms == 1.0, "trials count as preparation"
    # Another shape and another dtype are other problems.
    launch.bind_auto("auto", ready(512, 256, 2048), H200, file=path)
    launch.bind_auto("auto", ready(dtype="float16"), H200, file=path)
    assert len(trials.heats) == 3 * heats and len(read(path)) == 3


def test_a_choice_of_either_family_is_bound_by_it(trials, tmp_path):
    path = tmp_path / "choices.csv"
    config = MmaSp(bn=256, group=4)
    write(path, problem(), config)
    launch.bind_auto("auto", problem(), A100, file=path)
    assert trials.bound == [("mma_sp", "auto", config, {})] and not trials.heats


def test_what_is_chosen_for_a_plain_product_serves_one_with_c_and_a_bias(trials, tmp_path):
    """The fastest plain kernel may add neither: then it is the same tile from one that does."""
    path = tmp_path / "choices.csv"
    chosen = Wgmma("multicast", 2, 2, 192, 4, 2, band=4, keep="a")
    write(path, problem(), chosen)
    for extra in ({}, {"alpha": 2.0}, {"bias": "one"}, {"beta": 1.0, "c": "one"}):
        launch.bind_auto("auto", problem(), H200, file=path, **extra)
    instead = replace(chosen, kernel="lean")
    assert [(config, extra) for _, _, config, extra in trials.bound] == [
        (chosen, {}),
        (chosen, {"alpha": 2.0}),
        (instead, {"bias": "one"}),
        (instead, {"beta": 1.0, "c": "one"}),
    ]
    assert not trials.heats and read(path)[512, 256, 1024, "bfloat16"].config == chosen


#: What a tuner chooses, or has chosen when the family was another.
CHOSEN = (*family.WGMMA_FAMILY, room.RUNGS["wgmma_multicast"][0])


@pytest.mark.parametrize("config", CHOSEN, ids=str)
def test_the_kernel_that_adds_instead_takes_the_same_tile(config):
    """Nobody is told afterwards that the tile of the choice is none."""
    assert family.complete(config, set()) is config
    instead = family.complete(config, {"bias"})
    assert instead.kernel in family.COMPLETE
    assert (instead is config) == (config.kernel in family.COMPLETE)
    assert (instead.m, instead.n) == (config.m, config.n)
    assert takes(instead, (8192, 8200 if config.copied else 8192, 8192), SMS)


def test_auto_is_the_tuner(monkeypatch):
    asked = []
    monkeypatch.setattr(launch, "bind_auto", lambda *what, **extra: asked.append((what, extra)))
    p = problem()
    room.bind("auto", p, H200, alpha=3.0)
    assert asked == [(("auto", p, H200), {"alpha": 3.0})]


# -------------------------------------------------------------------------------------- the file


KEPT = racing.Kept(family)
read, write, look_up = KEPT.read, KEPT.write, KEPT.look_up


def test_every_configuration_is_read_as_it_was_written(tmp_path):
    for config in (*family.WGMMA_FAMILY, *family.MMA_SP_FAMILY):
        assert tuning.choices.parse_knobs(tuning.knobs(config), type(config)) == config
    path = tmp_path / "choices.csv"
    write(path, problem(), family.WGMMA_FAMILY[0])
    write(path, problem(m=64), family.PUBLISHED)
    assert {key: c.config for key, c in read(path).items()} == {
        (64, 256, 1024, "bfloat16"): family.PUBLISHED,
        (512, 256, 1024, "bfloat16"): family.WGMMA_FAMILY[0],
    }
    lines = path.read_text().splitlines()
    assert lines[0] == "m,n,k,dtype,nvrtc,kernels,median_us,family,knobs"
    assert ",mma_sp,bm=128 " in lines[1] and f",wgmma,kernel={family.WGMMA_FAMILY[0].kernel} " in lines[2]


@pytest.fixture
def folders(tmp_path, monkeypatch):
    return KEPT.in_folders(monkeypatch, tmp_path)


def test_a_choice_is_for_its_sizes_and_its_dtype(folders):
    write(folders[1] / "nvidia-h200.csv", problem(), Wgmma())
    assert look_up(problem(), H200) == Wgmma()
    for other in (problem(m=513), problem(n=257), problem(k=1025), problem(dtype="float16")):
        assert look_up(other, H200) is None


def test_a_choice_that_the_gpu_does_not_take_is_made_again(folders, trials):
    """Edited by hand, of other kernels, or from another GPU: 8 stages do not fit, 2 steps are not 3, 16 bits not 8."""
    p = ready(512, 256, 128)
    for config in (
        Wgmma("persistent", 2, 1, 256, 8, 2),
        Wgmma("gone"),
        Wgmma("split_k", 2, 2, 128, 5, 1, 3),
        Wgmma("stream_k"),
        Wgmma(n=96),
        Fp8(),
    ):
        write(folders[1] / "nvidia-h200.csv", p, config)
        assert look_up(p, H200) is None, config
    launch.bind_auto("auto", p, H200)
    assert trials.heats and trials.bound[-1][2] in family.candidates(p, H200)
    assert look_up(p, H200) == trials.bound[-1][2], "and the own one comes first from now on"


def test_a_choice_for_hopper_is_none_for_another_gpu(folders):
    for device, config, taken in (
        (A100, Wgmma(), False),
        (L4, Wgmma(), False),
        (L4, MmaSp(bn=256), False),
        (L4, family.PUBLISHED, True),
    ):
        write(folders[1] / f"{gpus.slug(device.name)}.csv", problem(), config)
        assert look_up(problem(), device) == (config if taken else None)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_a_named_matrix_has_the_choice_of_its_dtype(folders, dtype):
    """The label of a given matrix is not a dtype: that is asked of the operands."""
    made = room.problem(20, 6, 30, dtype=dtype).host()
    named = room.problem_from(made.a, made.b, label="some weight")
    named = replace(named, make_device=lambda: made)
    write(folders[0] / "nvidia-h200.csv", named, Wgmma())
    assert list(read(folders[0] / "nvidia-h200.csv")) == [(20, 6, 30, dtype)]
    for other in ("bfloat16", "float16"):
        assert (look_up(problem(20, 6, 30, other), H200) is not None) == (other == dtype)
    assert look_up(named, H200)


def test_a_choice_is_of_the_kernels_that_it_was_tried_against():
    names = {path.stem for path in family.sources(Wgmma())}
    tried = (*family.WGMMA_FAMILY, *family.NARROW_FAMILY)
    assert names == {f"wgmma_{c.kernel}" for c in tried} and "mma_sp" not in names
    assert [path.name for path in family.sources(family.PUBLISHED)] == ["mma_sp.cu"]


def test_shipped_choices_are_the_shapes_of_the_sweeps_and_fit_their_gpu():
    for path in family.CHOICES.shipped.glob("*.csv"):
        device, choices = racing.SHIPPED[path.stem], read(path)
        assert choices and gpus.slug(device.name) == path.stem, path.name
        for (m, n, k, dtype), choice in choices.items():
            eight = isinstance(choice.config, Fp8)
            assert eight == dtype.startswith("e4m3") and choice.median_us > 0
            assert eight or dtype.partition(" ")[0] in ("bfloat16", "float16")
            limits = (MOST,) if eight else (device.properties.multiprocessor_count, MOST)
            orders = "FF" if dtype.endswith((" FF", " linear")) else "CC"
            choice.config.check(m, n, k, *limits, orders)
        swept = [
            (s["m"], s["n"], s["k"], s.get("dtype", "bfloat16") + (" FF" if "orders" in s else ""))
            for shapes in room.sweeps("full").values()
            for s in shapes
        ]
        whole = path.stem == "nvidia-h100-80gb-hbm3"
        assert set(swept) <= set(choices) or not whole, "records of `auto` would begin with trials"


# ------------------------------------------------------------------------------------- on a GPU


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("shape", [(512, 512, 512), (1000, 1000, 1000), (333, 777, 1111)], ids=str)
def test_the_second_bind_is_quick_and_both_are_right(device, tmp_path, shape, dtype):
    path, stream = tmp_path / "choices.csv", device.create_stream()
    p = room.problem(*shape, seed=7, dtype=dtype)
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

    p = room.problem(2048, 2048, 2048, seed=3)
    choice = launch.tune(p, device)
    bounds = {str(c): launch.bind_config(str(c), p, device, c) for c in family.candidates(p, device)}
    times = {name: t.median_us for name, t in bench.time(bounds, device, budget_s=0.5).items()}
    assert times[str(choice.config)] < 1.25 * min(times.values()), times
    assert 0.5 < choice.median_us / times[str(choice.config)] < 2, "the same protocol"


@pytest.mark.gpu
@pytest.mark.parametrize("n", [520, 517])  # B and C as they are, and through padded copies
def test_a_candidate_that_multiplies_nothing_is_the_fastest_and_not_chosen(device, monkeypatch, n):
    if jit.arch_of(device) not in family.TARGETS:
        pytest.skip("without wgmma a launch has one step only")
    p, idle, bind_config = room.problem(700, n, 640, seed=3), [], launch.bind_config

    def bind(name, problem, device, config, **extra):
        bound = bind_config(name, problem, device, config, **extra)
        if len(idle) < 2 or config in idle:
            idle.append(config)
            # Without the multiplication; the copies before and after it stay.
            bound.steps[:] = [s for s in bound.steps if n == 517 and s is not bound.steps[1]]
        return bound

    monkeypatch.setattr(launch, "bind_config", bind)
    with pytest.warns(UserWarning, match="its output is not that of mma_sp") as caught:
        winner = launch.tune(p, device)
    assert len(caught) == 2 and winner.config not in idle and winner.median_us > 1


@pytest.mark.gpu
def test_trials_leave_nothing_but_a_right_result(device, tmp_path):
    """Alpha, C and a bias go to the configuration that was chosen without them."""
    import cupy

    from kernels.formats import half

    if jit.arch_of(device) not in family.TARGETS:
        pytest.skip("this GPU has no wgmma")
    p = room.problem(700, 520, 640, seed=5)
    product = check.oracle(p, on="cpu").values
    c = half.from_dense(cupy.full((700, 520), 3.0, cupy.float32), "bfloat16")
    bias = cupy.arange(700, dtype=cupy.float32) % 5
    bound = launch.bind_auto("auto", p, device, file=tmp_path / "choices.csv", alpha=2.0, beta=-1.0, c=c, bias=bias)
    exact = 2 * product - 3 + (np.arange(700) % 5)[:, None]
    reference = check.reference(cupy.asarray(exact))
    assert check.check(bound, p, reference, device.create_stream()).rel_err > 0
