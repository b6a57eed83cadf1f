// l2_panels: the blocks of one column panel run together, so that their rows of B meet in L2.
//
//   C (m x n) = A (m x k, CSR) . B (k x n),  float32, B and C row-major.
//
//   block b -> rows b % row_blocks, column panel b / row_blocks    (neighbours: same panel of B)
//
// The only change to column_tiles is the order of the blocks. The hardware starts blocks in order
// of their index, so the blocks in flight share one panel of B, k x (32 * VEC * TILES) values,
// instead of touching all n columns. That panel (2 MiB for k = 4096 and 128 columns) stays in L2,
// and DRAM sees every element of B once; the price is that A is read from L2 again for every panel.
//
// Template:  WARPS  warps (= rows of C) of a block
//            VEC    float32 values of one load: 1, 2 or 4; must divide n
//            TILES  vectors of one lane; a warp's tile is 32 * VEC * TILES columns
//            UNROLL non-zeros whose loads are issued together
#include "vec.cuh"

template <int WARPS, int VEC, int TILES, int UNROLL>
__global__ void
l2_panels(int m, int n, const int* __restrict__ row_ptr, const int* __restrict__ col_idx,
          const float* __restrict__ val, const float* __restrict__ B, float* __restrict__ C)
{
    static_assert(32 % UNROLL == 0, "a chunk of 32 non-zeros is cut into whole groups of UNROLL");
    const int lane = threadIdx.x % 32;
    const int row_blocks = (m + WARPS - 1) / WARPS;
    const int row = blockIdx.x % row_blocks * WARPS + threadIdx.x / 32;
    if (row >= m) return;
    const int start = row_ptr[row], end = row_ptr[row + 1];
    const int col0 = blockIdx.x / row_blocks * (32 * VEC * TILES) + lane * VEC;

    vec<VEC> acc[TILES] = {};
    for (int i = start; i < end; i += 32) {
        const int t = min(32, end - i);
        const int my_col = lane < t ? col_idx[i + lane] : 0;
        const float my_val = lane < t ? val[i + lane] : 0.f;
        for (int j = 0; j < t; j += UNROLL) {
            vec<VEC> b[UNROLL][TILES];
#pragma unroll
            for (int u = 0; u < UNROLL; ++u) {
                const float* b_row = B + (size_t)__shfl_sync(~0u, my_col, j + u) * n;
#pragma unroll
                for (int s = 0; s < TILES; ++s) {
                    const int col = col0 + s * 32 * VEC;
                    // Beyond the row's end nothing is loaded: a zero times an infinity would be
                    // NaN.
                    const auto* p = reinterpret_cast<const vec<VEC>*>(b_row + col);
                    b[u][s] = j + u < t && col < n ? load(p) : vec<VEC>{};
                }
            }
#pragma unroll
            for (int u = 0; u < UNROLL; ++u) {
                const float a = __shfl_sync(~0u, my_val, j + u);
#pragma unroll
                for (int s = 0; s < TILES; ++s) fma(acc[s], a, b[u][s]);
            }
        }
    }
#pragma unroll
    for (int s = 0; s < TILES; ++s) {
        const int col = col0 + s * 32 * VEC;
        if (col < n) *reinterpret_cast<vec<VEC>*>(C + (size_t)row * n + col) = acc[s];
    }
}
