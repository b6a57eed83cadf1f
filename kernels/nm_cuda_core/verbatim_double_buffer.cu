// verbatim_double_buffer: B by cp.async into two buffers, split-K by atomics, to the letter of the
// report (3.6).
//
// The buffers stand in an array of two pointers that a variable chooses from, and so the compiler
// no longer knows that they point to shared memory: B is read by generic loads, float by float, and
// the array lies in local memory. What `double_buffer` improves: its buffers are an array of shared
// memory, read 16 bytes at a time, and all rows of A are requested before the first is stored.
//
// Split-K: blockIdx.z takes a share of the steps, one of gridDim.z; with more than one the partial
// sums meet in C by atomicAdd, so C must be zero before the launch.
//
// Template:  BM, BN  rows and columns of C that a block computes; the report has 32, 32
//            BK      compressed rows of B in a step; the report has 32
// Launch:    grid (m / BM, n / BN, shares), BM * BN / 16 threads, 4 * BK * (BM + 2 * BN) bytes of
//            dynamic shared memory; every array has fewer than 2^31 elements; the report measures 2
//            shares

#include "cp_async.cuh"
#include "nmsparse.cuh"

template <int BM, int BN, int BK>
__global__ void
verbatim_double_buffer(int m, int n, int w,  // sizes; w compressed rows of B
                       const float* A,       // m x k, column-major
                       const float* val,     // w x n, row-major
                       const int* index,  // w x n, row-major: the row of B that a value comes from
                       float* C)          // m x n, column-major
{
    using T = NmSparseTile<BM, BN>;
    static_assert(BK % T::STRIDE_A == 0 && BK % T::STRIDE_B == 0,
                  "a turn of the block must divide the tile: choose BK as a multiple of it");
    extern __shared__ float shared[];
    float* As = shared;
    float* Bs[2];
    Bs[0] = As + BM * BK;
    Bs[1] = Bs[0] + BN * BK;
    const T t;
    float acc[4][4] = {};
    int read = 0, write = 1;

    const int split = gridDim.z, steps = (w + BK - 1) / BK, share = (steps + split - 1) / split;
    const int first = blockIdx.z * share, last = min(steps, first + share);
    if (first >= last) return;

    t.template gather_a<true>(As, A, index + first * BK * n, m, n, BK, w - first * BK);
    t.template load_b<true>(Bs[read], val + first * BK * n, n, BK, w - first * BK);
    __syncthreads();
    for (int step = first; step < last; ++step) {
        const int next = (step + 1) * BK;
        if (step + 1 < last) {
            const int row = threadIdx.x / (BN / 4), column = threadIdx.x % (BN / 4) * 4;
#pragma unroll
            for (int i = 0; i < BK; i += T::STRIDE_B)
                if (next + i + row < w)
                    cp_async_16(&Bs[write][(i + row) * BN + column],
                                val + next * n + t.n0 + (i + row) * n + column);
            cp_async_commit_group();
        }
        t.multiply(acc, As, Bs[read], min(BK, w - step * BK));
        if (step + 1 < last) {
            cp_async_wait_all();
            __syncthreads();
            t.template gather_a<true>(As, A, index + next * n, m, n, BK, w - next);
            __syncthreads();
            const int swap = read;
            read = write;
            write = swap;
        }
    }

    if (split == 1) {
        t.store(C, acc, m);
    } else {
#pragma unroll
        for (int j = 0; j < 4; ++j)
#pragma unroll
            for (int i = 0; i < 4; ++i)
                atomicAdd(&C[(t.n0 + t.t_n + j) * m + t.m0 + t.t_m + i], acc[j][i]);
    }
}
