"""2:4 layers for PyTorch: what they hold, on the host dense, on a GPU by the kernels; gradients, copies, graphs."""

import copy

import numpy as np
import pytest
from copied import close, through_a_file, twins
from refused import says

from kernels.formats import two_four
from kernels.library import semi_structured
from kernels.library.semi_structured import sparsify
from kernels.tensor_core_24 import layer

torch = pytest.importorskip("torch")
nn, functional = torch.nn, torch.nn.functional
DTYPES = [torch.bfloat16, torch.float16]
SHAPES = [(64, 64), (200, 136), (1000, 2056), (8, 24)]  # outputs, inputs
gpu = pytest.mark.gpu
everywhere = pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=gpu)])
FP8 = "SemiStructuredLinearFP8"


def made(m=200, k=136, dtype=torch.bfloat16, bias=True, device="cpu", cls="SemiStructuredLinear", **how):
    """(the layer of an nn.Linear, the same with the weight that is kept)."""
    torch.manual_seed(m + k)
    linear = nn.Linear(k, m, bias=bias, device=device, dtype=dtype)
    sparse = getattr(semi_structured, cls).of(linear, **how)
    with torch.no_grad():
        linear.weight.mul_(semi_structured.kept(linear.weight))
    return sparse, linear


def in_fp8(m=208, k=144, **how):
    return made(m, k, cls=FP8, **how)


def activated(y, activation: str):
    return getattr(functional, activation)(y) if activation else y


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("m", "k"), SHAPES)
def test_a_layer_holds_the_weight_that_is_kept(m, k, dtype):
    sparse, same = made(m, k, dtype)
    assert torch.equal(sparse.weight, same.weight)
    bits = same.weight.detach().view(torch.int16).numpy().view("u2")
    packed = layer.pack(two_four.compress(bits, str(dtype).removeprefix("torch."), prune=True))
    found = sparse.values.view(torch.int16).numpy().view("u2"), sparse.metadata.numpy().view("u4")
    assert all(np.array_equal(x, y) for x, y in zip(found, packed, strict=True))


def test_a_layer_in_fp8_holds_the_weight_rounded():
    sparse, same = in_fp8()
    off = (sparse.weight - same.weight.float()).abs()
    assert bool((off <= same.weight.float().abs() / 15 + sparse.scales * 2.0**-9).all())
    assert sparse.packed.nbytes <= 0.63 * 256 * 256


def test_a_mask_says_what_is_kept_and_may_keep_less():
    weight, mask = torch.randn(64, 64).bfloat16(), torch.zeros(64, 64, dtype=torch.bool)
    mask[:, ::4] = True
    assert torch.equal(semi_structured.SemiStructuredLinear.of(weight, mask).weight, torch.where(mask, weight, 0))
    mask[3, 8:11] = True
    says(["keeps 3 of inputs 8 to 11 for output 3"], lambda: semi_structured.SemiStructuredLinear.of(weight, mask))


@everywhere
@pytest.mark.parametrize("make", [made, in_fp8])
@pytest.mark.parametrize("activation", ["", "relu", "gelu", "silu"])
@pytest.mark.parametrize("shape", [(1,), (2, 3, 5), (64,), (300,), (0,), ()])
def test_it_multiplies_as_the_dense_layer(shape, activation, make, device):
    sparse, same = make(device=device, activation=activation)
    x = torch.randn(*shape, same.in_features, device=device, dtype=torch.bfloat16)
    with torch.no_grad():
        found, right = sparse(x), activated(same(x).float(), activation).to(x.dtype)
    assert found.dtype == x.dtype
    close(found, right, 1e-2 if make is made else 0.06)


@gpu
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("m", "k"), [*SHAPES, (4096, 4096)])
def test_every_size_on_a_gpu(m, k, dtype):
    sparse, same = made(m, k, dtype, device="cuda")
    for tokens in (1, 8, 33, 64, 130, 1000):
        x = torch.randn(tokens, k, device="cuda", dtype=dtype)
        close(sparse(x), same(x))


@everywhere
@pytest.mark.parametrize("activation", ["", "gelu"])
def test_gradients_are_the_dense_layers_at_what_is_kept(device, activation):
    sparse, same = made(64, 136, device=device, activation=activation, trained=True)
    x = torch.randn(12, 136, device=device, dtype=torch.bfloat16, requires_grad=True)
    g = torch.randn(12, 64, device=device, dtype=torch.bfloat16)
    of_x, of_values, of_bias = torch.autograd.grad(sparse(x), (x, sparse.values, sparse.bias), g)
    right = torch.autograd.grad(activated(same(x), activation), (x, same.weight, same.bias), g)
    of_weight = semi_structured.weight_of(of_values, sparse.places, 136)
    kept = torch.where(semi_structured.kept(same.weight), right[1], 0)
    for found, expected in ((of_x, right[0]), (of_weight, kept), (of_bias, right[2].float())):
        close(found, expected)


def test_the_operator_is_what_pytorch_asks_of_one():
    sparse, x = made(bias=False)[0], torch.randn(2, 3, 136).bfloat16()
    given = x, None, sparse.values, sparse.metadata, sparse.places, None, "relu"
    torch.library.opcheck(semi_structured.operators().linear, given)


