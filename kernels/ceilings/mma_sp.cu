// mma_sp: what sparse tensor cores do for a warp, mma.sp::ordered_metadata.m16n8k32 (SASS:
// HMMA.SP).
//
// The loop of mma.cu with A stored 2:4. One register holds the metadata of two instructions, one
// after the other along k: selector 0 takes it from half of the lanes, selector 1 from the other
// half.
//
// Template:  MT, NT  accumulators of 16 x 8 of a warp, down and across
//            KT      pairs of instructions along k that one iteration adds up, each with operands
//                    of its own

#include "fragments.cuh"
#include "mma_sp.cuh"

template <int MT, int NT, int KT>
__global__ void __launch_bounds__(256, 1) mma_sp_loop(
    int iterations,
    const u16* __restrict__ val,   // (warps of a block, 16 MT, 32 KT) bfloat16, row-major
    const u16* __restrict__ meta,  // (warps of a block, 16 MT, 4 KT), formats/two_four.py
    const u16* __restrict__ b,     // (warps of a block, 8 NT, 64 KT): B, column-major
    float* __restrict__ c)         // (all warps, 16 MT, 8 NT) row-major: iterations * A B
{
    constexpr int K = 64 * KT;
    const int warp = threadIdx.x / 32;
    val += warp * 16 * MT * K / 2;
    meta += warp * 16 * MT * K / 16;
    b += warp * 8 * NT * K;
    c += (blockIdx.x * (blockDim.x / 32) + warp) * 16 * MT * 8 * NT;

    unsigned left[2 * KT][MT][4], right[2 * KT][NT][4], kept[KT][MT];
    float d[MT][NT][4] = {};
#pragma unroll
    for (int k = 0; k < 2 * KT; ++k) {
#pragma unroll
        for (int i = 0; i < MT; ++i) load_a(left[k][i], val, K / 2, 16 * i, 16 * k);
#pragma unroll
        for (int j = 0; j < NT; ++j) load_b(right[k][j], b, K, 32 * k, 8 * j);
    }
#pragma unroll
    for (int k = 0; k < KT; ++k)
#pragma unroll
        for (int i = 0; i < MT; ++i) kept[k][i] = metadata(meta, K / 16, 16 * i, 4 * k);

#pragma unroll 1
    for (int n = 0; n < iterations; ++n)
#pragma unroll
        for (int k = 0; k < KT; ++k) {
#pragma unroll
            for (int i = 0; i < MT; ++i)
#pragma unroll
                for (int j = 0; j < NT; ++j)
                    mma_sp_m16n8k32<BF16, 0>(d[i][j], left[2 * k][i], right[2 * k][j], kept[k][i]);
#pragma unroll
            for (int i = 0; i < MT; ++i)
#pragma unroll
                for (int j = 0; j < NT; ++j)
                    mma_sp_m16n8k32<BF16, 1>(
                        d[i][j], left[2 * k + 1][i], right[2 * k + 1][j], kept[k][i]);
        }

#pragma unroll
    for (int i = 0; i < MT; ++i) store<NT>(c + 16 * i * 8 * NT, 8 * NT, d[i][0]);
}
