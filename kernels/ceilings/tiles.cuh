// Operands of wgmma in shared memory, 128-byte swizzled as common/wgmma.cuh describes it, put there
// by ordinary stores.
#pragma once

#include "fragments.cuh"

// The 16 bytes number `chunk` of row `row` of a matrix with 8 of them in a row change places within
// their row: row r of every eight begins with number r, so eight rows of one column lie in
// different banks.
__device__ __forceinline__ int swizzled(int row, int chunk) { return 8 * row + (chunk ^ row % 8); }

// Copies a row-major matrix of ROWS x COLUMNS values, 64 columns (128 bytes) after the other: each
// such panel is ROWS rows of 128 bytes, swizzled. THREADS threads call it.
template <int ROWS, int COLUMNS, int THREADS>
__device__ __forceinline__ void fill(uint4* shared, const u16* __restrict__ matrix)
{
    constexpr int CHUNKS = COLUMNS / 8;  // of 16 bytes in a row
    static_assert(COLUMNS % 64 == 0, "a panel is 64 columns wide");
    for (int i = threadIdx.x; i < ROWS * CHUNKS; i += THREADS) {
        const int row = i / CHUNKS, chunk = i % CHUNKS;
        shared[chunk / 8 * ROWS * 8 + swizzled(row, chunk % 8)] =
            reinterpret_cast<const uint4*>(matrix)[i];
    }
}

// Shows what ordinary stores wrote to wgmma, which reads shared memory through another proxy.
__device__ __forceinline__ void show_to_wgmma()
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
}
