"""The launch that makes A from a dense matrix: what it counts, what it refuses, and the bits of NumPy."""

from __future__ import annotations

import math
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from kernels import jit
from kernels.formats import half, two_four
from kernels.formats.half import DTYPES
from kernels.tensor_core_24 import operands, pruning

H200 = SimpleNamespace(compute_capability=(9, 0))
#: m, k: whole, ragged ends with rows at 16 bytes and without, smaller than a group.
SHAPES = [(64, 64), (7, 8), (33, 72), (5, 1000), (130, 65), (3, 17), (1, 1), (300, 2048)]


class Array(np.ndarray):
    """A NumPy array with the one attribute of CuPy's that bind needs."""

    @property
    def data(self):
        return SimpleNamespace(ptr=self.ctypes.data)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("m", "k"), SHAPES)
def test_a_problem_counts_what_is_read_and_written(m, k, dtype):
    p = pruning.problem(m, k, 3, dtype=dtype)
    assert (p.room, p.m, p.n, p.k, p.seed) == ("tensor_core_24", m, 0, k, 3)
    assert p.label == ("float16" if dtype == "float16" else "") and p.density == 0.5
    dense = p.host().a
    assert p.host().b is None and (dense.dtype, dense.shape) == (dtype, (m, k))
    made = two_four.compress(dense.bits, dtype, prune=True)
    assert p.nnz == made.nnz and p.useful_flops == 0
    assert p.least_bytes == p.requested_bytes == dense.nbytes + made.nbytes


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"m": 0}, ["m is 0"]),
        ({"k": -1}, ["k is -1"]),
        ({"m": 1.5}, ["m is 1.5"]),
        ({"m": 2**20, "k": 2**20}, ["1048576 x 1048576", "compress it by rows"]),
        ({"dtype": "float32"}, ["'float32'", "bfloat16, float16"]),
        ({"seed": -1}, ["seed is -1"]),
    ],
)
def test_what_makes_no_problem_is_one_sentence(arguments, words):
    with pytest.raises(ValueError) as caught:
        pruning.problem(**({"m": 16, "k": 16} | arguments))
    message = str(caught.value)
    assert all(word in message for word in words) and "\n" not in message, message


@pytest.mark.parametrize(("m", "k"), SHAPES)
def test_bind_makes_one_launch_that_covers_the_matrix(m, k, monkeypatch):
    loaded = []
    cupy = SimpleNamespace(empty=lambda shape, dtype: np.empty(shape, dtype).view(Array))
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    monkeypatch.setattr(jit, "compile_cubin", lambda *what: what)
    monkeypatch.setattr(jit, "load", loaded.append)
    host = operands.host_dense(m, k, 0, "bfloat16")
    there = half.Half("bfloat16", host.bits.view(Array))
    monkeypatch.setattr(pruning, "device_dense", lambda *_: there)
    bound = pruning.bind(pruning.problem(m, k), H200)
    assert loaded == [(two_four.SOURCE, "compress<PRUNE>", "sm_90a")]
    assert pruning.ENTRY in two_four.ENTRIES
    ((_, launch, arguments),) = bound.steps
    assert launch.block == (two_four.THREADS, 1, 1)
    assert launch.grid == (math.ceil(m * math.ceil(k / 16) / two_four.THREADS), 1, 1)
    made, expected = bound.result(), two_four.compress(host.bits, "bfloat16", prune=True)
    assert (made.m, made.k, made.dtype) == (m, k, "bfloat16")
    for name in ("val", "meta"):
        array, like = getattr(made, name), getattr(expected, name)
        assert (array.shape, array.dtype) == (like.shape, like.dtype)
    assert [int(x) for x in arguments[:2]] == [m, k]
    assert all(type(x) is np.int32 for x in arguments[:2])
    assert arguments[2:] == (*(x.data.ptr for x in (there.bits, made.val, made.meta)), 0)
    assert any(x is there for x in bound.keep), "the matrix may be freed while it is read"


# -------------------------------------------------------------------------------- on a GPU


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("m", "k"), SHAPES)
def test_a_launch_makes_the_bits_of_numpy(device, m, k, dtype):
    p = pruning.problem(m, k, 1, dtype=dtype)
    assert np.array_equal(p.device().a.bits.get(), p.host().a.bits)
    expected = two_four.compress(p.host().a.bits, dtype, prune=True)
    bound = pruning.bind(p, device)
    stream = device.create_stream()
    for poison in (0xFFFF, 0):
        bound.result().val.fill(poison)
        bound.result().meta.fill(poison)
        device.sync()
        bound.launch(stream)
        stream.sync()
        made = two_four.to_host(two_four.validate(bound.result()))
        assert np.array_equal(made.val, expected.val) and np.array_equal(made.meta, expected.meta)
    stream.close()
