"""2:4 layers for PyTorch: what they hold, on the host dense, on a GPU by the kernels; gradients, copies, graphs."""

from __future__ import annotations

import copy
import io
import pickle

import numpy as np
import pytest

from kernels.formats import two_four
from kernels.library import semi_structured
from kernels.tensor_core_24 import layer

torch = pytest.importorskip("torch")
nn, functional = torch.nn, torch.nn.functional
DTYPES = [torch.bfloat16, torch.float16]
SHAPES = [(64, 64), (200, 136), (1000, 2056), (8, 24)]  # outputs, inputs
gpu = pytest.mark.gpu


def made(m=200, k=136, dtype=torch.bfloat16, bias=True, device="cpu", **how):
    """(nn.Linear, the layer of it, the same with the weight that is kept)."""
    torch.manual_seed(m + k)
    linear = nn.Linear(k, m, bias=bias, device=device, dtype=dtype)
    sparse = semi_structured.SemiStructuredLinear.of(linear, **how)
    same = copy.deepcopy(linear)
    with torch.no_grad():
        same.weight.mul_(semi_structured.kept(linear.weight))
    return linear, sparse, same


def close(found, right):
    scale = right.float().abs().max().clamp(min=1e-6)
    assert found.shape == right.shape and found.dtype == right.dtype
    assert float((found.float() - right.float()).abs().max() / scale) < 1e-2


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("m", "k"), SHAPES)
def test_a_layer_holds_the_weight_that_is_kept(m, k, dtype):
    linear, sparse, same = made(m, k, dtype)
    assert torch.equal(sparse.weight, same.weight)
    name = str(dtype).removeprefix("torch.")
    bits = linear.weight.detach().view(torch.int16).numpy().view("u2")
    packed = layer.pack(two_four.compress(bits, name, prune=True))
    found = sparse.values.view(torch.int16).numpy().view("u2"), sparse.metadata.numpy().view("u4")
    assert all(np.array_equal(x, y) for x, y in zip(found, packed, strict=True))


def test_a_mask_says_what_is_kept_and_may_keep_less():
    weight = torch.randn(64, 64)
    mask = torch.zeros(64, 64, dtype=torch.bool)
    mask[:, ::4] = True
    sparse = semi_structured.SemiStructuredLinear.of(weight.bfloat16(), mask)
    assert torch.equal(sparse.weight, torch.where(mask, weight.bfloat16(), 0))
    mask[3, 8:11] = True
    with pytest.raises(ValueError, match="keeps 3 of inputs 8 to 11 for output 3"):
        semi_structured.SemiStructuredLinear.of(weight, mask)


@pytest.mark.parametrize("activation", ["", "relu", "gelu", "silu"])
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=gpu)])
@pytest.mark.parametrize("shape", [(1,), (7,), (2, 3, 5), (64,), (300,), (0,), ()])
def test_it_multiplies_as_the_dense_layer(device, shape, activation):
    _, sparse, same = made(200, 136, device=device, activation=activation)
    x = torch.randn(*shape, 136, device=device, dtype=torch.bfloat16)
    right = same(x)
    right = getattr(functional, activation)(right.float()).to(x.dtype) if activation else right
    found = sparse(x)
    if found.numel():
        close(found, right)
    assert found.shape == right.shape


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=gpu)])
@pytest.mark.parametrize("activation", ["", "gelu"])
def test_gradients_are_the_dense_layers_at_what_is_kept(device, activation):
    _, sparse, same = made(64, 136, device=device, activation=activation, trained=True)
    x = torch.randn(12, 136, device=device, dtype=torch.bfloat16)
    one, other = x.clone().requires_grad_(), x.clone().requires_grad_()
    g = torch.randn(12, 64, device=device, dtype=torch.bfloat16)
    sparse(one).backward(g)
    y = same(other)
    (getattr(functional, activation)(y) if activation else y).backward(g)
    close(one.grad, other.grad)
    close(sparse.bias.grad, same.bias.grad.float())
    of_weight = semi_structured.weight_of(sparse.values.grad, sparse.places, 136)
    mask = semi_structured.kept(same.weight)
    close(of_weight, torch.where(mask, same.weight.grad, 0))


