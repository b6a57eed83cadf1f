// What the tensor-core kernels share: which rows of A^T a tile of C multiplies, and how a ring of stages is filled.
//
// A tile is 256 rows (of m) x 128 columns (of n) of C. Of all k rows of A^T it needs those that any vector of its
// columns has kept: just N of M where vectors are 128 wide or a multiple of it, more where narrower vectors share the
// tile. A step multiplies ROWS of them, gathered by cp.async; what B has there is dense (zeros where a vector skips a
// row) and laid out offline:
//
//   start    int32 (tiles along n + 1)      the steps of tile j are start[j] to start[j + 1] - 1
//   index    int32 (steps, ROWS)            rows of A^T, padded with one whose values of B are all 0
//   values   (steps, 128, 128 bytes)        for each column of the tile its ROWS values, as wgmma reads them: K-major,
//                                           the 16-byte unit u of column j at u ^ j % 8 (128-byte swizzle)
//
//   warps 0 to 7     two warpgroups: wait full ── multiply ──► empty
//   warps 8 to 11    wait empty ── gather ROWS rows, ask for 16 KiB of values ──► full
//
// A block works on tiles until none is left, and the ring is filled with those of the next while one is stored.
#pragma once

#include "cp_async.cuh"
#include "tma.cuh"
#include "wgmma.cuh"

constexpr int M = 256, N = 128;       // of a tile
constexpr int VALUES = N * 128;       // bytes of a stage
constexpr int CONSUMERS = 256, PRODUCERS = 128, THREADS = CONSUMERS + PRODUCERS;

// An arrival at the barrier that happens once all copies of this thread so far have landed.
__device__ __forceinline__ void cp_async_arrive(Barrier* bar)
{
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(shared_address(bar)) : "memory");
}

// A block's steps, tile after tile, in an order that keeps what is being read in L2: bands of `band` tiles along n,
// which gather from the same 256 rows of A, move along m.
struct Walk {
    const int* start;
    int along_m, along_n, band;  // tiles of C, tiles of a band
    int tile, m, n, step, end;   // where it is: the tile, which one along m and n, its next step, the end of its steps
    __device__ __forceinline__ Walk(const int* start, int along_m, int along_n, int band)
        : start(start), along_m(along_m), along_n(along_n), band(band), tile(blockIdx.x)
    {
        open();
    }
    __device__ __forceinline__ bool more() const { return tile < along_m * along_n; }
    __device__ __forceinline__ void open()
    {
        if (!more()) return;
        const int first = tile / (band * along_m) * band, high = min(band, along_n - first);
        const int rest = tile - first * along_m;
        n = first + rest % high, m = rest / high;
        step = start[n], end = start[n + 1];
    }
    __device__ __forceinline__ void next_tile() { tile += gridDim.x, open(); }
    __device__ __forceinline__ void next_step()
    {
        if (++step == end) next_tile();
    }
};

// Barriers of the ring: a stage is full when every producer's copies and the values have landed, empty when all warps
// that multiply have left it.
template <int STAGES>
__device__ __forceinline__ void begin(Barrier* full, Barrier* empty)
{
    if (threadIdx.x == 0) {
        for (int s = 0; s < STAGES; ++s) barrier_init(&full[s], PRODUCERS + 1), barrier_init(&empty[s], CONSUMERS / 32);
        barrier_init_fence();
    }
    __syncthreads();
}

// The producers' part. copy(stage, m, row): copies this warp's ROWS / 4 rows of A^T for the tile whose rows of C begin
// at m; lane i holds the number of the i-th. The numbers are loaded a step ahead.
template <int ROWS, int STAGES, class Copy>
__device__ __forceinline__ void produce(Walk at, const int* index, const unsigned char* values,
                                        unsigned char (*shared)[VALUES], Barrier* full, Barrier* empty, Copy copy)
{
    const int warp = (threadIdx.x - CONSUMERS) / 32, lane = threadIdx.x % 32;
    const int* mine = index + warp * (ROWS / 4) + lane % (ROWS / 4);
    const Policy policy = keep();
    Place<STAGES> place;
    int ahead = at.more() ? mine[(size_t)at.step * ROWS] : 0;
    while (at.more()) {
        const int row = ahead, step = at.step, m = at.m * M;
        at.next_step();
        if (at.more()) ahead = mine[(size_t)at.step * ROWS];
        wait(&empty[place.stage], place.parity ^ 1);  // the first round finds every stage empty
        if (threadIdx.x == CONSUMERS) {
            arrive_expect(&full[place.stage], VALUES);
            bulk_load(shared[place.stage], values + (size_t)step * VALUES, VALUES, &full[place.stage], policy);
        }
        __syncwarp();
        copy(place.stage, m, row);
        cp_async_arrive(&full[place.stage]);
        place.next();
    }
}
