// v1: hierarchical blocking (NM-SpMM's V1: Listings 1 and 2). Load, synchronise, multiply,
// synchronise.
//
//   for each step of DEPTH rows of A^T and ROWS compressed rows of B:
//     As = all DEPTH rows ("non-packing"), Bs = values, Ds = index
//                                                     through registers, 16 bytes a thread
//     for each compressed row p:  acc += As[Ds[p]] x Bs[p]
//                                                     index and both fragments from shared memory
//
// Every load waits for its address and every multiply-add for its operands: only other warps hide
// the latency.
//
// Template:  BM, BN, TM, TN, SLOT  see spmm_tile.cuh
//            DEPTH, ROWS  rows of A^T and compressed rows of B in a step
//            VECTOR       whether C is stored 16 bytes at a time, for m a multiple of 4
// Launch:    grid (ceil(n / BN), ceil(m / BM)), BM * BN / (TM * TN) threads,
//            4 * (DEPTH * BM + ROWS * BN + BN / SLOT * ROWS) bytes of dynamic shared memory

#include "spmm_tile.cuh"

template <int BM, int BN, int TM, int TN, int DEPTH, int ROWS, int SLOT, bool VECTOR>
__global__ void
__launch_bounds__(PublishedTile<BM, BN, TM, TN>::THREADS, PublishedTile<BM, BN, TM, TN>::BLOCKS) v1(
    int m, int n, int k,
    int lda,    // sizes; lda floats from one column of A to the next, a multiple of 4
    int steps,  // ceil(k / DEPTH)
    const float* __restrict__ A,    // m x k, column-major
    const float* __restrict__ val,  // (steps * ROWS) x (gridDim.x * BN), row-major, 0 where B ends
    const int* __restrict__ index,  // gridDim.x x steps x (BN / SLOT) x ROWS: 0 to DEPTH - 1
    float* __restrict__ C)          // m x n, column-major
{
    using T = PublishedTile<BM, BN, TM, TN>;
    constexpr int ENTRIES = BN / SLOT * ROWS;
    extern __shared__ float4 shared[];
    float* As = reinterpret_cast<float*>(shared);
    float* Bs = As + DEPTH * BM;
    int* Ds = reinterpret_cast<int*>(Bs + ROWS * BN);
    const T t;
    const int m0 = blockIdx.y * BM, n0 = blockIdx.x * BN;
    const size_t pitch = (size_t)gridDim.x * BN;
    float acc[TN][TM] = {};

#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
        const float* a = A + (size_t)step * DEPTH * lda + m0;
        const float* b = val + (size_t)step * ROWS * pitch + n0;
        const int* d = index + ((size_t)blockIdx.x * steps + step) * ENTRIES;
        const int rows = k - step * DEPTH;  // of A^T; no index is of a row beyond them
        for_each_float4<DEPTH, BM, T::THREADS>([&](int i, int column, int, bool inside) {
            if (inside && i < rows && m0 + column < m)
                store4(&As[i * BM + column], load4(&a[(size_t)i * lda + column]));
        });
        for_each_float4<ROWS, BN, T::THREADS>([&](int i, int column, int, bool inside) {
            if (inside) store4(&Bs[i * BN + column], load4(&b[i * pitch + column]));
        });
        load_ints<ENTRIES, T::THREADS>(Ds, d);
        __syncthreads();
        multiply_step<T, ROWS, SLOT>(acc, t, As, Bs, Ds);
        __syncthreads();  // everyone is done with the step
    }
    store_tile<VECTOR, false>(C, acc, t, m, n, m0, n0);
}
