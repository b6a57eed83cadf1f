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
from ..formats import two_four
from ..lazy import torch
from ..tensor_core_24 import layer, wgmma
from ..tensor_core_24.family import ACTIVATIONS, K
from . import current, operands
from .dense import named
from .layers import put
from .torch_ops import aligned, gpu_of, launching, operator, require_bias, taken

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
    sizes = torch.nn.functional.pad(weight.detach().abs().float(), (0, -k % _GROUP), value=-1).view(m, -1, _GROUP)
    order = sizes.argsort(dim=-1, descending=True, stable=True)[..., :_KEPT]
    return torch.zeros_like(sizes, dtype=torch.bool).scatter_(-1, order, True).view(m, -1)[:, :k]


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
    return (nibbles << 4 * torch.arange(4, device=columns.device)).sum(-1).to(torch.int16)  # as its bits


def _columns(places):
    """Return what `_places` was made of, as columns of the weight: int64 (outputs, inputs' / 2)."""
    words = places.long()[..., None] >> 4 * torch.arange(4, device=places.device)
    groups = words.flatten(1)[..., None] >> 2 * torch.arange(_KEPT, device=places.device) & 3
    return (groups + _GROUP * torch.arange(groups.shape[1], device=places.device)[:, None]).flatten(1)


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
    on_gpu = tensors[0].is_cuda
    if on_gpu:
        torch.cuda.synchronize(tensors[0].device)
    with current.settled(tensors[0].get_device()) if on_gpu else nullcontext():
        return torch.from_dlpack(make(*map(operands.array, tensors)))


def weight_of(values, places, inputs: int, scales=None):
    """Return the dense weight (outputs, inputs); scales: of values in e4m3, as `layer.pack` has them: it is float32."""
    m, columns = places.shape[0], _columns(places)
    if scales is not None:
        values = values[..., : 64 * 64].unflatten(-1, (64, 64))
    rows = _swizzled(values).transpose(1, 2).flatten(0, 1).flatten(1)[:m, : columns.shape[1]]
    if scales is not None:
        rows = rows.contiguous().view(torch.float8_e4m3fn).float() * scales
    return rows.new_zeros(m, 4 * _GROUP * places.shape[1]).scatter(1, columns, rows)[:, :inputs]


# ---------------------------------------------------------------- the operator


@functools.cache
def operators() -> SimpleNamespace:
    """Return the operators `sparsity_on_trial::semi_structured_linear` and `quantise_tokens`.

    They are registered at the first call.

    unit: the scales of an input in e4m3; then `beside` are those of the values, and otherwise their metadata.
    """
    schema = "(Tensor x, Tensor? unit, Tensor values, Tensor beside, Tensor places, Tensor? bias, str activation)"
    return SimpleNamespace(
        linear=operator("semi_structured_linear", f"{schema} -> Tensor", _linear, _without_data, _backward, _keep),
        quantise=operator(
            "quantise_tokens",
            "(Tensor x) -> (Tensor, Tensor)",
            lambda x: _enqueue_quantised(x) if x.is_cuda and x.numel() else _quantised(x),
            _quantised,
            no_gradient,
        ),
    )


def no_gradient(*_):
    """Raise ValueError, one sentence: a `backward` of what has none."""
    raise ValueError(
        "a 2:4 layer in FP8 is for inference and has no gradients: call it under torch.no_grad(), or train "
        "SemiStructuredLinear"
    )


def _without_data(x, unit, values, beside, places, bias, activation):
    return x.new_empty((*x.shape[:-1], places.shape[0]), dtype=x.dtype if unit is None else torch.bfloat16)


def _linear(x, unit, values, beside, places, bias, activation):
    m, k = places.shape[0], x.shape[-1]
    layer.check(_sizes(m, k, prod(x.shape[:-1]), x.dtype, bias is not None, activation))
    if 0 in (m, *x.shape[:-1]):
        return _without_data(x, unit, values, beside, places, bias, activation)
    if x.is_cuda:
        return _enqueue(x, unit, values, beside, bias, m, activation)
    whole = weight_of(values, places, k, None if unit is None else beside).float()
    made = torch.nn.functional.linear(x.float() * (1 if unit is None else unit), whole, bias)
    return _function(activation)(made).to(x.dtype if unit is None else torch.bfloat16)


def _keep(ctx, inputs, output):
    ctx.save_for_backward(*inputs[:-1])
    ctx.activation = inputs[-1]


def _backward(ctx, grad):
    x, unit, values, metadata, places, bias = ctx.saved_tensors
    if unit is not None:
        no_gradient()
    if ctx.activation:
        before = operators().linear(x.detach(), None, values.detach(), metadata, places, bias, "")
        (grad,) = torch.func.vjp(_function(ctx.activation), before.detach())[1](grad)
    lines, needs = grad.reshape(-1, grad.shape[-1]), ctx.needs_input_grad
    of_x = grad @ weight_of(values.detach(), places, x.shape[-1]) if needs[0] else None
    of_values = None
    if needs[2]:
        whole = lines.t() @ x.reshape(-1, x.shape[-1])
        whole = torch.nn.functional.pad(whole, (0, 16 * places.shape[1] - whole.shape[1]))
        of_values = _in_order(whole.gather(1, _columns(places)), *values.shape[:2])
    of_bias = lines.sum(0, dtype=bias.dtype) if needs[5] else None
    return of_x, None, of_values, None, None, of_bias, None


def _quantised(x):
    """(e4m3, scales (rows, 1)) of rows, each with its largest magnitude at 448."""
    import torch

    x = x.contiguous().float()
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
    """Return the launcher of a layer's product on a GPU; how: what `_sizes` takes."""
    return layer.launcher(_sizes(*how), ordinal)


