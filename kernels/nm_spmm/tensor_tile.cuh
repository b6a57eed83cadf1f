// What the tensor-core kernels share: which rows of A^T a tile of C multiplies, and who does what.
//
// A tile is 256 rows (of m) x 128 columns (of n) of C. Of all k rows of A^T it needs those that any
// vector of its columns has kept: just N of M where vectors are 128 wide or a multiple of it, more
// where narrower vectors share the tile. A step multiplies ROWS of them, gathered by cp.async; what
// B has there is dense (zeros where a vector skips a row) and laid out offline:
//
//   start    int32 (tiles along n + 1)  the steps of tile j are start[j] to start[j + 1] - 1
//   index    int32 (steps, ROWS)        rows of A^T, padded with one whose values of B are all 0
//   values   (steps, 128, 128 bytes)    for each column of the tile its ROWS values, as wgmma reads
//                                       them: K-major, the 16-byte unit u of column j at u ^ j % 8
//                                       (128-byte swizzle)
//
//   warps 0 to 7   two warpgroups: wait full ── multiply ──► empty
//   warps 8 to 11  wait empty ── gather ROWS rows, ask for 16 KiB of values ──► full   (gather.cuh)
//
// A block works on tiles until none is left, and the ring is filled with those of the next while
// one is stored. Tiles are ordered as those of C^T: bands of `band` tiles along n, which gather
// from the same 256 rows of A, move along m.
#pragma once

#include "consume.cuh"
#include "gather.cuh"

constexpr int M = 256, N = 128;  // of a tile
constexpr int VALUES = N * 128;  // bytes of a stage
constexpr int CONSUMERS = 256, PRODUCERS = 128, THREADS = CONSUMERS + PRODUCERS;

// Barriers of the ring: a stage is full when every producer's copies and the values have landed,
// empty when all warps that multiply have left it.
template <int STAGES>
__device__ __forceinline__ void begin(Barrier* full, Barrier* empty)
{
    if (threadIdx.x == 0) ring_init<STAGES>(full, empty, PRODUCERS + 1, CONSUMERS / 32);
    __syncthreads();
}
