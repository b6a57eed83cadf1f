"""Linear layers of block-sparse weights for PyTorch, and the FFN of a Qwen2- or Llama-like model made of them.

    sparsify(model, density=0.1)                # each gate_proj, up_proj, down_proj: blocks of 64 x 64, in place
    layer = BlockSparseLinear.of(linear, mask)  # one nn.Linear; mask: bool, its rows and columns of blocks

Products are operators of `torch.library`, on the current stream, which `torch.compile` and CUDA graphs take; a graph
is captured after a first call at the same number of tokens, which compiles. Layers take what nn.Linear takes: any
numbers of features, any leading dimensions, and under autocast what it casts. Nothing is copied where features are
multiples of 8: inputs and outputs lie as nn.Linear has them; otherwise they are padded, and cut. Launches may overlap,
on several streams and in several graphs: each claims its tiles from a counter of its own (`counter`). An
output has the same bits each time, since the order of a sum does not depend on who claims its tile. On the CPU the same
layers multiply dense, slowly, for tests. Inference alone: to go backward through a layer is an error. Modules are
copied, pickled, moved and converted as others are. PyTorch is imported when a layer is first asked for.
"""

import functools
import threading
from collections.abc import Mapping
from math import prod
from numbers import Real
from types import SimpleNamespace
from typing import Any

from ..async_sparse import layer
from ..contract import require
from ..lazy import torch
from . import current, dense
from .dense import named
from .torch_ops import aligned, cast, launching, operator, require_bias, size, taken

SIDE = layer.ROWS  #: rows and columns of a block as it is multiplied
CHOICES = ("random", "norm")
PROJECTIONS = ("gate_proj", "up_proj", "down_proj")


