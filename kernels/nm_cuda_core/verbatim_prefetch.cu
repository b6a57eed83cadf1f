// verbatim_prefetch: verbatim, and before a step is multiplied, loads of the next into registers
// (the report, 3.5).
//
// To the letter: an array of 16 float4 for each operand, filled one after the other as a counter
// says, and never read. So the compiler drops arrays and loads.
//
// Template:  as verbatim's
// Launch:    as verbatim's

#include "nmsparse.cuh"

template <int BM, int BN, int BK>
__global__ void
verbatim_prefetch(int m, int n, int w,  // sizes; w compressed rows of B
                  const float* A,       // m x k, column-major
                  const float* val,     // w x n, row-major
                  const int* index,     // w x n, row-major: the row of B that a value comes from
                  float* C)             // m x n, column-major
{
    using T = NmSparseTile<BM, BN>;
    static_assert(BK % T::STRIDE_A == 0 && BK % T::STRIDE_B == 0,
                  "a turn of the block must divide the tile: choose BK as a multiple of it");
    extern __shared__ float shared[];
    float *As = shared, *Bs = As + BM * BK;
    const T t;
    float acc[4][4] = {};
    [[maybe_unused]] float4 prefetch_a[16], prefetch_b[16];

    const int steps = (w + BK - 1) / BK;
    for (int step = 0; step < steps; ++step) {
        const int w0 = step * BK;
        __syncthreads();
        t.template gather_a<true>(As, A, index + w0 * n, m, n, BK, w - w0);
        t.template load_b<true>(Bs, val + w0 * n, n, BK, w - w0);

        if (step < steps - 1) {
            const int next = w0 + BK, row = threadIdx.x / (BM / 4),
                      column = threadIdx.x % (BM / 4) * 4;
            int count_a = 0, count_b = 0;
#pragma unroll
            for (int i = 0; i < BK; i += T::STRIDE_A)
                if (next + i + row < w) {
                    const int k = *(index + next * n + t.n0 + (i + row) * n);
                    prefetch_a[count_a++] = load4(A + t.m0 + k * m + column);
                }
#pragma unroll
            for (int i = 0; i < BK; i += T::STRIDE_B)
                if (next + i + row < w)
                    prefetch_b[count_b++] = load4(val + next * n + t.n0 + (i + row) * n + column);
        }
        __syncthreads();
        t.multiply(acc, As, Bs, min(BK, w - w0));
    }
    t.store(C, acc, m);
}
