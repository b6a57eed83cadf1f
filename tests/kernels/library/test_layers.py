"""Sparse layers without a GPU: which blocks, how they lie, and modules on the host, which multiply there densely."""

import copy
import ctypes
import math
from contextlib import nullcontext

import pytest
from copied import close, through_a_file, twins
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


@pytest.fixture
def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(Ffn(), Ffn()).bfloat16().requires_grad_(False)


ROUNDED = 3 * 2**-9  #: of what is rounded at most three times


# ------------------------------------------------------------------------------------- which blocks


def test_as_many_blocks_are_kept_as_asked_and_the_seed_says_which():
    weight = torch.zeros(320, 192)
    draw = lambda seed: layers.chosen(  # noqa: E731
        weight, 0.4, generator=torch.Generator().manual_seed(seed)
    )
    assert draw(0).shape == (5, 3) and draw(0).sum() == 6
    assert (draw(0) == draw(0)).all() and not (draw(0) == draw(1)).all()


@pytest.mark.parametrize("block", [64, 128, 192])
def test_blocks_are_cut_to_64_and_hold_the_masked_weight(block):
    weight = torch.randn(200, 392)
    mask = layers.chosen(weight, 0.5, block, generator=torch.Generator().manual_seed(1))
    row_ptr, col_idx, val = layers.blocks_of(weight, mask)
    assert val.shape == (row_ptr[-1], 64, 64) and col_idx.dtype == row_ptr.dtype == torch.int32
    assert (layers._whole(val, col_idx, row_ptr[:-1], row_ptr[1:], 200, 392) == layers.masked(weight, mask)).all()


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
    want, x = copy.deepcopy(model), torch.randn(2, 7, 192).bfloat16()
    for name, of in layers.masks(model, 0.4, block, seed=3).items():
        for p, mask in of.items():
            weight = getattr(want.get_submodule(name), p).weight
            weight.copy_(layers.masked(weight, mask))
    before = layers.put(model, layers.replacements(model, 0.4, block, seed=3, published=published))
    for ours, theirs in zip(model, want, strict=True):
        close(x + ours(x), x + theirs(x), ROUNDED)
    layers.put(model, before)
    assert type(model[0]) is Ffn and type(model[0].up_proj) is nn.Linear, "and all is as it was"


def test_rows_without_blocks_of_gate_or_up_give_zeros():
    ffn = Ffn().bfloat16().requires_grad_(False)
    masks = {p: torch.zeros(5, 3, dtype=torch.bool) for p in ("gate_proj", "up_proj")}
    masks["gate_proj"][:2], masks["up_proj"][1:3] = True, True  # row 1 alone has both
    masks["down_proj"] = torch.ones(3, 5, dtype=torch.bool)
    made = layers.SparseFFN(ffn.gate_proj, ffn.up_proj, ffn.down_proj, masks)
    x = torch.randn(9, 192).bfloat16()
    hidden = layers.block_linear()(x, made.val, made.index, made.col_idx, 320, "gated")
    gate, up = (
        functional.linear(x, layers.masked(linear.weight, masks[p]))
        for p, linear in (("gate_proj", ffn.gate_proj), ("up_proj", ffn.up_proj))
    )
    close(hidden, functional.silu(gate) * up, ROUNDED)
    assert (hidden[:, :64] == 0).all() and hidden[:, 64:128].abs().sum() > 0 and (hidden[:, 128:] == 0).all()


# ------------------------------------------------------------------------------------- as nn.Linear

WIDTHS = [(77, 130), (1, 1), (63, 65), (128, 64), (200, 7)]
SHAPES = [(), (0,), (5,), (3, 0), (2, 3), (1, 1, 4)]


def linear_and_masked(inputs: int, outputs: int, bias: bool = True, dtype=torch.bfloat16):
    """(nn.Linear, a mask, nn.Linear of the masked weight)."""
    torch.manual_seed(inputs)
    dense = nn.Linear(inputs, outputs, bias=bias).to(dtype).requires_grad_(False)
    mask = layers.chosen(dense.weight, 0.7, generator=torch.Generator().manual_seed(outputs))
    want = copy.deepcopy(dense)
    want.weight.copy_(layers.masked(dense.weight, mask))
    return dense, mask, want


