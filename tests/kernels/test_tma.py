"""Tensor maps: what is refused without a GPU, and on one, boxes at and beyond the edges of a matrix."""

from types import SimpleNamespace

import numpy as np
import pytest
from refused import says

from kernels import jit, tma

#: A box from one matrix to another, at the same place in both.
SOURCE = """
#include "tma.cuh"
template <int BYTES>
__global__ void through(const __grid_constant__ TensorMap from, const __grid_constant__ TensorMap to, int x, int y)
{
    __shared__ __align__(1024) unsigned char box[BYTES];
    __shared__ Barrier full;
    if (threadIdx.x == 0) {
        barrier_init(&full, 1);
        barrier_init_fence();
        arrive_expect(&full, BYTES);  // of the whole box, wherever the matrix ends
        tma_load(box, from, x, y, &full);
    }
    __syncthreads();
    wait(&full, 0);
    if (threadIdx.x == 0) {
        async_proxy_fence();
        tma_store(to, x, y, box);
        tma_store_commit();
        tma_store_wait<0>();
    }
}
"""
ROWS = 16  # of a box


def matrix(pointer: int = 0x7000, pitch: int = 256):
    """What tensor_map looks at before it asks cuda.core."""
    return SimpleNamespace(data=SimpleNamespace(ptr=pointer), strides=(pitch, 2), shape=(64, 64), dtype=np.dtype("u2"))


@pytest.mark.parametrize(
    ("of", "swizzle", "ahead", "words"),
    [
        *(({}, x, 0, [f"swizzle is {x!r} bytes", "[0, 32, 64, 128]"]) for x in (1, 16, 96, 256, -1, None, "64")),
        ({}, 64, 64, ["fetch 64 bytes ahead"]),
        ({"pointer": 0x7002}, 0, 0, ["multiples of 16 bytes, but these begin at 2 and are 256 apart: pad them"]),
        ({"pointer": 0x7008}, 0, 0, ["these begin at 8 and are 256 apart"]),
        ({"pitch": 514}, 0, 0, ["these begin at 0 and are 514 apart"]),
        ({"pitch": 8}, 0, 0, ["these begin at 0 and are 8 apart"]),
    ],
)
def test_what_the_copy_engine_does_not_know_is_refused(of, swizzle, ahead, words):
    says(words, lambda: tma.tensor_map(matrix(**of), (64, 64), swizzle, ahead))


@pytest.mark.parametrize(("swizzle", "name"), tma.SWIZZLES.items())
def test_the_swizzle_is_one_that_cuda_core_takes(monkeypatch, swizzle, name):
    """Its own options refuse what is no member of its enumeration, a number or a text say."""
    from cuda.core import TensorMapDescriptorOptions, utils

    view = SimpleNamespace(as_tensor_map=TensorMapDescriptorOptions)
    monkeypatch.setattr(utils, "StridedMemoryView", SimpleNamespace(from_any_interface=lambda array, stream_ptr: view))
    for ahead, called in tma.AHEAD.items():
        made = tma.encoded(tma.tensor_map(matrix(), (64, 32), swizzle, ahead))
        assert (made.box_dim, made.swizzle.name, made.l2_promotion.name) == ((64, 32), name, called)


@pytest.mark.gpu
@pytest.mark.parametrize("swizzle", tma.SWIZZLES)
def test_a_box_is_rows_by_columns_and_ends_where_the_matrix_ends(device, tmp_path, swizzle):
    """What lies beyond the one matrix is zero, and beyond the other is not written, whatever the swizzle."""
    import cupy
    from cuda.core import LaunchConfig, launch

    if jit.arch_of(device) != "sm_90a":
        pytest.skip("compiled for compute capability 9.0")
    (tmp_path / "through.cu").write_text(SOURCE)
    columns = (swizzle or 64) // 2  # of 2 bytes: as wide as the swizzle, or 64 bytes
    kernel = jit.ready(tmp_path / "through.cu", f"through<{ROWS * columns * 2}>", "sm_90a")
    stream, filler = device.create_stream(), 0x1234
    for (m, n), (high, wide) in (((37, 40), (64, 128)), ((64, 128), (37, 40)), ((5, 8), (5, 8))):
        source = 1 + cupy.arange(m * n, dtype=cupy.uint16).reshape(m, n)
        # Between rows and after the last one there is something that must not be touched.
        buffer = cupy.full((high + 4, wide + 8), filler, cupy.uint16)
        target = buffer[:high, :wide]
        for x, y in ((0, 0), (8, 3), (24, 32), (32, 36), (64, 64)):
            buffer.fill(filler)
            maps = [tma.encoded(tma.tensor_map(a, (ROWS, columns), swizzle)) for a in (source, target)]
            device.sync()
            launch(stream, LaunchConfig(grid=1, block=32), kernel, *maps, np.int32(x), np.int32(y))
            stream.sync()
            exact, inside = np.full((high + 4, wide + 8), filler, np.uint16), np.zeros((high, wide), np.uint16)
            inside[:m, :n] = source.get()[:high, :wide]
            exact[y : min(y + ROWS, high), x : min(x + columns, wide)] = inside[y : y + ROWS, x : x + columns]
            assert np.array_equal(buffer.get(), exact), (swizzle, m, n, high, wide, x, y)