def __getattr__(name: str):
    if name in ("BlockSparseLinear", "SparseFFN"):
        return getattr(classes(), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


# ---------------------------------------------------------------- which blocks are kept


def chosen(weight, density: float, block: int = SIDE, keep: str = "random", generator=None):
    """bool (rows, columns) of blocks of a weight (outputs x inputs): round(density · all) of them.

    keep: "random", every choice equally likely, by a `torch.Generator` on the weight's device; "norm": those of the
    largest Frobenius norm. Raises ValueError for a density beyond 0 to 1, another block and another choice.
    """
    require(weight.dim() == 2, f"the weight has {weight.dim()} dimensions, but a layer's has 2")
    require(
        isinstance(density, Real) and 0 <= density <= 1,
        f"density is {density!r}, but must be a share from 0 to 1",
    )
    require(
        isinstance(block, int) and block >= SIDE and block % SIDE == 0,
        f"block is {block!r}, but must be {SIDE} or a multiple of it: wgmma multiplies {SIDE} rows",
    )
    require(keep in CHOICES, f"keep is {keep!r}, but must be one of {', '.join(CHOICES)}")
    rows, columns = (-(-size // block) for size in weight.shape)
    if keep == "random":
        score = torch.rand(rows, columns, dtype=torch.float32, device=weight.device, generator=generator)
    else:
        score = _cells(weight.detach(), block).float().square().sum((2, 3))
    kept = score.flatten().argsort(descending=True, stable=True)[: round(density * rows * columns)]
    mask = torch.zeros(rows * columns, dtype=torch.bool, device=weight.device)
    return mask.index_fill(0, kept, True).view(rows, columns)


def masked(weight, mask):
    """Return the weight with zeros where the mask of blocks has none; the block is as large as the mask says."""
    block = _side(weight.shape, mask)
    whole = mask.repeat_interleave(block, 0).repeat_interleave(block, 1)
    return weight * whole[: weight.shape[0], : weight.shape[1]]


def _side(shape, mask) -> int:
    """Return the multiple of SIDE that a mask's blocks are of, for a weight of a shape."""
    for block in range(SIDE, max(shape) + SIDE, SIDE):
        if tuple(-(-size // block) for size in shape) == tuple(mask.shape):
            return block
    raise ValueError(
        f"the mask has {' x '.join(map(str, mask.shape))} blocks, but of a weight of "
        f"{' x '.join(map(str, shape))} no multiple of {SIDE} makes as many: one element for each block"
    )


def _cells(weight, block: int):
    """(block rows, block columns, block, block) of a weight, padded with zeros to whole blocks."""
    m, k = weight.shape
    weight = torch.nn.functional.pad(weight, (0, -k % block, 0, -m % block))
    rows, columns = (size // block for size in weight.shape)
    return weight.view(rows, block, columns, block).transpose(1, 2)


def blocks_of(weight, mask) -> tuple[Any, Any, Any]:
    """(row_ptr, col_idx, val) of a weight's blocks: int32 (rows + 1,), int32 (blocks,), (blocks, SIDE, SIDE)."""
    return _listed(*_cut(weight, mask))


def _cut(weight, mask):
    """Return a weight in blocks of SIDE, (rows, columns, SIDE, SIDE), and which of them a mask keeps."""
    finer = _side(weight.shape, mask) // SIDE
    cells = _cells(weight.detach(), SIDE)
    mask = mask.repeat_interleave(finer, 0).repeat_interleave(finer, 1)
    return cells, mask[: cells.shape[0], : cells.shape[1]]


def _listed(cells, mask) -> tuple[Any, Any, Any]:
    row, col = mask.nonzero(as_tuple=True)
    row_ptr = torch.nn.functional.pad(mask.sum(1).cumsum(0), (1, 0)).int()
    return row_ptr, col.int(), cells[row, col].contiguous()


def work_order(row_ptr, middle=None):
    """int32 (block rows, 4).

    Block row, its first block, the one past its last, and `middle`, the first of the second matrix; the longest first.
    A row in which one of two matrices has no block has none: their product is zero.
    """
    first, end = row_ptr[:-1], row_ptr[1:]
    if middle is not None:
        end = torch.where((middle == first) | (middle == end), first, end)
    middle = first if middle is None else torch.minimum(middle, end)
    row = torch.argsort(end - first, descending=True, stable=True)
    return torch.stack([row.int(), first[row], end[row], middle[row]], 1).int().contiguous()


# ---------------------------------------------------------------- the operator


@functools.cache
def block_linear():
    """Return the operator `sparsity_on_trial::block_linear`, registered at the first call."""
    schema = "(Tensor x, Tensor val, Tensor index, Tensor col_idx, SymInt features, str kernel) -> Tensor"
    return operator(
        "block_linear", schema, _block_linear, lambda x, *of: x.new_empty(_shape(x, *of[-2:])), _no_gradient
    )


def _no_gradient(ctx, grad):
    raise ValueError(
        "a layer of blocks is for inference and has no gradients: call it under torch.no_grad(), or train the dense "
        "layer"
    )


def _shape(x, features, kernel: str) -> tuple:
    """Of the output: as nn.Linear's, or of opt5 (features, tokens)."""
    return (features, prod(x.shape[:-1])) if kernel == "opt5" else (*x.shape[:-1], features)


def _block_linear(x, val, index, col_idx, features, kernel):
    require(
        x.dtype == val.dtype,
        f"the input is {x.dtype}, but the layer's blocks are {val.dtype}: convert one of them",
    )
    tokens, k = prod(x.shape[:-1]), x.shape[-1]
    # More where lines would not begin at multiples of 16 bytes.
    wide = layer.whole_lines(tokens) if kernel == "opt5" else tokens
    m, inputs = layer.whole_lines(features), layer.whole_lines(k)
    sizes = layer.Sizes(kernel, m, inputs, col_idx.shape[0], wide, named(x.dtype))
    layer.check(sizes)
    shape = _shape(x, features, kernel)
    if 0 in (*shape, k):
        return x.new_zeros(shape)
    multiply = _enqueue if x.is_cuda else _on_cpu
    return multiply(x.reshape(-1, k), val, index, col_idx, features, sizes).view(shape)


def _enqueue(x, val, index, col_idx, features: int, sizes: layer.Sizes):
    """Return the product for an input (tokens, k) on a GPU: (tokens, features), or of opt5 (features, tokens)."""
    tokens, k = x.shape
    if (sizes.tokens, sizes.k) != (tokens, k):
        x = torch.nn.functional.pad(x, (0, sizes.k - k, 0, sizes.tokens - tokens))
    x, ordinal = aligned(x), x.get_device()
    with launching(x) as stream:
        out = x.new_empty(sizes.out)
        tiles = counter(ordinal, dense.current(x, ordinal), torch.cuda.is_current_stream_capturing())
        addresses = *(t.data_ptr() for t in (x, out, val, index, col_idx)), tiles
        layer.launcher(sizes, ordinal)(stream, *addresses)
    m, n = (features, tokens) if sizes.kernel == "opt5" else (tokens, features)
    return out if out.shape == (m, n) else out[:m, :n].contiguous()


# ---------------------------------------------------------------- counters of tiles

#: Kernels claim their tiles from two uint32 zeros, which are zeros again afterwards, so no two launches that share them
#: may run at once. Those of a stream follow each other and have one counter, whatever layer they are of. A captured
#: launch has its own, since its graph may be replayed beside everything else; nobody knows when a graph goes, so the
#: counter stays until the process ends.
SPACE = 32  #: bytes from a counter to the next
MANY = 1024  #: that are allocated together
_PER_THREAD = 2  #: the address that stands for another stream in each thread, CU_STREAM_PER_THREAD

_of_stream: dict[tuple[int, int, int], int] = {}
_spare: dict[int, list[int]] = {}
_lock = threading.Lock()


def counter(ordinal: int, stream: int, captured: bool) -> int:
    """Return the address of a counter for a launch on the stream at an address.

    It is on the current GPU, of CUDA's number ordinal. captured: whether the launch becomes part of a graph.
    """
    if captured:
        return _fresh(ordinal)
    key = ordinal, stream, threading.get_ident() if stream == _PER_THREAD else 0
    return _of_stream.get(key) or _of_stream.setdefault(key, _fresh(ordinal))


def _fresh(ordinal: int) -> int:
    """Return a counter that nobody else has."""
    with _lock:
        spare = _spare.setdefault(ordinal, [])
        if not spare:
            first = current.allocated(MANY * SPACE)
            spare.extend(range(first, first + MANY * SPACE, SPACE))
        return spare.pop()


# ---------------------------------------------------------------- on the host


def _on_cpu(x, val, index, col_idx, features: int, sizes: layer.Sizes):
    """Return the same by dense products in float32, rounded where the kernels round."""

    def product(first, end):
        return x.float() @ _whole(val.float(), col_idx, first, end, features, x.shape[-1]).t()

    with torch.autocast(x.device.type, enabled=False):
        if sizes.kernel == "opt5":
            return product(index[:-1], index[1:]).t().to(x.dtype).contiguous()
        first, end, middle = index[index[:, 0].argsort(), 1:].unbind(1)
        if sizes.kernel == "gated":
            silu = torch.nn.functional.silu(product(first, middle))
            return (silu.to(x.dtype) * product(middle, end)).to(x.dtype)
        return product(first, end).to(x.dtype)


def _whole(val, col_idx, first, end, m: int, k: int):
    """Return the dense weight (m, k) of the blocks first[r] to end[r] - 1 of each block row r."""
    rows, columns = first.shape[0], -(-k // SIDE)
    whole = val.new_zeros(rows, columns, SIDE, SIDE)
    for row, (begin, past) in enumerate(zip(first.tolist(), end.tolist(), strict=True)):
        whole[row, col_idx[begin:past].long()] = val[begin:past]
    return whole.transpose(1, 2).reshape(rows * SIDE, columns * SIDE)[:m, :k]


# ---------------------------------------------------------------- the modules


@functools.cache
def classes() -> SimpleNamespace:
    """`BlockSparseLinear` and `SparseFFN`, made when PyTorch is first needed."""
    from torch import nn

    multiply = block_linear()

    class Blocks(nn.Module):
        """The blocks of one product as buffers, and the product."""

        def __init__(self, inputs: int, kernel: str, index, col_idx, val):
            super().__init__()
            self.in_features, self.kernel = inputs, kernel
            # Of no blocks at all there is one of zeros, since the copy engine describes no empty matrix.
            self.register_buffer("val", val if val.shape[0] else val.new_zeros(1, SIDE, SIDE))
            self.register_buffer("index", index)
            self.register_buffer("col_idx", col_idx)

        def product(self, x, features: int):
            """Return the product, in the dtype that autocast asks for where it is on."""
            x, val = taken(x, self.val, self.in_features, "blocks")
            return multiply(x, val, self.index, self.col_idx, features, self.kernel)

    class BlockSparseLinear(Blocks):
        """nn.Linear with a weight of blocks: (…, inputs) to (…, outputs), in bfloat16 or float16, if by autocast.

        row_ptr (block rows + 1,), col_idx (blocks,), val (blocks, 64, 64): as `blocks_of` has them. bias: (outputs,).
        published: by the source's kernel as it writes C, whose transpose is handed on as it is: what follows reads
        it in strides, and the next layer copies it. Otherwise by ours, which writes it as nn.Linear does.
        """

        def __init__(self, inputs: int, outputs: int, row_ptr, col_idx, val, bias=None, published=False):
            require_blocks(inputs, outputs, row_ptr, col_idx, val)
            require_bias(bias, outputs)
            row_ptr, col_idx, val = row_ptr.int(), col_idx.int().contiguous(), val.contiguous()
            index = row_ptr.contiguous() if published else work_order(row_ptr)
            super().__init__(inputs, "opt5" if published else "unit_ring", index, col_idx, val)
            self.out_features = outputs
            self.bias = bias if bias is None or isinstance(bias, nn.Parameter) else nn.Buffer(bias)

        @classmethod
        def of(cls, linear, mask, published: bool = False):
            """Return the layer whose weight is an nn.Linear's where the mask has blocks, zero elsewhere: a copy."""
            (m, k), bias = linear.weight.shape, linear.bias
            bias = None if bias is None else nn.Parameter(bias.detach().clone(), bias.requires_grad)
            return cls(k, m, *blocks_of(linear.weight, mask), bias, published)

        def forward(self, x):
            y = self.product(x, self.out_features)
            if self.kernel == "opt5":
                y = y.t().view(*x.shape[:-1], self.out_features)
            return y if self.bias is None else y + cast(x, self.bias)

        def extra_repr(self) -> str:
            return f"{self.in_features}, {self.out_features}, {self.col_idx.shape[0]} blocks, {self.kernel}"

    class SparseFFN(Blocks):
        """down(silu(gate(x)) ∘ up(x)) in two launches: gate and up are one product with the rest as its epilogue."""

        def __init__(self, gate, up, down, masks: Mapping[str, Any]):
            m, k = gate.weight.shape
            for name, linear in (("gate_proj", gate), ("up_proj", up)):
                require(
                    linear.bias is None,
                    f"{name} has a bias, which the product with SwiGLU does not add: replace each projection alone",
                )
            require(
                up.weight.shape == gate.weight.shape and down.weight.shape[1] == m,
                f"gate_proj, up_proj and down_proj are {', '.join(size(x.weight) for x in (gate, up, down))}, but the "
                "first two must be alike, and the last must take what they give",
            )
            require(
                up.weight.dtype == gate.weight.dtype,
                f"gate_proj is {gate.weight.dtype} and up_proj {up.weight.dtype}: convert one of them",
            )
            cut = [_cut(x.weight, masks[name]) for name, x in (("gate_proj", gate), ("up_proj", up))]
            cells, kept = (torch.cat(of_both, 1) for of_both in zip(*cut, strict=True))
            row_ptr, col_idx, val = _listed(cells, kept)  # in each block row the gate's blocks, then up's
            columns = kept.shape[1] // 2
            middle = row_ptr[:-1] + kept[:, :columns].sum(1, dtype=torch.int32)
            super().__init__(k, "gated", work_order(row_ptr, middle), col_idx % columns, val)
            self.features = m
            self.down_proj = BlockSparseLinear.of(down, masks["down_proj"])

        def forward(self, x):
            return self.down_proj(self.product(x, self.features))

        def extra_repr(self) -> str:
            return f"{self.in_features}, {self.features}, {self.col_idx.shape[0]} blocks of gate and up"

    for cls in (BlockSparseLinear, SparseFFN):  # as pickle finds them
        cls.__module__, cls.__qualname__ = __name__, cls.__name__
    return SimpleNamespace(BlockSparseLinear=BlockSparseLinear, SparseFFN=SparseFFN)


def require_blocks(inputs: int, outputs: int, row_ptr, col_idx, val) -> None:
    """Raise ValueError, one sentence, for blocks that are none of a weight (outputs x inputs): kernels read by them."""
    rows, columns = (-(-size // SIDE) for size in (outputs, inputs))
    require(
        val.dim() == 3 and tuple(val.shape[1:]) == (SIDE, SIDE) and val.is_floating_point(),
        f"val is {val.dtype} {size(val)}, but must be blocks of {SIDE} x {SIDE} floats",
    )
    require(
        tuple(row_ptr.shape) == (rows + 1,) and tuple(col_idx.shape) == (val.shape[0],),
        f"row_ptr has {size(row_ptr)} and col_idx {size(col_idx)} elements, but {outputs} outputs in {val.shape[0]} "
        f"blocks need {rows + 1} and {val.shape[0]}",
    )
    offsets = row_ptr.tolist()
    require(
        offsets[0] == 0 and offsets[-1] == val.shape[0] and offsets == sorted(offsets),
        f"row_ptr runs from {offsets[0]} to {offsets[-1]}, but must rise from 0 to the {val.shape[0]} blocks",
    )
    wrong = ((col_idx < 0) | (col_idx >= columns)).nonzero()
    if len(wrong):
        at = int(wrong[0])
        raise ValueError(
            f"col_idx[{at}] is {int(col_idx[at])}, but {inputs} inputs have block columns 0 to {columns - 1}"
        )


# ---------------------------------------------------------------- a whole model


def ffns(model) -> dict[str, Any]:
    """Name -> module of every FFN of a model that has gate_proj, up_proj and down_proj, as nn.Linear, and SiLU.

    Raises ValueError, one sentence, where there is none, or one with another activation.
    """
    found = {
        name: module
        for name, module in model.named_modules()
        if all(isinstance(getattr(module, p, None), torch.nn.Linear) for p in PROJECTIONS)
    }
    require(
        bool(found),
        f"{type(model).__name__} has no FFN of {', '.join(PROJECTIONS)}: bring a Qwen2- or Llama-like model, "
        "not yet made sparse",
    )
    for name, module in found.items():
        act = getattr(module, "act_fn", None)
        said = getattr(act, "__name__", type(act).__name__)
        require(
            "silu" in said.lower() or "swish" in said.lower(),
            f"{name} has the activation {said}, but the product of gate and up has SiLU: bring a SwiGLU model",
        )
    return found


def masks(
    model, density: float, block: int = SIDE, *, seed: int = 0, keep: str = "random"
) -> dict[str, dict[str, Any]]:
    """Name of an FFN -> name of its projection -> the mask of `chosen`, all of one generator of the seed."""
    generator = functools.cache(lambda where: torch.Generator(where).manual_seed(seed))
    return {
        name: {
            p: chosen(getattr(module, p).weight, density, block, keep, generator(module.gate_proj.weight.device))
            for p in PROJECTIONS
        }
        for name, module in ffns(model).items()
    }


def replacements(
    model, density: float, block: int = SIDE, *, seed: int = 0, keep: str = "random", published: bool = False
) -> dict[str, Any]:
    """Name -> what takes the place of a module, for all FFNs of a model, which stays as it is.

    published: each projection alone by the source's kernel, as the source has it; otherwise whole FFNs in two launches.
    Blocks are those of `masks`, the same for both. Raises ValueError for a model without FFNs that this replaces.
    """
    made: dict[str, Any] = {}
    for name, of in masks(model, density, block, seed=seed, keep=keep).items():
        parts = {p: getattr(model.get_submodule(name), p) for p in PROJECTIONS}
        if published:
            of_one = classes().BlockSparseLinear.of
            made |= {f"{name}.{p}": of_one(part, of[p], published=True) for p, part in parts.items()}
        else:
            made[name] = classes().SparseFFN(*parts.values(), of)
    return made


def put(model, modules: Mapping[str, Any]) -> dict[str, Any]:
    """Put modules in the places of these names; returns those that were there, for another `put`."""
    before = {name: model.get_submodule(name) for name in modules}
    for name, module in modules.items():
        model.set_submodule(name, module)
    return before


def sparsify(
    model, density: float = 0.1, block: int = SIDE, *, seed: int = 0, keep: str = "random", published: bool = False
):
    """Return the model with block-sparse FFNs, in place.

    Of any Qwen2- or Llama-like one, in the sizes of its own layers.
    """
    put(model, replacements(model, density, block, seed=seed, keep=keep, published=published))
    return model
