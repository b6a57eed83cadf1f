// wgmma_sp: what sparse tensor cores do for a warpgroup, wgmma.mma_async.sp.m64n256k32 (sm_90a;
// SASS: HGMMA.SP).
//
// The loop of wgmma.cu with A stored 2:4. In the time of a dense instruction this one reads twice
// as much of B, 16 KiB, from shared memory, which delivers just that: with A there as well, it
// cannot reach twice the dense rate. A in registers leaves the memory to B.
//
// Template:  KT         pairs of instructions along k that one iteration adds up, each with
//                       operands of its own
//            REGISTERS  whether A is read from registers instead of from shared memory

#include "tiles.cuh"
#include "wgmma.cuh"

__device__ __forceinline__ uint4 quad(const unsigned (&r)[4]) { return {r[0], r[1], r[2], r[3]}; }

template <int KT, bool REGISTERS>
__global__ void __launch_bounds__(256, 1)
    wgmma_sp_loop(int iterations, const u16* __restrict__ val,  // (128, 32 KT) bfloat16, row-major
                  const u16* __restrict__ meta,  // (128, 4 KT), see formats/two_four.py
                  const u16* __restrict__ b,     // (64 KT, 256) bfloat16, row-major
                  float* __restrict__ c)         // (blocks, 128, 256) row-major: iterations * A B
{
    constexpr int K = 64 * KT, N = 256;
    static_assert(K == 128, "a row of A, stored, is 128 bytes, the width of the swizzle");
    using Instruction = Wgmma<N, BF16>;
    extern __shared__ __align__(1024) uint4 shared[];
    uint4* const tile_b = shared;              // N / 64 panels of (K, 64)
    uint4* const tile_a = shared + K * N / 8;  // (128, K / 2): rows of 128 bytes
    fill<K, N, 256>(tile_b, b);
    if (!REGISTERS) fill<128, K / 2, 256>(tile_a, val);
    show_to_wgmma();

    const int warp = threadIdx.x / 32;
    const int group =
        __shfl_sync(~0u, warp / 4, 0);  // the compiler sees that a warp's threads agree
    const unsigned long long left = wgmma_matrix(tile_a + group * 64 * K / 16, 0, 1024);
    const unsigned long long right = wgmma_matrix(tile_b, K * 128, 1024);
    unsigned a[2 * KT][4], kept[KT];
#pragma unroll
    for (int k = 0; k < 2 * KT; ++k) load_a(a[k], val, K / 2, 16 * warp, 16 * k);
#pragma unroll
    for (int k = 0; k < KT; ++k) kept[k] = metadata(meta, K / 16, 16 * warp, 4 * k);

    float d[N / 2] = {};
    wgmma_fence();
#pragma unroll 1
    for (int n = 0; n < iterations; ++n) {
#pragma unroll
        for (
            int k = 0; k < KT;
            ++k) {  // 32 columns of A, stored, are 32 bytes, 32 rows of B 4096, counted in 16 bytes
            if (REGISTERS) {
                Instruction::sparse<0>(d, quad(a[2 * k]), right + 512 * k, kept[k], 1);
                Instruction::sparse<1>(d, quad(a[2 * k + 1]), right + 512 * k + 256, kept[k], 1);
            } else {
                Instruction::sparse<0>(d, left + 4 * k, right + 512 * k, kept[k], 1);
                Instruction::sparse<1>(d, left + 4 * k + 2, right + 512 * k + 256, kept[k], 1);
            }
        }
        wgmma_commit();
        wgmma_wait<1>();
    }
    wgmma_wait<0>();
    store<N / 8>(c + (blockIdx.x * 128 + warp * 16) * N, N, d);
}
