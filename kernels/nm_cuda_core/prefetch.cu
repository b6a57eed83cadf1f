// prefetch: the baseline, and before a step is multiplied, loads of the next step into registers
// (the report, section 3.5).
//
// Nothing ever reads those registers: the loads are meant to warm the caches for the step that
// loads the same rows again. A compiler may drop a load whose value nobody uses, and does.
//
//   USE = false  as published: the machine code is the baseline's, instruction by instruction
//   USE = true   what was meant: the values go into a checksum after the multiplication, so the
//                loads must stay
//
// Template:  BM, BN, BK  see tile.cuh; the report has 32, 32, 64

#include "tile.cuh"

// A use of x that costs two instructions.
__device__ __forceinline__ void mix(unsigned& sum, const float4& x)
{
    sum ^= __float_as_uint(x.x) ^ __float_as_uint(x.y);
    sum ^= __float_as_uint(x.z) ^ __float_as_uint(x.w);
}

template <int BM, int BN, int BK, bool USE>
__global__ void
prefetch(int m, int n, int w,            // sizes; w compressed rows of B
         const float* __restrict__ A,    // m x k, column-major
         const float* __restrict__ val,  // w x n, row-major
         const int* __restrict__ index,  // w x n, row-major: the row of B that a value comes from
         float* __restrict__ C)          // m x n, column-major
{
    using T = Tile<BM, BN>;
    __shared__ alignas(16) float As[BK * BM], Bs[BK * BN];
    unsigned sum = 0;
    const T t;
    float acc[4][4] = {};

    for (int w0 = 0; w0 < w; w0 += BK) {
        const int rows = min(BK, w - w0);
        const size_t at = (size_t)w0 * n + t.n0;
        Step<BM, BN, BK> step, next = {};
        __syncthreads();
        step.load(A + t.m0, val + at, index + at, m, n, rows);
        step.store_a(As, rows);
        step.store_b(Bs, rows);

        const size_t after = at + (size_t)BK * n;
        next.load(A + t.m0, val + after, index + after, m, n,
                  w - w0 - BK);  // of no rows after the last step
        __syncthreads();
        multiply(acc, As, Bs, t, rows);

        if constexpr (USE) {
#pragma unroll
            for (const float4& x : next.a) mix(sum, x);
#pragma unroll
            for (const float4& x : next.b) mix(sum, x);
        }
    }
    store_tile(C, acc, t, m);
    if (USE && m < 0) C[0] = __uint_as_float(sum);  // never, but the compiler cannot know
}
