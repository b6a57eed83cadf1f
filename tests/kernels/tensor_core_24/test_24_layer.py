"""What a 2:4 layer holds, which kernel it calls, and that this one multiplies."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import racing

from artifact.measure import check
from artifact.measure import device as gpus
from kernels.formats import two_four
from kernels.formats.half import Half
from kernels.tensor_core_24 import family, fp8_family, fp8_layer, fp8_operands, layer, operands
from kernels.tensor_core_24.layer import Sizes

LIMITS = (132, 232_448)
SIZES = [
    Sizes(m, k, tokens, "bfloat16")
    for m, k in ((4096, 4096), (28672, 8192), (8, 8), (1000, 2056), (11008, 4096))
    for tokens in (1, 7, 16, 64, 65, 512, 4096)
]


def test_a_layer_holds_less_than_two_thirds_of_the_weight():
    a = two_four.random(1024, 2048, "bfloat16", 0)
    values, metadata = layer.pack(a)
    assert values.nbytes + metadata.nbytes <= 2 * 1024 * 2048 * 0.66
    of = Sizes(a.m, a.k, 5, "bfloat16")
    assert values.shape == (of.rows, of.pieces, 64, 32) and metadata.shape[1] == 128 * of.pieces


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_every_size_has_a_kernel_that_reads_what_is_held(sizes):
    config = layer.predicted(sizes, *LIMITS)
    assert layer.reads_packed(config) and family.takes(config, sizes.m, sizes.n, sizes.k, *LIMITS, layer.ORDERS)
    assert sizes.tokens > 64 or config.n <= 64, "few tokens, narrow tiles"


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"dtype": "float32"}, "multiplies bfloat16 or float16"),
        ({"m": 12}, "has 12 outputs"),
        ({"k": 12}, "has 12 inputs"),
        ({"activation": "tanh"}, "must be one of relu, gelu, silu"),
    ],
)
def test_what_is_no_layer_is_one_sentence(more, said):
    with pytest.raises(ValueError, match=said) as caught:
        layer.check(replace(Sizes(64, 64, 8, "bfloat16"), **more))
    assert "\n" not in str(caught.value)


def test_a_tuned_choice_is_taken_only_where_it_reads_what_is_held(monkeypatch):
    device = SimpleNamespace(**vars(racing.H200))
    asked = []

    def look_up(choices, key, device, fits, near):
        asked.append(key)
        return next((SimpleNamespace(config=c) for c in kept if fits(c)), None)

    monkeypatch.setattr(layer.tuning, "look_up", look_up)
    lean = family.Wgmma("lean", 2, 1, 256, 4, 2, band=16, keep="a")
    kept = [lean, replace(lean, packed=True)]
    sizes = Sizes(4096, 4096, 4096, "float16")
    assert layer.config_of(sizes, device) == kept[1]
    assert asked == [(4096, 4096, 4096, "float16 FF")]
    kept = [lean]
    assert layer.reads_packed(layer.config_of(sizes, device))


@pytest.mark.gpu
@pytest.mark.parametrize("activation", ["", "gelu"])
@pytest.mark.parametrize("tokens", [1, 3, 16, 64, 100, 700])
@pytest.mark.parametrize(("m", "k"), [(1000, 2056), (4096, 1024), (8, 8)])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_a_layer_multiplies(dtype, m, k, tokens, activation):
    import cupy
    from test_orders import FUNCTIONS

    opened = gpus.require().open()
    stream = opened.create_stream()
    problem = operands.problem(m, tokens, k, seed=m + tokens, dtype=dtype, orders="FF")
    ops = problem.device()
    values, metadata = layer.pack(ops.a)
    bias = cupy.linspace(-2, 2, m, dtype=cupy.float32)
    sizes = Sizes(m, k, tokens, dtype, bias=True, activation=activation)
    run = layer.launcher(sizes, opened.device_id)
    ops.c.fill(np.nan)
    opened.sync()
    run(
        stream,
        ops.b.bits.data.ptr,
        ops.c.bits.data.ptr,
        values.data.ptr,
        metadata.data.ptr,
        bias.data.ptr,
    )
    stream.sync()
    product = check.oracle(problem, on="cpu").values + bias.get()[:, None].astype(np.float64)
    out = Half(dtype, ops.c.bits.get())
    check.compare(out, check.reference(FUNCTIONS[activation](product)), "a layer")


@pytest.mark.gpu
def test_a_layer_holds_the_same_on_both_sides():
    a = two_four.random(333, 520, "bfloat16", 3)
    for here, there in zip(layer.pack(a), layer.pack(two_four.to_device(a)), strict=True):
        assert np.array_equal(here, there.get())


# ---------------------------------------------------------------- 8 bits


@pytest.mark.parametrize("vectors", [False, True])
@pytest.mark.parametrize("tokens", [1, 16, 64, 100, 4096])
@pytest.mark.parametrize(("m", "k"), [(4096, 4096), (28672, 8192), (8, 16), (1000, 2064)])
def test_every_size_has_a_kernel_in_fp8(m, k, tokens, vectors):
    sizes = fp8_layer.Sizes(m, k, tokens, vectors)
    config = fp8_layer.predicted(sizes, *LIMITS)
    assert config.kernel in fp8_family.PACKED
    assert fp8_family.fits(config, m, tokens, k, LIMITS[1], layer.ORDERS)


def test_what_is_no_layer_in_fp8_is_one_sentence():
    for sizes, said in (
        (fp8_layer.Sizes(12, 16, 1), "has 12 outputs"),
        (fp8_layer.Sizes(16, 24, 1), "has 24 inputs"),
        (fp8_layer.Sizes(16, 16, 1, activation="tanh"), "must be one of relu, gelu, silu"),
    ):
        with pytest.raises(ValueError, match=said):
            fp8_layer.check(sizes)


@pytest.mark.gpu
@pytest.mark.parametrize("activation", ["", "silu"])
@pytest.mark.parametrize("scale", fp8_operands.SCALES)
@pytest.mark.parametrize("tokens", [1, 3, 16, 64, 100, 700])
@pytest.mark.parametrize(("m", "k"), [(1000, 2064), (4096, 1024), (8, 16)])
def test_a_layer_in_fp8_multiplies(m, k, tokens, scale, activation):
    import cupy
    from test_orders import FUNCTIONS

    opened = gpus.require().open()
    stream = opened.create_stream()
    problem = fp8_operands.problem(m, tokens, k, seed=m + tokens, scale=scale, orders="FF")
    ops = problem.device()
    packed = fp8_layer.pack(ops.a)
    bias = cupy.linspace(-2, 2, m, dtype=cupy.float32)
    vectors = scale == "vectors"
    run = fp8_layer.launcher(fp8_layer.Sizes(m, k, tokens, vectors, True, activation), opened.device_id)
    ops.c.fill(np.nan)
    opened.sync()
    run(
        stream,
        ops.b.bits.data.ptr,
        ops.c.bits.data.ptr,
        packed.data.ptr,
        ops.a.scale.data.ptr,
        ops.b.scale.data.ptr,
        bias.data.ptr,
    )
    stream.sync()
    product = check.oracle(problem, on="cpu").values + bias.get()[:, None].astype(np.float64)
    out = Half("bfloat16", ops.c.bits.get())
    check.compare(out, check.reference(FUNCTIONS[activation](product)), "a layer", "fp8")


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_tokens_are_quantised_by_themselves(dtype):
    import cupy

    from kernels.formats import eight, half

    opened = gpus.require().open()
    stream = opened.create_stream()
    tokens, k = 37, 4112
    x = np.random.default_rng(5).standard_normal((tokens, k)).astype(np.float32)
    x *= 10.0 ** np.arange(-3, 4)[np.arange(tokens) % 7][:, None] if dtype == "bfloat16" else 1
    x[5] = 0
    bits = half.to_bits(x, dtype)
    x = half.from_bits(bits, dtype)
    bits[7, 3] = half.to_bits(np.array([np.nan], np.float32), dtype)[0]
    there, to = cupy.asarray(bits), cupy.full((tokens, k), 0xFF, cupy.uint8)
    scale = cupy.full(tokens, np.nan, cupy.float32)
    opened.sync()
    fp8_layer.quantise(stream, dtype, tokens, k, there.data.ptr, to.data.ptr, scale.data.ptr, opened)
    stream.sync()
    units, found = scale.get(), eight.from_bits(to.get(), "e4m3")
    assert np.isnan(units[7]) and units[5] == 1 and not found[5].any()
    rest = [i for i in range(tokens) if i not in (5, 7)]
    assert np.allclose(units[rest], np.abs(x[rest]).max(1) / 448, rtol=1e-6)
    off = np.abs(found[rest] * units[rest, None] - x[rest])
    assert (off <= np.maximum(np.abs(x[rest]) / 16, units[rest, None] * 2.0**-10) * 1.01).all()
