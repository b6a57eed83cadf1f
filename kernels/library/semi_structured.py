"""Linear layers with a 2:4 sparse weight for PyTorch: of each four inputs, every output reads two.

    layer = SemiStructuredLinear.of(linear)          # keeps the two largest magnitudes of each four
    layer = SemiStructuredLinear.of(linear, mask)    # or what a mask keeps: bool, as the weight
    layer = SemiStructuredLinear.of(tensor)          # PyTorch's SparseSemiStructuredTensor
    layer = SemiStructuredLinearFP8.of(linear)       # e4m3, with a scale for each output and for each token
    sparsify(model)                                  # projections of attention and FFN, as Qwen2 and Llama have them

The product is an operator of `torch.library`, on the current stream, with bias and activation in the same launch;
`torch.compile` and CUDA graphs take it, a graph after a first call at the same number of tokens, which compiles. It
reads inputs (…, inputs) and writes outputs (…, outputs) as they lie, any number of tokens; features are multiples of 8.
Launches may overlap. Gradients: of the input, by a dense product with the weight, which is made for it; of the bias;
and of the values that are kept. On the CPU the same layers multiply dense. PyTorch is imported when a layer is first
asked for.
"""

import functools
from contextlib import nullcontext
from functools import partial
from math import prod
from types import SimpleNamespace

from ..contract import require
from ..formats.two_four import TwoFour, TwoFourEight
from ..lazy import torch
from ..tensor_core_24 import layer, wgmma
from ..tensor_core_24.family import ACTIVATIONS, K
from . import current, dense, operands
from .layers import put
from .torch_modes import (
    aligned,
    capturing,
    gpu_of,
    named,
    on,
    require_bias,
    taken,
)

#: Of a Qwen2- or Llama-like model: what `sparsify` replaces.
PROJECTIONS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
_GROUP, _KEPT = 4, 2