def test_copies_and_files_multiply_the_same():
    _, sparse, _ = made()
    x = torch.randn(5, 136, dtype=torch.bfloat16)
    right = sparse(x)
    file = io.BytesIO()
    torch.save(sparse.state_dict(), file)
    file.seek(0)
    other = made(200, 136)[1]
    other.values.zero_()
    other.load_state_dict(torch.load(file))
    for same in (copy.deepcopy(sparse), pickle.loads(pickle.dumps(sparse)), other):
        assert torch.equal(same(x), right)
    half = copy.deepcopy(sparse).half()
    assert half.bias.dtype == torch.float32 and half(x.half()).dtype == torch.float16


@pytest.mark.parametrize(
    ("x", "said"),
    [
        (lambda: torch.zeros(3, 128, dtype=torch.bfloat16), "takes 136 features"),
        (lambda: torch.zeros(3, 136), "both must be bfloat16 or both float16"),
        (lambda: [1.0], "takes a tensor of PyTorch"),
    ],
)
def test_other_inputs_are_one_sentence(x, said):
    _, sparse, _ = made()
    with pytest.raises(ValueError, match=said) as caught:
        sparse(x())
    assert "\n" not in str(caught.value)


class Ffn(nn.Module):
    def __init__(self):
        super().__init__()
        self.up_proj, self.down_proj = nn.Linear(64, 128), nn.Linear(128, 64)
        self.head = nn.Linear(64, 12)

    def forward(self, x):
        return self.head(self.down_proj(functional.silu(self.up_proj(x))))


def test_a_model_becomes_sparse_in_place():
    model = Ffn().bfloat16()
    assert semi_structured.sparsify(model) is model
    kinds = [type(x).__name__ for x in (model.up_proj, model.down_proj, model.head)]
    assert kinds == ["SemiStructuredLinear", "SemiStructuredLinear", "Linear"]
    assert model(torch.randn(3, 64, dtype=torch.bfloat16)).shape == (3, 12)
    with pytest.raises(ValueError, match="has no nn.Linear called"):
        semi_structured.sparsify(nn.Sequential(nn.Linear(8, 8)))
    with pytest.raises(ValueError, match="pattern is '1:4'"):
        semi_structured.sparsify(Ffn(), "1:4")


@gpu
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("m", "k"), [*SHAPES, (4096, 4096)])
def test_every_size_on_a_gpu(m, k, dtype):
    _, sparse, same = made(m, k, dtype, device="cuda")
    for tokens in (1, 8, 33, 64, 130, 1000):
        x = torch.randn(tokens, k, device="cuda", dtype=dtype)
        close(sparse(x), same(x))


@gpu
def test_pytorchs_own_tensor_becomes_a_layer():
    linear, _, same = made(128, 128, torch.float16, bias=False, device="cuda")
    with torch.no_grad():
        linear.weight.mul_(semi_structured.kept(linear.weight))
    given = torch.sparse.to_sparse_semi_structured(linear.weight.detach())
    sparse = semi_structured.SemiStructuredLinear.of(given)
    assert torch.equal(sparse.weight, same.weight)


@gpu
def test_autocast_compile_graphs_and_streams():
    _, sparse, same = made(256, 512, device="cuda")
    x = torch.randn(48, 512, device="cuda", dtype=torch.bfloat16)
    right = same(x)
    with torch.no_grad():
        with torch.autocast("cuda", torch.bfloat16):
            close(sparse(x.float()), right)
        close(torch.compile(sparse, fullgraph=True)(x), right)
        sparse(x)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = sparse(x)
        x.copy_(torch.randn_like(x))
        graph.replay()
        close(out, same(x))
        outs, streams = [], [torch.cuda.Stream() for _ in range(4)]
        torch.cuda.synchronize()
        for stream in streams:
            with torch.cuda.stream(stream):
                outs += [sparse(x) for _ in range(8)]
        torch.cuda.synchronize()
    assert all(torch.equal(y, outs[0]) for y in outs)


# ---------------------------------------------------------------- 8 bits


