"""Sparse layers on a GPU: kernels against float64, modules against masked dense ones, streams, graphs, the compiler."""

from __future__ import annotations

import os
import secrets

import pytest

from kernels.library import counters, layers

torch = pytest.importorskip("torch")
SEED = int(os.environ.get("SPARSITY_TEST_SEED", secrets.randbits(31)))
#: tokens, inputs, features: one token, ragged ones, features and inputs that are no whole blocks, more tiles than SMs.
SHAPES = (
    (1, 64, 64),
    (7, 128, 192),
    (77, 200, 328),
    (300, 576, 1000),
    (513, 64, 9600),
    (1024, 3584, 1280),
    (9, 77, 130),
    (5, 1, 1),
)
DENSITIES = (0.0, 0.1, 1.0)

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
    return lambda density: {p: layers.chosen(x.weight, density, generator=made) for p, x in linears.items()}


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
        x.double() @ layers.masked(w.weight, masks[p]).double().t() for p, w in (("gate_proj", gate), ("up_proj", up))
    )
    for _ in range(3):  # the counter of tiles is as it was
        got = call(x, ffn.val, ffn.index, ffn.col_idx, features, "gated")
        close(got, torch.nn.functional.silu(g) * u)


def test_gated_holds_where_silu_is_nearly_nothing_or_all_of_its_input():
    gate, up, down = linear(64, 64), linear(64, 64), linear(64, 64)
    for w, scale in ((gate, 64.0), (up, 1.0)):
        w.weight.copy_(torch.eye(64) * scale)
    every = torch.ones(1, 1, dtype=torch.bool, device="cuda")
    ffn = layers.SparseFFN(gate, up, down, {p: every for p in layers.PROJECTIONS})
    x = torch.linspace(-4, 4, 64 * 80, device="cuda").view(80, 64).bfloat16()  # gate from -256 to 256
    got = layers.operators().block_linear(x, ffn.val, ffn.index, ffn.col_idx, 64, "gated")
    wide = x.double()
    want = torch.nn.functional.silu(64 * wide) * wide
    assert torch.isfinite(got).all()
    assert ((got.double() - want).abs() <= 0.01 * want.abs() + 1e-12).all()


@pytest.mark.parametrize("published", [False, True])
@pytest.mark.parametrize("density", DENSITIES)
@pytest.mark.parametrize("shape", SHAPES)
def test_a_linear_layer_is_the_masked_one(shape, density, published):
    tokens, inputs, outputs = shape
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
        layers.masked(w.weight, masks[p]).double() for p, w in zip(layers.PROJECTIONS, (gate, up, down), strict=True)
    )

    def want(x):
        silu = torch.nn.functional.silu(x.double() @ g.t()).bfloat16().double()
        return (silu * (x.double() @ u.t())).bfloat16().double() @ d.t()

    return layers.SparseFFN(gate, up, down, masks), want


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


# ------------------------------------------------------------------------------------- launches that overlap


@pytest.fixture
def poisoned():
    """What PyTorch allocates without a value is NaN, so that a tile that nobody wrote is seen."""
    before = torch.utils.deterministic.fill_uninitialized_memory

    def on():
        torch.use_deterministic_algorithms(True, warn_only=True)
        torch.utils.deterministic.fill_uninitialized_memory = True
        assert torch.empty(64, device="cuda").isnan().all()

    yield on
    torch.use_deterministic_algorithms(False)
    torch.utils.deterministic.fill_uninitialized_memory = before


def layer_of_few_tiles():
    """(a layer, its masked weight in float64): launches so small that several run side by side, and not short."""
    dense = linear(4096, 1024)
    mask = masks_of(w=dense)(0.5)["w"]
    sparse = layers.BlockSparseLinear.of(dense, mask)
    return sparse, layers.masked(dense.weight, mask).double()


def delayed(streams, ms: int = 20) -> None:
    """Let all streams begin at once: each waits for one event behind some milliseconds of the current stream."""
    torch.cuda._sleep(ms * 1_500_000)
    for stream in streams:
        stream.wait_stream(torch.cuda.current_stream())


@pytest.mark.parametrize("mode", ["relaxed", "thread_local", "global"])
def test_graphs_of_one_layer_overlap_with_each_other_and_with_launches(poisoned, mode):
    layer, weight = layer_of_few_tiles()
    streams = [torch.cuda.Stream() for _ in range(4)]
    inputs = [torch.randn(128, 4096, device="cuda").bfloat16() for _ in range(4)]
    layer(inputs[0])
    torch.cuda.synchronize()
    counters._spare.clear()  # made while a launch is captured, they are no part of the graph
    graphs = []
    for x in inputs[:3]:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, capture_error_mode=mode):
            out = [layer(x) for _ in range(5)]
        graphs.append((graph, out, x))
    poisoned()
    for _ in range(5):
        for _, out, _ in graphs:
            for y in out:
                y.fill_(torch.nan)
        torch.cuda.synchronize()
        delayed(streams)
        for stream, (graph, _, _) in zip(streams, graphs, strict=False):
            with torch.cuda.stream(stream):
                graph.replay()
        with torch.cuda.stream(streams[3]):
            eager = [layer(inputs[3]) for _ in range(10)]
        torch.cuda.synchronize()
        for y in eager:
            close(y, inputs[3].double() @ weight.t())
        for _, out, x in graphs:
            for y in out:
                close(y, x.double() @ weight.t())


# ------------------------------------------------------------------------------------- as nn.Linear


def test_a_layer_has_the_same_bits_each_time():
    ffn, _ = ffn_and_masked(0.3)
    x = torch.randn(1, 2000, 896, device="cuda").bfloat16()
    first = ffn(x)
    assert all(torch.equal(ffn(x), first) for _ in range(20))
