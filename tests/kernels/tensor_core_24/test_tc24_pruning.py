"""The launch that makes A from a dense matrix: what it counts, what it refuses, and the bits of NumPy."""

import math

import numpy as np
import pytest
import racing
from pretend import as_array
from refused import says

from kernels.formats import two_four
from kernels.formats.half import DTYPES
from kernels.tensor_core_24 import operands, pruning

#: m, k: whole, ragged ends with rows at 16 bytes and without, smaller than a group.
SHAPES = [(64, 64), (7, 8), (33, 72), (5, 1000), (130, 65), (3, 17), (1, 1), (300, 2048)]


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
    ("given", "words"),
    [
        ({"m": 2**20, "k": 2**20}, ["1048576 x 1048576", "compress it by rows"]),
        ({"dtype": "float32"}, ["'float32'", "bfloat16, float16"]),
        ({"k": -1}, ["k is -1"]),
    ],
)
def test_what_makes_no_problem_is_one_sentence(given, words):
    says(words, lambda: pruning.problem(**{"m": 16, "k": 16} | given))


@pytest.mark.parametrize(("m", "k"), SHAPES)
def test_prepare_makes_one_launch_that_covers_the_matrix(pretended, monkeypatch, m, k):
    device, host = pretended(racing.H200), operands.host_dense(m, k, 0, "bfloat16")
    there = as_array(host)
    monkeypatch.setattr(pruning, "device_dense", lambda *_: there)
    bound = pruning.prepare(pruning.problem(m, k), device)
    ((kernel, launch, arguments),) = bound.named
    assert kernel == f"{two_four.SOURCE.stem}: compress<PRUNE>" and pruning.ENTRY in two_four.ENTRIES[two_four.SOURCE]
    assert launch.grid == math.ceil(m * math.ceil(k / 16) / launch.block)
    made, expected = bound.result(), two_four.compress(host, "bfloat16", prune=True)
    for name in ("val", "meta"):
        assert getattr(made, name).shape == getattr(expected, name).shape
    assert arguments == (m, k, *(x.data.ptr for x in (there, made.val, made.meta)), 0)
    assert any(getattr(x, "bits", None) is there for x in bound.keep), "the matrix may be freed while it is read"


# -------------------------------------------------------------------------------- on a GPU


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_launch_makes_the_bits_of_numpy(device, dtype):
    stream = device.create_stream()
    for m, k in SHAPES:
        p = pruning.problem(m, k, 1, dtype=dtype)
        expected, bound = two_four.compress(p.host().a.bits, dtype, prune=True), pruning.prepare(p, device)
        for poison in (0xFFFF, 0):
            bound.result().val.fill(poison)
            bound.result().meta.fill(poison)
            device.sync()
            bound.launch(stream)
            stream.sync()
            made = two_four.to_host(two_four.validate(bound.result()))
            assert np.array_equal(made.val, expected.val) and np.array_equal(made.meta, expected.meta), (m, k)
