// mma: what dense tensor cores do for a warp, mma.sync.m16n8k16, BF16 in and FP32 out (SASS: HMMA).
//
// Each warp keeps its operands in registers and adds the same product over and over: C <- C + A B.
// Its MT x NT accumulators do not depend on one another, and there are two warps a scheduler, so
// the pipe is never short of work. The operands are random, because tensor cores draw less power
// from zeros, and then clock higher.
//
// Template:  MT, NT  accumulators of 16 x 8 of a warp, down and across
//            KT      instructions along k that one iteration adds up, each with operands of its own

#include "fragments.cuh"

__device__ __forceinline__ void mma(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2])
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

template <int MT, int NT, int KT>
__global__ void __launch_bounds__(256, 1)
    mma_loop(int iterations,
             const u16* __restrict__ a,  // (warps of a block, 16 MT, 16 KT) bfloat16, row-major
             const u16* __restrict__ b,  // (warps of a block, 8 NT, 16 KT): B, column-major
             float* __restrict__ c)      // (all warps, 16 MT, 8 NT) row-major: iterations * A B
{
    constexpr int K = 16 * KT;
    const int warp = threadIdx.x / 32;
    a += warp * 16 * MT * K;
    b += warp * 8 * NT * K;
    c += (blockIdx.x * (blockDim.x / 32) + warp) * 16 * MT * 8 * NT;

    unsigned left[KT][MT][4], right[KT][NT][2];
    float d[MT][NT][4] = {};
#pragma unroll
    for (int k = 0; k < KT; ++k) {
#pragma unroll
        for (int i = 0; i < MT; ++i) load_a(left[k][i], a, K, 16 * i, 16 * k);
#pragma unroll
        for (int j = 0; j < NT; ++j) load_b(right[k][j], b, K, 16 * k, 8 * j);
    }

#pragma unroll 1
    for (int n = 0; n < iterations; ++n)
#pragma unroll
        for (int k = 0; k < KT; ++k)
#pragma unroll
            for (int i = 0; i < MT; ++i)
#pragma unroll
                for (int j = 0; j < NT; ++j) mma(d[i][j], left[k][i], right[k][j]);

#pragma unroll
    for (int i = 0; i < MT; ++i) store<NT>(c + 16 * i * 8 * NT, 8 * NT, d[i][0]);
}
