"""What is launched for a configuration of Hopper's kernels, in 16 bits and in 8, on a GPU that is not there."""

from dataclasses import replace
from functools import partial
from math import ceil

import numpy as np
import pytest
import racing
from hypothesis import HealthCheck, Phase, given, settings, strategies as st
from pretend import as_array
from refused import says
from there import FP8, KINDS, MOST, PACKED, SMS, WGMMA, arguments, arrays, problem_of

from kernels import jit, tensor_core_24 as system
from kernels.formats.half import DTYPES, Half
from kernels.tensor_core_24 import family, fp8, gpcs, tiles, wgmma
from kernels.tensor_core_24.family import Wgmma
from kernels.tma import Mapped

PLACES = as_array(np.random.default_rng(1).permutation(SMS).astype(np.int32))
CLUSTERS = 31  #: of any size, that a GPU is said to have room for


@pytest.fixture
def h200(pretended, monkeypatch):
    device = pretended(racing.H200)
    monkeypatch.setattr(gpcs, "places", lambda number: PLACES)
    monkeypatch.setattr(jit, "most_clusters", lambda kernel, config, device: CLUSTERS)
    monkeypatch.setattr(jit, "launched_with", lambda cubin, registers: f"{cubin} @{registers}")
    return device


def prepare(config, p, device, **more):
    return wgmma.prepare("x", p, device, config, **more)


def steps_of(bound):
    """(what is copied before, the multiplication, what is copied after)."""
    at = next(i for i, (kernel, *_) in enumerate(bound.named) if not kernel.startswith("pitch"))
    return bound.named[:at], bound.named[at], bound.named[at + 1 :]


