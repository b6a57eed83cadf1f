"""What operators and layers share of PyTorch: autocast, what they take of an input, where they are launched.

PyTorch is imported when something here is first called; in what `torch.compile` traces, by a statement.
"""

import functools
from collections.abc import Callable
from contextlib import contextmanager, nullcontext

from ..lazy import torch
from ..padding import ALIGNMENT
from ..workspace import stream_at
from . import buffers, current, dense


def require_no_tangent(x, instead: str) -> None:
    """Raise ValueError, one sentence, where a tensor carries a forward derivative, which operators here would drop.

    instead: what to do, the end of the sentence.
    """
    from torch.autograd import forward_ad

    if getattr(forward_ad, "_current_level", -1) >= 0 and forward_ad.unpack_dual(x).tangent is not None:
        raise ValueError(f"the input has a forward derivative, which operators here do not carry on: {instead}")


def autocast_dtype(x):
    """Return the dtype that autocast asks for where a tensor x is; None where it is off."""
    import torch

    kind = x.device.type
    if kind in ("cuda", "cpu") and torch.is_autocast_enabled(kind):  # what torch.compile can follow
        return torch.get_autocast_dtype(kind)
    return None


def cast(x, tensor):
    """Return a tensor as autocast has nn.Linear cast it for an input x.

    In its dtype where it is on, but for float64 and integers.
    """
    dtype = autocast_dtype(x)
    if dtype is None or not tensor.is_floating_point() or tensor.dtype.itemsize == 8:
        return tensor
    return tensor.to(dtype)


def size(x) -> str:
    """Return a tensor's shape in words: "4096 x 512"."""
    return " x ".join(map(str, x.shape))


# ---------------------------------------------------------------- what layers take


def taken(x, there, features: int, what: str = "") -> tuple:
    """(x, there) as a layer multiplies them, cast where autocast asks for it.

    ValueError, one sentence, where it does not: see `require_input`.
    """
    import torch

    if not isinstance(x, torch.Tensor):
        raise ValueError(f"the input is {type(x).__name__}, but a layer takes a tensor of PyTorch: convert it")
    x, there = cast(x, x), cast(x, there)
    require_input(x, there, features, what)
    require_no_tangent(x, "multiply by the dense layer")
    return x, there


def require_input(x, there, features: int, what: str = "") -> None:
    """Raise ValueError, one sentence, unless an input has a layer's features, and lies as and where `there` does.

    what: of the layer `there` is, whose dtype the input must have, one of 16 bits; "": it may have another.
    All are read by address: of another input, memory of somebody else. torch.compile keeps these as guards.
    """
    if len(x.shape) == 0 or x.shape[-1] != features:
        has = f"{x.shape[-1]} features" if len(x.shape) else "no dimension"
        raise ValueError(
            f"the input has {has}, but the layer takes {features} features: bring as many, or another layer"
        )
    if x.device != there.device:
        raise ValueError(f"the input is on {x.device}, but the layer on {there.device}: move one of them with to()")
    if x.layout != there.layout:
        raise ValueError(
            f"the input is a tensor in {x.layout}, but a layer multiplies dense ones: convert it with to_dense()"
        )
    if what and (x.dtype != there.dtype or x.dtype.itemsize != 2 or not x.dtype.is_floating_point):
        raise ValueError(
            f"the input is {x.dtype} and the layer's {what} are {there.dtype}, but both must be bfloat16 or both "
            "float16: convert them with to(), or use autocast"
        )


def require_bias(bias, outputs: int) -> None:
    """Raise ValueError, one sentence, unless a bias is none, or has a number for each output."""
    if bias is not None and tuple(bias.shape) != (outputs,):
        raise ValueError(f"the bias is {size(bias)}, but there are {outputs} outputs: one number for each")


# ---------------------------------------------------------------- where they are launched


@functools.cache
def gpu_of(ordinal: int):
    """Return the GPU as a `cuda.core.Device`, whose context is PyTorch's."""
    with current.opened(ordinal) as device:
        return device


@contextmanager
def launching(x):
    """Make a tensor's GPU the current one, as it mostly is, and yield its current stream, a `cuda.core.Stream`.

    Encoding a tensor map asks the driver about an address, which a capture forbids.
    """
    ordinal, mode = x.get_device(), nullcontext()
    with mode if torch.cuda.current_device() == ordinal else torch.cuda.device(ordinal):
        if torch.cuda.is_current_stream_capturing():
            mode = buffers.capturing_goes_on()
        with mode:
            yield stream_at(dense.current(x, ordinal), gpu_of(ordinal))


def aligned(x):
    """Return an input without gaps, at an address that the copy engine takes."""
    x = x.contiguous()  # as it is, from every layer that comes before an FFN
    return x.clone() if x.data_ptr() % ALIGNMENT else x


# ---------------------------------------------------------------- operators


def operator(name: str, schema: str, work: Callable, fake: Callable, backward: Callable, keep: Callable | None = None):
    """Return an operator of `torch.library`, which is registered. fake: the same of tensors without data.

    backward, keep: of (ctx, gradients) and (ctx, inputs, output), as autograd calls them.
    """
    made = torch.library.custom_op(f"sparsity_on_trial::{name}", work, mutates_args=(), schema=schema)
    made.register_fake(fake)
    made.register_autograd(backward, setup_context=keep)
    return getattr(torch.ops.sparsity_on_trial, name).default
