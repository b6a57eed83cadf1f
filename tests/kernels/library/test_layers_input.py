"""Sparse layers without PyTorch: what they ask of an input, and who shares a counter of tiles."""

import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest
from refused import said

from kernels.library import layers, torch_ops
from kernels.library.layers import counter

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
    found = said(lambda: torch_ops.require_input(SimpleNamespace(**usual | given), val, 192, "blocks"))
    assert words in found and bool(found) == bool(words)


# ---------------------------------------------------------------- counters of tiles


@pytest.fixture(autouse=True)
def memory(monkeypatch):
    """Where what is allocated begins: 1 MiB after the last; nothing is left of other tests."""
    made = []
    monkeypatch.setattr(layers.current, "allocated", lambda size: made.append(size) or 2**20 * len(made))
    monkeypatch.setattr(layers, "_spare", {})
    monkeypatch.setattr(layers, "_of_stream", {})
    return made


def test_launches_of_a_stream_share_one_and_no_two_streams_do():
    streams = [(gpu, stream) for gpu in (0, 1) for stream in (0, 0x7000, 0x8000)]
    of = {key: counter(*key, captured=False) for key in streams}
    assert len(set(of.values())) == len(streams)
    assert of == {key: counter(*key, captured=False) for key in reversed(streams)}


def test_a_captured_launch_has_one_for_itself_for_ever(memory):
    eager, many = counter(0, 0x7000, captured=False), 3 * layers.MANY
    ends = sorted({eager, *(counter(0, 0x7000, captured=True) for _ in range(many))})
    assert len(ends) == many + 1 and counter(0, 0x7000, captured=False) == eager
    assert all(b - a >= 8 for a, b in zip(ends, ends[1:], strict=False)) and ends[0] >= 2**20
    assert len(memory) == 4 and all(ends[-1] % 2**20 < size == memory[0] for size in memory)


def test_threads_that_meet_on_a_stream_get_the_same_but_of_their_own_one():
    barrier = threading.Barrier(8)

    def ask(_) -> list[int]:
        found = []
        for stream in (2, *range(0x1000, 0x1040)):
            barrier.wait()
            found.append(counter(0, stream, captured=False))
        return [*found, counter(0, 2, captured=False)]

    with ThreadPoolExecutor(8) as pool:
        own, *shared, again = zip(*pool.map(ask, range(8)), strict=True)
    assert len(set(own)) == 8 and own == again and len(set(shared)) == 0x40 == len({x for y in shared for x in y})