@pytest.mark.parametrize("make", [made, in_fp8])
@torch.no_grad()
def test_copies_and_files_and_what_is_compiled_multiply_the_same(make):
    (sparse, same), (other, _) = make(), make()
    x = torch.randn(5, same.in_features, dtype=torch.bfloat16)
    right = sparse(x)
    for buffer in other.buffers():
        buffer.zero_()
    other.load_state_dict(through_a_file(sparse.state_dict()))
    compiled = torch.compile(sparse, backend="aot_eager", fullgraph=True)
    for twin in (other, compiled, *twins(sparse).values()):
        assert torch.equal(twin(x), right)
    with torch.autocast("cpu", torch.bfloat16):
        close(sparse(x.float()), right)
    half = copy.deepcopy(sparse).half()
    assert half.bias.dtype == torch.float32 == getattr(half, "scales", half.bias).dtype
    assert make is in_fp8 or half(x.half()).dtype == torch.float16


BF16, FP16, FP32 = (torch.zeros(3, 144, dtype=dtype) for dtype in (torch.bfloat16, torch.float16, torch.float32))


@pytest.mark.parametrize(
    ("words", "work"),
    [
        (["takes 136 features"], lambda: made()[0](BF16)),
        (["both must be bfloat16 or both float16"], lambda: made(k=144)[0](FP32)),
        (["takes a tensor of PyTorch"], lambda: made()[0]([1.0])),
        (["takes bfloat16"], lambda: in_fp8()[0](FP16)),
        (["takes bfloat16"], lambda: in_fp8()[0].quantise(FP32)),
        (["for inference and has no gradients"], lambda: in_fp8()[0](BF16.clone().requires_grad_()).sum().backward()),
        (["forward derivative"], lambda: torch.func.jvp(made(k=144)[0], (BF16,), (BF16,))),
        (["the mask is", "(200, 136)"], lambda: made(mask=torch.ones(2, 136) > 0)),
        (["activation is 'tanh'", "relu"], lambda: made(activation="tanh")),
        (["130 inputs", "multiples of 8"], lambda: made(k=130)[0](torch.zeros(1, 130).bfloat16())),
        (["has no nn.Linear called"], lambda: sparsify(nn.Sequential(nn.Linear(8, 8)))),
        (["pattern is '1:4'"], lambda: sparsify(nn.Linear(8, 8), "1:4")),
        (["dtype is 'e4m3'", "not trained"], lambda: sparsify(nn.Linear(8, 8), dtype="e4m3", trained=True)),
    ],
)
def test_what_is_no_layer_or_input_is_one_sentence(words, work):
    says(words, work)


@pytest.mark.parametrize("dtype", [None, "e4m3"])
def test_a_model_becomes_sparse_in_place(dtype):
    sizes = {"up_proj": (64, 128), "down_proj": (128, 64), "head": (64, 16), "q_proj": (16, 24)}
    model = nn.ModuleDict({name: nn.Linear(*size) for name, size in sizes.items()}).bfloat16()
    assert sparsify(model, dtype=dtype) is model
    sparse = FP8 if dtype else "SemiStructuredLinear"
    assert [type(x).__name__ for x in model.values()] == [sparse, sparse, "Linear", "Linear"]
    assert model["up_proj"](torch.randn(3, 64, dtype=torch.bfloat16)).shape == (3, 128)


@everywhere
def test_layers_share_what_is_quantised(device):
    sparse, _ = in_fp8(device=device)
    x = torch.randn(5, 144, device=device, dtype=torch.bfloat16)
    with torch.no_grad():
        assert torch.equal(sparse(x, sparse.quantise(x)), sparse(x))
        numbers, unit = sparse.quantise(x)
        largest = x.float().abs().amax(-1, keepdim=True)
        assert (numbers.float().abs().amax(-1) == 448).all() and torch.allclose(unit, largest / 448, rtol=1e-6)
        for wrong in ((numbers[:, :128], unit), (numbers, unit[:3]), (numbers.view(torch.uint8), unit)):
            says(["bring what quantise makes of it"], lambda wrong=wrong: sparse(x, wrong))


@gpu
def test_pytorchs_own_tensor_becomes_a_layer():
    _, same = made(128, 128, torch.float16, bias=False, device="cuda")
    given = torch.sparse.to_sparse_semi_structured(same.weight.detach())
    assert torch.equal(semi_structured.SemiStructuredLinear.of(given).weight, same.weight)


@gpu
@pytest.mark.parametrize("make", [made, in_fp8])
def test_autocast_compile_graphs_and_streams(make):
    sparse, _ = make(512, 1024, device="cuda")
    x = torch.randn(48, 1024, device="cuda", dtype=torch.bfloat16)
    with torch.no_grad():
        right = sparse(x)
        with torch.autocast("cuda", torch.bfloat16):
            assert torch.equal(sparse(x.float()), right)
        close(torch.compile(sparse, fullgraph=True)(x), right)  # FP8 rounds otherwise between two numbers
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = sparse(x)
        x.copy_(torch.randn_like(x))
        graph.replay()
        outs, streams = [sparse(x)], [torch.cuda.Stream() for _ in range(4)]
        torch.cuda.synchronize()
        for stream in streams:
            with torch.cuda.stream(stream):
                outs += [sparse(x) for _ in range(8)]
        torch.cuda.synchronize()
    assert all(torch.equal(y, out) for y in outs)


@gpu
@pytest.mark.parametrize("make", [made, in_fp8])
def test_past_the_dispatcher_or_not_is_the_same(make):
    """Eager calls without gradients launch at once; whoever listens sees the operator."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Seen(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            names.append(str(function))
            return function(*args, **(kwargs or {}))

    (sparse, _), names = make(192, 256, device="cuda", activation="silu"), []
    x = torch.randn(3, 7, 256, device="cuda", dtype=torch.bfloat16)
    with torch.no_grad():
        plain = sparse(x)
        with Seen():
            assert torch.equal(sparse(x), plain)
    assert any("semi_structured_linear" in name for name in names)
    assert torch.equal(sparse(x.requires_grad_()), plain)
