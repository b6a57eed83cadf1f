"""Copies of modules of PyTorch by all the ways there are."""

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
