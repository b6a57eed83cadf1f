// A ring of stages that warps of their own fill with rows gathered by cp.async, and with values by
// the copy engine (sm_90).
//
// A tile of C multiplies some rows of a dense matrix, in steps of ROWS of them; what the sparse
// matrix has there is dense and laid out offline:
//
//   start    int32 (tiles in a column of the order + 1)
//                                   the steps of row r of tiles are start[r] to start[r + 1] - 1
//   index    int32 (steps, ROWS)    which rows
//   values   (steps, VALUES bytes)  what they are multiplied by
#pragma once

#include "cp_async.cuh"
#include "tile_order.cuh"
#include "tma.cuh"

// An arrival at the barrier that happens once all copies of this thread so far have landed.
__device__ __forceinline__ void cp_async_arrive(Barrier* bar)
{
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(shared_address(bar))
                 : "memory");
}

// A block's steps, tile after tile, every gridDim.x-th of the order.
struct StepWalk {
    const int* start;
    TileOrder order;
    int tile, row, column, step,
        end;  // where it is: the tile, its row and column, its next step, the end of its steps
    __device__ __forceinline__ StepWalk(const int* start, const TileOrder& order)
        : start(start), order(order), tile(blockIdx.x)
    {
        open();
    }
    __device__ __forceinline__ bool more() const { return tile < order.tiles(); }
    __device__ __forceinline__ void open()
    {
        if (!more()) return;
        order.find(tile, row, column);
        step = start[row], end = start[row + 1];
    }
    __device__ __forceinline__ void next_tile() { tile += gridDim.x, open(); }
    __device__ __forceinline__ void next_step()
    {
        if (++step == end) next_tile();
    }
};

// The part of four producer warps, which follow CONSUMERS threads. copy(stage, column, row): copies
// this warp's ROWS / 4 rows for a tile of that column; lane i holds the number of the i-th. The
// numbers are loaded a step ahead.
template <int ROWS, int CONSUMERS, int STAGES, int VALUES, class Copy>
__device__ __forceinline__ void
produce(StepWalk at, const int* index, const unsigned char* values,
        unsigned char (&shared)[STAGES][VALUES], Barrier* full, Barrier* empty, Copy copy)
{
    const int warp = (threadIdx.x - CONSUMERS) / 32, lane = threadIdx.x % 32;
    const int* mine = index + warp * (ROWS / 4) + lane % (ROWS / 4);
    const Policy policy = keep();
    Place<STAGES> place;
    int ahead = at.more() ? mine[(size_t)at.step * ROWS] : 0;
    while (at.more()) {
        const int row = ahead, step = at.step, column = at.column;
        at.next_step();
        if (at.more()) ahead = mine[(size_t)at.step * ROWS];
        wait(&empty[place.stage], place.parity ^ 1);  // the first round finds every stage empty
        if (threadIdx.x == CONSUMERS) {
            arrive_expect(&full[place.stage], VALUES);
            bulk_load(shared[place.stage], values + (size_t)step * VALUES, VALUES,
                      &full[place.stage], policy);
        }
        __syncwarp();
        copy(place.stage, column, row);
        cp_async_arrive(&full[place.stage]);
        place.next();
    }
}
