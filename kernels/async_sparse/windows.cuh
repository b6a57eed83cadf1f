// What windows.cu and windows_half.cu share: shared memory, the order of tiles, and the producers.
//
// Template:  as in windows.cu
//            E      float, or unsigned short for 16 bits
//            SLICE  bytes of a slice's values
#pragma once

#include "consume.cuh"
#include "cut_windows.cuh"
#include "gather.cuh"
#include "in_order.cuh"
#include "step.cuh"
#include "tf32_left.cuh"

constexpr int STEP = 32;  // columns of a window that are gathered together, 8 by each producer warp

template <class E, int SLICE, int GROUPS, int STAGES>
struct Shared {
    static constexpr int ROWS = 32 / sizeof(E),          // of B that a slice names
        WIDTH = 512 / sizeof(E), UNIT = 16 / sizeof(E);  // columns of a warpgroup, and of 16 bytes
    static constexpr int M = WIDTH * GROUPS,
                         PITCH =
                             M +
                             8;  // columns of C in a tile; elements from a gathered row to the next

    unsigned char values[STAGES][STEP / ROWS * SLICE];  // aligned to 256 bytes
    E gathered[STAGES][STEP * PITCH];
};

struct Tile {
    int window, first, end, cut;  // cut_windows.cuh
    int panel;
};

// A block's tiles, every gridDim.x-th: each lane looks up one of the next 32, so their latency is
// waited for once in 32 tiles.
struct Tasks {
    const int4* task;
    int tasks, all, tile, seen;
    int4 mine;
    int panel;

    __device__ __forceinline__ Tasks(const int4* task, int tasks, int panels)
        : task(task), tasks(tasks), all(tasks * panels), tile(blockIdx.x), seen(0)
    {
        look();
    }
    __device__ __forceinline__ void look()
    {
        const long long t = tile + (long long)(threadIdx.x % 32) * gridDim.x;
        mine = {0, 0, 0, 0}, panel = 0;
        if (t < all) panel = (int)t / tasks, mine = __ldg(task + (int)t % tasks);
    }
    __device__ __forceinline__ bool more() const { return tile < all; }
    __device__ __forceinline__ Tile get() const
    {
        return {__shfl_sync(~0u, mine.x, seen), __shfl_sync(~0u, mine.y, seen),
                __shfl_sync(~0u, mine.z, seen), __shfl_sync(~0u, mine.w, seen),
                __shfl_sync(~0u, panel, seen)};
    }
    __device__ __forceinline__ void next()
    {
        tile = all - tile > (int)gridDim.x ? tile + (int)gridDim.x : all;
        if (++seen == 32) {
            seen = 0;
            if (more()) look();
        }
    }
};

// The steps of a block's tiles, those without any left out.
struct Steps {
    Tasks tiles;
    Tile it;
    int at;  // first column of the step
    __device__ __forceinline__ Steps(const Tasks& from) : tiles(from) { open(); }
    __device__ __forceinline__ bool more() const { return tiles.more(); }
    __device__ __forceinline__ void open()
    {
        for (; tiles.more(); tiles.next()) {
            it = tiles.get(), at = it.first;
            if (at < it.end) return;
        }
    }
    __device__ __forceinline__ void next()
    {
        if ((at += STEP) >= it.end) tiles.next(), open();
    }
};

// The part of the four producer warps: warp i gathers the i-th 8 rows of each step. The numbers of
// rows are loaded two steps ahead.
template <class E, int SLICE, int GROUPS, int STAGES>
__device__ __forceinline__ void
produce(const Tasks& tiles, Shared<E, SLICE, GROUPS, STAGES>& shared, Barrier* full, Barrier* empty,
        const E* __restrict__ b, int pitch, const int* __restrict__ col_idx,
        const unsigned char* __restrict__ values, int warp, int lane)
{
    using S = Shared<E, SLICE, GROUPS, STAGES>;
    constexpr int EIGHT = SLICE * 8 / S::ROWS;  // bytes of values for 8 rows
    struct Step {
        int at, live, column,
            row;  // live: its eights of rows, 0: there is no step; row: that lane % 8 is to name
    };
    Steps steps(tiles);
    const auto look = [&] {
        Step s = {0, 0, 0, -1};
        if (steps.more()) {
            s.at = steps.at, s.live = min(STEP / 8, (steps.it.end - steps.at) / 8),
            s.column = steps.it.panel * S::M;
            if (warp < s.live) s.row = __ldg(col_idx + s.at + 8 * warp + lane % 8);
            steps.next();
        }
        return s;
    };
    const unsigned to = shared_address(shared.gathered[0]) +
                        (8 * warp * S::PITCH + S::UNIT * lane) * (int)sizeof(E);
    Place<STAGES> place;
    Step now = look(), then = look();
    while (now.live) {
        const Step later = look();
        wait(&empty[place.stage], place.parity ^ 1);  // the first round finds every stage empty
        if (warp == 0 && lane == 0) {
            const int bytes = now.live * EIGHT;
            arrive_expect(&full[place.stage], bytes);
            bulk_load(shared.values[place.stage], values + (size_t)(now.at / 8) * EIGHT, bytes,
                      &full[place.stage]);
        }
        __syncwarp();
        if (warp < now.live) {
            const E* from[GROUPS];
#pragma unroll
            for (int i = 0; i < GROUPS; ++i)  // beyond the row: anything, not stored
                from[i] = b + min(now.column + S::WIDTH * i + S::UNIT * lane, pitch - S::UNIT);
            const unsigned here = to + place.stage * (int)sizeof(shared.gathered[0]);
#pragma unroll
            for (int r = 0; r < 8; ++r) {
                const int row = __shfl_sync(~0u, now.row, r);
                const size_t down = (size_t)(unsigned)max(row, 0) * (unsigned)pitch;
#pragma unroll
                for (int i = 0; i < GROUPS; ++i)
                    cp_async_or_zeros<16, CG>(here + (r * S::PITCH + S::WIDTH * i) * (int)sizeof(E),
                                              from[i] + down, row >= 0);
            }
        }
        cp_async_arrive(&full[place.stage]);
        place.next();
        now = then, then = later;
    }
}
