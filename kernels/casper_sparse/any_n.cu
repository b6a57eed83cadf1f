// any_n: the published kernel for every n, the vector width chosen by what n divides.
//
//   C (m x n) = A (m x k, CSR) . B (k x n),  float32, B and C row-major.
//
// A row of B starts at a multiple of 16 bytes only where 4 divides n. So the lane's vector is a
// template argument: VEC = 4 where 4 divides n, 2 where 2 does, else 1; a warp's tile is 32 * VEC
// columns. Everything else is warp_per_row.
//
// Template:  WARPS  warps (= rows of C) of a block
//            VEC    float32 values a lane loads at once: 1, 2 or 4; must divide n
#include "vec.cuh"

template <int WARPS, int VEC>
__global__ void any_n(int m, int n, const int* __restrict__ row_ptr,
                      const int* __restrict__ col_idx, const float* __restrict__ val,
                      const float* __restrict__ B,  // k x n
                      float* __restrict__ C)        // m x n
{
    static_assert(VEC == 1 || VEC == 2 || VEC == 4, "a load is 4, 8 or 16 bytes wide");
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int row = blockIdx.x * WARPS + warp;
    if (row >= m) return;
    const int start = row_ptr[row], end = row_ptr[row + 1];

    __shared__ int sh_col[WARPS][32];
    __shared__ float sh_val[WARPS][32];

    for (int tile = 0; tile < n; tile += 32 * VEC) {
        const int col = tile + lane * VEC;
        const bool active = col < n;  // VEC divides n, so a vector is inside or outside as a whole
        vec<VEC> acc = {};
        for (int i = start; i < end; i += 32) {
            const int t = min(32, end - i);
            if (lane < t) {
                sh_col[warp][lane] = col_idx[i + lane];
                sh_val[warp][lane] = val[i + lane];
            }
            __syncwarp();
            if (active)
                for (int j = 0; j < t; ++j)
                    fma(acc, sh_val[warp][j],
                        load(reinterpret_cast<const vec<VEC>*>(
                            B + (size_t)sh_col[warp][j] * n + col)));
            __syncwarp();
        }
        if (active) *reinterpret_cast<vec<VEC>*>(C + (size_t)row * n + col) = acc;
    }
}
