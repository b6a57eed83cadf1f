"""Sparse layers without a GPU: which blocks, how they lie, and modules on the host, which multiply there densely."""

from __future__ import annotations

import pytest
from refused import says

from kernels.library import layers

torch = pytest.importorskip("torch")
nn, functional = torch.nn, torch.nn.functional


class Ffn(nn.Module):
    """As in Qwen2 and Llama."""

    def __init__(self, hidden=192, features=320, bias=False, act=None):
        super().__init__()
        self.gate_proj, self.up_proj = (nn.Linear(hidden, features, bias=bias) for _ in range(2))
        self.down_proj = nn.Linear(features, hidden, bias=bias)
        self.act_fn = act or nn.SiLU()

    def forward(self, x):
        return self.down_proj(self.act_fn(self.gate_proj(x)) * self.up_proj(x))


class Model(nn.Module):
    def __init__(self, *ffns: Ffn):
        super().__init__()
        self.layers = nn.ModuleList(nn.ModuleDict({"mlp": f}) for f in ffns)

    def forward(self, x):
        for layer in self.layers:
            x = x + layer["mlp"](x)
        return x


@pytest.fixture
def model() -> Model:
    torch.manual_seed(0)
    return Model(Ffn(), Ffn()).bfloat16().requires_grad_(False)


def masked_model(model: Model, density: float, block: int = 64, **how) -> Model:
    """A dense model with the same blocks."""
    made = Model(*(Ffn() for _ in model.layers)).bfloat16().requires_grad_(False)
    made.load_state_dict(model.state_dict())
    for name, of in layers.masks(model, density, block, **how).items():
        for p, mask in of.items():
            weight = getattr(made.get_submodule(name), p).weight
            weight.copy_(layers.masked(weight, mask))
    return made


def close(got, want) -> None:
    error = (got.double() - want.double()).norm() / want.double().norm()
    assert error < 4e-3, float(error)


# ------------------------------------------------------------------------------------- which blocks


def test_as_many_blocks_are_kept_as_asked_and_the_seed_says_which():
    weight = torch.zeros(320, 192)
    draw = lambda seed: layers.chosen(  # noqa: E731
        weight, 0.4, generator=torch.Generator().manual_seed(seed)
    )
    assert draw(0).shape == (5, 3) and draw(0).sum() == 6
    assert (draw(0) == draw(0)).all() and not (draw(0) == draw(1)).all()


def test_by_norm_the_largest_blocks_are_kept():
    weight = torch.ones(128, 128)
    weight[64:, :64] = 5
    assert layers.chosen(weight, 0.25, keep="norm").tolist() == [[False, False], [True, False]]


@pytest.mark.parametrize(
    "how, words",
    [
        ({"density": 1.5}, ["1.5", "0 to 1"]),
        ({"density": 0.5, "block": 32}, ["32", "64"]),
        ({"density": 0.5, "keep": "best"}, ["best", "random, norm"]),
    ],
)
def test_what_chooses_no_blocks_is_refused(how, words):
    says(words, lambda: layers.chosen(torch.zeros(128, 128), **how))


def test_a_mask_of_another_weight_is_refused():
    says(["4 x 9", "128 x 128"], lambda: layers.masked(torch.zeros(128, 128), torch.ones(4, 9)))


@pytest.mark.parametrize("block", [64, 128, 192])
def test_blocks_are_cut_to_64_and_hold_the_masked_weight(block):
    weight = torch.randn(200, 392)
    mask = layers.chosen(weight, 0.5, block, generator=torch.Generator().manual_seed(1))
    row_ptr, col_idx, val = layers.blocks_of(weight, mask)
    assert val.shape == (row_ptr[-1], 64, 64) and col_idx.dtype == row_ptr.dtype == torch.int32
    whole = layers._whole(val, col_idx, row_ptr[:-1], row_ptr[1:], 200, 392)
    assert (whole == layers.masked(weight, mask)).all()


def test_work_begins_with_the_longest_row_and_half_empty_rows_have_no_work():
    row_ptr = torch.tensor([0, 2, 7, 8], dtype=torch.int32)
    assert layers.work_order(row_ptr).tolist() == [[1, 2, 7, 2], [0, 0, 2, 0], [2, 7, 8, 7]]
    middle = torch.tensor([0, 5, 8], dtype=torch.int32)  # rows 0 and 2 have blocks of one matrix
    table = layers.work_order(row_ptr, middle)
    assert table[0].tolist() == [1, 2, 7, 5] and (table[1:, 1] == table[1:, 2]).all()


# ------------------------------------------------------------------------------------- modules


@pytest.mark.parametrize("published", [False, True])
@pytest.mark.parametrize("block", [64, 128])
def test_a_sparse_model_is_the_masked_dense_one(model, published, block):
    want = masked_model(model, 0.4, block, seed=3)
    x = torch.randn(2, 7, 192).bfloat16()
    layers.sparsify(model, 0.4, block, seed=3, published=published)
    close(model(x), want(x))


