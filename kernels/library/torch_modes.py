"""PyTorch's modes, as what multiplies here heeds them: gradients that would be lost in silence, and autocast.

PyTorch is not imported unless a tensor is given, so that anything may ask.
"""

from __future__ import annotations

import sys


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
    """The dtype that autocast asks for where a tensor x is; None where it is off."""
    import torch

    kind = x.device.type
    if kind in ("cuda", "cpu") and torch.is_autocast_enabled(kind):  # what torch.compile can follow
        return torch.get_autocast_dtype(kind)
    return None