def __getattr__(name: str):
    if name in ("SemiStructuredLinear", "SemiStructuredLinearFP8"):
        return getattr(classes(), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


# ---------------------------------------------------------------- the weight


def kept(weight):
    """Return the mask of the two largest magnitudes of each four inputs, the lower inputs of equal ones.

    weight: (outputs, inputs).
    """
    m, k = weight.shape
    sizes = torch.nn.functional.pad(weight.detach().abs().float(), (0, -k % _GROUP), value=-1)
    groups = sizes.view(m, -1, _GROUP)
    order = groups.argsort(dim=-1, descending=True, stable=True)[..., :_KEPT]
    return torch.zeros_like(groups, dtype=torch.bool).scatter_(-1, order, True).view(m, -1)[:, :k]


def columns_of(mask, multiple: int = 16):
    """int64 (outputs, groups, 2): which two of each four columns a mask keeps, ascending.

    Where it keeps fewer, others fill up. multiple: what inputs are rounded up to. Raises ValueError, one sentence,
    where it keeps more.
    """
    m, k = mask.shape
    groups = torch.nn.functional.pad(mask, (0, -k % multiple)).view(m, -1, _GROUP)
    count = groups.sum(-1)
    if bool((count > _KEPT).any()):
        row, group = map(int, (count > _KEPT).nonzero()[0])
        raise ValueError(
            f"the mask keeps {int(count[row, group])} of inputs {4 * group} to {4 * group + 3} for output {row}, but "
            "2:4 keeps two of four: prune more"
        )
    return groups.int().argsort(dim=-1, descending=True, stable=True)[..., :_KEPT].sort(-1).values


def _places(columns):
    """int16 (outputs, inputs' / 16): the columns of `columns_of`, as metadata holds them, four groups in a word."""
    nibbles = (columns[..., 0] | columns[..., 1] << 2).view(columns.shape[0], -1, 4)
    words = sum(nibbles[..., i] << 4 * i for i in range(4))
    return torch.where(words < 2**15, words, words - 2**16).to(torch.int16)


def _columns(places):
    """Return what `_places` was made of, as columns of the weight: int64 (outputs, inputs' / 2)."""
    words = places.long() & 0xFFFF
    groups = torch.stack([words >> 4 * i & 15 for i in range(4)], -1).view(places.shape[0], -1)
    first = _GROUP * torch.arange(groups.shape[1], device=places.device)
    return torch.stack([first + (groups & 3), first + (groups >> 2)], -1).view(places.shape[0], -1)


def _in_order(values, rows: int, pieces: int):
    """Values in the order of use, (rows, pieces, 64, 32), of those in rows: `wgmma.pack_values`."""
    wide = (0, pieces * K // 2 - values.shape[1], 0, rows * 64 - values.shape[0])
    whole = torch.nn.functional.pad(values, wide).view(rows, 64, pieces, K // 2)
    return _swizzled(whole.transpose(1, 2)).contiguous()


def _swizzled(pieces):
    """Pieces (…, 64, width) whose four units of 16 bytes are at u ^ (row // 2 % 4), which undoes itself."""
    row = torch.arange(64, device=pieces.device)[:, None]
    unit = torch.arange(4, device=pieces.device)[None, :] ^ row // 2 % 4
    return pieces.reshape(*pieces.shape[:2], 64, 4, -1)[:, :, row, unit].flatten(-2)


def _made(make, *tensors):
    """Return what `make` makes of tensors as arrays of NumPy, or on a GPU of CuPy, which is current meanwhile.

    A tensor.
    """
    where = nullcontext()
    if tensors[0].is_cuda:
        torch.cuda.synchronize(tensors[0].device)
        where = current.settled(tensors[0].get_device())
    with where:
        return torch.from_dlpack(make(*map(operands.array, tensors)))


def weight_of(values, places, inputs: int, scales=None):
    """Return the dense weight (outputs, inputs); scales: of values in e4m3, as `layer.pack` has them: it is float32."""
    m, columns = places.shape[0], _columns(places)
    if scales is not None:
        values = values[..., : 64 * 64].unflatten(-1, (64, 64))
    rows = _swizzled(values).transpose(1, 2).flatten(0, 1).flatten(1)[:m, : columns.shape[1]]
    if scales is not None:
        rows = rows.contiguous().view(torch.float8_e4m3fn).float() * scales
    whole = rows.new_zeros(m, 4 * _GROUP * places.shape[1])
    return whole.scatter(1, columns, rows)[:, :inputs]


# ---------------------------------------------------------------- the operator


@functools.cache
def operators() -> SimpleNamespace:
    """Return the operators `sparsity_on_trial::semi_structured_linear` and `quantise_tokens`.

    They are registered at the first call.

    unit: the scales of an input in e4m3; then `beside` are those of the values, and otherwise their metadata.
    """
    import torch

    @torch.library.custom_op(
        "sparsity_on_trial::semi_structured_linear",
        mutates_args=(),
        schema="(Tensor x, Tensor? unit, Tensor values, Tensor beside, Tensor places, Tensor? bias, str activation) "
        "-> Tensor",
    )
    def semi_structured_linear(x, unit, values, beside, places, bias, activation):
        m, k = places.shape[0], x.shape[-1]
        layer.check(_sizes(m, k, prod(x.shape[:-1]), x.dtype, bias is not None, activation))
        dtype, shape = x.dtype if unit is None else torch.bfloat16, (*x.shape[:-1], m)
        if 0 in shape:
            return x.new_zeros(shape, dtype=dtype)
        if x.is_cuda:
            return _enqueue(x, unit, values, beside, bias, m, activation)
        whole = weight_of(values, places, k, None if unit is None else beside).float()
        made = torch.nn.functional.linear(x.float() * (1 if unit is None else unit), whole, bias)
        return _function(activation)(made).to(dtype)

    @semi_structured_linear.register_fake
    def _(x, unit, values, beside, places, bias, activation):
        dtype = x.dtype if unit is None else torch.bfloat16
        return x.new_empty((*x.shape[:-1], places.shape[0]), dtype=dtype)

    def keep(ctx, inputs, output):
        ctx.save_for_backward(*inputs[:-1])
        ctx.activation = inputs[-1]

    def backward(ctx, grad):
        x, unit, values, metadata, places, bias = ctx.saved_tensors
        if unit is not None:
            no_gradient()
        if ctx.activation:
            before = semi_structured_linear(x.detach(), None, values.detach(), metadata, places, bias, "")
            with torch.enable_grad():
                before = before.detach().requires_grad_()
                (grad,) = torch.autograd.grad(_function(ctx.activation)(before), before, grad)
        of_x = of_values = of_bias = None
        if ctx.needs_input_grad[0]:
            of_x = grad @ weight_of(values.detach(), places, x.shape[-1])
        lines = grad.reshape(-1, grad.shape[-1])
        if ctx.needs_input_grad[2]:
            whole = lines.t() @ x.reshape(-1, x.shape[-1])
            whole = torch.nn.functional.pad(whole, (0, 16 * places.shape[1] - whole.shape[1]))
            of_values = _in_order(whole.gather(1, _columns(places)), *values.shape[:2])
        if bias is not None and ctx.needs_input_grad[5]:
            of_bias = lines.sum(0, dtype=bias.dtype)
        return of_x, None, of_values, None, None, of_bias, None

    @torch.library.custom_op(
        "sparsity_on_trial::quantise_tokens", mutates_args=(), schema="(Tensor x) -> (Tensor, Tensor)"
    )
    def quantise_tokens(x):
        return _enqueue_quantised(x) if x.is_cuda and x.numel() else _quantised(x.float())

    @quantise_tokens.register_fake
    def _(x):
        unit = x.new_empty((*x.shape[:-1], 1), dtype=torch.float32)
        return x.new_empty(x.shape, dtype=torch.float8_e4m3fn), unit

    def no_gradient(*_):
        raise ValueError(
            "a 2:4 layer in FP8 is for inference and has no gradients: call it under torch.no_grad(), or train "
            "SemiStructuredLinear"
        )

    semi_structured_linear.register_autograd(backward, setup_context=keep)
    quantise_tokens.register_autograd(no_gradient)
    ops = torch.ops.sparsity_on_trial
    return SimpleNamespace(linear=ops.semi_structured_linear.default, quantise=ops.quantise_tokens.default)


def _quantised(x):
    """(e4m3, scales (rows, 1)) of rows, each with its largest magnitude at 448."""
    import torch

    unit = x.abs().amax(-1, keepdim=True) / 448
    unit = torch.where(unit > 0, unit, torch.ones_like(unit))
    return (x / unit).to(torch.float8_e4m3fn), unit


def _function(activation: str):
    """Return an activation as PyTorch has it."""
    return getattr(torch.nn.functional, activation) if activation else lambda x: x


def _sizes(m: int, k: int, tokens: int, dtype, bias: bool, activation: str) -> layer.Sizes:
    """dtype: PyTorch's, of inputs."""
    eight = dtype is torch.float8_e4m3fn
    return layer.Sizes(m, k, tokens, "e4m3" if eight else named(dtype), bias, activation, vectors=eight)


@functools.lru_cache(1024)
def _launcher(ordinal: int, *how):
    """Return (the launcher of a layer's product on a GPU, the GPU); how: what `_sizes` takes."""
    return layer.launcher(_sizes(*how), ordinal), gpu_of(ordinal)


def _enqueue(x, unit, values, beside, bias, m: int, activation: str):
    """Return the product for an input (…, inputs) on a GPU, (…, m).

    As the operator, but x may be bfloat16 for values of FP8, which is then made e4m3.
    """
    eight = values.dtype == torch.uint8
    if eight and unit is None:
        x, unit = _enqueue_quantised(x)
    x, ordinal, k = aligned(x), x.get_device(), x.shape[-1]
    with on(ordinal), capturing():
        out = x.new_empty((*x.shape[:-1], m), dtype=torch.bfloat16 if eight else x.dtype)
        launch, device = _launcher(ordinal, m, k, x.numel() // k, x.dtype, bias is not None, activation)
        units = (unit.contiguous(),) if eight else ()
        given = (t.data_ptr() for t in (x, out, values, beside, *units))
        launch(dense.opened(dense.current(x, ordinal), device), *given, 0 if bias is None else bias.data_ptr())
    return out


def _enqueue_quantised(x):
    """(e4m3, scales (…, 1)) of an input (…, inputs) on a GPU."""
    x, ordinal, k = aligned(x), x.get_device(), x.shape[-1]
    numbers, unit = torch.empty_like(x, dtype=torch.float8_e4m3fn), x.new_empty((*x.shape[:-1], 1), dtype=torch.float32)
    with on(ordinal), capturing():
        device, given = gpu_of(ordinal), (t.data_ptr() for t in (x, numbers, unit))
        stream = dense.opened(dense.current(x, ordinal), device)
        layer.quantise(stream, named(x.dtype), x.numel() // k, k, *given, device)
    return numbers, unit


# ---------------------------------------------------------------- the module


@functools.cache
def classes() -> SimpleNamespace:
    """`SemiStructuredLinear` and its form in FP8, made when PyTorch is first needed."""
    import torch
    from torch import nn
    from torch.autograd import forward_ad

    multiply = operators()

    class Layer(nn.Module):
        """What both have: sizes, which values are kept, a bias in float32, an activation."""

        def __init__(self, weight, mask, bias, activation: str):
            super().__init__()
            m, k = weight.shape
            require(
                tuple(mask.shape) == (m, k) and mask.dtype == torch.bool,
                f"the mask is {mask.dtype} {tuple(mask.shape)}, but must be bool {(m, k)}",
            )
            require_bias(bias, m)
            require(
                activation in ("", *ACTIVATIONS),
                f"activation is {activation!r}, but must be one of {', '.join(ACTIVATIONS)}, or empty",
            )
            self.in_features, self.out_features, self.activation = k, m, activation
            if bias is not None:
                bias = nn.Parameter(bias.detach().float().clone(), getattr(bias, "requires_grad", False))
            self.register_parameter("bias", bias)

        @classmethod
        def of(cls, source, mask=None, activation: str = "", **how):
            """Of an nn.Linear, a weight, or PyTorch's SparseSemiStructuredTensor. mask: None: by magnitude."""
            weight = getattr(source, "weight", source)
            if type(weight).__name__.startswith("SparseSemiStructured"):
                weight = weight.to_dense()
            weight = weight.detach()
            mask = kept(weight) if mask is None else mask
            return cls(weight, mask, getattr(source, "bias", None), activation, **how)

        def _is_plain(self, x, values) -> bool:
            """Whether an operator would only hand on an input, which takes longer than the launch.

            Of a tensor, no subclass, beside the values on a GPU, where nothing compiles, traces, transforms, casts or
            listens.
            """
            return (
                not torch.compiler.is_compiling()
                and type(x) is torch.Tensor
                and x.is_cuda
                and x.numel() > 0
                and x.dim() > 0
                and x.shape[-1] == self.in_features
                and x.dtype is (torch.bfloat16 if values.dtype is torch.uint8 else values.dtype)
                and x.get_device() == values.get_device()
                and not torch.is_autocast_enabled("cuda")
                and torch._C._len_torch_dispatch_stack() == 0
                and torch._C._len_torch_function_stack() == 0
                and torch._C._functorch.peek_interpreter_stack() is None
                and torch._C._get_tracing_state() is None
                and forward_ad._current_level < 0
                and not (
                    torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in (x, values, self.bias))
                )
            )

        def _stored(self, weight, mask, multiple: int):
            """(values of a mask in rows, (outputs, inputs' / 2), places)."""
            m, k = weight.shape
            columns = columns_of(mask, multiple)
            whole = nn.functional.pad(torch.where(mask, weight.detach(), 0), (0, -k % multiple))
            at = columns + _GROUP * torch.arange(columns.shape[1], device=mask.device)[:, None]
            return whole.gather(1, at.view(m, -1)), _places(columns)

        def _apply(self, fn, recurse=True):
            """As nn.Module has it, but the bias, and scales, stay in float32, as kernels read them."""
            super()._apply(fn, recurse)
            for name in ("bias", "scales"):
                x = getattr(self, name, None)
                if x is not None and x.dtype != torch.float32:
                    x.data = x.data.float()
            return self

        def extra_repr(self) -> str:
            said = f", {self.activation}" if self.activation else ""
            return f"{self.in_features}, {self.out_features}, 2:4, bias={self.bias is not None}{said}"

    class SemiStructuredLinear(Layer):
        """activation(x · Wᵀ + bias) with a 2:4 weight: (…, inputs) to (…, outputs), in bfloat16 or float16.

        weight: (outputs, inputs); mask: what of it is kept, bool, at most two of each four inputs. bias: (outputs,),
        kept in float32. activation: "relu", "gelu", "silu", or "": none. trained: whether the kept values are a
        parameter. Under autocast inputs and values are cast as nn.Linear's are.
        """

        def __init__(self, weight, mask, bias=None, activation: str = "", trained: bool = False):
            super().__init__(weight, mask, bias, activation)
            sizes = layer.Sizes(self.out_features, self.in_features, 1, "bfloat16")
            rows, places = self._stored(weight, mask, 16)
            values = _in_order(rows, sizes.rows, sizes.pieces)
            if trained:
                self.values = nn.Parameter(values)
            else:
                self.register_buffer("values", values)
            self.register_buffer("places", places)

            def ring(meta):
                of = TwoFour(sizes.m, sizes.k, "bfloat16", meta[:, :0], meta.view("u2"))
                return wgmma.ring_metadata(of, 3 * layer.ROWS, layer.COLUMNS).view("i4")

            self.register_buffer("metadata", _made(ring, places))

        @property
        def weight(self):
            """The dense weight (outputs, inputs), made anew."""
            return weight_of(self.values, self.places, self.in_features)

        def forward(self, x):
            values, metadata, bias, activation = self.values, self.metadata, self.bias, self.activation
            if self._is_plain(x, values):
                return _enqueue(x, None, values, metadata, bias, self.out_features, activation)
            x, values = taken(x, values, self.in_features, "values")
            return multiply.linear(x, None, values, metadata, self.places, bias, activation)

    class SemiStructuredLinearFP8(Layer):
        """The same with values in e4m3, a scale for each output, and bfloat16 inputs made e4m3, a scale for each token.

        A launch before the product quantises the inputs, once for layers that share what `quantise` makes; under
        torch.compile what makes the inputs does it. For inference.
        """

        def __init__(self, weight, mask, bias=None, activation: str = ""):
            super().__init__(weight, mask, bias, activation)
            rows, places = self._stored(weight, mask, 32)
            numbers, scales = _quantised(rows.float())

            def packed(val, meta, scale):
                of = TwoFourEight(val.shape[0], self.in_features, "e4m3", val, meta.view("u2"), scale)
                return layer.pack(of)

            self.register_buffer("packed", _made(packed, numbers.view(torch.uint8), places, scales))
            self.register_buffer("scales", scales)
            self.register_buffer("places", places)

        @property
        def weight(self):
            """The dense weight (outputs, inputs) in float32, made anew."""
            return weight_of(self.packed, self.places, self.in_features, self.scales)

        def quantise(self, x):
            """(e4m3, float32 scales (…, 1)) of an input, for `forward` of all layers that read the same.

            Under torch.compile these are operations of PyTorch's, which it fuses with what makes the input.
            """
            x, _ = taken(x, self.packed, self.in_features)
            require(
                x.dtype == torch.bfloat16,
                f"the input is {x.dtype}, but a layer in FP8 takes bfloat16: convert it, or use autocast",
            )
            return _quantised(x.float()) if torch.compiler.is_compiling() else multiply.quantise(x)

        def forward(self, x, quantised=None):
            """quantised: x as `quantise` makes it."""
            packed, scales, bias, activation = self.packed, self.scales, self.bias, self.activation
            if quantised is not None:  # the kernel goes by its shape
                taken(x, packed, self.in_features)
                _require_quantised(x, *quantised)
            if self._is_plain(x, packed):
                return _enqueue(*(quantised or (x, None)), packed, scales, bias, self.out_features, activation)
            return multiply.linear(*(quantised or self.quantise(x)), packed, scales, self.places, bias, activation)

    for cls in (SemiStructuredLinear, SemiStructuredLinearFP8):  # as pickle finds them
        cls.__module__, cls.__qualname__ = __name__, cls.__name__
    return SimpleNamespace(SemiStructuredLinear=SemiStructuredLinear, SemiStructuredLinearFP8=SemiStructuredLinearFP8)


def _require_quantised(x, numbers, unit) -> None:
    """Raise ValueError, one sentence, unless e4m3 numbers and their scales are of an input of x's shape, where x is."""
    import torch

    shape = tuple(x.shape)
    require(
        tuple(numbers.shape) == shape
        and tuple(unit.shape) == (*shape[:-1], 1)
        and numbers.dtype == torch.float8_e4m3fn
        and unit.dtype == torch.float32
        and numbers.device == unit.device == x.device,
        f"what was quantised is {numbers.dtype} {tuple(numbers.shape)} on {numbers.device} with {unit.dtype} scales "
        f"{tuple(unit.shape)}, but the input is {shape} on {x.device}: bring what quantise makes of it",
    )


# ---------------------------------------------------------------- a whole model


def sparsify(model, pattern: str = "2:4", *, dtype: str | None = None, projections=PROJECTIONS, trained: bool = False):
    """Return the model, in place: every nn.Linear of these names with multiples of 16 features a 2:4 layer.

    dtype: "e4m3": `SemiStructuredLinearFP8`; None: in the dtype that weights have. trained: kept values are parameters.
    """
    require(pattern == "2:4", f"pattern is {pattern!r}, but '2:4' is what layers here have")
    require(
        dtype in (None, "e4m3") and not (dtype and trained),
        f"dtype is {dtype!r}, but must be 'e4m3', which is not trained, or None",
    )
    make = (
        classes().SemiStructuredLinearFP8.of if dtype else partial(classes().SemiStructuredLinear.of, trained=trained)
    )
    found = {
        name: make(module)
        for name, module in model.named_modules()
        if isinstance(module, torch.nn.Linear)
        and name.rpartition(".")[2] in projections
        and not (module.in_features % 16 or module.out_features % 16)
    }
    require(
        bool(found),
        f"{type(model).__name__} has no nn.Linear called {', '.join(projections)} with multiples of 16 features",
    )
    put(model, found)
    return model
