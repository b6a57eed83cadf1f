"""What operators and layers share of PyTorch: gradients that would be lost in silence, autocast, inputs, captures.

PyTorch is not imported unless a tensor is given, so that anything may ask.
"""

import functools
import sys
from contextlib import nullcontext

from ..padding import ALIGNMENT


def require_no_grad(x, name: str) -> None:
    """Raise ValueError, one sentence, where PyTorch would want a gradient of x, a tensor or any other array.

    name: what the sentence calls it. Nothing is lost under torch.no_grad(), or of what is detached.
    """
    if getattr(x, "requires_grad", False) and sys.modules["torch"].is_grad_enabled():
        raise ValueError(
            f"{name} requires grad, but gradients are lost here: multiply by a SparseMatrix, which has them, or detach "
            f"{name}"
        )


def require_no_tangent(x, instead: str) -> None:
    """Raise ValueError, one sentence, where a tensor carries a forward derivative, which operators here would drop.

    instead: what to do, the end of the sentence.
    """
    from torch.autograd import forward_ad

    if getattr(forward_ad, "_current_level", -1) < 0:
        return
    if forward_ad.unpack_dual(x).tangent is not None:
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


def named(dtype) -> str:
    """Return a dtype of PyTorch's as it is called here: "bfloat16"."""
    return str(dtype).removeprefix("torch.")


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
    from . import current

    with current.opened(ordinal) as device:
        return device


def on(ordinal: int):
    """Return a context in which a GPU is the current one, as it mostly is."""
    import torch

    return nullcontext() if torch.cuda.current_device() == ordinal else torch.cuda.device(ordinal)


def capturing():
    """Return a context for a launch.

    Encoding a tensor map asks the driver about an address, which a capture forbids.
    """
    import torch

    from . import buffers

    return buffers.capturing_goes_on() if torch.cuda.is_current_stream_capturing() else nullcontext()


def aligned(x):
    """Return an input without gaps, at an address that the copy engine takes."""
    x = x.contiguous()  # as it is, from every layer that comes before an FFN
    return x.clone() if x.data_ptr() % ALIGNMENT else x
