// wgmma: what dense tensor cores do for a warpgroup, wgmma.mma_async.m64n256k16 (sm_90a; SASS:
// HGMMA).
//
// The loop of mma.cu with A and B in shared memory, where wgmma reads them without the warps' help.
// Two warpgroups with 64 rows each take turns: while one waits for its instructions to retire,
// those of the other run. Their accumulators, 64 x 256 each, are half of an SM's registers.
//
// Template:  KT  instructions along k that one iteration adds up, each with operands of its own

#include "tiles.cuh"
#include "wgmma.cuh"

template <int KT>
__global__ void __launch_bounds__(256, 1)
    wgmma_loop(int iterations, const u16* __restrict__ a,  // (128, 16 KT) bfloat16, row-major
               const u16* __restrict__ b,                  // (16 KT, 256) bfloat16, row-major
               float* __restrict__ c)  // (blocks, 128, 256) row-major: iterations * A B
{
    constexpr int K = 16 * KT, N = 256;
    static_assert(K == 64, "a row of A is 128 bytes, the width of the swizzle");
    extern __shared__ __align__(1024) uint4 shared[];
    uint4* const tile_a = shared;                // (128, K): rows of 128 bytes
    uint4* const tile_b = shared + 128 * K / 8;  // N / 64 panels of (K, 64)
    fill<128, K, 256>(tile_a, a);
    fill<K, N, 256>(tile_b, b);
    show_to_wgmma();

    const int warp = threadIdx.x / 32;
    const int group =
        __shfl_sync(~0u, warp / 4, 0);  // the compiler sees that a warp's threads agree
    const unsigned long long left = wgmma_matrix(tile_a + group * 64 * K / 8, 0, 1024);
    const unsigned long long right = wgmma_matrix(tile_b, K * 128, 1024);
    float d[N / 2] = {};
    wgmma_fence();
#pragma unroll 1
    for (int n = 0; n < iterations; ++n) {
#pragma unroll
        for (int k = 0; k < KT;
             ++k)  // 16 columns of A are 32 bytes, 16 rows of B 2048, counted in 16 bytes
            Wgmma<N, BF16>::dense(d, left + 2 * k, right + 128 * k, 1);
        wgmma_commit();
        wgmma_wait<1>();
    }
    wgmma_wait<0>();
    store<N / 8>(c + (blockIdx.x * 128 + warp * 16) * N, N, d);
}