@pytest.mark.parametrize("kind", ["Qwen2", "Llama"])
def test_models_of_transformers_become_sparse_in_their_own_sizes(kind):
    transformers = pytest.importorskip("transformers")
    config = getattr(transformers, f"{kind}Config")(
        vocab_size=64, hidden_size=128, intermediate_size=448, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2,
    )  # fmt: skip
    model = (
        getattr(transformers, f"{kind}ForCausalLM")(config).bfloat16().eval().requires_grad_(False)
    )
    of = layers.masks(model, 0.5, seed=2)
    ids = torch.arange(40)[None]
    sparse = layers.replacements(model, 0.5, seed=2)
    for name, masks in of.items():
        for p, mask in masks.items():
            weight = getattr(model.get_submodule(name), p).weight
            weight.copy_(layers.masked(weight, mask))
    want = model(ids, use_cache=False).logits
    layers.put(model, sparse)
    got = model(ids, use_cache=False).logits
    assert (got.double() - want.double()).norm() < 0.02 * want.double().norm()


def test_rows_without_blocks_of_gate_or_up_give_zeros():
    ffn = Ffn().bfloat16().requires_grad_(False)
    masks = {p: torch.zeros(5, 3, dtype=torch.bool) for p in ("gate_proj", "up_proj")}
    masks["gate_proj"][:2], masks["up_proj"][1:3] = True, True  # row 1 alone has both
    masks["down_proj"] = torch.ones(3, 5, dtype=torch.bool)
    made = layers.SparseFFN(ffn.gate_proj, ffn.up_proj, ffn.down_proj, masks)
    x = torch.randn(9, 192).bfloat16()
    hidden = layers.operators().block_linear(
        x, made.val, made.index, made.col_idx, made.counter, 320, "gated"
    )
    gate, up = (
        functional.linear(x, layers.masked(linear.weight, masks[p]))
        for p, linear in (("gate_proj", ffn.gate_proj), ("up_proj", ffn.up_proj))
    )
    close(hidden, functional.silu(gate) * up)
    assert (
        (hidden[:, :64] == 0).all()
        and hidden[:, 64:128].abs().sum() > 0
        and (hidden[:, 128:] == 0).all()
    )


def test_a_bias_is_added_and_refused_where_it_cannot_be():
    ffn = Ffn(bias=True).bfloat16().requires_grad_(False)
    mask = torch.ones(3, 5, dtype=torch.bool)
    x = torch.randn(4, 320).bfloat16()
    close(layers.BlockSparseLinear.of(ffn.down_proj, mask)(x), ffn.down_proj(x))
    says(["gate_proj", "bias"], lambda: layers.replacements(Model(ffn), 0.5))


@pytest.mark.parametrize("published", [False, True])
def test_an_input_of_other_features_or_of_another_device_is_refused(model, published):
    layers.sparsify(model, 0.5, published=published)
    ffn = model.layers[0]["mlp"]
    for layer, k in ((ffn.gate_proj if published else ffn, 192), (ffn.down_proj, 320)):
        for wrong in (k - 1, k + 64, 1):
            x = torch.randn(2, wrong).bfloat16()
            says([f"{wrong} features", f"takes {k}"], lambda layer=layer, x=x: layer(x))
        x = torch.empty(2, k, dtype=torch.bfloat16, device="meta")
        says(["on meta", "on cpu"], lambda layer=layer, x=x: layer(x))


def test_put_returns_what_was_there(model):
    x = torch.randn(5, 192).bfloat16()
    before = model(x)
    old = layers.put(model, layers.replacements(model, 0.2))
    assert not torch.equal(model(x), before)
    layers.put(model, old)
    assert torch.equal(model(x), before)


def test_buffers_travel_with_the_module(model):
    layers.sparsify(model, 0.5)
    moved = model.to("meta")
    assert {b.device.type for b in moved.buffers()} == {"meta"}
    assert moved(torch.empty(2, 3, 192, dtype=torch.bfloat16, device="meta")).shape == (2, 3, 192)


def test_a_model_without_such_layers_and_one_of_another_activation_are_refused(model):
    says(["Linear", "gate_proj"], lambda: layers.sparsify(nn.Linear(4, 4)))
    says(["GELU", "SwiGLU"], lambda: layers.sparsify(Model(Ffn(act=nn.GELU()))))
    layers.sparsify(model)
    says(["not yet made sparse"], lambda: layers.sparsify(model))


# ------------------------------------------------------------------------------------- operators


@pytest.mark.parametrize("published", [False, True])
def test_a_model_is_compiled_as_one_graph(model, published):
    layers.sparsify(model, 0.4, published=published)
    x = torch.randn(6, 192).bfloat16()
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    close(compiled(x), model(x))


@pytest.mark.parametrize("kernel", ["unit_ring", "gated", "opt5"])
def test_the_operator_is_what_pytorch_asks_of_one(model, kernel):
    made = layers.replacements(model, 0.4, published=kernel == "opt5")
    first = next(iter(made.values()))
    x = torch.randn(2, 4, 192).bfloat16()
    if kernel == "unit_ring":
        first, x = first.down_proj, torch.randn(2, 4, 320).bfloat16()
    features = {"unit_ring": 192, "gated": 320, "opt5": 320}[kernel]
    arguments = (x, first.val, first.index, first.col_idx, first.counter, features, kernel)
    torch.library.opcheck(layers.operators().block_linear, arguments)


def test_a_name_that_is_no_layer_is_an_attribute_error():
    with pytest.raises(AttributeError, match="DenseLinear"):
        layers.DenseLinear  # noqa: B018
