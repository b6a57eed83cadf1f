// verbatim: the baseline to the letter of the report (sections 3.1 to 3.4): nmSPARSE's kernel with
// a fixed step.
//
// What `baseline` improves: there, all rows of a step are requested before the first is stored, and
// C leaves in stores of 16 bytes. Here, a row of A is requested when its index has come, rows
// beyond the end are left out one by one, and a thread stores its 16 elements of C as 16 floats.
// Every sector of 32 bytes of C is so touched four times: the traffic through L1 that the report
// counts.
//
// Template:  BM, BN  rows and columns of C that a block computes; the report has 32, 32
//            BK      compressed rows of B in a step; the report has 64
// Launch:    grid (m / BM, n / BN), BM * BN / 16 threads, 4 * BK * (BM + BN) bytes of dynamic
//            shared memory; every array has fewer than 2^31 elements

#include "nmsparse.cuh"

template <int BM, int BN, int BK>
__global__ void
verbatim(int m, int n, int w,  // sizes; w compressed rows of B
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

    for (int w0 = 0; w0 < w; w0 += BK) {
        __syncthreads();
        t.template gather_a<true>(As, A, index + w0 * n, m, n, BK, w - w0);
        t.template load_b<true>(Bs, val + w0 * n, n, BK, w - w0);
        __syncthreads();
        t.multiply(acc, As, Bs, min(BK, w - w0));
    }
    t.store(C, acc, m);
}
