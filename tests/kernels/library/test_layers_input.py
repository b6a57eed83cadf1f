"""What sparse layers ask of an input, without PyTorch."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from refused import says

from kernels.library import layers


def tensor(*shape: int, device: str = "cuda:0") -> SimpleNamespace:
    return SimpleNamespace(shape=shape, device=device)


VAL = tensor(9, 64, 64)


@pytest.mark.parametrize("shape", [(192,), (5, 192), (2, 0, 192)])
def test_an_input_with_the_layers_features_where_its_blocks_are_is_taken(shape):
    layers._require_input(tensor(*shape), VAL, 192)


def test_any_other_is_refused():
    says(["191 features", "takes 192"], lambda: layers._require_input(tensor(4, 191), VAL, 192))
    for device in ("cpu", "cuda:1"):
        x = tensor(4, 192, device=device)
        says([f"on {device}", "on cuda:0"], lambda x=x: layers._require_input(x, VAL, 192))
