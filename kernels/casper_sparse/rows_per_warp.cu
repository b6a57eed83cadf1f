// rows_per_warp: several rows share a warp, so that the panel is narrow enough to live in L1.
//
//   C (m x n) = A (m x k, CSR) . B (k x n),  float32, B and C row-major.
//
//   a warp, LANES = 8, VEC = 4:        lanes 0-7     lanes 8-15    lanes 16-23   lanes 24-31
//                                      row r         row r + 1     row r + 2     row r + 3
//   each group of lanes:               32 columns of B = one 128-byte line a non-zero
//
// A panel of 32 columns over all of k takes k * 128 bytes: 256 KiB for k = 2048, what the L1 of an
// H100 holds. A block works through `rows_per_block` rows of one panel before it ends, so a line of
// B that one row fetched from L2 may be an L1 hit for the rows after it. Eight neighbouring lanes
// read one whole line, so L1 delivers its full 128 bytes a clock, and n = 32 no longer leaves 24
// lanes of a warp idle.
//
// With LANES = 32 the same code gives a whole warp to a row and 128 columns to a panel: the variant
// `in_flight`, whose 40 registers let 48 warps share an SM.
//
// Template:  THREADS  of a block; THREADS / LANES rows are in flight
//            LANES    lanes that share a row: 8, 16 or 32
//            VEC      float32 values of one load: 1, 2 or 4; must divide n
//            UNROLL   non-zeros whose loads are issued together; must divide LANES
#include "vec.cuh"

template <int THREADS, int LANES, int VEC, int UNROLL>
__global__ void __launch_bounds__(THREADS, 1536 / THREADS)
    rows_per_warp(int m, int n, int rows_per_block, const int* __restrict__ row_ptr,
                  const int* __restrict__ col_idx, const float* __restrict__ val,
                  const float* __restrict__ B, float* __restrict__ C)
{
    static_assert(
        LANES % UNROLL == 0, "a chunk of LANES non-zeros is cut into whole groups of UNROLL");
    const int row_blocks = (m + rows_per_block - 1) / rows_per_block;
    const int first = blockIdx.x % row_blocks * rows_per_block;
    const int last = min(m, first + rows_per_block);
    const int group = threadIdx.x / LANES, lane = threadIdx.x % LANES;
    const int col = blockIdx.x / row_blocks * (LANES * VEC) + lane * VEC;

    // Every lane of the warp makes the same steps, up to the longest of its rows, so that the
    // shuffles meet.
    for (int base = first; base < last; base += THREADS / LANES) {
        const int row = base + group;
        const int start = row < last ? row_ptr[row] : 0;
        const int length = row < last ? row_ptr[row + 1] - start : 0;
        const int longest = __reduce_max_sync(~0u, length);
        vec<VEC> acc = {};
        for (int i = 0; i < longest; i += LANES) {
            const int my_col = i + lane < length ? col_idx[start + i + lane] : 0;
            const float my_val = i + lane < length ? val[start + i + lane] : 0.f;
            const int t = min(LANES, longest - i);
            for (int j = 0; j < t; j += UNROLL) {
                vec<VEC> b[UNROLL];
#pragma unroll
                for (int u = 0; u < UNROLL; ++u) {
                    const size_t k = __shfl_sync(~0u, my_col, j + u, LANES);
                    // Beyond the row's end nothing is loaded: a zero times an infinity would be
                    // NaN.
                    const bool inside = i + j + u < length && col < n;
                    b[u] = inside ? load(reinterpret_cast<const vec<VEC>*>(B + k * n + col))
                                  : vec<VEC>{};
                }
#pragma unroll
                for (int u = 0; u < UNROLL; ++u)
                    fma(acc, __shfl_sync(~0u, my_val, j + u, LANES), b[u]);
            }
        }
        if (row < last && col < n) *reinterpret_cast<vec<VEC>*>(C + (size_t)row * n + col) = acc;
    }
}
