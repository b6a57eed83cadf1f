// A scan of the whole grid: a tile adds up its numbers, and what all tiles before it have
// (decoupled look-back).
//
// A tile's word says of which launch it is, so that nobody clears them in between; blocks begin in
// their order.
#pragma once

#include "hang_trap.cuh"

constexpr int THREADS = 256, EACH = 8, TILE = THREADS * EACH;

constexpr unsigned OWN = 1, ALL = 2;

__device__ __forceinline__ unsigned
before(unsigned long long* tiles, unsigned launch, unsigned mine)
{
    __shared__ unsigned sum;
    if (threadIdx.x < 32) {
        unsigned total = 0;
        if (threadIdx.x == 0)
            atomicExch(tiles + blockIdx.x,
                       (unsigned long long)(launch * 4 + (blockIdx.x ? OWN : ALL)) << 32 | mine);
        for (int last = (int)blockIdx.x - 1; last >= 0; last -= 32) {
            const int tile = last - (int)threadIdx.x;
            unsigned long long word = (unsigned long long)(launch * 4 + ALL) << 32;
            if (tile >= 0) {
                Turns turns;
                do word = *(volatile unsigned long long*)(tiles + tile), turns.count(16);
                while ((unsigned)(word >> 34) != launch);
            }
            const unsigned known = __ballot_sync(~0u, (word >> 32 & 3) == ALL);
            const int until =
                known ? __ffs(known) - 1 : 31;  // nearest tile that knows of all before it
            unsigned part = (int)threadIdx.x <= until ? (unsigned)word : 0;
#pragma unroll
            for (int lane = 16; lane; lane /= 2) part += __shfl_xor_sync(~0u, part, lane);
            total += part;
            if (known) break;
        }
        if (threadIdx.x == 0) {
            if (blockIdx.x)
                atomicExch(tiles + blockIdx.x,
                           (unsigned long long)(launch * 4 + ALL) << 32 | (total + mine));
            sum = total;
        }
    }
    __syncthreads();
    return sum;
}

struct Nothing {
    __device__ __forceinline__ void operator()(int, int, unsigned) const {}
};

// Sums before each of n numbers, and all of them behind the last: `number(i)` for the EACH of a
// thread, ascending. each(i, sum before it, its number): what else is to be done with every one.
template <class Number, class Each = Nothing>
__device__ __forceinline__ void scan(int n, unsigned long long* tiles, unsigned launch,
                                     int* __restrict__ out, Number number, Each each = {})
{
    alignas(16)
        __shared__ unsigned warps[THREADS / 32];  // read in whole vectors, which hold nothing else
    const int first = blockIdx.x * TILE + threadIdx.x * EACH, lane = threadIdx.x % 32;
    unsigned own[EACH], sum = 0;
#pragma unroll
    for (int i = 0; i < EACH; ++i) own[i] = sum, sum += first + i < n ? number(first + i) : 0;
    unsigned until = sum;
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
        const unsigned left = __shfl_up_sync(~0u, until, step);
        if (lane >= step) until += left;
    }
    if (lane == 31) warps[threadIdx.x / 32] = until;
    __syncthreads();
    unsigned mine = until - sum, all = 0;
#pragma unroll
    for (int w = 0; w < THREADS / 32; ++w) {
        if (w < threadIdx.x / 32) mine += warps[w];
        all += warps[w];
    }
    mine += before(tiles, launch, all);
#pragma unroll
    for (int i = 0; i < EACH; ++i) {
        const unsigned until_next = i + 1 < EACH ? own[i + 1 < EACH ? i + 1 : i] : sum;
        if (first + i < n) {
            out[first + i] = mine + own[i];
            each(first + i, (int)(mine + own[i]), until_next - own[i]);
        }
        if (first + i == n - 1) out[n] = mine + until_next;
    }
}