def in_fp8(m=208, k=144, device="cpu", **how):
    torch.manual_seed(m)
    linear = nn.Linear(k, m, device=device, dtype=torch.bfloat16)
    sparse = semi_structured.SemiStructuredLinearFP8.of(linear, **how)
    with torch.no_grad():
        linear.weight.mul_(semi_structured.kept(linear.weight))
    return sparse, linear


def test_a_layer_in_fp8_holds_the_weight_rounded():
    sparse, same = in_fp8()
    off = (sparse.weight - same.weight.float()).abs()
    assert bool((off <= same.weight.float().abs() / 15 + sparse.scales * 2.0**-9).all())
    assert sparse.packed.nbytes <= 0.63 * 256 * 256


@pytest.mark.parametrize("activation", ["", "silu"])
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=gpu)])
@pytest.mark.parametrize("shape", [(1,), (2, 3, 5), (64,), (300,), (0,), ()])
def test_it_multiplies_in_fp8(device, shape, activation):
    sparse, same = in_fp8(device=device, activation=activation)
    x = torch.randn(*shape, 144, device=device, dtype=torch.bfloat16)
    with torch.no_grad():
        found, right = sparse(x), same(x).float()
        right = getattr(functional, activation)(right) if activation else right
    assert found.shape == right.shape and found.dtype == torch.bfloat16
    assert not found.numel() or float((found.float() - right).norm() / right.norm()) < 0.06


def test_fp8_is_for_inference_in_bfloat16():
    sparse, _ = in_fp8()
    with pytest.raises(ValueError, match="takes bfloat16"):
        sparse(torch.zeros(3, 144, dtype=torch.float16))
    y = sparse(torch.zeros(3, 144, dtype=torch.bfloat16, requires_grad=True))
    with pytest.raises(ValueError, match="for inference and has no gradients"):
        y.sum().backward()
    assert copy.deepcopy(sparse).half().scales.dtype == torch.float32


@gpu
def test_fp8_under_compile_and_in_a_graph():
    sparse, _ = in_fp8(512, 1024, device="cuda")
    x = torch.randn(48, 1024, device="cuda", dtype=torch.bfloat16)
    with torch.no_grad():
        right = sparse(x)
        found = torch.compile(sparse, fullgraph=True)(x)  # which rounds otherwise where a number lies between two
        assert float((found - right).float().norm() / right.float().norm()) < 0.01
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = sparse(x)
        x.copy_(torch.randn_like(x))
        graph.replay()
        assert torch.equal(out, sparse(x))


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=gpu)])
def test_layers_share_what_is_quantised(device):
    sparse, _ = in_fp8(device=device)
    x = torch.randn(5, 144, device=device, dtype=torch.bfloat16)
    with torch.no_grad():
        assert torch.equal(sparse(x, sparse.quantise(x)), sparse(x))
        numbers, unit = sparse.quantise(x)
        for wrong in ((numbers[:, :128], unit), (numbers, unit[:3]), (numbers.view(torch.uint8), unit)):
            with pytest.raises(ValueError, match="bring what quantise makes of it"):
                sparse(x, wrong)
    with pytest.raises(ValueError, match="takes bfloat16"):
        sparse.quantise(x.float())


@gpu
@pytest.mark.parametrize("eight", [False, True])
def test_past_the_dispatcher_or_not_is_the_same(eight):
    """Eager calls without gradients launch at once; whoever listens sees the operator."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Seen(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            names.append(str(function))
            return function(*args, **(kwargs or {}))

    linear = nn.Linear(256, 192, device="cuda", dtype=torch.bfloat16)
    cls = semi_structured.SemiStructuredLinearFP8 if eight else semi_structured.SemiStructuredLinear
    sparse, names = cls.of(linear, activation="silu"), []
    x = torch.randn(3, 7, 256, device="cuda", dtype=torch.bfloat16)
    with torch.no_grad():
        plain = sparse(x)
        with Seen():
            assert torch.equal(sparse(x), plain)
    assert any("semi_structured_linear" in name for name in names)
    assert torch.equal(sparse(x.requires_grad_()), plain)
