"""What tests of PyTorch share: copies of modules by all the ways there are, and products held against right ones."""

import copy
import io
import pickle


def through_a_file(x, **how):
    """What torch.load makes of what torch.save wrote."""
    import torch

    file = io.BytesIO()
    torch.save(x, file)
    file.seek(0)
    return torch.load(file, **how)


def twins(module) -> dict:
    """How it was copied -> the copy."""
    return {
        "deepcopy": copy.deepcopy(module),
        "pickle": pickle.loads(pickle.dumps(module)),
        "again": pickle.loads(pickle.dumps(copy.copy(copy.deepcopy(module)))),
        "torch.save": through_a_file(module, weights_only=False),
    }


def close(found, right, limit: float = 1e-2) -> None:
    """The same shape, finite, and no further off, in Frobenius' norm, than so much of the right one."""
    assert found.shape == right.shape and bool(found.isfinite().all())
    if found.numel():
        off = (found.double() - right.double()).norm() / right.double().norm().clamp(min=1e-6)
        assert float(off) < limit