@settings(max_examples=150, deadline=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_a_launch_multiplies_all_tiles_of_what_it_is_given(h200, data):
    """Every argument, by its name in the source: all of A, B and C, in lines that the copy engine can address."""
    name = data.draw(st.sampled_from([*KINDS]), "kernel")
    config = data.draw(st.sampled_from([c for c in (*WGMMA, *PACKED, *FP8) if c.name == name]), "config")
    orders = data.draw(st.sampled_from([x for x in config.kind.orders]), "orders")
    m, n, k = (data.draw(st.sampled_from(sizes)) for sizes in ((1, 300, 2600), (1, 8, 257, 2568), (16, 200, 512)))
    by = data.draw(st.sampled_from([(0, 0, 0), (8, 0, 0), (0, 8, 0), (0, 0, 8)]), "by")
    eight = not isinstance(config, Wgmma)
    more = {"scale": data.draw(st.sampled_from(["tensor", "vectors"]))} if eight else {}
    if eight and orders == "CC":
        more["out"] = data.draw(st.sampled_from(["bfloat16", "e4m3"]))
    p = problem_of(config, m, n, k, orders, by, **more)
    if not config.takes(m, n, k, SMS, MOST, orders):
        says([], lambda: prepare(config, p, h200))
        return
    bias = data.draw(st.sampled_from([None, as_array(np.ones(m, np.float32))]), "bias") if config.kind.adds else None
    bound, ops = prepare(config, p, h200, **({} if bias is None else {"bias": bias})), p.device()
    before, (kernel, how, given_), after = steps_of(bound)
    of, there = arguments(kernel.split(" @")[0], given_), arrays(*bound.keep, ops.b.bits, ops.c.bits)
    assert (" @128" in kernel) == config.kind.exchanging and bound.result() is ops.c

    # The grid and the order of tiles.
    high, wide = (of["high"], of["wide"]) if "high" in of else how.grid
    below, rounds = max(config.share, config.kind.below), config.stages if config.kind.exchanging else 1
    assert (high - 1) * below * config.m < m <= high * below * config.m and (wide - 1) * config.n < n <= wide * config.n
    assert of["steps"] == ceil(ceil(k / config.K) / rounds) * rounds, "whole rounds of the ring"
    assert how.block == config.threads and how.shmem_size == config.shared_bytes
    assert getattr(how, "cluster", 1) == max(below, config.splits, 1 + config.kind.pairs)
    count = of["whole"] + (high * wide - of["whole"]) * ceil(3 / of["groups"]) if "groups" in of else high * wide
    most = {"gpc": 0, "clusters": CLUSTERS}.get(
        config.kernel, SMS // getattr(how, "cluster", 1) if config.kind.stays else count
    )
    assert how.grid == ((high, wide) if "high" not in of else min(count, most) or SMS)
    assert getattr(how, "is_cooperative", False) == (config.kernel == "gpc")
    assert 1 <= of.get("band", 1) <= config.band and of.get("kept", 0) == tiles.KEEP[config.keep]

    # A and its metadata.
    host, first = p.host().a, next(iter(of.values()))
    val = there.get(getattr(first, "address", first))
    if eight:
        made = there[of["packed"] if "packed" in of else of["e"].address]
        rows = made.shape[0] * 64
        right = (wgmma.pack_values if "packed" in of else wgmma.ring_metadata)(host, rows, 128)
        scales = ops.a.scale, ops.b.scale, *([ops.c.scale] if "e4m3" in more.values() else [])
        assert [of[f"scale_{x}"] for x in "abd"][: len(scales)] == [x.data.ptr for x in scales]
        assert len(scales) == 3 or of["scale_d"] == 0
    else:
        made = there[getattr(of["e"], "address", of["e"])]
        rows, right = made.shape[0] * 64, wgmma.ring_metadata(host, 64 * made.shape[0], made.shape[1] // 2)
        assert made.shape[1] >= 128 * of["steps"]
        packed = next((x for x in there.values() if x.ndim == 4), None)
        assert (packed is not None) == config.in_order_of_use
        if packed is not None:
            assert np.array_equal(packed, wgmma.pack_values(host, 64 * packed.shape[0], 64 * packed.shape[1]))
            assert packed.shape[1] >= of["steps"]
        assert of.get("pieces", 0) == (packed.shape[1] if packed is not None and config.kind.ordered else 0)
    assert np.array_equal(made, right) and (eight and "packed" not in of or rows >= high * below * config.m)
    if not config.in_order_of_use:
        assert np.array_equal(val[:, : host.val.shape[1]], host.val) and not val[:, host.val.shape[1] :].any()
        assert len(val) == m and val.data.ptr % 16 == val.strides[0] % (16 if eight else 64) == 0, "whole steps"
        rows_of_a = 64 if config.kernel == "pieces" else config.m
        assert not isinstance(first, Mapped) or first.box == (rows_of_a, 64 // val.itemsize)

    # B and C, or the lines that they are copied to.
    by_k, by_m = orders[0] == "F" or eight, orders[1] == "F"
    for name, length, number, x in (
        ("b", *((k, n) if by_k else (n, k)), ops.b.bits),
        ("d" if eight else "c", *((m, n) if by_m else (n, m)), ops.c.bits),
    ):
        address = getattr(of[name], "address", of[name])
        copies = [arguments(*step[::2]) for step in (before if name == "b" else after) if x.data.ptr in step[2]]
        assert address % 16 == 0 and [address] == ([x["to" if name == "b" else "from"] for x in copies] or [x.data.ptr])
        assert all(x["lines"] == number for x in copies) and (copies or name != "b" or not config.copied)
        if isinstance(of[name], Mapped):
            wide = of[name].shape[1]
            assert of[name].shape == (number, wide) and wide >= length and of[name].strides[0] % 16 == 0
            box = (config.n if by_k else config.K) // below if name == "b" else min(64, config.n) if by_m else 64
            assert of[name].box[0] == box
    assert not config.kind.adds or of.get("bias") == (0 if bias is None else bias.data.ptr)
    assert ([of["m"], of["n"]] == [m, n]) if "m" in of else not config.kind.adds


@pytest.mark.parametrize("config", [c for c in KINDS.values() if isinstance(c, Wgmma)], ids=lambda c: c.kernel)
def test_alpha_beta_c_a_bias_and_an_activation_reach_the_kernel_or_are_refused(h200, config):
    orders = config.kind.orders[0]
    p = problem_of(config, 1408, 3071, 256, orders)
    c = Half("bfloat16", as_array(np.ones((1408, 3071), np.uint16, order=orders[1])))
    more = {"beta": -2.0, "c": c, "bias": as_array(np.ones(1408, np.float32)), "activation": "gelu"}
    config = replace(config, copied=False)
    if not config.kind.adds:
        for name in ("beta", "bias", "activation"):
            chosen = {name: more[name]} | ({"c": c} if name == "beta" else {})
            says([config.name, "lean"], lambda chosen=chosen: prepare(config, p, h200, **chosen))
        more = {"beta": 0.0, "c": c}
    bound = prepare(config, p, h200, alpha=0.5, **more)
    before, (kernel, _, given_), _ = steps_of(bound)
    of = arguments(kernel.split(" @")[0], given_)
    assert of["alpha"] == np.float32(0.5) and all(x is not c.bits for x in bound.scratch)
    if config.kind.adds:
        assert "GELU" in kernel and of["beta"] == np.float32(-2) and of["bias"] == more["bias"].data.ptr
        copied = [arguments(x[0], x[2]) for x in before if c.bits.data.ptr in x[2]]
        assert of["c_in"] == (copied[0]["to"] if copied else c.bits.data.ptr) != 0
        assert bool(copied) == (orders[1] == "C") and of["c_in"] not in (p.device().c.bits.data.ptr, of["c"])
        plain = prepare(config, p, h200, c=c)
        assert arguments(steps_of(plain)[1][0].split(" @")[0], steps_of(plain)[1][2])["c_in"] == 0


def test_what_does_not_go_with_the_product_is_one_sentence(h200):
    """A wrong shape or dtype would be read as something else, and beyond its end."""
    p = problem_of(Wgmma(), 64, 72, 128)
    out = p.device().c

    def c(shape, dtype="bfloat16") -> Half:
        return Half(dtype, as_array(np.zeros(shape, np.uint16)))

    for extra, words in (
        ({"beta": 1.0}, ["beta = 1.0"]),
        ({"beta": 1.0, "c": c((72, 64))}, ["(64, 72)", "(72, 64)"]),
        ({"beta": 1.0, "c": c((64, 72), "float16")}, ["bfloat16", "float16"]),
        ({"beta": 1.0, "c": Half("bfloat16", c((64, 144)).bits[:, ::2])}, ["strides"]),
        ({"beta": 1.0, "c": out}, ["copy it"]),
        ({"bias": as_array(np.zeros(72, np.float32))}, ["(64,)", "(72,)"]),
        ({"bias": as_array(np.zeros(64, np.float64))}, ["float64"]),
        ({"bias": as_array(np.zeros(128, np.float32))[::2]}, ["contiguous"]),
        ({"activation": "tanh"}, ["'tanh'", "gelu"]),
    ):
        for name in ("wgmma_keep", "mma_sp") if "activation" not in extra else ("wgmma_keep",):
            says(words, lambda name=name, extra=extra: system.prepare(name, p, h200, **extra))
    e4m3, others = problem_of(FP8[0], 64, 64, 128), [problem_of(Wgmma(), 64, 72, 128, dtype=x) for x in DTYPES]
    for words, work in (
        *((["e4m3"], partial(fp8.prepare, "fp8_tall", other, h200)) for other in others),
        (["'tanh'"], partial(prepare, FP8[0], e4m3, h200, activation="tanh")),
        (["scales in place of alpha"], partial(prepare, FP8[0], e4m3, h200, alpha=2.0)),
        (["no FP8 variant 'auto'"], partial(fp8.prepare, "auto", e4m3, h200)),
        *((["8.9"], partial(fp8.prepare, name, e4m3, racing.L4)) for name in fp8.VARIANTS),
    ):
        says(words, work)


@pytest.mark.parametrize("config", [replace(KINDS["wgmma_lean"], packed=True), FP8[0]], ids=["16 bits", "8 bits"])
def test_configurations_that_are_tried_share_what_they_prepare(h200, config):
    cache, p = {}, problem_of(config, 64, 75, 100)
    one, two = (prepare(config, p, h200, cache=cache) for _ in range(2))
    assert one.prepare_ms > two.prepare_ms == 0
    assert one.named[1][2] == two.named[1][2] != prepare(config, p, h200).named[1][2]
    assert one.prepare_bytes == sum(x.nbytes for x in cache.values())
    assert one.scratch and all((x.view(np.uint8) == 0xFF).all() for x in one.scratch), (
        "NaN, where a copy writes nothing"
    )


def test_who_hands_sums_over_has_places_for_them_and_b_is_copied_where_that_is_asked_for(h200):
    config = system.RUNGS["wgmma_stream_k"][0]
    bound = prepare(config, problem_of(config, 1408, 3072, 128), h200)
    sums, counts = bound.scratch
    assert sums.shape == (SMS, config.m * config.n) and counts.shape == (SMS, config.groups, 2) and not counts.any()
    of = arguments(*bound.named[0][::2])
    assert [of["partial"], of["handovers"]] == [sums.data.ptr, counts.data.ptr]
    assert of["shared_tiles"] == family.shared_tiles(11 * 12, SMS)
    copied = replace(KINDS["wgmma_lean"], copied=True)
    assert len(prepare(copied, problem_of(copied, 64, 72, 128), h200).named) == 2
