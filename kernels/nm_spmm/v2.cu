// v2: v1 with packing (NM-SpMM's V2: III-C1, Listing 3), for high sparsity; from 70% on in the
// paper.
//
//   for each step:
//     columns = col_info of the block and the step, then a barrier, for the addresses of A depend
//               on them
//     As = the rows of A^T that they name, and no others; Bs, Ds as in v1, the index counting those
//          rows
//     multiply as v1 does
//
// Fewer rows of A travel, by one round trip to memory more.
//
// Template:  as v1's
// Launch:    grid (ceil(n / BN), ceil(m / BM)), BM * BN / (TM * TN) threads,
//            4 * (capacity * BM + ROWS * BN + BN / SLOT * ROWS + DEPTH) bytes of dynamic shared
//            memory

#include "spmm_tile.cuh"

template <int BM, int BN, int TM, int TN, int DEPTH, int ROWS, int SLOT, bool VECTOR>
__global__ void
__launch_bounds__(PublishedTile<BM, BN, TM, TN>::THREADS, PublishedTile<BM, BN, TM, TN>::BLOCKS) v2(
    int m, int n, int k,
    int lda,       // sizes; lda floats from one column of A to the next, a multiple of 4
    int steps,     // ceil(k / DEPTH)
    int capacity,  // the most rows of A^T that a step needs
    const float* __restrict__ A,    // m x k, column-major
    const float* __restrict__ val,  // (steps * ROWS) x (gridDim.x * BN), row-major, 0 where B ends
    const int* __restrict__ index,  // gridDim.x x steps x (BN / SLOT) x ROWS: positions in col_info
    const int* __restrict__ col_info,  // gridDim.x x steps x DEPTH: rows of A^T, then -1
    float* __restrict__ C)             // m x n, column-major
{
    using T = PublishedTile<BM, BN, TM, TN>;
    constexpr int ENTRIES = BN / SLOT * ROWS;
    extern __shared__ float4 shared[];
    float* As = reinterpret_cast<float*>(shared);
    float* Bs = As + capacity * BM;
    int* Ds = reinterpret_cast<int*>(Bs + ROWS * BN);
    int* columns = Ds + ENTRIES;
    const T t;
    const int m0 = blockIdx.y * BM, n0 = blockIdx.x * BN;
    const size_t pitch = (size_t)gridDim.x * BN;
    float acc[TN][TM] = {};

#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
        const size_t at = (size_t)blockIdx.x * steps + step;
        load_ints<DEPTH, T::THREADS>(columns, col_info + at * DEPTH);
        __syncthreads();
        const float* b = val + (size_t)step * ROWS * pitch + n0;
        // All rows first, then all of A, then all stores: one by one each would wait for the one
        // before.
        constexpr int STRIDE = T::THREADS / (BM / 4),
                      PIECES = (DEPTH + STRIDE - 1) / STRIDE;  // of a thread
        int row[PIECES];
        float4 piece[PIECES];
        for_each_float4<DEPTH, BM, T::THREADS>([&](int i, int column, int p, bool inside) {
            row[p] = inside && m0 + column < m ? columns[i] : -1;
        });
        for_each_float4<DEPTH, BM, T::THREADS>([&](int i, int column, int p, bool) {
            if (row[p] >= 0) piece[p] = load4(&A[(size_t)row[p] * lda + m0 + column]);
        });
        for_each_float4<DEPTH, BM, T::THREADS>([&](int i, int column, int p, bool) {
            if (row[p] >= 0) store4(&As[i * BM + column], piece[p]);
        });
        for_each_float4<ROWS, BN, T::THREADS>([&](int i, int column, int, bool inside) {
            if (inside) store4(&Bs[i * BN + column], load4(&b[i * pitch + column]));
        });
        load_ints<ENTRIES, T::THREADS>(Ds, index + at * ENTRIES);
        __syncthreads();
        multiply_step<T, ROWS, SLOT>(acc, t, As, Bs, Ds);
        __syncthreads();  // everyone is done with the step
    }
    store_tile<VECTOR, false>(C, acc, t, m, n, m0, n0);
}
