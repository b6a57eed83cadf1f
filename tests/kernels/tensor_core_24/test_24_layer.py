"""What 2:4 layers hold, which kernels they call and with what, in 16 bits and in 8, and that these multiply."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import racing
from refused import says
from test_gpu_24 import FUNCTIONS
from there import MOST, PACKED, SMS, arguments

import kernels
from artifact.measure import device as gpus, verification
from kernels import formats, gpu, jit
from kernels.formats import half, two_four
from kernels.lazy import cupy
from kernels.tensor_core_24 import family, fp8, layer, operands

LIMITS = SMS, MOST
FEATURES = [(4096, 4096), (28672, 8192), (8, 16), (1000, 2064), (11008, 4096)]
TOKENS = (1, 7, 16, 64, 65, 512, 4096)
#: Dtypes of A and X, 16 bits and 8.
each = pytest.mark.parametrize("dtype", ["float16", "e4m3"])


def sizes_of(m: int, k: int, tokens: int, dtype: str, *more) -> layer.Sizes:
    return layer.Sizes(m, k, tokens, dtype, *more, vectors=dtype == "e4m3")


def test_a_layer_holds_less_than_two_thirds_of_the_weight():
    values, metadata = layer.pack(two_four.random(1024, 2048, "bfloat16", 0))
    of = layer.Sizes(1024, 2048, 5, "bfloat16")
    assert values.shape == (of.rows, of.pieces, 64, 32) and metadata.shape[1] == 128 * of.pieces
    assert values.nbytes + metadata.nbytes <= 2 * 1024 * 2048 * 0.66
    assert all(layer.reads_packed(c, False) for c in PACKED if c.kind.adds), "whole rounds of every ring"
    assert not layer.reads_packed(family.Wgmma("three", 3, 1, 128, 6, 1, packed=True), False), "but not of six stages"
    assert layer.pack(fp8.problem(1024, 8, 2048).host().a).nbytes <= 1024 * 2048 * 0.66


@each
def test_what_is_no_layer_is_one_sentence(dtype):
    good = sizes_of(64, 64, 8, dtype)
    layer.check(good)
    for more, words in (
        ({"m": 12}, ["12 outputs", "pad"]),
        ({"k": 24 if good.eight else 12}, ["inputs", "pad"]),
        ({"activation": "tanh"}, ["'tanh'", "gelu"]),
        ({"dtype": "float32"}, ["float32"]),
    ):
        says(words, lambda more=more: layer.check(replace(good, **more)))


@each
@pytest.mark.parametrize("tokens", TOKENS)
@pytest.mark.parametrize(("m", "k"), FEATURES)
def test_a_call_brings_addresses_to_a_kernel_that_reads_what_is_held(pretended, monkeypatch, dtype, m, k, tokens):
    monkeypatch.setattr(layer.tma, "encoded", lambda said: said)
    device, sizes = pretended(racing.H200), sizes_of(m, k, tokens, dtype, True, "gelu")
    monkeypatch.setattr(gpu, "with_wgmma", lambda ordinal, what: device)
    monkeypatch.setattr(jit, "most_clusters", lambda *_: 66)
    layer.launcher.cache_clear()
    run = layer.launcher(sizes, 0)
    names = ("x", "y", "packed", "scale_a", "scale_b") if sizes.eight else ("x", "y", "values", "e")
    at = {name: 4096 * (i + 1) for i, name in enumerate((*names, "bias"))}
    run("a stream", *at.values())
    ((stream, how, kernel, *given),) = device.launched
    of, config = arguments(kernel, given), run.config
    assert stream == "a stream" and layer.reads_packed(config, sizes.eight)
    assert config.takes(m, tokens, k, *LIMITS, layer.ORDERS) and (tokens > 64 or config.n <= 64 or sizes.eight)
    assert "GELU" in kernel and how.block == config.threads
    assert of["b"].address == at["x"] and of["b"].shape == (tokens, k) and of["bias"] == at["bias"]
    y = of["d" if sizes.eight else "c"]
    assert y == at["y"] or (y.address, y.shape, y.box) == (at["y"], (tokens, m), (min(64, config.n), 64))
    assert [of["m"], of["n"]] == [m, tokens] and of["high"] * config.below * config.m >= m
    assert of["wide"] * config.n >= tokens and of["steps"] * config.K >= k
    if sizes.eight:
        assert [of["packed"], of["scale_a"], of["scale_b"], of["scale_d"]] == [*(at[x] for x in names[2:]), 0]
    else:
        a = next(iter(of.values()))
        assert getattr(a, "address", a) == at["values"] and of["e"].address == at["e"]
        assert of["pieces"] == sizes.pieces and of["pitch"] == m and [of["alpha"], of["beta"], of["c_in"]] == [1, 0, 0]
        assert 64 * of["e"].shape[0] >= of["high"] * config.below * config.m and of["e"].shape[1] == 128 * sizes.pieces
    monkeypatch.setattr(layer.wgmma, "arguments", None)
    run("another", *at.values())
    assert device.launched[1][3:] == (*given,), "what was mapped is remembered"


def test_a_tuned_choice_is_taken_only_where_it_reads_what_is_held(monkeypatch):
    device, asked = SimpleNamespace(**vars(racing.H200)), []

    def look_up(choices, key, device, fits, near):
        asked.append(key)
        return next((SimpleNamespace(config=c) for c in kept if fits(c)), None)

    monkeypatch.setattr(layer.autotune, "look_up", look_up)
    lean = family.Wgmma("lean", 2, 1, 256, 4, 2, band=16, keep="a")
    kept = [family.PUBLISHED, lean, replace(lean, kernel="packed"), replace(lean, packed=True)]
    assert layer.config_of(layer.Sizes(4096, 4096, 4096, "float16"), device) == kept[-1]
    assert asked == [(4096, 4096, 4096, "float16 FF")]
    in_8 = layer.config_of(sizes_of(4096, 4096, 4096, "e4m3"), device)
    assert layer.reads_packed(in_8, True) and asked[1][3] == "e4m3 scaled by vectors linear"
    says(
        ["no kernel takes a 2:4 layer of 64 inputs"], lambda: layer.predicted(sizes_of(64, 64, 8, "float16"), SMS, 1024)
    )


@pytest.mark.parametrize("tokens", [1, 16, 100])
@pytest.mark.parametrize("orders", operands.ORDERS)
def test_a_plan_takes_both_orders_as_they_lie(pretended, monkeypatch, orders, tokens):
    """One launch where lines of B and C are multiples of 8 elements long, whatever the number of tokens."""
    pretended(racing.H200)
    monkeypatch.setattr(jit, "most_clusters", lambda *_: 66)
    a = formats.to_device(two_four.random(256, 512, "bfloat16", 1))
    made = kernels.plan(a, tokens, dtype="bfloat16", order=orders[0], out_order=orders[1], tune=False)
    assert made.b_order + made.out_order == orders
    assert len(made._steps) == 1 + (orders.count("C") if tokens % 8 else 0)


@pytest.mark.gpu
@pytest.mark.parametrize("activation", ["", "gelu"])
@pytest.mark.parametrize("kind", ["bfloat16", "float16", *operands.SCALES])
@pytest.mark.parametrize("tokens", [1, 3, 16, 100, 700])
@pytest.mark.parametrize(("m", "k"), [(1000, 2064), (4096, 1024), (8, 16)])
def test_a_layer_multiplies(m, k, tokens, kind, activation):
    """Packed on the GPU, to the bits that NumPy packs."""
    opened = gpus.require().open()
    stream, in_8 = opened.create_stream(), kind in operands.SCALES
    more = {"scale": kind} if in_8 else {"dtype": kind}
    p = (fp8 if in_8 else operands).problem(m, tokens, k, seed=m + tokens, orders="FF", **more)
    ops = p.device()
    packed, here = layer.pack(ops.a), layer.pack(p.host().a)
    held = [packed, ops.a.scale, ops.b.scale] if in_8 else [*packed]
    assert all(np.array_equal(x.get(), y) for x, y in zip(held, (here,) if in_8 else here, strict=False))
    bias = cupy.linspace(-2, 2, m, dtype=cupy.float32)
    of = layer.Sizes(m, k, tokens, "e4m3" if in_8 else kind, True, activation, kind == "vectors")
    run = layer.launcher(of, 0)
    ops.c.fill(np.nan)
    opened.sync()
    run(stream, *(x.data.ptr for x in (ops.b.bits, ops.c.bits, *held, bias)))
    stream.sync()
    product = verification.oracle(p, on="cpu").values + bias.get()[:, None].astype(np.float64)
    verification.compare(ops.c, verification.reference(FUNCTIONS[activation](product)), "a layer", p.limit)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_tokens_are_quantised_by_themselves(dtype):
    opened = gpus.require().open()
    stream = opened.create_stream()
    tokens, k = 37, 4112
    x = np.random.default_rng(5).standard_normal((tokens, k)).astype(np.float32)
    x[3] *= 100
    x[5] = 0
    bits = half.to_bits(x, dtype)
    bits[7, 3] = half.to_bits(np.array([np.nan], np.float32), dtype)[0]
    there, to = cupy.asarray(bits), cupy.full((tokens, k), 0xFF, cupy.uint8)
    scale = cupy.full(tokens, np.nan, cupy.float32)
    opened.sync()
    layer.quantise(stream, dtype, tokens, k, there.data.ptr, to.data.ptr, scale.data.ptr, opened)
    stream.sync()
    units, found = scale.get(), half.from_bits(to.get(), "e4m3")
    assert np.isnan(units[7]) and units[5] == 1 and not found[5].any()
    rest = [i for i in range(tokens) if i not in (5, 7)]
    x = half.from_bits(bits, dtype)[rest]
    assert np.allclose(units[rest], np.abs(x).max(1) / 448, rtol=1e-6)
    off = np.abs(found[rest] * units[rest, None] - x)
    assert (off <= np.maximum(np.abs(x) / 16, units[rest, None] * 2.0**-10) * 1.01).all()