def _enqueue(x, unit, values, beside, bias, m: int, activation: str):
    """Return the product for an input (…, inputs) on a GPU, (…, m).

    As the operator, but x may be bfloat16 for values of FP8, which is then made e4m3.
    """
    eight = values.dtype == torch.uint8
    if eight and unit is None:
        x, unit = _enqueue_quantised(x)
    x, k = aligned(x), x.shape[-1]
    with launching(x) as stream:
        out = x.new_empty((*x.shape[:-1], m), dtype=torch.bfloat16 if eight else x.dtype)
        launch = _launcher(x.get_device(), m, k, x.numel() // k, x.dtype, bias is not None, activation)
        units = (unit.contiguous(),) if eight else ()
        given = (t.data_ptr() for t in (x, out, values, beside, *units))
        launch(stream, *given, 0 if bias is None else bias.data_ptr())
    return out


def _enqueue_quantised(x):
    """(e4m3, scales (…, 1)) of an input (…, inputs) on a GPU."""
    x, k = aligned(x), x.shape[-1]
    numbers, unit = torch.empty_like(x, dtype=torch.float8_e4m3fn), x.new_empty((*x.shape[:-1], 1), dtype=torch.float32)
    with launching(x) as stream:
        given = (t.data_ptr() for t in (x, numbers, unit))
        layer.quantise(stream, named(x.dtype), x.numel() // k, k, *given, gpu_of(x.get_device()))
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
            bias = None if bias is None else nn.Parameter(bias.detach().float().clone(), bias.requires_grad)
            self.register_parameter("bias", bias)

        @classmethod
        def of(cls, source, mask=None, activation: str = "", **how):
            """Of an nn.Linear, a weight, or PyTorch's SparseSemiStructuredTensor. mask: None: by magnitude."""
            weight = getattr(source, "weight", source).detach()
            weight = weight.to_dense() if operands.is_semi_structured(weight) else weight
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

        @property
        def weight(self):
            """The dense weight (outputs, inputs), made anew; in FP8 in float32."""
            scales = self._buffers.get("scales")
            values = self.values if scales is None else self.packed
            return weight_of(values, self.places, self.in_features, scales)

        def _stored(self, weight, mask, multiple: int):
            """Return the values of a mask in rows, (outputs, inputs' / 2); their places become a buffer."""
            columns = columns_of(mask, multiple)
            self.register_buffer("places", _places(columns))
            whole = nn.functional.pad(torch.where(mask, weight.detach(), 0), (0, -weight.shape[1] % multiple))
            return whole.gather(1, _columns(self.places))

        def _apply(self, fn, recurse=True):
            """As nn.Module has it, but the bias, and scales, stay in float32, as kernels read them."""
            super()._apply(fn, recurse)
            for x in (self.bias, self._buffers.get("scales")):
                if x is not None:
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
            values = _in_order(self._stored(weight, mask, 16), sizes.rows, sizes.pieces)
            self.values = nn.Parameter(values) if trained else nn.Buffer(values)

            def ring(meta):
                of = two_four.TwoFour(sizes.m, sizes.k, "bfloat16", meta[:, :0], meta.view("u2"))
                return wgmma.ring_metadata(of, 3 * layer.ROWS, layer.COLUMNS).view("i4")

            self.register_buffer("metadata", _made(ring, self.places))

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
            numbers, scales = _quantised(self._stored(weight, mask, 32))

            def packed(val, meta, scale):
                of = two_four.TwoFourEight(*weight.shape, "e4m3", val, meta.view("u2"), scale)
                return layer.pack(of)

            self.register_buffer("packed", _made(packed, numbers.view(torch.uint8), self.places, scales))
            self.register_buffer("scales", scales)

        def quantise(self, x):
            """(e4m3, float32 scales (…, 1)) of an input, for `forward` of all layers that read the same.

            Under torch.compile these are operations of PyTorch's, which it fuses with what makes the input.
            """
            x, _ = taken(x, self.packed, self.in_features)
            require(
                x.dtype == torch.bfloat16,
                f"the input is {x.dtype}, but a layer in FP8 takes bfloat16: convert it, or use autocast",
            )
            return _quantised(x) if torch.compiler.is_compiling() else multiply.quantise(x)

        def forward(self, x, quantised=None):
            """quantised: x as `quantise` makes it."""
            packed, scales, bias, activation = self.packed, self.scales, self.bias, self.activation
            if quantised is not None:  # the kernel goes by its shape
                taken(x, packed, self.in_features)
                numbers, unit = quantised
                require(
                    numbers.shape == x.shape
                    and unit.shape == (*x.shape[:-1], 1)
                    and numbers.dtype == torch.float8_e4m3fn
                    and unit.dtype == torch.float32
                    and numbers.device == unit.device == x.device,
                    f"what was quantised is {numbers.dtype} {tuple(numbers.shape)} on {numbers.device} with "
                    f"{unit.dtype} scales {tuple(unit.shape)}, but the input is {tuple(x.shape)} on {x.device}: bring "
                    "what quantise makes of it",
                )
            if self._is_plain(x, packed):
                return _enqueue(*(quantised or (x, None)), packed, scales, bias, self.out_features, activation)
            return multiply.linear(*(quantised or self.quantise(x)), packed, scales, self.places, bias, activation)

    for cls in (SemiStructuredLinear, SemiStructuredLinearFP8):  # as pickle finds them
        cls.__module__, cls.__qualname__ = __name__, cls.__name__
    return SimpleNamespace(SemiStructuredLinear=SemiStructuredLinear, SemiStructuredLinearFP8=SemiStructuredLinearFP8)


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
