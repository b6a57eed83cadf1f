// sddmm: of a product of two dense matrices, the elements at a sparse matrix's places (sampled
// dense-dense product).
//
//     out[e] = sum over j of  G[row[e], j] * B[column[e], j]          e = 0 ... nnz - 1
//
// The gradient of C = A . B with respect to A's values, where G is C's. The idea: a warp takes 32
// neighbouring places, not a row, so that rows of any length cost alike; its lanes walk along two
// rows side by side, V columns each, and add up. Neighbouring places mostly share their row of G,
// which then comes from L1.
//
// Template:  V  float32 values that a lane loads at once: 4, 2 or 1; divides n
// Launch:    blocks of 32 x WARPS threads; ceil(nnz / (32 * WARPS)) of them

#include "vec.cuh"

template <int V>
__global__ void sddmm(int nnz, int n,
                      const int* __restrict__ row,     // (nnz,)
                      const int* __restrict__ column,  // (nnz,)
                      const float* __restrict__ g,     // (rows of A, n) row-major
                      const float* __restrict__ b,     // (columns of A, n) row-major
                      float* __restrict__ out)         // (nnz,)
{
    const int lane = threadIdx.x;
    const long long first = ((long long)blockIdx.x * blockDim.y + threadIdx.y) * 32;
    if (first >= nnz) return;
    const int count = (int)min(32ll, nnz - first);
    const int my_row = lane < count ? row[first + lane] : 0;
    const int my_column = lane < count ? column[first + lane] : 0;
    float mine = 0.0f;
    for (int e = 0; e < count; ++e) {
        const vec<V>* left =
            reinterpret_cast<const vec<V>*>(g + (long long)__shfl_sync(~0u, my_row, e) * n);
        const vec<V>* right =
            reinterpret_cast<const vec<V>*>(b + (long long)__shfl_sync(~0u, my_column, e) * n);
        float sum = 0.0f;
        for (int j = lane; j < n / V; j += 32) {
            const vec<V> x = load(left + j), y = load(right + j);
#pragma unroll
            for (int v = 0; v < V; ++v) sum = fmaf(x.at[v], y.at[v], sum);
        }
#pragma unroll
        for (int far = 16; far; far /= 2) sum += __shfl_xor_sync(~0u, sum, far);
        if (lane == e) mine = sum;
    }
    if (lane < count) out[first + lane] = mine;
}
