"""Products of a kernel on a GPU held against the oracle's, which GPU tests of all systems ask for."""

import math
import os
import secrets

import numpy as np

from artifact.measure import bench, verification
from kernels import formats
from kernels.autotune import probe
from kernels.contract import Problem
from kernels.formats.half import array_of

#: Fresh for every run, and of all processes of one; part of messages. Set SPARSITY_TEST_SEED to run one again.
SEED = int(os.environ.get("SPARSITY_TEST_SEED", secrets.randbits(31)))


def exact(problem: Problem, prepare, device, times: int = 2):
    """bind: of a problem, what is launched `times` times on whole numbers, into NaN; every element must be right.

    What is bound comes back, with those operands.
    """
    whole, stream = probe.exact(problem), device.create_stream()
    right, bound = verification.oracle(whole), prepare(whole)
    for _ in range(times):
        verification.exactly(bound, whole, right, stream)
    return bound


def launched(bound, device) -> np.ndarray:
    """The numbers, or bits of 16, of one launch's output, which was NaN before."""
    stream = device.create_stream()
    bound.result().fill(math.nan)
    device.sync()
    bound.launch(stream)
    stream.sync()
    return formats.to_host(array_of(bound.result()))


def overlapped(bound, device, reference, first: int) -> None:
    """Launches on four streams at once, and replays of two graphs meanwhile, take each other's sums and find the same.

    first: counts of handovers that are there before; nothing is left for another launch to stumble over.
    """
    handovers = bound.scratch[1]
    handovers.fill(first)
    bound.result().fill(math.nan)
    streams = [device.create_stream() for _ in range(4)]
    graphs = [bench.capture(bound.name, bound, streams[0]) for _ in range(2)]
    device.sync()
    for i in range(300):
        [bound, *graphs][i % 3].launch(streams[i % 4])
    device.sync()
    verification.compare(bound.result(), reference, f"overlapping, first {first}, seed {SEED}")
    counts = handovers.get()
    assert np.array_equal(counts[..., 0], counts[..., 1])


def between(array, margin: int = 2**14, shift: int = 0):
    """(whole, view): an array's numbers in the same order inside of a larger one, all bits set, NaN, around them."""
    import cupy

    flat = cupy.empty(array.size + 2 * margin + shift, array.dtype)
    flat.view(cupy.uint8)[...] = 0xFF
    view = flat[margin + shift : margin + shift + array.size]
    view = view.reshape(array.shape) if array.flags.c_contiguous else view.reshape(array.shape[::-1]).T
    view[...] = array
    return flat, view
