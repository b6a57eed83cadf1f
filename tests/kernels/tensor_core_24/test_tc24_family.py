"""What the tuner tries, how candidates are ranked, and the system's side of choosing and keeping."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import racing
from hypothesis import given, settings, strategies as st
from racing import A100, B200, H100_PCIE, H200, L4

from kernels import autotune, tensor_core_24 as system
from kernels.contract import Operands
from kernels.tensor_core_24 import family, fp8, launch, tiles
from kernels.tensor_core_24.family import Fp8, MmaSp, Wgmma

SMS, MOST = 132, 232448
SHAPES = sorted(
    {(s["m"], s["n"], s["k"]) for shapes in system.sweeps("full").values() for s in shapes}
    | {(1, 1, 1), (1, 8, 16), (64, 64, 64), (129, 1, 10**6), (10**6, 1, 1), (77, 10**6, 100)}
)


def never() -> Operands:
    raise AssertionError("operands are made before anything is tried")


def problem(m: int = 512, n: int = 256, k: int = 1024, dtype: str = "bfloat16"):
    return replace(system.problem(m, n, k, dtype=dtype), make_device=never, make_host=never)


# ------------------------------------------------------------------------------------- what is tried


@pytest.mark.parametrize("device", [H200, H100_PCIE], ids=lambda device: device.name)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_every_candidate_takes_the_problem_and_none_is_far_from_the_best(device, shape):
    of, apart = (*shape, *tiles.limits(device)), family.line_cost(*shape[1:]) > 1
    assert family.candidates(problem(*shape), device) == [*family.likely(False, *of)]
    for eight, members in ((False, family.WGMMA_FAMILY), (True, family.FP8_FAMILY)):
        taken = [c for c in members if c.takes(*of) and (apart or c.kernel != "clusters")]
        times = {c: c.predict(*of[:4]) for c in taken}
        likely = {c for c, time in times.items() if time <= tiles.WITHIN * min(times.values())}
        assert set(family.likely(eight, *of)) == likely and 0 < len(likely) < len(members)


@pytest.mark.parametrize("device", [A100, L4, B200], ids=lambda device: device.name)
@pytest.mark.parametrize("shape", [(1, 1, 1), (512, 512, 512), (8192, 128, 8192), (333, 777, 1111)])
def test_a_gpu_without_wgmma_tries_the_sources_family(device, shape):
    found = family.candidates(problem(*shape), device)
    assert family.PUBLISHED in found and len(found) >= 3
    assert all(isinstance(config, MmaSp) and config.takes(*shape, *tiles.limits(device)) for config in found)
    left_out = [config for config in family.MMA_SP_FAMILY if config not in found]
    assert not any(config.takes(*shape, *tiles.limits(device)) for config in left_out)
    assert bool(left_out) == (device is L4), "99 KiB a block are not enough for all"
    by_columns = replace(problem(*shape), orders="FF")
    assert all(family.fits(c, problem(*shape), device) and not family.fits(c, by_columns, device) for c in found)


# ---------------------------------------------------------------------------------- the prediction

SIZES = st.integers(1, 20000)


@given(config=st.sampled_from(family.WGMMA_FAMILY), m=SIZES, n=SIZES, k=SIZES, sms=st.integers(1, 200))
@settings(deadline=None, max_examples=200)
def test_more_work_never_takes_less_time_and_more_multiprocessors_never_more(config, m, n, k, sms):
    time = config.predict(m, n, k, sms)
    assert time > 0
    # A last wave that is cut adds the sums of two blocks, and the next one that is not does not.
    less = time - (area(config) / family.EXCHANGED if config.kernel == "last_wave" else 0)
    assert config.predict(2 * m, n, k, sms) >= less
    whole = 64 * n  # rows that do not begin at whole lines take longer than longer ones
    assert config.predict(m, 2 * whole, k, sms) >= config.predict(m, whole, k, sms) + less - time
    if config.kernel != "last_wave" or k > family.K:  # one step cannot be cut in two
        assert config.predict(m, n, 2 * k, sms) >= time
    assert config.predict(m, n, k, 2 * sms) <= 2 * time - less


def area(config: Wgmma) -> int:
    """Elements of C of a block."""
    return config.m * config.n


@pytest.mark.parametrize(
    ("shape", "wanted"),
    [
        ((16384, 16384, 16384), lambda c: area(c) >= 128 * 256),  # small tiles copy more than they have time for
        ((512, 512, 512), lambda c: area(c) < 128 * 256),  # 8 tiles of 128 x 256 for 132 multiprocessors
        ((512, 512, 64), lambda c: c.splits == 1),  # one step is split by nobody
        ((8192, 64, 8192), lambda c: c.n < 256),
        ((28672, 1000, 8192), lambda c: c.copied or c.share > 1),  # rows at odd multiples of 16 bytes
        ((28672, 1024, 8192), lambda c: not c.copied and c.share == 1),
    ],
    ids=lambda value: "" if callable(value) else str(value),
)
def test_the_best_by_prediction_is_what_the_sizes_want(shape, wanted):
    assert wanted(min(family.candidates(problem(*shape), H200), key=lambda c: c.predict(*shape, SMS)))


def test_pieces_of_the_last_wave_take_less_than_tiles():
    """56 tiles are left at 8192 cubed, 24 at 28672 x 4096, and 88 at 4096 cubed, which are too many for pieces."""
    pieces, three = (system.RUNGS[f"wgmma_{kernel}"][0] for kernel in ("pieces", "three"))
    shapes = (8192, 8192, 8192), (28672, 4096, 8192), (4096, 4096, 8192)
    gains = [three.predict(*shape, SMS) / pieces.predict(*shape, SMS) for shape in shapes]
    assert gains == [pytest.approx(1.03, abs=0.01), pytest.approx(1.02, abs=0.01), 1]


@pytest.mark.parametrize(("count", "waves"), [(1, 0.5), (66, 0.5), (67, 1), (132, 1), (133, 1.5), (198, 1.5), (199, 2)])
def test_a_last_wave_that_is_cut_counts_half(count, waves):
    """Half of what another wave costs where nothing is cut, and the exchange of sums; DRAM is a few hundredths."""
    config = system.RUNGS["wgmma_last_wave"][0]

    def predicted(kernel: str, of: int) -> float:
        return replace(config, kernel=kernel).predict(config.m, config.n * of, 8192, SMS)

    one, two = predicted("lean", SMS), predicted("lean", 2 * SMS)
    assert one < two
    expected = one + (waves - 1) * (two - one)
    exchanged = area(config) / family.EXCHANGED if waves % 1 else 0
    assert predicted("last_wave", count) == pytest.approx(expected + exchanged, rel=0.07)


# ----------------------------------------------------------------------------------------- trials


@pytest.fixture
def trials(monkeypatch):
    """tune without a GPU: a configuration takes what its place in the family says.

    `bound` has (name, config, what was asked for beside) of what is made ready.
    """
    made = racing.track(monkeypatch, lambda config, rounds: 100.0 + order(config))
    made.bound = []

    def prepare(name, problem, device, config, **extra):
        made.bound.append((name, config, extra))
        return SimpleNamespace(name=name, prepare_ms=1.0)

    monkeypatch.setattr(launch, "prepare_config", prepare)
    return made


def order(config) -> int:
    return (*family.WGMMA_FAMILY, *family.MMA_SP_FAMILY, *family.FP8_FAMILY).index(config)


def ready(*shape, dtype="bfloat16"):
    """A problem whose operands are asked for their dtypes, and their scales, only."""
    scale = np.ones((1, 1))
    ops = Operands(*(SimpleNamespace(dtype=x, scale=scale) for x in (dtype, dtype, "bfloat16")))
    return replace(fp8.problem(*shape) if dtype == "e4m3" else problem(*shape, dtype=dtype), make_device=lambda: ops)


@pytest.mark.parametrize(("dtype", "reference"), [("bfloat16", "mma_sp"), ("e4m3", "fp8_persistent")])
def test_the_fastest_candidate_is_chosen_checked_against_a_simple_kernel(trials, dtype, reference):
    p = ready(4096, 4096, 4096, dtype=dtype)
    found = family.candidates(p, H200)
    assert {type(c) for c in found} == {Fp8 if dtype == "e4m3" else Wgmma}
    assert launch.tune(p, H200).config == min(found, key=order)
    (first, second, *others), judge = trials.bound, (reference, launch.CONFIGS[reference], {})
    assert first == second == judge, "with and without signs"
    assert others[-2] == judge and others[-1][1] == min(found, key=order), "on whole numbers"
    del others[-2:]
    assert [config for _, config, _ in others] == found
    assert all(extra["cache"] is others[0][2]["cache"] for *_, extra in others), "prepared once"
    assert {job[:2] for job in trials.compiled} == {(c.source, c.entry("bfloat16")) for c in found}
    (first, few), (final, more) = trials.heats
    finalists = family.ROUNDS.finalists * family.ROUNDS.factor
    assert first == found and len(final) == min(finalists, len(found)) and few < more


def test_where_the_published_kernel_cannot_run_another_one_says_what_is_right(trials, monkeypatch):
    prepare = launch.prepare_config

    def refusing(name, problem, device, config, **extra):
        if isinstance(config, MmaSp):
            raise ValueError("mma_sp counts within a tile in 32 bits")
        return prepare(name, problem, device, config, **extra)

    monkeypatch.setattr(launch, "prepare_config", refusing)
    launch.tune(ready(4096, 4096, 4096), H200)
    assert trials.bound[0][:2] == ("wgmma_one_stage", system.RUNGS["wgmma_one_stage"][0])


def test_prepare_tunes_once_and_what_is_chosen_serves_a_product_with_c_and_a_bias(trials, tmp_path):
    """The fastest plain kernel may add neither: then it is the same tile from one that does."""
    path = tmp_path / "choices.csv"
    first = system.prepare("auto", ready(), H200, file=path, alpha=2.0)
    heats = len(trials.heats)
    (choice,) = read(path).values()
    second = system.prepare("auto", problem(), H200, file=path)
    assert len(trials.heats) == heats and first.prepare_ms > 1.0 == second.prepare_ms, "tried once"
    assert trials.bound[-2:] == [("auto", choice.config, {"alpha": 2.0}), ("auto", choice.config, {})]
    for other in (ready(512, 256, 2048), ready(dtype="float16")):
        system.prepare("auto", other, H200, file=path)
    assert len(trials.heats) == 3 * heats and len(read(path)) == 3, "other problems"
    chosen = Wgmma("multicast", 2, 2, 192, 4, 2, band=4, keep="a")
    write(path, problem(), chosen)
    for extra, kernel in (
        ({"alpha": 2.0}, "multicast"),
        ({"bias": "one"}, "lean"),
        ({"beta": 1.0, "c": "one"}, "lean"),
    ):
        system.prepare("auto", problem(), H200, file=path, **extra)
        assert trials.bound[-1] == ("auto", replace(chosen, kernel=kernel), extra)


#: What a tuner chooses, or has chosen when the family was another.
CHOSEN = (*family.WGMMA_FAMILY, *(config for config, *_ in system.RUNGS.values() if config.stages > 1))


@pytest.mark.parametrize("config", CHOSEN, ids=str)
def test_the_kernel_that_adds_instead_takes_the_same_tile(config):
    """Nobody is told afterwards that the tile of the choice is none."""
    assert family.complete(config, set()) is config
    instead = family.complete(config, {"bias"})
    assert instead.kernel in family.COMPLETE and (instead is config) == (config.kernel in family.COMPLETE)
    assert instead.n == config.n and (instead.m == config.m or config.kernel == "refilling")
    instead.check(8192, 8200 if config.copied else 8192, 8192, SMS, MOST)


# -------------------------------------------------------------------------------------- the file


KEPT = racing.Kept(family)
read, write, look_up = KEPT.read, KEPT.write, KEPT.look_up


def test_every_configuration_is_read_as_it_was_written():
    for config in (*family.WGMMA_FAMILY, *family.NARROW_FAMILY, *family.MMA_SP_FAMILY, *family.FP8_FAMILY):
        assert autotune.choices.parse_knobs(autotune.knobs(config), type(config)) == config


def test_a_choice_that_the_gpu_does_not_take_is_made_again(monkeypatch, tmp_path, trials):
    """Edited by hand, of other kernels, or from another GPU: 8 stages do not fit, 2 steps are not 3, 16 bits not 8."""
    folders, p = KEPT.in_folders(monkeypatch, tmp_path), ready(512, 256, 128)
    monkeypatch.setitem(launch.FAMILIES, "auto", replace(launch.FAMILIES["auto"], choices=family.CHOICES))
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
    system.prepare("auto", p, H200)
    assert trials.heats and trials.bound[-1][1] in family.candidates(p, H200)
    assert look_up(p, H200) == trials.bound[-1][1], "and the own one comes first from now on"


def test_shipped_choices_are_the_shapes_of_the_sweeps_and_fit_their_gpu():
    swept = {family.key(system.problem(**s)) for shapes in system.sweeps("full").values() for s in shapes}
    for path in family.CHOICES.shipped.glob("*.csv"):
        device, choices = racing.SHIPPED[path.stem], read(path)
        for (m, n, k, dtype), choice in choices.items():
            assert isinstance(choice.config, Fp8) == dtype.startswith("e4m3") and choice.median_us > 0
            choice.config.check(m, n, k, *tiles.limits(device), "FF" if dtype.endswith((" FF", " linear")) else "CC")
        whole = path.stem == "nvidia-h100-80gb-hbm3"
        assert swept <= set(choices) or not whole, "records of `auto` would begin with trials"
