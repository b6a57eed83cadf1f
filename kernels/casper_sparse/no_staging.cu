// no_staging: the published kernel without its shared memory, to see what staging is worth.
//
//   C (m x n) = A (m x k, CSR) . B (k x n),  float32, B and C row-major, n a multiple of 4.
//
// Every lane reads the column and the value of each non-zero itself. All lanes of a warp ask for
// the same address, so that is one request to L1 for the warp, not 32; nothing has to be
// synchronised. Everything else is warp_per_row.
//
// Template:  WARPS  warps (= rows of C) of a block
#include "vec.cuh"

template <int WARPS>
__global__ void
no_staging(int m, int n, const int* __restrict__ row_ptr, const int* __restrict__ col_idx,
           const float* __restrict__ val, const float* __restrict__ B, float* __restrict__ C)
{
    const int row = blockIdx.x * WARPS + threadIdx.x / 32;
    if (row >= m) return;
    const int start = row_ptr[row], end = row_ptr[row + 1];

    for (int col = threadIdx.x % 32 * 4; col < n; col += 128) {
        vec<4> acc = {};
        for (int i = start; i < end; ++i)
            fma(acc, val[i],
                load(reinterpret_cast<const vec<4>*>(B + (size_t)col_idx[i] * n + col)));
        *reinterpret_cast<vec<4>*>(C + (size_t)row * n + col) = acc;
    }
}
