// nmsparse: nmSPARSE's vector-wise kernel in FP32, as NM-SpMM's authors time it: what they are
// faster than.
//
// What it does is what the kernel does that NM-SpMM's authors publish with their comparison
// (benchmark/kernel_performance/run_test/nmsparse), written anew: 32 x 32 of C a block of 64
// threads, 4 x 4 a thread, steps of 128 rows of B at 50% sparsity and of 256 at every other, no
// split-K:
//
//   for each step of `rows` compressed rows:
//     As = the rows of A^T that the indices name, Bs = values    four rows of a thread in flight
//     acc += As x Bs, row by row                                 two rows a turn of the loop
//
// The rows of a step come from an argument, not a constant, and that is its price: no loop is
// unrolled whole, and each turn of the multiplying one counts, compares and computes addresses
// beside 32 multiply-adds. They are computed from the sparsity as nmSPARSE does: a count that is
// handed over goes to the uniform registers, and that is other machine code.
//
// Template:  BM, BN  rows and columns of C that a block computes: 32, 32
//            BK      rows of B in a step, of which BK * (1 - sparsity) are stored: 128 or 256
// Launch:    grid (m / BM, n / BN), BM * BN / 16 threads, 4 * rows * (BM + BN) bytes of dynamic
//            shared memory; every array has fewer than 2^31 elements

#include "nmsparse.cuh"

template <int BM, int BN, int BK>
__global__ void
nmsparse(int m, int n, int k,  // sizes; k is a multiple of BK
         float sparsity,       // BK * (1 - sparsity) is a whole number, and a multiple of 8
         const float* A,       // m x k, column-major
         const float* val,     // w x n, row-major
         const int* index,     // w x n, row-major: the row of B that a value comes from
         float* C)             // m x n, column-major
{
    extern __shared__ float shared[];
    const int rows = int(BK * (1 - sparsity));
    float *As = shared, *Bs = As + BM * rows;
    const NmSparseTile<BM, BN> t;
    float acc[4][4] = {};

    for (int k0 = 0, w0 = 0; k0 < k; k0 += BK, w0 += rows) {
        __syncthreads();  // everyone is done with the previous step
        t.template gather_a<false>(As, A, index + w0 * n, m, n, rows, rows);
        t.template load_b<false>(Bs, val + w0 * n, n, rows, rows);
        __syncthreads();
        t.multiply(acc, As, Bs, rows);
    }
    t.store(C, acc, m);
}