@pytest.mark.parametrize("published", [False, True])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("width", WIDTHS)
def test_a_layer_takes_any_width_and_any_leading_dimensions(width, bias, published):
    dense, mask, want = linear_and_masked(*width, bias)
    sparse = layers.BlockSparseLinear.of(dense, mask, published)
    for leading in SHAPES:
        x = torch.randn(*leading, width[0]).bfloat16()
        for given in (x, torch.stack([x, -x], -1)[..., 0], torch.cat([x, x], -1)[..., : width[0]]):  # and in strides
            torch.testing.assert_close(sparse(given), want(x), rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("published", [False, True])
@pytest.mark.parametrize("of_weight", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("of_input", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("asked", [torch.bfloat16, torch.float16])
def test_autocast_does_what_it_does_with_linear(asked, of_input, of_weight, published):
    dense, mask, want = linear_and_masked(77, 130, dtype=of_weight)
    sparse = layers.BlockSparseLinear.of(dense, mask, published)
    x = torch.randn(4, 77).to(of_input)
    with torch.autocast("cpu", dtype=asked):
        torch.testing.assert_close(sparse(x), want(x), rtol=2e-2, atol=2e-2)
        assert sparse(x).dtype == asked


BLOCKS = layers.blocks_of(torch.zeros(130, 77), torch.ones(3, 2).bool())  # row_ptr, col_idx, val
ONES = {p: torch.ones(5, 3).bool() for p in layers.PROJECTIONS}


def of_blocks(row_ptr=BLOCKS[0], col_idx=BLOCKS[1], val=BLOCKS[2], bias=None):
    return layers.BlockSparseLinear(77, 130, row_ptr, col_idx, val, bias)


def of_two_dtypes():
    layer, x = of_blocks(), torch.zeros(3, 77).half()
    return torch.ops.sparsity_on_trial.block_linear(
        x, layer.val.bfloat16(), layer.index, layer.col_idx, 130, "unit_ring"
    )


def ffn(of_up: int = 320, of_down: int = 320, up_dtype=torch.float32):
    projections = nn.Linear(192, 320, bias=False), nn.Linear(192, of_up, bias=False, dtype=up_dtype)
    return layers.SparseFFN(*projections, nn.Linear(of_down, 192), ONES)


@pytest.mark.parametrize(
    ("words", "work"),
    [
        (["1.5", "0 to 1"], lambda: layers.chosen(BLOCKS[2][0], 1.5)),
        (["'0.5'", "0 to 1"], lambda: layers.chosen(BLOCKS[2][0], "0.5")),
        (["None", "0 to 1"], lambda: layers.chosen(BLOCKS[2][0], None)),
        (["nan", "0 to 1"], lambda: layers.chosen(BLOCKS[2][0], float("nan"))),
        (["32", "64"], lambda: layers.chosen(BLOCKS[2][0], 0.5, 32)),
        (["best", "random, norm"], lambda: layers.chosen(BLOCKS[2][0], 0.5, keep="best")),
        (["4 x 9", "128 x 128"], lambda: layers.masked(torch.zeros(128, 128), torch.ones(4, 9))),
        (["val", "63 x 64"], lambda: of_blocks(val=BLOCKS[2][:, :63])),
        (["row_ptr", "3", "130 outputs"], lambda: of_blocks(BLOCKS[0][:-1])),
        (["col_idx 5 elements"], lambda: of_blocks(col_idx=BLOCKS[1][:-1])),
        (["row_ptr runs from 0 to 5"], lambda: of_blocks(BLOCKS[0].clamp(max=5))),
        (["row_ptr"], lambda: of_blocks(torch.tensor([0, 5, 2, 6]))),
        (["col_idx[0] is 2", "0 to 1"], lambda: of_blocks(col_idx=BLOCKS[1] + 2)),
        (["col_idx[0] is -1"], lambda: of_blocks(col_idx=BLOCKS[1] - 1)),
        (["bias is 3", "130 outputs"], lambda: of_blocks(bias=torch.zeros(3))),
        (["input is torch.float16", "blocks are torch.bfloat16"], of_two_dtypes),
        (["320 x 192", "256 x 192"], lambda: ffn(of_up=256)),
        (["alike"], lambda: ffn(of_down=256)),
        (["float32", "bfloat16"], lambda: ffn(up_dtype=torch.bfloat16)),
        (["gate_proj", "bias"], lambda: layers.replacements(nn.Sequential(Ffn(bias=True)), 0.5)),
        (["Linear", "gate_proj"], lambda: layers.sparsify(nn.Linear(4, 4))),
        (["GELU", "SwiGLU"], lambda: layers.sparsify(nn.Sequential(Ffn(act=nn.GELU())))),
        (["not yet made sparse"], lambda: layers.sparsify(layers.sparsify(nn.Sequential(Ffn())))),
    ],
)
def test_what_is_no_layer_is_one_sentence(words, work):
    says(words, work)


# ------------------------------------------------------------------------------------- the launch


def at(address: int, *shape: int):
    """The bfloat16 tensor (…) at an address of the host's."""
    size = math.prod(shape)
    return torch.frombuffer((ctypes.c_uint16 * size).from_address(address), dtype=torch.bfloat16).view(shape)


@pytest.fixture
def launched(monkeypatch):
    """Launches as on a GPU, on tensors of the host: (sizes, stream, counter), of a product with a weight of ones."""
    found = []

    def launcher(sizes, ordinal):
        def launch(stream, x, y, val, index, col_idx, counter):
            assert x % 16 == y % 16 == 0 and read == (x, (sizes.tokens, sizes.k)), "nothing beyond is read"
            found.append((sizes, stream, counter))
            sums = at(x, sizes.tokens, sizes.k).sum(1, keepdim=True).expand(sizes.tokens, sizes.m)
            at(y, *sizes.out).copy_(sums.t() if sizes.kernel == "opt5" else sums)

        return launch

    def noted(x):
        nonlocal read
        x = aligned(x)
        read = x.data_ptr(), x.shape
        return x

    aligned, read = layers.aligned, ()
    for where, name, what in (
        (layers, "aligned", noted),
        (layers.layer, "launcher", launcher),
        (layers, "counter", lambda *how: how),
        (layers, "launching", lambda x: nullcontext(0x7000)),
        (layers.dense, "current", lambda like, gpu: 0x7000),
        (layers, "_on_cpu", layers._enqueue),
        (torch.cuda, "is_current_stream_capturing", lambda: False),
    ):
        monkeypatch.setattr(where, name, what)
    return found


@pytest.mark.parametrize("published", [False, True])
@pytest.mark.parametrize("width", WIDTHS)
def test_a_kernel_gets_whole_lines_and_what_it_writes_is_cut(width, published, launched):
    inputs, outputs = width
    blocks = layers.blocks_of(
        torch.ones(outputs, inputs).bfloat16(),
        torch.ones(-(-outputs // 64), -(-inputs // 64)).bool(),
    )
    sparse = layers.BlockSparseLinear(inputs, outputs, *blocks, published=published)
    many = torch.ones(9, 2 * inputs + 1).bfloat16()
    many[:, inputs + 1 :] = torch.nan
    for x in (
        torch.ones(inputs).bfloat16(),
        torch.ones(3, 5, inputs).bfloat16(),
        torch.ones(16, inputs).bfloat16(),
        many[:, :inputs],
        many[:, 1 : inputs + 1],
        many.flatten()[1 : inputs + 1],
    ):
        launched.clear()
        got = sparse(x)
        assert got.shape == (*x.shape[:-1], outputs) and (got == inputs).all()
        assert published or got.is_contiguous()
        ((sizes, stream, counter),) = launched
        assert sizes.m % 8 == sizes.k % 8 == 0 and sizes.blocks == len(blocks[1])
        assert sizes.tokens == x.numel() // inputs or (published and sizes.tokens % 8 == 0)
        assert stream == 0x7000 and counter == (x.get_device(), 0x7000, False)
    launched.clear()
    assert sparse(torch.ones(0, 4, inputs).bfloat16()).shape == (0, 4, outputs) and not launched


# ------------------------------------------------------------------------------------- gradients


def test_a_gradient_through_a_layer_is_refused_and_a_bias_has_one():
    dense, mask, _ = linear_and_masked(77, 130)
    dense.bias.requires_grad_()
    sparse = layers.BlockSparseLinear.of(dense, mask)
    x = torch.randn(4, 77).bfloat16()
    sparse(x).sum().backward()
    assert torch.equal(sparse.bias.grad, torch.full((130,), 4.0).bfloat16())
    assert dense.bias.grad is None
    says(["no gradients", "no_grad"], lambda: sparse(x.clone().requires_grad_()).sum().backward())
    says(["forward derivative"], lambda: torch.func.jvp(sparse, (x,), (x,)))
    with torch.no_grad():
        assert not sparse(x).requires_grad


# ------------------------------------------------------------------------------------- copied, kept, moved


@pytest.mark.parametrize("published", [False, True])
def test_a_copied_model_has_memory_of_its_own_and_is_compiled_as_one_graph(model, published):
    layers.sparsify(model, 0.5, published=published)
    x = torch.randn(5, 192).bfloat16()
    right, made = model(x), twins(model)
    for buffer in model.buffers():
        buffer.zero_()
    assert not torch.equal(model(x), right)
    del model
    for how, twin in made.items():
        assert torch.equal(twin(x), right), how
        assert torch.equal(torch.compile(twin, backend="aot_eager", fullgraph=True)(x), right), how


@pytest.mark.parametrize("bias", [None, nn.Parameter, torch.Tensor])
def test_a_state_has_all_of_a_layer_and_nothing_else(bias):
    blocks, given = layers.blocks_of(torch.randn(130, 77).bfloat16(), torch.ones(3, 2).bool()), torch.randn(130)
    made, other = (of_blocks(*blocks[:2], scale * blocks[2], bias and bias(scale * given)) for scale in (1, 0))
    state = through_a_file(made.state_dict(), weights_only=True)
    assert set(state) == {"val", "index", "col_idx"} | ({"bias"} if bias else set())
    other.load_state_dict(state)
    x = torch.randn(3, 77).bfloat16()
    assert torch.equal(other(x), made(x))


# ------------------------------------------------------------------------------------- operators


@pytest.mark.parametrize("kernel", ["unit_ring", "gated", "opt5"])
def test_the_operator_is_what_pytorch_asks_of_one(model, kernel):
    first = next(iter(layers.replacements(model, 0.4, published=kernel == "opt5").values()))
    x = torch.randn(2, 4, 192).bfloat16()
    if kernel == "unit_ring":
        first, x = first.down_proj, torch.randn(2, 4, 320).bfloat16()
    features = {"unit_ring": 192, "gated": 320, "opt5": 320}[kernel]
    torch.library.opcheck(layers.block_linear(), (x, first.val, first.index, first.col_idx, features, kernel))
