"""What sparse layers ask of an input, without PyTorch."""

from types import SimpleNamespace

import pytest
from refused import said

from kernels.library import torch_modes

BF16, FP32, INT16 = (
    SimpleNamespace(itemsize=size, is_floating_point=floats) for size, floats in ((2, True), (4, True), (2, False))
)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, ""),
        ({"shape": (192,)}, ""),
        ({"shape": (2, 0, 192)}, ""),
        ({"shape": (4, 191)}, "191 features, but the layer takes 192"),
        ({"shape": ()}, "no dimension, but the layer takes 192"),
        ({"device": "cpu"}, "on cpu, but the layer on cuda:0"),
        ({"device": "cuda:1"}, "on cuda:1, but the layer on cuda:0"),
        ({"layout": "sparse_coo"}, "sparse_coo"),
        ({"dtype": FP32}, "both must be bfloat16 or both float16"),
        ({"there": FP32}, "both must be bfloat16 or both float16"),
        ({"dtype": FP32, "there": FP32}, "both must be bfloat16 or both float16"),
        ({"dtype": INT16, "there": INT16}, "both must be bfloat16 or both float16"),
    ],
)
def test_an_input_with_the_layers_features_where_its_blocks_are_is_taken_and_no_other(given, words):
    usual = {"shape": (5, 192), "device": "cuda:0", "dtype": BF16, "layout": "strided"}
    val = SimpleNamespace(**usual | {"shape": (9, 64, 64), "dtype": given.get("there", BF16)})
    found = said(lambda: torch_modes.require_input(SimpleNamespace(**usual | given), val, 192, "blocks"))
    assert words in found and bool(found) == bool(words)
