"""What sparse layers ask of an input, without PyTorch."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from refused import says

from kernels.library import torch_modes

BF16, FP32, INT16 = (
    SimpleNamespace(itemsize=size, is_floating_point=floats) for size, floats in ((2, True), (4, True), (2, False))
)


def tensor(*shape: int, device: str = "cuda:0", dtype=BF16, layout="strided") -> SimpleNamespace:
    return SimpleNamespace(shape=shape, device=device, dtype=dtype, layout=layout)


VAL = tensor(9, 64, 64)


@pytest.mark.parametrize("shape", [(192,), (5, 192), (2, 0, 192)])
def test_an_input_with_the_layers_features_where_its_blocks_are_is_taken(shape):
    torch_modes.require_input(tensor(*shape), VAL, 192, "blocks")


def test_any_other_is_refused():
    says(["191 features", "takes 192"], lambda: torch_modes.require_input(tensor(4, 191), VAL, 192, "blocks"))
    for device in ("cpu", "cuda:1"):
        x = tensor(4, 192, device=device)
        says([f"on {device}", "on cuda:0"], lambda x=x: torch_modes.require_input(x, VAL, 192, "blocks"))
    says(["no dimension", "takes 192"], lambda: torch_modes.require_input(tensor(), VAL, 192, "blocks"))
    x = tensor(4, 192, layout="sparse_coo")
    says(["sparse_coo", "to_dense"], lambda: torch_modes.require_input(x, VAL, 192, "blocks"))


@pytest.mark.parametrize("of_x, of_val", [(FP32, BF16), (BF16, FP32), (FP32, FP32), (INT16, INT16)])
def test_a_dtype_that_no_kernel_multiplies_is_refused_wherever_it_is(of_x, of_val):
    x, val = tensor(4, 192, dtype=of_x), tensor(9, 64, 64, dtype=of_val)
    says(["both must be bfloat16 or both float16"], lambda: torch_modes.require_input(x, val, 192, "blocks"))
