// How a block of the Hopper kernels begins, and which tiles it works on (tile.cuh: what a tile is).
#pragma once

#include "cluster.cuh"
#include "tile.cuh"

// Barriers of a ring with a producer of its own: its warp, the one after the warpgroups that multiply, makes them and goes on;
// the warpgroups wait until they are there. Its first copies need not wait for anybody.
// arrivals: how many hand a stage back before it is filled again, each warp that multiplies for itself.
template <int GROUPS, int STAGES>
__device__ __forceinline__ void begin(const Operands& from, Barrier* full, Barrier* empty,
                                      int arrivals = 4 * GROUPS)
{
    constexpr int NUMBER = 1 + GROUPS, ALL = 32 + 128 * GROUPS;
    if (threadIdx.x < 128 * GROUPS) {
        named_barrier(NUMBER, ALL);
    } else if (threadIdx.x < ALL) {
        if (threadIdx.x == 128 * GROUPS) {
            tma_prefetch(from.a), tma_prefetch(from.e), tma_prefetch(from.b), tma_prefetch(from.c);
            for (int s = 0; s < STAGES; ++s) barrier_init(&full[s], 1), barrier_init(&empty[s], arrivals);
            barrier_init_fence();
        }
        __syncwarp();
        named_barrier_arrive(NUMBER, ALL);
    }
}

// Tile number t in an order that keeps what is being read in L2: bands of `band` rows of tiles, each from left to right.
struct Order {
    int high, wide, band;  // tiles of C in a column, in a row, rows of a band
    __device__ __forceinline__ int tiles() const { return high * wide; }
    __device__ __forceinline__ void find(int t, int& row, int& column) const
    {
        const int first = t / (band * wide) * band, rows = min(band, high - first), rest = t - first * wide;
        row = first + rest % rows;
        column = rest / rows;
    }
};
