"""Sparse layers on a GPU: kernels against float64, modules against masked dense ones, streams, graphs, the compiler."""

from __future__ import annotations

import os
import secrets

import pytest

from kernels.library import layers

torch = pytest.importorskip("torch")
SEED = int(os.environ.get("SPARSITY_TEST_SEED", secrets.randbits(31)))
#: tokens, inputs, features: one token, ragged ones, features and inputs that are no whole blocks, more tiles than SMs.
SHAPES = (
    (1, 64, 64), (7, 128, 192), (77, 200, 328), (300, 576, 1000), (513, 64, 9600), (1024, 3584, 1280),
)  # fmt: skip
DENSITIES = (0.0, 0.1, 0.5, 1.0)

pytestmark = pytest.mark.gpu


@pytest.fixture(autouse=True)
def hopper():
    if torch.cuda.get_device_capability() != (9, 0):
        pytest.skip("wgmma is what Hopper has")
    torch.manual_seed(SEED)


def linear(inputs: int, outputs: int, dtype=torch.bfloat16):
    made = torch.nn.Linear(inputs, outputs, bias=False, device="cuda", dtype=dtype)
    return made.requires_grad_(False)


def close(got, want) -> None:
    """Within the limits of 16-bit results: sums of exact products, rounded at most three times."""
    assert torch.isfinite(got).all(), f"seed {SEED}"
    got, want = got.double(), want.double()
    rms = float(want.square().mean().sqrt())
    if rms == 0:
        assert not got.any()
        return
    error = float((got - want).norm() / want.norm())
    worst = float(((got - want).abs() / want.abs().clamp(min=rms)).max())
    assert error < 4e-3 and worst < 1.6e-2, (error, worst, f"seed {SEED}")


def masks_of(**linears):
    made = torch.Generator("cuda").manual_seed(SEED)
    return lambda density: {
        p: layers.chosen(x.weight, density, generator=made) for p, x in linears.items()
    }


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("density", DENSITIES)
@pytest.mark.parametrize("shape", SHAPES)
def test_gated_is_silu_of_one_product_times_the_other(shape, density, dtype):
    tokens, inputs, features = shape
    gate, up, down = (
        linear(inputs, features, dtype),
        linear(inputs, features, dtype),
        linear(features, inputs, dtype),
    )
    masks = masks_of(gate_proj=gate, up_proj=up, down_proj=down)(density)
    ffn = layers.SparseFFN(gate, up, down, masks)
    x = torch.randn(tokens, inputs, device="cuda", dtype=dtype)
    call = layers.operators().block_linear
    g, u = (
        x.double() @ layers.masked(w.weight, masks[p]).double().t()
        for p, w in (("gate_proj", gate), ("up_proj", up))
    )
    for _ in range(3):  # the counter of tiles is as it was
        got = call(x, ffn.val, ffn.index, ffn.col_idx, ffn.counter, features, "gated")
        close(got, torch.nn.functional.silu(g) * u)
    assert ffn.counter.tolist() == [0, 0]


def test_gated_holds_where_silu_is_nearly_nothing_or_all_of_its_input():
    gate, up, down = linear(64, 64), linear(64, 64), linear(64, 64)
    for w, scale in ((gate, 64.0), (up, 1.0)):
        w.weight.copy_(torch.eye(64) * scale)
    every = torch.ones(1, 1, dtype=torch.bool, device="cuda")
    ffn = layers.SparseFFN(gate, up, down, {p: every for p in layers.PROJECTIONS})
    x = (
        torch.linspace(-4, 4, 64 * 80, device="cuda").view(80, 64).bfloat16()
    )  # gate from -256 to 256
    got = layers.operators().block_linear(
        x, ffn.val, ffn.index, ffn.col_idx, ffn.counter, 64, "gated"
    )
    wide = x.double()
    want = torch.nn.functional.silu(64 * wide) * wide
    assert torch.isfinite(got).all()
    assert ((got.double() - want).abs() <= 0.01 * want.abs() + 1e-12).all()


@pytest.mark.parametrize("published", [False, True])
@pytest.mark.parametrize("density", DENSITIES)
@pytest.mark.parametrize("shape", SHAPES)
def test_a_linear_layer_is_the_masked_one(shape, density, published):
    tokens, inputs, outputs = shape
    if published:
        tokens = -(-tokens // 8) * 8  # lines that the copy engine writes
    dense = linear(inputs, outputs)
    mask = masks_of(w=dense)(density)["w"]
    sparse = layers.BlockSparseLinear.of(dense, mask, published)
    x = torch.randn(2, tokens, inputs, device="cuda").bfloat16()
    close(sparse(x), x.double() @ layers.masked(dense.weight, mask).double().t())


def ffn_and_masked(density: float):
    """A sparse FFN, and what it has to be: in float64, but for the hidden state, which is handed on in BF16."""
    gate, up, down = linear(896, 4864), linear(896, 4864), linear(4864, 896)
    masks = masks_of(gate_proj=gate, up_proj=up, down_proj=down)(density)
    g, u, d = (
        layers.masked(w.weight, masks[p]).double()
        for p, w in zip(layers.PROJECTIONS, (gate, up, down), strict=True)
    )

    def want(x):
        silu = torch.nn.functional.silu(x.double() @ g.t()).bfloat16().double()
        return (silu * (x.double() @ u.t())).bfloat16().double() @ d.t()

    return layers.SparseFFN(gate, up, down, masks), want


def test_a_whole_ffn_on_another_stream():
    ffn, want = ffn_and_masked(0.1)
    x = torch.randn(1, 1000, 896, device="cuda").bfloat16()
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        got = ffn(x)
    stream.synchronize()
    close(got, want(x))


def test_a_captured_ffn_follows_its_input():
    ffn, want = ffn_and_masked(0.2)
    x = torch.randn(1, 512, 896, device="cuda").bfloat16()
    ffn(x)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="relaxed"):
        got = ffn(x)
    for _ in range(3):
        x.copy_(torch.randn_like(x))
        graph.replay()
        torch.cuda.synchronize()
        close(got, want(x))


def test_a_compiled_ffn_at_several_lengths():
    ffn, want = ffn_and_masked(0.1)
    compiled = torch.compile(ffn, fullgraph=True, dynamic=True)
    for tokens in (64, 200, 1024):
        x = torch.randn(1, tokens, 896, device="cuda").bfloat16()
        close(compiled(x), want(x))


def test_nothing_of_an_activation_is_copied():
    ffn, _ = ffn_and_masked(0.1)
    x = torch.randn(1, 4096, 896, device="cuda").bfloat16()
    ffn(x)
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    ffn(x)
    hidden, out = 2 * 4096 * 4864, 2 * 4096 * 896
    assert torch.cuda.max_memory_allocated() - before <= hidden + out + 2**20
