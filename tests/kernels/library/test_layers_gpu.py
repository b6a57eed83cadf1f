"""Sparse layers on a GPU: kernels against float64, modules against masked dense ones, streams, graphs, the compiler."""

from functools import partial

import pytest
from products import SEED

from kernels.library import layers

torch = pytest.importorskip("torch")
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
    return torch.nn.Linear(inputs, outputs, bias=False, device="cuda", dtype=dtype).requires_grad_(False)


def close(got, want) -> None:
    """Within the limits of 16-bit results: sums of exact products, rounded at most three times, by 2⁻⁹ each."""
    off, size = (got.double() - want.double()).abs(), want.double().abs()
    rms = float(size.square().mean().sqrt())
    assert torch.isfinite(got).all() and float(off.norm()) <= 3 * 2**-9 * float(size.norm()), f"seed {SEED}"
    assert bool((off <= 1.6e-2 * size.clamp(min=rms)).all()), f"seed {SEED}"


def masks_of(**linears):
    made = torch.Generator("cuda").manual_seed(SEED)
    return lambda density: {p: layers.chosen(x.weight, density, generator=made) for p, x in linears.items()}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("density", DENSITIES)
@pytest.mark.parametrize("shape", SHAPES)
def test_gated_is_silu_of_one_product_times_the_other(shape, density, dtype):
    tokens, inputs, features = shape
    gate, up, down = (linear(*size, dtype) for size in ((inputs, features), (inputs, features), (features, inputs)))
    masks = masks_of(gate_proj=gate, up_proj=up, down_proj=down)(density)
    ffn, x = layers.SparseFFN(gate, up, down, masks), torch.randn(tokens, inputs, device="cuda", dtype=dtype)
    weights = (layers.masked(w.weight, masks[p]) for p, w in (("gate_proj", gate), ("up_proj", up)))
    g, u = (x.double() @ w.double().t() for w in weights)
    for _ in range(2):  # the counter of tiles is as it was, and bits are the same each time
        got = layers.block_linear()(x, ffn.val, ffn.index, ffn.col_idx, features, "gated")
        close(got, torch.nn.functional.silu(g) * u)
        assert torch.equal(got, layers.block_linear()(x, ffn.val, ffn.index, ffn.col_idx, features, "gated"))


def test_gated_holds_where_silu_is_nearly_nothing_or_all_of_its_input():
    gate, up, down = linear(64, 64), linear(64, 64), linear(64, 64)
    gate.weight.copy_(torch.eye(64) * 64)
    up.weight.copy_(torch.eye(64))
    every = torch.ones(1, 1, dtype=torch.bool, device="cuda")
    ffn = layers.SparseFFN(gate, up, down, {p: every for p in layers.PROJECTIONS})
    x = torch.linspace(-4, 4, 64 * 80, device="cuda").view(80, 64).bfloat16()  # gate from -256 to 256
    got = layers.block_linear()(x, ffn.val, ffn.index, ffn.col_idx, 64, "gated")
    want = torch.nn.functional.silu(64 * x.double()) * x.double()
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
    """Call it, and what PyTorch allocates without a value is NaN, so that a tile that nobody wrote is seen."""
    yield partial(torch.use_deterministic_algorithms, True, warn_only=True)
    torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize("mode", ["relaxed", "thread_local", "global"])
def test_graphs_of_one_layer_overlap_with_each_other_and_with_launches(poisoned, mode):
    """Of so few tiles that several run side by side, and not short."""
    dense = linear(4096, 1024)
    mask = masks_of(w=dense)(0.5)["w"]
    layer, weight = layers.BlockSparseLinear.of(dense, mask), layers.masked(dense.weight, mask).double()
    *streams, eager = (torch.cuda.Stream() for _ in range(4))
    *inputs, of_eager = (torch.randn(128, 4096, device="cuda").bfloat16() for _ in range(4))
    layer(of_eager)
    torch.cuda.synchronize()
    layers._spare.clear()  # made while a launch is captured, they are no part of the graph
    graphs, outs = [torch.cuda.CUDAGraph() for _ in inputs], []
    for graph, x in zip(graphs, inputs, strict=True):
        with torch.cuda.graph(graph, capture_error_mode=mode):
            outs += [(layer(x), x) for _ in range(5)]
    poisoned()
    assert torch.empty(64, device="cuda").isnan().all()
    for _ in range(5):
        for y, _ in outs:
            y.fill_(torch.nan)
        torch.cuda.synchronize()
        torch.cuda._sleep(20 * 1_500_000)  # milliseconds behind which all streams begin at once
        for stream in (*streams, eager):
            stream.wait_stream(torch.cuda.current_stream())
        for stream, graph in zip(streams, graphs, strict=True):
            with torch.cuda.stream(stream):
                graph.replay()
        with torch.cuda.stream(eager):
            found = [(layer(of_eager), of_eager) for _ in range(10)]
        torch.cuda.synchronize()
        for y, x in (*outs, *found):
            close(y, x.double() @ weight.t())
